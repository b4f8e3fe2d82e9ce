"""A failure: the contents of a traceback, gathered for the rules to read. It exists only while one explanation is made."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab import format
from modlab.compat import without_torch_function
from modlab.explaining import calls, operands
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.frames import Frame
from modlab.explaining.operands import Operand
from modlab.explaining.workers import Told
from modlab.inspection import stores
from modlab.inspection.entries import PLAIN
from modlab.records.explanation import Fix
from modlab.statistics.contents import sizes_of

MESSAGE = 200_000  # characters of a message that are kept
_WHOLE = {int}  # excludes symbolic sizes
_SAID = 300  # characters of an error's own words
_HEAD, _TAIL = 3_000, 1_000  # patterns are searched in these parts of the message


class Cause(NamedTuple):
    """What a rule has to say.

    Attributes:
        said: the first half of the sentence: what did not fit, and where.
        more: the second half.
        stop: what follows ✕ at the module that failed.
        facts: given and expected.
        fixes: solutions, the likeliest first.
        remarks: anything else to know.
    """

    said: str
    more: str = ""
    stop: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    fixes: tuple[Fix, ...] = ()
    remarks: tuple[str, ...] = ()


class Rule(NamedTuple):
    """One kind of mistake: how to recognize it, and what explains it.

    Attributes:
        name: one word.
        raised: classes of the exception.
        pattern: what the message contains.
        explain: called with the failure and the match; None means that it is something else after all.
    """

    name: str
    raised: tuple[type[BaseException], ...]
    pattern: str
    explain: Callable[[Failure, re.Match[str]], Cause | None]


class Failure:
    """An exception with its frames and the module calls on the way."""

    def __init__(self, error: BaseException, frames: list[Frame]) -> None:
        self.error = error
        self.message = message_of(error)
        self.frames = frames
        self.calls = calls.of_frames(frames)
        self.ties: dict[int, Any] = {}  # facts found about modules with several places
        self.held: tuple[list[int], list[int]] | None = None  # all places of a module, and of a parameter
        self.inside: list[Module] = []  # all modules of the models there, once collected
        self.told: Told | None = None  # the error's origin, if it was in another process: then there are no frames
        self.here: list[Frame] = []  # and these are the frames of the process that waited
        self.place: tuple[str, str] | None = None  # where it happened, and the line, if only the message says so
        self.hook = ""  # "the forward hook f on l0", if a hook's own code failed rather than a module
        self.names_hook = False  # whether the sentence names it

    @property
    def brief(self) -> str:
        """The message, without the middle if it is very long: a scripted module says at the end what was wrong."""
        return self.message if len(self.message) <= _HEAD + _TAIL else f"{self.message[:_HEAD]}\n{self.message[-_TAIL:]}"

    @property
    def inner(self) -> Frame | None:
        """The innermost frame, or None."""
        return self.frames[-1] if self.frames else None

    @property
    def user(self) -> Frame | None:
        """The innermost frame of code that a user could change, or None."""
        return next((frame for frame in reversed(self.frames) if frame.is_users), None)

    @property
    def own(self) -> Frame | None:
        """The innermost frame of the user's own code, if there is one, rather than of an installed library they call."""
        return next((frame for frame in reversed(self.frames) if frame.is_users and not frame.is_installed), self.user)

    @property
    def words(self) -> str:
        """The error's own words: its first sentences, in one line."""
        return own_words(self.error, self.message)

    @property
    def failing(self) -> ModuleFrame | None:
        """The innermost module call; None if there is none, or if a hook failed."""
        return self.calls[-1] if self.calls and not self.hook else None

    @property
    def root(self) -> ModuleFrame | None:
        """The outermost module call, or None."""
        return self.calls[0] if self.calls else None

    @property
    def module(self) -> Module | None:
        """The innermost module itself, or None."""
        return self.failing.module if self.failing is not None else None

    @property
    def subject(self) -> str:
        """The innermost module's name in a sentence: its path, or its class if it is the outermost one."""
        return self.failing.label if self.failing is not None else ""

    @property
    def stopped(self) -> str:
        """The start of the second half of a sentence."""
        return f"{self.calls[0].type} stopped there: " if len(self.calls) > 1 else "It stopped there: "

    @property
    def within(self) -> str:
        """The end of a sentence about something that happened in the innermost module."""
        where = self.hook or self.subject
        self.names_hook = bool(self.hook)
        return f" in {where}" if where else ""

    @property
    def taken(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors passed to the innermost module."""
        call = self.failing
        given = (*call.args, *call.kwargs.values()) if call is not None and call.args is not None else ()
        return [shape for thing in given if (shape := shape_of(thing)) is not None]

    @property
    def caller(self) -> Frame | None:
        """The frame that called the outermost module, or None."""
        if self.root is None or not self.root.frames:
            return None
        place = next((i for i, frame in enumerate(self.frames) if frame is self.root.frames[0]), 0)
        return self.frames[place - 1] if place and self.frames[place - 1].is_users else None

    @cached_property
    def operands(self) -> list[Operand]:
        """The operands of the expression that failed; in torch's own code, those of the expression that called it."""
        for frame in reversed(self.frames):
            if not (frame.is_users or frame.is_layer):
                continue
            found = operands.of_frame(frame)
            if len(operands.tensors(found)) > 0:
                return found
            if frame.is_users:
                break
        return []

    @property
    def tensors(self) -> list[Operand]:
        """The tensors among the operands."""
        return operands.tensors(self.operands)

    def local(self, name: str) -> Any:
        """The value of a local name, from the innermost frame that has it; or None."""
        return next((frame.names[name] for frame in reversed(self.frames) if name in frame.names and not _is_cell(frame)), None)

    def call_expression(self) -> ast.Call | None:
        """The call of the outermost module as written, or None."""
        found = self.caller.expression() if self.caller is not None else None
        if not isinstance(found, ast.Call) or self.caller is None or self.root is None:
            return None
        called = operands.follow(found.func, self.caller)
        another = isinstance(found.func, ast.Name) if called is operands.MISSING else not stores.is_module(called)
        return None if another and self.root.args is not None else found  # list(map(net, batches)) calls list

    @property
    def models(self) -> list[tuple[str, Module]]:
        """The modules that have names in the user's own frames, with those names, innermost frames first."""
        found: dict[int, tuple[str, Module]] = {}
        for frame in reversed([frame for frame in self.frames if frame.is_users]):
            for name, thing in list(frame.names.items()):
                if not name.startswith("_") and stores.is_module(thing):
                    found.setdefault(id(thing), (name, thing))
        return list(found.values())

    def name_of(self, model: Module | None) -> str:
        """The user's name for a model outside its own methods; empty if there is none."""
        for frame in reversed([frame for frame in self.frames if frame.is_users]):
            itself = frame.code.co_varnames[0] if frame.code.co_argcount and frame.owner is model else "self"
            for name, thing in list(frame.names.items()):
                if thing is model and name != itself and not name.startswith("_"):
                    return name
        return ""


def _is_cell(frame: Frame) -> bool:
    return frame.names is frame.globals


def message_of(error: BaseException) -> str:
    """An exception's message, whatever its class does in ``__str__``."""
    try:
        args = error.args
        text = args[0] if isinstance(error, KeyError) and len(args) == 1 and issubclass(type(args[0]), str) else str(error)
        return str.__getitem__(text, slice(MESSAGE))  # makes a str subclass plain
    except Exception:  # noqa: BLE001 - the user's __str__ may raise anything
        return ""


def own_words(error: BaseException, message: str) -> str:
    """The first paragraph of a message in one line, cut after a whole sentence; for a KeyError, its key."""
    if isinstance(error, KeyError) and len(error.args) == 1 and type(error.args[0]) in (str, int):
        return f"the key {error.args[0]!r}."
    message = " ".join(message.strip().split("\n\n")[0].split())
    if len(message) > _SAID:
        end = max(message.rfind(". ", 0, _SAID), message.rfind("! ", 0, _SAID))
        message = message[: end + 1] if end > _SAID // 4 else f"{message[: message.rfind(' ', 0, _SAID)]} …"
    return message if not message or message.endswith((".", "!", "?", "…")) else f"{message}."


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """The sizes of a tensor; None if it has none."""
    if type(tensor) in PLAIN and not tensor.is_nested:  # nearly always
        sizes = tuple(tensor.shape)
        if {*map(type, sizes)} <= _WHOLE:
            return sizes
    if not issubclass(type(tensor), Tensor):
        return None
    with without_torch_function():
        return None if is_lazy(tensor) else sizes_of(tensor)[0]


def tuple_of(text: str) -> tuple[int, ...]:
    """``(2, 3)`` from ``2, 3`` or ``2x3``."""
    return tuple(int(number) for number in re.findall(r"-?\d+", text))


def own(module: Module | None, name: str) -> Tensor | None:
    """A parameter or buffer of the module itself, or None."""
    held = stores.contents(module) if module is not None else {}
    for kept in (held.get("_parameters"), held.get("_buffers")):
        if kept and name in kept and kept[name] is not None:  # scripted modules' stores are not dicts and have no `get`
            found: Tensor = kept[name]
            return found
    return None


def shown(shape: tuple[int, ...]) -> str:
    """A shape as ``3×4``."""
    return format.shape(shape)


def counted(number: int, word: str, many: str = "") -> str:
    """``1 number``, ``2704 numbers``: without commas, as in shapes and code shown next to it."""
    return f"{number} {word if number == 1 else many or word + 's'}"


def described(thing: Any) -> str:
    """A tensor's shape, or the class of anything else."""
    shape = shape_of(thing)
    return str(shape) if shape is not None else type(thing).__name__
