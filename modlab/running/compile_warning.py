"""torch's warning about global hooks when part of a model is compiled: the hooks are modlab's, and harmless."""

from __future__ import annotations

import re
import warnings
from typing import Any, cast

from modlab.compat import lock_for_forks

_TEXT = r"Using `torch\.compile\(module\)` when there are global hooks"
_FILTER = ("ignore", re.compile(_TEXT, re.IGNORECASE), UserWarning, None, 0)  # as `warnings` stores it

_lock = lock_for_forks()
_open: list[object] = []


def silence(owner: object) -> None:
    """Suppress the warning while `owner` has hooks."""
    with _lock:
        _open.append(owner)
        if _FILTER not in warnings.filters:
            warnings.filterwarnings("ignore", _TEXT, UserWarning)


def speak(owner: object) -> None:
    """Show the warning again, if no other owner has hooks."""
    with _lock:
        left = [one for one in _open if one is not owner]
        if len(left) < len(_open) and not left and _FILTER in warnings.filters:
            cast(list[Any], warnings.filters).remove(_FILTER)
        _open[:] = left
