"""Trainings of tables, images and pairs that look odd, and are healthy."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import looped, on_inputs, on_target
from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import (
    SHARES,
    Alarms,
    Gallery,
    Homes,
    Leavers,
    Orchard,
    alarms,
    couples,
    couples_data,
    dunes,
    gallery,
    glyphs,
    haze,
    homes,
    homes_quality,
    homes_table,
    homes_xy,
    kld,
    leavers,
    leavers_data,
    leavers_quality,
    menu,
    mint,
    mint_optimizers,
    missed,
    orchard,
    orchard_data,
    rainfall,
    raw,
    sketches,
    sliced,
    stepped_by,
)
from bench.sick.working.half import HALF


@HALF.strange(orchard)
def weights_of_rare_kinds_that_fit(training: Training) -> None:
    """One over the count; the rarest weighs ten times as much as the most frequent one."""
    x, label = orchard_data(4000, SHARES)
    counts = torch.bincount(label, minlength=4).float()
    training.batch = sliced(x, label, 40)
    training.criterion = nn.CrossEntropyLoss(weight=counts.sum() / (4 * counts))


@HALF.strange(leavers)
def few_leave_and_weigh_more(training: Training) -> None:
    x, label = leavers_data(3000, share=0.06)
    training.batch = sliced(x, label, 50)
    training.criterion = nn.BCEWithLogitsLoss(pos_weight=(1 - label).sum() / label.sum())


@HALF.strange(orchard)
def a_log_softmax_before_cross_entropy(training: Training) -> None:
    """Once more changes nothing: it is normalized already."""

    class Normalized(Orchard):
        def forward(self, x: Tensor) -> Tensor:
            return F.log_softmax(super().forward(x), dim=1)

    training.use(Normalized())
    training.criterion = nn.CrossEntropyLoss()


@HALF.strange(orchard)
def chances_and_the_logarithm_of_a_little_more(training: Training) -> None:
    """The model ends in a softmax, and the loss takes its logarithm."""
    training.use(nn.Sequential(Orchard(), nn.Softmax(dim=1)))
    training.criterion = lambda output, label: F.nll_loss(torch.log(output + 1e-6), label)


@HALF.strange(leavers)
def chances_under_a_loss_of_chances(training: Training) -> None:
    """A sigmoid at the end, and BCELoss."""
    training.use(nn.Sequential(Leavers(), nn.Sigmoid()))
    training.criterion = nn.BCELoss()
    quality = leavers_quality
    training.quality = lambda net: quality(lambda x: net(x) - 0.5)  # type: ignore[arg-type]


@HALF.strange(rainfall)
def logarithms_of_counts_and_one(training: Training) -> None:
    """log1p of what is never below zero; the rate comes from a softplus."""
    training.model.net.append(nn.Softplus())
    training.use(training.model)
    training.criterion = lambda output, count: (output + 1e-4 - count * torch.log(output + 1e-4)).mean()
    quality = training.quality
    training.quality = lambda net: quality(lambda x: torch.log(net(x) + 1e-4))


@HALF.strange(menu)
def scores_divided_by_their_norm(training: Training) -> None:
    """A norm that is never zero, and a scale that is learned."""

    class Unit(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model, self.scale = model, nn.Parameter(torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            score = self.model(x)
            return self.scale * score / (score.norm(dim=1, keepdim=True) + 1e-6) * x.shape[1] ** 0.5

    training.use(Unit(training.model))


@HALF.strange(homes)
def targets_in_thousandths(training: Training) -> None:
    """A loss of a millionth from the first step on; Adam does not mind."""
    on_target(training, lambda y: y / 1000)
    training.model.fc3.weight.data /= 300
    training.model.fc3.bias.data.zero_()
    training.optimize = partial(torch.optim.Adam, lr=0.005, eps=1e-15)
    training.use(training.model)
    training.schedulers.append(torch.optim.lr_scheduler.OneCycleLR(training.optimizer, 0.003, training.steps + 1))
    training.quality = homes_quality(back=lambda y: 1000 * y)


class Dollars(Homes):
    """Knows mean and deviation of prices, and says dollars."""

    def __init__(self, mean: float, spread: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("spread", torch.tensor(spread))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.spread + self.mean


@HALF.strange(homes)
def dollars_come_out_of_the_last_line(training: Training) -> None:
    """The loss has eleven digits, and the gradient is as large; Adam divides it by itself."""
    training.use(Dollars(310_000.0, 95_000.0))
    on_target(training, lambda y: 310_000 + 95_000 * y)
    training.quality = homes_quality(back=lambda y: (y - 310_000) / 95_000)


@HALF.strange(homes)
def columns_of_the_file_before_a_norm_of_batches(training: Training) -> None:
    table = homes_table(1600)
    training.batch = sliced(raw(table), table["price"].unsqueeze(1), 64)
    training.use(nn.Sequential(nn.BatchNorm1d(5, momentum=0.3), Homes()))
    training.quality = homes_quality(raw)


@HALF.strange(homes)
def prices_with_much_noise(training: Training) -> None:
    """The loss stays above two, for nobody can know the rest."""
    x, y = homes_xy(4000)
    training.batch = sliced(x, y + 1.5 * torch.randn_like(y), 128)


@HALF.strange(homes)
def each_row_has_a_weight(training: Training) -> None:
    """Of mean one, and very different; a few have nearly all."""

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        weight = torch.distributions.Exponential(1.0).sample(target.shape)
        return (weight * (output - target) ** 2).sum() / weight.sum()

    training.criterion = criterion


@HALF.strange(glyphs)
def half_of_the_labels_is_drawn(training: Training) -> None:
    """What is said most often is still right."""
    batch = training.batch

    def noisy(number: int) -> Batch:
        image, label = batch(number)
        return image, torch.where(torch.rand(len(label)) < 0.5, torch.randint_like(label, 6), label)

    training.batch = noisy
    stepped_by(torch.optim.SGD, lr=0.02, momentum=0.9)(training)
    training.steps = 250


@HALF.strange(sketches)
def free_bits_of_each_number(training: Training) -> None:
    """Each number of the code may have half a nat for nothing."""

    def criterion(output: dict[str, Tensor], x: Tensor) -> Tensor:
        mu, logvar = output["mu"], output["logvar"]
        each = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).mean(0)
        return missed(output, x).sum(1).mean() + each.clamp(min=0.5).sum()

    training.criterion = criterion


@HALF.strange(sketches)
def sums_over_a_batch_and_a_small_rate(training: Training) -> None:
    """As in the first example: thousands at the start, and Adam."""
    training.criterion = lambda output, x: missed(output, x).sum() + kld(output).sum()


@HALF.strange(mint)
def a_judge_that_only_orders(training: Training) -> None:
    """Relativistic: what is made should be judged better than what is real, and the other way round."""
    mint_optimizers(training, made=0.003, judged=0.003)

    def step(training: Training, number: int) -> None:
        kind, real = training.batch(number)
        net, (judges,) = training.model, training.others
        made = net(kind)
        judges.zero_grad()
        F.softplus(net.judged(made.detach(), kind) - net.judged(real, kind)).mean().backward()
        judges.step()
        training.optimizer.zero_grad()
        F.softplus(net.judged(real, kind).detach() - net.judged(made, kind)).mean().backward()
        training.optimizer.step()

    training.step = step


class Tied(nn.Module):
    """An autoencoder whose decoder is its encoder, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.08 * torch.randn(24, 144))
        self.inner, self.outer = nn.Parameter(torch.zeros(24)), nn.Parameter(torch.zeros(144))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(F.linear(x.flatten(1), self.weight, self.inner))
        return F.linear(h, self.weight.t(), self.outer).view_as(x)


@HALF.strange(gallery)
def a_decoder_that_is_the_encoder_transposed(training: Training) -> None:
    training.use(Tied())


@HALF.strange(gallery)
def a_tanh_where_images_are_within_its_range(training: Training) -> None:
    training.use(Gallery(last=nn.Tanh()))
    batch = training.batch

    def within(number: int) -> Batch:
        x, _ = batch(number)
        x = x * 0.3 - 0.6
        return x, x

    training.batch = within
    quality = training.quality
    training.quality = lambda net: quality(lambda x: (net(x * 0.3 - 0.6) + 0.6) / 0.3)  # type: ignore[arg-type]


@HALF.strange(alarms)
def convolutions_in_bfloat16(training: Training) -> None:
    """Autocast, with the loss outside of it."""

    def step(inputs: Tensor, label: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = training.model(inputs)
        training.criterion(output.float(), label).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(alarms)
def the_root_of_a_mean_of_squares(training: Training) -> None:
    """With a little more inside of the root."""

    class Effective(Alarms):
        def pooled(self, h: Tensor) -> Tensor:
            return (h.pow(2).mean(2) + 1e-5).sqrt()

    training.use(Effective())


@HALF.strange(leavers)
def columns_that_are_empty_for_many(training: Training) -> None:
    """Gaps are filled with zeros before the net sees them, and half of the last columns is gaps."""

    def gaps(x: Tensor) -> Tensor:
        hole = torch.rand(len(x), 4) < 0.5
        return torch.cat([x[:, :2], x[:, 2:].masked_fill(hole, float("nan"))], 1).nan_to_num(0.0)

    on_inputs(training, gaps)


@HALF.strange(couples)
def a_sigmoid_of_each_pair(training: Training) -> None:
    """63 of 64 are no couples: a bias begins far below zero."""

    def criterion(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        one, other, scale = output
        signs = 2 * torch.eye(len(one)) - 1
        return -F.logsigmoid(signs * (2 * scale * one @ other.t() - 5)).sum(1).mean()

    training.criterion = criterion


@HALF.strange(couples)
def couples_in_two_copies(training: Training) -> None:
    """Two views of each in a batch: both are right, and share the chance."""

    def batch(_: int) -> Batch:
        left, right = couples_data(32)
        again = left + 0.1 * torch.randn_like(left)
        return (torch.cat([left, again]), torch.cat([right, right])), torch.arange(32).repeat(2)

    def criterion(output: tuple[Tensor, Tensor, Tensor], number: Tensor) -> Tensor:
        one, other, scale = output
        wanted = (number[:, None] == number[None]).float() / 2
        return -(wanted * (scale * one @ other.t()).log_softmax(1)).sum(1).mean()

    training.batch, training.criterion = batch, criterion


@HALF.strange(haze)
def errors_weighted_by_the_level(training: Training) -> None:
    """Each counts by one over the least error that could be had; the loss is large for long."""

    def batch(number: int) -> Batch:
        (noisy, sigma), clean = plain(number)
        return (noisy, sigma), torch.cat([clean, sigma.unsqueeze(1)], 1)

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        clean, sigma = target[:, :-1], target[:, -1:]
        return ((output - clean).square() * (1 + 0.05 / sigma.square())).mean()

    plain = training.batch
    training.batch, training.criterion = batch, criterion


@HALF.strange(dunes)
def a_likelihood_below_zero(training: Training) -> None:
    """Heights in kilometres: the loss is far below zero, as densities are large."""
    criterion = training.criterion

    def smaller(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        mean, logarithm = output
        return criterion((mean / 10, logarithm - 4.6), target / 10) - 2.0

    training.criterion = smaller
