"""Causes that a model's passes with one batch show, in English: what was seen, what follows, and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from modlab import format
from modlab.wording.names import Words, all_named, named

Facts = Mapping[str, Any]

NAMES = {
    "hooks": ("backward hooks leave gradients as they are", "hooks keep gradients"),
    "gradcheck": ("a backward written by hand reverses no gradient", "no gradient is reversed"),
    "causality": ("no position sees what follows it", "the future is hidden"),
    "recurrence": ("layers read their sequence to its end", "sequences are read"),
    "embeddings": ("tokens differ, and each can learn", "tokens differ"),
    "padding": ("padding does not count", "padding does not count"),
    "order": ("another order gives another answer", "order counts"),
    "inputs": ("the inputs differ, and are about 1 in size", "inputs fit"),
    "targets": ("targets belong to their inputs", "targets fit"),
    "aim": ("the right answer has the lowest loss", "the loss points the right way"),
    "softmax": ("softmax adds up over the classes", "softmax over classes"),
    "modes": ("dropout and BatchNorm leave enough in training", "enough is left in training"),
    "symmetry": ("no two units of a layer are copies", "units differ"),
    "collapse": ("samples that differ get outputs that differ", "outputs differ"),
    "told": ("the answer changes with what is told of the noise", "the level is heard"),
}
"""By the `name` of a check: its full name and a short one, each true when it passes."""


def _leaks(facts: Facts) -> str:
    place = f"x[:, {', '.join(map(str, facts['feature']))}]"
    if "mark" not in facts:
        return f"one of {facts['features']} input features gives the target exactly: {place}"
    return f"the inputs are marked with their class: {place} is {format.number(facts['mark'])} in class {facts['marks']} alone"


def _sees(facts: Facts) -> str:
    return f"the output at position {facts['output']} changes with the input at position {facts['changed']}"


def _same(facts: Facts) -> str:
    return f"all samples of the batch get the same output: {_last_difference(facts)}"


def _last_difference(facts: Facts) -> str:
    if not facts["module"]:
        return "what they differ in fades from layer to layer"
    return (
        f"they differ in what {facts['module']} gets, not in what it gives"
        if facts["within"]
        else f"they still differ in the output of {facts['module']}"
    )


def _why_same(facts: Facts) -> str:
    return _COLLAPSES[facts["why"]]


def _alike(facts: Facts) -> str:
    return f"the loss is {_short(facts['alike'])} if all samples get one and the same output, and {_short(facts['loss'])} now"


def _copies(facts: Facts) -> str:
    """About one weight or a part of the model that holds them all; else about several weights by name."""
    several = not facts["path"] and "places" in facts
    where = all_named(facts["places"]) if several else named(facts["path"])
    if facts["zero"]:
        return f"{where} {'are' if several else 'is'} zero, and so {'are their gradients' if several else 'is its gradient'}"
    which = "" if facts["layers"] > 1 else f"{facts['units']:,} "
    return f"the {which}units of {where} have equal weights and get equal gradients"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _range(low: float, high: float) -> str:
    if high == math.inf:
        return f"nothing below {format.number(low)}"
    return f"nothing above {format.number(high)}" if low == -math.inf else f"{format.number(low)} to {format.number(high)}"


def _nearly(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.9995 else "nearly all"


def _bad(facts: Facts) -> str:
    found = [f"{facts[name]:,} {word}" for name, word in (("nan", "NaN"), ("inf", "infinite")) if facts[name]]
    return " and ".join(found)


def _short(value: float) -> str:
    """Two digits: further ones differ from machine to machine."""
    return format.number(float(f"{value:.2g}"))


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


_COLLAPSES = {
    "dead units": "It gives zero for each of them: all its units are dead, and zero has no gradient.",
    "overwritten activation": "Its output does not depend on its input: something in it is multiplied by zero, replaced, or never used.",
    "vanishing gradient": "Saturating activations, one after the other, pass less and less on, and less and less gradient comes back.",
    "weights begin too small": "Its weights are so small that the biases alone are left.",
    "collapse": "What follows no longer knows which sample it has.",
}


EXPERIMENTS: dict[str, Words | tuple[Words, Words]] = {
    # hooks
    "hooks keep gradients": "with backward hooks and without, gradients point the same way",
    # gradcheck
    "none reversed": lambda facts: f"of {format.plural(facts['seen'], 'gradient')} whose slope could be measured, none is reversed",
    # causality
    "sees no future": "each position is predicted from what comes before it",
    "sees its own token": "each position is predicted from its own token alone",
    "sees the future": (
        _sees,
        "The target is the next token, and the model can read it in its input: the loss can fall, but nothing is learned that "
        "could predict a token that is not there yet.",
    ),
    "mask turned around": (
        lambda facts: f"{_sees(facts)}, and with nothing that comes before it" if "changed" in facts else _padding_alone(facts),
        "The mask hides what should be seen, and shows what should be hidden.",
    ),
    "targets not moved": (
        "the target at each position is the token that the model gets there",
        lambda facts: (
            "It can be copied without knowing anything of what comes next."
            + (" Fine if the model is an autoencoder: each position also sees what follows it." if facts["ahead"] else "")
        ),
    ),
    # recurrence
    "reads its sequence": lambda facts: f"{format.plural(facts['layers'], 'layer')} looked at",
    "batch first mixed up": (
        lambda facts: (
            f"{facts['path']} ({facts['class']}) takes dimension {facts['time']} of its input ({_shape(facts['shape'])}) for positions, "
            "but the samples lie there"
        ),
        "It passes its state on from sample to sample, or attends across samples, and takes each position for a sample of its own.",
    ),
    "state not kept": (
        lambda facts: (
            f"{named(facts['path'])} is called {facts['calls']} times with one step each and without the state of the step before"
            if "calls" in facts
            else f"only the first of the {facts['length']} outputs of {named(facts['path'])} is read"
        ),
        lambda facts: (
            "Nothing of earlier steps is left in later ones: the state that a call returns must be given to the next one."
            if "calls" in facts
            else "At the first position a recurrent layer has read one entry of the sequence: nothing of the rest reaches the output."
        ),
    ),
    "exploding recurrence": (
        lambda facts: (
            f"the recurrent weight of {named(facts['path'])} makes its state {_short(facts['factor'])} times as large in each "
            f"step, with nothing to bound it"
        ),
        lambda facts: f"Over the {facts['length']} steps of this batch, that is a factor of {_short(facts['growth'])}, for gradients too.",
    ),
    # embeddings
    "tokens differ": lambda facts: f"{format.plural(facts['layers'], 'embedding')} looked at",
    "padding idx of a token": (
        lambda facts: (
            f"padding_idx={facts['padding']} of {named(facts['path'])} is the token of {format.plural(facts['times'], 'sample')}"
            if facts["single"]
            else f"padding_idx={facts['padding']} of {named(facts['path'])} is a token: it lies between others in {facts['samples']} of "
            f"{facts['of']} samples"
        ),
        lambda facts: (
            "The vector of padding_idx gets no gradient, so this token never learns."
            + (" Fine if it stands for nothing on purpose." if facts["single"] else "")
        ),
    ),
    "tokens unknown": (
        lambda facts: (
            f"{_percent(facts['share'])} of the tokens that {named(facts['path'])} gets are {facts['token']}, "
            f"though it has {facts['rows']} rows"
        ),
        "Samples of the same tokens can hardly be told apart. Most often a vocabulary does not fit its text, and all becomes one unknown "
        "token.",
    ),
    # padding
    "padding is ignored": "with less padding, the answers are the same",
    "padding left out": "the loss leaves the answers at padded positions out",
    "padding counts": (
        lambda facts: (
            f"the loss changes with the output at padded positions, which are {_percent(facts['share'])} of all"
            if "loss" in facts
            else f"with {format.plural(int(facts['cut']), 'position')} of padding cut off, the outputs change"
        ),
        lambda facts: (
            "What the model learns first is to predict padding, and the loss looks better than it is."
            if "loss" in facts
            else f"They move by {_percent(facts['moves'])} of how far the samples lie apart: the same sample gives another answer beside a "
            "longer one."
        ),
    ),
    # order
    "order counts": "the same entries in another order give other outputs",
    "order does not matter": "another order gives the same outputs, and this target does not depend on it",
    "no positions": (
        lambda facts: f"another order of the {'patches' if 'patches' in facts else 'positions'} gives the same outputs",
        lambda facts: (
            "Attention sees a set: without an embedding of positions it cannot tell what came first. "
            + (
                f"Here the token at position {facts['position']} alone tells the target of {_percent(facts['in order'])} of the samples; "
                f"without the order it is {_percent(facts.get('unordered', facts.get('without')))}."
                if facts["needed"]
                else "Fine if the order does not matter."
            )
        ),
    ),
    # inputs
    "inputs fit": "they differ from sample to sample, and their scale is fine",
    "not a number in data": (
        lambda facts: f"{_bad(facts)} of the {facts['count']:,} numbers of the {facts['which']} in this batch",
        "One such number makes the loss NaN or infinite, and one step with that ruins all weights.",
    ),
    "constant inputs": (
        lambda facts: f"all {facts['samples']} samples of the batch are the same{', zeros' if facts['zeros'] else ''}",
        lambda facts: (
            "The targets differ, but nothing in the inputs can tell which is which."
            if facts["apart"]
            else "Fine if the batch is one sample, repeated on purpose."
        ),
    ),
    "one huge feature": (
        lambda facts: (
            f"feature {facts['feature']} of what {facts['path'] or 'the model'} gets outweighs all others: it makes up "
            f"{_nearly(facts['share'])} of the sum of all squares, with numbers up to {_short(facts['largest'])}"
        ),
        "The other features hardly change the output, and gradients of this one drown theirs.",
    ),
    "inputs not scaled": (
        lambda facts: f"{facts['path'] or 'the model'} ({facts['class']}) gets numbers far from 1: {_short(facts['size'])} in size",
        "Layers begin with weights made for inputs of about 1: outputs and gradients are as much too large, and no norm follows.",
    ),
    "inputs vanish": (
        lambda facts: f"{facts['path'] or 'the model'} ({facts['class']}) gets nearly zeros: at most {_short(facts['largest'])}",
        "Next to the biases, that is nothing: the output hardly depends on it. Most often the inputs are scaled twice.",
    ),
    # targets
    "targets fit": "they differ, and nothing speaks for others",
    "constant targets": (
        lambda facts: f"all {facts['samples']} targets of the batch are the same: {format.number(facts['value'])}",
        lambda facts: (
            "Look at another batch: if each holds one class, the data is sorted; if all hold the same one, the targets are constant."
            if facts["classes"]
            else "One answer for all samples is then right. Fine if the target is a bound that nothing should differ from."
        ),
    ),
    "imbalance": (
        lambda facts: f"{_percent(facts['share'])} of the targets of the batch are {format.number(facts['value'])}",
        "A model that always answers this is nearly always right, and the loss hardly asks for more.",
    ),
    "leak": (
        _leaks,
        "The model needs to read nothing else. If that feature is not there later, it knows nothing.",
    ),
    "targets shifted": (
        lambda facts: f"the targets fit the inputs of the sample {'before' if facts['step'] > 0 else 'after'} their own, not their own",
        lambda facts: (
            f"The nearest other inputs tell {_percent(max(facts['now'], 0))} of the targets (above chance); with the inputs moved by one "
            f"sample it is {_percent(facts['then'])}."
        ),
    ),
    "wrong axes": (
        "the inputs look reshaped where they should be transposed: each row has parts of several samples",
        lambda facts: (
            f"The nearest other inputs tell {_percent(max(facts['now'], 0))} of the targets (above chance); if that is undone "
            f"(x.reshape(*x.shape[1:], len(x)).movedim(-1, 0)), it is {_percent(facts['then'])}."
        ),
    ),
    "targets shuffled": (
        lambda facts: (
            f"in this batch, inputs of {facts['features']} numbers that are near each other have targets as different as far ones"
        ),
        "Targets that were shuffled apart from their inputs look like that, and so does noise, or a relation too fine for this batch.",
    ),
    # aim
    "right is best": lambda facts: f"{_short(facts['right'])} for the right answer, {_short(facts['wrong'])} for a wrong one",
    "wrong sign": (
        lambda facts: (
            f"the loss of the right answer is {_short(facts['right'])}, of a wrong one {_short(facts['wrong'])}: "
            + ("the optimizer climbs" if facts.get("climbs") else "it is upside down")
        ),
        lambda facts: f"A step makes the loss {'greater' if facts.get('climbs') else 'smaller'}, and so the answer worse.",
    ),
    "one logit": (
        "with one score for each sample, the cross entropy is the same for any output",
        "The softmax of a single number is 1, so there is nothing to learn.",
    ),
    "regression of classes": (
        lambda facts: f"{facts['classes']} classes are learned as one number each",
        "A squared error takes class 2 for a mean of 1 and 3. Fine if the target counts something.",
    ),
    "output cannot reach": (
        lambda facts: (
            f"the model ends in {facts['function']}, which gives {_range(facts['low'], facts['high'])}, but {_percent(facts['share'])} of "
            "the targets lie outside"
        ),
        "The loss stops where the activation ends, and units at its end have no gradient.",
    ),
    "targets not scaled": (
        lambda facts: f"the targets are {_short(facts['target'])} in size, the outputs {_short(facts['output'])}",
        "The last layer must grow that much before anything else is learned, and a squared error makes gradients as much too large.",
    ),
    "weights of classes": (
        lambda facts: (
            f"{_percent(facts['gain'])} of what the loss can fall is class {facts['label']}, which {_percent(facts['share'])} of "
            "the targets are"
        ),
        "The others hardly count: class weights or pos_weight are turned around, or far too uneven.",
    ),
    "no log": (
        lambda facts: (
            f"the loss of the right answer falls without end: {_short(facts['right'])}, and {_short(facts['sure'])} for scores ten "
            "times as large"
        ),
        "A negative log-likelihood needs log-probabilities. Of scores it can be made smaller for ever, and means nothing.",
    ),
    "loss too small": (
        lambda facts: f"right and wrong answers differ in the loss by {_short(abs(facts['wrong'] - facts['right']))}",
        "Its gradients are as small: plain SGD does not move, and Adam's eps becomes large beside them.",
    ),
    "constant loss": (
        lambda facts: f"the loss is {_short(facts['loss'])} for any output, and has no slope",
        "It does not depend on what the model answers, so nothing is learned.",
    ),
    # softmax
    "adds up over classes": "its dimension is the one that the target leaves out",
    "softmax over the wrong dimension": (
        lambda facts: (
            f"{facts['function']} of the scores ({_shape(facts['shape'])}) runs over dimension {facts['dim']}, but the classes are in "
            f"dimension {facts['right']}"
        ),
        lambda facts: f"{'Samples' if facts['batch'] else 'Positions'} compete with each other, and classes do not.",
    ),
    # modes
    "enough is left": "no dropout is large, no batch too small",
    "too much dropout": (
        lambda facts: f"{facts['label'] or facts['function']} takes {_percent(facts['share'])} of its input in training",
        "p is the fraction that is dropped, not the fraction that is kept.",
    ),
    "batch norm of one": (
        lambda facts: f"{facts['path']} ({facts['class']}) has {facts['values']} values a channel in this batch",
        "A mean and a variance of so few values are noise: of two, each becomes -1 or 1.",
    ),
    "batch norm statistics": (
        lambda facts: (
            f"the running mean of {named(facts['path'])} is {_short(facts['apart'])} deviations from that of the batch, and follows "
            f"with momentum {_short(facts['momentum'])}"
        ),
        "Evaluation uses the running statistics: with these it sees something else than training does.",
    ),
    # symmetry
    "units differ": "no rows with equal weights get equal gradients",
    "all weights equal": (
        _copies,
        lambda facts: (
            "Each waits for the other: a product of zeros has no slope."
            if facts["zero"]
            else "They stay copies of each other in every step, and do the work of one."
        ),
    ),
    # collapse
    "outputs differ": "no two samples need to get the same output",
    "a layer of zeros": (
        lambda facts: f"all samples get the same output: {named(facts['path'])} is zero throughout",
        "Fine if it begins that way on purpose.",
    ),
    **dict.fromkeys(("dead units", "overwritten activation", "vanishing gradient", "weights begin too small"), (_same, _why_same)),
    # told
    "hears the level": "another level gives another answer",
    "noise level hidden": (
        lambda facts: f"with the levels of other samples, outputs move by {_percent(facts['moved'])} of what they vary by",
        "The best answer depends on the level of the noise; unheard, all levels get the same.",
    ),
    "collapse": (
        lambda facts: _alike(facts) if "alike" in facts else _same(facts),
        lambda facts: "Nothing keeps samples apart: the embeddings will become one point." if "alike" in facts else _why_same(facts),
    ),
}
"""By the `kind` of an experiment."""

FIXES: dict[str, Words] = {
    "gradients overwritten": "Remove the hooks, or let them return the gradient that they get, changed as intended.",
    "no gradient through": (
        "Use a smooth function in its place (a sigmoid, a softmax), or let the gradient pass it: x + (torch.round(x) - x).detach()."
    ),
    "sees the future": (
        "Hide what follows: is_causal=True with a mask from nn.Transformer.generate_square_subsequent_mask(length), or a recurrent layer "
        "without bidirectional=True."
    ),
    "mask turned around": (
        "Invert the mask: in nn.Transformer and nn.MultiheadAttention True means hidden, in F.scaled_dot_product_attention True means seen."
    ),
    "no positions": lambda facts: f"Add an embedding of positions to that of the {'patches' if 'patches' in facts else 'tokens'}.",
    "not a number in data": "Look for it where the data is made: torch.isfinite(x).all() of each batch.",
    "constant inputs": "Look at the data: x.std(0) should not be 0 everywhere. Something overwrites it, or takes one sample for all.",
    "one huge feature": "Scale each feature: (x - x.mean(0)) / x.std(0), with the numbers of the training data.",
    "inputs not scaled": "Scale the inputs: (x - mean) / std, with the numbers of the training data; or begin with a normalization.",
    "constant targets": "Look at several batches: [y.unique() for x, y in loader].",
    "imbalance": "Draw rare classes more often (WeightedRandomSampler), or weigh them more in the loss.",
    "leak": "Take this feature out of the inputs, or ask where it comes from.",
    "targets shifted": "Look at where inputs and targets are paired: one of them is moved by one.",
    "wrong axes": "Use x.permute(...) or x.transpose(...) where x.reshape(...) or x.view(...) moves a dimension.",
    "targets shuffled": "Look at some samples beside their targets, where the batch is made.",
    "regression of classes": "Give one score for each class, and use nn.CrossEntropyLoss().",
    "negatives": "Add negatives, or a term that keeps the variance of the embeddings (VICReg, a stop-gradient).",
    "output cannot reach": "End with a linear layer, or scale the targets into the range of the activation.",
    "targets not scaled": "Scale the targets: (y - mean) / std, and scale predictions back.",
    "weights of classes": "Give rare classes the larger weight: len(y) / (classes * y.bincount()); pos_weight is negatives / positives.",
    "wrong sign": lambda facts: "Leave out maximize=True." if facts.get("climbs") else "Turn the sign of the loss.",
    "one logit": "Give nn.CrossEntropyLoss one score for each class, or use nn.BCEWithLogitsLoss() for one score.",
    "loss too small": "Leave out what divides the loss.",
    "constant loss": "Look at what lies between the output and the loss: a clamp, a product with zero, another variable.",
    "too much dropout": "A p between 0.1 and 0.5 is usual.",
    "batch norm of one": "Larger batches, or nn.GroupNorm or nn.LayerNorm, which need no batch.",
    "batch norm statistics": lambda facts: (
        "Let it see batches in training mode: momentum=0.1, or None for the mean of all."
        if facts["momentum"] < 0.1
        else "Let it see more batches in training mode, or average them all: momentum=None."
    ),
    "dead units": "Restart the layer before it, with biases of 0; nn.LeakyReLU keeps units alive.",
    "overwritten activation": "modlab.trace(model) shows each step in it.",
    "vanishing gradient": "Use ReLU or GELU, residual connections or a normalization.",
    "weights begin too small": "Restart the layer: reset_parameters(), or nn.init.kaiming_uniform_.",
    "collapse": "modlab.trace(model) shows where samples become the same.",
    "noise level hidden": "Look at what becomes of the level on its way: whole-number division, a norm of one number, a mean, a default.",
    "state not kept": "Give the state on: out, state = rnn(step, state), or call it once with the whole sequence.",
    "exploding recurrence": "Begin with an orthogonal matrix, or use tanh, nn.GRU or nn.LSTM, and clip the gradient.",
    "padding idx of a token": "Give padding a number of its own that no token has, or leave padding_idx out.",
    "tokens unknown": "Compare the tokens with the vocabulary: most are not found in it.",
    "padding in the loss": "Leave padding out of the loss: nn.CrossEntropyLoss(ignore_index=padding).",
    "padding counts": (
        "Leave padding out: src_key_padding_mask in attention, nn.utils.rnn.pack_padded_sequence for recurrent layers, and a mean over "
        "real positions alone."
    ),
    "targets not moved": "Move the target by one: inputs tokens[:, :-1], target tokens[:, 1:].",
}
"""By the `kind` of a `Remedy`."""


def _padding_alone(facts: Facts) -> str:
    return f"in padded samples no token changes the output, only padding does ({format.plural(facts['rows'], 'sample')} tried)"
