"""Losses over places and over time: targets of another height or width, lengths that do not fit; and keys of another width."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from modlab.explaining import code_fixes, provenance
from modlab.explaining.failure import Cause, Failure, Rule, counted, shape_of, shown, tuple_of
from modlab.records.explanation import Fix


def _named(failure: Failure, local: str) -> str:
    """What the user calls something that torch's own function has under a name."""
    thing, user = failure.local(local), failure.user
    found = [name for name, one in list(user.names.items()) if one is thing] if user is not None and thing is not None else []
    return found[0] if found else local


def _places(failure: Failure, match: re.Match[str]) -> Cause:
    given, target = tuple_of(match[1]), tuple_of(match[2])
    names = _named(failure, "input"), _named(failure, "target")
    mode = {4: "bilinear", 3: "linear", 5: "trilinear"}.get(len(given), "nearest")
    return Cause(
        f"The scores are for {shown(given[2:])} places, and the target has {shown(target[1:])}.",
        f"The input is {given}, the target {target}; the target needs (batch, {', '.join(map(str, given[2:]))}).",
        f"{shown(given[2:])} ≠ {shown(target[1:])}",
        ((names[0], str(given)), (names[1], str(target))),
        (Fix("Bring the scores to the size of the target:", f"{names[0]} = F.interpolate({names[0]}, size={target[1:]}, mode={mode!r})"),)
        if given[0] == target[0]
        else (),
    )


def _time(failure: Failure, match: re.Match[str]) -> Cause | None:
    shape = shape_of(failure.local("log_probs"))
    if shape is None or len(shape) < 2:
        return None
    most, got = int(match[1]), int(match[2])
    return Cause(
        f"input_lengths has {got}, but log_probs has {counted(most, 'step')}.",
        f"log_probs is {shape}, read as (time, batch, classes).",
        f"length {got} > {most}",
        (("log_probs", str(shape)),),
        _turned(failure) if shape[1] >= got else (Fix("The lengths are those of log_probs, after all strides and pools of the model."),),
    )


def _turned(failure: Failure) -> tuple[Fix, ...]:
    name = _named(failure, "log_probs")
    return (Fix("If the batch comes first in it, put time first:", f"{name} = {name}.transpose(0, 1)"),)


def _targets(failure: Failure, match: re.Match[str]) -> Cause:
    wanted, got = int(match[1]), int(match[2])
    return Cause(
        f"target_lengths has {wanted}, but targets has {counted(got, 'column')}.",
        f"targets is {shape_of(failure.local('targets'))}.",
        f"length {wanted} > {got}",
        (("targets", str(shape_of(failure.local("targets")))),),
        (Fix("Each length is the number of labels of that sample, without padding."),),
    )


def _batch(failure: Failure, match: re.Match[str]) -> Cause | None:
    name = f"{match[1]}_lengths"
    shape, lengths = shape_of(failure.local("log_probs")), _length(failure.local(name))
    if shape is None or len(shape) < 2 or lengths is None:
        return None
    return Cause(
        f"{name} has {counted(lengths, 'number')} for a batch of {shape[1]}.",
        f"log_probs is {shape}, read as (time, batch, classes).",
        f"{lengths} ≠ {shape[1]}",
        (("log_probs", str(shape)), (name, str(lengths))),
        _turned(failure) if shape[0] == lengths else (Fix("It needs one for each sample."),),
    )


def _length(thing: Any) -> int | None:
    shape = shape_of(thing) if issubclass(type(thing), Tensor) else None
    return shape[0] if shape else len(thing) if type(thing) in (list, tuple) else None


def _keys(failure: Failure, match: re.Match[str]) -> Cause | None:
    call, which = failure.failing, match[1]
    thing = failure.local(which)
    shape = shape_of(thing)
    weight = tuple_of(match[3])
    if call is None or shape is None or len(weight) != 2:
        return None
    name = "kdim" if which == "key" else "vdim"
    made = code_fixes.constructor(call.module, weight[0], weight[0])
    made = re.sub(rf"{name}=\d+", f"{name}={shape[-1]}", made) if name in made else ""
    owner, line = provenance.made_anew(failure, made)
    return Cause(
        f"{call.label} got {which}s of {counted(shape[-1], 'number')}, but was made for {weight[1]} ({name}={weight[1]}).",
        f"{failure.stopped}{which} {shape}.",
        f"{shape[-1]} ≠ {name} {weight[1]}",
        ((which, str(shape)), (name, str(weight[1]))),
        (Fix(f"Let it take {shape[-1]}{f', in {owner}' if owner else ''}:", line),) if line else (),
    )


def _unlike(failure: Failure, match: re.Match[str]) -> Cause:
    key, value = tuple_of(match[1]), tuple_of(match[2])
    return Cause(
        f"{failure.subject or 'attention'} got a key of {key} and a value of {value}: each key needs a value.",
        "",
        f"{shown(key)} ≠ {shown(value)}",
        (("key", str(key)), ("value", str(value))),
        (Fix("Both come from the same tokens; only their widths may differ (kdim, vdim)."),),
    )


_R, _A = (RuntimeError,), (AssertionError,)
_S = r"torch\.Size\(\[([\d, ]*)\]\)"
RULES = (
    Rule("loss", _R, r"^size mismatch \(got input: \[([\d, ]+)\] ?, target: \[([\d, ]+)\]", _places),
    Rule("loss", _R, r"Expected input_lengths to have value at most (\d+), but got value (\d+)", _time),
    Rule("loss", _R, r"Expected tensor to have size at least (\d+) at dimension 1, but got size (\d+) for argument #2 'targets'", _targets),
    Rule("loss", _R, r"^(input|target)_lengths must be of size batch_size", _batch),
    Rule("attention", _A, rf"expecting (key|value) weights shape of \(([\d, ]+)\), but got {_S}", _keys),
    Rule("attention", _A, rf"key shape {_S} does not match value shape {_S}", _unlike),
)
