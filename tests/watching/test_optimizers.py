"""Whose steps are the steps: several optimizers, wrappers, compiled models, parameters of one's own. The verdict is of what was trained."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import SGD, Adam, Optimizer

import modlab
from modlab.records.loss import losses
from modlab.records.watch import UPDATE
from modlab.results.watch import Watch
from tests import agreement

X, Y = torch.randn(32, 6, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 3
STEPS = 30


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def updates(w: Watch) -> dict[str, float]:
    """Of each parameter, the greatest update that was measured, as a share of it."""
    history = w.record.history
    rows = [(row, one.path) for row, one in enumerate(history.series) if one.role == UPDATE]
    found = {path: float(history.norm(row)[~torch.from_numpy(history.norm(row)).isnan().numpy()].max(initial=-1)) for row, path in rows}
    return {path: norm for path, norm in found.items() if norm >= 0}


def step(o: Optimizer, loss: Tensor) -> None:
    o.zero_grad()
    loss.backward()
    o.step()


def gan(names: tuple[str, str] = ("d", "g")) -> Watch:
    torch.manual_seed(0)
    g, d = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6)), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    of = {"d": Adam(d.parameters(), 1e-3), "g": Adam(g.parameters(), 1e-3)}
    with modlab.watch(nn.ModuleDict({"G": g, "D": d}), [of[name] for name in names], budget=1.0) as w:
        for _ in range(STEPS):
            fake = g(torch.randn(32, 4))
            loss_d = F.softplus(-d(X)).mean() + F.softplus(d(fake.detach())).mean()
            step(of["d"], loss_d)
            loss_g = F.softplus(-d(fake)).mean()
            step(of["g"], loss_g)
    return w


def gan_the_other_way() -> Watch:
    return gan(("g", "d"))


def two_that_nobody_named() -> Watch:
    m = net()
    one, other = SGD(m[0].parameters(), 0.1), Adam(m[2].parameters(), 0.01)
    with modlab.watch(m, budget=1.0) as w:
        for _ in range(STEPS):
            m.zero_grad()
            F.cross_entropy(m(X), Y).backward()
            one.step()
            other.step()
    return w


def one_named_of_two() -> Watch:
    m = net()
    one, other = SGD(m[0].parameters(), 0.1), Adam(m[2].parameters(), 0.01)
    with modlab.watch(m, other, budget=1.0) as w:
        for _ in range(STEPS):
            m.zero_grad()
            F.cross_entropy(m(X), Y).backward()
            one.step()
            other.step()
    return w


def in_backward() -> Watch:
    m = net()
    own = {p: SGD([p], 0.1) for p in m.parameters()}

    def apply(p: Any) -> None:
        own[p].step()
        own[p].zero_grad()

    for p in m.parameters():
        p.register_post_accumulate_grad_hook(apply)
    with modlab.watch(m, budget=1.0) as w:
        for _ in range(STEPS):
            F.cross_entropy(m(X), Y).backward()
    return w


def in_turns() -> Watch:
    a, b = net(), net()
    pairs = [(one, SGD(one.parameters(), 0.1)) for one in (a, b)]
    with modlab.watch(nn.ModuleList([a, b]), [o for _, o in pairs], budget=1.0) as w:
        for _ in range(STEPS):
            for m, o in pairs:
                step(o, F.cross_entropy(m(X), Y))
    return w


def replaced(named: bool = True) -> Watch:
    """The first one is gone."""
    m = net()
    o: Optimizer = Adam(m.parameters(), 1e-3)
    with modlab.watch(m, o if named else None, budget=1.0) as w:
        for i in range(STEPS):
            if i == 10:
                o = SGD(m.parameters(), 0.1)
            step(o, F.cross_entropy(m(X), Y))
    return w


def replaced_unnamed() -> Watch:
    return replaced(False)


def put_aside() -> Watch:
    """The first one is kept, and used no more."""
    m = net()
    first, second = Adam(m.parameters(), 1e-3), SGD(m.parameters(), 0.1)
    with modlab.watch(m, first, budget=1.0) as w:
        for i in range(STEPS):
            step(first if i < 10 else second, F.cross_entropy(m(X), Y))
    return w


class Wrapper:
    """As trainers make them: the optimizer is inside, and this is no subclass."""

    def __init__(self, inner: Any) -> None:
        self.optimizer = inner
        self.param_groups, self.state = inner.param_groups, inner.state

    def step(self) -> None:
        self.optimizer.step()

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()


def wrapped() -> Watch:
    m = net()
    o: Any = Wrapper(Wrapper(SGD(m.parameters(), 0.1)))
    with modlab.watch(m, o, budget=1.0) as w:
        for _ in range(STEPS):
            step(o, F.cross_entropy(m(X), Y))
    return w


def fused() -> Watch:
    m = net()
    o = Adam(m.parameters(), 1e-2, fused=True)
    with modlab.watch(m, o, budget=1.0) as w:
        for _ in range(STEPS):
            step(o, F.cross_entropy(m(X), Y))
    return w


def sharpness_aware() -> Watch:
    """The loss is that at the weights, not that beside them."""
    m = net()
    o = SGD(m.parameters(), 0.1)
    with modlab.watch(m, o, budget=1.0) as w:
        for _ in range(STEPS):
            o.zero_grad()
            loss = F.cross_entropy(m(X), Y)
            loss.backward()
            with torch.no_grad():
                aside = [0.05 * p.grad for p in m.parameters()]  # type: ignore[operator]
                for p, by in zip(m.parameters(), aside, strict=True):
                    p += by
            o.zero_grad()
            F.cross_entropy(m(X), Y).backward()
            with torch.no_grad():
                for p, by in zip(m.parameters(), aside, strict=True):
                    p -= by
            o.step()
    return w


def meta(tasks: int = 1) -> Watch:
    m = net()
    o = Adam(m.parameters(), 1e-2)
    with modlab.watch(m, o, budget=1.0) as w:
        for _ in range(STEPS):
            mine, losses = dict(m.named_parameters()), []
            for _ in range(tasks):
                inner = F.cross_entropy(functional_call(m, mine, (X[:16],)), Y[:16])
                slopes = torch.autograd.grad(inner, [*mine.values()], create_graph=True)
                fast = {name: p - 0.1 * slope for (name, p), slope in zip(mine.items(), slopes, strict=True)}
                losses.append(F.cross_entropy(functional_call(m, fast, (X[16:],)), Y[16:]))
            step(o, torch.stack(losses).mean())
    return w


def meta_of_four() -> Watch:
    return meta(4)


LOOPS: list[tuple[Callable[[], Watch], str, set[str]]] = [
    (gan, "Adam", {"loss_d", "loss_g"}),
    (gan_the_other_way, "Adam", {"loss_d", "loss_g"}),
    (two_that_nobody_named, "SGD", {"loss"}),
    (one_named_of_two, "Adam", {"loss"}),
    (in_backward, "SGD", {"loss"}),
    (in_turns, "SGD", {"loss"}),
    (replaced, "SGD", {"loss"}),
    (replaced_unnamed, "SGD", {"loss"}),
    (put_aside, "SGD", {"loss"}),
    (wrapped, "SGD", {"loss"}),
    (fused, "Adam", {"loss"}),
    (sharpness_aware, "SGD", {"loss"}),
    (meta, "Adam", {"loss"}),
    (meta_of_four, "Adam", {"loss"}),
]


@pytest.mark.parametrize(("loop", "optimizer", "names"), LOOPS, ids=[loop.__name__ for loop, _, _ in LOOPS])
def test_what_an_optimizer_steps_is_judged_by_its_steps(loop: Callable[[], Watch], optimizer: str, names: set[str]) -> None:
    w = loop()
    assert not w.record.error and w.record.optimizer == optimizer and w.record.steps == STEPS
    checks = {check.name: (check.state, check.text) for check in w.verdict.checks}
    every = len(updates(w))
    assert every in (4, 8) and all(norm > 0 for norm in updates(w).values())
    for name in ("every trained parameter gets a gradient", "the optimizer owns it", "it moves"):
        assert checks[name] == ("passed", f"{every} of {every}")
    assert checks["by enough for its dtype"] == ("passed", "all that have a gradient do")
    assert {one.name for one in losses(w.record)} == names
    assert not w.alerts


class Sharp(Optimizer):
    """Two phases, of which the second has a step of another optimizer made."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})
        self.base = SGD(self.param_groups, 0.1)

    @torch.no_grad()
    def ascend(self) -> None:
        for p in self.param_groups[0]["params"]:
            self.state[p]["by"] = by = 0.05 * p.grad
            p += by

    @torch.no_grad()
    def descend(self) -> None:
        for p in self.param_groups[0]["params"]:
            p -= self.state[p]["by"]
        self.base.step()


def of_two_phases() -> Watch:
    m = net()
    o = Sharp(m.parameters())
    with modlab.watch(m, o, budget=1.0) as w:
        for _ in range(60):
            for move in (o.ascend, o.descend):
                F.cross_entropy(m(X), Y).backward()
                move()
                o.zero_grad()
    return w


def by_turns(*orders: str, named: str = "", same: bool = False) -> Watch:
    """Each letter is a step of an optimizer."""
    m = net()
    made = {name: SGD((m if same else m[place]).parameters(), 0.1) for name, place in (("a", 0), ("b", 2))}
    with modlab.watch(m, [made[name] for name in named], budget=1.0) as w:
        for name in "".join(orders):
            m.zero_grad()
            F.cross_entropy(m(X), Y).backward()
            made[name].step()
    return w


FIVES = "aaaaabbbbb" * 6
TURNS: list[tuple[str, Callable[[], Watch], int, int]] = [
    ("five each", lambda: by_turns(FIVES, named="ab"), 60, 0),
    ("five each, unnamed", lambda: by_turns(FIVES), 60, 0),
    ("five each, one named", lambda: by_turns(FIVES, named="a"), 60, 0),
    ("long ones", lambda: by_turns("a" * 30, "b" * 30), 60, 0),
    ("one each", lambda: by_turns("ab" * 30, named="ab"), 30, 30),
    ("a critic", lambda: by_turns("bbbbba" * 10, named="ab"), 10, 50),
    ("a critic that counts", lambda: by_turns("bbbbba" * 10, named="ba"), 50, 10),
    ("once, then another", lambda: by_turns("a", "b" * 40, named="ab"), 41, 0),
    ("of the same parameters", lambda: by_turns(FIVES, named="ab", same=True), 60, 0),
    ("two phases", of_two_phases, 60, 0),
]


@pytest.mark.parametrize(("loop", "counted", "beside"), [rest for _, *rest in TURNS], ids=[name for name, *_ in TURNS])
def test_steps_are_counted_and_those_that_are_not_are_told(loop: Callable[[], Watch], counted: int, beside: int) -> None:
    w = loop()
    told = [one.facts["steps"] for one in w.findings if one.kind == "steps beside"]
    assert (w.record.steps, told) == (counted, [beside] if beside else [])
    assert w.verdict.ok and all(alert.over for alert in w.alerts) and w.headline.startswith("No problem found")
    assert next(check.text for check in w.verdict.checks if check.name == "by enough for its dtype") == "all that have a gradient do"


class SAM(Optimizer):
    """Two passes a step, as it is usually written: the weights are moved to where the loss is greatest nearby, and back."""

    def __init__(self, model: nn.Module) -> None:
        self.base = SGD(model.parameters(), lr=0.05)
        super().__init__(self.base.param_groups, {})
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self) -> None:
        for p in self.param_groups[0]["params"]:
            self.state[p] = 0.05 * p.grad
            p.add_(self.state[p])
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for p in self.param_groups[0]["params"]:
            p.sub_(self.state[p])
        self.base.step()
        self.zero_grad()


@pytest.mark.parametrize("given", ["sam", "base", "none"])
@pytest.mark.parametrize("budget", [0.05, 1.0])
def test_two_passes_of_sam_are_one_step(given: str, budget: float) -> None:
    m = net()
    sam = SAM(m)
    with modlab.watch(m, {"sam": sam, "base": sam.base, "none": None}[given], budget=budget) as w:
        for _ in range(STEPS):
            F.cross_entropy(m(X), Y).backward()
            sam.first_step()
            F.cross_entropy(m(X), Y).backward()
            sam.second_step()
    assert w.record.steps == STEPS and w.record.samples <= STEPS and w.verdict.ok
    assert all(one.count <= STEPS and one.passes == 1 for one in losses(w.record))
    agreement.check(w.record)


def changed(into: Callable[[nn.Sequential, Optimizer], object], zero_at_end: bool = False) -> Watch:
    m = net()
    o = SGD(m.parameters(), lr=0.05)
    with modlab.watch(m, o, budget=1.0) as w:
        for i in range(STEPS):
            if i == STEPS // 2:
                into(m, o)
            step(o, F.cross_entropy(m(X), Y))
            if zero_at_end:
                m.zero_grad()
    return w


def another_layer(m: nn.Sequential, o: Optimizer) -> None:
    m[0] = nn.Linear(6, 8)


def another_layer_that_is_trained(m: nn.Sequential, o: Optimizer) -> None:
    another_layer(m, o)
    o.add_param_group({"params": m[0].parameters()})


def one_that_wraps_it(m: nn.Sequential, o: Optimizer) -> None:
    m[0] = nn.Sequential(m[0])


def a_mean_of_the_weights(m: nn.Sequential, o: Optimizer) -> None:
    m[1].mean = copy.deepcopy(m[0])


@pytest.mark.parametrize("zero_at_end", [False, True])
def test_a_module_that_came_later_and_that_no_optimizer_holds_is_broken(zero_at_end: bool) -> None:
    w = changed(another_layer, zero_at_end)
    check = w.verdict.broken
    assert check is not None and not w.verdict.ok and (check.name, check.path) == ("the optimizer owns it", "0.weight")
    assert "0.weight and 0.bias joined the model during the watch, but SGD does not hold them" in w.headline


@pytest.mark.parametrize("into", [another_layer_that_is_trained, one_that_wraps_it, a_mean_of_the_weights])
def test_a_module_that_came_later_and_is_trained_or_only_kept_is_not(into: Callable[[nn.Sequential, Optimizer], object]) -> None:
    w = changed(into)
    assert w.verdict.ok and [one.kind for one in w.findings] == ["came later"]


def thawed(first: int, *, held: bool) -> Watch:
    """The first layer is trained from a step on in which nobody looks."""
    torch.manual_seed(0)
    m = net()
    m[0].requires_grad_(False)
    o = SGD([one for one in m.parameters() if one.requires_grad], lr=0.05)
    with modlab.watch(m, o) as w:
        for i in range(400):
            if i == first:
                m[0].requires_grad_(True)
                if held:
                    o.add_param_group({"params": m[0].parameters()})
            step(o, F.cross_entropy(m(X), Y))
    return w


def test_what_is_trained_since_the_last_look_and_held_by_nobody_is_told() -> None:
    w = thawed(398, held=False)
    assert not w.verdict.ok and "not in the optimizer" in [one.kind for one in w.findings]
    check = next(one for one in w.verdict.checks if one.name == "the optimizer owns it")
    assert check.state == "broken" and check.path == "0.weight" and "had none when last looked at, and SGD does not hold them" in check.text
    w = thawed(398, held=True)
    gets = next(one for one in w.verdict.checks if one.name == "every trained parameter gets a gradient")
    assert w.verdict.ok and gets.text == "2 of 2; 2 more require a gradient now, and did not when last looked at"


def compiled_before(m: nn.Module) -> Callable[[], tuple[Any, Any]]:
    c = torch.compile(m, backend="aot_eager")
    return lambda: (c, m)


def compiled_later(m: nn.Module) -> Callable[[], tuple[Any, Any]]:
    return lambda: (torch.compile(m, backend="aot_eager"), m)


def compiled_and_watched(m: nn.Module) -> Callable[[], tuple[Any, Any]]:
    c = torch.compile(m, backend="aot_eager")
    return lambda: (c, c)


@pytest.mark.parametrize("compiled", [compiled_before, compiled_later, compiled_and_watched], ids=lambda one: one.__name__)
def test_a_compiled_model_is_watched_as_the_model(compiled: Callable[[nn.Module], Any]) -> None:
    """It is called in its place: no warning, and nothing is compiled anew."""
    from torch._dynamo import reset
    from torch._dynamo.utils import counters

    reset()
    counters.clear()
    m, seen = net(), []
    o = SGD(m.parameters(), 0.1)
    made = compiled(m)
    before = [*warnings.filters]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with modlab.watch(made()[1] if compiled is compiled_and_watched else m, o) as w:
            c, _ = made()
            for _ in range(STEPS):
                loss = F.cross_entropy(c(X), Y)
                step(o, loss)
                seen.append(loss.item())
    assert warnings.filters == before
    assert counters["stats"]["unique_graphs"] == 1
    assert w.record.steps == STEPS and [check.state for check in w.record.verdict.checks] == ["passed"] * 8
    (loss_curve,) = losses(w.record)
    assert loss_curve.mean[0] == pytest.approx(seen[0])
    other = net()
    plain = SGD(other.parameters(), 0.1)
    c = torch.compile(other, backend="aot_eager")
    for _ in range(STEPS):
        step(plain, F.cross_entropy(c(X), Y))
    assert all(torch.equal(a, b) for a, b in zip(m.parameters(), other.parameters(), strict=True))


def test_a_step_that_is_compiled_whole_is_said_to_be_unseen() -> None:
    m = net()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3))

    model = Model()
    with modlab.watch(model) as w, torch.no_grad():
        model.weight += 1
    assert "no training step of Model was seen" in str(w) and "the weights changed" in str(w)
    with modlab.watch(m) as w:
        pass
    assert "the weights changed" not in str(w)


@pytest.mark.parametrize("compiler", [None, False], ids=["no_compiler", "a_compiler_listens"])
def test_a_container_made_in_the_call_is_held(compiler: bool | None) -> None:
    """Where a compiler listens to calls, each holds one reference more."""
    from torch._dynamo.eval_frame import set_eval_frame

    a, b = net(), net()
    kept = nn.ModuleList([net()])
    set_eval_frame(compiler)
    try:
        w = modlab.watch(nn.ModuleList([a, b]), budget=1.0)
        other = modlab.watch(kept, budget=1.0)
    finally:
        set_eval_frame(None)
    assert w.running and other.running
    del kept
    gc.collect()
    assert not other.running  # that one was somebody else's
    w.close()
    assert w.record.modules == 9


@pytest.mark.parametrize(
    ("make", "every", "told"),
    [
        (lambda p: torch.optim.Adam(p, 0.01), 1, True),
        (lambda p: torch.optim.SGD(p, 0.01, momentum=0.9), 1, True),
        (lambda p: torch.optim.SGD(p, 0.01), 1, False),  # it remembers nothing
        (lambda p: torch.optim.Adam(p, 0.01), 5, False),  # one for each task
        (lambda p: torch.optim.Adam(p, 0.01), 60, False),
    ],
)
def test_an_optimizer_that_is_made_anew_for_each_step(make, every, told):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(64, 4)
    with modlab.watch(model) as w:
        for step in range(60):
            if step % every == 0:
                optimizer = make(model.parameters())
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
            optimizer.step()
    assert [one.severity for one in w.verdict.findings if one.kind == "optimizer made anew"] == ["careful"] * told
    assert w.verdict.exit_code == 2 * told
