"""Errors that teach: what was given, what was expected, where, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ModlabError(Exception):
    """The base of every error that modlab raises on purpose."""


class NotAModuleError(ModlabError, TypeError):
    """Something that is no ``nn.Module`` was given where one is looked at."""


class NotATensorError(ModlabError, TypeError):
    """Something that is no tensor was given where one is measured."""


class NotInitializedError(ModlabError, AttributeError):
    """A module whose ``super().__init__()`` was never called."""


class PathNotFoundError(ModlabError, KeyError):
    """A dotted name that the model does not have."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the repr of its text


class CheckpointError(ModlabError, ValueError):
    """A file that cannot be read as a checkpoint, or only by running code that is stored in it."""


class MissingPackageError(ModlabError, ImportError):
    """An optional package that this face of a result needs."""


class GoneError(ModlabError, ReferenceError):
    """The model of a result exists no longer; what had been read from it still does."""


def nearest(wanted: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that look most like `wanted`, best first."""
    pool = list(names)
    found = difflib.get_close_matches(wanted, pool, n=limit, cutoff=0.4)
    tail = wanted.rpartition(".")[2]
    found += [name for name in pool if name.rpartition(".")[2] == tail and name not in found]
    return found[:limit]
