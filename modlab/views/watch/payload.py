"""The payload of a watch for the page: all of it, or only the slots that are new."""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modlab import format, wording
from modlab.frozen import frozen
from modlab.records.finding import Finding
from modlab.records.fork import ForkRecord
from modlab.records.loss import losses
from modlab.records.watch import Alert, HistoryRecord, NeuronsRecord, ScalarRecord, UnitsRecord, WatchRecord
from modlab.views.payload import Arrays, common, pack
from modlab.views.watch import headline, limits, pictures, words
from modlab.wording import forks

BUDGET = 225_000
"""Bytes of a packed payload at rest: with the front end and the picture without script, an output stays below 500 KB."""

SHORT = 10.0
"""Seconds of a loop in which single looks may still cost more than the budget."""

FORK_POINTS = 300
"""Bins of a fork's curve."""

DRAWN = 64
"""Units of a layer, up to which each one may be drawn."""

COLUMNS = ("mean", "std", "low", "high", "zeros", "bad", "stuck")


@frozen
class Marks:
    """From which slot of each part on an update has what the page does not have.

    Attributes:
        history, bins, neurons: numbers of slots.
        scalars, units: one number for each curve and each module; what came later begins at 0.
        began: of each part with slots before its mark, the step at which the slot at the mark begins.
    """

    history: int = 0
    bins: int = 0
    scalars: tuple[int, ...] = ()
    units: tuple[int, ...] = ()
    neurons: int = 0
    began: tuple[tuple[str, int], ...] = ()

    @classmethod
    def open_ends(cls, record: WatchRecord) -> Marks:
        """Where the next update begins when all of `record` is sent and each part's last slot still grows."""

        def closed(slots: Sequence[Any] | npt.NDArray[Any]) -> int:
            return max(len(slots) - 1, 0)

        return cls(
            closed(record.history.first),
            closed(record.history.bins_first),
            tuple(closed(scalar.first) for scalar in record.scalars),
            tuple(closed(units.first) for units in record.units),
            0 if record.neurons is None else closed(record.neurons.first),
            tuple((part, int(first[-1])) for part, first in _firsts(record).items() if len(first) > 1),
        )

    def fits(self, record: WatchRecord) -> bool:
        """Whether the slots before these marks are as they were.

        Slots become one in a record before they do in the watch: it takes in values that the watch lets wait.
        """
        firsts = _firsts(record)
        at = {"history": self.history, "bins": self.bins, "neurons": self.neurons}
        at |= {f"scalar {i}": mark for i, mark in enumerate(self.scalars)} | {f"units {i}": mark for i, mark in enumerate(self.units)}
        return all(part in firsts and at[part] < len(firsts[part]) and firsts[part][at[part]] == step for part, step in self.began)


def _firsts(record: WatchRecord) -> dict[str, npt.NDArray[Any]]:
    """Of each part the steps at which its slots begin."""
    return {
        "history": record.history.first,
        "bins": record.history.bins_first,
        **({} if record.neurons is None else {"neurons": record.neurons.first}),
        **{f"scalar {i}": scalar.first for i, scalar in enumerate(record.scalars)},
        **{f"units {i}": units.first for i, units in enumerate(record.units)},
    }


def of_watch(
    record: WatchRecord,
    code: str,
    version: str,
    model: str = "",
    *,
    live: bool = False,
    since: Marks | None = None,
    limit: int | None = None,
    can_fork: bool = False,
) -> bytes:
    """The payload of a watch.

    Args:
        record: all that it has seen.
        code: the call that makes this view.
        version: modlab's.
        model: the fingerprint of the model's structure, by which views on one page share a selection; or nothing.
        live: whether a kernel answers.
        since: the slots that the page has; else it gets all.
        limit: slots that the history may have, at rest; all other parts give up the same share, below 24 slots series are left
            out, and what is left out is said.
        can_fork: whether a kernel answers that can make forks.
    """
    left: list[str] = []
    if limit is not None:
        record, left = limits.of_watch(record, limit)
    begin = since or Marks()
    arrays = Arrays()
    remarks = [*map(format.clean, words.remarks(record)), *left]
    content = {
        **common(
            "watch",
            headline.of_watch(record),
            model,
            code,
            version,
            foot(record) if live else " · ".join((foot(record), *words.moment(record))),
            live,
        ),
        **_state(record),
        "series": _series(record.history),
        "verdict": [_entry(*entry) for entry in words.entries(record.verdict)],
        "alerts": [_alert(alert) for alert in record.alerts],
        "scalars": [
            {"name": one.name, "count": one.count, "final": format.number(one.final), "loss": any(one is loss for loss in losses(record))}
            for one in record.scalars
        ],
        "units": [{"path": one.path, "read": one.read, "units": one.fired.shape[1]} for one in record.units],
        "neurons": _neurons(record.neurons),
        "remarks": remarks,
        **_forks(record, arrays, askable=can_fork),
    }
    _add_history(record.history, begin, arrays, planes=limit is not None)
    arrays.add("sampled", _ints(record.sampled))
    for i, scalar in enumerate(record.scalars):
        _add_scalar(scalar, i, _mark(begin.scalars, i), arrays)
    for i, units in enumerate(record.units):
        _add_units(units, i, _mark(begin.units, i), arrays)
    if record.neurons is not None:
        _add_neurons(record.neurons, begin.neurons, arrays)
    if since is not None:
        content["from"] = _from(record, since)
    return pack(content, arrays)


def fitting(record: WatchRecord, code: str, version: str, model: str = "") -> bytes:
    """The payload at rest, with as many slots as an output may hold."""
    packed = of_watch(record, code, version, model)
    if _packed(packed) <= BUDGET:
        return packed
    limit = max(len(record.history.first), limits.FEWEST)
    packed = of_watch(record, code, version, model, limit=limit)  # rounded: a third of the bytes
    while (size := _packed(packed)) > BUDGET and limit > 1:
        limit = min(int(limit * min(0.95, BUDGET / size)), limit - 1)
        packed = of_watch(record, code, version, model, limit=limit)
    return packed


def _packed(payload: bytes) -> int:
    return len(payload) if len(payload) <= BUDGET else len(gzip.compress(payload, 6, mtime=0))


def foot(record: WatchRecord) -> str:
    """How much was seen, and what it cost."""
    if not record.steps:
        return "no step yet"
    said = [format.plural(record.steps, "step"), format.plural(record.samples, "sample")]
    if record.loop > 0:
        # A look is paid for by the steps after it, and a page gets a picture each second whatever it costs.
        why = ", which a run this short cannot keep to" if record.cost > record.budget and record.loop < SHORT else ""
        said.append(f"cost {words.share(record.cost)} of the loop (budget {words.share(record.budget)}{why})")
    if record.kept is not None:
        said.append(forks.kept(record.kept))
    return " · ".join(said)


def _state(record: WatchRecord) -> dict[str, Any]:
    return {
        "state": record.state,
        "error": record.error,
        "steps": record.steps,
        "samples": record.samples,
        "inputs": record.inputs,
        "cost": _finite(record.cost),
        "budget": _finite(record.budget),
        "optimizer": record.optimizer,
        "paused": record.paused,
        **({"part": True} if words.is_part(record) else {}),
    }


def _forks(record: WatchRecord, arrays: Arrays, *, askable: bool) -> dict[str, Any]:
    """The forks that were made; and where one can be made anew, from which steps on and with what."""
    made: dict[str, Any] = {}
    if record.forks or record.refused or askable:
        made["forks"] = [_fork(one, i, arrays) for i, one in enumerate(record.forks)]
        made["refused"] = record.refused
    kept = record.kept
    if askable and kept is not None:
        some = [i for i, (state, until) in enumerate(zip(kept.states, kept.until, strict=True)) if until > state]
        made["kept"] = {
            "steps": [kept.states[i] for i in some],
            "until": [kept.until[i] for i in some],
            "rates": [_finite(kept.rates[i]) if math.isfinite(kept.rates[i]) else None for i in some],
            "groups": kept.groups,
            "settings": [
                {
                    "name": one.name,
                    "kind": one.kind,
                    "values": [one.values[i] if math.isfinite(one.values[i]) else None for i in some],
                }
                for one in kept.settings
            ],
        }
    return made


def _fork(record: ForkRecord, i: int, arrays: Arrays) -> dict[str, Any]:
    for name in ("original", "fork"):
        curve = getattr(record, name)[: len(record.fork)].astype(np.float64)
        arrays.add(f"fork {i} {name}", _floats(pictures.binned(curve, FORK_POINTS).T))
    strong, rest = forks.conclusion(record)
    return {
        "began": record.began,
        "at": record.at,
        "end": record.began + len(record.fork),
        "until": record.until,
        "running": record.running,
        "changed": forks.mark(record) if record.change else "",
        "headline": [strong, rest],
        "notes": [] if record.running else [*forks.notes(record)],
    }


def _finite(value: float) -> float:
    return float(value) if math.isfinite(value) else 0.0


def _series(history: HistoryRecord) -> list[dict[str, Any]]:
    return [
        {
            "path": one.path,
            "role": one.role,
            "count": one.count,
            "shape": format.shape(one.shape) if one.count or one.shape else "",
            "category": one.category,
            "note": one.note,
        }
        for one in history.series
    ]


def _entry(name: str, state: str, found: Finding) -> dict[str, Any]:
    made = {"name": name, "kind": found.kind, "state": state, "text": wording.said(found), **_fix(found), "path": found.path}
    return {**made, "cause": True} if headline.is_cause(found) else made


def _fix(finding: Finding) -> dict[str, str]:
    """Of the best fix, what can be copied, and what is only to be read."""
    return dict(zip(("fix", "advice"), wording.fix_parts(finding), strict=True))


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "kind": alert.kind,
        "path": alert.path,
        "unit": alert.unit,
        **({"units": list(alert.units)} if alert.units and len(alert.units) <= DRAWN else {}),
        "step": alert.step,
        "last": alert.last,
        "over": alert.over,
        "mark": words.mark(alert),
        "text": wording.said(alert),
        **_fix(alert),
        "steps": alert.steps,
        "inputs": alert.inputs,
        **({"rate": {"first": alert.facts["before"], "now": alert.facts["share"]}} if alert.kind == "starving" else {}),
        "trace": words.replay(alert),
    }


def _neurons(neurons: NeuronsRecord | None) -> dict[str, Any] | None:
    if neurons is None:
        return None
    shapes = [(layer, layer.weights.shape) for layer in neurons.layers]
    return {"layers": [{"path": one.path, "weight": one.weight, "units": shape[1], "inputs": shape[2]} for one, shape in shapes]}


def _from(record: WatchRecord, since: Marks) -> dict[str, Any]:
    return {
        "history": since.history,
        "bins": since.bins,
        "neurons": since.neurons,
        "scalars": [_mark(since.scalars, i) for i in range(len(record.scalars))],
        "units": [_mark(since.units, i) for i in range(len(record.units))],
    }


def _mark(marks: tuple[int, ...], i: int) -> int:
    return marks[i] if i < len(marks) else 0


def _ints(values: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    found: npt.NDArray[np.uint32] = np.clip(values, 0, 0xFFFFFFFF).astype(np.uint32)
    return found


def _floats(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a loss in double precision may be greater than that
        return values.astype(np.float32, copy=False)


def _planes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """The four bytes of all numbers apart, series by series: what is alike lies together, and packs to a fifth less.

    Returns:
        Shape ``(4, series, slots)``, the least byte first.
    """
    numbers = np.ascontiguousarray(_floats(values).T, dtype="<f4")
    return np.ascontiguousarray(numbers.view(np.uint8).reshape(*numbers.shape, 4).transpose(2, 0, 1))


def _add_history(history: HistoryRecord, begin: Marks, arrays: Arrays, *, planes: bool) -> None:
    new = slice(begin.history, None)
    arrays.add("first", _ints(history.first[new]))
    arrays.add("last", _ints(history.last[new]))
    for name in COLUMNS:
        values = np.sqrt(history.columns["var"][new]) if name == "std" else history.columns[name][new]
        if planes:
            arrays.add(f"{name} planes", _planes(values))
        else:
            arrays.add(name, _floats(values))
    new = slice(begin.bins, None)
    arrays.add("bins first", _ints(history.bins_first[new]))
    arrays.add("bins last", _ints(history.bins_last[new]))
    arrays.add("bins", history.bins[new])
    arrays.add("top", _floats(history.top))


def _add_scalar(scalar: ScalarRecord, i: int, begin: int, arrays: Arrays) -> None:
    arrays.add(f"scalar {i}", _floats(np.stack([scalar.mean, scalar.low, scalar.high], axis=1)[begin:]))
    arrays.add(f"scalar {i} first", _ints(scalar.first[begin:]))
    arrays.add(f"scalar {i} last", _ints(scalar.last[begin:]))


def _add_units(units: UnitsRecord, i: int, begin: int, arrays: Arrays) -> None:
    for name in ("first", "last", "inputs", "fired"):
        arrays.add(f"units {i} {name}", _ints(getattr(units, name)[begin:]))
    arrays.add(f"units {i} silent", _ints(units.silent))
    arrays.add(f"units {i} flat", units.flat.astype(np.uint8))


def _add_neurons(neurons: NeuronsRecord, begin: int, arrays: Arrays) -> None:
    arrays.add("neurons first", _ints(neurons.first[begin:]))
    arrays.add("neurons last", _ints(neurons.last[begin:]))
    for i, layer in enumerate(neurons.layers):
        for name in ("weights", "activations", "gradients"):
            arrays.add(f"neurons {i} {name}", _floats(getattr(layer, name)[begin:]))
        if layer.biases is not None:
            arrays.add(f"neurons {i} biases", _floats(layer.biases[begin:]))
