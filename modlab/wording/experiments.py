"""Experiments (the checks that run a model) in English: what was seen, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import ExperimentRecord
from modlab.records.structure import ROOT
from modlab.wording import batch_causes, mistakes
from modlab.wording.names import Words, all_named, filled, is_many

Facts = Mapping[str, Any]


@frozen
class CheckName:
    """A check: its full name and a short one, each true when it passes."""

    title: str
    short: str


NAMES = {
    "gradients": CheckName("every trained parameter gets a gradient", "gradients arrive"),
    "leak": CheckName("samples do not see each other", "samples stay apart"),
    "first loss": CheckName("the first loss is that of a guess", "first loss fits"),
    "repeat": CheckName("two passes in eval mode are equal", "eval repeats itself"),
    "round trip": CheckName("a copy that loads the state_dict is equal", "state_dict suffices"),
    "overfit": CheckName("one batch can be memorized", "one batch is learned"),
    **{name: CheckName(*words) for name, words in batch_causes.NAMES.items()},
}
"""By the `name` of a check."""

ASKED = {
    "softmax twice": CheckName("the outputs are scores, not probabilities", "outputs are scores"),
    "no log-probabilities": CheckName("the outputs are log-probabilities", "outputs are log-probabilities"),
}
"""By the `kind` of a result that is not about what its check's name says: the first loss of such outputs may well be that of a guess."""


NUMBERS = {
    "first": "loss at first",
    "least": "least loss",
    "steps": "steps",
    "of one answer": "loss of one answer for all",
    "loss": "loss",
    "guess": "loss of a guess",
    "right": "loss of the right answers",
    "wrong": "loss of wrong answers",
    "max_abs": "largest difference",
    "size": "root mean square",
    "largest": "largest",
    "trained": "trained parameters",
    "none": "without a gradient",
    "zero": "gradient zero",
    "not finite": "gradient not finite",
}
"""The facts of a check that are shown as its numbers; its sentences tell the others."""


def numbers(record: ExperimentRecord) -> list[tuple[str, float]]:
    """What was measured, by what it is called on the screen."""
    return [(NUMBERS[name], value) for name, value in record.numbers if name in NUMBERS]


def checked(record: ExperimentRecord) -> CheckName:
    """What is checked, in words that are not true of what failed."""
    return ASKED.get(record.kind) or NAMES[record.name]


def is_further(name: str) -> bool:
    """Whether a check is one of those that are made only where they apply."""
    return name in batch_causes.NAMES


def what(record: ExperimentRecord) -> str:
    """What was seen."""
    return filled(_known(record)[0], record)


def reason(record: ExperimentRecord) -> str:
    """What follows from it."""
    return filled(_known(record)[1], record)


def sentence(record: ExperimentRecord) -> str:
    """What was seen, and where, if the sentence does not say so itself."""
    return f"{record.path}: {what(record)}" if record.path and record.kind == "takes the batch's statistics" else what(record)


def beside(record: ExperimentRecord) -> str:
    """What was seen, for a row that already shows the path."""
    return _lacking(record.facts, beside=True) if _lacks(record) else what(record)


def _lacks(record: ExperimentRecord) -> bool:
    """Whether it tells of gradients: other checks may have facts of the same names."""
    return any(isinstance(record.facts.get(name), (list, tuple)) for name in _WRONG)


def _known(record: ExperimentRecord) -> tuple[Words, Words]:
    words = EXPERIMENTS[record.kind]
    return words if isinstance(words, tuple) else (words, "")


def _short(value: float) -> str:
    """Two digits: further ones differ from machine to machine."""
    return format.number(float(f"{value:.2g}"))


def _arrive(facts: Facts) -> str:
    several = f", in at least one of {facts['passes']} passes: what is called varies at random" if facts["passes"] > 1 else ""
    return f"{'all' if facts['parameters'] > 1 else 'the'} {format.plural(facts['parameters'], 'parameter')}{several}"


def _lacking(facts: Facts, beside: bool = False) -> str:
    if facts.get("nowhere"):
        return "no parameter gets a gradient: the loss has no grad_fn, so nothing leads back to them"
    said: list[str] = []
    for name, wrong in _WRONG.items():
        groups = facts.get(name, ())
        if groups:
            many = len(groups) > 1 or is_many(groups[0]["path"], groups[0])
            rest = f"{'get' if many else 'gets'} {wrong}"
            begin = mistakes.next_to(groups[0]["path"], groups[0], rest) if beside and not said and len(groups) == 1 else ""
            said.append(begin or f"{_names(groups)} {rest}")
    return "; ".join(said)


_WRONG = {
    "without": "no gradient",
    "spoilt": "a gradient with NaN or Inf",
    "flat": "a gradient that is zero everywhere",
}


def _names(groups: Sequence[Facts]) -> str:
    more = f" and {format.plural(len(groups) - 2, 'more place')}" if len(groups) > 2 else ""
    return " and ".join(mistakes.place(group["path"], group) for group in groups[:2]) + more


def _overwritten(facts: Facts) -> str:
    if "functions" in facts:
        return f"{_names(facts['turned'])}: the gradient is reversed; a small step against it makes the loss greater"
    stand = [f"on {all_named(facts['modules'])}"] if facts.get("modules") else []
    stand += ["on tensors between modules"] if facts.get("tensors") else []
    return f"{_names(facts['turned'])}: hooks {' and '.join(stand)}{' ' * bool(stand)}replace the gradient"


def _why_overwritten(facts: Facts) -> str:
    if "functions" in facts:
        by = all_named(facts["functions"])
        return f"Finite differences show it. The gradient comes through the backward of {by}. For a gradient reversal, that is intended."
    on, meant = ("", " The reversal of a gradient is meant to.") if "modules" in facts else (" on the parameters", "")
    return f"Without the hooks{on}, backward gives another gradient: theirs is zero, or points somewhere else.{meant}"


def _why_lacking(facts: Facts) -> str:
    if facts.get("nowhere"):
        return _why_no_graph(facts)
    if "function" in facts:
        at = f" in {facts['begin']}" if facts["begin"] else ""
        return f"Each way back from the loss leads through torch.{facts['function']}{at}, whose slope is 0 everywhere."
    said = []
    if "without" in facts:
        said += [*map(_traced, facts["reasons"])] or ["Its output does not reach the loss."]
    if "spoilt" in facts:
        said.append("Usual causes: a log or square root of 0, a division by 0, or an overflow in float16. One such step ruins the weights.")
    if "flat" in facts:
        said.append("Zero for this batch: dead units, a weight of zero after it, or a mask. Another batch may give a gradient.")
    if facts["left out"]:
        said.append("Intended for parts that only some batches use: a mask token, an expert, a different branch.")
    return " ".join(said)


def _traced(reason: Facts) -> str:
    from modlab.records.trace import Reason
    from modlab.wording import reasons  # most diagnoses lose no gradient

    return f"{reason['path']}: {reasons.said(Reason(**reason))}."


def _why_no_graph(facts: Facts) -> str:
    if facts["reasons"]:
        return _traced(facts["reasons"][0])
    return (
        "The output was detached, computed under no_grad or turned into numbers (.item(), .numpy(), argmax), or does not depend on any "
        "trained parameter."
    )


def _mixes(facts: Facts) -> str:
    return f"in eval mode output {facts['output']} depends on input {facts['input']}"


def _mixes_from(facts: Facts) -> str:
    where = f"; samples first mix in {facts['begin'] or 'the forward of the model itself'}" if "begin" in facts else ""
    return f"{_mixes(facts)}{where}"


def _guess(facts: Facts) -> str:
    return f"{_short(facts['guess'])} for {format.plural(int(facts['classes']), 'class', 'classes')}"


def _drawn(facts: Facts) -> str:
    return f"{_DIFFER}: random numbers are drawn"


def _place(facts: Facts) -> str:
    if not facts["class"]:
        return "the model"
    return f"{facts['path']} ({facts['class']})" if facts["path"] else f"the forward of {facts['class']}"


def _more(facts: Facts) -> str:
    return f", and in {format.plural(facts['more'], 'more place')}" if facts["more"] else ""


def _drawn_in(facts: Facts) -> str:
    function = facts["function"]
    how = f"with {'F.' if facts['dropout'] else ''}{function}" if function else f"from {facts['source']}"
    return f"{_drawn(facts)} in {_place(facts)}, {how}{_more(facts)}"


def _why_drawn(facts: Facts) -> str:
    if facts["dropout"] and facts["training"]:
        return "eval() left it in training mode."
    if facts["dropout"]:
        return f"eval() reaches modules such as nn.Dropout, but not functions: F.{facts['function']}(x) drops in every mode."
    if facts["drops"]:
        return "eval() does not reach functions: dropout_p drops in every mode."
    return "eval() only sets a flag, and code that samples must check it. Fine if the model is meant to sample."


def _and_more(facts: Facts) -> str:
    return f"{facts['path']} and {facts['more']} more" if facts["more"] else str(facts["path"])


def _moves(facts: Facts) -> str:
    return f"{_DIFFER}: {_and_more(facts)} {'move' if facts['more'] else 'moves'} in eval mode too, and the output depends on it"


def _apart(facts: Facts) -> str:
    if not facts["class"]:
        return _DIFFER
    other = f"{facts['input']} a different input each time" if "input" in facts else "different outputs for the same input"
    return f"{_DIFFER}: {_place(facts)} gives {other}"


_DIFFER = "two passes in eval mode differ"
_RELOADED = "a copy that loads the state_dict differs"
_SAFE = "in eval mode each output depends only on its own input"


def _blind(facts: Facts) -> str:
    end = f": the output of {facts['module']} does not depend on its input" if "module" in facts else ""
    return f"the output does not depend on the input{end}"


def _learnt(facts: Facts) -> str:
    return f"the loss falls {_SHARES.get(facts['percent'], '')}{_within(facts)}"


_SHARES = {1: "below a hundredth ", 10: "below a tenth ", 50: "below half "}


def _within(facts: Facts) -> str:
    return f"within {facts['steps']:.0f} steps of Adam on a copy"


def _lost(facts: Facts) -> str:
    value = facts["least"] if math.isfinite(facts["first"]) else facts["first"]
    at = f" at {facts['where']}" if facts["where"] else ""
    made = f": {facts['maker']} makes the first NaN{at}" if facts["maker"] else ""
    return f"the loss becomes {format.number(value)} {_within(facts)}{made}"


def _spread(facts: Facts) -> str:
    return (
        f"its passes talk to other ranks ({', '.join(facts['kinds'])} over {facts['world']}), and the number of passes depends on this "
        "rank's own numbers: a rank that makes fewer leaves the others waiting. Diagnose the model before you distribute it"
    )


EXPERIMENTS: dict[str, Words | tuple[Words, Words]] = {
    # gradients
    "gradients arrive": _arrive,
    **dict.fromkeys(
        ("no graph", "detached", "without grad", "unused layers", "no gradient through", "parameters without a good gradient"),
        (_lacking, _why_lacking),
    ),
    "gradients overwritten": (_overwritten, _why_overwritten),
    # leak
    "apart": _SAFE,
    "apart, with other weights": (
        f"{_SAFE}, tested with other weights: with these it depends on no input of this batch",
        "A layer of zeros does this until it learns; so do units that are dead for this batch, or a step function with the whole batch on "
        "one side.",
    ),
    "takes the batch's statistics": (
        _mixes,
        lambda facts: (
            f"{facts['path'] or ROOT} ({facts['class']}) keeps no running statistics, so it uses those of the batch in eval mode too. "
            "Fine if batches always look like those in training."
        ),
    ),
    "mixes dimension 0 alone": (
        lambda facts: f"{_mixes(facts)} along dimension 0; along dimension 1 nothing mixes",
        "Sequence first (batch_first=False)? Then dimension 1 is the batch, and this is fine. If dimension 0 is your batch, samples see "
        "each other.",
    ),
    "samples mixed": (
        _mixes_from,
        "Intended if dimension 0 is not a batch, or if its entries should see each other: nodes of a graph, a set, a contrastive loss. "
        "Otherwise something mixes along dimension 0: a mean, a softmax, a view or an attention over the wrong dimension.",
    ),
    "blind": (
        _blind,
        "With different inputs the output is identical bit for bit, and no gradient leads back to them, even with different weights.",
    ),
    "blind, but drawn": (
        "the output does not depend on the input: it is made from random numbers",
        "Fine for a generator that draws its own noise.",
    ),
    "blind to this batch": (
        "in this batch no output depends on its input",
        "Other inputs would make a difference, but those of this batch do not: units that are dead for all of them, or a step function "
        "with all of them on one side.",
    ),
    # first loss
    "as a guess": lambda facts: f"it is {_short(facts['loss'])}; a guess gives {_guess(facts)}",
    "below a guess": (
        lambda facts: f"it is {_short(facts['loss'])}, below the {_guess(facts)} of a guess: the model already knows something",
        "A fresh model cannot know anything. If yours is fresh, the target is in its input.",
    ),
    "above a guess": (
        lambda facts: f"the first loss is {_short(facts['loss'])}; a guess gives {_guess(facts)}",
        "The model starts out confident and wrong: the last layer's weights, or its inputs, are too large. The first steps are "
        "spent on unlearning that, which may be acceptable (an output tied to a default nn.Embedding starts this way). If the "
        "model is trained, it does worse than guessing.",
    ),
    "first loss not finite": lambda facts: f"it is {format.number(facts['loss'])}; a guess gives {_guess(facts)}",
    "softmax twice": (
        "the outputs are already probabilities (they add up to 1), and CrossEntropyLoss applies softmax again",
        "The softmax of a softmax is nearly uniform: the loss cannot get close to 0, and gradients are small.",
    ),
    "no log-probabilities": (
        "NLLLoss takes log-probabilities, but these are something else: their exponentials do not add up to 1",
        "Without log_softmax the loss can fall without limit and means nothing.",
    ),
    # repeat
    "repeats": "equal bit by bit",
    "buffer moves": ("equal, but {path} moves in eval mode too", "If forward changes a buffer, it must check self.training."),
    "differs by rounding": ("they differ only by rounding", "A kernel that adds numbers in no fixed order."),
    "drawn unseen": (_drawn, "What draws them was not seen."),
    "drawn by an unregistered module": (
        lambda facts: f"{_drawn(facts)} by a {facts['class']} that is not registered",
        "eval() reaches only registered modules: this one stays in training mode.",
    ),
    "drawn by a hook": (
        lambda facts: f"{_drawn(facts)} by the {facts['hook']} of {_place(facts)}{_more(facts)}",
        "eval() only sets a flag, and a hook must check it.",
    ),
    "drawn": (_drawn_in, _why_drawn),
    "state of elsewhere": (
        f"{_DIFFER}: the first one changes something that the second one uses",
        "It is not in a buffer or a plain attribute of any module: a variable outside of them, or a random generator of the code's own.",
    ),
    "state moves": (_moves, "eval() only sets a flag; forward must check it."),
    "passes differ": (
        _apart,
        "They differ even with the same random numbers and the same state: a clock, a counter or a generator outside the model, or a "
        "kernel that adds numbers in no fixed order.",
    ),
    # round trip
    "loads": "equal bit by bit",
    "loads but for rounding": "equal up to rounding",
    "something not saved": (
        f"{_RELOADED}: something that forward uses is not in it, or not loaded from it",
        "A state_dict hook, or a custom _save_to_state_dict or _load_from_state_dict, leaves something out.",
    ),
    "parameter not saved": (
        lambda facts: f"{_RELOADED}: {_and_more(facts)} {'are' if facts['more'] else 'is'} not in it",
        "A parameter that is not registered is not saved; next time it starts with different numbers.",
    ),
    "state not saved": (
        lambda facts: (
            f"{_RELOADED}: {_and_more(facts)} {'move in training, and are' if facts['more'] else 'moves in training, and is'} not in it"
        ),
        "Whatever training changes and prediction uses is state: a checkpoint without it restores a different model.",
    ),
    # overfit
    "loss becomes no number": _lost,
    "loss is 0": lambda facts: f"the loss is {_short(facts['first'] or 0.0)}",
    "learnt": _learnt,
    "learnt one answer": (
        lambda facts: f"the loss falls {_within(facts)}, but only to that of one answer for all samples",
        "The model learns what the targets have in common (a mean), not what distinguishes the samples: the output hardly depends on the "
        "input, the targets do not match the inputs, or the model is too small. Fine if there is nothing to distinguish.",
    ),
    "learns slowly": (
        lambda facts: f"the loss falls, but not {'to half' if facts['first'] > 0 else 'by half'}, {_within(facts)}",
        "Too few steps, too large a batch, or too small a model.",
    ),
    "falls by chance": (
        lambda facts: f"the loss falls no further {_within(facts)} than its random numbers take it without a step",
        "Dropout, or another draw of each pass, moves the loss more than learning does. Try it with dropout of 0 before you trust this.",
    ),
    "knows it": (
        lambda facts: (
            f"the loss {'does not come down to half' if facts.get('falls') else 'does not fall'} {_within(facts)}, but it is low "
            f"already: {format.share(facts['of one answer'])} of what one answer for all samples gives"
        ),
        "The model has learned this batch before, and its loss may be as low as it can be: smoothed labels or noise keep it above 0.",
    ),
    "does not learn": (
        lambda facts: f"the loss does not fall {_within(facts)}",
        "A model that cannot memorize one batch learns nothing from many: a gradient does not get through, the loss does not depend on "
        "the output as intended, or the targets do not match the inputs. Fine if the loss is already as low as it can be.",
    ),
    # a check that stopped, or was not run
    "stops": lambda facts: f"stops{' at ' * bool(facts['at'])}{facts['at']} with {facts['error']}",
    "communicates": _spread,
    "lazy parameters": "a lazy parameter has no shape until the first forward pass: run the model once",
    "meta tensors": "tensors on the meta device have no values",
    "pass fails": "the {stage} fails",
    "inputs do not fit": "forward does not take the inputs",
    "not a number": lambda facts: f"the {'output' if facts['output'] else 'loss'} is {facts['number']}",
    "differs as it is": "two passes already differ",
    "reentrant checkpoint": "checkpoint(..., use_reentrant=True) gives gradients only in backward(): pass use_reentrant=False",
    "no copy": lambda facts: f"the model cannot be copied: {'of a tensor in it ' if facts['tensor'] else ''}{facts['error']}",
    "nothing to train": "no parameter requires a gradient",
    "half precision": "float16 has too few digits for the steps of Adam that it makes",
    "no eval mode": "the model has no eval mode: {error}",
    "no dimension for samples": "no input is a plain tensor with a dimension for samples",
    "one sample": "it needs a batch of at least two samples",
    "no entry for each sample": lambda facts: (
        f"no tensor in the output has one entry for each of the {facts['samples']} along dimension 0 of the input"
        if "samples" in facts
        else "no output has one entry for each sample"
    ),
    "no exchange": "the model does not accept one sample's input in place of another's",
    "samples equal": "all samples of the batch are equal",
    "another loss": "known only for a loss that is given as nn.CrossEntropyLoss, nn.NLLLoss or their functions",
    "loss of a watch": "the watch has seen the first loss: its verdict tells it",
    "gradients of a watch": "this batch brings some parameters no gradient, but the watch has seen that they get one elsewhere in the loop",
    "targets of a watch": "nothing in this batch speaks for others, but the watch has seen more of them: its finding stands",
    "no scores": "the output is not one tensor of scores",
    "scripted copy": "the copy of a scripted model cannot be trained",
    "no grad_fn": "the loss has no grad_fn",
    "copy holds the model": "a copy would not learn: its hooks or functions hold the original model, or no gradient arrives",
    "climbs": "the optimizer climbs (maximize=True), and this check makes a loss small",
    "too slow": "{steps} steps of this model would take too long here",
    # causes that further checks name
    **batch_causes.EXPERIMENTS,
}
"""By the `kind` of an experiment: what was seen, and what follows."""
