"""With every sentence of the wording folder replaced by "x", what two models differ in and why an error was raised are the same facts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab.records.difference import Renaming
from modlab.records.trace import Uncalled
from modlab.wording import differences, events
from tests import zoo
from tests.test_layout import ROOT
from tests.words import mute, without_words

_NOTES = ("note", "notes", "marks")


class Parts(nn.Module):
    """Gives a tensor, nothing, and what nobody may look into."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(4, 3), nn.Dropout(0.5)

    def forward(self, x: Tensor, *rest: Any) -> Any:
        return self.drop(self.layer(x)), [], iter(())


def compared() -> Any:
    torch.manual_seed(0)
    return modlab.compare(Parts())(torch.ones(2, 4)).to_dict()


def explained() -> Any:
    try:
        Parts()(torch.ones(2, 5), [], iter(()))
    except RuntimeError as error:
        return modlab.explain(error).to_dict()


def renamed() -> Any:
    """What two state_dicts differ in whose names differ: by what stands in front of them, and without a rule."""
    weights = Parts().state_dict()
    found = [modlab.diff(weights, {name(k): v for k, v in weights.items()}) for name in ("module.{}".format, str.upper)]
    return [(diff.to_dict(), [asdict(one) for one in diff.record.renamings]) for diff in found]


def traced() -> Any:
    model = Parts()
    with modlab.trace(model) as trace:
        model(torch.ones(2, 4), [], iter(()))[0].sum().backward()
    return [(one.kind, one.path, one.name, [fact.kind for fact in one.facts]) for one in trace.events]


def hidden() -> Any:
    """What hangs on a model unregistered, in all faces that tell of it."""
    model = zoo.named("hidden").build()
    return [modlab.tree(model).to_dict(), modlab.state(model).to_dict(), modlab.diagnose(model).to_dict()]


def facts(data: Any) -> Any:
    """Less what is said, beside findings in notes too, and what differs from run to run."""
    if isinstance(data, dict):
        return {name: facts(value) for name, value in without_words(data).items() if name not in _NOTES}
    return [facts(one) for one in data] if isinstance(data, (list, tuple)) else data


@pytest.mark.parametrize("run", [compared, explained, renamed, traced, hidden])
def test_no_fact_is_in_a_sentence(run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = facts(run())
    mute(monkeypatch)
    assert json.dumps(facts(run()), default=str) == json.dumps(spoken, default=str)


def test_what_is_said_of_values_stands_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would hold of words that it does not see."""
    words = {compared: "not looked into", explained: "not looked into", hidden: "in a Python"}
    assert all(said in json.dumps(run(), default=str) for run, said in words.items())
    mute(monkeypatch)
    assert not any(said in json.dumps(run(), default=str) for run, said in words.items())


def test_each_reason_why_a_module_did_not_run_has_its_words() -> None:
    given = re.findall(r'return \(?"(.*?)"(?: if error else "(.*?)"\))?, \{', (ROOT / "modlab" / "tracing" / "not_called.py").read_text())
    assert set().union(*given) - {""} == {*events._UNCALLED}
    facts = {"at": "m.py:3", "around": "l0", "what": "compiled", "tensor": "weight", "by": "F.linear"}
    said = [events.uncalled(Uncalled("l1", "Linear", "linear", kind, facts)) for kind in events._UNCALLED]
    assert len({*said}) == len(said) and all(len(one) > 20 and "{" not in one for one in said)


def test_each_renaming_has_its_words() -> None:
    given = {*re.findall(r'\bRenameRule\("([a-z ]+)"', (source := (ROOT / "modlab" / "inspection" / "renames.py").read_text()))}
    given |= {*re.findall(r'\bRenameRule\("([a-z ]+)" if new else "([a-z ]+)"', source)[0], *re.findall(r'Renaming\("([a-z ]+)"', source)}
    assert given == {*differences.RENAMINGS}
    said = {differences.renaming(Renaming(kind, "a.", "b.", 3, "", "same names")) for kind in given}
    assert len(said) == len(given) and not any("{" in one for one in said)
