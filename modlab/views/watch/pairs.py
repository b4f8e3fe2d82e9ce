"""Pairs of units of a small net that do the same and are weighed against each other, by the rule of `js/src/watch/neuron-facts.ts`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from modlab.frozen import frozen
from modlab.records.watch import Layer, NeuronsRecord, UnitsRecord, WatchRecord
from modlab.views.watch import words

Array = npt.NDArray[np.float64]

PARALLEL = 0.98
LEFT = 0.25  # what two leave of each other at most
SLIGHT = 0.02  # of the largest contribution of a unit: less is no matter
APART = 0.05  # of the numbers of inputs that two fire on, which fire on the same ones
_ENOUGH, _FEWEST = 0.2, 200  # inputs of the newest windows, as the picture counts them


@frozen
class UnitPair:
    """Two units that cancel.

    Attributes:
        path: of their module; `units`: their numbers.
        to: the module that weighs them.
        cosine: of their incoming weights; `left`: the share of what the two add that remains.
    """

    path: str
    units: tuple[int, int]
    to: str
    cosine: float
    left: float

    def said(self) -> tuple[str, str]:
        """What they do, and the evidence."""
        one, other = self.units
        same = f"their incoming weights are parallel (cosine {self.cosine:.3f}), so both see the same"
        rest = f"{words.place(self.to)} weighs one against the other, and {words.share(self.left)} is left"
        return f"units {one} and {other} of {words.place(self.path)} cancel", f"{same}; {rest}."


def of_watch(record: WatchRecord) -> list[UnitPair]:
    """Those at the end of a watch, in the order of the layers; of nothing but rectified units, whose counts tell that both fire alike."""
    net = record.neurons
    if net is None or not len(net.first):
        return []
    counted = {units.path: units for units in record.units}
    return [pair for left, right in _neighbours(net) if left.path in counted for pair in _between(left, right, counted[left.path])]


def _neighbours(net: NeuronsRecord) -> Iterator[tuple[Layer, Layer]]:
    for left, right in pairwise(net.layers):
        if left.biases is not None and left.weights.shape[1] == right.weights.shape[2]:
            yield left, right


def _between(left: Layer, right: Layer, units: UnitsRecord) -> list[UnitPair]:
    assert left.biases is not None
    rates = _rates(units)
    if len(rates) != left.weights.shape[1]:
        return []
    incoming, outgoing = left.weights[-1].astype(np.float64), right.weights[-1].astype(np.float64)
    whole = np.column_stack([incoming, left.biases[-1]])
    sizes = np.linalg.norm(incoming, axis=1)
    added = outgoing.T * sizes[:, None]
    weight = np.linalg.norm(added, axis=1)
    most = np.nan_to_num(weight).max(initial=0)
    found = []
    for one, other in combinations(range(len(incoming)), 2):
        low, high = sorted((rates[one], rates[other]))
        if not (low > 0 and high < 1 and high - low <= APART * high):
            continue
        cosine = _cosine(incoming[one], incoming[other])
        if not (cosine > PARALLEL and _cosine(whole[one], whole[other]) > PARALLEL):
            continue
        total, rest = weight[one] + weight[other], float(np.linalg.norm(added[one] + added[other]))
        if total > 2 * SLIGHT * most and rest <= LEFT * total:
            found.append(UnitPair(left.path, (one, other), right.path, cosine, rest / total))
    return _disjoint(sorted(found, key=lambda pair: pair.left))


def _cosine(one: Array, other: Array) -> float:
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def _rates(units: UnitsRecord) -> list[float]:
    """On which share of the newest inputs each unit fires."""
    seen, enough = 0, max(_FEWEST, _ENOUGH * int(units.inputs.sum()))
    at = len(units.inputs)
    while at and seen < enough:
        at -= 1
        seen += int(units.inputs[at])
    return [float(count) / seen for count in units.fired[at:].sum(axis=0)] if seen else []


def _disjoint(pairs: list[UnitPair]) -> list[UnitPair]:
    """Each unit in one pair at most, the best first."""
    taken: set[int] = set()
    kept = []
    for pair in pairs:
        if not taken.intersection(pair.units):
            kept.append(pair)
            taken.update(pair.units)
    return kept
