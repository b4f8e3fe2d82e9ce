"""Figures for papers. Needs matplotlib, which is imported on the first call; pyplot and its global state stay out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modlab import format
from modlab.errors import MissingPackageError
from modlab.records.state import TableRecord, ValuesRecord
from modlab.records.structure import ROOT, ModuleRecord, TreeRecord
from modlab.views import headline, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "container": "#8c959f", "linear": "#2f6fbf", "conv": "#7b4fb5", "norm": "#1a7f64", "activation": "#d9822b",
    "dropout": "#b59f00", "embedding": "#c2188f", "own": "#57606a",
}  # fmt: skip
_BARS = 40


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("figure() needs matplotlib, which is not installed.\n  Install it: pip install matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained").add_subplot()


def _figure(ax: Axes) -> Figure:
    found = ax.get_figure()
    assert found is not None
    return found  # type: ignore[return-value]


def of_tree(tree: TreeRecord, *, ax: Axes | None = None, depth: int = 4) -> Figure:
    """Parameters by module as an icicle: depth runs down, width is the share; equal neighbours are one box."""
    ax = _axes(ax, 9, 0.8 + 0.42 * (depth + 1))
    total = max(tree.root.totals.parameters, 1)
    left: dict[int, float] = {0: 0.0}
    for record in tree.rows(folded=True, depth=depth):
        if not record.subtree.totals.parameters or record.same_as is not None:
            continue
        begin = left.get(record.depth, 0.0)
        width = record.subtree.totals.parameters * record.count / total
        left[record.depth], left[record.depth + 1] = begin + width, begin
        ax.barh(record.depth, width, left=begin, height=0.94, color=COLOURS[record.subtree.category], edgecolor="white", linewidth=0.8)
        label = _label(record)
        if width > 0.011 * len(label):
            ax.text(begin + width / 2, record.depth, label, ha="center", va="center", color="white", fontsize=8, parse_math=False)
    ax.set(xlim=(0, 1), ylim=(depth + 0.6, -0.6), yticks=[], xticks=[0, 0.5, 1], xticklabels=["0", "50 %", "100 %"])
    ax.set_title(headline.of_tree(tree)[0].rstrip(";"), fontsize=10, loc="left", parse_math=False)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return _figure(ax)


def _label(record: ModuleRecord) -> str:
    name = format.cut(format.clean(record.name), 40) or ROOT
    many = f" – {format.clean(record.last.rpartition('.')[2])}" if record.count > 1 else ""
    return f"{name}{many}  {format.count(record.subtree.totals.parameters * record.count)}"


def of_table(table: TableRecord, *, ax: Axes | None = None) -> Figure:
    """Bytes by tensor as bars, the largest first; what is not in the state_dict is hatched."""
    rows = sorted((row for row in table.rows if row.bytes and not row.tied), key=lambda row: -row.bytes)
    shown = rows[:_BARS]
    ax = _axes(ax, 7, 0.8 + 0.22 * max(len(shown), 1))
    for i, row in enumerate(shown):
        colour = COLOURS["linear"] if row.kind in ("parameter", "tensor", "packed") else COLOURS["norm"]
        ax.barh(i, row.bytes, color=colour if row.in_state_dict else "white", edgecolor=colour, hatch="" if row.in_state_dict else "////")
        ax.text(row.bytes, i, f" {format.size(row.bytes)}", va="center", fontsize=7)
    ax.set(yticks=range(len(shown)), ylim=(len(shown) - 0.4, -0.6), xticks=[])
    ax.set_yticklabels([format.cut(format.clean(row.path), 60) for row in shown], fontsize=7, family="monospace", parse_math=False)
    more = f" (the {_BARS} largest of {len(rows):,})" if len(rows) > _BARS else ""
    ax.set_title(headline.of_table(table)[0].rstrip(";.") + more, fontsize=10, loc="left", parse_math=False)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    return _figure(ax)


def of_values(values: ValuesRecord, *, ax: Axes | None = None) -> Figure:
    """The histogram of a tensor; in a figure of its own also its numbers as a heat map."""
    if ax is not None or values.matrix is None or not values.stats.finite:
        ax = _axes(ax, 5, 3)
        _histogram(values, ax)
        return _figure(ax)
    left = _axes(None, 9, 3)
    figure = _figure(left)
    left.remove()
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _histogram(values, left)
    _heat(values, right)
    return figure


def _histogram(values: ValuesRecord, ax: Axes) -> None:
    ax.set_title(headline.of_values(values)[0].rstrip(";"), fontsize=10, loc="left", parse_math=False)
    bars = numbers.bars(values.stats)
    if bars is None:
        reason = values.stats.note or ("no histogram was taken" if values.stats.finite else "no finite value")
        ax.text(0.5, 0.5, reason, ha="center", va="center", transform=ax.transAxes, wrap=True, parse_math=False)
        ax.set(xticks=[], yticks=[])
        return
    edges = np.linspace(bars.low, bars.high, len(bars.counts) + 1)
    ax.stairs(bars.counts, edges, fill=True, color=COLOURS["linear"])
    bad = [
        text
        for text in (f"{values.stats.nan:,} NaN" * bool(values.stats.nan), f"{_infinite(values):,} Inf" * bool(_infinite(values)))
        if text
    ]
    ax.set(xlabel=", ".join(["value", *bad]), ylabel=f"count {bars.note}".rstrip())
    ax.spines[["top", "right"]].set_visible(False)


def _infinite(values: ValuesRecord) -> int:
    return values.stats.posinf + values.stats.neginf


def _heat(values: ValuesRecord, ax: Axes) -> None:
    assert values.matrix is not None
    array = np.array(values.matrix.numbers, dtype=float)
    end = numbers.limit(values.stats)
    two_sided = numbers.signed(values.stats)
    scale: dict[str, Any] = {"vmin": -end if two_sided else 0, "vmax": end, "cmap": _colours(two_sided)}
    image = ax.imshow(np.ma.masked_invalid(array), aspect="auto", interpolation="nearest", **scale)
    ax.set_title(values.matrix.slice or "whole", fontsize=9, loc="left")
    _figure(ax).colorbar(image, ax=ax, shrink=0.8)


def _colours(two_sided: bool) -> Any:
    """Blue over white to orange, or cividis; what is not finite is magenta."""
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    diverging = LinearSegmentedColormap.from_list("modlab", ["#2f6fbf", "#f3f3f1", "#d9822b"])
    return (diverging if two_sided else matplotlib.colormaps["cividis"]).with_extremes(bad="#c2188f")
