"""Limits: a watch made small enough for an output. Fewer slots, and where that is not enough fewer series; what is left out is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from modlab import format
from modlab.records.watch import HistoryRecord, NeuronsRecord, UnitsRecord, WatchRecord
from modlab.views.watch import layers, merging, words

FEWEST = 24
"""Slots of the history that stay; an output that is still too large leaves series out."""

ALERTS = 500
_COUNTS = 400  # of units, for each slot that an output may have
_WEIGHTS = 300  # of a small net, for each slot that an output may have
_DIGITS = np.uint32(0xFFFFFF00)  # all but the last 8 bits of a float32: nearly five digits, and zip has less to keep
_GREATEST = 3e38


def of_watch(record: WatchRecord, limit: int) -> tuple[WatchRecord, list[str]]:
    """The same watch with about `limit` slots, and sentences about what is left out."""
    said: list[str] = []
    before = len(record.history.first)
    record = merging.of_watch(record, max(limit, FEWEST))
    slots = len(record.history.first)
    if slots < before:
        said.append(f"{before:,} slots of the history are merged into {slots:,} to keep this output small: w.history has all")
    units, left = _units(record, _COUNTS * max(limit, 1))
    if left:
        said.append(f"how often units fire is left out of this output for {format.plural(left, 'module')}: w.widget() has all")
    history, left = _series(record, limit / FEWEST)
    if left:
        said.append(f"{format.plural(left, 'layer')} left out to keep this output small: w.history and w.widget() have all")
    if len(record.alerts) > ALERTS:
        said.append(f"{len(record.alerts) - ALERTS:,} alerts left out to keep this output small: w.alerts has all")
    neurons = None if record.neurons is None else _neurons(record.neurons, _WEIGHTS * max(limit, 1))
    columns = {name: _rounded(column) for name, column in history.columns.items()}
    alerts = tuple(sorted(record.alerts, key=words.rank)[:ALERTS]) if len(record.alerts) > ALERTS else record.alerts
    return replace(record, history=replace(history, columns=columns), units=units, neurons=neurons, alerts=alerts), said


def _series(record: WatchRecord, share: float) -> tuple[HistoryRecord, int]:
    """Whole layers: those of which something is wrong first, then evenly along the depth."""
    history = record.history
    if share >= 1:
        return history, 0
    owners = [layers.owner(one) for one in history.series]
    paths = list(dict.fromkeys(owners))
    wanted = max(1, int(len(paths) * share))
    marked = layers.accused(record)
    kept = set([path for path in paths if path in marked][:wanted])
    rest = [path for path in paths if path not in kept]
    if wanted > len(kept):
        kept.update(rest[i] for i in np.linspace(0, len(rest) - 1, wanted - len(kept)).astype(int))
    if len(kept) == len(paths):
        return history, 0
    return merging.of_series(history, [i for i, path in enumerate(owners) if path in kept]), len(paths) - len(kept)


def _units(record: WatchRecord, counts: int) -> tuple[tuple[UnitsRecord, ...], int]:
    """As many modules as fit, those of which something is wrong first, then the smallest; and how many are left out."""
    marked = layers.accused(record)
    order = sorted(record.units, key=lambda units: (units.path not in marked, units.fired.size))
    kept: dict[str, UnitsRecord] = {}
    for units in order:
        width = max(units.fired.shape[1], 1)
        if counts >= width * min(merging.LEAST, len(units.first)):
            kept[units.path] = merging.of_units(units, counts // width)
            counts -= kept[units.path].fired.size
    return tuple(kept[units.path] for units in record.units if units.path in kept), len(record.units) - len(kept)


def _neurons(neurons: NeuronsRecord, weights: int) -> NeuronsRecord:
    width = sum(layer.weights[:1].size for layer in neurons.layers)
    fewer = merging.of_neurons(neurons, max(2, weights // max(width, 1)))
    return replace(
        fewer,
        layers=tuple(
            replace(
                one,
                weights=_rounded(one.weights),
                activations=_rounded(one.activations),
                gradients=_rounded(one.gradients),
                biases=None if one.biases is None else _rounded(one.biases),
            )
            for one in fewer.layers
        ),
    )


def _rounded(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """To 16 bits of mantissa; what is not finite stays."""
    floats = np.ascontiguousarray(values, dtype=np.float32)
    near = ((floats.view(np.uint32) + np.uint32(0x80)) & _DIGITS).view(np.float32)
    return np.where(np.abs(floats) < _GREATEST, near, floats)
