"""Mistakes that a diagnosis finds, in English: for each kind, what is wrong with what, why PyTorch allows it, and what a view calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Finding
from modlab.records.structure import ROOT
from modlab.wording import causes, watched
from modlab.wording.names import FEW, Words, filled
from modlab.wording.unregistered import hidden

Facts = Mapping[str, Any]
WARNED = 200
"""How many characters of a warning are shown."""

_MODES = {True: "training", False: "evaluation"}


@frozen
class MistakeKind:
    """One kind of mistake.

    Attributes:
        what: what is wrong, following the name of its subject.
        reason: why PyTorch allows it, and what follows.
        subject: what the sentence is about, if that is not the place of the finding.
        label: what a view calls it, if that is not the kind itself.
    """

    what: Words
    reason: Words = ""
    subject: Words = ""
    label: Words = ""


def _is_of_watch(finding: Finding) -> bool:
    """Whether a watch has seen it, whose words say all of it: a cause, or a check that did not hold."""
    return causes.is_cause(finding) or is_check(finding)


def is_check(finding: Finding) -> bool:
    """Whether it is a check of a watch's verdict: its name is among the `facts`."""
    return "check" in finding.facts


NOT_RUN = (
    "The model was not run: the watch kept no batch whose loss it can compute again. "
    "With one: w.diagnose(batch=(inputs, target), loss=loss_function)"
)
"""Why a diagnosis after a watch has no experiments."""

UNEXPLAINED = "What lies behind the headline of the watch (w.headline) was not found."
"""What a diagnosis after a watch did not find."""


def label(finding: Finding) -> str:
    """What a view calls it."""
    return ("" if _is_of_watch(finding) else filled(MISTAKES[finding.kind].label, finding)) or finding.kind


def sentence(finding: Finding) -> str:
    """What is wrong, in one clause."""
    return what(finding) if _is_of_watch(finding) else f"{subject(finding)} {what(finding)}"


def beside(finding: Finding) -> str:
    """The same for a row that shows the path: "is old (2 Linear)" for "a (2 Linear) is old"."""
    if _is_of_watch(finding):
        return what(finding)
    inside = extent(finding.path, finding.facts)
    if inside and finding.kind == "hidden":  # its verb is about what is inside
        return f"{inside} {what(finding)}"
    if inside:
        return f"{what(finding)} ({inside})"
    return what(finding) if subject(finding) == (finding.path or ROOT) else sentence(finding)


def next_to(path: str, facts: Facts, said: str) -> str:
    """The same for what is said about a group."""
    inside = extent(path, facts)
    return f"{said} ({inside})" if inside else said if place(path, facts) == path else f"{place(path, facts)} {said}"


def what(finding: Finding) -> str:
    """What is wrong with the subject; of a cause, all of it."""
    if causes.is_cause(finding):
        copied: Any = finding.facts.get("copied")  # else one would look for it in a loop of one's own
        return ": ".join(causes.halves(finding)) + (f" (in {format.plural(copied, 'step')} of a copy)" if copied else "")
    if is_check(finding):
        return f"the watch saw that “{finding.facts['check']}” does not hold: {watched.said(finding)}"
    more = f"; and {format.plural(finding.facts['more'], 'more place')} like it" if "more" in finding.facts else ""  # type: ignore[arg-type]
    return filled(MISTAKES[finding.kind].what, finding) + more


def reason(finding: Finding) -> str:
    """Why PyTorch allows it, and what follows; empty where that is not known."""
    if is_check(finding):
        return ""
    return causes.reason(finding) if causes.is_cause(finding) else filled(MISTAKES[finding.kind].reason, finding)


def subject(finding: Finding) -> str:
    """What the sentence is about, with numbers."""
    if _is_of_watch(finding):
        return finding.path or ROOT
    said = filled(MISTAKES[finding.kind].subject, finding) or place(finding.path, finding.facts)
    return f"{said} in {finding.facts['alike']:,} places" if "alike" in finding.facts else said


def place(path: str, facts: Facts) -> str:
    """What a sentence calls the place."""
    path = facts.get("pattern", path)
    if "classes" in facts:
        return _of_class(facts)
    if "named" in facts:
        named = f" named {facts['named']}" if facts["named"] else ""
        return f"{_number(facts)}{named}{f' in {path}' if path else ''}"
    if not path:
        return f"all {_number(facts)}" if "whole" in facts else "the model"
    inside = extent(path, facts)
    return f"{path} ({inside})" if inside else path


def _of_class(facts: Facts) -> str:
    patterns, noun = facts["patterns"], facts["noun"]
    named = ", ".join(patterns[:FEW]) + (", ..." if len(patterns) > FEW else "")
    alone = noun.endswith("parameter") or noun[:1].isupper()
    return f"{facts['classes']:,} {facts['class']} ({named})" if alone else f"{_number(facts)} of {facts['class']} ({named})"


def extent(path: str, facts: Facts) -> str:
    """What follows the path in brackets: the class, if the path ends in a bare number, and how much is in it."""
    number = _number(facts) if "whole" in facts else facts.get("inside", "")
    return ", ".join(filter(None, [facts.get("type", ""), number])) if path else ""


def _number(facts: Facts) -> str:
    """``2 parameters``, ``2 BatchNorm2d``."""
    count, noun = facts["count"], facts["noun"]
    return f"{count:,} {noun}" if noun[:1].isupper() else str(format.plural(count, noun))


def _hooked(facts: Facts) -> str:
    times = facts["times"]
    return f"has the {facts['hook']} hook {facts['function']} {'twice' if times == 2 else f'{times} times'}: each copy runs"


def _where(facts: Facts) -> str:
    return f" It is defined in {facts['where']}." if facts["where"] else ""


def _why_hidden(facts: Facts) -> str:
    cut = f" Only its first {facts['cut']:,} members were looked at." if facts.get("cut") else ""
    return (
        "Assigning a module or an nn.Parameter to an attribute registers it; "
        f"PyTorch does not see what is inside a Python container or was set in some other way.{cut}"
    )


def _plain_tensors(facts: Facts) -> str:
    if facts["tensors"] > 1:
        return f"holds {facts['tensors']} plain tensors: .to() and .cuda() leave them where they are, and state_dict() does not save them"
    return (
        f"{'is' if facts['itself'] else 'holds'} a plain tensor: .to() and .cuda() leave it where it is, and state_dict() does not save it"
    )


def _switch(facts: Facts) -> str:
    does, state = ("thaws", "frozen") if facts["value"] else ("freezes", "trained")
    counted = f"{facts['against']} of {format.plural(facts['parameters'], 'parameter')} are {state}"
    return f"has the attribute {facts['name']} = {facts['value']}, which {does} nothing: {counted}"


def _twice(facts: Facts) -> str:
    groups = facts["groups"]
    same = len({*groups}) == 1
    steps = "one step moves" if same else "the steps of both move"
    place = f"{len(groups)} times in {groups[0]}" if same else f"in {' and in '.join(dict.fromkeys(groups))}"
    return f"{facts['are']} {place}: {steps} {facts['them']} twice"


def _left_gradient(facts: Facts) -> str:
    cause = _CAUSES[facts["cause"]].format_map({**facts, "amount": format.number(facts.get("decay", 0.0))})
    return f"{facts['are']} frozen, but the next step of {facts['optimizer']} still moves {facts['them']}: {cause}"


_CAUSES = {
    "gradient": "it has a gradient left from before",
    "decay": "its left-over gradient is zero, and weight decay ({amount}) acts on it",
    "lambd": "its left-over gradient is zero, and ASGD's own decay (lambd) acts on it",
    "momentum": "its left-over gradient is zero, and momentum ({velocity}) keeps moving it",
}


def _hold(names: Sequence[str]) -> str:
    return f"{' and '.join(names)} {'hold' if len(names) > 1 else 'holds'}"


def _of_the_loss(facts: Facts) -> str:
    listed = f"{', '.join(facts['names'])}{', …' if facts['parameters'] > len(facts['names']) else ''}"
    them = "them" if facts["parameters"] > 1 else "it"
    begin = f"has {format.plural(facts['parameters'], 'parameter')} ({listed})"
    return f"{begin} in no group of {' or '.join(facts['optimizers'])}, so no step changes {them}"


def _strangers(facts: Facts) -> str:
    shown = f"{', '.join(facts['shapes'])}{', …' if facts['tensors'] > len(facts['shapes']) else ''}"
    return f"holds {format.plural(facts['tensors'], 'tensor')} that this model does not have ({shown})"


def _rates(facts: Facts) -> str:
    listed = zip(facts["groups"], facts["rates"], strict=True)
    return f"has several learning rates: {', '.join(f'{group} {format.number(rate)}' for group, rate in listed)}"


def _not_numbers(facts: Facts) -> str:
    nan, inf = facts["nan"], facts["inf"]
    words = " and ".join(part for part in (f"{nan:,} NaN" if nan else "", f"{inf:,} Inf" if inf else "") if part)
    return f"{facts['hold']} {words} among {format.plural(facts['numbers'], 'number')}, which spread to whatever is computed with them"


def _wild(facts: Facts) -> str:
    far = "far above" if facts["spread"] > facts["usual"] else "far below"
    spread, usual = (format.number(float(f"{facts[name]:.2g}")) for name in ("spread", "usual"))
    return f"has a standard deviation of {spread}, {far} {usual} (1 / sqrt of its {facts['inputs']} inputs)"


def _evaluating(facts: Facts) -> str:
    acts = "acts" if len(facts["types"]) == 1 else "act"
    return f"is in evaluation mode, but has an optimizer: {' and '.join(facts['types'][:FEW])} {acts} as in inference"


def _elsewhere(facts: Facts) -> str:
    most = format.plural(facts["tensors"], "tensor")
    return f"{facts['are']} on {facts['device']}, but most of the model ({most}) is on {facts['main']}"


def _spread(facts: Facts) -> str:
    output, target, shape = (format.shape(facts[name]) for name in ("output", "target", "shape"))
    begin = f"compares an output of shape {output} with a target of shape {target}"
    return f"{begin}, as {shape}: each output with each target" if facts["both"] else f"{begin}: it is repeated to {shape}"


def _why_spread(facts: Facts) -> str:
    by = facts["function"] or "a difference"
    if facts["both"]:
        return (
            f"Tensors of different shapes are broadcast: {by} repeats them along the missing dimensions of size 1. The best answer is then "
            "the mean of all targets for any input; the loss still falls, to their variance."
        )
    return f"Tensors of different shapes are broadcast: {by} repeats the smaller one."


def _not_a_number(facts: Facts) -> str:
    begin = "contains NaN" if facts["output"] else f"is {'infinite' if facts['infinite'] else 'NaN'}"
    if facts["batch"]:
        return f"{begin}: the batch already contains NaN"
    if "ignored" in facts:
        many = facts["targets"] > 1
        all_of_them = f"{'all' if many else 'the'} {format.plural(facts['targets'], 'target')} {'are' if many else 'is'}"
        return f"{begin}: {all_of_them} {facts['ignored']}, which is left out"
    at = f" at {facts['where']}" if facts["where"] else ""
    made = "makes infinity of finite numbers" if facts["infinite"] else "makes the first"
    maker = f"{facts['maker']}, whose weights hold NaN," if facts.get("weights") else facts["maker"]
    return f"{begin}: {maker} {made}{at}" if facts["maker"] else begin


def _stops(facts: Facts) -> str:
    at = f" at {facts['path']} ({facts['class']})" if facts["class"] else ""
    return f"stops{at} with {facts['error']}"


def _tried(facts: Facts) -> str:
    """How inputs were passed that forward does not take."""
    if facts["names"]:
        ways = f"by name ({', '.join(map(str, facts['names']))})"
    elif facts["several"] > 1:
        ways = f"as {facts['several']} arguments"
    else:
        return "does not take the inputs of batch= as its one argument"
    return f"takes the inputs of batch= neither {ways} nor as one argument"


def _value(facts: Facts) -> str:
    if "plain" in facts:
        return f"{format.article(facts['class'])}, but must give a tensor: a plain number has no way back to the parameters"
    if "complex" in facts:
        return "a complex number, but must give a real one"
    given = f"a tensor of shape {facts['shape']}" if "shape" in facts else format.article(facts["class"])
    return f"{given}, but must give one number"


def _why_stops(facts: Facts) -> str:
    known = " ".join(filter(None, [facts["explained"], _ALONE if facts["alone"] else ""]))
    return known or f"The {facts['stage']} was called with the batch that was given."


_ALONE = "BatchNorm in training mode takes the variance over the batch, but a batch of one has none: use drop_last=True."
_NO_REASON = (
    "A log or a square root of a number that is not positive, a division by 0, a number too large for its dtype, or a weight that is NaN "
)
_NAN = MistakeKind(
    _not_a_number,
    f"{_NO_REASON}already. NaN spreads to everything computed with it, gradients included: one step with them ruins the weights.",
    lambda facts: "the output" if facts["output"] else "the loss",
)
_FAILS = MistakeKind(_stops, _why_stops, lambda facts: "the forward pass" if facts["stage"] == "forward" else "the loss")
_DROPOUT = "p is the fraction that is dropped, not the fraction that is kept."

MISTAKES: dict[str, MistakeKind] = {
    "sigmoid twice": MistakeKind(
        "has already been through a sigmoid, and binary cross entropy with logits applies it again",
        "The sigmoid of a number between 0 and 1 is between 0.5 and 0.73: predictions cannot differ by more than that, so the loss "
        "cannot get close to 0.",
        "the output",
    ),
    # what is not registered
    "hidden": MistakeKind(
        hidden,
        _why_hidden,
        label="hidden {where}",
    ),
    "no longer a parameter": MistakeKind(
        "was computed from a tensor that requires a gradient ({function}), but is not a parameter itself: it never changes",
        "nn.Parameter(...).to(...), .cuda() or * 2 give a plain tensor, not a parameter. A value computed once in the "
        "constructor is not recomputed when the weights change. backward() through it works only once.",
    ),
    "should be a parameter": MistakeKind(
        "requires a gradient, but is a plain tensor: parameters() does not list it, .to() does not move it, state_dict() does not save it",
        "requires_grad=True makes a tensor trainable but does not register it. Only an nn.Parameter is registered when you assign it.",
    ),
    "should be a buffer": MistakeKind(
        _plain_tensors,
        "PyTorch moves and saves parameters and buffers. If a constant need not be saved, make it a buffer with persistent=False.",
    ),
    "never initialised": MistakeKind(
        "is a {class} whose constructor did not call super().__init__(): it cannot hold parameters or be called",
        "nn.Module's constructor creates the stores for parameters, buffers, children and hooks.",
        label="never initialized",
    ),
    "misspelt constructor": MistakeKind(
        "has class {class}, whose constructor is spelled {name}: Python never calls it",
        "The constructor's name has two underscores on each side. Under any other name, its layers are never made.",
    ),
    "misspelt requires_grad": MistakeKind(
        "has .{name} = {value}, a new attribute: requires_grad is still {real}",
        "Python lets you set any attribute on a tensor; only requires_grad is a switch.",
    ),
    "plain switch": MistakeKind(
        _switch,
        "A module has no such switch: the assignment only creates an attribute of that name. The method that ends in an underscore "
        "goes through the parameters.",
        label="{name} = {value}",
    ),
    "two parameters share one memory": MistakeKind(
        "are two parameters that share one memory: each has its own gradient, and a step of one changes both",
        "nn.Parameter(x) uses the memory of x, but is a separate parameter. An optimizer moves the shared numbers "
        "twice. Copying the model, or moving it to a different device or dtype, silently ends the sharing.",
        "{other} and {path}",
    ),
    # optimizers
    "in no optimizer": MistakeKind(
        lambda facts: f"{facts['are']} in no group of {' or '.join(facts['optimizers'])}, so no step changes {facts['them']}",
        "requires_grad is True, so backward() computes gradients, but nothing uses them, and optimizer.zero_grad() does not clear them.",
    ),
    "replaced since": MistakeKind(
        lambda facts: (
            f"{facts['are']} not what {' or '.join(facts['optimizers'])} holds: it has {facts['others']} of the same shape, "
            f"so no step changes {facts['them']}"
        ),
        "An optimizer holds the tensors it was given, not their names. If a layer is replaced, loaded with assign=True or copied "
        "after the optimizer was created, the optimizer does not hold the new tensor and keeps training the old one.",
    ),
    "held twice": MistakeKind(_twice, "Each entry is updated separately; with two optimizers, each keeps its own state."),
    "frozen, but moves": MistakeKind(
        _left_gradient,
        "step() looks at .grad, not at requires_grad. A gradient from before freezing stays until zero_grad() sets it to None; "
        "zero_grad(set_to_none=False) makes it zero, and weight decay and momentum still act. A parameter without a "
        "gradient is skipped, weight decay included.",
    ),
    "state left behind": MistakeKind(
        "{are} on {device}, but the state that {optimizer} keeps for {them} is on {other}: the next step fails",
        "model.to(...) does not move an optimizer's state; the optimizer's load_state_dict does.",
    ),
    "frozen, in an optimizer": MistakeKind(
        "{are} frozen and in {optimizer}: without a gradient step() skips {them}, weight decay included",
        "This is fine. It would change if a gradient were left in .grad.",
    ),
    "all frozen": MistakeKind(
        "is frozen: no step changes it",
        "requires_grad is False for each of these parameters: backward() brings them no gradient, and raises if nothing else requires one.",
        lambda facts: f"all that {_hold(facts['optimizers'])}",
    ),
    "loss in no optimizer": MistakeKind(
        _of_the_loss, "A loss with parameters is a module like the model: model.parameters() does not list what is in it.", "the loss"
    ),
    "not of this model": MistakeKind(
        _strangers, "They belong to another model, or to a part that was replaced.", lambda facts: facts["optimizer"]
    ),
    "several learning rates": MistakeKind(_rates, subject="the optimizer"),
    "learning rate 0": MistakeKind(
        lambda facts: f"{'has' if len(facts['groups']) == 1 else 'have'} the learning rate 0 now: a step changes nothing",
        "A scheduler with a warm-up starts this way; otherwise nothing trains.",
        lambda facts: ", ".join(facts["groups"]),
    ),
    # values
    "not finite": MistakeKind(
        _not_numbers,
        "One step with a gradient that is not finite is enough, and no later step repairs it. Usual causes: a learning rate that is too "
        "high, a log of 0 or a division by 0, or an overflow in float16.",
    ),
    "all zero, in a row": MistakeKind(
        "{are} all zero, one after the other: each waits for a gradient from the other and never learns",
        "A weight of zero passes no gradient back, and gets none itself while its input is zero: two in a row can never start.",
        label="all zero",
    ),
    "all zero": MistakeKind(
        "{are} all zero: until the layer learns, it ignores its input, and the layers before it get no gradient",
        "Intended for a part that should start as if it were not there: the last layer of a residual branch or of the model, LoRA's B, "
        "ControlNet's zero convolutions, adaLN-zero. It learns its way out.",
    ),
    "wild scale": MistakeKind(
        _wild, "With such weights, signals and gradients grow or fade at each layer, unless a normalization after it corrects that."
    ),
    "buffer with gradient": MistakeKind(
        "is a buffer that requires a gradient: parameters() does not list it, so no optimizer gets it",
        "Something to train should be a parameter; anything else should not require a gradient.",
    ),
    "carries a graph": MistakeKind(
        "is a buffer with a graph attached ({function}), which keeps everything it was computed from in memory",
        "Its value depends on something that requires a gradient. If forward updates it from itself, the graph "
        "grows with every pass, and a second backward() fails because part of that graph is already freed.",
    ),
    "no values yet": MistakeKind(
        "{are} on the meta device and {have} no values; the rest is on {main}",
        "Meta tensors have a shape but no data: the first operation on them fails or gives meta tensors.",
    ),
    "on another device": MistakeKind(
        _elsewhere,
        "An operation on tensors from two devices fails. If forward moves its input from part to part, this is intended.",
    ),
    # modes, hooks and order
    "frozen norm moves": MistakeKind(
        "{have} frozen weights, but {are} in training mode: running_mean and running_var move with every forward pass",
        "requires_grad affects gradients; running statistics depend only on the training flag, even under no_grad. "
        "model.train() sets that flag on every module again.",
        label="frozen, but moves",
    ),
    "mixed modes": MistakeKind(
        lambda facts: f"{facts['are']} in {_MODES[not facts['training']]} mode, but the model is in {_MODES[facts['training']]} mode",
        "Intended for a frozen part. model.train() and model.eval() set every module, including this one.",
    ),
    "in evaluation mode": MistakeKind(
        _evaluating, "Dropout drops nothing, and BatchNorm uses its running statistics without updating them."
    ),
    "dropout 0": MistakeKind("has p = 0 and drops nothing: it does what nn.Identity does", _DROPOUT),
    "dropout 1": MistakeKind("has p = 1 and drops everything: in training its output is zero", _DROPOUT),
    "doubled hook": MistakeKind(
        _hooked,
        lambda facts: (
            "Registering a function again adds a second copy; a cell that registers a hook does so each time you run it." + _where(facts)
        ),
    ),
    "left-over hook": MistakeKind(
        "still has the {hook} hook {function}: {left}",
        lambda facts: (
            "A hook stays until its handle's remove() is called. Running a cell again adds the new one, and the old one still runs."
            + _where(facts)
        ),
    ),
    "perhaps a left-over hook": MistakeKind(
        "has the {hook} hook {function}, and {doubt}",
        "If you edited its cell and ran it again, this one still runs beside the new one. If you want both, this is fine.",
    ),
    "bias before a norm": MistakeKind(
        "does nothing in training: {norm} after it ({class}) subtracts the mean again",
        "It costs a little memory and time, and its gradient is rounding noise.",
        "{path}.bias",
    ),
    "in place after a hook": MistakeKind(
        "changes in place what {before} returns, which has a full backward hook: the forward pass raises",
        "A full backward hook makes the output a view from a custom function, which must not be changed in place.",
    ),
    "nothing between": MistakeKind(
        "follows {before} with nothing in between: together they are one linear map",
        "Intended for a low-rank map; otherwise an activation is missing.",
    ),
    # with a batch
    "batch of one": MistakeKind(
        "is in training mode, but the batch has one sample: mean and variance come from this sample alone",
        "In training each sample is then normalised by its own statistics, but in eval mode by running statistics: a different function.",
        lambda facts: f"{facts['path'] or 'the model'} ({facts['class']})",
    ),
    "warning": MistakeKind(
        lambda facts: f"warns: {format.cut(facts['message'], WARNED)}",
        lambda facts: facts["message"] if len(facts["message"]) > WARNED else "",
        "{by}",
    ),
    "NaN": _NAN,
    "infinite": _NAN,
    "forward fails": _FAILS,
    "loss fails": _FAILS,
    "inputs do not fit": MistakeKind(
        _tried, lambda facts: f"Its forward takes ({', '.join(facts['wanted'])}). The model was not run. It says: {facts['error']}."
    ),
    "step fails": MistakeKind(
        "stops with {error}",
        "Loss and gradients can be computed, but the optimizer cannot make a step of them.",
        "the step of {class}",
    ),
    "loss is no number": MistakeKind(
        lambda facts: f"gives {_value(facts)}",
        "backward() starts from one number; torch's losses give one with reduction='mean' or 'sum'.",
        "the loss",
        "loss fails",
    ),
    "shapes differ in the loss": MistakeKind(_spread, _why_spread, "the loss"),
}
"""By the `kind` of a finding of `modlab.diagnose`."""
