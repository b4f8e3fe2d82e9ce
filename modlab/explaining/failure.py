"""A failure: what a traceback shows, gathered for the rules that look at it. It lives as long as one explanation is made."""

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

MESSAGE = 200_000  # characters of a message that are kept in sight
_WHOLE = {int}  # a symbolic size is none
_SAID = 300  # characters of what an error says itself
_HEAD, _TAIL = 3_000, 1_000  # of which patterns are looked for in these


class Cause(NamedTuple):
    """What a rule has to say.

    Attributes:
        said: the first half of the sentence: what did not fit, and where.
        more: the second half.
        stop: what stands behind ✕ at the module that failed.
        facts: given and expected.
        fixes: ways out, the likeliest first.
        remarks: what else to know.
    """

    said: str
    more: str = ""
    stop: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    fixes: tuple[Fix, ...] = ()
    remarks: tuple[str, ...] = ()


class Rule(NamedTuple):
    """One kind of mistake: how it is recognised, and what explains it.

    Attributes:
        name: one word.
        raised: classes of the exception.
        pattern: what the message holds.
        explain: gets the failure and the match; None means: it is something else after all.
    """

    name: str
    raised: tuple[type[BaseException], ...]
    pattern: str
    explain: Callable[[Failure, re.Match[str]], Cause | None]


class Failure:
    """An exception with its frames and the calls of modules on the way."""

    def __init__(self, error: BaseException, frames: list[Frame]) -> None:
        self.error = error
        self.message = message_of(error)
        self.frames = frames
        self.calls = calls.of_frames(frames)
        self.ties: dict[int, Any] = {}  # what was found out about modules with several places
        self.held: tuple[list[int], list[int]] | None = None  # every place of a module and of a parameter there
        self.inside: list[Module] = []  # all modules of the models there, once they were gone through
        self.told: Told | None = None  # what happened in another process, if this is its error: then there are no frames
        self.here: list[Frame] = []  # and these were the frames of the process that asked
        self.place: tuple[str, str] | None = None  # where it happened, and the line, if the message alone says so
        self.hook = ""  # "the forward hook f on l0", if it is one whose own code failed: then no module did
        self.names_hook = False  # whether the sentence says so

    @property
    def brief(self) -> str:
        """The message, without the middle of a very long one: a scripted module says at the end what was wrong."""
        return self.message if len(self.message) <= _HEAD + _TAIL else f"{self.message[:_HEAD]}\n{self.message[-_TAIL:]}"

    @property
    def inner(self) -> Frame | None:
        """The innermost frame."""
        return self.frames[-1] if self.frames else None

    @property
    def user(self) -> Frame | None:
        """The innermost frame of code that a user could change."""
        return next((frame for frame in reversed(self.frames) if frame.is_users), None)

    @property
    def own(self) -> Frame | None:
        """The innermost frame of the user's own code, where there is one: what they call may be a library that was installed."""
        return next((frame for frame in reversed(self.frames) if frame.is_users and not frame.is_installed), self.user)

    @property
    def words(self) -> str:
        """What the error says itself: its first sentences, in one line."""
        return own_words(self.error, self.message)

    @property
    def failing(self) -> ModuleFrame | None:
        """The innermost module; None where it is a hook of its that failed."""
        return self.calls[-1] if self.calls and not self.hook else None

    @property
    def root(self) -> ModuleFrame | None:
        """The outermost one."""
        return self.calls[0] if self.calls else None

    @property
    def module(self) -> Module | None:
        """The innermost module itself."""
        return self.failing.module if self.failing is not None else None

    @property
    def subject(self) -> str:
        """How a sentence calls the innermost module: its path, or its class if it is the outermost one."""
        return self.failing.label if self.failing is not None else ""

    @property
    def stopped(self) -> str:
        """How the second half of a sentence begins."""
        return f"{self.calls[0].type} stopped there: " if len(self.calls) > 1 else "It stopped there: "

    @property
    def within(self) -> str:
        """The end of a sentence that is not about the innermost module, but happened in it."""
        where = self.hook or self.subject
        self.names_hook = bool(self.hook)
        return f" in {where}" if where else ""

    @property
    def taken(self) -> list[tuple[int, ...]]:
        """The shapes of the tensors that the innermost module was called with."""
        call = self.failing
        given = (*call.args, *call.kwargs.values()) if call is not None and call.args is not None else ()
        return [shape for thing in given if (shape := shape_of(thing)) is not None]

    @property
    def caller(self) -> Frame | None:
        """The code that called the outermost module."""
        if self.root is None or not self.root.frames:
            return None
        place = next((i for i, frame in enumerate(self.frames) if frame is self.root.frames[0]), 0)
        return self.frames[place - 1] if place and self.frames[place - 1].is_users else None

    @cached_property
    def operands(self) -> list[Operand]:
        """What stood in the expression that failed; of torch's own code, what stood in the one that called it."""
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
        """What a local name stands for, in the innermost frame that has it."""
        return next((frame.names[name] for frame in reversed(self.frames) if name in frame.names and not _is_cell(frame)), None)

    def call_expression(self) -> ast.Call | None:
        """How the outermost module was called, as it is written."""
        found = self.caller.expression() if self.caller is not None else None
        if not isinstance(found, ast.Call) or self.caller is None or self.root is None:
            return None
        called = operands.follow(found.func, self.caller)
        another = isinstance(found.func, ast.Name) if called is operands.MISSING else not stores.is_module(called)
        return None if another and self.root.args is not None else found  # list(map(net, batches)) calls list

    @property
    def models(self) -> list[tuple[str, Module]]:
        """The modules that the user's own frames have names for, with those names, innermost frames first."""
        found: dict[int, tuple[str, Module]] = {}
        for frame in reversed([frame for frame in self.frames if frame.is_users]):
            for name, thing in list(frame.names.items()):
                if not name.startswith("_") and stores.is_module(thing):
                    found.setdefault(id(thing), (name, thing))
        return list(found.values())

    def name_of(self, model: Module | None) -> str:
        """What the user's code calls a model: a name outside of its own methods."""
        for frame in reversed([frame for frame in self.frames if frame.is_users]):
            itself = frame.code.co_varnames[0] if frame.code.co_argcount and frame.owner is model else "self"
            for name, thing in list(frame.names.items()):
                if thing is model and name != itself and not name.startswith("_"):
                    return name
        return ""


def _is_cell(frame: Frame) -> bool:
    return frame.names is frame.globals


def message_of(error: BaseException) -> str:
    """What an exception says, whatever its class does when it is asked."""
    try:
        args = error.args
        text = args[0] if isinstance(error, KeyError) and len(args) == 1 and issubclass(type(args[0]), str) else str(error)
        return str.__getitem__(text, slice(MESSAGE))  # a plain one of a subclass, too
    except Exception:  # noqa: BLE001 - a __str__ of the user's may raise anything
        return ""


def own_words(error: BaseException, message: str) -> str:
    """The first paragraph of a message in one line, as far as whole sentences of it fit; of a KeyError its key."""
    if isinstance(error, KeyError) and len(error.args) == 1 and type(error.args[0]) in (str, int):
        return f"the key {error.args[0]!r}."
    message = " ".join(message.strip().split("\n\n")[0].split())
    if len(message) > _SAID:
        end = max(message.rfind(". ", 0, _SAID), message.rfind("! ", 0, _SAID))
        message = message[: end + 1] if end > _SAID // 4 else f"{message[: message.rfind(' ', 0, _SAID)]} …"
    return message if not message or message.endswith((".", "!", "?", "…")) else f"{message}."


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """The sizes of a tensor; None for what has none."""
    if type(tensor) in PLAIN and not tensor.is_nested:  # nearly always
        sizes = tuple(tensor.shape)
        if {*map(type, sizes)} <= _WHOLE:
            return sizes
    if not issubclass(type(tensor), Tensor):
        return None
    with without_torch_function():
        return None if is_lazy(tensor) else sizes_of(tensor)[0]


def tuple_of(text: str) -> tuple[int, ...]:
    """``(2, 3)`` out of ``2, 3`` or ``2x3``."""
    return tuple(int(number) for number in re.findall(r"-?\d+", text))


def own(module: Module | None, name: str) -> Tensor | None:
    """A parameter or buffer of a module itself."""
    held = stores.contents(module) if module is not None else {}
    for kept in (held.get("_parameters"), held.get("_buffers")):
        if kept and name in kept and kept[name] is not None:  # those of scripted modules are no dicts, and know no `get`
            found: Tensor = kept[name]
            return found
    return None


def shown(shape: tuple[int, ...]) -> str:
    """``3×4``."""
    return format.shape(shape)


def counted(number: int, word: str, many: str = "") -> str:
    """``1 number``, ``2704 numbers``: without commas, as in a shape and in code, which stand beside it."""
    return f"{number} {word if number == 1 else many or word + 's'}"


def described(thing: Any) -> str:
    """A tensor by its shape, anything else by its class."""
    shape = shape_of(thing)
    return str(shape) if shape is not None else type(thing).__name__
