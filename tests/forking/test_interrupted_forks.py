"""An interrupt in the midst of a fork: the training goes on as if nobody had asked, and so do later forks and later watches."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import modlab
from tests.forking.test_forks import small
from tests.interrupts import at_rest, changed, everywhere, places

STEPS, MORE, SOME, PARTS = 12, 6, 25, 20

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


class Training:
    """A training with dropout, watched or not."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = small(nn.BatchNorm1d(8), nn.Dropout(0.2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1, momentum=0.9)

    def steps(self, count: int) -> list[float]:
        """Some more losses."""
        return [float(self._step()) for _ in range(count)]

    def _step(self) -> Tensor:
        self.optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = self.model(torch.randn(8, 4)).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def watched(self) -> modlab.Watch:
        """A watch of it that is open."""
        return modlab.watch(self.model, self.optimizer, keep="good")


def reach(model: Any, optimizer: Any) -> None:
    """A change."""
    model[1].scale = 2.0
    optimizer.param_groups[0]["lr"] = 0.2


def forked(w: modlab.Watch) -> None:
    w.fork(3, reach, steps=2)


def check(some: Callable[[list[int]], Collection[int]], again: Callable[[int], bool] | None = None) -> None:
    plain = Training().steps(STEPS + MORE)
    training = Training()
    with training.watched() as w:
        assert training.steps(STEPS) == plain[:STEPS]
        forked(w)  # what is imported and remembered at the first time
        found, before = places(lambda: forked(w), into_c=again is None), at_rest(training.model)

        def after(error: BaseException | None, thorough: bool) -> list[str]:
            wrong = [] if type(error) in (KeyboardInterrupt, type(None)) else [f"raised {error!r}"]
            wrong += changed(before, at_rest(training.model))
            if training.steps(MORE) != plain[STEPS:]:
                wrong.append("the training goes on otherwise")
            return wrong + ([*_later(w)] if thorough else [])

        wrong = everywhere(lambda: forked(w), some(found), after, again)
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])


def _later(w: modlab.Watch) -> Iterator[str]:
    if not (fork := w.fork(3)).exact or fork.record.steps < MORE:
        yield f"another fork: {fork.headline}"
    training = Training()
    with training.watched() as other:
        training.steps(STEPS)
    if not (fork := other.fork(3)).exact:
        yield f"a fork of another training: {fork.headline}"


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A copy of a process has none of OpenMP's threads, and would wait for them."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_an_interrupt_at_some_places() -> None:
    check(lambda found: random.Random(0).sample(found, SOME))


def test_a_second_interrupt_while_the_first_is_cleaned_up() -> None:
    check(lambda found: random.Random(1).sample(found, 5), lambda count: count in (0, 5, 20))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_an_interrupt_at_every_place(part: int) -> None:
    check(lambda found: found[part::PARTS])
