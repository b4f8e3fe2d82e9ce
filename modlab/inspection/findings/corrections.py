"""Corrections, and where they belong: what registers stands in the user's constructor, on a library's module, or around a container."""

from __future__ import annotations

import sys
from types import FunctionType

from torch import nn
from torch.nn import Module

from modlab.inspection import stores
from modlab.inspection.findings.subject import ModuleSite
from modlab.inspection.spelling import is_plain

_LISTS = (nn.ModuleList, nn.ModuleDict)


def placed(site: ModuleSite, name: str, line: str) -> str:
    """The code for a line of `modlab.inspection.fixes`, which says ``self`` for the module of `site`.

    Nothing where no line does it.

    Nobody edits the constructor of ``nn.Sequential``; and what becomes a child of one is run as a layer of it.
    """
    if not line.startswith("self."):
        return line
    if _is_chain(site.module) and _makes_module(line):
        return _around(site, name, line)
    if is_own(type(site.module)):
        return f"{line}  # in the constructor of {site.type}"
    return line.replace("self.", f"{site.code}.")


def is_own(cls: type) -> bool:
    """Whether a class is written by the user, and neither torch's nor a library's."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return cls.__module__.partition(".")[0] != "torch" and "site-packages" not in file and "dist-packages" not in file


def _is_chain(module: Module) -> bool:
    """Whether a module goes through its children: one more of them changes what it does."""
    if issubclass(type(module), _LISTS):
        return True
    forward = next((vars(cls)["forward"] for cls in type(module).__mro__ if type(vars(cls).get("forward")) is FunctionType), None)
    return forward is nn.Sequential.forward


def _makes_module(line: str) -> bool:
    """Whether the line registers a module: a list of them, one of parameters, or one that was set past registration."""
    return "nn.Parameter(" not in line and "register_buffer" not in line


def _around(site: ModuleSite, name: str, line: str) -> str:
    """For what hangs on a container: the module around it takes it, or a class that you must write."""
    above = next((one for one in site.above if not _is_chain(one.module)), None)
    made = line.partition(" = ")[2].partition("  #")[0]
    if above is not None:
        place = "_".join([*(one.name for one in _between(site, above)[::-1]), name])
        if not is_plain(place) or _is_taken(above.module, place):
            return ""
        return f"{above.code}.{place} = {made.replace('self.', f'{site.code}.')}"
    if issubclass(type(site.module), _LISTS):
        return ""
    held = name if "__dict__" in made else made.replace(f"self.{name}", name)
    return (
        f"class Net(nn.Module):\n    def __init__(self, body, {name}):\n        super().__init__()\n"
        f"        self.body, self.{name} = body, {held}\n\n    def forward(self, x):\n        return self.body(x)\n\n"
        f"model = Net(model, model.{name})"
    )


def _between(site: ModuleSite, above: ModuleSite) -> list[ModuleSite]:
    found = []
    for one in site.above:
        if one is above:
            break
        found.append(one)
    return found


def _is_taken(module: Module, name: str) -> bool:
    held = stores.contents(module)
    return (
        hasattr(type(module), name)
        or name in held
        or any(name in (held.get(store) or ()) for store in ("_parameters", "_buffers", "_modules"))
    )
