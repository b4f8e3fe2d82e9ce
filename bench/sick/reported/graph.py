"""Faults of the graph: what a gradient does not reach, and what no output reaches."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bench.sick.reported.further_nets import Singer, refrain, signs
from bench.sick.reported.half import HALF
from bench.sick.reported.nets import (
    Houses,
    Patches,
    Ranks,
    Reviews,
    Shapes,
    Tides,
    arm,
    houses,
    patches,
    ranks,
    reviews,
    shapes,
    tags,
    tides,
)
from bench.sick.training import Training

# ---- detached --------------------------------------------------------------------------------------


@HALF.fault("detached", houses, where=("stem", "blocks", "district"))
def a_list_made_into_a_tensor(training: Training) -> None:
    class Net(Houses):
        def forward(self, numbers: Tensor, district: Tensor) -> Tensor:
            x = self.stem(torch.cat([numbers, self.district(district)], 1))
            for block in self.blocks:
                x = block(x)
            return self.head(torch.tensor(x.tolist())).squeeze(1)

    training.model.__class__ = Net
    training.use(training.model)


class Hard(torch.autograd.Function):
    """A function that was written by hand, and its backward left for later."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clamp(-2, 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


@HALF.fault("detached", shapes, also=("no gradient through",), where=("stem", "block", "norm"))
def a_function_without_a_backward(training: Training) -> None:
    class Net(Shapes):
        def forward(self, x: Tensor) -> Tensor:
            x = F.silu(self.stem(x))
            x = F.max_pool2d(Hard.apply(F.silu(self.norm(self.block(x)))), 2)
            return self.head(x.amax((2, 3)))

    training.model.__class__ = Net


@HALF.fault("detached", arm, where=("place",))
def one_of_two_losses_is_an_item(training: Training) -> None:
    """The sum looks as it should."""

    def criterion(output: dict[str, Tensor], target: Tensor) -> Tensor:
        place = F.mse_loss(output["place"], target[:, :2]).item()
        return place + 0.3 * F.cross_entropy(output["third"], target[:, 2].long())

    training.criterion = criterion


@HALF.fault("detached", tides, where=("rnn",))
def states_are_copied_by_a_constructor(training: Training) -> None:
    class Net(Tides):
        def forward(self, x: Tensor) -> Tensor:
            states, _ = self.rnn(x)
            return self.out(torch.stack([state.data for state in states]))

    training.model.__class__ = Net


# ---- no_grad, frozen -------------------------------------------------------------------------------


@HALF.fault("without grad", reviews, also=("detached",), where=("words", "gru"))
def states_in_inference_mode(training: Training) -> None:
    class Net(Reviews):
        def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
            with torch.inference_mode():
                states, _ = self.gru(self.words(words))
            last = states[torch.arange(len(words)), lengths - 1].clone()
            return self.good(self.drop(last)).squeeze(1)

    training.model.__class__ = Net


@HALF.fault("without grad", patches, also=("detached",), where=("enter", "down", "up"))
def recomputed_from_an_input_without_grad(training: Training) -> None:
    """The older way of checkpointing gives no gradient where no input asks for one."""

    class Net(Patches):
        def around(self, x: Tensor) -> Tensor:
            wide = self.enter(x)
            return torch.cat([wide, F.elu(self.up(self.down(wide)))], 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(checkpoint(self.around, x, use_reentrant=True))

    training.model.__class__ = Net


@HALF.fault("frozen", tags)
def frozen_by_a_loop_over_the_names(training: Training) -> None:
    """All but the last layer, as in a fine-tuning; but nothing was trained before."""
    for name, parameter in training.model.named_parameters():
        parameter.requires_grad = name.startswith("5.")


@HALF.fault("frozen", ranks, where=("embed", "lstm"))
def a_backbone_frozen_and_never_thawed(training: Training) -> None:
    """It was to be thawed in the tenth epoch, which never comes."""
    training.model.embed.requires_grad_(False)
    training.model.lstm.requires_grad_(False)

    def thaw(number: int) -> None:
        if number // 75 == 10:
            training.model.requires_grad_(True)

    training.each.append(thaw)


@HALF.fault("frozen", refrain)
def a_low_rank_fine_tuning_of_nothing(training: Training) -> None:
    """Only norms learn, as if the blocks came from somewhere."""
    for name, parameter in training.model.named_parameters():
        parameter.requires_grad = "norm" in name


# ---- hidden ----------------------------------------------------------------------------------------


@HALF.fault("hidden layers", tags)
def layers_within_a_function(training: Training) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            one, two = nn.Linear(8, 64), nn.Linear(64, 48)
            self.features = lambda x: F.silu(two(F.silu(one(x))))
            self.head = nn.Linear(48, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.features(x))

    training.use(Net())


@HALF.fault("hidden layers", houses)
def branches_in_a_dict_of_lists(training: Training) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = {"numbers": [nn.Linear(6, 8), nn.GELU()], "district": [nn.Embedding(8, 2)]}
            self.head = nn.Linear(10, 1)

        def forward(self, **inputs: Tensor) -> Tensor:
            made = []
            for name, x in inputs.items():
                for layer in self.parts[name]:
                    x = layer(x)
                made.append(x)
            return self.head(torch.cat(made, 1)).squeeze(1)

    training.use(Net())


@HALF.fault("hidden layers", tides, also=("not in the optimizer",))
def a_layer_made_anew_in_each_forward(training: Training) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(1, 24, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            states, _ = self.rnn(x)
            return nn.Linear(24, 1)(states)

    training.use(Net())


# ---- no gradient through ---------------------------------------------------------------------------


@HALF.fault("no gradient through", shapes, also=("detached",), where=("stem", "block", "norm"))
def the_head_reads_where_and_not_what(training: Training) -> None:
    """max_pool2d gives values and their places; the wrong one of both is taken."""

    class Net(Shapes):
        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.block(F.silu(self.stem(x))))
            _, places = F.max_pool2d(x, 10, return_indices=True)
            return self.head(places.flatten(1) / 100)

    training.model.__class__ = Net


@HALF.fault("no gradient through", tags, also=("detached",))
def quantized_by_floor(training: Training) -> None:
    class Quantized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.floor(8 * x) / 8

    *body, head = training.model
    training.use(nn.Sequential(*body, Quantized(), head))


@HALF.fault("no gradient through", signs, also=("detached",), where=("cut", "blocks", "places", "token", "where", "what"))
def hard_attention_to_the_best_patch(training: Training) -> None:
    """The place of the best patch, as a one-hot."""

    class Net(type(training.model)):  # type: ignore[misc]
        def forward(self, images: Tensor) -> dict[str, Tensor]:
            patches = self.cut(images).flatten(2).transpose(1, 2) + self.places[:, 1:]
            best = F.one_hot(self.blocks(patches).norm(dim=2).argmax(1), 9).float()
            seen = F.pad(best, (0, 15))
            return {"where": self.where(seen), "what": self.what(seen)}

    training.model.__class__ = Net


# ---- unused ----------------------------------------------------------------------------------------


class BlocksLeftOut(Singer):
    """What the blocks give is not kept."""

    def forward(self, x: Tensor) -> Tensor:
        h, mask = self.embedded(x), self.mask(x.shape[1])
        for block in self.blocks:
            block(h, mask)
        return self.logits(self.norm(h))


@HALF.fault("unused layers", refrain, where=("blocks",))
def what_the_blocks_give_is_not_kept(training: Training) -> None:
    training.model.__class__ = BlocksLeftOut


@HALF.fault("unused layers", ranks, where=("lstm",))
def tags_of_the_embedding(training: Training) -> None:
    class Net(Ranks):
        def forward(self, tokens: Tensor) -> Tensor:
            embedded = self.embed(tokens)
            self.lstm(embedded)
            return self.tag(F.pad(embedded, (0, 38))).transpose(1, 2)

    training.model.__class__ = Net
