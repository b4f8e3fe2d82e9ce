"""What a reviewer was told and found to be untrue: it is not said any more, and what is so is."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab import wording
from modlab.records import watch as records
from modlab.records.finding import Finding
from modlab.results.verdict import Verdict
from modlab.results.watch import Watch
from modlab.watching.gradient_clues import _points_somewhere
from modlab.wording.batch_causes import FIXES


def watched(model: nn.Module, loss: Callable[[], Tensor], steps: int = 60, optimizer: Any = None, **options: Any) -> Watch:
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-3)
    with modlab.watch(model, optimizer, **options) as w:
        for _ in range(steps):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    return w


def kinds(w: Watch) -> list[str]:
    return [one.kind for one in w.verdict.findings]


def blobs(size: int = 64) -> tuple[Tensor, Tensor]:
    x = torch.randn(size, 16)
    return x, x[:, :5].argmax(1)


def mlp(*, bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64, bias=bias), nn.ReLU(), nn.Linear(64, 5, bias=bias))


class Reader(nn.Module):
    """Words, their positions and their segments, as in BERT."""

    def __init__(self, rows: int, places: Callable[[], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.word, self.position, self.segment = nn.Embedding(30, 32), nn.Embedding(12, 32), nn.Embedding(rows, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 2)
        self.places = places

    def forward(self, x: Tensor) -> Tensor:
        given = self.word(x) + self.position(self.places()) + self.segment(torch.zeros_like(x))
        return self.head(self.layer(given)[:, 0])


@pytest.mark.parametrize("rows", [2, 12, 64])
def test_a_table_of_segments_is_no_table_of_positions(rows: int) -> None:
    model = Reader(rows, lambda: torch.arange(12))

    def loss() -> Tensor:
        x = torch.randint(2, 30, (32, 12))
        return F.cross_entropy(model(x), (x[:, 3] > 15).long())

    assert "no positions" not in kinds(watched(model, loss, 120))


class Columns(nn.Module):
    """A transformer over the columns of a table, each with an embedding of its own; nobody trains what is in its lists."""

    def __init__(self, *, own: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.own = own
        self.tables = [nn.Embedding(12, 12) for _ in range(5)]
        self.layer = [nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True)]
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        columns = [self.tables[number if self.own else 0](x[:, number]) for number in range(5)]
        return self.head(self.layer[0](torch.stack(columns, 1)).mean(1))


@pytest.mark.parametrize("own", [False, True])
def test_columns_with_weights_of_their_own_can_be_told_apart(own: bool) -> None:
    model, tables = Columns(own=own), torch.randn(5, 12, generator=torch.Generator().manual_seed(1))

    def loss() -> Tensor:
        x = torch.randint(0, 12, (64, 5))
        told = [tables[number][x[:, number]] for number in range(5)]
        return F.cross_entropy(model(x), (told[0] * told[1] + told[2] + told[3] * told[4] > 0).long())

    assert ("no positions" in kinds(watched(model, loss, 300, torch.optim.Adam(model.parameters(), 3e-3)))) is not own


class Normed(nn.Module):
    """A norm of its own, as that of T5."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * x.square().mean(-1, keepdim=True).add(1e-6).rsqrt()


def test_layers_without_a_bias_beside_a_norm_of_its_own_lack_none() -> None:
    model = nn.Sequential(Normed(), *mlp(bias=False))

    def loss() -> Tensor:
        x, y = blobs()
        return F.cross_entropy(model(x), y)

    assert "no bias where needed" not in kinds(watched(model, loss))


def test_of_weights_that_are_put_back_in_part_it_is_not_said_that_no_bit_is_another() -> None:
    model = mlp()
    average = [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(60):
            x, y = blobs()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for one, own in zip(average, model.parameters(), strict=True):
                    own.copy_(one.mul_(0.999).add_(own, alpha=0.001))
    assert kinds(w)[0] == "weights put back" and "each undone by at least four fifths" in str(w.verdict)


def test_an_optimizer_of_what_is_frozen_holds_parameters() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    model[2] = nn.Linear(64, 5)
    model[0].requires_grad_(False)

    def loss() -> Tensor:
        x, y = blobs()
        return F.cross_entropy(model(x), y)

    w = watched(model, loss, optimizer=optimizer)
    assert "AdamW holds none of the model's trainable parameters" in str(w.verdict)
    assert "all 2 trainable parameters" in str(modlab.diagnose(model, optimizer))


def test_no_rate_is_too_low_for_gradients_that_are_zeroed() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=0.0)
    with modlab.watch(model, optimizer) as w:
        for _ in range(100):
            x, y = blobs()
            F.cross_entropy(model(x), y).backward()
            optimizer.zero_grad()
            optimizer.step()
    assert kinds(w)[0] == "zeroed before step" and "rate too low" not in kinds(w)


@pytest.mark.parametrize("zeroes", [True, False])
def test_no_rate_is_too_low_for_weights_that_have_grown_without_bound(zeroes: bool) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word, self.read, self.head = nn.Embedding(10, 16), nn.GRU(16, 32, batch_first=True), nn.Linear(32, 9)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.read(self.word(x))[0][:, -1])

    torch.manual_seed(0)
    model = Last()
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    with modlab.watch(model, optimizer) as w:
        for _ in range(200):
            words = torch.randint(9, (32, 6))
            F.cross_entropy(model(words), words[:, 2]).backward()
            optimizer.step()
            if zeroes:
                optimizer.zero_grad()
    assert ("no zero grad" in kinds(w)[:1]) is not zeroes
    assert "rate too low" not in kinds(w)


def test_the_rate_that_is_named_is_that_of_the_step() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        knob = w.knob("lr", 1e-5, 1e6, log=True)
        for step in range(120):
            if step in (50, 80):
                knob.set(1e6 if step == 50 else 1e-5)
            x, y = blobs()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    found = w.verdict.findings[0]
    assert found.kind == "not finite by the rate" and found.facts["rate"] == pytest.approx(1e6)
    assert "rate runs out" not in kinds(w)  # a hand has turned it


def test_the_rate_that_is_named_is_not_the_one_that_was_set_for_it() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 1e3)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(40):
            x, y = blobs()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if not loss.isfinite():
                optimizer.param_groups[0]["lr"] = 1e-3
            optimizer.step()
    found = w.verdict.findings[0]
    assert found.kind == "not finite by the rate" and found.facts["rate"] == pytest.approx(1e3)


def test_a_norm_that_is_cut_is_told_as_it_mostly_was() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    norms = []
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for step in range(100):
            x, y = blobs()
            optimizer.zero_grad()
            F.cross_entropy(model(x if step >= 10 else 100 * x), y).backward()
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1e-3)))
            optimizer.step()
    found = next(one for one in w.verdict.findings if one.kind == "clipped to nothing")
    assert min(norms[:10]) > 10 * max(norms[10:])
    assert min(norms[10:]) < found.facts["norm"] < max(norms[10:])


def test_a_gradient_does_not_vanish_where_zeros_come_in() -> None:
    model = mlp()

    def loss() -> Tensor:
        x, y = blobs()
        return F.cross_entropy(model(0 * x), y)

    found = kinds(watched(model, loss, 100))
    assert found and "vanishing gradient" not in found


def test_a_run_whose_first_step_ends_in_an_error_has_seen_nothing() -> None:
    model = mlp()
    with pytest.raises(RuntimeError), modlab.watch(model) as w:
        x, y = blobs()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        loss.backward()
    assert w.verdict.exit_code == 3 and not w.verdict.ok and not any(one.state == "passed" for one in w.verdict.checks[:1])


def test_the_verdict_says_why_it_asks_for_care() -> None:
    passed = records.Check("falls", facts={"first": 2.0, "last": 1.0}, name="the loss falls", state="passed")
    verdict = Verdict.of(records.Verdict((passed,), cares=("not zeroed",)))
    assert verdict.exit_code == 2
    assert str(verdict).splitlines()[1:] == ["careful   alert           not zeroed: w.alerts tells where"]


def test_dead_units_of_a_net_whose_loss_falls_below_zero_are_to_be_cared_for() -> None:
    model = mlp()
    model[0].bias.data[:12] = -50  # type: ignore[union-attr, operator]

    def loss() -> Tensor:
        x, _ = blobs()
        return -F.cosine_similarity(model(x), x[:, :5]).mean()

    w = watched(model, loss, 120, budget=1.0)
    assert [one.severity for one in w.verdict.findings if one.kind == "dead units"] == ["careful"] and w.verdict.ok


@pytest.mark.parametrize(("kind", "named"), [(torch.optim.LBFGS, False), (torch.optim.Rprop, False), (torch.optim.Adam, True)])
def test_who_compares_slopes_needs_the_same_batch(kind: type[torch.optim.Optimizer], named: bool) -> None:
    model = mlp()
    x, y = blobs(12)
    optimizer = kind(model.parameters(), lr=0.01)  # type: ignore[call-arg]

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    with modlab.watch(model, optimizer) as w:
        for _ in range(30):
            optimizer.step(closure)  # type: ignore[arg-type]
    assert ("same batch" in kinds(w)) is named


@pytest.mark.parametrize("grows", [True, False])
def test_a_curriculum_that_begins_with_a_few_samples_has_more_of_them(grows: bool) -> None:
    model = mlp()
    rows = torch.randn(2000, 16)

    def loss() -> Tensor:
        x = rows[torch.randint(8 if not grows or len(seen) < 20 else 2000, (64,))]
        seen.append(len(x))
        return F.cross_entropy(model(x), x[:, :5].argmax(1))

    seen: list[int] = []
    assert ("few samples" in kinds(watched(model, loss, 80, budget=1.0))) is not grows


def test_what_a_player_has_kept_grows() -> None:
    model, kept = mlp(), [torch.randn(8, 16)]

    def loss() -> Tensor:
        kept.append(torch.randn(2, 16))
        rows = torch.cat(kept)
        x = rows[torch.randint(len(rows), (32,))]
        return F.cross_entropy(model(x), x[:, :5].argmax(1))

    w = watched(model, loss, 10, budget=1.0)
    assert "few samples" not in kinds(w)


@pytest.mark.parametrize("copied", [True, False])
def test_copies_of_what_is_stepped_are_moved_and_lose_no_digits(copied: bool) -> None:
    model = mlp().to(torch.bfloat16)
    masters = [nn.Parameter(one.detach().float()) for one in model.parameters()]
    optimizer = torch.optim.Adam(masters, 1e-4)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            x, y = blobs()
            model.zero_grad()
            F.cross_entropy(model(x.bfloat16()).float(), y).backward()
            for one, master in zip(model.parameters(), masters, strict=True):
                master.grad = one.grad.float()  # type: ignore[union-attr]
            optimizer.step()
            for one, master in zip(model.parameters(), masters, strict=True) if copied else ():
                one.data.copy_(master)
    told = {one.kind for one in w.diagnose().findings}
    assert ("replaced since" in told) is not copied and "too few digits" not in (told if copied else ())
    assert not copied or not any("do not move" in one.text for one in w.verdict.checks)


@pytest.mark.parametrize("climbs", [True, False])
@pytest.mark.parametrize("written", ["criterion", "by hand", "above zero"])
def test_what_is_climbed_is_a_gain(written: str, climbs: bool) -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, maximize=climbs)

    def loss() -> Tensor:
        x, y = blobs()
        out = model(x)
        if written == "criterion":
            return -F.cross_entropy(out, y)
        chance = out.softmax(1)[F.one_hot(y, 5).bool()]
        return chance.mean() if written == "above zero" else (chance**0.5).mean() - 1

    w = watched(model, loss, 100, optimizer, budget=1.0)
    if climbs:
        assert "wrong sign" not in kinds(w) and w.verdict.ok
        assert not any(one.outcome == "failed" for one in w.diagnose().experiments)
    elif written == "criterion":
        assert "wrong sign" in kinds(w)


def test_an_error_that_is_climbed_is_told() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, maximize=True)

    def loss() -> Tensor:
        x, y = blobs()
        return F.cross_entropy(model(x), y)

    w = watched(model, loss, 60, optimizer, budget=1.0)
    assert kinds(w)[0] == "wrong sign"
    found = modlab.diagnose(mlp(), optimizer, batch=blobs(), loss=F.cross_entropy)
    assert any("the optimizer climbs" in one.what for one in found.experiments if one.outcome == "failed")


class Players(nn.Module):
    """A generator and a discriminator."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.makes = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.judges = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
        self.times = 1.0

    def forward(self, x: Tensor) -> Tensor:
        return self.makes[2](self.times * self.makes[:2](x))


@pytest.mark.parametrize("frozen", [True, False])
def test_a_discriminator_does_not_win_whose_loss_is_the_high_one(frozen: bool) -> None:
    players = Players()
    players.judges.requires_grad_(not frozen)
    makes = torch.optim.Adam(players.makes.parameters(), 1e-2 if frozen else 1e-4)
    judges = torch.optim.Adam(players.judges.parameters(), 1e-2)
    yes, no = torch.ones(64, 1), torch.zeros(64, 1)
    with modlab.watch(players, (makes, judges)) as w:
        for _ in range(200):
            real = torch.randn(64, 2) + 4
            loss_d = F.binary_cross_entropy_with_logits(players.judges(real), yes)
            made = players.makes(torch.randn(64, 4))
            loss_d = loss_d + F.binary_cross_entropy_with_logits(players.judges(made if frozen else made.detach()), no)
            judges.zero_grad()
            loss_d.backward()
            judges.step()
            loss_g = F.binary_cross_entropy_with_logits(players.judges(players.makes(torch.randn(64, 4))), yes)
            makes.zero_grad()
            loss_g.backward()
            makes.step()
    assert ("discriminator wins" in kinds(w)) is not frozen


def test_equal_weights_point_where_their_gradients_do_and_nobody_has_added_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
    for one in model.parameters():
        nn.init.constant_(one, 0.05 if one.dim() > 1 else 0.0)

    def loss() -> Tensor:
        x = torch.randn(64, 8)
        return F.smooth_l1_loss(model(x)[:, 0], x[:, 0] * x[:, 1] + x[:, 3].abs() - 0.7 * x[:, 4])

    w = watched(model, loss, optimizer=torch.optim.AdamW(model.parameters(), 5e-3))
    assert kinds(w)[0] == "all weights equal" and "too much decay" not in kinds(w)
    assert not _points_somewhere(np.full(32, 0.05)) and _points_somewhere(np.linspace(-1, 1, 32))


@pytest.mark.parametrize("turned", [True, False])
def test_what_stands_in_the_place_of_a_slope_does_not_turn_the_loss_around(turned: bool) -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            x, y = blobs()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            for one in model.parameters():
                assert one.grad is not None
                other = torch.randn_like(one) / one.numel() ** 0.5
                one.grad = -one.grad if turned else one.grad.norm() * other - 0.3 * one.grad
            optimizer.step()
    assert kinds(w)[0] == "gradients overwritten" and ("wrong sign" in kinds(w)) is turned


@pytest.mark.parametrize("grows", [True, False])
def test_outputs_that_grow_do_not_become_the_same(grows: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 4)

    def loss() -> Tensor:
        x = torch.randn(3, 32, 8)
        size = 1.0 if grows else 1e-3
        return F.triplet_margin_loss(*(size * model(one) for one in x)) - (model(x[0]).square().mean() if grows else 0)

    w = watched(model, loss, 100, torch.optim.SGD(model.parameters(), 3e-2))
    assert not (grows and "collapse" in kinds(w))


class Coder(nn.Module):
    """A variational autoencoder, whose latent may be cut off."""

    def __init__(self, *, cut: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cut, self.enc, self.dec = cut, nn.Linear(8, 6), nn.Linear(3, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logarithm = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logarithm).exp()
        return self.dec(z.detach() if self.cut else z), mu, logarithm


@pytest.mark.parametrize("weight", [1.0, 100.0])
def test_a_latent_on_its_way_to_nothing_is_ignored_where_the_loss_is_stuck(weight: float) -> None:
    model = Coder(cut=False)

    def loss() -> Tensor:
        x = torch.randn(64, 1).expand(64, 8) + 0.1 * torch.randn(64, 8)
        out, mu, logarithm = model(x)
        return (out - x).square().sum(1).mean() - weight * 0.5 * (1 + logarithm - mu.square() - logarithm.exp()).sum(1).mean()

    w = watched(model, loss, 100, torch.optim.Adam(model.parameters(), 2e-2))
    assert ("latent ignored" in kinds(w)) is (weight > 1)


@pytest.mark.parametrize(("cut", "named"), [(True, "detached"), (False, "constant loss")])
def test_a_latent_is_ignored_where_something_else_is_asked_and_reaches_it(cut: bool, named: str) -> None:
    model = Coder(cut=cut)

    def loss() -> Tensor:
        x = torch.randn(64, 8)
        out, mu, logarithm = model(x)
        return F.mse_loss(out if cut else x, x) - 0.5 * torch.mean(1 + logarithm - mu.square() - logarithm.exp())

    w = watched(model, loss, 150, torch.optim.Adam(model.parameters(), 1e-2))
    assert kinds(w)[0] == named and not {"latent ignored", "collapse", "vanishing gradient"} & {*kinds(w)}


class Tastes(nn.Module):
    """Of users and goods, without a level of their own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.users, self.goods = nn.Embedding(60, 3), nn.Embedding(40, 3)

    def forward(self, user: Tensor, good: Tensor) -> Tensor:
        return (self.users(user) * self.goods(good)).sum(1)


def test_of_numbers_that_name_things_nothing_is_said_by_what_is_near() -> None:
    model = Tastes()
    torch.manual_seed(1)
    likes = torch.randn(60, 6) @ torch.randn(6, 40) / 3 + 20

    def loss() -> Tensor:
        user, good = torch.randint(60, (64,)), torch.randint(40, (64,))
        return F.mse_loss(model(user, good), likes[user, good])

    w = watched(model, loss, 250, torch.optim.Adam(model.parameters(), 2e-2))
    assert "targets shuffled" not in kinds(w)


@pytest.mark.parametrize("given", [True, False])
def test_zeros_that_come_in_are_no_value_that_was_overwritten(given: bool) -> None:
    model = Players()
    model.times = 1.0 if given else 0.0

    def loss() -> Tensor:
        judged = model.judges(torch.randn(64, 2)) + model.judges(model(torch.zeros(64, 4) if given else torch.randn(64, 4)))
        return F.binary_cross_entropy_with_logits(judged, (torch.rand(64, 1) < 0.5).float())

    assert ("overwritten activation" in kinds(watched(model, loss))) is not given


def test_what_is_cut_off_from_the_loss_is_used() -> None:
    model = mlp()

    def loss() -> Tensor:
        x, y = blobs()
        return torch.tensor(F.cross_entropy(model(x), y).item(), requires_grad=True)

    w = watched(model, loss)
    assert kinds(w)[0] == "detached" and "unused layers" not in kinds(w)


def test_a_step_is_a_large_part_of_weights_that_are_tiny() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(one for _ in range(7) for one in (nn.Linear(16, 16), nn.ReLU())), nn.Linear(16, 5))
    for one in model.parameters():
        nn.init.normal_(one, std=1e-3) if one.dim() > 1 else None

    def loss() -> Tensor:
        x, y = blobs()
        return F.cross_entropy(model(x), y)

    w = watched(model, loss, 200, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9))
    assert kinds(w)[0] == "weights begin too small" and "rate too high" not in kinds(w)


@pytest.mark.parametrize(("rows", "size"), [(10, 10), (12, 12), (32, 8)])
def test_a_few_rows_that_are_shuffled(rows: int, size: int) -> None:
    model, (x, y) = mlp(), blobs(rows)

    def loss() -> Tensor:
        some = torch.randperm(rows)[:size]
        return F.cross_entropy(model(x[some]), y[some])

    found = next(one for one in watched(model, loss, 200).findings if one.kind == "few samples")
    assert found.facts["samples"] <= rows  # a row is known again in another place of its batch


class Customers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.plan, self.net = nn.Embedding(4, 3), nn.Sequential(nn.Linear(19, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, x: Tensor, plan: Tensor) -> Tensor:
        found: Tensor = self.net(torch.cat([x, self.plan(plan)], 1))
        return found


@pytest.mark.parametrize("zeros", [True, False])
def test_what_is_all_the_same_is_no_tokenizers_doing(zeros: bool) -> None:
    model = Customers()

    def loss() -> Tensor:
        x, y = blobs()
        x = x * (not zeros)
        return F.cross_entropy(model(x, torch.zeros(len(x), dtype=torch.long)), y[torch.randperm(len(y))])

    assert kinds(watched(model, loss))[0] == ("constant inputs" if zeros else "tokens unknown")


class Factors(nn.Module):
    """Stars that users give: of a user, of a thing, and of how they go together."""

    def __init__(self, deviation: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.user, self.item, self.likes = nn.Embedding(40, 6), nn.Embedding(30, 6), nn.Embedding(40, 1)
        for one in (self.user, self.item):
            nn.init.normal_(one.weight, std=deviation)
        nn.init.zeros_(self.likes.weight)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        return (self.user(user) * self.item(item)).sum(1) + self.likes(user)[:, 0]


def stars(model: nn.Module) -> Callable[[], Tensor]:
    generator = torch.Generator().manual_seed(0)
    tastes, styles = torch.randn(40, 3, generator=generator), torch.randn(30, 3, generator=generator)

    def loss() -> Tensor:
        user, item = torch.randint(0, 40, (256,), generator=generator), torch.randint(0, 30, (256,), generator=generator)
        return F.mse_loss(model(user, item), (tastes[user] * styles[item]).sum(1))

    return loss


@pytest.mark.parametrize("small", [True, False])
def test_factors_that_begin_at_next_to_nothing(small: bool) -> None:
    model = Factors(1e-6 if small else 0.3)
    w = watched(model, stars(model), 100, torch.optim.SGD(model.parameters(), 0.5, momentum=0.9))
    assert [one for one in kinds(w) if one != "steps between looks"] == ["weights begin too small"] * small


def test_of_two_optimizers_it_is_not_said_whose_rate_it_is() -> None:
    model = Factors(0.3)
    loss = stars(model)
    first, second = torch.optim.Adam(model.parameters(), 0.02), torch.optim.SGD(model.parameters(), 30.0)
    with modlab.watch(model, [first, second]) as w:
        for _ in range(60):
            first.zero_grad()
            loss().backward()
            first.step()
            second.step()
    assert {"two optimizers", "not finite by the rate"} <= {*kinds(w)}
    assert "at 0.02" not in str(w.verdict) and "at 30" not in str(w.verdict)


def test_weights_that_decay_has_made_nothing_do_not_leap() -> None:
    model = Factors(0.3)
    w = watched(model, stars(model), 250, torch.optim.Adam(model.parameters(), 0.02, weight_decay=0.1))
    assert kinds(w)[0] == "too much decay" and "rate too high" not in kinds(w)


def test_decay_moves_weights_whose_gradients_were_zeroed() -> None:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    with modlab.watch(model, optimizer) as w:
        for _ in range(100):
            x, y = blobs()
            F.cross_entropy(model(x), y).backward()
            model.zero_grad(set_to_none=False)
            optimizer.step()
    assert kinds(w)[0] == "zeroed before step"


@pytest.mark.parametrize("masked", [True, False])
def test_a_gradient_that_a_mask_takes_away_does_not_vanish(masked: bool) -> None:
    model = Reader(2, lambda: torch.arange(12))
    model.word.register_forward_hook(lambda _, __, given: given.masked_fill(torch.tensor(masked), 0.0))

    def loss() -> Tensor:
        x = torch.randint(2, 30, (32, 12))
        return F.cross_entropy(model(x), (x[:, 3] > 15).long())

    told = kinds(watched(model, loss))
    assert ("overwritten activation" in told) is masked and "vanishing gradient" not in told


def test_what_is_learnt_from_the_start_depends_on_the_output() -> None:
    model = nn.Linear(16, 1)
    x = torch.randn(64, 16)
    y = model(x).detach()
    w = watched(model, lambda: F.mse_loss(model(x), y))
    assert kinds(w)[0] == "constant loss" and "equals the targets" in w.headline and "does not depend" not in str(w.verdict)


class Chooser(nn.Module):
    """Scores of places, of which those below zero may not be chosen."""

    def __init__(self, mask: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mask, self.net = mask, nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.net(x) - 100 * (x[:, :1] < 0)
        return scores.masked_fill(torch.arange(5) == 4, self.mask)


def failed(model: nn.Module, batch: Any, loss: Callable[[Any, Tensor], Tensor]) -> set[str]:
    return {one.kind for one in modlab.diagnose(model, batch=batch, loss=loss).record.experiments if one.outcome == "failed"}


@pytest.mark.parametrize("mask", [-float("inf"), -1e30])
def test_masked_scores_do_not_make_all_outputs_the_same(mask: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(32, 5)
    assert not failed(Chooser(mask), (x, x[:, :4].argmax(1)), F.cross_entropy) & {"overwritten activation", "collapse"}


class Likings(nn.Module):
    """How much each user likes each thing."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.users, self.things = nn.Embedding(20, 4), nn.Embedding(12, 4)

    def forward(self, user: Tensor, thing: Tensor) -> Tensor:
        return (self.users(user) * self.things(thing)).sum(-1)


def test_a_row_of_one_token_alone_is_not_padded() -> None:
    torch.manual_seed(0)
    users = torch.tensor([3, 5, 3, 8, 1, 2, 9, 4])
    batch = (users[:, None].expand(8, 12), torch.arange(12).expand(8, 12)), torch.rand(8, 12)
    assert "mask turned around" not in failed(Likings(), batch, F.mse_loss)


class Kept(nn.Module):
    """Hangs a hook on its state, in training."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(4, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.tanh(self.one(x))
        if self.training:
            z.register_hook(lambda gradient: 0.3 * gradient)
        return self.two(z)


def test_a_hook_in_forward_does_not_stop_the_learning_of_one_batch() -> None:
    torch.manual_seed(0)
    diagnosis = modlab.diagnose(Kept(), batch=(torch.randn(64, 4), torch.randn(64, 1)), loss=F.mse_loss)
    assert "RuntimeError" not in str(diagnosis)


@pytest.mark.parametrize(("hook", "told"), [(lambda g: g + 0.02 * torch.randn_like(g), False), (torch.randn_like, True)])
def test_noise_beside_a_gradient_does_not_replace_it(hook: Callable[[Tensor], Tensor], told: bool) -> None:
    x, model = torch.randn(64, 16), mlp()
    for one in model.parameters():
        one.register_hook(hook)
    assert ("gradients overwritten" in failed(model, (x, model(x).detach() + 1e-4 * torch.randn(64, 5)), F.mse_loss)) is told


class Passed(nn.Module):
    """To the next sample alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(torch.cat([x[:1], x[1:] + x[:-1]]))


def test_a_leak_begins_where_it_reaches_that_sample() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Passed(), Passed(), nn.Linear(3, 3))
    found = next(
        one
        for one in modlab.diagnose(model, batch=(torch.randn(8, 3), torch.randn(8, 3)), loss=F.mse_loss).record.experiments
        if one.name == "leak"
    )
    steps = int(found.facts["output"]) - int(found.facts["input"])
    assert found.path == str(steps - 1)


@pytest.mark.parametrize("weight", [torch.zeros(64, 1), 0.0], ids=["mask", "factor"])
def test_an_error_that_is_taken_away_is_not_met(weight: Any) -> None:
    model = nn.Linear(16, 1)
    x = torch.randn(64, 16)
    w = watched(model, lambda: ((model(x) - x[:, :1]).square() * weight).mean())
    assert kinds(w)[0] == "constant loss" and "equals the targets" not in str(w.verdict)


class Times(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor + 1


def test_where_samples_become_the_same_is_where_they_are_still_different() -> None:
    torch.manual_seed(0)
    batch = (torch.randn(8, 3), torch.randn(8, 3))
    within = modlab.diagnose(nn.Sequential(nn.Linear(3, 3), Times(0.0)), batch=batch, loss=F.mse_loss)
    assert "they differ in what 1 (Times) gets, not in what it gives" in str(within)
    dead = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    nn.init.constant_(dead[0].bias, -100.0)  # type: ignore[arg-type]
    assert "they differ in what 1 (ReLU) gets, not in what it gives" in str(modlab.diagnose(dead, batch=batch, loss=F.mse_loss))


class Series(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(4, 8, batch_first=batch_first), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


@pytest.mark.parametrize("batch_first", [True, False])
def test_samples_of_a_batch_are_counted_where_they_are(batch_first: bool) -> None:
    torch.manual_seed(0)
    model, x = Series(batch_first), torch.randn(12, 6, 4)
    w = watched(model, lambda: F.mse_loss(model(x), x.sum(-1, keepdim=True)))
    found = next(one for one in w.findings if one.kind == "same batch")
    assert found.facts["samples"] == (12 if batch_first else 6)


@pytest.mark.parametrize(("momentum", "advice"), [(0.01, "momentum=0.1, or None"), (0.1, "more batches in training mode, or average")])
def test_a_momentum_that_is_there_is_not_advised(momentum: float, advice: str) -> None:
    given = FIXES["batch norm statistics"]
    assert advice in (given({"momentum": momentum}) if callable(given) else given)


def test_one_number_of_several_weights_is_their_median() -> None:
    one, two = (Finding("weights begin too small", facts={"places": places, "times": 0.01, "tier": 1}) for places in (("a",), ("a", "b")))
    assert "median" in wording.said(two) and "median" not in wording.said(one)


def test_an_optimizer_that_never_steps_still_holds_its_parameters() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"maker": nn.Linear(3, 3), "judge": nn.Linear(3, 1)})
    asleep, awake = (torch.optim.Adam(model[name].parameters(), lr=1e-2) for name in ("maker", "judge"))
    with modlab.watch(model, [asleep, awake]) as w:
        for _ in range(300):
            x = torch.randn(16, 3)
            awake.zero_grad()
            F.mse_loss(model["judge"](model["maker"](x).detach()), x[:, :1]).backward()
            awake.step()
    assert "in no optimizer" not in [one.kind for one in w.diagnose().findings]


@pytest.mark.parametrize("small", [True, False])
def test_weights_of_float16_whose_copies_are_stepped(small: bool) -> None:
    """Where their gradients are zero the copies never change; `diagnose` makes no steps of Adam in float16."""
    model = mlp()
    copies = [one.detach().clone().requires_grad_() for one in model.parameters()]
    model.half()
    optimizer = torch.optim.Adam(copies, 1e-3, eps=1e-16)
    (x, y), scale = blobs(), 1.0 if small else 2.0**16
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            model.zero_grad()
            (1e-7 * scale * F.cross_entropy(model(x.half()).float(), y)).backward()
            for copy, one in zip(copies, model.parameters(), strict=True):
                copy.grad = one.grad.float() / scale
            optimizer.step()
            with torch.no_grad():
                for copy, one in zip(copies, model.parameters(), strict=True):
                    one.copy_(copy)
    told = [one.kind for one in w.findings]
    assert told[:1] == ["underflow"] if small else "underflow" not in told
    assert "another models optimizer" not in told
    assert next(one for one in w.diagnose().experiments if one.name == "overfit").outcome == "not run"


class Cubed(nn.Module):
    """Attention whose scores are raised to a power, which their factors do not describe."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        scores = (20 * self.q(x) @ self.k(x).transpose(1, 2)) ** 3 / 1e5
        return self.head((scores.softmax(-1) @ self.v(x)).mean(1))


def test_scores_that_are_raised_to_a_power_have_no_temperature() -> None:
    torch.manual_seed(0)
    model, x = Cubed(), torch.randn(64, 6, 8)
    y = x.sum(1)[:, :5].argmax(1)
    assert "temperature" not in kinds(watched(model, lambda: F.cross_entropy(model(x), y), 100))


def test_no_rate_is_blamed_for_what_a_batch_holds() -> None:
    model, (x, y) = mlp(), blobs()
    x[7, 3] = math.inf
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    batches = iter([*torch.arange(32, 64).repeat(12).split(32), *torch.arange(32).repeat(9).split(32)])

    def loss() -> Tensor:
        some = next(batches)
        return F.cross_entropy(model(x[some]), y[some])

    told = kinds(watched(model, loss, 20, optimizer, budget=1.0))
    assert "not a number in data" in told and "not finite by the rate" not in told


class Asked(nn.Module):
    """Answers a question, one of a few, about a text that is another one each time."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, question: Tensor, text: Tensor) -> Tensor:
        return self.net(torch.cat([question, text], 1))


@pytest.mark.parametrize("new", [True, False])
def test_what_a_few_questions_are_asked_of_is_a_part_of_a_sample(new: bool) -> None:
    torch.manual_seed(0)
    model, questions, texts = Asked(), torch.randn(8, 4), torch.randn(8, 16)

    def loss() -> Tensor:
        which = torch.randint(8, (32,))
        text = torch.randn(32, 16) if new else texts[which]
        return F.mse_loss(model(questions[which], text), text[:, :1])

    assert ("few samples" in kinds(watched(model, loss, 80))) is not new


class Chosen(nn.Module):
    """Whether somebody likes something, by what their numbers stand for."""

    def __init__(self, people: int) -> None:
        super().__init__()
        self.people, self.things = nn.Embedding(people, 8), nn.Embedding(people, 8)
        self.net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, person: Tensor, thing: Tensor) -> Tensor:
        return self.net(torch.cat([self.people(person), self.things(thing)], 1))[:, 0]


@pytest.mark.parametrize(("people", "told"), [(400, False), (20, True)])
def test_names_that_come_once_tell_nothing_of_what_they_stand_for(people: int, told: bool) -> None:
    torch.manual_seed(0)
    model = Chosen(people)

    def loss() -> Tensor:
        person, thing = torch.randint(people, (128,)), torch.randint(people, (128,))
        return F.binary_cross_entropy_with_logits(model(person, thing), torch.randint(2, (128,)).float())

    optimizer = torch.optim.Adam(model.parameters(), 3e-4)
    assert ("targets shuffled" in kinds(watched(model, loss, 150, optimizer, budget=1.0))) is told


def test_a_dead_unit_among_a_few_is_no_fault_where_next_to_nothing_is_left_to_learn() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 6), nn.ReLU(), nn.Linear(6, 12))
    nn.init.constant_(model[2].bias, 2)
    x = torch.rand(256, 2) @ torch.randn(2, 12)
    losses: list[Tensor] = []

    def loss() -> Tensor:
        losses.append(F.mse_loss(model(x), x))
        if len(losses) == 20:
            nn.init.constant_(model[2].bias[4:5], -100)
        return losses[-1]

    w = watched(model, loss, 500, torch.optim.Adam(model.parameters(), 4e-3))
    assert [alert.path for alert in w.alerts if alert.kind == "dead"] == ["2"] and w.verdict.exit_code != 1


def test_a_softmax_behind_the_model_is_not_said_to_stand_in_it() -> None:
    model, (x, y) = mlp(), blobs()

    def loss() -> Tensor:
        return (1 - model(x).softmax(0).gather(1, y[:, None])).mean()

    found = next(one for one in watched(model, loss, 60).findings if one.kind == "softmax over the wrong dimension")
    assert "on the way to the loss" in found.text and "output of" not in found.text


class Matched(nn.Module):
    """Pictures and texts as directions, whose likenesses are divided."""

    def __init__(self, divided: float) -> None:
        super().__init__()
        self.one, self.other = (nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(2))
        self.register_buffer("divided", torch.tensor(divided))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return F.normalize(self.one(one), dim=1) @ F.normalize(self.other(other), dim=1).T / self.divided


@pytest.mark.parametrize("slowly", [False, True])
@pytest.mark.parametrize(("divided", "told"), [(14.0, True), (0.07, False)])
def test_a_temperature_that_holds_the_right_answer_down(divided: float, told: bool, slowly: bool) -> None:
    torch.manual_seed(0)
    model, ways = Matched(divided), torch.randn(2, 6, 16)

    def loss() -> Tensor:
        meant = torch.randn(64, 6)
        return F.cross_entropy(model(meant @ ways[0], meant @ ways[1]), torch.arange(64))

    sgd = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    optimizer = sgd(model.parameters()) if slowly else torch.optim.Adam(model.parameters(), 2e-3)
    assert ("temperature" in kinds(watched(model, loss, 600 if slowly else 200, optimizer))) is told


@pytest.mark.parametrize("apart", [True, False])
def test_states_that_many_players_share_are_no_small_data_set(apart: bool) -> None:
    """Of a small world, a batch of players holds the same few states many times; of a small data set, each sample once."""
    torch.manual_seed(0)
    states = torch.cat([torch.eye(7).repeat(2, 1), torch.tensor([-1.0, 1.0]).repeat_interleave(7)[:, None]], 1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))

    def loss() -> Tensor:
        x = states[torch.randperm(14)[:10]] if apart else states[torch.randint(0, 14, (40,))]
        return F.cross_entropy(model(x), (x[:, 0] + x[:, 7] > 0).long())

    assert ("few samples" in kinds(watched(model, loss, 120))) is apart


def test_of_norms_that_get_one_sample_the_one_with_the_fewest_values_is_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(1, 8, 3), nn.BatchNorm1d(8), nn.MaxPool1d(4), nn.Conv1d(8, 8, 3), nn.BatchNorm1d(8), nn.Flatten())
    model.append(nn.LazyLinear(1))
    model(torch.randn(2, 1, 30))
    w = watched(model, lambda: F.mse_loss(model(torch.randn(1, 1, 30)), torch.randn(1, 1)), 40)
    (found,) = [one for one in w.verdict.findings if one.kind == "batch norm of one"]
    assert found.path == "4" and "sees 5 values for each channel, all of one sample" in wording.said(found)
    assert "drop_last" not in str(w.diagnose(batch=(torch.randn(1, 1, 30), torch.randn(1, 1)), loss=F.mse_loss))


class OwnState(nn.Module):
    """A state that a matrix of its own multiplies, beside a layer that brings something in at each step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.turn, self.brings, self.gives = nn.Parameter(torch.linalg.qr(torch.randn(8, 8))[0] * 1.4), nn.Linear(1, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 8)
        for t in range(x.shape[1]):
            state = state @ self.turn + self.brings(x[:, t])
        return self.gives(state)


def test_what_multiplies_a_state_is_named_and_not_what_brings_something_in() -> None:
    model = OwnState()
    w = watched(model, lambda: F.mse_loss(model(torch.randn(16, 40, 1)), torch.randn(16, 1)), 60)
    (found,) = [one for one in w.verdict.findings if one.kind == "exploding recurrence"]
    assert (found.path, found.facts["beside"]) == ("turn", "brings") and "turn (8 × 8) stands beside brings" in wording.said(found)


def test_a_batch_that_was_seen_to_be_finite_is_not_blamed() -> None:
    """An exp of the model's own overflows at the step that was looked at, after one whose loss was a number."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)

    def loss() -> Tensor:
        steps.append(1)
        x = torch.randn(16, 4)
        some = model(x)
        wide = (some * 0 + (1.0 if len(steps) < 40 else 200.0)).exp()
        return F.mse_loss(some * wide / wide, x[:, :1])

    steps: list[int] = []
    assert "not a number in data" not in kinds(watched(model, loss, 60, budget=1.0))


def test_gradients_that_are_zeroed_now_and_then_do_not_add_up_over_all_passes() -> None:
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    with modlab.watch(model, optimizer) as w:
        for step in range(60):
            if step % 6 == 0:
                optimizer.zero_grad()
            x, y = blobs()
            F.cross_entropy(model(x), y).backward()
    (found,) = [one for one in w.verdict.findings if one.kind == "never enough to step"]
    assert "none of 60 backward passes is followed by a step" in wording.said(found)
