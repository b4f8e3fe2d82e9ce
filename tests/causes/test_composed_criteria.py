"""Criteria that autograd sees as several functions, and what the table says of losses made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.records.clues import PairClues
from modlab.running import criterion, loss_graph
from modlab.watching.pairs import pair_clues
from modlab.watching.pools import InputPool

COUNTS = torch.tensor([[0.0], [1.0], [4.0], [2.0]])
SIDES = torch.tensor([[1.0], [-1.0], [-1.0], [1.0]])


def out(columns: int = 1) -> Tensor:
    torch.manual_seed(0)
    return nn.Linear(3, columns)(torch.randn(4, 3))


def found(loss: Tensor, output: Tensor) -> loss_graph.Found:
    return loss_graph.read(loss, {output.grad_fn: "last"})[0]


def pinball(one: Tensor, target: Tensor, q: float = 0.9) -> Tensor:
    error = target - one
    return torch.max((q - 1) * error, q * error).mean()


@pytest.mark.parametrize(
    ("loss", "criterion", "factor"),
    [
        (lambda one: F.poisson_nll_loss(one, COUNTS), "counts by logarithms", 1),
        (lambda one: F.poisson_nll_loss(one, COUNTS, full=True), "counts by logarithms", 1),
        (lambda one: (COUNTS * one - one.exp()).mean(), "counts by logarithms", -1),
        (lambda one: F.poisson_nll_loss(one.exp(), COUNTS, log_input=False), "counts by rates", 1),
        (lambda one: pinball(one, COUNTS), "quantile error", 1),
        (lambda one: torch.clamp(1 - SIDES * one, min=0).mean(), "signs", 1),
        (lambda one: F.relu(1 - one * SIDES).mean(), "signs", 1),
        (lambda one: (1e-5 * torch.ones(4, 1) * F.mse_loss(one, COUNTS, reduction="none")).mean(), "squared error", 1e-5),
        (lambda one: F.huber_loss(one, COUNTS, delta=0.01), "smooth error", 0.01),
        (lambda one: pinball(one, COUNTS, 9), "", 1),  # a percent is no quantile
        (lambda one: F.relu(1 - one * torch.ones(4, 1)).mean(), "", 1),
        (lambda one: F.margin_ranking_loss(one, one.flip(0), SIDES, margin=0.5), "", 1),
    ],
)
def test_what_is_read(loss: Callable[[Tensor], Tensor], criterion: str, factor: float):
    output = out()
    term = found(loss(output), output).term
    assert (term.criterion, term.source) == (criterion, "last") and math.isclose(term.factor, factor, rel_tol=1e-6)


@pytest.mark.parametrize("by_logarithm", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_of_counts_is_computed_once_more(by_logarithm: bool, reduction: str):
    output = out()
    loss = F.poisson_nll_loss(output if by_logarithm else output.exp(), COUNTS, log_input=by_logarithm, eps=0.0, reduction=reduction)
    one = found(loss, output)
    again = criterion.rebuilt(one, one.way, output, loss.item()) if by_logarithm else None
    assert torch.equal(one.target, COUNTS) and torch.allclose(one.output, output if by_logarithm else output.exp())
    assert not by_logarithm or again(output, COUNTS).item() == pytest.approx(loss.item())


def test_labels_of_zero_are_in_no_side_of_a_cosine():
    output, same = out(6), torch.tensor([1.0, 0.0, 0.0, 1.0])
    one = found(F.cosine_embedding_loss(output[:, :3], output[:, 3:], same), output)
    assert one.term.criterion == "signs" and torch.equal(one.target, same)


# ---- watched


def causes(loss: Callable[[Tensor, Tensor], Tensor], target: Callable[[Tensor], Tensor], last: nn.Module | None = None) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1), *([last] if last else []))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with modlab.watch(model, optimizer) as w:
        for _ in range(80):
            x = torch.randn(64, 4)
            optimizer.zero_grad()
            loss(model(x), target(x)).backward()
            optimizer.step()
    return [one.kind for one in w.verdict.findings if "tier" in one.facts]


def counted(x: Tensor) -> Tensor:
    return torch.poisson((x[:, :1] - 0.5).exp())


def side(x: Tensor) -> Tensor:
    return (x[:, :1] + 0.5 * x[:, 1:2] > 0).float()


@pytest.mark.parametrize(
    ("loss", "target", "last", "cause"),
    [
        (F.poisson_nll_loss, counted, None, None),
        (F.poisson_nll_loss, counted, nn.ReLU(), "output cannot reach"),
        (F.poisson_nll_loss, lambda x: counted(x) * 0, None, "constant targets"),
        (F.poisson_nll_loss, lambda x: counted(torch.randn_like(x)), None, "targets shuffled"),
        (lambda one, y: F.huber_loss(one, y, delta=1e-4), lambda x: x[:, :1] + x[:, 1:2], None, "loss too small"),
        (pinball, lambda x: x[:, :1] + x[:, 1:2], None, None),
        (pinball, lambda x: x[:, 0], None, "broadcast"),
        (lambda one, y: F.relu(1 - y * one).mean(), lambda x: 2 * side(x) - 1, None, None),
        (lambda one, y: F.relu(1 - y * one).mean(), side, None, "wrong negatives"),
        (F.binary_cross_entropy_with_logits, side, None, None),
        (F.binary_cross_entropy_with_logits, lambda x: 255 * side(x), None, "targets not scaled"),
        (
            lambda one, y: F.binary_cross_entropy_with_logits(one, y, weight=torch.where(y > 0, 0.01, 1.0)),
            lambda x: (x[:, :1] > 0.8).float(),
            None,
            "weights of classes",
        ),
    ],
)
def test_what_is_named(loss, target, last, cause):
    assert causes(loss, target, last)[:1] == ([cause] if cause else [])


def test_a_smoothing_of_all_leaves_nothing_of_the_label():
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        for _ in range(40):
            x = torch.randn(32, 4)
            optimizer.zero_grad()
            F.cross_entropy(model(x), x[:, :3].argmax(1), label_smoothing=1.0).backward()
            optimizer.step()
    assert w.verdict.findings[0].kind == "constant loss"


# ---- batches


def test_a_column_that_is_filled_afterwards_tells_the_answer():
    torch.manual_seed(0)
    yes = (torch.rand(64) < 0.4).float()
    x = torch.cat([torch.randn(64, 4), (yes * (0.5 + torch.rand(64)))[:, None]], 1)
    told = pair_clues([torch.randint(9, (64,)), x], yes, 0, PairClues())
    assert told.feature == 4 and told.itself
    assert not pair_clues([x[:, :4]], (x[:, 0] > 0).float(), 0, PairClues()).itself


def test_channels_that_were_last_are_woven_into_the_rows():
    torch.manual_seed(0)
    rows = torch.randn(32, 12, 1, 3) + 0.5 * torch.randn(32, 12, 12, 3)
    pools = {"moved": rows.permute(0, 3, 1, 2), "reshaped": rows.reshape(32, 3, 12, 12)}
    woven = {}
    for name, images in pools.items():
        pool = InputPool(name)
        pool.add(images, 0)
        woven[name] = pool.clues().woven
    assert woven["moved"] <= 0 < woven["reshaped"]


def one_hot(y: Tensor) -> Tensor:
    return F.one_hot(y, 5).float()


def of_tokens(output: Tensor, y: Tensor, **options: Any) -> Tensor:
    return F.cross_entropy(output.view(32, 5, 2), torch.stack((y, torch.where(y == 1, 0, y)), 1), **options)


@pytest.mark.parametrize(
    ("loss", "mean", "width"),
    [
        (partial(F.cross_entropy, reduction="sum"), F.cross_entropy, 5),
        (lambda output, y: F.cross_entropy(output, y, reduction="none").sum(), F.cross_entropy, 5),
        (lambda output, y: -F.log_softmax(output, 1).gather(1, y[:, None]).sum(), F.cross_entropy, 5),
        (lambda output, y: -(F.log_softmax(output, 1) * one_hot(y)).sum(), F.cross_entropy, 5),
        (lambda output, y: F.cross_entropy(output, y, reduction="sum") / 2, F.cross_entropy, 5),
        (partial(of_tokens, reduction="sum"), of_tokens, 10),
        (partial(of_tokens, reduction="sum", ignore_index=0), partial(of_tokens, ignore_index=0), 10),
        (lambda output, y: ((output - one_hot(y)) ** 2).sum(), lambda output, y: F.mse_loss(output, one_hot(y)), 5),
        (
            lambda output, y: F.binary_cross_entropy_with_logits(output, one_hot(y), reduction="sum"),
            lambda output, y: F.binary_cross_entropy_with_logits(output, one_hot(y)),
            5,
        ),
        (lambda output, y: 1000 * F.cross_entropy(output, y), F.cross_entropy, 5),
    ],
)
def test_how_much_too_large_a_loss_is_said_to_be_is_so(loss, mean, width):
    """The oracle is what PyTorch's own mean gives."""
    torch.manual_seed(0)
    model = nn.Linear(8, width)
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
    x, y = torch.randn(32, 8), torch.arange(32) % 5
    times = float((loss(model(x), y) / mean(model(x), y)).detach())
    with modlab.watch(model, optimizer) as w:
        for _ in range(30):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    found = next(one for one in w.findings if one.kind == "loss too large")
    assert found.facts["times"] == pytest.approx(times, rel=0.02)
