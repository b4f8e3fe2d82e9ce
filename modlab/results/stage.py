"""Where a running watch is shown: under the cell of a notebook, on the error stream of a script, or nowhere."""

from __future__ import annotations

import sys
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from modlab.inspection.distributed import rank
from modlab.instrumentation.guarded import is_terminal, tell
from modlab.results.verdict import Verdict
from modlab.version import __version__
from modlab.views.watch import headline

if TYPE_CHECKING:
    from modlab.results.live import LiveView
    from modlab.results.watch import Watch

FIRST = 20
"""Steps after which a script is told what is broken already."""

PROGRESS = 1.0
"""Seconds between two progress lines in a terminal."""


class Stage(Protocol):
    """What a watch tells that there is something to show."""

    def begin(self) -> None:
        """The watch begins."""

    def update(self) -> None:
        """There is something new; called in the loop."""

    def end(self) -> None:
        """The watch has ended."""


def stage(watch: Watch) -> Stage:
    """The one that fits: a notebook's output, or lines of text."""
    shell = _notebook()
    if shell is not None:
        with suppress(ImportError):
            return Output(watch)
    return Lines(watch)


def _notebook() -> Any:
    """The shell of a notebook's kernel; None in a script or a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None


class Output:
    """A cell's output: the widget while it runs, and the whole run at rest when it has ended."""

    _latest: ClassVar[Watch | None] = None
    """The last one that ended: a page that was loaded anew meanwhile asks for it when the cell is over."""

    def __init__(self, watch: Watch) -> None:
        from modlab.results.live import LiveView

        self._watch = watch
        self._views: list[LiveView] = [LiveView(watch)]
        self._handle: Any = None

    def begin(self) -> None:
        """Show the widget."""
        from IPython.display import display

        Output._latest = None
        self._handle = display(self._views[0], display_id=True)  # type: ignore[no-untyped-call]

    def another(self) -> LiveView:
        """One more view of the same watch."""
        self._views.append(type(self._views[0])(self._watch))
        return self._views[-1]

    def update(self) -> None:
        """Send what is new."""
        self._push(self._views)

    def _push(self, views: list[LiveView]) -> None:
        """The same picture for all: it is taken once."""
        record, packed = self._watch.record, dict[Any, bytes]()
        for view in views:
            view.push(self._watch, record, packed)

    def end(self) -> None:
        """Put the picture of the whole run in the first one's place; the others get it."""
        self._push(self._views[1:])
        self._views[0].rest(self._watch)
        Output._latest = self._watch
        if self._handle is not None:
            self._handle.update(self._watch)


class Lines:
    """A quiet progress line; what goes wrong when it does; the verdict at the end, once."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._rank = rank()
        self._told = 0
        self._first = False
        self._shown = monotonic()
        self._wide = 0

    def begin(self) -> None:
        """Nothing yet."""

    def update(self) -> None:
        """Renew the line, and say what is new; of several ranks the first does so."""
        if self._rank:
            return
        record = self._watch.record
        if len(record.alerts) > self._told:
            for alert in record.alerts[self._told :]:
                self._say(f"modlab: step {alert.step:,}: {alert.text}")
            self._told = len(record.alerts)
        if not self._first and record.steps >= FIRST:
            self._first = True
            if record.verdict.broken is not None:
                self._say(f"modlab, after {record.steps:,} steps: {' '.join(headline.of_watch(record)).strip()}")
        if monotonic() - self._shown >= PROGRESS and is_terminal():
            self._shown = monotonic()
            line = f"modlab: step {record.steps:,}  {' '.join(f'{one.name} {one.final:.4g}' for one in record.scalars[:3])}"
            tell(f"\r{line:<{self._wide}}", end="")
            self._wide = len(line)

    def end(self) -> None:
        """The headline and the verdict, once; on another rank than the first one line, if its own verdict is broken."""
        record = self._watch.record
        if self._rank:
            if record.steps and record.state != "failed" and record.verdict.broken is not None:
                self._say(f"modlab (rank {self._rank}): {' '.join(headline.of_watch(record)).strip()}")
            return
        if record.steps and record.state != "failed":  # of which there is a line
            self._say(f"modlab {__version__}: {' '.join(headline.of_watch(record)).strip()}\n{Verdict.of(record.verdict)}")

    def _say(self, text: str) -> None:
        if self._wide:
            tell(f"\r{'':<{self._wide}}\r", end="")
            self._wide = 0
        tell(text)
