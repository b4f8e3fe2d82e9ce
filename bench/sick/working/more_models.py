"""More faults of the graph, of numbers and of the model, as they stand in people's models."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bench.sick.changes import looped, loss_of, on_batch
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.more_nets import (
    Attention,
    Elman,
    Factors,
    Grades,
    Holder,
    Judge,
    Looker,
    Lookup,
    Mapper,
    Mixer,
    Residual,
    Speaker,
    Swing,
    Table,
    Translator,
    backwards,
    chorus,
    fields,
    grades,
    held,
    loaded,
    loans,
    longest,
    lookup,
    marks,
    opening,
    preferred,
    swing,
    tones,
    tones_data,
    tones_model,
    triples,
    walk,
)

# ---- the graph -------------------------------------------------------------------------------------


@HALF.fault("detached", walk)
def the_wrong_side_of_the_error_is_cut(training: Training) -> None:
    """What is said is cut, and what comes later is not."""

    def step(training: Training, number: int) -> None:
        (place, move, then), reward = training.batch(number)
        net = training.model
        training.optimizer.zero_grad()
        said = net(place).gather(1, move.unsqueeze(1)).squeeze(1).detach()
        later = net(then).max(1).values
        F.smooth_l1_loss(reward + 0.8 * (1 - reward) * later, said).backward()
        training.optimizer.step()

    training.step = step


class Rewrapped(Table):
    """Makes a new tensor of its features."""

    def forward(self, numbers: Tensor, job: Tensor, town: Tensor) -> Tensor:
        h = torch.tensor(self.body(self.features(numbers, job, town)).tolist())
        return self.head(h).squeeze(1)


@HALF.fault("detached", loans)
def a_tensor_of_a_list_of_features(training: Training) -> None:
    training.use(Rewrapped())


class Forgetful(Holder):
    """Cuts its state at each step, to save memory."""

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), self.cell.hidden_size)
        out = []
        for now in x.unbind(1):
            h = self.cell(now, h.detach()).data
            out.append(self.head(h))
        return torch.stack(out, 1).squeeze(2)


@HALF.fault("detached", held)
def the_state_is_taken_by_data(training: Training) -> None:
    training.use(Forgetful())


class Sealed(Mixer):
    """Has its features made in inference mode, for speed."""

    @torch.inference_mode()
    def features(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return h.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).clone())


@HALF.fault("without grad", longest)
def features_in_inference_mode(training: Training) -> None:
    training.use(Sealed())


class Unlearning(Speaker):
    """Has a switch for a baseline, in which only its head learns."""

    baseline = True

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        with torch.set_grad_enabled(not self.baseline):
            h = self.tokens(x) + self.places[: x.shape[1]]
            for block in self.blocks:
                h = block(h)
        return {"logits": self.head(self.norm(h))}


@HALF.fault("without grad", chorus)
def a_switch_turns_gradients_off(training: Training) -> None:
    training.use(Unlearning())


@HALF.fault("frozen", lookup, where=("keys", "values", "attention"))
def from_pretrained_of_what_was_never_trained(training: Training) -> None:
    model = Lookup()
    model.keys = nn.Embedding.from_pretrained(0.05 * torch.randn(8, 32))
    model.values = nn.Embedding.from_pretrained(0.05 * torch.randn(6, 32))
    for parameter in model.attention.parameters():
        parameter.requires_grad = False
    training.use(model)


@HALF.fault("frozen", fields, where=("first", "second", "up", "last"))
def everything_but_the_head_as_for_fine_tuning(training: Training) -> None:
    for name, parameter in training.model.named_parameters():
        parameter.requires_grad = name.startswith("head")


class Listed(nn.Module):
    """A U-net whose stages are pairs in lists."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.down = [(Mapper.stage(1, width, 3), Mapper.stage(width, 2 * width, 3))]
        self.up = [(nn.ConvTranspose2d(2 * width, width, 2, stride=2), Mapper.stage(2 * width, width, 3))]
        self.head = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        (first, second), (wider, last) = self.down[0], self.up[0]
        fine = first(x)
        return self.head(last(torch.cat([fine, wider(second(F.max_pool2d(fine, 2)))], 1)))


@HALF.fault("hidden layers", fields)
def stages_are_pairs_in_lists(training: Training) -> None:
    training.use(Listed())


class Loose(nn.Module):
    """Weights as plain tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = [torch.randn(2, 24).mul(0.5).requires_grad_(), torch.randn(24, 24).mul(0.2).requires_grad_()]
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(len(x), 24)
        for now in x.unbind(1):
            h = torch.tanh(now @ self.inner[0] + h @ self.inner[1])
        return self.head(h)


@HALF.fault("hidden layers", opening, also=("not in the optimizer",))
def weights_are_tensors_and_no_parameters(training: Training) -> None:
    training.use(Loose())


class Hard(Attention):
    """Attends to the best place alone."""

    def weights(self, asked: Tensor, memory: Tensor) -> Tensor:
        scores = super().weights(asked, memory)
        return F.one_hot(scores.argmax(-1), scores.shape[-1]).float()


@HALF.fault("no gradient through", lookup, also=("detached",))
def attention_to_the_best_place_alone(training: Training) -> None:
    training.use(Lookup(attention=Hard(32)))


class Stepped(Table):
    """Sorts its numbers into classes, and looks up an embedding of each."""

    def __init__(self) -> None:
        super().__init__()
        self.coarse = nn.Linear(15, 3)
        self.classes = nn.Embedding(8, 5)
        self.register_buffer("edges", torch.linspace(-3, 3, 7))

    def features(self, numbers: Tensor, job: Tensor, town: Tensor) -> Tensor:
        values = self.coarse(super().features(numbers, job, town))
        return self.classes(torch.bucketize(values, self.edges)).flatten(1)


@HALF.fault("no gradient through", loans, also=("detached",))
def numbers_become_classes_by_bucketize(training: Training) -> None:
    training.use(Stepped())


class Dropping(Mixer):
    """Calls its blocks, and keeps nothing of them."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            block(h)
        return self.head(h.flatten(1))


@HALF.fault("unused layers", longest, also=("overwritten activation", "no nonlinearity"))
def what_blocks_return_is_not_kept(training: Training) -> None:
    training.use(Dropping())


class OnlyQuery(Lookup):
    """Its attention is computed, and the wrong name goes on."""

    def forward(self, keys: Tensor, values: Tensor, asked: Tensor) -> Tensor:
        query = self.keys(asked)
        attended = self.attention(query.unsqueeze(1), self.keys(keys) + self.values(values))  # noqa: F841
        return self.head(query + self.feed(self.norm(query)))


@HALF.fault("unused layers", lookup, also=("overwritten activation",))
def the_query_goes_on_in_place_of_what_was_found(training: Training) -> None:
    training.use(OnlyQuery())


# ---- numbers ---------------------------------------------------------------------------------------


@HALF.fault("not finite by the rate", triples, also=("rate too high",))
def a_rate_for_sums_on_products(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=40.0, momentum=0.9)
    training.use(training.model)


def _squares_by_sgd(rate: float) -> Callable[[Training], None]:
    """Whether a threshold is passed, as plus one or minus one."""

    def change(training: Training) -> None:
        training.criterion = lambda output, target: (output - 2 * target + 1).pow(2).mean()
        training.optimize = partial(torch.optim.SGD, lr=rate, momentum=0.9)
        training.use(training.model)

    return change


@HALF.fault("not finite by the rate", grades, twin=_squares_by_sgd(0.03), also=("rate too high",))
def sgd_gets_the_rate_of_adadelta(training: Training) -> None:
    _squares_by_sgd(3.0)(training)


@HALF.fault("log of zero", opening)
def divergence_by_hand_with_its_sides_exchanged(training: Training) -> None:
    """The logarithm of a one-hot target."""

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        wanted, said = F.one_hot(label, 3).float(), output.softmax(1)
        return (said * (said.log() - wanted.log())).sum(1).mean()

    training.criterion = criterion


class Doubtful(Holder):
    """Says a mean, and how sure it is of it."""

    def __init__(self, positive: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.head = nn.Linear(24, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.positive = positive

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = x.new_zeros(len(x), self.cell.hidden_size)
        out = []
        for now in x.unbind(1):
            h = self.cell(now, h)
            out.append(self.head(h))
        mean, spread = torch.stack(out, 1).unbind(2)
        return mean, self.positive(spread)


def _doubtful(positive: Callable[[Tensor], Tensor]) -> Callable[[Training], None]:
    """A normal distribution's likelihood, by hand."""

    def change(training: Training) -> None:
        training.use(Doubtful(positive))
        quality = training.quality
        training.quality = lambda net: quality(lambda x: net(x)[0])
        training.criterion = lambda output, target: (torch.log(output[1]) + 0.5 * ((target - output[0]) / output[1]) ** 2).mean()

    return change


@HALF.fault("log of zero", held, twin=_doubtful(lambda x: F.softplus(x) + 0.05), also=("division by zero",))
def a_spread_that_comes_out_of_a_relu(training: Training) -> None:
    _doubtful(F.relu)(training)


class HandNorm(nn.Module):
    """Layer norm by hand: the root of the variance, with epsilon outside."""

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6)


def _some_empty(training: Training) -> None:
    """A row in a hundred is empty."""
    on_batch(training, lambda x, label: (torch.where(torch.rand(len(x), 1, 1) < 0.02, 0.0, x), label))


class Normed(Mixer):
    """A mixer that normalizes its input."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.given = norm

    def forward(self, x: Tensor) -> Tensor:
        length = x.norm(dim=2, keepdim=True)
        return super().forward(x * self.scale + 0.1 * length * self.given(x * self.scale))


def _normed_by_torch(training: Training) -> None:
    training.use(Normed(nn.LayerNorm(4)))
    _some_empty(training)


@HALF.fault("root of zero", longest, twin=_normed_by_torch)
def norm_by_hand_of_empty_rows(training: Training) -> None:
    training.use(Normed(HandNorm()))
    _some_empty(training)


@HALF.fault("root of zero", marks)
def penalty_on_the_length_of_a_head_that_begins_at_zero(training: Training) -> None:
    nn.init.zeros_(training.model.heads["light"].weight)
    criterion = training.criterion

    def with_penalty(output: Any, target: Tensor) -> Tensor:
        lengths = [one.weight.pow(2).sum().sqrt() for one in training.model.heads.values()]
        return criterion(output, target) + 1e-3 * sum(lengths)

    training.criterion = with_penalty


@HALF.fault("division by zero", fields)
def mean_over_the_pixels_of_a_kind_that_is_absent(training: Training) -> None:
    """Each kind should weigh the same in each image; no image has both."""

    def criterion(output: Tensor, label: Tensor) -> Tensor:
        each = F.cross_entropy(output, label, reduction="none")
        means = [(each * (label == kind)).sum((1, 2)) / (label == kind).sum((1, 2)) for kind in range(3)]
        return torch.stack(means).mean()

    training.criterion = criterion


def _relative(least: float) -> Callable[[Training], None]:
    """An error in parts of the target; the first weeks of a new client have none."""

    def change(training: Training) -> None:
        def batch(inputs: Any, risk: Tensor) -> tuple[Any, Tensor]:
            return inputs, torch.where(torch.rand(len(risk)) < 0.01, 0.0, risk)

        on_batch(training, batch)
        training.criterion = lambda output, risk: ((output - risk).abs() / risk.abs().clamp(min=least)).mean()

    return change


@HALF.fault("division by zero", loans, twin=_relative(0.5))
def percent_of_a_target_of_zero(training: Training) -> None:
    _relative(0.0)(training)


def _sharp(training: Training) -> None:
    """Differences count forty times."""
    training.criterion = lambda output, target: F.softplus(-40 * target * output).mean() / 40


@HALF.fault("overflow", preferred, twin=_sharp)
def softplus_by_hand(training: Training) -> None:
    training.criterion = lambda output, target: torch.log(1 + torch.exp(-40 * target * output)).mean() / 40


class Raised(Attention):
    """A softmax by hand, of scores that are not divided by anything, in numbers of some kind."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(32)
        self.dtype = dtype

    def weights(self, asked: Tensor, memory: Tensor) -> Tensor:
        q, k = self.split(self.query(asked)), self.split(self.key(memory))
        raised = torch.exp((q @ k.transpose(-2, -1)).to(self.dtype))
        return (raised / raised.sum(-1, keepdim=True)).float()


def _raised(dtype: torch.dtype) -> Callable[[Training], None]:
    return lambda training: training.use(Lookup(attention=Raised(dtype)))


@HALF.fault("overflow", lookup, twin=_raised(torch.float32))
def attention_raised_in_half_precision(training: Training) -> None:
    _raised(torch.float16)(training)


def _light(training: Training) -> None:
    """One task of many, with a small weight; Adam does not mind."""
    criterion = training.criterion
    training.criterion = lambda output, target: 1e-4 * criterion(output, target)
    training.optimize = partial(torch.optim.Adam, lr=0.01, eps=1e-16)
    training.use(training.model)


class HalfWay(Mapper):
    """Hands its maps on in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        coarse = self.second(F.max_pool2d(fine, 2))
        maps = self.last(torch.cat([fine, self.up(coarse)], 1))
        return self.head(maps.half().float())


@HALF.fault("underflow", fields, twin=_light, also=("loss too small",))
def maps_in_half_precision_and_no_scaler(training: Training) -> None:
    training.use(HalfWay())
    _light(training)


def _slow(training: Training) -> None:
    training.optimize = partial(torch.optim.Adam, lr=8e-4)
    training.steps = 1500
    training.use(training.model)


@HALF.fault("too few digits", triples, twin=_slow)
def factors_in_bfloat16(training: Training) -> None:
    _slow(training)
    training.model.bfloat16()
    criterion, quality = training.criterion, training.quality
    training.criterion = lambda output, target: criterion(output.float(), target)
    training.quality = lambda net: quality(lambda places: net(places).float())


@HALF.fault("scaler misused", longest)
def backward_of_the_loss_that_was_not_scaled(training: Training) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        loss = loss_of(training, inputs, target)
        scaler.scale(loss)
        loss.backward()
        scaler.step(training.optimizer)
        scaler.update()

    looped(training, step)


@HALF.fault("scaler misused", triples)
def divided_by_hand_and_unscaled_again(training: Training) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

    def step(inputs: Any, target: Tensor, _: int) -> None:
        training.optimizer.zero_grad()
        scaler.scale(loss_of(training, inputs, target)).backward()
        for one in training.model.parameters():
            one.grad /= scaler.get_scale()
        scaler.step(training.optimizer)
        scaler.update()

    looped(training, step)


# ---- the model: how it begins ----------------------------------------------------------------------


@HALF.fault("all weights equal", triples)
def factors_begin_as_ones(training: Training) -> None:
    for side in training.model.sides:
        nn.init.ones_(side)


@HALF.fault("all weights equal", fields)
def kernels_begin_as_a_mean(training: Training) -> None:
    """Each kernel is a mean of what it sees."""
    for module in training.model.modules():
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.constant_(module.weight, 1 / module.weight[0].numel())
            nn.init.zeros_(module.bias)


@HALF.fault("weights begin too large", opening)
def matrices_of_randn(training: Training) -> None:
    model: Elman = training.model
    for linear in (model.from_input, model.from_state, model.head):
        linear.weight = nn.Parameter(4 * torch.randn(linear.weight.shape))
    training.use(model)


@HALF.fault("weights begin too large", lookup)
def a_uniform_start_from_minus_three_to_three(training: Training) -> None:
    for name, parameter in training.model.named_parameters():
        if parameter.dim() > 1 or name.endswith("bias"):
            nn.init.uniform_(parameter, -3, 3)


@HALF.fault("weights begin too small", triples)
def factors_begin_near_zero(training: Training) -> None:
    with torch.no_grad():
        for side in training.model.sides:
            side.mul_(1e-4)


def _walk_by_sgd(training: Training) -> None:
    training.optimize = partial(torch.optim.SGD, lr=0.5, momentum=0.9)
    training.optimizer = training.optimize(training.model.online.parameters())


@HALF.fault("weights begin too small", walk, twin=_walk_by_sgd)
def a_normal_start_with_a_tiny_deviation(training: Training) -> None:
    _walk_by_sgd(training)
    for module in training.model.online:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=1e-6)
            nn.init.zeros_(module.bias)


@HALF.fault("vanishing gradient", opening)
def the_state_goes_through_a_sigmoid(training: Training) -> None:
    model = Elman(squash=torch.sigmoid)
    nn.init.normal_(model.from_state.weight, std=0.2)
    training.use(model)


@HALF.fault("vanishing gradient", grades, also=("weights begin too small",))
def twenty_layers_of_tanh(training: Training) -> None:
    layers: list[nn.Module] = [nn.Linear(5, 32), nn.Tanh()]
    for _ in range(20):
        layers += [nn.Linear(32, 32), nn.Tanh()]
    model = Grades()
    model.score = nn.Sequential(*layers, nn.Linear(32, 1, bias=False))
    training.use(model)


@HALF.fault("dead units", walk, where=("online.0", "online.1"))
def weights_begin_negative_before_inputs_that_are_not(training: Training) -> None:
    first = training.model.online[0]
    nn.init.uniform_(first.weight, -1.0, -0.1)
    nn.init.uniform_(first.bias, -1.0, -0.1)


@HALF.fault("dead units", grades)
def the_bias_of_rare_things_in_each_layer(training: Training) -> None:
    """The start of a detector's last bias, which was meant for that one alone."""
    chance = 1e-6
    for module in training.model.score:
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.constant_(module.bias, -math.log((1 - chance) / chance))


# ---- the model: what it is made of -----------------------------------------------------------------


class Bare(Judge):
    """Without norms."""

    def inner(self, x: Tensor) -> Tensor:
        return F.relu(x)

    def scored(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = h + block["down"](self.inner(block["up"](h)))
        return self.score(h).squeeze(1)


class Statement(Bare):
    """Computes its ReLU, and keeps what was before."""

    def inner(self, x: Tensor) -> Tensor:
        F.relu(x)
        return x


@HALF.fault("no nonlinearity", preferred, twin=lambda training: training.use(Bare()))
def relu_as_a_statement(training: Training) -> None:
    training.use(Statement())


@HALF.fault("no nonlinearity", grades)
def leaky_relu_with_a_slope_of_one(training: Training) -> None:
    training.use(Grades(squash=lambda: nn.LeakyReLU(1.0)))


@HALF.fault("bottleneck", triples)
def rank_one(training: Training) -> None:
    training.use(Factors(rank=1))


@HALF.fault("bottleneck", backwards)
def an_encoder_of_one_unit(training: Training) -> None:
    class Narrow(Translator):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.GRU(16, 1, batch_first=True)
            self.wide = nn.Linear(1, 48)

        def encode(self, source: Tensor) -> Tensor:
            return self.wide(super().encode(source))

    training.use(Narrow())


class Dropped(Mixer):
    """Drops after each block, by what should have been kept."""

    def forward(self, x: Tensor) -> Tensor:
        keep = 0.95
        h = self.embed(x)
        for block in self.blocks:
            h = F.dropout(block(h), p=keep, training=self.training)
        return self.head(h.flatten(1))


@HALF.fault("too much dropout", longest)
def what_should_be_kept_is_dropped(training: Training) -> None:
    training.use(Dropped())


@HALF.fault("too much dropout", fields)
def whole_channels_are_dropped(training: Training) -> None:
    model = training.model
    model.second.append(nn.Dropout2d(0.9))
    model.last.append(nn.Dropout2d(0.95))
    training.use(model)


class Ghost(nn.Module):
    """Normalizes parts of the batch by themselves."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.norm, self.size = nn.BatchNorm1d(features), size

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.norm(part) for part in x.split(self.size)]) if self.training else self.norm(x)


@HALF.fault("batch norm of one", loans)
def ghosts_of_two(training: Training) -> None:
    training.use(Table(norm=partial(Ghost, size=2)))


@HALF.fault("batch norm of one", tones)
def one_signal_at_a_time(training: Training) -> None:
    """A loader whose batch size was left at its default."""
    training.batch = loaded(1, *tones_data(1000))


@HALF.fault("batch norm statistics", tones)
def momentum_as_in_another_library(training: Training) -> None:
    """A momentum of 0.9999 there is one of 0.0001 here."""
    training.use(tones_model(norm=partial(nn.BatchNorm1d, momentum=1e-4)))


@HALF.fault("batch norm statistics", loans)
def statistics_reset_with_the_metrics(training: Training) -> None:
    """What is reset after each step was meant to be the metrics."""

    def reset(_: int) -> None:
        for module in training.model.modules():
            if hasattr(module, "reset_running_stats"):
                module.reset_running_stats()

    training.after.append(reset)


@HALF.fault("no bias where needed", grades, where=("thresholds", "score"))
def no_thresholds(training: Training) -> None:
    training.use(Grades(thresholds=False))


@HALF.fault("no bias where needed", swing)
def an_odd_net_for_an_even_curve(training: Training) -> None:
    training.use(Swing(bias=False))


class Cleared(Translator):
    """Makes room for its outputs again at each step."""

    def forward(self, source: Tensor, before: Tensor) -> Tensor:
        h = self.encode(source)
        c = torch.zeros_like(h)
        for number, token in enumerate(self.target(before).unbind(1)):
            h, c = self.decoder(token, (h, c))
            out = torch.zeros(len(source), before.shape[1], 6)
            out[:, number] = self.head(h)
        return out


@HALF.fault("overwritten activation", backwards)
def room_for_outputs_made_anew_at_each_step(training: Training) -> None:
    training.use(Cleared())


class Blinded(Residual):
    """Fills what it computed, where a copy was meant."""

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm_one(self.one(x)))
        out = x + self.norm_two(self.two(h))
        out[:] = out.mean((0, 2, 3), keepdim=True)
        return F.relu(out)


@HALF.fault("overwritten activation", marks)
def maps_filled_with_their_mean(training: Training) -> None:
    model = Looker()
    model.blocks[2] = Blinded(8)
    training.use(model)


@HALF.fault("shared by mistake", tones, also=("batch norm statistics",))
def one_norm_behind_two_convolutions(training: Training) -> None:
    model = tones_model()
    model[5] = model[2]
    training.use(model)


@HALF.fault("shared by mistake", triples)
def three_times_the_same_factors(training: Training) -> None:
    model = Factors()
    model.sides = nn.ParameterList([nn.Parameter(0.5 * torch.randn(12, 4))] * 3)
    training.use(model)
