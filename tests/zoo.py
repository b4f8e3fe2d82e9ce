"""Every odd module that we could think of, by name; each is built anew for each test.

Add a case by a function with `@case`: its name is its id. What does not hold for it is said in the decorator.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils import parametrizations, parametrize, prune


@dataclass(frozen=True)
class Case:
    """One module to look at.

    Attributes:
        saves: ``state_dict()`` works on it.
        walks: ``named_modules(remove_duplicate=False)`` ends, and tells the truth.
        listed: it has so few paths that they can be listed.
        large: to list it takes long.
    """

    id: str
    make: Callable[[], nn.Module]
    saves: bool = True
    walks: bool = True
    listed: bool = True
    large: bool = False

    def __str__(self) -> str:
        return self.id

    def build(self) -> nn.Module:
        """A new one; torch's own deprecations (TorchScript, quantization, …) are not the subject here."""
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            return self.make()

    def state_keys(self, model: nn.Module) -> list[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(model.state_dict())


CASES: list[Case] = []


def case(make: Callable[[], nn.Module] | None = None, **facts: bool) -> Callable[..., nn.Module]:
    def add(function: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        CASES.append(Case(function.__name__, function, **facts))
        return function

    return add(make) if make else add


def every(**facts: bool) -> list[Case]:
    """The cases for which all these facts hold."""
    return [case for case in CASES if all(getattr(case, name) is value for name, value in facts.items())]


def named(name: str) -> Case:
    return next(case for case in CASES if case.id == name)


# ---- the oracle: plain walks over the stores, by identity --------------------------------------------------------------------


def stored(module: nn.Module, store: str) -> dict[str, object]:
    held = object.__getattribute__(module, "__dict__")
    inner = held.get("_actual_script_module")  # in which a traced module keeps everything
    return (held if inner is None else inner.__dict__).get(store) or {}


def distinct_modules(model: nn.Module) -> list[nn.Module]:
    """Each module once, parents before children."""
    seen, stack = {}, [model]
    while stack:
        module = stack.pop()
        if id(module) not in seen:
            seen[id(module)] = module
            stack.extend(child for child in stored(module, "_modules").values() if child is not None)
    return list(seen.values())


def distinct_tensors(model: nn.Module, *stores: str) -> list[Tensor]:
    """Each registered tensor once."""
    found = {id(t): t for m in distinct_modules(model) for store in stores for t in stored(m, store).values() if t is not None}
    return list(found.values())


def sized(tensors: list[Tensor]) -> list[Tensor]:
    """Those that have a shape."""
    return [t for t in tensors if not nn.parameter.is_lazy(t)]


# ---- plain ones, and nine that are often counted wrong -----------------------------------------------------------------------


class Net(nn.Module):
    """A name, two layers, and a docstring with <b>tags</b> and $x^2$."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.l0, self.l1 = nn.Linear(width, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.l1(self.l0(x).relu())


@case
def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))


@case
def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(3))


@case
def conv_bn_frozen() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4)).requires_grad_(False)
    return nn.Sequential(OrderedDict(body=body, head=nn.Linear(4, 2)))


@case
def lstm() -> nn.Module:
    return nn.Sequential(
        OrderedDict(embed=nn.Embedding(20, 8), lstm=nn.LSTM(8, 6, num_layers=2, bidirectional=True), head=nn.Linear(12, 20))
    )


@case
def tied_weight() -> nn.Module:
    model = nn.ModuleDict({"embed": nn.Embedding(50, 8), "mid": nn.Linear(8, 8), "head": nn.Linear(8, 50, bias=False)})
    model["head"].weight = model["embed"].weight
    return model


@case
def reused_module() -> nn.Module:
    a = nn.Linear(8, 8)
    return nn.Sequential(a, nn.ReLU(), a, nn.Linear(8, 2))


class Bare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.fc = nn.Parameter(torch.ones(8)), nn.Linear(8, 8)
        self.extra = nn.ParameterList([torch.zeros(3), torch.zeros(5)])
        self.named = nn.ParameterDict({"foo": torch.zeros(2), "bar": torch.zeros(4)})
        self.mixed = nn.ParameterList([nn.Parameter(torch.zeros(2)), "text", None])


@case
def bare_parameters() -> nn.Module:
    return Bare()


@case
def meta() -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 2))


@case
def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d(), nn.LazyConv2d(3, 2), nn.Linear(16, 2))


@case
def unused_branch() -> nn.Module:
    return nn.ModuleDict({"used": nn.Linear(8, 8), "unused": nn.Linear(8, 100)})


# ---- names, ties and circles -------------------------------------------------------------------------------------------------


@case
def aliased() -> nn.Module:
    model = Net()
    model.again = model.l0
    model.l9 = nn.Sequential(model.l1, nn.ReLU())
    return model


@case
def alias_under_alias() -> nn.Module:
    inner = nn.Linear(2, 2)
    outer = nn.Sequential(inner, inner)
    model = nn.Sequential(outer, nn.Sequential(outer, inner), nn.Linear(2, 2))
    model[2].weight = inner.weight
    return model


@case(walks=False, saves=False, listed=False)
def dag_of_2_to_the_40() -> nn.Module:
    module: nn.Module = nn.Linear(2, 2)
    for _ in range(40):
        module = nn.Sequential(module, module)
    return module


@case(walks=False, saves=False)
def contains_itself() -> nn.Module:
    model = Net()
    model.me = model
    return model


@case(walks=False, saves=False)
def circle_of_three() -> nn.Module:
    a, b, c = Net(), Net(5), Net(6)
    a.b, b.c, c.a, c.b = b, c, a, b
    return nn.Sequential(nn.ReLU(), a)


@case(walks=False, saves=False, large=True)
def ten_thousand_deep() -> nn.Module:
    module: nn.Module = nn.Linear(2, 2)
    for i in range(9_999):
        module, below = nn.Sequential(), module
        module._modules["0" if i % 2 else "a"] = below
    return module


@case
def holes() -> nn.Module:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)])
    model[1] = None
    model.register_module("later", None)
    model.register_parameter("weight", None)
    model.register_buffer("mean", None)
    model.add_module("10", nn.Linear(2, 2))
    return model


@case
def tied_in_one_module() -> nn.Module:
    model = nn.Linear(3, 3)
    model.again = model.weight
    model.register_buffer("bias_too", model.bias)
    return model


@case
def tied_blocks() -> nn.Module:
    blocks = nn.ModuleList(nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)}) for _ in range(6))
    for block in blocks:
        block["b"].weight = block["a"].weight
    blocks[4]["a"].bias = blocks[0]["a"].bias
    return nn.Sequential(OrderedDict(head=nn.Linear(3, 3), blocks=blocks))


# ---- sizes -------------------------------------------------------------------------------------------------------------------


@case(large=True)
def fan_out_of_1000() -> nn.Module:
    return nn.ModuleList(nn.Linear(1, 1 + i % 71, device="meta") for i in range(1_000))


@case(large=True)
def blocks_500() -> nn.Module:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8, device="meta"), nn.Linear(8, 8, bias=False, device="meta"))

    return nn.ModuleDict({"first": nn.Linear(8, 8, device="meta"), "layers": nn.ModuleList(block() for _ in range(500))})


@case
def empty() -> nn.Module:
    return nn.Module()


@case
def empty_containers() -> nn.Module:
    return nn.Sequential(nn.ModuleList(), nn.ModuleDict(), nn.ParameterList(), nn.ParameterDict(), nn.Sequential(), nn.Identity())


# ---- torch's own machinery ---------------------------------------------------------------------------------------------------


@case
def rnns() -> nn.Module:
    return nn.ModuleList([nn.RNN(3, 4), nn.GRU(3, 4, bidirectional=True), nn.LSTM(3, 4, proj_size=2), nn.LSTMCell(3, 4), nn.GRUCell(3, 4)])


@case
def attention() -> nn.Module:
    return nn.ModuleList([nn.MultiheadAttention(8, 2), nn.MultiheadAttention(8, 2, kdim=4, vdim=6, add_bias_kv=True, bias=False)])


@case
def transformer() -> nn.Module:
    return nn.Transformer(8, 2, 3, 2, 16)


@case
def embedding_bag_sparse() -> nn.Module:
    model = nn.Sequential(OrderedDict(bag=nn.EmbeddingBag(10, 4, sparse=True, mode="sum"), other=nn.Embedding(10, 4, sparse=True)))
    model.bag(torch.tensor([[1, 2]])).sum().backward()
    (model.other(torch.tensor([3])) * 0).sum().backward()
    return model


@case
def losses_and_shapes() -> nn.Module:
    return nn.ModuleList(
        [nn.CrossEntropyLoss(weight=torch.ones(3)), nn.Unflatten(1, (2, 2)), nn.Upsample(scale_factor=2), nn.Bilinear(2, 3, 4)]
    )


@case
def parametrized() -> nn.Module:
    return nn.Sequential(
        parametrizations.orthogonal(nn.Linear(4, 4)),
        parametrizations.weight_norm(nn.Linear(4, 3)),
        parametrizations.spectral_norm(nn.Linear(3, 3)),
    )


@case
def parametrized_twice() -> nn.Module:
    class Double(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

        def right_inverse(self, x: Tensor) -> Tensor:
            return x / 2

    model = nn.Linear(3, 3)
    for _ in range(2):
        parametrize.register_parametrization(model, "weight", Double())
    return model


@case
def weight_norm_legacy() -> nn.Module:
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 3)), nn.utils.weight_norm(nn.Linear(3, 3), dim=None))


@case
def spectral_norm_legacy() -> nn.Module:
    return nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 3)), nn.ReLU())


@case
def pruned() -> nn.Module:
    model = Net()
    prune.l1_unstructured(model.l0, "weight", 0.5)
    prune.random_structured(model.l0, "weight", 0.5, dim=0)
    return model


@case
def pruned_for_good() -> nn.Module:
    return prune.remove(prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.5), "weight")


@case
def quantized_dynamic() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(
        nn.Sequential(nn.Linear(4, 3), nn.LSTM(3, 2), nn.Linear(2, 2, bias=False)), {nn.Linear, nn.LSTM}, dtype=torch.qint8
    )


@case
def quantized_static() -> nn.Module:
    model = nn.Sequential(torch.ao.quantization.QuantStub(), nn.Conv2d(1, 2, 3), nn.ReLU(), torch.ao.quantization.DeQuantStub()).eval()
    model.qconfig = torch.ao.quantization.get_default_qconfig("onednn" if torch.backends.quantized.engine == "onednn" else "fbgemm")
    model = torch.ao.quantization.prepare(model)
    model(torch.randn(1, 1, 5, 5))
    return torch.ao.quantization.convert(model)


@case
def quantized_float16() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)), {nn.Linear}, dtype=torch.float16)


@case
def observed() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
    return torch.ao.quantization.prepare_qat(model.train())


@case
def scripted() -> nn.Module:
    return torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()))


@case
def traced() -> nn.Module:
    return torch.jit.trace(Net().eval(), torch.ones(2, 4))


@case
def scripted_child() -> nn.Module:
    return nn.Sequential(torch.jit.script(nn.Linear(4, 3)), nn.ReLU())


@case
def compiled() -> nn.Module:
    return torch.compile(Net(), backend="eager")


@case
def compiled_in_place() -> nn.Module:
    model = Net()
    model.l0.compile(backend="eager")
    return model


@case
def fx_graph() -> nn.Module:
    return torch.fx.symbolic_trace(Net())


@case
def averaged() -> nn.Module:
    return torch.optim.swa_utils.AveragedModel(Net())


@case
def data_parallel() -> nn.Module:
    return nn.DataParallel(Net())


@case
def distributed_like() -> nn.Module:
    class DistributedDataParallel(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module
            self._module_parameters = list(module.parameters())

    return DistributedDataParallel(Net())


# ---- tensors -----------------------------------------------------------------------------------------------------------------


class Holder(nn.Module):
    """Registers what it is given: parameters where a gradient is possible, else buffers."""

    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)


@case
def fake() -> nn.Module:
    with FakeTensorMode():
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))


@case
def fake_with_grad() -> nn.Module:
    with FakeTensorMode():
        model = nn.Linear(4, 3)
        model(torch.ones(2, 4)).sum().backward()
        return model


@case
def symbolic_shape() -> nn.Module:
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    return Holder(x=mode.from_tensor(torch.ones(5, 3), symbolic_context=context))


@case
def dtypes() -> nn.Module:
    floating = [torch.complex64, torch.complex128, torch.half, torch.bfloat16, torch.float64]
    whole = [torch.bool, torch.int8, torch.uint8, torch.int16, torch.int64]
    names = {f"p_{d}".replace("torch.", ""): nn.Parameter(torch.ones(2, 3, dtype=d)) for d in floating}
    names |= {
        f"p_{d}".replace("torch.", ""): nn.Parameter(torch.ones(2, 3).to(d), requires_grad=False)
        for d in (*whole, torch.float8_e4m3fn, torch.float8_e5m2)
    }
    names |= {
        f"b_{d}".replace("torch.", ""): torch.ones(2, 3).to(d) for d in (*whole, *floating, torch.float8_e4m3fn, torch.uint16, torch.uint32)
    }
    return Holder(**names)


@case
def zero_elements() -> nn.Module:
    return Holder(
        none=nn.Parameter(torch.empty(0)),
        rows=nn.Parameter(torch.empty(0, 3)),
        columns=torch.empty(3, 0, 2),
        scalar=nn.Parameter(torch.tensor(2.0)),
    )


@case
def not_finite() -> nn.Module:
    return Holder(a=nn.Parameter(torch.tensor([[1.0, float("nan")], [float("inf"), -float("inf")]])), b=torch.full((3,), float("nan")))


@case
def sparse() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        csr = torch.eye(4).to_sparse_csr()
        return Holder(
            coo=nn.Parameter(torch.eye(3).to_sparse()), csr=csr, csc=torch.eye(4).to_sparse_csc(), bsr=torch.eye(4).to_sparse_bsr((2, 2))
        )


@case
def nested() -> nn.Module:
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    return Holder(strided=torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]), jagged=jagged)


@case
def quantized_buffer() -> nn.Module:
    whole = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)
    channel = torch.quantize_per_channel(torch.ones(2, 3), torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), 0, torch.quint8)
    deep = torch.quantize_per_channel(torch.ones(2, 2, 2), torch.tensor([1.0, 1.0]), torch.tensor([0, 0]), 0, torch.qint8)
    return Holder(whole=whole, channel=channel, deep=deep)


class Loud(Tensor):
    """A subclass that refuses every function on it."""

    @classmethod
    def __torch_function__(cls, func: Callable[..., object], types: object, args: tuple[object, ...] = (), kwargs: object = None) -> object:
        raise RuntimeError(f"{getattr(func, '__name__', func)} is not for you")


@case
def tensor_subclass() -> nn.Module:
    class Plain(Tensor):
        pass

    return Holder(plain=nn.Parameter(torch.ones(2, 3).as_subclass(Plain)), buffer=torch.ones(2).as_subclass(Plain))


@case(saves=False)
def tensor_subclass_that_refuses() -> nn.Module:
    model = Holder(good=nn.Parameter(torch.ones(2)))
    model._buffers["loud"] = torch.ones(2, 3).as_subclass(Loud)
    return model


@case
def views_and_strides() -> nn.Module:
    base = torch.arange(12.0)
    return Holder(
        a=base[:6].view(2, 3), b=base.view(3, 4).t(), c=base[:1].expand(5), d=torch.ones(2, 3, dtype=torch.complex64).conj(), e=base[::2]
    )


@case
def mixed_devices() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2, device="meta"), nn.Linear(2, 2).half())


@case
def inference_tensors() -> nn.Module:
    with torch.inference_mode():
        return nn.Linear(4, 3)


@case
def gradients() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2), nn.Linear(2, 2))
    model[0].weight.grad = torch.zeros(3, 4)
    model[0].bias.grad = torch.ones(3)
    model[1].weight.grad = torch.full((2, 3), float("nan"))
    return model


@case
def leaves_that_are_none() -> nn.Module:
    """A buffer that joined the graph: asking its .grad would warn."""
    model = nn.Linear(3, 3)
    model.register_buffer("mean", torch.zeros(3) + model.bias)
    model.plain = model.weight * 2
    return model


# ---- modes, flags and hooks --------------------------------------------------------------------------------------------------


@case
def partly_frozen() -> nn.Module:
    model = mlp()
    model[0].weight.requires_grad_(False)
    return model


@case
def mixed_modes() -> nn.Module:
    model = cnn()
    model[1].eval()
    return model


@case
def odd_modes() -> nn.Module:
    """Flags that are no bools, as a careless hand leaves them."""
    model = mlp()
    model[0].__dict__["training"] = [1]
    model[1].__dict__["training"] = None
    model[2].__dict__["training"] = 0
    return model


@case
def mode_deleted() -> nn.Module:
    model = mlp()
    del model[0].__dict__["training"]
    return model


def _nothing(*_: object) -> None:
    return None


class _Odd:
    """A callable that answers no question about itself."""

    def __call__(self, *_: object) -> None:
        return None

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name} here")


@case
def hooked() -> nn.Module:
    import functools

    model = mlp()
    model[0].register_forward_hook(_nothing)
    model[0].register_forward_pre_hook(lambda *_: None)
    model[0].register_forward_hook(_nothing, with_kwargs=True, always_call=True, prepend=True)
    model[1].register_full_backward_hook(_nothing)
    model[1].register_full_backward_pre_hook(_nothing)
    model[2].register_forward_hook(functools.partial(_nothing, 1))
    model[2].register_forward_hook(_Odd())
    model.register_state_dict_post_hook(_nothing)
    model.register_state_dict_pre_hook(_nothing)
    model.register_load_state_dict_pre_hook(_nothing)
    model.register_load_state_dict_post_hook(_nothing)
    model[0].weight.register_hook(_nothing)
    return model


@case
def backward_hook_legacy() -> nn.Module:
    model = mlp()
    model[0].register_backward_hook(_nothing)
    return model


class Extra(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"step": 3}

    def set_extra_state(self, state: object) -> None:
        pass


@case
def extra_state() -> nn.Module:
    return nn.Sequential(Extra(2, 2), nn.ReLU())


@case(saves=False)
def extra_state_that_raises() -> nn.Module:
    class Broken(nn.Linear):
        def get_extra_state(self) -> object:
            raise RuntimeError("not now")

    return nn.Sequential(Broken(2, 2))


@case(saves=False)
def saving_that_raises() -> nn.Module:
    class Broken(nn.Linear):
        def _save_to_state_dict(self, *_: object, **__: object) -> None:
            raise RuntimeError("not now")

    return nn.Sequential(Broken(2, 2), nn.Linear(2, 2))


@case
def saving_otherwise() -> nn.Module:
    class Transposed(nn.Linear):
        def _save_to_state_dict(self, destination: dict[str, object], prefix: str, keep_vars: bool) -> None:
            destination[prefix + "weight_t"] = self.weight.t().detach()
            destination[prefix + "bias"] = self.bias
            destination[prefix + "version"] = 3

    return nn.Sequential(Transposed(2, 3), nn.Linear(3, 2))


@case
def unpickled_older() -> nn.Module:
    """As a module comes from a file of an old torch: stores that came later are missing."""
    model = mlp()
    for module in model.modules():
        for name in ("_forward_hooks_with_kwargs", "_backward_pre_hooks", "_non_persistent_buffers_set", "_state_dict_pre_hooks"):
            module.__dict__.pop(name)
    return pickle.loads(pickle.dumps(model))


@case
def deep_copied() -> nn.Module:
    return copy.deepcopy(tied_weight())


# ---- hidden ones -------------------------------------------------------------------------------------------------------------


Pair = namedtuple("Pair", "left right")


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
        self.pair = Pair(nn.ReLU(), torch.ones(2))
        self.frozen = (nn.Linear(2, 3),)
        self.by_name = {"a": nn.Linear(3, 2), "deep": {"b": [nn.Parameter(torch.ones(4))]}}
        self.heads = {nn.Linear(2, 1)}
        self.queue = deque([torch.zeros(3)], maxlen=4)
        self.mask = torch.ones(2, 2)
        object.__setattr__(self, "secret", nn.Linear(4, 4))
        object.__setattr__(self, "weight", nn.Parameter(torch.ones(5)))
        self.same = [self.fc, self.fc.weight]
        self.by_module = {self.fc: torch.ones(1), object: "x", _Odd(): torch.ones(1)}


@case
def hidden() -> nn.Module:
    return Hidden()


@case
def list_beside_module_list() -> nn.Module:
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model.order = list(model.layers)
    model.lookup = {"first": model.layers[0], "weights": [model.layers[0].weight]}
    return model


@case
def hidden_circle() -> nn.Module:
    model = Net()
    ring: list[object] = [nn.Linear(2, 2)]
    ring.append(ring)
    model.ring = ring
    model.parent = [model]
    return model


@case
def registered_by_hand() -> nn.Module:
    """A child and a parameter put into the stores past every check."""
    model = Net()
    model._modules["l2"] = nn.Linear(2, 2)
    model._parameters["p"] = nn.Parameter(torch.ones(3))
    model._buffers["b"] = nn.Parameter(torch.ones(3))
    return model


class Endless(list):
    def __iter__(self) -> Iterator[object]:
        while True:
            yield 1.5


class RaisingDict(dict):
    def items(self) -> object:
        raise RuntimeError("no items")


class LyingClass:
    @property
    def __class__(self) -> type:
        raise RuntimeError("no class")


@case
def attributes_that_raise() -> nn.Module:
    model = Net()
    model.endless = Endless()
    model.raising = RaisingDict(a=1)
    model.__dict__["lying"] = LyingClass()
    model.__dict__["odd"] = _Odd()
    model.odds = [_Odd(), LyingClass()]
    model.generator = torch.Generator()
    model.lines = (line for line in "ab")
    return model


# ---- modules that raise or lie -----------------------------------------------------------------------------------------------


@case(walks=False, saves=False)
def getattr_raises() -> nn.Module:
    class Raises(nn.Linear):
        def __getattr__(self, name: str) -> object:
            raise RuntimeError("no attribute for you")

    model = nn.Sequential(nn.Linear(2, 2))
    model._modules["1"] = Raises.__new__(Raises)
    model._modules["1"].__dict__.update(nn.Linear(2, 2).__dict__)
    return model


@case
def getattr_lies() -> nn.Module:
    class Lies(nn.Linear):
        def __getattr__(self, name: str) -> object:
            return super().__getattr__(name) if name in ("weight", "bias") else 42

    return nn.Sequential(Lies(2, 2))


@case(walks=False, saves=False)
def getattribute_raises() -> nn.Module:
    class Raises(nn.Module):
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError("nothing")

    model = nn.Sequential(nn.Linear(2, 2))
    child = Raises.__new__(Raises)
    object.__getattribute__(child, "__dict__").update(nn.Linear(2, 2).__dict__)
    model._modules["1"] = child
    return model


def _liar(**members: object) -> nn.Module:
    cls = type("Liar", (nn.Linear,), members)
    return nn.Sequential(cls(2, 2), nn.ReLU(), cls(2, 2))


def _raises(*_: object, **__: object) -> None:
    raise RuntimeError("boom")


@case
def extra_repr_raises() -> nn.Module:
    return _liar(extra_repr=_raises)


@case
def extra_repr_none() -> nn.Module:
    return _liar(extra_repr=_nothing)


@case
def extra_repr_of_1_mb() -> nn.Module:
    return _liar(extra_repr=lambda self: "<b>" + "x" * 1_000_000)


@case
def extra_repr_str_subclass() -> nn.Module:
    return _liar(extra_repr=lambda self: type("Text", (str,), {"__len__": _raises, "__getitem__": _raises, "__hash__": _raises})("abc"))


@case
def repr_raises() -> nn.Module:
    return _liar(__repr__=_raises, __str__=_raises, __format__=_raises, _get_name=_raises, _repr_html_=_raises)


@case
def len_and_bool_raise() -> nn.Module:
    return _liar(__len__=_raises, __bool__=_raises, __iter__=_raises, __contains__=_raises, __getitem__=_raises)


@case
def bool_false() -> nn.Module:
    return _liar(__bool__=lambda self: False, __len__=lambda self: 0)


@case
def eq_true() -> nn.Module:
    return _liar(__eq__=lambda self, other: True, __hash__=lambda self: 1)


@case
def eq_raises() -> nn.Module:
    return _liar(__eq__=_raises, __ne__=_raises, __hash__=object.__hash__)


@case(walks=False)
def unhashable() -> nn.Module:
    return _liar(__hash__=None)


@case
def dir_raises() -> nn.Module:
    return _liar(__dir__=_raises, __sizeof__=_raises, __reduce_ex__=_raises, __deepcopy__=_raises)


@case
def class_lies() -> nn.Module:
    return _liar(__class__=property(lambda self: dict))


@case(walks=False, saves=False)
def class_raises() -> nn.Module:
    cls = type("Liar", (nn.Linear,), {"__class__": property(_raises)})
    model = nn.Sequential(nn.ReLU())
    model._modules["liar"] = cls(2, 2)
    return model


@case
def properties_raise() -> nn.Module:
    return _liar(
        T=property(_raises), device=property(_raises), dtype=property(_raises), __doc__=property(_raises), forward=property(_raises)
    )


@case(walks=False)
def named_lists_lie() -> nn.Module:
    return _liar(
        named_parameters=lambda self, *_, **__: iter(()),
        parameters=lambda self, *_: iter(()),
        children=_raises,
        named_children=_raises,
        named_modules=lambda self, *_, **__: iter(()),
        modules=_raises,
        buffers=_raises,
        named_buffers=_raises,
    )


@case(walks=False, saves=False)
def state_dict_raises() -> nn.Module:
    return _liar(state_dict=_raises, train=_raises, apply=_raises, _apply=_raises)


@case
def training_is_a_property() -> nn.Module:
    class Odd(nn.Linear):
        training = property(lambda self: _raises(), lambda self, value: None)

    return nn.Sequential(Odd(2, 2))


@case
def metaclass_with_a_mind() -> nn.Module:
    class Meta(type):
        def __getattr__(cls, name: str) -> object:
            raise RuntimeError(f"no {name}")

    class Odd(nn.Linear, metaclass=Meta):
        pass

    class Even(nn.Conv1d, metaclass=Meta):
        pass

    return nn.Sequential(Odd(2, 2), Even(1, 1, 1))


# ---- constructors ------------------------------------------------------------------------------------------------------------


class Forgot(nn.Module):
    def __init__(self, width: int = 3) -> None:
        self.width = width


@case(walks=False, saves=False)
def forgot_super_below() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2))
    model._modules["forgot"] = Forgot()
    return model


class Early(nn.Module):
    def __init__(self) -> None:
        self.__dict__["early"] = "set before super().__init__()"
        self.__dict__["list"] = [1, 2]
        super().__init__()
        self.fc = nn.Linear(2, 2)


@case
def set_before_super() -> nn.Module:
    model = Early()
    model.register_forward_hook(_nothing)
    return model


@case
def class_level_parameters() -> nn.Module:
    class Shared(nn.Module):
        weight = nn.Parameter(torch.ones(3))
        layer = nn.Linear(2, 2)

    return nn.Sequential(Shared(), Shared())


@case
def slots_and_mixins() -> nn.Module:
    class Slotted:
        __slots__ = ()

    class Mixed(Slotted, nn.Linear, dict):
        def __init__(self) -> None:
            nn.Linear.__init__(self, 2, 2)

        __hash__ = nn.Linear.__hash__

    return nn.Sequential(Mixed())


@case
def held_by_its_class() -> nn.Module:
    """A class whose own method's closure holds the model: what caches the class strongly keeps the model."""
    box: list[nn.Module] = []

    class Closed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return box[0](x)

        def extra_repr(self) -> str:
            return f"of {len(box)}"

    box.append(nn.Sequential(Closed(2, 2), nn.Linear(2, 2)))
    return box[0]


# ---- hostile names -----------------------------------------------------------------------------------------------------------


HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "$x^2$ \\(y\\)",
    "\"quoted\" 'twice'",
    "two\nlines\r\x1b[31m\x00",
    "‮drow tfel-ot-thgir‬",
    "<!-- --><style>*{display:none}</style>",
    "é 日本 😀",
    "a b\tc",
    "&amp;&lt;",
    "]]>`${1}`",
    "n" * 2_000,
]


@case
def hostile_names() -> nn.Module:
    model = nn.Sequential()
    for i, name in enumerate(HOSTILE):
        cls = type("Hostile", (nn.Linear,), {"__doc__": name, "extra_repr": lambda self, name=name: name})
        cls.__name__ = cls.__qualname__ = name.replace("\x00", "")
        cls.__module__ = name
        child = cls(1, 1 + i % 2)
        child.register_buffer(name.replace(".", ""), torch.ones(1), persistent=i % 3 > 0)
        child.register_parameter(name + "!", None)
        child.__dict__[name] = [nn.Linear(1, 1)]
        model.add_module(name, child)
    root = type("Hostile", (nn.Module,), {"__doc__": HOSTILE[1]})
    root.__name__ = HOSTILE[0]
    top = root()
    top.add_module(HOSTILE[1], model)
    top.tied = nn.Linear(1, 1)
    top.tied.weight = model[0].weight
    top.add_module("again " + HOSTILE[0], model[2])
    return top
