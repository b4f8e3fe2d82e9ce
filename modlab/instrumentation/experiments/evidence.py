"""One pass under the recorder: why gradients do not arrive, and where the first NaN is made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.nn import Module

from modlab.instrumentation.experiments.trials import Bench
from modlab.instrumentation.recording.recorder import Recorder
from modlab.records.trace import Event, Reason, TraceRecord, Value


def reasons(bench: Bench) -> dict[str, Reason]:
    """Why each parameter has a gradient or none, by its dotted name; nothing where that cannot be told."""
    recorder = Recorder(bench.subject.model, values=False)
    recorder.open()
    try:
        value = bench.value(bench.output())
        # A loss without a graph has no backward pass to look at: a number that is added gives it one. That alone gets a gradient, and
        # nothing that the loss may hold of the user's.
        ground = torch.zeros((), device=value.device, requires_grad=True)
        (value + ground).backward(inputs=[ground])
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and then there is no reason to tell
        recorder.close(error)
        return {}
    return {reason.path: reason for reason in recorder.close().reasons}


def first_nan(bench: Bench, model: Module | None = None) -> tuple[str, str, str]:
    """What made the first NaN out of numbers in one pass: the module's path, how it is called, and the line; "" is not known."""
    recorder = Recorder(bench.subject.model if model is None else model, follow=False)
    recorder.open()
    error: Exception | None = None
    try:
        with torch.no_grad():
            bench.value(bench.output(model))
    except Exception as raised:  # noqa: BLE001 - what was seen before is told all the same
        error = raised
    return _named(recorder.close(error))


def _named(record: TraceRecord) -> tuple[str, str, str]:
    event = _first(record.events, -1)
    if event is None:
        return "", "", ""
    words = f"{event.path} ({event.name})" if event.path and event.kind == "module" else event.name
    if event.kind == "function" and event.path:
        words += f" in {event.path}"
    return event.path or "", words, event.where


def _first(events: Sequence[Event], parent: int) -> Event | None:
    """The innermost of the earliest events that made NaN out of numbers without any."""
    for event in events[parent + 1 :]:
        runs = event.kind in ("module", "function") and parent in (-1, event.parent)
        if runs and _nan(event.outputs) and not _nan(event.inputs):
            return _first(events, event.index) or event
    return None


def _nan(values: Iterable[Value]) -> bool:
    return any(value.stats is not None and value.stats.measured and value.stats.nan for value in values)
