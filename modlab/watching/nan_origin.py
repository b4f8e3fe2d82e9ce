"""The origin of a NaN in a recorded pass: the first module or function in it that made numbers that are not finite from finite ones.

The way is walked backwards: from an output that is not finite to the event that made it, from there to what that took. So what
is infinite on purpose, as a mask of attention is, and does no harm, is not named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from modlab.frozen import frozen
from modlab.records.finding import Fact, Remedy
from modlab.records.trace import Event, TraceRecord, Value
from modlab.watching.alerts import DATA

_OPERATORS = {
    "x + y": "add",
    "y + x": "add",
    "x += y": "add",
    "x - y": "sub",
    "y - x": "sub",
    "x -= y": "sub",
    "x * y": "mul",
    "y * x": "mul",
    "x *= y": "mul",
    "x / y": "div",
    "y / x": "div",
    "x /= y": "div",
    "x @ y": "matmul",
    "y @ x": "matmul",
    "x ** y": "pow",
    "y ** x": "pow",
}
_ON_PURPOSE = ("inf", "-inf", "nan")
_BOUNDED = ("float16", "bfloat16", "float32", "float64")
Cause = tuple[dict[str, Fact], tuple[Remedy, ...]]
"""Why it is so, as facts with their kind under "cause"; and what can be done. Nothing where the numbers do not tell."""


@frozen
class Birth:
    """Where the numbers of a step ceased to be finite.

    Attributes:
        where: "forward", "backward", "the loss", "the batch", "the weights", or "" if it was not found.
        path: of the module at fault; of a parameter or input, its name; "" where the model as a whole is meant, or nothing was found.
        kind: "nan" or "inf", or "".
        facts: what was seen, or why nothing was: "birth" is a key of `wording.births.BIRTHS`, which says what the others mean;
            "doubts" are keys of `wording.births.DOUBTS`.
        fixes: what can be done.
        event: the number of what is at fault in the trace, or -1.
        trace: the pass that was run again; None if none was.
        exact: the pass was the same one, as far as can be told.
    """

    where: str = ""
    path: str = ""
    kind: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)
    fixes: tuple[Remedy, ...] = ()
    event: int = -1
    trace: TraceRecord | None = None
    exact: bool = True


class NaNOrigins:
    """Asks the events of one trace.

    Args:
        events: as they began.
    """

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = [event for event in events if event.kind in ("module", "function", "hook")]
        self._by_index = {event.index: event for event in self._events}
        self._ended = list(_ended(self._events))
        self._makers: dict[int, Event] = {}
        for event in self._ended:
            taken = {value.number for value in event.inputs if is_bad(value)}
            for value in event.outputs:
                if value.number and is_bad(value) and value.number not in taken:
                    self._makers.setdefault(value.number, event)

    def of_outputs(self, root: Event) -> Birth | None:
        """Why the outputs of the root's call are not finite; None if they are."""
        bad = [value for value in root.outputs if is_bad(value)]
        seen: set[int] = set()
        for value in sorted(bad, key=lambda value: not _holds_nan(value)):
            found = self._of_value(value, root, root, seen)
            if found is not None:
                return found
        return self._first(self._ended) if bad else None

    def _of_value(self, value: Value, taker: Event, root: Event, seen: set[int]) -> Birth | None:
        """Follow one value to where it comes from; None if it is like that on purpose."""
        if value.number in seen:
            return None
        seen.add(value.number)
        maker = self._makers.get(value.number)
        if maker is None:
            return self._without_maker(value, taker, root, seen)
        inner = self._first(self._inside(maker)) if maker.kind == "module" else None
        if inner is not None and not any(map(is_bad, maker.inputs)):
            return inner
        bad = [one for one in maker.inputs if is_bad(one)]
        if not bad:
            return None if _on_purpose(maker) else _born(maker)
        for one in sorted(bad, key=lambda one: not _holds_nan(one)):
            found = self._of_value(one, maker, root, seen)
            if found is not None:
                return found
        # all that it took is infinite on purpose: it is at fault where it makes NaN of that
        return _born(maker) if any(map(_holds_nan, maker.outputs)) and not any(map(_holds_nan, bad)) else None

    def _without_maker(self, value: Value, taker: Event, root: Event, seen: set[int]) -> Birth | None:
        given = next((one for one in root.inputs if one.number == value.number and is_bad(one)), None)
        if given is not None:
            return _batch(given, root)
        if value.owner:
            return _weights(value) if _holds_nan(value) else None  # a mask that is a buffer is infinite on purpose
        for event in self._ended:  # it was written into: x[...] = y
            if event.outputs or event.fact("in place") is None or all(one.number != value.number for one in event.inputs):
                continue
            for one in event.inputs:
                if one.number != value.number and is_bad(one):
                    return self._of_value(one, event, root, seen)
        return None if taker is root else _unseen(taker, value)

    def _inside(self, outer: Event) -> Iterator[Event]:
        for event in self._ended:
            above = event.parent
            while above >= 0 and above != outer.index:
                above = self._by_index[above].parent if above in self._by_index else -1
            if above == outer.index:
                yield event

    def _first(self, events: Iterable[Event]) -> Birth | None:
        """The first of some events that makes NaN or infinities of finite numbers, where the way cannot be followed."""
        for event in events:
            if any(map(is_bad, event.outputs)) and not any(map(is_bad, event.inputs)) and not _on_purpose(event):
                return _born(event)
        return None


def is_bad(value: Value) -> bool:
    """Whether a tensor was measured and holds NaN or infinities."""
    stats = value.stats
    return stats is not None and stats.measured and bool(stats.nan or stats.posinf or stats.neginf)


def _holds_nan(value: Value) -> bool:
    return value.stats is not None and value.stats.measured and bool(value.stats.nan)


def kind_of_value(value: Value) -> str:
    """What is bad in it: "nan", or "inf" if there are infinities alone."""
    return "nan" if _holds_nan(value) else "inf"


def _on_purpose(event: Event) -> bool:
    """Whether it was told to: ``masked_fill(mask, -inf)``."""
    return any(value.text in _ON_PURPOSE for value in event.inputs)


def _ended(events: Sequence[Event]) -> Iterator[Event]:
    """Events in the order in which they ended: those inside before those around them."""
    stack: list[Event] = []
    for event in events:
        while stack and stack[-1].depth >= event.depth:
            yield stack.pop()
        stack.append(event)
    while stack:
        yield stack.pop()


def _born(event: Event) -> Birth:
    value = next((one for one in event.outputs if _holds_nan(one)), None) or next(one for one in event.outputs if is_bad(one))
    cause, fixes = explain(word_of(event.name), event.inputs, value, forward=True)
    facts: dict[str, Fact] = {"birth": "made", "event": event.kind, "name": event.name, **counts(value), **cause}
    facts |= {"on purpose": any(map(is_bad, event.inputs)), "at": event.where if event.kind != "module" else ""}
    return Birth("forward", event.path or "", kind_of_value(value), facts, fixes, event.index)


def _batch(value: Value, root: Event) -> Birth:
    name = value.name or "the input"
    return Birth("the batch", name, kind_of_value(value), {"birth": "batch", **counts(value)}, (DATA,), root.index)


def _weights(value: Value) -> Birth:
    return Birth("the weights", value.owner, "nan", {"birth": "held before", **counts(value)})


def _unseen(event: Event, value: Value) -> Birth:
    facts: dict[str, Fact] = {"birth": "unseen", "name": event.name, **counts(value)}
    return Birth("forward", event.path or "", kind_of_value(value), facts, event=event.index)


def counts(value: Value) -> dict[str, Fact]:
    """How many numbers of a tensor there are, and how many of each kind are not finite."""
    stats = value.stats
    if stats is None:
        return {}
    bad = {name: getattr(stats, name) for name in ("nan", "posinf", "neginf")}
    return {**{name: count for name, count in bad.items() if count}, "numbers": stats.count}


def word_of(name: str) -> str:
    """What a function does, in torch's own word: "torch.log" and "Tensor.log_" → "log", "x / y" → "div"."""
    return _OPERATORS.get(name, name.rpartition(".")[2].strip("_").lower())


def explain(word: str, inputs: Sequence[Value], value: Value | None, *, forward: bool) -> Cause:
    """Why a function gives what is not finite, and what can be done; as far as the numbers tell.

    Args:
        word: as `word_of` gives it.
        inputs: what the function took.
        value: what it gave, if that was measured.
        forward: or in the backward pass.
    """
    measured = [one.stats for one in inputs if one.stats is not None and one.stats.measured]
    zeros, negative = sum(one.zeros for one in measured), any(one.count and one.min < 0 for one in measured)
    if not forward:
        return _explain_backward(word, zeros, measured[-1].zeros if measured else 0)
    if word in ("log", "log2", "log10") and (zeros or negative):
        return {"cause": "log", "zeros": zeros, "negative": negative}, (Remedy("make positive" if negative else "keep above zero"),)
    if word in ("div", "true_divide", "reciprocal", "rsqrt") and measured and measured[-1].zeros:
        return {"cause": "division", "zeros": measured[-1].zeros}, (Remedy("add to the divisor"),)
    if word == "sqrt" and negative:
        return {"cause": "root", "negative": True}, (Remedy("keep at zero or above"),)
    if word in ("softmax", "log_softmax") and any(one.neginf for one in measured):
        return {"cause": "masked row"}, (Remedy("leave one in each row"),)
    overflows = value is not None and value.stats is not None and (value.dtype == "float16" or not value.stats.nan)
    if value is not None and overflows and value.dtype in _BOUNDED:
        return overflow(value.dtype, Remedy("wider dtype" if value.dtype == "float16" else "smaller numbers"))
    return {}, ()


def overflow(dtype: str, fix: Remedy) -> Cause:
    """A number too large for its dtype."""
    return {"cause": "overflow", "dtype": dtype}, (fix,)


def _explain_backward(word: str, zeros: int, divided_by: int) -> Cause:
    steep: dict[str, Fact] = {"cause": "slope at 0"}
    if word in ("sqrt", "rsqrt") or "norm" in word:
        return steep, (Remedy("root above zero"),)
    if word in ("log", "log2", "log10") and zeros:
        return {"cause": "log", "zeros": zeros, "negative": False}, (Remedy("away from zero"),)
    if word in ("div", "true_divide", "reciprocal") and divided_by:
        return {"cause": "division", "zeros": divided_by}, (Remedy("away from zero"),)
    if word == "pow" and zeros:
        return steep, (Remedy("away from zero"),)
    if word in ("acos", "asin", "atan2", "acosh", "atanh"):
        return {"cause": "slope at the end"}, (Remedy("inside its range"),)
    return {}, ()
