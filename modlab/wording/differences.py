"""What is known about a row of a difference besides its numbers, in English, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modlab import format
from modlab.frozen import frozen
from modlab.records.difference import DifferenceRecord, Renaming
from modlab.records.finding import Finding
from modlab.wording import unregistered
from modlab.wording.names import Words, filled

Facts = Mapping[str, Any]


@frozen
class NoteKind:
    """One kind of note.

    Attributes:
        words: what follows the name of the row.
        reason: what this means, where the words do not say it.
    """

    words: Words
    reason: str = ""


def note(record: DifferenceRecord) -> str:
    """All notes of a row."""
    return "; ".join(map(said, record.notes))


def said(finding: Finding) -> str:
    """One of them."""
    return format.clean(filled(NOTES[finding.kind].words, finding))


def reason(record: DifferenceRecord) -> str:
    """Why its values were not compared, as part of a sentence; empty where they were."""
    found = record.noted("not compared")
    return "" if found is None else _why_not(found.facts)


def renaming(rule: Renaming) -> str:
    """What is different in the names: ``each name starts with "module."``."""
    more = f", and {rule.names - 1:,} more are renamed" if rule.kind == "single" and rule.names > 1 else ""
    return RENAMINGS[rule.kind].format(was=rule.was, now=rule.now) + more


def stays(finding: Finding) -> str:
    """The dtype or device in which a move left it."""
    return f"stayed on {finding.facts['device']}" if finding.kind == "stayed on" else f"stayed {finding.facts['dtype']}"


def anew(finding: Finding) -> str:
    """Why that does not matter, if so."""
    machinery = finding.facts.get("derived_by")
    return unregistered.fate("anew", str(machinery)) if machinery else ""


def _stayed(kind: str) -> Words:
    return lambda facts: ", ".join(filter(None, (stays(Finding(kind, facts=facts)), anew(Finding(kind, facts=facts)))))


def _became(facts: Facts) -> str:
    left = ", which state_dict() leaves out" if facts["left_out"] else ""
    return f"was {_articled(facts['was'])}, is {_articled(facts['now'])}{left}"


def _articled(kind: str) -> str:
    if kind.startswith("reserved "):
        return f"reserved for {_articled(kind.removeprefix('reserved '))}"
    return {"attribute": "an attribute", "parameter": "a parameter", "buffer": "a buffer"}.get(kind, kind)


WHY_NOT: dict[str, str] = {
    "error": "{error}",
    "no values": "no values",
    "absent": "no values ({what})",
    "not copied": "no values (no copy could be made)",
    "not looked at": "its content was not looked at",
    "unreadable": "a {type} cannot be",
    "fingerprint of a part": "fingerprints can be compared only between parts that are sharded alike",
    "fingerprint of another dtype": "fingerprints can be compared only between values of one dtype",
    "other parts": "it is sharded differently, and ranks would have to exchange their parts",
    "unknown part": "which part of the whole this rank holds is not known",
}
"""By the fact ``why``: why values were not compared, as part of a sentence."""


def _why_not(facts: Facts) -> str:
    return WHY_NOT[facts["why"]].format_map(facts)


def _decayed(facts: Facts) -> str:
    return _share("weight decay alone", facts["decayed"], facts["changed"])


def _coasted(how: str) -> Words:
    def words(facts: Facts) -> str:
        some, changed = facts["coasted"], facts["changed"]
        by_decay = f"{_decayed(facts)}, " if facts["decayed"] else ""
        return f"{by_decay}{_share(how, some, changed)}{': its' if some == changed else ', where its'} gradient is zero"

    return words


def _share(how: str, some: int, changed: int) -> str:
    return how if some == changed else f"{how} in {some:,} of {changed:,}"


def _rows(facts: Facts) -> str:
    rows, more = facts["rows"], facts["more"]
    kept = f"the first {rows:,} rows are unchanged" if rows > 1 else "the first row is unchanged"
    return f"{kept}, {abs(more):,} {'more' if more > 0 else 'fewer'}"


_HELD_OLD = "An optimizer created earlier still holds the old tensor, so its steps do not reach this one."
_COASTS = "The gradient is zero there: what moves it is the state that the optimizer keeps from earlier steps."
_LEFT = "A move reaches only parameters and buffers, and .to(dtype) leaves whole numbers as they are."

NOTES: dict[str, NoteKind] = {
    "object": NoteKind("the tensor object that was {was}", "Whatever holds it, such as an optimizer, now holds it under this name."),
    "held": NoteKind("holds what was in {was}", "Bit for bit: these values had a different name before."),
    "stayed": NoteKind(_stayed("stayed"), _LEFT),
    "stayed on": NoteKind(_stayed("stayed on"), _LEFT),
    "became": NoteKind(_became),
    "not compared": NoteKind(lambda facts: f"not compared: {_why_not(facts)}", "Whether it has changed is not known."),
    "same object": NoteKind("same object", "Whatever holds it, such as an optimizer, still holds it."),
    "another object": NoteKind("a different object", _HELD_OLD),
    "in eval": NoteKind(
        "in evaluation mode throughout",
        "Evaluation mode leaves running statistics unchanged: the module's own code moved this.",
    ),
    "weight decay": NoteKind(_decayed, "The gradient is zero there: the step only made the values smaller."),
    "momentum": NoteKind(_coasted("momentum alone"), _COASTS),
    "momentum and weight decay": NoteKind(_coasted("momentum and weight decay alone"), _COASTS),
    "skipped by the step": NoteKind(
        lambda facts: f"no gradient: the step skips it{', weight decay included' if facts['decay'] else ''}",
        "A step leaves a parameter without a gradient unchanged: it was not used, is frozen, or is cut off from the loss.",
    ),
    "was None": NoteKind("was None"),
    "is None": NoteKind("is None now"),
    "was reserved": NoteKind("was reserved: None"),
    "is reserved": NoteKind("is None now: reserved"),
    "was no tensor": NoteKind("was not a tensor: {value}"),
    "is no tensor": NoteKind("is not a tensor now: {value}"),
    "was lazy": NoteKind(
        "was lazy, without a shape", "A lazy parameter gets its shape, and its first values, from the first forward pass."
    ),
    "transposed": NoteKind("the same values, transposed"),
    "another shape": NoteKind("the same values in a different shape"),
    "rows kept": NoteKind(_rows),
    "other bits": NoteKind("{count:,} with equal values but different bits (the sign of zero, or NaN)"),
    "values too": NoteKind("and its values changed"),
    "dequantized": NoteKind("{type}, compared dequantized"),
    "tensors inside": NoteKind("{type}, compared by the tensors inside it"),
}
"""By the `kind` of a note of a difference."""

RENAMINGS = {
    "in front": 'each name starts with "{was}"',
    "missing": 'each name lacks the prefix "{now}"',
    "within": 'the names contain "{was}"',
    "called": '"{was}" is called "{now}"',
    "called everywhere": '"{was}" is called "{now}" everywhere',
    "single": "{was} is {now}",
}
"""By the `kind` of a renaming."""
