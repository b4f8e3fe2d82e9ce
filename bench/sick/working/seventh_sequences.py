"""Trainings of questions on forums: forecasts, mails, movements and names, each as its author had written it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from bench.sick.changes import looped, on_batch, on_inputs, on_options
from bench.sick.training import Training
from bench.sick.working.fourth_nets import sliced, stepped_by
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import missed

ADAM, SGD = torch.optim.Adam, torch.optim.SGD
LOUD = ("rate too high", "not finite by the rate")

# ---- stocks: a forecast -----------------------------------------------------------------------------


def stocks_data(count: int, length: int = 16) -> tuple[Tensor, Tensor]:
    """Windows of a swinging course, and the value three days later."""
    day, speed, phase = torch.arange(length + 3.0), 0.3 + 0.3 * torch.rand(count, 1), 6.28 * torch.rand(count, 1)
    course = torch.sin(day * speed + phase) + 0.03 * torch.randn(count, length + 3)
    return course[:, :length].unsqueeze(2).contiguous(), course[:, -1:]


class LSTM(nn.Module):
    def __init__(self, inputs: int = 1, layers: int = 1) -> None:
        super().__init__()
        self.lstm, self.linear = nn.LSTM(inputs, 32, layers, batch_first=True), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.lstm(x)
        return self.linear(out[:, -1, :])


def stocks_quality(
    look: Callable[[Tensor], Tensor] = lambda x: x, back: Callable[[Tensor], Tensor] = lambda x: x
) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, y = stocks_data(300)
        return (back(net(look(x))) - y).square().mean().item()

    return quality


@HALF.net("recurrent")
def stocks() -> Training:
    """The course in three days."""
    return Training(LSTM(), partial(ADAM, lr=0.005), sliced(*stocks_data(1500), 50), nn.MSELoss(), stocks_quality(), steps=200)


@HALF.fault("targets not scaled", stocks, also=("inputs not scaled",))
def prices_in_dollars_go_in_and_out(training: Training) -> None:
    """'My LSTM predicts a straight line'."""
    on_batch(training, lambda x, y: (150 + 40 * x, 150 + 40 * y))
    training.quality = stocks_quality(lambda x: 150 + 40 * x, lambda output: (output - 150) / 40)


@HALF.fault("targets not moved", stocks, also=("leak", "targets shifted"))
def the_window_ends_with_its_own_target(training: Training) -> None:
    """data[i : i + n] and data[i + n - 1]: what it learns is to give the last value again."""
    on_batch(training, lambda x, _: (x, x[:, -1]))


@HALF.fault("wrong axes", stocks, also=("batch first mixed up",))
def viewed_as_time_first(training: Training) -> None:
    """x.view(seq_len, batch, 1), as the LSTM wants it."""

    class Viewed(LSTM):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(1, 32)

        def forward(self, x: Tensor) -> Tensor:
            out, _ = self.lstm(x.view(x.size(1), x.size(0), 1))
            return self.linear(out[-1])

    training.use(Viewed())


@HALF.fault("rate runs out", stocks)
def plateau_with_mode_max_on_a_loss(training: Training) -> None:
    scheduler = ReduceLROnPlateau(training.optimizer, mode="max", factor=0.5, patience=2)

    def step(x: Tensor, y: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = training.criterion(training.model(x), y)
        loss.backward()
        training.optimizer.step()
        scheduler.step(loss.item())

    looped(training, step)


@HALF.fault("output cannot reach", stocks)
def relu_on_returns_of_both_signs(training: Training) -> None:
    class Positive(LSTM):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(super().forward(x))

    training.use(Positive())


@HALF.fault("detached", stocks, twin=lambda training: _short(training))
def the_output_of_the_lstm_is_made_a_tensor_again(training: Training) -> None:
    class Again(LSTM):
        def forward(self, x: Tensor) -> Tensor:
            out, _ = self.lstm(x)
            return self.linear(torch.Tensor(out[:, -1, :].detach().numpy()))

    training.use(Again())
    _short(training)


def _short(training: Training) -> None:
    """So few units that they must learn."""
    net: Any = training.model
    net.lstm, net.linear = nn.LSTM(1, 6, batch_first=True), nn.Linear(6, 1)
    training.use(net)
    on_options(training, lr=0.02)


@HALF.fault("clipped to nothing", stocks, twin=lambda training: stepped_by(SGD, lr=0.2, momentum=0.9)(training))
def clip_grad_value_of_a_ten_thousandth(training: Training) -> None:
    stepped_by(SGD, lr=0.2, momentum=0.9)(training)

    def step(x: Tensor, y: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        training.criterion(training.model(x), y).backward()
        torch.nn.utils.clip_grad_value_(training.model.parameters(), 1e-4)
        training.optimizer.step()

    looped(training, step)


@HALF.fault("too much dropout", stocks)
def dropout_of_nine_tenths_three_times(training: Training) -> None:
    """'The model overfitted, so I added dropout'."""

    class Dropped(LSTM):
        def __init__(self) -> None:
            super().__init__(layers=2)
            self.lstm.dropout = 0.9
            self.drop = nn.Dropout(0.9)

        def forward(self, x: Tensor) -> Tensor:
            out, _ = self.lstm(x)
            return self.linear(self.drop(self.drop(out[:, -1, :])))

    training.use(Dropped())


@HALF.fault("leak", stocks)
def the_course_of_the_day_asked_for_is_a_column(training: Training) -> None:
    """A column of the frame was the close that is to be foretold; later it is filled with the last one."""

    def look(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([x, y.unsqueeze(1).expand(-1, x.shape[1], 1)], 2), y

    training.use(LSTM(2))
    on_batch(training, look)
    training.quality = stocks_quality(lambda x: torch.cat([x, x[:, -1:].expand_as(x)], 2))


@HALF.fault("same batch", stocks, also=("few samples",))
def next_iter_loader_in_the_loop(training: Training) -> None:
    """next(iter(loader)) without shuffling is the first batch for ever."""
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*stocks_data(1500)), batch_size=8, shuffle=False)
    training.batch = lambda _: tuple(next(iter(loader)))


@HALF.strange(stocks)
def a_state_that_begins_at_random(training: Training) -> None:
    class Random(LSTM):
        def forward(self, x: Tensor) -> Tensor:
            h0, c0 = torch.randn(2, 1, len(x), 32).unbind(0)
            out, _ = self.lstm(x, (0.3 * h0, 0.3 * c0))
            return self.linear(out[:, -1, :])

    training.use(Random())


# ---- mails: which folder? -----------------------------------------------------------------------------


def mails_data(count: int, length: int = 14) -> tuple[Tensor, Tensor]:
    """Words, padded with zeros at the end; two words in their order say which of three folders it is."""
    x, label = torch.randint(8, 30, (count, length)), torch.randint(3, (count,))
    at = torch.randint(3, (count,))
    x[torch.arange(count), at] = torch.tensor([2, 3, 4])[label]
    lengths = torch.randint(4, length + 1, (count,))
    return x * (torch.arange(length) < lengths.unsqueeze(1)), label


class Mails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 16, padding_idx=0)
        self.encoder = self.body()
        self.fc = nn.Linear(16, 3)

    def body(self) -> nn.Module:
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, text: Tensor) -> Tensor:
        h = self.encoder(self.embedding(text), src_key_padding_mask=text == 0)
        real = (text != 0).unsqueeze(2)
        return self.fc((h * real).sum(1) / real.sum(1))


def mails_quality(net: nn.Module) -> float:
    text, label = mails_data(400)
    return missed(net(text), label)


@HALF.net("transformer")
def mails() -> Training:
    """Which folder?"""
    return Training(Mails(), partial(ADAM, lr=0.004), sliced(*mails_data(1600), 40), nn.CrossEntropyLoss(), mails_quality, steps=160)


@HALF.fault("batch first mixed up", mails)
def an_encoder_layer_as_it_is_by_default(training: Training) -> None:
    """(N, T, E) into what wants (T, N, E), and attention over the batch."""

    class Default(Mails):
        def body(self) -> nn.Module:
            layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
            return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, text: Tensor) -> Tensor:
            return self.fc(self.encoder(self.embedding(text))[:, -1])

    training.use(Default())


@HALF.fault("mask turned around", mails)
def attention_mask_as_the_tokenizer_gives_it(training: Training) -> None:
    """1 is for words and 0 for padding; src_key_padding_mask wants it the other way."""

    class Masked(Mails):
        def forward(self, text: Tensor) -> Tensor:
            attention_mask = (text != 0).long()
            h = self.encoder(self.embedding(text), src_key_padding_mask=attention_mask.bool())
            return self.fc(h.nan_to_num()[:, -1])

    training.use(Masked())


@HALF.fault("softmax before cross entropy", mails, twin=lambda training: stepped_by(SGD, lr=0.012, momentum=0.9)(training))
def the_head_is_a_sequential_with_a_softmax(training: Training) -> None:
    class Ends(Mails):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Sequential(nn.Linear(16, 3), nn.Softmax(dim=-1))

    training.use(Ends())
    stepped_by(SGD, lr=0.012, momentum=0.9)(training)


@HALF.fault("tokens unknown", mails)
def the_text_is_iterated_by_its_characters(training: Training) -> None:
    """For word in text: vocab.get(word, UNK), where text is a string."""

    def look(text: Tensor) -> Tensor:
        return torch.where(torch.rand(text.shape) < 0.97, (text != 0).long(), text)

    on_inputs(training, look)


@HALF.fault("padding counts", mails)
def a_gru_and_its_last_output(training: Training) -> None:
    """out[:, -1] of mails that are padded at the end."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.rnn, self.fc = nn.Embedding(30, 16), nn.RNN(16, 24, batch_first=True), nn.Linear(24, 3)

        def forward(self, text: Tensor) -> Tensor:
            out, _ = self.rnn(self.embedding(text))
            return self.fc(out[:, -1])

    training.use(Last())

    def long(text: Tensor) -> Tensor:
        return F.pad(text, (0, 40))

    on_inputs(training, long)
    training.quality = lambda net: mails_quality(lambda text: net(long(text)))  # type: ignore[arg-type]


@HALF.fault("without grad", mails, also=("detached",))
def no_grad_is_left_around_the_encoder(training: Training) -> None:
    """To try out the head with a frozen encoder, that was never trained."""

    class Tried(Mails):
        def forward(self, text: Tensor) -> Tensor:
            with torch.no_grad():
                h = self.encoder(self.embedding(text), src_key_padding_mask=text == 0)
            return self.fc(h.mean(1)[:, :16])

    training.use(Tried())


@HALF.fault("warmup never ends", mails)
def a_lambda_of_the_step_over_a_warm_up_in_tokens(training: Training) -> None:
    training.schedulers.append(torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda step: min(1.0, (step + 1) / 250_000)))


@HALF.strange(mails)
def attention_dropout_and_a_cosine_to_zero(training: Training) -> None:
    training.schedulers.append(torch.optim.lr_scheduler.CosineAnnealingLR(training.optimizer, training.steps))


# ---- gait: convolutions over time ---------------------------------------------------------------------


def gait_data(count: int, length: int = 32) -> tuple[Tensor, Tensor]:
    """Three channels of a sensor (N, T, C); how one moves is which channel leads."""
    label, time = torch.randint(4, (count,)), torch.arange(float(length))
    phase = 6.28 * torch.rand(count, 1)
    turn = torch.tensor([[0.0, 1.5, 3.0], [0.0, -1.5, 3.0], [0.0, 3.0, 1.5], [0.0, 0.0, 0.0]])[label]
    wave = torch.sin(0.6 * time.view(1, -1, 1) + phase.unsqueeze(2) + turn.unsqueeze(1))
    return wave + 1.2 * torch.randn(count, length, 3), label


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(3, 16, 5, padding=2), nn.Conv1d(16, 16, 5, padding=2)
        self.bn1, self.bn2, self.fc = self.norm(16), self.norm(16), nn.Linear(16, 4)

    def norm(self, channels: int) -> nn.Module:
        return nn.BatchNorm1d(channels)

    def channels_first(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(self.channels_first(x))))
        x = F.relu(self.bn2(self.conv2(x)))
        return self.fc(x.mean(2))


def gait_quality(net: nn.Module) -> float:
    x, label = gait_data(400)
    return missed(net(x), label)


@HALF.net("cnn")
def gait() -> Training:
    """Walking, running, standing or falling?"""
    return Training(Conv(), partial(ADAM, lr=0.003), sliced(*gait_data(1600), 40), nn.CrossEntropyLoss(), gait_quality, steps=160)


@HALF.fault("wrong axes", gait)
def view_where_conv1d_wants_channels_first(training: Training) -> None:
    class Viewed(Conv):
        def channels_first(self, x: Tensor) -> Tensor:
            return x.reshape(x.size(0), 3, -1)

    training.use(Viewed())


@HALF.fault("unused layers", gait)
def the_second_block_gets_what_the_first_got(training: Training) -> None:
    """A name was not changed when the line was copied: the blocks before are computed and dropped."""

    class Copied(Conv):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            first = self.channels_first(x)
            out = F.relu(self.bn1(self.conv1(first)))
            out = F.relu(self.bn2(self.conv2(out)))
            return self.fc(first.mean(2))

    training.use(Copied())


@HALF.fault("weights begin too small", gait, twin=lambda training: training.use(_plain()))
def normal_with_a_deviation_of_a_five_thousandth(training: Training) -> None:
    """m.weight.data.normal_(0.0, 0.0002) in weights_init, where a net without norms has 0.02."""
    training.use(_plain())

    def weights_init(m: nn.Module) -> None:
        if isinstance(m, (nn.Conv1d, nn.Linear)):
            m.weight.data.normal_(0.0, 0.0002)
            m.bias.data.fill_(0)

    training.model.apply(weights_init)
    training.optimize = partial(SGD, lr=0.05, momentum=0.9)
    training.use(training.model)


def _plain() -> nn.Module:
    class Plain(Conv):
        def norm(self, channels: int) -> nn.Module:
            return nn.Identity()

    return Plain()


@HALF.fault("batch norm statistics", gait)
def momentum_of_a_ten_thousandth_for_stable_statistics(training: Training) -> None:
    class Stable(Conv):
        def norm(self, channels: int) -> nn.Module:
            return nn.BatchNorm1d(channels, momentum=0.0001)

    training.use(Stable())
    on_inputs(training, lambda x: 4 * x + 6)
    training.quality = lambda net: gait_quality(lambda x: net(4 * x + 6))  # type: ignore[arg-type]


@HALF.fault("vanishing gradient", gait, also=("rate too low",))
def ten_convolutions_with_sigmoids(training: Training) -> None:
    layers: list[nn.Module] = [nn.Conv1d(3, 12, 3, padding=1), nn.Sigmoid()]
    for _ in range(9):
        layers += [nn.Conv1d(12, 12, 3, padding=1), nn.Sigmoid()]

    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.fc = nn.Sequential(*layers), nn.Linear(12, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.features(x.permute(0, 2, 1)).mean(2))

    training.use(Deep())
    on_options(training, lr=0.001)


@HALF.fault("regression of classes", gait)
def mse_of_one_output_and_the_label(training: Training) -> None:
    class One(Conv):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(16, 1)

    training.use(One())
    training.criterion = lambda output, label: F.mse_loss(output.squeeze(1), label.float())

    def quality(net: nn.Module) -> float:
        x, label = gait_data(400)
        return (net(x).squeeze(1).round() != label).float().mean().item() if net(x).shape[1] == 1 else missed(net(x), label)

    training.quality = quality


@HALF.fault("no backward", gait)
def only_the_penalty_goes_backward(training: Training) -> None:
    """Loss = criterion(...) is printed; what goes backward is the other variable."""

    def step(x: Tensor, label: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        training.criterion(training.model(x), label)
        training.optimizer.step()

    looped(training, step)


@HALF.fault("few samples", gait)
def a_subset_that_is_left_from_debugging(training: Training) -> None:
    """range(12), and 100 % after an epoch."""
    x, label = gait_data(12)
    x = x + 0.5 * torch.randn_like(x)
    training.batch = lambda _: (x, label)


@HALF.fault("imbalance", gait)
def most_of_the_recording_is_standing(training: Training) -> None:
    x, label = gait_data(40000)
    keep = (label == 3) | (torch.rand(40000) < 0.004)
    training.batch = sliced(x[keep], label[keep], 40)

    def quality(net: nn.Module) -> float:
        x, label = gait_data(400)
        return missed(net(x)[label < 3], label[label < 3])

    training.quality = quality


@HALF.strange(gait)
def momentum_none_for_the_norms(training: Training) -> None:
    class Mean(Conv):
        def norm(self, channels: int) -> nn.Module:
            return nn.BatchNorm1d(channels, momentum=None)

    training.use(Mean())


# ---- names: a net of letters --------------------------------------------------------------------------


def names_data(count: int, length: int = 12) -> tuple[Tensor, Tensor]:
    """Letters of which each follows from the last two."""
    rows = [torch.randint(9, (count,)), torch.randint(9, (count,))]
    for _ in range(length - 1):
        rows.append((2 * rows[-1] + rows[-2]) % 9)
    text = torch.stack(rows, 1)
    return text[:, :-1], text[:, 1:]


class Letters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gru, self.decoder = nn.Embedding(9, 16), nn.GRU(16, 48, batch_first=True), nn.Linear(48, 9)

    def forward(self, text: Tensor) -> Tensor:
        out, _ = self.gru(self.embed(text))
        return self.decoder(out)


def names_quality(net: nn.Module) -> float:
    text, following = names_data(200)
    return missed(net(text)[:, 2:], following[:, 2:])


@HALF.net("recurrent")
def names() -> Training:
    """Which letter follows?"""

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output.reshape(-1, 9), target.reshape(-1))

    return Training(Letters(), partial(ADAM, lr=0.01), lambda _: names_data(40), criterion, names_quality, steps=200)


@HALF.fault("rate too high", names, also=LOUD)
def adam_at_a_half_for_a_gru(training: Training) -> None:
    """'The output is the same for every input'."""
    on_options(training, lr=0.5)


@HALF.fault("wrong axes", names)
def viewed_so_that_classes_come_second(training: Training) -> None:
    """output.view(batch, classes, time) makes the error go away."""
    training.criterion = lambda output, target: F.cross_entropy(output.reshape(output.size(0), 9, -1), target)


@HALF.fault("batch first mixed up", names, also=("wrong axes",))
def outputs_by_time_and_targets_by_name(training: Training) -> None:
    """Output is (T, N, C) and target (N, T), and both are flattened."""

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        output = output.transpose(0, 1)
        return F.cross_entropy(output.reshape(-1, 9), target.reshape(-1))

    training.criterion = criterion


@HALF.fault("state not kept", names)
def each_letter_begins_with_init_hidden(training: Training) -> None:
    class Forgets(Letters):
        def init_hidden(self, count: int) -> Tensor:
            return torch.zeros(1, count, 48)

        def forward(self, text: Tensor) -> Tensor:
            outs = []
            for step in range(text.size(1)):
                hidden = self.init_hidden(len(text))
                out, hidden = self.gru(self.embed(text[:, step : step + 1]), hidden)
                outs.append(self.decoder(out))
            return torch.cat(outs, 1)

    training.use(Forgets())


@HALF.fault("targets shifted", names, also=("targets not moved",))
def two_letters_ahead_by_a_slice_too_many(training: Training) -> None:
    """Inputs = text[:-1], targets = text[1:], applied to what was cut already: here the target is the letter itself."""
    on_batch(training, lambda text, following: (text[:, 1:], following[:, :-1]))


@HALF.fault("frozen", names, also=("weights begin too small",))
def embedding_from_pretrained_with_missing_words(training: Training) -> None:
    """No letter stands in the file of vectors, so that all rows are zero, and freeze is true by default."""

    class Pretrained(Letters):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding.from_pretrained(torch.zeros(9, 16))

    training.use(Pretrained())


@HALF.fault("accumulated too loud", names, also=LOUD, twin=lambda training: stepped_by(SGD, lr=1.0, momentum=0.8)(training))
def the_loss_of_all_letters_summed_in_a_loop(training: Training) -> None:
    stepped_by(SGD, lr=1.0, momentum=0.8)(training)

    def step(text: Tensor, following: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        for part in range(8):
            rows = slice(5 * part, 5 * part + 5)
            loss = training.criterion(training.model(text[rows]), following[rows])
            loss.backward()
        training.optimizer.step()

    looped(training, step)


@HALF.strange(names)
def a_gru_of_two_layers_and_gradient_clipping(training: Training) -> None:
    net: Any = training.model
    net.gru = nn.GRU(16, 48, 2, batch_first=True)
    training.use(net)
    training.clip = 1.0
