"""What a recording says in numbers: the facts on which all sentences about a case rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from modlab.format import rough
from scripts.clinic.recording import Layer, Numbers, Parameter, Recording, first_of

ACTIVATIONS = ("ReLU", "Tanh", "Sigmoid", "LeakyReLU", "GELU")


@dataclass(frozen=True)
class Facts:
    """Of one recording.

    Attributes:
        run: the recording.
        twin: how far the healthy twin is from perfect.
        quality: what "how far" is measured in.
    """

    run: Recording
    twin: float
    quality: str

    # ---- the loss

    @cached_property
    def finite(self) -> list[float]:
        """All finite losses."""
        return [one for one in self.run.loss if math.isfinite(one)]

    @property
    def all_finite(self) -> bool:
        """Whether each loss is a number."""
        return len(self.finite) == len(self.run.loss)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The means of the first and of the last tenth of the finite losses."""
        return _mean(self.finite[: self.some]), _mean(self.finite[-self.some :])

    @property
    def some(self) -> int:
        """How many losses are a tenth of the finite ones."""
        return max(1, len(self.finite) // 10)

    @property
    def falls(self) -> bool:
        """Whether it ends far below its beginning."""
        return self.all_finite and self.ends[0] > 0 and self.ends[1] < 0.6 * self.ends[0]

    @property
    def flat(self) -> bool:
        """Whether it hardly moves."""
        return self.all_finite and self.ends[0] > 0 and 0.85 * self.ends[0] < self.ends[1] < 1.15 * self.ends[0]

    @cached_property
    def chance(self) -> float:
        """The loss of the best answer that looks at no input, where the loss is a squared error or a cross-entropy."""
        target = self.targets
        if target.is_floating_point():
            return float(target.double().var(0).mean())
        shares = [count / target.numel() for count in Counter(target.flatten().tolist()).values()]
        return -sum(share * math.log(share) for share in shares)

    # ---- the parameters

    @property
    def parameters(self) -> list[Parameter]:
        """All of the model."""
        return self.run.parameters

    @property
    def sized(self) -> list[Parameter]:
        """Those that do not begin at zero: only they have a size to compare a change with."""
        return [one for one in self.parameters if one.start.std or one.start.mean]

    @cached_property
    def typical_update(self) -> float:
        """The median, over the looks, of the greatest relative change of a weight in a step."""
        rows: list[float] = [max(found) for found in zip(*(one.update for one in self.weights if one in self.sized), strict=True)]
        return sorted(rows)[len(rows) // 2]

    @cached_property
    def moved(self) -> float:
        """How far the weight went that went farthest, beside its size at the start."""
        return max(one.moved for one in self.weights if one in self.sized)

    @cached_property
    def first_gradients(self) -> list[float | None]:
        """Of each trainable parameter, the norm of its gradient after backward() in the first look."""
        return [one.after_backward[0] for one in self.parameters if one.trainable]

    @property
    def all_felt(self) -> bool:
        """Whether each parameter gets a gradient that is not zero in the first look."""
        return all(one is not None and one > 0 and math.isfinite(one) for one in self.first_gradients) and all(
            one.trainable for one in self.parameters
        )

    @cached_property
    def least_gradient(self) -> tuple[str, float]:
        """The parameter with the smallest gradient in the first look, and its norm."""
        found = [(one.after_backward[0] or 0.0, one.name) for one in self.parameters if one.trainable]
        return min(found)[1], min(found)[0]

    @property
    def weights(self) -> list[Parameter]:
        """Those with two dimensions and more, in order."""
        return [one for one in self.parameters if len(one.start.shape) > 1]

    @cached_property
    def along_depth(self) -> float:
        """The gradient's norm of the first weight as a multiple of the last one's, in the first look."""
        first, last = self.weights[0].after_backward[0], self.weights[-1].after_backward[0]
        return first / last if first and last else math.nan

    # ---- the optimizer and the loop

    @property
    def held(self) -> int:
        """How many tensors of the model some optimizer holds."""
        return sum(one.held for one in self.parameters)

    @property
    def group(self) -> dict[str, Any]:
        """The only group, or the first one."""
        return self.run.groups[0]

    @cached_property
    def rates(self) -> tuple[float, float]:
        """The learning rate of the first group after the first and after the last step."""
        return self.run.rates[0][0], self.run.rates[-1][0]

    def count(self, kind: str) -> int:
        """How often the loop called something."""
        return self.run.counts[kind]

    # ---- the data

    @cached_property
    def inputs(self) -> Tensor:
        """Of the first batch."""
        return first_of(self.run.batches[0][1])

    @cached_property
    def target(self) -> Tensor:
        """Of the first batch."""
        found: Tensor = self.run.batches[0][2]
        return found

    @cached_property
    def targets(self) -> Tensor:
        """Of all batches."""
        return torch.cat([one for one in self.run.pool])

    @property
    def classes(self) -> int:
        """How many class numbers there are; 0 where targets are no class numbers."""
        return 0 if self.targets.is_floating_point() else int(self.targets.max()) + 1

    def class_counts(self, batch: int) -> list[int]:
        """How often each class stands in a batch."""
        return torch.bincount(self.run.pool[batch].flatten(), minlength=self.classes).tolist()

    @cached_property
    def features(self) -> list[float]:
        """The standard deviation of each feature of the inputs, where they are few numbers."""
        x = self.inputs
        return x.double().flatten(0, -2).std(0, correction=0).tolist() if x.is_floating_point() and x.dim() in (2, 3) else []

    # ---- outputs and layers

    @property
    def output(self) -> Tensor:
        """In the last step."""
        return first_of(self.run.outputs[-1][1])

    @property
    def has_guess(self) -> bool:
        """Whether `chance` is what an answer costs that looks at no input: of one output for each target, and not of pairs.

        Where targets are no class numbers, the loss must be a squared error: the first one says so.
        """
        if not math.isfinite(self.chance) or not isinstance(self.run.outputs[-1][1], Tensor):
            return False
        if self.classes:
            return True
        _, output, target = self.run.outputs[0]
        return math.isclose(float((output.double() - target.double()).square().mean()), self.run.loss[0], rel_tol=1e-4)

    @property
    def answer(self) -> Tensor:
        """The target of that step."""
        found: Tensor = self.run.outputs[-1][2]
        return found

    @cached_property
    def output_numbers(self) -> tuple[Numbers, Numbers]:
        """Of the outputs in the first and in the last step."""
        return Numbers.of(first_of(self.run.outputs[0][1])), Numbers.of(self.output)

    @property
    def layers(self) -> list[Layer]:
        """Those that were called or registered, in order."""
        return [*self.run.layers.values()]

    @property
    def unlike(self) -> int:
        """How many different samples the first batch has."""
        return len({tuple(row.flatten().tolist()) for row in self.inputs})

    @property
    def tokens(self) -> int:
        """How many different numbers the first batch's inputs have."""
        return len(set(self.inputs.flatten().tolist()))

    @property
    def last_layer(self) -> Layer:
        """The last one that is registered and called."""
        return [one for one in self.layers if one.registered and one.calls][-1]

    @cached_property
    def most_dead(self) -> float:
        """Of all activations, the greatest share of units that give zero for a whole batch."""
        found = [
            n.dead for one in self.layers if one.kind.startswith("ReLU") for n in (one.first, one.last) if n and not math.isnan(n.dead)
        ]
        return max(found, default=0.0)

    @property
    def activations(self) -> list[str]:
        """The kinds of activations that are called."""
        return list(dict.fromkeys(one.kind.partition("(")[0] for one in self.layers if one.calls and one.kind.startswith(ACTIVATIONS)))


def between(low: float, high: float, said: Callable[[float], str] = rough) -> str:
    """``between 1 and 3``; ``at 3`` where both read the same."""
    one, other = said(low), said(high)
    return f"between {one} and {other}" if one != other else f"at {one}"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan
