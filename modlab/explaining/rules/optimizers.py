"""Optimizers that got no parameter, or what they cannot train."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from torch import Tensor, nn
from torch.nn import Module

from modlab import format
from modlab.explaining import operands, suspects
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.explaining.rules.constructors import signature
from modlab.inspection import stores, unregistered
from modlab.records.explanation import Fix

_ASKED = 2_000  # modules asked for what they hide


def _optimizer(failure: Failure) -> Frame | None:
    return next((f for f in reversed(failure.frames) if f.is_torch and "/optim/" in f.code.co_filename.replace("\\", "/")), None)


def _model(failure: Failure) -> tuple[str, Module] | None:
    """The model of ``model.parameters()``, which was passed; where that is of what is not known, no other one."""
    frame, unknown = failure.user, False
    expression = frame.expression() if frame is not None else None
    for node in ast.walk(expression) if expression is not None else ():
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters") and frame is not None:
            found = operands.follow(node.value, frame)
            if stores.is_module(found):
                return ast.unparse(node.value), found
            unknown = True
    return failure.models[0] if failure.models and not unknown else None


def _empty(failure: Failure, _: re.Match[str]) -> Cause | None:
    if _optimizer(failure) is None:
        return None
    found = _model(failure)
    if found is None:
        return Cause(
            "The optimizer got no parameters.",
            "An iterator that was already used is empty too.",
            "",
            (),
            (Fix("Pass a fresh one, of a model that has parameters:", "torch.optim.SGD(model.parameters(), lr=0.1)"),),
        )
    name, model = found
    cls = type(model).__name__
    modules = list(suspects.walk(model, _ASKED))
    own = sum(1 for _, module in modules for _, tensor in stores.named_tensors(module) if issubclass(type(tensor), nn.Parameter))
    frozen = own and not any(tensor.requires_grad for _, module in modules for _, tensor in stores.named_tensors(module))
    if frozen:
        return Cause(
            f"The optimizer got an empty list: all {format.plural(own, 'parameter')} of {name} are frozen.",
            "A filter for requires_grad lets none through.",
            "",
            ((f"{name}: parameters that require a gradient", "0"),),
            (Fix("Make the ones you want trainable before creating the optimizer:", f"{name}.requires_grad_(True)"),),
        )
    if own:
        return Cause(
            f"The optimizer got an empty list, though {name} has {format.plural(own, 'parameter')}.",
            "The iterator was already used up, or a filter let none through.",
            "",
            ((f"{name}: parameters", str(own)),),
            (Fix("Make a list once, if it is needed twice:", f"parameters = list({name}.parameters())"),),
        )
    finder = unregistered.Finder(module for _, module in modules)
    hidden = [(path, ghost) for path, module in modules for ghost in finder.find(module) if not ghost.harmless]
    if hidden:
        from modlab.wording.unregistered import reason  # most errors need none

        path, ghost = hidden[0]
        place = f"{path}.{ghost.name}" if path else ghost.name
        return Cause(
            f"{cls} has no registered parameter: {place} ({ghost.what}) is hidden from PyTorch.",
            f"It is {reason(ghost.way, ghost.holder, ghost.cut)}.",
            "",
            tuple((f"{p}.{g.name}" if p else g.name, f"{g.what}, {format.plural(g.parameters, 'number')}") for p, g in hidden[:8]),
            (Fix(f"Register them, in the constructor:{f' {ghost.advice}.' if ghost.advice else ''}", ghost.fix),),
        )
    typo = next((n for n in vars(type(model)) if n.strip("_") == "init" and n != "__init__"), "")
    if typo:
        return Cause(
            f"{cls} has no parameter: its constructor is called {typo}, which Python never runs.",
            "",
            "",
            (("class", cls), ("found", typo)),
            (Fix("Two underscores on each side:", signature(type(model), typo)),),
        )
    made = suspects.lines(failure, re.compile(r"nn\.(?:Linear|Conv\d?d?|Embedding|LSTM|GRU|Parameter)\("))
    more = (
        "Layers created inside forward are new at each call, and no module owns them."
        if made
        else f"It has {format.plural(len(modules) - 1, 'module')}, none of which has any."
        if len(modules) > 1
        else ""
    )
    return Cause(
        f"{cls} has no parameter: there is nothing to train.",
        more,
        "",
        (("model", name), ("modules", str(len(modules))), *made),
        (Fix("Create the layers in the constructor, as attributes:", "self.layer = nn.Linear(...)"),),
    )


def _iterable(failure: Failure, match: re.Match[str]) -> Cause | None:
    frame = _optimizer(failure)
    given: Any = failure.local("params")
    holder = getattr(given, "__self__", None) if inspect.ismethod(given) else None
    if frame is not None and stores.is_module(holder):
        name = next((n for n, m in failure.models if m is holder), "model")
        return Cause(
            f"The optimizer got the method {given.__name__} itself: it was not called.",
            "",
            "",
            (("given", "a method"), ("expected", "an iterable of tensors")),
            (Fix("Call it:", f"{name}.{given.__name__}()"),),
        )
    if frame is None or not (stores.is_module(given) or issubclass(type(given), Tensor)):
        return None
    what = type(given).__name__
    name = next((n for n, m in failure.models if m is given), "model")
    fix = Fix("Pass its parameters:", f"{name}.parameters()") if stores.is_module(given) else Fix("Put it into a list:", "[weight]")
    return Cause(
        f"The optimizer takes parameters, but got the {what} itself.",
        "",
        "",
        (("given", what), ("expected", "an iterable of tensors")),
        (fix,),
    )


def _several_groups(failure: Failure, _: re.Match[str]) -> Cause | None:
    return (
        None
        if _optimizer(failure) is None
        else Cause(
            "A parameter is in two groups of the optimizer, which would update it twice.",
            "",
            "",
            (),
            (
                Fix(
                    "Keep parameters with their own group out of the others:",
                    "special = {id(p) for p in head.parameters()}\nrest = [p for p in model.parameters() if id(p) not in special]",
                ),
            ),
        )
    )


def _non_leaf(failure: Failure, _: re.Match[str]) -> Cause | None:
    return (
        None
        if _optimizer(failure) is None
        else Cause(
            "The optimizer got a tensor that is computed from others: only those can be trained.",
            "nn.Parameter(...).to(device) and w * 0.1 are such tensors.",
            "",
            (),
            (Fix("Compute first, then create the parameter:", "nn.Parameter(torch.randn(3, device=device))"),),
        )
    )


RULES = (
    Rule("optimizer", (ValueError,), r"optimizer got an empty parameter list", _empty),
    Rule("optimizer", (TypeError,), r"object is not iterable|params argument given to the optimizer should be an iterable", _iterable),
    Rule("optimizer", (ValueError,), r"some parameters appear in more than one parameter group", _several_groups),
    Rule("optimizer", (ValueError,), r"can't optimize a non-leaf Tensor", _non_leaf),
)
