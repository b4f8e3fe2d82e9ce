"""Losses: targets of the wrong shape, dtype or range, and inputs that are no probabilities. And indices of embeddings."""

from __future__ import annotations

import ast
import re
from math import prod
from typing import Any

import torch
from torch import Tensor

from modlab.compat import without_autograd
from modlab.explaining import code_fixes, operands, provenance, source_code
from modlab.explaining.failure import Cause, Failure, Rule, counted, own, shape_of, shown, tuple_of
from modlab.inspection import stores
from modlab.records.explanation import Fix
from modlab.statistics.memory import is_there, local

READ = 4_000_000  # elements up to which a tensor is looked through for its ends


def _pair(failure: Failure) -> tuple[Any, Any]:
    """The input and the target of a loss, by the names that torch's own functions have for them."""
    return failure.local("input"), failure.local("target")


def _ends(tensor: Any) -> tuple[float, float] | None:
    """The least and the greatest value of a tensor, where they can be had cheaply."""
    if not issubclass(type(tensor), Tensor):
        return None
    try:
        return without_autograd(_read_ends, tensor)
    except Exception:  # noqa: BLE001 - a device that has failed, a kind of tensor that has no ends
        return None


def _read_ends(tensor: Tensor) -> tuple[float, float] | None:
    tensor = local(tensor)
    if not 0 < tensor.numel() <= READ or not is_there(tensor):
        return None
    low, high = torch.aminmax(tensor)
    return low.item(), high.item()


def _names(failure: Failure) -> tuple[str, str]:
    """What the user calls input and target."""
    given, target = _pair(failure)
    return _name_of(given, failure) or "input", _name_of(target, failure) or "target"


def _name_of(thing: Any, failure: Failure) -> str:
    """The user's own name for a thing."""
    found = {id(one): name for name, one in list(failure.user.names.items())} if failure.user is not None else {}
    return found.get(id(thing), "")


def _written(failure: Failure) -> tuple[str, str, str, str]:
    """How the loss was called: the function, input and target as they are written, and what else it was given."""
    call = failure.user.expression() if failure.user is not None else None
    given, target = _names(failure)
    if not isinstance(call, ast.Call):
        return "loss", given, target, ""
    words = {k.arg: k.value for k in call.keywords if k.arg}
    nodes = [*call.args[:2], *(words.pop(name) for name in ("input", "target")[len(call.args) :] if name in words)]
    if any(isinstance(node, ast.Starred) for node in call.args):
        return ast.unparse(call.func), given, target, ""
    if len(nodes) != 2:  # something else calls it
        return "loss", given, target, ""
    first, second = map(_operand, nodes)
    more = [*map(ast.unparse, call.args[2:]), *(f"{name}={ast.unparse(value)}" for name, value in words.items())]
    return ast.unparse(call.func), first, second, "".join(f", {text}" for text in more)


def _changed(failure: Failure, place: int, change: str) -> str:
    """The line that changes the input (0) or the target (1): ``y = y.long()``, or the call with that, where it has no name."""
    name, (function, *operands, more) = _names(failure)[place], _written(failure)
    user = failure.user
    if function == "loss" or (user is not None and name in user.names):
        return f"{name} = {change.format(name)}"
    operands[place] = change.format(operands[place])
    call = user.expression() if user is not None else None
    made = ast.parse(f"{function}({', '.join(operands)}{more})", mode="eval").body
    return ast.unparse(made) if user is None or not isinstance(call, ast.Call) else source_code.rewritten(user, call, made)


def _operand(node: ast.expr) -> str:
    """An expression, so that a method can be called on it."""
    text = ast.unparse(node)
    return text if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"


def _shapes_said(failure: Failure) -> str:
    given, target = map(shape_of, _pair(failure))
    return "" if given is None or target is None else f"The input is {given}, the target {target}."


def _facts(failure: Failure) -> tuple[tuple[str, str], ...]:
    given, target = _pair(failure)
    words = []
    for name, tensor in zip(_names(failure), (given, target), strict=True):
        if issubclass(type(tensor), Tensor):
            ends = _ends(tensor) if tensor is target and not tensor.is_floating_point() else None
            words.append((name, f"{shape_of(tensor)} {_dtype(tensor)}" + (f", {ends[0]:g} to {ends[1]:g}" if ends else "")))
    return tuple(words)


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _classes(failure: Failure, match: re.Match[str]) -> Cause:
    target = int(match[1])
    given, targets = _pair(failure)
    shape = shape_of(given)
    count = None if shape is None else shape[1] if len(shape) > 1 else shape[0] if shape else None
    name = _names(failure)[1]
    ends = _ends(targets)
    fixes = []
    ignored = target < 0 or (target == 255 and ends is not None and ends[1] == 255 and count is not None and count < 255)
    if ends is not None and ends[0] == 1 and ends[1] == count:
        fixes.append(Fix("The classes seem to be counted from 1; PyTorch counts from 0:", f"{name} = {name} - 1"))
    elif ignored:
        fixes.append(Fix(f"If {target} means no class, say so:", f"nn.CrossEntropyLoss(ignore_index={target})"))
    if count == 1:
        fixes.append(Fix("For yes or no with one score, use the loss for that:", "nn.BCEWithLogitsLoss()  # targets like the scores"))
    if ends is not None and ends[0] >= 0 and count is not None and ends[1] >= count and not ignored:
        fixes.append(
            Fix(f"{'Or give' if fixes else 'Give'} the last layer one output for each class:", f"nn.Linear(..., {int(ends[1]) + 1})")
        )
    return Cause(
        f"The target holds class {target}, but the model gives scores for "
        f"{'fewer classes' if count is None else counted(count, 'class', 'classes')}.",
        (f"Valid are 0 to {count - 1}." if count > 1 else "Only 0 is valid.") if count else "",
        f"class {target} of {count}",
        _facts(failure),
        tuple(fixes),
    )


def _batch(failure: Failure, match: re.Match[str]) -> Cause:
    given, target = int(match[1]), int(match[2])
    hints = [Fix("Both must come from the same batch: an earlier view(-1, ...) may have mixed the batch with other dimensions.")]
    return Cause(
        f"The loss got {given} predictions for {target} targets.",
        _shapes_said(failure),
        f"{given} ≠ {target}",
        _facts(failure),
        tuple(hints),
    )


def _long(failure: Failure, match: re.Match[str]) -> Cause:
    given, target = _pair(failure)
    dtype = _dtype(target) if issubclass(type(target), Tensor) else match[1].lower()
    fixes = [Fix("Class numbers are whole numbers of 64 bits:", _changed(failure, 1, "{}.long()"))]
    if issubclass(type(target), Tensor) and _fractions(target):
        fixes = [Fix("These have fractions, so they are not class numbers: look at the target.")]
    if shape_of(given) is not None and shape_of(given) == shape_of(target):
        fixes.append(Fix("For numbers instead of classes, use nn.MSELoss; for yes or no, nn.BCEWithLogitsLoss."))
    return Cause(
        f"The target holds class numbers of dtype {dtype}, but the loss needs int64.", "", f"{dtype} ≠ int64", _facts(failure), tuple(fixes)
    )


def _multi(failure: Failure, match: re.Match[str]) -> Cause | None:
    turned = _swapped(failure, match)
    if turned is not None:
        return turned
    given, target = _pair(failure)
    if not issubclass(type(given), Tensor):
        return _of_pairs(failure)
    name, shapes = _names(failure)[1], (shape_of(given) or (), shape_of(target) or ())
    floating = issubclass(type(target), Tensor) and target.is_floating_point()
    if floating and len(shapes[1]) == len(shapes[0]) == 2 and shapes[1][1] not in (1, shapes[0][1]):
        return Cause(
            f"The target has {shapes[1][1]} columns, but the model gives scores for {shapes[0][1]} classes.",
            _shapes_said(failure),
            f"{shapes[1][1]} ≠ {shapes[0][1]} classes",
            _facts(failure),
            (Fix("Give the last layer one output for each column:", f"nn.Linear(..., {shapes[1][1]})"),),
        )
    if len(shapes[1]) == 2 and shapes[1][1] == 1:
        fix = Fix("Leave out the dimension of 1:", _changed(failure, 1, "{}.squeeze(1)"))
    elif floating:
        fix = Fix("Probabilities need the shape of the input; class numbers are one per sample:", _changed(failure, 1, "{}.argmax(dim=1)"))
    else:
        fix = Fix("One class per sample:", f"{name} = {name}.argmax(dim=1)  # if it is one-hot")
    return Cause(
        f"The target is {shapes[1]} and should be ({shapes[0][0] if shapes[0] else 'batch'},): one class number per sample.",
        f"The input is {shapes[0]}.",
        f"target {shown(shapes[1])}",
        _facts(failure),
        (fix,),
    )


def _of_pairs(failure: Failure) -> Cause | None:
    """``cosine_embedding_loss`` says the same as the losses of classes."""
    given, target = shape_of(failure.local("input1")), failure.local("target")
    shape = shape_of(target)
    if not given or shape is None:
        return None
    name = _name_of(target, failure)
    code = f"{name} = {name}.squeeze(1)" if name and shape == (given[0], 1) else ""
    return Cause(
        f"The target is {shape} and should be ({given[0]},): 1 or -1 for each pair.",
        f"Each input is {given}.",
        f"target {shown(shape)}",
        (("input1", str(given)), ("input2", str(shape_of(failure.local("input2")))), ("target", str(shape))),
        (Fix("Leave out the dimension of 1:", code),) if code else (Fix("One number per pair: 1 if both belong together, otherwise -1."),),
    )


def _one_hot_target(failure: Failure, match: re.Match[str]) -> Cause:
    name = _names(failure)[1]
    shape = shape_of(_pair(failure)[1])
    if shape is not None and len(shape) < 2:
        function, first, second, _ = _written(failure)
        binary = f"F.binary_cross_entropy_with_logits({first}, {second}.float())"
        return Cause(
            f"The predictions are {shape}: the loss takes them for one sample with {shape[0] if shape else 0} classes.",
            "It needs one score for each class, (batch, classes).",
            f"no classes in {shown(shape)}",
            _facts(failure),
            (Fix("For yes or no with one score, use the loss for that:", binary),)
            if function != "loss" and _is_binary(failure)
            else (Fix("Let the last layer give one score for each class."),),
        )
    return Cause(
        f"The target has the shape of the scores, so it holds probabilities, which cannot be {_dtypes(match[1])}.",
        "Class numbers are one per sample.",
        f"{_dtypes(match[1])} ≠ float",
        _facts(failure),
        (
            Fix("If it is one-hot, class numbers say the same more simply:", f"{name} = {name}.argmax(dim=1)"),
            Fix("Or turn it into probabilities:", f"{name} = {name}.float()"),
        ),
    )


def _is_binary(failure: Failure) -> bool:
    ends = _ends(_pair(failure)[1])
    return ends is not None and ends[0] >= 0 and ends[1] <= 1


def _dtypes(word: str) -> str:
    return {"long": "int64", "int": "int32", "bool": "bool"}.get(word.lower(), word.lower())


def _spatial(failure: Failure, match: re.Match[str]) -> Cause | None:
    given, target = (shape_of(tensor) or () for tensor in _pair(failure))
    if not given:
        return None
    name, wanted = _names(failure)[1], (*given[:1], *given[2:])
    fix = Fix("The target must have the sizes of the input without its channels.")
    if len(target) == 4 and (target[0], *target[2:]) == wanted:
        code = f"{name} = {name}.squeeze(1)" if target[1] == 1 else f"{name} = {name}.argmax(dim=1)  # if it is one-hot"
        fix = Fix("Leave out the dimension of channels:", code)
    return Cause(
        f"The target is {target} and should be {wanted}: one class number per position.",
        f"The input is {given}.",
        f"target {shown(target)}",
        _facts(failure),
        (fix,),
    )


def _swapped(failure: Failure, match: re.Match[str]) -> Cause | None:
    """Whole numbers where the scores belong, and floating-point ones where the classes do."""
    given, target = _pair(failure)
    if not all(issubclass(type(tensor), Tensor) for tensor in (given, target)) or given.is_floating_point():
        return None
    if not any(frame.function in ("cross_entropy", "nll_loss") for frame in failure.frames) or not target.is_floating_point():
        return None
    function, first, second, more = _written(failure)
    return Cause(
        f"The loss got {_dtype(given)} as predictions and {_dtype(target)} as targets: they are swapped.",
        "The predictions come first.",
        "swapped",
        _facts(failure),
        (Fix("", f"{function}({second}, {first}{more})"),),
    )


def _target_range(failure: Failure, _: re.Match[str]) -> Cause:
    ends = _ends(_pair(failure)[1])
    where = f"they go from {ends[0]:.2g} to {ends[1]:.2g}" if ends is not None else "some are outside"
    return Cause(
        f"BCELoss needs targets between 0 and 1; {where}.",
        "Each is the probability of a yes.",
        "outside 0 to 1",
        _facts(failure),
        (Fix("For classes 0, 1, 2, … use a different loss:", "loss = nn.CrossEntropyLoss()"),) if ends is not None and ends[1] > 1 else (),
    )


def _places(failure: Failure, match: re.Match[str]) -> Cause:
    expected, got = tuple_of(match[1]), tuple_of(match[2])
    shape = shape_of(_pair(failure)[0]) or ()
    function, name, other, more = _written(failure)
    fixes = []
    if len(shape) == 3 and shape[:2] == got:
        flat = f"{function}({name}.flatten(0, 1), {other}.flatten(){more})"
        fixes.append(Fix(f"The {shape[2]} classes are last. Turn each prediction into a row:", flat))
        fixes.append(Fix("Or move the classes to dimension 1:", f"{function}({name}.transpose(1, 2), {other}{more})"))
    return Cause(
        f"The target is {got} and should be {expected}.",
        f"The input {shape} is read as (batch, classes, …): {shape[1]} classes." if len(shape) > 1 else "",
        f"target {shown(got)} ≠ {shown(expected)}",
        _facts(failure),
        tuple(fixes),
    )


def _weights(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        f"The loss got {match[2]} class weights for {match[1]} classes.",
        "It needs one per class, or none.",
        f"{match[2]} ≠ {match[1]}",
        (*_facts(failure), ("weight", f"({match[2]},)")),
        (Fix("One weight per class:", f"nn.CrossEntropyLoss(weight=torch.ones({match[1]}))"),),
    )


def _same_size(failure: Failure, match: re.Match[str]) -> Cause:
    target, given = tuple_of(match[1]), tuple_of(match[2])
    fixes = [Fix("Both need the same shape.")]
    if len(given) == len(target) + 1 and given[-1] == 1 and given[:-1] == target:
        fixes = [
            Fix("Leave out the last dimension of the predictions:", _changed(failure, 0, "{}.squeeze(-1)")),
            Fix("Or give the targets one:", _changed(failure, 1, "{}.unsqueeze(-1)")),
        ]
    elif len(given) == 2 and given[1] > 1 and target == given[:1] and _are_classes(failure, given[1]):
        function, first, second, _ = _written(failure)
        code = f"F.cross_entropy({first}, {second}.long())" if function != "loss" else ""
        fixes = [Fix(f"For one class of {given[1]} per sample, use a different loss:", code)]
    elif len(target) == len(given) + 1 and target[-1] == 1 and target[:-1] == given:
        fixes = [Fix("Leave out the last dimension of the targets:", _changed(failure, 1, "{}.squeeze(-1)"))]
    elif len(given) == 2 and target[:1] == given[:1] and prod(target[1:]) == given[1]:
        fixes = [Fix("Turn each target into a row:", _changed(failure, 1, "{}.flatten(1)"))]
    return Cause(
        f"The predictions are {given} and the targets {target}.",
        "The loss compares them one by one.",
        f"{shown(given)} ≠ {shown(target)}",
        _facts(failure),
        tuple(fixes),
    )


def _are_classes(failure: Failure, count: int) -> bool:
    """Whether the targets are whole numbers from 0 to below a number of classes."""
    targets = _pair(failure)[1]
    ends = _ends(targets)
    return ends is not None and ends[0] >= 0 and ends[1] < count and not _fractions(targets)


def _mean_square(failure: Failure, match: re.Match[str]) -> Cause | None:
    """Losses that compare elements broadcast first, and fail there."""
    if not any(frame.function in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div") for frame in failure.frames):
        return None
    given, target = (shape_of(tensor) or () for tensor in _pair(failure))
    if not operands.conflict([("input", given), ("target", target)], (int(match[1]), int(match[2])), int(match[3])):
        return None
    fix = Fix("Both need the same shape: look at the size of the last layer.")
    if given[1:] == target[1:] and given[:1] != target[:1]:
        fix = Fix("Both must come from the same batch.")
    elif len(target) < len(given) == 2 and given[0] == target[0]:
        fix = Fix(
            f"For one prediction per sample, give the last layer one output instead of {given[1]}, and drop that dimension:",
            f"{_names(failure)[0]}.squeeze(-1)",
        )
    return Cause(
        f"The predictions are {given} and the targets {target}.",
        f"In dimension {match[3]} they differ.",
        f"{shown(given)} ≠ {shown(target)}",
        _facts(failure),
        (fix,),
    )


def _probabilities(failure: Failure, _: re.Match[str]) -> Cause:
    ends = _ends(_pair(failure)[0])
    where = f"they go from {ends[0]:.2g} to {ends[1]:.2g}" if ends is not None else "some are outside"
    nan = ends is not None and ends[0] != ends[0]
    function, user = _written(failure)[0], failure.user
    module, call = failure.module is not None, user.expression() if user is not None else None
    named = module and function.replace(".", "").replace("_", "").isalnum()
    code = f"{function if named else 'loss'} = nn.BCEWithLogitsLoss()"
    if not module and user is not None and isinstance(call, ast.Call) and function.endswith("binary_cross_entropy"):
        made = ast.Call(ast.parse(f"{function}_with_logits", mode="eval").body, call.args, call.keywords)
        code = source_code.rewritten(user, call, made)
    name = "BCELoss" if module else "binary_cross_entropy"
    return Cause(
        f"{name} needs probabilities between 0 and 1, but the predictions contain NaN."
        if nan
        else f"{name} needs probabilities between 0 and 1; {where}.",
        "" if nan else "Scores of a linear layer are not probabilities.",
        "outside 0 to 1",
        _facts(failure),
        (
            Fix("Use the loss that turns scores into probabilities itself:", code),
            Fix("Or do it at the end of forward:", "return torch.sigmoid(x)"),
        ),
    )


def _float_target(failure: Failure, match: re.Match[str]) -> Cause | None:
    if not any(frame.function.startswith("binary_cross_entropy") for frame in failure.frames):
        return None
    target = _pair(failure)[1]
    dtype = _dtype(target) if issubclass(type(target), Tensor) else "int64"
    return Cause(
        f"The target is of dtype {dtype}, but this loss needs floating-point numbers.",
        "0 and 1 are probabilities here, not class numbers.",
        f"{dtype} ≠ float",
        _facts(failure),
        (Fix("", _changed(failure, 1, "{}.float()")),),
    )


def _one_target(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        f"The predictions are one sample without a batch, but there are {match[1]} targets.",
        "",
        f"1 ≠ {match[1]}",
        _facts(failure),
        (Fix("Give the predictions a batch:", _changed(failure, 0, "{}.unsqueeze(0)")),),
    )


# ---- embeddings --------------------------------------------------------------------------------------------------------------


def _embedding(failure: Failure, match: re.Match[str]) -> Cause | None:
    module = failure.module
    weight = own(module, "weight") if module is not None else None
    weight = weight if weight is not None else failure.local("weight")
    shape = shape_of(weight)
    if shape is None or len(shape) != 2 or not any("embedding" in frame.function for frame in failure.frames):
        return None
    indices = failure.local("input")
    ends = _ends(indices)
    rows = shape[0]
    asked = "an index it does not have" if ends is None else f"index {int(ends[0] if ends[0] < 0 else ends[1])}"
    fixes = []
    if ends is not None and ends[0] < 0:
        padding = stores.contents(module).get("padding_idx") if module is not None else None
        said = "Negative indices do not count from the end here. If they mean padding, "
        if type(padding) is int:
            fixes.append(Fix(said + "take its row:", f"ids = ids.masked_fill(ids < 0, {padding})"))
        else:
            made = f"nn.Embedding({rows + 1}, {shape[1]}, padding_idx={rows})"
            fixes.append(Fix(said + "give that its own row:", f"{made}\nids = ids.masked_fill(ids < 0, {rows})"))
    elif ends is not None:
        call = failure.failing
        owner, line = (
            code_fixes.assignment(failure, call.path, code_fixes.table(call.module, int(ends[1]) + 1))
            if call is not None and call.path is not None
            else ("", "")
        )
        made = line or ("" if call is not None and call.path else f"nn.Embedding({int(ends[1]) + 1}, {shape[1]})")
        said = f"One row for each possible index{f', in {owner}' if line and owner else ''}"
        fixes.append(Fix(f"{said}:" if made else f"{said}: {int(ends[1]) + 1} rows.", made))
        fixes.append(Fix("Or find out where the index comes from: a vocabulary larger than the table, or labels counted from 1."))
    return Cause(
        f"{failure.subject or 'The embedding'} has {counted(rows, 'row')}, but was asked for {asked}.",
        f"Valid are 0 to {rows - 1}; weight {shape}.",
        f"{asked} of {rows} rows" if ends is not None else f"no such row of {rows}",
        (("weight", str(shape)), *((("indices", f"{shape_of(indices)}, {ends[0]:g} to {ends[1]:g}"),) if ends else ())),
        tuple(fixes),
    )


def _embedding_dtype(failure: Failure, match: re.Match[str]) -> Cause:
    given = failure.local("input")
    dtype = _dtype(given) if issubclass(type(given), Tensor) else match[1].lower()
    fix = Fix("If they are whole numbers anyway:", provenance.elsewhere(failure, "{}.long()"))
    if _fractions(given):
        fix = Fix("They are not whole numbers: use a linear layer for measured values, not a table.", "nn.Linear(...)")
    return Cause(
        f"{failure.subject or 'The embedding'} got numbers of dtype {dtype}, but needs whole ones: they are rows of a table.",
        "",
        f"{dtype} ≠ int64",
        (("dtype", dtype),),
        (fix,),
    )


def _fractions(tensor: Any) -> bool:
    """Whether a tensor holds a number that is not whole."""
    try:
        return without_autograd(lambda: bool(tensor.numel() <= READ and is_there(tensor) and (tensor != tensor.trunc()).any()))
    except Exception:  # noqa: BLE001 - as above
        return False


def _one_hot(failure: Failure, _: re.Match[str]) -> Cause:
    ends = _ends(failure.tensors[0].thing) if failure.tensors else None
    most = f" {int(ends[1])}" if ends else ""
    call, user = failure.user.expression() if failure.user is not None else None, failure.user
    code = f"F.one_hot(x, {int(ends[1]) + 1})" if ends else ""
    if ends and user is not None and isinstance(call, ast.Call) and call.args and not isinstance(call.args[0], ast.Starred):
        code = source_code.rewritten(user, call, ast.Call(call.func, [call.args[0], ast.Constant(int(ends[1]) + 1)], []))
    return Cause(
        f"one_hot got class{most or 'es'} but has too few columns{failure.within}.",
        "Classes are counted from 0.",
        "class ≥ num_classes",
        (),
        (Fix("One column more than the largest class:", code),) if ends else (),
    )


_R, _V, _I = (RuntimeError,), (ValueError,), (IndexError,)
_S = r"\(torch\.Size\(\[([\d, ]*)\]\)\)"
RULES = (
    Rule("loss", _I, r"^Target (-?\d+) is out of bounds", _classes),
    Rule("loss", _V, r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)", _batch),
    Rule("loss", _R, r"expected target dtype to be Long or Byte, but got (\w+)", _long),
    Rule("loss", _R, r"Expected floating point type for target with class probabilities, got (\w+)", _one_hot_target),
    Rule("loss", _R, r"only batches of spatial targets supported \(3D tensors\)", _spatial),
    Rule("loss", (RuntimeError, NotImplementedError), r'"log_softmax\w+" not implemented for', _swapped),
    Rule("loss", _R, r"all elements of target should be between 0 and 1", _target_range),
    Rule("loss", _R, r"0D or 1D target tensor expected, multi-target not supported", _multi),
    Rule("loss", _R, r"Expected target size \[([\d, ]+)\], got \[([\d, ]+)\]", _places),
    Rule(
        "loss",
        _R,
        r"weight tensor should be defined either for all (\d+) classes or no classes but got weight tensor of shape: "
        r"\[(\d+)\]",
        _weights,
    ),
    Rule("loss", _V, rf"Using a target size {_S} that is different to the input size {_S}", _same_size),
    Rule("loss", _V, rf"Target size {_S} must be the same as input size {_S}", _same_size),
    Rule("loss", _V, r"For 1D input, 1D target must have size 1, but got target size: (\d+)", _one_target),
    Rule(
        "loss",
        _R,
        r"The size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\) at non-singleton dimension (\d+)",
        _mean_square,
    ),
    Rule("loss", _R, r"all elements of input should be between 0 and 1", _probabilities),
    Rule("loss", _R, r"result type Float can't be cast to the desired output type (\w+)", _float_target),
    Rule("loss", _R, r"Found dtype (\w+) but expected Float", _float_target),
    Rule("embedding", _I, r"index out of range in self", _embedding),
    Rule("embedding", _R, r"Index \d+ of input takes value (-?\d+) which is not in the valid range", _embedding),
    Rule(
        "embedding",
        _R,
        r"'indices' to have one of the following scalar types: Long, Int; but got torch\.(?:cuda\.)?(\w+)Tensor",
        _embedding_dtype,
    ),
    Rule("embedding", _R, r"Class values must be smaller than num_classes", _one_hot),
)
