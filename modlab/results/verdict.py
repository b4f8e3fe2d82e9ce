"""The verdict of a watch as a user holds it: the ladder and what was found beside it, as text and HTML."""

from __future__ import annotations

from modlab import format, wording
from modlab.frozen import frozen
from modlab.records import lines, watch
from modlab.records.watch import SIGNS
from modlab.results.worded import Worded


class Rung(Worded, watch.Rung):
    """One step of the ladder, with its words."""

    __slots__ = ()


@frozen
class Verdict(watch.Verdict):
    """The ladder: the first broken rung is the reason why the model does not learn. And what was found beside it."""

    rungs: tuple[Rung, ...] = ()
    findings: tuple[Worded, ...] = ()

    @classmethod
    def of(cls, verdict: watch.Verdict) -> Verdict:
        """The same verdict, with its faces."""
        return cls(tuple(map(Rung.of, verdict.rungs)), tuple(map(Worded.of, verdict.findings)), verdict.alerts)

    @property
    def broken(self) -> Rung | None:
        """The first rung that is broken, or None."""
        return next((rung for rung in self.rungs if rung.state == "broken"), None)

    def __str__(self) -> str:
        return format.printable("\n".join(f"{sign:<8}  {name:<{self._width()}}  {text}".rstrip() for sign, name, text in self._lines()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        width = self._width()
        return lines.block(lines.columns(sign, name, text, width) for sign, name, text in self._lines())

    def _width(self) -> int:
        return max(map(len, (name for _, name, _ in self._lines())), default=0)

    def _lines(self) -> list[tuple[str, str, str]]:
        entries = [
            (SIGNS[rung.state], rung.name, rung.text, rung.fix if rung.state in ("broken", "careful") else "") for rung in self.rungs
        ]
        entries += [
            (SIGNS.get(one.severity, one.severity), wording.title(one), wording.said(one), wording.fix(one))
            for one in wording.told(self.findings)
        ]
        return [line for sign, name, text, fix in entries for line in ((sign, name, text), ("", "", f"Fix: {fix}"))[: 1 + bool(fix)]]
