"""A sheet as HTML without script: a table whose rows are indented, and what to say about the marked ones."""

from __future__ import annotations

from collections.abc import Iterator

from modlab.views import html
from modlab.views.sheets.layout import Block, Row, Sheet

ROWS = 250
MOST = 45_000  # characters that the rows may have together
EXPLAINED = 20  # marked rows whose details stand below the table
SIGNS = {"": "", "fine": "✓ ", "careful": "⚠ ", "broken": "✕ ", "absent": "◌ "}
_INDENT = 14  # pixels


def of_sheet(sheet: Sheet) -> str:
    """The table, the details of marked rows, and the notes."""
    rows = sheet.rows[: _fitting(sheet)]
    kept = [i for i, column in enumerate(sheet.columns) if not column.measured]
    head = [sheet.title, *(sheet.columns[i].title for i in kept)]
    parts = [html.tabulated([html.text(title) for title in head], [_cells(row, kept) for row in rows])] if rows else []
    if not rows and sheet.empty:
        parts.append(f"<p>{html.text(sheet.empty)}</p>")
    if len(sheet.rows) > len(rows):
        parts.append(f"<p>… and {len(sheet.rows) - len(rows):,} more rows: <code>.records</code></p>")
    marked = [row for row in rows if row.mark in ("careful", "broken") and row.details]
    for row in marked[:EXPLAINED]:
        title = html.text(" ".join(dict.fromkeys(part for part in (row.place or row.path or "", row.name, row.kind) if part)))
        body = "".join(part for block in row.blocks() for part in _block(block))
        parts.append(f"<details><summary>{SIGNS[row.mark]}<b>{title}</b></summary>{body}</details>")
    parts += [part for note in sheet.notes for part in _block(note)]
    return "\n".join(parts)


def _fitting(sheet: Sheet) -> int:
    """How many rows stay within the size."""
    size = 0
    for i, row in enumerate(sheet.rows[:ROWS]):
        size += 110 + len(row.name) + len(row.note) + sum(24 + len(cell.text) for cell in row.cells)
        if size > MOST:
            return max(i, 1)
    return ROWS


def _cells(row: Row, kept: list[int]) -> list[str]:
    words = [
        f"<b>{html.text(row.name)}</b>",
        html.text(row.kind) if row.kind != row.name else "",
        f"<i>{html.text(row.note)}</i>" if row.note else "",
    ]
    name = f"{SIGNS[row.mark]}{' '.join(word for word in words if word)}"
    indented = f'<span style="padding-left:{row.depth * _INDENT}px">{name}</span>' if row.depth else name
    return [indented, *(f"{SIGNS[row.cells[i].mark]}{html.text(row.cells[i].text)}" for i in kept)]


def _block(block: Block) -> Iterator[str]:
    if block.measured:
        return
    title = f"<b>{html.text(block.caption)}</b> " if block.caption else ""
    if title or block.prose:
        yield f"<p>{SIGNS[block.mark]}{title}{html.text(block.prose)}</p>"
    if block.rows and block.grid:
        cells = "".join(f"<tr>{''.join(f'<td>{html.text(cell)}</td>' for cell in row)}</tr>" for row in block.rows)
        yield f'<table class="modlab-grid"><tbody>{cells}</tbody></table>'
    elif block.rows:
        yield html.tabulated([*map(html.text, block.head or ("",) * len(block.rows[0]))], [[*map(html.text, row)] for row in block.rows])
    if block.code:
        lines = "\n".join(html.text(line) for line in block.code.splitlines())
        yield f"<pre><code>{lines}</code></pre>"
    for values in block.values:
        yield html.of_values(values)
