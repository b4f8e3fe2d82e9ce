"""A closed reader of pickles: it imports nothing, calls nothing that a file names, and ends after so many steps.

What a pickle calls stays a name (`Named`) and what it would make stays what it says (`Made`), but for the few things whose makers
are given. So there is nothing that a file could run, also where torch itself would have to refuse it.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from modlab.errors import CheckpointError
from modlab.frozen import frozen

STEPS = 10_000_000
"""Instructions of one pickle that are followed: some hundred thousand tensors."""
KEYS = 64
"""Parts of a tuple that is a key: a nest of tuples takes time to hash that doubles with each level."""
_DIGITS = 1024  # bytes of a whole number
_OLD = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class PickleError(CheckpointError):
    """A pickle that cannot be followed."""


@frozen
class Named:
    """What a pickle names by module and name; it is not looked up."""

    name: str


@dataclass(slots=True, eq=False)
class Made:
    """What a pickle would make by calling something: the name, what it would be given, and the state that it would get."""

    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)

    def get(self, name: str, default: Any = None) -> Any:
        """One attribute of its state."""
        return self.state.get(name, default) if isinstance(self.state, dict) else default


Makers = Mapping[str, Callable[..., Any]]


class Ordered(OrderedDict[Any, Any]):
    """An OrderedDict of the file's, with what ``state_dict()`` notes on it."""

    _metadata: Any = None


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise TypeError("no text")
    return text.encode(encoding)


def _sized(given: Any = ()) -> tuple[Any, ...]:
    if not isinstance(given, (list, tuple)):
        raise TypeError("no sizes")
    return tuple(given)


def _mapping(given: Any = ()) -> dict[Any, Any]:
    found = {}
    for key, value in given.items() if isinstance(given, dict) else given:
        found[checked_key(key)] = value
    return found


def _ordered(given: Any = ()) -> Ordered:
    return Ordered(_mapping(given))


def _collected(given: Any = ()) -> set[Any]:
    return {checked_key(one) for one in given}


PLAIN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered,
    "collections.Counter": _mapping,
    "collections.defaultdict": lambda factory=None, given=(): _mapping(given),
    "builtins.set": _collected,
    "builtins.frozenset": lambda given=(): frozenset(_collected(given)),
    "builtins.complex": lambda real=0.0, imaginary=0.0: complex(float(real), float(imaginary)),
    "builtins.bytearray": lambda given=b"": given if isinstance(given, bytes) else b"",
    "_codecs.encode": _encoded,
    "torch.Size": _sized,
    "torch.device": lambda kind="cpu", number=None: torch.device(str(kind)) if number is None else torch.device(str(kind), int(number)),
    "torch.serialization._get_layout": lambda name: CONSTANTS[str(name)],
}
"""Makers of what is plain."""
CONSTANTS: dict[str, Any] = {
    f"torch.{name}": value
    for name, value in vars(torch).items()
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format, torch.qscheme))
}
"""Dtypes and their like, which are what they are."""


def checked_key(key: Any) -> Any:
    """A key that is quickly hashed, or an error."""
    left, stack = KEYS, [key]
    while stack:
        one = stack.pop()
        left -= 1
        if left < 0:
            raise PickleError("a key of one of its dicts is nested without end")
        if isinstance(one, (tuple, frozenset)):
            stack.extend([*one][: KEYS + 1])
        elif isinstance(one, int) and abs(one) >= 1 << 60:  # chosen well, many of them have one hash
            raise PickleError("a key of one of its dicts is too large a number")
        elif not (one is None or isinstance(one, (str, bytes, int, float, Named, Made, torch.dtype, torch.device))):
            raise PickleError(f"a key of one of its dicts is a {type(one).__name__}")
    return key


class Reader:
    """One pickle.

    Args:
        data: begins with it.
        first: where.
        makers: what is made of calls, by name, beside `PLAIN`.
        stored: makes something of a persistent id.

    Attributes:
        unknown: the names of what would have been called and is not known, in their order.
        position: after `load`, where the pickle ended.
    """

    def __init__(
        self, data: bytes | bytearray, first: int = 0, makers: Makers | None = None, stored: Callable[[Any], Any] | None = None
    ) -> None:
        self._data, self.position = data, first
        self._makers = {**PLAIN, **(makers or {})}
        self._persistent = stored
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self.unknown: dict[str, None] = {}

    def load(self) -> Any:
        """What the pickle says.

        Raises:
            PickleError: it is none, is cut off or too long, or does what no checkpoint does.
        """
        data, steps = self._data, _STEPS
        try:
            for _ in range(STEPS):
                code = data[self.position]
                self.position += 1
                if code == 0x2E:
                    return self._stack.pop()
                steps[code](self)
        except CheckpointError:
            raise
        except (IndexError, struct.error) as error:
            at_end = self.position >= len(data)
            raise EndError("it ends in the middle" if at_end else "it is not a pickle that torch.save writes") from error
        except KeyError as error:
            raise PickleError("it is not a pickle that torch.save writes") from error
        except (TypeError, ValueError, AttributeError, OverflowError, MemoryError, RecursionError, RuntimeError) as error:
            raise PickleError(f"it is not a pickle that torch.save writes ({type(error).__name__})") from None
        raise PickleError(f"it takes more than {STEPS:,} steps to read")

    # ---- bytes ----

    def take(self, count: int) -> bytes:
        """The next bytes."""
        first = self.position
        if count < 0 or first + count > len(self._data):
            self.position = len(self._data)
            raise EndError("it ends in the middle")
        self.position = first + count
        return bytes(self._data[first : self.position])

    def skip(self, count: int) -> None:
        """Pass over some bytes."""
        self.take(count)

    def number(self, form: str, size: int) -> Any:
        """The next bytes as a number."""
        return struct.unpack(form, self.take(size))[0]

    def line(self) -> str:
        """The next line."""
        end = self._data.find(b"\n", self.position, self.position + 10_000)
        if end < 0:
            raise EndError("it ends in the middle")
        found = self.take(end - self.position)
        self.position += 1
        return found.decode("utf-8")

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    # ---- instructions ----

    def mark(self) -> None:
        """Begin a run of values."""
        self._marks.append(self._stack)
        self._stack = []

    def marked(self) -> list[Any]:
        """The values since the last mark."""
        found = self._stack
        self._stack = self._marks.pop()
        return found

    def pop(self) -> None:
        """Drop a value."""
        self._stack.pop()

    def pop_marked(self) -> None:
        """Drop the values since the last mark."""
        self.marked()

    def duplicate(self) -> None:
        """The last value once more."""
        self._stack.append(self._stack[-1])

    def integer(self, size: int) -> None:
        """A whole number of so many bytes."""
        if size > _DIGITS:
            raise PickleError(f"it holds a number of {size:,} bytes")
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def decimal(self) -> None:
        """A whole number as text."""
        text = self.line().rstrip("L")
        if len(text) > _DIGITS:
            raise PickleError("it holds a number of many digits")
        self.push({"00": False, "01": True}.get(text) if text in ("00", "01") else int(text))

    def text(self, size: int) -> None:
        """Text of so many bytes."""
        self.push(self.take(size).decode("utf-8", "surrogatepass"))

    def old_text(self, size: int) -> None:
        """Text of Python 2, or bytes."""
        found = self.take(size)
        try:
            self.push(found.decode("utf-8"))
        except UnicodeDecodeError:
            self.push(found)

    def append(self) -> None:
        """One more value of a list."""
        self._extend([self._stack.pop()])

    def extend(self) -> None:
        """More values of a list."""
        self._extend(self.marked())

    def _extend(self, values: list[Any]) -> None:
        into = self._stack[-1]
        (into if type(into) is list else _made(into).items).extend(values)

    def add(self) -> None:
        """More values of a set."""
        values, into = self.marked(), self._stack[-1]
        if type(into) is not set:
            raise PickleError("it adds to something that is not a set")
        into.update(map(checked_key, values))

    def set_item(self) -> None:
        """One more entry of a dict."""
        value = self._stack.pop()
        self._set([self._stack.pop(), value])

    def set_items(self) -> None:
        """More entries of a dict."""
        self._set(self.marked())

    def _set(self, values: list[Any]) -> None:
        into = self._stack[-1]
        if not isinstance(into, dict):
            _made(into).items.extend(values)
            return
        for i in range(0, len(values) - 1, 2):
            key = values[i]
            into[key if type(key) is str else checked_key(key)] = values[i + 1]

    def tuple_of(self, count: int) -> None:
        """The last values as a tuple."""
        if len(self._stack) < count:
            raise PickleError("it takes more than it has")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def remember(self, number: int) -> None:
        """Keep the last value under a number."""
        self._memo[number] = self._stack[-1]

    def recall(self, number: int) -> None:
        """A kept value."""
        self.push(self._memo[number])

    def name(self, module: Any, name: Any) -> None:
        """Something that is named by its module."""
        if not (isinstance(module, str) and isinstance(name, str)) or len(module) + len(name) > 1000:
            raise PickleError("it names something by an invalid name")
        full = f"{_OLD.get(module, module)}.{name}"
        self.push(CONSTANTS[full] if full in CONSTANTS else Named(full))

    def name_of_stack(self) -> None:
        """The same, of two values."""
        name = self._stack.pop()
        self.name(self._stack.pop(), name)

    def call(self) -> None:
        """What a function would give."""
        arguments = self._stack.pop()
        self._call(self._stack.pop(), arguments)

    def create(self) -> None:
        """A new object of a class."""
        arguments = self._stack.pop()
        self._call(self._stack.pop(), arguments)

    def create_named(self) -> None:
        """The same with arguments by name."""
        named, arguments = self._stack.pop(), self._stack.pop()
        self._call(self._stack.pop(), (*arguments, named))

    def _call(self, function: Any, arguments: Any) -> None:
        if type(function) is not Named or type(arguments) is not tuple:
            raise PickleError("it calls something that is not a function")
        maker = self._makers.get(function.name)
        if maker is None:
            self.unknown[function.name] = None
            self.push(Made(function.name, arguments))
        else:
            self.push(maker(*arguments))

    def build(self) -> None:
        """Give an object its state."""
        state, into = self._stack.pop(), self._stack[-1]
        if isinstance(into, Ordered):
            into._metadata = state.get("_metadata") if isinstance(state, dict) else None
        elif type(into) is Made:
            into.state = state
        else:
            raise PickleError("it changes something that is not an object")

    def persistent(self) -> None:
        """What lies outside of the pickle."""
        if self._persistent is None:
            raise PickleError("it refers to something that is not in it")
        self.push(self._persistent(self._stack.pop()))


class EndError(PickleError):
    """A pickle that goes on after the bytes that were given."""


def _made(thing: Any) -> Made:
    if type(thing) is not Made:
        raise PickleError("it adds to something that cannot take anything")
    return thing


def _floating(reader: Reader) -> None:
    reader.push(float(reader.line()))


def _dict_of(values: list[Any]) -> dict[Any, Any]:
    return {checked_key(values[i]): values[i + 1] for i in range(0, len(values) - 1, 2)}


_STEPS: dict[int, Callable[[Reader], None]] = {
    0x80: lambda r: r.skip(1),  # PROTO
    0x95: lambda r: r.skip(8),  # FRAME
    ord("("): Reader.mark,
    ord("0"): Reader.pop,
    ord("1"): Reader.pop_marked,
    ord("2"): Reader.duplicate,
    ord("N"): lambda r: r.push(None),
    0x88: lambda r: r.push(True),
    0x89: lambda r: r.push(False),
    ord("I"): Reader.decimal,
    ord("L"): Reader.decimal,
    ord("J"): lambda r: r.push(r.number("<i", 4)),
    ord("K"): lambda r: r.push(r.take(1)[0]),
    ord("M"): lambda r: r.push(r.number("<H", 2)),
    0x8A: lambda r: r.integer(r.take(1)[0]),
    0x8B: lambda r: r.integer(r.number("<i", 4)),
    ord("F"): _floating,
    ord("G"): lambda r: r.push(r.number(">d", 8)),
    ord("X"): lambda r: r.text(r.number("<I", 4)),
    0x8C: lambda r: r.text(r.take(1)[0]),
    0x8D: lambda r: r.text(r.number("<Q", 8)),
    ord("T"): lambda r: r.old_text(r.number("<i", 4)),
    ord("U"): lambda r: r.old_text(r.take(1)[0]),
    ord("B"): lambda r: r.push(r.take(r.number("<I", 4))),
    ord("C"): lambda r: r.push(r.take(r.take(1)[0])),
    0x8E: lambda r: r.push(r.take(r.number("<Q", 8))),
    0x96: lambda r: r.push(r.take(r.number("<Q", 8))),
    ord("]"): lambda r: r.push([]),
    ord("l"): lambda r: r.push(r.marked()),
    ord("a"): Reader.append,
    ord("e"): Reader.extend,
    ord("}"): lambda r: r.push({}),
    ord("d"): lambda r: r.push(_dict_of(r.marked())),
    ord("s"): Reader.set_item,
    ord("u"): Reader.set_items,
    ord(")"): lambda r: r.push(()),
    ord("t"): lambda r: r.push(tuple(r.marked())),
    0x85: lambda r: r.tuple_of(1),
    0x86: lambda r: r.tuple_of(2),
    0x87: lambda r: r.tuple_of(3),
    0x8F: lambda r: r.push(set()),
    0x90: Reader.add,
    0x91: lambda r: r.push(frozenset(map(checked_key, r.marked()))),
    ord("p"): lambda r: r.remember(int(r.line()[:20])),
    ord("q"): lambda r: r.remember(r.take(1)[0]),
    ord("r"): lambda r: r.remember(r.number("<I", 4)),
    0x94: lambda r: r.remember(len(r._memo)),
    ord("g"): lambda r: r.recall(int(r.line()[:20])),
    ord("h"): lambda r: r.recall(r.take(1)[0]),
    ord("j"): lambda r: r.recall(r.number("<I", 4)),
    ord("c"): lambda r: r.name(r.line(), r.line()),
    0x93: Reader.name_of_stack,
    ord("R"): Reader.call,
    0x81: Reader.create,
    0x92: Reader.create_named,
    ord("b"): Reader.build,
    ord("Q"): Reader.persistent,
}
