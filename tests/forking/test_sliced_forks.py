"""A fork that a page asks for is made in slices: the same fork, and the training never notices."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import modlab
from modlab import errors as modlab_errors
from modlab.forking import keeper as keeping
from modlab.results import sliced_fork
from modlab.results.live import WatchPage
from modlab.views.watch import payload
from modlab.wording import forks
from tests.forking.test_forks import LOOPS, STEPS, plain_run, trained, unhooked
from tests.views.test_faces import unpack
from tests.watching.test_identity import Run, photograph

LR = {"action": "fork", "lr": 0.2}


def seeded() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def watched(
    make: Callable[[], Run], asked: dict[str, Any] | None = None, at: int = 8, steps: int = STEPS
) -> tuple[modlab.results.watch.Watch, list[Any]]:
    """A run in which the page asks for a fork behind some step, and all that the run gave."""
    seeded()
    model, optimizers, step = make()
    found: list[Any] = []
    with modlab.watch(model, optimizers, keep="good") as w:
        for number in range(steps):
            if asked is not None and number == at:
                w.ask_fork({"at": w.record.kept.states[0]} | asked)
            found.append(float(step(number).detach()))
    return w, [*found, unhooked(photograph(model)), torch.rand(2).tolist()]


@pytest.mark.parametrize("name", LOOPS)
def test_the_training_never_notices(name: str) -> None:
    w, found = watched(LOOPS[name], {"action": "fork"})
    _, alone = watched(LOOPS[name])
    assert found == alone
    assert len(w.forks) == (name != "by_hand")  # of its steps nobody tells
    assert all(one.exact for one in w.forks)


def test_slices_are_the_same_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_fork, "SLICE", 0.0)  # one step each
    w, _ = watched(plain_run, LR, at=10)
    (sliced,) = w.forks
    whole = w.fork(0, {"lr": 0.2}, steps=sliced.record.steps)
    assert (sliced.losses, sliced.original, sliced.exact) == (whole.losses, whole.original, True)
    assert sliced.record.steps == 10
    assert [one.losses for one in w.forks] == [sliced.losses, whole.losses]


def test_a_change_runs_where_subclasses_are_asked() -> None:
    """The hook in which a slice is made switches ``__torch_function__`` off; a fork has it as the training has."""

    class Halved(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = super().__torch_function__(func, types, args, kwargs or {})
            return found * 0.5 if func is torch.nn.functional.linear else found

    def make() -> Run:
        model, optimizers, _ = plain_run()
        loop = trained(model, lambda: model(torch.randn(8, 4).as_subclass(Halved)).square().mean(), optimizers[0])
        return loop

    w, found = watched(make, LR)
    assert found == watched(make)[1]
    assert w.forks[0].exact


def test_all_faces_have_it() -> None:
    w, _ = watched(plain_run, LR)
    (fork,) = w.forks
    assert fork.record.change == "settings" and "lr = 0.2" in fork.headline
    assert fork.headline in str(w)
    assert (
        fork.headline.split(": ", 1)[1] in w.html(bundle=False).replace("&#x27;", "'") and w.html(bundle=False).count("loss at last") == 1
    )
    assert w.to_dict()["forks"][0]["fork"] == fork.losses
    json.dumps(w.to_dict()["forks"])
    assert pickle.loads(pickle.dumps(w)).forks[0].losses == fork.losses
    for live in (False, True):
        made: tuple[Any, Any] = unpack(payload.of_watch(w.record, "w", "0", live=live, can_fork=live))
        content, arrays = made
        assert " ".join(content["forks"][0]["headline"]) == fork.headline
        assert arrays["fork 0 fork"].T.tolist() == [fork.losses] * 3  # mean, least and greatest
        assert ("kept" in content) == live
    assert content["kept"]["steps"][0] == 0 and content["kept"]["rates"][0] == plain_run()[1][0].param_groups[0]["lr"]
    plain = unpack(payload.of_watch(watched(plain_run)[0].record, "w", "0"))[0]
    assert not {"forks", "kept", "refused"} & {*plain}


ANSWERS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "letters": ({"lr": "abc"}, modlab_errors.QuestionError, "must be a number"),
    "negative": ({"lr": -1}, modlab_errors.QuestionError, "must not be negative"),
    "not finite": ({"lr": float("inf")}, modlab_errors.QuestionError, "must be a number"),
    "no setting": ({"setting": "7.p", "value": 1}, modlab_errors.QuestionError, "No module has the setting 7.p"),
    "no value": ({"setting": "2.p", "value": None}, modlab_errors.QuestionError, "2.p must be a number"),
    "before the first": ({"at": -3}, modlab_errors.ForkError, "the first kept state"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_bad_input_is_answered(name: str) -> None:
    w, _ = watched(with_dropout)
    given, kind, words = ANSWERS[name]
    with pytest.raises(kind, match=words):
        w.ask_fork({"action": "fork", "at": 0, **given})
    assert w.forks == ()


def with_dropout() -> Run:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 2))
    return trained(model, lambda: model(torch.randn(8, 4)).square().mean(), torch.optim.SGD(model.parameters(), lr=0.1))


def test_what_a_model_refuses_is_said_and_is_no_fork() -> None:
    w, _ = watched(with_dropout, {"action": "fork", "at": 0, "setting": "2.p", "value": 1.5})
    assert w.forks == () and w.record.refused == "2.p of a Dropout takes a probability between 0 and 1, and not 1.5."
    w.ask_fork({"action": "fork", "at": 0, "setting": "2.p", "value": 0.5})
    assert len(w.forks) == 1 and not w.record.refused
    assert w.forks[0].record.facts == {"settings": "2.p = 0.5"}


def test_a_person_at_the_form_reads_no_call_of_python() -> None:
    w, _ = watched(with_dropout)
    with pytest.raises(modlab_errors.QuestionError) as found:
        WatchPage(w)._answer({"action": "fork", "at": -3, "lr": None})
    assert str(found.value) == "Nothing is kept at or before step -3: the first kept state is the one at step 0."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("w.fork(change=…) got -1.0 as lr, but takes a number.\n  Write: w.fork(step, {'lr': 0.1})", "lr takes a number, and not -1.0."),
        ("w.fork(change=…): a Rprop that runs cannot go on.\n  Put one: w.fork(step, …)", "A Rprop that runs cannot go on."),
        ("w.fork(change=…): layers (Net) has no 'p'.\n  Nearest: 'q'", "layers (Net) has no 'p'.\nNearest: 'q'"),
        ("The change raised ValueError: no\n  Look at it.", "The change raised ValueError: no\nLook at it."),
        ("A fork is still running: wait for it, or cancel it.", "A fork is still running: wait for it, or cancel it."),
    ],
)
def test_an_error_at_the_form_is_plain(error: str, said: str) -> None:
    assert forks.at_a_form(error) == said


def test_it_is_cancelled_and_one_runs_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_fork, "SLICE", 0.0)
    torch.manual_seed(0)
    model, optimizers, step = plain_run()
    with modlab.watch(model, optimizers, keep="good") as w:
        for number in range(STEPS):
            if number == 12:
                w.ask_fork({"at": 0, **LR})
            if number == 16:
                with pytest.raises(modlab_errors.QuestionError, match="still running"):
                    w.ask_fork({"at": 0, **LR})
                w.ask_fork({"action": "cancel"})
            step(number)
    (fork,) = w.forks
    assert fork.record.ended == "cancelled" and 0 < fork.record.steps < 12
    assert "It was cancelled there." in str(fork)


@pytest.mark.parametrize("room", [keeping.STATES, 2], ids=["thinned", "no room"])
def test_what_one_has_chosen_stays_where_there_is_room(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    monkeypatch.setattr(keeping, "GAP", 2)
    monkeypatch.setattr(keeping, "STATES", room)
    seeded()
    model, optimizers, step = plain_run()
    with modlab.watch(model, optimizers, keep="good") as w:
        for number in range(80):
            if number == 8:
                chosen = w.record.kept.states[1]
                w.ask_fork({"action": "pin", "at": chosen})
            step(number)
    kept = w.record.kept
    assert kept is not None and kept.states[0] == 0 and kept.states[-1] > 40
    assert (chosen in kept.states) == (room > 2) and len(kept.states) <= room


def test_an_interrupt_ends_it_and_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_fork, "SLICE", 0.0)
    torch.manual_seed(0)
    model, optimizers, step = plain_run()
    seen, original = 0, id(model)  # in a copy, the hook's own model would be the copy

    def interrupted(module: Any, args: Any) -> None:
        nonlocal seen
        if id(module) != original and seen >= 0:
            seen += 1
            if seen == 5:
                seen = -1
                raise KeyboardInterrupt

    model.register_forward_pre_hook(interrupted)
    with pytest.raises(KeyboardInterrupt), modlab.watch(model, optimizers, keep="good") as w:
        for number in range(STEPS):
            if number == 12:
                w.ask_fork({"at": 0, **LR})
            step(number)
    assert seen == -1 and torch.is_grad_enabled() and not torch.overrides._get_current_function_mode_stack()
    assert w.record.state == "interrupted" and len(w.forks) <= 1
    w.ask_fork({"at": 0, **LR})
    assert w.forks[-1].exact
