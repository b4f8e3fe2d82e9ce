"""Live views of a running watch: under the cell of a notebook, on the error stream of a script, or nowhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import WeakMethod, ref

from modlab import wording
from modlab.errors import ModlabError, QuestionError
from modlab.inspection.distributed import rank
from modlab.records.watch import WatchRecord
from modlab.results.verdict import Verdict
from modlab.running.guarded import is_terminal, tell
from modlab.version import __version__
from modlab.views.watch import headline, words

if TYPE_CHECKING:
    from modlab.results.widget import View
    from modlab.views.watch.payload import Marks

ENDED = "the watch has ended: there is no loop to control"

GONE = "The watch no longer exists, and what it kept is gone with it."

_ASKED = ("pause", "resume", "step", "stop", "budget")

_FORK = ("fork", "cancel", "pin", "leave")

LATE = 3.0
"""Seconds after which a click on an old picture is none any more: it waited behind the cell that it was meant for."""

GAP = 0.2
"""Seconds until all is sent again to a page that has not answered; each time twice as many."""

_AT_REST = "export default { render({ el }) { el.textContent = 'this watch has ended: w in a new cell shows it' } }"
"""A front end for a view that no page ever asked for: what executes a notebook would write the large one into the file."""

FIRST = 20
"""Steps after which a script is told what is broken already."""

NOTHING = 3
"""The exit code of a verdict of nothing."""

PROGRESS = 1.0
"""Seconds between two progress lines in a terminal."""


class LiveWatch(Protocol):
    """What is shown: a watch."""

    code: str

    @property
    def headline(self) -> str:
        """The sentence at the top."""

    @property
    def record(self) -> WatchRecord:
        """All that was seen so far."""

    @property
    def so_far(self) -> tuple[int, int]:
        """How many steps were made, and alerts found; a record of all takes much longer."""

    @property
    def can_fork(self) -> bool:
        """Whether there is a training at hand to fork."""

    def shape_of_slots(self) -> tuple[Any, ...]:
        """Equal as long as slots were only added at the end."""

    def ask(self, action: str, budget: Any = None) -> None:
        """What a button asks for."""

    def ask_fork(self, asked: Mapping[str, Any]) -> None:
        """What the page asks of a fork."""

    def html(self, *, bundle: bool = True) -> str:
        """The picture at rest."""

    def _payload(self, *, live: bool = False) -> bytes: ...

    def _answer(self, path: str) -> bytes: ...


class Slid(Protocol):
    """What has a slider: a knob."""

    def widget(self) -> Any:
        """The slider."""


class Stage(Protocol):
    """What a watch tells that there is something to show."""

    def begin(self) -> None:
        """The watch begins."""

    def offer(self, knob: Slid) -> None:
        """Show a knob that was made."""

    def update(self) -> None:
        """There is something new; called in the loop."""

    def end(self) -> None:
        """The watch has ended."""


def stage(watch: LiveWatch) -> Stage:
    """The one that fits: a notebook's output, or lines of text."""
    shell = notebook()
    if shell is not None:
        with suppress(ImportError):
            return in_notebook(watch)
    return Lines(watch)


def notebook() -> Any:
    """The shell of a notebook's kernel; None in a script or a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None


def after_each_cell(told: Callable[[], bool]) -> None:
    """Call a method whenever a cell of this notebook has ended; elsewhere nothing is called.

    Args:
        told: the method, of an object that is not kept alive; it is called until it answers False.
    """
    events = getattr(notebook(), "events", None)
    if events is None:
        return
    method = WeakMethod(told)

    def cell_ended(result: Any) -> None:
        alive = method()
        if alive is None or not alive():
            events.unregister("post_run_cell", cell_ended)

    events.register("post_run_cell", cell_ended)


class Output:
    """A cell's output: the widget while it runs, and the whole run at rest when it has ended."""

    _latest: ClassVar[LiveWatch | None] = None
    """The last one that ended: a page that was loaded anew meanwhile asks for it when the cell is over."""

    def __init__(self, watch: LiveWatch) -> None:
        self._watch = watch
        self._pages = [WatchPage(watch)]
        self._handle: Any = None
        self._steered: _Steered | None = None

    def begin(self) -> None:
        """Show the widget."""
        from IPython.display import display

        Output._latest = None
        self._handle = display(self._pages[0].view, display_id=True)  # type: ignore[no-untyped-call]

    def offer(self, knob: Slid) -> None:
        """Show its slider above the view, in the same output, which makes place for the picture at rest."""
        if self._handle is None:
            return
        if self._steered is None:
            self._steered = _Steered(self._pages[0].view)
            self._steered.add(knob.widget())
            self._handle.update(self._steered)
        else:
            self._steered.add(knob.widget())

    @property
    def pages(self) -> list[WatchPage]:
        """Its views."""
        return self._pages

    def renew(self) -> None:
        """Put the picture at rest there anew, with what was made since: it is what the notebook is saved with."""
        if self._handle is not None:
            self._handle.update(self._watch)

    def another(self) -> View:
        """One more view of the same watch."""
        self._pages.append(WatchPage(self._watch))
        return self._pages[-1].view

    def update(self) -> None:
        """Send what is new."""
        push(self._watch, self._pages)

    def end(self) -> None:
        """Put the picture of the whole run in the first one's place; the others get it."""
        push(self._watch, self._pages[1:])
        self._pages[0].rest(self._watch)
        Output._latest = self._watch
        if self._handle is not None:
            self._handle.update(self._watch)
        if self._steered is not None:
            self._steered.close()


class _Steered:
    """A view with sliders above it, as one output; for hosts without a kernel the picture of the view alone.

    Args:
        view: the widget.
    """

    def __init__(self, view: View) -> None:
        from ipywidgets import Layout, VBox

        self._sliders = VBox(layout=Layout(overflow="visible", margin="0 0 4px 0"))
        self._view, self._box = view, VBox([self._sliders, view], layout=Layout(overflow="visible", align_items="stretch"))
        self._box.add_class("modlab-steered")  # by which the page finds the sliders, to name them

    def add(self, slider: Any) -> None:
        """One more, below the others."""
        sliders = (*self._sliders.children, slider)
        width = max(len(one.description) for one in sliders)
        for one in sliders:  # they begin at one edge
            one.style.description_width = f"{width}ch"
        self._sliders.children = sliders

    def close(self) -> None:
        """Let the boxes go; a slider may be displayed elsewhere as well."""
        self._box.close()
        self._sliders.close()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        data, metadata = self._view._repr_mimebundle_(**kwargs)
        widget = "application/vnd.jupyter.widget-view+json"
        return {**data, widget: {**data[widget], "model_id": self._box.model_id}}, metadata


in_notebook: Callable[[LiveWatch], Stage] = Output
"""What shows a watch in a notebook; a lesson has its own."""


class WatchPage:
    """One view of a running watch: it gets what is new, and its buttons work while the cell runs.

    Args:
        watch: whose view it is.
    """

    def __init__(self, watch: LiveWatch) -> None:
        from modlab.results.widget import View  # a script has no use for either; and in the loop it would be late
        from modlab.views.watch import payload

        self.view, self._payload = View(watch, self._answer), payload
        self._watch: Callable[[], LiveWatch | None] = lambda: watch
        self._sent: tuple[Any, Marks] | None = None
        self._heard = False
        self._whole_at, self._gap = 0.0, GAP
        self._pictures = (0.0, 0), (0.0, 0)  # when, and of how many steps: two of those sent, at least `LATE` apart
        answer_while_the_cell_runs(self.view)

    def push(self, watch: LiveWatch, record: WatchRecord, packed: dict[Marks | None, bytes]) -> None:
        """Send the slots that the page does not have; all of them where their number changed otherwise.

        Args:
            watch: whose views these are.
            record: what there is now.
            packed: what other views have been sent of it, by what they had.
        """
        now, shape = monotonic(), watch.shape_of_slots()
        since = self._sent[1] if self._sent is not None and self._sent[0] == shape and self._sent[1].fits(record) else None
        if not self._heard and now >= self._whole_at:
            since = None  # it may have begun to listen only now, and its questions may wait behind the cell
            self._whole_at, self._gap = now + self._gap, 2 * self._gap
        if since not in packed:
            packed[since] = self._payload.of_watch(record, watch.code, __version__, live=True, since=since, can_fork=watch.can_fork)
        self._sent = shape, self._payload.Marks.open_ends(record)
        if now - self._pictures[1][0] >= LATE:
            self._pictures = self._pictures[1], (now, record.steps)
        self.view.send({"action": "update"}, [packed[since]])
        self.view.headline = " ".join(headline.of_watch(record)).strip()

    def rest(self, watch: LiveWatch) -> None:
        """The watch has ended, and its output stands without this: answer who asks late, and keep nothing alive for it."""
        self._watch = ref(watch)
        self.view.let_go()
        if not self._heard and "JPY_SESSION_NAME" not in os.environ:  # no server of notebooks, so hardly a page that asks late
            self.view._esm = _AT_REST

    def _answer(self, content: dict[str, Any]) -> bytes | None:
        """Set a flag; this may be a different thread from the training's."""
        self._heard = True
        action, watch = content.get("action"), self._watch()
        if action not in (*_ASKED, *_FORK):
            return None
        if watch is None:
            raise QuestionError(GONE if action in _FORK else ENDED)
        if action in _FORK:
            from modlab.wording import forks  # most watches are never forked

            try:
                watch.ask_fork(content)
            except ModlabError as error:
                raise QuestionError(forks.at_a_form(str(error))) from None
            return b""
        if self._is_late(content.get("steps")):
            raise QuestionError("this click came after the cell had moved on: click again while it runs, or use the notebook's ■")
        watch.ask(action, content.get("budget"))
        return b""

    def _is_late(self, steps: Any) -> bool:
        """Whether a picture of more steps was sent long ago. Two clocks are never compared."""
        now = monotonic()
        return isinstance(steps, int) and any(seen > steps and now - sent >= LATE for sent, seen in self._pictures)


def push(watch: LiveWatch, pages: list[WatchPage]) -> None:
    """Send the same picture to several views: it is taken once."""
    record, packed = watch.record, dict[Any, bytes]()
    for page in pages:
        page.push(watch, record, packed)


def answer_while_the_cell_runs(view: Any) -> None:
    """Let the page's messages go to the thread that the page asked for, which is not the one that the cell keeps busy.

    ipykernel 7.4 answers where a comm last sent from, which is the running cell; before that, and from this line on, the front
    end chooses. See docs/borrowed.md.
    """
    comm: Any = getattr(view, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default


class Lines:
    """A quiet progress line; what goes wrong when it does; the verdict at the end, once."""

    def __init__(self, watch: LiveWatch) -> None:
        self._watch = watch
        self._rank = rank()
        self._told = 0
        self._first = False
        self._shown = monotonic()
        self._wide = 0

    def begin(self) -> None:
        """Nothing yet."""

    def offer(self, knob: Slid) -> None:
        """Code moves it."""

    def update(self) -> None:
        """Renew the line, and say what is new; of several ranks the first does so."""
        if self._rank:
            return
        steps, alerts = self._watch.so_far
        begun = not self._first and steps >= FIRST
        late = monotonic() - self._shown >= PROGRESS and is_terminal()
        if not (begun or late or alerts > self._told):
            return
        record = self._watch.record
        for alert, others in words.together(record.alerts[self._told :]):
            self._say(f"modlab: step {alert.step:,}: {wording.said(alert)}{words.like_it(others)}")
        self._told = len(record.alerts)
        if begun:
            self._first = True
            if record.verdict.broken is not None:
                self._say(f"modlab, after {record.steps:,} steps: {' '.join(headline.of_watch(record)).strip()}")
        if late:
            self._shown = monotonic()
            line = f"modlab: step {record.steps:,}  {' '.join(f'{one.name} {one.final:.4g}' for one in record.scalars[:3])}"
            tell(f"\r{line:<{self._wide}}", end="")
            self._wide = len(line)

    def end(self) -> None:
        """The headline and the verdict, once; on any rank but the first one line, if its own verdict is broken.

        Of a training that made no step there may be a verdict as well; where nothing was seen, the headline says so.
        """
        record = self._watch.record
        if record.state == "failed":  # of which there is a line
            return
        said = " ".join(headline.of_watch(record)).strip()
        if self._rank:
            if record.steps and record.verdict.broken is not None:
                self._say(f"modlab (rank {self._rank}): {said}")
            return
        nothing = not record.steps and record.verdict.exit_code == NOTHING
        self._say(f"modlab {__version__}: {said}" + ("" if nothing else f"\n{Verdict.of(record.verdict)}"))

    def _say(self, text: str) -> None:
        if self._wide:
            tell(f"\r{'':<{self._wide}}\r", end="")
            self._wide = 0
        tell(text)
