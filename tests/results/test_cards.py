"""``finding.explain()``: from any finding a card, whose faces say the same."""

from __future__ import annotations

import html
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab.results.worded import Worded
from modlab.wording import cards, mistakes
from modlab.wording.alerts import ALERTS
from modlab.wording.kinds import KINDS
from tests.diagnosing import test_words as diagnoses
from tests.watching import test_verdict as watches


def of_watch(name: str) -> list[Worded]:
    w = watches.RUNS[name][0]()
    return [*w.alerts, *w.verdict.checks, *w.findings, *w.verdict.findings]


def of_diagnosis(name: str) -> list[Any]:
    return [*diagnoses.RUNS[name]().records]


FINDINGS: dict[str, Callable[[], list[Any]]] = {
    **{f"diagnose: {name}": lambda name=name: of_diagnosis(name) for name in diagnoses.RUNS},  # type: ignore[misc]
    **{f"watch: {name}": lambda name=name: of_watch(name) for name in ("no owner", "dead units", "NaN", "bfloat16")},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", FINDINGS)
def test_the_faces_of_a_card_say_the_same(name: str) -> None:
    found = FINDINGS[name]()
    assert found
    for one in found:
        card = one.explain()
        blocks = card._sheet().notes
        picture = " ".join(html.unescape(card.html(bundle=False)).split())
        text, page = " ".join(str(card).split()), json.dumps(card.to_dict())
        for said in (one.text, *(block.prose for block in blocks), *(line for block in blocks for line in block.code.splitlines())):
            assert " ".join(said.split()) in text and " ".join(said.split()) in picture
        assert json.dumps(one.text) in page and one.text in card.headline
        assert str(pickle.loads(pickle.dumps(card))) == str(card)
        assert (blocks[0].caption == "where" and (one.path or "(root)") in blocks[0].prose) or one.places


def test_each_kind_has_a_meaning() -> None:
    assert {*ALERTS, *KINDS} == {*cards.REASONS}
    assert {check.name for check in watches.RUNS["healthy"][0]().verdict.checks} == {*cards.CHECK_REASONS}
    silent = {kind for kind, one in mistakes.MISTAKES.items() if not one.reason}
    assert silent == {"several learning rates"}


def test_a_cause_has_a_meaning_and_no_figure_of_ours() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=-1))
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(32, 4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(30):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), x.argmax(1) % 3).backward()
            optimizer.step()
    evidence, means = w.verdict.findings[0].explain()._sheet().notes[1:3]
    assert (evidence.caption, evidence.rows) == ("evidence", ())
    assert means.prose.startswith("Scores between 0 and 1")


def test_the_evidence_of_a_cause_says_how_many_steps_were_measured_and_names_its_numbers() -> None:
    torch.manual_seed(0)
    net = nn.Linear(4, 3)
    optimizer, x = torch.optim.SGD(net.parameters(), lr=1e-7), torch.randn(32, 4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(30):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), x.argmax(1) % 3).backward()
            optimizer.step()
    evidence = w.verdict.findings[0].explain()._sheet().notes[1]
    measured = "all 30 steps" if w.record.samples == 30 else f"{w.record.samples} of 30 steps"
    assert evidence.prose == f"What was measured in {measured}: batches, the loss, gradients and weights."
    (change, share), (rate, value) = evidence.rows  # and no name of ours
    assert (change, rate, value) == ("change of a weight in a step", "learning rate", "1e-07") and share.endswith(" % of its size")


def test_what_to_do_stands_with_its_code() -> None:
    (found,) = [one for one in of_diagnosis("hidden") if one.kind == "hidden"]
    assert "do\n  self.more = nn.ModuleList(self.more)" in str(found.explain())


def test_explain_says_that_a_finding_explains_itself() -> None:
    (found, *_) = of_diagnosis("hidden")
    with pytest.raises(modlab.ModlabError, match=r"found\.explain\(\)"):
        modlab.explain(found)


def test_a_card_takes_no_values() -> None:
    (found, *_) = of_diagnosis("hidden")
    with pytest.raises(TypeError):
        found.explain("l0")
