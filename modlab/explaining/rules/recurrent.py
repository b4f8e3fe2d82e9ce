"""Recurrent layers: states of the wrong kind or size, and the lengths of packed sequences."""

from __future__ import annotations

import ast
import re
from typing import Any

from torch import Tensor

from modlab import format
from modlab.explaining.failure import Cause, Failure, Rule, counted, shape_of
from modlab.inspection import stores
from modlab.records.explanation import Fix

_TWO = ("LSTM", "LSTMCell")
_KINDS = ("LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "RNNCell")
_Shape = tuple[int, ...]


def _state(failure: Failure) -> tuple[str, Any, ast.expr | None] | None:
    """The class of a recurrent layer that failed, the state that it was given, and how that is written."""
    call = failure.failing
    if call is None or call.args is None or call.type not in _KINDS or not type(call.module).__module__.startswith("torch."):
        return None
    given = call.args[1] if len(call.args) > 1 else call.kwargs.get("hx")
    written = _call(failure)
    node = None
    if written is not None and not any(isinstance(one, ast.Starred) for one in written.args):
        node = written.args[1] if len(written.args) > 1 else next((w.value for w in written.keywords if w.arg == "hx"), None)
    return call.type, given, node


def _call(failure: Failure) -> ast.Call | None:
    """How the layer was called."""
    call = failure.user.expression() if failure.user is not None else None
    return call if isinstance(call, ast.Call) else None


def _again(failure: Failure, old: ast.expr | None, new: str) -> str:
    """The call with another state."""
    call = _call(failure)
    if call is None or old is None:
        return ""
    arguments = [new if one is old else ast.unparse(one) for one in call.args]
    words = [f"{w.arg}={new if w.value is old else ast.unparse(w.value)}" for w in call.keywords if w.arg]
    return f"{ast.unparse(call.func)}({', '.join([*arguments, *words])})"


def _number_of_states(failure: Failure, _: re.Match[str]) -> Cause | None:
    """One tensor where an LSTM needs two, or two where the others need one."""
    found, inner = _state(failure), failure.inner
    if found is None or inner is None or not inner.is_torch:
        return None
    kind, given, node = found
    text = ast.unparse(node) if node is not None else "h"
    if kind in _TWO and issubclass(type(given), Tensor):
        return Cause(
            f"{failure.subject} got one tensor as its state, but needs two: (h, c).",
            f"{failure.stopped}the state is {shape_of(given)}.",
            "one state, not (h, c)",
            (("given", str(shape_of(given))), ("expected", "(h, c)")),
            (Fix("With a second one of zeros:", _again(failure, node, f"({text}, torch.zeros_like({text}))")),),
        )
    if kind not in _TWO and type(given) in (tuple, list):
        return Cause(
            f"{failure.subject} got {format.plural(len(given), 'state')} in a {type(given).__name__}, but needs one tensor: h.",
            "Only an LSTM has two, (h, c).",
            f"{type(given).__name__}, not h",
            (("given", ", ".join(str(shape_of(part)) for part in given)), ("expected", "h")),
            (Fix("The first of them:", _again(failure, node, f"{text}[0]")),)
            if given and isinstance(node, (ast.Name, ast.Attribute))
            else (Fix("Give it the first of them."),),
        )
    return None


def _needed(failure: Failure, batch: bool) -> _Shape | None:
    """The shape of one state of a recurrent layer for its input."""
    call = failure.failing
    held = stores.contents(call.module) if call is not None else {}
    layers, hidden = held.get("num_layers"), held.get("proj_size") or held.get("hidden_size")
    taken = failure.taken[0] if failure.taken else ()
    if type(layers) is not int or type(hidden) is not int or len(taken) != (3 if batch else 2):
        return None
    rows = layers * (2 if held.get("bidirectional") is True else 1)
    return (rows, taken[0 if held.get("batch_first") is True else 1], hidden) if batch else (rows, hidden)


def _dimensions(failure: Failure, match: re.Match[str]) -> Cause | None:
    found = _state(failure)
    batch = match[1] == "batched"
    needed = _needed(failure, batch)
    if found is None or needed is None:
        return None
    kind, given, node = found
    parts = [given] if issubclass(type(given), Tensor) else list(given)
    shapes = [shape_of(part) for part in parts]
    layout = "(layers × directions, batch, hidden_size)" if batch else "(layers × directions, hidden_size)"
    zeros = f"torch.zeros{needed}"
    fixes = []
    if batch and needed[0] == 1 and all(shape == needed[1:] for shape in shapes) and isinstance(node, ast.Tuple | ast.Name):
        names = [ast.unparse(one) for one in (node.elts if isinstance(node, ast.Tuple) else [node])]
        if len(names) == len(parts):
            with_layer = [f"{name}.unsqueeze(0)" for name in names]
            new = f"({', '.join(with_layer)})" if isinstance(node, ast.Tuple) else with_layer[0]
            fixes.append(Fix("For one layer, put a 1 in front:", _again(failure, node, new)))
    fixes.append(Fix("A state that fits:", f"({zeros}, {zeros})" if kind in _TWO else zeros))
    listed = " and ".join(map(str, dict.fromkeys(shapes)))
    return Cause(
        f"{failure.subject} got a state of shape {listed}, but needs {needed}.",
        f"It is {layout}; the batch is that of the input.",
        f"state {listed}",
        (("given", listed), ("expected", str(needed))),
        tuple(fixes),
    )


def _cell(failure: Failure, match: re.Match[str]) -> Cause | None:
    call = failure.failing
    if call is None or call.type not in _KINDS or not failure.taken:
        return None
    given, expected, batch = int(match["given"]), int(match["expected"]), len(failure.taken[0]) == 2
    needed = (failure.taken[0][0], expected) if batch else (expected,)
    if match["what"] != "size":
        needed = (expected, stores.contents(call.module).get("hidden_size", 0))
    said = f"{failure.subject} got a state of {counted(given, 'number')}, but keeps {expected}."
    if match["what"] != "size":
        said = f"{failure.subject} got an input with a batch of {expected} and a state with one of {given}."
    zeros = f"torch.zeros{needed if len(needed) > 1 else f'({needed[0]})'}"
    fix = f"({zeros}, {zeros})" if call.type in _TWO else zeros
    return Cause(
        said,
        f"{failure.stopped}input {failure.taken[0]}.",
        f"{given} ≠ {expected}",
        (("given", str(given)), ("expected", str(expected))),
        (Fix("A state that fits:", fix),),
    )


# ---- packed sequences --------------------------------------------------------------------------------------------------------


def _packing(failure: Failure) -> ast.Call | None:
    call = _call(failure)
    return call if call is not None and ast.unparse(call.func).rpartition(".")[2] == "pack_padded_sequence" else None


def _unsorted(failure: Failure, _: re.Match[str]) -> Cause | None:
    call = _packing(failure)
    if call is None or any(word.arg in (None, "enforce_sorted") for word in call.keywords):
        return None
    return Cause(
        "pack_padded_sequence got lengths that are not sorted from longest to shortest.",
        "By default it expects the batch to be sorted by length.",
        "not sorted",
        (),
        (Fix("Let it sort them itself:", f"{ast.unparse(call)[:-1]}, enforce_sorted=False)"),),
    )


def _empty(failure: Failure, _: re.Match[str]) -> Cause | None:
    call = _packing(failure)
    if call is None:
        return None
    return Cause(
        "pack_padded_sequence got a sequence of length 0.",
        "A packed batch cannot contain one.",
        "length 0",
        (),
        (Fix("First remove empty sequences from the batch and its lengths."),),
    )


def _lengths(failure: Failure, match: re.Match[str]) -> Cause | None:
    call, given, batch = _packing(failure), int(match[1]), int(match[2])
    shape = shape_of(failure.local("input"))
    if call is None or shape is None or len(shape) < 2:
        return None
    first = next((word for word in call.keywords if word.arg == "batch_first"), None)
    is_first = first is not None and isinstance(first.value, ast.Constant) and first.value.value is True
    known = first is None or isinstance(first.value, ast.Constant)
    other = shape[1 if is_first else 0]
    fixes = [Fix("Give one length for each sequence of the batch.")]
    if known and other == given and shape[0 if is_first else 1] == batch and len(call.args) < 3:
        words = [ast.unparse(word) for word in call.keywords if word is not first]
        words.append(f"batch_first={not is_first}")
        code = f"{ast.unparse(call.func)}({', '.join([*map(ast.unparse, call.args), *words])})"
        fixes = [Fix(f"The batch of {given} is {'first' if not is_first else 'second'}:", code)]
    layout = "(batch, length, …)" if is_first else "(length, batch, …)"
    return Cause(
        f"pack_padded_sequence got {format.plural(given, 'length')} for a batch of {batch}.",
        f"The input {shape} is read as {layout}.",
        f"{given} ≠ {batch}",
        (("lengths", str(given)), ("input", str(shape))),
        tuple(fixes),
    )


_R, _ANY = (RuntimeError,), (RuntimeError, IndexError, AttributeError, TypeError)
FIRST = (Rule("state", _ANY, r"", _number_of_states),)
"""Asked before those that only tell in what a wrong kind of state ended."""
RULES = (
    Rule("product", _R, r"^For (batched|unbatched) \d-D input, hx", _dimensions),
    Rule("product", _R, r"hidden\d has inconsistent hidden_(?P<what>size): got (?P<given>\d+),? expected (?P<expected>\d+)", _cell),
    Rule("product", _R, r"Input (?P<what>batch) size (?P<expected>\d+) doesn't match hidden\d batch size (?P<given>\d+)", _cell),
    Rule("lengths", _R, r"^Length of all samples has to be greater than 0", _empty),
    Rule("lengths", _R, r"^`lengths` array must be sorted in decreasing order", _unsorted),
    Rule("lengths", _R, r"Expected `len\(lengths\)` to be equal to batch_size, but got (\d+) \(batch_size=(\d+)\)", _lengths),
)
