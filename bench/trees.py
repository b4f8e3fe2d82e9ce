"""Looking at a model: ``str(modlab.tree(model))`` and its HTML beside ``repr(model)`` and the alternatives."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

import modlab
from bench import child, clock, report
from bench.deepseek import DeepSeek
from bench.networks import Network, small
from bench.peers import installed
from bench.report import Target
from modlab.inspection import classes, definitions, structure, tree_cache
from modlab.views import text as pictures

SLOW = 1.5  # CPU seconds of a first call above which there is no second
LIMIT_S = 30  # seconds for the first call of one tool on one model

Look = Callable[[nn.Module, Tensor | None], Any]
Answer = dict[str, Any]


@dataclass(frozen=True)
class Tool:
    name: str
    look: Look
    load: Callable[[], None] = lambda: None
    runs: bool = False


def text(model: nn.Module, _: Tensor | None = None) -> str:
    return str(modlab.tree(model))


def html(model: nn.Module, _: Tensor | None = None) -> str:
    return modlab.tree(model).html()


def redrawn(model: nn.Module, _: Tensor | None = None) -> str:
    """The subtrees of an earlier call are found again, the whole tree and its text are not: as after a change."""
    tree_cache._last.clear()
    pictures.of_tree.cache_clear()
    return str(modlab.tree(model))


def forgetful(model: nn.Module, _: Tensor | None = None) -> str:
    """As if modlab had never met a module of these classes."""
    classes.known.clear()
    structure._entries.clear()
    definitions._known.clear()
    return redrawn(model)


STR, REDRAWN, FORGETFUL, HTML = "modlab str", "modlab str, text anew", "modlab str, all anew", "modlab html"
REPR = Tool("repr", lambda model, _: repr(model))
OURS = {STR: text, REDRAWN: redrawn, FORGETFUL: forgetful, HTML: html}


def tools() -> list[Tool]:
    ours = [Tool(name, look, lambda: modlab.tree) for name, look in OURS.items()]
    return [REPR, *ours, *(Tool(peer.name, peer.show, peer.load, peer.runs) for peer in installed())]


def run(quick: bool) -> list[Target]:
    """The section: the small networks first, then the large model, whose 75,000 modules would slow Python's garbage collector."""
    torch.set_num_threads(1)  # before any fork
    report.heading("Tree: looking at a model")
    networks = small()
    found: dict[str, dict[str, Answer]] = {tool.name: {} for tool in tools()}
    for network in networks:
        torch.manual_seed(0)
        model = network.build().eval()
        for tool in tools():
            found[tool.name][network.name] = child.run(partial(_look, tool, network, model, 0.1 if quick else 0.2), LIMIT_S)
    _tables(found, [network.name for network in networks])
    return [*_small_targets(found), *_large(quick)]


def _look(tool: Tool, network: Network, model: nn.Module, budget_s: float) -> Answer:
    """In a fresh process: the first call with its output and memory, then calls in turn with repr."""
    tool.load()
    x = network.input() if tool.runs and network.input else None
    if tool.runs and x is None:
        return {"error": "needs a run"}
    gc.collect()  # it writes to every object: memory that a fork shares is copied here, and not in the first call
    (first, output), peak = child.peak_of(lambda: clock.once(lambda: tool.look(model, x)))
    child.limit(60)
    answer: Answer = {"first": first, "bytes": len(output.encode()), "peak": peak}
    if first < SLOW:
        timing = clock.against({"repr": lambda: repr(model), "it": lambda: tool.look(model, x)}, budget_s)["it"]
        answer["ratio"], answer["seconds"] = timing.ratio, timing.seconds
    else:
        reference = clock.against({"repr": lambda: repr(model)}, 0, least=3)["repr"].seconds
        answer["ratio"] = first / reference
    return answer


def _tables(found: dict[str, dict[str, Answer]], names: list[str]) -> None:
    def show(title: str, cell: Callable[[Answer], str], leave_out: tuple[str, ...] = ()) -> None:
        report.note(title)
        rows = [(tool, *(cell(row[name]) for name in names)) for tool, row in found.items() if tool not in leave_out]
        report.table(("", *names), rows)

    again = (REDRAWN, FORGETFUL)
    title = "Calls after the first, CPU time / that of `repr(model)` in the same process:"
    show(title, lambda answer: answer.get("error") or report.digits(answer["ratio"]))
    show("First call in a fresh process, CPU time:", lambda answer: "" if "error" in answer else report.seconds(answer["first"]), again)
    show("Output:", lambda answer: "" if "error" in answer else report.size(answer["bytes"]), again)


def _small_targets(found: dict[str, dict[str, Answer]]) -> list[Target]:
    return [Target(f"str(tree), {name}", 3, answer.get("ratio", inf)) for name, answer in found[STR].items()]


def _large(quick: bool) -> list[Target]:
    report.heading("Tree of 45,033 Linear layers on the meta device (671 billion parameters)")
    seconds, model = clock.once(DeepSeek)
    network = Network("deepseek", DeepSeek)
    rows, answers = [], {}
    for tool in tools():
        answer = answers[tool.name] = child.run(partial(_look, tool, network, model, 1.0), 5 if quick else LIMIT_S)
        if "error" in answer:
            rows.append((tool.name, answer["error"], "", "", "", ""))
            continue
        once = "" if "seconds" in answer else " (first call)"
        warm = report.seconds(answer["seconds"]) if "seconds" in answer else "-"
        ratio, first = report.digits(answer["ratio"]) + once, report.seconds(answer["first"])
        rows.append((tool.name, ratio, warm, first, report.size(answer["peak"]), report.size(answer["bytes"])))
    report.table(("", "/ repr", "later calls", "first call", "peak memory", "output"), rows)
    traced = {name: child.run(partial(child.traced_peak_of, partial(look, model))) for name, look in ((STR, text), (HTML, html))}
    peaks = ", ".join(f"{name} {report.size(peak)}" for name, peak in traced.items())
    report.note(
        f"Building the model took {report.seconds(seconds)}. Peak memory: growth of the resident set in the first call of a fresh process; "
        f"by tracemalloc, which sees all that Python allocates: {peaks}."
    )
    ours, page = answers[STR], answers[HTML]
    return [
        Target("str(tree), deepseek", 3, ours.get("ratio", inf)),
        Target("str(tree), deepseek, first call / first repr", 3, ours.get("first", inf) / answers["repr"]["first"]),
        Target("html, deepseek", 200, page.get("bytes", inf) / 1000, "kB"),
        Target("peak memory, deepseek (resident set)", 10, (ours.get("peak", inf) or 0) / 2**20, "MiB"),
        Target("peak memory, deepseek (tracemalloc)", 10, traced[STR] / 2**20, "MiB"),
    ]
