"""CPU time of calls, as ratios within one process: on a shared machine seconds say little, and ratios much."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

Call = Callable[[], Any]
LONG_ENOUGH = 1_500_000  # nanoseconds of CPU time in one sample: far above the clock's own cost


def once(call: Call) -> tuple[float, Any]:
    """CPU seconds of one call (all threads of this process), and what it returned."""
    start = time.process_time_ns()
    answer = call()
    return (time.process_time_ns() - start) * 1e-9, answer


def against(calls: dict[str, Call], budget_s: float, least: int = 5) -> dict[str, tuple[float, float]]:
    """Take the calls in turn, and compare each with the first of them.

    Args:
        calls: by name; the first is the yardstick.
        budget_s: CPU seconds for all together.
        least: rounds in any case.

    Returns:
        For each name the median over the rounds of (ratio to the first in the same round, seconds).
    """
    times = {name: max(1, round(LONG_ENOUGH * 1e-9 / max(once(call)[0], 1e-9))) for name, call in calls.items()}
    rounds: list[dict[str, float]] = []
    end = time.process_time() + budget_s
    while len(rounds) < least or time.process_time() < end:
        rounds.append({name: _each(call, times[name]) for name, call in calls.items()})
    first = next(iter(calls))
    return {name: (median(r[name] / r[first] for r in rounds), median(r[name] for r in rounds)) for name in calls}


def _each(call: Call, times: int) -> float:
    start = time.process_time_ns()
    for _ in range(times):
        call()
    return (time.process_time_ns() - start) * 1e-9 / times
