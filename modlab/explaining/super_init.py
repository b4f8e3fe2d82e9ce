"""Where a constructor calls that of a base class, read from its bytecode, which is available even without the source."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Mapping
from types import CodeType
from typing import Any

_NAMES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_ATTR", "LOAD_METHOD")
_FAR = 8  # instructions between the name super and the attribute read from it


def sites(code: CodeType, cls: type, known: Mapping[str, Any]) -> list[int]:
    """The positions in the code, as in a traceback, of ``super().__init__``, ``Base.__init__`` and ``nn.Module.__init__``.

    Args:
        code: of a method.
        cls: the class that has it.
        known: the global names there.
    """
    if "__init__" not in code.co_names:
        return []
    names = {base.__name__ for base in cls.__mro__} | {name for name in code.co_names if known.get(name) in cls.__mro__}
    found: list[int] = []
    before: list[dis.Instruction] = []
    for one in dis.get_instructions(code):
        if one.argval == "__init__" and before:
            last = before[-1]
            of_super = not last.opname.startswith("LOAD_") or one.opname.startswith("LOAD_SUPER")
            if (last.opname in _NAMES and last.argval in names) or (of_super and any(i.argval == "super" for i in before[-_FAR:])):
                found.append(one.offset)
        before.append(one)
    return found


def elsewhere(cls: type) -> bool:
    """Whether another method of the class calls the constructor of a base class."""
    made = [thing for name, thing in vars(cls).items() if name != "__init__" and inspect.isfunction(thing)]
    return any(sites(one.__code__, cls, one.__globals__) for one in made)
