"""Everyday trainings: a model that gives its loss as those of transformers do, a table, letters, words, labels, a policy, a pupil."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import weights
from bench.sick.training import Batch, Training
from bench.sick.working.eighth_healthy import of_a_notebook
from bench.sick.working.fourth_nets import constant
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import ADAM, ADAMW, missed

# ---- opinions: labels and a mask go into the model, which gives its loss ---------------------------------


@dataclass
class Output:
    """As of transformers."""

    loss: Tensor | None = None
    logits: Tensor | None = None


class Opinion(nn.Module):
    """A small encoder, the first place of which says what is thought."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(40, 32, padding_idx=0), nn.Embedding(14, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True, norm_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(32, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Output:
        x = self.word(input_ids) + self.place(torch.arange(input_ids.size(1)))
        x = self.encoder(x, src_key_padding_mask=None if attention_mask is None else attention_mask == 0)
        logits = self.classifier(x[:, 0])
        return Output(None if labels is None else F.cross_entropy(logits.view(-1, 2), labels.view(-1)), logits)


def opinions_data(count: int) -> dict[str, Tensor]:
    real = torch.arange(14) < torch.randint(3, 14, (count, 1))
    ids = torch.randint(4, 40, (count, 14))
    good = (constant(40, seed=1001)[ids] * real).sum(1) + 3 * (ids[:, 1] % 2 * 2 - 1) > 0
    return {"input_ids": ids * real, "attention_mask": real.long(), "labels": good.long()}


@HALF.net("transformer")
def opinions() -> Training:
    """A batch is a dict of all that the model takes, and its loss is an attribute of what it gives."""

    def step(training: Training, number: int) -> None:
        inputs, _ = training.batch(number)
        loss = training.model(**inputs).loss
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        inputs = opinions_data(400)
        label = inputs.pop("labels")
        return missed(net(**inputs).logits, label)

    def batch(_: int) -> Batch:
        inputs = opinions_data(32)
        return inputs, inputs["labels"]

    return Training(Opinion(), partial(ADAMW, lr=2e-3), batch, lambda output, _: output.loss, quality, steps=230, step=step)


@HALF.fault("rate too high", opinions, also=("not finite by the rate",))
def a_rate_of_a_tenth_for_an_encoder(training: Training) -> None:
    training.optimizer = ADAMW(training.model.parameters(), lr=0.1)


# ---- voyagers: a table with columns of names -------------------------------------------------------------

NAMES = (("First", "Second", "Third"), ("C", "Q", "S"), ("Male", "Female"))


class Voyagers(nn.Module):
    """A vector for each name, beside two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(len(names) + 1, 3) for names in NAMES])
        self.layers = nn.Sequential(nn.Linear(11, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, numbers: Tensor, names: Tensor) -> Tensor:
        told = [table(names[:, at]) for at, table in enumerate(self.tables)]
        return torch.sigmoid(self.layers(torch.cat([*told, numbers], 1)))


def voyagers_data(count: int, lower: bool = False) -> Batch:
    """Which class, which port, man or woman; age and fare; and whether one was saved."""
    which = torch.stack([torch.randint(len(names), (count,)) for names in NAMES], 1)
    numbers = torch.randn(count, 2)
    score = 3 * which[:, 2] - 1.3 * which[:, 0] - 0.6 * numbers[:, 0] + 0.5 * (which[:, 1] == 0) - 0.2
    known = [{(name.lower() if lower else name): at + 1 for at, name in enumerate(names)} for names in NAMES]
    rows = [[known[at].get(NAMES[at][one], 0) for at, one in enumerate(row)] for row in which.tolist()]
    return (numbers, torch.tensor(rows)), (torch.sigmoid(1.5 * score) > torch.rand(count)).float()


@HALF.net("mlp")
def voyagers() -> Training:
    """Who is saved?"""

    def loop(training: Training) -> None:
        (numbers, names), saved = training.batch(0)
        for _ in range(14):
            training.model.train()
            for rows in torch.randperm(len(saved)).split(64):
                training.optimizer.zero_grad()
                training.criterion(training.model(numbers[rows], names[rows]), saved[rows]).backward()
                training.optimizer.step()
            training.model.eval()

    def quality(net: nn.Module) -> float:
        inputs, saved = voyagers_data(600)
        return F.mse_loss(net(*inputs).squeeze(1), saved).item() - 0.07

    data = voyagers_data(800)
    return Training(
        Voyagers(),
        partial(ADAM, lr=5e-3),
        lambda _: data,
        lambda output, saved: F.binary_cross_entropy(output.squeeze(1), saved),
        quality,
        **of_a_notebook(loop),
    )


@HALF.fault("tokens unknown", voyagers, also=("constant inputs",))
def names_are_looked_up_in_small_letters(training: Training) -> None:
    data = voyagers_data(800, lower=True)
    training.batch = lambda _: data


# ---- verses: one long text, whose state is carried and detached -------------------------------------------


def verses_text(length: int, rows: int) -> Tensor:
    """The next letter follows from the last two, nine times in ten."""
    follows = torch.stack([torch.randperm(18, generator=torch.Generator().manual_seed(1002 + one)) for one in range(3)])
    text = [torch.randint(18, (rows,)), torch.randint(18, (rows,))]
    for _ in range(length):
        text.append(torch.where(torch.rand(rows) < 0.1, torch.randint(18, (rows,)), follows[text[-2] % 3, text[-1]]))
    return torch.stack(text, 1)


class Verses(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.letters, self.layer, self.out = nn.Embedding(18, 24), layer, nn.Linear(64, 18)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        output, state = self.layer(self.letters(x), state)
        return self.out(output), state


def verses_loop(ahead: int = 1) -> Any:
    def loop(training: Training) -> None:
        text, state = verses_text(1500, 16), None
        for begin in [*range(0, 1450, 25)] * 3:
            x, y = text[:, begin : begin + 25], text[:, begin + ahead : begin + 25 + ahead]
            if state is not None:
                state = tuple(one.detach() for one in state) if isinstance(state, tuple) else state.detach()
            output, state = training.model(x, state)
            loss = F.cross_entropy(output.transpose(1, 2), y)
            training.optimizer.zero_grad()
            loss.backward()
            training.optimizer.step()

    return loop


@HALF.net("recurrent")
def verses() -> Training:
    """The next letter."""

    def quality(net: nn.Module) -> float:
        text = verses_text(60, 30)
        return F.cross_entropy(net(text[:, :-1])[0].transpose(1, 2), text[:, 1:]).item() - 0.45

    text = verses_text(30, 16)
    return Training(
        Verses(nn.LSTM(24, 64, batch_first=True)),
        partial(ADAM, lr=4e-3),
        lambda _: (text[:, :25], text[:, 1:26]),
        lambda output, y: F.cross_entropy(output[0].transpose(1, 2), y),
        quality,
        **of_a_notebook(verses_loop()),
    )


@HALF.fault("targets shifted", verses)
def the_letter_after_the_next(training: Training) -> None:
    vars(training).update(of_a_notebook(verses_loop(ahead=2)))


@HALF.fault("exploding recurrence", verses, also=("weights begin too large",))
def a_state_that_doubles_with_relu(training: Training) -> None:
    layer = nn.RNN(24, 64, nonlinearity="relu", batch_first=True)
    nn.init.orthogonal_(layer.weight_hh_l0, 2.0)
    training.use(Verses(layer))


# ---- words and their neighbours ----------------------------------------------------------------------------


class Skipgram(nn.Module):
    """Gives its loss: a neighbour, and five words that are none."""

    def __init__(self, sign: int = -1) -> None:
        super().__init__()
        self.word, self.context, self.sign = nn.Embedding(60, 12), nn.Embedding(60, 12), sign
        nn.init.uniform_(self.word.weight, -0.04, 0.04)
        nn.init.zeros_(self.context.weight)

    def forward(self, word: Tensor, context: Tensor, others: Tensor) -> Tensor:
        at = self.word(word)
        near = (at * self.context(context)).sum(1)
        far = torch.bmm(self.context(others), at.unsqueeze(2)).squeeze(2)
        return -(F.logsigmoid(near) + F.logsigmoid(self.sign * far if self.sign < 0 else far).sum(1)).mean()


@HALF.net("embedding")
def skipgram() -> Training:
    """Sixty words of six kinds; neighbours are mostly of one kind."""
    kind = torch.arange(60) % 6

    def batch(_: int) -> Batch:
        word = torch.randint(60, (256,))
        near = torch.randint(10, (256,)) * 6 + kind[word]
        context = torch.where(torch.rand(256) < 0.15, torch.randint(60, (256,)), near)
        return (word, context, torch.randint(60, (256, 5))), torch.zeros(256)

    def quality(net: nn.Module) -> float:
        at = F.normalize(net.word.weight + 1e-9, dim=1)
        like, same = at @ at.T, kind.unsqueeze(0) == kind.unsqueeze(1)
        return 1 - (like[same & ~torch.eye(60, dtype=torch.bool)].mean() - like[~same].mean()).item()

    return Training(Skipgram(), partial(ADAM, lr=0.02), batch, lambda output, _: output, quality, steps=250)


@HALF.fault("wrong negatives", skipgram, also=("wrong sign", "collapse"))
def what_is_no_neighbour_is_drawn_near_too(training: Training) -> None:
    training.use(Skipgram(sign=1))


@HALF.fault("all weights equal", skipgram, also=("weights begin too small",))
def both_tables_of_words_are_zeroed(training: Training) -> None:
    for one in weights(training):
        nn.init.zeros_(one)


# ---- plays, a choice, and a student ------------------------------------------------------------------------


@HALF.net("mlp")
def plays() -> Training:
    """Several rare labels each, and how many there are without it for one that has it."""
    mix = constant(20, 8, seed=1003)

    def batch(count: int) -> Batch:
        x = torch.randn(count, 20)
        return x, (x @ mix / 4.5 > 1.3).float()

    def quality(net: nn.Module) -> float:
        x, y = batch(1500)
        said = (net(x) > 0).float()
        return (1 - 2 * (said * y).sum() / (said.sum() + y.sum() + 1e-6)).item()

    share = batch(4000)[1].mean(0)
    training = Training(
        nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 8)),
        partial(ADAM, lr=3e-3),
        lambda _: batch(64),
        nn.BCEWithLogitsLoss(pos_weight=(1 - share) / share),
        quality,
        steps=300,
    )
    return training


@HALF.fault("weights of classes", plays, also=("imbalance",))
def each_label_has_a_weight_that_is_turned_around(training: Training) -> None:
    share = torch.cat([training.batch(0)[1] for _ in range(60)]).mean(0)
    training.criterion = nn.BCEWithLogitsLoss(pos_weight=share / (1 - share))


@HALF.net("mlp")
def one_of_four_arms() -> Training:
    """A policy's gradient, with a running average of what is earned."""
    best = constant(6, 4, seed=1004)

    def earned(training: Training) -> Tensor:
        x = torch.randn(64, 6)
        policy = torch.distributions.Categorical(logits=training.model(x))
        arm = policy.sample()
        reward = (arm == (x @ best).argmax(1)).float()
        vars(training)["usual"] = 0.9 * vars(training).get("usual", 0.25) + 0.1 * reward.mean().item()
        return (policy.log_prob(arm) * (vars(training)["usual"] - reward)).mean()

    def step(training: Training, _: int) -> None:
        loss = earned(training)
        if vars(training).get("clears", True):
            training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()

    def quality(net: nn.Module) -> float:
        x = torch.randn(800, 6)
        return missed(net(x), (x @ best).argmax(1))

    return Training(
        nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4)),
        partial(torch.optim.SGD, lr=0.5),
        lambda _: (torch.randn(64, 6), torch.randint(4, (64,))),
        F.cross_entropy,
        quality,
        steps=500,
        step=step,
    )


@HALF.fault("no zero grad", one_of_four_arms)
def the_gradients_of_a_policy_are_never_cleared(training: Training) -> None:
    vars(training)["clears"] = False


@HALF.net("mlp")
def pupil() -> Training:
    """Learns the soft answers of a teacher."""
    means = constant(6, 16, seed=1005)
    teacher = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 6))

    def batch(count: int) -> Batch:
        label = torch.randint(6, (count,))
        return means[label] + 1.2 * torch.randn(count, 16), label

    optimizer = ADAM(teacher.parameters(), lr=3e-3)
    for _ in range(80):
        x, label = batch(64)
        optimizer.zero_grad()
        F.cross_entropy(teacher(x), label).backward()
        optimizer.step()

    def soft(_: int) -> Batch:
        x, _ = batch(64)
        with torch.no_grad():
            return x, F.softmax(teacher(x) / 3, 1)

    def quality(net: nn.Module) -> float:
        return missed(net((pair := batch(400))[0]), pair[1])

    return Training(
        nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 6)),
        partial(ADAM, lr=5e-3),
        soft,
        lambda output, said: 9 * F.kl_div(F.log_softmax(output / 3, 1), said, reduction="batchmean"),
        quality,
        steps=250,
    )


@HALF.fault("no log", pupil, also=("log of zero",))
def the_arguments_of_kl_div_are_exchanged(training: Training) -> None:
    training.criterion = lambda output, said: 9 * F.kl_div(said, F.log_softmax(output / 3, 1), reduction="batchmean")


# ---- a body that is frozen for one epoch --------------------------------------------------------------------


class Tuned(nn.Module):
    def __init__(self, shut: bool = False) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(24, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 6), nn.Tanh())
        self.head, self.shut = nn.Linear(6, 6), shut

    def forward(self, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.shut):
            features = self.features(x)
        return self.head(features)


def tuned_loop(training: Training) -> None:
    """A validation after each epoch, and nobody trains on afterwards."""
    x, y = training.batch(0)
    for epoch in range(10):
        for parameter in training.model.features.parameters():
            parameter.requires_grad_(epoch > 0)
        training.model.train()
        for rows in torch.randperm(len(y)).split(32):
            training.optimizer.zero_grad()
            training.criterion(training.model(x[rows]), y[rows]).backward()
            training.optimizer.step()
        training.model.eval()
        with torch.no_grad():
            missed(training.model(x[:100]), y[:100])


@HALF.net("mlp")
def tuned() -> Training:
    """The head first, then all."""
    means = 0.7 * constant(6, 24, seed=1006)

    def draw(count: int) -> Batch:
        label = torch.randint(6, (count,))
        return means[label] + 0.8 * torch.randn(count, 24), label

    def quality(net: nn.Module) -> float:
        x, label = draw(400)
        return missed(net(x), label)

    data = draw(500)
    return Training(Tuned(), partial(ADAM, lr=5e-3), lambda _: data, F.cross_entropy, quality, **of_a_notebook(tuned_loop))


@HALF.fault("not in the optimizer", tuned, also=("frozen",))
def the_optimizer_took_what_was_not_frozen_then(training: Training) -> None:
    training.optimizer = ADAM(training.model.head.parameters(), lr=5e-3)


@HALF.fault("without grad", tuned, also=("frozen",))
def features_without_autograd_to_save_time(training: Training) -> None:
    training.use(Tuned(shut=True))
