"""The words: with every sentence replaced by "x" the facts are the same, and habits that are not English do not come back."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
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


# ---- habits that are not English

_THING = "answer|checkpoint|dict|error|exception|function|list|module|name|notebook|number|optimizer|parameter|share|tensor|text"
HABITS = {
    "shall": r"\bshall\b",  # should, must, will
    "is to": r"\b(?:is|are|was|were) to (?:be|have|learn|give|get|say|see|take|hold|own|stay)\b",  # must be, should be
    "has it": r"\b(?:has|have) (?:it|they) (?:an?|any|got|no)\b|(?:^|[.?:] )Has [`\w.()= ]{1,30} an? [^.?]{1,30}\?",  # does it have
    "which it is not": r", which (?:it|they) (?:is|are|was|were|has|have) not\b",
    "of which no": r"\bof which (?:no|none|nothing|nobody)\b",
    "that which": r"\b(?:that|those) which\b",  # the one that, what
    "and so it is": r"\band so (?:it is|it was|they are|they were)\b",
    "cannot be had": r"\b(?:can ?not|could not) be had\b",
    "nobody who": r"\bnobody (?:who|that|knows|has)\b|\bnothing which\b",
    "another, for different": r"\b(?:is|are|was|gives?|has) another (?:one|object|shape|value|name|size|dtype)\b|\banother \w+ than\b",
    "others than": r"\bothers than\b",
    "as, for such as": r"\b(?:number|name|word|path), as (?:\d|'\w|`)",
    "is no, for is not a": rf"(?<![Tt]here )\b(?:is|are|was|were) no (?:{_THING})s?\b",
    "has not, for does not have": r"\b(?:it|they|model|page|weights) (?:has|have) not[.;,:]",
    "which has X": r"\b(?:Which|What|How many) \w+ (?:has|have) [^.?]+\?",  # does it have
    "any more": r"\bno \w+ any more\b",  # no longer
    "put out of its place": r"\b(?:came?|comes?) out otherwise\b|\bnests? \w+ otherwise\b|\bin silence\b",
}
"""By a name: what is said otherwise in plain modern English; the patterns leave good English alone."""

KINDS = {"is no tensor", "was no tensor", "loss is no number"}
"""Kinds of findings: names, which are not shown."""


def habits_in(text: str) -> list[str]:
    return [name for name, pattern in HABITS.items() if text not in KINDS and re.search(pattern, text)]


def _texts() -> Iterator[tuple[str, str]]:
    """Each string, docstring and line of prose, with its place."""
    folders = ROOT, ROOT / "docs", ROOT / "notebooks"
    for file in sorted([*(ROOT / "modlab").rglob("*.py"), *(file for folder in folders for file in folder.iterdir())]):
        kind = {".py": _strings, ".ipynb": _cells, ".md": _lines}.get(file.suffix)
        if kind is not None and file.name != "CHANGELOG.md":
            yield from ((f"{file.relative_to(ROOT).as_posix()}:{line}", text) for line, text in kind(file))


def _cells(file: Path) -> Iterator[tuple[int, str]]:
    for number, cell in enumerate(json.loads(file.read_text(encoding="utf-8"))["cells"]):
        yield number, "".join(cell["source"])


def _strings(file: Path) -> Iterator[tuple[int, str]]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    yield from ((node.lineno, node.value) for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    yield from enumerate(file.read_text(encoding="utf-8").splitlines(), 1)


def test_no_habit_comes_back():
    found = [f"{place}: {', '.join(habits)}: {text.strip()[:90]}" for place, text in _texts() if (habits := habits_in(text))]
    assert not found, "say it in plain modern English:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("said", "habit"),
    [
        ("What it shall learn is wrapped in `nn.Parameter`", "shall"),
        ("Each call is to be marked with its module's path", "is to"),
        ("is it trained, is it saved, has it a gradient?", "has it"),
        ("Has `y = m(x)` a `grad_fn`?", "has it"),
        ("it counts as a number, which it is not", "which it is not"),
        ("a checkpoint, of which no weight is read", "of which no"),
        ("You said no, and so it is.", "and so it is"),
        ("its lesson cannot be had", "cannot be had"),
        ("the output is another one", "another, for different"),
        ("write a number, as 3 or 0.5", "as, for such as"),
        ("1 function that is no module", "is no, for is not a"),
        ("11 answers of 18 came out otherwise", "put out of its place"),
    ],
)
def test_a_habit_is_seen(said: str, habit: str) -> None:
    assert habits_in(said) == [habit]


@pytest.mark.parametrize(
    "said",
    [
        "Whether there is no number to show is another question.",
        "There is no module at that path, and no optimizer has it.",
        "What to do: another seed, or another layer after it.",
        "It has not run yet; the output has not been measured.",
        "A tensor that requires no gradient is left unchanged.",
        "The way to be sure is to run it.",
    ],
)
def test_good_english_is_let_be(said: str) -> None:
    assert habits_in(said) == []
