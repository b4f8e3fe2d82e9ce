"""What the other questions about a model cost: explain, hooks, snapshot, diff, compare."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import modlab
from bench import child, clock, report
from bench.report import Target
from modlab.lessons.note import DynamicNet

DEEP = 100  # levels
BLOCKS = 40
SLOW = 0.5  # CPU seconds of a first call after which one more is enough
Models = dict[str, tuple[nn.Module, Tensor]]
Question = Callable[[], Any]


def nested(levels: int) -> nn.Module:
    """A layer in a Sequential in a Sequential …, and the innermost one does not fit."""
    model: nn.Module = nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4))
    for _ in range(levels - 1):
        model = nn.Sequential(nn.Linear(4, 4), model)
    return model


class Layered(nn.Module):
    """Blocks in a list, as language models have them; the last one does not fit."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16)) for _ in range(blocks))
        self.layers.append(nn.Linear(15, 16))

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.embed(ids)
        if mask is not None:
            x = x * mask
        for layer in self.layers:
            x = x + layer(x)
        return x


def failure(call: Question) -> Exception:
    """What a call raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - any will do
        return error
    raise AssertionError("it did not fail")


def run(quick: bool, models: Models) -> list[Target]:
    rows = []
    for name, ask in questions(models).items():
        model, x = models.get(name.rpartition(" ")[2], (None, None))
        found = child.run(partial(_costs, ask, model, x, 0.2 if quick else 2.0), 120)
        if "error" in found:
            rows.append((name, found["error"], "", ""))
            continue
        forward = "" if found["forward"] is None else report.digits(found["seconds"] / found["forward"])
        rows.append((name, report.seconds(found["first"]), report.seconds(found["seconds"]), forward))
    report.note("Other questions, CPU time:")
    report.table(("", "first call", "later calls", "/ plain forward"), rows)
    return []


def questions(models: Models) -> dict[str, Callable[[], Question]]:
    """By name, what prepares the question in the process in which it is asked; the name ends in that of the model."""
    found: dict[str, Callable[[], Question]] = {
        "explain(error), an activation that DynamicNet lacks": lambda: _explain(DynamicNet(3), torch.ones(2, 4), "gelu"),
        "explain(error), a shape in DynamicNet": lambda: _explain(DynamicNet(3), torch.ones(2, 5), "relu"),
        f"explain(error), a shape after {BLOCKS} blocks": lambda: _explain(Layered(BLOCKS), torch.zeros(2, 7, dtype=torch.long)),
        f"explain(error), a shape {DEEP} modules deep": lambda: _explain(nested(DEEP), torch.ones(2, 4)),
    }
    for name, (model, x) in models.items():
        if name == "gpt2":
            found["hooks, gpt2"] = lambda model=model: partial(modlab.hooks, model)
        if name == "ResNet18":
            found[f"snapshot, {name}"] = lambda model=model: partial(modlab.snapshot, model)
            found[f"snapshot(values=False), {name}"] = lambda model=model: partial(modlab.snapshot, model, values=False)
            found[f"diff with a snapshot, nothing changed, {name}"] = lambda model=model: _diff(model, changed=False)
            found[f"diff with a snapshot, all changed, {name}"] = lambda model=model: _diff(model, changed=True)
            found[f"compare (train and eval), {name}"] = lambda model=model, x=x: partial(modlab.compare(model), x)
    return found


def _explain(model: nn.Module, *args: Any) -> Question:
    error = failure(lambda: model(*args))
    return lambda: str(modlab.explain(error))


def _diff(model: nn.Module, *, changed: bool) -> Question:
    before = modlab.snapshot(model)
    if changed:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1e-3)
    return lambda: modlab.diff(before, model).records


def _costs(prepare: Callable[[], Question], model: nn.Module | None, x: Tensor | None, budget_s: float) -> dict[str, Any]:
    """In a fresh process: the first time, and the median of later ones; with a model, in turn with its forward pass."""
    child.keep_memory()
    ask = prepare()
    first, _ = clock.once(ask)
    least, warm = (1, ("it",)) if first > SLOW else (3, ())
    if model is None:
        return {"first": first, "seconds": clock.against({"it": ask}, budget_s, least)["it"].seconds, "forward": None}
    found = clock.against({"plain": lambda: model(x), "it": ask}, budget_s, least, warm=warm)
    return {"first": first, "seconds": found["it"].seconds, "forward": found["plain"].seconds}
