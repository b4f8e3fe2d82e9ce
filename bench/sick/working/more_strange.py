"""More of what is strange, but healthy."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, CyclicLR
from torch.optim.swa_utils import AveragedModel

from bench.sick.changes import looped, loss_of
from bench.sick.training import Batch, Training, called, plain_step
from bench.sick.working.half import HALF
from bench.sick.working.more_nets import (
    Block,
    Grades,
    Holder,
    Lookup,
    Speaker,
    Table,
    chorus,
    fields,
    grades,
    held,
    held_data,
    hoop,
    loaded,
    loans,
    longest,
    lookup,
    marks,
    marks_data,
    opening,
    preferred,
    swing,
    tones,
    tones_data,
    triples,
    walk,
)
from bench.sick.working.nets import duel

# ---- optimizers and loops --------------------------------------------------------------------------


@HALF.strange(swing)
def lbfgs_with_a_line_search(training: Training) -> None:
    """One set of points, and an optimizer that asks for the loss as often as it likes."""
    training.optimize = partial(torch.optim.LBFGS, lr=1.0, max_iter=10, line_search_fn="strong_wolfe")
    training.use(training.model)
    training.steps = 15
    time = torch.linspace(0, 3, 64).unsqueeze(1)

    def closure() -> Tensor:
        training.optimizer.zero_grad()
        loss = training.model.loss(time.clone())
        loss.backward()
        return loss

    training.step = lambda training, number: training.optimizer.step(closure)


class ByHand(torch.optim.Optimizer):
    """Gradient descent with momentum, as a first exercise."""

    def __init__(self, params: Any, lr: float, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is not None:
                    speed = self.state[one].setdefault("speed", torch.zeros_like(one))
                    speed.mul_(group["momentum"]).add_(one.grad)
                    one -= group["lr"] * speed


@HALF.strange(longest)
def an_optimizer_by_hand(training: Training) -> None:
    training.optimize = partial(ByHand, lr=0.1)
    training.use(training.model)


@HALF.strange(tones)
def accumulation_with_a_rest_at_the_end_of_the_epoch(training: Training) -> None:
    """Ten small batches an epoch; a step after four, and one for the two that are left."""
    training.batch = loaded(16, *tones_data(3000))
    training.steps = 500

    def step(inputs: Tensor, target: Tensor, number: int) -> None:
        place = number % 10
        (loss_of(training, inputs, target) / (4 if place < 8 else 2)).backward()
        if place in (3, 7, 9):
            training.optimizer.step()
            training.optimizer.zero_grad()

    looped(training, step)


@HALF.strange(preferred)
def cyclic_rates(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    training.use(training.model)
    training.schedulers.append(CyclicLR(training.optimizer, 0.01, 0.3, step_size_up=25, cycle_momentum=True))


@HALF.strange(hoop)
def warm_restarts(training: Training) -> None:
    training.schedulers.append(CosineAnnealingWarmRestarts(training.optimizer, 50, T_mult=2))


@HALF.strange(grades)
def rprop_on_all_samples(training: Training) -> None:
    inputs, target = (torch.cat(parts) for parts in zip(*(training.batch(number) for number in range(16)), strict=True))
    training.batch = lambda _: (inputs, target)
    training.optimize = partial(torch.optim.Rprop, lr=0.01)
    training.use(training.model)
    training.steps = 100


@HALF.strange(fields)
def an_average_by_swa(training: Training) -> None:
    """The average is evaluated, too, and stays beside."""
    average = AveragedModel(training.model)

    def follow(number: int) -> None:
        if number > 100 and number % 5 == 0:
            average.update_parameters(training.model)
            with torch.no_grad():
                average(training.batch(number)[0])

    training.after.append(follow)


@HALF.strange(lookup)
def lookahead(training: Training) -> None:
    """Each fifth step goes back half of the way."""
    slow = [one.detach().clone() for one in training.model.parameters()]

    def pull(number: int) -> None:
        if number % 5 == 4:
            with torch.no_grad():
                for kept, fast in zip(slow, training.model.parameters(), strict=True):
                    kept.lerp_(fast, 0.5)
                    fast.copy_(kept)

    training.after.append(pull)


@HALF.strange(loans)
def a_little_noise_on_each_gradient(training: Training) -> None:
    def step(inputs: dict[str, Tensor], target: Tensor, number: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        for one in training.model.parameters():
            one.grad.add_(torch.randn_like(one.grad), alpha=0.01 / (1 + number) ** 0.5)
        training.optimizer.step()

    looped(training, step)


@HALF.strange(marks)
def hard_batches_that_spike(training: Training) -> None:
    """Each tenth batch is dark and noisy: its loss stands far above the others, and all fall."""

    def batch(number: int) -> Batch:
        images, target = marks_data(24)
        if number % 10 == 9:
            images = images + 0.5 * torch.randn_like(images)
        return images, target

    training.batch = batch


@HALF.strange(lookup)
def halves_in_turn(training: Training) -> None:
    """Embeddings for some steps, the rest for some steps; who waits has no gradient."""
    model: Lookup = training.model
    tables = [*model.keys.parameters(), *model.values.parameters()]
    rest = [one for name, one in model.named_parameters() if not name.startswith(("keys", "values"))]

    def turn(number: int) -> None:
        first = number // 10 % 2 == 0
        for one in tables:
            one.requires_grad_(first)
        for one in rest:
            one.requires_grad_(not first)

    training.each.append(turn)
    training.steps = 400


@HALF.strange(opening)
def a_curriculum_whose_loss_rises(training: Training) -> None:
    """Noise grows: what is asked becomes harder, and the loss with it."""
    batch = training.batch

    def harder(number: int) -> Batch:
        x, label = batch(number)
        return x + min(1.0, number / 200) * 0.5 * torch.randn_like(x), label

    training.batch = harder


@HALF.strange(held)
def windows_whose_state_goes_on(training: Training) -> None:
    """Truncated backpropagation: the state goes from window to window, cut between them."""

    class Windowed(Holder):
        def window(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            out = []
            for now in x.unbind(1):
                h = self.cell(now, h)
                out.append(self.head(h))
            return torch.stack(out, 1).squeeze(2), h

    training.use(Windowed())
    training.steps = 200

    def step(training: Training, number: int) -> None:
        x, y = held_data(64, 20)
        h = torch.zeros(64, 24)
        for start in (0, 10):
            out, h = training.model.window(x[:, start : start + 10], h.detach())
            training.optimizer.zero_grad()
            training.criterion(out, y[:, start : start + 10]).backward()
            training.optimizer.step()

    training.step = step


# ---- models and losses -----------------------------------------------------------------------------


@HALF.strange(walk)
def a_teacher_that_follows_each_step(training: Training) -> None:
    """The older copy moves a little after each step."""
    step = training.step

    def softly(training: Training, number: int) -> None:
        step(training, 8 * number + 1)
        with torch.no_grad():
            for slow, fast in zip(training.model.target.parameters(), training.model.online.parameters(), strict=True):
                slow.lerp_(fast, 0.1)

    training.step = softly


@HALF.strange(tones)
def a_stem_that_was_trained_before(training: Training) -> None:
    """Trained before, then frozen and in evaluation; a new head learns on top."""
    for number in range(120):
        plain_step(training, number)
    *body, _ = training.model
    stem = nn.Sequential(*body)
    stem.requires_grad_(False)
    head = nn.Linear(16, 4)
    training.model = nn.Sequential(stem, head)
    training.optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
    training.each.append(lambda number: stem.eval())


@HALF.strange(grades)
def a_wide_net_with_idle_units(training: Training) -> None:
    """Of 768 units many are never active, and those that are suffice."""
    model = Grades()
    model.score = nn.Sequential(nn.Linear(5, 768), nn.ReLU(), nn.Linear(768, 32), nn.ReLU(), nn.Linear(32, 1, bias=False))
    with torch.no_grad():
        model.score[0].bias[:350] -= 5.0
    training.use(model)
    training.steps = 300


@HALF.strange(fields)
def autocast_of_a_u_net(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            output = training.model(inputs)
        training.criterion(output.float(), target).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(longest)
def branches_that_begin_at_zero(training: Training) -> None:
    """The last layer of each branch begins as zeros, so that each block begins as nothing."""
    for block in training.model.blocks:
        for branch in (block.across, block.within):
            nn.init.zeros_(branch[2].weight)
            nn.init.zeros_(branch[2].bias)


class Rounded(Table):
    """Rounds its features, and lets the gradient through as if it had not."""

    def features(self, numbers: Tensor, job: Tensor, town: Tensor) -> Tensor:
        h = super().features(numbers, job, town)
        return h + ((8 * h).round() / 8 - h).detach()


@HALF.strange(loans)
def rounding_with_a_straight_through_gradient(training: Training) -> None:
    training.use(Rounded())


class Looping(Speaker):
    """One block, used three times on purpose, and its embedding as its head."""

    def __init__(self) -> None:
        super().__init__(blocks=0)
        self.block = Block()
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.tokens(x) + self.places[: x.shape[1]]
        for _ in range(3):
            h = self.block(h)
        return {"logits": self.head(self.norm(h))}


@HALF.strange(chorus)
def one_block_three_times_and_a_tied_head(training: Training) -> None:
    training.use(Looping())


@HALF.strange(lookup)
def a_teacher_with_soft_answers(training: Training) -> None:
    """Distillation: the loss never comes near zero, for the teacher is unsure by its temperature."""
    teacher = Lookup()
    steps = torch.optim.Adam(teacher.parameters(), lr=0.005)
    for number in range(200):
        inputs, label = training.batch(number)
        steps.zero_grad()
        training.criterion(called(teacher, inputs), label).backward()
        steps.step()
    teacher.requires_grad_(False).eval()

    def step(inputs: Any, _target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        with torch.no_grad():
            wanted = (called(teacher, inputs) / 4).softmax(1)
        loss = -(wanted * (called(training.model, inputs) / 4).log_softmax(1)).sum(1).mean() * 16
        loss.backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(duel)
def a_penalty_on_the_slope_at_what_is_real(training: Training) -> None:
    """The discriminator's gradient by its input is part of its loss."""
    bce = F.binary_cross_entropy_with_logits

    def step(training: Training, number: int) -> None:
        net = training.model
        real = training.batch(number)[0].requires_grad_()
        made = net(real)
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        said = net.discriminator(real)
        (slope,) = torch.autograd.grad(said.sum(), real, create_graph=True)
        training.others[0].zero_grad()
        (bce(said, ones) + bce(net.discriminator(made.detach()), zeros) + 0.05 * slope.square().mean()).backward()
        training.others[0].step()
        training.optimizer.zero_grad()
        bce(net.discriminator(made), ones).backward()
        training.optimizer.step()

    training.step = step


@HALF.strange(triples)
def decay_that_chooses_the_rank(training: Training) -> None:
    """Far more factors than are needed, and a decay that takes most of them to zero."""
    training.model.sides = nn.ParameterList([nn.Parameter(0.3 * torch.randn(count, 16)) for count in (12, 10, 8)])
    training.optimize = partial(torch.optim.SGD, lr=0.3, momentum=0.9, weight_decay=2e-3)
    training.use(training.model)


@HALF.strange(longest)
def evaluated_after_each_epoch_with_dropout(training: Training) -> None:
    """Half is dropped in the mixers, and each evaluation switches that off and on again."""
    for block in training.model.blocks:
        block.within.insert(2, nn.Dropout(0.5))
    training.use(training.model)
    best = [float("inf")]

    def evaluate(number: int) -> None:
        if number % 25 == 24:
            training.model.eval()
            with torch.inference_mode():
                inputs, target = training.batch(number)
                best[0] = min(best[0], loss_of(training, inputs, target).item())
            training.model.train()

    training.after.append(evaluate)


@HALF.strange(swing)
def a_handful_of_points_again_and_again(training: Training) -> None:
    """Twelve points are all there is, and the law makes them enough."""
    time = torch.linspace(0, 3, 12).unsqueeze(1)
    training.batch = lambda _: (time.clone(), torch.zeros(12, 1))


class Reversed(torch.autograd.Function):
    """Nothing forwards, the gradient turned around backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return -0.1 * gradient


@HALF.strange(opening)
def a_reversed_gradient_against_another_domain(training: Training) -> None:
    """A second head should not find the domain in the state, which is told by the level of the noise."""
    model = training.model
    model.domain = nn.Linear(24, 1)
    training.use(model)

    def states(x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 24)
        for now in x.unbind(1):
            h = torch.tanh(model.from_input(now) + model.from_state(h))
        return h

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        domain = (torch.arange(len(inputs)) % 2).float().unsqueeze(1)
        h = states(inputs + 0.2 * domain.unsqueeze(2) * torch.randn_like(inputs))
        wrong = F.binary_cross_entropy_with_logits(model.domain(Reversed.apply(h)), domain)
        training.optimizer.zero_grad()
        (F.cross_entropy(model.head(h), target) + wrong).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(chorus)
def a_first_step_of_meta_learning(training: Training) -> None:
    """The gradient is taken a small step away, and used here: a copy learns first."""

    def step(inputs: Tensor, target: Tensor, number: int) -> None:
        ahead = copy.deepcopy(training.model)
        inner = torch.optim.SGD(ahead.parameters(), lr=0.05)
        loss_of_ahead = training.criterion(ahead(inputs), target)
        inner.zero_grad()
        loss_of_ahead.backward()
        inner.step()
        further, wanted = training.batch(number)
        inner.zero_grad()
        training.criterion(ahead(further), wanted).backward()
        training.optimizer.zero_grad()
        for one, other in zip(training.model.parameters(), ahead.parameters(), strict=True):
            one.grad = other.grad.clone()
        training.optimizer.step()

    looped(training, step)
