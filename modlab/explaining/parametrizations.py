"""A state_dict of a pruned or weight-normed model loaded into one that is not, or vice versa; and one of a submodule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn import Module

from modlab.explaining import suspects
from modlab.explaining.calls import join
from modlab.explaining.failure import shape_of
from modlab.inspection import stores

_WEIGHT_NORM = "nn.utils.parametrizations.weight_norm"
_KINDS = (
    ("pruned", ("{}_orig", "{}_mask"), ""),
    ("weight-normed", ("parametrizations.{}.original0", "parametrizations.{}.original1"), _WEIGHT_NORM),
    ("weight-normed", ("{}_g", "{}_v"), _WEIGHT_NORM),
    (
        "spectral-normed",
        ("parametrizations.{}.original", "parametrizations.{}.0._u", "parametrizations.{}.0._v"),
        "nn.utils.parametrizations.spectral_norm",
    ),
    ("spectral-normed", ("{}_orig", "{}_u", "{}_v"), "nn.utils.spectral_norm"),
)
"""What a utility does to a name: the word for the model, the new names, and the utility."""


def found(missing: list[str], unexpected: list[str]) -> tuple[str, list[str], tuple[str, ...], str] | None:
    """How the model that saved `unexpected` instead of `missing` was changed: a word, the names, their patterns, the utility; or None."""
    for word, patterns, utility in _KINDS:
        names = [name for name in missing if all(_become(name, pattern) in unexpected for pattern in patterns)]
        if names and len(names) == len(missing) and len(unexpected) == len(names) * len(patterns):
            return word, names, patterns, utility
    return None


def _become(name: str, pattern: str) -> str:
    above, dot, last = name.rpartition(".")
    return f"{above}{dot}{pattern.format(last)}"


def merged(state: str) -> str:
    """Code that turns the pruned weights in ``state`` into plain ones: masked, under their original names."""
    return (
        f"state = dict({state})\n"
        "for name in [k.removesuffix('_orig') for k in state if k.endswith('_orig') and k.removesuffix('_orig') + '_mask' in state]:\n"
        "    state[name] = state.pop(name + '_orig') * state.pop(name + '_mask')\n"
    )


def applied(model: str, names: list[str], utility: str) -> str:
    """Code that changes the model in the same way as the saved one."""
    owners = [name.rpartition(".")[0] for name in names]
    if all(name.rpartition(".")[2] == "weight" for name in names):
        return f"for name in {owners!r}:\n    {utility}(model.get_submodule(name))\n".replace("model.", f"{model}.")
    return "".join(f"{utility}({model}.get_submodule({name.rpartition('.')[0]!r}), {name.rpartition('.')[2]!r})\n" for name in names)


def is_default(names: list[str], patterns: tuple[str, ...], given: Any) -> bool:
    """Whether the norm of each weight is over its first dimension, which is the utility's default."""
    if "original0" not in patterns[0] and "_g" not in patterns[0]:
        return True
    for name in names:
        shape = shape_of(dict.get(given, _become(name, patterns[0]))) if issubclass(type(given), dict) else None
        whole = shape_of(dict.get(given, _become(name, patterns[1]))) if issubclass(type(given), dict) else None
        if shape is None or whole is None or shape != (whole[0], *(1 for _ in whole[1:])):
            return False
    return True


def part(model: Module, given: Any) -> str:
    """The dotted name of the only submodule with the same names and shapes as given; empty if there is none, or more than one."""
    if not issubclass(type(given), dict) or not given:
        return ""
    wanted = {key: shape_of(value) for key, value in dict.items(given) if type(key) is str}
    owned = [(join(path, key), shape_of(tensor)) for path, key, tensor in _saved(model)]
    first = next(iter(wanted), "")
    fitting = []
    for path in {name.removesuffix(f".{first}") for name, _ in owned if name.endswith(f".{first}")}:
        if {name[len(path) + 1 :]: shape for name, shape in owned if name.startswith(f"{path}.")} == wanted:
            fitting.append(path)
    return fitting[0] if len(fitting) == 1 else ""


def _saved(model: Module) -> Iterator[tuple[str, str, Tensor]]:
    for path, module in suspects.walk(model):
        transient = stores.contents(module).get("_non_persistent_buffers_set") or ()
        for key, tensor in stores.named_tensors(module):
            if key not in transient:
                yield path, key, tensor
