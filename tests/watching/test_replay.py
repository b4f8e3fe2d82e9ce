"""The birthplace of a NaN: found by running a training step again, which leaves no trace; PyTorch is the oracle."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import random
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules import module as machinery
from torch.utils.checkpoint import checkpoint

import modlab
from modlab.running.values import leaves
from modlab.statistics.memory import local
from modlab.watching import last_step
from modlab.watching.finiteness import GradientCheck, NonFinite, kind_of
from modlab.watching.last_step import KEPT, LastStep
from modlab.watching.nan_origin import Birth
from modlab.watching.replay import birthplace
from modlab.wording import births
from modlab.wording.fixes import FIXES
from tests.calls import CALLS
from tests.tracing.test_identity import bits as trace_bits
from tests.tracing.test_identity import facts_of

pytestmark = pytest.mark.filterwarnings("error")
NAN, INF = float("nan"), float("inf")
GLOBAL = [name for name in vars(machinery) if name.startswith("_global_") and "hook" in name]
Loss = Callable[[Any], Tensor]


class Log(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.log(torch.relu(x))


class Root(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sqrt(x - x.detach())  # at zero, where its slope is infinite


class Trap(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x))


class Harmless(nn.Module):
    """A NaN is born in its backward pass, and a mask stops it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, torch.sqrt(torch.clamp(x, min=0)), torch.zeros_like(x))


class Ratio(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / torch.relu(x)


class Attention(nn.Module):
    def __init__(self, all_of_it: bool = False) -> None:
        super().__init__()
        self.inner, self.all = nn.Linear(8, 8), all_of_it

    def forward(self, x: Tensor) -> Tensor:
        scores = self.inner(x) @ x.T
        mask = torch.ones_like(scores, dtype=torch.bool).triu(0 if self.all else 1)
        return scores.masked_fill(mask, -INF).softmax(-1) @ x


class Again(nn.Module):
    """Checkpointed."""

    def __init__(self, inner: nn.Module, reentrant: bool) -> None:
        super().__init__()
        self.inner, self.reentrant = inner, reentrant

    def forward(self, x: Tensor) -> Any:
        return checkpoint(self.inner, x, use_reentrant=self.reentrant)


class Once(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.allowed = nn.Linear(4, 2), [1]

    def forward(self, x: Tensor) -> Tensor:
        if not ALLOWED:
            raise ValueError("only once")
        ALLOWED.pop()
        return self.inner(x) * NAN


ALLOWED: list[int] = []


class Spiked(nn.Module):
    """Overflows in the passes in which a random number says so."""

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.bernoulli(torch.full_like(x, 0.5))


class Counter(nn.Module):
    """Reads a buffer that each pass changes: only with the buffer as it was is the pass the same."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0.0))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x / (self.count - 3)


def sandwich(middle: nn.Module, *more: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), middle, *more, nn.Linear(8, 2))


def squares(output: Tensor) -> Tensor:
    return output.float().pow(2).mean()


@pytest.fixture(autouse=True)
def seeded() -> Any:
    torch.manual_seed(0)
    before = surroundings()
    yield
    assert surroundings() == before


def surroundings() -> tuple[Any, ...]:
    stores = [getattr(machinery, name) for name in GLOBAL]
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled(), torch.is_autocast_enabled("cpu")
    return [[*store] if hasattr(store, "__iter__") else store for store in stores], torch.overrides._len_torch_function_stack(), modes


def bits(tensor: Tensor | None) -> Any:
    return (
        None
        if tensor is None
        else (tensor.dtype, tuple(tensor.shape), local(tensor).detach().flatten().contiguous().view(torch.uint8).tolist())
    )


def facts(model: nn.Module) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path, module in model.named_modules():
        found[f"{path} own"] = (
            module.training,
            sorted(vars(module)),
            {name: len(held) for name, held in vars(module).items() if "hooks" in name and held},
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        grad = tensor.grad if tensor.is_leaf else None
        found[name] = id(tensor), bits(tensor), tensor._version, tensor.requires_grad, tensor._backward_hooks is None
        found[f"{name}.grad"] = id(grad) if grad is not None else None, bits(grad), None if grad is None else grad._version
    found["random"] = torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())
    return found


def backward(model: nn.Module, *inputs: Any, loss: Loss = squares, tap: LastStep | None = None, autocast: Any = None) -> LastStep:
    """One training pass under a tap, without a step."""
    tap = tap or LastStep(model)
    tap.open()
    with autocast or contextlib.nullcontext():
        value = loss(model(*inputs))
    value.backward()
    return tap


def born(model: nn.Module, *inputs: Any, loss: Loss = squares, autocast: Any = None) -> Birth:
    """The birthplace in one pass; and all is as it was."""
    tap = backward(model, *inputs, loss=loss, autocast=autocast)
    before = facts(model)
    given = [(bits(x), x._version, bits(x.grad) if x.is_leaf else None) for x in inputs if isinstance(x, Tensor)]
    found = birthplace(model, tap)
    assert facts(model) == before
    assert given == [(bits(x), x._version, bits(x.grad) if x.is_leaf else None) for x in inputs if isinstance(x, Tensor)]
    assert not tap.trouble
    tap.close()
    return found


def said(found: Birth) -> str:
    """In words, with what there is to be doubted."""
    parts = births.halves(found.path, found.facts, {"nan": "NaN"}.get(found.kind, "infinity"))
    return ": ".join(filter(None, parts)) + births.doubted(found.facts)


def advice(found: Birth) -> str:
    (fix,) = found.fixes
    return str(FIXES[fix.kind])


def name(found: Birth) -> Any:
    """Of the node of the graph, else of the module or function."""
    return found.facts.get("node") or found.facts["name"]


def data() -> Tensor:
    return torch.randn(6, 4)


def test_log_of_zero_in_the_middle():
    found = born(sandwich(Log()), data())
    assert (found.where, found.path, name(found), found.kind, found.exact) == ("forward", "1", "torch.log", "inf", True)
    assert "from finite numbers (tests/watching/test_replay.py:" in said(found) and "of its inputs are 0" in said(found)
    assert found.trace is not None and found.trace.events[found.event].name == "torch.log"


def test_division_by_zero():
    found = born(sandwich(Ratio()), data())
    assert (found.where, found.path, name(found)) == ("forward", "1", "x / y")
    assert "it divides by are 0" in said(found)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_overflow_under_autocast(dtype):
    net = sandwich(nn.ReLU())
    with torch.no_grad():
        net[2].weight.mul_(1e6 if dtype is torch.float16 else 1e38)
        net[2].weight.abs_(), net[0].bias.fill_(100)
    found = born(net, data(), autocast=torch.autocast("cpu", dtype=dtype))
    assert (found.where, found.path, found.exact) == ("forward", "2", True)
    assert ("the largest number in float16 is 65,504" in said(found)) == (dtype is torch.float16)


def test_overflow_in_the_backward_pass_with_a_grad_scaler():
    net = sandwich(nn.ReLU())
    with torch.no_grad():
        net[2].weight.mul_(1e4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**17)
    tap = backward(net, data(), loss=lambda y: scaler.scale(y.float().mean()), autocast=torch.autocast("cpu", dtype=torch.float16))
    before = bits(net[0].weight)
    scaler.step(optimizer)
    scaler.update()
    assert bits(net[0].weight) == before and scaler.get_scale() == 2.0**16  # the step was skipped
    state = facts(net)
    found = birthplace(net, tap)
    tap.close()
    assert (found.where, found.path, found.kind, found.exact) == ("backward", "2", "inf", True)
    assert "float16" in said(found) and "GradScaler" in advice(found)
    assert facts(net) == state


def test_steps_that_a_grad_scaler_skips_in_a_loop():
    """As the engine does it: looked at when a backward pass has ended, run again when the next forward pass begins."""

    def train(watched: bool) -> tuple[Any, ...]:
        torch.manual_seed(2)
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.ReLU(), nn.Linear(8, 2))
        with torch.no_grad():
            net[3].weight.mul_(1e4)
        optimizer, scaler = torch.optim.SGD(net.parameters(), 1e-6), torch.amp.GradScaler("cpu", init_scale=2.0**18)
        check, births, findings, steps = GradientCheck(net.named_parameters()), [], [], []

        def begins() -> None:
            if findings:  # the step was skipped: the weights are still the same
                births.append(birthplace(net, tap))
                findings.clear()
            tap.forget()

        def ended(one: Any) -> None:
            found = check.look(0, tap.passes)
            if found is not None:
                findings.append(found)
                tap.hold()

        tap = LastStep(net, on_forward=begins, on_backward=ended)
        handle = optimizer.register_step_post_hook(lambda *_: (steps.append(1), tap.forget()))
        if watched:
            tap.open()
        for _ in range(6):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = net(torch.randn(6, 4)).float().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        handle.remove()
        tap.close()
        assert not tap.trouble and not (watched and not births)
        for birth in births:
            assert (birth.where, birth.path, birth.exact) == ("backward", "3", True)
        assert len(steps) + len(births) + len(findings) == 6 or not watched
        return len(steps), scaler.get_scale(), [bits(tensor) for tensor in net.state_dict().values()], torch.get_rng_state().tolist()

    assert train(True) == train(False)


def test_the_scale_alone_overflows():
    found = born(sandwich(nn.ReLU()), data(), loss=lambda y: squares(y) * 2**24, autocast=torch.autocast("cpu", dtype=torch.float16))
    assert (found.where, found.path, found.kind) == ("the loss", "", "inf")
    assert "65,504" in said(found) and "GradScaler" in advice(found)


def test_a_square_root_at_zero_is_found_in_the_backward_pass():
    found = born(sandwich(Root()), data())
    assert (found.where, found.path, name(found), found.kind, found.exact) == ("backward", "1", "SqrtBackward0", "inf", True)
    assert found.trace is not None and found.trace.events[found.event].name == "torch.sqrt"
    assert "tests/watching/test_replay.py:" in said(found)


def test_the_trap_of_where():
    net = sandwich(Trap())
    found = born(net, data())
    assert torch.isnan(net[0].weight.grad).any()  # the oracle
    assert (found.where, found.path, name(found), found.kind) == ("backward", "1", "SqrtBackward0", "nan")
    assert "mask its input" in advice(found)


def test_what_a_mask_stops_is_not_blamed():
    net = nn.Sequential(nn.Linear(4, 8), Root(), nn.Linear(8, 8), Harmless(), nn.Linear(8, 2))
    found = born(net, data())
    assert torch.isnan(net[0].weight.grad).any() and torch.isfinite(net[2].weight.grad).all()  # the oracle
    assert (found.where, found.path, name(found)) == ("backward", "1", "SqrtBackward0")


def test_a_gradient_that_is_spoilt_after_the_backward_pass():
    net = sandwich(nn.ReLU())
    tap = backward(net, data())
    net[2].weight.grad[0, 0] = NAN
    found = birthplace(net, tap)
    assert (found.where, found.path, found.exact) == ("backward", "2.weight", True)
    assert "gradients of the pass are finite" in said(found)
    tap.close()


def test_nan_in_the_batch():
    x = data()
    x[2, 1] = NAN
    found = born(sandwich(nn.ReLU(), nn.Dropout()), x)
    assert (found.where, found.path, said(found)) == ("the batch", "input", "the batch: input contains 1 NaN among 24 numbers")


def test_nan_in_the_loss():
    found = born(sandwich(nn.ReLU()), data(), loss=lambda y: (y * 0).sqrt().sum())
    assert (found.where, found.path, found.exact) == ("the loss", "", True)
    assert "outputs are finite" in said(found)


def test_weights_that_were_spoilt_before():
    net = sandwich(nn.ReLU())
    with torch.no_grad():
        net[2].bias[0] = INF
    found = born(net, data())
    assert (found.where, found.path, found.trace) == ("the weights", "2.bias", None)
    assert "1 infinity among 2 numbers" in said(found)


def test_infinities_on_purpose_are_not_blamed():
    found = born(nn.Sequential(nn.Linear(4, 8), Attention(), Root(), nn.Linear(8, 2)), data())
    assert (found.where, found.path) == ("backward", "2")
    found = born(nn.Sequential(nn.Linear(4, 8), Attention(), nn.Linear(8, 8), Log(), nn.Linear(8, 2)), data())
    assert (found.where, found.path, name(found)) == ("forward", "3", "torch.log")


def test_a_row_that_is_masked_throughout():
    found = born(nn.Sequential(nn.Linear(4, 8), Attention(all_of_it=True), nn.Linear(8, 2)), data())
    assert (found.where, found.path, name(found), found.kind) == ("forward", "1", "Tensor.softmax", "nan")
    assert "a whole row of its input is -inf" in said(found)


def test_the_same_random_numbers_are_drawn():
    net = sandwich(nn.Dropout(0.5), Spiked())
    tap = backward(net, data())
    gold = {name: bits(p.grad) for name, p in net.named_parameters()}
    torch.randn(100), random.random()  # the user draws on
    before = facts(net)
    found = birthplace(net, tap)
    assert facts(net) == before and gold == {name: bits(p.grad) for name, p in net.named_parameters()}
    assert (found.where, found.path, name(found), found.exact) == ("forward", "2", "x / y", True)
    tap.close()


def test_python_and_numpy_random_numbers():
    class Dice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x / (0 if random.random() < 0.5 else 1) if np.random.rand() < 0.5 else x

    net = sandwich(Dice())
    tap = LastStep(net)
    places = 0
    for seed in range(12):
        random.seed(seed), np.random.seed(seed)
        backward(net, data(), tap=tap)
        bad = any(not torch.isfinite(p.grad).all() for p in net.parameters())
        random.random(), np.random.rand()
        if bad:
            found = birthplace(net, tap)
            assert (found.where, found.path, found.exact) == ("forward", "1", True)
            places += 1
        net.zero_grad()
        tap.forget()
    tap.close()
    assert places


def test_a_generator_of_the_models_own():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.generator = torch.Generator().manual_seed(5)

        def forward(self, x: Tensor) -> Tensor:
            return x / torch.bernoulli(torch.full_like(x, 0.5), generator=self.generator)

    net = sandwich(Own())
    tap = backward(net, data())
    state = net[1].generator.get_state().tolist()
    found = birthplace(net, tap)
    assert (found.where, found.path, found.exact) == ("forward", "1", True)
    assert net[1].generator.get_state().tolist() == state
    tap.close()


def test_batch_norm_is_put_back():
    net = sandwich(nn.BatchNorm1d(8), Log())
    found = born(net, data())  # which compares running statistics and versions
    assert (found.where, found.path, found.exact) == ("forward", "2", True)
    assert int(net[1].num_batches_tracked) == 1


def test_a_buffer_that_decides_is_as_it_was_then():
    net = sandwich(Counter())
    tap = LastStep(net)
    for step in range(6):
        backward(net, data(), tap=tap)
        found = birthplace(net, tap)
        expected = ("forward", "1", True) if step == 2 else ("", "", False)
        assert (found.where, found.path, found.exact) == expected, step
        assert float(net[1].count) == step + 1
        net.zero_grad()
        tap.forget()
    assert [one.name for one in backward(net, data(), tap=tap).passes[-1].buffers] == ["count"]
    tap.close()


def test_a_buffer_that_is_replaced():
    class Replacing(Counter):
        def forward(self, x: Tensor) -> Tensor:
            self.count = self.count + 1
            return x / (self.count - 5)

    net = sandwich(Replacing())
    tap = LastStep(net)
    for step in range(6):
        backward(net, data(), tap=tap)
        count = net[1].count
        found = birthplace(net, tap)
        assert net[1].count is count and float(count) == step + 1
        assert found.where == ("forward" if step == 4 else "")
        net.zero_grad()
        tap.forget()
    tap.close()


def test_gradient_accumulation_finds_the_pass():
    net = sandwich(nn.ReLU(), nn.Dropout())
    tap = LastStep(net)
    for i in range(3):
        x = data()
        if i == 1:
            x[0, 0] = NAN
        backward(net, x, tap=tap)
    before = facts(net)
    found = birthplace(net, tap)
    assert (found.where, found.path) == ("the batch", "input")
    assert facts(net) == before and len(tap.passes) == 3
    tap.close()


def test_only_the_sum_of_two_passes_overflows():
    net = nn.Linear(2, 1).half()
    tap = LastStep(net)
    for _ in range(2):
        backward(net, torch.ones(1, 2).half(), tap=tap, loss=lambda y: y.sum() * 40_000)
    assert torch.isinf(net.weight.grad).all()
    found = birthplace(net, tap)
    assert (found.where, found.path, found.kind, found.exact) == ("backward", "weight", "inf", True)
    assert "each of the 2 passes gives finite gradients" in said(found)
    tap.close()


def test_gradients_that_meet_and_overflow():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x)
            return torch.stack([y * 1.0, y * 1.0])

    found = born(Twice().half(), torch.ones(1, 2).half(), loss=lambda y: y.sum() * 40_000)
    assert (found.where, found.path, found.kind) == ("backward", "inner", "inf")
    assert "sum" in said(found)


def test_in_place_modules():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), Log(), nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    found = born(net, data())
    assert (found.where, found.path, name(found), found.exact) == ("forward", "2", "torch.log", True)


def test_a_value_that_is_written_in():
    class Writer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 1
            y[0] = torch.log(x[0] * 0)
            return y

    found = born(sandwich(Writer()), data())
    assert (found.where, found.path, name(found)) == ("forward", "1", "torch.log")


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(("middle", "where"), [(Log, "forward"), (Root, "backward")])
def test_checkpointing(reentrant, middle, where):
    net = sandwich(Again(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), middle()), reentrant))
    found = born(net, data())
    assert (found.where, found.path, found.exact) == (where, "1.inner.2", True)


def test_hooks_of_the_users_stay_and_are_named():
    def spoil(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output * NAN

    net = sandwich(nn.ReLU())
    net[1].register_forward_hook(spoil)
    found = born(net, data())
    assert (found.where, found.path) == ("forward", "1")
    assert "spoil" in name(found) or name(found).startswith("x *")


def test_the_trace_shows_no_hook_of_ours():
    found = born(sandwich(Log()), data())
    assert found.trace is not None and not [event for event in found.trace.events if event.kind == "hook"]


def test_parameters_hooks_are_not_run_by_the_replay():
    net, calls = sandwich(Log()), []
    net[0].weight.register_post_accumulate_grad_hook(lambda parameter: calls.append(parameter))
    tap = backward(net, data())
    assert len(calls) == 1
    birthplace(net, tap)
    assert len(calls) == 1
    tap.close()


def test_inputs_changed_in_place_are_told():
    net, x = sandwich(nn.ReLU()), data()
    x[0, 0] = NAN
    tap = backward(net, x)
    x.zero_()
    found = birthplace(net, tap)
    assert (found.where, found.exact) == ("", False)
    assert (
        births.doubted(found.facts)
        == " (replay may differ: inputs were changed in place; run again, the outputs are not the same: the run is not deterministic)"
    )
    tap.close()


def test_what_is_not_deterministic_is_told():
    state = [0]

    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            state[0] += 1
            return x / (state[0] - 1)

    net = sandwich(Moody())
    tap = backward(net, data())
    found = birthplace(net, tap)
    assert (found.where, found.exact) == ("", False) and "not deterministic" in said(found)
    tap.close()


def test_a_model_that_raises_the_second_time():
    net = nn.Sequential(Once())
    ALLOWED.append(1)
    tap = backward(net, data())
    before = facts(net)
    found = birthplace(net, tap)
    assert (found.where, found.path, found.exact) == ("", "", False)
    assert "it raises ValueError: only once" in said(found)
    assert facts(net) == before
    tap.close()


def test_an_interrupt_goes_through_and_leaves_all_as_it_was():
    class Stubborn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if stop:
                raise KeyboardInterrupt
            return x * NAN

    stop: list[int] = []
    net = sandwich(nn.BatchNorm1d(8), Stubborn())
    tap = backward(net, data())
    before = facts(net)
    stop.append(1)
    with pytest.raises(KeyboardInterrupt):
        birthplace(net, tap)
    assert facts(net) == before
    tap.close()


def test_keyword_arguments_nests_and_many_outputs():
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, batch: dict[str, Tensor], *, scale: Tensor) -> dict[str, Any]:
            return {"a": self.left(batch["x"]), "none": None, "b": (self.right(batch["x"]) / scale, 3)}

    net = Odd()
    tap = LastStep(net)
    tap.open()
    output = net({"x": data()}, scale=torch.zeros(2))
    (output["a"].sum() + output["b"][0].sum()).backward()
    before = facts(net)
    found = birthplace(net, tap)
    assert (found.where, found.path, name(found)) == ("forward", "", "x / y")
    assert facts(net) == before
    tap.close()


def test_inputs_that_carry_a_graph_and_leaves():
    generator, critic = nn.Linear(3, 4), sandwich(Root())
    x = generator(torch.randn(6, 3))
    x.retain_grad()
    tap = backward(critic, x)
    before = facts(critic), facts(generator), bits(x.grad), x._version
    found = birthplace(critic, tap)
    assert (found.where, found.path) == ("backward", "1")
    assert (facts(critic), facts(generator), bits(x.grad), x._version) == before
    tap.close()
    leaf = data().requires_grad_()
    assert born(sandwich(Root()), leaf).path == "1"


def test_only_the_gradient_of_the_input_is_bad():
    class First(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sqrt(x)

    found = born(nn.Sequential(First(), nn.Linear(4, 2)), torch.zeros(3, 4, requires_grad=True))
    assert (found.where, found.path, name(found)) == ("backward", "0", "SqrtBackward0")


def test_a_compiled_model_is_run_as_it_is_written():
    net = sandwich(Log())
    compiled = torch.compile(net, backend="eager")
    tap = backward(compiled, data())
    before = facts(net)
    found = birthplace(compiled, tap)
    assert (found.where, found.path, found.exact) == ("forward", "1", False)
    assert "compiled" in said(found) and facts(net) == before
    tap.close()


def test_toggling_the_tap_compiles_nothing_anew():
    counts = []

    def backend(graph: Any, inputs: Any) -> Any:
        counts.append(1)
        return graph.forward

    net = sandwich(nn.ReLU())
    compiled = torch.compile(net, backend=backend)
    tap = LastStep(compiled)
    tap.open()
    tap.off()
    for i in range(6):
        tap.on() if i % 2 else tap.off()
        compiled(torch.ones(3, 4)).sum().backward()
    assert tap.forwards == 3 and len(counts) == 1
    tap.close()


def test_what_runs_in_parallel_is_unwrapped():
    net = nn.DataParallel(sandwich(Log()))
    found = born(net, data())
    assert (found.where, found.path) == ("forward", "1")


@pytest.fixture
def alone(tmp_path: Any) -> Any:
    """A process group of one."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize(("middle", "where"), [(Log, "forward"), (Root, "backward")])
def test_distributed_data_parallel(alone, middle, where):
    net = nn.parallel.DistributedDataParallel(sandwich(middle()))
    found = born(net, data())
    assert (found.where, found.path, found.exact) == (where, "1", True)
    squares(net(data())).backward()  # the next pass of the wrapper is not disturbed


def test_a_part_that_trains_in_parallel_is_run_again_where_no_other_rank_takes_part(alone):
    net = nn.Sequential(nn.parallel.DistributedDataParallel(sandwich(Log())))
    found = born(net, data())
    assert (found.where, found.path, found.exact) == ("forward", "0.1", True)
    squares(net(data())).backward()  # nor is its own reducer disturbed


def test_a_pass_that_other_ranks_take_part_in_is_not_run_again(alone, monkeypatch):
    net = nn.Sequential(nn.parallel.DistributedDataParallel(sandwich(Log())))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    found = born(net, data())
    assert (found.where, found.trace, found.exact) == ("", None, False) and "talks to the other ranks (DDP over 2)" in said(found)


@pytest.mark.parametrize("way", ["TP", "FSDP2"])
def test_gradients_and_weights_that_are_parts(alone, way):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh, net = init_device_mesh("cpu", (1,)), sandwich(Root())
    if way == "TP":
        parallelize_module(net, mesh, {"0": ColwiseParallel()})
        assert said(born(net, data())).startswith("backward: torch.sqrt in layer 1")
    else:
        fully_shard(net, mesh=mesh)
        assert "through its own hooks, which were not run" in said(born(net, data()))
    tap = backward(net, data())
    with torch.no_grad():
        net.get_parameter("0.weight").to_local()[0, 0] = NAN  # type: ignore[operator]
    found = birthplace(net, tap)
    assert (found.where, found.path, found.exact) == ("the weights", "0.weight", True) and "contains 1 NaN among 32 numbers before" in said(
        found
    )
    tap.close()


def test_a_graph_that_is_too_large_is_followed_by_modules(monkeypatch):
    monkeypatch.setattr("modlab.watching.nan_in_backward.LIMIT", 1)
    found = born(sandwich(Root()), data())
    assert (found.where, found.path, found.kind) == ("backward", "0", "inf")
    assert "arrives at the output of layer 0" in said(found)


class Hooked(nn.Module):
    """Hangs a hook on what it gives, as a model's forward may."""

    def __init__(self, hook: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.hook = hook

    def forward(self, x: Tensor) -> Tensor:
        made = torch.tanh(x)
        if made.requires_grad:
            made.register_hook(self.hook)
        return made


@pytest.mark.parametrize("spoilt", [NAN, INF])
def test_a_hook_on_a_tensor(spoilt):
    found = born(sandwich(Hooked(lambda gradient: gradient * spoilt)), data())
    assert (found.where, found.path, found.kind, found.facts["birth"]) == ("backward", "1", "nan" if spoilt != spoilt else "inf", "hook")
    assert said(found).startswith("backward: a hook on a tensor of layer 1 turns finite gradients into")
    assert "remove the hook" in FIXES[found.fixes[0].kind]


def test_a_backward_hook_of_a_module():
    net = sandwich(nn.Tanh())
    net[2].register_full_backward_hook(lambda module, taken, given: (taken[0] * NAN,))
    found = born(net, data())
    assert (found.where, found.path, found.facts["birth"]) == ("backward", "2", "hook")
    assert said(found).startswith("backward: a backward hook at layer 2 turns finite gradients into NaN")


def test_hooks_that_only_look_are_not_at_fault():
    net = sandwich(Hooked(lambda gradient: gradient), Trap())
    net[3].register_full_backward_hook(lambda module, taken, given: None)
    assert born(net, data()).path == "2"


def test_a_model_compiled_in_its_place():
    net = sandwich(Log())
    net.compile(backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        torch._dynamo.reset()
        found = born(net, data())
    assert found.where == "" and "model.compile()" in said(found)


def test_anomaly_mode_does_not_stop_it():
    net = sandwich(Trap())
    tap = backward(net, data())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anomaly = torch.autograd.detect_anomaly()
    with anomaly:
        found = birthplace(net, tap)
        assert torch.is_anomaly_enabled()
    assert (found.where, found.path) == ("backward", "1")
    tap.close()


def test_the_users_autocast_meets_no_cast_of_ours():
    net = sandwich(Log())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tap = backward(net, data())
        found = birthplace(net, tap)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.fill_(1.0)
        torch.clear_autocast_cache()
        birthplace(net, tap)
        with torch.no_grad():
            net[0].bias.fill_(3.0)
            net[0].weight.fill_(0.0)
        assert net[0](torch.ones(1, 4))[0, 0].item() == 3.0
    assert found.path == "1"
    tap.close()


def test_a_run_with_a_tap_and_replays_is_the_same_run():
    def train(watched: bool) -> list[Any]:
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        tap = LastStep(net)
        losses = []
        if watched:
            tap.open()
        for _ in range(5):
            optimizer.zero_grad()
            loss = squares(net(torch.randn(6, 4)))
            loss.backward()
            if watched:
                birthplace(net, tap)
            optimizer.step()
            tap.forget()
            losses.append(bits(loss))
        tap.close()
        return [losses, [bits(t) for t in net.state_dict().values()], torch.get_rng_state().tolist()]

    assert train(True) == train(False)


def test_the_model_pickles_and_copies_in_between():
    net = sandwich(Log())
    tap = backward(net, data())
    fresh = pickle.loads(pickle.dumps(net))
    copied = copy.deepcopy(net)
    assert bits(fresh[0].weight) == bits(copied[0].weight) == bits(net[0].weight)
    birthplace(net, tap)
    pickle.dumps(net)
    tap.close()


def test_nothing_is_left():
    net, x = sandwich(Log()), data()
    tap = backward(net, x)
    output = tap.passes[0]
    found = birthplace(net, tap)
    tap.forget()
    watched = [weakref.ref(thing) for thing in (net, x, net[0].weight)]
    assert found.trace is not None and output.handles == []
    tap.close()
    del net, x, output
    gc.collect()
    assert [one() for one in watched] == [None, None, None]


def test_no_graph_outlives_the_step():
    net = sandwich(nn.ReLU())
    tap = LastStep(net)
    tap.open()
    output = net(data())
    node = weakref.ref(output)
    squares(output).backward()
    del output
    assert node() is None  # outputs are never held
    assert len(tap.passes) == 1
    tap.forget()
    assert tap.passes == []
    tap.close()


def test_which_calls_are_training_passes():
    net, events = sandwich(nn.ReLU()), []
    tap = LastStep(net, on_forward=lambda: events.append("forward"), on_backward=lambda one: events.append(len(one.gradients)))
    tap.open()
    with torch.no_grad():
        net(data())
    net.eval()(data())
    net[0](data())
    assert not tap.passes
    squares(net.train()(data())).backward()
    assert events == ["forward", 1] and tap.forwards == 1
    tap.off()
    net(data())
    assert tap.forwards == 1 and not tap.is_on
    tap.on()
    for _ in range(KEPT + 2):
        net(data())
    assert len(tap.passes) == KEPT and tap.dropped == 3
    tap.forget()
    tap.hold()
    net(data())
    assert not tap.passes and tap.dropped == 1
    tap.close()
    assert not tap.trouble


def test_gradients_are_there_when_the_backward_pass_has_ended():
    net, seen = sandwich(nn.ReLU()), []
    tap = LastStep(net, on_backward=lambda one: seen.append([p.grad is not None for p in net.parameters()]))
    for _ in range(2):
        backward(net, data(), tap=tap)
    assert seen == [[True] * 4] * 2
    tap.close()


def test_a_pass_that_raises_and_one_that_calls_itself():
    class Selfish(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)

        def forward(self, x: Tensor, depth: int = 2) -> Tensor:
            if depth < 0:
                raise ValueError
            return self.inner(x) if depth == 0 else self(x, depth - 1)

    net = Selfish()
    tap = LastStep(net)
    tap.open()
    with pytest.raises(ValueError):
        net(torch.ones(1, 2), -1)
    net(torch.ones(1, 2)).sum().backward()
    assert tap.forwards == 2 and [one.finished for one in tap.passes] == [False, True]
    assert tap.passes[1].backwards == 1
    tap.close()


def test_a_second_backward_pass_through_one_output_adds_up():
    net = nn.Linear(2, 1)
    tap = LastStep(net)
    tap.open()
    output = net(torch.ones(3, 2))
    (output * 2).sum().backward(retain_graph=True)
    (output * 3).sum().backward()
    assert torch.equal(tap.passes[0].gradients[0], torch.full((3, 1), 5.0))
    tap.close()


def test_large_gradients_are_not_held(monkeypatch):
    monkeypatch.setattr(last_step, "HELD", 8)
    net = sandwich(Root())
    tap = backward(net, data())
    assert tap.passes[0].gradients == {} and tap.passes[0].beyond == {0}
    found = birthplace(net, tap)
    assert found.where == "" and "too large to keep" in said(found)
    tap.close()


def test_without_a_pass():
    net = sandwich(nn.ReLU())
    found = birthplace(net, LastStep(net))
    assert (found.where, found.exact) == ("", False) and "no training pass" in said(found)


def test_a_failure_of_ours_is_told_and_not_raised(monkeypatch):
    net = sandwich(Log())
    tap = backward(net, data())
    monkeypatch.setattr("modlab.watching.replay.NaNInBackward", None)
    before = facts(net)
    found = birthplace(net, tap)
    assert (found.where, found.exact) == ("", False) and "could not be run again: TypeError" in said(found)
    assert facts(net) == before
    tap.close()


def named(net: nn.Module) -> list[tuple[str, Tensor]]:
    return list(net.named_parameters())


def test_the_check_looks_at_early_biases_at_once_and_at_others_in_turn():
    net = sandwich(nn.Linear(8, 8), nn.Linear(8, 8))
    net(data()).sum().backward()
    check = GradientCheck(named(net))
    assert [check.look(step) for step in range(8)] == [None] * 8
    net[1].weight.grad[3, 3] = -INF  # neither an early bias nor the gradient of the outputs
    found = [check.look(step) for step in range(6)]
    assert sum(one is not None for one in found) == 1
    net[0].bias.grad[1] = NAN
    assert check.look(9) == NonFinite(9, "0.bias", "nan")
    net.zero_grad()
    assert check.look(10) is None


def test_the_check_looks_at_the_gradient_of_the_outputs_once():
    net = sandwich(nn.ReLU())
    tap = backward(net, data(), loss=lambda y: (y * 0).sqrt().sum())
    check = GradientCheck(named(net))
    assert check.look(4, tap.passes, parameters=False) == NonFinite(4, "", "nan")
    assert check.look(5, tap.passes, parameters=False) is None
    tap.close()


def test_a_nan_that_comes_to_no_parameter_stops_no_step():
    """A gradient that is asked for aside, as a penalty does."""
    torch.manual_seed(0)
    net, x = sandwich(nn.ReLU()), data().requires_grad_()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with modlab.watch(net, optimizer, on_nan="stop", budget=1.0) as w:
        for _ in range(3):
            torch.autograd.grad((net(x) * 0).sqrt().sum(), x)
            optimizer.zero_grad()
            net(data()).square().mean().backward()
            optimizer.step()
    assert w.record.steps == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
def test_what_is_finite(dtype):
    assert kind_of(torch.ones(9, dtype=dtype)) == ""
    assert kind_of(torch.tensor([1.0, NAN, INF], dtype=dtype)) == "nan"
    assert kind_of(torch.tensor([1.0, -INF], dtype=dtype)) == "inf"
    assert kind_of(torch.tensor([INF, -INF], dtype=dtype)) == "inf"
    assert kind_of(torch.zeros(0, dtype=dtype)) == ""
    largest = torch.finfo(dtype).max
    assert kind_of(torch.tensor([largest, largest, largest], dtype=dtype)) == ""  # their sum is infinite, and none of them


@pytest.mark.parametrize("case", [case for case in CALLS if not case.fails and case.id != "resnet18"], ids=str)
def test_every_kind_of_model_is_as_it_was_after_a_replay(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of deprecated kinds of modules
        torch._dynamo.reset()
        model, args, kwargs = case.build()
        tap = LastStep(model)
        tap.open()
        outputs = [thing for _, thing, _ in leaves(model(*args, **kwargs)) if isinstance(thing, Tensor)]
        outputs = [thing for thing in outputs if thing.requires_grad and not thing.is_meta]
        if outputs:
            sum((one.values() if one.is_nested else one).abs().sum() for one in outputs).backward()
        del outputs
        before = every(model, args, kwargs)
        birthplace(model, tap)
        assert every(model, args, kwargs) == before
        tap.close()
        assert not tap.trouble


def every(model: nn.Module, args: Any, kwargs: Any) -> Any:
    tensors = [thing for _, thing, _ in leaves((args, kwargs)) if isinstance(thing, Tensor)]
    inputs = [(trace_bits(thing), None if thing.is_inference() else thing._version) for thing in tensors]
    grads = [id(p.grad) if p.is_leaf else None for p in model.parameters()]
    return inputs, grads, facts_of(model), torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


@pytest.mark.gpu
def test_on_a_gpu_nobody_waits():
    net = sandwich(Root()).cuda()
    tap = backward(net, data().cuda())
    check = GradientCheck(named(net))
    assert check.look(7, tap.passes) is None
    found = check.settle()
    assert found is not None and (found.step, found.kind) == (7, "inf")
    assert GradientCheck(named(net), hold=True).look(8) is not None
    before = facts(net)
    birth = birthplace(net, tap)
    assert (birth.where, birth.path) == ("backward", "1")
    assert facts(net) == before
    tap.close()
