"""What a change reaches that is not the copy, and what is no change at all: it is put back, or refused in words that help."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from modlab import errors as modlab_errors
from tests.forking.test_forks import small, trained, watched
from tests.watching.test_identity import Run


def of_adam() -> Run:
    model = small(nn.BatchNorm1d(8), nn.Dropout(0.2))
    model[0].scales = {"by": [1.0, 2.0]}  # type: ignore[assignment]
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.Adam(model.parameters(), 0.01))


def to_none(model: Any, _: Any) -> None:
    for one in model.parameters():
        one.grad = torch.ones_like(one)


REACHED: dict[str, Callable[[Any, Any], Any]] = {
    "the state of the optimizer": lambda _, optimizer: optimizer.state.clear(),
    "a moment": lambda model, optimizer: optimizer.state[model[0].weight]["exp_avg"].zero_(),
    "a state that is loaded": lambda _, optimizer: optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict())),
    "a group": lambda _, optimizer: optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]}),
    "frozen": lambda model, _: model[0].requires_grad_(False),
    "another dtype": lambda model, _: model.half(),
    "a module more": lambda model, _: model.append(nn.ReLU()),
    "another module": lambda model, _: model.__setitem__(1, nn.ReLU()),
    "another parameter": lambda model, _: setattr(model[0], "weight", nn.Parameter(torch.ones(8, 4))),
    "no parameter": lambda model, _: model[0].register_parameter("bias", None),
    "another buffer": lambda model, _: setattr(model[2], "running_mean", torch.ones(8)),
    "other memory": lambda model, _: setattr(model[0].weight, "data", torch.ones(8, 4)),
    "a hook": lambda model, _: model.register_forward_hook(lambda *_: None),
    "a hook on a gradient": lambda model, _: model[0].weight.register_hook(lambda gradient: 2 * gradient),
    "a second hook on a gradient": lambda model, _: model[4].weight.register_hook(lambda gradient: 2 * gradient),
    "gradients": to_none,
    "an attribute": lambda model, _: setattr(model[0], "factor", 3),
    "what an attribute holds": lambda model, _: model[0].scales["by"].append(3.0),
    "another class": lambda model, _: setattr(model[1], "__class__", nn.ReLU),
    "another forward": lambda model, _: setattr(model, "forward", torch.relu),
}


def photograph(model: Any, optimizer: Any) -> list[Any]:
    """All that a training is, in plain numbers and identities."""
    modules = [(id(one), type(one), {**vars(one)}, [*one._forward_hooks.values()]) for one in model.modules()]
    tensors = [
        (id(one), one.dtype, one.requires_grad, one.data_ptr(), one.tolist(), [*(one._backward_hooks or {}).values()])
        for one in (*model.parameters(), *model.buffers())
    ]
    gradients = [None if one.grad is None else one.grad.tolist() for one in model.parameters()]
    held = copy.deepcopy(optimizer.state_dict())
    moments = [[(name, torch.as_tensor(value).tolist()) for name, value in state.items()] for state in held["state"].values()]
    return [modules, tensors, gradients, held["param_groups"], moments, str(model[0].scales), [*map(id, optimizer.state)]]


@pytest.mark.parametrize("raises", [False, True], ids=["alone", "and it raises"])
@pytest.mark.parametrize("name", REACHED)
def test_what_a_change_does_to_the_original_is_put_back(name: str, raises: bool) -> None:
    w, model, (optimizer,), _ = watched(of_adam)
    model.get_submodule("4").weight.register_hook(lambda gradient: gradient)  # type: ignore[union-attr, operator]
    before = photograph(model, optimizer)

    def change(_: Any) -> None:
        REACHED[name](model, optimizer)
        if raises:
            raise KeyError("mine")

    said = (
        "raised KeyError: 'mine'\n  Model and optimizer of the training are as they were"
        if raises
        else "on the training itself, which is put"
    )
    with pytest.raises(modlab_errors.ForkError, match=said):
        w.fork(10, change)
    assert photograph(model, optimizer) == before
    assert w.fork(10).exact


def with_a_table() -> Run:
    model = small()
    model[0].table = np.ones(3)  # type: ignore[assignment]
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), 0.1))


def sealed(table: Any) -> None:
    table += 1
    table.flags.writeable = False


LOST: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sealed": (sealed, "ValueError: assignment destination is read-only"),
    "resized": (lambda table: table.resize(5, refcheck=False), "something in it has changed its shape"),
}


@pytest.mark.parametrize("raises", [False, True], ids=["alone", "and it raises"])
@pytest.mark.parametrize("name", LOST)
def test_what_cannot_be_put_back_is_said(name: str, raises: bool) -> None:
    w, model, _, _ = watched(with_a_table)
    spoil, why = LOST[name]

    def change(_: Any) -> None:
        spoil(model.get_submodule("0").table)
        if raises:
            raise KeyError("mine")

    with pytest.raises(modlab_errors.ForkError, match=f"itself, and not all of it could be put back: {why}\n  Begin anew"):
        w.fork(10, change)
