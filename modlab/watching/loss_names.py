"""What the code calls the loss on which it calls ``backward()``: read from the source of the call, and of those that handed it on.

No variable is read: a dict of a running function's variables would keep a batch alive for as long as that function runs.
"""

from __future__ import annotations

import ast
import linecache
from itertools import islice
from types import CodeType, FrameType

HIGH = 16
"""Functions that may hand it on."""


def find(frame: FrameType, place: int, *, method: bool) -> tuple[str, int]:
    """The name of the loss, and how many frames above `frame` the code stands that has made it, as far as the source shows.

    Args:
        frame: in which ``backward`` is called.
        place: which of several tensors it is.
        method: whether it is called as the tensor's method.
    """
    call = _call(frame)
    given = None if call is None else (call.func.value if isinstance(call.func, ast.Attribute) else None) if method else _argument(call, 0)
    if isinstance(given, (ast.List, ast.Tuple)):
        given = given.elts[place] if place < len(given.elts) else None
    name, height = _name(given), 0
    for up in range(1, HIGH):
        number = _parameter(frame.f_code, name)
        above = frame.f_back
        call = None if number < 0 or above is None else _call(above)
        if call is None or above is None:
            break
        given = _argument(call, number - _bound(frame.f_code), name)
        if given is None:
            break
        further, height, frame = _name(given), up, above
        if not further:  # it is made in the call itself
            break
        name = further
    return name, height


def _parameter(code: CodeType, name: str) -> int:
    """The how-manieth parameter of a function a name is; -1 if it is none."""
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return names.index(name) if name in names else -1


def _bound(code: CodeType) -> int:
    return 1 if code.co_varnames[:1] in (("self",), ("cls",)) else 0


def _argument(call: ast.Call, number: int, name: str = "tensors") -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    before = call.args[: number + 1]
    return before[number] if 0 <= number < len(before) and not any(isinstance(one, ast.Starred) for one in before) else None


def _name(node: ast.expr | None) -> str:
    """What a reader would call the value of an expression; nothing if it has no name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return name
        case ast.BinOp(left=left, right=right):
            return _name(left) or _name(right)
        case ast.Call(func=ast.Attribute(value=owner), args=[]):
            return _name(owner)
        case ast.Call(func=ast.Attribute(attr="scale"), args=[first, *_]):
            return _name(first)
    return ""


def _call(frame: FrameType) -> ast.Call | None:
    """The call that a frame is in the midst of, by its source."""
    line, end, column, last = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    if line is None or end is None or column is None or last is None:
        return None
    lines = [linecache.getline(frame.f_code.co_filename, number, frame.f_globals).encode() for number in range(line, end + 1)]
    lines[-1] = lines[-1][:last]
    lines[0] = lines[0][column:]
    try:
        parsed = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return parsed if isinstance(parsed, ast.Call) else None
