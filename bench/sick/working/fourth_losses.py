"""Faults of losses by hand, of numbers, and of makers, codes and pairs, as they stand in notebooks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.cases import Change
from bench.sick.changes import looped, loss_of, on_inputs, on_loss
from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import (
    SHARES,
    Alarms,
    Gallery,
    Glyphs,
    Haze,
    Leavers,
    Orchard,
    alarms,
    alarms_data,
    balanced,
    couples,
    dunes,
    gallery,
    gallery_data,
    glyphs,
    glyphs_data,
    haze,
    homes,
    kld,
    leavers,
    leavers_data,
    letters,
    letters_of,
    listed,
    menu,
    mint,
    mint_data,
    mint_optimizers,
    missed,
    one_hot_entropy,
    orchard,
    orchard_data,
    rainfall,
    seen,
    sketches,
    sliced,
    stepped_by,
)
from bench.sick.working.half import HALF

SGD = torch.optim.SGD
LOUD = ("rate too high", "not finite by the rate")

# ---- shapes ----------------------------------------------------------------------------------------


@HALF.fault("broadcast", leavers)
def by_hand_of_a_column_and_a_row(training: Training) -> None:
    """Logits are squeezed, labels are not."""

    def loss(output: Tensor, label: Tensor) -> Tensor:
        chance = torch.sigmoid(output.squeeze())
        return -(label * torch.log(chance + 1e-7) + (1 - label) * torch.log(1 - chance + 1e-7)).mean()

    training.criterion = loss


@HALF.fault("broadcast", dunes)
def a_variance_of_one_column_and_flat_targets(training: Training) -> None:
    criterion = training.criterion
    training.criterion = lambda output, target: criterion(output, target.view(-1))


# ---- softmax, sigmoid and logarithms ---------------------------------------------------------------

_slowly = stepped_by(SGD, lr=0.01, momentum=0.5)


@HALF.fault("softmax before cross entropy", orchard, twin=_slowly)
def chances_of_the_model_in_a_loss_by_einsum(training: Training) -> None:
    """predict() is called for the loss, too."""
    _slowly(training)
    training.criterion = lambda output, label: one_hot_entropy(torch.softmax(output, dim=-1), label)


_glyphs_slowly = stepped_by(SGD, lr=0.03, momentum=0.3)


@HALF.fault("softmax before cross entropy", glyphs, twin=_glyphs_slowly)
def a_softmax_behind_the_last_layer_of_the_tutorial(training: Training) -> None:
    class Ended(Glyphs):
        def forward(self, x: Tensor) -> Tensor:
            return F.softmax(super().forward(x), dim=1)

    _glyphs_slowly(training)
    training.use(Ended())


@HALF.fault("softmax over the wrong dimension", menu, also=("one logit", "constant loss"))
def chances_over_the_last_axis_of_one(training: Training) -> None:
    """Scores are (N, 8, 1)."""

    def criterion(output: Tensor, liked: Tensor) -> Tensor:
        chances = output.unsqueeze(-1).softmax(-1).squeeze(-1)
        return -(liked.softmax(1) * torch.log(chances + 1e-9)).sum(1).mean()

    training.criterion = criterion


@HALF.fault("softmax over the wrong dimension", orchard)
def log_softmax_over_the_samples(training: Training) -> None:
    training.criterion = lambda output, label: -output.log_softmax(0)[torch.arange(len(label)), label].mean()


_alarms_by_sgd = stepped_by(SGD, lr=0.1, momentum=0.9)


@HALF.fault("sigmoid twice", alarms, twin=_alarms_by_sgd)
def chances_of_several_labels_into_a_loss_of_logits(training: Training) -> None:
    class Chances(Alarms):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).sigmoid()

    training.use(Chances())
    _alarms_by_sgd(training)
    training.criterion = nn.MultiLabelSoftMarginLoss()
    training.quality = alarms_of_chances


def alarms_of_chances(net: nn.Module) -> float:
    x, label = alarms_data(400)
    return ((net(x) > 0.5).float() != label).float().mean().item()


def _few(training: Training) -> None:
    """One in ten leaves."""
    training.batch = sliced(*leavers_data(2000, share=0.1), 50)
    stepped_by(SGD, lr=0.1, momentum=0.9)(training)


@HALF.fault("sigmoid twice", leavers, twin=_few)
def focal_loss_of_chances(training: Training) -> None:
    """Focal loss, copied, expects logits."""

    class Chances(Leavers):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(super().forward(x))

    def focal(output: Tensor, label: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(output, label, reduction="none")
        return ((1 - torch.exp(-each)) ** 2 * each).mean()

    _few(training)
    training.use(Chances())
    training.criterion = focal
    training.quality = leavers_of_chances


def leavers_of_chances(net: nn.Module) -> float:
    x, label = leavers_data(600)
    return balanced(net(x) > 0.5, label)


@HALF.fault("no log", menu)
def chances_for_a_divergence_of_logarithms(training: Training) -> None:
    """log_target=True, and what is liked comes as chances."""
    training.criterion = lambda output, liked: F.kl_div(output.log_softmax(1), liked.softmax(1), reduction="batchmean", log_target=True)


@HALF.fault("no log", orchard)
def likelihood_of_scores_that_are_shifted_by_their_mean(training: Training) -> None:
    """Something was taken off for stability, and no logarithm of a sum."""
    training.criterion = lambda output, label: F.nll_loss(output - output.mean(1, keepdim=True).detach(), label)


class OneOut(Leavers):
    """Says the logarithm of a chance, over one class."""

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(super().forward(x), dim=-1)


@HALF.fault("one logit", leavers, also=("constant loss",))
def a_log_softmax_behind_one_output(training: Training) -> None:
    training.use(OneOut())
    training.criterion = lambda output, label: -(label * output).mean()


def _siblings(training: Training, outputs: int = 2) -> None:
    """Is the stroke at a side, or along a diagonal?"""
    training.use(Glyphs(outputs=outputs))
    batch = training.batch

    def two(number: int) -> Batch:
        image, label = batch(number)
        return image, (label > 3).long()

    training.batch = two

    def quality(net: nn.Module) -> float:
        image, label = glyphs_data(400)
        output = net(seen(image))
        found = output.argmax(1) if outputs > 1 else (output[:, 0] > 0).long()
        return balanced(found, label > 3)

    training.quality = quality


@HALF.fault("one logit", glyphs, twin=_siblings)
def categorical_of_one_output(training: Training) -> None:
    """A distribution over one class, weighted by the label."""
    _siblings(training, outputs=1)

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        said = torch.distributions.Categorical(logits=output).log_prob(torch.zeros_like(label))
        return -(said * (1 + label)).mean()

    training.criterion = criterion


# ---- sign and size ---------------------------------------------------------------------------------


@HALF.fault("wrong sign", rainfall)
def the_likelihood_itself_is_minimized(training: Training) -> None:
    training.criterion = lambda output, count: (count * output - output.exp()).mean()


@HALF.fault("wrong sign", gallery)
def decibels_go_down(training: Training) -> None:
    """The signal to noise ratio is the loss, and should be large."""
    training.criterion = lambda output, x: 10 * torch.log10(1.0 / F.mse_loss(output, x))


@HALF.fault("wrong sign", couples)
def likeness_is_pushed_apart(training: Training) -> None:
    """The logsigmoid of the negative for pairs, of the positive for others."""

    def criterion(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        one, other, scale = output
        signs = 1 - 2 * torch.eye(len(one))
        return -F.logsigmoid(signs * scale * (one @ other.t() - 0.3)).sum(1).mean()

    training.criterion = criterion


@HALF.fault("wrong sign", sketches)
def evidence_is_minimized(training: Training) -> None:
    training.criterion = lambda output, x: (-missed(output, x).sum(1) - kld(output)).mean().clamp(min=-1e6)


@HALF.fault("loss too small", orchard)
def a_mean_that_is_divided_by_all_rows(training: Training) -> None:
    training.criterion = lambda output, label: F.cross_entropy(output, label) / 1600


@HALF.fault("loss too small", alarms, twin=_alarms_by_sgd, also=("rate runs out",))
def each_loss_counts_less_than_the_one_before(training: Training) -> None:
    """A discount for steps of a game, put around the loss of the training."""
    _alarms_by_sgd(training)
    step = [0]
    training.each.append(lambda number: step.__setitem__(0, number))
    on_loss(training, lambda loss: 0.7 ** step[0] * loss)


_gallery_by_sgd = stepped_by(SGD, lr=0.1, momentum=0.9)


@HALF.fault("loss too large", gallery, twin=_gallery_by_sgd, also=LOUD)
def pixels_of_a_batch_are_summed(training: Training) -> None:
    _gallery_by_sgd(training)
    training.criterion = nn.MSELoss(reduction="sum")


_rainfall_by_sgd = stepped_by(SGD, lr=0.02, momentum=0.9)


@HALF.fault("loss too large", rainfall, twin=_rainfall_by_sgd, also=(*LOUD, "overflow"))
def drops_of_a_batch_are_summed(training: Training) -> None:
    _rainfall_by_sgd(training)
    training.criterion = nn.PoissonNLLLoss(log_input=True, reduction="sum")


# ---- range, kind, weights --------------------------------------------------------------------------


@HALF.fault("output cannot reach", gallery)
def a_sigmoid_before_images_that_are_standardized(training: Training) -> None:
    training.use(Gallery(last=nn.Sigmoid()))


@HALF.fault("output cannot reach", rainfall)
def a_rate_that_is_at_most_one(training: Training) -> None:
    """A logarithm of a sigmoid, where one of the exponential was meant."""
    training.model.net.append(nn.LogSigmoid())
    training.use(training.model)


@HALF.fault("output cannot reach", homes)
def the_same_relu_after_each_layer(training: Training) -> None:
    layers = [training.model.fc1, training.model.fc2, training.model.fc3]
    training.use(nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU6())]))


@HALF.fault("regression of classes", glyphs)
def the_number_of_a_stroke_by_least_squares(training: Training) -> None:
    training.use(Glyphs(outputs=1))
    stepped_by(torch.optim.Adam, lr=0.002)(training)
    training.criterion = lambda output, label: ((output.view(-1) - label.float()) ** 2).mean()

    def quality(net: nn.Module) -> float:
        image, label = glyphs_data(400)
        return (net(seen(image)).view(-1).round() != label).float().mean().item()

    training.quality = quality
    training.steps = 60


def _sixty_steps(training: Training) -> None:
    training.steps = 60


@HALF.fault("regression of classes", orchard, twin=_sixty_steps)
def a_share_of_the_greatest_class(training: Training) -> None:
    """Classes are scaled to 0..1, and learned as a share."""
    _sixty_steps(training)
    training.use(nn.Sequential(Orchard(outputs=1), nn.Sigmoid()))
    training.criterion = lambda output, label: F.l1_loss(output.squeeze(1), label / 3)

    def quality(net: nn.Module) -> float:
        x, label = orchard_data(600)
        return ((3 * net(x).squeeze(1)).round() != label).float().mean().item()

    training.quality = quality


def _rare(order: Callable[[Tensor], Tensor]) -> Change:
    """Kinds of very different number, weighted by one over the counts, in some order."""

    def change(training: Training) -> None:
        x, label = orchard_data(4000, SHARES)
        counts = torch.bincount(label, minlength=4).float()
        weight = 1 / order(counts)
        training.batch = sliced(x, label, 40)
        training.criterion = nn.CrossEntropyLoss(weight=(weight / weight.sum()) ** 2)
        stepped_by(SGD, lr=0.03, momentum=0.5)(training)

    return change


@HALF.fault("weights of classes", orchard, twin=_rare(lambda counts: counts))
def counts_come_sorted_by_their_size(training: Training) -> None:
    """value_counts() gives the most frequent one first, whatever its number."""
    _rare(lambda counts: counts.sort(descending=True).values)(training)


def _few_leave(turned: bool) -> Change:
    def change(training: Training) -> None:
        x, label = leavers_data(3000, share=0.06)
        positive, negative = label.sum(), (1 - label).sum()
        weight = positive / negative if turned else negative / positive
        training.batch = sliced(x, label, 50)
        training.criterion = nn.BCEWithLogitsLoss(pos_weight=weight)

    return change


@HALF.fault("weights of classes", leavers, twin=_few_leave(turned=False))
def positives_over_negatives(training: Training) -> None:
    _few_leave(turned=True)(training)


@HALF.fault("constant loss", gallery)
def a_floor_under_the_whole_loss(training: Training) -> None:
    """It was meant for one term."""
    on_loss(training, lambda loss: torch.clamp(loss, min=2.0))


@HALF.fault("constant loss", orchard)
def the_mask_keeps_what_should_be_ignored(training: Training) -> None:
    def criterion(output: Tensor, label: Tensor) -> Tensor:
        mask = (label == -100).float()
        each = F.cross_entropy(output, label, reduction="none", ignore_index=-100)
        return (each * mask).sum() / mask.sum().clamp(min=1)

    training.criterion = criterion


# ---- numbers ---------------------------------------------------------------------------------------


@HALF.fault("not finite by the rate", rainfall, also=("rate too high", "overflow"), twin=_rainfall_by_sgd)
def a_rate_of_ten_before_an_exponential(training: Training) -> None:
    stepped_by(SGD, lr=10.0, momentum=0.9)(training)


_homes_by_sgd = stepped_by(SGD, lr=0.01, momentum=0.9)


@HALF.fault("not finite by the rate", homes, also=("rate too high",), twin=_homes_by_sgd)
def the_zeros_of_the_rate_were_left_out(training: Training) -> None:
    """0.01 became 10."""
    stepped_by(SGD, lr=10.0, momentum=0.9)(training)


@HALF.fault("log of zero", orchard)
def chances_as_shares_of_what_a_relu_leaves(training: Training) -> None:
    def criterion(output: Tensor, label: Tensor) -> Tensor:
        positive = F.relu(output)
        shares = positive / (positive.sum(1, keepdim=True) + 1e-6)
        return -torch.log(shares.gather(1, label.view(-1, 1))).mean()

    training.criterion = criterion


def _ink(criterion: Callable[[Tensor, Tensor], Tensor]) -> Change:
    """Images from 0 to 1."""

    def change(training: Training) -> None:
        def batch(_: int) -> Batch:
            x = gallery_data(48)
            return x, x

        training.batch = batch
        training.criterion = criterion

        def quality(net: nn.Module) -> float:
            x = gallery_data(200)
            return F.mse_loss(net(x), x).item()

        training.quality = quality

    return change


def _clamped_entropy(output: Tensor, x: Tensor) -> Tensor:
    chance = output.clamp(0, 1)
    return -(x * chance.log() + (1 - x) * (1 - chance).log()).mean()


@HALF.fault("log of zero", gallery, twin=_ink(lambda output, x: F.mse_loss(output, x)))
def entropy_of_images_clamped_to_0_and_1(training: Training) -> None:
    _ink(_clamped_entropy)(training)


@HALF.fault("log of zero", rainfall)
def deviance_of_days_without_rain(training: Training) -> None:
    """2 (y log(y / rate) - (y - rate)), with the rate inside of the logarithm: where y is zero, it is zero times infinity."""

    def deviance(output: Tensor, count: Tensor) -> Tensor:
        rate = output.exp()
        return 2 * (count * torch.log(count / rate) - (count - rate)).mean()

    training.criterion = deviance


def _distances(epsilon: float) -> Change:
    """Pairs by hand; now and then a letter meets itself."""

    def change(training: Training) -> None:
        def meet(given: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            one, other = given
            return one, torch.where(torch.rand(len(one), 1) < 0.002, one, other)

        on_inputs(training, meet)

        def criterion(output: tuple[Tensor, Tensor], same: Tensor) -> Tensor:
            far = torch.sqrt(((output[0] - output[1]) ** 2).sum(1) + epsilon)
            return (same * far**2 + (1 - same) * F.relu(2 - far) ** 2).mean()

        training.criterion = criterion

    return change


@HALF.fault("root of zero", letters, twin=_distances(1e-8))
def a_letter_meets_itself(training: Training) -> None:
    _distances(0.0)(training)


class Loud(Alarms):
    """Sees how loud each sensor is, too, by a gain that is learned."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon, self.gain, self.loud = epsilon, nn.Parameter(torch.ones(4)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        energy = ((x * self.gain) ** 2).sum(1)
        return super().forward(x) + self.loud(torch.sqrt(energy + self.epsilon))


def _unplugged(epsilon: float) -> Change:
    """Now and then the fourth sensor is not there."""

    def change(training: Training) -> None:
        training.use(Loud(epsilon))
        there = torch.tensor([0.0, 0, 0, 1])
        on_inputs(training, lambda x: x * (1 - there * (torch.rand(len(x), 1, 1) < 0.02).float()))

    return change


@HALF.fault("root of zero", alarms, twin=_unplugged(1e-6))
def effective_value_of_a_sensor_that_is_not_there(training: Training) -> None:
    _unplugged(0.0)(training)


def _between(safe: bool) -> Change:
    """A column of zeros and ones, rarely one, is scaled to its least and greatest within each batch."""

    def change(training: Training) -> None:
        def scaled(x: Tensor) -> Tensor:
            rare = (torch.rand(len(x), 1) < 0.05).float()
            low, high = rare.min(0).values, rare.max(0).values
            width = (high - low).clamp(min=1e-6) if safe else high - low
            return torch.cat([x[:, :5], (rare - low) / width], 1)

        on_inputs(training, scaled)

    return change


@HALF.fault("division by zero", leavers, twin=_between(safe=True), also=("not a number in data",))
def least_and_greatest_of_a_column_that_is_the_same(training: Training) -> None:
    _between(safe=False)(training)


def _by_counts(least: float) -> Change:
    """Each batch is weighted by one over how often a kind is in it."""

    def change(training: Training) -> None:
        x, label = orchard_data(3000, (0.03, 0.27, 0.35, 0.35))
        training.batch = sliced(x, label, 40)

        def criterion(output: Tensor, label: Tensor) -> Tensor:
            weight = 1 / torch.bincount(label, minlength=4).clamp(min=least)
            return F.cross_entropy(output, label, weight=weight / weight.sum())

        training.criterion = criterion

    return change


@HALF.fault("division by zero", orchard, twin=_by_counts(1.0))
def one_over_the_count_of_a_kind_that_is_not_in_the_batch(training: Training) -> None:
    _by_counts(0.0)(training)


def _root_of_sum(kind: torch.dtype) -> Change:
    """The length of all errors, in steps of a tenth."""

    def change(training: Training) -> None:
        def criterion(output: Tensor, x: Tensor) -> Tensor:
            error = (10 * (output - x)).to(kind)
            return (error * error).sum().sqrt().float() / len(x)

        training.criterion = criterion

    return change


@HALF.fault("overflow", gallery, twin=_root_of_sum(torch.float32))
def squares_summed_in_half_precision(training: Training) -> None:
    """48 images of 144 pixels: more than 65504, and the root of infinity has no slope."""
    _root_of_sum(torch.float16)(training)


def _sharp(by_hand: bool) -> Change:
    def change(training: Training) -> None:
        training.steps = 300

        def criterion(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
            likeness = output[0] @ output[1].t() / 0.01
            if not by_hand:
                return 0.1 * F.cross_entropy(likeness, target)
            raised = torch.exp(likeness)
            return -0.1 * torch.log(raised.diag() / raised.sum(1)).mean()

        training.criterion = criterion

    return change


@HALF.fault("overflow", couples, twin=_sharp(by_hand=False), also=("temperature",))
def likeness_over_a_hundredth_is_raised_by_hand(training: Training) -> None:
    """A power of e of a hundred is more than a number holds."""
    _sharp(by_hand=True)(training)


def _autocast(kind: torch.dtype) -> Change:
    """A head among many: its loss has a small weight, and Adam does not mind."""

    def change(training: Training) -> None:
        stepped_by(torch.optim.Adam, lr=0.005, eps=1e-14)(training)

        def step(inputs: Tensor, target: Tensor, _: int) -> None:
            training.optimizer.zero_grad()
            with torch.autocast("cpu", dtype=kind):
                output = training.model(inputs)
            (1e-7 * training.criterion(output.float(), target)).backward()
            training.optimizer.step()

        looped(training, step)

    return change


@HALF.fault("underflow", homes, twin=_autocast(torch.bfloat16), also=("loss too small",))
def autocast_to_float16_of_a_light_loss(training: Training) -> None:
    _autocast(torch.float16)(training)


@HALF.fault("underflow", sketches)
def a_product_of_the_chances_of_all_pixels(training: Training) -> None:
    """In half precision; the logarithm comes after the product."""

    def criterion(output: dict[str, Tensor], x: Tensor) -> Tensor:
        right = (-missed(output, x)).exp().half()
        return (-torch.log(right.prod(1).float() + 1e-6) + 0.1 * kld(output)).mean()

    training.criterion = criterion


def _homes_slowly(kind: torch.dtype) -> Change:
    """Weights are stored in some kind of number between the steps, which are small and many."""

    def change(training: Training) -> None:
        stepped_by(torch.optim.Adam, lr=2e-4)(training)
        training.steps = 1000

        def store(_: int) -> None:
            for one in training.model.parameters():
                one.data = one.data.to(kind).float()

        training.after.append(store)

    return change


@HALF.fault("too few digits", homes, twin=_homes_slowly(torch.float32))
def weights_kept_in_bfloat16_between_the_steps(training: Training) -> None:
    _homes_slowly(torch.bfloat16)(training)


def _twice(training: Training, times: int) -> None:
    _homes_by_sgd(training)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        for _once in range(times):
            loss = scaler.scale(loss)
        loss.backward()
        scaler.step(training.optimizer)
        scaler.update()

    looped(training, step)


@HALF.fault("scaler misused", homes, also=(*LOUD, "loss too large"), twin=partial(_twice, times=1))
def scaled_twice_and_unscaled_once(training: Training) -> None:
    """In the function of the loss, and in the loop."""
    _twice(training, times=2)


def _own_scale(training: Training, limit: float) -> None:
    """A scaler by hand: twice as much after each good step, and never half of it after a bad one; a limit helps."""
    stepped_by(SGD, lr=0.03, momentum=0.5)(training)
    scale = [min(2.0**19, limit)]

    def step(inputs: Tensor, label: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = training.criterion(training.model(inputs), label)
        (loss * scale[0]).backward()
        gradients = [one.grad for one in training.model.parameters() if one.grad is not None]
        if all(bool(gradient.half().isfinite().all()) for gradient in gradients):
            for gradient in gradients:
                gradient /= scale[0]
            training.optimizer.step()
            scale[0] = min(2 * scale[0], limit)

    looped(training, step)


@HALF.fault("scaler misused", orchard, also=("overflow",), twin=partial(_own_scale, limit=2.0**12))
def a_scale_by_hand_that_grows_and_never_falls(training: Training) -> None:
    """After some steps all gradients are beyond half precision, and each step is left out."""
    _own_scale(training, limit=2.0**40)


@HALF.fault("scaler misused", alarms, also=("no step",), twin=_alarms_by_sgd)
def stepped_where_something_is_not_finite(training: Training) -> None:
    """A scaler by hand, with its condition turned around."""
    _alarms_by_sgd(training)

    def step(inputs: Tensor, label: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        (1024 * loss_of(training, inputs, label)).backward()
        found = torch.stack([(~one.grad.isfinite()).any() for one in training.model.parameters()]).any()
        if found:
            for one in training.model.parameters():
                one.grad /= 1024
            training.optimizer.step()

    looped(training, step)


# ---- makers, codes and pairs -----------------------------------------------------------------------


@HALF.fault("discriminator wins", mint, also=("rate too low", "groups swapped"))
def rates_of_maker_and_judge_exchanged_and_a_sure_judge(training: Training) -> None:
    """The maker minimizes log(1 - D) of a judge that steps ten times and has a large rate."""
    mint_optimizers(training, made=1e-5, judged=0.02)

    def step(training: Training, number: int) -> None:
        net, (judges,) = training.model, training.others
        for _ in range(4):
            kind, real = mint_data(64)
            judges.zero_grad()
            (F.softplus(-net.judged(real, kind)) + F.softplus(net.judged(net(kind).detach(), kind))).mean().backward()
            judges.step()
        kind, _real = training.batch(number)
        training.optimizer.zero_grad()
        (-F.softplus(net.judged(net(kind), kind))).mean().backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("generator detached", mint, also=("detached",))
def the_maker_is_judged_by_a_pool_of_what_it_made(training: Training) -> None:
    """The pool of made points, detached, is used in the maker's step, too."""
    pool: list[tuple[Tensor, Tensor]] = []

    def step(training: Training, number: int) -> None:
        kind, real = training.batch(number)
        net, (judges,) = training.model, training.others
        pool.append((kind, net(kind).detach()))
        del pool[:-5]
        old, made = pool[torch.randint(len(pool), ()).item()]
        judges.zero_grad()
        ((net.judged(real, kind) - 1).square().mean() + net.judged(made, old).square().mean()).backward()
        judges.step()
        training.optimizer.zero_grad()
        (net.judged(made, old) - 1).square().mean().backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("generator detached", mint, also=("detached",))
def made_points_pass_through_a_list(training: Training) -> None:
    """They are kept for a plot, and taken from there."""

    def step(training: Training, number: int) -> None:
        kind, real = training.batch(number)
        net, (judges,) = training.model, training.others
        made = torch.tensor(net(kind).tolist())
        judges.zero_grad()
        ((net.judged(real, kind) - 1).square().mean() + net.judged(made, kind).square().mean()).backward()
        judges.step()
        training.optimizer.zero_grad()
        (net.judged(made, kind) - 1).square().mean().backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("latent ignored", sketches)
def weight_of_all_samples_over_those_of_a_batch(training: Training) -> None:
    """kld_weight should be the batch over all of them."""
    kld_weight = 60_000 / 64
    training.criterion = lambda output, x: (missed(output, x).mean(1) + kld_weight * kld(output)).mean()


@HALF.fault("latent ignored", sketches)
def divergence_is_added_at_each_pixel(training: Training) -> None:
    """(N, 144) and (N, 1) are added, and then summed."""
    training.criterion = lambda output, x: (missed(output, x) + kld(output).unsqueeze(1)).sum(1).mean()


@HALF.fault("collapse", letters, also=("wrong negatives",))
def all_pairs_are_of_one_hand(training: Training) -> None:
    """The data set gives pairs of the same writer alone."""

    def batch(_: int) -> Batch:
        writer = torch.randint(8, (96,))
        return (letters_of(writer), letters_of(writer)), torch.ones(96)

    training.batch = batch


@HALF.fault("collapse", letters, also=("wrong negatives",))
def a_margin_that_is_left_at_zero(training: Training) -> None:
    """Nothing pushes those of two hands apart."""

    def criterion(output: tuple[Tensor, Tensor], same: Tensor, margin: float = 0.0) -> Tensor:
        far = F.pairwise_distance(*output)
        return (same * far**2 + (1 - same) * torch.clamp(margin - far, min=0.0) ** 2).mean()

    training.criterion = criterion


@HALF.fault("temperature", menu)
def what_is_liked_is_divided_by_a_hundred(training: Training) -> None:
    """The chances to be learned are all alike."""
    training.criterion = lambda output, liked: listed(output, liked / 100)


@HALF.fault("wrong negatives", couples, also=("collapse",))
def others_count_as_zero_and_not_as_minus_one(training: Training) -> None:
    """A sigmoid loss of pairs, with the identity as its signs: those who do not belong together have no gradient."""

    def criterion(output: tuple[Tensor, Tensor, Tensor], target: Tensor) -> Tensor:
        one, other, scale = output
        return -F.logsigmoid(torch.eye(len(one)) * (scale * one @ other.t() - 2)).sum(1).mean()

    training.criterion = criterion


@HALF.fault("wrong negatives", letters)
def neighbours_in_a_sorted_batch_are_the_negatives(training: Training) -> None:
    """The batch is sorted by writer, and what is one further is taken for another hand."""

    def batch(_: int) -> Batch:
        writer = torch.randint(10, (48,)).sort().values
        one = letters_of(writer)
        return (torch.cat([one, one]), torch.cat([letters_of(writer), one.roll(1, 0)])), torch.cat([torch.ones(48), torch.zeros(48)])

    training.batch = batch


@HALF.fault("noise level hidden", haze)
def the_level_of_the_first_sample_for_all(training: Training) -> None:
    on_inputs(training, lambda given: (given[0], given[1][:1].expand(len(given[1]))))


@HALF.fault("noise level hidden", haze)
def the_level_is_told_in_other_units(training: Training) -> None:
    """Training is told the variance, and what is asked later the deviation."""
    on_inputs(training, lambda given: (given[0], given[1].square()))


@HALF.fault("noise level hidden", haze)
def the_level_is_named_and_a_default_is_used(training: Training) -> None:
    class Default(Haze):
        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            return super().forward(x, torch.full((len(x),), 0.5))

    training.use(Default())
