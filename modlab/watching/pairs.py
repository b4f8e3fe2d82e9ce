"""Do inputs and targets go together? A look at pairs of them without the model, and at the ways in which they get out of step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from modlab.records.clues import Relations
from modlab.statistics.memory import is_there

NUMBERS, ROWS = 1 << 17, 512
"""Numbers of inputs, and samples, that are kept."""

FEATURES, TOKENS, CLASSES = 512, 32, 64
"""Features that are used, different tokens, and different targets."""

NEIGHBOURS = 5


class Pairs:
    """Some batches as they came, each with its targets."""

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, Tensor]] = []
        self._kept = self._rows = 0

    def add(self, inputs: Tensor, target: Tensor) -> None:
        """Keep a batch, if there is room."""
        if (
            not (is_there(inputs) and is_there(target))
            or self._kept + inputs.numel() > NUMBERS
            or self._rows >= ROWS
            or len(inputs) < 4
            or target.numel() > 64 * len(target)
        ):
            return
        self._batches.append((inputs.clone(), target.clone()))
        self._kept += inputs.numel()
        self._rows += len(inputs)

    def relations(self) -> Relations:
        """How much of the targets is told by the inputs in each of the ways."""
        if self._rows < 24 or any(one.shape[1:] != self._batches[0][0].shape[1:] for one, _ in self._batches):
            return Relations()
        first = self._batches[0][0]
        found = {name: self._skill(change) for name, change in _ways(first)}
        if not first.is_floating_point() and first.dim() == 2:
            found["counted"] = self._skill(lambda x, y: (x, y), _counts)
        return Relations(self._rows, **found)

    def _skill(
        self, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], features: Callable[[Tensor], Tensor] | None = None
    ) -> float:
        pairs = [change(*one) for one in self._batches]
        x = (features or _features)(torch.cat([one for one, _ in pairs]))
        y = _answers(torch.cat([two for _, two in pairs]))
        if y is None or x.shape[1] == 0 or not bool(x.isfinite().all()) or not bool(y.isfinite().all()):
            return 0.0
        half = len(x) // 2
        x, y = x - x[:half].mean(0), y - y[:half].mean(0)
        scale = x[:half].std(0)
        x = x / torch.where(scale > 1e-12, scale, torch.ones_like(scale))
        total = y[half:].square().sum()
        if not total > 0:
            return 0.0
        guesses = (_ridge(x[:half], y[:half], x[half:]), _near(x[:half], y[:half], x[half:]))
        return max(0.0, *(float(1 - (y[half:] - guess).square().sum() / total) for guess in guesses))


def _ways(example: Tensor) -> Iterator[tuple[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]]:
    """As they came; each target moved by one sample; the axes of the inputs put back where they were reshaped instead of moved."""
    yield "together", lambda x, y: (x, y)
    yield "before", lambda x, y: (x, y.roll(-1, 0))
    yield "after", lambda x, y: (x, y.roll(1, 0))
    if example.dim() > 1:
        yield "axes", lambda x, y: (x.reshape(*x.shape[1:], len(x)).movedim(-1, 0), y)
    if example.dim() > 2:
        yield "swapped", lambda x, y: (x.reshape(x.shape[1], len(x), *x.shape[2:]).transpose(0, 1), y)


def _features(x: Tensor) -> Tensor:
    flat = x.reshape(len(x), -1)
    if not x.is_floating_point():
        kinds: Tensor = torch.unique(flat)
        if len(kinds) <= TOKENS and flat.shape[1] * len(kinds) <= FEATURES:
            return (flat[:, :, None] == kinds).double().flatten(1)
    flat = flat.double()
    return flat[:, :: -(-flat.shape[1] // FEATURES)]


def _counts(x: Tensor) -> Tensor:
    """How often each token comes in a row."""
    kinds: Tensor = torch.unique(x)
    return (x[:, :, None] == kinds[:FEATURES]).double().sum(1)


def _answers(y: Tensor) -> Tensor | None:
    flat = y.reshape(len(y), -1)
    if not y.is_floating_point():
        kinds: Tensor = torch.unique(flat)
        return (flat == kinds).double() if flat.shape[1] == 1 and 1 < len(kinds) <= CLASSES else None
    return flat.double()


def _ridge(x: Tensor, y: Tensor, other: Tensor) -> Tensor:
    """A linear guess, with squares of the inputs where there are few."""
    if x.shape[1] <= 16:
        x, other = torch.cat([x, x.square() - 1], 1), torch.cat([other, other.square() - 1], 1)
    gram = x.T @ x + 0.1 * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    found: Tensor = other @ torch.linalg.solve(gram, x.T @ y)
    return found


def _near(x: Tensor, y: Tensor, other: Tensor) -> Tensor:
    nearest = torch.cdist(other, x).topk(min(NEIGHBOURS, len(x)), largest=False).indices
    return y[nearest].mean(1)
