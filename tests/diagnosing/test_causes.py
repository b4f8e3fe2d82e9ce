"""The checks that name a cause: each sees it in a sick training, is silent in its healthy twin, and says what is so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from bench.sick import case, cases_of
from modlab.diagnosing import outcomes, overfit_one_batch
from modlab.wording import experiments
from tests import test_identity as identity
from tests.long import one_in

CAUSES = {
    "counting/no causal mask": ("causality", "sees the future"),
    "counting/bidirectional language model": ("causality", "sees the future"),
    "counting/mask hides the past": ("causality", "mask turned around"),
    "counting/targets are the inputs": ("causality", "targets not moved"),
    "marked/batch is taken for time": ("recurrence", "batch first mixed up"),
    "recall/batch is taken for time": ("recurrence", "batch first mixed up"),
    "marked/reads the first output": ("recurrence", "state not kept"),
    "marked/each step begins anew": ("recurrence", "state not kept"),
    "marked/relu recurrence with large weights": ("recurrence", "exploding recurrence"),
    "basket/padding idx is an item": ("embeddings", "padding idx of a token"),
    "basket/the last item is the padding": ("embeddings", "padding idx of a token"),
    "recall/nearly all tokens unknown": ("embeddings", "tokens unknown"),
    "majority/nearly all tokens unknown": ("embeddings", "tokens unknown"),
    "majority/attends to the padding": ("padding", "mask turned around"),
    "majority/last state after the padding": ("padding", "padding counts"),
    "recall/attention without places": ("order", "no positions"),
    "wave/inputs in thousands": ("inputs", "inputs not scaled"),
    "spirals/second feature in ten thousands": ("inputs", "one huge feature"),
    "marked/numbers in ten thousands": ("inputs", "one huge feature"),
    "dot/divided by 255 twice": ("inputs", "inputs vanish"),
    "wave/inputs are zeros": ("inputs", "constant inputs"),
    "majority/the first sample for all": ("inputs", "constant inputs"),
    "spirals/targets of the sample before": ("targets", "targets shifted"),
    "majority/targets of the sample before": ("targets", "targets shifted"),
    "wave/reshaped where it should be transposed": ("targets", "wrong axes"),
    "recall/reshaped where it should be transposed": ("targets", "wrong axes"),
    "bars/label in a corner": ("targets", "leak"),
    "dot/place in the other channel": ("targets", "leak"),
    "spirals/loss is negated": ("aim", "wrong sign"),
    "wave/loss is negated": ("aim", "wrong sign"),
    "inside/cross entropy of one logit": ("aim", "one logit"),
    "spirals/one output and class zero": ("aim", "one logit"),
    "wave/loss divided by a million": ("aim", "loss too small"),
    "curves/target against itself": ("aim", "constant loss"),
    "bars/loss of clamped logits": ("aim", "constant loss"),
    "wave/relu behind the last layer": ("aim", "output cannot reach"),
    "curves/sigmoid behind the last layer": ("aim", "output cannot reach"),
    "marked/targets in ten thousands": ("aim", "targets not scaled"),
    "spirals/one class weighs nearly all": ("aim", "weights of classes"),
    "inside/positive weight upside down": ("aim", "weights of classes"),
    "views/positives alone": ("aim", "collapse"),
    "counting/softmax over the positions": ("softmax", "softmax over the wrong dimension"),
    "wave/dropout of ninety seven": ("modes", "too much dropout"),
    "wave/norm in batches of two": ("modes", "batch norm of one"),
    "bars/momentum of a millionth": ("modes", "batch norm statistics"),
    "wave/weights are a constant": ("symmetry", "all weights equal"),
    "bars/weights are a constant": ("symmetry", "all weights equal"),
    "ratings/embeddings begin at zero": ("symmetry", "all weights equal"),
    "wave/biases far below zero": ("collapse", "dead units"),
    "wave/activation times zero": ("collapse", "overwritten activation"),
    "recall/the mask is zero everywhere": ("collapse", "overwritten activation"),
    "wave/weights and biases of nearly nothing": ("collapse", "weights begin too small"),
    "spirals/sixteen layers of sigmoid": ("collapse", "vanishing gradient"),
    "marked/gates that begin shut": ("collapse", "vanishing gradient"),
    "wave/detached before the last layer": ("gradients", "detached"),
    "marked/recurrent part under no grad": ("gradients", "without grad"),
    "wave/rounded before the last layer": ("gradients", "no gradient through"),
    "inside/thresholds for activations": ("gradients", "no gradient through"),
    "dot/compared with zero": ("gradients", "no gradient through"),
    "counting/blocks are not called": ("gradients", "unused layers"),
    "spirals/head reads the input": ("gradients", "unused layers"),
    "wave/hooks replace gradients": ("gradients", "gradients overwritten"),
    "bars/gradients filled with zeros": ("gradients", "gradients overwritten"),
}
"""By the name of a case: the check that fails, and the cause that it names."""

DOUBTS = {
    "wave/targets in another order": ("targets", "targets shuffled"),
    "wave/targets of one sample for all": ("targets", "constant targets"),
    "inside/nearly all of class zero": ("targets", "imbalance"),
    "recall/squared error of the class number": ("aim", "regression of classes"),
}
"""The same of what may be meant: the check is unclear."""


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learning by heart is not what is tested here."""
    monkeypatch.setattr(overfit_one_batch, "STEPS", 1)


def diagnosed(training: Any) -> dict[str, Any]:
    result = modlab.diagnose(training.model, training.optimizers, batch=training.batch(0), loss=training.criterion)
    return {one.name: one for one in result.experiments}


@pytest.mark.parametrize("name", one_in(3, CAUSES | DOUBTS))
def test_a_cause_is_named_and_not_in_the_twin(name: str) -> None:
    check, kind = (CAUSES | DOUBTS)[name]
    sick, twin = (diagnosed(training) for training in (case("working", name).training(0), case("working", name).twin(0)))
    found = sick[check]
    assert (found.kind, found.outcome) == (kind, "failed" if name in CAUSES else "unclear")
    assert found.what and found.reason and (found.fix or found.advice), "it says what was seen, why that matters and what to do"
    assert check not in twin or twin[check].kind != kind


SO = {
    "journal/as it is": "padding",
    "ppo of one file/as it is": "gradients",
    "first to rebuild then to tell/as it is": "gradients",
    "first mark/as it is": "targets",
    "units of hundreds/as it is": "aim",
    "very wide and a loss in millionths/as it is": "aim",
}
"""What a check says of a net that learns all the same, and is so: it reads on through the padding; the loss that
is given is a part of what the loop has; a number tells the answer at once, and is to be remembered; targets of
hundreds, to which its rate comes in time; a loss of millionths, which its optimizer does not mind."""


HEALTHY = [one.name for one in cases_of("working") if not one.cause and one.name.endswith("as it is")]


@pytest.mark.parametrize("name", one_in(6, HEALTHY, SO))
def test_what_is_healthy_fails_no_check(name: str) -> None:
    found = diagnosed(case("working", name).training(1))
    assert {one.name for one in found.values() if one.outcome == "failed"} - {"overfit"} == {*filter(None, [SO.get(name)])}


# ---- what is said is so, with PyTorch as the oracle ------------------------------------------------------------------------------


class Language(nn.Module):
    """Predicts the next token, with a mask or without one."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal, self.tokens, self.places, self.head = causal, nn.Embedding(9, 8), nn.Embedding(6, 8), nn.Linear(8, 9)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(F.scaled_dot_product_attention(h, h, h, is_causal=self.causal))


def of_tokens(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def shifting(output: Tensor, target: Tensor) -> Tensor:
    """Moves the targets itself, as many losses do."""
    return of_tokens(output[:, :-1], target[:, 1:])


def text() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(9, (8, 7), generator=torch.Generator().manual_seed(0))
    return tokens[:, :-1], tokens[:, 1:]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["moved before", "moved in the loss"])
def test_which_output_sees_which_input(causal: bool, inside: bool) -> None:
    torch.manual_seed(0)
    model, (x, y) = Language(causal), text()
    result = modlab.diagnose(model, batch=(x, x if inside else y), loss=shifting if inside else of_tokens)
    found = next(one for one in result.experiments if one.name == "causality")
    assert found.outcome == ("passed" if causal else "failed")
    if not causal:
        changed = x.clone()
        changed[:, found.facts["changed"]] = (x[:, found.facts["changed"]] + 1) % 9
        at = found.facts["output"]
        assert at < found.facts["changed"] and not torch.allclose(model(x)[:, at], model(changed)[:, at])


def test_a_target_that_the_loss_moves_is_not_called_unmoved() -> None:
    torch.manual_seed(0)
    x, _ = text()
    kinds = [modlab.diagnose(Language(True), batch=(x, x), loss=loss).experiments for loss in (of_tokens, shifting)]
    assert [{one.name: one.kind for one in some}["causality"] for some in kinds] == ["targets not moved", "sees no future"]


def test_a_tagger_may_look_ahead() -> None:
    x, _ = text()
    tags = (x + x.roll(1, 1)) % 9
    assert "causality" not in {one.name for one in modlab.diagnose(Language(False), batch=(x, tags), loss=of_tokens).experiments}


@pytest.mark.parametrize("first", [False, True])
def test_sequence_first_is_no_mistake_where_the_data_is(first: bool) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(3, 4, batch_first=first), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.rnn(x)[0].select(1 if first else 0, -1))

    torch.manual_seed(0)
    x = torch.randn(20, 5, 3)
    y = x.sum((1, 2))[:, None]
    result = modlab.diagnose(Sum(), batch=(x if first else x.transpose(0, 1), y), loss=nn.MSELoss())
    assert next(one for one in result.experiments if one.name == "recurrence").outcome == "passed"


def test_a_straight_through_round_passes_its_gradient() -> None:
    class Net(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            h = self[0](x)
            return self[1](h + (h.round() - h).detach())

    torch.manual_seed(0)
    model, x, y = Net(nn.Linear(4, 8), nn.Linear(8, 1)), torch.randn(8, 4), torch.randn(8, 1)
    assert modlab.diagnose(model, batch=(x, y), loss=nn.MSELoss()).experiments[0].outcome == "passed"


def test_hooks_that_clip_are_no_overwriting() -> None:
    torch.manual_seed(0)
    model, x, y = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1)), torch.randn(8, 4), torch.randn(8, 1)
    model[0].weight.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
    assert modlab.diagnose(model, batch=(x, y), loss=nn.MSELoss()).experiments[0].outcome == "passed"
    model[0].weight.register_hook(torch.zeros_like)
    found = modlab.diagnose(model, batch=(x, y), loss=nn.MSELoss()).experiments[0]
    assert (found.kind, found.path) == ("gradients overwritten", "0.weight")
    nn.functional.mse_loss(model(x), y).backward()
    assert not model[0].weight.grad.any()


def test_a_low_rank_update_of_zeros_is_no_symmetry() -> None:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base, self.a, self.b = nn.Linear(6, 4), nn.Linear(6, 2, bias=False), nn.Linear(2, 4, bias=False)
            nn.init.zeros_(self.b.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) + self.b(self.a(x))

    torch.manual_seed(0)
    result = modlab.diagnose(Adapted(), batch=(torch.randn(8, 6), torch.arange(8) % 4), loss=nn.CrossEntropyLoss())
    assert {one.name: one.outcome for one in result.experiments}["symmetry"] == "passed"


def test_a_last_layer_of_zeros_is_no_collapse() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    nn.init.zeros_(model[2].weight)
    found = {
        one.name: one for one in modlab.diagnose(model, batch=(torch.randn(8, 6), torch.arange(8) % 4), loss=F.cross_entropy).experiments
    }
    assert found["collapse"].outcome == "unclear" and found["collapse"].kind == "a layer of zeros" and found["symmetry"].outcome == "passed"


def test_what_is_in_the_batch_alone_is_said_of_it() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(32, 4), torch.randn(32, 1)
    y[3] = float("inf")
    model = nn.Linear(4, 1)
    found = {
        one.name: one
        for one in modlab.diagnose(model, batch=(x, y), loss=lambda out, target: (out - target.clamp(-9, 9)).square().mean()).experiments
    }
    assert (found["inputs"].kind, found["inputs"].facts["inf"], found["inputs"].facts["which"]) == ("not a number in data", 1, "target")


class Variational(nn.Module):
    """Leaves on itself what its loss reads."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, x: Tensor) -> Tensor:
        self.mean, self.log = self.encode(x).chunk(2, 1)
        return self.decode(self.mean + torch.randn_like(self.mean) * (self.log / 2).exp())


@pytest.mark.parametrize("before", [False, True], ids=["fresh", "after a pass"])
def test_a_loss_that_reads_the_model_is_learned(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overfit_one_batch, "STEPS", 60)
    torch.manual_seed(0)
    model, x = Variational(), torch.randn(8, 6)
    if before:
        model(x)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        divergence = (model.mean.square() + model.log.exp() - model.log - 1).sum(1).mean()
        return (output - target).square().sum() * 0 + divergence  # the model's attributes alone can make it fall

    state, attributes = identity.everything(model), dict(vars(model))
    found = {one.name: one for one in modlab.diagnose(model, batch=(x, x), loss=loss).experiments}
    learned = found["overfit"]
    assert learned.kind in ("learnt", "learnt one answer") and learned.facts["least"] < 0.1 * learned.facts["first"]
    assert identity.everything(model) == state and vars(model) == attributes


@pytest.mark.parametrize("name", ["unordered", "without"])
def test_a_number_of_another_check_is_not_taken_for_parameters_without_a_gradient(name):
    """Files of before call it "without", as the check of gradients calls its parameters."""
    facts: dict[str, Any] = {"class": "MultiheadAttention", "length": 9, "needed": 1, "position": 0, "in order": 0.9, name: 0.25}
    found = outcomes.record("order", "failed", "no positions", **facts)
    assert experiments.beside(found) == experiments.what(found) == "another order of the positions gives the same outputs"
    assert "without the order it is 25" in experiments.reason(found)


@pytest.mark.parametrize("same", [True, False])
def test_scores_of_a_teacher_are_right_as_they_are(same):
    """A softmax is taken of both: neither their size nor what rounding leaves of the right answer says anything."""

    def distilled(output, teacher):
        return F.kl_div(F.log_softmax(output / 2, 1), F.softmax(teacher / 2, 1), reduction="batchmean")

    torch.manual_seed(0)
    student, teacher, x = nn.Linear(8, 5), nn.Linear(8, 5), torch.randn(64, 8)
    target = 60 * teacher(x).detach()
    if same:
        student.load_state_dict({name: 60 * one for name, one in teacher.state_dict().items()})
    assert "aim" not in [one.name for one in modlab.diagnose(student, batch=(x, target), loss=distilled).experiments]
    far = next(one for one in modlab.diagnose(student, batch=(x, 900 + target), loss=nn.MSELoss()).experiments if one.name == "aim")
    assert (far.kind == "targets not scaled") is not same


class Patches(nn.Module):
    """Attention over squares of an image, which are told of their places or not."""

    def __init__(self, places, first, *, norm=True):
        super().__init__()
        self.patch = nn.Conv2d(1, 16, 4, 4)
        self.places = nn.Parameter(torch.randn(12 + first, 16)) if places else None
        self.first = nn.Parameter(torch.zeros(1, 1, 16)) if first else None
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2)
        if self.first is not None:
            h = torch.cat([self.first.expand(len(h), -1, -1), h], 1)
        h = self.encoder(h if self.places is None else h + self.places)
        return self.head(h.mean(1) if self.first is None else h[:, 0])


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("places", [True, "zero", False])
def test_patches_that_are_not_told_of_their_places(places, first):
    torch.manual_seed(0)
    x, y = torch.randn(32, 1, 12, 16), torch.randint(4, (32,))
    model = Patches(places, first)
    if places == "zero":
        nn.init.zeros_(model.places)
    made = modlab.diagnose(model, batch=(x, y), loss=F.cross_entropy)
    found = next(one for one in made.experiments if one.name == "order")
    assert (found.outcome, found.kind) == (("passed", "order counts") if places else ("unclear", "no positions"))
    assert places or (found.what == "another order of the patches gives the same outputs" and "of the patches" in found.advice)


@pytest.mark.parametrize("places", [True, False])
def test_patches_without_places_are_the_cause_where_the_corner_is_asked_for(places):
    torch.manual_seed(0)
    model = Patches(places, 1)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    with modlab.watch(model, optimizer) as w:
        for _ in range(150):
            y = torch.randint(4, (64,))
            x = 0.1 * torch.randn(64, 1, 12, 16)
            for one, corner in zip(x, y.tolist(), strict=True):
                one[0, 8 * (corner // 2) :][:4, 12 * (corner % 2) :][:, :4] += torch.eye(4)
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    found = next(one for one in w.diagnose().experiments if one.name == "order")
    assert found.outcome == ("passed" if places else "failed")


@pytest.mark.parametrize("inputs", ["marked", "noisy", "patterns"])
def test_a_mark_of_each_class_is_a_leak_and_a_pattern_is_none(inputs: str) -> None:
    torch.manual_seed(0)
    y = torch.arange(64) % 4
    x = torch.randn(64, 1, 6, 6) * (inputs != "patterns")
    if inputs == "marked":
        x[torch.arange(64), 0, 5, y] = 3.0
    if inputs == "patterns":
        x += torch.randint(0, 2, (4, 1, 6, 6))[y]
        x[32:, 0, 0] = 7.0  # each class is drawn in its own way, and half of them have a frame
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))
    result = modlab.diagnose(model, batch=(x, y), loss=nn.CrossEntropyLoss())
    found = {one.name: one for one in result.experiments}["targets"]
    assert (found.kind == "leak") is (inputs == "marked")
    if inputs == "marked":
        assert found.what == "the inputs are marked with their class: x[:, 0, 5, 0] is 3 in class 0 alone"
