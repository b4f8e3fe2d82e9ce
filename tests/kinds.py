"""Models as people train them: plain, sharded, wrapped, compiled, or driven by a trainer. Each can train some steps, alike each time."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

STEPS = 3
Between = Callable[["Case"], None]


@dataclass
class Case:
    """One model and the way it is trained.

    Attributes:
        model: what a user would hand to modlab.
        optimizer: of its steps; None where a trainer makes it.
        inputs, target: a batch of this rank's own.
        train: trains `STEPS` steps, and calls its argument after the first.
        loss: of an output and a target.
        runs: whether the model can be called by itself.
    """

    model: nn.Module
    optimizer: Any
    inputs: Any
    target: Tensor
    train: Callable[[Between], None]
    loss: Callable[[Any, Tensor], Tensor] = nn.functional.mse_loss
    runs: bool = True


def net() -> nn.Sequential:
    """Small, with what a mode and a buffer change."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)), nn.Linear(16, 4))


def batch(rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)


def case_of(model: nn.Module, rank: int, *, call: Callable[..., Any] | None = None, lr: float = 0.01) -> Case:
    """A plain loop over a model."""
    inputs, target = batch(rank)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=lr)
    called = call or model

    def train(between: Between) -> None:
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(called(inputs), target)
            loss.backward()
            optimizer.step()
            if not step:
                between(made)

    made = Case(model, optimizer, inputs, target, train)
    return made


def plain(rank: int) -> Case:
    return case_of(net(), rank)


def freed(rank: int) -> Case:
    """A frozen layer that is not called, and whose memory is gone."""

    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gone, self.net = nn.Linear(64, 64), net()
            self.gone.requires_grad_(False)
            for one in self.gone.parameters():
                one.untyped_storage().resize_(0)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

    return case_of(Partly(), rank)


def checkpointing(rank: int) -> Case:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = net()
    model[2] = checkpoint_wrapper(model[2])
    return case_of(model, rank)


def compiled(rank: int) -> Case:
    torch.compiler.reset()
    return case_of(torch.compile(net(), backend="aot_eager"), rank)


def compiled_copy(rank: int) -> Case:
    """`torch.compile(m)` is what is called, `m` is what is looked at."""
    torch.compiler.reset()
    model = net()
    return case_of(model, rank, call=torch.compile(model, backend="aot_eager"))


def scripted(rank: int) -> Case:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return case_of(torch.jit.script(net()), rank)


def int8(rank: int) -> Case:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model = net()
    quantize_(model[2], Int8WeightOnlyConfig())
    for one in model[2].parameters():
        one.requires_grad_(False)
    return case_of(model, rank)


def peft(rank: int) -> Case:
    from peft import LoraConfig, get_peft_model

    return case_of(get_peft_model(net(), LoraConfig(r=2, target_modules=["0", "2.0"], lora_dropout=0.1)), rank, lr=0.1)


def ddp(rank: int) -> Case:
    return case_of(nn.parallel.DistributedDataParallel(net()), rank)


def mesh(*shape: int, names: tuple[str, ...] = ("dp",)) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def fsdp2(rank: int) -> Case:
    from torch.distributed.fsdp import fully_shard

    model, dp = net(), mesh(2)
    fully_shard(model[2], mesh=dp)
    fully_shard(model, mesh=dp)
    return case_of(model, rank)


def tensor_parallel(rank: int) -> Case:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = parallelize_module(net(), mesh(2, names=("tp",)), {"0": ColwiseParallel(), "2.0": RowwiseParallel()})
    return case_of(model, 0)  # all ranks of a tensor-parallel group get the same batch


def fsdp2_tp(rank: int) -> Case:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    both = mesh(2, 2, names=("dp", "tp"))
    model = parallelize_module(net(), both["tp"], {"0": ColwiseParallel(), "2.0": RowwiseParallel(), "3": ColwiseParallel()})
    model[3] = nn.Linear(16, 4)
    fully_shard(model[2], mesh=both["dp"])
    fully_shard(model, mesh=both["dp"])
    return case_of(model, rank // 2)


def hsdp(rank: int) -> Case:
    """FSDP2 over one axis of a mesh, copies over the other."""
    from torch.distributed.fsdp import fully_shard

    model, both = net(), mesh(2, 2, names=("copies", "dp"))
    fully_shard(model[2], mesh=both)
    fully_shard(model, mesh=both)
    return case_of(model, rank)


def replicated(rank: int) -> Case:
    """DDP without a wrapper: `replicate(model)`."""
    from torch.distributed._composable.replicate import replicate

    return case_of(replicate(net()), rank)


def fsdp1(rank: int) -> Case:
    from torch.distributed.fsdp import FullyShardedDataParallel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return case_of(FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=True), rank)


def pipeline(rank: int) -> Case:
    """Two stages, each with a model of its own; what is looked at is this rank's."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    whole, (inputs, target) = net(), batch(0)
    model = whole[:2] if rank == 0 else whole[2:]
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(between: Between) -> None:
        for step in range(STEPS):
            optimizer.zero_grad()
            schedule.step(inputs) if rank == 0 else schedule.step(target=target)
            optimizer.step()
            if not step:
                between(made)

    own = inputs if rank == 0 else torch.randn(6, 16)
    made = Case(model, optimizer, own, torch.zeros(6, 16) if rank == 0 else target, train)
    return made


def trainer(rank: int) -> Case:
    """transformers' Trainer."""
    import tempfile

    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            logits = self.net(x)
            return {"logits": logits} if labels is None else {"loss": nn.functional.mse_loss(logits, labels), "logits": logits}

    class After(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.global_step == 1:
                made.optimizer = rest["optimizer"]
                self.between(made)

    model, (inputs, target) = Head(), batch(rank)
    after = After()

    def train(between: Between) -> None:
        after.between = between
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments = TrainingArguments(
                output_dir=folder,
                max_steps=STEPS,
                per_device_train_batch_size=6,
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
                save_strategy="no",
                logging_steps=1,
                dataloader_pin_memory=False,
                seed=0,
                log_level="error",
            )
            rows = [{"x": x, "labels": y} for x, y in zip(inputs, target, strict=True)]
            with contextlib.redirect_stdout(None):
                Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[after]).train()

    made = Case(model, None, inputs, target, train, loss=lambda output, target: nn.functional.mse_loss(output["logits"], target))
    return made


def lightning(rank: int) -> Case:
    """Lightning's Trainer."""
    import logging

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning as L
    from torch.utils.data import DataLoader

    class Lit(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def training_step(self, batch: Any, index: int) -> Tensor:
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    class After(L.Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
            if index == 0:
                made.optimizer = trainer.optimizers[0]
                self.between(made)

    model, (inputs, target) = Lit(), batch(rank)
    after = After()

    def train(between: Between) -> None:
        after.between = between
        rows = [(inputs, target)] * STEPS
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            L.Trainer(
                max_steps=STEPS,
                accelerator="cpu",
                devices=1,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                callbacks=[after],
            ).fit(model, DataLoader(rows, batch_size=None))

    made = Case(model, None, inputs, target, train)
    return made


KINDS: dict[str, tuple[Callable[[int], Case], int]] = {
    "plain": (plain, 1),
    "memory gone": (freed, 1),
    "checkpointing": (checkpointing, 1),
    "compiled": (compiled, 1),
    "compiled copy": (compiled_copy, 1),
    "scripted": (scripted, 1),
    "torchao int8": (int8, 1),
    "PEFT": (peft, 1),
    "Trainer": (trainer, 1),
    "Lightning": (lightning, 1),
    "DDP": (ddp, 2),
    "FSDP2": (fsdp2, 2),
    "TP": (tensor_parallel, 2),
    "FSDP2 × TP": (fsdp2_tp, 4),
    "HSDP": (hsdp, 4),
    "replicate()": (replicated, 2),
    "FSDP1": (fsdp1, 2),
    "pipeline": (pipeline, 2),
}
"""By name: what makes it on a rank, and how many ranks there are."""


def collectives() -> int:
    """How many collectives this rank has begun so far, in all groups: counted by the groups, which no mode can hide anything from."""
    import torch.distributed as dist

    if not dist.is_initialized():
        return 0
    return sum(group._get_sequence_number_for_group() for group in dist.distributed_c10d._world.pg_map)
