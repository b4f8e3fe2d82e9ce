"""Shares of the samples of a batch: of each sample, which goes on to the same one, or of all of them as one set."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from modlab.running import attention_graph
from modlab.running.autograd_nodes import walk
from tests.causes.test_scores import Way, classes, trained
from tests.causes.test_sequences import kinds

GRID = torch.randn(6, 2)

KEPT: dict[str, tuple[Way, bool]] = {
    "a product of matrices": (lambda w: w @ GRID, True),
    "turned around": (lambda w: (GRID.T @ w.T).T, True),
    "einsum": (lambda w: torch.einsum("np,pd->nd", w, GRID), True),
    "sums of products": (lambda w: (w * GRID[:, 0]).sum(-1), True),
    "a batch of products": (lambda w: (w.unsqueeze(1) @ GRID.expand(5, 6, 2)).squeeze(1), True),
    "viewed as a picture": (lambda w: w.view(5, 2, 3).sum((1, 2)), True),
    "pooled": (lambda w: (w[:, :1] * torch.ones(5, 3)).sum(0), False),
    "pooled by a product": (lambda w: w.T @ torch.ones(5, 3), False),
    "pooled by an einsum": (lambda w: torch.einsum("np,nd->pd", w, torch.ones(5, 3)), False),
    "all of it": (lambda w: w.square().sum(), False),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_shared_out_over_samples_and_goes_on_to_each(name):
    way, kept = KEPT[name]
    shares = (torch.ones(5, 6, requires_grad=True) * 1).softmax(0)
    found = attention_graph.shares(walk(way(shares).sum().grad_fn, {}))
    assert [one.kept for one in found] == [kept]


class Elements(nn.Module):
    """Shares of the samples of a batch: of a gate of each, or of all of them as one set."""

    def __init__(self, pools: bool) -> None:
        super().__init__()
        self.score, self.out, self.pools = nn.Linear(4, 4), nn.Linear(4, 3), pools

    def forward(self, x: Tensor) -> Tensor:
        shares = self.score(x).softmax(0)
        mixed = (shares * x).sum(0, keepdim=True) + x if self.pools else (shares * x).sum(1, keepdim=True) + x
        return self.out(mixed) + 30 * x[:, :3]


@pytest.mark.parametrize("pools", [True, False])
def test_samples_that_compete_are_told_where_it_is_learnt_even_so(pools):
    torch.manual_seed(0)
    w = trained(Elements(pools), classes, F.cross_entropy)
    assert ("softmax over the wrong dimension" in kinds(w)) is not pools
