"""Why a parameter has no gradient: one reason, with the event that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from modlab.inspection import stores
from modlab.instrumentation.calls import Call
from modlab.instrumentation.roster import Owned, is_opaque
from modlab.records.trace import Reason

if TYPE_CHECKING:
    from modlab.instrumentation.recorder import Recorder


def of_parameters(recorder: Recorder) -> Iterator[Reason]:
    """One for each parameter of the model, as it was when the trace began."""
    first = {call.module: call for call in reversed(recorder.tape.calls) if call.kind == "module"}
    for one in recorder.roster.parameters:
        yield Reason(one.path, *_reason(recorder, one, first))


_Found = tuple[str, str, int]


def _reason(recorder: Recorder, one: Owned, first: dict[int, Call]) -> _Found:
    tensor, key = one.tensor, id(one.tensor)
    backward = recorder.backward
    arrived = backward.arrived.get(key)
    if arrived is not None:
        return _of_gradient(one, arrived)
    returned = backward.returned.get(key)
    if returned is not None:
        return "gradient", "its gradient was given back by torch.autograd.grad, which changes no .grad", returned
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return "integer", f"it holds {str(tensor.dtype).removeprefix('torch.')}, and whole numbers have no gradient", -1
    replaced = dict(stores.named_tensors(one.owner)).get(one.path.rpartition(".")[2])
    use = _use(recorder, one, first)
    if replaced is not tensor:
        return "overwritten", "the model holds another tensor under this name now; the one that ran is not in it any more", use
    if not tensor.requires_grad:
        return "frozen", "frozen: its requires_grad is False", use
    if use < 0:
        return _of_unused(recorder, one)
    used = recorder.tape.calls[use]
    if not used.grad:
        off = "inference_mode" if any("inference_mode" in call.marks[-1] for call in _around(recorder, used) if call.marks) else "no_grad"
        return off, f"{_named(used)} ran under {off}{_at(used)}, where autograd notes nothing", use
    for index, sources in recorder.operations.left:
        left = recorder.tape.calls[index]
        if key in sources and key not in backward.reached:
            how = "under no_grad" if not left.grad else "detached"
            kind = "no_grad" if not left.grad else "detached"
            return kind, f"{how}: what was computed from it left the graph in {left.name}{_in(left)}{_at(left)}", index
    if not backward.passes:
        return "no backward", "no backward pass ran in this trace", -1
    if key in backward.reached:
        return "set to None", "it got a gradient, and that was set to None since (zero_grad does so)", use
    return "off the path", f"off the path to the loss: {_named(used)} used it, and nothing of that reached what backward() began from", use


def _of_gradient(one: Owned, arrived: int) -> _Found:
    gradient = one.tensor.grad
    if gradient is None:
        return "set to None", "it got a gradient, and that was set to None since (zero_grad does so)", arrived
    with torch.no_grad():
        zero = gradient.layout is torch.strided and not gradient.is_meta and not bool(gradient.detach().ne(0).any())
    if zero:
        return "zero", "it has a gradient, and that is zero everywhere: nothing that it does changes the loss here", arrived
    return "gradient", "it has a gradient", arrived


def _of_unused(recorder: Recorder, one: Owned) -> _Found:
    owner = recorder.roster.paths[id(one.owner)]
    name = owner or "the model"
    if recorder.modules.times[id(one.owner)]:
        opaque = is_opaque(one.owner)
        return (
            "not used",
            f"{name} ran, and is {opaque}: whether it used it cannot be seen" if opaque else f"{name} ran without using it",
            -1,
        )
    return "not called", f"not called: {name} did not run in this trace", -1


def _use(recorder: Recorder, one: Owned, first: dict[int, Call]) -> int:
    """The first event that shows that it was used, or -1."""
    found = [recorder.operations.used.get(id(one.tensor), -1)]
    call = first.get(id(one.owner))
    if call is not None and (call.quiet or call.fused):
        found.append(call.index)
    if call is None:
        above = _called_above(recorder, one, first)
        if above is not None and above.fused:  # attention uses the weights of its parts itself
            found.append(above.index)
    return min((index for index in found if index >= 0), default=-1)


def _called_above(recorder: Recorder, one: Owned, first: dict[int, Call]) -> Call | None:
    path = recorder.roster.paths[id(one.owner)]
    while path:
        path = path.rpartition(".")[0]
        call = first.get(id(recorder.roster.modules[path]))
        if call is not None:
            return call
    return None


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
