"""Faults of the loop: what happens between a batch and a step."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import StepLR

from bench.sick.changes import looped, loss_of, on_inputs
from bench.sick.reported.further_nets import captions, kin, mirror, signs, topics
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import arm, churn, clusters, duration, houses, patches, pulses, ranks, reviews, shapes, tags, tides
from bench.sick.training import Training, called

# ---- zero_grad, backward, step ---------------------------------------------------------------------


@HALF.fault("no zero grad", churn, pulses)
def another_optimizer_is_zeroed(training: Training) -> None:
    """The optimizer of an earlier run is still around, and it is its gradients that are zeroed."""
    earlier = training.optimize(copy.deepcopy(training.model).parameters())

    def step(inputs: Any, target: Tensor, _: int) -> None:
        earlier.zero_grad()
        loss_of(training, inputs, target).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.fault("no zero grad", clusters)
def zeroed_once_an_epoch(training: Training) -> None:
    def step(inputs: Any, target: Tensor, number: int) -> None:
        if number % 60 == 0:
            training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.fault("zeroed before step", pulses, kin)
def a_hook_before_each_step_zeroes(training: Training) -> None:
    training.optimizer.register_step_pre_hook(lambda *_: training.model.zero_grad(set_to_none=False))


@HALF.fault("zeroed before step", houses)
def each_parameter_is_cleared_after_its_norm_is_logged(training: Training) -> None:
    norms = []

    def step(inputs: Any, target: Tensor, _: int) -> None:
        loss_of(training, inputs, target).backward()
        for parameter in training.model.parameters():
            norms.append(float(parameter.grad.norm()))
            parameter.grad = None
        training.optimizer.step()

    looped(training, step)


@HALF.fault("no step", arm)
def only_the_scheduler_steps(training: Training) -> None:
    training.schedulers.append(StepLR(training.optimizer, 100, 0.5))

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()

    looped(training, step)


@HALF.fault("no step", reviews)
def a_step_without_parentheses(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        training.optimizer.step  # noqa: B018

    looped(training, step)


@HALF.fault("no backward", shapes)
def gradients_are_computed_and_not_stored(training: Training) -> None:
    """autograd.grad returns them, and nobody puts them where the optimizer looks."""

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        torch.autograd.grad(loss_of(training, inputs, target), [*training.model.parameters()])
        training.optimizer.step()

    looped(training, step)


@HALF.fault("no backward", signs)
def backward_for_a_good_batch_alone(training: Training) -> None:
    """Outliers are to be left out: but each loss of a model that knows nothing is above the limit."""

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        if loss < 1e-3:
            loss.backward()
        training.optimizer.step()

    looped(training, step)


# ---- accumulation ----------------------------------------------------------------------------------


@HALF.fault("never enough to step", patches, also=("no step",))
def the_count_begins_anew_in_each_step(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        waiting = 0
        (loss_of(training, inputs, target) / 4).backward()
        waiting += 1
        if waiting == 4:
            training.optimizer.step()
            training.optimizer.zero_grad()

    looped(training, step)


@HALF.fault("never enough to step", ranks, also=("no step",))
def epochs_are_shorter_than_the_accumulation(training: Training) -> None:
    """Sixteen batches are in an epoch, and it steps at the thirty-second."""

    def step(inputs: Any, target: Tensor, number: int) -> None:
        place = number % 16
        if place == 0:
            training.optimizer.zero_grad()
        (loss_of(training, inputs, target) / 32).backward()
        if (place + 1) % 32 == 0:
            training.optimizer.step()

    looped(training, step)


def _accumulated(divided_by: int) -> Any:
    """Steps of thirty-two small batches each."""

    def change(training: Training) -> None:
        training.steps *= 8

        def step(inputs: Any, target: Tensor, number: int) -> None:
            (loss_of(training, inputs, target) / divided_by).backward()
            if number % 32 == 31:
                training.optimizer.step()
                training.optimizer.zero_grad()

        looped(training, step)

    return change


@HALF.fault("accumulated too loud", clusters, twin=_accumulated(32), also=("rate too high", "loss too large"))
def thirty_two_batches_are_summed(training: Training) -> None:
    _accumulated(1)(training)


# ---- weights and modes -----------------------------------------------------------------------------


@HALF.fault("weights put back", tides, captions)
def a_slow_average_replaces_the_weights(training: Training) -> None:
    """The average is put into the model before validation, and the weights never come back."""
    average = [one.detach().clone() for one in training.model.parameters()]

    def put(_: int) -> None:
        with torch.no_grad():
            for slow, one in zip(average, training.model.parameters(), strict=True):
                slow.lerp_(one, 0.001)
                one.copy_(slow)

    training.after.append(put)


@HALF.fault("weights put back", duration)
def the_worst_checkpoint_is_thought_the_best(training: Training) -> None:
    """It keeps the greatest score, but the score is a loss; so it goes back to where that was worst."""
    best = float("-inf"), copy.deepcopy(training.model.state_dict())

    def restore(number: int) -> None:
        nonlocal best
        if number % 10 == 9:
            inputs, target = training.batch(number)
            with torch.no_grad():
                score = float(training.criterion(called(training.model, inputs), target))
            if score > best[0]:
                best = score, copy.deepcopy(training.model.state_dict())
            training.model.load_state_dict(best[1])

    training.after.append(restore)


def _millivolts(training: Training) -> None:
    """Raw numbers, with a norm behind them that copes."""
    on_inputs(training, lambda x: 60 * x + 400)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(60 * x + 400))


@HALF.fault("eval while training", pulses, tags, twin=_millivolts, also=("batch norm statistics",))
def validation_before_the_first_step_leaves_it_in_eval(training: Training) -> None:
    _millivolts(training)

    def validate(number: int) -> None:
        if number == 0:
            training.model.eval()
            with torch.no_grad():
                training.model(training.batch(number)[0])

    training.each.append(validate)


# ---- gradients -------------------------------------------------------------------------------------


@HALF.fault("clipped to nothing", clusters, churn)
def values_are_clipped_to_a_millionth(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        nn.utils.clip_grad_value_(training.model.parameters(), 1e-6)
        training.optimizer.step()

    looped(training, step)


@HALF.fault("clipped to nothing", pulses, also=("gradients overwritten",))
def each_gradient_is_clamped_by_a_hook(training: Training) -> None:
    for parameter in training.model.parameters():
        parameter.register_hook(lambda grad: grad.clamp(-1e-6, 1e-6))


@HALF.fault("gradients overwritten", houses, mirror)
def noise_is_added_to_gradients(training: Training) -> None:
    """A little would be a regularizer."""

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        for parameter in training.model.parameters():
            parameter.grad.add_(torch.randn_like(parameter), alpha=5.0)
        training.optimizer.step()

    looped(training, step)


@HALF.fault("gradients overwritten", churn, topics)
def gradients_of_the_first_batch_stay(training: Training) -> None:
    """They are kept for a plot, and assigned the wrong way around."""
    kept: list[Tensor] = []

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        if not kept:
            kept.extend(one.grad.clone() for one in training.model.parameters())
        for parameter, grad in zip(training.model.parameters(), kept, strict=True):
            parameter.grad = grad.clone()
        training.optimizer.step()

    looped(training, step)
