"""Nets of words, graphs, pairs, pictures that are made, and numbers, as they stand in a thesis or in a first project at work."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import on_inputs, on_target
from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant, stepped_by
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import missed

ADAM, ADAMW, SGD = torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD
LOUD = ("rate too high", "not finite by the rate")

# ---- stews: ingredients, and which tags a dish has --------------------------------------------------------

INGREDIENTS, TAGS, PAD = 40, 6, 0


def stews_data(count: int, look: Callable[[Tensor], Tensor] = lambda words: words) -> tuple[dict[str, Tensor], Tensor]:
    """Between two and ten ingredients in rows of ten; a tag holds where one of its four is in it."""
    words = torch.randint(1, INGREDIENTS, (count, 10))
    lengths = torch.randint(2, 11, (count,))
    words = words * (torch.arange(10) < lengths.unsqueeze(1))
    tags = torch.stack([((words >= 4 * tag + 1) & (words < 4 * tag + 5)).any(1) for tag in range(TAGS)], 1).float()
    return {"input_ids": look(words), "lengths": lengths}, tags


class Stews(nn.Module):
    """A table, the greatest of each number, and two layers."""

    def __init__(self, width: int = 24, **options: Any) -> None:
        super().__init__()
        self.emb = nn.Embedding(INGREDIENTS, width, **{"padding_idx": PAD, **options})
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, TAGS))

    def pooled(self, x: Tensor, mask: Tensor) -> Tensor:
        return x.masked_fill(~mask.unsqueeze(-1), -9.0).amax(1)

    def last(self, x: Tensor) -> Tensor:
        return self.mlp(x)

    def forward(self, input_ids: Tensor, lengths: Tensor) -> dict[str, Tensor]:
        mask = torch.arange(input_ids.shape[1]) < lengths.unsqueeze(1)
        return {"tags": self.last(self.pooled(self.emb(input_ids), mask))}


def stews_loss(output: dict[str, Tensor], tags: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output["tags"], tags)


def stews_quality(look: Callable[[Tensor], Tensor] = lambda words: words, least: float = 0.0) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        inputs, tags = stews_data(500, look)
        said = net(**inputs)["tags"] > least
        return 0.5 * ((~said)[tags == 1].float().mean() + said[tags == 0].float().mean()).item()

    return quality


def stews_step(training: Training, number: int) -> None:
    """Metrics are computed beside the loss."""
    inputs, tags = training.batch(number)
    output = training.model(**inputs)
    losses = {"bce": training.criterion(output, tags)}
    with torch.no_grad():
        said = output["tags"] > 0
        losses["recall"] = said[tags == 1].float().mean()
    training.optimizer.zero_grad()
    losses["bce"].backward()
    training.optimizer.step()


@HALF.net("embedding")
def stews() -> Training:
    """Spicy, vegan, quick?"""
    training = Training(Stews(), partial(ADAM, lr=0.01), lambda _: stews_data(64), stews_loss, stews_quality(), steps=200)
    training.step = stews_step
    return training


@HALF.fault("sigmoid twice", stews, twin=lambda training: stepped_by(SGD, lr=0.8, momentum=0.9)(training))
def torch_sigmoid_in_a_method_and_a_loss_with_logits(training: Training) -> None:
    class Shares(Stews):
        def last(self, x: Tensor) -> Tensor:
            return torch.sigmoid(super().last(x))

    training.use(Shares())
    stepped_by(SGD, lr=0.8, momentum=0.9)(training)
    training.quality = stews_quality(least=0.5)


@HALF.fault("weights of classes", stews)
def pos_weight_of_a_column_counted_in_the_whole_catalogue(training: Training) -> None:
    """Positives over all rows, squared by a second division."""
    weight = torch.full((TAGS,), 0.004)
    training.criterion = lambda output, tags: F.binary_cross_entropy_with_logits(output["tags"], tags, pos_weight=weight)


@HALF.fault("tokens unknown", stews)
def words_are_stemmed_when_the_vocabulary_is_not(training: Training) -> None:
    def look(words: Tensor) -> Tensor:
        return torch.where((words > 0) & (words % 9 > 0), INGREDIENTS - 1, words)

    training.batch = lambda _: stews_data(64, look)
    training.quality = stews_quality(look)


@HALF.fault("padding idx of a token", stews, also=("padding counts", "tokens unknown"))
def padding_idx_is_the_number_of_salt_and_its_row_is_made_zero_again(training: Training) -> None:
    """Four ingredients in one: salt, pepper, oil and water got number one, which is the padding."""
    training.use(Stews(padding_idx=1))

    def look(words: Tensor) -> Tensor:
        return torch.where(words % 4 > 0, words.clamp(max=1), words)

    training.batch = lambda _: stews_data(64, look)
    training.quality = stews_quality(look)


@HALF.fault("groups swapped", stews, also=("rate too low",))
def layer_wise_decay_is_counted_from_the_wrong_end(training: Training) -> None:
    """0.02 ** depth: the table gets the least in a net that nobody had trained before."""
    net: Any = training.model
    net.emb.weight.data.mul_(0.01)
    layers = [net.mlp[2], net.mlp[0], net.emb]
    training.optimizer = ADAM([{"params": layer.parameters(), "lr": 0.01 * 0.02**depth} for depth, layer in enumerate(layers)])


@HALF.fault("not in the optimizer", stews)
def parameters_without_weight_in_their_name_and_those_of_linear_layers(training: Training) -> None:
    """The list for no decay and the list for decay leave out the embedding."""
    net: Any = training.model
    net.emb.weight.data.mul_(0.01)
    decay = [one.weight for one in net.modules() if isinstance(one, nn.Linear)]
    other = [one for name, one in net.named_parameters() if name.endswith("bias")]
    training.optimizer = ADAMW([{"params": decay, "weight_decay": 0.01}, {"params": other, "weight_decay": 0.0}], lr=0.01)


@HALF.fault("padding counts", stews, also=("mask turned around",))
def the_mask_is_of_tokens_and_compares_with_minus_one(training: Training) -> None:
    class Padded(Stews):
        def forward(self, input_ids: Tensor, lengths: Tensor) -> dict[str, Tensor]:
            x = self.emb(input_ids)
            return {"tags": self.last(self.pooled(x, input_ids != -1))}

    training.use(Padded(padding_idx=None))
    with torch.no_grad():
        training.model.emb.weight[PAD] = 6.0


@HALF.fault("all weights equal", stews)
def init_weights_fills_each_with_the_same_number(training: Training) -> None:
    """apply(init_weights), in which a normal became a constant."""

    def init_weights(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data.fill_(0.02)

    training.model.apply(init_weights)


@HALF.fault("imbalance", stews, twin=lambda training: None)
def negatives_of_each_tag_at_a_thousand_to_one(training: Training) -> None:
    def batch(_: int) -> Batch:
        inputs, tags = stews_data(1500)
        few = (tags.sum(1) == 0) | (torch.rand(1500) < 0.002)
        return {name: one[few] for name, one in inputs.items()}, tags[few]

    training.batch = batch


@HALF.strange(stews)
def weights_by_how_rare_a_tag_is(training: Training) -> None:
    weight = torch.linspace(1.5, 3.0, TAGS)
    training.criterion = lambda output, tags: F.binary_cross_entropy_with_logits(output["tags"], tags, pos_weight=weight)


# ---- signals: an encoder written with einsum ---------------------------------------------------------------


def signals_data(count: int) -> tuple[Tensor, Tensor]:
    """Each place is told the token that stands its own number of places further on, in a circle."""
    x = torch.randint(10, (count, 12))
    jump = 1 + x % 3
    return x, x.gather(1, (torch.arange(12) + jump) % 12)


class Attends(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4, dim: int = -1) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.wq, self.wk, self.wv, self.wo = (nn.Parameter(torch.randn(width, width) / width**0.5) for _ in range(4))
        self.norm = nn.LayerNorm(width)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        q, k, v = (self.split(torch.einsum("btd,de->bte", h, w)) for w in (self.wq, self.wk, self.wv))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        out = torch.einsum("bhqk,bkhd->bqhd", self.weigh(scores), v)
        return x + torch.einsum("btd,de->bte", out.flatten(2), self.wo)

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(self.dim)


class Signals(nn.Module):
    def __init__(self, attends: Callable[[], nn.Module] = Attends) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(10, 32), nn.Parameter(torch.randn(12, 32))
        self.attention = nn.ModuleList(attends() for _ in range(2))
        self.mlps = nn.ModuleList(nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)) for _ in range(2))
        self.out = nn.Linear(32, 10)

    def embedded(self, x: Tensor) -> Tensor:
        return self.tokens(x) + self.places

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedded(x)
        for attention, mlp in zip(self.attention, self.mlps, strict=True):
            h = attention(h)
            h = h + mlp(h)
        return self.out(h)


def signals_quality(net: nn.Module) -> float:
    x, y = signals_data(200)
    return missed(net(x), y)


def signals_loss(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(1, 2), y)


@HALF.net("transformer")
def signals() -> Training:
    """What stands there, further on?"""
    return Training(Signals(), partial(ADAM, lr=3e-3), lambda _: signals_data(48), signals_loss, signals_quality, steps=350)


@HALF.fault("softmax over the wrong dimension", signals)
def softmax_of_dim_zero_as_for_the_one_sentence_of_the_lecture(training: Training) -> None:
    class Over(Attends):
        def weigh(self, scores: Tensor) -> Tensor:
            return scores.softmax(0)

    training.use(Signals(Over))


@HALF.fault("no positions", signals)
def the_parameter_for_places_is_expanded_and_never_added(training: Training) -> None:
    class Unplaced(Signals):
        def embedded(self, x: Tensor) -> Tensor:
            h = self.tokens(x)
            self.seen = self.places.expand_as(h)
            return h

    training.use(Unplaced())


@HALF.fault("mask turned around", signals)
def a_mask_for_dropout_of_attention_is_added_to_all_that_may_be_seen(training: Training) -> None:
    """masked_fill with ones where a token may look, zeros where it may not."""
    allowed = torch.ones(12, 12, dtype=torch.bool)

    class Hidden(Attends):
        def weigh(self, scores: Tensor) -> Tensor:
            return scores.masked_fill(allowed, -1e9).softmax(-1)

    training.use(Signals(Hidden))


@HALF.fault("unused layers", signals, also=("overwritten activation",))
def what_attention_returns_has_a_name_that_nobody_reads(training: Training) -> None:
    class Unread(Signals):
        def forward(self, x: Tensor) -> Tensor:
            h = self.embedded(x)
            for attention, mlp in zip(self.attention, self.mlps, strict=True):
                self.last_attended = attention(h)
                h = h + mlp(h)
            return self.out(h)

    training.use(Unread())


@HALF.fault("weights begin too large", signals)
def matrices_for_einsum_are_torch_randn(training: Training) -> None:
    with torch.no_grad():
        for one in training.model.attention:
            for w in (one.wq, one.wk, one.wv, one.wo):
                w.normal_()


@HALF.fault("too few digits", signals, twin=lambda training: stepped_by(SGD, lr=0.05, momentum=0.9)(training), also=("rate too low",))
def the_model_is_cast_to_bfloat16_and_so_is_what_sgd_adds(training: Training) -> None:
    training.model.to(torch.bfloat16)
    stepped_by(SGD, lr=1e-3)(training)
    training.criterion = lambda logits, y: signals_loss(logits.float(), y)


@HALF.fault("detached", signals, also=("without grad",))
def the_attention_is_kept_for_a_figure_by_item(training: Training) -> None:
    """weights.detach().cpu() for the figure, and the same name goes on."""

    class Shown(Attends):
        def weigh(self, scores: Tensor) -> Tensor:
            self.figure = scores.softmax(-1).detach()
            return self.figure

    training.use(Signals(Shown))
    for one in training.model.attention:
        one.wq.data.mul_(0.1)


@HALF.strange(signals)
def a_list_of_the_weights_for_a_figure(training: Training) -> None:
    class Shown(Attends):
        def weigh(self, scores: Tensor) -> Tensor:
            weights = scores.softmax(-1)
            self.figure = weights.detach()
            return weights

    training.use(Signals(Shown))


# ---- villages: a graph and its neighbours -------------------------------------------------------------------


def villages_graph() -> tuple[Tensor, Tensor, Tensor]:
    """Ninety villages of three peoples, who visit their own; what they grow tells a little."""
    draw = torch.Generator().manual_seed(84)
    people = torch.arange(90) % 3
    near = (people.unsqueeze(0) == people.unsqueeze(1)).float() * 0.14 + 0.015
    roads = (torch.rand(90, 90, generator=draw) < near).float().triu(1)
    grown = F.one_hot(people, 3).float() @ torch.randn(3, 10, generator=draw) * 0.5 + torch.randn(90, 10, generator=draw)
    return grown, roads + roads.T, people


class Messages(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs, bias=False)

    def mean(self, adj: Tensor, x: Tensor) -> Tensor:
        return adj @ x / adj.sum(1, keepdim=True).clamp(min=1)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.own(x) + self.other(self.mean(adj, x))


class Villages(nn.Module):
    def __init__(self, layer: Callable[[int, int], nn.Module] = Messages) -> None:
        super().__init__()
        self.convs = nn.ModuleList([layer(10, 16), layer(16, 3)])

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = F.relu(conv(x, adj))
        return self.convs[-1](x, adj)


def villages_quality(net: nn.Module) -> float:
    x, adj, people = villages_graph()
    return missed(net(x, adj)[45:], people[45:])


def masked_step(training: Training, number: int) -> None:
    """Only half of the villages have been visited."""
    inputs, people = training.batch(number)
    train_mask = torch.arange(90) < 45
    training.optimizer.zero_grad()
    out = training.model(*inputs)
    training.criterion(out[train_mask], people[train_mask]).backward()
    training.optimizer.step()


@HALF.net("mlp")
def villages() -> Training:
    """Who lives there?"""
    x, adj, people = villages_graph()
    training = Training(
        Villages(),
        partial(ADAM, lr=0.02, weight_decay=5e-3),
        lambda _: ((x, adj), people),
        nn.CrossEntropyLoss(),
        villages_quality,
        steps=120,
    )
    training.step = masked_step
    return training


@HALF.fault("targets shuffled", villages)
def villages_are_sorted_by_name_and_the_labels_by_their_number(training: Training) -> None:
    order = torch.randperm(90)
    on_target(training, lambda people: people[order])


@HALF.fault("division by zero", villages)
def an_island_has_no_roads(training: Training) -> None:
    """The mean of the neighbours of a village that has none."""

    class Plain(Messages):
        def mean(self, adj: Tensor, x: Tensor) -> Tensor:
            return adj @ x / adj.sum(1, keepdim=True)

    training.use(Villages(Plain))
    x, adj, people = villages_graph()
    adj[7] = adj[:, 7] = 0
    training.batch = lambda _: ((x, adj), people)
    training.quality = lambda net: missed(net(x, adj)[45:], people[45:])


@HALF.fault("leak", villages)
def the_people_stand_in_a_column_for_those_that_were_visited(training: Training) -> None:
    """One-hot labels as features, as in a paper; all are known in training."""
    x, adj, people = villages_graph()
    known = torch.cat([x, 20.0 * F.one_hot(people, 3).float()], 1)
    training.use(Villages(lambda one, two: Messages(13 if one == 10 else one, two)))
    training.batch = lambda _: ((known, adj), people)
    unknown = torch.cat([x, torch.zeros(90, 3)], 1)
    training.quality = lambda net: missed(net(unknown, adj)[45:], people[45:])


# ---- stamps: pairs of views ---------------------------------------------------------------------------------


def stamps_data(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """A front of twelve numbers and a back of eight, of the same stamp."""
    z = torch.randn(count, 5)
    front = torch.tanh(z @ constant(5, 12, seed=85)) + 0.05 * torch.randn(count, 12)
    back = torch.tanh(z @ constant(5, 8, seed=86)) + 0.05 * torch.randn(count, 8)
    return (front, back), torch.arange(count)


class Stamps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 16))
        self.back = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 16))
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, front: Tensor, back: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(self.front(front), dim=-1), F.normalize(self.back(back), dim=-1)


def stamps_quality(net: nn.Module) -> float:
    inputs, rows = stamps_data(60)
    one, two = net(*inputs)
    return missed(one @ two.T, rows)


def stamps_loss(output: tuple[Tensor, Tensor], rows: Tensor, scale: float = 10.0) -> Tensor:
    one, two = output
    logits = scale * one @ two.T
    return (F.cross_entropy(logits, rows) + F.cross_entropy(logits.T, rows)) / 2


@HALF.net("embedding")
def stamps() -> Training:
    """Which back belongs to which front?"""
    return Training(Stamps(), partial(ADAM, lr=5e-3), lambda _: stamps_data(64), stamps_loss, stamps_quality, steps=250)


@HALF.fault("wrong negatives", stamps, also=("targets shuffled",))
def both_views_are_drawn_by_loaders_of_their_own(training: Training) -> None:
    on_inputs(training, lambda views: (views[0], views[1][torch.randperm(len(views[1]))]))


@HALF.fault("one logit", stamps, also=("wrong negatives", "constant loss"))
def each_front_is_scored_against_its_own_back_alone(training: Training) -> None:
    """Einsum of 'nd,nd->n' where 'nd,md->nm' was meant, and a dimension so that it runs."""

    def criterion(output: tuple[Tensor, Tensor], rows: Tensor) -> Tensor:
        logits = 10 * torch.einsum("nd,nd->n", *output).unsqueeze(1)
        return F.cross_entropy(logits, torch.zeros_like(rows))

    training.criterion = criterion


@HALF.fault("root of zero", stamps, also=("not finite by the rate",))
def the_distance_matrix_is_made_by_the_binomial_formula_and_a_root(training: Training) -> None:
    """Of fronts among themselves as well: each one has the distance zero to itself."""

    def apart(one: Tensor, two: Tensor) -> Tensor:
        squares = one.square().sum(1, keepdim=True) - 2 * one @ two.T + two.square().sum(1)
        return squares.clamp(min=0).sqrt()

    def criterion(output: tuple[Tensor, Tensor], rows: Tensor) -> Tensor:
        one, two = output
        spread = F.relu(0.5 - apart(one, one)).mean()
        return F.cross_entropy(-5 * apart(one, two), rows) + 0.1 * spread

    training.criterion = criterion


@HALF.strange(stamps)
def sigmoids_of_pairs_with_a_scale_that_learns(training: Training) -> None:
    def criterion(output: tuple[Tensor, Tensor], rows: Tensor) -> Tensor:
        net: Any = training.model
        logits = net.log_scale.exp() * output[0] @ output[1].T - 6
        return -F.logsigmoid((2 * torch.eye(len(rows)) - 1) * logits).sum(1).mean()

    training.criterion = criterion


# ---- kilns: pictures that are coded -------------------------------------------------------------------------


def kilns_data(count: int) -> Tensor:
    """Pots between 0 and 1, of four numbers."""
    return torch.sigmoid(1.5 * torch.randn(count, 4) @ constant(4, 36, seed=87)).view(count, 1, 6, 6)


class Kilns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(36, 48), nn.ReLU())
        self.mu, self.logvar = nn.Linear(48, 6), nn.Linear(48, 6)
        self.decoder = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 36), nn.Sigmoid())

    def std(self, logvar: Tensor) -> Tensor:
        return torch.exp(0.5 * logvar)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.encoder(x)
        return self.mu(h), self.logvar(h)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        mu, logvar = self.encode(x)
        z = mu + self.std(logvar) * torch.randn_like(mu) if self.training else mu
        return {"recon": self.decoder(z).view(x.shape), "mu": mu, "logvar": logvar}


def kilns_loss(output: dict[str, Tensor], x: Tensor, beta: float = 1.0) -> Tensor:
    kl = -0.5 * (1 + output["logvar"] - output["mu"] ** 2 - output["logvar"].exp()).sum(1).mean()
    return F.binary_cross_entropy(output["recon"], x, reduction="none").flatten(1).sum(1).mean() + 0.1 * beta * kl


def kilns_quality(net: nn.Module) -> float:
    x = kilns_data(200)
    return (net(x)["recon"] - x).square().mean().item()


@HALF.net("generative")
def kilns() -> Training:
    """Give the pot again."""

    def batch(_: int) -> tuple[Tensor, Tensor]:
        x = kilns_data(48)
        return x, x

    return Training(Kilns(), partial(ADAM, lr=5e-3), batch, kilns_loss, kilns_quality, steps=250)


@HALF.fault("latent ignored", kilns)
def an_annealed_weight_that_is_in_percent(training: Training) -> None:
    step = 0

    def criterion(output: dict[str, Tensor], x: Tensor) -> Tensor:
        nonlocal step
        step += 1
        return kilns_loss(output, x, beta=min(step, 1000))

    training.criterion = criterion


@HALF.fault("overflow", kilns, also=("rate too high", "not finite by the rate"))
def exp_of_the_deviation_in_place_of_half_the_logarithm(training: Training) -> None:
    """The variance is exp(exp(…)), as two people wrote the two lines."""

    class Doubled(Kilns):
        def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
            mu, logvar = super().encode(x)
            return mu, torch.exp(2 + 2 * logvar)

    training.use(Doubled())


@HALF.fault("without grad", kilns)
def encode_is_decorated_for_inference(training: Training) -> None:
    class Served(Kilns):
        @torch.no_grad()
        def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return super().encode(x)

    training.use(Served())
    with torch.no_grad():
        training.model.mu.weight[1:] = training.model.mu.weight[:1]


@HALF.fault("few samples", kilns, also=("same batch",))
def a_debug_flag_keeps_the_first_eight_pots(training: Training) -> None:
    pots = kilns_data(8)
    training.batch = lambda _: (pots, pots)


@HALF.fault("weights begin too small", kilns)
def each_layer_begins_with_a_normal_of_a_ten_thousandth_under_sgd(training: Training) -> None:
    for one in training.model.modules():
        if isinstance(one, nn.Linear):
            nn.init.normal_(one.weight, std=1e-5)
            nn.init.zeros_(one.bias)
    stepped_by(SGD, lr=0.02)(training)


@HALF.fault("output cannot reach", kilns, twin=lambda training: _standard(training))
def pots_are_standardized_and_the_decoder_ends_in_a_sigmoid(training: Training) -> None:
    _standard(training)
    training.model.decoder[3] = nn.Sigmoid()


def _standard(training: Training) -> None:
    def standard(x: Tensor) -> Tensor:
        return (x - 0.5) / 0.2

    def batch(_: int) -> tuple[Tensor, Tensor]:
        x = standard(kilns_data(48))
        return x, x

    def quality(net: nn.Module) -> float:
        x = standard(kilns_data(200))
        return (net(x)["recon"] - x).square().mean().item()

    training.model.decoder[3] = nn.Identity()
    training.batch, training.quality = batch, quality
    training.criterion = lambda output, x: F.mse_loss(output["recon"], x)


@HALF.strange(kilns)
def pots_are_standardized(training: Training) -> None:
    _standard(training)


# ---- masks: a maker and its judge of curves -----------------------------------------------------------------


def masks_real(count: int) -> Tensor:
    t = torch.linspace(0, 3.14, 12)
    return (0.3 + 1.6 * torch.rand(count, 1)) * torch.sin(t + 0.5 * torch.rand(count, 1)) + 0.03 * torch.randn(count, 12)


class Maker(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 12))

    def forward(self, z: Tensor) -> Tensor:
        return self.net(z)


class Theatre(nn.Module):
    """Both in one, so that one file holds them."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.G = Maker()
        self.D = nn.Sequential(nn.Linear(12, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))

    def forward(self, z: Tensor) -> Tensor:
        return self.G(z)

    def loss_d(self, real: Tensor, fake: Tensor) -> Tensor:
        return F.softplus(-self.D(real)).mean() + F.softplus(self.D(fake.detach())).mean()

    def loss_g(self, fake: Tensor) -> Tensor:
        return F.softplus(-self.D(fake)).mean()


def masks_quality(net: nn.Module) -> float:
    made, real = net(torch.randn(400, 4)), masks_real(400)
    return (made.mean(0) - real.mean(0)).norm().item() + (made.std(0) - real.std(0)).norm().item()


def masks_step(training: Training, number: int, times: int = 1) -> None:
    net: Any = training.model
    (opt_d,) = training.others
    for _ in range(times):
        loss_d = net.loss_d(masks_real(64), net.G(torch.randn(64, 4)))
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
    loss_g = net.loss_g(net.G(torch.randn(64, 4)))
    training.optimizer.zero_grad()
    loss_g.backward()
    training.optimizer.step()


def _cast(training: Training, net: nn.Module | None = None, rate: float = 2e-3, judge: float = 4e-3) -> None:
    both: Any = net or training.model
    training.model = both
    training.optimizer = ADAM(both.G.parameters(), lr=rate, betas=(0.5, 0.9))
    training.others = (ADAM(both.D.parameters(), lr=judge, betas=(0.5, 0.9)),)


@HALF.net("generative")
def masks() -> Training:
    """Curves like these."""
    training = Training(
        Theatre(), partial(ADAM, lr=4e-3), lambda _: (torch.randn(64, 4), torch.zeros(64, 12)), F.mse_loss, masks_quality, 300
    )
    _cast(training)
    training.step = masks_step
    return training


@HALF.fault("generator detached", masks)
def loss_g_is_a_copy_of_the_line_above(training: Training) -> None:
    class Copied(Theatre):
        def loss_g(self, fake: Tensor) -> Tensor:
            return F.softplus(-self.D(fake.detach())).mean()

    _cast(training, Copied())


@HALF.fault("discriminator wins", masks, also=("rate too low",))
def the_judge_learns_ten_times_as_fast_and_ten_times_as_often(training: Training) -> None:
    class Saturates(Theatre):
        def loss_g(self, fake: Tensor) -> Tensor:
            return -F.softplus(self.D(fake)).mean()

    _cast(training, Saturates(128), rate=1e-3, judge=2e-2)
    training.step = partial(masks_step, times=10)


# ---- rooms: noise that is taken away --------------------------------------------------------------------------


def rooms_data(count: int) -> Tensor:
    """Points on three small circles."""
    centre = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])[torch.randint(3, (count,))]
    angle = 6.283 * torch.rand(count)
    return centre + 0.3 * torch.stack([angle.cos(), angle.sin()], 1)


class Rooms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 + 16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def level(self, sigma: Tensor) -> Tensor:
        angle = sigma.log().view(-1, 1) * torch.arange(1, 9)
        return torch.cat([angle.sin(), angle.cos()], 1)

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return self.net(torch.cat([x / (1 + sigma.view(-1, 1) ** 2).sqrt(), self.level(sigma)], 1))


def rooms_batch(count: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    x0, noise = rooms_data(count), torch.randn(count, 2)
    sigma = (torch.rand(count) * math.log(200) + math.log(0.05)).exp()
    return (x0 + sigma.view(-1, 1) * noise, sigma), noise


def rooms_quality(net: nn.Module) -> float:
    inputs, noise = rooms_batch(800)
    return (net(*inputs) - noise).square().mean().item()


@HALF.net("generative")
def rooms() -> Training:
    """Which noise was added?"""
    return Training(Rooms(), partial(ADAM, lr=4e-3), lambda _: rooms_batch(128), nn.MSELoss(), rooms_quality, steps=300)


@HALF.fault("noise level hidden", rooms, also=("constant inputs",))
def sigma_is_cast_to_long_for_a_table(training: Training) -> None:
    class Long(Rooms):
        def level(self, sigma: Tensor) -> Tensor:
            return super().level(sigma.long().clamp(1, 1).float())

    training.use(Long())


@HALF.fault("targets shuffled", rooms, also=("wrong axes",))
def noise_is_drawn_again_for_the_target(training: Training) -> None:
    on_target(training, torch.randn_like)


# ---- teacher: what a larger net says ----------------------------------------------------------------------------


def exams_data(count: int) -> Tensor:
    return torch.randn(count, 6)


class Exams(nn.Module):
    """A teacher that is done, and a student."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 5))
        with torch.no_grad():
            self.teacher[0].weight.copy_(constant(16, 6, seed=88) / 2)
            self.teacher[2].weight.copy_(constant(5, 16, seed=89))
        self.teacher.requires_grad_(False)
        self.student = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            said = self.teacher(x)
        return self.student(x), said


def exams_loss(output: tuple[Tensor, Tensor], _: Tensor, t: float = 2.0) -> Tensor:
    student, said = output
    return t * t * F.kl_div(F.log_softmax(student / t, -1), F.softmax(said / t, -1), reduction="batchmean")


def exams_quality(net: nn.Module) -> float:
    return exams_loss(net(exams_data(500)), torch.zeros(1), t=1.0).item()


@HALF.net("mlp")
def exams() -> Training:
    """Say what the teacher says."""
    training = Training(Exams(), partial(ADAM, lr=5e-3), lambda _: (exams_data(64), torch.zeros(64)), exams_loss, exams_quality, steps=200)
    net: Any = training.model
    training.optimizer = ADAM(net.student.parameters(), lr=5e-3)
    return training


@HALF.fault("temperature", exams)
def a_temperature_of_two_hundred_and_no_square(training: Training) -> None:
    """Both sides are flat."""
    net: Any = training.model
    training.optimizer = SGD(net.student.parameters(), lr=0.2, momentum=0.9)

    def criterion(output: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        return exams_loss(output, x, 200.0) / 200.0**2

    training.criterion = criterion


@HALF.fault("no log", exams)
def kl_div_of_two_softmaxes(training: Training) -> None:
    def criterion(output: tuple[Tensor, Tensor], _: Tensor) -> Tensor:
        student, said = output
        return F.kl_div(F.softmax(student / 2, -1), F.softmax(said / 2, -1), reduction="batchmean")

    training.criterion = criterion


@HALF.fault("another models optimizer", exams, also=("not in the optimizer", "frozen"))
def the_optimizer_holds_the_teacher(training: Training) -> None:
    net: Any = training.model
    net.teacher.requires_grad_(True)
    training.optimizer = ADAM(net.teacher.parameters(), lr=5e-3)


# ---- gauges: numbers that are too large or too small ----------------------------------------------------------------


def gauges_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 5)
    return x, 60 * torch.tanh(x[:, 0] * x[:, 1]) + 45 * torch.sin(x[:, 2]) + 150


class Gauges(nn.Module):
    def __init__(self, bias: float = 150.0, scale: float = 60.0) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(5, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.out = nn.Linear(48, 1)
        self.bias, self.scale = bias, scale

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.hidden(x)).squeeze(-1) * self.scale + self.bias


def gauges_quality(net: nn.Module) -> float:
    x, y = gauges_data(400)
    return ((net(x).float() - y) / 50).square().mean().item()


@HALF.net("mlp")
def gauges() -> Training:
    """What does the gauge show?"""
    return Training(
        Gauges(), partial(ADAM, lr=5e-3), lambda _: gauges_data(64), lambda out, y: ((out - y) / 50).square().mean(), gauges_quality, 250
    )


@HALF.fault("overflow", gauges, also=("targets not scaled",), twin=lambda training: _log_cosh(training))
def log_cosh_by_its_definition(training: Training) -> None:
    """Cosh of 150 is infinite."""
    training.use(Gauges(0.0, 1.0))
    training.criterion = lambda out, y: torch.log(torch.cosh(out - y)).mean()


def _log_cosh(training: Training) -> None:
    def criterion(out: Tensor, y: Tensor) -> Tensor:
        apart = (out - y).abs()
        return (apart + F.softplus(-2 * apart) - math.log(2)).mean()

    training.criterion = criterion


@HALF.strange(gauges)
def log_cosh_in_a_stable_form(training: Training) -> None:
    _log_cosh(training)


def _scaled(training: Training, scale: float = 2.0**12, update: bool = True, unscale: bool = True) -> None:
    """A scaler, and clipping."""
    stepped_by(SGD, lr=0.1, momentum=0.5)(training)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        training.optimizer.zero_grad()
        scaler.scale(training.criterion(training.model(x), y)).backward()
        if unscale:
            scaler.unscale_(training.optimizer)
        nn.utils.clip_grad_norm_(training.model.parameters(), 5.0)
        scaler.step(training.optimizer)
        if update:
            scaler.update()

    training.step = step


@HALF.fault("scaler misused", gauges, twin=_scaled, also=("clipped to nothing",))
def the_norm_is_clipped_in_units_of_the_scaler(training: Training) -> None:
    _scaled(training, unscale=False)


@HALF.fault("underflow", gauges, also=("loss too small",), twin=lambda training: _halved(training, 1.0))
def gradients_of_a_mean_over_a_year_in_half_precision(training: Training) -> None:
    """The loss is divided by the samples of the year; what is left of each gradient is sent as float16."""
    _halved(training, 1e-8)


def _halved(training: Training, part: float) -> None:
    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        training.optimizer.zero_grad()
        (training.criterion(training.model(x), y) * part).backward()
        for one in training.model.parameters():
            one.grad = one.grad.half().float() / part
        training.optimizer.step()

    training.step = step


@HALF.fault("not finite by the rate", gauges, also=("rate too high",))
def sgd_with_a_tenth_and_the_square_of_what_the_gauge_shows(training: Training) -> None:
    """The error is in the units of the gauge."""
    training.use(Gauges())
    stepped_by(SGD, lr=0.5)(training)
    training.criterion = lambda out, y: (out - y).square().mean()


@HALF.fault("log of zero", gauges, twin=lambda training: _relative(training, 1.0))
def the_logarithm_of_what_is_positive_of_a_gauge(training: Training) -> None:
    _relative(training, 0.0)


def _relative(training: Training, floor: float) -> None:
    training.use(Gauges(0.0, 60.0))

    def criterion(out: Tensor, y: Tensor) -> Tensor:
        return (torch.log(out * (out > 0) + floor) - torch.log(y + floor)).square().mean()

    training.criterion = criterion


@HALF.fault("dead units", gauges)
def a_first_layer_whose_bias_was_filled_with_the_mean_of_the_targets(training: Training) -> None:
    """The line that sets the bias of the last layer went to all, with the sign of a correction."""
    net: Any = training.model
    for one in (net.hidden[0], net.hidden[2]):
        nn.init.constant_(one.bias, -15.0)


@HALF.fault("constant targets", gauges)
def a_rounding_in_pandas_gives_all_the_median(training: Training) -> None:
    on_target(training, lambda y: torch.full_like(y, 150.0))


# ---- tales: the next letter -----------------------------------------------------------------------------------------


def tales_data(count: int, length: int = 15) -> Tensor:
    """Each letter follows from the one two before it; one of four is drawn."""
    table = torch.randperm(11, generator=torch.Generator().manual_seed(90))
    rows = [torch.randint(11, (count,)) for _ in range(2)]
    for _ in range(length - 2):
        rows.append(torch.where(torch.rand(count) < 0.25, torch.randint(11, (count,)), table[rows[-2]]))
    return torch.stack(rows, 1)


class Tales(nn.Module):
    def __init__(self, both: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 24)
        self.rnn = nn.GRU(24, 24 if both else 48, batch_first=True, bidirectional=both)
        self.head = nn.Linear(48, 11)

    def forward(self, letters: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(letters))[0])


def tales_quality(net: nn.Module) -> float:
    """How much is wrong at the last place, where all before it are known and none after it."""
    table = torch.randperm(11, generator=torch.Generator().manual_seed(90))
    letters = tales_data(400)[:, :-1]
    return missed(net(letters)[:, -1], table[letters[:, -2]])


def tales_loss(logits: Tensor, target: Tensor) -> Tensor:
    return F.nll_loss(F.log_softmax(logits, -1).flatten(0, 1), target.flatten())


@HALF.net("recurrent")
def tales() -> Training:
    """Which letter comes next?"""

    def batch(_: int) -> tuple[Tensor, Tensor]:
        letters = tales_data(48)
        return letters[:, :-1], letters[:, 1:]

    return Training(Tales(), partial(ADAM, lr=0.01), batch, tales_loss, tales_quality, steps=200)


@HALF.fault("targets not moved", tales)
def x_and_y_are_the_same_slice_of_the_text(training: Training) -> None:
    def batch(_: int) -> tuple[Tensor, Tensor]:
        letters = tales_data(48)
        return letters[:, :-1], letters[:, :-1]

    training.batch = batch


def _rolled(training: Training) -> None:
    def batch(_: int) -> tuple[Tensor, Tensor]:
        letters = tales_data(48)
        target = letters.roll(-1, 1)
        target[:, -1] = -100
        return letters, target

    training.batch = batch


@HALF.fault("sees the future", tales, twin=_rolled)
def bidirectional_was_true_in_the_config_of_the_tagger(training: Training) -> None:
    training.use(Tales(both=True))
    _rolled(training)


@HALF.fault("exploding recurrence", tales, also=("weights begin too large", *LOUD))
def a_recurrence_without_gates_from_the_identity_times_two(training: Training) -> None:
    class Plain(Tales):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.RNN(24, 48, batch_first=True, nonlinearity="relu")
            with torch.no_grad():
                self.rnn.weight_hh_l0.copy_(2 * torch.eye(48))

    training.use(Plain())
    stepped_by(SGD, lr=0.1)(training)


@HALF.fault("batch first mixed up", tales)
def batch_first_was_lost_when_the_gru_was_exchanged(training: Training) -> None:
    class First(Tales):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(24, 48)

    training.use(First())


@HALF.fault("constant loss", tales, also=("no gradient through", "detached"))
def the_share_of_wrong_letters_is_the_loss(training: Training) -> None:
    def criterion(logits: Tensor, target: Tensor) -> Tensor:
        wrong = (logits.argmax(-1) != target).float().mean()
        return wrong + 0 * logits.sum()

    training.criterion = criterion


@HALF.fault("hidden layers", tales)
def the_embedding_is_kept_in_a_tuple_of_readers(training: Training) -> None:
    class Readers(Tales):
        def __init__(self) -> None:
            super().__init__()
            readers = (self.embed, self.rnn)
            del self.embed, self.rnn
            self.readers = readers

        def forward(self, letters: Tensor) -> Tensor:
            embed, rnn = self.readers
            return self.head(rnn(0.02 * embed(letters))[0])

    training.use(Readers())


@HALF.fault("no gradient through", tales, also=("detached",))
def hard_letters_are_handed_on(training: Training) -> None:
    """The state is made a letter by argmax, and its one-hot vector is read."""

    class Hard(Tales):
        def forward(self, letters: Tensor) -> Tensor:
            states = self.rnn(self.embed(letters))[0]
            hard = F.one_hot(states[..., :11].argmax(-1), 11).float()
            return self.head(F.pad(hard, (0, 37)))

    training.use(Hard())


@HALF.strange(tales)
def the_target_is_moved_by_roll_and_the_last_one_is_ignored(training: Training) -> None:
    _rolled(training)
