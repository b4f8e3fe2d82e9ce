"""Names and values of nested dicts and lists, as a training checkpoint is one; no more than so many, however often they are shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from modlab import format
from modlab.inspection.formats.pickled import Made, Named
from modlab.inspection.formats.stored import StoredTensor

MOST = 300_000
"""Entries that are listed."""
AGAIN = 10_000
"""How often containers are opened that were met before: a kilobyte of lists that are shared can stand for ten billion entries."""
DEEPEST = 100
"""Levels of dicts and lists that are opened."""
_LONG, _CHARACTERS = 20_000, 100_000_000  # of one key, and of all names together
ITSELF, DEEPER = object(), object()  # stand for a container inside itself, and for one too deep to be opened


class Item(NamedTuple):
    """One value."""

    path: str
    owner: str
    value: Any


def items_of(content: Any, remarks: list[str] | None = None) -> Iterator[Item]:
    """Names and values, through nested dicts and lists: a training checkpoint holds a model, an optimizer, a step.

    Args:
        content: what to go through.
        remarks: gets a sentence where not all of it was listed.
    """
    above: set[int] = set()  # ids of the containers that the next value is in
    taken: dict[str, int] = {}
    stack: list[tuple[str, Any, Any] | int] = [("", None, content)]  # a number: the container of that id ends
    met: set[int] = set()
    listed = again = written = 0
    while stack:
        step = stack.pop()
        if isinstance(step, int):
            above.discard(step)
            continue
        prefix, key, value = step
        inside = None if id(value) in above else _opened(value, top=key is None)
        again += inside is not None and id(value) in met
        if listed >= MOST or again > AGAIN or written > _CHARACTERS:
            if remarks is not None:
                why = "the rest repeat the same ones" if again > AGAIN else "there are more"
                remarks.append(f"The first {listed:,} entries are listed: {why}")
            return
        if inside is None or len(above) >= DEEPEST:
            listed += 1
            named = _named(prefix, key, ITSELF if id(value) in above else value if inside is None else DEEPER, taken)
            written += len(named.path)
            yield named
            continue
        above.add(id(value))
        met.add(id(value))
        stack.append(id(value))
        path = prefix if key is None else f"{prefix}{_word(key)}."
        written += len(path)
        stack.extend((path, name, inner) for name, inner in reversed(inside))


def flat_items_of(content: Mapping[str, Any], remarks: list[str] | None = None) -> Iterator[Item]:
    """The same of a file whose names are whole: what owns a value is in its name, as many levels of it as are shown."""
    for listed, (name, value) in enumerate(content.items()):
        if listed >= MOST:
            if remarks is not None:
                remarks.append(f"The first {MOST:,} entries are listed: there are more")
            return
        yield Item(name, name.rpartition(".")[0] if name.count(".") <= DEEPEST else ".".join(name.split(".", DEEPEST)[:DEEPEST]), value)


def _opened(value: Any, *, top: bool) -> list[tuple[Any, Any]] | None:
    """Keys and values of a container that is shown by its parts; None for all else."""
    if isinstance(value, Mapping) and (value or top):
        return list(value.items())
    if isinstance(value, (list, tuple)) and any(isinstance(inner, (Tensor, StoredTensor, Mapping, list, tuple)) for inner in value):
        return list(enumerate(value))
    return None


def _word(key: Any) -> str:
    """A key as a part of a name."""
    try:
        return format.cut(key if isinstance(key, str) else str(key), _LONG)
    except ValueError:  # a number of too many digits
        return type(key).__name__


def _named(prefix: str, key: Any, value: Any, taken: dict[str, int]) -> Item:
    """The value under a path that no other has: of ``{"a": {"b": x}, "a.b": y}`` the second is ``['a.b']``."""
    alone = "(tensor)" if isinstance(value, (Tensor, StoredTensor)) else "(value)"
    path = alone if key is None else f"{prefix}{_word(key)}"
    owner = path.rpartition(".")[0]
    if path in taken:
        owner, quoted = prefix[:-1], f"{prefix}[{_word(key)!r}]" if isinstance(key, str) else f"{prefix}[{_word(key)}]"
        path = quoted
        while path in taken:
            taken[quoted] += 1
            path = f"{quoted} ({taken[quoted]})"
    taken[path] = 1
    return Item(path, owner, value)


def note(value: Any) -> str:
    """What stands in a file beside tensors, in a word or two."""
    return " ".join(filter(None, described(value)))


def described(value: Any) -> tuple[str, str]:
    """What stands in a file beside tensors: its type, and itself in a word or two."""
    if value is ITSELF:
        return "", "refers to itself"
    if value is DEEPER:
        return "", f"more than {DEEPEST} levels deep: not opened"
    if isinstance(value, (Made, Named)):
        return format.cut(format.clean(value.name), 60), ""
    kind = type(value).__name__
    if isinstance(value, int) and abs(value) > 10**30:
        return kind, ""
    short = isinstance(value, (int, float, bool)) or (isinstance(value, str) and len(value) < 40)
    return kind, repr(value) if short and len(repr(value)) < 40 else ""
