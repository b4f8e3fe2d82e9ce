"""The same fault in several doses: from where it harms it is named, and below that it is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.watch import Watch
from tests.causes.test_neighbours import kinds

PATTERNS = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(7)) / 2


def of_a_curve() -> tuple[nn.Sequential, Tensor, Tensor]:
    """A sum and a product of ten numbers, and a net that learns them."""
    torch.manual_seed(0)
    x = torch.randn(1024, 10)
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    return net, x, x[:, :1] * x[:, 1:2] + x.sum(1, keepdim=True)


def of_patterns() -> tuple[nn.Sequential, Tensor, Tensor]:
    """One of six patterns in noise, and a net of convolutions that tells which."""
    torch.manual_seed(0)
    label = torch.randint(0, 6, (1024,))
    layers = nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(512, 6)), PATTERNS[label] + torch.randn(1024, 1, 8, 8), label


NETS = {"curve": (of_a_curve, F.mse_loss, 0.01), "patterns": (of_patterns, F.cross_entropy, 0.02)}


def trained(
    name: str,
    optimizer: type[torch.optim.Optimizer] = torch.optim.SGD,
    *,
    rate: float = 1.0,
    clip: float = 0.0,
    begin: float = 1.0,
    inputs: float = 1.0,
    epochs: int = 8,
    warm: int = 1,
    **settings: Any,
) -> Watch:
    """Train one of the nets: with a multiple of its rate, of its first weights, of its inputs; with a bound for gradients, a warm-up."""
    make, loss, usual = NETS[name]
    net, x, y = make()
    with torch.no_grad():
        for one in net.parameters():
            one.mul_(begin if one.dim() > 1 else 1)
    usual = usual if optimizer is torch.optim.SGD else 0.003
    settings = ({"momentum": 0.9} if optimizer is torch.optim.SGD else {}) | settings
    made = optimizer(net.parameters(), lr=usual * rate, **settings)  # type: ignore[call-arg]
    schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: min(1, (step + 1) / warm))
    with modlab.watch(net, made, budget=0.2) as w:
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(64):
                made.zero_grad()
                loss(net(x[rows] * inputs), y[rows]).backward()
                if clip:
                    nn.utils.clip_grad_norm_(net.parameters(), clip)
                made.step()
                schedule.step()
    return w


SGD, ADAM, ADAMW = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW


@pytest.mark.parametrize(
    ("name", "optimizer", "decay", "told"),
    [
        ("curve", SGD, 0.01, False),
        ("curve", SGD, 0.5, True),
        ("curve", ADAM, 1.0, True),
        ("curve", ADAMW, 1.0, False),
        ("curve", ADAMW, 10.0, True),
        ("patterns", SGD, 0.2, True),
        ("patterns", ADAM, 0.01, False),
    ],
)
def test_a_decay_that_holds_weights_back(name: str, optimizer: Any, decay: float, told: bool) -> None:
    w = trained(name, optimizer, weight_decay=decay)
    assert kinds(w)[:1] == ["too much decay"] * told
    assert bool(w.verdict.exit_code) is told


def test_what_a_decay_takes_is_compared_with_what_torch_gives() -> None:
    """The numbers of the sentence: the penalty of the weights as they are, and the loss's own gradient."""
    net, x, y = of_a_curve()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, weight_decay=0.5)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(300):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
    facts = next(one.facts for one in w.verdict.findings if one.kind == "too much decay")
    matrices = [one for one in net.parameters() if one.dim() > 1]
    assert facts["costs"] == pytest.approx(sum(0.25 * float(one.detach().square().sum()) for one in matrices), rel=0.02)
    pulls = sorted(0.5 * float(one.detach().norm() / one.grad.norm()) for one in matrices if one.grad is not None)
    assert facts["held"] == pytest.approx(pulls[1], rel=0.1) and facts["loss"] == pytest.approx(loss.item(), rel=0.1)


@pytest.mark.parametrize(
    ("name", "bound", "told"), [("curve", 0.02, True), ("curve", 1.0, False), ("patterns", 0.01, True), ("patterns", 1.0, False)]
)
def test_a_bound_that_sets_the_length_of_each_step(name: str, bound: float, told: bool) -> None:
    w = trained(name, clip=bound)
    assert kinds(w)[:1] == ["clipped to nothing"] * told


def test_a_bound_is_no_matter_to_who_divides_by_what_is_left() -> None:
    assert not kinds(trained("patterns", ADAM, clip=0.01))


@pytest.mark.parametrize(
    ("name", "optimizer", "rate", "told"),
    [("curve", ADAM, 0.02, True), ("patterns", ADAM, 0.01, True), ("patterns", SGD, 1.0, False)],
)
def test_steps_that_come_to_little_all_together(name: str, optimizer: Any, rate: float, told: bool) -> None:
    w = trained(name, optimizer, rate=rate)
    assert kinds(w)[:1] == ["rate too low"] * told


class Adapted(nn.Module):
    """A matrix that is not trained, with two factors beside it of which the second begins at zero."""

    base: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("base", torch.randn(3, 16))
        self.lora_A, self.lora_B = nn.Parameter(torch.randn(4, 16) / 4), nn.Parameter(torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        given: Tensor = F.linear(x, self.base) + F.linear(F.linear(x, self.lora_A), self.lora_B)
        return given


def test_a_factor_that_begins_at_zero_and_stays_there() -> None:
    """By its own size each step is a large one."""
    torch.manual_seed(0)
    net, x = Adapted(), torch.randn(512, 16)
    y = x @ torch.randn(16, 3)
    optimizer = torch.optim.Adam([net.lora_A, net.lora_B], lr=1e-6)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for _ in range(200):
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
    assert kinds(w)[:1] == ["rate too low"] and "all 200 steps together move a weight by about 0.0002, or less" in w.headline


@pytest.mark.parametrize(
    ("name", "begin", "told"), [("curve", 6.0, True), ("curve", 2.0, False), ("patterns", 10.0, True), ("patterns", 2.0, False)]
)
def test_layers_that_each_make_a_signal_larger(name: str, begin: float, told: bool) -> None:
    w = trained(name, begin=begin)
    assert kinds(w)[:1] == ["weights begin too large"] * told


@pytest.mark.parametrize(("begin", "told"), [(0.1, True), (0.5, False)])
def test_layers_that_each_leave_a_tenth(begin: float, told: bool) -> None:
    assert kinds(trained("patterns", begin=begin))[:1] == ["weights begin too small"] * told


@pytest.mark.parametrize(("inputs", "told"), [(0.01, True), (0.5, False)])
def test_inputs_of_a_hundredth_where_nothing_is_learned(inputs: float, told: bool) -> None:
    assert kinds(trained("patterns", inputs=inputs))[:1] == ["inputs vanish"] * told


@pytest.mark.parametrize(("size", "told"), [(20000.0, True), (20.0, False)])
def test_targets_so_far_away_that_half_the_way_says_little(size: float, told: bool) -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)), torch.randn(1024, 10)
    y = size * (1 + x[:, :3].sum(1, keepdim=True) / 4)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.06 if told else 0.01)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for _ in range(12):
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                F.mse_loss(net(x[rows]), y[rows]).backward()
                optimizer.step()
    assert ("targets not scaled" in kinds(w)) is told


def test_steps_that_make_a_loss_twice_as_high_for_nothing() -> None:
    assert "rate too high" in kinds(trained("curve", rate=10.0))


@pytest.mark.parametrize(("momentum", "told"), [(0.9, False), (0.98, False), (0.996, True), (0.9995, True)])
def test_momentum_that_outlasts_the_training(momentum: float, told: bool) -> None:
    assert ("too much momentum" in kinds(trained("patterns", momentum=momentum))) is told


@pytest.mark.parametrize(("warm", "told"), [(1, False), (64, False), (1000, True), (100_000, True)])
def test_a_warm_up_that_is_longer_than_the_training(warm: int, told: bool) -> None:
    w = trained("patterns", warm=warm)
    assert ("warmup never ends" in kinds(w)) is told
    assert ("has not ended" in w.headline) is told


def test_two_dead_units_of_sixteen_are_no_reason_that_nothing_is_learned() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    with torch.no_grad():
        net[0].bias[:2] = -100  # type: ignore[index]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(120):
            x = torch.randn(64, 8)
            optimizer.zero_grad()
            F.mse_loss(net(x), torch.randn(64, 1)).backward()
            optimizer.step()
    (dead,) = [one for one in w.findings if one.kind == "dead units"]
    assert dead.severity == "careful" and dead.facts["dead"] == 2


class Functional(nn.Module):
    """Convolutions with norms and a ReLU that is called as a function; the second norm may begin so far below zero that nothing passes."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.first, self.one = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.two = nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.head = nn.Linear(16 * 64, 6)
        nn.init.constant_(self.two.bias, bias)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.one(self.first(x)))
        return self.head(F.relu(self.two(self.second(x))).flatten(1))


def learning(net: nn.Module, x: Tensor, y: Tensor, rate: float = 0.02, factor: float = 1.0, epochs: int = 6) -> Watch:
    """Train a net on classes."""
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                (factor * F.cross_entropy(net(x[rows]), y[rows])).backward()
                optimizer.step()
    return w


@pytest.mark.parametrize(("bias", "told"), [(0.0, False), (-0.5, False), (-10.0, True)])
def test_a_relu_that_is_no_module_and_gets_only_numbers_below_zero(bias: float, told: bool) -> None:
    _, x, y = of_patterns()
    w = learning(Functional(bias), x, y)
    assert [one.path for one in w.findings if one.kind == "dead units"] == ["two"] * told
    assert ("Nothing of two gets through" in w.headline) is told


@pytest.mark.parametrize(("factor", "told"), [(1.0, False), (0.05, False), (1e-3, True), (1e-6, True)])
def test_a_factor_that_leaves_next_to_nothing_of_a_loss(factor: float, told: bool) -> None:
    assert ("loss too small" in kinds(learning(*of_patterns(), factor=factor))) is told


@pytest.mark.parametrize(("times", "told"), [(1.0, False), (10.0, False), (100.0, True), (1e4, True)])
def test_one_feature_that_is_a_hundred_times_the_others(times: float, told: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(1024, 10)
    y = (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] > 0).long()
    x[:, 9] *= times
    w = learning(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)), x, y, rate=0.05)
    assert ("one huge feature" in kinds(w)) is told


@pytest.mark.parametrize(("share", "told"), [(0.0, False), (0.3, False), (0.9, True)])
def test_most_inputs_of_a_batch_are_one(share: float, told: bool) -> None:
    net, x, y = of_patterns()
    x[: int(len(x) * share)] = 0
    w = learning(net, x, y)
    assert ("constant inputs" in kinds(w)) is told
    assert ("Most inputs are the same" in w.headline) is told


@pytest.mark.parametrize(("frozen", "told"), [((), False), ((2, 4), True)])
def test_layers_that_stay_as_they_were_drawn_though_an_optimizer_holds_them(frozen: tuple[int, ...], told: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(1024, 12)
    y = (x[:, 0] > 0).long() + 2 * (x[:, 2] * x[:, 3] > 0).long()
    net = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 4))
    for at in frozen:
        net[at].requires_grad_(False)
    found = [one for one in learning(net, x, y, rate=0.05, epochs=8).findings if one.kind == "frozen"]
    assert [(one.severity, one.facts.get("fresh")) for one in found] == [("careful", True)] * told


@pytest.mark.parametrize("of", ["weights", "outputs"])
@pytest.mark.parametrize(("factor", "told"), [(0.3, False), (-1e-4, False), (-0.3, True)])
def test_squares_that_enter_with_a_minus_sign(of: str, factor: float, told: bool) -> None:
    net, x, y = of_a_curve()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for _ in range(8):
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                out = net(x[rows])
                squares = out.square().mean() if of == "outputs" else sum(one.pow(2).sum() for one in net.parameters())
                (F.mse_loss(out, y[rows]) + factor * squares).backward()
                optimizer.step()
    assert ("wrong sign" in kinds(w)) is told
    assert ("A part of the loss is turned around" in w.headline) is told
    assert {"not a number in data", "division by zero"}.isdisjoint(kinds(w))


def test_factors_that_begin_equal_stay_so() -> None:
    class Factors(nn.Module):
        def __init__(self, equal: bool) -> None:
            super().__init__()
            self.users, self.goods = nn.Embedding(40, 8), nn.Embedding(30, 8)
            if equal:
                nn.init.constant_(self.users.weight, 0.3)
                nn.init.constant_(self.goods.weight, 0.3)

        def forward(self, user: Tensor, good: Tensor) -> Tensor:
            return (self.users(user) * self.goods(good)).sum(1)

    for equal in (False, True):
        torch.manual_seed(0)
        users, goods = torch.randint(40, (2048,)), torch.randint(30, (2048,))
        liked = (torch.randn(40, 4)[users] * torch.randn(30, 4)[goods]).sum(1)
        net = Factors(equal)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
        with modlab.watch(net, optimizer, budget=0.2) as w:
            for _ in range(8):
                for rows in torch.randperm(2048).split(64):
                    optimizer.zero_grad()
                    F.mse_loss(net(users[rows], goods[rows]), liked[rows]).backward()
                    optimizer.step()
        assert ("all weights equal" in kinds(w)) is equal


@pytest.mark.parametrize(("layers", "told"), [(1, False), (4, True)])
def test_sigmoids_that_leave_a_hundredth_of_a_gradient(layers: int, told: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(1024, 10)
    y = (x[:, 0] * x[:, 1] > 0).long() + 2 * (x[:, 2] > 0).long()
    hidden = [one for _ in range(layers) for one in (nn.Linear(24, 24), nn.Sigmoid())]
    w = learning(nn.Sequential(nn.Linear(10, 24), nn.Sigmoid(), *hidden, nn.Linear(24, 4)), x, y, rate=0.05, epochs=8)
    assert ("vanishing gradient" in kinds(w)) is told


@pytest.mark.parametrize("penalty", [0.0, 1e-3])
@pytest.mark.parametrize("rounds", [False, True])
def test_answers_that_are_rounded_beside_a_penalty(penalty: float, rounds: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(1024, 8)
    y = (x[:, 0] + x[:, 1] > 0).float()[:, None]
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for _ in range(8):
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                chance = net(x[rows]).sigmoid()
                loss = F.mse_loss(chance.round() if rounds else chance, y[rows])
                (loss + penalty * sum(one.pow(2).mean() for one in net.parameters())).backward()
                optimizer.step()
    assert [*kinds(w)][:1] == ["no gradient through"] * rounds
    assert ("round() behind layer 2" in w.headline) is rounds


def test_a_softmax_over_the_samples_stands_before_that_there_is_one_too_many() -> None:
    _, x, y = of_patterns()
    w = learning(nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 6), nn.Softmax(0)), x, y)
    assert [*kinds(w)][:2] == ["softmax over the wrong dimension", "softmax before cross entropy"]


@pytest.mark.parametrize(("size", "severity"), [(2, "broken"), (4, "careful"), (32, None)])
def test_batches_of_a_few_samples_before_a_norm(size: int, severity: str | None) -> None:
    torch.manual_seed(0)
    x = torch.randn(512, 10)
    y = x[:, :1] * x[:, 1:2] * 0.3 + torch.randn(512, 1)
    layers = nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
    net = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for rows in torch.randperm(512).split(size):
            optimizer.zero_grad()
            F.mse_loss(net(x[rows]), y[rows]).backward()
            optimizer.step()
    assert next((one.severity for one in w.findings if one.kind == "batch norm of one"), None) == severity


@pytest.mark.parametrize(("temperature", "told"), [(0.2, False), (50.0, True)])
def test_a_temperature_that_is_usual_is_not_far_off_where_all_that_belongs_together_is_pulled(temperature: float, told: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for _ in range(200):
            x = torch.randn(64, 16)
            one, two = (F.normalize(net(x + torch.randn(64, 16)), dim=1) for _ in range(2))
            optimizer.zero_grad()
            ((2 - 2 * (one * two).sum(1)).mean() + 0.1 * F.cross_entropy(one @ two.T / temperature, torch.arange(64))).backward()
            optimizer.step()
    assert ("temperature" in kinds(w)) is told


@pytest.mark.parametrize("moved", [False, True])
def test_scores_that_are_turned_and_then_viewed_as_rows(moved: bool) -> None:
    torch.manual_seed(0)
    words = torch.randint(0, 13, (512, 9))
    net = nn.Sequential(nn.Embedding(13, 24), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 13))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    with modlab.watch(net, optimizer, budget=0.2) as w:
        for _ in range(12):
            for rows in torch.randperm(512).split(32):
                scores = net(words[rows, :-1])
                scores = scores.transpose(1, 2) if moved else scores
                optimizer.zero_grad()
                F.cross_entropy(scores.reshape(-1, 13), (words[rows, :-1] * 5 % 13).reshape(-1)).backward()
                optimizer.step()
    assert ("wrong axes" in kinds(w)) is moved
