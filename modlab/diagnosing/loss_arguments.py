"""What a loss compares: an output with a target of a different shape, or scores that already went through its activation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from modlab.compat import FunctionMode
from modlab.records.clues import MOVES
from modlab.records.finding import Evidence, Fact, Finding, Remedy, Severity

ELEMENTWISE: dict[Callable[..., Any], str] = {
    F.mse_loss: "mse_loss",
    F.l1_loss: "l1_loss",
    F.smooth_l1_loss: "smooth_l1_loss",
    F.huber_loss: "huber_loss",
    F.poisson_nll_loss: "poisson_nll_loss",
    F.soft_margin_loss: "soft_margin_loss",
}
A_PASS = Evidence("pass")
"""One pass with the batch and its loss."""

DIFFERENCES = frozenset({"sub", "__sub__", "__rsub__", "rsub", "subtract"})
_RESHAPING = (*MOVES, "Select", "Slice")


class Comparisons(FunctionMode):
    """Observes a loss while it is computed; records only words and numbers.

    Args:
        output, target: the tensors in the model's output, and in the target.
    """

    def __init__(self, output: list[Tensor], target: list[Tensor]) -> None:
        super().__init__()
        self._output, self._target = {id(tensor) for tensor in output}, {id(tensor) for tensor in target}
        self.found: list[Finding] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function unchanged, and look at what it compares."""
        kwargs = kwargs or {}
        tensors = [thing for thing in (*args, *kwargs.values()) if issubclass(type(thing), Tensor)][:2]
        if len(tensors) == 2 and not self.found:
            self.found += self._spread(func, *tensors)
            self.found += _twice(func, tensors[0])
        return func(*args, **kwargs)

    def _spread(self, func: Any, one: Tensor, other: Tensor) -> Iterator[Finding]:
        shapes = tuple(one.shape), tuple(other.shape)
        if shapes[0] == shapes[1] or one.is_nested or other.is_nested:
            return
        name = ELEMENTWISE.get(func, "")
        direct = {id(one), id(other)} & self._output and {id(one), id(other)} & self._target
        if not name and not (direct and getattr(func, "__name__", "") in DIFFERENCES):
            return
        try:
            shape = tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
        except RuntimeError:
            return  # the loss will report this itself
        if not name and shape in shapes:
            return  # a difference with a mean, say
        swapped = id(one) in self._target or id(other) in self._output
        yield _spread(name, *(shapes[::-1] if swapped else shapes), shape)


def _spread(name: str, output: tuple[int, ...], target: tuple[int, ...], shape: tuple[int, ...]) -> Finding:
    both = shape not in (output, target)
    facts: dict[str, Fact] = {"function": name, "output": output, "target": target, "shape": shape, "both": both}
    severity: Severity = "broken" if both and name else "careful"
    return Finding("shapes differ in the loss", "", facts, severity, None, (A_PASS,), (Remedy("same shape", squeezed(output, target)),))


def squeezed(output: tuple[int, ...], target: tuple[int, ...]) -> str:
    """The call with equal shapes, where one of them has a last dimension of 1 that the other has not."""
    if output == (*target, 1):
        return "loss(output.squeeze(-1), target)  # or target.unsqueeze(-1)"
    return "loss(output, target.squeeze(-1))  # or output.unsqueeze(-1)" if target == (*output, 1) else ""


def _twice(func: Any, scores: Tensor) -> Iterator[Finding]:
    """A sigmoid before a loss that applies one itself."""
    if func in (F.binary_cross_entropy_with_logits, torch.binary_cross_entropy_with_logits) and _is_sigmoid(scores):
        yield Finding("sigmoid twice", "", {}, "broken", None, (A_PASS,), (Remedy("one sigmoid"),))


def _is_sigmoid(scores: Tensor) -> bool:
    step: Any = scores.grad_fn
    for _ in range(8):
        if step is None:
            return False
        name = step.name().partition("Backward")[0]
        if name == "Sigmoid":
            return True
        if name not in _RESHAPING or not step.next_functions:
            return False
        step = step.next_functions[0][0]
    return False
