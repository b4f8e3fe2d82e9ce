"""The steps of a training: where one ends, and whose optimizer makes it.

A step ends when the optimizer has made it. Where none tells of itself (a scaler skipped it, it is compiled, the weights are changed by
hand) it ends when the next pass of the model begins.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

from torch import Tensor

from modlab.compat import graph_task
from modlab.running.guarded import apart, guarded
from modlab.statistics.memory import local
from modlab.watching.no_autograd import quietly
from modlab.watching.optimizer_hooks import OptimizerHooks
from modlab.watching.sample import captured
from modlab.wording import joined

if TYPE_CHECKING:
    from modlab.watching.watcher import Watcher


UNTOLD = 5
"""Changes of the weights in a row of which an optimizer does not tell, that has told of a step before: from then on they are steps."""

ROW = 2
"""Steps in a row, after which an optimizer is known to train by itself for a while: the steps of all that do so count."""

ALONE = 20
"""Steps since the last one of the optimizer whose steps are counted, after which another one has come in its place."""


class Steps:
    """Counts them, and wakes the watcher in those that are looked at.

    Args:
        watcher: the watch.
        optimizers: whose first one's steps are the steps; none: the first that holds one of the model's parameters. What others
            hold is judged by their own steps, which are not counted, unless they take turns with the first.

    Attributes:
        made: so far; `others`: steps of optimizers that are not theirs; `passes`: training passes of the root.
        beside: of these others, the steps of those that hold parameters of the model.
        wake: the step from which on the watcher wants to be woken.
        under_way: whether an optimizer makes one now that is looked at: a closure's passes belong to it.
        thread: in which the last step was made; 0 before the first one.
        call: the number of the call of an optimizer that is under way; 0 outside of one.
        skipped: of the steps looked at, those that no optimizer made though there is one.
    """

    def __init__(self, watcher: Watcher, optimizers: list[Any]) -> None:
        self.ends = self._watcher = watcher
        self._cast, self._controls = watcher.cast, watcher.controls
        self.made = self.others = self.passes = self.wake = self.skipped = 0
        self.under_way = False
        self.call = self._calls = self.thread = self.beside = 0
        self._since: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # steps of others with parameters since its last one
        self._turning: WeakSet[Any] = WeakSet()  # optimizers that made some steps in a row
        self._row: tuple[int, int] = 0, 0  # which one made the last steps, and how many in a row
        self._under_way: list[int] = []  # optimizers with parameters that make one now, the inner ones last
        self._stepping: ReferenceType[Any] | None = None  # whose step is looked at
        self.optimizer_name = type(optimizers[0]).__name__ if optimizers else ""
        self._main = id(optimizers[0]) if optimizers else 0
        self._optimizers: list[ReferenceType[Any]] = [ref(one) for one in optimizers]
        self._held: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self.hooks = OptimizerHooks(self._begins, self._ended)
        self._versions: tuple[int, ...] = ()
        self._begun: tuple[int, ...] = ()
        self._patience, self._untold = 2, 0  # so often may the weights be changed, and were, since an optimizer told of a step
        self._told = True  # whether the optimizer told of a step since the last pass

    def open(self) -> None:
        """Begin to count."""
        self._begun = self._weight_versions()
        self.hooks.open()
        self.wake = 1
        if self._optimizers:
            self._cast.own(self.optimizers)

    def close(self) -> None:
        """Stop; may be called again, where the first time was interrupted."""
        self.hooks.close()

    # ---- whose

    @property
    def optimizers(self) -> list[Any]:
        """Those that are known, and still exist."""
        return [optimizer for optimizer in (one() for one in self._optimizers) if optimizer is not None]

    def learning_rate(self) -> float | None:
        """The greatest of theirs; None if there is none."""
        rates = [group.get("lr") for optimizer in self.optimizers for group in optimizer.param_groups]
        return max((float(rate) for rate in rates if rate is not None), default=None)

    def rates(self, tensors: list[Any]) -> set[float]:
        """Those of the groups that hold any of some parameters."""
        some = set(map(id, tensors))
        groups = [group for one in self.optimizers for group in one.param_groups]
        return {float(group["lr"]) for group in groups if group.get("lr") is not None and some & set(map(id, group["params"]))}

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
        self._lead(optimizer)
        return True

    def _lead(self, optimizer: Any) -> None:
        """Its steps are the steps from now on."""
        self._main, self.optimizer_name = id(optimizer), type(optimizer).__name__
        self._optimizers = [ref(optimizer), *(ref(one) for one in self.optimizers if one is not optimizer)]
        self._catch_up(optimizer)
        self._cast.own(self.optimizers)

    def _catch_up(self, optimizer: Any) -> None:
        """Its steps count from now on, and so do the last ones."""
        late = self._since.pop(optimizer, 0)
        self.made += late
        self.beside -= late
        self.others -= late

    def _is_replaced(self, optimizer: Any) -> bool:
        """Whether the optimizer whose steps are counted is gone, or another one has made some steps in its place."""
        shares = self._shares_with(optimizer)
        return shares is None or self._since.get(optimizer, 0) >= (UNTOLD if shares else ALONE)

    def _shares_with(self, optimizer: Any) -> bool | None:
        """Whether it holds parameters of the one whose steps are counted; None if that one is gone."""
        main = next((one for one in self.optimizers if id(one) == self._main), None)
        return None if main is None else not _held(main).isdisjoint(_held(optimizer))

    def joins(self, optimizer: Any) -> bool:
        """Whether an optimizer that is not the one whose steps are counted holds parameters of the model, and is known from now on."""
        if not self.holds(optimizer):
            return False
        if not any(one is optimizer for one in self.optimizers):
            self._optimizers.append(ref(optimizer))
            for group in optimizer.param_groups:
                for weight in map(self._cast.weight, group["params"]):
                    if weight is not None:
                        weight.owned = True
        return True

    def shares(self) -> tuple[set[int] | None, set[int]]:
        """The parameters that the step under way moves, by identity, and those that only other optimizers hold.

        None for the former where all must be asked: no optimizer is known, or it holds copies of the model's parameters.
        """
        known, stepping = self.optimizers, None if self._stepping is None else self._stepping()
        main = stepping or next((one for one in known if id(one) == self._main), None)
        mine = set() if main is None else _held(main)
        if main is None or not self.holds(main):
            return None, set()
        return mine, set().union(*(_held(one) for one in known if one is not main)) - mine

    def holds(self, optimizer: Any) -> bool:
        """Whether an optimizer holds any of the model's parameters."""
        known = self._held.get(optimizer)
        if known is None:
            known = self._held[optimizer] = any(self._cast.knows(tensor) for group in optimizer.param_groups for tensor in group["params"])
        return known

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

    # ---- told by an optimizer

    @guarded  # a replay runs the model as it is
    def _begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The weights are still good."""
        watcher = self._watcher
        self._calls += 1
        self.call = self._calls
        self._enters(optimizer)
        if watcher.losses.awaiting and graph_task() == -1:
            watcher.losses.judged_with(optimizer)
        if not watcher.attends or captured():
            return
        if not self.are_of(optimizer):
            if self.under_way:
                watcher.inner_step_begins()
            elif self.joins(optimizer):
                watcher.other_step_begins(optimizer)
            return
        self.under_way, self._stepping = True, ref(optimizer)
        watcher.step_begins(_has_closure(optimizer, args, kwargs), scaled=_verdict(optimizer) is not None)

    @apart
    def _ended(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.call = 0
        guard, losses = self._watcher.guard, self._watcher.losses
        if losses.awaiting and graph_task() == -1:
            losses.judged_with(optimizer)
        inner = self._leaves(optimizer)
        if inner or not self.are_of(optimizer):
            self.others += 1
            if not inner and self.holds(optimizer):
                self._made_beside(optimizer)
            if not self.under_way:
                if losses.due():
                    losses.step_ended(optimizer)
                self._watcher.other_step_ended(optimizer)
            return
        if losses.due():
            losses.step_ended(optimizer)
        self._since.clear()
        self.made += 1
        self.thread = get_ident()
        self._tells()
        self.under_way = False
        wonders = not guard.standing and guard.wonders(self.made - 1)
        if self.made >= self.wake or self._controls.attention:
            if not captured():
                verdict = _verdict(optimizer)
                skipped = verdict is not None and quietly(bool, verdict)
                self.skipped += skipped
                self._watcher.step_ended(stepped=not skipped)
        elif guard.standing:
            guard.rest()
        if wonders and not captured() and _verdict(optimizer) is None:
            guard.glance()

    def _tells(self) -> None:
        """A step was told of."""
        self._told, self._patience, self._untold = True, UNTOLD, 0
        if self._watcher.guard.hidden:
            self._watcher.guard.seen()

    def _made_beside(self, optimizer: Any) -> None:
        """A step with parameters of the model that is not counted, so far."""
        self._since[optimizer] = self._since.get(optimizer, 0) + 1
        self.beside += 1
        self._tells()

    def _enters(self, optimizer: Any) -> None:
        """Who makes a step now; one whose last step raised is not left out for that."""
        if self.holds(optimizer):
            if id(optimizer) in self._under_way:
                del self._under_way[self._under_way.index(id(optimizer)) :]
            self._under_way.append(id(optimizer))

    def _leaves(self, optimizer: Any) -> bool:
        """Its step is over: was it a part of another one's? If not, how many has it made in a row?"""
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

    # ---- told by nobody

    def pass_begins(self) -> None:
        """A training pass of the root begins. If the step before was never made by an optimizer, it ends here."""
        watcher = self._watcher
        self.passes += 1
        if watcher.closed or self.under_way or captured():
            return
        kept = watcher.passes_kept()
        versions = self._weight_versions()
        ended = bool(kept) and kept[-1].backwards and self._is_over(versions)
        if ended:
            self.skipped += bool(self._main) and versions == self._versions
            self.made += self._untold or 1
            self._untold, self._patience = 0, 1
            watcher.step_over()
        self._versions, self._told = versions, False

    def _is_over(self, versions: tuple[int, ...]) -> bool:
        """Whether a backward pass ended a step: nobody makes steps that we see, they are compiled, or a scaler skipped this one."""
        if (versions != self._versions or (not self._main and self._grads_gone())) and not self._told:
            self._untold += 1  # or the weights are moved for a while, as SAM moves them, or others take their place
            over = self._untold >= self._patience
            if over and self._main:
                self._watcher.guard.unseen()
            return over
        return bool(self._main) and self._watcher.guard.spoilt and self._grads_gone()

    def are_hidden(self) -> bool:
        """Whether the weights were changed, and no step was seen: a compiled function may make them whole."""
        return not self.made and self._weight_versions() != self._begun

    def _weight_versions(self) -> tuple[int, ...]:
        """How often some weights have been changed in place."""
        some = (weight.tensor() for weight in self._cast.weights[:4])
        return tuple(-1 if one is None or one.is_inference() else one._version for one in some)

    def _grads_gone(self) -> bool:
        """Whether what the last backward pass brought was thrown away: a step is over, though no optimizer made one."""
        for weight in self._cast.weights:
            tensor = weight.tensor()
            if tensor is not None and tensor.requires_grad and tensor.grad is not None:
                return not bool(quietly(local(tensor.grad).any))
        return True


def _has_closure(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a step computes its gradients itself; torch hands the optimizer on as the first of its arguments."""
    return any(callable(given) and given is not optimizer for given in (*args, kwargs.get("closure")))


def _held(optimizer: Any) -> set[int]:
    """The tensors of an optimizer, by identity."""
    return {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}


def _verdict(optimizer: Any) -> Tensor | None:
    """What a scaler found in the gradients of an optimizer that skips a step by itself, as fused ones do; None if there is no such."""
    found = vars(optimizer).get("found_inf")
    return found if isinstance(found, Tensor) else None
