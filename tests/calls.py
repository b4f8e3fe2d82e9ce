"""Calls of many kinds: whatever a forward pass may take and give. Each is built anew for each test.

Add one by a function with `@call` that returns the model and what it is called with.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from modlab.lessons.networks import ResNet18
from modlab.lessons.note import BigNet, DynamicNet, ModalModule, Net, RunningMean

Made = tuple[Any, ...]


@dataclass(frozen=True)
class Call:
    """One model and the arguments of a call; `fails` if the call raises."""

    id: str
    make: Callable[[], Made]
    fails: bool = False

    def __str__(self) -> str:
        return self.id

    def build(self) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        torch.manual_seed(0)
        model, args, *rest = self.make()
        return model, args, rest[0] if rest else {}


CALLS: list[Call] = []


def call(make: Callable[[], Made] | None = None, *, fails: bool = False) -> Any:
    def add(function: Callable[[], Made]) -> Callable[[], Made]:
        CALLS.append(Call(function.__name__, function, fails))
        return function

    return add if make is None else add(make)


class Lambda(nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Any], **children: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


@call
def note_net():
    return Net(), (torch.randn(4),)


@call
def note_big_net():
    return BigNet(), (torch.randn(5, requires_grad=True),)


@call
def note_dynamic_net():
    return DynamicNet(3), (torch.randn(4), "relu")


@call(fails=True)
def note_dynamic_net_wrong_size():
    return DynamicNet(3), (torch.randn(5), "relu")


@call(fails=True)
def note_dynamic_net_without_act():
    return DynamicNet(3), (torch.randn(5),)


@call
def note_modal():
    return ModalModule(), (torch.randn(4),)


@call
def note_running_mean_joins_the_graph():
    return RunningMean(4), (torch.randn(4, requires_grad=True),)


@call
def dropout_and_batchnorm():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)), (torch.randn(6, 4),)


@call
def inplace_relu_with_gradient():
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True), nn.Conv2d(2, 1, 3), nn.ReLU(inplace=True)), (torch.randn(1, 1, 8, 8),)


@call
def full_backward_hook():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    net[0].register_full_backward_hook(_double_gradient)
    net[2].register_full_backward_pre_hook(_halve)
    return net, (torch.randn(2, 3, requires_grad=True),)


def _double_gradient(module, grad_input, grad_output):
    return tuple(None if g is None else g * 2 for g in grad_input)


def _halve(module, grad_output):
    return tuple(g / 2 for g in grad_output)


@call
def all_forward_hooks():
    net = nn.Linear(3, 3)
    net.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    net.register_forward_pre_hook(lambda m, args, kwargs: ((args[0] * 2,), kwargs), with_kwargs=True)
    net.register_forward_hook(lambda m, args, out: out + args[0])
    net.register_forward_hook(lambda m, args, kwargs, out: None, with_kwargs=True)
    net.register_forward_hook(lambda m, args, out: out.mul_(2), prepend=True)
    net.register_forward_hook(lambda m, args, out: None, always_call=True)
    return net, (torch.randn(2, 3),)


@call
def hook_that_removes_itself():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    handles = []
    handles.append(net[0].register_forward_hook(lambda m, args, out: handles[0].remove()))
    return net, (torch.randn(2, 3),)


@call(fails=True)
def hook_that_raises():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    net[0].register_forward_hook(_raise)
    return net, (torch.randn(2, 3),)


def _raise(*_: object) -> None:
    raise ValueError("no")


@call(fails=True)
def hook_that_returns_the_wrong_thing():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    net[1].register_forward_pre_hook(lambda m, args: "text")
    return net, (torch.randn(2, 3),)


@call(fails=True)
def forward_raises_after_a_random_draw():
    def forward(self, x):
        x = F.dropout(self.a(x))
        raise KeyError("after the draw")

    return Lambda(forward, a=nn.Linear(3, 3)), (torch.randn(3),)


@call
def lstm():
    return nn.LSTM(3, 4, num_layers=2, dropout=0.3, batch_first=True), (torch.randn(2, 5, 3),)


@call
def packed_sequence():
    packed = pack_padded_sequence(torch.randn(3, 5, 2), torch.tensor([5, 3, 2]), batch_first=True)
    return nn.GRU(2, 3, batch_first=True), (packed,)


@call
def attention():
    return nn.MultiheadAttention(8, 2, batch_first=True), (torch.randn(2, 4, 8),) * 3, {"need_weights": True}


def _encoder() -> nn.TransformerEncoder:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)


@call
def transformer_encoder_training():
    return _encoder(), (torch.randn(2, 4, 8),)


@call
def transformer_encoder_eval_with_padding():
    mask = torch.tensor([[False, False, False, True], [False, False, True, True]])
    return _encoder().eval(), (torch.randn(2, 4, 8),), {"src_key_padding_mask": mask}


@call
def transformer_encoder_eval_no_grad():
    def forward(self, x, mask):
        with torch.no_grad():
            return self.encoder(x, src_key_padding_mask=mask)

    mask = torch.tensor([[False, False, False, True], [False, False, True, True]])
    return Lambda(forward, encoder=_encoder()).eval(), (torch.randn(2, 4, 8), mask)


@call
def transformer():
    return nn.Transformer(8, 2, 1, 1, 16, batch_first=True), (torch.randn(2, 4, 8), torch.randn(2, 3, 8))


@dataclass
class Batch:
    x: Tensor
    name: str = "batch"
    nothing: None = None


@dataclass
class Answer(OrderedDict):
    """As many models answer: a dataclass and a mapping in one."""

    logits: Tensor | None = None
    loss: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("logits", "loss"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)


Pair = namedtuple("Pair", "first second")


@call
def nests():
    def forward(self, batch, *more, flag, extra=None):
        y = self.a(batch.x) + more[0]["mask"] + sum(more[1])
        return {"pair": Pair(y, None), "list": [y * 2, "text", 3], "batch": Batch(y), "answer": Answer(logits=y), "set": {1, 2}}

    args = (Batch(torch.randn(3)), {"mask": torch.ones(3)}, [torch.ones(3), torch.zeros(3)])
    return Lambda(forward, a=nn.Linear(3, 3)), args, {"flag": True, "extra": iter([1, 2])}


@call
def generator_argument():
    return Lambda(lambda self, parts: self.a(sum(parts)), a=nn.Linear(2, 2)), ((torch.full((2,), float(i)) for i in range(3)),)


@call
def no_tensors():
    return Lambda(lambda self, text: text.upper()), ("text",)


@call
def keywords_only():
    return Lambda(lambda self, *, a, b: self.l(a) * b, l=nn.Linear(2, 2)), (), {"a": torch.randn(2), "b": torch.randn(2)}


@call
def distribution():
    return Lambda(lambda self, x: torch.distributions.Normal(self.l(x), 1.0), l=nn.Linear(2, 2)), (torch.randn(2),)


@call
def returns_none():
    return Lambda(lambda self, x: None), (torch.randn(2),)


@call
def returns_its_input():
    return nn.Sequential(nn.Identity(), nn.Identity()), (torch.randn(2, requires_grad=True),)


@call
def returns_a_parameter():
    module = nn.Linear(2, 2)
    return Lambda(lambda self: self.l.weight, l=module), ()


@call
def complex_numbers():
    return nn.Linear(2, 2, dtype=torch.complex64), (torch.randn(2, dtype=torch.complex64),)


@call
def half_precision():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(torch.bfloat16), (torch.randn(2, 4, dtype=torch.bfloat16),)


@call
def autocast():
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.a(x)

    return Lambda(forward, a=nn.Linear(3, 3)), (torch.randn(2, 3),)


@call
def sparse_embedding():
    return nn.Embedding(10, 3, sparse=True), (torch.tensor([1, 2, 2]),)


@call
def sparse_input():
    return Lambda(lambda self, x: torch.sparse.mm(x, self.w.weight), w=nn.Linear(3, 4)), (torch.eye(4).to_sparse(),)


@call
def nested_input():
    nested = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    return nn.Linear(3, 2), (nested,)


@call
def meta():
    return nn.Linear(3, 3, device="meta"), (torch.randn(2, 3, device="meta"),)


@call
def empty_batch():
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU()), (torch.randn(0, 3),)


@call
def not_finite():
    return nn.Linear(3, 2), (torch.tensor([[float("nan"), 1.0, float("inf")]]),)


@call
def lazy():
    return nn.Sequential(nn.LazyLinear(3), nn.ReLU()), (torch.randn(2, 5),)


@call
def recomputed():
    def forward(self, x):
        return self.b(checkpoint(self.a, x, use_reentrant=False))

    a = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Tanh())
    return Lambda(forward, a=a, b=nn.Linear(3, 1)), (torch.randn(2, 3),)


@call
def recomputed_reentrant():
    def forward(self, x):
        return self.b(checkpoint(self.a, x, use_reentrant=True))

    return Lambda(forward, a=nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), b=nn.Linear(3, 1)), (torch.randn(2, 3, requires_grad=True),)


@call
def scripted():
    def forward(self, x):
        return self.s(x) + 1

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Lambda(forward, s=torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))), (torch.randn(3),)


@call
def traced_by_jit():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(3)), (torch.randn(3),)


@call
def compiled_part():
    part = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    part.compile(backend="eager")
    return nn.Sequential(part, nn.Linear(3, 1)), (torch.randn(2, 3),)


@call
def compiled_wrapper():
    return torch.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), backend="eager"), (torch.randn(2, 3),)


@call
def exported():
    module = torch.export.export(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), (torch.randn(2, 3),)).module()
    return module, (torch.randn(2, 3),)


@call
def weight_norm():
    return parametrizations.weight_norm(nn.Linear(3, 2)), (torch.randn(2, 3),)


@call
def spectral_norm_training():
    return parametrizations.spectral_norm(nn.Linear(3, 2)), (torch.randn(2, 3),)


@call
def pruned():
    module = nn.Linear(3, 2)
    prune.random_unstructured(module, "weight", 0.5)
    return module, (torch.randn(2, 3),)


@call
def called_by_forward():
    return Lambda(lambda self, x: self.b(self.a.forward(x)), a=nn.Linear(3, 3), b=nn.Linear(3, 1)), (torch.randn(3),)


@call
def one_module_twice():
    return Lambda(lambda self, x: self.a(self.a(x)), a=nn.Linear(3, 3)), (torch.randn(3),)


@call
def recursion():
    def forward(self, x, depth=2):
        return self.a(x) if depth == 0 else self(x * 2, depth - 1)

    return Lambda(forward, a=nn.Linear(3, 3)), (torch.randn(3),)


@call
def detached_inside():
    return Lambda(lambda self, x: self.b(self.a(x).detach()), a=nn.Linear(3, 3), b=nn.Linear(3, 1)), (torch.randn(3),)


@call
def no_grad_inside():
    def forward(self, x):
        with torch.no_grad():
            h = self.a(x)
        return self.b(h)

    return Lambda(forward, a=nn.Linear(3, 3), b=nn.Linear(3, 1)), (torch.randn(3),)


@call
def inference_mode_inside():
    def forward(self, x):
        with torch.inference_mode():
            return self.a(x)

    return Lambda(forward, a=nn.Linear(3, 3)), (torch.randn(3),)


@call
def changes_its_argument():
    def forward(self, x, scale=None):
        x.mul_(2)
        scale.add_(1)
        return self.a(x) * scale

    return Lambda(forward, a=nn.Linear(3, 3)), (torch.randn(3),), {"scale": torch.ones(3)}


@call
def user_modes():
    from torch.overrides import BaseTorchFunctionMode

    def forward(self, x):
        with BaseTorchFunctionMode():
            return self.a(F.relu(x))

    return Lambda(forward, a=nn.Linear(3, 3)), (torch.randn(3),)


@call
def tensor_subclass():
    class Mine(Tensor):
        pass

    return nn.Linear(3, 3), (torch.randn(3).as_subclass(Mine),)


@call
def functional_call():
    inner = nn.Linear(3, 3)

    def forward(self, x):
        weights = {name: parameter * 2 for name, parameter in self.a.named_parameters()}
        return torch.func.functional_call(self.a, weights, (x,))

    return Lambda(forward, a=inner), (torch.randn(3),)


@call
def vmap():
    return Lambda(lambda self, x: torch.vmap(self.a)(x), a=nn.Linear(3, 3)), (torch.randn(4, 3),)


@call
def module_made_in_forward():
    return Lambda(lambda self, x: nn.ReLU()(self.a(x)), a=nn.Linear(3, 3)), (torch.randn(3),)


@call
def hidden_in_a_list():
    hidden = [nn.Linear(3, 3), nn.Linear(3, 3)]
    return Lambda(lambda self, x: functools.reduce(lambda y, m: m(y), hidden, self.a(x)), a=nn.Linear(3, 3)), (torch.randn(3),)


@call
def deep():
    return nn.Sequential(*[nn.Linear(2, 2) for _ in range(60)]), (torch.randn(2),)


@call
def resnet18():
    return ResNet18(), (torch.randn(1, 3, 64, 64),)


@call
def quantized():
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), {nn.Linear}), (torch.randn(2, 4),)
