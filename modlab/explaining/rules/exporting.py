"""torch.export: shapes that were said to vary and do not, code that asks for values, inputs that are not what was exported."""

from __future__ import annotations

import ast
import re

from modlab import format
from modlab.explaining import source_code, written
from modlab.explaining.failure import Cause, Failure, Rule, own_words, shape_of
from modlab.records.explanation import Fix


def _violated(failure: Failure, match: re.Match[str]) -> Cause:
    """What was said of a dimension is not so: torch lists why, and often what to write instead."""
    reasons = [" ".join(one.split()) for one in re.findall(r"\n  - (.+?)(?=\n  - |\nSuggested fixes|\n\n|\Z)", failure.message, re.DOTALL)]
    names = match[1]
    suggested = re.search(r"Suggested fixes:\n((?:[ \t]+[^\n]+\n?)+)", failure.message)
    fixes = _suggested(failure, suggested[1].strip().splitlines()) if suggested is not None else []
    constant = re.search(r"You marked (\S+) as dynamic but your code specialized it to be a constant \((\d+)\)", failure.message)
    if constant is not None:
        said = f"{constant[1]} is declared dynamic, but the model works only with {constant[2]} there."
        more = (
            "A size of 1 in the example counts as fixed: use a larger example."
            if constant[2] == "1"
            else ("A layer's width, or a comparison in the code, fixes it.")
        )
        fixes = [*_larger(failure, constant[2]), *_fixed(failure, constant[1])]
    else:
        said = f"dynamic_shapes claims something about {names} that does not hold for the model."
        more = f"torch: {own_words(failure.error, reasons[0])}" if reasons else ""
    return Cause(said, more, "", (("dimensions", names),), tuple(fixes))


def _suggested(failure: Failure, lines: list[str]) -> list[Fix]:
    """What torch suggests, as lines that replace the user's."""
    made = written.calls(failure.own, "Dim") if failure.own is not None else []
    dim = ast.unparse(made[0].call.func) if made else "torch.export.Dim"
    found = [re.sub(r", max=(?:int_)?oo\b", "", re.sub(r"\bDim\(", f"{dim}(", line.strip())) for line in lines]
    return [Fix("torch suggests:", "\n".join(found))] if found else []


def _fixed(failure: Failure, name: str) -> list[Fix]:
    """The call without that dimension; with what torch finds out by itself."""
    frame = failure.own
    call = written.expression(frame)
    if frame is None or not isinstance(call, ast.Call) or written.word(call, "dynamic_shapes") is None:
        return [Fix("Leave it out of dynamic_shapes.")]
    return [Fix("Or keep it fixed:", source_code.rewritten(frame, call, written.with_word(call, "dynamic_shapes", None)))]


def _larger(failure: Failure, size: str) -> list[Fix]:
    return [Fix("Export with an example of 2 or more in that dimension: torch treats 0 and 1 as constants.")] if size == "1" else []


def _data_dependent(failure: Failure, match: re.Match[str]) -> Cause:
    """``if x.sum() > 0`` and the like: what happens then depends on values, which are not known when a model is exported."""
    condition = match[1].split(" (unhinted")[0]
    at = re.search(r"Caused by: (?P<text>.*?)\s*(?:# |\()(?P<where>[^\s():]+\.py:\d+)", failure.message)
    if failure.own is None and at is not None:
        failure.place = at["where"], at["text"]
    who = "torch.export" if any("export" in frame.code.co_filename for frame in failure.frames) else "torch.compile"
    held = f" ({condition}, where u0, u1 … are such values)" if re.search(r"\bu\d", condition) else ""
    return Cause(
        f"{who} cannot take a branch that depends on the values of a tensor{held}.",
        "It has only shapes, no values.",
        "depends on values",
        (),
        (
            Fix("If both branches give tensors of the same shape, compute both and choose: torch.where(condition, one, other)."),
            Fix("For a size computed from values, state what is true before it: torch._check(n > 3)."),
        ),
    )


def _structure(failure: Failure, _: re.Match[str]) -> Cause | None:
    if type(failure.error).__name__ != "UserError":
        return None
    words = own_words(failure.error, failure.message.replace("`", "").partition("\nFor more")[0])
    names = re.search(r"must be the arg names (\[.*?\]) of `inputs`, but here they are (\[.*?\])", failure.message)
    if names is None:
        return Cause(
            "dynamic_shapes does not have the structure of the example inputs.",
            f"torch: {words}",
            "",
            (),
            (Fix("It needs one entry for each input, in order; None where nothing varies."),),
        )
    wanted, given = (re.findall(r"'(\w+)'", names[i]) for i in (1, 2))
    return Cause(
        f"dynamic_shapes names {', '.join(given)}, but forward takes {', '.join(wanted)}.",
        "",
        "",
        (("given", ", ".join(given)), ("expected", ", ".join(wanted))),
        (Fix("Use the names of forward's arguments:", _renamed(failure, given, wanted)),),
    )


def _renamed(failure: Failure, given: list[str], wanted: list[str]) -> str:
    frame = failure.own
    call = written.expression(frame)
    shapes = written.word(call, "dynamic_shapes") if isinstance(call, ast.Call) else None
    if frame is None or not isinstance(call, ast.Call) or not isinstance(shapes, ast.Dict) or len(given) != len(wanted):
        return ""
    keys: list[ast.expr | None] = [
        ast.Constant(wanted[given.index(key.value)]) if isinstance(key, ast.Constant) and key.value in given else key for key in shapes.keys
    ]
    return source_code.rewritten(frame, call, written.with_word(call, "dynamic_shapes", ast.Dict(keys, shapes.values)))


def _no_tuple(failure: Failure, _: re.Match[str]) -> Cause:
    frame = failure.own
    call = written.expression(frame)
    code = ""
    if frame is not None and isinstance(call, ast.Call) and len(call.args) > 1:
        args: list[ast.expr] = [call.args[0], ast.Tuple([call.args[1]], ast.Load()), *call.args[2:]]
        code = source_code.rewritten(frame, call, ast.Call(call.func, args, call.keywords))
    return Cause(
        "torch.export.export needs the example inputs as a tuple, but got something else.",
        "",
        "",
        (("expected", "tuple"),),
        (Fix("Even a single input must be in a tuple:", code or "torch.export.export(model, (x,))"),),
    )


def _guard(failure: Failure, match: re.Match[str]) -> Cause | None:
    """An exported model was called with other sizes than those that it was exported for."""
    name, place, sign, size = match[1], match[2], match[3], match[4]
    wanted = {"==": size, "<=": f"at most {size}", ">=": f"at least {size}", "<": f"fewer than {size}", ">": f"more than {size}"}[sign]
    root = failure.root
    given = next(
        (
            shape
            for thing in (root.args or () if root is not None else ())
            if (shape := shape_of(thing)) is not None and len(shape) > int(place) and not _holds(shape[int(place)], sign, int(size))
        ),
        None,
    )
    told = f", and got {given[int(place)]}" if given is not None else ""
    return Cause(
        f"The exported model takes {wanted} in dimension {place} of {name}{told}.",
        f"It was exported for that{f'; the input is {given}' if given is not None else ''}.",
        f"not {sign} {size}",
        ((name, str(given) if given is not None else ""), ("guard", f"{name}.size()[{place}] {sign} {size}")),
        (
            Fix(
                "Give it such an input, or export it with a dynamic dimension:",
                f'torch.export.export(model, (x,), dynamic_shapes={{{name!r}: {{{place}: torch.export.Dim("n")}}}})',
            ),
        ),
    )


def _holds(value: int, sign: str, size: int) -> bool:
    return {"==": value == size, "<=": value <= size, ">=": value >= size, "<": value < size, ">": value > size}[sign]


def _called(failure: Failure, _: re.Match[str]) -> Cause:
    frame = failure.own
    call = written.expression(frame)
    code = ""
    if frame is not None and isinstance(call, ast.Call):
        module = ast.Call(ast.Attribute(call.func, "module", ast.Load()), [], [])
        code = source_code.rewritten(frame, call, ast.Call(module, call.args, call.keywords))
    return Cause("An ExportedProgram cannot be called: its module() is the model.", "", "", (), (Fix("", code or "exported.module()(x)"),))


def _modes(failure: Failure, match: re.Match[str]) -> Cause | None:
    if not any(type(call.module).__name__ == "GraphModule" for call in failure.calls):
        return None
    return Cause(
        f"An exported model has no {match[1]}(): the mode that it was exported in is fixed.",
        "Dropout and BatchNorm stay as they were then.",
        "",
        (),
        (Fix(f"Call model.{match[1]}() before torch.export.export."),),
    )


def _kind(failure: Failure, match: re.Match[str]) -> Cause:
    name = match[1].rpartition(".")[2]
    return Cause(
        f"torch.export takes tensors, numbers and strings, in tuples, lists and dicts, but got {format.article(name)}.",
        "",
        "",
        (("given", name),),
        (
            Fix("It can unpack a dataclass once it is registered:", f"torch.export.register_dataclass({name})"),
            Fix("Or give forward the tensors in it."),
        ),
    )


def _no_module(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        f"torch.export.export takes an nn.Module, but got {format.article(match[1])}.",
        "",
        "",
        (("given", match[1]),),
        (Fix("Put the function into a module's forward."),),
    )


_E = (Exception,)
RULES = (
    Rule("exported", _E, r"^Constraints violated \(([^)]*)\)", _violated),
    Rule("exported", _E, r"Could not guard on data-dependent expression (.+?)(?=\.  \(|\n|$)", _data_dependent),
    Rule("exported", _E, r"dynamic_shapes", _structure),
    Rule("exported", _E, r"^Expecting `args` to be a tuple of example positional inputs", _no_tuple),
    Rule("exported", (AssertionError, RuntimeError), r"^Guard failed: (\w+)\.size\(\)\[(\d+)\] (==|<=|>=|<|>) (\d+)", _guard),
    Rule("exported", (RuntimeError,), r"^Unable to call ExportedProgram directly", _called),
    Rule("exported", (NotImplementedError,), r"^Calling (eval|train)\(\) is not supported yet", _modes),
    Rule("exported", (ValueError,), r"^Unsupported input type <class '([\w.<>]+)'>\. Export only supports", _kind),
    Rule("exported", (ValueError,), r"^Expected `mod` to be an instance of `torch\.nn\.Module`, got <class '(\w+)'>", _no_module),
)
