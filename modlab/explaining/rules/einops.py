"""Patterns of einops: its errors say what does not fit, in the last of their lines; said with the tensor's shape, at the user's line."""

from __future__ import annotations

import ast
import copy
import re

from modlab.explaining import operands, source_code, written
from modlab.explaining.failure import Cause, Failure, Rule, tuple_of
from modlab.explaining.rules.heads import fitting
from modlab.records.explanation import Fix

_FUNCTIONS = ("rearrange", "reduce", "repeat", "einsum", "parse_shape", "pack", "unpack")


def _pattern(failure: Failure, match: re.Match[str]) -> Cause | None:
    lines = [line.strip() for line in failure.message.strip().splitlines()]
    pattern = re.search(r'pattern "([^"]*)"', failure.message)
    shape = re.search(r"Input tensor shape: (?:torch\.Size\()?[\[(]([\d, ]*)[\])]", failure.message)
    message = lines[-1] if lines else ""
    if pattern is None or not message:
        return None
    sizes = tuple_of(shape[1]) if shape is not None else ()
    name = _called(failure)
    given = f" for {sizes}" if shape is not None else ""
    facts = (("pattern", pattern[1]), *((("input", str(sizes)),) if shape is not None else ()))
    return Cause(
        f"{name}{given}: {message if message.endswith('.') else message + '.'}",
        f'The pattern is "{pattern[1]}"{failure.within}.',
        "",
        facts,
        tuple(_fixes(failure, message, pattern[1], sizes)),
    )


def _called(failure: Failure) -> str:
    call = written.expression(failure.own)
    name = written.name_of(call.func) if isinstance(call, ast.Call) else ""
    layer = failure.failing
    if layer is not None and layer.type in ("Rearrange", "Reduce", "EinMix"):
        return layer.label
    return name if name in _FUNCTIONS else "einops"


def _fixes(failure: Failure, message: str, pattern: str, sizes: tuple[int, ...]) -> list[Fix]:
    frame = failure.own
    call = written.expression(frame)
    if frame is None or not isinstance(call, ast.Call) or written.name_of(call.func) not in _FUNCTIONS:
        call = None
    divided = re.search(r"can't divide axis of length (\d+) in chunks of (\d+)", message)
    if divided is not None:
        return _dividing(failure, call, int(divided[1]), int(divided[2]))
    unknown = re.search(r"(?:Could not infer sizes for|Specify sizes for new axes in repeat:?) \{(.*)\}", message)
    if unknown is not None:
        names = sorted(re.findall(r"'(\w+)'", unknown[1]))
        axes = [axis for axis in names if "repeat" in message] or names[:-1]  # of two that are one size together, one is enough
        are = "is" if len(axes) == 1 else "are"
        return [Fix(f"Say how large {' and '.join(axes)} {are}, after the pattern: {', '.join(f'{axis}=…' for axis in axes)}")]
    unused = re.search(r"Axis (\w+) is not used in transform", message)
    if unused is not None and call is not None and frame is not None:
        return [
            Fix(
                f"Leave out {unused[1]}, or name it in the pattern:",
                source_code.rewritten(frame, call, written.with_word(call, unused[1], None)),
            )
        ]
    dims = re.search(r"expected (\d+) dims\. Received (\d+)-dim", message)
    if dims is not None and int(dims[1]) == int(dims[2]) + 1 and call is not None and frame is not None and call.args:
        more = ast.parse(f"({ast.unparse(call.args[0])}).unsqueeze(0)", mode="eval").body
        return [
            Fix(
                "Name the axes that it has. If its batch is missing:",
                source_code.rewritten(frame, call, ast.Call(call.func, [more, *call.args[1:]], call.keywords)),
            )
        ]
    left = pattern.partition("->")[0]
    if dims is None and "Identifiers" not in message and "identifiers" not in message:
        return []  # its own line says it
    return [Fix(f"The left side ({left.strip()}) names each of the input's {len(sizes)} axes, the right side says where they go.")]


def _dividing(failure: Failure, call: ast.Call | None, size: int, chunk: int) -> list[Fix]:
    low, high = size // chunk * chunk, -(-size // chunk) * chunk
    other = Fix(f"Or a size that {chunk} divides: {f'{low} or ' if low else ''}{high}.")
    word = (
        next(
            (one for one in call.keywords if one.arg and failure.own is not None and operands.follow(one.value, failure.own) == chunk), None
        )
        if call is not None
        else None
    )
    code = ""
    if call is not None and word is not None and word.arg and failure.own is not None:
        changed = copy.copy(call)
        for one in call.keywords:  # of a picture both sides have the same patches
            if one.arg and operands.follow(one.value, failure.own) == chunk:
                changed = written.with_word(changed, one.arg, ast.Constant(fitting(size, chunk)))
        code = source_code.rewritten(failure.own, call, changed)
    return [Fix(f"{chunk} does not divide {size}; a number that does:", code), other]


def _arrow(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``rearrange(x, "b c")``: a pattern without an arrow ends in an assignment of einops'."""
    inner = failure.inner
    pattern = inner.names.get("pattern") if inner is not None else None
    if inner is None or not inner.code.co_filename.replace("\\", "/").endswith("einops/einops.py") or type(pattern) is not str:
        return None
    arrows = pattern.count("->")
    if arrows == 1:
        return None
    return Cause(
        f"The pattern {pattern!r} of {_called(failure)} has {arrows or 'no'} arrow{'s' if arrows > 1 else ''}.",
        "On its left are the axes of the input, on its right those of the result.",
        "",
        (("pattern", pattern),),
        (Fix('Write both sides: "b c -> c b".'),),
    )


def _layer(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``Rearrange`` of another number of axes: its table of patterns has no entry for it."""
    call, inner = failure.failing, failure.inner
    if call is None or inner is None or "/einops/" not in inner.code.co_filename.replace("\\", "/"):
        return None
    pattern = vars(call.module).get("pattern")
    shape = failure.taken[0] if failure.taken else None
    if type(pattern) is not str or shape is None or failure.error.args != (len(shape),):
        return None
    left = re.sub(r"\([^)]*\)", "x", pattern.partition("->")[0]).split()
    return Cause(
        f"{call.label} got {len(shape)} dimensions, and its pattern names {len(left)}.",
        f'{failure.stopped}input {shape}, "{pattern}".',
        f"{len(shape)} ≠ {len(left)} axes",
        (("pattern", pattern), ("input", str(shape))),
        (Fix(f"The left side names each axis of the input, {len(shape)} of them."),),
    )


RULES = (
    Rule("pattern", (RuntimeError,), r"Error while processing .*pattern \"", _pattern),
    Rule("pattern", (ValueError,), r"values to unpack \(expected 2", _arrow),
    Rule("pattern", (KeyError,), r"", _layer),
)
