"""The recursion limit, raised: a global module hook costs each level of a model one frame more, and a deep one must run all the same."""

from __future__ import annotations

import sys
from contextlib import suppress

from modlab.compat import lock_for_forks

SHARE = 4  # a level of modules takes four frames and a call from C: a hook for all modules makes it one more
MORE = 150  # frames of the hook itself, at the innermost level

_lock = lock_for_forks()  # a watch whose model is collected in here closes in here
_open: list[object] = []  # who needs room now
_limits = (0, 0)  # before, and with it


def make(owner: object) -> None:
    """Raise the recursion limit for as long as `owner` needs it."""
    global _limits
    with _lock:
        if not _open:
            before = sys.getrecursionlimit()
            _limits = before, before + before // SHARE + MORE
        _open.append(owner)  # first: an interrupt may come after either
        if sys.getrecursionlimit() == _limits[0]:
            sys.setrecursionlimit(_limits[1])


def give_back(owner: object) -> None:
    """Put it back, if nobody else needs it, and nobody else has set it since."""
    with _lock:
        left = [one for one in _open if one is not owner]
        if len(left) < len(_open) and not left and sys.getrecursionlimit() == _limits[1]:
            with suppress(RecursionError):  # closed where the stack is as deep as that: it stays
                sys.setrecursionlimit(_limits[0])
        _open[:] = left
