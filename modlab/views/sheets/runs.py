"""The sheet of two watched runs: layer by layer, how each ended."""

from __future__ import annotations

import math

from modlab import wording
from modlab.records.loss import the_loss
from modlab.records.watch import Alert, Verdict, WatchRecord
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet
from modlab.views.watch import layers, words

SHOWN = ("std", "gradient", "weights")
"""What is shown for each layer: the std of the activation, the norms of its output's gradient and of its parameters."""

FAR = 2.0
"""Two numbers that differ by this factor count as different."""

_ENDS = "for a layer, the last sample (in a long run, the average of the last ones); for a curve, the average of its last tenth"

COLUMNS = (
    *(Column(f"{name} {side}", "number", 80, yields=at and at + 1) for at, name in enumerate(SHOWN) for side in ("here", "there")),
    Column("only here", "words", 110, grows=1, yields=1),
    Column("only there", "words", 110, grows=1, yields=1),
)


def of_runs(here: WatchRecord, there: WatchRecord) -> Sheet:
    """A row for each layer that either has, and one for each logged curve."""
    mine, theirs = ({one.path: one for one in layers.of_history(record.history)} for record in (here, there))
    alone = _alone(here, there), _alone(there, here)
    rows = [_scalar(name, here, there) for name in _names(here, there)]
    rows += [_row(path, mine.get(path), theirs.get(path), alone) for path in dict.fromkeys((*mine, *theirs))]
    sides = zip(("here", "there"), alone, strict=True)
    notes = tuple(Block(f"only {side}", "; ".join(map(wording.what, some)) + ".") for side, some in sides if some)
    foot = f"here: {here.steps:,} steps, there: {there.steps:,}; {_ENDS}"
    return Sheet("runs", _sentence(here, there, alone), COLUMNS, tuple(rows), notes, title="layer", foot=foot)


def _alone(one: WatchRecord, other: WatchRecord) -> list[Alert]:
    """The alerts that still hold in one run and were never raised in the other."""
    known = {(alert.kind, alert.path, alert.unit) for alert in other.alerts}
    return [alert for alert in one.alerts if not alert.over and (alert.kind, alert.path, alert.unit) not in known]


def _sentence(here: WatchRecord, there: WatchRecord, alone: tuple[list[Alert], list[Alert]]) -> tuple[str, str]:
    facts = [f"{wording.what(some[0])}{_more(some)} only {side}" for side, some in zip(("here", "there"), alone, strict=True) if some]
    ends = [the_loss(record) for record in (here, there)]
    if ends[0] is not None and ends[1] is not None:
        last = [words.number(one.ends()[1]) for one in ends if one is not None]
        strong = f"The loss ends at {last[0]} here and at {last[1]} there, on average over its last tenth:"
    else:
        strong = f"{here.steps:,} steps here and {there.steps:,} there:"
    broken = [_broken(record.verdict) for record in (here, there)]
    if broken[0] != broken[1]:
        facts.append(f"the first broken check is {broken[0]} here and {broken[1]} there")
    return strong, ("; ".join(facts) or "both have the same alerts") + "."


def _more(some: list[Alert]) -> str:
    return f" (and {len(some) - 1} more)" if len(some) > 1 else ""


def _broken(verdict: Verdict) -> str:
    return f"“{verdict.broken.name}”" if verdict.broken is not None else "none"


def _names(here: WatchRecord, there: WatchRecord) -> list[str]:
    return list(dict.fromkeys(one.name for record in (here, there) for one in record.scalars))


def _scalar(name: str, here: WatchRecord, there: WatchRecord) -> Row:
    found = [next((one for one in record.scalars if one.name == name), None) for record in (here, there)]
    last = ["" if one is None else words.number(one.ends()[1]) for one in found]
    cells = (*map(Cell, last), *[Cell()] * (len(COLUMNS) - len(last)))
    table = tuple(
        (side, *(words.number(end) for end in one.ends()), f"{one.count:,}")
        for side, one in zip(("here", "there"), found, strict=True)
        if one is not None
    )
    details = (Block("logged", head=("", "first tenth", "last tenth", "values"), rows=table),)
    return Row(None, words.said(name), "logged", symbol="function", place=words.said(name), cells=cells, details=details)


def _row(path: str, mine: layers.LayerCurves | None, theirs: layers.LayerCurves | None, alone: tuple[list[Alert], list[Alert]]) -> Row:
    cells, far = [], False
    for name in SHOWN:
        ends = [math.nan if one is None else one.ends(name)[1] for one in (mine, theirs)]
        apart = _apart(*ends)
        far |= apart
        told = [_told(one, name, end) for one, end in zip((mine, theirs), ends, strict=True)]
        cells += [Cell(one, mark="careful" if apart else "") for one in told]
    own = {path, *(f"{path}.{name}".removeprefix(".") for one in (mine, theirs) if one is not None for name in one.parameters)}
    said = [[words.kind(alert.kind) for alert in some if alert.path in own] for some in alone]
    cells += [Cell(", ".join(dict.fromkeys(kinds)), mark="broken" if kinds else "") for kinds in said]
    head = ("", "at first here", "at last here", "at first there", "at last there")
    table = tuple(
        (name, *(_told(one, name, end) for one in (mine, theirs) for end in _ends(one, name)))
        for name in layers.NUMBERS
        if any(one is not None and name in one.curves for one in (mine, theirs))
    )
    some = mine or theirs
    mark: Mark = "broken" if any(said) else "careful" if far else ""
    return Row(
        path,
        path.rpartition(".")[2] or "(root)",
        symbol=some.category if some else "own",
        mark=mark,
        cells=tuple(cells),
        note="" if mine and theirs else "only here" if mine else "only there",
        details=(Block("over the run", head=head, rows=table),),
    )


def _ends(layer: layers.LayerCurves | None, name: str) -> tuple[float, float]:
    return (math.nan, math.nan) if layer is None else layer.ends(name)


def _told(layer: layers.LayerCurves | None, name: str, end: float) -> str:
    return layers.end(end) if layer is not None and name in layer.curves else ""


def _apart(left: float, right: float) -> bool:
    low, high = sorted((abs(left), abs(right)))
    return high > FAR * low if low == low and high == high else False
