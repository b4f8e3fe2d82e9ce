"""Reasons of a trace are findings: facts here, words in `wording`, which explain each of them."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab.records.trace import Reason
from modlab.results.trace import Trace
from modlab.wording import cards, reasons
from modlab.wording.fixes import FIXES
from tests.test_layout import ROOT
from tests.words import mute, without_words


class Ways(nn.Module):
    """Each part loses its gradient in another way."""

    def __init__(self) -> None:
        super().__init__()
        names = ("used", "cold", "cut", "plain", "aside", "never", "past", "off", "numbers")
        self.parts = nn.ModuleDict({name: nn.Linear(3, 3) for name in names})
        self.parts["cold"].requires_grad_(False)
        self.register_buffer("held", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        part = self.parts
        part["aside"](x)
        with torch.no_grad():
            off = part["off"](x)
        factor = part["plain"](x).sum().item()
        array = torch.from_numpy(part["numbers"](x).detach().numpy())
        past = part["past"].forward(x)
        return part["used"](x) + part["cold"](x) + part["cut"](x).detach() + off * factor + array + past


def ways(backward: bool = True) -> Trace:
    torch.manual_seed(0)
    model = Ways()
    with modlab.trace(model) as trace:
        loss = model(torch.ones(2, 3)).sum()
        if backward:
            loss.backward()
    trace.model = model  # type: ignore[attr-defined] # it would be gone
    return trace


def raised() -> Trace:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(4, 4)})
    with modlab.trace(model) as trace:
        try:
            model["b"](torch.ones(2, 3))
        except RuntimeError:
            model["a"](torch.zeros(2, 3)).mul(0).sum().backward()
    trace.model = model  # type: ignore[attr-defined]
    return trace


RUNS: dict[str, Callable[[], Trace]] = {"ways": ways, "no backward": lambda: ways(backward=False), "raised": raised}


def facts(trace: Trace) -> str:
    rows = [(row.path, row.place, row.mark, row.depth) for row in trace._sheet().rows]
    notes = [(block.mark, len(block.rows)) for block in trace._sheet().notes]
    return json.dumps([without_words(trace.to_dict()["reasons"]), rows, notes])


@pytest.mark.parametrize("name", RUNS)
def test_no_fact_is_in_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = facts(RUNS[name]())
    mute(monkeypatch)
    trace = RUNS[name]()
    assert facts(trace) == spoken and {reason.text for reason in trace.reasons} == {"x"}


@pytest.mark.parametrize("name", RUNS)
def test_a_reason_is_a_finding_that_explains_itself(name: str) -> None:
    trace = RUNS[name]()
    assert [reason.path for reason in trace.reasons] == [path for path, _ in trace.model.named_parameters()]  # type: ignore[attr-defined]
    told = json.loads(json.dumps(trace.to_dict()["reasons"]))
    for reason, data in zip(trace.reasons, told, strict=True):
        card, again = reason.explain(), pickle.loads(pickle.dumps(reason))
        said = " ".join(str(card).split())
        assert trace.why(reason.path) == reason == again and str(again) == f"{reason.path}: {reason.text}"
        assert f"{reason.path}: {reason.text}" in card.headline and reasons.MEANS[reason.kind] in said and reason.fix in said
        assert (f"Event {reason.event} of the trace" if reason.event >= 0 else "The trace as a whole") in said
        assert (data["kind"], data["event"], data["arrived"], data["text"]) == (reason.kind, reason.event, reason.arrived, reason.text)


def test_a_reason_says_what_to_do() -> None:
    trace = ways()
    kinds = {name: trace.why(f"parts.{name}.weight").kind for name in ("cut", "off", "aside", "never")}
    assert kinds == {"cut": "detached", "off": "no_grad", "aside": "off the path", "never": "not called"}
    assert "Call it in forward" in str(trace.why("parts.never.weight").explain())
    assert trace.why("parts.never.weight").fix == FIXES["not called"] and not trace.why("parts.cold.weight").fix
    assert "no optimizer trains it" in str(trace.why("held").explain())


def test_what_is_made_has_words() -> None:
    text = (ROOT / "modlab" / "tracing" / "reasons.py").read_text()
    made = re.findall(r'_found\(\s*(?:"(.*?)"|kind|used\.off), "(.*?)"', text)
    kinds, cases = {kind for kind, _ in made if kind}, {case for _, case in made}
    assert cases | {"buffer", "another thread", "inside of compiled"} == {*reasons.CASES}
    assert kinds | {"buffer", "detached", "no_grad", "inference_mode"} == {*reasons.MEANS}
    assert {*re.findall(r'"(.*?)"', re.search(r"_MENDED = frozenset\(\((.*?)\)\)", text)[1])} <= {*FIXES} & {*reasons.MEANS}  # type: ignore[index]


def test_a_card_of_each_kind_can_be_made() -> None:
    assert all(
        cards.headline(Reason(kind, "w", {"case": "frozen"}))[1] == "w: frozen: its requires_grad is False" for kind in reasons.MEANS
    )
