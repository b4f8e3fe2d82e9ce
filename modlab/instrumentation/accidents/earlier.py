"""What must have run before the place of an error, as the source of ``forward`` shows it; with the shapes that follow from those known.

After the fact only the modules on the stack can be seen. But a call that stands above the line that failed, in no branch,
has run; and its shapes are known where a local name still has its result, or where a shape cannot change.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from torch import nn
from torch.nn import Module

from modlab.inspection import stores
from modlab.instrumentation.accidents import advice, bodies, calls, operands
from modlab.instrumentation.accidents.bodies import Body
from modlab.instrumentation.accidents.calls import Call
from modlab.instrumentation.accidents.frames import Frame, Position
from modlab.instrumentation.accidents.scene import Scene, shape_of
from modlab.instrumentation.accidents.widths import ELEMENTWISE, Ran, hooked, is_free, keeps, through

_Shape = tuple[int, ...]
_FLATTENING = ("flatten", "view", "reshape")
_ROOMS = ("F", "torch", "functional")
_ASKED = ("device", "dtype", "ndim", "is_cuda", "requires_grad", "training")  # attributes that tell no size
_MANY = 2  # uses of what stands in a loop of its own


@dataclass(slots=True)
class Source:
    """The calls of one ``forward`` up to a place, and what is known of the values between them.

    Attributes:
        call: the module whose ``forward`` it is.
        inner: the module at whose call it stopped; None if it stopped in its own code.
        ran: what ran before.
        shapes: of each value, its shape where that is known.
        uses: of each value, how often it is read.
        same: values that are another one with each number changed for itself: of the same shape, whatever that is.
        flat: values that a flattening, view or reshape gave.
        names: which value a local name stands for.
        inputs: the values of the arguments, by their names.
        taken: the values that the call at which it stopped got, by place and by name.
        again: whether what was called may have run in an earlier round of a loop, with something else.
        helpers: functions and methods that were called before, which may have called any module.
        helped: whether it stopped in one of them, and one that may do the same was called before.
        certain: False if a loop or a branch stands before, of which nobody knows what it did.
        within: whether it stopped inside of a loop, or where the way there is not known.
    """

    call: Call
    inner: Call | None
    ran: list[Ran] = field(default_factory=list)
    shapes: list[_Shape | None] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    same: dict[int, int] = field(default_factory=dict)
    flat: set[int] = field(default_factory=set)
    names: dict[str, int] = field(default_factory=dict)
    inputs: dict[int, str] = field(default_factory=dict)
    taken: dict[int | str, int] = field(default_factory=dict)
    frame: Frame | None = None
    body: Body | None = None
    stop: Position | None = None
    stopped: bool = False
    again: bool = False
    helpers: set[str] = field(default_factory=set)
    helped: bool = False
    certain: bool = True
    within: bool = False

    def value(self, shape: _Shape | None = None) -> int:
        """A new value, whose shape may be known."""
        self.shapes.append(shape)
        self.uses.append(0)
        return len(self.shapes) - 1


def before(call: Call, inner: Call | None) -> list[tuple[str, Module | None, _Shape | None, _Shape | None]]:
    """Name, module (None for a function), shape of the first input and of the output of what ran in `call` before `inner`.

    Without `inner`: before its own code stopped.
    """
    source = read(call, inner)
    return [(one.name, one.module, source.shapes[one.taken], source.shapes[one.given]) for one in source.ran]


def read(call: Call, inner: Call | None) -> Source:
    """What ran in `call` before `inner` (before its own code stopped, without), and what is known of it."""
    if call.read is None:  # asked for by several
        call.read = _made(call, inner)
    found: Source = call.read
    return found


def _made(call: Call, inner: Call | None) -> Source:
    source = Source(call, inner)
    try:
        _sequence(source) if type(call.module) is nn.Sequential else _forward(source)
        _infer(source)
    except Exception:  # noqa: BLE001 - source that is not what runs, objects that are not what they seem
        return Source(call, inner, certain=False, within=True)
    return source


def _sequence(source: Source) -> None:
    call, inner = source.call, source.inner
    value = source.value(shape_of(call.args[0]) if call.args else None)
    source.inputs[value] = "input"
    source.within = inner is None or len(inner.places) > 1
    for name, child in calls.earlier(call, inner) if inner is not None else ():
        given = source.value()
        source.uses[value] += 1
        _note(source, Ran(name, child, value, given))
        value = given
    source.taken[0] = value
    source.uses[value] += 1
    source.stopped = True
    _set(source, value, shape_of(inner.given[0]) if inner is not None and inner.given else None)


def _note(source: Source, ran: Ran) -> None:
    source.ran.append(ran)
    if is_free(ran) and not hooked(ran.module):
        source.same[ran.given] = ran.taken
    if type(ran.module) is nn.Flatten:
        source.flat.add(ran.given)


def _set(source: Source, value: int, shape: _Shape | None) -> None:
    if source.shapes[value] is None:
        source.shapes[value] = shape


def frame_of(call: Call) -> Frame | None:
    """Where a module's ``forward`` stands, also while it runs another method of the same module."""
    own_frames = [frame for frame in call.frames if frame.owner is call.module and frame.function == "forward"]
    return own_frames[-1] if own_frames and not own_frames[-1].is_torch else None


def _forward(source: Source) -> None:
    frame = frame_of(source.call)
    body = bodies.of_code(frame.code) if frame is not None else None
    if frame is None or body is None:
        source.certain, source.within = False, True
        return
    source.frame, source.body, source.stop = frame, body, frame.position()
    _arguments(source, body.tree)
    _block(source, body.tree.body)
    if not source.stopped:
        source.within = True
    _after(source)
    for name, value in source.names.items():
        _set(source, value, shape_of(frame.names.get(name)))


def _arguments(source: Source, tree: ast.FunctionDef) -> None:
    call, frame = source.call, source.frame
    assert frame is not None
    positional = [argument.arg for argument in (*tree.args.posonlyargs, *tree.args.args)][1:]
    outermost = next((one for one in call.frames if one.owner is call.module and one.function == "forward"), None) is frame
    given = dict(zip(positional, call.args or (), strict=False)) if outermost else {}
    for name in (*positional, *(argument.arg for argument in tree.args.kwonlyargs)):
        value = source.value(shape_of(given.get(name, call.kwargs.get(name) if outermost else None)))
        source.names[name] = value
        if outermost:
            source.inputs[value] = name


def _block(source: Source, body: list[ast.stmt]) -> None:
    """Go through statements, until the one that failed was met."""
    for statement in body:
        if source.stopped:
            return
        here, ran = _is_at(source, statement), len(source.ran)
        _one(source, statement, here)
        if here and not source.stopped:  # it stands in what is not gone through
            source.stopped = source.within = True
            del source.ran[ran:]


def _is_at(source: Source, node: ast.stmt | ast.expr) -> bool:
    """Whether what failed stands in a node (where its place is not known: on its lines)."""
    assert source.body is not None and source.frame is not None
    first, last, start, end = source.body.place(node)
    if source.stop is None:
        return first <= source.frame.line <= last
    return (first, start) <= (source.stop[0], source.stop[2]) and (source.stop[1], source.stop[3]) <= (last, end)


def _one(source: Source, statement: ast.stmt, here: bool) -> None:
    if isinstance(statement, ast.With):
        for item in statement.items:
            _value(source, item.context_expr)
            if item.optional_vars is not None:
                _forget(source, item.optional_vars)
        _block(source, statement.body)
    elif isinstance(statement, ast.For):
        _loop(source, statement, here)
    elif isinstance(statement, ast.If) and here:
        _value(source, statement.test)
        _entered(source, [statement.body, statement.orelse])
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert)):
        if here and source.stop is None:  # somewhere on these lines
            source.stopped = source.within = True
            return
        _statement(source, statement)
    elif isinstance(statement, (ast.Pass, ast.Import, ast.ImportFrom)):
        return
    elif isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Raise) and not statement.orelse:
        _closed(source, statement)  # a check: it changes nothing
    else:
        source.certain = False  # a branch: nobody knows which way it went
        _closed(source, statement)
        _forget(source, statement)
        if here:
            source.stopped = source.within = True
            source.again = isinstance(statement, ast.While) and _runs_again(source, statement, statement.body)


def _entered(source: Source, blocks: list[list[ast.stmt]]) -> None:
    """The branch in which the failed line stands was taken."""
    for block in blocks:
        if any(_is_at(source, statement) for statement in block):
            _block(source, block)
    source.stopped = True


def _statement(source: Source, statement: ast.stmt) -> None:
    expression = statement.test if isinstance(statement, ast.Assert) else getattr(statement, "value", None)
    result = _value(source, expression) if expression is not None else source.value()
    if isinstance(statement, ast.AugAssign):
        old = _value(source, statement.target)
        if source.stop is not None and source.body is not None and source.body.place(statement) == source.stop:
            source.taken[0] = old
            source.stopped = True
        result = source.value()
        if _is_number(statement.value):
            source.same[result] = old
    if source.stopped:
        return
    for target in statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]:
        if isinstance(target, ast.Name):
            source.names[target.id] = result
        elif target is not None:
            if isinstance(target, ast.Subscript):
                _value(source, target.value)
            _forget(source, target)


def _forget(source: Source, node: ast.AST) -> None:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            source.names[inner.id] = source.value()


def _closed(source: Source, node: ast.AST) -> None:
    """What stands in a node is read, nobody knows how often."""
    if isinstance(node, (ast.Constant, ast.Name)):
        if isinstance(node, ast.Name) and node.id in source.names:
            source.uses[source.names[node.id]] += _MANY
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id in source.names:
            source.uses[source.names[inner.id]] += _MANY


_ROUNDS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OPAQUE = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.NamedExpr)


def _value(source: Source, node: ast.expr) -> int:
    """The number of what an expression gives; its calls are noted on the way. Nothing is, once the place of the error was met."""
    if source.stopped:
        return source.value()
    if isinstance(node, ast.Name):
        if node.id not in source.names:
            source.names[node.id] = source.value()
        source.uses[source.names[node.id]] += 1
        return source.names[node.id]
    if isinstance(node, ast.Attribute) and node.attr in _ASKED and isinstance(node.value, ast.Name):
        return source.value()
    if isinstance(node, _OPAQUE):
        _closed(source, node)
        _forget(source, node)
        if any(isinstance(inner, ast.Call) for inner in ast.walk(node)) and not isinstance(node, ast.Lambda):
            source.certain = False
        if _is_at(source, node) and source.stop is not None:
            source.stopped = source.within = True
            source.again = isinstance(node, _ROUNDS) and _runs_again(source, node, [node])
        return source.value()
    if isinstance(node, ast.Call):
        return _called(source, node)
    numbers = [_value(source, part) for part in _parts_of(node)]
    if _met(source, node):
        source.taken.update(enumerate(numbers))
        source.stopped = True
    given = source.value()
    number = _beside_number(node)
    if number is not None and not source.stopped:
        source.same[given] = numbers[number]
    return given


def _parts_of(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]


def _beside_number(node: ast.expr) -> int | None:
    """Which operand of an operation is changed number by number: that beside a plain number."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return 0
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)):
        return None
    return 0 if _is_number(node.right) else 1 if _is_number(node.left) else None


def _is_number(node: ast.expr) -> bool:
    node = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _met(source: Source, node: ast.expr) -> bool:
    """Whether an expression is the one that failed."""
    return not source.stopped and source.stop is not None and source.body is not None and source.body.place(node) == source.stop


def _called(source: Source, node: ast.Call) -> int:
    module = module_at(source, node.func)
    room = isinstance(node.func, ast.Attribute) and _is_room(node.func)
    method = isinstance(node.func, ast.Attribute) and not room and module is None
    here = source.stop is not None and _is_at(source, node)
    if here and any(_met(source, part) for part in ast.walk(node.func) if isinstance(part, ast.expr)):
        source.stopped = source.within = True
        return source.value()
    parts: list[tuple[int | str, ast.expr]] = []
    if method and isinstance(node.func, ast.Attribute):
        parts.append((-1, node.func.value))
    parts += enumerate(node.args)
    parts += [(keyword.arg or "**", keyword.value) for keyword in node.keywords]
    if not method:
        _read_by(source, node.func)
    numbers = {place: _value(source, part) for place, part in parts}
    if source.stopped:
        return source.value()
    if _met(source, node) or (source.stop is None and source.inner is not None and module is source.inner.module):
        _stop_at(source, node, numbers)
        source.helped = module is None and not room and _may_repeat(source, node.func)
        return source.value()
    if module is None and not room:
        source.helpers.add(_dotted(node.func))
    taken, given = numbers.get(0, -1), source.value()
    if taken < 0:
        taken = source.value()
    if module is not None:
        _note(source, Ran(_name_of(source, node.func, module), module, taken, given))
    elif room:
        _note(source, Ran(_dotted(node.func), None, taken, given))
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    plain = all(_is_number(part) or isinstance(part, ast.Constant) for _, part in parts[1:])
    if method and name in ELEMENTWISE and plain:
        source.same[given] = numbers[-1]
    elif module is None and name in _FLATTENING:
        source.flat.add(given)
    return given


def _stop_at(source: Source, node: ast.Call, numbers: dict[int | str, int]) -> None:
    starred = any(isinstance(argument, ast.Starred) for argument in node.args) or "**" in numbers
    source.taken = {} if starred else dict(numbers)
    source.stopped = True
    if 0 in source.taken and source.inner is not None:
        _set(source, source.taken[0], shape_of(source.inner.given[0]) if source.inner.given else None)


def _is_room(node: ast.Attribute) -> bool:
    """Whether a name is one of torch's functions, as users import them."""
    owner = node.value
    return (isinstance(owner, ast.Name) and owner.id in _ROOMS) or (isinstance(owner, ast.Attribute) and owner.attr in _ROOMS)


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


def _may_repeat(source: Source, node: ast.expr) -> bool:
    """Whether the same function, or another method of the module, was called before."""
    name = _dotted(node)
    owner, dot, _ = name.rpartition(".")
    own = dot and _module_named(source, owner) is source.call.module
    return name in source.helpers or (bool(own) and any(one.rpartition(".")[0] == owner for one in source.helpers))


def _read_by(source: Source, node: ast.expr) -> None:
    """What stands in the name of a function is read, nobody knows how often."""
    while isinstance(node, ast.Attribute):
        node = node.value
    _closed(source, node)


def module_at(source: Source, node: ast.expr) -> Module | None:
    """The module that an expression of a ``forward`` stands for, by whatever name the module itself goes there."""
    if isinstance(node, ast.Name):
        return _module_named(source, node.id)
    if isinstance(node, ast.Attribute):
        held = module_at(source, node.value)
        found = operands.attribute(held, node.attr) if held is not None else None
        return found if stores.is_module(found) else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        held = module_at(source, node.value)
        return dict(stores.named_children(held)).get(str(node.slice.value)) if held is not None else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) == 2:
        name = node.args[1]  # as torch.fx writes it
        held = module_at(source, node.args[0])
        known = held is not None and isinstance(name, ast.Constant)
        return dict(stores.named_children(held)).get(str(name.value)) if known and held and isinstance(name, ast.Constant) else None
    return None


def _module_named(source: Source, name: str) -> Module | None:
    """The module that a name stands for, if it stands for one thing all through the function."""
    if source.frame is None or source.body is None or source.body.written.get(name, 0) > 1:
        return None
    names = source.frame.names
    found = names[name] if name in names else source.frame.globals.get(name)
    return found if stores.is_module(found) else None


def _name_of(source: Source, node: ast.expr, module: Module) -> str:
    """How the model has a module: as it is written, where that is a dotted name from the model on."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
            break
        parts.insert(0, node.attr if isinstance(node, ast.Attribute) else str(node.slice.value))  # type: ignore[attr-defined]
        node = node.value
    path = ".".join(parts)
    if isinstance(node, ast.Name) and _module_named(source, node.id) is source.call.module and calls.at(source.call.module, path) is module:
        return path
    return calls.path_to(source.call.module, module) or type(module).__name__


def _loop(source: Source, loop: ast.For, here: bool) -> None:
    """A loop over a list of modules that passes one value through all of them."""
    listed, name = _looped(loop, source)
    body = loop.body[0]
    passing = (
        name and isinstance(body, ast.Assign) and isinstance(body.value, ast.Call) and isinstance(body.value.func, ast.Name)
        and body.value.func.id == name and len(body.value.args) > 0 and isinstance(body.value.args[0], ast.Name)
        and isinstance(body.targets[0], ast.Name)
    )  # fmt: skip
    left = any(isinstance(node, (ast.Break, ast.Return)) for statement in loop.body for node in ast.walk(statement))
    if listed is None or not passing or (left and not here):
        source.certain = False
        _closed(source, loop)
        _forget(source, loop)
        if here:  # its names have been written anew in this round, as far as they stand before the place
            _block(source, loop.body)
            source.stopped = source.within = True
            source.again = _runs_again(source, loop, loop.body) and not _is_first(source, loop)
        return
    assert isinstance(body, ast.Assign) and isinstance(body.value, ast.Call)
    argument, target = body.value.args[0], body.targets[0]
    assert isinstance(argument, ast.Name) and isinstance(target, ast.Name)
    alone = argument.id == target.id and len(body.value.args) == 1 and not body.value.keywords
    above = calls.path_to(source.call.module, listed)
    children = stores.named_children(listed)
    for key, child in children:
        taken = source.names.get(argument.id, 0) if source.names else source.value()
        source.uses[taken] += 1
        if here and source.inner is not None and child is source.inner.module:
            source.stopped = True
            source.within = not alone or sum(one is child for _, one in children) != 1
            source.taken[0] = taken
            _set(source, taken, shape_of(source.inner.given[0]) if source.inner.given else None)
            return
        if child is None:
            continue
        given = source.value()
        _note(source, Ran(type(child).__name__ if above is None else calls.join(above, key), child, taken, given))
        source.names[target.id] = given if len(loop.body) == 1 else source.value()  # what else stands there may change it
    if here or len(loop.body) > 1:
        _forget(source, loop)
    if here:
        source.stopped = source.within = True


def _runs_again(source: Source, node: ast.AST, body: Iterable[ast.AST]) -> bool:
    """Whether the module that failed is called in each round of a loop: it does not depend on what the loop goes through."""
    inner = source.inner.module if source.inner is not None else None
    parts = [part for one in body for part in ast.walk(one)]
    targets = {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    found = [part.func for part in parts if isinstance(part, ast.Call) and inner is not None and _may_be(source, part.func, inner)]
    return any(not any(isinstance(name, ast.Name) and name.id in targets for name in ast.walk(func)) for func in found)


def _may_be(source: Source, node: ast.expr, module: Module) -> bool:
    return module_at(source, node) is module


def _is_first(source: Source, loop: ast.For) -> bool:
    """Whether a loop was in its first round, as its counter or its member shows."""
    assert source.frame is not None
    iterated, target = loop.iter, loop.target
    start: object = 0
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and iterated.func.id in ("range", "enumerate"):
        if iterated.func.id == "enumerate":
            target = target.elts[0] if isinstance(target, ast.Tuple) and len(iterated.args) == 1 else ast.Constant(None)
        elif len(iterated.args) > 1:
            start = iterated.args[0].value if isinstance(iterated.args[0], ast.Constant) else None
        number = source.frame.names.get(target.id) if isinstance(target, ast.Name) else None
        return type(number) is int and number == start
    listed = source.frame.names.get(iterated.id) if isinstance(iterated, ast.Name) else None
    member = source.frame.names.get(target.id) if isinstance(target, ast.Name) else None
    return isinstance(listed, (list, tuple)) and len(listed) > 0 and member is not None and listed[0] is member


def _after(source: Source) -> None:
    """Count what is read behind the place of the error, too: who changes it changes that."""
    body, frame = source.body, source.frame
    if body is None or frame is None or not source.taken:
        return
    stop = source.stop
    assigned = _assigned(source)
    for node in body.read:
        if node.id not in source.names:
            continue
        first, _, start, _ = body.place(node)
        behind = first > frame.line if stop is None else (first, start) >= (stop[1], stop[3])
        if behind and (node.id not in assigned or _is_within(body, assigned[node.id], node)):
            source.uses[source.names[node.id]] += 1


def _assigned(source: Source) -> dict[str, ast.stmt]:
    """The names that the statement that failed would have written anew."""
    assert source.body is not None
    for statement in source.body.assigned:
        if _is_at(source, statement):
            return {target.id: statement for target in statement.targets if isinstance(target, ast.Name)}
    return {}


def _is_within(body: Body, statement: ast.stmt, node: ast.expr) -> bool:
    outer, inner = body.place(statement), body.place(node)
    return (outer[0], outer[2]) <= (inner[0], inner[2]) and (inner[1], inner[3]) <= (outer[1], outer[3])


def _looped(loop: ast.For, source: Source) -> tuple[Module | None, str]:
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
    return module_at(source, iterated), target.id if isinstance(target, ast.Name) else ""


def keeping(module: Module, taken: _Shape) -> _Shape | None:
    """What a module makes of a shape, where that is certain."""
    if hooked(module):
        return None
    return taken if keeps(Ran("", module, 0, 0)) else through(module, taken)


def _infer(source: Source) -> None:
    """Carry shapes through what does not change them, both ways, and through linear layers."""
    known = [(ran, keeps(ran)) for ran in source.ran if not hooked(ran.module)]  # a hook may have returned something else
    shapes = source.shapes
    for ran, kept in [*known, *reversed(known)]:
        taken, given = shapes[ran.taken], shapes[ran.given]
        if kept:
            _set(source, ran.taken, given)
            _set(source, ran.given, taken)
        elif taken and given is None and ran.module is not None:
            shapes[ran.given] = through(ran.module, taken)
        for new, old in source.same.items():
            _set(source, new, shapes[old])
            _set(source, old, shapes[new])


def hidden(scene: Scene) -> bool:
    """Whether something ran on the way that is not shown, or whose result is not known."""
    pairs: list[tuple[Call, Call | None]] = list(pairwise(scene.calls))
    if scene.failing is not None and frame_of(scene.failing) is not None:
        pairs.append((scene.failing, None))
    for above, inner in pairs:
        if inner is not None and above.module is inner.module:
            continue
        if advice.is_torchs(above.module) and type(above.module) is not nn.Sequential:
            continue
        source = read(above, inner)
        if not source.certain or any(source.shapes[one.given] is None for one in source.ran):
            return True
    return False
