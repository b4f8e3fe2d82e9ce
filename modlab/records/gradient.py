"""The gradients of a model at one moment: what stands in each parameter's ``.grad``, and what came back through outputs."""

from __future__ import annotations

from modlab.frozen import frozen
from modlab.records.tensor import TensorStats


@frozen
class GradientRecord:
    """The gradient of one parameter.

    Attributes:
        path: the parameter's dotted name.
        owner: that of its module.
        trainable: it requires a gradient.
        stats: of its ``.grad``; None where there is none.
        relative: the L2 norm of the gradient over that of the parameter; None where one is not known or zero.
    """

    path: str
    owner: str
    trainable: bool
    stats: TensorStats | None = None
    relative: float | None = None


@frozen
class GradientTable:
    """Those of all parameters, in the order of the model; a tied one once."""

    title: str
    modules: tuple[str, ...]
    rows: tuple[GradientRecord, ...]
