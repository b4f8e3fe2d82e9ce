"""What follows what, where a ``Sequential`` makes that certain. All of these are notes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from torch import nn
from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.findings.layer_families import AVERAGING, CONVOLUTIONS
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.inspection.index import joined
from modlab.records.finding import FindingRecord

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
    extent = _extent(name, module)
    return f"{_path(site, name)} ({extent})" if extent else _path(site, name)


def _extent(name: str, module: Module) -> str:
    return type(module).__name__ if name.isdecimal() else ""


def bias_before_norm(subject: Subject) -> Iterator[FindingRecord]:
    """A bias that the norm behind it takes out again."""
    for site, a, first, b, second in pairs(subject):
        if not (issubclass(type(first), _AFFINE) and issubclass(type(second), AVERAGING)):
            continue
        if stores.contents(first).get("_parameters", {}).get("bias") is not None:
            path = _path(site, a)
            yield FindingRecord(
                path,
                path,
                "bias before a norm",
                "note",
                f"{path}.bias",
                f"does nothing in training: {_path(site, b)} behind it ({type(second).__name__}) subtracts the mean again",
                "It costs a little memory and time, and its gradient is rounding noise.",
                f"nn.{type(first).__name__}(..., bias=False)",
            )


def in_place_after_hook(subject: Subject) -> Iterator[FindingRecord]:
    """An in-place module right behind one with a full backward hook: the forward pass raises."""
    for site, a, first, b, second in pairs(subject):
        held = stores.contents(first)
        hooked = held.get("_backward_pre_hooks") or (held.get("_backward_hooks") and held.get("_is_full_backward_hook"))
        if hooked and stores.contents(second).get("inplace") is True:
            path = _path(site, b)
            yield FindingRecord(
                path,
                path,
                "in place after a hook",
                "note",
                _label(site, b, second),
                f"changes in place what {_label(site, a, first)} returns, which has a full backward hook: the forward pass raises",
                "A full backward hook makes the output a view of a custom function, which must not be changed in place.",
                f"model.get_submodule({joined(site.registered, b)!r}).inplace = False",
                extent=_extent(b, second),
            )


def nothing_between(subject: Subject) -> Iterator[FindingRecord]:
    """Two linear layers with nothing between them are one."""
    for site, a, first, b, second in pairs(subject):
        if type(first) is nn.Linear and type(second) is nn.Linear:
            path = _path(site, b)
            yield FindingRecord(
                path,
                path,
                "nothing between",
                "note",
                _label(site, b, second),
                f"follows {_label(site, a, first)} with nothing between: together they are one linear map",
                "Meant for a low-rank map; else an activation is missing.",
                "nn.Sequential(nn.Linear(...), nn.ReLU(), nn.Linear(...))",
                extent=_extent(b, second),
            )
