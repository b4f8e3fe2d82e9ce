"""Faults of the data as they are made with tables, files and slices: what is read, joined, scaled, cast and drawn."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_inputs, on_target
from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import (
    Homes,
    Orchard,
    Table,
    alarms,
    alarms_data,
    alarms_quality,
    dunes,
    glyphs,
    glyphs_batches,
    glyphs_data,
    glyphs_quality,
    homes,
    homes_quality,
    homes_table,
    homes_xy,
    leavers,
    leavers_data,
    orchard,
    orchard_data,
    raw,
    seen,
    sliced,
    standard,
    stepped_by,
)
from bench.sick.working.half import HALF

# ---- inputs and targets apart ----------------------------------------------------------------------


@HALF.fault("targets shuffled", homes)
def features_are_sampled_and_the_price_is_not(training: Training) -> None:
    """The rows of the features are mixed (sample of all), and the column of the price is taken of the first table."""
    table = homes_table(1600)
    features = standard(table)[torch.randperm(1600)]
    training.batch = sliced(features, table["price"].unsqueeze(1), 64)


@HALF.fault("targets shuffled", glyphs)
def names_of_files_in_the_order_of_their_letters(training: Training) -> None:
    """0, 1, 10, 100, ...: images are read by the sorted names, and labels by number."""
    image, label = glyphs_data(960)
    names = sorted(f"{number}.png" for number in range(960))
    rows = torch.tensor([int(name.removesuffix(".png")) for name in names])
    training.batch = glyphs_batches(image[rows], label)


@HALF.fault("targets shifted", homes, also=("targets shuffled",))
def a_row_is_dropped_of_the_features_alone(training: Training) -> None:
    """A row with a gap is dropped after the price was taken off: all further prices are of the row before."""
    table = homes_table(1601)
    table["rooms"][3] = float("nan")
    features = standard(table)
    features = features[~features.isnan().any(1)]
    training.batch = sliced(features, table["price"][: len(features)].unsqueeze(1), 64)


@HALF.fault("targets shifted", glyphs, also=("targets shuffled",))
def fetched_ahead_with_the_labels_of_the_batch_before(training: Training) -> None:
    """What fetches ahead gives the next images with the labels that it held."""
    batch, held = training.batch, [torch.zeros(32, dtype=torch.long)]

    def ahead(number: int) -> Batch:
        image, label = batch(number)
        before, held[0] = held[0], label
        return image, before

    training.batch = ahead


@HALF.fault("targets shifted", alarms, also=("targets shuffled",))
def windows_begin_one_later_than_their_labels(training: Training) -> None:
    """Recordings are cut of one long tape, beginning a window too late."""
    x, label = alarms_data(1601)
    tape = x.reshape(-1, 4)[20:]
    training.batch = sliced(tape.view(-1, 20, 4), label[:1600], 32)


@HALF.fault("constant targets", leavers)
def the_word_has_a_blank_before_it(training: Training) -> None:
    """The file says " yes", and is asked for "yes"."""
    x, label = leavers_data(2000)
    column = [" yes" if one else " no" for one in label.flatten().bool().tolist()]
    training.batch = sliced(x, torch.tensor([[float(word == "yes")] for word in column]), 50)


@HALF.fault("constant targets", glyphs)
def argmax_of_labels_that_are_numbers_already(training: Training) -> None:
    on_target(training, lambda label: label.unsqueeze(1).argmax(1))


@HALF.fault("constant targets", orchard)
def names_are_counted_from_the_wrong_column(training: Training) -> None:
    """Codes are given to the name of the orchard, which is one, and not to that of the kind."""
    x, label = orchard_data(1600)
    rows = [("north", f"kind {one}") for one in label.tolist()]
    codes = {name: code for code, name in enumerate(dict.fromkeys(place for place, _ in rows))}
    training.batch = sliced(x, torch.tensor([codes[row[0]] for row in rows]), 40)


# ---- which samples come ----------------------------------------------------------------------------


@HALF.fault("same batch", homes, also=("few samples",))
def the_slice_does_not_use_the_number_of_the_batch(training: Training) -> None:
    x, y = homes_xy(1600)
    size = 16
    training.batch = lambda _: (x[:size], y[:size])


@HALF.fault("same batch", alarms, also=("few samples",))
def seeded_anew_before_each_draw(training: Training) -> None:
    """For results that repeat themselves."""
    x, label = alarms_data(1600)

    def batch(_: int) -> Batch:
        rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(42))[:16]
        return x[rows], label[rows]

    training.batch = batch


@HALF.fault("few samples", homes, also=("same batch",))
def the_share_of_the_test_is_taken_for_that_of_the_training(training: Training) -> None:
    """train, test = split(0.01): what is small is trained on."""
    x, y = homes_xy(1600)
    count = int(0.01 * len(x))
    training.batch = sliced(x[:count], y[:count], 8)


@HALF.fault("few samples", orchard, also=("same batch",))
def duplicates_are_dropped_by_the_kind(training: Training) -> None:
    """A row is left of each kind."""
    x, label = orchard_data(1600)
    rows = torch.tensor([(label == kind).nonzero()[0].item() for kind in range(4)])
    training.batch = sliced(x[rows], label[rows], 4)


@HALF.fault("ordered batches", orchard)
def a_table_of_each_kind_below_the_other(training: Training) -> None:
    """Concatenated, and cut into slices without a permutation."""
    x, label = orchard_data(1600)
    tables = [x[label == kind] for kind in range(4)]
    kinds = torch.cat([torch.full((len(table),), kind) for kind, table in enumerate(tables)])
    training.batch = sliced(torch.cat(tables), kinds, 40, shuffle=False)


@HALF.fault("ordered batches", glyphs)
def the_outer_loop_goes_over_the_classes(training: Training) -> None:
    """Twenty batches of a class, then those of the next one."""
    image, label = glyphs_data(3000)
    rooms = [seen(image[label == kind]) for kind in range(6)]

    def batch(number: int) -> Batch:
        kind = number // 20 % 6
        room = rooms[kind]
        return room[torch.randint(len(room), (32,))], torch.full((32,), kind)

    training.batch = batch


@HALF.fault("imbalance", leavers)
def customers_of_the_first_days_alone(training: Training) -> None:
    """Hardly anybody has left by then."""
    training.batch = sliced(*leavers_data(2000, share=0.004), 50)


@HALF.fault("imbalance", orchard)
def the_rare_kinds_are_thinned_out(training: Training) -> None:
    """What should be made as rare as the others is the one kind that is left whole."""
    x, label = orchard_data(6000)
    kept = (label == 3) | (torch.rand(6000) < 0.004)
    training.batch = sliced(x[kept], label[kept], 40)


# ---- scale -----------------------------------------------------------------------------------------


def _homes_seen_as(training: Training, look: object, inputs: int = 5) -> None:
    table = homes_table(1600)
    training.use(Homes(inputs))
    training.batch = sliced(look(table), table["price"].unsqueeze(1), 64)  # type: ignore[operator]
    training.quality = homes_quality(look)  # type: ignore[arg-type]


def _standard_by_sgd(training: Training) -> None:
    stepped_by(torch.optim.SGD, lr=0.01, momentum=0.9)(training)


@HALF.fault("inputs not scaled", homes, also=("one huge feature", "not finite by the rate"), twin=_standard_by_sgd)
def columns_as_they_stand_in_the_file(training: Training) -> None:
    _standard_by_sgd(training)
    _homes_seen_as(training, raw)


def _flat(training: Training) -> None:
    """A plain net in place of convolutions with norms."""
    training.use(nn.Sequential(nn.Flatten(), nn.Linear(80, 48), nn.Tanh(), nn.Linear(48, 3)))


@HALF.fault("inputs not scaled", alarms, twin=_flat)
def raw_counts_of_the_converter(training: Training) -> None:
    """Twelve bits around the middle."""
    _flat(training)
    look = partial(torch.add, torch.tensor(20480.0), alpha=400)
    on_inputs(training, look)
    training.quality = alarms_quality(look)


@HALF.fault("one huge feature", homes, also=("inputs not scaled",))
def the_number_of_the_row_is_a_column(training: Training) -> None:
    """Six digits, beside what is scaled."""

    def look(table: Table) -> Tensor:
        number = 100_000 + 900_000 * torch.rand(len(table["price"]), 1)
        return torch.cat([standard(table), number], 1)

    _homes_seen_as(training, look, inputs=6)


@HALF.fault("one huge feature", alarms, also=("inputs not scaled",))
def one_sensor_in_pascal(training: Training) -> None:
    factor, offset = torch.tensor([1.0, 1, 1, 900]), torch.tensor([0.0, 0, 0, 101_325])

    def look(x: Tensor) -> Tensor:
        return x * factor + offset

    on_inputs(training, look)
    training.quality = alarms_quality(look)


@HALF.fault("inputs vanish", homes)
def scaled_by_the_greatest_where_a_gap_is_a_huge_number(training: Training) -> None:
    """Gaps are written as 1e9; everything else is divided by that."""

    def look(table: Table) -> Tensor:
        x = standard(table)
        x[0] = 1e9
        return x / x.abs().max()

    _homes_seen_as(training, look)


@HALF.fault("inputs vanish", alarms, twin=_flat)
def multiplied_by_the_deviation(training: Training) -> None:
    """Volts with a deviation of a thousandth; it should be divided by it."""
    spread = 1e-3
    _flat(training)
    on_inputs(training, lambda x: (spread * x) * spread)
    training.quality = alarms_quality(lambda x: (spread * x) * spread)


@HALF.fault("targets not scaled", homes, also=("not finite by the rate", "rate too high"), twin=_standard_by_sgd)
def prices_in_dollars(training: Training) -> None:
    _standard_by_sgd(training)
    on_target(training, lambda y: 310_000 + 95_000 * y)
    training.quality = homes_quality(back=lambda y: (y - 310_000) / 95_000)


def _squares_alone(training: Training) -> None:
    training.criterion = lambda output, target: F.mse_loss(output[0], target)


@HALF.fault("targets not scaled", dunes, twin=_squares_alone)
def heights_above_the_sea_in_millimetres(training: Training) -> None:
    _squares_alone(training)
    on_target(training, lambda y: 84_000 + 300 * y)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: ((net(x)[0] - 84_000) / 300,))


# ---- what inputs hold ------------------------------------------------------------------------------


@HALF.fault("constant inputs", glyphs)
def a_threshold_for_bytes_on_what_is_scaled(training: Training) -> None:
    """Made black and white at 128, after the division by 255."""

    def look(image: Tensor) -> Tensor:
        return (image.float() / 255 > 128).float()

    training.batch = glyphs_batches(*glyphs_data(960), look)
    training.quality = glyphs_quality(look)


@HALF.fault("constant inputs", orchard)
def each_row_fills_the_whole_table(training: Training) -> None:
    """table[:] = row, where table[i] = row was meant."""
    x, label = orchard_data(1600)
    table = torch.empty_like(x)
    for row in x:
        table[:] = row
    training.batch = sliced(table, label, 40)


@HALF.fault("constant inputs", homes, also=("inputs vanish",))
def each_row_is_scaled_by_itself(training: Training) -> None:
    """A pipeline for one column at a time: the mean of a column of one is what stands there."""

    def look(table: Table) -> Tensor:
        columns = [column.unsqueeze(1) for column in standard(table).unbind(1)]
        return torch.cat([column - column.mean(1, keepdim=True) for column in columns], 1)

    _homes_seen_as(training, look)


@HALF.fault("leak", orchard)
def the_index_of_a_sorted_table_becomes_a_column(training: Training) -> None:
    """Rows are sorted by kind when the index is made a column; later an index says nothing."""
    training.use(Orchard(inputs=9))
    x, label = orchard_data(1600)
    order = label.argsort()
    index = torch.linspace(-6, 6, 1600).unsqueeze(1)
    training.batch = sliced(torch.cat([x[order], 3 * index], 1), label[order], 40)

    def quality(net: nn.Module) -> float:
        x, label = orchard_data(600)
        index = 36 * torch.rand(600, 1) - 18
        return (net(torch.cat([x, index], 1)).argmax(1) != label).float().mean().item()

    training.quality = quality


@HALF.fault("leak", homes)
def addresses_are_encoded_by_their_own_prices(training: Training) -> None:
    """The mean price of an address is the price; addresses that come later have the mean of all."""
    training.use(Homes(6))
    x, y = homes_xy(1600)
    address = torch.randperm(1600)
    means = torch.zeros(1600).index_add(0, address, y.flatten()) / torch.bincount(address)
    training.batch = sliced(torch.cat([x, means[address].unsqueeze(1)], 1), y, 64)

    def quality(net: nn.Module) -> float:
        x, y = homes_xy(500)
        return F.mse_loss(net(torch.cat([x, means.mean().expand(500, 1)], 1)), y).item()

    training.quality = quality


@HALF.fault("leak", alarms)
def recorded_after_the_alarm_was_given(training: Training) -> None:
    """The siren is heard on the fourth sensor; it is off where alarms are to be foretold."""

    def ahead(number: int) -> Batch:
        x, label = batch(number)
        x = x.clone()
        x[:, 15:18, 3] = 12 * label - 6
        return x, label

    batch = training.batch
    training.batch = ahead

    def quality(net: nn.Module) -> float:
        x, label = alarms_data(400)
        x[:, 15:18, 3] = -6
        return ((net(x) > 0).float() != label).float().mean().item()

    training.quality = quality


@HALF.fault("too much noise", glyphs)
def turned_and_mirrored_where_the_side_is_the_class(training: Training) -> None:
    def change(image: Tensor) -> Tensor:
        turns = torch.randint(4, (len(image),)).tolist()
        return torch.stack([one.rot90(turn, (1, 2)) for one, turn in zip(image, turns, strict=True)])

    on_inputs(training, change)


@HALF.fault("too much noise", homes)
def rows_mixed_up_and_prices_not(training: Training) -> None:
    """Mixup of the inputs alone, and noise beyond what stands there."""

    def change(x: Tensor) -> Tensor:
        share = torch.rand(len(x), 1)
        return share * x + (1 - share) * x[torch.randperm(len(x))] + 1.5 * torch.randn_like(x)

    on_inputs(training, change)


@HALF.fault("wrong axes", homes)
def columns_reshaped_where_a_transpose_was_meant(training: Training) -> None:
    """tensor([area, rooms, ...]).reshape(-1, 5)."""
    table = homes_table(1600)
    columns = [*standard(table).unbind(1)]
    training.batch = sliced(torch.stack(columns).reshape(-1, 5), table["price"].unsqueeze(1), 64)


@HALF.fault("wrong axes", alarms)
def joined_along_time_and_cut_by_samples(training: Training) -> None:
    """A collate function that joins along the first axis of recordings of (4, 20)."""

    def change(x: Tensor) -> Tensor:
        joined = torch.cat([*x.transpose(1, 2)], 1)
        return joined.reshape(len(x), 20, 4)

    on_inputs(training, change)


@HALF.fault("not a number in data", homes, also=("division by zero",))
def scores_in_groups_of_one(training: Training) -> None:
    """A column is scaled within each street; the deviation of a street with one home is NaN."""
    x, y = homes_xy(1600)
    street = torch.randint(300, (1600,))
    for one in street.unique():
        rows = street == one
        column = x[rows, 3] - x[rows, 3].mean()
        x[rows, 3] = column / (column.square().sum() / (len(column) - 1)).sqrt()
    training.batch = sliced(x, y, 64)


@HALF.fault("not a number in data", leavers)
def a_join_that_finds_no_partner(training: Training) -> None:
    """Some customers are not in the other table."""
    x, label = leavers_data(2000)
    known = dict(enumerate(x[:, 5].tolist()))
    for missing in torch.randint(2000, (15,)).tolist():
        known.pop(missing, None)
    x[:, 5] = torch.tensor([known.get(row, float("nan")) for row in range(2000)])
    training.batch = sliced(x, label, 50)


@HALF.fault("not a number in data", dunes)
def logarithm_of_a_measure_below_zero(training: Training) -> None:
    """A transform for measures above zero, where the instrument says a little less than zero now and then."""

    def change(x: Tensor) -> Tensor:
        measured = (x + 2.05) + 0.05 * torch.randn_like(x)
        return torch.log(measured)

    on_inputs(training, change)
    training.quality = dunes_by_logarithm


def dunes_by_logarithm(net: nn.Module) -> float:
    x = torch.linspace(-1.9, 2, 200).unsqueeze(1)
    return F.mse_loss(net(torch.log(x + 2.05))[0], torch.sin(2 * x)).item()
