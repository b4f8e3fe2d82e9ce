"""What one event of a trace costs, whatever the model computes: chains of modules and of functions on 16 numbers, long and short."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from bench import child, clock, report
from bench.report import Target
from bench.watchers import hooks, plain, shapes, traced

SHORT, LONG = 20, 220
WAYS = {"plain": plain, "hooks": hooks, "values=False": shapes, "values": traced}


class Functions(nn.Module):
    """As many functions as wanted, between no modules."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.length):
            x = torch.sin(x)
        return x


class Sine(nn.Module):
    """The same function as a module: two events, where functions are seen."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def modules(length: int) -> nn.Module:
    return nn.Sequential(*(nn.Tanh() for _ in range(length)))


def both(length: int) -> nn.Module:
    return nn.Sequential(*(Sine() for _ in range(length)))


CHAINS = {
    "a function (torch.sin)": Functions,
    "a module of torch's (nn.Tanh)": modules,
    "a module and the function in it": both,
}


def run(quick: bool) -> list[Target]:
    rows = []
    for name, make in CHAINS.items():
        found = child.run(partial(_costs, make, 0.3 if quick else 2.0))
        if "error" in found:
            rows.append((name, found["error"], "", "", ""))
            continue
        rows.append((name, *(report.digits(found[way] * 1e6) for way in WAYS)))
    report.note(f"CPU time of one more link in a chain on 16 float32, in µs (from chains of {SHORT} and {LONG} links, fastest rounds):")
    report.table(("", *WAYS), rows)
    fixed = child.run(partial(_fixed, 0.2 if quick else 1.0))
    report.note(
        f"A trace of one module that computes nothing (nn.Identity): {report.seconds(fixed['values'])}, "
        f"values=False {report.seconds(fixed['values=False'])}; the module alone {report.seconds(fixed['plain'])}."
    )
    return []


def _costs(make: type[nn.Module], budget_s: float) -> dict[str, float]:
    x = torch.randn(16)
    models = {length: make(length) for length in (SHORT, LONG)}
    calls = {f"{way} {length}": partial(watch, model, x) for way, watch in WAYS.items() for length, model in models.items()}
    found = clock.against(calls, budget_s)
    return {way: (found[f"{way} {LONG}"].fastest - found[f"{way} {SHORT}"].fastest) / (LONG - SHORT) for way in WAYS}


def _fixed(budget_s: float) -> dict[str, float]:
    x, model = torch.randn(16), nn.Identity()
    return {way: timing.seconds for way, timing in clock.against({way: partial(w, model, x) for way, w in WAYS.items()}, budget_s).items()}
