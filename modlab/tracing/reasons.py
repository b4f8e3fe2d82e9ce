"""Why a parameter has no gradient: one reason, with the event that shows it.

What is certain comes first: a gradient that is there, the parameter's own state, that it was not used. Then what autograd was
told, then what became of what was computed from it. Where a trace cannot see, that is the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab.compat import tensor_hooks, without_autograd
from modlab.inspection import stores
from modlab.inspection.index import Node
from modlab.records.finding import Remedy
from modlab.records.trace import Reason
from modlab.running.module_kinds import is_opaque
from modlab.statistics.memory import is_there, local
from modlab.tracing.calls import Call, Seen, Sight
from modlab.tracing.caught_exceptions import rescue
from modlab.tracing.functions import ARRAYS
from modlab.tracing.lineage import Lineage
from modlab.tracing.module_calls import INTERRUPTED
from modlab.tracing.not_called import called_above
from modlab.tracing.operations import CUT, Leaving
from modlab.tracing.recorded import Recorded
from modlab.tracing.trace_index import Owned, TraceIndex

Facts = dict[str, Any]
_Found = tuple[str, Facts, int]
Told = tuple[str, str, Facts, int, bool]
"""What makes a `Reason`: kind, path, facts, event and whether a gradient came."""


def _found(kind: str, case: str, event: int = -1, **facts: Any) -> _Found:
    return kind, {"case": case, **facts}, event


_NONE = _found("no backward", "no backward pass")
_MENDED = frozenset(("no_grad", "inference_mode", "detached", "off the path", "not called", "not used", ".forward called"))
"""Kinds for which `wording.fixes` knows what to do."""


def reason(told: Told) -> Reason:
    """The record of it."""
    kind, path, facts, event, arrived = told
    fixes = (Remedy(kind),) if kind in _MENDED else ()
    return Reason(kind, path, facts, fixes=fixes, event=event, arrived=arrived)


def of_parameters(recorded: Recorded, error: str = "") -> Iterator[Told]:
    """What makes a `Reason` for each parameter of the model, as it was when the trace began; `error` is what ended that."""
    calls: dict[int, Call] = {}
    for call in recorded.log.calls:
        if call.kind == "module" and (call.module not in calls or (call.grad and not calls[call.module].grad)):
            calls[call.module] = call
    ways, places = Ways(recorded), ParameterPlaces(recorded.index)
    silent = not (recorded.backward.passes or recorded.backward.arrived or recorded.backward.returned) and recorded.backward.raised < 0
    for one, renewed in _held(recorded, places):
        plain = silent and _is_plain(recorded, one, places)
        kind, facts, event = _NONE if plain else _reason(recorded, one, calls, ways, places, error)
        if renewed:
            facts = {**facts, "renewed": True}
        if id(one.tensor) in recorded.backward.stale and kind not in ("gradient", "zero", "set to None") and one.tensor.grad is not None:
            facts = {**facts, "stale": True}
        yield kind, one.path, facts, event, id(one.tensor) in recorded.backward.arrived


def _held(recorded: Recorded, places: ParameterPlaces) -> Iterator[tuple[Owned, bool]]:
    """The parameters, each with whether it was put into the place of another one since; of several the one that the model holds."""
    found: dict[str, tuple[Owned, bool]] = {}
    for one in recorded.index.parameters:
        if one.path not in found:
            if recorded.index.renewed.get(one.path) is not one or places.hold(one):
                found[one.path] = one, False
        elif places.hold(one):
            found[one.path] = one, True
    yield from found.values()


class ParameterPlaces:
    """What stands where in the model now."""

    def __init__(self, index: TraceIndex) -> None:
        self._index = index
        self._modules: dict[Node, Module | None] = {}

    def hold(self, one: Owned) -> bool:
        """Whether the model has this very tensor under its name, or what FSDP puts there: in its module, and that in its place."""
        node = self._index.node(one.owner)
        module = None if node is None else self._at(node)
        held = _of_store(one.owner if module is None else module, "_parameters", one.name)
        return held is one.tensor or (one.swap is not None and id(held) in one.keys)

    def _at(self, node: Node) -> Module | None:
        if node not in self._modules:
            if node.parent is None:
                return self._index.model
            outer = self._at(node.parent)
            self._modules[node] = None if outer is None else _of_store(outer, "_modules", node.name)
        return self._modules[node]


def _of_store(module: Module, store: str, name: str) -> Any:
    held = stores.contents(module).get(store) or {}
    return (held if isinstance(held, dict) else dict(held.items())).get(name)  # those of scripted modules are no dicts


class Export(NamedTuple):
    """What left the graph, the event in which it left torch as well, and the one in which a tensor of unknown origin comes in."""

    left: Leaving
    call: Call
    entry: Call | None


class Ways:
    """How what backward passes began from was computed; found out when it is asked for."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._found: dict[int, Lineage] = {}
        self._constants: set[int] | None = None

    def all(self) -> list[Lineage]:
        """One for each pass."""
        return [self.of(event) for event in self._recorded.backward.roots]

    def of(self, event: int) -> Lineage:
        """That of one pass."""
        if event not in self._found:
            self._found[event] = Lineage(self._recorded.log.calls, self._recorded.backward.roots[event])
        return self._found[event]

    def export(self, key: int, lineages: list[Lineage]) -> Export | None:
        """Where what had left the graph left torch too, as an array or as numbers that went into what a pass began from."""
        calls, operations = self._recorded.log.calls, self._recorded.operations
        for event in operations.exported:
            call = calls[event]
            entries = [way for way in lineages if way.takes(call)]
            strange = [entry for entry, seen in self.strange(lineages) if entry > event and _may_be(seen, call)]
            if not entries and not strange:
                continue
            before = self._of_call(call).events
            left = next((left for left in operations.left if key in left.sources and left.event in before), None)
            if left is not None:
                return Export(left, call, None if entries else calls[min(strange)])
        return None

    def strange(self, lineages: list[Lineage]) -> Iterator[tuple[int, Seen]]:
        """What nothing seen had made, and no module holds as a constant, with the event in which it is met first."""
        if self._constants is None:
            held = [thing for one in self._recorded.index.modules.values() for thing in stores.contents(one).values()]
            self._constants = {self._recorded.tensor_ids.number(thing) for thing in held if issubclass(type(thing), Tensor)}
        for way in lineages:
            yield from ((event, seen) for event, seen in way.strange if seen.sight.number not in self._constants)

    def _of_call(self, call: Call) -> Lineage:
        """How what an event took was computed."""
        if ~call.index not in self._found:
            self._found[~call.index] = Lineage(self._recorded.log.calls, call.inputs)
        return self._found[~call.index]

    def cut(self, key: int, lineages: list[Lineage]) -> Leaving | None:
        """Where, on the way to what a pass began from, something that was computed from a parameter left the graph: the first of these."""
        calls = self._recorded.log.calls
        for left in self._recorded.operations.left:
            if key not in left.sources:
                continue
            for way in lineages:
                if left.event in way.events or (left.how == "number" and way.takes(calls[left.event])):
                    return left
        return None


def _may_be(seen: Seen, call: Call) -> bool:
    """Whether a tensor of unknown origin may be the array of an event, taken back: it has as many elements."""
    shapes = [one.sight.shape for one in (*call.inputs[:1], seen)]
    return call.name in ARRAYS and len(shapes) == 2 and None not in shapes and prod(shapes[0] or ()) == prod(shapes[1] or ())


def _is_plain(recorded: Recorded, one: Owned, places: ParameterPlaces) -> bool:
    """Whether it is there, was used, and autograd noted that: then all depends on the backward pass."""
    tensor, key, uses = one.tensor, id(one.tensor), recorded.uses
    use = uses.taken.get(key, -1)
    if use < 0 or key in uses.lost or not tensor.requires_grad or uses.frozen.get(key) == use or not recorded.log.calls[use].grad:
        return False
    return places.hold(one)  # what requires a gradient holds numbers that can have one


def _reason(recorded: Recorded, one: Owned, calls: dict[int, Call], ways: Ways, places: ParameterPlaces, error: str) -> _Found:
    tensor, key, backward = one.tensor, id(one.tensor), recorded.backward
    arrived = backward.arrived.get(key)
    if arrived is not None and not places.hold(one):
        return _found("overwritten", "gone since", arrived)
    if _is_elsewhere(one):
        return _found("not here", "on other ranks")
    if arrived is not None:
        return _of_gradient(one, arrived, backward.values.get(one.path), key in backward.added)
    returned = backward.returned.get(key)
    if returned is not None:
        return _found("gradient", "given back", returned)
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return _found("integer", "whole numbers", dtype=str(tensor.dtype).removeprefix("torch."))
    use = _use(recorded, one, calls)
    if not places.hold(one):
        return _found("overwritten", "gone", use)
    if not tensor.requires_grad:
        return _found("frozen", "frozen", use)
    if key in recorded.uses.frozen and recorded.uses.frozen[key] == use:
        return _found("frozen", "frozen then", use, used=_named(recorded.log.calls[use]))
    if use < 0:
        return _of_unused(recorded, one)
    used = recorded.log.calls[use]
    if not used.grad:
        return _found(used.off, "without autograd", use, used=_named(used), mode=used.off, at=used.where)
    return _of_vain(recorded, key, used, error) or _of_graph(recorded, one, used, ways)


def _is_elsewhere(one: Owned) -> bool:
    """Whether a tensor that lies over several ranks has no part on this one."""
    if is_lazy(one.tensor) or local(one.tensor).numel():
        return False
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _of_vain(recorded: Recorded, key: int, used: Call, error: str) -> _Found | None:
    """It was used in nothing but what raised, and that was caught."""
    if key not in recorded.uses.lost or key in recorded.backward.reached:
        return None
    calls = recorded.log.calls
    raised = calls[recorded.uses.lost[key][1]]
    found = rescue(calls, raised, error, recorded.log.stack)
    if found is None:
        return None
    facts: Facts = {"name": _named(raised), "at": raised.where, "error": _error(raised), "by": found.by}
    if raised.kind == "hook":
        first = raised.facts[0]
        facts |= {"name": raised.name, "used": _named(used), "hook": ({"kind": first.kind, "facts": dict(first.facts)},)}
    elif raised is not used:
        facts["used"] = _named(used)
    if found.call.error != raised.error:
        facts |= {"outer": _named(found.call), "outer error": _error(found.call)}
    return _found("raised", "raised", raised.index, **facts)


def _error(call: Call) -> str:
    """What it raised; nothing where it was interrupted."""
    return "" if call.error == INTERRUPTED else call.error


def _of_graph(recorded: Recorded, one: Owned, used: Call, ways: Ways) -> _Found:
    """It was used, and autograd noted that: so what became of it?"""
    backward, key = recorded.backward, id(one.tensor)
    if backward.raised >= 0 and key not in backward.reached:
        return _of_raised(recorded, key, used, ways)
    if not backward.passes:
        return _NONE
    if key in backward.reached:
        if backward.chosen:
            return _found("not asked for", "other inputs", used.index)
        return _found("stopped on the way", "stopped", used.index, hooks=bool(tensor_hooks(one.tensor)))
    lineages = ways.all()
    left = ways.cut(key, lineages)
    if left is not None:
        return _of_cut(recorded, left)
    export = ways.export(key, lineages)
    if export is not None:
        return _of_export(recorded, export)
    if recorded.blind:
        return _found("cannot be seen", "pass not watched", used.index)
    if not backward.known:
        return _found("cannot be seen", "large graph", used.index)
    if not backward.kept and backward.returned and key not in backward.refused:
        return _found("not asked for", "others given back", used.index)
    return _off_the_path(recorded, one, used, ways)


def _of_raised(recorded: Recorded, key: int, used: Call, ways: Ways) -> _Found:
    event = recorded.backward.raised
    raised = recorded.log.calls[event]
    roots = recorded.backward.roots.get(event, ())
    if roots and not any(seen.requires_grad for seen in roots):
        left = ways.cut(key, [ways.of(event)])
        if left is not None:
            kind, facts, event = _of_cut(recorded, left)
            return kind, {**facts, "no graph": True}, event
        if used.excused:
            return _found("off the path", "no graph in a function", used.index, used=_named(used))
    return _found("no backward", "backward raised", event, error=raised.error)


def _of_cut(recorded: Recorded, left: Leaving) -> _Found:
    call = recorded.log.calls[left.event]
    how = "numbers" if left.how == "number" and call.name == "Tensor.tolist" else left.how
    if left.how == "whole" and all(fact.kind != CUT for fact in call.facts):
        call.mark(CUT, mode="")
    kind = how if how in ("no_grad", "inference_mode") else "detached"
    return _found(kind, "cut", left.event, how=how, name=call.name, inside=call.path or "", at=call.where)


def _of_export(recorded: Recorded, export: Export) -> _Found:
    """It went round autograd: out as an array or as numbers, and in again."""
    kind, facts, event = _of_cut(recorded, export.left)
    call = export.call
    facts |= {"out": call.name, "out at": call.where}
    if export.entry is not None:
        return kind, {**facts, "entry": _named(export.entry), "entry at": export.entry.where}, event
    return kind, {**facts, "form": "array" if call.name in ARRAYS else "numbers" if call.name == "Tensor.tolist" else "number"}, event


def _off_the_path(recorded: Recorded, one: Owned, used: Call, ways: Ways) -> _Found:
    """The graph does not lead to it. Where that was cut is not proven; what may have to do with it is said as it was seen."""
    replaced = recorded.uses.replaced.get((id(one.owner), one.name))
    if replaced is not None:
        return _found("overwritten", "replaced", replaced, module=recorded.index.paths[id(one.owner)])
    if used.excused:
        return _found("off the path", "in a function", used.index, used=_named(used))
    calls = recorded.log.calls
    strange = [event for event, _ in ways.strange(ways.all()) if event > used.index]
    if strange:
        call = calls[min(strange)]
        return _found("off the path", "beside a stranger", call.index, used=_named(used), name=_named(call), at=call.where)
    return _found("off the path", "off the path", used.index, used=_named(used))


def _of_gradient(one: Owned, arrived: int, value: Sight | None, added: bool) -> _Found:
    """What kind of gradient it got: as it was when it arrived, whatever became of it since."""
    stats = None if value is None else value.stats
    if stats is not None and stats.measured:
        bad = stats.count - stats.finite
        zero, odd = bool(stats.count) and stats.zeros == stats.count, {"bad": bad, "count": stats.count} if bad else {}
    else:
        zero, odd = _is_zero(one.tensor.grad), {}
    if one.tensor.grad is None:
        return _found("set to None", "set to None", arrived, **({"zero": True} if zero else odd))
    if zero:
        return _found("zero", "zero", arrived)
    if stats is not None and stats.measured and _is_zero(one.tensor.grad):
        return _found("gradient", "set to zero", arrived, **odd)
    return _found("gradient", "gradient", arrived, **odd, added=added)


def _is_zero(gradient: Tensor | None) -> bool:
    if type(gradient) is not Tensor or gradient.layout is not torch.strided or gradient.is_nested or not is_there(gradient):
        return False
    return without_autograd(lambda: not bool(gradient.detach().ne(0).any()))


def _of_unused(recorded: Recorded, one: Owned) -> _Found:
    key, path = id(one.owner), recorded.index.paths[id(one.owner)]
    direct = recorded.operations.direct.get(key)
    if direct is not None:
        return _found(".forward called", ".forward called", direct.event, module=path, at=direct.where)
    called = bool(recorded.modules.times[key])
    unseen = "another thread" if key in recorded.modules.elsewhere else "inside of compiled" if key in recorded.modules.wrapped else ""
    if unseen and not called:
        return _found("cannot be seen", unseen, module=path)
    if is_opaque(one.owner):
        return _found("cannot be seen", "opaque", module=path, opaque=is_opaque(one.owner))
    if recorded.blind:
        return _found("cannot be seen", "compiled part", module=path)
    above = _above(recorded, one.owner)
    if above is not None and is_opaque(above[1]):
        return _found("cannot be seen", "inside of opaque", above=above[0], opaque=is_opaque(above[1]))
    if recorded.folded is not None and called:
        return _found("cannot be seen", "folded")
    replaced = recorded.uses.replaced.get((key, one.name))
    if replaced is not None:
        return _found("overwritten", "replaced", replaced, module=path)
    return _found("not used", "not used", module=path) if called else _found("not called", "not called", module=path)


def _above(recorded: Recorded, owner: Module) -> tuple[str, Module] | None:
    node = recorded.index.node(owner)
    return None if node is None else called_above(recorded, node)


def _use(recorded: Recorded, one: Owned, calls: dict[int, Call]) -> int:
    """The event that shows that it was used, or -1."""
    found = recorded.uses.first(id(one.tensor))
    if found >= 0:
        return found
    call = calls.get(id(one.owner))
    if call is None:  # attention uses the weights of its parts itself
        above = _above(recorded, one.owner)
        call = None if above is None or is_opaque(above[1]) else calls.get(id(above[1]))
    return call.index if call is not None and call.fused else -1


def _around(recorded: Recorded, call: Call) -> Iterator[Call]:
    yield call
    while call.parent >= 0:
        call = recorded.log.calls[call.parent]
        yield call


def _named(call: Call) -> str:
    return call.name if call.kind == "function" else call.path or call.name
