"""What the user's hooks do when they run: what each saw, and what it made of that."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from modlab import format
from modlab.inspection.callables import describe
from modlab.instrumentation.recording.calls import Call
from modlab.instrumentation.recording.folds import Folds
from modlab.instrumentation.recording.keeping import comparable, copied, distance
from modlab.instrumentation.recording.roster import Roster
from modlab.instrumentation.recording.sightings import Sightings, versions_of
from modlab.instrumentation.recording.stages import BACKWARD, FORWARD, FORWARD_PRE, Stage, innermost
from modlab.instrumentation.recording.tape import Tape
from modlab.instrumentation.values import Leaf, argument_names, arguments, leaves

COPIED = 1 << 20  # elements up to which what a hook sees is copied, to say by how much it changed that
_SUBJECTS = {FORWARD_PRE: "the input", FORWARD: "the output", BACKWARD: "the gradient of the input"}
_Copies = list[Tensor | None]


class HookRuns:
    """Records each stage of a call."""

    def __init__(self, tape: Tape, roster: Roster, sightings: Sightings, folds: Folds | None) -> None:
        self._tape, self._roster, self._sightings, self._folds = tape, roster, sightings, folds

    def stage(self, stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a hook."""
        call = None
        subject: list[Leaf] = []
        before: _Copies = []
        versions: tuple[int, ...] = ()
        if self._tape.here() and not self._tape.failed and not (self._folds is not None and self._folds.skipping):
            with self._tape.aside() as now:
                call = self._begin(stage, args, now)
                subject = _subject(stage, args)
                call.inputs = self._sightings.values([*_beside(stage, args), *subject])
                versions, before = versions_of(subject), [_copy(thing) for _, thing, _ in subject]
        if call is None:
            return stage.original(*args, **kwargs)
        try:
            result = stage.original(*args, **kwargs)
        except BaseException as error:
            self._tape.end(call, self._tape.now(), error)
            raise
        with self._tape.aside() as now:
            self._tape.end(call, now)
            after = _subject(stage, args) if result is None else _returned(stage, args, result)
            call.outputs = self._sightings.values(after)
            call.marks.append(
                _doing(versions, _SUBJECTS.get(stage.kind, "the gradient of the output"), subject, before, after, result is None)
            )
        return result

    def _begin(self, stage: Stage, args: tuple[Any, ...], now: float) -> Call:
        module = id(args[0])
        parent = self._tape.top
        if stage.kind == FORWARD:  # they run when the call has ended
            parent = self._tape.last.get(module, parent)
        described = describe(innermost(stage))
        call = self._tape.begin("hook", self._roster.paths.get(module), described.function, now, parent)
        call.where = described.where
        call.marks.append(f"global {stage.kind}" if stage.everywhere else stage.kind)
        if described.machinery:
            call.marks.append(f"put there by {described.machinery}")
        return call


def _doing(versions: tuple[int, ...], what: str, subject: list[Leaf], before: _Copies, after: list[Leaf], silent: bool) -> str:
    """What a hook did to what it could change, in words."""
    odd = next((type(new).__name__ for (_, old, _), (_, new, _) in zip(subject, after, strict=False) if _is_odd(old, new)), "")
    if odd:
        return f"puts {'an' if odd[0] in 'aeiouAEIOU' else 'a'} {odd} in the place of {what}"
    same = [id(thing) for _, thing, _ in subject] == [id(thing) for _, thing, _ in after]
    far = _far(before, after)
    how = f" by up to {format.number(far)}" if far else ""
    if not same:
        return f"changes {what} in place: it puts others there{how}" if silent else f"changes {what}{how}"
    if versions_of(after) != versions or far:
        return f"changes {what} in place{how}"
    if -1 in versions and far is None:
        return "whether it changes something in place cannot be seen under inference_mode"
    return "changes nothing" if silent else f"gives {what} back as it was"


def _is_odd(old: Any, new: Any) -> bool:
    return issubclass(type(old), Tensor) and not issubclass(type(new), Tensor)


def _subject(stage: Stage, args: tuple[Any, ...]) -> list[Leaf]:
    """What a hook can change: the arguments before ``forward``, the output after it, a gradient."""
    if stage.kind == FORWARD_PRE:
        return arguments(argument_names(type(args[0])), args[1], args[2] if len(args) > 2 else None)
    if stage.kind == FORWARD:
        return leaves(args[-1], "output")
    return leaves(args[1], "grad_input" if stage.kind == BACKWARD else "grad_output")


def _beside(stage: Stage, args: tuple[Any, ...]) -> list[Leaf]:
    """What a hook sees besides: a forward hook the arguments, as the hooks before ``forward`` have left them."""
    if stage.kind == FORWARD:
        return arguments(argument_names(type(args[0])), args[1], args[2] if len(args) > 3 else None)
    return leaves(args[2], "grad_output") if stage.kind == BACKWARD else []


def _returned(stage: Stage, args: tuple[Any, ...], result: Any) -> list[Leaf]:
    if stage.kind != FORWARD_PRE:
        return leaves(result, {FORWARD: "output", BACKWARD: "grad_input"}.get(stage.kind, "grad_output"))
    names = argument_names(type(args[0]))
    if len(args) > 2 and isinstance(result, tuple) and len(result) == 2:  # one that takes keyword arguments gives both back
        positional = result[0] if isinstance(result[0], tuple) else (result[0],)
        return arguments(names, positional, result[1] if isinstance(result[1], dict) else None)
    return arguments(names, result if isinstance(result, tuple) else (result,))


def _copy(thing: Any) -> Tensor | None:
    return copied(thing) if comparable(thing, COPIED) else None


def _far(before: _Copies, after: list[Leaf]) -> float | None:
    """The largest difference; None where nothing can be compared."""
    found = []
    for old, (_, new, _) in zip(before, after, strict=False):
        if old is not None and comparable(new, COPIED) and new.shape == old.shape and new.device == old.device:
            found.append(distance(old, new))
    return max(found) if found else None
