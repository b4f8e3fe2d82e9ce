"""The clock that a watch goes by, in one place: a test may set another."""

from __future__ import annotations

from time import perf_counter

now = perf_counter
