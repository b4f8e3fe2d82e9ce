"""A trace as a ribbon down the page: what ran, with input and output shapes, and what did not run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from modlab import format
from modlab.records.structure import ROOT
from modlab.records.trace import Event, EventFact, Reason, TraceRecord, Uncalled, Value
from modlab.views import numbers, sharding
from modlab.views.sheets.layout import Block, Box, Cell, Column, Flow, Mark, Row, Sheet
from modlab.wording import events, reasons
from modlab.wording.names import begun, named

_COLUMNS = (
    Column("in → out", "flow", 210, 3, 0),
    Column("time", "bar", 84, yields=3, measured=True),
    Column("new memory", "bar", 92, yields=5),
)
FACTS = 3  # in the headline
_GOT = ("gradient", "zero", "set to None")
_FINE = (*_GOT, "frozen", "not here", "integer", "no backward", "not asked for", "cannot be seen")
_CHANGES = ("in place", "puts others", "other values", "not compared")  # of hooks
_NESTS = ("names", "into", "out of", "otherwise", "instead")
_STAGES = ("forward pre-hook", "forward hook")  # hooks that see what is on its way forward
_PUTS = ("masked_fill", "fill", "full", "where", "full_like", "x[...] = y")  # functions that put given numbers somewhere
BOXES = 3  # that stand on one side of an arrow
LARGE = 80  # rows from which on only the upper ones are open
_SYMBOLS = {"function": "function", "hook": "hook", "backward": "gradient", "gradient": "gradient", "step": "step"}
_CAREFUL = (
    "leaves the graph",
    "has left the graph",
    "buffer joins",
    "gives its buffer",
    "not registered",
    "past its module",
    "under",
    "adds",
    "unlike",
)
_REASONS = 20
_NUMBER, _SPELLED = re.compile(r"(?<![^.])\d+(?![^.])"), 3
_NUMBERS = 12  # rows and columns up to which a small tensor is written out


def sheet(trace: TraceRecord) -> Sheet:
    """The view of a trace."""
    longest = max((event.seconds for event in trace.events), default=0.0)
    largest = max((event.bytes for event in trace.events if not _is_meta(event)), default=0)
    rows = list(_rows(trace, longest, largest))
    notes = [Block("not seen", prose=remark, mark="careful") for remark in trace.remarks]
    return Sheet(
        "trace",
        headline(trace),
        _COLUMNS,
        tuple(_opened(rows)),
        tuple([*_fixes(trace), *_ungraded(trace), *notes]),
        "call",
        foot=f"{format.plural(len(trace.events), 'event')} · times exclude the {format.seconds(trace.cost)} that tracing itself took",
        empty="nothing has run yet",
    )


def headline(trace: TraceRecord) -> tuple[str, str]:
    """What ended it, or how much of the model ran; then the most surprising facts."""
    broken = innermost_error(trace.events) if trace.error else None
    if trace.error and trace.explanation[0]:
        return trace.explanation[0], f"{trace.explanation[1]} Everything before it is below.".lstrip()
    if broken is not None:
        where = broken.name if broken.path is None else begun(broken.path)
        doing = f" in {broken.name}" if broken.kind != "module" else ""
        return f"{where} stopped{doing}: {broken.error}.", f"{_place(broken)}Everything before it is below." if broken.where else ""
    if trace.error:
        return f"{trace.title}: stopped by {trace.error}.", ""
    strong = f"{trace.title}: {trace.called:,} of {format.plural(trace.modules - trace.hidden, 'module')} ran"
    strong = ", ".join([strong, *sharding.spread(trace.ranks)])
    if trace.hidden == trace.modules > 0:
        strong = f"{trace.title}: whether {'its module' if trace.hidden == 1 else f'its {trace.hidden:,} modules'} ran cannot be seen"
    facts = list(islice(_facts(trace), FACTS))
    return (f"{strong};", f"{'; '.join(facts)}.") if facts else (f"{strong}.", "")


def _place(event: Event) -> str:
    return f"At {event.where}. " if event.where else ""


def innermost_error(events: Sequence[Event]) -> Event | None:
    """The event in which the exception arose, if it went all the way out."""
    last = max((event.index for event in events if event.depth == 0), default=-1)
    outer = next((event for event in events if event.index == last and event.error), None)
    inside = [event for event in events if event.index > last and event.error == outer.error] if outer is not None else []
    return inside[-1] if inside else outer


def _facts(trace: TraceRecord) -> Iterator[str]:
    """What is worth a sentence, most surprising first."""
    calls = [event for event in trace.events if event.kind == "module" and event.path is not None]
    root = next((event for event in calls if event.path == ""), None)
    broken = first_not_finite(trace.events)
    if broken is not None:
        place = broken.name if broken.path is None else named(broken.path)
        yield f"{_not_finite(broken.outputs)} first in {place}{f' ({_called(broken)})' if broken.kind != 'module' else ''}"
    elif (bad := next((e for e in trace.events if e.kind == "gradient" and _not_finite(e.inputs)), None)) is not None:
        yield f"{_not_finite(bad.inputs)} first in the gradient of {_place_of(bad)}'s output"
    if 0 < trace.hidden < trace.modules:
        yield f"whether {format.plural(trace.hidden, 'other')} did cannot be seen"
    past = [named(one.path) for one in trace.uncalled if one.kind == ".forward called"]
    yield from _listed(past, "was called through .forward, which skips its hooks", "were called through .forward, which skips their hooks")
    yield from _caught(trace)
    if root is not None and (off := root.fact("under")) is not None:
        yield f"the whole pass {events.said(off)}"
    lost = next(((event, fact) for event in trace.events if event.path is not None and (fact := event.fact("leaves the graph"))), None)
    if lost is not None:
        yield f"{lost[0].name}{f' in {named(lost[0].path)}' if lost[0].path else ''} {events.said(lost[1])}"
    joins = [named(event.path or "") for event in calls if event.fact("buffer joins")]
    yield from _listed(list(dict.fromkeys(joins)), "has a buffer that joins the graph", "have buffers that join the graph")
    given = [named(event.path or "") for event in calls if event.fact("gives its buffer")]
    yield from _listed(list(dict.fromkeys(given)), "returns its own buffer", "return their own buffers")
    sums = [fact for event in trace.events if (fact := event.fact("adds"))]
    if sums:
        yield f"backward {events.said(sums[-1])} (no zero_grad between)"
    steps = [(event.name, fact) for event in trace.events if (fact := event.fact("moves", "holds none"))]
    if steps and not any(fact.facts.get("moved") for _, fact in steps):
        name, fact = steps[-1]
        yield f"{name}'s step {events.said(fact)}" if fact.kind == "moves" else f"{name} {events.said(fact)}"
    if _went_back(trace):
        gone = [reason.path for reason in trace.reasons if reason.kind == "overwritten" and reason.arrived]
        yield from _listed(gone, "was replaced after it got its gradient", "were replaced after they got their gradients")
        without = [reason.path for reason in trace.reasons if reason.kind not in _FINE and reason.path not in gone]
        if len(without) == len(trace.reasons) > 1:
            yield f"none of its {len(without):,} parameters got a gradient"
        else:
            yield from _listed(without, "got no gradient")
        zero = [reason.path for reason in trace.reasons if reason.kind == "zero"]
        yield from _listed(zero, "got an all-zero gradient", "got all-zero gradients")
    yield from _changes(trace)
    yield from _listed([*_dead(trace.events)], "outputs only zeros", "output only zeros")
    yield from _listed([named(one.path) for one in trace.uncalled if one.kind == "never called"], "was never called", "were never called")
    again = {event.index for event in calls if event.fact("computed again")}
    yield from _listed(
        list(dict.fromkeys(named(event.path or "") for event in calls if event.index in again and event.parent not in again)),
        "ran again in the backward pass (checkpointing)",
    )
    yield from _listed([f"{path} ({times}×)" for path, times in _times(trace, again).items() if times > 1], "ran several times")
    if root is not None and root.training is False:
        yield "in evaluation mode"
    functions = list(dict.fromkeys(event.name for event in trace.events if event.kind == "function" and event.path is not None))
    if functions:
        many = format.plural(len(functions), "function that is not a module", "functions that are not modules")
        yield f"and {many} ({_few(functions)})"


def _went_back(trace: TraceRecord) -> bool:
    """Whether a backward pass ran to its end, or what it brings is there (one inside something compiled is not seen)."""
    passed = any(event.kind == "backward" and not event.error for event in trace.events)
    return passed or any(reason.kind in _GOT for reason in trace.reasons)


def _changes(trace: TraceRecord) -> Iterator[str]:
    """What hooks did that is worth a sentence; of one that ran several times, what it did the first time."""
    found: dict[tuple[str | None, str, str], list[str]] = {}
    for event in trace.events:
        hook, doing = event.fact("hook"), event.fact("does")
        if hook and doing and _matters(doing.facts) and not _is_torchs(event):
            found.setdefault((event.path, _called(event), events.said(hook)), []).append(events.said(doing))
    for (_, name, kind), doings in found.items():
        first = f" (the first of {len(doings)} times)" if len(doings) > 1 else ""
        yield f"{name}, a {kind}, {doings[0]}{first}"


def _dead(events: Sequence[Event]) -> Iterator[str]:
    """The activations that gave nothing but zeros; of one that did so in some of its calls, those."""
    alive = {event.path for event in events if event.kind == "module" and not _is_dead(event)}
    dead = [event for event in events if _is_dead(event)]
    modules = [event for event in dead if event.kind == "module"]
    places = ((one, _place_of(one)) for one in modules)
    yield from dict.fromkeys(f"{place} (call {one.call})" if one.path in alive else place for one, place in places)
    yield from (_place_of(event) for event in dead if event.kind != "module")


def _place_of(event: Event) -> str:
    return named(event.path) if event.path else event.name


def _times(trace: TraceRecord, left_out: Collection[int]) -> dict[str, int]:
    """How often what is at a path ran. A wrapper shares its path with what it wraps, which is another class."""
    recurs = _recurs(trace)
    calls = (event for event in trace.events if event.kind == "module" and event.index not in left_out)
    found: dict[str, int] = {}
    for (path, _), times in Counter((one.path, one.name) for one in calls if one.path or (one.path == "" and recurs)).items():
        found[named(path)] = max(found.get(named(path), 0), times)
    return found


def _recurs(trace: TraceRecord) -> bool:
    """Whether the model calls itself: that others call it several times is nothing to speak of."""
    calls = [event for event in trace.events if event.kind == "module" and event.path == ""]
    return any(above in calls and above.name == call.name for call in calls[1:] for above in _around(trace.events, call))


def _around(events: Sequence[Event], event: Event) -> Iterator[Event]:
    """The events inside which one happened; what a hook of a call that has ended does happened in what is around that."""
    while event.parent >= 0:
        event = events[event.parent]
        yield event


def _called(event: Event) -> str:
    """Its name; that of a hook's function without the word for a function inside another one."""
    return event.name.replace(".<locals>", "") if event.kind == "hook" else event.name


def _caught(trace: TraceRecord) -> Iterator[str]:
    """Exceptions that did not end the trace."""
    found: dict[str, list[str]] = {}
    for event in trace.events:
        caught = event.fact("caught") if event.error else None
        if caught is not None:
            place = event.name if event.kind not in ("module", "hook") or event.path is None else named(event.path)
            what = event.error.partition(":")[0]
            found.setdefault(f"{'was' if what == 'interrupted' else 'raised'} {what}, {events.said(caught)}", []).append(place)
    for doing, places in found.items():
        yield from _listed(list(dict.fromkeys(places)), doing)


def _is_torchs(event: Event) -> bool:
    """Whether a hook is one that tensor parallelism has put there: it lays tensors out over ranks."""
    return EventFact("put there", {"by": "torch.distributed"}) in event.facts


def _matters(doing: Mapping[str, Any]) -> bool:
    """Whether what a hook did is worth a sentence: other values, or a tensor of another kind."""
    turned = any(turn != "joined" for turn in doing.get("turns", ()))
    values = doing.get("change") in _CHANGES and doing["stage"] != "post-accumulate-grad hook"
    return turned or doing.get("nest") in _NESTS or (values and "nest" not in doing)


def _is_dead(event: Event) -> bool:
    """An activation with an output that is all zero."""
    stats = event.outputs[0].stats if event.outputs else None
    active = event.category == "activation" or (event.kind == "function" and event.name.endswith("relu"))
    return active and stats is not None and stats.measured and 1 < stats.count == stats.zeros


def first_not_finite(events: Sequence[Event], parent: int | None = None) -> Event | None:
    """The innermost of the earliest events that made NaN out of numbers, or a module that gives infinities.

    A function alone may be asked for infinities (the mask of an attention), which are gone again before its module ends.
    """
    begin = 0 if parent is None else parent + 1
    for event in events[begin:]:
        hook = event.fact("hook")
        stage = hook is not None and hook.facts["stage"] in _STAGES
        if not (stage or event.kind in ("module", "function")) or _not_finite(event.inputs):
            continue
        if parent not in (None, event.parent) and not (stage and events[event.parent].parent == parent):
            continue
        found = _not_finite(event.outputs)
        if found == "NaN" or (found and (event.kind != "function" or parent is not None)):
            return event if stage else first_not_finite(events, event.index) or event
    return None


def _makes(event: Event) -> str:
    """What is not finite in its outputs but was in its inputs, except infinities that a function was told to put there."""
    found = "" if _not_finite(event.inputs) else _not_finite(event.outputs)
    return "" if found == "Inf" and event.kind == "function" and event.name.rpartition(".")[2].rstrip("_") in _PUTS else found


def _not_finite(values: Iterable[Value]) -> str:
    """The word for what is not finite among them; or nothing."""
    stats = [value.stats for value in values if value.stats is not None and value.stats.measured]
    if any(one.nan for one in stats):
        return "NaN"
    return "Inf" if any(one.posinf + one.neginf for one in stats) else ""


def _listed(names: Sequence[str], one: str, many: str | None = None) -> Iterator[str]:
    """A fact about some paths; those that differ only in their numbers are one."""
    alike = Counter(_NUMBER.sub("*", name) if len(names) > _SPELLED else name for name in map(format.clean, names))
    if alike:
        said = [name if times == 1 else f"{name} ({times:,})" for name, times in alike.items()]
        yield f"{_few(said)} {one if len(names) == 1 else many or one}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _rows(trace: TraceRecord, longest: float, largest: int) -> Iterator[Row]:
    """The events, and below the call in which one would look for them the modules that did not run."""
    waiting = _absent(trace)
    open_calls: list[Event] = []
    strangers: Counter[tuple[int, str]] = Counter()
    for event in trace.events:
        while open_calls and open_calls[-1].depth >= event.depth:
            yield from waiting.pop(open_calls.pop().index, ())
        above = next((call.path for call in reversed(open_calls) if call.kind == "module" and call.path is not None), "")
        open_calls.append(event)
        row = _row(trace, event, above, longest, largest)
        if event.kind == "module" and event.path is None and event.call <= 1:
            strangers[event.parent, event.name] += 1  # without a path of their own, two of a class are told apart by a number
            number = strangers[event.parent, event.name]
            row = row if number == 1 else replace(row, name=f"{row.name} ({number})", kind="")
        yield row
    while open_calls:
        yield from waiting.pop(open_calls.pop().index, ())
    for rows in waiting.values():
        yield from rows


def _absent(trace: TraceRecord) -> dict[int, list[Row]]:
    """Rows for what did not run, by the first call of the nearest module above that did; -1 if none did."""
    first: dict[str, Event] = {}
    for event in trace.events:
        if event.kind == "module" and event.path is not None:
            first.setdefault(event.path, event)
    found: dict[int, list[Row]] = {}
    for one in trace.uncalled:
        above = one.path
        while above and above not in first:
            above = above.rpartition(".")[0]
        call = first.get(above)
        row = _absent_row(one, above, 0 if call is None else call.depth + 1)
        found.setdefault(-1 if call is None else call.index, []).append(row)
    return found


def _absent_row(one: Uncalled, above: str, depth: int) -> Row:
    reason = events.uncalled(one)
    cell = Cell(reason, flow=(reason,), mark="absent")
    name = _below(one.path, above)
    detail = Block("not called", prose=reason)
    return Row(one.path, name, one.type, "", one.category, mark="absent", depth=depth, cells=(cell, Cell(), Cell()), details=(detail,))


def _below(path: str, above: str) -> str:
    """The part of a dotted name that is not said by the call around it."""
    return path.removeprefix(f"{above}.") if above else path or ROOT


def _row(trace: TraceRecord, event: Event, above: str, longest: float, largest: int) -> Row:
    name = _below(event.path, above) if event.kind in ("module", "gradient") and event.path is not None else _called(event)
    later = (other for other in trace.events[event.index + 1 :] if other.error) if event.error else ()
    broken = bool(event.error) and not any(event in _around(trace.events, other) for other in later)
    words = [f"call {event.call}"] if event.call > 1 and event.kind == "module" else []
    words += [f"{event.times} equal calls"] if event.times > 1 else []
    words += event.marks
    if _makes(event):
        words.append(f"makes {_makes(event)}")
    if event.kind == "gradient" and _not_finite(event.inputs):
        words.append(f"contains {_not_finite(event.inputs)}")
    return Row(
        event.path,
        name,
        _kind(event),
        ", ".join(words),
        _SYMBOLS.get(event.kind, event.category or "own"),
        mark=_mark(event),
        depth=event.depth,
        cells=(
            Cell(_text(event, broken), flow=_flow(event, broken), mark="broken" if event.error else ""),
            Cell(format.seconds(event.seconds), event.seconds / longest if longest else 0.0) if event.kind != "gradient" else Cell(),
            _memory(event, largest),
        ),
        details=partial(_details, trace, event),
    )


def _memory(event: Event, largest: int) -> Cell:
    if not event.bytes:
        return Cell()
    return Cell("meta: none") if _is_meta(event) else Cell(format.size(event.bytes), event.bytes / largest)


def _is_meta(event: Event) -> bool:
    """Whether it gives tensors of the meta device alone, which take no memory."""
    return {value.device for value in _tensors(event.outputs)} == {"meta"}


def _kind(event: Event) -> str:
    if event.kind == "module":
        return event.name
    if event.kind == "gradient":
        return f"gradient of its {event.name}" if event.category == "parameter" else f"gradient of {event.name}'s output"
    return "" if event.kind == "hook" else event.kind


def _mark(event: Event) -> Mark:
    if event.error:
        return "broken"
    if _makes(event) or (event.kind == "gradient" and _not_finite(event.inputs)):
        return "careful"
    return "careful" if any(map(_is_careful, event.facts)) else ""


def _is_careful(fact: EventFact) -> bool:
    """Whether it is worth care; of what a hook did, what is no longer the tensor that it was, or cannot be seen."""
    doing: Mapping[str, Any] = fact.facts
    nested = doing.get("nest") in _NESTS
    return fact.kind in _CAREFUL or nested or "left" in doing.get("turns", ()) or doing.get("change") == "cannot be seen"


def _tensors(values: Iterable[Value]) -> list[Value]:
    return [value for value in values if value.shape is not None]


def _text(event: Event, innermost: bool) -> str:
    given, made = (", ".join(map(_shape, _tensors(values)[:BOXES])) for values in (event.inputs, event.outputs))
    if event.error:
        return f"{given} -> {_stop(event, innermost)}".strip()
    if event.kind == "gradient":
        return given
    if event.kind in ("backward", "step"):
        return format.plural(len(event.outputs), "gradient") if event.kind == "backward" else ""
    return f"{given} -> {made}" if made or given else ""


def _shape(value: Value) -> str:
    return str(value.shape) if value.sharding is None else f"{value.shape} {sharding.bracket(value.sharding)}"


def _stop(event: Event, innermost: bool) -> str:
    return event.error if innermost else "stopped inside"


def _flow(event: Event, innermost: bool) -> Flow:
    given, made = _boxes(event.inputs, fits=not (event.error and innermost)), _boxes(event.outputs)
    if event.error:
        return (*given, "→", f"✕ {_stop(event, innermost)}")
    if event.kind == "gradient":
        return given
    if event.kind in ("backward", "step"):
        return (_text(event, False),) if event.outputs else ()
    return (*given, "→", *made) if made or given else ()


def _boxes(values: Iterable[Value], fits: bool = True) -> Flow:
    tensors = _tensors(values)
    boxes: list[Box | str] = [boxed(value, fits) for value in tensors[:BOXES]]
    return (*boxes, f"+{len(tensors) - BOXES}") if len(tensors) > BOXES else tuple(boxes)


def boxed(value: Value, fits: bool = True) -> Box:
    """A tensor; of one that lies over several ranks, what of it is here and how it lies."""
    lies = value.sharding
    return Box(value.shape or (), fits) if lies is None else Box(value.shape or (), fits, lies.local_shape, sharding.placement(lies))


def _details(trace: TraceRecord, event: Event) -> Iterator[Block]:
    if event.error:
        yield Block("raised", prose=event.error, mark="broken")
    facts = [("called at", event.where)] if event.where and event.kind != "hook" else []
    facts += [("defined at", event.where)] if event.where and event.kind == "hook" else []
    if event.kind == "module" and event.training is not None:
        facts.append(("mode", "training" if event.training else "evaluation"))
    if event.bytes:
        size = format.size(event.bytes)
        facts.append(("new memory", f"none on meta; {size} if it were real" if _is_meta(event) else size))
    if event.memory is not None:
        facts.append(("allocator", f"{'+' if event.memory >= 0 else '-'}{format.size(abs(event.memory))}"))
    yield Block(_path(event), rows=tuple(facts))
    if event.kind != "gradient":
        spent = f"{format.seconds(event.seconds)}, {format.seconds(event.own_seconds)} of it its own"
        yield Block(rows=(("time", spent),), measured=True)
    if event.marks:
        yield Block("to be known", prose=". ".join(event.marks) + ".")
    before, after = {"gradient": ("gradient", ""), "hook": ("it received", "it returned")}.get(event.kind, ("inputs", "outputs"))
    yield from _values(before, event.inputs, trace.measured)
    yield from _values({"backward": "gradients", "step": "moved"}.get(event.kind, after), event.outputs, trace.measured)


def _path(event: Event) -> str:
    return "" if event.path is None else event.path or ROOT


_HEAD = ("name", "shape", "here", "placement", "mean ± std", "range", "note")
_MEASURED = ("mean ± std", "range")


def _values(caption: str, values: Sequence[Value], measured: bool) -> Iterator[Block]:
    if not values:
        return
    rows = [_value(value) for value in values]
    kept = [i for i in range(len(_HEAD)) if i == 0 or any(row[i] for row in rows)]
    here = f" {sharding.HERE}" if any(value.stats is not None and value.stats.of_part for value in values) else ""
    head = tuple(f"{_HEAD[i]}{here}" if _HEAD[i] in _MEASURED else _HEAD[i] for i in kept)
    yield Block(caption, head=head, rows=tuple(tuple(row[i] for i in kept) for row in rows))
    for value in values:
        matrix = value.numbers
        if matrix is not None and not matrix.slice and len(matrix.numbers) <= _NUMBERS and len(matrix.numbers[0]) <= _NUMBERS:
            cells = tuple(tuple(_number(number, value.dtype) for number in row) for row in matrix.numbers)
            yield Block(f"{value.name or 'output'} {format.shape(value.shape)}", rows=cells, grid=True)


def _number(number: float, dtype: str) -> str:
    """As torch prints it: four digits behind the point."""
    if not dtype.startswith(("float", "bfloat", "complex")):
        return format.number(int(number))
    return f"{number:.4f}" if 1e-4 <= abs(number) < 1e5 or number == 0 else format.number(number)


def _value(value: Value) -> tuple[str, ...]:
    name = value.name or "output"
    if value.shape is None:
        return name, value.text, "", "", "", "", value.note
    stats, spread, ends, odd = value.stats, "", "", []
    if stats is not None and stats.measured:
        if stats.finite:
            spread = f"{format.number(numbers.mean(stats))} ± {format.number(stats.std)}"
            ends = f"{format.number(stats.min)} … {format.number(stats.max)}"
        infinite = stats.posinf + stats.neginf
        odd = [f"{stats.nan:,} NaN"] * bool(stats.nan) + [f"{infinite:,} Inf"] * bool(infinite)
    if value.kind not in ("Tensor", "Parameter"):
        odd.append(value.kind)
    odd += [format.dtype(value.dtype)] * (value.dtype != "float32") + [f"on {value.device}"] * (value.device != "cpu")
    odd += ["requires grad"] * value.requires_grad + [value.note] * bool(value.note)
    return name, format.shape(value.shape), *sharding.placed(value.sharding, format.shape), spread, ends, ", ".join(odd)


def _fixes(trace: TraceRecord) -> Iterator[Block]:
    for number, (prose, code) in enumerate(trace.fixes):
        yield Block("" if number else "fix", prose=prose, code=code, mark="" if number else "fine")


def _ungraded(trace: TraceRecord) -> Iterator[Block]:
    """Why parameters have no gradient, where some got one: a line for each reason."""
    if not _went_back(trace):
        return
    alike: dict[str, list[Reason]] = {}
    for reason in trace.reasons:
        if reason.kind not in ("gradient", "set to None"):
            alike.setdefault(repr(reason.facts), []).append(reason)
    rows = [(_names([one.path for one in some]), reasons.said(some[0])) for some in alike.values()]
    if len(rows) > _REASONS:
        rows = [*rows[:_REASONS], ("...", f"{len(rows) - _REASONS:,} more reasons: t.why(path), t.reasons")]
    if rows:
        yield Block("no gradient or a zero one, and why", rows=tuple(rows), mark="careful")


def _names(paths: Sequence[str]) -> str:
    """Paths that differ only in their numbers as one, with their count."""
    alike = Counter(_NUMBER.sub("*", path) for path in paths) if len(paths) > _SPELLED else Counter(paths)
    said = [path if times == 1 else f"{path} ({times:,})" for path, times in alike.items()]
    return ", ".join(said[:8]) + (f" and {len(said) - 8:,} more" if len(said) > 8 else "")


def _opened(rows: list[Row]) -> Iterator[Row]:
    """Of many rows, the upper ones are open, and so is the path to what is broken."""
    if len(rows) <= LARGE:
        yield from rows
        return
    broken = [row.mark == "broken" for row in rows]
    for row, wrong in zip(rows, broken, strict=True):
        if wrong or row.depth < 2:
            yield row
        else:
            yield Row(
                row.path,
                row.name,
                row.kind,
                row.note,
                row.symbol,
                row.place,
                row.mark,
                row.depth,
                row.cells,
                False,
                row.details,
            )
