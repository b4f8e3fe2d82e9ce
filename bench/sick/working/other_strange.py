"""More that is strange, but healthy: data and losses that look odd, and are fine."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Sampler, TensorDataset

from bench.sick.changes import looped, loss_of, on_batch, on_inputs, on_options, on_target
from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF
from bench.sick.working.other_nets import (
    SGD,
    Block,
    Cargo,
    Rows,
    badges,
    bagged,
    cargo,
    cargo_data,
    cells,
    cells_data,
    courier,
    covers,
    divergence,
    drift,
    echoes,
    flip,
    flip_data,
    forager,
    forge,
    gathered,
    kinship,
    latch,
    loaded,
    nt_xent,
    overlap,
    pedigree,
    pedigree_data,
    pulses_data,
    ripples,
    sayings,
    sayings_words,
    shelf,
    specks,
    sways,
    swell,
    worth,
)

# ---- data ------------------------------------------------------------------------------------------


@HALF.strange(ripples)
def four_of_five_are_of_one_class(training: Training) -> None:
    """The rare classes are learned all the same."""
    x, label = pulses_data(6000)
    kept = (label == 0) | (torch.rand(6000) < 0.06)
    training.batch = loaded(DataLoader(TensorDataset(x[kept], label[kept]), batch_size=32, shuffle=True))
    training.steps = 300


@HALF.strange(cells)
def one_class_is_a_twentieth_of_all_pixels(training: Training) -> None:
    """Only the disc is asked for, as yes or no, by a Dice loss."""
    on_target(training, lambda label: (label == 1).long())

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        chance = output.softmax(1)[:, 1]
        both = (chance * label).sum()
        return 1 - (2 * both + 1) / (chance.sum() + label.sum() + 1)

    training.criterion = criterion

    def quality(net: nn.Module) -> float:
        x, label = cells_data(100)
        return overlap((net(x).argmax(1) == 1).long(), (label == 1).long(), (1,))

    training.quality = quality


def _priced(training: Training, mean: float, scale: float) -> None:
    on_target(training, lambda y: mean + scale * y)

    def quality(net: nn.Module) -> float:
        columns, y = cargo_data(512)
        return ((net(**columns) - mean) / scale - y).square().mean().item()

    training.quality = quality


@HALF.strange(cargo)
def prices_around_a_thousand_and_a_bias_that_begins_there(training: Training) -> None:
    _priced(training, 1000.0, 1.0)
    with torch.no_grad():
        training.model.price.bias.fill_(1000.0)


@HALF.strange(cargo)
def raw_columns_before_a_norm(training: Training) -> None:
    """Columns of all sizes, which BatchNorm brings to one."""
    scale, shift = torch.tensor([1.0, 300, 1e4, 1e-3]), torch.tensor([5.0, 2000, 0, 0])
    training.use(Cargo(first_norm=True))
    on_inputs(training, lambda given: {**given, "numbers": given["numbers"] * scale + shift})

    def quality(net: nn.Module) -> float:
        columns, y = cargo_data(512)
        return (net(columns["numbers"] * scale + shift, columns["kind"]) - y).square().mean().item()

    training.quality = quality


@HALF.strange(cargo)
def the_target_is_three_times_a_column(training: Training) -> None:
    """An exercise of the first lesson: no leak, for it is so later, too."""
    training.batch = lambda _: _thrice(64)
    training.criterion = F.mse_loss
    training.steps = 150

    def quality(net: nn.Module) -> float:
        columns, y = _thrice(400)
        return F.mse_loss(net(**columns), y).item()

    training.quality = quality


def _thrice(count: int) -> tuple[dict[str, Tensor], Tensor]:
    columns, _ = cargo_data(count)
    return columns, 3 * columns["numbers"][:, 1] + 1


@HALF.strange(ripples, sayings)
def a_third_of_the_labels_is_wrong(training: Training) -> None:
    """The right ones are the most frequent."""
    classes = 5 if training.model.__class__.__name__ == "Pulses" else 3
    on_target(training, lambda label: torch.where(torch.rand(label.shape) < 0.35, torch.randint_like(label, classes), label))


@HALF.strange(latch)
def batches_of_four(training: Training) -> None:
    on_batch(training, lambda x, label: (x[:4], label[:4]))
    on_options(training, lr=0.01)
    training.steps = 800


class Buckets(Sampler[list[int]]):
    """Batches of sequences that are about as long as each other."""

    def __init__(self, lengths: Tensor, size: int) -> None:
        self.parts = lengths.argsort().split(size)

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[list[int]]:
        for number in torch.randperm(len(self.parts)).tolist():
            yield self.parts[number].tolist()


@HALF.strange(sayings)
def bucketed_by_length(training: Training) -> None:
    said, label = sayings_words(1500)

    def collate(rows: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return nn.utils.rnn.pad_sequence([one for one, _ in rows], batch_first=True), torch.stack([one for _, one in rows])

    buckets = Buckets(torch.tensor([len(one) for one in said]), 40)
    training.batch = loaded(DataLoader([*zip(said, label, strict=True)], batch_sampler=buckets, collate_fn=collate))


@HALF.strange(sways)
def easy_waves_first(training: Training) -> None:
    """A curriculum: the noise grows, and so does the loss."""

    def batch(number: int) -> Batch:
        x, y = drawn(number)
        noise = min(number / 200, 1.0) * 0.3
        return x + noise * torch.randn_like(x), y + noise * torch.randn_like(y)

    drawn = training.batch
    training.batch = batch


@HALF.strange(bagged)
def batches_that_grow(training: Training) -> None:
    """A quarter of each batch at first, and all of it later."""

    def some(given: tuple[Tensor, Tensor], target: Tensor) -> Batch:
        words, starts = given
        rows = 16 if step[0] < 100 else 64
        end = int(starts[rows]) if rows < len(starts) else len(words)
        return (words[:end], starts[:rows]), target[:rows]

    step = [0]
    training.each.append(lambda number: step.__setitem__(0, number))
    on_batch(training, some)


# ---- losses ----------------------------------------------------------------------------------------


class Spread(nn.Module):
    """A mean and the logarithm of a deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.mean, self.spread = nn.Linear(32, 1), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.mean(h), self.spread(h).clamp(-6, 3)


@HALF.strange(worth)
def a_likelihood_far_above_one(training: Training) -> None:
    """A density of narrow values: the loss goes below zero."""
    training.use(Spread())
    training.step = None

    def batch(count: int) -> Batch:
        x = 4 * torch.rand(count, 1) - 2
        return x, torch.sin(2 * x) + 0.02 * torch.randn(count, 1)

    def criterion(output: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
        mean, spread = output
        return (0.5 * ((y - mean) / spread.exp()).square() + spread).mean()

    def quality(net: nn.Module) -> float:
        x, y = batch(400)
        return F.mse_loss(net(x)[0], y).item()

    training.batch, training.criterion, training.quality, training.steps = lambda _: batch(128), criterion, quality, 400


@HALF.strange(kinship)
def a_temperature_of_one(training: Training) -> None:
    """The loss begins at 4.5 and stays near 4: that is as low as it goes."""
    training.criterion = partial(nt_xent, temperature=1.0)


@HALF.strange(covers)
def chances_of_pairs(training: Training) -> None:
    """SigLIP: each pair is a yes or a no, summed for each image; nearly all are no."""
    training.model.bias = nn.Parameter(torch.tensor(-5.0))
    training.use(training.model)

    def criterion(alike: Tensor, target: Tensor) -> Tensor:
        same = 2 * torch.eye(len(alike)) - 1
        return -F.logsigmoid(same * (alike + training.model.bias)).sum(1).mean()

    training.criterion = criterion


@HALF.strange(forager)
def rewards_with_a_baseline_and_entropy(training: Training) -> None:
    """The running mean of rewards is taken off, and indecision is rewarded."""
    mean = [0.0]

    def criterion(logits: Tensor, rewards: Tensor) -> Tensor:
        chances = torch.distributions.Categorical(logits=logits)
        chosen = chances.sample()
        got = 10 + 5 * rewards.gather(1, chosen[:, None]).squeeze(1)
        mean[0] = got.mean().item() if not mean[0] else 0.9 * mean[0] + 0.1 * got.mean().item()
        return -(chances.log_prob(chosen) * (got - mean[0])).mean() - 0.02 * chances.entropy().mean()

    training.criterion = criterion


@HALF.strange(forager)
def q_values_and_a_target_net(training: Training) -> None:
    """DQN: each reward is of the place that was tried; a copy follows."""
    slow = copy.deepcopy(training.model).requires_grad_(False)
    training.steps = 400

    def step(state: Tensor, rewards: Tensor, number: int) -> None:
        explored = torch.rand(len(state), 1) < 0.3
        with torch.no_grad():
            tried = torch.where(explored, torch.randint(4, (len(state), 1)), training.model(state).argmax(1, keepdim=True))
            wanted = rewards.gather(1, tried) + 0.3 * slow(torch.randn_like(state)).max(1, keepdim=True).values
        training.optimizer.zero_grad()
        F.smooth_l1_loss(training.model(state).gather(1, tried), wanted).backward()
        training.optimizer.step()
        if number % 20 == 0:
            slow.load_state_dict(training.model.state_dict())

    looped(training, step)


@HALF.strange(forge)
def a_critic_with_clipped_weights(training: Training) -> None:
    """WGAN: the critic's loss is below zero, and goes up."""
    optimize = partial(torch.optim.RMSprop, lr=0.003)
    training.optimizer = optimize(training.model.maker.parameters())
    training.others = (optimize(training.model.critic.parameters()),)

    def step(training: Training, number: int) -> None:
        net, (critics,) = training.model, training.others
        for _ in range(3):
            real, _ = training.batch(number)
            critics.zero_grad()
            (net.critic(net(real).detach()).mean() - net.critic(real).mean()).backward()
            critics.step()
            with torch.no_grad():
                for parameter in net.critic.parameters():
                    parameter.clamp_(-0.3, 0.3)
        training.optimizer.zero_grad()
        (-net.critic(net(real)).mean()).backward()
        training.optimizer.step()

    training.step = step
    training.steps = 300


@HALF.strange(forge)
def a_critic_with_a_penalty(training: Training) -> None:
    """WGAN-GP: the gradient of the critic is part of its loss."""

    def step(training: Training, number: int) -> None:
        net, (critics,) = training.model, training.others
        for _ in range(3):
            real, _ = training.batch(number)
            made = net(real).detach()
            between = torch.lerp(real, made, torch.rand(len(real), 1)).requires_grad_()
            (slope,) = torch.autograd.grad(net.critic(between).sum(), between, create_graph=True)
            critics.zero_grad()
            (net.critic(made).mean() - net.critic(real).mean() + 5 * (slope.norm(dim=1) - 1).square().mean()).backward()
            critics.step()
        training.optimizer.zero_grad()
        (-net.critic(net(real)).mean()).backward()
        training.optimizer.step()

    training.step = step
    training.steps = 500


@HALF.strange(specks)
def divergence_in_cycles(training: Training) -> None:
    """The weight of the divergence goes up from zero, and starts again: so does the loss."""
    weight = [0.0]
    training.each.append(lambda number: weight.__setitem__(0, min(1.0, number % 100 / 50)))

    def criterion(output: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
        logits, mean, spread = output
        missed = F.binary_cross_entropy_with_logits(logits, x, reduction="none").flatten(1).sum(1)
        return (missed + weight[0] * divergence(mean, spread).clamp(min=0.5)).mean()

    training.criterion = criterion


@HALF.strange(echoes, ripples)
def smoothed_labels(training: Training) -> None:
    """The least loss is far from zero."""

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(output, label, label_smoothing=0.3)

    training.criterion = criterion
    if hasattr(training.model, "loss"):
        training.model.loss = lambda tokens: criterion(training.model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:])


@HALF.strange(badges, cells)
def focal_loss(training: Training) -> None:
    """What is easy counts less."""

    def many(output: Tensor, label: Tensor) -> Tensor:
        missed = F.cross_entropy(output, label, reduction="none")
        return ((1 - (-missed).exp()) ** 2 * missed).mean()

    def several(output: Tensor, label: Tensor) -> Tensor:
        missed = F.binary_cross_entropy_with_logits(output, label, reduction="none")
        return ((1 - (-missed).exp()) ** 2 * missed).mean()

    training.criterion = several if training.criterion.__name__ == "by_hand_bce" else many


@HALF.strange(flip)
def masked_language_model(training: Training) -> None:
    """A quarter of the tokens is hidden, and only these are asked for: the other places are ignored."""
    training.model.tokens = nn.Embedding(9, 32)
    training.use(training.model)

    def data(count: int) -> tuple[Tensor, Tensor]:
        half = torch.randint(8, (count, 4))
        tokens = torch.cat([half, half.flip(1)], 1)
        chosen, side = torch.rand(count, 4) < 0.5, torch.rand(count, 4) < 0.5
        hidden = torch.cat([chosen & side, (chosen & ~side).flip(1)], 1)
        return tokens.masked_fill(hidden, 8), tokens.masked_fill(~hidden, -100)

    def quality(net: nn.Module) -> float:
        x, label = data(300)
        return (net(x).argmax(2) != label)[label >= 0].float().mean().item()

    training.batch, training.quality = lambda _: data(128), quality


@HALF.strange(courier)
def teacher_forcing_that_fades(training: Training) -> None:
    """What was said before is taken from the model itself more and more often."""
    step = [0]
    training.each.append(lambda number: step.__setitem__(0, number))

    def change(given: tuple[Tensor, Tensor], target: Tensor) -> Batch:
        source, told = given
        with torch.no_grad():
            said = training.model(source, told).argmax(2)
        own = torch.cat([told[:, :1], said[:, :-1]], 1)
        return (source, torch.where(torch.rand(told.shape) < step[0] / 800, own, told)), target

    on_batch(training, change)


class BothWays(nn.Module):
    """Reads in both directions, and says something of each place, or of all."""

    def __init__(self, all_at_once: bool) -> None:
        super().__init__()
        self.all_at_once = all_at_once
        self.tokens, self.reader = nn.Embedding(8, 16), nn.GRU(16, 32, batch_first=True, bidirectional=True)
        self.head = nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
        out, last = self.reader(self.tokens(x))
        if self.all_at_once:
            return {"logits": self.head(torch.cat([*last], 1)), "state": out}
        return self.head(out)


@HALF.strange(latch)
def a_class_read_in_both_directions(training: Training) -> None:
    training.use(BothWays(all_at_once=True))
    on_options(training, lr=0.01)


@HALF.strange(flip)
def tags_read_in_both_directions(training: Training) -> None:
    """A tag depends on the tokens before and after: that is no future to be hidden."""
    training.use(BothWays(all_at_once=False))

    def data(count: int) -> tuple[Tensor, Tensor]:
        tokens, _ = flip_data(count)
        return tokens, (tokens.roll(1, 1) < tokens.roll(-1, 1))[:, 1:-1].long()

    training.criterion = lambda output, label: gathered(output[:, 1:-1], label)
    training.batch = lambda _: data(32)
    on_options(training, lr=0.01)
    training.steps = 400

    def quality(net: nn.Module) -> float:
        x, label = data(200)
        return (net(x)[:, 1:-1].argmax(2) != label).float().mean().item()

    training.quality = quality


class Several(nn.Module):
    """A body with three heads, and how sure each of them is."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(48, 1), nn.Linear(48, 1), nn.Linear(48, 3)])
        self.sure = nn.ParameterList([nn.Parameter(torch.zeros(())) for _ in range(3)])

    def forward(self, numbers: Tensor, kind: Tensor) -> list[Tensor]:
        h = self.body(numbers)
        return [head(h) for head in self.heads]


@HALF.strange(cargo)
def three_tasks_summed(training: Training) -> None:
    """Weighted by what is learned of their noise; the sum may go below zero."""
    training.use(Several())
    training.batch = loaded(DataLoader(Rows(*_tasks(1500)), batch_size=64, shuffle=True))

    def criterion(output: list[Tensor], target: Tensor) -> Tensor:
        price, chance, kind = output
        losses = (
            F.mse_loss(price.squeeze(1), target[:, 0]),
            F.binary_cross_entropy_with_logits(chance.squeeze(1), target[:, 1]),
            F.cross_entropy(kind, target[:, 2].long()),
        )
        return sum((-sure).exp() * loss + sure / 2 for sure, loss in zip(training.model.sure, losses, strict=True))

    def quality(net: nn.Module) -> float:
        columns, target = _tasks(400)
        price, chance, kind = net(**columns)
        missed = (kind.argmax(1) != target[:, 2]).float().mean() + ((chance.squeeze(1) > 0) != (target[:, 1] > 0.5)).float().mean()
        return (F.mse_loss(price.squeeze(1), target[:, 0]) + missed).item()

    training.criterion, training.quality = criterion, quality


def _tasks(count: int) -> tuple[dict[str, Tensor], Tensor]:
    columns, _ = cargo_data(count)
    x = columns["numbers"]
    return columns, torch.stack([x[:, 0] * x[:, 1], (x[:, 2] > 0.3).float(), x[:, :3].argmax(1).float()], 1)


@HALF.strange(swell, cells)
def summed_with_a_rate_to_match(training: Training) -> None:
    """The sum over all places, and a rate that is thousands of times smaller."""
    recurrent = training.model.__class__.__name__ == "Swell"
    rate, count = (0.1, 32 * 16) if recurrent else (0.1, 16 * 256)
    training.optimize = partial(SGD, lr=rate / count, momentum=0.9)
    training.use(training.model)
    criterion = training.criterion
    training.criterion = lambda output, target: criterion(output, target) * count


# ---- further ---------------------------------------------------------------------------------------


@HALF.strange(worth)
def an_equation_in_place_of_data(training: Training) -> None:
    """A physics-informed net: y'' = -4 y, y(0) = 0, y'(0) = 2; all targets are zeros."""
    training.use(nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)))
    training.steps = 600

    def slopes(x: Tensor, times: int) -> list[Tensor]:
        found = [training.model(x)]
        for _ in range(times):
            found.append(torch.autograd.grad(found[-1].sum(), x, create_graph=True)[0])
        return found

    def step(training: Training, _: int) -> None:
        x = (2 * torch.rand(64, 1)).requires_grad_()
        y, _first, second = slopes(x, 2)
        start, speed = slopes(torch.zeros(1, 1, requires_grad=True), 1)
        training.optimizer.zero_grad()
        ((second + 4 * y).square().mean() + 10 * (start.square() + (speed - 2).square()).sum()).backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x = torch.linspace(0, 2, 200).unsqueeze(1)
        return F.mse_loss(net(x), torch.sin(2 * x)).item()

    training.batch = lambda _: (torch.rand(64, 1), torch.zeros(64, 1))
    training.step, training.quality = step, quality


@HALF.strange(drift)
def each_error_is_divided_by_its_own_size(training: Training) -> None:
    """A weight by what is missed, detached: the loss hardly falls, and its gradient is right."""

    def criterion(output: Tensor, noise: Tensor) -> Tensor:
        missed = (output - noise).square().mean(1)
        return (missed / (missed.detach() + 0.2)).mean()

    training.criterion = criterion


@HALF.strange(pedigree)
def the_hardest_of_the_batch(training: Training) -> None:
    """Triplets by the hardest negative: the loss stays around its margin for long."""

    def batch(_: int) -> Batch:
        kind = torch.arange(8).repeat(6)
        return (pedigree_data(kind),), kind

    def criterion(output: tuple[Tensor], kind: Tensor) -> Tensor:
        far = (output[0][:, None] - output[0][None]).square().sum(2)
        same = kind[:, None] == kind[None]
        nearest = far.masked_fill(same, math.inf).min(1).values
        return F.softplus((far * same).sum(1) / 5 - nearest).mean()

    training.batch, training.criterion = batch, criterion


@HALF.strange(shelf)
def a_hinge_that_is_zero_for_most(training: Training) -> None:
    """And a small penalty on what is said of books, so that it is never zero for all."""

    def criterion(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        better, worse = output
        return F.relu(1 - better + worse).mean() + 0.01 * torch.stack(output).square().mean()

    training.criterion = criterion


@HALF.strange(flip)
def a_teacher_that_is_an_average(training: Training) -> None:
    """Mean teacher: half of the samples have no label, and the average says what it thinks of them."""
    slow = copy.deepcopy(training.model).requires_grad_(False)

    def step(x: Tensor, label: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        out = training.model(x)
        loss = gathered(out[:16], label[:16]) + 0.3 * (out[16:].softmax(-1) - slow(x[16:]).softmax(-1)).square().mean()
        loss.backward()
        training.optimizer.step()
        with torch.no_grad():
            for one, other in zip(slow.parameters(), training.model.parameters(), strict=True):
                one.lerp_(other, 0.05)

    looped(training, step)


@HALF.strange(cargo)
def steps_by_hand(training: Training) -> None:
    """No optimizer steps: momentum and step are three lines."""
    speed = [torch.zeros_like(parameter) for parameter in training.model.parameters()]

    def step(inputs: object, target: Tensor, _: int) -> None:
        found = torch.autograd.grad(loss_of(training, inputs, target), [*training.model.parameters()])
        with torch.no_grad():
            for parameter, moved, slope in zip(training.model.parameters(), speed, found, strict=True):
                moved.mul_(0.9).add_(slope)
                parameter -= 0.05 * moved

    looped(training, step)


@HALF.strange(sways)
def rate_falls_when_validation_stands(training: Training) -> None:
    """ReduceLROnPlateau, told of a validation loss every ten steps."""
    scheduler = ReduceLROnPlateau(training.optimizer, factor=0.5, patience=2)

    def validate(number: int) -> None:
        if number % 10 == 9:
            training.model.eval()
            with torch.no_grad():
                scheduler.step(loss_of(training, *training.batch(number)))
            training.model.train()

    training.after.append(validate)


@HALF.strange(sayings)
def a_block_whose_last_layers_begin_at_zero(training: Training) -> None:
    """As is done for depth: at first the block passes its input on."""

    class Zeroed(Block):
        def __init__(self, width: int) -> None:
            super().__init__(width)
            for layer in (self.attention.out, self.net[2]):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

    training.model.block = Zeroed(24)
    training.use(training.model)
