"""What fails in modlab, what interrupts it, and what else runs in the process harm no training and leave nothing behind."""

from __future__ import annotations

import contextlib
import gc
import inspect
import io
import math
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules import module as rooms
from torch.optim import optimizer as optimizers
from torch.utils._python_dispatch import TorchDispatchMode

import modlab
from modlab.inspection import callables
from modlab.running import compile_warning, guarded, optimizer_hooks, recursion_limit
from modlab.tracing import gradients, hook_calls, module_calls, operations
from modlab.tracing import optimizer_steps as traced_steps
from modlab.watching import engine_calls, last_step, light_samples, losses, nan_guard, sample, step_hooks, watcher

HERE = os.path.dirname(modlab.__file__)
AT_WORK = tuple(os.path.join(HERE, name.rpartition(".")[2], "") for name in callables.AT_WORK)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.d, self.b = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1)
        self.a.register_forward_hook(lambda module, args, output: None)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.d(self.n(torch.relu(self.a(x))))))


def surroundings() -> tuple[Any, ...]:
    held = {**vars(rooms), **vars(optimizers)}
    stores = {name: [*store] for name, store in held.items() if name.startswith("_global_") and isinstance(store, dict)}
    modes = torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(), torch._C._is_torch_function_enabled()
    return stores, sys.getrecursionlimit(), [*warnings.filters], torch.is_grad_enabled(), modes, threading.active_count()


def made(seed: int = 0) -> tuple[Net, torch.optim.Optimizer, Callable[[], Tensor]]:
    torch.manual_seed(seed)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 0.01)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = net(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return net, optimizer, step


def watched(net: nn.Module, optimizer: Any) -> Any:
    return modlab.watch(net, optimizer, budget=1.0)


def traced(net: nn.Module, optimizer: Any) -> Any:
    return modlab.trace(net)


def loop(look: Callable[[nn.Module, Any], Any] | None, count: int = 14) -> tuple[list[Tensor], Any, str]:
    net, optimizer, step = made()
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), look(net, optimizer) if look is not None else contextlib.nullcontext() as found:
        for _ in range(count):
            loss = step()
            if look is watched:
                found.log(loss=loss)
    return [one.detach().clone() for one in net.parameters()], found, errors.getvalue()


def _guarded(*given: Any) -> list[tuple[type, str]]:
    found = [(room, one) for room in given for _, one in inspect.getmembers(room, inspect.isclass)]
    classes = dict.fromkeys(one for room, one in found if one.__module__ == room.__name__)
    return [(cls, name) for cls in classes for name, one in vars(cls).items() if hasattr(one, guarded.OURS)]


WATCH = _guarded(light_samples, nan_guard, losses, last_step, sample, step_hooks, watcher)
WATCH.remove((watcher.Watcher, "_gone"))  # the loop's model goes when its watch has ended
TRACE = _guarded(gradients, hook_calls, module_calls, operations, traced_steps)


def test_every_entry_of_a_watch_and_a_trace_is_guarded() -> None:
    """Whatever torch calls of ours while a model trains is guarded, or is a door that asks for compilers and calls what is."""
    doors = {"before", "after", "_before", "_after", "stand_in", "__call__", "__class__", "__getattr__"}
    doors |= {"__torch_function__", "_sweep_later"}
    missing = set()
    for look in (watched, traced):
        net, optimizer, step = made()

        def entered(frame: Any, event: str, arg: Any) -> None:
            if event != "call" or frame.f_back is None or not frame.f_code.co_filename.startswith(AT_WORK):
                return
            back = frame.f_back.f_code.co_filename
            if back in (rooms.__file__, optimizers.__file__):
                missing.add((frame.f_code.co_name, frame.f_code.co_filename))

        with contextlib.redirect_stderr(io.StringIO()), look(net, optimizer):
            sys.setprofile(entered)
            for _ in range(3):
                step()
            sys.setprofile(None)
    assert not {one for one in missing if one[0] not in doors and not one[1].endswith("guarded.py")}


@pytest.mark.parametrize("at", [1, 3], ids=["first", "later"])
@pytest.mark.parametrize(
    ("look", "cls", "name"),
    [(watched, *one) for one in WATCH] + [(traced, *one) for one in TRACE],
    ids=[f"{cls.__name__}.{name}" for cls, name in (*WATCH, *TRACE)],
)
def test_an_error_of_ours_ends_the_look(look: Any, cls: type, name: str, at: int, monkeypatch: pytest.MonkeyPatch, swallowed: Any) -> None:
    plain, before, calls = loop(None)[0], surroundings(), 0
    original = inspect.unwrap(getattr(cls, name))

    def broken(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise ZeroDivisionError("of modlab's")
        return original(*args, **kwargs)

    broken.__name__ = name
    timed = name in vars(sample.Sample) or cls is light_samples.LightSamples
    monkeypatch.setattr(cls, name, (guarded.timed if timed and hasattr(cls, "seconds") else guarded.guarded)(broken))
    weights, found, said = loop(look)
    assert all(map(torch.equal, weights, plain)) and surroundings() == before
    assert said.count("ended") == (calls >= at) or not calls
    assert str(found) and found.html() and found.to_dict()


def test_an_error_of_ours_when_the_model_goes_ends_the_look(monkeypatch: pytest.MonkeyPatch, swallowed: Any) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("of modlab's")

    monkeypatch.setattr(watcher.Watcher, "_gone", guarded.guarded(broken))
    net, optimizer, step = made()
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        w = watched(net, optimizer)
        step()
        del net, optimizer, step
        gc.collect()
    assert errors.getvalue().count("ended") == 1
    assert str(w) and w.html() and w.to_dict()


@pytest.mark.parametrize("stream", ["closed", "full", "none", "ascii"])
def test_a_broken_error_stream_harms_nobody(stream: str, monkeypatch: pytest.MonkeyPatch, swallowed: Any) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    kinds: dict[str, Any] = {"closed": io.StringIO(), "full": Full(), "none": None, "ascii": io.TextIOWrapper(io.BytesIO(), "ascii")}
    kinds["closed"].close()
    net, optimizer, step = made()

    def broken(*_: Any) -> None:
        raise ValueError("naïve …")

    monkeypatch.setattr(sample.Sample, "_take", broken)
    monkeypatch.setattr(sys, "stderr", kinds[stream])
    with modlab.watch(net, optimizer) as w:
        for _ in range(25):
            step()
        w.log(loss="no number")
    assert w.record.state == "failed"


class Interrupting:
    """Raises at one call or return of a function of ours."""

    def __init__(self, at: int) -> None:
        self.at, self.count, self.where, self.dropped = at, 0, ("", ""), False

    def __call__(self, frame: Any, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        if event in ("call", "return"):
            self.count += 1
            if self.count == self.at:
                self.where = event, frame.f_code.co_name
                code = frame.f_code  # Python drops one in a generator that ends, and in what is called when something dies
                self.dropped = bool(code.co_flags & inspect.CO_GENERATOR) or code.co_name == "<lambda>"
                raise KeyboardInterrupt
        return self


def interrupted(look: Any, at: int) -> tuple[Interrupting, Any, bool]:
    net, optimizer, step = made()
    found, trace, raised = None, Interrupting(at), False
    with contextlib.redirect_stderr(io.StringIO()):
        sys.settrace(trace)
        try:
            with look(net, optimizer) as found:
                step()
        except KeyboardInterrupt:
            raised = True
        finally:
            sys.settrace(None)
    return trace, found, raised


EDGE = {("return", "watch"), ("call", "__enter__"), ("return", "__enter__"), ("call", "__exit__")}
"""Where an interrupt is one of the user's own line: the watch is open, or not yet."""


def _try_interrupts(look: Any, count: int) -> None:
    total = interrupted(look, -1)[0].count
    for at in sorted({*range(1, total + 1, max(1, total // count)), *range(max(1, total - 6), total + 1)}):
        before = surroundings()
        trace, found, raised = interrupted(look, at)
        if trace.where in EDGE:
            for one in [*watcher.watchers]:
                one.close("ended")
        assert surroundings() == before, (at, trace.where)
        assert raised or not trace.where[0] or trace.dropped, (at, trace.where)
        if found is not None:
            assert str(found) and found.html() and found.to_dict(), (at, trace.where)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a generator that ends: Python drops what meets it
@pytest.mark.parametrize("look", [watched, traced], ids=["watch", "trace"])
def test_an_interrupt_at_a_call_or_return(look: Any) -> None:
    _try_interrupts(look, 20)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a generator that ends: Python drops what meets it
@pytest.mark.parametrize("look", [watched, traced], ids=["watch", "trace"])
def test_an_interrupt_at_any_call_or_return(look: Any) -> None:
    _try_interrupts(look, 1_000)


class Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("look", [watched, traced], ids=["watch", "trace"])
def test_a_users_mode_sees_nothing_of_ours(look: Any) -> None:
    seen = []
    for one, outside in ((None, False), (look, False), (look, True)):
        net, optimizer, step = made()
        mode, looking = Counting(), one(net, optimizer) if one else contextlib.nullcontext()
        first, second = (mode, looking) if outside else (looking, mode)
        with contextlib.redirect_stderr(io.StringIO()), first, second:
            for _ in range(5):
                step()
        seen.append(mode.seen)
    assert seen[0] == seen[1] == seen[2]


def test_calls_under_torch_func_and_stand_ins_are_left_out() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with modlab.watch(net, optimizer, budget=1.0) as w:
        for _ in range(5):
            x = torch.randn(8, 4)
            vmap(net)(x)
            grad(lambda held, x=x: functional_call(net, held, (x,)).sum())(dict(net.named_parameters()))
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                net(mode.from_tensor(x))
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    assert (w.record.state, w.record.samples) == ("ended", 5)


@pytest.mark.parametrize("make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.randn(8, 4))], ids=["script", "trace"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_scripted_model_is_watched(make: Any) -> None:
    net = make(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with modlab.watch(net, optimizer) as w:
        for _ in range(5):
            optimizer.zero_grad()
            net(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
    assert w.record.state == "ended" and w.record.steps == 5 and "scripted" in str(w)


@pytest.mark.parametrize("budget", [5e-324, math.nan, math.inf, True, 0, -1, 2, "x", None, 1j])
def test_a_budget_that_is_none(budget: Any) -> None:
    with pytest.raises(modlab.ModlabError):
        modlab.watch(Net(), budget=budget)


def test_a_budget_of_numpy() -> None:
    modlab.watch(Net(), budget=np.float32(0.02)).close()


@pytest.mark.parametrize("look", [modlab.watch, modlab.trace], ids=["watch", "trace"])
def test_nothing_is_left_on_the_users_input(look: Any) -> None:
    net, x = nn.Sequential(nn.Identity()), torch.ones(3, requires_grad=True)
    with look(net):
        (net(x) * 2).sum().backward()
    assert x._backward_hooks is None and x.grad.tolist() == [2, 2, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_left_alone() -> None:
    net, optimizer, step = made()
    with modlab.watch(net, optimizer) as w:
        for _ in range(5):
            step()
        child = os.fork()
        if not child:
            os._exit(0 if not w.running and not rooms._global_forward_hooks and w.record.steps == 5 else 1)
        assert os.waitpid(child, 0)[1] == 0
        step()
    assert w.record.steps == 6


LOCKS = (compile_warning, engine_calls, optimizer_hooks, recursion_limit)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_waits_for_no_thread_that_is_not_there() -> None:
    """Another thread opens a look at the very moment of the fork."""
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for room in LOCKS:
                stack.enter_context(room._lock)
            held.set()
            forked.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)  # it would wait for ever
        free = all(room._lock.acquire(blocking=False) for room in LOCKS)
        os._exit(0 if free else 1)
    forked.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
