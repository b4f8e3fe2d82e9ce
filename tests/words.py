"""What findings say, taken away: what is left must be the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from modlab.wording import alerts, births, cards, checks, differences, events, experiments, kinds, mistakes, reasons, unregistered
from modlab.wording.fixes import FIXES

SAID = ("text", "fix", "headline", "advice", "reason", "note")
"""What of plain data is words."""


def mute(patch: pytest.MonkeyPatch) -> None:
    """Every sentence is "x"."""
    for kind, alert in alerts.ALERTS.items():
        patch.setitem(alerts.ALERTS, kind, replace(alert, now="x", over="x", halves=lambda alert: ("x", "x")))
    for kind, found in kinds.KINDS.items():
        patch.setitem(kinds.KINDS, kind, replace(found, title="x", words=lambda finding: "x"))
    for kind in mistakes.MISTAKES:
        patch.setitem(mistakes.MISTAKES, kind, mistakes.MistakeKind("x", "x", "x", "x"))
    for kind in differences.NOTES:
        patch.setitem(differences.NOTES, kind, differences.NoteKind("x", "x"))
    for name in experiments.NAMES:
        patch.setitem(experiments.NAMES, name, experiments.CheckName("x", "x"))
    for kind in experiments.ASKED:
        patch.setitem(experiments.ASKED, kind, experiments.CheckName("x", "x"))
    for table, words in (
        (checks.CHECKS, lambda facts: "x"),
        (checks._AT, "x"),
        (checks._ALL, "x"),
        (events._WORDS, lambda facts: "x"),
        (events._OF_VALUES, lambda facts: "x"),
        (differences.WHY_NOT, "x"),
        (differences.RENAMINGS, "x"),
        (events._UNCALLED, lambda facts: "x"),
        (reasons.CASES, "x"),
        (reasons.MEANS, "x"),
        (births.BIRTHS, "x"),
        (births.CAUSES, "x"),
        (births.DOUBTS, "x"),
        (experiments.EXPERIMENTS, "x"),
        (kinds.UNCOUNTED, "x"),
        (cards.REASONS, "x"),
        (cards.CHECK_REASONS, "x"),
        (FIXES, "x"),
        (unregistered.WAYS, ("x", "x")),
    ):
        for kind in table:  # type: ignore[attr-defined]
            patch.setitem(table, kind, words)  # type: ignore[arg-type]


def without_words(data: Any) -> Any:
    """Plain data, less what is said."""
    if isinstance(data, dict):
        return {name: without_words(value) for name, value in data.items() if name not in SAID}
    return [without_words(one) for one in data] if isinstance(data, (list, tuple)) else data
