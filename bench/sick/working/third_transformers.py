"""Faults of other kinds, in transformers, tables of embeddings, graphs and pointers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench.sick.cases import Change
from bench.sick.changes import on_batch, on_loss, on_options
from bench.sick.training import Batch, Training
from bench.sick.working.half import HALF
from bench.sick.working.other_nets import loaded
from bench.sick.working.third_nets import (
    SGD,
    Corpus,
    Heads,
    Interpreter,
    Listeners,
    Village,
    Weaver,
    corpus,
    facts,
    interpreter,
    listeners,
    mosaic,
    podium,
    stations,
    stations_data,
    two_strands,
    village,
    weave,
)

# ---- data ------------------------------------------------------------------------------------------


@HALF.fault("leak", village)
def families_among_the_looks(training: Training) -> None:
    """The labels that are known are features, those that are asked for among them."""
    on_batch(training, lambda graph, label: ((torch.cat([graph[0][:, :3], 2 * F.one_hot(label, 3)], 1), graph[1]), label))


@HALF.fault("targets shuffled", stations)
def rows_sorted_by_length_and_labels_not(training: Training) -> None:
    """As packing asks for it, when a batch is put together."""

    def collate(rows: list[Any]) -> tuple[Tensor, Tensor]:
        texts = sorted((row for row, _ in rows), key=lambda row: -int((row != 0).sum()))
        return torch.stack(texts), torch.stack([label for _, label in rows])

    training.batch = loaded(DataLoader(TensorDataset(*stations_data(2400)), batch_size=48, shuffle=True, collate_fn=collate))


@HALF.fault("wrong axes", weave, also=("sees the future",))
def heads_viewed_and_not_transposed(training: Training) -> None:
    class Viewed(Heads):
        def split(self, x: Tensor) -> Tensor:
            return x.reshape(len(x), self.heads, -1, self.width // self.heads)

    training.use(Weaver(Viewed()))


@HALF.fault("wrong axes", listeners)
def songs_by_listeners_viewed_as_listeners_by_songs(training: Training) -> None:
    class Turned(Listeners):
        def forward(self, listener: Tensor, song: Tensor) -> Tensor:
            scores = self.songs_of(song) @ self.left(self.listeners(listener)).T / 4
            return scores.reshape(len(listener), len(song)) + self.fame[song]

    training.use(Turned())


@HALF.fault("imbalance", village)
def nearly_all_of_one_family(training: Training) -> None:
    """In 98 of 100; the graph is made of them all the same."""

    def batch(_: int) -> Batch:
        label = torch.where(torch.rand(60) < 0.98, 0, torch.randint(3, (60,)))
        chance = torch.where(label[:, None] == label, 0.3, 0.03)
        edges = (torch.rand(60, 60) < chance).float().triu(1)
        looks = torch.cat([0.8 * F.one_hot(label, 3) + torch.randn(60, 3), torch.randn(60, 3)], 1)
        return (looks, edges + edges.T + torch.eye(60)), label

    training.batch = batch


@HALF.fault("ordered batches", stations)
def rows_in_the_order_of_the_alphabet(training: Training) -> None:
    x, label = stations_data(2400)
    rows = sorted(zip(x.tolist(), label.tolist(), strict=True))
    ordered = torch.tensor([row for row, _ in rows]), torch.tensor([one for _, one in rows])
    training.batch = loaded(DataLoader(TensorDataset(*ordered), batch_size=48))


# ---- graph -----------------------------------------------------------------------------------------


@HALF.fault("frozen", weave)
def only_biases_learn(training: Training) -> None:
    """As for the fine-tuning of a large model; this one knows nothing yet."""
    for name, parameter in training.model.named_parameters():
        parameter.requires_grad = name.endswith("bias")
    training.use(training.model)


@HALF.fault("detached", corpus, where=("words",))
def vectors_are_taken_from_the_table_by_data(training: Training) -> None:
    class Taken(Corpus):
        def forward(self, word: Tensor, beside: Tensor) -> Tensor:
            return torch.einsum("nd,nkd->nk", self.words.weight.data[word], self.beside(beside))

    training.use(Taken())


@HALF.fault("no gradient through", listeners)
def vectors_of_signs(training: Training) -> None:
    """For a fast search."""

    class Signs(Listeners):
        def forward(self, listener: Tensor, song: Tensor) -> Tensor:
            return self.left(self.listeners(listener)).sign() @ self.songs_of(song).sign().T / 4 + self.fame[song]

    training.use(Signs())


@HALF.fault("hidden layers", interpreter)
def decoders_in_a_dict(training: Training) -> None:
    class Languages(Interpreter):
        def __init__(self) -> None:
            super().__init__()
            decoder, self.inner.decoder = self.inner.decoder, nn.Identity()
            self.decoders = {"other": decoder}
            self.tables = {"source": self.tokens, "target": nn.Embedding(9, 32)}
            self.heads = [nn.Linear(32, 9)]

        def forward(self, source: Tensor, given: Tensor) -> Tensor:
            memory = self.inner.encoder(self.placed(source))
            h = self.tables["target"](given) + self.places[: given.shape[1]]
            return self.heads[0](self.decoders["other"](h, memory, tgt_mask=self.masks(given.shape[1])["tgt_mask"]))

    training.use(Languages())


# ---- loop and optimizer ----------------------------------------------------------------------------


def _by_sgd(training: Training) -> None:
    training.optimize = partial(SGD, lr=0.3, momentum=0.9)
    training.use(training.model)


@HALF.fault("no zero grad", two_strands, twin=_by_sgd)
def zero_grad_without_parentheses(training: Training) -> None:
    _by_sgd(training)

    def step(training: Training, number: int) -> None:
        tokens, target = training.batch(number)
        training.optimizer.zero_grad  # noqa: B018
        training.criterion(training.model(tokens), target).backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("rate too high", mosaic)
def adamw_with_the_rate_of_sgd(training: Training) -> None:
    on_options(training, lr=0.3)


def _by_sums(rate: float) -> Change:
    """The loss is divided by a thousand."""

    def change(training: Training) -> None:
        on_loss(training, lambda loss: loss / 1000)
        training.optimize = partial(SGD, lr=rate, momentum=0.8)
        training.use(training.model)

    return change


@HALF.fault("rate too high", facts, twin=_by_sums(5e3))
def a_rate_of_millions_for_a_loss_of_a_thousandth(training: Training) -> None:
    _by_sums(2e6)(training)


@HALF.fault("not in the optimizer", corpus, where=("words",), also=("another models optimizer",))
def more_words_after_the_optimizer(training: Training) -> None:
    """The vocabulary grew, so the table is made anew."""
    old = training.model.words.weight[:40]
    training.model.words = nn.Embedding(48, 12)
    with torch.no_grad():
        training.model.words.weight[:40] = old


# ---- model -----------------------------------------------------------------------------------------


@HALF.fault("vanishing gradient", village)
def ten_hops_of_sigmoid(training: Training) -> None:
    class Far(Village):
        def forward(self, looks: Tensor, edges: Tensor) -> Tensor:
            h = torch.sigmoid(self.first(looks))
            for hop in self.hops:
                h = torch.sigmoid(hop(self.heard(h, edges)))
            return self.last(h)

    training.use(Far(depth=10))


@HALF.fault("weights begin too large", mosaic)
def normal_of_two_where_a_fiftieth_was_meant(training: Training) -> None:
    for parameter in training.model.parameters():
        if parameter.dim() > 1:
            nn.init.trunc_normal_(parameter, std=2.0, a=-10, b=10)


@HALF.fault("weights begin too large", listeners)
def tables_begin_at_twenty(training: Training) -> None:
    for table in (training.model.listeners, training.model.songs):
        nn.init.normal_(table.weight, std=20.0)


@HALF.fault("too much dropout", interpreter)
def the_chance_to_keep(training: Training) -> None:
    """PyTorch's dropout is the chance to lose."""
    model = Interpreter()
    model.inner = nn.Transformer(32, 4, 1, 1, 64, dropout=0.95, batch_first=True)
    training.use(model)


@HALF.fault("overwritten activation", stations)
def places_in_the_place_of_tokens(training: Training) -> None:
    model = training.model

    def placed(x: Tensor) -> Tensor:
        h = model.tokens(x)
        h = model.places(torch.arange(x.shape[1])).expand(h.shape)
        return h

    model.placed = placed


# ---- loss ------------------------------------------------------------------------------------------


@HALF.fault("softmax over the wrong dimension", weave, also=("sees the future",))
def attention_over_the_heads(training: Training) -> None:
    class Across(Heads):
        def weigh(self, scores: Tensor, hidden: Tensor | None) -> Tensor:
            assert hidden is not None
            return scores.masked_fill(hidden, -1e9).softmax(1)

    training.use(Weaver(Across()))


@HALF.fault("softmax over the wrong dimension", podium)
def pointers_over_the_three_moments(training: Training) -> None:
    training.criterion = lambda output, label: -output.log_softmax(1).gather(2, label.unsqueeze(2)).mean()


@HALF.fault("wrong sign", facts)
def scores_are_taken_for_distances(training: Training) -> None:
    training.criterion = lambda scores, answer: F.cross_entropy(-scores, answer)
