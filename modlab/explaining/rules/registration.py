"""What cannot be registered: its kind, or its name."""

from __future__ import annotations

import ast
import re

from torch import nn
from torch.nn import Module

from modlab import format
from modlab.explaining import source_code
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.inspection import stores
from modlab.records.explanation import Fix


def _not_a_module(failure: Failure, match: re.Match[str]) -> Cause:
    given = failure.local("module")
    short = match[1].rpartition(".")[2]
    holder = failure.failing.type if failure.failing is not None else "A module"
    if type(given) is type or issubclass(type(given), type):
        said, fix = f"the class {short} itself", Fix("Make one:", f"nn.{short}()" if hasattr(nn, short) else f"{short}()")
    elif type(given) in (list, tuple):
        said, fix = (
            f"a {type(given).__name__} of modules",
            Fix("Unpack it:", f"nn.{holder}(*layers)" if holder == "Sequential" else "nn.ModuleList(layers)"),
        )
    elif callable(given):
        known = {
            "relu": "nn.ReLU()",
            "tanh": "nn.Tanh()",
            "sigmoid": "nn.Sigmoid()",
            "softmax": "nn.Softmax(dim=-1)",
            "flatten": "nn.Flatten()",
        }
        said, fix = f"the function {short}", Fix("Use the module that does the same:", known.get(short, "class Step(nn.Module): ..."))
    else:
        said, fix = format.article(short), Fix("It takes instances of nn.Module only.")
    return Cause(f"{holder} takes modules, but got {said}.", "", "", (("given", said), ("expected", "an nn.Module")), (fix,))


def _taken(failure: Failure, match: re.Match[str]) -> Cause | None:
    module, name = failure.module, match[1]
    if module is None:
        return None
    held, cls = stores.contents(module), type(module).__name__
    kinds = {"_parameters": "a parameter", "_buffers": "a buffer", "_modules": "a module"}
    kind = next((word for store, word in kinds.items() if name in (held.get(store) or {})), "")
    mapping = type(module) in (nn.ModuleDict, nn.ParameterDict)
    if name in stores.STANDARD:
        why, own = "every module has it as an attribute", False
    elif _is_of_class(module, name):
        why, own = f"every {cls} has it as a method or attribute", False
    else:
        why, own = f"it is already {kind}" if kind else "it was already assigned as a plain attribute", True
    if own and not kind and not mapping and failure.inner is not None:
        fix = Fix("Register it directly, without assigning it first:", f'self.{failure.inner.function}("{name}", ...)')
    else:
        fix = _other_name(failure, name, f"{name}_", f"Use a different {'key' if mapping else 'name'}")
    return Cause(
        f"{failure.subject} has {name!r} already: nothing can be registered under that name.",
        f"{why[0].upper()}{why[1:]}.",
        "",
        (("name", name),),
        (fix,),
    )


def _other_name(failure: Failure, old: str | int, new: str, said: str) -> Fix:
    """The statement with another name in it, where the old one is written there, once, as a text; else in words."""
    module, frame = failure.module, failure.user
    if module is None or new in stores.contents(module) or _is_of_class(module, new) or _is_registered(module, new):
        return Fix(f"{said}.")
    statement = source_code.statement_of(frame) if frame is not None else None
    written = [node for node in ast.walk(statement) if isinstance(node, ast.Constant)] if statement is not None else []
    places = [node for node in written if node.value == old]
    if frame is None or len(places) != 1 or any(node.value == new for node in written):
        return Fix(f"{said}, for example {new!r}.")
    return Fix(f"{said}:", source_code.rewritten(frame, places[0], ast.Constant(new)))


def _is_of_class(module: Module, name: str) -> bool:
    """Whether its class has a method or an attribute of that name."""
    return any(name in vars(base) for base in type(module).__mro__)


def _is_registered(module: Module, name: str) -> bool:
    held = stores.contents(module)
    return any(name in (held.get(store) or {}) for store in ("_parameters", "_buffers", "_modules"))


def _dotted(failure: Failure, match: re.Match[str]) -> Cause | None:
    name = failure.local("name")
    if failure.module is None or type(name) is not str:
        return None
    return Cause(
        f"A {match[1]}'s name cannot hold a dot: {name!r}.",
        "Dots in a path separate a module from its contents.",
        "",
        (("name", name),),
        (_other_name(failure, name, name.replace(".", "_"), "Use a different character"),),
    )


def _empty_name(failure: Failure, match: re.Match[str]) -> Cause | None:
    if failure.module is None:
        return None
    return Cause(
        f"A {match[1]}'s name cannot be empty.",
        f"{failure.subject} uses it as a key and as part of its path.",
        "",
        (("name", '""'),),
        (Fix("Give it a name with at least one letter."),),
    )


def _no_text(failure: Failure, match: re.Match[str]) -> Cause | None:
    name = failure.local("name")
    if failure.module is None or type(name).__name__ != match[2].rpartition(".")[2]:
        return None
    fix = _other_name(failure, name, str(name), "Write it as a string") if type(name) is int else Fix("Give it a string.")
    return Cause(
        f"A {match[1]}'s name must be a string, but this one has type {match[2]}.",
        "It becomes part of a path.",
        "",
        (("name", repr(name) if type(name) in (int, float, bool, type(None)) else match[2]), ("expected", "str")),
        (fix,),
    )


def _cannot_assign(failure: Failure, match: re.Match[str]) -> Cause:
    given, kind, name = match[1].rpartition(".")[2], match[2], match[3]
    tensor = "Tensor" in given
    subject = failure.subject or "The module"
    holds = {"parameter": "a parameter", "buffer": "a buffer", "child module": "a module"}[kind]
    statement = source_code.statement_of(failure.user) if failure.user is not None else None
    target = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else ""
    value = ast.unparse(statement.value) if isinstance(statement, ast.Assign) else ""
    if kind == "parameter" and tensor:
        fix = Fix("Make it one:", f"{target or f'self.{name}'} = nn.Parameter({value or 'tensor'})")
    elif name.isidentifier() and re.fullmatch(r"\w+(?:\.\w+)*", target):
        fix = Fix("Free the name first:", f"del {target}\n{target} = {value}")
    else:
        fix = Fix(f"Give it {holds}, or use a different name.")
    return Cause(
        f"{name!r} is reserved for {holds} in {subject}, and cannot take a {given}.",
        "A registered name keeps its kind.",
        "",
        (("given", given), ("expected", kind)),
        (fix,),
    )


RULES = (
    Rule("registration", (TypeError,), r"^([\w.<>]+) is not a Module subclass", _not_a_module),
    Rule("registration", (KeyError,), r"attribute '([^']+)' already exists", _taken),
    Rule("registration", (KeyError,), r"(parameter|buffer|module) name can't contain \"\.\"", _dotted),
    Rule("registration", (KeyError,), r"(parameter|buffer|module) name can't be empty string", _empty_name),
    Rule("registration", (TypeError,), r"^(parameter|buffer|module) name should be a string\. Got ([\w.]+)", _no_text),
    Rule("registration", (TypeError,), r"cannot assign '([^']+)' as (parameter|buffer|child module) '([^']+)'", _cannot_assign),
)
