"""Asserting that a model learns, for tests: ``assert_learns`` trains it under a watch, and its failure is the verdict."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from modlab.comparing.modes import require_ready
from modlab.compat import own_class
from modlab.diagnosing import batches
from modlab.errors import BatchError, ModlabError, QuestionError
from modlab.format import article, plural, rough
from modlab.inspection import checks
from modlab.inspection.distributed import distribution_of
from modlab.inspection.optimizers import as_tuple, step_all, steppers
from modlab.records.finding import Finding, Remedy
from modlab.records.watch import WatchRecord
from modlab.results.watch import Watch
from modlab.running.sandbox import on_loan
from modlab.views.watch import text
from modlab.watching.watcher import Watcher, end_others

CALL = "modlab.testing.assert_learns(model, optimizer, batch=(inputs, target), loss=nn.CrossEntropyLoss())"

NO_GRADIENT = (
    "its loss needs no gradient. No trained parameter takes part in it, or the graph was cut on the way.\n"
    "  Find the place: modlab.diagnose(model, optimizer, batch=(inputs, target), loss=loss)"
)
NO_PARAMETER = "it has no parameters."
ALL_FROZEN = "none of its {} requires a gradient.\n  Train them: model.requires_grad_()"

ENOUGH = 20
"""Steps with which it can be told whether a loss falls."""

BY_WATCH, IN_THE_LOOP = frozenset(("ask the batch", "ask a batch")), frozenset(("find the NaN", "log the loss"))
"""Remedies that need the watch, and those that need the loop: who reads the message has neither."""

Batch = tuple[Any, Any]
Batches = Batch | Iterable[Batch] | Callable[[int], Batch]


def assert_learns(
    model: Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    batch: Batches,
    loss: Callable[[Any, Any], Tensor],
    steps: int = 100,
    below: float | None = None,
    keep: bool = False,
) -> Watch:
    """Train a model for some steps under a watch that looks at each of them; fail if something is broken or the loss does not fall.

    Three things are asserted, and nothing else: `Watch.verdict` finds nothing broken (`exit_code` is not 1); its check "the loss falls"
    passed; and the loss ends below `below`, if that is given. What asks only for care does not fail, and stands in the result. The loss
    falls if its last tenth lies two standard errors of its own noise below its first tenth, or if clearly more pairs of its values fall
    than rise; by how much is not asked. With fewer than about ten steps that cannot be told, and so fails.

    The model, its gradients, the optimizer and all random generators are put back as they were, bit for bit, unless `keep` is True. The
    mode stays as given: a model in eval mode is trained in it. A watch of the same model that is open ends here.

    Args:
        model: an ``nn.Module``.
        optimizer: one, or several, which all step.
        batch: inputs and target, as in `modlab.diagnose`, used in every step; or an iterable of such pairs, such as a DataLoader, begun
            anew when it ends; or a function of the step that returns one. A tuple or list of two is always one batch.
        loss: called as ``loss(output, target)``; must return a tensor with one number.
        steps: how many to make.
        below: what the mean of the loss's last tenth must be less than.
        keep: leave the model trained.

    Returns:
        The `Watch`, which has ended.

    Raises:
        AssertionError: it does not learn; the message is the verdict: the headline, and what is not well, each with its place and its fix.
        NotAModuleError: `model` is not a module.
        NotAnOptimizerError: `optimizer` is not one.
        BatchError: `batch` or `loss` has a different form, the model or the loss raises an error that modlab can explain (its cause), or
            there were fewer batches than steps.
        LazyModelError: a parameter has no shape yet, and `keep` is False.
        QuestionError: `steps` or `below` is no such number; or the model lies in parts on several ranks and `keep` is False.

    >>> import torch
    >>> from torch import nn
    >>> net = nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> inputs = torch.randn(32, 4)
    >>> w = assert_learns(net, optimizer, batch=(inputs, inputs.sum(1, keepdim=True)), loss=nn.MSELoss())
    >>> w.verdict.ok
    True
    """
    checks.require_module(model, "testing.assert_learns", ", optimizer, batch=(inputs, target), loss=loss")
    optimizers = as_tuple(optimizer, "testing.assert_learns")
    steps = _as_steps(steps)
    _require_below(below)
    if not isinstance(keep, bool):
        raise QuestionError(f"assert_learns(keep=…) got {keep!r}, but takes True (leave the model trained) or False.")
    if not optimizers:
        raise BatchError(f"modlab.testing.assert_learns() got no optimizer to make the steps with.\n  Write: {CALL}")
    work = _Training(model, optimizers, _each(batch, loss, steps), loss, steps, one_batch=not _is_many(batch))
    if not keep:
        _require_whole(model)
        require_ready(model, "assert_learns")
    held = (*optimizers, *steppers(optimizers))
    try:
        watched = work.run() if keep else on_loan(work.run, *batches.roots(model, loss), optimizers=held, others=(batch, loss))
    except BatchError as error:
        raise error.with_traceback(None)  # noqa: B904 - it has its own cause; what lies between is ours
    _require_learnt(watched.record, work.trouble, below)
    return watched


class _NoGradientError(Exception):
    """A loss that no trained parameter takes part in."""


class _Training:
    """The loop that everybody writes, under a watch that shows nothing while it runs."""

    def __init__(
        self,
        model: Module,
        optimizers: tuple[Any, ...],
        source: Iterator[Batch],
        loss: Callable[[Any, Any], Tensor],
        steps: int,
        *,
        one_batch: bool,
    ) -> None:
        self.model, self.optimizers, self.source, self.loss, self.steps = model, optimizers, source, loss, steps
        self.one_batch = one_batch
        self.trouble = ""

    def run(self) -> Watch:
        end_others(self.model)
        watcher = Watcher(self.model, [*steppers(self.optimizers)], 1.0, one_batch=self.one_batch)
        watched = Watch(watcher)
        watcher.begin()
        with watched:
            for _, pair in zip(range(self.steps), self.source, strict=False):
                if self._step(*pair):
                    break
        return watched

    def _step(self, inputs: Any, target: Any) -> str:
        """One step with copies of the batch, which a model may change; why there can be no further one, or ""."""
        _require_samples(inputs)

        def closure() -> Tensor:
            for one in (self.model, *self.optimizers):  # an optimizer may hold none of its parameters
                one.zero_grad()
            with _explained(self.model):
                loss = self.loss(self._output(inputs, target), batches.copied(target))
            _require_number(loss)
            if not loss.requires_grad:
                raise _NoGradientError
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        try:
            step_all(self.optimizers, closure)
        except _NoGradientError:
            self.trouble = _why_no_gradient(self.model)
        return self.trouble

    def _output(self, inputs: Any, target: Any) -> Any:
        """What the model gives.

        Raises:
            BatchError: it cannot be called so, and inputs and target look like two batches.
        """
        try:
            return batches.call(self.model, batches.copied(inputs))
        except TypeError as error:
            if not self.one_batch or not _is_pair(inputs) or not _is_pair(target):
                raise
            raise BatchError(
                f"batch= got two pairs, which are one batch: the first is its inputs, the second its target. The model says: {error}.\n"
                f"  For two batches, pass a function: batch=lambda step: pairs[step % 2]"
            ) from error


def _why_no_gradient(model: Module) -> str:
    held = [*model.parameters()]
    if not held:
        return NO_PARAMETER
    return NO_GRADIENT if any(one.requires_grad for one in held) else ALL_FROZEN.format(plural(len(held), "parameter"))


@contextmanager
def _explained(model: Module) -> Iterator[None]:
    """Of an error of the forward pass or of the loss, why it came, where that is known; others are raised as they are.

    Raises:
        BatchError: of such an error, which is its cause.
    """
    try:
        yield
    except ModlabError:
        raise
    except Exception as error:
        from modlab.explaining.explain import explain  # slow to import, and most models run

        found, _ = explain(error)
        if not found.family:
            raise
        title = own_class(type(model)).__name__
        fix = "".join(f"\n  {' '.join(filter(None, (one.prose, one.code)))}" for one in found.fixes)
        raise BatchError(f"{title} makes no step with this batch and loss: {' '.join(filter(None, found.sentence))}{fix}") from error


def _each(batch: Any, loss: Any, steps: int) -> Iterator[Batch]:
    """A batch for each step.

    Raises:
        BatchError: of the call, when it is made; of a batch, at its step.
    """
    _require_call(loss, "loss", "called with output and target", 2, "loss=lambda output, target: …")
    if not _is_many(batch):
        if batch is None:
            raise BatchError(f"modlab.testing.assert_learns() got no batch= to train on.\n  Write: {CALL}")
        pair = batches.require(batch, loss, CALL)
        assert pair is not None
        return iter([pair] * steps)
    batches.require((None, None), loss, CALL)
    _require_call(batch, "batch", "called with the number of the step", 1, "batch=lambda step: (inputs, target)")
    return map(_pair, map(batch, range(steps)) if callable(batch) else _again(batch, steps))


def _is_many(batch: Any) -> bool:
    """Whether it gives batches, and is none itself."""
    return callable(batch) or (hasattr(batch, "__iter__") and not isinstance(batch, (Tensor, str, dict)) and not _is_one(batch))


def _is_one(batch: Any) -> bool:
    """Whether it is one batch, or was meant as one: several tensors."""
    return _is_pair(batch) or (isinstance(batch, (tuple, list)) and any(isinstance(part, Tensor) for part in batch))


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def _pair(batch: Any) -> Batch:
    if not _is_pair(batch):
        raise BatchError(f"batch= gave {batches.said(batch)}, but each batch must be a pair of inputs and target.\n  Write: {CALL}")
    return batch[0], batch[1]


def _again(source: Iterable[Any], steps: int) -> Iterator[Any]:
    """The batches of an iterable, which is begun anew when it ends.

    Raises:
        BatchError: it cannot be, and had fewer batches than there are steps.
    """
    given = 0
    while True:
        before = given
        for one in source:
            yield one
            given += 1
        if given == before:
            gave = f"{plural(given, 'batch', 'batches')}, and cannot be read again" if given else "no batch at all"
            raise BatchError(
                f"batch= gave {gave}, but steps={steps} needs one each.\n"
                f"  Pass a list, a DataLoader, or a function of the step, batch=lambda step: (inputs, target)."
            )


def _as_steps(steps: Any) -> int:
    """A number of steps, of whichever integer type."""
    try:
        made = 0 if isinstance(steps, bool) else operator.index(steps)
    except TypeError:
        made = 0
    if made < 1:
        raise QuestionError(f"assert_learns(steps=…) got {steps!r}, but takes a whole number of at least 1.")
    return made


def _require_below(below: Any) -> None:
    if below is not None and (type(below) is bool or not isinstance(below, Real) or not math.isfinite(below)):
        raise QuestionError(f"assert_learns(below=…) got {below!r}, but takes a number that the loss must end below.")


def _require_call(function: Any, name: str, how: str, count: int, example: str) -> None:
    """Refuse a function that does not take as many arguments."""
    if not callable(function) or isinstance(function, type):
        return
    try:
        known = inspect.signature(function)
    except (TypeError, ValueError):  # of some that are built in, nobody knows
        return
    try:
        known.bind(*[None] * count)
    except TypeError:
        takes = ", ".join(known.parameters) or "nothing"
        raise BatchError(f"{name}= got a function that takes {takes}, but it is {how}.\n  Write: {example}") from None


def _require_samples(inputs: Any) -> None:
    """Refuse a batch of nothing: its loss is NaN."""
    found = [*batches.tensors(inputs)]
    if found and not any(one.numel() for one in found):
        said = f"batch= gave inputs of shape {tuple(found[0].shape)}, which hold no sample, but a step needs at least one."
        raise BatchError(f"{said}\n  Write: {CALL}")


def _require_whole(model: Module) -> None:
    """What lies in parts on several ranks is not put back."""
    spread = distribution_of(model)
    if spread.sharded and spread.world > 1:
        raise QuestionError(
            f"assert_learns() puts a model back as it was, but not one that lies in parts on several ranks ({', '.join(spread.kinds)}).\n"
            f"  Add keep=True, and call it on every rank; or test the model before it is sharded."
        )


def _require_number(loss: Any) -> None:
    if isinstance(loss, float):
        raise BatchError(
            "loss= returned a float, but must return a tensor with one number, with its graph.\n  Leave .item() and float() out of it."
        )
    if not isinstance(loss, Tensor):
        raise BatchError(f"loss= returned {article(type(loss).__name__)}, but must return a tensor with one number.\n  Write: {CALL}")
    if loss.numel() != 1:
        raise BatchError(
            f"loss= returned a tensor of shape {tuple(loss.shape)}, but must return one number.\n"
            f"  Average it: loss=lambda output, target: loss(output, target).mean()"
        )


def _require_learnt(record: WatchRecord, trouble: str, below: float | None) -> None:
    """Raise an AssertionError unless what was asked for holds."""
    if trouble:
        raise AssertionError(f"{record.title} cannot learn: {trouble}")
    said = _failure(record, below)
    if said:
        raise AssertionError(f"{said}\n{text.of_trouble(_for_a_test(record))}")


def _failure(record: WatchRecord, below: float | None) -> str:
    """What does not hold of what was asked for; "" if all does."""
    falls = next((check for check in record.verdict.checks if check.name == "the loss falls"), None)
    state = "not seen" if falls is None else falls.state
    last = math.nan if falls is None else float(falls.facts.get("last", math.nan))  # type: ignore[arg-type]
    is_broken, steps = record.verdict.exit_code == 1, plural(record.steps, "step")
    if falls is not None and falls.kind == "low already" and not is_broken:
        began = rough(float(falls.facts["first"]))  # type: ignore[arg-type]
        return f"{record.title} does not learn any more: its loss began at {began}, less than a tenth of what a constant answer gives."
    if state == "passed" and is_broken:
        return f"{record.title} learns, but something is broken, as {steps} showed."
    if state == "not seen" and not is_broken:
        more = f"\n  Make more of them: steps={ENOUGH}" if record.steps < ENOUGH else ""
        return f"{steps} of {record.title} {'does' if record.steps == 1 else 'do'} not tell whether it learns.{more}"
    if state == "not seen":
        return f"Something in {record.title} is broken, as {steps} showed; whether it learns, they do not tell."
    if state != "passed":
        return f"{record.title} does not learn, as {steps} showed."
    if below is not None and not last < below:
        return f"The loss of {record.title} ends at {rough(last)}, not below {rough(below)}."
    return ""


_IN_A_TEST = {"loss not told": {"in a test": True}}
"""Facts of a check that offers what needs the loop."""


def _for_a_test(record: WatchRecord) -> WatchRecord:
    """The same with remedies that can be followed without the watch."""
    verdict = record.verdict
    checks = tuple(replace(one, fixes=_followed(one), facts={**one.facts, **_IN_A_TEST.get(one.kind, {})}) for one in verdict.checks)
    findings = tuple(replace(one, fixes=_followed(one)) for one in verdict.findings)
    alerts = tuple(replace(one, fixes=_followed(one)) for one in record.alerts)
    return replace(record, verdict=replace(verdict, checks=checks, findings=findings), alerts=alerts)


def _followed(finding: Finding) -> tuple[Remedy, ...]:
    return tuple(Remedy("ask without a watch") if one.kind in BY_WATCH else one for one in finding.fixes if one.kind not in IN_THE_LOOP)
