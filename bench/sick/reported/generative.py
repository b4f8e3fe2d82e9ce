"""Faults of autoencoders, GANs, denoisers and contrastive losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.sick.changes import on_batch, on_inputs
from bench.sick.reported.further_nets import (
    Block,
    Fog,
    Forgers,
    captions,
    divergence,
    fog,
    kin,
    refrain,
    ring,
    tiles,
    tiles_loss,
    triplet_loss,
)
from bench.sick.reported.half import HALF
from bench.sick.reported.pools import rows
from bench.sick.training import Training

# ---- GANs ------------------------------------------------------------------------------------------


def _critic_alone(training: Training, real: Tensor, times: int) -> None:
    net, (critics,) = training.model, training.others
    for _ in range(times):
        critics.zero_grad()
        (F.softplus(-30 * net.critic(real)) + F.softplus(30 * net.critic(net(real).detach()))).mean().backward()
        critics.step()


@HALF.fault("discriminator wins", ring)
def critic_goes_ahead(training: Training) -> None:
    """It is trained well beforehand, steps five times for each step of the other, and its sigmoid is steep."""
    for number in range(100):
        _critic_alone(training, training.batch(number)[0], 1)

    def step(training: Training, number: int) -> None:
        real, _ = training.batch(number)
        net = training.model
        _critic_alone(training, real, 5)
        training.optimizer.zero_grad()
        (1 - (30 * net.critic(net(real))).sigmoid() + 1e-6).log().mean().backward()
        training.optimizer.step()

    training.step = step
    training.optimizer.param_groups[0]["eps"] = 1e-3


@HALF.fault("discriminator wins", ring)
def rates_of_very_different_size(training: Training) -> None:
    training.optimizer.param_groups[0]["lr"] = 2e-6
    training.others[0].param_groups[0]["lr"] = 2e-2


class Unfelt(Forgers):
    def forward(self, count: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(count)


@HALF.fault("generator detached", ring, also=("without grad", "detached"))
def forged_under_no_grad(training: Training) -> None:
    """A method that makes samples for looking at is used for training, too."""
    training.model.__class__ = Unfelt


@HALF.fault("generator detached", ring, also=("detached",))
def critic_gets_data(training: Training) -> None:
    """`forged.data` in the forger's own step."""

    def step(training: Training, number: int) -> None:
        real, _ = training.batch(number)
        net, (critics,) = training.model, training.others
        forged = net(real).data
        critics.zero_grad()
        (F.relu(1 - net.critic(real)).mean() + F.relu(1 + net.critic(forged)).mean()).backward()
        critics.step()
        training.optimizer.zero_grad()
        (-net.critic(forged).mean()).backward()
        training.optimizer.step()

    training.step = step


class Muted(Forgers):
    """Its noise is always the same."""

    def forward(self, count: Tensor) -> Tensor:
        return self.forger(torch.zeros(len(count), 4))


@HALF.fault("collapse", ring, also=("constant inputs",))
def noise_of_zeros(training: Training) -> None:
    training.model.__class__ = Muted


# ---- latents ---------------------------------------------------------------------------------------


@HALF.fault("latent ignored", tiles)
def error_of_a_pixel_against_divergence_of_all(training: Training) -> None:
    """The error is averaged over pixels, and the divergence is summed."""

    def criterion(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        made, mean, log_variance = output
        return F.binary_cross_entropy_with_logits(made, target) + divergence(mean, log_variance).sum() / 8

    training.criterion = criterion


@HALF.fault("latent ignored", tiles)
def weight_that_grows_without_end(training: Training) -> None:
    """A warm-up of the divergence that nobody stops."""
    now = [0]
    training.each.append(lambda number: now.__setitem__(0, number))
    training.criterion = lambda output, target: tiles_loss(output, target, 0.01 * 1.06 ** now[0])


# ---- contrasts -------------------------------------------------------------------------------------


@HALF.fault("collapse", kin, also=("wrong negatives",))
def friends_are_pulled_and_nobody_pushed(training: Training) -> None:
    training.criterion = lambda output, target: F.pairwise_distance(output[0], output[1]).mean()


@HALF.fault("collapse", captions, also=("wrong negatives",))
def towers_agree_without_contrast(training: Training) -> None:
    training.criterion = lambda output, target: F.cosine_embedding_loss(*output, torch.ones(len(target)))


def _by_descent(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=0.3, momentum=0.9)
    training.use(training.model)


@HALF.fault("temperature", captions, where=("scale",), twin=_by_descent, also=("loss too small", "rate too low"))
def multiplied_by_a_temperature(training: Training) -> None:
    """The number that is made for dividing, and fixed: all captions look alike."""
    _by_descent(training)
    training.model.scale.data.fill_(-6.0)
    training.model.scale.requires_grad_(False)


def _contrasted(temperature: float) -> Callable[[Training], None]:
    def criterion(output: tuple[Tensor, ...], target: Tensor) -> Tensor:
        anchor, friend, _ = (F.normalize(one, dim=1) for one in output)
        return F.cross_entropy(anchor @ friend.T / temperature, torch.arange(len(target)))

    def change(training: Training) -> None:
        training.criterion = criterion

    return change


@HALF.fault("temperature", kin, twin=_contrasted(0.2))
def temperature_of_a_hundred_thousandth(training: Training) -> None:
    _contrasted(1e-5)(training)


class Even(Block):
    """Scales the scores so much that each looks at all the others alike."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.project(self.first_norm(x)).chunk(3, 2))
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1e-4)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.feed(self.second_norm(x))


@HALF.fault("temperature", refrain)
def scores_divided_by_ten_thousand(training: Training) -> None:
    for block in training.model.blocks:
        block.__class__ = Even


@HALF.fault("wrong negatives", kin, also=("targets shuffled",))
def strangers_are_of_the_same_kind(training: Training) -> None:
    """It is the friend once more, changed a little."""
    on_inputs(training, lambda samples: (samples[0], samples[1], samples[1] + 0.1 * torch.randn_like(samples[1])))


@HALF.fault("wrong negatives", kin, also=("wrong sign",))
def friend_and_stranger_change_places(training: Training) -> None:
    training.criterion = lambda output, target: triplet_loss((output[0], output[2], output[1]), target)


@HALF.fault("wrong negatives", captions, also=("few samples",))
def each_pair_twenty_times_in_a_batch(training: Training) -> None:
    """Pairs are repeated for speed, and each is the negative of its copies."""

    def change(inputs: tuple[Tensor, Tensor], target: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        return rows(inputs, torch.arange(2).repeat(20)), target

    on_batch(training, change)


# ---- levels of noise -------------------------------------------------------------------------------


@HALF.fault("noise level hidden", fog)
def level_is_always_zero(training: Training) -> None:
    """An argument with a default is not given, neither in training nor later."""
    forward = training.model.forward
    training.model.forward = lambda x, level: forward(x, torch.zeros_like(level))


@HALF.fault("noise level hidden", fog)
def levels_drawn_anew_for_the_model(training: Training) -> None:
    """The level is drawn twice: once to add noise, and once to tell it."""
    on_inputs(training, lambda inputs: {**inputs, "level": torch.randint_like(inputs["level"], 8)})


class Deaf(Fog):
    """Makes an embedding of the level, and does not add it."""

    def forward(self, x: Tensor, level: Tensor) -> Tensor:
        self.level(level)
        return self.noise(self.body(self.enter(x)))


@HALF.fault("noise level hidden", fog, also=("unused layers",))
def level_is_not_added(training: Training) -> None:
    training.model.__class__ = Deaf


@HALF.fault("noise level hidden", fog)
def levels_told_in_reverse(training: Training) -> None:
    """Training counts from the clear to the noisy, and what uses the net from the noisy to the clear."""
    on_inputs(training, lambda inputs: {**inputs, "level": 7 - inputs["level"]})
