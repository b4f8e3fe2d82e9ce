"""The clock that watches use, in one place so that tests can replace it."""

from __future__ import annotations

from time import perf_counter

now = perf_counter
