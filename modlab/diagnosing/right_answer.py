"""The right answer to each sample, given to the loss: it must be the best one, and count."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from modlab.causes.data import gets_there
from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.records.clues import RANGES
from modlab.records.finding import ExperimentRecord, Outcome, Remedy
from modlab.running import bounds, pair_losses
from modlab.running.values import mapped
from modlab.statistics.memory import is_gone

SURE = 8.0
"""The score of the right class above those of the others."""
ROUNDING, ROUNDED = 1e-6, 1e-3
"""Part of a loss by which two answers differ that are as good; and of what chance does to it, by which it is moved that stays."""

SMALL = 1e-4
"""A loss whose right and wrong answers differ by less counts as too small."""
CHANCES = 1e-2
"""How far the logarithm of what chances add up to may be from 0."""


REACH = {name: ends for name, ends in RANGES.items() if ends[1] > 0}
"""Without those of logarithms, which a loss may multiply by its targets."""
BEYOND, FAR_BEYOND = 30.0, 100.0
"""Targets that many times as large as the outputs: above the first it is worth a look, above the second it is wrong."""
MANY_OF, OUTLIERS = 0.8, 10.0
"""A part of the targets, and how many times as large as any of it they are all in all where a few outliers make them so."""
LARGE = 50.0
"""Size of targets up to which a last bias comes there by itself."""
CLASSES, MANY = 20, 16
"""So many classes are looked at one by one, and so many samples show that a target is a class."""
WEIGHS = 0.99
"""Fraction of the loss's gain that answers to one class may bring, if fewer than `MOST` of the samples have it."""
WHOLE = 1.001
"""It cannot bring more than all of it, but where other answers cost: then something else is turned around."""
MOST = 0.9


class Answers(NamedTuple):
    """Outputs: the right one for each sample, a wrong one, and the right one with more confidence (the same for numbers)."""

    right: Tensor
    wrong: Tensor
    sure: Tensor
    labels: Tensor | None = None


def aim(bench: Bench) -> ExperimentRecord:
    """The loss of the right answer is lower than that of a wrong one, and the output can give it."""
    if bench.loss is F.kl_div or issubclass(type(bench.loss), nn.KLDivLoss):
        raise NotRunError("no right answer")  # it takes logarithms of what it compares
    output = bench.output()
    if float(bench.value(output)) != float(bench.value(output)):
        raise NotRunError("no right answer")  # a loss that draws its own targets
    if not issubclass(type(output), Tensor):
        return _of_pairs(bench, output)
    if is_gone(output) or not output.is_floating_point() or not output.dim():
        raise NotRunError("no scores")
    found = _indifferent(bench, output) or _out_of_reach(bench, output, bench.target) or _one_number(output, bench.target)
    if found is not None:
        return found
    answers = _of_classes(output, bench.target) or _of_two(bench, output) or _of_numbers(bench, output)
    if answers is None:
        raise NotRunError("no right answer")
    return _judged(bench, output.detach(), answers)


def _of_pairs(bench: Bench, output: Any) -> ExperimentRecord:
    """Of two views that are only to be alike: one answer for all samples is the best one."""
    made = [tensor for tensor in batches.tensors(output) if tensor.is_floating_point() and tensor.dim() > 1]
    views = [tensor.detach() for tensor in made]
    if len(views) != 2 or views[0].shape != views[1].shape or len(views[0]) < 4:
        raise NotRunError("no scores")
    if made[0].requires_grad != made[1].requires_grad:
        raise NotRunError("no right answer")  # one is what the other should become: a teacher's, or what was hidden of the input
    same = mapped(output, lambda _: views[0][:1].expand_as(views[0]).clone())
    with torch.no_grad():
        now, alike = float(bench.value(output)), float(bench.value(same))
        targets = bench.loss(output, mapped(batches.copied(bench.target), lambda tensor: tensor.flip(0)))
    alike = 0.0 if abs(alike) < 1e-6 else alike  # but for rounding
    if float(targets) != now or not 0 <= alike < 0.1 * now:
        raise NotRunError("no right answer")
    return record("aim", "failed", "collapse", Remedy("negatives"), loss=now, alike=alike)


def _indifferent(bench: Bench, output: Tensor) -> ExperimentRecord | None:
    """The loss is the same for any output, and has no slope."""
    leaf = output.detach().clone().requires_grad_()
    value = bench.value(leaf * 1)
    grad = torch.autograd.grad(value, [leaf], allow_unused=True)[0] if value.requires_grad else None
    if (grad is None and value.requires_grad) or (grad is not None and bool(grad.any())):
        return None  # it has a slope; or it calls the model itself, and does not look at this output
    generator = torch.Generator().manual_seed(0)
    other = output.detach() + torch.randn(output.shape, generator=generator).to(output) * (1 + output.detach().abs().mean())
    now, then = float(value.detach()), float(bench.value(other))
    if not math.isfinite(now) or abs(now - then) > 1e-5 * abs(now):
        return None
    kind = "one logit" if output.dim() > 1 and output.shape[1] == 1 and abs(now) < 1e-6 else "constant loss"
    return record("aim", "failed", kind, Remedy(kind), loss=now)


def _out_of_reach(bench: Bench, output: Tensor, target: Any) -> ExperimentRecord | None:
    """The last function cannot give what the target asks for, or numbers of quite another size are asked for."""
    if not issubclass(type(target), Tensor) or not target.is_floating_point() or target.shape != output.shape or target.numel() < 8:
        return None
    name = "" if output.grad_fn is None else output.grad_fn.name().partition("Backward")[0]
    low, high = REACH.get(name) or bounds.of(output.grad_fn)
    told = name not in REACH  # its ends, and perhaps on purpose
    slack = (bounds.SLACK if told else 0.05) * (float(target.std()) + 1e-12)
    share = float(((target < low - slack) | (target > high + slack)).double().mean())
    reach = bounds.Reach()
    reach.add(output.detach(), target, (low, high))
    if share > bounds.BEYOND if told else reach.is_short:
        facts: dict[str, Any] = {"function": name.lower(), "low": low, "high": high, "share": share}
        return record("aim", "failed", "output cannot reach", Remedy("output cannot reach"), **facts)
    sizes: dict[str, Any] = {
        "target": float(target.double().square().mean().sqrt()),
        "output": float(output.detach().double().square().mean().sqrt()),
    }
    times = sizes["target"] / max(sizes["output"], 0.1)
    if times > BEYOND and not _is_of_differences(bench, output.detach()):
        steps = [(type(one).__name__, float(group["lr"])) for one in bench.subject.optimizers for group in one.param_groups]
        near = any(gets_there(*one, sizes["target"]) for one in steps)
        most = float(target.double().abs().flatten().kthvalue(math.ceil(MANY_OF * target.numel())).values)
        usual = most > sizes["target"] / OUTLIERS  # else a few are large, which a loss may forgive
        outcome: Outcome = "failed" if times > FAR_BEYOND and sizes["target"] > LARGE and usual and not near else "unclear"
        return record("aim", outcome, "targets not scaled", Remedy("targets not scaled"), times=times, **sizes)
    return None


def _is_of_differences(bench: Bench, output: Tensor) -> bool:
    """Whether numbers may all be greater by the same and the loss stays, as where a softmax is taken of them and of a teacher's."""
    noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    with torch.no_grad():
        now, shifted, other = (float(bench.value(one)) for one in (output, output + 1, output + noise))
    return abs(shifted - now) < ROUNDED * abs(other - now)


def _one_number(output: Tensor, target: Any) -> ExperimentRecord | None:
    """Whole numbers, as classes have, are learned by one number for each."""
    if not issubclass(type(target), Tensor) or target.is_floating_point() or target.dtype is torch.bool or target.numel() < MANY:
        return None
    known = torch.unique(target)
    if output.numel() != target.numel() or not 2 < len(known) <= CLASSES or int(known.min()) not in (0, 1):
        return None
    kind = "regression of classes"
    return record("aim", "unclear", kind, Remedy(kind), classes=len(known))


def _of_classes(output: Tensor, target: Any) -> Answers | None:
    """Scores of classes, in dimension 1 or the last one."""
    if not issubclass(type(target), Tensor) or target.is_floating_point() or target.dtype is torch.bool or output.dim() < 2:
        return None
    for dim in (1, -1):
        rest = [*output.shape]
        classes = rest.pop(dim)
        if rest == [*target.shape] and classes > 1 and not bool((target >= classes).any()):
            known = target.clamp_min(0)
            right, wrong = (_scores(output, other % classes, dim) for other in (known, known + 1))
            return Answers(right * SURE, wrong * SURE, right * SURE * 10, known.unsqueeze(dim).expand_as(output))
    return None


def _scores(output: Tensor, label: Tensor, dim: int) -> Tensor:
    return torch.zeros_like(output).scatter_(dim, label.unsqueeze(dim), 1.0)


def _of_two(bench: Bench, output: Tensor) -> Answers | None:
    """Scores of yes and no, for targets of ones and zeros, if the loss takes scores: it is bounded where they are large and right."""
    target = bench.target
    if not issubclass(type(target), Tensor) or target.shape != output.shape or not bool(((target == 0) | (target == 1)).all()):
        return None
    if pair_losses.gives_distances(output.grad_fn):
        return None  # whether near means yes or no is up to the loss
    right = (2 * target.to(output.dtype) - 1) * SURE
    with torch.no_grad():
        values = [float(bench.value(one)) for one in (right, -right, right * 2, -right * 2)]
    flat = min(abs(values[2] - values[0]), abs(values[3] - values[1]))  # for scores, one side is flat
    return Answers(right, -right, right, target.long()) if flat < 0.01 * abs(values[1] - values[0]) else None


def _of_numbers(bench: Bench, output: Tensor) -> Answers | None:
    """As many numbers as the target has; of zeros and ones, what is right depends on the loss."""
    target = bench.target
    if not issubclass(type(target), Tensor) or not target.is_floating_point() or target.shape != output.shape:
        return None
    if bool(((target == 0) | (target == 1)).all()) or _is_of_differences(bench, output.detach()):
        return None
    right = target.to(output.dtype).clone()
    return Answers(right, right + (right.std() if right.numel() > 1 else 0) + 1, right)


def _judged(bench: Bench, output: Tensor, answers: Answers) -> ExperimentRecord:
    sign = -1.0 if bench.climbs else 1.0

    def loss(answer: Tensor) -> float:
        """What a step makes smaller."""
        with torch.no_grad():
            return sign * float(bench.value(answer.clone()))

    now, right, wrong, sure = loss(output), loss(answers.right), loss(answers.wrong), loss(answers.sure)
    numbers: dict[str, Any] = {"loss": sign * now, "right": sign * right, "wrong": sign * wrong, "climbs": bench.climbs}
    apart, rounding = right - wrong, ROUNDING * max(abs(now), abs(right), abs(wrong))
    if not all(map(math.isfinite, (now, right, wrong))) or not abs(apart) > rounding:
        raise NotRunError("no right answer")
    if apart > 0 and now < min(right, wrong):
        opposite = loss(-answers.right)
        if opposite < now and math.isclose(opposite, -right, rel_tol=1e-3):  # a likeness, of which the greatest is made the least
            return record("aim", "failed", "wrong sign", Remedy("wrong sign"), **{**numbers, "wrong": sign * opposite})
        raise NotRunError("no right answer")  # both are worse than what an untrained model says: it is compared otherwise, one later say
    if apart > 0:
        return record("aim", "failed", "wrong sign", Remedy("wrong sign"), **numbers)
    falls = sure < min(right, 0.0) - 10 and not batches.is_cross_entropy(bench.loss) and not _are_logarithms(output)
    if falls and (math.isclose(sure, 10 * right, rel_tol=1e-4) or not math.isclose(loss(answers.right + 1), right, rel_tol=1e-4)):
        # else it compares scores with each other, as a ratio of distances does
        return record("aim", "failed", "no log", Remedy("no log-probabilities"), sure=sure, **numbers)
    if abs(apart) < SMALL and abs(now - right) < SMALL:
        return record("aim", "failed", "loss too small", Remedy("loss too small"), **numbers)
    uneven = None if answers.labels is None else _uneven(loss, answers, wrong, apart)
    return uneven or record("aim", "passed", "right is best", **numbers)


def _are_logarithms(output: Tensor) -> bool:
    """Whether scores are logarithms of chances that add up to 1 already, as a loss without a softmax wants them."""
    return any(bool((output.double().logsumexp(dim).abs() < CHANCES).all()) for dim in {1 % output.dim(), output.dim() - 1})


def _uneven(loss: Callable[[Tensor], float], answers: Answers, wrong: float, apart: float) -> ExperimentRecord | None:
    """Nearly all of the loss is about one class, which not nearly all samples have."""
    assert answers.labels is not None
    for label in torch.unique(answers.labels).tolist()[:CLASSES]:
        of_class = answers.labels == label
        gain = (loss(torch.where(of_class, answers.right, answers.wrong)) - wrong) / apart
        share = float(of_class.double().mean())
        if WEIGHS < gain < WHOLE and share < MOST:
            kind = "weights of classes"
            return record("aim", "failed", kind, Remedy(kind), label=int(label), gain=gain, share=share)
    return None
