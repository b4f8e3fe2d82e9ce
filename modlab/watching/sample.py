"""A sample is one step that is looked at: every module's output and its gradient, every parameter, its gradient and its update.

All is measured on the spot; of tensors nothing is kept beyond the step, and nothing is put on a module. What an accelerator measured
is read later, when it is there (`ReadBack`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.compat import graph_task, is_transformed, without_autograd, without_torch_function
from modlab.frozen import frozen
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER
from modlab.running import clock
from modlab.running.guarded import Look, timed
from modlab.running.tensor_hooks import TensorHooks
from modlab.running.values import leaves
from modlab.statistics.memory import local, part_of
from modlab.watching import axes
from modlab.watching.batched_statistics import JOINED, LARGE, BatchedStatistics, Readings, ScratchBuffer, evenly, has_numbers
from modlab.watching.clues import PASSES, ClueCollector
from modlab.watching.engine_calls import accumulates
from modlab.watching.last_step import LastPass, run_aside
from modlab.watching.light_samples import LightSamples
from modlab.watching.module_hooks import ModuleHooks
from modlab.watching.neurons import Neurons, by_unit
from modlab.watching.readback import Numbers, ReadBack, is_far
from modlab.watching.shadow import Shadow
from modlab.watching.steps import Steps
from modlab.watching.units import MOST, Units, is_silenced, is_silencing
from modlab.watching.updates import MovedElsewhere, UpdateGroup, Updates
from modlab.watching.watch_index import RUN, STACKED, Member, WatchIndex, Weight

RARELY = 5
"""Parameters, which change slowly, are measured in every so-manieth of samples in a row, and so are units of large outputs."""

ENOUGH = 1_000
"""Inputs on which these were counted before that."""

SATURATING: dict[Any, tuple[float, float]] = {
    nn.Tanh: (-1.0, 1.0),
    nn.Hardtanh: (-1.0, 1.0),
    nn.Sigmoid: (0.0, 1.0),
    nn.Hardsigmoid: (0.0, 1.0),
    "TanhBackward0": (-1.0, 1.0),
    "SigmoidBackward0": (0.0, 1.0),
    "HardsigmoidBackward0": (0.0, 1.0),
}
"""Activation functions with two ends, where no gradient passes: modules by their type, others by their node in the graph."""

ALL_UNITS = 16_384
"""Units that are counted one by one, in all modules together."""

ASKED = 32
"""Gradients, about, that are asked whether they are zero when a backward pass begins."""

A_FEW = 3
"""Of the parameters of each of several optimizers that are asked the same."""

GRADIENTS = 5_000
"""Outputs whose gradient is waited for, in one step."""


@frozen
class Shared:
    """What the samples of one watch share.

    Attributes:
        roots: identities of the model, and of what a compiler made of it.
        units: that are counted, by module; `uncounted`: modules whose units are not, and why.
        scratch: memory in which numbers are joined.
        light: samples that count these units too.
        elsewhere: what moves parameters, besides the optimizers.
        clues: of the batch, the loss and the loop.
        standing: of parameters of several optimizers, the gradients that the last sample met: to zero one to None makes a new one.
    """

    index: WatchIndex
    roots: set[int]
    modules: ModuleHooks
    steps: Steps
    units: dict[str, Units]
    uncounted: dict[str, str]
    neurons: Neurons
    scratch: ScratchBuffer
    light: LightSamples
    elsewhere: MovedElsewhere
    clues: ClueCollector
    standing: dict[str, ReferenceType[Tensor]]


class Sample:
    """The hooks of one step, and what they measured.

    Args:
        ends: what an error of ours ends.
        shared: what it takes from those before, and leaves to those after it.
        number: how many there were before.
        alone: whether the step before was not looked at.
    """

    def __init__(self, ends: Look, shared: Shared, number: int, *, alone: bool) -> None:
        start = clock.now()
        self.ends, self.shared, self._number = ends, shared, number
        self.index, self.step = shared.index, shared.steps.made
        self.forwards = self.backwards = 0
        self.evaluated = 0  # calls of the root in evaluation mode that built a graph
        self.thrown = False  # whether a scaler skipped a step in it, and the gradients of another one came
        self.stepped = False  # whether anybody changed the weights, as far as that is known
        self.tasks: set[int] = set()  # backward passes
        self.accumulates = False  # whether one of them adds to gradients
        self.carried = True  # whether at the start of each that does there were gradients already
        self._of_each: list[list[Weight]] | None = None  # of several optimizers, parameters that are asked the same
        self._zeroed_of: set[int] = set()  # which of these had none at the start of one
        self.saturated: dict[str, tuple[float, float, bool]] = {}  # shares at both ends, and whether it may be a gate
        self._parts = self.index.parts
        self._part = number % self._parts
        self.binned = self.index.history.wants_bins()
        self.back = ReadBack()
        self.statistics = BatchedStatistics(self.binned, self.back, shared.scratch)
        self.moves = Updates()
        self._wanted = shared.neurons.begin()
        self.readings: Readings | None = None
        self.flows: dict[tuple[str, str], Numbers] = {}  # of a small net: what each unit gives, gets back and weighs
        self.closing = False
        self.stuck: dict[int, float] = {}
        self.hooks = TensorHooks()
        self._inside = 0  # calls of the root
        self._measured: dict[int, tuple[ReferenceType[Tensor], int, list[int], list[Member]]] = {}
        self._makers: dict[int, tuple[ReferenceType[Tensor], Member]] = {}
        self._functions: dict[Any, Member] = {}
        self._told: set[Any] = set()  # those whose ends were looked at where a module gave them
        self._present: list[tuple[int, Weight, Tensor]] = []  # the parameters, from before the step to its end
        self._others: dict[int, Updates] = {}  # of optimizers whose steps are not those that are counted
        self._by_identity: dict[int, tuple[int, Weight, Tensor]] = {}
        self._theirs: set[int] = set()  # the parameters that only these hold
        self._read_parameters = self._read_gradients = self._by_hand = False
        self._also = number % RARELY == 0 or alone or self.index.parts > 1
        shared.clues.begin(self.step)
        shared.modules.on()
        self.seconds = self._opened = clock.now() - start
        self.counted = 0.0  # seconds of them that it took to count units

    @property
    def whole(self) -> bool:
        """Whether all of the model is looked at."""
        return self._parts == 1

    @property
    def hooked(self) -> float:
        """Seconds that its hooks took."""
        return self.seconds - self._opened

    # ---- what the hooks call: each takes its own time, and an error in it ends the watch and not the training

    @timed
    def enter(self, module: Module, args: tuple[Any, ...]) -> None:
        """A module is called."""
        if run_aside() or self._has_enough():
            return
        if id(module) in self.shared.roots:
            if not self._inside and not self._begins_pass(module):
                return
            if not self._inside:
                self.shared.clues.takes(args)
            self._inside += 1
        elif id(module) in self.index.members and args and isinstance(args[0], Tensor) and torch.is_grad_enabled():
            with without_torch_function():
                self._see_activation(module, args[0])

    @timed
    def leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Its forward has returned."""
        member, is_root = self.index.members.get(id(module)), id(module) in self.shared.roots
        if (member is None and not is_root) or run_aside() or self._has_enough():
            return
        again = graph_task() != -1  # computed once more under checkpointing
        trains = torch.is_grad_enabled() if again else self._inside > 0 or (torch.is_grad_enabled() and module.training)
        if trains and member is not None:
            with without_torch_function():
                self._take(member, module, args, output, again=again)
                if not again:
                    self.shared.clues.gave(member, module, args, kwargs, output)
        if is_root and self._inside:
            self._inside -= 1
            if not self._inside:
                self.shared.clues.took(kwargs)
                self._makers.clear()
                self._functions.clear()
                self._told.clear()

    def _has_enough(self) -> bool:
        """Whether nothing more is measured before the step: it may never come."""
        return not self._inside and len(self.tasks) >= PASSES

    @timed
    def step_begins(self, closure: bool) -> None:
        """The optimizer is about to make its step; with a closure the gradients are computed in it."""
        without_autograd(self.read_parameters, gradients=not closure)
        without_autograd(self.shared.clues.step_begins)

    @timed
    def inner_step_begins(self) -> None:
        """An optimizer inside of that one is about to make its step: what the closure computed may be thrown away afterwards."""
        if self._read_parameters and not self._read_gradients:
            self._read_gradients = True
            without_autograd(self.read_gradients)

    @timed
    def other_begins(self, optimizer: Any) -> None:
        """Another optimizer is about to make a step: its own parameters are measured now. The first of its steps in a sample is enough."""
        if id(optimizer) not in self._others:
            without_autograd(self._read_others, optimizer)

    @timed
    def other_ended(self, optimizer: Any) -> None:
        """It has made it."""
        moves = self._others.get(id(optimizer))
        if moves is not None:
            without_autograd(self._read_moves, moves)

    def backward_ended(self) -> None:
        """No optimizer will tell of the step: what comes next may change the weights."""
        self._by_hand = True
        without_autograd(self.read_parameters, gradients=True)

    @timed
    def _graded(self, members: list[Member], gradient: Tensor) -> None:
        self.backwards += 1
        with without_torch_function():
            task = graph_task()
            self.shared.clues.graded(task)
            if task not in self.tasks:
                self.tasks.add(task)
                if accumulates():
                    self.accumulates = True
                    if self.carried:
                        self._ask_zeroed()
                    self._ask_each()
            self.statistics.add([member.gradient for member in members], gradient, fleeting=True)
            for member in members:
                units = self.shared.units.get(member.path)
                if units is not None and units.feels():
                    units.feel(local(gradient), self.back)
                self._note(GRADIENT, member.path, gradient)

    def _ask_zeroed(self) -> None:
        """Whether a parameter that had a gradient has none now: those of several models are zeroed at different times."""
        graded = []
        for weight in self.index.weights:
            tensor = weight.tensor() if weight.felt and weight.trainable else None
            if tensor is None:
                continue
            if tensor.grad is None:
                self._zeroed(True)
                return
            if weight.graded:
                graded.append(local(tensor.grad))
        some = graded[:: max(1, len(graded) // ASKED)]
        far = [gradient for gradient in some if is_far(gradient)]
        if not some or any(not bool(gradient.any()) for gradient in some if not is_far(gradient)):
            self._zeroed(True)
        elif far:
            alike = [gradient for gradient in far if gradient.device == far[0].device]
            self.back.ask(torch.stack([gradient.any() for gradient in alike]).all(), lambda read: self._zeroed(not read))
        else:
            self._zeroed(False)

    def _zeroed(self, zeroed: bool) -> None:
        self.carried = self.carried and not zeroed

    def _ask_each(self) -> None:
        """Which of several optimizers hold gradients already: players take turns, and each zeroes its own."""
        if self._of_each is None:
            steps = self.shared.steps
            several = steps.optimizers if len(steps.optimizers) > 1 else []
            held = [[one for one in steps.alone(optimizer) if one.trainable] for optimizer in several if steps.keeps_pace(optimizer)]
            self._of_each = [some[:: max(1, len(some) // A_FEW)] for some in held if some]
        for i, some in enumerate(self._of_each):
            for weight in some:
                tensor = weight.tensor()
                gradient = None if tensor is None else tensor.grad
                if gradient is None or not self._stands(weight.path, gradient):
                    self._zeroed_of.add(i)
                elif i not in self._zeroed_of:
                    self.back.ask(local(gradient).any(), partial(self._told_of, i))

    def _stands(self, path: str, gradient: Tensor) -> bool:
        """Whether it is the one that the last sample met."""
        known, self.shared.standing[path] = self.shared.standing.get(path), ref(gradient)
        return known is not None and known() is gradient

    def _told_of(self, i: int, graded: Any) -> None:
        if not graded:
            self._zeroed_of.add(i)

    @property
    def unzeroed(self) -> list[list[Weight]]:
        """Of each of several optimizers that had gradients whenever a backward pass began, some of its parameters."""
        return [some for i, some in enumerate(self._of_each or ()) if i not in self._zeroed_of]

    def _note(self, role: str, path: str, tensor: Tensor) -> None:
        """Of a layer of a small net, what flows through each unit."""
        tensor = local(tensor)
        if path in self._wanted and has_numbers(tensor):
            self.back.ask(by_unit(tensor), partial(self.flows.__setitem__, (role, path)))

    # ---- the forward pass

    def _begins_pass(self, root: Module) -> bool:
        """Whether this call of the root belongs to the training."""
        if not (torch.is_grad_enabled() and root.training) or graph_task() != -1:
            self.evaluated += torch.is_grad_enabled() and not root.training and graph_task() == -1
            return False
        self.forwards += 1
        return True

    def _take(self, member: Member, module: Module, args: tuple[Any, ...], output: Any, *, again: bool) -> None:
        if not again:
            self.index.calls(member)
        if self._parts > 1 and not self._takes(member.place) and member.path:
            return
        tensor = _first(output)
        if tensor is None or not member.taken:
            return
        version, known = _version(tensor), self._measured.get(id(tensor))
        if known is None or known[0]() is not tensor or known[1] != version:
            known = self._measured[id(tensor)] = ref(tensor), version, [], []
        if not again:
            self._measure(member, tensor, known[2])
            self._remember(member, module, args, tensor)
        if tensor.requires_grad and not tensor.is_leaf and len(self.hooks) < GRADIENTS and not is_transformed(tensor):
            self._await(member, tensor, known[3])

    def _takes(self, place: int) -> bool:
        """Whether a module or parameter of a very large model is in the part that this sample looks at: neighbours are together."""
        return place // RUN % self._parts == self._part

    def _measure(self, member: Member, tensor: Tensor, rows: list[int]) -> None:
        """The activation, once for all modules that hand on the same tensor."""
        row = self.index.activation(member)
        if row < 0 or row in rows:  # too many; or a wrapper's, and what it wraps
            return
        rows.append(row)
        if len(rows) == 1:
            self.statistics.add(rows, tensor, fleeting=True)
        self.index.history.describe(row, tensor)

    def _await(self, member: Member, tensor: Tensor, members: list[Member]) -> None:
        """Its gradient, by one hook for all of them."""
        row = self.index.gradient(member)
        if row < 0:
            return
        self.index.history.describe(row, tensor)
        members.append(member)
        if len(members) == 1:
            self.hooks.add(tensor, partial(self._graded, members))

    # ---- units: whose activation is read where

    def _remember(self, member: Member, module: Module, args: tuple[Any, ...], tensor: Tensor) -> None:
        """Who made a tensor, so that what reads it after an activation function can be told."""
        taken = args[0] if args and isinstance(args[0], Tensor) else None
        if not self.shared.neurons.settled and taken is not None and taken.dim() and tensor.dim():
            member.sizes = taken.shape[-1], tensor.shape[-1]
        ends = SATURATING.get(type(module))
        if ends is not None:
            self._saturates(member.path, tensor, ends)
            self._told.add(tensor.grad_fn)
        if is_silencing(module):
            maker = None if taken is None else self._maker(taken) or self._made_before(tensor.grad_fn)
            if maker is not None:
                self._see(maker, module, tensor, member.path or "the model", output=True)
            return
        if tensor.dim() and self._maker(tensor) is None:  # else a module inside made it, and its units are that one's
            maker = (None if taken is None or not isinstance(module, axes.PASSING) else self._maker(taken)) or member
            self._makers[id(tensor)] = ref(tensor), maker
            if tensor.grad_fn is not None and self._inside:
                self._functions.setdefault(tensor.grad_fn, maker)
        self._note(ACTIVATION, member.path, tensor)

    def _see_activation(self, module: Module, taken: Tensor) -> None:
        """An input that comes out of an activation function which is not a module."""
        function = taken.grad_fn
        ends = None if function is None else SATURATING.get(type(function).__name__)
        if function is None or is_silencing(module) or not (ends or is_silenced(function)):
            return
        maker = self._made_by(axes.computed(function)) if ends else self._made_before(function)
        if maker is not None and ends:
            if function not in self._told:
                self._saturates(maker.path, taken, ends)
        elif maker is not None:
            path = self.index.members[id(module)].path or "the model"
            self._see(maker, module, taken, f"the input of {path}", output=False)

    def _saturates(self, path: str, tensor: Tensor, ends: tuple[float, float]) -> None:
        """The shares of values within 2 % of the ends of a function's range."""
        tensor = local(tensor)
        if not has_numbers(tensor):
            return
        low, high = ends
        margin = 0.02 * (high - low)
        values = tensor.detach()
        shares = torch.stack([(values < low + margin).float().mean(), (values > high - margin).float().mean()])
        self.back.ask(shares, lambda read: self.saturated.__setitem__(path, (float(read[0]), float(read[1]), low == 0)))

    def _maker(self, tensor: Tensor) -> Member | None:
        known = self._makers.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None

    def _made_by(self, node: Any) -> Member | None:
        """Who returned what a function of the graph made, or what it only laid out anew."""
        for _ in range(axes.DEEP):
            maker = self._functions.get(node)
            if maker is not None or node is None or not axes.keeps_numbers(node):
                return maker
            node = node.next_functions[0][0]
        return None

    def _made_before(self, function: Any) -> Member | None:
        """Whose units a function silences, perhaps after a threshold was subtracted: the layer's, or of one by hand, the module's."""
        way = [*axes.before(function)] if function is not None else []
        maker = next((self._functions[node] for node in way if node in self._functions), None)
        return maker or (self._functions.get(function) if way and axes.is_layer(way[-1]) else None)

    def _owner(self, node: Any) -> Module | None:
        maker = self._functions.get(node)
        return None if maker is None else maker.module()

    def _made_along(self, node: Any) -> int | str | None:
        """Along which dimension they lie in what their module returned."""
        for _ in range(axes.DEEP):
            if node is None or node in self._functions:
                break
            node = node.next_functions[0][0] if node.next_functions else None
        return None if node is None else axes.at(node, self._owner)

    def _axis(self, maker: Member, tensor: Tensor) -> tuple[int, int | None] | str:
        """Along which dimension the units of `maker` lie in an activation, and in what it returned; or why they are not counted."""
        owner = maker.module()
        node = tensor.grad_fn
        axis = axes.of_module(owner, tensor.dim()) if node is None else axes.at(node, self._owner)
        if axis is None:
            axis = tensor.dim() - 1 if tensor.dim() <= 2 else axes.UNKNOWN
        if isinstance(axis, str):
            return axis
        if axis == 0 and tensor.dim() > 1:
            return axes.UNBATCHED
        if tensor.shape[axis] > MOST:
            return "wide"
        if sum(units.count for units in [*self.shared.units.values()]) + tensor.shape[axis] > ALL_UNITS:
            return "many"
        made = self._made_along(node)
        return axis, made if isinstance(made, int) else None

    def _see(self, maker: Member, reader: Module, tensor: Tensor, read: str, *, output: bool) -> None:
        """Count the units of `maker` in `tensor`, and from now on in light samples too."""
        tensor = local(tensor)
        units = self.shared.units.get(maker.path)
        if units is None:
            if maker.path in self.shared.uncounted:
                return
            found = self._axis(maker, tensor)
            if isinstance(found, str):
                self.shared.uncounted[maker.path] = found
                return
            axis, made = found
            units = self.shared.units[maker.path] = Units(maker.path, read, axis, tensor.shape[axis], made)
            self.shared.light.reads(reader, units, output=output)
        if tensor.numel() >= LARGE and units.seen >= ENOUGH and self._number % RARELY:
            return
        if units.read == read and tensor.dim() > units.axis and tensor.shape[units.axis] == units.count:
            start = clock.now()
            units.see(tensor, self.step, self.back)
            self.counted += clock.now() - start
            self._note(ACTIVATION, maker.path, tensor)

    # ---- parameters

    def read_parameters(self, *, gradients: bool) -> None:
        """Before the step: parameters and gradients, and what is needed to see what moves."""
        self._read_parameters, self._read_gradients = True, gradients
        also = self._also
        self._present = self._of_part(gradients=gradients)
        mine, self._theirs = self.shared.steps.shares()
        moved = [(place, tensor) for place, _, tensor in self._present if mine is None or id(tensor) in mine]
        joined = self._read_joined(also=also, gradients=gradients, groups=self.moves.before(moved))
        for place, weight, tensor in self._present:
            if also:
                if place not in joined:
                    self.statistics.add(weight.rows[:1], tensor)
                self.index.history.describe(weight.rows[0], tensor)
            if gradients and id(tensor) not in self._theirs:
                self._read_gradient(weight, tensor, measured=place in joined)
        self.statistics.settle()

    def _read_others(self, optimizer: Any) -> None:
        """The parameters and gradients of another optimizer, before its step."""
        if not self._by_identity:
            self._by_identity = {id(tensor): (place, weight, tensor) for place, weight, tensor in self.index.present()}
        held = (self._by_identity.get(id(tensor)) for group in optimizer.param_groups for tensor in group["params"])
        some = [one for one in held if one is not None]
        moves = self._others[id(optimizer)] = Updates()
        joined = self._read_joined(also=False, gradients=True, groups=moves.before([(place, tensor) for place, _, tensor in some]))
        for place, weight, tensor in some:
            self._read_gradient(weight, tensor, measured=place in joined)
        self.statistics.settle()

    def _of_part(self, *, gradients: bool) -> list[tuple[int, Weight, Tensor]]:
        """The parameters that this sample looks at; of the others it is noted that they have a gradient."""
        present, parts = self.index.present(), self._parts
        mine = [one for one in present if self._takes(one[0]) and one[1].rows[0] >= 0] if parts > 1 else present
        for _, weight, _ in mine:
            weight.met = True
        if parts > 1 and gradients:
            for place, weight, tensor in present:
                if tensor.grad is not None and not weight.is_old(tensor.grad) and (not self._takes(place) or weight.rows[0] < 0):
                    weight.felt += 1
        return mine

    def _read_joined(self, *, also: bool, gradients: bool, groups: list[UpdateGroup]) -> set[int]:
        """Measure parameters and gradients where they stand in one array already; which these are."""
        joined: set[int] = set()
        for group in groups:
            if group.whole and group.felt and group.before.dtype in JOINED and group.gradients.dtype in JOINED:
                joined.update(group.places)
                if also:
                    self._join(group, 0, group.before)
                if gradients:
                    self._join(group, 1, group.gradients)
        return joined

    def _join(self, group: UpdateGroup, kind: int, values: Tensor) -> None:
        self.statistics.join([self.index.weights[place].rows[kind : kind + 1] for place in group.places], values, group.sizes)

    def _read_gradient(self, weight: Weight, tensor: Tensor, *, measured: bool = False) -> None:
        gradient = tensor.grad
        if gradient is None or weight.is_old(gradient):
            return
        weight.felt += 1
        if weight.stacked:
            self._look_at_slices(weight, gradient)
        if not measured:
            self.statistics.add(weight.rows[1:2], gradient)
        if self._also or not measured:
            self.index.history.describe(weight.rows[1], gradient)

    def _look_at_slices(self, weight: Weight, gradient: Tensor) -> None:
        """Which slices of stacked weights have a gradient: an expert without a token has none."""
        if has_numbers(gradient) and gradient.dim() >= STACKED:
            some = gradient.detach().flatten(1)
            self.back.ask(torch.linalg.vector_norm(some, math.inf, dim=1), weight.feel_slices)

    def read_gradients(self) -> None:
        """After the step, where a closure computed them in it."""
        for _, weight, tensor in self._present:
            if id(tensor) not in self._theirs:
                self._read_gradient(weight, tensor)
        self.statistics.settle()

    @property
    def in_evaluation(self) -> bool:
        """Whether the step was made, and the model was called in evaluation mode alone."""
        return (self.stepped or self._by_hand) and self.evaluated > 0 and not self.forwards

    def close(self, *, stepped: bool, again: tuple[Module, LastPass] | None = None) -> None:
        """End it: hooks off, all is measured, and what an accelerator measured is on its way.

        Args:
            stepped: whether the optimizer made its step.
            again: the model and a pass of it, which is run once more to see what a compiler hid in it.
        """
        self.closing = True
        self.detach()
        self.stepped = stepped
        self.shared.clues.step_ended()
        if stepped and not self._read_gradients and self._read_parameters:
            self.read_gradients()
        if (stepped or self._by_hand) and self._read_parameters:
            self._read_moves(self.moves)
        if again is not None:
            Shadow(self._shadow).run(*again)
        self.statistics.finish()
        for path, matrix in self.shared.neurons.matrices():
            self.back.ask(matrix, partial(self.flows.__setitem__, (PARAMETER, path)))
        if self.backwards and stepped:
            self.shared.elsewhere.renew(self._present or self.index.present(), self.back)
        self._present, self._by_identity, self._others = [], {}, {}
        self.back.send()

    def ready(self) -> bool:
        """Whether all of it has been measured."""
        return self.back.ready()

    def finish(self) -> None:
        """Put all readings into the history."""
        self.back.read()
        self.readings = self.statistics.readings()
        self._store()

    def _shadow(self, module: Module, output: Any, note: str) -> None:
        """Measure what a module gave in a run of ours; the root was seen in the run of the user's."""
        member, tensor = self.index.members.get(id(module)), _first(output)
        if member is None or tensor is None or not member.path:
            return
        self.index.calls(member)
        row = self.index.activation(member)
        self.statistics.add((row,), tensor, fleeting=True)
        self.index.history.describe(row, tensor)
        self.statistics.notes[row] = note

    def detach(self) -> None:
        """Take all hooks off."""
        self.shared.modules.off()
        self.hooks.close()
        self._measured, self._makers, self._functions, self._told = {}, {}, {}, set()
        self.shared.clues.end()

    def _read_moves(self, moves: Updates) -> None:
        """After the step."""
        weights, history = self.index.weights, self.index.history
        for group, deltas in moves.after(self.back, self._moved):
            self._join(group, 2, deltas)
            for place, size, tensor in zip(group.places, group.sizes, group.tensors, strict=True):
                row = weights[place].rows[2]
                if not group.whole:
                    self.statistics.notes[row] = evenly(size, local(tensor).numel(), part_of(tensor))
                elif weights[place].part:
                    self.statistics.notes[row] = weights[place].part
                if self._also:
                    history.describe(row, tensor)

    def _moved(self, place: int, stuck: float, moved: bool) -> None:
        weight = self.index.weights[place]
        weight.moved |= moved
        self.stepped |= moved
        self.stuck[weight.rows[2]] = stuck

    def _store(self) -> None:
        readings, history = self.readings, self.index.history
        if readings is None:
            return
        places = {row: i for i, row in enumerate(readings.rows.tolist())}
        for row, stuck in self.stuck.items():
            if row in places:
                readings.columns[-1, places[row]] = stuck
        for row, note in self.statistics.notes.items():
            history.note(row, note)
        history.take(self.step, readings, binned=self.binned)
        low, high = readings.columns[3], readings.columns[4]
        nonzero = ((low != 0) | (high != 0)).tolist()
        for weight in self.index.weights:
            if not weight.graded:
                place = places.get(weight.rows[1])
                weight.graded = place is not None and nonzero[place]


def _first(output: Any) -> Tensor | None:
    """The first tensor of numbers in what a module gave."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() or output.is_complex() else None
    for _, leaf, _ in leaves(output):
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
    return None


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
