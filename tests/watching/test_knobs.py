"""A knob moves a value between two steps, and nowhere else; the same moves give the same bits."""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR

import modlab
from modlab.errors import QuestionError
from modlab.results import live
from modlab.results.knob import Knob
from modlab.watching import watcher
from modlab.watching.knobs import Knobs
from tests import interrupts
from tests.ranks import run_ranks

STEPS = 30

Turn = Callable[[int, dict[str, Knob]], None]


class Loop:
    """A small training with dropout, whose share is read in the loop."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer] | None = None, accumulate: int = 1) -> None:
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.0), nn.Linear(16, 1))
        self.optimizer = (make or (lambda all_: torch.optim.SGD(all_, lr=0.05, momentum=0.9)))(self.net.parameters())
        self.accumulate = accumulate
        self.seen: list[list[float]] = []

    def go(self, w: Any, steps: int = STEPS, turn: Turn | None = None, knobs: dict[str, Knob] | None = None) -> None:
        for step in range(steps):
            if turn is not None:
                turn(step, knobs or {})
            self.seen.append([])
            self.optimizer.zero_grad()
            for _ in range(self.accumulate):
                if knobs and "p" in knobs:
                    self.net[2].p = knobs["p"]()
                    self.seen[-1].append(knobs["p"]())
                self.loss().backward()
            self.optimizer.step()

    def loss(self) -> Tensor:
        loss: Tensor = self.net(torch.randn(8, 4)).square().mean()
        return loss

    @property
    def bits(self) -> list[bytes]:
        state = [value for one in self.optimizer.state.values() for value in one.values() if isinstance(value, Tensor)]
        return [tensor.detach().numpy().tobytes() for tensor in (*self.net.parameters(), *state)]


def knobs_of(w: modlab.Watch) -> dict[str, Knob]:
    return {"lr": w.knob("lr", 1e-4, 1, log=True), "p": w.knob("p", 0, 0.9)}


def steered(turn: Turn | None = None, replay: Any = None, **options: Any) -> tuple[Loop, modlab.Watch]:
    loop = Loop(**options)
    with modlab.watch(loop.net, loop.optimizer) as w:
        knobs = knobs_of(w)
        if replay is not None:
            w.replay(replay)
        loop.go(w, turn=turn, knobs=knobs)
    return loop, w


# ---- when a move holds


def test_a_knob_that_is_never_moved_changes_no_bit() -> None:
    bare = Loop()
    bare.go(None)
    loop, w = steered()
    assert loop.bits == bare.bits
    assert loop.optimizer.param_groups[0]["lr"] == 0.05
    assert w.moves == []


def test_a_move_between_two_steps_is_an_assignment_there() -> None:
    bare = Loop()
    for step in range(STEPS):
        if step in (0, 7):
            bare.optimizer.param_groups[0]["lr"] = 0.01 if step else 0.02
        bare.go(None, 1)
    loop, w = steered(lambda step, knobs: knobs["lr"].set(0.01 if step else 0.02) if step in (0, 7) else None)
    assert loop.bits == bare.bits
    assert w.moves == [{"step": 0, "knob": "lr", "value": 0.02}, {"step": 7, "knob": "lr", "value": 0.01}]
    assert w.knobs["lr"].start == 0.05
    assert w.knobs["lr"].value == 0.01


def test_what_is_moved_after_a_step_has_begun_holds_from_the_next_one() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        p = w.knob("p", 0, 0.9)
        assert p() == 0  # the first step begins
        p.set(0.5)
        assert (p(), p.value) == (0, 0.5)
        loop.go(w, 1)
        assert (p(), p.value) == (0.5, 0.5)
        assert [(one.step, one.value) for one in p.moves] == [(1, 0.5)]
    assert w.knobs["p"].moves == p.moves


def test_of_several_moves_in_one_step_the_last_one_counts() -> None:
    def turn(step: int, knobs: dict[str, Knob]) -> None:
        knobs["lr"].set(0.5)
        knobs["lr"].value = 0.2 if step < 5 else 0.3

    _, w = steered(turn)
    assert [(one["step"], one["value"]) for one in w.moves] == [(0, 0.2), (5, 0.3)]


def test_an_interrupt_anywhere_loses_no_move_and_no_ratio() -> None:
    """At each call and return while a move takes hold; the loop is begun again as from the keyboard."""

    def moved(turn: int | None) -> list[float]:
        loop = Loop(two_groups(torch.optim.SGD, lr=0.1))
        with modlab.watch(loop.net, loop.optimizer) as w:
            loop.go(w, 2)
            w.knob("lr", 1e-4, 1).set(0.5)
            begin = w._watcher.knobs.step_begins
            if turn is None:
                names = enumerate(interrupts.names(begin))
                places[:] = [
                    place for place, name in names if not name.endswith("<genexpr>")
                ]  # its end is a finalizer: it raises to nobody
            else:
                interrupts.interrupted(begin, turn)
                begin()
            loop.go(w, 1)
        assert w.moves == [{"step": 2, "knob": "lr", "value": 0.5}]
        return [value(group, "lr") for group in loop.optimizer.param_groups]

    places: list[int] = []
    expected = moved(None)
    assert len(places) > 10
    for turn in places:
        assert moved(turn) == expected, turn


def test_a_first_value_is_a_move_before_the_first_step() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        lr = w.knob("lr", 1e-4, 1, log=True, start=0.01)
        loop.go(w)
    bare = Loop(lambda all_: torch.optim.SGD(all_, lr=0.01, momentum=0.9))
    bare.go(None)
    assert loop.bits == bare.bits
    assert [(one.step, one.value) for one in lr.moves] == [(0, 0.01)]


def test_all_reads_of_a_step_agree_while_a_thread_moves_the_knob() -> None:
    loop, _ = storm(accumulate=4)
    assert all(len({*reads}) == 1 for reads in loop.seen)


def storm(replay: Any = None, **options: Any) -> tuple[Loop, modlab.Watch]:
    """Steered by a thread at whatever times."""
    loop, over = Loop(**options), threading.Event()
    with modlab.watch(loop.net, loop.optimizer) as w:
        knobs = knobs_of(w)

        def turn() -> None:
            place = 0
            while not over.wait(0.0005):
                place += 1
                knobs["lr"].set(0.001 * (1 + place % 7))
                knobs["p"].set(0.1 * (place % 9))

        if replay is not None:
            w.replay(replay)
        thread = threading.Thread(target=turn)
        thread.start()
        try:
            loop.go(w, 150, knobs=knobs)
        finally:
            over.set()
            thread.join()
    return loop, w


ADAM = {"make": lambda all_: torch.optim.AdamW(all_, lr=0.01)}


@pytest.mark.parametrize("options", [{}, {"accumulate": 3}, ADAM], ids=["plain", "accumulating", "adamw"])
def test_a_run_steered_by_a_thread_is_repeated_bit_for_bit(options: dict[str, Any]) -> None:
    loop, w = storm(**options)
    assert torch.cat([one.flatten() for one in loop.net.parameters()]).isfinite().all()
    assert len(w.moves) > 4
    saved = json.loads(json.dumps(w.moves))
    again, repeated = steered_long(saved, **options)
    assert again.bits == loop.bits
    assert repeated.moves == w.moves
    other, _ = steered_long(w.moves[3:], **options)
    assert other.bits != loop.bits


def steered_long(replay: Any, **options: Any) -> tuple[Loop, modlab.Watch]:
    loop = Loop(**options)
    with modlab.watch(loop.net, loop.optimizer, budget=0.5) as w:  # looked at in other steps
        knobs = knobs_of(w)
        w.replay(replay)
        loop.go(w, 150, knobs=knobs)
    return loop, w


def test_a_replay_leaves_no_other_hand_on_its_knobs(capsys: pytest.CaptureFixture[str]) -> None:
    loop, w = storm()
    again, repeated = storm(w)
    assert again.bits == loop.bits
    assert repeated.moves == w.moves
    assert capsys.readouterr().err.count("lr is replayed") == 1


def test_steps_that_a_scaler_skips_do_not_move_a_replay() -> None:
    def run(replay: Any = None, budget: float = 0.02) -> tuple[list[bytes], list[dict[str, Any]]]:
        loop = Loop()
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=4)
        with modlab.watch(loop.net, loop.optimizer, budget=budget) as w:
            knobs = knobs_of(w)
            if replay:
                w.replay(replay)
            for step in range(40):
                if not replay and step % 3 == 1:
                    knobs["lr"].set(0.001 * step)
                    knobs["p"].set(0.01 * step)
                loop.net[2].p = knobs["p"]()
                if not replay and step % 5 == 1:
                    knobs["p"].set(0.02 * step)
                loop.optimizer.zero_grad()
                scaler.scale(loop.loss()).backward()
                scaler.step(loop.optimizer)
                scaler.update()
        return loop.bits, w.moves

    bits, moves = run()
    assert run(moves, budget=1.0) == (bits, moves)


def test_a_closure_sees_one_value() -> None:
    loop = Loop(lambda all_: torch.optim.LBFGS(all_, lr=0.1, max_iter=4))
    reads: list[list[float]] = []
    with modlab.watch(loop.net, loop.optimizer) as w:
        p, lr = w.knob("p", 0, 1), w.knob("lr", 0.01, 1)
        for step in range(4):
            reads.append([])

            def closure(step: int = step) -> Tensor:
                reads[-1].append(p())
                p.set(0.1 * len(reads[-1]) + 0.01 * step)
                loop.optimizer.zero_grad()
                loss = loop.loss()
                loss.backward()
                return loss

            loop.optimizer.step(closure)
            lr.set(0.05)
    assert all(len({*some}) == 1 and len(some) > 1 for some in reads)
    assert len({some[0] for some in reads}) == 4
    assert [(one.step, one.value) for one in lr.moves] == [(1, 0.05)]


# ---- what it moves


def two_groups(kind: Any, **options: Any) -> Callable[[Any], torch.optim.Optimizer]:
    def made(all_: Any) -> torch.optim.Optimizer:
        weights = [*all_]
        found: torch.optim.Optimizer = kind([{"params": weights[:2]}, {"params": weights[2:], "lr": 0.01, "weight_decay": 0.0}], **options)
        return found

    return made


def value(group: dict[str, Any], name: str) -> float:
    return float(group["betas"][0] if name == "betas" else group[name])


@pytest.mark.parametrize(
    ("name", "key", "make", "to", "expected"),
    [
        ("lr", "lr", two_groups(torch.optim.SGD, lr=0.1), 0.5, [0.5, 0.05]),
        ("lr", "lr", two_groups(torch.optim.SGD, lr=0.1), 0.0, [0.0, 0.0]),
        ("weight_decay", "weight_decay", two_groups(torch.optim.AdamW, lr=0.1, weight_decay=0.2), 0.4, [0.4, 0.0]),
        ("momentum", "momentum", two_groups(torch.optim.SGD, lr=0.1, momentum=0.9), 0.5, [0.5, 0.5]),
        ("momentum", "momentum", two_groups(torch.optim.SGD, lr=0.1), 0.5, [0.5, 0.5]),
        ("momentum", "betas", two_groups(torch.optim.AdamW, lr=0.1), 0.5, [0.5, 0.5]),
        ("momentum", "momentum", two_groups(torch.optim.RMSprop, lr=0.1, momentum=0.25), 0.5, [0.5, 0.5]),
    ],
    ids=["lr", "lr 0", "weight decay", "momentum", "momentum from 0", "Adam", "RMSprop"],
)
def test_all_groups_move_and_keep_their_ratios(name: str, key: str, make: Any, to: float, expected: list[float]) -> None:
    loop = Loop(make)
    before = [value(group, key) for group in loop.optimizer.param_groups]
    with modlab.watch(loop.net, loop.optimizer) as w:
        knob = w.knob(name, 0.001 if name == "momentum" and loop.optimizer.defaults.get(name) != 0 else 0, 0.99)
        loop.go(w, 2)
        assert [value(group, key) for group in loop.optimizer.param_groups] == before
        knob.set(to)
        loop.go(w, 2)
        assert [value(group, key) for group in loop.optimizer.param_groups] == pytest.approx(expected)
        assert value(loop.optimizer.param_groups[0], key) == to
        assert knob() == to
        knob.set(before[0])  # and back: through zero, too
        loop.go(w, 2)
    assert [value(group, key) for group in loop.optimizer.param_groups] == before


def test_a_learning_rate_that_is_a_tensor_stays_that_tensor() -> None:
    rate = torch.tensor(0.01)
    loop = Loop(lambda all_: torch.optim.Adam(all_, lr=rate, foreach=False))
    with torch.inference_mode(False), modlab.watch(loop.net, loop.optimizer) as w:
        lr = w.knob("lr", 1e-4, 1, log=True)
        loop.go(w, 2)
        lr.set(0.5)
        loop.go(w, 2)
        assert lr() == 0.5
    assert loop.optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == 0.5
    assert len(lr.moves) == 1
    assert not any("has set it since" in one for one in w.record.remarks)


def test_two_optimizers_move_together() -> None:
    loop = Loop()
    first, second = (torch.optim.SGD(loop.net[i].parameters(), lr=rate) for i, rate in ((0, 0.1), (3, 0.05)))
    with modlab.watch(loop.net, [first, second]) as w:
        lr = w.knob("lr", 1e-3, 1)
        for step in range(4):
            if step == 2:
                lr.set(0.2)
            loop.loss().backward()
            first.step()
            second.step()
    assert [one.param_groups[0]["lr"] for one in (first, second)] == pytest.approx([0.2, 0.1])
    assert [(one.step, one.value) for one in lr.moves] == [(2, 0.2)]


def test_an_optimizer_that_is_found_can_be_moved() -> None:
    loop = Loop()
    with modlab.watch(loop.net) as w:
        with pytest.raises(QuestionError, match="knows no optimizer yet"):
            w.knob("lr", 1e-4, 1)
        loop.go(w, 1)
        lr = w.knob("lr", 1e-4, 1)
        lr.set(0.3)
        loop.go(w, 1)
    assert loop.optimizer.param_groups[0]["lr"] == 0.3


def test_a_scheduler_goes_on_from_a_move_or_overrules_it() -> None:
    rates = {}
    for kind in (lambda one: ExponentialLR(one, 0.5), lambda one: LambdaLR(one, lambda epoch: 1.0)):
        loop = Loop()
        scheduler = kind(loop.optimizer)
        with modlab.watch(loop.net, loop.optimizer, budget=1.0) as w:
            lr = w.knob("lr", 1e-6, 1, log=True)
            for step in range(6):
                if step == 3:
                    lr.set(0.8)
                loop.go(w, 1)
                scheduler.step()
        curve = next(one for one in w.record.scalars if one.kind == "rate")
        assert curve.moved == 1
        assert lr.widget() is lr.widget()
        rates[type(scheduler)] = [round(float(one), 6) for one in curve.mean]
        assert any("lr was moved to 0.8, and is" in one for one in w.record.remarks)
    assert rates[ExponentialLR] == [0.05, 0.025, 0.0125, 0.8, 0.4, 0.2]
    assert rates[LambdaLR] == [0.05, 0.05, 0.05, 0.8, 0.05, 0.05]


# ---- what is refused


def test_what_a_knob_is_asked_for_is_cut_to_its_range_or_refused() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        k = w.knob("k", 1, 8, step=1)
        assert type(k()) is int
        loop.go(w, 1)
        for asked, found in ((3.4, 3), (100, 8), (-math.inf, 1)):
            k.set(asked)
            assert k.value == found
            assert type(k.value) is int
        for bad in (math.nan, "3", None, True, torch.ones(2)):
            with pytest.raises(QuestionError, match="takes a number from 1 to 8"):
                k.set(bad)  # type: ignore[arg-type]
    half = Knob(Knobs(w._watcher, list, print), "h", 0, 1, step=0.25)  # type: ignore[arg-type]
    assert [half.fitting(one) for one in (0.3, 0.9, 1.0)] == [0.25, 1.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (("p", 1, 0), {}, "the range must go up"),
        (("p", 0, 0), {}, "the range must go up"),
        (("p", 0, 1), {"log": True}, "greater than 0"),
        (("p", math.nan, 1), {}, "not a finite number"),
        (("p", 0, math.inf), {}, "not a finite number"),
        (("p", 0, "1"), {}, "not a finite number"),
        (("p", 0, 1), {"step": 0}, "step=0 must be greater than 0"),
        (("p", 0, 1), {"start": math.nan}, "takes a number from"),
        (("", 0, 1), {}, "takes a name first"),
        ((3, 0, 1), {}, "takes a name first"),
        (("there", 0, 1), {}, "has a knob of that name already"),
        (("lr", 1e-5, 1e-3), {}, "is 0.05, outside"),
        (("momentum", 0, 1), {}, "Adagrad has lr, lr_decay"),
    ],
    ids=str,
)
def test_what_cannot_be_a_knob_is_refused_and_said(arguments: Any, options: dict[str, Any], said: str) -> None:
    loop = Loop(lambda all_: torch.optim.Adagrad(all_, lr=0.05))
    with modlab.watch(loop.net, loop.optimizer) as w:
        w.knob("there", 0, 1)
        with pytest.raises(QuestionError, match=said):
            w.knob(*arguments, **options)
        loop.go(w, 2)
    assert [*w.knobs] == ["there"]
    with pytest.raises(QuestionError, match="has ended"):
        w.knob("p", 0, 1)


@pytest.mark.parametrize(
    "moves", ["lr", {"lr": 1}, [1], [{"step": -1, "knob": "lr", "value": 1}], [{"step": 0, "knob": "lr", "value": math.nan}], 3], ids=str
)
def test_what_is_no_move_is_not_replayed(moves: Any) -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w, pytest.raises(QuestionError, match=r"w\.replay"):
        w.replay(moves)


def test_a_replay_begins_with_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        w.replay([{"step": 1, "knob": "gone", "value": 1.0}])
        loop.go(w, 2, knobs={"p": w.knob("p", 0, 1)})
        with pytest.raises(QuestionError, match="came after 2 steps"):
            w.replay([])
    assert "has no such knob" in capsys.readouterr().err
    with pytest.raises(QuestionError, match="has ended"):
        w.replay([])


# ---- an error of ours never ends the training


def test_a_watch_that_failed_leaves_knobs_that_work(monkeypatch: pytest.MonkeyPatch, swallowed: Any) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("ours")

    bare, _ = steered(lambda step, knobs: knobs["lr"].set(0.01) if step == 7 else None)
    with monkeypatch.context() as patched:
        patched.setattr(watcher, "WatchIndex", broken)
        begun, w = steered(lambda step, knobs: knobs["lr"].set(0.01) if step == 7 else None)
    assert w.record.state == "failed"
    assert begun.bits == bare.bits

    def turn(step: int, knobs: dict[str, Knob]) -> None:
        if step == 4:
            monkeypatch.setattr(knobs["lr"]._dials, "step_ended", broken)
        if step == 7:
            knobs["lr"].set(0.01)

    late, w = steered(turn)
    assert w.record.state == "failed"
    assert late.bits == bare.bits
    assert len(swallowed) == 2


def test_a_knob_outlives_its_watch() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        p, lr = w.knob("p", 0, 1), w.knob("lr", 1e-3, 1)
        loop.go(w, 2)
        lr.set(0.2)
    assert loop.optimizer.param_groups[0]["lr"] == lr() == 0.2  # what was asked last is not lost
    p.set(0.5)
    lr.set(0.1)
    assert (p(), loop.optimizer.param_groups[0]["lr"]) == (0.5, 0.1)


# ---- what is shown


def test_all_faces_tell_of_knobs() -> None:
    def turn(step: int, knobs: dict[str, Knob]) -> None:
        if step in (10, 20):
            knobs["p"].set(0.03 * step)
            knobs["lr"].set(0.001 * step)

    _, w = steered(turn)
    curve = next(one for one in w.record.scalars if one.kind == "knob")
    assert (curve.name, curve.count, curve.moved) == ("p", STEPS, 2)
    assert curve.mean.tolist() == pytest.approx([0.0] * 10 + [0.3] * 10 + [0.6] * 10)
    assert curve.first.tolist() == [*range(STEPS)]
    rows = {line.split()[0]: line for line in str(w).splitlines() if line.startswith("  ") and line.split()}
    assert "a knob, moved 2 times" in rows["p"]
    assert "a knob, moved 2 times" in rows["learning"]
    assert "a knob, moved 2 times" in w.html()
    told = json.loads(json.dumps(w.to_dict()))
    assert [one["name"] for one in told["knobs"]] == ["lr", "p"]
    assert [(one["step"], one["value"]) for one in told["knobs"][1]["moves"]] == [(10, 0.3), (20, 0.6)]
    assert "p" in [one.get_ylabel() or one.get_title("left") for one in w.figure("loss").axes] or "p" in str(
        [line.get_label() for one in w.figure("loss").axes for line in one.lines]
    )


def test_a_knob_and_a_curve_may_have_one_name() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        knob = w.knob("size", 0, 1, start=0.5)
        loop.go(w, 3)
        w.log(size=3.0)
    assert {"size", "size (knob)"} <= {one.name for one in w.record.scalars}
    assert knob.value == 0.5


def test_a_knob_that_nobody_reads_is_told_of() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        w.knob("learning_rate", 0, 1).set(0.5)
        loop.go(w, 3)
    assert any("learning_rate was moved, but the loop never read it" in one for one in w.record.remarks)


# ---- several ranks


def trained_on_ranks(rank: int) -> Any:
    torch.manual_seed(0)
    net = nn.Linear(4, 1)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    refused: list[str] = []
    with modlab.watch(model, optimizer) as w:
        lr = w.knob("lr", 1e-3, 1)
        fixed = lr.widget().disabled

        def turn() -> None:
            try:
                lr.set(0.9)
            except QuestionError as error:
                refused.append(str(error))

        for step in range(6):
            if step == 2:
                lr.set(0.01)
            if step == 4 and rank == 0:
                thread = threading.Thread(target=turn)
                thread.start()
                thread.join()
                lr.widget().value = 0.7
            optimizer.zero_grad()
            model(torch.full((2, 4), float(rank + 1))).square().mean().backward()
            optimizer.step()
    mine = torch.cat([one.detach().flatten() for one in net.parameters()])
    all_ = [torch.zeros_like(mine) for _ in range(2)]
    dist.all_gather(all_, mine)
    return bool(all_[0].equal(all_[1])), w.moves, refused, fixed


def test_on_several_ranks_only_code_on_all_of_them_moves_a_knob() -> None:
    both = run_ranks(trained_on_ranks)
    for same, moves, _, fixed in both:
        assert same
        assert fixed
        assert moves == [{"step": 2, "knob": "lr", "value": 0.01}]
    assert "trains on several ranks" in both[0][2][0]


# ---- the slider


def test_a_slider_moves_the_knob_and_follows_it() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        knobs = knobs_of(w)
        rate, p = knobs["lr"].widget(), knobs["p"].widget()
        assert rate is knobs["lr"].widget()
        assert (type(rate).__name__, type(p).__name__) == ("FloatLogSlider", "FloatSlider")
        assert (rate.description, rate.value, rate.base**rate.min, rate.base**rate.max) == pytest.approx(("lr", 0.05, 1e-4, 1))
        assert (p.value, p.min, p.max) == (0, 0, 0.9)
        loop.go(w, 2, knobs=knobs)
        p.value = 0.3  # as the page sets it
        assert (knobs["p"].value, knobs["p"]()) == (0.3, 0.3)
        loop.go(w, 1, knobs=knobs)
        knobs["lr"].set(0.01)
        loop.go(w, 1, knobs=knobs)
        w._let_knobs_follow()
        assert (rate.value, rate.disabled) == (pytest.approx(0.01), False)
        assert knobs["lr"].value == 0.01  # it is not moved by its own slider
        k = w.knob("k", 1, 8, step=1).widget()
        assert (type(k).__name__, k.min, k.max, k.step) == ("IntSlider", 1, 8, 1)
    assert rate.disabled
    assert p.disabled
    p.value = 0.9
    assert knobs["p"].value == 0.3
    assert [(one["knob"], one["step"], one["value"]) for one in w.moves] == [("p", 2, 0.3), ("lr", 3, 0.01)]


def test_what_a_page_sends_back_is_no_move() -> None:
    """It rounds what it is told to its grid, and sends that, when it draws the slider and when the kernel sets it."""
    loop = Loop(lambda all_: torch.optim.SGD(all_, lr=1e-3))
    with modlab.watch(loop.net, loop.optimizer) as w:
        lr, p = w.knob("lr", 1e-5, 10, log=True), w.knob("p", 0, 0.9, start=0.25)
        slider, linear = lr.widget(), p.widget()

        def grid(one: Any, value: float) -> float:
            parts = (math.log10(value) - one.min) / one.step if one is slider else (value - one.min) / one.step
            at = one.min + round(parts) * one.step
            return 10.0**at if one is slider else at

        assert grid(slider, 1e-3) == pytest.approx(1e-3, rel=1e-12)
        slider.value, linear.value = grid(slider, 1e-3), grid(linear, 0.25) + 1e-16
        answers: list[float] = []
        for value in (0.0123, 0.5, 0.0077):
            loop.go(w, 1)
            lr.set(value)
            w._let_knobs_follow()
            answers.append(grid(slider, value))
            slider.value = answers[-1]
            assert lr.value == value
        slider.value = answers[1]  # to what was told before the last
        assert lr.value == 0.0077
        loop.go(w, 1)
        assert [one["value"] for one in w.moves] == [0.0123, 0.5, 0.0077]
        for value in (0.1, 0.0123):  # and now somebody moves it
            slider.value = value
            assert lr.value == value
        linear.value = 0.5
        linear.value = 0.25
        assert p.value == 0.25
        assert linear.step == 0.005  # numbers that people type are on it
        linear.value = 0.6789  # typed: the page sends it, and then its nearest neighbour on the grid
        linear.value = grid(linear, 0.6789)
        assert linear.value != 0.6789
        assert p.value == 0.6789
        w._let_knobs_follow()
        assert (linear.value, grid(linear, 0.6789)) == (0.6789, pytest.approx(0.6789, rel=1e-12))


def test_a_slider_that_is_linked_moves_the_knob() -> None:
    import ipywidgets

    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        p, mine = w.knob("p", 0, 0.9), ipywidgets.FloatText(0.0)
        ipywidgets.link((mine, "value"), (p.widget(), "value"))
        mine.value = 0.25
        loop.go(w, 1, knobs={"p": p})
        assert p() == 0.25
        p.set(0.5)
        loop.go(w, 1, knobs={"p": p})
        w._let_knobs_follow()
        assert mine.value == 0.5


def test_a_slider_stands_at_its_end_where_a_scheduler_has_left_the_range() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        lr = w.knob("lr", 1e-3, 1, log=True)
        slider = lr.widget()
        for rate, place in ((0.0, 1e-3), (5.0, 1.0), (0.1, 0.1)):
            loop.optimizer.param_groups[0]["lr"] = rate
            w._let_knobs_follow()
            assert slider.value == pytest.approx(place)
        assert lr.value == 0.1
    assert w.moves == []


def test_a_replayed_knob_has_a_slider_that_rests() -> None:
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        p = w.knob("p", 0, 0.9)
        slider = p.widget()
        w.replay([{"step": 1, "knob": "p", "value": 0.5}])
        assert slider.disabled
        loop.go(w, 3, knobs={"p": p})
        w._let_knobs_follow()
        assert slider.value == 0.5


def test_without_ipywidgets_code_still_moves_a_knob(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)

    def turn(step: int, knobs: dict[str, Knob]) -> None:
        knobs["p"].set(0.01 * step)
        with pytest.raises(modlab.ModlabError, match="pip install ipywidgets"):
            knobs["p"].widget()

    _, w = steered(turn)
    assert len(w.moves) == STEPS - 1


class Shown:
    """What IPython's display was given, in the place of a page."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def __call__(self, thing: Any, **_: Any) -> Shown:
        self.all.append(thing)
        return self

    def update(self, thing: Any) -> None:
        self.all.append(thing)

    @property
    def last(self) -> dict[str, Any]:
        data, _ = self.all[-1]._repr_mimebundle_()
        found: dict[str, Any] = data
        return found


def test_sliders_stand_in_the_output_of_the_watch_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    import IPython.display

    shown = Shown()
    monkeypatch.setattr(IPython.display, "display", shown)
    monkeypatch.setattr(live, "notebook", lambda: object())
    loop = Loop()
    with modlab.watch(loop.net, loop.optimizer) as w:
        view = shown.all[0]
        knobs = knobs_of(w)
        widget = "application/vnd.jupyter.widget-view+json"
        box = shown.all[-1]._box
        assert shown.last[widget]["model_id"] == box.model_id
        assert shown.last[widget]["model_id"] != view.model_id
        assert "VBox" not in shown.last["text/plain"]
        assert "<" in shown.last["text/html"]
        assert box.children[1] is view
        assert box.children[0].children == (knobs["lr"].widget(), knobs["p"].widget())
        loop.go(w, 3, knobs=knobs)
        assert len(shown.all) == 2
    assert shown.all[-1] is w
    assert box.comm is None
    assert not hasattr(w, "_repr_mimebundle_")


PAGE = (Path(__file__).parents[2] / "docs" / "knobs.md").read_text(encoding="utf-8")


def test_the_page_says_what_its_examples_print(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(code, names)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["[{'step': 100, 'knob': 'lr', 'value': 0.01}]", "True", "selected: 0"]
    assert all(f"`{line}`" in PAGE for line in printed)
