"""The extension ``%load_ext modlab``: a module as a cell's last line shows its tree, and an error of a model is explained below it.

``%unload_ext modlab`` ends both. What an explanation needs is imported with this file (a tenth of a second), so that the first error is
explained as quickly as any other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from html import escape
from traceback import walk_tb
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch.nn import Module

from modlab.errors import NotInitializedError
from modlab.inspection import stores
from modlab.results.explanation import explain
from modlab.results.trace import Tracer
from modlab.results.tree import tree

_before: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()  # per IPython: the printers that ours stand in for
_below: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()  # per IPython: what is told of the end of each cell


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


_CELL_BEGINS, _CELL_ENDS = "pre_run_cell", "post_run_cell"
_beginnings: WeakKeyDictionary[Any, Callable[[Any], None]] = WeakKeyDictionary()  # per IPython: what is told of the start of each
_OURS = {"text/html": _html, "text/plain": _text}


def _explainers(ipython: Any) -> tuple[Callable[[Any], None], Callable[[Any], None]]:
    """What IPython tells of the start and the end of each cell: an error that is known is explained, any other is ignored.

    The traceback stands above it, as it is. Nothing of the cell is kept: neither the error nor the shell. An error of ``%run``
    ends no cell, but is shown: it then differs from the one shown last.
    """
    shell = ref(ipython)
    shown = [id(_last_shown())]

    def remember(info: Any = None) -> None:
        shown[0] = id(_last_shown())

    def explain_below(result: Any = None) -> None:
        last = _last_shown()
        error = getattr(result, "error_in_exec", None) or (last if result is not None and id(last) != shown[0] else None)
        shown[0] = id(last)
        here = shell()
        if here is None or not isinstance(error, Exception):  # an interruption needs no reason
            return
        try:
            if _passes(error, Tracer.__call__.__code__):  # the trace that it has shown says it
                return
            explanation = explain(error)
            if explanation.family:
                here.display_pub.publish(*here.display_formatter.format(explanation))
        except Exception:  # noqa: BLE001 - the user's error must stay the only one
            return

    return remember, explain_below


def _last_shown() -> BaseException | None:
    """The exception whose traceback was shown last."""
    found: Any = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


def _passes(error: BaseException, code: CodeType) -> bool:
    """Whether a traceback goes through a function."""
    return any(frame.f_code is code for frame, _ in walk_tb(error.__traceback__))


def load(ipython: Any) -> None:
    """Register the display of modules, and the explanation of errors, in one IPython."""
    if ipython in _before:
        return
    _beginnings[ipython], _below[ipython] = _explainers(ipython)
    ipython.events.register(_CELL_BEGINS, _beginnings[ipython])
    ipython.events.register(_CELL_ENDS, _below[ipython])
    formatters = ipython.display_formatter.formatters
    _before[ipython] = {mime: formatters[mime].for_type(Module, printer) for mime, printer in _OURS.items()}


def unload(ipython: Any) -> None:
    """Put back what was registered before."""
    for event, held in ((_CELL_BEGINS, _beginnings), (_CELL_ENDS, _below)):
        told = held.pop(ipython, None)
        if told is not None:
            with suppress(ValueError):  # somebody else has taken it away
                ipython.events.unregister(event, told)
    for mime, printer in _before.pop(ipython, {}).items():
        formatter = ipython.display_formatter.formatters[mime]
        if formatter.type_printers.get(Module) is not _OURS[mime]:
            continue  # somebody else has taken over since
        if printer is None:
            formatter.pop(Module)
        else:
            formatter.for_type(Module, printer)
