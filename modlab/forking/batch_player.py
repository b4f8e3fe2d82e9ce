"""The player of one batch, where no steps of a training were kept: a copy of the model trains on it, from the present state on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn import Module

from modlab.forking.kept_states import KeptState, TrainedThings
from modlab.forking.module_settings import named_modules
from modlab.forking.originals import Originals
from modlab.forking.player import NARROW, Player
from modlab.forking.tape import PlaceNumbers, TapedStep
from modlab.inspection import stores
from modlab.inspection.optimizers import step_all
from modlab.records.finding import Fact
from modlab.running.randomness import referred
from modlab.running.values import mapped
from modlab.statistics.memory import copied

RATE = 1e-3
"""The learning rate of the optimizer that is taken where none was given."""


class BatchPlayer(Player):
    """Trains on one batch.

    Args:
        state: where it begins.
        forward: calls a model with a fresh copy of the batch, and gives its loss; the last one says whether 16 bits are widened.
        loss: what it calls for that, where it refers to random generators of its own.
    """

    zeroes = True

    def __init__(self, state: KeptState, forward: Callable[[Module, Module | None, bool], Any], loss: Any) -> None:
        super().__init__(state, set())
        self._private += referred((loss,))
        self._forward = forward

    def play(self, step: TapedStep) -> None:
        """Make one step."""
        torch.set_grad_enabled(True)
        self.losses = {}
        step_all(self.things.optimizers, self._evaluate)

    def _evaluate(self) -> Any:
        """The loss, with its gradients; what the step begins with counts."""
        things = self.things
        for optimizer in things.optimizers:
            optimizer.zero_grad()
        loss = self._forward(things.model, things.beside.get("loss"), self.wide)
        self.losses.setdefault(0, copied(loss))
        scaled = loss if self.loss_factor == 1 else loss * self.loss_factor
        scaled.backward()
        return scaled


def widened(thing: Any) -> Any:
    """The nest with what is 16 bits wide in float32."""
    return mapped(thing, lambda tensor: tensor.float() if tensor.dtype in NARROW else tensor)


def _told(model: Module, modes: Mapping[str, bool]) -> dict[str, Fact]:
    """What to say of the modes, where they are no longer those of the training, or where the present ones may not be."""
    if not modes:
        return {} if stores.mode(model) else {"mode": "as the model"}
    others = [one for path, one in named_modules([("", model)]).items() if stores.mode(one) is not modes.get(path, stores.mode(one))]
    return {"mode": "as in its steps"} if others else {}


def _set_modes(things: TrainedThings, modes: Mapping[str, bool]) -> None:
    """Put copies into these modes. First by the model's own `train`, which may do more than that."""
    if "" in modes and stores.mode(things.model) is not modes[""]:
        things.model.train(modes[""])
    for path, module in named_modules([("", things.model)]).items():
        if path in modes and stores.mode(module) is not modes[path]:
            module.training = modes[path]


class BatchGround:
    """The present state of a model, with a batch and a loss.

    Args:
        model: the model; it is copied.
        optimizers: copied as well; none: Adam.
        loss: called with an output and the target.
        forward: calls a model, and a loss, with a fresh copy of the batch; the last one says whether 16 bits are widened.
        most: steps that can be made.
        modes: which modules were in training mode in the training's steps, by path, as far as that is known.
    """

    began, kind = 0, "batch"

    def __init__(
        self,
        model: Module,
        optimizers: list[Any],
        loss: Any,
        forward: Callable[[Module, Any, bool], Any],
        most: int,
        modes: Mapping[str, bool] | None = None,
    ) -> None:
        held = {"loss": loss} if stores.is_module(loss) else {}
        trained = [one for one in model.parameters() if one.requires_grad] or [*model.parameters()]
        given = optimizers or [torch.optim.Adam(trained, RATE)]
        self.facts: Mapping[str, Fact] = {**({} if optimizers else {"rate": RATE}), **_told(model, modes or {})}
        things = TrainedThings(model, given, held)
        self._state = KeptState(0, things, PlaceNumbers(), (0.0, 0.0))
        _set_modes(self._state.things, modes or {})
        self._forward, self._loss, self._most = forward, loss, most
        self._things = things
        self.beside = Originals(things.tensors()).spared

    def original(self) -> TrainedThings:
        """The training itself."""
        return self._things

    def player(self) -> Player:
        """A copy of the training at its beginning."""
        return BatchPlayer(self._state, lambda model, loss, wide: self._forward(model, loss or self._loss, wide), self._loss)

    def steps(self) -> Iterator[TapedStep]:
        """Steps without a tape."""
        return (TapedStep(number, number + 1, []) for number in range(self._most))
