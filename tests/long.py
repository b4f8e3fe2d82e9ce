"""Of many cases of one kind some run in `make test`; the others are marked as long, and run in `make test-long`."""

from __future__ import annotations

from collections.abc import Container, Iterable
from random import Random
from typing import Any

import pytest


def one_in(count: int, cases: Iterable[Any], always: Container[Any] = ()) -> list[Any]:
    """The cases, of which one in so many is not long, nor is any that is named; drawn, so that no value of a product is left out."""
    known = list(cases)
    short = set(Random(0).sample(range(len(known)), -(-len(known) // count)))
    return [case if i in short or case in always else _long(case) for i, case in enumerate(known)]


def _long(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
