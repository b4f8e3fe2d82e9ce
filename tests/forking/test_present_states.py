"""Fixes that are tried on the present state of a model, with one batch: where a watch has kept no weights, and of a diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab import errors as modlab_errors
from modlab.records.finding import Finding, Remedy
from modlab.results.fork import of_batch

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
TARGET = X.sum(1, keepdim=True)


def net(*between: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), *between, nn.Linear(16, 1))


def found(w: Any, kind: str) -> Any:
    return next(one for one in w.findings if one.kind == kind)


@pytest.mark.parametrize("of", ["a watch", "a diagnosis"])
def test_what_cannot_be_copied_is_said(of: str, tmp_path: Path) -> None:
    model = net()
    with (tmp_path / "log").open("w") as log:
        model.log = log  # type: ignore[assignment]
        optimizer = torch.optim.SGD(model[0].parameters(), 0.01)
        with modlab.watch(model, optimizer) as w:
            for _ in range(12):
                optimizer.zero_grad()
                F.mse_loss(model(X), TARGET).backward()
                optimizer.step()
        diagnosis = modlab.diagnose(model, optimizer, batch=(X, TARGET), loss=nn.MSELoss())
        one = found(w, "not in the optimizer") if of == "a watch" else found(diagnosis, "in no optimizer")
        with pytest.raises(modlab_errors.ForkError, match=r"No copy of Sequential.*: log cannot be copied .*hold it outside of the model"):
            one.try_fix(5)


@pytest.mark.parametrize("kind", ["clipped to nothing", "clip higher", "no zero grad", "overflow"])
def test_a_fix_of_the_loop_says_that_one_batch_has_none(kind: str) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    of = Finding("clipped to nothing", fixes=(Remedy("clip less"),)) if kind == "clip higher" else Finding(kind)
    with pytest.raises(modlab_errors.ForkError, match=r'a loop of its own, which zeroes(?s:.*)clips none(?s:.*)keep="good", which keeps'):
        of_batch(model, [optimizer], (X, TARGET), nn.MSELoss(), of, 5)


NARROW_LOSSES: dict[str, Any] = {
    "a function": F.mse_loss,
    "a criterion": nn.MSELoss(),
    "one with weights": nn.BCEWithLogitsLoss(pos_weight=torch.ones(1, dtype=torch.bfloat16)),
}


@pytest.mark.parametrize("loss", NARROW_LOSSES)
@pytest.mark.parametrize("given", ["a tensor", "a tuple"])
def test_float32_widens_the_batch_too(loss: str, given: str) -> None:
    model, x = net().bfloat16(), X.bfloat16()
    optimizer, target = torch.optim.SGD(model.parameters(), 0.001), (TARGET > 0).bfloat16()
    inputs = x if given == "a tensor" else (x,)
    fork = of_batch(model, [optimizer], (inputs, target), NARROW_LOSSES[loss], Finding("too few digits"), 10)
    assert fork.record.steps == 10 and fork.losses[-1] < fork.losses[0]
    assert model[0].weight.dtype is x.dtype is torch.bfloat16


def test_a_watch_without_kept_weights_tries_float32() -> None:
    model, x = net().bfloat16(), X.bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    with modlab.watch(model, optimizer) as w:
        for _ in range(100):
            optimizer.zero_grad()
            F.mse_loss(model(x), TARGET.bfloat16()).backward()
            optimizer.step()
    fork = found(w, "too few digits").try_fix(20)
    assert fork.record.steps == 20 and "with float32" in fork.headline


def dropping(*, ends: bool) -> tuple[nn.Sequential, Any, torch.optim.Optimizer]:
    """A training whose batch norm is held in evaluation, and that may end in a validation."""
    model = net(nn.BatchNorm1d(16), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model[0].parameters(), 0.01)
    with modlab.watch(model, optimizer) as w:
        for _ in range(30):
            model.train()
            model[2].eval()
            optimizer.zero_grad()
            F.mse_loss(model(X), TARGET).backward()
            optimizer.step()
        if ends:
            model.eval()
    return model, w, optimizer


def test_copies_train_in_the_modes_that_the_steps_had() -> None:
    forks = []
    for ends in (False, True):
        model, w, optimizer = dropping(ends=ends)
        torch.manual_seed(1)
        forks.append(found(w, "not in the optimizer").try_fix(10))
        assert [one.training for one in model] == [not ends, not ends, False, not ends, not ends]
        del optimizer
    assert forks[0].losses == forks[1].losses and len({*forks[1].losses}) == 10
    assert "modes that the steps of the training had" in str(forks[1]) and "mode" not in forks[0].record.facts


def test_a_diagnosis_in_evaluation_mode_says_that_its_copies_are_in_it() -> None:
    for trains in (True, False):
        model = net(nn.Dropout(0.5)).train(trains)
        optimizer = torch.optim.SGD(model[0].parameters(), 0.01)
        diagnosis = modlab.diagnose(model, optimizer, batch=(X, TARGET), loss=nn.MSELoss())
        fork = diagnosis.findings[0].try_fix(10)
        assert ("They began in evaluation mode, as the model is now" in str(fork)) is not trains


class Pair(nn.Module):
    """Gives two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: Tensor, *, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        return self.inner(x) * scale, x


class Number(nn.Module):
    """Gives one number."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = net()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).mean()


def mse(model: nn.Module) -> Tensor:
    return F.mse_loss(model(X), TARGET)


WITHOUT_BATCH: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Tensor], str]] = {
    "two terms": (net, lambda model: mse(model) + 0.3 * F.l1_loss(model(X), TARGET), "its loss has several terms"),
    "a penalty": (net, lambda model: mse(model) + 1e-3 * model[0].weight.square().sum(), "its loss has several terms"),
    "evaluation mode": (lambda: net(nn.Dropout(0.5)).eval(), mse, "it trains in evaluation mode"),
    "two tensors": (Pair, lambda model: (model(X)[0] - TARGET).abs().pow(2.7).mean(), "its loss could not be computed again"),
    "a number": (Number, lambda model: (model(X) - TARGET.mean()) ** 2, "it gives no tensor of more than one number"),
    "a loss of its own": (net, lambda model: (model(X) - TARGET).abs().pow(2.7).mean(), "its loss could not be computed again"),
}


@pytest.mark.parametrize("name", WITHOUT_BATCH)
def test_why_no_batch_was_kept_is_said_and_one_can_be_given(name: str) -> None:
    make, loss, why = WITHOUT_BATCH[name]
    model = make()
    optimizer = torch.optim.SGD([*model.parameters()][:2], 0.01)
    with modlab.watch(model, optimizer) as w:
        for _ in range(30):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    one = next(one for one in w.findings if one.kind in ("not in the optimizer", "eval while training"))
    with pytest.raises(modlab_errors.ForkError, match=rf"and no batch to try a fix on.*: {why}(?s:.*)w.diagnose\(batch=(?s:.*)keep="):
        one.try_fix(5)
    given = w.diagnose(batch=(X, TARGET), loss=lambda output, target: F.mse_loss(output[0] if name == "two tensors" else output, target))
    assert next(other for other in given.findings if other.kind == one.kind).try_fix(5).record.steps == 5


@pytest.mark.parametrize("times", [1.0, 1e6, 1e30])
def test_a_fork_of_weights_that_were_lost_says_so(times: float) -> None:
    model = net()
    optimizer = torch.optim.SGD(model[0].parameters(), 0.01)
    with modlab.watch(model, optimizer) as w:
        for _ in range(30):
            optimizer.zero_grad()
            mse(model).backward()
            optimizer.step()
    with torch.no_grad():
        model[2].weight.mul_(times)
    fork = found(w, "not in the optimizer").try_fix(5)
    said = 'these weights were lost before. With keep="good" a watch keeps good ones'
    assert (said in str(fork)) is (times > 1) and fork.record.steps == 5


@pytest.mark.parametrize("keep", [None, "good"])
def test_losses_without_their_factor_are_shown_with_it(keep: str | None) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with modlab.watch(model, optimizer, keep=keep) as w:  # type: ignore[arg-type]
        for _ in range(30):
            optimizer.zero_grad()
            (1e-4 * mse(model)).backward()
            optimizer.step()
    fork = found(w, "loss too small").try_fix(10)
    assert fork.losses[0] == fork.original[0] < 1e-3 and fork.outcome == "better"
    assert "shown with the factor, as the loop computes them: its gradients alone are without it" in str(fork)
    assert "its gradients alone" not in str(of_batch(model, [optimizer], (X, TARGET), nn.MSELoss(), Finding("rate too low"), 5))
