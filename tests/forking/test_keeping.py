"""What a watch keeps for a fork: nothing that the loop did is lost where a state is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from modlab.forking import keeper as keeping
from tests.forking.test_forks import small, watched
from tests.watching.test_identity import Run


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """States are kept every five steps."""
    monkeypatch.setattr(keeping, "GAP", 5)
    yield


# ---- settings that are changed just before a state is kept


def rate_of_dropout(at: int) -> Run:
    """Changed between the last call and the step, and put back after the next step."""
    model = small(nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        model[2].p = 0.1 if number == at else 0.5  # type: ignore[assignment, union-attr]
        optimizer.step()
        return loss

    return model, [optimizer], step


def modes(at: int) -> Run:
    """The model is evaluated between the backward pass and the step."""
    model = small(nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        if number == at:
            model.eval()
            model(torch.randn(8, 4)).mean().item()
            model.train()
        optimizer.step()
        return loss

    return model, [optimizer], step


def rate_of_another_optimizer(at: int) -> Run:
    """Its step is over when its rate is changed, and the step that is counted is not."""
    model = small()
    counted, other = (torch.optim.SGD(model[place].parameters(), lr=0.05) for place in (0, 2))  # type: ignore[union-attr]

    def step(number: int) -> Tensor:
        counted.zero_grad(), other.zero_grad()
        loss: Tensor = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        other.step()
        if number == at:
            other.param_groups[0]["lr"] = 0.3
        counted.step()
        return loss

    return model, [counted, other], step


@pytest.mark.parametrize("make", [rate_of_dropout, modes, rate_of_another_optimizer])
@pytest.mark.parametrize("at", [3, 4, 5])
def test_what_is_set_before_a_step_is_on_the_tape(make: Callable[[int], Run], at: int) -> None:
    w, *_ = watched(lambda: make(at))
    assert 5 in w.record.kept.states
    for start in w.record.kept.states[:-1]:
        fork = w.fork(start)
        assert fork.exact and len(fork.losses) == 24 - start
