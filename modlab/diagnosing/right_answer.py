"""The right answer to each sample, given to the loss: it must be the best one, and count."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.statistics.memory import is_gone

SURE = 8.0
"""The score of the right class above those of the others."""
SMALL = 1e-4
"""A loss whose right and wrong answers differ by less counts as too small."""


class Answers(NamedTuple):
    """Outputs: the right one for each sample, a wrong one, and the right one with more confidence (the same for numbers)."""

    right: Tensor
    wrong: Tensor
    sure: Tensor


def aim(bench: Bench) -> ExperimentRecord:
    """The loss of the right answer is lower than that of a wrong one."""
    with torch.no_grad():
        output = bench.output()
    if not issubclass(type(output), Tensor) or is_gone(output) or not output.is_floating_point() or not output.dim():
        raise NotRunError("no scores")
    answers = _of_classes(output, bench.target) or _of_numbers(output, bench.target)
    if answers is None:
        raise NotRunError("no right answer")
    return _judged(bench, output, answers)


def _of_classes(output: Tensor, target: Any) -> Answers | None:
    """Scores of classes, in dimension 1 or the last one."""
    if not issubclass(type(target), Tensor) or target.is_floating_point() or target.dtype is torch.bool or output.dim() < 2:
        return None
    for dim in (1, -1):
        rest = [*output.shape]
        classes = rest.pop(dim)
        if rest == [*target.shape] and (classes == 1 or not bool((target >= classes).any())):
            known = target.clamp_min(0)
            right, wrong = (_scores(output, other % classes, dim) for other in (known, known + 1))
            return Answers(right * SURE, wrong * SURE, right * SURE * 10)
    return None


def _scores(output: Tensor, label: Tensor, dim: int) -> Tensor:
    return torch.zeros_like(output).scatter_(dim, label.unsqueeze(dim), 1.0)


def _of_numbers(output: Tensor, target: Any) -> Answers | None:
    """As many numbers as the target has; of zeros and ones, scores of them."""
    if not issubclass(type(target), Tensor) or not target.is_floating_point() or target.shape != output.shape:
        return None
    right = target.to(output.dtype).clone()
    if bool(((target == 0) | (target == 1)).all()):
        return None  # probabilities, scores or numbers: what is right depends on the loss
    return Answers(right, right + (right.std() if right.numel() > 1 else 0) + 1, right)


def _judged(bench: Bench, output: Tensor, answers: Answers) -> ExperimentRecord:
    with torch.no_grad():
        now, right, wrong, sure = (float(bench.value(one.clone())) for one in (output, *answers))
    numbers: dict[str, Any] = {"loss": now, "right": right, "wrong": wrong}
    if not all(map(math.isfinite, (now, right, wrong))):
        raise NotRunError("no right answer")
    classes = answers.right is not answers.sure
    if classes and 1 in (output.shape[1], output.shape[-1]) and right == wrong == now:
        return record("aim", "failed", "one logit", Remedy("one logit"), **numbers)
    if right == wrong:
        return _indifferent(bench, output, numbers)
    apart = right - wrong
    if apart > 1e-6 * max(abs(right), abs(wrong)):
        return record("aim", "failed", "wrong sign", Remedy("wrong sign"), **numbers)
    if classes and sure < right - 10 and not batches.is_cross_entropy(bench.loss):
        return record("aim", "failed", "no log", Remedy("no log-probabilities"), sure=sure, **numbers)
    if abs(apart) < SMALL and abs(now - right) < SMALL:
        return record("aim", "failed", "loss too small", Remedy("loss too small"), **numbers)
    return record("aim", "passed", "right is best", **numbers)


def _indifferent(bench: Bench, output: Tensor, numbers: dict[str, Any]) -> ExperimentRecord:
    """The loss is the same for right and wrong: constant, unless its gradient tells outputs apart (it may draw its own targets)."""
    with torch.enable_grad():
        leaf = output.detach().clone().requires_grad_()
        value = bench.value(leaf * 1)
        grad = torch.autograd.grad(value, [leaf], allow_unused=True)[0] if value.requires_grad else None
    if grad is not None and bool(grad.any()):
        raise NotRunError("no right answer")
    return record("aim", "failed", "constant loss", Remedy("constant loss"), **numbers)
