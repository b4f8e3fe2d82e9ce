"""The faces of a long trace that are read from top to bottom: equal neighbouring blocks are written once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import modlab
from modlab.views.sheets.layout import Cell, Column, Row, Sheet
from modlab.views.sheets.repeats import LONG, folded

X = torch.ones(2, 4)


class Block(nn.Module):
    def __init__(self, width: int = 4, odd: bool = False) -> None:
        super().__init__()
        self.a, self.b, self.odd = nn.Linear(4, width), nn.Sequential(nn.Linear(width, 4), nn.Tanh()), odd

    def forward(self, x: Tensor) -> Tensor:
        if self.odd:
            x = x * float("nan")
        return x + self.b(self.a(x))


class Blocks(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.h, self.p = nn.ModuleList(blocks), nn.Linear(4, 4)

    def forward(self, x: Tensor, between: bool = False) -> Tensor:
        for block in self.h:
            x = block(x)
            x = x.mul(2).add(1) if between else x
        return self.p(x)


def of(times: int) -> Blocks:
    return Blocks(*(Block() for _ in range(times)))


def places(trace: object) -> list[str]:
    return [line.split("  ")[0] for line in str(trace).splitlines()[2:]]


def test_equal_blocks_are_written_once():
    trace = modlab.trace(of(12))(X)
    assert places(trace) == ["(root)", "h.0 ... 11", "h.0.a", "h.0.b", "h.0.b.0", "h.0.b.1", "h.0", "p"]
    assert "12 x Block" in str(trace) and "12 x Block" in trace._static() and "h.5" not in trace._static()
    assert len(trace._drawn().rows) == len(trace.events) == 74, "the page has all"


def test_a_short_trace_is_written_out():
    trace = modlab.trace(of(3))(X)
    assert len(trace.events) <= LONG and len(places(trace)) == len(trace.events)


@pytest.mark.parametrize(
    "odd, words",
    [
        (Block(odd=True), "makes NaN"),
        (Block(width=5), "(2, 4) -> (2, 5)"),
        (nn.Tanh(), "Tanh"),
    ],
    ids=["alert", "shape", "type"],
)
def test_what_deviates_stands_apart(odd: nn.Module, words: str):
    trace = modlab.trace(Blocks(*(Block() for _ in range(7)), odd, *(Block() for _ in range(7))))(X)
    assert [place for place in places(trace) if "..." in place] == ["h.0 ... 6", "h.8 ... 14"]
    assert "h.7" in places(trace) and words in str(trace)


def test_a_hook_and_a_second_call_stand_apart():
    net = of(14)
    net.h[3].register_forward_hook(lambda module, args, output: output + 1)
    net.h[9] = net.h[8]
    assert [place for place in places(modlab.trace(net)(X)) if "..." in place] == ["h.0 ... 2", "h.4 ... 8", "h.10 ... 13"]


def test_the_block_that_raises_stands_apart():
    net = of(14)
    net.h[12].a = nn.Linear(5, 4)
    with pytest.raises(RuntimeError), modlab.trace(net) as trace:
        net(X)
    found = places(trace)
    assert "h.0 ... 11" in found and found[found.index("h.12") + 1] == "h.12.a" and "mat1 and mat2" in str(trace)


def test_what_runs_between_blocks_is_repeated_with_them():
    text = str(modlab.trace(of(12))(X, between=True))
    assert "h.1 ... 11  11 x the 8 rows above" in text


def test_rows_that_come_twice_are_counted_in_no_sentence():
    rows = [Row(f"h.{i}.{name}", name, "", depth=0, cells=()) for i in range(2) for name in map(chr, range(97, 129))]
    row = folded(Sheet("trace", ("", ""), (), tuple(rows), "call")).rows[-1]
    assert (row.name, row.kind) == ("h.1", "like the 32 rows above")


def test_gradients_count_down():
    net = of(12)
    with modlab.trace(net) as trace:
        net(X).sum().backward()
    text = str(trace)
    assert "h.10 ... 0  11 x the 5 rows above" in text and "h.11.b.1" in text and "h.3" not in text


def test_blocks_in_blocks():
    trace = modlab.trace(nn.Sequential(*(nn.Sequential(*(nn.Tanh() for _ in range(9))) for _ in range(8))))(X)
    assert places(trace) == ["(root)", "0 ... 7", "0.0 ... 8"]


def test_members_that_are_called_past_their_block():
    class Direct(Blocks):
        def forward(self, x: Tensor, between: bool = False) -> Tensor:
            for block in self.h:
                x = block.a(x)
            return x

    assert places(modlab.trace(Direct(*(Block() for _ in range(40))))(X))[1:3] == ["h.0.a ... h.39.a", "h.0 ... 39"]


def test_the_same_text_each_time():
    net = of(12)
    one, other = modlab.trace(net)(X), modlab.trace(net)(X)
    assert str(one) == str(other) and one._static() == other._static()


def rows(names: list[str]) -> Sheet:
    columns = (Column("shape"), Column("time", measured=True))
    return Sheet("trace", ("", ""), columns, tuple(Row(name, name, "K", cells=(Cell("1"), Cell(str(i)))) for i, name in enumerate(names)))


@pytest.mark.parametrize(
    "names, kept",
    [
        ([f"a.{i}" for i in range(70)], 1),
        ([f"a.{2 * i}" for i in range(70)], 70),  # between two of them is another
        ([f"a.{i}.{i}" for i in range(70)], 70),  # in two places
        (["a"] * 70, 70),  # one module, called often: the numbers of the calls are not in the name
        ([f"{i % 2}" for i in range(70)], 70),  # up and down
        ([f"a.{i % 35}" for i in range(70)], 2),
        ([f"n{i}" for i in range(70)], 70),
        ([f"x.{i}" for i in range(LONG)], LONG),
    ],
)
def test_names_that_count(names: list[str], kept: int):
    assert len(folded(rows(names)).rows) == kept
