"""Cases are made here: a net that learns, and a fault that is put into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from bench.sick.causes import CAUSES
from bench.sick.training import Training

Net = Callable[[], Training]
Change = Callable[[Training], None]
Side = Literal["working", "reported"]

SIDES: tuple[Side, ...] = ("working", "reported")
"""Detectors may be tuned to the first, and are judged on the second."""

SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        name: ``net/fault``, once in all.
        net: the training without the fault.
        side: "working" (detectors may be tuned to it) or "reported" (they may not).
        family: of the net: "mlp", "cnn", "recurrent", "transformer", "generative" or "embedding".
        cause: a key of `CAUSES`; "" where nothing is wrong.
        also: further causes that are right answers.
        where: paths of modules or parameters, one of which a right answer may name; empty: a path is not judged.
        change: puts the fault in.
        twin_change: what the twin has, too.
    """

    name: str
    net: Net
    side: Side
    family: str
    cause: str
    also: tuple[str, ...]
    where: tuple[str, ...]
    change: Change
    twin_change: Change

    @property
    def causes(self) -> tuple[str, ...]:
        """All right answers."""
        return (self.cause, *self.also) if self.cause else ()

    def training(self, seed: int) -> Training:
        """The training itself; for the same seed it is the same, bit for bit."""
        return _made(self.net, self.change, seed)

    def twin(self, seed: int) -> Training:
        """The same without the fault."""
        return _made(self.net, self.twin_change, seed)


def _made(net: Net, change: Change, seed: int) -> Training:
    torch.manual_seed(seed)
    training = net()
    change(training)
    return training


def _nothing(training: Training) -> None:
    """Leave a training as it is."""


class Half:
    """Collects the nets, the faults and the strange but healthy trainings of one side.

    >>> half = Half("working")
    >>> @half.net("mlp")
    ... def line(): ...
    >>> @half.fault("no step", line)
    ... def forgotten(training): ...
    >>> [case.name for case in half.cases()]
    ['line/forgotten']
    """

    def __init__(self, side: Side) -> None:
        self.side = side
        self._families: dict[Net, str] = {}
        self._cases: list[Case] = []

    def net(self, family: str) -> Callable[[Net], Net]:
        """A function that makes a training which learns."""

        def add(net: Net) -> Net:
            self._families[net] = family
            return net

        return add

    def fault(
        self, cause: str, *nets: Net, also: Sequence[str] = (), where: Sequence[str] = (), twin: Change = _nothing
    ) -> Callable[[Change], Change]:
        """A function that puts a fault of this cause into a training of each of these nets."""
        unknown = {cause, *also} - CAUSES.keys()
        if unknown:
            raise KeyError(f"{', '.join(sorted(unknown))}: not in CAUSES")
        return partial(self._add, cause, nets, tuple(also), tuple(where), twin)

    def strange(self, *nets: Net) -> Callable[[Change], Change]:
        """A function that makes a training strange, and leaves it healthy."""
        return partial(self._add, "", nets, (), (), _nothing)

    def cases(self) -> list[Case]:
        """The sick and the strange ones; each net as it is counts among the healthy, too."""
        plain = [self._case("as it is", net, "", (), (), _nothing, _nothing) for net in self._families]
        return [*self._cases, *plain]

    def _add(self, cause: str, nets: Sequence[Net], also: tuple[str, ...], where: tuple[str, ...], twin: Change, change: Change) -> Change:
        name = change.__name__.replace("_", " ")
        self._cases += [self._case(name, net, cause, also, where, change, twin) for net in nets]
        return change

    def _case(self, name: str, net: Net, cause: str, also: tuple[str, ...], where: tuple[str, ...], change: Change, twin: Change) -> Case:
        full = f"{net.__name__.replace('_', ' ')}/{name}"
        if any(case.name == full for case in self._cases):
            raise ValueError(f"{full}: there is a case of that name")
        return Case(full, net, self.side, self._families[net], cause, also, where, change, twin)
