"""A drawing: boxes and arrows between them, where words alone would strain. It takes its colours from the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape

from modlab import format
from modlab.frozen import frozen

_LETTER, _SMALL = 7.6, 6.2  # widths of a letter of code, and of a note
_GAP, _AIR, _EDGE = 46, 26, 6  # between columns; between rows; around
_HEIGHT, _LINE = 30, 16  # of a box, and of each line of its note
_STYLE = (
    ".modlab-drawing{overflow-x:auto;margin:6px 0;color:var(--jp-ui-font-color1,inherit)}"
    ".modlab-drawing text{fill:currentColor;font:13px var(--jp-code-font-family,ui-monospace,monospace)}"
    ".modlab-drawing .note{font:12px var(--jp-ui-font-family,system-ui,sans-serif)}"
    ".modlab-drawing rect{fill:none;stroke:currentColor;stroke-opacity:.55}"
    ".modlab-drawing .tensor{rx:15px}.modlab-drawing .memory{fill:currentColor;fill-opacity:.09;stroke-dasharray:4 3}"
    ".modlab-drawing .main{stroke-width:2;stroke-opacity:1}"
    ".modlab-drawing path{fill:none;stroke:currentColor;stroke-width:1.4}.modlab-drawing .head{fill:currentColor;stroke:none}"
    ".modlab-drawing .dashed{stroke-dasharray:5 4}"
)


@frozen
class Vertex:
    """A box in a drawing.

    Attributes:
        words: its name, as code.
        at: its column and row, from 0.
        note: what it does, below its name; lines are kept.
        look: ``"tensor"`` (round), ``"memory"`` (dashed ground), ``"main"`` (strong), or nothing.
    """

    words: str
    at: tuple[int, int]
    note: str = ""
    look: str = ""


@frozen
class Arrow:
    """An arrow between two boxes of a drawing.

    Attributes:
        begin: the name of the box that it leaves.
        end: the name of the box that it leads to.
        words: beside it.
        dashed: whether it is a way that is not always taken.
    """

    begin: str
    end: str
    words: str = ""
    dashed: bool = False


class Drawing:
    """Boxes in columns and rows, and arrows between them; light or dark as its page, and in words for people who cannot see it.

    Args:
        name: by which `lesson.draw` knows it.
        alt: what it shows, in a sentence or two.
        boxes: by a short name.
        arrows: between them.

    >>> Drawing("a child", "A module holds a layer.", {"m": Vertex("net", (0, 0)), "l": Vertex("layer", (1, 0))}, [Arrow("m", "l")])
    drawing: A module holds a layer.
    """

    def __init__(self, name: str, alt: str, boxes: Mapping[str, Vertex], arrows: Iterable[Arrow]) -> None:
        self.name, self.alt, self.boxes, self.arrows = name, alt, dict(boxes), list(arrows)
        columns = 1 + max(box.at[0] for box in boxes.values())
        rows = 1 + max(box.at[1] for box in boxes.values())
        widths = [max((_width(box) for box in boxes.values() if box.at[0] == column), default=0.0) for column in range(columns)]
        heights = [max((_height(box) for box in boxes.values() if box.at[1] == row), default=0.0) for row in range(rows)]
        gaps = [max([_GAP, *(24 + _SMALL * len(arrow.words) for arrow in self._across(column))]) for column in range(columns - 1)]
        falls = [_AIR + (18 if any(arrow.words for arrow in self._down(row)) else 0) for row in range(rows - 1)]
        self._x = [_EDGE + sum(widths[:i]) + sum(gaps[:i]) for i in range(columns)]
        self._y = [_EDGE + sum(heights[:i]) + sum(falls[:i]) for i in range(rows)]
        self._widths, self._heights = widths, heights

    def _across(self, column: int) -> Iterator[Arrow]:
        """The arrows with words that pass the gap behind a column."""
        for arrow in self.arrows:
            ends = sorted(self.boxes[name].at for name in (arrow.begin, arrow.end))
            if ends[0][0] <= column < ends[1][0] and ends[0][1] == ends[1][1]:
                yield arrow

    def _down(self, row: int) -> Iterator[Arrow]:
        """The arrows that pass the gap below a row."""
        for arrow in self.arrows:
            rows = sorted(self.boxes[name].at[1] for name in (arrow.begin, arrow.end))
            if rows[0] <= row < rows[1]:
                yield arrow

    def _place(self, box: Vertex) -> tuple[float, float, float, float]:
        """Left, top, right and bottom."""
        left, top = self._x[box.at[0]], self._y[box.at[1]]
        return left, top, left + self._widths[box.at[0]], top + _height(box)

    def html(self) -> str:
        """The picture, as wide as it is; a narrow page scrolls it."""
        width = self._x[-1] + self._widths[-1] + _EDGE + self._beyond()
        height = self._y[-1] + self._heights[-1] + _EDGE
        parts = [*map(self._arrow, self.arrows), *map(self._box, self.boxes.values())]
        return (
            f'<div class="modlab-drawing" tabindex="0" role="group" aria-label="{escape(self.name)}"><style>{_STYLE}</style>'
            f'<svg role="img" aria-label="{escape(self.alt)}" width="{width:.0f}" height="{height:.0f}">'
            f"{''.join(parts)}</svg></div>"
        )

    def _beyond(self) -> float:
        """How far the words of arrows in the last column reach beyond its boxes."""
        last = len(self._x) - 1
        words = [arrow.words for arrow in self.arrows if {self.boxes[name].at[0] for name in (arrow.begin, arrow.end)} == {last}]
        return max([0.0, *(8 + _SMALL * len(one) - self._widths[last] / 2 for one in words)])

    def _box(self, box: Vertex) -> str:
        left, top, right, bottom = self._place(box)
        middle = (left + right) / 2
        notes = "".join(
            f'<text class="note" text-anchor="middle" x="{middle:.0f}" y="{top + 36 + _LINE * i:.0f}">{escape(line)}</text>'
            for i, line in enumerate(box.note.splitlines())
        )
        return (
            f'<rect class="{box.look}" rx="5" x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" height="{bottom - top:.0f}"/>'
            f'<text text-anchor="middle" x="{middle:.0f}" y="{top + 20:.0f}">{escape(box.words)}</text>{notes}'
        )

    def _arrow(self, arrow: Arrow) -> str:
        """Between the sides that face each other; to another row and past a column it turns, and comes from below or above."""
        begin, end = self.boxes[arrow.begin], self.boxes[arrow.end]
        one, other = self._place(begin), self._place(end)
        across, down = end.at[0] - begin.at[0], end.at[1] - begin.at[1]
        side, fall = (1 if across > 0 else -1), (1 if down > 0 else -1)
        out, into = (one[2], other[0]) if across > 0 else (one[0], other[2])
        y = min(one[1] + one[3], other[1] + other[3]) / 2 if not down else (one[1] + one[3]) / 2
        edge = other[1] if down > 0 else other[3]
        middle = (other[0] + other[2]) / 2
        if not across:
            points, head = [(middle, one[3] if down > 0 else one[1]), (middle, edge)], (0, fall)
            words = _note(middle + 8, (points[0][1] + edge) / 2 + 4, arrow.words, "start")
        elif down and abs(across) > 1:
            points, head = [(out, y), (middle, y), (middle, edge)], (0, fall)
            words = _note((out + middle) / 2, y - 6, arrow.words, "middle")
        else:
            to = y if not down else (other[1] + other[3]) / 2
            points, head = [(out, y), (into, to)], (side, 0)
            words = _note((out + into) / 2, (y + to) / 2 - 6, arrow.words, "middle")
        return _line(points, head, arrow.dashed) + words

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return format.printable(f"drawing: {self.alt}")


def _width(box: Vertex) -> float:
    return 24 + max([_LETTER * len(box.words), *(_SMALL * len(line) for line in box.note.splitlines())])


def _height(box: Vertex) -> float:
    return _HEIGHT + _LINE * len(box.note.splitlines()) + (4 if box.note else 0)


def _note(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text class="note" text-anchor="{anchor}" x="{x:.0f}" y="{y:.0f}">{escape(words)}</text>' if words else ""


def _line(points: list[tuple[float, float]], head: tuple[int, int], dashed: bool) -> str:
    """A line that arrives in the direction of its head: straight, with a corner, or, between two heights, a soft bend."""
    (x0, y0), *corners, (x1, y1) = points
    dx, dy = head
    x, y = x1 - 7 * dx, y1 - 7 * dy  # where the head begins
    way = "".join(f"L{a:.0f} {b:.0f}" for a, b in corners)
    half = abs(x1 - x0) / 2 * dx
    way += f"C{x0 + half:.0f} {y0:.0f} {x - half:.0f} {y:.0f} {x:.0f} {y:.0f}" if dx and y0 != y1 else f"L{x:.0f} {y:.0f}"
    tip = f"M{x1:.0f} {y1:.0f}L{x - 4 * dy:.0f} {y - 4 * dx:.0f}L{x + 4 * dy:.0f} {y + 4 * dx:.0f}z"
    look = ' class="dashed"' if dashed else ""
    return f'<path{look} d="M{x0:.0f} {y0:.0f}{way}"/><path class="head" d="{tip}"/>'
