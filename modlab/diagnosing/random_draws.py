"""Which functions draw random numbers in one pass, and which module's code calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn import Module

from modlab.comparing.hook_probes import POST, HookProbes, ProbedOutput, hooked
from modlab.compat import FunctionMode
from modlab.diagnosing.trials import Bench
from modlab.running.guarded import afterwards
from modlab.running.listener import Listener
from modlab.running.randomness import Meter, Private

DROPOUTS = {
    getattr(F, name): name
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    if hasattr(F, name)
}


class Draw(NamedTuple):
    """A function drew random numbers.

    Attributes:
        module: the module whose code called it; None if outside any module.
        function: "dropout", "randn_like"; empty if it was not a torch function.
        source: which generator, as `Meter` names it.
        is_dropout: whether it is a dropout function of ``torch.nn.functional``.
        hook: which of the module's own hooks called it, if any ("forward hook f (net.py:12)").
    """

    module: Module | None
    function: str
    source: str
    is_dropout: bool
    hook: str = ""


class RandomDraws(FunctionMode):
    """Observes one pass.

    Args:
        private: the model's own generators.
        modules: modules whose own hooks are probed.
    """

    def __init__(self, private: list[Private], modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.draws: list[Draw] = []
        self._private = private
        self._running: list[Module] = []
        self._depth = 0
        self._since = 0  # number of draws before the last event
        self._listener, self._hook_probes = Listener(self._begin, self._return), HookProbes(hooked(modules), self._look)

    def during(self, work: Callable[[], object]) -> None:
        """Call `work`, observing meanwhile."""

        def heard() -> None:
            self._meter = Meter(thorough=True, private=self._private)
            self._hook_probes.open()
            self._listener.open()
            with self:
                work()

        afterwards(self._close, heard)

    def _close(self) -> None:
        self._listener.close()
        self._hook_probes.close()

    def _begin(self, module: Module, _: Any) -> None:
        self._event()
        self._running.append(module)

    def _return(self, module: Module, *_: Any) -> None:
        self._event()
        if not self._hook_probes.sees(module, POST):
            self._end(module)

    def _look(self, sight: ProbedOutput, module: Module, *_: Any) -> None:
        before = self._since
        self._event()
        self.draws[before:] = [draw._replace(hook=f"{sight.kind} {sight.hook}") for draw in self.draws[before:]]
        if sight.last and sight.kind == POST:
            self._end(module)

    def _event(self) -> None:
        self._note("")
        self._since = len(self.draws)

    def _end(self, module: Module) -> None:
        while self._running and self._running.pop() is not module:
            pass  # calls that an exception ended unseen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the function unchanged; only the outermost one is recorded."""
        if self._depth:
            return func(*args, **(kwargs or {}))
        self._note("")
        self._depth += 1
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._depth -= 1
            self._note(DROPOUTS.get(func, getattr(func, "__name__", "")), func in DROPOUTS)

    def _note(self, function: str, is_dropout: bool = False) -> None:
        for source in self._meter.used():
            self.draws.append(Draw(self._running[-1] if self._running else None, function, source, is_dropout))


def of(bench: Bench, private: list[Private]) -> list[Draw]:
    """The draws of one pass in the model's current mode."""
    chances = RandomDraws(private, (site.module for site in bench.subject.sites))
    with torch.no_grad():
        chances.during(bench.output)
    return chances.draws
