"""The originals while a fork runs: a model's code may reach the model by another name (a global variable) than the one that is copied."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from modlab.compat import tensor_hooks, without_autograd
from modlab.forking.kept_states import TrainedThings
from modlab.forking.tape import alike
from modlab.inspection.tensor_difference import equal_bits
from modlab.running.guarded import afterwards, line_of
from modlab.running.restoration import Restoration
from modlab.statistics.memory import is_there


class ReachedOriginalError(Exception):
    """A fork has trained the original, or changed its buffers: they are put back."""


class SharedOriginalError(ReachedOriginalError):
    """A change has given the fork memory of the original: what the fork writes would be written there."""


class LostOriginalError(Exception):
    """A fork has changed the original, and not all of it could be put back: why, in one line."""


class Originals:
    """Parameters and buffers that a fork must not touch.

    Args:
        tensors: all of them.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        some = [one for one in tensors if not is_lazy(one) and is_there(one)]
        self._trained = [one for one in some if one.is_leaf and one.requires_grad]
        self._buffers = [one for one in some if not isinstance(one, Parameter)]

    def spared(self, work: Callable[..., None], *args: Any) -> None:
        """Call `work`, and put back what it touches, whatever ends it.

        Raises:
            ReachedOriginalError: it has touched something.
        """
        gradients = [one.grad for one in self._trained]
        buffers = [(one, alike(one)) for one in self._buffers]
        reached: list[Any] = []

        def put_back() -> None:
            given = zip(self._trained, gradients, strict=True)
            reached.extend(one for one, before in given if one.grad is not None and one.grad is not before)
            self._set(gradients)
            for one, before in buffers:
                if not equal_bits(one, before):  # no version tells of it: a batch norm changes its statistics without one
                    reached.append(one)
                    without_autograd(one.copy_, before)

        def within() -> None:
            self._set([None] * len(gradients))
            work(*args)

        afterwards(put_back, within)
        if reached:
            raise ReachedOriginalError

    def _set(self, gradients: list[Tensor | None]) -> None:
        for one, gradient in zip(self._trained, gradients, strict=True):
            one.grad = gradient


def untouched(things: TrainedThings, work: Callable[..., None], *args: Any) -> None:
    """Call `work`, and put back what it does to a training: to modules and optimizers, and to the tensors that they hold.

    Raises:
        ReachedOriginalError: something was done.
        LostOriginalError: not all of it could be put back.
    """
    before, hooks, reached = Restoration(math.inf), [(one, _hooks(one)) for one in things.tensors()], list[bool]()

    def put_back() -> None:
        hung = [(one, held) for one, held in hooks if _hooks(one) != held]
        reached.append(before.is_touched() or bool(hung))  # if it is called again after an interrupt, the first answer counts
        for one, held in hung:
            _hang(one, held)
        _put_back(before)

    def within() -> None:
        for module in (things.model, *things.beside.values()):
            before.add(module)
        for optimizer in things.optimizers:
            before.add_optimizer(optimizer)
        work(*args)

    afterwards(put_back, within)
    if any(reached):
        raise ReachedOriginalError


def _hooks(tensor: Tensor) -> dict[str, dict[int, Any]]:
    return {name: {**held} for name, held in tensor_hooks(tensor)}


def _hang(tensor: Tensor, before: dict[str, dict[int, Any]]) -> None:
    """Hang on a tensor the hooks that it had: autograd has the dict, so that stays."""
    for name, held in tensor_hooks(tensor):
        held.clear()
        held.update(before.get(name, {}))


def _put_back(before: Restoration) -> None:
    """Restore a training, or say so where it cannot be."""
    try:
        before.restore()
    except Exception as error:
        raise LostOriginalError(line_of(error)) from error
    if before.is_touched():
        raise LostOriginalError("something in it has changed its shape")
