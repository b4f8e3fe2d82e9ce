"""What looks odd in sequences and tables of embeddings, and is fine."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_batch
from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import (
    Heads,
    Listeners,
    Stations,
    Weaver,
    interpreter,
    listeners,
    missed,
    parade,
    stations,
    weave,
    weave_data,
)


class Unordered(Weaver):
    """Sees all that is given, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 32)

    def hidden(self, length: int) -> Tensor:
        return torch.zeros(length, length, dtype=torch.bool)


@HALF.strange(weave)
def words_behind_a_mask_are_guessed(training: Training) -> None:
    """An encoder alone: no token is asked for that is not hidden."""

    def batch(count: int) -> Batch:
        x = weave_data(count, 12, noise=0.05)
        asked = torch.rand(x.shape) < 0.2
        return x.masked_fill(asked, 10), x.masked_fill(~asked, -100)

    def quality(net: nn.Module) -> float:
        x, label = batch(300)
        return missed(net(x), label)

    training.batch, training.quality = lambda _: batch(48), quality
    training.use(Unordered())
    training.steps = 300


@HALF.strange(weave)
def tags_that_need_what_comes_next(training: Training) -> None:
    """What comes next, and is seen: no mask, as it should be, since the text is whole when it is asked."""

    def batch(count: int) -> Batch:
        x = torch.randint(10, (count, 12))
        return x, F.pad((7 * x[:, 1:]) % 10, (0, 1), value=-100)

    def quality(net: nn.Module) -> float:
        x, tag = batch(300)
        return missed(net(x), tag)

    training.batch, training.quality = lambda _: batch(32), quality
    training.use(Unordered())
    training.steps = 250


@HALF.strange(parade)
def three_of_four_places_are_padding_and_ignored(training: Training) -> None:
    on_batch(training, lambda x, tag: (F.pad(x, (0, 30)), F.pad(tag, (0, 30), value=-100)))
    training.steps = 120


class Distances(Heads):
    """How far apart two places are is added to their scores; there are no other positions."""

    def __init__(self) -> None:
        super().__init__()
        self.far = nn.Parameter(torch.zeros(4, 31))

    def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
        place = torch.arange(scores.shape[-1])
        return super().weigh(scores + self.far[:, place - place.unsqueeze(1) + 15], hidden)


@HALF.strange(weave)
def distances_in_place_of_positions(training: Training) -> None:
    model = Weaver(Distances())
    model.places = nn.Parameter(torch.zeros(16, 32), requires_grad=False)
    training.use(model)


@HALF.strange(stations)
def a_set_has_no_order(training: Training) -> None:
    """Which token comes most often? No positions, as none matters."""

    class Bag(Stations):
        def placed(self, x: Tensor) -> Tensor:
            return self.tokens(x)

    def data(count: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(6, (count,))
        x = torch.where(torch.rand(count, 12) < 0.4, label.unsqueeze(1) + 1, torch.randint(1, 7, (count, 12)))
        return x, label

    def quality(net: nn.Module) -> float:
        x, label = data(300)
        return missed(net(x), label)

    training.batch, training.quality = lambda _: data(48), quality
    training.use(Bag())


@HALF.strange(listeners)
def a_softmax_over_few_songs(training: Training) -> None:
    """The one that was heard and eight that are drawn."""

    class Sampled(Listeners):
        def forward(self, listener: Tensor, song: Tensor) -> Tensor:
            if song.dim() == 1:
                return super().forward(listener, song)
            return torch.einsum("nd,nkd->nk", self.left(self.listeners(listener)), self.songs_of(song)) / 4

    def few(inputs: tuple[Tensor, Tensor], song: Tensor) -> Batch:
        return (inputs[0], torch.cat([song.unsqueeze(1), torch.randint(60, (len(song), 8))], 1)), torch.zeros_like(song)

    on_batch(training, few)
    training.use(Sampled())


@HALF.strange(weave)
def the_head_is_the_table(training: Training) -> None:
    model = Weaver()
    nn.init.normal_(model.tokens.weight, std=0.2)
    model.head.weight = model.tokens.weight
    training.use(model)


@HALF.strange(weave)
def no_positions_behind_a_causal_mask(training: Training) -> None:
    """The mask tells enough of the order: which token begins the row, and how often has it come?"""

    def data(count: int) -> tuple[Tensor, Tensor]:
        x = torch.randint(10, (count, 12))
        return x, x[:, :1].expand(count, 12).contiguous()

    def quality(net: nn.Module) -> float:
        x, label = data(200)
        return missed(net(x)[:, :5], label[:, :5])

    model = Weaver(depth=2)
    model.places = nn.Parameter(torch.zeros(16, 32), requires_grad=False)
    training.batch, training.quality = lambda _: data(48), quality
    training.use(model)
    training.steps = 250


class Prefix(Weaver):
    """The first half sees itself whole; the rest is causal."""

    def hidden(self, length: int) -> Tensor:
        mask = super().hidden(length)
        mask[:, :4] = False
        return mask


@HALF.strange(weave)
def a_beginning_that_is_seen_whole(training: Training) -> None:
    """No loss is of the beginning."""
    on_batch(training, lambda x, target: (x, torch.cat([torch.full_like(target[:, :4], -100), target[:, 4:]], 1)))
    training.use(Prefix())

    def quality(net: nn.Module) -> float:
        x = weave_data(200)
        return missed(net(x[:, :9])[:, -1], (3 * x[:, 7] + 1) % 10)

    training.quality = quality


@HALF.strange(interpreter)
def labels_smoothed_by_a_third(training: Training) -> None:
    """The loss cannot fall below 1.4."""
    training.criterion = lambda output, label: F.cross_entropy(output.flatten(0, 1), label.flatten(), label_smoothing=0.33)
