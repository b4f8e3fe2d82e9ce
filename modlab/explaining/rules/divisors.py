"""Divisors: what cannot be shared evenly, such as channels by the groups of a convolution, or a dimension that is halved."""

from __future__ import annotations

import ast
import re

from modlab.explaining import provenance, source_code
from modlab.explaining.failure import Cause, Failure, Rule, counted
from modlab.records.explanation import Fix


def _groups(failure: Failure, match: re.Match[str]) -> Cause | None:
    names = ("in_channels", "out_channels", "groups")
    sizes = [failure.local(name) for name in names]
    if not all(type(size) is int and size > 0 for size in sizes):
        return None
    taken, given, groups = sizes
    kind = failure.failing.type if failure.failing is not None else "a convolution"
    wrong = taken if match[1] == "in" else given
    fitting = max(n for n in range(1, groups + 1) if taken % n == 0 == given % n)
    return Cause(
        f"{kind} cannot share {counted(wrong, match[1] + '_channel')} evenly among {groups} groups.",
        "Each group gets a share of both the input and the output channels.",
        f"{wrong} / {groups}",
        tuple((name, str(size)) for name, size in zip(names, sizes, strict=True)),
        (Fix("A number of groups that divides both:", _made(failure, fitting) or f"nn.{kind}({taken}, {given}, ..., groups={fitting})"),)
        if kind[:1] == "C"
        else (),
    )


def _made(failure: Failure, groups: int) -> str:
    """The call with another number of groups, as it is written; nothing where that does not stand in it."""
    user = failure.user
    call = user.expression() if user is not None else None
    words = call.keywords if isinstance(call, ast.Call) else []
    if user is None or not isinstance(call, ast.Call) or not any(word.arg == "groups" for word in words):
        return ""
    words = [ast.keyword("groups", ast.Constant(groups)) if word.arg == "groups" else word for word in words]
    return source_code.rewritten(user, call, ast.Call(call.func, call.args, words))


def _shuffle(failure: Failure, match: re.Match[str]) -> Cause:
    channels, places = int(match[1]), int(match[2])
    factor = round(places**0.5)
    return Cause(
        f"{failure.subject or 'pixel_shuffle'} makes one channel of every {places}; {channels} channels do not divide by {places}.",
        f"{failure.stopped}input {failure.taken[0]}." if failure.taken else "",
        f"{channels} / {places}",
        (("channels", str(channels)), ("upscale_factor", str(factor))),
        (
            Fix(
                f"For {counted(channels, 'channel')} after it, the layer before must give {channels * places}:",
                f"nn.Conv2d(..., {channels * places}, ...)",
            ),
        ),
    )


def _channel_shuffle(failure: Failure, match: re.Match[str]) -> Cause:
    channels, groups = int(match[1]), int(match[2])
    fitting = max(n for n in range(1, groups + 1) if channels % n == 0)
    owner, line = provenance.made_anew(failure, f"nn.ChannelShuffle({fitting})") if _is_shuffle(failure) and fitting > 1 else ("", "")
    return Cause(
        f"{failure.subject or 'channel_shuffle'} cannot share {counted(channels, 'channel')} evenly among {groups} groups.",
        f"{failure.stopped}input {failure.taken[0]}." if failure.taken else "",
        f"{channels} / {groups}",
        (("channels", str(channels)), ("groups", str(groups))),
        (Fix(f"Let it have {fitting} groups, which divide them{f', in {owner}' if owner else ''}:", line),) if line else (),
    )


def _is_shuffle(failure: Failure) -> bool:
    return failure.failing is not None and failure.failing.type == "ChannelShuffle"


def _unshuffle(failure: Failure, match: re.Match[str]) -> Cause:
    what, size, factor = match[1], int(match[2]), int(match[3])
    missing = -size % factor
    pad = (0, 0, 0, missing) if what == "height" else (0, missing)
    return Cause(
        f"{failure.subject or 'pixel_unshuffle'} got a {what} of {size}, which {factor} does not divide.",
        f"{failure.stopped}input {failure.taken[0]}." if failure.taken else "",
        f"{size} / {factor}",
        ((what, str(size)), ("downscale_factor", str(factor))),
        (Fix("Cut it, or pad it:", f"x = F.pad(x, {pad})"),),
    )


def _halved(failure: Failure, match: re.Match[str]) -> Cause:
    dimension, size = int(match[1]), int(match[2])
    return Cause(
        f"{failure.subject or 'glu'} halves dimension {dimension}, but that has size {size}.",
        f"{failure.stopped}input {failure.taken[0]}." if failure.taken else "",
        f"{size} / 2",
        (("given", str(size)), ("expected", "an even number")),
        (Fix("Let the layer before give an even number:", f"nn.Linear(..., {size + 1})"),),
    )


RULES = (
    Rule(
        "shuffle",
        (RuntimeError,),
        r"^Number of channels must be divisible by groups\. Got (\d+) channels and (\d+) groups",
        _channel_shuffle,
    ),
    Rule("halving", (RuntimeError,), r"Halving dimension must be even, but dimension (\d+) is size (\d+)", _halved),
    Rule("convolution", (ValueError,), r"^(in|out)_channels must be divisible by groups", _groups),
    Rule(
        "shuffle",
        (RuntimeError,),
        r"divisible by the square of upscale_factor, but input\.size\(-3\)=(\d+) is not divisible by (\d+)",
        _shuffle,
    ),
    Rule(
        "shuffle",
        (RuntimeError,),
        r"expects (height|width) to be divisible by downscale_factor, but input\.size\(-\d\)=(\d+) is not "
        r"divisible by (\d+)",
        _unshuffle,
    ),
)
