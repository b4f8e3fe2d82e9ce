"""Spelling: how a line of code gets at a part of a model, whatever its name."""

from __future__ import annotations

import keyword
import unicodedata


def is_plain(name: str) -> bool:
    """Whether Python takes a name behind a dot as it is written: it takes no keyword, and spells some letters in another way."""
    return name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name


def attribute(code: str, name: str) -> str:
    """What one writes to get at an attribute of what `code` gives."""
    return f"{code}.{name}" if is_plain(name) else f"getattr({code}, {name!r})"
