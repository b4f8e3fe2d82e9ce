"""Causes in the numbers: what is not finite, and what has too few digits."""

from __future__ import annotations

import math

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.data import moved_axes
from modlab.causes.loop import LEAST_HALF, SEVERAL
from modlab.causes.loss import UNSCALED
from modlab.causes.optimizer import MOST
from modlab.causes.symptoms import FEW, Symptoms
from modlab.records.clues import INFINITE
from modlab.records.watch import PARAMETER_GRADIENT

EARLY = 5
"""Steps in which a rate has hardly spoilt anything yet."""

CALM = 2
"""Values of a loss that show that it was falling."""

SMALL_STEP = 0.2
"""Part of a weight's size that a step changes it by, below which a single step makes no NaN of a loss."""

HALF = ("float16", "bfloat16")

SMALL = 1e-5
"""A learning rate that makes steps small by itself, whatever the gradients."""


def _born(s: Symptoms, risk: str, of_a_negative: str = "") -> Facts | None:
    if (s.is_finite and s.birth is None) or _grew(s):
        return None
    if of_a_negative in s.loss.risks:
        return {"in": "loss", "how": "negative"}
    return {"in": "loss"} if risk in s.loss.risks else None


def _in_the_loss(s: Symptoms) -> bool:
    """Whether NaN or Inf was first seen in the loss itself."""
    return s.birth is not None and s.birth.facts.get("where") == "the loss"


def _in_one_parameter(s: Symptoms) -> bool:
    """Whether one parameter became NaN or infinite while all others were numbers, or a parameter's gradient was the first that did."""
    birth = s.birth
    return birth is not None and (bool(birth.facts.get("alone")) or birth.facts.get("role") == PARAMETER_GRADIENT)


def _grew(s: Symptoms) -> bool:
    """Whether numbers were far too large before they were none, or somebody turned the rate up."""
    from_the_loss = _in_the_loss(s) and s.birth is not None and s.birth.step <= EARLY
    turned = any(one.moved for one in s.record.scalars) and len(s.rate) > 1 and float(s.rate[-1]) > 10 * float(s.rate[0])
    return turned or s.most > 100 * s.baseline or (s.quickest > 0.5 and not from_the_loss)


def _cause(s: Symptoms, *kinds: str) -> Facts | None:
    """What running the step again has shown."""
    for one in s.record.alerts:
        if one.kind in ("nan", "inf") and one.facts.get("cause") in kinds:
            known = {name: str(one.facts[name]) for name in ("name", "at") if one.facts.get(name)}
            how = "negative" if one.facts.get("negative") else "end" if one.facts["cause"] == "slope at the end" else ""
            return {"path": one.path, "in": str(one.facts.get("where", "")), **known, **({"how": how} if how else {})}
    return None


def _log(s: Symptoms) -> Facts | None:
    return _cause(s, "log") or _born(s, "log of zero", "log of a negative") or _never_was(s)


def _never_was(s: Symptoms) -> Facts | None:
    """A loss with a logarithm that was never a number, of outputs that are: so it is what the logarithm takes of the targets."""
    logs = any(one.name == "Log" for term in s.loss.terms for one in (*term.functions, *term.ending))
    known = math.isfinite(s.loss.outputs.std) and s.birth is None
    return {"in": "loss", "how": "either"} if s.curve is not None and not len(s.values) and logs and known else None


def _root(s: Symptoms) -> Facts | None:
    return _cause(s, "root", "slope at 0", "slope at the end") or _born(s, "root of zero", "root of a negative")


def _division(s: Symptoms) -> Facts | None:
    if moved_axes(s) is not None:
        return None  # which makes rows of padding alone
    born = _born(s, "division by zero")
    return _cause(s, "division") or ({"in": "factor"} if born is not None and INFINITE in s.loss.risks else born)


def _overflow(s: Symptoms) -> Facts | None:
    if _grew(s):
        return None
    half = "half" in s.loss.risks and not s.is_finite and (_is_infinite(s) or (not s.flat and s.pace > 1e-6))
    return _cause(s, "overflow") or _born(s, "overflow") or ({"in": "half"} if half else None)


def _is_infinite(s: Symptoms) -> bool:
    """Whether the loss is infinite, and not NaN, at the end."""
    return s.curve is not None and math.isinf(s.curve.final)


def _rate(s: Symptoms) -> Facts | None:
    if s.is_finite or not len(s.values) or s.group.momentum >= MOST:
        return None
    calm = (_was_calm(s) or _is_steady(s)) and not _climbs(s)
    rows = _log, _root, _division, _sure_chance, _root_of_squares
    explained = _in_the_loss(s) or calm or any(row(s) is not None for row in rows)
    short = len(s.values) < CALM and s.quickest < SMALL_STEP
    if (explained or short) and not (_rose(s, 5) or s.quickest > 0.5):
        return None
    step = next((one.bad_step for one in s.curves if one.bad_step >= 0), -1)
    hooked = {"rival": "gradients overwritten", "settle": "without hooks"} if s.modules("backward hooks") else {}
    return {
        **hooked,
        "pace": s.last_pace,
        "rate": s.rate_of_group_at(step - 1),
        "first": s.start,
        "most": s.most,
        "step": step,
        "passes": s.curve.passes if s.curve is not None else 1.0,
    }


def _was_calm(s: Symptoms) -> bool:
    """Whether steps were small and the loss not high until it became NaN: a rate does not end so, one bad batch does."""
    return len(s.values) >= CALM and s.quickest < SMALL_STEP and (not _rose(s, 1.5) or _had_come_down(s))


def _had_come_down(s: Symptoms) -> bool:
    """Whether the loss was far below where it began, for some time, whatever its first steps did."""
    return bool(0 < s.values[-max(FEW, len(s.values) // 4) :].max() < s.start / 2)


def _rose(s: Symptoms, times: float) -> bool:
    """Whether the loss has been so many times where it began; of one below zero, as far above it."""
    return s.most - s.start >= (times - 1) * abs(s.start)


def _climbs(s: Symptoms) -> bool:
    """Whether the loss was on its way up where it was a number last: what steps did from there on was not seen."""
    return len(s.values) > FEW and s.values[-1] >= s.most and _rose(s, 1.1)


def _one_batch(s: Symptoms) -> Facts | None:
    if (
        s.is_finite
        or not (_was_calm(s) or _is_steady(s))
        or _climbs(s)
        or s.loop.shared  # by which one optimizer may undo without end what the other does
        or not math.isnan(s.curve.final if s.curve is not None else 0.0)
        or _in_the_loss(s)
        or _in_one_parameter(s)  # what a batch holds comes to the gradients of all
        or _was_seen(s)
    ):
        return None
    return {"calm": True, "last": float(s.values[-1])}


def _was_seen(s: Symptoms) -> bool:
    """Whether the loss was a number one step before it was none, and the batch of that step was looked at and is finite."""
    curve = s.curve
    if curve is None or curve.bad_step < 1 or curve.bad_step - 1 not in curve.first or any(one.bad >= 0 for one in s.clues.inputs):
        return False
    return curve.bad_step in s.record.history.first


def _is_steady(s: Symptoms) -> bool:
    """Whether steps were small throughout, and the loss high only as hard batches make it."""
    return len(s.values) >= FEW and not _rose(s, 5) and s.quickest < 0.05


def _sure_chance(s: Symptoms) -> Facts | None:
    """The same, of a loss that takes the logarithm of a chance as it is: when that is sure, it is 0 or 1."""
    return _at_its_end(s, "logarithm of a chance")


def _root_of_squares(s: Symptoms) -> Facts | None:
    """The same, of one that takes roots of squares as they are: where two outputs are equal, it is 0."""
    return _at_its_end(s, "root of squares")


def _at_its_end(s: Symptoms, risk: str) -> Facts | None:
    known = risk in s.loss.risks and not s.is_finite and (_was_calm(s) or _is_steady(s))
    return {"in": "loss", "last": float(s.values[-1])} if known else None


def _no_epsilon(s: Symptoms) -> Facts | None:
    """What Adam divides by is kept in float16: the square of a gradient is 0 there, and so is the usual epsilon."""
    some = [one for one in s.matrices if one.dtype == "float16"]
    if s.is_finite or not some or not s.loop.optimizers or not UNSCALED.issuperset(s.loop.optimizers) or s.most > 100 * s.baseline:
        return None
    return {"path": some[0].path, "places": tuple(one.path for one in some), "optimizer": s.loop.optimizers[0]}


def _underflow(s: Symptoms) -> Facts | None:
    if s.loop.replaced >= SEVERAL and s.loop.brought < LEAST_HALF and not s.learns:
        return {"path": "", "places": (), "brought": s.loop.brought}
    seen = s.pace < 1e-6 and not any(one.is_copy for one in s.watched.parameters)  # what is stepped is there
    is_small = seen and s.group.rate > SMALL and not any(one.kind == "scale" for one in s.record.scalars)
    if not s.is_half or s.learns or _is_infinite(s) or not (s.flat or is_small):
        return None
    return {"path": s.flat[0] if s.flat else "", "places": tuple(s.flat)}


def _digits(s: Symptoms) -> Facts | None:
    half = [one for one in s.matrices if one.dtype in HALF]
    if s.loop.rounded >= SEVERAL and s.loop.rounded == s.loop.put_back + s.loop.kept and not half and not s.progress > 0.9:
        return {"looks": s.loop.rounded}
    some = [one for one in half if not one.is_copy]  # else what is stepped may have more digits
    stuck = [one for one in some if (one.stuck or 0.0) > (0.2 if s.is_stuck else 0.5) or (one.met and not one.moved)]
    if not some or len(stuck) < len(some) / 2 or s.progress > 0.9:
        return None
    return {
        "path": stuck[0].path,
        "places": tuple(one.path for one in stuck),
        "dtype": stuck[0].dtype,
        "share": max(one.stuck or 0.0 for one in stuck),
    }


ROWS = (
    CauseRow("log of zero", _log),
    CauseRow("root of zero", _root),
    CauseRow("division by zero", _division),
    CauseRow("overflow", _overflow, "not finite by the rate", "smaller rate"),
    CauseRow("underflow", _underflow),
    CauseRow("underflow", _no_epsilon, "overflow", "digits"),
    CauseRow("too few digits", _digits),
    CauseRow("log of zero", _sure_chance, "not a number in data", "batch", tier=1),
    CauseRow("root of zero", _root_of_squares, "not a number in data", "batch", tier=1),
    CauseRow("not a number in data", _one_batch, "division by zero", "batch", tier=1),
    CauseRow("not finite by the rate", _rate, "rate too high", "smaller rate", tier=1),
)
