"""An error in a DataLoader worker: it arrives from another process as text only, and is parsed from that."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from typing import Any, NamedTuple

from modlab.explaining import frames

_CAUGHT = re.compile(r"Caught (?P<name>\w+) in (?P<place>DataLoader worker process (?P<number>\d+)|pin memory thread[^.\n]*)\.\nOriginal ")
_FRAME = re.compile(r'  File "(?P<file>[^\n]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n(?P<source>(?:    [^\n]*\n)*)')
_HEAD = "Traceback (most recent call last):\n"
_NEXT = re.compile(
    r"\n(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):\n\n" + re.escape(_HEAD)
)
_LONG = 1_000_000  # maximum characters of a text that is read


class ToldFrame(NamedTuple):
    """One level of a traceback that arrived as text: its file, line and function, and the line itself."""

    file: str
    line: int
    function: str
    source: str

    @property
    def where(self) -> str:
        """``data.py:12``."""
        return frames.place(self.file, self.line)

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own code."""
        whose = frames.whose(self.file)
        return whose.is_users and not whose.is_installed


class Told(NamedTuple):
    """An exception of another process, as its traceback was written.

    Attributes:
        error: an exception of the same class with the same message; a plain Exception if the class is unknown here.
        name: the class.
        message: its message.
        place: "DataLoader worker process 0".
        frames: of the last traceback, outermost first.
    """

    error: BaseException
    name: str
    message: str
    place: str
    frames: tuple[ToldFrame, ...]

    @property
    def own(self) -> ToldFrame | None:
        """The innermost frame in the user's own code; None if no frame is the user's."""
        return next((frame for frame in reversed(self.frames) if frame.is_own), None)


def told(error: BaseException, message: str) -> Told | None:
    """The error of another process that a message contains; None for any other message."""
    match = _CAUGHT.match(message)
    if match is None or len(message) > _LONG:
        return None
    rest = message[match.end() :]
    later = list(_NEXT.finditer(rest))
    start = later[-1].end() if later else len(_HEAD) if rest.startswith(_HEAD) else 0
    found = []
    while (level := _FRAME.match(rest, start)) is not None:
        source = level["source"].split("\n")[0].strip()
        found.append(ToldFrame(level["file"], int(level["line"]), level["function"], source))
        start = level.end()
    named, _, words = rest[start:].partition(": ")
    if "\n" in named.strip() or not named.strip():  # nothing after the name, or no name
        named, words = (named.split("\n")[0], "")
    made = _made(named.strip(), match["name"], type(error), words.rstrip("\n"))
    return Told(made, match["name"], words.rstrip("\n"), match["place"], tuple(found))


def _made(dotted: str, name: str, raised: type[BaseException], words: str) -> BaseException:
    cls: Any = raised if raised.__name__ == name else getattr(builtins, name, None)
    if cls is None:
        module, _, last = dotted.rpartition(".")
        cls = vars(sys.modules[module]).get(last) if module in sys.modules else None
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        cls = Exception
    given: Any = words
    if cls is KeyError:
        try:
            given = ast.literal_eval(words)
        except (ValueError, SyntaxError):
            given = words
    try:
        made: BaseException = cls.__new__(cls, given)
        made.args = (given,)
    except Exception:  # noqa: BLE001 - the class has its own constructor
        made = Exception(words)
    return made
