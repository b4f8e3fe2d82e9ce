"""Reasons why a parameter has a gradient or none, in English, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modlab import format
from modlab.records.trace import EventFact, Reason
from modlab.wording import events
from modlab.wording.names import Words, filled, named

Facts = Mapping[str, Any]


def said(reason: Reason) -> str:
    """The reason, without a full stop.

    >>> said(Reason("not called", "head.weight", {"case": "not called", "module": "head"}))
    'not called: head did not run'
    """
    return format.clean("".join([_twin(reason), filled(CASES[str(reason.facts["case"])], reason), *_more(reason)]))


def _twin(reason: Reason) -> str:
    return f"(the same tensor as {reason.facts['twin']}) " if "twin" in reason.facts else ""


def _more(reason: Reason) -> list[str]:
    return [f"; {words}" for name, words in MORE.items() if name in reason.facts]


MORE = {
    "renewed": "it has been replaced since the trace began: an optimizer created earlier does not hold the new tensor",
    "stale": "its .grad is from an earlier pass",
}
"""By a fact: what is added."""

HOW = {
    "detached": "detached: its result left the graph in",
    "no_grad": "under no_grad: its result left the graph in",
    "inference_mode": "under inference_mode: its result left the graph in",
    "number": "off the path to the loss: its result became a plain number in",
    "numbers": "off the path to the loss: its result became plain numbers in",
    "whole": "off the path to the loss: its result became whole numbers, which carry no gradient, in",
}
"""By the fact ``how``: how it left the graph."""

FORMS = {"array": "an array", "numbers": "plain numbers", "number": "a plain number"}
"""By the fact ``form``: as what it left torch too."""

_FUNCTION = (
    "it ran inside a torch.autograd.Function that built no graph leading to it (checkpoint(..., use_reentrant=True) builds none if no "
    "input requires grad)"
)
_OFF = "off the path to the loss: {used} used it, but the result did not reach the tensor that backward() started from"


def _cut(facts: Facts) -> str:
    graph = "the loss has no graph; " if "no graph" in facts else ""
    inside = f" in {facts['inside']}" if facts["inside"] else ""
    return f"{graph}{HOW[facts['how']]} {facts['name']}{inside}{_at(facts)}{_exported(facts)}"


def _exported(facts: Facts) -> str:
    """It bypassed autograd: out as an array or as numbers, and in again."""
    if "out" not in facts:
        return ""
    out = f"{facts['out']}{_at(facts, 'out at')}"
    if "entry" not in facts:
        return f", and continued as {FORMS[facts['form']]} from {out}"
    entry = f"{facts['entry']}{_at(facts, 'entry at')}"
    return f", and torch in {out}; {entry} takes a tensor that nothing seen here made, such as one from torch.from_numpy"


def _at(facts: Facts, name: str = "at") -> str:
    return f" at {facts[name]}" if facts[name] else ""


def _module(facts: Facts) -> str:
    return named(facts["module"]) if facts["module"] else "the model"


def _raised(facts: Facts) -> str:
    on = f", so {facts['outer']} {_ended(facts['outer error'])}" if "outer" in facts else ""
    return f"{_raising(facts)} {_ended(facts['error'])}{on}, {events.caught(facts['by'])}: nothing came out"


def _raising(facts: Facts) -> str:
    if "hook" in facts:
        return f"the {events.said(EventFact(**facts['hook'][0]))} {facts['name']} on {facts['used']}"
    if "used" in facts:
        return f"{facts['used']} ran inside {facts['name']}, which was called{_at(facts)} and"
    return f"{facts['name']} was called{_at(facts)} and"


def _ended(error: str) -> str:
    return f"raised {error}" if error else "was interrupted"


def _odd(facts: Facts) -> str:
    return f" with {facts['bad']:,} of {facts['count']:,} not finite" if "bad" in facts else ""


def _set_to_none(facts: Facts) -> str:
    odd = ", zero everywhere" if "zero" in facts else _odd(facts)
    return f"it got a gradient{odd}, which has since been set to None (by zero_grad or a hook)"


def _gradient(facts: Facts) -> str:
    return f"it has a gradient{_odd(facts)}{', added to an earlier one (no zero_grad in between)' if facts['added'] else ''}"


CASES: dict[str, Words] = {
    "no backward pass": "no backward pass ran in this trace",
    "backward raised": "the backward pass raised {error}",
    "gone since": "the model no longer has the tensor that got the gradient: this name now holds a different tensor, or None",
    "gone": "the model no longer has the tensor that was used: this name now holds a different tensor, or None",
    "replaced": lambda facts: f"a different tensor was in its place when {_module(facts)} ran (as torch.func.functional_call does)",
    "on other ranks": "this rank holds no part of it, and therefore no part of its gradient",
    "given back": "torch.autograd.grad returned its gradient, which changes no .grad",
    "whole numbers": "its dtype is {dtype}: whole numbers have no gradient",
    "frozen": "frozen: its requires_grad is False",
    "frozen then": "frozen: its requires_grad was False when {used} ran",
    "without autograd": lambda facts: f"{facts['used']} ran under {facts['mode']}{_at(facts)}, where autograd records nothing",
    "raised": _raised,
    "other inputs": "the backward pass asked only for the gradients of other tensors (inputs=)",
    "others given back": "torch.autograd.grad returned only the gradients of other tensors",
    "stopped": lambda facts: (
        f"the graph leads to it, but no gradient arrived: a function on the way gave none"
        f"{', or a hook of its own removed it' if facts['hooks'] else ''}"
    ),
    "cut": _cut,
    "no graph in a function": f"the loss has no graph; {{used}} used it, and {_FUNCTION}",
    "in a function": f"{_OFF}: {_FUNCTION}",
    "beside a stranger": lambda facts: (
        f"{_OFF.format(used=facts['used'])}; {facts['name']}{_at(facts)} takes a tensor without a graph that nothing seen here made "
        "(a constant, numpy, or a torch.autograd.Function)"
    ),
    "off the path": _OFF,
    "set to None": _set_to_none,
    "zero": "it has a gradient, but it is zero everywhere",
    "set to zero": lambda facts: f"it got a gradient{_odd(facts)}, which has since been set to zero (as zero_grad(set_to_none=False) does)",
    "gradient": _gradient,
    ".forward called": lambda facts: f"{_module(facts)} was called through .forward{_at(facts)}, which skips the hooks that would use it",
    "not used": lambda facts: f"{_module(facts)} ran, but nothing was seen to use it",
    "not called": lambda facts: f"not called: {_module(facts)} did not run",
    "buffer": "a buffer, or a tensor that is not registered: no optimizer trains it",
    "pass not watched": "a part of the model is compiled, so the backward pass was not watched",
    "large graph": "the graph of the loss is too large to follow",
    "another thread": lambda facts: f"{_module(facts)} was called in another thread, which is not traced",
    "inside of compiled": lambda facts: f"whether {_module(facts)} used it cannot be seen: it is inside something compiled",
    "opaque": lambda facts: f"whether {_module(facts)} used it cannot be seen: it is {facts['opaque']}",
    "compiled part": lambda facts: f"whether {_module(facts)} used it cannot be seen: a part of the model is compiled",
    "inside of opaque": "whether it was used cannot be seen: {above} is {opaque}",
    "folded": "equal calls were recorded once (fold=True), of a different module",
}
"""By the fact ``case``: what the trace shows."""

_OFF_AUTOGRAD = "Autograd records nothing there, so no graph leads back to what was used."
_UNREACHED = "Only what the loss was computed from gets a gradient. step() leaves a parameter without one unchanged."
MEANS = {
    "gradient": "",
    "zero": "As far as this pass shows, the loss does not depend on its values: only weight decay and momentum can move it.",
    "set to None": "If an optimizer should use it, its step must come before that.",
    "frozen": "backward() skips whatever does not require a gradient, and step() leaves it unchanged.",
    "no_grad": _OFF_AUTOGRAD,
    "inference_mode": _OFF_AUTOGRAD,
    "detached": "The graph ends there: nothing before it gets a gradient from what comes after.",
    "off the path": _UNREACHED,
    "not called": _UNREACHED,
    "not used": _UNREACHED,
    ".forward called": "Calling the module runs its hooks; calling .forward leaves them out.",
    "integer": "Autograd works only on floating-point and complex numbers.",
    "overwritten": "A gradient belongs to the tensor that was used, not to its name.",
    "not asked for": "backward(inputs=...) and torch.autograd.grad compute only the gradients they are asked for.",
    "raised": "A call that raises returns nothing that a loss could be computed from.",
    "stopped on the way": "If a backward function returns None for an input, the gradient goes no further there.",
    "no backward": "backward() makes the gradients: before it, a parameter has none, or one from an earlier pass.",
    "buffer": "",
    "not here": "Each rank has the gradient of what it holds.",
    "cannot be seen": "What was not seen is not judged: it may or may not be fine.",
}
"""By the `kind` of a reason: what follows from it."""
