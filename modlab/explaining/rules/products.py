"""Sizes that a product needs equal: matrices, layers of weights, attention, recurrent layers."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from math import isqrt, prod

from torch import nn
from torch.nn import Module

from modlab import format
from modlab.explaining import code_fixes, provenance
from modlab.explaining.failure import Cause, Failure, Rule, counted, shape_of, shown, tuple_of
from modlab.explaining.operands import Operand
from modlab.explaining.rules import hook_errors
from modlab.inspection import marks, stores
from modlab.records.explanation import Fix

_Shape = tuple[int, ...]


def _matrices(failure: Failure, match: re.Match[str]) -> Cause | None:
    rows, given, expected, columns = (int(match[i]) for i in (1, 2, 3, 4))
    return _product(failure, (rows, given), (expected, columns))


def _product(failure: Failure, left: _Shape, right: _Shape) -> Cause:
    """Two factors, of which a message shows a flattened form; their own shapes stand in the code, where that can be followed."""
    given, expected = left[-1], right[-2] if len(right) > 1 else right[0]
    factors = _factors(failure, given, expected, len(right))
    if factors:
        left, right = (shape_of(factor.thing) or () for factor in factors)
    weight = _weight(failure, factors, expected, right)
    if weight is None:
        return _bare(failure, factors, given, expected, left, right)
    call = failure.failing
    taken = shape_of(call.args[0]) if call is not None and call.args else None
    return _layer(failure, factors, given, expected, taken if taken and not factors and taken[-1] == given else left, weight)


def _factors(failure: Failure, given: int, expected: int, least: int) -> list[Operand]:
    """The two of the tensors in the expression whose sizes are those of the message."""
    for left, right in combinations(failure.tensors, 2):
        first, second = shape_of(left.thing), shape_of(right.thing)
        if first and second and len(second) >= least and first[-1] == given and expected in second[-2:]:
            return [left, right]
    return []


def _weight(failure: Failure, factors: list[Operand], expected: int, right: _Shape) -> _Shape | None:
    """The shape of the second factor, if it is a parameter of the module that failed."""
    if failure.module is None:
        return None
    held = stores.contents(failure.module)
    tensors = [tensor for _, tensor in stores.named_tensors(failure.module)]
    if factors:
        return right if any(tensor is factors[1].thing for tensor in tensors) else None
    if issubclass(type(failure.module), nn.Linear) and (held.get("in_features"), held.get("out_features")) == right:
        return right[::-1]  # parametrized: the weight itself is computed
    return next((shape for tensor in tensors if (shape := shape_of(tensor)) in (right, right[::-1])), None)


def _numbers(given: int, shape: _Shape) -> str:
    return counted(given, "number") if len(shape) < 2 else f"rows of {counted(given, 'number')}"


def _layer(failure: Failure, factors: list[Operand], given: int, expected: int, left: _Shape, weight: _Shape) -> Cause:
    input_name, weight_name = [_of_itself(failure, factor.text) for factor in factors] or ["input", "weight"]
    return Cause(
        f"{failure.subject} got {_numbers(given, left)}, but has weights for {expected}.",
        f"{failure.stopped}{input_name} {left}, {weight_name} {weight}.",
        f"({shown(left)}) @ ({shown(_inner_first(weight, expected))}): inner sizes {given} ≠ {expected}",
        (
            (f"{failure.subject}: {input_name}", str(left)),
            (f"{failure.subject}: {weight_name}", str(weight)),
            ("numbers given", str(given)),
            ("numbers expected", str(expected)),
        ),
        tuple(_layer_fixes(failure, factors, given, expected, left, weight)),
        (*_flat(failure, left), *_flattened(failure, given, expected, left), *_hooked(failure)),
    )


def _of_itself(failure: Failure, source: str) -> str:
    """An operand as it is written, without the word for the module itself."""
    frame = failure.failing.code_frame if failure.failing is not None else None
    return source.removeprefix(f"{frame.code.co_varnames[0]}.") if frame is not None and frame.code.co_argcount else source


def _inner_first(weight: _Shape, expected: int) -> _Shape:
    """The weight as the product uses it: ``nn.Linear`` holds its transpose."""
    return weight if len(weight) < 2 or weight[-2] == expected else (*weight[:-2], weight[-1], weight[-2])


def _flat(failure: Failure, left: _Shape) -> tuple[str, ...]:
    return ("torch's message shows the input with all leading sizes multiplied into one.",) if len(left) > 2 else ()


def _flattened(failure: Failure, given: int, expected: int, left: _Shape) -> tuple[str, ...]:
    """That another size of the model's input would have given another number, where it was flattened on the way."""
    root = failure.root
    whole = shape_of(root.args[0]) if root is not None and root.args else None
    if whole is None or len(whole) < 3 or len(left) != 2 or left[0] != whole[0] or not provenance.flattens(failure):
        return ()
    told = f"The {given} are what is left of each {shown(whole[1:])} input when it is flattened"
    side = isqrt(expected // max(whole[1], 1))
    if prod(whole[1:]) == given and len(whole) == 4 and whole[1] * side * side == expected:
        return (f"{told}: the model fits inputs of {whole[1]}×{side}×{side}, so the input may not have the size you meant.",)
    return (f"{told}: the input may not have the size you meant.",)


def _hooked(failure: Failure) -> tuple[str, ...]:
    """That the input came through a hook of the user's, which may have changed it."""
    place, module = provenance.giver(failure) or ("", None)
    hooks = hook_errors.of_kind(module, "_forward_hooks") if module is not None else []
    return tuple(f"{place} has the forward hook {name} ({where}), which may have changed its output." for name, where in hooks[:1])


def _layer_fixes(failure: Failure, factors: list[Operand], given: int, expected: int, left: _Shape, weight: _Shape) -> list[Fix]:
    call, root = failure.failing, failure.root
    assert call is not None and root is not None
    fixes: list[Fix] = []
    if _turned(failure, given, weight):
        expression = failure.user.expression() if failure.user is not None else None
        assert isinstance(expression, ast.Call)
        name = ast.unparse(expression.args[1])
        return [
            Fix("F.linear needs the weight as (out, in), but this one is (in, out): transpose it.", f"{name} = nn.Parameter({name}.T)"),
            Fix("Or multiply directly, without transposing:", f"{ast.unparse(expression.args[0])} @ {name}"),
        ]
    whole = shape_of(root.args[0]) if root.args else None
    alone = whole is not None and (whole == left or (whole[0] != left[0] and not (whole[0] == 1 and len(whole) > 3)))  # no batch yet
    if 1 < len(left) < 4 and prod(left) == expected and alone:
        said = f"Its {shown(left)} are {expected} numbers in all. If that is one sample, the batch is missing: put it in front."
        fixes.append(Fix(said, provenance.outermost(failure, "{}.reshape(1, -1)" if whole == left else "{}.unsqueeze(0)")))
    if len(left) == 1 and whole and len(whole) > 1 and whole[0] > 1 and given == whole[0] * expected:
        said = f"These are {whole[0]} samples of {expected} in one row: torch.flatten(x, 1) keeps the batch. To get a row for each again:"
        return [Fix(said, provenance.changed(failure, "{}.reshape(-1, " + f"{expected})"))]
    if len(left) > 2 and expected == prod(left[1:]):
        said = f"Make each of the {left[0]} inputs one row of {expected} numbers first:"
        return [Fix(said, provenance.changed(failure, "torch.flatten({}, 1)") or _inserted(failure))]
    if len(left) > 2 and expected in left[1:-1]:
        place = left.index(expected, 1)
        line = provenance.changed(failure, "{}.transpose(" + f"{place}, -1)")
        fixes.append(Fix(f"The size {expected} is in dimension {place}: put it last.", line))
    first = call.args[0] if call.args else None
    of_first = not factors or factors[0].thing is first
    passed = _is_parameter(failure)
    source = provenance.origin(failure) if of_first and shape_of(first) == left and not passed else None
    if type(source) is tuple:
        path, module = source
        owner, line = code_fixes.assignment(failure, path, code_fixes.constructor(module, given, expected, 1))
        if line and provenance.gives(module) == given:
            fixes.append(Fix(f"{_or(fixes)}ake {_told(path, module)} give {counted(expected, 'number')}{_in(owner)}:", line))
    elif type(source) is str:
        taken = next((shape_of(thing) for thing in (*(root.args or ()), *root.kwargs.values()) if shape_of(thing) is not None), None)
        line = code_fixes.written_call(failure, shape=(*taken[:-1], expected)) if taken and taken[-1] == given else ""
        if line:
            fixes.append(Fix(f"Give it {counted(expected, 'number')}{'' if len(taken or ()) < 2 else ' per row'}:", line))
    if provenance.ran_before(failure):
        return fixes or [Fix(provenance.ran_before(failure))]
    owner, line = code_fixes.renewed(failure, call, code_fixes.constructor(call.module, expected, given))
    if line and of_first and not (passed and call is root):
        fixes.append(Fix(f"{'Or let' if fixes else 'Let'} {failure.subject} take {counted(given, 'number')}{_in(owner)}:", line))
    elif not fixes:
        fixes.append(Fix(f"{failure.subject} must get {counted(expected, 'number')}, or be made for {given}."))
    return fixes


def _is_parameter(failure: Failure) -> bool:
    """Whether the model that was called is a lambda's own argument: there is no line to assign it in."""
    call, caller = failure.call_expression(), failure.caller
    if call is None or caller is None or not isinstance(call.func, ast.Name) or caller.function != "<lambda>":
        return False
    name = call.func.id
    kept = re.search(rf"lambda\b[^:]*\b{name}\s*=", caller.source) is not None  # a default: it is a name from around
    return name in caller.code.co_varnames[: caller.code.co_argcount] and not kept


def _or(fixes: list[Fix]) -> str:
    return "Or m" if fixes else "M"


def _told(path: str, module: Module) -> str:
    return f"{path} ({type(module).__name__})" if path.isdigit() else path


def _inserted(failure: Failure) -> str:
    """The line that puts a Flatten before the innermost module, in a Sequential that is at hand."""
    call, above = failure.failing, failure.calls[-2] if len(failure.calls) > 1 else None
    if call is None or above is None or above is not failure.root or type(above.module) is not nn.Sequential or not call.place.isdigit():
        return ""
    return f"{code_fixes.name_of_root(failure)}.insert({call.place}, nn.Flatten())"


def _turned(failure: Failure, given: int, weight: _Shape) -> bool:
    """Whether a weight of the user's own stands as (in, out) in ``F.linear``, and all else fits that."""
    if failure.module is None or code_fixes.is_torchs(failure.module) or len(weight) != 2 or weight[0] != given or failure.user is None:
        return False
    expression = failure.user.expression()
    named = isinstance(expression, ast.Call) and len(expression.args) > 1 and ast.unparse(expression.func).endswith("linear")
    vectors = [shape for _, tensor in stores.named_tensors(failure.module) if len(shape := shape_of(tensor) or ()) == 1]
    return named and all(shape[0] == weight[1] for shape in vectors)


def _in(owner: str) -> str:
    return f", in {owner}" if owner else ""


def _bare(failure: Failure, factors: list[Operand], given: int, expected: int, left: _Shape, right: _Shape) -> Cause:
    pairs = [(factor.text, shape_of(factor.thing)) for factor in factors] or provenance.sides(failure)
    if len(pairs) == 2 and not factors and all(shape is not None for _, shape in pairs):
        shapes = [shape or () for _, shape in pairs]
        known = shapes[0][-1:] == (given,) and expected in shapes[1][-2:]
        left, right = shapes if known else (left, right)
    first, second = [_operand(name) for name, _ in pairs] or ["a", "b"]
    named = bool(pairs) and all(shape in (left, right) for _, shape in pairs)
    fixes = []
    if named and len(right) == 2 and right[1] == given:
        fixes.append(Fix(f"Transposed, {second} fits:", f"{first} @ {second}.T"))
    elif named and len(left) == 2 and len(right) > 1 and left[0] == expected:
        fixes.append(Fix(f"Transposed, {first} fits:", f"{first}.T @ {second}"))
    else:
        place = "last but one" if len(right) > 1 else "only one"
        fixes.append(Fix(f"The last size of {first} and the {place} of {second} must be equal."))
    told = f"{first} is {left}, {second} is {right}." if named or not pairs else f"As torch multiplies them: {left} and {right}."
    return Cause(
        f"{first} @ {second}: the inner sizes {given} and {expected} differ{failure.within}.",
        told,
        f"({shown(left)}) @ ({shown(right)}): inner sizes {given} ≠ {expected}",
        ((first, str(left)), (second, str(right))),
        tuple(fixes),
    )


def _batches(failure: Failure, match: re.Match[str]) -> Cause:
    expected, got = tuple_of(match[1]), tuple_of(match[2])
    inner = expected[0] == got[0]
    factors = next(
        (
            [one, other]
            for one, other in combinations(failure.tensors, 2)
            if (left := shape_of(one.thing))
            and (right := shape_of(other.thing))
            and len(left) > 2 < len(right)
            and left[-1] == expected[1]
            and right[-2] == got[1]
        ),
        [],
    )
    pairs = [(factor.text, shape_of(factor.thing)) for factor in factors] or provenance.sides(failure)
    first, second = [_operand(name) for name, _ in pairs] or ["a", "b"]
    shapes = [shape for _, shape in pairs if shape is not None]
    a, b = (expected[1], got[1]) if inner else (expected[0], got[0])
    if _is_attention(failure):
        return _attention(failure, a, b)
    if len(shapes) == 2 and not (shapes[0][-1:] == (expected[1],) and shapes[1][-2:-1] == (got[1],)):
        shapes = []  # not what the message is about
    what = "the inner sizes" if inner else "the numbers of matrices"
    fixes = [Fix("For (b, n, m) @ (b, m, p), both b and both m must be equal.")]
    if len(shapes) == 2 and inner and shapes[0][-1] == shapes[1][-1]:
        fixes = [Fix(f"Transposed, {second} fits:", f"{first} @ {second}.transpose(-2, -1)")]
    return Cause(
        f"{first} @ {second}: {what} {a} and {b} differ{failure.within}.",
        f"{first} is {shapes[0]}, {second} is {shapes[1]}." if len(shapes) == 2 else "",
        f"{what} {a} ≠ {b}",
        tuple(zip((first, second), map(str, shapes), strict=True)) if len(shapes) == 2 else (),
        tuple(fixes),
    )


def _operand(text: str) -> str:
    """An expression as an operand of @."""
    return text if isinstance(ast.parse(text, mode="eval").body, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)) else f"({text})"


def _is_attention(failure: Failure) -> bool:
    return failure.user is not None and failure.user.segment().partition("(")[0].endswith("scaled_dot_product_attention")


def _attention(failure: Failure, a: int, b: int) -> Cause:
    """Query, key and value of ``F.scaled_dot_product_attention``."""
    call = failure.user.expression() if failure.user is not None else None
    names = [ast.unparse(node) for node in call.args[:3]] if isinstance(call, ast.Call) else []
    known = {operand.text: shape_of(operand.thing) for operand in failure.tensors}
    shapes = [known.get(name) for name in names]
    facts = tuple((role, str(shape)) for role, shape in zip(("query", "key", "value"), shapes, strict=False) if shape)
    said = f"scaled_dot_product_attention: the inner sizes {a} and {b} differ{failure.within}."
    query, key = (shapes[0], shapes[1]) if len(shapes) > 1 else (None, None)
    if query and key and query[-1] != key[-1]:
        said = f"The query {names[0]} has {query[-1]} numbers per head, but the key {names[1]} has {key[-1]}{failure.within}."
    elif query and key:
        said = f"The key {names[1]} and the value {names[2] if len(names) > 2 else ''} differ in length: {a} and {b}{failure.within}."
    return Cause(
        said,
        "Query and key need the same size per head, key and value the same length.",
        f"{a} ≠ {b}",
        facts,
        (
            Fix(
                f"Give both the same size per head: project {names[0]} or {names[1]}."
                if query and key and query[-1] != key[-1]
                else "Look at the last size of query and key, and at the last but one of key and value."
            ),
        ),
    )


def _vector(failure: Failure, match: re.Match[str]) -> Cause:
    rows, columns, length = (int(match[i]) for i in (1, 2, 3))
    return _product(failure, (rows, columns), (length,))


def _dot(failure: Failure, match: re.Match[str]) -> Cause:
    return _product(failure, (int(match[1]),), (int(match[2]),))


def _reduced(failure: Failure, match: re.Match[str]) -> Cause | None:
    """The same mistake, met with tensors that have no values: on the meta device, or while torch.compile looks at the code."""
    cause = _product(failure, tuple_of(match[1]), tuple_of(match[2]))
    return cause if failure.tensors else cause._replace(fixes=())


def _not_a_matrix(failure: Failure, match: re.Match[str]) -> Cause | None:
    """``mm`` and ``bmm`` take tensors of just so many dimensions."""
    wanted = 3 if match["three"] else 2
    function = "bmm" if wanted == 3 else "mm"
    pairs = [(operand.text, shape) for operand in failure.tensors[:2] if (shape := shape_of(operand.thing)) is not None]
    odd = next(((name, shape) for name, shape in pairs if len(shape) != wanted), None)
    if odd is None or f"{function}(" not in (failure.user.segment() if failure.user is not None else ""):
        return None
    return Cause(
        f"{function} takes two tensors of {wanted} dimensions, but {odd[0]} has {len(odd[1])}{failure.within}.",
        " ".join(f"{name} is {shape}." for name, shape in pairs),
        f"{format.plural(len(odd[1]), 'dimension')} ≠ {wanted}",
        tuple((name, str(shape)) for name, shape in pairs),
        (Fix("matmul takes any number of dimensions, and multiplies the last two:", f"{pairs[0][0]} @ {pairs[-1][0]}"),),
    )


def _letters(failure: Failure, match: re.Match[str]) -> Cause:
    letters, dimensions, operand = int(match[1]), int(match[2]), int(match[3])
    name = failure.tensors[operand].text if operand < len(failure.tensors) else f"operand {operand}"
    return Cause(
        f"einsum: {format.plural(letters, 'letter')} for {name}, which has {format.plural(dimensions, 'dimension')}{failure.within}.",
        "Each dimension has one letter.",
        f"{letters} letters ≠ {dimensions} dimensions",
        tuple((one.text, str(shape_of(one.thing))) for one in failure.tensors),
        (Fix("Write one letter for each dimension; ... stands for any number of them:", f"print({name}.shape)"),)
        if name.isidentifier()
        else (),
    )


def _einsum(failure: Failure, match: re.Match[str]) -> Cause:
    letter, size, operand, before = match[1], match[2], int(match[3]), match[4]
    texts = [one.text for one in failure.tensors]
    name = texts[operand] if operand < len(texts) else f"operand {operand}"
    return Cause(
        f"einsum: {letter} is {before} in one operand and {size} in {name}.",
        "Each letter stands for one size everywhere.",
        f"{letter}: {before} ≠ {size}",
        tuple((one.text, str(shape_of(one.thing))) for one in failure.tensors),
    )


def _declared(failure: Failure, match: re.Match[str]) -> Cause | None:
    """LSTM, GRU, RNN and MultiheadAttention check the last size themselves."""
    if failure.failing is None:
        return None
    expected, given = (int(match[i]) for i in ((1, 2) if match.re.groupindex.get("given") is None else ("expected", "given")))
    taken = next((shape_of(a) for a in failure.failing.args or () if shape_of(a)), None) or (given,)
    fixes = []
    above = failure.calls[-2].module if len(failure.calls) > 1 else None
    owner, line = provenance.made_anew(failure, code_fixes.constructor(failure.failing.module, expected, given))
    if above is not None and code_fixes.is_torchs(above) and marks.category(type(above)) != "container":
        cls = type(above).__name__  # one of torch's own blocks: its parts have their sizes from it
        fixes.append(Fix(f"All layers of a {cls} have the width it was made with:", f"nn.{cls}(d_model={given}, nhead=...)"))
    elif line:
        fixes.append(Fix(f"Let {failure.subject} take {given}{_in(owner)}:", line))
    elif provenance.ran_before(failure):
        fixes.append(Fix(provenance.ran_before(failure)))
    batch = 0 if stores.contents(failure.failing.module).get("batch_first") is True else 1
    if expected in taken[:-1] and taken.index(expected) != batch:
        fixes.insert(
            0,
            Fix(
                f"If you mean the {expected} in dimension {taken.index(expected)}, put them last:",
                f"x = x.transpose({taken.index(expected)}, -1)",
            ),
        )
    return Cause(
        f"{failure.subject} got {_numbers(given, taken)}, but has weights for {expected}.",
        f"{failure.stopped}input {taken}.",
        f"last size {given} ≠ {expected}",
        (("numbers given", str(given)), ("numbers expected", str(expected))),
        tuple(fixes),
    )


def _hidden_state(failure: Failure, match: re.Match[str]) -> Cause | None:
    expected, got = tuple_of(match[2]), tuple_of(match[3])
    layout = "(layers × directions, batch, hidden_size)" if len(expected) == 3 else "(layers × directions, hidden_size)"
    fixes = [Fix("A state that fits:", f"torch.zeros({', '.join(map(str, expected))})")]
    taken, module = (failure.taken[0] if failure.taken else ()), failure.module
    first = module is not None and stores.contents(module).get("batch_first") is True
    if module is not None and len(expected) == len(got) == len(taken) == 3 and expected[1] != got[1] == taken[1 if first else 0]:
        name = type(module).__name__
        said = "(batch, length, features), as it was made with" if first else "(length, batch, features), as it was made without"
        more = f"; {got[1]}, the batch of the state, is the input's size {1 if first else 0}"
        made = code_fixes.constructor(module, taken[2], taken[2])
        made = made.replace(", batch_first=True", "") if first else made.removesuffix(")") + ", batch_first=True)"
        line = (
            code_fixes.assignment(failure, failure.failing.path, made)[1] if failure.failing is not None and failure.failing.path else made
        )
        fixes.insert(0, Fix(f"This {name} reads its input as {said} batch_first{more}. If that is intended:", line))
    return Cause(
        f"{failure.subject} got a {match[1] or 'hidden'} state of shape {got}, but needs {expected}.",
        f"It is {layout}; the batch is that of the input.",
        f"state {shown(got)} ≠ {shown(expected)}",
        (("given", str(got)), ("expected", str(expected))),
        tuple(fixes),
    )


def _bilinear(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        f"{failure.subject or 'bilinear'} got {match[2]} numbers in {match[1]}, but has weights for {match[3]}.",
        "",
        f"{match[1]}: {match[2]} ≠ {match[3]}",
        ((match[1], match[2]), ("expected", match[3])),
    )


def _without_one(failure: Failure, taken: _Shape) -> tuple[Fix, ...]:
    """Leave out a dimension of 1, where there is one of them and it is one too many."""
    places = [place for place, size in enumerate(taken) if size == 1]
    if len(taken) != 4 or len(places) != 1:
        return (Fix("Join two of them first: a recurrent layer reads one sequence of rows for each sample."),) if len(taken) > 3 else ()
    change = "{}.squeeze(" + f"{places[0]})"
    return (Fix(f"Remove dimension {places[0]}, whose size is 1:", provenance.elsewhere(failure, change)),)


def _dimensions(failure: Failure, match: re.Match[str]) -> Cause | None:
    if failure.failing is None or not failure.taken:
        return None
    given = int(match[2])
    return Cause(
        f"{failure.subject} got {format.plural(given, 'dimension')}, but needs 3: (length, batch, features), or 2 without a batch.",
        f"{failure.stopped}input {failure.taken[0]}.",
        f"{format.plural(given, 'dimension')} ≠ 2 or 3",
        (("input", str(failure.taken[0])), ("expected", "2 or 3 dimensions")),
        (Fix("One step of one sequence:", "x = x[None]"),) if given == 1 else _without_one(failure, failure.taken[0]),
    )


def _slopes(failure: Failure, match: re.Match[str]) -> Cause:
    """The weights of PReLU: one for all channels, or one for each."""
    expected, given = int(match[1]), int(match[2])
    taken = failure.taken[0] if failure.taken else ()
    module = failure.module if type(failure.module) is nn.PReLU else None
    fixes = []
    if module is not None:
        last = expected in taken[2:]  # where channels may be meant: one for all fits any order
        owner, line = provenance.made_anew(failure, _prelu(module, expected, 1 if last else given))
        if line:
            which = "one slope for all, wherever the channels are" if last else "a slope for each channel"
            fixes.append(Fix(f"Let {failure.subject} have {which}{f', in {owner}' if owner else ''}:", line))
        elif provenance.ran_before(failure):
            fixes.append(Fix(provenance.ran_before(failure)))
    subject, end = (failure.subject, "") if module is not None else ("prelu", failure.within)
    return Cause(
        f"{subject} got {counted(given, 'channel')}, but has slopes for {expected}{end}.",
        f"{failure.stopped}input {taken}{'; channels are in dimension 1' if len(taken) > 1 else ''}." if taken else "",
        f"channels {given} ≠ {expected}",
        (("input", str(taken)), ("channels given", str(given)), ("slopes", str(expected))),
        tuple(fixes),
    )


def _prelu(module: Module, expected: int, given: int) -> str:
    made = code_fixes.constructor(module, expected, given)
    init = stores.contents(module).get("init")
    return made if init == 0.25 or not made else f"{made[:-1]}{'' if made.endswith('()') else ', '}init={init!r})"


_R = (RuntimeError,)
RULES = (
    Rule("slopes", _R, r"Found parameter numbers = (\d+) and channel size = (\d+)", _slopes),
    Rule("product", _R, r"(?P<three>batch[12] must be a 3D tensor)|(?:self|mat2) must be a matrix", _not_a_matrix),
    Rule(
        "product",
        _R,
        r"number of subscripts in the equation \((\d+)\) does not match the number of dimensions \((\d+)\) for "
        r"operand (\d+)",
        _letters,
    ),
    Rule("product", _R, r"input has inconsistent input_size: got (?P<given>\d+) expected (?P<expected>\d+)", _declared),
    Rule("product", _R, r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", _matrices),
    Rule("product", _R, r"Expected size for first two dimensions of batch2 tensor to be: \[([\d, ]+)\] but got: \[([\d, ]+)\]", _batches),
    Rule("product", _R, r"size mismatch, got input \(\d+\), mat \((\d+)x(\d+)\), vec \((\d+)\)", _vector),
    Rule("product", _R, r"inconsistent tensor size, expected tensor \[(\d+)\] and src \[(\d+)\]", _dot),
    Rule("product", _R, r"a and b must have same reduction dim, but got \[([\d, ]+)\] X \[([\d, ]+)\]", _reduced),
    Rule("product", _R, r"einsum\(\): subscript (\w) has size (\d+) for operand (\d+) which does not broadcast .* size (\d+)", _einsum),
    Rule("product", _R, r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)", _declared),
    Rule("product", (AssertionError,), r"was expecting embedding dimension of (\d+), but got (\d+)", _declared),
    Rule("product", _R, r"Expected (hidden\[\d\]|hidden)? ?size \(([\d, ]+)\), got \[([\d, ]+)\]", _hidden_state),
    Rule("product", (ValueError,), r"(\w+): Expected input to be 2D or 3D, got (\d)D instead", _dimensions),
    Rule("product", _R, r"bilinear\(\): (input\d) size does not match weight size: got (\d+) but expected (\d+)", _bilinear),
)
