"""Whether this torch has a feature: lessons go by that, and not by a version."""

from __future__ import annotations

import warnings
from functools import lru_cache
from importlib import import_module


@lru_cache(maxsize=32)
def available(feature: str) -> bool:
    """Whether a dotted name (``torch.ao.quantization.quantize_dynamic``) can be had."""
    if not feature or not all(part.isidentifier() for part in feature.split(".")):
        return False
    parts = feature.split(".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(len(parts), 0, -1):
            try:
                thing = import_module(".".join(parts[:i]))
            except ImportError:
                continue
            try:
                for name in parts[i:]:
                    thing = getattr(thing, name)
            except AttributeError:
                return False
            return True
    return False
