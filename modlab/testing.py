"""Asserting that a model learns, for tests: ``assert_learns`` trains it under a watch, and its failure is the verdict."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from modlab.comparing.modes import require_ready
from modlab.diagnosing import batches
from modlab.errors import BatchError, QuestionError
from modlab.format import article, plural, rough
from modlab.inspection import checks
from modlab.inspection.distributed import distribution_of
from modlab.inspection.optimizers import as_tuple, steppers
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
    mode stays as given: a model in eval mode is trained in it.

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
        BatchError: `batch` or `loss` has a different form, or there were fewer batches than steps.
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
    checks.require_module(model, "testing.assert_learns")
    optimizers = as_tuple(optimizer, "testing.assert_learns")
    _require_numbers(steps, below)
    if not optimizers:
        raise BatchError(f"modlab.testing.assert_learns() got no optimizer to make the steps with.\n  Write: {CALL}")
    work = _Training(model, optimizers, _each(batch, loss, steps), loss, steps, one_batch=not _is_many(batch))
    if keep:
        watched = work.run()
    else:
        _require_whole(model)
        require_ready(model, "assert_learns")
        watched = on_loan(work.run, *batches.roots(model, loss), optimizers=(*optimizers, *steppers(optimizers)))
    _require_learnt(watched.record, work.trouble, below)
    return watched


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

        def closure() -> Tensor:
            for one in self.optimizers:
                one.zero_grad()
            loss = self.loss(batches.call(self.model, batches.copied(inputs)), batches.copied(target))
            _require_number(loss)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            else:
                self.trouble = NO_GRADIENT
            return loss

        asking = [one for one in self.optimizers if _wants_closure(one)]
        if not asking:
            closure()
        for one in self.optimizers if not self.trouble else ():
            one.step(closure) if one in asking else one.step()
        return self.trouble


def _wants_closure(optimizer: Any) -> bool:
    """Whether it evaluates the loss itself, as LBFGS does."""
    asked = inspect.signature(optimizer.step).parameters.get("closure")
    return asked is not None and asked.default is inspect.Parameter.empty


def _each(batch: Any, loss: Any, steps: int) -> Iterator[Batch]:
    """A batch for each step.

    Raises:
        BatchError: of the call, when it is made; of a batch, at its step.
    """
    if not _is_many(batch):
        if batch is None:
            raise BatchError(f"modlab.testing.assert_learns() got no batch= to train on.\n  Write: {CALL}")
        pair = batches.require(batch, loss, CALL)
        assert pair is not None
        return iter([pair] * steps)
    batches.require((None, None), loss, CALL)
    return map(_pair, map(batch, range(steps)) if callable(batch) else _again(batch, steps))


def _is_many(batch: Any) -> bool:
    """Whether it gives batches, and is none itself."""
    return callable(batch) or (hasattr(batch, "__iter__") and not isinstance(batch, (Tensor, str, dict)) and not _is_pair(batch))


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def _pair(batch: Any) -> Batch:
    if not _is_pair(batch):
        raise BatchError(
            f"batch= gave {article(type(batch).__name__)}, but each batch must be a pair of inputs and target.\n  Write: {CALL}"
        )
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
            raise BatchError(
                f"batch= gave {plural(given, 'batch', 'batches')}, but steps={steps} needs one each, and it cannot be read again.\n"
                f"  Pass a list, a DataLoader, or a function of the step, batch=lambda step: (inputs, target)."
            )


def _require_numbers(steps: Any, below: Any) -> None:
    if type(steps) is not int or steps < 1:
        raise QuestionError(f"assert_learns(steps=…) got {steps!r}, but takes a whole number of at least 1.")
    if below is not None and (type(below) not in (int, float) or not math.isfinite(below)):
        raise QuestionError(f"assert_learns(below=…) got {below!r}, but takes a number that the loss must end below.")


def _require_whole(model: Module) -> None:
    """What lies in parts on several ranks is not put back."""
    spread = distribution_of(model)
    if spread.sharded and spread.world > 1:
        raise QuestionError(
            f"assert_learns() puts a model back as it was, but not one that lies in parts on several ranks ({', '.join(spread.kinds)}).\n"
            f"  Add keep=True, and call it on every rank; or test the model before it is sharded."
        )


def _require_number(loss: Any) -> None:
    if not isinstance(loss, Tensor):
        raise BatchError(f"loss= returned {article(type(loss).__name__)}, but must return a tensor with one number.\n  Write: {CALL}")
    if loss.numel() != 1:
        raise BatchError(
            f"loss= returned a tensor of shape {tuple(loss.shape)}, but must return one number.\n"
            f"  Average it: loss=lambda output, target: loss(output, target).mean()"
        )


def _require_learnt(record: WatchRecord, trouble: str, below: float | None) -> None:
    """Raise an AssertionError unless what was asked for holds."""
    falls = next((check for check in record.verdict.checks if check.name == "the loss falls"), None)
    last = math.nan if falls is None else float(falls.facts.get("last", math.nan))  # type: ignore[arg-type]
    said, steps = "", plural(record.steps, "step")
    if trouble:
        raise AssertionError(f"{record.title} cannot learn: {trouble}")
    if record.verdict.exit_code != 1 and (falls is None or falls.state == "not seen"):
        said = f"{steps} of {record.title} do not tell whether it learns."
    elif record.verdict.exit_code == 1 or falls is None or falls.state != "passed":
        said = f"{record.title} does not learn, as {steps} showed."
    elif below is not None and not last < below:
        said = f"The loss of {record.title} ends at {rough(last)}, not below {rough(below)}."
    if said:
        raise AssertionError(f"{said}\n{text.of_trouble(record)}")
