"""What a tool is asked and what it answers; three plain rules, to compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from bench.sick.causes import CAUSES
from bench.sick.training import Training

Make = Callable[[], Training]
"""Makes the training, each time the same anew: a tool may run it, look at it before, or make several."""


def _require_causes(causes: Sequence[str]) -> None:
    unknown = [one for one in causes if one not in CAUSES]
    if unknown:
        raise KeyError(f"{', '.join(map(repr, unknown))}: not among the CAUSES of bench/sick/causes.py")


@dataclass(frozen=True)
class Named:
    """One thing that a tool says is wrong.

    Attributes:
        causes: keys of `CAUSES`, the likeliest first; of more than two only the first two count.
        settle: the line to run, or the thing to look at, that tells the second from the first.
        path: the module or parameter it is about.
    """

    causes: tuple[str, ...]
    settle: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.causes, str):
            raise TypeError(f"Named({self.causes!r}): causes are a tuple.\n  Write: Named(({self.causes!r},))")
        _require_causes(self.causes)


@dataclass(frozen=True)
class Answer:
    """What a tool says about a training.

    Attributes:
        named: causes that it presents as what is wrong, the first one first.
        hints: causes that stand among its notes, and are not presented as what is wrong.
        alarm: whether it says that something is wrong, with or without a cause.
        text: what a person reads.
    """

    named: Sequence[Named] = ()
    hints: Sequence[str] = ()
    alarm: bool = False
    text: str = ""

    def __post_init__(self) -> None:
        _require_causes(self.hints)


Tool = Callable[[Make], "dict[str, Answer]"]
"""Answers, each under the name of the way in which the tool was asked: a tool that runs the training once may answer in several ways."""


def plain_rules(make: Make) -> dict[str, Answer]:
    """Three of them."""
    return {"plain rules": _plain(make)}


def _plain(make: Make) -> Answer:
    """What everybody looks at first: is the loss a number, does each parameter get a gradient, does the loss fall?"""
    training = make()
    losses: list[float] = []
    criterion = training.criterion

    def noted(output: object, target: Tensor) -> Tensor:
        loss = criterion(output, target)
        losses.append(float(loss.detach()))
        return loss

    training.criterion = noted
    training.run()
    if any(not math.isfinite(loss) for loss in losses):
        return Answer(
            [Named(("rate too high", "not a number in data"), "a tenth of the learning rate")], alarm=True, text="the loss is not finite"
        )
    without = [name for name, one in training.model.named_parameters() if one.grad is None or not one.grad.any()]
    if without:
        return Answer(
            [Named(("detached", "frozen"), "requires_grad of the parameter", without[0])], alarm=True, text=f"{without[0]} has no gradient"
        )
    tenth = max(len(losses) // 10, 1)
    if losses and _mean(losses[-tenth:]) > 0.9 * _mean(losses[:tenth]):
        return Answer(
            [Named(("rate too low", "rate too high"), "the same with another learning rate")], alarm=True, text="the loss does not fall"
        )
    return Answer(text="nothing found")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
