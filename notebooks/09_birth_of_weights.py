"""09: birth of weights: device and dtype at birth, nn.init, skip_init, the meta device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import modlab
from modlab.lessons.checking import fail, require_callable, require_equal, require_module_class
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Order, Several, YesNo
from modlab.lessons.note import MyLinear

skip_init: Callable[..., Any] = nn.utils.skip_init

# ---- questions ------------------------------------------------------------------------------------


@contextmanager
def _raw_memory_is_nan() -> Iterator[None]:
    """Unfilled memory holds NaN, so that it can be told from numbers."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _raises(run: Callable[[], Any], error: type[Exception] = RuntimeError) -> bool:
    try:
        run()
    except error:
        return True
    return False


def _halves() -> str:
    names = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    state = nn.BatchNorm2d(3, dtype=torch.half).state_dict()
    return " ".join(letter for letter, name in zip("abcde", names, strict=True) if state[name].dtype == torch.half)


def _bias_after_skipping() -> str:
    with _raw_memory_is_nan():
        bias = skip_init(nn.Linear, 5, 3).bias
    return "c" if bias.isnan().all() else "b" if bias.any() else "a"


class _Filled(nn.Module):
    def __init__(self, fill: Callable[[nn.Module], Any], device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(5, 3, device=device, dtype=dtype))
        fill(self)


def _constructors_that_pass() -> str:
    fills: dict[str, Callable[[Any], Any]] = {
        "a": lambda module: nn.init.normal_(module.weight),
        "b": lambda module: module.weight.data.uniform_(-1, 1),
        "c": lambda module: setattr(module, "scale", module.weight.std().item()),
    }
    return " ".join(letter for letter, fill in fills.items() if not _raises(lambda fill=fill: skip_init(_Filled, fill)))  # type: ignore[misc]


class _Literal(nn.Module):
    def __init__(self, device: Any = "cpu", dtype: Any = torch.float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(5, 3, device=device, dtype=dtype))


def _optimizer_holds_lazy_weight() -> bool:
    lazy = nn.LazyLinear(3)
    held = torch.optim.SGD(lazy.parameters(), lr=0.1).param_groups[0]["params"]
    lazy(torch.ones(2, 5))
    return any(one is lazy.weight for one in held)


def _place_of_a_literal() -> str:
    with torch.device("meta"):
        return {"cpu": "b", "meta": "a"}[_Literal().weight.device.type]


PREDICTIONS = (
    Question(
        "halves",
        "`nn.BatchNorm2d(3, dtype=torch.half)`: which of its five tensors are float16? Give all the letters.",
        Several("`weight`", "`bias`", "`running_mean`", "`running_var`", "`num_batches_tracked`"),
        ("a", "b", "c", "d"),
        "`dtype` reaches parameters and floating-point buffers. The counter counts, and stays int64.",
        wrong=(
            Wrong("a b", "The buffers too: they are computed with the parameters, so they must be of one dtype."),
            Wrong("a b c d e", "`num_batches_tracked` is a whole number. A float16 could count no further than 2,048."),
        ),
        proof=_halves,
    ),
    Question(
        "the bias after skip_init",
        "`m = skip_init(nn.Linear, 5, 3)`, then `nn.init.orthogonal_(m.weight)`. What is in `m.bias`?",
        Choice("zeros", "small random numbers, as `nn.Linear` draws them", "whatever was in that memory before"),
        "c",
        "`skip_init` takes memory and fills nothing. Only the weight was filled afterwards.",
        wrong=(
            Wrong("a", "It may look so: fresh memory often is zero. But nobody wrote these zeros, and nobody keeps them there."),
            Wrong("b", "Those are drawn by the constructor's `reset_parameters`, and that draw is what was skipped."),
        ),
        proof=_bias_after_skipping,
    ),
    Question(
        "MyLinear skipped",
        "Does `skip_init(MyLinear, 5, 3)` work, with the `MyLinear` of this course?",
        YesNo(),
        False,
        "`skip_init` calls the constructor with `device=...`, and `MyLinear` takes none.",
        wrong=(
            Wrong(
                True, "It works with the layers of `torch.nn`. But `skip_init` builds it on the meta device, so it must take a `device`."
            ),
        ),
        proof=lambda: not _raises(lambda: skip_init(MyLinear, 5, 3)),
    ),
    Question(
        "constructors",
        "Which of the three functions may a constructor call, so that `skip_init` still works? Give all the letters.",
        Several("`by_init`", "`in_place`", "`reads`"),
        ("a", "b"),
        "On the meta device all writing does nothing, whoever writes. Reading a value fails: there is none.",
        wrong=(
            Wrong("a", "The documentation asks for functions of `nn.init` alone, but other in-place code passes as well."),
            Wrong("a b c", "`item()` asks for a value, and on the meta device there is none to give."),
        ),
        proof=_constructors_that_pass,
    ),
    Question(
        "bytes on meta",
        '`big = nn.Linear(1_000_000, 1_000_000, device="meta")`: how many bytes of memory does its weight take?',
        Number(),
        0,
        "A tensor on the meta device has a shape and a dtype, and no memory.",
        wrong=(
            Wrong(4_000_000_000_000, "Its shape would need that: four terabytes. On the meta device it takes nothing."),
            Wrong(1_000_000_000_000, "That is how many numbers it would have. On the meta device there are none."),
        ),
        proof=lambda: nn.Linear(1_000_000, 1_000_000, device="meta").weight.data_ptr(),
    ),
    Question(
        "away from meta",
        'A layer was made on the meta device. What does `layer.to("cpu")` do?',
        Choice("it gives a layer of zeros", "it draws the numbers now", "it raises an error"),
        "c",
        "`to` copies values, and there are none to copy.",
        wrong=(
            Wrong("a", "PyTorch does not make up values: you must say what they should be."),
            Wrong("b", "`to` draws nothing. The constructor has run already, and its draw went nowhere."),
        ),
        proof=lambda: "c" if _raises(lambda: nn.Linear(5, 3, device="meta").to("cpu"), NotImplementedError) else "a",
    ),
    Question(
        "a literal default",
        '`with torch.device("meta"):` a `Literal()` is made, whose constructor has `device="cpu"`. Where is its weight?',
        Choice("on the meta device", "on the CPU"),
        "b",
        "A literal default makes the choice, so the `with` is never consulted.",
        wrong=(Wrong("a", 'It would be with `device=None`, which leaves the choice to the `with`. `"cpu"` makes the choice itself.'),),
        proof=_place_of_a_literal,
    ),
    Question(
        "an optimizer before the first call",
        "The optimizer is made before the first call of `lazy`. Does it hold the weight that the call creates?",
        YesNo(),
        True,
        "The call does not replace the parameter: it changes the class of the same object, and gives it shape and numbers.",
        wrong=(
            Wrong(
                False, "It would not if the call made a new parameter. It fills the old one in place, as a module's `to` does.", belief=7
            ),
        ),
        proof=_optimizer_holds_lazy_weight,
    ),
)


RECALLS = (
    Question(
        "what meta has",
        "What does a tensor on the meta device have? Give all the letters.",
        Several("a shape", "a dtype", "numbers"),
        ("a", "b"),
        "It has all that is known without numbers.",
        wrong=(
            Wrong("a", "A dtype too: otherwise nobody could tell what an operation would give."),
            Wrong("a b c", "Numbers need memory, and there is none: `item()` fails, and `to` has nothing to copy."),
        ),
    ),
    Question(
        "loaded once",
        "Order how a large net gets its weights from a file, with no number drawn before.",
        Order(
            "`net.load_state_dict(state, assign=True)`",
            '`with torch.device("meta"):` make `net`',
            "`state = torch.load(...)`",
            valid=lambda order: order[-1].startswith("`net.load_state_dict"),
        ),
        ("b", "c", "a"),
        "The net is made without memory, and `assign=True` gives it the tensors of the file. File and net may come in any order.",
        wrong=(
            Wrong(("c", "a", "b"), "A net must be there before it can load something."),
            Wrong(("b", "a", "c"), "The file must be read before the net can load what it held."),
        ),
    ),
    Question(
        "another size",
        "From lesson 08: a file has all the right names, and one tensor of a different shape. Does `strict=False` load it?",
        YesNo(),
        False,
        "`strict=False` forgives names. Another shape raises in any case.",
        wrong=(Wrong(True, "It forgives missing and unexpected names. A different shape still raises an error.", belief=16),),
        belief=16,
    ),
)


# ---- the first task: ScaledLinear -----------------------------------------------------------------------

SIZES = {"weight": (5, 2), "bias": (2,), "scale": (2,), "calls": ()}
FLOATS = ("weight", "bias", "scale")


def _made(answer: Any, *sizes: int, **options: Any) -> nn.Module:
    require_module_class(answer, "ScaledLinear")
    module: nn.Module = answer(*(sizes or (5, 2)), **options)
    return module


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _owns(answer: Any) -> None:
    """without options it has the parameters and buffers that it had"""
    m = _made(answer)
    shapes = {name: tuple(tensor.shape) for name, tensor in m.state_dict().items()}
    require_equal(shapes, SIZES, "It should own these tensors.", evidence=modlab.state(m))
    if {name for name, _ in m.named_parameters()} != {"weight", "bias"}:
        fail("`weight` and `bias` should be the parameters.", evidence=modlab.state(m))
    if m.get_buffer("scale").requires_grad:
        fail("`scale` should be a buffer: it does not learn.", evidence=modlab.state(m))
    if _tensors(m)["calls"].is_floating_point():
        fail(mistake="the count in floats", expected="int64", got=str(_tensors(m)["calls"].dtype), evidence=modlab.state(m))


def _fills(answer: Any) -> None:
    """its numbers are drawn from the standard normal distribution, the scale is one, the count zero"""
    with _raw_memory_is_nan():
        m = _made(answer, 40, 2000)
    raw = [name for name, tensor in _tensors(m).items() if tensor.isnan().any() or (name == "calls" and tensor.item())]
    if raw:
        fail(mistake="raw memory", expected="numbers", got=f"raw memory in {raw}", evidence=modlab.state(m))
    for name, parameter in m.named_parameters():
        drawn = parameter.detach()
        mean, spread, far = drawn.mean().item(), drawn.std().item(), (drawn.abs() > 2).float().mean().item()
        if abs(mean) > 0.1 or abs(spread - 1) > 0.1 or not 0.02 < far < 0.08:
            got = f"mean {mean:.2f}, standard deviation {spread:.2f}, {100 * far:.1f} % beyond 2"
            expected = "mean 0, standard deviation 1, about 4.6 % beyond 2"
            fail(f"This is `{name}`.", mistake="other first numbers", expected=expected, got=got, evidence=modlab.measure(drawn))
    require_equal(_tensors(m)["scale"], torch.ones(2000), "The scale should be one.")


def _computes(answer: Any) -> None:
    """it computes what it did, and counts its calls"""
    m = _made(answer)
    own, x = _tensors(m), torch.randn(7, 5)
    require_equal(m(x), (x @ own["weight"] + own["bias"]) * own["scale"], "It gives something other than before.")
    y = m(x)
    if not y.requires_grad:
        fail("Its output does not hang in the graph any more, so it cannot learn.", expected="requires_grad True", got=False)
    y.sum().backward()
    require_equal(int(_tensors(m)["calls"]), 2, "It was called twice.")
    silent = [name for name, parameter in m.named_parameters() if parameter.grad is None]
    if silent:
        fail(f"`{silent[0]}` gets no gradient: it no longer learns.", evidence=modlab.state(m))


def _dtype(answer: Any) -> None:
    """dtype reaches both parameters and the scale, and leaves the count alone"""
    for dtype in (torch.float64, torch.half):
        m = _made(answer, dtype=dtype)
        own = _tensors(m)
        shown = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in own.items()}
        wanted = {name: str(dtype).removeprefix("torch.") for name in FLOATS} | {"calls": "int64"}
        details: dict[str, Any] = {"expected": wanted, "got": shown, "evidence": modlab.state(m)}
        if set(shown) != set(wanted):
            gone = any(isinstance(vars(m).get(name), Tensor) for name in ("weight", "bias"))
            fail("Tensors are missing.", mistake="no longer parameters" if gone else "", **details)
        wrong = {name for name in wanted if shown[name] != wanted[name]}
        if wrong == {"calls"}:
            fail("`calls` must stay int64.", mistake="the count in floats" if own["calls"].is_floating_point() else "", **details)
        if wrong == {"scale"}:
            fail(mistake="buffer forgotten", **details)
        if wrong:
            fail(mistake="dtype forgotten", **details)
        require_equal(str(m(torch.randn(5, dtype=dtype)).dtype), str(dtype), "The output is of another dtype.")


def _device(answer: Any) -> None:
    """device reaches all four tensors"""
    m = _made(answer, device="meta")
    behind = [name for name, tensor in _tensors(m).items() if tensor.device.type != "meta"]
    details: dict[str, Any] = {"expected": "all on meta", "got": f"{behind} on the CPU", "evidence": modlab.state(m)}
    if "calls" in behind and len(behind) == 1:
        fail(mistake="the count left behind", **details)
    if behind == ["scale"] or set(behind) == {"scale", "calls"}:
        fail(mistake="buffer forgotten", **details)
    if behind:
        fail("Not all tensors are where they should be.", **details)


class _Births(TorchFunctionMode):
    """Notes which functions make or fill tensors of some size outside the meta device."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.seen = size, list[str]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.device.type != "meta" and result.numel() >= self.size:
            self.seen.append(getattr(func, "__name__", str(func)))
        return result


def _born_there(answer: Any) -> None:
    """nothing is made on the CPU first"""
    with _Births(40) as births:
        _made(answer, 40, 50, device="meta")
    if births.seen:
        got = f"{len(births.seen)} on the CPU: {', '.join(dict.fromkeys(births.seen))}"
        fail("It was asked for the meta device.", mistake=".to in the constructor", expected="0 large tensors on the CPU", got=got)


def _asks_around(answer: Any) -> None:
    """without options it follows the default device and dtype"""
    with torch.device("meta"):
        m = _made(answer)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        n = _made(answer)
    finally:
        torch.set_default_dtype(before)
    stays = [name for name, tensor in _tensors(m).items() if tensor.device.type != "meta"]
    narrow = [name for name in FLOATS if _tensors(n)[name].dtype != torch.float64]
    if stays or narrow:
        where = f"on the CPU: {stays}; float32: {narrow}"
        details: dict[str, Any] = {"expected": "all on meta; all float64", "got": where, "evidence": modlab.state(m if stays else n)}
        options = signature(answer).parameters
        if any(name in options and options[name].default is not None for name in ("device", "dtype")):
            fail(mistake="literal defaults", **details)
        fail("A function that you use does not listen to what is set around the call; `torch.empty` and `torch.randn` do.", **details)


def _skips(answer: Any) -> None:
    """skip_init works with it, and every option"""
    _made(answer)
    m = skip_init(answer, 5, 2, dtype=torch.float64)
    shapes = {name: tuple(tensor.shape) for name, tensor in _tensors(m).items()}
    require_equal(shapes, SIZES, "After `skip_init` it owns something else.", evidence=modlab.state(m))
    require_equal(str(_tensors(m)["weight"].dtype), "torch.float64", "After `skip_init` the weight is of another dtype.")


FORWARD = """
    def forward(self, input):
        self.calls += 1
        return (input @ self.weight + self.bias) * self.scale
"""


def _scaled_linear(
    weight: str = "nn.Parameter(torch.randn(in_features, out_features, device=device, dtype=dtype))",
    bias: str = "nn.Parameter(torch.randn(out_features, device=device, dtype=dtype))",
    scale: str = "torch.ones(out_features, device=device, dtype=dtype)",
    calls: str = "torch.zeros((), device=device, dtype=torch.long)",
    options: str = ", device=None, dtype=None",
    end: str = "",
) -> str:
    """`ScaledLinear` with parts replaced."""
    return f"""
class ScaledLinear(nn.Module):
    def __init__(self, in_features, out_features{options}):
        super().__init__()
        self.weight = {weight}
        self.bias = {bias}
        self.register_buffer("scale", {scale})
        self.register_buffer("calls", {calls})
        {end}
{FORWARD}"""


PLAIN = {
    "weight": "nn.Parameter(torch.randn(in_features, out_features))",
    "bias": "nn.Parameter(torch.randn(out_features))",
    "scale": "torch.ones(out_features)",
    "calls": "torch.tensor(0)",
}

SCALED_LINEAR = Task(
    "ScaledLinear",
    "Give `ScaledLinear` the options `device` and `dtype`, as the layers of `torch.nn` have them.",
    starter="""
class ScaledLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        self.register_buffer("scale", torch.ones(out_features))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, input):
        self.calls += 1
        return (input @ self.weight + self.bias) * self.scale
""",
    reference="""
class ScaledLinear(nn.Module):
    def __init__(self, in_features, out_features, device=None, dtype=None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        self.register_buffer("scale", torch.ones(out_features, device=device, dtype=dtype))
        self.register_buffer("calls", torch.zeros((), device=device, dtype=torch.long))
        nn.init.normal_(self.weight)
        nn.init.normal_(self.bias)

    def forward(self, input):
        self.calls += 1
        return (input @ self.weight + self.bias) * self.scale
""",
    probes=(_owns, _fills, _computes, _dtype, _device, _born_there, _asks_around, _skips),
    mistakes=(
        Mistake(
            "an option is missing",
            _scaled_linear().replace("device=None, ", "").replace("device=device, ", ""),
            "Both options are arguments of the constructor, each by its name: `device=None, dtype=None`.",
            error=r"unexpected keyword argument '(device|dtype)'|Module must support a 'device' arg",
        ),
        Mistake(
            ".to in the constructor",
            _scaled_linear(**PLAIN, end="self.to(device=device, dtype=dtype)"),
            "The tensors are made and filled on the CPU, and moved afterwards: twice the memory and the time. "
            "Pass both options on to the functions that make the tensors.",
            belief=7,
        ),
        Mistake(
            "no longer parameters",
            _scaled_linear(
                weight="nn.Parameter(torch.randn(in_features, out_features)).to(device=device, dtype=dtype)",
                bias="nn.Parameter(torch.randn(out_features)).to(device=device, dtype=dtype)",
            ),
            "`.to` gives a new plain tensor wherever it changes something, so nothing is registered. Wrap last, or pass the options on.",
            belief=5,
        ),
        Mistake(
            "dtype forgotten",
            _scaled_linear(
                weight="nn.Parameter(torch.randn(in_features, out_features, device=device))",
                bias="nn.Parameter(torch.randn(out_features, device=device))",
            ),
            "The device is passed on, and the dtype is not: each function that makes a tensor needs both.",
        ),
        Mistake(
            "buffer forgotten",
            _scaled_linear(scale="torch.ones(out_features)"),
            "The parameters follow, and the buffer `scale` does not. It is computed with them, so it must be where and what they are.",
            belief=6,
        ),
        Mistake(
            "the count left behind",
            _scaled_linear(calls="torch.tensor(0)"),
            "`calls` takes no dtype, but a device all the same: every tensor of a module should be in one place.",
            belief=6,
        ),
        Mistake(
            "the count in floats",
            _scaled_linear(calls="torch.zeros((), device=device, dtype=dtype)"),
            "`dtype` is meant for floating-point tensors. A count stays a whole number: float16 cannot count beyond 2,048.",
        ),
        Mistake(
            "literal defaults",
            _scaled_linear(options=', device="cpu", dtype=torch.float'),
            '`device="cpu", dtype=torch.float` decides, so `with torch.device(...)` and the default dtype are ignored. Use None for both.',
        ),
        Mistake(
            "reads a value",
            _scaled_linear(end="self.largest = self.weight.abs().max().item()"),
            "Your constructor asks for a value of a tensor. On the meta device, which `skip_init` uses, there is none.",
            error=r"cannot be called on meta tensors|[Mm]eta tensor|data-dependent",
        ),
        Mistake(
            "other first numbers",
            _scaled_linear(bias="nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype))"),
            "The first numbers are not the ones from before: weight and bias were both drawn from the standard normal distribution. "
            "The options say where and of which dtype, and nothing else.",
        ),
        Mistake(
            "no parent's constructor",
            _scaled_linear().replace("        super().__init__()\n", ""),
            "The stores of a module are made by `super().__init__()`, and it has not run when the first parameter comes.",
            belief=4,
            error=r"before Module\.__init__\(\) call|has no attribute '_(parameters|buffers|modules)'",
        ),
        Mistake(
            "raw memory",
            _scaled_linear(
                weight="nn.Parameter(torch.empty(in_features, out_features, device=device, dtype=dtype))",
                bias="nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))",
            ),
            "`torch.empty` takes memory and fills nothing. Fill it afterwards, with `nn.init.normal_`.",
        ),
    ),
    hints=(
        "Which four lines make a tensor? Each needs to be told where and of which dtype, except one.",
        "`torch.randn`, `torch.ones` and `torch.zeros` all take `device=` and `dtype=`, and None means: as set around the call.",
        "`calls` is `torch.zeros((), device=device, dtype=torch.long)`: it takes the device, and keeps its own dtype.",
    ),
    minutes=6,
    matters="With these two options a large model is made where it will live, or on the meta device, where it takes no memory.",
)


# ---- the second task: orthogonal --------------------------------------------------------------------


DRAWS = ("uniform_", "normal_", "trunc_normal_", "bernoulli_", "rand", "randn", "rand_like", "randn_like", "normal")


def _layer(answer: Any, *sizes: int) -> nn.Linear:
    require_callable(answer, "orthogonal")
    layer = answer(*sizes)
    if not isinstance(layer, nn.Linear):
        fail("Give the layer.", expected="an nn.Linear", got=f"a {type(layer).__name__}")
    return layer


def _is_linear(answer: Any) -> None:
    """it gives an nn.Linear of the right sizes, with a bias"""
    layer = _layer(answer, 5, 3)
    if layer.weight.is_meta:
        fail(mistake="still on the meta device", expected="numbers", got="a weight on meta", evidence=modlab.state(layer))
    shapes = {name: tuple(parameter.shape) for name, parameter in layer.named_parameters()}
    require_equal(shapes, {"weight": (3, 5), "bias": (3,)}, "The shapes are others.", evidence=modlab.tree(layer))


def _is_orthogonal(answer: Any) -> None:
    """the rows of its weight are at right angles and of length one, to a millionth"""
    for sizes in ((5, 3), (8, 8), (3, 5)):
        weight = _layer(answer, *sizes).weight.detach()
        product = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
        error = (product - torch.eye(len(product))).abs().max().item()
        if not error < 2e-6:
            fail(mistake="not orthogonal", expected="the identity", got=product[0], evidence=modlab.measure(product))


def _is_filled(answer: Any) -> None:
    """its bias is zero, and written"""
    with _raw_memory_is_nan():
        layer = _layer(answer, 5, 3)
    if layer.bias.isnan().any():
        fail(mistake="the bias is raw memory", expected=torch.zeros(3), got="raw memory", evidence=modlab.diagnose(layer))
    require_equal(layer.bias, torch.zeros(3), "The bias is not zero.")


def _draws_once(answer: Any) -> None:
    """no numbers are drawn that nobody uses"""
    with _Births(16) as births:
        _layer(answer, 16, 16)
    draws = [name for name in births.seen if name in DRAWS]
    if len(draws) > 1:
        fail(mistake="drawn twice", expected="one draw", got=f"{len(draws)} draws: {', '.join(draws)}")


def _learns(answer: Any) -> None:
    """weight and bias are parameters that learn"""
    layer = _layer(answer, 5, 3)
    frozen = [name for name, parameter in layer.named_parameters() if not parameter.requires_grad]
    if frozen:
        fail(f"`{frozen[0]}` is frozen.", expected="requires_grad True", got=False, evidence=modlab.state(layer))
    layer(torch.randn(4, 5)).sum().backward()
    silent = [name for name, parameter in layer.named_parameters() if parameter.grad is None]
    if silent:
        fail(f"{silent[0]} gets no gradient.", evidence=modlab.state(layer))


ORTHOGONAL = Task(
    "orthogonal",
    "Write `orthogonal(in_features, out_features)`: it gives an `nn.Linear` with an orthogonal weight and a bias of zeros, "
    "and draws no other numbers before.",
    starter="""
def orthogonal(in_features, out_features):
    ...
""",
    reference="""
def orthogonal(in_features, out_features):
    layer = skip_init(nn.Linear, in_features, out_features)
    nn.init.orthogonal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
""",
    probes=(_is_linear, _is_orthogonal, _is_filled, _draws_once, _learns),
    mistakes=(
        Mistake(
            "the bias is raw memory",
            """
def orthogonal(in_features, out_features):
    layer = skip_init(nn.Linear, in_features, out_features)
    nn.init.orthogonal_(layer.weight)
    return layer
""",
            "`skip_init` fills nothing, and you filled the weight alone. The bias may look like zeros today, and like anything tomorrow.",
        ),
        Mistake(
            "drawn twice",
            """
def orthogonal(in_features, out_features):
    layer = nn.Linear(in_features, out_features)
    nn.init.orthogonal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
""",
            "Numbers are drawn that you write over: `nn.Linear` draws its own when it is made. `skip_init` leaves that out, "
            "and `orthogonal_` needs none before it.",
        ),
        Mistake(
            "not orthogonal",
            """
def orthogonal(in_features, out_features):
    layer = skip_init(nn.Linear, in_features, out_features)
    nn.init.xavier_normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
""",
            "The rows lean on each other, or are not of length one. `nn.init.orthogonal_` makes them so.",
        ),
        Mistake(
            "a tensor for a parameter",
            """
def orthogonal(in_features, out_features):
    layer = skip_init(nn.Linear, in_features, out_features)
    layer.weight = nn.init.orthogonal_(torch.empty(out_features, in_features))
    nn.init.zeros_(layer.bias)
    return layer
""",
            "A parameter's name takes no plain tensor. Fill the parameter that is there: `nn.init.orthogonal_(layer.weight)`.",
            belief=8,
            error=r"cannot assign '.*' as parameter",
        ),
        Mistake(
            "written outside no_grad",
            """
def orthogonal(in_features, out_features):
    layer = skip_init(nn.Linear, in_features, out_features)
    nn.init.orthogonal_(layer.weight)
    layer.bias.zero_()
    return layer
""",
            "Autograd watches a parameter, and refuses that it is changed in place. The functions of `nn.init` switch it off for that.",
            error=r"leaf Variable that requires grad",
        ),
        Mistake(
            "still on the meta device",
            """
def orthogonal(in_features, out_features):
    layer = nn.Linear(in_features, out_features, device="meta")
    nn.init.orthogonal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
""",
            "On the meta device there is nothing to fill. First `to_empty(device=...)`, which is what `skip_init` does, then the numbers.",
        ),
    ),
    hints=(
        "Three lines: make the layer without numbers, fill the weight, fill the bias.",
        "`skip_init(nn.Linear, in_features, out_features)` makes it. Which two functions of `nn.init` fill it?",
    ),
    minutes=3,
    given="from torch.nn.utils import skip_init",
    matters="In a large model, drawing numbers that the next line overwrites takes minutes.",
)

LESSON = Content(
    name="09_birth_of_weights",
    title="Birth of weights",
    goal="choose device, dtype and first numbers of a layer when it is made, and write modules that let others choose",
    minutes=30,
    after=("04_reaching_every_tensor", "08_save_load_repair"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(SCALED_LINEAR, ORTHOGONAL),
)
