"""Do the tools count right? Total and trainable parameters of nine awkward models, against the truth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

import modlab
from bench import child, report
from bench.awkward import CASES, Case, truth
from bench.peers import Counted, installed
from bench.report import Target

Count = Callable[[nn.Module, Tensor], Counted]


def run(quick: bool) -> list[Target]:
    """The section; a tool that runs the model may fill in lazy parameters: then what is right afterwards is right too."""
    torch.set_num_threads(1)
    report.heading("Counts: is the number of parameters right?")
    peers = [peer for peer in installed() if peer.counts]
    columns = {"modlab": child.run(partial(_column, _modlab))}
    for peer in peers:
        columns[peer.name] = child.run(partial(_column, peer.counts, peer.load))
    for name, column in columns.items():
        if isinstance(column, dict):  # the whole process failed
            columns[name] = [column["error"]] * len(CASES)
    rows = []
    for i, case in enumerate(CASES):
        total, trainable = truth(case()[0])
        rows.append((f"{case.__name__} ({total}/{trainable})", *(column[i] for column in columns.values())))
    wrong = {name: sum(cell != "ok" for cell in column) for name, column in columns.items()}
    report.table(("truth: total/trainable", *columns), [*rows, ("wrong or failed", *(f"{n} of {len(CASES)}" for n in wrong.values()))])
    return [Target("models counted wrong", 0, wrong["modlab"], "of 9")]


def _modlab(model: nn.Module, _: Tensor) -> Counted:
    tree = modlab.tree(model)
    return tree.total_parameters, tree.trainable_parameters


def _column(count: Count, load: Callable[[], None] = lambda: None) -> list[str]:
    load()
    return [_cell(count, case) for case in CASES]


def _cell(count: Count, case: Case) -> str:
    model, x = case()
    before = truth(model)
    try:
        found = count(model, x)
    except Exception as error:  # noqa: BLE001 - a crash of a tool is a result here
        return type(error).__name__
    right = all(number in (None, *pair) for number, pair in zip(found, zip(before, truth(model), strict=True), strict=True))
    return "ok" if right and found[0] is not None else "/".join("?" if n is None else str(n) for n in found)
