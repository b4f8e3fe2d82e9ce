"""What follows what, where a ``Sequential`` makes that certain. All of these are notes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from torch import nn
from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.findings.layer_families import AVERAGING, BATCH_NORMS, CONVOLUTIONS
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.inspection.index import joined
from modlab.records.finding import Evidence, Fact, Finding, Remedy

Pair = tuple[ModuleSite, str, Module, str, Module]
_AFFINE = (nn.Linear, *CONVOLUTIONS)


def pairs(subject: Subject) -> Iterator[Pair]:
    """Neighbours in plain ``Sequential``s, as the container, name and module of the first, name and module of the second."""
    for site in subject.sites:
        if type(site.module) is not nn.Sequential:
            continue
        inside = [(name, child) for name, child in stores.named_children(site.module) if child is not None]
        inside = [(name, child) for name, child in inside if type(child) is not nn.Identity]
        for (a, first), (b, second) in pairwise(inside):
            yield site, a, first, b, second


def _path(site: ModuleSite, name: str) -> str:
    return joined(site.path, name)


def _label(site: ModuleSite, name: str, module: Module) -> str:
    """How a sentence calls it: a bare number says too little."""
    return f"{_path(site, name)} ({type(module).__name__})" if name.isdecimal() else _path(site, name)


def _finding(path: str, kind: str, code: str, **facts: Fact) -> Finding:
    return Finding(kind, path, facts, evidence=(Evidence("module", path),), fixes=(Remedy(code=code),))


def _second(site: ModuleSite, name: str, module: Module, kind: str, code: str, before: str) -> Finding:
    """Something about the second of two neighbours."""
    held: dict[str, Fact] = {"type": type(module).__name__} if name.isdecimal() else {}
    return _finding(_path(site, name), kind, code, before=before, **held)


def bias_before_norm(subject: Subject) -> Iterator[Finding]:
    """A bias that the norm behind it takes out again."""
    for site, a, first, b, second in pairs(subject):
        if not (issubclass(type(first), _AFFINE) and issubclass(type(second), AVERAGING)):
            continue
        if subject.model.training and not second.training and issubclass(type(second), BATCH_NORMS):
            continue  # it is kept in evaluation on purpose, and subtracts a mean that it has
        if stores.contents(first).get("_parameters", {}).get("bias") is not None:
            facts: dict[str, Fact] = {"norm": _path(site, b), "class": type(second).__name__}
            yield _finding(_path(site, a), "bias before a norm", f"nn.{type(first).__name__}(..., bias=False)", **facts)


def in_place_after_hook(subject: Subject) -> Iterator[Finding]:
    """An in-place module right behind one with a full backward hook: the forward pass raises."""
    for site, a, first, b, second in pairs(subject):
        held = stores.contents(first)
        hooked = held.get("_backward_pre_hooks") or (held.get("_backward_hooks") and held.get("_is_full_backward_hook"))
        if hooked and stores.contents(second).get("inplace") is True:
            code = f"model.get_submodule({joined(site.registered, b)!r}).inplace = False"
            yield _second(site, b, second, "in place after a hook", code, _label(site, a, first))


def nothing_between(subject: Subject) -> Iterator[Finding]:
    """Two linear layers with nothing between them are one."""
    for site, a, first, b, second in pairs(subject):
        if type(first) is nn.Linear and type(second) is nn.Linear:
            code = "nn.Sequential(nn.Linear(...), nn.ReLU(), nn.Linear(...))"
            yield _second(site, b, second, "nothing between", code, _label(site, a, first))
