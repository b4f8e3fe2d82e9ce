"""Recursion fills the stack: a module that calls itself, modules that hold one another, and modules nested too deep."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import groupby

from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.records.explanation import Fix

_LONGEST = 40  # frames of one round
_ROUNDS = 8  # that must be seen
_NAMES = 6  # of one round that are listed
_END = 40  # innermost frames that may be of something else: what ran when the stack was full


def _full(failure: Failure, _: re.Match[str]) -> Cause | None:
    found = _again(failure) or _nested(failure)
    if found is not None:
        failure.calls = failure.calls[:1]  # all others are rounds of the same
    return found


def _again(failure: Failure) -> Cause | None:
    """The same methods of the same modules, again and again."""
    frames = _round(failure.frames, [(frame.code, id(frame.owner)) for frame in failure.frames])
    owned, own = ([frame for frame in frames if having(frame)] for having in (lambda one: one.owner is not None, lambda one: one.is_users))
    if not owned:
        return None
    if not own:
        return _held(failure, owned)
    names = list(dict.fromkeys(_named(frame) for frame in own))
    last, getting = own[-1], names[0].endswith(".__getattr__") and len(names) == 1
    end = Fix("Remove that call, or return before it once a condition is met.")
    return Cause(
        f"{names[0]} calls {'itself' if len(names) < 2 else names[1] + ', and so on to itself,'} until Python's stack is full.",
        f"The call stands in `{last.source}`, {last.where}." if last.source else f"The call stands at {last.where}.",
        "calls itself",
        (("one round", " → ".join(names[:_NAMES])),) if len(names) > 1 else (),
        (Fix("Ask the parent class for missing attributes:", f"super().__getattr__({last.code.co_varnames[1]})") if getting else end,),
    )


def _named(frame: Frame) -> str:
    return frame.function if frame.owner is None else f"{type(frame.owner).__name__}.{frame.function}"


def _round(frames: list[Frame], keys: Sequence[object]) -> list[Frame]:
    """The frames that come again and again at the end of a traceback, the last whole round of them; none if nothing does."""
    for last in range(len(keys), max(len(keys) - _END, 0), -1):
        for size in range(1, min(_LONGEST, last // _ROUNDS) + 1):
            if (
                keys[last - 1] == keys[last - 1 - size]
                and keys[last - size * _ROUNDS : last - size] == keys[last - size * (_ROUNDS - 1) : last]
            ):
                return frames[last - size : last]
    return []


def _nested(failure: Failure) -> Cause | None:
    """The same code for one module inside another, none of them twice."""
    frames = _round(failure.frames, [frame.code for frame in failure.frames])
    runs = [owner for owner, _ in groupby(id(frame.owner) for frame in failure.frames if frame.owner is not None)]
    if len(set(runs)) < len(runs) or all(frame.owner is None for frame in frames):
        return None
    limit = sys.getrecursionlimit()
    return Cause(
        f"The modules are nested too deeply for Python's stack, which has room for {limit} calls.",
        "Each level of them takes several.",
        "the stack is full",
        (("limit", str(limit)),),
        (Fix("Give it more room, before the call:", f"import sys\nsys.setrecursionlimit({10 * limit})"),),
    )


def _held(failure: Failure, owned: list[Frame]) -> Cause | None:
    """Torch's own way through the modules, round and round: one of them holds one that it is inside of."""
    ring = {id(frame.owner) for frame in owned}
    head = next(frame.owner for frame in failure.frames if id(frame.owner) in ring)
    pairs = [(frame.owner, name) for frame in owned for name, child in stores.named_children(frame.owner) if child is head]
    if not pairs:
        return None
    module, name = pairs[-1]
    owner, function = type(module).__name__, owned[0].function
    what = "the module itself" if module is head else f"the {type(head).__name__} that contains it"
    taken = name in getattr(getattr(type(module).__init__, "__code__", None), "co_varnames", ())
    return Cause(
        f"{owner}.{name} is {what}, so .{function} loops until Python's stack is full.",
        "A module assigned to an attribute becomes a child.",
        "goes round",
        (),
        (Fix(f"Keep it without making it a child, in {owner}:", f"object.__setattr__(self, {name!r}, {name})" if taken else ""),),
    )


RULES = (Rule("recursion", (RecursionError,), "maximum recursion depth exceeded", _full),)
