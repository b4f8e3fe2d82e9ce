"""A model → its hooks: every kind, on every module, on its tensors, and those that run for all modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn import Module

from modlab.compat import own_class
from modlab.errors import NotInitializedError
from modlab.inspection import callables, hook_stores, marks, stores
from modlab.inspection.hook_stores import HooksAside, HookStore
from modlab.records.hooks import HookbookRecord, HookPlace, HookRecord, Leftover
from modlab.records.structure import ROOT

_CALLED = ("forward pre", "forward", "full backward pre", "full backward", "legacy backward")
_WILD = frozenset("*?[")


def extract(model: Module | None) -> HookbookRecord:
    """The hook book of a model, global hooks among them; of None, the global ones alone."""
    if model is None:
        rows = tuple(row for shelf in _sorted(hook_stores.of_all()) for row in of_shelf(shelf, {}))
        return HookbookRecord("", rows, tuple(HookPlace(path) for path in dict.fromkeys(row.path for row in rows)))
    if not stores.initialized(model):
        raise NotInitializedError(stores.uninitialized_message(model))
    return HookWalk(model).book()


def _sorted(found: Iterator[HookStore]) -> list[HookStore]:
    return sorted(found, key=hook_stores.rank)


class HookWalk:
    """Goes through the modules once, and notes which shelves hold something."""

    def __init__(self, model: Module) -> None:
        self.model = model
        self.modules, self.also = hook_stores.modules(model)
        self.tensors: set[int] = set()
        self.remarks: list[str] = []
        self.silent: dict[str, str] = {}
        self.patched: list[str] = []  # modules on which somebody has set a forward
        self.sources: callables.Sources = {}

    def book(self) -> HookbookRecord:
        """The whole record."""
        rows = [row for shelf in _sorted(hook_stores.of_all()) for row in of_shelf(shelf, self.sources)]
        places = [HookPlace(path) for path in dict.fromkeys(row.path for row in rows)]
        for path, module in self.modules:
            own = [row for shelf in self.of_module(path, module) for row in self._rows(path, module, shelf)]
            self._remark(path, module)
            if own:
                also = tuple(self.also.get(id(module), ())[:3])
                places.append(HookPlace(path, own_class(type(module)).__name__, marks.category(type(module)), also))
                rows += own
            self._out_of_reach(path, module)
        if self.patched:
            more = f" and {len(self.patched) - 3:,} more" if len(self.patched) > 3 else ""
            self.remarks.append(
                f"forward was replaced on {', '.join(self.patched[:3])}{more}: such a wrapper (accelerate uses one) is not a hook "
                f"but still runs; remove it with: del module.forward"
            )
        title = own_class(type(self.model)).__name__
        return HookbookRecord(title, tuple(rows), tuple(places), len(self.modules), len(self.tensors), tuple(dict.fromkeys(self.remarks)))

    def all(self) -> Iterator[HookStore]:
        """Every shelf with something on it, global ones last."""
        for path, module in self.modules:
            yield from self.of_module(path, module)
        yield from hook_stores.of_all()

    def of_module(self, path: str, module: Module) -> list[HookStore]:
        """Those of one module and of its own tensors; a tensor of two modules is looked at once."""
        held = stores.contents(module)
        found: list[HookStore] = list(hook_stores.of_module(path, held)) if stores.own_values(held)[0] else []
        for name, tensor in stores.named_tensors(module):
            if id(tensor) not in self.tensors:
                self.tensors.add(id(tensor))
                found += hook_stores.of_tensor(f"{path}.{name}" if path else name, path, tensor)
        return _sorted(iter(found))

    def _rows(self, path: str, module: Module, shelf: HookStore) -> list[HookRecord]:
        return of_shelf(shelf, self.sources, self._silence(path, module, shelf))

    def _silence(self, path: str, module: Module, shelf: HookStore) -> str:
        """Why hooks of this shelf never run; nothing where nothing is known against it."""
        if shelf.kind == "backward":
            return "_is_full_backward_hook is None, which tells torch that this module has none"
        if shelf.kind not in _CALLED or shelf.path != path:
            return ""
        if path in self.silent:
            return self.silent[path]
        forward = next((vars(base)["forward"] for base in type(module).__mro__ if "forward" in vars(base)), None)
        if forward is vars(Module)["forward"] and "forward" not in stores.contents(module):
            return f"a {type(module).__name__} has no forward and is never called"
        return ""

    def _out_of_reach(self, path: str, module: Module) -> None:
        """Children that are read and not called by a module of torch's own."""
        if type(module) is nn.MultiheadAttention:
            self.silent[f"{path}.out_proj" if path else "out_proj"] = (
                "MultiheadAttention uses the weight and bias of its out_proj without calling it"
            )

    def _remark(self, path: str, module: Module) -> None:
        flags, place = marks.of_class(type(module)), path or ROOT
        if "forward" in stores.contents(module) and "scripted" not in flags:
            name = callables.describe(stores.contents(module)["forward"]).function
            self.patched.append(f"{place} ({name})")
        if "scripted" in flags:
            self.remarks.append(f"{place} is scripted: it accepts no hooks, and those it had before are part of its code")
        if "compiled" in flags or stores.contents(module).get("_compiled_call_impl") is not None:
            self.remarks.append(
                f"{place} is compiled: a hook added inside it after its first call does not run until torch._dynamo.reset()"
            )
        if type(module).__name__ == "DistributedDataParallel":
            self.remarks.append(f"{place} reduces gradients in its own hooks on graph nodes, which Python cannot list")


def of_shelf(shelf: HookStore, sources: callables.Sources, silent: str = "") -> list[HookRecord]:
    """The records of one shelf, in the order in which its hooks run."""
    items = [(key, *callables.given(hook)) for key, hook in list(shelf.hooks.items())]
    hooks = [hook for _, hook, _ in items]
    keys = [key for key, _, _ in items]
    times, left = _times(hooks), _left(keys, hooks)
    repeats, doubts = _repeats(keys, hooks, times), _doubts(keys, hooks)
    return [
        replace(
            _record(shelf, key, hook, sources),
            order=i + 1,
            among=len(items),
            with_module=with_module,
            prepend=_prepended(keys, i),
            times=times[i],
            repeat=repeats[i],
            leftover=left[i],
            doubt="" if left[i] else doubts[i],
            silent=silent,
        )
        for i, (key, hook, with_module) in enumerate(items)
    ]


def _record(shelf: HookStore, key: Any, hook: Any, sources: callables.Sources) -> HookRecord:
    said = callables.describe(hook, sources)
    return HookRecord(
        shelf.path,
        shelf.kind,
        1,
        1,
        said.function,
        said.form,
        said.where,
        said.code,
        with_kwargs=shelf.marked(key, "with_kwargs"),
        always_call=shelf.marked(key, "always_called"),
        public=shelf.kind != "state_dict post" or _flag(hook, "_from_public_api"),
        machinery=said.machinery,
        owner=shelf.owner,
        number=key if isinstance(key, int) else -1,
    )


def _flag(hook: Any, name: str) -> bool:
    try:
        return getattr(hook, name, False) is True
    except Exception:  # noqa: BLE001 - a hook may be any callable of the user's, and raise when it is asked
        return False


def _prepended(keys: Sequence[Any], i: int) -> bool | None:
    """Numbers grow: a hook before an older one was put there; one behind an older one was not put first."""
    if not all(isinstance(key, int) for key in keys):
        return None
    if any(key < keys[i] for key in keys[i + 1 :]):
        return True
    return False if any(key < keys[i] for key in keys[:i]) else None


def _times(hooks: list[Any]) -> list[int]:
    if len(hooks) == 1:
        return [1]
    return [sum(callables.same(hook, other) for other in hooks) for hook in hooks]


def _repeats(keys: list[Any], hooks: list[Any], times: list[int]) -> list[bool]:
    """Of each hook, whether an older one is the same."""
    return [
        number > 1 and any(i != j and _later(keys, i, j) and callables.same(hook, other) for j, other in enumerate(hooks))
        for i, (hook, number) in enumerate(zip(hooks, times, strict=True))
    ]


def _doubts(keys: list[Any], hooks: list[Any]) -> list[str]:
    """Of each lambda, whether a newer one may be it, edited: a lambda has no name that tells."""
    if len(hooks) == 1:
        return [""]
    return [
        "a similar cell that ran later registered a similar lambda"
        if any(i != j and _later(keys, j, i) and callables.edited(hook, other) for j, other in enumerate(hooks))
        else ""
        for i, hook in enumerate(hooks)
    ]


def _left(keys: list[Any], hooks: list[Any]) -> list[Leftover | None]:
    """Of each hook, why it is a left-over: a later run of its cell registered it again, or at least defined it again."""
    found: list[Leftover | None] = []
    for i, hook in enumerate(hooks):
        newer = [other for j, other in enumerate(hooks) if j != i and _later(keys, j, i)]
        if twin := next((other for other in newer if callables.rewritten(hook, other)), None):
            found.append(callables.again(hook, twin))
        else:
            found.append(callables.outdated(hook))
    return found


def _later(keys: list[Any], one: int, other: int) -> bool:
    comparable = isinstance(keys[one], int) and isinstance(keys[other], int)
    return bool(keys[one] > keys[other]) if comparable else one > other


class Asked:
    """Which hooks are meant: by path, kind and function, or by records.

    torch's own machinery, and the hooks that run for all modules where a model was asked about, are meant only by name.
    """

    def __init__(
        self, model: Module | None, path: str | None, kind: str | None, function: Any, records: Sequence[HookRecord] | None
    ) -> None:
        self.of_model = model is not None
        self.path, self.kind, self.function = path, kind, function
        self.records = None if records is None else {(row.path, row.kind, row.number) for row in records}

    def keys(self, shelf: HookStore) -> list[Any]:
        """The numbers of the hooks on this shelf that are meant."""
        if self.records is not None:
            return [key for key in shelf.hooks if (shelf.path, shelf.kind, key) in self.records]
        if not self._fits(shelf):
            return []
        return [key for key, hook in shelf.hooks.items() if self._means(callables.given(hook)[0])]

    def _fits(self, shelf: HookStore) -> bool:
        if self.kind is not None and not matches(shelf.kind, self.kind):
            return False
        if self.path is not None:
            return shelf.path == self.path if shelf.owner is None and self.of_model else matches(shelf.path, self.path)
        return shelf.owner is not None or not self.of_model or self.function is not None

    def _means(self, hook: Any) -> bool:
        if self.function is None:
            return not callables.describe(hook).machinery
        if not isinstance(self.function, str):
            return callables.answers_to(hook, self.function)
        name = callables.describe(hook).function
        return any(matches(one, self.function) for one in (name, name.replace(".<locals>", ""), name.rpartition(".")[2]))


def matches(name: str, pattern: str) -> bool:
    """The name itself, or a pattern that fits it."""
    return name == pattern or fnmatchcase(name, pattern)


def is_pattern(path: str) -> bool:
    """Whether it has wildcards."""
    return not _WILD.isdisjoint(path)


def meant(model: Module | None, asked: Asked) -> list[tuple[HookStore, list[Any]]]:
    """The shelves that hold something that is meant, and the numbers of that."""
    found = hook_stores.of_all() if model is None else HookWalk(model).all()
    return [(shelf, keys) for shelf in found if (keys := asked.keys(shelf))]


def remove(model: Module | None, asked: Asked) -> int:
    """Take hooks out for good, as their handles would; returns how many."""
    found = meant(model, asked)
    for shelf, keys in found:
        for key in keys:
            shelf.drop(key)
    return sum(len(keys) for _, keys in found)


@contextmanager
def off(choose: Callable[[], list[tuple[HookStore, list[Any]]]]) -> Iterator[None]:
    """Take hooks out, and put them back at the end, whatever happened."""
    aside: list[HooksAside] = []
    try:
        for shelf, keys in choose():
            aside.append(HooksAside(shelf, keys))
        yield
    finally:
        for one in reversed(aside):
            one.put_back()
