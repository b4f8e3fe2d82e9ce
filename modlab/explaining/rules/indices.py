"""What chooses from a tensor and does not fit it: a mask of another size, numbers that are no places, too many of them."""

from __future__ import annotations

import ast
import re

import torch

from modlab.explaining import operands, source_code
from modlab.explaining.failure import Cause, Failure, Rule, counted, shape_of, tuple_of
from modlab.explaining.frames import Frame
from modlab.records.explanation import Fix

_WHOLE = (torch.int64, torch.int32, torch.uint8, torch.bool)


def _chosen(failure: Failure) -> tuple[Frame, ast.Subscript, list[ast.expr]] | None:
    """The ``x[...]`` of the user's that failed, and what stands between the brackets."""
    frame = failure.user
    node = frame.expression() if frame is not None else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:  # x[i] = y
        node = node.targets[0]
    if frame is None or not isinstance(node, ast.Subscript):
        return None
    return frame, node, node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _mask(failure: Failure, match: re.Match[str]) -> Cause | None:
    mask, place, shape = tuple_of(match[1]), int(match[2]), tuple_of(match[3])
    found = _chosen(failure)
    name, text, fixes = "the tensor", "", []
    if found is not None:
        frame, node, parts = found
        name = ast.unparse(node.value)
        masks = [one for one in parts if shape_of(operands.follow(one, frame)) == mask]
        if len(masks) == 1:
            text = ast.unparse(masks[0])
        fitting = [i for i, size in enumerate(shape) if mask == (size,)]
        if len(parts) == 1 and len(fitting) == 1:
            around: list[ast.expr] = [ast.Slice() for _ in range(fitting[0])]
            made = ast.Subscript(node.value, ast.Tuple([*around, parts[0]], ast.Load()), ast.Load())
            fixes = [Fix(f"It fits dimension {fitting[0]}:", source_code.rewritten(frame, node, made))]
    return Cause(
        f"{f'{text} is a mask of' if text else 'The mask is'} {mask}, but {name} is {shape}{failure.within}.",
        f"From dimension {place} on, the sizes must be equal.",
        f"mask {mask} ≠ {shape}",
        ((text or "the mask", str(mask)), (name, str(shape))),
        tuple(fixes) or (Fix("A mask has the sizes of the dimensions it selects from."),),
    )


def _kind(failure: Failure, _: re.Match[str]) -> Cause | None:
    found = _chosen(failure)
    if found is None:
        return None
    frame, node, parts = found
    things = [(one, operands.follow(one, frame)) for one in parts]
    wrong = [(one, thing) for one, thing in things if shape_of(thing) is not None and thing.dtype not in _WHOLE]
    if len(wrong) != 1:
        return None
    part, thing = wrong[0]
    text, kind = ast.unparse(part), str(thing.dtype).removeprefix("torch.")
    made = ast.Call(ast.Attribute(part, "long", ast.Load()), [], [])
    return Cause(
        f"{text} is {kind}, but indexes {ast.unparse(node.value)}{failure.within}.",
        "Indices are whole numbers, and masks are bool.",
        f"{kind} ≠ int64",
        ((text, kind),),
        (Fix("If they are whole numbers anyway:", source_code.rewritten(frame, part, made)),),
    )


def _many(failure: Failure, match: re.Match[str]) -> Cause:
    found, count = _chosen(failure), counted(int(match[1]), "dimension")
    if found is None:
        return Cause(f"A tensor of {count} got more indices than that{failure.within}.", "", "too many indices")
    frame, node, parts = found
    name, shape = ast.unparse(node.value), shape_of(operands.follow(node.value, frame))
    return Cause(
        f"{name} has {count}, and {ast.unparse(node)} asks for more{failure.within}.",
        f"It is {shape}." if shape is not None else "",
        f"{len(parts)} indices for {count}",
        ((name, str(shape)),) if shape is not None else (),
        (Fix("Check its shape first:", f"print({name}.shape)"),),
    )


def _best(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``x.topk(5)`` of three."""
    user = failure.user
    call = user.expression() if user is not None else None
    if user is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "topk":
        return None
    nodes = {k.arg: k.value for k in call.keywords if k.arg}
    given = list(call.args) if ast.unparse(call.func.value) == "torch" else [call.func.value, *call.args]
    nodes.update(zip(("input", "k", "dim"), given, strict=False))
    shape = shape_of(operands.follow(nodes["input"], user)) if "input" in nodes else None
    count = operands.follow(nodes["k"], user) if "k" in nodes else None
    place = operands.follow(nodes["dim"], user) if "dim" in nodes else -1
    if not shape or type(count) is not int or type(place) is not int or not -len(shape) <= place < len(shape) or 0 <= count <= shape[place]:
        return None
    name = ast.unparse(nodes["input"])
    least = ast.parse(f"min({ast.unparse(nodes['k'])}, {name}.size({place}))", mode="eval").body
    return Cause(
        f"topk asks for the {count} largest, and {name} has {shape[place]} in dimension {place}{failure.within}.",
        f"It is {shape}.",
        f"{count} of {shape[place]}",
        ((name, str(shape)),),
        (Fix("As many as it has:", source_code.rewritten(user, nodes["k"], least)),),
    )


_I, _L = (IndexError,), r"\[([\d, ]*)\]"
RULES = (
    Rule("index", _I, rf"The shape of the mask {_L} at index (\d+) does not match the shape of the indexed tensor {_L}", _mask),
    Rule("index", _I, r"tensors used as indices must be long, int, byte or bool tensors", _kind),
    Rule("index", (RuntimeError,), r"^selected index k out of range", _best),
    Rule("index", _I, r"too many indices for tensor of dimension (\d+)", _many),
)
