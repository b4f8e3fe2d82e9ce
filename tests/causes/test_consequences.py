"""What only follows from a cause is not named beside it, and what was not looked at is not judged."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.causes import table
from modlab.causes.cause_row import CauseRow
from modlab.causes.symptoms import Symptoms
from modlab.format import rough
from modlab.results.watch import Watch
from modlab.testing import assert_learns

CENTRES = 2 * torch.randn(4, 10, generator=torch.Generator().manual_seed(1))


def blobs(samples: int = 600) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    y = torch.randint(4, (samples,))
    return CENTRES[y] + torch.randn(samples, 10), y


def net(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), *more, nn.Linear(32, 4))


def trained(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int = 200,
    each: Callable[[Callable[[], Tensor]], object] | None = None,
    data: tuple[Tensor, Tensor] | None = None,
) -> Watch:
    x, y = blobs() if data is None else data
    with modlab.watch(model, optimizer) as w:
        for step in range(steps):
            rows = torch.arange(30 * step, 30 * step + 30) % len(x)

            def loss(rows: Tensor = rows) -> Tensor:
                return F.cross_entropy(model(x[rows]), y[rows])

            optimizer.zero_grad()
            if each is not None:
                each(loss)
                continue
            loss().backward()
            optimizer.step()
    return w


def kinds(w: Watch) -> list[str]:
    return [one.kind for one in w.findings if "tier" in one.facts]


def test_a_rate_of_zero_is_told_as_that():
    model, (x, y) = net(), blobs()
    w = trained(model, torch.optim.Adam(model.parameters(), lr=0.0))
    assert w.headline.startswith("The learning rate is 0: no step changes a weight.") and "Fix: a learning rate above 0" in str(w)
    assert next(one for one in w.verdict.checks if one.name == "by enough for its dtype").state == "not seen"
    with pytest.raises(AssertionError, match="The learning rate is 0"):
        assert_learns(model, torch.optim.Adam(model.parameters(), lr=0.0), batch=(x, y), loss=F.cross_entropy, steps=50)


@pytest.mark.parametrize("zeroed", [False, True])
@pytest.mark.parametrize("passes", [4, 8])
def test_gradients_that_are_accumulated_are_zeroed_before_the_next_step(passes: int, zeroed: bool):
    model, (x, y) = net(), blobs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    with modlab.watch(model, optimizer) as w:
        for _ in range(80):
            if zeroed:
                optimizer.zero_grad()
            for rows in torch.arange(64 * passes).chunk(passes):
                (F.mse_loss(model(x[rows]), F.one_hot(y[rows], 4).float()) / passes).backward()
            optimizer.step()
    assert kinds(w)[:1] == ([] if zeroed else ["no zero grad"])
    assert zeroed or "gradients that were there already, the first one of a step too" in w.headline


def test_an_input_that_tells_the_target_explains_no_loss_that_stays():
    torch.manual_seed(1)
    x, model = torch.randn(600, 10), nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    found = {}
    for rate in (0.0, 0.1):
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        with modlab.watch(model, optimizer) as w:
            for step in range(60):
                rows = x[30 * step % 570 :][:30]
                optimizer.zero_grad()
                F.mse_loss(model(rows), rows[:, :1]).backward()
                optimizer.step()
        found[rate] = kinds(w)
    assert found == {0.0: ["rate too low", "leak"], 0.1: ["leak"]}


def test_a_rate_is_not_too_low_where_it_has_nothing_to_move():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def zeroed(loss: Callable[[], Tensor]) -> None:
        loss().backward()
        optimizer.zero_grad(set_to_none=False)
        optimizer.step()

    assert kinds(trained(model, optimizer, each=zeroed)) == ["zeroed before step"]
    assert kinds(trained(net(), torch.optim.Adam(net().parameters(), lr=1e-2))) == ["another models optimizer"]


def test_without_a_backward_pass_nothing_is_said_of_the_graph():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    w = trained(model, optimizer, steps=40, each=lambda loss: optimizer.step(loss))
    assert kinds(w) == ["no backward"] and w.headline.startswith("backward() is never called: after 40 steps, no parameter has a gradient.")


def test_weights_of_zeros_explain_what_is_zero_after_them():
    model = net()
    for one in model.parameters():
        nn.init.zeros_(one)
    assert kinds(trained(model, torch.optim.SGD(model.parameters(), lr=0.1))) == ["all weights equal"]


def test_a_missing_bias_explains_no_nan():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32, bias=False), nn.Tanh(), nn.Linear(32, 4, bias=False))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(200, 10)
    x[::7] = 0
    with modlab.watch(model, optimizer) as w:
        for step in range(100):
            optimizer.zero_grad()
            out = model(x[25 * step % 200 :][:25])
            (out / out.norm(dim=1, keepdim=True) - 0.5).square().mean().backward()
            optimizer.step()
    assert kinds(w) == ["division by zero"]


def test_batches_of_one_class_show_no_feature_that_tells_all():
    x, y = blobs()
    model, order = net(), y.argsort()
    assert kinds(trained(model, torch.optim.SGD(model.parameters(), lr=0.1), data=(x[order], y[order]))) == ["ordered batches"]


def test_calls_in_evaluation_mode_are_not_judged():
    model = net(nn.Dropout(0.9)).eval()
    w = trained(model, torch.optim.SGD(model.parameters(), lr=1e-5))
    check = next(one for one in w.verdict.checks if one.name == "every module is called")
    assert (check.state, check.kind) == ("not seen", "no training pass") and "used without a call" not in str(w)


@pytest.mark.parametrize(("gamma", "named"), [(0.3, True), (1.0, False)])
def test_a_schedule_that_ends_the_training_early_is_named_though_the_loss_fell(gamma, named):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, gamma)

    def each(loss: Callable[[], Tensor]) -> None:
        loss().backward()
        optimizer.step()
        schedule.step()

    assert kinds(trained(model, optimizer, steps=300, each=each)) == ["rate runs out"] * named


@pytest.mark.parametrize("again", [False, True], ids=["to the end", "but for a new beginning after the last step"])
def test_the_rate_that_runs_out_is_told_as_it_is_at_the_end(again):
    """The last look is some steps before that."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if again and step == 300 else 0.8**step)

    def each(loss: Callable[[], Tensor]) -> None:
        loss().backward()
        optimizer.step()
        schedule.step()

    w = trained(model, optimizer, steps=300, each=each)
    (cause,) = (one for one in w.findings if "tier" in one.facts)
    (rate,) = (one for one in w.record.scalars if one.kind == "rate")
    last = float(rate.mean[-1]) if again else 0.05 * 0.8**300
    assert cause.kind == "rate runs out" and cause.facts["last"] == pytest.approx(last)
    assert f"it fell from 0.05 to {rough(last)}" in str(w)


class Autoencoder(nn.Module):
    """Two parts, for an optimizer each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(20, 4), nn.Linear(4, 20)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(torch.tanh(self.encoder(x)))


@pytest.mark.parametrize("sleeps", [True, False])
def test_an_optimizer_that_never_steps(sleeps):
    torch.manual_seed(0)
    model, x = Autoencoder(), torch.randn(400, 4) @ torch.randn(4, 20)
    first, second = torch.optim.Adam(model.encoder.parameters(), 1e-2), torch.optim.Adam(model.decoder.parameters(), 1e-2)
    with modlab.watch(model, [first, second]) as w:
        for step in range(200):
            rows = torch.arange(20 * step, 20 * step + 20) % 400
            first.zero_grad()
            second.zero_grad()
            F.mse_loss(model(x[rows]), x[rows]).backward()
            second.step()
            if not sleeps:
                first.step()
    assert kinds(w) == ["no step"] * sleeps
    assert "got none in any step" not in str(w)
    if sleeps:
        assert "the Adam that holds encoder.weight and encoder.bias made none" in w.headline


def test_a_discriminator_is_watched_alone():
    """The parameters of the generator come in with its inputs."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    of_generator, of_critic = (torch.optim.Adam(one.parameters(), 1e-3, (0.5, 0.9)) for one in (generator, critic))
    with modlab.watch(critic, of_critic) as w:
        for _ in range(150):
            fake = generator(torch.randn(32, 4))
            loss = F.softplus(-critic(0.5 * torch.randn(32, 2) + 2)).mean() + F.softplus(critic(fake.detach())).mean()
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            of_generator.zero_grad()
            F.softplus(-critic(fake)).mean().backward()
            of_generator.step()
    assert "hidden layers" not in kinds(w)


def test_batches_of_one_sample_warn_of_nothing():
    model = net()
    x, y = blobs()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with warnings.catch_warnings(record=True) as told:  # as an error it would be caught by the watch itself
        warnings.simplefilter("always")
        with modlab.watch(model, optimizer):
            for step in range(20):
                optimizer.zero_grad()
                F.cross_entropy(model(x[step : step + 1]), y[step : step + 1]).backward()
                optimizer.step()
    assert told == []


def test_where_the_rate_is_too_high_it_is_not_too_low_as_well(monkeypatch: pytest.MonkeyPatch):
    symptoms = Symptoms(trained(net(), torch.optim.SGD(net().parameters(), 0.1)).record)
    rows = [CauseRow(name, lambda _: {"step": 1}, tier=2) for name in ("rate too high", "rate too low")]
    for some, named in ((rows, ["rate too high"]), (rows[1:], ["rate too low"])):
        monkeypatch.setattr(table, "ROWS", tuple(some))
        assert [one.kind for one in table.causes(symptoms)] == named


@pytest.mark.parametrize(("momentum", "named"), [(0.001, True), (0.004, True), (0.1, False)])
def test_statistics_that_cannot_follow_in_a_run_are_named(momentum: float, named: bool):
    x, y = blobs()
    w = trained(
        model := nn.Sequential(nn.BatchNorm1d(10, momentum=momentum), *net()),
        torch.optim.Adam(model.parameters(), 3e-3),
        data=(x + 20, y),
        steps=120,
    )
    assert ("batch norm statistics" in kinds(w)) == named


def validated(model: nn.Sequential, before: Callable[[nn.Module], None]) -> Watch:
    x, y = blobs()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with modlab.watch(model, optimizer) as w:
        for _ in range(4):
            trained_for_an_epoch(model, optimizer, x, y)
            before(model)
            with torch.no_grad():
                model.eval()(x)
    return w


def trained_for_an_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    model.train()
    for rows, labels in zip(x.split(50), y.split(50), strict=True):
        optimizer.zero_grad()
        F.cross_entropy(model(rows), labels).backward()
        optimizer.step()


def with_norm() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def reset(model: nn.Module) -> None:
    for one in model.modules():
        if isinstance(one, nn.BatchNorm1d):
            one.reset_running_stats()


def zeroed(model: nn.Module) -> None:
    for name, one in model.named_buffers():
        if "running" in name:
            one.fill_("var" in name)


def filled_again(model: nn.Module) -> None:
    reset(model)
    model.train()(blobs()[0])


def drawn_anew(model: nn.Module) -> None:
    for one in model.modules():
        if isinstance(one, (nn.Linear, nn.BatchNorm1d)):
            one.reset_parameters()


RESETS: dict[Callable[[nn.Module], None], bool] = {
    reset: True,
    zeroed: True,
    lambda model: model.load_state_dict(dict(with_norm().named_buffers()), strict=False): True,
    filled_again: False,
    drawn_anew: False,
    lambda _: None: False,
}


@pytest.mark.parametrize("before", RESETS, ids=map(str, range(len(RESETS))))
def test_statistics_that_are_reset_before_a_validation(before: Callable[[nn.Module], None]):
    assert ("batch norm statistics" in kinds(validated(with_norm(), before))) is RESETS[before]


def test_statistics_that_are_lent_to_each_pass():
    model, (x, y) = with_norm(), blobs()
    lent = {name: one.clone() for name, one in model.named_buffers()}
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with modlab.watch(model, optimizer) as w:
        for rows, labels in zip(x.split(50), y.split(50), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(torch.func.functional_call(model, lent, rows), labels).backward()
            optimizer.step()
    assert int(lent["1.num_batches_tracked"]) == 12 and "batch norm statistics" not in kinds(w)


def test_what_is_its_own_negative_is_a_second_candidate_of_a_constant_loss():
    model = net()
    optimizer, triplet = torch.optim.Adam(model.parameters(), lr=1e-2), nn.TripletMarginLoss(margin=0.5)
    x, _ = blobs()
    with modlab.watch(model, optimizer) as w:
        for step in range(60):
            rows = x[30 * step % 570 :][:30]
            out = F.normalize(model(rows), dim=1)
            optimizer.zero_grad()
            other = F.normalize(model(rows + 0.1 * torch.randn_like(rows)), dim=1)
            triplet(out, other, other.roll(0, 0)).backward()
            optimizer.step()
    (found,) = (one for one in w.findings if one.kind == "constant loss")
    assert found.facts["rival"] == "wrong negatives" and "its own negative" in str(w.verdict)


def test_a_teacher_that_no_optimizer_holds_and_that_runs_without_autograd_is_no_fault():
    x, y = blobs()
    student, teacher = net(), net()
    pair = nn.ModuleDict({"student": student, "teacher": teacher.eval()})
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2)
    with modlab.watch(pair, optimizer) as w:
        for step in range(200):
            rows = torch.arange(30 * step, 30 * step + 30) % len(x)
            with torch.no_grad():
                soft = teacher(x[rows]).softmax(1)
            out = student(x[rows])
            loss = F.cross_entropy(out, y[rows]) + 0.1 * F.kl_div(out.log_softmax(1), soft, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = w.diagnose()
    assert "in no optimizer" not in [one.kind for one in found.findings] and found.verdict != "broken"
    assert "teacher" in str(found)


def stripes() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    y, down, across = torch.randint(4, (640,)), *torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    waves = 1.3 * torch.stack([down, across, down + across, down - across])[y] + 6.28 * torch.rand(640, 1, 1)
    return (0.5 + 0.4 * waves.sin() + 0.15 * torch.randn(640, 12, 12)).unsqueeze(1), y


class Pooled(nn.Module):
    """Its ReLUs are functions, whose units are not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.last = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1), nn.Linear(24 * 9, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.one(x)), 2)
        return self.last(F.max_pool2d(F.relu(self.other(x)), 2).flatten(1))


@pytest.mark.parametrize(("rate", "high"), [(0.1, True), (2e-3, False)])
def test_a_first_step_that_silences_all_units(rate, high):
    x, y = stripes()
    model = Pooled()
    w = trained(model, torch.optim.Adam(model.parameters(), rate), data=(x, y))
    assert ("rate too high" in kinds(w)[:1]) is high
    assert next(one.state for one in w.verdict.checks if one.name == "the loss falls") == ("careful" if high else "passed")


@pytest.mark.parametrize(("width", "found"), [(2, True), (16, False)])
def test_many_classes_behind_two_numbers(width, found):
    torch.manual_seed(0)
    words, y = torch.randn(30, 20), torch.randint(30, (3000,))
    model = nn.Sequential(nn.Linear(20, 128), nn.GELU(), nn.Linear(128, width), nn.GELU(), nn.Linear(width, 30))
    w = trained(model, torch.optim.Adam(model.parameters(), 3e-3), data=(words[y] + 0.3 * torch.randn(3000, 20), y))
    assert ("bottleneck" in kinds(w)) is found


def test_a_product_of_two_towers_needs_no_bias():
    torch.manual_seed(0)
    model = nn.ModuleList([nn.Linear(8, 16, bias=False), nn.Linear(8, 16, bias=False)])
    optimizer, matrix = torch.optim.Adam(model.parameters(), 1e-2), torch.randn(8, 8)
    with modlab.watch(model, optimizer) as w:
        for _ in range(400):
            user, item = torch.randn(2, 64, 8)
            optimizer.zero_grad()
            scores = (model[0](user) * model[1](item)).sum(1)
            F.binary_cross_entropy_with_logits(scores, ((user @ matrix) * item).sum(1).gt(0).float()).backward()
            optimizer.step()
    assert "no bias where needed" not in kinds(w) and w.verdict.exit_code == 0


@pytest.mark.parametrize(("bound", "first"), [(1.0, "one huge feature"), (1e-3, "clipped to nothing")])
def test_a_usual_bound_is_not_blamed_for_the_gradients_that_a_huge_feature_makes(bound, first):
    torch.manual_seed(0)
    x = torch.randn(256, 6)
    y = x[:, :1] + 0.5 * x[:, 1:2]
    x[:, 5] = 50_000 + 20_000 * x[:, 5]
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    with modlab.watch(net, optimizer) as w:
        for some in torch.randperm(256).repeat(10).split(32):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x[some]), y[some]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), bound)
            optimizer.step()
    assert next(one.kind for one in w.verdict.findings if "tier" in one.facts) == first


class Squashed(nn.Module):
    """A net that gives chances to a loss that takes scores."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(-1)


def shrunk() -> nn.Sequential:
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(10, 10), nn.Tanh())), nn.Linear(10, 4))
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(0.01)
    return model


FOLLOWING = {
    "small weights": (shrunk, 0.03, F.cross_entropy, "weights begin too small", "rate too low"),
    "chances": (Squashed, 1e-3, F.cross_entropy, "softmax before cross entropy", "rate too low"),
}


@pytest.mark.parametrize("case", FOLLOWING)
def test_a_rate_is_not_blamed_for_what_another_cause_explains(case: str):
    make, rate, criterion, cause, follows = FOLLOWING[case]
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    x, y = blobs()
    with modlab.watch(model, optimizer) as w:
        for step in range(150):
            rows = torch.arange(30 * step, 30 * step + 30) % len(x)
            optimizer.zero_grad()
            criterion(model(x[rows]), y[rows]).backward()
            optimizer.step()
    assert cause in kinds(w) and follows not in kinds(w)
    assert follows in [one.kind for one in unfollowed(w)]


def unfollowed(w: Watch) -> list[Any]:
    """All causes that a record shows, whatever explains what."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table, "FOLLOWS", {})
        return [*table.causes(Symptoms(w.record))]


def test_what_a_training_made_of_the_weights_is_not_mended_by_another_beginning():
    """Nor by what a check advises by itself: beside a cause that explains it, neither says what to do."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.15)
    x, y = blobs()
    with modlab.watch(model, optimizer) as w:
        for step in range(100):
            rows = torch.arange(30 * step, 30 * step + 30) % len(x)
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows], reduction="sum").backward()
            optimizer.step()
    found, bare = w.diagnose(), modlab.diagnose(model)
    assert kinds(w)[0] == "loss too large" and "kaiming" in str(bare)
    assert "rate too high" in [one.kind for one in unfollowed(w)] and "rate too high" not in kinds(w)
    assert "kaiming" not in str(found) and "Restart the layer" not in str(found)
