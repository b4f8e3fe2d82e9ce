"""Faults of the loop and of the optimizer."""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, StepLR

from bench.sick.changes import looped, loss_of, on_inputs, on_options
from bench.sick.training import Training, plain_step
from bench.sick.working.half import HALF
from bench.sick.working.nets import bars, basket, chances, counting, curves, dot, inside, majority, marked, ratings, recall, spirals, wave

# ---- the loop --------------------------------------------------------------------------------------


@HALF.fault("no zero grad", wave, dot, marked)
def gradients_add_up(training: Training) -> None:
    def step(inputs: object, target: Tensor, _: int) -> None:
        loss_of(training, inputs, target).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.fault("zeroed before step", dot, counting, ratings)
def zero_grad_after_backward(training: Training) -> None:
    def step(inputs: object, target: Tensor, _: int) -> None:
        loss_of(training, inputs, target).backward()
        training.optimizer.zero_grad(set_to_none=False)
        training.optimizer.step()

    looped(training, step)


@HALF.fault("no step", spirals, majority)
def step_is_forgotten(training: Training) -> None:
    def step(inputs: object, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()

    looped(training, step)


@HALF.fault("no backward", wave, curves)
def backward_is_forgotten(training: Training) -> None:
    def step(inputs: object, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target)
        training.optimizer.step()

    looped(training, step)


@HALF.fault("never enough to step", bars, basket)
def accumulates_for_ever(training: Training) -> None:
    def step(inputs: object, target: Tensor, number: int) -> None:
        (loss_of(training, inputs, target) / 8).backward()
        if (number + 1) % 10_000 == 0:
            training.optimizer.step()
            training.optimizer.zero_grad()

    looped(training, step)


def _accumulating(divided: bool) -> object:
    def change(training: Training) -> None:
        training.steps *= 4

        def step(inputs: object, target: Tensor, number: int) -> None:
            loss = loss_of(training, inputs, target)
            (loss / 16 if divided else loss).backward()
            if (number + 1) % 16 == 0:
                training.optimizer.step()
                training.optimizer.zero_grad()

        looped(training, step)

    return change


@HALF.fault("accumulated too loud", dot, wave, twin=_accumulating(divided=True), also=("rate too high",))
def accumulates_without_dividing(training: Training) -> None:
    _accumulating(divided=False)(training)


@HALF.fault("weights put back", spirals, recall)
def checkpoint_loaded_after_each_step(training: Training) -> None:
    best = copy.deepcopy(training.model.state_dict())
    training.after.append(lambda _: training.model.load_state_dict(best))


def _far_away(training: Training) -> None:
    on_inputs(training, lambda x: 40 * x + 200)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(40 * x + 200))


@HALF.fault("eval while training", bars, twin=_far_away)
def evaluated_once_and_never_back(training: Training) -> None:
    _far_away(training)
    training.each.append(lambda number: training.model.eval())


@HALF.fault("clipped to nothing", wave, dot)
def clipped_to_a_thousandth(training: Training) -> None:
    training.clip = 1e-5


@HALF.fault("gradients overwritten", wave, counting)
def hooks_replace_gradients(training: Training) -> None:
    for parameter in training.model.parameters():
        parameter.register_hook(torch.randn_like)


@HALF.fault("gradients overwritten", bars)
def gradients_filled_with_zeros(training: Training) -> None:
    for parameter in training.model.parameters():
        parameter.register_hook(torch.zeros_like)


# ---- the optimizer ---------------------------------------------------------------------------------


@HALF.fault("rate too high", wave, dot, also=("not finite by the rate",))
def rate_of_ten(training: Training) -> None:
    on_options(training, lr=10.0)


@HALF.fault("rate too high", spirals, counting, bars)
def rate_of_two(training: Training) -> None:
    on_options(training, lr=2.0)


@HALF.fault("rate too low", wave, bars, marked, ratings)
def rate_of_a_millionth(training: Training) -> None:
    on_options(training, lr=1e-6)


@HALF.fault("rate runs out", spirals, counting)
def rate_halved_every_third_batch(training: Training) -> None:
    training.schedulers.append(StepLR(training.optimizer, 3, 0.5))


@HALF.fault("rate runs out", dot)
def rate_shrinks_each_batch(training: Training) -> None:
    training.schedulers.append(ExponentialLR(training.optimizer, 0.8))


@HALF.fault("warmup never ends", majority, curves, dot)
def warm_up_of_a_million_steps(training: Training) -> None:
    training.schedulers.append(LambdaLR(training.optimizer, lambda step: min(1.0, (step + 1) / 1_000_000)))


@HALF.fault("too much momentum", wave, dot, also=("rate too high",))
def momentum_of_nearly_one(training: Training) -> None:
    on_options(training, momentum=0.9995)


@HALF.fault("too much decay", counting, curves, spirals, ratings)
def decay_of_one(training: Training) -> None:
    on_options(training, weight_decay=1.0)


@HALF.fault("not in the optimizer", recall, counting)
def only_the_head_is_given(training: Training) -> None:
    training.optimizer = training.optimize(training.model.head.parameters())


@HALF.fault("not in the optimizer", bars)
def only_the_biases_are_given(training: Training) -> None:
    training.optimizer = training.optimize([one for name, one in training.model.named_parameters() if name.endswith("bias")])


@HALF.fault("another models optimizer", wave, majority, chances)
def optimizer_of_a_copy(training: Training) -> None:
    training.model = copy.deepcopy(training.model)


@HALF.fault("two optimizers", wave, dot, also=("rate too high",))
def a_second_optimizer_with_a_large_rate(training: Training) -> None:
    second = torch.optim.Adam(training.model.parameters(), lr=0.5)
    training.others = (second,)

    def step(training: Training, number: int) -> None:
        plain_step(training, number)
        second.step()

    training.step = step


@HALF.fault("two optimizers", inside)
def a_second_optimizer_that_maximizes(training: Training) -> None:
    second = torch.optim.Adam(training.model.parameters(), lr=0.01, maximize=True)
    training.others = (second,)

    def step(training: Training, number: int) -> None:
        plain_step(training, number)
        second.step()

    training.step = step


@HALF.fault("groups swapped", wave, spirals, also=("rate too low",))
def tiny_rate_for_the_body(training: Training) -> None:
    body, head = [*training.model.parameters()][:-2], [*training.model.parameters()][-2:]
    rate = training.optimizer.param_groups[0]["lr"]
    training.optimizer = training.optimize([{"params": body, "lr": rate / 100_000}, {"params": head}])
