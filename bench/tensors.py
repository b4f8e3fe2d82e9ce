"""Measuring one tensor: ``modlab.measure`` beside one ``sum`` (one pass through memory) and beside what one would write oneself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

import modlab
from bench import child, clock, report
from bench.report import Target

MILLION = 1_000_000


def naive(x: Tensor) -> object:
    return x.mean().item(), x.std().item(), x.abs().max().item(), x.isnan().sum().item(), (x == 0).sum().item(), torch.histc(x, 64).tolist()


def lovely(x: Tensor) -> object:
    import lovely_tensors

    return str(lovely_tensors.lovely(x))


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "float32, normal": lambda x: x,
    "float32, half zeros (after ReLU)": torch.relu,
    "float32, mean 1000": lambda x: x + 1000,
    "float32, one NaN": lambda x: x.clone().index_fill_(0, torch.tensor([7]), torch.nan),
    "float32, all NaN": lambda x: torch.full_like(x, torch.nan),
    "float32, every second (strided)": lambda x: torch.stack((x, x), 1)[:, 0],
    "float64": Tensor.double,
    "float16": Tensor.half,
    "bfloat16": Tensor.bfloat16,
    "complex64": lambda x: x.to(torch.complex64),
    "int64": lambda x: (100 * x).long(),
    "uint8": lambda x: (x.abs() * 60).to(torch.uint8),
    "bool": lambda x: x > 0,
    "sparse, 1 % stored": lambda x: (x * (x > 2.33)).to_sparse(),
}


def run(quick: bool) -> list[Target]:
    torch.set_num_threads(1)
    report.heading("Measure: one tensor, one thread")
    modlab.measure(torch.zeros(1))  # loaded before any fork
    return [*_large(2.0 if quick else 6.0), *_small(0.3 if quick else 1.0), *_kinds(0.05 if quick else 0.3)]


def _large(budget_s: float) -> list[Target]:
    x = torch.randn(10 * MILLION)
    calls = {
        "x.sum()": lambda: x.sum().item(),
        "modlab.measure(x, histogram=False)": lambda: modlab.measure(x, histogram=False),
        "modlab.measure(x)": lambda: modlab.measure(x),
        "x.std()": lambda: x.std().item(),
        "x.isnan().sum()": lambda: x.isnan().sum().item(),
        "(x == 0).sum()": lambda: (x == 0).sum().item(),
        "torch.histc(x, 64)": lambda: torch.histc(x, 64),
        "naive: mean, std, abs max, isnan, == 0, histc": lambda: naive(x),
    }
    if find_spec("lovely_tensors"):
        calls["str(lovely_tensors.lovely(x))"] = lambda: lovely(x)
    found = child.run(partial(clock.against, calls, budget_s))
    report.note("10,000,000 float32, contiguous (40 MB), CPU time:")
    report.table(
        ("", "/ x.sum()", "time", "ns / element"),
        [(name, report.digits(ratio), report.seconds(s), report.digits(s * 1e9 / x.numel())) for name, (ratio, s, _) in found.items()],
    )
    return [Target("measure, 1e7 float32 / sum", 5, found["modlab.measure(x)"][0])]


def _small(budget_s: float) -> list[Target]:
    x = torch.randn(16)
    calls = {
        "x.sum()": lambda: x.sum().item(),
        "modlab.measure(x, histogram=False)": lambda: modlab.measure(x, histogram=False),
        "modlab.measure(x)": lambda: modlab.measure(x),
        "naive": lambda: naive(x),
    }
    if find_spec("lovely_tensors"):
        calls["str(lovely_tensors.lovely(x))"] = lambda: lovely(x)
    found = child.run(partial(clock.against, calls, budget_s))
    report.note("16 elements: the fixed cost:")
    report.table(("", "median", "fastest"), [(name, report.seconds(s), report.seconds(least)) for name, (_, s, least) in found.items()])
    bare, counted = (found[f"modlab.measure(x{more})"][2] * 1e6 for more in (", histogram=False", ""))
    return [
        Target("measure, 16 elements, no histogram (fastest)", 12, bare, "µs"),
        Target("measure, 16 elements, histogram (fastest)", 25, counted, "µs"),
    ]


def _kinds(budget_s: float) -> list[Target]:
    base = torch.randn(10 * MILLION, generator=torch.Generator().manual_seed(0))
    rows = []
    for name, make in KINDS.items():
        x = make(base)
        calls = {"sum": lambda: base.sum().item(), "it": lambda x=x: modlab.measure(x)}
        yardstick, ours = (fastest for _, _, fastest in child.run(partial(clock.against, calls, budget_s)).values())
        rows.append((name, report.digits(ours / yardstick), report.digits(ours * 1e9 / x.numel())))
    report.note("10,000,000 elements of other kinds, with histogram, the fastest of several rounds:")
    report.table(("", "/ float32 sum", "ns / element"), rows)
    return []
