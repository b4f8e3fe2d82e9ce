"""The one rule for what modlab does inside of a user's run: an error of ours ends the look, in one line, and the run goes on."""

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
"""Errors that are remembered."""

LONG = 300
"""Letters of a message that are told."""

SHORT = 200
"""Those of one that is told beside others."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

swallowed: deque[str] = deque(maxlen=KEPT)
"""Tracebacks of the errors that ended a look, for reports and tests."""

TRIES = 100
"""How often `afterwards` tries: a user's own code may raise the same each time."""

OURS = "__modlab_guarded__"
"""The attribute of what is guarded."""


class Look(Protocol):
    """What an error of ours ends: a watch, a trace."""

    def fail(self, error: Exception) -> None:
        """End it, and say so in one line; what is called later does nothing."""


def guarded(work: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """A method that runs inside of the user's run, as a hook does: an error in it ends ``self.ends`` and is raised to nobody.

    An interrupt, a stop that was asked for and `NotFiniteError` go on their way.
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
    """The same, and no mode of the user's sees what it computes; not called where a mode computes with stand-ins."""

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
    """The same, and the time that it takes is added to ``self.seconds``: it is not the user's."""

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
    """An interrupt leaves a hook of ours: what was switched off for a moment is on again."""
    restore = getattr(look, "restore", None)
    if restore is not None:
        restore()


def failed(look: Look, error: Exception) -> None:
    """End a look for an error of ours."""
    note(error)
    with suppress(Exception):  # whatever is broken as well
        look.fail(error)


def surely(ends: Look, *works: Callable[[], object]) -> None:
    """Do all of these, which can be done again from their beginning, whatever one of them raises.

    An error of ours ends the look, and what it met is tried once more. What an interrupt met is done again, and the interrupt goes
    on its way when all is done.
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
    """Call `work`, and then `undo` to its end: an interrupt that arrives in it is raised when it is done.

    Args:
        undo: can be called again where it was interrupted.
        work: what must be undone.
        *args: its arguments.
        **kwargs: the same, by name.
    """
    interrupt: BaseException | None = None
    left = TRIES
    try:
        return work(*args, **kwargs)
    finally:
        while left:  # in this very frame: no call of ours is in between, which could be interrupted before it begins
            try:
                left -= 1
                undo()
                left = 0
            except Exception:  # an error of its own: there is no sense in trying again
                raise
            except BaseException as error:  # noqa: BLE001 - raised below
                interrupt = error
        if interrupt is not None:
            raise interrupt


def tried(work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> str:
    """Do what a look can do without, as showing something: the error in one line, or nothing."""
    try:
        work(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - as above
        note(error)
        return line_of(error)
    return ""


def note(error: Exception) -> None:
    """Remember an error that nobody is to meet."""
    with suppress(Exception):  # its own text may raise
        swallowed.append("".join(traceback.format_exception(error)))


def line_of(error: BaseException) -> str:
    """An exception in one line."""
    name = type(error).__name__
    try:
        message = next((line for line in str(error).splitlines() if line.strip()), "")[:LONG]
    except Exception:  # noqa: BLE001 - it may not even have a text
        return name
    return format.clean(f"{name}: {message}" if message else name)


def steady_line(error: BaseException) -> str:
    """An exception in one line, the same from run to run."""
    return format.cut(without_addresses(line_of(error).rstrip(".")), SHORT)


def without_addresses(text: str) -> str:
    """The same from run to run."""
    return _ADDRESS.sub("0x…", text)


def tell(text: str, end: str = "\n") -> None:
    """Write on the error stream. There may be none, it may be closed or full, or not know our letters: that harms nobody."""
    stream: Any = sys.stderr
    with suppress(Exception):
        stream.write(format.printable(text + end, stream))  # once: another thread may write as well
        stream.flush()


def is_terminal() -> bool:
    """Whether somebody watches the error stream."""
    stream: Any = sys.stderr
    try:
        return bool(stream.isatty())
    except Exception:  # noqa: BLE001 - there is none, or it is closed
        return False
