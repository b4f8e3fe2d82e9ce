"""Convolutions, pooling and padding: channels, numbers of dimensions, kernels larger than what they slide over."""

from __future__ import annotations

import ast
import re

import torch.nn.functional as F
from torch import nn

from modlab import format
from modlab.explaining import code_fixes, provenance
from modlab.explaining.failure import Cause, Failure, Rule, counted, shown, tuple_of
from modlab.inspection import stores
from modlab.records.explanation import Fix

_LAYOUTS = {1: "(batch, channels, length)", 2: "(batch, channels, height, width)", 3: "(batch, channels, depth, height, width)"}


def _channels(failure: Failure, match: re.Match[str]) -> Cause:
    weight, taken, expected, given = tuple_of(match[1]), tuple_of(match[2]), int(match[3]), int(match[4])
    subject = failure.subject or "The convolution"
    seen = next(iter(failure.taken), taken)  # torch puts a 1 in front of what it takes for unbatched
    unbatched = len(seen) == len(taken) - 1
    fixes: list[Fix] = []
    remarks: tuple[str, ...] = ()
    if taken[-1] == expected and len(taken) > 2 and taken[-1] not in taken[2:-1]:
        order = (0, len(taken) - 1, *range(1, len(taken) - 1))[0 if not unbatched else 1 :]
        order = order if not unbatched else tuple(place - 1 for place in order)
        fixes.append(
            Fix(
                f"If the channels are last: PyTorch expects them before {_SPACE.get(len(order), 'the others')}:",
                provenance.elsewhere(failure, "{}.permute" + f"{order}"),
            )
        )
    elif unbatched and expected == 1:
        fixes.append(Fix("If the first size is the batch, put the channel after it:", provenance.elsewhere(failure, "{}.unsqueeze(1)")))
    elif unbatched and len(seen) > 1 and seen[1] == expected:
        kind = re.sub(r"(\d)d", lambda m: f"{int(m[1]) - 1}d", failure.failing.type) if failure.failing is not None else ""
        fixes.append(
            Fix(
                f"If the first size is the batch, one dimension is missing after the channels{_flatter(kind)}:",
                provenance.elsewhere(failure, "{}.unsqueeze(2)"),
            )
        )
    elif given == 1 and expected == 3:
        fixes.append(Fix("A grey image can be repeated for three channels:", f"x = x.expand(-1, {expected}, -1, -1)"))
    if unbatched:
        remarks = (f"With {len(seen)} dimensions the input counts as unbatched: its first size, {given}, is taken as channels.",)
    module = failure.module
    grouped = module is None or stores.contents(module).get("groups") != 1
    if (
        failure.failing is not None
        and failure.failing.path is not None
        and not grouped
        and not (fixes and (_certain(seen, expected) or (unbatched and expected == 1)))
    ):
        owner, line = provenance.made_anew(failure, code_fixes.constructor(failure.failing.module, expected, given))
        if provenance.ran_before(failure):
            fixes.append(Fix(provenance.ran_before(failure)))
        elif line:
            end = f", in {owner}" if owner else ""
            fixes.append(
                Fix(
                    f"{'Or let' if fixes else 'Let'} {failure.failing.label} take {counted(given, 'channel')}{end}:",
                    line,
                )
            )
    return Cause(
        f"{subject} got {counted(given, 'channel')}, but has weights for {expected}.",
        f"{failure.stopped}input {seen}, weight {weight}.",
        f"channels {given} ≠ {expected}",
        (("input", str(seen)), ("weight", str(weight)), ("channels given", str(given)), ("channels expected", str(expected))),
        tuple(fixes),
        remarks,
    )


_COLOURS = (3, 4)  # few enough not to be a length by chance
_SPACE = {3: "the length", 4: "height and width", 5: "depth, height and width"}


def _certain(seen: tuple[int, ...], expected: int) -> bool:
    """Whether the order of the sizes is wrong, and the layer right: the colours stand last."""
    return expected in _COLOURS and seen[-1] == expected


def _flatter(kind: str) -> str:
    return f" (or use a {kind})" if hasattr(nn, kind) else ""


def _dimensions(failure: Failure, match: re.Match[str]) -> Cause:
    plain, batched, function, taken = int(match[1]), int(match[2]), match[3], tuple_of(match[4])
    layout = _LAYOUTS.get(plain - 1, "")
    fixes = []
    channels = stores.contents(failure.module).get("in_channels") if failure.module is not None else None
    channels = channels or None  # a lazy layer has 0 until it is called
    if taken and taken[-1] == channels and channels != 1 and len(taken) <= 2 and plain > 2:
        more = ", ".join(["None"] * (plain - 1))
        fixes.append(
            Fix(
                f"{channels} channels of one number each: add {_SPACE.get(batched, 'the others')} of 1 after them:",
                provenance.elsewhere(failure, "{}[..., " + f"{more}]"),
            )
        )
    elif len(taken) == plain - 1 and channels not in (None, 1):
        fixes.append(Fix(f"It needs all of {layout}, here with {channels} channels."))
    elif len(taken) == plain - 1:
        fixes.append(Fix("One sample without channel and batch: put both in front:", provenance.elsewhere(failure, "{}[None, None]")))
    elif len(taken) > batched:
        wider = _wider(function, len(taken) - batched)
        other = f", or use the layer for more dimensions ({wider})" if hasattr(F, wider) else ""
        fixes.append(Fix(f"It has {format.plural(len(taken) - batched, 'dimension')} too many: join or index some{other}."))
    elif len(taken) < plain - 1:
        fixes.append(Fix(f"It needs all of {layout}; view folds a flat input back:", "x = x.view(batch, channels, height, width)"))
    return Cause(
        f"{failure.subject or function} got {format.plural(len(taken), 'dimension')}, but needs {batched}: {layout}.",
        f"{failure.stopped}input {taken}; only the batch may be left out.",
        f"{format.plural(len(taken), 'dimension')} ≠ {batched}",
        (("input", str(taken)), ("expected", f"{batched} dimensions, or {plain} without the batch")),
        tuple(fixes),
    )


def _wider(function: str, more: int) -> str:
    return re.sub(r"(\d)d", lambda m: f"{int(m[1]) + more}d", function)


def _kernel(failure: Failure, match: re.Match[str]) -> Cause:
    size, kernel = tuple_of(match[1]), tuple_of(match[2])
    return Cause(
        f"{failure.subject or 'The convolution'} slides a kernel of {shown(kernel)} over {shown(size)}: nothing is left.",
        f"{failure.stopped}input {next(iter(failure.taken), size)}, including padding.",
        f"kernel {shown(kernel)} > {shown(size)}",
        (("input with padding", shown(size)), ("kernel", shown(kernel))),
        (
            Fix("Start with a larger input, or use less stride and pooling in earlier layers."),
            Fix("Or pad here:", f"padding={max(k // 2 for k in kernel)}"),
        ),
    )


def _is_of_lengths(failure: Failure) -> bool:
    call = failure.user.expression() if failure.user is not None else None
    written = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    return (failure.failing.type if failure.failing is not None else written).lower().endswith("pool1d")


def _too_small(failure: Failure, match: re.Match[str]) -> Cause:
    size, left = tuple_of(match[1]), tuple_of(match[2])
    held = stores.contents(failure.module).get("kernel_size") if failure.module is not None else None
    length = _is_of_lengths(failure)  # torch pools them as pictures of one row
    size, left = (size[:1] + size[2:], left[:1] + left[2:]) if length else (size, left)
    kernel = held if type(held) is tuple else (held,) * (len(size) - 1) if type(held) is int else ()
    window = f" with windows of {shown(kernel)}" if kernel else ""
    return Cause(
        f"{failure.subject or 'The pooling'} got {shown(size[1:])}{window}: nothing is left.",
        f"{failure.stopped}its output would be {shown(left)}.",
        f"{shown(size[1:])} → {shown(left[1:])}",
        (("input, without the batch", shown(size)), ("output", shown(left))),
        (
            Fix(
                "Pool once less, or start with a larger input; this gives one number per channel for any size:",
                f"nn.AdaptiveAvgPool{len(size) - 1}d(1)",
            ),
        ),
    )


def _pool_dimensions(failure: Failure, match: re.Match[str]) -> Cause | None:
    if not failure.taken:
        return None
    taken = failure.taken[0]
    if 0 in taken:
        return Cause(f"{failure.subject} got an empty input.", f"{failure.stopped}input {taken}.", "no elements", (("input", str(taken)),))
    return Cause(
        f"{failure.subject} got {format.plural(len(taken), 'dimension')}, but needs {match[2]}: (batch, channels, …).",
        f"{failure.stopped}input {taken}; only the batch may be left out.",
        format.plural(len(taken), "dimension"),
        (("input", str(taken)), ("expected", f"{match[1]} or {match[2]} dimensions")),
        (
            Fix(
                "Add the missing dimension in front:",
                provenance.elsewhere(failure, "{}[None, None]" if len(taken) == int(match[1]) - 1 else "{}[None]"),
            ),
        ),
    )


def _padding(failure: Failure, match: re.Match[str]) -> Cause:
    padding, taken = tuple_of(match[1]), tuple_of(match[3])
    return Cause(
        f"{failure.subject or 'The padding'} pads {max(padding)} on each side, but got only {taken[int(match[2])]}.",
        f"{failure.stopped}input {taken}: reflection cannot reach beyond it.",
        f"padding {max(padding)} ≥ {taken[int(match[2])]}",
        (("padding", str(padding)), ("input", str(taken))),
        (_padded_otherwise(failure, max(padding)),),
    )


def _padded_otherwise(failure: Failure, most: int) -> Fix:
    """With zeros, where a layer pads; a function may need what is reflected."""
    kind = failure.failing.type if failure.failing is not None else ""
    layer = re.fullmatch(r"ReflectionPad(\d)d", kind)
    if layer is not None:
        return Fix("Pad less, or with zeros:", f"nn.ZeroPad{layer[1]}d({most})")
    return Fix("Pad less, or with zeros:", "padding_mode='zeros'") if "Conv" in kind else Fix("Pad less, or give it a longer input.")


_R = (RuntimeError,)
RULES = (
    Rule(
        "convolution",
        _R,
        r"Given \w+=\d+, weight of size \[([\d, ]+)\], expected input\[([\d, ]+)\] to have (\d+) channels, but got (\d+) channels",
        _channels,
    ),
    Rule(
        "convolution",
        _R,
        r"Expected (\d)D \(unbatched\) or (\d)D \(batched\) input to (\w+), but got input of size: (?:torch\.Size)?\(?\[([\d, ]*)\]",
        _dimensions,
    ),
    Rule("convolution", _R, r"Calculated padded input size per channel: \(([\dx ]+)\)\. Kernel size: \(([\dx ]+)\)", _kernel),
    Rule(
        "convolution",
        _R,
        r"Given input size: \(([\dx ]+)\)\. Calculated output size: \(([\dx -]+)\)\. Output size is too small",
        _too_small,
    ),
    Rule("convolution", _R, r"non-empty (\d)D or (\d)D \(batch mode\) tensor expected for input", _pool_dimensions),
    Rule(
        "convolution",
        _R,
        r"Padding size should be less than the corresponding input dimension, but got: padding \(([\d, ]+)\) at dimension (\d) of input "
        r"\[([\d, ]+)\]",
        _padding,
    ),
)
