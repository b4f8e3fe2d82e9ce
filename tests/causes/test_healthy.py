"""What a strange training does on purpose, beside what looks the same and is a fault."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.causes.test_what_a_task_asks import kinds


class Scaled(nn.Module):
    """Divides by 255 itself, or does not."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by, self.net = by, nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x / self.by)


@pytest.mark.parametrize(("by", "named"), [(1.0, True), (255.0, False)])
def test_inputs_that_the_model_scales_itself_are_scaled(by, named):
    torch.manual_seed(0)
    told = kinds(Scaled(by), lambda: (255 * torch.rand(32, 6), torch.randint(3, (32,))), F.cross_entropy)
    assert ("inputs not scaled" in told) is named


@pytest.mark.parametrize(("rows", "named"), [(torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]), False), (torch.randn(4, 2), True)])
def test_a_table_of_zeros_and_ones_is_all_there_is(rows, named):
    torch.manual_seed(0)
    target = torch.tensor([[0.0], [1], [1], [0]])
    told = kinds(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), lambda: (rows, target), F.mse_loss)
    assert ("same batch" in told) is named


class Slope(nn.Module):
    """A net, or how steep it is."""

    def __init__(self, steep: bool) -> None:
        super().__init__()
        self.steep, self.net = steep, nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        if not self.steep:
            return self.net(x)
        x.requires_grad_()
        return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0] + x


@pytest.mark.parametrize("steep", [True, False])
def test_an_equation_has_zeros_as_its_targets(steep):
    torch.manual_seed(0)
    told = kinds(Slope(steep), lambda: (torch.rand(32, 1), torch.zeros(32, 1)), F.mse_loss)
    assert ("constant targets" in told) is not steep


@pytest.mark.parametrize(("filled", "named"), [(True, False), (False, True)])
def test_a_diagonal_that_is_filled_is_no_negative(filled, named):
    torch.manual_seed(0)

    def criterion(z: Tensor, target: Tensor) -> Tensor:
        z = F.normalize(z, dim=1)
        likeness = z @ z.t() / 0.5
        return F.cross_entropy(likeness.fill_diagonal_(-1e9) if filled else likeness, target)

    told = kinds(nn.Linear(6, 8), lambda: (torch.randn(2, 8, 6).flatten(0, 1), torch.arange(16).roll(8)), criterion)
    assert ("wrong negatives" in told) is named


@pytest.mark.parametrize(("grades", "named"), [(torch.randint(6, (4000,)), True), ((torch.rand(4000, 5) < 0.5).sum(1), False)])
def test_numbers_that_crowd_in_the_middle_are_counts(grades, named):
    torch.manual_seed(0)

    def batch() -> tuple[Tensor, Tensor]:
        at = torch.randint(4000, (64,))
        return torch.randn(64, 4), grades[at].float().unsqueeze(1)

    assert ("regression of classes" in kinds(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), batch, F.mse_loss)) is named
