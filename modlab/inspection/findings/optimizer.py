"""Between the model and its optimizers: what is missing, held twice, old, or moved although it is frozen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from modlab import format
from modlab.compat import is_leaf, without_autograd
from modlab.inspection import gradients
from modlab.inspection.entries import dtype_name
from modlab.inspection.findings.grouping import FindingGroup, cover
from modlab.inspection.findings.subject import Held, Subject, is_plain
from modlab.records.finding import Fact, Finding, Remedy
from modlab.statistics.memory import is_there, local, number_of

SPELLED_OUT = 4  # modules named in a fix
VELOCITIES = ("momentum_buffer", "exp_avg")
"""Running means of gradients, by which an optimizer moves on when the gradient is zero."""


class Membership(NamedTuple):
    """One tensor in one parameter group."""

    optimizer: torch.optim.Optimizer
    label: str  # "AdamW #0"
    group: dict[str, Any]
    tensor: Tensor


def memberships(subject: Subject) -> list[Membership]:
    """Every tensor of every group, in order."""
    labels = iter(subject.labels)
    return [
        Membership(optimizer, label, group, tensor)
        for optimizer in subject.optimizers
        for group in optimizer.param_groups
        for label in (next(labels),)
        for tensor in group["params"]
    ]


def missing(subject: Subject) -> Iterator[Finding]:
    """Trained parameters that no optimizer holds, and the old copies that it holds instead."""
    if not subject.optimizers:
        return
    lacking = [held for held in subject.trained if not subject.owns(held.tensor)]
    replaced, rest = _replaced(subject, lacking)
    word = "parameter" if len(subject.trained) == len(subject.parameters) else "trainable parameter"
    for group in cover(replaced, subject.trained, word):
        yield group.finding("replaced since", "broken", Remedy(code=_anew(subject)), optimizers=subject.names)
    for group in cover(rest, subject.trained, word):
        fix = Remedy(code=_anew(subject) if replaced else _adding(subject, group))
        yield group.finding("in no optimizer", "broken", fix, optimizers=subject.names)


def _adding(subject: Subject, group: FindingGroup) -> str:
    if len(group.members) == 1 and isinstance(group.members[0], Held):
        return f'optimizer.add_param_group({{"params": [{group.code}]}})  # or {group.code}.requires_grad_(False)'
    if group.whole and any(subject.owns(held.tensor) for held in subject.parameters if group.site in held.site.above):
        return f'optimizer.add_param_group({{"params": [p for p in {group.code}.parameters() if p.requires_grad]}})'
    if group.whole:
        return f'optimizer.add_param_group({{"params": {group.code}.parameters()}})  # or {group.code}.requires_grad_(False)'
    if group.tops and len(group.tops) <= SPELLED_OUT:
        return f'optimizer.add_param_group({{"params": [p for name in {group.tops!r} for p in model.get_submodule(name).parameters()]}})'
    if group.tops:
        return (
            'held = {id(p) for group in optimizer.param_groups for p in group["params"]}\n'
            'optimizer.add_param_group({"params": [p for p in model.parameters() if p.requires_grad and id(p) not in held]})'
        )
    return _anew(subject)


def _anew(subject: Subject) -> str:
    """A line that makes the optimizer again, for all parameters that the model has now."""
    kind = type(subject.optimizers[0])
    name = f"torch.optim.{kind.__name__}" if getattr(torch.optim, kind.__name__, None) is kind else kind.__name__
    rate = subject.optimizers[0].param_groups[0].get("lr")
    settings = f", lr={format.number(float(rate))}" if isinstance(rate, (int, float)) else ""
    return f"optimizer = {name}(model.parameters(){settings})  # after the last change to the model; with your other settings"


def _replaced(subject: Subject, lacking: Sequence[Held]) -> tuple[list[Held], list[Held]]:
    """Which of the lacking ones stand where the optimizer holds another of the same shape, that no model's place has any more."""
    known = {*subject.by_tensor, *subject.hidden}
    held = [one for one in memberships(subject) if id(one.tensor) not in known]
    shapes = Counter(_shape(one.tensor) for one in held)
    stranger = not any(id(one.tensor) in known for one in memberships(subject))
    if stranger and shapes != Counter(_shape(one.tensor) for one in lacking):
        return [], list(lacking)  # an optimizer of another model
    replaced, rest = [], []
    for one in lacking:
        if shapes[_shape(one.tensor)] > 0:
            shapes[_shape(one.tensor)] -= 1
            replaced.append(one)
        else:
            rest.append(one)
    return replaced, rest


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape) if is_plain(tensor) else (-1,)


def twice(subject: Subject) -> Iterator[Finding]:
    """Parameters in two groups, or two times in one."""
    labels: dict[int, list[str]] = {}
    for one in memberships(subject):
        labels.setdefault(id(one.tensor), []).append(one.label)
    doubled: dict[tuple[str, ...], list[Held]] = {}
    for key, where in labels.items():
        if len(where) > 1 and key in subject.by_tensor:
            doubled.setdefault(tuple(where), []).append(subject.by_tensor[key])
    for places, members in doubled.items():
        for group in cover(members, subject.parameters, "parameter"):
            fix = Remedy(code=_ONCE) if len({*places}) == 1 else Remedy("one optimizer")
            yield group.finding("held twice", "broken" if fix.code else "careful", fix, groups=places)


_ONCE = 'for group in optimizer.param_groups:\n    group["params"] = list(dict.fromkeys(group["params"]))'


def frozen_but_moved(subject: Subject) -> Iterator[Finding]:
    """Frozen parameters that the next step moves all the same: a gradient was left from before they were frozen."""
    causes: dict[tuple[str, tuple[tuple[str, Fact], ...]], list[Held]] = {}
    in_turn = _frozen_in_turn(subject)
    alone = len(in_turn) == len(subject.optimizers)  # then nothing is trained just now, and may never be again
    for one in memberships(subject):
        held = subject.by_tensor.get(id(one.tensor))
        waits = id(one.optimizer) in in_turn and not alone
        cause = {} if held is None or one.tensor.requires_grad or waits else _cause(one)
        if held is not None and cause:
            causes.setdefault((one.label, tuple(cause.items())), []).append(held)
    for (label, facts), members in causes.items():
        for group in cover(members, subject.parameters, "parameter"):
            yield group.finding(
                "frozen, but moves", "careful" if alone else "broken", Remedy(code=_clearing(group)), optimizer=label, **dict(facts)
            )


def _frozen_in_turn(subject: Subject) -> set[int]:
    """Optimizers all of whose tensors are frozen just now, as of a discriminator in the generator's turn."""
    return {
        id(one) for one in subject.optimizers if not any(tensor.requires_grad for group in one.param_groups for tensor in group["params"])
    }


def _clearing(group: FindingGroup) -> str:
    if group.each("zero_grad()"):
        return group.each("zero_grad()")
    if group.code and not (len(group.members) == 1 and isinstance(group.members[0], Held)):
        return f"{group.code}.zero_grad()  # once, after freezing: sets .grad to None"
    return f"{group.code}.grad = None" if group.code else "optimizer.zero_grad()  # once, after freezing: sets .grad to None"


def _cause(one: Membership) -> dict[str, Fact]:
    """Why a step moves a tensor that requires no gradient; nothing where it does not, or where that is not known."""
    kind = type(one.optimizer)
    tensor, group = one.tensor, one.group
    if not f"{kind.__module__}.".startswith("torch.optim.") or kind.__name__ in ("LBFGS", "SparseAdam") or not is_leaf(tensor):
        return {}  # what another optimizer does with it, only its author knows
    if tensor.grad is None or not _positive(group.get("lr")):
        return {}
    (grad,) = gradients.kinds([tensor])
    if grad == gradients.PRESENT:
        return {"cause": "gradient"} if not tensor.grad.is_meta else {}
    if _positive(group.get("weight_decay")):
        return {"cause": "decay", "decay": _number(group["weight_decay"])}
    if kind.__name__ == "ASGD" and _positive(group.get("lambd")):
        return {"cause": "lambd"}
    state = one.optimizer.state.get(tensor)
    moving = [name for name in VELOCITIES if isinstance(state, dict) and _some(state.get(name))]
    return {"cause": "momentum", "velocity": moving[0]} if moving else {}


def _number(value: Any) -> float:
    number = number_of(value)
    return number if number == number else 0.0


def _positive(value: Any) -> bool:
    return value is not None and _number(value) > 0


def _some(value: Any) -> bool:
    """Whether a tensor of an optimizer's state has something in it that is not zero."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or not is_there(value):
        return False
    return without_autograd(lambda: bool((local(value).detach() != 0).any()))


# ---- notes ---------------------------------------------------------------------------------------------------------------------


def of_the_loss(subject: Subject) -> Iterator[Finding]:
    """Parameters of the loss (centers, the rows of a metric's head) that no optimizer holds."""
    lacking = [
        name for name, one in subject.of_loss.items() if one.requires_grad and not subject.owns(one) and id(one) not in subject.by_tensor
    ]
    if subject.optimizers and lacking:
        fix = Remedy(code='optimizer.add_param_group({"params": loss.parameters()})')
        facts: dict[str, Fact] = {"names": tuple(lacking[:SPELLED_OUT]), "parameters": len(lacking), "optimizers": subject.names}
        yield Finding("loss in no optimizer", "", facts, "careful", fixes=(fix,))


def frozen_and_skipped(subject: Subject) -> Iterator[Finding]:
    """Frozen parameters in an optimizer that stay where they are, weight decay or not."""
    held_all = memberships(subject)
    if held_all and not any(one.tensor.requires_grad or one.tensor.grad is not None for one in held_all):
        yield Finding("all frozen", "", {"optimizers": subject.names}, "careful", fixes=(Remedy(code="model.requires_grad_(True)"),))
        return
    seen: dict[str, list[Held]] = {}
    for one in memberships(subject):
        held = subject.by_tensor.get(id(one.tensor))
        if held is not None and not one.tensor.requires_grad and is_leaf(one.tensor) and one.tensor.grad is None:
            seen.setdefault(one.label, []).append(held)
    for label, members in seen.items():
        for group in cover(members, subject.parameters, "parameter"):
            fix = Remedy(code="optimizer = ...((p for p in model.parameters() if p.requires_grad), ...)")
            yield group.finding("frozen, in an optimizer", "note", fix, optimizer=label)


def strangers(subject: Subject) -> Iterator[Finding]:
    """What an optimizer holds and this model does not have: another model's, or left from before."""
    known = {*subject.by_tensor, *subject.hidden, *map(id, subject.of_loss.values())}
    lacking = [held for held in subject.trained if not subject.owns(held.tensor)]
    replaced, _ = _replaced(subject, lacking)
    left = Counter(_shape(held.tensor) for held in replaced)
    others: dict[str, list[Tensor]] = {}
    for one in memberships(subject):
        if id(one.tensor) in known:
            continue
        if left[_shape(one.tensor)] > 0:
            left[_shape(one.tensor)] -= 1
            continue
        others.setdefault(one.label, []).append(one.tensor)
    for label, tensors in others.items():
        shapes = tuple(f"{format.shape(_shape(tensor))} {dtype_name(tensor)}" for tensor in tensors[:3])
        yield Finding("not of this model", facts={"optimizer": label, "tensors": len(tensors), "shapes": shapes})


def rates(subject: Subject) -> Iterator[Finding]:
    """Groups of one optimizer with different learning rates, and groups that stand still."""
    labels, still = iter(subject.labels), tuple[str, ...]()
    for optimizer in subject.optimizers:
        rates = [(next(labels), group.get("lr")) for group in optimizer.param_groups]
        listed = [(label, _number(rate)) for label, rate in rates if rate is not None]
        if len({rate for _, rate in listed}) > 1:
            facts: dict[str, Fact] = {"groups": tuple(label for label, _ in listed[:8]), "rates": tuple(rate for _, rate in listed[:8])}
            yield Finding("several learning rates", facts=facts)
        still += tuple(label for label, rate in listed if rate == 0)
    if still:
        yield Finding("learning rate 0", facts={"groups": still})
