"""Why a module was not seen to be called."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from torch.nn import Module, MultiheadAttention

from modlab.inspection import marks
from modlab.records.structure import ROOT

_HOLDERS = ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict")


def hidden_reason(path: str, module: Module, places: Collection[tuple[str, Module]], counts: Mapping[str, int]) -> Iterator[str]:
    """The reason, in words; a module that is just not used gets none but that.

    Args:
        path: of the module that was not called.
        module: the module.
        places: all paths and modules.
        counts: how often each path was called.
    """
    by_path = dict(places)
    for above in _above(path):
        known = set(marks.of_class(type(by_path[above]))) & {"compiled", "scripted"} if above in by_path else set()
        if known:
            yield f"runs inside {above or ROOT}, which is {known.pop()}: what happens there cannot be seen"
            return
    prefix = path + "." if path else ""
    if any(count and one.startswith(prefix) and one != path for one, count in counts.items()):
        yield "holds modules" if type(module).__name__ in _HOLDERS else "not called itself; modules inside it are"
        return
    above = path.rpartition(".")[0]
    if type(by_path.get(above)) is MultiheadAttention and counts[above]:
        yield f"{above or ROOT} uses its weights without calling it"
    else:
        yield "not called in this pass"


def _above(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition(".")[0]
        yield path
