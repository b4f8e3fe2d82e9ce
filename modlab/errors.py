"""Errors that teach: what was given, what was expected, where, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

COMPARED = 2000  # names, of which the likeness is computed: it takes some microseconds each


class ModlabError(Exception):
    """The base of every error that modlab raises on purpose."""


class NotAModuleError(ModlabError, TypeError):
    """Something that is no ``nn.Module`` was given where one is looked at."""


class NotATensorError(ModlabError, TypeError):
    """Something that is no tensor was given where one is measured."""


class NotAnOptimizerError(ModlabError, TypeError):
    """Something that is no optimizer was given as one."""


class NotInitializedError(ModlabError, AttributeError):
    """A module whose ``super().__init__()`` was never called."""


class QuestionError(ModlabError, TypeError):
    """A search was asked in a form that it does not take."""


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
    """The names that look most like `wanted`, best first; of very many, siblings and namesakes are compared first."""
    pool = list(names)
    parent, _, name = wanted.rpartition(".")
    siblings = [one for one in pool if one.rpartition(".")[0] == parent]
    namesakes = [one for one in pool if one.rpartition(".")[2] == name]
    compared = list(dict.fromkeys([*siblings, *namesakes, *pool]))[:COMPARED]
    found = difflib.get_close_matches(wanted, compared, n=limit, cutoff=0.4)
    return [*found, *(one for one in namesakes if one not in found)][:limit]
