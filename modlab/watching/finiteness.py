"""Finiteness: NaN and infinities are looked for where every gradient passes, for some microseconds a step.

That is the gradient of the outputs, and the gradients of one or two small parameters of the layers that are called first. One more
parameter is looked at in turn, so that what goes wrong in one place alone is found in the end, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from modlab.compat import dispatch_modes, without_modes, without_torch_function
from modlab.inspection.entries import PLAIN
from modlab.records.finding import Fact
from modlab.running.tensor_hooks import is_hooked
from modlab.statistics.memory import is_there, local
from modlab.watching.last_step import LastPass
from modlab.watching.readback import Copy, is_far

EARLY = 2
"""Parameters of the first layers that are looked at in every step."""

HOOKED = 4
"""Parameters with hooks of which that is done, too: what these make of a gradient is seen nowhere else."""

NARROW = 1 << 12
"""Elements up to which the one is looked at that a glance asks."""

SMALL = 1 << 16
"""Elements up to which a parameter is looked at in turn."""

WAITING = 64
"""Answers of an accelerator that are waited for at the same time; with more the oldest is read at once."""


class NonFinite(NamedTuple):
    """Something that is not finite.

    Attributes:
        step: in which it was seen.
        path: of the parameter whose gradient it is; "" for the gradient of the model's outputs.
        kind: "nan", or "inf" if there are infinities alone.
        looked: the last step before in which it was not so; -1 if none was looked at.
    """

    step: int
    path: str
    kind: str
    looked: int = -1

    @property
    def facts(self) -> dict[str, Fact]:
        """Of a step that went by without being kept: the parameter, and the first and the last step that it may have been."""
        first = self.step if self.looked == -1 else self.looked + 1
        return {"unkept": self.path, "unkept kind": self.kind, "unkept steps": (first, self.step)}


class GradientCheck:
    """Looks at the gradients of each step.

    On the CPU, and with `hold`, the answer comes at once. Else nothing waits for an accelerator: the answer is computed
    there, copied when it is ready, and given by `ready` some steps later.

    Args:
        parameters: of the model, with their names, those of the layers that are called first before others.
        hold: wait for the accelerator in each step.
    """

    def __init__(self, parameters: Iterable[tuple[str, Tensor]], *, hold: bool = False) -> None:
        given = [(path, tensor) for path, tensor in parameters if is_numeric(part := local(tensor)) and part.numel()]
        self._all = given
        first = _early(given)
        hooked = [one for one in given if one[1].requires_grad and is_hooked(one[1])][:HOOKED]
        self._early = [*first, *(one for one in hooked if one[0] not in dict(first))]
        chosen = {path for path, _ in self._early}
        self._others = [(path, tensor) for path, tensor in given if path not in chosen and tensor.numel() <= SMALL]
        self._narrow = next((one for one in (*hooked, *first) if one[1].numel() <= NARROW and not is_far(one[1])), None)
        self._turn = 0
        self._hold = hold
        self._waiting: list[_Late] = []

    def look(self, step: int, passes: Sequence[LastPass] = (), *, parameters: bool = True) -> NonFinite | None:
        """Look at this step's gradients, as far as they are there.

        Args:
            step: its number, for the answer.
            passes: of the root; of each the gradients of the outputs are looked at once.
            parameters: look at those of parameters too.
        """
        with without_torch_function(), without_modes():
            late: list[tuple[str, Tensor]] = []
            for path, gradient in self._gradients(passes, parameters):
                if is_far(gradient) and not self._hold:
                    late.append((path, gradient))
                    continue
                kind = kind_of(gradient)
                if kind and (path or not parameters or self._arrived()):
                    return NonFinite(step, path, kind)
            if late:
                self._send(step, late)
        return None

    def _gradients(self, passes: Sequence[LastPass], parameters: bool) -> Iterable[tuple[str, Tensor]]:
        for one in passes:
            if not one.looked:
                one.looked = True
                for gradient in map(local, one.gradients.values()):
                    if is_plain(gradient):
                        yield "", gradient
        if not parameters:
            return
        for path, tensor in self._early:
            gradient_or_none = _gradient(tensor)
            if gradient_or_none is not None and is_plain(gradient_or_none):
                yield path, gradient_or_none
        if self._others:
            self._turn = (self._turn + 1) % len(self._others)
            path, tensor = self._others[self._turn]
            gradient_or_none = _gradient(tensor)
            if gradient_or_none is not None and is_plain(gradient_or_none):
                yield path, gradient_or_none

    def _arrived(self) -> bool:
        """Whether what an output's gradient held has come to a parameter: a step is spoilt by these, not by what autograd asked aside."""
        return any((one := _gradient(tensor)) is not None and is_plain(one) and kind_of(one) for _, tensor in self._all)

    def _send(self, step: int, gradients: list[tuple[str, Tensor]]) -> None:
        """Have the largest size of each computed where it lies; NaN and infinity stay what they are."""
        while len(self._waiting) >= WAITING:
            self._waiting[0].wait()
            if self._waiting[0].bad():
                return  # it is told at the next question
            self._waiting.pop(0)
        by_device: dict[torch.device, list[tuple[str, Tensor]]] = {}
        for path, gradient in gradients:
            by_device.setdefault(gradient.device, []).append((path, gradient))
        for found in by_device.values():
            self._waiting.append(_Late(step, found))

    def spoilt(self) -> bool:
        """Whether a gradient of the first layers is not finite; one that lies on an accelerator may be, and is not waited for."""
        with without_torch_function(), without_modes():
            found = (_gradient(tensor) for _, tensor in self._early)
            return any(one is not None and is_plain(one) and (is_far(one) or bool(kind_of(one))) for one in found)

    @property
    def narrow(self) -> Tensor | None:
        """The parameter that a glance asks."""
        return None if self._narrow is None else self._narrow[1]

    def glance(self, step: int, looked: int) -> NonFinite | None:
        """Look at one gradient alone, through which nearly all others pass; nothing that lies on an accelerator.

        Args:
            step: its number.
            looked: the last step before that was looked at.
        """
        if self._narrow is None or dispatch_modes():
            return None
        path, tensor = self._narrow
        gradient = _gradient(tensor)
        if gradient is None or not is_plain(gradient):
            return None
        with without_torch_function():
            kind = kind_of(gradient)
        return NonFinite(step, path, kind, looked) if kind else None

    def ready(self) -> NonFinite | None:
        """What an accelerator has found meanwhile; the first of it."""
        while self._waiting and self._waiting[0].done():
            finding = self._waiting.pop(0).finding()
            if finding is not None:
                return finding
        return None

    def settle(self) -> NonFinite | None:
        """The same, and wait for what has been asked."""
        for one in self._waiting:
            one.wait()
        return self.ready()

    def forget(self) -> None:
        """Give up what has been asked."""
        self._waiting = []


class _Late:
    """An answer that is computed on an accelerator and copied from there without anybody waiting."""

    def __init__(self, step: int, gradients: list[tuple[str, Tensor]]) -> None:
        self.step, self._paths = step, [path for path, _ in gradients]
        sizes = torch.stack([torch.linalg.vector_norm(gradient.flatten(), math.inf).float() for _, gradient in gradients])
        self._answer = Copy(sizes)
        self.done, self.wait = self._answer.done, self._answer.wait

    def bad(self) -> bool:
        return self.finding() is not None

    def finding(self) -> NonFinite | None:
        for path, size in zip(self._paths, self._answer.numbers().tolist(), strict=True):
            if not math.isfinite(size):
                return NonFinite(self.step, path, "nan" if math.isnan(size) else "inf")
        return None


def kind_of(tensor: Tensor) -> str:
    """Whether a plain tensor holds NaN ("nan"), infinities alone ("inf"), or finite numbers ("").

    The sum alone is taken nearly always; it may overflow where no number did, so that its answer is made sure of.
    """
    half = tensor.dtype is torch.float16
    total = (tensor.sum(dtype=torch.float32) if half else tensor.sum()).item()
    if is_finite(total) or bool(torch.isfinite(tensor).all()):
        return ""
    return "nan" if bool(torch.isnan(tensor).any()) else "inf"


def is_finite(number: complex) -> bool:
    """The same of one number, which is complex where a model's weights are."""
    return math.isfinite(number.real) and math.isfinite(number.imag)


def _gradient(parameter: Tensor) -> Tensor | None:
    """A parameter's gradient; of a DTensor this rank's part of it."""
    gradient = parameter.grad
    return None if gradient is None else local(gradient)


def is_numeric(tensor: Tensor) -> bool:
    """Whether a tensor is of a kind of which a sum can be asked, when its memory is there."""
    if type(tensor) not in PLAIN or tensor.is_meta or tensor.layout is not torch.strided or tensor.is_nested:
        return False
    return tensor.is_floating_point() or tensor.is_complex()


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor has numbers, in memory that is there, that a sum can be asked of."""
    return is_numeric(tensor) and is_there(tensor)


def _early(given: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
    """The smallest parameter of each of the first modules: a bias rather than a weight."""
    owners: dict[str, tuple[str, Tensor]] = {}
    for path, tensor in given:
        if not tensor.requires_grad:
            continue
        owner = path.rpartition(".")[0]
        known = owners.get(owner)
        if known is None:
            if len(owners) == EARLY:
                break
            owners[owner] = path, tensor
        elif tensor.numel() < known[1].numel():
            owners[owner] = path, tensor
    return list(owners.values())
