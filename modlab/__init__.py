"""See, question and compare PyTorch modules in JupyterLab.

>>> import modlab, torch
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
>>> modlab.tree(net).total_parameters
15
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from modlab.errors import ModlabError, Stopped
from modlab.version import __version__

if TYPE_CHECKING:
    from modlab.results.comparison import compare
    from modlab.results.costs import costs
    from modlab.results.diagnosis import diagnose
    from modlab.results.difference import diff
    from modlab.results.explanation import explain
    from modlab.results.hooks import hooks
    from modlab.results.internals import internals
    from modlab.results.lab import lab
    from modlab.results.measurement import measure
    from modlab.results.snapshot import snapshot
    from modlab.results.state import state
    from modlab.results.trace import trace
    from modlab.results.tree import tree
    from modlab.results.watch import watch

__all__ = [
    "ModlabError",
    "Stopped",
    "__version__",
    "compare",
    "costs",
    "diagnose",
    "diff",
    "snapshot",
    "explain",
    "hooks",
    "internals",
    "lab",
    "measure",
    "state",
    "trace",
    "tree",
    "watch",
]

# What is imported at its first use: a training script that imports modlab and looks at nothing pays a millisecond.
_ROOMS = {
    "diagnose": "modlab.results.diagnosis",
    "compare": "modlab.results.comparison",
    "costs": "modlab.results.costs",
    "diff": "modlab.results.difference",
    "explain": "modlab.results.explanation",
    "hooks": "modlab.results.hooks",
    "internals": "modlab.results.internals",
    "lab": "modlab.results.lab",
    "measure": "modlab.results.measurement",
    "snapshot": "modlab.results.snapshot",
    "state": "modlab.results.state",
    "trace": "modlab.results.trace",
    "tree": "modlab.results.tree",
    "watch": "modlab.results.watch",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'modlab' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_ROOMS[name]), name)
    return found


def __dir__() -> list[str]:
    return [*__all__]


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext modlab``."""
    from modlab.results import extension

    extension.load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext modlab``."""
    from modlab.results import extension

    extension.unload(ipython)
