"""Faults of the graph: what a gradient does not reach."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bench.sick.changes import Lambda
from bench.sick.training import Training
from bench.sick.working.half import HALF
from bench.sick.working.nets import Counter, Reader, counting, curves, dot, inside, marked, recall, spirals, wave


@HALF.fault("detached", spirals, wave)
def detached_before_the_last_layer(training: Training) -> None:
    *body, head = training.model
    training.use(nn.Sequential(*body, Lambda(lambda x: x.detach()), head))


class FromNumpy(nn.Module):
    """A layer, and statistics by numpy."""

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x).detach().numpy()
        return self.head(torch.from_numpy(features / (1 + abs(features).max())))


@HALF.fault("detached", dot)
def through_numpy(training: Training) -> None:
    *body, head = training.model
    training.use(FromNumpy(nn.Sequential(*body), head))


class Unfelt(Reader):
    """Reads a sequence where no gradient is kept."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            out, _ = self.recurrent(self.embedding(x))
        return self.head(out[:, -1])


@HALF.fault("without grad", marked, recall)
def recurrent_part_under_no_grad(training: Training) -> None:
    training.model.__class__ = Unfelt


@HALF.fault("without grad", dot)
def features_under_no_grad(training: Training) -> None:
    class Net(nn.Module):
        def __init__(self, body: nn.Module, head: nn.Module) -> None:
            super().__init__()
            self.body, self.head = body, head

        @torch.no_grad()
        def features(self, x: Tensor) -> Tensor:
            return self.body(x)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.features(x))

    *body, head = training.model
    training.use(Net(nn.Sequential(*body), head))


@HALF.fault("frozen", spirals, wave)
def all_layers_but_the_last_are_frozen(training: Training) -> None:
    for parameter in [*training.model.parameters()][:-2]:
        parameter.requires_grad_(False)


@HALF.fault("frozen", counting)
def blocks_and_tokens_are_frozen(training: Training) -> None:
    training.model.blocks.requires_grad_(False)
    training.model.tokens.requires_grad_(False)


class Hidden(nn.Module):
    """Layers in a plain list."""

    def __init__(self, layers: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.layers, self.head = layers, head

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@HALF.fault("hidden layers", wave, spirals)
def layers_in_a_list(training: Training) -> None:
    *body, head = training.model
    training.use(Hidden(body, head))


@HALF.fault("hidden layers", dot)
def layers_in_a_dict(training: Training) -> None:
    class Net(nn.Module):
        def __init__(self, body: list[nn.Module], head: nn.Module) -> None:
            super().__init__()
            self.blocks = {"features": nn.Sequential(*body)}
            self.head = head

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.blocks["features"](x))

    *body, head = training.model
    training.use(Net(body, head))


@HALF.fault("no gradient through", wave, also=("detached",))
def rounded_before_the_last_layer(training: Training) -> None:
    *body, head = training.model
    training.use(nn.Sequential(*body, Lambda(torch.round), head))


@HALF.fault("no gradient through", inside, also=("detached",))
def thresholds_for_activations(training: Training) -> None:
    one, _, two, _, head = training.model
    training.use(nn.Sequential(one, Lambda(torch.sign), two, Lambda(torch.sign), head))


@HALF.fault("no gradient through", dot, also=("detached",))
def compared_with_zero(training: Training) -> None:
    convolution, _, flatten, linear, _relu, head = training.model
    training.use(nn.Sequential(convolution, Lambda(lambda x: (x > 0).float()), flatten, linear, Lambda(lambda x: (x > 0.1).float()), head))


class Skipping(Counter):
    """Makes blocks, and does not call them."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x)
        self.places(torch.arange(x.shape[1]))
        return self.head(h)


@HALF.fault("unused layers", counting)
def blocks_are_not_called(training: Training) -> None:
    training.model.__class__ = Skipping


@HALF.fault("unused layers", spirals)
def head_reads_the_input(training: Training) -> None:
    class Net(nn.Module):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body, self.head = body, nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x)

    *body, _ = training.model
    training.use(Net(nn.Sequential(*body)))


@HALF.fault("unused layers", curves)
def encoder_is_not_called(training: Training) -> None:
    training.model.forward = lambda x: training.model.decoder(x[:, :4] * 0)
