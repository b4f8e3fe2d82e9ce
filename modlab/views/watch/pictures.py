"""Small pictures that need no script: SVG and PNG as ``data:`` addresses of ``<img>``, which a sanitiser keeps.

They stand on light and on dark ground, which an image cannot ask about: so their colours lie in the middle. No grey has a contrast of
4.5 to both: what is written has it on light ground, and `watch.css`, `fork.css` and `page.py` make them brighter on dark ground.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from modlab import format
from modlab.frozen import frozen
from modlab.records.structure import ROOT
from modlab.records.watch import NeuronsRecord
from modlab.views.watch import words

Array = npt.NDArray[np.float64]
Place = tuple[float, float]

LINE, INK, BAD, BROKEN, NEGATIVE, POSITIVE = "#4a86cf", "#6c7681", "#cb369d", "#d9532c", "#4a86cf", "#d9822b"
_SPARK = (54, 16)
_POINTS = 36
_WIDE = 20.0  # greatest over least, from which on a scale is logarithmic
_FLAT = 0.04  # of the magnitude: less than that is drawn flat
_FONT = "font-family='system-ui,sans-serif' font-size='11'"
_CIVIDIS = ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838")
_LEVELS = 63
_LINES = 320
"""Weights of a net that are drawn, all layers together; of a layer no more than `_MOST`, and `_LEAST` of each however many there are."""
_MOST, _LEAST = 240, 24


def image(address: str, alt: str, width: int, height: int) -> str:
    """An ``<img>``; without the picture its `alt` is read."""
    return f'<img src="{address}" alt="{escape(format.cut(format.clean(alt), 300))}" width="{width}" height="{height}">'


def address(image: str) -> str:
    """Of a picture's file, as a ``srcset`` takes it, in which a space ends an address."""
    return image.partition('src="')[2].partition('"')[0].replace(" ", "%20")


def _svg(width: int, height: int, body: Iterable[str]) -> str:
    size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    drawn = f"<svg xmlns='http://www.w3.org/2000/svg' {size}>{''.join(body)}</svg>"
    return "data:image/svg+xml," + quote(drawn, safe=" '=/:,;()!*@-._~")


@frozen
class Scale:
    """Numbers to heights: the greatest at the top; logarithmic where they span a lot."""

    low: float
    high: float
    log: bool

    @classmethod
    def of(cls, values: Array) -> Scale:
        """Of the finite ones among `values`."""
        there = values[np.isfinite(values)]
        if not len(there):
            return cls(0.0, 1.0, False)
        low, high = float(there.min()), float(there.max())
        log = low > 0 and high / low >= _WIDE
        if not log and high - low < _FLAT * max(abs(low), abs(high), 1e-30):
            middle, half = (low + high) / 2, _FLAT * max(abs(low), abs(high), 1e-30)
            low, high = middle - half, middle + half
        return cls(low, high, log)

    def at(self, values: Array) -> Array:
        """From 0 at the top to 1 at the bottom; NaN where there is none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.log:
                return np.log(self.high / values) / math.log(self.high / self.low)
            return (self.high - values) / (self.high - self.low)


def spark(curve: Array, alt: str, bad: npt.NDArray[np.bool_] | None = None) -> str:
    """One number over time; where there were NaN or infinities, magenta strokes."""
    width, height = _SPARK
    values = fewer(curve, _POINTS)
    x = np.linspace(1, width - 1, len(values)) if len(values) > 1 else np.array([width / 2])
    parts = []
    if bad is not None and bad.any():
        marks = fewer(bad.astype(np.float64), _POINTS) > 0
        wide = _short((width - 2) / max(len(values) - 1, 1) + 0.2)
        strokes = "".join(f"M{_short(at)} 0V{height}" for at in x[marks])
        parts.append(f"<path d='{strokes}' stroke='{BAD}' stroke-width='{wide}' opacity='.6'/>")
    else:  # between two samples a line; a gap stands for numbers that are none
        x, values = x[np.isfinite(values)], values[np.isfinite(values)]
    y = 2 + Scale.of(values).at(values) * (height - 4)
    parts.append(f"<path d='{_path(x, y)}' fill='none' stroke='{LINE}' stroke-width='1.5' stroke-linejoin='round' stroke-linecap='round'/>")
    return image(_svg(width, height, parts), alt, width, height)


def fewer(values: Array, most: int) -> Array:
    """At most `most` means of neighbours."""
    if len(values) <= most:
        return values
    edges = np.linspace(0, len(values), most + 1).astype(int)[:-1]
    there = ~np.isnan(values)
    count = np.add.reduceat(there.astype(float), edges)
    with np.errstate(invalid="ignore"):
        found: Array = np.add.reduceat(np.where(there, values, 0), edges) / count
    return found


def binned(values: Array, most: int) -> Array:
    """At most `most` bins of neighbours: of each the mean, and the least and the greatest of what is finite.

    Returns:
        Shape ``(3, bins)``; a mean is not finite where one of its values is not.
    """
    if not len(values):
        return np.empty((3, 0))
    edges = np.linspace(0, len(values), min(len(values), most) + 1).astype(int)
    counts, begins, there = np.diff(edges), edges[:-1], np.isfinite(values)
    with np.errstate(invalid="ignore"):
        mean = np.add.reduceat(values / np.repeat(counts, counts), begins)
    low = np.minimum.reduceat(np.where(there, values, np.inf), begins)
    high = np.maximum.reduceat(np.where(there, values, -np.inf), begins)
    return np.stack([mean, *(np.where(np.isfinite(side), side, np.nan) for side in (low, high))])


def over_time(values: Array, first: npt.NDArray[Any], last: npt.NDArray[Any], steps: int, most: int) -> Array:
    """Slots as at most `most` columns of equal time: each has the last number that was there; NaN behind the last sample.

    Args:
        values: one for each slot.
        first: the slots' first steps.
        last: their last steps.
        steps: of the whole run.
        most: columns.
    """
    columns = max(1, min(most, steps))
    seen = np.flatnonzero(~np.isnan(values))
    found = np.full(columns, np.nan)
    if len(seen):
        begins, end = first[seen].astype(np.int64) * columns // steps, int(last[seen[-1]]) * columns // steps + 1
        found[begins[0] : end] = values[seen[np.searchsorted(begins, np.arange(begins[0], min(end, columns)), "right") - 1]]
    return found


def _path(x: Array, y: Array) -> str:
    """Lines between neighbours; a gap where there is no number, a dot where one stands alone."""
    there = np.isfinite(y)
    parts = []
    for i in np.flatnonzero(there):
        begins = i == 0 or not there[i - 1]
        parts.append(f"{'M' if begins else 'L'}{_short(x[i])} {_short(y[i])}")
        if begins and (i + 1 == len(y) or not there[i + 1]):
            parts.append("h.1")
    return "".join(parts)


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


@frozen
class Curve:
    """A curve with its band: steps, means, least and greatest values, and where some were not finite; all of one length."""

    steps: npt.NDArray[np.int64]
    mean: Array
    low: Array
    high: Array
    bad: npt.NDArray[np.bool_]


def chart(curve: Curve, steps: int, marks: Sequence[tuple[int, str]], alt: str, width: int = 560, height: int = 150) -> str:
    """One curve on an axis of steps.

    Args:
        curve: what is drawn.
        steps: of the whole run: the end of the axis.
        marks: steps and colours of small triangles on the axis.
        alt: what is read instead.
        width: of the picture.
        height: of it.
    """
    left, top, right, bottom = 62, 8, 8, 20
    across, up = width - left - right, height - top - bottom
    scale = Scale.of(np.concatenate([curve.low, curve.high, curve.mean]))
    x = left + curve.steps / max(steps - 1, 1) * across

    def y(values: Array) -> Array:
        return top + np.clip(scale.at(values), 0, 1) * up

    parts = [f"<path d='M{left} {top}H{width - right}M{left} {top + up / 2:.0f}H{width - right}' stroke='{INK}' opacity='.25'/>"]
    parts.append(f"<path d='M{left} {top + up}H{width - right}' stroke='{INK}' opacity='.6'/>")
    parts.append(_band(x, curve.low, curve.high, y, LINE))
    parts.append(f"<path d='{_path(x, y(curve.mean))}' fill='none' stroke='{LINE}' stroke-width='1.8' stroke-linejoin='round'/>")
    parts.append(_not_finite(x, curve.bad, (left, width - right), top, up))
    middle = math.sqrt(scale.low * scale.high) if scale.log else (scale.low + scale.high) / 2
    for value, at in ((scale.high, top + 4), (middle, top + up / 2 + 4), (scale.low, top + up + 2)):
        parts.append(f"<text x='{left - 6}' y='{at:.0f}' text-anchor='end' {_FONT} fill='{INK}'>{words.number(value)}</text>")
    for text, at, anchor in ((f"step {0}", left, "start"), (f"{max(steps - 1, 0):,}", width - right, "end")):
        parts.append(f"<text x='{at}' y='{height - 5}' text-anchor='{anchor}' {_FONT} fill='{INK}'>{text}</text>")
    for step, colour in marks:
        at = left + min(max(step, 0), steps) / max(steps - 1, 1) * across
        parts.append(f"<path d='M{at:.0f} {top + up - 1}l4 7h-8z' fill='{colour}'/>")
    return image(_svg(width, height, parts), alt, width, height)


def _band(x: Array, low: Array, high: Array, y: Callable[[Array], Array], colour: str) -> str:
    """The area between the least and the greatest."""
    there = np.isfinite(low) & np.isfinite(high)
    if not there.any():
        return ""
    edge = _path(np.concatenate([x[there], x[there][::-1]]), np.concatenate([y(high)[there], y(low)[there][::-1]]))
    return f"<path d='{edge}Z' fill='{colour}' opacity='.22'/>"


def curves(
    lines: Sequence[tuple[str, Array, str]],
    span: tuple[int, int],
    marks: Sequence[tuple[int, str]],
    what: str,
    alt: str,
    width: int = 560,
    height: int = 170,
) -> str:
    """Several curves on one axis of steps, with a legend.

    Args:
        lines: of each the name, the values (one for each step of the span) and the colour; later ones are drawn above. What is more
            than the picture has room for is drawn as means, in a band from the least to the greatest.
        span: the first and the last step.
        marks: steps with a dotted line, and what is written there.
        what: the curves are of, in a word.
        alt: what is read instead.
        width: of the picture.
        height: of it.
    """
    left, top, right, bottom = 62, 26, 8, 20
    legend = left + sum(_entry(name) for name, _, _ in lines)
    foot = 17
    room = min(50, int((width - left - right) / 6.2))
    cleaned = [(step, format.clean(said)) for step, said in marks]
    marks = [(step, said if len(said) <= room else f"{said[: room - 1]}…") for step, said in cleaned]
    if marks and legend + sum(24 + 6.2 * len(said) for _, said in marks) > width:  # in a line of their own
        legend, foot, top = left, foot + 16, top + 16
    across, up = width - left - right, height - top - bottom
    scale = Scale.of(np.concatenate([values for _, values, _ in lines]))
    drawn = [(name, binned(values, across * 2 // 3), colour) for name, values, colour in lines]
    parts = [f"<path d='M{left} {top}H{width - right}M{left} {top + up / 2:.0f}H{width - right}' stroke='{INK}' opacity='.25'/>"]
    parts.append(f"<path d='M{left} {top + up}H{width - right}' stroke='{INK}' opacity='.6'/>")
    for step, said in marks:
        at = left + (step - span[0]) / max(span[1] - span[0], 1) * across
        parts.append(f"<path d='M{_short(at)} {top}v{up}' stroke='{INK}' stroke-dasharray='2 3'/>")
        # Above the plot, where no curve is, behind the legend.
        parts.append(f"<path d='M{_short(legend)} {foot - 11}v14' stroke='{INK}' stroke-dasharray='2 3'/>")
        parts.append(f"<text x='{_short(legend + 6)}' y='{foot}' {_FONT} fill='{INK}'>{escape(said)}</text>")
        legend += 24 + 6.2 * len(said)
    place, spoilt = float(left), [name for name, values, _ in lines if not np.isfinite(values).all()]
    for number, (name, (values, low, high), colour) in enumerate(drawn):
        x = left + np.linspace(0, across, len(values)) if len(values) > 1 else np.array([left + across / 2])
        wide = 3.2 if number + 1 < len(lines) else 1.6
        if (high > low).any():
            parts.append(_band(x, low, high, lambda side: top + np.clip(scale.at(side), 0, 1) * up, colour))
        y = top + np.clip(scale.at(values), 0, 1) * up
        parts.append(f"<path d='{_path(x, y)}' fill='none' stroke='{colour}' stroke-width='{wide}' stroke-linejoin='round'/>")
        if name in spoilt:
            line = (spoilt.index(name), len(spoilt))
            parts.append(_not_finite(x, ~np.isfinite(values), (left, width - right), top, up, name, line))
        parts.append(f"<path d='M{_short(place)} 13h18' stroke='{colour}' stroke-width='{wide}'/>")
        parts.append(f"<text x='{_short(place + 23)}' y='17' {_FONT} fill='{INK}'>{escape(name)}</text>")
        place += _entry(name)
    said = f"{what}, log" if scale.log else what
    parts.append(f"<text x='{left - 6}' y='17' text-anchor='end' {_FONT} fill='{INK}'>{said}</text>")
    middle = math.sqrt(scale.low * scale.high) if scale.log else (scale.low + scale.high) / 2
    for value, at in ((scale.high, top + 4), (middle, top + up / 2 + 4), (scale.low, top + up + 2)):
        parts.append(f"<text x='{left - 6}' y='{at:.0f}' text-anchor='end' {_FONT} fill='{INK}'>{words.number(value)}</text>")
    for text, at, anchor in ((f"step {span[0]:,}", left, "start"), (f"{span[1]:,}", width - right, "end")):
        parts.append(f"<text x='{at}' y='{height - 5}' text-anchor='{anchor}' {_FONT} fill='{INK}'>{text}</text>")
    return image(_svg(width, height, parts), alt, width, height)


def _entry(name: str) -> float:
    """How wide a name is in the legend, with its line."""
    return 42 + 6.2 * len(name)


def _not_finite(
    x: Array, bad: npt.NDArray[np.bool_], ends: Place, top: float, up: float, name: str = "", line: tuple[int, int] = (0, 1)
) -> str:
    """Where a curve has values that are not finite; of several curves below the lines that say which of them."""
    if not bad.any():
        return ""
    own, lines = line
    begin = 3 + 14 * lines if name else 0
    turns = np.flatnonzero(np.diff(np.concatenate([[False], bad, [False]])))  # values seen one after the other are one area
    half = (ends[1] - ends[0]) / max(len(x) - 1, 1) / 2
    areas = ((max(x[first] - half, ends[0]), min(x[last - 1] + half, ends[1])) for first, last in turns.reshape(-1, 2))
    drawn = "".join(f"M{_short(first)} {top + begin}H{_short(last)}v{up - begin}H{_short(first)}Z" for first, last in areas)
    said = f"{escape(name)}: NaN, Inf" if name else "NaN, Inf"
    label = f"<text x='{_short(x[bad][0] + 3)}' y='{top + 12 + 14 * own}' {_FONT} fill='{BAD}'>{said}</text>"
    return f"<path d='{drawn}' fill='{BAD}' opacity='.25'/>{label}"


def heat(values: Array, bad: npt.NDArray[np.bool_], labels: Sequence[str], steps: int, alt: str, width: int = 460) -> str:
    """Depth × time, the first layer at the top; the darker, the smaller, on a logarithmic scale where that spans a lot.

    Args:
        values: shape ``(rows, columns)``, of equal time; what is not finite is left blank.
        bad: the same shape: where there were NaN or infinities.
        labels: of the rows.
        steps: of the whole run.
        alt: what is read instead.
        width: of the picture.
    """
    rows = len(values)
    left, top, bottom = 104, 2, 34
    each = max(2, min(14, 220 // max(rows, 1)))
    tall = each * rows
    scale = Scale.of(values)
    level = np.where(np.isfinite(values), np.rint((1 - scale.at(values)) * (_LEVELS - 1)) + 1, 0)
    level = np.where(bad, _LEVELS + 1, np.nan_to_num(level).clip(0, _LEVELS))
    inner = _png(level.astype(np.uint8), _cividis(_LEVELS))
    where = f"x='{left}' y='{top}' width='{width - left - 2}' height='{tall}' preserveAspectRatio='none'"
    parts = [f"<image {where} style='image-rendering:pixelated' href='{inner}'/>"]
    every = max(1, math.ceil(12 / each))
    for i in range(0, rows, every):
        name = format.clean(labels[i]) or ROOT
        short = escape(name if len(name) <= 15 else f"…{name[-14:]}")
        y = top + (i + 0.5) * each + 3.5
        parts.append(f"<text x='{left - 5}' y='{y:.1f}' text-anchor='end' {_FONT.replace('11', '10')} fill='{INK}'>{short}</text>")
    for text, at, anchor in (("step 0", left, "start"), (f"{max(steps - 1, 0):,}", width - 2, "end")):
        parts.append(f"<text x='{at}' y='{top + tall + 13}' text-anchor='{anchor}' {_FONT} fill='{INK}'>{text}</text>")
    legend = _png(np.arange(1, _LEVELS + 1, dtype=np.uint8)[None], _cividis(_LEVELS))
    y = top + tall + 19
    middle = left + (width - left) // 2
    parts.append(f"<image x='{middle - 40}' y='{y}' width='80' height='8' preserveAspectRatio='none' href='{legend}'/>")
    for text, at, anchor in ((words.number(scale.low), middle - 45, "end"), (words.number(scale.high), middle + 45, "start")):
        parts.append(f"<text x='{at}' y='{y + 8}' text-anchor='{anchor}' {_FONT} fill='{INK}'>{text}</text>")
    return image(_svg(width, top + tall + bottom, parts), alt, width, top + tall + bottom)


def neurons(record: NeuronsRecord, states: dict[tuple[str, int], str], alt: str, cancelling: Iterable[tuple[str, int, int]] = ()) -> str:
    """A small net as it is at the end: units as discs, weights as lines, wide where they count; a dead unit is a dashed ring.

    Args:
        record: its units and weights over time.
        states: by module and unit: "dead" or "starving".
        alt: what is read instead.
        cancelling: module and two units of it, which a bracket joins.
    """
    layers = record.layers
    sizes = [layers[0].weights.shape[2], *(layer.weights.shape[1] for layer in layers)]
    gap = max(6.0, min(34.0, 300 / max(sizes)))
    radius = max(2.0, min(9.0, gap * 0.36))
    height, step = int(gap * max(sizes) + 26), 110
    width = int(step * len(layers) + 60)
    places = [[(30 + i * step, (height - 16) / 2 + (j - (size - 1) / 2) * gap) for j in range(size)] for i, size in enumerate(sizes)]
    parts = []
    lines = max(_LEAST, min(_MOST, _LINES // len(layers)))
    for i, layer in enumerate(layers):
        silent = _dead(states, layers[i - 1].path) if i else set()
        weights = layer.weights[-1].astype(np.float64)
        parts.append(_connections(weights, places[i], places[i + 1], silent, _dead(states, layer.path), lines))
    discs: list[str] = []
    said: list[str] = []
    names = ["input", *(format.clean(layer.path) or ROOT for layer in layers)]
    for i, column in enumerate(places):
        for j, (x, y) in enumerate(column):
            state = states.get((layers[i - 1].path, j), "") if i else ""
            no_number = i and not math.isfinite(layers[i - 1].activations[-1, j])
            how = f" fill='none' stroke='{BROKEN}'" if state else f" fill='{BAD}' stroke='{BAD}'" if no_number else ""
            how += " stroke-dasharray='3 2'" if state == "dead" else ""
            disc = f"<circle cx='{x}' cy='{_short(y)}' r='{_short(radius)}'{how}/>"
            core = (
                f"<circle cx='{x}' cy='{_short(y)}' r='{_short(radius / 3)}' fill='{BROKEN}' stroke='none'/>" if state == "starving" else ""
            )
            discs.append(disc + core)
        name = escape(names[i] if len(names[i]) <= 14 else f"…{names[i][-13:]}")
        said.append(f"<text x='{column[0][0]}' y='{height - 4}' text-anchor='middle' {_FONT} fill='{INK}'>{name}</text>")
    columns = {layer.path: places[i + 1] for i, layer in enumerate(layers)}
    for path, one, other in cancelling:
        parts.append(_bracket(columns[path][one], columns[path][other], radius))
    parts += [f"<g fill='#aab3bd' stroke='{INK}' stroke-width='1.6'>", *discs, "</g>", *said]
    return image(_svg(width, height, parts), alt, width, height)


def _bracket(one: Place, other: Place, radius: float) -> str:
    (x, top), (_, bottom) = one, other
    line = f"M{_short(x + radius + 3)} {_short(top)}h6V{_short(bottom)}h-6"
    return f"<path d='{line}' fill='none' stroke='{BROKEN}' stroke-width='2'/>"


def _dead(states: dict[tuple[str, int], str], path: str) -> set[int]:
    return {unit for (one, unit), state in states.items() if one == path and state == "dead"}


def _connections(weights: Array, inputs: Sequence[Place], units: Sequence[Place], silent: set[int], dead: set[int], most: int) -> str:
    """The strongest weights as lines: colour for the sign, width for the size; faint and dashed where a dead unit ends them."""
    there = np.isfinite(weights)
    size = np.abs(np.where(there, weights, 0))
    top = float(size.max(initial=0)) or 1.0
    size[~there] = top  # they count most
    order = np.argsort(size, axis=None, kind="stable")[::-1]
    lost = order[~there.flat[order]]
    if len(lost) > most:  # all alike: as many of each unit
        order = lost[np.linspace(0, len(lost) - 1, most).astype(int)]
    order = order[:most]
    parts = []
    for flat in order[::-1]:
        j, i = divmod(int(flat), weights.shape[1])
        share = size[j, i] / top
        if share < 0.02 or i >= len(inputs):
            continue
        (x0, y0), (x1, y1) = inputs[i], units[j]
        colour = BAD if not there[j, i] else NEGATIVE if weights[j, i] < 0 else POSITIVE
        how = (
            "opacity='.5' stroke-dasharray='1 6'"
            if not there[j, i]
            else "opacity='.4' stroke-dasharray='4 3'"
            if i in silent or j in dead
            else "opacity='.85'"
        )
        line = f"M{x0} {_short(y0)}L{x1} {_short(y1)}"
        parts.append(f"<path d='{line}' stroke='{colour}' stroke-width='{0.4 + 3.6 * share if there[j, i] else 1.2:.1f}' {how}/>")
    return "".join(parts)


def _cividis(levels: int) -> bytes:
    """A palette: nothing, the levels, and what is not a number."""
    # Source: Nuñez, Anderton & Renslow (2018), at ten even steps.
    given = np.array([[int(one[i : i + 2], 16) for i in (0, 2, 4)] for one in _CIVIDIS], dtype=float)
    at = np.linspace(0, len(given) - 1, levels)
    channels = [np.interp(at, np.arange(len(given)), given[:, i]) for i in range(3)]
    found: bytes = np.rint(np.stack(channels, axis=1)).astype(np.uint8).tobytes()
    return bytes(3) + found + bytes.fromhex(BAD[1:])


def _png(pixels: npt.NDArray[np.uint8], palette: bytes) -> str:
    """An indexed picture; 0 is transparent."""
    height, width = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels], axis=1).tobytes()

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"PLTE", palette), chunk(b"tRNS", b"\0")]
    parts += [chunk(b"IDAT", zlib.compress(rows, 9)), chunk(b"IEND", b"")]
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode("ascii")
