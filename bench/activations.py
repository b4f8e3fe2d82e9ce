"""Memory of a trace: does it grow with the activations? A chain of convolutions under ``no_grad``, with activations of three sizes."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from bench import child, report
from bench.report import Target
from bench.watchers import PLAIN, SHAPES, TRACE, Watcher, installed

CHANNELS, BLOCKS = 16, 4
SIDES = {"1 MB": 128, "10 MB": 400, "100 MB": 1264}  # pixels, by the size of one activation in float32
SHOWN = ("torchlens.trace", "torchlens.record, nothing saved", "torchinfo.summary(input_data=)", "torchview.draw_graph")


def network() -> nn.Module:
    blocks = [layer for _ in range(BLOCKS) for layer in (nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*blocks).eval()


def run(quick: bool) -> list[Target]:
    """Each figure from a process of its own."""
    torch.manual_seed(0)
    model = network()
    watchers = [watcher for watcher in installed(quick) if watcher.name in (PLAIN, TRACE, SHAPES, *SHOWN)]
    sides = {size: side for size, side in SIDES.items() if not (quick and size == "10 MB")}
    found = {watcher.name: {size: _once(watcher, model, side) for size, side in sides.items()} for watcher in watchers}
    report.note(f"Peak of the resident set in one forward pass under no_grad, {2 * BLOCKS} activations of one size each:")
    report.table(("size of an activation", *sides), [(name, *(_cell(row[size], 0) for size in sides)) for name, row in found.items()])
    report.note("What is held of it when the call has returned, and its result with it:")
    report.table(("size of an activation", *sides), [(name, *(_cell(row[size], 1) for size in sides)) for name, row in found.items()])
    peaks = [found[name]["100 MB"] for name in (PLAIN, TRACE)]
    if any(isinstance(peak, dict) or None in peak for peak in peaks):
        return []
    held = max(0, peaks[1][1] - peaks[0][1] + SIDES["100 MB"] ** 2 * CHANNELS * 4)
    return [
        Target("peak of a trace beyond the plain pass, 100 MB activations", 10, (peaks[1][0] - peaks[0][0]) / 2**20, "MiB"),
        Target("held after a trace, 100 MB activations", 10, held / 2**20, "MiB"),
    ]


def _once(watcher: Watcher, model: nn.Module, side: int) -> Any:
    return child.run(partial(_peak, watcher, model, side))


def _peak(watcher: Watcher, model: nn.Module, side: int) -> tuple[float | None, float | None]:
    """In a fresh process: growth at the peak, and when the call is over; a first call on few pixels has loaded what is loaded once."""
    watcher.load()
    with torch.no_grad():
        watcher.watch(model, torch.zeros(1, CHANNELS, 8, 8))
        x = torch.randn(1, CHANNELS, side, side)
        child.trim()
        before = child.resident()
        result, peak = child.peak_of(lambda: watcher.watch(model, x))
        child.trim()
        held = child.resident()
    del result
    return peak, None if held is None or before is None else max(0, held - before)


def _cell(answer: Any, which: int) -> str:
    return answer["error"] if isinstance(answer, dict) else report.size(answer[which])
