"""What ``load_state_dict`` would do with some weights, without doing it: PyTorch's rules, key by key."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from modlab.compat import norms
from modlab.inspection import slots, stores
from modlab.inspection.formats.stored import StoredTensor
from modlab.inspection.inventory import STATE, Inventory, Key
from modlab.records.difference import Loading
from modlab.records.structure import ROOT, TensorEntry

_EXTRA = "_extra_state"


class _Value(NamedTuple):
    """What stands under one key of the weights."""

    kind: str  # its type, if it is not a tensor
    facts: TensorEntry | None


def predict(model: Module, weights: Inventory, target: Inventory) -> Loading:
    """What ``model.load_state_dict(weights)`` would do.

    Args:
        model: it is not touched.
        weights: of a mapping or a file.
        target: the inventory of `model`.
    """
    given = _given(weights)
    expected = {entry.path: entry.facts for entry in target.entries if entry.key.section == STATE and entry.is_tensor}
    places = list(slots.places(model))
    missing, loads, mismatched, wrong, converted = [], 0, [], [], []
    for path, module in places:
        if _own_way(module):
            continue
        prefix = path + "." if path else ""
        for name in _own(module):
            value = given.get(prefix + name)
            if value is None:
                if not _filled_in(module, name, path, weights):
                    missing.append(prefix + name)
                continue
            if value.facts is None:
                wrong.append((prefix + name, value.kind))
                continue
            here = expected[prefix + name]
            if not _fits(value.facts.shape, here.shape):
                mismatched.append((prefix + name, value.facts.shape or (), here.shape or ()))
                continue
            loads += 1
            if value.facts.dtype != here.dtype:
                converted.append((prefix + name, value.facts.dtype, here.dtype))
        if _takes_extra(module) and prefix + _EXTRA not in given:
            missing.append(prefix + _EXTRA)
    unexpected = _unexpected(model, given, [path for path, _ in places])
    doubts = [path or ROOT for path, module in places if _own_way(module)]
    if type(model).load_state_dict is not Module.load_state_dict and ROOT not in doubts:
        doubts.insert(0, ROOT)
    return Loading(
        _code(weights), tuple(missing), tuple(unexpected), tuple(mismatched), tuple(wrong), tuple(converted), loads, tuple(doubts)
    )


def _given(weights: Inventory) -> dict[str, _Value]:
    """What stands under each key, as ``load_state_dict`` would find it."""
    facts = {entry.path: entry.facts for entry in weights.entries if entry.key.section == STATE and entry.is_tensor}
    content = weights.content
    if not isinstance(content, Mapping):
        return {path: _Value("", its) for path, its in facts.items()}
    kinds = (Tensor, StoredTensor)
    return {str(key): _Value(type(v).__name__, facts.get(str(key)) if isinstance(v, kinds) else None) for key, v in content.items()}


def _own(module: Module) -> list[str]:
    """The names that a module looks for: parameters, then persistent buffers, without reserved ones."""
    held = stores.contents(module)
    transient = held.get("_non_persistent_buffers_set") or ()
    buffers = {name: tensor for name, tensor in held.get("_buffers", {}).items() if name not in transient}
    both = {**held.get("_parameters", {}), **buffers}
    return [name for name, tensor in both.items() if tensor is not None]


def _fits(given: tuple[int, ...] | None, wanted: tuple[int, ...] | None) -> bool:
    """Lazy tensors take any shape; a scalar takes a vector of one, as files from before torch 0.4 have it."""
    return wanted is None or given == wanted or (wanted == () and given == (1,))


def _filled_in(module: Module, name: str, path: str, weights: Inventory) -> bool:
    """A norm layer takes files from before it counted its batches."""
    if name != "num_batches_tracked" or not issubclass(type(module), norms[:1]):
        return False
    version = ((weights.versions or {}).get(path) or {}).get("version")
    return version is None or version < 2


def _takes_extra(module: Module) -> bool:
    return getattr(type(module), "set_extra_state", Module.set_extra_state) is not Module.set_extra_state


def _unexpected(model: Module, given: dict[str, Any], order: list[str]) -> list[str]:
    """Keys that lead nowhere, in the order in which PyTorch meets them: module by module."""
    found: dict[str, list[str]] = {}
    for key in given:
        module, path, rest = model, "", key
        while True:
            name, dot, below = rest.partition(".")
            children = stores.contents(module).get("_modules", {})
            if rest == _EXTRA or not dot:
                if not _own_way(module) and not ((rest == _EXTRA and _takes_extra(module)) or rest in _own(module)):
                    found.setdefault(path, []).append(key)
                break
            if name not in children and _own_way(module):
                break
            if name not in children:
                found.setdefault(path, []).append(key)
                break
            if children[name] is None:  # a reserved name: PyTorch lets what is below it pass
                break
            module, path, rest = children[name], f"{path}.{name}" if path else name, below
    return [key for path in order for key in found.get(path, ())]


def _own_way(module: Module) -> bool:
    """Whether a module loads its part by code of its own."""
    loads = type(module)._load_from_state_dict
    stock = [getattr(cls, "_load_from_state_dict", None) for cls in (Module, *norms)]
    return loads not in stock or bool(stores.contents(module).get("_load_state_dict_pre_hooks"))


def repaired(found: Loading, model: Module, weights: Inventory, target: Inventory, lines: Sequence[str]) -> Loading:
    """The same prediction with the repair that new names are, if there is one.

    Args:
        found: what loading the weights as they are would do.
        model: it is not touched.
        weights: of a mapping or a file.
        target: the inventory of `model`.
        lines: the code that renames the keys of ``state_dict``.
    """
    if not (found.fails and lines and all(lines)):
        return found
    held = weights.content if isinstance(weights.content, Mapping) else {}
    names = _renamed(lines, [*(e.path for e in weights.entries if e.key.section == STATE), *map(str, held)])
    entries = [replace(e, path=names[e.path], key=Key(STATE, names[e.path])) for e in weights.entries if e.path in names]
    content = {names[str(key)]: value for key, value in held.items() if str(key) in names} or None
    # the new dict has no _metadata, and so no versions
    then = predict(model, replace(weights, entries=entries, content=content, versions=None), target)
    code = "\n".join([_reading(weights), *lines, "model.load_state_dict(state_dict)"]).strip()
    return replace(found, repair=code, repaired=then)


def _renamed(lines: Sequence[str], keys: list[str]) -> dict[str, str]:
    """What the code makes of each key, of a tensor or not: seen by running it on the keys alone."""
    space: dict[str, Any] = {"state_dict": {key: key for key in keys}}
    exec("\n".join(lines), space)  # lines of `modlab.inspection.renames`
    return {old: new for new, old in space["state_dict"].items()}


def _reading(weights: Inventory) -> str:
    """The lines that make the name ``state_dict`` stand for the weights."""
    if weights.form == "mapping":
        return f"state_dict = checkpoint[{weights.part!r}]" if weights.part else ""
    start, loaded = _loaded(weights)
    return f"{start}state_dict = {loaded}"


def _loaded(weights: Inventory) -> tuple[str, str]:
    """Lines of code, and an expression that is the weights of a file."""
    part = f"[{weights.part!r}]" if weights.part else ""
    expanded = weights.given.startswith("~") and not os.path.exists(weights.given)
    bare = os.path.isabs(weights.given)  # no path of this machine is shown
    given = os.path.basename(weights.given.rstrip("/")) if bare else weights.given
    given = os.path.join(given, weights.inner) if weights.inner else given
    start, path = ("import os\n", f"os.path.expanduser({given!r})") if expanded else ("", repr(given))
    if weights.shards:
        read = "safetensors.torch.load_file(file)" if weights.shards == ".safetensors" else "torch.load(file, weights_only=True)"
        needs = "import safetensors.torch\n" if weights.shards == ".safetensors" else ""
        return (
            f"import json\nfrom pathlib import Path\n{needs}{start}index = Path({path})\n"
            "files = {index.parent / name for name in json.loads(index.read_text())['weight_map'].values()}\n",
            f"{{k: v for file in sorted(files) for k, v in {read}.items()}}",
        )
    if weights.format == "safetensors":
        return f"import safetensors.torch\n{start}", f"safetensors.torch.load_file({path})"
    if weights.format == "pt2":
        return start, f"torch.export.load({path}).state_dict"
    if weights.format == "dcp":
        lines = f"from torch.distributed.checkpoint.format_utils import dcp_to_torch_save\n{start}dcp_to_torch_save({path}, 'whole.pt')\n"
        return lines, f"torch.load('whole.pt', weights_only=True){part}"
    return start, f"torch.load({path}, weights_only=True){part}"


def _code(weights: Inventory) -> str:
    part = f"[{weights.part!r}]" if weights.part else ""
    if weights.form == "mapping":
        return f"model.load_state_dict({'checkpoint' if part else 'state_dict'}{part})"
    start, loaded = _loaded(weights)
    return f"{start}model.load_state_dict({loaded})"
