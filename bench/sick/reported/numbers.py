"""Faults of numbers: what is not finite, and what has too few digits."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR

from bench.sick.changes import Lambda, looped, loss_of, on_batch, on_loss, on_options
from bench.sick.reported.further_nets import Singer, Tiles, captions, fog, kin, refrain, signs, tiles, topics
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import arm, churn, clusters, duration, houses, shapes, tags, tides
from bench.sick.reported.pools import seen_through
from bench.sick.training import Training, called

# ---- the rate --------------------------------------------------------------------------------------


@HALF.fault("not finite by the rate", fog, arm, also=("rate too high",))
def descent_with_the_rate_of_another_task(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=20.0, momentum=0.9)
    training.use(training.model)


@HALF.fault("not finite by the rate", kin, also=("rate too high",))
def schedule_that_multiplies(training: Training) -> None:
    """`gamma` is above one."""
    training.optimize = partial(torch.optim.SGD, lr=0.05)
    training.use(training.model)
    training.schedulers.append(ExponentialLR(training.optimizer, 1.3))


# ---- what has no value -----------------------------------------------------------------------------


@HALF.fault("log of zero", clusters)
def divergence_from_one_hot_labels(training: Training) -> None:
    """`(p * (p.log() - q.log())).sum()`, where most of q is zero."""

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        chance, true = output.softmax(1), F.one_hot(label, 6).float()
        return (chance * (chance.log() - true.log())).sum(1).mean()

    training.criterion = criterion


class Looking(Singer):
    """Keeps the shares of its attention, of which a loss wants the entropy."""

    def forward(self, x: Tensor) -> Tensor:
        h, mask = self.embedded(x), self.mask(x.shape[1])
        query, key = self.blocks[0].project(self.blocks[0].first_norm(h)).chunk(3, 2)[:2]
        self.shares = (query @ key.transpose(1, 2)).masked_fill(~mask, float("-inf")).softmax(2)
        return super().forward(x)


@HALF.fault("log of zero", refrain)
def entropy_of_a_masked_attention(training: Training) -> None:
    training.model.__class__ = Looking
    model = training.model
    on_loss(training, lambda loss: loss - 0.01 * (model.shares * model.shares.log()).sum(2).mean())


@HALF.fault("log of zero", topics, tags)
def binary_cross_entropy_by_hand(training: Training) -> None:
    """Of logits that are sharpened by a temperature first."""

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        chance = (output / 0.02).sigmoid()
        return -(target * torch.log(chance) + (1 - target) * torch.log(1 - chance)).mean()

    training.criterion = criterion


@HALF.fault("log of zero", duration, also=("division by zero",))
def likelihood_of_a_variance_of_zero(training: Training) -> None:
    """The variance is what a ReLU leaves."""

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        h = model.body(x)
        return model.mean(h), F.relu(model.variance[0](h))

    model = training.model
    model.forward = forward
    training.criterion = lambda output, target: 0.5 * (output[1].log() + (target - output[0]).square() / output[1]).mean()


@HALF.fault("root of zero", kin)
def distance_by_hand_where_friends_are_the_same(training: Training) -> None:
    """Sometimes the friend of an anchor is the anchor itself."""

    def change(samples: tuple[Tensor, ...], kind: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        anchor, friend, stranger = samples
        friend = torch.where(torch.rand(len(kind), 1) < 0.01, anchor, friend)
        return (anchor, friend, stranger), kind

    def criterion(output: tuple[Tensor, ...], target: Tensor) -> Tensor:
        anchor, friend, stranger = output
        near, far = ((anchor - other).square().sum(1).sqrt() for other in (friend, stranger))
        return F.relu(near - far + 1).mean()

    on_batch(training, change)
    training.criterion = criterion


@HALF.fault("root of zero", signs, where=("token",))
def a_penalty_on_the_norm_of_each_parameter(training: Training) -> None:
    """The token begins as zeros."""
    on_loss(training, lambda loss: loss + 1e-4 * sum(one.square().sum().sqrt() for one in training.model.parameters()))


@HALF.fault("division by zero", clusters)
def weights_by_the_counts_of_the_batch(training: Training) -> None:
    """A class that no sample of a batch has gets an infinite weight, before all are normalized."""

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        weight = 1 / label.bincount(minlength=6)
        return F.cross_entropy(output, label, weight=weight / weight.sum())

    training.criterion = criterion


@HALF.fault("division by zero", tides)
def divided_by_the_largest_of_each_window(training: Training) -> None:
    """Now and then a sensor is off, and a window is all zeros."""

    def change(x: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.where(torch.rand(len(x), 1, 1) < 0.002, 0.0, x)
        return x / x.abs().amax(1, keepdim=True), following

    on_batch(training, change)


@HALF.fault("division by zero", shapes)
def contrast_stretched_to_the_full_range(training: Training) -> None:
    """Now and then an image is all black."""

    def change(x: Tensor) -> Tensor:
        low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
        return (x - low) / (high - low)

    def black(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        return change(torch.where(torch.rand(len(x), 1, 1, 1) < 0.01, 0.0, x)), label

    on_batch(training, black)


# ---- too large, too small --------------------------------------------------------------------------


class Unbounded(Tiles):
    """Takes the exponent of whatever comes."""

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.encoder(image)
        mean, log_variance = self.mean(h), self.spread(h)
        return self.decoder(mean + (0.5 * log_variance).exp() * torch.randn_like(mean)), mean, log_variance


@HALF.fault("overflow", tiles, also=("inputs not scaled",))
def exponent_of_an_unbounded_variance(training: Training) -> None:
    """Pixels run to 255 times ten."""
    training.model.__class__ = Unbounded
    batch, quality = training.batch, training.quality
    training.batch = lambda number: (2550 * batch(number)[0], batch(number)[1])
    training.quality = lambda net: quality(lambda image: net(2550 * image))


@HALF.fault("overflow", captions, also=("temperature",), where=("scale",))
def scale_that_begins_at_a_hundred(training: Training) -> None:
    """Its exponent is learned, and it begins with what the exponent should be."""
    training.model.scale.data.fill_(100.0)


@HALF.fault("overflow", houses)
def squares_in_half_precision(training: Training) -> None:
    """The norm of a row, with its squares in 16 bits."""
    model = training.model

    def normed(x: Tensor) -> Tensor:
        return x / (x.half() * 60).square().mean(1, keepdim=True).sqrt().float() * 60

    model.head = nn.Sequential(Lambda(normed), model.head)
    with torch.no_grad():
        model.stem.weight *= 8
    training.use(model)


def _lightly_weighted(training: Training, weight: float = 1e-7) -> None:
    """As one loss of several that are weighted; Adam does not mind."""
    training.optimize = partial(torch.optim.Adam, lr=5e-3, eps=1e-20)
    training.use(training.model)
    on_loss(training, lambda loss: weight * loss)


@HALF.fault("underflow", fog, arm, twin=_lightly_weighted, also=("loss too small",))
def gradients_sent_in_half_precision(training: Training) -> None:
    """They are made small for sending, as between machines."""
    _lightly_weighted(training)
    for one in training.model.parameters():
        one.register_hook(lambda grad: grad.half().float())


def _light_autocast(dtype: torch.dtype | None) -> Any:
    def change(training: Training) -> None:
        _lightly_weighted(training, 1e-6)

        def step(inputs: Any, target: Tensor, _: int) -> None:
            training.optimizer.zero_grad()
            with torch.autocast("cpu", dtype or torch.float16, enabled=dtype is not None):
                output = called(training.model, inputs)
            training.criterion(output, target).backward()
            training.optimizer.step()

        looped(training, step)

    return change


@HALF.fault("underflow", tags, twin=_light_autocast(None), also=("loss too small",))
def autocast_without_a_scaler(training: Training) -> None:
    _light_autocast(torch.float16)(training)


def _slow(training: Training) -> None:
    on_options(training, lr=training.optimizer.param_groups[0]["lr"] / 40)
    training.steps = 2000


@HALF.fault("too few digits", duration, twin=_slow, also=("rate too low",))
def weights_rounded_after_each_step(training: Training) -> None:
    """They are kept in 16 bits between the steps."""
    _slow(training)

    def rounded(_: int) -> None:
        with torch.no_grad():
            for one in training.model.parameters():
                one.copy_(one.bfloat16())

    training.after.append(rounded)


@HALF.fault("too few digits", clusters, twin=_slow, also=("rate too low",))
def model_in_bfloat16(training: Training) -> None:
    training.model.bfloat16()
    _slow(training)
    criterion = training.criterion
    training.criterion = lambda output, target: criterion(output.float(), target)
    seen_through(training, lambda x: x.bfloat16())


@HALF.fault("scaler misused", houses)
def scale_is_set_anew_in_each_step(training: Training) -> None:
    """It is so high that nothing is finite; each step is left out, and the lower scale is overwritten."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        scaler.scale(64 * loss_of(training, inputs, target)).backward()
        scaler.step(training.optimizer)
        scaler.update(2.0**127)

    looped(training, step)


@HALF.fault("scaler misused", churn, also=("loss too small", "clipped to nothing"))
def unscaled_by_hand_and_again(training: Training) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        scaler.scale(loss_of(training, inputs, target)).backward()
        for one in training.model.parameters():
            one.grad /= scaler.get_scale()
        scaler.step(training.optimizer)
        scaler.update()

    looped(training, step)


@HALF.fault("scaler misused", clusters, also=("rate too high", "loss too large"))
def loss_scaled_by_hand_and_gradients_not(training: Training) -> None:
    on_loss(training, lambda loss: 4096 * loss)
