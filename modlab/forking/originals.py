"""The originals while a fork runs: a model's code may reach the model by another name (a global variable) than the one that is copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor
from torch.nn import Parameter
from torch.nn.parameter import is_lazy

from modlab.compat import without_autograd
from modlab.forking.tape import alike
from modlab.inspection.tensor_difference import equal_bits
from modlab.statistics.memory import is_there


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
