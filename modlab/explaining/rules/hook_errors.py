"""Hooks that raise, or return what does not fit: named by module, function, file and line."""

from __future__ import annotations

import inspect
import re
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from modlab import format
from modlab.compat import tensor_hooks
from modlab.explaining import calls, suspects
from modlab.explaining.failure import Cause, Failure, Rule, message_of
from modlab.explaining.frames import Frame
from modlab.inspection import callables, stores
from modlab.inspection.callables import describe
from modlab.records.explanation import Fix

_KINDS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "full backward pre-hook",
    "_backward_hooks": "backward hook",
}
_RETURNS = {
    "forward pre-hook": Fix("A forward pre-hook returns None, or the new input (a tuple for several):", "return (x,)"),
    "forward hook": Fix("A forward hook returns None, or a new output of the same kind:", "return output"),
    "full backward pre-hook": Fix(
        "A full backward pre-hook returns None, or a tuple of as many gradients as it got:", "return (grad_outputs[0] * 2,)"
    ),
    "backward hook": Fix("A backward hook returns None, or a tuple of as many gradients as it got:", "return (grad_inputs[0] * 2,)"),
}

Named = tuple[str, str]
"""A hook's function, and where it stands."""


def named(hook: Any) -> Named:
    """Function, and file and line."""
    found = describe(callables.given(hook)[0])
    return found.function.rpartition("<locals>.")[2], found.where


def of_kind(module: Module, store: str) -> list[Named]:
    """The user's hooks in one store of a module, in order."""
    held = stores.contents(module).get(store) or {}
    return [named(hook) for hook in held.values() if not describe(callables.given(hook)[0]).machinery]


def anywhere(failure: Failure, store: str) -> list[tuple[str, str, str]]:
    """Path, function and place of the user's hooks of one kind in the models of the traceback."""
    roots = [(calls_root.type, calls_root.module) for calls_root in failure.calls[:1]] or failure.models[:4]
    return [(path or name, *hook) for name, root in roots for path, module in suspects.walk(root) for hook in of_kind(module, store)][:4]


def _caller(failure: Failure) -> tuple[Frame, str, Any, Module] | None:
    """The frame of torch's that called the last hook, the kind of hook, the hook, and its module."""
    for frame in reversed(failure.frames):
        if not frame.is_torch:
            continue
        file = frame.code.co_filename
        if file.endswith("module.py") and frame.function in ("inner", "_call_impl"):
            return _forward_caller(frame)
        if file.endswith("hooks.py") and frame.function == "hook":
            return _backward_caller(frame)
    return None


def _forward_caller(frame: Frame) -> tuple[Frame, str, Any, Module] | None:
    hook, module = frame.names.get("hook"), frame.owner
    if hook is None or module is None:
        return None
    held = stores.contents(module)
    ran, given = frame.names.get("result") is not None, callables.given(hook)[0]
    order = ("_forward_hooks", "_forward_pre_hooks") if ran else ("_forward_pre_hooks", "_forward_hooks")
    for store in order:
        if any(callables.given(known)[0] is given for known in (held.get(store) or {}).values()):
            return frame, _KINDS[store], hook, module
    return frame, "global hook", hook, module


def _backward_caller(frame: Frame) -> tuple[Frame, str, Any, Module] | None:
    holder = frame.names.get("self")
    module = getattr(holder, "module", None)
    if module is None or not stores.is_module(module):
        return None
    pre = frame.names.get("user_pre_hook")
    hook = frame.names.get("hook") or frame.names.get("user_hook")
    if hook is not None or pre is None:
        hooks = getattr(holder, "user_hooks", [])
        hook = hook if any(known is hook for known in hooks) else (hooks[-1] if len(hooks) == 1 else hook)
        return (frame, _KINDS["_backward_hooks"], hook, module) if hook is not None else None
    return frame, _KINDS["_backward_pre_hooks"], pre, module


def place(failure: Failure, module: Module) -> str:
    """How a sentence calls a hook's module: its path, where a model is in sight."""
    for call in reversed(failure.calls):
        if call.module is module:
            return call.place or call.type
    for _, root in failure.models[:4]:
        path = calls.path_to(root, module)
        if path is not None:
            return path or type(module).__name__
    return type(module).__name__


class RunningHook(NamedTuple):
    """A hook of a user's.

    Attributes:
        kind: "forward hook".
        function: its name.
        where: file and line.
        owner: how the module is called that it is on.
    """

    kind: str
    function: str
    where: str
    owner: str


def running(failure: Failure) -> RunningHook | None:
    """The hook of a user's in whose own code the error arose."""
    found = _caller(failure)
    own_code = _code_of(failure, *found) if found is not None else None
    if found is None or own_code is None or not own_code.is_users:  # torch's machinery works by hooks, too
        return None
    place_of_it = next(i for i, one in enumerate(failure.frames) if one is own_code)
    if any(one.is_torch and one.owner is not None for one in failure.frames[place_of_it + 1 :]):
        return None  # it called a module, and that failed
    _, kind, hook, module = found
    return RunningHook(kind, *named(hook), place(failure, module))


def _code_of(failure: Failure, frame: Frame, kind: str, hook: Any, module: Module) -> Frame | None:
    """The frame of a hook's own code, if the error came out of it and of no module that it called."""
    position = next(i for i, one in enumerate(failure.frames) if one is frame)
    function = callables.anchor(callables.given(hook)[0])
    later = [one for one in failure.frames[position + 1 :] if one.is_users or one.is_torch]  # a trace stands between
    if function is None or not later or later[0].code is not function.__code__:
        return None
    return later[0]


def raised_in(failure: Failure) -> Cause | None:
    """What to say if the error came out of a hook's own code."""
    found = _caller(failure)
    own_code = _code_of(failure, *found) if found is not None else None
    if found is None or own_code is None:
        return None
    _, kind, hook, module = found
    name, where = named(hook)
    on = place(failure, module)
    missing = "backward" in kind and any(
        argument is None for value in own_code.names.values() if type(value) is tuple for argument in value
    )
    error = f"{type(failure.error).__name__}: {format.cut(failure.message.splitlines()[0] if failure.message else '', 120)}"
    if missing:
        return Cause(
            f"The {kind} {name} on {on} got None as a gradient, but used it as a tensor.",
            f"{on}'s input requires no gradient, as in the first layer of any net, so there is none.",
            f"{kind} {name} raised",
            (("hook", f"{name}, {where}"), ("raised", error)),
            (Fix("Leave None unchanged:", "return tuple(None if g is None else ... for g in grad_inputs)"),),
        )
    return Cause(
        f"The {kind} {name} on {on} raised the {type(failure.error).__name__}: {format.cut(failure.message, 200).rstrip('.')}.",
        f"It is defined at {where}.",
        f"{kind} {name} raised",
        (("hook", f"{name}, {where}"), ("raised", error)),
        (),
    )


def _raised(failure: Failure, _: re.Match[str]) -> Cause | None:
    return raised_in(failure)


def changed_arguments(failure: Failure, hooks: list[Named], before: int, after: int, taken: list[str]) -> Cause:
    """A forward pre-hook made several arguments of one."""
    name, where = hooks[-1]
    return Cause(
        f"The forward pre-hook {name} on {failure.subject} made {after} arguments of {before}.",
        f"It is defined at {where}; forward takes {', '.join(taken)}.",
        f"{after} arguments from pre-hook {name}",
        (("hook", f"{name}, {where}"), ("arguments before", str(before)), ("arguments after", str(after))),
        (_RETURNS["forward pre-hook"],),
    )


def _with_kwargs(failure: Failure, match: re.Match[str]) -> Cause | None:
    found = _caller(failure)
    if found is None:
        return None
    _, kind, hook, module = found
    name, where = named(hook)
    return Cause(
        f"The {kind} {name} on {place(failure, module)} returned {format.cut(match[1], 60)}, and should return None or (args, kwargs).",
        f"It is defined at {where}, and was registered with_kwargs=True.",
        f"{kind} {name} returned {format.cut(match[1], 40)}",
        (("hook", f"{name}, {where}"), ("returned", format.cut(match[1], 200))),
        (Fix("Both, the first as a tuple:", "return (x,), kwargs"),),
    )


def _wrong_number(failure: Failure, match: re.Match[str]) -> Cause | None:
    found = _caller(failure)
    if found is None:
        return None
    _, kind, hook, module = found
    name, where = named(hook)
    given, expected = match[1], match[2]
    return Cause(
        f"The {kind} {name} on {place(failure, module)} returned {format.plural(int(given), 'gradient')} for {expected}.",
        f"It is defined at {where}.",
        f"{given} ≠ {expected} gradients",
        (("hook", f"{name}, {where}"), ("returned", given), ("expected", expected)),
        (_RETURNS.get(kind, _RETURNS["backward hook"]),),
    )


def _no_length(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``len`` of what a backward hook returned failed."""
    inner = failure.inner
    if inner is None or inner.function != "hook" or not inner.is_torch:
        return None
    found = _caller(failure)
    if found is None:
        return None
    _, kind, hook, module = found
    name, where = named(hook)
    return Cause(
        f"The {kind} {name} on {place(failure, module)} returned a bare {match[1]}, and should return a tuple of gradients.",
        f"It is defined at {where}.",
        f"{kind} {name} returned {match[1]}",
        (("hook", f"{name}, {where}"), ("returned", match[1]), ("expected", "None, or a tuple")),
        (_RETURNS[kind],),
    )


def _signature(failure: Failure, match: re.Match[str]) -> Cause | None:
    """The call of a hook failed: it takes another number of arguments."""
    found = _caller(failure)
    if found is None or not _is_called(failure, found[0]):
        return None
    _, kind, hook, module = found
    name, where = named(hook)
    if match[1].rpartition(".")[2] not in (name.rpartition(".")[2], getattr(callables.anchor(callables.given(hook)[0]), "__name__", "")):
        return None
    wanted = {
        "forward pre-hook": "(module, args)",
        "forward hook": "(module, args, output)",
        "backward hook": "(module, grad_inputs, grad_outputs)",
        "full backward pre-hook": "(module, grad_outputs)",
    }.get(kind, "what this kind gets")
    return Cause(
        f"The {kind} {name} on {place(failure, module)} is called with {wanted}, but takes something else.",
        f"It is defined at {where}.",
        f"{kind} {name} cannot be called this way",
        (("hook", f"{name}, {where}"), ("called with", wanted), ("raised", format.cut(message_of(failure.error), 200))),
        (
            Fix(
                "",
                f"def {name.rpartition('.')[2] if name.rpartition('.')[2].isidentifier() else 'hook'}"
                f"{wanted.replace('(', '(self, ', 1) if inspect.ismethod(hook) else wanted}: ...",
            ),
        ),
    )


def _is_called(failure: Failure, caller: Frame) -> bool:
    """Whether it was the call of the hook itself that failed: behind it stand frames of ours alone (a trace's)."""
    position = next(i for i, one in enumerate(failure.frames) if one is caller)
    return all(frame.is_ours for frame in failure.frames[position + 1 :])


def replaced(failure: Failure) -> tuple[str, str, str] | None:
    """The pre-hook that has changed what the innermost module is given: its function, where it stands, and the module that it is on.

    Only where there is no other: which of several it was cannot be seen afterwards.
    """
    call = failure.failing
    if call is None or call.given is None or call.args is None:
        return None
    same = len(call.given) == len(call.args) and all(one is other for one, other in zip(call.given, call.args, strict=True))
    hooks = of_kind(call.module, "_forward_pre_hooks")
    return None if same or len(hooks) != 1 else (*hooks[0], call.label)


def _of_tensor(failure: Failure, match: re.Match[str]) -> Cause | None:
    """A tensor's hook, or torch's own around a module's, gave a gradient that does not fit. Autograd calls these; no frame shows them."""
    wrong = match[1]
    hooked = _tensor_hooks(failure)
    size = "has changed the size" in match[0]
    if not size:  # no hook's name, but the class of what it gave: which of them it was is not said
        return _some_hook(failure, wrong, hooked)
    modules = [
        (path, type(module).__name__, *hook)
        for _, root in failure.models[:4]
        for path, module in suspects.walk(root)
        for hook in of_kind(module, "_backward_hooks")
    ]
    if wrong == "hook" and len(modules) == 1:
        path, cls, name, where = modules[0]
        return Cause(
            f"The backward hook {name} on {path or cls} returned a gradient of a different shape than it got.",
            f"It is defined at {where}.",
            "",
            (("hook", f"{name}, {where}"), ("on", path or cls)),
            (Fix("A gradient has the same shape as its tensor:", "return tuple(torch.zeros_like(g) for g in grad_inputs)"),),
        )
    fitting = [one for one in hooked if one[1].rpartition(".")[2] == wrong.rpartition(".")[2]]
    said, fix = "returned a gradient of a different shape than it got", Fix("Use the tensor's shape:", "return torch.zeros_like(grad)")
    if wrong == "hook" or len(fitting) != 1:
        listed = [f"{on}: {name} ({where})" for on, name, where in fitting] or [f"{p or c}: {n} ({w})" for p, c, n, w in modules]
        return Cause(
            f"A hook on a tensor {said}.",
            f"Possible ones: {', '.join(listed[:4])}." if listed else "",
            "",
            tuple(("hook", one) for one in listed[:8]),
            (fix,),
        )
    tensor, name, where = fitting[0]
    return Cause(
        f"The hook {name} on {tensor} {said}.", f"It is defined at {where}.", "", (("hook", f"{name}, {where}"), ("on", tensor)), (fix,)
    )


def _some_hook(failure: Failure, wrong: str, hooked: list[tuple[str, str, str]]) -> Cause:
    """Autograd called a hook that gave no gradient: it is named only where there is no other."""
    modules = [
        (path or type(module).__name__, *hook)
        for _, root in failure.models[:4]
        for path, module in suspects.walk(root)
        for store in ("_backward_hooks", "_backward_pre_hooks")
        for hook in of_kind(module, store)
    ]
    every = [*((f"the tensor {on}", name, where) for on, name, where in hooked), *modules]
    fix = Fix("A hook of backward returns None, or a gradient of the same shape (that of a module: a tuple of them).")
    listed = [f"{name} on {on} ({where})" for on, name, where in every[:4]]
    told = f"{'The only possible one is' if len(listed) == 1 else 'Possible ones are'} {', '.join(listed)}." if listed else ""
    return Cause(
        f"A hook returned {format.article(wrong)}, which is not a gradient.",
        told,
        "",
        tuple(("hook", one) for one in listed),
        (fix,),
    )


def _tensor_hooks(failure: Failure) -> list[tuple[str, str, str]]:
    """The hooks on the tensors that the user's frames have names for, and on parameters: name of the tensor, function, place."""
    user = failure.user
    pairs: list[tuple[str, Any]] = [] if user is None else [(n, t) for n, t in list(user.names.items()) if issubclass(type(t), Tensor)]
    pairs += [
        (f"{path}.{own}" if path else own, t)
        for _, root in failure.models[:4]
        for path, module in suspects.walk(root)
        for own, t in stores.named_tensors(module)
    ]
    found = []
    for name, tensor in pairs:
        found += [(name, *named(hook)) for _, held in tensor_hooks(tensor) for hook in held.values()]
    return found


def _both_kinds(failure: Failure, _: re.Match[str]) -> Cause:
    old = of_kind(failure.module, "_backward_hooks") if failure.module is not None else []
    return Cause(
        f"{failure.subject} already has a backward hook of the other kind.",
        "A module can have full backward hooks or legacy ones, not both.",
        "",
        tuple(("there already", f"{name}, {where}") for name, where in old),
        (Fix("Use the full kind for both:", "layer.register_full_backward_hook(hook)"),),
    )


_T, _R = (TypeError,), (RuntimeError,)
RULES = (
    Rule("hook", _R, r"forward pre-hook must return None or a tuple of \(new_args, new_kwargs\), but got (.*)\.$", _with_kwargs),
    Rule(
        "hook", _R, r"Backward (?:pre )?hook returned an invalid number of grad_(?:in|out)put, got (\d+), but expected (\d+)", _wrong_number
    ),
    Rule("hook", _T, r"object of type '(\w+)' has no len\(\)", _no_length),
    Rule("hook", _T, r"^([\w.<>]+)\(\) (?:takes|missing|got)", _signature),
    Rule("hook", _T, r"expected Variable, but hook returned '(\w+)'", _of_tensor),
    Rule("hook", _R, r"hook '([^']+)' has changed the size of value", _of_tensor),
    Rule("hook", _R, r"Cannot use both regular backward hooks and full backward hooks", _both_kinds),
)
RAISED = (Rule("hook", (Exception,), r"^", _raised),)
"""Asked last: any error at all that came out of a hook."""
