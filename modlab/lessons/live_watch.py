"""The live watch of a lesson: live where somebody looks on, and else one picture at its end, the same in every run."""

from __future__ import annotations

from collections.abc import Callable

from modlab.lessons import stills
from modlab.results import live
from modlab.results.live import LiveWatch, Output, Slid, Stage
from modlab.views.watch.figure import of_watch


class LessonOutput(Output):
    """A cell's output: live for a page; nbval and other readers without one get the picture of the whole run, once.

    Args:
        watch: what is shown.
        is_read: whether there is a page.
    """

    def __init__(self, watch: LiveWatch, is_read: bool) -> None:
        super().__init__(watch)
        self._is_read = is_read

    def begin(self) -> None:
        """Show the widget, where somebody sees it."""
        if self._is_read:
            super().begin()

    def offer(self, knob: Slid) -> None:
        """Show a slider, where somebody sees it."""
        if self._is_read:
            super().offer(knob)

    def update(self) -> None:
        """Send what is new, where somebody sees it."""
        if self._is_read:
            super().update()

    def end(self) -> None:
        """Show the whole run."""
        if self._is_read:
            super().end()
            return
        from IPython.display import display

        if self._watch.record.budget >= 1:
            display(self._watch)  # type: ignore[no-untyped-call]
            return
        # Which steps it looked at hangs on the clock: a drawing is not compared, words are.
        figure = of_watch(self._watch.record, "gradients")
        data, metadata = stills.of_figure(figure, "the gradients of each layer while it trained")
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def offer(is_read: Callable[[], bool]) -> None:
    """Let watches of this kernel be shown so."""

    def made(watch: LiveWatch) -> Stage:
        return LessonOutput(watch, is_read())

    live.in_notebook = made
