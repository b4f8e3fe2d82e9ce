"""Faults of sequences: masks, padding, order."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_batch, on_inputs
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import Basket, Counter, Majority, basket, counting, majority, marked, recall


@HALF.fault("sees the future", counting)
def no_causal_mask(training: Training) -> None:
    training.use(Counter(causal=False))


class Bidirectional(nn.Module):
    """A language model by a recurrent layer that reads in both directions."""

    def __init__(self, both: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(12, 16)
        self.recurrent = nn.GRU(16, 32, batch_first=True, bidirectional=both)
        self.head = nn.Linear(64 if both else 32, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(self.tokens(x))[0])


def _one_direction(training: Training) -> None:
    training.use(Bidirectional(both=False))


@HALF.fault("sees the future", counting, twin=_one_direction)
def bidirectional_language_model(training: Training) -> None:
    training.use(Bidirectional())


@HALF.fault("targets not moved", counting)
def targets_are_the_inputs(training: Training) -> None:
    on_batch(training, lambda x, target: (x, x))


@HALF.fault("targets not moved", counting, twin=_one_direction)
def targets_are_the_inputs_of_a_recurrent_net(training: Training) -> None:
    training.use(Bidirectional(both=False))
    on_batch(training, lambda x, target: (x, x))


class Inverted(Majority):
    """Attends to the padding, and to nothing else."""

    def forward(self, x: Tensor) -> Tensor:
        padded = x != 0
        padded[:, -1] = False
        h = self.block(self.tokens(x), src_key_padding_mask=padded)
        kept = (~padded).unsqueeze(2).float()
        return self.head((h * kept).sum(1) / kept.sum(1))


@HALF.fault("mask turned around", majority)
def attends_to_the_padding(training: Training) -> None:
    training.use(Inverted())


class Backwards(Counter):
    """Its mask hides what came before."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        mask = torch.ones(x.shape[1], x.shape[1]).tril(-1).bool()
        return self.head(self.blocks(h, mask=mask))


@HALF.fault("mask turned around", counting, also=("sees the future",))
def mask_hides_the_past(training: Training) -> None:
    training.use(Backwards())


def _mostly_padding(training: Training) -> None:
    def longer(x: Tensor) -> Tensor:
        return F.pad(x, (0, 150))

    on_inputs(training, longer)


class Tail(nn.Module):
    """Reads what a recurrent layer says at the end, padding or not."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(5, 12)
        self.recurrent = nn.GRU(12, 32, batch_first=True)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(self.tokens(x))[0][:, -1])


@HALF.fault("padding counts", majority, twin=_mostly_padding)
def last_state_after_the_padding(training: Training) -> None:
    training.use(Tail())
    _mostly_padding(training)


@HALF.fault("padding idx of a token", basket)
def padding_idx_is_an_item(training: Training) -> None:
    training.use(Basket(padding_idx=3))


@HALF.fault("padding idx of a token", basket)
def the_last_item_is_the_padding(training: Training) -> None:
    training.use(Basket(padding_idx=-1))
    quality = training.quality

    def renamed(x: Tensor) -> Tensor:
        return torch.where(x == 3, 20, torch.where(x == 20, 3, x))

    on_inputs(training, renamed)
    training.quality = lambda net: quality(lambda x: net(renamed(x)))


class Finder(nn.Module):
    """Reads tokens by attention, with or without their places."""

    def __init__(self, positions: bool = True) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 24)
        self.places = nn.Embedding(8, 24) if positions else None
        self.block = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(24, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x)
        if self.places is not None:
            h = h + self.places(torch.arange(x.shape[1]))
        return self.head(self.block(h).mean(1))


def _by_attention(training: Training) -> None:
    training.use(Finder())


@HALF.fault("no positions", recall, twin=_by_attention)
def attention_without_places(training: Training) -> None:
    training.use(Finder(positions=False))


@HALF.fault("batch first mixed up", marked, recall, also=("state not kept",))
def batch_is_taken_for_time(training: Training) -> None:
    training.model.recurrent.batch_first = False


@HALF.fault("state not kept", marked, recall)
def reads_the_first_output(training: Training) -> None:
    model = training.model
    model.forward = lambda x: model.head(model.recurrent(model.embedding(x))[0][:, 0])


@HALF.fault("state not kept", marked)
def each_step_begins_anew(training: Training) -> None:
    model = training.model

    def forward(x: Tensor) -> Tensor:
        state = [model.recurrent(x[:, step : step + 1])[0] for step in range(x.shape[1])][-1]
        return model.head(state[:, -1])

    model.forward = forward


@HALF.fault("exploding recurrence", marked, also=("not finite by the rate", "rate too high"))
def relu_recurrence_with_large_weights(training: Training) -> None:
    training.model.recurrent = nn.RNN(2, 24, batch_first=True, nonlinearity="relu")
    with torch.no_grad():
        training.model.recurrent.weight_hh_l0.copy_(6 * torch.eye(24))
    training.use(training.model)


@HALF.fault("tokens unknown", recall, majority)
def nearly_all_tokens_unknown(training: Training) -> None:
    on_inputs(training, lambda x: torch.where(x > 1, 1, x))
    quality = training.quality
    training.quality = lambda net: quality(lambda x: net(torch.where(x > 1, 1, x)))
