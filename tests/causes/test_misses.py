"""What a blind sweep of doses found unnamed: each fault, and the loops beside it that do the same on purpose."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.watch import Watch
from tests.causes.test_neighbours import kinds

SGD, ADAM = torch.optim.SGD, torch.optim.Adam
STEPS = 60


def net(width: int = 32, layers: int = 2) -> nn.Sequential:
    """A net of some layers, always the same."""
    torch.manual_seed(0)
    inner = [one for _ in range(layers - 1) for one in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), *inner, nn.Linear(width, 1))


def batch() -> tuple[Tensor, Tensor]:
    """Sixty-four rows, and what is to be found in them."""
    x = torch.randn(64, 10)
    return x, x[:, :1] * x[:, 1:2] + x[:, 2:5].sum(1, keepdim=True)


def error(model: nn.Module) -> Tensor:
    """The loss on a fresh batch."""
    x, y = batch()
    return F.mse_loss(model(x), y)


def run(model: nn.Module, *optimizers: torch.optim.Optimizer, steps: int = STEPS, turn: Callable[[int], None]) -> Watch:
    """Watch a loop."""
    with modlab.watch(model, *optimizers[:1], budget=1.0) as w:
        for step in range(steps):
            turn(step)
    return w


# ---- gradients that are taken away


@pytest.mark.parametrize("zero", [True, False], ids=["zero", "None"])
@pytest.mark.parametrize(("until", "layers"), [(0, 2), (STEPS // 2, 2), (STEPS, 2), (STEPS, 12)])
def test_gradients_of_some_parameters_that_are_gone_at_the_step(until: int, layers: int, zero: bool) -> None:
    """For half of the run they may be held back on purpose, as those of a last layer are."""
    model = net(layers=layers)
    optimizer = ADAM(model.parameters(), lr=0.003)

    def turn(step: int) -> None:
        optimizer.zero_grad()
        error(model).backward()
        for one in model[0].parameters():
            if step < until and one.grad is not None:
                one.grad = torch.zeros_like(one.grad) if zero else None
        optimizer.step()

    w = run(model, optimizer, turn=turn)
    told = until == STEPS
    assert (kinds(w)[:1] == ["zeroed before step"]) is told and bool(w.verdict.exit_code) is told
    if told:
        assert w.verdict.findings[0].facts["places"] == ("0.weight", "0.bias")
        assert "got no gradient" not in str(w) + str(w.verdict) and "got none" not in str(w.verdict)


def test_what_no_loss_reaches_has_not_been_taken_away() -> None:
    model = nn.ModuleDict({"net": net(), "rest": nn.Linear(3, 3)})
    optimizer = ADAM(model.parameters(), lr=0.003)

    def turn(step: int) -> None:
        optimizer.zero_grad()
        error(model["net"]).backward()
        optimizer.step()

    w = run(model, optimizer, turn=turn)
    assert "zeroed before step" not in kinds(w) and "had none left" not in str(w.verdict)


# ---- passes that no step uses


@pytest.mark.parametrize("none", [True, False], ids=["None", "zeros"])
@pytest.mark.parametrize("every", [2, 10])
def test_passes_that_are_thrown_away(every: int, none: bool) -> None:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.003)

    def turn(step: int) -> None:
        optimizer.zero_grad(set_to_none=none)
        error(model).backward()
        if (step + 1) % every == 0:
            optimizer.step()

    w = run(model, optimizer, turn=turn, steps=STEPS * every)
    facts = w.verdict.findings[0].facts
    assert kinds(w)[:1] == ["zeroed before step"] and facts["rival"] == "no step"
    assert facts["thrown"] == pytest.approx((1 - 1 / every) * facts["passes"], abs=every)
    assert f"of {facts['passes']:,} backward passes that were looked at, {facts['thrown']:,} brought gradients" in w.headline


class Loops:
    """Several backward passes for each step, on purpose."""

    def __init__(self) -> None:
        self.model = net()
        self.optimizer: torch.optim.Optimizer = SGD(self.model.parameters(), lr=0.01)

    def accumulated(self) -> None:
        self.optimizer.zero_grad()
        for _ in range(4):
            (error(self.model) / 4).backward()
        self.optimizer.step()

    def put_together(self) -> None:
        """Of each task its own gradients, which are then added up, as PCGrad does."""
        kept = []
        for _ in range(4):
            self.optimizer.zero_grad()
            error(self.model).backward()
            kept.append([one.grad for one in self.model.parameters() if one.grad is not None])
        for one, *some in zip(self.model.parameters(), *kept, strict=True):
            one.grad = torch.stack(some).mean(0)
        self.optimizer.step()

    def written_back(self) -> None:
        """The same, into the tensors that are there."""
        total = [torch.zeros_like(one) for one in self.model.parameters()]
        for _ in range(4):
            self.optimizer.zero_grad()
            error(self.model).backward()
            for mine, one in zip(total, self.model.parameters(), strict=True):
                mine += one.grad / 4
        for mine, one in zip(total, self.model.parameters(), strict=True):
            assert one.grad is not None
            one.grad.copy_(mine)
        self.optimizer.step()

    def sharpness_aware(self) -> None:
        x, y = batch()
        moved: list[Tensor] = []
        for way in (0.01, 0.0):
            self.optimizer.zero_grad()
            F.mse_loss(self.model(x), y).backward()
            with torch.no_grad():
                for one in self.model.parameters() if way else ():
                    assert one.grad is not None
                    moved.append(way * one.grad)
                    one.add_(moved[-1])
        with torch.no_grad():
            for one, far in zip(self.model.parameters(), moved, strict=True):
                one.sub_(far)
        self.optimizer.step()

    def attacked(self) -> None:
        """Some passes look for the worst input, from the same place."""
        x, y = batch()
        x.requires_grad_()
        for _ in range(4):
            self.optimizer.zero_grad()
            x.grad = None
            F.mse_loss(self.model(x), y).backward()
            assert x.grad is not None
            x = (x + 0.01 * x.grad.sign()).detach().requires_grad_()
        self.optimizer.step()

    def looked_at(self) -> None:
        """How large gradients are on other data is only logged."""
        for _ in range(3):
            self.optimizer.zero_grad()
            error(self.model).backward()
        self.optimizer.zero_grad()
        error(self.model).backward()
        self.optimizer.step()

    def closure(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = error(self.model)
        loss.backward()
        return loss


LOOPS = "accumulated", "put_together", "written_back", "sharpness_aware", "attacked", "looked_at"


@pytest.mark.parametrize("name", LOOPS)
def test_passes_that_are_not_stepped_on_purpose(name: str) -> None:
    loops = Loops()
    w = run(loops.model, loops.optimizer, turn=lambda step: getattr(loops, name)())
    assert "zeroed before step" not in kinds(w)


def test_a_closure_that_zeroes_is_called_several_times() -> None:
    loops = Loops()
    loops.optimizer = torch.optim.LBFGS(loops.model.parameters(), lr=0.1, max_iter=5)
    w = run(loops.model, loops.optimizer, turn=lambda step: loops.optimizer.step(loops.closure), steps=30)
    assert "zeroed before step" not in kinds(w)


# ---- two optimizers for the same parameters


class Pair:
    """Two optimizers, and how they go together."""

    def __init__(self, way: str) -> None:
        self.way, self.model = way, net()
        inner, outer = [*self.model[:-1].parameters()], [*self.model[-1].parameters()]
        everything = [*self.model.parameters()]
        self.first = ADAM(outer if way == "apart" else everything, lr=0.003)
        self.second = SGD(inner if way == "apart" else everything, lr=0.5 if way == "too far" else 1e-3)

    def turn(self, step: int) -> None:
        self.first.zero_grad()
        error(self.model).backward()
        if self.way == "one after the other":
            (self.first if step < 70 else self.second).step()
        elif self.way == "in turns":
            (self.second if step % 2 else self.first).step()
        elif self.way == "for two losses":
            self.first.step()
            self.second.zero_grad()
            x, y = batch()
            F.l1_loss(self.model(x), y).backward()
            self.second.step()
        else:
            self.first.step()
            self.second.step()


@pytest.mark.parametrize("way", ["too far", "both", "apart", "one after the other", "in turns", "for two losses"])
def test_two_optimizers_that_both_step(way: str) -> None:
    pair = Pair(way)
    w = run(pair.model, pair.first, turn=pair.turn, steps=140)
    told = way in ("too far", "both")
    assert ("two optimizers" in kinds(w)) is told
    if told:
        found = next(one for one in w.verdict.findings if one.kind == "two optimizers")
        assert found.severity == ("broken" if way == "too far" else "careful")
        assert "Adam and SGD both hold 0.weight, 0.bias" in found.text
        assert way == "too far" or "the second one made 140 steps" in found.text


# ---- hooks on parameters


def _masked(gradient: Tensor) -> Tensor:
    kept = torch.ones_like(gradient)
    kept[: len(kept) // 2] = 0
    return gradient * kept


HOOKS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "zeros": (torch.zeros_like, "gradients overwritten"),
    "turned": (lambda gradient: -gradient, "wrong sign"),
    "masked": (_masked, ""),
    "seen": (lambda gradient: gradient, ""),
}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_on_some_parameters(name: str) -> None:
    model = net()
    hook, told = HOOKS[name]
    for one in [*model.parameters()][:4]:
        one.register_hook(hook)
    optimizer = ADAM(model.parameters(), lr=0.003)

    def turn(step: int) -> None:
        optimizer.zero_grad()
        error(model).backward()
        optimizer.step()

    w = run(model, optimizer, turn=turn, steps=150)
    assert kinds(w)[:1] == [told] * bool(told)
    if name == "zeros":
        text = "hooks stand on 0.weight, 0.bias, 2.weight and 1 more, and just there the gradients are zero in all looks"
        assert text in w.verdict.findings[0].text
    if name == "turned":
        assert w.verdict.findings[0].facts["rival"] == "gradients overwritten"


def test_a_hook_on_what_dead_units_leave_without_a_gradient() -> None:
    model = net()
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    for one in model[0].parameters():
        one.register_hook(lambda gradient: gradient)
    optimizer = ADAM(model.parameters(), lr=0.003)

    def turn(step: int) -> None:
        optimizer.zero_grad()
        error(model).backward()
        optimizer.step()

    assert "gradients overwritten" not in kinds(run(model, optimizer, turn=turn))


# ---- an optimizer that was made before modules were replaced


@pytest.mark.parametrize("way", ["replaced", "left out", "another model beside it"])
def test_an_optimizer_that_holds_what_was_there_before(way: str) -> None:
    model, other = net(), nn.Linear(7, 7)
    held = [*model[2:].parameters()] if way != "replaced" else [*model.parameters()]
    optimizer = ADAM([*held, *other.parameters()] if way == "another model beside it" else held, lr=0.003)
    if way == "replaced":
        model[0] = nn.Linear(10, 32)

    def turn(step: int) -> None:
        optimizer.zero_grad()
        error(model).backward()
        optimizer.step()

    w = run(model, optimizer, turn=turn)
    found = w.verdict.findings[0]
    assert found.kind == "not in the optimizer"
    assert ("rival" in found.facts) is (way == "replaced")
    assert ("instead it holds 2 of the same shapes that are not in this model" in w.headline) is (way == "replaced")


# ---- a rate that falls with each batch


@pytest.mark.parametrize(("gamma", "told"), [(0.95, True), (0.97, True), (0.99, False), (1.0, False)])
def test_a_rate_that_falls_with_each_batch(gamma: float, told: bool) -> None:
    model = net()
    optimizer = ADAM(model.parameters(), lr=0.003)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    with modlab.watch(model, optimizer, budget=0.02) as w:
        for _ in range(288):
            optimizer.zero_grad()
            error(model).backward()
            optimizer.step()
            schedule.step()
    assert (kinds(w)[:1] == ["rate runs out"]) is told


# ---- two who play


@pytest.mark.parametrize("zeroes", ["its own", "all"])
@pytest.mark.parametrize("watched", ["both", "generator", "discriminator"])
def test_gradients_of_the_other_player_may_be_thrown_away(watched: str, zeroes: str) -> None:
    torch.manual_seed(0)
    made, judge = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
    first, second = ADAM(judge.parameters(), lr=1e-3), ADAM(made.parameters(), lr=1e-3)
    player = {"both": nn.ModuleDict({"made": made, "judge": judge}), "generator": made, "discriminator": judge}[watched]
    held = {"both": (first, second), "generator": (second,), "discriminator": (first,)}[watched]

    def clear(one: torch.optim.Optimizer) -> None:
        for some in (first, second) if zeroes == "all" else (one,):
            some.zero_grad()

    with modlab.watch(player, [*held], budget=1.0) as w:
        for _ in range(60):
            for _ in range(2):
                clear(first)
                real, fake = torch.randn(32, 2) + 1, made(torch.randn(32, 4))  # whose graph is not cut
                mixed = (real + torch.rand(32, 1) * (fake - real)).detach().requires_grad_()
                (slope,) = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
                (judge(fake).mean() - judge(real).mean() + (slope.norm(dim=1) - 1).square().mean()).backward()
                first.step()
            clear(second)
            (-judge(made(torch.randn(32, 4))).mean()).backward()
            second.step()
    assert not {"zeroed before step", "two optimizers"} & {*kinds(w)}
