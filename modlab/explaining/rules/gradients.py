"""Autograd: what backward needs and does not find, and what a graph does not allow."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab import format
from modlab.compat import without_torch_function
from modlab.explaining import detached, provenance, source_code, suspects
from modlab.explaining.calls import join
from modlab.explaining.failure import Cause, Failure, Rule, described, shape_of, shown, tuple_of
from modlab.explaining.frames import Frame
from modlab.explaining.rules import hook_errors
from modlab.inspection import stores
from modlab.records.explanation import Fix


def _loss(failure: Failure) -> tuple[str, Any]:
    """What ``backward`` was called on: its name, if it has one, and itself."""
    called = (frame.names.get("self") for frame in failure.frames if frame.function == "backward")
    tensor = next((thing for thing in called if issubclass(type(thing), Tensor)), None)  # a trainer's own backward comes before it
    if tensor is None:
        tensor = failure.local("tensors")
        tensor = tensor[0] if type(tensor) is tuple and tensor else tensor
    user = failure.user
    names = list(user.names.items()) if user is not None else []
    return next((name for name, thing in names if thing is tensor), ""), tensor


def _suspects(found: list[suspects.Suspect]) -> tuple[tuple[str, str], ...]:
    return tuple((place, line[:120]) for place, line in found)


def _in_place(failure: Failure, match: re.Match[str]) -> Cause:
    shape, function, version, expected = tuple_of(match[2]), match[3] or "", int(match[4]), int(match[5])
    owners = _changed_parameters(failure, shape, version) if function in _LIKE_PARAMETERS else []
    if owners:
        owner = owners[0] if len(owners) == 1 else f"A parameter of shape {shape} ({', '.join(owners[:3])}{', …' if owners[3:] else ''})"
        return Cause(
            f"{owner} was changed after the forward pass, but this backward still needs its old values.",
            f"Shape {shape}, changed {_times(version - expected)} since: an optimizer's step, or a line that writes to it.",
            "",
            (
                *((name, str(shape)) for name in owners[:4]),
                ("changes since it was used", str(version - expected)),
                *_suspects(suspects.lines(failure, suspects.IN_PLACE)),
            ),
            (
                Fix(
                    "Run the model again after each step, and call backward before it:",
                    "loss = criterion(model(x), y)\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()",
                ),
            ),
        )
    modules = suspects.in_place_modules(failure)
    lines = suspects.lines(failure, suspects.IN_PLACE)
    what = f"The output of {_plain(function)}" if function else f"A {match[1].lower()} tensor"
    fixes = []
    if lines:
        place, line = lines[-1]
        changed = _out_of_place(line)
        fixes.append(
            Fix(
                f"The likely line is at {place}; make a new tensor there:"
                if changed
                else f"The likely line is at {place}; there, make a new tensor.",
                changed,
            )
        )
    if modules:
        fixes.append(Fix(f"{modules[0][0]} works in place: let it make a new tensor.", f"nn.{modules[0][1]}(inplace=False)"))
    fixes.append(
        Fix(
            "To have PyTorch show the forward line whose gradient failed, run everything again inside:",
            "with torch.autograd.detect_anomaly():\n    loss = criterion(model(x), y)\n    loss.backward()",
        )
    )
    return Cause(
        f"{what} was changed in place, but backward needs its old values.",
        f"Shape {shape}, changed {_times(version - expected)} since it was saved.",
        "",
        (("tensor", str(shape)), *((("made by", _plain(function)),) if function else ()), *_suspects(lines), *_suspects(modules)),
        tuple(fixes),
    )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _plain(function: str) -> str:
    """``leaky_relu`` for ``LeakyReluBackward0``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", re.sub(r"Backward\d*$", "", function)).lower() or "a function"


_LIKE_PARAMETERS = ("", "AccumulateGrad", "AsStrided", "T", "Transpose", "Permute", "View")  # a parameter itself, or a view of one


def _out_of_place(line: str) -> str:
    """``x = x + 1`` for ``x += 1``."""
    simple = re.search(r"(?:^|;\s*)([\w.]+)\s*([-+*/@%])=\s*([^;]+)", line)
    if simple:
        return f"{simple[1]} = {simple[1]} {simple[2]} {simple[3].strip()}"
    method = re.search(r"(?:^|;\s*)([\w.]+)\.([a-z]\w*[a-z0-9])_\(([^;]*)\)\s*(?:;|$)", line)
    return f"{method[1]} = {method[1]}.{method[2]}({method[3]})" if method else ""


def _changed_parameters(failure: Failure, shape: tuple[int, ...], version: int) -> list[str]:
    """The parameters of this shape that have been changed this often."""
    found: dict[int, str] = {}
    for name, model in failure.models[:4]:
        for path, module in suspects.walk(model):
            for own, tensor in stores.named_tensors(module):
                with without_torch_function():
                    if (
                        tensor.requires_grad
                        and shape_of(tensor) in (shape, shape[::-1])
                        and not tensor.is_inference()
                        and tensor._version == version
                    ):
                        known = join(path, own) if len(failure.models) == 1 else join(name, join(path, own))
                        found.setdefault(id(tensor), known)
    return list(found.values())


def _twice(failure: Failure, _: re.Match[str]) -> Cause:
    name, _loss_tensor = _loss(failure)
    buffers = [
        f"{owner}.{path + '.' if path else ''}{own}"
        for owner, model in failure.models[:4]
        for path, module in suspects.walk(model)
        for own, tensor in stores.named_tensors(module)
        if tensor.grad_fn is not None
    ]
    if buffers:
        return Cause(
            f"{buffers[0]} carries the graph of the last call: backward reached a part that is already freed.",
            "It was computed from a tensor that requires grad and kept for the next call.",
            "",
            tuple((buffer, "has a grad_fn") for buffer in buffers[:4]),
            (Fix("Detach it where it is updated:", f"self.{buffers[0].rpartition('.')[2]} = (...).detach()"),),
        )
    carried = _carried(failure)
    again = Fix("Compute the loss again before each backward, inside the loop:", "loss = criterion(model(x), y)\nloss.backward()")
    first, second = _losses(failure, name)
    both = (
        Fix("For two losses on one graph, call backward once on their sum:", f"({first} + {second}).backward()"),
        Fix("Or keep the graph the first time:", f"{first}.backward(retain_graph=True)"),
    )
    if name in carried:
        fixes = [
            Fix(
                f"{name} keeps the graph of each round: call backward only on this round's loss, and add up numbers.",
                f"loss.backward()\n{name} += loss.item()",
            )
        ]
    elif carried:
        key, thing = next(iter(carried.items()))
        cut = f"{key}.detach()" if issubclass(type(thing), Tensor) else f"tuple(one.detach() for one in {key})"
        fixes = [Fix(f"{key} is passed from round to round with its graph: detach it after each.", f"{key} = {cut}")]
    else:
        cut = next(iter(_kept(failure)), "state")
        keep = Fix("Whatever you keep for the next step (a hidden state, a running sum) must be detached:", f"{cut} = {cut}.detach()")
        fixes = [*both, again, *([keep] if cut != "state" else [])] if _backwards(failure) > 1 else [again, keep, *both]
    return Cause(
        f"backward ran a second time through the same graph, from {name or 'the loss'}: the first time freed it.",
        "Each forward pass builds a graph for one backward.",
        "",
        tuple((key, "passed from round to round") for key in carried),
        tuple(fixes),
    )


def _carried(failure: Failure) -> dict[str, Any]:
    """What the user's loop hands on from round to round, if it holds a graph."""
    if failure.user is None:
        return {}
    named = {name: failure.user.names.get(name) for name in suspects.carried(failure.user)}
    return {
        name: thing
        for name, thing in named.items()
        if any(issubclass(type(part), Tensor) and part.grad_fn is not None for part in (thing if type(thing) is tuple else (thing,)))
    }


def _kept(failure: Failure) -> list[str]:
    """The plain attributes of models that hold a graph from the last call."""
    return [
        f"{join(name, path)}.{key}"
        for name, model in failure.models[:4]
        for path, module in suspects.walk(model)
        for key, value in stores.contents(module).items()
        if key not in stores.STANDARD and issubclass(type(value), Tensor) and value.grad_fn is not None
    ]


def _backwards(failure: Failure) -> int:
    """How often the user's code says ``backward``, up to the line that failed."""
    user = failure.user
    return 0 if user is None else sum(line.count(".backward(") for number, line in user.lines() if number <= user.line)


def _losses(failure: Failure, name: str) -> tuple[str, str]:
    """From what backward ran before in the same function, and from what it failed; two words where that is not so plain."""
    user = failure.user
    text = "".join(line for number, line in user.lines() if number < user.line) if user is not None else ""
    found = [one for one in dict.fromkeys(re.findall(r"\b(\w+)\.backward\(", text)) if one != name]
    return (found[0], name) if len(found) == 1 and name.isidentifier() else ("loss1", "loss2")


def _no_graph(failure: Failure, _: re.Match[str]) -> Cause:
    name, loss = _loss(failure)
    models = failure.models[:4]
    tensors = [tensor for _, model in models for _, module in suspects.walk(model) for _, tensor in stores.named_tensors(module)]
    trainable = sum(tensor.requires_grad for tensor in tensors)
    lines = [] if models and tensors and not trainable else suspects.lines(failure, suspects.DETACHED)
    cut = detached.of(failure.user)
    facts = [(name or "the loss", f"{described(loss)}, requires no grad")]
    fixes: list[Fix] = []
    if models and tensors and not trainable:
        why = f"All parameters of {models[0][0]} are frozen."
        fixes.append(Fix("Let them train:", f"{models[0][0]}.requires_grad_(True)"))
    elif _of_gradient(failure):
        why = "A gradient has its own graph only with create_graph=True."
        fixes.append(Fix("To differentiate a gradient again:", "torch.autograd.grad(y, x, create_graph=True)"))
    elif cut is not None and not cut.model:
        why = f"The graph ends at {cut.where}: {format.cut(cut.line, 120)}."
        what = cut.by or "no_grad, detach, item, numpy, argmax, a comparison"
        fixes.append(Fix(f"Leave out what cuts it off there ({what}), or do that after backward."))
        lines = []
    elif cut is not None:
        why = f"The graph ends inside what {cut.where} calls: {format.cut(cut.line, 120)}."
        fixes.append(Fix("Leave out what cuts it off (no_grad, detach, item, numpy, argmax), or do that after backward."))
    elif models:
        why = "Nothing that it was computed from requires a gradient, or it was computed under no_grad."
        fixes.append(Fix("Compute the loss from the model's output, outside torch.no_grad():", f"loss = criterion({models[0][0]}(x), y)"))
    else:
        why = "Nothing that it was computed from requires a gradient, or the graph was cut on the way."
        fixes.append(Fix("Say which tensor's gradient you want, before the computation:", "x.requires_grad_()"))
    if models:
        facts.append((f"{models[0][0]}: parameters with gradient", str(trainable)))
    return Cause(
        f"{name or 'The loss'} has no graph: there is nothing to go back through.",
        why,
        "",
        (*facts, *_suspects(lines)),
        tuple(fixes),
    )


def _of_gradient(failure: Failure) -> bool:
    """Whether the user's code asks for gradients as tensors, without a graph of their own."""
    text = "".join(line for _, line in failure.user.lines()) if failure.user is not None else ""
    return bool(re.search(r"\bgrad\.grad\(|autograd\.grad\(", text)) and "create_graph" not in text


def _number(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``backward`` on what ``item`` or NumPy has made a plain number of."""
    user = failure.user
    expression = user.expression() if user is not None and failure.inner is user else None
    if not isinstance(expression, (ast.Attribute, ast.Call)):
        return None
    owner = expression if isinstance(expression, ast.Attribute) else expression.func
    name = ast.unparse(owner.value) if isinstance(owner, ast.Attribute) else "loss"
    lines = suspects.lines(failure, suspects.DETACHED)
    fix = Fix("Call backward on the tensor, and take its number afterwards:", "loss.backward()\nhistory.append(loss.item())")
    return Cause(
        f"{name} is a plain {match[1].rpartition('.')[2]}, which has no graph to go back through.",
        "item, tolist and NumPy give numbers without a graph.",
        "",
        ((name, match[1]), *_suspects(lines)),
        (fix,),
    )


def _flag(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``h.requires_grad = False`` on what was computed."""
    user = failure.user
    node = source_code.statement_of(user) if user is not None else None
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    call = node.value if isinstance(node, ast.Expr) else None
    owner = target.value if isinstance(target, ast.Attribute) and target.attr == "requires_grad" else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "requires_grad_":
        owner = call.func.value
    if owner is None:
        return None
    name = ast.unparse(owner)
    return Cause(
        f"{name} is computed from what is trained, so its requires_grad cannot be set{failure.within}.",
        "You can choose it only for a tensor made directly, such as a parameter.",
        "",
        (),
        (Fix("To continue without its graph:", f"{name} = {name}.detach()"),),
    )


def _not_scalar(failure: Failure, _: re.Match[str]) -> Cause:
    name, loss = _loss(failure)
    shape = shape_of(loss) or ()
    call = failure.user.expression() if failure.user is not None else None
    told = (
        f"backward starts from one number, and {name or 'the loss'} has {format.plural(_count(shape), 'number')}.",
        f"Its shape is {shape}.",
    )
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not call.args):
        return Cause(
            *told,
            "",
            ((name or "the loss", str(shape)),),
            (Fix("Make one number of them where the loss is computed, such as loss.mean()."),),
        )
    return Cause(
        *told,
        "",
        ((name or "the loss", str(shape)),),
        (
            Fix("Make one number of them:", f"{name}.mean().backward()" if name.isidentifier() else "loss.mean().backward()"),
            Fix(
                "Or give a weight for each (for a Jacobian product):",
                f"{name if name.isidentifier() else 'y'}.backward(torch.ones({', '.join(map(str, shape))}))",
            ),
        ),
    )


def _count(shape: tuple[int, ...]) -> int:
    number = 1
    for size in shape:
        number *= size
    return number


def _grad_shape(failure: Failure, match: re.Match[str]) -> Cause:
    given, expected = tuple_of(match[1]), tuple_of(match[2])
    return Cause(
        f"backward got weights of shape {given} for an output of {expected}.",
        "They must be equal.",
        f"{shown(given)} ≠ {shown(expected)}",
        (("given", str(given)), ("expected", str(expected))),
        (Fix("", f"backward(torch.ones{expected})"),),
    )


def _unused(failure: Failure, match: re.Match[str]) -> Cause:
    number = int(match[1])
    inputs = failure.local("inputs")
    user = failure.user
    inputs = (inputs,) if issubclass(type(inputs), Tensor) else inputs
    wanted = inputs[number] if type(inputs) in (list, tuple) and number < len(inputs) else None
    name = next(
        (n for n, thing in (list(user.names.items()) if user else ()) if thing is wanted and wanted is not None),
        next((f"{n}.{path}" if path else n for n, path in _paths(failure, wanted)), f"number {number} of the inputs, counted from 0,"),
    )
    call = user.expression() if user is not None else None
    line = "torch.autograd.grad(outputs, inputs, allow_unused=True)"
    if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("grad") and all(k.arg != "allow_unused" for k in call.keywords):
        line = f"{ast.unparse(call).removesuffix(')')}, allow_unused=True)"
    return Cause(
        f"{name} took no part in the output: there is no gradient with respect to it.",
        "It was not used, or was detached on the way.",
        "",
        ((name, described(wanted)),) if wanted is not None else (),
        (Fix("If that is intended, its gradient is then None:", line),),
    )


def _paths(failure: Failure, wanted: Any) -> Iterator[tuple[str, str]]:
    """The names of a parameter in the models at hand."""
    for name, model in failure.models[:4] if wanted is not None else ():
        for path, module in suspects.walk(model):
            for own, tensor in stores.named_tensors(module):
                if tensor is wanted:
                    yield name, join(path, own)


def _leaf(failure: Failure, match: re.Match[str]) -> Cause:
    operand = next((o for o in failure.tensors if o.thing.requires_grad), failure.tensors[0] if failure.tensors else None)
    name = operand.text if operand is not None else "A parameter"
    statement = source_code.statement_of(failure.user) if failure.user is not None else None
    line = ast.unparse(statement) if isinstance(statement, (ast.Assign, ast.AugAssign, ast.Expr)) else ""
    fixes = [Fix("To set or initialize it outside the graph:", "with torch.no_grad():\n    " + line if line else "")]
    fixes += [Fix("To compute with it, make a new tensor:", made) for made in [_anew(statement)] if made]
    fixes += [Fix("nn.init's functions already do that:", made) for made in [_initialised(statement)] if made]
    of = f"A view of {name[0].lower() + name[1:] if operand is None else name}" if match[1] else name
    return Cause(
        f"{of} is trained, but is changed in place where gradients are recorded{failure.within}.",
        "The gradient of its old values would be lost.",
        "in place on a trained tensor",
        tuple((o.text, described(o.thing)) for o in failure.tensors[:2]),
        tuple(fixes),
    )


def _anew(statement: ast.stmt | None) -> str:
    """The same out of place: ``y = w + 1`` for ``w += 1``."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, (ast.Name, ast.Attribute)):
        return "y = " + ast.unparse(ast.BinOp(statement.target, statement.op, statement.value))
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        name = call.func.attr.removesuffix("_")
        again = isinstance(call.func.value, ast.Call) and ast.unparse(call.func.value.func).endswith("_")
        if not again and name in ("add", "sub", "mul", "div", "clamp", "relu", "exp", "neg", "abs"):
            return f"y = {ast.unparse(call.func.value)}.{name}({', '.join(map(ast.unparse, [*call.args, *call.keywords]))})"
    return ""


_INITIALISERS = {"fill_": "constant_", "zero_": "zeros_", "normal_": "normal_", "uniform_": "uniform_"}


def _initialised(statement: ast.stmt | None) -> str:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in _INITIALISERS:
        return ""
    arguments = [call.func.value, *call.args]
    return f"nn.init.{_INITIALISERS[call.func.attr]}({', '.join(map(ast.unparse, arguments))})" if not call.keywords else ""


def _numpy(failure: Failure, match: re.Match[str]) -> Cause:
    call = failure.user.expression() if failure.user is not None else None
    receiver = (
        call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "numpy" else None
    )
    name = failure.tensors[0].text if failure.tensors else "The tensor"
    code = ast.unparse(receiver) if receiver is not None else name if failure.tensors else "x"
    return Cause(
        f"{name} is part of a graph, which NumPy cannot follow{failure.within}.",
        "Its gradient would end there unnoticed.",
        "requires grad",
        ((name, f"{described(failure.tensors[0].thing)}, requires grad"),) if failure.tensors else (),
        (Fix("End the graph here:", f"{code}.detach().cpu().numpy()"), Fix("Or compute what needs no graph under torch.no_grad().")),
    )


def _backward_hook_view(failure: Failure, match: re.Match[str]) -> Cause:
    """A full backward hook makes what goes into its module, and comes out, views; one of them is changed in place."""
    subject = failure.subject
    own = failure.module is not None and stores.contents(failure.module).get("inplace") is True
    where = f"{subject} changes its input in place" if own else f"A tensor is changed in place{failure.within}"
    itself = own and failure.module is not None and _has_backward_hook(failure.module)
    found = None if itself or failure.hook else _hooked_giver(failure)
    facts: tuple[tuple[str, str], ...] = ()
    if itself:
        said, facts = f"{where}, which its own full backward hook has turned into a view.", ((f"{subject}", "full backward hook"),)
    elif found is not None:
        said, facts = (
            f"{where}, which is the output of {found[0]} with its full backward hook.",
            ((f"{found[0]} ({found[1]})" if "(" not in found[0] else found[0], "full backward hook"),),
        )
    else:
        said = f"{where}, which a full backward hook has turned into a view."
    fixes = []
    if own and failure.failing is not None:
        fixes.append(Fix(f"Let {subject} make a new tensor:", f"nn.{failure.failing.type}(inplace=False)"))
    anew = _out_of_place(failure.user.source) if failure.user is not None and not own else ""
    if anew:
        fixes.append(Fix("Make a new tensor there:", anew))
    fixes.append(
        Fix(
            f"{'Or hook' if fixes else 'Hook'} the tensor instead of the module, in a forward hook:",
            "output.register_hook(lambda grad: ...)",
        )
    )
    return Cause(
        said,
        "Such a hook wraps inputs and outputs in views, which must not change.",
        "in place on a hooked tensor",
        facts,
        tuple(fixes),
    )


def _has_backward_hook(module: Module) -> bool:
    held = stores.contents(module)
    return bool(held.get("_backward_pre_hooks") or (held.get("_backward_hooks") and held.get("_is_full_backward_hook") is True))


def _hooked_giver(failure: Failure) -> tuple[str, str] | None:
    """The place and the class of the module with a full backward hook that gave what is changed, where the code shows it."""
    frame = failure.user
    if failure.calls:
        given = provenance.giver(failure, changed=True)
    else:
        module = suspects.given_by(frame, _changed(frame)) if frame is not None else None
        given = None if module is None else (hook_errors.place(failure, module), module)
    if given is None or not _has_backward_hook(given[1]):
        return None
    place, cls = given[0], type(given[1]).__name__
    return (f"{place} ({cls})" if place.isdigit() else place or cls), cls


def _changed(frame: Frame) -> str:
    """The name that ``y.mul_(2)`` or ``y *= 2`` changes; nothing for anything else."""
    node = frame.expression()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    elif isinstance(node, ast.AugAssign):
        node = node.target
    return node.id if isinstance(node, ast.Name) else ""


def _inference(failure: Failure, _: re.Match[str]) -> Cause:
    name = next((o.text for o in failure.tensors if o.thing.is_inference()), "A tensor")
    return Cause(
        f"{name} was made in inference mode and has no version to return to{failure.within}.",
        "Such tensors cannot be used in training, or changed outside inference mode.",
        "made in inference mode",
        ((name, "inference tensor"),) if name != "A tensor" else (),
        (
            Fix("A copy is a normal tensor:", f"{name if name != 'A tensor' else 'x'}.clone()"),
            Fix("Or make it under torch.no_grad() instead, so that it can be used later."),
        ),
    )


def _deepcopy(failure: Failure, _: re.Match[str]) -> Cause:
    """Which tensor could not be copied is known: the innermost frame is its own ``__deepcopy__``."""
    tensor: Any = failure.inner.names.get("self") if failure.inner is not None and failure.inner.function == "__deepcopy__" else None
    known = issubclass(type(tensor), Tensor)
    name, kind, key = _carrier(failure, tensor) if known else ("", "", "")
    node = tensor.grad_fn if known else None
    said = type(node).__name__ if node is not None else "a grad_fn"
    what = f"{kind} {name}".strip() or "A tensor"
    kept = (
        Fix("Keep it without its graph:", f"self.{key} = (...).detach()")
        if key.isidentifier()
        else Fix("Take it out of its graph first:", f"{name if name.isidentifier() else 'x'}.detach()")
    )
    return Cause(
        f"{what[:1].upper()}{what[1:]} is part of a graph, and a graph cannot be copied."
        if kind
        else f"{what} is part of a graph, and a graph cannot be copied.",
        "deepcopy copies tensors made directly, not computed ones.",
        "",
        ((name, f"computed by {said}"),) if name else (),
        (kept,),
    )


def _carrier(failure: Failure, tensor: Tensor) -> tuple[str, str, str]:
    """What the tensor is called in the model that is copied, what it is there, and the attribute; or its own name; or nothing."""
    copied: list[Any] = [frame.names.get("x") for frame in failure.frames if frame.code is getattr(copy.deepcopy, "__code__", None)]
    if copied and copied[0] is tensor:
        own = failure.user.names if failure.user is not None else {}
        return next((name for name, thing in list(own.items()) if thing is tensor), ""), "", ""
    for root in (thing for thing in copied if stores.is_module(thing)):
        called = failure.name_of(root) or type(root).__name__
        for path, module in suspects.walk(root):
            held = stores.contents(module)
            place = f"{called}.{path + '.' if path else ''}"
            for key, one in stores.named_tensors(module):
                if one is tensor:
                    return f"{place}{key}", "buffer" if key in (held.get("_buffers") or {}) else "parameter", str(key)
            for key, value in list(held.items()):
                if key not in stores.STANDARD and _is_in(value, tensor):
                    return f"{place}{key}", "attribute", str(key) if value is tensor else ""
        return "", "", ""
    return "", "", ""


def _is_in(thing: object, tensor: Tensor, depth: int = 3) -> bool:
    """Whether it is the tensor, or a plain list, tuple or dict that holds it."""
    if thing is tensor:
        return True
    inner = list(thing.values()) if type(thing) is dict else thing if type(thing) in (list, tuple) else ()
    return depth > 0 and any(_is_in(one, tensor, depth - 1) for one in inner)  # type: ignore[attr-defined]


_R = (RuntimeError,)
RULES = (
    Rule("no gradient", (AttributeError,), r"^'(float|int|ndarray|numpy\.\w+)' object has no attribute 'backward'", _number),
    Rule(
        "in-place",
        _R,
        r"modified by an inplace operation: \[torch\.(?:cuda\.)?(\w+?)Tensor \[([\d, ]*)\]\](?:, which is output \d+ of (\w+),)? is at "
        r"version (\d+); expected version (\d+)",
        _in_place,
    ),
    Rule("backward twice", _R, r"Trying to backward through the graph a second time", _twice),
    Rule("no gradient", _R, r"does not require grad and does not have a grad_fn", _no_graph),
    Rule("not a scalar", _R, r"grad can be implicitly created only for scalar outputs", _not_scalar),
    Rule(
        "not a scalar",
        _R,
        r"Mismatch in shape: grad_output\[\d+\] has a shape of torch\.Size\(\[([\d, ]*)\]\) and output\[\d+\] has a shape of "
        r"torch\.Size\(\[([\d, ]*)\]\)",
        _grad_shape,
    ),
    Rule("no gradient", _R, r"differentiated Tensor(?:s)? at index (\d+) appears? to not have been used in the graph", _unused),
    Rule("leaf", _R, r"a (view of a )?leaf Variable that requires grad is being used in an in-place operation", _leaf),
    Rule("leaf", _R, r"^you can only change requires_grad flags of leaf variables", _flag),
    Rule("numpy", _R, r"Can't call numpy\(\) on Tensor that requires grad", _numpy),
    Rule(
        "backward hook",
        _R,
        r"Output \d+ of BackwardHookFunction(?:Backward)? is a view and (?:is being|its base or another view of its base has been) "
        r"modified in-?place",
        _backward_hook_view,
    ),
    Rule(
        "inference",
        _R,
        r"Inference tensors cannot be saved for backward|Inplace update to inference tensor outside InferenceMode",
        _inference,
    ),
    Rule("deepcopy", _R, r"Only Tensors created explicitly by the user .*support the deepcopy protocol", _deepcopy),
)
