"""The misses of a score, as a page: what was said in place of the cause, and what a person would have looked at."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.sick.cases import Case
from bench.sick.score import Result

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "sick-misses.md"

LOOKS = {
    "no zero grad": "the norm of a gradient over the steps: it grows",
    "zeroed before step": "a gradient right before optimizer.step()",
    "no step": "a weight before and after a step",
    "no backward": "whether any parameter has a gradient",
    "never enough to step": "how often optimizer.step() is reached",
    "accumulated too loud": "the gradient of one batch beside that of all parts of it",
    "weights put back": "a weight before the step, after it, and before the next",
    "stale weights": "the output for one batch before a step and after it",
    "eval while training": "model.training in the loop",
    "clipped to nothing": "the gradient's norm before and after clipping",
    "gradients overwritten": "a gradient after backward() beside the one at the step",
    "rate too high": "the loss of the first steps with a tenth of the rate",
    "rate too low": "how far a step moves a weight, as a part of its size",
    "rate runs out": "the curve of the learning rate",
    "warmup never ends": "the curve of the learning rate",
    "too much momentum": "the loss with momentum=0.9",
    "too much decay": "the norm of the weights over the steps",
    "not in the optimizer": "the parameters of the optimizer beside those of the model",
    "another models optimizer": "whether the optimizer's tensors are the model's",
    "two optimizers": "which optimizers hold one parameter",
    "groups swapped": "the rate of each parameter group",
    "detached": "which parameters get a gradient, and grad_fn along the way",
    "without grad": "where torch.no_grad() is open",
    "frozen": "requires_grad of each parameter",
    "hidden layers": "model.named_parameters(): what is missing",
    "no gradient through": "the functions on the way that round, compare or pick",
    "unused layers": "which modules are called, and whether their output is used",
    "broadcast": "the shapes of output and target, and of their difference",
    "softmax before cross entropy": "the range of what goes into the loss",
    "softmax over the wrong dimension": "the sums of the probabilities along each dimension",
    "sigmoid twice": "the range of what goes into the loss",
    "no log": "whether exp of what goes into the loss adds up to 1",
    "one logit": "the shape of what goes into the loss",
    "wrong sign": "the loss of a right answer beside that of a wrong one",
    "loss too small": "the size of the loss and of its gradient",
    "loss too large": "the loss per sample, and the reduction",
    "output cannot reach": "the range of the last activation beside that of the targets",
    "regression of classes": "what the target's numbers stand for",
    "weights of classes": "each class's share of the weighted loss",
    "constant loss": "whether the loss changes when the output does",
    "targets shuffled": "ten inputs beside their targets",
    "targets shifted": "ten inputs beside their targets, and those of their neighbours",
    "constant targets": "the distinct values of a batch's targets",
    "same batch": "two batches in a row",
    "ordered batches": "the targets of a few batches",
    "imbalance": "how often each class comes",
    "inputs not scaled": "mean and standard deviation of a batch",
    "one huge feature": "the standard deviation of each feature",
    "inputs vanish": "mean and standard deviation of a batch",
    "constant inputs": "two samples of a batch",
    "targets not scaled": "mean and standard deviation of the targets",
    "leak": "the loss after leaving out one feature at a time",
    "too much noise": "an input, drawn, before and after augmentation",
    "wrong axes": "one sample, drawn, before and after reshaping",
    "not a number in data": "torch.isfinite of inputs and targets",
    "few samples": "len(dataset), and the loss on held-out data",
    "all weights equal": "the rows of a weight matrix",
    "weights begin too large": "the standard deviation of each layer's output at first",
    "weights begin too small": "the standard deviation of each layer's output at first",
    "vanishing gradient": "the gradient's norm, layer by layer",
    "dead units": "the share of zeros behind each activation",
    "no nonlinearity": "what stands between two linear layers",
    "bottleneck": "the sizes of the layers, one after the other",
    "too much dropout": "the share of zeros behind each dropout",
    "batch norm of one": "how many values a normalization averages",
    "batch norm statistics": "running_mean beside the mean of a batch; the loss in evaluation mode",
    "no bias where needed": "the output for an input of zeros",
    "overwritten activation": "each layer's output beside the next one's input",
    "shared by mistake": "whether two layers are one object",
    "sees the future": "whether output t moves when token t + 1 is changed",
    "targets not moved": "tokens beside targets, position by position",
    "mask turned around": "the attention weights of one sample",
    "padding counts": "the targets at the padding, and the loss without them",
    "padding idx of a token": "which token has the number padding_idx",
    "no positions": "whether outputs move with their tokens in another order",
    "batch first mixed up": "the shapes that each layer takes and gives",
    "state not kept": "the state that a recurrent layer is given at each step",
    "exploding recurrence": "the norm of the state over time",
    "tokens unknown": "the counts of the tokens of a batch",
    "not finite by the rate": "the loss of the steps before the first NaN",
    "log of zero": "what goes into each logarithm",
    "root of zero": "what goes into each root and norm",
    "division by zero": "each divisor",
    "overflow": "the largest number of each layer, and its dtype",
    "underflow": "the smallest gradients, and their dtype",
    "too few digits": "the dtype of the weights, and whether a step changes them",
    "scaler misused": "the gradients' size at the step, and the order of the scaler's calls",
    "discriminator wins": "both losses, and what the discriminator says of real and made ones",
    "generator detached": "whether the generator's parameters get a gradient",
    "latent ignored": "the divergence per sample, and outputs for different latents",
    "collapse": "the standard deviation of the outputs over a batch",
    "temperature": "the range of the scores that go into the softmax",
    "wrong negatives": "which pairs are positive and negative in one batch",
    "noise level hidden": "what else than the noisy sample goes into the model",
}
"""By the cause: what shows it to who looks."""


def page(way: str, seeds: int, results: Iterable[tuple[Case, Result]]) -> str:
    """The page of one way to ask: each sick case whose cause was not named first in the worst of the seeds."""
    missed = [(case, result) for case, result in results if case.cause and result.grade != "first"]
    rows = [
        f"| {case.name} | {case.cause} | {result.grade} | {result.said or '–'} | {LOOKS[case.cause]} |"
        for case, result in sorted(missed, key=lambda one: (one[0].cause, one[0].name))
    ]
    return "\n".join(
        (
            "# Sick trainings: the misses",
            "",
            f"Of the reported half, asked by *{way}* with {seeds} seeds: the {len(rows)} cases whose cause was not the first thing named",
            "with each seed, what was named (with the seed that went worst), and what a person would have looked at. How cases count is",
            "told in [sick.md](sick.md). `python -m bench.sick score --side reported --misses` writes this page.",
            "",
            "| case | cause | grade | named | what a person would have looked at |",
            "| --- | --- | --- | --- | --- |",
            *rows,
            "",
        )
    )
