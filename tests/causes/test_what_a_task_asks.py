"""What looks like a fault, and is how the task is: rare classes that the loss weighs more, sequences whose order may not matter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab


def kinds(net: nn.Module, batch: Callable[[], tuple[Tensor, Tensor]], criterion: Callable[[Tensor, Tensor], Tensor]) -> list[str]:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            inputs, target = batch()
            optimizer.zero_grad()
            criterion(net(inputs), target).backward()
            optimizer.step()
    return [one.kind for one in w.findings]


@pytest.mark.parametrize(("weight", "named"), [(None, True), (24.0, False), (1.1, True), (0.2, True)])
def test_a_rare_class_that_weighs_more_is_no_imbalance(weight, named):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        return torch.randn(50, 6), (torch.rand(50, 1) < 0.03).float()

    criterion = nn.BCEWithLogitsLoss(pos_weight=None if weight is None else torch.tensor(weight))
    told = kinds(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)), batch, criterion)
    assert ("imbalance" in told or "weights of classes" in told) is named


@pytest.mark.parametrize(("weights", "named"), [(None, True), ([0.35, 20.0, 20.0], False)])
def test_rare_classes_that_weigh_more_are_no_imbalance(weights, named):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        label = torch.randint(3, (64,)) * (torch.rand(64) < 0.05)
        return torch.randn(64, 6), label

    weight = None if weights is None else torch.tensor(weights)
    told = kinds(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), batch, lambda y, target: F.cross_entropy(y, target, weight))
    assert ("imbalance" in told) is named


class Attends(nn.Module):
    def __init__(self, pooled: bool) -> None:
        super().__init__()
        self.tokens, self.attention, self.head = nn.Embedding(9, 12), nn.MultiheadAttention(12, 2, batch_first=True), nn.Linear(12, 3)
        self.pooled = pooled

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x)
        h = self.attention(h, h, h)[0]
        return self.head(h.mean(1)) if self.pooled else self.head(h).transpose(1, 2)


@pytest.mark.parametrize("pooled", [True, False])
def test_one_label_for_a_whole_sequence_may_not_need_its_order(pooled):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        return torch.randint(9, (32, 10)), torch.randint(3, (32,) if pooled else (32, 10))

    assert ("no positions" in kinds(Attends(pooled), batch, F.cross_entropy)) is not pooled


@pytest.mark.parametrize("criterion", [F.huber_loss, F.smooth_l1_loss, F.l1_loss, F.mse_loss, lambda y, target: (y - target).abs().mean()])
@pytest.mark.parametrize("ordered", [False, True], ids=["tokens", "levels"])
def test_the_number_of_the_next_token_is_no_quantity_unless_tokens_are_levels(criterion, ordered):
    torch.manual_seed(0)
    table, rows = nn.Embedding(16, 12), nn.GRU(12, 24, batch_first=True)

    class Next(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.rows, self.head = table, rows, nn.Linear(24, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rows(self.table(x))[0])[..., 0]

    follows = torch.randperm(16)

    def batch() -> tuple[Tensor, Tensor]:
        x = [torch.randint(16, (32,))]
        for _ in range(12):
            moved = (
                x[-1] + torch.randint(-2, 3, (32,))
                if ordered
                else torch.where(torch.rand(32) < 0.7, follows[x[-1]], torch.randint(16, (32,)))
            )
            x.append(moved.clamp(0, 15))
        tokens = torch.stack(x, 1)
        return tokens[:, :-1], tokens[:, 1:].float()

    assert ("regression of classes" in kinds(Next(), batch, criterion)) is not ordered


class Series(nn.Module):
    def __init__(self, told: str, head: str, layer: bool) -> None:
        super().__init__()
        width = 3 if told == "time" else 2
        self.inside = nn.Conv1d(width, 12, 3, padding=1) if told == "neighbours" else nn.Linear(width, 12)
        self.places = nn.Parameter(torch.randn(8, 12)) if told == "places" else None
        self.layer = nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True) if layer else None
        self.qkv = None if layer else nn.Linear(12, 36)
        self.end, self.head = head, nn.Linear(96 if head == "each" else 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inside(x.transpose(1, 2)).transpose(1, 2) if isinstance(self.inside, nn.Conv1d) else self.inside(x)
        h = h if self.places is None else h + self.places
        if self.qkv is not None:
            q, k, v = self.qkv(h).chunk(3, -1)
            h = h + (q @ k.mT / 3).softmax(-1) @ v
        h = h if self.layer is None else self.layer(h)
        pooled = {"mean": lambda: h.mean(1), "last": lambda: h[:, -1], "each": lambda: h.flatten(1)}
        return self.head(pooled[self.end]())[:, 0]


@pytest.mark.parametrize(
    ("asked", "told", "head", "layer", "named"),
    [
        ("trend", "", "mean", False, True),
        ("trend", "", "mean", True, True),
        ("trend", "places", "mean", False, False),
        ("trend", "time", "mean", False, False),
        ("trend", "neighbours", "mean", False, False),
        ("trend", "", "each", False, False),
        ("last", "", "last", False, False),
        ("mean", "", "mean", False, False),
        ("spread", "", "mean", False, False),
        ("greatest", "", "mean", True, False),
        ("product", "", "mean", True, False),
        ("noise", "", "mean", False, False),
    ],
)
@pytest.mark.parametrize("rate", [1e-2, 1e-5])
def test_series_of_numbers_have_an_order_that_targets_may_ask_for(asked, told, head, layer, named, rate):
    torch.manual_seed(0)
    net = Series(told, head, layer)
    time = torch.linspace(-1, 1, 8)
    answers: dict[str, Callable[[Tensor], Tensor]] = {
        "trend": lambda x: (x[:, :, 0] * time).sum(1),
        "last": lambda x: x[:, -1, 1],
        "mean": lambda x: x.mean((1, 2)) * 3,
        "spread": lambda x: x[:, :, 0].std(1) * 3,
        "greatest": lambda x: x[:, :, 1].amax(1),
        "product": lambda x: x.prod(2).sum(1),
        "noise": lambda x: torch.randn(len(x)),
    }
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    with modlab.watch(net, optimizer) as w:
        for _ in range(80):
            x = torch.randn(64, 8, 2)
            y = answers[asked](x)
            x = torch.cat([x, time.expand(64, 8).unsqueeze(2)], 2) if told == "time" else x
            optimizer.zero_grad()
            F.mse_loss(net(x), y).backward()
            optimizer.step()
    assert ("no positions" in [one.kind for one in w.findings]) is named
