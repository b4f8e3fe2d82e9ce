"""The steps of a training: how many there are, and whose optimizer makes them."""

from __future__ import annotations

from threading import get_ident
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

from torch import Tensor

from modlab.watching.watch_index import WatchIndex, Weight
from modlab.wording import joined

ROW = 2
"""Steps in a row, after which an optimizer is known to train by itself for a while: the steps of all that do so count."""

PACE = 0.9
"""Of the steps that are counted, so many has an optimizer made that goes with them."""

ALONE = 20
"""Steps since the last one of the optimizer whose steps are counted, after which another one has come in its place."""

SOON = 5
"""The same, where it holds parameters of that one."""


class Steps:
    """Counts them, and knows whose they are.

    Args:
        index: the parameters that they move.
        optimizers: whose first one's steps are the steps; none: the first that holds one of the model's parameters. What others
            hold is judged by their own steps, which are not counted, unless they take turns with the first.

    Attributes:
        made: so far; `others`: steps of optimizers that are not theirs; `passes`: training passes of the root.
        heard: whether an optimizer that holds parameters of the model ever told of a step.
        untold: changes of the weights before that, which may be steps by hand.
        beside: of these others, the steps of those that hold parameters of the model.
        wake: the step from which on the watcher wants to be woken.
        under_way: whether an optimizer makes one now that is looked at: a closure's passes belong to it.
        thread: in which the last step was made; 0 before the first one.
        call: the number of the call of an optimizer that is under way; 0 outside of one.
        skipped: of the steps looked at, those that no optimizer made though there is one.
        exchanged: how often the optimizer whose steps are counted was gone, and another one had come in its place.
    """

    def __init__(self, index: WatchIndex, optimizers: list[Any]) -> None:
        self._index = index
        self.made = self.others = self.untold = self.passes = self.wake = self.skipped = self.exchanged = 0
        self.under_way = self.heard = False
        self.call = self._calls = self.thread = self.beside = 0
        self._since: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # steps of others with parameters since its last one
        self._turning: WeakSet[Any] = WeakSet()  # optimizers that made some steps in a row
        self._row: tuple[int, int] = 0, 0  # which one made the last steps, and how many in a row
        self._made: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # steps of each optimizer that has made any
        self._replaced: WeakSet[Any] = WeakSet()  # optimizers in whose place another one came
        self._under_way: list[int] = []  # optimizers with parameters that make one now, the inner ones last
        self._stepping: ReferenceType[Any] | None = None  # whose step is looked at
        self.optimizer_name = type(optimizers[0]).__name__ if optimizers else ""
        self._main = id(optimizers[0]) if optimizers else 0
        self._optimizers: list[ReferenceType[Any]] = [ref(one) for one in optimizers]
        self._held: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    def open(self) -> None:
        """Begin to count."""
        self.wake = 1
        if self._optimizers:
            self._index.own(self.optimizers)

    @property
    def epoch(self) -> int:
        """Another number whenever the weights have moved: what goes backward belongs together as long as it is the same."""
        return self.made + self.others + self.untold

    # ---- whose

    @property
    def optimizers(self) -> list[Any]:
        """Those that are known, and still exist."""
        return [optimizer for optimizer in (one() for one in self._optimizers) if optimizer is not None]

    def learning_rate(self) -> float | None:
        """The greatest of theirs; None if there is none."""
        rates = [group.get("lr") for optimizer in self.optimizers for group in optimizer.param_groups]
        return max((float(rate) for rate in rates if rate is not None), default=None)

    def are_of(self, optimizer: Any) -> bool:
        """Whether a step of this optimizer ends a step of the training."""
        return id(optimizer) == self._main or self._takes_turns(optimizer) or self._adopts(optimizer)

    def _takes_turns(self, optimizer: Any) -> bool:
        """Whether it trains for some steps, and the one whose steps are counted for some others."""
        return optimizer in self._turning and any(id(one) == self._main for one in self._turning)

    def _adopts(self, optimizer: Any) -> bool:
        """Take the first optimizer that holds one of the parameters, where there is none, or another one has come in its place."""
        if (self._main and not self._is_replaced(optimizer)) or not self.holds(optimizer):
            return False
        self.exchanged += bool(self._main)
        self._lead(optimizer)
        return True

    def _lead(self, optimizer: Any) -> None:
        """Its steps are the steps from now on. One that holds other parameters is still theirs."""
        self._replaced.update(one for one in self.optimizers if id(one) == self._main and not _held(one).isdisjoint(_held(optimizer)))
        self._replaced.discard(optimizer)
        self._main, self.optimizer_name = id(optimizer), type(optimizer).__name__
        self._optimizers = [ref(optimizer), *(ref(one) for one in self.optimizers if one is not optimizer)]
        self._catch_up(optimizer)
        self._index.own(self.optimizers)

    def _catch_up(self, optimizer: Any) -> None:
        """Its steps count from now on, and so do the last ones."""
        late = self._since.pop(optimizer, 0)
        self.made += late
        self.beside -= late
        self.others -= late

    def _is_replaced(self, optimizer: Any) -> bool:
        """Whether the optimizer whose steps are counted is gone, or another one has made some steps in its place."""
        shares = self._shares_with(optimizer)
        return shares is None or self._since.get(optimizer, 0) >= (SOON if shares else ALONE)

    def _shares_with(self, optimizer: Any) -> bool | None:
        """Whether it holds parameters of the one whose steps are counted; None if that one is gone."""
        main = next((one for one in self.optimizers if id(one) == self._main), None)
        return None if main is None else not _held(main).isdisjoint(_held(optimizer))

    def joins(self, optimizer: Any) -> bool:
        """Whether an optimizer that is not the one whose steps are counted holds parameters of the model, and is known from now on."""
        if not self.holds(optimizer):
            return False
        self._replaced.discard(optimizer)
        if not any(one is optimizer for one in self.optimizers):
            self._optimizers.append(ref(optimizer))
            for group in optimizer.param_groups:
                for weight in map(self._index.weight, group["params"]):
                    if weight is not None:
                        weight.owned = True
        return True

    def at_work(self) -> list[Any]:
        """Those that are known, without those in whose place another one came."""
        return [one for one in self.optimizers if one not in self._replaced]

    def shares(self) -> tuple[set[int] | None, set[int]]:
        """The parameters that the step under way moves, by identity, and those that only other optimizers hold.

        None for the former where all must be asked: no optimizer is known, or it holds copies of the model's parameters.
        """
        known, stepping = self.optimizers, None if self._stepping is None else self._stepping()
        main = stepping or next((one for one in known if id(one) == self._main), None)
        mine = set() if main is None else _held(main)
        if main is None or not self.holds(main):
            return None, set()
        return mine, set().union(*(_held(one) for one in known if one is not main and not self._sleeps(one))) - mine

    def _sleeps(self, optimizer: Any) -> bool:
        """Whether an optimizer makes no step while others do."""
        return self.heard and optimizer not in self._made and self.made >= SOON

    def asleep(self) -> tuple[str, tuple[str, ...]]:
        """The class of an optimizer that makes no step while others do, and the parameters that it alone holds; empty if there is none."""
        for one in self.optimizers:
            if self._sleeps(one) and self.holds(one):
                return type(one).__name__, tuple(weight.path for weight in self.alone(one))
        return "", ()

    def alone(self, optimizer: Any) -> list[Weight]:
        """The parameters of the model that it holds and no other one."""
        others = set().union(*(_held(other) for other in self.optimizers if other is not optimizer))
        held = (self._index.weight(tensor) for group in optimizer.param_groups for tensor in group["params"] if id(tensor) not in others)
        return [weight for weight in held if weight is not None]

    def keeps_pace(self, optimizer: Any) -> bool:
        """Whether it makes a step in nearly each of those that are counted."""
        return self._made.get(optimizer, 0) >= PACE * self.made

    def holds(self, optimizer: Any) -> bool:
        """Whether an optimizer holds any of the model's parameters."""
        known = self._held.get(optimizer)
        if known is None:
            known = self._held[optimizer] = any(self._index.knows(tensor) for group in optimizer.param_groups for tensor in group["params"])
        return known

    def counts(self, optimizer: Any) -> bool:
        """Whether its steps are those that are counted, as far as is known before this one ends."""
        return id(optimizer) == self._main or self._takes_turns(optimizer)

    def is_held(self, tensor: Tensor) -> bool:
        """Whether any optimizer holds a tensor that is known, or has made a step."""
        return any(id(tensor) in _held(one) for one in (*self.optimizers, *self._held))

    @property
    def labels(self) -> list[str]:
        """Their names; those of one class with their number."""
        names = [type(one).__name__ for one in self.optimizers]
        return [name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}" for i, name in enumerate(names)]

    @property
    def label(self) -> str:
        """The name of the one whose steps are counted; of those that take turns, of all."""
        counted = [name for name, one in zip(self.labels, self.optimizers, strict=True) if id(one) == self._main or self._takes_turns(one)]
        return joined(counted) or self.optimizer_name

    # ---- one after the other

    def begins(self, optimizer: Any) -> None:
        """An optimizer makes the step that is looked at."""
        self.under_way, self._stepping = True, ref(optimizer)

    def ended(self) -> None:
        """It has made it."""
        if self._since:  # to clear what is empty takes far longer
            self._since.clear()
        self.made += 1
        self.thread = get_ident()
        self.under_way = False

    def made_beside(self, optimizer: Any) -> None:
        """A step with parameters of the model that is not counted, so far."""
        self._since[optimizer] = self._since.get(optimizer, 0) + 1
        self.beside += 1

    def enters(self, optimizer: Any) -> None:
        """Who makes a step now; one whose last step raised is not left out for that."""
        self._calls += 1
        self.call = self._calls
        self._made[optimizer] = self._made.get(optimizer, 0) + 1
        if self.holds(optimizer):
            if id(optimizer) in self._under_way:
                del self._under_way[self._under_way.index(id(optimizer)) :]
            self._under_way.append(id(optimizer))

    def leaves(self, optimizer: Any) -> bool:
        """Its step is over: was it a part of another one's? If not, how many has it made in a row?"""
        self.call = 0
        if id(optimizer) not in self._under_way:
            return False
        del self._under_way[self._under_way.index(id(optimizer)) :]
        if self._under_way:
            return True
        self._row = id(optimizer), self._row[1] + 1 if self._row[0] == id(optimizer) else 1
        if self._row[1] >= ROW and optimizer not in self._turning:
            self._turning.add(optimizer)
            if id(optimizer) != self._main and self._takes_turns(optimizer):
                (self._lead if self._shares_with(optimizer) else self._catch_up)(optimizer)
        return False


def _held(optimizer: Any) -> set[int]:
    """The tensors of an optimizer, by identity."""
    return {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
