"""One pass under the recorder: why gradients do not arrive, and where the first NaN is produced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.nn import Module

from modlab.diagnosing.trials import Bench
from modlab.records.trace import Event, Reason, TraceRecord, Value
from modlab.running.sandbox import under
from modlab.tracing.recorder import Recorder


def reasons(bench: Bench) -> dict[str, Reason]:
    """Why each parameter has a gradient or not, by its dotted name; empty if that is unknown."""

    def forward_and_back() -> None:
        value = bench.value(bench.output())
        # A loss without a graph has no backward pass to observe, so a number is added that gives it one. Only that number gets a
        # gradient, not any tensor of the user's that the loss may hold.
        ground = torch.zeros((), device=value.device, requires_grad=True)
        (value + ground).backward(inputs=[ground])

    _, record = Recorder(bench.subject.model, values=False).run(forward_and_back)
    return {} if record.error else {reason.path: reason for reason in record.reasons}


def first_nan(bench: Bench, model: Module | None = None) -> tuple[str, str, str]:
    """Where one pass turns numbers into the first NaN: the module's path, what is called, and the line; "" for what is unknown."""
    return _named(_first(_passed(bench, model).events, -1))


def last_infinity(bench: Bench) -> tuple[str, str, str]:
    """The same of an infinite loss: where finite numbers last become infinite, for a mask may hold such numbers before that."""
    events = [one for one in _passed(bench).events if one.kind == "function" and _infinite(one.outputs) and not _infinite(one.inputs)]
    return _named(events[-1] if events else None)


def _passed(bench: Bench, model: Module | None = None) -> TraceRecord:
    recorder = Recorder(bench.subject.model if model is None else model, follow=False)
    return recorder.run(lambda: under("no_grad", lambda: bench.value(bench.output(model))))[1]


def _named(event: Event | None) -> tuple[str, str, str]:
    if event is None:
        return "", "", ""
    words = f"{event.path} ({event.name})" if event.path and event.kind == "module" else event.name
    if event.kind == "function" and event.path:
        words += f" in {event.path}"
    is_whole = event.kind == "module" and not event.path  # which is called from outside: no line of it is known
    return event.path or "", words, "" if is_whole else event.where


def _first(events: Sequence[Event], parent: int) -> Event | None:
    """The innermost of the earliest events with NaN in its outputs but none in its inputs, or None."""
    for event in events[parent + 1 :]:
        runs = event.kind in ("module", "function") and parent in (-1, event.parent)
        if runs and _nan(event.outputs) and not _nan(event.inputs):
            return _first(events, event.index) or event
    return None


def _infinite(values: Iterable[Value]) -> bool:
    return any(one.stats is not None and one.stats.measured and one.stats.posinf + one.stats.neginf for one in values)


def _nan(values: Iterable[Value]) -> bool:
    return any(value.stats is not None and value.stats.measured and value.stats.nan for value in values)
