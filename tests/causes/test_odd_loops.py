"""Loops that are right in an odd way: nothing false is said of them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.watch import Watch

LOOPS: dict[str, Callable[[], Watch]] = {}


def loop(make: Callable[[], Watch]) -> Callable[[], Watch]:
    LOOPS[make.__name__] = make
    return make


def net(*more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 32), *more, nn.ReLU(), nn.Linear(32, 3))


def batch(samples: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.randn(samples, 8)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def watched(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, loss: Callable[[int], Tensor], divide: float = 1.0, passes: int = 1
) -> Watch:
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for number in range(steps):
            optimizer.zero_grad()
            for _ in range(passes):
                loss(number).backward()
            for one in model.parameters():
                if divide != 1 and one.grad is not None:
                    one.grad /= divide
            optimizer.step()
    return w


def sgd(model: nn.Module, rate: float = 0.05) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=rate)


@loop
def a_student_of_a_teacher_that_is_unsure() -> Watch:
    teacher, model = net(), net()

    def loss(_: int) -> Tensor:
        x, _ = batch()
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 2, 1)
        return F.kl_div(F.log_softmax(model(x) / 2, 1), soft, reduction="batchmean") * 4

    return watched(model, torch.optim.Adam(model.parameters(), lr=1e-2), 80, loss)


@loop
def a_loss_whose_usual_part_has_a_weight_of_zero() -> Watch:
    teacher, model = net(), net()

    def loss(_: int) -> Tensor:
        x, y = batch()
        with torch.no_grad():
            soft = F.softmax(4 * teacher(x), 1)
        out = model(x)
        return 0.0 * F.cross_entropy(out, y) + F.kl_div(F.log_softmax(out, 1), soft, reduction="batchmean")

    return watched(model, torch.optim.Adam(model.parameters(), lr=1e-2), 150, loss)


def labelled(model: nn.Module, samples: int = 32, times: float = 1.0) -> Callable[[int], Tensor]:
    def loss(_: int) -> Tensor:
        x, y = batch(samples)
        return times * F.cross_entropy(model(x), y)

    return loss


@loop
def accumulated_gradients_that_are_divided() -> Watch:
    return watched(model := net(), sgd(model), 60, labelled(model), divide=4, passes=4)


@loop
def a_loss_scale_of_ones_own() -> Watch:
    return watched(model := net(), sgd(model), 60, labelled(model, times=1024.0), divide=1024)


@loop
def a_sum_whose_gradients_are_divided() -> Watch:
    model = net()

    def loss(_: int) -> Tensor:
        x, y = batch(128)
        return F.cross_entropy(model(x), y, reduction="sum")

    return watched(model, sgd(model), 60, loss, divide=128)


@loop
def a_small_last_batch_behind_a_norm() -> Watch:
    model = net(nn.BatchNorm1d(32))

    def loss(number: int) -> Tensor:
        x, y = batch(2 if number % 10 == 9 else 32)
        return F.cross_entropy(model(x), y)

    return watched(model, torch.optim.Adam(model.parameters(), lr=1e-2), 85, loss)


@loop
def another_optimizer_from_some_step_on() -> Watch:
    model = net()
    optimizer: torch.optim.Optimizer = sgd(model, 0.1)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for number in range(200):
            if number == 30:
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return w


@loop
def one_cycle_that_is_over() -> Watch:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=60)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()
    return w


@loop
def sequences_that_are_padded_at_the_end_with_time_first() -> Watch:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.rnn, self.out = nn.Embedding(12, 16, padding_idx=0), nn.LSTM(16, 32), nn.Linear(32, 1)

        def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
            packed = nn.utils.rnn.pack_padded_sequence(self.emb(tokens), lengths, enforce_sorted=False)
            return self.out(self.rnn(packed)[1][0][-1]).squeeze(1)  # type: ignore[no-any-return]

    model = Net()

    def loss(_: int) -> Tensor:
        lengths = torch.randint(3, 15, (50,))
        rows = [torch.randint(1, 12, (int(length),)) for length in lengths]
        target = torch.tensor([float(row[-1] > row[0]) for row in rows])
        return F.binary_cross_entropy_with_logits(model(nn.utils.rnn.pad_sequence(rows), lengths), target)

    return watched(model, torch.optim.Adam(model.parameters(), lr=1e-2), 80, loss)


@loop
def the_farthest_of_its_kind_and_the_nearest_of_others() -> Watch:
    model = net()

    def loss(_: int) -> Tensor:
        x, y = batch(80)
        z = F.normalize(model(x), dim=1)
        with torch.no_grad():
            apart, same = torch.cdist(z, z), y[:, None] == y[None]
            near, far = apart.masked_fill(~same, -1).argmax(1), apart.masked_fill(same, 9).argmin(1)
        return F.triplet_margin_loss(z, z[near], z[far], margin=0.5)

    return watched(model, torch.optim.Adam(model.parameters(), lr=1e-3), 120, loss)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", LOOPS)
def test_nothing_is_said_to_be_wrong(name: str, seed: int) -> None:
    torch.manual_seed(seed)
    w = LOOPS[name]()
    assert not [one.kind for one in w.findings if "tier" in one.facts], str(w.verdict)


def test_gradients_of_two_losses_are_not_compared() -> None:
    torch.manual_seed(0)
    maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    judge = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    both = nn.ModuleDict({"G": maker, "D": judge})
    slow, quick = torch.optim.Adam(maker.parameters(), lr=1e-5), torch.optim.Adam(judge.parameters(), lr=2e-2)
    ones, zeros = torch.ones(32, 1), torch.zeros(32, 1)
    with modlab.watch(both, (slow, quick), budget=1.0) as w:
        for _ in range(120):
            real, noise = torch.randn(32, 2) + 3, torch.randn(32, 4)
            judged = F.binary_cross_entropy_with_logits(judge(real), ones)
            judged = judged + F.binary_cross_entropy_with_logits(judge(maker(noise).detach()), zeros)
            quick.zero_grad()
            judged.backward()
            quick.step()
            made = F.binary_cross_entropy_with_logits(judge(maker(noise)), ones)
            slow.zero_grad()
            quick.zero_grad()
            made.backward()
            slow.step()
    assert "vanishing gradient" not in [one.kind for one in w.findings]


@pytest.mark.parametrize("rate, bound", [(1e-6, None), (0.05, 1.0)])
def test_small_steps_are_no_gradients_of_zero(rate: float, bound: float | None) -> None:
    torch.manual_seed(0)
    model = net()
    optimizer, scaler = sgd(model, rate), torch.amp.GradScaler("cpu")
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(60):
            x, y = batch()
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if bound is not None:  # too early: before the gradients are divided
                nn.utils.clip_grad_norm_(model.parameters(), bound)
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert "underflow" not in [one.kind for one in w.findings]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_is_left_of_an_epoch_is_no_fall_of_the_loss(seed: int) -> None:
    torch.manual_seed(seed)
    model = net()
    optimizer = sgd(model, 0.01)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(2):
            for number in range(97):
                x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
                (F.cross_entropy(model(x), y) / 8).backward()
                if number % 8 == 7 or number == 96:
                    optimizer.step()
                    optimizer.zero_grad()
    (curve,) = (one for one in w.record.scalars if one.kind == "loss")
    assert curve.passes == 8 and curve.count == 24
    assert float(curve.low.min()) > 0.9  # the last step of an epoch has one pass of eight


def test_features_are_compared_within_a_batch() -> None:
    torch.manual_seed(0)
    model = net()

    def loss(number: int) -> Tensor:
        return F.cross_entropy(model(torch.randn(32, 8) * (2.0 + 5 * number)), torch.randint(0, 3, (32,)))

    w = watched(model, sgd(model, 1e-5), 80, loss)
    low, high = w.record.watched.clues.inputs[0].features
    assert 1 < high / low < 3 and "one huge feature" not in [one.kind for one in w.findings]


@pytest.mark.parametrize("low", [-math.inf, -1e9])
def test_a_guess_is_among_those_that_are_not_masked(low: float) -> None:
    model = net()

    def loss(_: int) -> Tensor:
        x, _ = batch(16)
        z = F.normalize(model(torch.cat([x, x + 0.1 * torch.randn_like(x)])), dim=1)
        scores = (z @ z.T / 0.5).masked_fill(torch.eye(32, dtype=torch.bool), low)
        return F.cross_entropy(scores, torch.arange(32).roll(16))

    w = watched(model, torch.optim.Adam(model.parameters(), lr=1e-3), 30, loss)
    assert "a uniform guess among 31 would give 3.434" in str(w.verdict)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_first_loss_of_what_was_trained_for_other_classes_may_be_high(frozen: bool) -> None:
    model = net()

    def loss(_: int) -> Tensor:
        x, y = batch(128)
        return F.cross_entropy(model(x), (y + turned) % 3)

    turned = 0
    watched(model, torch.optim.Adam(model.parameters(), lr=1e-1), 150, loss)
    turned = 1
    model[0].requires_grad_(not frozen)
    w = watched(model, torch.optim.Adam((model[-1] if frozen else model).parameters(), lr=1e-2), 80, loss)
    (check,) = (one for one in w.verdict.checks if one.name == "the loss is sensible")
    assert check.state == ("passed" if frozen else "careful") and "a uniform guess among 3" in check.text


# ---- steps that the loop makes itself


def subtracted(one: nn.Parameter, step: Tensor) -> None:
    with torch.no_grad():
        one.sub_(step)


def subtracted_below(one: nn.Parameter, step: Tensor) -> None:
    one.data.sub_(step)


def put_below(one: nn.Parameter, step: Tensor) -> None:
    one.data = one.data - step


SPELLINGS = [subtracted, subtracted_below, put_below]


def by_hand(model: nn.Module, move: Callable[[nn.Parameter, Tensor], None], zero: str, *others: torch.optim.Optimizer) -> Watch:
    with modlab.watch(model, *others, budget=1.0) as w:
        for _ in range(60):
            x, y = batch()
            if zero == "before forward":
                model.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if zero == "before backward":
                model.zero_grad()
            loss.backward()
            for one in model.parameters():
                if one.grad is not None:
                    move(one, 0.2 * one.grad)
                    if zero == "behind the step":
                        one.grad.zero_()
    return w


@pytest.mark.parametrize("move", SPELLINGS)
@pytest.mark.parametrize("zero", ["before forward", "before backward", "behind the step", "never"])
def test_weights_that_the_loop_moves_itself(zero: str, move: Callable[[nn.Parameter, Tensor], None]) -> None:
    torch.manual_seed(0)
    w = by_hand(net(), move, zero)
    (curve,) = (one for one in w.record.scalars if one.kind == "loss")
    assert w.record.steps == 59 and curve.passes == 1 and float(curve.mean[0]) < 1.3  # one loss, and no sum of several
    assert [one.kind for one in w.findings if one.severity == "broken"] == (["no zero grad"] if zero == "never" else [])
    assert "optimizer.zero_grad" not in str(w)


def test_parameters_that_are_made_anew_in_each_step() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    with modlab.watch(model) as w:
        for _ in range(120):
            x = torch.randn(32, 8)
            F.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            for layer in (model[0], model[2]):
                for name, one in [*layer.named_parameters()]:
                    setattr(layer, name, nn.Parameter((one - 0.05 * one.grad).detach()))
    assert w.record.steps == 119 and not [one for one in w.findings if one.severity == "broken"]


@pytest.mark.parametrize("move", SPELLINGS)
def test_steps_by_hand_are_seen_beside_an_optimizer_that_makes_none_and_where_the_first_layers_are_frozen(
    move: Callable[[nn.Parameter, Tensor], None],
) -> None:
    torch.manual_seed(0)
    model = net(nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    model[:5].requires_grad_(False)
    w = by_hand(model, move, "before backward", sgd(model))
    assert w.record.steps == 59 and [one.kind for one in w.findings if one.severity == "broken"] == ["frozen"]


@pytest.mark.parametrize("move", [subtracted_below, put_below])  # autograd refuses the other one
@pytest.mark.parametrize("once", [True, False])
def test_weights_made_of_others_once_are_old_where_the_loop_moves_them(*, once: bool, move: Callable[[nn.Parameter, Tensor], None]) -> None:
    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source = nn.Parameter(torch.randn(6, 8))
            self.maker = nn.Linear(8, 8)

        def forward(self, x: Tensor, weight: Tensor) -> Tensor:
            return x @ weight.T

    torch.manual_seed(0)
    model = Made()
    weight = model.maker(model.source)
    with modlab.watch(model, budget=1.0) as w:
        for _ in range(60):
            x, y = batch()
            loss = F.cross_entropy(model(x, weight if once else model.maker(model.source)), y)
            model.zero_grad()
            loss.backward(retain_graph=once)
            for one in model.parameters():
                move(one, 0.1 * one.grad)
    assert [one.kind for one in w.findings if one.severity == "broken"] == (["stale weights"] if once else [])


def test_a_step_that_is_tried_and_undone_for_the_gradient_it_leads_to_is_not_put_back():
    """Extragradient: each second step stays."""
    torch.manual_seed(0)
    net = nn.ParameterDict({"a": nn.Parameter(torch.tensor([1.0, 0.0, -1.0])), "b": nn.Parameter(torch.tensor([-1.0, 0.5, 0.3]))})
    pays = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)

    def flow() -> None:
        optimizer.zero_grad()
        (net["a"].softmax(0) @ pays @ net["b"].softmax(0)).backward()
        net["a"].grad.neg_()

    with modlab.watch(net, optimizer) as w:
        for _ in range(300):
            saved = [one.detach().clone() for one in net.parameters()]
            flow()
            optimizer.step()
            flow()
            with torch.no_grad():
                for one, before in zip(net.parameters(), saved, strict=True):
                    one.copy_(before)
            optimizer.step()
    assert "weights put back" not in [one.kind for one in w.findings]


@pytest.mark.parametrize("first", [True, False])
def test_a_multiplier_that_climbs_turns_no_loss_around_whichever_optimizer_is_given_first(first):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
    net.price = nn.Parameter(torch.tensor(0.0))
    down = torch.optim.Adam([one for name, one in net.named_parameters() if name != "price"], 3e-3)
    up = torch.optim.SGD([net.price], 0.05, maximize=True)
    x, y = 2 * torch.randn(4, 10).repeat(64, 1) + torch.randn(256, 10), torch.arange(4).repeat(64)
    with modlab.watch(net, [up, down] if first else [down, up]) as w:
        for _ in range(250):
            some = torch.randint(0, 256, (64,))
            scores = net(x[some])
            loss = nn.functional.cross_entropy(scores, y[some]) + nn.functional.softplus(net.price) * (scores.square().mean() - 4)
            down.zero_grad()
            up.zero_grad()
            loss.backward()
            down.step()
            up.step()
    assert "wrong sign" not in [one.kind for one in w.findings]
