"""A training is run and recorded: its loss, its batches, what each layer gives and gets, and what its loop calls.

Everything is observed from outside (hooks, and functions of torch that are called through); the training stays bit for bit as it is.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from bench.sick.cases import Case
from bench.sick.training import Training, called

NAMES = re.compile(r"(in_features|out_features|kernel_size)=")
USUAL = re.compile(
    r"(, )?\b(stride|padding|bias|inplace|start_dim|end_dim|eps|momentum|affine|track_running_stats|elementwise_affine)=(\([^)]*\)|[^,]*)"
)
"""Names of arguments, and whole arguments, that the description of a layer leaves out."""

LOOKS = 25
"""Steps in which the layers are looked at."""
MEASURED = 16
"""Times that fresh data is asked."""


@dataclass
class Numbers:
    """Of a tensor: finite values in numbers, and what is not finite."""

    shape: tuple[int, ...]
    dtype: str
    mean: float = math.nan
    std: float = math.nan
    low: float = math.nan
    high: float = math.nan
    zeros: float = 0.0
    bad: int = 0
    across: float = math.nan
    """The standard deviation over the first dimension, averaged: 0 where all samples are alike."""
    dead: float = math.nan
    """The share of columns that are zero for all samples."""

    @classmethod
    def of(cls, tensor: Tensor) -> Numbers:
        """Of any tensor with numbers."""
        made = cls(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        values = tensor.detach().double()
        good = values[values.isfinite()]
        made.bad = int(values.numel() - good.numel())
        if good.numel():
            made.mean, made.low, made.high = float(good.mean()), float(good.min()), float(good.max())
            made.std = float(good.std(correction=0))
            made.zeros = float((good == 0).double().mean())
        if values.dim() == 1:
            made.across = made.std
        if values.dim() > 1 and not made.bad:
            flat = values.flatten(1)
            made.across = float(flat.std(0, correction=0).mean())
            columns = values.flatten(2).transpose(1, 2).flatten(0, 1) if values.dim() == 4 else values.flatten(0, -2)
            made.dead = float((columns == 0).all(0).double().mean())
        return made


@dataclass
class Parameter:
    """One parameter over the run; the lists have an entry for each look, None where there is no gradient."""

    name: str
    trainable: bool
    held: bool
    start: Numbers
    unlike: int
    """How many different rows it begins with."""
    fan: int
    end: Numbers | None = None
    moved: float = 0.0
    still: float = math.nan
    """Of its numbers with a gradient the share that does not change, in the last look that found some."""
    after_backward: list[float | None] = field(default_factory=list)
    at_step: list[float | None] = field(default_factory=list)
    update: list[float] = field(default_factory=list)


@dataclass
class Layer:
    """One module, in the first and in the last look in which it was called."""

    path: str
    kind: str
    registered: bool
    calls: int = 0
    first: Numbers | None = None
    last: Numbers | None = None


@dataclass
class Recording:
    """All that the looks show."""

    steps: int
    printed: str
    loss: list[float] = field(default_factory=list)
    fresh: list[tuple[int, float]] = field(default_factory=list)
    rates: list[list[float]] = field(default_factory=list)
    """Of each group, after each step and what a schedule does then."""
    norms: list[tuple[float, float]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    diary: list[str] = field(default_factory=list)
    batches: list[tuple[int, Any, Any]] = field(default_factory=list)
    outputs: list[tuple[int, Any, Any]] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    layers: dict[int, Layer] = field(default_factory=dict)
    modes: Counter[bool] = field(default_factory=Counter)
    optimizers: list[str] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    foreign: int = 0
    looks: list[int] = field(default_factory=list)
    modes_apart: tuple[float, float] = (math.nan, math.nan)
    promised: tuple[float, float] = (math.nan, math.nan)
    """What the loss should change by along a short way against the gradient, and by what it does."""
    seen: int = 0
    """Of the rows of the last batch, how many were in the first one."""
    pool: list[Any] = field(default_factory=list)
    """The targets of all steps."""
    bad: tuple[int, int] = (0, 0)
    """In how many batches the inputs, and the targets, hold a number that is not finite."""
    changed: list[float] = field(default_factory=list)
    """How much each position of the output changes when the last position of the input does (sequences); nothing else."""
    others: float = math.nan
    """How much the outputs of the other samples change when the first sample does."""


def record(asked: Case, seed: int) -> tuple[Recording, float]:
    """The recording of a case's training, and what its healthy twin reaches: one after the other, since both seed the same generator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twin = asked.twin(seed)
        twin.run()
        reached = twin.measured()
        return recorded(asked.training(seed)), reached


def recorded(training: Training) -> Recording:
    """Run a training and record it."""
    return _Recorder(training).run()


class _Recorder:
    """Watches one run."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.made = Recording(training.steps, str(training.model))
        self.made.looks = sorted({round(one) for one in torch.linspace(0, training.steps - 1, LOOKS).tolist()})
        self.step, self.aside, self.losses = 0, False, list[float]()
        self.names = {id(module): path for path, module in training.model.named_modules()}
        self.unregistered: list[nn.Module] = []  # kept, so that no other one gets its number
        self.before: list[Tensor] = []

    def run(self) -> Recording:
        training, made = self.training, self.made
        self._begin()
        batch, criterion = training.batch, training.criterion

        def noted(number: int) -> Any:
            found = batch(number)
            if number in (0, 1, training.steps - 1):
                made.batches.append((number, *copy.deepcopy(found)))
            made.pool.append(_detached(found[1]))
            made.bad = made.bad[0] + _has_bad(found[0]), made.bad[1] + _has_bad(found[1])
            return found

        def judged(output: Any, target: Any) -> Any:
            loss = criterion(output, target)
            if not self.aside:
                self.losses.append(float(loss.detach()))
                self._event(f"loss = {_short(self.losses[-1])}", "loss")
                if self.step in (0, training.steps - 1):
                    made.outputs.append((self.step, _detached(output), _detached(target)))
            return loss

        training.batch, training.criterion = noted, judged

        training.each.insert(0, self._enter)
        with ExitStack() as stack:
            for one in self._patches():
                stack.enter_context(one)
            self._measure(0)
            training.run()
            self._close_step()
        self._end()
        return made

    # ---- before and after

    def _begin(self) -> None:
        training, made = self.training, self.made
        every = [training.optimizer, *training.others]
        held = {id(one) for optimizer in every for group in optimizer.param_groups for one in group["params"]}
        own = {id(one) for one in training.model.parameters()}
        made.foreign = len(held - own)
        for name, one in training.model.named_parameters():
            rows = one.detach().flatten(1) if one.dim() > 1 else None
            unlike = 0 if rows is None else len({*map(tuple, rows.tolist())})
            fan = 1 if rows is None else rows.shape[1]
            made.parameters.append(Parameter(name, one.requires_grad, id(one) in held, Numbers.of(one), unlike, fan))
        for path, module in training.model.named_modules():
            if path and not [*module.children()] and not path.endswith("self_attn.out_proj"):  # which attention uses without a call
                made.layers[id(module)] = Layer(path, _described(module), True)
        self.first = [one.detach().clone() for one in training.model.parameters()]
        for optimizer in every:
            made.optimizers.append(type(optimizer).__name__)
            for group in optimizer.param_groups:
                kept = {key: value for key, value in group.items() if key in ("lr", "momentum", "betas", "weight_decay", "maximize")}
                made.groups.append(
                    {
                        **kept,
                        "optimizer": type(optimizer).__name__,
                        "tensors": len(group["params"]),
                        "own": sum(id(one) in own for one in group["params"]),
                    }
                )

    def _end(self) -> None:
        for one, parameter, first in zip(self.made.parameters, self.training.model.parameters(), self.first, strict=True):
            one.end = Numbers.of(parameter)
            size = float(first.double().norm())
            change = parameter.detach().double() - first.double()
            one.moved = float(change.norm()) / size if size else float(change.norm() > 0)
        if self.training.steps > 1 and len(self.made.batches) > 1:
            self.made.seen = _shared_rows(self.made.batches[0][1], self.made.batches[-1][1])
        self._try()

    def _try(self) -> None:
        """The last batch once more, in both modes; and a short way against its gradient. Nothing of it stays."""
        training, made = self.training, self.made
        if not made.batches:
            return
        _, inputs, target = made.batches[-1]
        model = training.model
        self.aside = True
        with torch.random.fork_rng(devices=[]):

            def loss(mode: bool) -> float:
                model.train(mode)
                torch.manual_seed(1)
                return float(training.criterion(called(model, inputs), target))

            with torch.no_grad():
                evaluated = loss(False)
                made.others, made.changed = self._changed(inputs)
                made.modes_apart = loss(True), evaluated  # in this order: a BatchNorm in training mode changes its statistics

    def _changed(self, inputs: Any) -> tuple[float, list[float]]:
        """What follows from a change of one sample for the others; and from one of a sequence's last position for all positions."""
        first = inputs[0] if isinstance(inputs, tuple) else inputs
        before = first_of(called(self.training.model, inputs)).double()
        other = first.clone()
        other[0] = first[1]
        after = first_of(called(self.training.model, (other, *inputs[1:]) if isinstance(inputs, tuple) else other)).double()
        others = float((after - before)[1:].abs().max()) if len(before) == len(first) else math.nan
        if before.dim() != 3 or first.dim() != 2 or isinstance(inputs, tuple):
            return others, []
        moved = first.clone()
        moved[:, -1] = first[:, -1].roll(1)
        return others, (first_of(called(self.training.model, moved)).double() - before).abs().amax((0, 2)).tolist()

    def _check_gradient(self, number: int) -> None:
        """A short way against the gradient: how much lower is the loss then, beside what the gradient says? All is put back."""
        training, model = self.training, self.training.model
        inputs, target = next((found[1:] for found in self.made.batches if found[0] == number), (None, None))
        if target is None:
            return
        kept: list[tuple[Tensor, Tensor, Tensor | None]] = [(one, one.detach().clone(), one.grad) for one in model.parameters()]
        buffers = [(one, one.clone()) for one in model.buffers()]
        self.aside = True
        try:
            with torch.random.fork_rng(devices=[]):
                self.made.promised = self._along(lambda: training.criterion(called(model, inputs), target), [one for one, _, _ in kept])
        finally:
            self.aside = False
            with torch.no_grad():
                for one, was, gradient in kept:
                    one.copy_(was)
                    one.grad = gradient
                for buffer, was in buffers:
                    buffer.copy_(was)

    @staticmethod
    def _along(loss_of: Callable[[], Tensor], parameters: list[Any]) -> tuple[float, float]:
        for one in parameters:
            one.grad = None
        torch.manual_seed(2)
        before = loss_of()
        if not before.requires_grad:
            return math.nan, math.nan
        before.backward()  # type: ignore[no-untyped-call]
        felt = [(one, one.grad) for one in parameters if one.grad is not None]
        square = sum(float(gradient.double().square().sum()) for _, gradient in felt)
        size = math.sqrt(sum(float(one.detach().double().square().sum()) for one, _ in felt))
        if not square or not math.isfinite(square):
            return math.nan, math.nan
        way = 2e-3 * size / math.sqrt(square)
        with torch.no_grad():
            for one, gradient in felt:
                one -= way * gradient
            torch.manual_seed(2)
            after = float(loss_of())
        return -way * square, after - float(before.detach())

    # ---- each step

    def _enter(self, number: int) -> None:
        if number:
            self._close_step()
        self.step = number
        self.losses = []
        if number in self.made.looks:
            self.before = [one.detach().clone() for one in self.training.model.parameters()]

    def _close_step(self) -> None:
        training, made, number = self.training, self.made, self.step
        made.loss.append(sum(self.losses) / len(self.losses) if self.losses else math.nan)
        made.rates.append([group["lr"] for optimizer in (training.optimizer, *training.others) for group in optimizer.param_groups])
        if number in made.looks:
            for one, parameter, before in zip(made.parameters, training.model.parameters(), self.before, strict=True):
                size = float(before.double().norm())
                change = float((parameter.detach().double() - before.double()).norm())
                one.update.append(change / size if size else float(change > 0))
                if parameter.grad is not None and bool((parameter.grad != 0).any()):
                    felt = parameter.grad != 0
                    one.still = float((parameter.detach() == before)[felt].double().mean())
                for row in (one.after_backward, one.at_step):
                    if len(row) < len(one.update):
                        row.append(None)
        if number == 0:
            self._check_gradient(number)
        if (number + 1) % max(1, made.steps // MEASURED) == 0 or number + 1 == made.steps:
            self._measure(number + 1)

    def _measure(self, number: int) -> None:
        self.aside = True
        try:
            self.made.fresh.append((number, self.training.measured()))
        finally:
            self.aside = False

    def _event(self, text: str, kind: str) -> None:
        if self.aside:
            return
        self.made.counts[kind] += 1
        if self.step == self.made.steps // 2:
            self.made.diary.append(text)

    def _gradients(self, row: str) -> None:
        if self.step not in self.made.looks or self.aside:
            return
        for one, parameter in zip(self.made.parameters, self.training.model.parameters(), strict=True):
            found: list[float | None] = getattr(one, row)
            norm = None if parameter.grad is None else float(parameter.grad.double().norm())
            if len(found) == len(one.update):
                found.append(norm)
            else:
                found[-1] = norm

    # ---- what torch calls

    def _patches(self) -> Iterator[Any]:
        backward, clip, load = Tensor.backward, nn.utils.clip_grad_norm_, nn.Module.load_state_dict

        def ours(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            found = backward(tensor, *args, **kwargs)  # type: ignore[no-untyped-call]
            self._event(f"backward() from {_short(float(tensor.detach()))}", "backward")
            self._gradients("after_backward")
            return found

        def clipped(parameters: Any, bound: float, *args: Any, **kwargs: Any) -> Any:
            norm = clip(parameters, bound, *args, **kwargs)
            self.made.norms.append((float(norm), float(bound)))
            self._event(f"clip_grad_norm_(…, {bound:g}): the norm was {_short(float(norm))}", "clip")
            return norm

        def loaded(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            self._event("model.load_state_dict(…)", "load_state_dict")
            return load(module, *args, **kwargs)

        yield patch.object(Tensor, "backward", ours)
        yield patch.object(nn.utils, "clip_grad_norm_", clipped)
        yield patch.object(nn.Module, "load_state_dict", loaded)
        yield _hooked(nn.modules.module.register_module_forward_hook(self._called))
        for number, optimizer in enumerate((self.training.optimizer, *self.training.others)):
            yield from self._of_optimizer(optimizer, "optimizer" if not number else "second_optimizer")
        for scheduler in self.training.schedulers:
            yield patch.object(
                scheduler,
                "step",
                self._told(
                    scheduler.step,
                    lambda: f"scheduler.step(): the learning rate is now {self.training.optimizer.param_groups[0]['lr']:.3g}",
                    "scheduler",
                ),
            )

    def _of_optimizer(self, optimizer: Optimizer, name: str) -> Iterator[Any]:
        zero = optimizer.zero_grad
        yield patch.object(optimizer, "zero_grad", self._told(zero, lambda: f"{name}.zero_grad()", f"{name}.zero_grad"))

        def before(*_: Any) -> None:
            if name == "optimizer":
                self._gradients("at_step")
            self._event(f"{name}.step()", f"{name}.step")

        yield _hooked(optimizer.register_step_pre_hook(before))

    def _told(self, function: Callable[..., Any], text: Callable[[], str], kind: str) -> Callable[..., Any]:
        def told(*args: Any, **kwargs: Any) -> Any:
            found = function(*args, **kwargs)
            self._event(text(), kind)
            return found

        return told

    def _called(self, module: nn.Module, args: Any, output: Any) -> None:
        if self.aside:
            return
        if module is self.training.model:
            self.made.modes[module.training] += 1
            self._event(f"model(…), in {'training' if module.training else 'evaluation'} mode", "forward")
        if [*module.children()]:
            return
        layer = self.made.layers.get(id(module))
        if layer is None:
            self.unregistered.append(module)
            layer = self.made.layers[id(module)] = Layer("", _described(module), id(module) in self.names)
        layer.calls += 1
        first = output[0] if isinstance(output, tuple) else output
        if isinstance(first, Tensor) and (layer.first is None or self.step == self.made.looks[-1]):
            numbers = Numbers.of(first)
            layer.first = layer.first or numbers
            layer.last = numbers


@contextmanager
def _hooked(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()


def first_of(output: Any) -> Tensor:
    """The output, or the first of several."""
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found


def _has_bad(thing: Any) -> bool:
    return any(_has_bad(one) for one in thing) if isinstance(thing, tuple) else not bool(thing.isfinite().all())


def _described(module: nn.Module) -> str:
    """The class with its numbers: ``Linear(2, 32)``."""
    return f"{type(module).__name__}({USUAL.sub('', NAMES.sub('', module.extra_repr())).removeprefix(', ')})"


def _detached(thing: Any) -> Any:
    if isinstance(thing, Tensor):
        return thing.detach().clone()
    if isinstance(thing, (tuple, list)):
        return tuple(map(_detached, thing))
    return thing


def _short(value: float) -> str:
    return f"{value:.4g}"


def _shared_rows(first: Any, last: Any) -> int:
    known = {*_rows(first)}
    return sum(row in known for row in _rows(last))


def _rows(inputs: Any) -> list[tuple[Any, ...]]:
    """Each sample as numbers: of all inputs, where a model takes several."""
    return [
        *zip(*([tuple(row.flatten().tolist()) for row in one] for one in (inputs if isinstance(inputs, tuple) else (inputs,))), strict=True)
    ]
