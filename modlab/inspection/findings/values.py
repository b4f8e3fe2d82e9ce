"""What is in the weights: not a number, nothing, or far from what their layer starts with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

from torch import nn
from torch.nn import Module

from modlab.compat import is_leaf
from modlab.inspection import marks, stores
from modlab.inspection.findings.grouping import SPELLED_OUT, FindingGroup, cover
from modlab.inspection.findings.layer_families import TRANSPOSED
from modlab.inspection.findings.subject import Held, Subject, is_plain
from modlab.records.finding import Fact, Finding, Remedy
from modlab.statistics.memory import is_there, local

WILD_ABOVE, WILD_BELOW = 10.0, 0.01
"""Spread of a weight matrix, in units of 1 / sqrt(inputs), beyond which it is called wild. torch's own layers start between 0.4 and 1.5."""

_RECURRENT = (nn.RNNBase, nn.RNNCellBase)
_MATRICES = (*_RECURRENT, nn.MultiheadAttention, nn.Bilinear)


def not_finite(subject: Subject) -> Iterator[Finding]:
    """NaN or infinity in a parameter, NaN in a buffer (masks hold infinities on purpose)."""
    flagged = [held for held in subject.tensors if _is_floating(held) and _not_finite(subject, held)]
    for group in cover(flagged, [held for held in subject.tensors if _is_floating(held)], "tensor"):
        stats = [subject.stats(held) for held in group.members if isinstance(held, Held)]
        nan, inf = sum(one.nan for one in stats), sum(one.posinf + one.neginf for one in stats)
        again = _again(group)
        numbers: dict[str, Fact] = {"nan": nan, "inf": inf, "numbers": sum(one.count for one in stats)}
        kind = "" if again is None else "if new, again" if again else "if new"
        fix = Remedy(kind, "model.load_state_dict(last_good)  # then find the step: torch.autograd.set_detect_anomaly(True)")
        yield group.finding("not finite", "broken", fix, **numbers, **({"again": again} if again else {}))


def _again(group: FindingGroup) -> str | None:
    """The line that initialises it, if there is one: memory that was never filled looks the same. None where something has flowed back."""
    members = [one for one in group.members if isinstance(one, Held)]
    if any(is_leaf(one.tensor) and one.tensor.grad is not None for one in members):
        return None
    sites = {id(one.site.module): one.site for one in members}
    alone = next(iter(sites.values())) if len(sites) == 1 else None
    return f"{alone.code}.reset_parameters()" if alone is not None and hasattr(type(alone.module), "reset_parameters") else ""


def _is_floating(held: Held) -> bool:
    return is_plain(held.tensor) and (held.tensor.is_floating_point() or held.tensor.is_complex())


def _not_finite(subject: Subject, held: Held) -> bool:
    stats = subject.stats(held)
    if not stats.measured:
        return False
    infinite = stats.posinf + stats.neginf > 0 and (held.kind == "parameter" or held.name.startswith("running_"))
    return stats.nan > 0 or infinite


def all_zero(subject: Subject) -> Iterator[Finding]:
    """Weight matrices that are zero throughout: one may be meant, two in a row never start to learn."""
    weights = [held for held in subject.parameters if is_weight(held)]
    flagged = [held for held in weights if _is_zero(subject, held)]
    if not flagged:
        return
    stuck = _stuck(flagged)
    for group in cover([held for held in flagged if id(held.site.module) in stuck], weights, "weight"):
        yield group.finding("all zero, in a row", "broken", Remedy(code=_initializing(group)))
    for group in cover([held for held in flagged if id(held.site.module) not in stuck], weights, "weight"):
        again = _initializing(group).replace("\n    ", " ")
        yield group.finding("all zero", "note", *([Remedy("if not meant")] if again else []), again=again)


def is_weight(held: Held) -> bool:
    """Whether inputs are multiplied by it: a matrix of one of torch's layers, or one that is called a weight."""
    module, tensor = held.site.module, held.tensor
    if not is_plain(tensor) or not (tensor.is_floating_point() or tensor.is_complex()) or tensor.dim() < 2 or tensor.numel() < 2:
        return False
    if not _called_weight(module, held.name):
        return False
    category = marks.category(type(module))
    if category == "embedding":
        return int(tensor.shape[-1]) > 1  # one number an entry is a bias
    return category in ("linear", "conv") or issubclass(type(module), _MATRICES) or category == "own"


def _called_weight(module: Module, name: str) -> bool:
    if issubclass(type(module), _MATRICES):
        return "weight" in name
    return name in ("weight", "weight_orig", "weight_v", "W", "kernel")


def _is_zero(subject: Subject, held: Held) -> bool:
    stats = subject.stats(held)
    return stats.measured and stats.count > 0 and stats.zeros == stats.count


_THROUGH_ZERO = (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Identity, nn.Flatten, nn.Dropout)
"""What gives zero for zero."""


def _stuck(flagged: list[Held]) -> set[int]:
    """Modules whose weights wait for each other: neighbours in a Sequential, the first without a bias that is not zero."""
    zero = {id(held.site.module) for held in flagged}
    found: set[int] = set()
    for parent in {id(held.site.parent): held.site.parent for held in flagged if held.site.parent is not None}.values():
        if type(parent.module) is not nn.Sequential:
            continue
        chain = [child for child in parent.own("_modules").values() if child is not None and not issubclass(type(child), _THROUGH_ZERO)]
        for first, second in pairwise(chain):
            if id(first) in zero and id(second) in zero and _without_bias(first):
                found |= {id(first), id(second)}
    return found


def _without_bias(module: Module) -> bool:
    bias = (stores.contents(module).get("_parameters") or {}).get("bias")
    return bias is None or (is_there(bias) and not bool(local(bias).detach().any()))


def _initializing(group: FindingGroup) -> str:
    member = group.members[0]
    starts = [hasattr(type(one.site.module), "reset_parameters") for one in group.members]
    if 1 < len(starts) <= SPELLED_OUT and all(starts):
        names = tuple(dict.fromkeys(one.site.registered for one in group.members))
        return f"for name in {names!r}:\n    model.get_submodule(name).reset_parameters()"
    if not isinstance(member, Held):
        return ""
    start: Callable[..., object] | None = getattr(type(member.site.module), "reset_parameters", None)
    return f"{member.site.code}.reset_parameters()" if start is not None else f"nn.init.kaiming_uniform_({member.code})"


# ---- notes ---------------------------------------------------------------------------------------------------------------------


def wild_scales(subject: Subject) -> Iterator[Finding]:
    """Weights whose spread is far from 1 / sqrt(inputs), where signals neither grow nor fade."""
    for held in subject.parameters:
        if not is_weight(held) or marks.category(type(held.site.module)) == "embedding":
            continue
        stats = subject.stats(held)
        if not stats.measured or stats.finite != stats.count or stats.zeros == stats.count or not math.isfinite(stats.std):
            continue
        inputs = _inputs(held)
        ratio = stats.std * math.sqrt(inputs)
        if WILD_BELOW <= ratio <= WILD_ABOVE:
            continue
        fix = Remedy(code=f"nn.init.kaiming_uniform_({held.code}, a=5 ** 0.5)")
        yield held.finding("wild scale", "note", fix, spread=stats.std, usual=1 / math.sqrt(inputs), inputs=inputs)


def _inputs(held: Held) -> int:
    """How many inputs each output sums over; of a user's own layer, whose order of sizes is not known, the fewer."""
    shape = [int(size) for size in held.tensor.shape]
    if marks.category(type(held.site.module)) == "own" and not issubclass(type(held.site.module), _MATRICES):
        return max(1, min(shape))
    if issubclass(type(held.site.module), TRANSPOSED):
        return max(1, shape[0] * math.prod(shape[2:]))
    return max(1, math.prod(shape[1:]))
