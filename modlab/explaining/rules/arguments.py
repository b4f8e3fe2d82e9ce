"""Calls: arguments of ``forward`` that are missing, too many or of another kind, and keys that a module does not have."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from inspect import CO_VARARGS
from types import CodeType
from typing import Any

from torch import Tensor, nn
from torch.nn import Module
from torch.nn.utils.rnn import PackedSequence

from modlab import format
from modlab.errors import nearest
from modlab.explaining import calls, code_fixes, provenance, source_code, suspects
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.failure import Cause, Failure, Rule, counted, described, shape_of
from modlab.explaining.rules import hook_errors
from modlab.inspection import stores
from modlab.records.explanation import Fix
from modlab.running import values

_FORWARD = r"(\w+)\.forward\(\)"


def _is_forward(failure: Failure, name: str) -> bool:
    """Whether a TypeError is about the innermost module's own ``forward``: none of its code ran yet."""
    call = failure.failing
    if call is None or call.args is None or failure.inner is None or not failure.inner.is_torch:
        return False
    return any(base.__name__ == name for base in type(call.module).__mro__) and call.code_frame is None


def _missing(failure: Failure, match: re.Match[str]) -> Cause | None:
    if not _is_forward(failure, match[1]):
        return None
    call = failure.failing
    assert call is not None and call.args is not None
    names = re.findall(r"'(\w+)'", match[3])
    taken = [name for name in values.argument_names(type(call.module)) if not name.startswith("*")]
    needed = code_fixes.parameters_of(type(call.module).forward)
    named = "keyword-only" in match[0]
    taken += [name for name in names if name not in taken]
    given = [*taken[: len(call.args)], *call.kwargs]
    choices = {name: _choices(call.module, name) for name in names}
    here = {name: _named(failure, call, name) for name in names}
    first_known = tuple(_first(choices[name]) or here[name] or name for name in names)
    more = [f"{name} chooses from {owner}: {_or(keys)}" for name, (owner, keys) in choices.items() if keys]
    width, shape = _misfit(call)
    if width is not None and shape is not None and failure.calls[0] is call:
        child, number = width
        more.append(f"{given[0]} has {counted(shape[-1], 'number')}, and {child} takes {number}")
        wanted: tuple[int, ...] | None = (*shape[:-1], number)
    else:
        wanted = None
    more_given = dict(zip(names, first_known, strict=True))
    written = code_fixes.written_call(failure, shape=wanted, more=more_given, named=named) if failure.calls[0] is call else ""
    expression = _expression(failure, call)
    if not written and expression is not None:
        arguments = [ast.unparse(node) for node in (*expression.args, *expression.keywords)]
        added = [f"{name}={value}" if named or expression.keywords else value for name, value in more_given.items()]
        written = f"{ast.unparse(expression.func)}({', '.join([*arguments, *added])})"
    if not written and not _in_sequential(failure, call):
        added = [f"{name}={value}" if named or call.kwargs else value for name, value in more_given.items()]
        written = f"{_self_name(failure, call)}({', '.join([*taken[: len(call.args)], *(f'{k}={k}' for k in call.kwargs), *added])})"
    if expression is not None and isinstance(expression.func, ast.Call):  # made in the same line: the fix calls it by a name
        made = ast.unparse(expression.func)
        written = f"model = {made}\nmodel{written.removeprefix(made)}"
    said = f"{', '.join(given)}" if given else "nothing"
    yours = [name for name in names if not _first(choices[name]) and not here[name]]
    stands = f"; {_and(yours)} {'stands' if len(yours) == 1 else 'stand'} for your own" if yours else ""
    return Cause(
        f"{failure.subject}'s forward takes {_and([name for name in taken if name in {*needed, *names, *given}])}; "
        f"{_and(names)} {'is' if len(names) == 1 else 'are'} missing.",
        f"It was given {said}{' alone' if len(given) == 1 else ''}" + (f"; {'; '.join(more)}." if more else "."),
        f"{_and(names)} missing",
        (
            (
                "given",
                ", ".join(f"{n} {described(v)}" for n, v in zip(given, (*call.args, *call.kwargs.values()), strict=False)) or "nothing",
            ),
            ("expected", ", ".join(taken)),
            *((f"{name}: one of", ", ".join(map(repr, keys))) for name, (_, keys) in choices.items() if keys),
        ),
        (Fix(f"The call with all of them{stands}:", written) if written else _OWN_FORWARD,),
    )


_OWN_FORWARD = Fix("A Sequential passes one value from layer to layer. For more, write your own forward:", "def forward(self, x, y): ...")


def _in_sequential(failure: Failure, call: ModuleFrame) -> bool:
    """Whether it is a Sequential that makes the call: no line of the user's does."""
    place = failure.calls.index(call)
    return place > 0 and type(failure.calls[place - 1].module) is nn.Sequential


def _expression(failure: Failure, call: ModuleFrame) -> ast.Call | None:
    """How a module was called, as it is written, by the user or in the forward of the one above it."""
    if failure.calls[0] is call:
        return failure.call_expression()
    frame = failure.calls[failure.calls.index(call) - 1].code_frame
    found = frame.expression() if frame is not None and frame.is_users else None
    return found if isinstance(found, ast.Call) else None


def _named(failure: Failure, call: ModuleFrame, wanted: str) -> str:
    """The local name of a tensor, where the module was called, that is that of an argument, or nearly so ("target", "targets")."""
    frame = failure.caller if failure.calls[0] is call else failure.calls[failure.calls.index(call) - 1].code_frame
    if frame is None or not frame.is_users:
        return ""
    given = {id(thing) for thing in (*(call.args or ()), *call.kwargs.values())}
    tensors = [name for name, thing in list(frame.names.items()) if issubclass(type(thing), Tensor) and id(thing) not in given]
    if wanted in tensors:
        return wanted
    alike = [name for name in tensors if min(len(name), len(wanted)) >= 4 and (name.startswith(wanted) or wanted.startswith(name))]
    return alike[0] if len(alike) == 1 else ""


def _self_name(failure: Failure, call: ModuleFrame) -> str:
    if failure.calls[0] is call:
        return code_fixes.name_of_root(failure)
    above = failure.calls[failure.calls.index(call) - 1].module
    return f"{code_fixes.self_name(type(above))}.{call.place.rpartition('.')[2]}"


def _and(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def _or(keys: list[str]) -> str:
    listed = [*map(repr, keys[:6]), *(["…"] if len(keys) > 6 else [])]
    return ", ".join(listed[:-1]) + " or " + listed[-1] if len(listed) > 1 else "".join(listed)


def _first(choice: tuple[str, list[str]]) -> str:
    return repr(choice[1][0]) if choice[1] else ""


def _choices(module: Module, name: str) -> tuple[str, list[str]]:
    """The keys that an argument can be, where ``forward`` uses it to choose from a ModuleDict or ParameterDict of its own."""
    tree = code_fixes.forward_of(type(module))
    itself = tree.args.args[0].arg if tree is not None and tree.args.args else "self"
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Name) or node.slice.id != name:
            continue
        if isinstance(node.value, ast.Attribute) and isinstance(node.value.value, ast.Name) and node.value.value.id == itself:
            held = dict(stores.named_children(module)).get(node.value.attr)
            if held is not None and issubclass(type(held), nn.ModuleDict):
                return node.value.attr, [key for key, _ in stores.named_children(held)]
    return "", []


def _misfit(call: ModuleFrame) -> tuple[tuple[str, int] | None, tuple[int, ...] | None]:
    """The child that gets the first argument and the width it needs, if the argument has a different one; and the argument's shape."""
    shape = shape_of(call.args[0]) if call.args else None
    tree = code_fixes.forward_of(type(call.module))
    if not shape or tree is None or not tree.args.args[1:]:
        return None, shape
    child = code_fixes.entry(call.module, tree, tree.args.args[1].arg)
    number = code_fixes.width(child) if child is not None else None
    if child is None or number is None or number == shape[-1] or len(shape) > 3:
        return None, shape
    return (calls.path_to(call.module, child) or type(child).__name__, number), shape


def _too_many(failure: Failure, match: re.Match[str]) -> Cause | None:
    if not _is_forward(failure, match[1]):
        return None
    call = failure.failing
    assert call is not None and call.args is not None
    taken, given = [name for name in values.argument_names(type(call.module)) if not name.startswith("*")], len(call.args)
    if call.given is not None and len(call.given) != given:
        changed = hook_errors.of_kind(call.module, "_forward_pre_hooks")
        if changed:
            return hook_errors.changed_arguments(failure, changed, len(call.given), given, taken)
    code = getattr(getattr(type(call.module), "forward", None), "__code__", None)
    if code is not None and _forgets_self(code, call.module, given):
        return _without_self(failure, call, [*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]])
    named = [*code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]] if code is not None else []
    placed = [*code.co_varnames[1 : code.co_argcount]] if code is not None else taken
    if named:
        return _by_name_alone(failure, call, placed, named)
    sequential = type(call.module) is nn.Sequential
    return Cause(
        f"{failure.subject}'s forward takes {format.plural(len(taken), 'argument')} ({', '.join(taken)}), but was given {given}.",
        "A Sequential passes one value from layer to layer." if sequential else "",
        f"{format.plural(given, 'argument')}, takes {len(taken)}",
        (("given", ", ".join(described(v) for v in call.args)), ("expected", ", ".join(taken))),
        (
            Fix("For several inputs, write your own forward:", "def forward(self, x, y): ...")
            if sequential
            else Fix(f"Give it {_and(taken)} alone, or let forward take more." if taken else "It takes none: let forward accept them."),
        ),
    )


def _forgets_self(code: CodeType, module: Module, given: int) -> bool:
    """Whether the first argument of a ``forward`` was not meant to be the module itself."""
    names = code.co_varnames[: code.co_argcount]
    if "self" in names or code.co_argcount not in (given, 0) or code.co_flags & CO_VARARGS:
        return False
    body = source_code.of_code(code)
    if body is None or not names:
        return not names
    held = {
        *stores.contents(module),
        *(name for store in ("_modules", "_parameters", "_buffers") for name in stores.contents(module).get(store) or ()),
    }
    asked = [
        node.attr
        for node in ast.walk(body.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == names[0]
    ]
    return not any(name in held for name in asked)


def _needed_by_name(module: Module) -> list[str]:
    """The arguments of ``forward`` without a default that are given by their names alone."""
    parameters = inspect.signature(type(module).forward).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]


def _placed_first(module: Module) -> str:
    """The signature of ``forward`` with the first argument behind the star before it; nothing without its source."""
    body = source_code.of_code(type(module).forward.__code__)
    if body is None:
        return ""
    taken = copy.deepcopy(body.tree.args)
    place = next((i for i, default in enumerate(taken.kw_defaults) if default is None), 0)
    taken.args.append(taken.kwonlyargs.pop(place))
    default = taken.kw_defaults.pop(place)
    if default is not None or taken.defaults:
        taken.defaults.append(default if default is not None else ast.Constant(None))
    return f"def forward({ast.unparse(taken)}): ..."


def _without_self(failure: Failure, call: ModuleFrame, names: list[str]) -> Cause:
    first = f"its first argument, {names[0]}, is the module itself" if names else "it takes nothing, not even the module itself"
    return Cause(
        f"{failure.subject}'s forward has no self: {first}.",
        "Python passes the module before the call's arguments.",
        "no self",
        (("given", ", ".join(described(v) for v in call.args or ())), ("expected", ", ".join(names))),
        (Fix("Put it first:", f"def forward({', '.join(['self', *names])}): ..."),),
    )


def _by_name_alone(failure: Failure, call: ModuleFrame, placed: list[str], named: list[str]) -> Cause:
    """Arguments behind a star in the signature were given by their places."""
    given = len(call.args or ())
    over = given - len(placed)
    needed = [name for name in _needed_by_name(call.module) if name not in call.kwargs]
    free = [name for name in named if name not in call.kwargs]
    meant = needed if len(needed) == over else free if len(free) == over else []
    expression = _expression(failure, call)
    whole = expression is not None and len(expression.args) == given and not any(isinstance(a, ast.Starred) for a in expression.args)
    fix = Fix(f"Give {_and(named)} by {'its name' if len(named) == 1 else 'their names'}.")
    if _in_sequential(failure, call):
        fix = Fix("A Sequential passes its value by position: let forward take it that way, before the star:", _placed_first(call.module))
    elif expression is not None and meant and whole:
        arguments = [*map(ast.unparse, expression.args[: len(placed)])]
        arguments += [f"{name}={ast.unparse(node)}" for name, node in zip(meant, expression.args[len(placed) :], strict=True)]
        fix = Fix("By name:", f"{ast.unparse(expression.func)}({', '.join([*arguments, *map(ast.unparse, expression.keywords)])})")
    by_place = f"{_and(placed)} by place, " if placed else ""
    number = format.plural(given, "argument")
    return Cause(
        f"{failure.subject}'s forward takes {by_place}{_and(named)} only by name, but was given {number} by position.",
        f"In its signature {_and(named)} {'comes' if len(named) == 1 else 'come'} after a star.",
        f"{given} by place, takes {len(placed)}",
        (
            ("given", ", ".join(described(v) for v in call.args or ())),
            ("by place", ", ".join(placed) or "none"),
            ("by name", ", ".join(named)),
        ),
        (fix,),
    )


def _unexpected(failure: Failure, match: re.Match[str]) -> Cause | None:
    if not _is_forward(failure, match[1]):
        return None
    call, name = failure.failing, match[2]
    assert call is not None
    taken = [one.lstrip("*") for one in values.argument_names(type(call.module))]
    close = nearest(name, taken, 1)
    expression = _expression(failure, call)
    if expression is not None and close and any(k.arg == name for k in expression.keywords):
        named = [f"{close[0] if k.arg == name else k.arg}={ast.unparse(k.value)}" if k.arg else ast.unparse(k) for k in expression.keywords]
        written = f"{ast.unparse(expression.func)}({', '.join([*map(ast.unparse, expression.args), *named])})"
    else:
        written = ""
    return Cause(
        f"{failure.subject}'s forward has no argument {name!r}.",
        f"It takes {', '.join(taken) or 'none'}." + (f" Nearest: {close[0]!r}." if close else ""),
        f"no argument {name!r}",
        (("given", ", ".join(["…"] * bool(call.args) + [f"{k}=" for k in call.kwargs])), ("expected", ", ".join(taken))),
        (Fix(f"If {close[0]} is what you meant:", written),) if written else (),
    )


def _twice(failure: Failure, match: re.Match[str]) -> Cause | None:
    if not _is_forward(failure, match[1]):
        return None
    taken = values.argument_names(type(failure.failing.module)) if failure.failing is not None else ()
    return Cause(
        f"{failure.subject}'s forward got {match[2]!r} twice: by position and by name.",
        f"It takes {', '.join(taken)}.",
        f"{match[2]} twice",
        (("expected", ", ".join(taken)),),
        (Fix("Leave one of them out."),),
    )


def _key(failure: Failure, match: re.Match[str]) -> Cause | None:
    """A key that a ModuleDict does not have."""
    call = failure.failing
    if call is None or failure.inner is None or failure.inner.function != "__getitem__" or not issubclass(type(call.module), nn.ModuleDict):
        return None
    keys = [name for name, _ in stores.named_children(call.module)]
    close = nearest(failure.message, keys, 1)
    return Cause(
        f"{failure.subject} has no {failure.message!r}.",
        f"It has {', '.join(map(repr, keys[:8])) or 'nothing'}.",
        f"no {failure.message!r}",
        (("given", repr(failure.message)), ("expected", ", ".join(map(repr, keys[:16])))),
        (_other_key(failure, (close or keys)[0], bool(close)),) if keys else (),
    )


def _other_key(failure: Failure, key: str, near: bool) -> Fix:
    """What was meant; as code where the key is written out in the call of the model."""
    call = copy.deepcopy(failure.call_expression())
    said = f"{'Nearest' if near else 'One that it has'}: {key!r}"
    written = (
        [node for node in ast.walk(call) if isinstance(node, ast.Constant) and node.value == failure.message] if call is not None else []
    )
    if call is None or len(written) != 1:
        return Fix(f"{said}.")
    written[0].value = key
    return Fix(f"{said}:", ast.unparse(call))


_GIVES = {"LSTM": "(output, (h, c))", "GRU": "(output, h)", "RNN": "(output, h)", "MultiheadAttention": "(output, weights)"}


def _no_tensor(failure: Failure, match: re.Match[str]) -> Cause | None:
    """A function of torch got something that is not a tensor."""
    function, argument, kind = match[1], match[2], match[3].rpartition(".")[2]
    call = failure.failing
    if failure.inner is None or not (call is not None or failure.inner.is_torch or failure.user is not None):
        return None
    cause = hook_errors.raised_in(failure)
    if cause is not None:
        return cause
    nothing = _of_none(failure, match) if kind == "NoneType" else None
    if nothing is not None:
        return nothing
    before = provenance.giver(failure)
    subject = failure.subject or function
    changed = hook_errors.replaced(failure)
    if changed is not None and call is not None and call.args and type(call.args[0]).__name__ == kind:
        name, where, on = changed
        return Cause(
            f"{subject} got {_said(kind)} instead of a tensor: the forward pre-hook {name} on {on} returned it.",
            f"It is defined at {where}; it got {described(call.given[0]) if call.given else 'nothing'}.",
            f"{kind} ≠ Tensor",
            (("hook", f"{name}, {where}"), ("given", _said(kind, bare=True)), ("expected", "Tensor")),
            (Fix("A forward pre-hook returns None, or the new input (a tuple for several):", "return (x,)"),),
        )
    thing = call.args[0] if call is not None and call.args and type(call.args[0]).__name__ == kind else None
    more, fixes = "", _mended(failure, kind, argument, thing)
    remarks: tuple[str, ...] = ()
    if before is not None:
        place, module = before
        hooks = hook_errors.of_kind(module, "_forward_hooks")
        if hooks:
            name, where = hooks[-1]
            more = f"The forward hook {name} on {place} ({where}) may have returned it."
            fixes = [Fix("A forward hook returns None, or a new output of the same kind:", "return output")]
            remarks = (f"What a forward hook returns replaces {place}'s output.",)
        elif type(module).__name__ in _GIVES:
            more = f"{place} ({type(module).__name__}) gives {_GIVES[type(module).__name__]}."
            fixes = [Fix("Take the first of them:", provenance.taken_apart(failure))]
            if type(failure.calls[-2].module if len(failure.calls) > 1 else None) is nn.Sequential:
                fixes = [Fix("A Sequential cannot take the first of them; your own forward can.")]
        elif kind == "NoneType" and suspects.returns_nothing(type(module)):
            more = f"{place} ({type(module).__name__}) gave it: its forward has no return."
            fixes = [Fix(f"At the end of {type(module).__name__}'s forward:", "return x")]
    if not more and call is not None and failure.calls[0] is not call:
        hooked = hook_errors.anywhere(failure, "_forward_hooks")
        if hooked:
            more = f"The forward hook {hooked[0][1]} on {hooked[0][0]} ({hooked[0][2]}) may have returned it."
    return Cause(
        f"{subject} got {_said(kind)} instead of a tensor ({argument} of {function}).",
        more,
        f"{_said(kind, bare=True)} ≠ Tensor",
        (("given", _said(kind, bare=True)), ("expected", "Tensor")),
        tuple(fixes),
        remarks,
    )


def _combination(failure: Failure, match: re.Match[str]) -> Cause | None:
    """Functions that list all their forms say differently that the first argument is not a tensor."""
    call, kind = failure.failing, match[2]
    if call is None or not code_fixes.is_torchs(call.module) or not call.args or type(call.args[0]).__name__ != kind.rpartition(".")[2]:
        return None
    if issubclass(type(call.args[0]), Tensor):
        return None
    again = re.match(r"(\w+) (\w+) ([\w.]+)", f"{match[1]} input {kind}")
    return _no_tensor(failure, again) if again is not None else None


def _of_none(failure: Failure, match: re.Match[str]) -> Cause | None:
    """Something is None because it was assigned from a call of a module whose ``forward`` gives nothing."""
    user = failure.user
    expression = user.expression() if user is not None else None
    if user is None or expression is None:
        return None
    for node in ast.walk(expression):
        if not isinstance(node, ast.Name) or user.names.get(node.id, "") is not None:
            continue
        module = suspects.assigned_from(user, node.id)
        if module is not None and suspects.returns_nothing(type(module)):
            cls = type(module).__name__
            return Cause(
                f"{node.id} is None: {cls}'s forward has no return.",
                "Whatever forward does not return is lost.",
                "None",
                ((node.id, "None"), ("expected", "Tensor")),
                (Fix(f"At the end of {cls}'s forward:", "return x"),),
            )
    return None


def _said(kind: str, *, bare: bool = False) -> str:
    name = {"NoneType": "None", "ndarray": "NumPy array"}.get(kind, kind)
    return name if bare or name == "None" else format.article(name)


def _mended(failure: Failure, kind: str, argument: str, thing: Any) -> list[Fix]:
    """What makes a tensor of a thing of this kind; of one that is at hand, what it holds decides."""
    root = failure.root
    whole = root is not None and root.args and root.args[0] is thing and thing is not None
    written = _first_written(failure) if whole else "x"
    if stores.is_module(thing):
        made = f"nn.{kind}" if hasattr(nn, kind) else kind
        return [Fix(f"This is a module, not its output; {made}(x) makes a module, {made}()(x) calls it:", f"x = {made}()(x)")]
    if type(thing) is PackedSequence:
        name = written if written.isidentifier() else "x"
        code = f"{name}, lengths = nn.utils.rnn.pad_packed_sequence({name}, batch_first=True)"
        return [Fix("A packed batch has no separate steps; pad it again:", code)]
    if type(thing) is dict and thing:
        key = next((k for k, v in thing.items() if issubclass(type(v), Tensor)), next(iter(thing)))
        return [Fix(f"Take the part you mean, of {', '.join(map(repr, list(thing)[:6]))}:", f"{written} = {written}[{key!r}]")]
    if type(thing) in (list, tuple) and thing and all(issubclass(type(part), Tensor) for part in thing):
        shapes = {shape_of(part) for part in thing}
        fixes = [Fix("If it is a batch of a DataLoader, take it apart first:", f"x, y = {written}\n{code_fixes.name_of_root(failure)}(x)")]
        if not whole or len(thing) != 2:
            fixes = [Fix("Take the part you mean:", f"{written} = {written}[0]")]
        return [*fixes, Fix("Or make one tensor of all of them:", f"{written} = torch.stack({written})")] if len(shapes) == 1 else fixes
    if thing is None and kind == "NoneType" and _is_written(failure):
        return [Fix(f"The call passes None: pass the {argument} instead.")]
    held = failure.local(argument) if thing is None else thing
    if type(held) is list and any(type(part) is str for part in held):
        return [Fix("Its members are strings, which a tensor cannot hold: give a number for each.")]
    if kind == "list" and held is None and (joined := _joined(failure)):
        return [Fix("Make one tensor of all of them:", joined)]
    return [_by_kind(kind, argument, failure if thing is not None else None)]


def _joined(failure: Failure) -> str:
    """The call with one tensor in the place of a list of tensors, where that is written in it."""
    user = failure.user
    call = user.expression() if user is not None else None
    listed = [one for one in call.args if isinstance(one, ast.List)] if isinstance(call, ast.Call) else []
    if user is None or len(listed) != 1 or len({shape_of(one.thing) for one in failure.tensors}) != 1:
        return ""
    made = ast.parse(f"torch.stack({ast.unparse(listed[0])})", mode="eval").body
    return source_code.rewritten(user, listed[0], made)


def _is_written(failure: Failure) -> bool:
    """Whether None stands in the call itself."""
    call = failure.user.expression() if failure.user is not None else None
    values_of = [*call.args, *(k.value for k in call.keywords)] if isinstance(call, ast.Call) else []
    return any(isinstance(node, ast.Constant) and node.value is None for node in values_of)


def _first_written(failure: Failure) -> str:
    call = failure.call_expression()
    first = call.args[0] if call is not None and call.args else None
    return first.id if isinstance(first, ast.Name) else "x"


_CHANGES = {
    "ndarray": ("Make a tensor of it (NumPy's numbers are float64):", "torch.from_numpy({}).float()"),
    "list": ("Make a tensor of it:", "torch.tensor({})"),
    "float": ("Make a tensor of it:", "torch.tensor({})"),
    "int": ("Make a tensor of it:", "torch.tensor({})"),
    "tuple": ("Take the part you mean:", "{}[0]"),
}


def _by_kind(kind: str, argument: str, failure: Failure | None = None) -> Fix:
    if kind == "NoneType":
        return Fix("Something returned nothing: look for a forward, a hook or a function without return.")
    if kind not in _CHANGES:
        return Fix(f"Look at what {argument} is, and where it is made.")
    prose, change = _CHANGES[kind]
    if failure is not None and change == "torch.tensor({})" and _needs_fractions(failure, argument):
        change = "torch.tensor({}, dtype=torch.float32)"
    return Fix(prose, (provenance.changed(failure, change) if failure is not None else "") or f"x = {change.format('x')}")


def _needs_fractions(failure: Failure, argument: str) -> bool:
    """Whether whole numbers were given to a layer with floating-point weights that multiplies them."""
    module, given = failure.module, failure.local(argument)
    if module is None or issubclass(type(module), (nn.Embedding, nn.EmbeddingBag)):
        return False
    while type(given) is list and given:
        given = given[0]
    return type(given) is int and any(weight.dtype.is_floating_point for _, weight in stores.named_tensors(module))


def _list_member(failure: Failure, match: re.Match[str]) -> Cause:
    kind = match[2].rpartition(".")[2]
    return Cause(
        f"cat or stack got {_said(kind)} among its tensors: number {match[1]}{failure.within}.",
        "",
        f"{_said(kind, bare=True)} ≠ Tensor",
        (("given", _said(kind, bare=True)), ("expected", "Tensor")),
        (_by_kind(kind, "x"),),
    )


def _container(failure: Failure, match: re.Match[str]) -> Cause | None:
    """A module without a forward was called."""
    call = failure.failing
    if call is None:
        return None
    name = call.type
    maker = getattr(vars(type(call.module)).get("__init__"), "__code__", None)
    inside = maker is not None and any(getattr(constant, "co_name", "") == "forward" for constant in maker.co_consts)
    held: dict[str, Any] = {n: c for n, c in stores.named_children(call.module) if c is not None}
    facts = (("class", name), ("children", format.plural(len(held), "module")))
    if issubclass(type(call.module), (nn.ModuleList, nn.ModuleDict)):
        return Cause(
            f"{failure.subject if failure.failing.path else f'A {name}'} holds modules, but does not run them."
            if failure.failing is not None
            else "",
            f"{name} has no forward.",
            "no forward",
            facts,
            _by_hand(failure, call, next(iter(held), "name")),
        )
    near = [attr for cls in type(call.module).__mro__[:-1] for attr in vars(cls) if cls.__module__ != "torch.nn.modules.module"]
    close = [attr for attr in nearest("forward", near, 3) if callable(getattr(type(call.module), attr, None)) and attr != "forward"]
    typo = next(
        (attr for attr in close if attr.lower().strip("_") in ("foward", "forwad", "forwards", "forword", "froward", "forward", "fowrard")),
        "",
    )
    more = f"It has {typo!r}, which PyTorch does not look for." if typo else "Calling a module runs its forward."
    fix = Fix("Write it in the class, not inside __init__:", "def forward(self, x):\n    return ...")
    if typo:
        fix = Fix("Rename it:", f"def forward(self, ...):  # not {typo}")
    elif inside:
        more = "It is defined inside __init__, so it is only a local name there."
        fix = Fix("Unindent it, so that it is beside __init__:", "def forward(self, x):\n    return ...")
    return Cause(
        f"{failure.subject} has no forward: {'it' if failure.subject == name else name} does not say what it computes.",
        more,
        "no forward",
        facts,
        (fix,),
    )


def _by_hand(failure: Failure, call: ModuleFrame, first: str) -> tuple[Fix, ...]:
    layers = _layers(call)
    if issubclass(type(call.module), nn.ModuleDict):
        user = failure.user
        call_of_it = user.expression() if user is not None else None
        code = f"{layers}[{first!r}](x)"
        if user is not None and isinstance(call_of_it, ast.Call):
            chosen = ast.Subscript(call_of_it.func, ast.Constant(first), ast.Load())
            code = source_code.rewritten(user, call_of_it, ast.Call(chosen, call_of_it.args, call_of_it.keywords))
        return (Fix("Take the one you mean:", code),)
    return (
        Fix("Run them yourself:", f"for layer in {layers}:\n    x = layer(x)"),
        Fix("Or use something that runs them in order:", "nn.Sequential(*layers)"),
    )


def _layers(call: ModuleFrame) -> str:
    return f"self.{call.place}" if call.place and "[" not in call.place else "layers"


_T = (TypeError,)
RULES = (
    Rule("argument", _T, r"(\w+)\(\) received an invalid combination of arguments - got \(([\w.]+)[,)]", _combination),
    Rule("argument", (AttributeError, TypeError), r"^'?NoneType'? object (?:has no attribute '\w+'|is not subscriptable)", _of_none),
    Rule("argument", _T, rf"{_FORWARD} missing (\d+) required (?:positional|keyword-only) arguments?: (.+)", _missing),
    Rule("argument", _T, rf"{_FORWARD} takes .*?(\d+) positional arguments? but (\d+) (?:were|was) given", _too_many),
    Rule("argument", _T, rf"{_FORWARD} got an unexpected keyword argument '(\w+)'", _unexpected),
    Rule("argument", _T, rf"{_FORWARD} got multiple values for argument '(\w+)'", _twice),
    Rule("argument", (KeyError,), r"^", _key),
    Rule("argument", _T, r"(\w+)\(\): argument '(\w+)' \(position \d+\) must be Tensor, not ([\w.]+)", _no_tensor),
    Rule("argument", _T, r"expected Tensor as element (\d+) in argument \d+, but got ([\w.]+)", _list_member),
    Rule("no forward", (NotImplementedError,), r'is missing the required "forward" function', _container),
)
