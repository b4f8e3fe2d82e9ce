"""Building: ``super().__init__()``, names that do not exist, what cannot be registered, and optimizers without parameters."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn import Module

from modlab import format
from modlab.errors import nearest
from modlab.inspection import ghosts, stores
from modlab.instrumentation.accidents import advice, bodies, operands, sources, supers
from modlab.instrumentation.accidents.frames import Frame
from modlab.instrumentation.accidents.scene import Family, Scene, Verdict
from modlab.records.explanation import Fix

_ASKED = 2_000  # modules asked for what they hide


def _constructor(scene: Scene, module: Module) -> Frame | None:
    return next((f for f in reversed(scene.frames) if f.function == "__init__" and f.is_users and f.owner is module), None)


def _before_super(scene: Scene, match: re.Match[str]) -> Verdict | None:
    what = {"parameters": "a parameter", "buffer": "a buffer", "module": "a module"}.get(match[1], "a module")
    return _too_early(scene, f"assigns {what}", f"there is no store to register {what} in")


def _too_early(scene: Scene, does: str, lack: str) -> Verdict | None:
    """What to say where a constructor was running, and nn.Module's had not run."""
    module = scene.module
    if module is None or stores.initialized(module):
        return None
    frame = _constructor(scene, module)
    if frame is None:
        return None
    owner = next((cls for cls in type(module).__mro__ if getattr(vars(cls).get("__init__"), "__code__", None) is frame.code), type(module))
    name = owner.__name__
    found = supers.sites(frame.code, owner, frame.globals)
    fix = Fix("Put it first in the constructor:", _begun_by_super(owner))
    if dataclasses.is_dataclass(owner):
        fix = Fix("A dataclass's constructor assigns at once. Write it out, without @dataclass:", _written_out(owner))
    if any(place < frame.offset for place in found):
        other = _between(type(module), owner)
        if other is None:
            return None
        among = other in owner.__bases__ and len(owner.__bases__) > 1
        return Verdict(
            f"{name}'s super().__init__() is that of {other.__name__}, which does not call nn.Module's.",
            f"{name} has {other.__name__} before nn.Module among its bases." if among else f"{name} derives from {other.__name__}.", "",
            (("line", frame.text),), (Fix(f"Let {other.__name__} pass it on:", _begun_by_super(other)),),
        )  # fmt: skip
    if found:
        said = f"{name} calls super().__init__() too late: it {does} before that"
    else:
        said = f"{name} {does} before super().__init__() has run" if supers.elsewhere(owner) else (
            f"{name}'s constructor never calls super().__init__()")  # fmt: skip
    return Verdict(
        f"{said}.", f"{'Without it' if 'never' in said else 'Until then'} {lack}.", "", (("line", frame.text),), (fix,),
    )  # fmt: skip


_STATEMENTS = 8  # of a constructor that is written out


def _begun_by_super(cls: type) -> str:
    """A class with its constructor as it is, but for ``super().__init__(...)``, which stands first; nothing without its source.

    Nothing either where it stands inside of a statement, or in another method: called twice, it would empty the module again.
    """
    maker = vars(cls).get("__init__")
    body = bodies.of_code(maker.__code__) if inspect.isfunction(maker) else None
    if maker is None or body is None or sum(len(ast.unparse(one).splitlines()) for one in body.tree.body) > _STATEMENTS:
        return ""
    calls = [one for one in body.tree.body if _calls_base(one, cls, maker.__globals__)]
    if len(calls) != len(supers.sites(maker.__code__, cls, maker.__globals__)) or len(calls) > 1 or supers.elsewhere(cls):
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


def _signature(cls: type, name: str) -> str:
    """The first line of a constructor that has another name as it is."""
    maker = vars(cls).get(name)
    body = bodies.of_code(maker.__code__) if inspect.isfunction(maker) else None
    return f"def __init__({ast.unparse(body.tree.args) if body is not None else 'self'}): ..."


def _written_out(cls: type) -> str:
    """A dataclass of modules as a class with a constructor; nothing where a default cannot be written."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    if any(field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING for field in fields):
        return ""
    names = [field.name for field in fields]
    bases = ", ".join("nn.Module" if base is Module else base.__name__ for base in cls.__bases__)
    lines = [f"        self.{name} = {name}" for name in names]
    return "\n".join([f"class {cls.__name__}({bases}):", f"    def __init__({', '.join(['self', *names])}):",
        "        super().__init__()", *lines])  # fmt: skip


def _between(cls: type, owner: type) -> type | None:
    """The class whose constructor ``super().__init__()`` of `owner` runs, if that is not nn.Module's."""
    mro = cls.__mro__
    later = [base for base in mro[mro.index(owner) + 1 :] if "__init__" in vars(base)]
    return later[0] if later and later[0] not in (Module, object) else None


def _no_store(scene: Scene, match: re.Match[str]) -> Verdict | None:
    """A private store is missing: the module was used although its constructor never ran the base class's."""
    module = scene.module
    if module is None or stores.initialized(module):
        return None
    early = _too_early(scene, f"needs {match[2]}", f"it has no {match[2]}, nor any other store")
    if early is not None:
        return early
    name = type(module).__name__
    return Verdict(
        f"{name} was never initialised: its constructor does not call super().__init__().",
        f"So it has no {match[2]}, nor any other store.", "never initialised", (("missing", match[2]),),
        (Fix("Put it first in the constructor:",
            _begun_by_super(type(module))),),
    )  # fmt: skip


_OF_TENSORS = {
    "device": "next({0}.parameters()).device",
    "dtype": "next({0}.parameters()).dtype",
    "shape": "[p.shape for p in {0}.parameters()]",
    "grad": "[p.grad for p in {0}.parameters()]",
}


_ALIKE, _VERY = 0.5, 0.75  # from here on a name of the module's own is proposed, and one that every module has


def _with_attribute(scene: Scene, wanted: str, meant: str) -> str:
    """The expression that asked for a name, with another one; nothing where it is not known."""
    expression = scene.user.expression() if scene.user is not None else None
    node = expression.func if isinstance(expression, ast.Call) else expression
    if not isinstance(node, ast.Attribute) or node.attr != wanted:
        return ""
    return f"{ast.unparse(node.value)}.{meant}"


def _no_attribute(scene: Scene, match: re.Match[str]) -> Verdict | None:
    module = scene.module
    if module is None or scene.inner is None or scene.inner.function != "__getattr__" or type(module).__name__ != match[1]:
        return None
    wanted = match[2]
    if wanted in stores.STANDARD and not stores.initialized(module):
        return _no_store(scene, match)
    cls, held = type(module), stores.contents(module)
    if any(wanted in vars(base) for base in cls.__mro__):
        return Verdict(
            f"{cls.__name__}.{wanted} is a property, and its own code raised an AttributeError.",
            "Python then asks the module for the name, which hides the first error.", "", (("property", wanted),),
            (Fix("Call its function to see that error:", f"type(model).{wanted}.fget(model)"),),
        )  # fmt: skip
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
        fixes.append(Fix(f"{typo} is not Python's constructor, so nothing in it has run:", _signature(cls, typo)))
    elif wrapped:
        fixes.append(
            Fix("The module inside it has one:", f"model[{wrapped}].{wanted}" if wrapped.isdigit() else f"model.{wrapped}.{wanted}")
        )
    elif wanted in _OF_TENSORS and wanted not in own:
        fixes.append(
            Fix("Tensors have that, modules have not; each of its parameters can have another:", _OF_TENSORS[wanted].format("model"))
        )
    elif close:
        fixes.append(Fix(f"Nearest: {close[0]}.", _with_attribute(scene, wanted, close[0])))
    subject = scene.subject or cls.__name__
    listed = ", ".join(own[:8]) or "no module, parameter or buffer"
    return Verdict(
        f"{subject} has no {wanted!r}" + (f" ({cls.__name__})." if subject != cls.__name__ and "(" not in subject else "."),
        f"It has {listed}{', …' if len(own) > 8 else ''}.", f"no {wanted!r}",
        (("asked for", wanted), ("there is", listed)), tuple(fixes),
    )  # fmt: skip


def _base_arguments(scene: Scene, match: re.Match[str]) -> Verdict | None:
    inner = scene.inner
    if inner is None or inner.function != "__init__" or not inner.is_torch or not inner.code.co_filename.endswith("module.py"):
        return None
    name = scene.failing.type if scene.failing is not None else "The class"
    return Verdict(
        f"{name} passes arguments on to nn.Module, which takes none.", "super().__init__() is called without them.", "", (),
        (Fix("", "super().__init__()"),),
    )  # fmt: skip


def _not_a_module(scene: Scene, match: re.Match[str]) -> Verdict:
    what = match[1]
    given = scene.local("module")
    short = what.rpartition(".")[2]
    holder = scene.failing.type if scene.failing is not None else "A module"
    if type(given) is type or issubclass(type(given), type):
        said, fix = f"the class {short} itself", Fix("Make one:", f"nn.{short}()" if hasattr(nn, short) else f"{short}()")
    elif type(given) in (list, tuple):
        said, fix = (
            f"a {type(given).__name__} of modules",
            Fix("Unpack it:", f"nn.{holder}(*layers)" if holder == "Sequential" else "nn.ModuleList(layers)"),
        )
    elif callable(given):
        known = {
            "relu": "nn.ReLU()",
            "tanh": "nn.Tanh()",
            "sigmoid": "nn.Sigmoid()",
            "softmax": "nn.Softmax(dim=-1)",
            "flatten": "nn.Flatten()",
        }
        said, fix = f"the function {short}", Fix("Take the module that does the same:", known.get(short, "class Step(nn.Module): ..."))
    else:
        said, fix = f"a {short}", Fix("It takes instances of nn.Module only.")
    return Verdict(f"{holder} takes modules, and got {said}.", "", "", (("given", said), ("expected", "an nn.Module")), (fix,))


def _taken(scene: Scene, match: re.Match[str]) -> Verdict | None:
    module, name = scene.module, match[1]
    if module is None:
        return None
    held, cls = stores.contents(module), type(module).__name__
    kinds = {"_parameters": "a parameter", "_buffers": "a buffer", "_modules": "a module"}
    kind = next((word for store, word in kinds.items() if name in (held.get(store) or {})), "")
    mapping = type(module) in (nn.ModuleDict, nn.ParameterDict)
    if name in stores.STANDARD:
        why, own = "every module has it as an attribute", False
    elif _is_of_class(module, name):
        why, own = f"every {cls} has it as a method or attribute", False
    else:
        why, own = f"it is {kind} already" if kind else "it was assigned before, as a plain attribute", True
    if own and not kind and not mapping and scene.inner is not None:
        fix = Fix("Register it at once, and do not assign it first:", f'self.{scene.inner.function}("{name}", ...)')
    else:
        fix = _other_name(scene, name, f"{name}_", f"Take another {'key' if mapping else 'name'}")
    return Verdict(
        f"{scene.subject} has {name!r} already: nothing can be registered under that name.", f"{why[0].upper()}{why[1:]}.", "",
        (("name", name),), (fix,),
    )  # fmt: skip


def _other_name(scene: Scene, old: str | int, new: str, said: str) -> Fix:
    """The statement with another name in it, where the old one is written there, once, as a text; else in words."""
    module, frame = scene.module, scene.user
    if module is None or new in stores.contents(module) or _is_of_class(module, new) or _is_registered(module, new):
        return Fix(f"{said}.")
    statement = bodies.statement_of(frame) if frame is not None else None
    written = [node for node in ast.walk(statement) if isinstance(node, ast.Constant)] if statement is not None else []
    places = [node for node in written if node.value == old]
    if frame is None or len(places) != 1 or any(node.value == new for node in written):
        return Fix(f"{said}, for example {new!r}.")
    return Fix(f"{said}:", bodies.rewritten(frame, places[0], ast.Constant(new)))


def _is_of_class(module: Module, name: str) -> bool:
    """Whether its class has a method or an attribute of that name."""
    return any(name in vars(base) for base in type(module).__mro__)


def _is_registered(module: Module, name: str) -> bool:
    held = stores.contents(module)
    return any(name in (held.get(store) or {}) for store in ("_parameters", "_buffers", "_modules"))


def _dotted(scene: Scene, match: re.Match[str]) -> Verdict | None:
    name = scene.local("name")
    if scene.module is None or type(name) is not str:
        return None
    return Verdict(
        f"A {match[1]}'s name cannot hold a dot: {name!r}.", "The dots of a path separate a module from what it holds.", "",
        (("name", name),), (_other_name(scene, name, name.replace(".", "_"), "Take another sign"),),
    )  # fmt: skip


def _empty_name(scene: Scene, match: re.Match[str]) -> Verdict | None:
    if scene.module is None:
        return None
    return Verdict(
        f"A {match[1]}'s name cannot be empty.", f"It is what {scene.subject} calls it by, and a part of its path.", "",
        (("name", '""'),), (Fix("Give it a name of one letter or more."),),
    )  # fmt: skip


def _no_text(scene: Scene, match: re.Match[str]) -> Verdict | None:
    name = scene.local("name")
    if scene.module is None or type(name).__name__ != match[2].rpartition(".")[2]:
        return None
    fix = _other_name(scene, name, str(name), "Write it as a text") if type(name) is int else Fix("Give it a text.")
    return Verdict(
        f"A {match[1]}'s name is a text, and this one is of type {match[2]}.", "It becomes a part of a path.", "",
        (("name", repr(name) if type(name) in (int, float, bool, type(None)) else match[2]), ("expected", "str")), (fix,),
    )  # fmt: skip


def _cannot_assign(scene: Scene, match: re.Match[str]) -> Verdict:
    given, kind, name = match[1].rpartition(".")[2], match[2], match[3]
    tensor = "Tensor" in given
    subject = scene.subject or "The module"
    holds = {"parameter": "a parameter", "buffer": "a buffer", "child module": "a module"}[kind]
    statement = bodies.statement_of(scene.user) if scene.user is not None else None
    target = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else ""
    value = ast.unparse(statement.value) if isinstance(statement, ast.Assign) else ""
    if kind == "parameter" and tensor:
        fix = Fix("Make it one:", f"{target or f'self.{name}'} = nn.Parameter({value or 'tensor'})")
    elif name.isidentifier() and re.fullmatch(r"\w+(?:\.\w+)*", target):
        fix = Fix("Take the name back first:", f"del {target}\n{target} = {value}")
    else:
        fix = Fix(f"Give it {holds}, or take another name.")
    return Verdict(
        f"{name!r} is reserved for {holds} in {subject}, and cannot take a {given}.",
        "A name that was registered keeps its kind.",
        "",
        (("given", given), ("expected", kind)),
        (fix,),
    )


def _heads(scene: Scene, _: re.Match[str]) -> Verdict | None:
    width, heads = scene.local("embed_dim"), scene.local("num_heads")
    if type(width) is not int or type(heads) is not int:
        return None
    fitting = max((n for n in range(1, heads + 1) if width % n == 0), default=1)
    return Verdict(
        f"{width} numbers cannot be shared evenly among {heads} heads.", "embed_dim must be a multiple of num_heads.", "",
        (("embed_dim", str(width)), ("num_heads", str(heads))),
        (Fix("A number of heads that divides it:", f"nn.MultiheadAttention({width}, {fitting})"),),
    )  # fmt: skip


def _skip_init(scene: Scene, _: re.Match[str]) -> Verdict:
    cls = scene.local("module_cls")
    name = cls.__name__ if isinstance(cls, type) else "The module"
    return Verdict(
        f"{name}'s constructor has no device argument, which skip_init needs.",
        "It builds the module on the meta device, where nothing is initialised.", "", (("class", name),),
        (Fix("Pass device and dtype on to every parameter:",
            "def __init__(self, device=None, dtype=None):\n    self.weight = nn.Parameter(torch.empty(3, device=device, "
            "dtype=dtype))"),
         Fix("Or build it there without skip_init:", f"with torch.device('meta'):\n    model = {name}(...)")),
    )  # fmt: skip


# ---- classes for models ------------------------------------------------------------------------------------------------------


def _class(frame: Frame) -> tuple[type, ast.Call] | None:
    """The class of modules that an expression calls, or has a method of called."""
    call = frame.expression()
    if not isinstance(call, ast.Call):
        return None
    node = call.func
    found = operands.follow(node, frame)
    if not isinstance(found, type) and isinstance(node, ast.Attribute):
        found = operands.follow(node.value, frame)
    if found is nn or not (isinstance(found, type) and issubclass(found, Module)):
        found = getattr(nn, node.attr, None) if isinstance(node, ast.Attribute) and operands.follow(node.value, frame) is nn else None
    return (found, call) if isinstance(found, type) and issubclass(found, Module) else None


def _made_first(frame: Frame | None, call: ast.Call, maker: str) -> str:
    """The statement with ``nn.MSELoss()(out, y)`` in it, where the constructor needs nothing."""
    if frame is None or "..." in maker:
        return ""
    made = ast.Call(ast.parse(maker, mode="eval").body, call.args, call.keywords)
    line = bodies.rewritten(frame, call, made)
    return line if line != ast.unparse(made) else ""


def _made_of_tensors(scene: Scene, _: re.Match[str]) -> Verdict | None:
    """``Net(x)``: the constructor got what the model was to be called with."""
    found = _constructed(scene)
    if found is None:
        return None
    frame, words = found
    made = _class(frame)
    if made is None:
        return None
    cls, call = made
    if re.search(r"Boolean|missing", scene.brief) and not cls.__module__.startswith("torch.nn."):
        return None  # a class of the user's may well take tensors
    written, name = ast.unparse(call.func), cls.__name__
    given = ", ".join(map(ast.unparse, call.args))
    maker = f"{written if '.' in written else name}({'...' if advice.parameters(cls) else ''})"
    return Verdict(
        f"{written}({given}) makes a new {name}, and calls none: {words}.",
        f"A constructor takes sizes and options; the {name} that it makes takes the tensors.", "", (("given to the constructor", given),),
        (Fix("Make it first, then call it:", _made_first(frame, call, maker) or f"model = {maker}\nmodel({given})"),),
    )  # fmt: skip


def _constructed(scene: Scene) -> tuple[Frame, str] | None:
    """The code that gave tensors to a constructor of modules, the outermost one; and what became of them."""
    for caller, frame in pairwise(scene.frames):
        if frame.function == "__init__" and frame.owner is not None and caller.is_users:
            names = frame.code.co_varnames[1 : frame.code.co_argcount]
            tensor = next((name for name in names if _is_plain(frame.names.get(name))), None)
            if tensor is not None:
                return caller, f"a tensor became its {tensor}"
    inner = scene.inner
    call = inner.expression() if inner is not None and inner.is_users else None
    if (
        inner is None
        or not isinstance(call, ast.Call)
        or not any(_is_plain(operands.follow(one, inner)) or _is_made(one) for one in call.args)
    ):
        return None
    return inner, "a tensor went to its constructor"


def _is_plain(thing: Any) -> bool:
    return issubclass(type(thing), Tensor) and not issubclass(type(thing), nn.Parameter)


def _is_made(node: ast.expr) -> bool:
    """Whether an argument is one of torch's functions that give a tensor."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "torch.randn",
        "torch.rand",
        "torch.zeros",
        "torch.ones",
        "torch.tensor",
    )


def _of_class(scene: Scene, match: re.Match[str]) -> Verdict | None:
    """``Net.forward(x)`` and ``Net.parameters()``: a method of the class, called without a model."""
    frame = scene.inner
    found = _class(frame) if frame is not None and frame.is_users else None
    if found is None or not isinstance(found[1].func, ast.Attribute) or found[1].func.attr != match[1]:
        return None
    cls, call = found
    given = ", ".join(map(ast.unparse, call.args))
    written = f"model({given})" if match[1] == "forward" else f"model.{match[1]}({given})"
    needed = advice.parameters(cls)
    return Verdict(
        f"{ast.unparse(call.func)} is called on the class, and not on a model.", f"{cls.__name__} is what models are made by.", "",
        (("class", cls.__name__), ("method", match[1])),
        (Fix("Make one first:", f"model = {cls.__name__}({'...' if needed else ''})\n{written}"),),
    )  # fmt: skip


# ---- optimizers --------------------------------------------------------------------------------------------------------------


def _optimizer(scene: Scene) -> Frame | None:
    return next((f for f in reversed(scene.frames) if f.is_torch and "/optim/" in f.code.co_filename.replace("\\", "/")), None)


def _model(scene: Scene) -> tuple[str, Module] | None:
    """The model whose parameters were passed, by the expression ``model.parameters()``."""
    frame = scene.user
    expression = frame.expression() if frame is not None else None
    for node in ast.walk(expression) if expression is not None else ():
        if isinstance(node, ast.Attribute) and node.attr in ("parameters", "named_parameters") and frame is not None:
            found = operands.follow(node.value, frame)
            if stores.is_module(found):
                return ast.unparse(node.value), found
    return scene.models[0] if scene.models else None


def _empty(scene: Scene, _: re.Match[str]) -> Verdict | None:
    if _optimizer(scene) is None:
        return None
    found = _model(scene)
    if found is None:
        return Verdict(
            "The optimizer got no parameter at all.", "An iterator that was used before is empty, too.", "", (),
            (Fix("Pass a fresh one, of a model that has parameters:", "torch.optim.SGD(model.parameters(), lr=0.1)"),),
        )  # fmt: skip
    name, model = found
    cls = type(model).__name__
    modules = list(sources.walk(model, _ASKED))
    own = sum(1 for _, module in modules for _, tensor in stores.named_tensors(module) if issubclass(type(tensor), nn.Parameter))
    frozen = own and not any(tensor.requires_grad for _, module in modules for _, tensor in stores.named_tensors(module))
    if frozen:
        return Verdict(
            f"The optimizer got an empty list: all {format.plural(own, 'parameter')} of {name} are frozen.",
            "A filter for what requires a gradient lets none through.", "", ((f"{name}: parameters that require a gradient", "0"),),
            (Fix("Let those be trained that are meant, before the optimizer is made:", f"{name}.requires_grad_(True)"),),
        )  # fmt: skip
    if own:
        return Verdict(
            f"The optimizer got an empty list, though {name} has {format.plural(own, 'parameter')}.",
            "The iterator was used up before, or a filter let none through.", "", ((f"{name}: parameters", str(own)),),
            (Fix("Make a list once, if it is needed twice:", f"parameters = list({name}.parameters())"),),
        )  # fmt: skip
    finder = ghosts.Finder(module for _, module in modules)
    hidden = [(path, ghost) for path, module in modules for ghost in finder.find(module) if not ghost.harmless]
    if hidden:
        path, ghost = hidden[0]
        place = f"{path}.{ghost.name}" if path else ghost.name
        return Verdict(
            f"{cls} has no registered parameter: {place} ({ghost.what}) is hidden from PyTorch.", f"It is {ghost.reason}.", "",
            tuple((f"{p}.{g.name}" if p else g.name, f"{g.what}, {format.plural(g.parameters, 'number')}") for p, g in hidden[:8]),
            (Fix("Register them, in the constructor:", ghost.fix),),
        )  # fmt: skip
    typo = next((n for n in vars(type(model)) if n.strip("_") == "init" and n != "__init__"), "")
    if typo:
        return Verdict(
            f"{cls} has no parameter: its constructor is called {typo}, which Python never runs.",
            "",
            "",
            (("class", cls), ("found", typo)),
            (Fix("Two underscores on each side:", _signature(type(model), typo)),),
        )
    made = sources.lines(scene, re.compile(r"nn\.(?:Linear|Conv\d?d?|Embedding|LSTM|GRU|Parameter)\("))
    more = (
        "Layers made inside forward are new at each call, and nobody owns them."
        if made
        else f"It has {format.plural(len(modules) - 1, 'module')}, none of which has any."
        if len(modules) > 1
        else ""
    )
    return Verdict(
        f"{cls} has no parameter: there is nothing to train.", more, "", (("model", name), ("modules", str(len(modules))), *made),
        (Fix("Make the layers in the constructor, as attributes:", "self.layer = nn.Linear(...)"),),
    )  # fmt: skip


def _iterable(scene: Scene, match: re.Match[str]) -> Verdict | None:
    frame = _optimizer(scene)
    given: Any = scene.local("params")
    holder = getattr(given, "__self__", None) if inspect.ismethod(given) else None
    if frame is not None and stores.is_module(holder):
        name = next((n for n, m in scene.models if m is holder), "model")
        return Verdict(
            f"The optimizer got the method {given.__name__} itself: it was not called.", "", "",
            (("given", "a method"), ("expected", "an iterable of tensors")), (Fix("Call it:", f"{name}.{given.__name__}()"),),
        )  # fmt: skip
    if frame is None or not (stores.is_module(given) or issubclass(type(given), Tensor)):
        return None
    what = type(given).__name__
    name = next((n for n, m in scene.models if m is given), "model")
    fix = Fix("Pass its parameters:", f"{name}.parameters()") if stores.is_module(given) else Fix("Put it into a list:", "[weight]")
    return Verdict(
        f"The optimizer takes parameters, and got the {what} itself.",
        "",
        "",
        (("given", what), ("expected", "an iterable of tensors")),
        (fix,),
    )


def _several_groups(scene: Scene, _: re.Match[str]) -> Verdict | None:
    return None if _optimizer(scene) is None else Verdict(
        "A parameter is in two groups of the optimizer, which would step it twice.", "", "", (),
        (Fix("Keep what has a group of its own out of the others:",
            "special = {id(p) for p in head.parameters()}\nrest = [p for p in model.parameters() if id(p) not in special]"),),
    )  # fmt: skip


def _non_leaf(scene: Scene, _: re.Match[str]) -> Verdict | None:
    return None if _optimizer(scene) is None else Verdict(
        "The optimizer got a tensor that is computed from others: only those themselves can be trained.",
        "nn.Parameter(...).to(device) and w * 0.1 are such tensors.", "", (),
        (Fix("Compute first, then make the parameter:", "nn.Parameter(torch.randn(3, device=device))"),),
    )  # fmt: skip


_A, _T, _K, _V = (AttributeError,), (TypeError,), (KeyError,), (ValueError,)
FAMILIES = (
    Family(
        "class called",
        (TypeError, RuntimeError, ValueError),
        r"__init__\(\) (?:takes (?:from )?1 |missing)|argument 'size'.*Tensor|Boolean value of Tensor|must be \w+, not Tensor",
        _made_of_tensors,
    ),
    Family("class called", _T, r"\w+\.(\w+)\(\) missing \d+ required positional arguments?", _of_class),
    Family("super().__init__", _A, r"cannot assign (\w+) before Module\.__init__\(\) call", _before_super),
    Family("super().__init__", _A, r"^'([^']+)' object has no attribute '(_[^']+)'", _no_store),
    Family("attribute", _A, r"^'([^']+)' object has no attribute '([^']+)'", _no_attribute),
    Family(
        "super().__init__",
        _T,
        r"__init__\(\) takes 1 positional argument but \d+ were given|__init__\(\) got an unexpected keyword argument",
        _base_arguments,
    ),
    Family("registration", _T, r"^([\w.<>]+) is not a Module subclass", _not_a_module),
    Family("registration", _K, r"attribute '([^']+)' already exists", _taken),
    Family("registration", _K, r"(parameter|buffer|module) name can't contain \"\.\"", _dotted),
    Family("registration", _K, r"(parameter|buffer|module) name can't be empty string", _empty_name),
    Family("registration", _T, r"^(parameter|buffer|module) name should be a string\. Got ([\w.]+)", _no_text),
    Family("registration", _T, r"cannot assign '([^']+)' as (parameter|buffer|child module) '([^']+)'", _cannot_assign),
    Family("constructor", (AssertionError,), r"embed_dim must be divisible by num_heads", _heads),
    Family("constructor", (RuntimeError,), r"Module must support a 'device' arg to skip initialization", _skip_init),
    Family("optimizer", _V, r"optimizer got an empty parameter list", _empty),
    Family("optimizer", _T, r"object is not iterable|params argument given to the optimizer should be an iterable", _iterable),
    Family("optimizer", _V, r"some parameters appear in more than one parameter group", _several_groups),
    Family("optimizer", _V, r"can't optimize a non-leaf Tensor", _non_leaf),
)
