"""What is made before a model can be trained: a constructor that starts with ``super(Net)``, an optimizer that gets names."""

from __future__ import annotations

import ast
import re

from modlab.explaining.failure import Cause, Failure, Rule
from modlab.records.explanation import Fix

_UNBOUND = re.compile(r"\bsuper\(\s*(\w+)\s*\)\s*\.\s*__init__\(([^()]*)\)")


def _unbound(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``super(Net).__init__()``, without self, is the constructor of the super object itself."""
    for frame in reversed(failure.frames):
        if frame.function != "__init__" or not frame.is_users:
            continue
        for number, line in frame.lines():
            found = _UNBOUND.search(line.split("#")[0].rstrip())
            if found is not None and number <= frame.line:
                return Cause(
                    f"super({found[1]}).__init__() calls no constructor of nn.Module: super with only a class is not bound to anything.",
                    "So nn.Module never created the stores for layers.",
                    "no stores yet",
                    (),
                    (Fix(f"In the constructor of {found[1]}:", f"super().__init__({found[2]})"),),
                )
    return None


def _listed(failure: Failure) -> Cause | None:
    """``Adam([net.parameters()])``."""
    call = failure.user.expression() if failure.user is not None else None
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if not isinstance(call, ast.Call) or not isinstance(given, (ast.List, ast.Tuple)) or not given.elts:
        return None
    if any(not isinstance(one, ast.Call) or not ast.unparse(one.func).endswith(".parameters") for one in given.elts):
        return None
    made: ast.expr = given.elts[0]
    if len(given.elts) > 1:
        made = ast.List([ast.Starred(one, ast.Load()) for one in given.elts], ast.Load())
    code = ast.unparse(ast.Call(call.func, [made, *call.args[1:]], call.keywords))
    said = "a list that holds an iterator of them" if len(given.elts) == 1 else "a list of iterators"
    return Cause(f"The optimizer takes parameters, but got {said}.", "", "", (), (Fix("Pass the parameters themselves:", code),))


def _names(failure: Failure, match: re.Match[str]) -> Cause | None:
    if match[1] == "Module":
        return _listed(failure)
    if match[1] != "str":
        return None
    call = failure.user.expression() if failure.user is not None else None
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    source = next(filter(None, map(_tells_names, ast.walk(given))), None) if given is not None else None
    fixes: tuple[Fix, ...] = (Fix("Pass the parameters themselves:", "model.parameters()"),)
    if isinstance(call, ast.Call) and source is not None:
        more = [*map(ast.unparse, call.args[1:]), *(f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords if k.arg)]
        arguments = ", ".join([f"{ast.unparse(source.value)}.parameters()", *more])
        fixes = (Fix("Pass the parameters themselves:", f"{ast.unparse(call.func)}({arguments})"),)
    why = "Iterating over a dict gives its keys, which are names." if source is not None and source.attr == "state_dict" else ""
    return Cause("The optimizer takes parameters, but got their names (str).", why, "str", (), fixes)


def _tells_names(node: ast.AST) -> ast.Attribute | None:
    found = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    return found if found is not None and found.attr in ("state_dict", "named_parameters") else None


RULES = (
    Rule("constructor", (AttributeError,), r"before Module\.__init__\(\) call", _unbound),
    Rule("optimizer", (TypeError,), r"optimizer can only optimize Tensors, but one of the params is (\w+)", _names),
)
