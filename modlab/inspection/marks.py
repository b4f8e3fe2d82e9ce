"""Marks: what is special about a module, in a word each, and which of eight categories its class belongs to."""

from __future__ import annotations

from functools import partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from modlab.compat import given_hook
from modlab.inspection.stores import HOOKS

FSDP, PARALLEL = "FSDP", "tensor parallel"
"""The words for hooks of torch.distributed."""

_FSDP_HOME = ("torch.distributed.fsdp", "torch.distributed._composable")
_FUNCTIONS = frozenset({FunctionType, MethodType})
_WORDS = {
    "torch.distributed.fsdp._fully_shard._fsdp_param": FSDP,
    "torch.distributed.fsdp._fully_shard._fsdp_state": FSDP,
    "torch.distributed.tensor._api": PARALLEL,
}
"""Of those modules whose hooks are in models by the thousand; `_word` knows the rest."""
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)
_BY_SUBPACKAGE = {
    "linear": "linear",
    "conv": "conv",
    "batchnorm": "norm",
    "normalization": "norm",
    "instancenorm": "norm",
    "activation": "activation",
    "dropout": "dropout",
    "sparse": "embedding",
    "container": "container",
    "channelshuffle": "own",
}
_BY_WORD = (
    ("norm", "norm"),
    ("embed", "embedding"),
    ("dropout", "dropout"),
    ("conv2d", "conv"),
    ("linear", "linear"),
)


def category(cls: type) -> str:
    """The kind of module by its class: torch's own sub-package first, then what the class derives from."""
    if cls is nn.MultiheadAttention:
        return "own"  # it lives in torch's `activation` file for historical reasons
    for base in cls.__mro__:
        origin = base.__module__
        if origin.startswith("torch.nn.modules.") and base is not nn.Module:
            return "own" if base is nn.MultiheadAttention else _BY_SUBPACKAGE.get(origin.rpartition(".")[2], "own")
        if ".quantized" in origin:
            return _by_word(base.__name__)
    return "norm" if cls.__name__.endswith(("Norm", "Norm2d")) else "own"


def _by_word(name: str) -> str:
    return next((kind for word, kind in _BY_WORD if word in name.lower()), "own")


def is_scripted(module: nn.Module) -> bool:
    """Whether it is TorchScript's."""
    return issubclass(type(module), torch.jit.ScriptModule)


def of_class(cls: type) -> tuple[str, ...]:
    """Marks that every instance of a class has."""
    marks = []
    if issubclass(cls, torch.jit.ScriptModule):
        marks.append("scripted")
    if cls.__name__ == "OptimizedModule" and cls.__module__.startswith("torch._dynamo"):
        marks.append("compiled")
    if ".quantized" in cls.__module__ and cls.__module__.startswith(("torch.ao.", "torch.nn.")):
        marks.append("quantized")
    return tuple(marks)


def of_hooks(held: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The marks that a module's hooks leave on it, and the hooks themselves as text (for telling modules apart).

    Hooks that torch's own utilities put there are named after the utility; only the others count as hooks.
    """
    marks: list[str] = []
    texts: list[str] = []
    users = 0
    for store in HOOKS:
        hooks = held.get(store)
        for hook in hooks.values() if hooks else ():
            mark = _WORDS.get(hook.__module__) if type(hook) in _FUNCTIONS and type(hook.__module__) is str else None
            if mark is None:
                mark = machinery(hook)
            if mark == FSDP:
                continue  # its units say that, and what they hold needs not say it again
            if not mark:
                users += 1
            elif mark not in marks:
                marks.append(mark)
            if mark != PARALLEL:
                texts.append(f"{store} {_attribute(hook, '__qualname__') or type(hook).__name__}")
    if users:
        marks.append("1 hook" if users == 1 else f"{users} hooks")
    return tuple(marks), tuple(texts)


def machinery(hook: object) -> str:
    """The word for a hook that belongs to one of torch's own utilities, else nothing."""
    cls = type(hook)
    if cls in _FUNCTIONS and _attribute(hook, "__module__").startswith("torch.distributed."):
        return _word(hook.__module__)
    if any(base.__name__ == "BasePruningMethod" for base in cls.__mro__):
        return "pruned"
    if _attribute(hook, "__name__") in ("_lazy_load_hook", "_infer_parameters"):
        return "lazy"
    if _attribute(hook, "__name__") == "_weight_norm_compat_hook":
        return "weight-normed"
    return {"WeightNorm": "weight-normed", "SpectralNorm": "spectral-normed"}.get(cls.__name__, "") or _distributed(hook)


def _distributed(hook: object) -> str:
    """By the module in which a hook was written."""
    return _word(_attribute(getattr(hook, "func", hook) if type(hook) is partial else given_hook(hook)[0], "__module__"))


def _word(home: str) -> str:
    if home.startswith(_FSDP_HOME):
        return FSDP
    return PARALLEL if home.startswith("torch.distributed.tensor") else ""


def _attribute(hook: object, name: str) -> str:
    try:
        found = getattr(hook, name, "")
    except Exception:  # noqa: BLE001 - a hook may be any callable of the user's, and raise when it is asked
        return ""
    return found if isinstance(found, str) else ""
