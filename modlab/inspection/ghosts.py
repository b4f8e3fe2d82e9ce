"""Modules and tensors that hang on a module unregistered: in lists, tuples, dicts, sets or plain attributes.

PyTorch does not train, move or save them, and says nothing. What is registered elsewhere in the model too (a list
kept beside a ``ModuleList``) is no ghost.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module, Parameter

from modlab import format
from modlab.inspection import entries, stores
from modlab.inspection.marks import machinery
from modlab.records.structure import Ghost

DEEP = 4  # containers within containers
WIDE = 100_000  # members looked at in one attribute

BORING = frozenset({int, float, bool, str, bytes, complex, type(None), type, type(lambda: 0), type(print), weakref.ref})
_NAMES = frozenset({int, float, bool, str, bytes, type(None)})
_PLAIN = frozenset({list, tuple, set, frozenset})
_HOLDERS = (list, tuple, set, frozenset, deque, dict, Tensor, Module)
_SEQUENCES = (list, tuple, set, frozenset, deque)


class Hidden(NamedTuple):
    """One module or tensor found in an attribute."""

    place: str  # "[0]", "['a'][1]", "" for the attribute itself
    thing: Any


_HARMLESS = dict.fromkeys(BORING, True)


class Suspicion:
    """Whether the attributes of modules may hide something; remembers for one tree which types never do."""

    def __init__(self) -> None:
        self._harmless = _HARMLESS.copy()

    def __call__(self, values: list[Any], held: dict[str, Any]) -> bool:
        """Whether one of these attributes is or holds a module or a tensor that the module has not registered itself."""
        own: set[int] | None = None
        for value in values:
            kind = type(value)
            harmless = self._harmless.get(kind)
            if harmless is None:
                harmless = self._harmless[kind] = not issubclass(kind, _HOLDERS)
            if harmless or (kind in _PLAIN and _plain_data(value)):
                continue
            if own is None:
                own = {id(thing) for store in ("_parameters", "_buffers", "_modules") for thing in held.get(store, {}).values()}
            if kind in _PLAIN and own.issuperset(map(id, value)):
                continue
            if any(id(hidden.thing) not in own for hidden in members(value)):
                return True
        return False


def _plain_data(value: Any) -> bool:
    """Whether a built-in container holds nothing but numbers and words, or built-in containers of such."""
    if BORING.issuperset(map(type, value)):
        return True
    return all(type(inner) in BORING or (type(inner) in _PLAIN and BORING.issuperset(map(type, inner))) for inner in value)


class Finder:
    """Tells ghosts from attributes that only point at what is registered anyway."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self.registered: set[int] = set()
        for module in modules:
            self.registered.add(id(module))
            self.registered.update(id(t) for _, t in stores.named_tensors(module))

    def find(self, module: Module) -> tuple[Ghost, ...]:
        """The ghosts among the attributes of `module`."""
        found = []
        for name, value in stores.contents(module).items():
            if name in stores.STANDARD or type(value) in BORING:
                continue
            hidden = [h for h in members(value) if id(h.thing) not in self.registered]
            if hidden:
                found.append(self._ghost(module, name, value, hidden))
        return tuple(found)

    def tensors(self, module: Module) -> Iterator[tuple[str, Tensor, str]]:
        """The tensors that hang on `module` unregistered, those of hidden modules among them: place, tensor, reason."""
        for name, value in stores.contents(module).items():
            if name in stores.STANDARD or type(value) in BORING:
                continue
            for place, thing in members(value):
                if id(thing) in self.registered:
                    continue
                reason = _derived(module, name) or _reason(value, stores.is_module(thing))
                if _is_tensor(thing):
                    yield name + place, thing, reason
                else:
                    for path, inner in _inside(thing):
                        yield f"{name}{place}.{path}", inner, reason

    def _ghost(self, module: Module, name: str, value: Any, hidden: list[Hidden]) -> Ghost:
        modules = [h.thing for h in hidden if stores.is_module(h.thing)]
        tensors = [h.thing for h in hidden if not stores.is_module(h.thing)]
        weights = {id(p): p for m in modules for _, p in _inside(m) if isinstance(p, Parameter)} | {
            id(t): t for t in tensors if isinstance(t, Parameter)
        }
        count = sum(entries.describe("", "parameter", p).count for p in weights.values())
        derived = _derived(module, name)
        reason = derived or _reason(value, bool(modules))
        fix = "" if derived else _fix(name, value, modules, tensors)
        return Ghost(name, _what(value, modules, tensors), reason, fix, len(modules), len(tensors), count, bool(derived))


def members(value: Any) -> Iterator[Hidden]:
    """Modules and tensors in an attribute, through nested containers; what is inside a module belongs to it."""
    budget = WIDE
    seen: set[int] = set()
    stack: list[tuple[str, Any, int]] = [("", value, 0)]
    while stack and budget:
        place, thing, depth = stack.pop()
        budget -= 1
        if stores.is_module(thing) or _is_tensor(thing):
            if id(thing) not in seen:
                seen.add(id(thing))
                yield Hidden(place, thing)
        elif depth < DEEP and type(thing) not in BORING and id(thing) not in seen:
            seen.add(id(thing))
            stack.extend((place + mark, inner, depth + 1) for mark, inner in reversed(_open(thing)))


def _open(thing: Any) -> list[tuple[str, Any]]:
    if type(thing) in _PLAIN and BORING.issuperset(map(type, thing)):
        return []
    if issubclass(type(thing), dict):  # other mappings may be files or data bases
        return [(f"[{_key(key)}]", inner) for key, inner in dict.items(thing) if type(inner) not in BORING]
    for cls in _SEQUENCES:  # past what a subclass of the user's says
        if issubclass(type(thing), cls):
            return [(f"[{i}]", inner) for i, inner in enumerate(cls.__iter__(thing)) if type(inner) not in BORING]
    return []


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


def _derived(module: Module, name: str) -> str:
    """Why a plain tensor attribute is there on purpose, if a known utility computes it before each forward."""
    held = stores.contents(module)
    marks = {machinery(hook) for hook in (held.get("_forward_pre_hooks") or {}).values()} - {"", "lazy"}
    owned = {**held.get("_parameters", {}), **held.get("_buffers", {})}
    if marks and any(other in owned for other in (f"{name}_orig", f"{name}_g")):
        return f"computed before each forward ({', '.join(sorted(marks))})"
    return ""


def _reason(value: Any, has_modules: bool) -> str:
    if stores.is_module(value):
        return "set past registration: not trained, not moved, not saved"
    if isinstance(value, Parameter):
        return "a Parameter set past registration: not trained, not moved, not saved"
    if isinstance(value, Tensor):
        what = "has a grad_fn: computed once from something else" if value.grad_fn is not None else "a plain tensor attribute"
        return f"{what}: not trained, not moved, not saved"
    kind = "dict" if isinstance(value, dict) else _container(value)
    return f"in a Python {kind}: not trained, not moved, not saved"


def _container(value: Any) -> str:
    return next((cls.__name__ for cls in _SEQUENCES if isinstance(value, cls)), type(value).__name__)


def _what(value: Any, modules: list[Module], tensors: list[Tensor]) -> str:
    if stores.is_module(value):
        return type(value).__name__
    if isinstance(value, Tensor):
        entry = entries.describe("", "attribute", value)
        return f"tensor {entry.shape} {entry.dtype}"
    parts = []
    if modules:
        kinds = {type(m).__name__ for m in modules}
        parts.append(f"{len(modules)} {kinds.pop() if len(kinds) == 1 else 'modules'}")
    if tensors:
        parts.append(
            f"{len(tensors)} " + ("Parameter" if all(isinstance(t, Parameter) for t in tensors) else "tensor") + "s" * (len(tensors) > 1)
        )
    return f"{'dict' if isinstance(value, dict) else _container(value)} of {' and '.join(parts)}"


def _fix(name: str, value: Any, modules: list[Module], tensors: list[Tensor]) -> str:
    if stores.is_module(value) or isinstance(value, Parameter):
        return f"self.{name} = ...  # by plain assignment, after super().__init__()"
    if isinstance(value, Tensor):
        return f'self.register_buffer("{name}", ...)'
    mapping, parameters = isinstance(value, dict), all(isinstance(t, Parameter) for t in tensors)
    listed = f"self.{name}" if isinstance(value, (list, tuple)) else f"[*self.{name}]"
    if modules and not tensors:
        return f"self.{name} = nn.ModuleDict(self.{name})" if mapping else f"self.{name} = nn.ModuleList({listed})"
    if tensors and not modules and parameters:
        return f"self.{name} = nn.ParameterDict(self.{name})" if mapping else f"self.{name} = nn.ParameterList({listed})"
    if tensors and not modules:
        return f'self.register_buffer("{name}_0", ...)  # one for each tensor'
    return "keep modules in an nn.ModuleList and parameters in an nn.ParameterList"
