"""Nine small models that tools count wrong, each with an input (some tools learn the counts by running the model)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.networks import CNN, LSTM, mlp

Case = Callable[[], tuple[nn.Module, Tensor]]


def plain() -> tuple[nn.Module, Tensor]:
    return mlp(), torch.randn(4, 2)


def frozen() -> tuple[nn.Module, Tensor]:
    """The convolutions and BatchNorms do not train."""
    model = CNN()
    model.features.requires_grad_(False)
    return model, torch.randn(2, 1, 28, 28)


def lstm() -> tuple[nn.Module, Tensor]:
    return LSTM(), torch.randint(64, (4, 12))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))


def tied_weight() -> tuple[nn.Module, Tensor]:
    return Tied(), torch.randint(50, (4, 6))


def reused_module() -> tuple[nn.Module, Tensor]:
    layer = nn.Linear(8, 8)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(8, 2)), torch.randn(4, 8)


class Bare(nn.Module):
    """Parameters beside a child, and a list of them that no module's forward uses."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.fc = nn.Parameter(torch.ones(8)), nn.Linear(8, 8)
        self.extra = nn.ParameterList([torch.zeros(3), torch.zeros(5)])

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x) * self.scale + self.extra[0].sum()


def bare_parameters() -> tuple[nn.Module, Tensor]:
    return Bare(), torch.randn(4, 8)


def meta() -> tuple[nn.Module, Tensor]:
    with torch.device("meta"):
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)), torch.randn(4, 8)


def lazy() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.Linear(16, 2)), torch.randn(4, 8)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def unused_branch() -> tuple[nn.Module, Tensor]:
    return Branches(), torch.randn(4, 8)


CASES: tuple[Case, ...] = (plain, frozen, lstm, tied_weight, reused_module, bare_parameters, meta, lazy, unused_branch)


def truth(model: nn.Module) -> tuple[int, int]:
    """Elements of all parameters that have a shape, and of those that train: each tensor once, buffers none."""
    sized = [p for p in model.parameters() if not nn.parameter.is_lazy(p)]
    return sum(p.numel() for p in sized), sum(p.numel() for p in sized if p.requires_grad)
