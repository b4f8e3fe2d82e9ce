"""Derivatives of the user's own: a ``torch.autograd.Function`` whose backward does not give what forward took."""

from __future__ import annotations

import ast
import re

from torch.autograd import Function

from modlab.explaining import operands, source_code
from modlab.explaining.failure import Cause, Failure, Rule, counted, tuple_of
from modlab.inspection.definitions import place_of
from modlab.records.explanation import Fix


def _where(failure: Failure, name: str) -> str:
    """Where the backward of a class stands, if the user's code has that class."""
    for frame in reversed([frame for frame in failure.frames if frame.is_users]):
        cls = frame.names.get(name, frame.globals.get(name))
        code = getattr(vars(cls).get("backward"), "__code__", None) if isinstance(cls, type) and issubclass(cls, Function) else None
        code = code or getattr(getattr(cls, "backward", None), "__code__", None)
        if code is not None:
            return f"It stands at {place_of(code.co_filename, code.co_firstlineno)}."
    return ""


def _number(failure: Failure, match: re.Match[str]) -> Cause:
    expected, got = int(match[2]), int(match[3])
    return Cause(
        f"{match[1]}.backward returned {counted(got, 'gradient')}, but forward takes {counted(expected, 'argument')}.",
        _where(failure, match[1]),
        f"{got} ≠ {expected} gradients",
        (("expected", str(expected)), ("given", str(got))),
        (Fix("Return one for each argument of forward, in their order; None for those that need none (numbers, flags)."),),
    )


def _shape(failure: Failure, match: re.Match[str]) -> Cause:
    given, wanted, place = tuple_of(match[3]), tuple_of(match[4]), int(match[2])
    return Cause(
        f"{match[1]}.backward returned a gradient of {given} for argument {place} of forward, which is {wanted}.",
        _where(failure, match[1]),
        f"{given} ≠ {wanted}",
        (("given", str(given)), ("expected", str(wanted))),
        (Fix("A gradient has the same shape as its argument: what forward summed, backward must spread again."),),
    )


def _old(failure: Failure, _: re.Match[str]) -> Cause:
    user = failure.user
    call = user.expression() if user is not None else None
    code = ""
    if user is not None and isinstance(call, ast.Call):
        made = call.func if isinstance(call.func, ast.Call) else operands.follow(call.func, user)
        if isinstance(made, ast.Call) and not made.args and not made.keywords:
            code = source_code.rewritten(user, call, ast.Call(ast.Attribute(made.func, "apply", ast.Load()), call.args, call.keywords))
    return Cause(
        "A torch.autograd.Function is no longer created and called: its methods are static, and .apply calls it.",
        "",
        "",
        (),
        (
            Fix(
                "Put @staticmethod above forward and backward, and call it like this:"
                if code
                else "Put @staticmethod above forward and backward, and call it with .apply.",
                code,
            ),
        ),
    )


_R = (RuntimeError,)
RULES = (
    Rule("gradient", _R, r"^function (\w+)Backward returned an incorrect number of gradients \(expected (\d+), got (\d+)\)", _number),
    Rule(
        "gradient",
        _R,
        r"^Function (\w+)Backward returned an invalid gradient at index (\d+) - got \[([\d, ]*)\] but expected shape compatible with "
        r"\[([\d, ]*)\]",
        _shape,
    ),
    Rule("gradient", _R, r"^Legacy autograd function with non-static forward method is deprecated", _old),
)
