"""What a strange training does on purpose, beside what looks the same and is a fault."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.watching.verdict import verdict
from tests.causes.test_what_a_task_asks import kinds


class Scaled(nn.Module):
    """Divides by 255 itself, or does not."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by, self.net = by, nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x / self.by)


@pytest.mark.parametrize(("by", "named"), [(1.0, True), (255.0, False)])
def test_inputs_that_the_model_scales_itself_are_scaled(by, named):
    torch.manual_seed(0)
    told = kinds(Scaled(by), lambda: (255 * torch.rand(32, 6), torch.randint(3, (32,))), F.cross_entropy)
    assert ("inputs not scaled" in told) is named


@pytest.mark.parametrize(("rows", "named"), [(torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), False), (torch.randn(4, 2), True)])
def test_a_table_of_zeros_and_ones_is_all_there_is(rows, named):
    torch.manual_seed(0)
    target = torch.tensor([[0.0], [1], [1], [0]])
    told = kinds(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), lambda: (rows, target), F.mse_loss)
    assert ("same batch" in told) is named


class Slope(nn.Module):
    """A net, or how steep it is."""

    def __init__(self, steep: bool) -> None:
        super().__init__()
        self.steep, self.net = steep, nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        if not self.steep:
            return self.net(x)
        x.requires_grad_()
        return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0] + x


@pytest.mark.parametrize("steep", [True, False])
def test_an_equation_has_zeros_as_its_targets(steep):
    torch.manual_seed(0)
    told = kinds(Slope(steep), lambda: (torch.rand(32, 1), torch.zeros(32, 1)), F.mse_loss)
    assert ("constant targets" in told) is not steep


@pytest.mark.parametrize(("filled", "named"), [(True, False), (False, True)])
def test_a_diagonal_that_is_filled_is_no_negative(filled, named):
    torch.manual_seed(0)

    def criterion(z: Tensor, target: Tensor) -> Tensor:
        z = F.normalize(z, dim=1)
        likeness = z @ z.t() / 0.5
        return F.cross_entropy(likeness.fill_diagonal_(-1e9) if filled else likeness, target)

    told = kinds(nn.Linear(6, 8), lambda: (torch.randn(2, 8, 6).flatten(0, 1), torch.arange(16).roll(8)), criterion)
    assert ("wrong negatives" in told) is named


@pytest.mark.parametrize(
    ("grades", "named"),
    [(torch.randint(6, (4000,)), True), ((torch.rand(4000, 5) < 0.5).sum(1), False), (torch.randint(1, 6, (4000,)), False)],
    ids=["from 0 on", "counts", "from 1 on"],
)
def test_numbers_that_crowd_in_the_middle_are_counts(grades, named):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        at = torch.randint(4000, (64,))
        return torch.randn(64, 4), grades[at].float().unsqueeze(1)

    assert ("regression of classes" in kinds(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), batch, F.mse_loss)) is named


def named(loop: Callable[[nn.Module, torch.optim.Optimizer, int], object], model: nn.Module, *others: torch.optim.Optimizer) -> set[str]:
    """What a loop of its own is told, in sixty steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, (optimizer, *others)) as w:
        for number in range(60):
            loop(model, optimizer, number)
    return {one.kind for one in w.findings}


def table(count: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4)
    return x, x.sum(1, keepdim=True)


@pytest.mark.parametrize("by_hand", [True, False])
def test_weights_that_are_moved_by_hand_need_no_step(by_hand):
    torch.manual_seed(0)

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        x, y = table()
        model.zero_grad()
        F.mse_loss(model(x), y).backward()
        for one in model.parameters() if by_hand else ():
            one.data.add_(one.grad, alpha=-0.1)

    assert ("no step" in named(loop, nn.Linear(4, 1))) is not by_hand


def test_copies_that_are_trained_are_averaged_into_the_model():
    torch.manual_seed(0)

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        local = copy.deepcopy(model)
        own = torch.optim.SGD(local.parameters(), lr=0.1)
        for x, y in (table(), table()):
            own.zero_grad()
            F.mse_loss(local(x), y).backward()
            own.step()
        model.load_state_dict(local.state_dict())

    assert not named(loop, nn.Linear(4, 1)) & {"no step", "detached"}


def test_gradients_that_are_written_down_are_not_those_of_the_step_before():
    torch.manual_seed(0)

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        quick = copy.deepcopy(model)
        x, y = table()
        F.mse_loss(quick(x), y).backward()
        optimizer.zero_grad()
        for mine, other in zip(model.parameters(), quick.parameters(), strict=True):
            mine.grad = other.grad.clone()
        optimizer.step()

    assert "no zero grad" not in named(loop, nn.Linear(4, 1))


class TwoHeads(nn.Module):
    """What is trained first, and what is trained later."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.later = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x: Tensor, later: bool) -> Tensor:
        return self.later(x) if later else self.first(x)


@pytest.mark.parametrize("comes", [True, False])
def test_a_head_that_moves_has_had_a_gradient(comes):
    torch.manual_seed(0)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        for number in range(1200):
            x, _ = table()
            optimizer.zero_grad()
            F.mse_loss(model(x, comes and number >= 1000), torch.randn(len(x), 1)).backward()
            optimizer.step()
    record = w.record
    parameters = tuple(one._replace(felt=0, moved=False, graded=False) if "later" in one.path else one for one in record.watched.parameters)
    unseen = replace(record, watched=replace(record.watched, parameters=parameters))  # as where no look fell into the second phase
    graded = next(one for one in verdict(unseen).checks if one.name == "every trained parameter gets a gradient")
    assert (graded.kind == "parameters without a gradient") is not comes


@pytest.mark.parametrize("mixed", [True, False])
def test_the_order_in_a_batch_that_has_all_classes_does_not_count(mixed):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        low = 0 if mixed else 2 * int(torch.randint(3, ()))
        label = torch.arange(6).repeat_interleave(5) if mixed else torch.arange(low, low + 2).repeat_interleave(15)
        return torch.eye(6)[label] + 0.1 * torch.randn(30, 6), label

    assert ("ordered batches" in kinds(nn.Linear(6, 6), batch, F.cross_entropy)) is not mixed


@pytest.mark.parametrize("rooms", [True, False])
def test_states_of_a_small_world_are_all_there_is(rooms):
    torch.manual_seed(0)
    rows, target = (torch.eye(6) if rooms else torch.randn(6, 6)), torch.randn(6, 1)

    def batch() -> tuple[Tensor, Tensor]:
        at = torch.randint(6, (32,))
        return rows[at], target[at]

    assert ("few samples" in kinds(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)), batch, F.mse_loss)) is not rooms


@pytest.mark.parametrize("series", [True, False])
def test_a_season_ago_is_no_leak(series):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        time = torch.arange(13) + 40 * torch.rand(64, 1)
        x = torch.sin(2 * torch.pi * time / 12) + 0.13 * torch.randn(64, 13) + torch.linspace(-1.5, 1.5, 64).unsqueeze(1)
        noise = torch.randn(64, 12)
        return (x if series else torch.cat([x[:, 12:] + 0.05 * torch.randn(64, 1), noise], 1))[:, :12], x[:, 12:]

    assert ("leak" in kinds(nn.Linear(12, 1), batch, F.mse_loss)) is not series


def test_distances_of_all_pairs_are_no_broadcast():
    torch.manual_seed(0)

    def criterion(made: Tensor, real: Tensor) -> Tensor:
        def near(a: Tensor, b: Tensor) -> Tensor:
            squares = torch.cdist(a, b).square()
            return torch.exp(-squares) + torch.exp(-squares / 4)

        return near(made, made).mean() - 2 * near(made, real).mean() + near(real, real).mean()

    assert "broadcast" not in kinds(nn.Linear(2, 2), lambda: (torch.randn(32, 2), torch.randn(32, 2) + 1), criterion)


@pytest.mark.parametrize("level", [True, False])
def test_values_of_a_series_that_has_a_level_are_no_leak(level):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        base, x = torch.randn(64, 1), 0.03 * torch.randn(64, 13)
        x = x + base if level else torch.cat([x[:, 12:] + base + 0.01 * x[:, :1], x[:, 1:12] + base, base + x[:, 12:]], 1)
        return x[:, :12], x[:, 12:]

    assert ("leak" in kinds(nn.Linear(12, 1), batch, F.mse_loss)) is not level


@pytest.mark.parametrize("left_out", [True, False])
def test_targets_that_are_missing_and_left_out_are_fine(left_out):
    torch.manual_seed(0)
    x, y = torch.randn(16, 3), torch.randn(16, 2)
    y[::3, 0] = torch.nan

    def loss(output: Tensor, target: Tensor) -> Tensor:
        known = ~target.isnan() if left_out else torch.ones_like(target).bool()
        return (output[known] - target[known]).square().mean()

    found = modlab.diagnose(nn.Linear(3, 2), batch=(x, y), loss=loss)
    wrong = [one.kind for one in (*found.findings, *found.experiments) if one.kind in ("NaN", "not a number in data")]
    assert bool(wrong) is not left_out


class Taught(nn.Module):
    """A teacher that is kept out of the parameters, or learns as well."""

    def __init__(self, fixed: bool) -> None:
        super().__init__()
        self.fixed, self.student, self.teacher = fixed, nn.Linear(3, 2), [nn.Linear(3, 2)]

    def forward(self, x: Tensor) -> Tensor:
        said = self.teacher[0](x)
        return self.student(x) - (said.detach() if self.fixed else said)


@pytest.mark.parametrize("fixed", [True, False])
def test_a_hidden_teacher_that_gets_no_gradient_is_a_note(fixed):
    torch.manual_seed(0)
    found = modlab.diagnose(Taught(fixed), batch=(torch.randn(8, 3), torch.randn(8, 2)), loss=F.mse_loss)
    assert ("hidden" in [one.kind for one in found.findings]) is not fixed


class Reverser(nn.Module):
    """An encoder and a decoder of time first, or of the batch first, that gets the answer and puts a beginning in front of it."""

    def __init__(self, *, batch_first: bool, moves: bool = True, turns: bool = True) -> None:
        super().__init__()
        self.moves, self.turns, self.dimension = moves, turns, int(batch_first)
        self.rows = nn.Embedding(9, 16)
        self.reads, self.writes = nn.GRU(16, 32, batch_first=batch_first), nn.GRU(16, 32, batch_first=batch_first)
        self.head = nn.Linear(32, 9)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        _, state = self.reads(self.rows(source))
        if self.moves:
            first = torch.zeros_like(target.narrow(self.dimension, 0, 1))
            target = torch.cat([first, target.narrow(self.dimension, 0, target.shape[self.dimension] - 1)], self.dimension)
        return self.head(self.writes(self.rows(target), state)[0])


@pytest.mark.parametrize(("batch_first", "moves"), [(True, True), (False, True), (True, False)])
def test_a_decoder_that_moves_its_targets_itself(batch_first, moves):
    torch.manual_seed(0)
    net = Reverser(batch_first=batch_first, moves=moves)

    def batch() -> tuple[tuple[Tensor, Tensor], Tensor]:
        source = torch.randint(1, 9, (32, 6))
        pair = (source, source.flip(1)) if batch_first else (source.T, source.flip(1).T)
        return pair, pair[1]

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())

    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(120):
            inputs, target = batch()
            optimizer.zero_grad()
            loss(net(*inputs), target).backward()
            optimizer.step()
    found = modlab.diagnose(net, batch=batch(), loss=loss)
    told = {one.kind for one in (*w.findings, *found.findings)} | {one.kind for one in found.experiments if one.outcome == "failed"}
    assert ("targets not moved" in told) is not moves
    assert "batch first mixed up" not in told


def test_a_beginning_that_all_samples_share_is_not_all_that_an_embedding_gets():
    class Loop(nn.Module):
        """Decodes token by token, from a beginning on."""

        def __init__(self, lost: bool) -> None:
            super().__init__()
            self.lost, self.rows, self.cell, self.head = lost, nn.Embedding(9, 16), nn.GRUCell(16, 32), nn.Linear(32, 9)

        def forward(self, tokens: Tensor) -> Tensor:
            state, token, out = torch.zeros(len(tokens), 32), torch.full((len(tokens),), 8), []
            for place in range(tokens.shape[1]):
                state = self.cell(self.rows(token[:, None] if place == 0 else token).reshape(len(tokens), 16), state)
                out.append(self.head(state))
                token = token if self.lost else tokens[:, place]
            return torch.stack(out, 1)

    torch.manual_seed(0)
    tokens = torch.randint(0, 8, (64, 6))

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), target.flatten())

    for lost in (False, True):
        found = modlab.diagnose(Loop(lost), batch=(tokens, tokens), loss=loss)
        assert ("tokens unknown" in {one.kind for one in found.experiments if one.outcome == "failed"}) is lost


@pytest.mark.parametrize("shifted", [True, False])
def test_targets_around_zero_need_no_bias(shifted):
    torch.manual_seed(0)
    truth = torch.randn(8, 1)

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randn(64, 8)
        return x, torch.tanh(x @ truth) + torch.randn(64, 1) + 2 * shifted

    net = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh(), nn.Linear(16, 1, bias=False))
    assert ("no bias where needed" in kinds(net, batch, F.mse_loss)) is shifted


@pytest.mark.parametrize("slope", [True, False])
def test_a_slope_does_not_know_what_was_added(slope):
    torch.manual_seed(0)

    class Energy(nn.Module):
        """A number for each point, of which the slope is trained; or layers whose last bias is left out."""

        def __init__(self) -> None:
            super().__init__()
            self.inner, self.outer = nn.Linear(2, 32), nn.Linear(32, 1 if slope else 2)

        def forward(self, x: Tensor) -> Tensor:
            if not slope:
                return F.linear(self.inner(x).tanh(), self.outer.weight)
            x = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.outer(self.inner(x).tanh()).sum(), x, create_graph=True)
            return found

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randn(64, 2)
        return x, x + 1.5 * torch.randn(64, 2) + 1

    assert ("no bias where needed" in kinds(Energy(), batch, F.mse_loss)) is not slope


def scored(way: str, z: Tensor, others: Tensor, queue: Tensor) -> Tensor:
    """Scores of which the first one is that of who belongs together."""
    if way == "cat":
        return torch.cat([(z * others).sum(1, keepdim=True), z @ queue.T], 1)
    if way == "einsum":
        return torch.cat([torch.einsum("nc,nc->n", z, others)[:, None], torch.einsum("nc,kc->nk", z, queue)], 1)
    if way == "gather":
        return (z @ torch.cat([others, queue]).T).gather(1, torch.cat([torch.arange(32)[:, None], torch.randint(32, 96, (32, 9))], 1))
    candidates = torch.cat([others[:, None], queue[torch.randint(64, (len(z), 7))]], 1)
    if way == "bmm":
        return torch.bmm(candidates, z[:, :, None]).squeeze(2)
    if way == "sum":
        return (candidates * z[:, None]).sum(2)
    return z @ queue[:8].T if way == "the same for all" else z


@pytest.mark.parametrize("way", ["cat", "einsum", "gather", "bmm", "sum", "the same for all", "classes"])
def test_who_belongs_together_may_stand_first(way: str) -> None:
    torch.manual_seed(0)
    net, queue = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), F.normalize(torch.randn(64, 8), dim=1)

    def loss() -> Tensor:
        x = torch.randn(32, 16)
        z, others = (F.normalize(one, dim=1) for one in (net(x), torch.cat([x[:, :4], x[:, 4:8]], 1)))
        return F.cross_entropy(scored(way, z, others, queue) / 0.3, torch.zeros(32, dtype=torch.long))

    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(60):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
    assert ("constant targets" in {one.kind for one in w.findings}) is (way in ("the same for all", "classes"))


@pytest.mark.parametrize(("criterion", "scale", "named"), [(nn.HuberLoss(delta=0.5), 1, set()), (F.l1_loss, 300, {"targets not scaled"})])
def test_a_robust_loss_forgives_outliers(criterion, scale, named):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(150):
            x = torch.randn(64, 6)
            y = scale * x[:, :2].sum(1, keepdim=True).sin()
            y = torch.where(torch.rand(64, 1) < 0.08, y + 200 * scale * torch.randn(64, 1), y)
            optimizer.zero_grad()
            criterion(net(x), y).backward()
            optimizer.step()
    assert {one.kind for one in w.findings if one.severity == "broken"} == named
    assert named or not any(one.outcome == "failed" for one in w.diagnose().experiments)


class Coupling(nn.Module):
    """Half of a flow's layer, which begins as the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1, 32), nn.Linear(32, 2)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scale, shift = self.last(torch.tanh(self.first(x[:, :1]))).chunk(2, 1)
        return torch.cat([x[:, 1:] * scale.tanh().exp() + shift, x[:, :1]], 1), scale.tanh()


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        total = 0.0
        for layer in self.layers:
            x, more = layer(x)
            total = total + more
        return (-0.5 * x.square()).sum(1, keepdim=True) + total


def test_what_stands_before_a_layer_of_zeros_gets_its_gradient_later():
    torch.manual_seed(0)
    net = Flow()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
    with modlab.watch(net, optimizer) as w:
        for _ in range(200):
            optimizer.param_groups[0]["lr"] = min(optimizer.param_groups[0]["lr"] * 1.03, 5e-3)
            x = 0.1 * torch.randn(64, 2)
            optimizer.zero_grad()
            (1 - net(torch.cat([x[:, :1], x[:, 1:] + x[:, :1]], 1)).mean()).backward()
            optimizer.step()
    assert "vanishing gradient" not in {one.kind for one in w.findings}


class Packed(nn.Module):
    """Reads what is within the lengths, which it gets, or has got elsewhere, or as a mask of what counts or of what does not."""

    def __init__(self, told: str, lengths: Tensor) -> None:
        super().__init__()
        self.told, self.lengths = told, lengths
        self.rows, self.gru, self.head = nn.Embedding(20, 8, padding_idx=0), nn.GRU(8, 16, batch_first=True), nn.Linear(16, 2)

    def forward(self, tokens: Tensor, given: Tensor | None = None) -> Tensor:
        lengths = {"lengths": given, "elsewhere": self.lengths}.get(self.told)
        if lengths is None:
            lengths = (given == (self.told == "mask")).sum(1)
        rows = nn.utils.rnn.pack_padded_sequence(self.rows(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.gru(rows)[1][0])


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("told", ["lengths", "elsewhere", "mask", "padding"])
def test_what_stands_behind_the_end_of_a_row_is_no_token_between_others(told, inside):
    torch.manual_seed(0)
    lengths = torch.randint(3, 10, (32,))
    behind = torch.arange(12) >= lengths[:, None]
    net = Packed(told, lengths)

    def batch() -> tuple[Tensor, ...]:
        tokens = torch.randint(1, 20, (32, 12))
        zeros = torch.rand(32, 12) < 0.3
        tokens = torch.where(behind | zeros if inside else behind & zeros, 0, tokens)
        given = {"lengths": lengths, "mask": (~behind).long(), "padding": behind}.get(told)
        return (tokens,) if given is None else (tokens, given)

    target = torch.randint(2, (32,))
    with modlab.watch(net, torch.optim.Adam(net.parameters(), 1e-3)) as w:
        for _ in range(20):
            F.cross_entropy(net(*batch()), target).backward()
    assert ("padding idx of a token" in [one.kind for one in w.findings]) is inside
    if told in ("lengths", "padding"):
        found = modlab.diagnose(net, batch=(batch(), target), loss=F.cross_entropy)
        assert ("padding idx of a token" in {one.kind for one in found.experiments if one.outcome == "failed"}) is inside


class Pointing(nn.Module):
    """Points at one place after another; in training it goes on from the places that are right."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write, self.look = nn.GRU(1, 16, batch_first=True), nn.GRUCell(1, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor, order: Tensor) -> Tensor:
        seen, state = self.read(x)
        state, given, scores = state[0], x[:, 0] * 0, []
        for i in range(order.shape[1]):
            state = self.write(given, state)
            scores.append((seen @ self.look(state)[:, :, None]).squeeze(2))
            given = x[torch.arange(len(x)), order[:, i]]
        return torch.stack(scores, 1)


class Given(nn.Module):
    """Looks up what is asked for in the same place."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.table, self.write, self.last = (
            nn.Linear(1, 16),
            nn.Embedding(5, 16),
            nn.GRU(16, 16, batch_first=True),
            nn.Linear(16, 5),
        )

    def forward(self, x: Tensor, order: Tensor) -> Tensor:
        return self.last(self.write(self.table(order) + self.read(x))[0])


@pytest.mark.parametrize(("make", "told"), [(Pointing, False), (Given, True)])
def test_a_pointer_goes_on_from_the_places_that_are_right(make, told):
    torch.manual_seed(0)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        x = torch.rand(32, 5, 1)
        order = x.squeeze(2).argsort(1)
        optimizer.zero_grad()
        F.cross_entropy(model(x, order).flatten(0, 1), order.flatten()).backward()
        optimizer.step()

    assert ("targets not moved" in named(step, make())) is told


class Blurred(nn.Module):
    """A mean of each weight, and the logarithm of its scale."""

    def __init__(self, begin: float) -> None:
        super().__init__()
        self.mean, self.scale = nn.Parameter(torch.randn(8, 8) / 3), nn.Parameter(torch.randn(8, 8) * begin)
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        if self.scale.std() > 1:
            return self.last(F.linear(x, self.scale))
        return self.last(F.relu(F.linear(x, self.mean + F.softplus(self.scale) * torch.randn_like(self.scale))))


@pytest.mark.parametrize("begin", [0.1, 40.0])
def test_a_logarithm_of_a_scale_is_no_weight(begin):
    torch.manual_seed(0)
    model = Blurred(begin)
    with torch.no_grad():
        model.scale -= 0 if begin > 1 else 12
    told = kinds(model, lambda: (x := torch.randn(32, 8), x[:, :1] * x[:, 1:2])[:2], F.mse_loss)
    assert ("weights begin too large" in told) is (begin > 1)


def tempered(*, held: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3), nn.Linear(3, 3, bias=False))
    model[3].weight.data = 8 * torch.eye(3)
    for one in model[:3].parameters():
        one.requires_grad_(False)
    return model, torch.optim.Adam(model.parameters() if held else model[3].parameters(), 0.05)


def test_what_is_frozen_while_the_loss_came_down_is_meant():
    model, optimizer = tempered(held=False)
    x, y = torch.randn(64, 4), torch.randint(3, (64,))
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(150):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    assert "frozen" not in {one.kind for one in w.diagnose(batch=(x, y), loss=F.cross_entropy).findings}


def test_a_part_without_layers_that_mind_their_mode_may_be_in_any():
    def notes(*more: nn.Module) -> set[str]:
        model = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), *more), nn.Linear(4, 1))
        model[0].eval()
        return {one.kind for one in modlab.diagnose(model).notes}

    assert "mixed modes" not in notes() and "mixed modes" in notes(nn.Dropout(0.5))


def test_of_losses_that_optimizers_of_their_own_step_none_is_the_loss():
    torch.manual_seed(0)
    one, two = nn.Linear(4, 1), nn.Linear(4, 1)
    model = nn.ModuleList([one, two])
    steppers = [torch.optim.SGD(part.parameters(), 0.01) for part in (one, two)]
    with modlab.watch(model, steppers, budget=1.0) as w:
        for _ in range(20):
            x = torch.randn(8, 4)
            loss, other_loss = one(x).square().mean(), two(x).square().mean()
            model.zero_grad()
            loss.backward()
            steppers[0].step()
            other_loss.backward()
            steppers[1].step()
    assert "which of" in next(check for check in w.verdict.checks if check.name == "the loss falls").text


def discriminator(*, zeroed: bool, apart: bool) -> set[str]:
    """What is told of a discriminator watched alone, whose step adds up real ones and made ones, and which its maker trains through."""
    torch.manual_seed(0)
    maker, model = nn.Linear(3, 2), nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    makes, judges = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(model.parameters(), 1e-3)

    def loss(x: Tensor, label: float) -> Tensor:
        return F.binary_cross_entropy_with_logits(model(x), torch.full((len(x), 1), label))

    with modlab.watch(model, judges) as w:
        for _ in range(80):
            if zeroed:
                judges.zero_grad()
            real, made = torch.randn(32, 2) / 3 + 1, maker(torch.randn(32, 3))
            if apart:
                loss(real, 1.0).backward()
                loss(made.detach(), 0.0).backward()
            else:
                for x, label in ((real, 1.0), (made.detach(), 0.0)):
                    loss(x, label).backward()
            judges.step()
            makes.zero_grad()
            loss(made, 1.0).backward()
            makes.step()
    return {one.kind for one in w.findings}


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("zeroed", [True, False])
def test_passes_of_one_step_add_up_real_ones_and_made_ones(zeroed, apart):
    told = discriminator(zeroed=zeroed, apart=apart)
    assert not told & {"ordered batches", "accumulated too loud"} and ("no zero grad" in told) is not zeroed


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("classes", [True, False])
def test_a_step_that_goes_class_by_class_has_all_of_them(classes, mixed):
    torch.manual_seed(0)
    centres = torch.randn(4, 4)

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
        optimizer.zero_grad()
        for i in range(4):
            kind = i if mixed else number % 4
            x = centres[kind] + torch.randn(16, 4)
            if classes:
                loss = F.cross_entropy(model(x), torch.full((16,), kind))
            else:
                loss = F.mse_loss(model(x), kind + 0.1 * x[:, :1])
            (loss / 4).backward()
        optimizer.step()

    assert ("ordered batches" in named(loop, nn.Linear(4, 4 if classes else 1))) is not mixed


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_rare_ones_that_are_told_from_the_others_are_no_imbalance(told, classes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2 if classes else 1))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(300):
            x = torch.randn(128, 4)
            rare = torch.rand(128) < (torch.sigmoid(3 * x[:, 0] - 6.5) if told else 0.03)
            optimizer.zero_grad()
            y = model(x)
            loss = F.cross_entropy(y, rare.long()) if classes else F.binary_cross_entropy_with_logits(y[:, 0], rare.float())
            loss.backward()
            optimizer.step()
    assert ("imbalance" in {one.kind for one in w.findings}) is not told


@pytest.mark.parametrize(("slope", "imbalanced"), [(1.4, False), (0.0, True)])
def test_rare_labels_that_are_told_a_little_are_no_imbalance(slope, imbalanced):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 6))
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(200):
            x = torch.randn(64, 6)
            labels = (torch.rand(64, 6) < torch.sigmoid(slope * x - 3.6 - slope / 2)).float()
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(model(x), labels).backward()
            optimizer.step()
    assert ("imbalance" in {one.kind for one in w.findings}) is imbalanced


def scheduled(
    rate: float, factor: Callable[[int], float], kind: type[torch.optim.Optimizer] = torch.optim.Adam, steps: int = 200
) -> set[str]:
    """What is told of a rate that a schedule multiplies, where targets are noise for the most part."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = kind(model.parameters(), rate)  # type: ignore[call-arg]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    with modlab.watch(model, optimizer) as w:
        for _ in range(steps):
            x, y = table(64)
            optimizer.zero_grad()
            F.mse_loss(model(x), y + 3 * torch.randn_like(y)).backward()
            optimizer.step()
            schedule.step()
    return {one.kind for one in w.findings} & {"warmup never ends", "rate too low"}


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (lambda i: 2e-5 * (i + 1), set()),
        (lambda i: 4e-3 * min((i + 1) / 150, 1.0), set()),
        (lambda i: 1e-8 * (i + 1), {"warmup never ends"}),
    ],
    ids=["climbs", "has climbed", "stays near zero"],
)
def test_a_rate_of_one_is_the_unit_of_its_schedule(factor, told):
    assert scheduled(1.0, factor) == told


def test_a_warm_up_that_has_hardly_begun_at_the_end_is_named():
    assert scheduled(1e-3, lambda i: (i + 1) / 1e5) == {"warmup never ends"}


@pytest.mark.parametrize(("most", "told"), [(0.3, set()), (1e-5, {"warmup never ends", "rate too low"})])
def test_a_sweep_of_rates_is_judged_by_the_steps_that_it_comes_to(most, told):
    found = scheduled(most / 1e5, lambda i: 1e5 ** (i / 200), torch.optim.SGD)
    assert found <= told and bool(found) is bool(told)


@pytest.mark.parametrize("searches", [True, False])
def test_a_step_that_a_search_throws_away_is_not_put_back(searches):
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    x, y = table(64)
    first = [one.detach().clone() for one in model.parameters()]
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(60):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            before = [one.detach().clone() for one in model.parameters()] if searches else first
            for halves in range(8):
                optimizer.param_groups[0]["lr"] = 4.0 / 2**halves
                optimizer.step()
                with torch.no_grad():
                    if searches and F.mse_loss(model(x), y) < loss:
                        break
                    for one, old in zip(model.parameters(), before, strict=True):
                        one.copy_(old)
    assert ("weights put back" in {one.kind for one in w.findings}) is not searches


def test_distances_to_prototypes_are_no_view_of_what_a_model_gave():
    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        x = torch.randn(5, 1, 4) + torch.randn(5, 10, 4)
        prototypes, asked = model(x[:, :5]).mean(1), model(x[:, 5:]).flatten(0, 1)
        optimizer.zero_grad()
        F.cross_entropy(-(torch.cdist(asked, prototypes) ** 2), torch.arange(5).repeat_interleave(5)).backward()
        optimizer.step()

    torch.manual_seed(0)
    assert "wrong axes" not in named(loop, nn.Linear(4, 16))


class MaskedConv(nn.Conv2d):
    """A convolution of somebody's own."""


class Experts(nn.Module):
    """A matrix for each of some experts, of which the last one never gets a token."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6, 6) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("nd,ndk->nk", x, self.weight[torch.randint(3, (len(x),))])


@pytest.mark.parametrize("conv", [True, False])
def test_channels_of_a_convolution_are_no_experts(conv):
    torch.manual_seed(0)
    model = (
        nn.Sequential(MaskedConv(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 1)) if conv else nn.Sequential(Experts(), nn.Linear(6, 1))
    )
    if conv:
        with torch.no_grad():
            model[0].bias[1] = -100.0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(40):
            x = torch.randn(16, 1, 6, 6) if conv else torch.randn(16, 6)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert ("experts" in str(w)) is not conv


class Acts(nn.Module):
    """Says what is done at each place from what it sees there and, unless it cheats, from what was done before."""

    def __init__(self, cheats: bool) -> None:
        super().__init__()
        self.cheats, self.seen, self.done, self.last = cheats, nn.Linear(3, 16), nn.Embedding(2, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor, done: Tensor) -> Tensor:
        known = self.done(done)
        before = known if self.cheats else F.pad(known[:, :-1], (0, 0, 1, 0))
        return self.last(torch.tanh(self.seen(x) + before))


@pytest.mark.parametrize("cheats", [True, False])
def test_what_comes_to_rest_above_zero_does_not_copy(cheats):
    torch.manual_seed(0)
    model = Acts(cheats)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(300):
            x = torch.randn(64, 6, 3)
            done = ((x[:, :, 0] > x[:, :, 1]) ^ (torch.rand(64, 6) < 0.1)).long()
            optimizer.zero_grad()
            F.cross_entropy(model(x, done).flatten(0, 1), done.flatten()).backward()
            optimizer.step()
    assert ("targets not moved" in {one.kind for one in w.findings}) is cheats


class Prompted(nn.Module):
    """A frozen net, and a vector that is added to what it takes."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net, self.prompt = net.requires_grad_(False), nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x + self.prompt)


@pytest.mark.parametrize("before", [True, False])
def test_a_prompt_for_what_serves_already_has_little_to_gain(before):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randn(64, 4)
        return x, (x[:, :3] + 0.7 * torch.randn(64, 3)).argmax(1)

    for _ in range(300 if before else 0):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    def loop(model: nn.Module, optimizer: torch.optim.Optimizer, _: int) -> None:
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    assert ("frozen" in named(loop, Prompted(net))) is not before


@pytest.mark.parametrize("learns", [True, False])
def test_a_small_set_that_is_taken_at_once_is_a_note_where_it_is_learned(learns):
    torch.manual_seed(0)
    x, y = torch.randn(12, 6), torch.randint(3, (12,))
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2 if learns else 1e-5)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(100):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    (found,) = [one for one in w.findings if one.kind == "same batch"]
    assert found.severity == ("note" if learns else "careful")
    if learns:
        assert w.verdict.exit_code == 0
        told = w.diagnose()
        assert not told.findings and "same batch" in {one.kind for one in told.notes}
