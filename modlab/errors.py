"""Errors that teach: what was given, what was expected, where, and what to do next."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from types import TracebackType

from modlab import format

SHOWN = 4  # names
HERE = os.path.join(os.path.dirname(__file__), "")
COMPARED = 2000  # names, of which the likeness is computed: it takes some microseconds each


class ModlabError(Exception):
    """The base of every error that modlab raises on purpose."""

    def __str__(self) -> str:
        return format.printable(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """What IPython shows below the cell: its own view of where it was raised, which ends at the line that called modlab."""
        shown: list[str] = (
            sys.modules["IPython"]
            .get_ipython()
            .InteractiveTB.structured_traceback(type(self), self, _outside(self.__traceback__), tb_offset=1)
        )
        return shown


def _outside(raised: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of modlab at its end."""
    after = None if raised is None else _outside(raised.tb_next)
    if raised is None or (after is None and raised.tb_frame.f_code.co_filename.startswith(HERE)):
        return None
    return TracebackType(after, raised.tb_frame, raised.tb_lasti, raised.tb_lineno)


class Stopped(BaseException):
    """A watched loop was asked to stop: ``with modlab.watch(...)`` ends quietly, and the lines after it run.

    It is not an error, and an ``except Exception`` in a loop does not swallow it.
    """


class NotAModuleError(ModlabError, TypeError):
    """Something other than an ``nn.Module`` was given where one is needed."""


class NotATensorError(ModlabError, TypeError):
    """Something other than a tensor was given where one is needed."""


class NotAnOptimizerError(ModlabError, TypeError):
    """Something other than an optimizer was given as one."""


class NotInitializedError(ModlabError, AttributeError):
    """A module whose ``super().__init__()`` was never called."""


class NotAnErrorError(ModlabError, TypeError):
    """Something other than an exception was given where one is needed."""


class NothingRaisedError(ModlabError, LookupError):
    """An explanation was asked for, but there has been no error."""


class QuestionError(ModlabError, TypeError):
    """A search was asked for in a form that is not supported."""


class BatchError(ModlabError, TypeError):
    """A batch or a loss was given in a form that cannot be used to run a model."""


class PathNotFoundError(ModlabError, KeyError):
    """A dotted name that the model does not have."""

    def __str__(self) -> str:
        return format.printable(str(self.args[0]))  # KeyError would show the repr of its text


class CallNotFoundError(ModlabError, IndexError):
    """A call of a module that a trace does not have."""


class CheckpointError(ModlabError, ValueError):
    """A file that cannot be read as a checkpoint, or only by running code stored in it."""


class NotFiniteError(ModlabError, ArithmeticError):
    """A watched step was not made, as requested, because its gradients were not finite."""


class SnapshotError(ModlabError, ValueError):
    """A snapshot was asked for something it does not hold."""


class NotComparableError(ModlabError, TypeError):
    """Something without state was given to compare."""


class UnrepeatableInputError(ModlabError, TypeError):
    """An input that can be read only once was given to a function that runs a model several times."""


class LazyModelError(ModlabError, RuntimeError):
    """A model whose first forward pass decides its shapes was given to a function that must not change it."""


class MatchError(ModlabError, ValueError):
    """The modules of two models were matched in an impossible way."""


class MissingPackageError(ModlabError, ImportError):
    """An optional package that this view of a result needs is missing."""


class SaveError(ModlabError, ValueError):
    """A page cannot be written to the given path."""


class UnknownFigureError(ModlabError, ValueError):
    """A result has no figure with the requested name."""


class ProfileError(ModlabError, ValueError):
    """Something other than a profile was given, or a profile that names no module of the model."""


class ForkError(ModlabError, ValueError):
    """A training cannot be run on from the step that was asked for."""


class GoneError(ModlabError, ReferenceError):
    """The model of a result no longer exists; what was read from it still does."""


def names_near(wanted: str, names: Iterable[str]) -> str:
    """The known names, for the second line of a message: the first few, and those most similar to `wanted`.

    >>> names_near("weigth", ["weight", "bias"])
    "  It has: 'weight', 'bias'.  Nearest: 'weight'."
    """
    pool = [name for name in names if name]
    close = nearest(wanted, pool)
    some = ", ".join(map(repr, pool[:SHOWN])) or "none"
    return f"  It has: {some}{', ...' if len(pool) > SHOWN else '.'}" + (f"  Nearest: {', '.join(map(repr, close))}." if close else "")


def nearest(wanted: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """The names most similar to `wanted`, best first; if there are many, siblings and namesakes are compared first."""
    pool = list(names)
    parent, _, name = wanted.rpartition(".")
    siblings = [one for one in pool if one.rpartition(".")[0] == parent]
    namesakes = [one for one in pool if one.rpartition(".")[2] == name]
    compared = list(dict.fromkeys([*siblings, *namesakes, *pool]))[:COMPARED]
    found = difflib.get_close_matches(wanted, compared, n=limit, cutoff=0.4)
    return [*found, *(one for one in namesakes if one not in found)][:limit]
