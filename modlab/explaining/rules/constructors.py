"""Constructors: ``super().__init__()``, what they are given, and names that a module does not have."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from difflib import SequenceMatcher
from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab.errors import nearest
from modlab.explaining import source_code, super_init
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.records.explanation import Fix


def _constructor(failure: Failure, module: Module) -> Frame | None:
    return next((f for f in reversed(failure.frames) if f.function == "__init__" and f.is_users and f.owner is module), None)


def _before_super(failure: Failure, match: re.Match[str]) -> Cause | None:
    what = {"parameters": "a parameter", "buffer": "a buffer", "module": "a module"}.get(match[1], "a module")
    return _too_early(failure, f"assigns {what}", f"there is nowhere to register {what}")


def _too_early(failure: Failure, does: str, lack: str) -> Cause | None:
    """What to say where a constructor was running, and nn.Module's had not run."""
    module = failure.module
    if module is None or stores.initialized(module):
        return None
    frame = _constructor(failure, module)
    if frame is None:
        return None
    owner = next((cls for cls in type(module).__mro__ if getattr(vars(cls).get("__init__"), "__code__", None) is frame.code), type(module))
    name = owner.__name__
    found = super_init.sites(frame.code, owner, frame.globals)
    fix = Fix("Put it first in the constructor:", _begun_by_super(owner))
    if dataclasses.is_dataclass(owner):
        fix = Fix("A dataclass's constructor assigns immediately. Write it yourself, without @dataclass:", _written_out(owner))
    if any(place < frame.offset for place in found):
        other = _between(type(module), owner)
        if other is None:
            return None
        among = other in owner.__bases__ and len(owner.__bases__) > 1
        return Cause(
            f"{name}'s super().__init__() is that of {other.__name__}, which does not call nn.Module's.",
            f"{name} has {other.__name__} before nn.Module among its bases." if among else f"{name} derives from {other.__name__}.",
            "",
            (("line", frame.source),),
            (Fix(f"Let {other.__name__} pass it on:", _begun_by_super(other)),),
        )
    if found:
        said = f"{name} calls super().__init__() too late: it {does} before that"
    else:
        said = (
            f"{name} {does} before super().__init__() has run"
            if super_init.elsewhere(owner)
            else (f"{name}'s constructor never calls super().__init__()")
        )
    return Cause(
        f"{said}.",
        f"{'Without it' if 'never' in said else 'Until then'} {lack}.",
        "",
        (("line", frame.source),),
        (fix,),
    )


_STATEMENTS = 8  # of a constructor that is written out


def _begun_by_super(cls: type) -> str:
    """A class with its constructor as it is, but for ``super().__init__(...)``, which stands first; nothing without its source.

    Nothing either where it stands inside of a statement, or in another method: called twice, it would empty the module again.
    """
    maker = vars(cls).get("__init__")
    body = source_code.of_code(maker.__code__) if inspect.isfunction(maker) else None
    if maker is None or body is None or sum(len(ast.unparse(one).splitlines()) for one in body.tree.body) > _STATEMENTS:
        return ""
    calls = [one for one in body.tree.body if _calls_base(one, cls, maker.__globals__)]
    if len(calls) != len(super_init.sites(maker.__code__, cls, maker.__globals__)) or len(calls) > 1 or super_init.elsewhere(cls):
        return ""
    rest = [one for one in body.tree.body if one not in calls]
    first = [*map(ast.unparse, calls)] or ["super().__init__()"]
    lines = [line for text in [*first, *map(ast.unparse, rest)] for line in text.splitlines()]
    bases = ", ".join("nn.Module" if base is Module else base.__name__ for base in cls.__bases__ if base is not object)
    head = f"class {cls.__name__}({bases}):" if bases else f"class {cls.__name__}:"
    return "\n".join([head, f"    def __init__({ast.unparse(body.tree.args)}):", *(f"        {line}" for line in lines)])


def _calls_base(statement: ast.stmt, cls: type, known: dict[str, Any]) -> bool:
    """Whether a statement is ``super().__init__(...)`` or ``Base.__init__(self, ...)``, and nothing else."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "__init__":
        return False
    of = call.func.value
    name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
    base = any(base.__name__ == name or known.get(name) is base for base in cls.__mro__)
    return base or (isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "super")


def signature(cls: type, name: str) -> str:
    """The first line of a constructor, as a class has it under another name."""
    maker = vars(cls).get(name)
    body = source_code.of_code(maker.__code__) if inspect.isfunction(maker) else None
    return f"def __init__({ast.unparse(body.tree.args) if body is not None else 'self'}): ..."


def _written_out(cls: type) -> str:
    """A dataclass of modules as a class with a constructor; nothing where a default cannot be written."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    if any(field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING for field in fields):
        return ""
    names = [field.name for field in fields]
    bases = ", ".join("nn.Module" if base is Module else base.__name__ for base in cls.__bases__)
    lines = [f"        self.{name} = {name}" for name in names]
    return "\n".join(
        [f"class {cls.__name__}({bases}):", f"    def __init__({', '.join(['self', *names])}):", "        super().__init__()", *lines]
    )


def _between(cls: type, owner: type) -> type | None:
    """The class whose constructor ``super().__init__()`` of `owner` runs, if that is not nn.Module's."""
    mro = cls.__mro__
    later = [base for base in mro[mro.index(owner) + 1 :] if "__init__" in vars(base)]
    return later[0] if later and later[0] not in (Module, object) else None


def _no_store(failure: Failure, match: re.Match[str]) -> Cause | None:
    """A private store is missing: the module was used although its constructor never ran the base class's."""
    module = failure.module
    if module is None or stores.initialized(module):
        return None
    early = _too_early(failure, f"needs {match[2]}", f"it has no {match[2]} and no other store")
    if early is not None:
        return early
    name = type(module).__name__
    return Cause(
        f"{name} was never initialized: its constructor does not call super().__init__().",
        f"So it has no {match[2]} and no other store.",
        "never initialized",
        (("missing", match[2]),),
        (Fix("Put it first in the constructor:", _begun_by_super(type(module))),),
    )


_OF_TENSORS = {
    "device": "next({0}.parameters()).device",
    "dtype": "next({0}.parameters()).dtype",
    "shape": "[p.shape for p in {0}.parameters()]",
    "grad": "[p.grad for p in {0}.parameters()]",
}


_ALIKE, _VERY = 0.5, 0.75  # from here on a name of the module's own is proposed, and one that every module has


def _with_attribute(failure: Failure, wanted: str, meant: str) -> str:
    """The expression that asked for a name, with another one; nothing where it is not known."""
    expression = failure.user.expression() if failure.user is not None else None
    node = expression.func if isinstance(expression, ast.Call) else expression
    if not isinstance(node, ast.Attribute) or node.attr != wanted:
        return ""
    return f"{ast.unparse(node.value)}.{meant}"


def _no_attribute(failure: Failure, match: re.Match[str]) -> Cause | None:
    module = failure.module
    if module is None or failure.inner is None or failure.inner.function != "__getattr__" or type(module).__name__ != match[1]:
        return None
    wanted = match[2]
    if wanted in stores.STANDARD and not stores.initialized(module):
        return _no_store(failure, match)
    cls, held = type(module), stores.contents(module)
    if any(wanted in vars(base) for base in cls.__mro__):
        return Cause(
            f"{cls.__name__}.{wanted} is a property, and its own code raised an AttributeError.",
            "Python then asks the module for the name, which hides the first error.",
            "",
            (("property", wanted),),
            (Fix("Call its function to see that error:", f"type(model).{wanted}.fget(model)"),),
        )
    own = [name for store in ("_modules", "_parameters", "_buffers") for name in held.get(store) or ()]
    plain = [name for name in held if name not in stores.STANDARD]
    methods = [name for base in cls.__mro__ for name in vars(base) if not name.startswith("_")]
    alike = {one: SequenceMatcher(None, wanted, one).ratio() for one in nearest(wanted, [*own, *plain, *methods], 3)}
    close = [one for one, ratio in alike.items() if ratio >= (_ALIKE if one in own or one in plain else _VERY)]
    inside = [(name, child) for name, child in stores.named_children(module) if child is not None]
    wrapped = next(
        (
            name
            for name, child in inside
            if len(inside) == 1
            and (
                hasattr(type(child), wanted)
                or any(wanted in (stores.contents(child).get(store) or {}) for store in ("_modules", "_parameters", "_buffers"))
            )
        ),
        "",
    )
    typo = next((n for n in vars(cls) if re.fullmatch(r"_+[a-z]+_+", n) and n.strip("_") == "init" and n != "__init__"), "")
    fixes = []
    if typo:
        fixes.append(Fix(f"{typo} is not Python's constructor, so nothing in it has run:", signature(cls, typo)))
    elif wrapped:
        fixes.append(
            Fix("The module inside it has one:", f"model[{wrapped}].{wanted}" if wrapped.isdigit() else f"model.{wrapped}.{wanted}")
        )
    elif wanted in _OF_TENSORS and wanted not in own:
        fixes.append(
            Fix("Tensors have that, but modules do not; each of its parameters can have its own:", _OF_TENSORS[wanted].format("model"))
        )
    elif not close and hasattr(Tensor, wanted) and cls.__module__.startswith("torch.nn.modules."):
        fixes.append(Fix("Tensors have that, but this is a module: call it and use its output."))
    elif close:
        fixes.append(Fix(f"Nearest: {close[0]}.", _with_attribute(failure, wanted, close[0])))
    subject = failure.subject or cls.__name__
    listed = ", ".join(own[:8]) or "no module, parameter or buffer"
    return Cause(
        f"{subject} has no {wanted!r}" + (f" ({cls.__name__})." if subject != cls.__name__ and "(" not in subject else "."),
        f"It has {listed}{', …' if len(own) > 8 else ''}.",
        f"no {wanted!r}",
        (("asked for", wanted), ("there is", listed)),
        tuple(fixes),
    )


def _base_arguments(failure: Failure, match: re.Match[str]) -> Cause | None:
    inner = failure.inner
    if inner is None or inner.function != "__init__" or not inner.is_torch or not inner.code.co_filename.endswith("module.py"):
        return None
    name = failure.failing.type if failure.failing is not None else "The class"
    return Cause(
        f"{name} passes arguments to nn.Module, which takes none.",
        "Call super().__init__() without them.",
        "",
        (),
        (Fix("", "super().__init__()"),),
    )


def _skip_init(failure: Failure, _: re.Match[str]) -> Cause:
    cls = failure.local("module_cls")
    name = cls.__name__ if isinstance(cls, type) else "The module"
    return Cause(
        f"{name}'s constructor has no device argument, which skip_init needs.",
        "It builds the module on the meta device, where nothing is initialized.",
        "",
        (("class", name),),
        (
            Fix(
                "Pass device and dtype on to every parameter:",
                "def __init__(self, device=None, dtype=None):\n    self.weight = nn.Parameter(torch.empty(3, device=device, dtype=dtype))",
            ),
            Fix("Or build it there without skip_init:", f"with torch.device('meta'):\n    model = {name}(...)"),
        ),
    )


RULES = (
    Rule("super().__init__", (AttributeError,), r"cannot assign (\w+) before Module\.__init__\(\) call", _before_super),
    Rule("super().__init__", (AttributeError,), r"^'([^']+)' object has no attribute '(_[^']+)'", _no_store),
    Rule("attribute", (AttributeError,), r"^'([^']+)' object has no attribute '([^']+)'", _no_attribute),
    Rule(
        "super().__init__",
        (TypeError,),
        r"__init__\(\) takes 1 positional argument but \d+ were given|__init__\(\) got an unexpected keyword argument",
        _base_arguments,
    ),
    Rule("constructor", (RuntimeError,), r"Module must support a 'device' arg to skip initialization", _skip_init),
)
