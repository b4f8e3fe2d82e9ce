"""The payload of a sheet for the page. What is empty is left out; ``js/src/sheet/sheet.ts`` fills it in again."""

from __future__ import annotations

from typing import Any

from modlab import format
from modlab.views import payload
from modlab.views.sheets.layout import Block, Box, Cell, Column, Row, Sheet


def of_sheet(sheet: Sheet, model: str, code: str, version: str, *, live: bool = False, limit: int | None = None) -> bytes:
    """The payload of a sheet.

    Args:
        sheet: the view.
        model: the fingerprint of the model's structure, by which views on one page share a selection; or nothing.
        code: the call that makes this view.
        version: modlab's.
        live: whether a kernel answers.
        limit: rows that the output may hold; what is left out is said.
    """
    arrays = payload.Arrays()
    rows = sheet.rows[:limit]
    left = len(sheet.rows) - len(rows)
    notes = [*sheet.notes]
    if left > 0:
        notes.append(Block(prose=f"{format.plural(left, 'row')} left out of this output, to keep it small: .widget() has all."))
    content = {
        **payload.common(sheet.view, sheet.sentence, model, code, version, sheet.foot, live),
        "layout": "sheet",
        "title": sheet.title,
        "empty": sheet.empty,
        "columns": [_column(column) for column in sheet.columns],
        "rows": [_row(row, arrays) for row in rows],
        "notes": [_block(note, arrays) for note in notes],
    }
    return payload.pack(content, arrays)


def _said(**parts: Any) -> dict[str, Any]:
    """Only what says something."""
    return {name: part for name, part in parts.items() if part or (part == 0 and part is not False)}


def _column(column: Column) -> dict[str, Any]:
    return {"title": column.title, "kind": column.kind, "width": column.width, "grows": column.grows, "yields": column.yields}


def _row(row: Row, arrays: payload.Arrays) -> dict[str, Any]:
    return {
        "name": row.name,
        "depth": row.depth,
        "cells": [_cell(cell) for cell in row.cells],
        **({} if row.path is None else {"path": row.path}),
        **_said(
            kind=row.kind,
            note=row.note,
            symbol=row.symbol,
            mark=row.mark,
            closed=not row.opened,
            details=[_block(block, arrays) for block in row.blocks()],
        ),
    }


def _cell(cell: Cell) -> Any:
    """A plain cell is its text."""
    more = _said(share=cell.share, flow=[_part(part) for part in cell.flow], mark=cell.mark)
    return {"text": cell.text, **more} if more else cell.text


def _part(part: Box | str) -> Any:
    """A word, or the sizes of a box; behind them null where it does not fit, and what is here and how it lies where that must be said."""
    if isinstance(part, str):
        return part
    return [*part.shape, *([] if part.fits else [None]), *([[*part.here], part.placement] if part.placement else [])]


def _block(block: Block, arrays: payload.Arrays) -> dict[str, Any]:
    return _said(
        caption=block.caption,
        prose=block.prose,
        code=block.code,
        mark=block.mark,
        head=[*block.head],
        rows=[[*row] for row in block.rows],
        grid=block.grid,
        key=block.key,
        values=[payload.of_values(values, arrays, block.values) for values in block.values],
    )
