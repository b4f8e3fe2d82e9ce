"""Hyper-parameters: what an optimizer or a scheduler is made with and does not take. A negative number, a model."""

from __future__ import annotations

import ast
import re

from torch.optim import Optimizer

from modlab import format
from modlab.explaining import source_code
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.records.explanation import Fix

_NAMES = {"learning rate": "lr", "momentum value": "momentum", "weight_decay value": "weight_decay", "epsilon value": "eps"}


def _making(failure: Failure, file: str) -> tuple[Frame, ast.Call] | None:
    """The user's call of a constructor in one of the files of torch.optim, in which it failed."""
    inner, user = failure.inner, failure.user
    call = user.expression() if user is not None else None
    if inner is None or user is None or not inner.is_torch or not isinstance(call, ast.Call):
        return None
    return (user, call) if file in inner.code.co_filename.replace("\\", "/") and inner.function == "__init__" else None


def _negative(failure: Failure, match: re.Match[str]) -> Cause | None:
    found, name = _making(failure, "/optim/"), _NAMES[match[1]]
    if found is None:
        return None
    frame, call = found
    node = next((word.value for word in call.keywords if word.arg == name), None)
    if node is None and name == "lr" and len(call.args) > 1 and not any(isinstance(one, ast.Starred) for one in call.args):
        node = call.args[1]
    fix = Fix("Use a value of 0 or more.")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        fix = Fix("Without the sign:", source_code.rewritten(frame, node, node.operand))
    elif node is not None:
        fix = Fix(f"Look at what it is computed from: {ast.unparse(node)} is {match[2]}.")
    more = "A step already goes against the gradient; to climb, use maximize=True." if name == "lr" else ""
    return Cause(
        f"{ast.unparse(call.func)} got {name}={match[2]}, which cannot be negative.",
        more,
        "",
        ((name, match[2]),),
        (fix,),
    )


def _no_optimizer(failure: Failure, match: re.Match[str]) -> Cause | None:
    found = _making(failure, "/optim/lr_scheduler.py")
    if found is None:
        return None
    frame, call = found
    node = call.args[0] if call.args else next((word.value for word in call.keywords if word.arg == "optimizer"), None)
    given = failure.local("optimizer")
    if node is None or isinstance(node, ast.Starred) or type(given).__name__ != match[1]:
        return None
    name, what = ast.unparse(call.func), "a model" if stores.is_module(given) else format.article(match[1])
    known = {
        id(thing): word for word, thing in list(frame.names.items()) if issubclass(type(thing), Optimizer) and not word.startswith("_")
    }
    fix = Fix("Create the optimizer first, and pass it.")
    if len(known) == 1:
        fix = Fix("Pass the optimizer:", source_code.rewritten(frame, node, ast.Name(next(iter(known.values())))))
    return Cause(
        f"{name} takes an optimizer, but got {ast.unparse(node)}, {what}.",
        "It changes the learning rate, which the optimizer holds.",
        "",
        (("given", match[1]), ("expected", "a torch.optim.Optimizer")),
        (fix,),
    )


RULES = (
    Rule("optimizer", (ValueError,), rf"^Invalid ({'|'.join(_NAMES)}): (-[\d.][\w.+-]*)$", _negative),
    Rule("scheduler", (TypeError,), r"^(\w+) is not an Optimizer$", _no_optimizer),
)
