"""The sheet of a difference: rows by module, with unchanged ones folded, and below it what to do."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from modlab import format
from modlab.records.difference import STATUSES, TENSORS, DifferenceRecord, DiffRecord, Loading, Renaming
from modlab.records.finding import Finding
from modlab.records.structure import ROOT
from modlab.views import sharding
from modlab.views.sheets import verdict
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet
from modlab.views.sheets.snapshot import CHANCE
from modlab.wording import differences

ORDER = tuple(word for status in (*STATUSES[1:], STATUSES[0]) for word in verdict.words_of(status))  # what is unchanged is said last
SHOWN = 600
"""Rows up to which modules are opened; of a larger difference the lower levels are folded into their module."""

NAMED = 12
COLUMNS = (
    Column("status", "words", 120, yields=0.6),
    Column("shape", "code", 90, yields=3),
    Column("dtype", "code", 80, yields=4),
    Column("device", "code", 60, yields=5),
    Column("elements", "number", 90, yields=2),
    Column("max abs", "number", 80, yields=0.8),
    Column("relative L2", "number", 90),
)
_SYMBOLS = {
    "gradient": "gradient",
    "optimizer state": "step",
    "hyper-parameter": "step",
    "flag": "store",
    "RNG": "function",
    "value": "store",
    "attribute": "ghost",
}
_STAYED = ("stayed", "stayed on")
_BESIDE = ("gradient", "optimizer state", "flag")
_PLACES = {"random generators": "rng", "settings": "optimizer"}
_APART = {"RNG": "random generators", "hyper-parameter": "settings"}


@dataclass(slots=True)
class Branch:
    """One module path, or one of the groups that stand beside the modules."""

    path: str | None
    name: str
    type: str = ""
    own: list[DifferenceRecord] = field(default_factory=list)
    below: dict[str, Branch] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)
    words: Counter[tuple[str, str]] = field(default_factory=Counter)  # the same, apart by what they are called
    distance: float = 0.0  # the greatest of all below
    relative: float = 0.0  # of what was not all zero before, if there is any
    of_part: bool = False  # some of it is about this rank's part alone

    @property
    def quiet(self) -> bool:
        """Whether nothing at or below it needs its own row."""
        return (
            set(self.tally) <= {"unchanged"}
            and not any(_speaks(record) for record in self.own)
            and all(b.quiet for b in self.below.values())
        )


def of_diff(diff: DiffRecord) -> Sheet:
    """The whole view."""
    rows: tuple[Row, ...] = () if diff.same else tuple(_rows(diff))
    notes = tuple(_notes(diff))
    empty = "" if diff.same else "The two sides have nothing in common to compare."
    if {diff.before_form, diff.after_form} == {"optimizer", "module"}:
        empty += " Whether an optimizer fits a model: modlab.diagnose(model, optimizer)"
    return Sheet("diff", verdict.of_diff(diff), COLUMNS, rows, notes, foot=_foot(diff), empty=empty)


def _rows(diff: DiffRecord) -> Iterator[Row]:
    groups = _tree(diff)
    sizes = [r.relative_l2 for r in diff.records if r.kind in TENSORS and r.relative_l2 is not None and math.isfinite(r.relative_l2)]
    scale = max(sizes, default=0.0)
    limit = _depth(groups)
    for root in groups:
        yield from _branch(root, 0, limit, scale)


def _tree(diff: DiffRecord) -> list[Branch]:
    """The modules, and beside them what belongs to none."""
    root = Branch(
        "", ROOT, diff.after if diff.after_form in ("module", "snapshot") else diff.before if diff.before_form == "module" else ""
    )
    apart: dict[str, Branch] = {}
    modes = {r.owner: r.value_after for r in diff.records if r.kind == "flag" and r.name == "training"}
    for record in diff.records:
        group = _group(record)
        if group is not None:
            _enter([apart.setdefault(group, Branch(None, group))], record)
            continue
        if _follows(record, modes):
            continue
        line, branch = [root], root
        for part in record.owner.split(".") if record.owner else ():
            path = f"{branch.path}.{part}" if branch.path else part
            branch = branch.below.setdefault(part, Branch(path, part))
            line.append(branch)
        _enter(line, record)
    return [*([root] if root.tally else []), *apart.values()]


def _follows(record: DifferenceRecord, modes: dict[str, str]) -> bool:
    """Whether a module's mode changed with that of the module around it, as ``eval()`` does: one row is enough."""
    if record.kind != "flag" or record.name != "training" or not record.owner:
        return False
    return modes.get(record.owner.rpartition(".")[0]) == record.value_after


def _group(record: DifferenceRecord) -> str | None:
    """Where a row stands that belongs to no module; None for all others."""
    if record.kind == "optimizer state":  # of an optimizer whose model is not known; of a root's own parameter it is "weight.exp_avg"
        return "settings" if not record.owner and ".state." in f".{record.path}" else None
    return _APART.get(record.kind)


def _enter(line: list[Branch], record: DifferenceRecord) -> None:
    line[-1].own.append(record)
    line[-1].type = line[-1].type or record.owner_type
    for branch in line:
        branch.tally[record.status] += 1
        if not record.tied or (branch.path and not record.tied.startswith(f"{branch.path}.")):  # where both names are it counts once
            branch.words[_called(record), verdict.status(record)] += 1
        if record.kind in TENSORS:  # a step that is counted, and an average from zero, are no measure for weights
            branch.of_part |= record.of_part
            branch.distance = max(branch.distance, record.max_abs or 0.0)
            branch.relative = max(branch.relative, record.relative_l2 or 0.0, key=verdict.rank)


def _words(records: Iterable[DifferenceRecord]) -> Counter[tuple[str, str]]:
    return Counter((_called(record), verdict.status(record)) for record in records)


def _called(record: DifferenceRecord) -> str:
    """What is counted apart from the tensors of a module."""
    alone = record.kind == "optimizer state" and not record.owner_type  # of an optimizer whose model is not known
    return record.kind if record.kind in _BESIDE and not alone else ""


def _counted(words: Counter[tuple[str, str]]) -> str:
    """How many of each status: tensors first, without a word for them; a status is not said twice."""
    told: list[str] = []
    before = ""
    for kind in ("", *_BESIDE):
        for status in (status for status in ORDER if words[kind, status]):
            count = words[kind, status]
            what = format.plural(count, kind) if kind else f"{count:,}"
            told.append(what if kind and status == before else f"{what} {status}")
            before = status
    return ", ".join(told)


def _plainly(words: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Where nothing changed, all kinds together."""
    found: Counter[tuple[str, str]] = Counter()
    for (_, status), count in words.items():
        found["", status] += count
    return found


def _depth(groups: list[Branch]) -> int:
    """The level down to which modules are opened, so that the rows stay few."""
    level, depth, total = list(groups), 0, 0
    while level:
        total += sum(1 + (0 if b.quiet else len(_spoken(b))) for b in level)
        if total > SHOWN:
            return max(depth - 1, 0)
        level, depth = [b for branch in level if not branch.quiet for b in branch.below.values()], depth + 1
    return depth


def _branch(root: Branch, depth: int, limit: int, scale: float) -> Iterator[Row]:
    stack = [(root, depth)]
    while stack:
        branch, depth = stack.pop()
        yield _module(branch, depth, folded=depth >= limit and not branch.quiet)
        if branch.quiet or depth >= limit:
            continue
        spoken = _spoken(branch)
        told = set(map(id, spoken))
        left = [one for one in branch.own if id(one) not in told and (one.kind not in _BESIDE or one.status != "unchanged")]
        yield from _tensors(spoken, branch, depth + 1, scale)
        if left and spoken:
            yield Row(branch.path, "others", symbol="tensor", place=_at(branch, "*"), depth=depth + 1, cells=_cells(_counted(_words(left))))
        stack += [(below, depth + 1) for below in reversed(branch.below.values())]


def _tensors(spoken: list[DifferenceRecord], branch: Branch, depth: int, scale: float) -> Iterator[Row]:
    """Row by row; what an optimizer knows of a parameter stands folded below it."""
    paths = {record.path for record in spoken if record.kind == "parameter"}
    states: dict[str, list[DifferenceRecord]] = {}
    for record in spoken:
        holder = next((path for path in _above(record.path) if path in paths), "") if record.kind == "optimizer state" else ""
        states.setdefault(holder, []).append(record)
    for record in states.pop("", []):
        its = states.get(record.path, [])
        yield replace(_tensor(record, branch, depth, scale), opened=not its)
        for one in its:
            yield replace(_tensor(one, branch, depth + 1, scale), name=one.path[len(record.path) + 1 :])


def _above(path: str) -> Iterator[str]:
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _spoken(branch: Branch) -> list[DifferenceRecord]:
    """What has a row of its own: all that is not as it was; in a small module where something changed also the tensors that are."""
    loud = [record for record in branch.own if record.status != "unchanged" or _speaks(record)]
    states = [record for record in loud if record.kind == "optimizer state"]
    if len(states) > 2 * NAMED:  # LBFGS keeps a hundred directions and steps
        loud = [record for record in loud if record.kind != "optimizer state"] + states[:NAMED]
    if not loud or len(branch.own) > NAMED:
        return loud
    return [record for record in branch.own if record in loud or record.kind in TENSORS]


def _speaks(record: DifferenceRecord) -> bool:
    return bool(record.notes or record.nan_after or record.inf_after)


def _at(branch: Branch, name: str) -> str:
    return f"{branch.path}.{name}" if branch.path else name


def _module(branch: Branch, depth: int, *, folded: bool) -> Row:
    still = verdict.words_of("unchanged")
    loud = Counter({one: count for one, count in branch.words.items() if one[1] not in still})
    if any(kind != "optimizer state" for kind, _ in loud):  # a step is about the weights
        loud = Counter({one: count for one, count in loud.items() if one[0] != "optimizer state"})
    words = _counted(loud) or _counted(_plainly(branch.words)) or f"{branch.tally['unchanged']:,} unchanged"
    here = f" {sharding.HERE}" if branch.of_part else ""
    cells = _cells(words, distance=branch.distance or None, relative=branch.relative or None, here=here) if folded else _cells(words)
    symbol = "container" if branch.path is not None else "step" if branch.name == "settings" else "function"
    place = _PLACES.get(branch.name) if branch.path is None else None
    note = "folded: .records lists each" if folded else ""
    details = () if branch.quiet else (_summary(branch),)
    return Row(branch.path, branch.name, branch.type, note, symbol, place, depth=depth, cells=cells, details=details)


def _tensor(record: DifferenceRecord, branch: Branch, depth: int, scale: float) -> Row:
    kind = {"parameter": "", "attribute": _unregistered(record)}.get(record.kind, record.kind)
    note = "; ".join(filter(None, _remarks(record)))
    elements = f"{record.changed:,} of {record.here:,}{verdict.here(record)}" if record.max_abs is not None and record.changed else ""
    still, stayed = record.max_abs is None or not record.changed, _stayed(record)
    cells = _cells(
        differences.stays(stayed) if stayed is not None else verdict.status(record),
        _turned(_shape(record.shape_before) or "lazy" * (record.status == "reshaped"), _shape(record.shape_after)),
        _turned(record.dtype_before, record.dtype_after),
        _turned(record.device_before, record.device_after) if {record.device_before, record.device_after} - {"cpu", ""} else "",
        elements,
        None if still else record.max_abs,
        None if still else record.relative_l2,
        scale if record.kind in TENSORS else 0.0,
        _mark(record),
        verdict.here(record),
    )
    name = record.path.rpartition(".")[2] if branch.path is None else record.name
    symbol, details = _SYMBOLS.get(record.kind, "tensor"), tuple(_details(record))
    return Row(branch.path, name, kind, note, symbol, record.path, depth=depth, cells=cells, details=details)


def _stayed(record: DifferenceRecord) -> Finding | None:
    """What says more than "unchanged": "stayed float32"."""
    return next((note for note in record.notes if note.kind in _STAYED), None)


def _unregistered(record: DifferenceRecord) -> str:
    """A tensor that is an attribute itself, or lies in one: in a list, a dict, an object, a module that is in one."""
    return "not registered" if set(record.name) & set("[{.") else "plain tensor attribute"


def _mark(record: DifferenceRecord) -> Mark:
    if record.nan_after > record.nan_before or record.inf_after > record.inf_before:
        return "broken"
    if record.status in ("removed", "not compared"):
        return "absent"
    return "careful" if record.status == "reshaped" or (record.kind == "attribute" and _was_left(record)) else ""


def _cells(
    status: str,
    shape: str = "",
    dtype: str = "",
    device: str = "",
    elements: str = "",
    distance: float | None = None,
    relative: float | None = None,
    scale: float = 0.0,
    mark: Mark = "",
    here: str = "",
) -> tuple[Cell, ...]:
    share = relative / scale if relative and scale and math.isfinite(relative) else None
    return (
        Cell(status, mark=mark),
        Cell(shape),
        Cell(dtype),
        Cell(device),
        Cell(elements),
        Cell("" if distance is None else f"{format.number(distance)}{here}"),
        Cell("" if relative is None else f"{verdict.ratio(relative)}{here}", share),
    )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else str(shape)


def _turned(before: str, after: str) -> str:
    return before if before == after or not after else after if not before else f"{before} → {after}"


def _remarks(record: DifferenceRecord) -> Iterator[str]:
    if record.renamed_from:
        yield f"was {record.renamed_from}"
    if record.status == "resharded":
        yield verdict.resharded(record)
    if record.value_before != record.value_after and record.value_before and record.value_after:
        yield f"{record.value_before} → {record.value_after}"
    elif record.kind == "hyper-parameter" and record.status in ("added", "removed"):
        yield record.value_after or record.value_before
    elif record.kind == "RNG" and record.status == "changed":
        yield "numbers were drawn, or it was seeded"
    for name, was, now in (("NaN", record.nan_before, record.nan_after), ("infinite", record.inf_before, record.inf_after)):
        if now or was:
            yield f"{now:,} {name}" if now == was else f"{was:,} → {now:,} {name}"
    for note in record.notes:
        yield differences.anew(note) if note is _stayed(record) else differences.said(note)


def _details(record: DifferenceRecord) -> Iterator[Block]:
    """What the columns have no room for."""
    if record.kind not in (*TENSORS, "gradient", "optimizer state") or (record.status == "unchanged" and record.same_object is None):
        return
    counted = record.max_abs is not None and record.changed
    here, lies = verdict.here(record), record.sharding_after or record.sharding_before
    facts = [
        ("name before", record.renamed_from),
        ("shape", _turned(_shape(record.shape_before), _shape(record.shape_after))),
        ("dtype", _turned(record.dtype_before, record.dtype_after)),
        ("device", _turned(record.device_before, record.device_after)),
        (
            "elements changed",
            f"{f'{record.changed:,}' if record.changed else 'none'} of {record.here:,}{here}" if record.max_abs is not None else "",
        ),
        ("placement", "" if lies is None else sharding.placement(lies)),
        (sharding.PART, "" if lies is None else sharding.here(lies)),
        ("max abs", f"{format.number(record.max_abs or 0.0)}{here}" if counted else ""),
        ("relative L2", f"{verdict.ratio(record.relative_l2)}{here}" if counted and record.relative_l2 is not None else ""),
        ("by weight decay alone", f"{record.decayed:,}" if record.decayed else ""),
        ("object", "" if record.same_object is None else "the same" if record.same_object else "a different one"),
        ("the same tensor as", record.tied),
        ("memory", "" if record.shares_memory is None else "shared" if record.shares_memory else "its own"),
    ]
    yield Block(verdict.status(record), rows=tuple((name, value) for name, value in facts if value))


def _summary(branch: Branch) -> Block:
    """What is at and below a module."""
    kinds = [(kind, status) for kind in ("", *_BESIDE) for status in ORDER if branch.words[kind, status]]
    rows = [(f"{kind} {status}".strip(), f"{branch.words[kind, status]:,}") for kind, status in kinds]
    if branch.distance:
        here = " here" if branch.of_part else ""
        rows.append(("greatest max abs", f"{format.number(branch.distance)}{here}"))
        rows.append(("greatest relative L2", f"{verdict.ratio(branch.relative)}{here}"))
    return Block("here and below", rows=tuple(rows))


# ---- below the table -------------------------------------------------------------------------------------------------------


def _notes(diff: DiffRecord) -> Iterator[Block]:
    if diff.same:
        yield Block(
            "before",
            "Take a snapshot first, then change the model, then compare.",
            "before = modlab.snapshot(model)\n...\nmodlab.diff(before, model)",
        )
        return
    if diff.loading is not None and diff.loading.repaired is not None:
        yield _repair(diff, diff.loading, diff.loading.repaired)
        yield from _sharing(diff)
    else:
        yield from _sharing(diff)
        if diff.loading is not None:
            yield from _loading(diff.loading, any(r.noted("held") is not None for r in diff.records))
        yield from (Block("renamed", f"{_reason(renaming)}.", renaming.code) for renaming in diff.renamings)
    yield from _objects(diff)
    yield from _left(diff)
    yield from _most(diff)
    if diff.digests:
        text = "which show whether values changed but not by how much; fingerprints are of bits, so 0.0 and -0.0 differ"
        yield Block("chance", f"Compared by fingerprints, {text}. {CHANCE}")
    for remark in diff.remarks:
        yield Block("not known", remark)
    for skipped in diff.skipped:
        yield Block("compared" if skipped.compared else "not compared", skipped.text)


def _reason(renaming: Renaming) -> str:
    return f"{differences.renaming(renaming)} ({format.plural(renaming.names, 'tensor')}, {renaming.evidence})"


def _repair(diff: DiffRecord, loading: Loading, then: Loading) -> Block:
    """What prevents loading, the code that fixes it, and what would still prevent it then."""
    why = "; ".join(_reason(renaming) for renaming in diff.renamings)
    if then.fails:
        end = f"That repairs the names, but it would still raise: {', '.join(verdict.reasons(then))}."
    else:
        doubt = f"; {then.doubts[0]} loads its part with its own code" if then.doubts else ""
        end = f"With these names it loads all {format.plural(then.loads, 'tensor')}{doubt}."
    rows = tuple(_obstacles(then)) if then.fails or then.converted else ()
    prose = f"As it is, load_state_dict raises: {', '.join(verdict.reasons(loading))}. {why}. {end}"
    return Block(
        "repair",
        prose,
        _running(then, loading.repair),
        ("what", "key", "why") if rows else (),
        rows,
        mark="broken" if then.fails else "careful",
    )


def _sharing(diff: DiffRecord) -> Iterator[Block]:
    shared = verdict.shared(diff)
    if shared and not diff.same and {diff.before_form, diff.after_form} == {"mapping", "module"}:
        code = "best = {k: v.clone() for k, v in model.state_dict().items()}"
        all_of_them = len(shared) == len(verdict.tensors(diff))
        prose = (
            "state_dict() returns the live memory, not a copy"
            if all_of_them
            else f"{format.plural(len(shared), 'tensor is', 'tensors are')} live memory, not a copy"
        )
        yield Block("clone it", f"{prose}: training keeps changing it.", code, mark="careful")


def _obstacles(loading: Loading) -> list[tuple[str, str, str]]:
    """Key by key, what would not load, or not unchanged."""
    rows = [
        *(("missing", key, "in the model, but not in the weights") for key in loading.missing[:NAMED]),
        *(("unexpected", key, "in the weights, but not in the model") for key in loading.unexpected[:NAMED]),
        *(("size mismatch", key, f"{given} does not fit into {wanted}") for key, given, wanted in loading.mismatched[:NAMED]),
        *(("not a tensor", key, kind) for key, kind in loading.wrong[:NAMED]),
        *(("converted", key, f"{given} → {wanted}, silently") for key, given, wanted in loading.converted[:NAMED]),
    ]
    left = sum(
        max(len(its) - NAMED, 0) for its in (loading.missing, loading.unexpected, loading.mismatched, loading.wrong, loading.converted)
    )
    if left:
        rows.append(("", f"and {left:,} more", ""))
    return rows


def _loading(loading: Loading, swapped: bool) -> Iterator[Block]:
    rows, doubt = _obstacles(loading), " Some have each other's values: look at their names first." if swapped else ""
    if loading.doubts:
        names = ", ".join(loading.doubts[:3]) + (", ..." if len(loading.doubts) > 3 else "")
        verb, whose = ("load", "their") if len(loading.doubts) > 1 else ("loads", "its")
        doubt += f" {names} {verb} {whose} part with {whose} own code: only loading shows whether it works."
    yield Block(
        "load_state_dict",
        f"{_outcome(loading)}{doubt}".strip(),
        _running(loading, loading.code),
        ("what", "key", "why") if rows else (),
        tuple(rows),
        mark="careful" if swapped and not loading.fails else _grade(loading),
    )


def _running(loading: Loading, code: str) -> str:
    """The call that does not raise: all of it, or only what fits; empty where nothing fits."""
    if not loading.fails:
        return code
    before, call, given = code.rpartition("model.load_state_dict(")
    if not loading.loads or not call:
        return ""
    given = given.removesuffix(")")
    if not (loading.mismatched or loading.wrong):
        return f"{before}print(model.load_state_dict({given}, strict=False))  # only what fits"
    chosen = "{k: v for k, v in state_dict.items() if k in own and getattr(v, 'shape', None) == getattr(own[k], 'shape', None)}"
    named = "" if given == "state_dict" else f"state_dict = {given}\n"
    return (
        f"{before}{named}own = model.state_dict()\nfitting = {chosen}\n"
        "print(model.load_state_dict(fitting, strict=False))  # only what fits"
    )


def _grade(loading: Loading) -> Mark:
    return "broken" if loading.fails else "careful" if loading.converted or loading.doubts else "fine"


def _outcome(loading: Loading) -> str:
    if not loading.fails and not loading.loads and loading.doubts:
        return ""
    if not loading.fails:
        silent = f"; {format.plural(len(loading.converted), 'tensor is', 'tensors are')} silently converted" if loading.converted else ""
        return f"It would load all {format.plural(loading.loads, 'tensor')}{silent}."
    said = f"It would raise a RuntimeError: {', '.join(verdict.reasons(loading))}."
    if loading.mismatched or loading.wrong:
        return f"{said} strict=False would raise as well: it forgives names, not sizes."
    return f"{said} strict=False would load {loading.loads:,} and leave {len(loading.missing):,} unchanged."


def _objects(diff: DiffRecord) -> Iterator[Block]:
    """That a model holds new tensor objects, while an optimizer still holds the old ones."""
    others = verdict.replaced(diff)
    if others:
        names = ", ".join(r.path for r in others[:4]) + (", ..." if len(others) > 4 else "")
        yield Block(
            "new objects",
            f"{names}: no longer the same tensor object. An optimizer created earlier still holds the old one.",
            mark="careful",
        )


def _left(diff: DiffRecord) -> Iterator[Block]:
    """What ``.to()`` does not reach, and how to change that."""
    paths = [r.path for r in diff.records if r.kind == "attribute" and _was_left(r)]
    if paths:
        names = ", ".join(paths[:4]) + (", ..." if len(paths) > 4 else "")
        it = "it" if len(paths) == 1 else "them"
        how = "In __init__: self.register_buffer(name, tensor) for a tensor; nn.ModuleList or nn.ParameterList for a list."
        yield Block("left behind", f"{names}: not registered, so .to() and .cuda() do not reach {it}. {how}", mark="careful")


def _was_left(record: DifferenceRecord) -> bool:
    """Where the next forward computes it anew, it needs no help."""
    return any("derived_by" not in note.facts for note in record.notes if note.kind in _STAYED)


def _most(diff: DiffRecord) -> Iterator[Block]:
    """Where modules are folded: the tensors that changed most."""
    if len(diff.records) <= SHOWN:
        return
    known = [r for r in diff.records if r.kind in TENSORS and r.relative_l2]
    known.sort(key=lambda r: verdict.rank(r.relative_l2 or 0.0), reverse=True)
    if known:
        rows = tuple(
            (r.path, f"{format.number(r.max_abs or 0)}{verdict.here(r)}", f"{verdict.ratio(r.relative_l2 or 0)}{verdict.here(r)}")
            for r in known[:NAMED]
        )
        yield Block("most changed", head=("path", "max abs", "relative L2"), rows=rows)


def _foot(diff: DiffRecord) -> str:
    compared = [record for record in diff.records if record.max_abs is not None and not record.tied]
    here = f" {sharding.HERE}" if any(record.of_part for record in compared) else ""
    elements = f"{format.plural(sum(record.here for record in compared), 'element')}{here}"
    return f"{format.plural(len(compared), 'tensor')} compared, {elements}; equal ones are folded"
