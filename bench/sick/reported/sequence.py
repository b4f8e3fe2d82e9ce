"""Faults of sequences: masks, padding, places, states."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_batch
from bench.sick.reported.further_nets import END, Mirror, Singer, Topics, captions, mirror, refrain, signs, topics
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import Reviews, Tides, ranks, reviews, tides
from bench.sick.reported.pools import seen_through
from bench.sick.training import Training

# ---- masks -----------------------------------------------------------------------------------------


class OneTooFar(Singer):
    def mask(self, length: int) -> Tensor | None:
        return torch.ones(length, length, dtype=torch.bool).tril(1)


@HALF.fault("sees the future", refrain)
def mask_begins_one_place_later(training: Training) -> None:
    training.model.__class__ = OneTooFar


class Added(Mirror):
    """Its mask holds numbers, which are added to the scores and forbid nothing."""

    def causal(self, length: int) -> Tensor | None:
        return torch.ones(length, length).triu(1)


@HALF.fault("sees the future", mirror)
def mask_of_ones_is_added(training: Training) -> None:
    training.model.__class__ = Added


class Foreseeing(Mirror):
    def causal(self, length: int) -> Tensor | None:
        return None


@HALF.fault("sees the future", mirror)
def decoder_without_a_mask(training: Training) -> None:
    training.model.__class__ = Foreseeing


class Filter(nn.Module):
    """A forecast by convolutions along time; causal where all the padding is in front."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.pads = (4, 0) if causal else (2, 2)
        self.one, self.two, self.out = nn.Conv1d(1, 24, 5), nn.Conv1d(24, 24, 5), nn.Conv1d(24, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = F.silu(self.one(F.pad(x.transpose(1, 2), self.pads)))
        return self.out(F.silu(self.two(F.pad(h, self.pads)))).transpose(1, 2)


def _judged_one_by_one(training: Training) -> None:
    """As in use: of the last value alone, as nothing behind it is known."""
    quality = training.quality

    def one_by_one(net: nn.Module, x: Tensor) -> Tensor:
        return torch.cat([net(x[:, : place + 1])[:, -1:] for place in range(x.shape[1])], 1)

    training.quality = lambda net: quality(lambda x: one_by_one(net, x))


def _causal_filter(training: Training) -> None:
    training.use(Filter(causal=True))
    _judged_one_by_one(training)


@HALF.fault("sees the future", tides, twin=_causal_filter)
def convolutions_padded_on_both_sides(training: Training) -> None:
    training.use(Filter(causal=False))
    _judged_one_by_one(training)


class Hiding(Singer):
    """True means "look here" in `scaled_dot_product_attention`, and "do not" in `nn.MultiheadAttention`."""

    def mask(self, length: int) -> Tensor | None:
        return torch.ones(length, length, dtype=torch.bool).triu(1)


@HALF.fault("mask turned around", refrain, also=("sees the future",))
def mask_of_the_other_attention(training: Training) -> None:
    training.model.__class__ = Hiding


class Avoiding(Mirror):
    """Its encoder and decoder look at the padding alone."""

    def forward(self, word: Tensor, given: Tensor) -> Tensor:
        kept = word != 0
        source, sent = self.placed(self.source(word)), self.placed(self.sent(given))
        h = self.core(source, sent, tgt_mask=self.causal(given.shape[1]), src_key_padding_mask=kept, memory_key_padding_mask=kept)
        return self.logits(h).log_softmax(-1)


def _one_more_pad(training: Training) -> None:
    seen_through(training, lambda inputs: (F.pad(inputs[0], (0, 6 - inputs[0].shape[1])), inputs[1]))


@HALF.fault("mask turned around", mirror, twin=_one_more_pad)
def key_padding_mask_of_what_is_there(training: Training) -> None:
    training.model.__class__ = Avoiding
    _one_more_pad(training)


class Mean(nn.Module):
    """The mean of the words' embeddings, by hand."""

    def __init__(self, counted: object = torch.ne) -> None:
        super().__init__()
        self.words, self.topics = nn.Embedding(41, 16), nn.Linear(16, 5)
        self.counted = counted

    def forward(self, text: Tensor) -> Tensor:
        mask = self.counted(text, 0).float().unsqueeze(2)
        return self.topics((self.words(text) * mask).sum(1) / mask.sum(1).clamp(min=1))


def _by_hand(training: Training) -> None:
    training.use(Mean())


@HALF.fault("mask turned around", topics, twin=_by_hand, also=("padding counts",))
def mean_of_the_padding(training: Training) -> None:
    training.use(Mean(torch.eq))


# ---- padding ---------------------------------------------------------------------------------------


def _longer(training: Training) -> None:
    seen_through(training, lambda text: F.pad(text, (0, 400)))


@HALF.fault("padding counts", topics, twin=_longer)
def mean_over_a_long_padding(training: Training) -> None:
    training.use(Topics(padding_idx=None))
    _longer(training)


class Unpacked(Reviews):
    """Reads on through the padding, and tells of what is left then."""

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        states, _ = self.gru(self.words(words))
        return self.good(self.drop(states[:, -1])).squeeze(1)


def _padded_to_eighty(training: Training) -> None:
    seen_through(training, lambda inputs: (F.pad(inputs[0], (0, 80)), inputs[1]))


@HALF.fault("padding counts", reviews, twin=_padded_to_eighty)
def not_packed(training: Training) -> None:
    training.model.__class__ = Unpacked
    _padded_to_eighty(training)


@HALF.fault("padding counts", ranks)
def tags_of_the_padding_are_learned(training: Training) -> None:
    """Seven tokens and 150 pads, whose tag is the first class."""
    on_batch(training, lambda tokens, tag: (F.pad(tokens, (0, 150)), F.pad(tag, (0, 150))))


@HALF.fault("padding idx of a token", topics)
def padding_idx_is_a_word(training: Training) -> None:
    training.use(Topics(padding_idx=3))


@HALF.fault("padding idx of a token", topics)
def words_are_counted_from_zero(training: Training) -> None:
    """The first word has the number of the padding, and the padding that of a word."""
    seen_through(training, lambda text: (text - 1) % 41)


@HALF.fault("padding idx of a token", mirror)
def the_end_is_taken_for_padding(training: Training) -> None:
    """Both have one number, and the loss ignores it: nobody learns to stop."""
    on_batch(training, lambda inputs, target: (inputs, torch.where(target == END, 0, target)))


# ---- places ----------------------------------------------------------------------------------------


class Misplaced(Singer):
    """Places are counted along the batch."""

    def embedded(self, x: Tensor) -> Tensor:
        return self.notes(x) + self.places[torch.arange(len(x)) % 16].unsqueeze(1)


@HALF.fault("no positions", refrain)
def places_along_the_batch(training: Training) -> None:
    training.model.__class__ = Misplaced


class Unplaced(Mirror):
    """Makes the embedding of places, and returns what it was given."""

    def placed(self, embedded: Tensor) -> Tensor:
        self.places(torch.arange(embedded.shape[1]))
        return embedded


@HALF.fault("no positions", mirror, also=("unused layers",))
def places_are_not_added(training: Training) -> None:
    training.model.__class__ = Unplaced


@HALF.fault("no positions", signs, where=("places",))
def places_are_zeros_that_stay(training: Training) -> None:
    training.model.places.data.zero_()
    training.model.places.requires_grad_(False)


# ---- layout and state ------------------------------------------------------------------------------


def _encoder(training: Training) -> None:
    training.model.blocks = nn.TransformerEncoderLayer(24, 3, 48, dropout=0.0, batch_first=True)
    training.use(training.model)


@HALF.fault("batch first mixed up", signs, twin=_encoder)
def encoder_layer_as_it_comes(training: Training) -> None:
    """`nn.TransformerEncoderLayer` takes the first dimension for time, unless it is told otherwise."""
    training.model.blocks = nn.TransformerEncoderLayer(24, 3, 48, dropout=0.0)
    training.use(training.model)


@HALF.fault("batch first mixed up", tides, also=("state not kept",))
def gru_as_it_comes(training: Training) -> None:
    training.model.rnn = nn.GRU(1, 24)
    training.use(training.model)


@HALF.fault("batch first mixed up", ranks, also=("state not kept",))
def lstm_as_it_comes(training: Training) -> None:
    training.model.lstm = nn.LSTM(10, 24, bidirectional=True)
    training.use(training.model)


class Forgetful(Tides):
    """Calls the recurrent layer for each value, and does not hand its state on."""

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([self.rnn(value)[0] for value in x.split(1, 1)], 1))


@HALF.fault("state not kept", tides)
def state_is_not_handed_on(training: Training) -> None:
    training.model.__class__ = Forgetful


class Stepping(nn.Module):
    """Reads word by word with a cell."""

    def __init__(self, anew: bool) -> None:
        super().__init__()
        self.anew = anew
        self.words, self.cell, self.good = nn.Embedding(25, 12), nn.GRUCell(12, 24), nn.Linear(24, 1)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        state = torch.zeros(len(words), 24)
        for place in range(words.shape[1]):
            if self.anew:
                state = torch.zeros(len(words), 24)
            state = torch.where((place < lengths)[:, None], self.cell(self.words(words[:, place]), state), state)
        return self.good(state).squeeze(1)


def _stepping(training: Training) -> None:
    training.use(Stepping(anew=False))


@HALF.fault("state not kept", reviews, twin=_stepping)
def zeros_inside_the_loop(training: Training) -> None:
    """The line that makes the first state stands inside the loop over words."""
    training.use(Stepping(anew=True))


class Recurrence(nn.Module):
    """A recurrent layer by hand, with nothing that keeps its state small."""

    def __init__(self, scale: float, width: int = 24) -> None:
        super().__init__()
        self.enter, self.back = nn.Linear(1, width), nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.back.weight, gain=scale)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        state, states = torch.zeros(len(x), 24), []
        for value in x.unbind(1):
            state = self.back(state) + self.enter(value)
            states.append(state)
        return torch.stack(states, 1), None


def _by_a_small_recurrence(training: Training) -> None:
    training.model.rnn = Recurrence(0.7)
    training.use(training.model)


@HALF.fault(
    "exploding recurrence", tides, twin=_by_a_small_recurrence, also=("not finite by the rate", "rate too high", "weights begin too large")
)
def state_is_tripled_at_each_step(training: Training) -> None:
    training.model.rnn = Recurrence(3.0)
    training.use(training.model)


def _relu_layer(training: Training, scale: float) -> None:
    layer = nn.RNN(12, 24, batch_first=True, nonlinearity="relu")
    nn.init.eye_(layer.weight_hh_l0)
    layer.weight_hh_l0.data *= scale
    training.model.gru = layer
    training.use(training.model)


@HALF.fault(
    "exploding recurrence",
    reviews,
    twin=lambda training: _relu_layer(training, 1.0),
    also=("not finite by the rate", "rate too high", "weights begin too large"),
)
def relu_layer_of_five_times_the_identity(training: Training) -> None:
    _relu_layer(training, 5.0)


# ---- tokens ----------------------------------------------------------------------------------------


@HALF.fault("tokens unknown", captions, also=("constant inputs",))
def no_word_is_in_the_vocabulary(training: Training) -> None:
    """It holds small letters, and the captions are capitals."""
    seen_through(training, lambda inputs: (inputs[0], inputs[1] * 0 + 29))


@HALF.fault("tokens unknown", topics)
def only_frequent_words_are_kept(training: Training) -> None:
    """What tells of topics is rarer than the least count."""
    seen_through(training, lambda text: torch.where((text > 0) & (text < 30), 30, text))


@HALF.fault("tokens unknown", mirror)
def letters_beyond_the_vocabulary(training: Training) -> None:
    """A vocabulary of two letters; all others become the second."""
    seen_through(training, lambda inputs: (inputs[0].clamp(max=2), inputs[1]))


# ---- what is asked for -----------------------------------------------------------------------------


@HALF.fault("targets not moved", refrain)
def the_song_itself_is_the_target(training: Training) -> None:
    on_batch(training, lambda song, target: (song, song))


@HALF.fault("targets not moved", mirror, also=("leak",))
def decoder_is_given_the_target(training: Training) -> None:
    """The start is not put in front: what is to be written stands in its place already."""
    on_batch(training, lambda inputs, target: ((inputs[0], target), target))


@HALF.fault("targets not moved", tides)
def the_same_window_twice(training: Training) -> None:
    """A forecast whose windows of inputs and of targets begin at the same time."""
    on_batch(training, lambda x, following: (x, x))
