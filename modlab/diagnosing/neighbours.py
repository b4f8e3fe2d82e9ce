"""Neighbours: how well a target is told by the nearest other samples of a batch, without any model."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from modlab.diagnosing.sequences import Sequence

NEAREST = 3
WIDE = 2000
"""Features of one kind at most."""
FAR = 4.0
"""Deviations from chance that count as known."""


class TokenOrder(NamedTuple):
    """How well a target is told by tokens in their places, and by how often each occurs.

    Attributes:
        position: the place whose token tells most.
        ordered, bag: the fraction of the samples told with and without order.
        needed: whether the order tells what its absence does not.
    """

    position: int
    ordered: float
    bag: float
    needed: bool


def of_order(sequence: Sequence, target: Tensor) -> TokenOrder | None:
    """None if neither tells anything of the target."""
    if target.is_floating_point() or target.dim() != 1 or len(target) != sequence.samples or len(target) < 16:
        return None
    chance = float(target.bincount().max()) / len(target) if int(target.min()) >= 0 else 1.0
    deviation = math.sqrt(chance * (1 - chance) / len(target)) or 1.0
    shares = [told_by(sequence.tensor[:, at], target) for at in range(min(sequence.length, 64))]
    position = max(range(len(shares)), key=shares.__getitem__)
    bag = told(counted(sequence.tensor), target)
    ordered = shares[position]
    if max(ordered, bag) < chance + FAR * deviation:
        return None
    return TokenOrder(position, ordered, bag, ordered > bag + FAR * deviation)


def told_by(column: Tensor, target: Tensor) -> float:
    """The fraction of samples whose target is the most frequent one among the others with the same token."""
    same = (column[:, None] == column).double().fill_diagonal_(0)
    votes = same @ F.one_hot(target).double()
    return float(((votes.argmax(1) == target) & (votes.sum(1) > 0)).double().mean())


def counted(tokens: Tensor) -> Tensor:
    """How often each token occurs in each sample."""
    known, places = torch.unique(tokens, return_inverse=True)
    return torch.zeros(len(tokens), len(known), dtype=torch.float64).scatter_add_(1, places.cpu(), torch.ones_like(places.cpu()).double())


def told(features: Tensor, target: Tensor) -> float:
    """The fraction of samples whose target most of the nearest others have; of numbers, the fraction of the variance explained."""
    distances = torch.cdist(features, features).fill_diagonal_(math.inf)
    nearest = distances.topk(min(NEAREST, len(target) - 1), largest=False).indices
    if target.is_floating_point():
        guess = target.double().reshape(len(target), -1)[nearest].mean(1)
        own = target.double().reshape(len(target), -1)
        return 1 - float((guess - own).square().sum() / ((own - own.mean(0)).square().sum() + 1e-12))
    votes = F.one_hot(target)[nearest].sum(1)
    return float((votes.argmax(1) == target).double().mean())
