"""An interrupt when torch has registered a hook of ours, and we have no handle of it yet: nothing of it is left."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modlab
from tests.interrupts import at_rest, changed

VERBS: dict[str, Callable[[Any, Tensor], object]] = {
    "compare": lambda net, x: modlab.compare(net)(x),
    "diagnose": lambda net, x: modlab.diagnose(net, batch=(x, torch.zeros(4, 2)), loss=nn.functional.mse_loss),
    "trace": lambda net, x: in_a_block(modlab.trace(net), net, x),
    "watch": lambda net, x: in_a_block(modlab.watch(net, sgd(net), budget=1.0), net, x),
    "watch, a NaN is run again": lambda net, x: until_nan(net, x),
}
FIRST = 40
"""Hooks of a verb that are met, at most; later ones are of the same kinds."""


class Net(nn.Module):
    """It draws in both modes: then `diagnose` asks in which module. It has hooks of its own, whose order tells."""

    def __init__(self) -> None:
        super().__init__()
        self.sick = False
        self.l0, self.l1 = nn.Linear(3, 4), nn.Linear(4, 2)
        for _ in range(2):
            self.l0.register_forward_pre_hook(lambda module, args: None)
            self.l0.register_forward_hook(lambda module, args, output: None)
        self.l1.weight.register_hook(lambda gradient: None)

    def forward(self, x: Tensor) -> Tensor:
        if self.sick:
            x = (x - x) / (x - x)
        return self.l1(nn.functional.dropout(self.l0(x), training=True))


def sgd(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(net.parameters(), 0.1)


def in_a_block(look: Any, net: Net, x: Tensor) -> None:
    optimizer = sgd(net)
    with look:
        for _ in range(2):
            net(x).sum().backward()
            optimizer.step()


def until_nan(net: Net, x: Tensor) -> None:
    net.sick = True
    optimizer = sgd(net)
    with modlab.watch(net, optimizer) as w:
        for _ in range(2):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    assert w.alerts[0].trace is not None


class Met:
    """Raises where torch has registered its hook of a number, of all that are registered in this thread."""

    def __init__(self, number: int) -> None:
        self._left = number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "return" or not code.co_name.startswith("register_") or "/torch/" not in code.co_filename:
            return
        self._left -= 1
        if self._left == -1:
            self.where = f"{code.co_name}, of {frame.f_back.f_code.co_filename if frame.f_back else ''}"
            raise KeyboardInterrupt


@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupt_inside_of_torchs_registering_leaves_no_hook(verb: str) -> None:
    VERBS[verb](Net(), torch.randn(4, 3))  # what is loaded with a first call registers hooks of its own
    left = []
    for number in range(FIRST):
        net, x, met = Net(), torch.randn(4, 3), Met(number)
        before = at_rest(net)
        sys.setprofile(met)
        try:
            VERBS[verb](net, x)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        if not met.where:
            break
        left += [f"{one}: {met.where}" for one in changed(before, at_rest(net))]
    assert not left
    assert number > 1
