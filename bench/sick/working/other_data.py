"""More faults of the data, in data sets, samplers and collate functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler, Subset, TensorDataset, WeightedRandomSampler

from bench.sick.changes import on_batch, on_inputs, on_target
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.other_nets import (
    SGD,
    Cargo,
    Courier,
    Rows,
    badges,
    badges_data,
    cargo,
    cargo_data,
    cells,
    courier,
    covers,
    latch,
    latch_data,
    loaded,
    optimized_by,
    pulses_data,
    ripples,
    sayings,
    sayings_data,
    sways,
    swell,
    tides_data,
)

# ---- inputs and targets apart ----------------------------------------------------------------------


@HALF.fault("targets shuffled", ripples)
def a_loader_for_each_and_both_shuffle(training: Training) -> None:
    x, label = pulses_data(1200)
    waves, labels = (loaded(DataLoader(TensorDataset(one, one), batch_size=32, shuffle=True)) for one in (x, label))

    def batch(number: int) -> tuple[Tensor, Tensor]:
        return waves(number)[0], labels(number)[0]

    training.batch = batch


@HALF.fault("targets shuffled", cargo)
def the_table_is_sorted_and_the_target_is_not(training: Training) -> None:
    columns, target = cargo_data(1500)
    order = columns["numbers"][:, 3].argsort()
    training.batch = loaded(DataLoader(Rows({name: one[order] for name, one in columns.items()}, target), batch_size=50, shuffle=True))


@HALF.fault("targets shuffled", covers)
def images_and_words_are_shuffled_apart(training: Training) -> None:
    def change(inputs: tuple[Tensor, Tensor], target: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        image, text = inputs
        return (image[torch.randperm(len(image))], text), target

    on_batch(training, change)


@HALF.fault("targets shifted", ripples, also=("targets shuffled",))
def header_is_skipped_in_one_file(training: Training) -> None:
    """The rows of one file begin one later."""
    x, label = pulses_data(1201)
    training.batch = loaded(DataLoader(TensorDataset(x[1:], label[:-1]), batch_size=32, shuffle=True))


class Late(Dataset[Any]):
    """Its target is of the row before."""

    def __init__(self, x: Tensor, target: Tensor) -> None:
        self.x, self.target = x, target

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        return self.x[row], self.target[row - 1]


@HALF.fault("targets shifted", badges, also=("targets shuffled",))
def index_off_by_one(training: Training) -> None:
    training.batch = loaded(DataLoader(Late(*badges_data(1500)), batch_size=64, shuffle=False))


@HALF.fault("constant targets", cells)
def masks_divided_as_whole_numbers(training: Training) -> None:
    """Masks are read as bytes and divided by 255."""
    on_target(training, lambda label: label.byte().div(255, rounding_mode="floor").long())


@HALF.fault("constant targets", cargo)
def prices_cast_to_whole_numbers(training: Training) -> None:
    """The target is scaled to 0..1, and then cast."""
    on_target(training, lambda y: ((y + 8) / 16).clamp(0, 0.99).long().float())


@HALF.fault("constant targets", ripples)
def every_label_is_unknown(training: Training) -> None:
    """Names are looked up in the wrong case: each is the default."""
    numbers = {"Square": 0, "Saw": 1, "Sine": 2, "Spikes": 3, "Fast": 4}
    names = ["square", "saw", "sine", "spikes", "fast"]

    def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return torch.stack([x for x, _ in rows]), torch.tensor([numbers.get(names[int(label)], 0) for _, label in rows])

    training.batch = loaded(DataLoader(TensorDataset(*pulses_data(1200)), batch_size=32, shuffle=True, collate_fn=collate))


# ---- which samples come ----------------------------------------------------------------------------


@HALF.fault("same batch", badges, also=("few samples",))
def the_first_of_a_new_iterator(training: Training) -> None:
    """next(iter(loader)) in each step, of a loader that does not shuffle."""
    loader = DataLoader(TensorDataset(*badges_data(1500)), batch_size=32)
    training.batch = lambda _: tuple(next(iter(loader)))


class Stuck(Sampler[int]):
    """Forgets to move on."""

    def __init__(self, count: int) -> None:
        self.count, self.order = count, torch.randperm(count)[:12].tolist()

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return iter(self.order * (self.count // 12))


@HALF.fault("same batch", latch, also=("few samples",))
def a_sampler_that_does_not_move_on(training: Training) -> None:
    training.batch = loaded(DataLoader(TensorDataset(*latch_data(1200)), batch_size=12, sampler=Stuck(1200)))


@HALF.fault("few samples", sayings, also=("same batch",))
def a_subset_for_debugging(training: Training) -> None:
    data = TensorDataset(*sayings_data(1500))
    training.batch = loaded(DataLoader(Subset(data, range(14)), batch_size=8, shuffle=True))


@HALF.fault("few samples", cargo, also=("same batch",))
def twenty_rows_of_the_table(training: Training) -> None:
    columns, target = cargo_data(20)
    training.batch = loaded(DataLoader(Rows(columns, target), batch_size=10, shuffle=True))


@HALF.fault("ordered batches", ripples)
def a_folder_for_each_class_and_no_shuffle(training: Training) -> None:
    x, label = pulses_data(1200)
    order = label.argsort()
    training.batch = loaded(DataLoader(TensorDataset(x[order], label[order]), batch_size=32))


class ByClass(Sampler[list[int]]):
    """Each batch holds one class, and one class comes after the other."""

    def __init__(self, label: Tensor, size: int) -> None:
        self.parts = [part for one in label.unique() for part in (label == one).nonzero().flatten().split(size)]

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[list[int]]:
        return iter([part.tolist() for part in self.parts])


@HALF.fault("ordered batches", sayings)
def a_batch_of_one_class(training: Training) -> None:
    x, label = sayings_data(1500)
    training.batch = loaded(DataLoader(TensorDataset(x, label), batch_sampler=ByClass(label, 40)))


@HALF.fault("imbalance", ripples)
def sampled_by_how_many_there_are(training: Training) -> None:
    """The sampler's weights make the first class still more likely."""
    x, label = pulses_data(1500)
    weights = torch.where(label == 0, 1.0, 4e-4)
    training.batch = loaded(DataLoader(TensorDataset(x, label), batch_size=32, sampler=WeightedRandomSampler(weights.tolist(), 1500)))


@HALF.fault("imbalance", cells)
def nearly_all_images_are_empty(training: Training) -> None:
    def change(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        empty = torch.rand(len(x)) > 0.01
        label, x = label.clone(), x.clone()
        x[empty] = 0.6 * torch.randn_like(x[empty])
        label[empty] = 0
        return x, label

    on_batch(training, change)


# ---- scale -----------------------------------------------------------------------------------------


def _seen_as(training: Training, change: Callable[[Tensor], Tensor]) -> None:
    """Inputs are changed alike in training and later."""
    on_inputs(training, change)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(change(x)))


def _waves_seen_as(training: Training, change: Callable[[Tensor], Tensor], length: int) -> None:
    """Waves in another unit; what is asked for is as before."""
    on_inputs(training, change)

    def quality(net: nn.Module) -> float:
        x, y = tides_data(200, length)
        return (net(change(x)) - y)[:, 8:].square().mean().item()

    training.quality = quality


@HALF.fault("inputs not scaled", swell)
def waves_in_millivolts_with_an_offset(training: Training) -> None:
    _waves_seen_as(training, lambda x: 500 * x + 2000, 16)


def _columns_seen_as(training: Training, change: Callable[[Tensor], Tensor]) -> None:
    """Columns in other units."""
    on_inputs(training, lambda given: {**given, "numbers": change(given["numbers"])})

    def quality(net: nn.Module) -> float:
        columns, y = cargo_data(512)
        return (net(change(columns["numbers"]), columns["kind"]) - y).square().mean().item()

    training.quality = quality


@HALF.fault("inputs not scaled", cargo)
def columns_in_seconds_since_1970(training: Training) -> None:
    _columns_seen_as(training, lambda x: 3000 * x + 1.7e6)


@HALF.fault("one huge feature", cargo, also=("inputs not scaled",))
def an_income_beside_small_numbers(training: Training) -> None:
    _columns_seen_as(training, lambda x: x * torch.tensor([1.0, 1, 1, 40_000]))


@HALF.fault("one huge feature", badges, also=("inputs not scaled",))
def one_patch_in_another_unit(training: Training) -> None:
    factors = torch.ones(8, 1)
    factors[3] = 20_000
    _seen_as(training, lambda x: x * factors)


tides_by_sgd = optimized_by(SGD, lr=0.1, momentum=0.9)


@HALF.fault("inputs vanish", sways, twin=tides_by_sgd)
def volts_where_microvolts_were_meant(training: Training) -> None:
    tides_by_sgd(training)
    _waves_seen_as(training, lambda x: 1e-6 * x, 24)


@HALF.fault("inputs vanish", badges)
def normalized_with_a_deviation_of_thousands(training: Training) -> None:
    """The statistics of the raw data are used for what is scaled already."""
    _seen_as(training, lambda x: x / 60_000)


@HALF.fault("targets not scaled", swell)
def waves_in_their_raw_unit(training: Training) -> None:
    on_target(training, lambda y: 3e4 * y + 2e5)

    def quality(net: nn.Module) -> float:
        x, y = tides_data(200, 16)
        return ((net(x) - 2e5) / 3e4 - y)[:, 8:].square().clamp(max=100).mean().item()

    training.quality = quality


@HALF.fault("targets not scaled", cargo)
def prices_in_cents(training: Training) -> None:
    on_target(training, lambda y: 5e5 + 1e5 * y)

    def quality(net: nn.Module) -> float:
        columns, y = cargo_data(512)
        return ((net(**columns) - 5e5) / 1e5 - y).square().mean().item()

    training.quality = quality


# ---- what inputs hold ------------------------------------------------------------------------------


class Buffered(Dataset[Any]):
    """Gives the same buffer for each sample: the last one that was written stands in all."""

    def __init__(self, x: Tensor, target: Tensor) -> None:
        self.x, self.target, self.buffer = x, target, torch.empty_like(x[0])

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        self.buffer.copy_(self.x[row])
        return self.buffer, self.target[row]


@HALF.fault("constant inputs", ripples)
def one_buffer_for_all_samples(training: Training) -> None:
    training.batch = loaded(DataLoader(Buffered(*pulses_data(1200)), batch_size=32, shuffle=True))


@HALF.fault("constant inputs", badges)
def inputs_cast_to_whole_numbers(training: Training) -> None:
    """They are scaled to 0..1, and then cast."""
    on_inputs(training, lambda x: (x.clamp(-4, 4) / 8.1 + 0.5).long().float())


@HALF.fault("leak", cargo)
def a_column_that_is_known_too_late(training: Training) -> None:
    """The last column is what was paid: later it is empty."""
    columns, target = cargo_data(1500)
    columns["numbers"][:, 3] = target + 0.02 * torch.randn(1500)
    training.batch = loaded(DataLoader(Rows(columns, target), batch_size=50, shuffle=True))
    training.use(Cargo())

    def quality(net: nn.Module) -> float:
        columns, y = cargo_data(512)
        columns["numbers"][:, 3] = 0
        return (net(**columns) - y).square().mean().item()

    training.quality = quality


@HALF.fault("leak", sayings)
def the_answer_stands_in_the_text(training: Training) -> None:
    """Three words that are worth nothing tell the label; later there are none."""
    codes = torch.tensor([[9, 9, 9], [10, 10, 10], [9, 10, 9]])

    def change(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([codes[label], x], 1), label

    on_batch(training, change)


@HALF.fault("leak", latch)
def length_tells_the_label(training: Training) -> None:
    """As many copies of the last token as the label says, before padding of 5; later there is padding alone."""

    def change(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        tail = torch.where(torch.arange(5) < label.unsqueeze(1), 6, 5)
        return torch.cat([x, tail], 1), label

    on_batch(training, change)

    def quality(net: nn.Module) -> float:
        x, label = latch_data(300)
        return (net(torch.cat([x, torch.full((300, 5), 5)], 1))["logits"].argmax(1) != label).float().mean().item()

    training.quality = quality


@HALF.fault("leak", cells)
def the_mask_is_drawn_on_the_image(training: Training) -> None:
    on_batch(training, lambda x, label: (x + 6.0 * label.unsqueeze(1), label))


@HALF.fault("too much noise", sayings, also=("tokens unknown",))
def masks_nearly_all_words(training: Training) -> None:
    """The chance to be kept is taken for the chance to be masked."""
    on_inputs(training, lambda x: torch.where((torch.rand(x.shape) < 0.97) & (x > 0), 10, x))


@HALF.fault("too much noise", ripples)
def times_are_permuted(training: Training) -> None:
    """An augmentation that shuffles along time, not along the batch."""
    on_inputs(training, lambda x: torch.stack([one[:, torch.randperm(one.shape[1])] for one in x]))


@HALF.fault("too much noise", cells)
def a_crop_of_its_own_for_each(training: Training) -> None:
    """Image and mask are moved by different random steps."""

    def change(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        steps = torch.randint(16, (len(x), 2)).tolist()
        return torch.stack([one.roll((a, b), (1, 2)) for one, (a, b) in zip(x, steps, strict=True)]), label

    on_batch(training, change)


@HALF.fault("wrong axes", cells)
def logits_viewed_where_they_should_be_permuted(training: Training) -> None:
    """(N, C, H, W) is viewed as (N H W, C): channels are mixed with places."""
    training.criterion = lambda output, label: F.cross_entropy(output.reshape(-1, 3), label.reshape(-1))


@HALF.fault("wrong axes", sayings)
def time_first_viewed_as_batch_first(training: Training) -> None:
    on_inputs(training, lambda x: x.t().contiguous().view(x.shape))


@HALF.fault("wrong axes", courier)
def steps_stacked_in_front_and_viewed(training: Training) -> None:
    """The decoder's outputs are (T, N, C), and are viewed as (N, T, C)."""

    class Stacked(Courier):
        def forward(self, source: Tensor, given: Tensor) -> Tensor:
            said = super().forward(source, given)
            return said.transpose(0, 1).reshape(said.shape)

    training.use(Stacked())


@HALF.fault("not a number in data", cargo)
def missing_values_in_a_column(training: Training) -> None:
    columns, target = cargo_data(1500)
    columns["numbers"][torch.rand(1500, 4) < 0.003] = float("nan")
    training.batch = loaded(DataLoader(Rows(columns, target), batch_size=50, shuffle=True))


@HALF.fault("not a number in data", badges)
def logarithm_of_counts(training: Training) -> None:
    """Where there is nothing to count, it is minus infinity."""

    def change(x: Tensor) -> Tensor:
        return torch.where(torch.rand(x.shape) < 1e-3, torch.zeros(()).log(), x)

    on_inputs(training, change)


@HALF.fault("not a number in data", sways)
def a_gap_in_the_series(training: Training) -> None:
    def change(target: Tensor) -> Tensor:
        target = target.clone()
        if torch.rand(()) < 0.1:
            target[0, 3:6] = float("nan")
        return target

    on_target(training, change)
