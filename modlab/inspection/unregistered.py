"""Modules and tensors that hang on a module unregistered: in lists, tuples, dicts, sets, small objects or plain attributes.

PyTorch does not train, move or save them, and says nothing. What is registered elsewhere in the model too (a list
kept beside a ``ModuleList``) is no ghost.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module, Parameter

from modlab import format
from modlab.compat import grad_fn
from modlab.inspection import distributed_units, entries, fixes, stores
from modlab.inspection.fixes import SEQUENCES
from modlab.inspection.marks import machinery
from modlab.records.structure import Ghost

DEEP = 8  # containers within containers
WIDE = 100_000  # members looked at in one attribute
LISTED = 20  # ghosts told of one module

BORING = frozenset({int, float, bool, str, bytes, complex, type(None), type, type(lambda: 0), type(print), weakref.ref})
_NAMES = frozenset({int, float, bool, str, bytes, type(None)})
_PLAIN = frozenset({list, tuple, set, frozenset})
_SETS = (set, frozenset)
_HOLDERS = (*SEQUENCES, dict, SimpleNamespace, Tensor, Module)


class Stray(NamedTuple):
    """One tensor that hangs on a module unregistered."""

    place: str
    tensor: Tensor
    way: str
    holder: str


class Hidden(NamedTuple):
    """One module or tensor found in an attribute."""

    place: str  # "[0]", "['a'][1]", "{0}" in a set, ".head" in an object, "" for the attribute itself
    thing: Any


_STORES = ("_parameters", "_buffers", "_modules")
_HARMLESS = dict.fromkeys(BORING, True)


class Suspicion:
    """Whether the attributes of modules may hide something; remembers for one tree which types never do."""

    def __init__(self) -> None:
        self._harmless = _HARMLESS.copy()
        self._empty: dict[int, Any] = {}  # objects that hold nothing: a thousand modules may share one configuration

    def __call__(self, values: list[Any], held: dict[str, Any]) -> bool:
        """Whether one of these attributes is or holds a module or a tensor that the module has not registered itself."""
        own: set[int] | None = None
        for value in values:
            kind = type(value)
            harmless = self._harmless.get(kind)
            if harmless is None:
                harmless = self._harmless[kind] = not (issubclass(kind, _HOLDERS) or _is_dataclass(kind))
            if harmless or id(value) in self._empty or (kind in _PLAIN and _plain_data(value)):
                continue
            if own is None:
                own = {id(thing) for store in _STORES if held.get(store) for thing in held[store].values()}
            if kind in _PLAIN and own.issuperset(map(id, value)):
                continue
            if self._holds_others(value, own):
                return True
        return False

    def _holds_others(self, value: Any, own: set[int]) -> bool:
        found = False
        for hidden in Members(value):
            if id(hidden.thing) not in own:
                return True
            found = True
        if not found and _is_object(type(value)):
            self._empty[id(value)] = value  # kept, so that no other object gets its id
        return False


def _plain_data(value: Any) -> bool:
    """Whether a built-in container holds nothing but numbers and words, or built-in containers of such."""
    for inner in value:
        if type(inner) not in BORING and (type(inner) not in _PLAIN or not BORING.issuperset(map(type, inner))):
            return False
    return True


class Finder:
    """Tells ghosts from attributes that only point at what is registered anyway."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.registered: set[int] = set()
        listed = modules if distributed_units.fsdp1() is None else list(modules)
        flat = distributed_units.Flat(listed)
        self._views = flat.views
        self.registered |= flat.own
        for module in listed:
            self.registered.add(id(module))
            self.registered.update(id(t) for _, t in stores.named_tensors(module))

    def find(self, module: Module) -> tuple[Ghost, ...]:
        """The ghosts among the attributes of `module`."""
        found = []
        for name, value in stores.contents(module).items():
            if name in stores.STANDARD or type(value) in BORING:
                continue
            looked = Members(value)
            hidden = [h for h in looked if id(h.thing) not in self.registered]
            if hidden:
                found.append(self._ghost(module, name, value, hidden, looked.cut))
        return tuple(found) if len(found) <= LISTED else (*found[: LISTED - 1], _summary(found[LISTED - 1 :]))

    def tensors(self, module: Module) -> Iterator[Stray]:
        """The tensors that hang on `module` unregistered, those of hidden modules among them."""
        for name, value in stores.contents(module).items():
            if name in stores.STANDARD or type(value) in BORING:
                continue
            for place, thing in Members(value):
                if id(thing) in self.registered or (id(module), name) in self._views:
                    continue
                by = self._derived_by(module, name)
                how = ("anew", by) if by else _way(value)
                if _is_tensor(thing):
                    yield Stray(name + place, thing, *how)
                else:
                    for path, inner in _inside(thing):
                        yield Stray(f"{name}{place}.{path}", inner, *how)

    def _ghost(self, module: Module, name: str, value: Any, hidden: list[Hidden], cut: bool) -> Ghost:
        modules = [h.thing for h in hidden if stores.is_module(h.thing)]
        tensors = [h.thing for h in hidden if not stores.is_module(h.thing)]
        weights = {id(p): p for m in modules for _, p in _inside(m) if isinstance(p, Parameter)} | {
            id(t): t for t in tensors if isinstance(t, Parameter)
        }
        count = sum(entries.describe("", "parameter", p).count for p in weights.values())
        derived = self._derived_by(module, name)
        way, holder = ("anew", derived) if derived else _way(value)
        fix = "" if derived else fixes.line(module, name, value, modules, tensors)
        advice = "" if derived or fix else fixes.in_words(modules, tensors)
        found = len(modules), len(tensors), count
        return Ghost(name, _what(value, modules, tensors), way, fix, *found, bool(derived), advice, holder, WIDE if cut else 0)

    def _derived_by(self, module: Module, name: str) -> str:
        """What makes a tensor attribute anew before each forward, if something known does: then it is there on purpose."""
        return "FSDP1" if (id(module), name) in self._views else _derived_by(module, name)


def _summary(rest: list[Ghost]) -> Ghost:
    """One row for many ghosts. Its numbers are those of its rows that count, so that the sums over all rows stay right."""
    count = [ghost for ghost in rest if not ghost.harmless] or rest
    modules, tensors, parameters = (sum(getattr(ghost, what) for ghost in count) for what in ("modules", "tensors", "parameters"))
    harmless = all(ghost.harmless for ghost in rest)
    return Ghost("…", f"{len(rest):,} more", "rest", "", modules, tensors, parameters, harmless)


class Members:
    """Modules and tensors in an attribute, through nested containers; what is inside a module belongs to it.

    After the walk, `cut` says whether it ended before everything was looked at.
    """

    def __init__(self, value: Any) -> None:
        self._value = value
        self.cut = False

    def __iter__(self) -> Iterator[Hidden]:
        budget = WIDE + 1  # and the attribute itself
        seen: set[int] = set()
        stack: list[tuple[str, Any, int, bool]] = [("", self._value, 0, False)]
        while stack and budget:
            place, thing, depth, within = stack.pop()
            budget -= 1
            if id(thing) in seen or type(thing) in BORING:
                continue
            if stores.is_module(thing) or _is_tensor(thing):
                seen.add(id(thing))
                yield Hidden(place, thing)
                continue
            is_object = _is_object(type(thing))
            if depth < DEEP and not (within and is_object):  # an object in an object may lead anywhere
                seen.add(id(thing))
                stack.extend((place + mark, inner, depth + 1, within or is_object) for mark, inner in reversed(_open(thing)))
        self.cut = bool(stack)


def _is_object(kind: type) -> bool:
    """Whether its instances are opened by their attributes; containers are opened as such."""
    return (issubclass(kind, SimpleNamespace) or _is_dataclass(kind)) and not issubclass(kind, (*SEQUENCES, dict, Tensor, Module))


def _is_dataclass(kind: type) -> bool:
    """Asks past a metaclass of the user's."""
    return any("__dataclass_fields__" in vars(cls) for cls in kind.__mro__)


def _open(thing: Any) -> list[tuple[str, Any]]:
    if type(thing) in _PLAIN and BORING.issuperset(map(type, thing)):
        return []
    if issubclass(type(thing), dict):  # other mappings may be files or data bases
        return [(f"[{_key(key)}]", inner) for key, inner in dict.items(thing) if type(inner) not in BORING]
    if issubclass(type(thing), _SETS):
        return [(f"{{{i}}}", inner) for i, inner in enumerate(_sorted(thing))]
    for cls in SEQUENCES:  # past what a subclass of the user's says
        if issubclass(type(thing), cls):
            return [(f"[{i}]", inner) for i, inner in enumerate(cls.__iter__(thing)) if type(inner) not in BORING]
    if _is_object(type(thing)):
        return [(f".{name}", inner) for name, inner in _attributes(thing) if type(inner) not in BORING]
    return []


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    try:
        return list(object.__getattribute__(thing, "__dict__").items())
    except AttributeError:  # a dataclass with slots
        return []


def _sorted(members: Any) -> list[Any]:
    """The members of a set that may hide something, in an order that is the same in every process."""
    base = set if issubclass(type(members), set) else frozenset
    return sorted((inner for inner in base.__iter__(members) if type(inner) not in BORING), key=_rank)


def _rank(thing: Any, depth: int = 0) -> str:
    """A text by which members of a set are ordered: class, shapes and dtypes, of modules and tuples those inside."""
    inside: Iterable[Any] = ()
    if _is_tensor(thing):
        entry = entries.describe("", "", thing)
        return f"{type(thing).__name__} {entry.shape} {entry.dtype}"
    if stores.is_module(thing):
        inside = (tensor for _, tensor in islice(_inside(thing), 100))
    elif type(thing) in (tuple, frozenset) and depth < DEEP:
        inside = islice(thing, 100) if type(thing) is tuple else _sorted(thing)[:100]
    elif type(thing) in _NAMES:
        return f"{type(thing).__name__} {thing!r}"
    return " ".join([type(thing).__name__, *(_rank(inner, depth + 1) for inner in inside)])


def _key(key: Any) -> str:
    return format.cut(repr(key), 80) if type(key) in _NAMES else f"<{type(key).__name__}>"


def _is_tensor(thing: Any) -> bool:
    """Asks the type, since an object may lie about its ``__class__``, or raise."""
    return issubclass(type(thing), Tensor)


def _inside(module: Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a hidden module, each once."""
    stack, seen = [("", module)], set()
    while stack:
        path, here = stack.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        prefix = path + "." if path else ""
        for name, tensor in stores.named_tensors(here):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield prefix + name, tensor
        stack.extend((prefix + name, child) for name, child in reversed(stores.named_children(here)) if child is not None)


def _derived_by(module: Module, name: str) -> str:
    """The known utility that computes a plain tensor attribute before each forward, if one does."""
    held = stores.contents(module)
    marks = {machinery(hook) for hook in (held.get("_forward_pre_hooks") or {}).values()} - {"", "lazy"}
    owned = {**held.get("_parameters", {}), **held.get("_buffers", {})}
    if marks and any(other in owned for other in (f"{name}_orig", f"{name}_g")):
        return ", ".join(sorted(marks))
    return ""


def _way(value: Any) -> tuple[str, str]:
    """In which it hides what it hides, and the holder, as `Ghost` has them."""
    if stores.is_module(value):
        return "module", ""
    if isinstance(value, Parameter):
        return "parameter", ""
    if isinstance(value, Tensor):
        return "computed" if grad_fn(value) is not None else "tensor", ""
    return "collection" if is_collection(value) else "object", container(value)


def is_collection(value: Any) -> bool:
    """Whether it is a list, a dict or the like, and no object with attributes."""
    return isinstance(value, (*SEQUENCES, dict))


def container(value: Any) -> str:
    """What a collection is called ("list"); of an object its class."""
    known: tuple[type[Any], ...] = (*SEQUENCES, dict)
    return next((cls.__name__ for cls in known if isinstance(value, cls)), type(value).__name__)


def _what(value: Any, modules: list[Module], tensors: list[Tensor]) -> str:
    if stores.is_module(value):
        return type(value).__name__
    if isinstance(value, Tensor):
        entry = entries.describe("", "attribute", value)
        return f"tensor {entry.shape} {entry.dtype}"
    return f"{container(value)} of {members(modules, tensors)}"


def members(modules: list[Module], tensors: list[Tensor]) -> str:
    """How many of what are hidden: "3 Linear and 1 tensor"."""
    parts = []
    if modules:
        kinds = {type(m).__name__ for m in modules}
        parts.append(f"{len(modules)} {kinds.pop() if len(kinds) == 1 else 'modules'}")
    if tensors:
        parts.append(
            f"{len(tensors)} " + ("Parameter" if all(isinstance(t, Parameter) for t in tensors) else "tensor") + "s" * (len(tensors) > 1)
        )
    return " and ".join(parts)
