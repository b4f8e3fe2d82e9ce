"""The functions of torch that run between the modules: a mode that sees them, and what they are called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modlab.compat import (
    FunctionMode,
    being_traced,
    leave_function_mode,
    pop_function_mode,
    push_function_mode,
    top_function_mode,
    without_torch_function,
)

Function = Callable[..., Any]
Seen = Callable[[Function, tuple[Any, ...], dict[str, Any]], Any]

_OPERATORS = {
    "add": "x + y",
    "__radd__": "y + x",
    "sub": "x - y",
    "__rsub__": "y - x",
    "rsub": "y - x",
    "mul": "x * y",
    "__rmul__": "y * x",
    "div": "x / y",
    "true_divide": "x / y",
    "__rdiv__": "y / x",
    "matmul": "x @ y",
    "__matmul__": "x @ y",
    "__rmatmul__": "y @ x",
    "pow": "x ** y",
    "__pow__": "x ** y",
    "neg": "-x",
    "__eq__": "x == y",
    "eq": "x == y",
    "__ne__": "x != y",
    "ne": "x != y",
    "gt": "x > y",
    "lt": "x < y",
    "ge": "x >= y",
    "le": "x <= y",
    "__floordiv__": "x // y",
    "remainder": "x % y",
    "__and__": "x & y",
    "__or__": "x | y",
    "__invert__": "~x",
    "__getitem__": "x[...]",
    "__setitem__": "x[...] = y",
    "add_": "x += y",
    "__iadd__": "x += y",
    "mul_": "x *= y",
    "sub_": "x -= y",
    "div_": "x /= y",
}
_PACKAGES = {"torch.nn.functional": "F", "torch._C._nn": "F", "torch.functional": "torch", "torch": "torch"}
_ATTRIBUTES = frozenset({"data", "T", "mT", "H", "mH", "real", "imag"})
BACKWARD = frozenset({"Tensor.backward", "torch.autograd.backward", "torch.autograd.grad"})
TAKEN_OUT = frozenset(
    {
        "Tensor.item",
        "Tensor.tolist",
        "Tensor.numpy",
        "Tensor.__float__",
        "Tensor.__int__",
        "Tensor.__array__",
    }
)
"""What turns a tensor into something that autograd cannot follow, and not a tensor."""
ARRAYS = frozenset({"Tensor.numpy", "Tensor.__array__"})
RAW = frozenset(
    {
        "torch.empty",
        "torch.empty_like",
        "torch.empty_strided",
        "torch.empty_permuted",
        "Tensor.new_empty",
        "Tensor.new_empty_strided",
    }
)
"""Functions that give memory as it was found: whatever numbers are in it mean nothing."""
CUT_IN_PLACE = frozenset({"Tensor.detach_"})
UNRELATED = ("_like", ".new_zeros", ".new_ones", ".new_empty", ".new_full", ".new_tensor")
"""Functions that take a tensor for its shape alone."""
_QUIET = frozenset(
    {
        "Tensor.size",
        "Tensor.dim",
        "Tensor.numel",
        "Tensor.__len__",
        "Tensor.stride",
        "Tensor.is_floating_point",
        "Tensor.requires_grad_",
        "Tensor.register_hook",
        "Tensor.retain_grad",
        "Tensor.__bool__",
        "Tensor.__hash__",
        "Tensor.__repr__",
        "Tensor.__format__",
        "Tensor.__contains__",
        "Tensor.is_contiguous",
        "Tensor.get_device",
        "Tensor.element_size",
        "Tensor.data_ptr",
        "Tensor.__index__",
    }
)

_names: dict[Function, str] = {}


def name_of(function: Function) -> str:
    """What one would type: "F.relu", "torch.cat", "Tensor.view", "x + y"; nothing for what is not worth an event."""
    try:
        found = _names.get(function)
    except TypeError:  # not hashable
        return _name_of(function)
    if found is None:
        found = _name_of(function)
        if str(getattr(function, "__module__", None) or "torch").startswith("torch"):  # a user's own may hold anything alive
            _names[function] = found
    return found


def _name_of(function: Function) -> str:
    name = str(getattr(function, "__name__", type(function).__name__))
    if name in ("__get__", "__set__", "__delete__"):  # an attribute of a tensor
        attribute = getattr(getattr(function, "__self__", None), "__name__", "")
        return f"Tensor.{attribute}" if name == "__get__" and attribute in _ATTRIBUTES else ""
    package, qualified = str(getattr(function, "__module__", None) or ""), str(getattr(function, "__qualname__", ""))
    if qualified.startswith(("TensorBase.", "Tensor.")):
        if name in _OPERATORS:
            return _OPERATORS[name]
        return "" if f"Tensor.{name}" in _QUIET else f"Tensor.{name}"
    if package.startswith("torch._ops"):
        return f"{package.removeprefix('torch._ops.')}.{name}"
    if package.startswith("torch._C._") and package not in _PACKAGES:  # torch._C._special holds special_expit
        space = package.removeprefix("torch._C._")
        return f"torch.{space}.{name.removeprefix(space + '_')}"
    return f"{_PACKAGES.get(package, package)}.{name}" if package else name


def _run(function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


class Functions(FunctionMode):
    """Tells `seen` of each function of torch that is called in this thread, the outermost of nested ones alone."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._silence: Any = None
        self.silent = False
        self._until: object = None
        self.open = False

    def __torch_function__(self, func: Function, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if torch.compiler.is_compiling() or being_traced():  # what is being captured must not have us in it
            return func(*args, **(kwargs or {}))
        return self._seen(func, args, kwargs or {})

    def resume(self) -> None:
        """Begin to see."""
        if not self.open:
            self.open = True  # first: an interrupt may come after either
            push_function_mode(self)

    def pause(self) -> bool:
        """Stop, if that is possible: a mode of the user's that was opened since has to be closed first."""
        if self.open and top_function_mode() is self:
            pop_function_mode()
            self.open = False
            return True
        return False

    def silence(self, until: object) -> None:
        """Stop from within a function that is seen, where the mode cannot be taken off: until `wake` is told the same."""
        if self._silence is None:
            self._silence, self._until, self.silent = without_torch_function(), until, True
            self._silence.__enter__()

    def wake(self, until: object) -> None:
        """See again."""
        if self._silence is not None and self._until is until is not None:
            silence, self._silence, self._until, self.silent = self._silence, None, None, False
            silence.__exit__(None, None, None)

    def close(self) -> None:
        """Stop in any case; modes that were opened since and not closed stay."""
        if self._silence is not None:
            self._until = self
            self.wake(self)
        if self.open:
            leave_function_mode(self)
        self.open = False
        self._seen = _run  # and hold nothing any more
