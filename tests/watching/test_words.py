"""Findings are facts: with every sentence replaced by "x", no record, verdict, severity, order or fix of a watch is another."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from modlab.records.finding import Finding
from modlab.records.watch import Verdict, WatchRecord
from modlab.views.watch import columns, words
from modlab.watching.verdict import judged
from modlab.wording import alerts, checks, experiments, findings, kinds, mistakes, told
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
    assert findings.said(w.record.verdict.rungs[0]) in ("x", "x: x") and "x" in str(w.verdict)
    assert conclusion(judged(replace(w.record, verdict=Verdict(())))) == facts == conclusion(w.record)


def test_a_run_that_is_watched_without_words_is_watched_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = RUNS["dead units"]
    spoken = conclusion(run().record)
    mute(monkeypatch)
    assert conclusion(run().record) == spoken


def test_each_kind_that_a_run_found_has_its_words() -> None:
    """And none is in two tables, for a kind has one meaning."""
    tables = (alerts.ALERTS, checks.CHECKS, kinds.KINDS, mistakes.MISTAKES, experiments.EXPERIMENTS)
    assert sum(map(len, tables)) == len(set().union(*tables))
