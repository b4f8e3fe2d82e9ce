"""The dimension of a softmax between a model and its loss: it must be that of the classes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from modlab.compat import FunctionMode
from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.records.finding import ExperimentRecord, Remedy

SOFTMAXES = frozenset(
    (F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, Tensor.softmax, Tensor.log_softmax, torch.logsumexp, Tensor.logsumexp)
)


class Softmaxes(FunctionMode):
    """Observes a pass and its loss: each softmax, with the shape that it gets and its dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[tuple[int, ...], int, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function unchanged, and look at its arguments."""
        kwargs = kwargs or {}
        first = args[0] if args else kwargs.get("input")
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if func in SOFTMAXES and issubclass(type(first), Tensor) and type(dim) is int and first.dim():
            self.found.append((tuple(first.shape), dim % first.dim(), func.__name__))
        return func(*args, **kwargs)


def softmax(bench: Bench) -> ExperimentRecord:
    """A softmax over scores for a target of classes runs over these classes."""
    target = bench.target
    if not issubclass(type(target), Tensor) or target.is_floating_point() or not target.dim():
        raise NotRunError("no classes")
    with torch.no_grad(), (seen := Softmaxes()):
        output = bench.output()
        bench.value(output)
    scores = next((one for one in batches.tensors(output) if one.dim() == target.dim() + 1), None)
    if scores is None:
        raise NotRunError("no classes")
    shape, labels = tuple(scores.shape), tuple(target.shape)
    fitting = [dim for dim in range(len(shape)) if shape[:dim] + shape[dim + 1 :] == labels]
    asked = [(dim, name) for found, dim, name in seen.found if found == shape]
    wrong = next((one for one in reversed(asked) if one[0] not in fitting), None)
    if not fitting or not asked:
        raise NotRunError("no classes")
    if wrong is None:
        return record("softmax", "passed", "adds up over classes")
    kind = "softmax over the wrong dimension"
    facts: dict[str, Any] = {"function": wrong[1], "dim": wrong[0], "shape": shape, "right": fitting[-1], "batch": int(wrong[0] == 0)}
    return record("softmax", "failed", kind, Remedy(code=f"{wrong[1]}(..., dim={fitting[-1]})"), **facts)
