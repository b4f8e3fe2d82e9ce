"""An interrupt at any call or return of modlab's own, after any call into C, and at any time: nothing is left, and all goes on."""

from __future__ import annotations

import gc
import io
import os
import random
import sys
import traceback
from collections.abc import Callable, Collection, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn, overrides
from torch.overrides import TorchFunctionMode

import modlab
from modlab import compat
from modlab.running import guarded
from modlab.statistics.memory import deepcopied
from modlab.watching import watcher
from tests.interrupts import Run, at_rest, changed, everywhere, interrupted_after, interrupted_in_c, places, state

HANDLES = overrides.handle_torch_function


class Net(nn.Module):
    """With all that a pass may change."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.a.register_forward_hook(lambda module, args, output: None)
        self.calls: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        return self.b(self.drop(self.norm(self.a(x)).relu()))


def met_before_the_first_line_of_exit(error: BaseException) -> bool:
    """Whether an interrupt arrived when the end of a block had begun, and nothing of ours could run yet."""
    where = str(error).split(", then ")[-1]  # that of the second, if there were two
    if where:
        return where.startswith("call of /results/") and where.endswith("__exit__")
    *_, (frame, line) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
    return frame is not None and frame.f_code.co_name == "__exit__" and line == frame.f_code.co_firstlineno


class Scene:
    """A model, and a run that is interrupted."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net, self.x = Net(), torch.randn(6, 4)
        self.net(self.x).sum().backward()
        self.net.drop.eval()
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1, momentum=0.9)
        self.found: list[Any] = []
        self.half_a_step = False  # some weights have moved, and others not: so it is without modlab, too
        self.before = self.state()

    def state(self) -> dict[str, Any]:
        """What must be as it was."""
        return at_rest(self.net)

    def run(self) -> None:
        """What is interrupted."""
        raise NotImplementedError

    def after(self, error: BaseException | None, thorough: bool) -> list[str]:
        """What is wrong, an interrupt having ended the run; one that Python dropped is none."""
        wrong = [] if error is None or type(error) is KeyboardInterrupt else [f"raised {error!r}"]
        self.half_a_step = met_in_torchs_own_step(error)
        if error is not None and met_before_the_first_line_of_exit(error):
            error.__traceback__ = None
            self.end()
        self.tidy()
        wrong += [*changed(self.before, self.state()), *guarded.swallowed]
        return [*wrong, *self.read()] if thorough else wrong

    def tidy(self) -> None:
        """What a user would do in a cell after it."""

    def end(self) -> None:
        """End a block whose `__exit__` an interrupt met before its first line, where Python lets nobody see it."""

    def read(self) -> Iterator[str]:
        """The record is there, and another run is as good as the first."""
        for one in self.found:
            if not (str(one) and one.html(bundle=False) and one.to_dict()):
                yield f"{type(one).__name__} cannot be read"


def met_in_torchs_own_step(error: BaseException | None) -> bool:
    """Whether an interrupt met an optimizer among its parameters, and nothing of modlab's that it calls."""
    frames = [] if error is None else [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    rooms = [frame.f_globals.get("__name__", "").partition(".")[0::2] for frame in frames]
    last = {"modlab": -1, "torch": -1} | {name: place for place, (name, _) in enumerate(rooms)}
    return any(name == "torch" and rest.startswith("optim.") for name, rest in rooms) and last["torch"] > last["modlab"]


class Comparing(Scene):
    """It leaves the model bit for bit as it was."""

    def look(self) -> Any:
        return modlab.compare(self.net)(self.x)

    def state(self) -> dict[str, Any]:
        return state(self.net)

    def run(self) -> None:
        self.look()

    def read(self) -> Iterator[str]:
        if self.net.calls != [6]:
            yield f"calls {self.net.calls}"
        said = _said.get(type(self))
        if str(self.look()) != said:
            yield "another look says something else"


_said: dict[type[Comparing], str] = {}
"""What a look says that nothing interrupts."""


class ComparingTwo(Comparing):
    """Two models, of which both are one."""

    def look(self) -> Any:
        return modlab.compare(self.net, self.net)(self.x)


class Diagnosing(Comparing):
    """It trains a little."""

    def look(self) -> Any:
        return modlab.diagnose(self.net, batch=(self.x, torch.zeros(6, 2)), loss=nn.functional.mse_loss)


class Training(Scene):
    """The loop's own weights move, and no others."""

    def step(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.net(self.x).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def weights(self) -> bytes:
        return b"".join(one.detach().numpy().tobytes() for one in self.net.parameters())

    def read(self) -> Iterator[str]:
        yield from super().read()
        if self.weights() not in trained() and not self.half_a_step:
            yield "the weights are others than those of any step"
        self.step()
        with modlab.watch(self.net, self.optimizer, budget=1.0) as w:
            self.step()
        if (w.record.state, w.record.steps, w.record.samples) != ("ended", 1, 1):
            yield f"a watch afterwards: {w.record.state}, {w.record.steps} steps, {w.record.samples} looked at"
        traced = modlab.trace(self.net)(self.x)
        if [one.path for one in traced.find(kind="module")] != ["", "a", "norm", "drop", "b"]:
            yield f"a trace afterwards: {traced}"


def trained() -> list[bytes]:
    """The weights after each number of steps without modlab."""
    if not _trained:
        _trained.append(b"")
        plain = Training()
        _trained[:] = [plain.weights()]
        for _ in range(4):
            plain.step()
            _trained.append(plain.weights())
    return _trained


_trained: list[bytes] = []


class Watching(Training):
    """In a block."""

    def run(self) -> None:
        with modlab.watch(self.net, self.optimizer, budget=1.0) as w:
            self.found.append(w)
            for _ in range(2):
                w.log(loss=self.step())

    def tidy(self) -> None:
        if watcher.watchers and not self.found:  # at the very end of `watch`, or before `__enter__` has begun: nobody has its handle
            modlab.watch(self.net).close()
        for one in self.found:
            one.close()


class OpeningAndClosing(Watching):
    """Without a block."""

    def run(self) -> None:
        self.found.append(modlab.watch(self.net, self.optimizer))
        self.step()
        self.found[0].close()


class Tracing(Training):
    """A call, and a block."""

    def run(self) -> None:
        self.found.append(modlab.trace(self.net)(self.x))
        with modlab.trace(self.net) as t:
            self.found.append(t)
            self.step()


class InALab(Training):
    """All of what a lab runs, and its faces."""

    def run(self) -> None:
        self.found.append(modlab.lab(self.net, self.optimizer))
        lab = self.found[0]
        lab(self.x)
        with lab:
            self.step()
        for panel in ("state", "activations", "gradients", "trace", "hooks", "findings"):  # modes are compared
            lab.panel(panel)
        lab.close()

    def end(self) -> None:
        for lab in self.found:
            while lab._tracers:
                lab.__exit__(None, None, None)


class Looking(Comparing):
    """All that only looks; what it remembers of classes is remembered from now on."""

    def __init__(self) -> None:
        self.broken = nn.Sequential(nn.Linear(4, 5), nn.Linear(4, 2))
        super().__init__()

    def look(self) -> str:
        net, before = self.net, modlab.snapshot(self.net, self.optimizer)
        found = [modlab.tree(net), modlab.state(net, self.optimizer), modlab.measure(net.a.weight), modlab.hooks(net), before]
        found += [modlab.diff(before, net), modlab.diagnose(net, self.optimizer), modlab.internals(net.norm)]
        try:
            self.broken(self.x)
        except RuntimeError as error:
            found.append(modlab.explain(error))
        return "".join(map(str, found))


SCENES: tuple[type[Scene], ...] = (Comparing, ComparingTwo, Diagnosing, Looking, Watching, OpeningAndClosing, Tracing, InALab)


def scene_and_places(kind: type[Scene], into_c: bool = False) -> tuple[Scene, list[int]]:
    """A scene that has not run, and where it can be interrupted."""
    first = kind()
    first.run()  # what is imported and remembered at the first time
    trained()
    if isinstance(first, Comparing):
        _said[kind] = str(first.look())
    found = places(kind().run, into_c)
    return kind(), found


def check(kind: type[Scene], some: Callable[[list[int]], Collection[int]], again: Callable[[int], bool] | None = None) -> None:
    scene, found = scene_and_places(kind, into_c=again is None)
    wrong = everywhere(scene.run, some(found), scene.after, again)
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:400])


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a watch says, and what Python says of an interrupt that meets it where nothing can be raised."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """A copy of a process has none of OpenMP's threads, and would wait for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


scenes = pytest.mark.parametrize("kind", SCENES, ids=lambda kind: kind.__name__)


def takes_a_mode_off(frame: FrameType) -> bool:
    """Whether torch has just taken a mode off for a call which has not begun."""
    outer = frame.f_back
    return frame.f_code.co_qualname == "_GeneratorContextManager.__enter__" and outer is not None and outer.f_code is HANDLES.__code__


class Idle(TorchFunctionMode):
    """One of the user's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def under_a_mode_of_the_users(scene: Scene) -> None:
    with Idle():
        before = compat.modes()
        try:
            scene.run()
        finally:
            assert compat.modes() == before


MODES: dict[str, Callable[[], Run]] = {
    "trace": lambda: Tracing().run,
    "diagnose": lambda: Diagnosing().run,
    "copy": lambda: partial(deepcopied, [torch.ones(2)]),
    "a mode of the user's": lambda: partial(under_a_mode_of_the_users, Comparing()),
}


@pytest.mark.parametrize("kind", MODES)
def test_a_mode_that_torch_takes_off_for_a_call_does_not_come_back(kind: str) -> None:
    """Torch does it in a generator, which ends with the traceback and puts the mode on again."""
    error = interrupted_in_c(MODES[kind](), takes_a_mode_off)
    assert type(error) is KeyboardInterrupt, error
    assert compat.modes() == ([], [])
    del error
    gc.collect()
    assert compat.modes() == ([], [])


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

SOME, PARTS, TIMED, FIRST = 25, 4, 1_000, 12


@needs_fork
@scenes
def test_an_interrupt_at_some_places(kind: type[Scene]) -> None:
    check(kind, lambda found: random.Random(0).sample(found, SOME))


@pytest.mark.long
@needs_fork
@pytest.mark.parametrize("part", range(PARTS))
@scenes
def test_an_interrupt_at_every_place(kind: type[Scene], part: int) -> None:
    check(kind, lambda found: found[part::PARTS])


@needs_fork
@scenes
def test_a_second_interrupt_while_the_first_is_cleaned_up(kind: type[Scene]) -> None:
    check(kind, lambda found: random.Random(1).sample(found, 3), lambda count: count in (0, 5, 20))


@pytest.mark.long
@needs_fork
@scenes
def test_a_second_interrupt_at_any_place_of_the_cleaning(kind: type[Scene]) -> None:
    check(kind, lambda found: random.Random(2).sample(found, FIRST), lambda count: count < 100 or count % 7 == 0)


@pytest.mark.long
@scenes
def test_an_interrupt_at_any_time(kind: type[Scene]) -> None:
    scene_and_places(kind)
    chances = random.Random(1)
    for _ in range(-(-TIMED // len(SCENES))):
        scene, seconds = kind(), chances.uniform(0.001, 0.1)
        wrong = scene.after(interrupted_after(scene.run, seconds), thorough=True)
        assert not wrong, (seconds, wrong)
