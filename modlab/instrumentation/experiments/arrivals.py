"""Which parameters a gradient arrives at."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from modlab import format
from modlab.inspection.findings.grouping import Group, cover
from modlab.inspection.findings.subject import Held
from modlab.instrumentation.experiments.outcomes import NotRunError, record
from modlab.instrumentation.experiments.trials import Bench
from modlab.records.finding import ExperimentRecord
from modlab.statistics import measure_tensor


def gradients(bench: Bench) -> ExperimentRecord:
    """Every trained parameter gets a gradient, and one that is not zero throughout."""
    trained = [held for held in bench.subject.trained if held.tensor.is_leaf]
    if not trained:
        raise NotRunError("no parameter requires a gradient")
    value = bench.value(bench.output())
    if not value.requires_grad:
        return record(
            "gradients", "failed", "no parameter gets a gradient: the loss has no grad_fn, so nothing leads back to them",
            "The output was detached, computed under no_grad, turned into numbers (.item(), .numpy(), argmax), or does not depend on a "
            "trained parameter.", "output.requires_grad  # in forward: after which line does it become False?",
        )  # fmt: skip
    found = torch.autograd.grad(value, [held.tensor for held in trained], allow_unused=True)
    stats = [None if grad is None else measure_tensor(grad, histogram=False) for grad in found]
    pairs = [*zip(trained, stats, strict=True)]
    lacking = [held for held, one in pairs if one is None]
    bad = [held for held, one in pairs if one is not None and one.nan + one.posinf + one.neginf > 0]
    zero = [held for held, one in pairs if one is not None and one.measured and one.count and one.zeros == one.count]
    numbers = (("trained", float(len(trained))), ("none", float(len(lacking))), ("zero", float(len(zero))), ("not finite", float(len(bad))))
    if not (lacking or bad or zero):
        return record("gradients", "passed", f"all {format.plural(len(trained), 'parameter')}", numbers=numbers)
    return _of_gradients(bench, trained, (lacking, bad, zero), numbers)


def _of_gradients(
    bench: Bench, trained: list[Held], kinds: tuple[list[Held], list[Held], list[Held]], numbers: tuple[tuple[str, float], ...]
) -> ExperimentRecord:
    lacking, bad, zero = kinds
    parts, reasons = [], []
    worst = lacking or bad or zero
    if lacking:
        called = bench.called()
        groups = cover(lacking, trained, "parameter")
        parts.append(f"{_names(groups)} {_get(groups)} no gradient")
        reasons.append(_why_none(lacking, called))
    if bad:
        groups = cover(bad, trained, "parameter")
        parts.append(f"{_names(groups)} {_get(groups)} a gradient with NaN or Inf")
        reasons.append("A log or a square root meets 0, a division meets 0, or float16 overflows; one step with it ends the training.")
    if zero:
        groups = cover(zero, trained, "parameter")
        parts.append(f"{_names(groups)} {_get(groups)} a gradient that is zero throughout")
        reasons.append("Zero for this batch: dead units, a weight of zero behind it, or a mask. It may be otherwise for another batch.")
    group = cover(worst, trained, "parameter")[0]
    fix = ""
    if lacking:
        fix = f"{group.code or 'model'}.requires_grad_(False)  # or use it in forward"
    elif bad:
        fix = "torch.autograd.set_detect_anomaly(True)  # the next backward() says where it came from"
    return record(
        "gradients", "failed" if lacking or bad else "unclear", "; ".join(parts), " ".join(reasons), fix, group.site,
        path=group.path, places=tuple(held.path for held in worst) if len(worst) > 1 else (), numbers=numbers,
    )  # fmt: skip


def _get(groups: Sequence[Group]) -> str:
    return "get" if len(groups) > 1 else groups[0].verb("gets", "get")


def _names(groups: Sequence[Group]) -> str:
    more = f" and {format.plural(len(groups) - 2, 'more place')}" if len(groups) > 2 else ""
    return " and ".join(group.words for group in groups[:2]) + more


def _why_none(lacking: Sequence[Held], called: set[int]) -> str:
    absent = [held for held in lacking if id(held.site.module) not in called]
    if len(absent) == len(lacking):
        return "Never called in this pass: registered, and not used in forward (or only its tensors, by a way that leads nowhere)."
    if not absent:
        return "Called in this pass, but what it gives does not reach the loss: detached, under no_grad, or not used."
    return f"{absent[0].path} is never called in this pass; what others give does not reach the loss."
