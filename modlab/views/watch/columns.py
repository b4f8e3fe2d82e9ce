"""A watch as plain data: the history as columns, one row for each series in each slot in which it has a sample; and what it came to."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from modlab.records.fork import ForkRecord
from modlab.records.watch import ScalarRecord, WatchRecord
from modlab.views.findings import as_data
from modlab.views.watch import layers
from modlab.wording import forks

SCHEMA = 3
"""Of `Watch.to_dict`: 1 had the headline and the history alone."""

NAMES = ("path", "role", "first", "last", "mean", "std", "low", "high", "l2", "zeros", "bad", "stuck", "ratio")


def of_history(record: WatchRecord) -> dict[str, npt.NDArray[Any]]:
    """Columns of equal length, series by series and each in the order of its steps.

    Returns:
        By the names of `NAMES`: path and role (strings), first and last step of the slot, mean, std, least and greatest finite
        number, Euclidean norm, share of zeros, the most NaN and infinities in one sample, and, of updates alone (else NaN), the
        share of elements that had a gradient and did not move, and the norm divided by the parameter's.
    """
    history = record.history
    series, slots = np.nonzero(history.columns["samples"].T > 0)
    paths, roles = (np.array([getattr(one, name) for one in history.series], dtype=object) for name in ("path", "role"))
    norm = layers.norms(history)

    def taken(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return table[slots, series]

    raw = {name: taken(history.columns[name]) for name in ("mean", "low", "high", "zeros", "bad", "stuck")}
    found = {
        "path": paths[series],
        "role": roles[series],
        "first": history.first[slots],
        "last": history.last[slots],
        **raw,
        "std": np.sqrt(taken(history.columns["var"])),
        "l2": taken(norm),
        "ratio": taken(layers.ratios(history, norm)),
    }
    return {name: found[name] for name in NAMES}


def of_all(record: WatchRecord) -> dict[str, npt.NDArray[Any]]:
    """The columns of the history, and below them what was logged: of the role "scalar", with its name as path."""
    history = of_history(record)
    curves = [_rows(scalar) for scalar in record.scalars]
    return {name: np.concatenate([column, *(curve[name] for curve in curves)]) for name, column in history.items()}


def _rows(scalar: ScalarRecord) -> dict[str, npt.NDArray[Any]]:
    count = len(scalar.first)
    none: npt.NDArray[Any] = np.full(count, np.nan, np.float32)
    there: dict[str, npt.NDArray[Any]] = {name: getattr(scalar, name) for name in ("first", "last", "mean", "low", "high")}
    there["bad"] = scalar.bad.astype(np.float32)
    there["path"], there["role"] = np.full(count, scalar.name, object), np.full(count, "scalar", object)
    return {name: there.get(name, none) for name in NAMES}


def of_scalars(record: WatchRecord) -> dict[str, dict[str, Any]]:
    """What was logged, by name."""
    curves = ("first", "last", "mean", "low", "high", "bad")
    counts = ("kind", "count", "final", "nan", "inf", "bad_step", "passes", "falls")
    return {
        one.name: {**{name: getattr(one, name).tolist() for name in curves}, **{name: getattr(one, name) for name in counts}}
        for one in record.scalars
    }


def of_knobs(record: WatchRecord) -> list[dict[str, Any]]:
    """The knobs of the run, with their moves."""
    return [asdict(one) for one in record.knobs]


def of_moves(record: WatchRecord) -> list[dict[str, Any]]:
    """All moves of all knobs in the order of their steps, as JSON keeps them."""
    moves = sorted((move for one in record.knobs for move in one.moves), key=lambda move: move.step)
    return [asdict(one) for one in moves]


def of_conclusion(record: WatchRecord) -> dict[str, Any]:
    """The run, the verdict and the alerts."""
    verdict = record.verdict
    return {
        "run": {"model": record.title, **{name: getattr(record, name) for name in ("optimizer", "state", "error", "steps", "samples")}},
        "verdict": {
            "ok": verdict.ok,
            "exit_code": verdict.exit_code,
            "broken": verdict.broken.name if verdict.broken else None,
            "unseen": list(verdict.unseen),
            "checks": [as_data(one) for one in verdict.checks],
            "findings": [as_data(one) for one in verdict.findings],
        },
        "alerts": [as_data(one) for one in record.alerts],
        **({"forks": [of_fork(one) for one in record.forks]} if record.forks else {}),
    }


def of_fork(record: ForkRecord) -> dict[str, Any]:
    """A fork, with its curves as lists."""
    facts = {name: getattr(record, name) for name in ("began", "at", "differs", "parts", "ended", "error")}
    curves = {name: getattr(record, name).tolist() for name in ("original", "fork")}
    return {"headline": " ".join(forks.conclusion(record)), "outcome": forks.outcome(record), **facts, **curves}
