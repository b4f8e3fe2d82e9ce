"""What the user's hooks do when they run: what each saw, and what it made of that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from modlab import format
from modlab.inspection.callables import describe
from modlab.instrumentation.calls import Call
from modlab.instrumentation.folds import Folds
from modlab.instrumentation.keeping import copied
from modlab.instrumentation.roster import Roster
from modlab.instrumentation.sightings import Sightings, versions_of
from modlab.instrumentation.stages import BACKWARD, FORWARD, FORWARD_PRE, Stage
from modlab.instrumentation.tape import Tape
from modlab.instrumentation.values import Leaf, argument_names, arguments, leaves

COPIED = 1 << 20  # elements up to which what a hook sees is copied, to say by how much it changed that
_SUBJECTS = {FORWARD_PRE: "the input", FORWARD: "the output", BACKWARD: "the gradient of the input"}


class HookRuns:
    """Records each stage of a call."""

    def __init__(self, tape: Tape, roster: Roster, sightings: Sightings, folds: Folds | None) -> None:
        self._tape, self._roster, self._sightings, self._folds = tape, roster, sightings, folds

    def stage(self, stage: Stage, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a hook."""
        call = None
        subject: list[Leaf] = []
        before: list[Tensor | None] = []
        if self._tape.here() and not self._tape.failed and not (self._folds is not None and self._folds.skipping):
            with self._tape.aside() as now:
                call = self._begin(stage, args, now)
                subject = _subject(stage, args)
                call.inputs = self._sightings.values([*_beside(stage, args), *subject])
                call.versions, before = versions_of(subject), [_copy(thing) for _, thing, _ in subject]
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
            call.marks.append(self._doing(call, stage, subject, before, after, result is None))
        return result

    def _begin(self, stage: Stage, args: tuple[Any, ...], now: float) -> Call:
        module = id(args[0])
        parent = self._tape.top
        if stage.kind == FORWARD:  # they run when the call has ended
            parent = self._tape.last.get(module, parent)
        described = describe(stage.original)
        call = self._tape.begin("hook", self._roster.paths.get(module), described.function, now, parent)
        call.where = described.where
        call.marks.append(f"global {stage.kind}" if stage.everywhere else stage.kind)
        if described.machinery:
            call.marks.append(f"put there by {described.machinery}")
        return call

    def _doing(self, call: Call, stage: Stage, subject: list[Leaf], before: list[Tensor | None], after: list[Leaf], silent: bool) -> str:
        """What the hook did to what it could change, in words."""
        what = _SUBJECTS.get(stage.kind, "the gradient of the output")
        if silent:
            if versions_of(after) == call.versions:
                return "changes nothing"
            return f"changes {what} in place{_by_how_much(before, after)}"
        if [id(thing) for _, thing, _ in subject] == [id(thing) for _, thing, _ in after]:
            return f"gives {what} back as it was" if versions_of(after) == call.versions else f"changes {what} in place"
        return f"changes {what}{_by_how_much(before, after)}"


def _subject(stage: Stage, args: tuple[Any, ...]) -> list[Leaf]:
    """What a hook can change: the arguments before ``forward``, the output after it, a gradient."""
    if stage.kind == FORWARD_PRE:
        return list(arguments(argument_names(type(args[0])), args[1], args[2] if len(args) > 2 else None))
    if stage.kind == FORWARD:
        return list(leaves(args[-1], "output"))
    return list(leaves(args[1], "grad_input" if stage.kind == BACKWARD else "grad_output"))


def _beside(stage: Stage, args: tuple[Any, ...]) -> list[Leaf]:
    """What a hook sees besides: a forward hook the arguments, as the hooks before ``forward`` have left them."""
    if stage.kind == FORWARD:
        return list(arguments(argument_names(type(args[0])), args[1], args[2] if len(args) > 3 else None))
    return list(leaves(args[2], "grad_output")) if stage.kind == BACKWARD else []


def _returned(stage: Stage, args: tuple[Any, ...], result: Any) -> list[Leaf]:
    if stage.kind != FORWARD_PRE:
        return list(leaves(result, {FORWARD: "output", BACKWARD: "grad_input"}.get(stage.kind, "grad_output")))
    names = argument_names(type(args[0]))
    if len(args) > 2 and isinstance(result, tuple) and len(result) == 2:  # one that takes keyword arguments gives both back
        return list(arguments(names, result[0], result[1]))
    return list(arguments(names, result if isinstance(result, tuple) else (result,)))


def _copy(thing: Any) -> Tensor | None:
    if not issubclass(type(thing), Tensor) or thing.layout is not torch.strided or thing.is_nested or thing.numel() > COPIED:
        return None
    return copied(thing)


def _by_how_much(before: list[Tensor | None], after: list[Leaf]) -> str:
    """The largest difference, where old and new can be compared."""
    found = []
    for old, (_, new, _) in zip(before, after, strict=False):
        if old is None or not issubclass(type(new), Tensor) or new.shape != old.shape or not old.numel() or old.is_meta:
            continue
        with torch.no_grad():
            found.append((new.detach().to(torch.float64) - old.to(torch.float64)).abs().max().item())
    return f" by up to {format.number(max(found))}" if found else ""
