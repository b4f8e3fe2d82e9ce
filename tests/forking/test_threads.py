"""Forks and threads: none is made beside a training that runs, and of several that are asked for at once, one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab import errors as modlab_errors
from tests.forking.test_forks import small, trained
from tests.watching.test_identity import Run


def dropping() -> Run:
    model = small(nn.Dropout(0.2))
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def in_a_thread(work: Callable[[], Any]) -> Any:
    """What it gives, or raises, in another thread."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:  # noqa: BLE001 - it is given back
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_a_fork_beside_the_training_is_refused() -> None:
    torch.manual_seed(0)
    model, optimizers, step = dropping()
    with modlab.watch(model, *optimizers, keep="good") as w:
        for number in range(20):
            step(number)
        before = torch.get_rng_state()
        for work in (lambda: w.fork(5), lambda: w.fork(5, {"lr": 0.2})):
            error = in_a_thread(work)
            assert isinstance(error, modlab_errors.ForkError) and "runs in another thread" in str(error)
        assert torch.equal(before, torch.get_rng_state())
        assert w.fork(5).exact
    assert in_a_thread(lambda: w.fork(5)).exact


def test_forks_that_are_asked_for_at_once_are_made_one_after_another() -> None:
    torch.manual_seed(0)
    model, optimizers, step = dropping()
    with modlab.watch(model, *optimizers, keep="good") as w:
        for number in range(40):
            step(number)
    alone, found = w.fork(5, {"lr": 0.2}), list[Any]()
    some = [threading.Thread(target=lambda: found.append(w.fork(5, {"lr": 0.2}))) for _ in range(3)]
    for one in some:
        one.start()
    for one in some:
        one.join()
    assert [(one.exact, one.losses) for one in found] == [(True, alone.losses)] * 3


def test_a_loop_in_another_thread_than_the_watch_is_told() -> None:
    torch.manual_seed(0)
    model, optimizers, step = dropping()
    with modlab.watch(model, *optimizers, keep="good") as w:
        in_a_thread(lambda: [step(number) for number in range(20)])
    with pytest.raises(modlab_errors.ForkError, match="did not run in the thread that opened this watch, and only that thread is taped"):
        w.fork(5)
