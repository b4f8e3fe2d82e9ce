"""A batch and a loss: what was passed in, how the model is called with it, and the tensors in inputs and outputs."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Module

from modlab import format
from modlab.errors import BatchError
from modlab.inspection import stores
from modlab.running.values import mapped
from modlab.statistics import memory
from modlab.statistics.memory import is_gone

CALL = "modlab.diagnose(model, batch=(inputs, target), loss=nn.CrossEntropyLoss())"
DEPTH = 8


def require(batch: Any, loss: Any, call: str = CALL) -> tuple[Any, Any] | None:
    """The inputs and the target; None if neither a batch nor a loss was given.

    Args:
        batch: what was given for it.
        loss: and for that.
        call: a right call, for the error.

    Raises:
        BatchError: only one of them was given, or one has the wrong type.
    """
    if batch is None and loss is None:
        return None
    asked = f"{call.partition('(')[0]}()"
    if batch is None:
        raise BatchError(f"{asked} got loss= but no batch= to compute it on.\n  Write: {call}")
    if not issubclass(type(batch), (tuple, list)) or len(batch) != 2:
        raise BatchError(
            f"batch= got {said(batch)}, but needs a pair: the model's input, and what the loss compares its output with.\n"
            f"  Write: {_written(batch, call)}\n"
            f"  Pass several inputs as a tuple, batch=((x, mask), target); or by name as a dict, batch=({{'x': x, 'mask': mask}}, target)."
        )
    if loss is None:
        raise BatchError(f"{asked} got batch= but no loss= to compare output and target.\n  Write: {call}")
    if issubclass(type(loss), type) and issubclass(loss, Module):
        raise BatchError(f"loss= got the class {loss.__name__} itself, but needs an instance.\n  Write: loss=nn.{loss.__name__}()")
    if not callable(loss):
        raise BatchError(
            f"loss= got {said(loss)}, but needs something that takes output and target and returns one number.\n  Write: {call}"
        )
    return batch[0], batch[1]


def _written(batch: Any, call: str) -> str:
    """A right call, for what was given as a batch."""
    if issubclass(type(batch), Mapping):
        own = "loss=lambda output, target: output['loss'])  # if the model computes its loss"
        return f"{call.partition('batch=')[0]}batch=(batch, None), {own}"
    loads = not issubclass(type(batch), (tuple, list, Tensor)) and hasattr(type(batch), "__iter__")
    return call.replace("batch=(inputs, target)", "batch=next(iter(loader))") if loads else call


def require_samples(pair: tuple[Any, Any] | None, call: str = CALL) -> None:
    """Ask for a sample: of none nothing can be said, and a mean over none is NaN.

    Raises:
        BatchError: the first input has no rows.
    """
    first = next((tensor for tensor in tensors(pair[0]) if not tensor.is_nested and tensor.dim()), None) if pair is not None else None
    if first is not None and not first.shape[0]:
        raise BatchError(
            f"batch= has no samples: its first input has the shape {tuple(first.shape)}.\n"
            f"  Look at where the batch is made (a filter that leaves nothing, the end of a data set), and give one with samples: {call}"
        )


def said(thing: Any) -> str:
    """What was given: ``a tuple of 3``, ``a Tensor``, ``None``."""
    if thing is None:
        return "None"
    kind = type(thing).__name__
    length = f" of {len(thing)}" if issubclass(type(thing), (tuple, list, dict)) else ""
    return f"{format.article(kind)}{length}"


def call(model: Module, inputs: Any) -> Any:
    """The model's output: a tuple or list is passed as positional arguments, a dict as keyword arguments, where forward takes them so.

    Where it does not, or for anything else, they are one argument.
    """
    if is_several(inputs) and (_takes(model, *_spread(inputs)) or not _takes(model, (inputs,), {})):
        args, kwargs = _spread(inputs)
        return model(*args, **kwargs)
    return model(inputs)


def is_several(inputs: Any) -> bool:
    """Whether inputs may stand for several arguments."""
    return type(inputs) in (tuple, list) or (issubclass(type(inputs), Mapping) and all(type(key) is str for key in inputs))


def wanted(model: Module, inputs: Any) -> tuple[str, ...] | None:
    """The names of what forward takes, where it takes these inputs neither as several arguments nor as one; else None."""
    if _takes(model, (inputs,), {}) or (is_several(inputs) and _takes(model, *_spread(inputs))):
        return None
    return tuple(inspect.signature(model.forward).parameters)


def _spread(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (tuple(inputs), {}) if type(inputs) in (tuple, list) else ((), dict(inputs))


def _takes(model: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether forward can be called so; where its signature is not known, it can."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def copied(thing: Any) -> Any:
    """The nest with its tensors copied: a model may change its input in place."""
    return mapped(thing, lambda tensor: tensor if is_gone(tensor) else memory.copied(tensor))


def tensors(thing: Any, depth: int = DEPTH) -> Iterator[Tensor]:
    """The tensors in a model's output, without those whose memory was freed; opens tuples, lists, mappings and dataclasses."""
    if issubclass(type(thing), Tensor):
        if not is_gone(thing):
            yield thing
    elif depth == 0:
        return
    elif issubclass(type(thing), Mapping):
        for part in thing.values():
            yield from tensors(part, depth - 1)
    elif issubclass(type(thing), (list, tuple)):
        for part in thing:
            yield from tensors(part, depth - 1)
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        for field in dataclasses.fields(thing):
            yield from tensors(getattr(thing, field.name, None), depth - 1)


def is_cross_entropy(loss: Any) -> bool:
    """Whether it is torch's own cross entropy, of scores or of log-probabilities."""
    return loss is F.cross_entropy or issubclass(type(loss), nn.CrossEntropyLoss) or is_likelihood(loss)


def is_likelihood(loss: Any) -> bool:
    """Whether it is torch's own negative log-likelihood, which takes log-probabilities."""
    return loss is F.nll_loss or issubclass(type(loss), nn.NLLLoss)


def roots(model: Module, loss: Any) -> tuple[Module, ...]:
    """The modules that a pass runs."""
    return (model, loss) if stores.is_module(loss) else (model,)
