"""The one sentence that every result opens with: its subject first, then the most surprising fact."""

from __future__ import annotations

from modlab import format
from modlab.records.structure import Subtree, TreeRecord


def of_tree(tree: TreeRecord) -> tuple[str, str]:
    """The sentence in two halves; the first is printed bold."""
    root = tree.root
    totals = root.totals
    strong = f"{format.clean(root.type)}: {format.plural(totals.parameters, 'parameter')} in {format.plural(tree.modules, 'module')}"
    facts = [*_hidden(tree), *_odd(tree), *_gradient(tree)]
    if totals.bytes:
        where = " and ".join(totals.devices) if len(totals.devices) < 3 else f"{len(totals.devices)} devices"
        what = ", ".join(totals.dtypes) if len(totals.dtypes) < 4 else f"{len(totals.dtypes)} dtypes"
        facts.append(f"{format.size(totals.bytes)}, {what} on {where}")
    return f"{strong};" if facts else f"{strong}.", f"{', '.join(facts)}." if facts else ""


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
    return facts


def _gradient(tree: TreeRecord) -> list[str]:
    totals = tree.root.totals
    if not totals.parameters:
        return []
    if totals.trainable == totals.parameters:
        return ["all trainable"]
    return ["all frozen" if not totals.trainable else f"{totals.trainable:,} trainable"]
