"""What watches a model run: modlab, its rivals, and hooks that do nothing, which are the least that watching modules costs.

A watcher is a function of a model and an input, and a row in `WATCHERS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

import modlab

ALL = 10**3  # levels, for the tools that want a depth
Watch = Callable[[nn.Module, Tensor], Any]

PLAIN, AGAIN = "plain forward", "plain forward, again"
TRACE, SHAPES = "modlab.trace", "modlab.trace, values=False"


def plain(model: nn.Module, x: Tensor) -> object:
    return model(x)


def hooks(model: nn.Module, x: Tensor) -> object:
    """A global hook before and one after each module, and neither does anything."""
    handles = register_module_forward_pre_hook(lambda *_: None), register_module_forward_hook(lambda *_: None)
    try:
        return model(x)
    finally:
        for handle in handles:
            handle.remove()


def traced(model: nn.Module, x: Tensor) -> object:
    return modlab.trace(model)(x)


def shapes(model: nn.Module, x: Tensor) -> object:
    return modlab.trace(model, values=False)(x)


def written(model: nn.Module, x: Tensor) -> object:
    return str(modlab.trace(model)(x))


def torchinfo(model: nn.Module, x: Tensor) -> object:
    """It runs the model under ``no_grad``."""
    import torchinfo

    return torchinfo.summary(model, input_data=x, depth=ALL, verbose=0, mode=_mode(model))


def torchview(model: nn.Module, x: Tensor) -> object:
    """Its graph, without Graphviz's drawing of it."""
    import torchview

    return torchview.draw_graph(model, input_data=x, depth=ALL, expand_nested=True, device=x.device, mode=_mode(model), save_graph=False)


def torchlens(model: nn.Module, x: Tensor) -> object:
    """With a copy of each operation's output, as it is when nothing else is said."""
    import torchlens

    return torchlens.trace(model, x)


def torchlens_record(model: nn.Module, x: Tensor) -> object:
    """Its quick way, which asks of each operation whether to keep it, and is told no."""
    import torchlens

    return torchlens.record(model, x, save=lambda _: False)


def _mode(model: nn.Module) -> str:
    return "train" if model.training else "eval"


@dataclass(frozen=True)
class Watcher:
    """One row.

    Attributes:
        package: what has to be installed for it.
        intrudes: it leaves torch's functions wrapped, so it is measured in a process without the others.
        thorough: a quick run leaves it out.
    """

    name: str
    watch: Watch
    package: str = "torch"
    intrudes: bool = False
    thorough: bool = False

    @property
    def installed(self) -> bool:
        return find_spec(self.package) is not None

    def load(self) -> None:
        importlib.import_module(self.package)


WATCHERS = (
    Watcher(PLAIN, plain),
    Watcher("global hooks that do nothing", hooks),
    Watcher(TRACE, traced),
    Watcher(SHAPES, shapes),
    Watcher("modlab.trace and its text", written),
    Watcher("torchinfo.summary(input_data=)", torchinfo, "torchinfo"),
    Watcher("torchview.draw_graph", torchview, "torchview"),
    Watcher("torchlens.trace", torchlens, "torchlens", intrudes=True),
    Watcher("torchlens.record, nothing saved", torchlens_record, "torchlens", intrudes=True, thorough=True),
    Watcher(AGAIN, plain),
)


def installed(quick: bool) -> list[Watcher]:
    return [watcher for watcher in WATCHERS if watcher.installed and not (quick and watcher.thorough)]


def missing() -> list[str]:
    """The names of the packages that are not installed, as pip takes them."""
    return sorted({watcher.package for watcher in WATCHERS if not watcher.installed})
