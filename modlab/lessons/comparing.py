"""How nbval compares a notebook with its stored outputs: text strictly, pictures not.

A plugin of pytest: ``pytest --nbval -p modlab.lessons.comparing NOTEBOOKS``.
"""

from __future__ import annotations

import tokenize
from typing import Any

# HTML is stored without its script and stderr holds paths; a widget that vanished is found by the browser's tests.
NOT_COMPARED = ("text/html", "image/svg+xml", "image/png", "stderr")
ADDRESSES = "regex: 0x[0-9a-f]{8,16}\nreplace: 0xADDR\n"
"""An object's address differs in every run."""


def pytest_collectstart(collector: Any) -> None:
    """Set what options would set: the current environment's kernel, and what to replace before comparing."""
    if not hasattr(collector, "skip_compare"):  # only nbval's collector of a notebook has it
        return
    from nbval.plugin import get_sanitize_patterns  # type: ignore[import-untyped]

    collector.skip_compare += NOT_COMPARED
    collector.sanitize_patterns.update(get_sanitize_patterns(ADDRESSES))
    options = collector.config.option
    options.nbval_current_env = options.nbval_kernel_name is None


def pytest_itemcollected(item: Any) -> None:
    """Let a ``;`` at a cell's end hide its value, as in a notebook: IPython looks for it in a history that nbval leaves out."""
    cell = getattr(item, "cell", None)
    if cell is not None and _is_hushed(cell.source):
        cell.source += "\nNone"


def _is_hushed(source: str) -> bool:
    from IPython.core.displayhook import DisplayHook

    try:
        return bool(DisplayHook.semicolon_at_end_of_expression(source))  # type: ignore[no-untyped-call]
    except (tokenize.TokenError, SyntaxError):  # a line of magic
        return False
