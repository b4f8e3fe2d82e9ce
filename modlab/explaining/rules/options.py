"""What a constructor is given by a wrong name, or of a wrong kind: misspelt options, sizes that are no whole numbers, words."""

from __future__ import annotations

import ast
import copy
import inspect
import math
import re
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from torch.nn import Module

from modlab import format
from modlab.explaining import operands
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.records.explanation import Fix

_SIZES = re.compile(
    r"(?:features|channels|_size|_dim|embeddings|d_model|dim_feedforward|nhead|upscale_factor|normalized_shape)$|^(?:num_|n_|groups$|d_model)"
)
_NEAR = 0.75  # how much of a name must be the same
_LONG = 100
_SYNONYMS = {"learning_rate": "lr", "prob": "p", "dropout_rate": "p", "rate": "p", "axis": "dim", "keepdims": "keepdim"}


class _Making(NamedTuple):
    """A call that should make something, as it is written; and what it calls."""

    call: ast.Call
    made: Any
    name: str


def _making(frame: Frame | None) -> _Making | None:
    """What the code of a user's frame was calling: a class, or a function of Python's."""
    call = frame.expression() if frame is not None and frame.is_users else None
    if frame is None or not isinstance(call, ast.Call):
        return None
    made = operands.follow(call.func, frame)
    return _Making(call, made, ast.unparse(call.func)) if isinstance(made, type) or inspect.isfunction(made) else None


def _parameters(made: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(made).parameters.values())
    except (TypeError, ValueError):
        return []


def _is_known(made: Any) -> bool:
    """Whether it makes a module, or is torch's."""
    return (isinstance(made, type) and issubclass(made, Module)) or str(getattr(made, "__module__", "")).split(".")[0] == "torch"


def _unexpected(failure: Failure, match: re.Match[str]) -> Cause | None:
    making, wanted = _making(failure.inner), match[1]
    if making is None or not _is_known(making.made) or not any(word.arg == wanted for word in making.call.keywords):
        return None
    taken = [p.name for p in _parameters(making.made) if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not taken or wanted in taken or any(p.kind is p.VAR_KEYWORD for p in _parameters(making.made)):
        return None
    close = _nearest(wanted, [name for name in taken if not _is_given(making, taken, name)])
    fixes: tuple[Fix, ...] = ()
    if close:
        call = copy.deepcopy(making.call)
        next(word for word in call.keywords if word.arg == wanted).arg = close
        fixes = (Fix(f"If you meant {close}:", _short(call)),)
    return Cause(
        f"{making.name} has no argument {wanted!r}.",
        f"It takes {', '.join(taken)}." + (f" Nearest: {close!r}." if close else ""),
        f"no argument {wanted!r}",
        (("given", f"{wanted}="), ("expected", ", ".join(taken))),
        fixes,
    )


def _is_given(making: _Making, taken: list[str], name: str) -> bool:
    starred = any(isinstance(one, ast.Starred) for one in making.call.args)
    return starred or name in taken[: len(making.call.args)] or any(word.arg == name for word in making.call.keywords)


def _nearest(wanted: str, names: list[str]) -> str:
    """The name that was meant, where one looks much more like it than all others."""
    if _SYNONYMS.get(wanted) in names:
        return _SYNONYMS[wanted]
    bare = wanted.replace("_", "").lower()
    ratios = sorted(((SequenceMatcher(None, bare, name.replace("_", "").lower()).ratio(), name) for name in names), reverse=True)
    return ratios[0][1] if ratios and ratios[0][0] >= _NEAR and (len(ratios) < 2 or ratios[1][0] < ratios[0][0]) else ""


def _short(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONG else ""


# ---- sizes -------------------------------------------------------------------------------------------------------------------


class _Given(NamedTuple):
    """One argument of the constructor of a layer: its name, its value, and how it is written."""

    name: str
    value: Any
    node: ast.expr
    making: _Making


def _sizes(failure: Failure) -> list[_Given]:
    """The sizes that the user gave to the constructor of one of torch's layers, which failed."""
    user = failure.user
    making = _making(user)
    if user is None or making is None or not (isinstance(making.made, type) and issubclass(making.made, Module)):
        return []
    place = next(i for i, frame in enumerate(failure.frames) if frame is user)
    frame = failure.frames[place + 1] if place + 1 < len(failure.frames) else None
    if frame is None or not frame.is_torch or frame.function != "__init__" or type(frame.owner) is not making.made:
        return []
    named = [p.name for p in _parameters(making.made)]
    written: dict[str, ast.expr] = {word.arg: word.value for word in making.call.keywords if word.arg}
    for name, node in zip(named, making.call.args, strict=False):
        if isinstance(node, ast.Starred):
            break
        written[name] = node
    return [_Given(name, frame.names[name], node, making) for name, node in written.items() if _SIZES.search(name) and name in frame.names]


def _no_number(failure: Failure, match: re.Match[str]) -> Cause | None:
    odd = [one for one in _sizes(failure) if type(one.value) in (float, str, type(None), tuple, list)]
    if len(odd) != 1:
        return None
    name, value, node, making = odd[0]
    written = ast.unparse(node)
    if type(value) is float:
        said, more = f"{making.name} got {name}={value!r}, but needs a whole number.", "A size counts something."
        fixes = _whole(making, node, value)
    elif type(value) is str and value.strip().isdigit():
        said, more = f"{making.name} got {name}={value!r}, a text, but needs a whole number.", ""
        fixes = [Fix("", _with(making, node, ast.Constant(int(value)) if isinstance(node, ast.Constant) else _call("int", node)))]
    elif value is None:
        said, more = f"{making.name} got {name}=None, but needs a whole number.", ""
        look = "" if isinstance(node, ast.Constant) else f" Look at where {written} is set."
        fixes = [Fix(f"Give the size.{look}")]
    elif type(value) in (tuple, list) and len(value) == 1 and type(value[0]) is int:
        said, more = f"{making.name} got {name}={value!r}, {format.article(type(value).__name__)}, but needs a whole number.", ""
        member = ast.Subscript(node, ast.Constant(0), ast.Load())
        fixes = [Fix("Take the number in it:", _with(making, node, member))]
    else:
        said, more, fixes = f"{making.name} got {name}={value!r}, but needs a whole number.", "", []
    kind = "None" if value is None else type(value).__name__
    return Cause(said, more, f"{name} is {kind}", ((name, repr(value)), ("expected", "int")), tuple(fixes))


def _whole(making: _Making, node: ast.expr, value: float) -> list[Fix]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        divided = ast.BinOp(node.left, ast.FloorDiv(), node.right)
        rest = "" if value.is_integer() else f" {ast.unparse(node)} is {value!r}, and this leaves the rest out:"
        return [Fix(f"/ gives a fraction, // a whole number{':' if not rest else '.' + rest}", _with(making, node, divided))]
    if not math.isfinite(value):
        return []
    if not value.is_integer():
        return [Fix("A size is a whole number: say which one you mean.")]
    return [Fix("", _with(making, node, ast.Constant(int(value)) if isinstance(node, ast.Constant) else _call("int", node)))]


def _call(function: str, node: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), [node], [])


def _with(making: _Making, old: ast.expr, new: ast.expr) -> str:
    """The call with one argument written in another way."""
    call = making.call
    arguments = [new if one is old else one for one in call.args]
    words = [ast.keyword(word.arg, new) if word.value is old else word for word in call.keywords]
    return _short(ast.fix_missing_locations(ast.Call(call.func, arguments, words)))


def _negative(failure: Failure, match: re.Match[str]) -> Cause | None:
    odd = [one for one in _sizes(failure) if type(one.value) is int and one.value < 0]
    if len(odd) != 1:
        return None
    name, value, node, making = odd[0]
    lazy = _lazy(making, node) if name == "in_features" and isinstance(node, ast.UnaryOp) else ""
    fixes = [Fix("Only view and reshape can infer a size from -1. A lazy layer takes it from its first input:", lazy)] if lazy else []
    if not fixes:
        plain = isinstance(node, (ast.UnaryOp, ast.Constant))
        fixes = [Fix("Give the size." if plain else f"Look at what it is computed from: {ast.unparse(node)} is {value}.")]
    return Cause(
        f"{making.name} got {name}={value}, but a size cannot be negative.",
        "",
        f"{name} {value} < 0",
        ((name, str(value)),),
        tuple(fixes),
    )


def _lazy(making: _Making, node: ast.expr) -> str:
    """``nn.LazyLinear(3)`` for ``nn.Linear(-1, 3)``."""
    call = making.call
    if making.made.__name__ != "Linear" or not isinstance(call.func, ast.Attribute):
        return ""
    func = ast.Attribute(call.func.value, "LazyLinear", ast.Load())
    words = [word for word in call.keywords if word.value is not node]
    return _short(ast.Call(func, [one for one in call.args if one is not node], words))


# ---- convolutions ------------------------------------------------------------------------------------------------------------


def _strided(failure: Failure, _: re.Match[str]) -> Cause | None:
    making, sizes = _making(failure.user), {}
    node = next((word.value for word in making.call.keywords if word.arg == "padding"), None) if making is not None else None
    for frame in failure.frames:
        if frame.function == "__init__" and frame.is_torch:
            sizes = {name: frame.names.get(name) for name in ("kernel_size", "dilation", "stride")}
    kernel, dilation = sizes.get("kernel_size"), sizes.get("dilation")
    if making is None or type(kernel) is not tuple or type(dilation) is not tuple:
        return None
    if not all(type(one) is int for one in (*kernel, *dilation)):
        return None
    padding = tuple(spread * (size - 1) // 2 for size, spread in zip(kernel, dilation, strict=True))
    number = ast.parse(repr(padding[0] if len(set(padding)) == 1 else padding), mode="eval").body
    exact = all(size % 2 for size in kernel)
    said = "In numbers" + (", so that the output has the size of the input divided by the stride, rounded up:" if exact else ":")
    return Cause(
        f"{making.name} got padding='same' with a stride: then the output cannot have the size of the input.",
        "",
        "'same' with a stride",
        (("stride", str(sizes.get("stride"))), ("kernel_size", str(kernel))),
        (Fix(said, _with(making, node, number)),) if node is not None else (Fix(f"padding={padding}"),),
    )


def _word(failure: Failure, match: re.Match[str]) -> Cause | None:
    """A word that a layer does not know, where torch lists those that it does."""
    making, given = _making(failure.user), match["given"]
    listed = sorted(re.findall(r"'(\w+)'", match["listed"]))
    node = next((word.value for word in making.call.keywords if word.arg == match["name"]), None) if making is not None else None
    if making is None or not listed or not isinstance(node, ast.Constant) or node.value != given:
        return None
    close = _nearest(given, listed)
    fix = Fix(f"Nearest: {close!r}.", _with(making, node, ast.Constant(close))) if close else Fix("Use one of them.")
    return Cause(
        f"{making.name} got {match['name']}={given!r}, but accepts {', '.join(map(repr, listed))}.",
        "",
        f"no {match['name']} {given!r}",
        ((match["name"], repr(given)), ("expected", ", ".join(map(repr, listed)))),
        (fix,),
    )


def _probability(failure: Failure, match: re.Match[str]) -> Cause | None:
    making = _making(failure.user)
    if making is None or len(making.call.args) + len(making.call.keywords) < 1:
        return None
    value = float(match[1])
    node = making.call.args[0] if making.call.args else next((w.value for w in making.call.keywords if w.arg == "p"), None)
    literal = isinstance(node, ast.Constant) and node.value == value
    fixes = [Fix("If it is a percentage:", _with(making, node, ast.Constant(value / 100)))] if literal and node and 1 < value < 100 else []
    return Cause(
        f"{making.name} got a probability of {match[1]}, but takes one between 0 and 1.",
        "It is the fraction of numbers that are dropped.",
        f"p = {match[1]}",
        (("p", match[1]),),
        tuple(fixes) or (Fix("Give a fraction: 0.1 drops one in ten."),),
    )


def _padding_index(failure: Failure, _: re.Match[str]) -> Cause | None:
    making, rows, index = _making(failure.user), failure.local("num_embeddings"), failure.local("padding_idx")
    if making is None or type(rows) is not int or type(index) is not int or -rows <= index < rows:
        return None
    node = making.call.args[0] if making.call.args else None
    fixes = [Fix("With a separate row for the padding:", _with(making, node, ast.Constant(index + 1)))] if node and index == rows else []
    return Cause(
        f"{making.name} has {rows} rows, but padding_idx={index} is not one of them.",
        f"Rows are 0 to {rows - 1}.",
        f"row {index} of {rows}",
        (("num_embeddings", str(rows)), ("padding_idx", str(index))),
        tuple(fixes) or (Fix(f"Use a valid row: padding_idx={rows - 1}."),),
    )


_T, _V, _R = (TypeError,), (ValueError,), (RuntimeError,)
RULES = (
    Rule("constructor", _T, r"\w+\(\) got an unexpected keyword argument '(\w+)'", _unexpected),
    Rule("constructor", _T, r"argument 'size' .*(?:tuple of ints)", _no_number),
    Rule("constructor", _T, r"(?:hidden_size|input_size) should be of type int, got: (\w+)", _no_number),
    Rule("constructor", _T, r"'float' object is not iterable", _no_number),
    Rule("constructor", _R, r"Trying to create tensor with negative dimension (-\d+)", _negative),
    Rule("constructor", _V, r"(?:hidden_size|input_size) must be greater than zero", _negative),
    Rule("constructor", _V, r"padding='same' is not supported for strided convolutions", _strided),
    Rule("constructor", _V, r"Invalid (?P<name>padding) string '(?P<given>\w+)', should be one of (?P<listed>.*)", _word),
    Rule("constructor", _V, r"must be one of (?P<listed>\{.*?\}), but got (?P<name>\w+)='(?P<given>\w+)'", _word),
    Rule("constructor", _V, r"dropout probability has to be between 0 and 1, but got (-?[\d.]+)", _probability),
    Rule("constructor", (AssertionError,), r"Padding_idx must be within num_embeddings", _padding_index),
)
