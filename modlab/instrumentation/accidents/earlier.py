"""What must have run before the place of an error, as the source of ``forward`` shows it; with the shapes that follow from those known.

After the fact only the modules on the stack can be seen. But a call that stands above the line that failed, in no branch,
has run; and its shapes are known where a local name still has its result, or where a shape cannot change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from torch import nn
from torch.nn import Module

from modlab.inspection import marks, stores
from modlab.instrumentation.accidents import advice, calls, operands, sources
from modlab.instrumentation.accidents.calls import Call
from modlab.instrumentation.accidents.scene import Scene, own, shape_of

_Shape = tuple[int, ...]
_ELEMENTWISE = {
    "relu",
    "gelu",
    "silu",
    "elu",
    "leaky_relu",
    "tanh",
    "sigmoid",
    "softmax",
    "log_softmax",
    "dropout",
    "layer_norm",
    "abs",
    "exp",
    "relu6",
    "softplus",
}
_KEEPING = ("activation", "dropout", "norm")
_FLATTENING = re.compile(r"\bflatten\(|\.(?:view|reshape)\(")
_ROOMS = ("F", "torch", "functional")


@dataclass(slots=True)
class Ran:
    """One call that came before.

    Attributes:
        name: how it is written or reached ("l0", "F.relu").
        module: what was called; None for a function.
        taken, given: the numbers of its first input and of its output, in `Source.shapes`.
    """

    name: str
    module: Module | None
    taken: int
    given: int


@dataclass(slots=True)
class Source:
    """The calls of one ``forward`` up to a line, and what is known of the values between them."""

    call: Call
    inner: Call
    ran: list[Ran] = field(default_factory=list)
    shapes: list[_Shape | None] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    certain: bool = True  # False if a loop or a branch stands before, of which nobody knows what it did

    def value(self, shape: _Shape | None = None) -> int:
        """A new value, whose shape may be known."""
        self.shapes.append(shape)
        return len(self.shapes) - 1


def before(call: Call, inner: Call) -> list[tuple[str, Module | None, _Shape | None, _Shape | None]]:
    """Name, module (None for a function), shape of the first input and of the output of what ran in `call` before `inner`."""
    source = _read(call, inner)
    return [(one.name, one.module, source.shapes[one.taken], source.shapes[one.given]) for one in source.ran]


def _read(call: Call, inner: Call) -> Source:
    if call.read is None:  # asked for by several
        call.read = _made(call, inner)
    found: Source = call.read
    return found


def _made(call: Call, inner: Call) -> Source:
    source = Source(call, inner)
    try:
        _sequence(source) if type(call.module) is nn.Sequential else _forward(source)
        _infer(source)
    except Exception:  # noqa: BLE001 - source that is not what runs, objects that are not what they seem
        return Source(call, inner, certain=False)
    return source


def _sequence(source: Source) -> None:
    value = source.value(shape_of(source.call.args[0]) if source.call.args else None)
    for name, child in calls.earlier(source.call, source.inner):
        given = source.value()
        source.ran.append(Ran(name, child, value, given))
        value = given
    _set(source, value, shape_of(source.inner.given[0]) if source.inner.given else None)


def _set(source: Source, value: int, shape: _Shape | None) -> None:
    if source.shapes[value] is None:
        source.shapes[value] = shape


def _forward(source: Source) -> None:
    frame, tree = source.call.code_frame, advice.forward_of(type(source.call.module))
    if frame is None or tree is None or frame.function != "forward" or tree.name != "forward":
        return
    offset = frame.code.co_firstlineno - min([tree.lineno, *(node.lineno for node in tree.decorator_list)])
    parameters = [argument.arg for argument in tree.args.args[1:]]
    for name, thing in zip(parameters, source.call.args or (), strict=False):
        source.names[name] = source.value(shape_of(thing))
    for name, thing in source.call.kwargs.items():
        source.names[name] = source.value(shape_of(thing))
    _block(source, tree.body, frame.line - offset)
    for name, value in source.names.items():
        _set(source, value, shape_of(frame.names.get(name)))


def _block(source: Source, body: list[ast.stmt], line: int) -> bool:
    """Go through statements; True if the one that failed was met."""
    for statement in body:
        here = statement.lineno <= line <= (statement.end_lineno or statement.lineno)
        if isinstance(statement, ast.With):
            if _block(source, statement.body, line):
                return True
        elif isinstance(statement, ast.For):
            _loop(source, statement, here)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)):
            _statement(source, statement)
        else:
            source.certain = False  # a branch: nobody knows which way it went
            _forget(source, statement)
        if here:
            return True
    return False


def _statement(source: Source, statement: ast.stmt) -> None:
    value = getattr(statement, "value", None)
    if value is None:
        return
    result = _value(source, value)
    if result is None:  # the call that failed
        return
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    for target in targets:
        if isinstance(target, ast.Name):
            source.names[target.id] = result if not isinstance(statement, ast.AugAssign) else source.value()
        elif target is not None:
            _forget(source, target)


def _forget(source: Source, node: ast.AST) -> None:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            source.names[inner.id] = source.value()


def _value(source: Source, node: ast.expr) -> int | None:
    """The number of what an expression gives; its calls are noted on the way. None when it holds the call that failed."""
    if isinstance(node, ast.Name):
        return source.names.get(node.id) if node.id in source.names else source.value()
    parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    if isinstance(node, ast.Call):
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute) and not _is_room(node.func):
            parts.insert(0, node.func.value)
    numbers: list[int] = []
    for part in parts:
        number = _value(source, part) if not isinstance(part, ast.Lambda) else source.value()
        if number is None:
            return None
        numbers.append(number)
    if isinstance(node, ast.Call):
        return _called(source, node, numbers)
    return source.value()


def _called(source: Source, node: ast.Call, numbers: list[int]) -> int | None:
    module = _module(node.func, source.call.module)
    arguments = numbers[1:] if isinstance(node.func, ast.Attribute) and not _is_room(node.func) else numbers
    taken = arguments[0] if arguments else source.value()
    if module is not None and module is source.inner.module:
        _set(source, taken, shape_of(source.inner.given[0]) if source.inner.given else None)
        return None
    given = source.value()
    if module is not None:
        source.ran.append(Ran(calls.path_to(source.call.module, module) or type(module).__name__, module, taken, given))
    elif isinstance(node.func, ast.Attribute) and _is_room(node.func):
        source.ran.append(Ran(ast.unparse(node.func), None, taken, given))
    return given


def _is_room(node: ast.Attribute) -> bool:
    """Whether a name is one of torch's functions, as users import them."""
    return isinstance(node.value, (ast.Name, ast.Attribute)) and ast.unparse(node.value).rpartition(".")[2] in _ROOMS


def _module(node: ast.expr, owner: Module) -> Module | None:
    if isinstance(node, ast.Attribute):
        held = owner if isinstance(node.value, ast.Name) and node.value.id == "self" else _module(node.value, owner)
        found = operands.attribute(held, node.attr) if held is not None else None
        return found if stores.is_module(found) else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        held = _module(node.value, owner)
        return dict(stores.named_children(held)).get(str(node.slice.value)) if held is not None else None
    return None


def _loop(source: Source, loop: ast.For, here: bool) -> None:
    """A loop over a list of modules that passes one value through all of them."""
    listed, name = _looped(loop, source.call.module)
    body = loop.body[0]
    passing = (
        name and isinstance(body, ast.Assign) and isinstance(body.value,
            ast.Call) and isinstance(body.value.func, ast.Name)
        and body.value.func.id == name and len(body.value.args) > 0 and isinstance(body.value.args[0],
            ast.Name) and isinstance(body.targets[0], ast.Name)
    )  # fmt: skip
    left = any(isinstance(node, (ast.Break, ast.Return)) for statement in loop.body for node in ast.walk(statement))
    if listed is None or not passing or (left and not here):
        source.certain = False
        _forget(source, loop)
        return
    assert isinstance(body, ast.Assign) and isinstance(body.value, ast.Call)
    argument, target = body.value.args[0], body.targets[0]
    assert isinstance(argument, ast.Name) and isinstance(target, ast.Name)
    for _, child in stores.named_children(listed):
        taken = source.names.get(argument.id, 0) if source.names else source.value()
        if here and child is source.inner.module:
            return
        if child is None:
            continue
        given = source.value()
        source.ran.append(Ran(calls.path_to(source.call.module, child) or type(child).__name__, child, taken, given))
        source.names[target.id] = given if len(loop.body) == 1 else source.value()  # what else stands there may change it
    if here or len(loop.body) > 1:
        _forget(source, loop)


def _looped(loop: ast.For, owner: Module) -> tuple[Module | None, str]:
    """The list that a loop goes through, and its name for each member; also through ``enumerate``."""
    iterated, target = loop.iter, loop.target
    if (
        isinstance(iterated, ast.Call)
        and isinstance(iterated.func, ast.Name)
        and iterated.func.id == "enumerate"
        and len(iterated.args) == 1
    ):
        iterated = iterated.args[0]
        target = target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else target
    return _module(iterated, owner), target.id if isinstance(target, ast.Name) else ""


def _infer(source: Source) -> None:
    """Carry shapes through what does not change them, both ways, and through linear layers."""
    for ran in [*source.ran, *reversed(source.ran)]:
        taken, given = source.shapes[ran.taken], source.shapes[ran.given]
        if ran.module is not None and stores.contents(ran.module).get("_forward_hooks"):
            continue  # a hook may have returned something else
        if _keeps(ran):
            _set(source, ran.taken, given)
            _set(source, ran.given, taken)
        elif ran.module is not None and taken and given is None:
            source.shapes[ran.given] = _through(ran.module, taken)


def _through(module: Module, taken: _Shape) -> _Shape | None:
    """What a layer of weights makes of a shape."""
    weight = shape_of(own(module, "weight"))
    if weight is None or len(weight) != 2:
        return None
    if type(module) is nn.Linear:
        return (*taken[:-1], weight[0])
    if advice.is_torchs(module) or advice.width(module) != taken[-1]:
        return None
    return (*taken[:-1], weight[1] if weight[0] == taken[-1] else weight[0])


def _keeps(ran: Ran) -> bool:
    if ran.module is None:
        return ran.name.rpartition(".")[2] in _ELEMENTWISE
    return (
        advice.is_torchs(ran.module)
        and marks.category(type(ran.module)) in _KEEPING
        and type(ran.module).__name__ not in ("MultiheadAttention", "GLU")
    )


def producer(scene: Scene, given: int) -> tuple[str, Module] | None:
    """The module that ran just before the innermost one and gives `given` numbers: its path and itself."""
    for name, module in last(scene):
        shape = shape_of(own(module, "weight"))
        if shape is not None and len(shape) >= 2:
            return (name, module) if given in (shape[-1], shape[0]) else None
    return None


def last(scene: Scene) -> Iterator[tuple[str, Module]]:
    """The modules that ran before the innermost one, in the same forward, the latest first: how they are reached, and themselves."""
    if len(scene.calls) > 1:
        above, inner = scene.calls[-2:]
        for name, module, _, _ in reversed(before(above, inner)):
            if module is not None:
                yield calls.join(above.place, name), module


def flattens(scene: Scene) -> bool:
    """Whether the input of the innermost module was flattened just before, as far as the code shows it."""
    if len(scene.calls) < 2:
        return False
    above, inner = scene.calls[-2:]
    _, module = next(last(scene), ("", None))
    if type(module) is nn.Flatten:
        return True
    frame, taken = above.code_frame, shape_of(inner.given[0]) if inner.given else None
    if frame is None or not taken or type(above.module) is nn.Sequential:
        return False
    written = (line for number, line in frame.lines() if number <= frame.line)
    return producer(scene, taken[-1]) is None and any(map(_FLATTENING.search, written))


def hidden(scene: Scene) -> bool:
    """Whether something ran on the way that is not shown, or whose result is not known."""
    for above, inner in pairwise(scene.calls):
        if above.module is inner.module or (advice.is_torchs(above.module) and type(above.module) is not nn.Sequential):
            continue
        source = _read(above, inner)
        if not source.certain or any(source.shapes[one.given] is None for one in source.ran):
            return True
        if type(above.module) is not nn.Sequential and advice.forward_of(type(above.module)) is None:
            return True
    return False


def untouched(scene: Scene) -> bool:
    """Whether no module with tensors of its own ran before the innermost one: what that got is what the model got."""
    read = [_read(above, inner) for above, inner in pairwise(scene.calls) if above.module is not inner.module]
    ran = [one.module for source in read for one in source.ran if one.module is not None]
    return all(source.certain for source in read) and not any(next(_weights(module), None) for module in ran)


def _weights(module: Module) -> Iterator[str]:
    return (name for _, inner in sources.walk(module, 100) for name, _ in stores.named_tensors(inner))
