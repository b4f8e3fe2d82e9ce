"""A fork that the page of a watch asks for: made in slices, so that the training and the page live on meanwhile."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from modlab import format
from modlab.compat import with_torch_function
from modlab.errors import ModlabError, QuestionError
from modlab.forking.futures import Futures, KeptGround
from modlab.forking.keeper import Keeper
from modlab.records.finding import Fact
from modlab.records.fork import ForkRecord
from modlab.results.fork import AskedChange, alone
from modlab.results.live import notebook
from modlab.running import clock
from modlab.running.guarded import line_of
from modlab.wording import forks

SLICE = 0.03
"""Seconds that a slice takes, or as long as one step of the fork and of its twin."""

BREATH = 0.005
"""Seconds between two slices in which a kernel that runs no cell answers."""

OFTEN = 0.2
"""Seconds between two pictures."""


class SlicedFork:
    """One such fork.

    Args:
        keeper: what was kept.
        title: the model's class.
        at: the step at which to fork.
        change: what to change.
        changed: called when there is something new, and at the end.
        doubt: whether the loss says what is better: `unjudged`.

    Attributes:
        over: whether it has ended; `refused`: why nothing could be made, in a sentence.
    """

    def __init__(
        self,
        keeper: Keeper,
        title: str,
        at: int,
        change: AskedChange,
        changed: Callable[[SlicedFork], None],
        doubt: tuple[str, dict[str, Fact]] = ("", {}),
    ) -> None:
        self._unjudged, names = doubt
        self._facts = {**change.facts, **names}
        self._keeper, self._title, self._at, self._change, self._changed = keeper, title, at, change, changed
        self._lock = threading.Lock()
        self._futures: Futures | None = None
        self._run: Iterator[int] | None = None
        self._cancelled = False
        self._told = 0.0
        self.over, self.refused = False, ""

    def slice(self) -> bool:
        """Make some steps; whether there are more to make. In the training's thread, or in the kernel's when that is idle."""
        if self.over or not self._lock.acquire(blocking=False):
            return not self.over
        try:
            with with_torch_function():
                alone(self._make)
        except ModlabError as error:
            self._end(forks.at_a_form(str(error)))
        except Exception as error:  # noqa: BLE001 - a model of the user's may raise anything, and it is told in the view
            self._end(line_of(error))
        except BaseException:  # an interrupt is for the training as well
            self._cancelled = True
            self._end()
            raise
        finally:
            self._lock.release()
        if self.over or clock.now() - self._told >= OFTEN:
            self._changed(self)
            self._told = clock.now()
        return not self.over

    def cancel(self) -> None:
        """Make no more: what was made stays."""
        self._cancelled = True

    def _make(self) -> None:
        if self._cancelled:
            self._end()
        elif self._futures is None:  # to copy the training is a slice of its own
            change = self._change if self._change.kind else None
            self._futures = Futures(KeptGround(self._keeper, self._at), self._at, None, change)
            self._run = self._futures.run()
        else:
            self._some_steps(self._futures)

    def _some_steps(self, futures: Futures) -> None:
        assert self._run is not None
        until = clock.now() + SLICE
        for _ in self._run:
            if clock.now() >= until or self._cancelled:
                return
        futures.raise_question()
        self._end()

    def _end(self, refused: str = "") -> None:
        futures = self._futures
        self.refused, self.over = refused, True
        if futures is not None and self._cancelled and not futures.ended:
            futures.ended = "cancelled"
        elif futures is not None and not refused:
            made = futures.record(self._title, self._change.kind, self._facts, self._unjudged)
            self.refused = "" if made.steps else " ".join(forks.conclusion(made))

    def let_go(self) -> None:
        """Keep the record alone."""
        self._futures = self._run = None

    def record(self) -> ForkRecord | None:
        """What came of it so far; None if nothing was begun, or nothing came of it."""
        made = None if self._futures is None else self._futures.record(self._title, self._change.kind, self._facts, self._unjudged)
        return None if made is None or self.refused or (made.ended == "cancelled" and not made.steps) else made


def asked_change(given: Mapping[str, Any], known: Collection[str]) -> AskedChange:
    """What a page asks to change, checked.

    Args:
        given: the page's message, with ``lr``, ``setting`` and ``value``; what is None stays as it is.
        known: names of settings that there are.

    Raises:
        QuestionError: a number is none that can be used.
    """
    change: dict[str, float] = {}
    if given.get("lr") is not None:
        change["lr"] = _number(given["lr"], "The learning rate")
    name = given.get("setting")
    if name:
        if name not in known:
            raise QuestionError(f"No module has the setting {format.cut(str(name), 80)} any more: choose another one.")
        change[str(name)] = _number(given.get("value"), str(name))
    return AskedChange(change or None)


def _number(given: Any, what: str) -> float:
    """A finite number that is not below zero.

    Raises:
        QuestionError: it is none.
    """
    value = float(given) if type(given) in (int, float) else math.nan
    if not math.isfinite(value):
        raise QuestionError(f"{what} must be a number, such as 0.001.")
    if value < 0:
        raise QuestionError(f"{what} must not be negative: {format.number(value)} is.")
    return value


def make_when_idle(fork: SlicedFork, is_here: Callable[[], bool]) -> None:
    """Have a kernel make a fork whenever it runs no cell; where there is no kernel, at once.

    Args:
        fork: the fork.
        is_here: whether it can be made in this thread now.
    """
    shell = notebook()
    loop = None if shell is None else getattr(shell.kernel, "io_loop", None)
    if loop is None:
        while fork.slice():
            pass
        return

    def some() -> None:
        if is_here():
            fork.slice()
        if not fork.over:
            loop.call_later(BREATH, some)

    loop.add_callback(some)
