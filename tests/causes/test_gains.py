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


def by_criterion(given: Tensor, x: Tensor) -> Tensor:
    return -20 * F.mse_loss(given, x, reduction="none").sum(1)


def by_entropy(given: Tensor, x: Tensor) -> Tensor:
    return -F.binary_cross_entropy_with_logits(given, x, reduction="none").sum(1)


def by_distribution(given: Tensor, x: Tensor) -> Tensor:
    return torch.distributions.Normal(given, 0.5).log_prob(x).sum(1)


def by_learned_width(given: Tensor, x: Tensor) -> Tensor:
    return torch.distributions.Normal(given, given.std().exp()).log_prob(x).sum(1)


def by_bernoulli(given: Tensor, x: Tensor) -> Tensor:
    return torch.distributions.Bernoulli(logits=given).log_prob(x).sum(1)


def by_squares(given: Tensor, x: Tensor) -> Tensor:
    return -((given - x) ** 2).sum(1) / (2 * 0.3)


def by_logarithms(given: Tensor, x: Tensor) -> Tensor:
    chances = given.sigmoid()
    return (x * (chances + 1e-6).log() + (1 - x) * (1 - chances + 1e-6).log()).sum(1)


class Restores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(10, 8), nn.Linear(4, 10)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, logarithm = self.down(x).chunk(2, 1)
        return self.up(mean + torch.randn_like(mean) * (logarithm / 2).exp()), mean, logarithm


@SIGNS
@pytest.mark.parametrize("apart", [False, True], ids=["for each sample", "as means"])
@pytest.mark.parametrize(
    "likelihood", [by_criterion, by_entropy, by_distribution, by_learned_width, by_bernoulli, by_squares, by_logarithms]
)
def test_a_lower_bound(likelihood, apart, sign):
    torch.manual_seed(0)
    model = Restores()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with modlab.watch(model, optimizer) as w:
        for _ in range(40):
            x = (torch.randn(32, 10) > 0).float()
            given, mean, logarithm = model(x)
            restored, away = likelihood(given, x), 0.5 * (mean**2 + logarithm.exp() - 1 - logarithm).sum(1)
            optimizer.zero_grad()
            (sign * (restored.mean() - away.mean() if apart else (restored - away).mean())).backward()
            optimizer.step()
    assert bool(turned(w)) is (sign == 1)


class Acts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.width = nn.Linear(10, 3), nn.Parameter(torch.zeros(1, 3).expand(64, 3).clone())

    def forward(self, x: Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.mean(x), self.width.exp())


@pytest.mark.parametrize("drawn", [False, True], ids=["costs of what was done", "entropy of what is drawn"])
def test_a_policy_is_no_lower_bound(drawn):
    torch.manual_seed(0)
    model = Acts()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with modlab.watch(model, optimizer) as w:
        for _ in range(40):
            policy = model(torch.randn(64, 10))
            done = policy.rsample() if drawn else policy.sample()
            chance, cost = policy.log_prob(done).sum(1), (done - 1).square().sum(1)
            optimizer.zero_grad()
            (0.2 * chance + cost if drawn else chance * cost + 0.01 * chance).mean().backward()
            optimizer.step()
    assert not turned(w)
