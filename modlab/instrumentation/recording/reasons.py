"""Why a parameter has no gradient: one reason, with the event that shows it.

What is certain comes first: a gradient that is there, the parameter's own state, that it was not used. Then what autograd was
told, then what became of what was computed from it. Where a trace cannot see, that is the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from modlab.inspection import stores
from modlab.instrumentation.recording.absence import called_above
from modlab.instrumentation.recording.calls import Call, Sight
from modlab.instrumentation.recording.operations import Leaving
from modlab.instrumentation.recording.roster import Owned, is_opaque

if TYPE_CHECKING:
    from modlab.instrumentation.recording.recorder import Recorder

_Found = tuple[str, str, int]
Told = tuple[str, str, str, int]
_NONE = "no backward", "no backward pass ran in this trace", -1
_STALE = "; its .grad is that of an earlier pass"
_HOW = {
    "detached": ("detached", "detached: what was computed from it left the graph in"),
    "no_grad": ("no_grad", "under no_grad: what was computed from it left the graph in"),
    "number": ("detached", "off the path to the loss: what was computed from it ended as a plain number in"),
    "whole": ("detached", "off the path to the loss: what was computed from it became whole numbers, which carry no gradient, in"),
}


def of_parameters(recorder: Recorder) -> Iterator[Told]:
    """What makes a `Reason` for each parameter of the model, as it was when the trace began."""
    calls: dict[int, Call] = {}
    for call in recorder.tape.calls:
        if call.kind == "module" and (call.module not in calls or (call.grad and not calls[call.module].grad)):
            calls[call.module] = call
    silent = not (recorder.backward.passes or recorder.backward.arrived or recorder.backward.returned) and recorder.backward.raised < 0
    for one in recorder.roster.parameters:
        kind, text, event = _NONE if silent and _is_plain(recorder, one) else _reason(recorder, one, calls)
        stale = (
            id(one.tensor) in recorder.backward.stale and kind not in ("gradient", "zero", "set to None") and one.tensor.grad is not None
        )
        yield one.path, kind, text + _STALE if stale else text, event


def _is_plain(recorder: Recorder, one: Owned) -> bool:
    """Whether it is there, was used, and autograd noted that: then all depends on the backward pass."""
    tensor, use = one.tensor, recorder.uses.taken.get(id(one.tensor), -1)
    if use < 0 or not tensor.requires_grad or recorder.uses.frozen.get(id(tensor)) == use or not recorder.tape.calls[use].grad:
        return False
    held = stores.contents(one.owner).get("_parameters")
    return type(held) is dict and held.get(one.name) is tensor and (tensor.is_floating_point() or tensor.is_complex())


def _reason(recorder: Recorder, one: Owned, calls: dict[int, Call]) -> _Found:
    tensor, key, backward = one.tensor, id(one.tensor), recorder.backward
    arrived = backward.arrived.get(key)
    if arrived is not None:
        return _of_gradient(one, arrived, recorder.backward.values.get(one.path))
    returned = backward.returned.get(key)
    if returned is not None:
        return "gradient", "its gradient was given back by torch.autograd.grad, which changes no .grad", returned
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return "integer", f"it holds {str(tensor.dtype).removeprefix('torch.')}, and whole numbers have no gradient", -1
    use = _use(recorder, one, calls)
    held = stores.contents(one.owner).get("_parameters") or {}
    if dict(held.items()).get(one.name) is not tensor:
        return (
            "overwritten",
            "the model holds another tensor, or None, under this name now; the one that was there when it ran is gone",
            use,
        )
    if not tensor.requires_grad:
        return "frozen", "frozen: its requires_grad is False", use
    if key in recorder.uses.frozen and recorder.uses.frozen[key] == use:
        return "frozen", f"frozen: its requires_grad was False when {_named(recorder.tape.calls[use])} ran", use
    if use < 0:
        return _of_unused(recorder, one)
    used = recorder.tape.calls[use]
    if not used.grad:
        around = [mark for call in _around(recorder, used) for mark in call.marks]
        off = "inference_mode" if "under inference_mode" in around else "no_grad"
        return off, f"{_named(used)} ran under {off}{_at(used)}, where autograd notes nothing", use
    return _of_graph(recorder, key, used)


def _of_graph(recorder: Recorder, key: int, used: Call) -> _Found:
    """It was used, and autograd noted it: so what became of that?"""
    backward = recorder.backward
    if backward.raised >= 0 and key not in backward.reached:
        return "no backward", f"the backward pass raised {recorder.tape.calls[backward.raised].error}", backward.raised
    if not backward.passes:
        return _NONE
    if key in backward.reached:
        if backward.chosen:
            return "not asked for", "the backward pass asked for the gradients of other tensors alone (inputs=)", used.index
        return "stopped on the way", "the graph leads to it, and no gradient came: a function on the way gave none", used.index
    left = _left(recorder, key)
    if left is not None:
        call = recorder.tape.calls[left.event]
        kind, text = _HOW[left.how]
        return kind, f"{text} {call.name}{_in(call)}{_at(call)}", left.event
    if recorder.blind:
        return "cannot be seen", "a part of the model is compiled, so the backward pass was not watched", used.index
    if not backward.known:
        return "cannot be seen", "the graph of the loss is too large to be walked", used.index
    if backward.returned:
        return "not asked for", "torch.autograd.grad gave back the gradients of other tensors alone", used.index
    return (
        "off the path",
        f"off the path to the loss: {_named(used)} used it, and nothing of that reached what backward() began from",
        used.index,
    )


def _left(recorder: Recorder, key: int) -> Leaving | None:
    """Where what was computed from it left the graph: a cut explains more than a number that was printed."""
    found = [left for left in recorder.operations.left if key in left.sources]
    order = ("detached", "no_grad", "whole", "number")
    return min(found, key=lambda left: (order.index(left.how), left.event), default=None)


def _of_gradient(one: Owned, arrived: int, value: Sight | None) -> _Found:
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
            f"it got a gradient{', zero everywhere' if zero else odd}, and that was set to None since (zero_grad does so)",
            arrived,
        )
    return ("zero", "it has a gradient, and that is zero everywhere", arrived) if zero else ("gradient", f"it has a gradient{odd}", arrived)


def _is_zero(gradient: Tensor | None) -> bool:
    if type(gradient) is not Tensor or gradient.layout is not torch.strided or gradient.is_meta or gradient.is_nested:
        return False
    with torch.no_grad():
        return not bool(gradient.detach().ne(0).any())


def _of_unused(recorder: Recorder, one: Owned) -> _Found:
    path = recorder.roster.paths[id(one.owner)]
    name = path or "the model"
    direct = recorder.operations.direct.get(id(one.owner))
    if direct is not None:
        where = _at(recorder.tape.calls[direct])
        return ".forward called", f"{name} was called through .forward{where}, past the hooks that would have used it", direct
    if is_opaque(one.owner) or recorder.blind:
        return "cannot be seen", f"whether {name} used it cannot be seen: {is_opaque(one.owner) or 'a part of the model'} is compiled", -1
    above = called_above(recorder, path)
    if above is not None and is_opaque(above[1]):
        return "cannot be seen", f"whether it was used cannot be seen: {above[0]} is {is_opaque(above[1])}", -1
    if recorder.folds is not None and recorder.folds.alike:
        return "cannot be seen", "equal calls were recorded once (fold=True), and others than this one's", -1
    if recorder.modules.times[id(one.owner)]:
        return "not used", f"{name} ran, and nothing was seen to use it", -1
    return "not called", f"not called: {name} did not run in this thread", -1


def _use(recorder: Recorder, one: Owned, calls: dict[int, Call]) -> int:
    """The event that shows that it was used, or -1."""
    found = recorder.uses.taken.get(id(one.tensor), -1)
    if found >= 0:
        return found
    call = calls.get(id(one.owner))
    if call is None:  # attention uses the weights of its parts itself
        above = called_above(recorder, recorder.roster.paths[id(one.owner)])
        call = None if above is None or is_opaque(above[1]) else calls.get(id(above[1]))
    return call.index if call is not None and call.fused else -1


def _around(recorder: Recorder, call: Call) -> Iterator[Call]:
    yield call
    while call.parent >= 0:
        call = recorder.tape.calls[call.parent]
        yield call


def _named(call: Call) -> str:
    return call.name if call.kind == "function" else call.path or call.name


def _in(call: Call) -> str:
    return f" in {call.path}" if call.path else ""


def _at(call: Call) -> str:
    return f" at {call.where}" if call.where else ""
