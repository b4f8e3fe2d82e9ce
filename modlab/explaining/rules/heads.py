"""Attention whose heads do not divide its width: of torch's layers, of a library's configuration, of a view of one's own."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from math import prod
from typing import Any

from modlab.explaining import operands, source_code, written
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.records.explanation import Fix

_HEADS = re.compile(r"^(?:n_?|num_)?(?:\w+_)?heads?$|^nheads?$|^h$|^nh$")


def fitting(width: int, heads: int) -> int:
    """The largest number of heads up to this one that divides a width."""
    return max((n for n in range(1, heads + 1) if width % n == 0), default=1)


def _verdict(failure: Failure, width: int, heads: int, code: str, names: tuple[str, str] = ("width", "heads"), prose: str = "") -> Cause:
    low, high = width // heads * heads, -(-width // heads) * heads
    near = f"{low} or {high}" if low else f"{high}"
    return Cause(
        f"{width} numbers cannot be shared evenly among {heads} heads{failure.within if failure.calls else ''}.",
        f"{names[0]} must be a multiple of {names[1]}.",
        f"{width} / {heads}",
        ((names[0], str(width)), (names[1], str(heads))),
        (Fix(prose or "A number of heads that divides it:", code), Fix(f"Or a width that {heads} divides: {near}.")),
    )


# ---- constructors --------------------------------------------------------------------------------------------------------------


def _of_torch(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``nn.MultiheadAttention``, and the blocks that make one."""
    width, heads = failure.local("embed_dim"), failure.local("num_heads")
    if type(width) is not int or type(heads) is not int or heads < 1 or width % heads == 0:
        return None
    number = fitting(width, heads)
    names = ("embed_dim", "num_heads")
    code, owner = _remade(failure, heads, number), failure.own
    made = _made(owner) if owner is not None else None
    if made is not None and "d_model" in made[1]:
        names = ("d_model", "nhead")
    return _verdict(failure, width, heads, code or f"nn.MultiheadAttention({width}, {number})", names)


def _made(frame: Frame) -> tuple[ast.Call, list[str]] | None:
    """The constructor that a line of the user's called, and the names of its arguments."""
    call = written.expression(frame)
    made = operands.follow(call.func, frame) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or not isinstance(made, type):
        return None
    try:
        return call, list(inspect.signature(made).parameters)
    except (TypeError, ValueError):
        return None


def _remade(failure: Failure, heads: int, number: int) -> str:
    """The line of the user's that made it, with another number of heads; nothing where that does not stand in it."""
    frame = failure.own
    found = _made(frame) if frame is not None else None
    if frame is None or found is None:
        return ""
    call, names = found
    name = next((one for one in names if _HEADS.match(one) and _given(frame, call, names, one) == heads), "")
    if not name:
        return ""
    new: ast.expr = ast.Constant(number)
    if any(one.arg == name for one in call.keywords) or names.index(name) >= len(call.args):
        return source_code.rewritten(frame, call, written.with_word(call, name, new))
    args = [new if place == names.index(name) else one for place, one in enumerate(call.args)]
    return source_code.rewritten(frame, call, ast.Call(call.func, args, call.keywords))


def _given(frame: Frame, call: ast.Call, names: list[str], name: str) -> Any:
    """What a constructor was given under a name; its default where it was given nothing."""
    place = names.index(name)
    node = written.word(call, name) or (call.args[place] if place < len(call.args) else None)
    if node is not None:
        return operands.follow(node, frame)
    made = operands.follow(call.func, frame)
    return inspect.signature(made).parameters[name].default


# ---- configurations --------------------------------------------------------------------------------------------------------------


def _of_configuration(failure: Failure, _: re.Match[str]) -> Cause | None:
    """A model of transformers, or of a library that checks as it does: the numbers stand in the message, or in the configuration."""
    pair = _pair(failure)
    if pair is None:
        return None
    width, heads, name, config = pair
    prose, code = "", ""
    if failure.own is not None:
        prose, code = _reconfigured(failure.own, config, name, heads, fitting(width, heads))
    return _verdict(failure, width, heads, code, ("width", name or "num_attention_heads"), prose)


def _pair(failure: Failure) -> tuple[int, int, str, Any] | None:
    """Width, number of heads, the name of that, and the configuration that holds it."""
    configs = [
        thing for frame in reversed(failure.frames) for key in ("config", "self") if _is_configuration(thing := frame.names.get(key))
    ]
    numbers = [int(number) for number in re.findall(r"(?<![\w.])\d+(?![\w.]\d)", failure.words)]
    for width, heads in ((a, b) for a in numbers for b in numbers if a > b > 0 and a % b):
        for config in configs:
            name = next((one for one, value in vars(config).items() if type(value) is int and value == heads and _HEADS.match(one)), "")
            if name:
                return width, heads, name, config
        return width, heads, "", None
    for config in configs:
        held = vars(config)
        heads_name = next((one for one in ("num_attention_heads", "n_heads", "n_head", "num_heads") if type(held.get(one)) is int), "")
        width_name = next((one for one in ("hidden_size", "d_model", "dim", "n_embd") if type(held.get(one)) is int), "")
        if heads_name and width_name and held[heads_name] > 0 and held[width_name] % held[heads_name]:
            return held[width_name], held[heads_name], heads_name, config
    return None


def _is_configuration(thing: Any) -> bool:
    return thing is not None and type(thing).__name__.endswith("Config") and hasattr(thing, "__dict__")


def _reconfigured(frame: Frame, config: Any, name: str, heads: int, number: int) -> tuple[str, str]:
    """The line of the user's with another number of heads, or one that sets it in the configuration before."""
    expression = written.expression(frame)
    for node in ast.walk(expression) if expression is not None else ():
        if isinstance(node, ast.keyword) and node.arg and _HEADS.match(node.arg) and operands.follow(node.value, frame) == heads:
            statement = source_code.statement_of(frame)
            copied = copy.deepcopy(statement)
            for one in ast.walk(copied) if copied is not None else ():
                if isinstance(one, ast.keyword) and ast.dump(one) == ast.dump(node):
                    one.value = ast.Constant(number)
            text = ast.unparse(copied) if copied is not None else ""
            return "A number of heads that divides it:", text if len(text) <= 120 and "\n" not in text else ""
    own = written.named(frame, config) if config is not None else ""
    return ("A number of heads that divides it, before the model is made:", f"{own}.{name} = {number}") if own and name else ("", "")


def _groups(failure: Failure, _: re.Match[str]) -> Cause | None:
    """Grouped attention: queries of several heads share the keys of one, so their numbers must divide."""
    call = failure.failing
    config = stores.contents(call.module).get("config") if call is not None else None
    held = vars(config) if _is_configuration(config) else {}
    heads, shared = held.get("num_attention_heads"), held.get("num_key_value_heads")
    if call is None or type(heads) is not int or type(shared) is not int or shared < 1 or heads % shared == 0:
        return None
    number = fitting(heads, shared)
    own = written.named(failure.own, config) if failure.own is not None else ""
    return Cause(
        f"{heads} heads cannot share {shared} heads of keys and values evenly{failure.within}.",
        "num_attention_heads must be a multiple of num_key_value_heads.",
        f"{heads} / {shared}",
        (("num_attention_heads", str(heads)), ("num_key_value_heads", str(shared))),
        (Fix("A number that divides it, before the model is made:", f"{own or 'config'}.num_key_value_heads = {number}"),),
    )


# ---- views of one's own ----------------------------------------------------------------------------------------------------------


def _of_view(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``q.view(b, n, heads, width // heads)``, whose last two sizes are fewer numbers than there were."""
    sizes, total = [int(one) for one in match[1].split(",")], int(match[2])
    frame = failure.user
    call = written.expression(frame)
    if frame is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(sizes) < 3:
        return None
    nodes = call.args[0].elts if len(call.args) == 1 and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
    if len(nodes) != len(sizes):
        return None
    for place in (len(sizes) - 2, len(sizes) - 1):
        node, heads = nodes[place], sizes[place]
        other = sizes[2 * len(sizes) - 3 - place]
        rest = prod(sizes[:-2])
        if heads < 2 or rest < 1 or total % rest or not _is_heads(node):
            continue
        width = total // rest
        if width % heads and other in (-1, width // heads):
            return _verdict(failure, width, heads, _remade_owner(frame, node, heads, fitting(width, heads)))
    return None


def _of_unflatten(failure: Failure, match: re.Match[str]) -> Cause | None:
    sizes, width = [int(one) for one in match[1].split(",")], int(match[2])
    heads = sizes[0]
    if len(sizes) != 2 or heads < 2 or width % heads == 0 or sizes[1] not in (-1, width // heads):
        return None
    return Cause(
        f"{width} numbers cannot be shared evenly among {heads}{failure.within}.",
        f"unflatten makes {heads} parts of them.",
        f"{width} / {heads}",
        (("size", str(width)), ("wanted", str(tuple(sizes)))),
        (Fix("A number of parts that divides it:", _unflattened(failure, heads, fitting(width, heads))),),
    )


def _unflattened(failure: Failure, heads: int, number: int) -> str:
    call = written.expression(failure.user)
    found = [node for node in ast.walk(call) if isinstance(node, ast.Constant) and node.value == heads] if call is not None else []
    if failure.user is None or not isinstance(call, ast.Call) or len(found) != 1:
        return ""
    return source_code.rewritten(failure.user, call, copy.deepcopy(call, {id(found[0]): ast.Constant(number)}))


def _is_heads(node: ast.expr) -> bool:
    name = written.name_of(node)
    return bool(_HEADS.match(name))


def _remade_owner(frame: Frame, node: ast.expr, heads: int, number: int) -> str:
    """``M(heads=10)``, of a module whose constructor has an argument for it."""
    cls = type(frame.owner) if frame.owner is not None else None
    try:
        taken = inspect.signature(cls).parameters if cls is not None else {}
    except (TypeError, ValueError):
        return ""
    name = written.name_of(node)
    argument = name if name in taken else next((one for one in taken if _HEADS.match(one)), "")
    if cls is None or not argument:
        return ""
    others = [one for key, one in taken.items() if key != argument]
    needed = any(one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) for one in others)
    return f"{cls.__name__}({'..., ' if needed else ''}{argument}={number})"


_DIVIDED = r"(?i)heads?\b.*(?:divi|multiple of)|(?:divi|multiple of).*heads?\b|must divide"
RULES = (
    Rule("constructor", (AssertionError,), r"embed_dim must be divisible by num_heads", _of_torch),
    Rule("constructor", (Exception,), _DIVIDED, _of_configuration),
    Rule("view", (RuntimeError,), r"shape '\[([-\d, ]*)\]' is invalid for input of size (\d+)", _of_view),
    Rule(
        "view",
        (RuntimeError,),
        r"unflatten: Provided sizes \[([-\d, ]*)\] don't multiply up to the size of dim \d+ \((\d+)\)",
        _of_unflatten,
    ),
    Rule("attention", (RuntimeError,), r"The size of tensor a \(\d+\) must match the size of tensor b", _groups),
)
