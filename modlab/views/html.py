"""The HTML face: self-contained, readable without script, alive with it.

Inside stands the picture without script: the headline, ``<details>`` and tables, everything escaped, readable when a
sanitiser has taken ``<style>`` and the script. The script turns it into the full view from the payload beside it.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from html import escape, unescape
from importlib.resources import files
from itertools import islice

from modlab import format
from modlab.records.state import StateRecord, TableRecord, ValuesRecord
from modlab.records.structure import ROOT, ModuleRecord, TreeRecord
from modlab.views import facts, numbers, sharding
from modlab.views.folding import unfold

ROWS = 250  # of the picture without script; the payload has all
DEPTH = 24
LONG = 40  # characters of a cell that may wrap
BUDGET = 105_000  # bytes of a packed payload: with the bundle, an output stays below 200 KB
BUNDLES = {"tree": "still", "state": "still", "measure": "still", "watch": "watch"}
"""The front end that draws a view, where that is not the one of sheets: an output carries only what it needs."""

_TAG = re.compile(r"<[^>]*>")
_LEFT = ' style="text-align:left"'
_WRAPPED = ' style="text-align:left;white-space:normal;min-width:17em"'
BEGIN, END = "<!--modlab:live-->", "<!--/modlab:live-->"


def frame(view: str, sentence: tuple[str, str], body: str, payload: bytes | None, version: str) -> str:
    """One output: the static picture, and with a payload the script that brings it to life."""
    strong, rest = (text(part) for part in sentence)
    live = f"\n{BEGIN}{_script(view, payload, version)}{END}" if payload is not None else ""
    head = f'<p class="modlab-head"><small>{view.upper()}</small> <strong>{strong}</strong> {rest}</p>'
    return (
        f'<div class="modlab mathjax_ignore tex2jax_ignore" data-modlab="{view}">\n<style>{_style()}</style>\n'
        f'<div class="modlab-static" tabindex="0">\n{head}\n'
        f"{body}\n</div>{live}\n</div>"
    )


def text(value: str) -> str:
    """A user's text as HTML: escaped, control and direction characters written out."""
    return escape(format.clean(value))


@lru_cache(maxsize=8)
def static_file(name: str) -> str:
    """One file of the built front end."""
    return files("modlab.views").joinpath("static", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _style() -> str:
    return static_file("static.css").strip()


@lru_cache(maxsize=4)
def _packed(name: str) -> str:
    return _base64(static_file(name).encode())


def _base64(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii")


def within_budget(build: Callable[[int], bytes], rows: int) -> bytes:
    """The payload of so many of `rows` rows as an output may hold; `build` is told how many, and says what is left out."""
    while True:
        payload = build(rows)
        if len(payload) <= BUDGET or rows <= 1:
            return payload  # nearly always: no need to pack it for its size alone
        size = len(gzip.compress(payload, 6, mtime=0))
        if size <= BUDGET:
            return payload
        rows = max(1, int(rows * BUDGET / size * 0.95))


def _script(view: str, payload: bytes, version: str) -> str:
    """A classic script: in a module ``document.currentScript``, by which it finds its output, would be null."""
    loader = static_file("loader.js").strip()
    key, bundle = front_end(view, version)
    return f'<script>({loader})(document.currentScript,"{key}","{_base64(payload)}","{_packed(f"{bundle}.js")}")</script>'


def front_end(view: str, version: str) -> tuple[str, str]:
    """What draws a view: the key under which a page knows it, and the name of its bundle."""
    bundle = BUNDLES.get(view, "sheet")
    return version if bundle == "still" else f"{version}+{bundle}", bundle


def of_tree(tree: TreeRecord) -> str:
    """Modules as nested ``<details>``; equal neighbours are one."""
    records = list(islice(tree.rows(folded=True), ROWS))
    mode, parts, open_depths = tree.root.training, [], 0
    for i, record in enumerate(records):
        following = records[i + 1].depth if i + 1 < len(records) else 0
        depth = min(record.depth, DEPTH)
        parts.append("</details>" * (open_depths - depth))
        open_depths = min(open_depths, depth)
        row = _module(record, mode)
        if following > record.depth and record.depth < DEPTH:
            parts.append(f"<details{' open' if record.depth < 2 else ''}><summary>{row}</summary>")
            open_depths = depth + 1
        else:
            parts.append(f'<div class="modlab-leaf">{row}</div>')
        parts.extend(f'<div class="modlab-leaf modlab-ghost">{ghost}</div>' for ghost in _ghosts(record))
    parts.append("</details>" * open_depths)
    left = tree.places(folded=True) - len(records)
    if left > 0:
        parts.append(f"<p>… and {left:,} more rows: <code>tree.records</code>, <code>tree.find(pattern)</code></p>")
    return "\n".join(part for part in parts if part)


def _module(record: ModuleRecord, mode: bool) -> str:
    name = text(record.name) or ROOT
    if record.count > 1:
        name = f"{name} – {text(record.last.rpartition('.')[2])}"
    if record.reserved:
        return f"<b>{name}</b> reserved (None)"
    if record.recursive:
        return f"<b>{name}</b> <i>same as {text(record.same_as or '') or ROOT}: the module contains itself</i>"
    words = [f"<b>{name}</b>", text(record.type)]
    if record.count > 1:
        words.append(f"<i>{record.count:,} equal</i>")
    if record.extra:
        words.append(f"<code>{text(record.extra)}</code>")
    words.append(f"<span>{facts.total(record)}</span>")
    words += [f"<i>{escape(fact)}</i>" for fact in facts.of_module(record, mode)]
    return " ".join(words)


def _ghosts(record: ModuleRecord) -> Iterator[str]:
    for ghost in record.subtree.ghosts:
        what, count, reason, fix, advice = map(escape, facts.of_ghost(ghost))
        sign = "" if ghost.harmless else "⚠ "
        remedy = f" Fix: <code>{fix}</code>" if fix else f" Fix: {advice}." if advice else ""
        yield f"{sign}<b>{text(ghost.name)}</b> {what} <span>{count}</span> <i>{reason}.</i>{remedy}"


def of_table(table: TableRecord) -> str:
    """The rows as a table; equal rows of equal blocks are one."""
    lines = unfold(table)
    head = ["tensor", "kind", "shape", "here", "placement", "dtype", "device", "bytes", "in state_dict", "trained", "gradient"]
    if table.optimizers:
        head += ["optimizer", "lr", "weight decay", "keeps"]
    parts = [tabulated([*head, "note"], [_row(path, row, bool(table.optimizers)) for path, _, row in lines[:ROWS]])]
    if len(lines) > ROWS:
        parts.append(f"<p>… and {len(lines) - ROWS:,} more rows: <code>state.records</code></p>")
    parts += [f"<p>⚠ {escape(warning)}</p>" for warning in facts.warnings(table)]
    parts += [of_values(values, opened=False) for values in table.values]
    return "\n".join(parts)


def _row(path: str, row: StateRecord, optimizer: bool) -> list[str]:
    yes_no = {True: "yes", False: "no"}
    here, placed = sharding.placed(row.sharding, format.shape)
    cells = [f"<b>{text(path)}</b>", text(row.kind), format.shape(row.shape), text(here), escape(placed), escape(facts.dtype(row))]
    cells += [text(row.device), sharding.size(row.bytes, row.bytes_here) if row.bytes else "", yes_no[row.in_state_dict]]
    cells += [row.trained, row.grad]
    if optimizer:
        cells += [text(", ".join(o.label for o in row.optimizers)), ", ".join(format.number(o.lr) for o in row.optimizers)]
        cells += [
            ", ".join(format.number(o.weight_decay) for o in row.optimizers),
            text("; ".join(", ".join(o.state) for o in row.optimizers)),
        ]
    return [*cells, escape("; ".join(facts.of_row(row)))]


def tabulated(head: list[str], rows: list[list[str]]) -> str:
    """A table of cells that are HTML already; columns in which no row says anything are left out."""
    kept = [i for i in range(len(head)) if i == 0 or any(row[i] for row in rows)]
    wordy = {i: any(_long(row[i]) for row in rows) for i in kept}
    top = "".join(_titled(head[i], left=i == 0 or wordy[i]) for i in kept) if any(head) else ""
    body = "\n".join("<tr>" + "".join(f"<td{_aligned(i, row[i], wordy[i])}>{row[i]}</td>" for i in kept) + "</tr>" for row in rows)
    above = f"<thead><tr>{top}</tr></thead>" if top else ""
    return f"<table>{above}<tbody>\n{body}\n</tbody></table>"


def _titled(title: str, *, left: bool) -> str:
    """The head of a column; one without a title is no head."""
    return f"<th{_LEFT if left else ''}>{title}</th>" if title else "<td></td>"


def _aligned(column: int, cell: str, wordy: bool) -> str:
    """Names and words stand on the left, whatever the host's tables do; what is long may wrap."""
    if _long(cell):
        return _WRAPPED
    return _LEFT if column == 0 or (wordy and cell) else ""


def _long(cell: str) -> bool:
    return len(cell) > LONG and len(unescape(_TAG.sub("", cell))) > LONG


def of_values(values: ValuesRecord, *, opened: bool = True) -> str:
    """The statistics of one tensor, and its numbers where they are few enough to be written out."""
    title = text(values.path) or "tensor"
    pairs = numbers.statistics(values.stats)
    parts = [tabulated([name for name, _ in pairs], [[value for _, value in pairs]])] if pairs else []
    for note in (values.stats.note, values.note):
        if note:
            parts.append(f"<p>{text(note)}</p>")
    matrix = values.matrix
    if matrix and len(matrix.numbers) <= numbers.WRITTEN and len(matrix.numbers[0]) <= numbers.WRITTEN:
        cells, width = numbers.cells(values), len(matrix.numbers[0])
        rows = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in cells[i : i + width]) + "</tr>" for i in range(0, len(cells), width)]
        caption = f"<caption>{matrix.slice} of {format.shape(values.stats.shape)}</caption>" if matrix.slice else ""
        parts.append(f'<table class="modlab-grid">{caption}<tbody>{"".join(rows)}</tbody></table>')
    return f"<details{' open' if opened else ''}><summary><b>{title}</b></summary>{''.join(parts)}</details>"
