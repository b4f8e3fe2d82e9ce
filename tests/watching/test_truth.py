"""What a watch says is so: small trainings, sick and healthy, and what must and must not stand in the verdict of each."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab import wording
from modlab.errors import ForkError, GoneError, QuestionError
from modlab.records.finding import Finding
from modlab.records.watch import ScalarRecord
from modlab.results.watch import Watch
from modlab.watching import axes
from modlab.watching.verdict import verdict
from modlab.wording.causes import CAUSES
from modlab.wording.kinds import UNCOUNTED
from tests import agreement, watches

Batch = Callable[[], tuple[Tensor, Tensor]]


def trained(model: nn.Module, optimizer: Any, batch: Batch, loss: Any, steps: int = 60, **how: Any) -> Watch:
    with modlab.watch(model, optimizer, budget=1.0, **how) as w:
        for _ in range(steps):
            x, y = batch()
            value = loss(model(x), y)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            w.log(loss=value)
    return w


def sgd(model: nn.Module, lr: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr)


def adam(model: nn.Module, lr: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr)


def sums() -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 8)
    return x, x.sum(1, keepdim=True)


def signs() -> tuple[Tensor, Tensor]:
    x = torch.randn(64, 8)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def pictures() -> tuple[Tensor, Tensor]:
    x = torch.randn(64, 3, 4, 4)
    return x, (x.mean((1, 2, 3)) > 0).long()


def mlp(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), *between, nn.ReLU(), nn.Linear(32, 3))


# ---- healthy


def healthy() -> Watch:
    model = mlp()
    return trained(model, adam(model), signs, F.cross_entropy, 80)


def before_a_norm() -> Watch:
    model = mlp(nn.BatchNorm1d(32))
    return trained(model, sgd(model, 0.1), signs, F.cross_entropy, 80)


def conv_before_a_norm() -> Watch:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    return trained(model, sgd(model, 0.1), pictures, F.cross_entropy, 80)


def large_inputs() -> Watch:
    """A bias whose gradient is a millionth of its weight's, for that has large inputs."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD([{"params": [model.weight], "lr": 1e-14}, {"params": [model.bias], "lr": 0.1}])
    return trained(
        model, optimizer, lambda: (1e6 * torch.rand(32, 8), torch.full((32, 1), 5.0) + torch.rand(32, 1)), lambda x, y: F.l1_loss(x, y), 60
    )


class Attention(nn.Module):
    """Softmax takes no notice of a shift of all scores: the keys' bias has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.out(F.scaled_dot_product_attention(self.q(x), self.k(x), self.v(x)))
        return found.mean(1)


def keys() -> Watch:
    model = Attention()
    return trained(model, sgd(model, 0.1), lambda: ((x := torch.randn(32, 5, 8)), x.mean(1)), F.mse_loss)


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.out = nn.ModuleList(nn.Linear(8, 8) for _ in range(5)), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if not self.training or torch.rand(()) < 0.5:
                x = x + block(x).relu()
        found: Tensor = self.out(x)
        return found


def stochastic_depth() -> Watch:
    model = Skipping()
    return trained(model, sgd(model), sums, F.mse_loss)


def quasi_newton() -> Watch:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.02, max_iter=2)
    x = torch.randn(64, 4)
    y = x.sum(1, keepdim=True).sin()
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(12):

            def closure() -> Tensor:
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            w.log(loss=optimizer.step(closure))
    return w


class Lora(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + self.lora_B(self.lora_A(x))
        return found


def lora() -> Watch:
    model = Lora()
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], 1e-2)
    return trained(model, optimizer, lambda: ((x := torch.randn(32, 8)), x.flip(1)), F.mse_loss)


# ---- what cannot be judged


def policy_gradient() -> Watch:
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = adam(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(100):
            x = torch.randn(32, 4)
            chosen = torch.distributions.Categorical(logits=model(x))
            action = chosen.sample()
            reward = (action == (x[:, 0] > 0)).float()
            loss = -(chosen.log_prob(action) * (reward - reward.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    return w


def functional() -> Watch:
    model = nn.Linear(8, 1)
    own = {name: one.detach().clone().requires_grad_() for name, one in model.named_parameters()}
    optimizer = torch.optim.SGD(own.values(), 1e-1)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(40):
            x, y = sums()
            loss = F.mse_loss(torch.func.functional_call(model, own, (x,)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    return w


def by_another_module() -> Watch:
    """The same layers, called by a module that the watch does not know."""
    model = mlp()
    other = nn.Sequential(*model)
    optimizer = adam(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(30):
            x, y = signs()
            loss = F.cross_entropy(other(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    return w


# ---- sick


def some_nan() -> Watch:
    model = nn.Linear(8, 1)
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for step in range(60):
            x, y = sums()
            loss = F.mse_loss(model(x), y)
            if step % 6 == 3:
                w.log(loss=loss * float("nan"))
                continue
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    return w


class Idle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(8, 1), nn.Parameter(torch.ones(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.used(x) + 0 * self.idle.sum()
        return found


def zero_gradient() -> Watch:
    model = Idle()
    return trained(model, sgd(model), sums, F.mse_loss)


class Experts(nn.Module):
    """Stacked: one parameter has all of them."""

    def __init__(self, silent: tuple[int, ...]) -> None:
        super().__init__()
        self.router, self.experts, self.out = nn.Linear(8, 6), nn.Parameter(torch.randn(6, 8, 8) * 0.3), nn.Linear(8, 1)
        self.router.bias.data[list(silent)] = -100

    def forward(self, x: Tensor) -> Tensor:
        weight, expert = self.router(x).softmax(-1).max(-1)
        found: Tensor = self.out(x + weight[:, None] * torch.einsum("nd,ndk->nk", x, self.experts[expert]))
        return found


def no_tokens() -> Watch:
    model = Experts((1, 4))
    return trained(model, adam(model), sums, F.mse_loss)


def all_experts() -> Watch:
    model = Experts(())
    return trained(model, adam(model), sums, F.mse_loss)


def dead_channels() -> Watch:
    """Behind an Identity and a Dropout, in a picture whose width is the number of channels."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Identity(), nn.Dropout(0.1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    model[0].bias.data[2] = -50  # type: ignore[union-attr, index, operator]
    return trained(model, sgd(model), pictures, F.cross_entropy)


def still() -> Watch:
    model = mlp()
    return trained(
        model,
        torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters(), "lr": 0.0}]),
        signs,
        F.cross_entropy,
        20,
    )


def few_dead() -> Watch:
    """Two of 32 units: the others do the work."""
    model = mlp()
    model[0].bias.data[:2] = -50  # type: ignore[union-attr, index, operator]
    return trained(model, adam(model), signs, F.cross_entropy, 60)


def too_fast() -> Watch:
    model = mlp()
    return trained(model, sgd(model, 1e6), signs, lambda x, y: F.mse_loss(x, y[:, None].float().expand_as(x)), 30)


def vanishing() -> Watch:
    model = nn.Sequential(*[part for _ in range(10) for part in (nn.Linear(8, 8), nn.Sigmoid())], nn.Linear(8, 1))
    return trained(model, sgd(model), sums, F.mse_loss, 30)


def evaluating() -> Watch:
    model = mlp(nn.Dropout()).eval()
    return trained(model, adam(model), signs, F.cross_entropy, 30)


HEALTHY = (healthy, before_a_norm, conv_before_a_norm, keys, stochastic_depth, quasi_newton, lora, all_experts)
UNKNOWN = (policy_gradient, functional, by_another_module)
SICK = (some_nan, zero_gradient, no_tokens, dead_channels, few_dead, too_fast, vanishing, still, evaluating)
SEEN: dict[str, Watch] = {}


def left_over() -> Watch:
    """A table that no pass uses any more."""
    model = mlp()
    model.register_parameter("table", nn.Parameter(torch.ones(4, 4)))
    return trained(model, adam(model), signs, F.cross_entropy, 200)


def two_heaps() -> Watch:
    """A critic without limits: of what it says of two heaps only the difference counts."""
    return heaps(nn.Linear(8, 1))


def two_heaps_of_a_normed_critic() -> Watch:
    return heaps(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 1)))


def heaps(last: nn.Module) -> Watch:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), last)
    return trained(net, sgd(net), sums, lambda score, _: score[: len(score) // 2].mean() - score[len(score) // 2 :].mean(), 60)


def seen(make: Callable[[], Watch]) -> Watch:
    """The watch of a training, which is made once."""
    name = make.__name__
    if name not in SEEN:
        torch.manual_seed(0)
        SEEN[name] = make()
    return SEEN[name]


def states(w: Watch) -> dict[str, str]:
    return {check.name: check.state for check in w.verdict.checks}


def kinds(w: Watch) -> dict[str, Finding]:
    return {one.kind: one for one in w.findings}


# ---- every sentence agrees with every number


@pytest.mark.parametrize("make", (*HEALTHY, *UNKNOWN, *SICK), ids=lambda make: make.__name__)
def test_every_sentence_agrees_with_every_number(make: Callable[[], Watch]) -> None:
    agreement.check(seen(make).record)


@pytest.mark.parametrize("name", [name for name in watches.WATCHES if name != "hostile"])
def test_the_made_up_ones_do_too(name: str) -> None:
    agreement.check(watches.WATCHES[name](), made_up=True)


def test_the_readmes_training_does_too() -> None:
    from modlab.lessons.note import Net

    torch.manual_seed(63)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for _ in range(4_000):
            loss = torch.abs(net(torch.randn(4)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    agreement.check(w.record)
    assert states(w)["it moves"] == "passed" and kinds(w)["dead units"].path == "l0"


@pytest.mark.parametrize("log", [False, True], ids=["found", "logged"])
@pytest.mark.parametrize("budget", [0.02, 1.0])
@pytest.mark.parametrize("steps", [3, 19, 60, 300, 1_100])
def test_the_sentences_of_a_short_and_a_long_run_do_too(steps: int, budget: float, log: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer, truth = torch.optim.Adam(model.parameters(), lr=1e-2), torch.randn(8, 1)
    with modlab.watch(model, optimizer, budget=budget) as w:
        for _ in range(steps):
            x = torch.randn(16, 8)
            loss = (model(x) - x @ truth).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if log:
                w.log(loss=loss)
    agreement.check(w.record)
    seen = w.record.scalars[0].count
    assert ("averaged over" in w.headline) == (seen >= 20)
    assert ("averaged over its first and last tenth" in w.headline) == (20 <= seen == w.record.steps)
    assert (f"tenth of the {seen} values seen" in w.headline) == (20 <= seen < w.record.steps)


# ---- what is healthy


@pytest.mark.parametrize("make", HEALTHY, ids=lambda make: make.__name__)
def test_nothing_healthy_is_called_broken(make: Callable[[], Watch]) -> None:
    w = seen(make)
    assert w.verdict.ok and w.verdict.broken is None and w.headline.startswith("No problem found"), w
    assert states(w)["the loss falls"] == "passed" and not w.verdict.unseen
    assert "greater learning rate" not in str(w) and not w.alerts


@pytest.mark.parametrize(
    ("make", "path", "norm"),
    [(before_a_norm, "0.bias", "1"), (conv_before_a_norm, "0.bias", "1"), (keys, "k.bias", "")],
    ids=["linear", "conv", "keys"],
)
def test_a_shift_that_is_taken_out_again_is_a_note(make: Callable[[], Watch], path: str, norm: str) -> None:
    note = kinds(seen(make))["cancelled"]
    assert (note.path, note.severity, note.facts["norm"]) == (path, "note", norm)
    assert f"The gradient of {path} is only rounding" in str(seen(make))


def test_a_bias_beside_large_inputs_has_its_effect() -> None:
    assert "cancelled" not in kinds(seen(large_inputs))


def test_weights_of_zero_are_no_infinite_ratio() -> None:
    w = seen(lora)
    assert "Inf" not in str(w) and "from zero, " in str(w)
    ratio = w.history["ratio"][(w.history["path"] == "lora_B.weight") & (w.history["role"] == "update")]
    assert not torch.isinf(torch.tensor(ratio)).any()


# ---- what is not known is not judged


@pytest.mark.parametrize("make", UNKNOWN, ids=lambda make: make.__name__)
def test_what_cannot_be_seen_is_not_broken(make: Callable[[], Watch]) -> None:
    w = seen(make)
    assert w.verdict.broken is None and (w.verdict.unseen or make is by_another_module)
    assert "model.train()" not in str(w) and "learns nothing" not in str(w)


def test_a_policy_gradient_is_not_judged_by_its_loss() -> None:
    assert states(seen(policy_gradient))["the loss falls"] in ("not seen", "passed")


def test_parameters_of_functional_call_are_not_missed() -> None:
    w = seen(functional)
    assert states(w)["the optimizer owns it"] == "not seen" and "functional_call" in str(w)


# ---- what is sick


def test_losses_that_were_no_numbers_are_counted() -> None:
    w = seen(some_nan)
    found = kinds(w)["loss not finite"]
    assert (found.facts["nan"], found.facts["count"], found.facts["last"], found.severity) == (10, 60, "finite", "broken")
    assert "10 of the 60 values of loss seen were NaN" in w.headline and not w.verdict.ok


def test_a_gradient_of_zero_is_no_matter_of_the_rate() -> None:
    w = seen(zero_gradient)
    (told,) = [check for check in w.verdict.checks if check.kind == "parameters with a zero gradient"]
    assert (told.path, told.state) == ("idle", "careful")  # for the loss falls without it
    assert "that of idle is zero in all 60 looks" in w.headline and "greater learning rate" not in str(w)


@pytest.mark.parametrize("make", [two_heaps, two_heaps_of_a_normed_critic], ids=lambda make: make.__name__)
def test_a_shift_that_the_loss_does_not_see_is_a_note(make: Callable[[], Watch]) -> None:
    w = seen(make)
    assert states(w)["every trained parameter gets a gradient"] == "passed" and w.verdict.exit_code == 0
    (told,) = [one for one in w.verdict.findings if one.kind == "zero gradient"]
    assert told.path == "2.bias" and "2.bias was exactly zero in all 60 looks: the loss did not depend on it there" in str(w)


def test_experts_without_tokens() -> None:
    found = kinds(seen(no_tokens))["slices without a gradient"]
    assert (found.path, found.facts["which"], found.facts["slices"], found.severity) == ("experts", (1, 4), 6, "careful")
    assert "Slices 1 and 4 of 6 of experts got only zero gradients" in seen(no_tokens).headline


def test_a_dead_channel_is_one_of_the_convolutions() -> None:
    w = seen(dead_channels)
    (units,) = w.record.units
    assert (units.path, units.fired.shape[1]) == ("0", 4)
    assert (kinds(w)["dead units"].path, kinds(w)["dead units"].facts["which"]) == ("0", (2,))


def test_what_is_spared_by_the_verdict_breaks_no_alert() -> None:
    w = seen(left_over)
    assert [(alert.path, alert.severity) for alert in w.alerts] == [("table", "careful")]
    assert (w.verdict.alerts, w.verdict.cares, w.verdict.exit_code) == ((), ("no gradient",), 2)
    assert "all weights equal" not in kinds(w)  # its rows cannot part


def test_a_few_dead_units_of_many_break_nothing() -> None:
    w = seen(few_dead)
    assert kinds(w)["dead units"].severity == "careful" and w.verdict.ok
    assert all(alert.severity == "careful" for alert in w.alerts if alert.kind == "dead")


@pytest.mark.parametrize("make", [too_fast, vanishing], ids=lambda make: make.__name__)
def test_no_fix_is_offered_that_cannot_help(make: Callable[[], Watch]) -> None:
    w = seen(make)
    assert not w.verdict.ok and "keep the weights in float32" not in str(w) and "rounding alone" not in str(w)


@pytest.mark.parametrize("follows", [True, False])
def test_to_come_down_to_a_constant_answer_is_not_to_learn_where_something_is_wrong(*, follows: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(60, 32), nn.Flatten(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 60))
    optimizer = torch.optim.SGD(model.parameters(), 0.5 if follows else 3.0)
    draws, chances = torch.Generator().manual_seed(1), 1 / torch.arange(1, 61.0)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(200):
            tokens = torch.multinomial(chances.expand(64, 60), 5, replacement=True, generator=draws)
            optimizer.zero_grad()
            F.cross_entropy(model(tokens[:, :4]), tokens[:, 3 if follows else 4]).backward()
            optimizer.step()
    assert w.verdict.checks[-1].kind == ("falls" if follows else "falls to a constant answer")
    assert ("which a constant answer gives" in str(w)) is not follows


@pytest.mark.parametrize("paired", [True, False])
def test_to_fall_to_what_a_guess_gives_is_not_to_learn(paired: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(16, 8)
    optimizer = adam(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(60):
            x = torch.randn(64, 16)
            one, other = F.normalize(model(torch.stack([x, x + 0.3 * torch.randn_like(x)])), dim=-1)
            optimizer.zero_grad()
            F.cross_entropy(one @ other.T, torch.arange(64) // (1 if paired else 2)).backward()
            optimizer.step()
    falls = w.verdict.checks[-1]
    assert (falls.state, falls.kind) == (("passed", "falls") if paired else ("careful", "falls to chance"))
    assert paired or ("which a guess among 64 gives" in str(w.verdict) and "falls, but not clearly below" in w.headline)


@pytest.mark.parametrize(
    ("values", "state", "says"),
    [
        ([3.0 * 0.9**i for i in range(10)], "passed", "→"),
        ([0.5 + 0.01 * (-1) ** i for i in range(60)], "careful", "no trend"),
        ([*[1.5] * 5, 3.7, 6.0, 11.8, 4.5, 2.3, *[1.65, 1.8] * 4, 3.8, 0.72, 0.21, 0.11, 0.095, 0.096], "passed", "→"),
        ([*[1.5] * 5, 3.7, 6.0, 11.8, 4.5, 2.3, *[1.65, 1.8] * 4, 3.8, 1.72, 1.48, 1.61, 1.49, 1.48], "careful", "no trend"),
        ([0.5 + 0.003 * i + 0.01 * (-1) ** i for i in range(60)], "careful", "it rises"),
        ([0.5 + 0.1 * i for i in range(60)], "careful", "it rises"),
        ([0.5 * 1.5**i for i in range(60)], "broken", "it rises"),
        ([0.5 * 1.5**i * 10.0 ** (-9 * (i % 2)) for i in range(60)], "broken", "it rises"),
        ([0.1 * (-1) ** i for i in range(60)], "not seen", "not judged"),
        ([-3.0 + 0.02 * i for i in range(60)], "not seen", "not judged"),
        ([-0.02 * i for i in range(60)], "passed", "→"),
        ([0.5, 0.6, 0.4], "not seen", "too early"),
        ([0.5] * 30 + [float("nan")], "broken", "its last value is NaN"),
    ],
    ids=[
        "few and monotone",
        "flat",
        "over a hill",
        "over a hill and back",
        "rises a little",
        "doubles",
        "bursts",
        "bursts and jumps about",
        "both signs",
        "negative",
        "below 0",
        "few",
        "ends in NaN",
    ],
)
def test_a_curve_is_judged_by_its_numbers(values: list[float], state: str, says: str) -> None:
    model = nn.Linear(2, 1)
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for value in values:
            optimizer.zero_grad()
            (0 * model(torch.randn(4, 2)).sum() + value).backward()
            optimizer.step()
    check = w.verdict.checks[-1]
    assert (check.name, check.state) == ("the loss falls", state) and says in check.text
    agreement.check(w.record)


@pytest.mark.parametrize(
    ("classes", "far", "kind"),
    [pytest.param(5, 400.0, "leaps", id="wild"), pytest.param(5, 4.0, "falls", id="noisy"), pytest.param(0, 400.0, "falls", id="no guess")],
)
def test_a_loss_whose_last_values_are_low_by_chance_has_not_fallen(classes: int, far: float, kind: str) -> None:
    values = np.array([1.6, 1.7, 1.5, 1.4, 1.3, 1.2, 1.1, 1.0, 0.8, far, 0.6, far, 0.4, 0.3, far, 0.1, *[0.01] * 11])
    at = np.arange(len(values))
    curve = ScalarRecord("loss", at, at, values, values, values, 0 * at, len(values), float(values[-1]), kind="loss")
    record = replace(watches.well(), scalars=(curve,), steps=len(values))
    record = replace(record, watched=replace(record.watched, classes=classes, clues=replace(record.watched.clues, losses=())))
    check = verdict(record).checks[-1]
    assert (check.name, check.kind) == ("the loss falls", kind)
    far_said = "3 of the last 18 values seen are more than ten times what a guess gives, 1.61"
    assert (far_said in wording.said(check)) is (kind == "leaps")


def test_a_rate_of_zero_is_said() -> None:
    w = seen(still)
    assert w.verdict.broken is not None and "the learning rate is 0" in w.verdict.broken.text


def test_evaluation_mode_is_said() -> None:
    w = seen(evaluating)
    assert next(check for check in w.verdict.checks if check.name == "data arrives").fix == "model.train()"


# ---- which claims a run must and must not meet with


def run(model: nn.Module, optimizer: Any, turn: Callable[[int], Any], steps: int = 40, **how: Any) -> Watch:
    with modlab.watch(model, optimizer, budget=1.0, **how) as w:
        for i in range(steps):
            turn(i)
    return w


def learn(model: nn.Module, optimizer: Any) -> None:
    x, y = signs()
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def rewards_that_grow() -> Watch:
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = adam(model, 3e-3)

    def turn(i: int) -> None:
        chosen = torch.distributions.Categorical(logits=model(torch.randn(64, 4)))
        optimizer.zero_grad()
        (-chosen.log_prob(chosen.sample()).mean() * (1 + i / 5)).backward()
        optimizer.step()

    return run(model, optimizer, turn)


def ascent() -> Watch:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, maximize=True)
    return run(model, optimizer, lambda i: learn(model, optimizer))


def scaler_skips() -> Watch:
    model = mlp()
    optimizer, scaler = sgd(model, 0.1), torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def turn(i: int) -> None:
        x, y = signs()
        loss = F.cross_entropy(model(x), y) * (1e36 if i in (0, 10, 11) else 1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return run(model, optimizer, turn)


def the_loop_skips() -> Watch:
    """No scaler is there."""
    model = mlp()
    optimizer = sgd(model, 0.1)

    def turn(i: int) -> None:
        x, y = signs()
        optimizer.zero_grad()
        F.cross_entropy(model(x * torch.inf if i in (10, 20) else x), y).backward()
        if all(one.grad is not None and one.grad.isfinite().all() for one in model.parameters()):
            optimizer.step()

    return run(model, optimizer, turn)


def parameter_replaced() -> Watch:
    model = mlp()
    optimizer = adam(model)

    def turn(i: int) -> None:
        if i == 15:
            model[2].weight = nn.Parameter(torch.randn(3, 32) / 10)  # type: ignore[union-attr]
        learn(model, optimizer)

    return run(model, optimizer, turn)


def module_replaced() -> Watch:
    model = mlp()
    optimizer = adam(model)

    def turn(i: int) -> None:
        if i == 15:
            model[2] = nn.Linear(32, 3)
        learn(model, optimizer)

    return run(model, optimizer, turn)


def train_forgotten() -> Watch:
    model = mlp(nn.Dropout(0.1))
    optimizer = adam(model)

    def turn(i: int) -> None:
        model.train(i < 10)
        learn(model, optimizer)

    return run(model, optimizer, turn)


def the_mode_changes_nothing() -> Watch:
    model = mlp()
    optimizer = adam(model)
    model.eval()
    return run(model, optimizer, lambda i: learn(model, optimizer))


def some_layers_alone() -> Watch:
    model = mlp()
    model[0].bias.data[3] = -100  # type: ignore[union-attr, index, operator]
    optimizer = adam(model)
    return run(model, optimizer, lambda i: learn(model, optimizer), only="0")


def rarely_asked() -> Watch:
    model = Skipping()
    optimizer = sgd(model)

    def turn(i: int) -> None:
        x, y = sums()
        optimizer.zero_grad()
        blocks = model.blocks if i >= 20 else model.blocks[:1]
        for block in blocks:
            x = x + block(x).relu()
        F.mse_loss(model.out(x), y).backward()
        optimizer.step()

    return run(model, optimizer, turn)


def batches_left_out() -> Watch:
    model = nn.Linear(8, 1)
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for i in range(40):
            x, y = sums()
            loss = F.mse_loss(model(x * (float("nan") if i == 4 else 1)), y)
            w.log(loss=loss)
            if not loss.isnan():
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return w


def a_part_of_a_sum() -> Watch:
    model = mlp()
    optimizer = adam(model)

    def turn(i: int) -> None:
        x, y = signs()
        (F.cross_entropy(model(x), y) / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()

    return run(model, optimizer, turn, 42)


def a_group_at_rest() -> Watch:
    model = mlp()
    optimizer = torch.optim.Adam([{"params": model[0].parameters(), "lr": 1e-2}, {"params": model[2].parameters(), "lr": 0.0}])
    return run(model, optimizer, lambda i: learn(model, optimizer))


def a_rate_that_explodes() -> Watch:
    """The squares of the loss overflow one step before any module does."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), 5.0)

    def turn(i: int) -> None:
        optimizer.zero_grad()
        (model(torch.randn(16, 8)) - 1).square().mean().backward()
        optimizer.step()

    return run(model, optimizer, turn, 12)


CLAIMS: list[tuple[Callable[[], Watch], bool, str, str]] = [
    (rewards_that_grow, True, r"^The loss rises:", "BROKEN|does not fall"),
    (ascent, False, r"^The loss is turned around: the optimizer was made with maximize=True", "No problem"),
    (scaler_skips, True, r"^No problem found: each of the 37 steps .* at least 2 steps were skipped", "NaN (from|at)|Inf (from|at)"),
    (the_loop_skips, False, r"at least 2 steps were skipped: their gradients were not finite", "scaler|overflowed"),
    (
        parameter_replaced,
        False,
        r"^The optimizer does not hold all parameters: 2\.weight has a gradient, and Adam does not hold it",
        "No problem|left out by",
    ),
    (module_replaced, False, r"^2\.weight is not owned by the optimizer: .* joined the model during the watch.*", "No problem"),
    (train_forgotten, True, r"in 30 of 40 looks the model was called only in evaluation mode", "No problem"),
    (the_mode_changes_nothing, True, r"^No problem found in what could be judged:.*called only in evaluation mode", "careful|Fix"),
    (some_layers_alone, True, r"units of layer 0 were not counted", "BROKEN"),
    (rarely_asked, True, r"^No problem found: .* got no gradient in the first \d+ looks", "never called:|in any step"),
    (batches_left_out, True, r"^NaN at step 4: .* 1 of the 40 values of loss seen was NaN, first seen at step 4;", "step 4 on|step 3"),
    (a_part_of_a_sum, True, r"all 10 values are finite", "11 values"),
    (
        a_rate_that_explodes,
        False,
        r"^The steps are so large that the loss is not finite, first seen at step 3: at 5, ",
        "No problem",
    ),
    (a_group_at_rest, False, r"2\.weight and 2\.bias did not move .*: the learning rate of their group is 0", "greater learning rate"),
]


@pytest.mark.parametrize(("make", "ok", "said", "unsaid"), CLAIMS, ids=[make.__name__ for make, *_ in CLAIMS])
def test_what_a_run_is_told_is_so(make: Callable[[], Watch], ok: bool, said: str, unsaid: str) -> None:
    w = seen(make)
    told = " ".join(str(w).split())
    assert w.verdict.ok is ok and re.search(said, told) and not re.search(unsaid, told), w
    agreement.check(w.record)


# ---- along which dimension units lie


class Own(nn.Module):
    """A function of the graph between a layer and what is read."""

    def __init__(self, layer: nn.Module, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.act, self.between = layer, nn.ReLU(), between

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.act(self.between(self.layer(x)))
        return found


@pytest.mark.parametrize(
    ("layer", "between", "given", "axis"),
    [
        (nn.Linear(4, 6), lambda x: x, (5, 4), 1),
        (nn.Linear(4, 6), lambda x: x, (5, 3, 4), 2),
        (nn.Linear(4, 6), lambda x: x.transpose(1, 2), (5, 3, 4), 1),
        (nn.Linear(4, 6), lambda x: x.transpose(-1, -2).contiguous(), (5, 3, 4), 1),
        (nn.Linear(4, 6), lambda x: x.unsqueeze(1), (5, 3, 4), 3),
        (nn.Linear(4, 6), lambda x: x.flatten(0, 1), (5, 3, 4), 1),
        (nn.Linear(4, 6), lambda x: x.flatten(1), (5, 3, 4), axes.MIXED),
        (nn.Linear(4, 6), lambda x: x.view(5, 3, 2, 3), (5, 3, 4), axes.MIXED),
        (nn.Conv2d(3, 6, 1), lambda x: x, (5, 3, 6, 6), 1),
        (nn.Conv2d(3, 6, 1), lambda x: x.permute(0, 2, 3, 1), (5, 3, 6, 6), 3),
        (nn.Conv2d(3, 6, 1), lambda x: x.flatten(2), (5, 3, 6, 6), 1),
        (nn.Conv2d(3, 6, 1), lambda x: x.flatten(2).transpose(1, 2), (5, 3, 6, 6), 2),
        (nn.Conv2d(3, 6, 1), lambda x: x.flatten(1), (5, 3, 6, 6), axes.MIXED),
        (nn.Conv1d(3, 6, 1), lambda x: x, (5, 3, 6), 1),
        (nn.Conv2d(3, 6, 1), lambda x: x, (3, 6, 6), axes.UNBATCHED),
    ],
    ids=[
        "linear",
        "linear of rows",
        "transposed",
        "and copied",
        "unsqueezed",
        "rows joined",
        "flattened",
        "heads",
        "conv",
        "channels last",
        "places joined",
        "tokens",
        "conv flattened",
        "conv of a line",
        "without a batch",
    ],
)
def test_units_are_followed(layer: nn.Module, between: Any, given: tuple[int, ...], axis: int | str) -> None:
    model = Own(layer, between)
    optimizer = sgd(model)
    watcher = (w := modlab.watch(model, optimizer, budget=1.0))._watcher
    assert watcher is not None
    for _ in range(2):
        model(torch.randn(given)).sum().backward()
        optimizer.step()
    w.close()
    if isinstance(axis, str):
        assert not w.record.units and kinds(w)["units not counted"].facts == {"paths": ("layer",), "why": axis}
        assert f"units of layer were not counted: {UNCOUNTED[axis]}" in str(w).replace("Units", "units")
    else:
        (units,) = watcher.units.values()
        made = {nn.Linear: len(given) - 1}.get(type(layer), 1)
        assert (units.axis, units.count, units.path, units.made) == (axis, 6, "layer", made)


@pytest.mark.parametrize(
    "between",
    [nn.Identity(), nn.Dropout(0.1), nn.Dropout2d(0.1), nn.MaxPool2d(1), nn.BatchNorm2d(6), nn.Sequential(nn.Identity(), nn.Identity())],
    ids=lambda module: type(module).__name__,
)
def test_channels_are_followed_through_modules(between: nn.Module) -> None:
    model = nn.Sequential(nn.Conv2d(3, 6, 1), between, nn.ReLU())
    optimizer = sgd(model)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(2):
            model(torch.randn(5, 3, 4, 4)).sum().backward()
            optimizer.step()
    (units,) = w.record.units
    assert units.fired.shape[1] == 6 and units.path == ("1" if isinstance(between, nn.BatchNorm2d) else "0")


# ---- words


def test_every_kind_has_its_own_rank_and_words() -> None:
    ranks = [kind.rank for kind in wording.KINDS.values()]
    assert len(set(ranks)) == len(ranks)
    assert all(kind.title and kind.severity in ("broken", "careful", "note") for kind in wording.KINDS.values())


@pytest.mark.parametrize("make", (*HEALTHY, *UNKNOWN, *SICK), ids=lambda make: make.__name__)
def test_findings_are_sentences(make: Callable[[], Watch]) -> None:
    for finding in seen(make).findings:
        assert re.fullmatch(r"[^\n]+[^.\s:;,]", wording.said(finding)) and finding.kind in wording.KINDS.keys() | CAUSES.keys()


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_is_advised_of_a_loss_without_a_trend_can_be_run(is_kept: bool) -> None:
    def own(output: Tensor, target: Tensor) -> Tensor:
        return (output.sin() * torch.rand(1)).exp().mean() + (output[:, 0] - torch.rand(16)).abs().max()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3))
    loss = nn.CrossEntropyLoss() if is_kept else own
    w = trained(model, sgd(model, 1e-7), lambda: (torch.randn(16, 4), torch.randint(3, (16,))), loss)
    check = next(one for one in w.verdict.checks if one.name == "the loss falls")
    assert check.fix.startswith("w.diagnose() " if is_kept else "w.diagnose(batch=(inputs, target), loss=loss) ")
    if is_kept:
        w.diagnose()
    else:
        found = w.diagnose()
        said = "The model was not run: the watch kept no batch"
        assert not found.experiments and said in str(found) and said in found.html() and said in found.to_dict()["remarks"][0]
        assert "w.diagnose(batch=(inputs, target), loss=loss_function)" in str(found) and "not run with a batch" in found.headline
        with pytest.raises(QuestionError, match="kept no batch"):
            w.diagnose(loss=own)


def test_without_a_batch_a_diagnosis_has_the_causes_that_the_watch_has_seen() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    w = trained(
        model, sgd(model[2]), lambda: (torch.randn(16, 4), torch.randn(16, 1)), lambda out, target: (out - target).abs().cosh().mean()
    )
    w._kept = None
    causes = [(one.kind, one.path) for one in w.verdict.findings if wording.is_cause(one)]
    found = w.diagnose()
    assert causes and [(one.kind, one.path) for one in found.findings][: len(causes)] == causes
    assert not found.experiments and found.verdict == "broken" and "was not run with a batch" in str(found)


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_the_verdict_calls_broken_stands_in_the_diagnosis(is_kept: bool) -> None:
    def fit(model: nn.Sequential) -> None:
        optimizer = torch.optim.Adam(model[0].parameters(), 1e-3)  # local: it is gone when the diagnosis is made
        for _ in range(200):
            x = torch.randn(64, 8)
            optimizer.zero_grad()
            F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    with modlab.watch(model) as w:
        fit(model)
    assert w.verdict.broken is not None and w.verdict.broken.name == "the optimizer owns it"
    if not is_kept:
        w._kept = None
    found = w.diagnose()
    (first,) = found.findings
    assert first.facts["check"] == "the optimizer owns it" and found.verdict == "broken"
    said = "the watch saw that “the optimizer owns it” does not hold: 2.weight and 2.bias not in Adam"
    assert said in found.headline and said in found.html() and found.to_dict()["records"][0]["kind"] == first.kind
    assert "a check of the watch's verdict" in str(first.explain()).lower()


def test_what_comes_from_a_file_does_not_say_that_its_model_is_gone() -> None:
    torch.manual_seed(0)
    model = mlp()
    w = trained(model, sgd(model[0]), signs, F.cross_entropy)
    assert pickle.loads(pickle.dumps(w.diagnose())).findings
    asked = (GoneError, pickle.loads(pickle.dumps(w)).diagnose), (ForkError, pickle.loads(pickle.dumps(w.diagnose())).findings[0].try_fix)
    for error, ask in asked:
        with pytest.raises(error, match="comes from a file, or was copied"):
            ask()


@pytest.mark.parametrize("told", [True, False])
def test_a_loss_that_comes_from_above_and_stays_at_what_a_guess_between_two_gives(told: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(16, 8)
    optimizer = torch.optim.Adam(model.parameters(), 3e-2)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(240):
            asked, better, worse = torch.randn(3, 64, 16)
            optimizer.zero_grad()
            near = (model(asked) * (model(better) - model(worse))).sum(1) if not told else (model(asked) * model(asked - 2 * worse)).sum(1)
            (-F.logsigmoid(3 * near).mean()).backward()
            optimizer.step()
    falls = w.verdict.checks[-1]
    assert (falls.state, falls.kind) == (("passed", "falls") if told else ("careful", "falls to chance"))
    assert told or "which a guess among 2 gives" in str(w.verdict)
