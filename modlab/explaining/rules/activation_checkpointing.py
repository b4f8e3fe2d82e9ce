"""Activation checkpointing: what ran in the forward pass and what ran again in backward differ, or cannot go together."""

from __future__ import annotations

import ast
import re
from typing import Any

from modlab.explaining import operands, source_code, suspects, written
from modlab.explaining.calls import join
from modlab.explaining.failure import Cause, Failure, Rule, tuple_of
from modlab.inspection import stores
from modlab.records.explanation import Fix

_WHY = "checkpoint keeps no values of the block in the forward pass, and runs it again in backward: both runs must do the same."
_LOOK = Fix(
    "Look at what the block reads besides its inputs: an attribute or a global that changed, training mode, autocast, "
    "what it counts or caches."
)


def _block(failure: Failure) -> str:
    """What was run again: the path of a module, or the name of a function; nothing where that is not seen."""
    frame: Any = next(
        (
            one.names[name]
            for one in reversed(failure.frames)
            for name in ("self", "frame")
            if type(one.names.get(name)).__name__ == "_CheckpointFrame"
        ),
        None,
    )
    again = getattr(frame, "recompute_fn", None)
    code, cells = getattr(again, "__code__", None), getattr(again, "__closure__", None) or ()
    free = dict(zip(code.co_freevars, cells, strict=False)) if code is not None else {}
    try:
        function = (free.get("fn") or free["function"]).cell_contents  # the one name in newer versions, the other in older ones
    except (KeyError, ValueError):
        return ""
    function = getattr(function, "func", function)  # of a partial
    module = function if stores.is_module(function) else getattr(function, "__self__", None)
    if module is not None and stores.is_module(module):
        for name, model in failure.models:
            path = next((path for path, one in suspects.walk(model) if one is module), None)
            if path is not None:
                return f"{join(name, path)} ({type(module).__name__})"
        return type(module).__name__
    return str(getattr(function, "__qualname__", "")).rpartition(".")[2].strip("<>")


def _said(failure: Failure) -> str:
    block = _block(failure)
    return f"{block}, which checkpoint ran again in backward," if block else "What checkpoint ran again in backward"


def _fixes(failure: Failure) -> tuple[Fix, ...]:
    frame = failure.own
    found = written.calls(frame, "checkpoint") if frame is not None else []
    plain = _plain(found[-1]) if len(found) == 1 else ""
    return (_LOOK, Fix("Until then, without checkpoint; this only costs memory:", plain)) if plain else (_LOOK,)


def _plain(found: written.Written) -> str:
    """``block(x)`` for ``checkpoint(block, x, use_reentrant=False)``."""
    call = found.call
    if not call.args or isinstance(call.args[0], ast.Starred):
        return ""
    own = {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}
    return found.rewritten(ast.Call(call.args[0], call.args[1:], [word for word in call.keywords if word.arg not in own]))


def _metadata(failure: Failure, match: re.Match[str]) -> Cause:
    then, now = _told(match[2]), _told(match[3])
    count = len(re.findall(r"tensor at position \d+:", failure.message))
    more = f" (and {count - 1} more)" if count > 1 else ""
    return Cause(
        f"{_said(failure)} did not give the same: tensor {match[1]} of those saved was {then}, but is now {now}{more}.",
        _WHY,
        "recomputed otherwise",
        (("forward", then), ("backward", now)),
        _fixes(failure),
    )


def _told(metadata: str) -> str:
    """``(3,) float32 on cpu`` of what the message says of a tensor."""
    shape = re.search(r"torch\.Size\(\[([\d, ]*)\]\)", metadata)
    dtype, device = re.search(r"torch\.(\w+)(?=[,}])", metadata), re.search(r"type='(\w+)'", metadata)
    words = [str(tuple_of(shape[1])) if shape is not None else "", dtype[1] if dtype is not None else ""]
    return " ".join(filter(None, words)) + (f" on {device[1]}" if device is not None else "")


def _number(failure: Failure, match: re.Match[str]) -> Cause:
    then, now = match[1], match[2]
    return Cause(
        f"{_said(failure)} did not do the same: it saved {then} tensors in forward, but {now} when it ran again.",
        _WHY,
        f"{then} ≠ {now} tensors",
        (("forward", then), ("backward", now)),
        _fixes(failure),
    )


def _more(failure: Failure, _: re.Match[str]) -> Cause:
    return Cause(
        f"{_said(failure)} did not do the same: it saved more tensors than in the forward pass.", _WHY, "more tensors", (), _fixes(failure)
    )


def _reentrant(failure: Failure, _: re.Match[str]) -> Cause:
    frame = failure.own
    found = written.calls(frame, "checkpoint") if frame is not None else []
    code = found[-1].rewritten(written.with_word(found[-1].call, "use_reentrant", ast.Constant(False))) if found else ""
    return Cause(
        "checkpoint with use_reentrant=True works only with loss.backward().",
        "autograd.grad, and backward with inputs=, need use_reentrant=False.",
        "use_reentrant=True",
        (),
        (Fix("Instead:", code or "checkpoint(block, x, use_reentrant=False)"),),
    )


def _arguments(failure: Failure, match: re.Match[str]) -> Cause | None:
    frame = failure.own
    call = written.expression(frame)
    if frame is None or not isinstance(call, ast.Call) or written.name_of(call.func) != "checkpoint":
        return None
    names = [name.strip() for name in match[1].split(",")]
    return Cause(
        f"checkpoint with use_reentrant=True does not pass on named arguments: {', '.join(names)}.",
        "",
        "",
        (),
        (Fix("Instead:", source_code.rewritten(frame, call, written.with_word(call, "use_reentrant", ast.Constant(False)))),),
    )


def _no_graph(failure: Failure, _: re.Match[str]) -> Cause | None:
    """With use_reentrant=True the graph goes on only if an input requires a gradient."""
    frame = failure.own
    found = written.calls(frame, "checkpoint") if frame is not None else []
    reentrant = [
        one
        for one in found
        if (node := written.word(one.call, "use_reentrant")) is not None and frame is not None and operands.follow(node, frame) is True
    ]
    if frame is None or not reentrant:
        return None
    one = reentrant[-1]
    given = [operands.follow(node, frame) for node in one.call.args[1:]]
    if any(thing is operands.MISSING or getattr(thing, "requires_grad", False) for thing in given if thing is not None) and not _makes(one):
        return None
    return Cause(
        "checkpoint with use_reentrant=True cut the graph: none of its inputs requires a gradient.",
        "So the parameters of the block get none either.",
        "no gradient",
        (),
        (
            Fix(
                "use_reentrant=False looks at the parameters too:",
                one.rewritten(written.with_word(one.call, "use_reentrant", ast.Constant(False))),
            ),
        ),
    )


def _makes(found: written.Written) -> bool:
    """Whether all inputs are made in the call itself, by functions that give what requires no gradient."""
    return (
        all(
            isinstance(node, ast.Call) and written.name_of(node.func) in ("randn", "rand", "zeros", "ones") and not node.keywords
            for node in found.call.args[1:]
        )
        and len(found.call.args) > 1
    )


_R = (RuntimeError,)
RULES = (
    Rule(
        "recomputed",
        _R,
        r"have different metadata than during the forward pass.*?tensor at position (\d+):\s*saved metadata: ([^\n]*)"
        r"\s*recomputed metadata: ([^\n]*)",
        _metadata,
    ),
    Rule("recomputed", _R, r"saved during forward: (\d+)\s*Number of tensors saved during recomputation: (\d+)", _number),
    Rule("recomputed", _R, r"torch\.utils\.checkpoint: trying to save more tensors during recomputation", _more),
    Rule("recomputed", _R, r"torch\.utils\.checkpoint is incompatible with \.grad|Checkpointing is not compatible with \.grad", _reentrant),
    Rule("recomputed", (ValueError,), r"^Unexpected keyword arguments: (.+)", _arguments),
    Rule("recomputed", _R, r"^element \d+ of tensors does not require grad", _no_graph),
)
