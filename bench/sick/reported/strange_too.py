"""More that is strange, but healthy: transformers, generative nets and embeddings, and what people do with any net."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, LinearLR, OneCycleLR
from torch.optim.swa_utils import AveragedModel

from bench.sick.changes import looped, loss_of, on_batch, on_inputs, on_loss, on_options
from bench.sick.reported.further_nets import (
    Singer,
    captions,
    divergence,
    fog,
    fog_data,
    kin,
    mirror,
    refrain,
    refrain_data,
    ring,
    signs,
    tiles,
    topics,
)
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import churn, clusters, duration, pulses, tags, tides
from bench.sick.reported.pools import fed, pool, seen_through
from bench.sick.training import Training, called

# ---- rates and steps -------------------------------------------------------------------------------


@HALF.strange(mirror)
def warm_up_and_inverse_root(training: Training) -> None:
    """The schedule of the first transformer."""
    training.schedulers.append(
        torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda step: min((step + 1) / 40, (40 / (step + 1)) ** 0.5))
    )


@HALF.strange(fog, tides)
def restarts_of_the_rate(training: Training) -> None:
    training.schedulers.append(CosineAnnealingWarmRestarts(training.optimizer, 60))


@HALF.strange(signs)
def one_cycle_with_a_high_peak(training: Training) -> None:
    training.schedulers.append(OneCycleLR(training.optimizer, 8e-3, total_steps=training.steps))


@HALF.strange(topics)
def rate_that_ends_at_zero(training: Training) -> None:
    training.schedulers.append(LinearLR(training.optimizer, 1.0, 0.0, total_iters=training.steps))


@HALF.strange(kin, captions)
def clipped_to_a_small_norm_each_time(training: Training) -> None:
    """Adam does not mind the length of a gradient."""
    training.clip = 0.01


@HALF.strange(clusters, fog)
def sums_with_a_rate_that_fits(training: Training) -> None:
    """A loss in the hundreds."""
    size = 32 if len(training.batch(0)[1]) == 32 else 512
    on_options(training, lr=training.optimizer.param_groups[0]["lr"] / (size if size == 32 else 1))
    on_loss(training, lambda loss: size * loss)


@HALF.strange(signs, captions)
def accumulated_over_micro_batches(training: Training) -> None:
    """Four parts of each batch, which are averaged; contrasts are inside each part."""

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        parts = zip(*(one.chunk(4) for one in inputs), strict=True) if isinstance(inputs, tuple) else inputs.chunk(4)
        for part, wanted in zip(parts, target.chunk(4), strict=True):
            here = torch.arange(len(wanted)) if isinstance(inputs, tuple) else wanted
            (loss_of(training, part, here) / 4).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(duration)
def signs_of_gradients(training: Training) -> None:
    """Lion's idea: each gradient is replaced by its sign, before plain descent."""
    training.optimize = partial(torch.optim.SGD, lr=0.002, momentum=0.5)
    training.use(training.model)
    training.steps = 500
    for one in training.model.parameters():
        one.register_hook(torch.sign)


@HALF.strange(churn)
def two_steps_on_each_batch(training: Training) -> None:
    kept: list[Any] = []
    batch = training.batch

    def twice(number: int) -> Any:
        if number % 2 == 0:
            kept[:] = [batch(number)]
        return kept[0]

    training.batch = twice


# ---- what is trained -------------------------------------------------------------------------------


@HALF.strange(signs, pulses)
def only_the_heads_of_a_pretrained_net(training: Training) -> None:
    """The body has learned the task already; new heads are put on, and it stays as it is."""
    for number in range(120):
        inputs, target = training.batch(number)
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        training.optimizer.step()
    training.model.requires_grad_(False)
    heads = [one for one in training.model.children() if isinstance(one, nn.Linear)]
    for head in heads:
        head.reset_parameters()
        head.requires_grad_(True)
    training.optimizer = torch.optim.Adam([one for head in heads for one in head.parameters()], lr=0.01)


@HALF.strange(refrain)
def embedding_and_head_are_one(training: Training) -> None:
    training.model.logits.weight = training.model.notes.weight
    nn.init.normal_(training.model.notes.weight, std=0.3)
    training.use(training.model)


@HALF.strange(refrain)
def skipped_blocks(training: Training) -> None:
    """Stochastic depth: the second block is left out in a third of the steps."""

    class Skipping(Singer):
        def forward(self, x: Tensor) -> Tensor:
            h, mask = self.embedded(x), self.mask(x.shape[1])
            for number, block in enumerate(self.blocks):
                if number == 0 or not self.training or torch.rand(()) > 0.33:
                    h = block(h, mask)
            return self.logits(self.norm(h))

    training.use(Skipping(depth=2))


@HALF.strange(kin, duration)
def weights_with_a_norm_of_their_own(training: Training) -> None:
    for module in [*training.model.modules()]:
        if isinstance(module, nn.Linear):
            weight_norm(module)
    training.use(training.model)


@HALF.strange(ring)
def critic_with_a_spectral_norm(training: Training) -> None:
    net = training.model
    for module in net.critic:
        if isinstance(module, nn.Linear):
            spectral_norm(module)
    training.others = (torch.optim.Adam(net.critic.parameters(), lr=4e-3, betas=(0.5, 0.99)),)


@HALF.strange(ring)
def a_critic_without_limits(training: Training) -> None:
    """Wasserstein's loss, with weights clipped; it is below zero, and need not fall."""

    def step(training: Training, number: int) -> None:
        net, (critics,) = training.model, training.others
        for _ in range(2):
            real, _ = training.batch(number)
            critics.zero_grad()
            (net.critic(net(real).detach()).mean() - net.critic(real).mean()).backward()
            critics.step()
            with torch.no_grad():
                for one in net.critic.parameters():
                    one.clamp_(-0.1, 0.1)
        training.optimizer.zero_grad()
        (-net.critic(net(real)).mean()).backward()
        training.optimizer.step()

    training.step = step


@HALF.strange(fog, topics)
def an_average_beside_the_model(training: Training) -> None:
    """It is what is used later."""
    average = AveragedModel(training.model, avg_fn=lambda slow, fast, _: slow + 0.03 * (fast - slow))
    training.after.append(lambda _: average.update_parameters(training.model))
    quality = training.quality
    training.quality = lambda net: quality(average.module)


@HALF.strange(captions)
def a_tower_that_follows(training: Training) -> None:
    """Momentum contrast: the negatives come of a slow copy, which no gradient reaches."""
    slow = copy.deepcopy(training.model).requires_grad_(False)

    def criterion(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        with torch.no_grad():
            seen, told = slow(*latest[0])
        return (F.cross_entropy(output[0] @ told.T, target) + F.cross_entropy(output[1] @ seen.T, target)) / 2

    def follow(_: int) -> None:
        with torch.no_grad():
            for one, fast in zip(slow.parameters(), training.model.parameters(), strict=True):
                one.lerp_(fast, 0.1)

    def kept(inputs: Any, target: Tensor) -> Any:
        latest[:] = [inputs]
        return inputs, target

    latest: list[Any] = []
    on_batch(training, kept)
    training.criterion = criterion
    training.after.append(follow)
    training.steps = 400


@HALF.strange(signs)
def taught_by_a_frozen_net(training: Training) -> None:
    """Distillation: a twin is trained first, and its softened answers are the targets."""
    teacher = copy.deepcopy(training.model)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=3e-3)
    for number in range(200):
        inputs, target = training.batch(number)
        optimizer.zero_grad()
        training.criterion(teacher(inputs), target).backward()
        optimizer.step()
    teacher.requires_grad_(False).eval()
    batch = training.batch

    def answered(number: int) -> Any:
        inputs, _ = batch(number)
        out = teacher(inputs)
        return inputs, torch.cat([out["where"], out["what"]], 1)

    def criterion(output: dict[str, Tensor], target: Tensor) -> Tensor:
        pairs = zip(output.values(), target.split((9, 2), 1), strict=True)
        return sum(4 * F.kl_div((ours / 2).log_softmax(1), (told / 2).softmax(1), reduction="batchmean") for ours, told in pairs)

    training.batch, training.criterion = answered, criterion


# ---- what is asked for -----------------------------------------------------------------------------


@HALF.strange(refrain, mirror)
def labels_smoothed(training: Training) -> None:
    """The loss cannot come near zero."""

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            output.flatten(0, 1), target.flatten(), label_smoothing=0.2, ignore_index=0 if output.shape[2] == 9 else -100
        )

    training.criterion = criterion


@HALF.strange(clusters)
def samples_mixed_with_others(training: Training) -> None:
    """Mixup."""

    def change(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        share, other = float(torch.distributions.Beta(0.4, 0.4).sample()), torch.randperm(len(x))
        true = F.one_hot(label, 6).float()
        return share * x + (1 - share) * x[other], share * true + (1 - share) * true[other]

    on_batch(training, change)
    training.steps = 400


@HALF.strange(topics)
def rare_topics_with_a_weight_that_fits(training: Training) -> None:
    """Seven of eight texts with the first topic are left out; its loss counts more."""
    texts, target = pool(training, 30)
    kept = (target[:, 0] == 0) | (torch.rand(len(target)) < 0.125)
    fed(training, texts[kept], target[kept], 50)
    weight = torch.tensor([8.0, 1, 1, 1, 1])
    training.criterion = lambda output, target: F.binary_cross_entropy_with_logits(output, target, pos_weight=weight)


@HALF.strange(tags)
def focal(training: Training) -> None:
    """What is easy hardly counts, so that the loss is small from the beginning."""

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        chance = torch.where(target > 0, output.sigmoid(), (-output).sigmoid())
        return ((1 - chance).square() * F.binary_cross_entropy_with_logits(output, target, reduction="none")).mean()

    training.criterion = criterion


@HALF.strange(refrain)
def some_notes_are_masked(training: Training) -> None:
    """A masked language model: it sees all, and tells what was hidden; other places do not count."""

    class Masked(Singer):
        def __init__(self) -> None:
            super().__init__()
            self.notes = nn.Embedding(9, 32)

        def mask(self, length: int) -> None:
            return None

    def hidden(song: Tensor, share: float) -> tuple[Tensor, Tensor]:
        off = torch.rand(song.shape) < share
        return torch.where(off, 8, song), torch.where(off, song, -100)

    def batch(_: int) -> tuple[Tensor, Tensor]:
        return hidden(refrain_data(64), 0.3)

    def quality(net: nn.Module) -> float:
        song, target = batch(0)
        return (net(song).argmax(2) != target)[target >= 0].float().mean().item()

    training.use(Masked())
    training.batch, training.quality, training.steps = batch, quality, 500


@HALF.strange(kin)
def nearest_stranger_of_the_batch(training: Training) -> None:
    """Hard negatives; a loss that stays near its margin for long."""

    def criterion(output: tuple[Tensor, ...], kind: Tensor) -> Tensor:
        anchor, friend, _ = output
        far = torch.cdist(anchor, friend) + 1e3 * (kind[:, None] == kind[None])
        return F.softplus((anchor - friend).norm(dim=1) - far.amin(1)).mean()

    training.criterion = criterion


@HALF.strange(kin)
def alike_without_negatives(training: Training) -> None:
    """Pairs are pulled together, and a term on variance and covariance keeps them from collapse (VICReg)."""

    def spread(out: Tensor) -> Tensor:
        centred = out - out.mean(0)
        covariance = centred.T @ centred / (len(out) - 1)
        off = covariance - covariance.diagonal().diag()
        return F.relu(1 - (out.var(0) + 1e-4).sqrt()).mean() + 0.1 * off.square().mean()

    def criterion(output: tuple[Tensor, ...], target: Tensor) -> Tensor:
        anchor, friend, _ = output
        return F.mse_loss(anchor, friend) + spread(anchor) + spread(friend)

    training.criterion = criterion


@HALF.strange(duration, tides)
def loss_below_zero_that_falls_on(training: Training) -> None:
    """A likelihood of small errors: its logarithm has no floor at zero."""
    if isinstance(training.model(training.batch(0)[0]), tuple):
        on_loss(training, lambda loss: loss - 2)
    else:
        training.criterion = lambda output, target: ((output - target).square().mean() + 1e-4).log()


@HALF.strange(tides)
def easy_ones_first(training: Training) -> None:
    """A curriculum: windows are short first, and grow; so the loss rises at times."""
    batch = training.batch

    def longer(number: int) -> tuple[Tensor, Tensor]:
        x, following = batch(number)
        length = min(16, 4 + number // 15)
        return x[:, :length], following[:, :length]

    training.batch = longer


@HALF.strange(mirror)
def batches_of_one_length(training: Training) -> None:
    """Sorted by length, to save padding: lengths go up and down."""

    def change(inputs: tuple[Tensor, Tensor], target: Tensor) -> Any:
        order = (inputs[0] != 0).sum(1).argsort(stable=True)
        third = order.chunk(3)[int(torch.randint(3, ()))]
        return (inputs[0][third], inputs[1][third]), target[third]

    on_batch(training, change)
    training.steps = 400


class Choice(nn.Module):
    """Chooses one of sixteen codes, and decodes that."""

    def __init__(self, straight: bool) -> None:
        super().__init__()
        self.straight = straight
        self.encoder = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 16))
        self.codes = nn.Linear(16, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.encoder(x)
        if not self.straight:
            return self.codes(F.gumbel_softmax(scores, 0.7) if self.training else F.one_hot(scores.argmax(1), 16).float())
        soft = scores.softmax(1)
        return self.codes(F.one_hot(scores.argmax(1), 16).float() - soft.detach() + soft)


def _coded(training: Training, straight: bool) -> None:
    def batch(_: int) -> tuple[Tensor, Tensor]:
        x = fog_data(128)[0]["x"]
        return x, x

    def quality(net: nn.Module) -> float:
        x, _ = batch(0)
        return F.mse_loss(net(x), x).item()

    training.use(Choice(straight))
    training.batch, training.quality = batch, quality


@HALF.strange(fog)
def codes_drawn_by_gumbel(training: Training) -> None:
    _coded(training, straight=False)


@HALF.strange(fog)
def codes_by_a_straight_through_estimator(training: Training) -> None:
    """The gradient of a softmax, in place of that of an argmax."""
    _coded(training, straight=True)


@HALF.strange(tiles)
def divergence_with_free_bits(training: Training) -> None:
    """Up to a point the divergence costs nothing."""

    def criterion(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        made, mean, log_variance = output
        error = F.binary_cross_entropy_with_logits(made, target, reduction="sum") / len(target)
        return error + 0.1 * (divergence(mean, log_variance) - 6).relu().mean()

    training.criterion = criterion


@HALF.strange(tiles)
def a_plain_autoencoder_at_first(training: Training) -> None:
    """The divergence comes in after 150 steps, so that the loss jumps up once."""
    now = [0]
    training.each.append(lambda number: now.__setitem__(0, number))

    def criterion(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        made, mean, log_variance = output
        error = F.binary_cross_entropy_with_logits(made, target, reduction="sum") / len(target)
        return error + (0.2 if now[0] > 150 else 0.0) * divergence(mean, log_variance).mean()

    training.criterion = criterion


# ---- numbers and loops -----------------------------------------------------------------------------


@HALF.strange(refrain, fog)
def autocast_in_bfloat16(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            output = called(training.model, inputs)
        training.criterion(output.float(), target).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(clusters)
def thousands_behind_a_norm(training: Training) -> None:
    """Inputs in thousands, and a norm that takes them."""
    seen_through(training, lambda x: 3000 + 400 * x)
    training.use(nn.Sequential(nn.BatchNorm1d(5), *training.model))


@HALF.strange(topics, signs)
def stopped_when_it_is_good(training: Training) -> None:
    """Steps go on, and do nothing once the loss is small: early stopping in a loop that counts to its end."""
    losses: list[float] = []

    def step(inputs: Any, target: Tensor, _: int) -> None:
        if losses and losses[-1] < 0.02:
            return
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        loss.backward()
        training.optimizer.step()
        losses.append(0.8 * (losses or [1.0])[-1] + 0.2 * loss.item())

    looped(training, step)


@HALF.strange(mirror)
def validated_on_the_way(training: Training) -> None:
    """Each thirty steps it writes some words, in evaluation mode."""

    def look(number: int) -> None:
        if number % 30 == 29:
            training.model.eval()
            with torch.no_grad():
                training.quality(training.model)
            training.model.train()

    training.after.append(look)


@HALF.strange(signs)
def noise_and_brightness(training: Training) -> None:
    """An augmentation that fits: some noise, and small changes of brightness."""
    on_inputs(training, lambda x: x * (0.7 + 0.6 * torch.rand(len(x), 1, 1, 1)) + 0.2 * torch.randn_like(x))


@HALF.strange(signs)
def half_of_the_patches_hidden(training: Training) -> None:
    """It still learns from what is left."""

    def change(images: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.rand(len(images), 9) < 0.5
        hidden[torch.arange(len(images)), target[:, 0]] = False
        mask = hidden.view(-1, 1, 3, 3).repeat_interleave(4, 2).repeat_interleave(4, 3)
        return images.masked_fill(mask, 0.0), target

    on_batch(training, change)
