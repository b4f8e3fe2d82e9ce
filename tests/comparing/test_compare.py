"""`modlab.compare`: what it says is what PyTorch does, and the model is afterwards what it was, bit for bit."""

import collections
import contextlib
import copy
import gc
import random
import re
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import fusion

import modlab
from modlab.errors import LazyModelError, MatchError, NotAModuleError, PathNotFoundError, QuestionError, UnrepeatableInputError
from modlab.lessons import note
from tests import zoo
from tests.test_identity import bits, everything


class Modal(nn.Module):
    def forward(self, x):
        return x + 1.0 if self.training else x


class Careless(nn.Module):
    """Its dropout does not ask for the mode."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x):
        return self.l(F.dropout(x))


class Made(nn.Module):
    """What a function makes of it."""

    def __init__(self, function, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def chain():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), Modal(), nn.Linear(8, 2))


# ---- one model: what is said ---------------------------------------------------------------------------------------------------


def test_a_mix_of_everything():
    comparison = modlab.compare(chain())(torch.randn(16, 4))
    assert comparison.first == "1" and comparison.differs
    assert [row.path for row in comparison.records if row.acts_by_mode] == ["1", "3", "4"]
    assert [row.path for row in comparison.records if row.ignores_mode] == []
    assert [row.path for row in comparison.records if row.draws] == ["3"]
    assert [row.path for row in comparison.records if row.random] == ["", "3", "4", "5"]
    assert comparison["0"].equal and comparison["0"].max_abs == 0
    assert [move.name for move in comparison["1"].moved] == ["running_mean", "running_var", "num_batches_tracked"]
    assert {move.side for move in comparison["1"].moved} == {"train"}
    assert comparison.headline.startswith("Train and eval differ from 1 (BatchNorm1d) on: by up to ")
    assert comparison.headline.endswith("; it moved 3 buffers in training mode.")


def test_numbers_are_those_of_torch():
    net, x = chain(), torch.randn(16, 4)
    state, start = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    outputs = []
    for mode in (True, False):
        net.load_state_dict(state)
        torch.set_rng_state(start)
        outputs.append(net.train(mode)(x).detach().double())
    net.load_state_dict(state)
    torch.set_rng_state(start)
    row = modlab.compare(net)(x)[""]
    left, right = outputs
    assert row.max_abs == pytest.approx((left - right).abs().max().item())
    assert row.relative_l2 == pytest.approx(((left - right).norm() / left.norm()).item())
    assert row.cosine == pytest.approx(F.cosine_similarity(left.flatten(), right.flatten(), 0).item())
    assert row.count == 32 and row.changed == int((left != right).sum())


def test_each_module_alone():
    x = torch.randn(8, 4)
    assert modlab.compare(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))(x).headline == "The same in both modes, bit for bit."
    assert modlab.compare(nn.Dropout(0.0))(x).first is None
    assert modlab.compare(nn.Dropout())(x).first == ""
    assert modlab.compare(Modal())(x)[""].max_abs == pytest.approx(1)
    assert modlab.compare(Modal())(x)[""].random == ()
    unsure = modlab.compare(nn.BatchNorm1d(4, track_running_stats=False))(x)
    assert not unsure.differs and "uses the batch's own in both modes" in str(unsure)


def test_functional_dropout_is_random_in_eval_mode_too():
    comparison = modlab.compare(nn.Sequential(nn.Linear(4, 4), Careless()))(torch.randn(8, 4))
    row = comparison["1"]
    assert row.ignores_mode and row.random == ("train", "eval") and row.draws == ("train: torch", "eval: torch")
    assert not comparison["1.l"].draws
    assert comparison.headline.startswith("Still random in eval mode: 1 (Careless) draws random numbers there too.")


def test_random_in_eval_mode_and_the_same_by_equal_numbers_is_no_contradiction():
    net = nn.Sequential(nn.Linear(4, 4), Careless())
    comparison = modlab.compare(net)(torch.randn(8, 4))
    assert comparison.headline.endswith("With equal random numbers both modes give the same, bit for bit: it ignores the mode.")
    text = str(comparison)
    assert "random in eval mode too; not reached by eval(); equal with equal random numbers" in text
    assert "1.l" in text and [line.split("  ")[-1] for line in text.splitlines() if line.startswith("0 ")] == ["equal"]
    both = modlab.compare(Made(lambda self, x: self.b(self.a(x)), a=Careless(), b=nn.Dropout()))(torch.randn(8, 4))
    assert both.headline.startswith("Still random in eval mode: a draws") and "listen" not in both.headline


@pytest.mark.parametrize("start", [0.0, torch.zeros(4)], ids=["number", "tensor"])
def test_a_plain_attribute_that_the_next_pass_uses_is_state(start):
    """What a module only keeps (a count, its last output) moves too, and is none."""

    def forward(self, x):
        self.count += 1
        self.seen = x.detach()[0]
        if self.used:
            self.mean = self.mean + (x.detach().mean(0) if isinstance(start, torch.Tensor) else 1.0)
        return x - self.mean

    for used in (True, False):
        net = nn.Sequential(nn.Linear(4, 4), Made(forward, mean=start, count=0, seen=torch.zeros(4), used=used))
        x = torch.randn(8, 4)
        before = everything(net)
        comparison = modlab.compare(net)(x)
        assert everything(net) == before and net[1].mean is start and net[1].count == 0
        assert comparison["1"].ignores_mode is used and {move.kind for move in comparison["1"].moved} == {"state" if used else "attribute"}
        assert comparison.headline.startswith("State keeps moving in eval mode: 1." if used else "The same in both modes, bit for bit.")


def test_who_asks_for_the_mode_and_draws_in_both_is_reached_by_eval():
    gumbel = Made(lambda self, x: F.gumbel_softmax(self.l(x), hard=not self.training), l=nn.Linear(4, 4))
    comparison = modlab.compare(gumbel)(torch.randn(8, 4))
    assert comparison[""].acts_by_mode and comparison.headline.startswith("Still random in eval mode")
    assert "depends on the mode; random in eval mode too" in str(comparison) and "not reached" not in str(comparison)


def test_random_numbers_shifted_by_others_are_no_difference():
    """A layer that samples in both modes gets other numbers in eval mode where a dropout before it draws none."""
    noisy = Made(lambda self, x: x + torch.randn_like(x))
    both = Made(lambda self, x: self.drop(x) + self.noise(x), drop=nn.Dropout(), noise=noisy)
    comparison = modlab.compare(both)(torch.randn(8, 4))
    assert comparison.first == "drop" and not comparison["noise"].starts_here and not comparison["noise"].acts_by_mode


def test_the_running_mean_goes_on_in_eval_mode():
    comparison = modlab.compare(note.RunningMean(4))(torch.ones(4))
    row = comparison[""]
    assert not comparison.differs and row.ignores_mode and not row.acts_by_mode
    assert [(move.name, move.kind, move.side, move.max_abs) for move in row.moved] == [
        ("mean", "buffer", side, pytest.approx(0.1)) for side in ("train", "eval")
    ]
    assert comparison.headline == "State keeps moving in eval mode: mean. The same in both modes, bit for bit."


def test_the_graph_that_a_buffer_joins_is_seen():
    net = note.RunningMean(4)
    comparison = modlab.compare(net)(torch.ones(4, requires_grad=True))
    assert "in the autograd graph" in comparison[""].moved[0].after
    assert net.mean.grad_fn is None


@pytest.mark.parametrize("kind", ["python", "numpy", "torch"])
def test_who_draws(kind):
    source = {"python": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(()).item()}[kind]
    child = Made(lambda self, x: x * source() if self.training else x)
    comparison = modlab.compare(nn.Sequential(nn.Linear(4, 4), child))(torch.randn(4))
    names = {"python": "Python's random", "numpy": "numpy", "torch": "torch"}
    assert comparison["1"].draws == (f"train: {names[kind]}",) and comparison["1"].random == ("train",)
    assert comparison[""].draws == ()


def test_what_no_random_number_explains_is_not_repeatable():
    counter = iter(range(1000))
    comparison = modlab.compare(Made(lambda self, x: x + next(counter)))(torch.zeros(2))
    assert comparison[""].unsteady == ("train", "eval") and not comparison[""].acts_by_mode
    assert comparison.headline.startswith("Not repeatable")


def test_where_it_starts_is_innermost():
    inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    comparison = modlab.compare(nn.Sequential(nn.Identity(), nn.Sequential(inner)))(torch.randn(4))
    assert comparison.first == "1.0.1" and [row.path for row in comparison.records if row.starts_here] == ["1.0.1"]
    own = Made(lambda self, x: self.l(F.dropout(x, training=self.training)), l=nn.Linear(4, 4))
    comparison = modlab.compare(nn.Sequential(own))(torch.randn(4))
    assert comparison.first == "0" and comparison["0.l"].inputs_equal is False


def test_calls_are_compared_one_by_one():
    twice = Made(lambda self, x: self.l(self.drop(self.l(x))), l=nn.Linear(4, 4), drop=nn.Dropout())
    comparison = modlab.compare(twice)(torch.randn(3, 4))
    row = comparison["l"]
    assert (row.called_left, row.called_right) == (2, 2) and row.differs and not row.starts_here and row.count == 24
    assert comparison.first == "drop"


def test_called_in_one_mode_alone():
    auxiliary = Made(lambda self, x: (x, self.aux(x)) if self.training else (x, None), aux=nn.Linear(4, 4))
    comparison = modlab.compare(auxiliary)(torch.randn(3, 4))
    assert (comparison["aux"].called_left, comparison["aux"].called_right) == (1, 0)
    assert comparison.first == "" and comparison[""].acts_by_mode and "called 1 and 0 times" in str(comparison)


def test_two_modes_and_what_autograd_does():
    runs = {(run.side, run.grad): run.requires_grad for run in modlab.compare(chain())(torch.randn(8, 4))[""].runs}
    assert runs == {(side, grad): grad == "normal" for side in ("train", "eval") for grad in ("normal", "no_grad", "inference_mode")}
    text = str(modlab.compare(chain())(torch.randn(8, 4)))
    assert "Eval mode does not turn them off" in text and "It belongs to the optimizer" in text


def test_frozen_flags_and_hidden_modules_are_said():
    frozen = nn.Sequential(nn.BatchNorm1d(4))
    frozen.train = lambda mode=True: (nn.Module.train(frozen, mode) and frozen[0].eval()) or frozen
    comparison = modlab.compare(frozen)(torch.randn(8, 4))
    assert not comparison.differs and "stays in eval mode under train()" in comparison["0"].notes
    hiding = Made(lambda self, x: self.parts[0](x))
    hiding.parts = [nn.Dropout()]
    comparison = modlab.compare(hiding)(torch.randn(8, 4))
    assert comparison[""].ignores_mode and "calls a Dropout that is not registered, so eval() does not reach it" in str(comparison)


def test_a_fused_path_is_said():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 3:] = True
    comparison = modlab.compare(encoder)(torch.randn(3, 5, 8), src_key_padding_mask=mask)
    assert comparison["layers.0.linear1"].notes == ("a fused path skips it in eval mode without autograd",)
    assert "autograd changes the output: By up to" in str(comparison)
    assert comparison["layers.0.self_attn.out_proj"].notes == ("layers.0.self_attn uses its weights without calling it",)


def test_scripted_parts_are_said():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    before = [bits(t) for t in scripted.state_dict().values()]
    comparison = modlab.compare(nn.Sequential(scripted, nn.Dropout()))(torch.randn(8, 4))
    assert "runs inside 0, which is scripted: what happens there cannot be seen" in comparison["0.1"].notes
    assert [bits(t) for t in scripted.state_dict().values()] == before and scripted.training


def test_a_compiled_model_runs_as_written_and_is_not_compiled_again():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for compiled in (torch.compile(chain(), backend="eager"), chain()):
        compiled.compile(backend="eager")
        before = everything(compiled)
        comparison = modlab.compare(compiled)(torch.randn(8, 4))
        assert comparison.first.endswith("1") and "runs uncompiled here" in str(comparison)
        assert everything(compiled)[:2] == before[:2] and not torch._dynamo.utils.counters


def test_a_compiled_model_beside_its_original():
    torch._dynamo.reset()
    net = chain().eval()
    comparison = modlab.compare(net, torch.compile(net, backend="eager"))(torch.randn(8, 4))
    assert not comparison.differs and comparison[""].equal and not comparison[""].other
    assert comparison["0"].notes == ("in the right model it runs inside (root), which is compiled: what happens there cannot be seen",)
    torch._dynamo.reset()


def test_what_no_grad_breaks_is_told_and_not_raised():
    scores = Made(lambda self, x: torch.autograd.grad(self.l(x).sum(), x)[0], l=nn.Linear(4, 1))
    comparison = modlab.compare(scores)(torch.randn(3, 4, requires_grad=True))
    errors = {run.grad: run.error for run in comparison[""].runs}
    assert not errors["normal"] and errors["no_grad"].startswith("RuntimeError: element 0 of tensors does not require grad")


@pytest.mark.parametrize(
    ("made", "equal"),
    [
        (lambda x: {"a": x, "b": [x, None, "text"]}, True),
        (lambda x: (x, x.shape[0]), True),
        (lambda x: torch.distributions.Normal(x, x.exp()), True),
        (lambda x: nn.utils.rnn.pack_sequence([x, x[:2]]), True),
        (lambda x: x.to_sparse(), True),
        (lambda x: torch.complex(x, x), True),
        (lambda x: x.bool(), True),
        (lambda x: torch.empty(0), True),
        (lambda x: "text", True),
        (lambda x: None, True),
        (lambda x: object(), None),
        (lambda x: (one for one in x), None),
    ],
)
def test_outputs_of_every_kind(made, equal):
    comparison = modlab.compare(Made(lambda self, x: made(x)))(torch.randn(3, 4))
    assert comparison[""].equal is equal
    assert str(comparison) and comparison.html() and comparison.to_dict()


def test_nan_in_one_mode():
    comparison = modlab.compare(Made(lambda self, x: x / 0 if self.training else x))(torch.ones(3))
    assert comparison[""].max_abs == float("inf") and "one output is not finite where the other is" in comparison.headline
    assert not modlab.compare(Made(lambda self, x: x * float("nan")))(torch.ones(3)).differs


def test_what_is_too_large_is_sampled_and_said(monkeypatch):
    from modlab.comparing import kept_outputs

    monkeypatch.setattr(kept_outputs, "LARGE", 1000)
    comparison = modlab.compare(nn.Sequential(nn.Identity(), nn.Dropout()))(torch.randn(100, 1000))
    assert comparison["0"].equal is True and comparison["1"].sampled and comparison["1"].max_abs > 0
    assert comparison["1"].relative_l2 == pytest.approx(0.5**0.5, rel=0.05)  # doubled or gone: as long as the half of it that is left
    assert "too large to keep whole" in str(comparison)


# ---- one model: nothing stays --------------------------------------------------------------------------------------------------


def fingerprint(model, *inputs):
    return everything(model), [(id(t), t._version, bits(t), id(t.grad), id(t.grad_fn), t.requires_grad) for t in inputs]


def passes(case):
    """The inputs that the model of a case can run on, of a few that are tried."""
    shapes = (2, 4), (2, 8), (2, 3), (2, 2), (4,), (2, 16), (2, 5), (2, 1, 8, 8), (2, 3, 8, 8), (2, 5, 8)
    tried = [torch.randn(*sizes) for sizes in shapes]
    tried += [torch.randint(0, 5, (2, 3)), torch.randint(0, 5, (6,))]
    for x in tried:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            try:
                case.build()(x)
            except Exception:  # noqa: BLE001 - an odd module raises what it likes
                continue
        return x
    return None


@pytest.mark.parametrize("case", [case for case in zoo.CASES if case.listed and not case.large], ids=str)
def test_nothing_of_the_zoo_changes(case):
    """Whether the model can run on it or raises."""
    x = passes(case)
    x = torch.randn(2, 4) if x is None else x
    model = case.build()
    before = fingerprint(model, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            comparison = modlab.compare(model)(x)
        except Exception:  # noqa: BLE001 - as above
            comparison = None
    assert fingerprint(model, x) == before
    if comparison is not None:
        text = str(comparison)
        assert text.startswith(comparison.headline) and not re.search(r"0x[0-9a-f]{6,}", text)


def test_some_of_the_zoo_can_run():
    assert sum(passes(case) is not None for case in zoo.CASES if case.listed and not case.large) >= 25


class Restless(nn.Module):
    """Changes whatever a forward can change."""

    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("replaced", torch.zeros(4))
        self.register_buffer("gone", torch.zeros(4))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.embed = nn.Embedding(5, 4, max_norm=0.1)
        self.calls, self.history, self.nested = 0, [], {"a": [1]}
        self.loose = torch.zeros(3)
        self.generator = torch.Generator().manual_seed(3)
        self.own_random = random.Random(4)
        self.hidden = [nn.BatchNorm1d(4)]

    def forward(self, x, fail=False):
        self.calls += 1
        self.history.append(x)
        self.nested["a"].append(2)
        self.nested["b"] = 1
        self.replaced = 0.9 * self.replaced + 0.1 * x.mean(0)
        self.gone = None
        self.loose += 1
        self.l.weight.data.mul_(0.5)
        self.l.bias.data = torch.renorm(self.l.bias.data[None], 2, 0, 0.1)[0]
        self.frozen.requires_grad_(True)
        self.extra = torch.ones(2)
        self.train(not self.training)
        self.late = nn.Dropout()
        x = self.norm(self.l(x)) + self.hidden[0](x) + self.embed(torch.tensor([1])) + torch.rand((), generator=self.generator)
        x = x + self.own_random.random() + random.random() + np.random.rand() + torch.rand(())
        if fail:
            raise ZeroDivisionError("in the model")
        return x


@pytest.mark.parametrize("fail", [False, True])
def test_a_restless_model_is_put_back(fail):
    model = Restless()
    model.norm.eval()
    (model.l(torch.randn(4)).sum()).backward()
    x = torch.randn(8, 4, requires_grad=True)
    before = fingerprint(model, x), fingerprint(model.hidden[0]), dict(model.nested), list(model.history), model.own_random.getstate()
    generator = model.generator.get_state()
    if fail:
        with pytest.raises(ZeroDivisionError, match="in the model"):
            modlab.compare(model)(x, fail=True)
    else:
        comparison = modlab.compare(model)(x)
        moved = {move.name for move in comparison[""].moved}
        assert moved >= {"replaced", "gone", "calls", "loose"} and "weight" in {move.name for move in comparison["l"].moved}
    after = fingerprint(model, x), fingerprint(model.hidden[0]), dict(model.nested), list(model.history), model.own_random.getstate()
    assert after == before and model.nested == {"a": [1]} and torch.equal(model.generator.get_state(), generator)
    assert bits(model.l.weight.grad) is not None and torch.is_grad_enabled()


def test_a_graph_at_hand_stays_good():
    """Buffers that it saved have their version back."""
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    x = torch.randn(8, 4)
    loss = net(x).sum()
    modlab.compare(net)(x)
    loss.backward()
    expected = [bits(p.grad) for p in net.parameters()]
    net.zero_grad()
    net(x).sum().backward()
    assert [bits(p.grad) for p in net.parameters()] == expected


def test_training_goes_on_as_it_would_have():
    def train(look):
        torch.manual_seed(1)
        net, x = chain(), torch.randn(16, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            if look:
                modlab.compare(net)(x)
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
        return [bits(t) for t in net.state_dict().values()], bits(torch.rand(3))

    assert train(look=True) == train(look=False)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_autograd_outside_does_not_matter(context):
    net, x = chain(), torch.randn(8, 4)
    expected = str(modlab.compare(net)(x))
    with context():
        enabled = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        assert str(modlab.compare(net)(x)) == expected
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == enabled


def test_inputs_changed_in_place_stay():
    x = torch.randn(4, requires_grad=True) * 1
    nest = {"a": [x], "b": torch.zeros(4)}
    before = bits(x), x._version, id(x.grad_fn), bits(nest["b"])
    modlab.compare(Made(lambda self, nest: nest["a"][0].relu_() + nest["b"].add_(1)))(nest)
    assert (bits(x), x._version, id(x.grad_fn), bits(nest["b"])) == before and nest["a"][0] is x


def test_hooks_run_and_the_model_is_called_as_it_would_be():
    seen = []
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    net[0].register_forward_hook(lambda module, args, output: seen.append(torch.is_grad_enabled()))
    modlab.compare(net)(torch.randn(4))
    assert len(seen) == 7 and sum(seen) == 3  # train: normal, no_grad, inference_mode, other; eval: the first three


def test_nothing_is_kept_alive():
    net = chain()
    comparison = modlab.compare(net)(torch.randn(8, 4))
    watched = [weakref.ref(one) for one in (*net.modules(), *net.parameters(), *net.buffers())]
    text = str(comparison)
    del net
    gc.collect()
    assert not [one for one in watched if one() is not None]
    assert str(comparison) == text and comparison.html() and len(comparison.to_dict()["records"]) == 7


def test_a_failure_of_our_own_is_told_after_the_model_is_put_back(monkeypatch):
    from modlab.comparing import passes as module

    def broken(*_):
        raise KeyError("ours")

    net, x = chain(), torch.randn(8, 4)
    before = fingerprint(net, x)
    monkeypatch.setattr(module, "measure_tensor", lambda *_, **__: broken())
    with pytest.raises(KeyError, match="ours"):
        modlab.compare(net)(x)
    assert fingerprint(net, x) == before


# ---- two models ----------------------------------------------------------------------------------------------------------------


def cnn():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)).eval()
    net[1].running_mean.normal_()
    net[1].running_var.uniform_(0.5, 2)
    return net


def test_a_copy_is_the_same():
    net, x = cnn(), torch.randn(2, 1, 8, 8)
    comparison = modlab.compare(net, copy.deepcopy(net))(x)
    assert comparison.headline == "The same, bit for bit: 6 modules compared." and comparison.first is None and not comparison.differs


def test_one_weight_that_is_wrong():
    net, x = cnn(), torch.randn(2, 1, 8, 8)
    other = copy.deepcopy(net)
    other[1].bias.data[2] += 0.25
    comparison = modlab.compare(net, other)(x)
    assert comparison.first == "1" and comparison["1"].max_abs == pytest.approx(0.25, abs=1e-6) and comparison["0"].equal
    assert comparison.headline.startswith("The two models diverge at 1 (BatchNorm2d): by up to ")
    assert [row.path for row in comparison.find(differs=True)] == ["", "1", "2", "3", "4"]


def test_fusion_is_the_same_to_rounding():
    net, x = cnn(), torch.randn(2, 1, 8, 8)
    fused = copy.deepcopy(net)
    fused[0], fused[1] = fusion.fuse_conv_bn_eval(fused[0], fused[1]), nn.Identity()
    comparison = modlab.compare(net, fused)(x)
    assert comparison.headline.startswith(
        "The same up to rounding: below 1e-06 in the output, relatively; inside, 0 (Conv2d) differs by up"
    )
    assert comparison.first == "0" and "rounding  below 1e-06  the same up to rounding" in str(comparison)
    assert comparison["1"].relative_l2 < 1e-6 and comparison["1"].other_type == "Identity"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_dtype(dtype):
    net, x = cnn(), torch.randn(2, 1, 8, 8)
    other = copy.deepcopy(net).to(dtype)
    before = fingerprint(net, x), fingerprint(other)
    comparison = modlab.compare(net, other)(x)
    assert (fingerprint(net, x), fingerprint(other)) == before
    expected = (net(x).double() - other(x.to(dtype)).double()).abs().max().item()
    assert comparison[""].max_abs == pytest.approx(expected)
    assert f"got its input as {str(dtype)[6:]}" in str(comparison)
    assert comparison["0"].relative_l2 < (1e-6 if dtype is torch.float64 else 0.02)


def test_dynamic_quantization():
    net, x = cnn(), torch.randn(2, 1, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = torch.ao.quantization.quantize_dynamic(copy.deepcopy(net), {nn.Linear})
        comparison = modlab.compare(net, quantized)(x)
    assert comparison.first == "4" and 0 < comparison["4"].relative_l2 < 0.1 and comparison["4"].cosine > 0.99


def test_wrappers_do_not_count():
    net, x = cnn(), torch.randn(2, 1, 8, 8)
    wrapped = torch.optim.swa_utils.AveragedModel(net).eval()
    for left, right in ((net, wrapped), (wrapped, net)):
        comparison = modlab.compare(left, right)(x)
        assert comparison.headline.startswith("The same, bit for bit: 6 modules") and not comparison.find("*only*")


def test_paths_that_differ():
    net, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 4)
    port = Made(lambda self, x: self.act(self.fc(x)), fc=copy.deepcopy(net[0]), act=nn.ReLU())
    for match in ({"0": "fc", "1": "act"}, {"0": "fc", "1": "act"}.get):
        comparison = modlab.compare(net, port, match=match)(x)
        assert comparison["0"].other == "fc" and comparison["0"].equal and comparison.paths == ["", "0", "1"]
    found = modlab.compare(net, port)(x)
    assert found.paths == ["", "0", "1"] and (found["0"].other, found["1"].other) == ("fc", "act") and found["0"].matched == "structure"
    assert "Matched by structure where names do not match: 0 with fc (Linear), 1 with act (ReLU). match= says otherwise." in str(found)
    assert "Without a partner" not in str(found)
    unmatched = modlab.compare(net, Made(lambda self, x: self.fc(x), fc=nn.Linear(4, 2)))(x)
    assert unmatched.paths == ["", "0", "1", "fc"] and unmatched["fc"].called_left is None
    assert unmatched["0"].called_right is None and unmatched["0"].notes == ("only in the left model",)


@pytest.mark.parametrize(
    ("match", "words"),
    [
        ({"0": "fd"}, "Nearest: 'fc'"),
        ({"9": "fc"}, "the left model has no such module"),
        (3, "got an int"),
        ({"0": "fc", "1": "fc"}, "several"),
    ],
)
def test_a_match_that_cannot_be(match, words):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    port = Made(lambda self, x: self.act(self.fc(x)), fc=nn.Linear(4, 3), act=nn.ReLU())
    with pytest.raises(MatchError, match=re.escape(words)):
        modlab.compare(net, port, match=match)(torch.randn(2, 4))


def test_other_shapes():
    comparison = modlab.compare(nn.Linear(4, 3), nn.Linear(4, 2))(torch.randn(2, 4))
    assert comparison.headline == "The two models return different things: (2, 3) float32 and (2, 2) float32."
    assert comparison.differs and comparison[""].max_abs is None


def test_other_modes_are_said():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    text = str(modlab.compare(net, copy.deepcopy(net).eval())(torch.randn(2, 4)))
    assert "1: in training mode only in the left model. Write .eval() for both, and compare again." in text


def test_calls_of_two_models_one_by_one():
    def twice():
        return Made(lambda self, x: self.l(self.l(x).relu()), l=nn.Linear(4, 4))

    left = twice()
    comparison = modlab.compare(left, copy.deepcopy(left))(torch.randn(2, 4))
    assert comparison["l"].called_left == comparison["l"].called_right == 2 and comparison["l"].count == 16


def test_an_exception_of_either_comes_out():
    good, bad = nn.Linear(4, 4), Made(lambda self, x: 1 / 0, l=nn.Linear(4, 4))
    x = torch.randn(2, 4)
    for pair in ((good, bad), (bad, good)):
        before = [fingerprint(one, x) for one in pair]
        with pytest.raises(ZeroDivisionError):
            modlab.compare(*pair)(x)
        assert [fingerprint(one, x) for one in pair] == before


# ---- the door ------------------------------------------------------------------------------------------------------------------


def test_a_forgotten_second_call():
    net = nn.Linear(1, 1)
    assert str(modlab.compare(net)) == "nothing has run yet: modlab.compare(net)(x)"
    assert str(modlab.compare(net, net)) == "nothing has run yet: modlab.compare(left, right)(x)"


def test_wrong_questions_teach():
    net = nn.Linear(4, 4)
    with pytest.raises(NotAModuleError, match=r"modlab\.compare"):
        modlab.compare(torch.zeros(3))
    with pytest.raises(NotAModuleError):
        modlab.compare(net, "net")
    with pytest.raises(QuestionError, match="two models"):
        modlab.compare(net, match={})
    with pytest.raises(UnrepeatableInputError, match="read only once"):
        modlab.compare(net)(one for one in [1])
    with pytest.raises(LazyModelError, match="Run the model once first"):
        modlab.compare(nn.LazyLinear(3))(torch.randn(2, 4))
    with pytest.raises(PathNotFoundError, match="Nearest"):
        modlab.compare(nn.Sequential(net))(torch.randn(4))["00"]


def test_names_that_are_hostile():
    net = nn.Sequential()
    for name in ("<script>alert(1)</script>", "a\nb", "‮x", "$x^2$", "l" * 300):
        net.add_module(name, nn.Linear(4, 4))
    comparison = modlab.compare(net)(torch.randn(4))
    assert len(str(comparison).splitlines()) < 25 and "<script>alert" not in comparison.html(bundle=False)


def test_text_is_stable():
    net, x = chain(), torch.randn(16, 4)
    first, second = (modlab.compare(net)(x) for _ in range(2))
    assert str(first) == str(second) and first.html() == second.html() and repr(first) == str(first)


def test_tables_and_data():
    comparison = modlab.compare(chain())(torch.randn(16, 4))
    table = comparison.to_pandas()
    assert list(table["path"]) == comparison.paths and table["max_abs"].max() > 0
    assert [row.path for row in comparison.find(type=nn.Linear)] == ["0", "5"] and len(comparison) == 7
    assert [row.path for row in comparison.find("?", differs=False)] == ["0"]


# ---- found by review -----------------------------------------------------------------------------------------------------------


def counted(net, x, **options):
    """How often the model ran."""
    runs = []
    handle = net.register_forward_pre_hook(lambda *_: runs.append(1))
    modlab.compare(net)(x, **options)
    handle.remove()
    return len(runs)


def test_only_what_is_open_costs_another_pass():
    x = torch.randn(8, 4)
    assert counted(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), x) == 6
    assert counted(nn.Sequential(nn.Linear(4, 4), nn.Dropout()), x) == 7  # other random numbers
    assert counted(nn.Sequential(nn.Dropout(), Modal()), x) == 8  # and a second look at Modal, whose inputs differ


def forked(x):
    with torch.random.fork_rng(devices=[]):
        return x + torch.rand(1)


def test_random_numbers_that_leave_no_trace_in_the_generator():
    comparison = modlab.compare(nn.Sequential(nn.Linear(4, 4), Made(lambda self, x: forked(x))))(torch.randn(8, 4))
    row = comparison["1"]
    assert (
        row.random == ("train", "eval")
        and row.ignores_mode
        and row.draws
        == (
            "train: a generator that is restored",
            "eval: a generator that is restored",
        )
    )
    assert comparison[""].draws == () and comparison.headline.startswith("Still random in eval mode: 1 (Made) draws")


def test_the_same_by_chance_is_not_the_same():
    deep = Made(lambda self, x: self.l(x) if not self.training or torch.rand(1).item() < 2 else x, l=nn.Linear(4, 4))
    comparison = modlab.compare(deep)(torch.randn(8, 4))
    assert comparison.headline == "The same in both modes this time, although the model's own forward depends on the mode."
    always = Made(lambda self, x: x if torch.rand(1).item() < 2 else 2 * x)
    assert "with others, all outputs were the same" in modlab.compare(always)(torch.randn(4)).headline


class Notes:
    """What a model keeps outside of modules."""

    def __init__(self):
        self.seen, self.by_name = 0, {"a": []}


def test_what_a_model_keeps_in_other_objects_is_put_back():
    def forward(self, x):
        self.notes.seen += 1
        self.notes.by_name["a"].append(x)
        self.array += 1
        self.counter["calls"] += 1
        return x

    net = Made(forward, notes=Notes(), array=np.zeros(3), counter=collections.Counter())
    modlab.compare(net)(torch.randn(4))
    assert net.notes.seen == 0 and net.notes.by_name == {"a": []} and not net.array.any() and not net.counter


def test_a_backward_inside_a_forward_adds_to_no_gradient():
    def forward(self, x):
        if torch.is_grad_enabled():
            self.l(x).sum().backward()
        return self.l(x)

    net, x = Made(forward, l=nn.Linear(4, 4)), torch.randn(3, 4)
    net(x)
    before = fingerprint(net, x), bits(net.l.weight.grad), id(net.l.weight.grad)
    modlab.compare(net)(x)
    modlab.compare(net, copy.deepcopy(net))(x)
    assert (fingerprint(net, x), bits(net.l.weight.grad), id(net.l.weight.grad)) == before


def test_weights_written_past_their_version_in_one_pass_alone():
    def forward(self, x):
        if not torch.is_grad_enabled():
            self.l.weight.data.mul_(2)
        return self.l(x)

    net, x = Made(forward, l=nn.Linear(4, 4)), torch.randn(3, 4)
    before = fingerprint(net, x)
    modlab.compare(net)(x)
    assert fingerprint(net, x) == before


def test_autocast_outside_keeps_no_weight_without_a_graph():
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Dropout()), torch.randn(3, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert modlab.compare(net)(x).first == "1"
        net(x).sum().backward()
    assert net[0].weight.grad is not None


@pytest.mark.parametrize("number", range(1, 9))
def test_an_exception_in_any_pass(number):
    """In the first one of a mode it is the headline; in a repeat it is told."""
    runs = iter(range(1, 100))

    def forward(self, x):
        self.b += 1
        if next(runs) == number:
            torch.rand(3)
            raise ZeroDivisionError("in the model")
        return self.d(x) + self.b

    net, x = Made(forward, d=nn.Dropout()), torch.randn(8, 4)
    net.register_buffer("b", torch.zeros(4))
    before = fingerprint(net, x), bits(torch.get_rng_state())
    comparison = modlab.compare(net)(x)
    if number in (1, 5):
        mode, other = ("Training", "Eval") if number == 1 else ("Eval", "Training")
        assert comparison.headline == (
            f"{mode} mode raises at the model's own forward: ZeroDivisionError: in the model. {other} mode runs through."
        )
    else:
        assert comparison.first == "d" and ("ZeroDivisionError: in the model" in str(comparison)) is (number < 8)
    assert (fingerprint(net, x), bits(torch.get_rng_state())) == before


def test_a_module_that_autograd_decides_about_is_not_called_fused():
    net = Made(lambda self, x: self.l(x) if torch.is_grad_enabled() else x, l=nn.Linear(4, 4))
    notes = modlab.compare(net)(torch.randn(4))["l"].notes
    assert notes == ("not called in train mode without autograd", "not called in eval mode without autograd")


class Opaque:
    def __init__(self, value):
        self.value = value

    def __deepcopy__(self, memo):
        raise TypeError


def test_what_comes_in_an_unknown_object_starts_nothing():
    first = Made(lambda self, x: Opaque(self.d(x)), d=nn.Dropout())
    comparison = modlab.compare(nn.Sequential(first, Made(lambda self, box: box.value + 1)))(torch.randn(8, 4))
    assert comparison.first == "0.d" and [row.path for row in comparison.records if row.starts_here] == ["0.d"]


POWER = "parametrizations.weight.0"


@pytest.mark.parametrize(
    ("made", "acting", "moved"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.RReLU()), ["1"], {}),
        (lambda: nn.Sequential(nn.AlphaDropout(), nn.LSTM(4, 4, 2, dropout=0.5)), ["0", "1"], {}),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.LayerNorm(4)), [], {}),
        (lambda: nn.Sequential(nn.BatchNorm1d(4, momentum=None)), ["0"], {"0": {"running_mean", "running_var", "num_batches_tracked"}}),
        (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), [POWER], {POWER: {"_u", "_v"}}),
    ],
)
def test_modules_of_torch(made, acting, moved):
    comparison = modlab.compare(made())(torch.randn(8, 4))
    assert [row.path for row in comparison.records if row.acts_by_mode] == acting
    found = {row.path: {move.name for move in row.moved if move.side == "train"} for row in comparison.records if row.moved}
    assert found == moved and not any(move.side == "eval" for row in comparison.records for move in row.moved)
    assert comparison.first == (acting[0] if acting else None)


def test_meta_tensors_are_said():
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    comparison = modlab.compare(net)(torch.randn(8, 4, device="meta"))
    assert comparison.headline == "The outputs cannot be compared: a meta tensor has no values."


def test_a_wrong_weight_behind_a_coarser_dtype():
    net, x = cnn(), torch.randn(2, 1, 8, 8)
    other = copy.deepcopy(net).bfloat16()
    assert modlab.compare(net, other)(x).headline == "The same up to rounding: below 2e-02 in the output, relatively."
    other[4].weight.data[0] *= 1.5
    comparison = modlab.compare(net, other)(x)
    assert comparison.first == "4" and comparison.headline.startswith("The two models diverge at 4 (Linear): ")


def test_rounding_that_adds_up_starts_nowhere():
    """Every layer rounds anew; the whole is apart by more than any of them, and none is to blame."""
    net, x = nn.Sequential(*(nn.Linear(16, 16) for _ in range(3))), torch.randn(4, 16)

    def rounded(part):
        return Made(lambda self, x: torch.quantize_per_tensor(part(x.dequantize()), 0.02, 128, torch.quint8), part=part)

    inner = nn.Sequential(*(rounded(copy.deepcopy(part)) for part in net))
    other = Made(lambda self, x: self.inner(torch.quantize_per_tensor(x, 0.04, 128, torch.quint8)).dequantize(), inner=inner)
    comparison = modlab.compare(net, other, match={"": "", "0": "inner.0", "1": "inner.1", "2": "inner.2"})(x)
    assert comparison.first is None and comparison.record.drift == "0"
    assert comparison.headline.startswith("The two models drift apart from 0 (Linear) on: by up to 0.")


def test_nan_in_one_model():
    net, x = cnn(), torch.randn(2, 1, 8, 8)
    other = copy.deepcopy(net)
    other[4].weight.data[0] = float("nan")
    comparison = modlab.compare(net, other)(x)
    assert comparison.headline == "The two models diverge at 4 (Linear): the right output contains NaN (2 of 10), but the other is finite."
    moved = Made(lambda self, x: torch.where(torch.arange(4) == 1 + self.training, float("nan"), x + 0.1 * self.training))
    assert modlab.compare(moved)(torch.ones(4))[""].max_abs == float("inf")  # as many NaN, in other places


def test_a_cosine_near_one_keeps_its_digits():
    x = torch.randn(1000)
    noise = torch.randn(1000) * 1e-4
    row = modlab.compare(Made(lambda self, x: x), Made(lambda self, x: x + noise))(x)[""]
    exact = F.cosine_similarity(x.double(), (x + noise).double(), 0).item()
    assert 1 - row.cosine == pytest.approx(1 - exact, rel=1e-2)


@pytest.mark.parametrize("make", [lambda: torch.Generator().manual_seed(1), lambda: random.Random(1), lambda: np.random.default_rng(1)])
def test_a_generator_of_its_own_is_seen(make):
    def forward(self, x):
        own = self.own
        return x + (torch.rand((), generator=own) if type(own) is torch.Generator else own.random())

    comparison = modlab.compare(nn.Sequential(nn.Linear(4, 4), Made(forward, own=make())))(torch.randn(4))
    row = comparison["1"]
    assert row.draws == ("train: its own generator", "eval: its own generator") and row.random == ("train", "eval") and row.equal
    assert comparison.headline.startswith("Still random in eval mode: 1 (Made) draws")


def test_what_eval_itself_changes_is_not_moved_by_the_forward():
    class Merging(nn.Linear):
        def train(self, mode=True):
            if self.training is not mode:
                self.weight.data.mul_(0.5 if mode else 2)
            return super().train(mode)

    net, x = nn.Sequential(Merging(4, 4)), torch.randn(3, 4)
    before = fingerprint(net, x)
    comparison = modlab.compare(net)(x)
    assert not comparison["0"].moved and comparison.first == "0" and comparison["0"].acts_by_mode
    assert fingerprint(net, x) == before


def test_a_generator_among_the_inputs_is_put_back():
    net = Made(lambda self, x, generator: x + torch.rand(4, generator=generator) + generator.initial_seed())
    generator, own = torch.Generator().manual_seed(3), random.Random(2)
    before = bits(generator.get_state()), own.getstate()
    x = torch.randn(4)
    assert modlab.compare(net)(x, generator=generator)[""].draws == ("train: its own generator", "eval: its own generator")
    modlab.compare(Made(lambda self, x, own: x + own.random()))(x, own)
    assert modlab.compare(net, copy.deepcopy(net))(x, generator)[""].equal
    assert (bits(generator.get_state()), own.getstate()) == before


class Root(nn.Module):
    def forward(self, x):
        return torch.sqrt(-x.abs() - 1)


class Backwards(nn.Module):
    """Registers last what runs first."""

    def __init__(self):
        super().__init__()
        self.late = nn.ReLU()
        self.early = Root()

    def forward(self, x):
        return self.late(self.early(x))


def test_nan_outputs_are_the_headline_with_the_first_module_that_gives_them():
    found = modlab.compare(nn.Sequential(nn.Linear(4, 4), Root(), nn.Linear(4, 2)))(torch.ones(3, 4))
    assert str(found).startswith("The output is NaN in both modes, from 1 (Root) on: The same in both modes, bit for bit.\n")
    marks = {row.path: row.mark for row in found._sheet().rows}
    assert marks == {"": "broken", "0": "", "1": "broken", "2": "broken"}
    assert "its output is NaN" in str(found)
    assert modlab.compare(Backwards())(torch.ones(2)).headline.startswith("The output is NaN in both modes, from early on:")


def test_nan_in_one_model_in_part_and_inside_only():
    healthy = nn.Sequential(nn.Linear(4, 4), nn.Identity())
    broken = nn.Sequential(healthy[0], Root())
    assert modlab.compare(healthy, broken)(torch.ones(3, 4)).headline.startswith("The two models diverge at 1 (Identity): the right ou")

    class Some(nn.Module):
        def forward(self, x):
            return torch.sqrt(x)

    some = modlab.compare(nn.Sequential(Some()))(torch.tensor([-1.0, 4.0]))
    assert some.headline.startswith("The output contains NaN (1 of 2) in both modes, from 0 (Some) on:")

    class Saved(nn.Module):
        def forward(self, x):
            return torch.nan_to_num(x)

    inside = modlab.compare(nn.Sequential(Some(), Saved()))(torch.tensor([-1.0, 4.0]))
    assert inside.headline.startswith("NaN inside: 0 (Some) contains NaN (1 of 2) in both modes:")
    assert "NaN" not in modlab.compare(healthy)(torch.ones(3, 4)).headline


# ---- whose fault it is -----------------------------------------------------------------------------------------------------------


class Between(nn.Module):
    """What lies between its two layers is its own code."""

    def __init__(self, function):
        super().__init__()
        self.a, self.b, self.function = nn.Linear(4, 4), nn.Linear(4, 4), function

    def forward(self, x):
        return self.b(self.function(self.a(x)))


class Heads(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(8, 8) for _ in range(4))
        self.scale = scale

    def forward(self, x):
        return self.proj((self.q(x) @ self.k(x).transpose(-1, -2) * self.scale).softmax(-1) @ self.v(x))


class Port(nn.Module):
    def __init__(self, scale=0.3, residual=True):
        super().__init__()
        self.n1, self.n2, self.att, self.residual = nn.LayerNorm(8), nn.LayerNorm(8), Heads(scale), residual
        self.mlp = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

    def forward(self, x):
        found = self.att(self.n1(x))
        x = x + found if self.residual else found
        return x + self.mlp(self.n2(x))


def ported(make, *others):
    """Two models with the same weights."""
    torch.manual_seed(0)
    left = make()
    right = others[0]()
    right.load_state_dict(left.state_dict())
    return left, right


PORTS = {
    "activation": (lambda: Between(F.relu), lambda: Between(lambda h: F.leaky_relu(h, 0.3)), (8, 4), ""),
    "scale": (lambda: nn.Sequential(Port(), Port()), lambda: nn.Sequential(Port(), Port(scale=1.0)), (2, 5, 8), "1.att"),
    "residual": (lambda: nn.Sequential(Port(), Port()), lambda: nn.Sequential(Port(), Port(residual=False)), (2, 5, 8), "1"),
}


@pytest.mark.parametrize("name", PORTS)
def test_a_difference_in_a_modules_own_code_is_put_to_that_module(name):
    make, other, shape, path = PORTS[name]
    comparison = modlab.compare(*ported(make, other))(torch.randn(shape))
    assert comparison.first == path and comparison[path].starts_here and "diverge at" in comparison.headline
    assert [row.path for row in comparison.records if row.starts_here] == [path]


def test_rounding_is_nobodys_fault():
    left, right = ported(lambda: nn.Sequential(Port(), Port()), lambda: nn.Sequential(Port(), Port()))
    for dtype in (torch.float64, torch.bfloat16):
        comparison = modlab.compare(left, right.to(dtype))(torch.randn(2, 5, 8))
        assert comparison.first is None and not comparison.differs


class Counting(nn.Module):
    """Depends on how often it ran, and not on its mode."""

    def __init__(self):
        super().__init__()
        self.runs = 0

    def forward(self, x):
        self.runs += 1
        return x * self.runs


class Keeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        found = x if self.last is None else x + self.last
        self.last = x
        return found


@pytest.mark.parametrize("make", [Counting, Keeping, lambda: note.RunningMean(4)])
def test_state_behind_a_difference_is_no_mode(make):
    comparison = modlab.compare(nn.Sequential(nn.Dropout(), make()))(torch.randn(8, 4))
    assert not comparison["1"].acts_by_mode and comparison["0"].acts_by_mode


class Merging(nn.Module):
    """As LoRA does it: evaluation merges its weights into the layer's."""

    def __init__(self):
        super().__init__()
        self.layer, self.extra, self.merged = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4)), False

    def train(self, mode=True):
        super().train(mode)
        if mode is self.merged:
            with torch.no_grad():
                self.layer.weight.add_(self.extra, alpha=-1.0 if mode else 1.0)
            self.merged = not mode
        return self

    def forward(self, x):
        return self.layer(x) if self.merged else self.layer(x) + x @ self.extra.T


def test_who_merges_weights_acts_by_its_mode_and_not_the_layer():
    comparison = modlab.compare(nn.Sequential(nn.Linear(4, 4), Merging()))(torch.randn(8, 4))
    assert [row.path for row in comparison.records if row.acts_by_mode] == ["1"]
    assert "has different values in each mode" in comparison["1.layer"].notes[0] and not comparison["1.layer"].starts_here


class Aside(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.layer, self.form = nn.Linear(4, 4), form

    def forward(self, x):
        out = self.layer(x)
        if self.form == "dict":
            return {"out": out, "aux": out.mean()} if self.training else {"out": out}
        if self.form == "list":
            return [out, out.mean()] if self.training else [out]
        return (out, out.mean()) if self.training else out


@pytest.mark.parametrize(
    "form, words",
    [
        ("dict", "the output has aux only in training mode"),
        ("list", "the output has [1] only in training"),
        ("single", "and a single value only in eval mode"),
    ],
)
def test_an_output_that_one_mode_alone_has(form, words):
    comparison = modlab.compare(Aside(form))(torch.randn(8, 4))
    assert comparison.differs and words in comparison.headline and "by up to 0" not in str(comparison)
    assert "rounding" not in str(comparison).split("the whole model")[0] and comparison[""].alone
    left, right = Aside(form), Aside(form).eval()
    right.load_state_dict(left.state_dict())
    found = modlab.compare(left, right)(torch.randn(8, 4))
    assert found.differs and "only in the left model" in found.headline


TICKS = []


def test_noise_is_no_difference_between_modes():
    class Clock(nn.Module):
        def forward(self, x):
            TICKS.append(0)
            return x + len(TICKS) % 7

    headline = modlab.compare(Clock())(torch.zeros(2)).headline
    assert "Not repeatable" in headline and "by no more than two equal runs do" in headline and "by up to" not in headline


class Trifle(nn.Module):
    def forward(self, x):
        return x * (1 + 3e-7) if self.training else x


def test_who_makes_most_of_a_difference_is_named():
    comparison = modlab.compare(nn.Sequential(Trifle(), nn.AlphaDropout()))(torch.randn(8, 4))
    assert comparison.first == "0" and "nearly all of it from 1 (AlphaDropout) on" in comparison.headline
    assert "nearly all" not in modlab.compare(nn.Sequential(nn.Dropout(), nn.AlphaDropout()))(torch.randn(8, 4)).headline


# ---- hooks ---------------------------------------------------------------------------------------------------------------------


def louder(module, args, output):
    return output + 1 if module.training else output


def in_place(module, args, output):
    if module.training:
        output.add_(1)


def doubled(module, args):
    return (args[0] * 2,) if module.training else None


def with_hook(place, register, hook, net=None):
    net = net or nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    getattr(net if place is None else net[place], register)(hook)
    return net


@pytest.mark.parametrize("place", [None, 0, 1])
@pytest.mark.parametrize(
    ("register", "hook", "kind"),
    [
        ("register_forward_hook", louder, "forward hook"),
        ("register_forward_hook", in_place, "forward hook"),
        ("register_forward_pre_hook", doubled, "forward pre-hook"),
    ],
)
def test_a_hook_that_acts_by_mode_is_named(place, register, hook, kind):
    net = with_hook(place, "register_forward_hook", lambda module, args, output: output * 3)
    with_hook(place, register, hook, net)
    with_hook(place, "register_forward_hook", lambda module, args, output: None, net)
    x = torch.randn(8, 4)
    before = fingerprint(net, x)
    comparison = modlab.compare(net)(x)
    assert fingerprint(net, x) == before
    path = "" if place is None else str(place)
    row = comparison[path]
    line = hook.__code__.co_firstlineno
    assert comparison.first == path and re.fullmatch(rf"{kind} {hook.__name__} \(\S*test_compare.py:{line}\)", row.starts_by)
    assert [one.path for one in comparison.records if one.acts_by_mode or one.starts_here] == [path]
    of = "the model" if place is None else f"{place} (Linear)"
    assert comparison.headline.startswith(f"Train and eval differ from the {row.starts_by} of {of} on: by up to ")
    assert row.max_abs == pytest.approx((net.train()(x) - net.eval()(x)).abs().max().item()) or place == 0


def test_harmless_hooks_are_not_to_blame():
    net = with_hook(1, "register_forward_pre_hook", lambda module, args: (args[0] * 2,), nn.Sequential(nn.Dropout(), nn.Linear(4, 4)))
    with_hook(0, "register_forward_hook", lambda module, args, output: output * 2, net)
    comparison = modlab.compare(net)(torch.randn(8, 4))
    assert comparison.first == "0" and not comparison["0"].starts_by and not comparison["1"].acts_by_mode
    drops = with_hook(0, "register_forward_hook", lambda module, args, output: F.dropout(output))
    row = modlab.compare(drops)(torch.randn(8, 4))["0"]
    assert row.ignores_mode and re.match(r"its forward hook \S+ \(\S*test_compare.py:\d+\) draws random numbers", row.notes[0])


def test_a_hook_that_raises_in_one_mode():
    def stops(module, args, output):
        if not module.training:
            raise KeyError("hook")

    net, x = with_hook(1, "register_forward_hook", stops), torch.randn(8, 4)
    before = fingerprint(net, x)
    comparison = modlab.compare(net)(x)
    assert comparison.headline == "Eval mode raises at 1 (Linear): KeyError: 'hook'. Training mode runs through."
    assert fingerprint(net, x) == before


def test_a_hook_in_one_of_two_models():
    net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(8, 4)
    for register, hook, kind in (
        ("register_forward_hook", lambda module, args, output: output * 2, "forward hook"),
        ("register_forward_pre_hook", lambda module, args: (args[0] * 2,), "forward pre-hook"),
    ):
        other = with_hook(2, register, hook, copy.deepcopy(net))
        for pair in ((net, other), (other, net)):
            comparison = modlab.compare(*pair)(x)
            assert comparison.first == "2" and comparison["2"].starts_by.startswith(f"{kind} ")
            assert (
                comparison.headline.startswith(f"The two models diverge at the {kind} ") and " of 2 (Linear): by up" in comparison.headline
            )


# ---- generators, gradients, exceptions --------------------------------------------------------------------------------------------

OUTSIDE = torch.Generator().manual_seed(3)


def noisy(x):
    return x + torch.randn(x.shape, generator=OUTSIDE)


def test_a_generator_outside_of_the_model_is_found_and_put_back():
    before = OUTSIDE.get_state()
    for net in (
        Made(lambda self, x: self.l(noisy(x)), l=nn.Linear(4, 4)),
        Made(torch.no_grad()(lambda self, x: self.l(noisy(x))), l=nn.Linear(4, 4)),
    ):
        comparison = modlab.compare(net)(torch.randn(8, 4))
        assert comparison[""].draws == ("train: the generator OUTSIDE", "eval: the generator OUTSIDE") and not comparison["l"].draws
        assert comparison.headline.startswith("Still random in eval mode: the model's own forward draws") and not comparison[""].unsteady
    assert torch.equal(OUTSIDE.get_state(), before)


def test_what_does_not_repeat_is_put_to_the_code_it_is_in():
    counter = iter(range(1000))
    comparison = modlab.compare(Made(lambda self, x: self.l(x + next(counter)), l=nn.Linear(4, 4)))(torch.zeros(2, 4))
    assert comparison.headline.startswith("Not repeatable: the model's own forward gives different outputs")
    assert comparison[""].unsteady_here and comparison["l"].unsteady and not comparison["l"].unsteady_here

    def fresh(self, x):
        generator = torch.Generator()
        generator.seed()
        return self.l(x + torch.randn(x.shape, generator=generator))

    assert modlab.compare(Made(fresh, l=nn.Linear(4, 4)))(torch.randn(2, 4))[""].unsteady_here
    childless = modlab.compare(Made(lambda self, x: x + next(counter)))(torch.zeros(2))
    assert "the difference comes from its own forward" in str(childless) and "from inside" not in str(childless)


def switched(self, x):
    with torch.set_grad_enabled(self.training):
        return self.l(x)


class Cut(nn.Module):
    def forward(self, x):
        return x if self.training else x.detach()


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: Made(lambda self, x: self.l(x) if self.training else self.l(x).detach(), l=nn.Linear(4, 4)), ""),
        (lambda: Made(switched, l=nn.Linear(4, 4)), ""),
        (lambda: nn.Sequential(nn.Linear(4, 4), Cut()), "1"),
        (lambda: nn.Sequential(nn.Linear(4, 4), Cut(), nn.ReLU()), "1"),
    ],
)
def test_who_turns_gradients_off_by_mode_acts_by_mode(make, path):
    comparison = modlab.compare(make())(torch.randn(8, 4))
    assert [row.path for row in comparison.records if row.acts_by_mode] == [path] and comparison[path].switches_grad
    place = f"{path} (Cut)" if path else "the model's own forward"
    assert comparison.headline == (
        f"The same numbers in both modes, but the output requires grad only in training mode: {place} causes that."
    )


def test_who_is_frozen_by_mode_is_not_to_blame():
    class Frozen(nn.Linear):
        def train(self, mode=True):
            self.weight.requires_grad_(mode)
            self.bias.requires_grad_(mode)
            return super().train(mode)

    comparison = modlab.compare(nn.Sequential(Frozen(4, 4)))(torch.randn(8, 4))
    assert not [row.path for row in comparison.records if row.acts_by_mode]


def test_a_batch_of_one_in_training_mode():
    net, x = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)), torch.randn(1, 4)
    before = fingerprint(net, x)
    comparison = modlab.compare(net)(x)
    assert fingerprint(net, x) == before
    assert comparison.headline.startswith("Training mode raises at 1 (BatchNorm1d): ValueError: Expected more than 1 value per channel")
    assert comparison.headline.endswith("Eval mode runs through.") and comparison["1"].raises == ("train",)
    assert comparison["0"].equal and comparison["2"].right is not None and not [row for row in comparison.records if row.acts_by_mode]
    errors = {(run.side, run.grad): bool(run.error) for run in comparison[""].runs}
    assert errors == {(side, grad): side == "train" for side in ("train", "eval") for grad in ("normal", "no_grad", "inference_mode")}


def test_both_modes_raise():
    def raises(self, x):
        raise ValueError("train" if self.training else "eval")

    with pytest.raises(ValueError, match="train") as caught:
        modlab.compare(Made(raises))(torch.randn(4))
    assert caught.value.__notes__ == ["modlab.compare: raised in training mode; in eval mode the model raises ValueError: eval"]


def test_what_was_caught_inside_raised_nothing():
    def tries(self, x):
        with contextlib.suppress(RuntimeError):
            self.bad(x)
        if self.training:
            raise ValueError("here")
        return x

    comparison = modlab.compare(Made(tries, bad=nn.Linear(9, 9)))(torch.randn(4))
    assert comparison[""].raises == ("train",) and not comparison["bad"].raises


# ---- two models of other structure ------------------------------------------------------------------------------------------------


def layers(*more):
    """A small network with something put in between."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), *more, nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("side", [0, 1])
def test_a_layer_that_was_put_in_between(side):
    pair = [layers(), layers(nn.LayerNorm(4))]
    pair[1][3].load_state_dict(pair[0][2].state_dict())
    left, right = pair if side else pair[::-1]
    comparison = modlab.compare(left, right)(torch.randn(8, 4))
    others = {row.path: row.other for row in comparison.records if row.other}
    assert others == ({"1": "2", "2": "3"} if side else {"2": "1", "3": "2"})
    name = ("left", "right")[side]
    assert comparison.first == "" and comparison[""].alone_there == f"1 (LayerNorm) in the {name} model alone"
    assert comparison.headline.startswith(
        f"The two models diverge at the model's own forward, which calls 1 (LayerNorm) in the {name} model alone: by up to "
    )
    assert f"Without a partner: 1 (LayerNorm) in the {name} model." in str(comparison)


def test_match_wins_over_structure():
    comparison = modlab.compare(layers(), layers(nn.Dropout()).eval(), match={"1": "1"})(torch.randn(8, 4))
    assert comparison["1"].other == "" and comparison["1"].matched == "told" and comparison["2"].other == "3"


def test_names_stay_where_structure_says_no_more():
    left = layers()
    for right in (copy.deepcopy(left), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), layers()[:2]):
        comparison = modlab.compare(left, right)(torch.randn(8, 4))
        assert not any(row.other for row in comparison.records) and "by structure" not in str(comparison)


class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.h = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(depth))

    def forward(self, x):
        for block in self.h:
            x = x + block(x)
        return x


def test_blocks_of_one_kind_are_told_apart_by_their_numbers():
    left, right = Stack(4), Stack(3)
    for mine, theirs in enumerate((0, 2, 3)):
        right.h[mine].load_state_dict(left.h[theirs].state_dict())
    comparison = modlab.compare(left, right)(torch.randn(8, 4))
    assert {row.path: row.other for row in comparison.records if row.other and row.path.count(".") == 1} == {"h.2": "h.1", "h.3": "h.2"}
    assert "which calls h.1 (Sequential) in the left model alone" in comparison.headline
    fresh = modlab.compare(Stack(4), Stack(3))(torch.randn(8, 4))
    assert not any(row.other for row in fresh.records)


def test_leaves_in_another_container():
    net = layers()
    port = Made(lambda self, x: self.head(self.features(x)), features=net[:2], head=net[2])
    comparison = modlab.compare(net, copy.deepcopy(port))(torch.randn(8, 4))
    assert {row.path: row.other for row in comparison.records if row.other} == {"0": "features.0", "1": "features.1", "2": "head"}
    assert comparison[""].equal and not comparison.differs


def test_which_of_two_models_raised():
    good, bad = nn.Linear(4, 4), Made(lambda self, x: 1 / 0)
    for pair, words in (
        ((good, bad), "the right model raised this; the left one runs through"),
        ((bad, good), "the left model raised this"),
    ):
        with pytest.raises(ZeroDivisionError) as caught:
            modlab.compare(*pair)(torch.randn(4))
        assert words in caught.value.__notes__[0]


# ---- a difference that came in, and grew


class Swapped(nn.Module):
    """Two activations, whose order is the only thing that may differ."""

    def __init__(self, *acts):
        super().__init__()
        self.l0, self.l1, self.l2 = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.a, self.b = acts

    def forward(self, x):
        return self.l2(self.b(self.l1(self.a(self.l0(x)))))


@pytest.mark.parametrize("seed", [4, 8])
def test_a_layer_with_equal_weights_starts_no_difference_where_its_input_differs(seed):
    """Its output is near zero on the left: relatively, what came in apart leaves a hundred times farther apart."""
    torch.manual_seed(seed)
    left, right = Swapped(nn.ReLU(), nn.GELU()), Swapped(nn.GELU(), nn.ReLU())
    right.load_state_dict(left.state_dict())
    comparison = modlab.compare(left, right)(torch.randn(1, 4) * 2)
    last = comparison["l2"]
    assert last.relative_l2 > 10 * comparison["b"].relative_l2  # else this shows nothing
    assert [row.path for row in comparison.records if row.starts_here] == ["a"]


def test_a_layer_with_other_weights_starts_one_whatever_came_in():
    torch.manual_seed(0)
    left = Swapped(nn.ReLU(), nn.ReLU())
    right = copy.deepcopy(left)
    with torch.no_grad():
        right.l0.weight.mul_(1.001)
        right.l2.weight.neg_()
    comparison = modlab.compare(left, right)(torch.randn(5, 4))
    assert [row.path for row in comparison.records if row.starts_here] == ["l0", "l2"]


def test_a_difference_that_starts_in_the_forward_of_the_model_itself():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.b(F.dropout(self.a(x), training=self.training))

    found = modlab.compare(Own())(torch.ones(8, 4))
    assert found.first == "" and found.headline.startswith("Train and eval differ from the model's own forward on:")
