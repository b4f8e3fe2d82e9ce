"""What a call makes of the sizes of its input: which give back any size, which change the last one, and what hooks may have done."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from torch import nn
from torch.nn import Module

from modlab.inspection import marks, stores
from modlab.instrumentation.accidents import advice, bodies
from modlab.instrumentation.accidents.scene import own, shape_of

_Shape = tuple[int, ...]
ELEMENTWISE = {
    "relu", "gelu", "silu", "elu", "leaky_relu", "tanh", "sigmoid", "softmax", "log_softmax", "dropout", "abs", "exp", "relu6", "softplus",
    "clone", "detach", "contiguous", "float", "double", "half", "log", "sqrt", "square", "hardswish", "mish", "logsigmoid", "selu",
}  # fmt: skip
_FREE = ("activation", "dropout")  # categories of modules that take any size, and give it back
_KEEPING = (*_FREE, "norm")


@dataclass(slots=True)
class Ran:
    """One call that came before.

    Attributes:
        name: how it is written or reached ("l0", "F.relu").
        module: what was called; None for a function.
        taken, given: the numbers of its first input and of its output, in `Source.shapes`.
    """

    name: str
    module: Module | None
    taken: int
    given: int


def hooked(module: Module | None) -> bool:
    """Whether a module has hooks that may change what it gets or gives."""
    return module is not None and bool(stores.contents(module).get("_forward_hooks") or stores.contents(module).get("_forward_pre_hooks"))


def through(module: Module, taken: _Shape) -> _Shape | None:
    """What a layer of weights makes of a shape."""
    weight = shape_of(own(module, "weight"))
    if weight is None or len(weight) != 2:
        return None
    if type(module) is nn.Linear:
        return (*taken[:-1], weight[0])
    if advice.is_torchs(module) or not is_linear(module):
        return None
    return (*taken[:-1], weight[1] if weight[0] == taken[-1] else weight[0])


def is_linear(module: Module) -> bool:
    """Whether the code of a user's class is a product of its input with its weight, with or without its bias, and nothing else."""
    code = getattr(getattr(type(module), "forward", None), "__code__", None)
    body = bodies.of_code(code) if code is not None else None
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


def keeps(ran: Ran) -> bool:
    """Whether a call gives back the shape that it was given."""
    return is_free(ran) or (ran.module is not None and advice.is_torchs(ran.module) and marks.category(type(ran.module)) in _KEEPING and (
        type(ran.module).__name__ not in ("MultiheadAttention", "GLU")))  # fmt: skip


def is_free(ran: Ran) -> bool:
    """Whether a call takes any size, and gives it back."""
    if ran.module is None:
        return ran.name.rpartition(".")[2] in ELEMENTWISE
    if type(ran.module) is nn.Identity:
        return True
    return (
        advice.is_torchs(ran.module)
        and marks.category(type(ran.module)) in _FREE
        and type(ran.module).__name__ not in ("MultiheadAttention", "GLU")
        and not any(True for _ in stores.named_tensors(ran.module))
    )
