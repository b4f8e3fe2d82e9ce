"""A module → what ``nn.Module`` keeps about it: every store, read as it is, with what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from modlab import format
from modlab.inspection import callables, distributed_units, entries, marks, stores
from modlab.inspection.spelling import attribute
from modlab.records.internals import CLASS, INSTANCE, METHOD, OWN, InternalsRecord, StoreRecord
from modlab.records.structure import VARIABLE

LISTED = 200  # entries of one store, and attributes of the author's, that a record holds
TEXT = 60
_CALL = "calling the module"


class Words(NamedTuple):
    """What a store is for, and by which public way it is written and read."""

    purpose: str
    writes: str = ""
    reads: str = ""


STORES = {
    "training": Words("train or eval mode of this module", "train(), eval()", "forward"),
    "_parameters": Words("what is learned; None is a reserved name", "self.w = nn.Parameter()", "parameters(), state_dict()"),
    "_buffers": Words("tensors not learned, persistent or not", "register_buffer()", "buffers(), state_dict()"),
    "_non_persistent_buffers_set": Words("buffers that the state_dict leaves out", "register_buffer()", "state_dict()"),
    "_modules": Words("the children; None is a reserved name", "self.m = nn.Linear()", "children(), modules()"),
    "_is_full_backward_hook": Words("which kind of backward hooks it has", "register_full_backward_hook()", _CALL),
    "_forward_pre_hooks": Words("run before forward, may replace the input", "register_forward_pre_hook()", _CALL),
    "_forward_pre_hooks_with_kwargs": Words("which of them get keyword arguments", "register_forward_pre_hook()", _CALL),
    "_forward_hooks": Words("run after forward, may replace the output", "register_forward_hook()", _CALL),
    "_forward_hooks_with_kwargs": Words("which of them get keyword arguments", "register_forward_hook()", _CALL),
    "_forward_hooks_always_called": Words("which of them run after an exception too", "register_forward_hook()", _CALL),
    "_backward_pre_hooks": Words("may replace the gradient of the output", "register_full_backward_pre_hook()", _CALL),
    "_backward_hooks": Words("may replace the gradient of the input", "register_full_backward_hook()", _CALL),
    "_state_dict_pre_hooks": Words("run before the state_dict is written", "register_state_dict_pre_hook()", "state_dict()"),
    "_state_dict_hooks": Words("may change the state_dict once written", "register_state_dict_post_hook()", "state_dict()"),
    "_load_state_dict_pre_hooks": Words("may adapt what will be loaded", "register_load_state_dict_pre_hook()", "load_state_dict()"),
    "_load_state_dict_post_hooks": Words("see which keys were missing", "register_load_state_dict_post_hook()", "load_state_dict()"),
}

ON_CLASS = {
    "_version": Words("format of the class's state", "the class's author", "state_dict()"),
    "call_super_init": Words("arguments go on to the next class", "the class's author", "Module.__init__"),
    "dump_patches": Words("from an old way to save; nothing reads it", "the class's author"),
    "_compiled_call_impl": Words("what compile() made", "compile()", _CALL),
}

METHODS = {
    "forward": "the computation, without the hooks",
    "parameters": "every parameter once, children included",
    "named_parameters": "the same with dotted names",
    "buffers": "every buffer, persistent or not",
    "named_buffers": "the same with dotted names",
    "children": "the modules directly below",
    "named_children": "the same with names",
    "modules": "the module itself and all below it",
    "named_modules": "the same with dotted names",
    "to": "moves or converts parameters and buffers",
    "state_dict": "parameters and persistent buffers by name",
    "load_state_dict": "copies such values into the module",
    "train": "sets training here and below",
    "eval": "train(False)",
}


def extract(module: Module) -> InternalsRecord:
    """All that is kept about `module` itself; of its children only names and types."""
    held = stores.contents(module)
    rows = [*_instance(module, held), *_of_class(module, held), *_own(held), *_methods(module, held)]
    rows = [replace(row, look=_look(module, row)) for row in rows]
    return InternalsRecord(type(module).__name__, tuple(rows), "_modules" in held, tuple(_remarks(module)))


def _look(module: Module, row: StoreRecord) -> str:
    if row.missing:
        return ""
    if row.path in object.__getattribute__(module, "__dict__"):
        return f"vars({VARIABLE})[{row.path!r}]"
    is_of_class = row.section in (CLASS, METHOD) and not marks.is_scripted(module)
    return attribute(f"type({VARIABLE})" if is_of_class else VARIABLE, row.path)


def _remarks(module: Module) -> Iterator[str]:
    flags = marks.of_class(type(module))
    if "scripted" in flags:
        yield "Scripted: parameters, buffers and children are kept in C++, and these stores show them from there."
    if "compiled" in flags:
        yield "Compiled: the original module is in _modules as _orig_mod, and these stores belong to the wrapper."


def _instance(module: Module, held: dict[str, Any]) -> Iterator[StoreRecord]:
    for name in stores.IN_ORDER:
        words = STORES.get(name)
        purpose, writes, reads = words or Words("new in this torch: not described yet")
        row = StoreRecord(
            name, INSTANCE, purpose=purpose, writes=writes, reads=reads, known=words is not None, **_content(module, name, held)
        )
        yield row


def _content(module: Module, name: str, held: dict[str, Any]) -> dict[str, Any]:
    """Type, entries and note of one store."""
    if name not in held:
        return _absent(module, name, held)
    value = held[name]
    kind = type(value).__name__
    try:
        found, note, stale = _entries(name, value, held), _note(name, value, held), _is_stale(name, value, held)
    except Exception as error:  # noqa: BLE001 - somebody has put a thing of his own there
        return {"type": kind, "value": kind, "note": f"reading it raised {type(error).__name__}"}
    if found is None:
        return {"type": kind, "value": plain(value) or kind, "note": note, "stale": stale}
    return {"type": kind, "count": len(found), "entries": tuple(found[:LISTED]), "note": note}


def _absent(module: Module, name: str, held: dict[str, Any]) -> dict[str, Any]:
    if "_modules" not in held:
        return {"missing": True, "note": "super().__init__() has not run"}
    if name == "training" and (mode := stores.mode(module)) is not None:
        return {"type": "bool", "value": str(mode), "note": f"not in the object: {type(module).__name__} answers for it", "answered": True}
    return {"missing": True, "note": "created by an older torch, or deleted"}


def _entries(name: str, value: Any, held: dict[str, Any]) -> list[tuple[str, str]] | None:
    """Names and what is behind them; None where it is no collection."""
    if isinstance(value, (set, frozenset)):
        return [(str(one), "") for one in sorted(value, key=str)]
    if not hasattr(type(value), "items"):
        return None
    if name.endswith("_hooks"):
        return [(_hook(hook), "") for hook in value.values()]
    owner = next((store for store in stores.HOOKS if name.startswith(f"{store}_")), None)
    if owner is not None:
        hooks = held.get(owner) or {}
        return [(_hook(hooks[key]) if key in hooks else "a hook that is gone", "") for key in value]
    transient = held.get("_non_persistent_buffers_set") or () if name == "_buffers" else ()
    return [(str(key), _entry(one) + (" non-persistent" if key in transient else "")) for key, one in value.items()]


def _hook(hook: Any) -> str:
    return callables.describe(callables.given(hook)[0]).function


def _entry(thing: Any) -> str:
    if thing is None:
        return "reserved"
    if issubclass(type(thing), Tensor):
        shape = entries.describe("", "", thing).shape
        return "lazy" if shape is None else "scalar" if not shape else str(shape)
    return type(thing).__name__


def _note(name: str, value: Any, held: dict[str, Any]) -> str:
    if name == "_buffers":
        transient = held.get("_non_persistent_buffers_set") or ()
        hidden = sum(key in transient for key, _ in value.items())
        reserved = sum(one is None and key not in transient for key, one in value.items())
        more = f", {reserved} reserved" if reserved else ""
        return f"both kinds: {len(value) - hidden - reserved} persistent, {hidden} not{more}" if hidden else ""
    return f"stays {value} after remove()" if _is_stale(name, value, held) else ""


def _is_stale(name: str, value: Any, held: dict[str, Any]) -> bool:
    """Whether it tells of hooks that are gone."""
    return name == "_is_full_backward_hook" and value is not None and not held.get("_backward_hooks")


def plain(value: Any) -> str:
    """A number, text or None as Python writes it; a collection of such, if it is short; else nothing."""
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        text = repr(value)
        return text if len(text) <= TEXT else format.cut(text, TEXT)
    if type(value) in (tuple, list) and len(value) <= 8 and all(one is None or type(one) in (bool, int, float, str) for one in value):
        return format.cut(repr(value), TEXT)
    return ""


def _of_class(module: Module, held: dict[str, Any]) -> Iterator[StoreRecord]:
    """Plain values that stand on ``Module`` itself, as the module's own class has them."""
    for name in _class_level():
        words = ON_CLASS.get(name)
        purpose, writes, reads = words or Words("new in this torch: not described yet")
        value, home = (held[name], "the object itself") if name in held else _found(type(module), name)
        yield StoreRecord(
            name,
            CLASS,
            type(value).__name__,
            value=plain(value) or type(value).__name__,
            purpose=purpose,
            writes=writes,
            reads=reads,
            home=home,
            note=_of_flag(name, value, home),
            known=words is not None,
        )


def _class_level() -> list[str]:
    """Those that we know first; any other plain value that a future torch puts on the class is found too."""
    found = [
        name for name, value in vars(Module).items() if not name.startswith("__") and (value is None or type(value) in (bool, int, str))
    ]
    return sorted(found, key=lambda name: [*ON_CLASS, name].index(name))


def _found(cls: type, name: str) -> tuple[Any, str]:
    home = next((base for base in cls.__mro__ if name in vars(base)), Module)
    return vars(home).get(name), home.__name__


def _of_flag(name: str, value: Any, home: str) -> str:
    if name == "_version":
        return "saved in state_dict()._metadata"
    if name == "call_super_init" and value is False:
        return "extra arguments are a TypeError"
    return f"set by {home}" if home not in ("Module", "the object itself") else ""


def _own(held: dict[str, Any]) -> Iterator[StoreRecord]:
    for name, value in list(held.items()):
        if name in stores.STANDARD or name in ON_CLASS or name in METHODS or name.startswith(distributed_units.OWN):
            continue
        count, unseen = _inside(value)
        text = plain(value) or (_entry(value) if count is None else f"{type(value).__name__} of {count:,}")
        note = f"not registered: {unseen}" if unseen else ""
        yield StoreRecord(str(name), OWN, type(value).__name__, value=text, note=note, unregistered=bool(unseen))


def _inside(value: Any) -> tuple[int | None, str]:
    """How many a collection holds, and what torch does not see of it."""
    cls = type(value)
    if issubclass(cls, Tensor):
        return None, "a plain tensor"
    if issubclass(cls, Module):
        return None, "a module"
    if cls not in (list, tuple, dict, set):
        return None, ""
    parts = list(value.values() if cls is dict else value)[:1000]
    if any(issubclass(type(part), Module) for part in parts):
        return len(value), "modules in it"
    if any(issubclass(type(part), Tensor) for part in parts):
        return len(value), "tensors in it"
    return len(value), ""


def _methods(module: Module, held: dict[str, Any]) -> Iterator[StoreRecord]:
    for name, purpose in METHODS.items():
        if name in held:
            yield StoreRecord(
                name, METHOD, purpose=purpose, value="set on the object", home="the object itself", note="hides the class's own"
            )
            continue
        value, home = _found(type(module), name)
        if name == "forward" and value is vars(Module)[name]:
            note = "calling raises NotImplementedError"
            yield StoreRecord(name, METHOD, purpose=purpose, home=home, note=note, missing=True)
            continue
        note = "" if name == "forward" or home == "Module" else "overridden"
        yield StoreRecord(name, METHOD, purpose=purpose, value=f"of {home}", home=home, note=note)
