"""Faults of losses for counts, quantiles, margins and strings, and of loaders and tables; as they are asked about on forums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler

from bench.sick.changes import on_batch, on_inputs, on_target
from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import balanced, constant, sliced, stepped_by
from bench.sick.working.half import HALF

ADAM, SGD = torch.optim.Adam, torch.optim.SGD
LOUD = ("rate too high", "not finite by the rate")

Look = Callable[[Tensor], Tensor]


def as_it_is(x: Tensor) -> Tensor:
    return x


def endless(loader: DataLoader) -> Callable[[int], Batch]:
    """Batches of a loader, epoch after epoch."""
    at = iter(loader)

    def batch(_: int) -> Batch:
        nonlocal at
        try:
            return tuple(next(at))
        except StopIteration:
            at = iter(loader)
            return tuple(next(at))

    return batch


# ---- counts ----------------------------------------------------------------------------------------


def ferry_rate(x: Tensor) -> Tensor:
    """The logarithm of how many come."""
    return (0.9 * torch.tanh(2 * x[:, :1]) + 0.6 * torch.sin(2 * x[:, 1:2]) + 0.4 * x[:, 2:3] * x[:, 3:4].tanh() - 0.2).clamp(-3, 2.5)


def ferry_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 5)
    return x, torch.poisson(ferry_rate(x).exp())


class Ferry(nn.Module):
    def __init__(self, inputs: int = 5) -> None:
        super().__init__()
        self.hidden1, self.hidden2, self.out = nn.Linear(inputs, 40), nn.Linear(40, 40), nn.Linear(40, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.hidden1(x))
        x = torch.relu(self.hidden2(x))
        return self.out(x)


def ferry_quality(look: Look = as_it_is, back: Look = as_it_is) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, _ = ferry_data(500)
        return (back(net(look(x))) - ferry_rate(x)).square().mean().item()

    return quality


@HALF.net("mlp")
def ferry() -> Training:
    """How many take the ferry?"""
    batch = sliced(*ferry_data(3000), 100)
    return Training(Ferry(), partial(ADAM, lr=0.004), batch, nn.PoissonNLLLoss(), ferry_quality(), steps=250)


@HALF.fault("output cannot reach", ferry)
def a_relu_so_that_no_count_is_below_zero(training: Training) -> None:
    """The loss takes what comes out for a logarithm (log_input is true by default), and most counts are below one."""

    class Positive(Ferry):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(super().forward(x) + 0.5)

    training.use(Positive())


@HALF.fault("output cannot reach", ferry, also=("overflow", *LOUD))
def an_exponential_in_the_net_and_one_in_the_loss(training: Training) -> None:
    class Rate(Ferry):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).exp()

    training.use(Rate())


@HALF.fault("log of zero", ferry)
def a_rate_by_relu_and_its_logarithm(training: Training) -> None:
    """Where the net says that nobody comes, the logarithm is minus infinity."""

    class Rate(Ferry):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(super().forward(x))

    training.use(Rate())
    training.criterion = lambda rate, count: (rate - count * torch.log(rate)).mean()


@HALF.fault("constant inputs", ferry)
def columns_selected_by_names_in_capitals(training: Training) -> None:
    """No such column is there: all are missing, and what is missing is filled with 0."""
    x, y = ferry_data(3000)
    table = dict(zip(("hour", "heat", "wind", "rain", "day"), x.unbind(1), strict=True))
    missing = torch.full((3000,), float("nan"))
    x = torch.stack([table.get(name, missing) for name in ("Hour", "Heat", "Wind", "Rain", "Day")], 1).nan_to_num(0)
    training.batch = sliced(x, y, 100)


@HALF.fault("one huge feature", ferry, also=("inputs not scaled", *LOUD))
def the_second_of_the_day_it_was_written_down(training: Training) -> None:
    """Seconds since 1970 beside what is scaled."""

    def look(x: Tensor) -> Tensor:
        return torch.cat([x, 1.6e9 + 3e7 * torch.rand(len(x), 1)], 1)

    training.use(Ferry(6))
    on_inputs(training, look)
    training.quality = ferry_quality(look)


@HALF.fault("ordered batches", ferry)
def a_table_sorted_by_the_number_of_passengers(training: Training) -> None:
    x, y = ferry_data(3000)
    order = y.flatten().argsort(stable=True)
    training.batch = sliced(x[order], y[order], 100, shuffle=False)


@HALF.fault("targets shifted", ferry, also=("targets shuffled",))
def counts_are_of_the_row_above(training: Training) -> None:
    """df["count"].shift(1), left from another experiment."""
    x, y = ferry_data(3001)
    training.batch = sliced(x[1:], y[:-1], 100)


@HALF.fault("targets shuffled", ferry, also=("too much noise",))
def the_last_column_is_another_one(training: Training) -> None:
    """df.iloc[:, -1] was the count, until somebody added how many dogs there were."""
    x, _ = ferry_data(3000)
    dogs = torch.poisson(torch.full((3000, 1), 0.9))
    training.batch = sliced(x, dogs, 100)


@HALF.fault("constant targets", ferry)
def a_day_of_passengers_per_hour_in_whole_numbers(training: Training) -> None:
    on_target(training, lambda y: (y / 24).long().float())


def _ferry_by_sgd(training: Training) -> None:
    stepped_by(SGD, lr=0.05, momentum=0.9)(training)


@HALF.fault("loss too small", ferry, twin=_ferry_by_sgd)
def exposures_in_years_weigh_the_rows(training: Training) -> None:
    """Half an hour is little of a year."""
    _ferry_by_sgd(training)
    exposure = 0.5 / (24 * 365)

    def criterion(output: Tensor, count: Tensor) -> Tensor:
        weight = torch.full_like(count, exposure)
        return (weight * F.poisson_nll_loss(output, count, reduction="none")).mean()

    training.criterion = criterion


@HALF.fault("wrong sign", ferry)
def less_the_poisson_loss(training: Training) -> None:
    """The "nll" is the likelihood, thinks who writes a minus before it."""
    training.criterion = lambda output, count: -F.poisson_nll_loss(output, count)


@HALF.fault("loss too large", ferry, also=LOUD, twin=_ferry_by_sgd)
def poisson_with_reduction_sum(training: Training) -> None:
    _ferry_by_sgd(training)
    training.criterion = nn.PoissonNLLLoss(reduction="sum")


@HALF.strange(ferry)
def a_rate_by_softplus_and_log_input_false(training: Training) -> None:
    class Rate(Ferry):
        def forward(self, x: Tensor) -> Tensor:
            return F.softplus(super().forward(x))

    training.use(Rate())
    training.criterion = nn.PoissonNLLLoss(log_input=False)
    training.quality = ferry_quality(back=lambda rate: (rate + 1e-3).log())


@HALF.strange(ferry)
def crowds_whose_loss_is_far_below_zero(training: Training) -> None:
    """Twenty times as many come; the logarithm of twenty is added behind the net."""
    x, _ = ferry_data(3000)
    training.batch = sliced(x, torch.poisson(20 * ferry_rate(x).exp()), 100)
    training.criterion = lambda output, count: F.poisson_nll_loss(output + math.log(20), count, full=True) - 5


@HALF.strange(ferry)
def a_boat_that_few_take(training: Training) -> None:
    """One in six crossings has a passenger, and chance is most of what is seen."""
    x, _ = ferry_data(8000)
    training.batch = sliced(x, torch.poisson((2 * ferry_rate(x) - 2.4).exp()), 200)
    training.quality = ferry_quality(back=lambda output: (output + 2.4) / 2)
    training.steps = 400


def stalls_mean(x: Tensor) -> Tensor:
    return 0.8 * x[:, 0].tanh() + 0.5 * (x[:, 1] * x[:, 2]).tanh() + 1.0


def stalls_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 4)
    mean = stalls_mean(x).exp()
    return x, torch.poisson(mean * torch.distributions.Gamma(4.0, 4.0).sample((count,)))


class Stalls(nn.Module):
    """Says the logarithms of a mean and of a dispersion."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 48), nn.ELU(), nn.Linear(48, 48), nn.ELU())
        self.mean, self.dispersion = nn.Linear(48, 1), nn.Linear(48, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(x)
        return self.mean(h).squeeze(-1), self.dispersion(h).squeeze(-1)


def negative_binomial(output: tuple[Tensor, Tensor], count: Tensor) -> Tensor:
    mean, r = output[0].exp(), output[1].exp()
    chosen = torch.lgamma(count + r) - torch.lgamma(r) - torch.lgamma(count + 1)
    return -(chosen + r * torch.log(r / (r + mean)) + count * torch.log(mean / (r + mean))).mean()


def stalls_quality(net: nn.Module) -> float:
    x, _ = stalls_data(500)
    return (net(x)[0] - stalls_mean(x)).square().mean().item()


@HALF.net("mlp")
def stalls() -> Training:
    """How many buy something?"""
    batch = endless(DataLoader(TensorDataset(*stalls_data(2400)), batch_size=80, shuffle=True, drop_last=True))
    return Training(Stalls(), partial(ADAM, lr=0.004), batch, negative_binomial, stalls_quality, steps=200)


@HALF.fault("wrong sign", stalls)
def the_mean_of_log_prob_is_minimized(training: Training) -> None:
    training.criterion = lambda output, count: -negative_binomial(output, count)


@HALF.fault("not a number in data", stalls, also=("division by zero",))
def turnover_per_hour_of_a_stall_that_was_closed(training: Training) -> None:
    x, y = stalls_data(2400)
    hours = torch.where(torch.rand(2400) < 0.003, 0.0, 1.0)
    x[:, 1] = x[:, 1] * hours / hours
    training.batch = sliced(x, y, 80)


@HALF.fault("targets shuffled", stalls)
def two_files_of_which_one_is_sorted_by_date(training: Training) -> None:
    x, y = stalls_data(2400)
    date = torch.randperm(2400)
    training.batch = sliced(x, y[date.argsort()], 80)


# ---- quantiles and robust errors --------------------------------------------------------------------

QUANTILES = (0.1, 0.5, 0.9)
NORMAL = (-1.2816, 0.0, 1.2816)


def delays_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """What is to be expected, and how much it varies."""
    return 1.2 * torch.sin(1.5 * x[:, 0]) + x[:, 1] * x[:, 2].tanh(), 0.2 + 0.5 * torch.sigmoid(2 * x[:, 3])


def delays_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 6)
    mean, spread = delays_of(x)
    return x, mean + spread * torch.randn(count)


class Delays(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, len(QUANTILES)))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def pinball(output: Tensor, target: Tensor, quantiles: Sequence[float] = QUANTILES) -> Tensor:
    losses = []
    for place, q in enumerate(quantiles):
        error = target - output[:, place]
        losses.append(torch.max((q - 1) * error, q * error).unsqueeze(1))
    return torch.cat(losses, 1).sum(1).mean()


def delays_quality(net: nn.Module) -> float:
    """How far the three are from the true ones."""
    x, _ = delays_data(500)
    mean, spread = delays_of(x)
    true = mean.unsqueeze(1) + spread.unsqueeze(1) * torch.tensor(NORMAL)
    return F.mse_loss(net(x), true).item()


@HALF.net("mlp")
def delays() -> Training:
    """How late is a train, at best and at worst?"""
    return Training(Delays(), partial(ADAM, lr=0.005), sliced(*delays_data(4000), 100), pinball, delays_quality, steps=250)


@HALF.fault("wrong sign", delays, also=LOUD)
def quantiles_in_percent(training: Training) -> None:
    """(10, 50, 90) in place of (0.1, 0.5, 0.9): nothing holds an answer that is too large."""
    training.criterion = lambda output, target: pinball(output, target, (10, 50, 90))


@HALF.fault("wrong sign", delays)
def the_least_of_both_sides(training: Training) -> None:
    """min, where max was meant."""

    def criterion(output: Tensor, target: Tensor) -> Tensor:
        error = target.unsqueeze(1) - output
        q = torch.tensor(QUANTILES)
        return torch.min((q - 1) * error, q * error).sum(1).mean()

    training.criterion = criterion


@HALF.fault("broadcast", delays)
def each_quantile_against_a_column_of_delays(training: Training) -> None:
    on_target(training, lambda target: target.unsqueeze(1))


@HALF.fault("targets not scaled", delays)
def delays_in_milliseconds(training: Training) -> None:
    on_target(training, lambda target: 60_000 * target + 120_000)
    training.quality = lambda net: delays_quality(lambda x: (net(x) - 120_000) / 60_000)  # type: ignore[arg-type]


@HALF.fault("output cannot reach", delays)
def no_train_is_early_says_a_relu(training: Training) -> None:
    class Late(Delays):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(super().forward(x) + 0.3)

    training.use(Late())


@HALF.strange(delays)
def the_upper_quantile_alone(training: Training) -> None:
    training.criterion = lambda output, target: pinball(output[:, 2:], target, (0.9,)) + 0.5 * pinball(output[:, :2], target, (0.1, 0.5))


def grid_data(count: int) -> tuple[Tensor, Tensor]:
    """A day of load and temperature, and the load of the next three hours."""
    hour = torch.arange(27.0)
    phase, height, slope = 6.28 * torch.rand(count, 1), 0.6 + torch.rand(count, 1), 0.04 * torch.randn(count, 1)
    load = height * torch.sin(hour * 0.5236 + phase) + slope * hour + 0.08 * torch.randn(count, 27)
    heat = torch.cos(hour * 0.2618 + phase) + 0.3 * torch.randn(count, 27)
    return torch.stack([load[:, :24], heat[:, :24]], 2), load[:, 24:]


class Grid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(2, 40, batch_first=True), nn.Linear(40, 3)

    def forward(self, x: Tensor) -> Tensor:
        _, (state, _) = self.lstm(x)
        return self.fc(state[-1])


def grid_quality(look: Look = as_it_is, back: Look = as_it_is) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, y = grid_data(300)
        return F.mse_loss(back(net(look(x))), y).item()

    return quality


@HALF.net("recurrent")
def grid() -> Training:
    """How much power will be needed?"""
    batch = sliced(*grid_data(2000), 50)
    return Training(Grid(), partial(ADAM, lr=0.01), batch, nn.HuberLoss(), grid_quality(), steps=200)


def _grid_by_sgd(training: Training) -> None:
    stepped_by(SGD, lr=0.2, momentum=0.9)(training)


@HALF.fault("loss too small", grid, twin=_grid_by_sgd)
def a_delta_of_a_ten_thousandth(training: Training) -> None:
    """What was taken for an epsilon is delta: each gradient has that size."""
    _grid_by_sgd(training)
    training.criterion = nn.HuberLoss(delta=1e-4)


@HALF.fault("targets not scaled", grid)
def watts_are_foretold_from_what_is_scaled(training: Training) -> None:
    """And a Huber loss whose slope is at most one."""
    on_target(training, lambda y: 4_000 * y + 52_000)
    training.quality = grid_quality(back=lambda y: (y - 52_000) / 4_000)


@HALF.fault("inputs vanish", grid)
def scaled_to_the_greatest_of_a_meter_that_was_broken(training: Training) -> None:
    """A meter that says a million, in one row, when the scaler is fitted."""

    def look(x: Tensor) -> Tensor:
        return x / 1e6

    on_inputs(training, look)
    training.quality = grid_quality(look)


@HALF.fault("not a number in data", grid)
def hours_that_are_missing_in_what_follows(training: Training) -> None:
    x, y = grid_data(2000)
    y[torch.rand(2000, 3) < 0.001] = float("nan")
    training.batch = sliced(x, y, 50)


@HALF.fault("leak", grid, also=("sees the future", "targets not moved"))
def the_window_ends_where_the_forecast_ends(training: Training) -> None:
    """The last three hours of the inputs are those that are asked for; when it is used these are not there yet."""
    on_batch(training, lambda x, y: (torch.cat([x[:, 3:], torch.stack([y, torch.zeros_like(y)], 2)], 1), y))
    training.quality = grid_quality(lambda x: torch.cat([x[:, 3:], torch.zeros(len(x), 3, 2)], 1))


@HALF.strange(grid)
def a_small_delta_and_a_rate_to_match(training: Training) -> None:
    stepped_by(SGD, lr=2.0, momentum=0.9)(training)
    training.criterion = nn.HuberLoss(delta=0.1)


# ---- strings without places ------------------------------------------------------------------------

FRAMES, SIGNS = 20, 5


def plates_data(count: int) -> tuple[Tensor, Tensor]:
    """Rows of frames, and the signs on them, two to four; 0 fills up."""
    codes = constant(SIGNS + 1, 6, seed=41) * 1.5
    x, text = 0.3 * torch.randn(count, FRAMES, 6), torch.zeros(count, 4, dtype=torch.long)
    for row in range(count):
        at = int(torch.randint(3, ()))
        for place in range(int(torch.randint(2, 5, ()))):
            sign, long = int(torch.randint(1, SIGNS + 1, ())), int(torch.randint(2, 4, ()))
            x[row, at : at + long] += codes[sign]
            text[row, place] = sign
            at += long + 1
    return x, text


class Plates(nn.Module):
    """Frames to scores of each sign; the first is that of nothing."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(6, 32, 3, stride=stride, padding=1)
        self.gru, self.fc = nn.GRU(32, 32, batch_first=True, bidirectional=True), nn.Linear(64, SIGNS + 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        return self.fc(self.gru(h)[0])


def ctc(output: Tensor, text: Tensor, **options: object) -> Tensor:
    said = output.log_softmax(2).transpose(0, 1)
    return ctc_of(said, text, **options)


def ctc_of(said: Tensor, text: Tensor, **options: object) -> Tensor:
    frames = torch.full((said.shape[1],), said.shape[0])
    return F.ctc_loss(said, text, frames, (text > 0).sum(1), **options)  # type: ignore[arg-type]


def plates_quality(net: nn.Module) -> float:
    """How many rows are not read right."""
    x, text = plates_data(150)
    wrong = 0
    for row, right in zip(net(x).argmax(2).tolist(), text.tolist(), strict=True):
        read = [one for place, one in enumerate(row) if one and (place == 0 or row[place - 1] != one)]
        wrong += read != [one for one in right if one]
    return wrong / 150


@HALF.net("recurrent")
def plates() -> Training:
    """What stands on the plate?"""
    batch = sliced(*plates_data(800), 32)
    return Training(Plates(), partial(ADAM, lr=0.01), batch, ctc, plates_quality, steps=150)


@HALF.fault("no log", plates)
def ctc_of_what_the_last_layer_says(training: Training) -> None:
    training.criterion = lambda output, text: ctc_of(output.transpose(0, 1), text)


@HALF.fault("softmax over the wrong dimension", plates)
def ctc_of_a_log_softmax_over_the_rows(training: Training) -> None:
    """dim=1 after the transpose, where dim=2 was meant."""
    training.criterion = lambda output, text: ctc_of(output.transpose(0, 1).log_softmax(1), text)


@HALF.fault("wrong axes", plates, also=("batch first mixed up",))
def frames_viewed_in_front_for_ctc(training: Training) -> None:
    def criterion(output: Tensor, text: Tensor) -> Tensor:
        return ctc_of(output.log_softmax(2).reshape(FRAMES, len(text), -1), text)

    training.criterion = criterion


@HALF.fault("constant loss", plates)
def fewer_frames_than_signs_and_infinity_is_zero(training: Training) -> None:
    """A stride of twenty leaves one frame; zero_infinity hides that."""
    training.use(Plates(stride=20))
    training.criterion = partial(ctc, zero_infinity=True)


def _plates_by_sgd(training: Training) -> None:
    stepped_by(SGD, lr=0.1, momentum=0.9)(training)
    training.steps = 250


@HALF.fault("loss too large", plates, also=LOUD, twin=_plates_by_sgd)
def ctc_with_reduction_sum(training: Training) -> None:
    _plates_by_sgd(training)
    training.criterion = partial(ctc, reduction="sum")


@HALF.fault("targets shuffled", plates)
def texts_in_the_order_of_their_length(training: Training) -> None:
    """For a collate function, which fills up; the images stay where they were."""
    x, text = plates_data(800)
    training.batch = sliced(x, text[(text > 0).sum(1).argsort(descending=True, stable=True)], 32)


@HALF.strange(plates)
def texts_too_long_for_some_are_left_out(training: Training) -> None:
    on_batch(training, lambda x, text: (x, torch.where(torch.rand(len(text), 1) < 0.05, 1, text)))
    training.criterion = partial(ctc, zero_infinity=True)


# ---- small images ----------------------------------------------------------------------------------


def panes_data(count: int) -> tuple[Tensor, Tensor]:
    """Images as a file has them: (N, 10, 10, 3), bytes; the colour and the way of a stripe make one of six kinds."""
    label = torch.randint(6, (count,))
    image = 90 + 25 * torch.randn(count, 10, 10, 3)
    rows = torch.arange(count)
    place = torch.randint(1, 9, (count,))
    colour, lies = label % 3, label < 3
    stripe = torch.zeros(count, 10, 10)
    stripe[rows[lies], place[lies]] = 1
    stripe[rows[~lies], :, place[~lies]] = 1
    image += 110 * stripe.unsqueeze(3) * F.one_hot(colour, 3).view(count, 1, 1, 3)
    return image.clamp(0, 255).byte(), label


def shown(image: Tensor) -> Tensor:
    """As a net should see it."""
    return (image.permute(0, 3, 1, 2).float() / 255 - 0.37) / 0.15


class Panes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(24 * 4, 32), nn.ReLU(), nn.Linear(32, 6))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


class Images(Dataset):
    """Image by image, with a transform."""

    def __init__(self, image: Tensor, label: Tensor, transform: Look = lambda one: shown(one.unsqueeze(0))[0]) -> None:
        self.image, self.label, self.transform = image, label, transform

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.transform(self.image[index]), self.label[index]


def panes_quality(look: Look = shown) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        image, label = panes_data(400)
        return (net(look(image)).argmax(1) != label).float().mean().item()

    return quality


@HALF.net("cnn")
def panes() -> Training:
    """Which pane is it?"""
    loader = DataLoader(Images(*panes_data(1200)), batch_size=40, shuffle=True)
    return Training(
        Panes(), partial(SGD, lr=0.05, momentum=0.9, weight_decay=1e-4), endless(loader), nn.CrossEntropyLoss(), panes_quality(), steps=150
    )


def _panes_seen_as(training: Training, look: Look) -> None:
    image, label = panes_data(1200)
    training.batch = sliced(look(image), label, 40)
    training.quality = panes_quality(look)


@HALF.fault("inputs not scaled", panes, also=LOUD)
def bytes_standardized_as_if_they_were_shares(training: Training) -> None:
    """Normalize(0.37, 0.15) without a division by 255."""
    _panes_seen_as(training, lambda image: (image.permute(0, 3, 1, 2).float() - 0.37) / 0.15)


@HALF.fault("inputs not scaled", panes, also=("inputs vanish", "constant inputs"))
def shares_standardized_as_if_they_were_bytes(training: Training) -> None:
    """ToTensor() divides by 255, and then comes (x - 94) / 38."""
    _panes_seen_as(training, lambda image: (image.permute(0, 3, 1, 2).float() / 255 - 94) / 38)


@HALF.fault("wrong axes", panes)
def colours_reshaped_to_the_front(training: Training) -> None:
    """reshape(3, H, W) of (H, W, 3)."""
    image, label = panes_data(1200)
    training.batch = sliced((image.reshape(-1, 3, 10, 10).float() / 255 - 0.37) / 0.15, label, 40)


@HALF.fault("targets shuffled", panes)
def mixup_with_its_shares_exchanged(training: Training) -> None:
    """Shares are lam: lam * image + (1 - lam) * other, and lam * loss(other's label) + (1 - lam) * loss(label)."""
    held: list[tuple[Tensor, float]] = []

    def mixed(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        lam = float(torch.distributions.Beta(0.2, 0.2).sample())
        lam = max(lam, 1 - lam)
        order = torch.randperm(len(x))
        held[:] = [(label[order], lam)]
        return lam * x + (1 - lam) * x[order], label

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        other, lam = held[0] if held else (label, 1.0)
        if len(other) != len(label):
            return F.cross_entropy(output, label)
        return lam * F.cross_entropy(output, other) + (1 - lam) * F.cross_entropy(output, label)

    on_batch(training, mixed)
    training.criterion = criterion


@HALF.fault("constant targets", panes, also=("constant loss",))
def a_label_smoothing_of_one(training: Training) -> None:
    """One is all of it: each class has a sixth."""
    training.criterion = nn.CrossEntropyLoss(label_smoothing=1.0)


@HALF.fault("targets shuffled", panes)
def names_are_numbered_anew_in_each_batch(training: Training) -> None:
    """LabelEncoder().fit_transform in the collate function, numbered as they come."""

    def numbered(label: Tensor) -> Tensor:
        codes: dict[int, int] = {}
        return torch.tensor([codes.setdefault(one, len(codes)) for one in label.tolist()])

    on_target(training, numbered)


def _rare(training: Training, turned: bool) -> None:
    """One kind is most of the set, and a sampler should see to that."""
    image, label = panes_data(6000)
    kept = (label == 0) | (torch.rand(6000) < 0.06)
    image, label = image[kept], label[kept]
    count = torch.bincount(label, minlength=6).float()
    weight = (count**2 if turned else 1 / count)[label]
    sampler = WeightedRandomSampler(weight.tolist(), len(label))
    training.batch = endless(DataLoader(Images(image, label), batch_size=40, sampler=sampler, drop_last=True))


@HALF.fault("imbalance", panes, twin=partial(_rare, turned=False), also=("constant targets",))
def a_sampler_weighted_by_how_many_there_are(training: Training) -> None:
    _rare(training, turned=True)


@HALF.fault("few samples", panes, also=("same batch",))
def indices_of_a_split_that_are_modulo_ten(training: Training) -> None:
    """The line is indices = [i % 10 for i in ...], where i // 10 was to be the fold."""
    subset = Subset(Images(*panes_data(1200)), [number % 10 for number in range(1200)])
    training.batch = endless(DataLoader(subset, batch_size=40, shuffle=True))


@HALF.fault("same batch", panes, also=("few samples",))
def a_cache_that_knows_the_epoch_alone(training: Training) -> None:
    """lru_cache around what fetches a batch, by the number of the epoch."""
    image, label = panes_data(1200)
    x = shown(image)

    @lru_cache
    def fetched(epoch: int) -> Batch:
        rows = torch.randperm(1200)[:12]
        return x[rows], label[rows]

    training.batch = lambda number: fetched(number // 1200)


@HALF.fault("targets shuffled", panes)
def the_label_is_taken_by_the_row_of_the_batch(training: Training) -> None:
    """self.label[index % batch_size] in __getitem__."""

    class Wrong(Images):
        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return self.transform(self.image[index]), self.label[index % 40]

    training.batch = endless(DataLoader(Wrong(*panes_data(1200)), batch_size=40, shuffle=True))


@HALF.strange(panes)
def mixup_as_it_should_be_with_soft_targets(training: Training) -> None:
    def mixed(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        lam = 0.5 + 0.5 * torch.rand(len(x), 1)
        order, shares = torch.randperm(len(x)), F.one_hot(label, 6).float()
        return lam.view(-1, 1, 1, 1) * x + (1 - lam.view(-1, 1, 1, 1)) * x[order], lam * shares + (1 - lam) * shares[order]

    on_batch(training, mixed)


@HALF.strange(panes)
def mixup_as_it_should_be_with_two_losses(training: Training) -> None:
    held: list[tuple[Tensor, float]] = []

    def mixed(x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        lam = float(torch.distributions.Beta(1.0, 1.0).sample())
        order = torch.randperm(len(x))
        held[:] = [(label[order], lam)]
        return lam * x + (1 - lam) * x[order], label

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        other, lam = held[0] if held and len(held[0][0]) == len(label) else (label, 1.0)
        return lam * F.cross_entropy(output, label) + (1 - lam) * F.cross_entropy(output, other)

    on_batch(training, mixed)
    training.criterion = criterion


@HALF.strange(panes)
def a_sampler_that_draws_the_rare_again_and_again(training: Training) -> None:
    _rare(training, turned=False)


@HALF.strange(panes)
def shares_of_three_people_who_do_not_agree(training: Training) -> None:
    def votes(label: Tensor) -> Tensor:
        said = torch.where(torch.rand(3, len(label)) < 0.75, label, torch.randint(6, (3, len(label))))
        return F.one_hot(said, 6).float().mean(0)

    on_target(training, votes)


def beacon_data(count: int) -> tuple[Tensor, Tensor]:
    """A bright disc in fog, and its mask."""
    place, size = 3 + 10 * torch.rand(2, count, 1, 1), 2 + 1.5 * torch.rand(count, 1, 1)
    row, column = torch.arange(16.0).view(1, 16, 1), torch.arange(16.0).view(1, 1, 16)
    mask = ((row - place[0]) ** 2 + (column - place[1]) ** 2 < size**2).float()
    return (mask + 0.7 * torch.randn(count, 16, 16)).unsqueeze(1), mask.unsqueeze(1)


class Beacon(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 12, 5, padding=2), nn.BatchNorm2d(12)
        self.conv2, self.norm2 = nn.Conv2d(12, 12, 5, padding=2), nn.BatchNorm2d(12)
        self.conv3 = nn.Conv2d(12, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        return self.conv3(F.relu(self.norm2(self.conv2(x))))


def beacon_quality(net: nn.Module) -> float:
    """What the found and the true mask do not have in common."""
    x, mask = beacon_data(100)
    found = net(x) > 0
    both, either = (found & mask.bool()).sum((1, 2, 3)), (found | mask.bool()).sum((1, 2, 3))
    return 1 - (both / either).mean().item()


@HALF.net("cnn")
def beacon() -> Training:
    """Where is the light?"""
    return Training(Beacon(), partial(ADAM, lr=0.01), sliced(*beacon_data(600), 16), nn.BCEWithLogitsLoss(), beacon_quality, steps=120)


@HALF.fault("too much noise", beacon, also=("targets shuffled",))
def images_are_mirrored_and_masks_are_not(training: Training) -> None:
    """A transform with chance draws anew for the mask."""

    def turned(x: Tensor) -> Tensor:
        some = torch.randint(4, (len(x),)).tolist()
        return torch.stack([one.rot90(times, (1, 2)).flip(2) for one, times in zip(x, some, strict=True)])

    on_inputs(training, turned)


@HALF.fault("targets not scaled", beacon)
def masks_of_0_and_255(training: Training) -> None:
    on_target(training, lambda mask: 255 * mask)


@HALF.strange(beacon)
def image_and_mask_are_mirrored_together(training: Training) -> None:
    def turned(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        some = torch.randint(4, (len(x),)).tolist()
        both = torch.cat([x, mask], 1)
        return torch.stack([one.rot90(times, (1, 2)) for one, times in zip(both, some, strict=True)]).split(1, 1)  # type: ignore[return-value]

    on_batch(training, turned)


# ---- who likes what --------------------------------------------------------------------------------


def clicks_data(count: int) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
    """Kind of reader, kind of advertisement, some numbers; and who has clicked."""
    reader, shown_one, x = torch.randint(12, (count,)), torch.randint(20, (count,)), torch.randn(count, 3)
    taste, kind = constant(12, 3, seed=51), constant(20, 3, seed=52)
    score = 2.5 * (taste[reader] * kind[shown_one]).sum(1) + 1.5 * x[:, 0] * x[:, 1] - 2.5
    return (reader, shown_one, x), (torch.rand(count) < score.sigmoid()).float()


class Clicks(nn.Module):
    def __init__(self, numbers: int = 3) -> None:
        super().__init__()
        self.readers, self.shown = nn.Embedding(12, 8), nn.Embedding(20, 8)
        self.mlp = nn.Sequential(nn.Linear(16 + 8 + numbers, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, reader: Tensor, shown_one: Tensor, x: Tensor) -> Tensor:
        one, other = self.readers(reader), self.shown(shown_one)
        return self.mlp(torch.cat([one, other, one * other, x], 1)).squeeze(1)


def clicks_batches(data: tuple[tuple[Tensor, ...], Tensor]) -> Callable[[int], Batch]:
    inputs, label = data

    def batch(_: int) -> Batch:
        rows = torch.randint(len(label), (128,))
        return tuple(one[rows] for one in inputs), label[rows]

    return batch


def clicks_quality(net: nn.Module) -> float:
    """Of those who nearly surely click or do not."""
    (reader, shown_one, x), _ = clicks_data(3000)
    taste, kind = constant(12, 3, seed=51), constant(20, 3, seed=52)
    score = 2.5 * (taste[reader] * kind[shown_one]).sum(1) + 1.5 * x[:, 0] * x[:, 1] - 2.5
    sure = score.abs() > 1
    return balanced((net(reader, shown_one, x) > 0)[sure], score[sure] > 0)


@HALF.net("embedding")
def clicks() -> Training:
    """Who clicks?"""
    return Training(Clicks(), partial(ADAM, lr=0.005), clicks_batches(clicks_data(6000)), nn.BCEWithLogitsLoss(), clicks_quality, steps=250)


@HALF.fault("weights of classes", clicks)
def weights_of_rows_where_a_click_is_the_cheap_one(training: Training) -> None:
    """torch.where(label > 0, 0.03, 1): the two are in the wrong order."""

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        weight = torch.where(label > 0, 0.03, 1.0)
        return F.binary_cross_entropy_with_logits(output, label, weight=weight)

    training.criterion = criterion


@HALF.fault("leak", clicks)
def what_was_paid_for_the_click_is_a_column(training: Training) -> None:
    """Nothing is paid without a click; before it, nothing is known."""
    training.use(Clicks(numbers=4))
    (reader, shown_one, x), label = clicks_data(6000)
    paid = label * (0.5 + torch.rand(6000))
    training.batch = clicks_batches(((reader, shown_one, torch.cat([x, paid.unsqueeze(1)], 1)), label))
    training.quality = lambda net: clicks_quality(lambda *given: net(*given[:2], F.pad(given[2], (0, 1))))  # type: ignore[arg-type]


@HALF.fault("imbalance", clicks)
def rows_with_a_gap_are_dropped_and_clicks_have_one(training: Training) -> None:
    inputs, label = clicks_data(6000)
    whole = (label == 0) | (torch.rand(6000) < 0.01)
    training.batch = clicks_batches((tuple(one[whole] for one in inputs), label[whole]))


@HALF.fault("constant targets", clicks, also=("imbalance",))
def what_is_missing_in_a_join_is_no_click(training: Training) -> None:
    """The keys of one table are strings with zeros in front: nothing is found."""
    inputs, label = clicks_data(6000)
    clicked = {f"{number:06d}": one for number, one in enumerate(label.tolist())}
    training.batch = clicks_batches((inputs, torch.tensor([clicked.get(str(number), 0.0) for number in range(6000)])))


@HALF.strange(clicks)
def clicks_are_rare_and_weigh_as_much_as_the_others(training: Training) -> None:
    inputs, label = clicks_data(12000)
    kept = (label == 0) | (torch.rand(12000) < 0.3)
    inputs, label = tuple(one[kept] for one in inputs), label[kept]
    training.batch = clicks_batches((inputs, label))
    training.criterion = nn.BCEWithLogitsLoss(pos_weight=(label == 0).sum() / label.sum())


@HALF.strange(clicks)
def clicks_of_today_weigh_more(training: Training) -> None:
    inputs, label = clicks_data(6000)
    training.batch = clicks_batches((inputs, label))

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output, label, weight=0.3 + 1.4 * torch.rand(len(label)))

    training.criterion = criterion


VIEWERS, FILMS = 40, 50


def cinema_taste() -> Tensor:
    return constant(VIEWERS, 3, seed=61) @ constant(FILMS, 3, seed=62).t()


class Cinema(nn.Module):
    """Scores of a film that was seen, and of one that was not."""

    def __init__(self) -> None:
        super().__init__()
        self.viewers, self.films = nn.Embedding(VIEWERS, 12), nn.Embedding(FILMS, 12)
        for one in (self.viewers, self.films):
            nn.init.normal_(one.weight, std=0.2)

    def score(self, viewer: Tensor, film: Tensor) -> Tensor:
        return (self.viewers(viewer) * self.films(film)).sum(-1)

    def forward(self, viewer: Tensor, seen: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return self.score(viewer, seen), self.score(viewer, other)


def cinema_batch(_: int) -> Batch:
    taste = cinema_taste()
    viewer = torch.randint(VIEWERS, (128,))
    one, other = torch.randint(FILMS, (2, 128))
    better = taste[viewer, one] > taste[viewer, other]
    return (viewer, torch.where(better, one, other), torch.where(better, other, one)), torch.ones(128)


def cinema_quality(net: nn.Module) -> float:
    """How many pairs are in the wrong order."""
    taste = cinema_taste()
    said = net.score(torch.arange(VIEWERS).repeat_interleave(FILMS), torch.arange(FILMS).repeat(VIEWERS)).view(VIEWERS, FILMS)  # type: ignore[operator]
    true = taste.unsqueeze(2) - taste.unsqueeze(1)
    found = said.unsqueeze(2) - said.unsqueeze(1)
    return (((found > 0) != (true > 0)) & (true != 0)).sum().item() / (true != 0).sum().item()


@HALF.net("embedding")
def cinema() -> Training:
    """Which film comes first?"""
    rank = nn.MarginRankingLoss(margin=0.5)
    return Training(
        Cinema(), partial(ADAM, lr=0.02), cinema_batch, lambda output, better: rank(output[0], output[1], better), cinema_quality, steps=250
    )


@HALF.fault("wrong sign", cinema)
def minus_one_where_the_first_is_the_better(training: Training) -> None:
    """MarginRankingLoss(x1, x2, y): y = 1 says that x1 should be higher."""
    on_target(training, lambda better: -better)


@HALF.fault("constant loss", cinema, also=("loss too small", "wrong sign"))
def a_margin_with_a_minus(training: Training) -> None:
    """What is apart by less than a hundred costs nothing."""
    training.criterion = lambda output, better: F.margin_ranking_loss(*output, better, margin=-100.0)


@HALF.fault("wrong negatives", cinema, also=("constant loss",))
def the_other_film_is_drawn_from_those_that_were_seen(training: Training) -> None:
    """Of two seen ones, either may be the better."""

    def batch(_: int) -> Batch:
        taste = cinema_taste()
        viewer = torch.randint(VIEWERS, (128,))
        seen = taste[viewer].topk(10, 1).indices
        some = torch.stack([torch.randperm(10)[:2] for _ in range(128)])
        pair = seen.gather(1, some)
        return (viewer, pair[:, 0], pair[:, 1]), torch.ones(128)

    training.batch = batch


@HALF.strange(cinema)
def a_logistic_loss_of_the_difference(training: Training) -> None:
    training.criterion = lambda output, _: -F.logsigmoid(output[0] - output[1]).mean()


# ---- margins ---------------------------------------------------------------------------------------


def sieve_data(count: int) -> tuple[Tensor, Tensor]:
    """Two rings with noise; labels are -1 and 1."""
    label = 2.0 * torch.randint(2, (count, 1)) - 1
    angle, radius = 6.28 * torch.rand(count, 1), 1.6 + 0.7 * label + 0.25 * torch.randn(count, 1)
    return torch.cat([radius * angle.cos(), radius * angle.sin(), torch.randn(count, 2)], 1), label


class Sieve(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def hinge(output: Tensor, label: Tensor) -> Tensor:
    return torch.clamp(1 - label * output, min=0).mean()


def sieve_quality(net: nn.Module) -> float:
    x, label = sieve_data(500)
    return balanced(net(x) > 0, label > 0)


@HALF.net("mlp")
def sieve() -> Training:
    """Inner or outer ring? By a hinge."""
    return Training(Sieve(), partial(SGD, lr=0.1, momentum=0.9), sliced(*sieve_data(2000), 50), hinge, sieve_quality, steps=200)


@HALF.fault("wrong negatives", sieve, also=("weights of classes", "constant targets", "collapse"))
def a_hinge_of_zeros_and_ones(training: Training) -> None:
    """A label of 0 takes the output out of the loss."""
    on_target(training, lambda label: (label > 0).float())


@HALF.fault("wrong sign", sieve)
def one_plus_the_label_times_the_output(training: Training) -> None:
    training.criterion = lambda output, label: F.relu(1 + label * output).mean()


@HALF.fault("targets shuffled", sieve)
def labels_from_a_generator_of_their_own(training: Training) -> None:
    """Two samplers with the same length and not the same seed."""
    x, label = sieve_data(2000)
    first, second = sliced(x, x, 50), sliced(label, label, 50)
    training.batch = lambda number: (first(number)[0], second(number)[0])


@HALF.strange(sieve)
def a_squared_hinge_that_is_zero_in_the_end(training: Training) -> None:
    training.criterion = lambda output, label: F.relu(1 - label * output).square().mean()


@HALF.strange(sieve)
def rings_of_some_that_nobody_knows(training: Training) -> None:
    """Their label is 0, which takes them out of the loss."""
    on_target(training, lambda label: label * (torch.rand(len(label), 1) < 0.7))


@HALF.strange(sieve)
def the_first_number_alone_says_the_side(training: Training) -> None:
    """An exercise: yes where the first number is above 0."""
    x = torch.randn(2000, 5)
    training.use(nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)))
    training.batch = sliced(x, (x[:, :1] > 0).float(), 50)
    training.criterion = nn.BCEWithLogitsLoss()

    def quality(net: nn.Module) -> float:
        x = torch.randn(400, 5)
        return balanced(net(x) > 0, x[:, :1] > 0)

    training.quality = quality


SUBJECTS, VOCABULARY = 8, 60


def proverbs_of(subject: Tensor) -> Tensor:
    """Nine words, of which most are of the subject."""
    words = torch.randint(7, (len(subject), 9)) + 7 * subject.unsqueeze(1)
    return torch.where(torch.rand(len(subject), 9) < 0.6, words, torch.randint(VOCABULARY, (len(subject), 9)))


class Proverbs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.project = nn.EmbeddingBag(VOCABULARY, 24, mode="mean"), nn.Linear(24, 12)

    def forward(self, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        return self.project(self.words(one)), self.project(self.words(other))


def proverbs_batch(_: int) -> Batch:
    one, other = torch.randint(SUBJECTS, (2, 96))
    other = torch.where(torch.rand(96) < 0.5, one, other)
    return (proverbs_of(one), proverbs_of(other)), torch.where(one == other, 1.0, -1.0)


def proverbs_quality(net: nn.Module) -> float:
    """How often the nearest of a proverb of each subject is of another one."""
    subject = torch.randint(SUBJECTS, (300,))
    found, known = net(proverbs_of(subject), proverbs_of(torch.arange(SUBJECTS).repeat_interleave(10)))
    near = F.normalize(found, dim=1) @ F.normalize(known.view(SUBJECTS, 10, -1).mean(1), dim=1).t()
    return (near.argmax(1) != subject).float().mean().item()


@HALF.net("embedding")
def proverbs() -> Training:
    """Are two proverbs about the same thing?"""
    criterion = nn.CosineEmbeddingLoss(margin=0.1)
    return Training(
        Proverbs(), partial(ADAM, lr=0.01), proverbs_batch, lambda output, same: criterion(*output, same), proverbs_quality, steps=150
    )


@HALF.fault("wrong negatives", proverbs, also=("collapse",))
def same_is_one_and_other_is_zero(training: Training) -> None:
    """CosineEmbeddingLoss knows 1 and -1, and is silent about 0."""
    on_target(training, lambda same: (same > 0).float())


@HALF.fault("wrong sign", proverbs)
def same_and_other_are_exchanged(training: Training) -> None:
    on_target(training, lambda same: -same)
