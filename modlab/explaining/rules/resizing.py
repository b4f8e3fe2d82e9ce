"""Upsampling by a mode for another number of dimensions, and bags of words without their beginnings."""

from __future__ import annotations

import ast
import re

from torch import nn

from modlab.explaining import code_fixes, provenance
from modlab.explaining.failure import Cause, Failure, Rule, shape_of
from modlab.inspection import stores
from modlab.records.explanation import Fix

_MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}
_LAYOUTS = {3: "(batch, channels, length)", 4: "(batch, channels, height, width)", 5: "(batch, channels, depth, height, width)"}
_COLOURS = (1, 3, 4)


def _mode(failure: Failure, match: re.Match[str]) -> Cause | None:
    given, mode, needed = int(match[1]), match[2], int(match[3])
    shape = shape_of(failure.local("input"))
    if shape is None or len(shape) != given or needed not in _LAYOUTS:
        return None
    fixes = []
    if given == needed - 1:
        line = (
            provenance.outermost(failure, "{}.unsqueeze(0)")
            if failure.root is failure.failing and failure.root is not None
            else _batched(failure)
        )
        fixes.append(Fix("If the batch is missing, put it in front:", line))
    if given in _MODES:
        fixes.append(Fix(f"For {_LAYOUTS[given]} the mode is {_MODES[given]!r}:", _with_mode(failure, _MODES[given], given)))
    if given == needed - 1 and shape[0] not in _COLOURS:
        fixes.reverse()
    name = failure.subject or "interpolate"
    return Cause(
        f"{name} got {given} dimensions, but mode={mode!r} takes {needed}: {_LAYOUTS[needed]}.",
        f"{failure.stopped}input {shape}.",
        f"{given} dimensions ≠ {needed}",
        (("input", str(shape)), ("mode", mode)),
        tuple(fixes),
    )


def _batched(failure: Failure) -> str:
    """The line of the user's that calls it, with a batch in front."""
    call = failure.user.expression() if failure.user is not None else None
    if not isinstance(call, ast.Call) or not call.args or isinstance(call.args[0], ast.Starred):
        return ""
    first = call.args[0]
    text = ast.unparse(first)
    text = text if isinstance(first, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"
    rest = [*map(ast.unparse, call.args[1:]), *(ast.unparse(word) for word in call.keywords)]
    return f"{ast.unparse(call.func)}({', '.join([f'{text}.unsqueeze(0)', *rest])})"


def _with_mode(failure: Failure, mode: str, given: int) -> str:
    call = failure.failing
    if call is not None and type(call.module) is nn.Upsample:
        held = stores.contents(call.module)
        said = []
        for name in ("size", "scale_factor"):
            value = held.get(name)
            if value is None:
                continue
            if type(value) is tuple and len(value) != given - 2:
                return ""
            said.append(f"{name}={value!r}")
        corners = [f"align_corners={held['align_corners']}"] if held.get("align_corners") is not None else []
        made = f"nn.Upsample({', '.join([*said, f'mode={mode!r}', *corners])})"
        return code_fixes.assignment(failure, call.path, made)[1] if call.path is not None else ""
    written = failure.user.expression() if failure.user is not None else None
    if not isinstance(written, ast.Call) or not ast.unparse(written.func).endswith("interpolate"):
        return ""
    word = next((one for one in written.keywords if one.arg == "mode"), None)
    if word is None or any(isinstance(one.value, (ast.Tuple, ast.List)) for one in written.keywords):
        return ""
    words = [f"mode={mode!r}" if one is word else ast.unparse(one) for one in written.keywords]
    return f"{ast.unparse(written.func)}({', '.join([*map(ast.unparse, written.args), *words])})"


def _offsets(failure: Failure, _: re.Match[str]) -> Cause | None:
    call = failure.failing
    if call is None or call.type != "EmbeddingBag" or not failure.taken or len(failure.taken[0]) != 1:
        return None
    shape = failure.taken[0]
    return Cause(
        f"{failure.subject} got one row of indices, but not where its bags begin (offsets).",
        f"{failure.stopped}input {shape}.",
        "no offsets",
        (("input", str(shape)), ("expected", "(batch, indices), or indices and offsets")),
        (
            Fix("If all of them are one bag, put the batch in front:", provenance.changed(failure, "{}.unsqueeze(0)")),
            Fix("For bags of unequal length, say where each begins: offsets=torch.tensor([0, ...])"),
        ),
    )


def _no_offsets(failure: Failure, _: re.Match[str]) -> Cause | None:
    call = failure.failing
    if call is None or call.type != "EmbeddingBag" or not failure.taken:
        return None
    return Cause(
        f"{failure.subject} got a table of indices and also offsets.",
        f"{failure.stopped}input {failure.taken[0]}; each row of it is a bag.",
        "offsets with 2 dimensions",
        (("input", str(failure.taken[0])),),
        (Fix("Leave out the offsets, or give one row of indices for them to point into."),),
    )


RULES = (
    Rule("convolution", (NotImplementedError,), r"Got (\d)D input, but (\w+) mode needs (\d)D input", _mode),
    Rule("embedding", (ValueError,), r"^offsets has to be a 1D Tensor but got None", _offsets),
    Rule("embedding", (ValueError,), r"^if input is 2D, then offsets has to be None", _no_offsets),
)
