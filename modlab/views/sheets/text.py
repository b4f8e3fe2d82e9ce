"""The text face of a sheet: one line for each row, the path first; nothing that differs from run to run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modlab import format
from modlab.records.structure import ROOT
from modlab.views.sheets.layout import Block, Row, Sheet
from modlab.views.text import of_values, table_lines

ROWS = 200
MARKED = 60  # of them, that are kept for marked rows further down
SIGNS = {"": "", "fine": "ok", "careful": "careful", "broken": "wrong", "absent": ""}


def of_sheet(sheet: Sheet) -> str:
    """The headline, the rows with their columns aligned, and the notes."""
    lines = [" ".join(format.clean(part) for part in sheet.sentence).rstrip()]
    if sheet.rows:
        lines += _table(sheet)
    elif sheet.empty:
        lines.append(sheet.empty)
    for note in sheet.notes:
        lines += () if note.measured else _note(note)
    return "\n".join(lines)


def _table(sheet: Sheet) -> list[str]:
    kept = [i for i, column in enumerate(sheet.columns) if not column.measured]
    kept = [i for i in kept if any(row.cells[i].text for row in sheet.rows)]
    head = ("path", sheet.title, *(sheet.columns[i].title for i in kept))
    right = frozenset(place + 2 for place, i in enumerate(kept) if sheet.columns[i].kind == "number")
    rows: list[tuple[str, ...]] = []
    following = 0
    for i in (*_shown(sheet.rows), len(sheet.rows)):
        if i > following:
            rows.append(("...", f"{i - following:,} more rows: .records", *("" for _ in kept)))
        if i < len(sheet.rows):
            row = sheet.rows[i]
            rows.append((_place(row), _what(row), *(format.clean(row.cells[j].text) for j in kept)))
        following = i + 1
    return table_lines([(*row, "") for row in (head, *rows)], right)  # the last column is ragged: numbers need one behind them


def _shown(rows: Sequence[Row]) -> list[int]:
    """The rows that are written: of very many the first ones, and after them what is marked or outermost."""
    if len(rows) <= ROWS:
        return list(range(len(rows)))
    first = ROWS - MARKED
    later = [i for i in range(first, len(rows)) if rows[i].mark in ("careful", "broken") or rows[i].depth == 0]
    return [*range(first), *(later if len(later) <= MARKED else [*later[: MARKED // 2], *later[-MARKED // 2 :]])]


def _place(row: Row) -> str:
    if row.place is not None:
        return format.clean(row.place)
    return "" if row.path is None else format.clean(row.path) or ROOT


def _what(row: Row) -> str:
    """The kind of a module (its name is the end of its path); of anything else its name too."""
    own = row.place if row.place is not None else row.path or ""
    said = row.path is not None and (row.name == ROOT or own == row.name or own.endswith(f".{row.name}"))
    name = "" if said or row.name == row.kind else row.name
    return format.clean(" ".join(part for part in (name, row.kind, f"({row.note})" if row.note else "") if part))


def _note(block: Block) -> Iterator[str]:
    if block.key:  # what is there for a key to copy; a diff also names its cell by a number that is another in each run
        return
    first = ": ".join(part for part in (block.caption, block.prose) if part)
    if first:
        yield format.clean(first)
    if block.head or block.rows:
        yield from (f"  {line}" for line in table_lines([tuple(map(format.clean, row)) for row in (block.head, *block.rows) if row]))
    for line in block.code.splitlines():
        yield f"  {format.clean(line)}"
    for values in block.values:
        yield from (f"  {line}" for line in of_values(values).splitlines())
