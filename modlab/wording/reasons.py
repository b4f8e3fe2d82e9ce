"""Reasons why a parameter has a gradient or none, in English; and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modlab import format
from modlab.records.trace import EventFact, Reason
from modlab.wording import events
from modlab.wording.names import Words, filled

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
    "renewed": "it is another tensor than when the trace began: an optimizer that was made before does not hold it",
    "stale": "its .grad is that of an earlier pass",
}
"""By a fact: what is added."""

HOW = {
    "detached": "detached: what was computed from it left the graph in",
    "no_grad": "under no_grad: what was computed from it left the graph in",
    "inference_mode": "under inference_mode: what was computed from it left the graph in",
    "number": "off the path to the loss: what was computed from it ended as a plain number in",
    "numbers": "off the path to the loss: what was computed from it ended as plain numbers in",
    "whole": "off the path to the loss: what was computed from it became whole numbers, which carry no gradient, in",
}
"""By the fact ``how``: in what way it left the graph."""

FORMS = {"array": "an array", "numbers": "plain numbers", "number": "a plain number"}
"""By the fact ``form``: as what it left torch too."""

_FUNCTION = (
    "it ran inside a torch.autograd.Function, which made no graph to it (checkpoint(..., use_reentrant=True) makes none where no input "
    "requires grad)"
)
_OFF = "off the path to the loss: {used} used it, and nothing of that reached what backward() began from"


def _cut(facts: Facts) -> str:
    graph = "the loss has no graph; " if "no graph" in facts else ""
    inside = f" in {facts['inside']}" if facts["inside"] else ""
    return f"{graph}{HOW[facts['how']]} {facts['name']}{inside}{_at(facts)}{_exported(facts)}"


def _exported(facts: Facts) -> str:
    """It went round autograd: out as an array or as numbers, and in again."""
    if "out" not in facts:
        return ""
    out = f"{facts['out']}{_at(facts, 'out at')}"
    if "entry" not in facts:
        return f", and went on as {FORMS[facts['form']]} from {out}"
    entry = f"{facts['entry']}{_at(facts, 'entry at')}"
    return f", and torch in {out}; {entry} takes a tensor that nothing seen here has made, as torch.from_numpy gives one"


def _at(facts: Facts, name: str = "at") -> str:
    return f" at {facts[name]}" if facts[name] else ""


def _module(facts: Facts) -> str:
    return facts["module"] or "the model"


def _raised(facts: Facts) -> str:
    on = f", whereupon {facts['outer']} {_ended(facts['outer error'])}" if "outer" in facts else ""
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
    return f"it got a gradient{odd}, and that was set to None since (zero_grad does so, or a hook)"


def _gradient(facts: Facts) -> str:
    return f"it has a gradient{_odd(facts)}{', added to the one that was there before (no zero_grad between)' if facts['added'] else ''}"


CASES: dict[str, Words] = {
    "no backward pass": "no backward pass ran in this trace",
    "backward raised": "the backward pass raised {error}",
    "gone since": "a gradient came, and the model holds another tensor, or None, under this name now: the one that got it is gone",
    "gone": "the model holds another tensor, or None, under this name now; the one that was there when it ran is gone",
    "replaced": lambda facts: f"another tensor stood in its place when {_module(facts)} ran (torch.func.functional_call does so)",
    "on other ranks": "this rank holds nothing of it, and so nothing of its gradient",
    "given back": "its gradient was given back by torch.autograd.grad, which changes no .grad",
    "whole numbers": "it holds {dtype}, and whole numbers have no gradient",
    "frozen": "frozen: its requires_grad is False",
    "frozen then": "frozen: its requires_grad was False when {used} ran",
    "without autograd": lambda facts: f"{facts['used']} ran under {facts['mode']}{_at(facts)}, where autograd notes nothing",
    "raised": _raised,
    "other inputs": "the backward pass asked for the gradients of other tensors alone (inputs=)",
    "others given back": "torch.autograd.grad gave back the gradients of other tensors alone",
    "stopped": lambda facts: (
        f"the graph leads to it, and no gradient came: a function on the way gave none"
        f"{', or a hook of its own took it away' if facts['hooks'] else ''}"
    ),
    "cut": _cut,
    "no graph in a function": f"the loss has no graph; {{used}} used it, and {_FUNCTION}",
    "in a function": f"{_OFF}: {_FUNCTION}",
    "beside a stranger": lambda facts: (
        f"{_OFF.format(used=facts['used'])}; {facts['name']}{_at(facts)} takes a tensor without a graph that nothing seen here has made "
        "(a constant, numpy, or a torch.autograd.Function)"
    ),
    "off the path": _OFF,
    "set to None": _set_to_none,
    "zero": "it has a gradient, and that is zero everywhere",
    "set to zero": lambda facts: f"it got a gradient{_odd(facts)}, and that was set to zero since (zero_grad(set_to_none=False) does so)",
    "gradient": _gradient,
    ".forward called": lambda facts: f"{_module(facts)} was called through .forward{_at(facts)}, past the hooks that would have used it",
    "not used": lambda facts: f"{_module(facts)} ran, and nothing was seen to use it",
    "not called": lambda facts: f"not called: {_module(facts)} did not run",
    "buffer": "a buffer, or a tensor that is not registered: no optimizer trains it",
    "pass not watched": "a part of the model is compiled, so the backward pass was not watched",
    "large graph": "the graph of the loss is too large to be walked",
    "another thread": lambda facts: f"{_module(facts)} was called in another thread, which is not followed",
    "inside of compiled": lambda facts: f"whether {_module(facts)} used it cannot be seen: it is inside something compiled",
    "opaque": lambda facts: f"whether {_module(facts)} used it cannot be seen: it is {facts['opaque']}",
    "compiled part": lambda facts: f"whether {_module(facts)} used it cannot be seen: a part of the model is compiled",
    "inside of opaque": "whether it was used cannot be seen: {above} is {opaque}",
    "folded": "equal calls were recorded once (fold=True), and others than this one's",
}
"""By the fact ``case``: what the trace shows."""

_OFF_AUTOGRAD = "Autograd notes nothing there, so no graph leads back to what was used."
_UNREACHED = "A gradient comes to what the loss was computed from, and to nothing else: without one, step() leaves it as it is."
MEANS = {
    "gradient": "",
    "zero": "The loss is the same whatever stands in it, as far as this pass tells: step() moves it by weight decay and momentum alone.",
    "set to None": "What an optimizer was to use of it has to be used before that.",
    "frozen": "backward() gives nothing to what does not require a gradient, and step() leaves it as it is.",
    "no_grad": _OFF_AUTOGRAD,
    "inference_mode": _OFF_AUTOGRAD,
    "detached": "The graph ends there: what is before it gets no gradient from what comes after.",
    "off the path": _UNREACHED,
    "not called": _UNREACHED,
    "not used": _UNREACHED,
    ".forward called": "A module is called to run its hooks, and what these do was left out.",
    "integer": "Autograd works on floating point and complex numbers alone.",
    "overwritten": "A gradient belongs to the tensor that was used, and not to its name.",
    "not asked for": "backward(inputs=...) and torch.autograd.grad give a gradient to what they are asked for alone.",
    "raised": "What raises gives nothing that a loss could be computed from.",
    "stopped on the way": "A backward that gives None for an input ends the way there.",
    "no backward": "Gradients come with backward(): before it, a parameter has none, or that of an earlier pass.",
    "buffer": "",
    "not here": "Each rank has the gradient of what it holds.",
    "cannot be seen": "Nothing is said of what was not seen: neither that it is well nor that it is not.",
}
"""By the `kind` of a reason: what follows from it."""
