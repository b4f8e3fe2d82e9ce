"""``make bench-gpu``: what a watch and a trace cost on an accelerator, beside the same steps without them.

Ratios of time within one run, synchronisations that are added (none should be), memory, CUDA graphs, bf16, and whether weights and
random numbers stay bit for bit what they are without. The tables go to the screen and into docs/benchmarks.md. With ``--dry`` the same
code runs on the CPU, with small models and few steps, and writes nothing: so it is tested where there is no accelerator.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from bench import report
from bench.report import Target
from modlab.lessons.networks import ResNet18
from modlab.watching.watcher import Watcher, watchers

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- make bench-gpu writes here -->", "<!-- and no further -->"
NONE = "There is no accelerator that torch can use here (torch.accelerator), so nothing was measured."
WARM = 12  # steps before anything is measured: the first ten samples of a watch are apart
PLAIN, AGAIN, WATCHED, EVERY, TRACED, SHAPES = (
    "plain",
    "plain, a second copy",
    "modlab.watch",
    "modlab.watch, budget=1.0",
    "modlab.trace",
    "modlab.trace, values=False",
)
WAYS = (AGAIN, WATCHED, EVERY, TRACED, SHAPES)
WAITS = re.compile(r"^(?:cuda|hip)(?:Stream|Device|Event)Synchronize$|^(?:cuda|hip)Memcpy(?:2D|3D)?$")
TO_PAGEABLE, TO_PINNED = re.compile(r"^Memcpy DtoH \(Device -> Pageable\)"), re.compile(r"^Memcpy DtoH \(Device -> Pinned\)")

Precision = str
FLOAT32, AUTOCAST, BFLOAT16 = "float32", "autocast to bf16", "bf16"


@dataclass(frozen=True)
class Size:
    """How much is done: for figures, or dry.

    Attributes:
        seconds: of the clock, for each ratio.
        block: steps of one model in a row.
        steps: that are compared bit for bit, and that synchronisations are counted in.
    """

    seconds: float
    block: int
    steps: int


FULL, QUICK, DRY = Size(12.0, 20, 40), Size(3.0, 10, 20), Size(0.0, 1, 2)


class Encoder(nn.Module):
    """A language model of torch's own layers."""

    def __init__(self, width: int, layers: int, heads: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.embedding(tokens)))


@dataclass(frozen=True)
class Loop:
    """One workload: a model, its batch, and how it trains."""

    name: str
    build: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    device: torch.device
    precision: Precision = FLOAT32

    def make(self) -> Training:
        torch.manual_seed(0)
        model = self.build().train().to(self.device)
        if self.precision == BFLOAT16:
            model = model.to(torch.bfloat16)
        x, y = (part.to(self.device) for part in self.batch())
        if self.precision == BFLOAT16 and x.is_floating_point():
            x = x.to(torch.bfloat16)
        fused = {"capturable": True} if self.device.type == "cuda" else {}
        return Training(self, model, torch.optim.AdamW(model.parameters(), lr=1e-4, **fused), x, y)


@dataclass
class Training:
    """A model that trains: one call is one step."""

    loop: Loop
    model: nn.Module
    optimizer: torch.optim.Optimizer
    x: Tensor
    y: Tensor

    def step(self) -> None:
        self.optimizer.zero_grad()
        cast: AbstractContextManager[Any] = nullcontext()
        if self.loop.precision == AUTOCAST:
            cast = torch.autocast(self.loop.device.type, dtype=torch.bfloat16)
        with cast:
            loss = F.cross_entropy(self.model(self.x).flatten(0, -2), self.y.flatten())
        loss.backward()
        self.optimizer.step()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()


def _loops(device: torch.device, dry: bool) -> list[Loop]:
    def vectors() -> tuple[Tensor, Tensor]:
        return torch.randn(64, 32), torch.randint(10, (64,))

    def images() -> tuple[Tensor, Tensor]:
        return torch.randn(64, 3, 64, 64), torch.randint(10, (64,))

    def tokens() -> tuple[Tensor, Tensor]:
        shape, words = ((2, 8), 50) if dry else ((8, 256), 32_000)
        return torch.randint(words, shape), torch.randint(words, shape)

    def mlp() -> nn.Module:
        return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def encoder() -> nn.Module:
        return Encoder(8, 1, 1, 50) if dry else Encoder(512, 8, 8, 32_000)

    small = Loop("mlp", mlp, vectors, device)
    large = Loop("transformer", encoder, tokens, device)
    whole = [] if dry else [Loop("resnet18", lambda: ResNet18(10), images, device), large]
    return [
        small,
        *whole,
        replace(large, name="transformer, autocast", precision=AUTOCAST),
        replace(large, name="transformer, bf16", precision=BFLOAT16),
    ]


# ---- the ways in which a step runs ---------------------------------------------------------------------------------------------------


@contextmanager
def _looked_at(training: Training, way: str) -> Iterator[Callable[[], None]]:
    """A step of a training in one of the ways."""
    if way in (WATCHED, EVERY):
        watcher = Watcher(training.model, [training.optimizer], 1.0 if way == EVERY else 0.02)
        watcher.open()
        try:
            yield training.step
        finally:
            watcher.close("ended")
    elif way in (TRACED, SHAPES):

        def traced() -> None:
            with modlab.trace(training.model, values=way == TRACED):
                training.step()

        yield traced
    else:
        yield training.step


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


def _ratios(loop: Loop, way: str, size: Size) -> tuple[float, float]:
    """Time of a step in some way / that of a plain one, and the seconds of that: blocks by turns (A B B A), until the device is done."""
    plain, other = loop.make(), loop.make()
    ratios, seconds, turn = [], [], 0
    with _looked_at(other, way) as step:
        for _ in range(WARM if size is not DRY else 1):
            plain.step()
            step()
        until = time.monotonic() + size.seconds
        while time.monotonic() < until or len(ratios) < (4 if size is not DRY else 1):
            took = {}
            for side in ("AB", "BA")[turn % 2]:
                _wait(loop.device)
                start = time.perf_counter()
                for _ in range(size.block):
                    plain.step() if side == "A" else step()
                _wait(loop.device)
                took[side] = time.perf_counter() - start
                if side == "A":  # which is no time of the watched loop
                    for one in watchers:
                        one.schedule.pause(took[side])
            ratios.append(took["B"] / took["A"])
            seconds.append(took["A"] / size.block)
            turn += 1
    return median(ratios), median(seconds)


# ---- synchronisations ------------------------------------------------------------------------------------------------------------------


def _waits(loop: Loop, way: str, size: Size) -> Counter[str]:
    """What the CPU waited for in some steps, by torch's own warnings and by the profiler's list of calls of the driver."""
    found: Counter[str] = Counter()
    cuda = loop.device.type == "cuda"
    training = loop.make()
    with _looked_at(training, way) as step:
        for _ in range(WARM if size is not DRY else 1):
            step()
        _wait(loop.device)
        with _warned(cuda) as told:
            for _ in range(size.steps):
                step()
        found["warnings of torch"] = len(told)
        _wait(loop.device)
        activities = [torch.profiler.ProfilerActivity.CPU, *([torch.profiler.ProfilerActivity.CUDA] if cuda else [])]
        with torch.profiler.profile(activities=activities) as profile:
            for _ in range(size.steps):
                step()
            # nothing is waited for here: what the profiler does at its end is outside of the steps, and the same without a watch
        for event in profile.events() or ():
            for name, pattern in (("waits", WAITS), ("copies to pageable memory", TO_PAGEABLE), ("copies to pinned memory", TO_PINNED)):
                found[name] += pattern.search(event.name) is not None
    return found


@contextmanager
def _warned(cuda: bool) -> Iterator[list[Any]]:
    """The warnings of torch that an operation waits for the device."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        before = torch.cuda.get_sync_debug_mode() if cuda else 0
        kept: list[Any] = []
        try:
            if cuda:
                torch.cuda.set_sync_debug_mode("warn")
            yield kept
        finally:
            if cuda:
                torch.cuda.set_sync_debug_mode(before)
            kept += [one for one in told if "called a synchronizing" in str(one.message)]


# ---- memory ----------------------------------------------------------------------------------------------------------------------------


def _peak(loop: Loop, way: str, size: Size) -> int | None:
    """The most memory of the device that was allocated in some steps; None where the device does not tell."""
    backend: Any = getattr(torch, loop.device.type, None)
    if not hasattr(backend, "max_memory_allocated"):
        return None
    gc.collect()
    before = int(backend.memory_allocated())
    training = loop.make()
    with _looked_at(training, way) as step:
        for _ in range(3):
            step()
        _wait(loop.device)
        backend.reset_peak_memory_stats()
        for _ in range(size.steps):
            step()
        _wait(loop.device)
        return int(backend.max_memory_allocated()) - before


# ---- bit for bit -----------------------------------------------------------------------------------------------------------------------


def _bits(loop: Loop, way: str, steps: int) -> tuple[list[Tensor], list[Tensor]]:
    """All weights and the states of the random numbers after some steps."""
    training = loop.make()
    with _looked_at(training, way) as step:
        for _ in range(steps):
            step()
    _wait(loop.device)
    backend: Any = getattr(torch, loop.device.type, None)
    states = [torch.get_rng_state(), *([backend.get_rng_state()] if hasattr(backend, "get_rng_state") else [])]
    return [value.detach().cpu() for value in training.model.state_dict().values()], [state.cpu() for state in states]


def _same(loop: Loop, way: str, steps: int) -> str:
    """Whether steps in some way leave bit for bit what plain ones leave; and whether two plain runs do, or nothing could be said."""
    weights, random = _bits(loop, PLAIN, steps)
    others = _bits(loop, PLAIN, steps) if way == AGAIN else _bits(loop, way, steps)
    equal = all(torch.equal(one, other) for one, other in zip(weights, others[0], strict=True))
    alike = all(torch.equal(one, other) for one, other in zip(random, others[1], strict=True))
    return "yes" if equal and alike else "NO: weights" if alike else "NO: random numbers" if equal else "NO: weights, random numbers"


@contextmanager
def _deterministic() -> Iterator[None]:
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cudnn.benchmark = benchmark


# ---- graphs ----------------------------------------------------------------------------------------------------------------------------


def _captured(training: Training) -> Any:
    """One step of a training as a CUDA graph; as torch's notes on graphs have it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        training.run(3)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    training.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        training.step()
    return graph


def _replayed(loop: Loop, way: str, steps: int) -> list[Tensor]:
    """The weights after replays of a step that had been captured before; the look is open while it is replayed."""
    training = loop.make()
    graph = _captured(training)
    with _looked_at(training, way):
        for _ in range(steps):
            graph.replay()
        _wait(loop.device)
    return [value.detach().cpu() for value in training.model.state_dict().values()]


def _captured_inside(loop: Loop, way: str, steps: int) -> list[Tensor]:
    """The same, where the step is captured while the look is open."""
    training = loop.make()
    with _looked_at(training, way):
        graph = _captured(training)
        for _ in range(steps):
            graph.replay()
        _wait(loop.device)
    return [value.detach().cpu() for value in training.model.state_dict().values()]


def _compiled(loop: Loop, way: str, steps: int) -> list[Tensor]:
    """The weights after steps of a model compiled in place, with CUDA graphs where there are some."""
    training = loop.make()
    cuda = loop.device.type == "cuda"
    training.model.compile(**({"mode": "reduce-overhead"} if cuda else {"backend": "eager"}))
    with _looked_at(training, way) as step:
        for _ in range(steps):
            if cuda:
                torch.compiler.cudagraph_mark_step_begin()
            step()
        _wait(loop.device)
    torch._dynamo.reset()
    return [value.detach().cpu() for value in training.model.state_dict().values()]


def _graphs(loop: Loop, steps: int) -> list[tuple[str, str]]:
    ways: dict[str, Callable[[Loop, str, int], list[Tensor]]] = {}
    if loop.device.type == "cuda":
        ways = {"a captured step, replayed under a watch": _replayed, "a step captured and replayed under a watch": _captured_inside}
    ways["torch.compile" + (', mode="reduce-overhead"' if loop.device.type == "cuda" else ', backend="eager"')] = _compiled
    return [(name, _tried(partial(_equal, run, loop, steps))) for name, run in ways.items()]


def _equal(run: Callable[[Loop, str, int], list[Tensor]], loop: Loop, steps: int) -> str:
    one, other = run(loop, PLAIN, steps), run(loop, EVERY, steps)
    return "yes" if all(torch.equal(a, b) for a, b in zip(one, other, strict=True)) else "NO"


def _tried(measure: Callable[[], str]) -> str:
    """What a measurement gives; of one that fails its error, since the others still have something to say."""
    try:
        return measure()
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:100]}"


# ---- the report ------------------------------------------------------------------------------------------------------------------------


def run(device: torch.device, size: Size) -> None:
    """Print all tables for a device."""
    loops = _loops(device, dry=size is DRY)
    report.note(f"**This run**: modlab {modlab.__version__}, torch {torch.__version__}, {_name(device)}.")
    targets = [*_of_time(loops, size), *_of_waits(loops, size)]
    _of_memory(loops, size)
    _of_bits(loops, size)
    report.targets(targets)


def _of_time(loops: list[Loop], size: Size) -> list[Target]:
    found = {loop.name: {way: _measured(partial(_ratios, loop, way, size)) for way in WAYS} for loop in loops}
    report.note("Time of a step / that of a plain one of an equal model: medians of blocks by turns, each until the device is done:")
    report.table(("", *found), [(way, *(_ratio(column[way]) for column in found.values())) for way in WAYS])
    plain = (f"{name} {report.seconds(column[AGAIN][1])}" for name, column in found.items() if isinstance(column[AGAIN], tuple))
    report.note(f"A plain step: {', '.join(plain)}.")
    large = [name for name in found if name.startswith("transformer")]
    return [
        Target(f"modlab.watch, {name} / plain", 1.03, column[WATCHED][0])
        for name in large
        if isinstance((column := found[name])[WATCHED], tuple)
    ]


def _measured(measure: Callable[[], tuple[float, float]]) -> tuple[float, float] | str:
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 - the others still have something to say
        return type(error).__name__


def _ratio(found: tuple[float, float] | str) -> str:
    return found if isinstance(found, str) else report.digits(found[0])


def _of_waits(loops: list[Loop], size: Size) -> list[Target]:
    kinds = ("warnings of torch", "waits", "copies to pageable memory", "copies to pinned memory")
    if loops[0].device.type != "cuda":
        _waits(loops[0], EVERY, size)  # so that a dry run comes by here
        report.note("Synchronisations are counted on CUDA alone.")
        return []
    rows, worst = [], 0.0
    for loop in (loops[0], loops[2]):
        plain = _waits(loop, PLAIN, size)
        for way in (WATCHED, EVERY):
            found = _waits(loop, way, size)
            added = {kind: found[kind] - plain[kind] for kind in kinds}
            worst = max(worst, *(added[kind] for kind in kinds[:3]))
            rows.append((f"{loop.name}, {way}", *(f"{added[kind]} ({plain[kind]} plain)" for kind in kinds)))
    report.note(
        f"Synchronisations that are added, in {size.steps} steps each (by torch.cuda.set_sync_debug_mode, and by the profiler's "
        "list of the driver's calls); copies to pinned memory are what a watch reads back, and nobody waits for them:"
    )
    report.table(("", *kinds), rows)
    return [Target("synchronisations added", 0, worst, "")]


def _of_memory(loops: list[Loop], size: Size) -> None:
    rows = []
    for loop in loops:
        peaks = [_peak(loop, way, size) for way in (PLAIN, WATCHED, EVERY, TRACED)]
        plain = peaks[0]
        if plain is None:
            report.note(f"The device ({loop.device.type}) does not tell the peak of its memory.")
            return
        more = (report.size(max(0, peak - plain)) if peak is not None else "?" for peak in peaks[1:])
        rows.append((loop.name, report.size(plain), *more))
    report.note("Memory of the device: the most that was allocated in plain steps, and how much more it was:")
    report.table(("", PLAIN, WATCHED, EVERY, TRACED), rows)


def _of_bits(loops: list[Loop], size: Size) -> None:
    ways = (AGAIN, WATCHED, EVERY, TRACED)
    with _deterministic():
        rows = [(loop.name, *(_tried(partial(_same, loop, way, size.steps)) for way in ways)) for loop in loops]
        graphs = _graphs(loops[0], size.steps)
    report.note(
        f"Weights and random numbers after {size.steps} steps are bit for bit those of plain ones (deterministic algorithms; the "
        "first column is a second plain run):"
    )
    report.table(("", *ways), rows)
    report.note("Graphs: weights are bit for bit those without the watch (budget=1.0):")
    report.table(("", "same"), graphs)


def _name(device: torch.device) -> str:
    backend: Any = getattr(torch, device.type, None)
    if device.type == "cpu":
        return "a dry run on the CPU: these are no figures"
    return str(backend.get_device_name()) if hasattr(backend, "get_device_name") else device.type


class _Tee(io.StringIO):
    """What is printed, kept beside."""

    def write(self, text: str) -> int:
        sys.__stdout__.write(text) if sys.__stdout__ is not None else None
        return super().write(text)


def written(page: str, tables: str) -> str:
    """The page with other tables between its two marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE.name} has no place for the tables: {BEGIN} … {END}")
    return f"{head}{BEGIN}\n\n{tables.strip()}\n\n{END}{tail}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.accelerators", description="Measure a watch and a trace on an accelerator.")
    parser.add_argument("--quick", action="store_true", help="a quarter of the time; the page stays as it is")
    parser.add_argument("--dry", action="store_true", help="run the same code on the CPU, with small models; the page stays as it is")
    given = parser.parse_args(arguments)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA begins, for deterministic products
    device = torch.device("cpu") if given.dry else torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device is None:
        print(NONE)
        return
    warnings.filterwarnings("ignore", message=".*TensorFloat32|.*Synchronization debug mode")
    tee = _Tee()
    with redirect_stdout(tee):
        run(device, DRY if given.dry else QUICK if given.quick else FULL)
    if not given.dry and not given.quick:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), tee.getvalue()), encoding="utf-8")
        print("Written into docs/benchmarks.md. README's first screen says that this has not run yet: take that sentence out.")


if __name__ == "__main__":
    main()
