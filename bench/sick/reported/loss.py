"""Faults of the loss and of what it is given."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from bench.sick.cases import Change
from bench.sick.changes import Lambda, on_loss, on_options, on_output, on_target
from bench.sick.reported.further_nets import Block, Mirror, kin, mirror, refrain, signs, tiles, topics
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import (
    Houses,
    Pulses,
    Ranks,
    arm,
    churn,
    churn_data,
    clusters,
    duration,
    houses,
    patches,
    patches_data,
    pulses,
    ranks,
    shapes,
    share,
    tags,
    tides,
)
from bench.sick.training import Training

# ---- shapes ----------------------------------------------------------------------------------------


@HALF.fault("broadcast", houses)
def prices_in_a_column(training: Training) -> None:
    """The model squeezes, and the table does not."""
    on_target(training, lambda price: price.unsqueeze(1))


@HALF.fault("broadcast", churn)
def a_focal_loss_of_a_column_and_a_row(training: Training) -> None:
    """Written by hand, it says nothing about shapes."""

    def focal(output: Tensor, target: Tensor) -> Tensor:
        chance = output.sigmoid()
        right = target * chance + (1 - target) * (1 - chance)
        return (-(1 - right).square() * right.clamp(min=1e-6).log()).mean()

    training.criterion = lambda output, target: focal(output, target.squeeze(1))


@HALF.fault("broadcast", duration)
def a_likelihood_of_a_column_and_a_row(training: Training) -> None:
    def criterion(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        mean, variance = output
        return (0.5 * (variance.log() + (target.flatten() - mean).square() / variance)).mean()

    training.criterion = criterion


# ---- softmax, sigmoid, log -------------------------------------------------------------------------


def _plain_descent(rate: float, momentum: float = 0.9) -> Change:
    """Adam takes steps of its own size, however small a gradient is; this does not."""

    def change(training: Training) -> None:
        training.optimize = partial(SGD, lr=rate, momentum=momentum)
        training.use(training.model)

    return change


@HALF.fault("softmax before cross entropy", clusters, twin=_plain_descent(0.05, 0.5))
def a_layer_of_softmax_at_the_end(training: Training) -> None:
    _plain_descent(0.05, 0.5)(training)
    training.use(nn.Sequential(*training.model, nn.Softmax(dim=1)))


@HALF.fault("softmax before cross entropy", pulses, twin=_plain_descent(0.02, 0.0))
def forward_returns_chances(training: Training) -> None:
    class Net(Pulses):
        def forward(self, x: Tensor) -> Tensor:
            return F.softmax(super().forward(x), dim=-1)

    _plain_descent(0.02, 0.0)(training)
    training.model.__class__ = Net


@HALF.fault("softmax over the wrong dimension", ranks)
def log_softmax_over_the_tokens(training: Training) -> None:
    """Classes stand in the middle, as cross_entropy likes them; the last dimension are places."""

    class Net(Ranks):
        def forward(self, tokens: Tensor) -> Tensor:
            return F.log_softmax(super().forward(tokens), dim=-1)

    training.model.__class__ = Net
    training.criterion = F.nll_loss


@HALF.fault("softmax over the wrong dimension", mirror)
def log_softmax_over_the_letters_of_a_word(training: Training) -> None:
    class Net(Mirror):
        def forward(self, word: Tensor, given: Tensor) -> Tensor:
            return super().forward(word, given).log_softmax(1)

    training.model.__class__ = Net


class Attending(Block):
    """Attention, written by hand."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        parts = self.project(self.first_norm(x)).chunk(3, 2)
        query, key, value = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        seen = (query @ key.transpose(2, 3) / key.shape[3] ** 0.5).softmax(dim=0) @ value
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.feed(self.second_norm(x))


@HALF.fault("softmax over the wrong dimension", signs, where=("blocks",))
def attention_over_the_batch(training: Training) -> None:
    training.model.blocks[0].__class__ = Attending


@HALF.fault("sigmoid twice", churn, twin=_plain_descent(0.02))
def chances_under_a_loss_with_logits(training: Training) -> None:
    _plain_descent(0.02)(training)
    training.use(nn.Sequential(*training.model, nn.Sigmoid()))

    def quality(net: nn.Module) -> float:
        x, leaves = churn_data(800)
        return share((net(x) > 0.5).float() != leaves)

    training.quality = quality


@HALF.fault("sigmoid twice", patches, twin=_plain_descent(0.3))
def a_mask_of_chances_under_a_loss_with_logits(training: Training) -> None:
    _plain_descent(0.3)(training)
    training.model.out.register_forward_hook(lambda *call: call[2].sigmoid())

    def quality(net: nn.Module) -> float:
        x, mask = patches_data(200)
        told = net(x) > 0.5
        return 1 - ((told & mask.bool()).sum() / (told | mask.bool()).sum()).item()

    training.quality = quality


@HALF.fault("no log", pulses)
def divergence_from_logits(training: Training) -> None:
    """kl_div wants logarithms of chances first."""
    training.criterion = lambda output, label: F.kl_div(output, 0.9 * F.one_hot(label, 4) + 0.025, reduction="batchmean")


@HALF.fault("no log", clusters, twin=_plain_descent(0.05, 0.5))
def likelihood_of_chances(training: Training) -> None:
    """nll_loss of a softmax: the loss is the mean chance, turned around."""
    _plain_descent(0.05, 0.5)(training)
    training.criterion = lambda output, label: F.nll_loss(output.softmax(1), label)


@HALF.fault("one logit", churn)
def softmax_of_one_output(training: Training) -> None:
    """It is one for each sample."""
    training.criterion = lambda output, target: F.binary_cross_entropy(output.softmax(1), target)


@HALF.fault("one logit", signs, where=("where",))
def one_output_for_nine_places(training: Training) -> None:
    """log_softmax of one is zero."""
    training.model.where = nn.Linear(24, 1)
    training.use(training.model)

    def criterion(output: dict[str, Tensor], target: Tensor) -> Tensor:
        right = (target[:, 0] == 0).float()
        return -(output["where"].log_softmax(1).squeeze(1) * right).mean() + F.cross_entropy(output["what"], target[:, 1])

    training.criterion = criterion


# ---- sign and size ---------------------------------------------------------------------------------


@HALF.fault("wrong sign", kin)
def the_other_comes_near_and_the_kin_goes_away(training: Training) -> None:
    """Positive and negative samples are swapped."""
    training.criterion = lambda output, _: F.triplet_margin_loss(output[0], output[2], output[1])


@HALF.fault("wrong sign", duration)
def a_likelihood_is_minimized(training: Training) -> None:
    def criterion(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        return torch.distributions.Normal(output[0], output[1].sqrt()).log_prob(target).mean()

    training.criterion = criterion


@HALF.fault("wrong sign", arm, where=("place",))
def one_of_two_losses_is_subtracted(training: Training) -> None:
    def criterion(output: dict[str, Tensor], target: Tensor) -> Tensor:
        return F.cross_entropy(output["third"], target[:, 2].long()) - 0.5 * F.mse_loss(output["place"], target[:, :2])

    training.criterion = criterion


@HALF.fault("wrong sign", topics)
def optimizer_that_climbs(training: Training) -> None:
    on_options(training, maximize=True)


@HALF.fault("loss too small", churn)
def mean_divided_by_the_number_of_samples(training: Training) -> None:
    """Once more, and by those of the whole set."""
    on_loss(training, lambda loss: loss / 4000)


@HALF.fault("loss too small", houses)
def weighted_by_a_tiny_lambda(training: Training) -> None:
    """So small that even AdamW's epsilon is greater than the gradients."""
    on_loss(training, lambda loss: 1e-11 * loss)


@HALF.fault("loss too large", clusters, pulses, also=("rate too high", "not finite by the rate"))
def summed_with_the_rate_of_a_mean(training: Training) -> None:
    training.criterion = lambda output, label: 4 * F.cross_entropy(output, label, reduction="sum")


# ---- what the output can be ------------------------------------------------------------------------


@HALF.fault("output cannot reach", houses)
def a_price_is_never_negative(training: Training) -> None:
    """A softplus, for prices; but they are given as differences from the mean."""

    class Net(Houses):
        def forward(self, numbers: Tensor, district: Tensor) -> Tensor:
            return F.softplus(super().forward(numbers, district))

    training.model.__class__ = Net


@HALF.fault("output cannot reach", duration, where=("mean",))
def the_mean_is_a_tanh(training: Training) -> None:
    training.model.mean = nn.Sequential(training.model.mean, nn.Tanh())
    training.use(training.model)


@HALF.fault("output cannot reach", tides, where=("out",))
def heights_behind_a_relu(training: Training) -> None:
    training.model.out = nn.Sequential(training.model.out, nn.ReLU())
    training.use(training.model)


@HALF.fault("regression of classes", clusters)
def the_number_of_a_cluster(training: Training) -> None:
    *body, head = training.model
    training.use(nn.Sequential(*body, nn.Linear(head.in_features, 1), Lambda(lambda x: x.squeeze(1))))
    training.optimize = partial(SGD, lr=0.01, momentum=0.9)
    training.use(training.model)
    training.criterion = lambda output, label: F.mse_loss(output, label.float())
    quality, classes = training.quality, torch.arange(6)
    training.quality = lambda net: quality(lambda x: -(net(x)[:, None] - classes).abs())


@HALF.fault("regression of classes", refrain, where=("logits",))
def notes_as_numbers(training: Training) -> None:
    """A note between two others is not half of each."""
    training.model.logits = nn.Linear(32, 1)
    training.use(training.model)
    training.criterion = lambda output, note: F.mse_loss(output.squeeze(2), note.float())
    quality, notes = training.quality, torch.arange(8)
    training.quality = lambda net: quality(lambda song: -(net(song) - notes).abs())


@HALF.fault("weights of classes", tags)
def a_positive_weight_for_rarer_tags(training: Training) -> None:
    """Of two hundred, where one would do."""
    weight = torch.tensor(200.0)
    training.criterion = lambda output, given: F.binary_cross_entropy_with_logits(output, given, pos_weight=weight)


@HALF.fault("weights of classes", churn)
def alpha_of_a_focal_loss_for_the_wrong_side(training: Training) -> None:
    def focal(output: Tensor, target: Tensor, alpha: float = 0.01) -> Tensor:
        loss = F.binary_cross_entropy_with_logits(output, target, reduction="none")
        return ((alpha * target + (1 - alpha) * (1 - target)) * (1 - torch.exp(-loss)) * loss).mean()

    training.criterion = focal


@HALF.fault("constant loss", shapes, also=("no gradient through",))
def flooded_too_high(training: Training) -> None:
    """A floor under the loss, above what it begins with."""
    on_loss(training, lambda loss: loss.clamp(min=5.0))


@HALF.fault("constant loss", tiles)
def only_the_divergence_is_left(training: Training) -> None:
    """The error is against the output itself."""
    criterion = training.criterion
    training.criterion = lambda output, target: criterion(output, output[0].detach().sigmoid())


@HALF.fault("constant loss", tides, also=("output cannot reach", "no gradient through"))
def the_output_is_clamped_to_a_range_of_another_unit(training: Training) -> None:
    """All of it lies below, where a clamp is constant."""
    on_output(training, lambda output: output.clamp(min=4, max=20))
