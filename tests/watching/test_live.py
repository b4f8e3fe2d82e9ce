"""What a running watch sends to its pages, without a page."""

from __future__ import annotations

import gc
import json
from contextlib import suppress
from typing import Any
from weakref import ref

import pytest
import torch
from torch import nn

import modlab
from modlab.errors import QuestionError
from modlab.results import live, widget
from modlab.results.live import Output, WatchPage
from modlab.views.watch import payload
from tests.views.test_faces import unpack


class Heard(widget.View):
    """Keeps what is sent, and its clock is set by hand."""

    def __init__(self, *given: Any) -> None:
        self.sent: list[tuple[Any, Any]] = []
        super().__init__(*given)

    def send(self, content: Any, buffers: Any = None) -> None:
        self.sent.append((content, buffers))

    def ask(self, action: str, **more: Any) -> dict[str, Any]:
        self._receive(None, {"id": "1", "action": action, **more}, [])
        answer: dict[str, Any] = self.sent.pop()[0]
        return answer

    @property
    def last(self) -> dict[str, Any]:
        """The content of the last payload sent."""
        packed = bytes(self.sent[-1][1][0])
        size = int.from_bytes(packed[:4], "little")
        found: dict[str, Any] = json.loads(packed[4 : 4 + size])
        return found

    def array(self, name: str) -> list[int]:
        """The numbers of that payload under a name."""
        found: list[int] = unpack(bytes(self.sent[-1][1][0]))[1][name].tolist()
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(live, "monotonic", lambda: now[0])
    return now


class Loop:
    def __init__(self, budget: float = 0.02) -> None:
        self.net = nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.watch = modlab.watch(self.net, self.optimizer, budget=budget)

    def go(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.net(torch.ones(2)).square().sum().backward()
            self.optimizer.step()


@pytest.fixture(autouse=True)
def _heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widget, "View", Heard)


def output(watch: modlab.Watch, views: int = 1) -> Output:
    made = Output(watch)
    for _ in range(views - 1):
        made.another()
    return made


def test_a_page_of_which_nothing_is_heard_gets_all_now_and_then(clock: list[float]) -> None:
    loop = Loop()
    shown = output(loop.watch)
    view = shown._pages[0].view
    assert isinstance(view, Heard)
    loop.go(12)
    kinds = []
    for _ in range(20):
        shown.update()
        kinds.append("from" in view.last)
        clock[0] += 0.25
    assert kinds == [False, False, True, False, *[True] * 3, False, *[True] * 6, False, *[True] * 5]
    assert view.ask("hello")["ok"]
    clock[0] += 100
    shown.update()
    assert "from" in view.last
    loop.watch.close()


def test_a_cell_that_has_ended_shows_its_last_steps(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "notebook", lambda: shell)
    before = [*shell.events.callbacks["post_run_cell"]]
    loop = Loop()
    view = loop.watch._stage.pages[0].view
    loop.go(3000)
    assert view.last["foot"] != "3,000 steps"
    shell.user_ns["loop"] = loop
    shell.run_cell("loop.go(500)")
    assert view.last["foot"].startswith("3,500 steps")
    sent = len(view.sent)
    shell.run_cell("1 + 1")
    assert len(view.sent) == sent  # nothing is new
    shell.run_cell("loop.watch.close()")
    assert shell.events.callbacks["post_run_cell"] == before


def test_who_waits_for_the_end_of_a_cell_is_not_kept_alive(shell: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "notebook", lambda: shell)
    before, told = [*shell.events.callbacks["post_run_cell"]], list[int]()

    class Waits:
        def cell_ended(self) -> bool:
            told.append(1)
            return True

    waits = Waits()
    live.after_each_cell(waits.cell_ended)
    shell.run_cell("1 + 1")
    shell.run_cell("1 + 1")
    assert told == [1, 1]
    del waits
    shell.run_cell("1 + 1")
    assert told == [1, 1] and shell.events.callbacks["post_run_cell"] == before


def test_a_page_has_all_of_a_curve_whose_slots_became_one(clock: list[float]) -> None:
    """A record takes in the values that wait, and so has made two slots one before the watch does."""
    loop, has = Loop(), dict[str, list[int]]()
    shown = output(loop.watch)
    view = shown._pages[0].view
    assert isinstance(view, Heard)
    assert view.ask("hello")["ok"]
    for _ in range(14):
        for i in range(50):
            loop.go(1)
            loop.watch.log(mine=float(i))
        shown.update()
        content = view.last
        for i, one in enumerate(loop.watch.record.scalars):
            begin = content["from"]["scalars"][i] if "from" in content else 0
            has[one.name] = [*has.get(one.name, [])[:begin], *view.array(f"scalar {i} first")]
            assert has[one.name] == one.first.tolist()
    assert len(has["mine"]) == 350  # of 700 values
    loop.watch.close()


def test_a_click_on_an_old_picture_is_none(clock: list[float]) -> None:
    """Where messages wait behind the cell, a click of then must not stop the training of the next cell."""
    loop = Loop()
    shown = output(loop.watch)
    view = shown._pages[0].view
    assert isinstance(view, Heard)
    loop.go(12)
    shown.update()
    assert view.ask("budget", budget=0.5, steps=12)["ok"]
    for _ in range(12):
        clock[0] += 1
        loop.go(5)
        shown.update()
    answer = view.ask("stop", steps=12)
    assert not answer["ok"]
    assert "■" in answer["error"]
    assert not loop.watch._watcher.controls.stop  # type: ignore[union-attr]
    clock[0] += 1000  # between two cells: the picture is old, and there is none that is newer
    assert view.ask("pause", steps=loop.watch.record.steps)["ok"]
    assert view.ask("resume", steps=loop.watch.record.steps)["ok"]
    loop.watch.close()
    assert not view.ask("pause", steps=72)["ok"]


def test_a_quiet_script_makes_no_record_to_say_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of a large model takes milliseconds; whether there is anything to say is known without one."""
    loop, made = Loop(budget=1.0), []  # each step is looked at, however slow the machine is
    loop.watch._stage = None  # it would make one of its own
    whole = loop.watch._watcher.record  # type: ignore[union-attr]
    monkeypatch.setattr(loop.watch._watcher, "record", lambda: made.append(1) or whole())
    lines = live.Lines(loop.watch)
    for _ in range(8):
        loop.go(5)
        lines.update()
    assert len(made) == 1  # after 20 steps: is anything broken?
    with torch.no_grad():
        loop.net.weight.fill_(float("nan"))
    loop.go(2)
    lines.update()
    lines.update()
    loop.watch.close()
    assert capsys.readouterr().err.count("modlab: step 40: ") == 1


class Detached(nn.Module):
    """Layers of which none gets a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(*(nn.Linear(4, 4) for _ in range(10))), nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).detach())


def test_what_begins_in_one_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    net = Detached()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(30):
            optimizer.zero_grad()
            net(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    said = "body.0.weight got no gradient in any step that was measured; and 19 more like it"
    printed = capsys.readouterr().err
    assert printed.count("got no gradient in any step") == printed.count(said) == 1
    assert len(w.alerts) == 20 and str(w).count("got no gradient in any step") == str(w).count(said) == 1
    assert w.html().count("more like it") == 1


@pytest.mark.parametrize(
    ("trainable", "passes", "said", "checks"),
    [
        pytest.param(True, 20, "optimizer.step() is never called", True, id="a step is forgotten"),
        pytest.param(False, 1, "All of the model is frozen: all its numbers", True, id="a model that is frozen, which backward() refuses"),
        pytest.param(True, 0, "Nothing was seen", False, id="nothing"),
    ],
)
def test_of_a_training_without_a_step_the_verdict_is_told(
    trainable: bool, passes: int, said: str, checks: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    net = nn.Linear(2, 1).requires_grad_(trainable)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with suppress(RuntimeError), modlab.watch(net, optimizer) as w:
        for _ in range(passes):
            optimizer.zero_grad()
            net(torch.randn(4, 2)).square().mean().backward()
    printed = capsys.readouterr().err
    assert printed.count(w.headline) == 1 and said in w.headline
    assert (str(w.verdict) in printed) is checks
    assert checks or printed.count("\n") == 1


def test_views_get_the_same_bytes_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    shown = output(loop.watch, 2)
    loop.go(12)
    made = []
    whole = payload.of_watch
    monkeypatch.setattr(payload, "of_watch", lambda *args, **kwargs: made.append(1) or whole(*args, **kwargs))
    shown.update()
    one, other = (page.view for page in shown._pages)
    assert isinstance(one, Heard)
    assert isinstance(other, Heard)
    assert one.sent == other.sent
    assert len(made) == 1
    loop.watch.close()


def test_when_it_has_ended_a_late_page_is_answered_and_nothing_is_kept() -> None:
    loop = Loop()
    shown = output(loop.watch)
    view = shown._pages[0].view
    assert isinstance(view, Heard)
    loop.go(3)
    loop.watch.close()
    shown.end()
    view._receive(None, {"id": "1", "action": "hello"}, [])
    assert view.last["state"] == "ended"
    assert not view.last["live"]
    gone = ref(loop.watch)
    del loop, shown
    gc.collect()
    assert gone() is not None  # the last one, for a page that was loaded anew in mid-run
    Output._latest = None
    gc.collect()
    assert gone() is None
    assert "run its cell again" in view.ask("hello")["error"]
    assert "has ended" in view.ask("pause", steps=3)["error"]


def test_a_question_that_makes_no_sense_is_an_answer() -> None:
    loop = Loop()
    view = WatchPage(loop.watch).view
    assert isinstance(view, Heard)
    assert "is not a fraction" in view.ask("budget", budget="all", steps=0)["error"]
    assert "does not know" in view.ask("dance")["error"]
    with pytest.raises(QuestionError):
        loop.watch.ask("budget", 2)
    loop.watch.close()


def test_the_headline_can_be_observed_and_what_is_selected_is_heard() -> None:
    loop = Loop(budget=1.0)
    shown = output(loop.watch)
    view, told = shown._pages[0].view, list[tuple[str, object]]()
    view.observe(lambda change: told.append((change["name"], change["new"])), ["headline", "selected", "step"])
    loop.go(12)
    shown.update()
    assert told == [("headline", loop.watch.headline)]
    view.set_state({"selected": "weight", "step": 3})  # as the page sends it
    assert {one for one in told[1:]} == {("selected", "weight"), ("step", 3)}
    loop.watch.close()
    assert (view.selected, view.step) == ("weight", 3)
    net = nn.Sequential(nn.Linear(2, 1))
    assert modlab.tree(net).widget().headline == modlab.tree(net).headline
