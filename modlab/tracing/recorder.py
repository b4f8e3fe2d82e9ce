"""A trace while it runs: everything that listens to a model, opened and closed together.

Rules (docs/architecture.md): nothing is put on a module but, for the length of the trace, a stand-in into the place of each
hook; no tensor is kept; what fails in modlab ends the recording and not the run.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TypeVar

from torch.nn import Module

from modlab.compat import own_class, without_torch_function
from modlab.inspection.distributed import distribution_of, remarks_of
from modlab.records.trace import TraceRecord, Uncalled
from modlab.running import compile_warning
from modlab.running.guarded import afterwards, surely
from modlab.running.listener import Listener
from modlab.tracing import evidence, reasons
from modlab.tracing.backward import Backward
from modlab.tracing.caught_exceptions import in_vain, rescues
from modlab.tracing.class_facts import ClassKinds
from modlab.tracing.event_log import EventLog, one_line
from modlab.tracing.folded_calls import FoldedCalls
from modlab.tracing.gradients import Gradients
from modlab.tracing.hook_calls import HookCalls
from modlab.tracing.hook_wrappers import HookWrappers
from modlab.tracing.module_calls import ModuleCalls
from modlab.tracing.not_called import hidden, uncalled
from modlab.tracing.operations import Operations
from modlab.tracing.optimizer_steps import OptimizerSteps
from modlab.tracing.parameter_uses import ParameterUses
from modlab.tracing.pending_events import PendingEvents
from modlab.tracing.tensor_hook_wrappers import TensorHookWrappers
from modlab.tracing.tensor_ids import TensorIds
from modlab.tracing.trace_index import TraceIndex
from modlab.tracing.wrapper_code import WrapperCode

T = TypeVar("T")

_LISTED = 3


class Recorder:
    """Records what a model does in this thread, between `open` and `close`.

    Args:
        model: whose modules are followed; held until `close`.
        keep: patterns of paths, whose outputs are kept.
        values: whether values are measured.
        fold: whether equal calls are recorded once.
        follow: whether the gradients of outputs are waited for: not where the trace ends before a backward pass can begin.
        steps: whether steps of optimizers are seen: not inside of one, where torch goes through the hooks that this would add to.
    """

    def __init__(
        self,
        model: Module,
        *,
        keep: tuple[str, ...] = (),
        values: bool = True,
        fold: bool = False,
        follow: bool = True,
        steps: bool = True,
    ) -> None:
        self.title, self.measured = own_class(type(model)).__name__, values
        self.log = log = EventLog()
        with without_torch_function():
            self.index = TraceIndex(model)
            self.tensor_ids = tensor_ids = TensorIds(values, self.index.names)
            self.folded = FoldedCalls(model) if fold else None
            self.backward = Backward(self.index, tensor_ids)
        self.uses, self.kinds = ParameterUses(self.index), ClassKinds()
        machinery = WrapperCode(log)
        runs = HookCalls(log, self.index, tensor_ids, self.folded, self.backward, self.uses, machinery)
        self._stages, self._tensors = HookWrappers(runs), TensorHookWrappers(log, self.index, tensor_ids, runs)
        self.operations = Operations(log, self.index, tensor_ids, self.uses, self.backward, self.folded, self._tensors, machinery)
        functions = self.operations.mode
        self._gradients = Gradients(log, self.index, tensor_ids, self.backward)
        self._follow = follow
        self.modules = ModuleCalls(
            log,
            self.index,
            tensor_ids,
            functions,
            self._gradients,
            self.uses,
            self.kinds,
            self.folded,
            keep,
            follow,
            self.operations.direct,
            self._tensors,
        )
        self._steps = OptimizerSteps(log, self.index, tensor_ids, functions) if steps else None
        self._listener = Listener(self.modules.enter, self.modules.leave, log.here, self.modules.away)
        self.modules.alone = self._listener.alone
        self.blind = False  # to functions
        self._finished = False

    def unknown(self, patterns: tuple[str, ...]) -> list[str]:
        """Those patterns that fit no module."""
        return [pattern for pattern in patterns if not any(fnmatchcase(path, pattern) for path in self.index.modules)]

    def open(self) -> None:
        """Begin to see."""
        compiled = self.index.compiled()
        self.blind = bool(compiled)
        if compiled:
            self.log.remark(
                f"{_listed(compiled)} compiled: what runs inside cannot be seen, and functions between modules are not shown, "
                "because watching them would make torch recompile"
            )
            compile_warning.silence(self)
        distribution = distribution_of(self.index.model)
        if distribution.communicates:
            self.log.remark(
                f"this is rank {distribution.rank} of {distribution.world}: the others are not seen; the model must be called on "
                "all ranks, traced or not"
            )
        self.log.remarks += remarks_of(distribution)
        self._stages.open(module for path, module in self.index.hooked if not _inside(path, compiled))
        if self._steps is not None:
            self._steps.open()
        if self._follow:
            with self.log.aside():
                self._tensors.open(one for one in self.index.parameters if not _inside(one.path, compiled))
                self._gradients.open()
        self._listener.open()
        if not compiled:
            self.modules.late = self._stages.late
            self.operations.mode.resume()

    def run(self, work: Callable[[], T]) -> tuple[T | None, TraceRecord]:
        """What `work` gives, or None where it raises, and what was seen up to there; closed whatever ends it."""
        raised: list[Exception] = []
        ended: list[PendingEvents] = []

        def seen() -> T | None:
            self.open()
            try:
                return work()
            except Exception as error:  # noqa: BLE001 - the user's model may raise anything
                raised.append(error)
                return None

        try:
            found = afterwards(lambda: ended.append(self.finish(*raised)), seen)
        finally:
            for error in raised:
                error.__traceback__ = None  # it holds the frames, and they the tensors
        return found, ended[-1].record()

    def close(self, error: BaseException | None = None) -> TraceRecord:
        """Stop, leave everything as it was, and let go of the model."""
        return self.finish(error).record()

    def finish(self, error: BaseException | None = None) -> PendingEvents:
        """The same, with the record still to be made; may be called again, where the first time was interrupted."""
        steps = [] if self._steps is None else [self._steps.close]
        surely(
            self.log,
            self.operations.mode.close,
            self.log.restore,
            self._speak,
            self._listener.close,
            *steps,
            self._stages_off,
            self._tensors.close,
            self._gradients.close,
            self._free,
        )
        try:
            return self._finished_draft(error)
        except BaseException:  # one more interrupt, which may have come when something was just switched off
            self.log.restore()
            raise

    def _finished_draft(self, error: BaseException | None) -> PendingEvents:
        """What happened, when nothing more is recorded."""
        if self.log.stack:
            self.log.end(self.log.stack[0], self.log.now(), error)
        if not self._finished:
            with self.log.aside():
                self.backward.settle(self._gradients.seen)
        self._finished = True
        pending = self._pending("" if error is None else one_line(error))
        if error is not None:
            with self.log.aside():
                explained = _explained(error)
                pending.facts.update(explained | evidence.explanation(self, error, bool(explained)))
        return pending

    def _speak(self) -> None:
        compile_warning.speak(self)

    def _stages_off(self) -> None:
        with without_torch_function():
            self._stages.close(node.module for node in self.index.nodes)

    def _free(self) -> None:
        """No circle is left: what was held goes now, and not when the collector comes."""
        self.modules.alone = bool

    def remnant(self) -> TraceRecord:
        """What is left to tell where modlab itself failed."""
        return TraceRecord(self.title, 0, (), remarks=tuple(self.log.remarks), measured=self.measured, cost=self.log.lost)

    def record(self) -> TraceRecord:
        """What has happened so far."""
        return self._pending("").record()

    def _pending(self, error: str) -> PendingEvents:
        absent: tuple[Uncalled, ...] = ()
        unseen = 0
        told: list[reasons.Told] = []
        with self.log.aside():
            absent, unseen = tuple(uncalled(self, error)), hidden(self)
            ended = error if self._finished else "perhaps, by what is on its way now"
            told = list(reasons.of_parameters(self, ended))
            for found in rescues(self.log.calls, ended, self.log.stack):
                found.call.mark("caught", by=found.by)
        times, vain = self.modules.times, in_vain(self.log.calls)
        able = [one.module for one in self.index.nodes if self.kinds[type(one.module)].runs or id(one.module) in times]
        facts: dict[str, object] = {
            "remarks": tuple(self.log.remarks),
            "error": error,
            "measured": self.measured,
            "cost": self.log.lost,
            "called": sum(times[key] > vain.get(key, 0) or key in self.operations.direct for key in map(id, able)),
            "hidden": unseen,
            "ranks": self.index.ranks,
            "alike": tuple(self.folded.alike.items()) if self.folded is not None else (),
        }
        return PendingEvents(self.title, len(able), self.log.calls, self.log.origin, told, facts, absent)


def _explained(error: BaseException) -> dict[str, object]:
    """The reason for the exception, as far as it is known; nothing of the exception is kept."""
    from modlab.explaining.explain import explain  # a fifth of the first trace's time, and most see no exception

    found, _ = explain(error)
    if not found.family:
        return {}
    return {"explanation": found.sentence, "fixes": tuple((fix.prose, fix.code) for fix in found.fixes)}


def _listed(paths: list[str]) -> str:
    names = ", ".join(path or "the model" for path in paths[:_LISTED])
    more = f" and {len(paths) - _LISTED} more" if len(paths) > _LISTED else ""
    return f"{names}{more} {'is' if len(paths) == 1 else 'are'}"


def _inside(path: str, outer: list[str]) -> bool:
    return any(path == one or one == "" or path.startswith(f"{one}.") for one in outer)
