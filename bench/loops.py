"""Watching a training loop: the price of a step under ``modlab.watch`` beside an unwatched one, hooks, and the alternatives.

Two equal models train in one process, in blocks of steps by turns; a step is zero_grad, forward, loss, backward and the optimizer,
the batch is drawn outside of the clock. CPU time of all threads of the process; helper processes of others do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from math import inf
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from bench import child, report
from bench.followers import AGAIN, BARE, DEFAULT, EVERY, FOLLOWERS, Follower, missing
from bench.report import Target
from modlab.lessons.networks import ResNet18
from modlab.lessons.note import Net
from modlab.watching.watcher import Watcher, watchers

LIMIT_S = 600
WARM = 12  # steps before the clock: the first ten samples are apart
Batch = tuple[Tensor, Tensor]


class GPT(nn.Module):
    """The model of transformers with four blocks, and its logits alone."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        self.inner = GPT2LMHeadModel(GPT2Config(n_layer=4, use_cache=False))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens).logits


@dataclass(frozen=True)
class Loop:
    """One workload: a model, and how it trains.

    Attributes:
        block: steps in a row of one model.
        seconds: of the clock, for each follower.
    """

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[torch.Generator], Batch]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    block: int
    seconds: float

    def make(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = self.build().train()
        return model, self.optimizer(model.parameters())


def _vectors(g: torch.Generator) -> Batch:
    return torch.randn(64, 32, generator=g), torch.randint(10, (64,), generator=g)


def _images(g: torch.Generator) -> Batch:
    return torch.randn(16, 3, 64, 64, generator=g), torch.randint(10, (16,), generator=g)


def _tokens(g: torch.Generator) -> Batch:
    return torch.randint(50257, (2, 128), generator=g), torch.randint(50257, (2, 128), generator=g)


def mlp() -> nn.Module:
    hidden = (nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(64, 10))


LOOPS = (
    Loop("mlp", mlp, _vectors, lambda p: torch.optim.AdamW(p, lr=1e-3), 100, 12.0),
    Loop("resnet18", lambda: ResNet18(10), _images, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), 5, 40.0),
    Loop("gpt2x4", GPT, _tokens, lambda p: torch.optim.AdamW(p, lr=1e-3), 2, 60.0),
)


def run(quick: bool) -> list[Target]:
    torch.set_num_threads(1)  # before any fork
    modlab.watch  # noqa: B018 - loaded before any fork
    report.heading("Watch: the price of a training step")
    for name in missing():
        report.note(f"{name} is not measured: pip install {name}")
    loops = [loop for loop in LOOPS if loop.name != "gpt2x4" or (find_spec("transformers") and not quick)]
    followers = [one for one in FOLLOWERS if one.installed and not (quick and one.slow)]
    found = {loop.name: {one.name: child.run(partial(_ratio, loop, one, quick), LIMIT_S) for one in followers} for loop in loops}
    report.note("CPU time of a watched step / that of an unwatched one, medians of blocks that follow each other:")
    report.table(("", *found), [(one.name, *(_cell(column[one.name]) for column in found.values())) for one in followers])
    plain = (f"{name} {report.seconds(column[AGAIN].get('seconds', inf))}" for name, column in found.items())
    report.note(f"An unwatched step: {', '.join(plain)}.")
    own = (f"{name} {column[DEFAULT].get('cost', inf):.2%}" for name, column in found.items())
    report.note(f"By its own clock modlab.watch took: {', '.join(own)} of the loop (budget 2 %).")
    return [*_targets(found), *_memory(quick), *_log(), *_million(quick)]


def _ratio(loop: Loop, follower: Follower, quick: bool) -> dict[str, float]:
    """In a fresh process: blocks of the two models by turns (A B B A)."""
    child.keep_memory()
    (plain, theirs), (watched, optimizer) = loop.make(), loop.make()
    after, end = follower.attach(watched, optimizer)
    generator = torch.Generator().manual_seed(1)
    for _ in range(WARM if loop.block > 10 else 4):
        batch = loop.batch(generator)
        _step(plain, theirs, batch, None)
        _step(watched, optimizer, batch, after)
    ratios, seconds = [], []
    until, turn = time.monotonic() + loop.seconds * (0.25 if quick else 1), 0
    while time.monotonic() < until or len(ratios) < 4:
        took = {}
        for side in ("AB", "BA")[turn % 2]:
            total, begun = 0.0, time.perf_counter()
            for _ in range(loop.block):
                batch = loop.batch(generator)
                start = time.process_time()
                _step(plain, theirs, batch, None) if side == "A" else _step(watched, optimizer, batch, after)
                total += time.process_time() - start
            took[side] = total
            if side == "A":  # which is no time of the watched loop
                for one in watchers:
                    one.schedule.pause(time.perf_counter() - begun)
        ratios.append(took["B"] / took["A"])
        seconds.append(took["A"] / loop.block)
        turn += 1
    cost = next((one.record().cost for one in watchers), 0.0)
    end()
    return {"ratio": median(ratios), "seconds": median(seconds), "cost": cost}


def _step(model: nn.Module, optimizer: Any, batch: Batch, after: Callable[[Tensor], None] | None) -> None:
    x, y = batch
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
    loss.backward()
    if after is not None:
        after(loss)
    optimizer.step()


def _memory(quick: bool) -> list[Target]:
    """Peak of the resident set on ResNet-18 in steps of which every one is sampled, beyond that of unwatched ones."""
    measured = [one for one in FOLLOWERS if one.installed and one.name != BARE and not (quick and one.slow)]
    found = {one.name: child.run(partial(_peak, one), LIMIT_S) for one in measured}
    report.note("ResNet-18, growth of the resident set at its peak beyond three unwatched steps:")
    report.table(("", "peak"), [(name, _size(answer)) for name, answer in found.items()])
    beyond = found.get(EVERY)
    return [Target("extra memory, ResNet-18, every step", 5, beyond / 2**20, "MiB")] if isinstance(beyond, (int, float)) else []


def _peak(follower: Follower) -> float | None:
    """In a fresh process: the peak of three watched steps beyond that of three unwatched ones of the same model.

    Before, it follows a small model: the first use of any code in a forked process copies pages, which are no memory of anybody's.
    """
    child.map_memory()
    generator = torch.Generator().manual_seed(1)
    _follow_a_small_one(follower, generator)
    loop = next(one for one in LOOPS if one.name == "resnet18")
    model, optimizer = loop.make()
    batches = [loop.batch(generator) for _ in range(3)]

    def steps(after: Callable[[Tensor], None] | None) -> None:
        for batch in batches:
            _step(model, optimizer, batch, after)

    steps(None)
    child.trim()
    _, plain = child.peak_of(lambda: steps(None))
    after, _ = follower.attach(model, optimizer)
    child.trim()
    _, watched = child.peak_of(lambda: steps(after))
    return None if plain is None or watched is None else max(0.0, watched - plain)


def _follow_a_small_one(follower: Follower, generator: torch.Generator) -> None:
    loop = LOOPS[0]
    model, optimizer = loop.make()
    after, end = follower.attach(model, optimizer)
    for _ in range(3):
        _step(model, optimizer, loop.batch(generator), after)
    end()


def _log() -> list[Target]:
    """``w.log`` of a scalar on the CPU."""
    model = nn.Linear(1, 1)
    w = Watcher(model, [], 0.02)
    loss = model(torch.ones(1)).sum()
    start, count = time.process_time(), 50_000
    for _ in range(count):
        w.log({"loss": loss})
    each = (time.process_time() - start) / count
    report.note(f"w.log(loss=loss): {report.seconds(each)} a call.")
    return [Target("w.log of a CPU scalar", 3, each * 1e6, "µs")]


def _million(quick: bool) -> list[Target]:
    """Memory over a long run of the note's net."""
    steps = 50_000 if quick else 1_000_000
    grown = child.run(partial(_growth, steps), 1200)
    if not isinstance(grown, (int, float)):
        return []
    report.note(f"From step {steps // 10:,} to step {steps:,} of the note's Net, the resident set grew by {report.size(grown)}.")
    return [Target(f"growth over {steps:,} steps", 1, grown / 2**20, "MiB")]


def _growth(steps: int) -> float:
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)
    before = 0.0
    with modlab.watch(net, optimizer) as w:
        for step in range(steps):
            if step == steps // 10:
                child.trim()
                before = float(child.resident() or 0)
            loss = torch.abs(net(torch.randn(4)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
        child.trim()
        return max(0.0, float(child.resident() or 0) - before)


def _cell(answer: dict[str, Any]) -> str:
    return answer.get("error") or report.digits(answer["ratio"])


def _size(answer: Any) -> str:
    return answer.get("error", "?") if isinstance(answer, dict) else report.size(answer)


def _targets(found: dict[str, dict[str, Any]]) -> list[Target]:
    def ratio(name: str, loop: str) -> float:
        return float(found.get(loop, {}).get(name, {}).get("ratio", inf))

    made = [
        Target("modlab.watch, mlp / unwatched", 1.03, ratio(DEFAULT, "mlp")),
        Target("every step, without units and updates, mlp", 2.5, ratio(BARE, "mlp")),
        Target("every step, mlp", 3.5, ratio(EVERY, "mlp")),
        Target("every step, resnet18", 1.2, ratio(EVERY, "resnet18")),
    ]
    own = {loop: 100 * column[DEFAULT].get("cost", inf) for loop, column in found.items()}
    return [*made, *(Target(f"modlab.watch by its own clock, {loop}", 2, cost, "%") for loop, cost in own.items())]
