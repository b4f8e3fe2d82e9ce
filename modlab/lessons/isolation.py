"""Isolation of a learner's code: what it may leave behind is taken down before a check runs it, put back after, and told."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import nn

from modlab.compat import global_hooks, optimizer_hooks
from modlab.format import plural
from modlab.lessons import settings
from modlab.lessons.settings import GlobalSetting
from modlab.running.randomness import states
from modlab.running.restoration import Restoration

SEED = 20_240_229
"""Under which every check draws its inputs; the learner's own random numbers go on as if none had been drawn."""

Left = list[str]


@contextmanager
def isolated(*answers: Any) -> Iterator[Left]:
    """Run something under a fixed seed, and put the world back as it was.

    Each thing is put back by itself: one that cannot be is told, and keeps no other from it. An interrupt meanwhile comes afterwards.

    Args:
        answers: what is judged; of modules among them everything is put back too.

    Yields:
        A list, which afterwards says what had been left on and was put back.
    """
    told: Left = []
    grad = torch.is_grad_enabled()
    with torch.inference_mode(torch.is_inference_mode_enabled()):  # its end puts back what torch notes of this thread
        torch.set_grad_enabled(grad)
        steps = _taken_down(answers)
        try:
            torch.manual_seed(SEED)
            random.seed(SEED)
            yield told
        finally:
            _put_back(steps, told)


Step = tuple[str, Callable[[], Iterable[str]]]


def _taken_down(answers: tuple[Any, ...]) -> list[Step]:
    """What puts each thing back and says what was left, under the name of the thing, in the order in which it is done."""
    restore_numbers, restoration = states(), Restoration()
    for answer in answers:
        if issubclass(type(answer), nn.Module) and "_modules" in vars(answer):
            with suppress(Exception):  # a module of which nothing can be taken down
                restoration.add(answer)
    tables = [_Table(name, hooks, "hook for all modules") for name, hooks in global_hooks().items() if isinstance(hooks, dict)]
    tables += [_Table(name, hooks, "hook for all optimizers") for name, hooks in optimizer_hooks().items() if isinstance(hooks, dict)]
    first, rest = ([*_switches(some)] for some in (settings.FIRST, settings.SETTINGS))
    modes = settings.modes_as_they_were()
    return [
        *first,
        *(("names", namespace.restore) for namespace in settings.namespaces()),  # before anything is called by its name
        *(("hooks", table.restore) for table in tables),
        *rest,
        ("modes", _silent(modes)),
        ("random numbers", _silent(restore_numbers)),
        ("the model", _silent(restoration.restore)),
    ]


def _switches(some: Iterable[GlobalSetting]) -> Iterator[Step]:
    for setting in some:
        try:
            yield setting.name, _Switch(setting).restore
        except Exception:  # noqa: BLE001 - what this torch cannot even be asked for, nobody can have changed through it
            continue


def _silent(action: Callable[[], Any]) -> Callable[[], Iterable[str]]:
    def act() -> tuple[str, ...]:
        action()
        return ()

    return act


def _put_back(steps: list[Step], told: Left) -> None:
    interrupt: BaseException | None = None
    for name, restore in steps:
        for _ in range(2):  # an interrupt in the middle of one: once more
            try:
                told.extend(line for line in restore() if line not in told)
                break
            except Exception as error:  # noqa: BLE001 - the rest is put back all the same
                told.append(f"It changed {name}, which could not be restored ({type(error).__name__}): restart the kernel.")
                break
            except BaseException as error:  # noqa: BLE001 - told when all is done
                interrupt = error
    if interrupt is not None:
        raise interrupt


class _Switch:
    """One setting, as it was."""

    def __init__(self, setting: GlobalSetting) -> None:
        self._setting, self._before = setting, setting.get()

    def restore(self) -> Iterator[str]:
        """Put it back; what was left is told."""
        now, before = self._setting.get(), self._before
        if now is before or now == before:
            return
        self._setting.put(before)
        if self._setting.told:
            yield self._said(now)

    def _said(self, now: Any) -> str:
        name, before = self._setting.name, self._before
        if isinstance(before, tuple) and isinstance(now, tuple) and before and isinstance(before[0], bool) and now[0] != before[0]:
            now, before = now[0], before[0]
        if all(isinstance(one, (bool, int, float, str, torch.dtype, torch.device)) for one in (now, before)):
            return f"It left {name} at {now}; it is {before} again."
        return f"It left {name} changed; that has been undone."


class _Table:
    """A store of global hooks."""

    def __init__(self, name: str, hooks: dict[Any, Any], what: str) -> None:
        self._name, self._hooks, self._what, self._before = name, hooks, what, dict(hooks)

    def restore(self) -> Iterator[str]:
        """Put it back; what was left is told."""
        left = [key for key in self._hooks if key not in self._before]
        lost = [key for key in self._before if key not in self._hooks]
        if not left and not lost:
            return
        self._hooks.clear()
        self._hooks.update(self._before)
        if left:
            kind, _, rest = self._what.partition(" ")
            yield f"It left {plural(len(left), kind)} {rest} on ({self._name}); {'it is' if len(left) == 1 else 'they are'} removed."
        else:
            yield f"It removed {len(lost)} {self._what} ({self._name}) that were not its own; they have been restored."
