"""Trainings of questions on forums: images, tables, masks and a curve, each as its author had written it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench.sick.changes import looped, on_inputs, on_options, on_target
from bench.sick.training import Training
from bench.sick.working.fourth_nets import constant, sliced, stepped_by
from bench.sick.working.half import HALF
from bench.sick.working.third_nets import missed

ADAM, SGD = torch.optim.Adam, torch.optim.SGD
LOUD = ("rate too high", "not finite by the rate")

# ---- digits: the convolutional net of the first tutorial ----------------------------------------------


def digits_data(count: int, classes: int = 6) -> tuple[Tensor, Tensor]:
    """Small images, each a shape that is moved about, between 0 and 1."""
    label = torch.randint(classes, (count,))
    shapes = (constant(classes, 1, 7, 7, seed=70) > 0.2).float()
    images = torch.zeros(count, 1, 12, 12)
    down, right = torch.randint(3, (2,)).tolist()
    images[:, :, down : down + 7, right : right + 7] = shapes[label]
    return (images + 0.25 * torch.rand(count, 1, 12, 12)).clamp(0, 1), label


def digits_many(count: int) -> tuple[Tensor, Tensor]:
    parts = [digits_data(count // 20) for _ in range(20)]
    return torch.cat([one[0] for one in parts]), torch.cat([one[1] for one in parts])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 16, 3)
        self.fc1, self.fc2 = nn.Linear(64, 40), nn.Linear(40, 6)

    def features(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(F.pad(self.conv2(x), (1, 0, 1, 0)), 2))
        return x.view(x.size(0), -1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.fc1(self.features(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def digits_quality(look: Callable[[Tensor], Tensor] = lambda x: x) -> Callable[[nn.Module], float]:
    def quality(net: nn.Module) -> float:
        x, label = digits_many(400)
        return missed(net(look(x)), label)

    return quality


@HALF.net("cnn")
def digits() -> Training:
    """Which digit is it?"""
    return Training(Net(), partial(ADAM, lr=0.003), sliced(*digits_many(1600), 40), F.nll_loss, digits_quality(), steps=240)


def digits_by_sgd(training: Training) -> None:
    stepped_by(SGD, lr=0.04, momentum=0.9)(training)


@HALF.fault("no log", digits, twin=lambda training: stepped_by(SGD, lr=0.06, momentum=0.5)(training))
def softmax_and_nll_and_the_loss_is_negative(training: Training) -> None:
    """And asks whether a loss may be negative."""

    class Chances(Net):
        def forward(self, x: Tensor) -> Tensor:
            x = F.relu(self.fc1(self.features(x)))
            return F.softmax(self.fc2(x), dim=1)

    stepped_by(SGD, lr=0.06, momentum=0.5)(training)
    training.use(Chances())


@HALF.fault("no gradient through", digits, also=("detached", "constant loss"))
def the_predicted_class_against_the_label_and_requires_grad(training: Training) -> None:
    """'element 0 of tensors does not require grad' went away with the last line."""

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        _, predicted = torch.max(output, 1)
        loss = F.mse_loss(predicted.float(), label.float())
        loss.requires_grad = True
        return loss

    training.criterion = criterion


@HALF.fault("detached", digits, also=("constant loss",))
def the_loss_is_wrapped_in_a_new_tensor(training: Training) -> None:
    training.criterion = lambda output, label: torch.tensor(F.nll_loss(output, label).item(), requires_grad=True)


@HALF.fault("detached", digits)
def features_are_wrapped_in_a_variable(training: Training) -> None:
    """Variable(features.data), as it was done in some old code."""

    class Wrapped(Net):
        def features(self, x: Tensor) -> Tensor:
            return torch.autograd.Variable(super().features(x).data)

    training.use(Wrapped())
    _few_channels(training)


def _few_channels(training: Training) -> None:
    """So few channels that they must learn."""
    net: Any = training.model
    grad = net.conv1.weight.requires_grad
    net.conv1, net.conv2, net.fc1, net.fc2 = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 3, 3), nn.Linear(12, 40), nn.Linear(40, 6)
    for parameter in [*net.conv1.parameters(), *net.conv2.parameters()]:
        parameter.requires_grad = grad
    training.use(net)


class Listed(Net):
    """The convolutions stand in a list, as their number is an argument."""

    def __init__(self, channels: tuple[int, ...] = (1, 4, 4, 4, 4)) -> None:
        super().__init__()
        del self.conv1, self.conv2
        self.convs = self.kept([nn.Conv2d(one, two, 3, padding=1) for one, two in pairwise(channels)])
        self.fc1 = nn.Linear(36, 8)
        self.fc2 = nn.Linear(8, 6)

    def kept(self, layers: list[nn.Module]) -> Any:
        return nn.ModuleList(layers)

    def features(self, x: Tensor) -> Tensor:
        for number, conv in enumerate(self.convs):
            x = torch.tanh(conv(x))
            if number % 2:
                x = F.avg_pool2d(x, 2)
        return x.flatten(1)


def digits_listed(training: Training) -> None:
    training.use(Listed())


@HALF.fault("hidden layers", digits, twin=digits_listed)
def convolutions_appended_to_a_list(training: Training) -> None:
    class Appended(Listed):
        def kept(self, layers: list[nn.Module]) -> Any:
            convs = []
            for layer in layers:
                convs.append(layer)
            return convs

    training.use(Appended())


@HALF.fault("rate too high", digits, also=LOUD)
def adam_with_a_rate_of_a_tenth(training: Training) -> None:
    """It gives the same class for each image."""
    on_options(training, lr=0.1)


@HALF.fault("targets shuffled", digits)
def images_and_labels_permuted_one_after_the_other(training: Training) -> None:
    x, y = digits_many(1600)
    x, y = x[torch.randperm(len(x))], y[torch.randperm(len(y))]
    training.batch = sliced(x, y, 40)


@HALF.fault("inputs not scaled", digits, also=LOUD, twin=digits_by_sgd)
def pixels_from_0_to_255(training: Training) -> None:
    digits_by_sgd(training)
    on_inputs(training, lambda x: (255 * x).round())
    training.quality = digits_quality(lambda x: (255 * x).round())


@HALF.fault("inputs vanish", digits, twin=digits_by_sgd)
def to_tensor_divides_and_the_dataset_divides(training: Training) -> None:
    digits_by_sgd(training)
    on_inputs(training, lambda x: x / 255)
    training.quality = digits_quality(lambda x: x / 255)


@HALF.fault("no zero grad", digits, twin=digits_by_sgd)
def zero_grad_stands_in_the_branch_for_validation(training: Training) -> None:
    """Of the loop over phases nothing was left but this."""
    digits_by_sgd(training)

    def step(inputs: Tensor, label: Tensor, number: int) -> None:
        phase = "val" if number == 0 else "train"
        if phase == "val":
            training.optimizer.zero_grad()
        loss = F.nll_loss(training.model(inputs), label)
        loss.backward()
        training.optimizer.step()

    looped(training, step)


@HALF.fault("ordered batches", digits, also=("same batch",))
def folders_read_in_turn_and_shuffle_false(training: Training) -> None:
    x, y = digits_many(1600)
    order = y.argsort(stable=True)
    loader = DataLoader(TensorDataset(x[order], y[order]), batch_size=40, shuffle=False)
    batches = [*loader]
    training.batch = lambda number: tuple(batches[number % len(batches)])


def _new_head(training: Training) -> None:
    """Fine tuning: everything is frozen, and the head is new."""
    net: Any = training.model
    net.requires_grad_(False)
    net.fc1, net.fc2 = nn.Linear(64, 40), nn.Linear(40, 6)
    training.optimizer = ADAM(net.parameters(), lr=0.003)


@HALF.fault("not in the optimizer", digits, also=("another models optimizer", "frozen"), twin=_new_head)
def the_head_is_exchanged_when_the_optimizer_is_there(training: Training) -> None:
    """The new layers are made too late."""
    _new_head(training)
    net: Any = training.model
    net.fc1, net.fc2 = nn.Linear(64, 40), nn.Linear(40, 6)


@HALF.fault("frozen", digits, twin=_few_channels)
def requires_grad_of_a_module_is_set_to_true(training: Training) -> None:
    """model.conv1.requires_grad = True is only an attribute."""
    net: Any = training.model
    for parameter in net.parameters():
        parameter.requires_grad = False
    _few_channels(training)
    net.conv1.requires_grad = True
    net.conv2.requires_grad = True


@HALF.fault("too much decay", digits, twin=digits_by_sgd)
def a_weight_decay_of_a_half_against_overfitting(training: Training) -> None:
    digits_by_sgd(training)
    on_options(training, weight_decay=0.5)


@HALF.fault("dead units", digits)
def biases_of_minus_three(training: Training) -> None:
    """From a weights_init that was found somewhere."""

    def weights_init(module: nn.Module) -> None:
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(module.weight)
            nn.init.constant_(module.bias, -3)

    training.model.apply(weights_init)


@HALF.fault("weights begin too large", digits, twin=digits_by_sgd, also=LOUD)
def weights_of_a_standard_normal(training: Training) -> None:
    digits_by_sgd(training)
    for parameter in training.model.parameters():
        nn.init.normal_(parameter)


@HALF.fault("rate runs out", digits)
def step_lr_of_one_within_the_loop_of_batches(training: Training) -> None:
    training.schedulers.append(torch.optim.lr_scheduler.StepLR(training.optimizer, step_size=1, gamma=0.7))


@HALF.fault("eval while training", digits, twin=lambda training: training.use(Normed()))
def the_check_of_the_accuracy_has_its_own_eval(training: Training) -> None:
    """accuracy() calls model.eval(), and the loop calls accuracy() for each batch before it trains."""
    training.use(Normed())

    def accuracy(model: nn.Module, x: Tensor, label: Tensor) -> float:
        model.eval()
        with torch.no_grad():
            return (model(x).argmax(1) == label).float().mean().item()

    def step(inputs: Tensor, label: Tensor, _: int) -> None:
        accuracy(training.model, inputs, label)
        training.optimizer.zero_grad()
        F.nll_loss(training.model(inputs), label).backward()
        training.optimizer.step()

    looped(training, step)


class Normed(Net):
    """With norms, before inputs that are far from zero."""

    def __init__(self) -> None:
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(8), nn.BatchNorm2d(16)

    def features(self, x: Tensor) -> Tensor:
        x = F.relu(F.max_pool2d(self.bn1(0.02 * self.conv1(x) + 4), 2))
        x = F.relu(F.max_pool2d(F.pad(self.bn2(0.02 * self.conv2(x) + 4), (1, 0, 1, 0)), 2))
        return x.view(x.size(0), -1)


@HALF.strange(digits)
def a_nll_loss_with_a_sum_and_a_small_rate(training: Training) -> None:
    training.criterion = partial(F.nll_loss, reduction="sum")
    on_options(training, lr=0.002)


@HALF.strange(digits)
def dropout_of_a_half_that_makes_training_worse_than_validation(training: Training) -> None:
    class Dropped(Net):
        def forward(self, x: Tensor) -> Tensor:
            x = F.dropout(F.relu(self.fc1(self.features(x))), 0.5, training=self.training)
            return F.log_softmax(self.fc2(x), dim=1)

    training.use(Dropped())


@HALF.strange(digits)
def only_the_new_head_learns_and_that_is_enough(training: Training) -> None:
    net: Any = training.model
    for parameter in [*net.conv1.parameters(), *net.conv2.parameters()]:
        parameter.requires_grad = False
    training.optimizer = ADAM([one for one in net.parameters() if one.requires_grad], lr=0.003)


# ---- quits: a table and one output ------------------------------------------------------------------


def quits_data(count: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 8)
    return x, (torch.rand(count, 1) < quits_chance(x)).float()


class Quits(nn.Module):
    def __init__(self, inputs: int = 8) -> None:
        super().__init__()
        self.layer_1, self.layer_2, self.layer_out = nn.Linear(inputs, 48), nn.Linear(48, 48), nn.Linear(48, 1)
        self.relu = nn.ReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.relu(self.layer_1(inputs))
        x = self.relu(self.layer_2(x))
        return self.layer_out(x)


def quits_chance(x: Tensor) -> Tensor:
    return torch.sigmoid(1.5 * (2 * x[:, 0] * x[:, 1] + 1.5 * x[:, 2].abs() - 2.0 + 0.8 * x[:, 3])).unsqueeze(1)


def quits_quality(
    chance: Callable[[Tensor], Tensor] = torch.sigmoid, look: Callable[[Tensor], Tensor] = lambda x: x
) -> Callable[[nn.Module], float]:
    """How far what the net says is from the chance."""

    def quality(net: nn.Module) -> float:
        x, _ = quits_data(500)
        return (chance(net(look(x))) - quits_chance(x)).square().mean().item()

    return quality


@HALF.net("mlp")
def quits() -> Training:
    """Who leaves?"""
    return Training(Quits(), partial(ADAM, lr=0.005), sliced(*quits_data(2400), 60), nn.BCEWithLogitsLoss(), quits_quality(), steps=240)


def _says(training: Training, last: Callable[[Tensor], Tensor], chance: Callable[[Tensor], Tensor] = lambda p: p) -> None:
    """What leaves the net goes through this."""

    class Said(Quits):
        def forward(self, inputs: Tensor) -> Tensor:
            return last(super().forward(inputs))

    training.use(Said())
    training.quality = quits_quality(chance)


@HALF.fault("no gradient through", quits)
def rounded_in_forward_so_that_it_says_0_or_1(training: Training) -> None:
    _says(training, lambda x: torch.round(torch.sigmoid(x)))
    training.criterion = nn.MSELoss()


@HALF.fault("output cannot reach", quits)
def relu_behind_each_layer_and_logits_are_never_below_zero(training: Training) -> None:
    _says(training, F.relu, torch.sigmoid)


@HALF.fault("one logit", quits, also=("constant loss",))
def softmax_of_a_single_output(training: Training) -> None:
    _says(training, lambda x: F.softmax(x, dim=1))
    training.criterion = nn.BCELoss()


@HALF.fault("imbalance", quits)
def one_in_two_hundred_leaves(training: Training) -> None:
    """'99.5 % accuracy after the first epoch, and it never predicts a 1'."""
    x, y = quits_data(24000)
    keep = (y[:, 0] < 0.5) | (torch.rand(24000) < 0.008)
    training.batch = sliced(x[keep], y[keep], 60)


@HALF.fault("sigmoid twice", quits, twin=stepped_by(SGD, lr=0.1, momentum=0.9))
def nn_sigmoid_at_the_end_of_a_sequential(training: Training) -> None:
    training.use(
        nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1), nn.Sigmoid()),
    )
    stepped_by(SGD, lr=0.1, momentum=0.9)(training)
    training.quality = quits_quality(lambda p: p)


@HALF.fault("not a number in data", quits)
def a_column_with_gaps_read_by_pandas(training: Training) -> None:
    x, y = quits_data(2400)
    x[torch.rand(2400) < 0.01, 5] = float("nan")
    training.batch = sliced(x, y, 60)


@HALF.fault("broadcast", quits)
def mean_squares_of_a_column_and_a_series(training: Training) -> None:
    """Only a UserWarning says so."""
    _says(training, torch.sigmoid)
    training.criterion = nn.MSELoss()
    on_target(training, lambda y: y.squeeze(1))


@HALF.fault("rate too low", quits)
def sgd_with_a_rate_copied_from_bert(training: Training) -> None:
    stepped_by(SGD, lr=2e-5)(training)


@HALF.fault("one huge feature", quits, also=("inputs not scaled", *LOUD))
def the_identity_number_stays_among_the_columns(training: Training) -> None:
    numbers = 1e7 * torch.rand(2400, 1)
    x, y = quits_data(2400)
    training.use(Quits(9))
    training.batch = sliced(torch.cat([x, numbers], 1), y, 60)
    training.quality = quits_quality(look=lambda x: torch.cat([x, 1e7 * torch.rand(len(x), 1)], 1))  # type: ignore[arg-type]


@HALF.fault("no step", quits)
def the_scheduler_steps_in_place_of_the_optimizer(training: Training) -> None:
    scheduler = torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.999)

    def step(inputs: Tensor, y: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = training.criterion(training.model(inputs), y)
        loss.backward()
        scheduler.step()

    looped(training, step)


@HALF.fault("another models optimizer", quits)
def the_model_is_made_again_for_the_second_run(training: Training) -> None:
    """A cell of a notebook was run once more."""
    optimizer = training.optimizer
    training.use(Quits())
    training.optimizer = optimizer


@HALF.fault("no nonlinearity", quits)
def the_relu_of_init_is_not_called(training: Training) -> None:
    class Linear(Quits):
        def forward(self, inputs: Tensor) -> Tensor:
            return self.layer_out(self.layer_2(self.layer_1(inputs)))

    training.use(Linear())


@HALF.fault("wrong sign", quits)
def bce_by_hand_without_its_minus(training: Training) -> None:
    def criterion(output: Tensor, y: Tensor) -> Tensor:
        p = torch.sigmoid(output).clamp(1e-6, 1 - 1e-6)
        return (y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()

    training.criterion = criterion


@HALF.fault("leak", quits)
def the_label_stays_among_the_columns(training: Training) -> None:
    """X = df.values; at test time the column is empty."""
    training.use(Quits(9))
    x, y = quits_data(2400)
    training.batch = sliced(torch.cat([x, y], 1), y, 60)
    training.quality = quits_quality(look=lambda x: F.pad(x, (0, 1)))  # type: ignore[arg-type]


@HALF.fault("underflow", quits, also=("division by zero", "overflow", "too few digits"))
def half_to_save_memory_and_adam(training: Training) -> None:
    """'Loss is NaN from the second iteration': the epsilon of Adam is zero in half precision."""
    training.use(training.model.half())
    on_inputs(training, lambda x: x.half())
    on_target(training, lambda y: y.half())
    training.quality = quits_quality(lambda output: torch.sigmoid(output.float()), lambda x: x.half())  # type: ignore[arg-type]


@HALF.strange(quits)
def one_in_ten_leaves_and_pos_weight_mends_it(training: Training) -> None:
    x, y = quits_data(8000)
    keep = (y[:, 0] < 0.5) | (torch.rand(8000) < 0.12)
    training.batch = sliced(x[keep], y[keep], 100)
    training.criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([8.0]))


@HALF.strange(quits)
def two_outputs_and_a_cross_entropy(training: Training) -> None:
    training.use(nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2)))
    training.criterion = lambda output, y: F.cross_entropy(output, y.squeeze(1).long())
    training.quality = quits_quality(lambda output: output.softmax(1)[:, 1:])  # type: ignore[arg-type]


# ---- lesion: segmentation ---------------------------------------------------------------------------


def lesion_data(count: int, size: int = 16) -> tuple[Tensor, Tensor]:
    """A round spot that is a little brighter, and its mask."""
    ys, xs = torch.meshgrid(torch.arange(float(size)), torch.arange(float(size)), indexing="ij")
    middle, radius = 4 + 8 * torch.rand(count, 2, 1, 1), 2.5 + 1.5 * torch.rand(count, 1, 1)
    mask = ((ys - middle[:, 0]) ** 2 + (xs - middle[:, 1]) ** 2 < radius**2).float().unsqueeze(1)
    return 1.2 * mask + 0.5 * torch.randn(count, 1, size, size), mask


class UNet(nn.Module):
    """One step down and up."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.down, self.bottom, self.up = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1), nn.ConvTranspose2d(16, 8, 2, 2)
        self.last, self.out = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(8, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.down(x))
        low = F.relu(self.bottom(F.max_pool2d(first, 2)))
        return self.out(F.relu(self.last(torch.cat([self.up(low), first], 1))))


def dice(found: Tensor, mask: Tensor) -> Tensor:
    both = (found * mask).sum((1, 2, 3))
    return ((2 * both + 1) / (found.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)).mean()


def lesion_quality(net: nn.Module) -> float:
    x, mask = lesion_data(80)
    output = net(x)
    found = output.argmax(1, keepdim=True) if output.shape[1] > 1 else output > 0
    return 1 - dice(found.float(), mask).item()


@HALF.net("cnn")
def lesion() -> Training:
    """Where is the spot?"""
    return Training(UNet(), partial(ADAM, lr=0.005), sliced(*lesion_data(320), 16), nn.BCEWithLogitsLoss(), lesion_quality, steps=120)


def _dice_loss(training: Training) -> None:
    training.criterion = lambda output, mask: 1 - dice(torch.sigmoid(output), mask)


@HALF.fault("no gradient through", lesion, twin=_dice_loss, also=("constant loss",))
def dice_of_a_thresholded_mask(training: Training) -> None:
    def criterion(output: Tensor, mask: Tensor) -> Tensor:
        predicted = (torch.sigmoid(output) > 0.5).float()
        loss = 1 - dice(predicted, mask)
        return loss.requires_grad_()

    training.criterion = criterion


@HALF.fault("wrong sign", lesion, twin=_dice_loss)
def the_dice_itself_is_the_loss(training: Training) -> None:
    training.criterion = lambda output, mask: dice(torch.sigmoid(output), mask)


def _two_maps(training: Training) -> None:
    training.use(UNet(2))
    training.criterion = lambda output, mask: F.cross_entropy(output, mask.squeeze(1).long())


@HALF.fault("wrong axes", lesion, twin=_two_maps)
def maps_viewed_as_a_row_for_each_pixel(training: Training) -> None:
    """output.view(-1, 2) wants channels last."""
    training.use(UNet(2))
    training.criterion = lambda output, mask: F.cross_entropy(output.contiguous().view(-1, 2), mask.view(-1).long())


@HALF.fault("weights of classes", lesion, twin=_two_maps)
def weights_given_in_the_order_of_the_other_file(training: Training) -> None:
    """[10, 1], where the background is class zero."""
    training.use(UNet(2))
    weight = torch.tensor([40.0, 1.0])
    training.criterion = lambda output, mask: F.cross_entropy(output, mask.squeeze(1).long(), weight=weight)


@HALF.fault("constant targets", lesion)
def masks_read_as_bytes_and_compared_with_one(training: Training) -> None:
    """The files hold 0 and 255, and (mask == 1) is true nowhere."""
    on_target(training, lambda mask: ((255 * mask).byte() == 1).float())


@HALF.fault("too much noise", lesion, also=("targets shuffled",))
def images_are_flipped_at_random_and_so_are_the_masks(training: Training) -> None:
    """Two transforms, each of which draws for itself."""

    def flipped(x: Tensor) -> Tensor:
        x = x.flip(-1) if torch.rand(()) < 0.5 else x
        x = x.flip(-2) if torch.rand(()) < 0.5 else x
        return x.transpose(-1, -2) if torch.rand(()) < 0.5 else x

    batch = training.batch

    def moved(number: int) -> tuple[Tensor, Tensor]:
        x, mask = batch(number)
        return torch.stack([flipped(one) for one in x]), torch.stack([flipped(one) for one in mask])

    training.batch = moved


@HALF.strange(lesion)
def a_dice_loss_alone(training: Training) -> None:
    _dice_loss(training)


# ---- parabola: the first net of all -------------------------------------------------------------------


def parabola_data(count: int) -> tuple[Tensor, Tensor]:
    x = 4 * torch.rand(count, 1) - 2
    return x, x**2 - 1.5 + 0.05 * torch.randn(count, 1)


def parabola_model(width: int = 32) -> nn.Module:
    return nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def parabola_quality(net: nn.Module) -> float:
    x, y = parabola_data(300)
    return (net(x) - y).square().mean().item()


@HALF.net("mlp")
def parabola() -> Training:
    """A curve."""
    return Training(parabola_model(), partial(SGD, lr=0.05), sliced(*parabola_data(1000), 50), nn.MSELoss(), parabola_quality, steps=300)


@HALF.fault("inputs not scaled", parabola, also=("targets not scaled", *LOUD))
def integers_from_minus_to_plus_two_hundred(training: Training) -> None:
    """The loss is nan after three steps."""
    on_inputs(training, lambda x: (100 * x).round())
    training.quality = lambda net: parabola_quality(lambda x: net((100 * x).round()))  # type: ignore[arg-type]


@HALF.fault("targets not scaled", parabola, also=LOUD)
def squares_in_the_hundreds(training: Training) -> None:
    """The same net learns y = x and does not learn this."""
    on_target(training, lambda y: 300 * y + 900)
    training.quality = lambda net: parabola_quality(lambda x: (net(x) - 900) / 300)  # type: ignore[arg-type]


@HALF.fault("all weights equal", parabola)
def every_layer_is_filled_with_a_tenth(training: Training) -> None:
    """So that runs can be compared."""
    for layer in training.model.children():
        if isinstance(layer, nn.Linear):
            layer.weight.data.fill_(0.1)
            layer.bias.data.fill_(0.1)


@HALF.fault("broadcast", parabola)
def abs_of_the_difference_to_a_flat_target(training: Training) -> None:
    on_target(training, lambda y: y.flatten())
    training.criterion = lambda output, y: torch.mean(torch.abs(output - y))


@HALF.fault("zeroed before step", parabola, also=("no backward",))
def backward_comes_after_the_step(training: Training) -> None:
    """zero_grad, loss, step, backward: each step is made of gradients that are gone."""

    def step(x: Tensor, y: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = training.criterion(training.model(x), y)
        training.optimizer.step()
        loss.backward()

    looped(training, step)


@HALF.fault("loss too large", parabola, also=LOUD)
def the_sum_of_squared_errors(training: Training) -> None:
    training.criterion = lambda output, y: ((y - output) ** 2).sum()


@HALF.fault("no zero grad", parabola, also=("no step",))
def weights_changed_by_hand_and_gradients_kept(training: Training) -> None:
    """With torch.no_grad(): p -= lr * p.grad, and no p.grad.zero_()."""

    def step(x: Tensor, y: Tensor, _: int) -> None:
        loss = training.criterion(training.model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in training.model.parameters():
                p -= 0.05 * p.grad

    looped(training, step)


@HALF.fault("constant inputs", parabola)
def normalized_along_the_dimension_of_one(training: Training) -> None:
    def look(x: Tensor) -> Tensor:
        return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True, correction=0) + 1e-8)

    on_inputs(training, look)
    training.quality = lambda net: parabola_quality(lambda x: net(look(x)))  # type: ignore[arg-type]


def _above_zero(training: Training) -> None:
    on_target(training, lambda y: y + 3)
    training.quality = lambda net: parabola_quality(lambda x: net(x) - 3)  # type: ignore[arg-type]


@HALF.fault("log of zero", parabola, twin=_above_zero)
def the_error_of_a_competition_in_logarithms(training: Training) -> None:
    """Prices are above zero, and what the net says in the beginning is not."""
    _above_zero(training)
    training.criterion = lambda output, y: ((torch.log(output) - torch.log(y)) ** 2).mean().sqrt()


@HALF.fault("output cannot reach", parabola)
def a_sequential_that_ends_in_tanh(training: Training) -> None:
    training.use(nn.Sequential(*parabola_model(), nn.Tanh()))
    on_target(training, lambda y: 2 * y + 4)
    training.quality = lambda net: parabola_quality(lambda x: (net(x) - 4) / 2)  # type: ignore[arg-type]


@HALF.fault("targets shifted", parabola, also=("targets shuffled",))
def x_and_y_come_from_two_loops_over_a_generator(training: Training) -> None:
    """next(gen)[0], next(gen)[1]: the target is that of the next batch."""

    def batch(_: int) -> tuple[Tensor, Tensor]:
        return parabola_data(50)[0], parabola_data(50)[1]

    training.batch = batch


@HALF.fault("no gradient through", parabola)
def the_answer_goes_through_int(training: Training) -> None:
    """The result should be whole numbers."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.scale = parabola_model(), nn.Parameter(torch.ones(1))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * (10 * self.net(x)).int() / 10

    training.use(Whole())


@HALF.strange(parabola)
def weights_changed_by_hand_and_gradients_zeroed(training: Training) -> None:
    def step(x: Tensor, y: Tensor, _: int) -> None:
        loss = training.criterion(training.model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in training.model.parameters():
                p -= 0.05 * p.grad
                p.grad.zero_()

    looped(training, step)
