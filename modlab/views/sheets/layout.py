"""What a view of rows is made of. A view describes itself as one `Sheet`; text, HTML and page render sheets and know no view."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from modlab.frozen import frozen
from modlab.records.state import ValuesRecord

Mark = Literal["", "fine", "careful", "broken", "absent"]
"""What a row is at a glance: ✓, ⚠, ✕, or a dotted outline for what is not there. A mark never stands without a word."""


@frozen
class Box:
    """A tensor, drawn as a box whose sides grow with the logarithm of its sizes.

    Attributes:
        fits: False: drawn broken, because it does not fit where it goes.
        here, placement: of one that lies over several ranks, the shape of what this rank holds (drawn filled) and how it lies, in words.
    """

    shape: tuple[int, ...]
    fits: bool = True
    here: tuple[int, ...] = ()
    placement: str = ""


Flow = tuple[Box | str, ...]
"""Tensors and words along a line: ``(Box((4,)), "→", Box((3,)))``."""


@frozen
class Cell:
    """What stands in one column of one row.

    Attributes:
        text: in words; every face can fall back to it.
        share: 0 to 1, drawn as a bar behind or beside the text.
        flow: tensors as boxes.
    """

    text: str = ""
    share: float | None = None
    flow: Flow = ()
    mark: Mark = ""


@frozen
class Column:
    """One column.

    Attributes:
        title: its head, in small letters.
        kind: how the page sets it: "words", "code" (what one could type), "number" (to the right), "flow" or "bar".
        width: pixels that it needs at least where its cells are longer; the page gives what they need where there is room.
        grows: its share of what is left then.
        yields: the higher, the earlier it gives way on a narrow page, equal ones together (two sides of one thing); 0 stays always.
            What decides has 0.
        measured: it differs from run to run (seconds), so text and the picture without script leave it out.
    """

    title: str
    kind: Literal["words", "code", "number", "flow", "bar"] = "words"
    width: int = 80
    grows: int = 0
    yields: float = 1
    measured: bool = False


@frozen
class Block:
    """One piece of a row's details, or of what stands below the table.

    Attributes:
        caption: small capitals above it.
        prose: sentences.
        code: lines that a key or a click copies.
        key: below the table, the key that copies them.
        head, rows: a table; without a head a list of names and values.
        grid: the rows are the numbers of a matrix, and none of them is a name.
        values: one tensor's statistics, histogram and numbers; several are drawn side by side.
        mark: ✓, ⚠ or ✕ before the caption.
        measured: as of a column.
    """

    caption: str = ""
    prose: str = ""
    code: str = ""
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    values: tuple[ValuesRecord, ...] = ()
    mark: Mark = ""
    measured: bool = False
    grid: bool = False
    key: str = ""


@frozen
class Row:
    """One row; rows below it have a greater depth.

    Attributes:
        path: the dotted name of the module that it is about, which all views of a model select together; None: of no module.
        place: what the text face prints first, where that is not the path ("l0.weight").
        name: its name in this view, printed bold ("l0", "F.relu"); for a module the last part of its path.
        kind: what it is ("MyLinear", "function", "forward hook").
        note: what is special about it, in words.
        symbol: what the page draws before the name: a category of modules ("container", "linear", "conv", "norm",
            "activation", "dropout", "embedding", "own"), "function", "hook", "gradient", "step", "store", "tensor" or "ghost".
        cells: one for each column.
        opened: whether its children are shown at first.
        details: what is shown when it is selected; or what makes it, where there may be very many rows.
    """

    path: str | None
    name: str
    kind: str = ""
    note: str = ""
    symbol: str = ""
    place: str | None = None
    mark: Mark = ""
    depth: int = 0
    cells: tuple[Cell, ...] = ()
    opened: bool = True
    details: tuple[Block, ...] | Callable[[], Iterable[Block]] = ()

    def blocks(self) -> tuple[Block, ...]:
        """The details."""
        return tuple(self.details()) if callable(self.details) else self.details


@frozen
class Sheet:
    """A whole view.

    Attributes:
        view: what it is, one word ("trace").
        sentence: the headline in two halves; the first is printed bold.
        title: the head of the first column, which holds names.
        notes: what stands below the table: fixes, what could not be seen, and why.
        foot: what was read, and what it cost.
        empty: what is said where there are no rows.
    """

    view: str
    sentence: tuple[str, str]
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[Block, ...] = ()
    title: str = "module"
    foot: str = ""
    empty: str = ""
