"""Tensors that were renamed: by a rule that their names follow, else by their bits, else by their shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from modlab.inspection.fingerprint import BLOCK, fingerprint, whole
from modlab.inspection.inventory import InventoryEntry
from modlab.inspection.tensor_difference import equal_bits
from modlab.records.difference import Renaming
from modlab.statistics.contents import blocks_of
from modlab.statistics.memory import is_there

WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Names that wrappers of torch put between a module and its parts."""

SUFFIXES = (
    ("weight_g", "parametrizations.weight.original0"),
    ("weight_v", "parametrizations.weight.original1"),
    ("weight", "parametrizations.weight.original"),
    ("weight", "weight_orig"),
    ("bias", "bias_orig"),
    ("gamma", "weight"),
    ("beta", "bias"),
)
"""What utilities and older files call the same thing: weight norm, parametrizations, pruning, layer norms."""

SAMPLE = 64  # names of which rules are guessed
PROBED = 8  # pairs of which the bits are compared to prefer one rule to another
MISFITS = 4  # of so many names that fit a rule, one may be of another size; else the rule is no more than a guess
LISTED = 40  # single names that a line of code may list

Pair = tuple[InventoryEntry, InventoryEntry]


class RenameRule(NamedTuple):
    """How names change.

    Attributes:
        kind, was, now: as a `Renaming` has them.
        apply: a name before → after; the same where the rule does not hold.
        code: an expression of ``k``.
        sure: known by its words, so that one pair is enough.
    """

    kind: str
    was: str
    now: str
    apply: Callable[[str], str]
    code: str
    sure: bool = False


@dataclass(slots=True)
class Side:
    """What is left of a side, by name."""

    entries: dict[str, InventoryEntry]

    def take(self, name: str) -> InventoryEntry:
        """Found its counterpart."""
        return self.entries.pop(name)


def match(
    before: Sequence[InventoryEntry], after: Sequence[InventoryEntry], kept: Iterable[str], variable: str
) -> tuple[list[Pair], list[Renaming]]:
    """Pairs of one tensor under two names, and the code that turns the first name into the second.

    Args:
        before: what has no counterpart of its name.
        after: likewise, on the other side.
        kept: names on the side before that have one, which the code must leave as they are.
        variable: what the code calls the mapping.
    """
    left, right = Side({e.path: e for e in before}), Side({e.path: e for e in after})
    names = [*kept, *left.entries]
    pairs: list[Pair] = []
    renamings: list[Renaming] = []
    while left.entries and right.entries:
        rule = _best(left, right)
        if rule is None:
            break
        hits = [(name, new) for name, new in _hits(rule, left, right)]
        found = [(left.take(name), right.take(new)) for name, new in hits]
        pairs += found
        renamings.append(
            Renaming(rule.kind, rule.was, rule.now, len(found), _code_of_rule(rule, dict(hits), names, variable), "same names")
        )
    for evidence, finder in (("same bits", _by_bits), ("same shapes", _by_shapes)):
        found = [(left.take(name), right.take(new)) for name, new in finder(left, right)]
        if found:
            pairs += found
            code = _code_of_names({b.path: a.path for b, a in found}, variable)
            renamings.append(Renaming("single", found[0][0].path, found[0][1].path, len(found), code, evidence))
    return pairs, renamings


def _best(left: Side, right: Side) -> RenameRule | None:
    """The rule that the most names follow; of two the one whose tensors have the same bits. A guess that another equals is none."""
    found: list[tuple[tuple[int, int, int], RenameRule, dict[str, str]]] = []
    for rule in _rules(left, right):
        hits = _hits(rule, left, right)
        probed = sorted(hits, key=lambda pair: -len(left.entries[pair[0]].facts.shape or ()))[:PROBED]
        alike = sum(_same(left.entries[a], right.entries[b]) and _telling(left.entries[a]) for a, b in probed)
        fits = sum(_alike(left.entries[a], right.entries[b]) for a, b in hits)
        guess = (
            fits > 1
            and (len(hits) - fits) * MISFITS <= fits
            and any(_telling(side) for a, b in probed for side in (left.entries[a], right.entries[b]))
        )
        if hits and (alike or rule.sure or guess):
            found.append(((min(alike, 1), len(hits), alike), rule, dict(hits)))
    found.sort(key=lambda one: one[0], reverse=True)
    return next((rule for score, rule, hits in found if score[0] or rule.sure or not _rivalled(score, hits, found)), None)


def _rivalled(
    score: tuple[int, int, int], hits: dict[str, str], found: list[tuple[tuple[int, int, int], RenameRule, dict[str, str]]]
) -> bool:
    """Whether another rule, with as good a reason, gives some of these names to others."""
    for other, _, theirs in found:
        if other == score and theirs != hits and (theirs.keys() & hits.keys() or set(theirs.values()) & set(hits.values())):
            return True
    return False


def _hits(rule: RenameRule, left: Side, right: Side) -> list[tuple[str, str]]:
    """Names that the rule leads to a name on the other side; that of a layer of another size only beside such that fit."""
    found = [(name, new) for name in left.entries if (new := rule.apply(name)) != name and new in right.entries]
    found = list({new: (name, new) for name, new in reversed(found)}.values())[::-1]
    fits = [_alike(left.entries[a], right.entries[b]) for a, b in found]
    return found if sum(fits) * 2 >= len(fits) else [pair for pair, fit in zip(found, fits, strict=True) if fit]


def _alike(one: InventoryEntry, other: InventoryEntry) -> bool:
    return one.facts.shape == other.facts.shape


def head(entry: InventoryEntry) -> bytes | None:
    """A few elements, or the fingerprint, by which tensors of one size are told apart; None where they cannot be read."""
    if entry.digest is not None:
        return entry.digest
    tensor = entry.part()
    if tensor is None or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or not is_there(tensor):
        return None
    try:
        return bytes(whole(tensor.detach().reshape(-1)[:PROBED].clone()).cpu().view(torch.uint8).tolist())
    except (RuntimeError, NotImplementedError, TypeError):  # a kind of tensor that has no such view
        return None


def alike(one: InventoryEntry, other: InventoryEntry) -> bool:
    """Whether two tensors have the same bits, and such that tell which tensor it is."""
    return _same(one, other) and _telling(one)


def _same(one: InventoryEntry, other: InventoryEntry) -> bool:
    if one.facts.shape != other.facts.shape or one.facts.dtype != other.facts.dtype:
        return False
    if one.digest or other.digest:
        return _digest(one) == _digest(other) is not None
    left, right = one.part(), other.part()
    return left is not None and right is not None and equal_bits(left, right)


def _telling(entry: InventoryEntry) -> bool:
    """Whether its bits say which tensor it is; those of zeros, of ones and of single numbers are the bits of many."""
    facts = entry.facts
    if facts.count < 2 or facts.shape is None:
        return False
    try:
        if entry.digest is not None:
            dtype = getattr(torch, facts.dtype)
            dull = (fingerprint(torch.full((1,), value, dtype=dtype).expand(facts.shape)) for value in (0, 1))
            return facts.count > BLOCK or entry.digest not in dull
        tensor = entry.part()
        if tensor is None or tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
            return tensor is not None
        width = 2 if tensor.is_complex() else 1
        first = None
        for block in map(whole, blocks_of(tensor, BLOCK)):
            first = block[:width] if first is None else first
            if bool((block.view(-1, width) != first).any()):
                return True
        return False
    except Exception:  # noqa: BLE001 - a kind of tensor that cannot be read so: its bits are no zeros
        return True


def _digest(entry: InventoryEntry) -> bytes | None:
    if entry.digest is None:
        tensor = entry.part()
        try:
            return None if tensor is None else fingerprint(tensor)
        except Exception:  # noqa: BLE001 - a tensor without values, or of a kind that cannot be read
            return None
    return entry.digest


# ---- rules -----------------------------------------------------------------------------------------------------------------


def _rules(left: Side, right: Side) -> list[RenameRule]:
    some = list(left.entries)[:: max(1, len(left.entries) // SAMPLE)][:SAMPLE]
    places, middles, ends = _prefixes(some, left, right)
    fronts = [_prefix(old, new) for old, new in places]
    rules = [rule for rule in fronts if rule.sure]  # of two that explain as much, the first is taken
    rules += [_without(word) for word in WRAPPERS if any(word in name.split(".") for name in some)]
    rules += [rule for rule in fronts if not rule.sure]
    rules += [_infix(old, new) for old, new in middles]
    rules += [_suffix(old, new, sure=False) for old, new in ends]
    rules += [_suffix(old, new) for pair in SUFFIXES for old, new in (pair, pair[::-1])]
    rules += [_suffix(old, new, sure=False) for old, new in _endings(some, left, right)]
    return rules


_Guesses = list[tuple[str, str]]


def _prefixes(some: list[str], left: Side, right: Side) -> tuple[_Guesses, _Guesses, _Guesses]:
    """What stands before the common end of two names; between their common front and end; before their last part, if one has it alone."""
    by_end: dict[str, list[str]] = {}
    for name in right.entries:
        by_end.setdefault(name.rpartition(".")[2], []).append(name)
    votes: tuple[Counter[tuple[str, str]], ...] = (Counter(), Counter(), Counter())
    for name in some:
        for other in _spread(by_end.get(name.rpartition(".")[2], [])):
            if _alike(left.entries[name], right.entries[other]):
                old, new = _fronts(name, other)
                votes[0][_joined(old), _joined(new)] += 1
                while old and new and old[0] == new[0]:
                    del old[0], new[0]
                last = name.rpartition(".")[2]
                if old:
                    votes[1][_joined(old), _joined(new)] += 1
                else:
                    votes[2][last, _joined(new) + last] += 1
    places, middles, ends = ([pair for pair, _ in some.most_common(8)] for some in votes)
    return places, middles, ends


def _spread(names: list[str]) -> list[str]:
    return names[:: max(1, len(names) // 256)][:300]


def _fronts(name: str, other: str) -> tuple[list[str], list[str]]:
    ours, theirs = name.split("."), other.split(".")
    while ours and theirs and ours[-1] == theirs[-1]:
        ours.pop(), theirs.pop()
    return ours, theirs


def _joined(parts: list[str]) -> str:
    return "".join(f"{part}." for part in parts)


def _endings(some: list[str], left: Side, right: Side) -> list[tuple[str, str]]:
    """What stands behind the common front of two names of one module."""
    by_owner: dict[str, list[str]] = {}
    for name in right.entries:
        by_owner.setdefault(name.rpartition(".")[0], []).append(name)
    votes: Counter[tuple[str, str]] = Counter()
    for name in some:
        owner, _, last = name.rpartition(".")
        for other in by_owner.get(owner, ())[:SAMPLE]:
            if _alike(left.entries[name], right.entries[other]):
                votes[(last, other.rpartition(".")[2])] += 1
    return [pair for pair, times in votes.most_common(8) if times > 1]


def _prefix(old: str, new: str) -> RenameRule:
    def apply(name: str) -> str:
        return new + name[len(old) :] if name.startswith(old) else name

    sure = {old, new} - {""} <= {f"{word}." for word in WRAPPERS}
    if not new:
        return RenameRule("in front", old, new, apply, f"k.removeprefix({old!r})", sure)
    if not old:
        return RenameRule("missing", old, new, apply, f"{new!r} + k", sure)
    return RenameRule("called", old, new, apply, f"{new!r} + k.removeprefix({old!r}) if k.startswith({old!r}) else k")


def _infix(old: str, new: str) -> RenameRule:
    def apply(name: str) -> str:
        return f".{name}".replace(f".{old}", f".{new}")[1:]

    return RenameRule("called everywhere" if new else "within", old, new, apply, f"f'.{{k}}'.replace({'.' + old!r}, {'.' + new!r})[1:]")


def _without(word: str) -> RenameRule:
    def apply(name: str) -> str:
        return ".".join(part for part in name.split(".") if part != word)

    return RenameRule("within", f"{word}.", "", apply, f'".".join(p for p in k.split(".") if p != {word!r})', True)


def _suffix(old: str, new: str, *, sure: bool = True) -> RenameRule:
    def apply(name: str) -> str:
        return name[: len(name) - len(old)] + new if name == old or name.endswith(f".{old}") else name

    code = f"k.removesuffix({old!r}) + {new!r} if f'.{{k}}'.endswith({'.' + old!r}) else k"
    return RenameRule("called", old, new, apply, code, sure)


# ---- what no rule explains -------------------------------------------------------------------------------------------------


def _by_bits(left: Side, right: Side) -> list[tuple[str, str]]:
    """Tensors of the same bits; of several equal ones only as many as there are on both sides, in order. Zeros and ones tell nothing."""
    sizes = {_size(entry) for entry in left.entries.values()} & {_size(entry) for entry in right.entries.values()}
    ours, theirs = (_grouped(side, sizes) for side in (left, right))
    groups = [(names, theirs[key]) for key, names in ours.items() if len(names) == len(theirs.get(key, ()))]
    return [pair for names, others in groups if _telling(left.entries[names[0]]) for pair in zip(names, others, strict=True)]


def _size(entry: InventoryEntry) -> tuple[object, str]:
    return entry.facts.shape, entry.facts.dtype


def _grouped(side: Side, sizes: set[tuple[object, str]]) -> dict[bytes, list[str]]:
    found: dict[bytes, list[str]] = {}
    for name, entry in side.entries.items():
        digest = _digest(entry) if _size(entry) in sizes else None
        if digest is not None:
            found.setdefault(digest, []).append(name)
    return found


def _by_shapes(left: Side, right: Side) -> list[tuple[str, str]]:
    """The same shapes in the same order, as another implementation of one network has them; at least of two dimensions once."""
    ours, theirs = ([(name, e.facts.shape) for name, e in side.entries.items() if e.facts.shape is not None] for side in (left, right))
    if len(ours) < 2 or [shape for _, shape in ours] != [shape for _, shape in theirs]:
        return []
    if not any(len(shape) > 1 for _, shape in ours if shape is not None):
        return []
    return [(name, new) for (name, _), (new, _) in zip(ours, theirs, strict=True)]


# ---- code ------------------------------------------------------------------------------------------------------------------


def _code_of_rule(rule: RenameRule, hits: dict[str, str], names: list[str], variable: str) -> str:
    """A comprehension, if it leaves alone what it should; else the names one by one."""
    if all(rule.apply(name) in (name, hits.get(name)) for name in names):
        return f"{variable} = {{{rule.code}: v for k, v in {variable}.items()}}"
    return _code_of_names(hits, variable)


def _code_of_names(names: dict[str, str], variable: str) -> str:
    if len(names) > LISTED:
        return ""
    listed = "".join(f"    {old!r}: {new!r},\n" for old, new in names.items())
    return f"names = {{\n{listed}}}\n{variable} = {{names.get(k, k): v for k, v in {variable}.items()}}"
