"""What a learner's code may leave behind: taken down before a check runs it, put back after, and told."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from modlab.compat import global_hooks, optimizer_hooks
from modlab.format import plural
from modlab.instrumentation.randomness import states
from modlab.instrumentation.restoration import Restoration

SEED = 20_240_229
"""Under which every check draws its inputs; the learner's own random numbers go on as if none had been drawn."""

Left = list[str]


@contextmanager
def custody(*answers: Any) -> Iterator[Left]:
    """Run something under a fixed seed, and put the world back as it was.

    Args:
        answers: what is judged; of modules among them everything is put back too.

    Yields:
        A list, which afterwards says what had been left on and was put back.
    """
    restore_numbers, restoration = states(), Restoration()
    told: Left = []
    for answer in answers:
        if isinstance(answer, nn.Module) and "_modules" in vars(answer):
            restoration.add(answer)
    switches = [_Switch(*switch) for switch in _SWITCHES]
    tables = [_Table(name, hooks, "hook for all modules") for name, hooks in global_hooks().items() if isinstance(hooks, dict)]
    tables += [_Table(name, hooks, "hook for all optimizers") for name, hooks in optimizer_hooks().items() if isinstance(hooks, dict)]
    namespaces = [_Namespace(thing) for thing in (F, nn, nn.init, *_classes())]
    streams, filters = (sys.stdout, sys.stderr), warnings.filters[:]
    try:
        torch.manual_seed(SEED)
        random.seed(SEED)
        yield told
    finally:
        told += filter(None, [*(table.restore() for table in tables), *(switch.restore() for switch in switches)])
        told += [line for namespace in namespaces for line in namespace.restore()]
        sys.stdout, sys.stderr = streams
        warnings.filters[:] = filters  # type: ignore[index]
        restore_numbers()
        restoration.restore()


class _Switch:
    """One global setting of torch or Python."""

    def __init__(self, name: str, get: Callable[[], Any], put: Callable[[Any], Any]) -> None:
        self._name, self._get, self._put, self._before = name, get, put, get()

    def restore(self) -> str:
        now = self._get()
        if now == self._before:
            return ""
        self._put(self._before)
        return f"It left {self._name} at {now}; it is {self._before} again."


def _default_device() -> torch.device:
    try:
        return torch.get_default_device()
    except AttributeError:  # torch 2.6, once it was set to None
        return torch.device("cpu")


_SWITCHES: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    ("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    ("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("deterministic algorithms", torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    ("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    ("the default device", _default_device, lambda device: torch.set_default_device(None if device.type == "cpu" else device)),
    ("the working folder", os.getcwd, os.chdir),
    ("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
)


class _Table:
    """A store of global hooks."""

    def __init__(self, name: str, hooks: dict[Any, Any], what: str) -> None:
        self._name, self._hooks, self._what, self._before = name, hooks, what, dict(hooks)

    def restore(self) -> str:
        left = [key for key in self._hooks if key not in self._before]
        lost = [key for key in self._before if key not in self._hooks]
        if not left and not lost:
            return ""
        self._hooks.clear()
        self._hooks.update(self._before)
        if left:
            kind, _, rest = self._what.partition(" ")
            return f"It left {plural(len(left), kind)} {rest} on ({self._name}); {'it is' if len(left) == 1 else 'they are'} removed."
        return f"It removed {len(lost)} {self._what} ({self._name}) that somebody else had put there; back again."


def _classes() -> list[type]:
    """Those of torch.nn, nn.Module first."""
    return list(dict.fromkeys([nn.Module, *(thing for thing in vars(nn).values() if isinstance(thing, type))]))


class _Namespace:
    """A class or a module of torch, whose names a learner's code may have set to something else."""

    def __init__(self, thing: Any) -> None:
        self._thing, self._before = thing, dict(vars(thing))

    def restore(self) -> Iterator[str]:
        before = self._before  # what was imported meanwhile (torch.nn.attention) is nobody's change
        now = {name: value for name, value in vars(self._thing).items() if name in before or not isinstance(value, ModuleType)}
        for name in [name for name in (*before, *(name for name in now if name not in before)) if before.get(name) is not now.get(name)]:
            if name in before:
                setattr(self._thing, name, before[name])
            else:
                delattr(self._thing, name)
            yield f"It changed {self._thing.__name__}.{name} for everybody; it is as it was."
