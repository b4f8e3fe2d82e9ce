"""How long tests wait: a machine may be seven times slower than the one that they were written on, and nothing is waited for in vain."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 240.0
"""Seconds until processes that give no answer are killed, or a test gives them up."""

PAGE = PATIENCE / 4
"""Seconds until a page that runs already shows what it is asked for."""


def until(condition: Callable[[], object], seconds: float = PATIENCE, pause: float = 0.05) -> None:
    """Wait until something holds; it is asked some times a second."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not come about within {seconds:g} seconds"
        time.sleep(pause)
