"""``%load_ext modlab``: a module as the last line of a cell shows its tree. ``%unload_ext modlab`` ends it."""

from __future__ import annotations

from typing import Any

from torch.nn import Module

from modlab.results.tree import tree


def _html(model: Module) -> str | None:
    """The tree of a module, or nothing (its own ``repr`` then stands alone): a display must not fail."""
    try:
        return tree(model).html()
    except Exception:  # noqa: BLE001 - see above
        return None


def load(ipython: Any) -> None:
    """Register the display of modules in one IPython."""
    ipython.display_formatter.formatters["text/html"].for_type(Module, _html)


def unload(ipython: Any) -> None:
    """Take it back."""
    formatter = ipython.display_formatter.formatters["text/html"]
    if formatter.type_printers.get(Module) is _html:
        formatter.pop(Module)
