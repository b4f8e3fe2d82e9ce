"""The birthplace of a NaN in English: what the step that was run again shows, or why it shows nothing."""

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
    """What is wrong with what, where the sentence begins with the place, and the evidence.

    Args:
        path: of the module, or the name of a parameter or input; "" where the model as a whole is meant.
        facts: of an alert whose step was run again.
        word: "NaN" or "infinity".
    """
    told = {**facts, "place": named(path), "word": word, "amount": _amount(facts, word)}
    text, why = _filled(BIRTHS[facts["birth"]], told), _filled(CAUSES[facts["cause"]], facts) if "cause" in facts else ""
    if path and facts["birth"] in _WITH_PLACE:
        return text, why
    return "", f"{text}: {why}" if why else text


def doubted(facts: Facts) -> str:
    """Why the pass may be another one than that which was run; nothing if it is the same."""
    doubts = [_filled(DOUBTS[kind], facts) for kind in facts.get("doubts", ())]
    return f" (replay may differ: {'; '.join(doubts)})" if doubts else ""


def _filled(words: Words, facts: Facts) -> str:
    return words.format_map(facts) if isinstance(words, str) else words(facts)


def _amount(facts: Facts, word: str) -> str:
    """How many numbers are not finite: "3 NaN of 640 numbers"."""
    if "numbers" not in facts:
        return ""
    if "bad" in facts:
        bad = f"{facts['bad']:,} NaN" if word == "NaN" else format.plural(facts["bad"], "infinity", "infinities")
    else:
        bad = " and ".join(f"{facts[name]:,} {sign}" for name, sign in _SIGNED.items() if name in facts)
    return f"{bad} of {format.plural(facts['numbers'], 'number')}"


def _made(facts: Facts) -> str:
    between = {"function": "in", "hook": "of"}.get(facts["event"])
    who = f"{facts['name']} {between} {facts['place']}" if between else f"{facts['place']} ({facts['name']})"
    source = "from infinities that are there on purpose" if facts["on purpose"] else "from finite numbers"
    at = f" ({facts['at']})" if facts["at"] else ""
    return f"{who} gives {facts['amount']} {source}{at}"


def _batch(facts: Facts) -> str:
    too = f", and {named(facts['spoilt'])} is spoilt already" if "spoilt" in facts else ""
    return f"the batch: {facts['place']} holds {facts['amount']}{too}"


def _weights(facts: Facts) -> str:
    part = " of this rank's part" * facts["part"]
    return f"the weights: {facts['place']} holds {facts['amount']}{part} before the step, so an earlier step spoilt it"


def _share(facts: Facts) -> str:
    return f"{facts['bad']:,} of {format.plural(facts['numbers'], 'number')}"


def _node(facts: Facts) -> str:
    function = f"{facts['name']} in " if facts["name"] else ""
    node = ", ".join(filter(None, (facts["node"], facts["at"])))
    return f"backward: {function}{facts['place']} ({node}) makes {facts['word']} of finite gradients, in {_share(facts)}"


def _sum_inside(facts: Facts) -> str:
    return f"backward: the gradients that meet in {facts['place']} are finite, and their sum is {facts['word']} in {_share(facts)}"


def _other_ranks(facts: Facts) -> str:
    spread = f"{', '.join(facts['kinds'])} over {facts['world']}"
    return f"the step was not run again: a pass talks to the other ranks ({spread}), which would have to take part"


_WITH_PLACE = frozenset(("made", "held before", "unseen"))
"""What begins with the place."""

BIRTHS: dict[str, Words] = {
    "made": _made,
    "held before": "{place} held {amount} before this step began",
    "unseen": "what {name} in {place} takes holds {amount}, made where it cannot be seen",
    "batch": _batch,
    "weights": _weights,
    "loss": "the loss: the model's outputs are finite, and the gradient that comes back from the loss holds {amount}",
    "node": _node,
    "sum inside": _sum_inside,
    "sum": "the gradients that meet at {place} are finite, and add up to {amount}",
    "sum of passes": "backward: each of the {passes} passes gives finite gradients, and their sum at {place} is not",
    "arrives": "backward: the gradient that arrives at the output of {place} holds {amount}, and is the first that is not finite",
    "elsewhere": (
        "the gradients of the pass are finite, and that of {place} is not when the step begins: "
        "it comes from another loss, from gradient clipping, or was not zeroed"
    ),
    "finite": "run again, the step gives finite numbers alone",
    "raises": "run again, it raises {error}",
    "failed": "the step could not be run again: {error}",
    "no pass": "the step was not run again: no training pass of the model was seen in it",
    "no pass, compiled": (
        "the step was not run again: no training pass of the model was seen in it: "
        "it is compiled in its place (model.compile()), where torch tells no hook of its calls"
    ),
    "other ranks": _other_ranks,
}
"""By the fact "birth" of an alert whose step was run again."""


def _log(facts: Facts) -> str:
    zeros = f"{facts['zeros']:,} of its inputs are 0" * bool(facts["zeros"])
    return " and ".join(filter(None, (zeros, "some are negative" * facts["negative"])))


def _overflow(facts: Facts) -> str:
    return f"{facts['dtype']} holds numbers up to {_LARGEST[facts['dtype']]}"


CAUSES: dict[str, Words] = {
    "log": _log,
    "division": "{zeros:,} of the numbers it divides by are 0",
    "root": "some of its inputs are negative",
    "masked row": "a row of its input is -inf throughout",
    "overflow": _overflow,
    "slope at 0": "its slope at 0 is infinite",
    "slope at the end": "its slope is infinite at the end of its range",
}
"""By the fact "cause": why it is so."""

DOUBTS: dict[str, Words] = {
    "dropped": lambda facts: f"{format.plural(facts['dropped'], 'pass', 'passes')} of this step were not kept",
    "changes": "the run is not deterministic, or something outside of the model changed",
    "inputs changed": "inputs were changed in place",
    "gradient changed": "the gradient of the outputs was changed in place",
    "buffers not kept": "buffers that the model changes were too large to be kept",
    "gradients not kept": "gradients of outputs were too large to be kept",
    "compiled": "the model is compiled, and is run here as it is written",
    "in evaluation mode": "the model was switched to eval mode since",
    "rounded otherwise": "run again, the outputs are not the same bit for bit",
    "other outputs": "run again, the outputs are not the same: the run is not deterministic",
    "reentrant": "the backward pass of reentrant checkpoints would run hooks of parameters, and was left out",
    "FSDP2": "FSDP2 gives parameters their gradients by hooks of its own, which were not run",
}
"""By each of the fact "doubts": why the pass may be another one than that which was run."""
