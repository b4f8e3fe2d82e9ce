"""``modlab.explain()``: why the last error was raised, after the fact."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, ClassVar

from torch.nn import Module

from modlab.errors import NotAnErrorError, NothingRaisedError
from modlab.explaining.explain import explain as explained
from modlab.inspection import structure
from modlab.records.explanation import ExplanationRecord, Fix, Patch, Step
from modlab.records.finding import Finding
from modlab.results.rows import RowsResult
from modlab.views.sheets.explanation import of_explanation
from modlab.views.sheets.layout import Sheet


def explain(error: BaseException | None = None) -> Explanation:
    """Say why a model raised an error: what did not fit, where, and how to fix it.

    You need not wrap anything beforehand: the traceback is read after the fact. Neither it nor any of its tensors is
    kept or changed. After ``%load_ext modlab`` the explanation appears under the traceback of each known error.

    Args:
        error: an exception; without one, the one being handled (in an ``except`` block), or else the last
            one that IPython showed.

    Returns:
        An `Explanation`: displays itself; ``.fixes``, ``.patch`` (a diff), ``.records`` (the modules on the way), ``.family``.

    Raises:
        NothingRaisedError: there has been no error.
        NotAnErrorError: `error` is not an exception.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3))
    >>> try:
    ...     net(torch.zeros(5))
    ... except RuntimeError as error:
    ...     print(explain(error).headline)
    0 (Linear) got 5 numbers, but has weights for 4. Sequential stopped there: input (5,), weight (3, 4).
    """
    found = _last() if error is None else error
    if not isinstance(found, BaseException):
        raise NotAnErrorError(_not_an_error(found))
    return Explanation(*explained(found))


def _last() -> BaseException:
    found: Any = sys.exception() or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if not isinstance(found, BaseException):
        raise NothingRaisedError(
            "modlab.explain() found no error: none is being handled, and none was shown in this session.\n"
            "  Call it in the cell after the one that failed, in an except block, or with the exception: modlab.explain(error)"
        )
    return found


def _not_an_error(thing: Any) -> str:
    if isinstance(thing, type) and issubclass(thing, BaseException):
        given, hint = f"the class {thing.__name__} itself", "Pass the exception you caught: except ... as error: modlab.explain(error)"
    elif isinstance(thing, Finding):
        given, hint = f"{type(thing).__name__}", "A finding of diagnose or watch explains itself: found.explain()"
    else:
        given, hint = f"{type(thing).__name__}", "Without an argument, it explains the last error: modlab.explain()"
    return f"modlab.explain() got {given}, but needs an exception.\n  {hint}"


class Explanation(RowsResult):
    """Why an error was raised. Made by `modlab.explain`."""

    kind: ClassVar[str] = "explain"
    code: ClassVar[str] = "modlab.explain()"

    def __init__(self, record: ExplanationRecord, model: Module | None) -> None:
        super().__init__(model)
        self.record = record
        self._model = ""

    @property
    def records(self) -> Sequence[Step]:
        """The modules on the way to the place of the error, outermost first."""
        return self.record.steps

    @property
    def family(self) -> str:
        """The kind of mistake; empty if modlab does not know the error."""
        return self.record.family

    @property
    def fixes(self) -> Sequence[Fix]:
        """Possible fixes, the likeliest first; each has ``.prose`` and ``.code``."""
        return self.record.fixes

    @property
    def patch(self) -> Patch | None:
        """The first fix that was tried, otherwise the first with a certain place in the source: a unified diff.

        It is of the file or the cell (``In [4]``); None where no fix has a place. ``print`` says first whether it was tried on the
        operands of the error; ``.diff`` and ``.tried`` are the parts.
        """
        return self.record.patch

    def to_dict(self) -> dict[str, Any]:
        """Plain data: besides what every result has, the error, its family, facts and fixes; in ``findings`` as docs/findings.md says."""
        from modlab.views.findings import of_explanation  # most explanations are read, and not by a program

        record = self.record
        return {
            **super().to_dict(),
            "error": record.error,
            "message": record.message,
            "family": record.family,
            "facts": dict(record.facts),
            "fixes": [asdict(fix) for fix in record.fixes],
            "findings": [of_explanation(record)],
            "patch": asdict(record.patch) if record.patch is not None else None,
        }

    def _fingerprint(self) -> str:
        model = self._source() if self._source is not None else None
        if not self._model and model is not None:
            with suppress(Exception):  # an unfinished module is among what fails
                self._model = structure.of_users(model).fingerprint
        return self._model

    def _sheet(self) -> Sheet:
        return of_explanation(self.record)
