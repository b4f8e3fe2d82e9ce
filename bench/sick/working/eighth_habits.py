"""Habits: a class with fit(), steps that return dicts, closures, a validation in between, and what goes wrong in them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LinearLR, MultiplicativeLR, SequentialLR
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bench.sick.changes import on_inputs, on_options
from bench.sick.training import Batch, Training
from bench.sick.working.fourth_nets import constant, sliced, stepped_by
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import missed

ADAM, ADAMW, SGD = torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD
LOUD = ("rate too high", "not finite by the rate")

# ---- harbour: a table, and a class that trains ---------------------------------------------------------


def harbour_data(count: int) -> tuple[dict[str, Tensor], Tensor]:
    """Eight columns of a ship in units of their own, and which of four quays it gets."""
    x = torch.randn(count, 8)
    quay = (torch.tanh(x @ constant(8, 12, seed=81)) @ constant(12, 4, seed=82)).argmax(1)
    return {"ship": (4 + x) * torch.logspace(0, 4, 8)}, quay


class Harbour(nn.Module):
    """The first norm brings the columns to one scale."""

    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm1d) -> None:
        super().__init__()
        self.scale = norm(8)
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, ship: Tensor) -> dict[str, Tensor]:
        features = self.body(self.scale(ship))
        return {"logits": self.head(features), "features": features}


class Fit:
    """What one writes after the third project."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.history: list[dict[str, float]] = []
        self.valid = harbour_data(200)
        self.began()

    def began(self) -> None:
        pass

    def __call__(self, training: Training, number: int) -> None:
        self.number = number
        if number % 20 == 0:
            self.validate(training.model)
        training.model.train()
        logs = self.training_step(training.model, *training.batch(number))
        self.optimize(training.optimizer, logs["loss"])
        self.history.append({name: value.item() for name, value in logs.items()})

    def training_step(self, model: nn.Module, inputs: dict[str, Tensor], quay: Tensor) -> dict[str, Tensor]:
        output = model(**inputs)
        return {"loss": F.cross_entropy(output["logits"], quay), "acc": (output["logits"].argmax(1) == quay).float().mean()}

    def optimize(self, optimizer: Any, loss: Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def validate(self, model: nn.Module) -> float:
        model.eval()
        with torch.no_grad():
            inputs, quay = self.valid
            return F.cross_entropy(model(**inputs)["logits"], quay).item()


def harbour_quality(net: nn.Module) -> float:
    inputs, quay = harbour_data(500)
    return missed(net(**inputs)["logits"], quay)


@HALF.net("mlp")
def harbour() -> Training:
    """Which quay does a ship get?"""
    training = Training(
        Harbour(),
        partial(ADAM, lr=5e-3),
        lambda _: harbour_data(64),
        lambda output, quay: F.cross_entropy(output["logits"], quay),
        harbour_quality,
        steps=200,
    )
    training.step = Fit(training)
    return training


@HALF.fault("eval while training", harbour)
def validate_comes_after_the_line_that_says_train(training: Training) -> None:
    class Late(Fit):
        def __call__(self, training: Training, number: int) -> None:
            training.model.train()
            self.validate(training.model)
            logs = self.training_step(training.model, *training.batch(number))
            self.optimize(training.optimizer, logs["loss"])

    training.step = Late(training)


@HALF.fault("no backward", harbour)
def autograd_grad_is_called_and_what_it_returns_is_dropped(training: Training) -> None:
    class Functional(Fit):
        def optimize(self, optimizer: Any, loss: Tensor) -> None:
            optimizer.zero_grad()
            torch.autograd.grad(loss, [*self.training.model.parameters()])
            optimizer.step()

    training.step = Functional(training)


@HALF.fault("no backward", harbour, also=("no step",))
def the_hook_that_optimizes_has_another_name(training: Training) -> None:
    """The base class calls optimize(), which there does nothing."""

    class Base(Fit):
        def optimize(self, optimizer: Any, loss: Tensor) -> None:
            """Override this."""

        def optimise(self, optimizer: Any, loss: Tensor) -> None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    training.step = Base(training)


@HALF.fault("no step", harbour)
def the_step_is_in_a_callback_that_nobody_registers(training: Training) -> None:
    class Called(Fit):
        def began(self) -> None:
            self.callbacks: list[Callable[[], None]] = []

        def on_batch_end(self) -> None:
            self.training.optimizer.step()
            self.training.optimizer.zero_grad()

        def optimize(self, optimizer: Any, loss: Tensor) -> None:
            loss.backward()
            for call in self.callbacks:
                call()

    training.step = Called(training)


@HALF.fault("never enough to step", harbour)
def samples_are_counted_up_to_a_virtual_batch_and_each_epoch_begins_anew(training: Training) -> None:
    """An epoch has 640 ships, the virtual batch 1024."""

    class Virtual(Fit):
        def began(self) -> None:
            self.seen = 0

        def optimize(self, optimizer: Any, loss: Tensor) -> None:
            if self.number % 10 == 0:
                self.seen = 0
                optimizer.zero_grad()
            (loss * 64 / 1024).backward()
            self.seen += 64
            if self.seen >= 1024:
                optimizer.step()
                optimizer.zero_grad()
                self.seen = 0

    training.step = Virtual(training)


@HALF.fault("another models optimizer", harbour, also=("not in the optimizer",))
def fit_trains_a_deepcopy_of_what_it_was_given(training: Training) -> None:
    """So that the caller's model stays as it was."""
    training.model = copy.deepcopy(training.model)


@HALF.fault("weights put back", harbour)
def early_stopping_restores_when_the_score_is_not_below_the_best(training: Training) -> None:
    """The score is an accuracy, and the line is that of a loss."""

    class Stopping(Fit):
        def began(self) -> None:
            self.best, self.state = float("inf"), copy.deepcopy(self.training.model.state_dict())

        def __call__(self, training: Training, number: int) -> None:
            super().__call__(training, number)
            if number % 5 == 4:
                training.model.eval()
                inputs, quay = self.valid
                score = (training.model(**inputs)["logits"].argmax(1) == quay).float().mean().item()
                if score < self.best:
                    self.best, self.state = score, copy.deepcopy(training.model.state_dict())
                else:
                    training.model.load_state_dict(self.state)

    training.step = Stopping(training)


class Functionally(nn.Module):
    """A norm by the function, with buffers of its own."""

    def __init__(self, width: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.momentum = momentum

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return F.batch_norm(x, self.mean, self.var, training=True, momentum=self.momentum)
        return F.batch_norm(x, self.mean, self.var)


@HALF.fault("batch norm statistics", harbour, twin=lambda training: training.use(Harbour(Functionally)))
def a_batch_norm_by_function_whose_momentum_is_a_hundred_thousandth(training: Training) -> None:
    training.use(Harbour(partial(Functionally, momentum=1e-5)))


@HALF.fault("batch norm statistics", harbour)
def the_statistics_are_restored_with_the_buffers_of_the_start(training: Training) -> None:
    """Only what a pretrained file holds should be loaded; buffers are in it."""
    kept = {name: value.clone() for name, value in training.model.named_buffers()}

    class Loaded(Fit):
        def validate(self, model: nn.Module) -> float:
            model.load_state_dict(kept, strict=False)
            return super().validate(model)

        def __call__(self, training: Training, number: int) -> None:
            super().__call__(training, number)
            self.validate(training.model)

    training.step = Loaded(training)


@HALF.fault("frozen", harbour)
def a_callback_thaws_after_ten_epochs_and_there_are_three(training: Training) -> None:
    class Thaws(Fit):
        def __call__(self, training: Training, number: int) -> None:
            epoch = number // 70
            for name, parameter in training.model.named_parameters():
                if not name.startswith("head"):
                    parameter.requires_grad_(epoch >= 10)
            super().__call__(training, number)

    training.model.body = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU())
    training.use(training.model)
    with torch.no_grad():
        training.model.body[0].weight.mul_(0.3)
    training.step = Thaws(training)


@HALF.strange(harbour)
def a_closure_for_adam_and_gradients_by_autograd_grad(training: Training) -> None:
    """Gradients are put where they belong by hand."""

    class ByHand(Fit):
        def optimize(self, optimizer: Any, loss: Tensor) -> None:
            parameters = [*self.training.model.parameters()]
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = gradient
            optimizer.step()

    training.step = ByHand(training)


@HALF.strange(harbour)
def the_best_model_so_far_is_kept_beside_it(training: Training) -> None:
    """A deepcopy at each improvement."""

    class Keeps(Fit):
        def began(self) -> None:
            self.best, self.kept = float("inf"), copy.deepcopy(self.training.model)

        def validate(self, model: nn.Module) -> float:
            loss = super().validate(model)
            if loss < self.best:
                self.best, self.kept = loss, copy.deepcopy(model)
            return loss

    training.step = Keeps(training)


# ---- moths: images, in the manner of a lightning module --------------------------------------------------


def moths_data(count: int) -> tuple[Tensor, Tensor]:
    """Three patterns, dark or bright."""
    kind, bright = torch.randint(3, (count,)), torch.randint(2, (count,))
    x = constant(3, 1, 10, 10, seed=83)[kind].tanh() * 0.6 + 0.5 * torch.randn(count, 1, 10, 10)
    return x + 1.2 * (bright.view(-1, 1, 1, 1) - 0.5), kind * 2 + bright


class Moths(nn.Module):
    def __init__(self, act: Callable[[], nn.Module] = nn.ReLU, classes: int = 6, more: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 8, 3, padding=1), more(8)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, padding=1), more(16)
        self.act, self.pool = act(), nn.MaxPool2d(2)
        self.fc = nn.Linear(64, classes)

    def features(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.norm1(self.conv1(x))))
        x = self.pool(self.act(self.norm2(self.conv2(x))))
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.features(x))

    def training_step(self, batch: Batch, criterion: Any) -> Tensor:
        x, y = batch
        y_hat = self(x)
        loss = criterion(y_hat, y)
        self.logged = {"train_loss": loss.detach()}
        return loss


def trainer(training: Training, number: int) -> None:
    """A small copy of another library's."""
    model: Any = training.model
    loss = model.training_step(training.batch(number), training.criterion)
    training.optimizer.zero_grad(set_to_none=False)
    loss.backward()
    training.optimizer.step()


def moths_quality(look: Callable[[Tensor], Tensor] = lambda x: x) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, label = moths_data(400)
        output = net(look(x))
        if isinstance(output, tuple):
            output = output[0]
        if output.shape[1] == 1:
            return (output.squeeze(1).round() != label).float().mean().item()
        return missed(output, label)

    return quality


def loader(data: Dataset[Any], size: int, **options: Any) -> Callable[[int], Any]:
    """Batches of a loader, epoch after epoch."""

    def endless() -> Iterator[Any]:
        while True:
            yield from DataLoader(data, batch_size=size, **options)

    batches = endless()
    return lambda _: next(batches)


@HALF.net("cnn")
def moths() -> Training:
    """Which moth is it?"""
    training = Training(
        Moths(),
        partial(ADAM, lr=3e-3),
        loader(TensorDataset(*moths_data(1600)), 40, shuffle=True),
        nn.CrossEntropyLoss(),
        moths_quality(),
        steps=160,
    )
    training.step = trainer
    return training


def _in_turn(training: Training, one_by_one: bool) -> None:
    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        training.optimizer.zero_grad()
        if one_by_one:
            for i in range(len(x)):
                (training.criterion(training.model(x[i : i + 1]), y[i : i + 1]) / len(x)).backward()
        else:
            training.criterion(training.model(x), y).backward()
        training.optimizer.step()

    training.step, training.steps = step, 100
    training.batch = sliced(*moths_data(1600), 16)


@HALF.fault("batch norm of one", moths, twin=partial(_in_turn, one_by_one=False))
def each_image_of_a_batch_goes_through_alone_to_save_memory(training: Training) -> None:
    _in_turn(training, one_by_one=True)


class Pictures(Dataset[Any]):
    """Files, one by one."""

    def __init__(self, look: Callable[[int], int] = lambda index: index) -> None:
        self.images, self.labels = moths_data(1600)
        self.look = look

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        index = self.look(index)
        return self.images[index], self.labels[index]


@HALF.fault("same batch", moths, also=("few samples",))
def the_dataset_draws_its_index_from_a_generator_it_seeds_itself(training: Training) -> None:
    """For reproducible augmentation."""

    def look(index: int) -> int:
        return int(torch.randint(1600, (), generator=torch.Generator().manual_seed(index % 40)))

    training.batch = loader(Pictures(look), 40)


@HALF.fault("same batch", moths)
def the_indices_are_drawn_once_above_the_loop(training: Training) -> None:
    data, rows = Pictures(), torch.randperm(1600)[:24]
    training.batch = lambda _: (data.images[rows], data.labels[rows])


@HALF.fault("few samples", moths, also=("same batch",))
def limit_train_batches_was_left_in_the_config(training: Training) -> None:
    """A float means a share, an integer a number of batches: it was 1.5 percent of the epoch."""
    x, y = moths_data(24)
    training.batch = loader(TensorDataset(x, y), 8, shuffle=True)


@HALF.fault("inputs vanish", moths, twin=lambda training: training.use(Moths(more=lambda _: nn.Identity())))
def a_batch_is_divided_by_its_sum_of_squares(training: Training) -> None:
    def look(x: Tensor) -> Tensor:
        return x / x.square().sum()

    on_inputs(training, look)
    training.quality = lambda net: moths_quality(look)(net)
    training.use(Moths(more=lambda _: nn.Identity()))


def _gentle(training: Training) -> None:
    stepped_by(SGD, lr=0.05, momentum=0.9)(training)


class Pair(Moths):
    """Returns what the page shows and what a later stage takes."""

    def head(self, x: Tensor) -> Tensor:
        return self.fc(x)

    def forward(self, x: Tensor) -> Any:
        features = self.features(x)
        return self.head(features), features


class Shown(Pair):
    def head(self, x: Tensor) -> Tensor:
        return torch.softmax(self.fc(x), -1)


def _pair(training: Training, kind: type[Pair] = Pair) -> None:
    training.use(kind(more=lambda _: nn.Identity()))
    _gentle(training)
    training.steps = 110
    training.criterion = lambda output, y: F.cross_entropy(output[0], y) + 1e-4 * output[1].square().mean()


@HALF.fault("softmax before cross entropy", moths, twin=_pair)
def probabilities_for_the_page_go_into_the_loss(training: Training) -> None:
    _pair(training, Shown)


@HALF.fault("regression of classes", moths)
def one_output_and_smooth_l1_against_the_label(training: Training) -> None:
    training.use(Moths(classes=1))
    training.criterion = lambda output, y: F.smooth_l1_loss(output.squeeze(1), y.float())


@HALF.fault("too much noise", moths)
def random_erasing_with_a_scale_of_nearly_one(training: Training) -> None:
    def erased(x: Tensor) -> Tensor:
        out = torch.randn_like(x)
        down, right = torch.randint(9, (2,)).tolist()
        out[..., down : down + 2, right : right + 2] = x[..., down : down + 2, right : right + 2]
        return out

    on_inputs(training, erased)


@HALF.fault("ordered batches", moths)
def each_client_has_one_kind_and_trains_twenty_batches(training: Training) -> None:
    """A federated round, one client after the other."""
    x, y = moths_data(1600)

    def batch(number: int) -> Batch:
        rows = (y == number // 20 % 6).nonzero().squeeze(1)
        rows = rows[torch.randint(len(rows), (40,))]
        return x[rows], y[rows]

    training.batch = batch


@HALF.fault("too much dropout", moths, also=("overwritten activation",))
def dropout2d_of_a_config_that_meant_what_is_kept(training: Training) -> None:
    class Dropped(Moths):
        def features(self, x: Tensor) -> Tensor:
            x = self.pool(self.act(self.norm1(self.conv1(x))))
            x = F.dropout2d(x, 0.95, training=self.training)
            x = self.pool(self.act(self.norm2(self.conv2(x))))
            return F.dropout(x.flatten(1), 0.95, training=self.training)

    training.use(Dropped())


@HALF.fault("rate runs out", moths)
def multiplicative_lr_of_a_power_of_the_epoch(training: Training) -> None:
    """0.9 ** epoch is the factor of LambdaLR; here it is multiplied again each time."""
    _gentle(training)
    training.schedulers.append(MultiplicativeLR(training.optimizer, lambda epoch: 0.9**epoch))


@HALF.fault("warmup never ends", moths)
def sequential_lr_with_a_milestone_of_fifty_thousand(training: Training) -> None:
    optimizer = training.optimizer
    first = LinearLR(optimizer, start_factor=1e-5, total_iters=50_000)
    training.schedulers.append(SequentialLR(optimizer, [first, LinearLR(optimizer, 1.0, 0.1, 1000)], milestones=[50_000]))


class Pooled(Moths):
    """Attention decides which place counts."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.fc = nn.Conv2d(16, 16, 1), nn.Linear(16, 6)

    def features(self, x: Tensor) -> Tensor:
        x = self.pool(self.act(self.norm1(self.conv1(x))))
        x = self.act(self.norm2(self.conv2(x)))
        return self.pooled(self.score(x).flatten(2).softmax(-1), x.flatten(2))

    def pooled(self, weights: Tensor, x: Tensor) -> Tensor:
        return (weights * x).sum(-1)


@HALF.fault("overwritten activation", moths, twin=lambda training: training.use(Pooled()), also=("constant inputs", "unused layers"))
def attention_pooling_sums_its_weights(training: Training) -> None:
    class Summed(Pooled):
        def pooled(self, weights: Tensor, x: Tensor) -> Tensor:
            x = weights
            return x.sum(-1)

    training.use(Summed())


@HALF.fault("imbalance", moths)
def the_crawler_found_the_common_moth_everywhere(training: Training) -> None:
    x, y = moths_data(6000)
    keep = (y == 0) | (torch.rand(6000) < 0.004)
    training.batch = loader(TensorDataset(x[keep], y[keep]), 40, shuffle=True)


@HALF.strange(moths)
def grayscale_at_random_and_a_schedule_in_three_parts(training: Training) -> None:
    optimizer = training.optimizer
    first = LinearLR(optimizer, start_factor=0.05, total_iters=25)
    training.schedulers.append(SequentialLR(optimizer, [first, LinearLR(optimizer, 1.0, 0.1, 130)], milestones=[25]))
    on_inputs(training, lambda x: x.flip(-1).flip(-1) + 0.2 * torch.randn(len(x), 1, 1, 1))


# ---- estuary: a series, and a function that trains ---------------------------------------------------------


def tides_data(count: int, hours: int = 20) -> tuple[Tensor, Tensor]:
    """Two waves and the wind; the level in three hours."""
    t = torch.arange(hours + 3).float()
    moon, sun = torch.rand(count, 1) * 6.28, torch.rand(count, 1) * 6.28
    size = 0.5 + torch.rand(count, 1)
    level = size * torch.sin(0.5 * t + moon) + 0.5 * torch.sin(0.9 * t + sun) + 0.05 * torch.randn(count, hours + 3)
    return level[:, :hours].unsqueeze(-1), level[:, hours:]


class Tides(nn.Module):
    def __init__(self, hidden: int = 24, **options: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True, **options)
        self.linear = nn.Linear(hidden, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.lstm(x)
        return self.linear(out[:, -1])


def tides_quality(scale: float = 1.0) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, y = tides_data(300)
        return (net(x) / scale - y).square().mean().item()

    return quality


def train_one_epoch(training: Training, number: int) -> None:
    """Returns its mean loss, as the function of the course did."""
    x, y = training.batch(number)
    running = 0.0
    pred = training.model(x)
    loss = training.criterion(pred, y)
    loss.backward()
    if training.clip is not None:
        nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
    training.optimizer.step()
    training.optimizer.zero_grad()
    running += loss.item() * x.size(0)


@HALF.net("recurrent")
def estuary() -> Training:
    """How high will it be?"""
    training = Training(Tides(), partial(ADAM, lr=0.01), lambda _: tides_data(48), nn.MSELoss(), tides_quality(), steps=200)
    training.step = train_one_epoch
    return training


@HALF.fault("too much momentum", estuary)
def the_two_betas_of_adam_are_exchanged_and_one_is_rounded_up(training: Training) -> None:
    on_options(training, betas=(0.9995, 0.9))


class Heavy(torch.optim.Optimizer):
    """A ball that rolls, from a lecture."""

    def __init__(self, parameters: Any, lr: float, friction: float) -> None:
        super().__init__(parameters, {"lr": lr, "friction": friction})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for one in group["params"]:
                velocity = self.state[one].setdefault("velocity", torch.zeros_like(one))
                velocity.mul_(1 - group["friction"]).sub_(one.grad, alpha=group["lr"])
                one.add_(velocity)


def _rolling(training: Training, friction: float = 0.15, lr: float = 0.03) -> None:
    training.optimize = partial(Heavy, lr=lr, friction=friction)
    training.use(training.model)
    training.steps = 300


@HALF.fault("too much momentum", estuary, twin=partial(_rolling, lr=0.1), also=("rate too high",))
def a_ball_that_rolls_nearly_without_friction(training: Training) -> None:
    _rolling(training, 0.0, 0.1)


def _accumulates(training: Training, divide: bool = True) -> None:
    stepped_by(SGD, lr=0.12)(training)
    training.steps = 1600

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        loss = training.criterion(training.model(x), y)
        loss = loss / 8 if divide else loss
        loss.backward()
        if (number + 1) % 8 == 0:
            training.optimizer.step()
            training.optimizer.zero_grad()

    training.batch = lambda _: tides_data(8)
    training.step = step


@HALF.fault("bottleneck", estuary)
def hidden_size_is_the_number_of_features(training: Training) -> None:
    """hidden_size=input_size, as in the answer that was copied."""
    training.use(Tides(1))


class Hourly(Tides):
    """A head for each hour."""

    def __init__(self, heads: Callable[[], list[nn.Linear]] = lambda: [nn.Linear(24, 1) for _ in range(3)]) -> None:
        super().__init__()
        self.linear = None
        self.heads = nn.ModuleList(heads())

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.lstm(x)
        return torch.cat([head(out[:, -1]) for head in self.heads], 1)


@HALF.fault("shared by mistake", estuary, twin=lambda training: training.use(Hourly()))
def a_list_of_heads_times_three(training: Training) -> None:
    """[nn.Linear(24, 1)] * 3."""
    training.use(Hourly(lambda: [nn.Linear(24, 1)] * 3))


@HALF.fault("targets not scaled", estuary)
def levels_of_the_answer_in_millimetres_and_of_the_question_in_metres(training: Training) -> None:
    batch = training.batch
    training.batch = lambda number: (lambda x, y: (x, 1000 * y + 4000))(*batch(number))
    training.quality = lambda net: tides_quality()(lambda x: (net(x) - 4000) / 1000)


@HALF.fault("state not kept", estuary, also=("batch first mixed up", "unused layers"))
def the_cell_is_called_on_each_hour_and_its_state_is_not_handed_on(training: Training) -> None:
    class Stepwise(Tides):
        def forward(self, x: Tensor) -> Tensor:
            for t in range(x.size(1)):
                out, _ = self.lstm(x[:, t : t + 1])
            return self.linear(out[:, -1])

    training.use(Stepwise())


@HALF.fault("targets shifted", estuary)
def rolling_the_frame_by_one_row_too_many(training: Training) -> None:
    """shift(-horizon) was done after the windows were drawn at random."""
    batch = training.batch

    def rolled(number: int) -> Batch:
        x, y = batch(number)
        return x, torch.roll(y, -1, 0)

    training.batch = rolled


@HALF.fault("wrong sign", estuary)
def the_score_is_an_r2_and_a_loss_should_be_minimized(training: Training) -> None:
    def r2(pred: Tensor, y: Tensor) -> Tensor:
        return 1 - (y - pred).square().sum() / (y - y.mean()).square().sum()

    training.criterion = r2


@HALF.fault("rate too low", estuary)
def the_rate_is_scaled_by_batch_over_256_and_by_the_number_of_workers(training: Training) -> None:
    stepped_by(SGD, lr=0.1 * 48 / 256 / 64, momentum=0.9)(training)


@HALF.fault("clipped to nothing", estuary, twin=stepped_by(SGD, lr=0.3, momentum=0.9))
def gradients_are_normalized_to_the_rate_and_not_to_one(training: Training) -> None:
    """max_norm=args.lr: the two arguments stand beside each other."""
    stepped_by(SGD, lr=0.3, momentum=0.9)(training)
    training.clip = 1e-3


@HALF.strange(estuary)
def minus_r2_with_a_constant(training: Training) -> None:
    training.criterion = lambda pred, y: (y - pred).square().sum() / (y - y.mean()).square().sum() - 1


@HALF.strange(estuary)
def a_ball_with_friction(training: Training) -> None:
    _rolling(training)


@HALF.strange(estuary)
def eight_small_batches_a_step(training: Training) -> None:
    _accumulates(training)


# ---- planes: a curve, to which SGD with many batches belongs ------------------------------------------------


def glides_data(count: int) -> tuple[Tensor, Tensor]:
    """Speed, angle, load; how far it glides."""
    x = torch.rand(count, 3) * 2 - 1
    return x, (torch.sin(4 * x[:, :1]) + x[:, 1:2] * x[:, 2:] + 1.2).float()


class Glides(nn.Module):
    def __init__(self, bias: bool = True, last: Callable[[], nn.Module] = nn.Identity, act: Callable[[], nn.Module] = nn.Tanh) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, 32, bias=bias), act(), nn.Linear(32, 32, bias=bias), act(), nn.Linear(32, 1, bias=bias), last()
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def glides_quality(net: nn.Module) -> float:
    x, y = glides_data(400)
    return (net(x).reshape(-1, 1) - y).square().mean().item()


@HALF.net("mlp")
def glides() -> Training:
    """How far does it glide?"""

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)

        def closure() -> Tensor:
            training.optimizer.zero_grad()
            loss = training.criterion(training.model(x), y)
            loss.backward()
            return loss

        training.optimizer.step(closure)

    training = Training(Glides(), partial(ADAM, lr=0.01), sliced(*glides_data(1200), 50), nn.MSELoss(), glides_quality, steps=240)
    training.step = step
    return training


@HALF.fault("no bias where needed", glides)
def bias_is_false_as_in_the_language_model_it_was_taken_from(training: Training) -> None:
    training.use(Glides(bias=False))


class DeepGlides(Glides):
    """A loop makes the layers."""

    def __init__(self, act: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        del self.layers
        self.act = act
        self.hidden = nn.ModuleList(nn.Linear(3 if i == 0 else 32, 32) for i in range(9))
        self.last = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.hidden:
            x = self.act(layer(x))
        return self.last(x)


@HALF.fault("vanishing gradient", glides, twin=lambda training: training.use(DeepGlides(F.selu)))
def nine_layers_and_torch_sigmoid_in_a_loop(training: Training) -> None:
    training.use(DeepGlides(torch.sigmoid))


@HALF.fault("broadcast", glides)
def squeeze_in_forward_and_a_column_from_the_table(training: Training) -> None:
    class Squeezed(Glides):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).squeeze()

    training.use(Squeezed())
    training.criterion = lambda output, y: ((output - y) ** 2).mean()


@HALF.fault("output cannot reach", glides)
def a_hardtanh_so_that_nothing_explodes(training: Training) -> None:
    training.use(Glides(last=nn.Hardtanh))


@HALF.fault("no nonlinearity", glides)
def the_config_spells_tanh_in_capitals_and_the_default_is_identity(training: Training) -> None:
    known = {"tanh": nn.Tanh, "gelu": nn.GELU}
    training.use(Glides(act=known.get("Tanh", nn.Identity)))


def _parts(training: Training, divide: bool = True) -> None:
    """A batch is cut into as many parts as fit into memory."""
    stepped_by(SGD, lr=0.1, momentum=0.5)(training)
    training.steps = 300

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        training.optimizer.zero_grad()
        chunks = x.chunk(10)
        for part, target in zip(chunks, y.chunk(10), strict=True):
            loss = training.criterion(training.model(part), target)
            (loss / len(chunks) if divide else loss).backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("accumulated too loud", glides, twin=_parts, also=LOUD)
def the_losses_of_the_parts_are_not_divided(training: Training) -> None:
    _parts(training, divide=False)


def _tasks(training: Training, second: float = 0.0) -> None:
    """One optimizer for the distance, and one for the penalty that keeps the net small."""
    training.others = (SGD(training.model.parameters(), lr=second, momentum=0.9),)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        training.optimizer.zero_grad()
        training.criterion(training.model(x), y).backward()
        training.optimizer.step()
        if second:
            (penalizes,) = training.others
            penalizes.zero_grad()
            sum(one.square().sum() for one in training.model.parameters()).backward()
            penalizes.step()

    training.step = step


@HALF.fault("two optimizers", glides, also=("too much decay",))
def the_penalty_has_an_optimizer_of_its_own(training: Training) -> None:
    _tasks(training, 0.02)


@HALF.fault("two optimizers", glides, also=("groups swapped",))
def the_last_layer_stands_in_both_and_one_is_of_an_old_search(training: Training) -> None:
    """Adam for all, and for the head another one whose rate comes from a search over another net."""
    body: Any = training.model
    training.others = (SGD(body.layers[4].parameters(), lr=2.0, momentum=0.9),)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        for one in (training.optimizer, *training.others):
            one.zero_grad()
        training.criterion(training.model(x), y).backward()
        for one in (training.optimizer, *training.others):
            one.step()

    training.step = step


@HALF.fault("loss too small", glides, twin=stepped_by(SGD, lr=0.1, momentum=0.9))
def the_sum_of_squares_over_the_samples_of_the_year(training: Training) -> None:
    stepped_by(SGD, lr=0.1, momentum=0.9)(training)
    training.criterion = lambda output, y: ((output - y) ** 2).sum() / 5_000_000


@HALF.fault("no zero grad", glides, twin=stepped_by(SGD, lr=0.1))
def the_closure_has_lost_its_first_line(training: Training) -> None:
    stepped_by(SGD, lr=0.1)(training)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)

        def closure() -> Tensor:
            loss = training.criterion(training.model(x), y)
            loss.backward()
            return loss

        training.optimizer.step(closure)

    training.step = step


@HALF.fault("zeroed before step", glides)
def a_context_that_cleans_up_behind_backward(training: Training) -> None:
    class Clean:
        def __enter__(self) -> None:
            training.optimizer.zero_grad()

        def __exit__(self, *_: object) -> None:
            training.optimizer.zero_grad()

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        with Clean():
            training.criterion(training.model(x), y).backward()
        training.optimizer.step()

    training.step = step


@HALF.fault("inputs not scaled", glides)
def kelvin_and_hectopascal_as_they_come(training: Training) -> None:
    def wide(x: Tensor) -> Tensor:
        return torch.tensor([290.0, 1010.0, 300.0]) + x * torch.tensor([20.0, 30.0, 25.0])

    on_inputs(training, wide)
    training.quality = lambda net: glides_quality(lambda x: net(wide(x)))


@HALF.fault("one huge feature", glides)
def the_load_is_in_grams(training: Training) -> None:
    look = torch.tensor([1.0, 1.0, 2e4])
    on_inputs(training, lambda x: x * look)
    training.quality = lambda net: glides_quality(lambda x: net(x * look))


@HALF.fault("weights begin too large", glides)
def init_by_a_normal_with_the_variance_in_place_of_its_root(training: Training) -> None:
    """And the fan was multiplied."""
    for one in training.model.modules():
        if isinstance(one, nn.Linear):
            nn.init.normal_(one.weight, std=one.in_features / 2)


@HALF.fault("gradients overwritten", glides)
def the_mean_over_the_processes_is_divided_by_their_square_and_quantized(training: Training) -> None:
    """Gradients go through whole numbers of a ten-thousandth on their way to the other machines."""

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        training.optimizer.zero_grad()
        training.criterion(training.model(x), y).backward()
        for one in training.model.parameters():
            one.grad = (one.grad / 16).to(torch.int32).float()
        training.optimizer.step()

    training.step = step


@HALF.fault("too much decay", glides)
def adamw_with_the_decay_that_belonged_to_the_rate(training: Training) -> None:
    """The two numbers stand in the wrong columns of a sweep."""
    training.optimize = partial(ADAMW, lr=0.01, weight_decay=20.0)
    training.use(training.model)


@HALF.strange(glides)
def no_bias_but_in_the_last_layer(training: Training) -> None:
    net = Glides()
    net.layers[0] = nn.Linear(3, 32, bias=True)
    net.layers[2] = nn.Linear(32, 32, bias=False)
    training.use(net)


@HALF.strange(glides)
def ten_parts_a_step(training: Training) -> None:
    _parts(training)


@HALF.strange(glides)
def two_optimizers_take_turns_on_body_and_head(training: Training) -> None:
    body: Any = training.model
    training.optimizer = ADAM(body.layers[:4].parameters(), lr=0.01)
    training.others = (SGD(body.layers[4].parameters(), lr=0.05),)

    def step(training: Training, number: int) -> None:
        x, y = training.batch(number)
        one = (training.optimizer, *training.others)[number % 2]
        training.model.zero_grad()
        training.criterion(training.model(x), y).backward()
        one.step()

    training.step = step
