"""Findings as plain data: what docs/findings.md says of each field is so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import modlab
from modlab import wording
from modlab.views.watch import columns
from modlab.wording.mistakes import MISTAKES
from tests import watches
from tests.diagnosing.test_words import RUNS
from tests.watching.test_verdict import with_dead_units

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")


def fields(begin: str) -> set[str]:
    """The names in the table below a line of the page."""
    _, found, rest = PAGE.partition(begin)
    assert found
    table = rest[rest.index("| field |") :].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


@pytest.fixture(scope="module")
def data() -> Any:
    return json.loads(json.dumps(with_dead_units().to_dict()))


def test_each_field_that_the_page_names_is_there_and_no_other(data: Any) -> None:
    every, check, alert = fields("in the same form"), fields("A check of a watch also has"), fields("An alert has these")
    assert {frozenset(one) for one in data["verdict"]["checks"]} == {frozenset(every | check)}
    assert {frozenset(one) for one in data["verdict"]["findings"]} == {frozenset(every)}
    assert {frozenset(one) for one in data["alerts"]} == {frozenset(every | alert)}


def test_those_of_a_diagnosis_too() -> None:
    every, check = fields("in the same form"), fields("A check of a diagnosis has these")
    for name in ("hidden", "flawed"):
        for one in json.loads(json.dumps(RUNS[name]().to_dict()))["records"]:
            assert {*one} == every | {"reason"} | (check if "outcome" in one else set())


def test_an_explained_error_too() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3))
    try:
        net(torch.zeros(5))
    except RuntimeError as error:
        result = modlab.explain(error)
    (found,) = json.loads(json.dumps(result.to_dict()))["findings"]
    assert {*found} == fields("in the same form") and (found["kind"], found["path"], found["severity"]) == ("product", "0", "broken")
    assert found["text"] == result.headline and found["fix"] == f"{found['fixes'][0]['advice']} {found['fixes'][0]['code']}"
    facts = found["facts"]
    assert {*facts} == {"error", "given", "module", "inputs", "tensors"} and (facts["error"], facts["module"]) == ("RuntimeError", "Linear")
    assert [one["shape"] for one in (*facts["inputs"], *facts["tensors"])] == [[5], [3, 4], [3]]
    assert {"name": "numbers expected", "value": "4"} in facts["given"]


def test_so_is_an_error_that_is_not_known() -> None:
    (found,) = modlab.explain(OSError("cold")).to_dict()["findings"]
    assert (found["kind"], found["path"], found["facts"]) == ("not known", "", {"error": "OSError", "given": ()})
    assert found["evidence"] == found["fixes"] == [] and "cold" in found["text"]


def test_a_fix_says_what_of_it_is_code(data: Any) -> None:
    (dead, *_) = data["alerts"]
    assert dead["fixes"] == [{"kind": "keep units alive", "code": "", "advice": dead["fix"]}]
    lost = columns.of_conclusion(watches.unowned())["alerts"][0]
    assert lost["fixes"][0]["code"].startswith("optimizer.add_param_group(") and lost["fixes"][0]["advice"].startswith("or ")
    assert lost["fix"] == f"{lost['fixes'][0]['code']}, {lost['fixes'][0]['advice']}"


def test_each_kind_that_the_page_names_is_one() -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith("| `kind` |"))
    assert set(re.findall(r'"([^"]+)"', row)) <= {*wording.ALERTS, *wording.CHECKS, *wording.KINDS, *MISTAKES}
