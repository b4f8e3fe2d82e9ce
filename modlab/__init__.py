"""See, question and compare PyTorch modules in JupyterLab.

>>> import modlab, torch
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
>>> modlab.tree(net).total_parameters
15
"""

from typing import Any

from modlab.errors import ModlabError
from modlab.results.measurement import measure
from modlab.results.state import state
from modlab.results.tree import tree
from modlab.version import __version__

__all__ = ["ModlabError", "__version__", "measure", "state", "tree"]


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext modlab``."""
    from modlab.results import extension

    extension.load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext modlab``."""
    from modlab.results import extension

    extension.unload(ipython)
