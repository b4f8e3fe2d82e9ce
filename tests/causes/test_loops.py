"""Causes that lie in lines of the loop, beside the same loop without them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.worded import Worded

STEPS = 150
TEACHER = torch.randn(10, 4, generator=torch.Generator().manual_seed(5))


def net(answers: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, answers))


def classes(samples: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.randn(samples, 10)
    return x, (x @ TEACHER).argmax(1)


def values(_: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 10)
    return x, (x @ TEACHER[:, :1]).tanh()


def asked(
    model: nn.Module,
    batch: Callable[[int], tuple[Tensor, Tensor]],
    criterion: Callable[[Tensor, Tensor], Tensor],
    before_step: Callable[[torch.optim.Optimizer], object] = lambda _: None,
    prepare: Callable[[torch.optim.Optimizer], object] = lambda _: None,
) -> list[str]:
    """The kinds of the findings of a training."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    prepare(optimizer)
    with modlab.watch(model, optimizer) as w:
        for step in range(STEPS):
            x, y = batch(step)
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            before_step(optimizer)
            optimizer.step()
    return [one.kind for one in w.findings]


def each(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


@pytest.mark.parametrize(("decay", "wrong"), [(2.0, True), (1e-4, False)])
def test_decay_that_is_added_to_the_gradients(decay, wrong):
    def add(optimizer: torch.optim.Optimizer) -> None:
        for one in each(optimizer):
            one.grad.add_(one.detach(), alpha=decay)

    assert ("too much decay" in asked(net(1), values, F.mse_loss, add)) is wrong


@pytest.mark.parametrize("wrong", [True, False])
def test_an_optimizers_hook_that_takes_the_gradients_away(wrong):
    def hook(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if wrong:
            optimizer.zero_grad(set_to_none=False)

    asked_of = asked(net(1), values, F.mse_loss, prepare=lambda optimizer: optimizer.register_step_pre_hook(hook))
    assert ("zeroed before step" in asked_of) is wrong


class Called(nn.Module):
    """Calls what is not its own: a layer that a function makes anew, or holds."""

    def __init__(self, layer: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(10, 16), nn.Linear(16, 4)
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer()(self.first(x)).relu())


def test_a_layer_that_is_made_in_each_forward_pass():
    torch.manual_seed(0)
    assert "hidden layers" in asked(Called(lambda: nn.Linear(16, 16)), lambda _: classes(), F.cross_entropy)


def test_a_layer_without_parameters_may_be_made_in_each_forward_pass():
    torch.manual_seed(0)
    assert "hidden layers" not in asked(Called(nn.Tanh), lambda _: classes(), F.cross_entropy)


def log_cosh(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).cosh().log().mean()


@pytest.mark.parametrize("wrong", [True, False])
def test_a_column_against_a_row_in_a_loss_without_a_name(wrong):
    kinds = asked(net(1), values, lambda output, target: log_cosh(output, target.squeeze(1) if wrong else target))
    assert ("broadcast" in kinds) is wrong


@pytest.mark.parametrize("wrong", [True, False])
def test_a_set_that_is_sorted_by_class(wrong):
    torch.manual_seed(0)
    x, y = classes(STEPS * 32)
    order = y.argsort() if wrong else torch.randperm(len(y))
    rows = order.view(STEPS, 32)
    assert ("ordered batches" in asked(net(), lambda step: (x[rows[step]], y[rows[step]]), F.cross_entropy)) is wrong


@pytest.mark.parametrize("wrong", [True, False])
def test_the_first_batch_again_and_again(wrong):
    def batch(step: int) -> tuple[Tensor, Tensor]:
        torch.manual_seed(0 if wrong else step)
        return classes()

    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with modlab.watch(model, optimizer) as w:
        for step in range(STEPS):
            x, y = batch(step)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert ("same batch" in [one.kind for one in w.findings]) is wrong


def hooked(model: nn.Sequential, change: Callable[[Tensor, Tensor], Tensor]) -> nn.Sequential:
    """The model with a hook on each parameter, which takes the gradient and the parameter."""
    for one in model.parameters():
        one.register_hook(lambda gradient, one=one: change(gradient, one.detach()))
    return model


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda gradient, _: gradient.clamp(-1e-7, 1e-7), "clipped to nothing"),
        (lambda gradient, weight: gradient + 5 * weight, "too much decay"),
        (lambda gradient, _: torch.randn_like(gradient), "gradients overwritten"),
        (lambda gradient, _: gradient.clamp(-1, 1), None),
        (lambda gradient, weight: gradient + 1e-4 * weight, None),
    ],
)
def test_what_hooks_on_parameters_do(change, kind):
    changes = {"clipped to nothing", "too much decay", "gradients overwritten"}
    assert [one for one in asked(hooked(net(1), change), values, F.mse_loss) if one in changes] == ([kind] if kind else [])


def test_clamping_in_front_of_a_norm_turns_nothing():
    """The gradient of a bias in front of a norm is what rounding leaves, and points anywhere."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    x, y = classes(64)
    found = modlab.diagnose(hooked(model, lambda gradient, _: gradient.clamp(-1, 1)), batch=(x, y), loss=F.cross_entropy)
    assert "gradients overwritten" not in [one.kind for one in found.findings]


@pytest.mark.parametrize("wrong", [True, False])
def test_a_hook_after_the_step_that_puts_the_weights_back(wrong):
    model = net(1)
    kept = [one.clone() for one in model.parameters()]

    def put_back(*_: object) -> None:
        with torch.no_grad():
            for one, before in zip(model.parameters(), kept, strict=True):
                one.copy_(before) if wrong else one.clamp_(-2, 2)

    kinds = asked(model, values, F.mse_loss, prepare=lambda optimizer: optimizer.register_step_post_hook(put_back))
    assert ("weights put back" in kinds) is wrong


class Threshold(torch.autograd.Function):
    """A step, with or without a straight way back."""

    @staticmethod
    def forward(ctx, x: Tensor, way: float) -> Tensor:
        ctx.way = way
        return (x > 0).to(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.way, None


class Stepped(nn.Module):
    def __init__(self, way: float) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        return Threshold.apply(x, self.way)


@pytest.mark.parametrize("way", [0.0, 1.0])
def test_a_function_of_ones_own_without_a_gradient(way):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), Stepped(way), nn.Linear(32, 4))
    assert ("no gradient through" in asked(model, lambda _: classes(), F.cross_entropy)) is (way == 0)


class Duel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.maker, self.judge = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, noise: Tensor) -> Tensor:
        return self.maker(noise)


@pytest.mark.parametrize("rounds", [True, False])
def test_what_is_rounded_brings_the_generator_only_zeros(rounds):
    model = Duel()
    makes, judges = torch.optim.SGD(model.maker.parameters(), 0.01), torch.optim.SGD(model.judge.parameters(), 0.01)
    with modlab.watch(model, [makes, judges]) as w:
        for _ in range(60):
            made = model(torch.randn(32, 2))
            made = made.round() if rounds else made
            judges.zero_grad()
            (model.judge(torch.randn(32, 2) + 3).sub(1).square().mean() + model.judge(made.detach()).square().mean()).backward()
            judges.step()
            makes.zero_grad()
            model.judge(made).sub(1).square().mean().backward()
            makes.step()
    assert ("generator detached" in [one.kind for one in w.findings]) is rounds


@pytest.mark.parametrize(("block", "wrong"), [(STEPS, True), (20, True), (1, False)])
def test_autocast_keeps_its_casts_until_its_block_ends(block, wrong):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer) as w:
        for _ in range(0, STEPS, block):
            with torch.autocast("cpu", torch.bfloat16):
                for _ in range(block):
                    x, y = classes()
                    optimizer.zero_grad()
                    for part in (slice(16), slice(16, 32)):  # gradients add up below one cast, and no step has moved its weight
                        F.cross_entropy(model(x[part]), y[part]).div(2).backward()
                    optimizer.step()
    found = [one for one in w.findings if one.kind == "stale weights"]
    assert bool(found) is wrong
    if wrong:
        assert set(found[0].facts["places"]) == {path for path, _ in model.named_parameters()}
        assert found[0].facts["cast"]


@pytest.mark.parametrize("once", [True, False])
def test_what_is_put_together_once_does_not_follow_its_weights(once):
    class Points(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.scale = nn.Embedding(20, 4), nn.Embedding(20, 4), nn.Parameter(torch.ones(()))

        def all(self) -> Tensor:
            return torch.cat([self.first.weight, self.second.weight])

        def forward(self, of: Tensor, points: Tensor) -> Tensor:
            return points[of] * self.scale

    torch.manual_seed(0)
    model, kept = Points(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    kept.append(model.all())
    with modlab.watch(model, optimizer) as w:
        for _ in range(STEPS):
            of = torch.randint(40, (32,))
            optimizer.zero_grad()
            loss = F.cross_entropy(model(of, kept[0] if once else model.all()), of % 4)
            loss.backward(retain_graph=True) if once else loss.backward()
            optimizer.step()
    found = [one for one in w.findings if one.kind == "stale weights"]
    assert [one.facts["places"] for one in found] == ([("first.weight", "second.weight")] if once else [])


def test_gradients_that_add_up_are_told_though_the_loss_falls():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(200):
            x = torch.randn(32, 6)
            F.mse_loss(net(x), x[:, :1] + 0.3 * x[:, 1:2] ** 2 + 0.3 * torch.randn(32, 1)).backward()
            optimizer.step()
    assert w.findings[0].kind == "no zero grad"


def test_backward_passes_of_a_model_that_is_never_called_itself():
    torch.manual_seed(0)
    model = nn.ModuleDict({"word": nn.Embedding(16, 8), "beside": nn.Embedding(16, 8)})
    optimizer = torch.optim.Adam(model.parameters())
    with modlab.watch(model, optimizer) as w:
        for _ in range(30):
            pairs = torch.randint(16, (64, 2))
            optimizer.zero_grad()
            (model["word"](pairs[:, 0]) * model["beside"](pairs[:, 1])).sum(1).square().mean().backward()
    assert [one.kind for one in w.findings if one.severity == "broken"] == ["no step"]
    assert "is never called: 30 backward passes, and no step" in str(w) and "all 30 values are finite" in str(w)


Moves = Callable[[nn.Module, Callable[[], object]], object]


def away_and_back(times: int) -> Moves:
    """As sharpness-aware minimization does it."""

    def move(model: nn.Module, backward: Callable[[], object]) -> None:
        ways = []
        for _ in range(times):
            norm = torch.stack([one.grad.norm() for one in model.parameters()]).norm()
            ways.append([0.02 * one.grad / norm for one in model.parameters()])
            for one, way in zip(model.parameters(), ways[-1], strict=True):
                one.detach().add_(way)
            backward()
        for taken in ways:
            for one, way in zip(model.parameters(), taken, strict=True):
                one.detach().sub_(way)

    return move


def averaged(restored: bool, by_data: bool = False) -> Moves:
    """Their average takes the place of the weights, for a validation in training mode."""
    average: list[Tensor] = []

    def move(model: nn.Module, _: Callable[[], object]) -> None:
        average[:] = average or [one.detach() * (1.1 if restored else 1.0) for one in model.parameters()]
        own = [one.data if by_data else one.detach().clone() for one in model.parameters()]
        for one, other in zip(model.parameters(), average, strict=True):
            other.mul_(0.9).add_(one.detach(), alpha=0.1)
            if by_data:
                one.data = other
            else:
                one.detach().copy_(other)
        model(classes()[0])
        for one, mine in zip(model.parameters(), own if restored else (), strict=restored):
            if by_data:
                one.data = mine
            else:
                one.detach().copy_(mine)

    return move


def shrunk(model: nn.Module, _: Callable[[], object]) -> None:
    for one in model.parameters():
        if one.dim() > 1:
            one.detach().mul_(0.999)


def held_in_bounds(model: nn.Module, _: Callable[[], object]) -> None:
    for one in model.parameters():
        one.detach().clamp_(-0.2, 0.2)


MOVES = {
    "sharpness": lambda: away_and_back(1),
    "sharpness twice": lambda: away_and_back(2),
    "average and back": lambda: averaged(True),
    "average and back by data": lambda: averaged(True, by_data=True),
    "average": lambda: averaged(False),
    "decay": lambda: shrunk,
    "bounds": lambda: held_in_bounds,
}


@pytest.mark.parametrize(
    ("moves", "steps"),
    [(moves, steps) for moves in MOVES for steps in ("none", "told", "by hand") if moves != "average" or steps == "none"],
)
def test_weights_that_are_moved_for_another_reason_are_no_steps(moves, steps):
    torch.manual_seed(0)
    model, move = net(), MOVES[moves]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    with modlab.watch(model, optimizer) as w:
        for _ in range(STEPS):
            x, y = classes()

            def backward(x: Tensor = x, y: Tensor = y) -> None:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()

            backward()
            move(model, backward)
            if steps == "told":
                optimizer.step()
            for one in model.parameters() if steps == "by hand" else ():
                one.detach().sub_(one.grad, alpha=0.3)
    assert [one.kind for one in w.findings if one.severity == "broken"] == ["no step"] * (steps == "none")
    assert bool(w.record.steps) is (steps != "none")
    assert "does not announce" not in str(w)


@pytest.mark.parametrize("steps", [True, False])
def test_backward_passes_of_a_part_beside_its_frozen_copy(steps):
    """As in reinforcement learning: the whole is never called, and gradients are zeroed right before each pass."""
    torch.manual_seed(0)
    part = net(1)
    model = nn.ModuleDict({"part": part, "copy": copy.deepcopy(part).requires_grad_(False)})
    optimizer = torch.optim.Adam(part.parameters(), 3e-3)
    with modlab.watch(model, optimizer) as w:
        for number in range(STEPS):
            x, y = values(number)
            optimizer.zero_grad()
            F.mse_loss(model["part"](x), y + 0.01 * model["copy"](x)).backward()
            if steps:
                optimizer.step()
    assert [one.kind for one in w.findings if one.severity == "broken"] == ["no step"] * (not steps)
    assert ("150 backward passes, and no step" in str(w)) is not steps


@pytest.mark.parametrize("replica", ["beside", "before", "shared line"])
def test_the_loss_of_another_model_whose_gradients_are_written_into_this_ones(replica):
    """Several models, each with its part of the batch, whose gradients are averaged by hand."""
    torch.manual_seed(0)
    model, other = net(), net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(STEPS):
            (x, y), noise = classes(), torch.randn(32, 10)
            optimizer.zero_grad()
            other.zero_grad()
            if replica == "shared line":
                for one, given in ((model, x), (other, noise)):
                    F.cross_entropy(one(given), y).backward()
            else:
                if replica == "before":
                    F.cross_entropy(other(noise), y).backward()
                F.cross_entropy(model(x), y).backward()
                if replica == "beside":
                    F.cross_entropy(other(noise), y).backward()
            for mine, its in zip(model.parameters(), other.parameters(), strict=True):
                mine.grad.add_(its.grad, alpha=0.01)
            optimizer.step()
    (loss,) = [one for one in w.record.scalars if one.kind == "loss"]
    assert loss.final < 0.8 and loss.passes == 1
    assert w.verdict.exit_code != 1 and "The loss falls" in w.headline


def circle(samples: int = 64) -> Tensor:
    angles = 2 * torch.pi * torch.rand(samples)
    return 2 * torch.stack([angles.cos(), angles.sin()], 1)


@pytest.mark.parametrize("lazily", [True, False], ids=["to None", "to zeros"])
@pytest.mark.parametrize(
    ("forgets", "every"),
    [("D", 1), ("G", 1), ("none", 1), pytest.param("none", 4, id="the critic steps each fourth time, on the sum")],
)
def test_of_two_players_one_is_not_zeroed(forgets, every, lazily):
    torch.manual_seed(0)
    G, D = (nn.Sequential(nn.Linear(takes, 16), nn.LeakyReLU(0.2), nn.Linear(16, gives)) for takes, gives in ((4, 2), (2, 1)))
    g, d = torch.optim.Adam(G.parameters(), 1e-3), torch.optim.Adam(D.parameters(), 1e-3)
    with modlab.watch(nn.ModuleDict({"G": G, "D": D}), [g, d]) as w:
        for step in range(STEPS):
            real, made = circle(), G(torch.randn(64, 4))
            judged = F.softplus(-D(real)).mean() + F.softplus(D(made.detach())).mean()
            if forgets != "D" and step % every == 0:
                d.zero_grad(set_to_none=lazily)
            judged.backward()
            if step % every == every - 1:
                d.step()
            fooled = F.softplus(-D(made)).mean()
            if forgets != "G":
                g.zero_grad(set_to_none=lazily)
            fooled.backward()
            g.step()
    found = [one for one in w.findings if one.kind == "no zero grad"]
    assert [one.facts["places"] for one in found] == ([] if forgets == "none" else [(forgets,)])
    assert [one.path for one in w.alerts if one.kind == "not zeroed"] == ([] if forgets == "none" else [forgets])


@pytest.mark.parametrize("forgets", [True, False])
def test_a_parameter_of_its_own_is_zeroed_where_no_module_sees_it(forgets):
    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.heat = nn.Linear(10, 4), nn.Parameter(torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            return self.actor(x)

    torch.manual_seed(0)
    model = Agent()
    optimizer, own = torch.optim.SGD(model.actor.parameters(), 0.1), torch.optim.SGD([model.heat], 1e-3)
    with modlab.watch(model, [optimizer, own]) as w:
        for _ in range(STEPS):
            x, y = classes()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x) * model.heat.detach().exp(), y)
            loss.backward()
            optimizer.step()
            if not forgets:
                own.zero_grad()
            (model.heat.exp() * (loss.detach() - 0.3)).backward()
            own.step()
    assert [one.facts["places"] for one in w.findings if one.kind == "no zero grad"] == ([("heat",)] if forgets else [])


@pytest.mark.parametrize("forgets", [True, False])
def test_of_an_encoder_and_a_decoder_one_is_not_zeroed(forgets):
    torch.manual_seed(0)
    model = nn.ModuleDict({"encoder": nn.Linear(10, 32), "decoder": nn.Sequential(nn.ReLU(), nn.Linear(32, 4))})
    one, other = (torch.optim.SGD(part.parameters(), lr=0.2) for part in model.values())
    with modlab.watch(model, [one, other]) as w:
        for _ in range(STEPS):
            x, y = classes()
            one.zero_grad()
            if not forgets:
                other.zero_grad()
            F.cross_entropy(model["decoder"](model["encoder"](x)), y).backward()
            one.step()
            other.step()
    found = [one for one in w.findings if one.kind == "no zero grad"]
    assert [one.facts["places"] for one in found] == ([("decoder.1",)] if forgets else [])
    assert ("call zero_grad() of the optimizer that holds decoder.1, too" in str(w)) is forgets


def epochs(model: nn.Module, validate: Callable[[int], object]) -> list[Worded]:
    """What a training in epochs shows of the mode it is made in; `validate` follows each epoch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with modlab.watch(model, optimizer) as w:
        for epoch in range(5):
            for _ in range(30):
                x, y = classes()
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            validate(epoch)
    return [one for one in w.findings if one.kind == "eval while training"]


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.BatchNorm1d(32)], ids=["dropout", "batch norm"])
def test_a_model_that_nobody_turns_back_to_training(layer):
    model = net()
    model.insert(1, layer)
    (found,) = epochs(model, lambda _: model.eval())
    assert (found.facts["evaluated"], found.facts["steps"], found.facts["since"]) == (120, 150, 30)
    assert "in 120 of 150 steps, from step 30 on, the model was in evaluation mode, which changes layer 1" in found.text


@pytest.mark.parametrize(
    ("layer", "validate"),
    [
        pytest.param(nn.Dropout(0.5), lambda model, _: model.eval() and model.train(), id="turned back"),
        pytest.param(nn.Tanh(), lambda model, _: model.eval(), id="nothing minds"),
        pytest.param(nn.BatchNorm1d(32), lambda model, _: model[1].eval(), id="the norm alone, on purpose"),
    ],
)
def test_a_model_that_is_in_evaluation_mode_where_it_may_be(layer, validate):
    model = net()
    model.insert(1, layer)
    assert not epochs(model, lambda epoch: validate(model, epoch))


def test_a_model_that_is_turned_late_asks_for_care():
    model = net()
    model.insert(1, nn.Dropout(0.5))
    (found,) = epochs(model, lambda epoch: model.eval() if epoch == 3 else None)
    assert found.severity == "careful" and found.facts["evaluated"] == 30


class Signs(torch.optim.Optimizer):
    """Goes along the signs of the gradients, in place or not."""

    def __init__(self, parameters, lr, *, rebinds):
        super().__init__(parameters, {"lr": lr})
        self.rebinds = rebinds

    @torch.no_grad()
    def step(self, closure=None):  # type: ignore[override]
        for group in self.param_groups:
            for one in group["params"]:
                step = group["lr"] * one.grad.sign()
                if self.rebinds:
                    one = one - step
                else:
                    one.sub_(step)


@pytest.mark.parametrize(("rebinds", "rate", "kinds"), [(True, 1e-3, ["no step"]), (False, 1e-3, []), (False, 1e-12, ["rate too low"])])
def test_a_step_of_somebodys_own_that_changes_no_weight(rebinds, rate, kinds):
    torch.manual_seed(0)
    model = net()
    optimizer = Signs(model.parameters(), rate, rebinds=rebinds)
    with modlab.watch(model, optimizer) as w:
        for _ in range(STEPS):
            x, y = classes()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert [one.kind for one in w.findings if one.severity == "broken" and "tier" in one.facts] == kinds
    assert ("Signs.step() changes no weight" in str(w)) is rebinds


def test_the_line_that_settles_a_cause_keeps_its_comment_in_a_sheet():
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    with modlab.watch(model, optimizer) as w:
        for number in range(40):
            x, y = classes()
            F.cross_entropy(model(x), y).backward()
            if number == 64:
                optimizer.step()
    assert 'print("step")  # beside optimizer.step(): is that line reached?' in str(w.diagnose())


class Routed(nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.router, self.experts = way, nn.Linear(10, 3), nn.Linear(10, 12)

    def forward(self, x: Tensor) -> Tensor:
        share = self.router(x).softmax(-1)
        if self.way == "argmax":
            share = F.one_hot(share.argmax(-1), 3).float()
        return (share.detach() if self.way == "detach" else share).unsqueeze(1).mul(self.experts(x).view(-1, 4, 3)).sum(-1)


@pytest.mark.parametrize(("way", "advice"), [("argmax", "Use a smooth function"), ("detach", "Remove the detach")])
def test_what_is_advised_where_a_gradient_is_lost(way, advice):
    torch.manual_seed(0)
    checks = modlab.diagnose(Routed(way), batch=classes(), loss=F.cross_entropy).experiments
    assert next(one.advice for one in checks if one.outcome == "failed").startswith(advice)
