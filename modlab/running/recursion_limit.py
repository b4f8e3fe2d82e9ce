"""A raised recursion limit: a global module hook adds one frame per level of a model, and deep models must still run."""

from __future__ import annotations

import sys
from contextlib import suppress

from modlab.compat import lock_for_forks

SHARE = 4  # one level of modules takes four frames and a call from C: a global module hook adds one more
MORE = 150  # frames of the hook itself, at the innermost level

_lock = lock_for_forks()  # a watch whose model is garbage-collected in here is closed in here
_open: list[object] = []  # the owners that need a raised limit now
_limits = (0, 0)  # before and after raising


def make(owner: object) -> None:
    """Raise the recursion limit for as long as `owner` needs it."""
    global _limits
    with _lock:
        if not _open:
            before = sys.getrecursionlimit()
            _limits = before, before + before // SHARE + MORE
        _open.append(owner)  # first: an interrupt may come after either statement
        if sys.getrecursionlimit() == _limits[0]:
            sys.setrecursionlimit(_limits[1])


def give_back(owner: object) -> None:
    """Restore it, unless another owner needs it or somebody has changed it since."""
    with _lock:
        left = [one for one in _open if one is not owner]
        if len(left) < len(_open) and not left and sys.getrecursionlimit() == _limits[1]:
            with suppress(RecursionError):  # closed where the stack is that deep: the limit stays raised
                sys.setrecursionlimit(_limits[0])
        _open[:] = left
