"""Notes of a difference are findings: facts here, words in `wording`, which explain each of them."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import modlab
from modlab.results.difference import Diff, Difference
from modlab.wording import differences
from tests.test_layout import ROOT
from tests.words import mute, without_words

Run = Callable[[], Diff]


def stepped() -> Diff:
    """Momentum, weight decay, what a step skips, and gradients that were None."""
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "still": nn.Linear(1, 1), "free": nn.Linear(1, 1)})
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
    for factor in (1, 0):
        before = modlab.snapshot(model, optimizer)
        optimizer.zero_grad()
        (model["used"](torch.ones(2)) * factor + model["still"](torch.ones(1)) * 0).sum().backward()
        optimizer.step()
    return modlab.diff(before, model)


def moved() -> Diff:
    """Halves, with what stays behind."""
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    model.mask = torch.ones(3)
    before = modlab.snapshot(model)
    model.half()
    model[0].weight = nn.Parameter(model[0].weight.detach())
    return modlab.diff(before, model)


def changed_kinds() -> Diff:
    model = nn.Linear(3, 2)
    model.register_parameter("later", None)
    before = modlab.snapshot(model)
    weight = model.weight.detach()
    del model.weight
    model.weight, model.later = weight, nn.Parameter(torch.ones(1))
    return modlab.diff(before, model)


def of_weights() -> Diff:
    first = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, 2), "c": torch.zeros(1), "d": torch.ones(2, device="meta"), "e": 1}
    last = {"a": first["a"].t(), "b": torch.ones(5, 2), "c": -torch.zeros(1), "d": torch.ones(2), "e": lambda: 0}
    return modlab.diff(first, last)


RUNS: dict[str, Run] = {one.__name__: one for one in (stepped, moved, changed_kinds, of_weights)}


def facts(found: Diff) -> str:
    rows = [(row.path, row.place, row.mark, row.depth) for row in found._sheet().rows]
    return json.dumps([without_words(found.to_dict()), rows, [one.path for one in found.changed]], default=str)


@pytest.mark.parametrize("name", RUNS)
def test_no_fact_is_in_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    spoken = facts(RUNS[name]())
    mute(monkeypatch)
    torch.manual_seed(0)
    found = RUNS[name]()
    assert facts(found) == spoken
    assert {note.text for row in found.records for note in row.notes} == {"x"}


@pytest.mark.parametrize("name", RUNS)
def test_a_note_is_a_finding_that_explains_itself(name: str) -> None:
    torch.manual_seed(0)
    found = RUNS[name]()
    noted = [row for row in found.records if row.notes]
    assert noted
    for row in noted:
        assert row.note == "; ".join(note.text for note in row.notes)
        for note in row.notes:
            card = note.explain()
            assert note.path == row.path and f"{row.path}: {note.text}" in card.headline and "two states" in str(card)
            assert differences.NOTES[note.kind].reason in " ".join(str(card).split())
    told = json.loads(json.dumps(found.to_dict(), default=str))
    assert told["schema"] == 2
    assert [one["kind"] for row in told["records"] for one in row["notes"]] == [note.kind for row in noted for note in row.notes]


def test_the_kinds_of_notes_that_are_made_are_those_that_have_words() -> None:
    names = ("difference", "decay", "partial_moves", "same_shape", "tensor_difference")
    text = "".join((ROOT / "modlab" / "inspection" / f"{name}.py").read_text() for name in names)
    given = {*re.findall(r'Finding\(\s*"(.*?)"', text), *re.findall(r'Finding\("[^"]*" if .*? else "(.*?)"', text)}
    given |= set().union(*re.findall(r'(?:kind|how) = "([a-z].*?)" if .*? else "(.*?)"', text))
    assert given == {*differences.NOTES}
    refused = {*re.findall(r'refuse(?:d)?\("(.*?)"', text), *re.findall(r'return "((?:other|unknown) parts?)"', text)}
    assert refused == {*differences.WHY_NOT}


def test_a_row_is_what_it_was_when_it_is_copied() -> None:
    found = moved()
    assert copy.deepcopy(found.records) == found.records and type(found["0.weight"]) is Difference
