"""A hook, which may be any callable → its name, its source, whose it is, and whether it is one that is known already."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import textwrap
import tokenize
from difflib import SequenceMatcher
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

from torch.nn import Module

from modlab import compat
from modlab.inspection.definitions import is_cell, line_of, place_of
from modlab.records.hooks import Leftover

LINES = 30
DEPTH = 20  # partials of methods of partials, and wrappers around wrappers
LETTERS = 500  # of two cells that are compared; more would take as long as the whole view
LIKE = 0.75  # the share that an edited cell has in common with what it was

AT_WORK = ("modlab.running", "modlab.tracing", "modlab.comparing", "modlab.diagnosing", "modlab.watching", "modlab.explaining")
"""Where modlab's own code is that runs while a model does: its frames and hooks are nobody's but ours."""

# modules of torch's whose functions are put onto modules by a utility → the word for it
_MACHINERY = (
    ("torch.nn.utils.prune", "pruning"),
    ("torch.nn.utils.weight_norm", "weight norm"),
    ("torch.nn.utils.spectral_norm", "spectral norm"),
    ("torch.nn.utils.parametri", "parametrization"),
    ("torch.nn.modules.lazy", "lazy module"),
    ("torch.nn.parallel", "DDP"),
    ("torch.distributed.fsdp", "FSDP"),
    ("torch.distributed.algorithms._checkpoint", "activation checkpointing"),
    ("torch.distributed", "torch.distributed"),
    ("torch.ao", "quantization"),
    ("torch.quantization", "quantization"),
    ("torch.export", "export"),
    ("torch._export", "export"),
    ("torch.onnx", "export"),
    ("torch.fx", "FX"),
    ("torch._dynamo", "compiler"),
    ("torch.nn.modules.module", "torch"),
    *((room, "modlab") for room in AT_WORK),
)


class Description(NamedTuple):
    """What can be said of a hook's function."""

    function: str
    form: str
    where: str
    code: str
    machinery: str


def given(hook: Any) -> tuple[Any, bool]:
    """What was registered, without what torch or a running trace has put around it; and whether it gets the module."""
    while _is_stage(hook):
        hook = hook.original
    return compat.given_hook(hook)


def unstaged(hook: Any) -> Any:
    """A hook without the stages of traces that have ended."""
    while _is_stage(hook) and hook.observer is None:
        hook = hook.original
    return hook


def _is_stage(hook: Any) -> bool:
    """A trace is a layer above, so that its stages are known by name."""
    return type(hook).__name__ == "HookWrapper" and type(hook).__module__ == "modlab.tracing.hook_wrappers"


Sources = dict[int, tuple[str, str]]
"""Places and lines by the identity of code objects, for as long as these live: one function may hang on thousands of modules."""


def describe(hook: Any, known: Sources | None = None) -> Description:
    """Name, form, place, source and machinery of a hook as `given` returns it. Nothing of it is called."""
    function = anchor(hook)
    where, lines = ("", "")
    if function is not None:
        code = _innermost(function).__code__
        found = {} if known is None else known
        if id(code) not in found:
            found[id(code)] = source(code)
        where, lines = found[id(code)]
    return Description(_name(hook), _form(hook), where, lines, _machinery(hook, function))


def anchor(hook: Any) -> FunctionType | None:
    """The Python function that runs when the hook is called; None for builtins."""
    for _ in range(DEPTH):
        cls = type(hook)
        if cls is FunctionType:
            found: FunctionType = hook
            return found
        if cls is MethodType:
            hook = hook.__func__
        elif issubclass(cls, functools.partial):
            hook = functools.partial.func.__get__(hook)
        elif cls.__name__ == "_lru_cache_wrapper":
            hook = hook.__wrapped__
        else:
            hook = _of_class(cls, "forward" if issubclass(cls, Module) else "__call__")
    return None


def _of_class(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _innermost(function: FunctionType) -> FunctionType:
    """What a decorator has wrapped (``functools.wraps`` leaves the way to it)."""
    for _ in range(DEPTH):
        inner = function.__dict__.get("__wrapped__")
        if type(inner) is not FunctionType:
            break
        function = inner
    return function


def _form(hook: Any) -> str:
    cls = type(hook)
    if cls is FunctionType:
        return "lambda" if hook.__name__ == "<lambda>" else "function"
    if issubclass(cls, functools.partial):
        return "partial"
    if cls is MethodType:
        return "method"
    return "builtin" if issubclass(cls, BuiltinFunctionType) or cls.__name__ in _BUILTIN else "object"


_BUILTIN = ("method_descriptor", "wrapper_descriptor", "method-wrapper", "builtin_function_or_method", "slot wrapper")


def _name(hook: Any) -> str:
    for _ in range(DEPTH):
        if not issubclass(type(hook), functools.partial):
            break
        hook = functools.partial.func.__get__(hook)
    if type(hook) is MethodType:
        hook = hook.__func__
    if type(hook) is FunctionType or _form(hook) == "builtin":
        name = hook.__qualname__
        return name if isinstance(name, str) else type(hook).__qualname__
    return type(hook).__qualname__


def _machinery(hook: Any, function: FunctionType | None) -> str:
    """By the module in which the function that runs was written; a subclass of torch's pruning methods counts as pruning."""
    cls = type(hook)
    homes = [base.__module__ for base in cls.__mro__ if isinstance(base.__module__, str)] if _form(hook) == "object" else []
    if function is not None:
        homes.append(str(_innermost(function).__globals__.get("__name__", "")))
    found = next((word for start, word in _MACHINERY for home in homes if home.startswith(start)), "")
    if found == "parametrization" and function is not None and "weight_norm" in function.__name__:
        return "weight norm"
    return "" if issubclass(cls, Module) and found == "torch" else found


def source(code: CodeType) -> tuple[str, str]:
    """Where a function stands, and its lines."""
    where = line_of(code.co_filename, code.co_firstlineno)
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    try:
        block = inspect.getblock(lines) if lines else []
    except (SyntaxError, IndentationError, tokenize.TokenError):
        block = lines[:1]
    text = textwrap.dedent("".join(block[:LINES])).rstrip()
    return where, f"{text}\n# ... {len(block) - LINES} more lines" if len(block) > LINES else text


def same(one: Any, other: Any) -> bool:
    """Whether two hooks do the same: one object, or made anew from the same code with the same contents."""
    if one is other:
        return True
    cls = type(one)
    if cls is not type(other):
        return False
    if cls is FunctionType:
        return one.__code__ is other.__code__ and _contents(one, other)
    if cls is MethodType:
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    if issubclass(cls, functools.partial):
        mine, theirs = functools.partial.__reduce__(one)[2], functools.partial.__reduce__(other)[2]
        return same(mine[0], theirs[0]) and _equal(mine[1], theirs[1]) and _equal(mine[2], theirs[2])
    return False


def _contents(one: FunctionType, other: FunctionType) -> bool:
    pairs = zip(one.__closure__ or (), other.__closure__ or (), strict=True)
    if not all(_equal(_cell(mine), _cell(theirs)) for mine, theirs in pairs):
        return False
    return _equal(one.__defaults__, other.__defaults__) and _equal(one.__kwdefaults__, other.__kwdefaults__)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _equal(one: Any, other: Any, depth: int = 0) -> bool:
    """The same object, or equal plain values; nothing of the user's is asked whether it is equal."""
    if one is other:
        return True
    cls = type(one)
    if cls is not type(other) or depth > DEPTH:
        return False
    if cls in (int, float, str, bytes, bool, complex):
        return bool(one == other)
    if cls in (tuple, list):
        return len(one) == len(other) and all(_equal(a, b, depth + 1) for a, b in zip(one, other, strict=True))
    if cls is dict:
        return list(one) == list(other) and all(_equal(one[key], other[key], depth + 1) for key in one)
    return cls is FunctionType and same(one, other)


def rewritten(one: Any, other: Any) -> bool:
    """Whether two hooks come from two runs of the same cell: other code objects that say the same."""
    mine, theirs = anchor(one), anchor(other)
    if mine is None or theirs is None:
        return False
    a, b = _innermost(mine), _innermost(theirs)
    if a.__code__ is b.__code__ or a.__qualname__ != b.__qualname__ or a.__globals__ is not b.__globals__:
        return False
    places = [place_of(f.__code__.co_filename, f.__code__.co_firstlineno) for f in (a, b)]
    return places[0] == places[1] and _alike(a.__code__, b.__code__) and not _beside(a.__code__, b.__code__)


def edited(one: Any, other: Any) -> bool:
    """Whether two lambdas may be one before and after its cell was edited: like cells, and what one uses the other uses too."""
    mine, theirs = anchor(one), anchor(other)
    if mine is None or theirs is None or mine.__name__ != "<lambda>" or theirs.__name__ != "<lambda>":
        return False
    a, b = mine.__code__, theirs.__code__
    if mine.__qualname__ != theirs.__qualname__ or mine.__globals__ is not theirs.__globals__ or a.co_filename == b.co_filename:
        return False
    if not all(is_cell(code.co_filename) for code in (a, b)) or _alike(a, b):
        return False
    if not all(linecache.getlines(code.co_filename) for code in (a, b)):
        return False
    used = [{*code.co_names, *code.co_freevars} for code in (a, b)]
    return a.co_varnames == b.co_varnames and (used[0] <= used[1] or used[1] <= used[0]) and _resemble(a, b)


def _beside(one: CodeType, other: CodeType) -> bool:
    """Whether two functions stand in one text at different places: two lambdas of one cell, that one run of it made."""
    return one.co_filename == other.co_filename and [*one.co_positions()] != [*other.co_positions()]


def again(one: Any, other: Any) -> Leftover:
    """Which run registered the hook again: of the same text, or of a cell that has another (edited, or another cell)."""
    return Leftover(origin(one) if _one_text(one, other) else "another cell")


def _one_text(one: Any, other: Any) -> bool:
    found = (anchor(one), anchor(other))
    mine, theirs = ([] if f is None else linecache.getlines(_innermost(f).__code__.co_filename) for f in found)
    return mine == theirs


def _alike(one: CodeType, other: CodeType) -> bool:
    if one.co_code != other.co_code or one.co_names != other.co_names or one.co_freevars != other.co_freevars:
        return False
    if one.co_varnames != other.co_varnames or len(one.co_consts) != len(other.co_consts):
        return False
    pairs = zip(one.co_consts, other.co_consts, strict=True)
    return all(_alike(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else type(a) is type(b) and a == b for a, b in pairs)


def origin(hook: Any) -> str:
    """What ran to define it: "cell" or "file"."""
    function = anchor(hook)
    return "cell" if function is None or is_cell(_innermost(function).__code__.co_filename) else "file"


def outdated(hook: Any) -> Leftover | None:
    """That the hook's name stands for another function by now, since its cell, or one like it, has run again."""
    function = anchor(hook)
    if function is None:
        return None
    mine = _innermost(function)
    now = _current(mine)
    if now is None or _innermost(now).__code__ is mine.__code__ or now.__qualname__ != mine.__qualname__:
        return None
    codes = [f.__code__ for f in (mine, _innermost(now))]
    places = [place_of(code.co_filename, code.co_firstlineno) for code in codes]
    if places[0] != places[1] or _beside(*codes) or not _resemble(*codes):
        return None
    same = _one_text(mine, now) or origin(mine) == "file"
    return Leftover(origin(mine) if same else "another cell", mine.__qualname__)


def _resemble(one: CodeType, other: CodeType) -> bool:
    """Whether two cells are likely one that was edited: another cell may well call a hook of its own by the same name."""
    mine, theirs = (linecache.getlines(code.co_filename) for code in (one, other))
    if not mine or not theirs or one.co_filename == other.co_filename:
        return True
    return SequenceMatcher(None, "".join(mine)[:LETTERS], "".join(theirs)[:LETTERS], autojunk=False).ratio() > LIKE


def _current(function: FunctionType) -> FunctionType | None:
    """What the function's qualified name stands for now, if that is a function too."""
    names = function.__qualname__.split(".")
    room = function.__globals__
    if function.__module__ != room.get("__name__"):
        room = getattr(sys.modules.get(function.__module__), "__dict__", room)
    found: Any = room.get(names[0])
    for name in names[1:]:
        found = _of_class(found, name) if issubclass(type(found), type) else None
        found = found.__func__ if type(found) in (staticmethod, classmethod) else found
    return found if type(found) is FunctionType else None


def answers_to(hook: Any, wanted: Any) -> bool:
    """Whether a hook is what was asked for: that very function or object, one made from it, or an earlier run's of its name."""
    if same(hook, wanted):
        return True
    if issubclass(type(wanted), type) and issubclass(type(hook), wanted):
        return True
    for _ in range(DEPTH):
        if type(hook) is MethodType:
            hook = hook.__func__
        elif issubclass(type(hook), functools.partial):
            hook = functools.partial.func.__get__(hook)
        else:
            break
        if same(hook, wanted):
            return True
    mine, theirs = anchor(hook), anchor(wanted)
    return (
        mine is not None and theirs is not None and type(hook) is type(wanted) and _current(mine) is theirs and outdated(mine) is not None
    )
