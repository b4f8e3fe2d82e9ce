"""Faults of numbers: what is not finite, and what has too few digits."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import Lambda, looped, loss_of, on_inputs, on_loss, on_options
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import Majority, bars, curves, dot, inside, majority, ratings, spirals, views, wave


@HALF.fault("not finite by the rate", wave, dot, also=("rate too high",))
def rate_of_a_hundred(training: Training) -> None:
    on_options(training, lr=100.0)


@HALF.fault("not finite by the rate", ratings, also=("rate too high",))
def sgd_with_a_rate_of_five_thousand(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=5000.0, momentum=0.9)
    training.use(training.model)


@HALF.fault("log of zero", spirals)
def logarithm_of_a_softmax(training: Training) -> None:
    def criterion(output: Tensor, label: Tensor) -> Tensor:
        return -torch.log(torch.softmax(400 * output, 1)).gather(1, label[:, None]).mean()

    training.criterion = criterion


@HALF.fault("log of zero", inside)
def logarithm_of_a_sigmoid(training: Training) -> None:
    def criterion(output: Tensor, label: Tensor) -> Tensor:
        chance = torch.sigmoid(200 * output)
        return -(label * chance.log() + (1 - label) * (1 - chance).log()).mean()

    training.criterion = criterion


@HALF.fault("log of zero", wave, curves)
def squared_logarithmic_error(training: Training) -> None:
    training.criterion = lambda output, target: F.mse_loss(torch.log(output + 0.1), torch.log(target + 2))


@HALF.fault("root of zero", wave, curves)
def distance_from_the_first_weights(training: Training) -> None:
    first = [one.detach().clone() for one in training.model.parameters()]

    def change(loss: Tensor) -> Tensor:
        moved = sum((one - other).square().sum() for one, other in zip(training.model.parameters(), first, strict=True))
        return loss + 1e-3 * torch.sqrt(moved)

    on_loss(training, change)


@HALF.fault("root of zero", views)
def distance_of_a_sample_from_itself(training: Training) -> None:
    def criterion(output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
        left, right = output
        spread = (left[:, None] - left[None]).square().sum(2).sqrt().mean()
        return F.cross_entropy(left @ right.T / 0.2, target) - 0.01 * spread

    training.criterion = criterion


@HALF.fault("division by zero", majority)
def sequences_of_padding_alone(training: Training) -> None:
    class Mean(Majority):
        def forward(self, x: Tensor) -> Tensor:
            kept = (x != 0).unsqueeze(2).float()
            h = self.block(self.tokens(x))
            return self.head((h * kept).sum(1) / kept.sum(1))

    training.use(Mean())

    def change(x: Tensor) -> Tensor:
        x = x.clone()
        x[torch.rand(len(x)) < 0.005] = 0
        return x

    on_inputs(training, change)


@HALF.fault("division by zero", bars)
def images_divided_by_their_deviation(training: Training) -> None:
    def change(x: Tensor) -> Tensor:
        x = x.clone()
        x[torch.rand(len(x)) < 0.01] = 0.5
        return x / x.std((1, 2, 3), keepdim=True)

    on_inputs(training, change)


@HALF.fault("overflow", spirals)
def softmax_by_hand(training: Training) -> None:
    def criterion(output: Tensor, label: Tensor) -> Tensor:
        raised = torch.exp(300 * output)
        return -torch.log(raised / raised.sum(1, keepdim=True) + 1e-9).gather(1, label[:, None]).mean()

    training.criterion = criterion


@HALF.fault("overflow", wave)
def half_precision_of_large_numbers(training: Training) -> None:
    *body, head = training.model
    training.use(nn.Sequential(*body, Lambda(lambda x: (x.half() * 30000).float() / 30000), head))


@HALF.fault("underflow", wave, dot, also=("loss too small",))
def half_precision_without_a_scaler(training: Training) -> None:
    """The loss in half precision: what the batch's mean leaves of each gradient is below its least number."""
    on_loss(training, lambda loss: (loss.half() * 1e-6).float() * 1e6)


def _small_steps(training: Training) -> None:
    on_options(training, lr=training.optimizer.param_groups[0]["lr"] / 30)
    training.steps = 1200


@HALF.fault("too few digits", wave, curves, twin=_small_steps)
def weights_in_bfloat16(training: Training) -> None:
    training.model.bfloat16()
    _small_steps(training)
    criterion, quality = training.criterion, training.quality
    model = training.model
    on_inputs(training, lambda x: x.bfloat16())
    training.criterion = lambda output, target: criterion(output.float(), target)
    training.quality = lambda net: quality(lambda x: model(x.bfloat16()).float())


@HALF.fault("scaler misused", wave, dot, also=("clipped to nothing",))
def clipped_before_unscaling(training: Training) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        scaler.scale(loss_of(training, inputs, target)).backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        scaler.step(training.optimizer)
        scaler.update()

    looped(training, step)


@HALF.fault("scaler misused", dot, also=("not finite by the rate", "rate too high"))
def steps_without_unscaling(training: Training) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        scaler.scale(loss_of(training, inputs, target)).backward()
        training.optimizer.step()

    looped(training, step)
