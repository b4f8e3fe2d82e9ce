"""Histograms that add exactly and look right, records that merge, and records as values."""

import math
import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modlab.records.tensor import FINEST, MOST_BINS, Grid, Histogram, TensorStats
from modlab.statistics import measure_tensor, merge
from modlab.statistics.sampling import stride_of
from tests.tensors import INF, NAN, anything, assert_right, few, normal, numbers

# --------------------------------------------------------------------------- histograms


def bars(values, most=40):
    return measure_tensor(torch.as_tensor(values)).histogram.bars(most)


def test_bars_of_a_constant():
    assert bars(torch.full((100,), 0.1))[0] == [100]


def test_bars_of_labels_are_one_a_label():
    labels = torch.arange(10).repeat(7)
    assert bars(labels) == ([7] * 10, (0.0, 10.0))


def test_bars_of_a_mask():
    assert bars(torch.tensor([True, False, True])) == ([1, 2], (0.0, 2.0))


@pytest.mark.parametrize("values", [torch.empty(0), torch.full((3,), NAN), torch.tensor([INF])], ids=["empty", "nan", "inf"])
def test_no_bars_without_finite_values(values):
    counts, (low, high) = bars(values)
    assert counts == []
    assert math.isnan(low)
    assert math.isnan(high)
    assert measure_tensor(values).histogram.nonfinite == values.numel()


@pytest.mark.parametrize(("mean", "std"), [(0, 1), (1, 0.01), (-500, 3), (0, 1e-30)])
def test_bars_of_a_normal_distribution_look_like_one(mean, std):
    tensor = normal(8000).double() * std + mean
    counts, (low, high) = bars(tensor)
    assert 20 <= len(counts) <= 40
    assert counts == np.histogram(tensor.numpy(), bins=len(counts), range=(low, high))[0].tolist()
    peak = int(np.argmax(counts))
    rough = [sum(counts[k : k + 4]) for k in range(0, len(counts), 4)]
    top = int(np.argmax(rough))
    assert rough[: top + 1] == sorted(rough[: top + 1])
    assert rough[top:] == sorted(rough[top:], reverse=True)
    assert low + (peak + 0.5) * (high - low) / len(counts) == pytest.approx(mean, abs=std)


def test_bars_show_an_outlier_where_it_is():
    counts, (low, high) = bars(torch.cat([normal(5000), torch.tensor([1000.0])]))
    assert counts[-1] == 1
    assert sum(counts) == 5001
    assert low < -1
    assert high > 1000


def test_the_range_is_that_of_all_values_though_the_sample_missed_one():
    tensor = normal(100_000)
    tensor[12_345] = 1000.0
    drawn = measure_tensor(tensor).histogram
    assert not drawn.exact
    assert 4096 / 2 < drawn.sampled < 2 * 4096
    assert drawn.bars()[1][1] > 1000


def test_a_sample_sees_every_column():
    columns = normal(512) * 3
    tensor = normal(4096, 512) * 0.3 + columns
    counts, limits = bars(tensor)
    whole = np.histogram(tensor.numpy(), bins=len(counts), range=limits)[0]
    assert np.abs(np.array(counts) / sum(counts) - whole / whole.sum()).sum() / 2 < 0.06


@pytest.mark.parametrize("count", [0, 1, 4096, 8191, 8192, 9000, 30_030, 510_510, 38_400, 1 << 20, 10**9])
def test_strides_share_no_divisor(count):
    stride = stride_of(count)
    assert stride == 1 or math.gcd(stride, count) == 1
    assert (count < 2 * 4096) <= (stride == 1)
    assert min(count, 1500) < count / stride + 1 < 4 * 4096


def test_fixed_bins():
    drawn = measure_tensor(torch.tensor([0.0, -0.0, 1.0, 1.3, -1.0, NAN, INF, -INF, 1e-45])).histogram
    assert drawn.edges.shape == (2041,)
    assert (np.diff(drawn.edges) > 0).all()
    assert drawn.ordered.sum() == 6
    assert drawn.nonfinite == 3
    low, high = drawn.edges[:-1], drawn.edges[1:]
    assert low[drawn.ordered > 0].tolist() == pytest.approx([-1.25, -(2.0**-126) / 2**0, 0.0, 1.0, 1.25], abs=1e-37)
    assert high[drawn.ordered > 0].tolist() == pytest.approx([-1.0, 0.0, 2.0**-127, 1.25, 1.5], abs=1e-37)


# Where the sizes of two doubles are more than 300 powers of ten apart, the lesser underflows.
doubles = st.one_of(st.just(0.0), st.floats(1e-150, 1e150), st.floats(-1e150, -1e-150))
singles = st.floats(allow_nan=False, allow_infinity=False, width=32)


@few
@given(st.lists(singles, min_size=1, max_size=40))
def test_fixed_bins_hold_what_their_edges_say(values):
    drawn = measure_tensor(torch.tensor(values)).histogram
    array = np.array(values)
    positive = array[(array > 0) | ((array == 0) & ~np.signbit(array))]
    expected = np.histogram(positive, bins=drawn.edges[1020:])[0]
    assert np.array_equal(drawn.ordered[1020:], expected)
    assert drawn.sampled == len(values)


@few
@given(st.lists(doubles, min_size=1, max_size=40))
def test_a_grid_holds_each_value_in_its_bin(values):
    array = np.array(values)
    grid = Grid.count(array, array.min(), array.max())
    assert len(grid.counts) <= MOST_BINS
    assert grid.counts.sum() == len(values)
    assert grid.exponent >= FINEST
    for number, count in enumerate(grid.counts, grid.first):
        inside = [value for value in values if math.floor(math.ldexp(value, -grid.exponent)) == number]
        assert len(inside) == count


@few
@given(st.lists(doubles, min_size=1, max_size=20), st.lists(doubles, min_size=1, max_size=20))
def test_grids_add_exactly(left, right):
    left, right = np.array(left), np.array(right)
    both = np.concatenate((left, right))
    total = Grid.count(left, left.min(), left.max()) + Grid.count(right, right.min(), right.max())
    assert total == Grid.count(both, both.min(), both.max())


# --------------------------------------------------------------------------- two as one


@few
@given(anything, anything)
def test_merging_is_measuring_both(left, right):
    left, right = torch.tensor(left, dtype=torch.float32), torch.tensor(right, dtype=torch.float32)
    both, merged = measure_tensor(torch.cat((left, right))), merge(measure_tensor(left), measure_tensor(right))
    assert_right(merged, torch.cat((left, right)).double().numpy())
    assert numbers(merged) == numbers(both)
    assert (merged.shape, merged.dtype, merged.device, merged.note) == (both.shape, both.dtype, both.device, both.note)


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [
        (torch.ones(2, 3), torch.zeros(5, 3), (7, 3)),
        (torch.ones(2, 3), torch.zeros(5, 4), (26,)),
        (torch.ones(()), torch.zeros(()), (2,)),
        (torch.ones(3), torch.zeros(3, dtype=torch.int64), (6,)),
    ],
    ids=["batches", "other sizes", "scalars", "other dtypes"],
)
def test_what_a_merged_record_is_of(left, right, shape):
    merged = merge(measure_tensor(left), measure_tensor(right))
    assert merged.shape == shape
    assert merged.dtype == ("float32" if left.dtype == right.dtype else "mixed")
    assert_right(merged, torch.cat((left.reshape(-1).double(), right.reshape(-1).double())).numpy())


def test_merging_with_what_was_not_measured():
    seen, unseen = measure_tensor(torch.ones(2)), measure_tensor(torch.empty(3, device="meta"))
    for merged in (merge(seen, unseen), merge(unseen, seen)):
        assert (merged.count, merged.finite, merged.mean, merged.measured) == (5, 2, 1.0, True)
        assert merged.note == "in part not measured: a meta tensor has no values"
        assert merged.histogram == seen.histogram
        assert merge(merged, merged).note == merge(merged, unseen).note == merged.note
    neither = merge(unseen, unseen)
    assert (neither.measured, neither.note, neither.count) == (False, unseen.note, 6)
    assert math.isnan(neither.mean)


def test_a_histogram_is_merged_only_if_both_have_one():
    with_one, without = measure_tensor(torch.ones(2)), measure_tensor(torch.ones(2), histogram=False)
    assert merge(with_one, without).histogram is None
    assert merge(with_one, with_one).histogram.bars() == ([4], merge(with_one, with_one).histogram.grid.range)
    sampled = measure_tensor(normal(100_000))
    assert not merge(with_one, sampled).histogram.exact


# --------------------------------------------------------------------------- the record


def test_a_record_is_frozen_and_equal_by_value():
    one, other = (measure_tensor(torch.tensor([1.0, NAN])) for _ in range(2))
    assert one == other == pickle.loads(pickle.dumps(one))
    assert one != measure_tensor(torch.tensor([1.0, 2.0]))
    assert one != measure_tensor(torch.tensor([1.0, NAN]), histogram=False)
    unseen = measure_tensor(torch.empty(1, device="meta"))
    assert unseen == pickle.loads(pickle.dumps(unseen))
    assert one != "one"
    assert one.histogram != 1
    assert one.histogram.grid != 1
    with pytest.raises(FrozenInstanceError):
        one.zeros = 3
    for counts in (one.histogram.counts, one.histogram.grid.counts):
        with pytest.raises(ValueError, match="read-only"):
            counts[0] = 1


def test_a_record_of_nothing():
    stats = TensorStats((), "float32", "cpu", 0)
    assert math.isnan(stats.mean)
    assert isinstance(measure_tensor(torch.ones(3)).histogram, Histogram)
