"""Faults of the optimizer: its rate, its schedule, and what it holds."""

from __future__ import annotations

import pickle
from functools import partial

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, RMSprop
from torch.optim.lr_scheduler import ExponentialLR, LinearLR, MultiStepLR, PolynomialLR, ReduceLROnPlateau

from bench.sick.changes import looped, loss_of, on_loss, on_options
from bench.sick.reported.further_nets import kin, refrain, signs
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import (
    Duration,
    arm,
    churn,
    clusters,
    duration,
    houses,
    patches,
    ranks,
    reviews,
    shapes,
    tags,
    tides,
)
from bench.sick.training import Training, plain_step

# ---- the rate --------------------------------------------------------------------------------------


@HALF.fault("rate too high", houses, refrain, also=("not finite by the rate",))
def rate_of_three(training: Training) -> None:
    on_options(training, lr=3.0)


@HALF.fault("rate too high", arm, reviews, also=("not finite by the rate",))
def another_optimizer_with_the_old_rate(training: Training) -> None:
    """The rate was meant for SGD."""
    training.optimize = partial(RMSprop, lr=0.5)
    training.use(training.model)


@HALF.fault("rate too high", clusters, also=("not finite by the rate",))
def rate_grows_each_step(training: Training) -> None:
    """A factor of 1.04 where 0.96 was meant."""
    training.schedulers.append(ExponentialLR(training.optimizer, 1.04))


@HALF.fault("rate too low", reviews, kin)
def rate_of_ten_millionths(training: Training) -> None:
    on_options(training, lr=1e-5)


@HALF.fault("rate too low", patches, duration)
def plain_descent_with_the_rate_of_adam(training: Training) -> None:
    training.optimize = partial(SGD, lr=1e-5)
    training.use(training.model)


@HALF.fault("rate runs out", tags, signs)
def milestones_of_epochs_reached_in_batches(training: Training) -> None:
    training.schedulers.append(MultiStepLR(training.optimizer, [3, 6, 9, 12], 0.1))


@HALF.fault("rate runs out", arm)
def a_polynomial_of_ten_batches(training: Training) -> None:
    training.schedulers.append(PolynomialLR(training.optimizer, total_iters=10, power=2.0))


@HALF.fault("rate runs out", duration)
def reduced_whenever_a_batch_is_worse(training: Training) -> None:
    """A plateau, as seen by batches with no patience."""
    plateau = ReduceLROnPlateau(training.optimizer, patience=0)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        loss.backward()
        training.optimizer.step()
        plateau.step(loss.item())

    looped(training, step)


@HALF.fault("warmup never ends", duration, also=("rate too low",))
def linear_from_a_millionth(training: Training) -> None:
    training.schedulers.append(LinearLR(training.optimizer, start_factor=1e-6, total_iters=500_000))


@HALF.fault("warmup never ends", tides, ranks, also=("rate too low",))
def warmed_up_in_thousands_of_epochs(training: Training) -> None:
    peak = training.optimizer.param_groups[0]["lr"]

    def warm(number: int) -> None:
        epoch = number // 50
        for group in training.optimizer.param_groups:
            group["lr"] = peak * min(1.0, epoch / 5000)

    training.each.append(warm)


@HALF.fault("too much momentum", clusters, churn, also=("rate too high",))
def momentum_of_999(training: Training) -> None:
    on_options(training, momentum=0.999)


@HALF.fault("too much momentum", duration)
def first_beta_nearly_one(training: Training) -> None:
    on_options(training, betas=(0.9999, 0.9999))


# ---- decay -----------------------------------------------------------------------------------------


@HALF.fault("too much decay", churn, arm)
def decay_by_hand_in_the_loss(training: Training) -> None:
    on_loss(training, lambda loss: loss + 0.3 * sum(one.square().sum() for one in training.model.parameters()))


@HALF.fault("too much decay", houses)
def decoupled_decay_of_fifty(training: Training) -> None:
    on_options(training, weight_decay=50.0)


@HALF.fault("too much decay", tides)
def weights_shrink_after_each_step(training: Training) -> None:
    def shrink(_: int) -> None:
        with torch.no_grad():
            for one in training.model.parameters():
                one.mul_(0.93)

    training.after.append(shrink)


# ---- what it holds ---------------------------------------------------------------------------------


@HALF.fault("not in the optimizer", houses, refrain)
def the_group_with_decay_is_forgotten(training: Training) -> None:
    """Biases and norms stand in a group without decay; the other group is never added."""
    training.optimizer = training.optimize([{"params": [one for one in training.model.parameters() if one.dim() < 2], "weight_decay": 0.0}])


@HALF.fault("not in the optimizer", reviews, also=("another models optimizer",), where=("words", "gru"))
def layers_exchanged_after_the_optimizer_was_made(training: Training) -> None:
    training.model.words = nn.Embedding(25, 12, padding_idx=0)
    training.model.gru = nn.GRU(12, 24, batch_first=True)


@HALF.fault("another models optimizer", duration)
def optimizer_of_an_earlier_fold(training: Training) -> None:
    """Cross-validation makes a new model, and keeps the optimizer."""
    training.model = Duration()


@HALF.fault("another models optimizer", patches, kin)
def model_loaded_after_the_optimizer_was_made(training: Training) -> None:
    training.model = pickle.loads(pickle.dumps(training.model))


def _both_step(training: Training, second: torch.optim.Optimizer) -> None:
    training.others = (second,)

    def step(training: Training, number: int) -> None:
        plain_step(training, number)
        second.step()

    training.step = step


@HALF.fault("two optimizers", shapes, also=("too much decay",))
def a_second_optimizer_that_decays(training: Training) -> None:
    _both_step(training, AdamW(training.model.parameters(), lr=5e-3, weight_decay=40.0))


@HALF.fault("two optimizers", arm, also=("rate too high",))
def one_for_each_part_but_both_hold_all(training: Training) -> None:
    _both_step(training, SGD(training.model.parameters(), lr=2.0))


def _in_groups(training: Training, rate: float, *prefixes: str) -> None:
    """Parameters whose names begin so get a rate of their own."""
    named = [*training.model.named_parameters()]
    own = [one for name, one in named if name.startswith(prefixes)]
    rest = [one for name, one in named if not name.startswith(prefixes)]
    training.optimizer = training.optimize([{"params": own, "lr": rate}, {"params": rest}])


@HALF.fault("groups swapped", shapes, also=("rate too low",), where=("stem", "block", "norm"))
def the_body_gets_the_rate_of_a_pretrained_one(training: Training) -> None:
    _in_groups(training, 1e-8, "stem", "block", "norm")


@HALF.fault("groups swapped", ranks, also=("rate too high",), where=("embed",))
def the_embedding_gets_the_rate_of_sparse_descent(training: Training) -> None:
    _in_groups(training, 60.0, "embed")
