"""Networks of the lessons that are not the note's: ResNet-18 as in He et al. (2015), written out; one that chooses; an adapter."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels_in, H, W) → (N, channels, H / stride, W / stride)."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + shortcut)


class ResNet18(nn.Module):
    """Four stages of two blocks each, between a stem and a linear head."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64), BasicBlock(64, 64))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3, H, W) → (N, classes)."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return cast(Tensor, self.fc(self.avgpool(x).flatten(1)))


# Scripting reads the source text, so this one cannot stand in a notebook whose cells are run without IPython.
class Upright(nn.Module):
    """Turns the sign where the sum is not positive."""

    def forward(self, x: Tensor) -> Tensor:
        """(...) -> (...), the same shape."""
        if x.sum() > 0:
            return x
        return -x


class LowRank(nn.Module):
    """A linear layer that is held still, and beside it a change of low rank that learns (LoRA; Hu et al., 2021).

    Args:
        linear: the layer; its parameters are frozen.
        rank: how many rows ``A`` has, and columns ``B``.
    """

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        like: dict[str, Any] = {"device": linear.weight.device, "dtype": linear.weight.dtype}
        self.A = nn.Parameter(torch.randn(rank, linear.in_features, **like) / linear.in_features**0.5)
        self.B = nn.Parameter(torch.zeros(linear.out_features, rank, **like))

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) → (..., out_features)."""
        return cast(Tensor, self.linear(x)) + x @ self.A.mT @ self.B.mT
