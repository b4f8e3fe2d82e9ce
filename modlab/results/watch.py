"""A model watched while it trains: a verdict and plots that move under the running cell."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from numbers import Real
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import ReferenceType, WeakSet, ref

import torch
from torch.nn import Module
from torch.optim import Optimizer

from modlab import format, wording
from modlab.errors import NotInitializedError, PathNotFoundError, QuestionError, Stopped, names_near
from modlab.inspection import checks, stores
from modlab.inspection.distributed import distribution_of, unwrapped
from modlab.inspection.index import ModuleIndex, Node
from modlab.inspection.optimizers import as_tuple, steppers
from modlab.records.finding import Finding
from modlab.records.fork import ForkRecord
from modlab.records.knobs import KnobRecord
from modlab.records.paths import as_known, spellings
from modlab.records.watch import Entry, WatchRecord, part
from modlab.results.alert import Alert
from modlab.results.knob import Knob
from modlab.results.live import ENDED, Output, Stage, WatchPage, after_each_cell, notebook, push, stage
from modlab.results.result import Result, missing
from modlab.results.verdict import Verdict
from modlab.results.worded import Worded
from modlab.running.guarded import failed, line_of, tell, tried
from modlab.running.optimizer_hooks import sweep
from modlab.version import __version__
from modlab.views.watch import headline
from modlab.watching.clues import KeptBatch
from modlab.watching.knobs import Knobs, moves_of
from modlab.watching.selection import Selection
from modlab.watching.watcher import Unseen, Watcher, end_others

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from modlab.results.diagnosis import Diagnosis
    from modlab.results.fork import Change, Fork
    from modlab.results.runs import Runs
    from modlab.results.sliced_fork import SlicedFork
    from modlab.results.widget import View

OnNaN = Literal["report", "hold", "stop"]
CODE = "modlab.watch(model, optimizer)"

LEAST = 1e-6
"""The smallest budget."""

FORKS = 8
"""Forks that are remembered."""


class Follower(Protocol):
    """Who is told of every watch."""

    def follow(self, watch: Watch) -> None:
        """It has begun, has something new, or has ended."""


followers: WeakSet[Follower] = WeakSet()
"""The labs."""

watches: WeakSet[Watch] = WeakSet()
"""Those that are open."""


def watch(
    model: Module,
    optimizer: Optimizer | Sequence[Optimizer] | None = None,
    *,
    budget: float = 0.02,
    on_nan: OnNaN = "report",
    inside: Literal["shadow"] | None = None,
    only: str | Sequence[str] | None = None,
    keep: Literal["", "good"] | None = "",
) -> Watch:
    """Watch a model while it trains: a verdict, and live plots of activations, gradients, weights and updates.

    Watching starts with the call; in a notebook the view appears below the cell. It ends with the ``with`` block, or with
    ``.close()``. Nothing is attached to the model, the loop needs no calls, and training stays identical bit for bit.

    Args:
        model: any module; it is held weakly, unless nothing else holds it, such as a ``ModuleDict`` created in the call.
        optimizer: one, or several (steps are counted by the first); without, the first one that holds one of the parameters.
        budget: the fraction of the loop's time that the watch may take; the first samples do not count.
        on_nan: "report" finds where a NaN first appeared if it can; "hold" keeps what that needs in every step; "stop" raises an error
            before the weights are spoilt. A model that talks to other ranks allows only "report", because they would wait.
        inside: "shadow" runs a compiled model once more, eagerly, to see its activations.
        only: what to watch, as one or several patterns of dotted names: ``only="blocks.*"``. ``*`` matches anything, and everything
            inside a matching module is watched too. What is left out costs nothing, and the view says so.
        keep: "good" keeps copies of model, optimizers and random generators at a few good steps, and the batches behind them, for `fork`
            and `try_fix`; the view says how much memory that takes (docs/fork.md). Nothing is kept without it.

    Returns:
        The `Watch`; a second one on the same model closes the first.

    Raises:
        NotAModuleError: `model` is something else.
        NotAnOptimizerError: `optimizer` is something else.
        NotInitializedError: its constructor did not call ``super().__init__()``.
        PathNotFoundError: `only` matches nothing in the model.

    >>> import torch
    >>> net = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with watch(net, optimizer) as w:
    ...     for step in range(3):
    ...         optimizer.zero_grad()
    ...         net(torch.ones(2)).square().sum().backward()
    ...         optimizer.step()
    >>> w.verdict.broken is None
    True
    """
    checks.require_module(model, "watch")
    if not stores.initialized(model):
        raise NotInitializedError(stores.uninitialized_message(model))
    optimizers = steppers(as_tuple(optimizer, "watch"))
    if not _is_share(budget):
        raise QuestionError(f"watch(budget=…) got {budget!r}, but takes a fraction of the loop's time: 0.02 is 2 %, 1 looks at every step.")
    if on_nan not in ("report", "hold", "stop"):
        raise QuestionError(f"watch(on_nan=…) got {on_nan!r}, but takes 'report', 'hold' or 'stop'.")
    if inside not in (None, "shadow"):
        raise QuestionError(f"watch(inside=…) got {inside!r}, but takes 'shadow' or nothing.")
    if not (keep is None or (isinstance(keep, str) and keep in ("", "good"))):
        said = f"watch(keep=…) got {format.cut(repr(keep), 80)}, but takes 'good' (for w.fork), or None."
        raise QuestionError(f'{said}\n  Write: modlab.watch(model, optimizer, keep="good")')
    _require_alone(model, on_nan, inside, keep or "")
    held = model if sys.getrefcount(model) <= _references(object()) else None
    patterns = _patterns(model, only)
    before = end_others(model)
    try:
        watcher = Watcher(model, [*optimizers], float(budget), on_nan, inside == "shadow", patterns, keep == "good")
        watcher.held = held
        made = Watch(watcher, before)
    except Exception as error:  # noqa: BLE001 - the training begins all the same
        unseen = Unseen(model, float(budget))
        failed(unseen, error)
        made = Watch._of(unseen.record)
        made._knobs = Knobs(unseen, lambda: [*optimizers], tell)
        made._knobs.detached = True
        return made
    try:
        made.open()
    except BaseException:
        try:
            made._close("interrupted")
        finally:  # a second interrupt may come before the first line of it; closing twice does nothing
            made._close("interrupted")
        raise
    return made


def _references(thing: object) -> int:
    """References to what is made in a call and handed to a function: one more where calls go by way of C, as once a compiler listens."""
    return sys.getrefcount(thing)


def _require_alone(model: Module, on_nan: str, inside: str | None, keep: str) -> None:
    """Refuse what one rank would do, and the others wait for."""
    asked = f"on_nan={on_nan!r}" if on_nan != "report" else f"inside={inside!r}" if inside else f"keep={keep!r}" if keep else ""
    spread = distribution_of(model if on_nan == "stop" else unwrapped(model)) if asked else None  # what DDP wraps runs alone, too
    if spread is not None and spread.communicates:
        does = "stops before a step" if on_nan == "stop" else "runs the model once more"
        raise QuestionError(
            f"watch({asked}) {does} on the rank where you ask for it, but a step of this model talks to other ranks "
            f"({', '.join(spread.kinds)} over {spread.world}), which would wait for it.\n"
            f"  Write: modlab.watch(model, optimizer). It reports a NaN and lets every rank go on; stop all ranks in the loop itself."
        )


def _patterns(model: Module, only: Any) -> tuple[str, ...]:
    """What `only` names, each of which fits something."""
    if only is None:
        return ()
    given = (only,) if isinstance(only, str) else tuple(only) if isinstance(only, (list, tuple)) else ()
    if not given or not all(isinstance(one, str) and one for one in given):
        raise QuestionError(f'watch(only=…) got {format.cut(repr(only), 80)}, but takes a dotted name or a list of them: only="blocks.*"')
    index = ModuleIndex(model, Node)
    known = [*(node.path for node, _ in index.found), *(one.path for one in index.tensors(index.found) if one.kind == "parameter")]
    given = tuple(next((way for way in spellings(one) if any(map(Selection((way,)).takes, known))), one) for one in given)
    for one in given:
        if not any(Selection((one,)).takes(path) for path in known):
            said = f"watch(only=…): {type(model).__name__} has no module or parameter that matches {one!r}."
            raise PathNotFoundError(f"{said}\n{names_near(one, known)}")
    return given


def _is_no_error(error: BaseException) -> bool:
    """Whether it only ends the loop: nobody reads on in a generator, or the program ends as it should (``sys.exit(0)``)."""
    return isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and error.code in (None, 0))


def _is_share(budget: object) -> bool:
    """Whether it is a number that a watch can keep to: with less than a millionth it would never look."""
    return type(budget) is not bool and isinstance(budget, Real) and LEAST <= float(budget) <= 1


class Watch(Result):
    """What a watch has seen so far, with all faces; while it runs, each is of this moment."""

    kind = "watch"

    def __init__(self, watcher: Watcher, before: int = 0) -> None:
        super().__init__(watcher.model)
        self._watcher: Watcher | None = watcher
        self._stage: Stage | None = None
        self._knobs: Knobs | None = watcher.knobs
        self._grad = True  # as it was when the block began
        self._final: WatchRecord | None = None
        self._kept: KeptBatch | None = None  # a batch and its loss
        self._unkept = ""  # why there is none
        self._alone: type | None = None  # of what the model was called with, if that was one argument
        self._optimizers: list[ReferenceType[Optimizer]] = []
        self._keeper = watcher.keeper
        self._forks: tuple[ForkRecord, ...] = ()
        self._refused = ""
        self._sliced: SlicedFork | None = None
        self._pages: list[WatchPage] = []  # views of it when it has ended
        self._output: Output | None = None  # where its picture at rest is
        if before:
            watcher.remarks.append("an earlier watch of this model was closed when this one started")

    # ---- as a context

    def open(self) -> None:
        """Begin to watch, and show it."""
        watcher = self._watcher
        assert watcher is not None
        watcher.snapshots.publish, watcher.ended = self._publish, self._settle
        watcher.begin()
        if watcher.closed:
            return
        trouble = tried(self._begin)
        if trouble:  # what cannot be shown is watched all the same
            self._stage = None
            watcher.say(f"nothing can be shown while it runs: {trouble}")
        watches.add(self)
        watcher.snapshots.tell(self._tell_followers)

    def _begin(self) -> None:
        self._stage = stage(self)
        self._stage.begin()
        after_each_cell(self._catch_up)

    def _catch_up(self) -> bool:
        """Show the last steps of a cell that has ended; whether there is a next cell to wait for."""
        watcher = self._watcher
        if watcher is None or watcher.closed:
            return False
        with watcher.lock:  # the loop may run in another thread
            watcher.snapshots.catch_up()
        return True

    def _publish(self) -> None:
        """There is something new."""
        self._let_knobs_follow()
        if self._stage is not None:
            self._stage.update()
        self._tell_followers()

    def _let_knobs_follow(self) -> None:
        for one in [*self._knobs.dials.values()] if self._knobs is not None else []:
            if isinstance(one, Knob):
                one.follow()

    def _tell_followers(self) -> None:
        for one in [*followers]:
            one.follow(self)

    def __enter__(self) -> Watch:
        self._grad = torch.is_grad_enabled()
        if not self.running and self.record.state != "failed":  # of a failure it was told
            tell("modlab: this watch has ended and sees no more steps. Start another: with modlab.watch(model, optimizer) as w:")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        """End it; a stop requested in the view is not an error."""
        try:
            if isinstance(error, Stopped):
                self._close("stopped")
            elif isinstance(error, KeyboardInterrupt):
                torch.set_grad_enabled(self._grad)  # it may have come while ours were switched off
                self._close("interrupted")
            else:
                self._close("ended", "" if error is None or _is_no_error(error) else line_of(error))
        except BaseException:  # one more interrupt
            self._close("interrupted")
            raise
        return isinstance(error, Stopped)

    def close(self) -> None:
        """End the watch: all hooks are removed, and the view shows the whole run. Closing twice does nothing."""
        try:
            self._close("ended")
        except BaseException:  # an interrupt
            self._close("ended")
            raise

    def _close(self, state: str, error: str = "") -> None:
        if self._watcher is not None:
            self._watcher.end(state, error)
        sweep()  # it may have been closed inside of a step

    def _settle(self) -> None:
        """Keep the record, let the rest go, and show the final view."""
        watches.discard(self)
        _ = self.record
        shown, self._stage = self._stage, None
        self._let_knobs_follow()
        if shown is not None:
            shown.end()
        if isinstance(shown, Output) and self._keeper is not None:
            self._output, self._pages = shown, [*shown.pages]
        self._tell_followers()

    # ---- what there is

    @property
    def running(self) -> bool:
        """Whether it still watches."""
        return self._watcher is not None and not self._watcher.closed

    def diagnose(self, *, batch: tuple[Any, Any] | None = None, loss: Callable[[Any, Any], Any] | None = None) -> Diagnosis:
        """Run the checks of `modlab.diagnose` on the model as it is now, with a batch and the loss that the watch kept.

        The watch keeps one of the batches that it looked at. The loss it reads from autograd's graph, and keeps it only if it gives the
        very value that the loop had. Of a loss that it cannot read, give the function and a batch: without them the model is not run, and
        the diagnosis has what the watch has seen and what can be read from the model, with a remark that says so.

        Args:
            batch: inputs and target, instead of those kept.
            loss: called as ``loss(output, target)``, instead of the one kept.

        Returns:
            The `Diagnosis`. The causes that the watch has seen are among its findings; where nothing else is found, so are the checks of
            its verdict that did not hold.

        Raises:
            GoneError: the model is gone, or the watch comes from a file.
            QuestionError: only one of batch and loss was given, and the other was not kept.
        """
        from modlab.causes.symptoms import Symptoms
        from modlab.results import diagnosis  # with what runs the model

        record, model = self.record, self._alive("w.diagnose()")
        batch = self._as_called(batch)
        kept = self._kept_batch()[0]
        if kept is None and (batch is None) is not (loss is None):
            raise QuestionError(
                "w.diagnose(): the watch kept no batch whose loss it could compute again, so it needs both from you.\n"
                "  Write: w.diagnose(batch=(inputs, target), loss=loss_function)"
            )
        if kept is not None:
            batch, loss = (kept.inputs, kept.target) if batch is None else batch, kept.loss if loss is None else loss
        optimizers = self._known_optimizers()
        seen = tuple(one for one in record.verdict.findings if wording.is_cause(one))
        unheld = tuple(one for one in record.verdict.checks if one.state == "broken")
        told = " ".join(self._sentence()) if self.verdict.exit_code in (1, 2) else ""
        return diagnosis.diagnosed(model, optimizers, batch, loss, seen, Symptoms(record), self, unheld, told)

    def _as_called(self, batch: Any) -> Any:
        """A batch whose inputs are one argument, if the loop gave the model its inputs so: several may fit its forward as well."""
        alone = self._watcher.clues.alone if self._watcher is not None else self._alone
        if alone not in (tuple, list, dict) or type(batch) not in (tuple, list) or len(batch) != 2 or type(batch[0]) is not alone:
            return batch
        return (batch[0],), batch[1]

    def _kept_batch(self) -> tuple[KeptBatch | None, str]:
        """A batch and its loss, or why there is none."""
        clues = self._watcher.clues if self._watcher is not None else None
        return (self._kept, self._unkept) if clues is None else (clues.kept, clues.unkept)

    @property
    def can_try(self) -> bool:
        """Whether weights or a batch were kept, to try fixes on."""
        return self._keeper is not None or self._kept_batch()[0] is not None

    def _known_optimizers(self) -> list[Any]:
        """Those that were given, and those that made steps with parameters of the model's; without those that were replaced."""
        if self._watcher is not None:
            return self._watcher.steps.at_work()
        return [one for one in (held() for held in self._optimizers) if one is not None]

    def log(self, **scalars: Any) -> None:
        """Add a point to a curve for each name, at the latest step.

        Args:
            scalars: numbers, or tensors with one element: ``w.log(loss=loss, accuracy=0.9)``.
        """
        if self._watcher is not None:
            self._watcher.log(scalars)

    def knob(self, name: str, low: float, high: float, *, log: bool = False, step: float | None = None, start: float | None = None) -> Knob:
        """Make a value that you move while the loop runs: by its slider in the live view, by keys, or by code.

        ``"lr"``, ``"momentum"`` and ``"weight_decay"`` are the optimizer's own: a move sets all parameter groups, which keep their ratios.
        Any other name is a value that your loop reads: ``p = w.knob("p", 0, 0.9)``, then ``p()``. A move holds from the next step on, and
        within one step no knob changes. A knob that is never moved changes nothing.

        Args:
            name: what it moves; each name once.
            low: the least value.
            high: the greatest value.
            log: let the slider go by factors, for a learning rate.
            step: the least difference between two values; ``w.knob("k", 1, 8, step=1)`` gives whole numbers.
            start: the first value; without it, the optimizer's value, or `low`.

        Returns:
            The `Knob`.

        Raises:
            QuestionError: the range is empty, the name is taken, no optimizer has the value, or the watch has ended.

        >>> import torch, modlab
        >>> net = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> with modlab.watch(net, optimizer) as w:
        ...     scale = w.knob("scale", 0, 2, start=1)
        ...     for step in range(3):
        ...         if step == 1:
        ...             scale.set(0.5)
        ...         optimizer.zero_grad()
        ...         (scale() * net(torch.ones(2))).square().sum().backward()
        ...         optimizer.step()
        >>> w.moves
        [{'step': 1, 'knob': 'scale', 'value': 0.5}]
        """
        knobs = self._knobs
        if knobs is None or (knobs.detached and self.record.state != "failed"):  # training goes on after a failure of ours
            raise QuestionError(
                f"w.knob({name!r}, …): this watch has ended, so there is no loop to steer.\n"
                f"  Make the knob in the block: with modlab.watch(model, optimizer) as w: lr = w.knob(…)"
            )
        knobs.require_new(name)
        made = Knob(knobs, name, low, high, log=log, step=step, start=start)
        knobs.add(made)
        if self._stage is not None:
            trouble = tried(self._stage.offer, made)
            if trouble:
                knobs.tell_once(f"the slider of {name} cannot be shown: {trouble}")
        return made

    @property
    def knobs(self) -> dict[str, KnobRecord]:
        """The knobs by name: range, ``.start``, ``.value`` and ``.moves``."""
        return {one.name: one for one in self.record.knobs}

    @property
    def moves(self) -> list[dict[str, Any]]:
        """All moves of all knobs, in order, as plain data for JSON: what `replay` takes."""
        from modlab.views.watch import columns

        return columns.of_moves(self.record)

    def replay(self, moves: Watch | Sequence[dict[str, Any]]) -> None:
        """Repeat the moves of a different run, each before the same step: the same loop then gives the same weights, bit for bit.

        Call it before the first step. Knobs with moves to repeat cannot be moved in any other way.

        Args:
            moves: a watch, or its `moves`, perhaps read from a JSON file.

        Raises:
            QuestionError: something in it is not a move, steps were made already, or the watch has ended.
        """
        found = moves_of(moves.moves if isinstance(moves, Watch) else moves)
        knobs = self._knobs
        if knobs is None or knobs.detached:
            raise QuestionError("w.replay(…): this watch has ended, so there is no loop to steer.")
        if knobs.steps:
            raise QuestionError(
                f"w.replay(…) came after {format.plural(knobs.steps, 'step')}: a run can be repeated only from its beginning.\n"
                f"  Write it before the loop."
            )
        knobs.replay(found)
        self._let_knobs_follow()

    @property
    def record(self) -> WatchRecord:
        """Everything seen so far."""
        watcher = self._watcher
        if self._final is not None or watcher is None:
            assert self._final is not None
            return self._final
        closed, record = watcher.closed, self._with_forks(watcher.record())
        if closed:  # first kept, then the rest is let go
            self._final, self._kept, self._unkept = record, watcher.clues.kept, watcher.clues.unkept
            self._alone = watcher.clues.alone
            self._optimizers = [ref(one) for one in watcher.steps.at_work()]
            self._watcher = None
        return record

    @property
    def verdict(self) -> Verdict:
        """The checks from data to a falling loss; ``.broken`` is the first that does not hold.

        ``.ok`` is True if training was seen and nothing is broken; ``.unseen`` names what could not be judged.
        """
        return Verdict.of(self.record.verdict, self)

    @property
    def findings(self) -> tuple[Worded, ...]:
        """What was found besides the checks, and what was not measured, as facts: ``.kind``, ``.path``, ``.facts``, ``.severity``."""
        return self.verdict.findings

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """What went wrong, in order; each has ``.path``, ``.kind``, ``.step`` and ``.text``.

        The alert of a NaN has the step in which it first appeared, run again, as its ``.trace``.
        """
        return tuple(Alert.of(one, self) for one in self.record.alerts)

    @property
    def history(self) -> dict[str, Any]:
        """All statistics as columns of equal length, one entry for each series in each stretch of steps (see `to_pandas`)."""
        from modlab.views.watch import columns

        return columns.of_history(self.record)

    @property
    def records(self) -> Sequence[Entry]:
        """The entries of the history as records."""
        return [Entry(*row) for row in zip(*(column.tolist() for column in self.history.values()), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: what the watch concluded, and everything it measured (schema 3).

        Returns:
            ``schema`` (3), ``kind`` ("watch") and ``headline``; ``run`` (model, optimizer, state, error, steps, samples); ``verdict``
            (``ok``, ``exit_code``, ``broken``, ``unseen``, ``checks``, ``findings``); ``alerts``; ``scalars`` by name, each with its curve
            as lists and its counts; ``knobs``, each with its moves; ``records``, the entries of the history.
        """
        from modlab.views.watch import columns

        record = self.record
        return {
            "schema": columns.SCHEMA,
            "kind": self.kind,
            "headline": self.headline,
            **columns.of_conclusion(record),
            "scalars": columns.of_scalars(record),
            "knobs": columns.of_knobs(record),
            "records": [self._row(one) for one in self.records],
        }

    def to_pandas(self) -> pandas.DataFrame:
        """The history as a table, with what was logged as rows of the role "scalar"; needs pandas.

        ``frame.attrs`` has the rest of `to_dict`: the headline, the run, the verdict and the alerts.
        """
        try:
            import pandas
        except ImportError as error:
            raise missing("pandas", "to_pandas()") from error
        from modlab.views.watch import columns

        record = self.record
        frame = pandas.DataFrame(columns.of_all(record))
        frame.attrs = {"schema": columns.SCHEMA, "kind": self.kind, "headline": self.headline, **columns.of_conclusion(record)}
        return frame

    def __getitem__(self, path: str) -> Watch:
        """The part of one module or parameter, with all faces: ``w["l1"]``, ``w["l1.weight"]``.

        Raises:
            PathNotFoundError: nothing of that name was measured.
        """
        record = self.record
        known = dict.fromkeys(one.path for one in record.history.series)
        path = as_known(str(path), known)
        if path not in known:
            raise PathNotFoundError(f"{record.title} has no measurements named {path!r}.\n{names_near(path, known)}")
        return self._of(part(record, path))

    def compare(self, other: Watch) -> Runs:
        """This run beside a second one: losses, alerts, and each layer at the end.

        Args:
            other: a second watch, of the same model or a different one.
        """
        if not isinstance(other, Watch):
            raise QuestionError(f"w.compare() got a {type(other).__name__}, but takes another watch: w.compare(other)")
        from modlab.results.runs import Runs  # its view of rows is loaded when two runs are compared

        return Runs(self.record, other.record, [*self.records, *other.records])

    def fork(self, step: int | None = None, change: Change = None, *, steps: int | None = None) -> Fork:
        """Run the training again from a kept state on, with a change, and show both losses; needs ``watch(..., keep="good")``.

        The last kept state at or before `step` is run to that step, then changed there, and run on with the batches that were kept. The
        training itself is untouched: model, optimizers, random generators. Works while the watch runs and after it. An unchanged twin runs
        along, and the result says whether it equals the original bit for bit. What a fork cannot repeat is in docs/fork.md.

        Args:
            step: where to fork; without it, the last kept state with steps behind it.
            change: called with a copy of the model and of the optimizer (a list of several), as its parameters are named: ``model``,
                ``optimizer``. Or settings by name: ``{"lr": 1e-3, "2.p": 0.5}``. None changes nothing.
                An optimizer that it returns takes the place of the fork's one.
            steps: how many to make; without it, as many as batches were kept for.

        Returns:
            The `Fork`.

        Raises:
            ForkError: nothing was kept, or nothing before that step.
            QuestionError: `change` or a number is none that can be used.

        >>> import torch, modlab
        >>> torch.manual_seed(0)  # doctest: +ELLIPSIS
        <torch._C.Generator object at ...>
        >>> net = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        >>> with modlab.watch(net, optimizer, keep="good") as w:
        ...     for step in range(40):
        ...         optimizer.zero_grad()
        ...         net(torch.randn(8, 2)).square().mean().backward()
        ...         optimizer.step()
        >>> fork = w.fork(10, {"lr": 0.2})
        >>> fork.exact, fork.outcome
        (True, 'better')
        """
        from modlab.results import fork  # most watches are never forked

        made = fork.of_keeper(self._keeper, self.record, step, change, steps)
        self._note_fork(made.record)
        return made

    @property
    def forks(self) -> tuple[Fork, ...]:
        """The forks that were made of it, in the view and by `fork`: the last ones (of many), in order. One may still run."""
        from modlab.results.fork import Fork

        return tuple(map(Fork, self.record.forks))

    def try_fix(self, finding: Finding, steps: int = 100) -> Fork:
        """Apply the fix of one of its findings to a fork, beside an unchanged one: `Worded.try_fix`."""
        from modlab.results import fork

        fork.require_finding(finding, "w")
        steps = fork.require_steps(steps)
        fork.require_surest(finding, self.record.verdict.findings, self._keeper is not None)
        if self._source is None:
            fork.require_fix(finding)
            raise fork.without_ground()
        if self._keeper is not None:
            return fork.of_watch(self._keeper, self.record, finding, steps)
        model = self._source()
        kept, why = self._kept_batch()
        if model is None:
            fork.require_fix(finding)
            raise fork.without("model", "watch", 'modlab.watch(model, optimizer, keep="good")')
        if kept is None:
            raise fork.without_batch(self.record.title, finding, model, why)
        seen = fork.seen_of(self.record, kept.modes)  # the present state, with the batch that is at hand
        return fork.of_batch(model, self._known_optimizers(), (kept.inputs, kept.target), kept.loss, finding, steps, seen)

    @classmethod
    def _of(cls, record: WatchRecord) -> Watch:
        made = cls.__new__(cls)
        super(Watch, made).__init__()
        made._watcher, made._stage, made._final, made._knobs, made._keeper = None, None, record, None, None
        made._kept, made._unkept, made._optimizers = None, "", []
        made._forks, made._refused, made._sliced, made._pages = record.forks, record.refused, None, []
        made._output = None
        return made

    # ---- faces

    def _sentence(self) -> tuple[str, str]:
        return headline.of_watch(self.record)

    def _text(self) -> str:
        from modlab.views.watch import text  # each face when it is looked at: most scripts see the verdict alone

        return text.of_watch(self.record)

    def _static(self) -> str:
        from modlab.views.watch import html

        return html.of_watch(self.record)

    def _fitting_payload(self) -> bytes:
        from modlab.views.watch import payload

        return payload.fitting(self.record, CODE, __version__)

    def _payload(self, *, live: bool = False, limit: int | None = None) -> bytes:
        from modlab.views.watch import payload

        can_fork = live and self.can_fork
        return payload.of_watch(self.record, CODE, __version__, live=live and (self.running or can_fork), limit=limit, can_fork=can_fork)

    def figure(self, which: str = "gradients", *, ax: Axes | None = None) -> Figure:
        """A figure for papers; needs matplotlib.

        Args:
            which: "gradients", "activations", "updates", "loss" or "units".
            ax: draw there instead of in a new figure.
        """
        from modlab.views.watch import figure

        return figure.of_watch(self.record, which, ax=ax)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled watch is what it has seen."""
        return {
            **super().__getstate__(),
            "_watcher": None,
            "_stage": None,
            "_knobs": None,
            "_kept": None,
            "_keeper": None,
            "_sliced": None,
            "_pages": [],
            "_output": None,
            "_optimizers": [],
            "_final": self.record,
        }

    # ---- what its live views need

    code = CODE

    @property
    def so_far(self) -> tuple[int, int]:
        """How many steps were made, and alerts found: told without a record, which takes milliseconds."""
        watcher = self._watcher
        return (self.record.steps, len(self.record.alerts)) if watcher is None else (watcher.step, watcher.alerts.count)

    def shape_of_slots(self) -> tuple[Any, ...]:
        """Equal as long as slots were only added at the end."""
        watcher = self._watcher
        return watcher.shape_of_slots() if watcher is not None and not watcher.closed else ()

    def ask(self, action: str, budget: Any = None) -> None:
        """What a button asks for: "pause", "resume", "step", "stop", or another budget."""
        if self._watcher is None or self._watcher.closed:
            raise QuestionError(ENDED)
        controls, model = self._watcher.controls, self._watcher.model
        if action in ("pause", "step", "stop") and model is not None and distribution_of(model).communicates:
            raise QuestionError(f"{action!r} would hold only this rank, and the others would wait for it in their next step")
        if action == "budget":
            if not _is_share(budget):
                raise QuestionError(f"budget {budget!r} is not a fraction: 0.02 is 2 %")
            controls.allow(float(budget))
        else:
            {"pause": controls.pause, "resume": controls.resume, "step": controls.advance, "stop": controls.end}[action]()

    def ask_fork(self, asked: Mapping[str, Any]) -> None:
        """What the page asks of a fork: "fork" begins one (``at``, ``lr``, ``setting``, ``value``), "cancel" ends the one that runs.

        "pin": keep the state at a step, for someone has chosen it in the form (``at``; None: the newest one, which stays anyway).
        "leave": nobody works in the picture at rest any more, which is then renewed.

        It is made in slices: between the steps of the training, while that is paused, or while the kernel runs no cell.

        Raises:
            QuestionError: a number is none that can be used, or a fork runs already.
            ForkError: nothing is kept there.
        """
        from modlab.results.fork import require_kept, require_step, unjudged
        from modlab.results.sliced_fork import SlicedFork, asked_change, make_when_idle

        running, action = self._sliced, asked.get("action")
        if action == "leave" and self._output is not None:
            self._output.renew()
        if action == "pin" and self._keeper is not None:
            self._keeper.pinned = asked.get("at")
        if action == "cancel" and running is not None:
            running.cancel()
        if action != "fork":
            return
        if running is not None and not running.over:
            raise QuestionError("A fork is still running: wait for it, or cancel it.")
        record = self.record
        keeper = require_kept(self._keeper, record)
        at = require_step(asked.get("at"), keeper, record.steps)
        change = asked_change(asked, {one.name for one in record.kept.settings} if record.kept is not None else ())
        self._note_refusal("")
        made = self._sliced = SlicedFork(keeper, record.title, at, change, self._fork_grew, unjudged(record))
        watcher = self._watcher
        if watcher is not None and not watcher.closed:
            watcher.controls.work_on(made.slice)
        if watcher is None or watcher.closed or notebook() is not None:
            make_when_idle(made, lambda: not self.running or keeper.recording.is_of_this_thread())

    def _fork_grew(self, fork: SlicedFork) -> None:
        """A fork that was asked for in the view has more to show, or has ended."""
        record = fork.record()
        if record is not None:
            self._note_fork(record, grows=True)
        if fork.over:
            self._note_refusal(fork.refused)
            fork.let_go()
        watcher = self._watcher
        if watcher is not None and not watcher.closed:
            watcher.snapshots.tell(watcher.snapshots.publish)
        else:
            push(self, self._pages)

    def _note_fork(self, record: ForkRecord, *, grows: bool = False) -> None:
        """One more; or what has become of the one that runs."""
        before = tuple(one for one in self._forks if not (grows and one.running))
        self._forks = (*before, record)[-FORKS:]
        self._renew()

    def _note_refusal(self, why: str) -> None:
        self._refused = why
        self._forks = tuple(one for one in self._forks if not one.running)  # nothing came of it
        self._renew()

    def _renew(self) -> None:
        if self._final is not None:
            self._final = self._with_forks(self._final)

    def _with_forks(self, record: WatchRecord) -> WatchRecord:
        return replace(record, forks=self._forks, refused=self._refused) if self._forks or self._refused or record.forks else record

    @property
    def can_fork(self) -> bool:
        """Whether there is a training at hand to fork."""
        return self._keeper is not None and bool(self._keeper.states)

    def widget(self) -> View:
        """The live view: it moves while the watch runs, and its buttons control the loop. Needs anywidget."""
        if self.running and isinstance(self._stage, Output):
            return self._stage.another()
        if self.can_fork:
            with suppress(ImportError):
                self._pages.append(WatchPage(self))
                return self._pages[-1].view
        return super().widget()
