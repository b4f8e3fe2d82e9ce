"""Dotted names, with and without what wrappers put into them."""

from __future__ import annotations

from collections.abc import Container, Iterator

_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"})
_DDP = "module"


def as_known(path: str, known: Container[str]) -> str:
    """The name as it is known, of one that may be written as ``state_dict()`` has it in a wrapped model; else as it was given."""
    return next((spelling for spelling in spellings(path) if spelling in known), path)


def spellings(path: str) -> Iterator[str]:
    """How a name may be spelled in a trace or a watch: as it is, and without what wrappers put into it."""
    yield path
    parts = [part for part in path.split(".") if part not in _WRAPPERS]
    yield ".".join(parts)
    if parts[:1] == [_DDP]:
        yield ".".join(parts[1:])
    yield ".".join(part for part in parts if part != _DDP)
