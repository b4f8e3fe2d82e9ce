"""What can be observed of a call depends on the kind of module: compiled, scripted and fused modules run their parts as one."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import Module

from modlab.inspection import stores

FUSED = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


def is_compiled(module: Module) -> bool:
    """Whether ``torch.compile`` runs it: as a wrapper around it, or in its place."""
    return is_compilers_wrapper(type(module)) or stores.contents(module).get("_compiled_call_impl") is not None


def is_compilers_wrapper(cls: type) -> bool:
    """Whether this is the class that ``torch.compile`` wraps modules in."""
    return cls.__name__ == "OptimizedModule" and cls.__module__.startswith("torch._dynamo")


def is_fused(module: Module) -> bool:
    """Whether it may take a fast path that runs its parts as one: observing the functions inside would prevent that."""
    return issubclass(type(module), FUSED)


def is_opaque(module: Module) -> str:
    """Why nothing inside a module's call can be observed, in a word; empty if it can."""
    if issubclass(type(module), torch.jit.ScriptModule):
        return "scripted"
    return "compiled" if is_compiled(module) else ""


def opaque_kind(cls: type) -> str:
    """The same, judged by the class alone."""
    return "scripted" if issubclass(cls, torch.jit.ScriptModule) else "compiled" if is_compilers_wrapper(cls) else ""


def is_torchs(cls: type) -> bool:
    """Whether the functions inside are torch's own implementation of what the module's name says: ``F.linear`` in a ``Linear``."""
    return cls.__module__.startswith(("torch.nn.", "torch.ao.nn."))


def can_run(cls: type) -> bool:
    """Whether it can be called: lists and dicts of modules have no ``forward`` of their own."""
    return issubclass(cls, torch.jit.ScriptModule) or cls.forward is not Module.forward  # type: ignore[attr-defined]
