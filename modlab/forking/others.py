"""Other parameters than the original's: a change may bring some, or take some away, while a tape knows only those that were there.

What modules and optimizers do is right with any. What the loop does with all parameters by itself (a penalty, an average, gradients
that are scaled) is on the tape for each parameter; whether it would be done to another one is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from torch import Tensor

from modlab.forking.kept_states import TrainedThings
from modlab.forking.tape import FUNCTION, TapeEntry, is_of_gradient, numbers_in, throws_away
from modlab.forking.taped_functions import gives_gradient
from modlab.inspection import stores

_SAME = ("__get__", "detach", "detach_", "part_in", "requires_grad_")
_IDLE = ("requires_grad_", "detach_", "retain_grad")
_UNSCALE = "_amp_foreach_non_finite_check_and_unscale_"


def handled(entries: Iterable[TapeEntry]) -> set[int]:
    """The numbers of what the loop computes with between the modules.

    A gradient counts as its parameter; what throws gradients away, or clips or unscales them, is none of it.
    """
    owners, found = dict[int, int](), set[int]()
    for entry in entries:
        gives = note_owner(entry, owners)
        if not gives and entry.kind == FUNCTION and entry.clip is None and not is_idle(entry) and not unscales(entry):
            found.update(owners.get(one, one) for one in numbers_in((entry.args, entry.kwargs)))
    return found


def note_owner(entry: TapeEntry, owners: dict[int, int]) -> bool:
    """Note whose gradient this gives, also by another name of its memory; whether it gives one."""
    number = next(numbers_in(entry.args), 0)
    gives = is_of_gradient(entry) or (number in owners and getattr(entry.what, "__name__", "") in _SAME)
    if gives:
        owners.update(dict.fromkeys(entry.outputs, owners.get(number, number)))
    return gives and bool(entry.outputs)


def thrown_away(entry: TapeEntry, owners: Mapping[int, int]) -> set[int]:
    """The numbers of the parameters whose gradients it throws away."""
    if not throws_away(entry):
        return set()
    numbers = [*numbers_in(entry.args)]
    return {*numbers[:1]} if is_of_gradient(entry) else {owners[one] for one in numbers if one in owners}


def is_idle(entry: TapeEntry) -> bool:
    """Whether it asks for a gradient, or throws some away."""
    return entry.kind == FUNCTION and (gives_gradient(entry.what) or throws_away(entry) or getattr(entry.what, "__name__", "") in _IDLE)


def unscales(entry: TapeEntry) -> bool:
    """Whether it is what a `GradScaler` calls with the gradients of one optimizer."""
    return getattr(entry.what, "__name__", "") == _UNSCALE


def trained(things: TrainedThings) -> Iterator[tuple[str, Tensor]]:
    """What is trained, each once, with the name of its module; "" for what stands in an optimizer alone."""
    seen: set[int] = set()
    held = [(path, one) for path, module in things.modules().items() for _, one in stores.named_tensors(module)]
    held += [("", one) for optimizer in things.optimizers for group in optimizer.param_groups for one in group["params"]]
    for path, one in held:
        if one.requires_grad and one.is_leaf and id(one) not in seen:
            seen.add(id(one))
            yield path, one


def above(path: str) -> Iterator[str]:
    """A module's name, and the names of those that it is in."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def covers(numbers: Set[int], before: Mapping[int, str], path: str) -> bool:
    """Whether these are all that was trained in one of the modules that another parameter has come into."""
    for one in above(path):
        inside = {number for number, place in before.items() if one in above(place)}
        if inside and inside <= numbers:
            return True
    return False
