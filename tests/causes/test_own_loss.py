"""A model that gives its loss itself, or more than its answer: `w.diagnose()` runs it on the batch that the watch kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.results.watch import Watch
from modlab.running.criterion import own_loss
from modlab.running.values import named_inputs


@dataclass
class Given:
    loss: Tensor
    logits: Tensor


FORMS: dict[str, Any] = {
    "dict": lambda loss, logits: {"loss": loss, "logits": logits},
    "tuple": lambda loss, logits: (loss, logits),
    "dataclass": Given,
    "alone": lambda loss, logits: loss,
}


class Classifier(nn.Module):
    def __init__(self, form: str, *, cut: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.form, self.cut = nn.Linear(8, 32), nn.Linear(32, 3), FORMS[form], cut

    def forward(self, x: Tensor, labels: Tensor, weight: float = 1.0) -> Any:
        middle = self.body(x).tanh()
        logits = self.head(middle.detach() if self.cut else middle)
        return self.form(weight * F.cross_entropy(logits, labels) + 1e-3 * logits.square().mean(), logits)


def loss_of(output: Any) -> Tensor:
    found = output["loss"] if isinstance(output, dict) else output[0] if isinstance(output, tuple) else getattr(output, "loss", output)
    assert isinstance(found, Tensor)
    return found


def trained(model: Classifier, *, passes: int = 1, named: bool = True) -> Watch:
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            optimizer.zero_grad()
            for _ in range(passes):
                x = torch.randn(32, 8)
                labels = x[:, :3].argmax(1)
                output = model(x=x, labels=labels) if named else model(x, labels=labels, weight=0.5)
                (loss_of(output) / passes).backward()
            optimizer.step()
    return w


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("passes", [1, 4])
def test_the_batch_is_kept_and_run(form: str, passes: int) -> None:
    model = Classifier(form)
    w = trained(model, passes=passes)
    result = w.diagnose()
    assert "not seen" not in str(result) and result.findings == ()
    assert {one.name: one.outcome for one in result.experiments}["gradients"] == "passed"
    assert not any(one.outcome == "failed" for one in result.experiments)


def test_what_it_finds_is_found() -> None:
    model = Classifier("dict", cut=True)
    result = trained(model, named=False).diagnose()
    (found,) = [one for one in result.experiments if one.outcome == "failed"]
    assert (found.name, found.kind, found.path) == ("gradients", "detached", "body")


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("form", FORMS)
def test_it_gives_the_value_that_the_loop_had(form: str, scale: float) -> None:
    model, x = Classifier(form), torch.randn(4, 8)
    labels = x[:, :3].argmax(1)
    output = model(x, labels)
    loss = loss_of(output) * scale
    own = own_loss(loss, output, float(loss.detach()))
    assert own is not None and torch.allclose(own(model(x, labels), labels), loss)
    assert own_loss(loss_of(output) + 1.0, output, 1.0) is None
    assert own_loss(F.cross_entropy(torch.randn(4, 3, requires_grad=True), labels), output, 1.0) is None


def test_arguments_have_the_names_of_forward() -> None:
    class Several(nn.Module):
        def forward(self, x: Any, *more: Any, mask: Any = None, **further: Any) -> Any: ...

    x, y = torch.zeros(1), torch.ones(1)
    assert named_inputs(Classifier("dict"), (x,), {"labels": y}) == {"x": x, "labels": y}
    assert named_inputs(Several(), (x,), {"mask": y, "labels": y}) == {"x": x, "mask": y, "labels": y}
    assert named_inputs(Several(), (x, y), {}) is None and named_inputs(Classifier("dict"), (x,), {"label": y}) is None


class Remembers(nn.Module):
    """Gives scores for each step, and its state."""

    def __init__(self, form: str, *, cut: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.head, self.form, self.cut = nn.LSTM(8, 16, batch_first=True), nn.Linear(16, 3), form, cut

    def forward(self, x: Tensor) -> Any:
        steps, state = self.lstm(x)
        scores = self.head(steps.detach() if self.cut else steps)
        return {"state": state, "scores": scores} if self.form == "dict" else (scores, state)


@pytest.mark.parametrize("form", ["dict", "tuple"])
@pytest.mark.parametrize("cut", [False, True])
def test_the_loss_of_one_of_several_tensors_is_kept(form: str, cut: bool) -> None:
    model = Remembers(form, cut=cut)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer) as w:
        for _ in range(60):
            x = torch.randn(16, 6, 8)
            scores = model(x)["scores"] if form == "dict" else model(x)[0]
            optimizer.zero_grad()
            F.cross_entropy(scores.reshape(-1, 3), x[..., :3].argmax(-1).reshape(-1)).backward()
            optimizer.step()
    made = {one.name: one.outcome for one in w.diagnose().experiments}
    assert made["gradients"] == ("failed" if cut else "passed") and made["leak"] == "passed"
