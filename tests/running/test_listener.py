"""One pair of global hooks: nothing of it is left, wherever an interrupt comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab import compat
from modlab.running import listener

VERBS = {
    "compare": lambda net, x: modlab.compare(net)(x),
    "diagnose": lambda net, x: modlab.diagnose(net, batch=(x, torch.zeros(4, 2)), loss=nn.functional.mse_loss),
    "trace": lambda net, x: _in_a_block(modlab.trace(net), net, x),
    "watch": lambda net, x: _in_a_block(modlab.watch(net, torch.optim.SGD(net.parameters(), 0.1)), net, x),
    "watch, a NaN is run again": lambda net, x: _until_nan(net, x),
}
REGISTERED = 12
"""Hooks that a verb registers, at most."""


class Net(nn.Module):
    """It draws in both modes: then `diagnose` asks in which module."""

    def __init__(self) -> None:
        super().__init__()
        self.sick = False
        self.l0, self.l1 = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.sick:
            x = (x - x) / (x - x)
        return self.l1(nn.functional.dropout(self.l0(x), training=True))


def _in_a_block(look: Any, net: Net, x: torch.Tensor) -> None:
    with look:
        net(x).sum().backward()


def _until_nan(net: Net, x: torch.Tensor) -> None:
    net.sick = True
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(2):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    assert w.alerts[0].trace is not None


def tables() -> dict[str, list[int]]:
    return {name: [*held] for name, held in compat.global_hooks().items() if isinstance(held, dict)}


@pytest.mark.parametrize("verb", VERBS)
def test_an_interrupt_inside_of_torchs_registering_leaves_no_hook(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when torch has the hook, and we have no handle of it yet."""
    before, interrupted = tables(), 0
    for turn in range(REGISTERED):
        net, x, left = Net(), torch.randn(4, 3), [turn]

        def met(register: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def registering(*args: Any, **how: Any) -> Any:
                handle = register(*args, **how)
                left[0] -= 1
                if left[0] == -1:
                    raise KeyboardInterrupt
                return handle

            return registering

        with monkeypatch.context() as patch:
            for name in ("register_module_forward_pre_hook", "register_module_forward_hook"):
                patch.setattr(listener, name, met(getattr(listener, name)))
            try:
                VERBS[verb](net, x)
            except KeyboardInterrupt:
                interrupted += 1
        assert tables() == before
    assert interrupted
