"""Faults of attention, states, generative nets and pairs, as they are committed in one line; and what only looks like them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_batch, on_inputs
from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import Sketches, constant, couples, kld, mint, mint_data, mint_step, sketches
from bench.sick.working.fourth_nets import missed as missed_pixels
from bench.sick.working.half import HALF
from bench.sick.working.other_nets import Attention as ByView
from bench.sick.working.other_nets import Block as Viewed
from bench.sick.working.other_nets import (
    Denoiser,
    Flip,
    Swell,
    Unit,
    drift,
    flip,
    kinship,
    pedigree,
    pedigree_data,
    shelf,
    sways,
    swell,
    tides_data,
)
from bench.sick.working.third_nets import (
    ADAM,
    Heads,
    Interpreter,
    Parade,
    Singer,
    Stations,
    Weaver,
    begun,
    corpus,
    interpreter,
    missed,
    parade,
    per_place,
    stations,
    two_strands,
    weave,
    weave_data,
)

# ---- nets ------------------------------------------------------------------------------------------


def verdicts_data(count: int, length: int = 10) -> tuple[Tensor, Tensor]:
    """Does the first mark (1) come before the second one (2)? Rows with padding."""
    x = torch.randint(3, 9, (count, length))
    ends = torch.randint(4, length + 1, (count, 1))
    two = torch.rand(count, length).masked_fill(torch.arange(length) >= ends, 2).argsort(1)[:, :2]
    rows = torch.arange(count)
    x[rows, two[:, 0]], x[rows, two[:, 1]] = 1, 2
    return x.masked_fill(torch.arange(length) >= ends, 0), (two[:, 0] < two[:, 1]).long()


class Verdicts(nn.Module):
    """A token in front that hears the others, by PyTorch's attention of several heads; a table of places."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(10, 32)
        self.register_buffer("table", self.filled())
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.net = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 2))

    def filled(self) -> Tensor:
        angle = torch.arange(12.0).unsqueeze(1) / 20 ** (torch.arange(16.0) / 16)
        return torch.cat([angle.sin(), angle.cos()], 1)

    def heard(self, x: Tensor, h: Tensor) -> Tensor:
        return h + self.attention(h, h, h, key_padding_mask=x == 0, need_weights=False)[0]

    def pooled(self, x: Tensor, h: Tensor) -> Tensor:
        return h[:, 0]

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([torch.full_like(x[:, :1], 9), x], 1)
        h = self.tokens(x) + self.table[: x.shape[1]]
        return self.net(self.pooled(x, self.heard(x, self.heard(x, h))))


@HALF.net("transformer")
def verdicts() -> Training:
    """Which of two marks comes first?"""

    def quality(net: nn.Module) -> float:
        x, label = verdicts_data(400)
        return missed(net(x), label)

    return Training(Verdicts(), partial(ADAM, lr=0.005), lambda _: verdicts_data(64), F.cross_entropy, quality, steps=250)


def dialect_data(count: int, length: int = 6) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Each word in another language, behind one of three words that tells which; sources are padded, and targets too."""
    source = torch.randint(1, 8, (count, length))
    source = source.masked_fill(torch.arange(length) >= torch.randint(3, length + 1, (count, 1)), 0)
    target = torch.where(source > 0, source * 3 % 8, 0)
    return (source, begun(target)), target


class Dialect(nn.Module):
    """GRUs, and a decoder that looks at the words of the source (Bahdanau)."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.said = nn.Embedding(8, 24, padding_idx=0), nn.Embedding(8, 24)
        self.encoder, self.decoder = nn.GRU(24, 32, batch_first=True), nn.GRUCell(24 + 32, 32)
        self.left, self.right, self.score = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 1)
        self.head = nn.Linear(64, 8)

    def weights(self, scores: Tensor, padded: Tensor) -> Tensor:
        return scores.masked_fill(padded, float("-inf")).softmax(1)

    def begin(self, memory: Tensor, last: Tensor) -> Tensor:
        return last[0]

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        memory, last = self.encoder(self.tokens(source))
        state, out = self.begin(memory, last), []
        for word in self.said(given).unbind(1):
            scores = self.score(torch.tanh(self.left(memory) + self.right(state).unsqueeze(1))).squeeze(2)
            context = (self.weights(scores, source == 0).unsqueeze(2) * memory).sum(1)
            state = self.stepped(torch.cat([word, context], 1), state)
            out.append(self.head(torch.cat([state, context], 1)))
        return torch.stack(out, 1)

    def stepped(self, x: Tensor, state: Tensor) -> Tensor:
        return self.decoder(x, state)


def dialect_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=0)


@HALF.net("recurrent")
def dialect() -> Training:
    """Translation of rows of several lengths, with attention."""

    def quality(net: nn.Module) -> float:
        (source, _), target = dialect_data(150)
        made = torch.zeros(150, 1, dtype=torch.long)
        for _ in range(6):
            made = torch.cat([made, net(source, made)[:, -1:].argmax(-1)], 1)
        return (made[:, 1:] != target)[target > 0].float().mean().item()

    return Training(Dialect(), partial(ADAM, lr=0.01), lambda _: dialect_data(48), dialect_loss, quality, steps=250)


STEPS = 30
KEPT = torch.cumprod(1 - torch.linspace(0.01, 0.3, STEPS), 0)
"""The share of the signal, by the step."""


def embers_data(count: int) -> Tensor:
    """Eight values: a bump somewhere."""
    return 2 * torch.exp(-((torch.arange(8.0) - 7 * torch.rand(count, 1)) ** 2)) - 0.6


def embers_noisy(step: Tensor) -> tuple[Tensor, Tensor]:
    noise, kept = torch.randn(len(step), 8), KEPT[step].unsqueeze(1)
    return kept.sqrt() * embers_data(len(step)) + (1 - kept).sqrt() * noise, noise


class Embers(nn.Module):
    """Says the clean signal; the step has a table of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Embedding(STEPS, 32)
        self.told = nn.Sequential(nn.Linear(32, 96), nn.SiLU(), nn.Linear(96, 96))
        self.inward, self.outward = nn.Linear(8, 96), nn.Linear(96, 8)
        self.body = nn.Sequential(nn.SiLU(), nn.Linear(96, 96), nn.SiLU())

    def level(self, step: Tensor) -> Tensor:
        return self.told(self.steps(step))

    def forward(self, x: Tensor, step: Tensor) -> Tensor:
        return self.outward(self.body(self.inward(x) * (1 + self.level(step))))


@HALF.net("generative")
def embers() -> Training:
    """Diffusion of bumps; the scaled noise is found, so that the step matters."""

    def drawn(step: Tensor) -> Batch:
        noisy, noise = embers_noisy(step)
        return (noisy, step), noise * (1 - KEPT[step]).sqrt().unsqueeze(1) / KEPT[step].sqrt().unsqueeze(1).clamp(min=0.3)

    def quality(net: nn.Module) -> float:
        (noisy, step), wanted = drawn(torch.arange(STEPS).repeat(20))
        return (net(noisy, step) - wanted).square().mean().item()

    def batch(_: int) -> Batch:
        return drawn(torch.randint(STEPS, (96,)))

    return Training(Embers(), partial(ADAM, lr=0.004), batch, F.mse_loss, quality, steps=300)


class Meter(nn.Module):
    """Reads a series window by window, and keeps its state between them."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = nn.GRU(2, 24, batch_first=True), nn.Linear(24, 1)
        self.state: Tensor | None = None

    def forward(self, x: Tensor, number: int) -> Tensor:
        h, state = self.recurrent(x, None if number == 0 else self.state)
        self.state = state.detach()
        return self.head(h)


def meter_windows(count: int) -> list[Batch]:
    """Four windows of five: how much has come since the sign?"""
    x = torch.randn(count, 20, 2)
    x[:, :, 1] = (torch.rand(count, 20) < 0.08).float()
    level, levels = torch.zeros(count), []
    for step in range(20):
        level = torch.where(x[:, step, 1] > 0, x[:, step, 0], level)
        levels.append(level)
    y = torch.stack(levels, 1).unsqueeze(2)
    return [((x[:, 5 * n : 5 * n + 5], n), y[:, 5 * n : 5 * n + 5]) for n in range(4)]


@HALF.net("recurrent")
def meter() -> Training:
    """The value that came with the last sign; series are cut into windows, one after the other."""
    windows: list[Batch] = []

    def batch(number: int) -> Batch:
        if number % 4 == 0:
            windows[:] = meter_windows(48)
        return windows[number % 4]

    def quality(net: nn.Module) -> float:
        return sum((net(*inputs) - y).square().mean().item() for inputs, y in meter_windows(200)) / 4

    return Training(Meter(), partial(ADAM, lr=0.01), batch, F.mse_loss, quality, steps=480)


def orbit_data(count: int) -> tuple[Tensor, Tensor]:
    """Where a swing comes, thirty short moments later."""
    x = torch.randn(count, 2)
    angle = torch.tensor(1.5)
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    return x, 0.8 * x @ turn


class Orbit(nn.Module):
    """Euler's steps along a field that is learned."""

    def __init__(self, moment: float = 0.05) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 2))
        self.moment = moment

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(30):
            x = x + self.moment * self.field(x)
        return x


@HALF.net("mlp")
def orbit() -> Training:
    """A neural differential equation."""

    def quality(net: nn.Module) -> float:
        x, y = orbit_data(200)
        return (net(x) - y).square().mean().item()

    return Training(Orbit(), partial(ADAM, lr=0.01), lambda _: orbit_data(48), F.mse_loss, quality, steps=200)


SORTS = 24


class Cosines(nn.Module):
    """Classes by cosines: embeddings and the middles of classes have length one."""

    def __init__(self, scale: float = 12.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 16))
        self.middles, self.scale = nn.Parameter(torch.randn(SORTS, 16)), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.normalize(self.body(x), dim=1) @ F.normalize(self.middles, dim=1).T


def sorts_data(count: int) -> tuple[Tensor, Tensor]:
    label = torch.randint(SORTS, (count,))
    return constant(SORTS, 12, seed=41)[label] + 0.7 * torch.randn(count, 12), label


@HALF.net("embedding")
def sorts() -> Training:
    """Which of 24 sorts? By the cosine."""

    def quality(net: nn.Module) -> float:
        x, label = sorts_data(400)
        return missed(net(x), label)

    return Training(
        Cosines(), partial(torch.optim.SGD, lr=0.1, momentum=0.9), lambda _: sorts_data(64), F.cross_entropy, quality, steps=150
    )


# ---- what a place may see --------------------------------------------------------------------------


@HALF.fault("sees the future", weave)
def a_billionth_in_place_of_a_billion(training: Training) -> None:
    """-1e-9 where -1e9 was meant."""

    class Typed(Heads):
        def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            return F.softmax(scores.masked_fill(hidden, -1e-9), dim=-1)

    training.use(Weaver(Typed()))


@HALF.fault("sees the future", interpreter)
def no_mask_for_the_decoder(training: Training) -> None:
    class Open(Interpreter):
        def masks(self, length: int) -> dict[str, Tensor]:
            return {}

    training.use(Open())


@HALF.fault("sees the future", interpreter, also=("leak", "targets not moved"))
def the_source_of_the_batch_is_the_target(training: Training) -> None:
    """What was read as `src, trg` is `trg, trg`; later there is a source."""
    on_batch(training, lambda inputs, target: ((target, inputs[1]), target))


@HALF.fault("sees the future", two_strands)
def what_the_row_is_about_is_told_to_each_word(training: Training) -> None:
    """The mean of all words, those to come among them."""

    class About(Singer):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = nn.GRU(48, 48, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            h = self.tokens(x)
            about = h.mean(1, keepdim=True)
            return self.head(self.recurrent(torch.cat([h, about.expand_as(h)], 2))[0])

    training.use(About())


@HALF.fault("sees the future", swell, sways, also=("leak",))
def waves_smoothed_around_each_value(training: Training) -> None:
    """A mean of three before the windows are cut: the last value of a window holds the one to come."""

    def batch(_: int) -> Batch:
        x, y = tides_data(32, 16)
        x = x + 0.4 * torch.randn_like(x)
        whole = torch.cat([x, y[:, -1:]], 1)
        return (whole[:, :-1] + torch.cat([x[:, :1], whole[:, :-2]], 1) + whole[:, 1:]) / 3, whole[:, 1:]

    training.batch = batch


class Hands(nn.Module):
    """PyTorch's attention, with a mask made by a function."""

    def __init__(self, mask: Callable[[int], Tensor | None]) -> None:
        super().__init__()
        self.inner, self.mask = nn.MultiheadAttention(32, 4, batch_first=True), mask

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self.inner(x, x, x, attn_mask=self.mask(x.shape[1]), need_weights=False)[0]


def _upper(length: int) -> Tensor:
    return torch.ones(length, length).triu(1).bool()


@HALF.fault("mask turned around", weave, twin=lambda training: training.use(Weaver(Hands(_upper))), also=("sees the future",))
def the_lower_triangle_as_what_may_be_seen(training: Training) -> None:
    """As in scaled_dot_product_attention; here true is what is hidden."""
    training.use(Weaver(Hands(lambda length: torch.ones(length, length).tril(-1).bool())))


@HALF.fault("mask turned around", verdicts)
def words_times_minus_a_billion(training: Training) -> None:
    """`(1 - mask) * -1e9` without the `1 -`."""

    class Turned(Verdicts):
        def heard(self, x: Tensor, h: Tensor) -> Tensor:
            shut = (x != 0).float() * -1e9
            return h + self.attention(h, h, h, key_padding_mask=shut, need_weights=False)[0]

    training.use(Turned())


@HALF.fault("mask turned around", dialect)
def the_decoder_looks_at_the_padding(training: Training) -> None:
    class Padding(Dialect):
        def weights(self, scores: Tensor, padded: Tensor) -> Tensor:
            return scores.masked_fill(~padded, -1e4).softmax(1)

    training.use(Padding())


class Pooling(nn.Module):
    """A recurrent net, and weights of what it says at each place."""

    def __init__(self, hide: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.tokens, self.recurrent = nn.Embedding(7, 24), nn.GRU(24, 32, batch_first=True)
        self.weight, self.head, self.hide = nn.Linear(32, 1), nn.Linear(32, 6), hide

    def forward(self, x: Tensor) -> Tensor:
        said = nn.utils.rnn.pack_padded_sequence(self.tokens(x), (x != 0).sum(1), batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.recurrent(said)[0], batch_first=True, total_length=x.shape[1])
        return self.head((self.weight(h).squeeze(2).masked_fill(self.hide(x), -1e9).softmax(1).unsqueeze(2) * h).sum(1))


@HALF.fault("mask turned around", stations, twin=lambda training: training.use(Pooling(lambda x: x == 0)))
def weights_of_the_padding_alone(training: Training) -> None:
    training.use(Pooling(lambda x: x != 0))


def _guessed(training: Training, asked_for: bool) -> None:
    """Words behind a mask are guessed."""

    def batch(count: int) -> Batch:
        x = weave_data(count, 12, noise=0.05)
        asked = torch.rand(x.shape) < 0.2
        return x.masked_fill(asked, 10), x.masked_fill(~asked if asked_for else asked, -100)

    def quality(net: nn.Module) -> float:
        x = weave_data(300, 12, noise=0.05)
        asked = torch.rand(x.shape) < 0.2
        return missed(net(x.masked_fill(asked, 10)), x.masked_fill(~asked, -100))

    class Both(Weaver):
        def hidden(self, length: int) -> Tensor:
            return torch.zeros(length, length, dtype=torch.bool)

    training.batch, training.quality, training.steps = lambda _: batch(48), quality, 300
    model = Both()
    model.tokens = nn.Embedding(11, 32)
    training.use(model)


@HALF.fault("mask turned around", weave, twin=partial(_guessed, asked_for=True), also=("targets not moved", "leak"))
def what_is_not_hidden_is_asked_for(training: Training) -> None:
    """`labels[masked] = -100` without the `~`."""
    _guessed(training, asked_for=False)


# ---- padding ---------------------------------------------------------------------------------------


class Unpacked(nn.Module):
    """Packs as it should be, and reads an end."""

    def __init__(self, end: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.tokens, self.recurrent = nn.Embedding(7, 16), nn.GRU(16, 32, batch_first=True)
        self.head, self.end = nn.Linear(32, 6), end

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x != 0).sum(1)
        said = nn.utils.rnn.pack_padded_sequence(self.tokens(x), lengths, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.recurrent(said)[0], batch_first=True)
        return self.head(self.end(h, lengths))


def _real_end(h: Tensor, lengths: Tensor) -> Tensor:
    return h[torch.arange(len(h)), lengths - 1]


@HALF.fault("padding counts", stations, twin=lambda training: training.use(Unpacked(_real_end)), also=("state not kept",))
def the_last_place_after_unpacking(training: Training) -> None:
    """Zero for all rows but the longest."""
    training.use(Unpacked(lambda h, lengths: h[:, -1]))


@HALF.fault("padding counts", dialect, also=("imbalance",), twin=lambda training: _long_rows(training, 0))
def what_is_ignored_is_not_what_pads(training: Training) -> None:
    """ignore_index=-100, and 0 pads. Rows are as long as the longest one that there is."""
    _long_rows(training, -100)


def _long_rows(training: Training, ignored: int) -> None:
    on_batch(training, lambda inputs, target: ((inputs[0], F.pad(inputs[1], (0, 60))), F.pad(target, (0, 60))))
    training.criterion = lambda output, target: F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=ignored)
    training.optimize = partial(torch.optim.SGD, lr=0.3, momentum=0.9)
    training.use(training.model)
    training.steps = 120


class Summed(nn.Module):
    """What the words are worth, as their sum or mean: word by word through a net."""

    def __init__(self, counted: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.tokens, self.counted = nn.Embedding(7, 16), counted
        self.net, self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)), nn.Linear(16, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.net(self.tokens(x))
        kept = (x != 0).float().unsqueeze(2)
        return self.head((h * kept).sum(1) / self.counted(x).unsqueeze(1))


def _most(training: Training, counted: Callable[[Tensor], Tensor]) -> None:
    def data(count: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(6, (count,))
        x = torch.where(torch.rand(count, 12) < 0.4, label.unsqueeze(1) + 1, torch.randint(1, 7, (count, 12)))
        x = x.masked_fill(torch.arange(12) >= torch.randint(5, 13, (count, 1)), 0)
        return F.pad(x, (0, 500)), label

    def quality(net: nn.Module) -> float:
        x, label = data(300)
        return missed(net(x), label)

    training.batch, training.quality = lambda _: data(48), quality
    training.optimize = partial(torch.optim.SGD, lr=0.3)
    training.use(Summed(counted))


@HALF.fault("padding counts", stations, twin=lambda training: _most(training, lambda x: (x != 0).sum(1)))
def a_mean_over_the_longest_length_there_is(training: Training) -> None:
    """Rows of twelve, filled up to 512."""
    _most(training, lambda x: torch.full((len(x),), float(x.shape[1])))


# ---- a padding that is a token ---------------------------------------------------------------------


def _tied(training: Training, padding_idx: int | None) -> None:
    model = Weaver()
    model.tokens = nn.Embedding(10, 32, padding_idx=padding_idx)
    nn.init.normal_(model.tokens.weight, std=0.2)
    if padding_idx is not None:
        nn.init.zeros_(model.tokens.weight[padding_idx].detach())
    model.head = nn.Linear(32, 10, bias=False)
    model.head.weight = model.tokens.weight
    training.use(model)


@HALF.fault("padding idx of a token", parade, also=("padding counts", "constant targets"))
def the_first_tag_is_ignored(training: Training) -> None:
    """ignore_index=0 as for words; tags begin at zero."""
    training.criterion = lambda output, tag: F.cross_entropy(output.flatten(0, 1)[tag.flatten() >= 0], tag[tag >= 0], ignore_index=0)


class Gated(nn.Module):
    """What a word says, times what its kind says."""

    def __init__(self, padding_idx: int | None) -> None:
        super().__init__()
        self.words, self.kinds = nn.Embedding(20, 16), nn.Embedding(2, 16, padding_idx=padding_idx)
        self.head = nn.Linear(16, 1)

    def forward(self, word: Tensor, kind: Tensor) -> Tensor:
        return self.head((self.words(word) * self.kinds(kind)).sum(1)).squeeze(1)


def _worded(training: Training, padding_idx: int | None) -> None:
    worth = constant(2, 20, seed=5)

    def batch(count: int) -> Batch:
        word, kind = torch.randint(20, (count, 5)), torch.randint(2, (count, 5))
        return (word, kind), worth[kind, word].sum(1)

    def quality(net: nn.Module) -> float:
        inputs, y = batch(300)
        return (net(*inputs) - y).square().mean().item()

    training.batch, training.quality, training.criterion = lambda _: batch(64), quality, F.mse_loss
    training.optimize = partial(ADAM, lr=0.03)
    training.use(Gated(padding_idx))


@HALF.fault("padding idx of a token", shelf, twin=partial(_worded, padding_idx=None), where=("kinds",))
def one_of_two_kinds_is_the_padding(training: Training) -> None:
    _worded(training, 0)


# ---- positions -------------------------------------------------------------------------------------


@HALF.fault("no positions", verdicts)
def the_table_of_places_is_never_filled(training: Training) -> None:
    class Empty(Verdicts):
        def filled(self) -> Tensor:
            return torch.zeros(12, 32)

    training.use(Empty())


class Turning(ByView):
    """Queries and keys are turned by their place (RoPE)."""

    def __init__(self, width: int = 32, by: int = 2) -> None:
        super().__init__(width)
        self.by = by

    def turned(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        place = torch.arange(x.shape[self.by]).view([-1 if dim == self.by else 1 for dim in range(4)])
        angle = place / 10 ** (torch.arange(half) / half)
        left, right = x[..., :half], x[..., half:]
        return torch.cat([left * angle.cos() - right * angle.sin(), left * angle.sin() + right * angle.cos()], -1)

    def scores(self, x: Tensor) -> Tensor:
        query, key = self.turned(self.split(self.query(x))), self.turned(self.split(self.key(x)))
        return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])


class Told(nn.Module):
    """A language model without a table of places."""

    def __init__(self, by: int) -> None:
        super().__init__()
        self.tokens, self.block, self.head = nn.Embedding(8, 32), Viewed(32, Turning(by=by)), nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.tokens(x)))


def _before(training: Training, by: int) -> None:
    """The tag is what stands one place before."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(8, (count, 9))
        return x, F.pad(x[:, :-1], (1, 0), value=-100)

    def quality(net: nn.Module) -> float:
        x, tag = data(200)
        return missed(net(x), tag)

    training.batch, training.quality, training.criterion = lambda _: data(48), quality, per_place
    training.use(Told(by))
    training.steps = 300


@HALF.fault("no positions", flip, twin=partial(_before, by=2))
def turned_by_the_number_of_the_head(training: Training) -> None:
    """The length is taken from `x.shape[1]`, where the heads stand."""
    _before(training, by=1)


@HALF.fault("no positions", flip)
def places_are_added_behind_the_attention(training: Training) -> None:
    class Late(Flip):
        def forward(self, x: Tensor) -> Tensor:
            h = self.tokens(x)
            for block in self.blocks:
                h = block(h)
            return self.head(h + self.places[: x.shape[1]])

    training.use(Late())


@HALF.fault("no positions", stations)
def places_counted_in_whole_thousands(training: Training) -> None:
    """`position // 1000`, which is zero for all."""

    class Coarse(Stations):
        def placed(self, x: Tensor) -> Tensor:
            return self.tokens(x) + self.places(torch.arange(x.shape[1]) // 1000)

    training.use(Coarse())


# ---- time and batch --------------------------------------------------------------------------------


@HALF.fault("batch first mixed up", two_strands, also=("wrong axes", "targets shuffled"))
def rows_are_flattened_by_time_and_targets_by_batch(training: Training) -> None:
    """The net says (time, batch, words), and the loss flattens it."""

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(output.transpose(0, 1).reshape(-1, 10), label.reshape(-1))

    training.criterion = criterion


class Turnabout(nn.Module):
    """Reads a series of several values, and says the first sum."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 24, batch_first=batch_first), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


def _series(training: Training, batch_first: bool) -> None:
    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 8, 2)
        return x, (x[:, :, 0] * torch.linspace(0.2, 1, 8)).sum(1, keepdim=True) / 2

    def quality(net: nn.Module) -> float:
        x, y = data(200)
        return (net(x) - y).square().mean().item()

    training.batch, training.quality, training.criterion = lambda _: data(32), quality, F.mse_loss
    training.optimize = partial(ADAM, lr=0.01)
    training.use(Turnabout(batch_first))
    training.steps = 200


@HALF.fault("batch first mixed up", swell, twin=partial(_series, batch_first=True), also=("state not kept",))
def an_lstm_without_batch_first(training: Training) -> None:
    _series(training, batch_first=False)


@HALF.fault("batch first mixed up", flip, also=("wrong axes",))
def attention_over_the_samples_of_a_batch(training: Training) -> None:
    """PyTorch's attention, which takes time first, gets what stands batch first, behind a block that is right."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.MultiheadAttention(32, 2)

        def forward(self, x: Tensor, hidden: Tensor | None = None) -> Tensor:
            return self.inner(x, x, x)[0]

    training.use(Flip(attention=Mixed()))


# ---- states ----------------------------------------------------------------------------------------


@HALF.fault("state not kept", meter)
def each_window_begins_anew(training: Training) -> None:
    class Anew(Meter):
        def forward(self, x: Tensor, number: int) -> Tensor:
            return self.head(self.recurrent(x)[0])

    training.use(Anew())


@HALF.fault("state not kept", dialect)
def the_decoder_steps_from_where_it_began(training: Training) -> None:
    """Its new state is said, and not kept."""

    class Begins(Dialect):
        def forward(self, source: Tensor, given: Tensor) -> Tensor:
            memory, last = self.encoder(self.tokens(source))
            out = []
            for word in self.said(given).unbind(1):
                scores = self.score(torch.tanh(self.left(memory) + self.right(last[0]).unsqueeze(1))).squeeze(2)
                context = (self.weights(scores, source == 0).unsqueeze(2) * memory).sum(1)
                out.append(self.head(torch.cat([self.decoder(torch.cat([word, context], 1), last[0]), context], 1)))
            return torch.stack(out, 1)

    training.use(Begins())


@HALF.fault("state not kept", parade)
def the_cell_keeps_its_output_and_loses_its_memory(training: Training) -> None:
    """`h, _ = cell(x, (h, zeros))`, and the output gate is read alone."""

    class Half(Parade):
        def forward(self, x: Tensor) -> Tensor:
            h, said = torch.zeros(len(x), 48), []
            for token in self.tokens(x).unbind(1):
                h = self.cell(token, (torch.zeros_like(h), torch.zeros_like(h)))[0]
                said.append(self.head(h))
            return torch.stack(said, 1)

    training.use(Half())


EXPLODES = ("not finite by the rate", "rate too high")


@HALF.fault("exploding recurrence", orbit, also=(*EXPLODES, "weights begin too large"))
def moments_of_a_whole_second(training: Training) -> None:
    """The step of Euler's method is one."""
    training.use(Orbit(1.0))


@HALF.fault("exploding recurrence", swell, also=EXPLODES)
def a_gate_that_is_an_exponential(training: Training) -> None:
    """An xLSTM's gates without their stabilizer."""

    class Exponential(Swell):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(1 + self.width, self.width)

        def forward(self, x: Tensor) -> Tensor:
            h, c, out = torch.zeros(len(x), self.width), torch.zeros(len(x), self.width), []
            for step in x.unbind(1):
                c = torch.exp(self.gate(torch.cat([step, h], 1)) + 1) * c + self.inward(step) + self.onward(h)
                h = c
                out.append(self.outward(h))
            return torch.stack(out, 1)

    training.use(Exponential())


# ---- levels of noise -------------------------------------------------------------------------------


@HALF.fault("noise level hidden", embers)
def all_steps_are_step_zero(training: Training) -> None:
    class Zeroed(Embers):
        def level(self, step: Tensor) -> Tensor:
            return self.told(self.steps(torch.zeros_like(step)))

    training.use(Zeroed())


class Scalar(Embers):
    """The step as one number."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        del self.steps
        self.told = nn.Sequential(first, nn.Linear(1, 96), nn.SiLU(), nn.Linear(96, 96))

    def level(self, step: Tensor) -> Tensor:
        return self.told(step.unsqueeze(1) / STEPS)


@HALF.fault("noise level hidden", embers, twin=lambda training: training.use(Scalar(nn.Identity())))
def a_norm_of_the_single_number(training: Training) -> None:
    """LayerNorm over one feature leaves nothing of it."""
    training.use(Scalar(nn.LayerNorm(1)))


@HALF.fault("noise level hidden", embers, twin=lambda training: training.use(Scalar(nn.Identity())))
def steps_divided_by_those_of_a_larger_model(training: Training) -> None:
    """`t / 1e6`: nothing can be read from so small a number."""

    class Small(Scalar):
        def level(self, step: Tensor) -> Tensor:
            return self.told(step.unsqueeze(1) / 1e6)

    training.use(Small(nn.Identity()))


@HALF.fault("noise level hidden", drift)
def the_level_of_the_neighbour(training: Training) -> None:
    """Levels are sorted for a plot, and the points are not."""
    on_inputs(training, lambda inputs: (inputs[0], inputs[1].sort().values))


@HALF.fault("noise level hidden", drift)
def a_level_for_each_batch_that_is_its_mean(training: Training) -> None:
    class Mean(Denoiser):
        def forward(self, x: Tensor, level: Tensor) -> Tensor:
            return self.body(self.lift(x) + self.level(self.waves(level)).mean(0, keepdim=True))

    training.use(Mean())


# ---- latents ---------------------------------------------------------------------------------------


@HALF.fault("latent ignored", sketches)
def a_sample_around_zero_in_place_of_the_mean(training: Training) -> None:
    """`z = eps * std`."""

    class Around(Sketches):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            mu, logvar = self.encode(x.view(-1, 144))
            return {"logits": self.decode(torch.randn_like(mu) * torch.exp(0.5 * logvar)), "mu": mu, "logvar": logvar}

    training.use(Around())


@HALF.fault("latent ignored", sketches, also=("detached", "unused layers"))
def the_code_is_detached_when_it_is_drawn(training: Training) -> None:
    """`Normal(mu, std).sample()` in place of `rsample()`."""

    class Sampled(Sketches):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            mu, logvar = self.encode(x.view(-1, 144))
            z = torch.distributions.Normal(mu, torch.exp(0.5 * logvar)).sample() if self.training else mu
            return {"logits": self.decode(z), "mu": mu, "logvar": logvar}

    training.use(Sampled())


@HALF.fault("latent ignored", sketches, also=("loss too large",))
def divergence_of_an_epoch_in_each_batch(training: Training) -> None:
    """Summed over the batch, beside an error of which the mean is taken over the samples."""

    def criterion(output: dict[str, Tensor], x: Tensor) -> Tensor:
        return missed_pixels(output, x).sum(1).mean() + kld(output).sum()

    training.criterion = criterion


# ---- collapse --------------------------------------------------------------------------------------


@HALF.fault("collapse", pedigree, also=("wrong negatives", "constant loss"))
def the_loss_is_the_distance_of_the_nearest(training: Training) -> None:
    """A hinge of the wrong side: as soon as near ones are near, nothing is pushed."""

    def criterion(output: tuple[Tensor, Tensor, Tensor], _: Tensor) -> Tensor:
        anchor, same, other = output
        return (anchor - same).square().sum(1).mean() + 0.0 * F.relu(0.5 - (anchor - other).square().sum(1)).mean()

    training.criterion = criterion


# ---- temperatures ----------------------------------------------------------------------------------


@HALF.fault("temperature", flip)
def a_point_is_missing_in_the_exponent(training: Training) -> None:
    """`d ** -5` in place of `d ** -.5`."""

    class Flat(ByView):
        def scores(self, x: Tensor) -> Tensor:
            query, key = self.split(self.query(x)), self.split(self.key(x))
            return query @ key.transpose(-2, -1) * query.shape[-1] ** -5

    training.use(Flip(attention=Flat(32)))


# ---- negatives -------------------------------------------------------------------------------------


@HALF.fault("wrong negatives", kinship)
def the_partner_is_hidden_and_not_itself(training: Training) -> None:
    def criterion(ends: Tensor, target: Tensor) -> Tensor:
        alike = ends @ ends.T / 0.2
        return F.cross_entropy(alike.masked_fill(F.one_hot(target, len(ends)).bool(), -1e4), torch.arange(len(ends)))

    training.criterion = criterion


@HALF.fault("wrong negatives", pedigree, also=("collapse",))
def anchors_and_others_are_moved_together(training: Training) -> None:
    """Negatives are `same.roll(1)` of a batch of one kind."""

    def batch(_: int) -> Batch:
        kind = torch.randint(8, (1,)).expand(64)
        same = pedigree_data(kind)
        return (pedigree_data(kind), same, same.roll(1, 0)), torch.ones(64)

    training.batch = batch


@HALF.fault("wrong negatives", corpus, also=("constant loss",))
def what_is_beside_is_what_is_not(training: Training) -> None:
    """The same word is pulled near once and pushed away five times."""
    on_inputs(training, lambda inputs: (inputs[0], inputs[1][:, :1].repeat(1, 6)))


@HALF.fault("wrong negatives", couples)
def each_couple_stands_many_times_in_the_batch(training: Training) -> None:
    """Augmented copies of few."""
    on_inputs(training, lambda sides: tuple(side[:4].repeat(16, 1) + 0.02 * torch.randn(64, 10) for side in sides))


# ---- a maker and its judge -------------------------------------------------------------------------


@HALF.fault("discriminator wins", mint, also=("inputs not scaled", "output cannot reach", "targets not scaled"))
def real_points_are_rounded_and_judged_first(training: Training) -> None:
    """The judge is taught alone for long, and what is real is told by a rounding."""
    net, (judges,) = training.model, training.others
    training.batch = lambda _: (lambda kind, point: (kind, (10 * point).round()))(*mint_data(64))

    def step(training: Training, number: int) -> None:
        kind, real = training.batch(number)
        made = net(kind)
        for _ in range(5):
            judges.zero_grad()
            bce = F.binary_cross_entropy_with_logits
            ones = torch.ones(len(kind), 1)
            (bce(net.judged(real, kind), ones) + bce(net.judged(made.detach(), kind), 0 * ones)).backward()
            judges.step()
        training.optimizer.zero_grad()
        torch.log(1 - net.judged(made, kind).sigmoid() + 1e-8).mean().backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("generator detached", mint, also=("without grad", "detached"))
def the_judge_is_asked_without_gradients(training: Training) -> None:
    """`@torch.no_grad()` stands over what gives scores; the maker's loss has a gradient by a penalty alone."""

    def step(training: Training, number: int) -> None:
        kind, real = training.batch(number)
        net, (judges,) = training.model, training.others
        made = net(kind)
        judges.zero_grad()
        (0.5 * (net.judged(real, kind) - 1).square().mean() + 0.5 * net.judged(made.detach(), kind).square().mean()).backward()
        judges.step()
        training.optimizer.zero_grad()
        with torch.no_grad():
            score = net.judged(made, kind)
        (0.5 * (score - 1).square().mean() + 1e-4 * made.square().mean()).backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("generator detached", mint, also=("detached", "no gradient through"))
def made_points_are_put_on_a_grid(training: Training) -> None:
    """Rounded as the real ones are when they are stored."""

    def step(training: Training, number: int) -> None:
        forward = training.model.judged
        training.model.judged = lambda point, kind: forward((point * 20).round() / 20, kind)
        mint_step(training, number)
        training.model.judged = forward

    training.step = step


# ---- softmax ---------------------------------------------------------------------------------------


@HALF.fault("softmax over the wrong dimension", dialect)
def weights_of_words_over_the_batch(training: Training) -> None:
    class Batchwise(Dialect):
        def weights(self, scores: Tensor, padded: Tensor) -> Tensor:
            return scores.masked_fill(padded, -1e9).softmax(0)

    training.use(Batchwise())


@HALF.fault("softmax over the wrong dimension", weave)
def log_softmax_over_the_places(training: Training) -> None:
    """`log_softmax(dim=1)` of (batch, places, words)."""
    training.criterion = lambda output, label: F.nll_loss(output.log_softmax(1).flatten(0, 1), label.flatten())


class Guided(nn.Module):
    """Four experts, and a gate."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)) for _ in range(4))
        self.gate, self.dim = nn.Linear(8, 4), dim

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(self.dim)
        return (torch.stack([one(x) for one in self.experts], 1) * weights.unsqueeze(2)).sum(1)


def _guided(training: Training, dim: int) -> None:
    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(count, 8)
        return x, torch.where(x[:, :1] > 0, x[:, 1:2], -x[:, 2:3]) * 1.5

    def quality(net: nn.Module) -> float:
        """Asked in small batches."""
        return sum((net(x) - y).square().mean().item() for x, y in (data(10) for _ in range(40))) / 40

    training.batch, training.quality, training.criterion = lambda _: data(64), quality, F.mse_loss
    training.optimize = partial(ADAM, lr=0.01)
    training.use(Guided(dim))
    training.steps = 250


@HALF.fault("softmax over the wrong dimension", orbit, twin=partial(_guided, dim=1))
def the_gate_shares_out_samples(training: Training) -> None:
    _guided(training, dim=0)


@HALF.fault("softmax over the wrong dimension", flip)
def a_softmax_whose_dimension_nobody_named(training: Training) -> None:
    """nn.Softmax() of three dimensions takes the first one; heads are folded into the batch."""

    class Implicit(ByView):
        def weights(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            return nn.Softmax(dim=None)(scores.flatten(0, 1)).view_as(scores)

    training.use(Flip(attention=Implicit(32)))


# ---- strange and healthy ---------------------------------------------------------------------------


@HALF.strange(flip)
def queries_and_keys_turned_by_their_place(training: Training) -> None:
    _before(training, by=2)


@HALF.strange(weave)
def letters_with_a_head_that_is_the_table(training: Training) -> None:
    _tied(training, None)


@HALF.strange(sways)
def smoothed_values_for_what_is_now(training: Training) -> None:
    """A filter around each value; what is asked for is the wave itself, without its noise, at the same moment."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x, _ = tides_data(count)
        loud = x + 0.3 * torch.randn_like(x)
        return F.avg_pool1d(loud.transpose(1, 2), 3, 1, 1).transpose(1, 2), x

    def quality(net: nn.Module) -> float:
        x, y = data(100)
        return (net(x) - y).square().mean().item()

    training.batch, training.quality = lambda _: data(24), quality


@HALF.strange(drift)
def one_level_of_noise_for_all(training: Training) -> None:
    """The level is an input that never changes: there is one."""

    def data(count: int) -> Batch:
        x = torch.randint(2, (count, 2)) * 4 - 2 + 0.2 * torch.randn(count, 2)
        noise = torch.randn(count, 2)
        return (x + 0.7 * noise, torch.full((count,), 20)), noise

    def quality(net: nn.Module) -> float:
        inputs, noise = data(500)
        return (net(*inputs) - noise).square().mean().item()

    training.batch, training.quality = lambda _: data(128), quality


@HALF.strange(sketches)
def a_divergence_that_weighs_little(training: Training) -> None:
    training.criterion = lambda output, x: (missed_pixels(output, x).sum(1) + 0.01 * kld(output)).mean()


@HALF.strange(sketches)
def bits_that_are_free(training: Training) -> None:
    """The divergence counts beyond two."""
    training.criterion = lambda output, x: (missed_pixels(output, x).sum(1) + kld(output).clamp(min=2)).mean()


class Slots(ByView):
    """Keys compete for queries: a softmax over the queries, and then a mean (slot attention)."""

    def weights(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        shared = scores.softmax(-2) + 1e-8
        return shared / shared.sum(-1, keepdim=True)


@HALF.strange(flip)
def keys_compete_for_queries(training: Training) -> None:
    training.use(Flip(attention=Slots(32)))
    training.steps = 300


@HALF.strange(kinship)
def negatives_of_a_queue(training: Training) -> None:
    """MoCo: keys of a slow copy, and those of batches before."""
    net = training.model
    slow = Unit()
    slow.load_state_dict(net.state_dict())
    queue = F.normalize(torch.randn(192, 8), dim=1)

    def step(training: Training, number: int) -> None:
        nonlocal queue
        one, other = training.batch(number)[0].chunk(2)
        with torch.no_grad():
            for kept, new in zip(slow.parameters(), net.parameters(), strict=True):
                kept.lerp_(new, 0.1)
            keys = slow(other)
        found = net(one)
        logits = torch.cat([(found * keys).sum(1, keepdim=True), found @ queue.T], 1) / 0.2
        training.optimizer.zero_grad()
        F.cross_entropy(logits, torch.zeros(len(one), dtype=torch.long)).backward()
        training.optimizer.step()
        queue = torch.cat([keys, queue])[:192]

    training.step, training.steps = step, 350


@HALF.strange(two_strands)
def rows_are_padded_in_front(training: Training) -> None:
    """For a generation in batches; the loss ignores it."""
    on_batch(training, lambda x, target: (F.pad(x, (5, 0)), F.pad(target, (5, 0), value=-100)))


@HALF.strange(verdicts)
def sums_of_what_all_places_say(training: Training) -> None:
    """No token in front is read, but the mean of those that are no padding."""

    class Mean(Verdicts):
        def pooled(self, x: Tensor, h: Tensor) -> Tensor:
            kept = (x != 0).float().unsqueeze(2)
            return (h * kept).sum(1) / kept.sum(1)

    training.use(Mean())
