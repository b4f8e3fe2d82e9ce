"""Layers that normalise: channels, last sizes, groups, and batches of one."""

from __future__ import annotations

import re

from modlab import format
from modlab.explaining import code_fixes, provenance
from modlab.explaining.failure import Cause, Failure, Rule, counted, shape_of, shown, tuple_of
from modlab.inspection import stores
from modlab.records.explanation import Fix


def _channels(failure: Failure, match: re.Match[str]) -> Cause:
    given, expected = int(match["given"]), int(match["expected"])
    taken = failure.taken[0] if failure.taken else ()
    return Cause(
        f"{failure.subject or 'The normalisation'} got {counted(given, 'channel')}, but {_holds(failure)} {expected}.",
        f"{failure.stopped}input {taken}: channels are in dimension 1." if taken else "",
        f"channels {given} ≠ {expected}",
        (("input", str(taken)), ("channels given", str(given)), ("channels expected", str(expected))),
        _resized(failure, expected, given, "channel", taken),
    )


def _holds(failure: Failure) -> str:
    """What the layer has that is of its size."""
    held = stores.contents(failure.module) if failure.module is not None else {}
    if (held.get("_buffers") or {}).get("running_mean") is not None:
        return "keeps statistics for"
    return "has weights for" if (held.get("_parameters") or {}).get("weight") is not None else "is made for"


def _resized(failure: Failure, expected: int, given: int, word: str, taken: tuple[int, ...]) -> tuple[Fix, ...]:
    fixes = []
    if taken[2:].count(expected) == 1 and (len(taken) == 3 or taken[-1] == expected):
        place = taken.index(expected, 2)
        order = [i for i in range(len(taken)) if i != place]
        order.insert(1, place)
        fixes.append(
            Fix(
                f"If the {word}s are in dimension {place}, move them to dimension 1:",
                provenance.elsewhere(failure, "{}.permute(" + f"{', '.join(map(str, order))})"),
            )
        )
    call = failure.failing
    if call is not None and call.path is not None and not (fixes and len(taken) == 3):  # tokens: the layer is right, the order is not
        owner, line = provenance.made_anew(failure, code_fixes.constructor(call.module, expected, given))
        if line:
            end = f", in {owner}" if owner else ""
            fixes.append(Fix(f"{'Or let' if fixes else 'Let'} {call.label} take {counted(given, word)}{end}:", line))
        elif provenance.ran_before(failure):
            fixes.append(Fix(provenance.ran_before(failure)))
    return tuple(fixes)


def _dimensions(failure: Failure, match: re.Match[str]) -> Cause | None:
    if failure.module is None or not failure.taken:
        return None
    expected, given, taken = match[1].replace("D", ""), match[2], failure.taken[0]
    name = type(failure.module).__name__
    fitting = {2: "1d", 3: "1d", 4: "2d", 5: "3d"}.get(len(taken), "")
    other = re.sub(r"\dd$", fitting, name)
    channels = stores.contents(failure.module).get("num_features")
    fixes = []
    if fitting and other != name and channels in (None, *taken[1:2]):
        fixes.append(Fix(f"For {len(taken)} dimensions, use:", f"nn.{other}"))
    elif len(taken) > 1 and expected == str(len(taken) + 1) and channels == taken[0]:
        outer = failure.root.args[0] if failure.root is not None and failure.root.args else None
        alone = len(shape_of(outer) or ()) == len(taken)
        line = (provenance.outermost if alone else provenance.elsewhere)(failure, "{}.unsqueeze(0)")
        fixes.append(Fix(f"The {channels} channels come first: the batch is missing. Put it in front:", line))
    if len(taken) == 1:
        fixes.append(Fix("Put the batch in front:", "x = x.unsqueeze(0)"))
    return Cause(
        f"{failure.subject} got {format.plural(int(given), 'dimension')}, but needs {expected}.",
        f"{failure.stopped}input {taken}; {name} wants (batch, channels{', …' if '4' in expected or '5' in expected else ''}).",
        f"{format.plural(int(given), 'dimension')} ≠ {expected}",
        (("input", str(taken)), ("expected", f"{expected} dimensions")),
        tuple(fixes),
    )


def _single(failure: Failure, match: re.Match[str]) -> Cause:
    taken = tuple_of(match[2])
    spatial = match[1] == "spatial element"
    what = "one value of each channel"
    fixes = (
        Fix("To use the model without training it:", f"{code_fixes.name_of_root(failure)}.eval()"),
        Fix("While training, drop a last batch of one:", "DataLoader(..., drop_last=True)"),
        Fix(f"{'Normalise' if spatial else 'Or normalise'} over the channels instead, which needs no batch: nn.GroupNorm or nn.LayerNorm."),
    )
    return Cause(
        f"{failure.subject or 'The normalisation'} got {what} in training mode: its variance is not defined.",
        f"{failure.stopped}input {taken}{'' if spatial else ', a batch of one'}.",
        "one value a channel",
        (("input", str(taken)), ("mode", "training")),
        fixes[2:] if spatial else fixes,
    )


def _last_sizes(failure: Failure, match: re.Match[str]) -> Cause:
    expected, taken = tuple_of(match[1]), tuple_of(match[2])
    given = taken[-len(expected) :]
    fixes: tuple[Fix, ...] = ()
    if len(expected) == 1 and given:
        fixes = _resized(failure, expected[0], given[0], "number", ())
        if expected[0] in taken[1:-1]:
            place = taken.index(expected[0], 1)
            line = provenance.elsewhere(failure, "{}.transpose(" + f"{place}, -1)")
            fixes = (Fix(f"The size {expected[0]} is in dimension {place}: put it last.", line),)
            if place == 1 and len(taken) > 2:
                fixes += (Fix("Or use the layer that normalizes over channels where they are:", f"nn.GroupNorm(1, {expected[0]})"),)
    elif len(given) == len(expected) > 1 and failure.module is not None and type(failure.module).__name__ == "LayerNorm":
        made = code_fixes.layer_norm(failure.module, f"[{', '.join(map(str, given))}]")
        owner, line = provenance.made_anew(failure, made)
        fixes = (Fix(f"Let {failure.subject} take {shown(given)}{f', in {owner}' if owner else ''}:", line),) if line else ()
    return Cause(
        f"{failure.subject or 'The normalisation'} got a last size of {shown(given)}, but {_holds(failure)} {shown(expected)}.",
        f"{failure.stopped}input {taken}.",
        f"last size {shown(given)} ≠ {shown(expected)}",
        (("input", str(taken)), ("normalized_shape", str(expected))),
        fixes,
    )


def _divisible(failure: Failure, match: re.Match[str]) -> Cause:
    taken, groups = tuple_of(match[1]), int(match[2])
    expected = stores.contents(failure.module).get("num_channels") if failure.module is not None else None
    fitting = max(n for n in range(1, groups + 1) if taken[1] % n == 0)
    return Cause(
        f"{failure.subject or 'The normalisation'} got {taken[1]} channels, which {groups} groups cannot share evenly.",
        f"{failure.stopped}input {taken}" + (f"; it was made for {expected} channels." if expected else "."),
        f"{taken[1]} channels / {groups} groups",
        (("channels", str(taken[1])), ("groups", str(groups))),
        (Fix(f"For {taken[1]} channels, with a number of groups that divides them:", f"nn.GroupNorm({fitting}, {taken[1]})"),),
    )


def _made(failure: Failure, match: re.Match[str]) -> Cause:
    channels, groups = int(match[1]), int(match[2])
    fitting = max(n for n in range(1, groups + 1) if channels % n == 0)
    return Cause(
        f"GroupNorm cannot share {channels} channels evenly among {groups} groups.",
        "",
        "",
        (("num_channels", str(channels)), ("num_groups", str(groups))),
        (Fix("A number of groups that divides the channels:", f"nn.GroupNorm({fitting}, {channels})"),),
    )


_R, _V = (RuntimeError,), (ValueError,)
_SHAPE = r"(?:torch\.Size\()?\[([\d, ]+)\]"
RULES = (
    Rule("norm", _R, r"(?:running_mean|running_var|weight|bias) should contain (?P<given>\d+) elements not (?P<expected>\d+)", _channels),
    Rule("norm", _R, r"got weight of shape \[(?P<expected>\d+)\] and input of shape \[\d+, (?P<given>\d+)", _channels),
    Rule("norm", _V, r"expected input's size at dim=\d+ to match num_features \((?P<expected>\d+)\), but got: (?P<given>\d+)", _channels),
    Rule("norm", _V, r"^expected (\dD(?: or \dD)?) input \(got (\d)D input\)", _dimensions),
    Rule("norm", _V, rf"Expected more than 1 (value per channel|spatial element) when training, got input size {_SHAPE}", _single),
    Rule(
        "norm", _R, r"Given normalized_shape=\[([\d, ]+)\], expected input with shape .*, but got input of size\[([\d, ]+)\]", _last_sizes
    ),
    Rule("norm", _R, r"divisible by num_groups, but got input of shape \[([\d, ]+)\] and num_groups=(\d+)", _divisible),
    Rule("norm", _V, r"num_channels \((\d+)\) must be divisible by num_groups \((\d+)\)", _made),
)
