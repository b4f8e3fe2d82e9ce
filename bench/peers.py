"""The alternatives: how each shows a model, and how many parameters it says there are.

A peer is a function, or two, and a row in `PEERS`; one that is not installed is named, with the command that brings it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from unittest import mock

from torch import Tensor, nn

ALL = 10**6  # levels, for the tools that want a depth
Counted = tuple[int | None, int | None]


def torchinfo(model: nn.Module, _: Tensor | None) -> str:
    import torchinfo

    return str(torchinfo.summary(model, depth=ALL, verbose=0))


def torchinfo_counts(model: nn.Module, _: Tensor) -> Counted:
    import torchinfo

    found = torchinfo.summary(model, depth=ALL, verbose=0)
    return found.total_params, found.trainable_params


def torchsummary(model: nn.Module, x: Tensor | None) -> str:
    """It prints, runs the model on random float32 input, and needs the size of one sample."""
    import torchsummary

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        torchsummary.summary(model, tuple(x.shape[1:]), device=str(x.device))
    return printed.getvalue()


def torchsummary_counts(model: nn.Module, x: Tensor) -> Counted:
    found = dict(re.findall(r"(Total|Trainable) params: ([\d,]+)", torchsummary(model, x)))
    return int(found["Total"].replace(",", "")), int(found["Trainable"].replace(",", ""))


def torchview(model: nn.Module, x: Tensor | None) -> str:
    """The source of its graph; drawing that is Graphviz's affair."""
    import torchview

    return torchview.draw_graph(model, input_data=x, depth=ALL, expand_nested=True, device=x.device, save_graph=False).visual_graph.source


def treescope(model: nn.Module, _: Tensor | None) -> str:
    import treescope

    return treescope.render_to_html(model)


def fvcore(model: nn.Module, _: Tensor | None) -> str:
    import fvcore.nn

    return fvcore.nn.parameter_count_table(model, max_depth=ALL)


def fvcore_counts(model: nn.Module, _: Tensor) -> Counted:
    import fvcore.nn

    return fvcore.nn.parameter_count(model)[""], None


def wigglystuff(model: nn.Module, _: Tensor | None) -> str:
    """What its widget sends to the page, without its script."""
    import wigglystuff

    return json.dumps(wigglystuff.ModuleTreeWidget(model).tree)


def wigglystuff_counts(model: nn.Module, _: Tensor) -> Counted:
    import wigglystuff

    found = wigglystuff.ModuleTreeWidget(model)
    return found.total_param_count, found.total_trainable_count


def marimo(model: nn.Module, _: Tensor | None) -> str:
    """What it shows for a cell that ends in a module."""
    from marimo._output.formatters import pytorch_formatters

    return pytorch_formatters.format(model).text


def marimo_counts(model: nn.Module, x: Tensor) -> Counted:
    """Read from its page, with its rounding to "1.2K" off."""
    from marimo._output.formatters import pytorch_formatters

    with mock.patch.object(pytorch_formatters, "_fmt_integer", str):
        page = marimo(model, x)
    total, trainable = re.search(r'nn-t-summary">(\d+) params(?: \((\d+) trainable)?', page).groups()
    return int(total), int(trainable or total)


@dataclass(frozen=True)
class Peer:
    """One alternative.

    Attributes:
        module: what is imported before the clock starts.
        show: the tool's picture of a model.
        counts: total and trainable parameters, None where it does not say.
        runs: it runs the model, so it needs an input.
    """

    name: str
    module: str
    show: Callable[[nn.Module, Tensor | None], str]
    counts: Callable[[nn.Module, Tensor], Counted] | None = None
    runs: bool = False

    @property
    def installed(self) -> bool:
        return find_spec(self.name) is not None

    def load(self) -> None:
        logging.disable(logging.WARNING)
        importlib.import_module(self.module)


PEERS = (
    Peer("torchinfo", "torchinfo", torchinfo, torchinfo_counts),
    Peer("marimo", "marimo._output.formatters.pytorch_formatters", marimo, marimo_counts),
    Peer("wigglystuff", "wigglystuff", wigglystuff, wigglystuff_counts),
    Peer("fvcore", "fvcore.nn", fvcore, fvcore_counts),
    Peer("torchsummary", "torchsummary", torchsummary, torchsummary_counts, runs=True),
    Peer("torchview", "torchview", torchview, runs=True),
    Peer("treescope", "treescope", treescope),
)


def installed() -> list[Peer]:
    return [peer for peer in PEERS if peer.installed]


def missing() -> list[str]:
    """The names of those that are not installed, as pip takes them."""
    return [name for name in (*(peer.name for peer in PEERS), "torchlens", "lovely_tensors") if find_spec(name) is None]
