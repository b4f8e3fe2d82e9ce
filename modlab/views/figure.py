"""Figures for papers. Needs matplotlib, which is imported on the first call; pyplot and its global state stay out of it."""

from __future__ import annotations

import math
import sys
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from modlab import format
from modlab.errors import MissingPackageError
from modlab.records.state import TableRecord, ValuesRecord
from modlab.records.structure import ROOT, ModuleRecord, Subtree, TreeRecord
from modlab.views import headline, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {
    "container": "#8c959f",
    "linear": "#2f6fbf",
    "conv": "#7b4fb5",
    "norm": "#1a7f64",
    "activation": "#d9822b",
    "dropout": "#b59f00",
    "embedding": "#c2188f",
    "own": "#57606a",
}
_BARS = 40
_HUGE, _GREATEST = 1e300, sys.float_info.max
_MOUNT = "max-width:100%;box-sizing:border-box;padding:8px;border-radius:6px;background:#fff"  # on a dark page, a white card


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    if ax is not None:
        return ax
    return _blank()(figsize=(width, height), layout="constrained").add_subplot()


@cache
def _blank() -> type[Figure]:
    """A figure that a notebook shows as a picture by itself: without pyplot, no backend would draw it. Made late, as matplotlib is."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError("figure() needs matplotlib, which is not installed.\n  Install it: pip install matplotlib") from error

    class Picture(Figure):
        alt = ""

        def _repr_html_(self) -> str:
            return of_picture(self, self.alt or titles(self))

        def _repr_png_(self) -> tuple[bytes, dict[str, str]]:
            return png(self), {"alt": self.alt or titles(self)}

        def __reduce__(self) -> Any:
            return _empty, (), self.__getstate__()  # a class made in a function has no name that pickle could find

    return Picture


def _empty() -> Figure:
    return _blank().__new__(_blank())


def of_picture(figure: Figure, alt: str) -> str:
    """Any figure with words for who cannot see it, as HTML: no notebook shows those of an image, where an output has any."""
    encoded = b64encode(png(figure)).decode("ascii")
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{encoded}" style="{_MOUNT}">'


def titles(figure: Figure) -> str:
    """What a figure says of itself, in a line."""
    found = (ax.get_title(side) for ax in figure.axes for side in ("left", "center", "right"))
    return "; ".join(dict.fromkeys(" ".join(title.split()) for title in found if title))


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a file."""
    stream = BytesIO()
    figure.savefig(stream, format="png", bbox_inches="tight")
    return stream.getvalue()


def _figure(ax: Axes, what: str = "") -> Figure:
    """The figure of these axes; of our own it is kept what it shows."""
    found = ax.get_figure()
    assert found is not None
    if what and isinstance(found, _blank()):
        found.alt = f"{what}: {titles(found)}."  # type: ignore[attr-defined]
    return found  # type: ignore[return-value]


def of_tree(tree: TreeRecord, *, ax: Axes | None = None, depth: int = 4) -> Figure:
    """Parameters by module as an icicle: depth runs down, width is the share; equal neighbours are one box."""
    ax = _axes(ax, 9, 0.8 + 0.42 * (depth + 1))
    counted = _counted(tree)
    for record, begin, width in _boxes(tree, depth):
        tied = id(record.subtree) not in counted
        colour, hatch = COLOURS[record.subtree.category], "////" if tied else ""
        ax.barh(record.depth, width, left=begin, height=0.94, color=colour, edgecolor="white", linewidth=0.8, hatch=hatch)
        label = "⇄ " * tied + _label(record)
        if width > 0.011 * len(label):
            ax.text(begin + width / 2, record.depth, label, ha="center", va="center", color="white", fontsize=8, parse_math=False)
    ax.set(xlim=(0, 1), ylim=(depth + 0.6, -0.6), yticks=[], xticks=[0, 0.5, 1], xticklabels=["0", "50 %", "100 %"])
    ax.set_title(headline.of_tree(tree)[0].rstrip(";"), fontsize=10, loc="left", parse_math=False)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return _figure(ax, f"Parameters by module as boxes{_largest(tree)}")


def _largest(tree: TreeRecord) -> str:
    """The shares of the largest children, in words."""
    total = tree.root.totals.parameters
    children = [record for record, _ in _shown(tree, 1) if record.depth]
    children.sort(key=lambda record: -record.subtree.totals.parameters * record.count)
    shares = (f"{format.clean(one.name)} ({100 * one.subtree.totals.parameters * one.count / total:.0f} %)" for one in children[:3])
    return f", the largest {', '.join(shares)}" if children else ""


class _Box(NamedTuple):
    """The place of one record on the axis from 0 to 1."""

    record: ModuleRecord
    begin: float
    width: float


def _boxes(tree: TreeRecord, depth: int) -> Iterator[_Box]:
    """Each record below its parent. A tied tensor counts once in the parent and once in each child: they share its width then."""
    shown = list(_shown(tree, depth))
    needed = [0] * len(shown)
    for record, parent in shown[1:]:
        needed[parent] += record.subtree.totals.parameters * record.count
    cursor, unit = [0.0] * len(shown), [0.0] * len(shown)  # of each record's children: where the next begins, what a parameter takes
    for i, (record, parent) in enumerate(shown):
        own = record.subtree.totals.parameters
        each = unit[parent] if i else 1 / own
        begin, width = cursor[parent] if i else 0.0, own * record.count * each
        yield _Box(record, begin, width)
        cursor[parent], cursor[i] = begin + width, begin
        unit[i] = each * min(1.0, own / max(needed[i], 1))


def _shown(tree: TreeRecord, depth: int) -> Iterator[tuple[ModuleRecord, int]]:
    """The records that have a box, each with its parent's number; a module with two names has one, with all below it."""
    above: list[int] = []
    left_out: int | None = None
    number = 0
    for record in tree.rows(folded=True, depth=depth):
        if left_out is not None and record.depth > left_out:
            continue
        left_out = None if record.subtree.totals.parameters and record.same_as is None else record.depth
        if left_out is None:
            del above[record.depth :]
            yield record, above[-1] if above else 0
            above.append(number)
            number += 1


def _counted(tree: TreeRecord) -> set[int]:
    """The ids of the subtrees in which a parameter stands for the first time; what is in the others is tied, all of it."""
    found: set[int] = set()
    for subtree in tree.subtrees():  # children first
        if _owns_first(subtree) or any(id(run.subtree) in found for run in subtree.runs if run.same_as is None):
            found.add(id(subtree))
    return found


def _owns_first(subtree: Subtree) -> bool:
    return any(entry.kind == "parameter" and entry.tied is None and entry.count for entry in subtree.tensors)


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
    return _figure(ax, "Bytes by tensor as bars")


def of_values(values: ValuesRecord, *, ax: Axes | None = None) -> Figure:
    """The histogram of a tensor; in a figure of its own also its numbers as a heat map."""
    if ax is not None or values.matrix is None or not values.stats.finite:
        ax = _axes(ax, 5, 3)
        _histogram(values, ax)
        return _figure(ax, "Histogram")
    left = _axes(None, 9, 3)
    figure = _figure(left)
    left.remove()
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _histogram(values, left)
    _heat(values, right)
    return _figure(left, "Histogram, and the numbers as a heat map")


def _histogram(values: ValuesRecord, ax: Axes) -> None:
    ax.set_title(headline.of_values(values)[0].rstrip(";"), fontsize=10, loc="left", parse_math=False)
    bars = numbers.bars(values.stats)
    if bars is None:
        reason = values.stats.note or ("no histogram was taken" if values.stats.finite else "no finite value")
        ax.text(0.5, 0.5, reason, ha="center", va="center", transform=ax.transAxes, wrap=True, parse_math=False)
        ax.set(xticks=[], yticks=[])
        return
    edges, unit = _edges(bars)
    ax.stairs(bars.counts, edges, fill=True, color=COLOURS["linear"])
    bad = [
        text
        for text in (f"{values.stats.nan:,} NaN" * bool(values.stats.nan), f"{_infinite(values):,} Inf" * bool(_infinite(values)))
        if text
    ]
    ax.set(xlabel=", ".join(["value" + unit, *filter(None, (bars.alone,)), *bad]), ylabel=f"count {bars.note}".rstrip())
    ax.spines[["top", "right"]].set_visible(False)


def _edges(bars: numbers.Bars) -> tuple[np.ndarray[Any, np.dtype[np.float64]], str]:
    """The edges of the bars, and the unit they are in: near the end of a double matplotlib's own margins would overflow."""
    low, high = np.clip((bars.low, bars.high), -_GREATEST, _GREATEST)
    top = max(abs(low), abs(high))
    if top <= _HUGE:
        return np.linspace(low, high, len(bars.counts) + 1), ""
    scale = 10.0 ** math.floor(math.log10(top))
    return np.linspace(low / scale, high / scale, len(bars.counts) + 1), f" / {scale:.0e}"


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
