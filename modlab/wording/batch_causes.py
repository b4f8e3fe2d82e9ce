"""Causes that a model's passes with one batch show, in English: what was seen, what follows, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modlab import format
from modlab.wording.names import Words

Facts = Mapping[str, Any]

NAMES = {
    "causality": ("no position sees what follows it", "the future is hidden"),
    "recurrence": ("layers read their sequence to its end", "sequences are read"),
    "embeddings": ("tokens differ, and each can learn", "tokens differ"),
    "padding": ("padding does not count", "padding does not count"),
}
"""By the `name` of a check: its full name and a short one, each true when it passes."""


def _sees(facts: Facts) -> str:
    return f"the output at position {facts['output']} changes with the input at position {facts['changed']}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _short(value: float) -> str:
    """Two digits: further ones differ from machine to machine."""
    return format.number(float(f"{value:.2g}"))


def _shape(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


EXPERIMENTS: dict[str, Words | tuple[Words, Words]] = {
    # causality
    "sees no future": "each position is predicted from what comes before it",
    "sees its own token": "each position is predicted from its own token alone",
    "sees the future": (
        _sees,
        "The target is the next token, and the model can read it in its input: the loss falls, but nothing is learned that could predict a "
        "token that is not there yet.",
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
            f"{facts['path']} ({facts['class']}) takes dimension {facts['time']} of its input ({_shape(facts['shape'])}) for positions, but "
            f"the samples lie there"
        ),
        "It passes its state on from sample to sample, or attends across samples, and takes each position for a sample of its own.",
    ),
    "state not kept": (
        lambda facts: (
            f"{facts['path']} is called {facts['calls']} times with one step each and no state: each step begins anew"
            if "calls" in facts
            else f"only the first of the {facts['length']} outputs of {facts['path']} is read"
        ),
        lambda facts: (
            "Nothing of earlier steps is left in later ones: the state that a call returns must be given to the next one."
            if "calls" in facts
            else "At the first position a recurrent layer has read one entry of the sequence: nothing of the rest reaches the output."
        ),
    ),
    "exploding recurrence": (
        lambda facts: (
            f"the recurrent weight of {facts['path']} makes its state {_short(facts['factor'])} times as large in each "
            f"step, with nothing to bound it"
        ),
        lambda facts: (
            f"Over the {facts['length']} steps of this batch, that is a factor of {_short(facts['growth'])}, for "
            "gradients too."
        ),
    ),
    # embeddings
    "tokens differ": lambda facts: f"{format.plural(facts['layers'], 'embedding')} looked at",
    "padding idx of a token": (
        lambda facts: (
            f"padding_idx={facts['padding']} of {facts['path']} is the token of {format.plural(facts['times'], 'sample')}"
            if facts["single"]
            else f"padding_idx={facts['padding']} of {facts['path']} is a token: it lies between others in {facts['samples']} of "
            f"{facts['of']} samples"
        ),
        lambda facts: (
            "The vector of padding_idx gets no gradient, so this token never learns."
            + (" Fine if it stands for nothing on purpose." if facts["single"] else "")
        ),
    ),
    "tokens unknown": (
        lambda facts: (
            f"{_percent(facts['share'])} of the tokens that {facts['path']} gets are {facts['token']}, though it has {facts['rows']} rows"
        ),
        "Samples of the same tokens can hardly be told apart. Most often a vocabulary does not fit its text, and all becomes one unknown token.",
    ),
    # padding
    "padding is ignored": "with less padding, the answers are the same",
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
}
"""By the `kind` of an experiment."""

FIXES: dict[str, Words] = {
    "gradients overwritten": "Remove the hooks from these parameters, or let them return the gradient that they get, changed as intended.",
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
    "state not kept": "Give the state on: out, state = rnn(step, state), or call it once with the whole sequence.",
    "exploding recurrence": "Begin with an orthogonal matrix, or use tanh, nn.GRU or nn.LSTM, and clip the gradient.",
    "padding idx of a token": "Give padding a number of its own that no token has, or leave padding_idx out.",
    "tokens unknown": "Compare the tokens with the vocabulary: most are not found in it.",
    "padding in the loss": "Leave padding out of the loss: nn.CrossEntropyLoss(ignore_index=padding).",
    "padding counts": (
        "Leave padding out: src_key_padding_mask in attention, nn.utils.rnn.pack_padded_sequence for recurrent layers, and a mean over real "
        "positions alone."
    ),
    "targets not moved": "Move the target by one: inputs tokens[:, :-1], target tokens[:, 1:].",
}
"""By the `kind` of a `Remedy`."""


def _padding_alone(facts: Facts) -> str:
    return f"in padded samples no token changes the output, only padding does ({format.plural(facts['rows'], 'sample')} tried)"
