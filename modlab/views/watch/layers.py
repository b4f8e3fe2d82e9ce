"""The history by layers: one curve for each of a module's numbers, those of its own parameters taken together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from modlab import format
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, PARAMETER_GRADIENT, UPDATE, HistoryRecord, Series, WatchRecord
from modlab.views.watch import words

MODULES = (ACTIVATION, GRADIENT)
"""The roles of which the path is a module's."""

Curve = npt.NDArray[np.float64]

NUMBERS = ("mean", "std", "zeros", "gradient", "weight gradient", "update / weights", "not moved", "weights")
"""What is told of a layer: of its activation the mean, the std and the share of zeros; the norm of the gradient of its output, and of
its own parameters; the update ratio; the share of elements that had a gradient and did not move; the norm of its parameters."""

SHARES = frozenset(("zeros", "not moved"))

_OF = {
    "mean": (ACTIVATION,),
    "std": (ACTIVATION,),
    "zeros": (ACTIVATION,),
    "gradient": (GRADIENT,),
    "weight gradient": (PARAMETER_GRADIENT,),
    "update / weights": (UPDATE, PARAMETER),
    "not moved": (UPDATE,),
    "weights": (PARAMETER,),
}
"""The roles of the tensors that a number is of."""


@dataclass(slots=True)
class LayerCurves:
    """One module, or the owner of parameters.

    Attributes:
        path: of it; `category`, `shape` and `note`: of its activation.
        rows: the series of it and of its own parameters, by role.
        curves: by the names of `NUMBERS`, each of shape ``(slots,)``; NaN where there is no sample; only what was measured.
        parameters: the names of its own ones.
        spoilt: by the same names, in which slots NaN or infinities were among what the curve is of: it is that of the others alone.
        bad: the most NaN and infinities in one sample, over all its series; `bad_step`: where they came first, -1 if never.
    """

    path: str
    category: str = "own"
    shape: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list)
    rows: dict[str, list[int]] = field(default_factory=dict)
    curves: dict[str, Curve] = field(default_factory=dict)
    spoilt: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    bad: int = 0
    bad_step: int = -1
    parameters: list[str] = field(default_factory=list)

    def ends(self, name: str) -> tuple[float, float]:
        """The first and the last number of a curve; NaN where that is none, as NaN or infinities were among what it is of."""
        if name not in self.curves:
            return math.nan, math.nan
        curve, spoilt = self.curves[name], self.spoilt[name]
        seen = np.where(spoilt, np.nan, curve)[~np.isnan(curve) | spoilt]
        return float(seen[0]), float(seen[-1])

    def told(self, name: str) -> str:
        """``0.51 → 0.48``; one number where both are the same."""
        if name not in self.curves:
            return ""
        told = _joined(*(end(value, as_share=name in SHARES) for value in self.ends(name)))
        return f"from zero, {told}" if name == "update / weights" and self.curves.get("weights", [1.0])[0] == 0 else told

    def odd(self) -> str:
        """What to say about NaN and infinities."""
        return f"{self.bad:,}, seen first at step {self.bad_step:,}" if self.bad else ""

    def odd_slots(self, history: HistoryRecord) -> npt.NDArray[np.bool_]:
        """In which slots there were NaN or infinities, shape ``(slots,)``."""
        every = [i for rows in self.rows.values() for i in rows]
        return np.asarray(np.nan_to_num(history.columns["bad"][:, every]).max(axis=1, initial=0) > 0)


def caption(record: WatchRecord) -> str:
    """What the two numbers of a layer are: of a long run neighbouring samples have become one slot."""
    most = int(np.nan_to_num(record.history.columns["samples"]).max(initial=1))
    ends = "from the first sample to the last" if most == 1 else f"from the first samples to the last, averaged over up to {most:,}"
    return f"layers{words.of_part(record)}, {ends}"


def end(value: float, *, as_share: bool = False) -> str:
    """A number at an end of a curve."""
    if math.isnan(value):
        return "NaN or Inf"
    return words.share(value) if as_share else words.number(value)


def arrow(first: float, last: float) -> str:
    """From what to what."""
    return _joined(words.number(first), words.number(last))


def _joined(begin: str, end: str) -> str:
    """One where both are the same; the sign of percent once."""
    return begin if begin == end else f"{begin.removesuffix(' %') if end.endswith(' %') else begin} → {end}"


def owner(series: Series) -> str:
    """The module that a series belongs to."""
    return series.path if series.role in MODULES else series.path.rpartition(".")[0]


def norms(history: HistoryRecord) -> Curve:
    """The Euclidean norm of each series in each slot, shape ``(slots, series)``."""
    mean, var = (history.columns[name].astype(np.float64) for name in ("mean", "var"))
    count = np.array([one.count for one in history.series], dtype=np.float64)
    found: Curve = np.sqrt((var + mean * mean) * count)
    return found


def ratios(history: HistoryRecord, norm: Curve | None = None) -> Curve:
    """Norm of the update over norm of the parameter, in the columns of the updates; NaN in all others."""
    norm = norms(history) if norm is None else norm
    rows = {(one.role, one.path): i for i, one in enumerate(history.series)}
    found = np.full(norm.shape, np.nan)
    pairs = [(i, rows[PARAMETER, one.path]) for i, one in enumerate(history.series) if one.role == UPDATE and (PARAMETER, one.path) in rows]
    if pairs:
        updates, parameters = (list(side) for side in zip(*pairs, strict=True))
        with np.errstate(divide="ignore", invalid="ignore"):
            found[:, updates] = _ratio(norm[:, updates], norm[:, parameters])
    return found


def of_history(history: HistoryRecord) -> list[LayerCurves]:
    """The layers, in the order in which they were called first; then owners of parameters that were never seen to be called."""
    called = dict.fromkeys(one.path for one in history.series if one.role in MODULES)  # the parameters stand first, in the model's order
    layers = {path: LayerCurves(path) for path in called}
    for i, one in enumerate(history.series):
        module, path = one.role in MODULES, owner(one)
        layer = layers.setdefault(path, LayerCurves(path))
        layer.rows.setdefault(one.role, []).append(i)
        if one.role == PARAMETER:
            layer.parameters.append(one.path.rpartition(".")[2])
        if one.role == ACTIVATION:
            layer.category, layer.shape = one.category, one.shape
        if one.note:
            about = one.role if module else f"{one.path.rpartition('.')[2]}, {one.role}"
            layer.notes.append(f"{about}: {one.note}")
    norm = norms(history)
    for layer in layers.values():
        _measure(layer, history, norm)
    return list(layers.values())


def _measure(layer: LayerCurves, history: HistoryRecord, norm: Curve) -> None:
    columns, rows = history.columns, layer.rows
    for i in rows.get(ACTIVATION, [])[:1]:
        layer.curves["mean"] = columns["mean"][:, i].astype(np.float64)
        layer.curves["std"] = np.sqrt(columns["var"][:, i].astype(np.float64))
        layer.curves["zeros"] = columns["zeros"][:, i].astype(np.float64)
    for name, role in (("gradient", GRADIENT), ("weights", PARAMETER), ("weight gradient", PARAMETER_GRADIENT)):
        if role in rows:
            layer.curves[name] = _together(norm[:, rows[role]])
    if UPDATE in rows:
        if PARAMETER in rows:
            with np.errstate(divide="ignore", invalid="ignore"):
                layer.curves["update / weights"] = _ratio(_together(norm[:, rows[UPDATE]]), layer.curves["weights"])
        layer.curves["not moved"] = _weighted(columns["stuck"][:, rows[UPDATE]], [history.series[i].count for i in rows[UPDATE]])
    layer.spoilt = {name: _spoilt(layer, history, name) for name in layer.curves}
    layer.curves = {name: curve for name, curve in layer.curves.items() if layer.spoilt[name].any() or not np.isnan(curve).all()}
    _find_bad(layer, history)


def _spoilt(layer: LayerCurves, history: HistoryRecord, name: str) -> npt.NDArray[np.bool_]:
    """In which slots NaN or infinities were among what a number is of."""
    every = [i for role in _OF[name] for i in layer.rows.get(role, ())]
    return np.asarray((history.columns["bad"][:, every] > 0).any(axis=1))


def _ratio(update: Curve, weights: Curve) -> Curve:
    """Of weights that are all zero nothing is a share."""
    return np.where(weights > 0, update / weights, np.nan)


def _find_bad(layer: LayerCurves, history: HistoryRecord) -> None:
    every = [i for rows in layer.rows.values() for i in rows]
    bad = np.nan_to_num(history.columns["bad"][:, every]).max(axis=1, initial=0)
    found = np.flatnonzero(bad > 0)
    if len(found):
        steps = [] if history.bad_step is None else [int(history.bad_step[i]) for i in every if history.bad_step[i] >= 0]
        layer.bad, layer.bad_step = int(bad.max()), min(steps) if steps else int(history.first[found[0]])


def _together(norm: Curve) -> Curve:
    """The norm of several tensors as one; NaN where none has a sample."""
    if norm.shape[1] == 1:
        return norm[:, 0]
    total: Curve = np.sqrt(np.where(np.isnan(norm), 0, norm**2).sum(axis=1))
    return np.where(np.isnan(norm).all(axis=1), np.nan, total)


def _weighted(shares: npt.NDArray[np.float32], counts: list[int]) -> Curve:
    """A share of the elements of several tensors."""
    weights = np.where(np.isnan(shares), 0.0, np.array(counts, dtype=np.float64))
    total = weights.sum(axis=1)
    with np.errstate(invalid="ignore"):
        found: Curve = (np.nan_to_num(shares) * weights).sum(axis=1) / total
    return found


def names(layers: list[LayerCurves]) -> list[str]:
    """The numbers to tell: those that any layer has; the gradient of the weights only where that of no output was seen."""
    found = [name for name in NUMBERS if any(name in layer.curves for layer in layers)]
    return [name for name in found if name != "weight gradient" or "gradient" not in found]


def shown(layers: list[LayerCurves], record: WatchRecord, most: int) -> list[int]:
    """The numbers of the layers that are told, where they are too many: those with an alert, and the first and the last ones."""
    if len(layers) <= most:
        return list(range(len(layers)))
    marked = accused(record)
    kept = {i for i, layer in enumerate(layers) if layer.bad or layer.path in marked}
    kept = set(sorted(kept)[: most // 2])
    begin, end = 0, len(layers) - 1
    while len(kept) < most:
        kept.add(begin)
        if len(kept) < most:
            kept.add(end)
        begin, end = begin + 1, end - 1
    return sorted(kept)


def accused(record: WatchRecord) -> dict[str, str]:
    """The layers of which something is wrong, and how badly: "broken" or "careful"."""
    modules = {one.path for one in record.history.series if one.role in MODULES}
    found: dict[str, str] = {}
    said = [(alert.path, words.mark(alert)) for alert in record.alerts if not alert.over]
    said += [(check.path, check.state) for check in record.verdict.checks if check.state in ("broken", "careful") and check.path]
    said += [(one.path, one.severity) for one in record.verdict.findings if one.severity != "note" and one.path]
    for path, mark in said:
        layer = path if path in modules else path.rpartition(".")[0]
        if found.get(layer) != "broken":
            found[layer] = mark
    return found


def alerts(record: WatchRecord) -> dict[str, list[str]]:
    """The kinds of a layer's alerts that still hold, the worst first."""
    modules = {one.path for one in record.history.series if one.role in MODULES}
    found: dict[str, list[str]] = {}
    for alert in sorted(record.alerts, key=words.rank):
        layer = alert.path if alert.path in modules else alert.path.rpartition(".")[0]
        if not alert.over and alert.kind not in found.setdefault(layer, []):
            found[layer].append(alert.kind)
    return found


def gaps(kept: Iterable[int], count: int) -> dict[int, int]:
    """Before which of the kept ones how many are left out; `count` stands for the end."""
    return {j: j - i - 1 for i, j in pairwise([-1, *kept, count]) if j - i > 1}


def more(left: int) -> str:
    """What a row says that stands for others."""
    return f"{format.plural(left, 'more layer')}: w.history"
