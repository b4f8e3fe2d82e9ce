"""The index of a watch: the modules of a model and its parameters, each in its place, without keeping them alive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn
from torch.nn import Module
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import is_lazy

from modlab.inspection import marks, stores
from modlab.inspection.distributed import distribution_of
from modlab.inspection.index import ModuleIndex, Node, Placed, Swap
from modlab.records.watch import ACTIVATION, GRADIENT, PARAMETER, PARAMETER_GRADIENT, UPDATE
from modlab.running.module_kinds import is_opaque
from modlab.statistics.memory import local, part_of
from modlab.watching.history import History
from modlab.watching.selection import Selection

STACKED, MANY = 3, 1024
"""Dimensions from which on a parameter may be several weights in one, and how many of those are looked at."""

_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


class Member(Node):
    """One module.

    Attributes:
        module: held weakly.
        activation, gradient: the numbers of its series, -1 until they are needed.
        called: how often it was called in samples; `order`: the how-manieth module it was.
        sizes: the last dimensions of its input and output, at its last call.
        container: whether it only holds others, so that nobody calls it.
        place: its number; `taken`: whether it is measured; of the root alone its calls may be counted, and no more.
    """

    __slots__ = ("activation", "called", "category", "container", "gradient", "module", "order", "place", "sizes", "taken")

    def __init__(self, module: Module, parent: Member | None, name: str) -> None:
        super().__init__(module, parent, name)
        self.module, self.category = ref(module), marks.category(type(module))
        self.container = self.category == "container" or isinstance(module, _CONTAINERS)
        self.activation = self.gradient = -1
        self.called = self.order = 0
        self.sizes = 0, 0
        self.taken, self.place = True, 0


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
        met: whether any sample has looked at it.
        slices: of stacked weights, which slices ever had a gradient other than zero, in so many `looks`; None of others.
        trainable: whether it should be trained, and has numbers on this rank.
        part: what this rank has of it, in words; `empty`: it has nothing of it.
        old: a gradient that was there before the watch, with its version.
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
    met: bool = False
    stacked: bool = False
    swap: Swap | None = None
    part: str = ""
    empty: bool = False
    old: tuple[ReferenceType[Tensor], int] | None = None

    def feel_slices(self, sizes: npt.NDArray[Any]) -> None:
        """Take in how large the gradient of each slice is."""
        felt = np.asarray(sizes != 0)
        self.slices = felt if self.slices is None or len(self.slices) != len(felt) else self.slices | felt
        self.looks += 1

    def tensor(self) -> Tensor | None:
        """The parameter that stands in this place now; the one that is trained, where a wrapper puts others there for a while."""
        if self.swap is not None:
            return self.swap.trained()
        owner = self.owner()
        store: Any = None if owner is None else stores.contents(owner).get("_parameters")
        held: Any = store[self.name] if store and self.name in store else None  # that of a scripted module is no dict
        return held if isinstance(held, Tensor) else None

    def look(self, tensor: Tensor) -> None:
        """Whether it should be trained may have changed, and in FSDP whether there is anything of it here."""
        self.empty = not is_lazy(tensor) and not local(tensor).numel()
        self.trainable = tensor.requires_grad and not self.empty

    def begin_anew(self, tensor: Tensor) -> None:
        """Another tensor stands here now: nothing is known of it."""
        self.graded = self.moved = self.owned = False
        self.felt, self.stuck, self.always_stuck = 0, None, True
        self.look(tensor)

    def note_old(self) -> None:
        """Take down the gradient that is there before the watch."""
        tensor = self.tensor()
        gradient = tensor.grad if tensor is not None and tensor.is_leaf else None
        self.old = (ref(gradient), gradient._version) if gradient is not None else None

    def is_old(self, gradient: Tensor) -> bool:
        """Whether nothing has come to this gradient since the watch began, as to that of an encoder which was trained before."""
        return self.old is not None and self.old[0]() is gradient and self.old[1] == gradient._version

    def stands(self, tensor: Tensor) -> bool:
        """Whether this tensor may stand here."""
        return any(one is tensor for one in self.swap.forms()) if self.swap is not None else self.tensor() is tensor


WHOLE, PART, RUN = 4_000, 1_000, 25
"""Modules and parameters together up to which each sample looks at all of them, and how many it looks at where there are more,
in runs of neighbours."""


class WatchIndex:
    """The modules and parameters of a model, all or some.

    Args:
        root: the model.
        selection: what is looked at; the root is known in any case, for its calls tell of passes.

    Attributes:
        modules: how many the whole model has, without wrappers.
        ranks: over which it lies; `distribution`: by what.
        left: how many modules and parameters are left out.
    """

    def __init__(self, root: Module, selection: Selection | None = None) -> None:
        self._root, self.selection = ref(root), selection or Selection(())
        index = ModuleIndex(root, Member)
        found = index.found
        for member, _ in found:
            member.taken = self.selection.takes(member.path)
        self.members = {id(module): member for member, module in found if _is_looked_at(member, module)}
        for place, member in enumerate(self.members.values()):
            member.place = place
        self._orders = 0
        self._deep: tuple[int, list[str]] = 0, []  # and how many modules were called then
        self._met = {id(module): ref(module) for _, module in found}
        self.modules = sum(not member.inner for member, _ in found)
        self._left, self._known = sum(not (member.taken or member.inner) for member, _ in found), set[int]()
        self._places: dict[int, Weight] = {}
        held = sum(len(stores.contents(module).get("_parameters") or ()) for _, module in found)
        self.history = History.of(2 * len(self.members) + 3 * held)
        tensors = [*index.tensors(found)]
        self.ranks, self.distribution = index.ranks(tensors), distribution_of(root)
        self.weights = [*self._weights(tensors)]
        self._swapped = [weight for weight in self.weights if weight.swap is not None]
        self._siblings: dict[str, list[Weight]] = {}
        for weight in self.weights:
            self._siblings.setdefault(weight.path.rpartition(".")[0], []).append(weight)
        self.opaque = tuple(dict.fromkeys(node.path for node, module in found if is_opaque(module)))

    @property
    def root(self) -> Module | None:
        """The model, as long as there is one."""
        return self._root()

    def siblings(self, weight: Weight) -> list[Weight]:
        """The other parameters of the same module."""
        return [one for one in self._siblings[weight.path.rpartition(".")[0]] if one is not weight]

    def is_new(self, weight: Weight, tensor: Tensor) -> bool:
        """Whether a tensor has come to the place of a parameter; it is known there from now on."""
        new = weight.swap is None and self._places.get(id(tensor)) is not weight
        if new:
            self._places[id(tensor)] = weight
        return new

    def late(self, root: Module) -> tuple[str, ...]:
        """The modules that came into the model later, without those inside of such."""
        paths = [path for path, module in root.named_modules() if not self._is_met(module)]
        return tuple(path for path in paths if not any(path.startswith(f"{above}.") for above in paths))

    def _is_met(self, module: Module) -> bool:
        known = self._met.get(id(module))
        return known is not None and known() is module  # and not one that has its number, since it is gone

    def late_weights(self, root: Module) -> dict[str, Tensor]:
        """The parameters to be trained of the modules that came into the model later, by path; not those that only moved."""
        here, late = {id(tensor) for _, _, tensor in self.present()}, self.late(root)
        named = ((path, tensor) for path, tensor in root.named_parameters() if any(path.startswith(f"{above}.") for above in late))
        return {path: tensor for path, tensor in named if tensor.requires_grad and id(tensor) not in here}

    @property
    def left(self) -> tuple[int, int]:
        """How many modules and parameters are left out."""
        return self._left, len(self._known) - len(self.weights)

    @property
    def parts(self) -> int:
        """Of a very large model each sample looks at one of so many parts, in turn."""
        things = len(self.members) + len(self.weights)
        return 1 if things <= WHOLE else -(-things // PART)

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

    def _weights(self, tensors: Iterable[Placed[Member]]) -> Iterator[Weight]:
        for one in tensors:
            if one.kind == "parameter":
                self._known.add(id(one.tensor))
                if self.selection.takes(one.path):
                    yield self._weight(one)

    def _weight(self, one: Placed[Member]) -> Weight:
        part = part_of(one.tensor)
        rows = tuple(self.history.row(one.path, role, one.node.category, part) for role in (PARAMETER, PARAMETER_GRADIENT, UPDATE))
        made = Weight(one.path, ref(one.owner), one.name, rows, swap=one.swap, part=part)  # type: ignore[arg-type]
        made.dtype = str(one.tensor.dtype)[6:]
        made.look(one.tensor)
        made.note_old()
        made.stacked = not part and not is_lazy(one.tensor) and _is_stack(local(one.tensor), one.owner)
        self._places[id(one.tensor)] = made
        return made

    def weight(self, tensor: Tensor) -> Weight | None:
        """Where a tensor stands, or stood when an optimizer was last asked which ones it holds."""
        return self._places.get(id(tensor)) or next((one for one in self._swapped if one.stands(tensor)), None)

    def knows(self, tensor: Tensor) -> bool:
        """Whether it is a parameter of the model, looked at or not."""
        return id(tensor) in self._known or self.weight(tensor) is not None

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
            weight.trainable = False
            if tensor is not None:
                weight.look(tensor)
                self._places[id(tensor)] = weight

    def own_more(self, optimizers: list[Any]) -> None:
        """Note which parameters an optimizer has taken up since; one that is gone takes none away."""
        held = {id(tensor) for optimizer in optimizers for group in optimizer.param_groups for tensor in group["params"]}
        for weight in self.weights:
            weight.owned = weight.owned or id(weight.tensor()) in held


def _is_stack(tensor: Tensor, module: Module) -> bool:
    """Whether it may hold the matrices of several experts; of a convolution, also of one of somebody's own, the slices are channels."""
    layer = type(module).__module__.startswith("torch.nn.") or isinstance(module, (_ConvNd, nn.Bilinear))
    return tensor.dim() >= STACKED and 1 < tensor.shape[0] <= MANY and not layer


def _is_looked_at(member: Member, module: Module) -> bool:
    """Whether a module is one of those that are told of: not a wrapper, unless nothing is seen of what it wraps; the root in any case."""
    return (member.taken or not member.path) and (not member.inner or bool(is_opaque(module)))
