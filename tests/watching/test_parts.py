"""The parts of a watch, each against PyTorch or by hand: what is measured, kept, counted and planned."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from modlab.records.slots import COLUMNS, combined
from modlab.records.watch import ACTIVATION, BINS, edge
from modlab.watching import axes
from modlab.watching.alerts import starving
from modlab.watching.batched_statistics import BATCH, LARGE, BatchedStatistics, ScratchBuffer, shares
from modlab.watching.controls import Controls
from modlab.watching.elements import EXACT
from modlab.watching.history import AT_ONCE, History
from modlab.watching.readback import ReadBack
from modlab.watching.scalars import SLOTS, Scalars
from modlab.watching.schedule import Budget, Schedule
from modlab.watching.segments import columns_here
from modlab.watching.time_slots import TimeSlots
from modlab.watching.units import Units, _counted, _fires, _known
from modlab.watching.updates import UpdateGroup, Updates

AT = {name: i for i, name in enumerate(COLUMNS)}


def read(*tensors: Tensor) -> np.ndarray:
    statistics = BatchedStatistics()
    for i, tensor in enumerate(tensors):
        statistics.add((i,), tensor)
    readings = statistics.readings()
    assert readings is not None
    order = np.argsort(readings.rows)
    return readings.columns[:, order]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 3, 511, 4096, LARGE - 1])
def test_a_reading_is_what_torch_says(dtype: torch.dtype, size: int) -> None:
    x = (torch.randn(size) * 3 + 1).to(dtype).relu()
    column = read(torch.ones(5), x, torch.zeros(2))[:, 1]
    exact = x.double()
    assert column[AT["mean"]] == pytest.approx(exact.mean().item(), rel=1e-4, abs=1e-6)
    assert column[AT["var"]] == pytest.approx(exact.var(correction=0).item(), rel=1e-4, abs=1e-9)
    assert (column[AT["low"]], column[AT["high"]]) == (np.float32(exact.min().item()), np.float32(exact.max().item()))
    assert column[AT["zeros"]] == pytest.approx((exact == 0).double().mean().item(), rel=1e-6)
    assert column[AT["bad"]] == 0


@pytest.mark.parametrize("shape", [(3 * LARGE,), (16, 64, 32, 32), (1000, 999), (512, 512, 3, 3)])
def test_of_a_very_large_tensor_a_part_speaks_for_all(shape: tuple[int, ...]) -> None:
    """Rows and channels that differ by a lot each have their share in it."""
    x = torch.randn(shape) + torch.arange(shape[0]).view(-1, *[1] * (len(shape) - 1)) % 7
    if len(shape) > 1:
        x += torch.arange(shape[1]).view(1, -1, *[1] * (len(shape) - 2)) % 5
    statistics = BatchedStatistics()
    statistics.add((0,), x)
    readings = statistics.readings()
    assert readings is not None and statistics.notes[0].startswith("≈ from ")
    column = readings.columns[:, 0]
    assert column[AT["mean"]] == pytest.approx(x.mean().item(), abs=0.05 * x.std().item())
    assert math.sqrt(column[AT["var"]]) == pytest.approx(x.std().item(), rel=0.05)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    x = torch.tensor([1.0, math.nan, math.inf, 3.0, -math.inf])
    statistics = BatchedStatistics()
    statistics.add((0,), torch.ones(3))
    statistics.add((1,), x)
    statistics.add((2,), torch.full((4,), math.nan))
    statistics.add((3,), torch.full((4,), math.inf))
    readings = statistics.readings()
    assert readings is not None
    assert readings.columns[AT["bad"]].tolist() == [0, 3, 4, 4]
    assert readings.nan.tolist() == [False, True, True, False]
    assert readings.columns[AT["mean"], 1] == 2
    assert np.isnan(readings.columns[AT["mean"], 2])


def test_a_tensor_with_several_series_is_measured_once_for_all() -> None:
    statistics = BatchedStatistics()
    statistics.add((4, 2, -1), torch.tensor([1.0, 2.0]))
    readings = statistics.readings()
    assert readings is not None
    assert readings.rows.tolist() == [4, 2]
    assert statistics is not None and (readings.columns[AT["mean"]] == 1.5).all()


def test_more_than_the_scratch_buffer_holds_is_measured_in_turns_and_keeps_its_order() -> None:
    scratch = ScratchBuffer()
    for _ in range(2):  # it is used again
        statistics = BatchedStatistics(scratch=scratch)
        tensors = [torch.randn(LARGE - 1 - i) for i in range(2 * BATCH // LARGE + 1)]
        for i, tensor in enumerate(tensors):
            statistics.add((i,), tensor)
        joined = [torch.randn(BATCH - 7), torch.randn(99)]
        statistics.join([(len(tensors),), (len(tensors) + 1,)], torch.cat(joined), [len(one) for one in joined])
        statistics.add((len(tensors) + 2,), torch.randn(4).bfloat16())
        readings = statistics.readings()
        assert readings is not None
        assert readings.rows.tolist() == [*range(len(tensors) + 3)]
        means = [one.double().mean().item() for one in (*tensors, *joined)]
        assert readings.columns[AT["mean"], :-1].tolist() == pytest.approx(means, abs=1e-6)


def test_negated_views_are_read_as_what_they_are() -> None:
    x = torch.randn(5, dtype=torch.complex64)
    assert x.conj().imag.is_neg()
    assert read(x.conj().imag)[AT["mean"], 0] == pytest.approx(-x.imag.mean().item())


def test_a_fleeting_tensor_may_change_afterwards() -> None:
    statistics, x = BatchedStatistics(), torch.ones(4)
    statistics.add((0,), x, fleeting=True)
    x.zero_()
    readings = statistics.readings()
    assert readings is not None and readings.columns[AT["mean"], 0] == 1


def test_what_has_no_values_says_why() -> None:
    statistics = BatchedStatistics()
    statistics.add((0,), torch.empty(3, device="meta"))
    assert statistics.readings() is None
    assert "meta" in statistics.notes[0]


def test_what_is_not_finite_is_in_no_bin() -> None:
    statistics, history = BatchedStatistics(), History()
    rows = tuple(history.row(path, "parameter") for path in "abc")
    for row, values in zip(rows, ([math.nan] * 4, [math.inf, -math.inf], [1.0, math.nan, 1.0, math.inf, -1.0]), strict=True):
        statistics.add((row,), torch.tensor(values))
    readings = statistics.readings()
    assert readings is not None
    history.take(0, readings)
    made = history.record().bins[0]
    assert not made[:2].any()
    assert sorted(made[2][made[2] > 0].tolist()) == [85, 170]  # of 255: a third and two


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=50))
def test_every_value_is_in_its_bin(values: list[float]) -> None:
    statistics = BatchedStatistics()
    statistics.add((0,), torch.tensor(values))
    readings = statistics.readings()
    assert readings is not None
    top = readings.highest()
    made = shares(readings, top)[0] * len(values)
    least = edge(int(top[0]) - BINS // 2 + 1)
    expected = np.zeros(BINS)
    for value in values:
        magnitude = abs(np.float32(value))
        far = magnitude < max(least, 2.0**-126)
        steps = BINS // 2 if far else next(k for k in range(BINS // 2) if magnitude >= edge(int(top[0]) - k))
        expected[steps if value < 0 else BINS - 1 - steps] += 1
    assert made == pytest.approx(expected, abs=1e-4)


def test_bins_move_when_greater_values_come() -> None:
    history = History(8, 8)
    row = history.row("a", ACTIVATION)
    for step, scale in enumerate((1.0, 1.0, 1000.0)):
        statistics = BatchedStatistics()
        statistics.add((row,), torch.tensor([1.0, -2.0, 0.0, 0.5]) * scale)
        readings = statistics.readings()
        assert readings is not None
        history.add(step, readings.rows, readings.columns)
        history.add_bins(step, readings.rows, shares(readings, history.tops(readings.rows, readings.highest())))
    record = history.record()
    top = int(record.top[row])
    assert edge(top) >= 1500
    for slot, scale in ((0, 1.0), (2, 1000.0)):
        where = np.flatnonzero(record.bins[slot, row])
        wanted = {BINS - 1 - k for k in range(32) if edge(top - k) in (1.0 * scale, 0.5 * scale)} if scale == 1.0 else set()
        assert wanted <= set(where.tolist())
        assert record.bins[slot, row, BINS // 2] > 0  # the zero
        assert (where < BINS // 2).sum() == 1  # one negative value


@given(st.integers(2, 40).filter(lambda n: n % 2 == 0), st.integers(1, 500))
def test_slots_are_few_and_hold_every_step_once(most: int, steps: int) -> None:
    halved = 0

    def halve() -> None:
        nonlocal halved
        halved += 1

    slots = TimeSlots(most, halve)
    for step in range(steps):
        slots.place(step)
    first, last = slots.bounds()
    assert len(slots) <= most and slots.halvings == halved
    assert first[0] == 0 and last[-1] == steps - 1
    assert (first[1:] == last[:-1] + 1).all()
    assert len({*(last - first + 1)[:-1].tolist()}) <= 1  # evenly fine, but for the last one


def test_a_long_history_is_that_of_all_samples() -> None:
    history, values = History(8, 4), []
    row = history.row("a", ACTIVATION)
    for step in range(100):
        x = torch.randn(20) + step
        values.append(x.double())
        history.add(step, np.array([row]), read(x))
    record = history.record()
    assert len(record.first) <= 8
    for slot, (first, last) in enumerate(zip(record.first, record.last, strict=True)):
        part = torch.cat(values[first : last + 1])
        assert record.columns["samples"][slot, row] == last - first + 1
        assert record.columns["mean"][slot, row] == pytest.approx(part.mean().item(), rel=1e-5)
        assert record.columns["var"][slot, row] == pytest.approx(part.var(correction=0).item(), rel=1e-4)
        assert record.columns["low"][slot, row] == np.float32(part.min().item())
        assert record.columns["high"][slot, row] == np.float32(part.max().item())


def test_one_series_twice_in_a_sample_counts_twice() -> None:
    history = History(8, 4)
    row = history.row("a", ACTIVATION)
    both = read(torch.zeros(4), torch.full((4,), 2.0))
    history.add(0, np.array([row, row]), both)
    record = history.record()
    assert record.columns["samples"][0, row] == 2
    assert record.columns["mean"][0, row] == 1
    assert record.columns["var"][0, row] == 1


def test_a_series_that_was_not_sampled_is_nan() -> None:
    history = History(8, 4)
    one, other = history.row("a", ACTIVATION), history.row("b", ACTIVATION)
    history.add(0, np.array([one]), read(torch.ones(3)))
    history.add(1, np.array([one, other]), read(torch.ones(3), torch.ones(3)))
    record = history.record()
    assert np.isnan(record.columns["mean"][0, other]) and record.columns["samples"][0, other] == 0
    assert record.columns["mean"][1, other] == 1


def test_combined_slots_keep_what_only_one_has() -> None:
    left, right = read(torch.tensor([1.0, 3.0])), np.full((len(COLUMNS), 1), np.nan, np.float32)
    right[0] = 0
    assert np.array_equal(combined(left, right), left, equal_nan=True)
    assert np.array_equal(combined(right, left), left, equal_nan=True)


def test_a_history_of_many_series_stays_within_its_room() -> None:
    history = History.of(100_000)
    rows = [history.row(str(i), ACTIVATION) for i in range(25_000)]
    assert rows[-1] == -1 and len(history.series) == 20_000
    column = np.repeat(read(torch.ones(3)), 20_000, axis=1)
    for step in range(100):
        history.add(step, np.arange(20_000), column)
    assert history._data.nbytes + history._bins.nbytes <= 64 << 20


# ---- moves


@pytest.mark.parametrize("size", [1, 7, EXACT, 10 * EXACT])
def test_moves_are_what_the_step_adds(size: int) -> None:
    parameter = nn.Parameter(torch.randn(size))
    parameter.grad = torch.randn(size)
    before, moves = parameter.detach().clone(), Updates()
    moves.before([(3, parameter)])
    with torch.no_grad():
        parameter[: size // 2] += 0.5
    ((group, deltas, found),) = after(moves)
    delta = parameter.detach() - before
    assert (group.places, group.whole, found) == ([3], size <= EXACT, [(3, pytest.approx(1 - (size // 2) / size, abs=0.02), size > 1)])
    assert deltas.abs().max().item() == pytest.approx(delta.abs().max().item(), rel=1e-5)


def after(moves: Updates) -> list[tuple[UpdateGroup, Tensor, list[tuple[int, float, bool]]]]:
    told: list[tuple[int, float, bool]] = []
    found = moves.after(ReadBack(), lambda *one: told.append(one))
    return [(group, deltas, [one for one in told if one[0] in group.places]) for group, deltas in found]


def test_rounding_is_seen_in_bfloat16() -> None:
    parameter = nn.Parameter(torch.ones(1000, dtype=torch.bfloat16))
    parameter.grad = torch.ones_like(parameter)
    moves = Updates()
    moves.before([(0, parameter)])
    with torch.no_grad():
        parameter -= 1e-5
    ((_, _, found),) = after(moves)
    assert found == [(0, 1.0, False)]


def test_without_a_gradient_nothing_is_stuck() -> None:
    parameter, moves = nn.Parameter(torch.ones(4)), Updates()
    moves.before([(0, parameter)])
    ((_, _, ((_, stuck, moved),)),) = after(moves)
    assert math.isnan(stuck) and not moved


def test_parameters_of_all_kinds_in_one_step() -> None:
    """Several dtypes, sizes, a conjugate, one that was not felt: each delta at its own place."""
    sizes = {torch.float32: (3, 10, EXACT + 1), torch.float64: (4,), torch.bfloat16: (5, 6)}
    parameters = [nn.Parameter(torch.randn(size).to(dtype)) for dtype, some in sizes.items() for size in some]
    for parameter in parameters[1:]:
        parameter.grad = torch.ones_like(parameter)
    moves = Updates()
    groups = moves.before([*enumerate(parameters)])
    assert [(group.places, group.whole, group.felt) for group in groups] == [
        ([0, 1], True, False),
        ([2], False, True),
        ([3], True, True),
        ([4, 5], True, True),
    ]
    with torch.no_grad():
        for number, parameter in enumerate(parameters):
            parameter += number
    for group, deltas, found in after(moves):
        for place, part in zip(group.places, deltas.split(group.sizes), strict=True):
            assert (part - place).abs().max() < 0.05
        assert [one[2] for one in found] == [place > 0 for place in group.places]


# ---- units


def test_units_are_counted_by_input() -> None:
    units = Units("a", "relu", 1, 3)
    activations = torch.tensor([[1.0, 0.0, 0.0], [2.0, 0.0, 1.0]])
    for step in range(40):
        units.see(activations, step)
    record = units.record()
    assert record.inputs.sum() == 80
    assert record.fired.sum(axis=0).tolist() == [80, 0, 40]
    assert record.silent.tolist() == [0, 80, 0]


def test_a_channel_fires_where_any_place_does() -> None:
    units = Units("a", "relu", 1, 2)
    planes = torch.zeros(5, 2, 4, 4)
    planes[2, 1, 3, 3] = 1
    units.see(planes, 0)
    record = units.record()
    assert record.inputs.sum() == 5
    assert record.fired.sum(axis=0).tolist() == [0, 1]
    assert record.silent.tolist() == [5, 2]


@pytest.mark.parametrize("shape", [(0, 1), (0, 1, 2, 2)], ids=["a row", "a plane"])
def test_an_input_that_gives_nan_is_counted_neither_as_one_on_which_a_unit_fires_nor_as_another(shape: tuple[int, ...]) -> None:
    units = Units("a", "relu", 1, 2)
    activations = torch.zeros(6, 2, 3, 3) if len(shape) > 2 else torch.zeros(6, 2)
    activations[[1, 4, 5], 0] = 1
    activations[(3, *shape[1:])] = float("nan")
    activations[(5, *shape[1:])] = float("nan")
    units.see(activations, 0)
    record = units.record()
    assert record.inputs.tolist() == [4] and record.fired.tolist() == [[2, 0]] and record.silent.tolist() == [0, 4]
    numbers = units._by_unit(activations)  # as an accelerator counts them
    assert _counted(_fires(numbers), _known(numbers)).tolist() == [[2, 0], [0, 4], [4, 4]]
    units.see(torch.full_like(activations, float("nan")), 1)
    assert units.record().inputs.sum() == 4 and units.record().silent.tolist() == [0, 4]


def test_a_gradient_contradicts_death_only_since_the_unit_fired() -> None:
    units = Units("a", "relu", 0, 2)
    units.see(torch.tensor([1.0, 0.0]), 0)
    units.feel(torch.tensor([1.0, 0.5]))
    assert units.record().flat.tolist() == [True, False]


@pytest.mark.parametrize(("module", "dims", "axis"), [(nn.Conv2d(1, 1, 1), 4, 1), (nn.Linear(1, 1), 3, 2), (nn.Linear(1, 1), 1, 0)])
def test_where_units_lie(module: nn.Module, dims: int, axis: int) -> None:
    assert axes.of_module(module, dims) == axis


def rates(*shares_: float, inputs: int = 2000) -> Units:
    """One unit that fires on another share of the inputs in each part of a run."""
    units, generator = Units("a", "relu", 1, 1), torch.Generator().manual_seed(0)
    for step, share in enumerate(shares_):
        units.see((torch.rand(inputs // len(shares_), 1, generator=generator) < share).float(), step)
        units.count_pending()
    return units


def test_a_unit_that_fires_ever_more_rarely_starves() -> None:
    ((unit, before, after, inputs),) = starving(rates(0.33, 0.2, 0.1, 0.05, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02))
    assert unit == 0 and before > 0.1 and after < 0.05 and inputs >= 400


@pytest.mark.parametrize("shares_", [(0.09,) * 10, (0.03,) * 10, (0.4, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.09, 0.09), (0.0,) * 10])
def test_others_do_not(shares_: tuple[float, ...]) -> None:
    assert not [*starving(rates(*shares_))]


# ---- scalars


def test_scalars_are_kept_with_extremes() -> None:
    scalars, values = Scalars(), [math.sin(step / 100) for step in range(5000)]
    values[1234] = 99.0
    for step, value in enumerate(values):
        scalars.log(step, {"loss": torch.tensor(value, requires_grad=True) if step % 2 else value})
    record = scalars.curves["loss"].record()
    assert len(record.first) <= SLOTS and record.count == 5000
    assert record.high.max() == 99.0
    assert record.final == pytest.approx(values[-1], rel=1e-6)
    weights = record.last - record.first + 1
    assert (record.mean * weights).sum() / 5000 == pytest.approx(float(np.mean(values)), rel=1e-4)


def test_a_scalar_that_is_not_finite_is_counted() -> None:
    scalars = Scalars()
    for step, value in enumerate((1.0, math.nan, math.inf)):
        scalars.log(step, {"loss": value})
    record = scalars.curves["loss"].record()
    assert record.bad.sum() == 2 and record.mean[0] == 1.0


@pytest.mark.parametrize("value", [torch.zeros(2), "1.0x", None, [1], 10**400, torch.tensor(1j), torch.empty((), device="meta")])
def test_what_is_no_number_is_told_once_and_left_out(value: object) -> None:
    told: list[str] = []
    scalars = Scalars(told.append)
    for step in range(300):
        scalars.log(step, {"loss": value, "other": 1.0})
    (text,) = told
    assert text.startswith("w.log(loss=…)") and "\n" not in text
    assert scalars.curves.keys() == {"other"} and scalars.curves["other"].record().count == 300
    scalars.log(300, {"loss": 2.0})
    assert scalars.curves["loss"].record().final == 2.0


def test_too_many_names_are_told_once() -> None:
    told: list[str] = []
    scalars = Scalars(told.append)
    for step in range(3):
        scalars.log(step, {f"name{i}": float(i) for i in range(100)})
    (text,) = told
    assert "name64" in text and "64 curves" in text
    assert len(scalars.curves) == 64


# ---- the budget


def test_a_purse_waits_until_its_share_covers_the_next_expense() -> None:
    purse = Budget(0.01)
    purse.spend(0.002)
    assert purse.wait(0.0, 0.001) == 400  # two such expenses in 0.4 s
    assert purse.wait(0.4, 0.001) == 1
    assert Budget(0).wait(0, 1) > 1000


def test_a_purse_with_another_share_begins_anew() -> None:
    purse = Budget(0.01)
    purse.spend(0.002)
    purse.refill(0.001, 0.4)
    assert purse.wait(0.4, 0.001) == 2000 and purse.affords(2.5)


def test_a_schedule_keeps_its_budget() -> None:
    schedule, now, step, cost = Schedule(0.02), 0.0, 10, 0.003
    schedule.begin(step, now)
    following = step + 1
    for _ in range(100_000):
        step += 1
        now += 0.001
        if step >= following:
            now += cost
            schedule.whole.spend(cost)
            schedule.tick(step, now)
            following = step + schedule.whole.wait(schedule.loop(now), schedule.pace)
    assert schedule.pace == pytest.approx(0.001, rel=0.01)
    assert 0.9 * schedule.whole.share < schedule.spent / schedule.loop(now) <= 1.05 * schedule.whole.share


def test_a_pause_is_no_time_of_the_loop() -> None:
    schedule = Schedule(0.02)
    schedule.begin(0, 1.0)
    schedule.pause(5.0)
    assert schedule.loop(7.0) == 1.0


def test_controls_wait_and_go_on() -> None:
    controls = Controls()
    controls.advance()
    controls.wait()
    assert controls.attention and controls.paused  # and waits again after that step
    controls.resume()
    controls.wait()
    assert not controls.attention


@pytest.mark.parametrize(
    "make",
    [
        lambda draw: draw.standard_normal(4096),
        lambda draw: 1 + 1e-4 * draw.standard_normal(512),
        lambda draw: 1e5 + draw.standard_normal(30_000),
        lambda draw: 5 + draw.standard_normal(30_000),
        lambda draw: 1e-18 * draw.standard_normal(300),
        lambda draw: 1e18 * draw.standard_normal(300),
        lambda draw: 3e38 * draw.random(100),
        lambda draw: np.full(50, 3e38),
        lambda draw: np.full(50, 0.1),
        lambda draw: np.zeros(4),
        lambda draw: np.array([math.nan, 1.0, 2.0, math.inf]),
        lambda draw: np.array([math.nan, 7.0, 7.0]),
    ],
)
def test_a_stretch_is_measured_as_in_double_precision(make: Callable[[np.random.Generator], Any]) -> None:
    values = make(np.random.default_rng(0)).astype(np.float32)
    columns, nan = columns_here(np.concatenate([np.ones(3, np.float32), values, -np.ones(2, np.float32)]), [3, len(values), 2])
    good = values[np.isfinite(values)].astype(np.float64)
    with np.errstate(over="ignore"):
        var = good.var().astype(np.float32)
    found = columns[:, 1]
    assert found[1] == pytest.approx(good.mean(), rel=1e-6)
    assert found[2] == pytest.approx(var, rel=2e-5)
    assert (found[3], found[4], found[6]) == (good.min(), good.max(), len(values) - len(good))
    assert bool(nan[1]) == bool(np.isnan(values).any())
    assert columns[1:5, 0].tolist() == [1, 0, 1, 1]


def test_a_long_run_of_a_small_net_takes_no_more_than_a_short_one() -> None:
    history = History.of(8)
    row = history.row("a", "activation")
    start = history._data.nbytes, history._bins.nbytes
    for step in range(2000):
        readings = BatchedStatistics()
        readings.add([row], torch.randn(3))
        found = readings.readings()
        assert found is not None
        history.take(step, found, binned=history.wants_bins())
    assert (history._data.nbytes, history._bins.nbytes) == start
    assert sum(start) <= AT_ONCE


def test_a_history_of_many_series_takes_memory_as_it_is_filled() -> None:
    history = History.of(1000)
    for i in range(1000):
        history.row(str(i), "activation")
    assert history._data.shape[0] <= 16 and history._bins.shape[0] <= 16
