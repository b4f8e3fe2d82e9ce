"""Faults of autoencoders, GANs and contrastive losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import Views, chances, duel, elbo, info_nce, views


@HALF.fault("discriminator wins", duel)
def discriminator_steps_ten_times(training: Training) -> None:
    training.optimizer.param_groups[0]["lr"] = 1e-5
    training.others[0].param_groups[0]["lr"] = 0.05


@HALF.fault("discriminator wins", duel)
def discriminator_saturates(training: Training) -> None:
    """The generator minimizes log(1 - D), which is flat where D is sure."""

    def step(training: Training, number: int) -> None:
        real, _ = training.batch(number)
        net, bce = training.model, F.binary_cross_entropy_with_logits
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        for _ in range(3):
            training.others[0].zero_grad()
            (bce(net.discriminator(20 * real), ones) + bce(net.discriminator(20 * net(real).detach()), zeros)).backward()
            training.others[0].step()
        training.optimizer.zero_grad()
        (-bce(net.discriminator(20 * net(real)), zeros)).backward()
        training.optimizer.step()

    training.step = step
    for group in training.optimizer.param_groups:
        group["lr"], group["eps"] = 1e-3, 1e-2


@HALF.fault("generator detached", duel, also=("detached",))
def made_images_are_detached(training: Training) -> None:
    def step(training: Training, number: int) -> None:
        real, _ = training.batch(number)
        net, bce = training.model, F.binary_cross_entropy_with_logits
        made = net(real).detach()
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        training.others[0].zero_grad()
        (bce(net.discriminator(real), ones) + bce(net.discriminator(made), zeros)).backward()
        training.others[0].step()
        training.optimizer.zero_grad()
        bce(net.discriminator(made), ones).backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("latent ignored", chances)
def divergence_weighs_too_much(training: Training) -> None:
    training.criterion = lambda output, target: elbo(output, target, weight=20.0)


@HALF.fault("latent ignored", chances)
def divergence_summed_and_error_averaged(training: Training) -> None:
    training.criterion = lambda output, target: elbo(output, target, weight=float(len(target)))


@HALF.fault("collapse", views, also=("wrong negatives",))
def positives_alone(training: Training) -> None:
    training.criterion = lambda output, target: 1 - F.cosine_similarity(output[0], output[1]).mean()


@HALF.fault("collapse", views, also=("wrong negatives",))
def distance_of_pairs_without_a_norm(training: Training) -> None:
    training.use(Views(norm=False))
    training.criterion = lambda output, target: F.mse_loss(*output)


@HALF.fault("temperature", views)
def temperature_of_a_thousand(training: Training) -> None:
    training.criterion = lambda output, target: info_nce(output, target, 1000.0)


@HALF.fault("temperature", views)
def temperature_of_a_thousandth(training: Training) -> None:
    training.criterion = lambda output, target: info_nce(output, target, 1e-4)


@HALF.fault("wrong negatives", views)
def view_against_itself(training: Training) -> None:
    training.criterion = lambda output, target: info_nce((output[0], output[0]), target)


@HALF.fault("wrong negatives", views, also=("constant targets",))
def first_view_for_all(training: Training) -> None:
    training.criterion = lambda output, target: info_nce(output, target * 0)
