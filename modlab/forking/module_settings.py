"""Settings of modules and of optimizers' groups that a loop changes between its calls: modes, rates of dropout, learning rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.modules.dropout import _DropoutNd

from modlab.compat import norms
from modlab.forking.tape import PlaceNumbers, alike
from modlab.inspection import stores
from modlab.running.module_kinds import is_torchs
from modlab.tracing.tensor_ids import version_of

Setting = tuple[str, str, Any]
"""A module's name, an attribute of it, and its value."""


OtherMember = tuple[str, str]
"""What the loop did to the model's members, a key of `wording.forks.MEMBERS`, and the name of what it did it to."""


class ModuleSettings:
    """Floats among the modules' attributes, and their modes: what changes between two calls, somebody has set.

    Of classes that are not torch's all attributes. So it is with modules, parameters and buffers that come, go or are replaced.

    Attributes:
        unrepeated: names of attributes in which something else than a number, a text or None was put: a fork does not put it there.
    """

    def __init__(self) -> None:
        self.unrepeated: dict[str, None] = {}
        self._places: list[tuple[str, dict[str, Any], str]] = []
        self._last: list[Any] = []
        self._untold: tuple[Setting, ...] = ()  # what was set before a state was kept, and no call has told of
        self._contents: list[tuple[str, dict[str, Any]]] = []
        self._members: list[int] = []
        self._buffers: list[int] = []

    def follow(self, modules: Mapping[str, Module]) -> None:
        """From now on those of these modules, by name; what was set until now is told with the next call."""
        self._untold = self.changes() or ()
        held = [(path, stores.contents(module)) for path, module in modules.items()]
        own = {path for path, module in modules.items() if not is_torchs(type(module))}
        self._places = [
            (path, one, name)
            for path, one in held
            for name, value in one.items()
            if name == "training" or type(value) is float or (path in own and name not in stores.STANDARD and name != "forward")
        ]
        self._contents = held
        self._last, self._members, self._buffers = self._now(), self._members_now(), self._buffers_now()

    def _now(self) -> list[Any]:
        return [_told(held.get(name)) for _, held, name in self._places]

    def read(self) -> None:
        """A call has ended: what it has changed itself, it changes in a fork as well."""
        self._last, self._members = self._now(), self._members_now()

    def _members_now(self) -> list[int]:
        parts = [id(one) for _, held in self._contents for name in ("_modules", "_parameters") for one in held[name].values()]
        return parts + [len(held["_buffers"]) for _, held in self._contents] + [id(held.get("forward")) for _, held in self._contents]

    def _buffers_now(self) -> list[int]:
        return [id(one) for _, held in self._contents for one in held["_buffers"].values()]

    def other_members(self) -> OtherMember | None:
        """What the loop did to a module, a parameter, a buffer or a `forward` since; that it replaced a buffer does not count."""
        before, self._members = self._members, self._members_now()
        return None if self._members == before else self._other(before)

    def _other(self, before: list[int]) -> OtherMember:
        """What it is: there are others, others in their places, or other buffers."""
        named = [
            (f"{path}.{name}".lstrip("."), one)
            for path, held in self._contents
            for kind in ("_modules", "_parameters")
            for name, one in held[kind].items()
        ]
        new = next(((name, one) for name, one in named if one is not None and id(one) not in {*before}), None)
        if new is not None and not isinstance(new[1], (Parameter, Module)):  # torch.func puts plain tensors in the places of parameters
            return "called", ""
        if len(before) != len(self._members):
            return ("taken", "") if new is None else ("put", new[0])
        if new is not None:
            return "replaced", new[0]
        places = [path or "the model" for path, _ in self._contents]
        whats = [
            *(("emptied", name) for name, _ in named),
            *(("buffers", path) for path in places),
            *(("forward", path) for path in places),
        ]
        others = [what for what, old, now in zip(whats, before, self._members, strict=True) if old != now]
        return others[0] if len(others) == 1 else ("", "")

    def replaced(self) -> list[tuple[int, str, str, Any]]:
        """The buffers in whose place others stand since: by the identity of the old one, the name of its module, and its own."""
        before, self._buffers = self._buffers, self._buffers_now()
        if self._buffers == before or len(self._buffers) != len(before):
            return []
        named = [(path, name, one) for path, held in self._contents for name, one in held["_buffers"].items()]
        return [(old, *each) for old, each in zip(before, named, strict=True) if old != id(each[2])]

    def changes(self) -> tuple[Setting, ...] | None:
        """What was set since; None if nothing."""
        now, last, untold = self._now(), self._last, self._untold
        if now == last and not untold:
            return None
        self._last, self._untold = now, ()
        every = zip(self._places, now, last, strict=True)
        changed = [(path, name, value) for (path, _, name), value, before in every if value != before]
        self.unrepeated |= dict.fromkeys(f"{path}.{name}".lstrip(".") for path, name, value in changed if type(value) is tuple)
        return (*untold, *(one for one in changed if type(one[2]) is not tuple)) or None


def _told(value: Any) -> Any:
    """What an attribute holds, or, of what is no plain value, which object it is; that is a tuple."""
    return value if type(value) in _PLAIN else ("object", id(value))


_PLAIN = frozenset({bool, int, float, str, NoneType})


SCANS = 2
"""Calls behind a kept state after which new attributes are looked for: a first pass makes some."""


class TensorAttributes:
    """Tensors that stand in attributes of modules, as a forward pass leaves them there for the loss."""

    def __init__(self) -> None:
        self._contents: list[tuple[str, dict[str, Any]]] = []
        self._places: list[tuple[str, dict[str, Any], str]] = []
        self._scans = 0

    def follow(self, modules: Mapping[str, Module]) -> None:
        """From now on those of these modules, by name."""
        self._contents = [(path, object.__getattribute__(module, "__dict__")) for path, module in modules.items()]
        self._scans = 0

    def now(self) -> list[tuple[str, str, Tensor]]:
        """Each with the name of its module, and its own."""
        if self._scans < SCANS:
            self._scans += 1
            self._places = [(path, one, name) for path, one in self._contents for name, value in one.items() if isinstance(value, Tensor)]
        held = ((path, name, one.get(name)) for path, one, name in self._places)
        return [(path, name, thing) for path, name, thing in held if isinstance(thing, Tensor)]


def computes_by_mode(module: Module) -> bool:
    """Whether a module computes otherwise in training mode than in evaluation: dropout, a batch norm, code of the user's that asks."""
    if isinstance(module, norms):
        return bool(module.track_running_stats)
    if not is_torchs(type(module)):
        codes = (getattr(value, "__code__", None) for base in type(module).__mro__ if not is_torchs(base) for value in vars(base).values())
        return any(code is not None and "training" in code.co_names for code in codes)
    drops = vars(module).get("p" if isinstance(module, _DropoutNd) else "dropout", 0.0)
    return isinstance(drops, float) and drops > 0


def are_in_other_modes(some: Mapping[str, Module], others: Mapping[str, Module]) -> bool:
    """Whether a module that computes by its mode is in another one here than there."""
    pairs = [(one, others[path]) for path, one in some.items() if path in others]
    return any(stores.mode(one) is not stores.mode(other) and computes_by_mode(one) for one, other in pairs)


MOST = 100
"""Numbers that are named."""


def numbers_of(modules: Mapping[str, Module]) -> dict[str, tuple[str, float]]:
    """Of the numbers that are set on modules the first ones, by name: each with the class of its module.

    Those that only keep a division from failing (``eps``) are left out.
    """
    found: dict[str, tuple[str, float]] = {}
    for path, module in modules.items():
        for name, value in object.__getattribute__(module, "__dict__").items():
            if path and type(value) is float and name != "eps" and not name.startswith("_"):
                found[f"{path}.{name}"] = type(module).__name__, value
                if len(found) == MOST:
                    return found
    return found


Group = tuple[dict[str, Any], tuple[int, ...]]
"""The settings of a group of parameters, and the numbers of its parameters."""


class GroupSettings:
    """What schedulers, knobs and users set in optimizers' groups, and whether they change what is in an optimizer's state."""

    def __init__(self) -> None:
        self._last: dict[int, list[Any]] = {}
        self._states: dict[int, list[Any]] = {}

    def follow(self, number: int, optimizer: Any) -> None:
        """A state is kept. Of one that is known, what was set since its last step is told with the next one."""
        if number not in self._last:
            self.read(number, optimizer)

    def read(self, number: int, optimizer: Any) -> None:
        """It has made a step."""
        self._last[number] = [_signature(group) for group in optimizer.param_groups]
        self._states[number] = _signatures(optimizer)

    def rested(self) -> None:
        """Steps were made that were not seen."""
        self._states = {}

    def has_other_state(self, number: int, optimizer: Any) -> bool:
        """Whether the loop itself has changed its state since."""
        return number in self._states and self._states[number] != _signatures(optimizer)

    def changes(self, number: int, optimizer: Any, places: PlaceNumbers) -> list[Group] | None:
        """All groups, if anything was set since; else None."""
        now = [_signature(group) for group in optimizer.param_groups]
        if now == self._last.get(number):
            return None
        return [(settings_of(group), tuple(map(places.of, group["params"]))) for group in optimizer.param_groups]

    def added(self, number: int, optimizer: Any, places: PlaceNumbers) -> list[Group] | None:
        """All groups, if some were added since; else None."""
        is_same = len(optimizer.param_groups) == len(self._last.get(number, ()))
        return None if is_same else self.changes(number, optimizer, places)


def settings_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a group; tensors among them are copied."""
    return {name: alike(value) if isinstance(value, Tensor) else value for name, value in group.items() if name != "params"}


def _signature(group: Mapping[str, Any]) -> list[Any]:
    return [
        len(value) if name == "params" else (id(value), value._version) if isinstance(value, Tensor) else value
        for name, value in group.items()
    ]


def _signatures(optimizer: Any) -> list[Any]:
    held = [(key, state) for key, state in optimizer.state.items() if isinstance(state, dict)]
    return [(id(key), [_mark(one) for one in state.values()]) for key, state in held]


def _mark(value: Any) -> Any:
    return (id(value), version_of(value)) if isinstance(value, Tensor) else id(value)


def named_modules(roots: Sequence[tuple[str, Module]]) -> dict[str, Module]:
    """All modules below some roots by dotted name, each once."""
    found: dict[str, Module] = {}
    seen: set[int] = set()
    todo = [*roots]
    while todo:
        path, module = todo.pop(0)
        if id(module) in seen:
            continue
        seen.add(id(module))
        found[path] = module
        todo[:0] = [(f"{path}.{name}" if path else name, child) for name, child in stores.named_children(module) if child is not None]
    return found
