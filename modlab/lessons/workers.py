"""Two processes that train together: what lesson 15 runs beside the notebook.

A process that is started anew imports its code; it cannot see a notebook's cells. So what it is to do stands here.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import modlab
from modlab.errors import ModlabError
from modlab.lessons.note import Net

SIZE = 2
PATIENCE_S = 90.0
"""How long an answer may take; a busy machine needs some seconds to import PyTorch twice."""

Work = Callable[..., Any]
State = dict[str, Tensor]


# ---- what the processes do ------------------------------------------------------------------------


def batches(rank: int, steps: int) -> Iterator[Tensor]:
    """The data of one process: others than those of the other."""
    numbers = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        yield torch.randn(8, 4, generator=numbers)


def average(net: nn.Module) -> None:
    """Give each process the mean of all processes' gradients."""
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)  # now the sum over all processes
        parameter.grad /= dist.get_world_size()  # type: ignore[operator]


def by_hand(rank: int, steps: int = 30, together: bool = True) -> dict[str, Any]:
    """Train a copy of `Net` on this process's data."""
    torch.manual_seed(0)  # the same start in each process
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    seen: dict[str, Any] = {"before": [], "after": [], "weight": []}
    for x in batches(rank, steps):
        optimizer.zero_grad()
        net(x).abs().mean().backward()
        seen["before"].append(_bias(net).grad)
        if together:
            average(net)
        seen["after"].append(_bias(net).grad)
        optimizer.step()
        seen["weight"].append(_bias(net))
    return seen | {"state": taken(net)}


def start(rank: int) -> dict[str, Any]:
    """Wrap a net that was drawn in this process."""
    torch.manual_seed(rank)  # another start in each process
    net = Net()
    own = taken(net)
    ddp = DistributedDataParallel(net)
    return {"own": own, "wrapped": taken(net), "tree": modlab.tree(ddp), "saved": taken(ddp)}


def with_ddp(rank: int, steps: int = 30) -> dict[str, Any]:
    """Train a copy of `Net` in the wrapper: no line about the other process."""
    torch.manual_seed(0)
    net = Net()
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01, momentum=0.9)
    for x in batches(rank, steps):
        optimizer.zero_grad()
        ddp(x).abs().mean().backward()
        optimizer.step()
    return {"state": taken(net)}


def normalised() -> nn.Module:
    """A net with state that no optimizer moves."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))


def with_statistics(rank: int, steps: int = 3) -> dict[str, Any]:
    """The same with running statistics."""
    net = normalised()
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for x in batches(rank, steps):
        optimizer.zero_grad()
        ddp(x).abs().mean().backward()
        optimizer.step()
    return {"state": taken(net)}


def uneven(rank: int, patience: float = 1.0) -> str:
    """One process has two batches, the other one; the group is of no use afterwards."""
    steps = 2 - rank
    for number in range(1, steps + 1):
        waiting = dist.all_reduce(torch.ones(1), async_op=True)
        try:
            waiting.wait(timedelta(seconds=patience))
        except RuntimeError:
            return f"step {number}: the other one never came, given up"
    return f"{steps} step done, no more data"


def taken(module: nn.Module) -> State:
    """A copy of a module's state: `state_dict()` alone holds the live tensors."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def _bias(net: nn.Module) -> Any:
    """The one number that the lesson follows; its gradient comes as a number too."""
    return _Number(net.l1.bias)  # type: ignore[arg-type]
