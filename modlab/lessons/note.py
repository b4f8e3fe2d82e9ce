"""The modules of PyTorch's note "Modules", once, for the lessons and the tests. Names and shapes are the note's.

Where editions of the note differ, the module takes an argument or the difference is said. Read them: each is a few lines.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MyLinear(nn.Module):
    """An affine map whose weight is (in, out): the transpose of ``nn.Linear``'s."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) → (..., out_features)."""
        return (input @ self.weight) + self.bias


class Net(nn.Module):
    """Two layers with a ReLU between them, which is a function and no child."""

    def __init__(self) -> None:
        super().__init__()
        self.l0 = MyLinear(4, 3)
        self.l1 = MyLinear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(..., 4) → (..., 1)."""
        x = self.l0(x)
        x = F.relu(x)
        return cast(Tensor, self.l1(x))


class BigNet(nn.Module):
    """A layer, then a whole ``Net``: modules hold modules."""

    def __init__(self) -> None:
        super().__init__()
        self.l1 = MyLinear(5, 4)
        self.net = Net()

    def forward(self, x: Tensor) -> Tensor:
        """(..., 5) → (..., 1)."""
        return cast(Tensor, self.net(self.l1(x)))


class DynamicNet(nn.Module):
    """As many layers as wanted, and an activation that is chosen at each call.

    Args:
        num_layers: how many ``MyLinear(4, 4)`` come before the last layer.
        after_each: apply the activation after every layer (one edition of the note) instead of once, after all (another).
    """

    def __init__(self, num_layers: int, *, after_each: bool = False) -> None:
        super().__init__()
        self.linears = nn.ModuleList([MyLinear(4, 4) for _ in range(num_layers)])
        self.activations = nn.ModuleDict({"relu": nn.ReLU(), "lrelu": nn.LeakyReLU()})
        self.final = MyLinear(4, 1)
        self.after_each = after_each

    def forward(self, x: Tensor, act: str) -> Tensor:
        """(..., 4) and the name of an activation → (..., 1)."""
        for linear in self.linears:
            x = linear(x)
            if self.after_each:
                x = self.activations[act](x)
        if not self.after_each:
            x = self.activations[act](x)
        return cast(Tensor, self.final(x))


class ModalModule(nn.Module):
    """Adds one in training mode, and nothing in evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        """(...) → (...)."""
        return x + 1.0 if self.training else x


class RunningMean(nn.Module):
    """Keeps a running mean of its inputs in a buffer; `momentum` weighs the old value."""

    mean: Tensor

    def __init__(self, num_features: int, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(num_features))

    def forward(self, x: Tensor) -> Tensor:
        """(num_features,) → (num_features,), the new mean."""
        self.mean = self.momentum * self.mean + (1.0 - self.momentum) * x
        return self.mean


class StatefulModule(nn.Module):
    """Every kind of state that a module can have, reserved names among them."""

    def __init__(self) -> None:
        super().__init__()
        self.param1 = nn.Parameter(torch.randn(2))
        self.register_parameter("param2", nn.Parameter(torch.randn(3)))
        self.register_parameter("param3", None)
        self.param_list = nn.ParameterList([nn.Parameter(torch.randn(2)) for _ in range(3)])
        self.param_dict = nn.ParameterDict({"foo": nn.Parameter(torch.randn(3)), "bar": nn.Parameter(torch.randn(4))})
        self.register_buffer("buffer1", torch.randn(4), persistent=True)
        self.register_buffer("buffer2", torch.randn(5), persistent=False)
        self.register_buffer("buffer3", None)
        self.linear = nn.Linear(2, 3)
