"""The headline of a difference: the most surprising fact first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from modlab import format
from modlab.records.difference import TENSORS, DifferenceRecord, DiffRecord, Loading


def tensors(diff: DiffRecord) -> list[DifferenceRecord]:
    """The rows of the state itself."""
    return [r for r in diff.records if r.kind in TENSORS and (r.shape_before is not None or r.shape_after is not None)]


def shared(diff: DiffRecord) -> list[DifferenceRecord]:
    """Rows of which both sides are the same memory."""
    return [r for r in diff.records if r.shares_memory]


def of_diff(diff: DiffRecord) -> tuple[str, str]:
    """Two halves; the first is printed bold."""
    name = format.clean(_name(diff))
    if diff.same:
        return (
            f"{name}: both sides are the same object;",
            "nothing can differ. Take a snapshot before the change: before = modlab.snapshot(model).",
        )
    if not diff.records:
        return f"{name}: nothing to compare.", ""
    facts = [*_memory(diff), *_loading(diff), *_broken(diff), *_values(diff), *_about(diff)]
    first, *rest = facts or ["nothing changed, and no tensor was compared"]
    return (f"{name}: {first};", "; ".join(rest) + ".") if rest else (f"{name}: {first}.", "")


def _name(diff: DiffRecord) -> str:
    before, after = diff.before, diff.after
    if diff.before_form == diff.after_form == "file" or before == after:
        return before if before == after else f"{before} → {after}"
    return before if diff.before_form == "snapshot" and diff.after_form != "file" else f"{before} → {after}"


def _memory(diff: DiffRecord) -> Iterator[str]:
    """That a kept state_dict is the live model."""
    if {diff.before_form, diff.after_form} != {"mapping", "module"}:
        if diff.live and shared(diff):
            yield f"{len(shared(diff)):,} tensors are the same memory on both sides"
        return
    its, all_of_them = shared(diff), tensors(diff)
    if its and len(its) == len(all_of_them):
        yield "every value is the same memory as the model's, so it will change with it: clone it"
    elif its:
        yield f"{len(its):,} of {format.plural(len(all_of_them), 'tensor')} are the same memory as the model's"


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
        said.append(f"{format.plural(len(loading.wrong), 'value')} that {'is' if len(loading.wrong) == 1 else 'are'} no tensor")
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


def _values(diff: DiffRecord) -> Iterator[str]:
    its = tensors(diff)
    if not its:
        return
    tally = Counter(r.status for r in its)
    both = [r for r in its if r.status not in ("added", "removed")]
    if both:
        yield f"{sum(map(_changed, both)):,} of {format.plural(len(both), 'tensor')} changed"
    decayed = [r for r in both if r.decayed]
    alone = [r for r in decayed if r.decayed == r.changed]
    if alone:
        yield f"{_listed(alone)} by weight decay alone"
    elif decayed:
        yield f"{_listed(decayed)} in part by weight decay alone"
    yield from _kinds(its)
    yield from (f"{tally[status]:,} {status}" for status in ("reshaped", "added", "removed") if tally[status])
    names = [r for r in its if r.renamed_from]
    if names:
        reason = f" ({diff.renamings[0].reason})" if len(diff.renamings) == 1 else ""
        yield f"{len(names):,} renamed{format.clean(reason)}"
    blank = sum(r.max_abs is None and r.status in ("unchanged", "moved", "retyped", "renamed") and r.count > 0 for r in both)
    if blank and not diff.digests:
        yield f"{format.plural(blank, 'tensor has', 'tensors have')} no values to compare"


def _changed(record: DifferenceRecord) -> bool:
    """Whether its values are others than before, be it under another name or in another dtype."""
    return record.status in ("changed", "reshaped") or bool(record.changed)


def _kinds(its: list[DifferenceRecord]) -> Iterator[str]:
    """What is of another dtype or on another device now, and what stayed behind."""
    for word, facts in (("is", ("dtype_before", "dtype_after")), ("is on", ("device_before", "device_after"))):
        pairs = [(r, getattr(r, facts[0]), getattr(r, facts[1])) for r in its if r.shape_before is not None and r.shape_after is not None]
        turned = Counter(now for _, was, now in pairs if was != now)
        stayed = [(r, now) for r, was, now in pairs if was == now and now not in turned]
        for now, times in sorted(turned.items()):
            many = word.replace("is", "are") if times > 1 else word
            yield f"{format.plural(times, 'tensor')} {many} {now} now"
        if turned and stayed:
            kinds = sorted({now for _, now in stayed})
            yield f"{_listed([r for r, _ in stayed])} stayed {'on ' * (word == 'is on')}{' or '.join(kinds)}"


def _about(diff: DiffRecord) -> Iterator[str]:
    """Flags, gradients, the optimizer, random numbers."""
    changed = [r for r in diff.records if r.status not in ("unchanged", "moved")]
    flags = [r for r in changed if r.kind == "flag"]
    modes = [r for r in flags if r.path.rpartition(".")[2] == "training"]
    if modes:
        yield f"{format.plural(len(modes), 'module')} {_turned(modes, 'in training mode', 'in evaluation mode')}"
    if len(flags) > len(modes):
        frozen = [r for r in flags if r not in modes]
        yield f"{format.plural(len(frozen), 'parameter')} {_turned(frozen, 'trainable', 'frozen')}"
    grads = Counter(r.status for r in changed if r.kind == "gradient")
    yield from (f"{format.plural(n, 'gradient')} {status}" for status, n in sorted(grads.items()))
    settings = [r for r in changed if r.kind == "hyper-parameter"]
    if settings:
        yield f"{_listed(settings)} changed"
    if diff.stepped:
        yield "the optimizer stepped"
    generators = [r.path.partition(".")[2] for r in changed if r.kind == "RNG"]
    if generators:
        yield f"random numbers were drawn ({', '.join(generators)})"


def _turned(records: list[DifferenceRecord], on: str, off: str) -> str:
    ways = {r.value_after for r in records}
    many = "are" if len(records) > 1 else "is"
    return f"{many} {on} now" if ways == {"True"} else f"{many} {off} now" if ways == {"False"} else "changed"


def _listed(records: list[DifferenceRecord]) -> str:
    names = [format.clean(r.path) for r in records[:3]]
    if len(records) > 3:
        return f"{len(records):,} ({', '.join(names)}, ...)"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
