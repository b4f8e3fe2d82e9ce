"""What a model reads of its sequences and samples: padding in a mean, a state after the padding, one sample for all, one place for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.running import place_graph
from modlab.running.autograd_nodes import walk
from modlab.watching.module_clues import filling
from modlab.watching.pairs import Pairs

Batch = Callable[[], tuple[Any, Tensor]]


def told(net: nn.Module, batch: Batch, criterion: Any = F.cross_entropy, steps: int = 60) -> list[str]:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    with modlab.watch(net, optimizer) as w:
        for _ in range(steps):
            inputs, target = batch()
            optimizer.zero_grad()
            criterion(net(inputs), target).backward()
            optimizer.step()
    return [one.kind for one in w.findings if "tier" in one.facts]


def topics(places: int, front: bool) -> Batch:
    """Words of one of four topics, and 60 is nothing."""

    def batch() -> tuple[Tensor, Tensor]:
        topic = torch.randint(4, (48,))
        words = topic[:, None] * 15 + torch.randint(15, (48, 8))
        return F.pad(words, (places, 0) if front else (0, places), value=60), topic

    return batch


class Bag(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(61, 8, padding_idx=60) if how == "declared" else nn.EmbeddingBag(61, 8) if how == "bag" else None
        self.words, self.head, self.how = nn.Embedding(61, 8), nn.Linear(8, 4), how
        nn.init.normal_(self.words.weight, std=0.3)

    def forward(self, words: Tensor) -> Tensor:
        if self.bag is not None:
            return self.head(self.bag(words))
        h, real = self.words(words), (words != 60).unsqueeze(2)
        if self.how == "masked":
            return self.head((h * real).sum(1) / real.sum(1))
        return self.head(h.transpose(1, 2).mean(-1) if self.how == "turned" else h.mean(1))


@pytest.mark.parametrize("front", [True, False])
@pytest.mark.parametrize(("how", "counts"), [("bag", True), ("mean", True), ("turned", True), ("declared", False), ("masked", False)])
def test_a_mean_over_padding(how, front, counts):
    torch.manual_seed(0)
    assert ("padding counts" in told(Bag(how), topics(2000, front), steps=40)) is counts


def test_a_mean_over_some_padding_by_which_nothing_is_lost():
    torch.manual_seed(0)
    assert "padding counts" not in told(Bag("mean"), topics(40, False), steps=200)


class Reader(nn.Module):
    """A layer that reads words, its last state, or what it gave at the last word."""

    def __init__(self, layer: type[nn.Module], how: str) -> None:
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(61, 8), layer(8, 12, batch_first=how != "time first"), nn.Linear(12, 4)
        self.how = how

    def forward(self, words: Tensor) -> Tensor:
        h = self.words(words)
        if self.how == "time first":
            return self.head(self.rnn(h.transpose(0, 1))[0][-1])
        series, state = self.rnn(h)
        if self.how == "state":
            return self.head((state[0] if isinstance(state, tuple) else state)[-1])
        last = (words != 60).sum(1) - 1
        return self.head(series[torch.arange(len(words)), last] if self.how == "word" else series[:, -1])


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM, nn.RNN])
@pytest.mark.parametrize("how", ["last", "state", "time first"])
def test_a_state_that_is_read_after_the_padding(layer, how):
    torch.manual_seed(0)
    kinds = told(Reader(layer, how), topics(150, False))
    assert kinds[:1] == ["padding counts"] and "vanishing gradient" not in kinds


@pytest.mark.parametrize(
    ("how", "places", "front", "shuffled"), [("word", 150, False, True), ("last", 150, True, True), ("last", 4, False, False)]
)
def test_a_state_that_is_read_where_the_words_are(how, places, front, shuffled):
    torch.manual_seed(0)
    batch = topics(places, front)
    some = (lambda: (batch()[0], torch.randint(4, (48,)))) if shuffled else batch
    assert "padding counts" not in told(Reader(nn.GRU, how), some)


@pytest.mark.parametrize(
    ("write", "last", "mean"),
    [
        (lambda h: h[:, -1], True, False),
        (lambda h: h[:, 5, :].relu(), True, False),
        (lambda h: h[:, 4], False, False),
        (lambda h: h[:, -1] + h[:, 0], False, False),
        (lambda h: h.mean(1), False, True),
        (lambda h: h.mean(2), False, False),
        (lambda h: h.mT.mean(-1), False, True),
        (lambda h: h.mean(1) + h[:, -1], False, False),
    ],
)
def test_which_places_are_taken(write, last, mean):
    h = torch.randn(3, 6, 4, requires_grad=True).tanh()
    takers = place_graph.Takers(walk(write(h).sum().grad_fn, {}))
    assert (takers.take_last(h.grad_fn, 6), takers.average(h.grad_fn, 6)) == (last, mean)


@pytest.mark.parametrize("back", [True, False])
def test_what_fills_rows_up(back):
    rows = torch.tensor([[1, 2, 1, 0, 0, 0], [1, 0, 1, 1, 1, 0]])
    found = filling(rows.flip(1) if back else rows)
    assert (found["filler"], found["share"], found["others"], found["most"]) == (0, 4 / 12, 8, 1)
    assert found["rest"] == 6 / 8


class Net(nn.Module):
    def __init__(self, write: Any) -> None:
        super().__init__()
        self.first, self.second, self.write = nn.Linear(6, 16), nn.Linear(16, 1), write

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.write(self.first(x)))


def numbers() -> tuple[Tensor, Tensor]:
    x = torch.randn(32, 6)
    return x, x[:, :1] - x[:, 1:2]


def _into(h: Tensor) -> Tensor:
    h = 2 * h
    h[:] = h[0].clone()
    return h


@pytest.mark.parametrize(
    ("write", "same"),
    [
        (_into, True),
        (lambda h: h.mean(0, keepdim=True).expand(len(h), -1), True),
        (lambda h: h.relu()[torch.zeros(len(h), dtype=torch.long)], True),
        (lambda h: h.tanh() + h.mean(0), False),
        (lambda h: (h * 0).exp(), False),
        (lambda h: h.abs().add(50).sigmoid(), False),
    ],
)
def test_one_sample_for_all(write, same):
    torch.manual_seed(0)
    assert ("overwritten activation" in told(Net(write), numbers, F.mse_loss)) is same


def test_an_answer_for_all_that_is_asked_for_once():
    """A set has one answer, which is given to each of its members."""
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randn(32, 6) + torch.randn(1, 6)
        return x, x.mean(0, keepdim=True)[:, :1].expand(32, 1)

    assert "overwritten activation" not in told(Net(lambda h: h.mean(0, keepdim=True).expand(len(h), -1)), batch, F.mse_loss, 200)


class Reviews(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(61, 8, padding_idx=60), nn.GRU(8, 12, batch_first=True), nn.Linear(12, 4)

    def forward(self, words: Tensor) -> Tensor:
        series, _ = self.rnn(self.words(words))
        return self.head(series[torch.arange(len(words)), (words != 60).sum(1) - 1])


@pytest.mark.parametrize("known", [True, False])
def test_words_that_are_unknown_beside_padding(known):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        words = torch.randint(59, (48, 20)) if known else torch.full((48, 20), 59)
        return words.masked_fill(torch.arange(20) >= torch.randint(3, 9, (48, 1)), 60), torch.randint(4, (48,))

    assert told(Reviews(), batch)[:1] == (["targets shuffled"] if known else ["tokens unknown"])


class Attends(nn.Module):
    def __init__(self, places: Any) -> None:
        super().__init__()
        self.words, self.where, self.places = nn.Embedding(9, 16), nn.Parameter(torch.randn(8, 16) * 0.3), places
        self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 2)

    def forward(self, words: Tensor) -> Tensor:
        h = self.words(words) + self.places(self.where)
        return self.head(self.attention(h, h, h)[0].mean(1))


@pytest.mark.parametrize(
    ("places", "blind"),
    [
        (lambda where: where[:1], True),
        (lambda where: where[torch.zeros(8, dtype=torch.long)], True),
        (lambda where: F.embedding(torch.full((8,), 3), where), True),
        (lambda where: where, False),
        (lambda where: where[torch.arange(8) // 4], False),
    ],
)
def test_a_table_of_places_that_is_asked_for_one(places, blind):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        words = torch.randint(9, (48, 8))
        return words, (words[:, 0] > words[:, 1]).long()

    assert ("no positions" in told(Attends(places), batch)) is blind


class Mean(nn.Module):
    """A mean of words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(42, 16), nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.words(words).mean(1))


@pytest.mark.parametrize("found", ["the first of each row", "some anywhere", "all"])
def test_a_frequent_word_that_stands_between_others_is_no_padding(found):
    torch.manual_seed(0)
    counts = torch.randint(5, (42,)) - 2

    def batch() -> tuple[Tensor, Tensor]:
        words = torch.randint(2, 42, (32, 10))
        known = (
            torch.arange(10) < 1 if found == "the first of each row" else torch.rand(32, 10) < (0.08 if found == "some anywhere" else 2.0)
        )
        return torch.where(known, words, 1), (counts[words].sum(1) > 0).long()

    named = told(Mean(), batch, steps=200)
    assert named[:1] == ([] if found == "all" else ["tokens unknown"])
    assert found != "some anywhere" or "padding counts" not in named


class Tagger(nn.Module):
    """An answer for each word, read from both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(60, 16), nn.LSTM(16, 16, batch_first=True, bidirectional=True), nn.Linear(32, 3)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.rnn(self.words(words))[0])


@pytest.mark.parametrize("left_out", [True, False])
def test_padding_that_the_loss_leaves_out_is_no_word(left_out):
    torch.manual_seed(0)
    tags = torch.randint(1, 3, (60,))
    tags[0] = 0

    def batch() -> tuple[Tensor, Tensor]:
        words = torch.randint(1, 60, (32, 60)).masked_fill(torch.arange(60) >= torch.randint(1, 5, (32, 1)), 0)
        return words, tags[words]

    net = Tagger()
    optimizer = torch.optim.SGD(net.parameters(), 0.3)
    with modlab.watch(net, optimizer) as w:
        for _ in range(100):
            words, tag = batch()
            optimizer.zero_grad()
            F.cross_entropy(net(words).flatten(0, 1), tag.flatten(), ignore_index=0 if left_out else -100).backward()
            optimizer.step()
    assert [one.kind for one in w.findings if "tier" in one.facts] == ([] if left_out else ["padding counts"])
    checked = [one for one in w.diagnose().experiments if one.name == "padding"]
    assert [one.outcome for one in checked] == ["passed" if left_out else "failed"]


class Numbers(nn.Module):
    """A number for each place of a series, or for all of it."""

    def __init__(self, norm: nn.Module | None = None, *, last: bool = False) -> None:
        super().__init__()
        self.norm, self.rnn, self.head, self.last = norm or nn.Identity(), nn.GRU(1, 24, batch_first=True), nn.Linear(24, 1), last

    def forward(self, series: Tensor) -> Tensor:
        h = self.rnn(self.norm(series))[0]
        return self.head(h[:, -1] if self.last else h)[..., 0]


@pytest.mark.parametrize("each", [True, False])
def test_a_norm_of_each_number_by_itself_is_no_padding(each):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        waves = torch.sin((0.2 + 0.5 * torch.rand(32, 1)) * torch.arange(21.0) + 6 * torch.rand(32, 1)) + 0.05 * torch.randn(32, 21)
        return waves[:, :20, None], waves[:, 20]

    named = told(Numbers(nn.LayerNorm(1) if each else None, last=True), batch, F.mse_loss, 100)
    assert named == (["overwritten activation"] if each else [])


@pytest.mark.parametrize("how", ["all", "masked", "one length", "short of half"])
def test_an_error_over_the_zeros_that_fill_up_series(how):
    torch.manual_seed(0)
    real = torch.zeros(0)

    def batch() -> tuple[Tensor, Tensor]:
        nonlocal real
        lengths = torch.full((32, 1), 7) if how == "one length" else torch.randint(2, 8, (32, 1)) + 40 * (how == "short of half")
        real = torch.arange(60) < lengths
        x = torch.randn(32, 60, 1) * real[..., None]
        return x, (x[..., 0].abs() + 2) * real

    def error(output: Tensor, target: Tensor) -> Tensor:
        squares = (output - target) ** 2
        return (squares * real).sum() / real.sum() if how == "masked" else squares.mean()

    assert ("padding counts" in told(Numbers(), batch, error, 60)) is (how == "all")


class Sum(nn.Module):
    def __init__(self, padding: int) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(20, 8, mode="sum", padding_idx=padding), nn.Linear(8, 1)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.bag(words))[:, 0]


@pytest.mark.parametrize(
    ("padding", "asked", "named"),
    [(5, "it", ["padding idx of a token"]), (0, "it", []), (5, "others", [])],
    ids=["token", "none", "dropped"],
)
def test_the_padding_of_a_bag_that_is_a_word(padding, asked, named):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        words = torch.where(torch.rand(64, 15) < 0.25, 5, torch.randint(1, 20, (64, 15)))
        one = 5 if asked == "it" else 7
        return words, ((words == one).sum(1) > (4 if asked == "it" else 0)).float()

    assert told(Sum(padding), batch, F.binary_cross_entropy_with_logits, 150) == named


class Filler(nn.Module):
    """Fills in words that are hidden."""

    def __init__(self, *, hides: bool = False) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(21, 16), nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.head, self.hides, self.places = nn.Linear(16, 20), hides, nn.Parameter(torch.randn(12, 16))

    def forward(self, words: Tensor) -> Tensor:
        words = words.masked_fill(torch.rand(words.shape) < 0.3, 20) if self.hides else words
        return self.head(self.layer(self.words(words) + self.places))


@pytest.mark.parametrize("how", ["open", "hidden", "as in BERT", "hidden inside", "spelling", "other numbers", "only padding is left out"])
def test_words_that_should_be_filled_in(how):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        words = (torch.arange(12) + torch.randint(20, (32, 1))) % 20
        asked, draw = torch.rand(32, 12) < 0.2, torch.rand(32, 12)
        if how == "only padding is left out":
            asked = torch.arange(12) < torch.randint(4, 12, (32, 1))
            return words.masked_fill(~asked, 20), words.masked_fill(~asked, -100)
        given = words
        if how == "hidden":
            given = words.masked_fill(asked, 20)
        elif how == "as in BERT":
            given = torch.where(asked & (draw < 0.8), 20, torch.where(asked & (draw < 0.9), torch.randint(20, (32, 12)), words))
        elif how == "spelling":
            given = torch.where(draw < 0.15, torch.randint(20, (32, 12)), words)
        target = (words + 7) % 20 if how == "other numbers" else words
        return given, target.masked_fill(~asked, -100)

    named = told(
        Filler(hides=how == "hidden inside"), batch, lambda output, target: F.cross_entropy(output.flatten(0, 1), target.flatten())
    )
    assert ("targets not moved" in named) is (how == "open")


@pytest.mark.parametrize("by", [0, 1, -1, 3, -3])
@pytest.mark.parametrize("words", [True, False])
def test_targets_that_belong_to_another_place(by, words):
    torch.manual_seed(0)
    tags = torch.randint(3, (40,))
    net = nn.Sequential(nn.Embedding(40, 16) if words else nn.Linear(2, 48), nn.ReLU(), nn.Linear(16 if words else 48, 3 if words else 1))

    def batch() -> tuple[Tensor, Tensor]:
        x = torch.randint(40, (32, 12)) if words else torch.randn(32, 12, 2)
        return x, (tags[x] if words else x[..., 0] * x[..., 1] + 0.5 * x[..., 0]).roll(-by, 1)

    def error(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), target.flatten()) if words else F.mse_loss(output[..., 0], target)

    assert told(net, batch, error, 100) == (["targets shifted"] if by else [])


@pytest.mark.parametrize("how", ["the next number", "what came before", "the next word"])
def test_other_places_that_should_be_found(how):
    """And nothing is learned of them, in so few steps that go nowhere far."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20)) if how == "the next word" else Numbers()

    def batch() -> tuple[Tensor, Tensor]:
        if how == "the next word":
            words = torch.randint(20, (32, 13))
            return words[:, :-1], words[:, 1:]
        x = torch.randn(32, 12, 1)
        return x, x[..., 0].roll(-1 if how == "the next number" else 3, 1).abs()

    def error(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.flatten(0, 1), target.flatten()) if how == "the next word" else F.mse_loss(output, target)

    assert "targets shifted" not in told(net, batch, error, 60)


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("error", [F.cross_entropy, F.mse_loss])
def test_targets_of_the_batch_before(error, late):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer, centres, before = torch.optim.Adam(net.parameters(), 3e-3), 2 * torch.randn(4, 10), None
    with modlab.watch(net, optimizer) as w:
        for _ in range(150):
            y = torch.randint(0, 4, (32,))
            given, before = (before if late and before is not None else y), y
            x = centres[y] + torch.randn(32, 10)
            optimizer.zero_grad()
            error(net(x), given if error is F.cross_entropy else F.one_hot(given, 4).float()).backward()
            optimizer.step()
    found = [one for one in w.findings if one.severity == "broken"]
    assert [one.kind for one in found] == ["targets shifted"] * late
    assert not late or "each batch has the targets of the one before" in found[0].text
    after = [one.kind for one in w.diagnose().experiments if one.name == "targets"]
    assert after == (["targets of a watch"] if late else ["targets fit"]), "one batch alone shows nothing of it"


@pytest.mark.parametrize("tails", [True, False])
def test_a_few_targets_that_are_far_off_do_not_hide_what_a_line_tells(tails):
    torch.manual_seed(0)
    x = torch.randn(400, 6)
    y = x[:, :1] - x[:, 1:2] + torch.distributions.StudentT(1.5 if tails else 8.0).sample((400, 1))
    pairs = Pairs()
    for some in torch.arange(400).split(40):
        pairs.add(x[some], y[some])
    assert pairs.relations().together > (0.2 if tails else 0.5)


class WordTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(61, 8), nn.GRU(8, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.rnn(self.words(words))[0])


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("counts", ["words", "filling", "blanks", "both"])
def test_a_loss_that_counts_where_sequences_are_filled_up(counts: str, flat: bool) -> None:
    """Blanks that wait for answers fill sequences up as well; what ends them may be asked for beside the rest."""
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        words, lengths = torch.randint(60, (32, 14)), torch.randint(3, 14, (32, 1))
        words = torch.where(torch.arange(14) < lengths, words, 60)
        return words, (words + words.roll(1, 1) + (words[:, :1] if counts == "blanks" else 0) * (words == 60)) % 4

    net, words = WordTagger(), torch.zeros(0)
    real = {"words": 1.0, "both": 1.0}.get(counts, 0.0)

    def criterion(scores: Tensor, tags: Tensor) -> Tensor:
        if flat:
            lost = F.cross_entropy(scores.flatten(0, 1), tags.flatten(), reduction="none").view(tags.shape)
        else:
            lost = F.cross_entropy(scores.transpose(1, 2), tags, reduction="none")
        here, filling = (words != 60).float(), (words == 60).float()
        mask = here if real else filling
        loss = (lost * mask).sum() / mask.sum()
        return loss + 0.1 * (lost * filling).sum() / filling.sum() if counts == "both" else loss

    def remembered() -> tuple[Tensor, Tensor]:
        nonlocal words
        words, tags = batch()
        return words, tags

    assert ("mask turned around" in told(net, remembered, criterion)) is (counts == "filling")


def tagged(rule: str) -> Batch:
    """Words of 16 kinds, each with a tag: by what it was before some were replaced, by itself and the one before, by one far away."""

    def batch() -> tuple[Tensor, Tensor]:
        words = torch.randint(16, (40, 14))
        if rule == "pair":
            return words, (words + words.roll(1, 1)) % 4
        tags = words.roll(9, 1) % 4 if rule == "far" else words[:, :1].expand(-1, 14) % 4 if rule == "first" else words % 4
        return words if rule in ("far", "first") else torch.where(
            torch.rand(40, 14) < float(rule), torch.randint(16, (40, 14)), words
        ), tags

    return batch


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("rule", ["0.98", "0.05", "pair", "far", "first"])
def test_tokens_of_which_nothing_tells_their_targets(rule: str, learns: bool) -> None:
    torch.manual_seed(0)
    rate = 1.0 if learns else 0.05  # of the outputs: what they are multiplied by
    named = told(WordTagger(), tagged(rule), lambda scores, tags: F.cross_entropy(rate * scores.flatten(0, 1), tags.flatten()), 150)
    assert ("targets shuffled" in named) is (rule == "0.98")


class TimeFirst(nn.Module):
    """A language model whose sequences stand upright, and that gives its state, too."""

    def __init__(self, *, both: bool) -> None:
        super().__init__()
        self.words, self.rnn, self.head = nn.Embedding(12, 16), nn.LSTM(16, 16, bidirectional=both), nn.Linear(32 if both else 16, 12)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.rnn(self.words(words))[0]).flatten(0, 1)


@pytest.mark.parametrize("asks", ["next", "its own tag"])
@pytest.mark.parametrize("both", [True, False])
def test_what_comes_next_in_upright_sequences_is_seen_from_both_sides(asks: str, both: bool) -> None:
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        words = torch.randint(12, (15, 20))
        return words[:-1], (words[1:] if asks == "next" else (words[:-1] * 5) % 12).flatten()

    assert ("sees the future" in told(TimeFirst(both=both), batch)) is (both and asks == "next")


class Bell(nn.Module):
    """A bell curve for each place of a series: its middle, and how wide it is."""

    def __init__(self, *, shifts: bool) -> None:
        super().__init__()
        self.rnn, self.middle, self.width, self.shifts = nn.GRU(3, 16, batch_first=True), nn.Linear(16, 1), nn.Linear(16, 1), shifts

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        h, _ = self.rnn(F.pad(series, (0, 0, 1, 0))[:, :-1] if self.shifts else series)
        return self.middle(h)[..., 0], F.softplus(self.width(h))[..., 0] + 1e-3


BELLS = {
    "normal": lambda mu, width, y: -torch.distributions.Normal(mu, width).log_prob(y).mean(),
    "variance": lambda mu, width, y: nn.GaussianNLLLoss()(mu, y, width),
    "by hand": lambda mu, width, y: (0.5 * (y - mu) ** 2 / width**2 + width.log()).sum(),
    "rows": lambda mu, width, y: -torch.distributions.Normal(mu.reshape(-1), width.reshape(-1)).log_prob(y.reshape(-1)).mean(),
}


@pytest.mark.parametrize("holds", ["itself", "the one before", "itself, and shifts", "once"])
@pytest.mark.parametrize("how", BELLS)
def test_a_series_that_holds_what_is_asked_for_in_the_same_place(how: str, holds: str) -> None:
    torch.manual_seed(0)
    looks = 0

    def batch() -> tuple[Tensor, Tensor]:
        nonlocal looks
        looks += 1
        y = torch.sin(0.5 * torch.arange(21.0) + 6 * torch.rand(16, 1)) + 0.5 * torch.randn(16, 21)
        lag = y[:, :-1] if holds == "the one before" or (holds == "once" and looks > 2) else y[:, 1:]
        return torch.cat([lag[..., None], torch.randn(16, 20, 2)], -1), y[:, 1:]

    named = told(Bell(shifts=holds == "itself, and shifts"), batch, lambda output, y: BELLS[how](*output, y))
    assert named == (["leak"] if holds == "itself" else [])
