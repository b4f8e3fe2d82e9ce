"""Sizes that a product needs equal: matrices, layers of weights, attention, recurrent layers."""

from __future__ import annotations

import re
from math import prod

from modlab import format
from modlab.inspection import stores
from modlab.instrumentation.accidents import advice, earlier
from modlab.instrumentation.accidents.scene import Family, Scene, Verdict, shape_of, shown, tuple_of
from modlab.records.explanation import Fix

_Shape = tuple[int, ...]


def _matrices(scene: Scene, match: re.Match[str]) -> Verdict | None:
    rows, given, expected, columns = (int(match[i]) for i in (1, 2, 3, 4))
    left, right = _sides(scene)
    shown_left = left or (rows, given)
    shown_right = right or (expected, columns)
    if _is_weight(scene):
        return _layer(scene, given, expected, shown_left, shown_right)
    return _bare(scene, given, expected, shown_left, shown_right)


def _sides(scene: Scene) -> tuple[_Shape | None, _Shape | None]:
    """The shapes of the two factors as the user knows them, of which the message shows a flattened form."""
    shapes = [shape_of(operand.thing) for operand in scene.tensors[:2]]
    if len(shapes) < 2 or None in shapes:
        call = scene.failing
        taken = shape_of(call.args[0]) if call is not None and call.args else None
        return taken, None
    return shapes[0], shapes[1]


def _is_weight(scene: Scene) -> bool:
    """Whether the second factor is a parameter of the module that failed (or no operand is known, and the module has parameters)."""
    if scene.module is None:
        return False
    parameters = {id(tensor) for _, tensor in stores.named_tensors(scene.module)}
    factors = scene.tensors[:2]
    return id(factors[1].thing) in parameters if len(factors) > 1 else bool(parameters)


def _numbers(given: int, shape: _Shape) -> str:
    return format.plural(given, "number") if len(shape) < 2 else f"rows of {format.plural(given, 'number')}"


def _layer(scene: Scene, given: int, expected: int, left: _Shape, right: _Shape) -> Verdict:
    names = [operand.text.removeprefix("self.") for operand in scene.tensors[:2]]
    input_name, weight_name = names if len(names) == 2 else ("input", "weight")
    weight = right
    return Verdict(
        f"{scene.subject} got {_numbers(given, left)} and has weights for {expected}.",
        f"{scene.stopped}{input_name} {left}, {weight_name} {weight}.",
        f"({shown(left)}) @ ({shown(_inner_first(weight, expected))}): inner sizes {given} ≠ {expected}",
        ((f"{scene.subject}: {input_name}", str(left)), (f"{scene.subject}: {weight_name}", str(weight)),
         ("numbers given", str(given)), ("numbers expected", str(expected))),
        tuple(_layer_fixes(scene, given, expected, left)),
        _flat(scene, left),
    )  # fmt: skip


def _inner_first(weight: _Shape, expected: int) -> _Shape:
    """The weight as the product uses it: ``nn.Linear`` holds its transpose."""
    return weight if len(weight) < 2 or weight[-2] == expected else (*weight[:-2], weight[-1], weight[-2])


def _flat(scene: Scene, left: _Shape) -> tuple[str, ...]:
    return ("The message of torch shows the input with all leading sizes multiplied into one.",) if len(left) > 2 else ()


def _layer_fixes(scene: Scene, given: int, expected: int, left: _Shape) -> list[Fix]:
    call, root = scene.failing, scene.root
    assert call is not None and root is not None
    fixes: list[Fix] = []
    if len(left) > 2 and expected == prod(left[1:]):
        return [Fix(f"Make each of the {left[0]} inputs one row of {expected} numbers first:", "x = torch.flatten(x, 1)")]
    if len(left) > 2 and expected in left[:-1]:
        place = left.index(expected)
        fixes.append(Fix(f"The size {expected} stands in place {place}: put it last.", f"x = x.transpose({place}, -1)"))
    taken = shape_of(root.args[0]) if root.args else next((shape_of(v) for v in root.kwargs.values()), None)
    before = earlier.producer(scene, given)
    if before is not None:
        path, module = before
        owner, line = advice.assignment(scene, path, advice.constructor(module, given, expected, 1))
        if line:
            fixes.append(Fix(f"Make {path} give {format.plural(expected, 'number')}{_in(owner)}:", line))
    elif taken and taken[-1] == given and earlier.untouched(scene):
        line = advice.written_call(scene, shape=(*taken[:-1], expected))
        if line:
            fixes.append(Fix(f"Give it {format.plural(expected, 'number')}{'' if len(taken) < 2 else ' a row'}:", line))
    owner, line = advice.renewed(scene, call, advice.constructor(call.module, expected, given))
    if line:
        fixes.append(Fix(f"{'Or let' if fixes else 'Let'} {call.place or call.type} take {given}{_in(owner)}:", line))
    return fixes


def _in(owner: str) -> str:
    return f", in {owner}" if owner else ""


def _bare(scene: Scene, given: int, expected: int, left: _Shape, right: _Shape) -> Verdict:
    texts = [operand.text for operand in scene.tensors[:2]]
    first, second = texts if len(texts) == 2 else ("a", "b")
    fixes = []
    if len(right) == 2 and right[1] == given:
        fixes.append(Fix(f"Transposed, {second} fits:", f"{first} @ {second}.T"))
    elif len(left) == 2 and left[0] == expected:
        fixes.append(Fix(f"Transposed, {first} fits:", f"{first}.T @ {second}"))
    else:
        fixes.append(Fix(f"The last size of {first} and the last but one of {second} must be equal.", ""))
    return Verdict(
        f"{first} @ {second}: the inner sizes {given} and {expected} differ{scene.within}.",
        f"{first} is {left}, {second} is {right}.",
        f"({shown(left)}) @ ({shown(right)}): inner sizes {given} ≠ {expected}",
        ((first, str(left)), (second, str(right))),
        tuple(fixes),
    )


def _batches(scene: Scene, match: re.Match[str]) -> Verdict:
    expected, got = tuple_of(match[1]), tuple_of(match[2])
    texts = [operand.text for operand in scene.tensors[:2]]
    first, second = texts if len(texts) == 2 else ("a", "b")
    what = "the numbers of matrices" if expected[0] != got[0] else "the inner sizes"
    a, b = (expected[0], got[0]) if expected[0] != got[0] else (expected[1], got[1])
    shapes = [str(shape_of(operand.thing)) for operand in scene.tensors[:2]]
    return Verdict(
        f"{first} @ {second}: {what} {a} and {b} differ{scene.within}.",
        f"{first} is {shapes[0]}, {second} is {shapes[1]}." if len(shapes) == 2 else "",
        f"{what} {a} ≠ {b}",
        tuple(zip((first, second), shapes, strict=False)),
        (
            Fix(
                "For (b, n, m) @ (b, m, p) the b and the m must be equal; to turn the second round:",
                f"{first} @ {second}.transpose(-1, -2)",
            ),
        ),
    )


def _vector(scene: Scene, match: re.Match[str]) -> Verdict:
    rows, columns, length = (int(match[i]) for i in (1, 2, 3))
    return _bare(scene, columns, length, (rows, columns), (length,))


def _dot(scene: Scene, match: re.Match[str]) -> Verdict:
    return _bare(scene, int(match[1]), int(match[2]), (int(match[1]),), (int(match[2]),))


def _reduced(scene: Scene, match: re.Match[str]) -> Verdict | None:
    """The same mistake, met with tensors that have no values: on the meta device, or while torch.compile looks at the code."""
    left, right = tuple_of(match[1]), tuple_of(match[2])
    if scene.tensors and _is_weight(scene):
        shown = [shape_of(operand.thing) or () for operand in scene.tensors[:2]]
        return _layer(scene, left[-1], right[0], *(shown if len(shown) == 2 else (left, right)))
    verdict = _bare(scene, left[-1], right[0], left, right)
    return verdict._replace(fixes=()) if not scene.tensors else verdict


def _einsum(scene: Scene, match: re.Match[str]) -> Verdict:
    letter, size, operand, before = match[1], match[2], int(match[3]), match[4]
    texts = [one.text for one in scene.tensors]
    name = texts[operand] if operand < len(texts) else f"operand {operand}"
    return Verdict(
        f"einsum: {letter} is {before} in one operand and {size} in {name}.",
        "Each letter stands for one size, wherever it occurs.",
        f"{letter}: {before} ≠ {size}",
        tuple((one.text, str(shape_of(one.thing))) for one in scene.tensors),
    )


def _declared(scene: Scene, match: re.Match[str]) -> Verdict | None:
    """LSTM, GRU, RNN and MultiheadAttention check the last size themselves."""
    if scene.failing is None:
        return None
    expected, given = int(match[1]), int(match[2])
    taken = next((shape_of(a) for a in scene.failing.args or () if shape_of(a)), None) or (given,)
    fixes = []
    owner, line = advice.renewed(scene, scene.failing, advice.constructor(scene.failing.module, expected, given))
    if line:
        fixes.append(Fix(f"Let {scene.subject} take {given}{_in(owner)}:", line))
    if expected in taken[:-1]:
        fixes.insert(0, Fix(f"The size {expected} stands in place {taken.index(expected)}: put it last."))
    return Verdict(
        f"{scene.subject} got {_numbers(given, taken)} and has weights for {expected}.",
        f"{scene.stopped}input {taken}.",
        f"last size {given} ≠ {expected}",
        (("numbers given", str(given)), ("numbers expected", str(expected))),
        tuple(fixes),
    )


def _hidden_state(scene: Scene, match: re.Match[str]) -> Verdict | None:
    expected, got = tuple_of(match[2]), tuple_of(match[3])
    layout = "(layers × directions, batch, hidden_size)" if len(expected) == 3 else "(layers × directions, hidden_size)"
    return Verdict(
        f"{scene.subject} got a {match[1] or 'hidden'} state of shape {got} and needs {expected}.",
        f"It is {layout}; the batch is that of the input.",
        f"state {shown(got)} ≠ {shown(expected)}",
        (("given", str(got)), ("expected", str(expected))),
        (Fix("A state that fits:", f"torch.zeros({', '.join(map(str, expected))})"),),
    )


def _bilinear(scene: Scene, match: re.Match[str]) -> Verdict:
    return Verdict(
        f"{scene.subject or 'bilinear'} got {match[2]} numbers in {match[1]} and has weights for {match[3]}.",
        "", f"{match[1]}: {match[2]} ≠ {match[3]}",
        ((match[1], match[2]), ("expected", match[3])),
    )  # fmt: skip


def _dimensions(scene: Scene, match: re.Match[str]) -> Verdict | None:
    if scene.failing is None or not scene.taken:
        return None
    given = int(match[2])
    return Verdict(
        f"{scene.subject} got {format.plural(given, 'dimension')} and needs 3: (length, batch, features), or 2 without a batch.",
        f"{scene.stopped}input {scene.taken[0]}.", f"{format.plural(given, 'dimension')} ≠ 2 or 3",
        (("input", str(scene.taken[0])), ("expected", "2 or 3 dimensions")),
        (Fix("One step of one sequence:", "x = x[None]"),) if given == 1 else (),
    )  # fmt: skip


_R = (RuntimeError,)
FAMILIES = (
    Family("product", _R, r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)", _matrices),
    Family("product", _R, r"Expected size for first two dimensions of batch2 tensor to be: \[([\d, ]+)\] but got: \[([\d, ]+)\]", _batches),
    Family("product", _R, r"size mismatch, got input \(\d+\), mat \((\d+)x(\d+)\), vec \((\d+)\)", _vector),
    Family("product", _R, r"inconsistent tensor size, expected tensor \[(\d+)\] and src \[(\d+)\]", _dot),
    Family("product", _R, r"a and b must have same reduction dim, but got \[([\d, ]+)\] X \[([\d, ]+)\]", _reduced),
    Family("product", _R, r"einsum\(\): subscript (\w) has size (\d+) for operand (\d+) which does not broadcast .* size (\d+)", _einsum),
    Family("product", _R, r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)", _declared),
    Family("product", (AssertionError,), r"was expecting embedding dimension of (\d+), but got (\d+)", _declared),
    Family("product", _R, r"Expected (hidden\[\d\]|hidden)? ?size \(([\d, ]+)\), got \[([\d, ]+)\]", _hidden_state),
    Family("product", (ValueError,), r"(\w+): Expected input to be 2D or 3D, got (\d)D instead", _dimensions),
    Family("product", _R, r"bilinear\(\): (input\d) size does not match weight size: got (\d+) but expected (\d+)", _bilinear),
)
