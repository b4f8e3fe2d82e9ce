"""Outcomes of the checks that run the model, and how they are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import Evidence, ExperimentRecord, Fact, Outcome, Remedy, Severity

CHECKS = ("gradients", "leak", "first loss", "repeat", "round trip", "overfit")
_SEVERITIES: Mapping[str, Severity] = {"failed": "broken", "unclear": "careful"}


class NotRunError(Exception):
    """A check that cannot run with this model or batch; `kind` says why."""

    def __init__(self, kind: str, **facts: Fact) -> None:
        super().__init__(kind)
        self.kind, self.facts = kind, facts


def not_run(name: str, reason: NotRunError) -> ExperimentRecord:
    """The record of a check that could not run."""
    return ExperimentRecord(reason.kind, "", reason.facts, name=name)


def record(
    name: str, outcome: Outcome, kind: str, *fixes: Remedy, site: ModuleSite | None = None, path: str | None = None, **facts: Any
) -> ExperimentRecord:
    """The record of a check that ran; `site` is the module where it shows, or None for the model itself."""
    module = "" if site is None else site.path
    severity, where = _SEVERITIES.get(outcome, "note"), (Evidence("module", module),)
    return ExperimentRecord(kind, module if path is None else path, facts, severity, None, where, fixes, name, outcome)
