"""Modules that did not run, or not so that it could be seen; each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from torch import nn
from torch.nn import Module

from modlab.compat import has_compiled, own_class
from modlab.inspection import marks, stores
from modlab.inspection.index import Node
from modlab.records.trace import Uncalled
from modlab.tracing.recorded import Recorded
from modlab.tracing.roster import RosterEntry, is_fused, is_opaque

NEVER = "never called in this trace"
_NOT_SEEN = "not seen"
_AWAY = "called in another thread, which is not followed"
_UNSEEN = "not seen to be called; inside a function that torch.compile runs it may have been"
_WRAPPED = "inside something compiled, which is not part of the model and was called: not seen"


def uncalled(recorded: Recorded, error: str = "") -> Iterator[Uncalled]:
    """The topmost ones: what is below a module that did not run is not listed again. `error` is what ended the trace."""
    times, cast, kinds = recorded.modules.times, recorded.roster, recorded.kinds
    silent = set[Node | None]()
    for node in cast.nodes:
        if node.parent in silent:
            silent.add(node)
            continue
        cls = type(node.module)
        if id(node.module) in times or not kinds[cls].runs:
            continue
        silent.add(node)
        yield Uncalled(node.path, own_class(cls).__name__, marks.category(cls), *_reason(recorded, node, error))


def _reason(recorded: Recorded, node: RosterEntry, error: str) -> tuple[str, str]:
    """Why, in words and as a kind."""
    module = node.module
    events = recorded.log.calls
    direct = recorded.operations.direct.get(id(module))
    if direct is not None:
        return f"called through .forward{_at(direct.where)}: its hooks were skipped", ".forward called"
    if stores.contents(module).get("_compiled_call_impl") is not None:
        return "compiled: whether it ran cannot be seen", _NOT_SEEN
    if id(module) in recorded.modules.elsewhere:
        return _AWAY, _NOT_SEEN
    if id(module) in recorded.modules.wrapped:
        return _WRAPPED, _NOT_SEEN
    above = called_above(recorded, node)
    if above is not None:
        name, outer = above
        opaque = is_opaque(outer)
        if opaque:
            return f"inside {name}, which is {opaque}: not seen", _NOT_SEEN
        if isinstance(outer, nn.MultiheadAttention) or type(module).__module__.startswith("torch.ao."):
            return f"{name} uses its weights without calling it", "its weights used"
        if is_fused(outer):
            return f"{name} ran as one fused step, without calling its parts", "inside a fused step"
    for tensor_name, tensor in stores.named_tensors(module):
        used = recorded.uses.first(id(tensor))
        if used >= 0:
            return f"not called; its {tensor_name} is used in {events[used].name}{_at(events[used].where)}", "its tensor used"
    if id(module) in _unseen(recorded):
        return _UNSEEN, _NOT_SEEN
    if error:
        return "not called before the pass stopped", "stopped before"  # whether it would have been is not known
    return NEVER, "never called"


def hidden(recorded: Recorded) -> int:
    """How many modules may have run without being seen: compiled, scripted, in other threads."""
    times, inside = recorded.modules.times, recorded.modules.elsewhere | recorded.modules.wrapped | _unseen(recorded)
    found = 0
    for node in recorded.roster.nodes:
        module = node.module
        if id(module) in times or not recorded.kinds[type(module)].runs:
            continue
        above = called_above(recorded, node)
        found += bool(id(module) in inside or is_opaque(module) or (above is not None and is_opaque(above[1])))
    return found


def _unseen(recorded: Recorded) -> set[int]:
    """Those that a function that ``torch.compile`` runs may have called: all, if none was seen; those whose parameters got a gradient."""
    if not has_compiled():
        return set()
    arrived, used = recorded.backward.arrived, recorded.uses
    if not (any(recorded.modules.times.values()) or recorded.operations.direct):
        return {*recorded.roster.index.nodes}
    return {id(one.owner) for one in recorded.roster.parameters if id(one.tensor) in arrived and used.first(id(one.tensor)) < 0}


def called_above(recorded: Recorded, node: RosterEntry) -> tuple[str, Module] | None:
    """The nearest module above that did run, or that may have run without being seen; with its name."""
    for above in islice(node.above, 1, None):
        module = above.module
        if id(module) in recorded.modules.times or is_opaque(module):
            return above.path or "the model", module
    return None


def _at(where: str) -> str:
    return f" at {where}" if where else ""
