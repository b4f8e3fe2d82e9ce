"""The first loss compared with that of a model that guesses."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.values import is_weight
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.statistics.memory import is_gone

HIGH, LOW = 1.5, 0.5
"""A first loss above `HIGH` times the guess is too high; below `LOW` times it, the model has already learned something."""


def first_loss(bench: Bench) -> ExperimentRecord:
    """The cross entropy of a fresh model is that of equal probabilities for all classes."""
    if not batches.is_cross_entropy(bench.loss):
        raise NotRunError("another loss")
    with torch.no_grad():
        output = bench.output()
        if not issubclass(type(output), Tensor) or is_gone(output) or not output.is_floating_point() or output.dim() == 0:
            raise NotRunError("no scores")
        classes = int(output.shape[1 if output.dim() > 1 else 0])
        even = torch.full_like(output, -math.log(classes))
        value, guess = float(bench.value(output)), float(bench.value(even))
        spent = _already_probabilities(bench, output)
    numbers: dict[str, Any] = {"loss": value, "guess": guess, "classes": float(classes)}
    if spent is not None:
        return record("first loss", "failed", spent, Remedy(spent), **numbers)
    if not math.isfinite(value):
        return record("first loss", "failed", "first loss not finite", **numbers)
    if value > HIGH * guess:
        last = _last(bench, classes)
        return record("first loss", "unclear", "above a guess", Remedy("start anew" if last else "scale the inputs"), last=last, **numbers)
    return record("first loss", "passed", "below a guess" if value < LOW * guess else "as a guess", **numbers)


def _last(bench: Bench, classes: int) -> str:
    """The last layer with one row per class, as the user would write it; empty if there is none."""
    last = next((held for held in reversed(bench.subject.trained) if is_weight(held) and int(held.tensor.shape[0]) == classes), None)
    return last.code if last is not None else ""


def _already_probabilities(bench: Bench, output: Tensor) -> str | None:
    """What is wrong if the scores are probabilities already, or not the log-probabilities that the loss takes."""
    dim = 1 if output.dim() > 1 else 0
    if output.shape[dim] < 2:
        return None
    sums = output.double().sum(dim)
    if batches.is_likelihood(bench.loss):
        total = output.double().logsumexp(dim)
        return "no log-probabilities" if bool((total.abs() > 1e-2).any()) else None
    return "softmax twice" if bool((output >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all()) else None
