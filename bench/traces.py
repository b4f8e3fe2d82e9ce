"""Watching a model run: ``modlab.trace`` beside the plain forward pass, hooks that do nothing, and the alternatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

import modlab
from bench import activations, child, clock, events, questions, report
from bench.networks import Network, floats, gpt2, mlp, tokens
from bench.report import Target
from bench.watchers import SHAPES, TRACE, Watcher, installed, missing
from modlab.lessons.networks import ResNet18
from modlab.lessons.note import Net

LIMIT_S = 300
LEAST = 3  # rounds of a tool that takes its time
SLOW = 0.3  # CPU seconds of a first call after which a quick run takes one round
LONG = 0.05  # CPU seconds of a first call that needs no other to warm up
MOST_S = 15.0  # CPU seconds for the rounds of one model
LIMITS = {TRACE: 1.5, SHAPES: 1.2}
Answer = dict[str, Any]


def networks() -> list[Network]:
    found = [
        Network("tiny_mlp", mlp, floats(4, 2)),
        Network("Net", Net, floats(2, 4)),
        Network("ResNet18", ResNet18, floats(1, 3, 224, 224)),
    ]
    return [*found, Network("gpt2", gpt2, tokens(50257, 1, 128))] if find_spec("transformers") else found


def run(quick: bool) -> list[Target]:
    torch.set_num_threads(1)  # before any fork
    report.heading("Trace: watching a model run")
    for name in missing():
        report.note(f"{name} is not measured: pip install {name}")
    models = _built()
    found = {network.name: _forward(network, model, quick) for network, model in models}
    _table("Forward pass in eval mode, autograd on: CPU time / that of the plain forward pass:", found)
    trained = [(network, model) for network, model in models if not (quick and network.name == "gpt2")]
    backward = {network.name: child.run(partial(_training, network, model, quick), LIMIT_S) for network, model in trained}
    _table("Forward and backward pass in training mode: CPU time / that of the same untraced:", backward)
    return [
        *_targets(found),
        *events.run(quick),
        *activations.run(quick),
        *questions.run(quick, {network.name: (model, network.input()) for network, model in models if network.input}),
    ]


def _built() -> list[tuple[Network, nn.Module]]:
    """The models, which no process has run yet."""
    if not find_spec("transformers"):
        report.note("gpt2 is left out: pip install transformers")
    modlab.trace  # noqa: B018 - loaded before any fork
    torch.manual_seed(0)
    return [(network, network.build().eval()) for network in networks()]


def _forward(network: Network, model: nn.Module, quick: bool) -> Answer:
    """All tools that leave torch alone in turn in one process, and each of the others in turn with the plain pass in its own."""
    here = installed(quick)
    together = [watcher for watcher in here if not watcher.intrudes]
    answer = child.run(partial(_turns, together, network, model, quick), LIMIT_S)
    for watcher in here:
        if watcher.intrudes:
            alone = child.run(partial(_turns, [here[0], watcher], network, model, quick), LIMIT_S)
            answer[watcher.name] = alone if "error" in alone else alone[watcher.name]
    return {watcher.name: answer.get(watcher.name, answer) for watcher in here}


def _turns(watchers: list[Watcher], network: Network, model: nn.Module, quick: bool) -> Answer:
    """In a fresh process: by name of the tool, the ratio and the seconds."""
    child.keep_memory()
    x = network.input() if network.input else None
    calls: dict[str, clock.Call] = {}
    answer: Answer = {}
    took: dict[str, float] = {}
    for watcher in watchers:
        watcher.load()
        look = partial(watcher.watch, model, x)
        try:
            took[watcher.name] = clock.once(look)[0]
        except Exception as error:  # noqa: BLE001 - a crash of a tool is a result here
            answer[watcher.name] = {"error": type(error).__name__}
        else:
            calls[watcher.name] = look
    return answer | _measured(calls, took, quick)


def _measured(calls: dict[str, clock.Call], took: dict[str, float], quick: bool) -> Answer:
    slowest = max(took.values())
    budget, least = (0.4, 1 if slowest > SLOW else LEAST) if quick else (min(MOST_S, 1.0 + 150 * slowest), LEAST)
    warm = [name for name, seconds in took.items() if seconds > LONG]
    return {name: timing._asdict() for name, timing in clock.against(calls, budget, least, warm=warm).items()}


def _training(network: Network, model: nn.Module, quick: bool) -> Answer:
    """In a fresh process: a forward and a backward pass, without and within a trace."""
    child.keep_memory()
    model.train()
    x = network.input() if network.input else None

    def step() -> None:
        model.zero_grad()
        output = model(x)
        (output if isinstance(output, Tensor) else output.logits).sum().backward()

    def within(**options: Any) -> Callable[[], None]:
        def call() -> None:
            with modlab.trace(model, **options):
                step()

        return call

    calls = {"plain forward and backward": step, f"with {TRACE}": within(), f"with {SHAPES}": within(values=False)}
    calls["plain, again"] = step
    return _measured(calls, {name: clock.once(call)[0] for name, call in calls.items()}, quick)


def _table(title: str, found: dict[str, Answer]) -> None:
    names = list(dict.fromkeys(name for column in found.values() for name in column if name != "error"))
    report.note(title)
    if not names:
        report.note(", ".join(f"{name}: {column['error']}" for name, column in found.items()))
        return
    report.table(("", *found), [(name, *(_cell(column.get(name, column)) for column in found.values())) for name in names])
    first = names[0]
    seconds = (f"{name} {report.seconds(column[first]['seconds'])}" for name, column in found.items() if first in column)
    report.note(f"{first}, median: {', '.join(seconds)}.")


def _cell(answer: Answer) -> str:
    return answer.get("error") or report.digits(answer["ratio"])


def _targets(found: dict[str, Answer]) -> list[Target]:
    return [
        Target(f"{name}, {network} / forward", limit, found[network][name].get("ratio", inf))
        for network in ("ResNet18", "gpt2")
        if network in found
        for name, limit in LIMITS.items()
    ]
