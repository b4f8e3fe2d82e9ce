"""The headline, the one sentence that opens every result: its subject first, then the most surprising fact."""

from __future__ import annotations

from modlab import format
from modlab.records.state import MODEL, TableRecord, ValuesRecord
from modlab.records.structure import Subtree, Totals, TreeRecord
from modlab.views import numbers, sharding


def of_tree(tree: TreeRecord) -> tuple[str, str]:
    """The sentence in two halves; the first is printed bold."""
    root = tree.root
    totals = root.totals
    held = f"{format.plural(totals.parameters, 'parameter')} in {format.plural(tree.modules, 'module')}"
    strong = ", ".join([f"{format.clean(root.type)}: {held}", *sharding.spread(tree.ranks)])
    facts = [*_hidden(tree), *_odd(tree), *_gradient(tree)]
    if totals.bytes:
        where = " and ".join(totals.devices) if len(totals.devices) < 3 else f"{len(totals.devices)} devices"
        what = ", ".join(totals.dtypes) if len(totals.dtypes) < 4 else f"{len(totals.dtypes)} dtypes"
        size = f"{sharding.size(totals.bytes, totals.bytes_here)}{unreal(totals)}"
        if tree.again and tree.ranks is None:
            size += f" in tensors that share {format.size(totals.bytes - tree.again)} of memory"
        facts.append(f"{size}, {what} on {where}")
    return f"{strong};" if facts else f"{strong}.", f"{', '.join(facts)}." if facts else ""


def unreal(totals: Totals) -> str:
    """A note that nothing is in memory: tensors on the meta device have no numbers."""
    return "" if "meta" not in totals.devices else f" if {'it' if len(totals.devices) == 1 else 'all of it'} were real"


def _hidden(tree: TreeRecord) -> list[str]:
    modules = tensors = 0
    if not any(subtree.ghosts for subtree in tree.subtrees()):
        return []
    for subtree, times in occurrences(tree):
        for ghost in subtree.ghosts:
            if not ghost.harmless:
                modules += ghost.modules * times
                tensors += ghost.tensors * times
    facts = []
    if modules:
        facts.append(f"{format.plural(modules, 'module is', 'modules are')} hidden from PyTorch")
    if tensors:
        facts.append(f"{format.plural(tensors, 'tensor is', 'tensors are')} hidden from PyTorch")
    return facts


def occurrences(tree: TreeRecord) -> list[tuple[Subtree, int]]:
    """How often each distinct subtree stands in the tree, root first; a second name of a module does not count."""
    times = {id(tree.root): 1}
    counted = []
    for subtree in reversed(tree.subtrees()):
        here = times.get(id(subtree), 0)
        counted.append((subtree, here))
        for run in subtree.runs:
            if run.subtree is not None and run.same_as is None:
                times[id(run.subtree)] = times.get(id(run.subtree), 0) + here * len(run.names)
    return counted


def _odd(tree: TreeRecord) -> list[str]:
    facts = []
    totals = tree.root.totals
    if len(totals.devices) > 1:
        facts.append("on several devices")
    if tree.ties:
        (later, first), *_ = tree.tied
        facts.append(f"{format.plural(tree.ties, 'tensor is', 'tensors are')} tied ({format.clean(later)} = {format.clean(first)})")
    if tree.aliased:
        (later, first), *_ = tree.aliases
        name = format.clean(first) or "(root)"
        facts.append(f"{format.plural(tree.aliased, 'module has', 'modules have')} several names ({format.clean(later)} = {name})")
    if totals.lazy:
        facts.append(f"{format.plural(totals.lazy, 'tensor has', 'tensors have')} no shape yet")
    modes = {subtree.training for subtree in tree.subtrees()}
    if len(modes) > 1:
        facts.append("some modules in training mode, some in evaluation mode")
    elif modes == {False}:
        facts.append("in evaluation mode")
    return facts


def _gradient(tree: TreeRecord) -> list[str]:
    totals = tree.root.totals
    if not totals.parameters:
        return []
    if totals.trainable == totals.parameters:
        return ["all trainable"]
    return ["all frozen" if not totals.trainable else f"{totals.trainable:,} trainable"]


def of_table(table: TableRecord) -> tuple[str, str]:
    """The sentence of a state table."""
    saved = sum(row.in_state_dict for row in table.rows)
    name = format.clean(table.title)
    if table.source != MODEL:
        tensors, others = (row_count(table, tensors=wanted) for wanted in (True, False))
        names = ("bytes", "bytes_here", "count")
        size, here, count = (sum(getattr(row, name) for row in table.rows if row.kind == "tensor" and not row.tied) for name in names)
        more = f", and {format.plural(others, 'other entry', 'other entries')}" if others else ""
        return f"{name}: {format.plural(count, 'number')} in {format.plural(tensors, 'tensor')};", f"{sharding.size(size, here)}{more}."
    strong = f"{name}: {saved:,} of {format.plural(len(table.rows), 'entry is', 'entries are')} in the state_dict"
    strong = ", ".join([strong, *sharding.spread(table.ranks)])
    facts = [*_marks(table), *_absent(table), *_grads(table)]
    return (f"{strong};", f"{', '.join(facts)}.") if facts else (f"{strong}.", "")


def row_count(table: TableRecord, *, tensors: bool) -> int:
    """How many rows of a file are tensors, or are not."""
    return sum((row.kind == "tensor") is tensors for row in table.rows)


def counter(table: TableRecord) -> str:
    """How many rows there are, in the words of the sentence."""
    if table.source == MODEL:
        saved = sum(row.in_state_dict for row in table.rows)
        return f"{format.plural(len(table.rows), 'entry', 'entries')}, {saved:,} in the state_dict"
    tensors, others = (row_count(table, tensors=wanted) for wanted in (True, False))
    more = f", {format.plural(others, 'other entry', 'other entries')}" if others else ""
    return f"{format.plural(tensors, 'tensor')}{more}"


def _listed(paths: list[str], singular: str, plural: str) -> list[str]:
    if not paths:
        return []
    shown = [format.clean(path) for path in paths[:3]]
    if len(paths) > 3:
        return [f"{len(paths):,} {plural} ({', '.join(shown)}, ...)"]
    names = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return [f"{names} {singular if len(shown) == 1 else plural}"]


def _marks(table: TableRecord) -> list[str]:
    facts = []
    if table.orphans:
        facts.append(f"the optimizer holds {format.plural(len(table.orphans), 'tensor')} that the model does not have")
    for mark in sorted({row.mark for row in table.rows if row.mark}):
        facts += _listed([row.path for row in table.rows if row.mark == mark], f"is {mark}", f"are {mark}")
    return facts


def _absent(table: TableRecord) -> list[str]:
    rows = [row for row in table.rows if not row.in_state_dict]
    return [
        *_listed([r.path for r in rows if r.kind == "attribute" and not r.derived], "is not registered", "are not registered"),
        *_listed([r.path for r in rows if r.kind == "reserved"], "is reserved", "are reserved"),
        *_listed([r.path for r in rows if r.kind == "buffer"], "is not persistent", "are not persistent"),
    ]


def _grads(table: TableRecord) -> list[str]:
    grads = [row.grad for row in table.rows if row.grad and not row.tied]
    if not grads:
        return []
    if set(grads) == {"none"}:
        return ["no gradient yet"]
    missing, zero, zero_here = (grads.count(word) for word in ("none", "zero", "zero here"))
    facts = []
    if missing:
        facts.append(f"{format.plural(missing, 'parameter has', 'parameters have')} no gradient")
    if zero:
        facts.append(f"{format.plural(zero, 'gradient is', 'gradients are')} zero")
    if zero_here:
        facts.append(f"{format.plural(zero_here, 'gradient is', 'gradients are')} zero in {sharding.PART}")
    return facts or ["every trainable parameter has a gradient"]


def of_values(values: ValuesRecord) -> tuple[str, str]:
    """The sentence of one tensor."""
    stats = values.stats
    name = format.clean(values.path) or "tensor"
    dtype = f"{stats.stored}, computes in {stats.dtype}," if stats.stored else stats.dtype
    strong = f"{name}: {dtype} {stats.shape} on {stats.device}"
    if stats.sharding is not None:
        whole = f"{dtype} {stats.sharding.shape}, {sharding.placement(stats.sharding)}, on {stats.device}"
        strong = f"{name}, {sharding.PART} {stats.shape} of {whole}" if stats.of_part else f"{name}: {whole}"
    if not stats.measured:
        return f"{strong};", f"{stats.note}."
    facts = []
    infinite = stats.posinf + stats.neginf
    if stats.nan:
        facts.append(f"{stats.nan:,} NaN")
    if infinite:
        facts.append(f"{infinite:,} infinite")
    if constant := numbers.constant(stats):
        facts.append(constant)
    elif stats.finite:
        facts.append(f"mean {format.number(numbers.mean(stats))}, std {format.number(stats.std)}")
        facts.append(f"from {format.number(stats.min)} to {format.number(stats.max)}")
    if not stats.count:
        facts.append("no elements")
    return f"{strong};", f"{', '.join(facts)}."
