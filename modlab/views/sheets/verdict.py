"""The verdict on a difference: its headline, the most surprising fact first."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator

from modlab import format
from modlab.records.difference import TENSORS, UNTIED, DifferenceRecord, DiffRecord, Loading
from modlab.records.sharding import together
from modlab.views import sharding
from modlab.wording import differences

_COASTED = ("momentum", "momentum and weight decay")
_OF_PARTS = ("unchanged", "changed")
NOTHING = "nothing here"
_PART = 10  # weight decay that moved a smaller part of a tensor than a tenth by itself is no news


def ratio(relative: float) -> str:
    """A relative distance; from all zeros there is none."""
    return "from 0" if math.isinf(relative) else format.number(relative)


def here(record: DifferenceRecord) -> str:
    """What follows a number that is only about this rank's part."""
    return f" {sharding.HERE}" if record.of_part else ""


def status(record: DifferenceRecord) -> str:
    """The status in words: of this rank's part that it is no more; and where this rank holds nothing, that."""
    if not record.of_part or record.status not in _OF_PARTS:
        return record.status
    return NOTHING if not record.here and record.status == "unchanged" else f"{record.status} {sharding.HERE}"


def words_of(status: str) -> tuple[str, ...]:
    """What rows of a status may be called."""
    more = (NOTHING,) if status == "unchanged" else ()
    return (status, f"{status} {sharding.HERE}", *more) if status in _OF_PARTS else (status,)


def resharded(record: DifferenceRecord) -> str:
    """From which sharding to which: "rows over dp → columns over tp"."""
    was, now = ("on one process" if s is None else sharding.placement(s) for s in (record.sharding_before, record.sharding_after))
    return f"{was} → {now}" if was != now else f"{was}, on other ranks"


def rank(relative: float) -> float:
    """By what the greatest is found: what came from all zeros has no size, and is greater than no change alone."""
    return sys.float_info.min if math.isinf(relative) else relative


def tensors(diff: DiffRecord) -> list[DifferenceRecord]:
    """The rows of the state itself, of tied tensors one."""
    return [r for r in diff.records if r.kind in TENSORS and not r.tied and (r.shape_before is not None or r.shape_after is not None)]


def shared(diff: DiffRecord) -> list[DifferenceRecord]:
    """Rows whose two sides share memory."""
    return [r for r in diff.records if r.shares_memory and not r.tied]


def replaced(diff: DiffRecord) -> list[DifferenceRecord]:
    """Parameters of one model that are new tensor objects, not old ones under a different name."""
    own = [r for r in diff.records if diff.own and r.kind == "parameter" and r.same_object is False]
    return [r for r in own if r.noted("object") is None]


def of_diff(diff: DiffRecord) -> tuple[str, str]:
    """Two halves; the first is printed bold."""
    name = format.clean(_name(diff))
    if diff.same:
        return (
            f"{name}: both sides are the same object;",
            "so nothing can differ. Take a snapshot before the change: before = modlab.snapshot(model).",
        )
    if not diff.records:
        return f"{name}: nothing to compare.", ""
    odd = [*_memory(diff), *_loading(diff), *_broken(diff), *_odd(diff), *_swapped(diff), *_others(diff)]
    facts = [*odd, *_values(diff), *_about(diff), *_spread(diff)]
    first, *rest = facts or [_nothing(diff)]
    return (f"{name}: {first};", "; ".join(rest) + ".") if rest else (f"{name}: {first}.", "")


def _spread(diff: DiffRecord) -> list[str]:
    lies = [r.sharding_after or r.sharding_before for r in diff.records]
    return sharding.spread(together(dict.fromkeys(one.ranks for one in lies if one is not None)))


def _nothing(diff: DiffRecord) -> str:
    """Of what is no state of a model: settings, what an optimizer keeps, values."""
    none = "" if any(r.shape_after is not None for r in diff.records) else ", none of them a tensor"
    return f"nothing changed; {format.plural(len(diff.records), 'entry', 'entries')} compared{none}"


def _name(diff: DiffRecord) -> str:
    before, after = diff.before, diff.after
    if diff.before_form == diff.after_form == "mapping" and not diff.same:  # neither has a name
        return f"first {before} → second {after}"
    if diff.before_form == diff.after_form == "file" or before == after:
        return before if before == after else f"{before} → {after}"
    return before if diff.before_form == "snapshot" and diff.after_form == "mapping" else f"{before} → {after}"


def _memory(diff: DiffRecord) -> Iterator[str]:
    """That a kept state_dict is the live model."""
    if {diff.before_form, diff.after_form} != {"mapping", "module"}:
        if diff.live and shared(diff):
            yield f"{format.plural(len(shared(diff)), 'tensor has', 'tensors have')} the same memory on both sides"
        return
    its, all_of_them = shared(diff), tensors(diff)
    if its and len(its) == len(all_of_them):
        yield "every value shares memory with the model, so it changes with it (use clone())"
    elif its:
        yield f"{len(its):,} of {format.plural(len(all_of_them), 'tensor')} share memory with the model"


def reasons(loading: Loading) -> list[str]:
    """Why weights cannot be loaded."""
    said = []
    if loading.missing:
        said.append(f"{format.plural(len(loading.missing), 'key')} missing")
    if loading.unexpected:
        said.append(f"{len(loading.unexpected):,} unexpected")
    if loading.mismatched:
        said.append(f"{format.plural(len(loading.mismatched), 'size')} that {'does' if len(loading.mismatched) == 1 else 'do'} not fit")
    if loading.wrong:
        what = "is not a tensor" if len(loading.wrong) == 1 else "are not tensors"
        said.append(f"{format.plural(len(loading.wrong), 'value')} that {what}")
    return said


def _loading(diff: DiffRecord) -> Iterator[str]:
    if diff.loading is not None and diff.loading.fails:
        yield f"load_state_dict would raise: {', '.join(reasons(diff.loading))}"


def _broken(diff: DiffRecord) -> Iterator[str]:
    for name, its in (
        ("NaN", [r for r in diff.records if r.nan_after > r.nan_before]),
        ("infinities", [r for r in diff.records if r.inf_after > r.inf_before]),
    ):
        if its:
            first = format.clean(its[0].path)
            more = "" if len(its) == 1 else f" and {format.plural(len(its) - 1, 'tensor')} more"
            yield f"{name} appeared in {first}{more}"


def _odd(diff: DiffRecord) -> Iterator[str]:
    """What hardly anyone intends: broken ties, buffers in the graph or turned into parameters, state that moves in evaluation mode."""
    kinds = {r.path: r.kind for r in diff.records}
    flags = [r for r in diff.records if r.kind == "flag"]
    for word, its in (
        ("no longer tied", [r for r in flags if r.path.endswith(".tied") and r.value_after == UNTIED]),
        ("tied now", [r for r in flags if r.path.endswith(".tied") and r.value_before == UNTIED]),
    ):
        if its:
            ends = {r.value_before if r.value_after == UNTIED else r.value_after for r in its}
            other = f" {format.clean(ends.pop())}" if len(ends) == 1 else ""
            yield f"{_named([r.path.removesuffix('.tied') for r in its])} {'is' if len(its) == 1 else 'are'} {word}{other}"
    for value, word in (("False", "no longer in the state_dict"), ("True", "in the state_dict now")):
        paths = [r.path.removesuffix(".persistent") for r in flags if r.path.endswith(".persistent") and r.value_after == value]
        if paths:
            yield f"{_named(paths)} {'is' if len(paths) == 1 else 'are'} {word}"
    graphs = [r.path.removesuffix(".requires_grad") for r in flags if r.in_graph]
    graphs = [path for path in graphs if kinds.get(path) == "buffer"]
    if graphs:
        what = "is a buffer" if len(graphs) == 1 else "are buffers"
        yield f"{_named(graphs)} {what} now in the autograd graph, which grows with every call"
    first = ((r, r.notes[0]) for r in diff.records if r.notes)
    yield from (
        f"{format.clean(r.path)} {differences.note(r)}" for r, note in first if note.kind == "became" and note.facts["now"] == "parameter"
    )
    became = ((r, r.noted("became")) for r in diff.records if r.kind == "attribute")
    plain = [r for r, note in became if note is not None and (note.facts["was"], note.facts["now"]) == ("parameter", "attribute")]
    if plain:
        what = "was a parameter and is now a plain attribute" if len(plain) == 1 else "were parameters and are now plain attributes"
        yield f"{_listed(plain)} {what}, which state_dict() leaves out"
    others = replaced(diff)
    if others:
        what = "is a new tensor object" if len(others) == 1 else "are new tensor objects"
        yield f"{_listed(others)} {what}, which an optimizer created earlier does not hold"
    moved = [r for r in diff.records if r.noted("in eval") is not None]
    if moved:
        yield f"{_listed(moved)} changed although {'its module is' if len(moved) == 1 else 'their modules are'} in evaluation mode"


def _swapped(diff: DiffRecord) -> Iterator[str]:
    """Values that are now under different names."""
    its = [(r, str(note.facts["was"])) for r in diff.records if (note := r.noted("held")) is not None]
    if its:
        first, was = its[0]
        names = "have each other's values" if len(its) > 1 else "has another's values"
        yield f"{format.plural(len(its), 'tensor')} {names} ({format.clean(first.path)} holds what was in {format.clean(was)})"


def _others(diff: DiffRecord) -> Iterator[str]:
    """What a module saves besides its tensors."""
    its = [r for r in diff.records if r.kind in ("extra", "packed") and r.shape_before is r.shape_after is None and r.status != "unchanged"]
    if its:
        yield f"{_listed(its)} {its[0].status if len({r.status for r in its}) == 1 else 'changed'}"


def _values(diff: DiffRecord) -> Iterator[str]:
    its = tensors(diff)
    if not its:
        return
    tally = Counter(r.status for r in its)
    both = [r for r in its if r.status not in ("added", "removed")]
    if both:
        part = f" in {sharding.PART}" if any(r.of_part for r in both) else ""
        yield f"{sum(map(_changed, both)):,} of {format.plural(len(both), 'tensor')} changed{part}"
    yield from _uncompared(both)
    turned = [r for r in both if r.status == "resharded"]
    if turned:
        ways = {resharded(r) for r in turned}
        what = "tensor is", "tensors are"
        yield f"{format.plural(len(turned), *what)} sharded differently{f' ({ways.pop()})' if len(ways) == 1 else ''}"
    decayed = [r for r in both if r.decayed * _PART >= r.changed > 0]
    alone = [r for r in decayed if r.decayed == r.changed]
    if alone:
        yield f"{_listed(alone)} by weight decay alone"
    elif decayed:
        yield f"{_listed(decayed)} in part by weight decay alone"
    placed = [(r, str(note.facts["was"])) for r in both if (note := r.noted("object")) is not None]
    if placed:
        first, old = placed[0]
        yield f"{len(placed):,} of them changed places ({format.clean(first.path)} was {format.clean(old)})"
    coasted = [(r, note.kind) for r in both for note in r.notes if note.kind in _COASTED]
    if coasted:
        how = "momentum and weight decay" if {kind for _, kind in coasted} == {"momentum and weight decay"} else "momentum"
        yield f"{_listed([r for r, _ in coasted])} moved by {how} where the gradient is zero"
    yield from _kinds(its)
    yield from (f"{tally[status]:,} {status}{_how(its, status)}" for status in ("reshaped", "added", "removed") if tally[status])
    names = [r for r in its if r.renamed_from]
    if names:
        reason = f" ({differences.renaming(diff.renamings[0])})" if len(diff.renamings) == 1 else ""
        evidence = {renaming.evidence for renaming in diff.renamings}
        guessed = ", judged only by shape" if evidence == {"same shapes"} else ""
        if evidence == {"same names"} and all(r.differs for r in names):
            guessed = ", judged only by name"
        yield f"{len(names):,} renamed{guessed}{format.clean(reason)}"


def _uncompared(both: list[DifferenceRecord]) -> Iterator[str]:
    """How many tensors were not compared, and why."""
    blank = [r for r in both if r.status == "not compared" or (r.uncompared and r.count > 0)]
    if blank:
        reasons = list(dict.fromkeys(filter(None, map(differences.reason, blank))))
        why = f" ({format.clean(reasons[0])}{f', and {len(reasons) - 1:,} more reasons' if len(reasons) > 1 else ''})" if reasons else ""
        yield f"{format.plural(len(blank), 'tensor was', 'tensors were')} not compared{why}"


def _changed(record: DifferenceRecord) -> bool:
    """Whether its values changed, even under a different name or in a different dtype."""
    return bool(record.differs)


def _how(its: list[DifferenceRecord], status: str) -> str:
    """What happened to the values of reshaped tensors, if it is the same for all."""
    found = [r for r in its if r.status == status] if status == "reshaped" else []
    notes = {differences.note(r) for r in found}
    if len(found) == 1 and "" in notes:
        return f": {format.clean(found[0].path)} from {found[0].shape_before} to {found[0].shape_after}"
    return f" ({notes.pop()})" if len(notes) == 1 and "" not in notes else ""


def _kinds(its: list[DifferenceRecord]) -> Iterator[str]:
    """What now has a different dtype or device, and what stayed behind."""
    for word, facts in (("is now", ("dtype_before", "dtype_after")), ("is now on", ("device_before", "device_after"))):
        pairs = [(r, getattr(r, facts[0]), getattr(r, facts[1])) for r in its if r.shape_before is not None and r.shape_after is not None]
        turned = Counter(now for _, was, now in pairs if was != now)
        stayed = [(r, now) for r, was, now in pairs if was == now and now not in turned]
        for now, times in sorted(turned.items()):
            many = word.replace("is", "are") if times > 1 else word
            yield f"{format.plural(times, 'tensor')} {many} {now}"
        if turned and stayed:
            kinds = sorted({now for _, now in stayed})
            yield f"{_listed([r for r, _ in stayed])} stayed {'on ' * (word == 'is now on')}{' or '.join(kinds)}"


def _about(diff: DiffRecord) -> Iterator[str]:
    """Flags, gradients, the optimizer, random numbers."""
    changed = [r for r in diff.records if r.status not in ("unchanged", "moved")]
    flags = [r for r in changed if r.kind == "flag"]
    modes = [r for r in flags if r.path.rpartition(".")[2] == "training"]
    frozen = [r for r in flags if r.path.endswith("requires_grad") and not r.in_graph]
    if modes:
        yield f"{format.plural(len(modes), 'module')} {_turned(modes, 'in training mode', 'in evaluation mode')}"
    if frozen:
        yield f"{format.plural(len(frozen), 'parameter')} {_turned(frozen, 'trainable', 'frozen')}"
    yield from _counts(changed, "gradient")
    yield from _settings(changed)
    values = [r for r in changed if r.kind == "value"]
    if values:
        yield f"{_listed(values)} {values[0].status if len({r.status for r in values}) == 1 else 'changed'}"
    if diff.stepped:
        yield "the optimizer stepped"
    else:
        yield from _counts(changed, "optimizer state")
    generators = [r.path.partition(".")[2] for r in changed if r.kind == "RNG"]
    if generators:
        yield f"random numbers were drawn ({', '.join(generators)})"


def _counts(changed: list[DifferenceRecord], kind: str) -> Iterator[str]:
    counts = Counter(r.status for r in changed if r.kind == kind)
    yield from (f"{format.plural(count, kind)} {status}" for status, count in sorted(counts.items()))


def _settings(changed: list[DifferenceRecord]) -> Iterator[str]:
    """Hyper-parameters, and whole groups of parameters that came or went."""
    settings = [r for r in changed if r.kind == "hyper-parameter"]
    turned = [r for r in settings if r.status == "changed"]
    if len(turned) == 1 and turned[0].value_after:
        yield f"{format.clean(turned[0].path)} is {format.clean(turned[0].value_after)} (was {format.clean(turned[0].value_before)})"
    elif turned:
        yield f"{_listed(turned)} changed"
    for status in ("added", "removed"):
        its = [r for r in settings if r.status == status]
        groups = {r.path.rpartition(".")[0] for r in its if r.path.endswith(".lr")}
        alone = [r for r in its if r.path.rpartition(".")[0] not in groups]
        if groups:
            yield f"{format.plural(len(groups), 'parameter group')} {status}"
        if alone:
            yield f"{_listed(alone)} {status}"


def _turned(records: list[DifferenceRecord], on: str, off: str) -> str:
    ways = {r.value_after for r in records}
    many = "are" if len(records) > 1 else "is"
    return f"{many} now {on}" if ways == {"True"} else f"{many} now {off}" if ways == {"False"} else "changed"


def _listed(records: list[DifferenceRecord]) -> str:
    return _named([r.path for r in records])


def _named(paths: list[str]) -> str:
    names = [format.clean(path) for path in paths[:3]]
    if len(paths) > 3:
        return f"{len(paths):,} ({', '.join(names)}, ...)"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
