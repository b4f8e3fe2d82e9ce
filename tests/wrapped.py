"""Models with odd names, and models in each kind of wrapper that one process can make."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import prune


class Odd(nn.Module):
    """Names that are no names of Python's, containers of each kind, and what torch does not see."""

    def __init__(self) -> None:
        super().__init__()
        layers = {name: nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU()) for name in ("a-b", "lambda", "größe", "it's", 'q"', "a b")}
        self.layers = nn.ModuleDict(
            {**layers, "x[0]": nn.BatchNorm1d(4), "*": nn.Linear(4, 4), "ﬁ": nn.Linear(4, 4), "\\n\n": nn.Linear(4, 4)}
        )
        self.listed = nn.ParameterList([torch.ones(4), torch.ones(4)])
        self.named = nn.ParameterDict({"k-1": torch.ones(4), "class": torch.ones(4), "plain": torch.ones(4)})
        self.nested = nn.ModuleList([nn.ModuleDict({"0": nn.ModuleList([nn.Linear(4, 4)])})])
        self.again = self.layers["*"]
        self.register_parameter("if", nn.Parameter(torch.ones(4)))
        self.register_parameter("no-ne", None)
        self.register_buffer("de f", torch.ones(4), persistent=False)
        self.hidden = [nn.Linear(4, 4)]
        self.set = {torch.ones(3)}
        self.table = torch.ones(3)
        nn.utils.parametrizations.weight_norm(self.nested[0]["0"][0])

    def forward(self, x: Tensor) -> Tensor:
        for name, layer in self.layers.items():
            x = layer(x) if name != "x[0]" else layer(x.reshape(-1, 4))
        x = self.nested[0]["0"][0](x)
        return x * self.listed[0] * self.named["k-1"]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Sequential(nn.Linear(4, 4), nn.ReLU(True)), nn.Linear(4, 4, bias=False))


def quantized() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), {nn.Linear})


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(net())


def traced() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(net(), torch.ones(2, 4))


def with_a_traced_part() -> nn.Module:
    return nn.Sequential(scripted(), nn.Linear(4, 4))


def fsdp1() -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=True)


def flat_fsdp1() -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FullyShardedDataParallel(net(), device_id=torch.device("cpu"))


def fsdp2() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = net(), init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    fully_shard(model[2], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def peft() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(net(), LoraConfig(r=2, target_modules=["0", "2.0"]))


def parametrized() -> nn.Module:
    model = net()
    nn.utils.parametrizations.orthogonal(model[0])
    prune.l1_unstructured(model[3], "weight", 0.5)
    return model


def checkpointed() -> nn.Module:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = net()
    model[2] = checkpoint_wrapper(model[2])
    return model


def ddp(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


def compiled(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


WRAPPED: dict[str, Callable[[], nn.Module]] = {
    "odd": Odd,
    "DDP": lambda: ddp(net()),
    "DDP of odd": lambda: ddp(Odd()),
    "DataParallel": lambda: nn.DataParallel(net()),
    "compiled": lambda: compiled(net()),
    "compiled odd": lambda: compiled(Odd()),
    "DDP of compiled": lambda: ddp(compiled(net())),
    "compiled DDP": lambda: compiled(ddp(net())),
    "FSDP2": fsdp2,
    "FSDP1": fsdp1,
    "FSDP1, flat": flat_fsdp1,
    "scripted": scripted,
    "traced": traced,
    "scripted part": with_a_traced_part,
    "PEFT": peft,
    "DDP of PEFT": lambda: ddp(peft()),
    "parametrized": parametrized,
    "checkpointed": checkpointed,
    "averaged": lambda: torch.optim.swa_utils.AveragedModel(net()),
    "quantized": quantized,
    "DDP in a model": lambda: nn.Sequential(ddp(net()), nn.Linear(4, 4)),
}
"""By name; those of torch.distributed need a process group."""
