"""``%load_ext modlab``: a module as the last line of a cell shows its tree. ``%unload_ext modlab`` ends it."""

from __future__ import annotations

from html import escape
from typing import Any
from weakref import WeakKeyDictionary

from torch.nn import Module

from modlab.errors import NotInitializedError
from modlab.inspection import stores
from modlab.results.tree import tree

_before: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # per IPython: the printers that ours stand in for


def _html(model: Module) -> str | None:
    """The tree of a module, or nothing (its own ``repr`` then stands alone): a display must not fail."""
    try:
        own = getattr(type(model), "_repr_html_", None)
        found: str | None = own(model) if own is not None else tree(model).html()
        return found
    except NotInitializedError as error:
        return f"<pre>{escape(str(error))}</pre>"
    except Exception:  # noqa: BLE001 - see above
        return None


def _text(model: Module, printer: Any, cycle: bool) -> None:
    """The module's own ``repr``; where it has no store to print from, what is wrong."""
    printer.text(repr(model) if stores.initialized(model) else stores.uninitialized_message(model))


_OURS = {"text/html": _html, "text/plain": _text}


def load(ipython: Any) -> None:
    """Register the display of modules in one IPython."""
    if ipython in _before:
        return
    formatters = ipython.display_formatter.formatters
    _before[ipython] = {mime: formatters[mime].for_type(Module, printer) for mime, printer in _OURS.items()}


def unload(ipython: Any) -> None:
    """Put back what was registered before."""
    for mime, printer in _before.pop(ipython, {}).items():
        formatter = ipython.display_formatter.formatters[mime]
        if formatter.type_printers.get(Module) is not _OURS[mime]:
            continue  # somebody else has taken over since
        if printer is None:
            formatter.pop(Module)
        else:
            formatter.for_type(Module, printer)
