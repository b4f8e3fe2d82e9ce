"""The originals while a fork runs: a model's code may reach the model by another name (a global variable) than the one that is copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from modlab.compat import without_autograd
from modlab.forking.kept_states import TrainedThings
from modlab.forking.tape import alike
from modlab.inspection import stores
from modlab.inspection.tensor_difference import equal_bits
from modlab.statistics.memory import is_there

PLAIN = (bool, int, float, str, tuple)
"""Types of settings."""


class ReachedOriginalError(Exception):
    """A fork has trained the original, or changed its buffers: they are put back."""


class Originals:
    """Parameters and buffers that a fork must not touch.

    Args:
        tensors: all of them.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        some = [one for one in tensors if not is_lazy(one) and is_there(one)]
        self._trained = [one for one in some if one.is_leaf and one.requires_grad]
        self._buffers = [one for one in some if not isinstance(one, Parameter)]

    @contextmanager
    def spared(self) -> Iterator[None]:
        """Put back what is touched inside.

        Raises:
            ReachedOriginalError: something was.
        """
        gradients = [one.grad for one in self._trained]
        buffers = [(one, alike(one)) for one in self._buffers]
        reached = False
        try:
            self._set([None] * len(gradients))
            yield
        finally:
            reached = any(one.grad is not None for one in self._trained)
            self._set(gradients)
            for one, before in buffers:
                if not equal_bits(one, before):  # no version tells of it: a batch norm changes its statistics without one
                    reached = True
                    without_autograd(one.copy_, before)
        if reached:
            raise ReachedOriginalError

    def _set(self, gradients: list[Tensor | None]) -> None:
        for one, gradient in zip(self._trained, gradients, strict=True):
            one.grad = gradient


@contextmanager
def untouched(things: TrainedThings) -> Iterator[None]:
    """Put back what is done inside to a training: to weights and buffers, to settings of optimizers and of modules.

    Raises:
        ReachedOriginalError: something was done.
    """
    tensors = [(one, alike(one)) for one in things.tensors() if not is_lazy(one) and is_there(one)]
    groups = [group for optimizer in things.optimizers for group in optimizer.param_groups]
    held = [*groups, *(stores.contents(module) for module in things.modules().values())]
    settings = [(one, {name: value for name, value in one.items() if type(value) in PLAIN}) for one in held]
    try:
        yield
    finally:
        changed = [(one, before) for one, before in tensors if not equal_bits(one, before)]
        for one, before in changed:
            without_autograd(one.copy_, before)
        others = [(one, before) for one, before in settings if any(one.get(name) != value for name, value in before.items())]
        for place, known in others:
            place.update(known)
    if changed or others:
        raise ReachedOriginalError
