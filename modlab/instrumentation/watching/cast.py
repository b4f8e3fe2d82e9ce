"""Who is watched: the modules of a model and its parameters, by identity, without keeping them alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.nn import Module

from modlab.inspection import marks, stores
from modlab.instrumentation.recording.roster import is_opaque, walk
from modlab.instrumentation.watching.history import History
from modlab.instrumentation.watching.selection import Selection
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, PARAMETER_GRADIENT, UPDATE

STACKED, MANY = 3, 1024
"""Dimensions from which on a parameter may be several weights in one, and how many of those are looked at."""


@dataclass(slots=True, eq=False)
class Member:
    """One module.

    Attributes:
        activation, gradient: the numbers of its series, -1 until they are needed.
        called: how often it was called in samples; `order`: the how-manieth module it was.
        sizes: the last dimensions of its input and output, at its last call.
        taken: whether it is measured; of the root alone its calls may be counted, and no more.
    """

    path: str
    module: ReferenceType[Module]
    category: str
    activation: int = -1
    gradient: int = -1
    called: int = 0
    order: int = 0
    sizes: tuple[int, int] = (0, 0)
    taken: bool = True


@dataclass(slots=True, eq=False)
class Weight:
    """One parameter, where it was met first.

    Attributes:
        graded, moved: whether a sample has seen a gradient other than zero, or a change.
        felt: in how many samples it had a gradient at all.
        stuck: the share of its elements with a gradient that do not move, lately; None if that was not seen.
        always_stuck: whether nearly all of them never did.
        rows: of the parameter, its gradient and its updates.
        stacked: whether it is several weights in one, as of experts, and not of a module of torch's own, as a convolution's.
        slices: of stacked weights, which slices ever had a gradient other than zero, in so many `looks`; None of others.
    """

    path: str
    owner: ReferenceType[Module]
    name: str
    rows: tuple[int, int, int]
    trainable: bool = True
    graded: bool = False
    moved: bool = False
    felt: int = 0
    owned: bool = True
    stuck: float | None = None
    always_stuck: bool = True
    dtype: str = ""
    slices: npt.NDArray[np.bool_] | None = None
    looks: int = 0
    stacked: bool = False

    def feel_slices(self, sizes: npt.NDArray[Any]) -> None:
        """Take in how large the gradient of each slice is."""
        felt = np.asarray(sizes != 0)
        self.slices = felt if self.slices is None or len(self.slices) != len(felt) else self.slices | felt
        self.looks += 1

    def tensor(self) -> Tensor | None:
        """The parameter that stands in this place now."""
        owner = self.owner()
        store: Any = None if owner is None else stores.contents(owner).get("_parameters")
        held: Any = store[self.name] if store and self.name in store else None  # that of a scripted module is no dict
        return held if isinstance(held, Tensor) else None


class Cast:
    """The modules and parameters of a model, all or some.

    Args:
        root: the model.
        selection: what is looked at; the root is known in any case, for its calls tell of passes.

    Attributes:
        known: the parameters of the whole model, by identity; `modules`: how many modules it has.
        left: how many modules and parameters are left out.
    """

    def __init__(self, root: Module, selection: Selection | None = None) -> None:
        self.selection = selection or Selection(())
        self.members: dict[int, Member] = {}
        self._orders = 0
        self._deep: tuple[int, list[str]] = 0, []  # and how many modules were called then
        self.weights: list[Weight] = []
        found = [*walk("", root, {})]
        for path, module in found:
            taken = self.selection.takes(path)
            if taken or not path:
                self.members[id(module)] = Member(path, ref(module), marks.category(type(module)), taken=taken)
        self.modules, self.known = len(found), set[int]()
        self.places: dict[int, Weight] = {}
        held = sum(len(stores.contents(module).get("_parameters") or ()) for _, module in found)
        self.history = History.of(2 * len(self.members) + 3 * held)
        for path, module in found:
            self._add_weights(path, module)
        self.opaque = tuple(path for path, module in found if is_opaque(module))

    @property
    def left(self) -> tuple[int, int]:
        """How many modules and parameters are left out."""
        return self.modules - sum(member.taken for member in self.members.values()), len(self.known) - len(self.places)

    def present(self) -> list[tuple[int, Weight, Tensor]]:
        """The parameters that are there now, each with its place among `weights`."""
        return [(place, weight, tensor) for place, weight in enumerate(self.weights) if (tensor := weight.tensor()) is not None]

    @property
    def deep(self) -> list[str]:
        """The modules with parameters of their own, in the order of their first calls."""
        if self._deep[0] != self._orders:
            self._deep = self._orders, self._deeper()
        return self._deep[1]

    def _deeper(self) -> list[str]:
        owners = {weight.owner() for weight in self.weights}
        found = [member for member in self.members.values() if member.called and member.module() in owners]
        return [member.path for member in sorted(found, key=lambda member: member.order)]

    def calls(self, member: Member) -> None:
        """Count a call."""
        if not member.called:
            self._orders += 1
            member.order = self._orders
        member.called += 1

    def _add_weights(self, path: str, module: Module) -> None:
        for name, tensor in (stores.contents(module).get("_parameters") or {}).items():
            full = f"{path}.{name}" if path else name
            if not isinstance(tensor, Tensor):
                continue
            self.known.add(id(tensor))
            if id(tensor) not in self.places and self.selection.takes(full):
                category = marks.category(type(module))
                rows = tuple(self.history.row(full, role, category) for role in (PARAMETER, PARAMETER_GRADIENT, UPDATE))
                weight = Weight(full, ref(module), name, rows, tensor.requires_grad, dtype=str(tensor.dtype)[6:])  # type: ignore[arg-type]
                weight.stacked = _is_stack(tensor, module)
                self.places[id(tensor)] = weight
                self.weights.append(weight)

    def activation(self, member: Member) -> int:
        """The series of a module's output."""
        if member.activation < 0:
            member.activation = self.history.row(member.path, ACTIVATION, member.category)
        return member.activation

    def gradient(self, member: Member) -> int:
        """The series of that output's gradient."""
        if member.gradient < 0:
            member.gradient = self.history.row(member.path, GRADIENT, member.category)
        return member.gradient

    def own(self, optimizers: list[Any]) -> None:
        """Note which parameters any of the optimizers holds."""
        held = {id(tensor) for optimizer in optimizers for group in optimizer.param_groups for tensor in group["params"]}
        for weight in self.weights:
            tensor = weight.tensor()
            weight.owned = tensor is not None and id(tensor) in held
            weight.trainable = tensor is not None and tensor.requires_grad


def _is_stack(tensor: Tensor, module: Module) -> bool:
    return tensor.dim() >= STACKED and 1 < tensor.shape[0] <= MANY and not type(module).__module__.startswith("torch.nn.")
