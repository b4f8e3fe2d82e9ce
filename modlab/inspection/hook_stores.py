"""The stores of hooks: one dict a kind, on each module, on each tensor, and for all modules. Also: taken out, and put back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab import compat
from modlab.inspection import callables, stores
from modlab.inspection.distributed import unwrapped, users_path
from modlab.records.hooks import EVERY_MODULE, EVERY_OPTIMIZER, of_wrapper

KINDS = {
    "_forward_pre_hooks": "forward pre",
    "_forward_hooks": "forward",
    "_backward_pre_hooks": "full backward pre",
    "_state_dict_pre_hooks": "state_dict pre",
    "_state_dict_hooks": "state_dict post",
    "_load_state_dict_pre_hooks": "load_state_dict pre",
    "_load_state_dict_post_hooks": "load_state_dict post",
    "_buffer_registration_hooks": "buffer registration",
    "_module_registration_hooks": "module registration",
    "_parameter_registration_hooks": "parameter registration",
    "_optimizer_pre_hooks": "optimizer step pre",
    "_optimizer_post_hooks": "optimizer step post",
}
ON_TENSORS = {"_backward_hooks": "gradient", "_post_accumulate_grad_hooks": "post accumulate grad"}

# in the order in which they run; one that a future torch adds comes after these
ORDER = (
    "forward pre",
    "forward",
    "full backward pre",
    "full backward",
    "legacy backward",
    "backward",
    "gradient",
    "post accumulate grad",
    "state_dict pre",
    "state_dict post",
    "load_state_dict pre",
    "load_state_dict post",
    "module registration",
    "parameter registration",
    "buffer registration",
    "optimizer step pre",
    "optimizer step post",
)


@dataclass
class HookStore:
    """The hooks of one kind in one place, as torch keeps them.

    Attributes:
        path: of the module or tensor; what stands for all of them.
        owner: the module's path, also for its tensors; None for all.
        hooks: torch's own dict, from the handle's number to the hook, in the order in which they run.
        marks: the dicts beside it, by what a number in them means ("with_kwargs", "always_called").
    """

    path: str
    owner: str | None
    kind: str
    hooks: dict[Any, Any]
    marks: dict[str, dict[Any, Any]] = field(default_factory=dict)

    def marked(self, key: Any, mark: str) -> bool:
        """Whether the hook of this number has a mark."""
        return key in self.marks.get(mark, ())

    def drop(self, key: Any) -> None:
        """What ``handle.remove()`` does, and the marks that it leaves behind on global hooks."""
        self.hooks.pop(key, None)
        for marks in self.marks.values():
            marks.pop(key, None)


def of_module(path: str, held: dict[str, Any]) -> Iterator[HookStore]:
    """The shelves of a module (given as its ``__dict__``) that hold something."""
    for store in stores.HOOKS:
        if hooks := held.get(store):
            yield _shelf(path, path, store, hooks, held)


def of_tensor(path: str, owner: str, tensor: Tensor) -> Iterator[HookStore]:
    """Hooks on a tensor itself."""
    for store, hooks in compat.tensor_hooks(tensor):
        yield HookStore(path, owner, ON_TENSORS[store], hooks)


def of_all() -> Iterator[HookStore]:
    """Hooks of all modules, and of all optimizers."""
    for place, held in ((EVERY_MODULE, compat.global_hooks()), (EVERY_OPTIMIZER, compat.optimizer_hooks())):
        for store, hooks in held.items():
            if store.endswith("_hooks") and hooks:
                yield _shelf(place, None, store, hooks, held)


def _shelf(path: str, owner: str | None, store: str, hooks: dict[Any, Any], held: dict[str, Any]) -> HookStore:
    if store == "_backward_hooks":
        full = held.get("_is_full_backward_hook")
        kind = "full backward" if full is True else "legacy backward" if full is False else "backward"
    else:
        kind = KINDS.get(store) or store.strip("_").removesuffix("_hooks").replace("_", " ")
    found = {mark: held.get(f"{store}_{mark}") for mark in ("with_kwargs", "always_called")}
    return HookStore(path, owner, kind, hooks, {mark: marks for mark, marks in found.items() if marks is not None})


def rank(shelf: HookStore) -> int:
    """Its place in the order of kinds."""
    return ORDER.index(shelf.kind) if shelf.kind in ORDER else len(ORDER)


def modules(model: Module) -> tuple[list[tuple[str, Module]], dict[int, list[str]]]:
    """Each module once with its first path, in the order of ``named_modules()``; and by identity the further paths of some."""
    inner = unwrapped(model)
    found: list[tuple[str, Module]] = [] if inner is model else [(of_wrapper(type(model).__name__), model)]
    first: set[int] = set()
    also: dict[int, list[str]] = {}
    stack: list[tuple[str, Module]] = [("", inner)]
    while stack:
        path, module = stack.pop()
        if id(module) in first:
            also.setdefault(id(module), []).append(path)
            continue
        first.add(id(module))
        found.append((path, module))
        prefix = path + "." if path else ""
        stack.extend((prefix + name, child) for name, child in reversed(stores.named_children(module)) if child is not None)
    return found, also


def first_path(model: Module, path: str) -> str | None:
    """The first name of the module or tensor that a path leads to, under which its hooks are listed; None if there is none."""
    inner = unwrapped(model)
    if inner is not model:
        if path == of_wrapper(type(model).__name__):
            return path
        return first_path(inner, path) or first_path(inner, users_path(path))
    module: Module | None = model
    *above, last = path.split(".") if path else [""]
    for name in above:
        module = None if module is None else dict(stores.named_children(module)).get(name)
    if module is None:
        return None
    found, _ = modules(model)
    first = {id(one): place for place, one in found}
    target = module if not path else dict(stores.named_children(module)).get(last)
    if target is not None:
        return first[id(target)]
    tensor = dict(stores.named_tensors(module)).get(last)
    if tensor is None:
        return None
    owners = ((place, name) for place, one in found for name, held in stores.named_tensors(one) if held is tensor)
    return next(f"{place}.{name}" if place else name for place, name in owners)


def names(model: Module) -> list[str]:
    """The first names of all modules and tensors."""
    found, _ = modules(model)
    tensors = [f"{path}.{name}" if path else name for path, module in found for name, _ in stores.named_tensors(module)]
    return [*(path for path, _ in found), *tensors]


class HooksAside:
    """Hooks of one shelf that are off for a while."""

    def __init__(self, shelf: HookStore, keys: list[Any]) -> None:
        self.shelf = shelf
        self.before = list(shelf.hooks)
        self.marks = [(marks, dict(marks)) for marks in shelf.marks.values()]
        self.taken = {key: shelf.hooks.pop(key) for key in keys}
        # handle.remove() finds nothing on a shelf that its hook has left; but it clears the marks, and that tells
        self.witness = next(iter(shelf.marks.values()), None) if shelf.owner is not None else None
        if self.witness is not None:
            self.witness.update(dict.fromkeys(keys, True))

    def put_back(self) -> None:
        """Everything to where it was; what was added or removed meanwhile stays so."""
        removed = {key for key in self.taken if self.witness is not None and key not in self.witness}
        for marks, before in self.marks:
            gone = {key for key in before if key not in marks and key not in self.taken} | removed
            kept = {key: value for key, value in before.items() if key not in gone}
            new = {key: value for key, value in marks.items() if key not in before and key not in self.taken}
            marks.clear()
            marks.update({**kept, **new})
        now = list(self.shelf.hooks)
        for key in self.before:
            if key in self.taken and key not in removed and key not in self.shelf.hooks:
                now.insert(self._place(key, now), key)
        for key in now:  # in place: handles and autograd hold this very dict
            hook = self.shelf.hooks.pop(key) if key in self.shelf.hooks else callables.unstaged(self.taken[key])
            self.shelf.hooks[key] = hook

    def _place(self, key: Any, now: list[Any]) -> int:
        """Behind the nearest one that ran before it; else before the nearest one that ran after it; else first of all."""
        at = self.before.index(key)
        for other in reversed(self.before[:at]):
            if other in now:
                return now.index(other) + 1
        return next((now.index(other) for other in self.before[at + 1 :] if other in now), 0)
