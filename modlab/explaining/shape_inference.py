"""The effect of a call on its input's shape: which calls keep any shape, which change the last size, and which have hooks."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

from torch import nn
from torch.nn import Module

from modlab.explaining import code_fixes, source_code
from modlab.explaining.failure import own, shape_of
from modlab.inspection import marks, stores

_Shape = tuple[int, ...]
_Making = Callable[[dict[str, Any], _Shape], _Shape | None]
ELEMENTWISE = {
    "relu",
    "gelu",
    "silu",
    "elu",
    "leaky_relu",
    "tanh",
    "sigmoid",
    "softmax",
    "log_softmax",
    "dropout",
    "abs",
    "exp",
    "relu6",
    "softplus",
    "clone",
    "detach",
    "contiguous",
    "float",
    "double",
    "half",
    "log",
    "sqrt",
    "square",
    "hardswish",
    "mish",
    "logsigmoid",
    "selu",
}
_FREE = ("activation", "dropout")  # categories of modules that take any shape and return the same
_KEEPING = (*_FREE, "norm")


@dataclass(slots=True)
class Ran:
    """One earlier call.

    Attributes:
        name: how it is written or reached ("l0", "F.relu").
        module: the module called; None for a function.
        taken, given: the numbers of its first input and of its output, in `ForwardSource.shapes`.
        perhaps: the condition under which it ran; empty if it certainly ran.
        skipped: loop rounds before it that were not examined.
        hooked, free, keeps: whether hooks may change its input or output, whether it takes any shape and returns the same, and
            whether it returns the shape of its input.
    """

    name: str
    module: Module | None
    taken: int
    given: int
    perhaps: str = ""
    skipped: int = 0
    hooked: bool = False
    free: bool = False
    keeps: bool = False

    def __post_init__(self) -> None:
        self.hooked = hooked(self.module)
        if self.module is None:
            self.free = self.keeps = self.name.rpartition(".")[2] in ELEMENTWISE
        elif type(self.module).__module__.startswith("torch.nn.modules."):
            self.free, self.keeps = _kept(type(self.module))  # type: ignore[arg-type]
        if self.free and self.module is not None and type(self.module) is not nn.Identity:
            self.free = not any(True for _ in stores.named_tensors(self.module))


def hooked(module: Module | None) -> bool:
    """Whether a module has hooks that may change its input or output."""
    return module is not None and bool(stores.contents(module).get("_forward_hooks") or stores.contents(module).get("_forward_pre_hooks"))


def through(module: Module, taken: _Shape) -> _Shape | None:
    """The shape that a layer returns for an input shape, if its class or its code determines it; otherwise None."""
    made = _MADE.get(type(module))
    if made is not None:
        return made(stores.contents(module), taken)
    weight = shape_of(own(module, "weight"))
    if weight is None or len(weight) != 2:
        return None
    if type(module) is nn.Linear:
        return (*taken[:-1], weight[0])
    if code_fixes.is_torchs(module) or not is_linear(module):
        return None
    return (*taken[:-1], weight[1] if weight[0] == taken[-1] else weight[0])


def _windowed(held: dict[str, Any], taken: _Shape, dimensions: int) -> _Shape | None:
    """The output shape of a convolution or pooling for a batch."""
    windows = [held.get(name, 1) for name in ("kernel_size", "stride", "padding", "dilation")]
    pairs = [(one,) * dimensions if type(one) is int else one for one in windows]
    if len(taken) != dimensions + 2 or held.get("ceil_mode") or held.get("return_indices") or any(type(one) is not tuple for one in pairs):
        return None
    sizes = [(size + 2 * pad - gap * (kernel - 1) - 1) // step + 1 for size, kernel, step, pad, gap in zip(taken[2:], *pairs, strict=True)]
    return (taken[0], held.get("out_channels", taken[1]), *sizes)


def _flattened(held: dict[str, Any], taken: _Shape) -> _Shape | None:
    first, last = held["start_dim"], held["end_dim"] % max(len(taken), 1)
    return (*taken[:first], prod(taken[first : last + 1]), *taken[last + 1 :]) if 0 <= first <= last < len(taken) else None


def _windows(dimensions: int) -> _Making:
    return lambda held, taken: _windowed(held, taken, dimensions)


_WINDOWED = {
    1: (nn.Conv1d, nn.MaxPool1d, nn.AvgPool1d),
    2: (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d),
    3: (nn.Conv3d, nn.MaxPool3d, nn.AvgPool3d),
}
_MADE: dict[type, _Making] = {
    **{cls: _windows(dimensions) for dimensions, classes in _WINDOWED.items() for cls in classes},
    nn.Flatten: _flattened,
    nn.Embedding: lambda held, taken: (*taken, held["embedding_dim"]),
}


def is_linear(module: Module) -> bool:
    """Whether a user's ``forward`` is the product of its input with its weight, with or without a bias, and nothing else."""
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    body = source_code.of_code(code) if code is not None else None
    if body is None or len(body.tree.args.args) != 2:
        return False
    statements = [one for one in body.tree.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    itself, first = (argument.arg for argument in body.tree.args.args)
    node = statements[0].value if len(statements) == 1 and isinstance(statements[0], ast.Return) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _is_own(node.right, itself, module, 1):
        node = node.left
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return isinstance(node.left, ast.Name) and node.left.id == first and _is_own(node.right, itself, module, 2)
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("F.linear", "nn.functional.linear", "torch.matmul"):
        return False
    taken = isinstance(node.args[0], ast.Name) and node.args[0].id == first if node.args else False
    weights = len(node.args) > 1 and _is_own(node.args[1], itself, module, 2)
    return taken and weights and all(_is_own(one, itself, module, 1) for one in node.args[2:])


def _is_own(node: ast.expr, itself: str, module: Module, dimensions: int) -> bool:
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.value.id != itself:
        return False
    return len(shape_of(own(module, node.attr)) or ()) == dimensions


@cache
def _kept(cls: type) -> tuple[bool, bool]:
    """For a torch class: whether modules without weights take any shape and return it, and whether any shape that fits is kept."""
    if cls is nn.Identity or cls.__name__ in ("MultiheadAttention", "GLU"):
        return cls is nn.Identity, cls is nn.Identity
    category = marks.category(cls)
    return category in _FREE, category in _KEEPING


def back(module: Module, given: _Shape) -> _Shape | None:
    """The input shape that a layer needs to return a given shape, or None."""
    return (*given[:-1], shape[1]) if type(module) is nn.Linear and (shape := shape_of(own(module, "weight"))) and given else None
