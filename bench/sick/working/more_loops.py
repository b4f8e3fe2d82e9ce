"""More faults of the loop and of the optimizer, as they stand in people's loops."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LinearLR, ReduceLROnPlateau

from bench.sick.changes import looped, loss_of, on_loss
from bench.sick.training import Training, plain_step
from bench.sick.working.half import HALF
from bench.sick.working.more_nets import (
    Table,
    Translator,
    backwards,
    chorus,
    fields,
    grades,
    held,
    hoop,
    loans,
    longest,
    lookup,
    marks,
    opening,
    preferred,
    tones,
    triples,
    walk,
    walk_error,
)


def by(training: Training, kind: Callable[..., torch.optim.Optimizer], **options: Any) -> None:
    """Step with another optimizer."""
    training.optimize = partial(kind, **options)
    training.use(training.model)


def _with_sgd(rate: float, momentum: float = 0.0) -> Callable[[Training], None]:
    return lambda training: by(training, torch.optim.SGD, lr=rate, momentum=momentum)


# ---- the loop --------------------------------------------------------------------------------------


@HALF.fault("no zero grad", walk)
def the_older_copy_is_zeroed(training: Training) -> None:
    def step(training: Training, number: int) -> None:
        (place, move, then), reward = training.batch(number)
        training.model.target.zero_grad()
        walk_error(training.model, place, move, then, reward).backward()
        training.optimizer.step()
        if number % 8 == 0:
            training.model.target.load_state_dict(training.model.online.state_dict())

    training.step = step


@HALF.fault("no zero grad", longest)
def zeroed_once_before_the_loop(training: Training) -> None:
    training.optimizer.zero_grad()

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        loss = training.criterion(training.model(inputs), target)
        loss.backward()
        training.optimizer.step()

    looped(training, step)


@HALF.fault("zeroed before step", backwards)
def norms_are_logged_and_gradients_dropped(training: Training) -> None:
    history: list[float] = []

    def log_gradients() -> None:
        history.append(sum(one.grad.norm().item() for one in training.model.parameters() if one.grad is not None))
        training.model.zero_grad()

    def step(inputs: Any, target: Tensor, _: int) -> None:
        loss_of(training, inputs, target).backward()
        log_gradients()
        training.optimizer.step()

    looped(training, step)


@HALF.fault("zeroed before step", longest)
def accumulates_and_zeroes_first(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, number: int) -> None:
        (loss_of(training, inputs, target) / 2).backward()
        if number % 2 == 1:
            training.optimizer.zero_grad()
            training.optimizer.step()

    looped(training, step)


@HALF.fault("no step", lookup)
def step_without_parentheses(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        training.optimizer.step  # noqa: B018

    looped(training, step)


@HALF.fault("no step", fields)
def the_schedule_steps_and_not_the_optimizer(training: Training) -> None:
    scheduler = LinearLR(training.optimizer, 1.0, 0.5, training.steps)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        scheduler.step()

    looped(training, step)


@HALF.fault("no backward", chorus)
def backward_without_parentheses(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        loss.backward  # noqa: B018
        training.optimizer.step()

    looped(training, step)


@HALF.fault("no backward", marks)
def backward_with_a_scaler_alone(training: Training) -> None:
    scaler = None

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad(set_to_none=False)
        loss = loss_of(training, inputs, target)
        if scaler is not None:
            scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 5.0)
        training.optimizer.step()

    looped(training, step)


@HALF.fault("never enough to step", held)
def counter_begins_anew_in_each_batch(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        accumulated = 0
        (loss_of(training, inputs, target) / 4).backward()
        accumulated += 1
        if accumulated == 4:
            training.optimizer.step()
            training.optimizer.zero_grad()

    looped(training, step)


@HALF.fault("never enough to step", tones)
def epochs_shorter_than_the_accumulation(training: Training) -> None:
    """Six batches an epoch, zeroed when it begins; a step after eight."""

    def step(inputs: Tensor, target: Tensor, number: int) -> None:
        place = number % 6
        if place == 0:
            training.optimizer.zero_grad()
        (loss_of(training, inputs, target) / 8).backward()
        if (place + 1) % 8 == 0:
            training.optimizer.step()
            training.optimizer.zero_grad()

    looped(training, step)


def _micro_batches(divided: bool) -> Callable[[Training], None]:
    """One step in sixteen parts of a batch."""

    def change(training: Training) -> None:
        logged: list[float] = []

        def step(inputs: Tensor, target: Tensor, _: int) -> None:
            training.optimizer.zero_grad()
            running = 0.0
            for some, wanted in zip(inputs.chunk(16), target.chunk(16), strict=True):
                loss = training.criterion(training.model(some), wanted)
                running += loss.item() / 16
                (loss / 16 if divided else loss).backward()
            training.optimizer.step()
            logged.append(running)

        looped(training, step)

    return change


@HALF.fault("accumulated too loud", triples, twin=_micro_batches(divided=True), also=("rate too high", "not finite by the rate"))
def divided_where_it_is_logged_alone(training: Training) -> None:
    _micro_batches(divided=False)(training)


def _sum_of_parts(divided: bool) -> Callable[[Training], None]:
    """One backward for the losses of sixteen parts."""

    def change(training: Training) -> None:
        by(training, torch.optim.SGD, lr=0.2, momentum=0.9)

        def step(inputs: Tensor, target: Tensor, _: int) -> None:
            losses = []
            for some, wanted in zip(inputs.chunk(16), target.chunk(16), strict=True):
                losses.append(training.criterion(training.model(some), wanted))
            training.optimizer.zero_grad()
            (sum(losses) / 16 if divided else sum(losses)).backward()
            training.optimizer.step()

        looped(training, step)

    return change


@HALF.fault("accumulated too loud", grades, twin=_sum_of_parts(divided=True), also=("rate too high",))
def losses_of_parts_are_added(training: Training) -> None:
    _sum_of_parts(divided=False)(training)


@HALF.fault("weights put back", hoop)
def the_average_is_copied_back(training: Training) -> None:
    """Evaluates with an average of the weights each step, and leaves it in."""
    average = [one.detach().clone() for one in training.model.parameters()]

    def swap(_: int) -> None:
        with torch.no_grad():
            for slow, fast in zip(average, training.model.parameters(), strict=True):
                slow.mul_(0.9999).add_(fast, alpha=0.0001)
                fast.copy_(slow)

    training.after.append(swap)


@HALF.fault("weights put back", loans)
def the_best_is_the_worst(training: Training) -> None:
    """Goes back to the best weights, where better is taken for greater."""
    kept: dict[str, Any] = {"best": float("-inf"), "weights": None}

    def validate(number: int) -> None:
        inputs, target = training.batch(number)
        with torch.no_grad():
            loss = loss_of(training, inputs, target).item()
        if loss > kept["best"]:
            kept.update(best=loss, weights=copy.deepcopy(training.model.state_dict()))
        else:
            training.model.load_state_dict(kept["weights"])

    training.after.append(validate)


@HALF.fault("eval while training", tones)
def a_check_before_the_loop_leaves_it_in_evaluation(training: Training) -> None:
    inputs, _ = training.batch(0)
    training.model.eval()
    with torch.no_grad():
        training.model(inputs)


@HALF.fault("eval while training", loans)
def train_is_told_false(training: Training) -> None:
    training.each.append(lambda number: training.model.train(False))


@HALF.fault("clipped to nothing", triples)
def each_number_clipped(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        nn.utils.clip_grad_value_(training.model.parameters(), 1e-7)
        training.optimizer.step()

    looped(training, step)


@HALF.fault("clipped to nothing", longest)
def clipped_by_hand(training: Training) -> None:
    limit = 1e-5

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        norm = torch.stack([one.grad.norm() for one in training.model.parameters()]).norm()
        for one in training.model.parameters():
            one.grad *= min(1.0, limit / (norm.item() + 1e-12))
        training.optimizer.step()

    looped(training, step)


@HALF.fault("gradients overwritten", lookup)
def the_mean_of_a_gradient_is_kept_and_not_taken_off(training: Training) -> None:
    """Centralized gradients, with the subtraction forgotten."""

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        for one in training.model.parameters():
            if one.dim() > 1:
                one.grad.copy_(one.grad.mean(0, keepdim=True).expand_as(one.grad).mean(1, keepdim=True).expand_as(one.grad))
            else:
                one.grad.copy_(one.grad.mean().expand_as(one.grad))
        training.optimizer.step()

    looped(training, step)


@HALF.fault("gradients overwritten", grades)
def noise_for_privacy_drowns_them(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        for one in training.model.parameters():
            one.grad.add_(torch.randn_like(one.grad), alpha=20.0)
        training.optimizer.step()

    looped(training, step)


# ---- the optimizer ---------------------------------------------------------------------------------


@HALF.fault("rate too high", fields)
def adagrad_with_a_rate_of_thirty(training: Training) -> None:
    by(training, torch.optim.Adagrad, lr=30.0)


@HALF.fault("rate too high", chorus)
def rmsprop_with_a_rate_of_a_half(training: Training) -> None:
    by(training, torch.optim.RMSprop, lr=0.5)


@HALF.fault("rate too low", grades)
def adadelta_with_the_rate_of_adam(training: Training) -> None:
    by(training, torch.optim.Adadelta, lr=1e-4)


@HALF.fault("rate too low", longest)
def the_rate_of_fine_tuning(training: Training) -> None:
    by(training, torch.optim.SGD, lr=2e-5, momentum=0.9, nesterov=True)


@HALF.fault("rate runs out", hoop)
def plateau_asked_after_each_batch(training: Training) -> None:
    scheduler = ReduceLROnPlateau(training.optimizer, factor=0.1, patience=0)

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        loss.backward()
        training.optimizer.step()
        scheduler.step(loss.item())

    looped(training, step)


@HALF.fault("rate runs out", backwards)
def divided_again_and_again_by_hand(training: Training) -> None:
    """The rate of the step before is divided, where the first one was meant."""

    def decay(number: int) -> None:
        for group in training.optimizer.param_groups:
            group["lr"] /= 1 + 0.05 * number

    training.after.append(decay)


@HALF.fault("warmup never ends", chorus)
def noam_with_a_warm_up_of_millions(training: Training) -> None:
    warm = 4_000_000
    training.schedulers.append(LambdaLR(training.optimizer, lambda step: 500 * min((step + 1) ** -0.5, (step + 1) * warm**-1.5)))


@HALF.fault("warmup never ends", tones)
def warm_up_counts_the_batches_of_an_epoch(training: Training) -> None:
    rate = training.optimizer.param_groups[0]["lr"]

    def warm(number: int) -> None:
        batch_of_epoch = number % 10
        for group in training.optimizer.param_groups:
            group["lr"] = rate * min(1.0, batch_of_epoch / 50_000)

    training.each.append(warm)


@HALF.fault("too much momentum", longest, also=("rate too high",))
def nesterov_of_nearly_one(training: Training) -> None:
    by(training, torch.optim.SGD, lr=0.1, momentum=0.9998, nesterov=True)


@HALF.fault("too much momentum", held, also=("rate too high",))
def rmsprop_with_a_momentum_of_nearly_one(training: Training) -> None:
    by(training, torch.optim.RMSprop, lr=0.005, momentum=0.999)


@HALF.fault("too much decay", lookup)
def penalty_by_hand(training: Training) -> None:
    on_loss(training, lambda loss: loss + 0.5 * sum(one.pow(2).sum() for one in training.model.parameters()))


@HALF.fault("too much decay", preferred)
def adamw_with_the_decay_of_a_typo(training: Training) -> None:
    by(training, torch.optim.AdamW, lr=0.01, weight_decay=40.0)


@HALF.fault("not in the optimizer", marks, where=("blocks.0", "blocks.2", "blocks"))
def groups_by_name_that_miss_the_blocks(training: Training) -> None:
    training.optimizer = training.optimize(
        [
            {"params": [*training.model.stem.parameters()]},
            {"params": [*training.model.heads["light"].parameters()], "weight_decay": 0.0},
        ]
    )


class LateTable(Table):
    """Makes its body when it sees the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.body = None

    def forward(self, numbers: Tensor, job: Tensor, town: Tensor) -> Tensor:
        h = self.features(numbers, job, town)
        if self.body is None:
            self.body = nn.Sequential(nn.Linear(h.shape[1], 32), nn.ELU(), nn.Linear(32, 32), nn.ELU())
        return self.head(self.body(h)).squeeze(1)


@HALF.fault("not in the optimizer", loans, where=("body", "body.0", "body.2"))
def layers_made_in_the_first_forward(training: Training) -> None:
    training.use(LateTable())


@HALF.fault("another models optimizer", opening)
def a_model_of_each_fold(training: Training) -> None:
    """Cross-validation makes the model anew, and the optimizer once."""
    training.model = type(training.model)()


@HALF.fault("another models optimizer", walk, also=("not in the optimizer",))
def the_optimizer_of_the_older_copy(training: Training) -> None:
    training.model.target.requires_grad_(True)
    training.optimizer = training.optimize(training.model.target.parameters())


@HALF.fault("two optimizers", loans)
def an_adversary_steps_the_whole_model(training: Training) -> None:
    """One head finds the town in the features, and its optimizer has the body, too, to make that hard."""
    adversary = nn.Linear(32, 9)
    training.others = (torch.optim.Adam([*training.model.parameters(), *adversary.parameters()], lr=0.01),)

    def step(training: Training, number: int) -> None:
        plain_step(training, number)
        inputs, _ = training.batch(number)
        training.others[0].zero_grad()
        h = training.model.body(training.model.features(**inputs))
        (-F.cross_entropy(adversary(h), inputs["town"])).backward()
        training.others[0].step()

    training.step = step


@HALF.fault("two optimizers", lookup, also=("too much decay",))
def a_second_optimizer_that_only_shrinks(training: Training) -> None:
    """One learns; the other one, of an earlier experiment, has a decay and no gradient of its own."""
    shrinking = torch.optim.SGD(training.model.parameters(), lr=0.3, weight_decay=0.5)
    training.others = (shrinking,)

    def step(training: Training, number: int) -> None:
        plain_step(training, number)
        training.optimizer.zero_grad(set_to_none=False)
        shrinking.step()

    training.step = step


@HALF.fault("groups swapped", backwards, also=("rate too low",))
def new_layers_get_the_rate_of_the_old(training: Training) -> None:
    model: Translator = training.model
    old, new = [*model.source.parameters(), *model.target.parameters()], [*model.encoder.parameters(), *model.decoder.parameters()]
    training.optimizer = torch.optim.NAdam(
        [{"params": old, "lr": 1e-2}, {"params": new, "lr": 1e-6}, {"params": [*model.head.parameters()], "lr": 1e-6}]
    )


@HALF.fault("groups swapped", marks, also=("rate too low",))
def the_rate_of_a_group_has_a_wrong_name(training: Training) -> None:
    """Each group has a learning_rate, which nobody reads; the default is for what is fine-tuned."""
    body = [*training.model.stem.parameters(), *training.model.blocks.parameters()]
    training.optimizer = torch.optim.SGD(
        [{"params": body, "learning_rate": 0.05}, {"params": [*training.model.heads.parameters()], "learning_rate": 0.05, "lr": 0.01}],
        lr=1e-7,
        momentum=0.9,
    )
