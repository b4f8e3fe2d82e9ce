"""What a watch reads of an accelerator: joined, one copy a sample, and nobody waits. Most of it with a CPU that plays one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.watch import Watch
from modlab.running import attention_graph, autograd_nodes, dropout_graph, loss_graph
from modlab.watching import (
    batched_statistics,
    clues,
    finiteness,
    gradient_clues,
    losses,
    module_clues,
    pools,
    readback,
    sample,
    scalars,
    step_hooks,
    units,
    updates,
)
from modlab.watching.readback import Copy, ReadBack
from modlab.watching.segments import columns_here, columns_of, columns_there

ASKING = ("item", "tolist", "numpy", "cpu", "__bool__", "__float__", "__int__", "__array__")
"""What waits for an accelerator."""


class Late:
    """An event that takes place when it has been asked about so many times."""

    def __init__(self, after: int) -> None:
        self.left, self.waited = after, False

    def query(self) -> bool:
        self.left -= 1
        return self.left < 0

    def synchronize(self) -> None:
        self.waited = self.waited or self.left >= 0  # else there was nothing to wait for


class Far:
    """All tensors are taken for an accelerator's: counts what is copied from there, and what would wait for it."""

    def __init__(self, patch: pytest.MonkeyPatch, after: int = 0) -> None:
        self.copies, self.after = 0, after
        self.waits: list[str] = []
        self.events: list[Late] = []
        self._inside = 0
        for room in (
            readback,
            batched_statistics.readback,
            losses,
            scalars,
            updates,
            sample,
            finiteness,
            clues,
            pools,
            gradient_clues,
            module_clues,
            step_hooks,
        ):
            patch.setattr(room, "is_far", lambda tensor: not self._inside and not tensor.is_meta, raising=False)
        for graph in (loss_graph, attention_graph, autograd_nodes, dropout_graph):
            patch.setattr(graph, "is_here", lambda tensor: False)
        patch.setattr(units.Units, "glance", lambda self, activation, step, back: self.see(activation, step, back))
        patch.setattr(readback, "sent", self.sent)
        for name in ASKING:
            patch.setattr(Tensor, name, self.counted(name, getattr(Tensor, name)), raising=False)

    def sent(self, numbers: Tensor) -> tuple[Tensor, Any]:
        asks, event = sys._getframe(2).f_code.co_qualname, Late(self.after)
        self.copies += asks != "numbers"  # of a picture, which wants what was logged now: how many there are is the clock's
        if asks == "ReadBack.send":
            self.events.append(event)
        return Here(numbers.clone()), event  # type: ignore[return-value]

    def counted(self, name: str, function: Any) -> Any:
        def call(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            asks = sys._getframe(1).f_code
            ours = os.path.join("modlab", "watching") in asks.co_filename
            if self.counts and ours and tensor.dtype is not torch.uint8:  # which is a random state, and lies here
                self.waits.append(f"{asks.co_qualname} {name}")
            return function(tensor, *args, **kwargs)

        return call

    counts = False

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """The user's own questions do not count."""
        self.counts = True
        try:
            yield
        finally:
            self.counts = False


class Here:
    """What was copied: it may be looked at."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers = np.array(numbers.tolist(), np.float64)

    def numpy(self) -> Any:
        return self._numbers


class Model(nn.Module):
    """Units of all kinds: after a module, after a function, channels, and a saturating end."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu, self.first, self.second = nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Linear(12, 8), nn.Linear(8, 4)
        self.tanh, self.last = nn.Tanh(), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.conv(x)).flatten(1)
        return self.last(self.tanh(self.second(F.relu(self.first(x)))))


def watched(steps: int = 40, device: str = "cpu", far: Far | None = None, **options: Any) -> Watch:
    torch.manual_seed(0)
    model = Model()
    with torch.no_grad():
        model.first.bias[2] = -100
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(1)
    with (
        far.counting() if far is not None else contextlib.nullcontext(),
        modlab.watch(model, optimizer, **{"budget": 1.0, **options}) as w,
    ):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(torch.randn(64, 1, 4, 4, generator=generator).to(device)).square().mean()
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
        if far is not None:
            far.counts = False
    return w


def same(one: Watch, other: Watch) -> None:
    here, there = one.record, other.record
    assert [(series.path, series.role, series.shape) for series in here.history.series] == [
        (series.path, series.role, series.shape) for series in there.history.series
    ]
    for name, column in here.history.columns.items():
        np.testing.assert_allclose(column, there.history.columns[name], rtol=2e-3, atol=1e-6, err_msg=name)
    assert np.abs(here.history.bins.astype(int) - there.history.bins.astype(int)).max() <= 1
    for left, right in zip(here.units, there.units, strict=True):
        assert (left.path, left.read) == (right.path, right.read)
        assert left.inputs.sum() == right.inputs.sum() and (left.fired.sum(axis=0) == right.fired.sum(axis=0)).all()
        assert (left.silent == right.silent).all()
        assert (left.flat == right.flat)[left.silent > 1_000].all()  # of others it hangs on when they were counted last
    one_found, other_found = ({(alert.kind, alert.path, alert.unit) for alert in record.alerts} for record in (here, there))
    assert one_found == other_found
    assert [check.state for check in here.verdict.checks] == [check.state for check in there.verdict.checks]
    assert here.samples == there.samples
    np.testing.assert_allclose(here.scalars[0].mean, there.scalars[0].mean, rtol=1e-5)


@pytest.mark.parametrize("after", [0, 1, 30], ids=["at once", "a step later", "much later"])
def test_an_accelerator_is_read_once_a_sample(after: int) -> None:
    near = watched()
    assert {(alert.kind, alert.path, alert.unit) for alert in near.alerts} == {("dead", "first", 2)}
    with pytest.MonkeyPatch.context() as patch:
        far = Far(patch, after)
        there = watched(far=far)
    assert not there.record.error
    same(near, there)
    assert not far.waits
    checks = 2 * 40  # of gradients for a NaN, which are copies too: of the outputs', and the parameters'
    assert far.copies <= 40 + checks + 2
    assert any(event.waited for event in far.events[:-10]) == (after == 30)  # else it is read when it is there


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_statistics_there_are_those_here(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    some = [torch.randn(size) * 3 + 1 for size in (1, 3, 700, 5000)] + [torch.zeros(4), torch.full((5,), 2.0), torch.full((2,), torch.nan)]
    some += [torch.tensor([1.0, torch.inf, -torch.inf, torch.nan, 0.0])]
    sizes, values = [len(one) for one in some], torch.cat(some).to(dtype).float()
    here, nan = columns_here(values.numpy(), sizes)
    there, other = columns_of(columns_there(values, sizes).numpy())
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-7)
    assert nan.tolist() == other.tolist() == [False] * 6 + [True, True]


def test_numbers_are_handed_out_when_they_are_there() -> None:
    with pytest.MonkeyPatch.context() as patch:
        far = Far(patch, 2)
        back, told = ReadBack(), []
        for number in (1.0, 2.0):
            back.ask(torch.full((2,), number), lambda read: told.append(read.tolist()))
        back.ask(torch.ones((), dtype=torch.bool), lambda read: told.append(bool(read)))
        assert not back.waiting
        back.send()
        assert back.waiting and [back.ready() for _ in range(3)] == [False, False, True] and not told
        back.read()
    assert told == [[1.0, 1.0], [2.0, 2.0], True] and far.copies == 1 and not back.waiting


# ---- with one


@pytest.mark.gpu
def test_a_gpu_is_read_as_the_cpu_is() -> None:
    same(watched(), watched(device="cuda"))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:called a synchronizing CUDA operation")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_a_gpu_is_not_waited_for() -> None:
    """Between the first steps, in which memory is made ready, and the end."""
    torch.manual_seed(0)
    model = Model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    x = torch.randn(64, 1, 4, 4, device="cuda")
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for step in range(30):
            torch.cuda.set_sync_debug_mode("error" if 5 < step < 25 else "default")
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        torch.cuda.set_sync_debug_mode("default")
    assert not w.record.error and w.record.samples == 30


@pytest.mark.gpu
def test_a_copy_from_a_gpu_is_pinned() -> None:
    copy = Copy(torch.arange(5.0, device="cuda"))
    copy.wait()
    assert copy.done() and copy.numbers().tolist() == [0, 1, 2, 3, 4] and copy._here.is_pinned()
