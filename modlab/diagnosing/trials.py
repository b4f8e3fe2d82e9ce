"""Trials of one model on its bench: passes with the batch and their results, in plain numbers and words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError
from modlab.inspection import fingerprint, stores
from modlab.inspection.distributed import unwrapped
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.inspection.unregistered import Members
from modlab.running.guarded import steady_line
from modlab.running.listener import Listener
from modlab.running.randomness import states
from modlab.running.sandbox import on_loan
from modlab.statistics.memory import copied

T = TypeVar("T")


class Bench:
    """A model with a batch and a loss.

    Attributes:
        unlearned: whether a copy was asked to learn the batch, and did not.
    """

    def __init__(self, subject: Subject, inputs: Any, target: Any, loss: Any) -> None:
        self.subject, self.inputs, self.target, self.loss = subject, inputs, target, loss
        self.model = _runnable(subject.model)
        self.roots = [*batches.roots(subject.model, loss), *_hidden(subject)]
        self.unlearned = False

    @property
    def climbs(self) -> bool:
        """Whether the optimizers make the loss greater."""
        groups = [group for one in self.subject.optimizers for group in one.param_groups]
        return bool(groups) and all(group.get("maximize") for group in groups)

    def kept(self, work: Callable[[], T]) -> T:
        """Call `work` and restore everything afterwards, without the model's output and warnings."""

        def silently() -> T:
            with warnings.catch_warnings(), redirect_stdout(StringIO()):
                warnings.simplefilter("ignore")
                return work()

        return on_loan(silently, *self.roots, others=(self.loss,))

    def evaluate(self, model: Module | None = None) -> None:
        """Put the model, or the one given, into eval mode."""
        try:
            (self.subject.model if model is None else model).eval()
        except NotImplementedError as error:  # an exported graph stays in the mode in which it was exported
            raise NotRunError("no eval mode", error=steady_line(error)) from None

    def output(self, model: Module | None = None) -> Any:
        """The output of one pass with copies of the inputs."""
        return batches.call(self.model if model is None else model, batches.copied(self.inputs))

    def value(self, output: Any) -> Any:
        """The value of the loss."""
        return self.loss(output, batches.copied(self.target))

    def outputs(self, model: Module | None = None) -> list[Tensor]:
        """The tensors of one pass without gradients."""
        return without_gradients(lambda: [copied(tensor.detach()) for tensor in batches.tensors(self.output(model))])

    def steadily(self, inputs: Any = None, model: Module | None = None) -> Any:
        """The output for these inputs without gradients; all passes draw the same random numbers, so no difference is due to chance."""
        put_back = states()
        given = self.inputs if inputs is None else inputs
        try:
            return without_gradients(lambda: batches.call(self.model if model is None else model, batches.copied(given)))
        finally:
            put_back()

    def where(self, error: BaseException) -> ModuleSite | None:
        """The innermost module in whose code an exception was raised, or None."""
        found, step = None, error.__traceback__
        while step is not None:
            found = self._site_of(step) or found
            step = step.tb_next
        return found

    def _site_of(self, step: TracebackType) -> ModuleSite | None:
        return self.subject.by_module.get(id(step.tb_frame.f_locals.get("self")))

    def called(self) -> set[int]:
        """The ids of the modules that one pass calls."""
        seen: set[int] = set()
        Listener(lambda module, _: seen.add(id(module))).during(self.outputs)
        return seen

    def footprints(self) -> list[tuple[int, bytes, bytes]]:
        """For each call of one pass, in the order they end: the module's id, and fingerprints of its inputs and outputs."""
        found: list[tuple[int, bytes, bytes]] = []

        def note(module: Module, args: Any, kwargs: Any, output: Any) -> None:
            found.append((id(module), _digest(args), _digest(output)))

        Listener(leave=note).during(self.outputs)
        return found


def without_gradients(call: Callable[[], T]) -> T:
    """What a pass gives without gradients; with them, where the model asks for some, as for a slope by its input or a hook on its state."""
    try:
        with torch.no_grad():
            return call()
    except RuntimeError:  # if gradients are not what lacks, it comes again
        pass
    with torch.enable_grad():
        return call()


def _digest(thing: Any) -> bytes:
    return b"".join(fingerprint.fingerprint(tensor) for tensor in batches.tensors(thing))


def _runnable(model: Module) -> Module:
    """The module inside a compiled or distributed wrapper: a compiled one would recompile in each mode."""
    held = stores.contents(model)
    inner = held.get("_modules") or {}
    if type(model).__name__ == "OptimizedModule" and stores.is_module(inner.get("_orig_mod")):
        return _runnable(inner["_orig_mod"])
    alone = unwrapped(model)
    return model if alone is model else _runnable(alone)


def _hidden(subject: Subject) -> list[Module]:
    """Unregistered modules that run, and so may change too."""
    return [module for _, module in hidden_modules(subject)]


def hidden_modules(subject: Subject) -> list[tuple[str, Module]]:
    """Unregistered modules, each with the path of the attribute that it hangs on."""
    return [
        (f"{site.path}.{name}".lstrip("."), hidden.thing)
        for site in subject.suspicious
        for name, value in site.held.items()
        if name not in stores.STANDARD
        for hidden in Members(value)
        if stores.is_module(hidden.thing) and id(hidden.thing) not in subject.finder.registered and stores.initialized(hidden.thing)
    ]
