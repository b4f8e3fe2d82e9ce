"""A diagnosis is facts: with every sentence replaced by "x", no finding, severity, outcome, order, fix or mark is another."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from tests.words import mute, without_words


def flawed() -> modlab.Diagnosis:
    """As many mistakes at rest as one model can have."""
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Dropout(1.0))
    model.adapters, model.acts, model.scale = [nn.Linear(3, 3)], [nn.ReLU()], torch.ones(3)
    model.gain = torch.ones(3, requires_grad=True)
    model[1].requires_grad_(False)
    model[0].requires_grad = False
    model[2].weight.requires_gradient = False
    model[3].bias.data[0] = float("nan")
    optimizer = torch.optim.SGD(
        [{"params": [*model[0].parameters()]}, {"params": [model[2].weight, nn.Parameter(torch.ones(1))], "lr": 0}], 0.1
    )
    return modlab.diagnose(model, optimizer)


def with_a_batch(forward: Callable[[Any, Any], Any] | None = None, loss: Any = None, **parts: Any) -> modlab.Diagnosis:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
            for name, part in parts.items():
                setattr(self, name, part)

        def forward(self, x: Any) -> Any:
            return forward(self, x) if forward is not None else self.head(self.fc(x).tanh())

    x = torch.linspace(-1, 1, 24).reshape(6, 4).sin()
    return modlab.diagnose(Net(), batch=(x, torch.arange(6) % 3), loss=loss or nn.CrossEntropyLoss())


RUNS: dict[str, Callable[[], modlab.Diagnosis]] = {
    "flawed": flawed,
    "healthy": with_a_batch,
    "no gradient": lambda: with_a_batch(lambda self, x: self.head(self.fc(x).detach()), aux=nn.Linear(2, 2)),
    "no graph": lambda: with_a_batch(lambda self, x: self.head(self.fc(x)).detach()),
    "mixed samples": lambda: with_a_batch(lambda self, x: self.head(self.fc(x).softmax(0))),
    "dropout": lambda: with_a_batch(lambda self, x: self.head(nn.functional.dropout(self.fc(x)))),
    "NaN": lambda: with_a_batch(lambda self, x: self.head(self.fc(x)).log()),
    "fails": lambda: with_a_batch(lambda self, x: self.fc(self.head(x))),
    "probabilities": lambda: with_a_batch(lambda self, x: self.head(self.fc(x)).softmax(1)),
    "no number": lambda: with_a_batch(loss=lambda output, target: output),
    "hidden": lambda: with_a_batch(lambda self, x: self.head(self.more[0](self.fc(x))), more=[nn.Linear(8, 8)]),
}


def facts(name: str) -> str:
    torch.manual_seed(0)
    diagnosis = RUNS[name]()
    rows = [(row.path, row.place, row.mark, row.depth) for row in diagnosis._sheet().rows]
    return json.dumps([without_words(diagnosis.to_dict()), diagnosis.verdict, rows])


@pytest.mark.parametrize("name", RUNS)
def test_no_fact_is_in_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = facts(name)
    mute(monkeypatch)
    assert facts(name) == spoken
