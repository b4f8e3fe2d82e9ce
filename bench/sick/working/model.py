"""Faults of the model: how it begins and what it is made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bench.sick.changes import Lambda, on_inputs, replaced, weights
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import (
    bars,
    bars_model,
    counting,
    curves,
    dot,
    inside,
    marked,
    ratings,
    recall,
    spirals,
    spirals_model,
    wave,
    wave_model,
)


@HALF.fault("all weights equal", wave, spirals, bars)
def weights_are_a_constant(training: Training) -> None:
    for weight in weights(training):
        nn.init.constant_(weight, 0.1)
    for name, one in training.model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(one)


@HALF.fault("all weights equal", ratings)
def embeddings_begin_at_zero(training: Training) -> None:
    for weight in weights(training):
        nn.init.zeros_(weight)


@HALF.fault("weights begin too large", wave, recall, counting)
def weights_times_forty(training: Training) -> None:
    with torch.no_grad():
        for weight in weights(training):
            weight *= 40


@HALF.fault("weights begin too small", wave, dot)
def weights_and_biases_of_nearly_nothing(training: Training) -> None:
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter *= 1e-4


@HALF.fault("vanishing gradient", wave, also=("dead units",))
def fourteen_layers_of_sigmoid(training: Training) -> None:
    training.use(wave_model(depth=14, activation=nn.Sigmoid))


@HALF.fault("vanishing gradient", spirals)
def sixteen_layers_of_sigmoid(training: Training) -> None:
    training.use(spirals_model(depth=16, activation=nn.Sigmoid))


@HALF.fault("vanishing gradient", marked)
def gates_that_begin_shut(training: Training) -> None:
    """The update gate keeps the old state, and the reset gate forgets it: nothing of the numbers comes through."""
    with torch.no_grad():
        training.model.recurrent.bias_ih_l0[:24] = -12
        training.model.recurrent.bias_ih_l0[24:48] = 12
        training.model.recurrent.bias_hh_l0[24:48] = 12


@HALF.fault("dead units", wave, dot)
def biases_far_below_zero(training: Training) -> None:
    with torch.no_grad():
        [*training.model.parameters()][-3].fill_(-15)


@HALF.fault("dead units", curves)
def a_batch_that_kills_them(training: Training) -> None:
    """One step with a huge rate, as a first batch that was not scaled makes it."""

    def shock(number: int) -> None:
        if number == 5:
            with torch.no_grad():
                training.model.encoder[0].bias -= 50
                training.model.decoder[0].bias -= 50

    training.each.append(shock)


@HALF.fault("no nonlinearity", wave, spirals)
def nothing_between_the_layers(training: Training) -> None:
    kind = type(training.model[1])
    replaced(training, kind, lambda _: nn.Identity())


@HALF.fault("no nonlinearity", inside)
def activations_are_forgotten(training: Training) -> None:
    training.use(nn.Sequential(*(one for one in training.model if not isinstance(one, nn.ReLU))))


@HALF.fault("bottleneck", spirals)
def one_unit_in_the_middle(training: Training) -> None:
    training.use(nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 1), nn.Tanh(), nn.Linear(1, 3)))


@HALF.fault("bottleneck", curves)
def one_number_in_the_middle(training: Training) -> None:
    training.model.encoder[2], training.model.decoder[0] = nn.Linear(32, 1), nn.Linear(1, 32)
    training.use(training.model)


@HALF.fault("bottleneck", dot)
def one_channel_of_one_pixel(training: Training) -> None:
    training.use(nn.Sequential(nn.Conv2d(2, 1, 8), nn.ReLU(), nn.Flatten(), nn.Linear(1, 2)))


@HALF.fault("too much dropout", wave, spirals, dot)
def dropout_of_ninety_seven(training: Training) -> None:
    *body, head = training.model
    training.use(nn.Sequential(*body, nn.Dropout(0.97), head))


@HALF.fault("batch norm of one", dot)
def norm_over_two_samples(training: Training) -> None:
    *body, head = training.model
    training.use(nn.Sequential(*body, nn.BatchNorm1d(32), head))
    batch = training.batch

    def two(number: int) -> tuple[Tensor, Tensor]:
        inputs, target = batch(number)
        return inputs[:2], target[:2]

    training.batch = two


@HALF.fault("batch norm of one", wave)
def norm_in_batches_of_two(training: Training) -> None:
    one, relu, *rest = training.model
    training.use(nn.Sequential(one, nn.BatchNorm1d(32), relu, *rest))
    batch = training.batch

    def two(number: int) -> tuple[Tensor, Tensor]:
        inputs, target = batch(number)
        return inputs[:2], target[:2]

    training.batch = two


def _shifted(training: Training) -> None:
    quality = training.quality
    on_inputs(training, lambda x: 4 * x + 8)
    training.quality = lambda net: quality(lambda x: net(4 * x + 8))


@HALF.fault("batch norm statistics", bars, twin=_shifted)
def momentum_of_a_millionth(training: Training) -> None:
    training.use(bars_model(norm=lambda channels: nn.BatchNorm2d(channels, momentum=1e-6)))
    _shifted(training)


@HALF.fault("no bias where needed", wave)
def no_bias_anywhere(training: Training) -> None:
    replaced(training, nn.Linear, lambda one: nn.Linear(one.in_features, one.out_features, bias=False))


@HALF.fault("overwritten activation", spirals, wave)
def activation_times_zero(training: Training) -> None:
    one, act, *rest = training.model
    training.use(nn.Sequential(one, act, Lambda(lambda x: x * 0), *rest))


@HALF.fault("overwritten activation", recall)
def the_mask_is_zero_everywhere(training: Training) -> None:
    training.model.embedding.register_forward_hook(lambda module, given, out: out * (given[0] < 0).unsqueeze(-1))
