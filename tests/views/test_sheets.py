"""Sheets as the page gets them. The files of tests/fixtures named sheet* are what the front end's tests read.

`MODLAB_GOLDEN=write pytest tests/views/test_sheets.py` writes them anew.
"""

import pytest
import torch
from torch import nn

import modlab
from modlab.inspection import values
from modlab.views.html import tabulated
from modlab.views.sheets import html, payload, text
from modlab.views.sheets.layout import Block, Box, Cell, Column, Row, Sheet
from modlab.views.text import WIDEST
from tests import zoo
from tests.views.test_faces import HERE, Page, agree, unpack


def stopped() -> Sheet:
    """A pass of the note's net that stopped, with one of everything that a sheet can hold."""
    flow = Column("what flows", "flow", 170, 3, 0)
    bar = Column("time", "bar", 90, 0, 3, measured=True)
    tensor = torch.arange(12.0).view(3, 4)
    broken = Cell("2 @ 3×1: inner sizes differ", flow=(Box((2,)), "·", Box((3, 1), fits=False), "→", "inner sizes 2 ≠ 3"), mark="broken")
    why = (
        Block("why", "(2) @ (3×1): 2 is not 3.\nThey must be equal.", mark="broken"),
        Block("tensors", head=("name", "shape"), rows=(("weight", "3×1"), ("bias", "1"))),
        Block("seen", rows=(("mean", "5.5"),), values=(values.read(tensor, "before"), values.read(tensor + 1, "after"))),
        Block("put right", code="self.l1 = MyLinear(2, 1)"),
        Block("input 2×2", rows=(("0.5000", "1.5000"), ("2.5000", "3.5000")), grid=True),
    )
    rows = (
        Row("", "(root)", "BigNet", symbol="own", mark="broken", cells=(Cell("5 → stopped"), Cell("2 ms", share=1.0))),
        Row("l1", "l1", "MyLinear", symbol="linear", depth=1, cells=(Cell("5 → 4", flow=(Box((5,)), "→", Box((4,)))), Cell("1", 0.5))),
        Row("net", "net", "Net", symbol="container", depth=1, mark="broken", opened=False, cells=(Cell("4 → stopped"), Cell("1", 0.0))),
        Row(None, "F.relu", "function", "no module", "function", depth=2, cells=(Cell("", flow=(Box(()), "→", Box((2, 0)))), Cell())),
        Row("net.l1", "l1", "MyLinear", "weight 3×1", "linear", mark="broken", depth=2, cells=(broken, Cell()), details=why),
        Row("old", "old", "Identity", "never called in this pass", "ghost", place="old", mark="absent", cells=(Cell(), Cell())),
    )
    notes = (Block("fix", "make l0 give 3 numbers", "self.l0 = MyLinear(4, 3)"), Block("not seen", "what NumPy computed", mark="careful"))
    return Sheet("explain", ("net.l1 got 2 numbers, but has weights for 3.", "BigNet stopped."), (flow, bar), rows, notes, foot="one pass")


def hostile() -> Sheet:
    """The worst of names wherever a string can stand."""
    names = zoo.HOSTILE
    columns = (Column(names[0], "flow"), Column(names[0], "code"))
    rows = tuple(
        Row(
            name,
            name,
            name,
            name,
            cells=(Cell(name, flow=(name, Box((2,)))), Cell(name)),
            mark="careful",
            details=(Block(name, name, name, (name,), ((name,),)),),
        )
        for name in names
    )
    return Sheet("trace", (names[0], names[0]), columns, rows, rows[0].details, names[0], names[0], names[0])


def empty() -> Sheet:
    note = Block("", "none is global")
    return Sheet("hooks", ("No hook anywhere.", ""), (Column("kind"),), notes=(note,), empty="This model has no hooks.")


SHEETS = {"sheet": stopped, "sheet_hostile": hostile, "sheet_empty": empty}


def packed(sheet: Sheet, **how) -> bytes:
    return payload.of_sheet(sheet, "9f3c2a11", f"modlab.{sheet.view}(model)", "0", **how)


@pytest.mark.parametrize("name", SHEETS)
def test_fixtures_of_the_front_end(name):
    made = packed(SHEETS[name]())
    assert made == packed(SHEETS[name]())
    agree(HERE / "fixtures" / f"{name}.bin", made)


@pytest.mark.parametrize("name", SHEETS)
def test_the_page_gets_all_of_a_sheet(name):
    sheet = SHEETS[name]()
    content, arrays = unpack(packed(sheet))
    assert (content["layout"], content["view"], content["title"], content["empty"]) == ("sheet", sheet.view, sheet.title, sheet.empty)
    assert [column["title"] for column in content["columns"]] == [column.title for column in sheet.columns]
    for row, sent in zip(sheet.rows, content["rows"], strict=True):
        assert (sent["name"], sent["depth"], sent.get("path"), sent.get("closed", False)) == (row.name, row.depth, row.path, not row.opened)
        assert [sent.get(part, "") for part in ("kind", "note", "symbol", "mark")] == [row.kind, row.note, row.symbol, row.mark]
        assert [cell if isinstance(cell, str) else cell["text"] for cell in sent["cells"]] == [cell.text for cell in row.cells]
        assert len(sent.get("details", ())) == len(row.details)
    assert [note.get("prose", "") for note in content["notes"]] == [note.prose for note in sheet.notes]
    assert all(array.size for array in arrays.values())


def test_what_is_drawn_travels():
    content, arrays = unpack(packed(stopped()))
    rows = {row.get("path"): row for row in content["rows"]}
    assert rows["net.l1"]["cells"][0]["flow"] == [[2], "·", [3, 1, None], "→", "inner sizes 2 ≠ 3"]
    assert rows["net"]["cells"][1]["share"] == 0 and rows[""]["cells"][1]["share"] == 1
    assert rows[None]["cells"][0]["flow"] == [[], "→", [2, 0]]
    before, after = rows["net.l1"]["details"][2]["values"]
    assert (arrays[after["grid"]["array"]] - arrays[before["grid"]["array"]] == 1).all()


def test_a_matrix_is_no_list_of_names():
    content, _ = unpack(packed(stopped()))
    *others, matrix = next(row for row in content["rows"] if row.get("path") == "net.l1")["details"]
    assert matrix["grid"] is True and not any("grid" in other for other in others)
    assert '<table class="modlab-grid"><tbody><tr><td>0.5000</td><td>1.5000</td></tr>' in html.of_sheet(stopped())


def test_what_is_called_like_its_kind_says_it_once():
    sheet = Sheet(
        "trace", ("One call.", ""), (Column("time"),), (Row(None, "Linear", "Linear", "not part of the model", cells=(Cell("1"),)),)
    )
    for face in (text.of_sheet(sheet), html.of_sheet(sheet)):
        assert face.count("Linear") == 1 and "not part of the model" in face


def test_what_is_left_out_is_said():
    content, _ = unpack(packed(stopped(), limit=2))
    assert len(content["rows"]) == 2
    assert content["notes"][-1]["prose"].startswith("4 rows left out of this output")


@pytest.mark.parametrize("name", SHEETS)
def test_the_faces_say_the_same(name):
    sheet = SHEETS[name]()
    told = text.of_sheet(sheet).splitlines()
    page = Page(html.of_sheet(sheet))
    assert not page.open
    words = "".join(page.words)
    for row in sheet.rows:
        for cell, column in zip(row.cells, sheet.columns, strict=True):
            clean = payload.format.clean(cell.text)
            assert column.measured or (clean in words and any(payload.format.cut(clean, WIDEST) in line for line in told))
    assert all(sheet.empty in face for face in ("\n".join(told), words)) or sheet.rows


def test_bars_beside_a_distance_are_as_long_as_it_says():
    torch.manual_seed(0)
    comparison = modlab.compare(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))(torch.randn(8, 4))
    apart = {row.path: row.max_abs for row in comparison.records}
    for row in comparison._sheet().rows:
        assert row.cells[2].share == pytest.approx(apart[row.path] / max(apart.values()))
    assert 0 < min(share for row in comparison._sheet().rows if (share := row.cells[2].share)) < 1


def test_what_decides_in_a_comparison_stays_and_says_what_each_module_does():
    comparison = modlab.compare(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)))(torch.randn(8, 4))
    sheet = comparison._sheet()
    does = next(i for i, column in enumerate(sheet.columns) if column.title == "what it does")
    assert {column.title for column in sheet.columns if not column.yields} == {"apart by", "what it does"}
    first, drops = (next(row for row in sheet.rows if row.path == path).cells[does] for path in ("1", "2"))
    assert (first.text.partition(";")[0], first.mark) == ("starts to differ", "careful")
    assert "random in training mode" in drops.text and not any(row.note for row in sheet.rows)


class Product(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, 1))

    def forward(self, x):
        return x @ self.weight


def explained(last: nn.Module) -> Sheet:
    """Of a net whose last module does not fit."""
    with pytest.raises(RuntimeError) as caught:
        nn.Sequential(nn.Linear(4, 3), last)(torch.ones(5, 4))
    return modlab.explain(caught.value)._sheet()


def test_a_failed_row_shows_what_did_not_fit_and_says_why():
    sheet = explained(nn.Linear(2, 1))
    row = next(row for row in sheet.rows if row.path == "1")
    (cell,) = row.cells
    assert cell.flow == (Box((5, 3), fits=False), ", weight", Box((1, 2)), ", bias", Box((1,)), "→", cell.flow[-1])
    assert cell.flow[-1].startswith("✕ ") and "3 ≠ 2" in cell.flow[-1] and cell.mark == "broken" and not row.note
    assert cell.text == f"(5, 3), weight (1, 2), bias (1,) → {cell.flow[-1]}"


def test_a_failing_line_is_told_once():
    sheet = explained(Product())
    told = [block.code for block in (*sheet.notes, *(block for row in sheet.rows for block in row.blocks()))]
    assert told.count("return x @ self.weight") == 1


def test_a_small_tensor_of_a_trace_is_a_matrix():
    sheet = modlab.trace(nn.Linear(2, 2))(torch.randn(3, 2))._sheet()
    blocks = [block for block in sheet.rows[0].blocks() if block.grid]
    assert [(block.caption, len(block.rows), len(block.rows[0])) for block in blocks] == [("input 3×2", 3, 2), ("output 3×2", 3, 2)]


def test_modules_of_another_model_are_told_apart_and_marked_once():
    made, judge = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    with modlab.trace(made) as trace:
        judge(made(torch.randn(3, 2)))
    rows = [row for row in trace._sheet().rows if row.path is None and row.symbol != "function"]
    assert [(row.name, row.kind, row.note) for row in rows] == [
        ("Sequential", "Sequential", "not part of the model"),
        ("Linear", "Linear", ""),
        ("ReLU", "ReLU", ""),
        ("Linear (2)", "", ""),
    ]
    assert "Linear Linear" not in str(trace)


def test_names_stand_on_the_left_and_long_words_wrap_in_any_host() -> None:
    words = "it is given a long sentence, which has no room beside the others"
    table = tabulated(["name", "bytes", "what"], [["<b>first</b>", "4 B", words], ["<b>second</b>", "8 B", "short"]])
    assert '<th style="text-align:left">name</th><th>bytes</th><th style="text-align:left">what</th>' in table
    assert '<td style="text-align:left"><b>first</b></td><td>4 B</td>' in table
    assert f'white-space:normal;min-width:17em">{words}</td>' in table
    assert '<td>8 B</td><td style="text-align:left">short</td>' in table
    assert "white-space" not in tabulated(["name"], [[f"<b>{'&#x27;' * 39}</b>"]]), "as long as it is written, not as it is read"
