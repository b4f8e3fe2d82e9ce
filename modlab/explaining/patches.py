"""The fixes of an explanation → a unified diff of the user's file or cell, for the first fix whose place in the source is certain."""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from torch.nn import Module

from modlab.explaining import code_fixes, operands, source_code, trying
from modlab.explaining.failure import Failure
from modlab.explaining.frames import Frame, Position
from modlab.explaining.source_code import Body
from modlab.explaining.trying import Trial
from modlab.records.explanation import Fix, Patch

_AROUND = 3  # context lines above and below a change


class Edit(NamedTuple):
    """One change to a file.

    Attributes:
        file: the file to change.
        place: first and last line, start and end column, in bytes.
        code: the new code.
        tried: whether it ran; None if it could not be tried.
        above: whether it is a new line above the place, rather than a replacement.
    """

    file: str
    place: Position
    code: str
    tried: bool | None = None
    above: bool = False


def of_fixes(fixes: tuple[Fix, ...], failure: Failure) -> tuple[tuple[Fix, ...], Patch | None]:
    """The fixes, and the patch of the first one that ran, or else of the first that has a place; fixes that failed when tried are skipped.

    If a class already makes its layer as the fix would, the layer was replaced later: the source is correct, and the fix restores it.
    """
    found: Patch | None = None
    for at, fix in enumerate(fixes):
        with suppress(Exception):  # the source may not be what it seems
            edit = _edit(fix, failure)
            if edit is not None and _stands_already(edit):
                return (*fixes[:at], _put_back(fix, failure, first=not at), *fixes[at + 1 :]), None
            if edit is not None and edit.tried:
                return fixes, Patch(_diff(edit), tried=True)
            if edit is not None and edit.tried is None and found is None:
                found = Patch(_diff(edit))
    return fixes, found


def _put_back(fix: Fix, failure: Failure, *, first: bool) -> Fix:
    new: Any = _statement(fix.code)
    target = new.targets[0]
    owner = next(call.module for call in failure.calls if _has(call.module, target))
    own, place = code_fixes.self_name(type(owner)), code_fixes.name_of_module(failure, owner)
    name, cls = ast.unparse(target).removeprefix(f"{own}."), type(owner).__name__
    put = "Put" if first else "Or put"
    return Fix(f"{put} back what {cls} makes, for {name} was replaced since:", f"{place}.{name} = {ast.unparse(new.value)}")


def _stands_already(edit: Edit) -> bool:
    """Whether an edit would change nothing."""
    first, last, start, end = edit.place
    if edit.above or first != last:
        return False
    there = linecache.getline(edit.file, first).encode()[start:end].decode()
    return ast.unparse(ast.parse(there)) == edit.code


def _edit(fix: Fix, failure: Failure) -> Edit | None:
    new = _statement(fix.code)
    if new is None:
        return None
    if isinstance(new, ast.Assign) and isinstance(new.targets[0], (ast.Attribute, ast.Subscript)) and isinstance(new.value, ast.Call):
        return _of_layer(new.targets[0], new.value, failure) or _of_part(new, new.targets[0], new.value, failure)
    for frame in _frames(failure):
        found = source_code.located(frame)
        edit = _at(frame, *found, new, failure) if found is not None else None
        if edit is not None:
            return edit
    return None


def _statement(code: str) -> ast.stmt | None:
    """The code of a fix if it is a single whole statement; a pattern to follow (``...``) is not."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return None
    if len(tree.body) != 1 or not isinstance(tree.body[0], (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)):
        return None
    return None if any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(tree)) else tree.body[0]


def _frames(failure: Failure) -> Iterator[Frame]:
    """Where a fix may belong: the user's own innermost code, and the caller of the model."""
    own, caller = failure.own, failure.caller
    for frame in (own, caller if caller is not own else None):
        if frame is not None and frame.is_users and not frame.is_installed:
            yield frame


def _at(frame: Frame, body: Body, old: ast.stmt, new: ast.stmt, failure: Failure) -> Edit | None:
    """A fix at the statement where a frame stopped: it replaces the statement or a part of it, or goes before it."""
    if not _are_known(new, old, frame):
        return None
    file, innermost = frame.code.co_filename, frame is failure.own
    pair = _pair(old, new, frame)
    if pair is not None:
        before, after, surely = pair
        tried = trying.runs(lambda trial: trial.value(after, frame)) if innermost else None
        part, instead = _smallest(before, after)
        return Edit(file, body.place(part), ast.unparse(instead), tried) if surely or tried else None
    if isinstance(new, ast.Assign) and _prepares(new, old):
        failed, name = frame.expression(), new.targets[0].id  # type: ignore[attr-defined]

        def again(trial: Trial) -> Any:
            return trial.value(failed, frame, {name: trial.value(new.value, frame)})  # type: ignore[arg-type]

        tried = trying.runs(again) if innermost and isinstance(failed, ast.expr) else None
        return _above(file, body.place(old), new, tried)
    return None


def _are_known(new: ast.stmt, old: ast.stmt, frame: Frame) -> bool:
    """Whether each name that a fix reads is in the statement or defined there: an example may use names of its own."""
    there = {node.id for node in ast.walk(old) if isinstance(node, ast.Name)} | {*vars(builtins)}
    read = {node.id for node in ast.walk(new) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return all(name in there or name in frame.names or name in frame.globals for name in read)


def _above(file: str, place: Position, new: ast.stmt, tried: bool | None) -> Edit | None:
    """A new line before a statement that starts its line."""
    first, _, start, _ = place
    alone = not linecache.getline(file, first).encode()[:start].strip()
    return Edit(file, place, ast.unparse(new), tried, above=True) if alone else None


def _pair(old: ast.stmt, new: ast.stmt, frame: Frame) -> tuple[ast.expr, ast.expr, bool] | None:
    """What to replace in a statement, the replacement, and whether it is certain without a trial; or None."""
    if type(old) is type(new) and not isinstance(old, ast.Expr):
        same = _head(old) == _head(new) and old.value is not None and new.value is not None  # type: ignore[attr-defined]
        return (old.value, new.value, True) if same else None  # type: ignore[attr-defined]
    if not isinstance(new, ast.Expr):
        return None
    found = [node for node in ast.walk(old) if isinstance(node, type(new.value)) and _is_like(node, new.value)]
    loose = (
        []
        if found or _changes_in_place(new.value)
        else [node for node in ast.walk(old) if isinstance(node, ast.expr) and _is_failed(node, old, frame)]
    )
    if len(found) == 1 or len(loose) == 1:
        return (found or loose)[0], new.value, bool(found)
    return None


def _changes_in_place(node: ast.expr) -> bool:
    """``x.requires_grad_()`` prepares the expression that failed, rather than replacing it."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_")


def _head(node: Any) -> str:
    """What a statement assigns to, and how."""
    return "".join(
        ast.dump(one) for one in (*getattr(node, "targets", ()), *(getattr(node, name, None) for name in ("target", "op"))) if one
    )


def _is_like(old: ast.expr, new: ast.expr) -> bool:
    """Whether two calls are of the same function, or of the same method on something made from the same tensor."""
    if not (isinstance(old, ast.Call) and isinstance(new, ast.Call)) or ast.dump(old) == ast.dump(new):
        return False
    if ast.dump(old.func) == ast.dump(new.func):
        return True
    if isinstance(old.func, ast.Attribute) and isinstance(new.func, ast.Attribute) and old.func.attr == new.func.attr:
        receiver = ast.dump(old.func.value)
        return any(ast.dump(node) == receiver for node in ast.walk(new.func.value))
    return False


def _is_failed(node: ast.expr, statement: ast.stmt, frame: Frame) -> bool:
    failed = frame.expression()
    return failed is not None and isinstance(node, type(failed)) and ast.dump(node) == ast.dump(failed)


def _prepares(new: ast.Assign, old: ast.stmt) -> bool:
    """Whether a statement reassigns a name that the failed statement reads."""
    target = new.targets[0]
    if len(new.targets) != 1 or not isinstance(target, ast.Name) or target.id in source_code.stored(old):
        return False
    return all(any(isinstance(n, ast.Name) and n.id == target.id for n in ast.walk(tree)) for tree in (new.value, old)) and not isinstance(
        old, (ast.For, ast.While, ast.If, ast.With, ast.FunctionDef, ast.ClassDef)
    )


_WHOLE = (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant, ast.List)  # these never need parentheses


def _smallest(old: ast.expr, new: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The innermost pair of parts that differ, so that the rest stays as written."""
    pairs = _children(old, new)
    changed = [pair for pair in pairs or () if ast.dump(pair[0]) != ast.dump(pair[1])]
    if len(changed) == 1 and isinstance(changed[0][0], ast.expr) and isinstance(changed[0][1], _WHOLE):
        return _smallest(changed[0][0], changed[0][1])
    return old, new


def _children(old: ast.AST, new: ast.AST) -> list[tuple[ast.AST, ast.AST]] | None:
    """The parts of two nodes in pairs, if nothing else can differ; otherwise None."""
    if type(old) is not type(new) or isinstance(old, (ast.Constant, ast.Name, ast.JoinedStr)):
        return None
    found: list[tuple[ast.AST, ast.AST]] = []
    for name in old._fields:
        one, other = getattr(old, name), getattr(new, name)
        one, other = (one, other) if isinstance(one, list) and isinstance(other, list) else ([one], [other])
        if len(one) != len(other):
            return None
        for left, right in zip(one, other, strict=True):
            if isinstance(left, ast.keyword) and isinstance(right, ast.keyword) and left.arg == right.arg:
                left, right = left.value, right.value
            if isinstance(left, ast.AST) and isinstance(right, ast.AST):
                found.append((left, right))
            elif left != right:
                return None
    return found


# ---- a layer with another size ------------------------------------------------------------------------------------------------


def _of_layer(target: ast.Attribute | ast.Subscript, made: ast.Call, failure: Failure) -> Edit | None:
    """A new layer where the model's class makes it: in place of the old one, or at the end of the constructor."""
    owners = {type(call.module): call for call in failure.calls if _has(call.module, target)}
    if len(owners) != 1:
        return None
    ((cls, call),) = owners.items()
    code = getattr(vars(cls).get("__init__"), "__code__", None)
    body = source_code.of_code(code) if code is not None else None
    if code is None or body is None or code_fixes.is_installed(cls):
        return None
    file, tried = code.co_filename, _tried(target, made, call.module, failure)
    wanted = ast.dump(_loaded(target))
    found = [value for one in body.assigned for name in one.targets for value in _given(name, one.value, wanted)]
    if len(found) == 1:
        part, instead = _smallest(found[0], made)
        return Edit(file, body.place(part), ast.unparse(instead), tried)
    last = body.tree.body[-1]
    if found or isinstance(last, (ast.Return, ast.Raise)):
        return None
    end, start = body.place(last)[1] + 1, body.place(body.tree.body[0])[2]
    return Edit(file, (end, end, start, start), f"{ast.unparse(target)} = {ast.unparse(made)}", tried, above=True)


def _of_part(new: ast.Assign, target: ast.Subscript | ast.Attribute, made: ast.Call, failure: Failure) -> Edit | None:
    """A new layer in an existing model: before the call, if that runs once."""
    frame, root = failure.caller, failure.root
    found = source_code.located(frame) if frame is not None and not frame.is_function and not frame.is_installed else None
    if frame is None or root is None or found is None or _known(frame, _owner(target)) is not root.module:
        return None
    body, old = found
    place = body.place(old)
    if place[2]:  # in a loop, each round would make a new one
        return None
    call = failure.failing
    takes = call is not None and call.args is not None and not call.kwargs and _known(frame, target) is call.module
    tried = trying.runs(lambda trial: trial.made(made, frame)(*map(trial.thing, call.args))) if takes else None  # type: ignore
    return _above(frame.code.co_filename, place, new, tried)


def _owner(target: ast.expr) -> ast.expr:
    while isinstance(target, (ast.Attribute, ast.Subscript)):
        target = target.value
    return target


def _known(frame: Frame, node: ast.expr) -> Any:
    return operands.follow(_loaded(node), frame)


def _loaded(node: ast.expr) -> ast.expr:
    copied = ast.parse(ast.unparse(node), mode="eval").body
    return copied


def _given(name: ast.expr, value: ast.expr, wanted: str) -> Iterator[ast.expr]:
    """What an assignment assigns to the wanted target, even as one of several."""
    if isinstance(name, ast.Tuple) and isinstance(value, ast.Tuple) and len(name.elts) == len(value.elts):
        for one, other in zip(name.elts, value.elts, strict=True):
            yield from _given(one, other, wanted)
    elif isinstance(name, (ast.Attribute, ast.Subscript)) and ast.dump(_loaded(name)) == wanted:
        yield value


def _followed(module: Module, target: ast.expr) -> Any:
    """The value of ``self.layers[0]`` in a module."""
    if isinstance(target, ast.Attribute):
        owner = _followed(module, target.value)
        return operands.attribute(owner, target.attr) if owner is not operands.MISSING else owner
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return operands.member(_followed(module, target.value), target.slice.value)
    own = code_fixes.self_name(type(module))
    return module if isinstance(target, ast.Name) and target.id == own else operands.MISSING


def _has(module: Module, target: ast.expr) -> bool:
    return not code_fixes.is_torchs(module) and _followed(module, target) is not operands.MISSING


def _tried(target: ast.expr, made: ast.Call, owner: Module, failure: Failure) -> bool | None:
    """Whether the new layer takes the input of the one that failed; None if it could not be tried."""
    call, frame = failure.failing, failure.own
    if call is None or frame is None or call.args is None or call.kwargs or _followed(owner, target) is not call.module:
        return None
    args = call.args
    return trying.runs(lambda trial: trial.made(made, frame)(*(trial.thing(one) for one in args)))


# ---- the diff -----------------------------------------------------------------------------------------------------------------


def _diff(edit: Edit) -> str:
    """A single hunk, in the format of ``git apply`` and ``patch -p1``."""
    lines = linecache.getlines(edit.file)
    first, last, start, end = edit.place
    if edit.above:
        old, new, last = [], [f"{' ' * start}{edit.code}\n"], first - 1
    else:
        old = lines[first - 1 : last]
        head, tail = old[0].encode()[:start], old[-1].encode()[end:]
        new = (head + edit.code.encode() + tail).decode().splitlines(keepends=True)
    above, below = lines[max(first - 1 - _AROUND, 0) : first - 1], lines[last : last + _AROUND]
    ends = first - 1 + len(old) + len(below) >= len(lines) and not _ends_with_newline(edit.file)
    begin = max(first - _AROUND, 1)
    sizes = [len(above) + len(some) + len(below) for some in (old, new)]
    before, after = _names(edit.file)
    hunk = [*_signed(" ", above), *_signed("-", old), *_signed("+", new), *_signed(" ", below)]
    if ends:
        hunk = _unended(hunk, bool(below))
    return "".join([f"--- {before}\n+++ {after}\n@@ -{begin},{sizes[0]} +{begin},{sizes[1]} @@\n", *hunk])


def _signed(sign: str, lines: list[str]) -> Iterator[str]:
    return (sign + line for line in lines)


def _unended(hunk: list[str], below: bool) -> list[str]:
    """The hunk for a file whose last line has no newline: linecache adds one."""
    mark = "\\ No newline at end of file\n"
    if below:
        return [*hunk, mark]
    found: list[str] = []
    last = {sign: max((i for i, line in enumerate(hunk) if line[0] == sign), default=-1) for sign in "-+"}
    for i, line in enumerate(hunk):
        found += [line, mark] if i in last.values() else [line]
    return found


def _ends_with_newline(file: str) -> bool:
    try:
        with open(file, "rb") as opened:
            opened.seek(-1, os.SEEK_END)
            return opened.read() == b"\n"
    except OSError:
        return True  # a cell: no final newline to keep


def _names(file: str) -> tuple[str, str]:
    """The two file names in the diff: a path relative to the working directory, as in git, or the cell."""
    cell = _cell(file)
    if cell:
        return cell, cell
    inside = os.path.relpath(file) if os.path.isfile(file) else file
    inside = inside.replace(os.sep, "/")
    outside = inside.startswith("../") or os.path.isabs(inside)
    return (file, file) if outside else (f"a/{inside}", f"b/{inside}")


def _cell(file: str) -> str:
    """``In [4]``, as the notebook numbers its cells; empty for a file."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    number = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)
    if number is not None:
        return f"In [{number}]"
    return "a cell" if file.startswith("<ipython-input") or f"{os.sep}ipykernel_" in file else ""
