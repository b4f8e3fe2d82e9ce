"""Modules that did not run, or not so that it could be seen; each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from torch import nn
from torch.nn import Module

from modlab.compat import has_compiled, own_class
from modlab.inspection import marks, stores
from modlab.inspection.index import Node
from modlab.records.finding import Fact
from modlab.records.trace import Uncalled
from modlab.running.module_kinds import is_fused, is_opaque
from modlab.tracing.recorded import Recorded
from modlab.tracing.trace_index import TracedModule


def uncalled(recorded: Recorded, error: str = "") -> Iterator[Uncalled]:
    """The topmost ones: what is below a module that did not run is not listed again. `error` is what ended the trace."""
    times, index, kinds = recorded.modules.times, recorded.index, recorded.kinds
    silent = set[Node | None]()
    for node in index.nodes:
        if node.parent in silent:
            silent.add(node)
            continue
        cls = type(node.module)
        if id(node.module) in times or not kinds[cls].runs:
            continue
        silent.add(node)
        yield Uncalled(node.path, own_class(cls).__name__, marks.category(cls), *_reason(recorded, node, error))


def _reason(recorded: Recorded, node: TracedModule, error: str) -> tuple[str, dict[str, Fact]]:
    """Why, and who is meant by that."""
    module = node.module
    events = recorded.log.calls
    direct = recorded.operations.direct.get(id(module))
    if direct is not None:
        return ".forward called", {"at": direct.where}
    if stores.contents(module).get("_compiled_call_impl") is not None:
        return "compiled", {}
    if id(module) in recorded.modules.elsewhere:
        return "in another thread", {}
    if id(module) in recorded.modules.wrapped:
        return "in what is compiled", {}
    above = called_above(recorded, node)
    if above is not None:
        name, outer = above
        opaque = is_opaque(outer)
        if opaque:
            return "inside compiled", {"around": name, "what": opaque}
        if isinstance(outer, nn.MultiheadAttention) or type(module).__module__.startswith("torch.ao."):
            return "its weights used", {"around": name}
        if is_fused(outer):
            return "inside a fused step", {"around": name}
    for tensor_name, tensor in stores.named_tensors(module):
        used = recorded.uses.first(id(tensor))
        if used >= 0:
            return "its tensor used", {"tensor": tensor_name, "by": events[used].name, "at": events[used].where}
    if id(module) in _unseen(recorded):
        return "perhaps", {}
    return ("stopped before" if error else "never called"), {}  # whether it would have been is not known


def hidden(recorded: Recorded) -> int:
    """How many modules may have run without being seen: compiled, scripted, in other threads."""
    times, inside = recorded.modules.times, recorded.modules.elsewhere | recorded.modules.wrapped | _unseen(recorded)
    found = 0
    for node in recorded.index.nodes:
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
        return {id(node.module) for node in recorded.index.nodes}
    return {id(one.owner) for one in recorded.index.parameters if id(one.tensor) in arrived and used.first(id(one.tensor)) < 0}


def called_above(recorded: Recorded, node: TracedModule) -> tuple[str, Module] | None:
    """The nearest module above that did run, or that may have run without being seen; with its name."""
    for above in islice(node.above, 1, None):
        module = above.module
        if id(module) in recorded.modules.times or is_opaque(module):
            return above.path or "the model", module
    return None
