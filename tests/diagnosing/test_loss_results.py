"""A batch or a loss that cannot be what was meant: what was given, what was expected, and the call that was meant."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab
from modlab.errors import BatchError

CROSS = nn.CrossEntropyLoss()
X, Y = torch.linspace(-1, 1, 256).reshape(32, 8).sin(), torch.arange(32) % 3


def net(last=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, last))


def the_one(batch, loss, model=None):
    result = modlab.diagnose(net() if model is None else model, batch=batch, loss=loss)
    (found,) = result.findings
    return found


VALUES = {
    "a dict": (lambda o, t: {"cross": CROSS(o, t)}, "gives a dict, but must give one number", "loss(output, target)['cross']"),
    "a tuple": (lambda o, t: (1.0, CROSS(o, t)), "gives a tuple, but must give one number", "loss(output, target)[1]"),
    "one for each": (lambda o, t: F.cross_entropy(o, t, reduction="none"), "gives a tensor of shape (32,), but must give one", ".mean()"),
    "a float": (lambda o, t: CROSS(o, t).item(), "gives a float, but must give a tensor", "without .item()"),
    "an int": (lambda o, t: int((o.argmax(1) == t).sum()), "gives an int, but must give a tensor", "without .item()"),
    "complex": (lambda o, t: torch.complex(o, o).square().mean(), "gives a complex number, but must give a real one", ".real"),
    "nothing": (lambda o, t: None, "gives a NoneType, but must give one number", ".mean()"),
}


@pytest.mark.parametrize("case", VALUES)
def test_what_is_no_number_is_told_with_what_it_is(case):
    loss, said, fix = VALUES[case]
    found = the_one((X, Y), loss)
    assert found.kind == "loss is no number" and found.what.startswith(said) and fix in found.fix + found.advice


class Two(nn.Module):
    """Two outputs, in a container."""

    def __init__(self, container):
        super().__init__()
        self.net, self.container = net(), container

    def forward(self, x):
        return self.container(self.net(x), x)


@dataclasses.dataclass
class Output:
    """As of a library of transformers."""

    logits: torch.Tensor
    hidden: torch.Tensor


CALLS = {
    "a tuple": ((X, Y), CROSS, Two(lambda *one: one), "loss(output[0], target)"),
    "a dict": ((X, Y), CROSS, Two(lambda y, h: {"logits": y, "hidden": h}), "loss(output['logits'], target)"),
    "a dataclass": ((X, Y), CROSS, Two(Output), "loss(output.logits, target)"),
    "several targets": ((X, (Y, Y)), lambda o, t, weights: CROSS(o, t), None, "loss(output, *target)"),
    "a second output": ((X, Y), nn.CosineEmbeddingLoss(), None, "loss=lambda output, target: …"),
    "no target": ((X, None), CROSS, None, "batch=(inputs, target)"),
    "one column": ((X, Y.float()), nn.BCEWithLogitsLoss(), net(1), "loss(output.squeeze(-1), target)"),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_that_fails_has_the_one_that_was_meant(case):
    batch, loss, model, call = CALLS[case]
    found = the_one(batch, loss, model)
    assert found.kind in ("loss fails", "forward fails") and call in found.fix + found.advice


@pytest.mark.parametrize(
    "loss", [CROSS, F.cross_entropy, nn.CrossEntropyLoss(ignore_index=7)], ids=["module", "function", "another number"]
)
def test_targets_of_which_none_counts(loss):
    number = getattr(loss, "ignore_index", -100)
    found = the_one((X, torch.full((32,), number)), loss)
    assert found.what == f"is NaN: all 32 targets are {number}, which is left out"


BATCHES = {
    "empty": ((X[:0], Y[:0]), r"no samples: its first input has the shape \(0, 8\)"),
    "empty, by name": (({"x": X[:0]}, Y[:0]), "no samples"),
    "a dict": ({"x": X, "labels": Y}, r"got a dict of 2, but needs a pair[^$]*batch=\(batch, None\)"),
    "a loader": (torch.utils.data.DataLoader([(X, Y)]), r"got a DataLoader, but needs a pair[^$]*next\(iter\(loader\)\)"),
}


@pytest.mark.parametrize("case", BATCHES)
def test_what_is_no_batch_is_refused(case):
    batch, said = BATCHES[case]
    with pytest.raises(BatchError, match=said):
        modlab.diagnose(net(), batch=batch, loss=CROSS)


INFINITIES = {
    "a logarithm": (lambda o, t: -(o.softmax(1) * 0).log().mean(), "Tensor.log"),
    "a division": (lambda o, t: (1 / (o * 0)).abs().mean(), "y / x"),
    "behind a mask": (lambda o, t: -((o.masked_fill(o > 0, -torch.inf).softmax(1) * 0).log()).mean(), "Tensor.log"),
}


@pytest.mark.parametrize("case", INFINITIES)
def test_an_infinite_loss_is_told_with_what_makes_it(case):
    loss, maker = INFINITIES[case]
    found = the_one((X, Y), loss)
    assert found.kind == "infinite" and found.facts["maker"]
    assert found.what.startswith(f"is infinite: {maker} makes infinity of finite numbers at ") and "test_loss_results.py:" in found.what


class Table(nn.Module):
    """Takes a row of a table, or a pair, as one argument."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, row):
        one, other = row.values() if isinstance(row, dict) else row
        return self.net(one + other)


class Masked(Table):
    """Takes a pair, and may take something else beside it: the pair would do as both."""

    def forward(self, row, mask=None):
        return super().forward(row) if mask is None else self.net(row - mask)


@pytest.mark.parametrize("inputs", [{"row": X, "town": X}, (X, X), [X, X], ((X, X),)], ids=["dict", "tuple", "list", "tuple of one"])
def test_what_forward_takes_as_one_argument_is_given_so(inputs):
    result = modlab.diagnose(Table(), batch=(inputs, Y), loss=CROSS)
    assert not result.findings and not any(one.outcome == "not run" and one.name == "gradients" for one in result.experiments)


@pytest.mark.parametrize("inputs", [{"row": X, "mask": X}, (X, X), X], ids=["dict", "tuple", "tensor"])
def test_inputs_that_forward_takes_in_no_way_say_nothing_of_the_model(inputs):
    class Three(Table):
        def forward(self, one, other, third):
            return self.net(one + other + third)

    found = the_one((inputs, Y), CROSS, Three())
    ways = {dict: "neither by name (row, mask) nor as one argument", tuple: "neither as 2 arguments nor as one argument"}
    assert (found.kind, found.severity) == ("inputs do not fit", "careful") and "(one, other, third)" in found.reason
    assert ways.get(type(inputs), "as its one argument") in found.what and "tuple" in found.advice


def test_a_watch_knows_that_a_pair_was_one_argument():
    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with modlab.watch(model, optimizer) as w:
        for _ in range(12):
            optimizer.zero_grad()
            CROSS(model((X, X)), Y).backward()
            optimizer.step()
    given = []
    model.register_forward_hook(lambda _, args, output: given.append(len(args)))
    w.diagnose(batch=((X, X), Y), loss=CROSS)
    assert given and set(given) == {1}
