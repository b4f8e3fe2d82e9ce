"""A watch as HTML without script: the verdict, the alerts, the loss, a picture of depth and time, and a table of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from modlab import format, wording
from modlab.records.finding import Finding
from modlab.records.loss import the_loss
from modlab.records.watch import ACTIVATION, GRADIENT, Alert, Layer, ScalarRecord, WatchRecord
from modlab.views.html import static_file, tabulated
from modlab.views.watch import headline, layers, merging, pairs, pictures, words
from modlab.wording import forks

ROWS = 60
ALERTS = 12
SCALARS = 12
UNITS = 64  # of a layer, up to which a net is drawn
MOST = 60_000  # characters that the table may have
_MAPPED = 6  # layers from which on depth × time is a picture
_POINTS = 256  # of a curve
_DEPTH, _TIME = 72, 160  # rows and columns of such a picture
_RINGS = {"dead": "a dashed ring is dead", "starving": "a ring with a core starves"}
_MAPS = (("gradient", GRADIENT, "norm of the gradient"), ("std", ACTIVATION, "std of the activation"))
_DRAWN = frozenset(("std", "gradient", "update / weights"))


def of_watch(record: WatchRecord) -> str:
    """What stands below the headline."""
    every = layers.of_history(record.history)
    parts = [f"<style>{static_file('watch.css').strip()}</style>"]
    cancelling = pairs.of_watch(record)
    beside = [*_loss(record), *_net(record, cancelling)]
    verdict = _verdict(words.entries(record.verdict))
    parts.append(f'<div class="modlab-beside">\n{verdict}\n{_figures(beside)}</div>')
    parts += _alerts(record.alerts)
    parts += [f"<p><strong>{_text(strong)}</strong>: {_text(rest)}</p>" for strong, rest in (pair.said() for pair in cancelling)]
    parts += _forks(record)
    parts.append(_figures(list(_maps(record, every))))
    parts += _layers(record, every)
    parts += _scalars(record)
    parts += [f"<p>⚠ {_text(remark)}</p>" for remark in words.remarks(record)]
    if record.steps:
        trained = f", trained by {_text(record.optimizer)}" if record.optimizer else ""
        kept = f" · {_text(forks.kept(record.kept))}" if record.kept is not None else ""
        parts.append(f"<p><small>{format.plural(record.steps, 'step')} of {_text(record.title)}{trained}{kept}</small></p>")
    parts += [f"<p><small>{said}</small></p>" for said in words.moment(record)]
    return "\n".join(part for part in parts if part)


def _figures(pictures: list[tuple[str, str]]) -> str:
    if not pictures:
        return ""
    drawn = "".join(f"<figure><figcaption>{caption}</figcaption>{picture}</figure>\n" for caption, picture in pictures)
    return f'<div class="modlab-pictures">\n{drawn}</div>'


def _verdict(entries: list[tuple[str, str, Finding]]) -> str:
    if not entries:
        return ""
    return f'<ul class="modlab-checks">\n{"".join(_entry(*entry) for entry in entries)}</ul>'


def _entry(name: str, state: str, found: Finding) -> str:
    kind, said, beside = state.replace(" ", "-"), wording.said(found), words.place_beside(found)
    place = f"<code>{_text(beside)}</code>: " if beside else ""
    strong = f"<strong>{_text(name)}</strong>" if state in ("broken", "careful") else _text(name)
    fix = f"<br>Fix: {_fix(*wording.fix_parts(found))}" if found.fixes and state != "passed" else ""
    evidence = f" <i>{place}{_text(said)}</i>" if said or place else ""
    return f'<li class="modlab-{kind}"><em title="{kind}">{words.SIGNS[state]}</em> {strong}{evidence}{fix}</li>\n'


def _fix(code: str, advice: str) -> str:
    """Code as code, and words as words."""
    return ", ".join(([f"<code>{_text(code)}</code>"] if code else []) + ([_text(advice)] if advice else []))


def _text(value: str, limit: int = words.LONG) -> str:
    """Text from outside as HTML, and not without end."""
    return escape(words.said(value, limit))


def _alerts(alerts: Sequence[Alert]) -> Iterator[str]:
    if not alerts:
        return
    found, left = words.listed(alerts, ALERTS)
    lines = [_alert(alert, others) for alert, others in found]
    more = f"<li>… and {left:,} more: <code>w.alerts</code></li>\n" if left > 0 else ""
    yield f'<ul class="modlab-alerts">\n{"".join(lines)}{more}</ul>'


def _alert(alert: Alert, others: int) -> str:
    mark = words.mark(alert)
    replay = words.replay(alert)
    strong, rest = words.told(alert, others)
    parts = [f'<em title="{mark}">{words.SIGNS[mark]}</em> <strong>{_text(strong)}</strong>, <i>{words.when(alert)}{":" * bool(rest)}</i>']
    parts.append(_text(rest))
    if replay:
        parts.append(f"Run again: {_text(replay)}")
    if alert.fixes:
        parts.append(f"Fix: {_fix(*wording.fix_parts(alert))}")
    return f'<li class="modlab-{mark}">{" ".join(part for part in parts if part)}</li>\n'


def _loss(record: WatchRecord) -> Iterator[tuple[str, str]]:
    scalar = the_loss(record) or (record.scalars[0] if record.scalars else None)
    if scalar is None or not len(scalar.mean):
        return
    marks = [(alert.step, pictures.BROKEN) for alert in record.alerts if not alert.over][:20]
    low, high = headline.extremes(scalar)
    begin, end = scalar.ends()
    name = words.said(scalar.name, words.LONG_NAME)
    ends = f"least {words.number(low)}, greatest {words.number(high)}"
    alt = f"{name} over {format.plural(record.steps, 'step')}: {layers.arrow(begin, end)}, {ends}"
    yield _text(scalar.name, words.LONG_NAME), pictures.chart(_curve(scalar), record.steps, marks, alt)


def _curve(scalar: ScalarRecord) -> pictures.Curve:
    fewer = merging.of_scalar(scalar, _POINTS)
    mean, low, high = (side.astype(np.float64) for side in (fewer.mean, fewer.low, fewer.high))
    return pictures.Curve((fewer.first + fewer.last) // 2, mean, low, high, fewer.bad > 0)


def _forks(record: WatchRecord) -> Iterator[str]:
    """What became of each fork, and the picture of the last one."""
    for one in record.forks:
        strong, rest = forks.conclusion(one)
        yield f"<p><strong>{_text(strong)}</strong> {_text(rest)}</p>"
    drawn = [one for one in record.forks if one.steps]
    if drawn:
        from modlab.views import fork  # most watches are never forked

        yield f'<p style="margin:0">{fork.picture(drawn[-1])}</p>'


def _net(record: WatchRecord, cancelling: list[pairs.UnitPair]) -> Iterator[tuple[str, str]]:
    net = record.neurons
    if net is None or not net.layers or not len(net.first):
        return
    if max(max(layer.weights.shape[1:]) for layer in net.layers) > UNITS:
        return
    accusing = [alert for alert in record.alerts if (alert.unit is not None or alert.units) and not alert.over]
    states = {(alert.path, unit): alert.kind for alert in accusing for unit in (alert.units if alert.unit is None else (alert.unit,))}
    said = [_accused(alert) for alert in accusing]
    said += [pair.said()[0] for pair in cancelling]
    said += [one for layer in net.layers for one in _no_numbers(layer)]
    sizes = " → ".join(str(size) for size in (net.layers[0].weights.shape[2], *(layer.weights.shape[1] for layer in net.layers)))
    alt = f"{sizes} units at the end{': ' + ', '.join(said) if said else ''}"
    rings = "".join(f"; {ring}" for kind, ring in _RINGS.items() if kind in states.values())
    rings += "; a bracket joins two that cancel" if cancelling else ""
    drawn = (numbers for layer in net.layers for numbers in (layer.weights[-1], layer.activations[-1]))
    rings += "" if all(np.isfinite(numbers).all() for numbers in drawn) else "; magenta: NaN, Inf"
    yield (
        f"units and weights at the end: blue negative, orange positive{rings}",
        pictures.neurons(net, states, alt, [(pair.path, *pair.units) for pair in cancelling]),
    )


def _accused(alert: Alert) -> str:
    if alert.unit is None:
        return f"{format.plural(len(alert.units), 'unit')} of {words.place(alert.path)} are {alert.kind}"
    return f"unit {alert.unit} of {words.place(alert.path)} is {alert.kind}"


def _no_numbers(layer: Layer) -> Iterator[str]:
    """Units that give no numbers at the end."""
    bad, units = int((~np.isfinite(layer.activations[-1])).sum()), layer.activations.shape[1]
    if bad:
        yield f"{bad} of {format.plural(units, 'unit')} of {words.place(layer.path)} {'gives' if bad == 1 else 'give'} NaN or infinity"


def _maps(record: WatchRecord, every: list[layers.LayerCurves]) -> Iterator[tuple[str, str]]:
    odd = np.nan_to_num(record.history.columns["bad"]).astype(np.float64)
    for name, role, said in _MAPS:
        caption = f"{said}{words.of_part(record)}" if role == GRADIENT else said
        there = [layer for layer in every if name in layer.curves and layer.path]
        if len(there) < _MAPPED or len(record.history.first) < 2:
            continue
        some = [there[i] for i in np.unique(np.linspace(0, len(there) - 1, min(len(there), _DEPTH)).astype(int))]
        table = np.stack([layer.curves[name] for layer in some])
        values = np.stack([_columns(record, row) for row in table])
        rows = [layer.rows[role][0] for layer in some]
        lost = [np.where(odd[:, row] > 0, 1.0, one * 0) for row, one in zip(rows, table, strict=True)]
        bad = np.stack([_columns(record, one) > 0 for one in lost])
        labels = [layer.path for layer in some]
        magenta = "; magenta: NaN, Inf" if bad.any() else ""
        left = f", {len(some)} of {len(there):,} layers" if len(some) < len(there) else ""
        alt = f"{caption} by depth and time: {_extremes_of(values)}, first layer {words.place(labels[0])}, last {words.place(labels[-1])}"
        yield f"{caption}: depth × time{left}{magenta}", pictures.heat(values, bad, labels, record.steps, alt)


def _columns(record: WatchRecord, values: pictures.Array) -> pictures.Array:
    return pictures.over_time(values, record.history.first, record.history.last, record.steps, _TIME)


def _extremes_of(values: pictures.Array) -> str:
    there = values[np.isfinite(values)]
    return f"from {words.number(float(there.min()))} to {words.number(float(there.max()))}" if len(there) else "no number"


def _layers(record: WatchRecord, every: list[layers.LayerCurves]) -> Iterator[str]:
    if not every:
        return
    names, kinds, marks = layers.names(every), layers.alerts(record), layers.accused(record)
    kept = layers.shown(every, record, ROWS)
    left = layers.gaps(kept, len(every))
    rows: list[list[str]] = []
    size = 0
    for i in (*kept, len(every)):
        if i in left:
            rows.append([f"<i>… {layers.more(left[i])}</i>", *("" for _ in names), ""])
        if i == len(every):
            break
        layer = every[i]
        sign = f"{words.SIGNS[marks[layer.path]]} " if layer.path in marks else ""
        drawn = size < MOST
        cells = [_cell(layer, name, drawn) for name in names]
        said = _text(", ".join(map(words.kind, kinds.get(layer.path, []))))
        row = [f"{sign}<b>{_text(wording.label(layer.path))}</b>{f' <i>{said}</i>' if said else ''}", layer.odd(), *cells]
        rows.append(row)
        size += sum(map(len, row))
    yield f'<p class="modlab-caption">{layers.caption(record)}</p>'
    yield f'<div class="modlab-layers">{tabulated(["layer", "NaN, Inf", *names], rows)}</div>'


def _cell(layer: layers.LayerCurves, name: str, drawn: bool) -> str:
    told = layer.told(name)
    if not told or name not in _DRAWN or not drawn or len(layer.curves[name]) < 2:
        return told
    return f"{pictures.spark(layer.curves[name], f'{name} over time', layer.spoilt[name])} {told}"


def _scalars(record: WatchRecord) -> Iterator[str]:
    if not record.scalars:
        return
    rows = []
    for scalar in record.scalars[:SCALARS]:
        low, high = headline.extremes(scalar)
        begin, end = scalar.ends()
        odd = words.of_curve(scalar)
        drawn = pictures.spark(scalar.mean.astype(np.float64), f"{scalar.name} over time", scalar.bad > 0) if len(scalar.mean) > 1 else ""
        cells = [layers.arrow(begin, end), words.number(low), words.number(high), words.number(scalar.final), odd]
        rows.append([f"<b>{_text(scalar.name, words.LONG_NAME)}</b>", f"{scalar.count:,}", drawn, *cells])
    yield f'<p class="modlab-caption">{words.of_curves(record.scalars[:SCALARS])}</p>'
    yield tabulated(["name", "values", "over time", "at first → at last", "least", "greatest", "final", ""], rows)
    left = len(record.scalars) - SCALARS
    if left > 0:
        yield f"<p>… and {left:,} more: <code>w.history</code></p>"
