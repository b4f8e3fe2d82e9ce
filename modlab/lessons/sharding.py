"""Sharding of a net over two processes, of which each holds some rows: what lesson 15b runs beside its notebook."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import modlab
from modlab.lessons.workers import SIZE, State, taken


def perceptron(seed: int = 0) -> nn.Sequential:
    """A net whose last layer has three rows, which two processes cannot share evenly."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def shard(net: nn.Sequential) -> Any:
    """Each layer is a unit: its rows are brought together when it is called."""
    mesh = init_device_mesh("cpu", (SIZE,))
    for layer in (net[0], net[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def looked_at(rank: int) -> dict[str, Any]:
    """What a process sees of its weights."""
    net = shard(perceptron())
    weight = net[0].weight
    return {
        "type": type(weight).__name__,
        "shape": tuple(weight.shape),
        "here": {name: tuple(local(one).shape) for name, one in net.named_parameters()},
        "keys": [*net.state_dict()],
        "tree": modlab.tree(net),
    }


def started(rank: int) -> dict[str, State]:
    """Each process draws a net of its own, and then they shard it."""
    net = perceptron(seed=rank)
    drawn = taken(net)
    return {"drawn": drawn, "sharded": whole(shard(net))}


def trained(rank: int, steps: int = 10) -> dict[str, Any]:
    """Train on the data of this process; no line says anything of the other one."""
    net = shard(perceptron())
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for x in batches(rank, steps):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return {
        "gradient": tuple(net[0].weight.grad.to_local().shape),
        "optimizer": sum(local(one["exp_avg"]).numel() + local(one["exp_avg_sq"]).numel() for one in optimizer.state.values()),
        "state": whole(net),
    }


def alone(steps: int = 10) -> State:
    """The same training in one process, on both processes' data."""
    net = perceptron()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for both in zip(*(batches(rank, steps) for rank in range(SIZE)), strict=True):
        optimizer.zero_grad()
        net(torch.cat(both)).square().mean().backward()
        optimizer.step()
    return taken(net)


def saved(rank: int) -> State:
    """What is in the state of each process, without asking the other."""
    return {name: local(value).clone() for name, value in shard(perceptron()).state_dict().items()}


def whole(net: nn.Module) -> State:
    """The whole state: all processes must call this, for each brings its rows."""
    return {name: value.full_tensor().detach().clone() for name, value in net.state_dict().items()}


def local(value: Tensor) -> Tensor:
    """The rows that are here."""
    return value.to_local() if isinstance(value, DTensor) else value


def batches(rank: int, steps: int) -> list[Tensor]:
    """The data of a process; the other's are others."""
    numbers = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(6, 8, generator=numbers) for _ in range(steps)]
