"""Faults of the data: what comes in, and what is asked for."""

from __future__ import annotations

import torch
from torch import Tensor

from bench.sick.changes import fixed, on_batch, on_inputs, on_target, sorted_by_class
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import bars, basket, counting, dot, inside, majority, marked, ratings, recall, spirals, views, wave


@HALF.fault("targets shuffled", wave, bars, ratings)
def targets_in_another_order(training: Training) -> None:
    on_target(training, lambda target: target[torch.randperm(len(target))])


@HALF.fault("targets shifted", spirals, marked, majority, also=("targets shuffled",))
def targets_of_the_sample_before(training: Training) -> None:
    on_target(training, lambda target: target.roll(1, 0))


@HALF.fault("constant targets", wave, bars, recall)
def targets_of_one_sample_for_all(training: Training) -> None:
    on_target(training, lambda target: target[:1].expand_as(target) * 0)


@HALF.fault("same batch", spirals, dot, also=("few samples",))
def first_batch_again_and_again(training: Training) -> None:
    fixed(training, 8)


@HALF.fault("few samples", dot, majority, also=("same batch",))
def ten_samples(training: Training) -> None:
    inputs, target = training.batch(0)
    inputs, target = inputs[:10], target[:10]

    def batch(_: int) -> tuple[Tensor, Tensor]:
        rows = torch.randperm(10)[:6]
        return inputs[rows], target[rows]

    training.batch = batch


@HALF.fault("ordered batches", bars, spirals, recall)
def sorted_by_label(training: Training) -> None:
    sorted_by_class(training, 60)


def _rare(training: Training, kept: float) -> None:
    def change(inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        common = (target == 0).reshape(len(target), -1).all(1)
        fill = common.nonzero().flatten()
        rows = torch.arange(len(target))
        drop = ~common & (torch.rand(len(target)) > kept)
        rows[drop] = fill[torch.randint(len(fill), (int(drop.sum()),))]
        return inputs[rows], target[rows]

    on_batch(training, change)


@HALF.fault("imbalance", bars, inside, recall)
def nearly_all_of_class_zero(training: Training) -> None:
    _rare(training, 0.01)


@HALF.fault("inputs not scaled", wave, spirals, dot)
def inputs_in_thousands(training: Training) -> None:
    on_inputs(training, lambda x: 1000 * x + 3000)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(1000 * x + 3000))


@HALF.fault("one huge feature", wave, spirals, also=("inputs not scaled",))
def second_feature_in_ten_thousands(training: Training) -> None:
    scale = torch.tensor([1.0, 10_000.0])
    on_inputs(training, lambda x: x * scale)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(x * scale))


@HALF.fault("one huge feature", marked, also=("inputs not scaled",))
def numbers_in_ten_thousands(training: Training) -> None:
    scale = torch.tensor([10_000.0, 1.0])
    on_inputs(training, lambda x: x * scale)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(x * scale))


@HALF.fault("inputs vanish", dot, spirals, wave)
def divided_by_255_twice(training: Training) -> None:
    on_inputs(training, lambda x: x / 65025)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(x / 65025))


@HALF.fault("constant inputs", wave, bars)
def inputs_are_zeros(training: Training) -> None:
    on_inputs(training, torch.zeros_like)


@HALF.fault("constant inputs", counting, majority)
def the_first_sample_for_all(training: Training) -> None:
    on_inputs(training, lambda x: x[:1].expand_as(x))


@HALF.fault("targets not scaled", marked, basket)
def targets_in_ten_thousands(training: Training) -> None:
    on_target(training, lambda y: 1e4 * y)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(x) / 1e4)


@HALF.fault("targets not scaled", dot, also=("rate too high", "not finite by the rate"))
def places_in_pixels_of_a_poster(training: Training) -> None:
    on_target(training, lambda y: 1e4 * y)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(x) / 1e4)


@HALF.fault("leak", bars)
def label_in_a_corner(training: Training) -> None:
    def change(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        x = x.clone()
        x[:, 0, 0, 0] = 30.0 * (label - 1.5)
        return x, label

    on_batch(training, change)


@HALF.fault("leak", dot)
def place_in_the_other_channel(training: Training) -> None:
    def change(x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        x = x.clone()
        x[:, 1, :4] = 3 * place[:, :1, None]
        x[:, 1, 4:] = 3 * place[:, 1:, None]
        return x, place

    on_batch(training, change)


@HALF.fault("leak", recall)
def label_as_the_last_token(training: Training) -> None:
    def change(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        x = x.clone()
        x[:, -1] = label + 1
        return x, label

    on_batch(training, change)


@HALF.fault("too much noise", bars, dot)
def noise_of_twenty(training: Training) -> None:
    on_inputs(training, lambda x: x + 20 * torch.randn_like(x))


@HALF.fault("too much noise", recall)
def tokens_replaced_at_random(training: Training) -> None:
    on_inputs(training, lambda x: torch.where(torch.rand(x.shape) < 0.95, torch.randint_like(x, 1, 7), x))


@HALF.fault("wrong axes", wave, bars, recall)
def reshaped_where_it_should_be_transposed(training: Training) -> None:
    on_inputs(training, lambda x: x.movedim(0, -1).reshape(x.shape))


@HALF.fault("not a number in data", wave, ratings)
def one_target_is_nan(training: Training) -> None:
    def change(inputs: object, target: Tensor) -> tuple[object, Tensor]:
        if torch.rand(()) < 0.1:
            target = target.clone()
            target[0] = float("nan")
        return inputs, target

    on_batch(training, change)


@HALF.fault("not a number in data", bars, views)
def one_input_is_infinite(training: Training) -> None:
    def change(x: object) -> object:
        first = x[0] if isinstance(x, tuple) else x
        first = first.clone()
        if torch.rand(()) < 0.2:
            first.view(-1)[7] = float("inf")
        return (first, *x[1:]) if isinstance(x, tuple) else first

    on_inputs(training, change)
