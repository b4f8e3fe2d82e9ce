"""Initialization: a module of a learner's class is made; a constructor that calls `super().__init__()` late, or never, is told by name."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from torch import nn

import modlab
from modlab.lessons.checking import fail
from modlab.lessons.content import Mistake

LATE, NEVER = "late super().__init__()", "no super().__init__()"
_TOO_EARLY = re.compile(r"before Module.__init__\(\) call|has no attribute '_(parameters|buffers|modules|\w*hooks\w*)'")


def mistakes(late: str, never: str) -> tuple[Mistake, Mistake]:
    """The two mistakes, for a task whose probes make their modules by `made`.

    Args:
        late: a solution that calls ``super().__init__()`` after its assignments.
        never: one that does not call it.
    """
    return (
        Mistake(
            LATE,
            late,
            "`super().__init__()` is there, but too late: move it to the first line of the constructor. "
            "It creates the dicts that parameters, buffers and layers are kept in.",
            belief=4,
        ),
        Mistake(
            NEVER,
            never,
            "The constructor never calls `super().__init__()`. Make it the first line: "
            "it creates the dicts that parameters, buffers and layers are kept in.",
            belief=4,
        ),
    )


def made(answer: type[nn.Module], *arguments: Any, **options: Any) -> nn.Module:
    """A module of a learner's class.

    Args:
        answer: the class.
        *arguments: for its constructor.
        **options: for its constructor.

    Raises:
        NotYet: its constructor calls ``super().__init__()`` late, or never.
    """
    try:
        module = answer(*arguments, **options)
    except AttributeError as error:
        if not _TOO_EARLY.search(str(error)):
            raise
        mistake = LATE if _calls_it(answer, arguments, options) else NEVER
        fail(f"Your constructor raised {type(error).__name__}: {error}", mistake=mistake, evidence=modlab.explain(error))
    if "_modules" not in vars(module):
        fail(mistake=NEVER)
    return module


def _calls_it(answer: type[nn.Module], arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether a constructor calls ``nn.Module.__init__`` at all: it runs once more, on a module that has all its dicts already."""
    module, initialize = answer.__new__(answer), nn.Module.__init__
    initialize(module)
    called = []

    def noted(made: nn.Module, *arguments: Any, **options: Any) -> None:
        if made is module:
            called.append(True)
        else:  # a layer of it
            initialize(made, *arguments, **options)

    with suppress(Exception), patch.object(nn.Module, "__init__", noted):
        answer.__init__(module, *arguments, **options)
    return bool(called)
