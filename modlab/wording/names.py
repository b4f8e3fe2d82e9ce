"""Names and numbers joined in a list."""

from __future__ import annotations

from collections.abc import Iterable

from modlab import format
from modlab.records.structure import ROOT

FEW = 3
"""Names that are written out."""

LONG = 120
"""Characters of a name that are written out."""


def named(path: str) -> str:
    """A dotted name as a face shows it; the whole model is ``(root)``."""
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
