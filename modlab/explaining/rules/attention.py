"""Attention: masks of another shape or kind than the scores, and sources and targets that do not fit."""

from __future__ import annotations

import ast
import re
from typing import Any

from torch import Tensor

from modlab.explaining import operands
from modlab.explaining.failure import Cause, Failure, Rule, described, shape_of, shown, tuple_of
from modlab.inspection import stores
from modlab.records.explanation import Fix

_PADDING = "(batch, length of the source): True where there is padding"


def _mask(failure: Failure, match: re.Match[str]) -> Cause:
    given, expected = tuple_of(match[2]), tuple_of(match[3])
    square = len(given) == len(expected) == 2 and given[0] == given[1] and expected[0] == expected[1]
    fixes = [Fix("A mask that fits and hides nothing:", f"torch.zeros({', '.join(map(str, expected))}, dtype=torch.bool)")]
    if square:
        fixes.insert(0, Fix("If it hides later positions:", f"nn.Transformer.generate_square_subsequent_mask({expected[0]})"))
    if len(given) == 2 and given == _of_padding(failure):
        fixes.insert(0, Fix("If it says which tokens are padding, use a different argument: key_padding_mask."))
    if len(given) == 3 == len(expected) and given[1:] == expected[1:] and expected[0] % given[0] == 0:
        code = f"attn_mask = attn_mask.repeat_interleave({expected[0] // given[0]}, 0)"
        fixes.insert(0, Fix(f"Each of the {given[0]} samples needs its mask once for each head:", code))
    layout = "(length of the target, length of the source)" if len(expected) == 2 else "(batch × heads, target, source)"
    return Cause(
        f"{failure.subject or 'attention'} got an attn_mask of {given}, but needs {expected}.",
        f"It is {layout}.",
        f"mask {shown(given)} ≠ {shown(expected)}",
        (("attn_mask", str(given)), ("expected", str(expected))),
        tuple(fixes),
    )


def _of_padding(failure: Failure) -> tuple[int, int] | None:
    """The shape that a mask of padding has: the batch, and the length of the source."""
    call = failure.failing
    shape = shape_of(call.args[1] if call.args and len(call.args) > 1 else call.kwargs.get("key")) if call is not None else None
    if call is None or shape is None or len(shape) != 3:
        return None
    return shape[:2] if stores.contents(call.module).get("batch_first") is True else (shape[1], shape[0])


def _padding(failure: Failure, match: re.Match[str]) -> Cause:
    place, expected, given = (int(match[i]) for i in (1, 2, 3))
    shape = shape_of(_local(failure, "key_padding_mask")) or ()
    fixes = []
    read = _of_padding(failure)
    if read is not None and shape == read[::-1] and stores.contents(failure.module).get("batch_first") is not True:  # type: ignore[arg-type]
        said = "The tokens are read as (length, batch, features). If their batch comes first, tell the layers:"
        fixes.append(Fix(said, f"nn.{_outer(failure)}(..., batch_first=True)"))
    elif len(shape) == 2 and shape[1 - place] == expected:
        fixes.append(Fix("The batch comes first in it, whatever batch_first says:", _turned(failure, shape)))
    return Cause(
        f"{failure.subject or 'attention'} got a key_padding_mask with {given} in dimension {place}, but needs {expected}.",
        f"{f'It is {shape}; it' if shape else 'It'} should be {_PADDING}.",
        f"mask: {given} ≠ {expected}",
        (("key_padding_mask", str(shape)), (f"expected in dimension {place}", str(expected))),
        tuple(fixes),
    )


def _turned(failure: Failure, shape: tuple[int, ...]) -> str:
    """The line that turns the mask, by the name that the user has for it where the model is called."""
    call, caller = failure.call_expression(), failure.caller
    nodes = [*call.args[1:], *(word.value for word in call.keywords)] if call is not None else []
    found = {
        node.id for node in nodes if isinstance(node, ast.Name) and caller is not None and shape_of(operands.follow(node, caller)) == shape
    }
    name = found.pop() if len(found) == 1 else "key_padding_mask"
    return f"{name} = {name}.T"


def _outer(failure: Failure) -> str:
    """The layer that has the option: the attention, or the block of torch's around it."""
    above = failure.calls[-2].type if len(failure.calls) > 1 else ""
    return above if above in ("TransformerEncoderLayer", "TransformerDecoderLayer") else "MultiheadAttention"


def _causal(failure: Failure, _: re.Match[str]) -> Cause | None:
    length = _of_padding(failure)
    if length is None or failure.failing is None:
        return None
    return Cause(
        f"{failure.subject} got is_causal=True and no attn_mask.",
        "is_causal describes the mask; it does not create one.",
        "no attn_mask",
        (),
        (Fix("Pass the mask as well:", f"attn_mask = nn.Transformer.generate_square_subsequent_mask({length[1]})"),),
    )


def _local(failure: Failure, name: str) -> Any:
    found = failure.local(name)
    return found if issubclass(type(found), Tensor) else None


def _kind(failure: Failure, match: re.Match[str]) -> Cause:
    name = match[1]
    mask = _local(failure, name)
    kind = str(mask.dtype).removeprefix("torch.") if mask is not None else "whole numbers"
    return Cause(
        f"{failure.subject or 'attention'} got a {name} of {kind}, but takes bool or floating-point ones.",
        "In a bool mask, True hides a position; a floating-point mask is added to the scores.",
        f"{name}: {kind}",
        ((name, kind),),
        (
            Fix("If 1 marks what to hide:", f"{name} = {name}.bool()"),
            Fix("If 1 marks what to show:", f"{name} = {name} == 0"),
        ),
    )


def _batches(failure: Failure, _: re.Match[str]) -> Cause | None:
    source, target = shape_of(_local(failure, "src")), shape_of(_local(failure, "tgt"))
    if source is None or target is None:
        return None
    return Cause(
        f"{failure.subject} got a source of {source} and a target of {target}: their batches differ.",
        "Without batch_first=True the batch is dimension 1.",
        "batches differ",
        (("src", str(source)), ("tgt", str(target))),
        (Fix("If the batch comes first in both:", "nn.Transformer(..., batch_first=True)"),) if source[0] == target[0] else (),
    )


def _width(failure: Failure, _: re.Match[str]) -> Cause | None:
    width = getattr(failure.module, "d_model", None)
    pairs = [(name, shape) for name in ("src", "tgt") if (shape := shape_of(_local(failure, name)))]
    odd = [(name, shape) for name, shape in pairs if shape[-1] != width]
    if type(width) is not int or not odd:
        return None
    return Cause(
        f"{failure.subject} is {width} wide (d_model), and {odd[0][0]} has {odd[0][1][-1]} numbers per token.",
        f"{odd[0][0]} is {odd[0][1]}.",
        f"{odd[0][1][-1]} ≠ d_model {width}",
        tuple((name, described(_local(failure, name))) for name, _ in pairs),
        (Fix("Make it that wide, by an embedding or a projection before it:", f"nn.Linear({odd[0][1][-1]}, {width})"),),
    )


def _batch_of_each(failure: Failure, _: re.Match[str]) -> Cause | None:
    """Query, key and value of a MultiheadAttention of different batches: torch fails in the middle, over a view of its own."""
    call = failure.failing
    if call is None or call.type != "MultiheadAttention" or call.args is None:
        return None
    given = dict(zip(("query", "key", "value"), call.args, strict=False)) | dict(call.kwargs)
    shapes = {name: shape for name in ("query", "key", "value") if len(shape := shape_of(given.get(name)) or ()) == 3}
    first = stores.contents(call.module).get("batch_first") is True
    batches = {name: shape[0 if first else 1] for name, shape in shapes.items()}
    odd = next((name for name in ("key", "value") if name in batches and batches[name] != batches.get("query")), None)
    if odd is None or "query" not in batches:
        return None
    layout = "(batch, length, numbers)" if first else "(length, batch, numbers), because it was made without batch_first=True"
    return Cause(
        f"{failure.subject} got a query with a batch of {batches['query']} and a {odd} with one of {batches[odd]}.",
        f"It reads {layout}.",
        f"batch {batches['query']} ≠ {batches[odd]}",
        tuple((name, str(shape)) for name, shape in shapes.items()),
        (Fix("All three need the batch of the query; their lengths may differ."),),
    )


_R, _A = (RuntimeError,), (AssertionError,)
RULES = (
    Rule("attention", _R, r"The shape of the (2D|3D) attn_mask is torch\.Size\(\[([\d, ]+)\]\), but should be \(([\d, ]+)\)", _mask),
    Rule("attention", _R, r"^Need attn_mask if specifying the is_causal hint", _causal),
    Rule("attention", _A, r"Expected key_padded_mask\.shape\[(\d)\] to be (\d+), but got (\d+)", _padding),
    Rule("attention", (AssertionError, RuntimeError), r"only bool and floating types of (\w+) are supported", _kind),
    Rule("attention", _R, r"shape '\[[-\d, ]*\]' is invalid for input of size \d+", _batch_of_each),
    Rule("attention", _R, r"the batch number of src and tgt must be equal", _batches),
    Rule("attention", _R, r"the feature number of src and tgt must be equal to d_model", _width),
)
