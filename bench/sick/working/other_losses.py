"""More faults of the loss and of the last layer, in losses that are written by hand."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from bench.sick.changes import looped, loss_of, on_target
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.other_nets import (
    SGD,
    Cargo,
    Causal,
    Flip,
    Mixer,
    Pulses,
    Rows,
    Unet,
    apprentice,
    badges,
    badges_data,
    cargo,
    cargo_data,
    cells,
    cells_data,
    echoes,
    flip,
    forager,
    kinship,
    loaded,
    mean_square,
    optimized_by,
    overlap,
    pedigree,
    pulses_data,
    ripples,
    shelf,
    sways,
    swell,
    triplet,
    worth,
    worth_moves,
)

# ---- shapes ----------------------------------------------------------------------------------------


@HALF.fault("broadcast", worth)
def rewards_of_one_dimension(training: Training) -> None:
    """The rewards are (N,), and the values (N, 1): their sum is (N, N)."""

    def step(training: Training, number: int) -> None:
        state, _ = training.batch(number)
        after, reward = worth_moves(state)
        with torch.no_grad():
            target = reward.flatten() + 0.6 * training.model(after)
        training.optimizer.zero_grad()
        training.criterion(training.model(state), target).backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("broadcast", sways)
def series_without_its_channel(training: Training) -> None:
    """Outputs are (24, 24, 1), targets (24, 24): as many series as steps."""
    on_target(training, lambda target: target.squeeze(-1))


@HALF.fault("broadcast", cargo)
def a_column_of_the_table_as_target(training: Training) -> None:
    columns, target = cargo_data(1500)
    training.batch = loaded(DataLoader(Rows(columns, target.reshape(-1, 1)), batch_size=50, shuffle=True))


# ---- softmax, sigmoid and logarithms ---------------------------------------------------------------


class Probable(Unet):
    """Ends in the chances of each class."""

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(super().forward(x), dim=1)


cells_by_sgd = optimized_by(SGD, lr=0.1, momentum=0.9)


@HALF.fault("softmax before cross entropy", cells, twin=cells_by_sgd)
def segmentation_ends_in_a_softmax(training: Training) -> None:
    cells_by_sgd(training)
    training.use(Probable())


flip_by_sgd = optimized_by(SGD, lr=0.02, momentum=0.9)


@HALF.fault("softmax before cross entropy", flip, twin=flip_by_sgd)
def chances_of_each_place(training: Training) -> None:
    class Sure(Flip):
        def forward(self, x: Tensor) -> Tensor:
            return torch.softmax(super().forward(x), -1)

    flip_by_sgd(training)
    training.use(Sure())


@HALF.fault("softmax over the wrong dimension", cells)
def log_softmax_over_the_width(training: Training) -> None:
    training.criterion = lambda output, label: F.nll_loss(output.log_softmax(-1), label)


@HALF.fault("softmax over the wrong dimension", flip)
def attention_over_the_batch(training: Training) -> None:
    attention = training.model.blocks[0].attention
    attention.weights = lambda scores, hidden: scores.softmax(0)


@HALF.fault("sigmoid twice", badges)
def labels_end_in_a_sigmoid(training: Training) -> None:
    class Sure(Mixer):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(super().forward(x))

    training.use(Sure())


def _squares(training: Training) -> None:
    """Which pixels are of the square: one output, yes or no."""
    training.use(Unet(outputs=1))
    training.batch = lambda _: _square(16)
    training.criterion = F.binary_cross_entropy_with_logits

    def quality(net: nn.Module) -> float:
        x, label = _square(100)
        return overlap((net(x).sigmoid() > 0.5).long(), label.long(), (1,))

    training.quality = quality


def _square(count: int) -> tuple[Tensor, Tensor]:
    x, label = cells_data(count)
    return x, (label == 2).float().unsqueeze(1)


@HALF.fault("sigmoid twice", cells, twin=_squares)
def mask_ends_in_a_sigmoid(training: Training) -> None:
    _squares(training)
    training.use(nn.Sequential(training.model, nn.Sigmoid()))


@HALF.fault("no log", apprentice)
def divergence_of_probabilities(training: Training) -> None:
    training.criterion = lambda output, chances: F.kl_div(output, chances, reduction="batchmean")


@HALF.fault("no log", echoes)
def logits_are_gathered(training: Training) -> None:
    """The line with log_softmax is missing."""

    def loss(tokens: Tensor) -> Tensor:
        logits = training.model(tokens[:, :-1])
        return -logits.gather(2, tokens[:, 1:, None]).mean()

    training.model.loss = loss


@HALF.fault("no log", cells)
def likelihood_of_maps(training: Training) -> None:
    training.criterion = lambda output, label: F.nll_loss(output, label, reduction="sum") / label.numel()


@HALF.fault("one logit", cells, twin=_squares)
def softmax_over_one_channel(training: Training) -> None:
    _squares(training)
    training.criterion = lambda output, label: F.binary_cross_entropy(output.softmax(1), label)


def _first_badge(training: Training) -> None:
    training.use(Mixer(outputs=1))
    on_target(training, lambda label: label[:, :1])

    def quality(net: nn.Module) -> float:
        x, label = badges_data(500)
        return ((net(x) > 0).float() != label[:, :1]).float().mean().item()

    training.quality = quality


@HALF.fault("one logit", badges, twin=_first_badge)
def cross_entropy_of_a_column(training: Training) -> None:
    """One output, soft targets of one class: the only class has all."""
    _first_badge(training)
    training.criterion = lambda output, label: -(label * F.log_softmax(output, dim=1)).sum(1).mean()


# ---- sign and size ---------------------------------------------------------------------------------


@HALF.fault("wrong sign", forager)
def rewards_are_pushed_down(training: Training) -> None:
    def criterion(logits: Tensor, rewards: Tensor) -> Tensor:
        chosen = torch.multinomial(logits.detach().softmax(1), 1)
        got = rewards.gather(1, chosen)
        return (F.log_softmax(logits, 1).gather(1, chosen) * (got - got.mean())).mean()

    training.criterion = criterion


@HALF.fault("wrong sign", cargo)
def plus_the_gradient(training: Training) -> None:
    """The step is made by hand, uphill."""

    def step(inputs: object, target: Tensor, _: int) -> None:
        training.model.zero_grad()
        loss_of(training, inputs, target).backward()
        with torch.no_grad():
            for parameter in training.model.parameters():
                parameter += 0.02 * parameter.grad

    looped(training, step)


@HALF.fault("wrong sign", pedigree)
def near_and_far_are_exchanged(training: Training) -> None:
    training.criterion = lambda output, target: triplet((output[0], output[2], output[1]), target)


@HALF.fault("wrong sign", shelf)
def ranks_upside_down(training: Training) -> None:
    training.criterion = lambda output, _: F.softplus(output[0] - output[1]).mean()


@HALF.fault("loss too small", cells, twin=cells_by_sgd)
def divided_by_pixels_and_again(training: Training) -> None:
    cells_by_sgd(training)
    training.criterion = lambda output, label: F.cross_entropy(output, label) / label.numel()


swell_by_sgd = optimized_by(SGD, lr=0.1, momentum=0.9)
pulses_by_sgd = optimized_by(SGD, lr=0.1, momentum=0.9, nesterov=True)


@HALF.fault("loss too small", swell, twin=swell_by_sgd)
def divided_by_the_size_of_the_data_set(training: Training) -> None:
    swell_by_sgd(training)
    training.criterion = lambda output, target: mean_square(output, target) / 60_000


@HALF.fault("loss too large", swell, also=("rate too high", "not finite by the rate"), twin=swell_by_sgd)
def squares_are_summed_up(training: Training) -> None:
    swell_by_sgd(training)
    training.criterion = lambda output, target: ((output - target) ** 2).sum()


@HALF.fault("loss too large", ripples, also=("rate too high", "not finite by the rate"), twin=pulses_by_sgd)
def likelihoods_of_the_batch_are_summed(training: Training) -> None:
    pulses_by_sgd(training)

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        total = torch.zeros(())
        for row, one in zip(output.log_softmax(1), label, strict=True):
            total = total - row[one]
        return total

    training.criterion = criterion


# ---- range, kind, weights --------------------------------------------------------------------------


@HALF.fault("output cannot reach", sways)
def each_layer_ends_in_an_activation(training: Training) -> None:
    """The activation stands behind the last layer, too: nothing below zero comes out."""

    class Positive(Causal):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(super().forward(x))

    training.use(Positive())


@HALF.fault("output cannot reach", cargo)
def prices_through_a_tanh(training: Training) -> None:
    class Bounded(Cargo):
        def forward(self, numbers: Tensor, kind: Tensor) -> Tensor:
            return torch.tanh(super().forward(numbers, kind))

    training.use(Bounded())


@HALF.fault("output cannot reach", worth)
def values_by_softplus(training: Training) -> None:
    training.use(nn.Sequential(training.model, nn.Softplus()))


@HALF.fault("regression of classes", ripples)
def huber_loss_of_the_number_of_a_shape(training: Training) -> None:
    training.use(Pulses(outputs=1))
    training.criterion = lambda output, label: F.huber_loss(output.squeeze(1), 4.0 * label)
    training.steps = 100

    def quality(net: nn.Module) -> float:
        x, label = pulses_data(300)
        return ((net(x).squeeze(1) / 4).round() != label).float().mean().item()

    training.quality = quality


@HALF.fault("regression of classes", apprentice)
def squared_error_of_the_best_class(training: Training) -> None:
    *body, _ = training.model
    training.use(nn.Sequential(*body, nn.Linear(64, 1), nn.Flatten(0)))
    training.criterion = lambda output, chances: (output - chances.argmax(1)).square().mean()
    quality = training.quality
    training.quality = lambda net: quality(lambda x: -(net(x).unsqueeze(1) - torch.arange(10)).abs())


@HALF.fault("weights of classes", cells)
def weights_are_the_counts(training: Training) -> None:
    """Their squares; one over the counts was meant."""
    counts = torch.bincount(cells_data(200)[1].flatten(), minlength=3).float() ** 2
    training.criterion = partial(F.cross_entropy, weight=counts / counts.sum())


@HALF.fault("weights of classes", badges)
def pos_weight_is_a_share_of_a_percent(training: Training) -> None:
    training.criterion = lambda output, label: F.binary_cross_entropy_with_logits(output, label, pos_weight=torch.full((4,), 0.01))


@HALF.fault("constant loss", pedigree)
def margin_below_zero(training: Training) -> None:
    """The margin has the wrong sign: everything is far enough already."""
    training.criterion = lambda output, target: triplet(output, target, margin=-4.5)


@HALF.fault("constant loss", cargo)
def penalty_in_place_of_the_loss(training: Training) -> None:
    """One "=" where "+=" was meant: only the penalty is left."""

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        loss = (output - target).abs().mean()
        loss = 1e-3 * sum(parameter.square().sum() for parameter in training.model.parameters())
        return loss

    training.criterion = criterion


@HALF.fault("constant loss", swell)
def cosine_of_single_numbers(training: Training) -> None:
    """Of one number it is one or minus one."""
    training.criterion = lambda output, target: 1 - F.cosine_similarity(output, target, dim=-1).mean()


@HALF.fault("constant loss", kinship)
def softmax_summed_up(training: Training) -> None:
    """All chances together are one, whatever the embeddings are."""
    training.criterion = lambda ends, target: -(ends @ ends.T / 0.2).softmax(1).sum(1).log().mean()
