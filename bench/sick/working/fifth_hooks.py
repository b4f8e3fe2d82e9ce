"""Faults of the loop, the optimizer and the numbers by other ways: hooks, closures, functions of autograd, lines after a step."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import Lambda, looped, loss_of, on_loss, on_options
from bench.sick.training import Training, called
from bench.sick.working.fourth_nets import homes
from bench.sick.working.half import HALF
from bench.sick.working.nets import bars, bars_model, dot, spirals, wave, wave_model

LOUD = ("rate too high", "not finite by the rate")


# ---- the loop --------------------------------------------------------------------------------------


@HALF.fault("no zero grad", homes, also=LOUD)
def a_closure_that_forgets(training: Training) -> None:
    on_options(training, lr=0.02)

    def step(inputs: Any, target: Tensor, _: int) -> None:
        def closure() -> Tensor:
            loss = loss_of(training, inputs, target)
            loss.backward()
            return loss

        training.optimizer.step(closure)  # type: ignore[arg-type]

    looped(training, step)


@HALF.fault("zeroed before step", spirals)
def a_hook_before_the_step_zeroes(training: Training) -> None:
    training.optimizer.register_step_pre_hook(lambda optimizer, *_: optimizer.zero_grad())


@HALF.fault("gradients overwritten", wave)
def hooks_round_gradients(training: Training) -> None:
    for one in training.model.parameters():
        one.register_hook(lambda gradient: gradient.round())


@HALF.fault("gradients overwritten", bars, also=("clipped to nothing", "loss too small"))
def hooks_scale_gradients_away(training: Training) -> None:
    on_options(training, eps=1e-3)
    for one in training.model.parameters():
        one.register_hook(lambda gradient: gradient * 1e-7)


@HALF.fault("gradients overwritten", dot)
def all_get_the_mean_of_their_gradient(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        for one in training.model.parameters():
            if one.grad is not None:
                one.grad.fill_(one.grad.mean())
        training.optimizer.step()

    looped(training, step)


@HALF.fault("clipped to nothing", wave)
def clamped_by_a_hook(training: Training) -> None:
    for one in training.model.parameters():
        one.register_hook(lambda gradient: gradient.clamp(-1e-5, 1e-5))


@HALF.fault("weights put back", spirals, also=("too few digits",))
def rounded_after_each_step(training: Training) -> None:
    """Weights are kept to one digit."""

    def tidy(*_: Any) -> None:
        with torch.no_grad():
            for one in training.model.parameters():
                one.copy_((one * 10).round() / 10)

    on_options(training, lr=0.003)
    training.optimizer.register_step_post_hook(tidy)


@HALF.fault("weights put back", dot)
def kept_weights_loaded_each_epoch(training: Training) -> None:
    kept = {name: one.clone() for name, one in training.model.state_dict().items()}
    training.each.append(lambda number: number % 5 == 0 and training.model.load_state_dict(kept))


# ---- the optimizer ---------------------------------------------------------------------------------


@HALF.fault("too much decay", wave)
def a_penalty_of_squares_by_hand(training: Training) -> None:
    on_loss(training, lambda loss: loss + 0.5 * sum(one.square().sum() for one in training.model.parameters()))


@HALF.fault("too much decay", spirals)
def shrunk_after_each_step(training: Training) -> None:
    def shrink(_: int) -> None:
        with torch.no_grad():
            for one in training.model.parameters():
                one.mul_(0.9)

    training.after.append(shrink)


@HALF.fault("rate runs out", dot)
def halved_in_each_step(training: Training) -> None:
    def halve(_: int) -> None:
        for group in training.optimizer.param_groups:
            group["lr"] *= 0.5

    training.after.append(halve)


@HALF.fault("warmup never ends", wave, also=("rate too low",))
def a_rate_of_the_step_over_a_million(training: Training) -> None:
    def warm(number: int) -> None:
        for group in training.optimizer.param_groups:
            group["lr"] = 0.05 * (number + 1) / 1_000_000

    training.each.append(warm)


# ---- the model -------------------------------------------------------------------------------------


class _Step(torch.autograd.Function):
    """A threshold without a straight way back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return torch.zeros_like(gradients[0])


@HALF.fault("no gradient through", wave)
def a_function_with_nothing_on_the_way_back(training: Training) -> None:
    training.use(wave_model(activation=partial(Lambda, _Step.apply)))


class _Fresh(nn.Module):
    """Makes its middle layer in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 32), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(nn.Linear(32, 32)(F.relu(self.first(x)))))


@HALF.fault("hidden layers", wave)
def a_layer_made_in_each_call(training: Training) -> None:
    training.use(_Fresh())


@HALF.fault("dead units", bars, also=("weights begin too large",))
def thresholds_far_below_zero(training: Training) -> None:
    training.use(bars_model(norm=nn.Identity))
    with torch.no_grad():
        for one in training.model.modules():
            if isinstance(one, nn.Conv2d) and one.bias is not None:
                one.bias.fill_(-8.0)


# ---- the loss and numbers --------------------------------------------------------------------------


@HALF.fault("root of zero", dot)
def a_distance_that_can_be_zero(training: Training) -> None:
    """Pairs of a batch, with themselves."""

    def loss(output: Tensor, target: Tensor) -> Tensor:
        apart = (output[:, None] - output[None]).square().sum(-1).sqrt()
        return F.mse_loss(output, target) + 0.01 * apart.mean()

    training.criterion = loss


@HALF.fault("division by zero", wave)
def weighed_by_the_target(training: Training) -> None:
    batch = training.batch
    training.batch = lambda number: (lambda x, y: (x, torch.where(y.abs() < 0.3, torch.zeros_like(y), y)))(*batch(number))
    training.criterion = lambda output, target: ((output - target).abs() / target.abs()).mean()


@HALF.fault("overflow", wave)
def a_softplus_by_hand(training: Training) -> None:
    training.use(wave_model(activation=partial(Lambda, lambda x: torch.log(1 + torch.exp(20 * x)) / 20)))
    with torch.no_grad():
        training.model[0].weight.mul_(5)  # type: ignore[index, operator, union-attr]


@HALF.fault("constant loss", spirals)
def the_loss_of_the_label_itself(training: Training) -> None:
    training.criterion = lambda output, target: F.cross_entropy(output * 0 + F.one_hot(target, 3), target)


@HALF.fault("wrong sign", dot, also=("rate too high", "not finite by the rate"))
def a_likelihood_without_its_minus(training: Training) -> None:
    training.criterion = lambda output, target: torch.exp(-(output - target).square()).mean()


# ---- strange, and healthy --------------------------------------------------------------------------


@HALF.strange(homes, spirals)
def a_closure_as_it_should_be(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        def closure() -> Tensor:
            training.optimizer.zero_grad()
            loss = training.criterion(called(training.model, inputs), target)
            loss.backward()
            return loss

        training.optimizer.step(closure)  # type: ignore[arg-type]

    looped(training, step)


@HALF.strange(wave, bars)
def hooks_that_clamp_loud_gradients(training: Training) -> None:
    for one in training.model.parameters():
        one.register_hook(lambda gradient: gradient.clamp(-1, 1))


@HALF.strange(dot)
def weights_kept_within_bounds(training: Training) -> None:
    def keep(_: int) -> None:
        with torch.no_grad():
            for one in training.model.parameters():
                one.clamp_(-2, 2)

    training.after.append(keep)
