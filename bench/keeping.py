"""What `keep="good"` costs: a step under a watch that keeps good states and a tape, beside one under a plain watch.

Two equal models train in one process under a watch each, in blocks of steps by turns. What the tape has in the thread (a function mode,
hooks on modules) is taken off in the plain watch's blocks. CPU time of all threads; copies of the training are part of it.
"""

from __future__ import annotations

import time
from functools import partial
from importlib.util import find_spec
from math import inf
from statistics import median
from typing import Any

import torch

import modlab
from bench import child, report
from bench.loops import LIMIT_S, LOOPS, Loop, _step
from bench.report import Target

STEPS = 40
"""Steps before the clock: the first samples of both watches, and the first copies."""


def run(quick: bool) -> list[Target]:
    torch.set_num_threads(1)  # before any fork
    modlab.watch  # noqa: B018 - loaded before any fork
    report.heading('Keep: the price of keep="good"')
    loops = [loop for loop in LOOPS if loop.name != "gpt2x4" or (find_spec("transformers") and not quick)]
    found = {loop.name: child.run(partial(_price, loop, quick), LIMIT_S) for loop in loops}
    report.note('CPU time of a step under watch(keep="good") and under a plain watch, medians of blocks that follow each other:')
    rows = [(name, *_cells(answer)) for name, answer in found.items()]
    report.table(("", "plain watch", "with keep", "ratio", "kept at the end"), rows)
    return [
        Target(f'keep="good", {name} / modlab.watch', limit, float(found.get(name, {}).get("ratio", inf)))
        for name, limit in (("mlp", 3), ("resnet18", 1.2))
    ]


def _price(loop: Loop, quick: bool) -> dict[str, Any]:
    """In a fresh process: blocks of the two by turns (A B B A)."""
    child.keep_memory()
    (plain, theirs), (kept, ours) = loop.make(), loop.make()
    watches = modlab.watch(plain, theirs), modlab.watch(kept, ours, keep="good")
    keeper = watches[1]._keeper
    generator = torch.Generator().manual_seed(1)

    def block(side: str, steps: int) -> float:
        model, optimizer = (plain, theirs) if side == "A" else (kept, ours)
        (keeper.recording.rest if side == "A" else keeper.recording.resume)()
        total = 0.0
        for _ in range(steps):
            batch = loop.batch(generator)
            start = time.process_time()
            _step(model, optimizer, batch, None)
            total += time.process_time() - start
        return total / steps

    for side in "AB":
        block(side, STEPS if loop.block > 10 else 4)
    took: dict[str, list[float]] = {"A": [], "B": []}
    until, turn = time.monotonic() + loop.seconds * (0.25 if quick else 1), 0
    while time.monotonic() < until or turn < 4:
        for side in ("AB", "BA")[turn % 2]:
            took[side].append(block(side, loop.block))
        turn += 1
    ratio = median(b / a for a, b in zip(took["A"], took["B"], strict=True))
    size = watches[1].record.kept.bytes
    for one in watches:
        one.close()
    return {"plain": median(took["A"]), "kept": median(took["B"]), "ratio": ratio, "size": size}


def _cells(answer: dict[str, Any]) -> tuple[str, ...]:
    if "error" in answer:
        return answer["error"], "", "", ""
    return report.seconds(answer["plain"]), report.seconds(answer["kept"]), report.digits(answer["ratio"]), report.size(answer["size"])
