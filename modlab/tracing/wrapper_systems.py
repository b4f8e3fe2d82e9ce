"""Wrapper systems: whose machinery around a model's modules a piece of torch.distributed's code is."""

from __future__ import annotations

from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from modlab.inspection.callables import anchor

FSDP, DDP, TENSOR_PARALLEL = "FSDP", "DDP", "tensor parallel"
_ROOMS = (
    ("torch/distributed/fsdp/", FSDP),
    ("torch/distributed/_composable/replicate", DDP),
    ("torch/nn/parallel/distributed", DDP),
    ("torch/distributed/tensor/parallel/", TENSOR_PARALLEL),
)

_known: WeakKeyDictionary[CodeType, str] = WeakKeyDictionary()


def system_of(code: CodeType) -> str:
    """Whose machinery a piece of code is; "" of all other code."""
    found = _known.get(code)
    if found is None:
        file = code.co_filename.replace("\\", "/")
        found = _known[code] = next((word for room, word in _ROOMS if room in file), "")
    return found


def of_hook(hook: Any) -> str:
    """The same of a hook."""
    function = anchor(hook)
    return "" if function is None else system_of(function.__code__)
