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
from modlab.statistics.memory import is_there, local
from modlab.tracing.calls import Call, Seen, Sight
from modlab.tracing.caught_exceptions import rescue
from modlab.tracing.functions import ARRAYS
from modlab.tracing.lineage import Lineage
from modlab.tracing.module_calls import INTERRUPTED
from modlab.tracing.not_called import called_above
from modlab.tracing.operations import CUT, Leaving
from modlab.tracing.recorded import Recorded
from modlab.tracing.roster import Owned, Roster, is_opaque
from modlab.wording import events

_Found = tuple[str, str, int]
Told = tuple[str, str, str, int, bool]
_NONE = "no backward", "no backward pass ran in this trace", -1
_RENEWED = "; it is another tensor than when the trace began: an optimizer that was made before does not hold it"
_REPLACED = "another tensor stood in its place when {} ran (torch.func.functional_call does so)"
_FUNCTION = (
    "it ran inside a torch.autograd.Function, which made no graph to it (checkpoint(..., use_reentrant=True) makes none where no input "
    "requires grad)"
)
_STALE = "; its .grad is that of an earlier pass"
_HOW = {
    "detached": ("detached", "detached: what was computed from it left the graph in"),
    "no_grad": ("no_grad", "under no_grad: what was computed from it left the graph in"),
    "inference_mode": ("inference_mode", "under inference_mode: what was computed from it left the graph in"),
    "number": ("detached", "off the path to the loss: what was computed from it ended as a plain number in"),
    "numbers": ("detached", "off the path to the loss: what was computed from it ended as plain numbers in"),
    "whole": ("detached", "off the path to the loss: what was computed from it became whole numbers, which carry no gradient, in"),
}


def of_parameters(recorded: Recorded, error: str = "") -> Iterator[Told]:
    """What makes a `Reason` for each parameter of the model, as it was when the trace began; `error` is what ended that."""
    calls: dict[int, Call] = {}
    for call in recorded.log.calls:
        if call.kind == "module" and (call.module not in calls or (call.grad and not calls[call.module].grad)):
            calls[call.module] = call
    ways, places = Ways(recorded), ParameterPlaces(recorded.roster)
    silent = not (recorded.backward.passes or recorded.backward.arrived or recorded.backward.returned) and recorded.backward.raised < 0
    for one, renewed in _held(recorded, places):
        plain = silent and _is_plain(recorded, one, places)
        kind, text, event = _NONE if plain else _reason(recorded, one, calls, ways, places, error)
        if renewed:
            text += _RENEWED
        stale = (
            id(one.tensor) in recorded.backward.stale and kind not in ("gradient", "zero", "set to None") and one.tensor.grad is not None
        )
        yield one.path, kind, text + _STALE if stale else text, event, id(one.tensor) in recorded.backward.arrived


def _held(recorded: Recorded, places: ParameterPlaces) -> Iterator[tuple[Owned, bool]]:
    """The parameters, each with whether it was put into the place of another one since; of several the one that the model holds."""
    found: dict[str, tuple[Owned, bool]] = {}
    for one in recorded.roster.parameters:
        if one.path not in found:
            if recorded.roster.renewed.get(one.path) is not one or places.hold(one):
                found[one.path] = one, False
        elif places.hold(one):
            found[one.path] = one, True
    yield from found.values()


class ParameterPlaces:
    """What stands where in the model now."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._modules: dict[Node, Module | None] = {}

    def hold(self, one: Owned) -> bool:
        """Whether the model has this very tensor under its name, or what FSDP puts there: in its module, and that in its place."""
        node = self._roster.node(one.owner)
        module = None if node is None else self._at(node)
        held = _of_store(one.owner if module is None else module, "_parameters", one.name)
        return held is one.tensor or (one.swap is not None and id(held) in one.keys)

    def _at(self, node: Node) -> Module | None:
        if node not in self._modules:
            if node.parent is None:
                return self._roster.model
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
            held = [thing for one in self._recorded.roster.modules.values() for thing in stores.contents(one).values()]
            self._constants = {self._recorded.sightings.number(thing) for thing in held if issubclass(type(thing), Tensor)}
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
        text = "a gradient came, and the model holds another tensor, or None, under this name now: the one that got it is gone"
        return "overwritten", text, arrived
    if _is_elsewhere(one):
        return "not here", "this rank holds nothing of it, and so nothing of its gradient", -1
    if arrived is not None:
        return _of_gradient(one, arrived, backward.values.get(one.path), key in backward.added)
    returned = backward.returned.get(key)
    if returned is not None:
        return "gradient", "its gradient was given back by torch.autograd.grad, which changes no .grad", returned
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return "integer", f"it holds {str(tensor.dtype).removeprefix('torch.')}, and whole numbers have no gradient", -1
    use = _use(recorded, one, calls)
    if not places.hold(one):
        return (
            "overwritten",
            "the model holds another tensor, or None, under this name now; the one that was there when it ran is gone",
            use,
        )
    if not tensor.requires_grad:
        return "frozen", "frozen: its requires_grad is False", use
    if key in recorded.uses.frozen and recorded.uses.frozen[key] == use:
        return "frozen", f"frozen: its requires_grad was False when {_named(recorded.log.calls[use])} ran", use
    if use < 0:
        return _of_unused(recorded, one)
    used = recorded.log.calls[use]
    if not used.grad:
        return used.off, f"{_named(used)} ran under {used.off}{_at(used)}, where autograd notes nothing", use
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
    who = f"{_named(raised)} was called{_at(raised)} and"
    if raised.kind == "hook":
        who = f"the {events.said(raised.facts[0])} {raised.name} on {_named(used)}"
    elif raised is not used:
        who = f"{_named(used)} ran inside {_named(raised)}, which was called{_at(raised)} and"
    on = "" if found.call.error == raised.error else f", whereupon {_named(found.call)} {_raised(found.call)}"
    return "raised", f"{who} {_raised(raised)}{on}, {events.caught(found.by)}: nothing came out", raised.index


def _raised(call: Call) -> str:
    return "was interrupted" if call.error == INTERRUPTED else f"raised {call.error}"


def _of_graph(recorded: Recorded, one: Owned, used: Call, ways: Ways) -> _Found:
    """It was used, and autograd noted that: so what became of it?"""
    backward, key = recorded.backward, id(one.tensor)
    if backward.raised >= 0 and key not in backward.reached:
        return _of_raised(recorded, key, used, ways)
    if not backward.passes:
        return _NONE
    if key in backward.reached:
        if backward.chosen:
            return "not asked for", "the backward pass asked for the gradients of other tensors alone (inputs=)", used.index
        taken = ", or a hook of its own took it away" if tensor_hooks(one.tensor) else ""
        return "stopped on the way", f"the graph leads to it, and no gradient came: a function on the way gave none{taken}", used.index
    lineages = ways.all()
    left = ways.cut(key, lineages)
    if left is not None:
        return _of_cut(recorded, left)
    export = ways.export(key, lineages)
    if export is not None:
        return _of_export(recorded, export)
    if recorded.blind:
        return "cannot be seen", "a part of the model is compiled, so the backward pass was not watched", used.index
    if not backward.known:
        return "cannot be seen", "the graph of the loss is too large to be walked", used.index
    if not backward.kept and backward.returned and key not in backward.refused:
        return "not asked for", "torch.autograd.grad gave back the gradients of other tensors alone", used.index
    return _off_the_path(recorded, one, used, ways)


def _of_raised(recorded: Recorded, key: int, used: Call, ways: Ways) -> _Found:
    event = recorded.backward.raised
    raised = recorded.log.calls[event]
    roots = recorded.backward.roots.get(event, ())
    if roots and not any(seen.requires_grad for seen in roots):
        left = ways.cut(key, [ways.of(event)])
        if left is not None:
            kind, text, event = _of_cut(recorded, left)
            return kind, f"the loss has no graph; {text}", event
        if used.excused:
            return "off the path", f"the loss has no graph; {_named(used)} used it, and {_FUNCTION}", used.index
    return "no backward", f"the backward pass raised {raised.error}", event


def _of_cut(recorded: Recorded, left: Leaving) -> _Found:
    call = recorded.log.calls[left.event]
    kind, text = _HOW["numbers" if left.how == "number" and call.name == "Tensor.tolist" else left.how]
    if left.how == "whole" and all(fact.kind != CUT for fact in call.facts):
        call.mark(CUT, mode="")
    return kind, f"{text} {call.name}{_in(call)}{_at(call)}", left.event


def _of_export(recorded: Recorded, export: Export) -> _Found:
    """It went round autograd: out as an array or as numbers, and in again."""
    kind, text, event = _of_cut(recorded, export.left)
    call = export.call
    if export.entry is None:
        what = "an array" if call.name in ARRAYS else "plain numbers" if call.name == "Tensor.tolist" else "a plain number"
        return kind, f"{text}, and went on as {what} from {call.name}{_at(call)}", event
    return (
        kind,
        (
            f"{text}, and torch in {call.name}{_at(call)}; {_named(export.entry)}{_at(export.entry)} takes a tensor that nothing seen "
            "here has made, as torch.from_numpy gives one"
        ),
        event,
    )


def _off_the_path(recorded: Recorded, one: Owned, used: Call, ways: Ways) -> _Found:
    """The graph does not lead to it. Where that was cut is not proven; what may have to do with it is said as it was seen."""
    replaced = recorded.uses.replaced.get((id(one.owner), one.name))
    if replaced is not None:
        return "overwritten", _REPLACED.format(recorded.roster.paths[id(one.owner)] or "the model"), replaced
    text = f"off the path to the loss: {_named(used)} used it, and nothing of that reached what backward() began from"
    if used.excused:
        return "off the path", f"{text}: {_FUNCTION}", used.index
    calls = recorded.log.calls
    strange = [event for event, _ in ways.strange(ways.all()) if event > used.index]
    if strange:
        call = calls[min(strange)]
        return (
            "off the path",
            (
                f"{text}; {_named(call)}{_at(call)} takes a tensor without a graph that nothing seen here has made "
                "(a constant, numpy, or a torch.autograd.Function)"
            ),
            call.index,
        )
    return "off the path", text, used.index


def _of_gradient(one: Owned, arrived: int, value: Sight | None, added: bool) -> _Found:
    """What kind of gradient it got: as it was when it arrived, whatever became of it since."""
    stats = None if value is None else value.stats
    if stats is not None and stats.measured:
        bad = stats.count - stats.finite
        zero, odd = bool(stats.count) and stats.zeros == stats.count, f" with {bad:,} of {stats.count:,} not finite" if bad else ""
    else:
        zero, odd = _is_zero(one.tensor.grad), ""
    if one.tensor.grad is None:
        return (
            "set to None",
            f"it got a gradient{', zero everywhere' if zero else odd}, and that was set to None since (zero_grad does so, or a hook)",
            arrived,
        )
    if zero:
        return "zero", "it has a gradient, and that is zero everywhere", arrived
    if stats is not None and stats.measured and _is_zero(one.tensor.grad):
        return "gradient", f"it got a gradient{odd}, and that was set to zero since (zero_grad(set_to_none=False) does so)", arrived
    sum_of = ", added to the one that was there before (no zero_grad between)" if added else ""
    return "gradient", f"it has a gradient{odd}{sum_of}", arrived


def _is_zero(gradient: Tensor | None) -> bool:
    if type(gradient) is not Tensor or gradient.layout is not torch.strided or gradient.is_nested or not is_there(gradient):
        return False
    return without_autograd(lambda: not bool(gradient.detach().ne(0).any()))


def _of_unused(recorded: Recorded, one: Owned) -> _Found:
    path = recorded.roster.paths[id(one.owner)]
    name = path or "the model"
    direct = recorded.operations.direct.get(id(one.owner))
    if direct is not None:
        where = f" at {direct.where}" if direct.where else ""
        return ".forward called", f"{name} was called through .forward{where}, past the hooks that would have used it", direct.event
    if id(one.owner) in recorded.modules.elsewhere and not recorded.modules.times[id(one.owner)]:
        return "cannot be seen", f"{name} was called in another thread, which is not followed", -1
    if id(one.owner) in recorded.modules.wrapped and not recorded.modules.times[id(one.owner)]:
        return "cannot be seen", f"whether {name} used it cannot be seen: it is inside something compiled", -1
    if is_opaque(one.owner) or recorded.blind:
        return "cannot be seen", f"whether {name} used it cannot be seen: {is_opaque(one.owner) or 'a part of the model'} is compiled", -1
    above = _above(recorded, one.owner)
    if above is not None and is_opaque(above[1]):
        return "cannot be seen", f"whether it was used cannot be seen: {above[0]} is {is_opaque(above[1])}", -1
    if recorded.folds is not None and recorded.modules.times[id(one.owner)]:
        return "cannot be seen", "equal calls were recorded once (fold=True), and others than this one's", -1
    replaced = recorded.uses.replaced.get((id(one.owner), one.name))
    if replaced is not None:
        return "overwritten", _REPLACED.format(name), replaced
    if recorded.modules.times[id(one.owner)]:
        return "not used", f"{name} ran, and nothing was seen to use it", -1
    return "not called", f"not called: {name} did not run", -1


def _above(recorded: Recorded, owner: Module) -> tuple[str, Module] | None:
    node = recorded.roster.node(owner)
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


def _in(call: Call) -> str:
    return f" in {call.path}" if call.path else ""


def _at(call: Call) -> str:
    return f" at {call.where}" if call.where else ""
