"""Strange, but healthy: what a good engineer does, and what an alarm must not cry at."""

from __future__ import annotations

import copy
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR

from bench.sick.changes import looped, loss_of, on_inputs, on_loss, on_options, replaced
from bench.sick.training import Training, plain_step
from bench.sick.working.half import HALF
from bench.sick.working.nets import (
    Autoencoder,
    bars,
    basket,
    chances,
    counting,
    curves,
    dot,
    inside,
    majority,
    marked,
    ratings,
    recall,
    spirals,
    views,
    wave,
)


@HALF.strange(wave, spirals, counting)
def warm_up(training: Training) -> None:
    training.schedulers.append(LambdaLR(training.optimizer, lambda step: min(1.0, (step + 1) / 50)))


@HALF.strange(bars, marked)
def cosine_to_nothing(training: Training) -> None:
    training.schedulers.append(CosineAnnealingLR(training.optimizer, training.steps))


@HALF.strange(spirals, majority)
def one_cycle(training: Training) -> None:
    rate = training.optimizer.param_groups[0]["lr"]
    training.schedulers.append(OneCycleLR(training.optimizer, 2 * rate, total_steps=training.steps))


@HALF.strange(wave, dot, recall)
def accumulation(training: Training) -> None:
    training.steps *= 3

    def step(inputs: Tensor, target: Tensor, number: int) -> None:
        (loss_of(training, inputs, target) / 4).backward()
        if (number + 1) % 4 == 0:
            training.optimizer.step()
            training.optimizer.zero_grad()

    looped(training, step)


@HALF.strange(bars, basket)
def an_average_of_the_weights(training: Training) -> None:
    """An exponential moving average in a copy that never trains."""
    average = copy.deepcopy(training.model).requires_grad_(False)

    def follow(_: int) -> None:
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), training.model.parameters(), strict=True):
                slow.lerp_(fast, 0.05)

    training.after.append(follow)


@HALF.strange(dot, recall)
def first_layer_frozen_on_purpose(training: Training) -> None:
    """A feature extractor that stays as it is, and only what learns is given to the optimizer."""
    first = next(module for module in training.model.modules() if [*module.parameters(recurse=False)])
    first.requires_grad_(False)
    training.optimizer = training.optimize([one for one in training.model.parameters() if one.requires_grad])


@HALF.strange(wave, inside)
def sharpness_aware_steps(training: Training) -> None:
    """SAM: up the gradient, then down from there."""

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        kept = [one.detach().clone() for one in training.model.parameters()]
        with torch.no_grad():
            norm = sum(one.grad.square().sum() for one in training.model.parameters()).sqrt()
            for one in training.model.parameters():
                one += 0.02 * one.grad / (norm + 1e-12)
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        with torch.no_grad():
            for one, old in zip(training.model.parameters(), kept, strict=True):
                one.copy_(old)
        training.optimizer.step()

    looped(training, step)


@HALF.strange(wave, curves)
def lbfgs(training: Training) -> None:
    training.optimize = partial(torch.optim.LBFGS, lr=0.5, max_iter=4)
    training.use(training.model)
    inputs, target = (torch.cat(parts) for parts in zip(*(training.batch(number) for number in range(8)), strict=True))
    training.steps = 60

    def closure() -> Tensor:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        loss.backward()
        return loss

    training.step = lambda training, number: training.optimizer.step(closure)


@HALF.strange(spirals, majority)
def autocast_to_bfloat16(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(training, inputs, target)
        loss.backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(wave, dot)
def a_scaler_used_well(training: Training) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        scaler.scale(loss_of(training, inputs, target)).backward()
        scaler.unscale_(training.optimizer)
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        scaler.step(training.optimizer)
        scaler.update()

    looped(training, step)


@HALF.strange(curves)
def tied_weights(training: Training) -> None:
    class Tied(Autoencoder):
        def forward(self, x: Tensor) -> Tensor:
            h = self.encoder(x)
            h = F.relu(F.linear(h, self.encoder[2].weight.T, self.decoder[0].bias))
            return F.linear(h, self.encoder[0].weight.T, self.decoder[2].bias)

    net = Tied()
    net.decoder[0].weight, net.decoder[2].weight = None, None
    training.use(net)


class Experts(nn.Module):
    """Two experts; each sample is for one of them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.gate = nn.Linear(inputs, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(inputs, 24), nn.ReLU(), nn.Linear(24, outputs)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        weight, best = self.gate(x).softmax(1).max(1)
        out = torch.zeros(len(x), self.experts[0][2].out_features)
        for number, expert in enumerate(self.experts):
            rows = best == number
            if rows.any():
                out[rows] = expert(x[rows]) * weight[rows, None]
        return out


@HALF.strange(wave, spirals)
def experts(training: Training) -> None:
    training.use(Experts(2, training.model[-1].out_features))
    training.steps = 300


@HALF.strange(counting)
def stochastic_depth(training: Training) -> None:
    """A block is left out in one step of five."""
    layer = training.model.blocks.layers[1]
    forward = layer.forward
    layer.forward = lambda x, *rest, **named: x if layer.training and torch.rand(()) < 0.2 else forward(x, *rest, **named)


@HALF.strange(spirals, bars, inside)
def loss_below_zero(training: Training) -> None:
    """A reward for confidence moves the loss below zero."""
    on_loss(training, lambda loss: loss - 3)


@HALF.strange(ratings, marked)
def error_that_rounds_its_root(training: Training) -> None:
    on_loss(training, lambda loss: (loss + 1e-8).sqrt())


@HALF.strange(wave, recall)
def a_plateau_before_the_fall(training: Training) -> None:
    """Small weights: nothing happens for a while, and then all of it."""
    with torch.no_grad():
        for one in training.model.parameters():
            if one.dim() > 1:
                one *= 0.4
    training.steps = 400


@HALF.strange(dot, majority)
def clipped_each_step(training: Training) -> None:
    training.clip = 0.5


@HALF.strange(spirals, dot)
def half_of_the_units_dropped(training: Training) -> None:
    *body, head = training.model
    training.use(nn.Sequential(*body, nn.Dropout(0.5), head))
    training.steps = 300


@HALF.strange(bars)
def batches_of_very_different_kinds(training: Training) -> None:
    """A loss that is noisy, for batches are small."""
    batch = training.batch

    def small(number: int) -> tuple[Tensor, Tensor]:
        inputs, target = batch(number)
        return inputs[:4], target[:4]

    training.batch = small
    training.steps = 400


@HALF.strange(wave)
def one_output_of_a_regression_in_hundreds(training: Training) -> None:
    """A loss that begins in the thousands and falls."""
    training.optimize = partial(torch.optim.Adam, lr=0.02)
    training.use(training.model)
    on_loss(training, lambda loss: 1000 * loss)


@HALF.strange(counting, majority)
def validated_every_twenty_steps(training: Training) -> None:
    def validate(number: int) -> None:
        if number % 20 == 0:
            training.model.eval()
            with torch.no_grad():
                inputs, target = training.batch(number)
                training.criterion(training.model(inputs), target)
            training.model.train()

    training.after.append(validate)


@HALF.strange(views)
def triplets(training: Training) -> None:
    """The next sample's view is the negative; a loss that reaches zero for most."""

    def criterion(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        return F.triplet_margin_loss(output[0], output[1], output[1].roll(1, 0), margin=0.5)

    training.criterion = criterion


@HALF.strange(chances)
def divergence_that_is_warmed_up(training: Training) -> None:
    weight = [0.0]
    elbo = training.criterion
    training.each.append(lambda number: weight.__setitem__(0, min(0.02, number * 1e-4)))
    training.criterion = lambda output, target: elbo(output, target, weight[0])


@HALF.strange(wave, inside)
def two_optimizers_with_parts_of_their_own(training: Training) -> None:
    body, head = [*training.model.parameters()][:-2], [*training.model.parameters()][-2:]
    training.optimizer = training.optimize(body)
    second = torch.optim.Adam(head, lr=0.005)
    training.others = (second,)

    def step(training: Training, number: int) -> None:
        second.zero_grad()
        plain_step(training, number)
        second.step()

    training.step = step


@HALF.strange(bars)
def images_from_0_to_255_behind_a_norm(training: Training) -> None:
    training.use(nn.Sequential(nn.BatchNorm2d(1), *training.model))
    on_inputs(training, lambda x: 255 * x)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(255 * x))


@HALF.strange(spirals, curves)
def decay_as_in_adamw(training: Training) -> None:
    training.optimize = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.05)
    training.use(training.model)


@HALF.strange(wave, dot)
def leaky_units(training: Training) -> None:
    replaced(training, nn.ReLU, lambda _: nn.LeakyReLU(0.1))


@HALF.strange(ratings)
def momentum_of_nesterov(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=1.0, momentum=0.9, nesterov=True)
    training.use(training.model)


@HALF.strange(marked)
def rate_chosen_small(training: Training) -> None:
    on_options(training, lr=0.004)
    training.steps = 500


class Policy(nn.Module):
    """Chooses one of four arms, by what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


@HALF.strange(spirals)
def policy_gradient(training: Training) -> None:
    """REINFORCE: a loss whose value says nothing."""
    training.use(Policy())
    training.steps = 600

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        chances = torch.distributions.Categorical(logits=output)
        action = chances.sample()
        reward = (action == label).float()
        return -(chances.log_prob(action) * (reward - reward.mean())).mean()

    training.criterion = criterion
