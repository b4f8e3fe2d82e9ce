"""Errors that teach: what was given, what was expected, where, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from modlab import format

SHOWN = 4  # names
COMPARED = 2000  # names, of which the likeness is computed: it takes some microseconds each


class ModlabError(Exception):
    """The base of every error that modlab raises on purpose."""

    def __str__(self) -> str:
        return format.printable(super().__str__())


class Stopped(BaseException):
    """A watched loop was asked to stop: ``with modlab.watch(...)`` ends quietly, and the lines after it run.

    It is no error, and an ``except Exception`` in a loop does not swallow it.
    """


class NotAModuleError(ModlabError, TypeError):
    """Something that is no ``nn.Module`` was given where one is looked at."""


class NotATensorError(ModlabError, TypeError):
    """Something that is no tensor was given where one is measured."""


class NotAnOptimizerError(ModlabError, TypeError):
    """Something that is no optimizer was given as one."""


class NotInitializedError(ModlabError, AttributeError):
    """A module whose ``super().__init__()`` was never called."""


class NotAnErrorError(ModlabError, TypeError):
    """Something that is no exception was given where one is explained."""


class NothingRaisedError(ModlabError, LookupError):
    """An error is to be explained, and there has been none."""


class QuestionError(ModlabError, TypeError):
    """A search was asked in a form that it does not take."""


class BatchError(ModlabError, TypeError):
    """A batch or a loss was given in a form that a model cannot be run with."""


class PathNotFoundError(ModlabError, KeyError):
    """A dotted name that the model does not have."""

    def __str__(self) -> str:
        return format.printable(str(self.args[0]))  # KeyError would show the repr of its text


class CallNotFoundError(ModlabError, IndexError):
    """A call of a module that a trace does not have."""


class CheckpointError(ModlabError, ValueError):
    """A file that cannot be read as a checkpoint, or only by running code that is stored in it."""


class NotFiniteError(ModlabError, ArithmeticError):
    """A watched step was not made, as asked, because its gradients were not finite."""


class SnapshotError(ModlabError, ValueError):
    """A snapshot was asked for what it does not hold."""


class NotComparableError(ModlabError, TypeError):
    """Something was given to compare that holds no state."""


class UnrepeatableInputError(ModlabError, TypeError):
    """An input that can be read only once was given to what runs a model several times."""


class LazyModelError(ModlabError, RuntimeError):
    """A model whose shapes are settled by its first forward pass was given to what must leave it as it is."""


class MatchError(ModlabError, ValueError):
    """The modules of two models were matched in a way that cannot be."""


class MissingPackageError(ModlabError, ImportError):
    """An optional package that this face of a result needs."""


class SaveError(ModlabError, ValueError):
    """A page cannot be written to what was named."""


class UnknownFigureError(ModlabError, ValueError):
    """A figure was asked for by a name that a result has none of."""


class ProfileError(ModlabError, ValueError):
    """Something was given as a profile that is none, or names no module of the model."""


class GoneError(ModlabError, ReferenceError):
    """The model of a result exists no longer; what had been read from it still does."""


def names_near(wanted: str, names: Iterable[str]) -> str:
    """Which names there are, for the second line of a message: the first few, and those that look most like `wanted`.

    >>> names_near("weigth", ["weight", "bias"])
    "  It has: 'weight', 'bias'.  Nearest: 'weight'."
    """
    pool = [name for name in names if name]
    close = nearest(wanted, pool)
    some = ", ".join(map(repr, pool[:SHOWN])) or "none"
    return f"  It has: {some}{', ...' if len(pool) > SHOWN else '.'}" + (f"  Nearest: {', '.join(map(repr, close))}." if close else "")


def nearest(wanted: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names that look most like `wanted`, best first; of very many, siblings and namesakes are compared first."""
    pool = list(names)
    parent, _, name = wanted.rpartition(".")
    siblings = [one for one in pool if one.rpartition(".")[0] == parent]
    namesakes = [one for one in pool if one.rpartition(".")[2] == name]
    compared = list(dict.fromkeys([*siblings, *namesakes, *pool]))[:COMPARED]
    found = difflib.get_close_matches(wanted, compared, n=limit, cutoff=0.4)
    return [*found, *(one for one in namesakes if one not in found)][:limit]
