"""The one rule for modlab's code inside a user's run: an error of ours ends the look with a one-line message, and the run goes on."""

from __future__ import annotations

import re
import sys
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from modlab import format
from modlab.compat import dispatch_modes, is_simulated, without_modes, without_torch_function
from modlab.errors import NotFiniteError
from modlab.running import clock

KEPT = 16
"""Number of errors that are remembered."""

LONG = 300
"""Maximum length of a message."""

SHORT = 200
"""Maximum length of a message that is shown next to others."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

swallowed: deque[str] = deque(maxlen=KEPT)
"""Tracebacks of the errors that ended a look, for reports and tests."""

TRIES = 100
"""Maximum number of attempts in `afterwards`: the user's own code may raise the same error each time."""

OURS = "__modlab_guarded__"
"""The attribute that marks guarded functions."""


class Look(Protocol):
    """What an error of ours ends: a watch or a trace."""

    def fail(self, error: Exception) -> None:
        """End it, and say so in one line; later calls do nothing."""


def guarded(work: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """A method that runs inside the user's run, like a hook: an error in it ends ``self.ends`` and never reaches the user's code.

    Interrupts, requested stops and `NotFiniteError` propagate.
    """

    @wraps(work)
    def hook(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return work(self, *args, **kwargs)
        except NotFiniteError:
            raise
        except Exception as error:  # noqa: BLE001 - the one place
            failed(self.ends, error)  # type: ignore[attr-defined]
            return None
        except BaseException:
            interrupted(self.ends)  # type: ignore[attr-defined]
            raise

    setattr(hook, OURS, True)
    return hook


def apart(work: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Like `guarded`, but hidden from the user's modes; skipped under a mode that simulates tensors."""

    @wraps(work)
    def hook(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            if dispatch_modes():
                if is_simulated():
                    return None
                with without_modes(), without_torch_function():
                    return work(self, *args, **kwargs)
            with without_torch_function():
                return work(self, *args, **kwargs)
        except NotFiniteError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            failed(self.ends, error)  # type: ignore[attr-defined]
            return None

    setattr(hook, OURS, True)
    return hook


def timed(work: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Like `apart`, but adds the time it takes to ``self.seconds``: that time is not the user's."""

    @wraps(work)
    def hook(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        start = clock.now()
        try:
            if dispatch_modes():
                if is_simulated():
                    return None
                with without_modes(), without_torch_function():
                    return work(self, *args, **kwargs)
            with without_torch_function():
                return work(self, *args, **kwargs)
        except NotFiniteError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            failed(self.ends, error)  # type: ignore[attr-defined]
            return None
        finally:
            self.seconds += clock.now() - start  # type: ignore[attr-defined]

    setattr(hook, OURS, True)
    return hook


def interrupted(look: Look) -> None:
    """An interrupt leaves a hook of ours: switch on again what was switched off temporarily."""
    restore = getattr(look, "restore", None)
    if restore is not None:
        restore()


def failed(look: Look, error: Exception) -> None:
    """End a look because of an error of ours."""
    note(error)
    with suppress(Exception):  # whatever else is broken
        look.fail(error)


def surely(ends: Look, *works: Callable[[], object]) -> None:
    """Call all of these, each of which can safely be restarted, whatever any of them raises.

    An error of ours ends the look, and the call that raised it is retried once. An interrupted call is repeated, and the interrupt
    propagates after all calls are done.
    """
    interrupt: BaseException | None = None
    for work in works:
        again = True
        while True:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - as above
                failed(ends, error)
                if again:
                    again = False
                    continue
            except BaseException as error:  # noqa: BLE001 - raised below
                interrupt = error
                continue
            break
    if interrupt is not None:
        raise interrupt


def afterwards(undo: Callable[[], None], work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `work`, then run `undo` to completion: an interrupt that arrives during it is raised afterwards.

    Args:
        undo: can be called again after an interrupt.
        work: what must be undone.
        *args: its positional arguments.
        **kwargs: its keyword arguments.
    """
    interrupt: BaseException | None = None
    left = TRIES
    try:
        return work(*args, **kwargs)
    finally:
        while left:  # in this very frame: a call of ours in between could be interrupted before it begins
            try:
                left -= 1
                undo()
                left = 0
            except Exception:  # an error in `undo` itself: retrying is pointless
                raise
            except BaseException as error:  # noqa: BLE001 - raised below
                interrupt = error
        if interrupt is not None:
            raise interrupt


def tried(work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> str:
    """Do something optional, such as displaying a result; return the error in one line, or an empty string."""
    try:
        work(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - as above
        note(error)
        return line_of(error)
    return ""


def note(error: Exception) -> None:
    """Remember an error that nobody should see."""
    with suppress(Exception):  # its own text may raise
        swallowed.append("".join(traceback.format_exception(error)))


def line_of(error: BaseException) -> str:
    """An exception in one line."""
    name = type(error).__name__
    try:
        message = _shortened(next((line for line in str(error).splitlines() if line.strip()), ""))
    except Exception:  # noqa: BLE001 - it may not even have a text
        return name
    return format.clean(f"{name}: {message}" if message else name)


def _shortened(text: str) -> str:
    """At most `LONG` characters, with whole words; "…" stands for the rest."""
    if len(text) <= LONG:
        return text
    space = text.rfind(" ", 0, LONG + 1)
    return f"{text[:space]} …" if space > 0 else f"{text[:LONG]}…"


def steady_line(error: BaseException) -> str:
    """An exception in one line, the same in every run."""
    return format.cut(without_addresses(line_of(error).rstrip(".")), SHORT)


def without_addresses(text: str) -> str:
    """The text with memory addresses removed, so that it is the same in every run."""
    return _ADDRESS.sub("0x…", text)


def tell(text: str, end: str = "\n") -> None:
    """Write to the error stream, which may be missing, closed, full or unable to encode the text: failures are ignored."""
    stream: Any = sys.stderr
    with suppress(Exception):
        stream.write(format.printable(text + end, stream))  # in one call: another thread may write too
        stream.flush()


def is_terminal() -> bool:
    """Whether the error stream is a terminal."""
    stream: Any = sys.stderr
    try:
        return bool(stream.isatty())
    except Exception:  # noqa: BLE001 - it is missing or closed
        return False
