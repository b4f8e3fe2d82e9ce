"""``modlab.internals(module)``: every private store of ``nn.Module``, and where an assignment would go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, ClassVar

from torch.nn import Module

from modlab.errors import PathNotFoundError, nearest
from modlab.inspection import checks, routes, stores, structure
from modlab.inspection.internals import extract
from modlab.records.internals import InternalsRecord, RouteRecord, StoreRecord
from modlab.results.rows import RowsResult
from modlab.version import __version__
from modlab.views import html as pages
from modlab.views.sheets import html
from modlab.views.sheets import internals as sheets
from modlab.views.sheets.layout import Sheet


def internals(module: Module) -> Internals:
    """Show everything that ``nn.Module`` keeps about one module: its stores, class-level flags, own attributes, methods.

    For each: what it holds, what it is for, and which public methods write and read it. It also works on a module whose constructor
    forgot ``super().__init__()``.

    Args:
        module: any ``nn.Module``; its children are named only.

    Returns:
        An `Internals`: displays itself; ``internals["_buffers"]``, ``internals.route("w", value)``.

    Raises:
        NotAModuleError: `module` is something else.

    >>> from torch import nn
    >>> print(internals(nn.Linear(4, 3)).headline)
    Linear: 17 stores, 1 of them in use: _parameters 2.
    """
    return Internals(checks.require_module(module, "internals"))


class RouteCard(RouteRecord):
    """Where one assignment would go, with its HTML face: a card, whose lines break where the cell ends."""

    __slots__ = ()

    @classmethod
    def of(cls, record: RouteRecord) -> RouteCard:
        """The same with a face."""
        return cls(**{field.name: getattr(record, field.name) for field in fields(RouteRecord)})

    def html(self) -> str:
        """The card as one self-contained piece of HTML; it says what ``str`` says."""
        sheet = sheets.of_route(self)
        return pages.frame("route", sheet.sentence, html.of_sheet(sheet), None, __version__)

    def _repr_html_(self) -> str:
        return self.html()


class Internals(RowsResult):
    """The stores of one module. Made by `modlab.internals`."""

    kind: ClassVar[str] = "internals"
    code: ClassVar[str] = "modlab.internals(model)"

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self._model = structure.of_users(module).fingerprint if stores.initialized(module) else ""
        self.record: InternalsRecord = extract(module)

    @property
    def records(self) -> Sequence[StoreRecord]:
        """One record for each store, flag, attribute and method."""
        return self.record.rows

    def __getitem__(self, name: str) -> StoreRecord:
        """The record of one store by its name: ``internals["_buffers"]``."""
        found = next((row for row in self.record.rows if row.path == name), None)
        if found is None:
            names = [row.path for row in self.record.rows]
            close = nearest(str(name), names)
            hint = f"\n  Nearest: {', '.join(repr(one) for one in close)}." if close else ""
            raise PathNotFoundError(f"{self.record.title} keeps nothing under {name!r}.{hint}\n  All: [row.path for row in internals]")
        return found

    def __contains__(self, name: object) -> bool:
        return any(row.path == name for row in self.record.rows)

    def __iter__(self) -> Iterator[StoreRecord]:
        return iter(self.record.rows)

    def __len__(self) -> int:
        return len(self.record.rows)

    def __bool__(self) -> bool:
        return True

    def route(self, name: str, value: Any) -> RouteCard:
        """Where ``module.name = value`` would go, and why, or which error it would raise; nothing is assigned.

        Args:
            name: of the attribute.
            value: what would be assigned; it is not kept.

        Returns:
            A record that displays itself: ``.store`` ("_parameters", "_buffers", "_modules", "__dict__", ...), ``.reason``, ``.error``
            and ``.message``.

        >>> import torch
        >>> from torch import nn
        >>> net = nn.Linear(2, 2)
        >>> internals(net).route("scale", torch.ones(2)).store
        '__dict__'
        >>> print(internals(net).route("weight", 3))
        weight = 3 → raises TypeError: cannot assign 'int' as parameter 'weight' (torch.nn.Parameter or None expected)
          The name belongs to a parameter (perhaps only reserved for one), so it takes an nn.Parameter or None.
        """
        return RouteCard.of(routes.route(self._alive("asking where an assignment goes"), name, value))

    def _fingerprint(self) -> str:
        return self._model

    def _sheet(self) -> Sheet:
        return sheets.of_internals(self.record)
