"""Names and numbers joined in a list, and sentences with facts in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from modlab import format
from modlab.records.finding import Finding
from modlab.records.structure import ROOT

FEW = 3
"""How many names are listed."""

LONG = 120
"""How many characters of a name are shown."""

Words = str | Callable[[Mapping[str, Any]], str]
"""A sentence with names of facts in braces and verbs that agree in number, or a function that makes it from the facts."""

_VERBS = {
    "are": ("is", "are"),
    "have": ("has", "have"),
    "hold": ("holds", "hold"),
    "them": ("it", "them"),
    "each": ("it", "each of them"),
    "others": ("a different tensor", "different tensors"),
}


def filled(words: Words, finding: Finding) -> str:
    """The words with the facts filled in, including the finding's path.

    >>> filled("{are} in {optimizer}", Finding("frozen, in an optimizer", "l0", {"optimizer": "SGD #0", "count": 2}))
    'are in SGD #0'
    """
    verbs = {name: forms[is_many(finding.path, finding.facts)] for name, forms in _VERBS.items()}
    known = {**verbs, **finding.facts, "path": finding.path}
    return words.format_map(known) if isinstance(words, str) else words(known)


def is_many(path: str, facts: Mapping[str, Any]) -> bool:
    """Whether the verb that follows is plural."""
    return facts.get("count", 1) != 1 and not ("whole" in facts and path)


def named(path: str) -> str:
    """A dotted name as a view shows it; the whole model is ``(root)``."""
    return format.cut(format.clean(path), LONG) or ROOT


def joined(names: Iterable[object], most: int = FEW, last: str = "and") -> str:
    """Several names in a sentence.

    >>> joined(["a"]), joined(["a", "b"]), joined(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    >>> joined(range(8))
    '0, 1, 2 and 5 more'
    >>> joined(["a", "b"], last="or")
    'a or b'
    """
    found = [format.clean(str(name)) for name in names]
    if len(found) > most:
        return f"{', '.join(found[:most])} {last} {len(found) - most:,} more"
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}" if found else ""
