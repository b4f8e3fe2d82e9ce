"""Faults of the model: how it begins and what it is made of."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import looped, loss_of, on_inputs, replaced, weights
from bench.sick.reported.further_nets import refrain
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import (
    Arm,
    Houses,
    Ranks,
    Reviews,
    Tides,
    arm,
    churn,
    clusters,
    duration,
    houses,
    pulses,
    ranks,
    reviews,
    shapes,
    tags,
    tides,
)
from bench.sick.training import Training

# ---- how it begins ---------------------------------------------------------------------------------


@HALF.fault("all weights equal", clusters)
def one_divided_by_the_width(training: Training) -> None:
    def begin(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.constant_(module.weight, 1 / module.in_features)
            nn.init.zeros_(module.bias)

    training.model.apply(begin)


@HALF.fault("all weights equal", refrain, also=("weights begin too small",))
def everything_begins_at_zero(training: Training) -> None:
    """Norms, too."""
    with torch.no_grad():
        for one in training.model.parameters():
            one.zero_()


@HALF.fault("all weights equal", shapes)
def kernels_of_a_mean(training: Training) -> None:
    with torch.no_grad():
        for one in weights(training):
            one.fill_(one[0].numel() ** -1.0)
        for name, one in training.model.named_parameters():
            if name.endswith("bias"):
                one.zero_()


@HALF.fault("weights begin too large", churn, clusters)
def normal_of_three_whatever_the_width(training: Training) -> None:
    with torch.no_grad():
        for one in training.model.parameters():
            one.normal_(0, 3)


@HALF.fault("weights begin too large", tides, ranks)
def orthogonal_with_a_gain_of_thirty(training: Training) -> None:
    for one in weights(training):
        nn.init.orthogonal_(one, gain=30.0)


@HALF.fault("weights begin too small", clusters)
def normal_of_a_ten_thousandth(training: Training) -> None:
    for one in weights(training):
        nn.init.normal_(one, std=1e-4)
    for layer in training.model:
        if isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)


@HALF.fault("weights begin too small", churn)
def uniform_in_a_millionth(training: Training) -> None:
    for one in training.model.parameters():
        nn.init.uniform_(one, -1e-6, 1e-6)


# ---- depth and units -------------------------------------------------------------------------------


@HALF.fault("vanishing gradient", clusters)
def twelve_layers_of_tanh_that_shrink(training: Training) -> None:
    """As PyTorch makes a linear layer, its output is smaller than its input."""
    one, _, _, _, head = training.model
    inner = [layer for _ in range(12) for layer in (nn.Linear(48, 48), nn.Tanh())]
    training.use(nn.Sequential(one, nn.Tanh(), *inner, nn.Linear(48, 32), nn.Tanh(), head))


@HALF.fault("vanishing gradient", shapes)
def convolutions_with_a_sigmoid_behind_each(training: Training) -> None:
    inner = [layer for _ in range(8) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.Sigmoid())]
    training.use(
        nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Sigmoid(), *inner, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    )


@HALF.fault("dead units", pulses, where=("bn2",))
def a_shift_of_the_norm_below_zero(training: Training) -> None:
    nn.init.constant_(training.model.bn2.bias, -8.0)


@HALF.fault("dead units", churn, also=("rate too high",))
def a_first_step_that_is_far_too_long(training: Training) -> None:
    """A test of the rate left the model behind it."""

    def long(number: int) -> None:
        training.optimizer.param_groups[0]["lr"] = 60.0 if number < 2 else 0.1

    training.each.append(long)


@HALF.fault("no nonlinearity", tags, arm)
def activations_left_for_later(training: Training) -> None:
    for kind in (nn.SiLU, nn.Softplus):
        replaced(training, kind, lambda _: nn.Identity())


@HALF.fault("no nonlinearity", clusters)
def rectifiers_that_leak_everything(training: Training) -> None:
    replaced(training, nn.ReLU, lambda _: nn.LeakyReLU(negative_slope=1.0))


@HALF.fault("bottleneck", tags)
def two_units_before_the_tags(training: Training) -> None:
    one, norm, act, _, _, _ = training.model
    training.use(nn.Sequential(one, norm, act, nn.Linear(64, 2), nn.SiLU(), nn.Linear(2, 4)))


@HALF.fault("bottleneck", ranks)
def a_state_of_one_number(training: Training) -> None:
    training.use(Ranks(width=1))


# ---- dropout and norm ------------------------------------------------------------------------------


@HALF.fault("too much dropout", churn)
def the_share_to_keep_given_as_the_share_to_drop(training: Training) -> None:
    for layer in training.model:
        if isinstance(layer, nn.Dropout):
            layer.p = 0.95


@HALF.fault("too much dropout", reviews)
def dropout_of_inputs_and_states(training: Training) -> None:
    """As a function, which knows nothing of eval()."""

    class Net(Reviews):
        def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
            states, _ = self.gru(F.dropout(self.words(words), 0.8))
            last = states[torch.arange(len(words)), lengths - 1]
            return self.good(F.dropout(last, 0.8)).squeeze(1)

    training.model.__class__ = Net


@HALF.fault("too much dropout", shapes)
def whole_channels_dropped(training: Training) -> None:
    training.model.stem = nn.Sequential(training.model.stem, nn.Dropout2d(0.9))
    training.model.norm = nn.Sequential(training.model.norm, nn.Dropout2d(0.9))
    training.use(training.model)


def _normed(training: Training) -> None:
    one, two, head = (layer for layer in training.model if isinstance(layer, nn.Linear))
    norms = nn.BatchNorm1d(one.out_features), nn.BatchNorm1d(32)
    training.use(nn.Sequential(one, norms[0], nn.ReLU(), two, norms[1], nn.ReLU(), head))


@HALF.fault("batch norm of one", clusters, twin=_normed)
def accumulated_from_batches_of_two(training: Training) -> None:
    """As many samples a step as before; but the norm sees two of them."""
    _normed(training)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        for few, given in zip(inputs.split(2), target.split(2), strict=True):
            (loss_of(training, few, given) / 16).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.fault("batch norm of one", churn, twin=_normed)
def a_loader_of_three(training: Training) -> None:
    _normed(training)
    batch = training.batch
    training.batch = lambda number: tuple(part[:3] for part in batch(number))


def _raw(training: Training) -> None:
    """Numbers of a sensor, not scaled; the norm copes."""
    on_inputs(training, lambda x: 30 * x + 200)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(30 * x + 200))


@HALF.fault("batch norm statistics", tags, twin=_raw, where=("1",))
def momentum_as_in_another_framework(training: Training) -> None:
    """There 0.9999 is kept, and it is given as what is new here."""
    _raw(training)
    training.model[1].momentum = 1 - 0.9999


@HALF.fault("batch norm statistics", pulses, twin=_raw, where=("bn1", "bn2"))
def statistics_reset_after_each_step(training: Training) -> None:
    _raw(training)

    def reset(number: int) -> None:
        for norm in (training.model.bn1, training.model.bn2):
            norm.reset_running_stats()

    training.after.append(reset)


@HALF.fault("no bias where needed", duration)
def no_bias_in_any_layer(training: Training) -> None:
    replaced(training, nn.Linear, lambda one: nn.Linear(one.in_features, one.out_features, bias=False))


@HALF.fault("no bias where needed", pulses, twin=_raw, also=("inputs not scaled",))
def norms_left_out(training: Training) -> None:
    """The twin's norms cope with raw numbers."""
    _raw(training)
    for kind in (nn.BatchNorm1d,):
        replaced(training, kind, lambda _: nn.Identity())


# ---- what is done with activations -----------------------------------------------------------------


@HALF.fault("overwritten activation", tides, also=("state not kept",))
def all_states_become_the_first(training: Training) -> None:
    """A line in place, meant for a copy."""

    class Net(Tides):
        def forward(self, x: Tensor) -> Tensor:
            states, _ = self.rnn(x)
            states = states.clone()
            states[:, 1:] = states[:, :1]
            return self.out(states)

    training.model.__class__ = Net


@HALF.fault("overwritten activation", houses, also=("no gradient through", "detached"), where=("stem", "district"))
def a_mask_in_place_of_the_numbers(training: Training) -> None:
    class Net(Houses):
        def forward(self, numbers: Tensor, district: Tensor) -> Tensor:
            x = self.stem(torch.cat([numbers, self.district(district)], 1))
            x[x != 0] = 1.0
            for block in self.blocks:
                x = block(x)
            return self.head(x).squeeze(1)

    training.model.__class__ = Net


@HALF.fault("overwritten activation", ranks)
def the_mean_in_place_of_all_states(training: Training) -> None:
    """Made for a classifier, and left in a tagger."""

    class Net(Ranks):
        def forward(self, tokens: Tensor) -> Tensor:
            states, _ = self.lstm(self.embed(tokens))
            states = states.mean(1, keepdim=True).expand_as(states)
            return self.tag(states).transpose(1, 2)

    training.model.__class__ = Net


@HALF.fault("shared by mistake", duration, where=("mean", "variance"))
def one_layer_for_mean_and_variance(training: Training) -> None:
    last = nn.Linear(40, 1)
    training.model.mean, training.model.variance = last, nn.Sequential(last, nn.Softplus())
    training.use(training.model)


@HALF.fault("shared by mistake", arm, where=("place", "third"))
def one_layer_for_both_heads(training: Training) -> None:
    class Net(Arm):
        def forward(self, angle: Tensor) -> dict[str, Tensor]:
            h = self.trunk(angle)
            return {"place": self.place(h)[:, :2], "third": self.third(h)}

    training.model.__class__ = Net
    training.model.place = training.model.third
    training.use(training.model)


def _normed_alike(training: Training) -> None:
    one, act = training.model[0], training.model[2]
    training.use(nn.Sequential(one, nn.BatchNorm1d(64), act, nn.Linear(64, 64), nn.BatchNorm1d(64), nn.SiLU(), nn.Linear(64, 4)))
    _raw(training)


@HALF.fault("shared by mistake", tags, twin=_normed_alike, also=("batch norm statistics",), where=("1", "4"))
def one_norm_for_two_layers(training: Training) -> None:
    """Its statistics are of neither."""
    _normed_alike(training)
    training.model[4] = training.model[1]
    training.use(training.model)
