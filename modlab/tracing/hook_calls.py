"""What the user's hooks do when they run: what each saw, and what it made of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.callables import describe
from modlab.records.finding import Fact
from modlab.records.trace import EventFact
from modlab.running.guarded import guarded
from modlab.running.values import Leaf, argument_names, arguments, leaves
from modlab.statistics.memory import copied
from modlab.tracing.backward import Backward
from modlab.tracing.calls import Call, Seen
from modlab.tracing.event_log import EventLog
from modlab.tracing.folded_calls import FoldedCalls
from modlab.tracing.hook_wrappers import ACCUMULATED, BACKWARD, FORWARD, FORWARD_PRE, LEGACY, TENSOR, HookWrapper, innermost
from modlab.tracing.kept_copies import comparable, distance
from modlab.tracing.parameter_uses import ParameterUses
from modlab.tracing.tensor_ids import TensorIds, versions_of
from modlab.tracing.trace_index import TraceIndex
from modlab.tracing.wrapper_code import WrapperCode
from modlab.tracing.wrapper_systems import DDP, FSDP, of_hook

COPIED = 1 << 20  # elements up to which what a hook sees is copied, to say by how much it changed that
_Copies = list[Tensor | None]
_Facts = dict[str, Fact]


class _Begun(NamedTuple):
    """A hook that runs: what it could change, with copies, and the attributes of its module."""

    call: Call
    subject: list[Leaf]
    before: _Copies
    versions: tuple[int, ...]
    held: dict[str, Any]


class HookCalls:
    """Records each stage of a call."""

    def __init__(
        self,
        log: EventLog,
        index: TraceIndex,
        tensor_ids: TensorIds,
        folded: FoldedCalls | None,
        backward: Backward,
        uses: ParameterUses,
        machinery: WrapperCode,
    ) -> None:
        self._machinery = machinery
        self.ends = self._log = log
        self._index, self._tensor_ids, self._folded, self._backward = index, tensor_ids, folded, backward
        self._uses = uses

    def stage(self, stage: HookWrapper, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a hook."""
        begun = self._called(stage, args)
        if begun is None:
            return stage.original(*args, **kwargs)
        if isinstance(begun, Call):
            return self._counted(stage, begun, args, kwargs)
        try:
            result = stage.original(*args, **kwargs)
        except BaseException as error:
            self._raised(stage, begun.call, error)
            raise
        self._returned(stage, begun, args, result)
        return result

    @guarded
    def _called(self, stage: HookWrapper, args: tuple[Any, ...]) -> _Begun | Call | None:
        if not self._log.here() or self._log.failed or (self._folded is not None and self._folded.skipping):
            return None
        begun: _Begun | Call | None = None
        with self._log.aside() as now:
            system = of_hook(innermost(stage))
            if system in (FSDP, DDP):
                return self._machinery.begins(system, now)
            call = self._begin(stage, args, now)
            call.quiet = bool(system)
            subject = _subject(stage, args)
            call.inputs = self._tensor_ids.values([*_beside(stage, args), *subject])
            begun = _Begun(call, subject, [_copy(thing) for _, thing, _ in subject], versions_of(subject), _attributes(args[0]))
            if stage.kind in (BACKWARD, LEGACY):
                self._mark_around(call, args[0], subject)
        return begun

    def _counted(self, stage: HookWrapper, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a hook of FSDP's or DDP's."""
        try:
            result = stage.original(*args, **kwargs)
        except BaseException as error:
            self._ended(call, error)
            raise
        self._ended(call)
        return result

    @guarded
    def _ended(self, call: Call, error: BaseException | None = None) -> None:
        with self._log.aside() as now:
            self._machinery.ends(call, now, error)

    @guarded
    def _raised(self, stage: HookWrapper, call: Call, error: BaseException) -> None:
        self._log.end(call, self._log.now(), error)
        self._uses.give_up(call.index if stage.kind != FORWARD else call.parent, call.index)

    @guarded
    def _returned(self, stage: HookWrapper, begun: _Begun, args: tuple[Any, ...], result: Any) -> None:
        call, subject, before, versions, held = begun
        with self._log.aside() as now:
            self._log.end(call, now)
            after = _subject(stage, args) if result is None else _returned(stage, args, result)
            call.outputs = self._tensor_ids.values(after, call.index)
            call.odd = next((type(new).__name__ for (_, old, _), (_, new, _) in zip(subject, after, strict=False) if _is_odd(old, new)), "")
            if stage.kind == ACCUMULATED and after[0][1] is None:
                call.odd = ""
                call.mark("sets grad to None")
                return
            if call.odd:
                call.mark("does", stage=stage.kind, nest="instead", now=call.odd)
                return
            seen = call.inputs[len(call.inputs) - len(subject) :] if subject else ()
            run = _HookRun(subject, seen, before, versions, after, call.outputs)
            nest = {} if result is None else _nest(stage, args, result, run)
            if nest.get("nest") == "into":
                call.odd = type(result).__name__
            doing = _doing(run, result is None, bool(nest))
            besides = self._besides(call, held, args[0]) if doing.get("change") == "nothing" else {}
            call.facts.append(EventFact("does beside" if besides else "does", {"stage": stage.kind, **nest, **doing, **besides}))

    def _besides(self, call: Call, held: dict[str, Any], thing: Any) -> _Facts:
        """What a hook does that leaves alone what it could change: which attributes of its module it sets, how many functions it runs."""
        now = _attributes(thing)
        names = tuple(name for name, value in now.items() if name not in held or held[name] is not value)
        inside = [one for one in self._log.calls[call.index + 1 :] if one.kind == "function" and one.parent == call.index]
        runs = sum(max(one.times, 1) for one in inside)
        return {"sets": names, "runs": runs} if names or runs else {}

    def _mark_around(self, call: Call, module: Module, subject: list[Leaf]) -> None:
        """Which of the module's parameters have got their gradient by now: torch calls the hook when that of the input is there."""
        there: list[str] = []
        awaited: list[str] = []
        for one in self._index.parameters:
            if one.owner is module and one.tensor.requires_grad and one.tensor.is_leaf:
                here = self._backward.here(one)
                if here is not None:
                    (there if here else awaited).append(f"{one.name}.grad")
        if there:
            call.mark("gradients there", names=tuple(there))
        if awaited:
            call.mark("gradients awaited", names=tuple(awaited), early=all(thing is None for _, thing, _ in subject))

    def _begin(self, stage: HookWrapper, args: tuple[Any, ...], now: float) -> Call:
        module, parent = id(args[0]), self._log.top
        if stage.kind == FORWARD:  # they run when the call has ended
            parent = self._log.last.get(module, parent)
        described = describe(innermost(stage))
        of_tensor = stage.kind in (TENSOR, ACCUMULATED)
        call = self._log.begin("hook", stage.path if of_tensor else self._index.paths.get(module), described.function, now, parent)
        call.where = described.where
        call.stage = stage.kind
        call.mark("hook", stage=stage.kind, everywhere=bool(stage.everywhere), tensor=stage.tensor)
        if described.machinery:
            call.mark("put there", by=described.machinery)
        return call


class _HookRun(NamedTuple):
    """What a hook could change, before and after: the things, what was seen of them, and copies."""

    subject: list[Leaf]
    seen: tuple[Seen, ...]
    before: _Copies
    versions: tuple[int, ...]
    after: list[Leaf]
    outputs: tuple[Seen, ...]


def _doing(run: _HookRun, silent: bool, nested: bool) -> _Facts:
    """What a hook did to what it could change; `silent`: it returned nothing."""
    same = [id(thing) for _, thing, _ in run.subject] == [id(thing) for _, thing, _ in run.after]
    far = _far(run.before, run.after)
    turns = tuple(_turns(run))
    how: _Facts = {"far": far or 0.0, "turns": turns}
    in_place = same and (versions_of(run.after) != run.versions or bool(far))
    if not same:
        return {"change": "puts others" if silent else _replacement(run, far), **how}
    if in_place:
        return {"change": "in place", **how}
    if nested:
        return {"turns": turns}
    if -1 in run.versions and far is None:
        return {"change": "cannot be seen"}
    if silent:
        return {"change": "other values", "turns": turns} if turns else {"change": "nothing"}
    return {"change": "given back", "turns": turns}


def _replacement(run: _HookRun, far: float | None) -> str:
    """How other tensors compare with those that were there."""
    shapes = [(old.sight.shape, new.sight.shape) for old, new in zip(run.seen, run.outputs, strict=False)]
    if far or len(run.seen) != len(run.outputs) or any(old != new for old, new in shapes):
        return "other values"
    return "same values" if far == 0 and _all_compared(run) else "not compared"


def _all_compared(run: _HookRun) -> bool:
    """Whether each tensor that was replaced could be compared with what replaced it."""
    return all(
        old is new or (copy is not None and comparable(new, COPIED))
        for copy, (_, old, _), (_, new, _) in zip(run.before, run.subject, run.after, strict=False)
    )


def _turns(run: _HookRun) -> Iterator[str]:
    """What else is otherwise than it was: size, kind of number, device; whether it "left" or "joined" the graph; each once."""
    found: dict[str, None] = {}
    for old, new in zip(run.seen, run.outputs, strict=False):
        if old.version is None or new.version is None:
            continue
        if old.sight.shape != new.sight.shape:
            found[f"{old.sight.shape} -> {new.sight.shape}"] = None
        if old.sight.dtype is not new.sight.dtype:
            found[f"{_word(old.sight.dtype)} -> {_word(new.sight.dtype)}"] = None
        if old.sight.device != new.sight.device:
            found[f"{old.sight.device} -> {new.sight.device}"] = None
        if old.requires_grad != new.requires_grad:
            found["left" if old.requires_grad else "joined"] = None
    yield from found


def _word(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _nest(stage: HookWrapper, args: tuple[Any, ...], result: Any, run: _HookRun) -> _Facts:
    """What became of the container around the tensors; nothing where that is as it was."""
    if stage.kind in (TENSOR, ACCUMULATED):
        return {}
    old, new = tuple(name for name, _, _ in run.subject), tuple(name for name, _, _ in run.after)
    if stage.kind == FORWARD_PRE:
        return {} if old == new else {"nest": "names", "now": new, "was": old}
    given = args[-1] if stage.kind == FORWARD else args[1]
    if stage.kind != FORWARD and type(result) in (tuple, list):  # autograd takes either
        return {} if len(old) == len(new) else {"nest": "count", "now": len(new), "was": len(old)}
    if old == new and type(given) is type(result):
        return {}
    bare, now = (issubclass(type(thing), Tensor) for thing in (given, result))
    if bare and now:
        return {}
    return {"nest": "into" if bare else "out of" if now else "otherwise", "now": type(result).__name__, "was": type(given).__name__}


def _is_odd(old: Any, new: Any) -> bool:
    return issubclass(type(old), Tensor) and not issubclass(type(new), Tensor)


def _subject(stage: HookWrapper, args: tuple[Any, ...]) -> list[Leaf]:
    """What a hook can change: the arguments before ``forward``, the output after it, a gradient."""
    if stage.kind in (TENSOR, ACCUMULATED):
        return [("gradient", args[0] if stage.kind == TENSOR else args[0].grad, None)]
    if stage.kind == FORWARD_PRE:
        return arguments(argument_names(type(args[0])), args[1], args[2] if len(args) > 2 else None)
    if stage.kind == FORWARD:
        return leaves(args[-1], "output")
    return leaves(args[1], "grad_input" if stage.kind in (BACKWARD, LEGACY) else "grad_output")


def _beside(stage: HookWrapper, args: tuple[Any, ...]) -> list[Leaf]:
    """What a hook sees besides: a forward hook the arguments, as the hooks before ``forward`` have left them."""
    if stage.kind == FORWARD:
        return arguments(argument_names(type(args[0])), args[1], args[2] if len(args) > 3 else None)
    return leaves(args[2], "grad_output") if stage.kind in (BACKWARD, LEGACY) else []


def _returned(stage: HookWrapper, args: tuple[Any, ...], result: Any) -> list[Leaf]:
    if stage.kind in (TENSOR, ACCUMULATED):
        return [("gradient", result, None)]
    if stage.kind != FORWARD_PRE:
        return leaves(result, {FORWARD: "output", BACKWARD: "grad_input", LEGACY: "grad_input"}.get(stage.kind, "grad_output"))
    names = argument_names(type(args[0]))
    if len(args) > 2 and isinstance(result, tuple) and len(result) == 2:  # one that takes keyword arguments gives both back
        positional = result[0] if isinstance(result[0], tuple) else (result[0],)
        return arguments(names, positional, result[1] if isinstance(result[1], dict) else None)
    return arguments(names, result if isinstance(result, tuple) else (result,))


def _attributes(thing: Any) -> dict[str, Any]:
    """The attributes of a module that are none of torch's own; of a tensor, none."""
    if not stores.is_module(thing):
        return {}
    return {name: value for name, value in list(stores.contents(thing).items()) if type(name) is str and name not in stores.STANDARD}


def _copy(thing: Any) -> Tensor | None:
    return copied(thing) if comparable(thing, COPIED) else None


def _far(before: _Copies, after: list[Leaf]) -> float | None:
    """The largest difference; None where nothing can be compared."""
    found = []
    for old, (_, new, _) in zip(before, after, strict=False):
        if old is not None and comparable(new, COPIED) and new.shape == old.shape and new.device == old.device:
            found.append(distance(old, new))
    return max(found) if found else None
