"""Differences that were told falsely, or not at all, before somebody looked for them."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import modlab
from modlab.errors import CheckpointError, NotComparableError
from modlab.lessons.note import Net, RunningMean, StatefulModule
from modlab.wording import differences
from tests.inspection.test_difference import statuses, step_of


def shifted(model):
    """A model with no zeros and ones in it, so that its bits tell its tensors apart."""
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter))
    return model


def test_zeros_and_ones_are_no_evidence_of_a_name():
    """All-zero biases and fresh norms have the bits of many tensors."""
    found = modlab.diff({"old": torch.zeros(5), "w": torch.ones(2)}, {"new": torch.zeros(5), "w": torch.ones(2)})
    assert statuses(found) == {"new": "added", "w": "unchanged", "old": "removed"}
    gone, came = nn.ModuleDict({"a": nn.Linear(4, 4), "x": nn.LayerNorm(4)}), nn.ModuleDict({"y": nn.LayerNorm(4)})
    came["a"] = gone["a"]
    found = modlab.diff(modlab.snapshot(gone), modlab.snapshot(came))
    assert not found.find(status="renamed") and len(found.find(status="added")) == 2
    for values in (True, False):
        found = modlab.diff(modlab.snapshot(gone, values=values), modlab.snapshot(came, values=values))
        assert not found.find(status="renamed"), "nor are their fingerprints"


def test_a_guess_that_another_equals_is_none():
    torch.manual_seed(0)
    left, right = (nn.ModuleDict({name: nn.Linear(4, 4) for name in names}) for names in ("abcd", "wxyz"))
    for layer in [*left.values(), *right.values()]:
        nn.init.zeros_(layer.bias)
    found = modlab.diff(modlab.snapshot(left), modlab.snapshot(right))
    assert "8 renamed, judged only by shape" in found.headline and "4 of 8 tensors changed" in found.headline
    right["y"].load_state_dict(left["a"].state_dict())
    assert modlab.diff(modlab.snapshot(left), modlab.snapshot(right))["y.weight"].renamed_from == "a.weight", "bits go before order"


def test_a_part_in_the_middle_of_many_names_is_one_rule():
    def build(norm):
        return nn.ModuleList([nn.ModuleDict({norm: nn.LayerNorm(4), "fc": nn.Linear(4, 4)}) for _ in range(6)])

    torch.manual_seed(0)
    old, new = shifted(build("norm1")), build("attention_norm")
    found = modlab.diff(old.state_dict(), new)
    assert [differences.renaming(r) for r in found.record.renamings] == ['"norm1." is called "attention_norm." everywhere']
    scope = {"state_dict": old.state_dict()}
    exec(found.record.renamings[0].code, scope)
    assert str(new.load_state_dict(scope["state_dict"])) == "<All keys matched successfully>"


def test_the_code_repairs_the_part_of_a_checkpoint_that_is_loaded():
    torch.manual_seed(0)
    net = Net()
    checkpoint = {"model": {f"module._orig_mod.{k}": v.clone() for k, v in net.state_dict().items()}, "epoch": 3}
    found = modlab.diff(checkpoint, net)
    scope = {"checkpoint": checkpoint, "model": net}
    exec(found.record.loading.repair, scope)
    assert modlab.diff(checkpoint, net).record.loading.repair  # what was passed is as it was


def test_fingerprints_of_a_renamed_tensor_that_changed_say_so():
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    before = modlab.snapshot(model, values=False)
    model.weight.data[0, 0] = 5
    found = modlab.diff(before, {f"m.{k}": v for k, v in model.state_dict().items()})
    assert found["m.weight"].status == "renamed" and found["m.weight"].differs and not found["m.bias"].differs
    assert found.headline.startswith("Linear: 1 of 2 tensors changed; 2 renamed")
    assert (
        "2 tensors were not compared (fingerprints can be compared only between values of one dtype)"
        in modlab.diff(before, model.double()).headline
    )


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (lambda w: w.t(), "the same values, transposed"),
        (lambda w: w.reshape(2, 6), "the same values in a different shape"),
        (lambda w: torch.cat([w, w]), "the first 3 rows are unchanged, 3 more"),
        (lambda w: w[:1], "the first row is unchanged, 2 fewer"),
        (lambda w: w.t() + 1, ""),
        (lambda w: w.reshape(2, 6) + 1, ""),
        (lambda w: w[1:], ""),
    ],
)
def test_what_became_of_reshaped_values(change, note):
    weight = torch.arange(12.0).reshape(3, 4)
    record = modlab.diff({"w": weight}, {"w": change(weight).clone()})["w"]
    assert (record.status, record.note) == ("reshaped", note)


def test_ties_that_break_and_ties_that_form():
    model = nn.ModuleDict({"emb": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["emb"].weight
    before = modlab.snapshot(model)
    model["head"].weight = nn.Parameter(model["emb"].weight.detach().clone())
    found = modlab.diff(before, model)
    assert found.headline.startswith("ModuleDict: head.weight is no longer tied to emb.weight; head.weight is a new tensor object")
    before = modlab.snapshot(model)
    model["head"].weight = model["emb"].weight
    found = modlab.diff(before, model)
    assert found.headline.startswith("ModuleDict: head.weight is tied now to emb.weight; 0 of 2 tensors changed")
    assert found["head.weight"].note == "the tensor object that was emb.weight" and "no longer the tensor object" not in str(found)


def test_layers_that_change_places_and_a_weight_that_is_replaced():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    before = modlab.snapshot(model)
    model[0], model[1] = model[1], model[0]
    assert "4 of them changed places (0.weight was 1.weight)" in modlab.diff(before, model).headline
    before = modlab.snapshot(model)
    model[0].weight = nn.Parameter(model[0].weight.detach().clone())
    text = "0.weight is a new tensor object, which an optimizer created earlier does not hold"
    assert text in modlab.diff(before, model).headline and not modlab.diff(before, model)["0.weight"].differs
    assert "tensor object" not in str(modlab.diff(before, copy.deepcopy(model))), "of another model nothing else is to be expected"


def test_a_buffer_that_joins_the_graph_and_one_that_moves_in_evaluation_mode():
    model = RunningMean(4)
    before = modlab.snapshot(model)
    model(torch.ones(4, requires_grad=True))
    assert modlab.diff(before, model).headline.startswith("RunningMean: mean is a buffer now in the autograd graph, which grows")
    model = RunningMean(4).eval()
    before = modlab.snapshot(model)
    model(torch.ones(4))
    found = modlab.diff(before, model)
    assert found.headline.startswith("RunningMean: mean changed although its module is in evaluation mode; 1 of 1 tensor changed")
    model = nn.BatchNorm1d(4).eval()
    before = modlab.snapshot(model)
    shifted(model).running_mean.add_(1)
    assert "although" not in modlab.diff(before, model).headline, "parameters changed too: it was loaded, or written to"


def test_a_reserved_buffer_that_became_a_parameter():
    model = StatefulModule()
    before = modlab.snapshot(model)
    model.buffer3 = nn.Parameter(torch.ones(2))
    assert modlab.diff(before, model).headline.startswith("StatefulModule: buffer3 was reserved for a buffer, is a parameter;")


def test_pruning_shows_where_the_parameter_went():
    model = nn.Linear(3, 3)
    before = modlab.snapshot(model)
    torch.nn.utils.prune.l1_unstructured(model, "weight", 0.3)
    found = modlab.diff(before, model)
    assert found["weight"].note == "was a parameter, is an attribute, which state_dict() leaves out"
    assert found["weight_orig"].note == "the tensor object that was weight" and found["weight"].status == "changed"


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "dampening": 0.5}])
def test_decay_alone_with_every_kind_of_momentum(options):
    found, net, optimizer = step_of(torch.optim.SGD, lr=1e-2, weight_decay=1e-2, **options)
    assert {r.path: r.decayed for r in found.find(kind="parameter")} == {"l0.weight": 12, "l0.bias": 3, "l1.weight": 3, "l1.bias": 0}
    before = modlab.snapshot(net, optimizer)
    optimizer.step()
    found = modlab.diff(before, net)
    if options:
        assert found["l1.weight"].note == "momentum and weight decay alone: its gradient is zero" and not found["l1.weight"].decayed
        assert "l0.weight, l0.bias and l1.weight moved by momentum and weight decay where the gradient is zero" in found.headline
    else:
        assert found["l1.weight"].decayed == 3


def test_the_state_of_lbfgs_is_that_of_all_parameters():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(4)
    optimizer = torch.optim.LBFGS(net.parameters())

    def closure():
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        return loss

    before = modlab.snapshot(net, optimizer)
    optimizer.step(closure)
    found = modlab.diff(before, net)
    assert not [r for r in found.find(kind="optimizer state") if r.owner] and "the optimizer stepped" in found.headline
    assert len(str(found).splitlines()) < 60 and len(found.find(kind="optimizer state")) > 60


def test_settings_and_groups_are_told_apart():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = modlab.snapshot(net, optimizer)
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.3})
    found = modlab.diff(before, net)
    assert found.headline.endswith("optimizer.param_groups.0.lr is 0.5 (was 0.1); 1 parameter group added.")
    assert "lr hyper-parameter (0.3)" in str(found)


def test_values_beside_tensors_are_in_the_headline_and_arrays_are_tensors():
    assert modlab.diff({"w": torch.ones(2), "epoch": 1}, {"w": torch.ones(2), "epoch": 2}).headline.endswith("; epoch changed.")
    found = modlab.diff({"a": np.ones(3), "b": np.array(["x"])}, {"a": torch.zeros(3, dtype=torch.float64), "b": np.array(["x"])})
    assert found["a"].max_abs == 1 and found["b"].status == "unchanged"
    frozen = np.ones(3)
    frozen.flags.writeable = False
    assert not modlab.diff({"a": frozen}, {"a": np.ones(3)}).changed


@pytest.mark.parametrize("side", [None, 5, nn.Linear, torch.ones(2), [torch.ones(2)]], ids=["None", "int", "class", "tensor", "list"])
def test_one_thing_that_is_no_state_is_not_compared_with_itself(side):
    with pytest.raises(NotComparableError):
        modlab.diff(side, side)


def test_a_name_that_no_file_can_have():
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(CheckpointError, match=r"cannot be read|no file"):
            modlab.diff(name, nn.Linear(1, 1))


def test_lazy_tensors_get_their_shapes():
    model = nn.Sequential(nn.LazyLinear(3))
    before = modlab.snapshot(model)
    model(torch.ones(1, 2))
    found = modlab.diff(before, model)
    assert "2 reshaped (was lazy, without a shape)" in found.headline and "lazy → (3, 2)" in str(found)


def test_the_mode_of_a_compiled_module_is_that_of_what_is_in_it():
    model = nn.Linear(2, 2)
    compiled = torch.compile(model, backend="eager")
    assert not modlab.diff(modlab.snapshot(model), compiled).find(kind="flag")


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.Adafactor, torch.optim.RMSprop, torch.optim.Adagrad])
def test_every_optimizer_steps_in_sight(optimizer):
    found, _, _ = step_of(optimizer, lr=1e-2)
    assert found["l1.bias"].status == "changed" and "the optimizer stepped" in found.headline and "decay" not in found.headline


def test_a_buffer_that_leaves_the_state_dict():
    model = nn.BatchNorm1d(2)
    before = modlab.snapshot(model)
    model.register_buffer("running_mean", model.running_mean, persistent=False)
    found = modlab.diff(before, model)
    assert found.headline == "BatchNorm1d: running_mean is no longer in the state_dict; 0 of 5 tensors changed."
    assert found["running_mean.persistent"].value_after == "False" and "running_mean" not in model.state_dict()


# ---- values under other names, and what nothing but weight decay did -------------------------------------------------------------


def test_values_under_each_others_names():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    state = {f"{1 - int(name[0])}{name[1:]}": tensor.clone() for name, tensor in model.state_dict().items()}
    found = modlab.diff(state, model)
    assert "4 tensors have each other's values (0.weight holds what was in 1.weight)" in found.headline
    assert found["1.bias"].note == "holds what was in 0.bias"
    state["0.weight"] = state["0.weight"] + 1
    assert "holds what" not in modlab.diff(state, model)["1.weight"].note
    zeros = {name: torch.zeros(3) for name in "ab"}
    assert "each other" not in modlab.diff(zeros, {"a": torch.ones(3), "b": torch.zeros(3)}).headline


COUPLED = ["Adam", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta"]


@pytest.mark.parametrize("name", COUPLED)
def test_decay_that_is_added_to_the_gradient_is_told_too(name):
    torch.manual_seed(0)
    layer = nn.Linear(4, 4, bias=False)
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.5, weight_decay=0.1)
    layer.weight.grad = torch.zeros(4, 4)
    layer.weight.grad[0] = 1.0
    before = modlab.snapshot(layer, optimizer)
    optimizer.step()
    found = modlab.diff(before, modlab.snapshot(layer, optimizer))["weight"]
    assert found.decayed == 12 and found.note == "weight decay alone in 12 of 16"


@pytest.mark.parametrize("name", COUPLED)
def test_a_gradient_that_was_there_and_is_zero_since_is_no_decay(name):
    torch.manual_seed(0)
    layer = nn.Linear(4, 4, bias=False)
    optimizer = getattr(torch.optim, name)(layer.parameters(), lr=0.5, weight_decay=0.1)
    layer.weight.grad = torch.ones(4, 4)
    before = modlab.snapshot(layer, optimizer)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert modlab.diff(before, modlab.snapshot(layer, optimizer))["weight"].decayed == 0


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_loop_that_ends_by_zero_grad_moved_nothing_by_momentum_alone(kind, to_none, steps):
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    optimizer = getattr(torch.optim, kind)(layer.parameters(), lr=0.1, weight_decay=0.1, **({"momentum": 0.9} if kind == "SGD" else {}))

    def train(rounds):
        for _ in range(rounds):
            layer(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)

    train(2)
    before = modlab.snapshot(layer, optimizer)
    train(steps)
    found = modlab.diff(before, modlab.snapshot(layer, optimizer))
    assert "momentum" not in found.headline and "momentum" not in str(found["weight"].notes)


def test_two_names_that_are_alike_are_no_renaming():
    state = {("final." + name.removeprefix("l1.") if name.startswith("l1.") else name): t for name, t in Net().state_dict().items()}
    state["final.weight"] = torch.randn(3, 7)
    found = modlab.diff(state, Net())
    assert "renamed" not in found.headline and {found["l1.weight"].status, found["final.weight"].status} == {"added", "removed"}


def test_the_code_beside_a_load_that_would_raise_runs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    missing = {name: t + 1 for name, t in model.state_dict().items() if name != "1.bias"}
    resized = {name: t + 1 for name, t in model.state_dict().items()} | {"1.weight": torch.zeros(1, 7), "1.bias": 3}
    for state in (missing, resized):
        with pytest.raises(RuntimeError):
            model.load_state_dict(state)
        block = next(block for block in modlab.diff(state, model)._sheet().notes if "would raise" in block.prose)
        target = copy.deepcopy(model)
        exec(block.code, {"model": target, "state_dict": state, "print": lambda *_: None})
        assert torch.equal(target[0].weight, state["0.weight"])
    alien = modlab.diff({"x": torch.zeros(2), "y": torch.ones(3)}, model)
    assert not next(block for block in alien._sheet().notes if "would raise" in block.prose).code, "nothing of it fits"


def test_a_sign_of_infinity_is_a_change_that_has_no_distance():
    found = modlab.diff({"w": torch.tensor([float("inf"), 1.0])}, {"w": torch.tensor([-float("inf"), 1.0])})
    assert (found["w"].status, found["w"].max_abs, found["w"].relative_l2) == ("changed", float("inf"), None)


def test_an_extra_state_that_changed_is_in_the_headline():
    class Extra(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.count = nn.Linear(2, 2), 1

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    model = Extra()
    before = modlab.snapshot(model)
    model.count = 2
    assert modlab.diff(before, model).headline.startswith("Extra: _extra_state.count changed; 0 of 2 tensors changed")


class Extra(nn.Linear):
    """Saves what is no tensor beside its weights."""

    def get_extra_state(self):
        return {"scale": 2.0}

    def set_extra_state(self, state):
        self.scale = state["scale"]


def test_names_of_what_is_no_tensor_are_repaired_too():
    """What the repair would do is seen by the keys that its code gives, of an extra state as well."""
    model = nn.Sequential(Extra(3, 3), nn.Linear(3, 2))
    weights = {f"module.{key}": value for key, value in copy.deepcopy(model).state_dict().items()}
    found = modlab.diff(weights, model).record.loading
    assert found.fails and found.repaired is not None and not found.repaired.fails
    names = {"state_dict": weights, "model": model}
    exec(found.repair, names)
    assert model[0].scale == 2.0 and not modlab.diff(names["state_dict"], model).changed
    weights["module.1.bias"] = [0.0, 0.0]
    assert [key for key, _ in modlab.diff(weights, model).record.loading.repaired.wrong] == ["1.bias"]


@pytest.mark.parametrize("prefix", ["", "module."])
def test_what_fits_alone_is_chosen_beside_an_extra_state(prefix, capsys):
    model = nn.Sequential(Extra(3, 3), nn.Linear(3, 2))
    weights = {prefix + key: value for key, value in model.state_dict().items()}
    weights[prefix + "1.weight"] = torch.zeros(5, 3)
    (code,) = [note.code for note in modlab.diff(weights, model)._sheet().notes if "fitting" in note.code]
    exec(code, {"state_dict": weights, "model": model})
    assert capsys.readouterr().out == "_IncompatibleKeys(missing_keys=['1.weight'], unexpected_keys=[])\n" and model[0].scale == 2.0


def stepping(kind, **options):
    torch.manual_seed(0)
    net = Net()
    optimizer = kind(net.parameters(), lr=0.1, **options)
    net(torch.ones(4)).square().sum().backward()
    optimizer.step()
    return net, optimizer


@pytest.mark.parametrize(("kind", "options"), [(torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {})])
def test_a_state_that_is_loaded_is_no_step(kind, options):
    net, optimizer = stepping(kind, **options)
    weights, old = copy.deepcopy(net.state_dict()), copy.deepcopy(optimizer.state_dict())
    optimizer.step()
    before = modlab.snapshot(net, optimizer)
    optimizer.load_state_dict(old)
    count = len(optimizer.state[net.l0.weight]) * 4
    assert modlab.diff(before, net).headline == f"Net: 0 of 4 tensors changed; {count} optimizer states changed."
    if kind is torch.optim.Adam:  # it counts its steps, which tells the way back from the way on
        net.load_state_dict(weights)
        assert modlab.diff(before, net).headline == f"Net: 4 of 4 tensors changed; {count} optimizer states changed."
    optimizer.step()
    optimizer.step()
    assert "the optimizer stepped" in modlab.diff(before, net).headline


def test_two_optimizers_that_differ_have_made_no_step():
    (_, one), (net, other) = stepping(torch.optim.Adam), stepping(torch.optim.Adam)
    other.step()
    assert modlab.diff(one, other).headline == "Adam: 12 optimizer states changed."
    assert modlab.diff(other, one.state_dict()).headline == "Adam → state_dict: 12 optimizer states changed."
    assert modlab.diff(modlab.snapshot(net, other), other).headline == "Net → Adam: nothing changed; 23 entries compared."
