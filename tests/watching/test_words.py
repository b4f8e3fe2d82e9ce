"""Findings are facts: with every sentence replaced by "x", no record, verdict, severity, order or fix of a watch is another."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab import wording
from modlab.records.finding import Finding
from modlab.records.watch import Verdict, WatchRecord
from modlab.views.watch import columns, words
from modlab.watching.verdict import judged
from modlab.wording import alerts, births, checks, differences, experiments, figures, findings, kinds, mistakes, told
from modlab.wording.causes import CAUSES, RATES
from tests.test_layout import ROOT
from tests.watching.test_verdict import RUNS
from tests.words import mute, without_words


def conclusion(record: WatchRecord) -> str:
    ranked = sorted(record.alerts, key=words.rank)
    below: list[Finding] = told(record.verdict.findings)
    order = [(one.kind, one.path, one.severity, str(one.fixes)) for one in (*ranked, *below)]
    marks = [words.mark(one) for one in ranked]
    return json.dumps([without_words(columns.of_conclusion(record)), order, marks, record.verdict.ok])


@pytest.mark.parametrize("name", RUNS)
def test_no_fact_is_in_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = RUNS[name]
    w = run()
    facts = conclusion(judged(replace(w.record, verdict=Verdict(()))))
    mute(monkeypatch)
    assert findings.said(w.record.verdict.checks[0]) in ("x", "x: x") and "x" in str(w.verdict)
    assert conclusion(judged(replace(w.record, verdict=Verdict(())))) == facts == conclusion(w.record)


@pytest.mark.parametrize("name", ["dead units", "born in a log"])
def test_a_run_that_is_watched_without_words_is_watched_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = {**RUNS, "born in a log": (with_a_log, "")}[name]
    spoken = conclusion(run().record)
    mute(monkeypatch)
    assert conclusion(run().record) == spoken


def with_a_log() -> modlab.Watch:
    """A step is run again, for a NaN is born there."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), Log())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with modlab.watch(model, optimizer, on_nan="hold") as w:
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()
    return w


class Log(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x - x.detach())


def test_where_a_nan_was_born_the_verdict_has_what_mends_it() -> None:
    """It does not advise to look for what an alert beside it has found."""
    w = with_a_log()
    assert w.verdict.broken is not None
    assert w.verdict.broken.name == "the loss is sensible" and w.verdict.broken.fixes == w.alerts[0].fixes


def test_what_a_step_shows_that_was_run_again_is_facts() -> None:
    (born, *_) = with_a_log().to_dict()["alerts"]
    wanted = {"seen": "again", "where": "forward", "birth": "made", "event": "function", "name": "torch.log", "cause": "log"}
    assert {name: born["facts"][name] for name in wanted} == wanted
    assert [one["kind"] for one in born["fixes"]] == ["keep above zero"] and json.loads(json.dumps(born["facts"]))


def test_all_that_a_step_can_show_that_was_run_again_has_its_words() -> None:
    text = "".join((ROOT / "modlab" / "watching" / name).read_text() for name in ("replay.py", "nan_origin.py"))
    given = re.findall(r'"birth": "(.*?)"|_nowhere\("(.*?)"(?: if .*? else "(.*?)")?', text)
    assert set().union(*given) - {""} == {*births.BIRTHS}
    assert {*re.findall(r'"cause": "(.*?)"', text)} == {*births.CAUSES}
    assert set().union(*re.findall(r'_doubts(?:\.append\(| or \[)"(.*?)"(?: if .*? else "(.*?)")?', text)) - {""} == {*births.DOUBTS}


FACTS: dict[str, Any] = {
    **{"name": "torch.log", "event": "function", "at": "m.py:3", "on purpose": False, "bad": 2, "numbers": 1_000, "part": True},
    **{"spoilt": "0.weight", "node": "LogBackward0", "passes": 2, "error": "ValueError: {x}", "kinds": ("DDP",), "world": 2},
    **{"zeros": 3, "negative": True, "dtype": "float16", "dropped": 1, "of a module": True},
}


@pytest.mark.parametrize("kind", births.BIRTHS)
def test_each_of_them_is_a_sentence(kind: str) -> None:
    for cause in births.CAUSES:
        said = "".join(births.halves("l0", {**FACTS, "birth": kind, "cause": cause}, "NaN"))
        assert len(said) > 20 and "  " not in said and "{" not in said.replace("{x}", "")
    assert births.doubted({"doubts": [*births.DOUBTS], **FACTS}).count(";") == len(births.DOUBTS) - 1


def test_each_kind_that_a_run_found_has_its_words() -> None:
    """And none is in two tables, for a kind has one meaning."""
    seen = (experiments.EXPERIMENTS.keys() | mistakes.MISTAKES.keys()) - kinds.KINDS.keys()  # a cause may be found in other ways, too
    tables = (alerts.ALERTS, checks.CHECKS, kinds.KINDS, seen, differences.NOTES)
    assert sum(map(len, tables)) == len(set().union(*tables))


@pytest.mark.parametrize(
    ("pace", "told"), [(47.9, "48 times its size"), (1.2, "as much as its size"), (2e7, "more than a million times its size")]
)
def test_a_change_as_large_as_a_weight_is_told_alike_on_its_card(*, pace: float, told: str) -> None:
    found = Finding("rate too high", "", {"tier": 2, "pace": pace, "rate": 3.0, "first": 1.0, "most": 1.0}, "broken")
    assert told in wording.sentence(found) and ("change of a weight in a step", told) in figures.figures(found)


def test_a_rate_that_is_too_high_may_be_so_by_more_than_ten_times() -> None:
    assert all("a tenth of the learning rate" in CAUSES[kind].fix and "or less" in CAUSES[kind].fix for kind in RATES)


def test_a_trend_told_of_few_values_says_how_few() -> None:
    facts = {"first": 1.0, "last": 1.1, "averaged": True, "each": 2}
    assert checks.CHECKS["no trend"](facts).endswith("no trend beyond its noise; each tenth has only 2 values")
    assert checks.CHECKS["no trend"](facts | {"each": 12}).endswith("no trend beyond its noise")
