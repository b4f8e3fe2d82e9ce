"""The history as plain columns, one row for each series in each slot in which it has a sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modlab.records.watch import WatchRecord
from modlab.views.watch import layers

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
        "path": paths[series], "role": roles[series], "first": history.first[slots], "last": history.last[slots], **raw,
        "std": np.sqrt(taken(history.columns["var"])), "l2": taken(norm), "ratio": taken(layers.ratios(history, norm)),
    }  # fmt: skip
    return {name: found[name] for name in NAMES}
