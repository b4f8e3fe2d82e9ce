"""Figures of a watch for papers; needs matplotlib. pyplot and its global state stay out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modlab import format, wording
from modlab.errors import UnknownFigureError, nearest
from modlab.records.loss import the_loss
from modlab.records.watch import UnitsRecord, WatchRecord
from modlab.views.figure import COLOURS, _axes, _figure
from modlab.views.watch import layers, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = 8  # layers up to which each has a line; more are depth × time
_LABELS = 40  # of rows
_UNITS = 400  # units that have a line
_SCALARS = 6
_BROKEN, _BAD, _QUIET = "#c43d1b", "#c2188f", "#c3c9d0"
_CYCLE = [COLOURS[name] for name in ("linear", "activation", "norm", "conv", "embedding", "dropout", "container", "own")]
_WIDE = 20.0


def of_watch(record: WatchRecord, which: str, *, ax: Axes | None = None) -> Figure:
    """One figure of a watch.

    Args:
        record: all that it has seen.
        which: "gradients" (norm of the gradient of each layer's output, or of its weights where no output was seen), "activations"
            (their std), "updates" (norm of the update over norm of the weights; in a figure of its own also the share of elements
            that did not move), "loss" (all that was logged) or "units" (the share of inputs on which each unit fires).
        ax: matplotlib axes to draw into; else a new figure is made.

    Raises:
        UnknownFigureError: another name.
    """
    drawn = _FIGURES.get(which) if isinstance(which, str) else None
    if drawn is None:
        close = nearest(which, _FIGURES) if isinstance(which, str) else []
        hint = f"  Nearest: {close[0]!r}." if close else ""
        raise UnknownFigureError(f"A watch has no figure {which!r}.\n  It has: {', '.join(map(repr, _FIGURES))}.{hint}")
    return drawn(record, ax)


def _gradients(record: WatchRecord, ax: Axes | None) -> Figure:
    every = layers.of_history(record.history)
    name = "gradient" if any("gradient" in layer.curves for layer in every) else "weight gradient"
    title = "norm of the gradient" if name == "gradient" else "norm of the weights' gradient"
    return _by_depth(record, every, name, f"{title}{words.of_part(record)}", ax)


def _activations(record: WatchRecord, ax: Axes | None) -> Figure:
    return _by_depth(record, layers.of_history(record.history), "std", "std of the activation", ax)


def _updates(record: WatchRecord, ax: Axes | None) -> Figure:
    every = layers.of_history(record.history)
    if ax is not None or not any("not moved" in layer.curves for layer in every):
        return _by_depth(record, every, "update / weights", "‖update‖ / ‖weights‖", ax)
    first = _axes(None, 9, 3.4)
    figure = _figure(first)
    first.remove()
    left, right = figure.subplots(1, 2)
    _by_depth(record, every, "update / weights", "‖update‖ / ‖weights‖", left)
    return _by_depth(record, every, "not moved", "fraction with a gradient that did not move", right)


def _by_depth(record: WatchRecord, every: list[layers.LayerCurves], name: str, title: str, ax: Axes | None) -> Figure:
    """A line for each layer, or where they are many a row of a heat map; time runs right, depth down."""
    shown = [layer for layer in every if name in layer.curves]
    many = len(shown) > _LINES
    ax = _axes(ax, 6, min(8.0, 1.4 + 0.16 * len(shown)) if many else 3.4)
    ax.set_title(title, fontsize=10, loc="left")
    if not shown:
        return _empty(ax, "nothing was measured" if record.steps else "no step yet")
    ax.set_xlabel("step")
    curves = np.stack([layer.curves[name] for layer in shown])
    log = name not in layers.SHARES and _spans(curves)
    paths = [_label(layer.path) for layer in shown]
    if many:
        odd = np.stack([layer.odd_slots(record.history) for layer in shown])
        _heat(record, np.where(odd, np.nan, curves), odd, paths, log, ax, name in layers.SHARES)
    else:
        steps = _middle(record.history.first, record.history.last)
        for i, curve in enumerate(curves):
            marker = "o" if np.isfinite(curve).sum() == 1 else ""
            ax.plot(steps, curve, color=_CYCLE[i % len(_CYCLE)], lw=1.4, marker=marker, ms=4, label=paths[i], clip_on=not marker)
        _finish(record, ax, log)
        if name in layers.SHARES:
            ax.set_ylim(bottom=0)
        legend = ax.legend(fontsize=7, frameon=False, prop={"family": "monospace", "size": 7})
        for text in legend.get_texts():
            text.set_parse_math(False)
    return _figure(ax)


def _heat(
    record: WatchRecord, curves: npt.NDArray[np.float64], odd: npt.NDArray[np.bool_], paths: list[str], log: bool, ax: Axes, share: bool
) -> None:
    import matplotlib
    from matplotlib.colors import ListedColormap, LogNorm, Normalize

    there = curves[np.isfinite(curves)] if np.isfinite(curves).any() else np.array([0.0, 1.0])
    low, high = (0.0 if share else float(there.min())), float(there.max())
    norm = LogNorm(low, high) if log else Normalize(low, max(high, low + 1e-30))
    edges = np.append(record.history.first, max(record.steps, int(record.history.last[-1]) + 1))
    colours = matplotlib.colormaps["cividis"].with_extremes(bad=(0, 0, 0, 0))
    mesh = ax.pcolormesh(edges, np.arange(len(curves) + 1), np.ma.masked_invalid(curves), norm=norm, cmap=colours, rasterized=True)
    if odd.any():
        ax.pcolormesh(edges, np.arange(len(curves) + 1), np.ma.masked_where(~odd, odd), cmap=ListedColormap([_BAD]), rasterized=True)
        ax.set_title(f"{ax.get_title('left')} (magenta: NaN, Inf)", fontsize=10, loc="left")
    every = -(-len(paths) // _LABELS)
    ax.set(yticks=np.arange(0, len(paths), every) + 0.5, ylim=(len(paths), 0))
    ax.set_yticklabels(paths[::every], fontsize=6.5, family="monospace", parse_math=False)
    ax.tick_params(length=0)
    ax.tick_params(axis="x", labelsize=8)
    ax.spines[["top", "right", "left", "bottom"]].set_visible(False)
    _figure(ax).colorbar(mesh, ax=ax, shrink=0.9, pad=0.02).ax.tick_params(labelsize=7)


def _loss(record: WatchRecord, ax: Axes | None) -> Figure:
    shown = [scalar for scalar in record.scalars if len(scalar.mean)][:_SCALARS]
    found = the_loss(record)
    if ax is not None or len(shown) < 2:
        ax = _axes(ax, 6, 3.4)
        if not shown:
            ax.set_title("loss", fontsize=10, loc="left")
            return _empty(ax, "nothing was logged: w.log(loss=loss)")
        return _scalar(record, found if found is not None and len(found.mean) else shown[0], ax)
    first = _axes(None, 6, 2.2 * len(shown))
    figure = _figure(first)
    first.remove()
    for one, scalar in zip(figure.subplots(len(shown), 1, sharex=True), shown, strict=True):
        _scalar(record, scalar, one)
        one.label_outer()
    return figure


def _scalar(record: WatchRecord, scalar: Any, ax: Axes) -> Figure:
    steps = _middle(scalar.first, scalar.last)
    low, high, mean = (side.astype(np.float64) for side in (scalar.low, scalar.high, scalar.mean))
    alone = bool(np.isfinite(mean).sum() == 1)
    ax.fill_between(steps, low, high, color=COLOURS["linear"], alpha=0.2, lw=0)
    ax.plot(steps, mean, color=COLOURS["linear"], lw=1.5, marker="o" if alone else "", ms=4, clip_on=not alone)
    for begin, end in zip(scalar.first[scalar.bad > 0], scalar.last[scalar.bad > 0], strict=True):
        ax.axvspan(begin, end + 1, color=_BAD, alpha=0.15, lw=0)
    ax.set_title(_label(scalar.name), fontsize=10, loc="left", parse_math=False)
    ax.set_xlabel("step")
    _finish(record, ax, _spans(np.stack([low, high])))
    return _figure(ax)


def _units(record: WatchRecord, ax: Axes | None) -> Figure:
    """Each unit a line; those with an alert in colour and by name."""
    shown = [units for units in record.units if units.inputs.any()]
    ax = _axes(ax, 6, 3.4)
    ax.set_title("fraction of inputs on which a unit fires", fontsize=10, loc="left")
    if not shown:
        return _empty(ax, "no units were counted")
    ax.set_xlabel("step")
    named = {(alert.path, alert.unit): alert.kind for alert in record.alerts if alert.unit is not None and not alert.over}
    left, told = _UNITS, 0
    for units in shown:
        steps, rates = _rates(units)
        for unit in range(rates.shape[1]):
            kind = named.get((units.path, unit))
            if kind is None and left > 0:
                ax.plot(steps, rates[:, unit], color=_QUIET, lw=0.9, zorder=1)
                left -= 1
            elif kind is not None and told < _LABELS:
                style = "--" if kind == "dead" else "-"
                ax.plot(steps, rates[:, unit], color=_BROKEN if kind == "dead" else COLOURS["activation"], lw=1.6, ls=style, zorder=2)
                text = f" {_label(units.path)}[{unit}] {kind}"
                ax.text(steps[-1], rates[-1, unit], text, fontsize=7, va="bottom" if told % 2 else "center", parse_math=False)
                told += 1
    total = sum(units.fired.shape[1] for units in shown)
    if total - (_UNITS - left) - told > 0:
        ax.set_title(f"fraction of inputs on which a unit fires ({_UNITS - left + told:,} of {total:,} units)", fontsize=10, loc="left")
    _finish(record, ax, False)
    ax.set_ylim(-0.02, 1.02)
    ax.set_xlim(0, max(record.steps, 1) * (1.25 if told else 1.0))
    return _figure(ax)


def _rates(units: UnitsRecord) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    seen = units.inputs > 0
    return _middle(units.first, units.last)[seen], units.fired[seen] / units.inputs[seen][:, None]


def _middle(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return (first + last) / 2


def _spans(values: npt.NDArray[np.float64]) -> bool:
    """Whether a logarithmic scale serves them."""
    there = values[np.isfinite(values)]
    return bool(len(there)) and float(there.min()) > 0 and float(there.max()) / float(there.min()) >= _WIDE


def _finish(record: WatchRecord, ax: Axes, log: bool) -> None:
    ax.set_yscale("log" if log else "linear")
    ax.set_xlim(0, max(record.steps, 1))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def _empty(ax: Axes, reason: str) -> Figure:
    ax.text(0.5, 0.5, reason, ha="center", va="center", transform=ax.transAxes)
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_linestyle(":")
    return _figure(ax)


def _label(path: str) -> str:
    return format.cut(wording.label(path), 40)


_FIGURES: dict[str, Callable[[WatchRecord, Any], Figure]] = {
    "gradients": _gradients,
    "activations": _activations,
    "updates": _updates,
    "loss": _loss,
    "units": _units,
}
