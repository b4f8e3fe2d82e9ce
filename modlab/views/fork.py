"""A fork in words and pictures: the loss as it was, and as it would have been."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from modlab import format
from modlab.records.fork import ForkRecord
from modlab.views.figure import COLOURS, _axes, _figure
from modlab.views.html import static_file, tabulated, text
from modlab.views.watch import pictures, words
from modlab.wording import forks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ORIGINAL, _FORK = pictures.INK, pictures.POSITIVE


def sentence(record: ForkRecord) -> tuple[str, str]:
    """The headline in two halves."""
    return forks.conclusion(record)


def of_fork(record: ForkRecord) -> str:
    """As text."""
    lines = [" ".join(sentence(record)).rstrip()]
    rows = _rows(record)
    widths = [max(len(row[i]) for row in (_HEAD, *rows)) for i in range(len(_HEAD))]
    for row in (_HEAD, *rows) if rows else ():
        cells = [cell.ljust(width) if not i else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, *forks.notes(record)])


_HEAD = ("loss", "at the change", "least", "last tenth")


def _rows(record: ForkRecord) -> list[tuple[str, ...]]:
    """The two curves behind the change."""
    if not record.steps:
        return []
    named = {"original": "original", "fork": "fork" if record.change else "unchanged fork"}
    if record.change and not record.exact:
        named["twin"] = "unchanged fork"
    if "stuck" in record.facts:
        named = {"fork": "fork"}
    return [(name, *_ends(record, which)) for which, name in named.items()]


def _ends(record: ForkRecord, which: str) -> Iterator[str]:
    curve = getattr(record, which)[: len(record.fork)][record.at - record.began :].astype(np.float64)
    finite = curve[np.isfinite(curve)]
    yield words.number(float(curve[0])) if len(curve) else ""
    yield words.number(float(finite.min())) if len(finite) else ""
    yield words.number(record.last(which)) if len(curve) else ""


def html(record: ForkRecord) -> str:
    """Both curves, their numbers, and what to know about it; in a frame, as views have that a script draws."""
    parts = [f"<style>{static_file('fork.css').strip()}</style>"]
    if record.steps:
        parts.append(f'<p style="margin:0">{picture(record)}</p>')
        parts.append(tabulated([*map(text, _HEAD)], [[f"<b>{text(row[0])}</b>", *map(text, row[1:])] for row in _rows(record)]))
    parts += [f"<p>{text(note)}</p>" for note in forks.notes(record)]
    return "\n".join(parts)


def picture(record: ForkRecord) -> str:
    """The curves on one axis, with a legend and a line at the change; for a small screen drawn anew: words shrink with their picture."""
    small = pictures.address(_drawn(record, 330, 190))
    return f'<picture><source media="(max-width:600px)" srcset="{small}" width="330" height="190">{_drawn(record, 560, 170)}</picture>'


def _drawn(record: ForkRecord, width: int, height: int) -> str:
    names = ("original", "fork") if record.change else ("original", "unchanged fork")
    rows = _rows(record)
    said = "; ".join(f"{row[0]} {row[3]}" for row in rows)
    curves = [one.astype(np.float64) for one in (record.original[: len(record.fork)], record.fork)]
    marks = [(record.at, forks.mark(record))] if record.change else []
    lines = list(zip(names, curves, (_ORIGINAL, _FORK), strict=True))
    span = (record.began, record.began + len(record.fork) - 1)
    return pictures.curves(lines, span, marks, "loss", f"loss at last: {said}", width, height)


def figure(record: ForkRecord, *, ax: Axes | None = None) -> Figure:
    """The curves as a figure for papers."""
    ax = _axes(ax, 7, 3)
    steps = np.arange(record.began, record.began + len(record.fork))
    name = "fork" if record.change else "unchanged fork"
    ax.plot(steps, record.original[: len(record.fork)], color=COLOURS["container"], linewidth=2.4, label="original")
    ax.plot(steps, record.fork, color=COLOURS["activation"], linewidth=1.2, label=name)
    if record.change:
        ax.axvline(record.at, color=COLOURS["container"], linewidth=0.8, linestyle=":")
    values = np.concatenate([record.original[: len(record.fork)], record.fork])
    there = values[np.isfinite(values)]
    if len(there) and there.min() > 0 and there.max() / there.min() >= 20:
        ax.set_yscale("log")
    ax.set(xlabel="step", ylabel="loss")
    ax.legend(frameon=False, fontsize=8)
    ax.set_title(format.cut(" ".join(sentence(record)), 110), fontsize=10, loc="left", parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    return _figure(ax, "The loss as it was, and in the fork")
