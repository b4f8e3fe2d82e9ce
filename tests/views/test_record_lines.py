"""Records that are lines of text, as a notebook shows them: the same words as in the text, which break at their ends."""

from __future__ import annotations

import re
from html import unescape

import pytest
import torch
from torch import nn

import modlab
from modlab.records import lines, watch
from modlab.records.finding import Remedy
from modlab.results.reason import Reason
from modlab.results.verdict import Verdict
from tests import watches


def read(html: str) -> str:
    """The words of a piece of HTML, in order, by one space."""
    return " ".join(unescape(re.sub(r"<(?!wbr)[^>]*>", " ", html).replace("<wbr>", "")).split())


VERDICT = Verdict.of(
    watch.Verdict(
        (
            watches.check("data arrives", "passed", "3 steps"),
            watches.check("every module is called", "not seen"),
            watches.check("the loss falls", "broken", "1 → 2, which is more", Remedy(advice="a <smaller> lr"), path="a.b"),
        )
    )
)


def test_a_verdict_says_the_same_in_a_notebook() -> None:
    html = VERDICT._repr_html_()
    assert read(html) == " ".join(str(VERDICT).split())
    assert "&lt;smaller&gt;" in html and "<script" not in html
    assert "word-break:normal" in html and "break-all" not in html
    assert str(VERDICT).splitlines() == [
        "ok        data arrives            3 steps",
        "not seen  every module is called",
        "BROKEN    the loss falls          1 → 2, which is more",
        "                                  Fix: a <smaller> lr",
    ]
    assert read(Verdict(())._repr_html_()) == ""


def test_a_reason_says_the_same_in_a_notebook() -> None:
    net = nn.Sequential(nn.Linear(2, 1).requires_grad_(False))
    with modlab.trace(net) as trace:
        net(torch.ones(2))
    reason = trace.why("0.weight")
    assert read(reason._repr_html_()) == str(reason)
    assert (
        read(Reason("not called", "<b>.x", {"case": "not called", "module": "a\u202eb"})._repr_html_())
        == "<b>.x: not called: a\\u202eb did not run"
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("encoder.0.attn_out.weight", ["encoder.", "0.", "attn_", "out.", "weight"]),
        ("0.25 to 1.5e-08, 3/4", ["0.25 to 1.5e-08, 3/4"]),
        ("It ends. So it does.", ["It ends. So it does."]),
    ],
)
def test_paths_break_behind_their_joints_and_numbers_nowhere(text: str, parts: list[str]) -> None:
    assert lines.words(text).split("<wbr>") == parts


def test_a_finding_is_a_line_of_text_and_a_card_in_a_notebook():
    (found,) = modlab.diagnose(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0))).notes
    line = "Note: 1 (Dropout) has p = 0 and drops nothing: it does what nn.Identity does"
    assert str(found) == f"{line}." and repr((found,)) == f"(<{line}>,)"
    assert found._repr_html_() == found.explain()._repr_html_()
