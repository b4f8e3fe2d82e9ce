"""What every result has in common: one record, several faces, and a weak hold on what it was made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ReferenceType, ref

from modlab import format
from modlab.errors import GoneError, MissingPackageError
from modlab.version import __version__

if TYPE_CHECKING:
    import pandas

    from modlab.results.widget import View

SCHEMA = 1
"""Of `to_dict`, where a kind of result has no other."""


class Result:
    """A record with its faces: text (``str``), HTML (as the last line of a cell), ``widget()`` and data."""

    kind: ClassVar[str]
    _is_picture: ClassVar[bool] = False
    """Whether a script has nothing to add to its HTML."""

    def __init__(self, source: Any = None) -> None:
        self._source: ReferenceType[Any] | None = None if source is None else ref(source)

    @property
    def headline(self) -> str:
        """One sentence: what this is, and the most surprising fact about it first."""
        return format.printable(self._said())

    @property
    def records(self) -> Sequence[Any]:
        """The rows as frozen records; each has a ``.path``."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``schema``, ``kind``, ``headline`` and ``records``."""
        return {"schema": SCHEMA, "kind": self.kind, "headline": self._said(), "records": [self._row(r) for r in self.records]}

    def to_pandas(self) -> pandas.DataFrame:
        """The records as a table, one row each; needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise missing("pandas", "to_pandas()") from error
        return pandas.DataFrame(self.to_dict()["records"])

    def html(self, *, bundle: bool = True) -> str:
        """The view as one self-contained piece of HTML, the same from run to run.

        Args:
            bundle: with the script that makes it interactive; without, it is the plain picture (for documents
                that hold many views).
        """
        from modlab.views import html  # a script looks at the text alone

        payload = self._fitting_payload() if bundle and not self._is_picture else None
        return html.frame(self.kind, self._sentence(), self._static(), payload, __version__)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the view as a page of its own, which needs no kernel and no network: ``save("run.html")``.

        Args:
            path: of a file with the suffix ``.html``; one that is there is replaced, as a whole.

        Returns:
            The path that was written.

        Raises:
            SaveError: it is a folder, has another suffix, or its folder is not there.
        """
        from modlab.results import page

        found = page.target(path)
        page.write(found, self.kind, self.headline, self.html())
        return found

    def widget(self) -> View:
        """The same view with the kernel behind it: it answers what the page alone cannot. Needs anywidget."""
        try:
            from modlab.results.widget import View
        except ImportError as error:
            raise missing("anywidget", ".widget()") from error
        return View(self)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled result is its record: the hold on the model stays behind."""
        return {**self.__dict__, "_source": None}

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return format.printable(self._text())

    def _alive(self, purpose: str) -> Any:
        """What the result was made from, or an error that says that it is gone."""
        if self._source is None:
            raise GoneError(
                f"This result comes from a file, or was copied: it has no model at hand, and {purpose} needs it.\n"
                f"  What was read is still here: .records, str(), .html(). Ask where the model is: modlab.{self.kind}(model)"
            )
        source = self._source()
        if source is None:
            raise GoneError(
                f"The model of this view no longer exists, but {purpose} needs it.\n"
                f"  A result never keeps a model alive. What was read is still here: .records, str(), .html().\n"
                f"  Keep the model in a variable and ask again: modlab.{self.kind}(model)"
            )
        return source

    def _row(self, record: Any) -> dict[str, Any]:
        assert is_dataclass(record)
        return asdict(record)  # type: ignore[arg-type]

    def _said(self) -> str:
        return " ".join(self._sentence()).rstrip()

    def _sentence(self) -> tuple[str, str]:
        raise NotImplementedError

    def _text(self) -> str:
        raise NotImplementedError

    def _static(self) -> str:
        raise NotImplementedError

    def _fitting_payload(self) -> bytes:
        """The payload of a view at rest; only very large ones that do not fold leave something out, and say so."""
        return self._payload()

    def _payload(self, *, live: bool = False, limit: int | None = None) -> bytes:
        raise NotImplementedError

    def _answer(self, path: str) -> bytes:
        """What the widget's page gets when it asks for the values of a tensor."""
        raise NotImplementedError


def missing(package: str, purpose: str) -> MissingPackageError:
    """The error for an optional package that is not installed."""
    return MissingPackageError(f"{purpose} needs {package}, which is not installed.\n  Install it: pip install {package}")
