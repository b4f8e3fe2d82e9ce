"""Every number in a sentence of a watch is one of its record: at the precision in which it is told, and of the thing that it is told of."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from modlab import wording
from modlab.records.loss import the_loss
from modlab.records.watch import GRADIENT, UPDATE, UnitsRecord, WatchRecord, is_few_dead
from modlab.views.watch import headline, html, layers, payload, text, words
from tests.views.test_faces import unpack

_NUMBER = re.compile(r"(?<![\w.\-−])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")
_TREND = re.compile(
    r"(?:falls|goes) from (\S+) to (\S+?)(, averaged over (?:its|the) first and last tenth(?: of the [\d,]+ values seen)?)?\.(?: |$)"
)


def check(record: WatchRecord, *, made_up: bool = False) -> None:
    """Hold all sentences of all faces against the record; what alerts rest on was measured, unless the record is made up."""
    _numbers(record, [one for alert in record.alerts for one in alert.facts.values() if isinstance(one, (int, float))] if made_up else [])
    _loss(record)
    _counted(record)
    _captions(record)
    _looks(record)
    _units(record)
    _layers(record)
    _states(record)


def sentences(record: WatchRecord) -> Iterator[str]:
    """What a view says in words, without its tables."""
    yield " ".join(headline.of_watch(record))
    for _, _, found in words.entries(record.verdict):
        yield wording.said(found)
    for alert in record.alerts:
        yield wording.said(alert)
    yield from words.remarks(record)


def _numbers(record: WatchRecord, known: list[float]) -> None:
    known = [*known, *_known(record)]
    for sentence in sentences(record):
        for told in _NUMBER.findall(_bare(sentence, record)):
            assert _among(told, known), f"{told} in “{sentence}” is no number of the record"


def _bare(sentence: str, record: WatchRecord) -> str:
    """Without names, errors, and code."""
    said = re.sub(r"\(\S+:\d+\)", " ", sentence.replace(record.error or "\0", ""))
    names = {one.path for one in record.history.series} | {one.name for one in record.scalars}
    names |= {path for one in record.verdict.findings for path in (one.path, *map(str, one.facts.values()))}
    for check in record.verdict.checks:
        names |= {name for name in re.findall(r"[\w.]+", wording.said(check)) if "." in name and not name.replace(".", "").isdigit()}
    for name in sorted((name for name in names if name and not name.replace(".", "").isdigit()), key=len, reverse=True):
        said = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", " ", said)
    said = re.sub(r"the largest number in float32 is \S+", " ", said)
    return re.sub(r"float\d+|units? [\d, and…]+|(?:normalization|of|in|beside|for|from) \d+(?= (?:are|is|first|was))", " ", said)


def _known(record: WatchRecord) -> Iterator[float]:
    yield from (record.steps, record.samples, record.steps - record.samples, record.modules, record.inputs, len(record.alerts), 100, 0, 1)
    yield from range(len(record.history.series) + 1)  # how many modules, parameters or alerts of some kind there are
    for scalar in record.scalars:
        yield from (scalar.count, scalar.nan, scalar.inf, scalar.nan + scalar.inf, scalar.bad_step, scalar.final, *scalar.ends())
        yield from np.concatenate([scalar.first, scalar.last, scalar.mean, scalar.low, scalar.high]).tolist()
    for facts in (*(check.facts for check in record.verdict.checks), *(one.facts for one in record.verdict.findings)):
        for fact in facts.values():
            some = [one for one in (fact if isinstance(fact, tuple) else (fact,)) if isinstance(one, (int, float))]
            yield from (*some, *(100 * one for one in some))
    for alert in record.alerts:
        yield from (alert.step, alert.inputs, alert.steps, alert.last, *alert.units, *([] if alert.unit is None else [alert.unit]))
    for units in record.units:
        yield from (int(units.inputs.sum()), units.fired.shape[1], *units.silent.tolist(), *units.fired.sum(axis=0).tolist())
        yield from (100 * share for share in _rates(units))
    for column in record.history.columns.values():
        yield from (float(one) for one in column[np.isfinite(column)])
        yield from (100 * float(one) for one in column[np.isfinite(column)])
    yield from (one.count for one in record.history.series)
    yield from _medians(record)


def _medians(record: WatchRecord) -> Iterator[float]:
    """What "at the first modules" may be: the norm of a gradient in some slot, or the mean of two."""
    rows = [row for row, one in enumerate(record.history.series) if one.role == GRADIENT]
    for sizes in layers.norms(record.history)[:, rows]:
        there = sizes[np.isfinite(sizes)]
        yield from ((there[:, None] + there[None, :]) / 2).ravel().tolist()


def _rates(units: UnitsRecord) -> Iterator[float]:
    sums, seen = np.cumsum(units.fired, axis=0), np.cumsum(units.inputs)
    for at in range(len(seen)):
        yield from (sums[at] / max(seen[at], 1)).tolist()
        yield from ((sums[-1] - sums[at]) / max(seen[-1] - seen[at], 1)).tolist()


def _among(told: str, known: list[float]) -> bool:
    clean = told.replace(",", "").replace("−", "-").rstrip(".")
    value = float(clean)
    mantissa = clean.partition("e")[0].lstrip("-")
    decimals = len(mantissa.partition(".")[2])
    exponent = int(clean.partition("e")[2] or 0)
    unit = 0.5000001 * 10.0 ** (exponent - decimals)
    if "." not in mantissa and not exponent:
        unit = max(unit, 0.5000001 * 10.0 ** max(0, len(mantissa) - 3)) if abs(value) >= 1e6 else 0.5000001
    return any(abs(one - value) <= unit + 1e-4 * abs(value) for one in known if math.isfinite(one))


def _loss(record: WatchRecord) -> None:
    """The loss's ends are those of its curve, wherever they are told."""
    strong, rest = headline.of_watch(record)
    check = next((check for check in record.verdict.checks if check.name == headline.FALLS), None)
    loss = the_loss(record)
    told = _TREND.search(f"{strong} {rest} ")
    if told is None:
        return
    assert check is not None and loss is not None
    begin, end = _drawn_ends(record, loss.name, averaged=bool(told[3]))
    assert (told[1], told[2]) == (words.number(begin), words.number(end)), (told[0], begin, end)
    falls = "falls from" in told[0]
    assert falls == (check.state == "passed") and (not falls or end < begin)
    if "→" in wording.said(check):
        assert wording.said(check).startswith(f"{told[1]} → {told[2]}{told[3] or ''}")
    assert layers.arrow(begin, end) in html.of_watch(record)


def _drawn_ends(record: WatchRecord, name: str, *, averaged: bool) -> tuple[float, float]:
    """Where the curve begins and ends that the page draws: its outermost points, or the means over a tenth of them."""
    content, arrays = unpack(payload.fitting(record, "", ""))
    at = [one["name"] for one in content["scalars"]].index(name)
    drawn = arrays[f"scalar {at}"].reshape(-1, 3)[:, 0].astype(np.float64)
    some = max(1, len(drawn) // 10) if averaged else 1
    return float(np.nanmean(drawn[:some])), float(np.nanmean(drawn[-some:]))


def _counted(record: WatchRecord) -> None:
    """Where a curve has fewer values than there were steps, "all values" is not said without that."""
    check = next((check for check in record.verdict.checks if check.name == "the loss is sensible"), None)
    loss = the_loss(record)
    if check is None or loss is None or "values are finite" not in wording.said(check):
        return
    assert wording.said(check).startswith(f"all {loss.count:,} values are finite")
    missed = record.steps - loss.count
    if loss.kind == "loss" and missed > 0 and record.state != "running":
        assert wording.said(check).endswith(f"in {missed:,} of {record.steps:,} steps none was seen")


def _captions(record: WatchRecord) -> None:
    """Where samples have become one, a layer's number is not said to be the first sample's."""
    merged = bool((np.nan_to_num(record.history.columns["samples"]) > 1).any())
    for face in (text.of_watch(record), html.of_watch(record)):
        assert not (merged and "from the first sample to the last" in face)


def _looks(record: WatchRecord) -> None:
    """Nothing is called well beyond what was looked at."""
    strong, rest = headline.of_watch(record)
    if strong.startswith("No problem found"):
        told = [one for one in wording.told(record.verdict.findings) if not (is_few_dead(one) and "apart from a few units" in strong)]
        assert record.verdict.broken is None and not told
        assert f"{record.samples:,} of" in rest or f"{record.steps:,} step" in rest
        assert all(not (scalar.nan + scalar.inf) or scalar is not the_loss(record) for scalar in record.scalars)
    assert "ll is well" not in f"{strong} {rest}"


def _units(record: WatchRecord) -> None:
    """A unit that is called dead fires on none of the last inputs; each layer's finding counts its alerts."""
    counted = {units.path: units for units in record.units}
    for finding in record.verdict.findings:
        if finding.kind == "dead units" and finding.path in counted:
            units = counted[finding.path]
            assert finding.facts["units"] == units.fired.shape[1]
            for unit in finding.facts["which"]:  # type: ignore[union-attr]
                assert units.silent[unit] >= finding.facts["inputs"], (finding, units.silent[unit])  # type: ignore[operator]
    told = {(one.path, unit) for one in record.verdict.findings if one.kind == "dead units" for unit in one.facts["which"]}  # type: ignore[union-attr]
    for alert in record.alerts:
        if alert.kind == "dead" and not alert.over and alert.unit is not None and alert.path in counted:
            assert (alert.path, alert.unit) in told


def _layers(record: WatchRecord) -> None:
    """“It moves” is not denied by a curve that says that all moves, nor the other way round; no ratio is infinite."""
    every = layers.of_history(record.history)
    assert "Inf" not in "".join(layer.told("update / weights") for layer in every).replace("NaN or Inf", "")
    check = next((check for check in record.verdict.checks if check.name == "it moves"), None)
    if check is None or check.state != "broken":
        return
    row = record.history.row(check.path, UPDATE)
    moved = record.history.columns["high"][:, row]
    assert not (np.nan_to_num(moved) > 0).any(), f"{check.path} does not move, and its curve does"


def _states(record: WatchRecord) -> None:
    """The text's first line is the headline, and each check stands in it once."""
    face = text.of_watch(record)
    for name, _, found in words.entries(record.verdict):
        said = wording.said(found)
        if said and said not in " ".join(headline.of_watch(record)) and len(said) < words.LONG:
            assert face.count(f"{name} ") >= 1
