"""The series of classic checks that run the model: everything is restored afterwards, even if a check fails."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab.compat import without_torch_function
from modlab.diagnosing import (
    backward_hooks,
    batch_leakage,
    batches,
    causality,
    collapse,
    duplicates,
    embeddings,
    gradcheck,
    gradient_flow,
    graph_leaves,
    initial_loss,
    input_scale,
    layers_in_training,
    loss_results,
    order,
    overfit_one_batch,
    padding,
    recurrence,
    repeated_passes,
    right_answer,
    short_training,
    softmax_dimension,
    symmetry,
    target_alignment,
    traced_pass,
    trials,
)
from modlab.diagnosing.loss_arguments import A_PASS, Comparisons
from modlab.diagnosing.outcomes import NotRunError, not_run, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.distributed import distribution_of
from modlab.inspection.findings.layer_families import BATCH_NORMS
from modlab.inspection.findings.subject import Subject
from modlab.records.finding import ExperimentRecord, Fact, Finding, Remedy
from modlab.running.guarded import steady_line, without_addresses
from modlab.running.listener import Listener
from modlab.statistics.memory import is_there
from modlab.watching.last_step import unseen

CHECKS: dict[str, Callable[[Bench], ExperimentRecord]] = {
    "gradients": gradient_flow.gradients,
    "leak": batch_leakage.leak,
    "first loss": initial_loss.first_loss,
    "repeat": repeated_passes.repeat,
    "round trip": duplicates.round_trip,
    "overfit": overfit_one_batch.overfit,
}

FURTHER: dict[str, Callable[[Bench], ExperimentRecord]] = {
    "hooks": backward_hooks.hooks,
    "gradcheck": gradcheck.gradcheck,
    "causality": causality.causality,
    "recurrence": recurrence.recurrence,
    "embeddings": embeddings.embeddings,
    "padding": padding.padding,
    "order": order.order,
    "inputs": input_scale.inputs,
    "targets": target_alignment.targets,
    "aim": right_answer.aim,
    "softmax": softmax_dimension.softmax,
    "modes": layers_in_training.modes,
    "symmetry": symmetry.symmetry,
    "collapse": collapse.collapse,
    "told": collapse.told,
}
"""Checks that are listed only where they can be made: not every model reads a sequence."""


class Results(NamedTuple):
    """The results of all checks."""

    experiments: tuple[ExperimentRecord, ...]
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    idle: frozenset[str] = frozenset()
    """Paths of what is hidden and learns nothing from this loss."""


def run(subject: Subject, inputs: Any, target: Any, loss: Any) -> Results:
    """Run all checks one after the other, each on the model as it is now; a watch that is open sees nothing of it."""
    with unseen():
        return _run(subject, inputs, target, loss)


def _run(subject: Subject, inputs: Any, target: Any, loss: Any) -> Results:
    bench = Bench(subject, inputs, target, loss)
    reason = _unfit(subject, bench.model)
    if reason is not None:
        return Results(tuple(not_run(name, reason) for name in CHECKS))
    first = _first_pass(bench)
    found: list[ExperimentRecord] = []
    for name, check in CHECKS.items():
        if first.why is not None and name in first.skipped:
            found.append(not_run(name, first.why))
        elif name == "round trip" and (found[-1].outcome == "failed" or found[-1].kind == "drawn"):
            found.append(not_run(name, NotRunError("differs as it is")))
        else:
            found.append(_made(bench, name, check))
    if first.why is None and _all_there(bench):
        found += filter(None, (_further(bench, check) for check in FURTHER.values()))
    idle = frozenset() if first.why is not None else _idle(bench)
    return Results(tuple(found), first.findings, (*first.notes, *_notes(bench)), idle)


def _idle(bench: Bench) -> frozenset[str]:
    """Where unregistered modules hang that are called and get no gradient: others are put into their weights' places, or they teach."""
    hidden = trials.hidden_modules(bench.subject)
    if not hidden:
        return frozenset()
    called = set[int]()
    try:
        value = Listener(lambda module, _: called.add(id(module))).during(bench.kept, lambda: bench.value(bench.output()))
    except Exception:  # noqa: BLE001 - the user's model may raise anything
        return frozenset()
    asked = graph_leaves.leaves(value) if issubclass(type(value), Tensor) and value.requires_grad else None
    if asked is None:
        return frozenset()
    learn = {path for path, module in hidden if any(id(tensor) in asked for tensor in module.parameters())}
    return frozenset(path for path, module in hidden if any(id(one) in called for one in module.modules())) - learn


def causes_of(subject: Subject, optimizers: Sequence[Any], inputs: Any, target: Any, loss: Any) -> tuple[Finding, ...]:
    """Why it will not learn, as a short training of a copy shows."""
    bench = Bench(subject, inputs, target, loss)
    if _unfit(subject, bench.model) is not None or not _all_there(bench):
        return ()
    return short_training.short_training(bench, optimizers)


def _notes(bench: Bench) -> tuple[Finding, ...]:
    """What to say about this batch."""
    first = next((tensor for tensor in batches.tensors(bench.inputs) if tensor.dim()), None)
    norm = next((site for site in bench.subject.sites if issubclass(type(site.module), BATCH_NORMS) and site.training), None)
    if first is None or norm is None or first.shape[0] != 1:
        return ()
    facts: dict[str, Fact] = {"class": norm.type, "inside": norm.type}
    return (norm.finding("batch of one", "note", Remedy(code="DataLoader(..., drop_last=True)"), path=norm.path, **facts),)


def _unfit(subject: Subject, model: Module) -> NotRunError | None:
    """Why the model cannot run at all; None if it can."""
    spread = distribution_of(model)
    if spread.communicates:
        return NotRunError("communicates", kinds=tuple(spread.kinds), world=spread.world)
    if any(is_lazy(held.tensor) for held in subject.tensors):
        return NotRunError("lazy parameters")
    with without_torch_function():
        if any(held.tensor.is_meta or type(held.tensor).__name__ == "FakeTensor" for held in subject.tensors):
            return NotRunError("meta tensors")
    return None


def _made(bench: Bench, name: str, check: Callable[[Bench], ExperimentRecord]) -> ExperimentRecord:
    try:
        return bench.kept(lambda: check(bench))
    except NotRunError as reason:
        return not_run(name, reason)
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
        if type(error) is RuntimeError and _REENTRANT in str(error):
            return not_run(name, NotRunError("reentrant checkpoint"))
        site = bench.where(error)
        at = site.label if site is not None and site.path else ""
        return record(name, "failed", "stops", site=site, at=at, error=steady_line(error))


def _all_there(bench: Bench) -> bool:
    """Whether all tensors of the model and of the batch have their memory: further checks read them without asking again."""
    given = [*batches.tensors((bench.inputs, bench.target)), *(held.tensor for held in bench.subject.tensors)]
    return all(map(is_there, given))


def _further(bench: Bench, check: Callable[[Bench], ExperimentRecord]) -> ExperimentRecord | None:
    """The same of a check that is left out where it cannot be made."""
    try:
        return bench.kept(lambda: check(bench))
    except Exception:  # noqa: BLE001 - the user's model may raise anything for inputs that were changed here
        return None


class FirstPass(NamedTuple):
    """What one pass with its loss showed, which checks cannot run after it, and why."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    skipped: frozenset[str] = frozenset()
    why: NotRunError | None = None


_ALL = frozenset(CHECKS)
_REENTRANT = "torch.utils.checkpoint is incompatible with .grad()"  # from torch's message; training does not run into this
_OF_THE_LOSS = frozenset({"gradients", "first loss", "overfit"})
UNFIT = "inputs do not fit"
SAID = 3  # warnings
_PLACE = " (Triggered internally at "  # followed by a line of torch's own sources
_BROADCAST = "Using a target size"  # the start of torch's warning about it


def _first_pass(bench: Bench) -> FirstPass:
    """What already goes wrong in one pass."""
    stage, output = "forward", None
    said: list[tuple[str, str]] = []

    def first() -> tuple[Finding | None, Comparisons, Finding | None]:
        nonlocal stage, output
        with _listening("the forward pass", said):
            output = bench.output()
        stage = "loss"
        target = batches.copied(bench.target)
        comparisons = Comparisons([*batches.tensors(output)], [*batches.tensors(target)])
        with _listening("the loss", said), comparisons:
            value = bench.loss(output, target)
        odd = loss_results.not_one_number(value)
        return odd, comparisons, None if odd is not None else _not_a_number(bench, output, value)

    try:
        odd, comparisons, broken = bench.kept(first)
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
        failed = _failed(bench, error, stage, output)
        unfit = failed.kind == UNFIT
        why = NotRunError(UNFIT) if unfit else NotRunError("pass fails", stage="forward pass" if stage == "forward" else "loss")
        return FirstPass((failed,), _warnings(said, ()), _ALL, why)
    notes = _warnings(said, comparisons.found)
    if odd is not None:
        return FirstPass((odd,), notes, _ALL, NotRunError("pass fails", stage="loss"))
    if broken is None:
        return FirstPass((*comparisons.found,), notes)
    why = NotRunError("not a number", output=broken.facts["output"], number=broken.kind)
    return FirstPass((broken, *comparisons.found), notes, _ALL if broken.facts["output"] else _OF_THE_LOSS, why)


@contextmanager
def _listening(subject: str, said: list[tuple[str, str]]) -> Iterator[None]:
    """Record all warnings, including those that torch shows only once per process."""
    always = torch.is_warn_always_enabled()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.set_warn_always(True)
        try:
            yield
        finally:
            torch.set_warn_always(always)
            said += [(subject, str(one.message)) for one in caught]


def _warnings(said: list[tuple[str, str]], found: tuple[Finding, ...] | list[Finding]) -> tuple[Finding, ...]:
    """A note for each warning, except a broadcast that is already a finding."""
    messages = dict.fromkeys(
        (stage, without_addresses(all_of_it).strip().partition("\n")[0].partition(_PLACE)[0]) for stage, all_of_it in said
    )
    new = [(stage, message) for stage, message in messages if message and not (found and message.startswith(_BROADCAST))]
    return tuple(Finding("warning", facts={"by": stage, "message": message}, evidence=(A_PASS,)) for stage, message in new[:SAID])


def _not_a_number(bench: Bench, output: Any, value: Any) -> Finding | None:
    """An output with NaN, or a loss that is NaN or infinite, and what produced it; None if all are finite."""
    of_output = any(bool(tensor.isnan().any()) for tensor in batches.tensors(output) if _has_nan(tensor))
    lost = issubclass(type(value), Tensor) and value.numel() == 1 and is_there(value) and not math.isfinite(float(value.detach()))
    if not of_output and not lost:
        return None
    word = "NaN" if of_output or math.isnan(float(value.detach())) else "infinite"
    path, maker, where = traced_pass.first_nan(bench) if word == "NaN" else traced_pass.last_infinity(bench)
    batch = any(bool(tensor.isnan().any()) for tensor in batches.tensors(bench.inputs) if _has_nan(tensor))
    facts: dict[str, Fact] = {"output": of_output, "infinite": word == "infinite", "maker": maker, "where": where, "batch": batch}
    inside = [held for held in bench.subject.parameters if maker and (not path or f"{held.site.path}.".startswith(f"{path}."))]
    weights = [held.tensor for held in inside if _has_nan(held.tensor)]
    spoilt = word == "NaN" and any(bool(tensor.isnan().any()) for tensor in weights)
    facts |= {"weights": True} if spoilt else {}
    left_out = None if of_output or word != "NaN" else loss_results.ignored(bench.loss, bench.target)
    if left_out is not None:
        facts |= {"ignored": left_out, "targets": int(bench.target.numel())}
        return Finding(word, path, facts, "broken", None, (A_PASS,), (Remedy("nothing is asked"),))
    return Finding(word, path, facts, "broken", None, (A_PASS,), (Remedy("look at the ranges"),) if (maker and not spoilt) or batch else ())


def _has_nan(tensor: Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_nested and tensor.layout is torch.strided


def _not_callable(bench: Bench, error: Exception, wanted: tuple[str, ...]) -> Finding:
    """The inputs are not what forward takes, however they are passed: that says nothing of the model."""
    names = tuple(bench.inputs) if issubclass(type(bench.inputs), Mapping) and batches.is_several(bench.inputs) else ()
    several = len(bench.inputs) if batches.is_several(bench.inputs) else 0
    facts: dict[str, Fact] = {"names": names, "several": several, "wanted": wanted, "error": steady_line(error)}
    return Finding(UNFIT, "", facts, "careful", None, (A_PASS,), (Remedy("as forward takes them"),))


def _failed(bench: Bench, error: Exception, stage: str, output: Any) -> Finding:
    """The forward pass or the loss raises: where, what, and, if known, why."""
    from modlab.explaining.explain import explain  # slow to import, and most models run

    site = bench.where(error) if stage == "forward" else None
    found, _ = explain(error)
    known = " ".join(found.sentence) if found.family else ""
    wanted = batches.wanted(bench.model, bench.inputs) if stage == "forward" and isinstance(error, TypeError) else None
    if wanted is not None and (site is None or not site.path):
        return _not_callable(bench, error, wanted)
    meant = loss_results.other_call(error, output, bench.target) if stage == "loss" else None
    known_fixes = [Remedy(code=fix.code, advice=without_addresses(fix.prose)) for fix in found.fixes[:1] if known]
    fixes = tuple(known_fixes) if meant is None else (meant,)
    alone = "Expected more than 1 value per channel" in str(error)
    facts: dict[str, Fact] = {"stage": stage, "error": steady_line(error), "explained": without_addresses(known), "alone": alone}
    facts["class"] = site.type if site is not None and site.path else ""
    return Finding(f"{stage} fails", site.path if site is not None else "", facts, "broken", None, (A_PASS,), fixes)
