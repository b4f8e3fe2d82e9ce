"""Models that lie over ranks, on one process: torch's fake process group stands for the others, and answers at once."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from modlab.statistics.sharding import renew


@contextmanager
def fake_ranks(world: int, rank: int = 0) -> Iterator[None]:
    """A process group of so many ranks, of which this process is one and the others are not there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    gc.collect()  # torch gives a mesh again that is still there, though its groups are gone
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    renew()
    try:
        yield
    finally:
        dist.destroy_process_group()


class MLP(nn.Module):
    """Two linear layers, as tensor parallelism likes them."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, width) to the same."""
        return self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    """Some MLPs, and a head of 3 rows, which no two ranks share evenly."""

    def __init__(self, blocks: int = 2, width: int = 8) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(MLP(width) for _ in range(blocks))
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Shape (batch, width) to (batch, 3)."""
        for block in self.blocks:
            x = block(x)
        return self.head(x.to(self.head.weight.dtype))


def plain(**kw: int) -> nn.Module:
    """On one process alone."""
    return Net(**kw)


def fsdp2(policy: MixedPrecisionPolicy | None = None, **kw: int) -> nn.Module:
    """Each block and the whole are units of FSDP2."""
    net = Net(**kw)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    for block in net.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy or MixedPrecisionPolicy())
    return fully_shard(net, mesh=mesh)


def hsdp(**kw: int) -> nn.Module:
    """FSDP2 over one axis, copies over the other."""
    net = Net(**kw)
    mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("copies", "dp"))
    return fully_shard(net, mesh=mesh)


def tensor_parallel(**kw: int) -> nn.Module:
    """Columns of the first, rows of the second layer of each block."""
    net = Net(**kw)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    for block in net.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return net


def both(**kw: int) -> nn.Module:
    """FSDP2 over tensor parallelism, on a mesh of two rows."""
    net = Net(**kw)
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    for block in net.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["dp"])
    return fully_shard(net, mesh=mesh["dp"])


def ddp(**kw: int) -> nn.Module:
    """The same on all ranks."""
    return nn.parallel.DistributedDataParallel(Net(**kw))


def fsdp1(use_orig_params: bool = True, **kw: int) -> nn.Module:
    """FSDP1: flat parameters."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    net = Net(**kw)
    device = torch.device("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that FSDP1 will go
        for i, block in enumerate(net.blocks):
            net.blocks[i] = FullyShardedDataParallel(block, use_orig_params=use_orig_params, device_id=device)
        return FullyShardedDataParallel(net, use_orig_params=use_orig_params, device_id=device)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 1, width: int = 8) -> None:
    """Some steps, all ranks together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FSDP2 says that a block returns a view
        for step in range(steps):
            optimizer.zero_grad()
            net(torch.linspace(-1, 1, 4 * width).view(4, width) + step).square().mean().backward()
            optimizer.step()


WAYS: dict[str, Callable[..., nn.Module]] = {
    "plain": plain,
    "fsdp2": fsdp2,
    "hsdp": hsdp,
    "tp": tensor_parallel,
    "fsdp2 x tp": both,
    "ddp": ddp,
    "fsdp1": fsdp1,
}
