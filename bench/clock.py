"""CPU time of calls, as ratios within one process: on a shared machine seconds say little, and ratios much."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from statistics import median
from typing import Any, NamedTuple

Call = Callable[[], Any]
SAMPLE_S = 0.0015  # CPU time of one sample: far above the clock's own cost
WARM_UP_S = 0.005


class Timing(NamedTuple):
    """Of the rounds of one call: the median ratio to the yardstick, the median and the least CPU seconds."""

    ratio: float
    seconds: float
    fastest: float


def once(call: Call) -> tuple[float, Any]:
    """CPU seconds of one call (all threads of this process), and what it returned."""
    start = time.process_time_ns()
    answer = call()
    return (time.process_time_ns() - start) * 1e-9, answer


def against(calls: dict[str, Call], budget_s: float, least: int = 5, *, warm: Collection[str] = ()) -> dict[str, Timing]:
    """Take the calls in turn, and compare each with the first of them.

    Args:
        calls: by name; the first is the yardstick.
        budget_s: CPU seconds for all together.
        least: rounds in any case.
        warm: the names of calls that have been made before and take longer than a sample: they need no warming up.

    Returns:
        One timing for each name; the ratio is to the yardstick in the same round.
    """
    times = {name: 1 if name in warm else _times(call) for name, call in calls.items()}
    rounds: list[dict[str, float]] = []
    end = time.process_time() + budget_s
    while len(rounds) < least or time.process_time() < end:
        rounds.append({name: _each(call, times[name]) for name, call in calls.items()})
    first = next(iter(calls))
    return {name: _timing([r[name] for r in rounds], [r[first] for r in rounds]) for name in calls}


def _times(call: Call) -> int:
    """How many calls make a sample long enough, once the first calls are over, which are slower."""
    least, spent = float("inf"), 0.0
    while spent < WARM_UP_S:
        took = once(call)[0]
        least, spent = min(least, took), spent + took
    return max(1, round(SAMPLE_S / max(least, 1e-7)))


def _timing(seconds: list[float], yardstick: list[float]) -> Timing:
    return Timing(median(own / other for own, other in zip(seconds, yardstick, strict=True)), median(seconds), min(seconds))


def _each(call: Call, times: int) -> float:
    start = time.process_time_ns()
    for _ in range(times):
        call()
    return (time.process_time_ns() - start) * 1e-9 / times
