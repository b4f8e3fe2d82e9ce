"""A knob of a watch: a value that is moved while the loop runs, by code or by a slider."""

from __future__ import annotations

import math
from threading import get_ident
from typing import TYPE_CHECKING, Any

from modlab import format
from modlab.results.live import answer_while_the_cell_runs
from modlab.results.result import missing
from modlab.watching.knobs import Dial

if TYPE_CHECKING:
    import ipywidgets

PARTS = 200
"""Of a slider: so many presses of a key from one end to the other."""


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

    def widget(self) -> ipywidgets.ValueWidget:
        """Its slider, an ipywidgets control: the same one at each call. It moves the knob while the cell runs. Needs ipywidgets.

        Link it with controls of your own by ``ipywidgets.jslink``, which works in the page, while the kernel is busy with the cell.
        """
        if self._slider is None:
            try:
                import ipywidgets
            except ImportError as error:
                raise missing("ipywidgets", "knob.widget()") from error
            self._slider = self._made(ipywidgets)
            self._slider.observe(self._turned, "value")
            answer_while_the_cell_runs(self._slider)
        return self._slider

    def _made(self, ipywidgets: Any) -> Any:
        style = {"description_width": "auto"}
        layout = ipywidgets.Layout(width="100%", max_width="560px")
        common = {"value": self.value, "description": self.name, "style": style, "layout": layout, "disabled": self._dials.is_fixed(self)}
        if self._whole:
            return ipywidgets.IntSlider(min=self.low, max=self.high, step=int(self.step or 1), **common)
        common["readout_format"] = ".3g"
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return ipywidgets.FloatLogSlider(base=10, min=low, max=high, step=(high - low) / PARTS, **common)
        return ipywidgets.FloatSlider(min=self.low, max=self.high, step=self.step or (self.high - self.low) / PARTS, **common)

    def _turned(self, change: Any) -> None:
        """The slider was moved: the value is stored, and nothing else is done; this is not the training's thread."""
        if self._following == get_ident():
            return
        if not self._dials.is_fixed(self):
            self.set(change["new"])

    def follow(self) -> None:
        """Let the slider stand where the knob stands; it rests where that cannot be moved any more."""
        slider = self._slider
        if slider is None:
            return
        self._following = get_ident()
        try:
            value = self.value
            if slider.value != value and math.isfinite(value):
                slider.value = value
            slider.disabled = self._dials.is_fixed(self)
        finally:
            self._following = 0

    def __repr__(self) -> str:
        moves = len(self.moves)
        moved = "never moved" if not moves else "moved once" if moves == 1 else f"moved {moves:,} times"
        return format.printable(f"<knob {self.name}: {format.number(self.value)}, from {self._range}, {moved}>")
