"""Beside the model: a loss with parameters of its own, an optimizer with nothing to move, complex outputs, dead samples."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab

CROSS = nn.CrossEntropyLoss()


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(32, 8, generator=generator), torch.randint(0, 3, (32,), generator=generator)


def the(result, name):
    return next(one for one in result.experiments if one.name == name)


class Margin(nn.Module):
    """A head in the loss, as of metric learning."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.eye(3))

    def forward(self, output, target):
        return F.cross_entropy(8 * F.linear(F.normalize(output), F.normalize(self.rows)), target)


@pytest.mark.parametrize("held", [False, True])
def test_a_loss_with_parameters_is_held_by_an_optimizer(held):
    model, loss = net(), Margin()
    optimizer = torch.optim.Adam([*model.parameters(), *(loss.parameters() if held else ())], 1e-2)
    result = modlab.diagnose(model, optimizer, batch=batch(), loss=loss)
    said = "the loss has 1 parameter (rows) in no group of Adam, so no step changes it"
    assert [one.sentence for one in result.findings] == ([] if held else [said]) and not result.notes
    loss(model(batch()[0]), batch()[1]).backward()
    optimizer.step()
    assert torch.equal(loss.rows, torch.eye(3)) is not held


@pytest.mark.parametrize("frozen", [slice(None), slice(1)], ids=["all of it", "a part"])
def test_an_optimizer_of_frozen_parameters_moves_nothing(frozen):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    model[frozen].requires_grad_(False)
    before = [one.clone() for one in model.parameters()]
    result = modlab.diagnose(model, optimizer)
    all_of_it = frozen == slice(None)
    assert [one.sentence for one in result.findings] == (["all that Adam holds is frozen: no step changes it"] if all_of_it else [])
    value = CROSS(model(batch()[0]), batch()[1])
    if all_of_it:
        with pytest.raises(RuntimeError, match="does not require grad"):
            value.backward()
    else:
        value.backward()
    optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), before, strict=True)) is all_of_it


@pytest.mark.parametrize("mixes", [False, True])
def test_samples_with_complex_outputs_are_told_apart(mixes):
    torch.manual_seed(0)
    x = torch.randn(16, 8, dtype=torch.cfloat)

    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 4, dtype=torch.cfloat)

        def forward(self, x):
            y = self.layer(x)
            return y - y.mean(0) if mixes else y

    result = modlab.diagnose(Waves(), batch=(x, x[:, :4]), loss=lambda output, target: (output - target).abs().square().mean())
    assert the(result, "leak").outcome == ("unclear" if mixes else "passed")


def test_samples_are_asked_that_are_not_dead():
    """The first, the middle and the last sample are, and the rest is not."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(2, 1), nn.ReLU()), torch.ones(9, 2)
    nn.init.ones_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    x[[0, 4, 8]] = -1
    x = x * torch.arange(1, 10)[:, None]
    found = the(modlab.diagnose(model, batch=(x, x[:, :1]), loss=nn.MSELoss()), "leak")
    assert (found.outcome, found.kind) == ("passed", "apart")


@pytest.mark.parametrize(("reader", "name"), [(nn.GRU, "GRU"), (nn.LSTM, "LSTM")])
def test_the_layer_that_reads_is_the_one_to_turn(reader, name):
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = reader(8, 16), nn.Linear(16, 5)

        def forward(self, x):
            return self.head(self.rnn(x)[0])

    torch.manual_seed(0)
    x = torch.randn(10, 4, 8)
    found = the(modlab.diagnose(Tagger(), batch=(x, torch.randn(10, 4, 5)), loss=nn.MSELoss()), "leak")
    assert (found.kind, found.fix) == ("mixes dimension 0 alone", f"nn.{name}(..., batch_first=True)")


def test_what_has_another_length_is_said():
    torch.manual_seed(0)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(8, 16), nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.rnn(x)[0][-1])

    result = modlab.diagnose(Last(), batch=(torch.randn(10, 16, 8), torch.arange(16) % 3), loss=CROSS)
    assert the(result, "leak").what == "no tensor in the output has one entry for each of the 10 along dimension 0 of the input"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_inputs_are_learned():
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x):
            return torch.stack([self.layer(one).mean(0) for one in x.unbind()])

    torch.manual_seed(0)
    x = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)])
    assert the(modlab.diagnose(Mean(), batch=(x, torch.tensor([0, 1])), loss=CROSS), "overfit").outcome == "passed"
