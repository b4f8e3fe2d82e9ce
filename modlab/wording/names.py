"""Names and numbers joined in a list, and sentences with facts in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from modlab import format
from modlab.records.finding import Finding
from modlab.records.structure import ROOT

FEW = 3
"""How many names are listed."""

LONG = 120
"""How many characters of a name are shown."""

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")
"""Dotted names that are made of numbers alone."""

_CODE = re.compile(r"\S*[_.(]\S")
"""Begins with what no word of English holds."""

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


def label(path: str) -> str:
    """A dotted name as a row or an axis shows it; the whole model is ``(root)``."""
    return format.cut(format.clean(path), LONG) or ROOT


def named(path: str) -> str:
    """The same in a sentence, where a bare number would read as one: a module of an ``nn.Sequential`` is a layer.

    >>> named("net.l0"), named("1"), named("0.2"), named("0.weight"), named("")
    ('net.l0', 'layer 1', 'layer 0.2', '0.weight', '(root)')
    """
    return f"layer {path}" if is_number(path) else label(path)


def begun(path: str) -> str:
    """The same where a sentence begins with it: a user's own name stays as it is."""
    return capital(named(path)) if is_number(path) else named(path)


def is_number(path: str) -> bool:
    """Whether a dotted name is made of numbers, as in an ``nn.Sequential``."""
    return _NUMBERS.fullmatch(path) is not None


def all_named(paths: Iterable[str], most: int = FEW, last: str = "and") -> str:
    """Several dotted names in a sentence.

    >>> all_named(["1", "2"]), all_named(["l0", "2"]), all_named(["3"]), all_named(["a", "b", "c", "d"])
    ('layers 1 and 2', 'l0 and layer 2', 'layer 3', 'a, b, c and 1 more')
    """
    found = [*paths]
    if len(found) > 1 and all(map(is_number, found[:most])):
        return f"layers {joined(found, most, last)}"
    return joined(map(named, found), most, last)


def capital(text: str) -> str:
    """As a sentence begins; what is written in code stays as it is.

    >>> capital("unit 1 is dead"), capital("backward() is never called"), capital("padding_idx is a token"), capital("0.weight is zero")
    ('Unit 1 is dead', 'backward() is never called', 'padding_idx is a token', '0.weight is zero')
    """
    return text if _CODE.match(text) else f"{text[:1].upper()}{text[1:]}"


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
