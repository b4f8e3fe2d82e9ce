"""What is known of a row of a difference beside its numbers, in English; and what follows from it."""

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
        words: behind the name of the row.
        reason: what follows, where the words do not say it.
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
    """Why its values were not compared, as a part of a sentence; nothing where they were."""
    found = record.noted("not compared")
    return "" if found is None else _why_not(found.facts)


def renaming(rule: Renaming) -> str:
    """What is different in the names: ``"module." stands before each name``."""
    more = f", and {rule.names - 1:,} more have other names" if rule.kind == "single" and rule.names > 1 else ""
    return RENAMINGS[rule.kind].format(was=rule.was, now=rule.now) + more


def stays(finding: Finding) -> str:
    """In what dtype, or on which device, a move left it."""
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
    "not looked at": "what is there was not looked at",
    "unreadable": "a {type} cannot be",
    "fingerprint of a part": "a fingerprint tells only parts that lie alike over the ranks",
    "fingerprint of another dtype": "a fingerprint tells only values of one dtype",
    "other parts": "it lies otherwise over the ranks, which would have to exchange their parts",
    "unknown part": "which part of the whole this rank holds is not known",
}
"""By the fact ``why``: the reason for which values were not compared, as a part of a sentence."""


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
    kept = f"the first {rows:,} rows are as they were" if rows > 1 else "the first row is as it was"
    return f"{kept}, {abs(more):,} {'more' if more > 0 else 'fewer'}"


_HELD_OLD = "An optimizer that was made before still holds the old tensor, and its steps do not reach this one."
_COASTS = "The gradient is zero there: what moves it is what the optimizer keeps of earlier steps."
_LEFT = "A move reaches parameters and buffers; of these, .to(dtype) leaves whole numbers as they are."

NOTES: dict[str, NoteKind] = {
    "object": NoteKind("the tensor object that was {was}", "What holds that object, as an optimizer does, holds it under this name now."),
    "held": NoteKind("holds what was in {was}", "Bit for bit: the values are those that another name had."),
    "stayed": NoteKind(_stayed("stayed"), _LEFT),
    "stayed on": NoteKind(_stayed("stayed on"), _LEFT),
    "became": NoteKind(_became),
    "not compared": NoteKind(lambda facts: f"not compared: {_why_not(facts)}", "Whether it is as it was is not known."),
    "same object": NoteKind("same object", "What holds it, as an optimizer does, holds it still."),
    "another object": NoteKind("another object", _HELD_OLD),
    "in eval": NoteKind(
        "in evaluation mode all the while",
        "Evaluation mode keeps running statistics as they are: code of the module's own has moved this.",
    ),
    "weight decay": NoteKind(_decayed, "The gradient is zero there: the step has made the values smaller, and nothing else."),
    "momentum": NoteKind(_coasted("momentum alone"), _COASTS),
    "momentum and weight decay": NoteKind(_coasted("momentum and weight decay alone"), _COASTS),
    "skipped by the step": NoteKind(
        lambda facts: f"no gradient: the step skips it{', weight decay included' if facts['decay'] else ''}",
        "What has no gradient is left as it is: it was not used, is frozen, or is cut off from the loss.",
    ),
    "was None": NoteKind("was None"),
    "is None": NoteKind("is None now"),
    "was reserved": NoteKind("was reserved: None"),
    "is reserved": NoteKind("is None now: reserved"),
    "was no tensor": NoteKind("was no tensor: {value}"),
    "is no tensor": NoteKind("is no tensor now: {value}"),
    "was lazy": NoteKind(
        "was lazy, without a shape", "A lazy parameter gets its shape, and its first values, from the first forward pass."
    ),
    "transposed": NoteKind("the same values, transposed"),
    "another shape": NoteKind("the same values in another shape"),
    "rows kept": NoteKind(_rows),
    "other bits": NoteKind("{count:,} in other bits of the same value (a sign of zero, or a NaN)"),
    "values too": NoteKind("and its values changed"),
    "dequantized": NoteKind("{type}, compared dequantized"),
    "tensors inside": NoteKind("{type}, compared by the tensors inside"),
}
"""By the `kind` of a note of a difference."""

RENAMINGS = {
    "in front": '"{was}" stands before each name',
    "missing": '"{now}" is missing before each name',
    "within": '"{was}" stands in the names',
    "called": '"{was}" is called "{now}"',
    "called everywhere": '"{was}" is called "{now}" wherever it stands',
    "single": "{was} is {now}",
}
"""By the `kind` of a renaming."""
