"""Gains that enter a loss with the wrong sign: overlaps, likenesses, and what rewards weigh."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.watch import Watch

SIGNS = pytest.mark.parametrize("sign", [1, -1], ids=["gain", "loss"])
TEACHER = torch.randn(10, 4, generator=torch.Generator().manual_seed(5))


def trained(outputs: int, loss: Callable[[Tensor, Tensor], Tensor]) -> Watch:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, outputs))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            x = torch.randn(64, 10)
            optimizer.zero_grad()
            loss(model(x), x @ TEACHER).backward()
            optimizer.step()
    return w


def turned(w: Watch) -> list[object]:
    return [one.facts["how"] for one in w.findings if one.kind == "wrong sign"]


def dice(logits: Tensor, seen: Tensor) -> Tensor:
    chances, mask = logits.sigmoid(), (seen > 0).float()
    return (2 * (chances * mask).sum(1) + 1) / (chances.sum(1) + mask.sum(1) + 1)


def jaccard(logits: Tensor, seen: Tensor) -> Tensor:
    chances, mask = logits.sigmoid(), (seen > 0).float()
    both = (mask * chances).sum()
    return both / (chances.sum() + mask.sum() - both)


@SIGNS
@pytest.mark.parametrize("overlap", [dice, jaccard])
@pytest.mark.parametrize("beside", [0, 1], ids=["alone", "beside a cross-entropy"])
def test_an_overlap(overlap, sign, beside):
    def loss(logits: Tensor, seen: Tensor) -> Tensor:
        entropy = F.binary_cross_entropy_with_logits(logits, (seen > 0).float())
        gain = sign * overlap(logits, seen).mean()
        return gain + entropy if beside else gain

    w = trained(4, loss)
    assert turned(w) == (["overlap"] if sign == 1 else [])
    assert ("1 - overlap as the loss" in str(w)) is (sign == 1)


@SIGNS
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_likeness_to_targets(sign, by_hand):
    def loss(output: Tensor, seen: Tensor) -> Tensor:
        if by_hand:
            return sign * (F.normalize(output, dim=1) * F.normalize(seen, dim=1)).sum(1).mean()
        return sign * F.cosine_similarity(output, seen).mean()

    assert turned(trained(4, loss)) == (["likeness"] if sign == 1 else [])


def test_what_is_unlike_may_be_pushed_away_beside_what_is_alike():
    def loss(output: Tensor, seen: Tensor) -> Tensor:
        unlike = F.cosine_similarity(output, seen.roll(1, 0)).mean()
        return 0.1 * unlike + (1 - F.cosine_similarity(output, seen)).mean()

    assert not turned(trained(4, loss))


def acted(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What was picked, the logarithms of its chances, and these as they were before."""
    spread = torch.distributions.Categorical(logits=logits)
    action = spread.sample()
    return action, spread.log_prob(action), spread.log_prob(action).detach() + 0.1 * torch.randn(len(logits))


@SIGNS
def test_a_clipped_gain(sign):
    def loss(logits: Tensor, seen: Tensor) -> Tensor:
        action, now, before = acted(logits)
        gain, ratio = (action == seen.argmax(1)).float() - 0.3, (now - before).exp()
        return sign * torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()

    assert turned(trained(4, loss)) == (["clipped gain"] if sign == 1 else [])


@SIGNS
@pytest.mark.parametrize("centred", [False, True])
def test_what_rewards_weigh(sign, centred):
    def loss(logits: Tensor, seen: Tensor) -> Tensor:
        action, now, _ = acted(logits)
        reward = (action == seen.argmax(1)).float() - 0.3 * centred
        return sign * (now * reward).mean()

    w = trained(4, loss)
    assert turned(w) == (["rewarded"] if sign == 1 and not centred else [])  # of centred ones nobody knows the sign
    assert w.verdict.ok
