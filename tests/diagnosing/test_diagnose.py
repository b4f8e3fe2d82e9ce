"""What `diagnose` finds in a model at rest: each mistake once, where it is, with a fix that works; and nothing where there is none."""

import gc
import inspect
import re
import warnings
import weakref

import pytest
import torch
from torch import nn

import modlab
from modlab.errors import BatchError, GoneError, NotAModuleError, NotAnOptimizerError
from modlab.inspection.findings import catalogue
from tests import test_identity as identity
from tests import zoo
from tests.architectures import ARCHITECTURES


def net():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def kinds(model, *arguments):
    return [(one.path, one.kind) for one in modlab.diagnose(model, *arguments).findings]


def only(model, *arguments):
    (found,) = modlab.diagnose(model, *arguments).findings
    return found


def notes(model, *arguments):
    return {(one.path, one.kind): one for one in modlab.diagnose(model, *arguments).notes}


# ---- registration --------------------------------------------------------------------------------------------------------------


def test_hidden_modules_are_found_and_the_fix_registers_them():
    model = net()
    model.adapters = [nn.Linear(2, 2) for _ in range(3)]
    found = only(model)
    assert (found.path, found.module, found.severity, found.certain) == ("adapters", "", "broken", True)
    assert found.sentence == "adapters (3 Linear) are hidden in a list: they are not trained, moved or saved"
    room = {"model": model, "nn": nn}
    exec(found.fix, room)
    mended = room["model"]
    assert modlab.diagnose(mended).findings == () and len(list(mended.parameters())) == 10
    x = torch.randn(2, 4)
    assert torch.equal(mended(x), model(x)), "and it runs: a ModuleList in a Sequential would not"


class Owner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.last = nn.Sequential(nn.Linear(4, 3)), nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.body(x))


@pytest.mark.parametrize("place", ["", "body", "last"])
@pytest.mark.parametrize("hidden", [[nn.Linear(2, 2)], {"a": nn.Linear(2, 2)}, (nn.Parameter(torch.ones(2)),)])
def test_the_fix_of_what_is_hidden_runs_wherever_it_hangs(place, hidden):
    model = Owner()
    owner = model.get_submodule(place)
    owner.hidden = hidden
    found = only(model)
    assert ("in the constructor of Owner" in found.fix) is (place == ""), "nobody edits the constructor of a Linear"
    x = torch.ones(2, 4)
    before = model(x)
    exec(found.fix, {"model": model, "self": model, "nn": nn})
    assert modlab.diagnose(model).findings == () and torch.equal(model(x), before) and len(list(model.parameters())) > 4


def test_a_bare_number_is_told_with_its_class():
    model = net()
    found = only(model, torch.optim.SGD(model[0].parameters(), lr=0.1))
    assert found.subject == "2 (Linear, 2 parameters)"
    model[0].requires_grad = False
    assert only(model).subject == "0 (Linear)"


def test_hidden_weights_that_an_optimizer_holds_do_train():
    model = net()
    model.adapters = [nn.Linear(2, 2)]
    found = only(model, torch.optim.SGD([*model.parameters(), *model.adapters[0].parameters()], lr=0.1))
    assert found.severity == "careful" and "trained by SGD #0, but not moved" in found.what


def test_what_hides_without_weights_is_less():
    model = net()
    model.activations, model.drop = [nn.ReLU()], [nn.Dropout()]
    assert kinds(model) == [("drop", "hidden")]
    assert ("activations", "hidden") in notes(model)


def test_plain_tensors_should_be_buffers():
    model = net()
    model.scale, model.lost = torch.ones(3), nn.Parameter(torch.ones(3)).to(torch.float64)
    found = modlab.diagnose(model).findings
    assert [(one.path, one.kind, one.severity) for one in found] == [
        ("lost", "no longer a parameter", "broken"),
        ("scale", "should be a buffer", "careful"),
    ]
    for one in found:
        exec(one.fix, {"model": model, "nn": nn})
    assert modlab.diagnose(model).findings == () and "scale" in model.state_dict() and isinstance(model.lost, nn.Parameter)


def test_a_plain_tensor_that_requires_a_gradient_should_be_a_parameter():
    model = net()
    model.gain = torch.ones(3, requires_grad=True)
    found = only(model)
    assert (found.path, found.kind, found.severity) == ("gain", "should be a parameter", "broken")
    exec(found.fix, {"model": model, "nn": nn})
    assert kinds(model) == [] and "gain" in dict(model.named_parameters())


class Noting(nn.Module):
    """Leaves tensors on itself while it runs, in different ways."""

    def __init__(self, how):
        super().__init__()
        self.l, self.how, self.note = nn.Linear(4, 4), how, torch.zeros(4)

    def forward(self, x):
        y = self.l(x)
        if self.how == "kept":
            self.note = y.softmax(-1)
            return self.note * y
        if self.how == "listed":
            self.note = [y, y.detach()]
        return y

    def extra_loss(self):
        return 0.0


class Following(Noting):
    def forward(self, x):
        self.note = 0.9 * self.note + 0.1 * self.l(x).mean(0)
        return x - self.note


def test_what_each_pass_leaves_anew_is_no_lost_parameter():
    """Attention weights, a loss of its own, what a hook notes: neither parameters nor state."""
    for how in ("kept", "listed"):
        model = Noting(how)
        model(torch.randn(2, 4))
        assert not modlab.diagnose(model).findings, how
    model = net()

    def note(module, args, output):
        module.seen = output

    model[0].register_forward_hook(note)
    model(torch.randn(2, 4))
    assert not modlab.diagnose(model).findings


def test_what_a_pass_goes_on_from_should_be_a_buffer():
    model = Following("")
    model(torch.randn(2, 4))
    found = only(model)
    assert (found.kind, found.severity) == ("should be a buffer", "careful")
    exec(found.fix, {"self": model})
    assert not modlab.diagnose(model).findings and model.note.grad_fn is None


def test_one_tensor_in_a_container_is_in_it():
    model = net()
    model.masks = {"one": torch.ones(2)}
    assert only(model).sentence.startswith("masks holds a plain tensor: .to()")


def test_more_hiding_places_than_are_listed():
    model = nn.Module()
    for i in range(30):
        setattr(model, f"hidden_{i}", [nn.Linear(2, 2)])
    found = modlab.diagnose(model).findings
    assert len(found) == 20 and {one.severity for one in found} == {"broken"} and "11 more" in found[-1].sentence


def test_a_switch_that_is_none():
    model = net()
    model[0].requires_grad = False
    found = only(model)
    assert found.path == "0" and "freezes nothing: 2 of 2 parameters are trained" in found.what
    exec(found.fix, {"model": model})
    assert not model[0].weight.requires_grad and modlab.diagnose(model).findings == ()
    model[2].weight.require_grad = False
    found = only(model)
    assert (found.path, found.kind) == ("2.weight", "misspelt requires_grad")
    exec(found.fix, {"model": model})
    assert not model[2].weight.requires_grad and modlab.diagnose(model).findings == ()


def test_a_switch_that_says_what_is_so_is_no_finding():
    model = net().requires_grad_(False)
    model[0].requires_grad = False
    assert modlab.diagnose(model).findings == ()


def test_a_misspelt_constructor():
    class Typo(nn.Module):
        def _init_(self):
            self.fc = nn.Linear(2, 2)

    assert kinds(Typo()) == [("", "misspelt constructor")]


def test_super_forgotten_below():
    assert ("forgot", "never initialised") in kinds(zoo.named("forgot_super_below").build())


# ---- optimizers ----------------------------------------------------------------------------------------------------------------


def test_missing_parameters_are_told_by_module():
    model = nn.ModuleDict({"backbone": net(), "head": nn.Linear(2, 2), "norm": nn.LayerNorm(2)})
    optimizer = torch.optim.AdamW([*model["head"].parameters(), model["norm"].weight])
    found = modlab.diagnose(model, optimizer).findings
    assert [one.path for one in found] == ["backbone", "norm.bias"]
    assert found[0].places == ("backbone.0.weight", "backbone.0.bias", "backbone.2.weight", "backbone.2.bias")
    assert found[0].sentence == "backbone (4 parameters) is in no group of AdamW, so no step changes it"
    for one in found:
        exec(one.fix, {"model": model, "optimizer": optimizer})
    assert modlab.diagnose(model, optimizer).findings == ()


def test_frozen_ones_need_no_optimizer():
    model = net()
    model[0].requires_grad_(False)
    assert kinds(model, torch.optim.SGD(model[2].parameters(), lr=0.1)) == []


def test_one_of_several_optimizers_is_enough():
    model = net()
    assert kinds(model, [torch.optim.SGD(model[0].parameters(), lr=0.1), torch.optim.Adam(model[2].parameters())]) == []


def test_one_name_in_many_modules_is_one_finding():
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(6)))
    found = only(model, torch.optim.SGD([layer.weight for layer in model], lr=0.1))
    assert found.subject == "6 parameters named bias" and found.path == "" and len(found.places) == 6


def test_old_copies():
    model = net()
    optimizer = sgd(model)
    model[2] = nn.Linear(3, 2)
    found = only(model, optimizer)
    assert (found.path, found.kind) == ("2", "replaced since") and found.fix.startswith("optimizer = torch.optim.SGD(")
    assert kinds(model, eval(found.fix.partition(" = ")[2], {"torch": torch, "model": model})) == []


def test_another_models_parameters_are_a_note_alone():
    model, other = net(), nn.Linear(7, 7)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    assert kinds(model, optimizer) == [] and ("", "not of this model") in notes(model, optimizer)


def test_an_optimizer_of_another_model_holds_no_old_copies():
    model, other = net(), nn.Sequential(nn.Linear(4, 3), nn.Linear(9, 9))
    assert kinds(model, sgd(other)) == [("", "in no optimizer")]
    assert kinds(net(), sgd(net())) == [("", "replaced since")]


def test_held_twice():
    model = net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twice = torch.optim.SGD([*model.parameters(), model[0].weight], lr=0.1)
    found = only(model, twice)
    assert (found.path, found.severity) == ("0.weight", "broken") and "2 times in SGD #0" in found.what
    exec(found.fix, {"optimizer": twice})
    assert not modlab.diagnose(model, twice).findings and len(twice.param_groups[0]["params"]) == 4
    found = only(model, [sgd(model), torch.optim.Adam(model[0].parameters())])
    assert (found.path, found.severity) == ("0", "careful") and "in SGD #0 and in Adam #0" in found.what


def test_an_average_of_the_weights_is_in_no_optimizer():
    """Nothing trains it, and adding it to the optimizer would be the mistake."""
    model = net()
    model.average = torch.optim.swa_utils.AveragedModel(net())
    assert not modlab.diagnose(model, torch.optim.SGD([*model[0].parameters(), *model[2].parameters()], lr=0.1)).findings
    original = net()
    average = torch.optim.swa_utils.AveragedModel(original)
    assert not modlab.diagnose(average, sgd(original)).findings and not modlab.diagnose(average, sgd(average)).findings
    half = torch.optim.SGD(average.module[0].parameters(), lr=0.1)
    assert not modlab.diagnose(average, half).findings
    x, y = torch.randn(6, 4), torch.arange(6) % 2
    gradients = modlab.diagnose(average, batch=(x, y), loss=nn.CrossEntropyLoss()).experiments[0]
    assert (gradients.outcome, gradients.what) == ("passed", "all 4 parameters"), "alone it is a model as any other"


def test_an_optimizer_made_too_early_is_made_again_by_each_fix():
    """A weight that became two: one has the shape of the old one, the other has not; both fixes are the same line."""
    model = net()
    optimizer = sgd(model)
    torch.nn.utils.parametrizations.weight_norm(model[0])
    found = modlab.diagnose(model, optimizer).findings
    assert {one.kind for one in found} == {"replaced since", "in no optimizer"} and len({one.fix for one in found}) == 1
    names = {"torch": torch, "model": model}
    exec(found[0].fix, names)
    assert not modlab.diagnose(model, names["optimizer"]).findings and names["optimizer"].param_groups[0]["lr"] == 0.1


def test_an_optimizer_of_the_users_is_made_again_by_its_own_name():
    class Lion(torch.optim.SGD):
        pass

    model = net()
    optimizer = Lion(model.parameters(), lr=0.1)
    model.load_state_dict(model.state_dict(), assign=True)
    assert only(model, optimizer).fix.startswith("optimizer = Lion(model.parameters(), lr=0.1)")


APART = ("Optimizer", "SparseAdam", "LBFGS")
OPTIMIZERS = [name for name in dir(torch.optim) if inspect.isclass(getattr(torch.optim, name)) and name not in APART]


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("gradient", ["none", "zero", "left"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_frozen_but_moved_is_said_just_when_a_step_moves_it(name, decay, gradient, warm):
    """The oracle is the step itself, of each of torch's optimizers."""
    make = getattr(torch.optim, name)
    if decay and "weight_decay" not in inspect.signature(make).parameters:
        pytest.skip("knows no weight decay")
    torch.manual_seed(0)
    model = nn.ParameterDict({"frozen": nn.Parameter(torch.randn(3, 3)), "free": nn.Parameter(torch.randn(3, 3))})
    options = {"weight_decay": decay} if "weight_decay" in inspect.signature(make).parameters else {}
    optimizer = make(model.parameters(), lr=0.1, **options)
    for _ in range(2 * warm):
        for parameter in model.parameters():
            parameter.grad = torch.randn(3, 3)
        optimizer.step()
    model.frozen.requires_grad_(False)
    model.frozen.grad = {"none": None, "zero": torch.zeros(3, 3), "left": torch.ones(3, 3)}[gradient]
    model.free.grad = torch.randn(3, 3)
    said = [one.path for one in modlab.diagnose(model, optimizer).findings]
    before = model.frozen.clone()
    optimizer.step()
    assert said == ([] if torch.equal(before, model.frozen) else ["frozen"])


def test_the_fix_of_a_frozen_one_keeps_it_still():
    model = net()
    optimizer = sgd(model, weight_decay=0.1)
    model(torch.ones(2, 4)).sum().backward()
    model[0].requires_grad_(False)
    found = only(model, optimizer)
    assert found.path == "0"
    assert found.sentence.startswith("0 (Linear, 2 parameters) is frozen, but the next step of SGD #0 still moves it")
    exec(found.fix, {"model": model})
    assert kinds(model, optimizer) == [] and ("0", "frozen, in an optimizer") in notes(model, optimizer)


def test_state_left_on_another_device():
    model = net()
    optimizer = sgd(model, momentum=0.9)
    optimizer.state[model[0].weight]["momentum_buffer"] = torch.zeros(3, 4, device="meta")
    assert kinds(model, optimizer) == [("0.weight", "state left behind")]


def test_learning_rates_are_notes():
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}]
    found = notes(model, torch.optim.SGD(groups, lr=0.1))
    assert {("", "several learning rates"), ("", "learning rate 0")} <= found.keys()


def test_two_optimizers_have_one_rate_each():
    model = net()
    both = [torch.optim.SGD(model[place].parameters(), lr=rate) for place, rate in ((0, 0.1), (2, 0.0))]
    assert [kind for _, kind in notes(model, both)] == ["learning rate 0"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_bias_in_front_of_a_norm_that_is_kept_in_evaluation(kept):
    model, x = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(64, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer) as w:
        for _ in range(20):
            model.train()
            model[1].train(not kept)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    model.train()
    assert ("bias before a norm" in {one.kind for one in w.diagnose().notes}) is not kept


def test_a_loss_that_ends_above_zero_need_not_fall_any_more():
    torch.manual_seed(0)
    model, teacher = nn.Linear(8, 4), torch.randn(8, 4) / 8
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    with modlab.watch(model, optimizer) as w:
        for _ in range(200):
            x = torch.randn(64, 8)
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x), (x @ teacher).sigmoid()).backward()
            optimizer.step()
    assert not [one for one in w.diagnose().experiments if one.outcome == "failed"]


def test_what_is_usual_after_a_training_is_no_note():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    with modlab.watch(model, optimizer) as w:
        for left in range(100, 0, -1):
            x = torch.randn(64, 4)
            optimizer.param_groups[0]["lr"] = left / 1000
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()
            optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.0
    model.eval()
    assert {"learning rate 0", "in evaluation mode"} <= {one.kind for one in modlab.diagnose(model, optimizer).notes}
    assert not w.diagnose().notes


# ---- values, modes, devices, graphs, hooks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_not_finite(value):
    model = net()
    with torch.no_grad():
        model[2].weight[0, 1] = value
    found = only(model)
    assert (found.path, found.kind, found.severity) == ("2.weight", "not finite", "broken")
    assert f"1 {'NaN' if value != value else 'Inf'} among 6 numbers" in found.what


def test_a_mask_may_hold_infinities_and_no_nan():
    model = net()
    model.register_buffer("mask", torch.full((3, 3), -float("inf")).triu(1))
    assert kinds(model) == []
    model.mask[0, 0] = float("nan")
    assert kinds(model) == [("mask", "not finite")]


def test_zero_weights():
    model = net()
    nn.init.zeros_(model[2].weight)
    assert kinds(model) == [], "it is meant in LoRA's B, ControlNet's zero convolutions, adaLN-zero, heads"
    found = notes(model)["2.weight", "all zero"]
    assert "Intended for" in found.reason and not found.fix and found.advice == "If this is not intended: model[2].reset_parameters()"
    nn.init.zeros_(model[0].weight)
    assert kinds(model) == [], "the bias of the first leads on"
    nn.init.zeros_(model[0].bias)
    model(torch.ones(2, 4)).sum().backward()
    assert not any(model[i].weight.grad.any() for i in (0, 2)), "these never learn"
    found = only(model)
    assert (found.severity, found.kind) == ("broken", "all zero, in a row") and "never learns" in found.what
    exec(found.fix, {"model": model, "nn": nn})
    assert kinds(model) == []
    nn.init.zeros_(model[0].weight), nn.init.zeros_(model[0].bias), nn.init.zeros_(model[2].weight)
    model[1] = nn.Sigmoid()
    assert kinds(model) == [], "a sigmoid gives a half for zero"


MEANT = [nn.LayerNorm(4).requires_grad_(False), nn.Embedding(5, 1), nn.ParameterDict({"pos_embed": torch.zeros(1, 4, 8)})]


@pytest.mark.parametrize("zero", MEANT)
def test_zeros_that_are_meant(zero):
    for parameter in zero.parameters():
        nn.init.zeros_(parameter)
    assert kinds(zero) == []


def test_frozen_batch_norm_that_moves():
    body = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.BatchNorm2d(4)).requires_grad_(False)
    model = nn.ModuleDict({"body": body, "tail": nn.BatchNorm2d(4)})
    found = only(model)
    assert found.path == "body" and found.sentence.startswith("body (2 BatchNorm2d) has frozen weights, but is in training mode")
    before = body[1].running_mean.clone()
    body(torch.randn(2, 1, 5, 5))
    assert not torch.equal(before, body[1].running_mean)
    exec(found.fix, {"model": model, "nn": nn})
    assert kinds(model) == [] and model["tail"].training and not body[1].training


@pytest.mark.parametrize("width", [3, 4])
def test_norms_of_a_momentum_teacher_are_a_note(width):
    student, teacher = (nn.Sequential(nn.Linear(2, one), nn.BatchNorm1d(one)) for one in (3, width))
    found = modlab.diagnose(nn.ModuleDict({"student": student, "teacher": teacher.requires_grad_(False)}))
    moving = [one for one in (*found.findings, *found.notes) if one.kind == "frozen norm moves"]
    assert [(one.path, one.severity) for one in moving] == [("teacher.1", "note" if width == 3 else "careful")]


STILL = [nn.BatchNorm1d(3, track_running_stats=False), nn.BatchNorm1d(3, momentum=0.0), nn.BatchNorm1d(3).eval(), nn.InstanceNorm1d(3)]


@pytest.mark.parametrize("norm", STILL)
def test_frozen_norms_that_stay(norm):
    assert kinds(norm.requires_grad_(False)) == []


def test_mixed_devices():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 2, device="meta"))
    assert kinds(model) == [("2", "no values yet")]
    assert kinds(net().to("meta")) == []


def test_a_buffer_with_a_graph():
    from modlab.lessons.note import RunningMean

    model = RunningMean(4)
    model(torch.ones(4))
    assert kinds(model) == []
    model(torch.ones(4, requires_grad=True))
    found = only(model)
    assert (found.path, found.kind, found.severity) == ("mean", "carries a graph", "broken")
    exec(found.fix, {"model": model})
    assert kinds(model) == [] and model.mean.grad_fn is None


def hook(*_):
    return None


def test_doubled_hooks_and_the_fix():
    model = net()
    model[0].register_forward_hook(hook)
    assert kinds(model) == []
    model[0].register_forward_hook(hook)
    found = only(model)
    assert found.path == "0" and "forward hook hook twice" in found.what
    model[0].register_forward_pre_hook(lambda *_: None)
    model[0].register_forward_hook(print)
    exec(found.fix, {"modlab": modlab, "model": model})
    assert kinds(model) == [] and [*model[0]._forward_hooks.values()] == [hook, print] and len(model[0]._forward_pre_hooks) == 1


def test_hooks_left_by_an_earlier_run_of_a_cell():
    model = net()
    cell = compile("def probe(*_): ...\nmodel[2].register_forward_hook(probe)", "<ipython-input-3-0a1b2c>", "exec")
    room = {"model": model, "__name__": "__main__"}
    exec(cell, room)
    assert kinds(model) == []
    exec(compile("def probe(*_): ...\nmodel[2].register_forward_hook(probe)", "<ipython-input-3-0a1b2c>", "exec"), room)
    found = modlab.diagnose(model).findings
    assert [one.path for one in found] == ["2"] and found[0].kind in ("left-over hook", "doubled hook")


# ---- notes ---------------------------------------------------------------------------------------------------------------------


def test_notes_are_asked_for_and_change_no_verdict():
    model = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(1.0), nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.Linear(4, 4)
    )
    model[3].register_full_backward_hook(hook)
    nn.init.normal_(model[5].weight, std=100.0)
    model[1].eval()
    result = modlab.diagnose(model)
    assert result.findings == () and result.verdict == "fine" and result.headline.startswith("Nothing certain found in Sequential")
    assert {(one.path, one.kind) for one in result.notes} == {  # and not the bias before a norm, which is kept in evaluation
        ("2", "dropout 1"),
        ("4", "in place after a hook"),
        ("6", "nothing between"),
        ("5.weight", "wild scale"),
        ("1", "mixed modes"),
    }
    assert not any(one.certain for one in result.notes)


def test_many_notes_of_a_kind_are_one():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)) for _ in range(9)))
    (note,) = modlab.diagnose(model).notes
    assert note.what.endswith("; and 8 more places like it") and len(note.places) == 9


# ---- no false alarm ------------------------------------------------------------------------------------------------------------

_GIVEN = {
    "in_features": 4,
    "out_features": 4,
    "in_channels": 4,
    "out_channels": 4,
    "kernel_size": 3,
    "num_features": 4,
    "normalized_shape": 4,
    "num_groups": 2,
    "num_channels": 4,
    "embed_dim": 4,
    "num_heads": 2,
    "d_model": 4,
    "nhead": 2,
    "num_embeddings": 5,
    "embedding_dim": 4,
    "input_size": 4,
    "hidden_size": 4,
    "in1_features": 4,
    "in2_features": 4,
    "n_classes": 20,
    "cutoffs": [5, 10],
    "padding": 1,
    "num_layers": 2,
    "output_size": 2,
    "upscale_factor": 2,
    "downscale_factor": 2,
    "size": 4,
    "min_val": 0,
    "lower": 0,
    "threshold": 0.1,
    "value": 0.2,
    "groups": 2,
    "dim": 1,
    "unflattened_size": (2, 2),
    "num_parameters": 4,
    "output_ratio": 0.5,
}


def torchs_own():
    for name, cls in inspect.getmembers(nn, inspect.isclass):
        if not issubclass(cls, nn.Module) or name in ("Module", "Container", "DataParallel", "RNN", "GRU", "LSTM") or "Transformer" in name:
            continue
        needed = [p.name for p in inspect.signature(cls).parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        needed += ["output_size"] if name.startswith("Fractional") else []
        if set(needed) <= _GIVEN.keys():
            yield pytest.param(cls, {key: _GIVEN[key] for key in needed}, id=name)


LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.RNN, nn.GRU, nn.LSTM)
OWN = [
    *torchs_own(),
    *(pytest.param(lambda cls=cls: cls(8, 2), {}, id=cls.__name__) for cls in LAYERS),
    pytest.param(lambda: nn.Transformer(8, 2, 2, 2, 16), {}, id="Transformer"),
]


def test_most_of_torchs_own_are_tried():
    assert len(OWN) > 100


@pytest.mark.parametrize(("make", "options"), OWN)
def test_torchs_own_modules_raise_no_alarm(make, options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(make(**options))
    optimizer = [sgd(model)] if list(model.parameters()) else None
    assert modlab.diagnose(model, optimizer).findings == () and modlab.diagnose(model.eval()).findings == ()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_known_architectures_raise_no_alarm(name):
    torch.manual_seed(0)
    model = ARCHITECTURES[name][0]()
    result = modlab.diagnose(model, torch.optim.AdamW(model.parameters()))
    assert result.findings == () and result.verdict == "fine", str(result)


QUIET = [
    "mlp",
    "cnn",
    "lstm",
    "tied_weight",
    "reused_module",
    "meta",
    "lazy",
    "tied_blocks",
    "parametrized",
    "weight_norm_legacy",
    "spectral_norm_legacy",
    "pruned",
    "pruned_for_good",
    "quantized_dynamic",
    "quantized_static",
    "observed",
    "scripted",
    "traced",
    "compiled",
    "fx_graph",
    "averaged",
    "data_parallel",
    "distributed_like",
    "sparse",
    "nested",
    "dtypes",
]


@pytest.mark.parametrize("name", QUIET)
def test_odd_but_healthy_modules_raise_no_alarm(name):
    assert modlab.diagnose(zoo.named(name).build()).findings == ()


# ---- look, don't touch ---------------------------------------------------------------------------------------------------------


def faces(result):
    return str(result), result.headline, result.html(), result.html(bundle=False), result.to_dict(), repr(result.records)


@pytest.mark.parametrize("case", zoo.CASES, ids=str)
def test_looking_changes_nothing_and_says_the_same_twice(case):
    model = case.build()
    before = identity.everything(model)
    first, second = faces(modlab.diagnose(model)), faces(modlab.diagnose(model))
    assert identity.everything(model) == before
    assert first == second
    assert not re.search(r"0x[0-9a-f]{6,}", first[0]) and first[0].startswith(first[1])
    assert "<img src=x" not in first[3] and "<script>alert" not in first[3]


def test_looking_takes_no_gradient_and_no_optimizer_state():
    model = net()
    optimizer = sgd(model, momentum=0.9)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    state = {id(key): {name: (id(value), value.clone()) for name, value in entry.items()} for key, entry in optimizer.state.items()}
    grads = [id(p.grad) for p in model.parameters()]
    modlab.diagnose(model, optimizer)
    assert [id(p.grad) for p in model.parameters()] == grads
    for key, entry in optimizer.state.items():
        assert all(id(value) == state[id(key)][name][0] and torch.equal(value, state[id(key)][name][1]) for name, value in entry.items())


def test_the_model_is_freed():
    model = net()
    model.adapters = [nn.Linear(2, 2)]
    optimizer = sgd(model)
    result = modlab.diagnose(model, optimizer)
    watched = [weakref.ref(thing) for thing in (model, model.adapters[0], model[0].weight)]
    del model, optimizer
    gc.collect()
    assert [ref() for ref in watched] == [None] * 3
    assert str(result).startswith("1 finding: adapters") and result.html()
    with pytest.raises(GoneError):
        result._alive("this")


# ---- the result ----------------------------------------------------------------------------------------------------------------


def test_the_worst_comes_first_and_faces_say_the_same():
    model = net()
    model.mask = torch.ones(2)
    model[0].weight.data[0, 0] = float("nan")
    result = modlab.diagnose(model)
    assert [one.severity for one in result.findings] == ["broken", "careful"] and result.verdict == "broken"
    assert result.headline.startswith("2 findings: 0.weight holds 1 NaN among 12 numbers")
    assert str(result).splitlines()[2].startswith("0.weight  not finite")
    page = result.html(bundle=False)
    assert all(one.path in page and one.kind in page for one in result.findings) and "register_buffer" in page
    assert [row["path"] for row in result.to_dict()["records"]] == ["0.weight", "mask"]


def test_nothing_found_says_what_was_looked_at():
    text = str(modlab.diagnose(net()))
    every, without = len(catalogue.FINDINGS), len(catalogue.FINDINGS) - 4  # four are about optimizers
    assert text.startswith(
        f"Nothing found at rest in Sequential: {without} kinds of mistakes checked in 4 modules, 4 parameters and 0 buffers."
    )
    assert "not run with a batch, so gradients, the loss and what it learns were not looked at." in text
    model = net()
    assert modlab.diagnose(model, sgd(model)).headline.startswith(f"Nothing found at rest in Sequential: {every} kinds")


def test_a_check_that_cannot_be_made_is_said(monkeypatch):
    def broken(_):
        raise RuntimeError("no such kernel\nmore")
        yield

    monkeypatch.setattr(catalogue, "FINDINGS", (broken,))
    assert "not seen: broken: not checked, RuntimeError: no such kernel" in str(modlab.diagnose(net()))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"batch": (1, 2)}, BatchError, r"but no loss=.*\n.*loss=nn\.CrossEntropyLoss\(\)"),
        ({"loss": nn.MSELoss()}, BatchError, "but no batch="),
        ({"batch": torch.ones(2), "loss": nn.MSELoss()}, BatchError, "batch= got a Tensor, but needs a pair"),
        ({"batch": (1, 2, 3), "loss": nn.MSELoss()}, BatchError, "a tuple of 3"),
        ({"batch": (1, 2), "loss": nn.MSELoss}, BatchError, r"the class MSELoss itself.*\n.*nn\.MSELoss\(\)"),
        ({"batch": (1, 2), "loss": "mse"}, BatchError, "loss= got a str"),
        ({"optimizer": 3}, NotAnOptimizerError, r"got an int, .*\n.*modlab\.diagnose\(model, torch"),
    ],
)
def test_bad_arguments_are_told_what_to_do(options, error, text):
    with pytest.raises(error, match=text):
        modlab.diagnose(net(), **options)


def test_what_is_no_module_is_told_what_to_do():
    with pytest.raises(NotAModuleError, match=r"modlab\.diagnose\(nn\.ModuleList"):
        modlab.diagnose([net()])


# ---- many modules, one finding -------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.fc, self.ln2 = nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4)


def blocks():
    model = nn.Module()
    model.blocks, model.ln_f = nn.ModuleList(Block() for _ in range(4)), nn.LayerNorm(4)
    return model


def test_modules_of_one_class_are_one_finding_with_one_fix():
    model = blocks()
    optimizer = torch.optim.AdamW([p for block in model.blocks for p in block.fc.parameters()])
    found = only(model, optimizer)
    assert found.subject == "9 LayerNorm (blocks.*.ln1, blocks.*.ln2, ln_f)" and len(found.places) == 18
    assert found.what.startswith("are in no group of AdamW, so no step changes them")
    exec(found.fix, {"model": model, "optimizer": optimizer})
    assert modlab.diagnose(model, optimizer).findings == ()


def test_few_modules_of_one_class_are_named_in_the_fix():
    model = net()
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(7))], lr=0.1)
    model.extra = nn.LayerNorm(2)
    optimizer.add_param_group({"params": model.extra.parameters()})
    found = only(model, optimizer)
    assert found.subject == "2 Linear (0, 2)"
    exec(found.fix, {"model": model, "optimizer": optimizer})
    assert modlab.diagnose(model, optimizer).findings == ()


def test_zero_weights_of_one_class_are_mended_together():
    model = blocks()
    for block in model.blocks:
        nn.init.zeros_(block.fc.weight)
    nn.init.ones_(model.blocks[0].fc.weight)
    assert modlab.diagnose(model).findings == ()
    found = notes(model)["blocks", "all zero"]
    assert found.subject == "3 weights of Linear (blocks.*.fc)"
    exec(found.advice.removeprefix("If this is not intended: "), {"model": model})
    assert not any(kind == "all zero" for _, kind in notes(model))


def test_meta_modules_of_one_class_get_values_and_no_other_loses_its_own():
    model = nn.Sequential(nn.Linear(4, 4, device="meta"), nn.LayerNorm(4), nn.Linear(4, 4, device="meta"), nn.LayerNorm(4), nn.LayerNorm(4))
    before = model[1].weight
    found = only(model)
    exec(found.fix, {"model": model})
    assert model[1].weight is before and not any(p.is_meta for p in model.parameters())


def test_hidden_in_each_block_is_one_finding():
    model = blocks()
    for block in model.blocks:
        block.adapters = [nn.Linear(4, 4), nn.Linear(4, 4)]
    found = only(model)
    assert found.subject == "blocks.*.adapters (2 Linear) in 4 places" and len(found.places) == 4


def test_the_headline_names_different_kinds_and_a_check_that_failed():
    class Aside(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y + self.aux(y).detach()

    model = Aside(4, 2)
    for i in range(5):
        setattr(model, f"mask_{i}", torch.ones(i + 1))
    model.aux = nn.Linear(2, 2)
    result = modlab.diagnose(model, batch=(torch.randn(6, 4), torch.zeros(6, 2)), loss=nn.MSELoss())
    assert result.headline.startswith("5 findings and 1 failed check: mask_0 is a plain tensor") and "mask_1" not in result.headline
    assert "aux (2 parameters) gets no gradient; and 4 more." in result.headline


def test_what_does_not_repeat_where_and_each_row_has_details():
    model = net()
    model.adapters = [nn.Linear(2, 2)]
    result = modlab.diagnose(model, batch=(torch.randn(6, 4), torch.zeros(6, 2)), loss=nn.MSELoss())
    rows = result._sheet().rows
    assert rows[0].cells[0].text == "adapters" and rows[0].cells[2].text.startswith("1 Linear is hidden in a list")
    assert all(row.blocks() for row in rows)
    model.adapters.append(nn.Linear(2, 2))
    assert modlab.diagnose(model)._sheet().rows[0].cells[2].text == "2 Linear are hidden in a list: they are not trained, moved or saved"


def test_the_numbers_of_a_check_have_names_of_words():
    result = modlab.diagnose(net(), batch=(torch.randn(6, 4), torch.tensor([0, 1] * 3)), loss=nn.CrossEntropyLoss())
    told = {
        row.name: [name for block in row.blocks() if block.caption == "numbers" for name, _ in block.rows] for row in result._sheet().rows
    }
    assert told["gradients arrive"] == ["trained parameters", "without a gradient", "gradient zero", "gradient not finite"]
    assert told["first loss fits"] == ["loss", "loss of a guess"]
    assert told["one batch is learned"] == ["loss at first", "least loss", "steps"]


def test_two_places_in_one_sentence_are_both_said():
    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.a, self.b = nn.Linear(4, 2), nn.Linear(3, 3), nn.LayerNorm(3)

        def forward(self, x):
            return self.fc(x)

    result = modlab.diagnose(Aside(), batch=(torch.randn(6, 4), torch.zeros(6, 2)), loss=nn.MSELoss())
    row = next(row for row in result._sheet().rows if row.name == "gradients arrive")
    assert row.cells[2].text == "a (2 parameters) and b (2 parameters) get no gradient"


def test_eval_mode_with_an_optimizer_is_a_note():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1), nn.BatchNorm1d(3))
    assert ("", "in evaluation mode") not in notes(model, sgd(model))
    model.eval()
    assert ("", "in evaluation mode") not in notes(model)
    found = notes(model, sgd(model))["", "in evaluation mode"]
    assert "Dropout and BatchNorm1d act as in inference" in found.what and found.fix.startswith("model.train()")
    assert ("", "in evaluation mode") not in notes(net().eval(), sgd(net()))


def test_memory_that_was_never_filled_is_to_be_initialised():
    model = nn.Sequential(nn.utils.skip_init(nn.Linear, 4, 4))
    with torch.no_grad():
        model[0].weight.fill_(float("nan"))
        model[0].bias.zero_()
    (found,) = [one for one in modlab.diagnose(model).findings if one.kind == "not finite"]
    said = "If it was just made by skip_init or to_empty, initialize it: model[0].reset_parameters(). If it was trained:"
    assert found.advice == said and found.fix.startswith("model.load_state_dict(last_good)")
    exec("model[0].reset_parameters()", {"model": model})
    assert not [one for one in modlab.diagnose(model).findings if one.kind == "not finite"]
    with torch.no_grad():
        model[0].weight.fill_(float("nan"))
    model[0].weight.grad = torch.zeros(4, 4)
    (found,) = [one for one in modlab.diagnose(model).findings if one.kind == "not finite"]
    assert not found.advice  # something has flowed back: it is not new
