"""``modlab.testing.assert_learns``: what it asserts, what its message says, and what it leaves as it was; and a verdict's exit code."""

import copy
import re
import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import modlab
from modlab.errors import BatchError, LazyModelError, NotAModuleError, NotAnOptimizerError, QuestionError
from modlab.records import watch
from modlab.records.finding import Finding
from modlab.records.watch import Check
from modlab.testing import BY_WATCH, IN_THE_LOOP, assert_learns
from modlab.watching.verdict import verdict
from modlab.wording.fixes import FIXES

PAGE = Path(__file__).parent.parent / "docs" / "assert.md"
LOSS = nn.CrossEntropyLoss()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def net():
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 2))


def batch():
    inputs = torch.randn(64, 4)
    return inputs, (inputs.sum(1) + torch.randn(64) > 0).long()


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def gone(model):
    """Of its first layer nothing reaches the loss."""
    return nn.Sequential(*model[:4], Cut(), model[4])


def frozen(model):
    """Most of it, although the optimizer holds all."""
    model[0].requires_grad_(False)
    return model


class Cut(nn.Module):
    def forward(self, x):
        return x.detach()


# ---- the exit code


def check(state):
    if state == "owned":
        return Check("owned", name="the optimizer owns it", state="passed")
    severity = state if state in ("broken", "careful") else "note"
    return Check("moves", severity=severity, name="it moves", state=state)


def found(severity):
    return Finding("dead units", "l0", severity=severity)


@pytest.mark.parametrize(
    ("checks", "findings", "alerts", "cares", "code"),
    [
        ("passed", "", "", "", 0),
        ("passed", "note", "", "", 0),
        ("not seen", "", "", "", 3),
        ("", "", "", "", 3),
        ("owned", "", "", "", 3),
        ("careful", "", "", "", 2),
        ("passed", "careful", "", "", 2),
        ("passed", "", "", "starving", 2),
        ("not seen", "careful", "", "", 3),
        ("broken", "", "", "", 1),
        ("careful", "broken", "", "", 1),
        ("passed", "", "nan", "", 1),
        ("not seen", "broken", "", "", 1),
    ],
)
def test_the_exit_code_is_that_of_the_worst(checks, findings, alerts, cares, code):
    made = watch.Verdict(
        tuple(check(one) for one in [checks] if one),
        tuple(found(one) for one in [findings] if one),
        *(tuple(one for one in [kinds] if one) for kinds in (alerts, cares)),
    )
    assert (made.exit_code, made.ok) == (code, code in (0, 2))


def test_the_page_says_that_notes_do_not_count():
    assert "| 0 | training was seen, and nothing was found but notes, which do not count" in PAGE.read_text(encoding="utf-8")


def test_a_result_has_the_code_of_its_record():
    model = net()
    with modlab.watch(model, sgd(model)) as w:
        model(batch()[0])
    assert (w.verdict.exit_code, w.verdict.ok) == (3, False)


def test_a_run_that_ends_in_an_error_asks_for_care():
    model = net()
    optimizer = sgd(model)
    with pytest.raises(KeyError), modlab.watch(model, optimizer) as w:
        for _ in range(40):
            optimizer.zero_grad()
            LOSS(model(batch()[0]), batch()[1]).backward()
            optimizer.step()
        raise KeyError("no such file\nhere")
    assert (w.verdict.exit_code, w.verdict.ok) == (2, True)
    assert str(w.verdict).splitlines()[-1].split(maxsplit=3) == [
        "careful",
        "the",
        "run",
        "ended in an error: KeyError: 'no such file\\nhere'",
    ]


@pytest.mark.parametrize(
    "model", [net().requires_grad_(False), nn.ReLU(), nn.BatchNorm1d(4, affine=False)], ids=lambda one: type(one).__name__
)
def test_where_nothing_is_trained_nothing_is_found(model):
    with modlab.watch(model) as w:
        model(torch.randn(3, 4))
    assert w.verdict.exit_code == 3 and all(one.severity == "note" for one in w.verdict.findings)


def test_alerts_that_hold_count_as_care_and_those_that_are_over_do_not():
    model = net()
    with modlab.watch(model, sgd(model)) as w:
        pass
    held, over = (watch.Alert("starving", "0", severity="careful", over=one) for one in (False, True))
    assert verdict(replace(w.record, alerts=(held, over))).cares == ("starving",)
    assert verdict(replace(w.record, alerts=(over,))).cares == ()


@pytest.mark.parametrize("place", ["loader", "sampler", "batch", "loss", "numpy"])
def test_a_generator_of_ones_own_is_put_back(place):
    generator, numbers = torch.Generator().manual_seed(5), np.random.default_rng(5)
    inputs, target = batch()
    data = TensorDataset(inputs, target)
    many = {
        "loader": DataLoader(data, 16, shuffle=True, generator=generator),
        "sampler": DataLoader(data, 16, sampler=RandomSampler(data, generator=generator)),
        "batch": lambda step: (inputs + 0.01 * torch.randn(inputs.shape, generator=generator), target),
        "numpy": lambda step: (inputs + 0.01 * float(numbers.normal()), target),
    }
    loss = LOSS if place != "loss" else lambda output, target: LOSS(output + 0.01 * torch.randn(output.shape, generator=generator), target)
    model, before = net(), (generator.get_state(), repr(numbers.bit_generator.state))
    assert_learns(model, sgd(model), batch=many.get(place, (inputs, target)), loss=loss, steps=60)
    assert torch.equal(generator.get_state(), before[0]) and repr(numbers.bit_generator.state) == before[1]


# ---- what it asserts


def test_what_learns_passes_and_the_watch_comes_back():
    model = net()
    w = assert_learns(model, sgd(model), batch=batch(), loss=LOSS, steps=40)
    assert (w.record.steps, w.record.samples, w.running, w.verdict.exit_code) == (40, 40, False, 0)


FAILS = {
    "nothing moves": (lambda m: m, lambda m: sgd(m, 0.0), {}, "does not learn, as 30 steps showed", "learning rate is 0"),
    "it bursts": (lambda m: nn.Sequential(m[0], m[4]), lambda m: sgd(m, 1e30), {}, "does not learn", "loss is sensible"),
    "a part has no gradient": (gone, sgd, {}, "learns, but something is broken, as 30 steps showed", "0.weight"),
    "a part is frozen": (frozen, sgd, {}, "learns, but something is broken", "requires_grad=False"),
    "no trend": (lambda m: m, lambda m: sgd(m, 1e-7), {}, "does not learn", "no trend"),
    "too few steps": (lambda m: m, sgd, {"steps": 3}, "3 steps of Sequential do not tell whether it learns", "steps=20"),
    "one step": (lambda m: m, sgd, {"steps": 1}, "1 step of Sequential does not tell whether it learns", "too early"),
    "not low enough": (lambda m: m, sgd, {"below": 1e-6}, "not below 1e-06", "The loss falls"),
    "all of it is frozen": (
        lambda m: m.requires_grad_(False),
        sgd,
        {},
        "cannot learn: none of its 6 parameters requires a gradient",
        "requires_grad_()",
    ),
    "no graph": (lambda m: nn.Sequential(m, Cut()), sgd, {}, "cannot learn: its loss needs no gradient", "modlab.diagnose("),
}


@pytest.mark.parametrize("case", FAILS)
def test_what_does_not_learn_fails_with_the_verdict(case):
    change, optimizer, options, begins, says = FAILS[case]
    model = change(net())
    with pytest.raises(AssertionError) as failure:
        assert_learns(model, optimizer(model), batch=batch(), loss=LOSS, **{"steps": 30, **options})
    first = str(failure.value).partition("\n")[0]
    assert begins in first and says in str(failure.value)


def test_a_loop_of_its_own_lets_no_gradients_add_up():
    with pytest.raises(AssertionError) as failure:
        assert_learns(net(), sgd(net()), batch=batch(), loss=LOSS, steps=30)
    assert "belongs to another model" in str(failure.value) and "not zeroed" not in str(failure.value)


def test_the_message_has_place_step_and_fix_and_leaves_out_what_is_well():
    model = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 2))
    with pytest.raises(AssertionError) as failure:
        assert_learns(model, sgd(model, 1e30), batch=batch(), loss=LOSS, steps=30)
    said = str(failure.value)
    assert re.search(r"step \d+", said) and "Fix: " in said and "BROKEN" in said and not re.search(r"^ok ", said, re.M)


def test_that_there_is_one_batch_is_no_finding_of_a_batch_that_was_given():
    inputs, target = (part[:16] for part in batch())
    said = []
    for source in ((inputs, target), lambda _: (inputs, target)):
        model = net()
        w = assert_learns(model, sgd(model), batch=source, loss=LOSS)
        said.append("same batch" in [one.kind for one in w.verdict.findings])
    assert said == [False, True]


def test_a_batch_of_nothing_is_not_called_broadcast():
    model, inputs = net().eval(), torch.ones(0, 4)
    optimizer = sgd(model)
    with modlab.watch(model, optimizer) as w:
        for _ in range(20):
            optimizer.zero_grad()
            nn.MSELoss()(model(inputs), torch.ones(0, 2)).backward()
            optimizer.step()
    assert "the loss is sensible" in str(w) and "broadcast" not in str(w)


@pytest.mark.parametrize("case", ["nothing moves", "it bursts", "no trend"])
def test_what_the_message_tells_to_run_needs_no_watch(case):
    change, optimizer, *_ = FAILS[case]
    model = change(net())
    with pytest.raises(AssertionError) as failure:
        assert_learns(model, optimizer(model), batch=batch(), loss=LOSS, steps=30)
    said = str(failure.value)
    assert not re.search(r"\bw\.|on_nan", said) and ("modlab.diagnose(model, optimizer, batch=" in said) is (case != "it bursts")


def test_each_remedy_that_needs_the_watch_is_known():
    told = [kind for kind, words in FIXES.items() if isinstance(words, str) and re.search(r"\bw\.|modlab\.watch\(", words)]
    assert {*told} == BY_WATCH | IN_THE_LOOP


def test_nothing_is_printed(capsys):
    model = net()
    assert_learns(model, sgd(model), batch=batch(), loss=LOSS, steps=30)
    assert capsys.readouterr() == ("", "")


# ---- batches


def pairs(count=3):
    return [batch() for _ in range(count)]


SOURCES = {
    "a pair": batch,
    "a list of two": lambda: [*batch()],
    "three pairs": pairs,
    "a loader": lambda: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*batch()), batch_size=16, shuffle=True),
    "a function": lambda: pairs(30).__getitem__,
    "a generator that is long enough": lambda: (one for one in pairs() * 10),
}


@pytest.mark.parametrize("source", SOURCES)
def test_batches_come_as(source):
    model = net()
    assert assert_learns(model, sgd(model), batch=SOURCES[source](), loss=LOSS, steps=30).record.steps == 30


def test_a_number_of_steps_is_of_any_integer_type():
    model = net()
    assert assert_learns(model, sgd(model), batch=batch(), loss=LOSS, steps=np.int64(30)).record.steps == 30
    for steps in (True, 2.5, np.int64(0), "30"):
        with pytest.raises(QuestionError, match="takes a whole number of at least 1"):
            assert_learns(model, sgd(model), batch=batch(), loss=LOSS, steps=steps)


def test_inputs_by_position_and_by_name():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.l0 = nn.Linear(4, 2)

        def forward(self, x, scale):
            return self.l0(x * scale)

    inputs, target = batch()
    for given in ((inputs, 1.0), {"scale": 1.0, "x": inputs}):
        model = Two()
        assert_learns(model, sgd(model), batch=(given, target), loss=LOSS, steps=30)


def test_a_model_that_changes_its_input_gets_a_fresh_copy_each_time():
    class Doubles(nn.Linear):
        def forward(self, x):
            return super().forward(x.mul_(2))

    model, (inputs, target) = Doubles(4, 2), batch()
    before = inputs.clone()
    assert_learns(model, sgd(model, 0.01), batch=(inputs, target), loss=LOSS, steps=30)
    assert torch.equal(inputs, before)


def test_several_optimizers_all_step():
    model = net()
    both = [sgd(model[0], 0.01), torch.optim.Adam(model[1:].parameters())]
    assert_learns(model, both, batch=batch(), loss=LOSS, steps=40)


# ---- what it leaves

OPTIMIZERS = {
    "SGD": sgd,
    "Adam": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01),
    "LBFGS": lambda model: torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3),
}


def bits(model, optimizer):
    """Everything that a training changes, as plain data."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = [None if one.grad is None else one.grad.clone() for one in model.parameters()]
    return [state, gradients, copy.deepcopy(optimizer.state_dict()), torch.get_rng_state(), model.training]


def assert_same(found, before):
    """The same nest, bit for bit."""
    if isinstance(before, torch.Tensor):
        assert torch.equal(found, before)
    elif isinstance(before, dict):
        assert found.keys() == before.keys()
        assert_same([*found.values()], [*before.values()])
    elif isinstance(before, (list, tuple)):
        assert len(found) == len(before)
        for pair in zip(found, before, strict=True):
            assert_same(*pair)
    else:
        assert found == before


def trained(model, optimizer, steps):
    inputs, target = batch()

    def closure():
        optimizer.zero_grad()
        loss = LOSS(model(inputs), target)
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 2], ids=["fresh", "trained before"])
def test_everything_is_put_back(name, steps):
    model = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 2))
    optimizer = OPTIMIZERS[name](model)
    trained(model, optimizer, steps)
    given = batch()
    before = bits(model, optimizer)
    assert_learns(model, optimizer, batch=given, loss=LOSS, steps=60 if name == "LBFGS" else 30)
    assert_same(bits(model, optimizer), before)


def test_a_failure_puts_back_too():
    model = net()
    optimizer = sgd(model, 1e30)
    given = batch()
    before = bits(model, optimizer)
    with pytest.raises(AssertionError):
        assert_learns(model, optimizer, batch=given, loss=LOSS, steps=30)
    assert_same(bits(model, optimizer), before)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_kept_it_is_the_model_that_the_same_loop_gives(name):
    model, given = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 2)), batch()
    twin = copy.deepcopy(model)
    state = torch.get_rng_state()
    assert_learns(model, OPTIMIZERS[name](model), batch=given, loss=LOSS, steps=12, keep=True)
    torch.set_rng_state(state)
    optimizer = OPTIMIZERS[name](twin)

    def closure():
        optimizer.zero_grad()
        loss = LOSS(twin(given[0]), given[1])
        loss.backward()
        return loss

    for _ in range(12):
        optimizer.step(closure)
    assert_same(model.state_dict(), twin.state_dict())


# ---- wrong arguments

WRONG = {
    "no module": ({"model": 3}, NotAModuleError, "assert_learns(model, optimizer, batch=(inputs, target), loss=loss)"),
    "no optimizer": ({"optimizer": None}, BatchError, "got no optimizer"),
    "parameters": ({"optimizer": [torch.zeros(1)]}, NotAnOptimizerError, "needs a torch.optim.Optimizer"),
    "no batch": ({"batch": None}, BatchError, "got no batch="),
    "a tensor": ({"batch": torch.zeros(4)}, BatchError, "batch= got a Tensor, but needs a pair"),
    "tensors": ({"batch": [torch.zeros(4)] * 3}, BatchError, "batch= got a list of 3, but needs a pair"),
    "a batch of three": ({"batch": [(torch.zeros(4),) * 3] * 3}, BatchError, "batch= gave a tuple of 3, but each batch must be a pair"),
    "two pairs": ({"batch": [batch(), batch()]}, BatchError, "batch= got two pairs, which are one batch"),
    "no sample": ({"batch": (torch.zeros(0, 4), torch.zeros(0))}, BatchError, "shape (0, 4), which hold no sample"),
    "a function of nothing": ({"batch": lambda: batch()}, BatchError, "takes nothing, but it is called with the number of the step"),
    "nothing from a function": ({"batch": lambda step: None}, BatchError, "batch= gave None"),
    "a loss of one": ({"loss": lambda output: output.mean()}, BatchError, "takes output, but it is called with output and target"),
    "a dict": ({"batch": {"x": 1}}, BatchError, "batch= got a dict of 1"),
    "too few": ({"batch": iter([batch()])}, BatchError, "batch= gave 1 batch, and cannot be read again, but steps=100"),
    "none at all": ({"batch": []}, BatchError, "batch= gave no batch at all"),
    "no loss": ({"loss": None}, BatchError, "no loss="),
    "no loss for a function": ({"loss": None, "batch": lambda step: batch()}, BatchError, "no loss="),
    "a class": ({"loss": nn.MSELoss}, BatchError, "nn.MSELoss()"),
    "a float": ({"loss": lambda output, target: 3.0}, BatchError, "Leave .item()"),
    "several numbers": ({"loss": lambda output, target: output}, BatchError, "shape (64, 2), but must return one number"),
    "no steps": ({"steps": 0}, QuestionError, "steps=…) got 0"),
    "half a step": ({"steps": 1.5}, QuestionError, "steps=…) got 1.5"),
    "no shape yet": ({"model": nn.LazyLinear(3)}, LazyModelError, "assert_learns must leave the model unchanged"),
    "below nothing": ({"below": float("nan")}, QuestionError, "below=…) got nan"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_told(case):
    change, error, says = WRONG[case]
    model = net()
    given = {"model": model, "optimizer": sgd(model), "batch": batch(), "loss": LOSS, **change}
    with pytest.raises(error) as raised:
        assert_learns(given.pop("model"), given.pop("optimizer"), **given)
    assert says in str(raised.value)


def test_alerts_are_listed_in_the_order_of_their_steps():
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    nn.init.constant_(model[0].bias[:2], -100.0)  # two dead units
    with pytest.raises(AssertionError) as failure:
        assert_learns(model, sgd(nn.Linear(4, 2)), batch=batch(), loss=LOSS)
    steps = [int(one) for one in re.findall(r"^  step (\d+):", str(failure.value), re.M)]
    assert len(steps) > 1 and steps == sorted(steps)


def test_the_inputs_of_a_dead_unit_are_those_up_to_a_later_step_than_that_of_its_alert():
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    with torch.no_grad():
        model[0].bias[3] = -100
    w = assert_learns(model, sgd(model), batch=batch(), loss=LOSS)
    (found,) = [one for one in w.alerts if one.kind == "dead"]
    assert found.step < 99 and found.text == "unit 3 of layer 0 is dead: zero on all 6,400 inputs up to step 99"  # 64 in each of 100


UNFIT = {
    "inputs": (lambda x, y: (x[:, :3], y), "mat1 and mat2 shapes", r"0 \(Linear\)"),
    "target": (lambda x, y: (x, y.float()), "expected target dtype", r"target\.long\(\)"),
}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("case", UNFIT)
def test_a_batch_that_does_not_fit_is_explained(case, keep):
    change, cause, says = UNFIT[case]
    model = net()
    with pytest.raises(BatchError, match=f"Sequential makes no step with this batch and loss: (?s:.*){says}") as raised:
        assert_learns(model, sgd(model), batch=change(*batch()), loss=LOSS, keep=keep)
    assert isinstance(raised.value.__cause__, RuntimeError) and cause in str(raised.value.__cause__)
    assert len(raised.traceback) == 2  # the test, and what it called


def test_an_error_that_nobody_knows_is_raised_as_it_is():
    def loss(output, target):
        raise ValueError("mine")

    model = net()
    with pytest.raises(ValueError, match=r"^mine$"):
        assert_learns(model, sgd(model), batch=batch(), loss=loss)


# ---- the page


def examples():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)


def test_the_page_s_test_passes(tmp_path):
    file = tmp_path / "test_net.py"
    file.write_text(examples()[0], encoding="utf-8")
    runpy.run_path(str(file))["test_the_net_learns"]()


def test_the_page_s_message_is_what_is_said_of_a_rate_of_zero():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
    inputs = torch.randn(64, 4)
    with pytest.raises(AssertionError) as failure:
        assert_learns(model, torch.optim.Adam(model.parameters(), lr=0.0), batch=(inputs, inputs[:, :3].argmax(1)), loss=LOSS)
    assert f"```\nAssertionError: {failure.value}\n```" in PAGE.read_text(encoding="utf-8")


def test_the_page_s_script_exits_with_the_verdict(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(examples()[1], encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(file), run_name="__main__")
    assert end.value.code == 0


def test_a_net_that_has_learned_its_batch_already_fails_and_says_so():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(64, 4)
    how = {"batch": (x, x.sum(1, keepdim=True)), "loss": nn.MSELoss()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    modlab.testing.assert_learns(model, optimizer, steps=400, keep=True, **how)
    with pytest.raises(AssertionError, match=r"^Linear does not learn any more: its loss began at \S+e-13, less"):
        modlab.testing.assert_learns(model, optimizer, steps=60, **how)


def test_a_module_without_parameters_is_told_so():
    other = torch.optim.SGD(nn.Linear(1, 1).parameters(), 0.1)
    with pytest.raises(AssertionError, match=r"^ReLU cannot learn: it has no parameters\.$"):
        modlab.testing.assert_learns(nn.ReLU(), other, batch=(torch.randn(8, 3), torch.randn(8, 3)), loss=nn.MSELoss())


def test_each_way_out_of_an_error_is_told():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    one = torch.randn(1, 4), torch.randn(1, 1)
    with pytest.raises(BatchError, match="drop_last=True"):
        modlab.testing.assert_learns(model, torch.optim.SGD(model.parameters(), 0.1), batch=one, loss=nn.MSELoss())
