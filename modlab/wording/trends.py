"""Trends: where a curve starts and ends, and what the two numbers are. A reader should find them on the curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modlab import format


def arrow(facts: Mapping[str, Any]) -> str:
    """``3.39 → 0.0109, averaged over its first and last tenth``.

    Args:
        facts: "first" and "last"; "averaged" if these are means over several values; "values": how many, if not one of each step;
            "passes": of how many backward passes each is the sum, if of several.

    >>> arrow({"first": 3.39, "last": 0.0109}), arrow({"first": 1.1603, "last": 1.1598})
    ('3.39 → 0.0109', '1.1603 → 1.1598')
    """
    return f"{' → '.join(_ends(facts))}{_basis(facts)}"


def travelled(facts: Mapping[str, Any]) -> str:
    """``from 7.4 to 0.14``: the same in a sentence."""
    return f"from {' to '.join(_ends(facts))}{_basis(facts)}"


def _ends(facts: Mapping[str, Any]) -> tuple[str, str]:
    """Both numbers, with as many digits as tell them apart."""
    first, last = facts["first"], facts["last"]
    told = format.rough(first), format.rough(last)
    for digits in (4, 5, 6):
        if told[0] == told[1] and first != last:
            told = f"{first:.{digits}g}", f"{last:.{digits}g}"
    return told


def _basis(facts: Mapping[str, Any]) -> str:
    if not facts.get("averaged"):
        return summed(facts)
    whose, those = ("the", f" of the {facts['values']:,} values seen") if "values" in facts else ("its", "")
    return f", averaged over {whose} first and last tenth{those}{summed(facts)}"


def of_its_size(times: float) -> str:
    """``48 times its size``: of what is at least as large."""
    if times >= 1e6:
        return "more than a million times its size"
    return f"{times:,.0f} times its size" if times >= 1.5 else "as much as its size"


def summed(facts: Mapping[str, Any]) -> str:
    """Of what the values of a loss are the sum, where a step has several backward passes."""
    return f", each the sum of {added(facts['passes'])}" if round(facts.get("passes", 1), 1) > 1 else ""


def added(passes: float) -> str:
    """``16 backward passes``, of which a loss is the sum."""
    about = "" if float(passes).is_integer() else "about "
    return f"{about}{passes:.{1 if about and passes < 2 else 0}f} backward passes"
