"""A profile of `torch.profiler`, read by the marks that name modules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from statistics import median_low
from typing import Any

from torch.autograd.profiler_util import StringTable
from torch.nn import Module

from modlab.errors import ProfileError
from modlab.format import clean
from modlab.frozen import frozen
from modlab.inspection import structure
from modlab.records.costs import CostRecord, CostsRecord
from modlab.records.structure import ROOT


@frozen
class _Call:
    """One marked stretch of time: microseconds and bytes, in all and without those marked inside."""

    time: float
    own_time: float
    memory: int
    own_memory: int


def read(model: Module, profiler: Any) -> CostsRecord:
    """Time and memory of each module of `model` in a finished profile.

    Raises:
        ProfileError: `profiler` is none, has not run, or names no module of this model.
    """
    events = _events(profiler)
    tree = structure.extract(model)
    places = [record for record in tree.rows() if record.same_as is None and not record.reserved]
    written = StringTable()  # the profiler reads each name as a C++ symbol, in which 2 letters follow a 2: "2.0" becomes ".0"
    names = {written[record.path or ROOT]: record.path or ROOT for record in places}
    marks = [event for event in events if event.name in names and event.is_user_annotation and str(event.device_type) == "DeviceType.CPU"]
    if not marks:
        raise ProfileError(
            f"This profile names no module of {clean(tree.root.type)}: no time range is labelled with a module's name.\n"
            "  Label each call with torch.profiler.record_function(name) in two forward hooks, using the name from named_modules()."
        )
    device = any(event.device_time_total for event in marks)
    calls = _calls(marks, names, device)
    memory = any(event.cpu_memory_usage or event.device_memory_usage for event in events)
    rows: dict[str, CostRecord] = {}
    for record in places:
        row = CostRecord(record.path, record.type, record.subtree.category, record.depth, record.total_parameters, record.own_parameters)
        found = calls.get(record.path or ROOT)
        rows[record.path] = _measured(row, found, memory) if found else row
    return CostsRecord(tree.root.type, tuple(_summed(rows, memory)), "accelerator" if device else "cpu")


def _events(profiler: Any) -> Iterable[Any]:
    asked = getattr(profiler, "events", None)
    if not callable(asked):
        raise ProfileError(
            f"modlab.costs() got a {type(profiler).__name__}, but needs a finished profile.\n"
            "  Write: with torch.profiler.profile(profile_memory=True) as profiler: model(x), and pass the profiler."
        )
    try:
        return list(asked() or ())
    except (AssertionError, RuntimeError) as error:
        raise ProfileError(f"This profile has not run yet ({error}).\n  Pass it after its with block.") from error


def _calls(marks: list[Any], names: dict[str, str], device: bool) -> dict[str, list[_Call]]:
    """The calls by name; what lies in a marked call inside is not the outer one's own."""
    known = {id(event) for event in marks}
    inside_time: dict[int, float] = defaultdict(float)
    inside_memory: dict[int, int] = defaultdict(int)
    for event in marks:
        outer = event.cpu_parent
        while outer is not None and id(outer) not in known:
            outer = outer.cpu_parent
        if outer is not None:
            inside_time[id(outer)] += _time(event, device)
            inside_memory[id(outer)] += _memory(event, device)
    found: dict[str, list[_Call]] = defaultdict(list)
    for event in marks:
        time, memory = _time(event, device), _memory(event, device)
        found[names[event.name]].append(_Call(time, max(time - inside_time[id(event)], 0.0), memory, memory - inside_memory[id(event)]))
    return found


def _time(event: Any, device: bool) -> float:
    return float(event.device_time_total if device else event.cpu_time_total)


def _memory(event: Any, device: bool) -> int:
    return int(event.device_memory_usage if device else event.cpu_memory_usage)


def _measured(row: CostRecord, calls: list[_Call], memory: bool) -> CostRecord:
    times = len(calls)
    return replace(
        row,
        calls=times,
        seconds=times * min(call.time for call in calls) / 1e6,
        own_seconds=times * min(call.own_time for call in calls) / 1e6,
        bytes=times * median_low(call.memory for call in calls) if memory else None,
        own_bytes=times * median_low(call.own_memory for call in calls) if memory else None,
    )


def _summed(rows: dict[str, CostRecord], memory: bool) -> Iterable[CostRecord]:
    """A module without marks has the sum of those right below it, children first."""
    seconds: dict[str, float] = defaultdict(float)
    size: dict[str, int] = defaultdict(int)
    done: dict[str, CostRecord] = {}
    for path, row in reversed(rows.items()):
        if not row.calls:
            row = replace(row, seconds=seconds[path], bytes=size[path] if memory else None)
        done[path] = row
        if path:
            above = path.rpartition(".")[0]
            seconds[above] += row.seconds
            size[above] += row.bytes or 0
    return reversed(done.values())
