"""The models to be looked at, from three layers to a GPT-2, each with an input for the tools that run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from modlab.lessons.networks import ResNet18
from modlab.lessons.note import Net


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 10))

    def forward(self, x: Tensor) -> Tensor:
        """(N, 1, 28, 28) → (N, 10)."""
        return self.head(self.features(x))


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 16)
        self.lstm = nn.LSTM(16, 32, num_layers=2, batch_first=True)
        self.out = nn.Linear(32, 64)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, T) → (N, T, 64)."""
        return self.out(self.lstm(self.embed(tokens))[0])


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False))


def floats(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape)


def tokens(kinds: int, *shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(kinds, shape)


@dataclass(frozen=True)
class Network:
    """A model, and what can be given to it; `input` is None where no tool shall run it."""

    name: str
    build: Callable[[], nn.Module]
    input: Callable[[], Tensor] | None = None


def small() -> list[Network]:
    networks = [
        Network("tiny_mlp", mlp, floats(4, 2)),
        Network("tiny_cnn", CNN, floats(2, 1, 28, 28)),
        Network("tiny_lstm", LSTM, tokens(64, 4, 12)),
        Network("Net", Net, floats(2, 4)),
        Network("ResNet18", ResNet18, floats(1, 3, 224, 224)),
    ]
    return [*networks, Network("gpt2", gpt2, tokens(50257, 1, 32))] if find_spec("transformers") else networks
