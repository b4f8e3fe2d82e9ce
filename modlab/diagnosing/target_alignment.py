"""The alignment of targets with their inputs, looked up in the batch without the model: whose target is it, and does the input hold it?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from modlab.diagnosing import batches, neighbours
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.running import operand_graph

ENOUGH = 32
"""Samples that a judgement needs."""
PLAIN, HIDDEN = 0.5, 0.25
"""Fractions of what could be told above chance: above the first the target is known by the inputs, below the second it hardly is."""
NOTHING = 0.05
"""Such a fraction is chance."""
ALONE = 0.9999
"""Correlation of one feature with the target that no measurement reaches."""
NEARLY, ROUNDING = 0.999, 1e-8
"""Correlation of a second feature where the target goes on from a smooth series; and what separates one that is the target from 1."""
MANY = 8
"""Of so many features one alone does not give the target by intent."""
PATTERN = 0.2
"""Fraction of the features that differ which are the same in all samples of a class, beyond which inputs are patterns."""
MOSTLY = 0.95
"""Fraction of the samples that may have one class."""
CLASS = 4
"""Samples of a class on average, if the target is a class."""


def targets(bench: Bench) -> ExperimentRecord:
    """Targets differ, belong to their own inputs, and are not written in them."""
    target = bench.target
    if not issubclass(type(target), Tensor) or not target.dim() or target.is_nested or target.is_complex() or len(target) < 16:
        raise NotRunError("no target for each sample")
    label = target.long() if target.dtype is torch.bool else target
    given = [
        t for t in batches.tensors(bench.inputs) if t.dim() and len(t) == len(target) and t.layout is torch.strided and not t.is_nested
    ]
    found = _alike(bench, label)
    if found is not None:
        return found
    flat = _flat(label)
    if not given or flat is None or len(target) < ENOUGH:
        raise NotRunError("no target for each sample")
    return _leaking(given, flat) or _misplaced(given[0], flat, alone=len(given) == 1) or record("targets", "passed", "targets fit")


def _flat(target: Tensor) -> Tensor | None:
    """One class, or a few numbers, for each sample; None if it is more than that."""
    rows = target.flatten(1) if target.dim() > 1 else target[:, None]
    if rows.shape[1] > 4:
        return None
    if rows.is_floating_point():
        return rows.double() if bool((rows != rows[:1]).any()) else None
    label = torch.unique(rows[:, 0], return_inverse=True)[1]
    return label if rows.shape[1] == 1 and int(label.max()) + 1 <= len(label) / CLASS else None


def _alike(bench: Bench, target: Tensor) -> ExperimentRecord | None:
    """All targets are the same, or nearly all."""
    rows = target.flatten(1) if target.dim() > 1 else target[:, None]
    known, counts = torch.unique(rows, dim=0, return_counts=True)
    share = float(counts.max()) / len(rows)
    if (
        share < MOSTLY
        or (share < 1 and (len(rows) < ENOUGH or (target.is_floating_point() and len(known) > 2)))
        or not _counts(bench, target)
        or _are_options(bench, target)
    ):
        return None
    kind = "constant targets" if share == 1 else "imbalance"
    classes = int(not target.is_floating_point())
    others = (("ordered batches", "imbalance") if classes else ()) if share == 1 else ("constant targets",)
    value = known[counts.argmax()].flatten()[0].item()
    return record("targets", "unclear", kind, Remedy(kind), samples=len(rows), share=share, value=value, classes=classes, candidates=others)


def _counts(bench: Bench, target: Tensor) -> bool:
    """Whether the loss depends on the target at all."""
    with torch.no_grad():
        output = bench.steadily()
        now = float(bench.value(output))
        other = target + 1 if target.is_floating_point() or not bool((target == 1).all()) else target * 0
        return float(bench.loss(output, other.to(bench.target.dtype))) != now


def _are_options(bench: Bench, target: Tensor) -> bool:
    """Whether each target has scores of several options, all given by a layer with one output: the right one may be first."""
    if target.is_floating_point():
        return False
    output = bench.output()
    several = issubclass(type(output), Tensor) and output.numel() >= 2 * target.numel()
    return several and output.grad_fn is not None and operand_graph.are_alone(output.grad_fn)


def _leaking(given: list[Tensor], target: Tensor) -> ExperimentRecord | None:
    """One of many features alone gives the target."""
    for tensor in given:
        if not tensor.is_floating_point() or tensor[0].numel() < MANY or tensor[0].numel() > neighbours.WIDE:
            continue
        rows = tensor.flatten(1).double()
        if target.is_floating_point() and target.shape[1] == rows.shape[1]:
            continue
        classes = not target.is_floating_point()
        feature = _telling(rows, target) if classes else _correlated(rows, target)
        mark = _marked(rows, target) if classes and feature is None else None
        if feature is not None or mark is not None:
            at = torch.tensor(feature if mark is None else mark[0])
            place = tuple(int(one) for one in torch.unravel_index(at, tensor.shape[1:]))
            kind = "leak"
            facts: dict[str, Any] = {} if mark is None else {"mark": mark[1], "marks": int(target[mark[2]])}
            return record("targets", "failed", kind, Remedy(kind), feature=place, features=rows.shape[1], **facts)
    return None


def _correlated(rows: Tensor, target: Tensor) -> int | None:
    """A feature that is the target but for scale and shift, if each number of the target has one."""
    one, other = (thing - thing.mean(0) for thing in (rows, target))
    r = (one.T @ other).abs() / (one.norm(dim=0)[:, None] * other.norm(dim=0) + 1e-12)
    best, at = r.max(0)
    if not bool((best > ALONE).all()):
        return None
    goes_on = bool((r.topk(2, 0).values[1] > NEARLY).all()) and float(best.min()) < 1 - ROUNDING
    return None if goes_on else int(at[0])


def _telling(rows: Tensor, label: Tensor) -> int | None:
    """A feature that has one value for each class, and another for each."""
    classes = int(label.max()) + 1
    if classes < 2:
        return None
    values = torch.stack([rows[label == one][0] for one in range(classes)])
    constant = (rows == values[label]).all(0)
    apart = torch.stack([values[i] != values[j] for i in range(classes) for j in range(i)]).all(0)
    found = (constant & apart).nonzero().flatten().tolist()
    return int(found[0]) if found else None


def _marked(rows: Tensor, label: Tensor) -> tuple[int, float, int] | None:
    """A feature, its value, and a sample that has it, where samples of each class but one have some number that no others have.

    Inputs without noise are patterns, of which each is its class's own: so most features have to differ within a class.
    """
    found: list[tuple[int, float, int]] = []
    classes = int(label.max()) + 1
    moves = ~(rows == rows[:1]).all(0)
    for one in range(classes):
        mine = label == one
        first = rows[mine][:1]
        same = (rows[mine] == first).all(0)
        at = (same & ~(rows[~mine] == first).any(0)).nonzero().flatten().tolist()
        if not bool(moves.any()) or float(same[moves].double().mean()) > PATTERN or int(mine.sum()) < CLASS:
            return None
        found += [(at[0], float(first[0, at[0]]), int(mine.nonzero()[0]))] if at else []
    return found[0] if classes > 1 and len(found) >= classes - 1 else None


def _misplaced(tensor: Tensor, target: Tensor, *, alone: bool) -> ExperimentRecord | None:
    """The target is told by the inputs of a neighbour, or by inputs whose samples were mixed and are put apart again.

    That it is told by nothing is said where these inputs are all that the model gets.
    """
    now = _known(tensor, target)
    if now is None:
        return None
    facts: dict[str, Any] = {"now": now}
    if now < HIDDEN:
        for kind, put_right, step in _rights(tensor):
            then = _known(put_right, target)
            if then is not None and then > max(PLAIN, 2 * now):
                return record("targets", "failed", kind, Remedy(kind), then=then, step=step, **facts)
    if alone and now < NOTHING and tensor.is_floating_point() and tensor[0].numel() < MANY and len(target) >= 48:
        kind, others = "targets shuffled", ("wrong axes", "too much noise")
        return record("targets", "unclear", kind, Remedy(kind), candidates=others, features=tensor[0].numel(), **facts)
    return None


def _rights(tensor: Tensor) -> Iterator[tuple[str, Tensor, int]]:
    """What may have gone wrong, and the inputs without that."""
    for step in (1, -1):
        yield "targets shifted", tensor.roll(step, 0), step
    if tensor.dim() > 1:
        yield "wrong axes", tensor.reshape(*tensor.shape[1:], len(tensor)).movedim(-1, 0), 0


def _known(tensor: Tensor, target: Tensor) -> float | None:
    """How much of the target the nearest others tell, from 0 (as by chance) to 1; None if that cannot be asked."""
    if not tensor.is_floating_point() and tensor.dim() == 2:
        shares = [neighbours.told(neighbours.counted(tensor), target)]
        if not target.is_floating_point():
            shares += [neighbours.told_by(tensor[:, at], target) for at in range(min(tensor.shape[1], 64))]
        share = max(shares)
    elif tensor.is_floating_point() and tensor.dim() > 1 and tensor[0].numel() <= neighbours.WIDE:
        rows = tensor.flatten(1).double()
        share = neighbours.told((rows - rows.mean(0)) / (rows.std(0) + 1e-12), target)
    else:
        return None
    chance = 0.0 if target.is_floating_point() else float(target.bincount().max()) / len(target)
    return share if target.is_floating_point() else (share - chance) / (1 - chance or math.inf)
