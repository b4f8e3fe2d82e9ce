"""Private names of torch that modlab borrows: probed here, once, each with what stands in where a torch lacks it.

``docs/borrowed.md`` lists them, and the stores of ``nn.Module``, whose room is ``inspection/stores.py``. They are plain
aliases: some are asked for every small tensor, where a call more would be felt.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

try:
    from torch.utils import _python_dispatch
except ImportError:
    _python_dispatch = None  # type: ignore[assignment]


def _no(_: object) -> bool:
    return False


without_torch_function: Callable[[], AbstractContextManager[Any]] = getattr(torch._C, "DisableTorchFunction", nullcontext)
"""A context in which neither a ``TorchFunctionMode`` nor a subclass's ``__torch_function__`` is asked."""

without_modes: Callable[[], AbstractContextManager[Any]] = getattr(_python_dispatch, "_disable_current_modes", nullcontext)
"""A context in which no ``TorchDispatchMode`` of the user's sees what modlab computes."""

dispatch_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", int)
"""How many ``TorchDispatchMode``\\ s are active."""

is_functional: Callable[[Any], bool] = getattr(torch, "_is_functional_tensor", _no)
"""Whether a tensor is a stand-in of functionalization, whose values are elsewhere."""

is_transformed: Callable[[Any], bool] = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", _no)
"""Whether a tensor is a stand-in of ``torch.func`` (vmap, grad), which has no values of its own."""

global_hooks_with_kwargs: dict[int, bool] = getattr(torch.nn.modules.module, "_global_forward_hooks_with_kwargs", {})
"""Which global forward hooks get keyword arguments: torch leaves the entry of a removed one behind."""
