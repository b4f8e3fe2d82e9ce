"""Faults of the loss and of the last layer."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from bench.sick.changes import on_loss, on_options, on_output, on_target
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import bars, counting, curves, dot, inside, inside_data, marked, ratings, recall, recall_data, spirals, wave


@HALF.fault("broadcast", wave, marked)
def target_without_its_last_dimension(training: Training) -> None:
    on_target(training, lambda target: target.squeeze(1))


@HALF.fault("broadcast", ratings)
def target_with_one_dimension_more(training: Training) -> None:
    on_target(training, lambda target: target.unsqueeze(1))


def _plain_sgd(training: Training) -> None:
    """Adam takes steps of its own size, however small a gradient is; this does not."""
    training.optimize = partial(torch.optim.SGD, lr=0.3, momentum=0.9)
    training.use(training.model)


@HALF.fault("softmax before cross entropy", recall, twin=_plain_sgd)
def model_ends_in_a_softmax(training: Training) -> None:
    _plain_sgd(training)
    head = training.model[-1] if isinstance(training.model, nn.Sequential) else training.model.head
    head.register_forward_hook(lambda *call: call[2].softmax(-1))


@HALF.fault("softmax over the wrong dimension", counting)
def softmax_over_the_positions(training: Training) -> None:
    training.criterion = lambda output, label: F.nll_loss(torch.log_softmax(output, 1).transpose(1, 2), label)


def _careful_sgd(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=0.05, momentum=0.9)
    training.use(training.model)


def _sigmoid_last(training: Training) -> None:
    training.use(nn.Sequential(*training.model, nn.Sigmoid()))


@HALF.fault("sigmoid twice", inside, twin=_careful_sgd)
def model_ends_in_a_sigmoid(training: Training) -> None:
    _careful_sgd(training)
    _sigmoid_last(training)

    def quality(net: nn.Module) -> float:
        x, label = inside_data(500)
        return ((net(x) > 0.5).float() != label).float().mean().item()

    training.quality = quality


@HALF.fault("no log", spirals, bars, recall)
def likelihood_of_logits(training: Training) -> None:
    training.criterion = F.nll_loss


@HALF.fault("one logit", inside)
def cross_entropy_of_one_logit(training: Training) -> None:
    training.criterion = F.cross_entropy


@HALF.fault("one logit", spirals)
def one_output_and_class_zero(training: Training) -> None:
    *body, _ = training.model
    training.use(nn.Sequential(*body, nn.Linear(48, 1)))
    on_target(training, lambda label: (label > 5).long())


@HALF.fault("wrong sign", spirals, wave, marked)
def loss_is_negated(training: Training) -> None:
    on_loss(training, lambda loss: -loss)


@HALF.fault("wrong sign", ratings)
def optimizer_maximizes(training: Training) -> None:
    on_options(training, maximize=True)


@HALF.fault("loss too small", wave, dot)
def loss_divided_by_a_million(training: Training) -> None:
    on_loss(training, lambda loss: loss / 1e6)


@HALF.fault("loss too large", wave, dot, also=("rate too high", "not finite by the rate"))
def loss_summed_over_the_batch(training: Training) -> None:
    training.criterion = lambda output, target: F.mse_loss(output, target, reduction="sum")


@HALF.fault("output cannot reach", dot, wave)
def relu_behind_the_last_layer(training: Training) -> None:
    training.use(nn.Sequential(*training.model, nn.ReLU()))
    on_target(training, lambda target: target - 1)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(x) + 1)


@HALF.fault("output cannot reach", curves, marked)
def sigmoid_behind_the_last_layer(training: Training) -> None:
    last = training.model.decoder if hasattr(training.model, "decoder") else training.model
    last.register_forward_hook(lambda *call: call[2].sigmoid())


@HALF.fault("regression of classes", recall)
def squared_error_of_the_class_number(training: Training) -> None:
    training.model.head = nn.Linear(32, 1)
    training.use(training.model)
    training.criterion = lambda output, label: F.mse_loss(output.squeeze(1), label.float())

    def quality(net: nn.Module) -> float:
        x, label = recall_data(512)
        return (net(x).squeeze(1).round() != label).float().mean().item()

    training.quality = quality


@HALF.fault("weights of classes", spirals, bars)
def one_class_weighs_nearly_all(training: Training) -> None:
    weight = torch.full((len(training.model[-1].bias),), 1e-4)
    weight[0] = 1
    training.criterion = lambda output, label: F.cross_entropy(output, label, weight=weight)


@HALF.fault("weights of classes", inside)
def positive_weight_upside_down(training: Training) -> None:
    training.criterion = lambda output, label: F.binary_cross_entropy_with_logits(output, label, pos_weight=torch.tensor(1e-3))


@HALF.fault("constant loss", curves)
def target_against_itself(training: Training) -> None:
    on_output(training, lambda output: output * 0)


@HALF.fault("constant loss", bars)
def loss_of_clamped_logits(training: Training) -> None:
    on_output(training, lambda output: output.clamp(-1e-7, 1e-7))
