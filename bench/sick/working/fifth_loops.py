"""Faults of loops, optimizers, models, numbers and losses that come in by another door: hooks, closures, schedules, modules by hand."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, MultiStepLR

from bench.sick.changes import Lambda, looped, loss_of, on_loss
from bench.sick.training import Training, called
from bench.sick.working.fourth_nets import dunes, homes, leavers, menu, orchard, rainfall
from bench.sick.working.half import HALF
from bench.sick.working.nets import bars, curves, dot, inside, marked, ratings, recall, spirals, wave

# ---- the loop --------------------------------------------------------------------------------------


def _by_plain_sgd(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=0.02)
    training.use(training.model)


@HALF.fault("no zero grad", homes, twin=_by_plain_sgd)
def only_the_grads_of_the_biases_are_cleared(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        for name, one in training.model.named_parameters():
            if name.endswith("bias"):
                one.grad = None
        loss_of(training, inputs, target).backward()
        training.optimizer.step()

    _by_plain_sgd(training)
    looped(training, step)


@HALF.fault("no zero grad", spirals)
def a_second_optimizer_is_zeroed(training: Training) -> None:
    unused = torch.optim.Adam([nn.Parameter(torch.zeros(1))])

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        unused.zero_grad()
        loss_of(training, inputs, target).backward()
        training.optimizer.step()

    looped(training, step)


@HALF.fault("zeroed before step", inside)
def a_closure_that_zeroes_last(training: Training) -> None:
    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        def closure() -> Tensor:
            loss = loss_of(training, inputs, target)
            loss.backward()
            training.optimizer.zero_grad()
            return loss

        training.optimizer.step(closure)

    looped(training, step)


@HALF.fault("zeroed before step", ratings)
def a_step_hook_zeroes(training: Training) -> None:
    training.optimizer.register_step_pre_hook(lambda optimizer, *_: optimizer.zero_grad())


@HALF.fault("no step", leavers)
def steps_only_when_the_loss_is_a_new_record_of_the_future(training: Training) -> None:
    best = 0.0

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        loss.backward()
        if loss.item() < best:
            training.optimizer.step()

    looped(training, step)


@HALF.fault("weights put back", wave)
def an_average_near_one_is_copied_back(training: Training) -> None:
    shadow = [one.detach().clone() for one in training.model.parameters()]

    @torch.no_grad()
    def average(_: int) -> None:
        for one, kept in zip(training.model.parameters(), shadow, strict=True):
            kept.mul_(0.99999).add_(one, alpha=1e-5)
            one.copy_(kept)

    training.after.append(average)


@HALF.fault("weights put back", bars)
def the_best_is_restored_and_never_replaced(training: Training) -> None:
    best, kept = 0.0, copy.deepcopy(training.model.state_dict())

    def restore(number: int) -> None:
        if number % 5 == 4 and training.measured() > best:
            training.model.load_state_dict(kept)

    training.after.append(restore)


@HALF.fault("gradients overwritten", dot)
def tensor_hooks_return_the_sign_of_noise(training: Training) -> None:
    for one in training.model.parameters():
        one.register_hook(lambda grad: torch.randn_like(grad) * grad.abs().mean())


@HALF.fault("gradients overwritten", orchard)
def gradients_of_the_first_step_are_kept(training: Training) -> None:
    kept: list[Tensor] = []

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        if not kept:
            kept.extend(one.grad.clone() for one in training.model.parameters() if one.grad is not None)
        for one, grad in zip(training.model.parameters(), kept, strict=True):
            one.grad = grad
        training.optimizer.step()

    def step_copies(inputs: Tensor, target: Tensor, number: int) -> None:
        step(inputs, target, number)
        for one in training.model.parameters():
            one.grad = None

    looped(training, step_copies)


@HALF.fault("clipped to nothing", dunes, also=("rate too low",))
def post_hooks_clip_each_value(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=0.05)
    training.use(training.model)
    for one in training.model.parameters():
        one.register_hook(lambda grad: grad.clamp(-1e-6, 1e-6))


def _sgd(rate: float) -> Any:
    def change(training: Training) -> None:
        training.optimize = partial(torch.optim.SGD, lr=rate, momentum=0.9)
        training.use(training.model)

    return change


@HALF.fault("clipped to nothing", homes, twin=_sgd(0.01))
def each_gradient_is_made_a_thousandth_long(training: Training) -> None:
    _sgd(0.01)(training)

    def step(inputs: Tensor, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss_of(training, inputs, target).backward()
        for one in training.model.parameters():
            assert one.grad is not None
            one.grad.mul_(1e-4 / (one.grad.norm() + 1e-8))
        training.optimizer.step()

    looped(training, step)


# ---- the optimizer ---------------------------------------------------------------------------------


@HALF.fault("rate runs out", menu)
def milestones_of_epochs_counted_in_batches(training: Training) -> None:
    training.schedulers.append(MultiStepLR(training.optimizer, [3, 6, 8], 0.05))


@HALF.fault("rate runs out", recall)
def a_rate_by_hand_over_the_square_of_the_step(training: Training) -> None:
    def set_rate(number: int) -> None:
        for group in training.optimizer.param_groups:
            group["lr"] = 0.02 / (1 + number) ** 2

    training.each.append(set_rate)


@HALF.fault("warmup never ends", dot)
def warm_up_of_ten_thousand_by_hand(training: Training) -> None:
    def set_rate(number: int) -> None:
        for group in training.optimizer.param_groups:
            group["lr"] = 0.1 * (number + 1) / 100_000

    training.each.append(set_rate)


@HALF.fault("warmup never ends", rainfall)
def the_warm_up_is_squared_and_long(training: Training) -> None:
    training.schedulers.append(LambdaLR(training.optimizer, lambda step: ((step + 1) / 5000) ** 2))


@HALF.fault("too much decay", spirals)
def weights_shrink_by_hand(training: Training) -> None:
    @torch.no_grad()
    def shrink(_: int) -> None:
        for one in training.model.parameters():
            one.mul_(0.9)

    training.after.append(shrink)


@HALF.fault("too much decay", homes)
def decay_is_added_to_the_gradients_by_hand(training: Training) -> None:
    for one in training.model.parameters():
        one.register_hook(lambda grad, one=one: grad + 10 * one.detach())


@HALF.fault("too much decay", leavers)
def absolute_weights_in_the_loss(training: Training) -> None:
    criterion = training.criterion
    training.criterion = lambda output, target: (
        criterion(output, target) + 0.5 * sum(one.abs().sum() for one in training.model.parameters())
    )


@HALF.fault("groups swapped", bars)
def body_and_head_have_each_others_rates(training: Training) -> None:
    body = [one for name, one in training.model.named_parameters() if not name.startswith(("7", "8", "9"))]
    held = {id(one) for one in body}
    head = [one for one in training.model.parameters() if id(one) not in held] or body[-2:]
    body = [one for one in body if all(one is not two for two in head)]
    training.optimizer = torch.optim.SGD([{"params": body, "lr": 1e-6}, {"params": head, "lr": 0.01}], momentum=0.9)


# ---- the graph and the model -----------------------------------------------------------------------


@HALF.fault("no gradient through", marked)
def the_state_is_counted_in_steps(training: Training) -> None:
    training.model.head = nn.Sequential(Lambda(lambda h: (h * 4).floor() / 4), training.model.head)
    training.use(training.model)


class Fresh(nn.Module):
    """Makes its layer where it is called."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        mix = nn.Linear(x.shape[1], 48)
        return self.head(mix(x).relu())


@HALF.fault("hidden layers", orchard, also=("overwritten activation", "not in the optimizer"))
def a_layer_made_in_forward(training: Training) -> None:
    training.model.head = Fresh(nn.Linear(48, 4))
    training.use(training.model)


class Functional(nn.Module):
    """Keeps its weights in a dictionary of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = {name: (0.3 * torch.randn(48, size)).requires_grad_() for name, size in (("a", 5), ("b", 48))}
        self.last = nn.Linear(48, 1)

    def forward(self, x: Tensor) -> Tensor:
        for one in self.kept.values():
            x = torch.sign(F.linear(x, one)) * F.linear(x, one).square()
        return self.last(x)


@HALF.fault("hidden layers", homes)
def weights_in_a_dictionary(training: Training) -> None:
    training.use(Functional())


@HALF.fault("frozen", dot)
def frozen_by_a_context_in_init(training: Training) -> None:
    for one in [*training.model.parameters()][:4]:
        one.requires_grad_(False)
    training.use(training.model)


@HALF.fault("detached", marked, also=("without grad",))
def a_hook_detaches_the_state(training: Training) -> None:
    training.model.recurrent.register_forward_hook(lambda module, args, out: (out[0].detach(), out[1]))


@HALF.fault("all weights equal", spirals)
def weights_are_their_own_mean(training: Training) -> None:
    with torch.no_grad():
        for one in training.model.parameters():
            one.copy_(one.mean().expand_as(one))


@HALF.fault("weights begin too large", bars, also=("dead units", "rate too high"))
def drawn_uniform_from_zero_to_ten(training: Training) -> None:
    for one in training.model.parameters():
        if one.dim() > 1:
            nn.init.uniform_(one, 0, 10)


@HALF.fault("weights begin too small", wave, also=("vanishing gradient",))
def divided_by_the_fan_in_twice(training: Training) -> None:
    with torch.no_grad():
        for one in training.model.parameters():
            one.div_(one[0].numel() ** 2 if one.dim() > 1 else 1e6)


@HALF.fault("dead units", dot, also=("weights begin too small", "vanishing gradient"))
def the_threshold_of_each_unit_is_a_hundred(training: Training) -> None:
    with torch.no_grad():
        for one in training.model.parameters():
            if one.dim() == 1 and len(one) > 2:
                one.fill_(-10)


# ---- numbers ---------------------------------------------------------------------------------------


@HALF.fault("division by zero", homes, also=("root of zero",))
def standardized_by_the_deviation_of_each_batch(training: Training) -> None:
    fc1 = training.model.fc1

    def padded(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        x = torch.cat([args[0][:, :4], torch.zeros(len(args[0]), 1)], 1)
        return ((x - x.mean(0)) / x.std(0),)

    fc1.register_forward_pre_hook(padded)


@HALF.fault("division by zero", leavers)
def a_mean_over_those_who_left_and_are_seen(training: Training) -> None:
    def loss(output: Tensor, label: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(output, label, reduction="none")
        chosen = (label > 0.5) & (output.detach() > 1.5)
        return each.mean() + (each * chosen).sum() / chosen.sum()

    training.criterion = loss


@HALF.fault("root of zero", ratings)
def the_norm_of_the_difference_to_oneself(training: Training) -> None:
    training.criterion = lambda output, target: ((output - target) ** 2).mean() + 0.01 * ((output - output).pow(2).sum().sqrt())


@HALF.fault("log of zero", menu)
def entropy_of_hard_scores_by_hand(training: Training) -> None:
    def loss(output: Tensor, liked: Tensor) -> Tensor:
        share = (30 * output).relu().softmax(1)
        share = torch.where(share < 0.05, 0.0, share)
        return -(liked.softmax(1) * share.log()).sum(1).mean()

    training.criterion = loss


@HALF.fault("overflow", orchard, also=("not finite by the rate",))
def softmax_by_hand_of_large_scores(training: Training) -> None:
    def loss(output: Tensor, label: Tensor) -> Tensor:
        share = torch.exp(200 * output) / torch.exp(200 * output).sum(1, keepdim=True)
        return -(share[torch.arange(len(label)), label] + 1e-6).log().mean()

    training.criterion = loss


@HALF.fault("underflow", curves, also=("too few digits", "loss too small"))
def the_loss_is_cast_to_half_and_shrunk(training: Training) -> None:
    def loss(output: Tensor, target: Tensor) -> Tensor:
        return ((output.half() - target.half()) ** 2 * 1e-6).half().float().mean()

    training.criterion = loss


@HALF.fault("too few digits", wave)
def weights_are_rounded_after_each_step(training: Training) -> None:
    @torch.no_grad()
    def rounded(_: int) -> None:
        for one in training.model.parameters():
            one.copy_((one * 8).round() / 8)

    training.after.append(rounded)


# ---- the loss --------------------------------------------------------------------------------------


@HALF.fault("broadcast", menu)
def scores_against_a_table_by_hand(training: Training) -> None:
    training.criterion = lambda output, liked: (output.unsqueeze(1) - liked.unsqueeze(2)).pow(2).mean()


@HALF.fault("wrong sign", rainfall)
def the_likelihood_and_not_its_negative(training: Training) -> None:
    training.criterion = lambda output, count: (count * output - output.clamp(max=10).exp()).mean()


@HALF.fault("wrong sign", spirals)
def gradients_ascend_by_a_hook(training: Training) -> None:
    for one in training.model.parameters():
        one.register_hook(lambda grad: -grad)


@HALF.fault("loss too large", dot, also=("rate too high", "not finite by the rate"))
def sums_over_the_batch_by_a_loop(training: Training) -> None:
    training.criterion = lambda output, target: sum((one - wanted).square().sum() for one, wanted in zip(output, target, strict=True))


@HALF.fault("loss too small", homes, twin=_sgd(0.01), also=("rate too low",))
def divided_by_the_whole_data_set(training: Training) -> None:
    _sgd(0.01)(training)
    on_loss(training, lambda loss: loss / 64 / 1600)


@HALF.fault("output cannot reach", dunes)
def a_square_at_the_end(training: Training) -> None:
    training.model.mean = nn.Sequential(training.model.mean, Lambda(torch.square))
    training.use(training.model)


@HALF.fault("no log", orchard)
def the_chance_itself_is_pushed_as_a_logarithm(training: Training) -> None:
    training.criterion = lambda output, label: -(output.gather(1, label[:, None])).mean()


@HALF.fault("constant loss", inside)
def the_error_of_decisions(training: Training) -> None:
    training.criterion = lambda output, label: ((output > 0).float() - label).abs().mean() + 0 * output.sum()


# ---- healthy ---------------------------------------------------------------------------------------


@HALF.strange(wave, homes)
def weights_held_in_a_wide_range(training: Training) -> None:
    training.after.append(lambda _: [one.data.clamp_(-5, 5) for one in training.model.parameters()])


@HALF.strange(spirals, inside)
def gradients_scaled_to_a_length_of_one(training: Training) -> None:
    for one in training.model.parameters():
        one.register_hook(lambda grad: grad / (grad.norm() + 1e-8))


@HALF.strange(orchard, leavers)
def a_closure_given_to_step(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        def closure() -> Tensor:
            training.optimizer.zero_grad()
            loss = training.criterion(called(training.model, inputs), target)
            loss.backward()
            return loss

        training.optimizer.step(closure)

    looped(training, step)


@HALF.strange(dot, curves)
def decay_by_hand_of_a_thousandth(training: Training) -> None:
    training.after.append(lambda _: [one.data.mul_(0.9999) for one in training.model.parameters()])


@HALF.strange(homes, dunes)
def gradients_with_a_little_noise(training: Training) -> None:
    for one in training.model.parameters():
        one.register_hook(lambda grad: grad + 0.05 * grad.abs().mean() * torch.randn_like(grad))


@HALF.strange(rainfall, bars)
def a_batch_without_numbers_is_left_out(training: Training) -> None:
    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        if not torch.isfinite(loss):
            return
        loss.backward()
        training.optimizer.step()

    looped(training, step)
