"""The provenance of a value, traced back through operations that keep its width, as far as the source of the forwards proves it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import chain, pairwise

from torch import Tensor, nn
from torch.nn import Module

from modlab.explaining import calls, code_fixes, shared_modules
from modlab.explaining.account import ForwardSource
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.earlier import frame_of, read
from modlab.explaining.failure import Failure, shape_of
from modlab.explaining.shape_inference import Ran, hooked, is_linear
from modlab.explaining.static_evaluation import module_at
from modlab.inspection import stores

_PRODUCTS = ("matmul", "mm", "bmm", "mv", "dot")
_LONG = 60  # characters of an expression that can serve as a name


def _sources(failure: Failure) -> Iterator[ForwardSource]:
    """The forwards on the way, innermost first; the innermost call's own is not included."""
    for inner, above in pairwise(reversed(failure.calls)):
        if above.module is not inner.module:
            yield read(above, inner)


def _back(source: ForwardSource, value: int) -> int | None:
    """The value that this one was computed from element by element; None if any of them is also used elsewhere."""
    while True:
        if source.uses[value] > 1:
            return None
        if value not in source.same:
            return value
        value = source.same[value]


def _argument(source: ForwardSource, inner: ModuleFrame, name: str) -> int | None:
    """The value of a named argument, in the forward that made the call; None if unknown."""
    if name in source.taken:
        return source.taken[name]
    if inner.given is None or inner.args is None or len(inner.given) != len(inner.args) or hooked(inner.module):
        return None
    frame = frame_of(inner)
    names = ("input",) if type(inner.module) is nn.Sequential or frame is None else frame.code.co_varnames[1 : frame.code.co_argcount]
    return source.taken.get(names.index(name)) if name in names else None


def origin(failure: Failure) -> tuple[str, Module] | str | None:
    """Where the innermost module's first input provably comes from, if its width is unchanged and nothing else uses it.

    Returns:
        The path of a layer, and the layer; or the name of an argument of the model; or None.
    """
    if failure.failing is None or not failure.failing.args or hooked(failure.failing.module):
        return None
    value: int | None = None
    name = ""
    for source in _sources(failure):
        if source.inner is None or source.within or (value is None and not name and 0 not in source.taken):
            return None
        start = source.taken[0] if not name else _argument(source, source.inner, name)
        value = _back(source, start) if start is not None else None
        if value is None:
            return None
        if value not in source.inputs:
            return _layer(failure, source, value)
        name = source.inputs[value]
    if failure.root is failure.failing:
        return "input" if _is_data(failure) else None
    return name or None


def _is_data(failure: Failure) -> bool:
    """Whether the outermost module's input was not computed just before."""
    call = failure.call_expression()
    given = failure.root.args[0] if failure.root is not None and failure.root.args else None
    first = call.args[0] if call is not None and call.args else None
    if given is None or not issubclass(type(given), Tensor) or given.grad_fn is not None:
        return False
    return not isinstance(first, ast.Call) or code_fixes.makes(first)


def _layer(failure: Failure, source: ForwardSource, value: int) -> tuple[str, Module] | None:
    """The layer that returned a value, if it has two sizes and ran once; otherwise None."""
    made = [ran for ran in source.ran if ran.given == value]
    if len(made) != 1 or made[0].module is None or hooked(made[0].module):
        return None
    module = made[0].module
    if calls.at(source.call.module, made[0].name) is not module:
        return None  # in a plain list
    if type(module) is not nn.Linear and (code_fixes.is_torchs(module) or not is_linear(module)):
        return None
    path = calls.join(source.call.place, made[0].name)
    known = shared_modules.of(failure, path, module)
    if sum(ran.module is module for ran in source.ran) > 1 or known.tensors or known.places or known.around:
        return None
    return path, module


def ran_before(failure: Failure) -> str:
    """Says that the innermost module ran, or may have run, earlier in the same forward with a different input; empty if it did not."""
    called = [call.module for call in failure.calls if call.args is not None]
    if failure.failing is None:
        return ""
    if len({id(module) for module in called}) < len(called):
        return f"{failure.subject} runs in a module that calls itself: one size must fit all calls."
    for inner, above in pairwise(reversed(failure.calls)):
        if above.module is inner.module or (type(above.module) is nn.Sequential and inner is not failure.failing):
            continue  # it runs each of its places once; others check what ran before the innermost one
        source = read(above, inner)
        name = inner.place.rpartition(".")[2]
        same = [ran for ran in source.ran if ran.module is inner.module and ran.name.rpartition(".")[2] == name]
        if same:
            ran = "may have run" if all(one.perhaps for one in same) else "ran"
            return f"{inner.label} {ran} before in the same forward, with another size: one layer for each call."
        if source.again:
            return f"{inner.label} is called in each round of a loop: one size must fit them all."
        if source.helped:
            return f"{failure.subject} may have run before in the same forward: one size must fit all its calls."
    return ""


def made_anew(failure: Failure, made: str) -> tuple[str, str]:
    """The class whose constructor contains the line, and the line that makes a new innermost module; empty if it runs more than once."""
    call = failure.failing
    if call is None or not made or ran_before(failure):
        return "", ""
    return code_fixes.renewed(failure, call, made)


def giver(failure: Failure, changed: bool = False) -> tuple[str, Module] | None:
    """The module that returned the innermost module's first input unchanged (or the first argument of a function in its own code).

    With `changed`, the source of what a tensor method in its own code was called on.
    """
    found = _given(failure, changed)
    return None if found is None or found[1].module is None else (calls.join(found[0].call.place, found[1].name), found[1].module)


def _given(failure: Failure, changed: bool = False) -> tuple[ForwardSource, Ran] | None:
    failing, name = failure.failing, ""
    if failing is None:
        return None
    own_code = frame_of(failing) is not None and type(failing.module) is not nn.Sequential
    for source in chain([read(failing, None)] if own_code else [], _sources(failure)):
        first, other = (-1, 0) if changed else (0, -1)
        value = source.taken.get(first, source.taken.get(other))
        if name:
            value = _argument(source, source.inner, name) if source.inner is not None else None
        if value is None:
            return None
        made = [ran for ran in source.ran if ran.given == value and ran.module is not None]
        if made or value not in source.inputs:
            return (source, made[0]) if len(made) == 1 else None
        name = source.inputs[value]
    return None


def changed(failure: Failure, change: str) -> str:
    """The line that changes the innermost module's input where it is called: ``x = x.flatten(1)`` or ``self.fc(h(x).flatten(1))``.

    Args:
        failure: with the innermost call.
        change: the expression, with ``{}`` for the current input.
    """
    place = len(failure.calls) - 1
    while place > 0 and _is_first(failure.calls[place - 1], failure.calls[place]):
        place -= 1
    above = failure.calls[place - 1] if place > 0 else None
    frame = read(above, failure.calls[place]).frame if above is not None else None
    call = frame.expression() if frame is not None else None
    if above is None:
        call = failure.call_expression()
    elif code_fixes.is_installed(type(above.module)):  # a library's code, which users do not edit
        return ""
    if not isinstance(call, ast.Call) or not call.args or isinstance(call.args[0], ast.Starred):
        return ""
    return _written(call, change)


def _is_first(above: ModuleFrame, inner: ModuleFrame) -> bool:
    """Whether a Sequential, which has no line for it, passes on its own input."""
    if type(above.module) is not nn.Sequential or not above.args or not inner.given:
        return False
    return above.args[0] is inner.given[0]


def elsewhere(failure: Failure, change: str) -> str:
    """Like `changed`, but with the name ``x`` if the line is unknown; empty in a Sequential, which has no line for it."""
    line = changed(failure, change)
    above, root, failing = failure.calls[-2].module if len(failure.calls) > 1 else None, failure.root, failure.failing
    if not line and root is not None and failing is not None and root.args and failing.given and root.args[0] is failing.given[0]:
        line = outermost(failure, change)
    return line or ("" if type(above) is nn.Sequential else f"x = {change.format('x')}")


def _written(call: ast.Call, change: str) -> str:
    first = call.args[0]
    text = ast.unparse(first)
    if isinstance(first, ast.Name):
        return f"{text} = {change.format(text)}"
    if change.startswith("{}") and not isinstance(first, (ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Tuple)):
        text = f"({text})"
    rest = [*map(ast.unparse, call.args[1:]), *(f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords if k.arg)]
    return f"{ast.unparse(call.func)}({', '.join([change.format(text), *rest])})"


def outermost(failure: Failure, change: str) -> str:
    """Like `changed`, for the model's input where the model is called."""
    call = failure.call_expression()
    if call is None or not call.args or isinstance(call.args[0], ast.Starred):
        return ""
    return _written(call, change)


def sides(failure: Failure) -> list[tuple[str, tuple[int, ...] | None]]:
    """Both sides of the user's product that failed, as written, with any shapes known or inferred; or empty."""
    expression = failure.user.expression() if failure.user is not None else None
    expression = expression.value if isinstance(expression, ast.Return) else expression
    nodes: list[ast.expr] = []
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.MatMult):
        nodes = [expression.left, expression.right]
    elif isinstance(expression, ast.Call) and isinstance(expression.func, ast.Attribute) and expression.func.attr in _PRODUCTS:
        torchs = isinstance(expression.func.value, ast.Name) and expression.func.value.id == "torch"
        nodes = [*([] if torchs else [expression.func.value]), *expression.args][:2]
    texts = [ast.unparse(node) for node in nodes]
    if len(texts) != 2 or any(len(text) > _LONG or isinstance(node, ast.Starred) for text, node in zip(texts, nodes, strict=True)):
        return []
    known = {operand.text: shape_of(operand.thing) for operand in failure.tensors}
    shapes = [known.get(text) for text in texts]
    failing = failure.failing
    if None in shapes and failing is not None and (source := read(failing, None)).frame is failure.user:
        places = (-1, 0) if -1 in source.taken else (0, 1)
        found = [source.shapes[source.taken[place]] if place in source.taken and not source.within else None for place in places]
        shapes = [shape or other for shape, other in zip(shapes, found, strict=True)]
    return list(zip(texts, shapes, strict=True))


def gives(module: Module) -> int | None:
    """The output width of a layer; None if it has no matrix of weights."""
    if type(module) is nn.Linear:
        return module.out_features
    weight = next((shape for _, tensor in stores.named_tensors(module) if len(shape := shape_of(tensor) or ()) == 2), None)
    return None if weight is None else weight[1] if code_fixes.width(module) == weight[0] else weight[0]


def taken_apart(failure: Failure) -> str:
    """The line that takes the first part of the giver's output, where it is assigned or used; empty if there is none."""
    found = _given(failure)
    if found is None or found[0].scope is None or found[0].frame is None:
        return ""
    ran, scope, frame = found[1], found[0].scope, found[0].frame
    for statement in ast.walk(scope.body.tree):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call) or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        written = isinstance(target, ast.Name) and scope.values.get(target.id) == ran.given
        if written and module_at(scope, statement.value.func) is ran.module:
            return f"{ast.unparse(target)}, _ = {ast.unparse(statement.value)}"
    call = frame.expression()
    if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Call):
        rest = [*map(ast.unparse, call.args[1:]), *(f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords)]
        return f"{ast.unparse(call.func)}({', '.join([f'{ast.unparse(call.args[0])}[0]', *rest])})"
    return ""


def flattens(failure: Failure) -> bool:
    """Whether the innermost module's input was flattened just before, as far as the code shows."""
    source = next(_sources(failure), None)
    if source is None or 0 not in source.taken:
        return False
    value = source.taken[0]
    while value in source.same:
        value = source.same[value]
    return value in source.flat
