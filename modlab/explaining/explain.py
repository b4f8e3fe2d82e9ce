"""An exception → why it was raised, from its traceback alone, after the fact. Nothing needs to be wrapped, and nothing is kept."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab import format
from modlab.compat import own_class, without_modes, without_torch_function
from modlab.errors import ModlabError
from modlab.explaining import calls, code_fixes, earlier, frames, patches, positions, shared_modules, source_code, workers
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.failure import Cause, Failure, message_of
from modlab.explaining.rules import RULES, hook_errors
from modlab.explaining.shape_inference import Ran
from modlab.inspection import entries, marks, stores
from modlab.records.explanation import ExplanationRecord, Fix, Step
from modlab.records.structure import ROOT
from modlab.records.trace import EventFact, Value
from modlab.running import values
from modlab.statistics.contents import sizes_of

UNKNOWN = ""
CHAIN = 8  # exceptions examined: causes, contexts, members of groups
SHOWN = 12  # values listed per call, names per frame
WIDE = 1_000  # members searched of a list in a local variable
BEFORE = 12  # modules listed that ran before the one that failed
LEVELS = 40  # modules on the way that are all listed; if there are more, only the outermost and the innermost
OUTER, INNER = 6, 12
_MESSAGE = 4_000


def explain(error: BaseException) -> tuple[ExplanationRecord, Module | None]:
    """Why an exception was raised, and the outermost module of its traceback.

    For an error that no rule matches, `family` is empty and the record holds what the traceback shows. Never raises.
    """
    try:
        with without_torch_function(), without_modes():
            return _explain(error)
    except Exception:  # noqa: BLE001 - whatever is in the user's frames, only the error itself may surface
        name = type(error).__name__
        return ExplanationRecord(name, format.cut(message_of(error), _MESSAGE), UNKNOWN, _unknown(name, "")), None


def _explain(error: BaseException) -> tuple[ExplanationRecord, Module | None]:
    first: Failure | None = None
    known: list[tuple[str, BaseException, Failure, str, Cause]] = []
    for relation, member, failure in _chain(error):
        first = first or failure
        found = _recognised(failure)
        if found is not None:
            known.append((relation, member, failure, *found))
        if found is not None and failure.calls:
            break
    assert first is not None
    if known:  # the same error again with modules on the way says more: somebody re-raised it with its message
        relation, member, failure, family, cause = known[-1] if known[-1][3] == known[0][3] else known[0]
        remark = f"The error explained is {relation} the {type(error).__name__} that was raised." if relation else ""
        return _record(member, failure, family, cause, remark), _root(failure)
    return _record(error, first, UNKNOWN, _not_known(error, first), ""), _root(first)


def _root(failure: Failure) -> Module | None:
    return failure.root.module if failure.root is not None else None


def _unknown(name: str, words: str) -> tuple[str, str]:
    """What to say about an error that no rule matches: its own message, without guessing."""
    return f"modlab does not know this {name}.", f"It says: {words}" if words else "What the traceback shows of the model is below."


def _not_known(error: BaseException, failure: Failure) -> Cause:
    if failure.told is None:
        return Cause(*_unknown(type(error).__name__, failure.words))
    return Cause(*_unknown(failure.told.name, failure.words))


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException, Failure]]:
    """The exception, the members of a group, its cause, and the exception being handled when it was raised."""
    todo: list[tuple[str, BaseException, list[frames.Frame] | None]] = [("", error, None)]
    seen: set[int] = set()
    while todo and len(seen) < CHAIN:
        relation, member, within = todo.pop(0)
        if id(member) in seen or issubclass(type(member), ModlabError):
            if not seen:
                seen.add(id(member))
                yield relation, member, Failure(member, [])
            continue
        seen.add(id(member))
        read = frames.read(member, within)
        yield relation, member, _failure(member, read)
        if isinstance(member, BaseExceptionGroup):
            todo += [("one of those in", inner, read) for inner in member.exceptions]
        if member.__cause__ is not None:
            todo.append(("the cause of", member.__cause__, read))
        elif member.__context__ is not None and not member.__suppress_context__ and _is_raised(read):
            todo.append(("what came before", member.__context__, read))


def _failure(error: BaseException, read: list[frames.Frame]) -> Failure:
    message = message_of(error)
    found = workers.told(error, message)
    if found is not None:
        return _told_failure(found, read)
    failure = Failure(error, read)
    with suppress(Exception):  # objects may misbehave
        positions.settle(failure)
    return failure


def _told_failure(found: workers.Told, read: list[frames.Frame]) -> Failure:
    """An error from another process: its own class and message but no frames, since it did not happen in any of the local ones."""
    failure = Failure(found.error, [])
    failure.told, failure.message, failure.here = found, found.message, read
    return failure


def _is_raised(read: list[frames.Frame]) -> bool:
    """Whether a user's ``raise`` raised the error in response to the one being handled; otherwise that one is unrelated."""
    return bool(read) and read[-1].is_users and read[-1].source.startswith("raise")


def _recognised(failure: Failure) -> tuple[str, Cause] | None:
    if issubclass(type(failure.error), ModlabError):
        return None
    hook = hook_errors.running(failure)
    if hook is not None:
        failure.hook = f"the {_named(hook)}"
    for rule in RULES:
        if not isinstance(failure.error, rule.raised):
            continue
        match = _compiled(rule.pattern).search(failure.brief) if _literal(rule.pattern) in failure.brief else None
        if match is None:
            continue
        failure.names_hook = False
        try:
            cause = rule.explain(failure, match)
        except Exception:  # noqa: BLE001 - a rule that fails on odd objects has nothing to say
            continue
        if cause is not None:
            return rule.name, cause if hook is None else _of_hook(cause, _named(hook), hook.where, named=failure.names_hook)
    return None


def _of_hook(cause: Cause, hook: str, where: str, *, named: bool) -> Cause:
    """The same cause if a hook's code failed: with its file and line, and its name unless it is `named` already."""
    if any(name == "hook" for name, _ in cause.facts):
        return cause
    told = f"It is defined at {where}." if named else f"It happened in the {hook}, at {where}."
    return cause._replace(more=f"{cause.more} {told}".strip(), facts=(*cause.facts, ("hook", f"{hook}, {where}")))


def _named(hook: hook_errors.RunningHook) -> str:
    return f"{hook.kind} {hook.function} on {hook.owner}"


@cache
def _literal(pattern: str) -> str:
    """Text that any match must contain: compiling all patterns for one error would take longer than explaining it."""
    if "|" in pattern or re.search(r"\)[?*{]|\(\?[!<i]", pattern):
        return ""
    parts = re.split(r"\\.|\[(?:\\.|[^\]])*\]|\(\?P<\w+>|\(\?:|[(){}.+*?^$]", pattern)
    return max((part[:-1] for part in parts), key=len)  # its last letter may be optional


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _record(error: BaseException, failure: Failure, family: str, cause: Cause, remark: str) -> ExplanationRecord:
    user = failure.own
    outside = user is not None and (failure.failing is None or user not in failure.failing.frames)
    where, line = _place(failure)
    fixes, patch = patches.of_fixes(tuple(_applicable(cause.fixes, failure)), failure)
    return ExplanationRecord(
        error=type(error).__name__,
        message=format.cut(message_of(error), _MESSAGE),
        family=family,
        sentence=(cause.said, cause.more),
        steps=tuple(_steps(failure, cause.stop)),
        facts=tuple((name, value) for name, value in cause.facts if value not in ("", "()") and (value != "None" or name == "given")),
        fixes=tuple(fix if fix.code else replace(fix, prose=re.sub(r":$", ".", fix.prose)) for fix in fixes),
        patch=patch,
        remarks=tuple(
            part for part in (*cause.remarks, *shared_modules.told(failure), *_unseen(failure), *_traced(failure, family), remark) if part
        ),
        where=where,
        line=line,
        locals=_locals(user, None) if user is not None and (outside or failure.failing is None) else (),
    )


def _place(failure: Failure) -> tuple[str, str]:
    """File and line of the user's own code, and the text of that line: where it happened, even in another process."""
    if failure.place is not None:
        return failure.place
    told = failure.told.own if failure.told is not None else None
    if told is not None:
        return told.where, told.source
    frame = failure.own or next((one for one in reversed(failure.here) if one.is_users and not one.is_installed), None)
    return (frame.where, frame.source) if frame is not None else ("", "")


def _applicable(fixes: tuple[Fix, ...], failure: Failure) -> Iterator[Fix]:
    """The fixes; if the error is inside a library, without code that uses names unknown at the user's own line."""
    own = failure.own
    inside = own is not None and own is not failure.user
    for fix in fixes:
        if not inside or own is None or not fix.code or _is_at_home(fix.code, own):
            yield fix
        elif fix.prose:
            yield replace(fix, code="")


_EVERYWHERE = frozenset({*vars(builtins), "torch", "nn", "F", "np", "DataLoader", "Trainer"})


def _is_at_home(code: str, frame: frames.Frame) -> bool:
    """Whether the names that a piece of code reads are known at the user's own line."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return True  # belongs to no frame: a pattern to follow
    known = {*_EVERYWHERE, *frame.names, *frame.globals}
    for statement in tree.body:
        nodes = [*ast.walk(statement)]
        inner = {node.arg for node in nodes if isinstance(node, ast.arg)}
        inner |= {name for node in nodes if isinstance(node, ast.comprehension) for name in source_code.stored(node.target)}
        read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        own = source_code.stored(statement) if isinstance(statement, ast.FunctionDef) else frozenset()
        if isinstance(statement, ast.Return) or not read - inner - own - {getattr(statement, "name", "")} <= known:
            return False
        known |= source_code.stored(statement) | {getattr(statement, "name", "")}
    return True


def _unseen(failure: Failure) -> Iterator[str]:
    """What the traceback cannot show, and why."""
    if "TorchScript" in failure.message:
        yield "The code inside is scripted: its modules have no frames. The message of torch shows its lines."
    if failure.told is not None:
        yield f"It happened in {failure.told.place}, so its values are not available here. With num_workers=0 they are."
        own = next((one for one in reversed(failure.here) if one.is_users and not one.is_installed), None)
        if own is not None and failure.told.own is not None:
            yield f"Its result is requested at {own.where}: {own.source}"
    elif failure.own is not failure.user and failure.user is not None and failure.user.source:
        yield f"It was raised inside what that line calls, at {failure.user.where}: {failure.user.source}"
    if any("_dynamo" in frame.code.co_filename and "convert_frame" in frame.code.co_filename for frame in failure.frames):
        yield "torch.compile was analyzing the code: the modules inside were not called yet. Without it, the error shows where it is."


_OF_VALUES = frozenset(
    {"product", "attention", "convolution", "norm", "loss", "broadcast", "join", "view", "index", "dtype"}
)  # families where earlier values matter


def _traced(failure: Failure, family: str) -> Iterator[str]:
    """How to see what ran before, if the traceback does not show all of it."""
    root = failure.root
    if family not in _OF_VALUES or root is None or root.args is None or not (len(failure.calls) > LEVELS or earlier.hidden(failure)):
        return
    if any(frame.function == "__call__" and frame.is_ours for frame in failure.frames):
        return  # the trace itself shows it
    name, call = code_fixes.name_of_root(failure), code_fixes.written_call(failure)
    named, made = call.startswith(f"{name}(") or bool(failure.name_of(root.module)), code_fixes.made_in_call(failure)
    if made and not named:
        call = f"{name}{call.removeprefix(made)}"
    elif not call.startswith(f"{name}("):
        call = f"{name}({'x' if len(root.args) < 2 else '...'})"
    first = f", write {name} = {made} first, then" if made else f", call the {root.type} {name}, then"
    see = f"To see the way there{'' if named else first}"
    yield f"A traceback does not show all that ran before. {see}: with modlab.trace({name}) as t: {call}"


# ---- the way there -----------------------------------------------------------------------------------------------------------


def _steps(failure: Failure, stop: str) -> Iterator[Step]:
    found = failure.calls
    left = len(found) - OUTER - INNER if len(found) > LEVELS else 0
    listed = found if not left else found[:OUTER] + found[-INNER:]
    for depth, call in enumerate(listed):
        last = call is found[-1]
        step = _step(call, depth, stop if last else "", last)
        between = left and depth == OUTER
        yield step if not between else replace(step, note="; ".join(filter(None, (f"{left} modules above it are not listed", step.note))))
        if last:
            yield from _before(call, None, depth + 1) if earlier.frame_of(call) is not None else ()
        elif not left or depth != OUTER - 1:
            inner = listed[depth + 1]
            yield from _before(call, inner, depth + 1) if inner.module is not call.module else ()


def _step(call: ModuleFrame, depth: int, said: str, failed: bool) -> Step:
    frame = call.code_frame
    direct = call.args is None and frame is not None and frame.function == "forward"
    notes = [call.note, "called through .forward: its hooks are skipped" if direct else ""]
    if call.args is None and frame is not None and not direct and not frame.function.startswith("__"):
        notes.append(f"in .{frame.function}")
    path = call.path and call.shown(call.path)
    return Step(
        path=path,
        name=call.place.rpartition(".")[2] if path else call.shown(call.place) or (ROOT if path == "" else call.type),
        type=call.type,
        symbol=marks.category(type(call.module)),
        depth=depth,
        inputs=_inputs(call),
        tensors=_tensors(call.module),
        locals=_locals(frame, call) if frame is not None and frame.is_users else (),
        failed=failed,
        said=said,
        note="; ".join(note for note in notes if note),
        where=frame.where if frame is not None and frame.is_users else "",
        line=frame.source if frame is not None and frame.is_users else "",
    )


def _before(call: ModuleFrame, inner: ModuleFrame | None, depth: int) -> Iterator[Step]:
    """What ran in a module before the error (without `inner`, before its own code failed), as far as that is certain."""
    try:
        ran = earlier.before(call, inner)
    except Exception:  # noqa: BLE001 - source code may not be what it seems
        return
    first = max(len(ran) - BEFORE, 0)
    skipped = sum(one.skipped for one, _, _ in ran[:first])
    rows: list[tuple[Step, str]] = []
    for one, taken, given in ran[first:]:
        rows.append((_ran(call, one, depth, taken, given), _left_out(skipped + one.skipped, 0 if rows else first)))
        skipped = 0
    yield from _folded(rows)


def _ran(call: ModuleFrame, one: Ran, depth: int, taken: tuple[int, ...] | None, given: tuple[int, ...] | None) -> Step:
    name, module, said, certain = one.name, one.module, one.perhaps or "ran", not one.perhaps
    inputs, outputs = _shaped(taken), _shaped(given)
    if module is None:
        note = "no module: not in the tree"
        return Step(None, name, "function", "function", depth, inputs, outputs, stopped=False, certain=certain, said=said, note=note)
    registered = call.path is not None and calls.at(call.module, name) is module
    path = call.shown(calls.join(call.path or "", name)) if registered else None
    return Step(
        path,
        name.rpartition(".")[2] if path is not None else name,
        own_class(type(module)).__name__,
        marks.category(type(module)),
        depth,
        inputs,
        outputs,
        _tensors(module),
        stopped=False,
        certain=certain,
        said=said,
    )


def _left_out(rounds_before: int, calls_before: int) -> str:
    """What is not listed above a listed row."""
    words = [format.plural(number, word) for number, word in ((rounds_before, "round"), (calls_before, "call")) if number > 0]
    return f"{' and '.join(words)} before it are not listed" if words else ""


def _folded(rows: list[tuple[Step, str]]) -> Iterator[Step]:
    """The same with equal rounds shown once: a cell called in a loop, along with any calls next to it.

    Args:
        rows: steps, each with a note on what is not listed above it.
    """
    start = 0
    while start < len(rows):
        size, times = _repeated(rows, start)
        beside = f" with the {'row' if size == 2 else f'{size - 1} rows'} below" if size > 1 else ""
        for place, (step, left) in enumerate(rows[start : start + size]):
            notes = ("" if place or times < 2 else f"{times} times{beside}", left, step.note)
            yield replace(step, note="; ".join(filter(None, notes))) if any(notes[:2]) else step
        start += size * times


def _repeated(rows: list[tuple[Step, str]], start: int) -> tuple[int, int]:
    """The shortest round that repeats from here on, and how often; a single row, once, if none does."""
    for size in range(1, BEFORE // 2 + 1):
        end = start + size
        while end + size <= len(rows) and all(rows[i] == (rows[i - size][0], "") for i in range(end, end + size)):
            end += size
        if end > start + size:
            return size, (end - start) // size
    return 1, 1


def _shaped(shape: tuple[int, ...] | None) -> tuple[Value, ...]:
    return () if shape is None else (Value("", shape=shape),)


def _inputs(call: ModuleFrame) -> tuple[Value, ...]:
    if call.args is not None:
        names = values.argument_names(type(call.module))
        return _values(values.arguments(names, call.args, call.kwargs))
    frame = call.code_frame
    if frame is None or frame.function != "forward":
        return ()
    arguments = frame.code.co_varnames[1 : frame.code.co_argcount]
    return _values((name, frame.names[name], None) for name in arguments if name in frame.names)


def _tensors(module: Module) -> tuple[Value, ...]:
    return _values((name, tensor, None) for name, tensor in stores.named_tensors(module))


def _locals(frame: frames.Frame, call: ModuleFrame | None) -> tuple[Value, ...]:
    """The tensors held by local names, directly or in lists and dicts."""
    taken = {id(argument) for argument in (call.args or ())} if call is not None else set()
    known = frame.names.items() if frame.is_function else [(name, frame.names[name]) for name in _used(frame) if name in frame.names]
    names = [(name, thing) for name, thing in list(known) if not name.startswith("_") and id(thing) not in taken]
    held = (leaf for name, thing in names if _may_hold(thing) for leaf in values.leaves(thing, name))
    return _values(leaf for leaf in held if issubclass(type(leaf[1]), Tensor))


def _used(frame: frames.Frame) -> list[str]:
    """The names in the statement that failed, in order: a cell or file has those of the whole notebook."""
    statement = source_code.statement_of(frame)
    found = [node for node in ast.walk(statement) if isinstance(node, ast.Name)] if statement is not None else []
    return list(dict.fromkeys(node.id for node in sorted(found, key=lambda one: (one.lineno, one.col_offset))))


def _may_hold(thing: Any) -> bool:
    return issubclass(type(thing), Tensor) or (type(thing) in (list, tuple, dict) and len(thing) <= WIDE)


def _values(leaves: Iterable[values.Leaf]) -> tuple[Value, ...]:
    return tuple(_value(*leaf) for leaf in islice(leaves, SHOWN))


def _note(unread: EventFact) -> str:
    from modlab.wording import events  # most errors do not need it

    return events.of_value(unread)


def _value(name: str, thing: Any, unread: EventFact | None) -> Value:
    kind = type(thing).__name__
    if not issubclass(type(thing), Tensor):
        return Value(name, kind, text=values.said(thing), note="" if unread is None else _note(unread))
    dtype, device = entries.dtype_name(thing), str(thing.device)
    if is_lazy(thing):
        return Value(name, kind, None, dtype, device, thing.requires_grad, note=entries.LAZY)
    shape, _ = sizes_of(thing)
    return Value(name, kind, shape, dtype, device, thing.requires_grad, note=entries.remark(thing, shape))
