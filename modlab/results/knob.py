"""A knob of a watch: a value that is moved while the loop runs, by code or by a slider."""

from __future__ import annotations

import math
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING, Any

from modlab import format
from modlab.results.live import answer_while_the_cell_runs
from modlab.results.result import missing
from modlab.watching.knobs import Dial, shown

if TYPE_CHECKING:
    import ipywidgets

PARTS = 100
"""Of a slider: so many presses of a key from one end to the other, at least, and twice as many at most."""

NEAR = 1e-9
"""Of a slider's length: what a page makes of a number is not always that number."""

TOLD = 32
"""Positions that a page may send back without a move."""


class Knob(Dial):
    """A value that you move while the loop runs; `Watch.knob` makes it.

    ``knob()`` gives the value in the loop, ``knob.set(value)`` or ``knob.value = value`` moves it from any thread, ``knob.moves`` lists
    the moves, and ``knob.widget()`` is its slider. A move holds from the next step on. Within one step the value never changes.

    >>> import torch, modlab
    >>> net = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with modlab.watch(net, optimizer) as w:
    ...     lr = w.knob("lr", 1e-3, 1, log=True)
    ...     for step in range(4):
    ...         if step == 2:
    ...             lr.set(0.01)
    ...         optimizer.zero_grad()
    ...         net(torch.ones(2)).square().sum().backward()
    ...         optimizer.step()
    >>> lr
    <knob lr: 0.01, from 0.001 to 1, moved once>
    >>> lr.moves
    (KnobMove(step=2, knob='lr', value=0.01),)
    >>> optimizer.param_groups[0]["lr"]
    0.01
    """

    _slider: Any = None
    _following = 0  # the thread that sets the slider to where the knob stands
    _told: deque[float]

    def widget(self) -> ipywidgets.ValueWidget:
        """Its slider, an ipywidgets control: the same one at each call. It moves the knob while the cell runs. Needs ipywidgets.

        Link it with controls of your own by ``ipywidgets.jslink``, which works in the page, while the kernel is busy with the cell.
        """
        if self._slider is None:
            try:
                import ipywidgets
            except ImportError as error:
                raise missing("ipywidgets", "knob.widget()") from error
            self._told = deque(maxlen=TOLD)
            self._slider = self._made(ipywidgets)
            self._slider.observe(self._turned, "value")
            answer_while_the_cell_runs(self._slider)
        return self._slider

    def _made(self, ipywidgets: Any) -> Any:
        value = self._seen
        low, high = map(self._place, (self.low, self.high))
        common = {
            "value": value,
            "min": low,
            "max": high,
            "step": self._grid(value),
            "description": self.name,
            "tooltip": f"{self.name}: {self._range}",
            "style": {"description_width": "auto"},
            "layout": ipywidgets.Layout(width="100%", max_width="560px"),
            "disabled": self._dials.is_fixed(self),
        }
        self._told.append(self._landed(value, common["step"]))
        if self._whole:
            return ipywidgets.IntSlider(**common)
        kind = ipywidgets.FloatLogSlider if self.log else ipywidgets.FloatSlider
        return kind(readout_format=".3g", **common)

    @property
    def _seen(self) -> float:
        """Where its slider stands: at an end, where a scheduler has left the range."""
        value = self.value
        return self.low if math.isnan(value) else self.fitting(value)

    def _place(self, value: float) -> float:
        """Where a value is on the slider."""
        return math.log10(value) if self.log else value

    def _grid(self, value: float) -> float:
        """A slider's step, such that a value lies on its grid: elsewhere the page would show, and send, the nearest one that does."""
        if self.step is not None:
            return self.step
        low, high, at = map(self._place, (self.low, self.high, value))
        step = _round((high - low) / PARTS)
        count = round((at - low) / step)
        return step if not count or abs(low + count * step - at) <= NEAR * (high - low) else (at - low) / count

    def _landed(self, value: float, step: float) -> float:
        """Where a page puts a value on its grid."""
        low = self._place(self.low)
        return low + round((self._place(value) - low) / step) * step

    def _is_at(self, value: float, place: float) -> bool:
        return abs(self._place(value) - place) <= NEAR * (self._place(self.high) - self._place(self.low))

    def _turned(self, change: Any) -> None:
        """The slider was moved: the value is stored, and nothing else is done; this is not the training's thread.

        A page also sends where it has put a value that it was told, rounded to its grid: that is nobody's move.
        """
        value = change["new"]
        if self._following == get_ident() or self._dials.is_fixed(self) or any(self._is_at(value, one) for one in [*self._told]):
            return
        value = float(f"{value:.12g}")  # 0.75, where the page has computed 0.7500000000000001
        self._told.clear()
        self._told.append(self._landed(value, self._slider.step))  # what is typed may lie beside the grid
        self.set(value)

    def follow(self) -> None:
        """Let the slider stand where the knob stands; it rests where that cannot be moved any more."""
        slider = self._slider
        if slider is None:
            return
        self._following = get_ident()
        try:
            slider.disabled = self._dials.is_fixed(self)
            value = self._seen
            if slider.value != value:
                step = self._grid(value)
                landed = self._landed(value, step)
                if step == slider.step and self._is_at(slider.value, landed):
                    return
                self._told.append(landed)
                with slider.hold_sync():
                    slider.step, slider.value = step, value
        finally:
            self._following = 0

    def __repr__(self) -> str:
        moves = len(self.moves)
        moved = "never moved" if not moves else "moved once" if moves == 1 else f"moved {moves:,} times"
        return format.printable(f"<knob {self.name}: {shown(self.value)}, from {self._range}, {moved}>")


def _round(length: float) -> float:
    """The greatest of 1, 2, 5, 10, … and their tenths that is not longer."""
    ten: float = 10.0 ** math.floor(math.log10(length))
    return next(one * ten for one in (5.0, 2.0, 1.0) if one * ten <= length * (1 + NEAR))
