"""Kept states: copies of a model, its optimizers and what trains along, at the end of a step."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from threading import Lock, RLock
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import UninitializedBuffer, is_lazy

from modlab.compat import inference, set_grad, tensor_hooks, without_autograd, without_modes, without_torch_function
from modlab.forking.copied_memory import memory_made, memory_taken
from modlab.forking.memories import Part, is_whole, memory_of, part_in, part_of, whole_of
from modlab.forking.module_settings import named_modules, numbers_of
from modlab.forking.tape import ALIGNED, PlaceNumbers, alike
from modlab.inspection import stores
from modlab.inspection.entries import PLAIN
from modlab.running.guarded import afterwards, line_of
from modlab.running.randomness import generators, states
from modlab.statistics.closures import rebound
from modlab.statistics.memory import NoValuesError, deepcopied, is_there

LOCKS = (type(Lock()), type(RLock()))
"""What a copy shares with the original."""


class NotCopiedError(Exception):
    """Something in a training cannot be copied."""


class TrainedThings:
    """A model with its optimizers, and modules beside it that train along; in a training, in a kept state and in a fork.

    Attributes:
        model: the model; optimizers: in the order in which their steps were first seen.
        numbers: those of the optimizers on the tape.
        beside: modules outside of the model, by name.
    """

    def __init__(self, model: Module, optimizers: list[Any], beside: dict[str, Module], numbers: Iterable[int] | None = None) -> None:
        self.model, self.optimizers, self.beside = model, optimizers, beside
        self.numbers = [*(range(len(optimizers)) if numbers is None else numbers)]

    def modules(self) -> dict[str, Module]:
        """All modules by name."""
        return named_modules([("", self.model), *self.beside.items()])

    def tensors(self) -> Iterator[Tensor]:
        """All parameters and buffers of the modules, and what else the optimizers hold, each once."""
        found = {id(tensor): tensor for module in self.modules().values() for _, tensor in stores.named_tensors(module)}
        held = (tensor for optimizer in self.optimizers for group in optimizer.param_groups for tensor in group["params"])
        yield from (found | {id(tensor): tensor for tensor in held}).values()

    def memories(self) -> set[int]:
        """In which memory all of its tensors lie, gradients and what the optimizers hold included, as `memory_of` has it."""
        tensors = [*self.tensors()]
        states = [state for optimizer in self.optimizers for state in optimizer.state.values() if isinstance(state, dict)]
        held = [*tensors, *(one.grad for one in tensors if one.is_leaf), *(value for state in states for value in state.values())]
        return {memory_of(one) for one in held if isinstance(one, Tensor)} - {0}

    def copied(self) -> tuple[TrainedThings, dict[int, Any]]:
        """A copy of all, and what each thing has become, by identity.

        Raises:
            Exception: something in it cannot be copied.
        """
        return afterwards(states(), self._copied)  # a `__deepcopy__` of the user's may draw the weights of a new model

    def _copied(self) -> tuple[TrainedThings, dict[int, Any]]:
        with inference(False), without_modes():
            set_grad(False)
            return self._made()

    def _made(self) -> tuple[TrainedThings, dict[int, Any]]:
        with without_torch_function():
            memo = self._memo()
        try:
            made = TrainedThings(*deepcopied((self.model, [], self.beside), memo, alone=True))
            self._pair(made, memo)
            made.optimizers, made.numbers = deepcopied(self.optimizers, memo, alone=True), [*self.numbers]
        except NotCopiedError:
            raise
        except Exception as error:
            raise _uncopied(self.modules(), error) from error
        for optimizer in self.optimizers:
            _with_attributes(optimizer, memo)
        with without_torch_function():
            for tensor in self.tensors():
                _with_gradient(tensor, memo)
        return made, memo

    def _pair(self, made: TrainedThings, memo: dict[int, Any]) -> None:
        """Note what has become of modules and tensors, also where a `__deepcopy__` of the user's has not."""
        copies = made.modules()
        for path, module in self.modules().items():
            copy = memo.setdefault(id(module), copies.get(path))
            if copy is module:
                raise NotCopiedError(f"the __deepcopy__ of {type(module).__name__} gives the module itself, and no copy")
            tensors = {} if copy is None else dict(stores.named_tensors(copy))
            for name, tensor in stores.named_tensors(module):
                if memo.setdefault(id(tensor), tensors.get(name)) is None or memo[id(tensor)] is tensor:
                    raise NotCopiedError(f"the __deepcopy__ of {type(module).__name__} gives no copy of its {name}")

    def _memo(self) -> dict[int, Any]:
        """Copies of what `copy.deepcopy` copies in another way, or not at all."""
        memo: dict[int, Any] = {}
        for module in self.modules().values():
            for thing in object.__getattribute__(module, "__dict__").values():
                if type(thing) is torch.Generator:
                    memo[id(thing)] = _generator(thing)
                elif type(thing) in LOCKS:
                    memo[id(thing)] = thing
                elif issubclass(type(thing), Tensor) and not thing.is_leaf:
                    memo[id(thing)] = alike(thing)
        for tensor in self.tensors():
            if is_lazy(tensor):
                if isinstance(tensor, UninitializedBuffer):
                    memo[id(tensor)] = UninitializedBuffer(device=tensor.device, dtype=tensor.dtype)  # type: ignore[call-arg]
                continue
            if not is_there(tensor):
                raise NoValuesError("the memory of a parameter is not there")
            if not tensor.is_leaf:
                memo[id(tensor)] = alike(tensor)
            elif type(tensor) in PLAIN and tensor.layout is torch.strided and tensor.device.type == "cpu" and tensor.data_ptr() % ALIGNED:
                memo[id(tensor)] = _like(tensor)
        return memo


def _uncopied(modules: dict[str, Module], error: Exception) -> NotCopiedError:
    """Which attribute of which module cannot be copied."""
    for path, module in modules.items():
        for name, value in object.__getattribute__(module, "__dict__").items():
            if name in stores.STANDARD:
                continue
            try:
                deepcopied(value, alone=True)
            except Exception as reason:  # noqa: BLE001 - anything may refuse in its own way
                place = f"{path}.{name}".lstrip(".")
                return NotCopiedError(
                    f"{place} cannot be copied ({line_of(reason)}): hold it outside of the model, or give it a __deepcopy__"
                )
    return NotCopiedError(f"it cannot be copied ({line_of(error)})")


def _like(tensor: Tensor) -> Tensor:
    copied = alike(tensor)
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(copied, tensor.requires_grad)
    return copied.requires_grad_(tensor.requires_grad)


def _with_attributes(optimizer: Any, memo: dict[int, Any]) -> None:
    """What a copy of an optimizer lacks: hooks, and all but its state and groups. A scheduler's ``step`` would step the original."""
    held = vars(memo[id(optimizer)])
    for name, value in vars(optimizer).items():
        if name not in ("state", "param_groups", "defaults", "step", *_SCALED):
            held[name] = deepcopied(value, memo, alone=True)


_SCALED = ("grad_scale", "found_inf")


def scaled_by(optimizer: Any) -> tuple[Any, ...]:
    """What a `GradScaler` hands to an optimizer that unscales its gradients itself, for one step."""
    return tuple(vars(optimizer).get(name) for name in _SCALED)


def scale_by(optimizer: Any, values: tuple[Any, ...]) -> None:
    """Hand it the same."""
    for name, value in zip(_SCALED, values, strict=True):
        if value is not None:
            setattr(optimizer, name, value)
        else:
            vars(optimizer).pop(name, None)


def _with_gradient(tensor: Tensor, memo: dict[int, Any]) -> None:
    """What a copy of a parameter lacks: its gradient, the hooks that change gradients, and, of a scripted module, that it is trained."""
    made = memo[id(tensor)]
    if made is tensor or is_lazy(tensor) or not tensor.is_leaf:
        return
    if made.requires_grad is not tensor.requires_grad:
        made.requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        made.grad = memo[id(tensor.grad)] = alike(tensor.grad)
    if tensor.requires_grad:
        for name, hooks in tensor_hooks(tensor):
            if name == "_backward_hooks":
                for hook in hooks.values():
                    made.register_hook(rebound(hook, memo))


def _generator(thing: torch.Generator) -> torch.Generator:
    made = torch.Generator(thing.device)
    made.set_state(thing.get_state())
    return made


class KeptState:
    """What a training was at the end of a step.

    Attributes:
        step: how many steps were made.
        things: copies.
        numbers: by the number of a tensor on the tape, the copy that stands for it; names: its module's and its own name.
        live: the same of tensors beside the model that were alive, such as a hidden state; made: the greatest number that was given.
        random: the states of torch's generators.
        level: the mean of the last losses; spread: their standard deviation.
        settings: numbers that are set on modules, each with the class of its module.
        late: numbers of optimizers whose first step came later.
        bytes: of all that was copied for it.
    """

    def __init__(self, step: int, things: TrainedThings, places: PlaceNumbers, level: tuple[float, float]) -> None:
        self.step, self.level, self.spread = step, *level
        self.made = places.last
        self.late: set[int] = set()
        self.things, memo = things.copied()
        self.numbers = {places.of(one): memo[id(one)] for one in things.tensors() if places.of(one)}
        self.names = {
            places.of(tensor): (path, name) for path, one in things.modules().items() for name, tensor in stores.named_tensors(one)
        }
        self._memo = {id(one): memo[id(one)] for one in things.tensors()}  # to copy an optimizer that comes later
        self.live = _live({number: one for number, one in places.kept().items() if _is_copiable(one)}, things, memo)
        self.random = [one.get_state() for one in generators()]
        self._rate = math.nan
        self.settings = numbers_of(named_modules([("", self.things.model)]))
        self._memory = memory_made(memo)
        self._measure()

    def _measure(self) -> None:
        """How much memory it takes."""
        live = [one for whole, _, gradient in self.live.values() for one in (whole, gradient) if one is not None]
        self.bytes = sum((self._memory | memory_taken([*live, *self.random])).values())

    def rate(self) -> float:
        """The learning rate of the first group of parameters; NaN if there is none. It is read once: an accelerator would be waited for."""
        if math.isnan(self._rate):
            groups = [group for optimizer in self.things.optimizers for group in optimizer.param_groups if "lr" in group]
            self._rate = float(groups[0]["lr"]) if groups else math.nan
        return self._rate

    def forget(self, places: PlaceNumbers) -> None:
        """Let go of tensors that no later step has used, or can use."""
        needed = places.crossing | places.kept().keys()
        self.live = {number: tensor for number, tensor in self.live.items() if number in needed}
        self._measure()

    def join(self, number: int, optimizer: Any) -> bool:
        """Add an optimizer that has made no step yet; whether all that it holds is here."""
        held = [one for group in optimizer.param_groups for one in group["params"]]
        if optimizer.state or not all(id(one) in self._memo for one in held):
            return False
        memo = {**self._memo}
        with without_modes():
            self.things.optimizers.append(deepcopied(optimizer, memo, alone=True))
            self.things.numbers.append(number)
            self.late.add(number)
            _with_attributes(optimizer, memo)
        self._memory |= memory_made(memo)
        self._measure()
        return True

    def join_module(self, name: str, module: Module, places: PlaceNumbers) -> None:
        """Add a module that had no part in the training before."""
        made, memo = TrainedThings(module, [], {}).copied()
        self.things.beside[name] = made.model
        self._memory |= memory_made(memo)
        self._measure()
        for path, one in named_modules([(name, module)]).items():
            for called, tensor in stores.named_tensors(one):
                number = places.of(tensor)
                self.numbers[number], self.names[number] = memo[id(tensor)], (path, called)
                self._memo[id(tensor)] = memo[id(tensor)]

    def again(self) -> tuple[TrainedThings, dict[int, Tensor]]:
        """A copy to run on from, and the tensors by number."""
        things, memo = self.things.copied()
        numbers = {number: memo.get(id(one), one) for number, one in self.numbers.items()}
        for number, (whole, part, gradient) in self.live.items():
            if id(whole) not in memo:
                memo[id(whole)] = _alive(whole)
            made = numbers[number] = memo[id(whole)] if part is None else part_in(memo[id(whole)], part)
            if gradient is not None:
                made.grad = alike(gradient)
        return things, numbers


Live = tuple[Tensor, Part | None, Tensor | None]
"""A copy, or the whole in which it lies, and how, where others lie in it as well; and its gradient, if it has one."""


def _live(tensors: dict[int, Tensor], things: TrainedThings, memo: dict[int, Any]) -> dict[int, Live]:
    """Copies by number: those that shared a memory, among each other or with the training, do so again."""
    own = [one for tensor in things.tensors() for one in (tensor, tensor.grad if tensor.is_leaf else None) if one is not None]
    wholes = {memory_of(one): memo[id(one)] for one in own if id(one) in memo and memory_of(one) and is_whole(one)}
    shared = Counter(map(memory_of, tensors.values()))
    found: dict[int, Live] = {}
    for number, tensor in tensors.items():
        memory, part = memory_of(tensor), part_of(tensor)
        if memory and part is not None and memory not in wholes and shared[memory] > 1 and (whole := whole_of(tensor)) is not None:
            wholes[memory] = alike(whole)
        gradient = alike(tensor.grad) if tensor.is_leaf and tensor.grad is not None else None
        found[number] = (wholes[memory], part, gradient) if part is not None and memory in wholes else (_alive(tensor), None, gradient)
    return found


def _is_copiable(tensor: Tensor) -> bool:
    return type(tensor) in PLAIN and is_there(tensor)


def _alive(tensor: Tensor) -> Tensor:
    return alike(tensor).requires_grad_(tensor.requires_grad and tensor.is_leaf)


def is_finite(model: Module) -> bool:
    """Whether all parameters and buffers of a model are finite."""
    return without_autograd(_is_finite, model)


def _is_finite(model: Module) -> bool:
    some = [one for module in stores.modules(model) for _, one in stores.named_tensors(module) if not is_lazy(one)]
    return all(bool(torch.isfinite(one).all()) for one in some if one.is_floating_point() and is_there(one) and not one.is_quantized)
