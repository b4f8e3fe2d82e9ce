"""A trace while it runs: everything that listens to a model, opened and closed together.

Rules (DESIGN.md, section 5): nothing is put on a module but, for the length of the trace, a stand-in into the place of each
hook; no tensor is kept; what fails in modlab ends the recording and not the run.
"""

from __future__ import annotations

from dataclasses import replace

from torch.nn import Module

from modlab.instrumentation import reasons
from modlab.instrumentation.absence import uncalled
from modlab.instrumentation.backward import Backward
from modlab.instrumentation.folds import Folds
from modlab.instrumentation.functions import Functions
from modlab.instrumentation.gradients import Gradients
from modlab.instrumentation.hookruns import HookRuns
from modlab.instrumentation.modules import ModuleCalls
from modlab.instrumentation.operations import Operations
from modlab.instrumentation.postmortem import explain
from modlab.instrumentation.roster import Roster, runs
from modlab.instrumentation.sightings import Sightings
from modlab.instrumentation.stages import Stages
from modlab.instrumentation.steps import Steps
from modlab.instrumentation.tape import Tape, one_line
from modlab.instrumentation.taps import Taps
from modlab.records.trace import Reason, TraceRecord, Uncalled

_LISTED = 3


class Recorder:
    """Records what a model does in this thread, between `open` and `close`.

    Args:
        model: whose modules are followed; held until `close`.
        keep: patterns of paths, whose outputs are kept.
        values: whether values are measured.
        fold: whether equal calls are recorded once.
    """

    def __init__(self, model: Module, *, keep: tuple[str, ...] = (), values: bool = True, fold: bool = False) -> None:
        self.title, self.measured = type(model).__name__, values
        self.tape = tape = Tape()
        self.roster = Roster(model)
        sightings = Sightings(values, self.roster.names)
        folds = Folds(model) if fold else None
        self.backward = Backward(tape, self.roster, sightings)
        self.operations = Operations(tape, self.roster, sightings, self.backward, folds)
        self._functions = Functions(self.operations.run)
        self._gradients = Gradients(tape, sightings)
        self.modules = ModuleCalls(tape, self.roster, sightings, self._functions, self._gradients, folds, keep)
        self._steps = Steps(tape, self.roster, sightings, self._functions)
        self._stages = Stages(HookRuns(tape, self.roster, sightings, folds))
        self._taps = Taps(self.modules.enter, self.modules.leave)

    def open(self) -> None:
        """Begin to see."""
        compiled = self.roster.compiled()
        if compiled:
            self.tape.remark(
                f"{_listed(compiled)} compiled: what runs inside cannot be seen, and functions between modules are not shown, "
                "since to look at them would make torch compile anew"
            )
        self._stages.open(module for path, module in self.roster.modules.items() if not _inside(path, compiled))
        self._steps.open()
        self._taps.open()
        if not compiled:
            self._functions.resume()

    def close(self, error: BaseException | None = None) -> TraceRecord:
        """Stop, leave everything as it was, and let go of the model."""
        self._functions.close()
        self._taps.close()
        self._steps.close()
        self._stages.close()
        self._gradients.close()
        if self.tape.stack:
            self.tape.end(self.tape.stack[0], self.tape.now(), error)
        with self.tape.aside():
            self.backward.settle()
        record = self.record("" if error is None else one_line(error))
        return record if error is None else _explained(record, error)

    def record(self, error: str = "") -> TraceRecord:
        """What has happened so far."""
        absent: tuple[Uncalled, ...] = ()
        why: tuple[Reason, ...] = ()
        with self.tape.aside():
            absent, why = tuple(uncalled(self, error)), tuple(reasons.of_parameters(self))
        return TraceRecord(
            self.title,
            sum(map(runs, self.roster.modules.values())),
            self.tape.events(),
            absent,
            why,
            tuple(self.tape.remarks),
            error,
            self.measured,
            self.tape.lost,
        )


def _explained(record: TraceRecord, error: BaseException) -> TraceRecord:
    """With the reason for the exception, as far as it is known; nothing of the exception is kept."""
    found, _ = explain(error)
    if not found.family:
        return record
    return replace(record, explanation=found.sentence, fixes=tuple((fix.prose, fix.code) for fix in found.fixes))


def _listed(paths: list[str]) -> str:
    names = ", ".join(path or "the model" for path in paths[:_LISTED])
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return f"{names}{more} {'is' if len(paths) == 1 else 'are'}"


def _inside(path: str, outer: list[str]) -> bool:
    return any(path == one or one == "" or path.startswith(f"{one}.") for one in outer)
