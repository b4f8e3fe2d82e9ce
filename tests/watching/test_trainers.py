"""A watch where others write the loop: transformers' Trainer, Lightning, Fabric, accelerate. No callback, and the same weights."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import modlab
from modlab.records.loss import the_loss
from modlab.results.watch import Watch

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

X, Y = torch.randn(24, 6, generator=torch.Generator().manual_seed(0)), torch.arange(24) % 3
STEPS, PASSES = 12, 2


class Net(nn.Module):
    """Gives what each of them wants: logits, and with labels a loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        out = self.body(x)
        return out if labels is None else {"loss": F.cross_entropy(out, labels), "logits": out}


class Told:
    """What the library says of itself: by step, its loss, its rate and its norm."""

    def __init__(self) -> None:
        self.loss: list[float] = []
        self.rate: list[float] = []
        self.norm: list[float] = []


Watching = Callable[[nn.Module, Any], Watch]


def trainer(folder: Path, watching: Watching | None, told: Told) -> tuple[nn.Module, Watch | None]:
    from transformers import Trainer, TrainingArguments

    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=PASSES,
        max_steps=STEPS,
        logging_steps=1,
        learning_rate=0.05,
        max_grad_norm=0.4,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
    )
    model = Net()
    made = Trainer(model=model, args=arguments, train_dataset=rows)
    w = watching(model, None) if watching else None
    made.train()
    for one in made.state.log_history:
        if "loss" in one:
            told.loss.append(float(one["loss"]))
            told.norm.append(float(one["grad_norm"]))
    return model, w


def trainer_with_a_callback(folder: Path, watching: Watching | None, told: Told) -> tuple[nn.Module, Watch | None]:
    """The optimizer that a callback is given is accelerate's."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        max_steps=STEPS,
        logging_steps=1,
        learning_rate=0.05,
        max_grad_norm=0.4,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        save_strategy="no",
    )
    found: list[Watch] = []

    class Begin(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if watching:
                found.append(watching(given["model"], given["optimizer"]))

    model = Net()
    made = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=[Begin()])
    made.train()
    for one in made.state.log_history:
        if "loss" in one:
            told.loss.append(float(one["loss"]))
            told.norm.append(float(one["grad_norm"]))
    return model, found[0] if found else None


def lightning(folder: Path, watching: Watching | None, told: Told) -> tuple[nn.Module, Watch | None]:
    import lightning as L

    class Module(L.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)  # type: ignore[no-any-return]

        def training_step(self, batch: Any, index: int) -> Tensor:
            x, y = batch
            loss = F.cross_entropy(self.net(x), y)
            if index % PASSES == 0:
                told.loss.append(0.0)
                told.rate.append(self.optimizers().param_groups[0]["lr"])
            told.loss[-1] += loss.item() / PASSES
            return loss

        def configure_optimizers(self) -> Any:
            o = torch.optim.SGD(self.parameters(), lr=0.1)
            return {"optimizer": o, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(o, 3, 0.5), "interval": "step"}}

    model = Module()
    w = watching(model, None) if watching else None
    made = L.Trainer(
        max_steps=STEPS,
        accumulate_grad_batches=PASSES,
        gradient_clip_val=0.4,
        accelerator="cpu",
        devices=1,
        logger=False,
        barebones=True,
        default_root_dir=folder,
    )
    made.fit(model, DataLoader(TensorDataset(X, Y), batch_size=4))
    return model, w


def lightning_by_hand(folder: Path, watching: Watching | None, told: Told) -> tuple[nn.Module, Watch | None]:
    import lightning as L

    class Module(L.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> None:
            x, y = batch
            o = self.optimizers()
            o.zero_grad()
            loss = F.cross_entropy(self.net(x), y)
            self.manual_backward(loss)
            o.step()
            told.loss.append(loss.item())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Module()
    w = watching(model, None) if watching else None
    made = L.Trainer(max_steps=STEPS, accelerator="cpu", devices=1, logger=False, barebones=True, default_root_dir=folder)
    made.fit(model, DataLoader(TensorDataset(X, Y), batch_size=8))
    return model, w


def fabric(folder: Path, watching: Watching | None, told: Told) -> tuple[nn.Module, Watch | None]:
    import lightning as L

    made = L.Fabric(accelerator="cpu", devices=1)
    net = Net()
    model, o = made.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
    w = watching(model, o) if watching else None
    for step in range(STEPS):
        o.zero_grad()
        loss = F.cross_entropy(model(X), Y)
        made.backward(loss)
        told.norm.append(float(made.clip_gradients(model, o, max_norm=0.4)))
        o.step()
        told.loss.append(loss.item())
        told.rate.append(0.1)
        assert step >= 0
    return net, w


def accelerate(folder: Path, watching: Watching | None, told: Told) -> tuple[nn.Module, Watch | None]:
    from accelerate import Accelerator

    made = Accelerator(cpu=True, gradient_accumulation_steps=PASSES)
    net = Net()
    o = torch.optim.SGD(net.parameters(), lr=0.1)
    model, o, data, schedule = made.prepare(
        net, o, DataLoader(TensorDataset(X, Y), batch_size=4), torch.optim.lr_scheduler.StepLR(o, 3, 0.5)
    )
    w = watching(model, o) if watching else None
    while len(told.loss) < STEPS or len(told.norm) < STEPS:
        for number, (x, y) in enumerate(data):
            with made.accumulate(model):
                if number % PASSES == 0:
                    told.loss.append(0.0)
                loss = F.cross_entropy(model(x), y)
                made.backward(loss)
                told.loss[-1] += loss.item() / PASSES
                if made.sync_gradients:
                    told.norm.append(float(made.clip_grad_norm_(model.parameters(), 0.4)))
                    told.rate.append(o.param_groups[0]["lr"])
                o.step()
                schedule.step()
                o.zero_grad()
    return net, w


LIBRARIES = [trainer, trainer_with_a_callback, lightning, lightning_by_hand, fabric, accelerate]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    yield


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.__name__)
def test_a_trainer_is_watched_without_a_callback(library: Callable[..., Any], tmp_path: Path) -> None:
    told = Told()
    model, w = library(tmp_path, lambda model, o: modlab.watch(model, o, budget=1.0), told)
    w.close()
    record = w.record
    assert not record.error and record.steps == STEPS
    loss = the_loss(record)
    assert loss is not None and loss.name == "loss" and loss.count == STEPS
    assert loss.mean.tolist() == pytest.approx(told.loss, abs=6e-5)  # Trainer rounds
    rates = [one for one in record.scalars if one.kind == "rate"]
    assert rates and rates[0].count == STEPS
    if told.rate:
        assert rates[0].mean.tolist() == pytest.approx(told.rate)
    if told.norm:
        (norm,) = (one for one in record.scalars if one.kind == "norm")
        assert norm.mean.tolist() == pytest.approx(told.norm, rel=1e-4) and norm.bound == pytest.approx(0.4)
        assert norm.beyond == sum(one > 0.4 for one in told.norm)
    assert [check.state for check in record.verdict.checks][:7] == ["passed"] * 7, str(record.verdict)
    other, _ = library(tmp_path, None, Told())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
