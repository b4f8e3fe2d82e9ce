"""Suspects in the user's own code: lines that change a tensor in place, stop the graph, or hide modules."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Iterator

from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.definitions import place_of
from modlab.instrumentation.accidents.calls import join
from modlab.instrumentation.accidents.scene import Scene

MODULES = 5_000  # of a model, looked at
FOUND = 6

IN_PLACE = re.compile(
    r"(?:^|;)\s*[\w.\[\]]*[\w\])]\s*(?:\+|-|\*|/|//|@|\*\*|%|&|\|)=(?!=)|\.(?!requires_grad_|zero_grad)[a-z]\w*[a-z0-9]_\("
    r"|^\s*\w[\w.]*\[[^=\]]*\]\s*=[^=]|inplace\s*=\s*True"
)
DETACHED = re.compile(
    r"\.detach\(\)|\.item\(\)|\.data\b|\.numpy\(|\bno_grad\b|\binference_mode\b|\btorch\.tensor\(|set_grad_enabled\(False\)|\.argmax\("
    r"|requires_grad_?\s*[(=]\s*False"
)

Suspect = tuple[str, str]
"""A place in the code ("net.py:12") and the line there; or a module's path and its class."""


def _of_code(code: object, pattern: re.Pattern[str], until: int | None = None) -> Iterator[Suspect]:
    name, first = getattr(code, "co_filename", ""), getattr(code, "co_firstlineno", 1) or 1
    last = max((line for _, _, line in code.co_lines() if line), default=first) if hasattr(code, "co_lines") else first
    source = linecache.getlines(name)
    for number in range(first, min(last if until is None else min(last, until), len(source)) + 1):
        line = source[number - 1].strip()
        if not line.startswith("#") and pattern.search(line):
            yield place_of(name, number), line


def lines(scene: Scene, pattern: re.Pattern[str]) -> list[Suspect]:
    """The lines that match, in the functions of the traceback up to where they stopped, and in the forwards of the models there."""
    found: dict[Suspect, None] = {}
    for frame in scene.frames:
        if frame.is_users:
            found.update(dict.fromkeys(_of_code(frame.code, pattern, frame.line)))
    for _, model in scene.models[:4]:
        for cls in _classes(model):
            forward = next((vars(base)["forward"] for base in cls.__mro__ if "forward" in vars(base)), None)
            if inspect.isfunction(forward):
                found.update(dict.fromkeys(_of_code(forward.__code__, pattern)))
    return list(found)[:FOUND]


def _classes(model: Module) -> list[type]:
    found: dict[type, None] = {}
    for _, module in walk(model):
        cls = type(module)
        if not cls.__module__.startswith("torch."):
            found.setdefault(cls)
    return list(found)


def walk(model: Module, limit: int = MODULES) -> Iterator[tuple[str, Module]]:
    """Paths and modules, each module once, no more than `limit`."""
    stack, seen = [("", model)], {id(model)}
    while stack and limit:
        limit -= 1
        path, module = stack.pop()
        yield path, module
        for name, child in reversed(stores.named_children(module)):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                stack.append((join(path, name), child))


def in_place_modules(scene: Scene) -> list[Suspect]:
    """The modules of the models there that change their input in place."""
    found = [(join(name, path), type(module).__name__) for name, model in scene.models[:4] for path, module in walk(model)
             if stores.contents(module).get("inplace") is True]  # fmt: skip
    return found[:FOUND]
