"""The short training of a copy: what it says is so of the user's own model, loss and optimizer, and not of the copy alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab
from tests import test_identity as identity

CROSS = nn.CrossEntropyLoss()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(32, 8, generator=generator), torch.randint(0, 3, (32,), generator=generator)


def kinds(result):
    return [one.kind for one in result.findings]


def the(result, name):
    return next(one for one in result.experiments if one.name == name)


class Signs(torch.optim.Optimizer):
    """A user's own, whose step lacks ``no_grad``."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * parameter.grad.sign()


class Counted(Signs):
    """Another, which also holds what a copy may lack."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.server = object()


def of_the_model_itself(model):
    """The residual of an equation, as of a physics-informed net: the loss does not look at the output."""
    return lambda output, target: (model(target).square().sum(1) - 1).square().mean()


def with_a_penalty(model):
    return lambda output, target: F.cross_entropy(output, target) + 1e-4 * sum(one.square().sum() for one in model.parameters())


@pytest.mark.parametrize(
    ("loss", "target"), [pytest.param(of_the_model_itself, 0, id="the model itself"), pytest.param(with_a_penalty, 1, id="its weights too")]
)
def test_a_loss_that_calls_the_model_is_no_cut_graph(loss, target):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    before = identity.everything(model)
    inputs = batch()
    result = modlab.diagnose(model, optimizer, batch=(inputs[0], inputs[target]), loss=loss(model))
    assert kinds(result) == []
    assert the(result, "overfit").kind == "learnt"
    assert identity.everything(model) == before and not optimizer.state


def test_a_rate_of_nothing_is_found_where_the_loss_calls_the_model():
    model = net()
    result = modlab.diagnose(model, torch.optim.SGD(model.parameters(), 1e-9), batch=(batch()[0],) * 2, loss=of_the_model_itself(model))
    assert kinds(result) == ["rate too low"]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("make", [torch.jit.script, lambda model: torch.jit.trace(model, batch()[0])], ids=["scripted", "traced"])
def test_the_optimizer_of_a_scripted_model_is_its_own(make):
    model = make(net())
    weights = [one.detach().clone() for one in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    assert kinds(modlab.diagnose(model, optimizer, batch=batch(), loss=CROSS)) == []
    assert all(torch.equal(one, other) and one.grad is None for one, other in zip(model.parameters(), weights, strict=True))


@pytest.mark.parametrize(
    ("last", "make", "name", "error"),
    [
        pytest.param(True, torch.optim.Adam, "Adam", "RuntimeError: Adam does not support sparse gradients", id="sparse"),
        pytest.param(False, Signs, "Signs", "RuntimeError: a leaf Variable that requires grad", id="own"),
    ],
)
def test_a_step_that_fails_is_told(last, make, name, error):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8, sparse=last), nn.Flatten(), nn.Linear(32, 3))
    optimizer = make(model.parameters())
    x = torch.arange(128).reshape(32, 4) % 20
    result = modlab.diagnose(model, optimizer, batch=(x, batch()[1]), loss=CROSS)
    assert kinds(result) == ["step fails"] and result.findings[0].sentence.startswith(f"the step of {name} stops with {error}")
    CROSS(model(x), batch()[1]).backward()
    with pytest.raises(RuntimeError, match=error.partition(": ")[2]):
        optimizer.step()


def test_a_step_that_fails_is_not_told_of_what_a_copy_may_lack():
    model = net()
    assert kinds(modlab.diagnose(model, Counted(model.parameters()), batch=batch(), loss=CROSS)) == []


@pytest.mark.parametrize(("rate", "found"), [(1.0, []), (1e-9, ["rate too low"])])
def test_lbfgs_is_copied_with_all_that_it_holds(rate, found):
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=rate)
    torch.optim.lr_scheduler.StepLR(optimizer, 10)
    assert kinds(modlab.diagnose(model, optimizer, batch=batch(), loss=CROSS)) == found


class Cut(nn.Module):
    """Its first layer gets no gradient, and the place of the finding is that layer's parameter, or the function behind it."""

    def __init__(self, cut) -> None:
        super().__init__()
        self.first, self.last, self.cut = nn.Linear(8, 16), nn.Linear(16, 3), cut

    def forward(self, x):
        return self.last(self.cut(self.first(x)))


CUTS = {"detached": (lambda x: x.relu().detach(), "detached"), "a sign": (torch.sign, "no gradient through")}


@pytest.mark.parametrize("case", CUTS)
def test_what_tells_causes_apart_can_be_asked(case):
    torch.manual_seed(0)
    cut, kind = CUTS[case]
    model = Cut(cut)
    found = modlab.diagnose(model, torch.optim.Adam(model.parameters(), 1e-2), batch=batch(), loss=CROSS).findings[0]
    assert found.kind == kind and "t.why('first.weight'), after a step within `with modlab.trace(model) as t:`" in found.advice
    x, y = batch()
    with modlab.trace(model) as t:
        CROSS(model(x), y).backward()
    assert t.why("first.weight").kind == ("detached" if kind == "detached" else "zero")


@pytest.mark.parametrize(("eps", "found"), [(1e-8, ["underflow"]), (1e-4, [])])
def test_a_division_by_zero_is_not_the_rates(eps, found):
    """Adam's ``eps`` is 0 in float16."""
    model = net().half()
    x, y = batch()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, eps=eps)
    assert kinds(modlab.diagnose(model, optimizer, batch=(x.half(), y), loss=CROSS)) == found


LOSSES = {
    "of the output": lambda model: CROSS,
    "with a penalty": with_a_penalty,
    "of the model itself": lambda model: lambda output, target: CROSS(model(batch()[0]), target),
}


@pytest.mark.parametrize("case", LOSSES)
def test_an_open_watch_sees_nothing_of_it(case):
    def watched(asks):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)
        loss, (x, y) = LOSSES[case](model), batch()
        with modlab.watch(model, optimizer, budget=1.0) as w:
            for step in range(30):
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
                if asks and step == 15:
                    modlab.diagnose(model, optimizer, batch=(x, y), loss=loss)
        return w, [one.detach().clone() for one in model.parameters()]

    (alone, weights), (asked, others) = watched(False), watched(True)
    assert (asked.record.steps, asked.record.samples) == (alone.record.steps, alone.record.samples) == (30, 30)
    assert [(one.kind, one.path) for one in asked.findings] == [(one.kind, one.path) for one in alone.findings]
    assert all(torch.equal(*pair) for pair in zip(weights, others, strict=True))


@pytest.mark.parametrize("trained", [True, False])
def test_weights_that_are_large_may_have_grown(trained):
    """Of a model that knows something they are no cause; of another, what they are is told, and not what they began as."""
    model, (x, y) = net(), batch()
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    while trained and CROSS(model(x), y) > 0.4:
        optimizer.zero_grad()
        CROSS(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():  # the same function
        for one, factor in zip(model.parameters(), (30, 30, 1 / 30, 1), strict=True):
            one.mul_(factor)
    found = modlab.diagnose(model, torch.optim.SGD(model.parameters(), 1e-7), batch=(x, y), loss=CROSS)
    told = [one.sentence for one in found.findings if one.kind == "weights begin too large"]
    assert told == [] if trained else told[0].startswith("the weights are far too large: those of 0.weight are")


def test_one_sample_that_is_learned_asks_for_no_larger_steps():
    model, (x, y) = net(), batch()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for _ in range(400):
        optimizer.zero_grad()
        CROSS(model(x[:1]), y[:1]).backward()
        optimizer.step()
    assert "rate too low" not in kinds(modlab.diagnose(model, optimizer, batch=(x[:1], y[:1]), loss=CROSS))


@pytest.mark.parametrize("trained", [True, False])
def test_a_model_that_knows_its_batch_has_learned_it(trained):
    torch.manual_seed(0)
    model, x = nn.Linear(8, 1), torch.randn(64, 8)
    y = x[:, :1] + 0.3 * torch.randn(64, 1)
    if trained:
        with torch.no_grad():
            model.weight.copy_(torch.linalg.lstsq(x, y).solution.T + 0.02)
            model.bias.zero_()
    loss = nn.MSELoss() if trained else lambda output, target: 9 + F.mse_loss(output, target)
    found = the(modlab.diagnose(model, batch=(x, y), loss=loss), "overfit")
    assert (found.outcome, found.kind) == (("passed", "knows it") if trained else ("unclear", "learns slowly"))
    assert not trained or "does not come down to half within 60 steps of Adam on a copy, but it is low already" in found.what
