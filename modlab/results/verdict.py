"""The verdict of a watch as a user holds it: its checks and what was found beside them, as text and HTML."""

from __future__ import annotations

from modlab import format, wording
from modlab.frozen import frozen
from modlab.records import lines, watch
from modlab.records.watch import SIGNS
from modlab.results.worded import FixGround, Worded
from modlab.views.watch import words


class Check(Worded, watch.Check):
    """One step of the verdict, with its words."""

    __slots__ = ()


@frozen
class Verdict(watch.Verdict):
    """From data to a falling loss: the first broken check is the reason why the model does not learn. And what was found beside it."""

    checks: tuple[Check, ...] = ()
    findings: tuple[Worded, ...] = ()

    @classmethod
    def of(cls, verdict: watch.Verdict, ground: FixGround | None = None) -> Verdict:
        """The same verdict, with its faces; `ground` is what fixes can be tried on."""
        checks = tuple(Check.of(one, ground) for one in verdict.checks)
        findings = tuple(Worded.of(one, ground) for one in verdict.findings)
        return cls(checks, findings, verdict.alerts, verdict.cares, verdict.error)

    @property
    def broken(self) -> Check | None:
        """The first check that is broken, or None."""
        return next((check for check in self.checks if check.state == "broken"), None)

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
            (SIGNS[state], name, wording.said(one), wording.fix(one) if state in ("broken", "careful") else "")
            for name, state, one in words.entries(self)
        ]
        shown = {sign for sign, name, *_ in entries if name != words.THE_RUN}
        for severity, kinds in (("broken", self.alerts), ("careful", self.cares)):
            if kinds and SIGNS[severity] not in shown:  # else a line says already why the verdict is as bad as that
                entries.append(
                    (SIGNS[severity], "alert" if len(kinds) == 1 else "alerts", f"{wording.joined(kinds)}: w.alerts tells where", "")
                )
        return [line for sign, name, text, fix in entries for line in ((sign, name, text), ("", "", f"Fix: {fix}"))[: 1 + bool(fix)]]
