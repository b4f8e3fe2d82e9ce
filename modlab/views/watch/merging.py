"""Fewer, wider slots: neighbours become one. What is least, greatest or not finite is kept; means and shares are weighted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from modlab.records.slots import COLUMNS, Floats, merged
from modlab.records.watch import HistoryRecord, Layer, NeuronsRecord, ScalarRecord, UnitsRecord, WatchRecord

Array = npt.NDArray[Any]
LEAST = 8
"""Slots of any part that are left, however small an output must be."""
_SCALARS = 2048  # slots that all logged curves together keep: they cost little beside the history, and the loss is read closely


def of_watch(record: WatchRecord, slots: int) -> WatchRecord:
    """The same watch with at most so many slots in its history, and the same share of units and neurons, which have their own."""
    own = len(record.history.first)
    share = min(1.0, slots / own) if own else 1.0

    def most(count: int) -> int:
        return max(LEAST, int(count * share))

    history = record.history
    return replace(
        record,
        history=of_bins(of_history(history, max(1, slots)), most(len(history.bins_first))),
        units=tuple(of_units(units, most(len(units.first))) for units in record.units),
        neurons=None if record.neurons is None else of_neurons(record.neurons, most(len(record.neurons.first))),
        scalars=tuple(of_scalar(scalar, max(most(len(scalar.first)), _SCALARS // len(record.scalars))) for scalar in record.scalars),
    )


def starts(count: int, most: int) -> npt.NDArray[np.intp]:
    """Where the groups begin when `count` neighbours become at most `most`, all but the last of one size."""
    return np.arange(0, count, -(-count // max(most, 1)))


def _ends(first: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.intp]:
    return np.append(first[1:], count) - 1


def of_history(history: HistoryRecord, most: int) -> HistoryRecord:
    """Its statistics in at most `most` slots."""
    count = len(history.first)
    if count <= most:
        return history
    first = starts(count, most)
    return replace(history, first=history.first[first], last=history.last[_ends(first, count)], columns=_columns(history, first))


def _columns(history: HistoryRecord, first: npt.NDArray[np.intp]) -> dict[str, Floats]:
    """By the rule by which the history itself makes room."""
    table = np.stack([history.columns[name] for name in COLUMNS], axis=1)
    table[:, 0] = np.nan_to_num(table[:, 0])
    made = np.stack([merged(group) for group in np.split(table, first[1:])])
    return {name: made[:, i] for i, name in enumerate(COLUMNS)}


def _mean(values: Array, weights: Array, first: npt.NDArray[np.intp]) -> Array:
    """Of the numbers that are there; NaN where none is."""
    there = np.where(np.isnan(values), 0.0, weights)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.add.reduceat(np.where(there > 0, values, 0.0) * there, first, axis=0)
        found: Array = total / np.add.reduceat(there, first, axis=0)
    return found


def of_bins(history: HistoryRecord, most: int) -> HistoryRecord:
    """Its histograms in at most `most` slots; a bin that held something still does."""
    count = len(history.bins_first)
    if count <= most:
        return history
    first = starts(count, most)
    there = history.bins.any(axis=2)
    total = np.add.reduceat(history.bins.astype(np.uint32), first, axis=0)
    seen = np.add.reduceat(there.astype(np.uint32), first, axis=0)[..., None]
    mean = np.rint(total / np.maximum(seen, 1)).astype(np.uint8)
    return replace(
        history,
        bins_first=history.bins_first[first],
        bins_last=history.bins_last[_ends(first, count)],
        bins=np.maximum(mean, total > 0).astype(np.uint8),
    )


def of_scalar(scalar: ScalarRecord, most: int) -> ScalarRecord:
    """One curve in at most `most` slots, each weighted by the steps that it spans."""
    count = len(scalar.first)
    if count <= most:
        return scalar
    first = starts(count, most)
    spans = (scalar.last - scalar.first + 1).astype(np.float64)
    return replace(
        scalar,
        first=scalar.first[first],
        last=scalar.last[_ends(first, count)],
        mean=_mean(scalar.mean.astype(np.float64), spans, first).astype(np.float32),
        low=np.fmin.reduceat(scalar.low, first),
        high=np.fmax.reduceat(scalar.high, first),
        bad=np.add.reduceat(scalar.bad, first),
    )


def of_units(units: UnitsRecord, most: int) -> UnitsRecord:
    """Counts in at most `most` windows."""
    count = len(units.first)
    if count <= most:
        return units
    first = starts(count, most)
    return replace(
        units,
        first=units.first[first],
        last=units.last[_ends(first, count)],
        inputs=np.add.reduceat(units.inputs, first),
        fired=np.add.reduceat(units.fired, first, axis=0),
    )


def of_neurons(neurons: NeuronsRecord, most: int) -> NeuronsRecord:
    """A small net in at most `most` slots: weights as they are at the end of each, means of what flows."""
    count = len(neurons.first)
    if count <= most:
        return neurons
    first = starts(count, most)
    ends = _ends(first, count)
    return replace(
        neurons,
        first=neurons.first[first],
        last=neurons.last[ends],
        layers=tuple(_layer(layer, first, ends) for layer in neurons.layers),
    )


def _layer(layer: Layer, first: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> Layer:
    even = np.ones_like(layer.activations, dtype=np.float64)
    flows = [_mean(flow.astype(np.float64), even, first).astype(np.float32) for flow in (layer.activations, layer.gradients)]
    biases = None if layer.biases is None else layer.biases[ends]
    return replace(layer, weights=layer.weights[ends], activations=flows[0], gradients=flows[1], biases=biases)


def of_series(history: HistoryRecord, kept: list[int]) -> HistoryRecord:
    """Only some of the series."""
    return replace(
        history,
        series=tuple(history.series[i] for i in kept),
        columns={name: column[:, kept] for name, column in history.columns.items()},
        bins=history.bins[:, kept],
        top=history.top[kept],
        bad_step=None if history.bad_step is None else history.bad_step[kept],
    )
