"""Pairs of models on the same input and random numbers: before and after quantization, fusion, a dtype change or a port.

Modules are matched by path. Both models run in their current mode and autograd state; the left one runs twice, to measure its noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab import format
from modlab.comparing.alignment import Pair, aligned, canonical, is_wrapped
from modlab.comparing.differing import differ
from modlab.comparing.hook_probes import hooked
from modlab.comparing.input_copies import Change, InputCopies, require_repeatable
from modlab.comparing.mode_probes import may_act
from modlab.comparing.modes import ALONE, SEVERAL, measured, quiet, require_ready, require_restorable
from modlab.comparing.passes import Key, Pass, Uncounted, first_paths, hidden_reason
from modlab.comparing.side_by_side import SideBySide
from modlab.errors import MatchError, nearest
from modlab.inspection import marks, stores
from modlab.inspection.distributed import distribution_of, unwrapped
from modlab.records.comparison import ComparisonRecord, ComparisonTable, RunRecord
from modlab.records.structure import ROOT
from modlab.running.sandbox import Sandbox
from modlab.running.values import arguments

SIDES = ("left", "right")
Match = Mapping[str, str] | Callable[[str], str | None] | None
Places = dict[int, tuple[str, Module]]

_NOISE = 4
_LISTED = 6  # pairs in a remark


def of_models(left: Module, right: Module, match: Match, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ComparisonTable:
    """Compare two models on one input; everything is restored, even if a model raises."""
    for model in (left, right):
        require_ready(model)
        require_restorable(model)
    require_repeatable(args, kwargs, "three times")
    found = PairPasses(unwrapped(left), unwrapped(right), match, args, kwargs)
    if (left, right) != found.models:
        found.remarks.append(ALONE)
    return found.run()


class PairPasses:
    """The passes of both models, and what they show."""

    def __init__(self, left: Module, right: Module, match: Match, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.models = (left, right)
        self._args, self._kwargs = args, dict(kwargs)
        self.places = (first_paths(left), first_paths(right))
        self._names = _names(self.places[0]), _names(self.places[1])
        self._told = told(self._names[0], self._names[1], match)
        self.pairs: dict[str, str] = {}
        self._by_structure: list[Pair] = []
        self._own = frozenset(id(t) for places in self.places for _, m in places.values() for _, t in stores.named_tensors(m))
        self._sandbox = Sandbox()
        self._restoration = self._sandbox.restoration
        self._fixed = any(distribution_of(model).communicates for model in self.models)  # the same passes on all ranks
        self.remarks: list[str] = [SEVERAL] if self._fixed else []

    def run(self) -> ComparisonTable:
        """Run all passes and build the record."""
        return self._sandbox.run(self._run_all)

    def _run_all(self) -> ComparisonTable:
        self._sandbox.add(*self.models)
        self._restoration.add_arguments(thing for _, thing, _ in arguments((), self._args, self._kwargs))
        left = self._noted(lambda: self._pass(0), "the left model raised this; the right one was not run")
        again = self._look(0, left) if self._fixed else self._pass(0, reference=left)
        right = self._noted(self._right, "the right model raised this; the left one runs through")
        self.pairs, self._by_structure = aligned(self.places[0].values(), self.places[1].values(), self._told, left.counts, right.counts)
        return self._record(left, again, right)

    def _noted(self, run: Callable[[], Pass], words: str) -> Pass:
        """Add a note to any exception that says which model raised it."""
        try:
            return run()
        except Exception as error:
            error.add_note(f"modlab.compare: {words}")
            raise

    def _pass(self, side: int, *, reference: Pass | None = None, change: Change | None = None) -> Pass:
        self._restoration.renew()
        self._sandbox.restart()
        found = self._look(side, reference)
        copies = InputCopies(self._own, change)
        args, kwargs = copies(self._args), copies(self._kwargs)
        with quiet(reference is not None):
            found.run(self.models[side], *args, **kwargs)
        found.check()
        return found

    def _look(self, side: int, reference: Pass | None) -> Pass:
        """A pass that has not started."""
        paths = {key: path for key, (path, _) in self.places[side].items()}
        return Pass(
            paths,
            reference=reference,
            stranger=self._restoration.add,
            private=self._restoration.generators.values(),
            hooked=hooked(module for _, module in self.places[side].values()),
            sources=reference is not None,
        )

    def _right(self) -> Pass:
        """Run the right model, which may need its input in a different dtype or on a different device."""
        try:
            return self._pass(1)
        except (RuntimeError, TypeError, ValueError) as error:
            change, words = self._wanted()
            if change is None or self._fixed:
                raise
            try:
                found = self._pass(1, change=change)
            except Exception:  # noqa: BLE001 - report the first error instead
                raise error from None
            self.remarks.append(f"The right model got its input as {words}: with the original, it raised {_line(error)}")
            return found

    def _wanted(self) -> tuple[Change | None, str]:
        """A change of the input to the dtype and device of the right model's parameters, if the left model's differ."""
        (dtype, device), (wanted, place) = (_kind(places) for places in self.places)
        if (dtype, device) == (wanted, place) or wanted is None:
            return None, ""

        def change(tensor: Tensor) -> Tensor:
            return tensor.to(device=place, dtype=wanted if tensor.dtype.is_floating_point else None)

        return change, f"{str(wanted).removeprefix('torch.')} on {place}" if device != place else str(wanted).removeprefix("torch.")

    def _record(self, left: Pass, again: Pass, right: Pass) -> ComparisonTable:
        def noise(key: Key) -> float:
            call = again.calls.get((self.pairs.get(key[0], ""), key[1]))
            gap = None if call is None else call.gap
            return _NOISE * (gap.relative or 0.0) if gap is not None and gap.equal is False else 0.0

        at = tuple({path: module for path, module in places.values()} for places in self.places)
        pair = SideBySide(
            left, right, self.pairs, rounding=True, noise=noise, differ=lambda path: differ(at[0][self.pairs[path]], at[1][path])
        )
        rights = {mine: path for path, mine in self.pairs.items()}
        by_path = at[1]
        rows = [self._row(path, module, rights.get(path), by_path, pair, again) for path, module in self.places[0].values()]
        rows += [self._right_only(path, module, right) for path, module in self.places[1].values() if not self._known(path)]
        self._remark(left, right)
        first, drift = (None if path is None else self.pairs[path] for path in (pair.first, pair.drift))
        names = [type(model).__name__ for model in self.models]
        theirs = right.first_nan()
        nan = left.first_nan() if left.first_nan() is not None else None if theirs is None else self.pairs.get(theirs, theirs)
        sampled = sum(one.shelf.sampled for one in (left, right) if one.shelf is not None)
        return ComparisonTable(
            names[0],
            SIDES,
            tuple(rows),
            rows[0].runs,
            first,
            drift,
            nan,
            self._whole(),
            other=names[1],
            tolerance=pair.rounding,
            exact=pair.exact and not sampled,
            remarks=tuple(self.remarks),
        )

    def _whole(self) -> str:
        """The left path that corresponds to the whole model."""
        return next((mine for theirs, mine in self.pairs.items() if not self._inner(1, theirs) and not self._inner(0, mine)), "")

    def _row(
        self, path: str, module: Module, other: str | None, by_path: dict[str, Module], pair: SideBySide, again: Pass
    ) -> ComparisonRecord:
        left, right = pair.left, pair.right
        kind = type(module).__name__
        other_kind = type(by_path[other]).__name__ if other is not None else ""
        gap = again.gap(path)
        drawn = tuple(
            (side, tuple(sorted(names)))
            for side, one, name in zip(SIDES, (left, right), (path, other), strict=True)
            if name is not None and (names := one.draws.get(name))
        )
        return ComparisonRecord(
            path,
            kind,
            marks.category(type(module)),
            other="" if other in (None, path) else str(other),
            other_type="" if other_kind == kind else other_kind,
            called_left=left.counts[path],
            called_right=None if other is None else right.counts[other],
            **(measured(pair.of_outputs(other), pair.of_inputs(other)) if other is not None else {}),
            starts_here=other in pair.starting,
            starts_by=pair.by.get(str(other), "") if other in pair.starting else "",
            alone_there=self._alone_there(other, pair),
            matched=self._matched(path, other),
            drawn=drawn,
            unsteady=("left",) if gap is not None and gap.equal is False else (),
            unsteady_here=path in again.sources(),
            runs=(_run("left", left, path), *(() if other is None else (_run("right", right, other),))),
            left=left.stats.get(path),
            right=None if other is None else right.stats.get(other),
            notes=tuple(self._notes(path, module, other, pair)),
        )

    def _matched(self, path: str, other: str | None) -> str:
        """How its partner was found; empty if it has none."""
        if other is None:
            return ""
        return "told" if path in self._told else "structure" if (path, other) in self._by_structure else "name"

    def _alone_there(self, other: str | None, pair: SideBySide) -> str:
        """A module that only one model calls, where the difference starts."""
        if other is None or other not in pair.alone:
            return ""
        side, path = pair.alone[other]
        return f"{self._called(side, path)} in the {SIDES[side]} model alone"

    def _called(self, side: int, path: str) -> str:
        kind = next(type(module).__name__ for name, module in self.places[side].values() if name == path)
        return f"{path or ROOT} ({kind})"

    def _notes(self, path: str, module: Module, other: str | None, pair: SideBySide) -> Iterator[str]:
        gap = None if other is None else pair.of_outputs(other)
        yield from gap.notes if gap is not None else ()
        if other is None:
            yield "only in the left model"
        elif (pair.left.counts[path], pair.right.counts[other]) == (0, 0):
            yield hidden_reason(path, module, self.places[0].values(), pair.left.counts).text
        elif not pair.right.counts[other] and (found := self._uncounted(other, pair.right)).unseen:
            yield f"in the right model it {found.text}"
        elif not pair.left.counts[path] or not pair.right.counts[other]:
            yield f"called in the {'right' if pair.right.counts[other] else 'left'} model alone"

    def _known(self, path: str) -> bool:
        """Whether a module on the right is compared, or wraps one that is."""
        return path in self.pairs or (not self._inner(1, path) and any(not self._inner(1, one) for one in self.pairs))

    def _inner(self, side: int, path: str) -> str:
        return canonical(path, is_wrapped(self._names[side]))

    def _uncounted(self, path: str, right: Pass) -> Uncounted:
        """Why a module on the right was not seen being called."""
        module = next(module for name, module in self.places[1].values() if name == path)
        return hidden_reason(path, module, self.places[1].values(), right.counts)

    def _right_only(self, path: str, module: Module, right: Pass) -> ComparisonRecord:
        return ComparisonRecord(
            path,
            type(module).__name__,
            marks.category(type(module)),
            called_left=None,
            called_right=right.counts[path],
            runs=(_run("right", right, path),),
            right=right.stats.get(path),
            notes=("only in the right model",),
        )

    def _remark_on_pairs(self, left: Pass, right: Pass) -> None:
        """Report modules matched by structure and modules without a partner."""
        if not self._by_structure:
            return
        place = {path: number for number, path in enumerate(self._names[0])}
        found = sorted(self._by_structure, key=lambda pair: place[pair[0]])
        pairs = [f"{mine} with {self._called(1, theirs)}" for mine, theirs in found]
        self.remarks.append(f"Matched by structure where names do not match: {_some(pairs)}. match= says otherwise.")
        for side, (one, known) in enumerate(((left, set(self.pairs.values())), (right, set(self.pairs)))):
            names = [path for path in self._names[side] if path not in known and one.counts[path] and (side == 0 or not self._known(path))]
            outer = [path for path in names if path.rpartition(".")[0] not in names]
            if outer:
                self.remarks.append(f"Without a partner: {_some([self._called(side, path) for path in outer])} in the {SIDES[side]} model.")

    def _remark(self, left: Pass, right: Pass) -> None:
        self._remark_on_pairs(left, right)
        acting = {
            path for path, module in self.places[1].values() if may_act(type(module)) and "quantized" not in marks.of_class(type(module))
        }
        others = [
            mine
            for theirs, mine in self.pairs.items()
            if theirs in acting and right.counts[theirs] and left.counts[mine] and _modes(left, mine) != _modes(right, theirs)
        ]
        if others:
            in_training = "left" if any(call.training for call in left.of(others[0])) else "right"
            some = f"{others[0] or ROOT}{f' and {len(others) - 1} more' if len(others) > 1 else ''}"
            self.remarks.append(f"{some}: in training mode only in the {in_training} model. Write .eval() for both, and compare again.")
        elif left.draws or right.draws:
            self.remarks.append("Random numbers are drawn, the same ones for both: drawing more or fewer shifts all later ones.")
        if self._restoration.lost():
            self.remarks.append("Parameters too large to copy were changed by their own forward and stay changed.")
        sampled = sum(one.shelf.sampled for one in (left, right) if one.shelf is not None)
        if sampled:
            self.remarks.append(f"{sampled} tensors were too large to keep whole: distances are those of about 4,000 elements of each.")


def _some(words: list[str]) -> str:
    return ", ".join(words[:_LISTED]) + (f" and {len(words) - _LISTED} more" if len(words) > _LISTED else "")


def _run(side: str, one: Pass, path: str) -> RunRecord:
    calls, stats = list(one.of(path)), one.stats.get(path)
    flags = [call.requires_grad for call in calls if call.requires_grad is not None]
    norm = stats.l2 if stats is not None and stats.measured else None
    return RunRecord(
        side, "as it is", len(calls), calls[0].training if calls else None, any(flags) if flags else None, norm, error=one.error
    )


def _kind(places: Places) -> tuple[torch.dtype | None, torch.device | None]:
    """The dtype and device of a model's first floating-point parameter."""
    for _, module in places.values():
        for _, tensor in stores.named_tensors(module):
            if tensor.dtype.is_floating_point:
                return tensor.dtype, tensor.device
    return None, None


def _modes(one: Pass, path: str) -> set[bool | None]:
    return {call.training for call in one.of(path)}


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _names(places: Places) -> list[str]:
    return [path for path, _ in places.values()]


def told(left: list[str], right: list[str], match: Match) -> dict[str, str]:
    """Path on the left → path on the right, as the user says.

    Raises:
        MatchError: `match` names a path that does not exist, or is neither a mapping nor a function.
    """
    if match is None:
        return {}
    if issubclass(type(match), Mapping):
        pairs = dict(match.items())  # type: ignore[union-attr]
    elif callable(match):
        known = set(right)
        pairs = {mine: theirs for mine in left if (theirs := match(mine)) in known and theirs is not None}
    else:
        kind = type(match).__name__
        raise MatchError(
            f"match= got {format.article(kind)}, but takes a dict "
            f"{{left path: right path}} or a function of a left path.\n"
            f"  Write: modlab.compare(left, right, match={{'body.conv1': 'features.0'}})(x)"
        )
    for side, names, paths in (("left", pairs.keys(), left), ("right", pairs.values(), right)):
        for name in names:
            if name not in paths:
                raise MatchError(_unknown(side, name, paths))
    if len(set(pairs.values())) < len(pairs):
        twice = next(theirs for theirs in pairs.values() if [*pairs.values()].count(theirs) > 1)
        raise MatchError(f"match= gives {twice!r} of the right model to several modules of the left one; each needs its own.")
    return pairs


def _unknown(side: str, name: object, known: list[str]) -> str:
    close = nearest(str(name), known)
    hint = f"  Nearest: {', '.join(repr(one) for one in close)}." if close else ""
    return f"match= names {name!r}, but the {side} model has no such module.\n{hint}  All paths: modlab.tree({side}).paths"
