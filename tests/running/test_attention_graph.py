"""Attention is found in a graph, whoever has written it, and what its weights say is what its mask says."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from modlab.running.attention_graph import attentions
from modlab.running.autograd_nodes import walk
from modlab.watching import attention_clues
from modlab.watching.attention_clues import facts

LENGTH, TOKENS, WIDTH = 8, 10, 16
LATER = torch.ones(LENGTH, LENGTH).triu(1).bool()
MASKS = {"none": None, "causal": LATER, "turned": LATER.T}


class Attending(nn.Module):
    def __init__(self, *, positions: bool, fused: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH) if positions else None
        self.projection, self.last = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, TOKENS)
        self.dropout, self.fused = nn.Dropout(dropout), fused

    def forward(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        x = self.tokens(ids)
        x = self.dropout(x if self.positions is None else x + self.positions.weight)
        query, key, value = (one.unflatten(-1, (2, -1)).transpose(1, 2) for one in self.projection(x).chunk(3, -1))
        if self.fused:
            found = F.scaled_dot_product_attention(query, key, value, None if mask is None else ~mask)
        else:
            scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH / 2)
            found = (scores if mask is None else scores.masked_fill(mask, -math.inf)).softmax(-1) @ value
        return self.last(found.transpose(1, 2).flatten(2))


def looked(model: nn.Module, mask: Tensor | None, ids: Tensor) -> dict[str, object]:
    out = model(ids, mask)
    (found,) = attentions(walk(F.cross_entropy(out.flatten(0, 1), ids.flatten()).grad_fn, {out.grad_fn: "here"}))
    assert found.path == "here"
    return facts(found, [ids])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_where_positions_look(mask, fused):
    closed = MASKS[mask]
    if mask == "turned":
        closed = closed.clone()
        closed[0] = False  # a row without anything to look at is NaN
    told = looked(Attending(positions=True, fused=fused), closed, torch.randint(1, TOKENS, (4, LENGTH)))
    assert (told["later"] < 1e-6) is (mask == "causal")
    assert (told["earlier"] < 1e-6) is (mask == "turned")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("positions", [False, True])
def test_whether_order_can_count(positions, fused):
    model = Attending(positions=positions, fused=fused, dropout=0.3)
    assert looked(model, None, torch.randint(1, TOKENS, (4, LENGTH)))["ordered"] is positions


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_what_a_mask_leaves_of_padding(turned, fused):
    ids = torch.randint(1, TOKENS, (4, LENGTH))
    for row, length in enumerate((3, 5, 6, 8)):
        ids[row, length:] = 0
    closed = (ids == 0)[:, None, None]
    if turned:
        closed = ~closed
        closed[3] = False  # it has no padding to look at
    told = looked(Attending(positions=True, fused=fused), closed, ids)
    assert (told["padding"] < 1e-6) is not turned
    assert (told["real"] < told["padding"]) is turned


def test_of_layers_only_the_first_is_asked_for_positions():
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
    stack = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    found = attentions(walk(stack(torch.randn(4, LENGTH, WIDTH)).sum().grad_fn, {}))
    assert len(found) == 3 and sum(one.ordered is False for one in found) == 1


def test_attention_to_another_sequence_is_left_out():
    layer = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
    other = torch.randn(4, LENGTH + 3, WIDTH)
    assert not attentions(walk(layer(torch.randn(4, LENGTH, WIDTH), other, other)[0].sum().grad_fn, {}))


@pytest.mark.parametrize("samples", [4, 64])
def test_of_many_weights_some_samples_are_looked_at(samples, monkeypatch):
    monkeypatch.setattr(attention_clues, "MOST", 4 * 2 * LENGTH * LENGTH)
    ids = torch.randint(1, TOKENS, (samples, LENGTH))
    ids[:, -1] = 0
    ids[0, 3:] = 0
    told = looked(Attending(positions=True, fused=False), (ids == 0)[:, None, None], ids)
    assert told["padding"] < 1e-6 < told["real"] and told["positions"] == LENGTH


def test_too_many_weights_are_left_alone(monkeypatch):
    monkeypatch.setattr(attention_clues, "MOST", 1)
    told = looked(Attending(positions=True, fused=False), None, torch.randint(1, TOKENS, (4, LENGTH)))
    assert told["positions"] == LENGTH and "later" not in told
