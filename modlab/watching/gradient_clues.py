"""Gradient clues: what happens to gradients and weights between backward() and the next look.

Gradients are changed or taken away, weights are put back, steps go uphill.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from modlab.compat import after_backward, without_autograd
from modlab.watching.pools import Array, is_readable
from modlab.watching.readback import is_far
from modlab.watching.rewritten_weights import are_coarse, has_moved
from modlab.watching.watch_index import WatchIndex, Weight

ALIKE = 0.7
"""Cosine between two gradients below which the one is not the other."""

BACK = 0.04
"""Part of the square of a step that is left of it before the next one, where the weights were put back."""

VALUES = 4
"""Numbers that say nothing about the digits of all, or about where they point."""

PROBES, GRADIENTS, PART = 3, 8, 32
"""Parameters by which is seen whether somebody puts the weights back, those whose gradients are followed, and numbers of each."""


class GradientClues:
    """Follows the gradients, and the weights, of some parameters.

    Args:
        index: the parameters.

    Attributes:
        arrivals: looks in which gradients were seen as backward() has left them.
        turned, true, gone: in how many of them those at the step pointed elsewhere, or there, or were no more.
        against: in how many of them they pointed to the opposite side.
        decayed, clamped: in how many of them a part of the weights was added, and in how many many numbers of a gradient had one size.
        ratios: of each how large they were, as a share of what backward() brought; `scale`: what a scaler has multiplied that by.
        up, down: between how many looks the weights went up the slope, and down.
        put_back, kept: looks after which the weights were again what they had been before the step, and after which they were not.
        rounded: of these, after how many they had no more digits than 16-bit numbers have.
        factors: of each by what all weights were multiplied from the end of one step to the next one; 1 where it was not that.
        returned: looks at whose step the weights were bit for bit those that a step had moved in an earlier look.
        taken: by parameter, in how many looks its gradient was no more at the step, while others were there.
        others, written: looks in which some were other tensors at the step than backward() had left, and in which some were written to.
        replaced: looks in which all were zero at the step, in other tensors than backward() had left; `brought`: their greatest number.
    """

    def __init__(self, index: WatchIndex) -> None:
        self._index = index
        self.arrivals = self.turned = self.true = self.gone = self.decayed = self.clamped = self.up = self.down = 0
        self.put_back = self.kept = self.rounded = self.replaced = self.against = self.returned = self.others = self.written = 0
        self.brought = math.nan
        self.ratios: list[float] = []
        self.factors: list[float] = []
        self.scale = 1.0
        self._step, self._tasks, self._densely = 0, set[int](), True
        self._brought: dict[str, Array] = {}
        self._left: dict[str, tuple[int, int]] = {}
        self.taken: Counter[str] = Counter()
        self._flowed = False
        self._slope: tuple[int, dict[str, tuple[Array, Array]]] = (-1, {})
        self._before: list[Tensor] = []
        self._after: list[Tensor] = []
        self._moved: set[bytes] = set()
        self._compared = -2

    @np.errstate(all="ignore")
    def begin(self, step: int, *, densely: bool) -> None:
        """A step is looked at, and the one before may have been; ``densely``: the next one may be, too."""
        self._step, self._brought, self._tasks, self._densely = step, {}, set(), densely
        (seen, before), self._slope = self._slope, (-1, {})
        now = self._weights() if before and seen == step - 1 else {}
        pairs = [(now[path], here, slope) for path, (here, slope) in before.items() if path in now]
        rises = sum(float((there - here) @ slope) for there, here, slope in pairs if len(there) == len(here) == len(slope))
        self.up += rises > 0
        self.down += rises < 0

    def flow(self, task: int) -> None:
        """Gradients flow in a backward pass: when they have arrived, some of them are taken down."""
        if task not in self._tasks:
            self._tasks.add(task)
            after_backward(self._arrived)

    def _arrived(self) -> None:
        self.arrivals += 1
        self._brought = without_autograd(self._gradients)
        self._left = self._holders()
        if self._densely:
            here, slopes = without_autograd(self._weights), without_autograd(self._slopes)
            self._slope = self._step, {path: (here[path], slope) for path, slope in slopes.items() if path in here}

    def step_begins(self) -> None:
        """The optimizer is about to make its step: are these the gradients that backward() brought, and has the last step held?"""
        self._compare()
        now = self._probes()
        same = [one.shape for one in now] == [one.shape for one in self._before]  # else weights have come or gone
        if self._compared == self._step - 1 and self._before and same:
            stepped = sum(float((after - before).square().sum()) for after, before in zip(self._after, self._before, strict=True))
            left = sum(float((one - before).square().sum()) for one, before in zip(now, self._before, strict=True))
            self.put_back += stepped > 0 and left < BACK * stepped
            self.kept += stepped > 0 and left >= BACK * stepped
            self.rounded += stepped > 0 and _is_rounded(now)
            self.factors.append(_factor(self._after, now))
        self._before = now
        self.returned += _bytes(now) in self._moved

    @property
    def shrunk(self) -> float:
        """By what part all weights became smaller after each step; 0 where it was not each time the same."""
        parts = [1 - one for one in self.factors]
        if len(parts) < PROBES or not min(parts) > 0.8 * max(parts):
            return 0.0
        return float(np.median(parts))

    def step_ended(self, *, hooked: bool) -> None:
        """It has made it: a closure may have brought the gradients, and a hook have taken them away, or back what the step brought.

        Args:
            hooked: whether the optimizer has hooks that run after its step.
        """
        self._after, self._compared = self._probes(), self._step
        if all(bool(one.isfinite().all()) for one in self._after) and has_moved(self._before, self._after) and not are_coarse(self._before):
            self._moved.add(_bytes(self._before))
        if self._brought:
            self._compare()
            return
        still = len(self._after) == len(self._before) and all(map(torch.equal, self._after, self._before))
        if not self._flowed or not still:
            return
        if not any(bool(one.any()) for one in self._gradients().values()):
            self.gone += 1
            self.true = max(self.true - 1, 0)
        elif hooked:
            self.put_back += 1

    @np.errstate(all="ignore")
    def _compare(self) -> None:
        """Whether gradients at the step are those that backward() brought."""
        brought, self._brought = self._brought, {}
        self._flowed = False
        held = self._holders() if self._left else {}
        self.others += any(held[path][0] != one[0] for path, one in self._left.items() if path in held)
        self.written += any(held[path][1] != one[1] for path, one in self._left.items() if path in held)
        some = {path: one for path, one in brought.items() if one @ one > 0 and np.isfinite(one).all()}
        if not some:
            return
        now = self._gradients()
        there = {path: now[path] for path in some if path in now and now[path].any()}
        self._flowed = bool(there)
        self.gone += not there
        if there:
            self.taken.update((self._left.keys() - brought.keys() - held.keys()) | (some.keys() - there.keys()))
        if not there and self._are_others(some):
            self.replaced += 1
            self.brought = max(float(np.abs(one).max()) for one in some.values())
        known = [(one, some[path]) for path, one in there.items() if np.isfinite(one).all()]
        if known:
            self.ratios.append(float(np.median([_norm(one) / _norm(other) for one, other in known])) * self.scale)
            alike = float(np.median([_cosine(one, other) for one, other in known]))
            cut = all(_is_cut_off(one) and bool((one * other >= 0).all()) for one, other in known)
            turned = alike < ALIKE and not cut
            decayed = self._is_decay({path: one - some[path] for path, one in there.items()} if turned else there)
            self.decayed += decayed
            self.clamped += sum(map(_is_clamped, there.values())) >= len(there) / 2
            self.turned += turned and not decayed
            self.against += alike < -ALIKE
            self.true += not turned

    def _holders(self) -> dict[str, tuple[int, int]]:
        """The tensors that hold the gradients now, and their versions."""
        found = ((weight.path, weight.tensor()) for weight in self._index.weights if weight.trainable and weight.owned)
        return {path: (id(tensor.grad), tensor.grad._version) for path, tensor in found if tensor is not None and tensor.grad is not None}

    def _are_others(self, paths: Iterable[str]) -> bool:
        """Whether none of these gradients is held by the tensor that backward() had left, and none is missing."""
        now = self._holders()
        return all(path in now and now[path][0] != self._left.get(path, (0, 0))[0] for path in paths)

    def _is_decay(self, gradients: dict[str, Array]) -> bool:
        """Whether gradients, or what was added to them, are the weights times a number."""
        weights = self._weights()
        pairs = [(one, weights[path]) for path, one in gradients.items() if path in weights and _points_somewhere(weights[path])]
        alike = [_cosine(one, held) for one, held in pairs if one.any() and held.any()]
        return bool(alike) and float(np.median(alike)) > 0.99

    def _gradients(self) -> dict[str, Array]:
        """Some numbers of the gradients of some parameters that an optimizer moves, as they are now."""
        return _some_numbers([(one.path, _gradient(one)) for one in _apart([one for one in self._trained() if one.owned])])

    def _slopes(self) -> dict[str, Array]:
        """The gradients of those whose numbers `_weights` has."""
        return _some_numbers([(one.path, _gradient(one)) for one in _apart(self._trained())])

    def _weights(self) -> dict[str, Array]:
        """Some numbers of some parameters as they are now."""
        return _some_numbers([(one.path, one.tensor()) for one in _apart(self._trained())])

    def _trained(self) -> list[Weight]:
        return [one for one in self._index.weights if one.trainable]

    def _probes(self) -> list[Tensor]:
        found = []
        for weight in self._index.weights:
            tensor = weight.tensor() if weight.trainable and weight.owned else None
            if tensor is not None and is_readable(tensor) and not is_far(tensor):
                found.append(tensor.detach().flatten()[:PART].clone())
                if len(found) == PROBES:
                    break
        return found


def _bytes(some: list[Tensor]) -> bytes:
    return b"".join(one.view(torch.uint8).numpy().tobytes() for one in some)


def _apart(weights: list[Weight]) -> list[Weight]:
    return weights[:: max(1, len(weights) // GRADIENTS)]


def _gradient(weight: Weight) -> Tensor | None:
    tensor = weight.tensor()
    return tensor.grad if tensor is not None else None


def _some_numbers(tensors: list[tuple[str, Tensor | None]]) -> dict[str, Array]:
    """Copies of some numbers of each tensor that can be read."""
    return {
        path: tensor.detach().flatten()[:: max(1, tensor.numel() // PART)].to(torch.float64, copy=True).numpy()
        for path, tensor in tensors
        if tensor is not None and is_readable(tensor)
    }


def _norm(some: Array) -> float:
    return math.sqrt(some @ some)


def _cosine(one: Array, other: Array) -> float:
    size = math.sqrt((one @ one) * (other @ other))
    return float(one @ other) / size if size else math.nan


def _points_somewhere(weights: Array) -> bool:
    """Whether there are many different numbers: with a few, as in a layer of equal units, whatever comes to it has the same direction."""
    most = float(np.abs(weights).max(initial=0.0))
    return most > 0 and len(np.unique(np.round(weights / most, 3))) > VALUES


def _is_clamped(gradient: Array) -> bool:
    """Whether many numbers have the size of the largest one."""
    sizes = np.abs(gradient[gradient != 0])
    return len(sizes) >= 2 * VALUES and float((sizes > 0.999 * sizes.max()).mean()) > 0.3


def _is_cut_off(gradient: Array) -> bool:
    """Whether all numbers have one size, as clipping each of them makes it."""
    sizes = np.abs(gradient[gradient != 0])
    return len(sizes) > 2 and float(sizes.max()) < 1.001 * float(sizes.min())


def _is_rounded(weights: list[Tensor]) -> bool:
    """Whether all numbers, and not only a few values again and again, would be the same in 16 bits."""
    some = torch.cat([one.float() for one in weights])
    same = any(bool((some.to(dtype).float() == some).all()) for dtype in (torch.bfloat16, torch.float16))
    return same and len(set(some.tolist())) > VALUES


def _factor(before: list[Tensor], now: list[Tensor]) -> float:
    """By what all numbers were multiplied; 1 where it was another change, or none."""
    old, new = (torch.cat([one.double() for one in some]) for some in (before, now))
    times = float(old @ new / (old @ old)) if old.any() else 1.0
    return times if float((new - times * old).norm()) < 0.01 * abs(1 - times) * float(old.norm()) else 1.0
