"""Compare and diagnose on models that are spread over ranks, interrupted on all of them at the same place."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable
from itertools import takewhile
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import modlab
from tests.comparing.test_sharded_passes import MODELS, bits
from tests.interrupts import changed, interrupted, names, surroundings
from tests.ranks import run_ranks


def compare(model: nn.Module, x: Tensor) -> Any:
    return modlab.compare(model)(x)


def diagnose(model: nn.Module, x: Tensor) -> Any:
    return modlab.diagnose(model, batch=(x, torch.zeros(4, 3)), loss=lambda output, target: nn.functional.mse_loss(output.float(), target))


VERBS: dict[str, Callable[[nn.Module, Tensor], Any]] = {"compare": compare, "diagnose": diagnose}
SOME = 12


class Scene:
    """A model after a step, and what it is like."""

    def __init__(self, name: str, rank: int) -> None:
        torch.manual_seed(0)
        self.model = MODELS[name]()
        torch.manual_seed(rank if name != "tensor parallel" else 0)
        self.x = torch.randn(4, 8 if name == "tensor parallel" else 7)
        self.optimizer = torch.optim.AdamW([one for one in self.model.parameters() if one.requires_grad], lr=0.01)
        self.step()
        self.before = self.state()

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.x).float().square().mean().backward()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return bits(self.model, self.optimizer) | surroundings() | {"training": [one.training for one in self.model.modules()]}


def tried(rank: int, name: str, verb: str, some: int) -> list[str]:
    """What is wrong after an interrupt at some places, and after another step and another look."""
    sys.stderr = io.StringIO()
    torch.set_num_threads(1)
    look = VERBS[verb]
    plain = Scene(name, rank)
    said = str(look(plain.model, plain.x))
    plain.step()
    after, again = plain.state(), Scene(name, rank)
    mine: list[Any] = [None, None]
    found = names(lambda: look(again.model, again.x))
    dist.all_gather_object(mine, found)
    same = len([*takewhile(lambda pair: pair[0] == pair[1], zip(*mine, strict=False))])  # then each rank's own numbers lead it other ways
    wrong = [] if same > SOME else [f"the ranks go {same} places together"]
    for turn in random.Random(0).sample(range(same), some):
        scene = Scene(name, rank)
        error = interrupted(lambda: look(scene.model, scene.x), turn)  # noqa: B023 - it is called here
        left = [] if error is None or isinstance(error, KeyboardInterrupt) else [f"raised {error!r}"]  # Python drops some
        del error
        left += changed(scene.before, scene.state())
        again_said = str(look(scene.model, scene.x))
        left += [] if again_said == said else [f"another look says: {again_said}"]
        scene.step()
        left += changed(after, scene.state())
        wrong += [f"{found[turn]} ({turn}): {one}" for one in left]
        dist.barrier()
    return wrong


def check(name: str, verb: str, some: int) -> None:
    for rank, wrong in enumerate(run_ranks(tried, 2, name, verb, some)):
        assert not wrong, f"rank {rank}:\n" + "\n".join(wrong[:20])


@pytest.mark.long
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", MODELS)
def test_an_interrupt_on_all_ranks(name: str, verb: str) -> None:
    check(name, verb, SOME)
