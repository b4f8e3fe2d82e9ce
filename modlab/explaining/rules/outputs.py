"""What models of transformers give: no tensor but a record of several, whose loss is None where no labels were given."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from modlab import format
from modlab.explaining import operands, source_code, written
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.records.explanation import Fix

_FIRST = ("logits", "last_hidden_state", "prediction_logits", "start_logits", "sample")
_TARGETS = ("labels", "label", "targets", "target", "y")
_SHOWN = 6


class ModelOutput(NamedTuple):
    """What a model gave, as the user's code has it.

    Attributes:
        node: where it stands in an expression.
        cls: its class; None where only the model is at hand.
        keys: what it holds; empty where it is not at hand.
        call: the call of the model, and the statement that it stands in.
        model: the model.
    """

    node: ast.expr
    cls: type | None
    keys: tuple[str, ...]
    call: written.Written | None
    model: Module | None


def is_output(thing: Any) -> bool:
    """Whether it is a ModelOutput of transformers (or of what takes after it)."""
    return _is_output_class(type(thing))


def _is_output_class(cls: type) -> bool:
    return any(base.__name__ == "ModelOutput" for base in cls.__mro__) and dataclasses.is_dataclass(cls)


def _held(thing: Any) -> dict[str, Any]:
    """The fields of an output that are not None."""
    held = vars(thing)
    return {field.name: held[field.name] for field in dataclasses.fields(thing) if held.get(field.name) is not None}


def _given(node: ast.expr, frame: Frame, within: ast.stmt | None = None) -> ModelOutput | None:
    """What a model gave, of an expression that stands for it: a name, or the call itself, in a statement (else in the one that failed)."""
    thing = operands.follow(node, frame)
    if isinstance(node, ast.Call):
        model = operands.follow(node.func, frame)
        statement = within or source_code.statement_of(frame)
        return ModelOutput(node, None, (), written.Written(statement, node) if statement else None, model) if _is_model(model) else None
    if thing is operands.MISSING or not is_output(thing):
        return None
    call, model = None, None
    source = written.value_of(frame, node.id) if isinstance(node, ast.Name) else None
    if source is not None and isinstance(source[1], ast.Call):
        called = operands.follow(source[1].func, frame)
        if _is_model(called):
            call, model = written.Written(source[0], source[1]), called
    return ModelOutput(node, type(thing), tuple(_held(thing)), call, model)


def _is_model(thing: Any) -> bool:
    if thing is operands.MISSING or not stores.is_module(thing):
        return False
    return stores.contents(thing).get("config") is not None or any(base.__name__ == "PreTrainedModel" for base in type(thing).__mro__)


# ---- no labels ---------------------------------------------------------------------------------------------------------------


def _no_loss(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``out.loss.backward()``, ``loss = out.loss`` and then whatever, ``out["loss"]``: of a model that was given no labels."""
    frame = failure.own
    expression = written.expression(frame)
    if frame is None or expression is None or (failure.user is not frame and not _asked_by_key(failure)):
        return None
    for text, given in _losses(expression, frame):
        cause = _without_labels(failure, frame, text, given)
        if cause is not None:
            return cause
    return None


def _asked_by_key(failure: Failure) -> bool:
    return isinstance(failure.error, KeyError) and failure.error.args == ("loss",)


def _losses(expression: ast.expr, frame: Frame) -> Iterator[tuple[str, ModelOutput]]:
    """The losses in an expression that are None, as they are written there, with what held them."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Name) and frame.names.get(node.id, "") is None:
            source = written.value_of(frame, node.id)
            found = _loss_of(source[1], frame, source[0]) if source is not None else None
            if found is not None:
                yield node.id, found
        elif isinstance(node, ast.expr):
            found = _loss_of(node, frame)
            if found is not None:
                yield ast.unparse(node), found


def _loss_of(node: ast.expr, frame: Frame, within: ast.stmt | None = None) -> ModelOutput | None:
    """Of ``out.loss`` or ``out["loss"]``, what `out` is; None where it has one."""
    of = node.value if isinstance(node, ast.Attribute) and node.attr == "loss" else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "loss":
        of = node.value
    found = _given(of, frame, within) if of is not None else None
    return found if found is not None and "loss" not in found.keys else None


def _without_labels(failure: Failure, frame: Frame, text: str, given: ModelOutput) -> Cause | None:
    model, call = given.model, given.call
    takes = _takes(model)
    if model is None or call is None:
        if given.cls is None or "loss" not in {field.name for field in dataclasses.fields(given.cls)}:
            return None
        said = f"{text} is None: the model that gave it was called without labels."
        return Cause(said, _computes("Models of transformers"), "", (("given", "None"),), (Fix("Give it the labels: labels=labels."),))
    name = type(model).__name__
    if takes and "labels" not in takes:
        return None
    told = _labels(call.call, frame)
    if told is None:
        return None
    return Cause(
        f"{text} is None: {ast.unparse(call.call.func)} ({name}) was called {told}.",
        _computes(name),
        "",
        (("given", "None"),),
        (_with_labels(frame, call, name),),
    )


def _computes(name: str) -> str:
    return f"{name} {'compute' if name.endswith('s of transformers') else 'computes'} a loss only where labels are given."


def _takes(model: Module | None) -> list[str]:
    try:
        return list(inspect.signature(type(model).forward).parameters) if model is not None else []
    except (TypeError, ValueError):
        return []


def _labels(call: ast.Call, frame: Frame) -> str | None:
    """In which way a call gives no labels; None where it does, or where that is not known."""
    node = written.word(call, "labels")
    if node is not None:
        return "with labels=None" if operands.follow(node, frame) is None else None
    for word in call.keywords:
        if word.arg is None:
            held = operands.follow(word.value, frame)
            if held is operands.MISSING or not isinstance(held, Mapping) or held.get("labels") is not None:
                return None
    return "without labels"


def _with_labels(frame: Frame, call: written.Written, name: str) -> Fix:
    causal = "LMHead" in name or "CausalLM" in name
    first = written.word(call.call, "input_ids") or (call.call.args[0] if call.call.args else None)
    spread = next((word.value for word in call.call.keywords if word.arg is None), None)
    if causal and first is None and spread is not None:
        first = ast.Subscript(spread, ast.Constant("input_ids"), ast.Load())
    if causal and first is not None and not isinstance(first, ast.Starred):
        return Fix(
            "It shifts them itself, so the labels are the input (-100 where there is padding):",
            call.rewritten(written.with_word(call.call, "labels", first)),
        )
    own = next((one for one in _TARGETS if issubclass(type(frame.names.get(one)), Tensor)), "labels")
    return Fix("Give them in the same call:", call.rewritten(written.with_word(call.call, "labels", ast.Name(own, ast.Load()))))


def _not_first(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``loss = model(ids)[0]``: without labels the first of what a model gives are its scores."""
    frame = failure.own
    call = written.expression(frame)
    of = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    source = written.value_of(frame, of.id) if frame is not None and isinstance(of, ast.Name) else None
    node = source[1] if source is not None else of
    if frame is None or not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant) or node.slice.value != 0:
        return None
    given = _given(node.value, frame, source[0] if source is not None else None)
    if given is None or given.call is None or given.model is None or "loss" in given.keys:
        return None
    told = _labels(given.call.call, frame)
    if told is None or "labels" not in _takes(given.model) or not isinstance(of, ast.expr):
        return None
    name = type(given.model).__name__
    return Cause(
        f"{ast.unparse(of)} is not a loss: {name} was called {told}, so its first output is the scores.",
        _computes(name),
        "no loss",
        (),
        (_with_labels(frame, given.call, name),),
    )


def _of_trainer(failure: Failure, match: re.Match[str]) -> Cause:
    """The Trainer of transformers, whose model gave no loss."""
    keys, inputs = match[1].split(","), match[2].split(",")
    model = next(
        (type(thing).__name__ for frame in reversed(failure.frames) if stores.is_module(thing := frame.names.get("model"))), "model"
    )
    said = "the batch holds no labels" if not any("label" in one for one in inputs) else f"{model} gives none"
    return Cause(
        f"Trainer got no loss from {model}: {said}.",
        f"The batch holds {', '.join(inputs)}; the model gave {', '.join(keys)}.",
        "no loss",
        (("batch", ", ".join(inputs)),),
        (
            Fix(
                'Let each sample of train_dataset hold "labels", too; for language models '
                "DataCollatorForLanguageModeling makes them: data_collator=..., mlm=False."
            ),
        ),
    )


# ---- a record where a tensor belongs -------------------------------------------------------------------------------------------


def _no_tensor(failure: Failure, match: re.Match[str]) -> Cause | None:
    """An output of a model was given, added or asked where a tensor belongs."""
    frame = failure.own
    expression = written.expression(frame)
    if frame is None or expression is None:
        return None
    for node in ast.walk(expression):
        given = _given(node, frame) if isinstance(node, ast.expr) else None
        cls = given.cls or _class_of(match["cls"]) if given is not None else None
        if given is None or cls is None or cls.__name__ != match["cls"]:
            continue
        fields = given.keys or tuple(field.name for field in dataclasses.fields(cls))
        field = next((one for one in (*_FIRST, *fields) if one in fields and one != "loss"), "")
        text = ast.unparse(given.node)
        new = ast.Attribute(given.node, field, ast.Load())
        return Cause(
            f"{text} is {format.article(cls.__name__)}, not a tensor{failure.within}.",
            f"It holds {', '.join(fields[:_SHOWN])}.",
            f"{cls.__name__} ≠ Tensor",
            (("given", cls.__name__), ("expected", "Tensor")),
            (Fix("Take the tensor you mean:", source_code.rewritten(frame, given.node, new)),) if field else (),
        )
    return None


def _class_of(name: str) -> type | None:
    for module in ("transformers.modeling_outputs", "transformers.utils", "transformers.utils.generic"):
        cls = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if isinstance(cls, type) and _is_output_class(cls):
            return cls
    return None


def _no_field(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``out.loss`` of a model without a head, or ``out.argmax()``, which is a tensor's."""
    wanted = match["name"]
    if hasattr(Tensor, wanted):
        return _no_tensor(failure, match)
    frame = failure.own
    expression = written.expression(frame)
    for node in ast.walk(expression) if expression is not None else ():
        if not isinstance(node, ast.Attribute) or node.attr != wanted or frame is None:
            continue
        given = _given(node.value, frame)
        cls = given.cls or _class_of(match["cls"]) if given is not None else None
        if given is None or cls is None or cls.__name__ != match["cls"]:
            continue
        fields = given.keys or tuple(field.name for field in dataclasses.fields(cls))
        headless = wanted in ("loss", "logits") and given.model is not None
        name = type(given.model).__name__ if headless else ast.unparse(given.node)
        said = f"{name} has no head, so its output has no {wanted}." if headless else f"{name} has no {wanted!r} ({cls.__name__})."
        fixes = tuple(_with_head(given.model, frame)) if headless and given.model is not None else ()
        return Cause(
            said,
            f"It holds {', '.join(fields[:_SHOWN])}.",
            f"no {wanted!r}",
            (("asked for", wanted),),
            fixes or (Fix("Use one of them."),),
        )
    return None


def _with_head(model: Module, frame: Frame) -> Iterator[Fix]:
    """The classes of the same library with the same body and a head."""
    cls = type(model)
    around = vars(sys.modules.get(cls.__module__, sys))
    stem = cls.__name__.removesuffix("Model")
    public = [one for one in around.get("__all__", ()) if isinstance(one, str)]
    names = [one for one in public if one.startswith(f"{stem}For") or one == f"{stem}LMHeadModel"]
    if names:
        named = written.named(frame, model)
        source = written.value_of(frame, named) if named else None
        call = source[1] if source is not None and isinstance(source[1], ast.Call) else None
        code = ""
        if source is not None and call is not None and isinstance(call.func, ast.Attribute) and call.func.attr == cls.__name__:
            code = written.exchanged(source[0], call.func, ast.Attribute(call.func.value, names[0], ast.Load()))
        yield Fix(
            f"Use the class for its task: {', '.join(names[:_SHOWN])}; for example:"
            if code
            else f"Use the class for its task: {', '.join(names[:_SHOWN])}.",
            code,
        )


_OUTPUT = r"(?P<cls>\w*Output\w*)"
_NONE = r"None"
RULES = (
    Rule("no loss", (AttributeError, TypeError, ValueError), _NONE, _no_loss),
    Rule("no loss", (KeyError,), r"^loss$", _no_loss),
    Rule("no loss", (RuntimeError,), r"^grad can be implicitly created only for scalar outputs", _not_first),
    Rule(
        "no loss",
        (ValueError,),
        r"The model did not return a loss from the inputs, only the following keys: ([\w,]*)\. "
        r"For reference, the inputs it received are ([\w,]*)",
        _of_trainer,
    ),
    Rule("argument", (AttributeError,), rf"^'{_OUTPUT}' object has no attribute '(?P<name>\w+)'", _no_field),
    Rule("argument", (TypeError,), rf"must be Tensor, not {_OUTPUT}", _no_tensor),
    Rule("argument", (TypeError,), rf"^unsupported operand type\(s\) for [^:]*: .*'{_OUTPUT}'", _no_tensor),
    Rule("argument", (TypeError,), rf"expected Tensor as element \d+ in argument \d+, but got {_OUTPUT}", _no_tensor),
)
