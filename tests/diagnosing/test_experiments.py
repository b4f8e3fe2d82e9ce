"""The checks that run the model: each says what is so, with plain PyTorch as the oracle, and leaves everything as it was."""

import math
import random
import re
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

import modlab
from modlab.diagnosing import overfit_one_batch, repeated_passes
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.subject import Subject
from tests import test_identity as identity
from tests import zoo
from tests.architectures import ARCHITECTURES

CROSS = nn.CrossEntropyLoss()
HERE = "test_experiments.py"
FURTHER = ("inputs", "aim", "symmetry", "collapse")
KINDS = ("gradients", "leak", "first loss", "repeat", "round trip", "overfit")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """On a busy machine the steps may take longer than a user waits for them."""
    monkeypatch.setattr(overfit_one_batch, "LIMIT_S", 600.0)


class Model(nn.Module):
    """A small classifier, whose forward is the case's."""

    def __init__(self, **parts):
        super().__init__()
        self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.head(self.fc(x).tanh())


def making(forward, **parts):
    cls = type("Case", (Model,), {"forward": forward})
    torch.manual_seed(0)
    return cls(**parts)


def batch(n=6):
    return torch.linspace(-1, 1, 4 * n).reshape(n, 4).sin(), torch.arange(n) % 3


def diagnosed(model, inputs=None, target=None, loss=CROSS):
    x, y = batch()
    return modlab.diagnose(model, batch=(x if inputs is None else inputs, y if target is None else target), loss=loss)


def outcomes(result):
    return {one.name: one.outcome for one in result.experiments}


def the(result, name):
    return next(one for one in result.experiments if one.name == name)


def test_a_healthy_model_passes_them_all():
    result = diagnosed(making(Model.forward))
    assert outcomes(result) == dict.fromkeys((*KINDS, *FURTHER), "passed") and result.findings == () and result.verdict == "fine"
    assert result.headline.endswith("with the batch 10 passed.")
    assert "more checks           passed   inputs fit, the loss points the right way, units differ, outputs differ" in str(result)


def test_the_headline_counts_failed_checks_apart_from_findings():
    probabilities = making(lambda self, x: Model.forward(self, x).softmax(1))
    result = diagnosed(probabilities)
    assert result.findings == () and result.headline.startswith("1 check failed: the outputs are already probabilities")
    failed = the(result, "first loss")
    assert failed.title == "the outputs are scores, not probabilities" and "outputs are scores    failed" in str(result)
    probabilities.parts = [nn.Linear(2, 2)]
    result = diagnosed(probabilities)
    assert len(result.findings) == 1 and result.headline.startswith("1 finding and 1 failed check: parts (1 Linear) is hidden")


# ---- gradients -----------------------------------------------------------------------------------------------------------------


def test_unused_and_detached_parts_get_no_gradient():
    result = diagnosed(making(Model.forward, aux=nn.Linear(4, 4)))
    found = the(result, "gradients")
    assert (found.outcome, found.path, found.places) == ("unclear", "aux", ("aux.weight", "aux.bias"))
    assert found.what == "aux (2 parameters) gets no gradient"
    assert found.reason.startswith("aux.weight: not called: aux did not run. Intended for parts that only some batches use")
    assert (found.fix, found.advice) == ("", "Call it in forward, or remove it.")
    found = the(diagnosed(making(lambda self, x: self.head(self.fc(x).tanh().detach()))), "gradients")
    assert (found.outcome, found.path) == ("failed", "fc")
    assert "left the graph in Tensor.detach at " in found.reason and f"{HERE}:" in found.reason
    assert found.fix == "" and found.advice.startswith("Remove the detach")


def test_what_gets_no_gradient_is_what_backward_leaves_without_one():
    model = making(lambda self, x: self.head(F.relu(self.fc(x)) + self.side(x).detach()), side=nn.Linear(4, 8), spare=nn.ReLU())
    found = the(diagnosed(model), "gradients")
    CROSS(model(batch()[0]), batch()[1]).backward()
    assert list(found.places) == [name for name, p in model.named_parameters() if p.grad is None]


def test_zero_and_broken_gradients():
    model = making(lambda self, x: self.head(F.relu(self.fc(x) - 100)))
    found = the(diagnosed(model), "gradients")
    assert found.outcome == "unclear" and found.what == "fc (2 parameters) and head.weight get a gradient that is zero everywhere"
    found = the(diagnosed(making(lambda self, x: self.head((self.fc(x) * 0).sqrt()))), "gradients")
    assert found.outcome == "failed" and "NaN" in found.what


def test_a_loss_that_leads_nowhere():
    found = the(diagnosed(making(lambda self, x: Model.forward(self, x).detach())), "gradients")
    assert found.outcome == "failed" and "the loss has no grad_fn" in found.what


def test_a_gradient_lost_under_no_grad_is_found_with_its_line_and_not_frozen():
    def forward(self, x):
        with torch.no_grad():
            inner = self.fc(x)
        return self.head(inner)

    result = diagnosed(making(forward))
    found = the(result, "gradients")
    line = forward.__code__.co_firstlineno + 2
    assert found.path == "fc" and "ran under no_grad at " in found.reason and f"{HERE}:{line}, " in found.reason
    assert found.fix == "" and found.advice == "Take it out of `with torch.no_grad()` there."
    assert "requires_grad_(False)" not in result.html() and found.advice in str(result)


def test_what_runs_under_no_grad_is_told_once():
    def forward(self, x):
        with torch.no_grad():
            inner = self.fc(x)
        return self.head(inner)

    model = making(forward)
    result = modlab.diagnose(model, torch.optim.Adam(model.parameters()), batch=batch(), loss=CROSS)
    assert [one.kind for one in result.record.findings] == ["without grad"]  # and not that the graph is cut, besides
    assert result.headline.startswith("1 finding: a part of the model runs under no_grad: ")  # and not each look at it


def test_a_layer_that_forward_freezes_is_no_failure():
    def forward(self, x):
        self.fc.requires_grad_(False)
        return Model.forward(self, x)

    assert the(diagnosed(making(forward)), "gradients").outcome == "passed"


# ---- what the loss compares ----------------------------------------------------------------------------------------------------

SPREADING = [
    nn.MSELoss(),
    nn.L1Loss(),
    nn.SmoothL1Loss(),
    nn.HuberLoss(),
    F.mse_loss,
    F.l1_loss,
    F.huber_loss,
    lambda out, target: F.mse_loss(out, target),
    lambda out, target: (out - target).square().mean(),
    lambda out, target: (target - out).abs().mean(),
]


@pytest.mark.parametrize("loss", SPREADING)
def test_a_loss_that_spreads_its_shapes_is_found(loss):
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 1), torch.randn(8, 4), torch.randn(8)
    (found,) = modlab.diagnose(model, batch=(x, y), loss=loss).findings
    assert found.kind == "shapes differ in the loss" and "8×1 with a target of shape 8, as 8×8" in found.what
    mended = eval(found.fix.partition("  #")[0], {"loss": loss, "output": model(x), "target": y})
    assert torch.allclose(mended, loss(model(x)[:, 0], y))
    result = modlab.diagnose(model, batch=(x, y[:, None]), loss=loss)
    assert result.findings == () and result.notes == ()


def test_losses_that_may_spread():
    model, x = nn.Linear(4, 1), torch.randn(8, 4)
    squeezing = lambda out, target: F.mse_loss(out.squeeze(-1), target)  # noqa: E731
    assert modlab.diagnose(model, batch=(x, torch.randn(8)), loss=squeezing).findings == ()
    (found,) = modlab.diagnose(model, batch=(x, torch.randn(1)), loss=nn.MSELoss()).findings
    assert found.severity == "careful" and "repeated to 8×1" in found.what


@pytest.mark.parametrize("loss", [nn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits])
def test_a_sigmoid_before_one_is_found(loss):
    x, y = torch.randn(8, 4), torch.ones(8)
    end = nn.Flatten(0)
    (found,) = modlab.diagnose(nn.Sequential(nn.Linear(4, 1), nn.Sigmoid(), end), batch=(x, y), loss=loss).findings
    assert (found.kind, found.severity) == ("sigmoid twice", "broken")
    assert modlab.diagnose(nn.Sequential(nn.Linear(4, 1), end), batch=(x, y), loss=loss).findings == ()
    gated = making(lambda self, x: (self.head(self.fc(x).tanh()).sigmoid() * self.head(self.fc(x))).sum(1))
    assert modlab.diagnose(gated, batch=(x, y), loss=loss).findings == ()


def test_warnings_of_the_pass_are_notes_also_those_said_once():
    def forward(self, x):
        warnings.warn("old way", DeprecationWarning, stacklevel=2)
        x = x + torch.ones(3, 2, 2).T.sum() * 0  # torch warns of this once in a process
        return Model.forward(self, x)

    always = torch.is_warn_always_enabled()
    for _ in range(2):
        told = [one.sentence for one in diagnosed(making(forward)).notes]
        assert told[0] == "the forward pass warns: old way" and len(told) == 2 and "deprecated" in told[1]
    assert torch.is_warn_always_enabled() is always


# ---- not a number --------------------------------------------------------------------------------------------------------------


def test_nan_is_found_where_it_is_made_and_nothing_passes():
    model = making(lambda self, x: self.head(self.fc(x).abs().neg().sub(1).log()))
    result = diagnosed(model)
    (found,) = result.findings
    line = model.forward.__code__.co_firstlineno
    assert found.kind == "NaN" and "Tensor.log makes the first at " in found.what and found.what.endswith(f"{HERE}:{line}")
    assert outcomes(result) == dict.fromkeys(KINDS, "not run")
    assert {one.what for one in result.experiments} == {"the output is NaN"}


def test_a_loss_alone_that_is_nan():
    result = diagnosed(making(Model.forward), loss=lambda out, target: (out.abs().neg() - 1).log().mean())
    (found,) = result.findings
    assert found.sentence.startswith("the loss is NaN: Tensor.log makes the first")
    assert {kind for kind, outcome in outcomes(result).items() if outcome == "not run"} == {"gradients", "first loss", "overfit"}


def test_a_module_whose_weights_are_nan_is_named():
    model = making(Model.forward)
    nn.init.constant_(model.head.weight, float("nan"))
    found = next(one for one in diagnosed(model).findings if one.kind == "NaN")
    assert found.path == "head" and "head (Linear), whose weights hold NaN, makes the first" in found.what


def test_nan_of_the_batch_is_not_the_models():
    x, y = batch()
    x[0, 0] = float("nan")
    (found,) = diagnosed(making(Model.forward), x, y).findings
    assert "the batch already contains NaN" in found.what


def test_nan_that_comes_with_training_is_named():
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 1)
            nn.init.constant_(self.a.weight, 0.01), nn.init.constant_(self.a.bias, 0.1)

        def forward(self, x):
            return self.a(x).log().squeeze(-1)

    result = modlab.diagnose(Late(), batch=(torch.ones(8, 4), torch.full((8,), -10.0)), loss=nn.MSELoss())
    found = the(result, "overfit")
    assert found.outcome == "failed" and "Tensor.log makes the first NaN at" in found.what and found.advice


# ---- samples -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: self.head(self.fc(x - x.mean(0)).tanh()),
        lambda self, x: self.head(self.fc(x).softmax(0)),
        lambda self, x: self.head(self.fc(x).cumsum(0)),
        lambda self, x: self.head(self.fc(x).t().reshape(-1, 8)),
    ],
    ids=["mean", "softmax", "cumsum", "view"],
)
def test_leaks_are_found(forward):
    found = the(diagnosed(making(forward)), "leak")
    assert found.outcome == "unclear" and found.what.startswith("in eval mode output") and not found.fix, "a graph or a set is meant to"
    assert found.what.endswith("; samples first mix in the forward of the model itself") and "Intended if" in found.reason
    i, j = map(int, re.findall(r"\d+", found.what))
    x = batch()[0].requires_grad_()
    making(forward)(x)[i].sin().sum().backward()
    assert i != j and x.grad[j].abs().sum() > 0


def test_batch_norm_is_no_leak_unless_it_keeps_no_statistics():
    def forward(self, x):
        return self.head(self.norm(self.fc(x)))

    assert the(diagnosed(making(forward, norm=nn.BatchNorm1d(8))), "leak").outcome == "passed"
    found = the(diagnosed(making(forward, norm=nn.BatchNorm1d(8, track_running_stats=False))), "leak")
    assert (found.outcome, found.path) == ("unclear", "norm")


class Tokens(nn.Module):
    def __init__(self, mixing):
        super().__init__()
        self.embed, self.head, self.mixing = nn.Embedding(9, 4), nn.Linear(4, 3), mixing

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + x.mean(0, keepdim=True) if self.mixing else x).mean(1)


@pytest.mark.parametrize("mixing", [False, True])
def test_leaks_of_whole_numbers_are_found_by_exchange(mixing):
    tokens = torch.arange(12).reshape(4, 3) % 9
    result = modlab.diagnose(Tokens(mixing), batch=(tokens, torch.arange(4) % 3), loss=CROSS)
    assert the(result, "leak").outcome == ("unclear" if mixing else "passed")


def test_sequence_first_is_not_judged():
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.rnn(x)[0])

    loss = lambda out, target: (out - target).square().mean()  # noqa: E731
    found = the(modlab.diagnose(Sequence(), batch=(torch.randn(5, 2, 4), torch.zeros(5, 2, 3)), loss=loss), "leak")
    assert found.outcome == "unclear" and "dimension 1" in found.what


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, adjacency):
        return adjacency @ self.fc(x)


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(4, 8)

    def forward(self, x, y):
        return self.a(x) @ self.b(y).T


class Pooled(nn.Module):
    """Mixes in a child."""

    def __init__(self):
        super().__init__()
        self.fc, self.mix = nn.Linear(4, 3), nn.Softmax(0)

    def forward(self, x):
        return self.mix(self.fc(x))


@pytest.mark.parametrize("make, more", [(Graph, torch.ones(6, 6)), (Contrast, torch.randn(6, 4)), (Pooled, None)])
def test_what_is_meant_to_mix_is_not_broken(make, more):
    x, y = batch()
    torch.manual_seed(0)
    target = torch.arange(6) if make is Contrast else y
    result = modlab.diagnose(make(), batch=((x,) if more is None else (x, more), target), loss=CROSS)
    found = the(result, "leak")
    assert found.outcome == "unclear"
    if make is Pooled:  # scores of classes may not add up over samples
        assert the(result, "softmax").outcome == "failed"
    else:
        assert result.verdict == "fine" and "worth a look: " in result.headline
    assert found.path == ("mix" if make is Pooled else "") and not found.fix


def test_looking_for_leaks_leaves_no_hook_behind():
    from torch.nn.modules import module as torch_module

    before = dict(torch_module._global_forward_hooks_with_kwargs)
    diagnosed(making(lambda self, x: self.head(self.fc(x).softmax(0))))
    assert torch_module._global_forward_hooks_with_kwargs == before


def test_one_sample_or_equal_ones_cannot_tell():
    x, y = batch(1)
    assert the(diagnosed(making(Model.forward), x, y), "leak").what == "it needs a batch of at least two samples"
    same = torch.ones(4, 3, dtype=torch.long)
    assert the(modlab.diagnose(Tokens(False), batch=(same, torch.zeros(4, dtype=torch.long)), loss=CROSS), "leak").outcome == "not run"


class Blind(nn.Module):
    def forward(self, x):
        return x * 0 + 1


def zero_head():
    model = Model()
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    return model


def dead():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.constant_(model[0].bias, -100.0)
    return model


@pytest.mark.parametrize(
    ("make", "outcome", "path", "what"),
    [
        (lambda: nn.Sequential(Model(), Blind()), "failed", "1", "the output of 1 (Blind) does not depend on its input"),
        (lambda: nn.Sequential(nn.Linear(4, 4), Blind(), Model()), "failed", "1", "the output of 1 (Blind) does not depend on its input"),
        (lambda: making(lambda self, x: self.head.bias.expand(len(x), 3) * 1), "failed", "", "the output does not depend on the input"),
        (lambda: making(lambda self, x: torch.zeros(len(x), 3) + self.fc.bias.sum()), "failed", "", "does not depend on the input"),
        (zero_head, "passed", "", "with these it depends on no input of this batch"),
        (dead, "unclear", "", "in this batch no output depends on its input"),
        (lambda: making(lambda self, x: self.head(self.fc(x.sign()))), "passed", "", "depends only on its own input"),
    ],
    ids=["product", "inside", "bias", "constant", "zero head", "dead", "sign"],
)
def test_an_output_that_depends_on_no_input_has_not_passed(make, outcome, path, what):
    model = make()
    before = identity.everything(model)
    found = the(diagnosed(model), "leak")
    assert (found.outcome, found.path) == (outcome, path) and what in found.what
    assert identity.everything(model) == before


def test_whole_numbers_that_do_not_matter():
    class Deaf(Tokens):
        def forward(self, tokens):
            return super().forward(tokens) * 0

    tokens = torch.arange(12).reshape(4, 3) % 9
    found = the(modlab.diagnose(Deaf(False), batch=(tokens, torch.arange(4) % 3), loss=CROSS), "leak")
    assert found.outcome == "failed" and found.what == "the output does not depend on the input"


# ---- backward hooks ------------------------------------------------------------------------------------------------------------


def turning(change, *, on_tensor=False):
    class Hooked(Model):
        def forward(self, x):
            middle = torch.tanh(self.fc(x))
            if on_tensor and middle.requires_grad:
                middle.register_hook(change)
            return self.head(middle)

    torch.manual_seed(0)
    model = Hooked()
    if not on_tensor:
        model.head.register_full_backward_hook(lambda module, taken, given: tuple(map(change, taken)))
    return model


@pytest.mark.parametrize("on_tensor", [True, False])
@pytest.mark.parametrize("change", [torch.neg, torch.ones_like, torch.zeros_like, lambda gradient: gradient.roll(1, 0)])
def test_hooks_that_change_where_gradients_point(change, on_tensor):
    model = turning(change, on_tensor=on_tensor)
    stores = [[*one._backward_hooks.values()] for one in model.modules()]
    result = diagnosed(model)
    found = the(result, "hooks")
    assert (found.kind, found.outcome) == ("gradients overwritten", "unclear") and found.path.startswith("fc")
    assert f"hooks on {'tensors between modules' if on_tensor else 'head'} replace the gradient" in found.what
    assert outcomes(result)["leak"] == "passed"
    assert [[*one._backward_hooks.values()] for one in model.modules()] == stores


@pytest.mark.parametrize("on_tensor", [True, False])
def test_hooks_that_look_or_scale(on_tensor):
    assert the(diagnosed(turning(lambda gradient: 3 * gradient, on_tensor=on_tensor)), "hooks").outcome == "passed"


def test_a_reversal_by_which_the_batch_is_not_learned():
    model = turning(torch.neg)
    model.head.requires_grad_(False)
    result = diagnosed(model)
    assert outcomes(result)["overfit"] == outcomes(result)["hooks"] == "failed"
    assert result.headline.startswith("2 checks failed: all 2 parameters: hooks on head replace the gradient;")


# ---- the first loss ------------------------------------------------------------------------------------------------------------


def test_the_guess_is_the_logarithm_of_the_classes():
    found = the(diagnosed(making(Model.forward)), "first loss")
    numbers = dict(found.numbers)
    assert math.isclose(numbers["guess"], math.log(3), rel_tol=1e-6) and found.outcome == "passed"
    x, y = batch()
    torch.manual_seed(0)
    assert math.isclose(numbers["loss"], CROSS(making(Model.forward)(x), y).item(), rel_tol=1e-6)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(label_smoothing=0.1), nn.CrossEntropyLoss(reduction="sum"), F.cross_entropy])
def test_forms_of_cross_entropy(loss):
    assert the(diagnosed(making(Model.forward), loss=loss), "first loss").outcome == "passed"


def test_first_losses_that_are_wrong():
    found = the(diagnosed(making(lambda self, x: 100 * Model.forward(self, x))), "first loss")
    assert found.outcome == "unclear" and "a guess gives 1.1 for 3 classes" in found.what and not found.fix
    found = the(diagnosed(making(lambda self, x: Model.forward(self, x).softmax(1))), "first loss")
    assert found.outcome == "failed" and "already probabilities" in found.what
    found = the(diagnosed(making(Model.forward), loss=nn.NLLLoss()), "first loss")
    assert found.outcome == "failed" and "log-probabilities" in found.what
    good = making(lambda self, x: Model.forward(self, x).log_softmax(1))
    assert the(diagnosed(good, loss=F.nll_loss), "first loss").outcome == "passed"


def test_other_losses_have_no_known_guess():
    assert the(diagnosed(making(Model.forward), target=torch.zeros(6, 3), loss=nn.MSELoss()), "first loss").outcome == "not run"


# ---- the same again ------------------------------------------------------------------------------------------------------------


def test_functional_dropout_is_found_where_it_is():
    model = nn.Sequential(nn.Linear(4, 8), making(lambda self, x: F.dropout(x)), nn.Linear(8, 3))
    found = the(diagnosed(model), "repeat")
    assert (found.outcome, found.path) == ("failed", "1") and "random numbers are drawn in 1 (Case), with F.dropout" in found.what
    found = the(diagnosed(making(lambda self, x: self.head(F.dropout(self.fc(x))))), "repeat")
    assert found.path == "" and found.what.endswith("random numbers are drawn in the forward of Case, with F.dropout")
    assert found.fix == "F.dropout(x, p, training=self.training)"
    assert the(diagnosed(making(lambda self, x: self.head(self.fc(x)), drop=nn.Dropout())), "repeat").outcome == "passed"


def test_a_buffer_that_goes_on_in_eval_mode():
    from modlab.lessons.note import RunningMean

    model = nn.Sequential(nn.Linear(4, 4), RunningMean(4))
    result = modlab.diagnose(model, batch=(torch.ones(4), torch.zeros(4)), loss=nn.MSELoss())
    found = the(result, "repeat")
    assert (found.outcome, found.path) == ("failed", "1.mean") and "moves in eval mode too" in found.what
    assert torch.equal(model[1].mean, torch.zeros(4)) and model[1].mean.grad_fn is None


class Counts(Model):
    def forward(self, x):
        self.calls += 1
        return self.head(self.fc(x)) * self.calls


class Stays(nn.Dropout):
    def train(self, mode=True):
        return super().train(True)


def attention(self, x):
    x = x[:, None]
    return self.head(self.fc(F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)[:, 0]))


class Drops(nn.Module):
    """It counts its calls, and nothing depends on that."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return F.dropout2d(x[:, :, None, None])[:, :, 0, 0]


TICKS = []
OUTSIDE = torch.Generator()


def ticking(self, x):
    TICKS.append(0)
    return self.head(self.fc(x)) * len(TICKS)


def hooked(model):
    model.fc.register_forward_hook(lambda module, args, output: F.dropout(output))
    return model


def forward_with(more):
    return lambda: making(lambda self, x: more(self, self.head(self.fc(x))))


SDPA = "F.scaled_dot_product_attention(q, k, v, dropout_p=p if self.training else 0.0)"
DROP2 = "F.dropout2d(x, p, training=self.training)"
UNEQUAL = {  # model, path, what, reason, fix, advice
    "counter": (lambda: Counts(calls=1), "calls", "calls moves in eval mode too", "", "", ""),
    "randn": (forward_with(lambda self, x: x + torch.randn(3)), "", "forward of Case, with randn", "Fine if the model", "", ""),
    "python": (forward_with(lambda self, x: x * random.random()), "", "from Python's random", "Fine if the model", "", ""),
    "outside": (forward_with(lambda self, x: x + torch.rand(3, generator=OUTSIDE)), "", "Case, with rand", "Fine if the model", "", ""),
    "ticks": (lambda: making(ticking), "", "the forward of Case gives different outputs for the same input", "a counter", "", ""),
    "hidden": (
        lambda: making(lambda self, x: self.head(self.fc(self.parts[0](x))), parts=[nn.Dropout()]),
        "",
        "by a Dropout that is not registered",
        "eval() reaches only registered modules",
        "",
        "Register the Dropout",
    ),
    "stays": (lambda: nn.Sequential(Model(), Stays()), "1", "1 (Stays), with F.dropout", "eval() left it in training mode.", "", ""),
    "attention": (lambda: making(attention), "", "with scaled_dot_product_attention", "dropout_p drops in every mode", SDPA, ""),
    "hook": (
        lambda: hooked(Model()),
        "fc",
        "by the forward hook hooked.<locals>.<lambda>",
        "a hook must check it",
        "",
        "module.training",
    ),
    "both": (lambda: nn.Sequential(Model(), Drops()), "1", "1 (Drops), with F.dropout2d", "drops in every mode", DROP2, ""),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_the_fix_is_that_of_the_cause(name):
    make, path, what, reason, fix, advice = UNEQUAL[name]
    model = make()
    before, state = identity.everything(model), OUTSIDE.get_state()
    found = the(diagnosed(model), "repeat")
    assert identity.everything(model) == before and torch.equal(OUTSIDE.get_state(), state)
    assert (found.outcome, found.path, found.fix) == ("unclear" if reason.startswith("Fine") else "failed", path, fix)
    assert found.what.startswith("two passes in eval mode differ") and what in found.what
    assert reason in found.reason and advice in found.advice and bool(advice) is bool(found.advice)


def test_coins_that_fall_alike_are_random_numbers_too(monkeypatch):
    """Another seed may let a coin fall as it fell before: what differs between two passes is no state then."""
    heads = next(seed for seed in range(99) if (coin := random.Random(seed)).random() < 0.5 < coin.random() and coin.random() < 0.5)
    monkeypatch.setattr(repeated_passes, "start_elsewhere", lambda: random.seed(heads))
    model = making(lambda self, x: self.head(self.fc(x)) * (1 if random.random() < 0.5 else -1))
    bench, before = Bench(Subject(model), torch.randn(8, 4), None, None), random.getstate()
    random.seed(heads)
    try:
        found = repeated_passes.repeat(bench)
    finally:
        random.setstate(before)
    assert (found.kind, found.facts["source"]) == ("drawn", "Python's random")


def test_a_coin_is_no_state_that_a_copy_lacks():
    """Passes of the model and of its copy draw the same numbers, of Python's as well."""
    model = making(lambda self, x: self.head(self.fc(x)) * (1 if random.random() < 0.5 else -1))
    assert [the(diagnosed(model), "round trip").outcome for _ in range(8)] == ["passed"] * 8


# ---- copies --------------------------------------------------------------------------------------------------------------------


def test_what_is_not_saved_does_not_come_back():
    model = making(lambda self, x: self.adapters[0](Model.forward(self, x)))
    assert the(diagnosed_with(model), "round trip").outcome == "failed"
    assert the(diagnosed_with(model), "round trip").places == ("adapters[0].weight", "adapters[0].bias")


def diagnosed_with(model):
    model.adapters = [nn.Linear(3, 3)]
    torch.manual_seed(0)
    nn.init.normal_(model.adapters[0].weight)
    return diagnosed(model)


class Centred(Model):
    """Takes off a mean that training follows, and that is kept in different ways."""

    def __init__(self, how):
        super().__init__()
        self.how, self.steps = how, 0
        if how in ("saved", "unsaved"):
            self.register_buffer("mean", torch.zeros(4), persistent=how == "saved")
        else:
            self.mean = {"tensor": torch.zeros(4), "number": 0.0, "list": [0.0]}[how]

    def forward(self, x):
        if self.training:
            self.steps += 1
            if self.how == "list":
                self.mean[0] += 0.1
            else:
                self.mean = self.mean + (0.1 if self.how == "number" else x.mean(0) + 0.1)
        return super().forward(x - (self.mean[0] if self.how == "list" else self.mean))


@pytest.mark.parametrize("how", ["saved", "unsaved", "tensor", "number", "list"])
def test_what_moves_in_training_and_is_not_saved_does_not_come_back(how):
    """A count that moves too, and that nothing depends on, is not to blame."""
    torch.manual_seed(0)
    model = Centred(how)
    found = the(diagnosed(model), "round trip")
    assert model.steps == 0 and float(torch.as_tensor(model.mean).sum()) == 0, "put back"
    if how == "saved":
        assert found.outcome == "passed"
    elif how == "list":  # that it differs is certain, and not by what
        assert found.outcome == "failed" and "is not in it, or not loaded from it" in found.what and not found.path
    else:
        assert (found.outcome, found.path, found.places) == ("failed", "mean", ())
        assert found.what == "a copy that loads the state_dict differs: mean moves in training, and is not in it"


def test_a_hidden_parameter_that_nothing_uses_is_not_to_blame():
    model = Centred("unsaved")
    model.spare = [nn.Linear(4, 4)]
    assert the(diagnosed(model), "round trip").path == "mean"
    unused = making(Model.forward)
    unused.spare = [nn.Linear(4, 4)]
    assert the(diagnosed(unused), "round trip").outcome == "passed"


def test_a_state_dict_that_forgets():
    class Forgetful(nn.Linear):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            destination[prefix + "weight"], destination[prefix + "bias"] = torch.zeros(3, 8), self.bias.detach()

    model = making(Model.forward, head=Forgetful(8, 3))
    found = the(diagnosed(model), "round trip")
    assert found.outcome == "failed" and "is not in it, or not loaded from it" in found.what


def test_a_model_that_cannot_be_copied():
    class Single(Model):
        def __deepcopy__(self, memo):
            raise TypeError("only one of me")

    found = outcomes(diagnosed(Single()))
    assert (found["round trip"], found["overfit"]) == ("not run", "not run") and found["gradients"] == "passed"


def test_what_cannot_learn():
    model = making(lambda self, x: self.head(self.fc(x).tanh()) * 0)
    assert the(diagnosed(model), "overfit").outcome == "failed"
    exploding = making(lambda self, x: Model.forward(self, x) * self.scale, scale=nn.Parameter(torch.tensor(float("nan"))))
    result = diagnosed(exploding)
    assert the(result, "overfit").outcome == "not run" and "NaN" in [one.kind for one in result.findings]


@pytest.mark.parametrize(
    ("loss", "outcome", "what"),
    [
        (lambda output, target: CROSS(output, target) - 10, "unclear", "the loss falls, but not by half"),
        (lambda output, target: -output.softmax(-1).gather(1, target[:, None]).mean(), "passed", "the loss falls within"),
        (lambda output, target: output.sum() * 0 - 1, "failed", "the loss does not fall"),
        (lambda output, target: output.sum() * 0, "passed", "the loss is 0"),
    ],
)
def test_a_loss_below_zero_falls_too(loss, outcome, what):
    """A log-likelihood, a similarity: half of a negative number is more than it."""
    found = the(diagnosed(making(Model.forward), loss=loss), "overfit")
    assert found.outcome == outcome and found.what.startswith(what)


@pytest.mark.parametrize("width", [4, 40, 400], ids="to {}".format)
def test_what_dropout_alone_moves_is_not_learnt(width):
    """Of sixty losses that are drawn, the least lies well below the first."""

    def forward(self, x):
        return Model.forward(self, x) * 0 + nn.functional.dropout(torch.ones(len(x), width), 0.5, self.training).mean(1, keepdim=True)

    found = the(diagnosed(making(forward), loss=lambda output, target: output.square().mean()), "overfit")
    assert (found.kind, found.outcome) == ("falls by chance", "unclear"), found.what


def test_what_is_learnt_through_dropout_is_learnt():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 3))
    assert the(diagnosed(model), "overfit").kind == "learnt"


def test_sparse_gradients_are_learnt_from():
    """Adam takes none, and that is not the model's fault."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(20, 8, sparse=True), nn.Flatten(), nn.Linear(24, 3))
    assert the(diagnosed(model, torch.arange(18).reshape(6, 3)), "overfit").outcome == "passed"
    assert model[0].weight.grad is None


def test_learning_a_mean_is_not_learning():
    class Deaf(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 1)

        def forward(self, x):
            return self.fc(x * 0 + 1)

    torch.manual_seed(0)
    result = modlab.diagnose(Deaf(), batch=(torch.randn(16, 4), torch.randn(16, 1) + 4), loss=nn.MSELoss())
    found = the(result, "overfit")
    numbers = dict(found.numbers)
    assert numbers["least"] <= 0.5 * numbers["first"], "the loss falls far enough, and that says nothing"
    assert found.outcome == "unclear" and "one answer for all samples" in found.what
    torch.manual_seed(0)
    hearing = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
    result = modlab.diagnose(hearing, batch=(torch.randn(16, 4), torch.randn(16, 1) + 4), loss=nn.MSELoss())
    assert the(result, "overfit").outcome == "passed"


def test_slow_models_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(overfit_one_batch, "LIMIT_S", 0.0)
    assert the(diagnosed(making(Model.forward)), "overfit").outcome == "not run"


# ---- models that fail ----------------------------------------------------------------------------------------------------------


def test_a_forward_that_fails_is_one_finding_with_one_line():
    model = making(lambda self, x: self.head(self.fc(x)), head=nn.Linear(5, 3))
    result = diagnosed(model)
    (found,) = result.findings
    assert (found.path, found.kind, found.severity) == ("head", "forward fails", "broken")
    assert "mat1 and mat2 shapes cannot be multiplied (6x8 and 5x3)" in found.what and "\n" not in found.what
    assert found.what.startswith("stops at head (Linear) with RuntimeError") and "5" in found.reason and found.advice
    assert set(outcomes(result).values()) == {"not run"} and len(result.experiments) == 6


def test_a_loss_that_fails_or_gives_no_number():
    assert [one.kind for one in diagnosed(making(Model.forward), target=torch.zeros(2)).findings] == ["loss fails"]
    (found,) = diagnosed(making(Model.forward), loss=nn.CrossEntropyLoss(reduction="none")).findings
    assert "gives a tensor of shape (6,), but must give one number" in found.what


def test_a_batch_of_one_and_batch_norm():
    (found,) = diagnosed(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), *batch(1)).findings
    assert found.path == "1" and "drop_last=True" in found.reason
    spread = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(18, 3))
    result = modlab.diagnose(spread, batch=(torch.randn(1, 1, 5, 5), torch.tensor([1])), loss=CROSS)
    assert ("1", "batch of one") in [(one.path, one.kind) for one in result.notes]


@pytest.mark.parametrize("name", ["meta", "lazy"])
def test_what_has_no_values_is_not_run(name):
    result = modlab.diagnose(zoo.named(name).build(), batch=(torch.ones(2, 8), torch.zeros(2)), loss=CROSS)
    assert set(outcomes(result).values()) == {"not run"} and result.findings == ()


def test_inputs_by_place_and_by_name():
    model = making(lambda self, a, b: self.head(self.fc(a + b).tanh()))
    x, y = batch()
    for inputs in ((x, x), [x, x], {"a": x, "b": x}):
        assert outcomes(modlab.diagnose(model, batch=(inputs, y), loss=CROSS)) == dict.fromkeys((*KINDS, *FURTHER), "passed")


@pytest.mark.parametrize("name", [name for name, (_, given, _) in ARCHITECTURES.items() if given is not None])
def test_known_architectures_pass(name, monkeypatch):
    monkeypatch.setattr(overfit_one_batch, "STEPS", 8)  # learning by heart is tried with those that are fast
    make, given, loss = ARCHITECTURES[name]
    torch.manual_seed(0)
    model = make()
    x, y = given()
    before = identity.everything(model)
    result = modlab.diagnose(model, torch.optim.AdamW(model.parameters()), batch=(x, y), loss=loss)
    assert identity.everything(model) == before
    doubtful = [one for one in result.experiments if one.outcome in ("failed", "unclear") and one.name != "overfit"]
    assert result.findings == () and not doubtful, str(result)


@pytest.mark.parametrize("name", ["lenet", "gpt", "lstm tagger", "vae"])
def test_small_ones_learn_a_batch_by_heart(name):
    make, given, loss = ARCHITECTURES[name]
    torch.manual_seed(0)
    assert the(modlab.diagnose(make(), batch=given(), loss=loss), "overfit").outcome == "passed"


# ---- everything as it was ------------------------------------------------------------------------------------------------------


def everything(model, *tensors):
    return identity.everything(model), [identity.of_tensor(tensor) for tensor in tensors], torch.is_grad_enabled()


class Restless(nn.Module):
    """Changes whatever a forward pass can change."""

    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.drop = nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.1)
        self.register_buffer("steps", torch.zeros(()))
        self.history, self.seen, self.count, self.cache = [], {}, 0, None
        self.generator = torch.Generator().manual_seed(1)
        self.raises = None

    def forward(self, x):
        self.count += 1
        self.history.append(self.count)
        self.seen[self.count] = True
        self.cache = x
        self.steps += 1
        self.steps = self.steps + self.fc.weight.detach().sum() * 0
        self.fc.weight.data.mul_(1.0000001)
        self.fc.requires_grad_(True)
        x.add_(torch.rand(1, generator=self.generator) * 0 + np.random.rand() * 0 + random.random() * 0)
        self.extra = nn.Linear(2, 2)
        self.norm.train()
        self.register_forward_hook(lambda *_: None)
        torch.set_grad_enabled(True)
        if self.raises is not None and self.count >= self.raises:
            raise KeyError("restless")
        return self.drop(self.norm(self.fc(x)))


@pytest.mark.parametrize("raises", [None, 1, 2, 3, 7])
@pytest.mark.parametrize("mode", ["train", "eval", "mixed"])
def test_everything_is_as_it_was(raises, mode):
    torch.manual_seed(0)
    model = Restless().train(mode == "train")
    model.norm.training = mode != "eval"
    model.raises = raises
    model.fc.weight.grad = torch.ones(3, 4)
    model.fc.bias.requires_grad_(False)
    x, y = batch()
    history, seen, generator = list(model.history), dict(model.seen), model.generator.get_state()
    before = everything(model, x, y)
    with torch.no_grad():
        result = modlab.diagnose(model, batch=(x, y), loss=CROSS)
        assert not torch.is_grad_enabled()
    assert everything(model, x, y) == before
    assert (model.history, model.seen, model.count, model.cache) == (history, seen, 0, None)
    assert torch.equal(model.generator.get_state(), generator)
    assert tuple(outcomes(result))[:6] == KINDS


def test_what_the_loss_holds_of_others_gets_no_gradient():
    other = nn.Parameter(torch.ones(3))
    model = making(lambda self, x: Model.forward(self, x.clone()), aux=nn.Linear(4, 4))
    result = diagnosed(model, loss=lambda out, target: CROSS(out, target) + other.square().sum() * 0.01)
    assert other.grad is None and the(result, "gradients").path == "aux" and "not called" in the(result, "gradients").reason


def test_an_interruption_leaves_everything_as_it_was():
    class Stopped(Model):
        def forward(self, x):
            self.training = False
            torch.rand(3)
            raise KeyboardInterrupt

    model = Stopped()
    before = everything(model)
    with pytest.raises(KeyboardInterrupt):
        diagnosed(model)
    assert everything(model) == before


def test_no_global_hook_and_no_warning_is_left(capsys):
    from torch.nn.modules import module

    stores = [value for name, value in vars(module).items() if name.startswith("_global") and isinstance(value, dict)]

    def loud(self, x):
        print("step")
        warnings.warn("loud", stacklevel=1)
        return self.head(F.dropout(self.fc(x)))

    before = [len(store) for store in stores]
    diagnosed(making(loud))
    assert [len(store) for store in stores] == before and capsys.readouterr().out == ""


SKIPPED = {"attributes_that_raise": "holds a list without an end, which no copy comes through"}


@pytest.mark.parametrize("case", [case for case in zoo.CASES if not case.large], ids=str)
def test_the_zoo_survives(case):
    if case.id in SKIPPED:
        pytest.skip(SKIPPED[case.id])
    x, y = torch.linspace(-1, 1, 12).reshape(3, 4), torch.zeros(3)
    model = case.build()
    before = everything(model, x, y)

    def loss(output, _):
        return output.float().square().mean() if isinstance(output, torch.Tensor) else output

    first = modlab.diagnose(model, batch=(x, y), loss=loss)
    assert everything(model, x, y) == before
    assert tuple(outcomes(first))[:6] == KINDS and str(first) == str(modlab.diagnose(model, batch=(x, y), loss=loss))
    assert first.html(bundle=False) and first.to_dict()


def test_nothing_outlives_the_view():
    import gc
    import weakref

    model = making(lambda self, x: self.head(self.fc(x).detach()))
    x, y = batch()
    result = modlab.diagnose(model, batch=(x, y), loss=CROSS)
    watched = [weakref.ref(thing) for thing in (model, model.fc.weight, x, y)]
    del model, x, y
    gc.collect()
    assert [ref() for ref in watched[:2]] == [None] * 2 and str(result)
    del result  # which keeps the batch, for try_fix
    gc.collect()
    assert [ref() for ref in watched] == [None] * 4


class Tagger(nn.Module):
    def __init__(self, in_order=False):
        super().__init__()
        self.embed, self.rnn, self.fc, self.in_order = nn.Embedding(20, 8), nn.GRU(8, 6, batch_first=True), nn.Linear(6, 4), in_order

    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(x), lengths, batch_first=True, enforce_sorted=self.in_order)
        return self.fc(nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0])


@pytest.mark.parametrize("in_order", [False, True])
def test_sequences_of_lengths_are_no_failure(in_order):
    """One sample's length in another's place gives an output of another size, or is refused where lengths are to be sorted."""
    torch.manual_seed(0)
    x, lengths, y = torch.randint(1, 20, (3, 5)), torch.tensor([5, 4, 3]), torch.randint(0, 4, (3, 5))
    found = diagnosed(Tagger(in_order), (x, lengths), y, lambda output, target: F.cross_entropy(output.flatten(0, 1), target.flatten()))
    assert found.verdict == "fine" and outcomes(found)["leak"] == "not run" and "in place of another's" in the(found, "leak").what


def test_a_model_that_checkpoints_with_reentrance_is_healthy():
    def forward(self, x):
        return self.head(torch.utils.checkpoint.checkpoint(lambda h: h.tanh(), self.fc(x), use_reentrant=True))

    found = diagnosed(making(forward))
    assert found.verdict == "fine" and outcomes(found)["gradients"] == "not run" and "use_reentrant" in the(found, "gradients").what


def test_one_target_for_all_asks_for_one_answer():
    found = diagnosed(making(lambda self, x: self.head(self.fc(x).tanh())), target=torch.zeros(6, 3), loss=nn.MSELoss())
    assert outcomes(found)["overfit"] == "passed"


@pytest.mark.parametrize(
    "distance",
    [
        lambda a, b: F.pairwise_distance(a, b),
        lambda a, b: (a - b).norm(dim=1),
        lambda a, b: (a - b).square().sum(1),
        lambda a, b: (a - b).square().sum(1, keepdim=True).sqrt().squeeze(1),
    ],
    ids=["pairwise_distance", "norm", "sum of squares", "root of it"],
)
def test_how_far_two_are_apart_is_no_score(distance):
    """Whether near means yes is up to the loss; the same loss of a score is upside down."""

    def far(self, x):
        return distance(self.fc(x), self.fc(x.flip(0)))

    def score(self, x):
        return self.fc(x).sum(1)

    target = torch.tensor([0.0, 1, 0, 1, 1, 0])
    found, other = (
        diagnosed(making(forward), target=target, loss=lambda y, t: F.binary_cross_entropy_with_logits(3 - y, t))
        for forward in (far, score)
    )
    assert "aim" not in outcomes(found) and outcomes(other)["aim"] == "failed"


def test_a_model_that_samples_may_mean_it():
    """A variational autoencoder: nothing certain is wrong, and the round trip cannot be told."""

    def forward(self, x):
        h = self.fc(x)
        return self.head(h + torch.randn_like(h))

    found = diagnosed(making(forward))
    assert found.verdict == "fine" and outcomes(found)["repeat"] == "unclear" and outcomes(found)["round trip"] == "not run"
    assert "with randn_like" in the(found, "repeat").what and "Fine if the model is meant to sample" in the(found, "repeat").reason


def test_chance_of_pythons_is_no_leak():
    """Teacher forcing: of two passes with other inputs both toss the same coins."""

    def forward(self, x):
        h = self.embed(x)
        for _ in range(8):
            h = h * 2 if random.random() < 0.5 else h * 3
        return self.head(h)

    model = making(forward, embed=nn.Embedding(9, 8))
    found = diagnosed(model, torch.arange(6))
    assert outcomes(found)["leak"] == "passed" and outcomes(found)["repeat"] == "unclear"


def test_a_nested_batch_is_no_failure():
    def forward(self, x):
        return self.head(torch.nested.to_padded_tensor(self.fc(x).relu(), 0.0).sum(1))

    x = torch.nested.nested_tensor([torch.randn(n, 4) for n in (2, 5, 3)], layout=torch.jagged)
    found = diagnosed(making(forward), x, torch.tensor([0, 1, 2]))
    assert found.verdict == "fine" and outcomes(found)["leak"] == "not run"


def test_a_hook_that_holds_the_model_itself_holds_the_copy_in_a_copy():
    """An adapter that is added by a hook: the hook of a copy runs the adapter of the copy."""
    model = making(lambda self, x: self.head(self.fc(x).tanh()), adapter=nn.Linear(4, 8))
    model.fc.register_forward_hook(lambda module, inputs, output: output + model.adapter(inputs[0]))
    model.fc.requires_grad_(False), model.head.requires_grad_(False)
    found = diagnosed(model)
    assert found.verdict == "fine" and outcomes(found)["gradients"] == "passed" and outcomes(found)["overfit"] != "not run"


def test_an_exported_graph_has_no_modes():
    x, _ = batch()
    exported = torch.export.export(nn.Sequential(nn.Linear(4, 3)), (x,)).module()
    found = diagnosed(exported)
    assert found.verdict == "fine" and outcomes(found)["repeat"] == outcomes(found)["leak"] == outcomes(found)["round trip"] == "not run"
    with pytest.raises(modlab.ModlabError, match=r"this GraphModule has none: .*\n.*modlab\.compare\(net, exported\)\(x\)"):
        modlab.compare(exported)(x)


# ---- functions with a backward of their own ------------------------------------------------------------------------------------


def own_function(forward, backward, *, times=1):
    """A function of a name, and a model that calls it once or several times."""

    class Squash(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, gradient):
            return backward(gradient, *ctx.saved_tensors)

    class Own(Model):
        def forward(self, x):
            middle = self.fc(x)
            for _ in range(times):
                middle = Squash.apply(middle)
            return self.head(middle)

    torch.manual_seed(0)
    return Own()


@pytest.mark.parametrize(
    ("forward", "backward", "times", "outcome"),
    [
        (torch.tanh, lambda g, x: -g * (1 - x.tanh() ** 2), 1, "unclear"),
        (torch.tanh, lambda g, x: g * (x.tanh() ** 2 - 1), 3, "unclear"),
        (torch.tanh, lambda g, x: -g * (1 - x.tanh() ** 2), 2, "passed"),  # two turns are none
        (torch.clone, lambda g, x: -g, 1, "unclear"),  # the reversal of a gradient
        (torch.tanh, lambda g, x: g * (1 - x.tanh() ** 2), 1, "passed"),
        (torch.relu, lambda g, x: g, 1, "passed"),  # a leak in the gradient alone
        (torch.round, lambda g, x: g, 1, "passed"),  # straight through
        (torch.sign, lambda g, x: g * (x.abs() < 1), 1, "passed"),
    ],
    ids=["turned", "turned three times", "twice", "reversal", "right", "guided", "round", "sign"],
)
def test_a_backward_by_hand_is_compared_with_finite_differences(forward, backward, times, outcome):
    model = own_function(forward, backward, times=times)
    before = identity.everything(model)
    result = diagnosed(model)
    found = the(result, "gradcheck")
    assert found.outcome == outcome and outcomes(result)["leak"] == "passed"
    if outcome == "unclear":
        assert (found.kind, found.facts["functions"], found.facts["places"]) == (
            "gradients overwritten",
            ("Squash",),
            ("fc.weight", "fc.bias"),
        )
        assert "fc (2 parameters): the gradient is reversed; a small step against it makes the loss greater" in found.what
        assert "torch.autograd.gradcheck(Squash.apply" in found.fix
    else:
        assert re.fullmatch(r"of \d gradients? whose slope could be measured, none is reversed", found.what)
    assert identity.everything(model) == before


def test_there_is_nothing_to_compare_where_autograd_knows_each_backward():
    for model in (Model(), nn.Sequential(nn.Linear(4, 3))):
        assert "gradcheck" not in outcomes(diagnosed(model))


def test_a_hook_that_turns_gradients_is_not_told_of_the_function_beside_it():
    model = own_function(torch.tanh, lambda g, x: g * (1 - x.tanh() ** 2))
    model.head.register_full_backward_hook(lambda module, taken, given: (-taken[0],))
    result = outcomes(diagnosed(model))
    assert result["hooks"] == "unclear" and result["gradcheck"] == "passed"


def test_a_training_that_is_stuck_by_a_backward_by_hand():
    torch.manual_seed(0)
    model, x = own_function(torch.tanh, lambda g, x: -g * (1 - x.tanh() ** 2)), torch.randn(64, 4)
    y = x[:, :3].argmax(1).roll(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    with modlab.watch(model, optimizer) as w:
        for _ in range(80):
            optimizer.zero_grad()
            CROSS(model(x), y).backward()
            optimizer.step()
    found = the(w.diagnose(), "gradcheck")
    assert (found.kind, found.outcome) == ("gradients overwritten", "failed")
