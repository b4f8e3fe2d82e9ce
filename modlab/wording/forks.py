"""A fork in English: what was changed, what came of it, and what is not known."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from modlab import format
from modlab.records.fork import ForkRecord, KeptRecord
from modlab.wording.names import capital, joined

SAME = 0.05
"""Of the original's loss: less than this is little difference."""

LOST = 100
"""Times the loss that a watch saw at first: where a fork begins above that, its weights were lost before."""

TRAINS = "training mode"
"""The fix that changes the modes of the fork."""

UNSCALED = "the loss without its factor"
"""The fix after which the losses that are shown still have what the gradients are without."""

LEAST = 3
"""Steps that are compared: of fewer it is too early to tell."""

CLEAR = 2.8
"""Standard errors, of five differences or more, that chance hardly makes."""

AVERAGED = 20
"""From so many steps on the last tenth is more than the last step."""

NOTHING = {
    "": "no step was seen",
    "joined": "each of its steps brought a module or an optimizer that trains along and was not there before",
    "torn": "each of its steps uses what the one before it has computed, gradients included, and a copy has no graph",
    "gone": "the model itself is gone",
}
"""Why no state is left, where no error tells."""

FIRST = {
    "": "",
    "joined": "in the steps before a module came that holds weights, its own ones or the model's (a loss with weights, a compiled model), "
    "and the states from before lack it",
    "torn": "gradients flowed through what the steps before it had computed, and a copy has no graph",
}
"""Why the first steps are not kept, by what the keeper has lost."""

UNKEPT = {
    "": "of its steps that were looked at, none had a loss to be read",
    "evaluation": "it trains in evaluation mode, and of such a pass a watch keeps no batch",
    "terms": "its loss has several terms (a sum, a penalty), and a watch computes a loss of one term again from a batch",
    "output": "it gives no tensor of more than one number, which a loss could be computed from again",
    "inputs": "it is called with arguments both by place and by name, and such a batch is not kept",
    "large": "its batch is larger than what a watch keeps (16 MB)",
    "loss": "its loss could not be computed again from a batch",
}
"""Why a watch has no batch, by what the clues note."""

CHANGES: dict[str, str] = {
    "function": "changed by {name}",
    "settings": "with {settings}",
    "fix": "with {what}",
    "code": "after {code}",
}
"""By the `change` of a record: what was done to the fork."""

MEMBERS = {
    "": "put a module, a parameter or a buffer into the model, took one out, or called it with others (functional_call)",
    "called": "called the model with other parameters (torch.func.functional_call)",
    "replaced": "put something else into the place of {member}",
    "put": "put {member} into the model",
    "taken": "took a module or a parameter out of the model",
    "emptied": "took {member} out of the model",
    "buffers": "put a buffer into {member}, or took one out",
    "forward": "gave {member} another forward",
}
"""What it did to the model's members, by the fact `members`."""

_ENDED = {
    "branch": "At step {step} the loop would have gone another way with these numbers (an `if` on a tensor), so the fork ends there.",
    "constant": "A tensor that step {step} was given (a batch, a state) was changed in place later, so the fork ends there.",
    "lacking": "Step {step} got gradients in a way that a fork does not see (compiled code, torch.func.grad, an autograd.Function between "
    "the modules, checkpoint(use_reentrant=True) in the loop, a class of tensors, a hook that collects, a leaf of the loop's own): "
    "the fork ends there.",
    "old": "Step {step} uses a tensor that the kept state lacks (from before it, or one that shares the memory of others): "
    "the fork ends there.",
    "taken": "Step {step} uses something that is not there with this change, or stands elsewhere (a parameter, its gradient, a module, "
    "what it gave, its forward hook): the fork ends there.",
    "brought": "In step {step} the loop itself computes with the parameters or with their gradients, or calls the layers one by one, and a "
    "fork does not know whether it would with those that the change has brought: the fork ends there.",
    "changed": "In step {step} the loop {members}: the fork ends there.",
    "edited": "Before step {step} the loop itself changed what is in the optimizer's state: the fork ends there.",
    "joined": "In step {step} a module or an optimizer came that trains along, or holds weights of the model, and the kept state lacks it: "
    "the fork ends there.",
    "original": "In step {step} the code of the model reached the original by another name (a global variable): the fork ends there.",
    "error": "Step {step} of the fork ended in an error: {error}.",
    "cancelled": "It was cancelled there.",
}


def outcome(record: ForkRecord) -> str:
    """What came of it: "better", "same", "worse", "unclear", "not judged", "not finite" or "not seen"."""
    before, after = record.last(record.beside), record.last("fork")
    stuck = "stuck" in record.facts
    if not record.steps or (record.is_lossless and not stuck) or _is_early(record):
        return "not seen"
    if not math.isfinite(after):
        return "not finite"
    if not math.isfinite(before):
        return "better"
    if record.parts < 0:
        return "same"
    if record.unjudged or record.is_drowned:
        return "not judged"
    if _is_too_short(record):
        return "unclear"
    if abs(after - before) <= SAME * abs(before):
        return "same"
    if not _is_clear(record, -1 if after < before else 1):
        return "unclear"
    return "better" if after < before else "worse"


def _is_early(record: ForkRecord) -> bool:
    """Whether nothing can be seen yet: what changes a step shows in the loss of the next one."""
    return record.steps == 1 and record.parts < 0


def _is_too_short(record: ForkRecord) -> bool:
    """Whether too few losses of both can be compared for any verdict."""
    there = math.isfinite(record.last("fork")) and math.isfinite(record.last(record.beside))
    return there and record.parts >= 0 and not record.unjudged and record.sides[2] < LEAST


def _is_clear(record: ForkRecord, side: int) -> bool:
    """Whether the fork's losses, step by step, are on one side of the others more clearly than chance would have it."""
    lower, higher, steps = record.sides
    ahead = (higher - lower) * side
    by_far = max(record.apart * side, record.beyond * side) > CLEAR
    return ahead >= min(steps, 2 * math.sqrt(steps)) or by_far  # two deviations of a coin's tosses


def conclusion(record: ForkRecord) -> tuple[str, str]:
    """The headline of a fork in two halves."""
    if record.running:
        return "The fork runs:", _so_far(record)
    if not record.steps:
        return "No step could be run again:", _why_none(record)
    steps = format.plural(record.steps, "step")
    if "stuck" in record.facts:
        runs = f"after {steps} on the batch the loss is {_number(record.last('fork'))}, and without the change it cannot run"
        return "It runs now:", f"{runs} ({mark(record)})."
    if record.is_lossless:
        return "There is no loss to compare:", f"in {steps} none was seen, or all were NaN ({mark(record) or 'unchanged'}{_since(record)})."
    if not record.change:
        return _unchanged(record, steps)
    if _is_early(record):
        return "It is too early to tell:", f"what changes a step shows in the loss of the next one, and {steps} was made ({mark(record)})."
    after, before = record.last("fork"), record.last(record.beside)
    where = " on the batch" if record.source == "batch" else ""
    ends = f"after {steps}{where} {_loss(record)} is {_number(after)}, and {_number(before)} {_without(record)}"
    found = outcome(record)
    if found == "not finite":
        ends = (
            f"within {steps} {_loss(record) if record.line else 'it'} becomes NaN or infinite; {_without(record)} it is {_number(before)}"
        )
    elif found == "not judged":
        ends = f"{_unjudged(record)}. A{ends[1:]}"
    elif _is_too_short(record):
        ends += f", but of so few steps only {record.sides[2]:,} can be compared"
        found = "early"
    elif found == "unclear":
        side, count, compared = _sides(record)
        ends += f"; of the last {compared}, the fork's loss is {side} at only {count}"
    return _FOUND["no change" if found == "same" and record.parts < 0 else found], f"{ends} ({mark(record)}{_since(record)})."


def _loss(record: ForkRecord) -> str:
    """The loss; where several lines have one, whose it is."""
    return f"the loss of line {record.line}" if record.line else "the loss"


def _without(record: ForkRecord) -> str:
    """With what it is compared."""
    return "without the change" if record.differs < 0 else "in the unchanged fork, which is not the original"


_FOUND = {
    "better": "The fork does better:",
    "worse": "The fork does worse:",
    "same": "It makes little difference:",
    "no change": "It makes no difference:",
    "unclear": "It makes no clear difference:",
    "early": "It is too early to tell:",
    "not judged": "The fork is not judged:",
    "not finite": "The fork's loss is not finite:",
}


_UNJUDGED = {
    "negative values": "the loss has negative values, like that of a policy gradient, so a lower one need not be better",
    "several losses": "which of {names} is the loss is not known",
    "climbed": "the optimizer climbs, so a lower loss is not a better one",
    "modes": "one of the two is in training mode and the other in evaluation, in which dropout and batch norms make another loss",
    "wrong sign": "the loss is turned around, so a lower one is not better",
}


def _unjudged(record: ForkRecord) -> str:
    """Why its loss does not say which future is the better one."""
    names = record.facts.get("names")
    if not record.unjudged:
        return "the unchanged fork is as far from the original as the change is from the unchanged fork, or farther"
    return _UNJUDGED[record.unjudged].format(names=joined(names) if isinstance(names, tuple) else "")


def _sides(record: ForkRecord) -> tuple[str, str, str]:
    """The side where the fork's mean is, at how many of the last steps it is there, and how many these are."""
    lower, higher, steps = record.sides
    side, count = ("lower", lower) if record.last("fork") < record.last(record.beside) else ("higher", higher)
    return side, f"{count:,}", format.plural(steps, "step")


def _unchanged(record: ForkRecord, steps: str) -> tuple[str, str]:
    if record.exact:
        same = "gives the very same loss" if record.steps == 1 else "give the very same losses"
        return "The fork equals the original, bit for bit:", f"{steps} from step {record.at:,} on {same}{_lost(record)}."
    return "The fork is not the original:", f"from step {record.differs:,} on its losses differ."


def _so_far(record: ForkRecord) -> str:
    which = mark(record) if record.change else "unchanged"
    if not record.steps:
        return f"it comes to step {record.at:,} ({which})."
    losses = f"{_loss(record)} is {_number(record.last('fork'))}, and {_number(record.last(record.beside))} {_without(record)}"
    return f"{record.steps:,} of {format.plural(record.until - record.at, 'step')}{f', {losses}' if record.change else ''} ({which})."


def _since(record: ForkRecord) -> str:
    return "" if record.source == "batch" else f", from step {record.at:,} on{_lost(record)}"


def _lost(record: ForkRecord) -> str:
    """That another step was asked for."""
    return f"; step {record.facts['asked']:,} was not kept" if "asked" in record.facts else ""


def mark(record: ForkRecord) -> str:
    """What was changed, in a few words."""
    return CHANGES.get(record.change, record.change).format(**record.facts) + _value(record)


def _value(record: ForkRecord) -> str:
    """What the learning rate is with the change; a schedule moves it on."""
    if "lr" not in record.facts or record.change != "fix":
        return ""
    return f": lr = {_rate(record.facts['lr'])}{' at first' if 'lr_last' in record.facts else ''}"


def _rate(value: Any) -> str:
    return f"{float(f'{value:.3g}'):g}"


def _moved(record: ForkRecord) -> Iterator[str]:
    """That it begins elsewhere than was asked for."""
    if "asked" in record.facts:
        behind = format.plural(int(str(record.facts["kept"])), "step")
        what = "the change is made" if record.change else "the fork begins"
        yield (
            f"Step {record.facts['asked']:,} was not kept: batches are kept for {behind} behind the state before it, so {what} at step "
            f"{record.at:,}."
        )


def notes(record: ForkRecord) -> Iterator[str]:
    """What to know about a fork."""
    if record.steps:
        yield from _moved(record)
    if record.change and not record.running:
        yield from _ends(record)
        yield from _trials(record)
        if record.facts.get("what") == UNSCALED:
            yield "The losses of the fork are shown with the factor, as the loop computes them: its gradients alone are without it."
    if record.source == "batch":
        by = f" by Adam with lr = {record.facts['rate']}, for no optimizer is known" if "rate" in record.facts else ""
        yield f"Two copies of the model, one of them changed, trained on the one batch{by}, from the present weights on."
        if "stuck" in record.facts:
            yield f"The unchanged one ended in an error: {str(record.facts['stuck']).rstrip('.')}."
        yield from _present(record)
        return
    if record.steps:
        began = f"Run from the state kept after {format.plural(record.began, 'step')}"
        yield f"{began}; {_exactness(record)}"
    if record.line and record.steps:
        yield f"Of several losses, these are of the backward pass in line {record.line}."
    if record.unjudged == "negative values" and record.change:
        yield "What the loop drew, such as the actions of a policy, is that of the original: a fork does not act anew."
    if record.facts.get("steered") and record.change:
        yield "Learning rates keep the course of the original: what sets them by the loss (ReduceLROnPlateau) might have gone another way."
    if record.change and record.facts.get("joined"):
        yield _JOINED[str(record.facts["joined"])]
    if record.change and record.parts >= 0:
        yield f"Its loss first differs at step {record.parts:,}."
    elif record.change and outcome(record) == "same":
        yield (
            "No loss differs by a bit. Perhaps it was so already, or the training does not use what was changed; or the loop itself reads "
            "or sets it, as an attribute of the model, which a fork does not repeat."
        )
    if record.ended in _ENDED and record.steps:
        yield _ended(record)
    if record.ended == "tape":
        yield "It ends where the kept batches end."


_JOINED = {
    "scheduled": "The learning rate of the group that the change has added moves as those of the others do; a schedule with a function for "
    "each group (LambdaLR) would have left it as it was.",
    "alone": "The learning rate of the group that the change has added stays as it was set: those of the others do not move alike.",
}
"""By the fact `joined`: what became of it."""

_MODES = {
    "as the model": "They began in evaluation mode, as the model is now, in which dropout and batch norms do not do what they do in "
    "training. Ask for the other mode before: model.train().",
    "one of them": "The unchanged one is in evaluation mode, as the model is now; the other one in training mode.",
    "as in its steps": "They are in the modes that the steps of the training had, and not in those that the model has now.",
}
"""By the fact `mode`: in which modes the copies are."""


def _present(record: ForkRecord) -> Iterator[str]:
    """What to know about a fork of the present state."""
    mode = str(record.facts.get("mode", ""))
    if mode in _MODES:
        yield _MODES["one of them" if mode == "as the model" and record.facts.get("what") == TRAINS else mode]
    first: Any = record.facts.get("first", 0.0)
    if first > 0 and len(record.twin) and not record.twin[0] <= LOST * first:
        yield (
            f"The fork begins with a loss {_that(record.twin[0])}, and the watch began with {_number(first)}: these weights were lost "
            'before. With keep="good" a watch keeps good ones, and a fork begins there: modlab.watch(model, optimizer, keep="good").'
        )


def _ends(record: ForkRecord) -> Iterator[str]:
    """How to read the losses at the end."""
    if record.steps >= AVERAGED:
        yield "The losses at the end are averaged over the last tenth of the steps."
    if outcome(record) in ("better", "worse") and math.isfinite(record.last(record.beside)):
        side, count, steps = _sides(record)
        yield f"The fork's loss is the {side} one at {count} of the last {steps}."


def _trials(record: ForkRecord) -> Iterator[str]:
    """Which doses were tried, where there were several."""
    trials: Any = record.facts.get("trials", ())
    if trials:
        tried = joined([f"{_dose(one)} ({_number(one['loss'])})" for one in trials], len(trials))
        steps = format.plural(int(str(record.facts["trial"])), "step")
        is_any = any(math.isfinite(one["loss"]) for one in trials)
        run = "The one with the least loss was run" if is_any else "None of them settles, so the smallest change was run"
        run = _unexplained(record) or run
        yield f"Tried before, for {steps} each, with the mean loss of the last quarter: {tried}. {run}."


def _unexplained(record: ForkRecord) -> str:
    """That the change does not explain a loss that is not finite: it is so with each dose from the very step on at which it was without."""
    trials: Any = record.facts.get("trials", ())
    step = record.lost("original")
    if step <= record.at or any(one.get("lost") != step for one in (*trials, {"lost": record.lost()})):
        return ""
    why = "so what was changed does not explain it: look at the batch of that step"
    return f"With each of them the loss is not finite from step {step:,} on, just as without the change, {why}"


def _dose(trial: Mapping[str, Any]) -> str:
    return f"lr = {_rate(trial['lr'])}" if "lr" in trial else str(trial["what"])


def _exactness(record: ForkRecord) -> str:
    if record.exact:
        return "the unchanged fork equals the original bit for bit." if record.change else "random generators included."
    if record.differs < 0:
        return "no loss tells whether the unchanged fork equals the original."
    names: Any = record.facts.get("attributes", ())
    what = f", perhaps {joined(names)}, which the loop sets on the model" if names else ""
    why = f"something acts on this training that a fork cannot repeat{what} (see docs/fork.md)"
    compared = " So the two forks are compared." if record.change else ""
    return f"but from step {record.differs:,} on the unchanged fork is not the original: {why}.{compared}"


def _ended(record: ForkRecord) -> str:
    error = record.error.rstrip(".")
    members = MEMBERS[str(record.facts.get("members", ""))].format(member=record.facts.get("member", ""))
    step = f"{record.began + len(record.fork):,}"
    return _ENDED[record.ended].format(step=step, error=error, members=members).replace("….", "…")


def _why_none(record: ForkRecord) -> str:
    return _ended(record) if record.ended in _ENDED else f"no batches were kept behind step {record.at:,}."


def kept(record: KeptRecord) -> str:
    """What a watch keeps for a fork, for the foot of its views."""
    states = format.plural(len(record.states), "state")
    return f"kept for w.fork: {states} and the batches behind {'it' if len(record.states) == 1 else 'them'}, {format.size(record.bytes)}"


_GOT = re.compile(r"w\.fork\(\w+=…\) got (.+?) as (.+), but takes (.+)\.")
_CALL = re.compile(r"w\.fork\(\w+=…\):? ")


def at_a_form(error: str) -> str:
    """What an error of `w.fork` says, for who fills in a form: without the call, and without lines of code."""
    first, *more = error.split("\n")
    said, called = _CALL.subn("", _GOT.sub(r"\2 takes \3, and not \1.", first), count=1)
    article = re.match(r"(an?|no) ", said)
    return "\n".join([capital(said) if called and article else said, *(line.strip() for line in more if "w.fork(" not in line)])


def _that(value: float) -> str:
    return f"of {format.number(value)}" if math.isfinite(value) else "that is not finite"


def _number(value: float) -> str:
    return format.number(value) if math.isfinite(value) else "not finite"
