"""A difference as a figure of bars: how far each tensor is from what it was."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from modlab import format
from modlab.records.difference import TENSORS, DiffRecord
from modlab.views import sharding
from modlab.views.figure import COLOURS, _axes, _figure
from modlab.views.sheets import verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BARS = 40


def of_diff(diff: DiffRecord, *, ax: Axes | None = None) -> Figure:
    """Relative L2 by tensor, the largest first; at the end, hatched, what was all zero before."""
    rows = [r for r in diff.records if r.kind in TENSORS and r.relative_l2]
    rows.sort(key=lambda r: verdict.rank(r.relative_l2 or 0), reverse=True)
    shown = rows[:_BARS]
    ax = _axes(ax, 7, 0.9 + 0.22 * max(len(shown), 1))
    top = max((r.relative_l2 for r in shown if r.relative_l2 and math.isfinite(r.relative_l2)), default=1.0)
    for i, row in enumerate(shown):
        value = row.relative_l2 or 0.0
        finite = math.isfinite(value)
        colour = COLOURS["linear"] if row.kind != "buffer" else COLOURS["norm"]
        ax.barh(i, value if finite else top, color=colour if finite else "white", edgecolor=colour, hatch="" if finite else "////")
        ax.text(value if finite else top, i, f" {verdict.ratio(value)}", va="center", fontsize=7)
    part = f", of {sharding.PART}" if any(row.of_part for row in shown) else ""
    if not shown:
        rest = " of what was compared" if any(row.uncompared for row in diff.records) else ""
        ax.text(0.5, 0.5, f"no value changed{rest}", ha="center", va="center", transform=ax.transAxes)
    ax.set(yticks=range(len(shown)), ylim=(max(len(shown), 1) - 0.4, -0.6), xticks=[], xlabel=f"‖after − before‖ / ‖before‖{part}")
    ax.set_yticklabels([format.cut(format.clean(row.path), 60) for row in shown], fontsize=7, family="monospace", parse_math=False)
    more = f" (the {_BARS} largest of {len(rows):,})" if len(rows) > _BARS else ""
    ax.set_title(verdict.of_diff(diff)[0].rstrip(";.") + more, fontsize=10, loc="left", parse_math=False)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    return _figure(ax, "How far each tensor is from what it was, as bars")
