"""Earlier calls: what ran before the error, as the source of ``forward`` shows it, with the shapes that can be inferred.

Afterwards, only the modules on the stack can be seen. But a call above the line that failed has run if the conditions before it
certainly held, and its shapes are known if a local name still holds its result, or if they can be inferred.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from torch import nn
from torch.nn import Module

from modlab.explaining import calls, code_fixes, interpreter, shape_inference
from modlab.explaining.account import ForwardSource
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.failure import Failure, shape_of
from modlab.explaining.frames import Frame
from modlab.explaining.shape_inference import Ran

_Shape = tuple[int, ...]


def before(call: ModuleFrame, inner: ModuleFrame | None) -> list[tuple[Ran, _Shape | None, _Shape | None]]:
    """What ran in `call` before `inner`, with the shapes of the first input and of the output.

    Without `inner`, what ran before its own code failed.
    """
    source = read(call, inner)
    return [(one, source.shapes[one.taken], source.shapes[one.given]) for one in source.ran]


def read(call: ModuleFrame, inner: ModuleFrame | None) -> ForwardSource:
    """What ran in `call` before `inner` (without it, before its own code failed), and what is known about it."""
    if call.read is None:  # several rules read it
        call.read = _made(call, inner)
    found: ForwardSource = call.read
    return found


def _made(call: ModuleFrame, inner: ModuleFrame | None) -> ForwardSource:
    source = ForwardSource(call, inner)
    try:
        _sequence(source) if type(call.module) is nn.Sequential else interpreter.follow(source)
        if None in source.shapes:
            _infer(source)
    except Exception:  # noqa: BLE001 - the source may differ from what runs, and objects may misbehave
        return ForwardSource(call, inner, certain=False, within=True)
    return source


def _sequence(source: ForwardSource) -> None:
    call, inner = source.call, source.inner
    value = source.value(shape_of(call.args[0]) if call.args else None)
    source.inputs[value] = "input"
    source.within = inner is None or len(inner.places) > 1
    for name, child in calls.earlier(call, inner) if inner is not None else ():
        source.uses[value] += 1
        value = source.note(name, child, value)
    source.taken[0] = value
    source.uses[value] += 1
    source.stopped = True
    source.settle(value, shape_of(inner.given[0]) if inner is not None and inner.given else None)


def frame_of(call: ModuleFrame) -> Frame | None:
    """The frame of a module's ``forward``, even while it runs another method of the same module; None for torch's own."""
    own_frames = [frame for frame in call.frames if frame.owner is call.module and frame.function == "forward"]
    return own_frames[-1] if own_frames and not own_frames[-1].is_torch else None


def keeping(module: Module, taken: _Shape) -> _Shape | None:
    """The shape that a module returns for an input shape, or None if uncertain."""
    ran = Ran("", module, 0, 0)
    if ran.hooked:
        return None
    return taken if ran.keeps else shape_inference.through(module, taken)


def _infer(source: ForwardSource) -> None:
    """Propagate shapes through calls that keep them, in both directions, and through layers."""
    same = source.same
    known = {ran.given: ran for ran in source.ran if not ran.hooked}  # a hook may have returned something else
    order = sorted({*known, *same})
    for given in (*reversed(order), *order):
        taken = known[given].taken if given in known else same[given]
        _carry(source, known.get(given), taken, given)


def _carry(source: ForwardSource, ran: Ran | None, taken: int, given: int) -> None:
    shapes = source.shapes
    first, last = shapes[taken], shapes[given]
    if (first is None) is (last is None):
        return
    if ran is None or ran.keeps:
        shapes[given] = shapes[taken] = first if last is None else last
    elif ran.module is not None and first is not None:
        shapes[given] = shape_inference.through(ran.module, first)
    elif ran.module is not None and last is not None:
        shapes[taken] = shape_inference.back(ran.module, last)


def readings(failure: Failure) -> Iterator[ForwardSource]:
    """The sources on the way, outermost first, including the innermost module's if its own code failed."""
    pairs: list[tuple[ModuleFrame, ModuleFrame | None]] = [
        (above, inner) for above, inner in pairwise(failure.calls) if above.module is not inner.module
    ]
    if failure.failing is not None and frame_of(failure.failing) is not None:
        pairs.append((failure.failing, None))
    for above, inner in pairs:
        if not code_fixes.is_torchs(above.module) or type(above.module) is nn.Sequential:
            yield read(above, inner)


def hidden(failure: Failure) -> bool:
    """Whether something ran on the way that is not shown, or whose result is unknown."""
    return any(not source.certain or any(source.shapes[one.given] is None for one in source.ran) for source in readings(failure))
