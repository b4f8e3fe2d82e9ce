"""Sick trainings, each with its cause, beside their healthy twins: who names the cause?

A *case* is a training with one fault. It is proven sick: with each of three seeds it ends far from what its twin reaches, which is the
same training without the fault. Beside them stand strange but healthy trainings, in which nothing is wrong. `python -m bench.sick`
asks tools for the cause of each and counts; `docs/sick.md` says how another tool enters.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.sick.cases import Case, Side


@cache
def cases_of(side: Side) -> list[Case]:
    """All cases of one half."""
    return import_module(f"bench.sick.{side}").HALF.cases()  # type: ignore[no-any-return]


def case(side: Side, name: str) -> Case:
    """One of them."""
    return next(one for one in cases_of(side) if one.name == name)
