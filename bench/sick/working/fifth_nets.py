"""Further faults of attention, padding, positions, states, pairs and generative nets, each by another way; and what only looks so."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_batch, on_inputs
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import duel, views
from bench.sick.working.other_nets import (
    LEVELS,
    Denoiser,
    Specks,
    divergence,
    drift,
    kinship,
    specks,
    specks_loss,
)
from bench.sick.working.third_nets import (
    ADAM,
    Facts,
    Heads,
    Interpreter,
    Journal,
    Mosaic,
    Parade,
    Podium,
    Reservoir,
    Singer,
    Stations,
    Weaver,
    corpus,
    facts,
    interpreter,
    journal,
    mosaic,
    parade,
    podium,
    reservoir,
    stations,
    two_strands,
    weave,
)

# ---- what a place may see --------------------------------------------------------------------------


class Fused(Heads):
    """Attention in one call."""

    def called(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=~hidden)

    def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
        assert hidden is not None
        mixed = self.called(self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x)), hidden)
        return self.join(mixed.transpose(1, 2).flatten(2))


def _fused(training: Training) -> None:
    training.use(Weaver(Fused()))


@HALF.fault("sees the future", weave, twin=_fused)
def is_causal_is_forgotten(training: Training) -> None:
    class Open(Fused):
        def called(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(query, key, value)

    training.use(Weaver(Open()))


@HALF.fault("mask turned around", weave, also=("sees the future",), twin=_fused)
def the_mask_of_one_call_given_to_the_other(training: Training) -> None:
    """In MultiheadAttention true is hidden; here true is seen."""

    class Turned(Fused):
        def called(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(query, key, value, attn_mask=hidden)

    training.use(Weaver(Turned()))


@HALF.fault("sees the future", weave)
def scores_times_the_mask(training: Training) -> None:
    """A score of zero is not hidden."""

    class Times(Heads):
        def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            assert hidden is not None
            return (scores * ~hidden).softmax(-1)

    training.use(Weaver(Times()))


@HALF.fault("sees the future", weave)
def the_diagonal_is_two(training: Training) -> None:
    class Wide(Weaver):
        def hidden(self, length: int) -> Tensor:
            return torch.ones(length, length, dtype=torch.bool).triu(2)

    training.use(Wide())


class Bands(Singer):
    """Convolutions along time."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal, self.recurrent = causal, nn.Identity()
        self.bands = nn.ModuleList([nn.Conv1d(24, 48, 3), nn.Conv1d(48, 48, 3)])

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x).transpose(1, 2)
        for band in self.bands:
            h = F.relu(band(F.pad(h, (2, 0) if self.causal else (1, 1))))
        return self.head(h.transpose(1, 2))


@HALF.fault("mask turned around", weave, also=("sees the future",))
def the_lower_triangle_is_hidden(training: Training) -> None:
    class Lower(Weaver):
        def hidden(self, length: int) -> Tensor:
            return torch.ones(length, length, dtype=torch.bool).tril(-1)

    training.use(Lower())


@HALF.fault("mask turned around", interpreter)
def a_mask_of_minus_infinity_within(training: Training) -> None:
    """The memory is hidden where it is of words."""

    class Hidden(Interpreter):
        def masks(self, length: int) -> dict[str, Tensor]:
            kept = torch.zeros(length, 6)
            kept[:, 1:] = float("-inf")
            return {**super().masks(length), "memory_mask": kept}

    training.use(Hidden())


# ---- softmax over another dimension ----------------------------------------------------------------


@HALF.fault("softmax over the wrong dimension", weave, also=("sees the future",))
def weights_over_the_questions(training: Training) -> None:
    class Over(Heads):
        def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            assert hidden is not None
            return scores.masked_fill(hidden, -1e9).softmax(dim=-2).masked_fill(hidden, 0) * 0.1

    training.use(Weaver(Over()))


@HALF.fault("softmax over the wrong dimension", two_strands)
def log_softmax_along_time(training: Training) -> None:
    def criterion(output: Tensor, label: Tensor) -> Tensor:
        return F.nll_loss(output.log_softmax(1).flatten(0, 1), label.flatten())

    training.criterion = criterion


@HALF.fault("softmax over the wrong dimension", corpus, twin=lambda training: _chosen(training, 1))
def the_first_of_six_over_the_batch(training: Training) -> None:
    _chosen(training, 0)


def _chosen(training: Training, dim: int) -> None:
    training.criterion = lambda output, _: -output.log_softmax(dim)[:, 0].mean()


class Pooled(Stations):
    """Places are weighed by a score."""

    def __init__(self, dim: int = 1, masked: bool = True) -> None:
        super().__init__()
        self.encoder = nn.Identity()  # type: ignore[assignment]
        self.score, self.dim, self.masked = nn.Linear(32, 1), dim, masked

    def forward(self, x: Tensor) -> Tensor:
        h = self.placed(x)
        score = self.score(h).squeeze(2)
        if self.masked:
            score = score.masked_fill(x == 0, -1e9)
        return self.head((score.softmax(self.dim).unsqueeze(2) * h).sum(1))


@HALF.fault("softmax over the wrong dimension", stations, twin=lambda training: training.use(Pooled()))
def places_weighed_over_the_batch(training: Training) -> None:
    training.use(Pooled(dim=0))


@HALF.fault("softmax over the wrong dimension", podium)
def pointers_log_softmax_over_the_steps(training: Training) -> None:
    training.criterion = lambda output, label: F.nll_loss(F.log_softmax(output, 1).flatten(0, 1), label.flatten())


# ---- positions -------------------------------------------------------------------------------------


@HALF.fault("no positions", stations)
def positions_made_with_zeros_like(training: Training) -> None:
    class Zeros(Stations):
        def placed(self, x: Tensor) -> Tensor:
            return self.tokens(x) + self.places(torch.zeros_like(x))

    training.use(Zeros())


@HALF.fault("no positions", mosaic)
def places_are_averaged_by_a_sum_over_the_wrong_axis(training: Training) -> None:
    class Summed(Mosaic):
        def placed(self, h: Tensor) -> Tensor:
            return torch.cat([self.begin.expand(len(h), 1, 32), h], 1) + self.places.mean(1, keepdim=True)

    training.use(Summed())


@HALF.fault("no positions", interpreter)
def places_begin_at_zero_and_are_a_buffer(training: Training) -> None:
    class Buffer(Interpreter):
        def __init__(self) -> None:
            super().__init__()
            del self.places
            self.register_buffer("places", torch.zeros(40, 32))

    training.use(Buffer())


@HALF.fault("no positions", stations)
def places_are_added_behind_the_encoder(training: Training) -> None:
    class Behind(Stations):
        def forward(self, x: Tensor) -> Tensor:
            padded = x == 0
            h = self.encoder(self.tokens(x), src_key_padding_mask=padded) + self.places(torch.arange(x.shape[1]))
            return self.head(h.masked_fill(padded.unsqueeze(2), 0).sum(1) / (~padded).sum(1, keepdim=True))

    training.use(Behind())


# ---- padding ---------------------------------------------------------------------------------------


@HALF.fault("padding idx of a token", facts, where=("relations",))
def minus_one_is_the_last_one(training: Training) -> None:
    training.use(Facts(padding_idx=-1))


@HALF.fault("padding idx of a token", facts, where=("relations",), also=("gradients overwritten", "weights put back"))
def row_zero_is_zeroed_after_each_step(training: Training) -> None:
    def zeroed(_: int) -> None:
        with torch.no_grad():
            training.model.relations.weight[0] = 0  # type: ignore[union-attr, operator]

    training.after.append(zeroed)


@HALF.fault("padding counts", parade, twin=lambda training: _ignored(training, counted=False))
def padding_is_a_class_of_its_own(training: Training) -> None:
    """It has the most places."""
    _ignored(training, counted=True)


def _ignored(training: Training, counted: bool) -> None:
    on_batch(training, lambda x, tag: (F.pad(x, (0, 60)), F.pad(tag, (0, 60), value=-100)))

    class More(Parade):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(48, 7)

    def criterion(output: Tensor, tag: Tensor) -> Tensor:
        label = torch.where(tag < 0, 6, tag) if counted else tag
        return F.cross_entropy(output.flatten(0, 1), label.flatten())

    training.criterion, training.optimize, training.steps = criterion, partial(torch.optim.SGD, lr=0.5, momentum=0.9), 120
    training.use(More())


# ---- time, batch and states ------------------------------------------------------------------------


@HALF.fault("batch first mixed up", two_strands)
def gru_of_time_first(training: Training) -> None:
    class First(Singer):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = nn.GRU(24, 48)

    training.use(First())


@HALF.fault("state not kept", journal, twin=lambda training: training.use(Back(0)))
def the_way_back_is_read_where_it_begins(training: Training) -> None:
    """Of a row that was turned around, the first output."""
    training.use(Back(-1))


class Back(Journal):
    """Reads from the end to the beginning."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.recurrent, self.place, self.head = nn.LSTM(16, 32, batch_first=True), place, nn.Linear(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(self.tokens(x).flip(1))[0].flip(1)[:, self.place])


@HALF.fault("state not kept", two_strands)
def each_token_is_a_row(training: Training) -> None:
    """The rows are flattened before the layer, and so each one has one step."""

    class Flat(Singer):
        def forward(self, x: Tensor) -> Tensor:
            h = self.tokens(x).flatten(0, 1).unsqueeze(1)
            return self.head(self.recurrent(h)[0]).view(*x.shape, -1)

    training.use(Flat())


@HALF.fault("state not kept", parade)
def the_new_state_is_not_the_next(training: Training) -> None:
    class First(Parade):
        def forward(self, x: Tensor) -> Tensor:
            state = torch.zeros(len(x), 48), torch.zeros(len(x), 48)
            return torch.stack([self.head(self.cell(token, state)[0]) for token in self.tokens(x).unbind(1)], 1)

    training.use(First())


@HALF.fault("exploding recurrence", reservoir, also=("not finite by the rate", "rate too high"))
def a_linear_state_by_a_large_matrix(training: Training) -> None:
    class Large(Reservoir):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(3 * torch.eye(24) + 0.3 * torch.randn(24, 24))

        def forward(self, x: Tensor) -> Tensor:
            h, states = torch.zeros(len(x), 24), []
            for step in self.inward(x).unbind(1):
                h = h @ self.matrix + step
                states.append(h)
            return self.read(torch.stack(states, 1))

    training.use(Large())


# ---- denoisers and latents -------------------------------------------------------------------------


def _levels(training: Training, change: Any) -> None:
    on_inputs(training, lambda given: (given[0], change(given[1])))


@HALF.fault("noise level hidden", drift)
def levels_of_the_neighbours(training: Training) -> None:
    _levels(training, lambda level: level.roll(1))


@HALF.fault("noise level hidden", drift)
def all_get_the_level_of_the_first(training: Training) -> None:
    _levels(training, lambda level: level[:1].expand(len(level)))


@HALF.fault("noise level hidden", drift)
def levels_are_counted_from_the_other_end(training: Training) -> None:
    _levels(training, lambda level: LEVELS - 1 - level)


@HALF.fault("noise level hidden", drift)
def waves_so_slow_that_they_stand(training: Training) -> None:
    class Slow(Denoiser):
        def waves(self, level: Tensor) -> Tensor:
            return super().waves(level * 1e-5)

    training.use(Slow())


@HALF.fault("latent ignored", specks)
def drawn_from_the_prior(training: Training) -> None:
    class Prior(Specks):
        def drawn(self, mean: Tensor, spread: Tensor) -> Tensor:
            return torch.randn_like(mean) if self.training else mean

    training.use(Prior())


@HALF.fault("latent ignored", specks)
def the_weight_of_the_divergence_grows_on_and_on(training: Training) -> None:
    now = [0]
    training.each.append(lambda number: now.__setitem__(0, number))
    training.criterion = lambda output, x: specks_loss(output, x, weight=0.5 * now[0])


@HALF.fault("latent ignored", specks)
def pixels_averaged_and_divergence_summed(training: Training) -> None:
    def criterion(output: Any, x: Tensor) -> Tensor:
        logits, mean, spread = output
        return F.binary_cross_entropy_with_logits(logits, x) + divergence(mean, spread).mean()

    training.criterion = criterion


# ---- pairs -----------------------------------------------------------------------------------------


@HALF.fault("collapse", kinship)
def only_the_partner_is_pulled(training: Training) -> None:
    training.criterion = lambda ends, _: 1 - (ends * ends.roll(len(ends) // 2, 0)).sum(1).mean()


@HALF.fault("collapse", views)
def uniformity_with_the_other_sign(training: Training) -> None:
    def criterion(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        left, right = output
        return (left - right).square().sum(1).mean() - torch.pdist(left).square().mul(-2).exp().mean().log()

    training.criterion = criterion


@HALF.fault("temperature", views)
def times_the_temperature(training: Training) -> None:
    training.criterion = lambda output, target: F.cross_entropy(output[0] @ output[1].T * 0.02, target)


@HALF.fault("wrong negatives", kinship)
def the_self_is_the_negative_to_beat(training: Training) -> None:
    """It is not hidden, and nothing is as near."""
    training.criterion = lambda ends, target: F.cross_entropy(ends @ ends.T / 0.2, torch.arange(len(ends)))


@HALF.fault("wrong negatives", corpus)
def negatives_are_copies_of_what_stood_there(training: Training) -> None:
    on_inputs(training, lambda given: (given[0], given[1][:, :1].expand(-1, 6)))


@HALF.fault("wrong negatives", views)
def the_right_view_is_its_own_partner(training: Training) -> None:
    """The left one is given twice."""
    on_inputs(training, lambda given: (given[0], given[0]))


# ---- against each other ----------------------------------------------------------------------------


@HALF.fault("generator detached", duel)
def made_without_gradients_for_both(training: Training) -> None:
    def one(training: Training, number: int) -> None:
        net, bce = training.model, F.binary_cross_entropy_with_logits
        real, _ = training.batch(number)
        with torch.no_grad():
            fake = net(real)
        ones = torch.ones(len(real), 1)
        training.others[0].zero_grad()
        (bce(net.discriminator(real), ones) + bce(net.discriminator(fake), 0 * ones)).backward()  # type: ignore[operator]
        training.others[0].step()
        training.optimizer.zero_grad()
        bce(net.discriminator(fake), ones).backward()  # type: ignore[operator]
        training.optimizer.step()

    training.step = one


# ---- strange, and healthy --------------------------------------------------------------------------


@HALF.strange(weave)
def hidden_by_minus_ten_thousand_added(training: Training) -> None:
    class Added(Heads):
        def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            assert hidden is not None
            return (scores + hidden.float() * -1e4).softmax(-1)

    training.use(Weaver(Added()))


@HALF.strange(weave)
def fused_and_causal(training: Training) -> None:
    class Causal(Fused):
        def called(self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)

    training.use(Weaver(Causal()))


@HALF.strange(two_strands)
def causal_bands(training: Training) -> None:
    training.use(Bands(causal=True))


@HALF.strange(stations)
def padding_is_seen_and_told_apart(training: Training) -> None:
    """The score learns to leave it out."""
    training.optimize = partial(ADAM, lr=0.02)
    training.use(Pooled(masked=False))


@HALF.strange(views)
def softmax_down_the_columns_of_a_square(training: Training) -> None:
    training.criterion = lambda output, _: -(output[0] @ output[1].T / 0.2).log_softmax(0).diagonal().mean()


@HALF.strange(drift)
def levels_as_shares(training: Training) -> None:
    class Shares(Denoiser):
        def waves(self, level: Tensor) -> Tensor:
            share = level.unsqueeze(1).float() / LEVELS
            return torch.cat([share, 1 - share, share.square(), share.sqrt(), (4 * share).sin(), (4 * share).cos(), share, share], 1)

    training.use(Shares())


@HALF.strange(specks)
def a_light_divergence(training: Training) -> None:
    training.criterion = lambda output, x: specks_loss(output, x, weight=0.1)


@HALF.strange(corpus)
def the_first_of_six(training: Training) -> None:
    _chosen(training, 1)


@HALF.strange(parade)
def tags_of_much_padding_ignored(training: Training) -> None:
    _ignored(training, counted=False)


@HALF.strange(interpreter)
def nothing_of_the_memory_is_hidden(training: Training) -> None:
    class Open(Interpreter):
        def masks(self, length: int) -> dict[str, Tensor]:
            return {**super().masks(length), "memory_mask": torch.zeros(length, 6)}

    training.use(Open())


@HALF.strange(podium)
def a_pointer_of_probabilities(training: Training) -> None:
    class Said(Podium):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).log_softmax(2)

    training.use(Said())
    training.criterion = lambda output, label: F.nll_loss(output.flatten(0, 1), label.flatten())
