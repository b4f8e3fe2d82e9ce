"""The calls of modules."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import graph_task, is_transformed, pipeline_pass
from modlab.inspection import entries, stores
from modlab.inspection.distributed import OF_PIPELINE
from modlab.records.trace import EventFact
from modlab.running.guarded import guarded
from modlab.running.values import Leaf, arguments, leaves
from modlab.tracing import callers
from modlab.tracing.calls import Call
from modlab.tracing.class_facts import ClassKinds
from modlab.tracing.event_log import EventLog, OffTheClock
from modlab.tracing.folded_calls import Counted, FoldedCalls
from modlab.tracing.functions import Functions
from modlab.tracing.gradients import Gradients
from modlab.tracing.kept_copies import detached
from modlab.tracing.parameter_uses import ParameterUses
from modlab.tracing.tensor_hook_wrappers import TensorHookWrappers
from modlab.tracing.tensor_ids import TensorIds, versions_of
from modlab.tracing.trace_index import TraceIndex
from modlab.tracing.unregistered_calls import UnregisteredCalls

INTERRUPTED = "interrupted"
STOPPED = "_StopRecomputationError"  # by which torch's checkpointing ends a forward pass that it repeats


class ModuleCalls:
    """Records each call of a module: what went in, what ``forward`` gave, and what became of the graph.

    Attributes:
        times: how often each module was called, by identity.
        kept: outputs by path, of the modules whose outputs were asked for; `output` is the root's, as it was given.
        elsewhere: identities of modules that were called in other threads.
        wrapped: those of modules inside something compiled that was called and is no part of the model.
        alone: tells whether no hook but ours is there for all modules.
        late: is told of a module with hooks that is called, and tells whether some are new and run unseen.
    """

    def __init__(
        self,
        log: EventLog,
        index: TraceIndex,
        tensor_ids: TensorIds,
        functions: Functions,
        gradients: Gradients,
        uses: ParameterUses,
        kinds: ClassKinds,
        folded: FoldedCalls | None,
        keep: tuple[str, ...],
        follow: bool,
        direct: dict[int, callers.Direct],
        hooks: TensorHookWrappers,
    ) -> None:
        self._hooks = hooks
        self.ends = self._log = log
        self._index, self._tensor_ids, self._uses = index, tensor_ids, uses
        self._functions, self._gradients, self._folded, self._patterns = functions, gradients, folded, keep
        self._kinds, self._follow = kinds, follow
        self.alone: Callable[[], bool] = bool  # until it is known: no
        self.late: Callable[[Module], bool] | None = None
        self._paused = False  # inside a call that is only counted
        self.times: Counter[int] = Counter()
        self._strangers = UnregisteredCalls(self.times, log.last)
        self.elsewhere: set[int] = set()
        self.wrapped: set[int] = set()
        self._direct = direct
        self.kept: dict[str, list[Any]] = {}
        self.output: Any = None

    @guarded
    def away(self, module: Module) -> None:
        """A module is called in a thread that is not followed."""
        if id(module) in self._index.paths:
            self.elsewhere.add(id(module))

    @guarded
    def enter(self, module: Module, args: tuple[Any, ...]) -> None:
        """A module is called; none of its hooks has run."""
        if not self._log.failed:
            with OffTheClock(self._log) as now:
                self._enter(module, args, now)
        if self._log.failed:
            self._functions.pause()  # what follows may be fused

    def _enter(self, module: Module, args: tuple[Any, ...], now: float) -> None:
        key, kind, held = id(module), self._kinds[type(module)], stores.contents(module)
        hooked = held.get("_forward_pre_hooks") or held.get("_forward_hooks")
        bare = not hooked and "forward" not in held and self.alone()  # nothing but its class's ``forward`` runs
        unasked = bare and len(args) == kind.alone
        top = parent = self._log.top
        caller = callers.look(0 if top is None else top.module, keywords=not unasked)
        if parent is not None and parent.frame != caller.within:
            self._unwind(caller.within, now)
            parent = self._log.top
        whole = parent is top  # else what was said of the frames was said with the wrong module in mind
        path, mine = self._index.paths.get(key), None
        if path is None:
            if parent is not None and parent.kind == "module":
                path = self._index.path_of(module, parent.path)
            if path is None and parent is not None and parent.opaque:  # a compiler's own
                return
            mine = self._strangers.calls_of(module) if path is None else None
        times = self.times[key] = self.times.get(key, 0) + 1
        if self._folded is not None and self._folded.inside(key):
            return
        call = self._log.begin("module", path, kind.name, now)
        training = held.get("training")
        call.training = training if isinstance(training, bool) else stores.mode(module)
        call.module, call.call, call.frame, call.unasked = key, times, caller.own, unasked
        if mine is not None:
            mine.append(call)
        call.quiet, call.where, call.category = kind.torchs and not held.get("_modules"), caller.where, kind.category
        given = arguments(kind.names, args, caller.keywords)
        call.inputs = self._tensor_ids.values(given)
        if self._tensor_ids.accelerated:
            call.memory = _allocated(given)
        if self._folded is not None and self._folded.counts(call, module):
            self._log.stack.pop()
            self._log.drop(call)
            self._paused = self._functions.pause() or self._paused
            return
        if caller.direct is not None and whole and id(caller.direct) in self._index.paths:
            self._direct.setdefault(id(caller.direct), callers.Direct(call.index, caller.called))
        if parent is None and (pipeline := pipeline_pass()):
            self._log.remark(OF_PIPELINE[pipeline])
        if parent is None and self._follow:
            self._hooks.given(given, path or "")
        self._mark(call, parent, caller.in_function)
        self._uses.by_module(call, module, held, given)
        hooked = hooked or held.get("_backward_pre_hooks") or held.get("_backward_hooks")
        if hooked and path is not None and self.late is not None and self.late(module):
            self._log.remark(f"hooks that {path or 'the model'} got during the trace are seen from its next call on")
        opaque = kind.opaque or ("compiled" if held.get("_compiled_call_impl") is not None else "")
        if opaque:
            call.mark("opaque", why=opaque)
            if path is None:  # a compiler's wrapper around what is traced
                self.wrapped |= {id(one) for one in stores.modules(module) if id(one) in self._index.paths}
        call.opaque, call.fused = bool(opaque), kind.fused or bool(opaque)
        if call.fused or (bare and call.quiet):  # what is not told need not be asked for
            call.popped = self._functions.pause()

    def _unwind(self, within: int, now: float) -> None:
        """Close calls that were interrupted by what no hook is told of (KeyboardInterrupt), and caught further out."""
        while (top := self._log.top) is not None and top.frame and top.frame != within and self._is_gone(top, within):
            top.error = top.error or INTERRUPTED
            self._uses.give_up(top.index, top.index)
            if top.popped:
                self._functions.resume()
            self._log.end(top, now)
            if self._folded is not None and self._folded.skipping:
                self._folded.abandon()
                self._wake()

    def _is_gone(self, call: Call, within: int) -> bool:
        """Whether a call that has not ended does not run any more; `within` is the frame that ours was called in, which is not its."""
        if within == callers.UNKNOWN:
            return False
        return (within == 0 and call.kind == "module") or not callers.runs(call.frame, within)

    def _mark(self, call: Call, parent: Call | None, in_function: bool) -> None:
        before = self._log.grad if parent is None else parent.grad
        if call.path is None and (parent is None or parent.kind != "module" or parent.path is not None):  # else the outer one says it
            call.mark("not part of the model" if parent is None else "not registered")
        if graph_task() != -1:
            call.mark("computed again" if call.call > 1 else "called in backward")
        elif in_function or (parent is not None and parent.excused and not call.grad):
            call.grad, call.excused = before, True
        elif not call.grad and before:
            call.mark("under", mode=call.off)
        if parent is not None and parent.kind == "step" and parent.popped:
            self._log.remark("functions inside optimizer.step(closure) are not seen: the optimizer must not notice the trace")

    @guarded
    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, output: Any) -> None:
        """A module's ``forward`` has ended; none of the hooks that follow has run."""
        if not self._log.failed:
            raised = sys.exception() if kwargs is None else None
            with OffTheClock(self._log) as now:
                self._leave(module, args, kwargs or {}, output, raised, now)
        if self._functions.silent:
            self._functions.wake(self._log.last.get(id(module)))  # not aside, which puts back the state that it found

    def _leave(
        self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, raised: BaseException | None, now: float
    ) -> None:
        if self._folded is not None and self._folded.skipping:
            counted = self._folded.ends(id(module))
            if counted is not None:
                self._end_counted(self._folded, counted, leaves(output), raised, now)
            return
        call = self._log.innermost("module", id(module))
        if call is None:
            return
        self._log.end(call, now, raised)
        self._log.last[id(module)] = call
        if call.popped:
            self._functions.resume()
        if raised is None:
            self._note(call, module, args, kwargs, output)
        elif type(raised).__name__ == STOPPED:
            call.error = ""
            call.mark("stopped early")
        else:
            self._uses.give_up(call.index, call.index)
            call.facts += _sizes(module)
            if call.unasked:  # perhaps it failed for that
                call.inputs += self._tensor_ids.values(arguments((), (), callers.keyword_arguments()))

    def _end_counted(self, folded: FoldedCalls, counted: Counted, given: list[Leaf], raised: BaseException | None, now: float) -> None:
        """A call whose inside was not recorded has ended: if it was not like the first one, it is told at least."""
        call = counted.call
        born = len(self._log.calls) - 0.5  # before the event that follows
        seen = self._tensor_ids.values(given, born)
        if raised is not None or not folded.joins(counted, seen):
            self._log.add(call, now, raised)
            call.outputs = seen if raised is None else ()
            call.bytes = self._tensor_ids.new_bytes(given, seen, born)
            call.mark("unlike", first=counted.first.path or "")
        self._wake()

    def _wake(self) -> None:
        if self._paused and self._folded is not None and not self._folded.skipping:
            self._functions.resume()
            self._paused = False

    def _note(self, call: Call, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        versions, before = versions_of(arguments((), args, kwargs)), call.versions
        if versions != before and len(versions) == len(before):
            call.mark("changes its input")
        given = leaves(output)
        call.outputs = self._tensor_ids.values(given, call.index)
        call.bytes = self._tensor_ids.new_bytes(given, call.outputs, call.index)
        if call.memory is not None:
            call.memory = (_allocated(given) or 0) - call.memory
        self._note_graph(call, stores.contents(module), given)
        path = call.path
        if self._patterns and path is not None and any(fnmatchcase(path, pattern) for pattern in self._patterns):
            self.kept.setdefault(path, []).append(detached(output))
            if path == "":
                self.output = output

    def _note_graph(self, call: Call, held: dict[str, Any], given: list[Leaf]) -> None:
        attached = any([seen.requires_grad for seen in call.outputs])
        if attached and self._follow:
            for name, tensor, _ in given:
                if issubclass(type(tensor), Tensor) and tensor.requires_grad:
                    self._gradients.watch(tensor, call.index, name)
        if buffers := held.get("_buffers"):
            for name, buffer in buffers.items():
                if buffer is None:
                    continue
                if buffer.requires_grad and not buffer.is_leaf:
                    call.mark("buffer joins", buffer=name)
                if not call.quiet and any([leaf[1] is buffer for leaf in given]):
                    call.mark("gives its buffer", buffer=name)
        if attached or not (call.quiet or call.fused):  # elsewhere the function tells, in which it leaves
            return
        if not torch.is_grad_enabled() or not any([seen.requires_grad for seen in call.inputs]):
            return
        tensors = [thing for _, thing, _ in given if issubclass(type(thing), Tensor)]
        differentiable = any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors)
        if differentiable and not any(map(is_transformed, tensors)):  # in torch.func tensors do not tell
            call.mark("has left the graph")


def _sizes(module: Module) -> list[EventFact]:
    """The module's own tensors, for an error that their sizes may explain."""
    found = []
    for name, tensor in stores.named_tensors(module):
        entry = entries.describe(name, "parameter", tensor)
        found.append(EventFact("has", {"name": name, "shape": entry.shape or ()}))
    return found[:4]


def _allocated(given: list[Leaf]) -> int | None:
    """What the allocator of the accelerator holds; None where there is nothing on one."""
    for _, thing, _ in given:
        if issubclass(type(thing), Tensor) and thing.is_cuda:
            return int(torch.cuda.memory_allocated(thing.device))
    return None
