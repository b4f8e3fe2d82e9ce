"""Shapes outside of layers: joining, adding, viewing, and places that a tensor does not have."""

from __future__ import annotations

import ast
import re
from math import prod

import torch
from torch import Tensor, nn

from modlab.explaining import code_fixes, operands, source_code
from modlab.explaining.calls import join
from modlab.explaining.failure import Cause, Failure, Rule, described, shape_of, shown, tuple_of
from modlab.inspection import stores
from modlab.records.explanation import Fix

_Shape = tuple[int, ...]
_LONG = 60  # characters of an expression that serves as a name


def _joined(failure: Failure) -> list[tuple[str, _Shape]]:
    """The tensors of a list that should be joined, with their names."""
    found = [(operand.text, shape) for operand in failure.tensors if (shape := shape_of(operand.thing)) is not None]
    if len(found) > 1:
        return found
    batch = failure.local("batch")
    if type(batch) in (list, tuple):
        return [(f"batch[{i}]", shape) for i, part in enumerate(batch) if (shape := shape_of(part)) is not None]
    return []


def _listed(failure: Failure) -> list[str]:
    """How the members of a list are written that stands in the call."""
    call = failure.user.expression() if failure.user is not None else None
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    nodes = first.elts if isinstance(first, (ast.List, ast.Tuple)) else []
    texts = [ast.unparse(node) for node in nodes]
    return [] if any(isinstance(node, ast.Starred) for node in nodes) or any(len(text) > _LONG for text in texts) else texts


def _facts(pairs: list[tuple[str, _Shape]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, str(shape)) for name, shape in pairs[:8])


def _cat(failure: Failure, match: re.Match[str]) -> Cause:
    place, expected, given, number = (int(match[i]) for i in (1, 2, 3, 4))
    pairs = _joined(failure)
    names = [name for name, _ in pairs] or _listed(failure)
    name = names[number] if number < len(names) else f"number {number} of the list"
    first = names[0] if names else "the first"
    fixes = []
    if len(pairs) > 1:
        shapes = [shape for _, shape in pairs]
        other = [
            dim for dim in range(len(shapes[0])) if all(s[:dim] + s[dim + 1 :] == shapes[0][:dim] + shapes[0][dim + 1 :] for s in shapes)
        ]
        if other and other != [place]:
            fixes.append(Fix("Along another dimension they fit:", f"torch.cat([{', '.join(n for n, _ in pairs[:4])}], dim={other[0]})"))
    fixes.append(Fix(f"All sizes except dimension {place} must be equal: crop, pad or project one of them first."))
    return Cause(
        f"cat along dimension {place}: {name} has {given} where {first} has {expected}{failure.within}.",
        "Only the dimension along which they are joined may differ.",
        f"{given} ≠ {expected}, beside dimension {place}",
        _facts(pairs),
        tuple(fixes),
    )


def _cat_dimensions(failure: Failure, match: re.Match[str]) -> Cause:
    pairs = _joined(failure)
    names = " and ".join(name for name, _ in pairs[:2]) or "the tensors"
    return Cause(
        f"cat: {names} have {match[1]} and {match[2]} dimensions{failure.within}.",
        "They need the same number.",
        f"{match[1]} ≠ {match[2]} dimensions",
        _facts(pairs),
        (Fix("Give the smaller one the missing dimension:", f"{pairs[1][0] if len(pairs) > 1 else 'x'}.unsqueeze(0)"),),
    )


def _stack(failure: Failure, match: re.Match[str]) -> Cause:
    first, number, other = tuple_of(match[1]), int(match[3]), tuple_of(match[2])
    pairs = _joined(failure)
    name = pairs[number][0] if number < len(pairs) else f"number {number}"
    fixes = [Fix("To join along an existing dimension, cat:", _cat_instead(failure))] if first and first[1:] == other[1:] else []
    fixes.append(Fix("Crop, pad or project them to one shape first."))
    return Cause(
        f"stack: {name} is {other} and the first is {first}{failure.within}.",
        "stack needs tensors of equal size.",
        f"{shown(other)} ≠ {shown(first)}",
        (("entry 0", str(first)), (f"entry {number}", str(other))),
        tuple(fixes),
    )


def _cat_instead(failure: Failure) -> str:
    user = failure.user
    call = user.expression() if user is not None else None
    if user is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
        return "torch.cat([...], dim=0)"
    return source_code.rewritten(user, call, ast.Call(ast.Attribute(call.func.value, "cat", ast.Load()), call.args, []))


def _nothing_to_join(failure: Failure, _: re.Match[str]) -> Cause:
    return Cause(
        f"cat or stack got an empty list{failure.within}.",
        "It has nothing to join: the loop that should fill it never ran.",
        "empty list",
        (),
        (Fix("Check what it was made from, or skip the call if there is nothing:", "x = torch.cat(parts) if parts else ..."),),
    )


def _scalars(failure: Failure, _: re.Match[str]) -> Cause:
    user = failure.user
    call = user.expression() if user is not None else None
    code = "torch.stack([...])"
    if user is not None and isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args:
        made = ast.Call(ast.Attribute(call.func.value, "stack", ast.Load()), call.args, call.keywords)
        code = source_code.rewritten(user, call, made)
    return Cause(
        f"cat got single numbers{failure.within}, but joins along an existing dimension.",
        "A tensor of shape () has none.",
        "no dimension",
        _facts(_joined(failure)[:4]),
        (Fix("stack makes one:", code),),
    )


def _broadcast(failure: Failure, match: re.Match[str]) -> Cause:
    a, b, place = int(match[1]), int(match[2]), int(match[3])
    known = [(operand.text, shape) for operand in failure.tensors if (shape := shape_of(operand.thing)) is not None]
    pairs = operands.conflict(known, (a, b), place)
    names = [name for name, _ in pairs] or operands.sides(failure.user)
    fixes = []
    if len(pairs) == 2:
        (_, left), (_, right) = pairs
        if len(left) > len(right) and right and right == left[: len(right)]:
            fixes.append(Fix("Shapes are compared from the right. If it should be on the left:", _spread(names[1], len(left) - len(right))))
        elif len(left) == len(right) == 2 and left == right[::-1]:
            fixes.append(Fix("Transposed it fits:", f"{names[1]}.T"))
        owned = _own_parameter(failure, pairs)
        if owned:
            fixes.append(Fix(f"{'Or give' if fixes else 'Give'} {owned[0]} the size {owned[1]}."))
    look = ", ".join(f"{name if name.replace('.', '').isidentifier() else f'({name})'}.shape" for name in names)
    look = look if _are_users(failure, names) else ""
    fixes.append(
        Fix(
            "Sizes are compared from the right: equal, or one of them 1." + (" Look at both:" if look else ""),
            f"print({look})" if look else "",
        )
    )
    return Cause(
        f"{' and '.join(names) or 'Two tensors'} do not fit{failure.within}: {a} and {b} in dimension {place}.",
        f"{names[0]} is {pairs[0][1]}, {names[1]} is {pairs[1][1]}." if len(pairs) == 2 else "",
        (f"({shown(pairs[0][1])}) and ({shown(pairs[1][1])}): " if len(pairs) == 2 else "") + f"{a} ≠ {b}",
        _facts(pairs or known),
        tuple(fixes),
    )


def _are_users(failure: Failure, texts: list[str]) -> bool:
    """Whether all names in some expressions are there in the user's own code."""
    user = failure.user
    found = {node.id for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    return user is not None and all(name in user.names or name in user.globals for name in found)


def _spread(name: str, more: int) -> str:
    return f"{name}[{', '.join(['...', *['None'] * more])}]"


def _own_parameter(failure: Failure, pairs: list[tuple[str, _Shape]]) -> tuple[str, int] | None:
    if failure.module is None:
        return None
    own = {id(tensor): name for name, tensor in stores.named_tensors(failure.module)}
    tensors = {operand.text: operand.thing for operand in failure.tensors}
    for (name, shape), (_, other) in (pairs, pairs[::-1]):
        if id(tensors[name]) in own and other and len(shape) == 1:
            return f"{failure.subject}.{own[id(tensors[name])]}", other[-1]
    return None


def _output(failure: Failure, match: re.Match[str]) -> Cause:
    kept, wider = tuple_of(match[1]), tuple_of(match[2])
    name = failure.tensors[0].text if failure.tensors else ""
    return Cause(
        f"{name or 'The tensor'} is {kept} and cannot hold a result of {wider}{failure.within}.",
        "A change in place keeps the shape.",
        f"{shown(wider)} into {shown(kept)}",
        ((name or "the tensor", str(kept)), ("result", str(wider))),
        (Fix("Make a new tensor instead:", f"{name} = {name} + ..." if name else ""),),
    )


def _view(failure: Failure, match: re.Match[str]) -> Cause:
    wanted, count = tuple_of(match[1]), int(match[2])
    operand = failure.tensors[0] if failure.tensors else None
    taken = shape_of(operand.thing) if operand is not None else None
    name = operand.text if operand is not None else _receiver(failure)
    known = prod(size for size in wanted if size != -1)
    why = f"{count} is not a multiple of {known}" if -1 in wanted else f"{shown(wanted)} is {known}" if len(wanted) > 1 else ""
    fixes = []
    each = prod(taken[1:]) if taken else 0
    if taken and len(wanted) == 2 and wanted[0] != -1 and wanted[1] in (each, -1):
        fixes.append(Fix(f"To keep the batch and flatten the rest, ({taken[0]}, {each}):", _instead(failure, f"{name}.flatten(1)")))
    elif taken and len(taken) > 2 and len(wanted) == 2 and wanted[0] in (taken[0], -1):
        fixes += _flattened(failure, name, taken[0], each, wanted[1])
    if taken and -1 not in wanted and len(wanted) > 1 and count % max(prod(wanted[1:]), 1) == 0:
        fixes.append(
            Fix("Leave the first size open:", _instead(failure, f"{name}.{_method(failure)}({', '.join(map(str, (-1, *wanted[1:])))})"))
        )
    if not fixes:
        look = f"print({name}.shape)" if name else ""
        fixes.append(Fix(f"The sizes must multiply to {count}; look at its shape:", look))
    return Cause(
        f"{name or 'The tensor'} has {count} numbers, which do not make {shown(wanted).replace('-1', '?')}{failure.within}.",
        "; ".join(filter(None, (f"It is {taken}" if taken is not None else "", why))) + ("." if why or taken is not None else ""),
        f"{count} numbers → {shown(wanted)}",
        ((name or "the tensor", str(taken)), ("wanted", str(wanted)), ("numbers", str(count))),
        tuple(fixes),
    )


def _flattened(failure: Failure, name: str, rows: int, each: int, wanted: int) -> list[Fix]:
    """To make a row of each sample helps only where a layer takes so many numbers, or is made to."""
    call, flat = failure.failing, _instead(failure, f"{name}.flatten(1)")
    layers = (
        []
        if call is None or call.path is None
        else [(join(call.path, key), child) for key, child in stores.named_children(call.module) if type(child) is nn.Linear]
    )
    if any(layer.in_features == each for _, layer in layers):
        return [Fix(f"That would mix up the batch; to keep its rows, ({rows}, {each}):", flat)]
    told = Fix(f"Each of the {rows} is {each} numbers instead of {wanted}: the model's input may not have the size it is made for.")
    fitting = [one for one in layers if one[1].in_features == wanted]
    if len(fitting) != 1:
        return [told]
    path, layer = fitting[0]
    owner, line = code_fixes.assignment(failure, path, code_fixes.constructor(layer, wanted, each))
    both = f"{flat}    # here\n{line}" + (f"    # in {owner}" if owner else "")
    return [told, Fix(f"Or make a row of each, and let {path} take that many:", both)] if line else [told]


def _method(failure: Failure) -> str:
    """How the user asks for another shape."""
    call = failure.user.expression() if failure.user is not None else None
    asked = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
    return asked if asked == "reshape" else "view"


def _receiver(failure: Failure) -> str:
    """How that is written of which a method was called."""
    call = failure.user.expression() if failure.user is not None else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in ("view", "reshape"):
        return ""
    text = ast.unparse(call.func.value)
    return text if len(text) <= _LONG and isinstance(call.func.value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else ""


def _instead(failure: Failure, code: str) -> str:
    """The statement that failed with this in place of the call."""
    user = failure.user
    call = user.expression() if user is not None else None
    if user is None or not isinstance(call, ast.Call) or not code.isascii():
        return code
    return source_code.rewritten(user, call, ast.parse(code, mode="eval").body)


def _strides(failure: Failure, _: re.Match[str]) -> Cause:
    name = failure.tensors[0].text if failure.tensors else "x"
    return Cause(
        f"{name} is not contiguous, and view cannot copy{failure.within}.",
        "After a transpose or permute, its numbers are in a different order in memory.",
        "not contiguous",
        (),
        (Fix("Let it copy if it must:", _reshaped(failure) or f"{name}.reshape(...)"),),
    )


def _reshaped(failure: Failure) -> str:
    """The statement with ``reshape`` for ``view``."""
    user = failure.user
    call = user.expression() if user is not None else None
    if user is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "view":
        return ""
    if any(type(operands.follow(one, user)) is torch.dtype for one in call.args):
        return ""  # view(dtype) is another thing
    func = ast.Attribute(call.func.value, "reshape", ast.Load())
    return source_code.rewritten(user, call, ast.Call(func, call.args, call.keywords))


def _no_places(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``out.gather(1, y)`` with a y of real numbers."""
    user = failure.user
    call = user.expression() if user is not None else None
    if user is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    written = [ast.unparse(node) for node in call.args]
    index = next((one for one in failure.tensors if one.text in written and one.thing.dtype not in (torch.int32, torch.int64)), None)
    places = [i for i, node in enumerate(call.args) if index is not None and ast.unparse(node) == index.text]
    if index is None or len(places) != 1:
        return None
    dtype = str(index.thing.dtype).removeprefix("torch.")
    whole: list[ast.expr] = list(call.args)
    whole[places[0]] = ast.Call(ast.Attribute(call.args[places[0]], "long", ast.Load()), [], [])
    made = ast.Call(call.func, whole, call.keywords)
    return Cause(
        f"{match[1].rstrip('_')}: {index.text} is {dtype}, and needs int64{failure.within}.",
        "It holds positions in the other tensor, which are whole numbers.",
        f"{dtype} ≠ int64",
        ((index.text, f"{shape_of(index.thing)} {dtype}"),),
        (Fix("If they are whole numbers anyway:", source_code.rewritten(user, call, made)),),
    )


def _gathered(failure: Failure, _: re.Match[str]) -> Cause | None:
    """``out.gather(1, y)`` with one index a row, which lacks the dimension along which it gathers."""
    user = failure.user
    call = user.expression() if user is not None else None
    if user is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or len(call.args) < 2:
        return None
    if call.func.attr not in ("gather", "scatter", "scatter_", "scatter_add", "scatter_add_") or call.keywords:
        return None
    tensor, place, index = (operands.follow(node, user) for node in (call.func.value, *call.args[:2]))
    index_shape, shape = shape_of(index), shape_of(tensor)
    name = ast.unparse(call.args[1])
    if index_shape is None or type(place) is not int:
        return None
    fixes = []
    known = shape is None or (len(shape) == len(index_shape) + 1 and index_shape == shape[:place] + shape[place:][1:])
    if known and 0 <= place <= len(index_shape) and isinstance(call.args[1], (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
        wider = ast.parse(f"{name}.unsqueeze({place})", mode="eval").body
        made = ast.Call(call.func, [call.args[0], wider, *call.args[2:]], [])
        fixes.append(Fix(f"Give it dimension {place} with a size of 1:", source_code.rewritten(user, call, made)))
    it = f" {ast.unparse(call.func.value)} is {shape}." if shape is not None else ""
    return Cause(
        f"{call.func.attr}: {name} has {len(index_shape)} dimension{'' if len(index_shape) == 1 else 's'}, but needs as many as the"
        f" tensor it indexes{failure.within}.",
        f"{name} is {index_shape}.{it}",
        "numbers of dimensions differ",
        ((name, str(index_shape)),),
        tuple(fixes),
    )


def _expand(failure: Failure, match: re.Match[str]) -> Cause:
    wanted, place, taken, target = int(match[1]), int(match[3]), tuple_of(match[5]), tuple_of(match[4])
    written = failure.user.segment() if failure.user is not None else ""
    return Cause(
        f"expand cannot make {match[2]} into {wanted} in dimension {place}{failure.within}."
        if ".expand(" in written
        else f"A tensor of {taken} does not fit where {target} is needed{failure.within}: {match[2]} and {wanted} in dimension {place}.",
        "Only a size of 1 can be expanded.",
        f"{shown(taken)} → {shown(target)}",
        (("tensor", str(taken)), ("target", str(target))),
    )


def _index_written(node: ast.AST | None) -> str:
    """How the index is written that a method such as ``gather`` or ``scatter_`` was called with."""
    named = (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith(("gather", "scatter", "index_"))
    )
    return ast.unparse(node.args[1]) if isinstance(node, ast.Call) and named and len(node.args) > 1 else ""


def _expand_fewer(failure: Failure, match: re.Match[str]) -> Cause:
    taken, wanted = tuple_of(match[1]), tuple_of(match[2])
    name = failure.tensors[0].text if failure.tensors else "The tensor"
    return Cause(
        f"{name} has {len(taken)} dimensions, but expand names {len(wanted)}{failure.within}.",
        f"It is {taken}; expand can only add dimensions.",
        f"{len(taken)} > {len(wanted)} dimensions",
        ((name, str(taken)), ("wanted", str(wanted))),
        (Fix("Name them all; -1 leaves a size as it is."),),
    )


def _index(failure: Failure, match: re.Match[str]) -> Cause:
    index, place, size = int(match[1]), match[2], int(match[3])
    name = failure.tensors[0].text if failure.tensors else "The tensor"
    expression = failure.user.expression() if failure.user is not None else None
    by_tensor = not isinstance(expression, ast.Subscript) or any(issubclass(type(o.thing), Tensor) for o in failure.operands[1:])
    whole = [one for one in failure.tensors if not one.thing.is_floating_point() and one.thing.dtype is not torch.bool]
    where = whole[-1].text if whole else _index_written(expression) or "indices"
    last = f"{name if failure.tensors else 'x'}[{', '.join([':'] * int(place) + ['-1'])}]"
    return Cause(
        f"{name} has {size} in dimension {place}, but {index} was asked for{failure.within}.",
        f"Valid are 0 to {size - 1}; counting starts at 0.",
        f"index {index} of {size}",
        (("index", str(index)), (f"size of dimension {place}", str(size))),
        (
            Fix("Find out where it comes from:", f"print({where}.min(), {where}.max())")
            if by_tensor
            else Fix("The last one, however many there are:", last),
        ),
    )


def _dimension(failure: Failure, match: re.Match[str]) -> Cause:
    low, high, asked = int(match[1]), int(match[2]), int(match[3])
    tensor = failure.tensors[0] if failure.tensors else None
    taken = failure.taken[0] if failure.taken else shape_of(tensor.thing) if tensor is not None else None
    subject = failure.subject if failure.taken else tensor.text if tensor is not None else "The tensor"
    much = f"{high + 1} dimension{'s' if high else ''}"
    verb = "got" if failure.taken else "has"
    return Cause(
        f"{subject} {verb} {much}, but dimension {asked} was asked for.",
        f"{f'Its shape is {taken}; v' if taken is not None else 'V'}alid are {low} to {high}.",
        f"dimension {asked} of {high + 1}",
        (("shape", str(taken)), ("dimension", str(asked))),
        (
            Fix("The last dimension, however many there are:", "dim=-1"),
            *((Fix("Or put the batch in front:", "x.unsqueeze(0)"),) if asked == high + 1 else ()),
        ),
    )


def _permutation(failure: Failure, match: re.Match[str]) -> Cause:
    name = failure.tensors[0].text if failure.tensors else "The tensor"
    return Cause(
        f"{name} has {match[1]} dimensions, but permute names {match[2]}{failure.within}.",
        "permute names each dimension once.",
        f"{match[1]} ≠ {match[2]} dimensions",
        tuple((o.text, described(o.thing)) for o in failure.tensors[:1]),
    )


def _unflatten(failure: Failure, match: re.Match[str]) -> Cause:
    sizes, place, size = tuple_of(match[1]), match[2], int(match[3])
    return Cause(
        f"{failure.subject or 'unflatten'} makes {shown(sizes)} of dimension {place}, which has {size}.",
        f"{shown(sizes)} is {prod(sizes)}.",
        f"{size} ≠ {prod(sizes)}",
        (("size", str(size)), ("wanted", str(sizes))),
    )


_R, _I, _RI = (RuntimeError,), (IndexError,), (RuntimeError, IndexError)
_L = r"\[([-\d, ]*)\]"
RULES = (
    Rule(
        "join",
        _R,
        r"Sizes of tensors must match except in dimension (\d+)\. Expected size (\d+) but got size (\d+) for tensor "
        r"number (\d+)",
        _cat,
    ),
    Rule("join", _R, r"Tensors must have same number of dimensions: got (\d+) and (\d+)", _cat_dimensions),
    Rule("join", _R, rf"stack expects each tensor to be equal size, but got {_L} at entry 0 and {_L} at entry (\d+)", _stack),
    Rule("join", (RuntimeError, ValueError), r"expected a non-empty (?:list of Tensors|TensorList)", _nothing_to_join),
    Rule(
        "broadcast",
        _R,
        r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)",
        _broadcast,
    ),
    Rule("broadcast", _R, rf"output with shape {_L} doesn't match the broadcast shape {_L}", _output),
    Rule(
        "broadcast",
        _R,
        rf"The expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\) at non-singleton dimension (\d+)\.\s+Target "
        rf"sizes: {_L}\.\s+Tensor sizes: {_L}",
        _expand,
    ),
    Rule("join", _R, r"^zero-dimensional tensor \(at position \d+\) cannot be concatenated", _scalars),
    Rule("broadcast", _R, rf"^expand\([\w.]+\{{{_L}\}}, size={_L}\): the number of sizes provided", _expand_fewer),
    Rule("view", _R, rf"shape '{_L}' is invalid for input of size (\d+)", _view),
    Rule("index", _R, r"^((?:gather|scatter\w*))\(\): Expected dtype (?:int32/)?int64 for index", _no_places),
    Rule("index", _R, r"^Index tensor must have the same number of dimensions as (?:input|self) tensor", _gathered),
    Rule("view", _R, r"view size is not compatible with input tensor's size and stride", _strides),
    Rule("view", _R, r"unflatten: Provided sizes \[([\d, -]+)\] don't multiply up to the size of dim (-?\d+) \((\d+)\)", _unflatten),
    Rule("view", _R, r"input\.dim\(\) = (\d+) is not equal to len\(dims\) = (\d+)", _permutation),
    Rule("index", _RI, r"index (-?\d+) is out of bounds for dimension (\d+) with size (\d+)", _index),
    Rule("index", _I, r"Dimension out of range \(expected to be in range of \[(-?\d+), (-?\d+)\], but got (-?\d+)\)", _dimension),
)
