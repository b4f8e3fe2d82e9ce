"""The graph of a loss is read as PyTorch has built it, and the loss is computed once more with the same value."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modlab.running import criterion, loss_graph

ROWS, CLASSES = 12, 5


def net() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(ROWS, 3)
    return x, nn.Linear(3, CLASSES)(x)


LABEL = torch.arange(ROWS) % CLASSES
NUMBERS = torch.linspace(-1, 1, ROWS * CLASSES).reshape(ROWS, CLASSES)
CRITERIA = {
    "cross-entropy": lambda out: F.cross_entropy(out, LABEL),
    "cross-entropy summed": lambda out: F.cross_entropy(out, LABEL, reduction="sum"),
    "cross-entropy with an ignored class": lambda out: F.cross_entropy(out, LABEL, ignore_index=2),
    "cross-entropy with weights": lambda out: F.cross_entropy(out, LABEL, weight=torch.arange(1.0, CLASSES + 1)),
    "likelihood": lambda out: F.nll_loss(out, LABEL),
    "squared error": lambda out: F.mse_loss(out, NUMBERS),
    "absolute error": lambda out: F.l1_loss(out, NUMBERS),
    "smooth error": lambda out: F.smooth_l1_loss(out, NUMBERS),
    "binary cross-entropy with logits": lambda out: F.binary_cross_entropy_with_logits(out, NUMBERS.sigmoid()),
}


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("factor", [1.0, -0.25])
def test_a_criterion_is_known_and_computed_once_more(name, factor):
    _, out = net()
    value = factor * CRITERIA[name](out)
    (found,) = loss_graph.read(value, {out.grad_fn: "last"})
    assert name.startswith(found.term.criterion) and found.term.source == "last"
    assert math.isclose(found.term.factor, factor)
    assert found.term.reduction == ("sum" if "summed" in name else "mean")
    again = criterion.rebuilt(found, found.way, out, value.item())
    if name != "absolute error":  # whose function in the graph has not saved the target
        assert again is not None and again(out, found.target).item() == pytest.approx(value.item())


BEHIND = {
    "one of the outputs": lambda out: F.mse_loss(out[:, -1], NUMBERS[:, 0]),
    "one output of each": lambda out: F.smooth_l1_loss(out.gather(1, LABEL[:, None]).squeeze(1), NUMBERS[:, 0]),
    "some of the rows": lambda out: F.cross_entropy(out[LABEL != 2], LABEL[LABEL != 2]),
    "rows by number": lambda out: F.cross_entropy(out[torch.tensor([5, 1, 2])], LABEL[torch.tensor([5, 1, 2])]),
    "more digits": lambda out: F.cross_entropy(out.double(), LABEL),
    "fewer digits": lambda out: F.cross_entropy(out.bfloat16().float(), LABEL),
}
SMOOTHED = {
    "a mean": lambda out: F.cross_entropy(out, LABEL, label_smoothing=0.2),
    "a sum": lambda out: F.cross_entropy(out, LABEL, label_smoothing=0.1, reduction="sum"),
    "with weights": lambda out: F.cross_entropy(out, LABEL, torch.arange(1.0, CLASSES + 1), label_smoothing=0.1),
    "with an ignored class": lambda out: F.cross_entropy(out, LABEL, ignore_index=2, label_smoothing=0.3),
}


@pytest.mark.parametrize("name", [*BEHIND, *SMOOTHED])
def test_what_lies_between_the_output_and_a_criterion_is_done_once_more(name):
    _, out = net()
    value = (BEHIND | SMOOTHED)[name](out)
    found = loss_graph.read(value, {out.grad_fn: "last"})
    smoothed = criterion.smoothing(found)
    assert bool(smoothed) == (name in SMOOTHED)
    again = criterion.rebuilt(found[0], found[0].way, out, value.item(), smoothed)
    assert again is not None and again(out, found[0].target).item() == pytest.approx(value.item())


def test_another_sum_is_no_smoothed_cross_entropy():
    _, out = net()
    value = 0.8 * F.cross_entropy(out, LABEL) + 0.2 * out.sum(1).mean()
    found = loss_graph.read(value, {out.grad_fn: "last"})
    smoothed = criterion.smoothing(found)
    assert not smoothed or criterion.rebuilt(found[0], found[0].way, out, value.item(), smoothed) is None


ONE_HOT = F.one_hot(LABEL, CLASSES)
MASK = (LABEL != 3).float()
WRITTEN = {
    "cross-entropy picked by gather": lambda out: -out.log_softmax(-1).gather(1, LABEL[:, None]).squeeze(1).mean(),
    "cross-entropy picked by an index": lambda out: -out.log_softmax(1)[torch.arange(ROWS), LABEL].mean(),
    "cross-entropy times one-hot": lambda out: -(ONE_HOT * out.log_softmax(1)).sum(1).mean(),
    "cross-entropy of probabilities": lambda out: -out.softmax(1)[torch.arange(ROWS), LABEL].log().mean(),
    "cross-entropy of a sequence": lambda out: -out.view(3, 4, CLASSES).log_softmax(-1).gather(-1, LABEL.view(3, 4, 1)).mean(),
    "cross-entropy, masked": lambda out: (F.cross_entropy(out, LABEL, reduction="none") * MASK).sum() / MASK.sum(),
    "binary cross-entropy": lambda out: -(SHARES * out.sigmoid().log() + (1 - SHARES) * (1 - out.sigmoid()).log()).mean(),
}
SHARES = NUMBERS.sigmoid()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_criterion_that_is_written_out_is_known_with_its_targets(name):
    _, out = net()
    value = WRITTEN[name](out)
    (found,) = loss_graph.read(value, {out.grad_fn: ""})
    assert name.startswith(found.term.criterion) and found.term.criterion and found.term.factor > 0
    target = LABEL if found.term.criterion == "cross-entropy" else SHARES
    if "masked" in name:
        target = target.masked_fill(MASK == 0, found.ignored)
    assert torch.equal(found.target.flatten(), target.flatten())
    if "masked" not in name:
        again = criterion.rebuilt(found, found.way, out, value.item())
        assert again is not None and again(out, found.target).item() == pytest.approx(value.item())


@pytest.mark.parametrize(
    ("function", "name"), [(torch.softmax, "Softmax"), (lambda out, _: out.sigmoid(), "Sigmoid"), (lambda out, _: out.relu(), "Relu")]
)
def test_functions_between_the_output_and_the_loss_are_seen(function, name):
    _, out = net()
    (found,) = loss_graph.read(F.cross_entropy(function(out, 1), LABEL), {out.grad_fn: ""})
    assert [one.name for one in found.term.functions] == ["LogSoftmax", name]


def test_an_activation_inside_of_the_model_is_its_ending():
    _, out = net()
    last = out.tanh()
    (found,) = loss_graph.read(F.mse_loss(last, NUMBERS), {last.grad_fn: ""})
    assert found.term.functions == () and found.term.ending[0].name == "Tanh"


def test_summands_are_told_apart_from_a_penalty():
    x, _ = net()
    layer = nn.Linear(3, CLASSES)
    out = layer(x)
    loss = F.cross_entropy(out, LABEL) + 0.1 * layer.weight.square().sum()
    terms = [one.term for one in loss_graph.read(loss, {out.grad_fn: ""})]
    assert [one.criterion for one in terms] == ["cross-entropy", "penalty"]


def test_a_mean_of_sums_is_a_mean():
    _, out = net()
    loss = (out - NUMBERS).square().sum(1).mean()
    (found,) = loss_graph.read(loss, {out.grad_fn: ""})
    assert (found.term.reduction, found.term.factor) == ("mean", CLASSES)
    assert loss.item() == pytest.approx(found.term.factor * F.mse_loss(out, NUMBERS).item())


def test_what_is_packed_is_not_unpacked():
    opened: list[torch.Tensor] = []
    x, _ = net()

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        opened.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        out = nn.Linear(3, CLASSES)(x)
        loss = F.cross_entropy(out, LABEL)
    (found,) = loss_graph.read(loss, {out.grad_fn: ""})
    loss_graph.risks(loss)
    assert found.output is None and not opened


@pytest.mark.parametrize(
    ("loss", "risk"),
    [
        (lambda x: (x - x.detach()).sum().exp() * 0 + (x - x.detach()).abs().add(0).log().mean(), "log of zero"),
        (lambda x: (x - x.detach()).square().sum().sqrt(), "root of zero"),
        (lambda x: (x / (x.detach() * 0)).mean(), "division by zero"),
        (lambda x: (x * 0 + 1e4).exp().mean(), "overflow"),
    ],
    ids=["log", "root", "division", "overflow"],
)
def test_what_makes_a_loss_no_number(loss, risk):
    x = torch.ones(3, requires_grad=True)
    assert risk in loss_graph.risks(loss(x))
    assert not loss_graph.risks(x.square().mean())
