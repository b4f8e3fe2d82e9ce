"""The private stores of ``nn.Module``, read as they are: no ``named_*``, no attribute protocol, nothing that a subclass overrides."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn import Module

_ORDER = tuple(vars(Module()))
STANDARD = frozenset(_ORDER)
"""The attributes that every module has; whatever else is in its ``__dict__`` was put there by its author."""

IN_ORDER = _ORDER
"""The same in the order in which ``Module.__init__`` makes them."""

HOOKS = tuple(name for name in _ORDER if name.endswith("_hooks"))

_MODULES = _ORDER.index("_modules")
_FIRST_HOOK, _LAST_HOOK = _ORDER.index(HOOKS[0]), _ORDER.index(HOOKS[-1])
_SIZE = len(_ORDER)
_WRAPPED = "_actual_script_module"


def is_module(thing: object) -> bool:
    """True for modules; asks the type, since an object may lie about its ``__class__``."""
    return issubclass(type(thing), Module)


def contents(module: Module) -> dict[str, Any]:
    """The instance's ``__dict__``, past a ``__getattribute__`` of the user's."""
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return _unwrapped(found) if _WRAPPED in found else found


def _unwrapped(held: dict[str, Any]) -> dict[str, Any]:
    """A traced module has its hooks itself, and everything else in a module inside it, whose names it shows as its own."""
    inner = held[_WRAPPED]
    if not is_module(inner):
        return held
    return {**contents(inner), **{name: value for name, value in held.items() if name != _WRAPPED}}


def own_values(held: dict[str, Any]) -> tuple[bool, list[Any]]:
    """Whether any hook store of a module (given as its ``__dict__``) holds something, and the values of its author's attributes.

    ``Module.__init__`` fills a dict in a fixed order, so that both are slices of its values: a question asked 75,000
    times must be cheap. Where the order differs (attributes set before ``super().__init__()``, unpickled
    modules of an older torch) the names are asked one by one.
    """
    values = [*held.values()]
    if len(values) >= _SIZE and values[_MODULES] is held.get("_modules"):
        return any(values[_FIRST_HOOK : _LAST_HOOK + 1]), values[_SIZE:]
    return any(held.get(name) for name in HOOKS), [value for name, value in held.items() if name not in STANDARD]


def initialized(module: Module) -> bool:
    """Whether ``Module.__init__`` ran."""
    return "_modules" in contents(module)


def mode(module: Module) -> bool | None:
    """The truth of a ``training`` flag that is no bool, or not in the ``__dict__`` (compiled, scripted); None if there is none."""
    if not initialized(module):
        return None
    try:
        return bool(module.training)
    except Exception:  # noqa: BLE001 - a property of the user's may raise anything
        return True


def named_children(module: Module) -> list[tuple[str, Module | None]]:
    """Registered children in order, reserved names among them."""
    return list(contents(module).get("_modules", {}).items())


def modules(root: Module) -> Iterator[Module]:
    """A module and all modules registered below it, each once, in no particular order."""
    todo, seen = [root], {id(root)}
    while todo:
        module = todo.pop()
        yield module
        for _, child in named_children(module):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                todo.append(child)


def named_tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    """The module's own parameters, then its own buffers; reserved names left out."""
    held = contents(module)
    for store in ("_parameters", "_buffers"):
        for name, tensor in held.get(store, {}).items():
            if tensor is not None:
                yield name, tensor


def uninitialized_message(module: Module) -> str:
    """What to tell somebody who forgot ``super().__init__()``."""
    name = type(module).__name__
    return (
        f"{name} was never initialized: its constructor did not call super().__init__(), so it cannot hold parameters or children.\n"
        f"  Put it first in the constructor:\n"
        f"    class {name}(nn.Module):\n"
        f"        def __init__(self{_arguments(type(module))}):\n"
        f"            super().__init__()\n"
        f"            ..."
    )


def _arguments(cls: type) -> str:
    try:
        names = list(inspect.signature(cls).parameters.values())
    except (TypeError, ValueError):
        return ", ..."
    return "".join(f", {p.name}" for p in names if p.kind is p.POSITIONAL_OR_KEYWORD) or ""
