"""The first loss beside that of a model that guesses."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from modlab import format
from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.values import is_weight
from modlab.records.finding import ExperimentRecord
from modlab.statistics.memory import is_gone

HIGH, LOW = 1.5, 0.5
"""A first loss above `HIGH` times the guess is too high; one below `LOW` times it shows that the model knows something already."""


def first_loss(bench: Bench) -> ExperimentRecord:
    """Cross entropy of a fresh model is that of equal chances for all classes."""
    if not batches.is_cross_entropy(bench.loss):
        raise NotRunError("known only for cross entropy: nn.CrossEntropyLoss, nn.NLLLoss")
    with torch.no_grad():
        output = bench.output()
        if not issubclass(type(output), Tensor) or is_gone(output) or not output.is_floating_point() or output.dim() == 0:
            raise NotRunError("the output is not one tensor of scores")
        classes = int(output.shape[1 if output.dim() > 1 else 0])
        even = torch.full_like(output, -math.log(classes))
        value, guess = float(bench.value(output)), float(bench.value(even))
        spent = _already_probabilities(bench, output)
    numbers = (("loss", value), ("guess", guess), ("classes", float(classes)))
    if spent is not None:
        what, reason, advice = spent
        return record("first loss", "failed", what, reason, numbers=numbers, advice=advice)
    said = f"{_short(guess)} for {format.plural(classes, 'class', 'classes')}"
    if not math.isfinite(value):
        return record("first loss", "failed", f"it is {format.number(value)}; a guess has {said}", numbers=numbers)
    if value > HIGH * guess:
        last = _last(bench, classes)
        again = f", or start it anew: nn.init.normal_({last}, std=0.02)" if last else ""
        return record(
            "first loss",
            "unclear",
            f"the first loss is {_short(value)}; a guess has {said}",
            "The model starts by being sure of what is wrong: the last layer's weights, or its inputs, are too large. The first steps are "
            "spent on unlearning that, which may be put up with (an output that is tied to a default nn.Embedding starts so). Of a "
            "trained model: it does worse than guessing.",
            numbers=numbers,
            advice=f"Scale the inputs to about 1, and let the last layer start with small weights{again}",
        )
    if value < LOW * guess:
        what = f"it is {_short(value)}, below the {said} of a guess: the model knows something already"
        return record("first loss", "passed", what, "A fresh model cannot know: then the target is in its input.", numbers=numbers)
    return record("first loss", "passed", f"it is {_short(value)}, and a guess has {said}", numbers=numbers)


def _last(bench: Bench, classes: int) -> str:
    """The last layer with a row for each class, if there is one that is called so."""
    last = next((held for held in reversed(bench.subject.trained) if is_weight(held) and int(held.tensor.shape[0]) == classes), None)
    return last.code if last is not None else ""


def _short(value: float) -> str:
    """Two digits: the others differ from machine to machine."""
    return format.number(float(f"{value:.2g}"))


def _already_probabilities(bench: Bench, output: Tensor) -> tuple[str, str, str] | None:
    """What, reason and advice if the scores are in the other loss's form."""
    dim = 1 if output.dim() > 1 else 0
    if output.shape[dim] < 2:
        return None
    sums = output.double().sum(dim)
    if batches.is_likelihood(bench.loss):
        total = output.double().logsumexp(dim)
        if bool((total.abs() > 1e-2).any()):
            return (
                "NLLLoss takes log-probabilities, and these are none: their exponentials do not add up to 1",
                "Without log_softmax the loss can fall without end, and says nothing.",
                "Take nn.CrossEntropyLoss(), or end forward with F.log_softmax over the classes.",
            )
    elif bool((output >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all()):
        return (
            "the output is probabilities already (they add up to 1), and CrossEntropyLoss applies softmax again",
            "Softmax of a softmax is nearly even: the loss cannot come near 0, and gradients are small.",
            "Leave the softmax at the end of forward away: the loss makes it, and predictions can have it where they are used.",
        )
    return None
