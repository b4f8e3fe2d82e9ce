"""How the checks that run the model write down what they gave."""

from __future__ import annotations

from typing import Any

from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import ExperimentRecord, Outcome

TITLES = {
    "gradients": "every trained parameter gets a gradient",
    "leak": "samples do not see each other",
    "first loss": "the first loss is that of a guess",
    "repeat": "two passes in eval mode are equal",
    "round trip": "a copy that loads the state_dict is equal",
    "overfit": "one batch can be learnt by heart",
}


class NotRunError(Exception):
    """A check cannot be made with this model or batch; says why."""


def not_run(kind: str, reason: str) -> ExperimentRecord:
    """The record of a check that could not be made."""
    return ExperimentRecord("", "", kind, TITLES[kind], "not run", reason)


def record(
    kind: str, outcome: Outcome, what: str, reason: str = "", fix: str = "", site: ModuleSite | None = None, **more: Any
) -> ExperimentRecord:
    """The record of a check that was made; `site` is the module where it shows, the model itself if there is none."""
    path = site.path if site is not None else ""
    return ExperimentRecord(more.pop("path", path), path, kind, TITLES[kind], outcome, what, reason, fix, **more)
