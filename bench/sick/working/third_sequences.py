"""Faults of sequences, as they are committed with masks, padding, positions and states."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_batch, on_inputs
from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import (
    SGD,
    Facts,
    Heads,
    Interpreter,
    Journal,
    Listeners,
    Mosaic,
    Parade,
    Podium,
    Reservoir,
    Singer,
    Stations,
    Village,
    Weaver,
    facts,
    interpreter,
    journal,
    listeners,
    missed,
    mosaic,
    parade,
    parade_data,
    per_place,
    podium,
    reservoir,
    stations,
    stations_data,
    two_strands,
    village,
    village_data,
    weave,
    weave_data,
)

# ---- what a place may see --------------------------------------------------------------------------


class Ready(nn.Module):
    """PyTorch's attention of several heads."""

    def __init__(self, mask: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.mask = nn.MultiheadAttention(32, 4, batch_first=True), mask

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        return self.inner(x, x, x, attn_mask=self.mask(hidden), need_weights=False)[0]


def _ready(training: Training) -> None:
    training.use(Weaver(Ready(lambda hidden: hidden)))


@HALF.fault("sees the future", weave, twin=_ready)
def ones_are_added_where_true_was_meant(training: Training) -> None:
    """A mask of floats is added to the scores."""
    training.use(Weaver(Ready(lambda hidden: hidden.float())))


@HALF.fault("sees the future", weave)
def masked_fill_without_its_underscore(training: Training) -> None:
    class Filled(Heads):
        def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            if hidden is not None:
                scores.masked_fill(hidden, -1e9)
            return F.softmax(scores, dim=-1)

    training.use(Weaver(Filled()))


@HALF.fault("sees the future", interpreter)
def the_encoder_gets_the_mask_of_the_decoder(training: Training) -> None:
    class Swapped(Interpreter):
        def masks(self, length: int) -> dict[str, Tensor]:
            return {"src_mask": nn.Transformer.generate_square_subsequent_mask(6)}

    training.use(Swapped())


# ---- what comes next -------------------------------------------------------------------------------


def _whole(training: Training, shifted: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Batches are whole rows, and the loss moves them."""

    def batch(_: int) -> Batch:
        x = weave_data(32)
        return x, x

    training.batch, training.criterion = batch, shifted


def _moved(training: Training) -> None:
    _whole(training, lambda output, x: per_place(output[:, :-1], x[:, 1:]))


@HALF.fault("targets not moved", weave, twin=_moved)
def both_are_cut_at_the_front(training: Training) -> None:
    _whole(training, lambda output, x: per_place(output[:, 1:], x[:, 1:]))


@HALF.fault("targets not moved", interpreter)
def the_decoders_input_is_its_label(training: Training) -> None:
    """The sign for the beginning is put before both."""
    on_batch(training, lambda given, target: (given, given[1]))


@HALF.fault("targets not moved", two_strands)
def the_loop_compares_with_the_token_just_read(training: Training) -> None:
    def step(training: Training, number: int) -> None:
        tokens, _ = training.batch(number)
        output = training.model(tokens)
        loss = torch.zeros(())
        for place in range(tokens.shape[1]):
            loss = loss + F.cross_entropy(output[:, place], tokens[:, place])
        training.optimizer.zero_grad()
        (loss / tokens.shape[1]).backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("targets not moved", reservoir, twin=lambda training: _forecast(training, 1))
def a_forecast_of_no_steps(training: Training) -> None:
    """Made from `series[: length - ahead]` and `series[ahead:]`, where `ahead` is 0."""
    _forecast(training, 0)


def _forecast(training: Training, ahead: int) -> None:
    def series(count: int) -> Tensor:
        time = torch.arange(21) * (0.6 + 0.3 * torch.rand(count, 1)) + 6.3 * torch.rand(count, 1)
        return torch.sin(time).unsqueeze(2)

    def batch(_: int) -> Batch:
        x = series(32)
        return x[:, : 21 - ahead], x[:, ahead:]

    def quality(net: nn.Module) -> float:
        x = series(200)
        return (net(x[:, :-1]) - x[:, 1:])[:, 4:].square().mean().item()

    training.batch, training.quality = batch, quality


# ---- masks turned around ---------------------------------------------------------------------------


class Asked(Stations):
    """A learned question reads the places."""

    def __init__(self, hidden: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.hidden = hidden
        self.question, self.pool = nn.Parameter(torch.randn(1, 1, 32)), nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        h, lengths = self.placed(x), (x != 0).sum(1, keepdim=True)
        hidden = self.hidden(torch.arange(x.shape[1]), lengths)
        return self.head(self.pool(self.question.expand(len(x), 1, 32), h, h, key_padding_mask=hidden)[0][:, 0])


def _asked(training: Training) -> None:
    training.use(Asked(lambda place, lengths: place >= lengths))


@HALF.fault("mask turned around", stations, twin=_asked)
def key_padding_mask_of_what_is_within_the_length(training: Training) -> None:
    training.use(Asked(lambda place, lengths: place < lengths))


def _long_sources(training: Training) -> None:
    """Sources stand in rows that are twice as long."""
    on_inputs(training, lambda given: (F.pad(given[0], (0, 6)), given[1]))
    quality = training.quality
    training.quality = lambda net: quality(lambda source, made: net(F.pad(source, (0, 6)), made))


class Hiding(Interpreter):
    """Hides the padding of the source from both halves."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.turned = turned

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        padded = source == 0
        return self.head(
            self.inner(
                self.placed(source),
                self.placed(given),
                src_key_padding_mask=padded,
                memory_key_padding_mask=source.bool() if self.turned else padded,
                **self.masks(given.shape[1]),
            )
        )


def _hiding(training: Training) -> None:
    _long_sources(training)
    training.use(Hiding())


@HALF.fault("mask turned around", interpreter, twin=_hiding)
def memory_key_padding_mask_of_the_words(training: Training) -> None:
    _long_sources(training)
    training.use(Hiding(turned=True))


@HALF.fault("mask turned around", podium)
def what_is_still_free_is_hidden(training: Training) -> None:
    """The pointer may choose what it chose before."""

    class Again(Podium):
        def hide(self, scores: Tensor, used: Tensor) -> Tensor:
            return scores.masked_fill(~used, -20)

    training.use(Again())


class Graph(Village):
    """Attends to neighbours."""

    def __init__(self, turned: bool = False) -> None:
        super().__init__()
        self.turned, self.asks, self.answers = turned, nn.Linear(32, 1), nn.Linear(32, 1)

    def heard(self, h: Tensor, edges: Tensor) -> Tensor:
        scores = F.leaky_relu(self.asks(h) + self.answers(h).T, 0.2)
        hidden = edges > 0 if self.turned else edges == 0
        return scores.masked_fill(hidden, float("-inf")).softmax(1) @ h


def _graph(training: Training) -> None:
    training.use(Graph())


@HALF.fault("mask turned around", village, twin=_graph)
def attends_to_all_but_the_neighbours(training: Training) -> None:
    training.use(Graph(turned=True))


@HALF.fault("mask turned around", weave, also=("sees the future",))
def one_minus_a_mask_that_was_right(training: Training) -> None:
    class Turned(Heads):
        def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            assert hidden is not None
            return (scores + (1 - hidden.float()) * -1e4).softmax(-1)

    training.use(Weaver(Turned()))


# ---- padding ---------------------------------------------------------------------------------------


def _much_padding(training: Training) -> None:
    on_inputs(training, lambda x: F.pad(x, (0, 50)))
    training.optimize = partial(SGD, lr=0.2)
    training.use(training.model)


class Unaware(Stations):
    """Knows of no padding."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.placed(x)).mean(1))


@HALF.fault("padding counts", stations, twin=_much_padding)
def mean_over_all_that_was_padded(training: Training) -> None:
    training.use(Unaware())
    _much_padding(training)


class Ends(Journal):
    """Reads the final states of the layers."""

    def __init__(self, packed: bool) -> None:
        super().__init__()
        self.packed = packed

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x)
        if self.packed:
            h = nn.utils.rnn.pack_padded_sequence(h, (x != 0).sum(1), batch_first=True, enforce_sorted=False)
        return self.head(self.recurrent(h)[1][0].transpose(0, 1).flatten(1))


def _the_last_station(training: Training, packed: bool) -> None:
    """Which token is the last one? Rows go on for long."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x, _ = stations_data(count)
        label = x.gather(1, (x != 0).sum(1, keepdim=True) - 1).squeeze(1) - 1
        return F.pad(x, (0, 90)), label

    def quality(net: nn.Module) -> float:
        x, label = data(200)
        return missed(net(x), label)

    training.batch, training.quality, training.steps = lambda _: data(32), quality, 60
    training.use(Ends(packed))


@HALF.fault("padding counts", journal, twin=lambda training: _the_last_station(training, packed=True))
def lstms_read_on_through_the_padding(training: Training) -> None:
    """The rows are not packed."""
    _the_last_station(training, packed=False)


def _many_empty_places(training: Training) -> None:
    on_batch(training, lambda x, tag: (F.pad(x, (0, 28)), F.pad(tag, (0, 28), value=-100)))
    training.optimize = partial(SGD, lr=0.5, momentum=0.9)
    training.use(training.model)
    training.steps = 120


@HALF.fault("padding counts", parade, twin=_many_empty_places, also=("imbalance",))
def tags_padded_with_zero(training: Training) -> None:
    """pad_sequence fills with 0, which is a tag, and not with -100."""
    _many_empty_places(training)
    on_batch(training, lambda x, tag: (x, tag.clamp(min=0)))


def _short_series(training: Training, criterion: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Series end early: what is missing is zero in inputs and targets."""
    on_batch(training, lambda x, y: (F.pad(x, (0, 0, 0, 40)), F.pad(y, (0, 0, 0, 40), value=-9.0)))
    training.criterion = criterion
    training.steps = 100


def _within(output: Tensor, target: Tensor) -> Tensor:
    real = target != -9
    return (output - target)[real].square().mean()


@HALF.fault("padding counts", reservoir, twin=lambda training: _short_series(training, _within))
def the_sign_for_missing_is_learned(training: Training) -> None:
    """Minus nine stands for no value."""
    _short_series(training, lambda output, target: (output - target).square().mean())


@HALF.fault("padding counts", village, also=("imbalance",), twin=lambda training: _empty_people(training, counted=False))
def people_who_are_not_there_in_the_loss(training: Training) -> None:
    _empty_people(training, counted=True)


def _empty_people(training: Training, counted: bool) -> None:
    """Graphs are filled up to 600, with people of no looks who see nobody, and of family 0."""

    def batch(_: int) -> Batch:
        (looks, edges), label = village_data()
        return (F.pad(looks, (0, 0, 0, 540)), F.pad(edges, (0, 540, 0, 540)) + torch.eye(600) * 1e-6), F.pad(label, (0, 540), value=-1)

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(output, label.clamp(min=0)) if counted else F.cross_entropy(output, label, ignore_index=-1)

    training.batch, training.criterion = batch, criterion
    training.optimize = partial(SGD, lr=0.1)
    training.use(training.model)


@HALF.fault("padding idx of a token", facts)
def a_relation_is_the_padding(training: Training) -> None:
    training.use(Facts(padding_idx=0))


@HALF.fault("padding idx of a token", listeners, twin=lambda training: _few_listeners(training, None), where=("listeners",))
def the_listener_without_an_account(training: Training) -> None:
    """Half of what is heard is heard by number 0, which all have who are not logged in."""
    _few_listeners(training, 0)


def _few_listeners(training: Training, padding_idx: int | None) -> None:
    class Plainly(Listeners):
        def forward(self, listener: Tensor, song: Tensor) -> Tensor:
            return self.listeners(listener) @ self.songs(song).T / 4

    model = Plainly()
    model.listeners = nn.Embedding(40, 16, padding_idx=padding_idx)
    training.use(model)
    batch, quality = training.batch, training.quality

    def half(number: int) -> Batch:
        (listener, songs), song = batch(number)
        anyone = torch.rand(len(song)) < 0.5
        return (torch.where(anyone, 0, listener), songs), torch.where(anyone, 50 + torch.randint(10, (len(song),)), song)

    def both(net: nn.Module) -> float:
        best = net(torch.zeros(1, dtype=torch.long), torch.arange(60)).topk(10, 1).indices
        return 0.5 * quality(net) + 0.5 * (best < 50).float().mean().item()

    training.batch, training.quality = half, both


class Told(Stations):
    """Is told which place is asked for, and multiplies with that."""

    def __init__(self, padding_idx: int | None) -> None:
        super().__init__()
        self.asked = nn.Embedding(2, 32, padding_idx=padding_idx)

    def forward(self, x: Tensor) -> Tensor:
        said = self.encoder(self.placed(x[:, 1:]), src_key_padding_mask=x[:, 1:] == 0)
        kept = (x[:, 1:] != 0).float().unsqueeze(2)
        return self.head((said * kept).sum(1) / kept.sum(1) * self.asked(x[:, 0]))


def _told(training: Training, padding_idx: int | None) -> None:
    """The first token tells whether the first or the second station is asked for."""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x, _ = stations_data(count)
        kind = torch.randint(2, (count, 1))
        return torch.cat([kind, x], 1), x.gather(1, kind).squeeze(1) - 1

    def quality(net: nn.Module) -> float:
        x, label = data(300)
        return missed(net(x), label)

    training.batch, training.quality = lambda _: data(48), quality
    training.use(Told(padding_idx))


@HALF.fault("padding idx of a token", stations, twin=lambda training: _told(training, None), where=("asked",))
def the_first_kind_of_question_is_the_padding(training: Training) -> None:
    _told(training, 0)


# ---- positions -------------------------------------------------------------------------------------


@HALF.fault("no positions", mosaic)
def patches_without_their_places(training: Training) -> None:
    class Placeless(Mosaic):
        def placed(self, h: Tensor) -> Tensor:
            return torch.cat([self.begin.expand(len(h), 1, 32), h], 1)

    training.use(Placeless())


class Waves(nn.Module):
    """The sines of the paper."""

    def __init__(self, use: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.use = use
        angle = torch.arange(400).unsqueeze(1) * torch.exp(torch.arange(0, 32, 2) * (-math.log(10000.0) / 32))
        self.register_buffer("table", torch.stack([angle.sin(), angle.cos()], 2).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.use(x, self.table)


class Sines(Interpreter):
    """Positions by sines."""

    def __init__(self, use: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.waves = Waves(use)

    def placed(self, x: Tensor) -> Tensor:
        return self.waves(self.tokens(x))


def _added(x: Tensor, table: Tensor) -> Tensor:
    return x + table[: x.shape[1]]


@HALF.fault("no positions", interpreter, twin=lambda training: training.use(Sines(_added)))
def sines_that_are_made_and_not_added(training: Training) -> None:
    def dropped(x: Tensor, table: Tensor) -> Tensor:
        x + table[: x.shape[1]]
        return x

    training.use(Sines(dropped))


class Sined(Stations):
    """Positions by sines."""

    def __init__(self, use: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.waves = Waves(use)

    def placed(self, x: Tensor) -> Tensor:
        return self.waves(self.tokens(x))


@HALF.fault("no positions", stations, also=("batch first mixed up",), twin=lambda training: training.use(Sined(_added)))
def sines_by_the_number_of_the_sample(training: Training) -> None:
    """The tutorial's `x + pe[: x.size(0)]`, with batches in front."""
    training.use(Sined(lambda x, table: x + table[: x.shape[0]].unsqueeze(1)))


# ---- time and batch --------------------------------------------------------------------------------


@HALF.fault("batch first mixed up", mosaic)
def patches_are_taken_for_the_batch(training: Training) -> None:
    training.use(Mosaic(batch_first=False))


class Tagger(Parade):
    """PyTorch's LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(16, 48, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(self.tokens(x))[0])


def _collated(training: Training, batch_first: bool) -> None:
    """Rows of several lengths are padded when they are put together."""
    training.use(Tagger())

    def batch(_: int) -> Batch:
        rows = [(x[x != 0], tag[x != 0]) for x, tag in zip(*parade_data(32), strict=True)]
        x = nn.utils.rnn.pad_sequence([row for row, _ in rows], batch_first=batch_first)
        return x, nn.utils.rnn.pad_sequence([tag for _, tag in rows], batch_first=batch_first, padding_value=-100)

    training.batch = batch


@HALF.fault("batch first mixed up", parade, twin=lambda training: _collated(training, batch_first=True))
def pad_sequence_puts_time_in_front(training: Training) -> None:
    _collated(training, batch_first=False)


@HALF.fault("batch first mixed up", journal, also=("wrong axes",), twin=lambda training: _the_last_station(training, packed=True))
def final_states_viewed_as_rows(training: Training) -> None:
    """They come as (directions, batch, width)."""

    class Viewed(Ends):
        def forward(self, x: Tensor) -> Tensor:
            h = nn.utils.rnn.pack_padded_sequence(self.tokens(x), (x != 0).sum(1), batch_first=True, enforce_sorted=False)
            return self.head(self.recurrent(h)[1][0].reshape(len(x), -1))

    _the_last_station(training, packed=True)
    training.use(Viewed(packed=True))


# ---- states ----------------------------------------------------------------------------------------


@HALF.fault("state not kept", journal)
def the_direction_back_is_read_at_the_end(training: Training) -> None:
    """There it has read one token."""

    class Last(Journal):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(32, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.recurrent(self.tokens(x))[0][:, -1, 32:])

    training.use(Last())


@HALF.fault("state not kept", parade)
def the_state_is_made_in_the_loop(training: Training) -> None:
    class Forgetful(Parade):
        def forward(self, x: Tensor) -> Tensor:
            said = []
            for place in range(x.shape[1]):
                h, c = torch.zeros(len(x), 48), torch.zeros(len(x), 48)
                h, c = self.cell(self.tokens(x[:, place]), (h, c))
                said.append(self.head(h))
            return torch.stack(said, 1)

    training.use(Forgetful())


@HALF.fault("state not kept", reservoir, twin=lambda training: _forecast(training, 1))
def the_level_before_is_not_added(training: Training) -> None:
    class Momentary(Reservoir):
        def forward(self, x: Tensor) -> Tensor:
            h = torch.zeros(len(x), len(self.fading))
            return self.read(torch.stack([self.kept() * h + step for step in self.inward(x).unbind(1)], 1))

    _forecast(training, 1)
    training.use(Momentary())


# ---- what explodes ---------------------------------------------------------------------------------

EXPLODES = ("not finite by the rate", "rate too high")


@HALF.fault("exploding recurrence", reservoir, also=EXPLODES)
def a_state_that_grows_where_it_should_fade(training: Training) -> None:
    """The sign before the exponent is missing."""

    class Growing(Reservoir):
        def kept(self) -> Tensor:
            return torch.exp(self.fading.exp())

    training.use(Growing())


@HALF.fault("exploding recurrence", two_strands, also=EXPLODES)
def the_state_is_multiplied_by_each_word(training: Training) -> None:
    class Multiplied(Singer):
        def __init__(self) -> None:
            super().__init__()
            self.factor, self.summand = nn.Linear(24, 48), nn.Linear(24, 48)

        def forward(self, x: Tensor) -> Tensor:
            h, said = torch.ones(len(x), 48), []
            for token in self.tokens(x).unbind(1):
                h = h * (8 * self.factor(token)) + self.summand(token)
                said.append(self.head(h))
            return torch.stack(said, 1)

    training.use(Multiplied())


@HALF.fault("exploding recurrence", village, also=EXPLODES)
def messages_are_summed_again_and_again(training: Training) -> None:
    """Eight rounds with the same weights, of what all neighbours say."""

    class Rounds(Village):
        def heard(self, h: Tensor, edges: Tensor) -> Tensor:
            for _ in range(8):
                h = h + self.hops[0](edges @ h)
            return h

    training.use(Rounds())


# ---- vocabularies ----------------------------------------------------------------------------------


def _read(training: Training, read: Callable[[Tensor], Tensor]) -> None:
    """Texts are read so in training and later."""
    on_inputs(training, read)
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(read(x)))


@HALF.fault("tokens unknown", stations)
def a_vocabulary_of_what_is_frequent(training: Training) -> None:
    """Of ten rows, those tokens that come at least fifty times."""
    counts = Counter(stations_data(10)[0].flatten().tolist())
    known = {0, *(token for token, count in counts.items() if count >= 50)}
    _read(training, lambda x: x.clone().apply_(lambda token: token if token in known else 1))


@HALF.fault("tokens unknown", journal)
def names_looked_up_among_numbers(training: Training) -> None:
    vocabulary = {number: number for number in range(1, 7)}

    def read(x: Tensor) -> Tensor:
        rows = [" ".join(str(token) for token in row).split() for row in x.tolist()]
        return torch.tensor([[vocabulary.get(word, 6) for word in row] for row in rows])  # type: ignore[call-overload]

    _read(training, read)


@HALF.fault("tokens unknown", parade)
def spaces_before_the_words(training: Training) -> None:
    """Split at commas, the words keep the space behind them: only the first one of a row is known."""
    vocabulary = {f"w{number}": number for number in range(7)}

    def read(x: Tensor) -> Tensor:
        texts = [", ".join(f"w{token}" for token in row) for row in x.tolist()]
        return torch.tensor([[vocabulary.get(word, 1) for word in text.split(",")] for text in texts])

    _read(training, read)


@HALF.fault("tokens unknown", weave)
def beyond_a_vocabulary_of_two(training: Training) -> None:
    """The size of the vocabulary is that of another file."""
    _read(training, lambda x: torch.where(x < 2, x, 2))
