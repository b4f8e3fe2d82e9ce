"""A watched training run is the same run, bit for bit: losses, weights, gradients, buffers, random numbers, hooks."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import modlab
from modlab.lessons.networks import ResNet18
from modlab.lessons.note import Net

Run = tuple[nn.Module, list[torch.optim.Optimizer], Callable[[int], Tensor | None]]
RUNS: dict[str, Callable[[], Run]] = {}


def run(make: Callable[[], Run]) -> Callable[[], Run]:
    RUNS[make.__name__] = make
    return make


def plain(model: nn.Module, batch: Callable[[], Any], optimizer: torch.optim.Optimizer | None = None, **options: Any) -> Run:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **options)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(batch()).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, [optimizer], step


@run
def note() -> Run:
    return plain(Net(), lambda: torch.randn(4), weight_decay=1e-2)


@run
def dropout_and_batch_norm() -> Run:
    return plain(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1)), lambda: torch.randn(8, 4))


@run
def in_place() -> Run:
    return plain(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 8), nn.ReLU(True), nn.Linear(8, 1)), lambda: torch.randn(8, 4)
    )


@run
def resnet() -> Run:
    return plain(ResNet18(10), lambda: torch.randn(2, 3, 32, 32))


@run
def recurrent() -> Run:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.lstm, self.out = nn.Embedding(9, 6), nn.LSTM(6, 8, 2, batch_first=True, dropout=0.5), nn.Linear(8, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.out(self.lstm(self.embed(tokens))[0])

    return plain(Tagger(), lambda: torch.randint(9, (2, 5)))


@run
def transformer() -> Run:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x, src_key_padding_mask=torch.tensor([[False, False, True]] * 2))

    return plain(Model(), lambda: torch.randn(2, 3, 8))


def checkpointed(reentrant: bool) -> Run:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.block, self.last = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.ReLU()), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(checkpoint(self.block, self.first(x), use_reentrant=reentrant))

    return plain(Model(), lambda: torch.randn(8, 4))


@run
def checkpoint_reentrant() -> Run:
    return checkpointed(True)


@run
def checkpoint_without() -> Run:
    return checkpointed(False)


@run
def autocast_and_scaler() -> Run:
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)  # overflows at first: steps are skipped

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(8, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, [optimizer], step


@run
def a_scaler_and_a_fused_optimizer() -> Run:
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)  # is told to skip a step, and does so itself
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(8, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return model, [optimizer], step


@run
def accumulation() -> Run:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step(number: int) -> Tensor:
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return model, [optimizer], step


@run
def two_optimizers() -> Run:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    both = [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters())]

    def step(_: int) -> Tensor:
        for one in both:
            one.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        for one in both:
            one.step()
        return loss

    return model, [*both], step


@run
def closure() -> Run:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def step(_: int) -> Tensor:
        x = torch.randn(8, 4)

        def again() -> Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        loss: Any = optimizer.step(again)
        return loss if isinstance(loss, Tensor) else torch.tensor(loss)

    return model, [optimizer], step


@run
def adversaries() -> Run:
    model = nn.ModuleDict({"g": nn.Linear(4, 4), "d": nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 1))})
    both = [torch.optim.Adam(part.parameters()) for part in model.values()]

    def step(_: int) -> Tensor:
        fake = model["g"](torch.randn(8, 4))
        both[1].zero_grad()
        loss = model["d"](fake.detach()).mean() - model["d"](torch.randn(8, 4)).mean()
        loss.backward()
        both[1].step()
        both[0].zero_grad()
        (-model["d"](fake).mean()).backward()
        both[0].step()
        return loss

    return model, [*both], step


@run
def shared_and_parametrized() -> Run:
    layer = parametrizations.weight_norm(nn.Linear(4, 4))
    return plain(nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(4, 1)), lambda: torch.randn(8, 4))


@run
def sparse_and_frozen() -> Run:
    model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 4), nn.Linear(4, 1))
    model[1].requires_grad_(False)
    return plain(model, lambda: torch.randint(9, (8,)), torch.optim.SGD(model.parameters(), lr=0.1))


@run
def hooked() -> Run:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    model[0].register_forward_hook(lambda module, args, out: out * 1.5)
    model[2].register_full_backward_hook(lambda module, before, after: (before[0] * 0.5,))
    model[0].weight.register_post_accumulate_grad_hook(lambda parameter: None)
    return plain(model, lambda: torch.randn(8, 4))


@run
def complex_and_double() -> Run:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, dtype=torch.complex64)
            self.last = nn.Linear(4, 1, dtype=torch.float64)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.first(x).abs().double())

    return plain(Model(), lambda: torch.randn(8, 4, dtype=torch.complex64))


@run
def compiled() -> Run:
    model = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 1)), backend="eager")
    return plain(model, lambda: torch.randn(8, 4))  # type: ignore[arg-type]


@run
def nests_and_no_tensors() -> Run:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.odd = nn.Linear(4, 4), Odd()

        def forward(self, batch: dict[str, Tensor], *, scale: float = 1.0) -> dict[str, Any]:
            return {"out": self.odd(self.part(batch["x"]))["y"] * scale, "text": "words", "none": None}

    class Odd(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"y": x, "n": 3, "ints": torch.arange(3), "empty": torch.empty(0)}

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(_: int) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model({"x": torch.randn(8, 4)}, scale=0.5)["out"].square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, [optimizer], step


def bits(tensor: Tensor | None) -> Any:
    """All of them, of a large tensor a digest: many steps of large models are kept."""
    if tensor is None:
        return None
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    array = (torch.view_as_real(dense) if dense.is_complex() else dense).contiguous().numpy()
    return array.tobytes() if array.nbytes <= 64 else hashlib.sha256(array).digest()


def photograph(model: nn.Module) -> list[Any]:
    """All that training may change, and all that a tool may leave behind."""
    tensors = [
        (name, bits(tensor), bits(tensor.grad), tensor._version, tensor._backward_hooks) for name, tensor in model.named_parameters()
    ]
    buffers = [(name, bits(tensor), tensor._version) for name, tensor in model.named_buffers()]
    hooks = [
        (name, [getattr(hook, "__qualname__", type(hook).__name__) for hook in store.values()])
        for module in model.modules()
        for name, store in vars(module).items()
        if name.endswith("hooks") and isinstance(store, dict)
    ]
    return [tensors, buffers, hooks, torch.get_rng_state().numpy().tobytes(), [module.training for module in model.modules()]]


@contextmanager
def nothing() -> Iterator[None]:
    yield


STEPS = 25
WAYS = {
    "every step": {"budget": 1.0},
    "some steps": {"budget": 0.02},
    "kept": {"budget": 1.0, "on_nan": "hold"},
    "shadow": {"budget": 1.0, "inside": "shadow"},
    "good steps": {"budget": 1.0, "keep": "good"},
}


def film(make: Callable[[], Run], options: dict[str, Any] | None) -> list[Any]:
    torch.manual_seed(0)
    model, optimizers, step = make()
    frames = []
    with modlab.watch(model, optimizers, **options) if options else nothing() as w:
        for number in range(STEPS):
            loss = step(number)
            if w is not None and loss is not None:
                w.log(loss=loss)
            frames.append((None if loss is None else bits(loss), photograph(model)))
    if w is not None:
        assert w.record.state == "ended" and not w.record.error
        # the first looks of a large model take half a second together: how many those are is a matter of time
        assert w.record.samples >= (8 if options["budget"] == 1.0 else 1)
    return frames


@lru_cache(maxsize=1)
def unwatched(name: str) -> list[Any]:
    """The film with which those of all ways are compared."""
    return film(RUNS[name], None)


LONG = {("resnet", "kept"), ("resnet", "shadow"), ("resnet", "some steps"), ("resnet", "good steps")}
CASES = [pytest.param(name, way, marks=[pytest.mark.long] * ((name, way) in LONG)) for name in RUNS for way in WAYS]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_a_watched_run_is_the_same_run(name: str, way: str) -> None:
    with warnings.catch_warnings():
        if name in ("hooked", "compiled"):
            warnings.simplefilter("ignore")  # torch's own words on what these do
        alone, watched = unwatched(name), film(RUNS[name], WAYS[way])
    for number, (left, right) in enumerate(zip(alone, watched, strict=True)):
        assert left == right, f"step {number}"


@pytest.mark.parametrize("budget", [1.0, 0.001])
@pytest.mark.parametrize("name", ["autocast_and_scaler", "a_scaler_and_a_fused_optimizer"])
def test_a_skipped_step_is_a_step_and_no_alarm(name: str, budget: float) -> None:
    torch.manual_seed(0)
    model, optimizers, step = RUNS[name]()
    with modlab.watch(model, optimizers, budget=budget) as w:
        for number in range(60):
            step(number)
    assert not [alert for alert in w.alerts if alert.kind in ("nan", "inf")]
    if budget == 1.0:  # else hardly a step that was skipped is looked at
        assert w.record.steps >= 58
        assert any("skipped" in remark for remark in w.record.remarks)


def test_what_a_checkpoint_computes_again_counts_once() -> None:
    torch.manual_seed(0)
    for name in ("checkpoint_reentrant", "checkpoint_without"):
        model, optimizers, step = RUNS[name]()
        with modlab.watch(model, optimizers, budget=1.0) as w:
            for number in range(12):
                step(number)
        history = w.record.history
        for role in ("activation", "gradient"):
            row = history.row("block.0", role)
            assert row >= 0, (name, role)
            assert (history.columns["samples"][:, row] == 1).all(), (name, role)


def test_loops_of_one_process_under_ddp(tmp_path: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:

        def make() -> Run:
            return plain(
                nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))), lambda: torch.randn(8, 4)
            )

        assert film(make, None) == film(make, WAYS["every step"])
    finally:
        torch.distributed.destroy_process_group()


def test_functional_loss_is_seen_as_a_cross_entropy() -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        for _ in range(5):
            loss = F.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
            loss.backward()
            optimizer.step()
            w.log(loss=loss)
    assert "uniform guess among 3" in w.verdict.checks[1].text


def test_a_shadow_shows_what_a_compiler_hides() -> None:
    inner = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 1))
    model = torch.compile(inner, backend="eager")
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)
    with modlab.watch(model, optimizer, budget=1.0, inside="shadow") as w:
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()
    history = w.record.history
    row = history.row("_orig_mod.1", "activation")
    assert (history.columns["samples"][:, row] == 1).all()
    assert "shadow" in history.series[row].note and "8 of 16" in history.series[row].note


class Noting(nn.Module):
    """Counts its calls, in more than one place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.calls, self.seen = nn.Linear(4, 1), nn.BatchNorm1d(4), 0, list[int]()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(self.calls)
        self.count = self.count + 1
        return self.layer(self.norm(x)) / self.calls


def test_a_shadow_leaves_nothing_of_its_pass() -> None:
    def train(options: dict[str, Any] | None) -> list[Any]:
        torch.manual_seed(0)
        inner = Noting()
        model = torch.compile(inner, backend="eager")
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)
        with modlab.watch(model, optimizer, **options) if options else nothing():
            for _ in range(4):
                optimizer.zero_grad()
                model(torch.randn(16, 4)).square().mean().backward()
                optimizer.step()
        return [inner.calls, inner.seen, photograph(inner)]

    assert train({"budget": 1.0, "inside": "shadow"}) == train(None)


@pytest.mark.parametrize("before", [0, 3])
def test_a_watch_makes_nothing_compile_again(before: int) -> None:
    import torch._dynamo as dynamo

    dynamo.reset()
    counts: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        counts.append(1)
        return graph.forward

    inner = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 1))
    model, optimizer = torch.compile(inner, backend=backend), torch.optim.SGD(inner.parameters(), lr=0.01)

    def steps(number: int) -> None:
        for _ in range(number):
            optimizer.zero_grad()
            model(torch.randn(16, 4)).square().mean().backward()
            optimizer.step()

    steps(before)
    with modlab.watch(model, optimizer):
        steps(60)
    assert len(counts) == 1
