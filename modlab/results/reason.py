"""The reason why a parameter has a gradient or none, as a user holds it: with its words."""

from __future__ import annotations

from modlab import format
from modlab.records import lines, trace
from modlab.results.worded import Worded


class Reason(Worded, trace.Reason):
    """Why a parameter has no gradient, or that it has one. Made by ``trace.why(path)``."""

    __slots__ = ()

    def __str__(self) -> str:
        return format.printable(self._line)

    __repr__ = __str__

    @property
    def _line(self) -> str:
        return f"{self.path}: {self.text}"

    def _repr_html_(self) -> str:
        return lines.block(lines.words(line) for line in self._line.splitlines())
