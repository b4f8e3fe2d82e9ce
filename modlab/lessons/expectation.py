"""An expectation: the error that a lesson wants to show. It is caught, and shown as a part of it; where none comes, that is the error."""

from __future__ import annotations

import re
from types import TracebackType

from modlab.errors import ModlabError
from modlab.lessons.cards import Card, CardRecord


class ExpectationError(ModlabError, AssertionError):
    """An expected error was not raised, or said something else."""


class Expectation:
    """``with lesson.expect(TypeError, match="act"):`` — the block must raise this error.

    Attributes:
        message: what the error said, afterwards; the error itself, which would hold on to the frames, is not kept.
    """

    def __init__(self, error: type[BaseException] | tuple[type[BaseException], ...], match: str = "") -> None:
        kinds = error if isinstance(error, tuple) else (error,)
        if not kinds or not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise ModlabError(f"lesson.expect takes an exception class, such as lesson.expect(TypeError), but got {error!r}.")
        try:
            re.compile(match)
        except (re.error, TypeError) as wrong:
            raise ModlabError(f"match= must be a regular expression, but {match!r} is not: {wrong}.") from wrong
        self._kinds, self._match = kinds, match
        self.message = ""

    def __enter__(self) -> Expectation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        wanted = " or ".join(one.__name__ for one in self._kinds)
        if error is None:
            raise ExpectationError(f"This was expected to raise {wanted}, but nothing was raised.")
        if not isinstance(error, self._kinds):
            return False
        self.message = str(error)
        if self._match and not re.search(self._match, self.message):
            raise ExpectationError(
                f"{type(error).__name__} came, but it says {self.message!r} where {self._match!r} was expected."
            ) from error
        first, _, rest = (self.message or "(no message)").expandtabs(4).partition("\n")
        _show(Card(CardRecord("expected", type(error).__name__, first, "", "fine", code=rest)))
        return True


def _show(card: Card) -> None:
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ImportError:
        print(card)
        return
    if get_ipython() is None:
        print(card)
    else:
        display(card)  # type: ignore[no-untyped-call]
