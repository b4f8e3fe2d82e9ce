"""A recorded pass → the first module or function in it that made numbers that are not finite from finite ones.

The way is walked backwards: from an output that is not finite to the event that made it, from there to what that took. So what
is infinite on purpose, as a mask of attention is, and does no harm, is not named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from modlab import format
from modlab.records.structure import ROOT
from modlab.records.trace import Event, Value

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
DATA = "look at the data where this batch is made"
_LARGEST = {"float16": "65,504", "bfloat16": "3.39e38", "float32": "3.40e38", "float64": "1.80e308"}


class NaNOrigin(NamedTuple):
    """Where it began.

    Attributes:
        where: "forward", "the batch" or "the weights".
        path: of the module, or the tensor's name; `name` is what is called there.
        event: its number in the trace.
        kind: "nan" or "inf".
        text: a sentence; `fix` is advice.
        begin: where the sentence begins with the place, what it says of that; `why` is what follows.
    """

    where: str
    path: str
    name: str
    event: int
    kind: str
    text: str
    fix: str = ""
    begin: str = ""
    why: str = ""


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

    def of_outputs(self, root: Event) -> NaNOrigin | None:
        """Why the outputs of the root's call are not finite; None if they are."""
        bad = [value for value in root.outputs if is_bad(value)]
        seen: set[int] = set()
        for value in sorted(bad, key=lambda value: not _holds_nan(value)):
            found = self._of_value(value, root, root, seen)
            if found is not None:
                return found
        return self._first(self._ended) if bad else None

    def _of_value(self, value: Value, taker: Event, root: Event, seen: set[int]) -> NaNOrigin | None:
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

    def _without_maker(self, value: Value, taker: Event, root: Event, seen: set[int]) -> NaNOrigin | None:
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

    def _first(self, events: Iterable[Event]) -> NaNOrigin | None:
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


def _born(event: Event) -> NaNOrigin:
    value = next((one for one in event.outputs if _holds_nan(one)), None) or next(one for one in event.outputs if is_bad(one))
    path, kind = event.path or "", kind_of_value(value)
    place = f" in {path or ROOT}" if event.kind == "function" else f" of {path or ROOT}" if event.kind == "hook" else ""
    subject = f"{event.name}{place}" if event.kind != "module" else f"{path or ROOT} ({event.name})"
    at = f" ({event.where})" if event.where and event.kind != "module" else ""
    finite = not any(map(is_bad, event.inputs))
    source = "from finite numbers" if finite else "from infinities that are there on purpose"
    why, fix = explain(word_of(event.name), event.inputs, value, forward=True)
    begin = f"{subject} gives {amount(value)} {source}{at}"
    return NaNOrigin("forward", path, event.name, event.index, kind, f"{begin}: {why}" if why else begin, fix, begin, why)


def _batch(value: Value, root: Event) -> NaNOrigin:
    name = value.name or "the input"
    return NaNOrigin(
        "the batch",
        name,
        name,
        root.index,
        kind_of_value(value),
        f"the batch: {name} holds {amount(value)}",
        DATA,
    )


def _weights(value: Value) -> NaNOrigin:
    text = f"{value.owner} held {amount(value)} before this step began"
    return NaNOrigin("the weights", value.owner, value.owner, -1, "nan", text, begin=text)


def _unseen(event: Event, value: Value) -> NaNOrigin:
    path = event.path or ""
    text = f"what {event.name} in {path or ROOT} takes holds {amount(value)}, made where it cannot be seen"
    return NaNOrigin("forward", path, event.name, event.index, kind_of_value(value), text, begin=text)


def amount(value: Value) -> str:
    """How many numbers of a tensor are not finite: "3 NaN of 640 numbers"."""
    stats = value.stats
    if stats is None:
        return "NaN or infinity"
    found = [(stats.nan, "NaN"), (stats.posinf, "+inf"), (stats.neginf, "-inf")]
    parts = [f"{count:,} {word}" for count, word in found if count]
    return f"{' and '.join(parts)} of {format.plural(stats.count, 'number')}"


def word_of(name: str) -> str:
    """What a function does, in torch's own word: "torch.log" and "Tensor.log_" → "log", "x / y" → "div"."""
    return _OPERATORS.get(name, name.rpartition(".")[2].strip("_").lower())


def explain(word: str, inputs: Sequence[Value], value: Value | None, *, forward: bool) -> tuple[str, str]:
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
        return _explain_backward(word, zeros)
    if word in ("log", "log2", "log10") and (zeros or negative):
        what = " and ".join(filter(None, (f"{zeros:,} of its inputs are 0" * bool(zeros), "some are negative" * negative)))
        return what, "keep its input above zero: torch.log(x.clamp_min(1e-8))"
    if word in ("div", "true_divide", "reciprocal", "rsqrt") and measured and measured[-1].zeros:
        return f"{measured[-1].zeros:,} of the numbers it divides by are 0", "add a small number to what it divides by: x / (y + 1e-8)"
    if word == "sqrt" and negative:
        return "some of its inputs are negative", "keep its input at zero or above: torch.sqrt(x.clamp_min(0))"
    if word in ("softmax", "log_softmax") and any(one.neginf for one in measured):
        return "a row of its input is -inf throughout", "let the mask leave at least one place in each row"
    overflows = value is not None and value.stats is not None and (value.dtype == "float16" or not value.stats.nan)
    if value is not None and overflows and value.dtype in _LARGEST:
        return f"{value.dtype} holds numbers up to {_LARGEST[value.dtype]}", _for_overflow(value.dtype)
    return "", ""


def _explain_backward(word: str, zeros: int) -> tuple[str, str]:
    mask = "; if it stands under torch.where, mask what goes into it, not what comes out"
    if word in ("sqrt", "rsqrt") or "norm" in word:
        return "its slope at 0 is infinite", f"keep what is under the root above zero: torch.sqrt(x + 1e-8){mask}"
    if word in ("log", "log2", "log10", "div", "reciprocal", "pow"):
        return "its slope at 0 is infinite" if zeros else "", f"keep it away from zero: add 1e-8{mask}"
    if word in ("acos", "asin", "atan2", "acosh", "atanh"):
        return "its slope is infinite at the end of its range", f"keep its input inside: x.clamp(-1 + 1e-6, 1 - 1e-6){mask}"
    return "", ""


def _for_overflow(dtype: str) -> str:
    if dtype == "float16":
        return "run this part in float32: with torch.autocast(device_type, enabled=False), or use bfloat16"
    return "make what goes in smaller: a lower learning rate, torch.nn.utils.clip_grad_norm_, a normalization before it"
