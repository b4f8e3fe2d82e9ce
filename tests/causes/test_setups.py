"""Unusual set-ups, trainings that have just begun, and what only follows from a cause: each beside its neighbour."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import modlab
from modlab import wording
from modlab.results.watch import Watch
from modlab.running import attention_graph
from modlab.running.autograd_nodes import walk
from modlab.wording.causes import CAUSES, filled
from tests.causes.test_neighbours import kinds
from tests.causes.test_untrue import blobs, mlp, watched


def told(w: Watch) -> str:
    """The first finding, as a sentence."""
    return ": ".join(wording.in_halves(w.verdict.findings[0])) if w.verdict.findings else ""


# ---- targets that are all the same


def made() -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(0.2), nn.Linear(32, 2))
    return generator, nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))


def test_a_generator_that_is_watched_alone_should_please_its_judge() -> None:
    generator, judge = made()
    other, ones = torch.optim.Adam(judge.parameters(), 2e-3), torch.ones(64, 1)

    def loss() -> Tensor:
        real, fake = F.normalize(torch.randn(64, 2), dim=1), generator(torch.randn(64, 4))
        other.zero_grad()
        scores = judge(real), judge(fake.detach())
        sum(F.binary_cross_entropy_with_logits(one, label) for one, label in zip(scores, (ones, 0 * ones), strict=True)).backward()
        other.step()
        return F.binary_cross_entropy_with_logits(judge(fake), ones)

    assert "constant targets" not in kinds(watched(generator, loss, 200))


@pytest.mark.parametrize("paired", [True, False])
def test_one_of_a_pair_is_to_be_the_higher_one(*, paired: bool) -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

    def loss() -> Tensor:
        better, worse = torch.randn(32, 16) + 0.3, torch.randn(32, 16)
        score = net(better) - net(worse) if paired else net(better)
        return F.binary_cross_entropy_with_logits(score, torch.ones_like(score))

    assert ("constant targets" in kinds(watched(net, loss, 120))) is not paired


# ---- whose parameters they are


def test_parameters_in_the_place_of_the_models_own_are_no_other_models() -> None:
    net = mlp()
    own = {name: one.detach().clone().requires_grad_() for name, one in net.named_parameters()}
    x, label = blobs(256)
    w = watched(net, lambda: F.cross_entropy(functional_call(net, own, (x,)), label), 120, torch.optim.Adam([*own.values()], 1e-2))
    assert kinds(w) == []


def test_a_copy_that_follows_trains_in_no_mode_and_of_a_model_that_nobody_calls_no_layer_is_left_out() -> None:
    net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))
    follows, optimizer = copy.deepcopy(net), torch.optim.SGD(net.parameters(), 0.1)
    with modlab.watch(follows, optimizer) as w:
        for step in range(60):
            x, label = blobs()
            optimizer.zero_grad()
            F.cross_entropy(net(x), label).backward()
            optimizer.step()
            with torch.no_grad():
                for mine, its in zip(follows.parameters(), net.parameters(), strict=True):
                    mine.lerp_(its, 0.1)
            if step % 10 == 9:
                follows.eval()(x)
    assert "eval while training" not in kinds(w)

    x, label = blobs()
    w = watched(net, lambda: F.cross_entropy(follows(x), label), 60, torch.optim.SGD(net.parameters(), 0.1))
    assert "unused layers" not in kinds(w)  # all of them are, for another model is trained
    assert "no call of the model itself was seen" in str(w)


def test_layers_that_are_thawed_between_two_looks_are_in_no_optimizer() -> None:
    net = nn.Sequential(mlp(), nn.ReLU(), nn.Linear(5, 5))
    x, label = blobs(256)
    with modlab.watch(net) as w:
        net[0].requires_grad_(False)
        for thawed in (False, True):
            net[0].requires_grad_(thawed)
            optimizer = torch.optim.Adam(net[2].parameters(), 1e-2)
            for _ in range(150):
                optimizer.zero_grad()
                F.cross_entropy(net(x), label).backward()
                optimizer.step()
    assert kinds(w)[:1] == ["not in the optimizer"]


def test_what_never_moves_stays_as_it_began() -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(16, 5).requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.randn(4, 16)), nn.Parameter(torch.zeros(5, 4))

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + x @ self.a.T @ self.b.T

    net = Adapted()
    x, label = blobs()
    w = watched(net, lambda: F.cross_entropy(net(x), label), 60, torch.optim.Adam(net.base.parameters(), 1e-2))
    assert kinds(w)[:1] == ["not in the optimizer"]
    assert {"all weights equal", "vanishing gradient"}.isdisjoint(kinds(w))


# ---- the first steps


@pytest.mark.parametrize("steps", [1, 2, 3, 6])
def test_of_a_few_steps_numbers_say_nothing(steps: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss() -> Tensor:
        x = torch.randn(16, 6)
        return F.mse_loss(net(x), x.sum(1, keepdim=True))

    w = watched(net, loss, steps, torch.optim.SGD(net.parameters(), 0.1))
    assert w.verdict.exit_code in (0, 3)


def test_a_hook_is_no_cause_before_a_loss_had_time_to_fall() -> None:
    net = mlp()
    for one in net.parameters():
        one.register_hook(lambda gradient: gradient + 1e-3 * torch.randn_like(gradient))
    x, label = blobs()
    assert kinds(watched(net, lambda: F.cross_entropy(net(x), label), 6)) == []


def test_a_loss_that_is_no_number_is_told_at_once() -> None:
    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            return (self.body(one) - self.body(other)).square().sum(1).sqrt()

    net = Apart()

    def loss() -> Tensor:
        x, label = blobs()
        apart, same = net(x, torch.where(label[:, None] > 0, x.flip(0), x)), label == 0
        return torch.where(same, apart, F.relu(2 - apart)).square().mean()

    assert kinds(watched(net, loss, 30)) == ["root of zero"]  # and no learning rate beside it


# ---- rates


@pytest.mark.parametrize("zero", [100, 290])
def test_a_rate_that_becomes_zero_in_mid_run(zero: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer, count = torch.optim.Adam(net.parameters(), 1e-3), iter(range(300))

    def loss() -> Tensor:
        if next(count) == zero:
            optimizer.param_groups[0]["lr"] = 0.0
        x, label = blobs()
        return F.cross_entropy(net(x), label)

    w = watched(net, loss, 300, optimizer)
    assert (kinds(w)[:1] == ["rate runs out"]) is (zero == 100)
    if zero == 100:
        assert "to 0, and is 0 from step 1" in told(w)


@pytest.mark.parametrize("rate", [1e-9, 1e-2])
def test_a_loss_that_falls_by_chance_while_no_weight_moves(rate: float) -> None:
    net, gains = mlp(), iter(torch.linspace(3, 0.1, 100))

    def loss() -> Tensor:
        x, label = blobs()
        return next(gains) * F.cross_entropy(net(x), label)

    w = watched(net, loss, 100, torch.optim.Adam(net.parameters(), rate))
    assert (kinds(w)[:1] == ["rate too low"]) is (rate < 1e-3)


def test_of_three_groups_the_one_in_the_middle_is_not_said_to_have_the_greatest_rate() -> None:
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    groups = [{"params": net[at].parameters(), "lr": rate} for at, rate in ((0, 1e-12), (2, 1e-7), (4, 1e-2))]
    x, _ = blobs()
    w = watched(net, lambda: F.cross_entropy(net(x), torch.randperm(5).repeat(13)[:64]), 60, torch.optim.SGD(groups))
    finding = next(one for one in w.verdict.findings if one.kind == "groups swapped")
    assert ": ".join(wording.in_halves(finding)).endswith("20 % of the weights learn at 1e-12, 5.8 % at 0.01")


def test_a_loss_that_rises_while_small_steps_go_down_its_slope_is_not_the_rates() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 64), nn.Softplus(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    with modlab.watch(net, optimizer) as w:
        for step in range(400):
            x = torch.randn(32, 2)
            loss = net(x + 1).mean() - net(x).mean() + 1e-3 * 1.07**step  # a part that has no gradient
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    falls = next(one for one in w.record.verdict.checks if one.name == "the loss falls")
    assert (falls.state, falls.kind) == ("broken", "rises")
    assert "rate too high" not in kinds(w)


# ---- graphs


class Reading(nn.Module):
    """A decoder that looks at a source as long as what it writes; or at itself, the words to come among it."""

    def __init__(self, *, itself: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.source, self.words = nn.Embedding(12, 16), nn.Embedding(12, 16)
        self.reader, self.writer = nn.GRU(16, 24, batch_first=True), nn.GRU(16, 24, batch_first=True)
        self.places, self.head, self.itself = nn.Parameter(0.1 * torch.randn(8, 24)), nn.Linear(48, 12), itself

    def forward(self, source: Tensor, words: Tensor) -> Tensor:
        read, state = self.reader(self.source(source))
        written, _ = self.writer(self.words(words), state)
        keys = written if self.itself else read
        shares = ((written + self.places) @ (keys + self.places).mT).softmax(-1)
        return self.head(torch.cat([written, shares @ keys], -1))


@pytest.mark.parametrize(("rate", "low"), [(2e-2, True), (1e-9, False)], ids=["copies", "guesses"])
def test_the_loss_of_a_model_that_sees_the_future_is_called_low_where_it_is(*, rate: float, low: bool) -> None:
    net = Reading(itself=True)

    def loss() -> Tensor:
        source = torch.randint(2, 12, (32, 8))
        given = torch.cat([torch.ones(32, 1, dtype=torch.long), source[:, :-1]], 1)
        return F.cross_entropy(net(source, given).flatten(0, 1), source.flatten())

    found = next(one for one in watched(net, loss, 200, torch.optim.Adam(net.parameters(), rate)).findings if one.kind == "sees the future")
    assert ("the loss is low" in filled(CAUSES["sees the future"].why, found)) is low


@pytest.mark.parametrize("itself", [True, False])
def test_a_decoder_may_look_at_all_of_its_source(*, itself: bool) -> None:
    net = Reading(itself=itself)

    def loss() -> Tensor:
        source = torch.randint(2, 12, (32, 8))
        given = torch.cat([torch.ones(32, 1, dtype=torch.long), source[:, :-1]], 1)
        return F.cross_entropy(net(source, given).flatten(0, 1), source.flatten())

    assert ("sees the future" in kinds(watched(net, loss, 60))) is itself
    out = net(torch.randint(0, 12, (4, 8)), torch.randint(0, 12, (4, 8))).sum()
    assert len(attention_graph.attentions(walk(out.grad_fn, {}))) == itself


def test_rows_of_changing_lengths_end_no_search_for_causes() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each, self.all = nn.Linear(5, 16), nn.Linear(16, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.all(torch.relu(self.each(x)).mean(1))

    net, lengths = Bag(), iter([9, 2, 7, 3, 1, 5] * 10)

    def loss() -> Tensor:
        x = torch.randn(32, next(lengths), 5)
        return F.mse_loss(net(x), x[:, -1, :3])

    w = watched(net, loss, 30)
    assert "ended at" not in str(w)


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.first, self.second, self.third = nn.Linear(64, 1), nn.Linear(64, 5), nn.Linear(64, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.body(x)
        return self.first(x), self.second(x), self.third(x)


def test_a_gradient_that_comes_from_one_of_several_heads_explodes_along_no_depth() -> None:
    net = Heads()

    def loss() -> Tensor:
        x, label = blobs()
        first, second, third = net(x)
        return 1e6 * F.mse_loss(first, x[:, :1]) + F.cross_entropy(second, label) + F.mse_loss(third, x[:, 1:2])

    assert "exploding" not in [one.kind for one in watched(net, loss, 40).alerts]


class Blocks(nn.Module):
    """Two blocks, of which the shortcut may stand in place of what it should be added to."""

    def __init__(self, adds: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.deep, self.short = (nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)]) for _ in range(2))
        self.head, self.adds = nn.Linear(16, 5), adds

    def forward(self, x: Tensor) -> Tensor:
        for deep, short in zip(self.deep, self.short, strict=True):
            out = F.relu(deep(x))
            out = short(x) + (out if self.adds else 0.0)
            x = F.relu(out)
        return self.head(x)


@pytest.mark.parametrize("adds", [True, False])
def test_where_a_shortcut_takes_the_same_nothing_is_cut(*, adds: bool) -> None:
    net = Blocks(adds)

    def loss() -> Tensor:
        x, label = blobs()
        return F.cross_entropy(net(x), label)

    found = kinds(watched(net, loss, 40))
    assert ("unused layers" in found) is not adds
    assert "detached" not in found


def test_a_layer_that_is_called_and_gets_no_gradient_is_not_told_to_be_called() -> None:
    net = Heads()

    def loss() -> Tensor:
        x, label = blobs()
        first, second, third = net(x)
        return F.cross_entropy(second, label) + F.mse_loss(first, x[:, :1]) + F.mse_loss(third, x[:, 1:2]).item()

    w = watched(net, loss, 40)
    assert kinds(w)[:1] == ["unused layers"]
    assert "though they are called" in told(w)
    assert ".item()" in str(w)


@pytest.mark.parametrize("where", ["one of three", "by hand", "nowhere"])
def test_a_target_that_is_spread_over_the_outputs_beside_other_losses(where: str) -> None:
    net = Heads()

    def loss() -> Tensor:
        x, label = blobs()
        first, second, third = net(x)
        one = first if where == "one of three" else first.squeeze(1)[:, None] if where == "by hand" else first.squeeze(1)
        rest = F.cross_entropy(second, label) + F.mse_loss(third.squeeze(1), x[:, 1])
        return rest + (x[:, 0] - one).square().mean()

    w = watched(net, loss, 40)
    assert ("broadcast" in kinds(w)) is (where != "nowhere")


def test_rows_that_an_argmin_chooses_ask_for_it() -> None:
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.into, self.codes, self.out = nn.Linear(16, 6), nn.Embedding(8, 6), nn.Linear(6, 16)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.codes(torch.cdist(self.into(x), self.codes.weight).argmin(1)))

    net = Quantized()

    def loss() -> Tensor:
        x, _ = blobs()
        return F.mse_loss(net(x), x)

    finding = watched(net, loss, 40).verdict.findings[0]
    assert (finding.kind, finding.path, finding.facts["rival"]) == ("no gradient through", "into", "detached")


def test_targets_that_are_one_vector_say_nothing_of_the_weights() -> None:
    torch.manual_seed(0)
    net, centre = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), torch.randn(8)
    w = watched(net, lambda: (net(torch.randn(32, 16)) - centre).square().sum(1).mean(), 60, torch.optim.Adam(net.parameters(), 1e-9))
    assert kinds(w) == ["rate too low"]


# ---- with a batch


def test_a_diagnosis_that_finds_nothing_says_what_it_does_not_explain() -> None:
    net, steps = mlp(), iter(range(400))
    x, label = blobs()
    w = watched(net, lambda: F.cross_entropy(net(x), label) + 0.02 * next(steps), 400)
    found = w.diagnose()
    assert w.verdict.exit_code == 2
    assert not found.record.findings
    assert "The loss rises" in w.headline and "What lies behind the headline of the watch (w.headline) was not found" in str(found)


class Sampled(nn.Module):
    """Columns that are drawn in training, and chosen in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.scores, self.head = nn.Parameter(torch.zeros(4, 16)), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        chosen = F.gumbel_softmax(self.scores, hard=True) if self.training else F.one_hot(self.scores.argmax(1), 16).float()
        return self.head(x @ chosen.T)


@pytest.mark.parametrize("mode", [True, False])
def test_gradients_that_arrive_in_training_mode_alone_arrive(*, mode: bool) -> None:
    net = Sampled().train(mode)
    found = modlab.diagnose(net, batch=blobs(), loss=F.cross_entropy)
    assert next(one.outcome for one in found.record.experiments if one.kind == "gradients arrive") == "passed"
    assert net.training is mode


@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_scores_whose_mean_is_far_off_are_not_known(scale: float) -> None:
    class Guess(nn.Module):
        """It guesses, but is sure of one sample: of that it gives so much that the mean of all is a wild answer."""

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            one = scale * F.one_hot(x[:1, :5].argmax(1), 5).float()
            return 0 * self.head(x) + torch.cat([one - one.mean(), torch.zeros(len(x) - 1, 5)])

    found = modlab.diagnose(Guess(), batch=blobs(), loss=F.cross_entropy)
    assert "knows it" not in [one.kind for one in found.record.experiments]


@pytest.mark.parametrize(("cut", "third", "told"), [(False, False, True), (True, False, False), (True, True, False)])
def test_an_optimizer_of_a_judge_that_holds_its_generator_moves_it_where_nothing_is_cut_in_between(
    *, cut: bool, third: bool, told: bool
) -> None:
    """A third one may serve both on purpose, as for what a generator should let be known."""
    model = nn.ModuleList(made())
    makes, judges = torch.optim.Adam(model[0].parameters(), 1e-3), torch.optim.Adam((model[1] if third else model).parameters(), 1e-3)
    both = torch.optim.Adam(model.parameters(), 1e-3)
    yes, no = torch.ones(64, 1), torch.zeros(64, 1)
    with modlab.watch(model, [makes, judges, both] if third else [makes, judges]) as w:
        for _ in range(60):
            makes.zero_grad()
            F.mse_loss(model[1](model[0](torch.randn(64, 4))), yes).backward()
            makes.step()
            judges.zero_grad()
            real, fake = F.normalize(torch.randn(64, 2), dim=1), model[0](torch.randn(64, 4))
            (F.mse_loss(model[1](real), yes) + F.mse_loss(model[1](fake.detach() if cut else fake), no)).backward()
            judges.step()
            if third:
                both.zero_grad()
                F.mse_loss(model[1](model[0](torch.randn(64, 4))), torch.rand(64, 1)).backward()
                both.step()
    assert ("two optimizers" in kinds(w)) is told


@pytest.mark.parametrize("turns", [True, False])
def test_a_critic_that_is_frozen_for_the_turn_of_its_generator_is_trained(*, turns: bool) -> None:
    generator, judge = made()
    judge = nn.Sequential(nn.utils.parametrizations.spectral_norm(judge[0]), judge[1], judge[2])
    steps = [torch.optim.Adam(one.parameters(), 2e-3, betas=(0.0, 0.9)) for one in (generator, judge)]
    judge.requires_grad_(turns)
    with modlab.watch(judge, steps[1]) as w:
        for _ in range(120):
            fake = generator(torch.randn(64, 4))
            if turns:
                judge.requires_grad_(True)
                steps[1].zero_grad()
                (F.relu(1 - judge(F.normalize(torch.randn(64, 2), dim=1))).mean() + F.relu(1 + judge(fake.detach())).mean()).backward()
                steps[1].step()
                judge.requires_grad_(False)
            steps[0].zero_grad()
            (-judge(fake).mean()).backward()
            steps[0].step()
    assert ("frozen" in kinds(w)) is not turns


def test_another_order_is_no_other_answer_only_where_there_are_numbers() -> None:
    """Padding in front of a causal mask leaves a softmax over nothing; what has numbers is told apart."""

    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word, self.place, self.head = nn.Embedding(12, 16), nn.Embedding(8, 16), nn.Linear(16, 12)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            h, hides = self.word(x) + self.place.weight, torch.ones(8, 8).triu(1).bool()
            return self.head(h + self.attention(h, h, h, key_padding_mask=x == 0, attn_mask=hides)[0])

    torch.manual_seed(0)
    x = torch.randint(1, 12, (16, 8))
    x[torch.arange(8)[None] >= torch.randint(3, 8, (16, 1))] = 0
    found = modlab.diagnose(
        Padded(), batch=(x, x), loss=lambda output, y: F.cross_entropy(output.flatten(0, 1), y.flatten(), ignore_index=0)
    )
    order = [one for one in found.record.experiments if one.name == "order"]
    assert [one.kind for one in order] == ["order counts"]


@pytest.mark.parametrize("watched_too", [True, False])
def test_a_net_that_is_frozen_when_its_training_is_over(*, watched_too: bool) -> None:
    net = mlp()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    x, y = blobs()
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    net.eval().requires_grad_(False)
    found = w.diagnose() if watched_too else modlab.diagnose(net, optimizer)
    assert [one.severity for one in found.findings if one.kind == "frozen, but moves"] == ([] if watched_too else ["careful"])


@pytest.mark.parametrize("batch_first", [True, False])
def test_padding_says_nothing_of_where_time_lies(*, batch_first: bool) -> None:
    """Nearly all tokens fill their rows up: whatever row or column is taken for the next one, they agree with it."""

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word, self.read = nn.Embedding(40, 16, padding_idx=0), nn.GRU(16, 24, batch_first=batch_first)
            self.head = nn.Linear(24, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.read(self.word(x))[0])

    torch.manual_seed(0)
    net = Tagger()

    def loss() -> Tensor:
        x = torch.randint(1, 40, (32, 100)).masked_fill(torch.arange(100) >= torch.randint(2, 6, (32, 1)), 0)
        y = torch.where(x == 0, 0, 1 + (x + F.pad(x, (1, 0))[:, :-1]) % 4)
        return F.cross_entropy(net(x).transpose(1, 2), y, ignore_index=0)

    assert ("batch first mixed up" in kinds(watched(net, loss, 80, torch.optim.Adam(net.parameters(), 1e-2)))) is not batch_first


def test_what_follows_from_a_scaler_and_from_a_small_loss_is_no_cause_beside_it() -> None:
    x, y = blobs()
    net = mlp()
    small = watched(net, lambda: 1e-6 * F.cross_entropy(net(x), y), 80, torch.optim.SGD(net.parameters(), 0.1))
    assert kinds(small)[0] == "loss too small" and "rate too low" not in kinds(small)
    net = mlp()
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(net.parameters(), 0.1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(80):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y)).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    assert kinds(w)[0] == "scaler misused" and "clipped to nothing" not in kinds(w)


@pytest.mark.parametrize(
    ("power", "lasts", "named"), [(24, 1, True), (24, 60, False), (8, 1, False), (16, 12, False)], ids=["new", "kept", "fits", "folds"]
)
def test_a_scaler_that_begins_anew_in_each_step_finds_no_scale(power: int, lasts: int, named: bool) -> None:
    x, y = blobs()
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with modlab.watch(net, optimizer) as w:
        for number in range(60):
            if number % lasts == 0:
                scaler = torch.amp.GradScaler("cpu", init_scale=2.0**power)
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                output = net(x)
            scaler.scale(F.cross_entropy(output.float(), y)).backward()
            scaler.step(optimizer)
            scaler.update()
    assert ("scaler misused" in kinds(w)) is named and (w.verdict.exit_code == 1) is named
    assert max(one.high.max() for one in w.record.scalars if one.kind == "loss") < 10  # whichever scaler it was


def test_a_scaler_that_skips_each_step_down_to_nothing_lets_nobody_learn() -> None:
    x, y = blobs()
    net = mlp()
    scaler, optimizer = torch.amp.GradScaler("cpu"), torch.optim.SGD(net.parameters(), 0.1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(40):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(net(x), y) + (0 * net(x)).sqrt().sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert w.verdict.exit_code == 1 and [one.severity for one in w.verdict.findings if one.kind == "steps skipped"] == ["broken"]


def test_a_copy_that_goes_on_by_old_averages_climbs_no_slope() -> None:
    """Steps of an optimizer that was trained on other batches go up on this one: its sign is right."""
    net, (x, y) = mlp(), blobs()
    optimizer = torch.optim.SGD(net.parameters(), 1e-4, momentum=0.999)
    for _ in range(200):
        optimizer.zero_grad()
        (-F.cross_entropy(net(x), y)).backward()
        optimizer.step()
    assert "wrong sign" not in [one.kind for one in modlab.diagnose(net, optimizer, batch=(x, y), loss=F.cross_entropy).findings]
    optimizer = torch.optim.SGD(net.parameters(), 1e-2, maximize=True)
    assert "wrong sign" in [one.kind for one in modlab.diagnose(net, optimizer, batch=(x, y), loss=F.cross_entropy).findings]


def test_a_layer_whose_weights_hold_nan_is_told_as_spoilt() -> None:
    net, (x, y) = mlp(), blobs()
    with torch.no_grad():
        net[0].weight[0, 0] = torch.nan
    told = modlab.diagnose(net, batch=(x, y), loss=F.cross_entropy).findings[0].sentence
    assert "0 (Linear), whose weights hold NaN, makes the first" in told


@pytest.mark.parametrize("pixels", [31.0, 1.0])
@pytest.mark.parametrize("error", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_what_one_of_several_losses_asks_for_may_be_out_of_reach(pixels: float, error: Callable[[Tensor, Tensor], Tensor]) -> None:
    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.kind, self.box = nn.Sequential(nn.Linear(16, 64), nn.ReLU()), nn.Linear(64, 5), nn.Linear(64, 4)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            h = self.body(x)
            return {"kind": self.kind(h), "box": self.box(h).sigmoid()}

    torch.manual_seed(0)
    net = Detector()

    def loss() -> Tensor:
        x, y = blobs()
        given, box = net(x), pixels * x[:, :4].sigmoid()
        return F.cross_entropy(given["kind"], y) + 0.1 * error(given["box"], box)

    w = watched(net, loss, 120)
    assert ("output cannot reach" in kinds(w)) is (pixels > 1)
    assert pixels == 1 or "sigmoid gives 0 to 1, and targets go from" in told(w)


@pytest.mark.parametrize("trained", [True, False])
def test_a_loss_that_is_low_already_has_little_left_to_fall(*, trained: bool) -> None:
    net = mlp()

    def loss() -> Tensor:
        x, y = blobs()
        return F.cross_entropy(net(x), y)

    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(600 * trained):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    w = watched(net, loss, 60, torch.optim.SGD(net.parameters(), 1e-5), budget=1.0)
    falls = next(one for one in w.verdict.checks if one.name == "the loss falls")
    assert falls.kind == ("low already" if trained else "no trend"), str(w.verdict)
    assert "The loss falls" not in w.headline and ("rate too low" in kinds(w)) is not trained


@pytest.mark.parametrize("again", [True, False])
def test_units_that_fire_again_are_no_headline(*, again: bool) -> None:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), 3e-3)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for step in range(160):
            if step in (0, 120 if again else 0):
                with torch.no_grad():
                    net[0].bias[:48] = 0.0 if step else -100.0
            x, y = blobs()
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    units = [one for one in w.alerts if one.kind == "dead"]
    assert units and all(one.over is again for one in units), units
    assert ("dead" in w.headline) is not again
