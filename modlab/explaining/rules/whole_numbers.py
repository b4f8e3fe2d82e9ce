"""Whole numbers where fractions belong, and the other way round: gradients, one-hot rows, indices."""

from __future__ import annotations

import ast
import re

from torch import Tensor

from modlab.explaining import operands
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.records.explanation import Fix


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _first(failure: Failure) -> tuple[str, Tensor] | None:
    """The first tensor in the expression that failed, as it is written there."""
    found = failure.tensors
    return (found[0].text, found[0].thing) if found else None


def _gradient(failure: Failure, _: re.Match[str]) -> Cause:
    found = _first(failure)
    name, kind = (found[0], _dtype(found[1])) if found is not None else ("x", "whole numbers")
    fix = (
        Fix("Make it floating-point:", f"{name} = {name}.float().requires_grad_()")
        if name.isidentifier()
        else Fix("Make it floating-point: .float()")
    )
    return Cause(
        f"{name} is {kind}, but only floating-point numbers can require gradients.",
        "A whole number cannot change by a small amount.",
        f"{kind} ≠ float",
        (),
        (fix, Fix("If it is not trained, it needs no gradient.")),
    )


def _one_hot(failure: Failure, _: re.Match[str]) -> Cause:
    found = _first(failure)
    kind = _dtype(found[1]) if found is not None else "another dtype"
    name = found[0] if found is not None else "x"
    return Cause(
        f"one_hot got classes of {kind}, but takes only int64{failure.within}.",
        "Each class is the number of a column.",
        f"{kind} ≠ int64",
        (("dtype", kind),),
        (Fix("If they are whole numbers anyway:", _again(failure, name, f"{name}.long()")),),
    )


def _again(failure: Failure, name: str, made: str) -> str:
    """The call with its first argument made into something else."""
    call = failure.user.expression() if failure.user is not None else None
    if not isinstance(call, ast.Call) or not call.args or ast.unparse(call.args[0]) != name:
        return f"F.one_hot({made})"
    more = [*map(ast.unparse, call.args[1:]), *(f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords if k.arg)]
    return f"{ast.unparse(call.func)}({', '.join([made, *more])})"


def _negative(failure: Failure, _: re.Match[str]) -> Cause:
    found = _first(failure)
    name = found[0] if found is not None else "x"
    return Cause(
        f"one_hot got a class below 0{failure.within}.",
        "Classes are counted from 0.",
        "class < 0",
        (),
        (
            Fix(
                "If a negative one means no class, zero its row:",
                f"{_again(failure, name, f'{name}.clamp(min=0)')} * ({name} >= 0)[..., None]",
            ),
        ),
    )


def _index(failure: Failure, match: re.Match[str]) -> Cause:
    user = failure.user
    thing = failure.local("input")
    name = next((one.text for one in (operands.of_frame(user) if user is not None else []) if one.thing is thing), "x")
    fixes = [Fix("If 0 and 1 are rows of the table:", f"{name} = {name}.long()" if name.isidentifier() else "x = x.long()")]
    fixes.append(Fix("If it is a mask: an embedding takes row numbers, not a mask."))
    return Cause(
        f"{failure.subject or 'The embedding'} got booleans, but needs whole numbers: they are rows of a table.",
        "",
        "bool ≠ int64",
        (("dtype", "bool"),),
        tuple(fixes),
    )


_R = (RuntimeError,)
RULES = (
    Rule("dtype", _R, r"^only Tensors of floating point dtype can require gradients", _gradient),
    Rule("dtype", _R, r"^one_hot is only applicable to index tensor", _one_hot),
    Rule("dtype", _R, r"^Class values must be non-negative", _negative),
    Rule("dtype", _R, r"'indices' to have one of the following scalar types: Long, Int; but got \w*Bool", _index),
)
