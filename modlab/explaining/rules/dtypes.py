"""Numbers of two kinds where one is needed."""

from __future__ import annotations

import ast
import re

from torch import Tensor

from modlab.explaining import code_fixes, mixed_precision, operands, provenance, suspects, unregistered
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.inspection import stores
from modlab.records.explanation import Fix

_NAMES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "unsigned char": "uint8",
    "bool": "bool",
    "bfloat16": "bfloat16",
    "c10::half": "float16",
    "c10::bfloat16": "bfloat16",
    "__int64": "int64",
    "long int": "int64",
    "signed char": "int8",
    "struct c10::half": "float16",
    "struct c10::bfloat16": "bfloat16",
    "complexfloat": "complex64",
    "complexdouble": "complex128",
}
_METHODS = {"float32": ".float()", "float64": ".double()", "float16": ".half()", "int64": ".long()", "bfloat16": ".bfloat16()"}


def named(word: str) -> str:
    """``float64`` for what torch's messages call Double, double, torch.DoubleTensor or torch.float64."""
    word = word.removeprefix("torch.").removeprefix("cuda.").removesuffix("Tensor").lower()
    return _NAMES.get(word, word)


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _held(failure: Failure) -> tuple[str, str]:
    """The dtype that the innermost module was given, and that of its own weights."""
    if failure.module is None:
        return "", ""
    call = failure.failing
    assert call is not None
    given = [_dtype(a) for a in (*(call.args or ()), *call.kwargs.values()) if issubclass(type(a), Tensor)]
    own = [_dtype(t) for _, t in stores.named_tensors(failure.module) if t.is_floating_point() or t.is_complex()]
    return next(iter(given), ""), next(iter(own), "")


def _mixed(failure: Failure, match: re.Match[str]) -> Cause | None:
    first, second = (named(word) for word in match.groups()) if match.lastindex == 2 else ("", "")
    given, own = _held(failure)
    if own and given and given != own:
        return _layer(failure, given, own)
    if not first:
        return None
    names = [f"{operand.text} is {_dtype(operand.thing)}" for operand in failure.tensors[:2]]
    odd = next((o for o in failure.tensors if _dtype(o.thing) != "float32"), None)
    for operand in failure.tensors:
        found = unregistered.of_tensor(failure, operand.thing)
        if found is not None and _is_all(failure, first if _dtype(operand.thing) == second else second):
            return Cause(
                f"{first} and {second} meet{failure.within}.",
                f"{operand.text} is not a buffer, so changing the model's dtype did not change it.",
                f"{first} ≠ {second}",
                ((operand.text, _dtype(operand.thing)),),
                (found.fix("Register it"),),
            )
    fix = f"{odd.text}.float()" if odd is not None else f"x{_METHODS.get(second, '.float()')}"
    return Cause(
        f"{first} and {second} meet{failure.within}.",
        f"{', '.join(names)}." if names else "They must have the same dtype.",
        f"{first} ≠ {second}",
        tuple((o.text, _dtype(o.thing)) for o in failure.tensors[:4]),
        (Fix("Convert both to one dtype:", fix),),
    )


def _is_all(failure: Failure, dtype: str) -> bool:
    """Whether all registered floating-point tensors of the outermost module have a dtype, and there are some: it was made so as a whole."""
    return _of_model(failure) == {dtype}


def _of_model(failure: Failure) -> set[str]:
    root = failure.root
    held = [tensor for _, module in suspects.walk(root.module) for _, tensor in stores.named_tensors(module)] if root is not None else []
    return {_dtype(tensor) for tensor in held if tensor.is_floating_point() or tensor.is_complex()}


def _layer(failure: Failure, given: str, own: str) -> Cause:
    """A module whose input has a different dtype from its weights."""
    model = code_fixes.name_of_root(failure)
    root = failure.root
    outer = root is not None and any(_dtype(a) == given for a in root.args or () if issubclass(type(a), Tensor))
    change = "{}" + _METHODS.get(own, f".to(torch.{own})")
    alone = not outer or root is failure.failing or _of_model(failure) <= {own}  # else the layers before need what came in
    line = provenance.outermost(failure, change) if outer else provenance.changed(failure, change)
    fixes = [Fix(f"Convert the input to the weights' dtype{':' if line else f', {own}.'}", line)] if alone else []
    if given.startswith("complex") and not own.startswith("complex"):
        return _complex(failure, given, own, model)
    hidden = unregistered.of_module(failure)
    if hidden is not None and _is_all(failure, given):
        return Cause(
            f"{failure.subject} got {given}, but has {own} weights.",
            f"{failure.stopped}the model is {given}, except {hidden.named}, which PyTorch does not see: a dtype change does not reach it.",
            f"{given} ≠ {own}",
            (("input", given), ("weights", own)),
            (hidden.fix("Register it, before the model is changed"),),
        )
    if hidden is not None and given.startswith(("float", "bfloat")):
        fixes.append(hidden.fix(f"Or the model to the input's, which reaches {hidden.named} only once that is registered"))
    elif unit := mixed_precision.fix(failure, given, own):
        fixes.insert(0 if unit.code else len(fixes), unit)
    elif given.startswith(("float", "bfloat")) and own != given:
        fixes.append(
            Fix(
                "Or the model to the input's:" if alone else "Convert the whole model to the input's dtype:",
                f"{model}{_METHODS.get(given, f'.to(torch.{given})')}",
            )
        )
    if {given, own} & {"float16", "bfloat16"}:
        call = code_fixes.written_call(failure)
        kind = next((a.device.type for a in (root.args if root is not None else None) or () if issubclass(type(a), Tensor)), "")
        written = (
            f"with torch.autocast({kind!r}):\n    y = {call}" if call and kind else "with torch.autocast(x.device.type):\n    y = model(x)"
        )
        fixes.append(Fix("Or let autocast choose:", written))
    remarks = ("NumPy's numbers are float64 unless told otherwise; torch's are float32.",) if given == "float64" else ()
    return Cause(
        f"{failure.subject} got {given}, but has {own} weights.",
        f"{failure.stopped}{_origin(failure, given)}",
        f"{given} ≠ {own}",
        (("input", given), ("weights", own)),
        tuple(fixes),
        remarks,
    )


def _complex(failure: Failure, given: str, own: str, model: str) -> Cause:
    """Complex numbers for real weights: to make them real would drop a part of them."""
    return Cause(
        f"{failure.subject} got {given}, but has {own} weights.",
        f"{failure.stopped}{_origin(failure, given)}",
        f"{given} ≠ {own}",
        (("input", given), ("weights", own)),
        (
            Fix("Make the weights complex too:", f"{model}.to(torch.{given})"),
            Fix("Or take the real and the imaginary part as separate numbers: torch.view_as_real adds a last dimension of 2."),
        ),
    )


def _origin(failure: Failure, given: str) -> str:
    """Where on the way the dtype came in."""
    for call in failure.calls:
        taken = [_dtype(a) for a in call.args or () if issubclass(type(a), Tensor)]
        if taken and taken[0] == given:
            where = "what the model was called with is" if call is failure.calls[0] else f"what {call.place} was called with is"
            return f"{where} already {given}."
    return "it became so on the way."


def _no_kernel(failure: Failure, match: re.Match[str]) -> Cause:
    dtype = named(match[2])
    name = next((o.text for o in _of_user(failure) if _dtype(o.thing) == dtype), "")
    what = re.sub(r"_(?:cpu|cuda|kernel|impl|lastdim|forward|out|frame)\w*", "", match[1])
    said = "In float32:" if dtype.startswith("float") else "Convert to floating point first:"
    return Cause(
        f"{what} does not exist for {dtype}{failure.within}.",
        "",
        f"no {what} for {dtype}",
        ((name, dtype),) if name else (),
        (Fix(said, _all_float(failure) or f"{name or 'x'}.float()"),),
    )


def _of_user(failure: Failure) -> list[operands.Operand]:
    """The tensors in the user's own expression: names inside of torch's code are nobody's."""
    return operands.tensors(operands.of_frame(failure.user)) if failure.user is not None else []


def _all_float(failure: Failure) -> str:
    """The call of the user's function of torch, with all its tensors made floating-point ones."""
    call = failure.user.expression() if failure.user is not None else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or ast.unparse(call.func.value) not in ("F", "torch"):
        return ""
    known = {operand.text for operand in _of_user(failure)}
    made = [
        text if text not in known and not isinstance(node, ast.Call) else f"{text}.float()"
        for node in call.args
        if (text := ast.unparse(node))
    ]
    return f"{ast.unparse(call.func)}({', '.join([*made, *map(ast.unparse, call.keywords)])})"


def _mean(failure: Failure, match: re.Match[str]) -> Cause:
    dtype = named(match[2])
    name = failure.tensors[0].text if failure.tensors else "x"
    return Cause(
        f"{match[1]} of {dtype} would not be a whole number{failure.within}.",
        "It needs floating-point numbers.",
        f"{match[1]} of {dtype}",
        ((name, dtype),),
        (Fix("", f"{name}.float().{match[1]}()"),),
    )


def _gradients(failure: Failure, _: re.Match[str]) -> Cause:
    return Cause(
        "Only floating-point and complex tensors can require gradients.",
        "This one holds whole numbers or booleans.",
        "",
        tuple((o.text, _dtype(o.thing)) for o in failure.tensors[:2]),
        (
            Fix("Use floating-point numbers:", "nn.Parameter(torch.ones(3))  # not dtype=torch.long"),
            Fix("If it is not trained, make it a buffer:", 'self.register_buffer("ids", ids)'),
        ),
    )


def _cast(failure: Failure, match: re.Match[str]) -> Cause:
    result, kept = named(match[1]), named(match[2])
    name = failure.tensors[0].text if failure.tensors else "x"
    return Cause(
        f"{name} is {kept} and cannot hold a result of {result}{failure.within}.",
        "A change in place keeps the dtype.",
        f"{result} into {kept}",
        ((name, kept), ("result", result)),
        (Fix("Make a new tensor instead:", f"{name} = {name} + ..."),),
    )


def _put(failure: Failure, match: re.Match[str]) -> Cause:
    kept, given = named(match[1]), named(match[2])
    return Cause(
        f"Values of {given} are written into a tensor of {kept}{failure.within}.",
        "",
        f"{given} into {kept}",
        (("given", given), ("into", kept)),
        (Fix("Convert the values to its dtype:", f"x[index] = values{_METHODS.get(kept, f'.to(torch.{kept})')}"),),
    )


def _to(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        f"A module cannot become {named(match[1])}: weights must be floating-point or complex.",
        "",
        "",
        (("asked", named(match[1])),),
        (
            Fix("To halve the memory:", f"{code_fixes.name_of_root(failure)}.to(torch.bfloat16)"),
            Fix("For whole-number weights (quantization), use torchao."),
        ),
    )


def _recurrent(failure: Failure, match: re.Match[str]) -> Cause:
    return _layer(failure, named(match[1]), named(match[2]))


_R = (RuntimeError,)
RULES = (
    Rule("dtype", _R, r"mat1 and mat2 must have the same dtype, but got (\w+) and (\w+)", _mixed),
    Rule("dtype", _R, r"expected m1 and m2 to have the same dtype, but got: ([\w: ]+?) != ([\w: ]+)", _mixed),
    Rule("dtype", _R, r"Input type \((?!.*[Cc]uda)([^)]+)\) and (?:bias|weight) type \((?!.*[Cc]uda)([^)]+)\) should be the same", _mixed),
    Rule("dtype", _R, r"expected scalar type (\w+) but found (\w+)", _mixed),
    Rule("dtype", _R, r"mixed dtype \(CPU\): (?:all inputs must share same datatype|expect parameter)", _mixed),
    Rule("dtype", (RuntimeError, ValueError), r"RNN input dtype \(([\w.]+)\) does not match weight dtype \(([\w.]+)\)", _recurrent),
    Rule("dtype", (RuntimeError, NotImplementedError), r'"(\w+)" not implemented for \'(\w+)\'', _no_kernel),
    Rule("dtype", _R, r"(\w+)\(\): could not infer output dtype\. .*Got: (\w+)", _mean),
    Rule("dtype", _R, r"Only Tensors of floating point and complex dtype can require gradients", _gradients),
    Rule("dtype", _R, r"result type (\w+) can't be cast to the desired output type (\w+)", _cast),
    Rule(
        "dtype",
        _R,
        r"Index put requires the source and destination dtypes match, got (\w+) for the destination and (\w+) for the "
        r"source",
        _put,
    ),
    Rule("dtype", (TypeError,), r"only accepts floating point or complex dtypes, but got desired dtype=([\w.]+)", _to),
    Rule("dtype", _R, r"Found dtype (\w+) but expected (\w+)", _mixed),
)
