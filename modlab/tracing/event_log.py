"""The events of a trace in the order in which they begin, on a clock that stands still while modlab works."""

from __future__ import annotations

import re
from contextlib import suppress
from threading import get_ident
from time import perf_counter
from typing import Any

import torch

from modlab import format
from modlab.compat import dispatch_modes, graph_task, torch_function_as_now, without_modes, without_torch_function
from modlab.running import guarded
from modlab.tracing import callers
from modlab.tracing.calls import Call

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MESSAGE = 300


class EventLog:
    """What happens, one event after the other, nested.

    Attributes:
        calls: all events so far.
        stack: those that are open.
        last: by identity of a module its last call, for what comes after it has ended.
        remarks: what could not be seen, and why.
        failed: modlab itself was at fault; nothing is recorded any more, and the model runs on.
        grad: whether autograd was on when the trace began.
        lost: seconds that modlab itself has taken.
        origin: when it began.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.stack: list[Call] = []
        self.last: dict[int, Call] = {}
        self.remarks: list[str] = []
        self.failed = False
        self.grad = torch.is_grad_enabled()
        self.lost = 0.0
        self.origin = perf_counter()
        self._thread = get_ident()
        self.off: list[Any] = []  # what is switched off for a moment
        self._functions = torch_function_as_now()

    def restore(self) -> None:
        """After an interrupt, have everything on that was on when the trace began."""
        while self.off:
            with suppress(Exception):
                self.off[-1].__exit__(None, None, None)
            self.off.pop()
        self._functions.__exit__(None, None, None)

    def here(self) -> bool:
        """Whether this is the thread that is traced, or one in which autograd works for it (it has one for each accelerator)."""
        if get_ident() == self._thread:
            return True
        return graph_task() != -1 and any(call.kind == "backward" for call in self.stack) and callers.called_by_engine()

    def aside(self) -> OffTheClock:
        """A piece of modlab's own work: its time is not the model's, and an error in it is not the model's either."""
        return OffTheClock(self)

    def now(self) -> float:
        """Seconds on the model's clock."""
        return perf_counter() - self.lost

    @property
    def top(self) -> Call | None:
        """The innermost open event."""
        return self.stack[-1] if self.stack else None

    def begin(self, kind: str, path: str | None, name: str, now: float, parent: Call | None = None) -> Call:
        """Open an event, inside `parent` or else the innermost open one."""
        calls, stack = self.calls, self.stack
        call = Call(len(calls), kind, path, name, parent or (stack[-1] if stack else None))
        call.grad, call.started = torch.is_grad_enabled(), now
        if not call.grad:
            call.inference = torch.is_inference_mode_enabled()
        calls.append(call)
        stack.append(call)
        return call

    def end(self, call: Call, now: float, error: BaseException | None = None) -> None:
        """Close an event, and those inside it that an interruption left open."""
        while self.stack:
            top = self.stack.pop()
            top.seconds = max(0.0, now - top.started)
            if top.parent >= 0:
                self.calls[top.parent].inner += top.seconds
            if error is not None and not top.error:
                top.error = one_line(error)
            if top is call:
                return

    def add(self, call: Call, now: float, error: BaseException | None = None) -> None:
        """Add an event that has ended and was not to be told, as it seemed when it began."""
        call.index, call.seconds = len(self.calls), max(0.0, now - call.started)
        call.error = "" if error is None else one_line(error)
        if call.parent >= 0:
            self.calls[call.parent].inner += call.seconds
        self.calls.append(call)

    def drop(self, call: Call) -> None:
        """Forget an event that turned out to be none, if nothing happened inside."""
        if self.calls[-1] is call:
            self.calls.pop()

    def innermost(self, kind: str, module: int = 0) -> Call | None:
        """The innermost open event of a kind, of one module."""
        if self.stack and self.stack[-1].module == module and self.stack[-1].kind == kind:  # nearly always
            return self.stack[-1]
        return next((call for call in reversed(self.stack) if call.kind == kind and call.module == module), None)

    def remark(self, text: str) -> None:
        """Note what cannot be seen, once."""
        if text not in self.remarks:
            self.remarks.append(text)

    def fail(self, error: Exception) -> None:
        """Give up recording, and say so in one line."""
        if self.failed:
            return
        self.failed = True
        self.remark(f"modlab failed and stopped recording: {one_line(error)}; please report this")
        guarded.tell(f"modlab: the trace ended; your code goes on. {one_line(error)}")


class OffTheClock:
    """See `Tape.aside`; gives the time at which the model was interrupted. No mode of the user's sees what is done inside."""

    __slots__ = ("_begun", "_depth", "_log")

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def __enter__(self) -> float:
        begun = self._begun = perf_counter()
        held = self._log.off
        self._depth = len(held)
        held.append(without_torch_function())
        held[-1].__enter__()
        if dispatch_modes():
            held.append(without_modes())
            held[-1].__enter__()
        return begun - self._log.lost

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> bool:
        held = self._log.off
        while len(held) > self._depth:
            held[-1].__exit__(None, None, None)
            held.pop()
        if error is not None and isinstance(error, Exception):
            guarded.failed(self._log, error)
        self._log.lost += perf_counter() - self._begun
        return error is not None and isinstance(error, Exception)


def one_line(error: BaseException) -> str:
    """An exception in one line that is the same in each run."""
    try:
        message = next((line for line in str(error).splitlines() if line.strip()), "")
    except Exception:  # noqa: BLE001 - an exception of the user's may not even have a text
        message = ""
    return format.clean(_ADDRESS.sub("", f"{type(error).__name__}: {message[:_MESSAGE]}" if message else type(error).__name__))
