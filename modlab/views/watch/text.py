"""The text face: the verdict, the alerts and a table of layers. The same for the same record: no time, no cost, no address."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modlab import format, wording
from modlab.records.finding import Finding
from modlab.records.watch import SIGNS, Alert, UnitsRecord, WatchRecord
from modlab.views.text import table_lines
from modlab.views.watch import headline, layers, pairs, words
from modlab.wording import forks

ROWS = 60
ALERTS = 30
_TITLES = {"mean": "activation mean"}


def of_watch(record: WatchRecord) -> str:
    """The headline, the checks, the alerts, the layers from their first sample to their last, and the remarks."""
    lines = [" ".join(headline.of_watch(record)).rstrip()]
    if record.steps:
        trained = f", trained by {words.said(record.optimizer)}" if record.optimizer else ""
        lines.append(f"{format.plural(record.steps, 'step')} of {words.said(record.title)}{trained}")
    lines += _verdict(words.entries(record.verdict))
    lines += _alerts(record.alerts)
    lines += [": ".join(pair.said()) for pair in pairs.of_watch(record)]
    lines += _layers(record)
    lines += _scalars(record)
    lines += [f"! {words.said(remark)}" for remark in words.remarks(record)]
    if record.kept is not None:
        lines.append(forks.kept(record.kept))
    lines += [" ".join(forks.conclusion(one)) for one in record.forks]
    return "\n".join(lines)


def of_trouble(record: WatchRecord) -> str:
    """The headline, and of checks, findings and alerts those that are not well; what was not seen says why the loss was not judged."""
    shown = [
        entry
        for entry in words.entries(record.verdict)
        if entry[1] in ("broken", "careful") or (entry[0], entry[1]) == (headline.FALLS, "not seen")
    ]
    lines = [" ".join(headline.of_watch(record)).rstrip()]
    lines += _verdict(shown)
    lines += _alerts([alert for alert in record.alerts if not alert.over])
    return "\n".join(lines)


def _verdict(entries: list[tuple[str, str, Finding]]) -> Iterator[str]:
    width = max((len(name) for name, _, _ in entries), default=0)
    for name, state, found in entries:
        beside, fix = words.place_beside(found), wording.fix(found)
        place = f"{beside}: " if beside else ""
        yield f"{SIGNS[state]:<8}  {name:<{width}}  {place}{words.said(wording.said(found))}".rstrip()
        if fix and state != "passed":
            yield f"{'':<8}  {'':<{width}}  Fix: {words.said(fix)}"


def _alerts(alerts: Sequence[Alert]) -> Iterator[str]:
    if not alerts:
        return
    yield f"{format.plural(len(alerts), 'alert')}:"
    found, left = words.listed(alerts, ALERTS)
    for alert, others in found:
        yield f"  {words.when(alert)}: {words.sentence(': '.join(part for part in words.told(alert, others) if part))}"
        if replay := words.replay(alert):
            yield f"    run again: {replay}"
        if fix := wording.fix(alert):
            yield f"    Fix: {words.said(fix)}"
    if left:
        yield f"  ... and {left:,} more: w.alerts"


def _layers(record: WatchRecord) -> Iterator[str]:
    every = layers.of_history(record.history)
    if not every:
        return
    names, kinds = layers.names(every), layers.alerts(record)
    odd = any(layer.bad for layer in every)
    head = ("path", *(_TITLES.get(name, name) for name in names), *(["NaN, Inf"] if odd else []), "fires", "alerts")
    fires = {units.path: _fires(units) for units in record.units}
    kept = layers.shown(every, record, ROWS)
    left = layers.gaps(kept, len(every))
    rows: list[tuple[str, ...]] = []
    for i in (*kept, len(every)):
        if i in left:
            rows.append(("...", layers.more(left[i]), *("" for _ in head[2:])))
        if i < len(every):
            layer = every[i]
            cells = [layer.told(name) for name in names] + ([layer.odd()] if odd else [])
            rows.append(
                (wording.label(layer.path), *cells, fires.get(layer.path, ""), ", ".join(map(words.kind, kinds.get(layer.path, []))))
            )
    yield f"{layers.caption(record)}:"
    blank = {i for i in range(1, len(head)) if not any(row[i] for row in rows)}
    table = [tuple(cell for i, cell in enumerate(row) if i not in blank) for row in (head, *rows)]
    yield from (f"  {line}" for line in table_lines(table))


def _fires(units: UnitsRecord) -> str:
    """On which share of the inputs the unit fires that fires least, and the one that fires most."""
    seen = int(units.inputs.sum())
    if not seen or not units.fired.shape[1]:
        return ""
    shares = units.fired.sum(axis=0) / seen
    low, high = words.share(float(shares.min())), words.share(float(shares.max()))
    count = f"{units.fired.shape[1]:,} units"
    return f"{low}, 1 unit" if units.fired.shape[1] == 1 else f"{low} to {high}, {count}" if low != high else f"{low}, {count}"


def _scalars(record: WatchRecord) -> Iterator[str]:
    if not record.scalars:
        return
    yield f"{words.of_curves(record.scalars[:ROWS])}:"
    head = ("name", "values", "at first", "at last", "least", "greatest", "final", "")
    rows = []
    for scalar in record.scalars[:ROWS]:
        begin, end = map(words.number, scalar.ends())
        low, high = (words.number(value) for value in headline.extremes(scalar))
        odd = words.of_curve(scalar)
        rows.append((words.said(scalar.name, words.LONG_NAME), f"{scalar.count:,}", begin, end, low, high, words.number(scalar.final), odd))
    yield from (f"  {line}" for line in table_lines([head, *rows], frozenset(range(1, 7))))
    if len(record.scalars) > ROWS:
        yield f"  ... and {len(record.scalars) - ROWS:,} more: w.history"
