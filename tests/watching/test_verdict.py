"""A verdict is a function of the record: what was saved and loaded, in another process too, is judged as it was."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab.records.watch import Verdict
from modlab.watching.verdict import verdict
from tests.judgements import concluded, is_judged_alike, judged_again

STEPS = 40


def net(*, normalized: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    between = [nn.BatchNorm1d(8)] if normalized else []
    return nn.Sequential(nn.Linear(4, 8), *between, nn.ReLU(), nn.Linear(8, 3))


def trained(model: nn.Module, optimizer: torch.optim.Optimizer | None = None, **how: Any) -> modlab.results.watch.Watch:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(64, 4)
    y = x[:, :3].argmax(1)
    with modlab.watch(model, optimizer, budget=1.0, **how) as w:
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return w


def without_a_gradient() -> Any:
    model = net()
    model.register_parameter("extra", nn.Parameter(torch.ones(3)))
    return trained(model)


def without_an_owner() -> Any:
    model = net()
    return trained(model, torch.optim.Adam(model[0].parameters(), 0.01))


def of_others() -> Any:
    model = net()
    return trained(model, torch.optim.SGD(net().parameters(), 0.1))


def at_rate_zero() -> Any:
    model = net()
    return trained(model, torch.optim.SGD(model.parameters(), 0.0))


def with_dead_units() -> Any:
    model = net()
    with torch.no_grad():
        model[0].bias[:2] = -100.0
    return trained(model)


def with_a_nan() -> Any:
    model = net()
    return trained(model, torch.optim.SGD(model.parameters(), 1e30))


def with_a_hidden_list() -> Any:
    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(4, 4)]
            self.out = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.layers[0](x))

    return trained(Hidden())


def never_called() -> Any:
    model = net()
    model.add_module("aside", nn.ModuleList([nn.Linear(2, 2)]))
    return trained(Idle(model))


class Idle(nn.Module):
    """A model with a part that nobody calls."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.idle = model, nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in list(self.model)[:3]:
            x = part(x)
        return x


def in_evaluation() -> Any:
    return trained(net().eval())


def in_half() -> Any:
    model = net().to(torch.bfloat16)
    x = torch.randn(64, 4, dtype=torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), 1e-7)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    return w


RUNS: dict[str, tuple[Callable[[], Any], str | None]] = {
    "healthy": (lambda: trained(net()), None),
    "a bias before a normalization": (lambda: trained(net(normalized=True)), None),
    "a part of the model": (lambda: trained(net(), only="0"), None),
    "no gradient": (without_a_gradient, "every trained parameter gets a gradient"),
    "no owner": (without_an_owner, "the optimizer owns it"),
    "an optimizer of another model": (of_others, "the optimizer owns it"),
    "a hidden list": (with_a_hidden_list, "the optimizer owns it"),
    "never called": (never_called, "every trained parameter gets a gradient"),
    "in evaluation mode": (in_evaluation, None),
    "a learning rate of zero": (at_rate_zero, "it moves"),
    "bfloat16": (in_half, "by enough for its dtype"),
    "dead units": (with_dead_units, None),
    "NaN": (with_a_nan, "the loss is sensible"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_record_that_was_saved_and_loaded_gives_the_same_verdict(name: str) -> None:
    run, broken = RUNS[name]
    w = run()
    assert (w.verdict.broken.name if w.verdict.broken else None) == broken
    assert is_judged_alike(w)


def test_while_it_runs_too() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with modlab.watch(model, optimizer) as w:
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
            record = w.record
            assert concluded(judged_again(record)) == concluded(record)


def test_another_process_judges_it_alike(tmp_path: Any) -> None:
    w = with_dead_units()
    (tmp_path / "record").write_bytes(pickle.dumps(w.record))
    code = (
        "import pickle, sys\n"
        "from tests.judgements import concluded, judged_again\n"
        "print(concluded(judged_again(pickle.load(open(sys.argv[1], 'rb')))))"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path / "record")], check=True, capture_output=True, text=True).stdout
    assert said.strip() == concluded(w.record)


def test_what_is_known_is_what_the_verdict_rests_on() -> None:
    """Without it nothing is judged that the numbers alone do not tell."""
    from dataclasses import replace

    from modlab.records.watched import Watched

    record = without_an_owner().record
    assert isinstance(verdict(record), Verdict) and record.verdict.broken is not None
    assert concluded(replace(record, verdict=verdict(replace(record, watched=Watched())))) != concluded(record)


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh()])  # units of the one fall silent here
def test_an_error_of_the_run_stands_in_the_headline_and_in_every_table(activation: nn.Module) -> None:
    """Also beside a few units that nothing misses."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), activation, nn.Linear(16, 1))
    optimizer, x = torch.optim.Adam(model.parameters(), 0.01), torch.randn(64, 4)
    with pytest.raises(OSError, match="disk full"), modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(60):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
        raise OSError("disk full")
    assert (w.verdict.exit_code, bool(w.alerts)) == (2, isinstance(activation, nn.ReLU))
    assert w.headline.startswith("Step 60 ended in an error: OSError: disk full.")
    for face in (str(w), str(w.verdict), w.html(bundle=False), w.verdict._repr_html_()):
        assert "the run" in face and "ended in an error: OSError: disk full" in face


def test_weights_that_stand_still_where_nothing_is_left_to_learn_are_no_fault() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(64, 4)
    optimizer, y = torch.optim.SGD(model.parameters(), 0.1), x.sum(1, keepdim=True)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    for _ in range(400):
        step()
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(60):
            step()
    assert w.verdict.ok
    moves = next(one for one in w.verdict.checks if one.name == "it moves")
    assert (moves.state, moves.kind) == ("not seen", "nothing left") and "nothing is left to learn: the loss is 2.1" in moves.text
