"""The birth of a NaN, in English: what running the step again showed, or why it showed nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from modlab import format
from modlab.wording.names import named

Facts = Mapping[str, Any]
Words = str | Callable[[Facts], str]
_LARGEST = {"float16": "65,504", "bfloat16": "3.39e38", "float32": "3.40e38", "float64": "1.80e308"}
_SIGNED = {"nan": "NaN", "posinf": "+inf", "neginf": "-inf"}


def halves(path: str, facts: Facts, word: str) -> tuple[str, str]:
    """What is wrong with what, if the sentence begins with the place, and the evidence.

    Args:
        path: of the module, or the name of a parameter or input; "" for the whole model.
        facts: those of an alert whose step was run again.
        word: "NaN" or "infinity".
    """
    told = {**facts, "place": named(path), "word": word, "amount": _amount(facts, word)}
    text, why = _filled(BIRTHS[facts["birth"]], told), _filled(CAUSES[facts["cause"]], facts) if "cause" in facts else ""
    if path and facts["birth"] in _WITH_PLACE:
        return text, why
    return "", f"{text}: {why}" if why else text


def doubted(facts: Facts) -> str:
    """Why the replayed pass may differ from the original one; empty if it is the same."""
    doubts = [_filled(DOUBTS[kind], facts) for kind in facts.get("doubts", ())]
    return f" (replay may differ: {'; '.join(doubts)})" if doubts else ""


def _filled(words: Words, facts: Facts) -> str:
    return words.format_map(facts) if isinstance(words, str) else words(facts)


def _amount(facts: Facts, word: str) -> str:
    """How many numbers are not finite: "3 NaN among 640 numbers"."""
    if "numbers" not in facts:
        return ""
    if "bad" in facts:
        bad = f"{facts['bad']:,} NaN" if word == "NaN" else format.plural(facts["bad"], "infinity", "infinities")
    else:
        bad = " and ".join(f"{facts[name]:,} {sign}" for name, sign in _SIGNED.items() if name in facts)
    return f"{bad} among {format.plural(facts['numbers'], 'number')}"


def _made(facts: Facts) -> str:
    between = {"function": "in", "hook": "of"}.get(facts["event"])
    who = f"{facts['name']} {between} {facts['place']}" if between else f"{facts['place']} ({facts['name']})"
    source = "from infinities put there on purpose" if facts["on purpose"] else "from finite numbers"
    at = f" ({facts['at']})" if facts["at"] else ""
    return f"{who} makes {facts['amount']} {source}{at}"


def _batch(facts: Facts) -> str:
    too = f", and {named(facts['spoilt'])} is already spoilt" if "spoilt" in facts else ""
    return f"the batch: {facts['place']} contains {facts['amount']}{too}"


def _weights(facts: Facts) -> str:
    part = " of this rank's part" * facts["part"]
    since = "when the watch began" if facts.get("begun") else "before the step, so an earlier step spoilt it"
    alone = " alone" * bool(facts.get("alone"))
    return f"the weights: {facts['place']}{alone} contains {facts['amount']}{part} {since}"


def _share(facts: Facts) -> str:
    return f"{facts['bad']:,} of {format.plural(facts['numbers'], 'number')}"


def _node(facts: Facts) -> str:
    function = f"{facts['name']} in " if facts["name"] else ""
    node = ", ".join(filter(None, (facts["node"], facts["at"])))
    return f"backward: {function}{facts['place']} ({node}) turns finite gradients into {facts['word']}, in {_share(facts)}"


def _sum_inside(facts: Facts) -> str:
    return f"backward: the gradients that meet in {facts['place']} are finite, but their sum is {facts['word']} in {_share(facts)}"


def _hook(facts: Facts) -> str:
    which = "a backward hook at" if facts["of a module"] else "a hook on" if facts.get("of a parameter") else "a hook on a tensor of"
    return f"backward: {which} {facts['place']} turns finite gradients into {facts['word']}, in {_share(facts)}"


def _other_ranks(facts: Facts) -> str:
    spread = f"{', '.join(facts['kinds'])} over {facts['world']}"
    return f"the step was not run again: a pass talks to the other ranks ({spread}), so they would have to take part"


_WITH_PLACE = frozenset(("made", "held before", "unseen"))
"""Kinds whose sentence begins with the place."""

BIRTHS: dict[str, Words] = {
    "made": _made,
    "held before": "{place} contained {amount} before this step began",
    "unseen": "the input of {name} in {place} contains {amount}, made where it cannot be seen",
    "batch": _batch,
    "weights": _weights,
    "loss": "the loss: the model's outputs are finite, but the gradient that comes back from the loss contains {amount}",
    "node": _node,
    "hook": _hook,
    "sum inside": _sum_inside,
    "sum": "the gradients that meet at {place} are finite, but add up to {amount}",
    "sum of passes": "backward: each of the {passes} passes gives finite gradients, but their sum at {place} is not finite",
    "arrives": "backward: the gradient that arrives at the output of {place} contains {amount}, and is the first that is not finite",
    "elsewhere": (
        "the gradients of the pass are finite, but the gradient of {place} is not when the step begins: "
        "it comes from another loss, from gradient clipping or a hook behind the backward pass, or was not zeroed"
    ),
    "finite": "run again, the step gives only finite numbers",
    "raises": "run again, it raises {error}",
    "failed": "the step could not be run again: {error}",
    "no pass": "the step was not run again: no training pass of the model was seen in it",
    "no pass, compiled": (
        "the step was not run again: no training pass of the model was seen in it, "
        "because it is compiled in place (model.compile()) and torch then runs no hook for its calls"
    ),
    "other ranks": _other_ranks,
}
"""By the fact "birth" of an alert whose step was run again."""


def _log(facts: Facts) -> str:
    zeros = f"{facts['zeros']:,} of its inputs are 0" * bool(facts["zeros"])
    return " and ".join(filter(None, (zeros, "some are negative" * facts["negative"])))


def _overflow(facts: Facts) -> str:
    return f"the largest number in {facts['dtype']} is {_LARGEST[facts['dtype']]}"


CAUSES: dict[str, Words] = {
    "log": _log,
    "division": "{zeros:,} of the numbers it divides by are 0",
    "root": "some of its inputs are negative",
    "masked row": "a whole row of its input is -inf",
    "overflow": _overflow,
    "slope at 0": "its slope at 0 is infinite",
    "slope at the end": "its slope is infinite at the end of its range",
}
"""By the fact "cause": why it happened."""

DOUBTS: dict[str, Words] = {
    "dropped": lambda facts: f"{format.plural(facts['dropped'], 'pass', 'passes')} of this step were not kept",
    "changes": "the run is not deterministic, or something outside the model changed",
    "inputs changed": "inputs were changed in place",
    "gradient changed": "the gradient of the outputs was changed in place",
    "buffers not kept": "buffers that the model changes were too large to keep",
    "gradients not kept": "gradients of outputs were too large to keep",
    "compiled": "the model is compiled, but was replayed uncompiled",
    "in evaluation mode": "the model has since been switched to eval mode",
    "rounded otherwise": "run again, the outputs are not the same bit for bit",
    "other outputs": "run again, the outputs are not the same: the run is not deterministic",
    "reentrant": "the backward pass of reentrant checkpoints was left out: it would run hooks of parameters",
    "FSDP2": "FSDP2 gives parameters their gradients through its own hooks, which were not run",
}
"""By each entry of the fact "doubts": why the replayed pass may differ from the original one."""
