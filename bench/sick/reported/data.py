"""Faults of the data: what comes in, and what is asked for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bench.sick.changes import on_batch, on_inputs, on_target
from bench.sick.reported.further_nets import captions, fog, kin, refrain, signs, topics
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import arm, churn, clusters, duration, houses, pulses, shapes, tags, tides
from bench.sick.reported.pools import changed, fed, pool, rows, seen_through, size
from bench.sick.training import Training

# ---- targets ---------------------------------------------------------------------------------------


@HALF.fault("targets shuffled", tags, clusters)
def labels_of_the_pool_in_another_order(training: Training) -> None:
    """`y = y[torch.randperm(len(y))]`, and `x` as it was."""
    inputs, target = pool(training, 50)
    fed(training, inputs, target[torch.randperm(len(target))], size(training))


@HALF.fault("targets shuffled", arm, houses)
def two_loaders_that_shuffle(training: Training) -> None:
    """One gives the inputs, one the targets."""
    batch = training.batch
    training.batch = lambda number: (batch(number)[0], batch(number)[1])  # drawn twice


@HALF.fault("targets shuffled", duration, also=("targets shifted",))
def targets_are_sorted_and_inputs_are_not(training: Training) -> None:
    inputs, target = pool(training, 20)
    fed(training, inputs, target.sort(0).values, size(training))


@HALF.fault("targets shifted", shapes, houses, also=("targets shuffled",))
def targets_begin_one_row_later(training: Training) -> None:
    """`y = rows[1:]` beside `x = rows[:-1]`: a header was skipped once."""
    inputs, target = pool(training, 40)
    which = torch.arange(len(target) - 1)
    fed(training, rows(inputs, which), target[1:], size(training))


@HALF.fault("targets shifted", signs, also=("targets shuffled",))
def targets_of_the_batch_before(training: Training) -> None:
    """They are fetched ahead, and one is left over."""
    batch, kept = training.batch, [training.batch(0)[1]]

    def late(number: int) -> tuple[Any, Tensor]:
        inputs, target = batch(number)
        kept.append(target)
        return inputs, kept.pop(0)

    training.batch = late


@HALF.fault("constant targets", churn)
def argmax_of_a_single_column(training: Training) -> None:
    """As if the labels were one-hot: the largest of one is always the first."""
    on_target(training, lambda target: target.argmax(1, keepdim=True).float())


@HALF.fault("constant targets", pulses, signs)
def labels_divided_by_255(training: Training) -> None:
    """A transformation for images reaches the labels, and what is left is cut to whole numbers."""
    on_target(training, lambda target: (target / 255).long())


@HALF.fault("ordered batches", churn, shapes)
def those_of_one_class_after_those_of_another(training: Training) -> None:
    """Folder by folder, once."""
    inputs, target = pool(training, training.steps)
    order = target.flatten().argsort(stable=True)
    fed(training, rows(inputs, order), target[order], size(training), shuffled=False)


@HALF.fault("ordered batches", houses)
def from_the_cheapest_to_the_dearest(training: Training) -> None:
    inputs, target = pool(training, 150)
    order = target.argsort()
    fed(training, rows(inputs, order), target[order], size(training), shuffled=False)


@HALF.fault("imbalance", clusters, pulses, shapes)
def one_class_is_999_of_1000(training: Training) -> None:
    inputs, target = pool(training, 100)
    chance = torch.where(target == 1, 1.0, 0.0005)
    which = torch.multinomial(chance, len(target), replacement=True)
    fed(training, rows(inputs, which), target[which], size(training))


@HALF.fault("imbalance", topics)
def hardly_any_text_has_a_topic(training: Training) -> None:
    inputs, target = pool(training, 30)
    chance = torch.where(target.any(1), 0.002, 1.0)
    which = torch.multinomial(chance, len(target), replacement=True)
    fed(training, rows(inputs, which), target[which], size(training))


@HALF.fault("targets not scaled", houses)
def prices_in_cents(training: Training) -> None:
    on_target(training, lambda price: 1e6 * price + 2e7)
    quality = training.quality
    training.quality = lambda net: quality(lambda **named: (net(**named) - 2e7) / 1e6)


@HALF.fault("targets not scaled", tides)
def heights_in_micrometres(training: Training) -> None:
    on_target(training, lambda height: 1e6 * height)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(x) / 1e6)


# ---- inputs ----------------------------------------------------------------------------------------


@HALF.fault("inputs not scaled", arm)
def angles_in_seconds_of_arc(training: Training) -> None:
    seen_through(training, lambda angle: angle * 206265)


@HALF.fault("inputs not scaled", duration, clusters)
def a_large_offset(training: Training) -> None:
    """Like years, pressures in pascal or temperatures in kelvin: all that matters is in the last digits."""
    seen_through(training, lambda x: 5000 + 20 * x)


@HALF.fault("one huge feature", churn, clusters, also=("inputs not scaled",))
def a_column_of_seconds_since_1970(training: Training) -> None:
    def change(x: Tensor) -> Tensor:
        return torch.cat([1.7e6 + 1e5 * x[:, :1], x[:, 1:]], 1)

    seen_through(training, change)


@HALF.fault("one huge feature", houses, also=("inputs not scaled",))
def the_area_in_square_millimetres(training: Training) -> None:
    scale = torch.tensor([1e6, 1, 1, 1, 1, 1])
    seen_through(training, lambda inputs: {**inputs, "numbers": inputs["numbers"] * scale})


@HALF.fault("inputs vanish", shapes, tags)
def divided_by_the_norm_of_the_batch(training: Training) -> None:
    seen_through(training, lambda x: 1e-3 * x / x.norm())


@HALF.fault("inputs vanish", duration, arm)
def in_units_of_a_million(training: Training) -> None:
    seen_through(training, lambda x: x * 1e-6)


@HALF.fault("constant inputs", tides, kin)
def one_buffer_for_all_samples(training: Training) -> None:
    """Each row of the list is the same array, which holds what was written last."""
    on_inputs(training, lambda inputs: changed(inputs, lambda x: x[-1:].expand_as(x)))


@HALF.fault("constant inputs", houses)
def columns_that_are_not_found(training: Training) -> None:
    """`row.get("Area", 0.0)`, where the name begins with a small letter."""
    seen_through(training, lambda inputs: changed(inputs, torch.zeros_like))


@HALF.fault("leak", churn)
def a_column_that_is_filled_in_afterwards(training: Training) -> None:
    """The reason of leaving: known of those who have left."""

    def change(x: Tensor, leaves: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([x[:, :9], 2 * leaves - 1 + 0.2 * torch.randn_like(leaves)], 1), leaves

    on_batch(training, change)


@HALF.fault("leak", houses)
def the_tax_that_is_paid_on_the_price(training: Training) -> None:
    def change(inputs: dict[str, Tensor], price: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        tax = price[:, None] + 0.1 * torch.randn(len(price), 1)
        return {**inputs, "numbers": torch.cat([inputs["numbers"][:, :5], tax], 1)}, price

    on_batch(training, change)


@HALF.fault("leak", pulses)
def each_class_recorded_by_a_device_of_its_own(training: Training) -> None:
    """The devices add an offset each."""
    on_batch(training, lambda x, label: (x + 1.5 * label.view(-1, 1, 1), label))


@HALF.fault("too much noise", signs)
def images_rolled_at_random(training: Training) -> None:
    """An augmentation for photographs, where the place is what is asked for."""

    def change(images: Tensor) -> Tensor:
        return torch.stack(
            [
                one.roll((int(down), int(right)), (1, 2))
                for one, (down, right) in zip(images, torch.randint(12, (len(images), 2)), strict=True)
            ]
        )

    on_inputs(training, change)


@HALF.fault("too much noise", shapes, pulses)
def nearly_everything_erased(training: Training) -> None:
    on_inputs(training, lambda x: x * (torch.rand_like(x[:, :1]) < 0.04))


@HALF.fault("too much noise", tides)
def noise_of_five(training: Training) -> None:
    on_inputs(training, lambda x: x + 5 * torch.randn_like(x))


@HALF.fault("wrong axes", tides, also=("targets shuffled",))
def time_and_batch_reshaped(training: Training) -> None:
    on_batch(training, lambda x, y: (x.transpose(0, 1).reshape(x.shape), y))


@HALF.fault("wrong axes", kin, also=("wrong negatives", "targets shuffled"))
def three_samples_stacked_and_viewed(training: Training) -> None:
    """`stack(samples, 1).view(3, n, -1)`: the parts are no longer anchor, friend and stranger."""

    def change(samples: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(torch.stack(samples, 1).view(3, *samples[0].shape).unbind())

    on_inputs(training, change)


@HALF.fault("wrong axes", pulses, also=("targets shuffled",))
def signals_cut_across(training: Training) -> None:
    """The file holds one column a signal, and is read as one row a signal."""
    on_inputs(training, lambda x: x.squeeze(1).T.reshape(x.shape))


@HALF.fault("not a number in data", houses)
def a_number_is_missing(training: Training) -> None:
    """One house of the table has no age."""
    inputs, price = pool(training, 60)
    inputs["numbers"][1000, 2] = float("nan")
    fed(training, inputs, price, size(training))


@HALF.fault("not a number in data", clusters, also=("division by zero",))
def a_constant_column_divided_by_its_deviation(training: Training) -> None:
    def change(x: Tensor) -> Tensor:
        x = torch.cat([x[:, :4], torch.ones(len(x), 1)], 1)
        return (x - x.mean(0)) / x.std(0)

    on_inputs(training, change)


@HALF.fault("not a number in data", tides)
def gaps_of_a_sensor(training: Training) -> None:
    on_inputs(training, lambda x: torch.where(torch.rand_like(x) < 0.001, float("nan"), x))


# ---- which samples come ----------------------------------------------------------------------------


@HALF.fault("same batch", clusters, refrain, kin, also=("few samples",))
def seed_is_set_in_each_step(training: Training) -> None:
    batch = training.batch

    def seeded(number: int) -> tuple[Any, Tensor]:
        torch.manual_seed(7)
        return batch(number)

    training.batch = seeded


@HALF.fault("same batch", pulses, also=("few samples",))
def a_new_loader_in_each_step(training: Training) -> None:
    """`next(iter(loader))` in the loop, and the loader does not shuffle."""
    first = training.batch(0)
    training.batch = lambda _: first


@HALF.fault("few samples", tags, captions, also=("same batch",))
def a_dozen_samples(training: Training) -> None:
    inputs, target = training.batch(0)
    fed(training, rows(inputs, torch.arange(12)), target[:12], 12)


@HALF.fault("few samples", fog, also=("same batch",))
def five_points(training: Training) -> None:
    """Drawn again and again, up to a whole batch."""
    inputs, target = training.batch(0)
    which = torch.arange(5).repeat(20)
    fed(training, rows(inputs, which), target[which], 50)
