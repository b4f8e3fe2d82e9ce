"""What the tests of statistics share: the oracle, which is numpy in float64, and tensors that come again."""

import math
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

INF, NAN = math.inf, math.nan
few = settings(max_examples=60)

special = st.sampled_from([0.0, -0.0, NAN, INF, -INF, 1e-45, -3e38, 3e38, 1.0, 1000.0, 1e-20])
anything = st.lists(st.one_of(st.floats(width=32), special, st.floats(-3, 3, width=32)), max_size=60)


def oracle(values):
    """The numbers of a `TensorStats`, by the shortest way there is."""
    values = np.asarray(values).reshape(-1)
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    finite = values[np.isfinite(values)]
    doubles = finite.astype(np.float64)
    some = bool(finite.size)
    return {
        "count": values.size,
        "finite": finite.size,
        "min": finite.min().item() if some else NAN,
        "max": finite.max().item() if some else NAN,
        "sum": math.fsum(doubles),
        "mean": math.fsum(doubles) / finite.size if some else NAN,
        "std": doubles.std().item() if some else NAN,
        "l2": math.sqrt(math.fsum(doubles * doubles)) if some else NAN,
        "zeros": int((values == 0).sum()),
        "nan": int(np.isnan(values).sum()),
        "posinf": int((values == INF).sum()),
        "neginf": int((values == -INF).sum()),
    }


EXACT = ("count", "finite", "min", "max", "zeros", "nan", "posinf", "neginf")


def assert_right(stats, values, rel=1e-6):
    expected = oracle(values)
    assert stats.measured
    same = {name: getattr(stats, name) for name in EXACT}
    assert same == pytest.approx({name: expected[name] for name in EXACT}, rel=0, abs=0, nan_ok=True)
    spread = max(abs(expected["min"]), abs(expected["max"])) if expected["finite"] else 0.0
    assert stats.mean == pytest.approx(expected["mean"], rel=rel, abs=rel * spread, nan_ok=True)
    assert stats.std == pytest.approx(expected["std"], rel=rel, abs=1e-12 * spread, nan_ok=True)
    assert stats.l2 == pytest.approx(expected["l2"], rel=rel, nan_ok=True)


def numbers(stats):
    """All fields that must be the same wherever the values lie."""
    values = {name: getattr(stats, name) for name in (*EXACT, "histogram")}
    return {name: "NaN" if value != value else value for name, value in values.items()}


def quietly(make):
    """What `make` returns; that torch warns of what it makes is none of our business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


@contextmanager
def every_warning_is_an_error():
    """Also those that torch gives once only."""
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(False)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
