"""What a loss of pairs does to those that belong together, and what else is read from the graph of a loss that is written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.records.clues import PairClues
from modlab.running import loss_graph, pair_losses
from modlab.watching.pairs import pair_clues

SIGNS = 2 * torch.eye(8) - 1


def term(loss: Tensor):
    return loss_graph.read(loss, {})[0].term


def ends() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(8, 4, requires_grad=True), torch.randn(8, 4, requires_grad=True)


def by_signs(signs: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda one, other: -F.logsigmoid(signs * (5 * one @ other.T - 2)).sum(1).mean()


@pytest.mark.parametrize(
    ("loss", "together", "others"),
    [
        (by_signs(SIGNS), -1, 1),
        (by_signs(-SIGNS), 1, -1),
        (by_signs(torch.eye(8)), -1, 0),
        (lambda one, other: F.cross_entropy(one @ other.T / 0.1, torch.arange(8)), -1, 1),
        (lambda one, other: F.cross_entropy(-(one @ other.T), torch.arange(8)), 1, -1),
    ],
)
def test_what_is_pulled_and_what_is_pushed(loss, together, others):
    assert term(loss(*ends())).pushes == pytest.approx((together, others))


DISTANCES = {
    "cdist": torch.cdist,
    "squares": lambda one, other: (one[:, None] - other).pow(2).sum(-1),
    "multiplied": lambda one, other: (apart := one[:, None] - other[None]).mul(apart).mean(-1),
    "root": lambda one, other: ((one[:, None] - other[None]).square().sum(-1) + 1e-8).sqrt(),
    "norm": lambda one, other: (one[:, None] - other[None]).norm(dim=-1),
    "absolute": lambda one, other: (one[:, None] - other[None]).abs().sum(-1),
    "pairwise": lambda one, other: F.pairwise_distance(one[:, None], other[None]),
    "to what is fixed": lambda one, other: torch.cdist(one, other.detach()),
    "multiplied out": lambda one, other: one.square().sum(1, keepdim=True) + other.square().sum(1) - 2 * one @ other.T,
    "and its root": lambda one, other: ((one * one).sum(1)[:, None] + (other**2).sum(1) - 2 * (one @ other.T)).clamp_min(1e-9).sqrt(),
}


@pytest.mark.parametrize("distance", DISTANCES.values(), ids=DISTANCES)
def test_the_right_one_of_distances_is_the_least(distance):
    def pushes(change: Callable[[Tensor], Tensor]) -> tuple[float, ...]:
        return term(F.cross_entropy(change(distance(*ends())), torch.arange(8))).pushes

    learned = nn.Parameter(torch.tensor(3.0))
    assert pushes(lambda apart: apart) == pushes(lambda apart: apart / 0.2) == pushes(lambda apart: apart * learned) == (1, -1)
    assert pushes(lambda apart: -apart) == pushes(lambda apart: 3 - apart / 0.2) == pushes(lambda apart: -apart * learned) == (-1, 1)
    assert term(distance(*ends()).log_softmax(1).gather(1, torch.arange(8)[:, None]).mean()).pushes == (
        -1,
        1,
    )  # the chance of the right one becomes less
    assert pushes(lambda apart: (-apart).exp()) == pushes(lambda apart: 1 / (1 + apart)) == ()


LENGTHS = {
    "of a capsule": lambda one: one.view(8, 2, 2).norm(dim=-1),
    "of what is centred": lambda one: (one.view(8, 2, 2) - one.view(8, 2, 2).mean(-1, keepdim=True)).norm(dim=-1),
    "none": lambda one: (one[:, None] - one[None]).sum(-1),
}


@pytest.mark.parametrize("score", LENGTHS.values(), ids=LENGTHS)
def test_a_length_is_no_distance(score):
    assert term(F.cross_entropy(score(ends()[0]), torch.arange(8) % 2)).pushes == ()


def test_a_layer_is_no_likeness():
    one, _ = ends()
    layer = nn.Linear(4, 8)
    out = layer(one)
    found = loss_graph.read(F.cross_entropy(-out, torch.arange(8)), {out.grad_fn: "layer"})
    assert found[0].term.pushes == ()


def test_one_score_alone_has_nothing_to_compare_with():
    one, other = ends()
    score = (one * other).sum(1)
    assert term(-F.logsigmoid(score).mean()).positives
    assert not term(-F.logsigmoid(score - score.roll(1)).mean()).positives
    assert not term(-F.logsigmoid(nn.Linear(4, 1, bias=False)(one)).mean()).positives


def test_the_distances_of_triples():
    one, other = ends()
    third = torch.randn(8, 4, requires_grad=True)
    loss = F.triplet_margin_loss(one, other, third, margin=0.5)
    found = pair_losses.ranks(loss_graph.read(loss, {})[0].node, 1.0)
    assert torch.allclose(found.pulled, F.pairwise_distance(one, other)) and found.margin == pytest.approx(0.5, rel=1e-3)


@pytest.mark.parametrize(("dim", "across"), [(1, -1), (0, 0)])
def test_a_softmax_by_hand_along_the_samples(dim, across):
    scores, label = torch.randn(12, 4, requires_grad=True), torch.randint(4, (12,))
    assert term(-scores.log_softmax(dim)[torch.arange(12), label].mean()).across == across
    assert term(-scores.log_softmax(dim).gather(1, label[:, None]).mean()).across == across
    assert term(-(scores.log_softmax(dim) * F.one_hot(label, 4)).sum(1).mean()).across == across


@pytest.mark.parametrize(("dim", "across"), [(1, 1), (0, 0), (-1, -1)])
def test_a_softmax_along_the_positions_before_rows_of_classes(dim, across):
    scores, label = 1 * torch.randn(6, 5, 4, requires_grad=True), torch.randint(4, (30,))
    said = scores.log_softmax(dim)
    for made in (scores, said):
        assert loss_graph.read(F.nll_loss(said.flatten(0, 1), label), {made.grad_fn: ""})[0].term.across == across
    turned = scores.log_softmax(1).transpose(1, 2).flatten(0, 1)  # the classes stood in the middle
    assert loss_graph.read(F.nll_loss(turned, torch.randint(5, (24,))), {scores.grad_fn: ""})[0].term.across == -1


class Pooled(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.score, self.head, self.dim = nn.Linear(4, 1), nn.Linear(4, 3), dim

    def forward(self, x: Tensor) -> Tensor:
        weights = self.score(x).squeeze(2).softmax(self.dim)
        return self.head((weights.unsqueeze(2) * x).sum(1))


@pytest.mark.parametrize(("dim", "wrong"), [(0, True), (-2, True), (1, False), (-1, False)])
def test_positions_are_weighed_over_the_samples(dim, wrong):
    asked = causes(Pooled(dim), lambda: ((x := torch.randn(32, 7, 4)), x[:, 0, :3].argmax(1)), F.cross_entropy)
    assert ("softmax over the wrong dimension" in asked) is wrong


def test_a_divergence_that_was_promised_logarithms():
    scores, chances = torch.randn(12, 4, requires_grad=True), torch.randn(12, 4).softmax(1)
    wrong = F.kl_div(scores.log_softmax(1), chances, reduction="batchmean", log_target=True)
    right = F.kl_div(scores.log_softmax(1), chances.log(), reduction="batchmean", log_target=True)
    assert "no log" in loss_graph.risks(wrong) and "no log" not in loss_graph.risks(right)


def test_a_column_that_is_the_target_and_one_that_is_a_multiple_of_it():
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    same = pair_clues([x], x[:, 3] + 0.01 * torch.randn(64), 0, PairClues())
    times = pair_clues([x], 3 * x[:, 3], 0, PairClues())
    assert (same.feature, same.itself) == (3, True) and (times.feature, times.itself) == (3, False)
    again = pair_clues([torch.randn(64, 4)], x[:, 3], 0, same)  # in the next batch it is not so
    assert again.told < 0.5 and not again.itself


def causes(
    net: nn.Module, batch: Callable[[], tuple[Tensor, Tensor]], criterion: Callable[[Tensor, Tensor], Tensor], steps: int = 40
) -> list[str]:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer) as w:
        for _ in range(steps):
            x, y = batch()
            optimizer.zero_grad()
            criterion(net(x), y).backward()
            optimizer.step()
    return [one.kind for one in w.verdict.findings if "tier" in one.facts]


def focal(output: Tensor, label: Tensor) -> Tensor:
    each = F.binary_cross_entropy_with_logits(output, label, reduction="none")
    return ((1 - torch.exp(-each)) ** 2 * each).mean()


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


SQUASHED: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "nothing": (lambda z: z, False),
    "sigmoid": (torch.sigmoid, True),
    "one over": (lambda z: 1 / (1 + torch.exp(-z)), True),
    "of exponentials": (lambda z: z.exp() / (1 + z.exp()), True),
    "of one exponential": (lambda z: (power := z.exp()) / (1 + power), True),
    "scaled": (lambda z: 8 / (1 + torch.exp(-z)) - 4, False),
    "one over a square": (lambda z: 1 / (1 + z.square()), False),
}


@pytest.mark.parametrize("name", SQUASHED)
def test_a_focal_loss_of_chances(name):
    function, twice = SQUASHED[name]
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1), Applied(function))
    asked = causes(net, lambda: ((x := torch.randn(32, 4)), (x[:, :1] > 0).float()), focal)
    assert ("sigmoid twice" in asked) is twice


class Each(nn.Module):
    def __init__(self, narrow: bool) -> None:
        super().__init__()
        self.inward, self.outward = nn.GRU(2, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)
        self.last, self.narrow = nn.Linear(8, 2), narrow

    def forward(self, x: Tensor) -> Tensor:
        states, last = self.inward(x)
        h = last[0][:, None].expand(-1, x.shape[1], -1) if self.narrow else states
        return self.last(self.outward(h)[0])


@pytest.mark.parametrize("narrow", [True, False])
def test_a_series_against_itself_is_an_autoencoder_where_one_state_holds_all(narrow):
    asked = causes(Each(narrow), lambda: ((x := torch.randn(16, 6, 2).cumsum(1)), x), F.mse_loss)
    assert ("targets not moved" in asked) is not narrow


class Hides(Each):
    """A part of the places is hidden before the first layer takes them."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.where(torch.rand(x.shape[:2])[..., None] < 0.5, torch.zeros(()), x))


class Standardized(Each):
    """Each series has a mean of 0 and a deviation of 1, as RevIN makes it."""

    def forward(self, x: Tensor) -> Tensor:
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True)
        return super().forward((x - mean) / std) * std + mean


class Slots(nn.Module):
    """Places are mixed to a few slots, and back; a slot has more numbers than there are places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.slots, self.last = nn.Linear(2, 16), nn.Parameter(torch.randn(3, 16)), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        share = (h @ self.slots.T).softmax(-1)
        return share @ self.last(share.transpose(1, 2) @ h)


@pytest.mark.parametrize(
    ("net", "told"), [(Hides(False), False), (Standardized(False), True), (Slots(), False)], ids=lambda one: type(one).__name__
)
def test_a_series_against_itself_is_to_be_restored_where_it_is_hidden_or_mixed_to_slots(net, told):
    assert ("targets not moved" in causes(net, lambda: ((x := torch.randn(16, 6, 2).cumsum(1)), x), F.mse_loss)) is told


class Letters(nn.Module):
    """Rows of tokens, of which each place gives one again: by one code for all places, with some hidden, place by place, or in a loop."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.table, self.net, self.cell = (
            nn.Embedding(10, 16),
            nn.Sequential(nn.Linear(16, 32), nn.ReLU()),
            nn.GRU(32, 32, batch_first=True),
        )
        self.code, self.last, self.how = nn.Linear(5 * 32, 5 * 32), nn.Linear(32, 10), how

    def forward(self, x: Tensor) -> Tensor:
        h = self.net(self.table(torch.where(torch.rand(x.shape) < 0.4, 0, x) if self.how == "hidden" else x))
        if self.how == "code":
            h = self.code(h.flatten(1)).view(len(x), 5, 32)
        if self.how == "loop":
            state, places = None, []
            for place in range(5):
                _, state = self.cell(h[:, place : place + 1], state)
                places.append(state[0])
            h = torch.stack(places, 1)
        return self.last(h).transpose(1, 2)


@pytest.mark.parametrize(("how", "told"), [("code", False), ("hidden", False), ("by place", True), ("loop", True)])
def test_tokens_against_themselves_are_an_autoencoder_where_one_code_holds_all_or_some_are_hidden(how, told):
    assert ("targets not moved" in causes(Letters(how), lambda: ((x := torch.randint(1, 10, (16, 5))), x), F.cross_entropy)) is told


def test_rare_ones_that_count_even_less():
    weight = torch.tensor([0.1])
    net, small = nn.Linear(4, 1), (lambda: ((x := torch.randn(64, 4)), (x[:, :1] > 1.2).float()))
    assert "weights of classes" in causes(net, small, nn.BCEWithLogitsLoss(pos_weight=weight))
    assert "weights of classes" not in causes(nn.Linear(4, 1), small, nn.BCEWithLogitsLoss(pos_weight=1 / weight))


class Sphere(nn.Module):
    """Two views of each sample, on a sphere."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, views: Tensor) -> Tensor:
        return F.normalize(self.net(views.flatten(0, 1)), dim=1).view(2, -1, 8)


def pulled(z: Tensor, _: Tensor) -> Tensor:
    return (1 - (z[0] * z[1]).sum(1)).mean()


@pytest.mark.parametrize("apart", [True, False])
def test_likenesses_of_outputs_that_are_pulled_alone(apart):
    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randn(64, 16)
        return x + 2 * torch.randn(2, 64, 16), torch.zeros(64)

    def loss(z: Tensor, target: Tensor) -> Tensor:
        spread = torch.pdist(z[0]).square().mul(-2).exp().mean().log()
        return pulled(z, target) + spread if apart else pulled(z, target)

    assert ("collapse" in causes(Sphere(), batch, loss, 100)) is not apart


class Pulled(nn.Module):
    """Two views of each sample, one of which is to be told from the other one."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
        self.predictor = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 32))

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor]:
        return self.predictor(self.net(views[0])), self.net(views[1])


@pytest.mark.parametrize("stops", [True, False])
def test_directions_of_which_one_is_to_be_the_other_come_together_unless_a_gradient_stops(stops):
    centres = 2 * torch.randn(10, 16)

    def batch() -> tuple[Tensor, Tensor]:
        return centres[torch.randint(10, (64,))] + torch.randn(2, 64, 16) / 2, torch.zeros(64)

    def loss(pair: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        return -F.cosine_similarity(pair[0], pair[1].detach() if stops else pair[1], dim=1).mean()

    assert ("collapse" in causes(Pulled(), batch, loss, 200)) is not stops


def test_a_length_is_no_likeness_of_two():
    z = torch.randn(2, 8, 4, requires_grad=True) * 1
    made = {z.grad_fn: ""}
    assert loss_graph.read(pulled(z, z), made)[0].term.paired
    assert not loss_graph.read((z[0] * z[0]).sum(1).mean(), made)[0].term.paired


def test_outputs_and_targets_whose_correlation_is_the_loss_are_no_samples_that_become_the_same():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(120):
            x = torch.randn(128, 8)
            optimizer.zero_grad()
            (1 - torch.corrcoef(torch.stack([net(x)[:, 0], x.sum(1)]))[0, 1]).backward()
            optimizer.step()
    assert not [one for one in w.findings if one.severity == "broken"]


class SkipGram(nn.Module):
    """Words beside their neighbours, and beside others."""

    def __init__(self, width: float) -> None:
        super().__init__()
        self.inner, self.outer = nn.Embedding(40, 8), nn.Embedding(40, 8)
        for one in (self.inner, self.outer):
            nn.init.uniform_(one.weight, -width, width)

    def forward(self, word: Tensor, near: Tensor, far: Tensor) -> Tensor:
        h = self.inner(word)
        pulled, pushed = (h * self.outer(near)).sum(1), (self.outer(far) @ h[:, :, None])[..., 0]
        return -(F.logsigmoid(pulled) + F.logsigmoid(-pushed).mean(1)).mean()


@pytest.mark.parametrize("width", [0.1, 0.4], ids=["small", "wide"])
@pytest.mark.parametrize("others", ["the same", "the same again and again", "drawn", "all one"])
def test_negatives_that_are_the_positives(others: str, width: float) -> None:
    torch.manual_seed(0)
    net = SkipGram(width)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    with modlab.watch(net, optimizer) as w:
        for _ in range(250):
            kind = torch.randint(4, (96,))
            word, near = (kind * 10 + torch.randint(10, (96,)) for _ in range(2))
            near = near * 0 + 3 if others == "all one" else near
            far = torch.randint(40, (96, 5)) if others == "drawn" else near[:, None].expand(-1, 1 if others == "the same" else 4)
            optimizer.zero_grad()
            net(word, near, far).backward()
            optimizer.step()
    named = [one.kind for one in w.findings]
    assert ("wrong negatives" in named) is others.startswith("the same")
    assert "rate too high" not in named or others == "all one"
