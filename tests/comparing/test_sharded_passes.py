"""Compare on models that are spread over ranks, at each moment of a step: the training goes on as without, bit for bit."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import modlab
from modlab.comparing.modes import ALONE, SEVERAL
from tests.kinds import collectives
from tests.ranks import run_ranks

MOMENTS = ("before all", "after forward", "after backward", "after step", "after evaluation")
STEPS = 3


class Block(nn.Module):
    """A frozen weight, a buffer, a parameter that is not called, and sizes that two ranks cannot share evenly."""

    def __init__(self, size):
        super().__init__()
        self.a, self.b, self.norm, self.drop = nn.Linear(size, 5), nn.Linear(5, size), nn.LayerNorm(size), nn.Dropout(0.3)
        self.frozen, self.spare = nn.Linear(size, 3).requires_grad_(False), nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += 1
        return self.norm(x + self.drop(self.b(self.a(x).relu()))) + self.frozen(x).sum()


def mesh(name):
    return init_device_mesh("cpu", (2,), mesh_dim_names=(name,))


def net():
    return nn.Sequential(Block(7), Block(7), nn.Linear(7, 3))


def units(**options):
    model = net()
    for block in model[:2]:
        fully_shard(block, mesh=mesh("dp"), **options)
    return fully_shard(model, mesh=mesh("dp"), **options)


def kept():
    return units(reshard_after_forward=False)


def half():
    return units(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))


def tensor_parallel():
    plan = {"a": ColwiseParallel(), "b": RowwiseParallel()}
    model = nn.Sequential(Block(8), Block(8), nn.Linear(8, 3))
    for block in model[:2]:
        block.a, block.b = nn.Linear(8, 6), nn.Linear(6, 8)
        parallelize_module(block, mesh("tp"), plan)
    return model


def ddp():
    return nn.parallel.DistributedDataParallel(net(), find_unused_parameters=True)


MODELS = {"units": units, "kept": kept, "half": half, "tensor parallel": tensor_parallel, "DDP": ddp}


def bits(model, optimizer):
    def content(tensor):
        part = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
        return type(tensor).__name__, part.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if part.numel() else b""

    found = {name: content(one) for name, one in [*model.named_parameters(), *model.named_buffers()]}
    found |= {f"{name}.grad": content(one.grad) for name, one in model.named_parameters() if one.grad is not None}
    states = [held for one in optimizer.state.values() for held in one.values() if isinstance(held, torch.Tensor)]
    return found | {f"state {i}": content(one) for i, one in enumerate(states)} | {"random": torch.get_rng_state().numpy().tobytes()}


def trained(rank, name, moment):
    """The bits after some steps, the collectives, and what was said; with a comparison at one moment, or none."""
    torch.manual_seed(0)
    model = MODELS[name]()
    torch.manual_seed(rank if name != "tensor parallel" else 0)
    x = torch.randn(4, 8 if name == "tensor parallel" else 7)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)
    said, passes = [], []

    def at(now):
        if now == moment and not said:
            before = collectives()
            found = modlab.compare(model)(x)
            said.append((found.headline, [one for one in found.record.remarks if one in (ALONE, SEVERAL)]))
            passes.append(collectives() - before)

    start = collectives()
    at("before all")
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(x).float().square().mean()
        at("after forward")
        loss.backward()
        at("after backward")
        optimizer.step()
        at("after step")
        with torch.no_grad():
            model.eval()
            model(x)
            model.train()
        at("after evaluation")
    return bits(model, optimizer), collectives() - start - sum(passes), said


def everywhere(rank, name):
    """Of each moment what is another than without the look."""
    plain, count, _ = trained(rank, name, None)
    found = {}
    for moment in MOMENTS:
        now, counted, said = trained(rank, name, moment)
        changed = [key for key in {**plain, **now} if plain.get(key) != now.get(key)]
        found[moment] = changed[:5], counted - count, said
        dist.barrier()
    return found


def counted(rank, name):
    """The collectives of plain passes in each mode, of a comparison of the two modes, of one plain pass, and of one of two models."""
    torch.manual_seed(0)
    model, x = MODELS[name](), torch.ones(4, 8 if name == "tensor parallel" else 7)
    model(x).float().sum().backward()  # what is made at the first pass alone

    def of(work):
        before = collectives()
        work()
        return collectives() - before

    def sharded():
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def plain():
        sharded()
        model(x)

    passes = []
    for mode in (model.train, model.eval):
        for autograd in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            mode()
            with autograd():
                passes.append(of(plain))
    model.train()
    twice = 2 * of(plain)
    sharded()  # what is gathered already needs not be gathered again
    return sum(passes), of(lambda: modlab.compare(model)(x)), twice, of(lambda: modlab.compare(model, model)(x))


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "tensor parallel" else pytest.mark.long) for name in MODELS])
def test_a_comparison_communicates_as_so_many_passes(name):
    for plain, modes, twice, pair in run_ranks(counted, 2, name):
        assert (modes, pair) == ((0, 0) if name == "DDP" else (plain, twice))
        assert plain


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "units" else pytest.mark.long) for name in MODELS])
def test_a_comparison_at_any_moment_changes_nothing(name):
    for found in run_ranks(everywhere, 2, name):
        for moment, (changed, more, said) in found.items():
            assert not changed, f"{moment}: {changed}"
            assert not more, f"{moment}: {more} collectives more afterwards"
            assert said[0][0]
            assert said[0][1], moment
