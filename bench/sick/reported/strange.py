"""Strange, but healthy: what people who know what they do put into their trainings."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.optim import SGD, AdamW, NAdam, Rprop
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, LinearLR, MultiStepLR, OneCycleLR, SequentialLR
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

from bench.sick.changes import looped, loss_of, on_batch, on_inputs, on_loss
from bench.sick.reported.further_nets import fog, kin, mirror, refrain, signs, topics
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import (
    Houses,
    Shapes,
    arm,
    churn,
    churn_data,
    clusters,
    duration,
    houses,
    patches,
    pulses,
    ranks,
    reviews,
    shapes,
    share,
    tags,
    tides,
    tides_data,
)
from bench.sick.training import Training, called, plain_step

# ---- the rate --------------------------------------------------------------------------------------


@HALF.strange(houses, fog)
def warmed_up_and_then_along_a_cosine(training: Training) -> None:
    warm = LinearLR(training.optimizer, 0.01, total_iters=40)
    fall = CosineAnnealingLR(training.optimizer, training.steps - 40)
    training.schedulers.append(SequentialLR(training.optimizer, [warm, fall], [40]))


@HALF.strange(shapes, tides)
def one_cycle_with_a_high_peak(training: Training) -> None:
    rate = training.optimizer.param_groups[0]["lr"]
    training.schedulers.append(OneCycleLR(training.optimizer, 3 * rate, total_steps=training.steps))


@HALF.strange(arm)
def warm_restarts(training: Training) -> None:
    """The loss rises at each of them."""
    training.schedulers.append(CosineAnnealingWarmRestarts(training.optimizer, 75))


@HALF.strange(pulses, signs)
def milestones_in_place(training: Training) -> None:
    training.schedulers.append(MultiStepLR(training.optimizer, [training.steps // 2, training.steps * 3 // 4], 0.1))


@HALF.strange(clusters)
def a_plateau_of_small_weights(training: Training) -> None:
    with torch.no_grad():
        for one in training.model.parameters():
            one *= 0.3
    training.steps = 300


# ---- the optimizer ---------------------------------------------------------------------------------


@HALF.strange(arm, tags)
def a_trunk_and_heads_with_optimizers_of_their_own(training: Training) -> None:
    parameters = [*training.model.parameters()]
    training.optimizer = AdamW(parameters[:4], lr=8e-3)
    second = NAdam(parameters[4:], lr=4e-3)
    training.others = (second,)

    def step(training: Training, number: int) -> None:
        second.zero_grad()
        plain_step(training, number)
        second.step()

    training.step = step


@HALF.strange(duration)
def all_the_data_in_each_step(training: Training) -> None:
    """Rprop needs the same batch again and again, and it is the whole set."""
    inputs, target = (torch.cat(parts) for parts in zip(*(training.batch(number) for number in range(8)), strict=True))
    training.batch = lambda _: (inputs, target)
    training.optimize = partial(Rprop, lr=1e-3)
    training.use(training.model)


@HALF.strange(clusters, kin)
def look_ahead(training: Training) -> None:
    """Each sixth step the weights go half of the way back."""
    slow = [one.detach().clone() for one in training.model.parameters()]

    def back(number: int) -> None:
        if number % 6 == 5:
            with torch.no_grad():
                for kept, one in zip(slow, training.model.parameters(), strict=True):
                    kept.lerp_(one, 0.5)
                    one.copy_(kept)

    training.after.append(back)


@HALF.strange(duration, fog)
def averaged_at_the_end(training: Training) -> None:
    """Stochastic weight averaging: the average takes the place of the weights after the last step."""
    average = AveragedModel(training.model)

    def follow(number: int) -> None:
        if number >= training.steps - 40:
            average.update_parameters(training.model)
        if number == training.steps - 1:
            training.model.load_state_dict(average.module.state_dict())

    training.after.append(follow)


@HALF.strange(tides)
def stopped_early_and_set_to_the_best(training: Training) -> None:
    best: list[Any] = [float("inf"), None]
    kept = tides_data(100)

    def look(number: int) -> None:
        with torch.no_grad():
            loss = float(training.criterion(training.model(kept[0]), kept[1]))
        if loss < best[0]:
            best[:] = loss, copy.deepcopy(training.model.state_dict())
        if number == training.steps - 1:
            training.model.load_state_dict(best[1])

    training.after.append(look)


@HALF.strange(houses, topics)
def a_little_noise_on_gradients(training: Training) -> None:
    """It fades, as in annealed Langevin dynamics."""

    def step(inputs: Any, target: Tensor, number: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        for one in training.model.parameters():
            one.grad.add_(torch.randn_like(one), alpha=1e-3 / (1 + number) ** 0.5)
        training.optimizer.step()

    looped(training, step)


@HALF.strange(ranks, churn)
def clipped_in_each_step(training: Training) -> None:
    training.clip = 0.2


@HALF.strange(clusters, pulses)
def summed_with_a_rate_to_match(training: Training) -> None:
    """A loss of dozens, and a rate that is smaller by as much."""
    size = len(training.batch(0)[1])
    training.optimize = partial(SGD, lr=0.05 / size, momentum=0.9)
    training.use(training.model)
    training.criterion = nn.CrossEntropyLoss(reduction="sum")


# ---- the loop --------------------------------------------------------------------------------------


@HALF.strange(pulses, reviews)
def four_batches_a_step(training: Training) -> None:
    training.steps *= 2

    def step(inputs: Any, target: Tensor, number: int) -> None:
        (loss_of(training, inputs, target) / 4).backward()
        if number % 4 == 3:
            training.optimizer.step()
            training.optimizer.zero_grad()

    looped(training, step)


@HALF.strange(shapes, churn)
def validated_after_each_tenth_step(training: Training) -> None:
    def validate(number: int) -> None:
        if number % 10 == 9:
            training.model.eval()
            with torch.inference_mode():
                for _ in range(2):
                    inputs, target = training.batch(number)
                    training.criterion(called(training.model, inputs), target)
            training.model.train()

    training.after.append(validate)


@HALF.strange(churn)
def the_hardest_half_alone(training: Training) -> None:
    """Gradients of the other samples are never asked for."""
    training.criterion = lambda output, target: (
        F.binary_cross_entropy_with_logits(output, target, reduction="none").flatten().topk(8)[0].mean()
    )


@HALF.strange(duration)
def a_penalty_on_the_gradient(training: Training) -> None:
    """Differentiated twice."""

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        inputs = inputs.clone().requires_grad_()
        loss = loss_of(training, inputs, target)
        (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
        (loss + 0.1 * slope.square().sum()).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(shapes, patches)
def in_bfloat16_where_it_may(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(training, inputs, target)
        loss.backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(clusters)
def in_double_precision(training: Training) -> None:
    training.use(training.model.double())
    on_inputs(training, lambda x: x.double())
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(x.double()))


@HALF.strange(tides)
def states_carried_from_piece_to_piece(training: Training) -> None:
    """Backpropagation through a few steps of time: the state is detached between them."""

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        net, state = training.model, None
        for piece, following in zip(inputs.split(8, 1), target.split(8, 1), strict=True):
            training.optimizer.zero_grad()
            states, state = net.rnn(piece, state)
            training.criterion(net.out(states), following).backward()
            training.optimizer.step()
            state = state.detach()

    looped(training, step)


# ---- the data --------------------------------------------------------------------------------------


@HALF.strange(tides)
def sequences_that_grow(training: Training) -> None:
    """A curriculum."""

    def short(number: int) -> tuple[Tensor, Tensor]:
        return tides_data(32, 4 + number // 20)

    training.batch = short


@HALF.strange(reviews)
def batches_of_similar_lengths(training: Training) -> None:
    """Sequences are sorted by length, and a batch holds neighbours."""
    drawn = [training.batch(number) for number in range(40)]
    words, lengths, good = (torch.cat(part) for part in zip(*((*inputs, target) for inputs, target in drawn), strict=True))
    order = lengths.argsort(stable=True)
    parts = order.split(64)

    def batch(_: int) -> Any:
        rows = parts[int(torch.randint(len(parts), ()))]
        return (words[rows], lengths[rows]), good[rows]

    training.batch = batch


@HALF.strange(clusters)
def samples_mixed_on_purpose(training: Training) -> None:
    """Mixup: inputs and targets of two samples, in the same shares."""

    def mixed(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.distributions.Beta(0.4, 0.4).sample((len(x), 1))
        order, target = torch.randperm(len(x)), F.one_hot(label, 6).float()
        return share * x + (1 - share) * x[order], share * target + (1 - share) * target[order]

    on_batch(training, mixed)


@HALF.strange(clusters, shapes)
def smoothed_labels(training: Training) -> None:
    """The loss ends far from zero."""
    training.criterion = nn.CrossEntropyLoss(label_smoothing=0.2)


def _rare(training: Training, weight: float) -> None:
    """One customer in twelve leaves; errors of both kinds count alike."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x, leaves = churn_data(4 * count)
        kept = (leaves.flatten() == 0) | (torch.rand(4 * count) < 0.12)
        return x[kept][:count], leaves[kept][:count]

    def quality(net: nn.Module) -> float:
        x, leaves = data(2000)
        wrong = (net(x) > 0).float() != leaves
        return (share(wrong[leaves == 1]) + share(wrong[leaves == 0])) / 2

    training.batch = lambda _: data(64)
    training.quality = quality
    training.criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(weight))


@HALF.strange(churn)
def rare_samples_with_the_weight_they_need(training: Training) -> None:
    _rare(training, 12.0)


@HALF.strange(churn)
def rare_samples_that_are_learned_all_the_same(training: Training) -> None:
    _rare(training, 1.0)


@HALF.strange(churn)
def batches_of_eight(training: Training) -> None:
    """A loss that jumps."""
    on_batch(training, lambda x, leaves: (x[:8], leaves[:8]))
    training.steps = 600


@HALF.strange(tags, pulses)
def raw_numbers_behind_a_norm(training: Training) -> None:
    on_inputs(training, lambda x: 80 * x - 500)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(80 * x - 500))


@HALF.strange(ranks)
def most_tokens_without_a_tag(training: Training) -> None:
    """Two of three are left out of the loss."""

    def hidden(tokens: Tensor, tag: Tensor) -> tuple[Tensor, Tensor]:
        return tokens, torch.where(torch.rand(tag.shape) < 0.67, -100, tag)

    on_batch(training, hidden)
    training.steps = 400


@HALF.strange(shapes)
def images_flipped_and_dimmed(training: Training) -> None:
    def augmented(x: Tensor) -> Tensor:
        x = x.flip(3) if torch.rand(()) < 0.5 else x
        return x * (0.6 + 0.8 * torch.rand(len(x), 1, 1, 1))

    on_inputs(training, augmented)


# ---- the model -------------------------------------------------------------------------------------


@HALF.strange(churn, clusters)
def weights_in_length_and_direction(training: Training) -> None:
    for layer in training.model:
        if isinstance(layer, nn.Linear):
            weight_norm(layer)
    training.use(training.model)


@HALF.strange(tags)
def weights_of_norm_one(training: Training) -> None:
    spectral_norm(training.model[3])
    training.use(training.model)


@HALF.strange(houses, refrain)
def branches_that_begin_at_nothing(training: Training) -> None:
    """The last layer of each residual branch begins with zeros."""
    for block in training.model.blocks:
        last = block.two if hasattr(block, "two") else block.feed[2]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)


@HALF.strange(clusters)
def a_third_of_the_units_dead(training: Training) -> None:
    """Those that are left are enough."""
    training.use(nn.Sequential(nn.Linear(5, 72), nn.ReLU(), *[*training.model][2:]))
    training.model[2] = nn.Linear(72, 32)
    training.use(training.model)
    nn.init.constant_(training.model[0].bias[:24], -40.0)


@HALF.strange(houses)
def a_block_left_out_now_and_then(training: Training) -> None:
    """Stochastic depth."""

    class Net(Houses):
        def forward(self, numbers: Tensor, district: Tensor) -> Tensor:
            x = self.stem(torch.cat([numbers, self.district(district)], 1))
            for block in self.blocks:
                if not self.training or torch.rand(()) > 0.2:
                    x = block(x)
            return self.head(x).squeeze(1)

    training.model.__class__ = Net


class Straight(nn.Module):
    """Signs forward, and backward as if nothing were there."""

    def forward(self, x: Tensor) -> Tensor:
        soft = x.clamp(-1, 1)
        return soft + (x.sign() - soft).detach()


@HALF.strange(clusters)
def binary_units_with_a_straight_gradient(training: Training) -> None:
    training.model[3] = Straight()
    training.steps = 400


class Gumbel(nn.Module):
    """Three experts, one of which is drawn for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(5, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 6)) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.gate(x)
        chosen = F.gumbel_softmax(logits, tau=0.7, hard=True) if self.training else F.one_hot(logits.argmax(1), 3).float()
        answers = torch.stack([expert(x) for expert in self.experts], 2)
        return (answers * chosen.unsqueeze(1)).sum(2)


@HALF.strange(clusters)
def an_expert_drawn_for_each_sample(training: Training) -> None:
    training.use(Gumbel())
    training.steps = 400


@HALF.strange(shapes)
def blocks_computed_twice_to_save_memory(training: Training) -> None:
    class Net(Shapes):
        def forward(self, x: Tensor) -> Tensor:
            x = checkpoint(self.block, F.silu(self.stem(x)), use_reentrant=False)
            x = F.max_pool2d(F.silu(self.norm(x)), 2)
            return self.head(x.amax((2, 3)))

    training.model.__class__ = Net


@HALF.strange(reviews)
def words_that_stay_as_they_are(training: Training) -> None:
    """An embedding that came from elsewhere; the optimizer holds what learns."""
    training.model.words.requires_grad_(False)
    training.optimizer = training.optimize([one for one in training.model.parameters() if one.requires_grad])


def _trained(training: Training, steps: int) -> nn.Module:
    """A model that was trained before, on the same task."""
    kept, training.steps = training.steps, steps
    training.run()
    training.steps = kept
    return training.model


@HALF.strange(pulses)
def a_new_head_on_a_trained_body(training: Training) -> None:
    """The body is frozen and its norms stay in evaluation."""
    net = _trained(training, 60)
    net.requires_grad_(False)
    net.fc = nn.Linear(96, 4)
    training.optimizer = training.optimize(net.fc.parameters())

    def still(_: int) -> None:
        net.bn1.eval()
        net.bn2.eval()

    training.each.append(still)


@HALF.strange(clusters)
def taught_by_a_frozen_net(training: Training) -> None:
    """Distillation: the student sees no label."""
    teacher = copy.deepcopy(_trained(training, 150)).eval().requires_grad_(False)
    training.use(nn.Sequential(nn.Linear(5, 40), nn.ReLU(), nn.Linear(40, 6)))
    batch = training.batch

    def taught(number: int) -> tuple[Tensor, Tensor]:
        x, _ = batch(number)
        return x, (teacher(x) / 2).softmax(1)

    training.batch = taught
    training.criterion = lambda output, target: 4 * F.kl_div((output / 2).log_softmax(1), target, reduction="batchmean")


@HALF.strange(clusters)
def rewarded_for_a_guess(training: Training) -> None:
    """REINFORCE with a baseline that runs along: the loss says nothing, and is below zero half of the time."""
    baseline = 0.0
    training.optimize = partial(NAdam, lr=0.01)
    training.use(training.model)
    training.steps = 600

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        nonlocal baseline
        guess = torch.distributions.Categorical(logits=output)
        action = guess.sample()
        reward = (action == label).float()
        loss = -((reward - baseline) * guess.log_prob(action)).mean() - 0.01 * guess.entropy().mean()
        baseline += 0.05 * (float(reward.mean()) - baseline)
        return loss

    training.criterion = criterion


@HALF.strange(fog, mirror)
def decayed_as_far_as_is_good(training: Training) -> None:
    training.optimize = partial(AdamW, lr=training.optimizer.param_groups[0]["lr"], weight_decay=0.1)
    training.use(training.model)


@HALF.strange(arm, houses)
def a_loss_in_other_units(training: Training) -> None:
    """In square millimetres: it begins in the millions; the rate of Adam does not mind."""
    on_loss(training, lambda loss: 1e6 * loss)
