"""Differences: what changed, came, went, moved or is called something else; PyTorch and numpy are the oracle."""

import copy
import gc
import json
import math
import os
import re
import subprocess
import sys
import warnings
import weakref

import hypothesis.strategies as some
import numpy as np
import pytest
import torch
from hypothesis import given
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrizations, prune

import modlab
from modlab.errors import CheckpointError, NotComparableError, PathNotFoundError, QuestionError
from modlab.inspection.storage import shares_memory
from modlab.inspection.tensor_difference import contrast
from modlab.lessons.note import DynamicNet, MyLinear, Net, RunningMean, StatefulModule
from modlab.records.difference import KINDS
from tests import zoo
from tests.test_identity import everything

NAN, INF = math.nan, math.inf


def statuses(diff, kind=None):
    return {r.path: r.status for r in diff.records if kind is None or r.kind == kind}


# ---- what must be seen (sections 2 to 5 of the note) ------------------------------------------------------------------------


def test_init_weights_changes_nothing_of_a_dynamic_net():
    net = DynamicNet(3)

    @torch.no_grad()
    def init_weights(module, kind=nn.Linear):
        if isinstance(module, kind):
            nn.init.xavier_normal_(module.weight)
            module.bias.fill_(0)

    before = modlab.snapshot(net)
    net.apply(init_weights)
    found = modlab.diff(before, net)
    assert found.changed == [] and found.headline == "DynamicNet: 0 of 8 tensors changed."
    net.apply(lambda module: init_weights(module, MyLinear))
    found = modlab.diff(before, net)
    assert [r.path for r in found.changed if r.kind == "parameter"] == [name for name, _ in net.named_parameters()]
    assert found.headline == "DynamicNet: 8 of 8 tensors changed; random numbers were drawn (cpu)."
    old = before.state_dict()
    for name, parameter in net.named_parameters():
        assert found[name].max_abs == pytest.approx((parameter - old[name]).abs().max().item())
        assert found[name].relative_l2 == pytest.approx(((parameter - old[name]).norm() / old[name].norm()).item(), rel=1e-5)


def test_a_kept_state_dict_is_the_live_model():
    net = Net()
    best, cloned = net.state_dict(), {name: tensor.clone() for name, tensor in net.state_dict().items()}
    found = modlab.diff(best, net)
    assert all(record.shares_memory and record.same_object is False for record in found.records)
    assert "every value shares memory with the model" in found.headline and "clone it" in str(found)
    assert ".clone() for k, v in model.state_dict().items()" in str(found)
    with torch.no_grad():
        net.l0.weight.add_(1)
    assert modlab.diff(best, net).changed == [], "it moved along"
    found = modlab.diff(cloned, net)
    assert [r.path for r in found.changed] == ["l0.weight"] and not any(r.shares_memory for r in found.records)
    assert "same memory" not in found.headline


def test_what_to_moves_and_what_stays():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    before = modlab.snapshot(model)
    model.to(torch.float64)
    found = modlab.diff(before, model)
    assert statuses(found)["1.num_batches_tracked"] == "unchanged" and found["1.num_batches_tracked"].dtype_after == "int64"
    assert len(found.find(status="retyped")) == 6 and all(r.max_abs == 0 for r in found.find(status="retyped"))
    assert "6 tensors are now float64; 1.num_batches_tracked stayed int64" in found.headline
    assert found["0.weight"].same_object and found["1.running_mean"].same_object is False
    before = modlab.snapshot(model)
    model.to("meta")
    found = modlab.diff(before, model)
    assert {r.status for r in found.find(kind="buffer")} == {"moved"} and "7 tensors are now on meta" in found.headline
    assert "has no values" in found["0.weight"].note and found["0.weight"].max_abs is None


def step_of(optimizer_class, **options):
    """One step of Net in which l0 is dead: only l1.bias has a gradient that is not zero."""
    torch.manual_seed(0)
    net = Net()
    net.l0.bias.data.fill_(-100)
    optimizer = optimizer_class(net.parameters(), **options)
    net(torch.ones(4)).abs().sum().backward()
    before = modlab.snapshot(net, optimizer)
    optimizer.step()
    return modlab.diff(before, net), net, optimizer


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [(torch.optim.SGD, {"momentum": 0.9}), (torch.optim.SGD, {}), (torch.optim.AdamW, {})],
    ids=["momentum", "sgd", "adamw"],
)
def test_weight_decay_alone_is_told_apart(optimizer, options):
    found, _, _ = step_of(optimizer, lr=1e-2, weight_decay=1e-2, **options)
    assert {r.path: r.decayed for r in found.find(kind="parameter")} == {"l0.weight": 12, "l0.bias": 3, "l1.weight": 3, "l1.bias": 0}
    assert "l0.weight, l0.bias and l1.weight by weight decay alone" in found.headline
    assert found["l1.bias"].status == "changed" and not found["l1.bias"].note


def test_without_weight_decay_nothing_of_it_is_said():
    found, _, _ = step_of(torch.optim.SGD, lr=1e-2)
    assert [r.path for r in found.changed] == ["l1.bias"] and "decay" not in str(found)


def test_momentum_alone_is_told_apart():
    _, net, optimizer = step_of(torch.optim.SGD, lr=1e-2, momentum=0.9)
    net.l1.bias.grad.zero_()
    before = modlab.snapshot(net, optimizer)
    optimizer.step()
    assert modlab.diff(before, net)["l1.bias"].note == "momentum alone: its gradient is zero"


def test_a_dead_unit_decays_by_elements():
    torch.manual_seed(0)
    net = Net()
    net.l0.bias.data.copy_(torch.tensor([100.0, -100.0, 100.0]))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, weight_decay=1e-2)
    net(torch.ones(4)).abs().sum().backward()
    before = modlab.snapshot(net, optimizer)
    optimizer.step()
    found = modlab.diff(before, net)
    assert found["l1.weight"].decayed == 1 and found["l1.weight"].note == "weight decay alone in 1 of 3"


def test_the_step_shows_the_optimizer_too():
    found, net, optimizer = step_of(torch.optim.AdamW, lr=1e-2)
    assert found["l0.weight.exp_avg"].status == "added" and found["l0.weight.exp_avg"].kind == "optimizer state"
    assert "the optimizer stepped" in found.headline
    before = modlab.snapshot(net, optimizer)
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.zero_grad()
    found = modlab.diff(before, net)
    record = found["optimizer.param_groups.0.lr"]
    assert (record.status, record.value_before, record.value_after) == ("changed", "0.01", "0.5")
    assert {r.status for r in found.find(kind="gradient")} == {"removed"} and found["l0.weight.grad"].note == "is None now"


def test_flags_and_modes():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    before = modlab.snapshot(model)
    model.eval()
    model[0].bias.requires_grad_(False)
    found = modlab.diff(before, model)
    assert {r.path for r in found.changed} == {"training", "0.training", "1.training", "0.bias.requires_grad"}
    assert "3 modules are now in evaluation mode; 1 parameter is now frozen" in found.headline
    assert found["0.training"].value_before == "True"


def test_reserved_names_that_are_filled():
    model = StatefulModule()
    before = modlab.snapshot(model)
    model.param3 = nn.Parameter(torch.ones(2))
    model.buffer3 = nn.Parameter(torch.ones(3))
    model.buffer1 = None
    found = modlab.diff(before, model)
    assert {r.path: (r.status, r.kind) for r in found.changed} == {
        "param3": ("added", "parameter"),
        "buffer3": ("added", "parameter"),
        "buffer1": ("removed", "buffer"),
    }


def test_a_running_mean_that_is_reshaped_by_its_input():
    model = RunningMean(4)
    before = modlab.snapshot(model)
    model.eval()(torch.ones(2, 4))
    found = modlab.diff(before, model)
    assert (found["mean"].status, found["mean"].shape_after) == ("reshaped", (2, 4))


def test_one_object_on_both_sides():
    model = Net()
    found = modlab.diff(model, model)
    assert "same object" in found.headline and "modlab.snapshot(model)" in str(found) and not found.changed
    assert "nothing can differ" in str(modlab.diff(content := model.state_dict(), content))


# ---- names -------------------------------------------------------------------------------------------------------------------


class Wrapped(nn.Module):
    def __init__(self, name, module):
        super().__init__()
        self.add_module(name, module)


def weight_normed():
    return nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU())


def weight_normed_before():
    return nn.Sequential(zoo.named("weight_norm_legacy").build()[0], nn.ReLU())


RENAMES = {
    "module": (lambda: nn.DataParallel(Net()).state_dict(), Net, 'k.removeprefix("module.")'),
    "no_module": (lambda: Net().state_dict(), lambda: nn.DataParallel(Net()), '"module." + k'),
    "orig_mod": (lambda: Wrapped("_orig_mod", Net()).state_dict(), Net, 'k.removeprefix("_orig_mod.")'),
    "both": (lambda: nn.DataParallel(Wrapped("_orig_mod", Net())).state_dict(), Net, 'k.removeprefix("module._orig_mod.")'),
    "inside": (
        lambda: nn.Sequential(Net(), Wrapped("_orig_mod", Net())).state_dict(),
        lambda: nn.Sequential(Net(), Net()),
        'p != "_orig_mod"',
    ),
    "another": (
        lambda: Wrapped("backbone", Net()).state_dict(),
        lambda: Wrapped("encoder", Net()),
        '"encoder." + k.removeprefix("backbone.")',
    ),
    "beside": (
        lambda: nn.ModuleDict({"body": Net(), "head": nn.Linear(2, 2)}).state_dict(),
        lambda: nn.ModuleDict({"trunk": Net(), "head": nn.Linear(2, 2)}),
        '"trunk." + k.removeprefix("body.")',
    ),
    "pruned": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)).state_dict(),
        lambda: nn.Sequential(*(prune.identity(nn.Linear(*sizes), "weight") for sizes in ((3, 2), (2, 2)))),
        '"weight_orig"',
    ),
}


@pytest.mark.parametrize(("weights", "build", "words"), RENAMES.values(), ids=RENAMES)
def test_other_names_are_found_and_the_code_repairs_them(weights, build, words):
    model, state_dict = build(), weights()
    wanted = dict(model.state_dict())
    for name in list(wanted):
        if name.endswith("weight_mask"):
            del wanted[name]
    for found in (modlab.diff(state_dict, model), modlab.diff(model, state_dict)):
        assert len([r for r in found.records if r.renamed_from]) == len(wanted.keys() - state_dict.keys())
        assert not found.find(status="removed") or "pruned" in words or "orig" in words
        (renaming,) = found.record.renamings
        code = renaming.code.replace("'", '"')
        assert words in code, code
        scope = {"state_dict": dict(state_dict)}
        exec(renaming.code, scope)
        assert set(scope["state_dict"]) == set(wanted)


def test_the_weights_of_a_repaired_file_are_loaded():
    model, trained = Net(), Net()
    state_dict = nn.DataParallel(trained).state_dict()
    found = modlab.diff(model, state_dict)
    assert found.record.loading.fails
    scope = {"state_dict": state_dict}
    exec(found.record.renamings[0].code, scope)
    found = modlab.diff(model, scope["state_dict"])
    assert not found.record.loading.fails and not found.record.renamings
    model.load_state_dict(scope["state_dict"])
    assert modlab.diff(model, trained).changed == []


def test_weight_norm_old_and_new():
    old, new = weight_normed_before(), weight_normed()
    found = modlab.diff(old.state_dict(), new.state_dict())
    names = {r.renamed_from: r.path for r in found.records if r.renamed_from}
    assert names == {"0.weight_g": "0.parametrizations.weight.original0", "0.weight_v": "0.parametrizations.weight.original1"}
    scope = {"state_dict": old.state_dict()}
    for renaming in found.record.renamings:
        exec(renaming.code, scope)
    assert set(scope["state_dict"]) == set(new.state_dict())


def test_names_without_a_rule_are_found_by_bits_then_by_shapes():
    torch.manual_seed(0)
    a, b, c = torch.randn(3, 4), torch.randn(3, 4), torch.randn(5)
    found = modlab.diff({"one": a, "two.x": b, "z": c}, {"p": b.clone(), "q.r": a.clone(), "z": c})
    assert {r.renamed_from: r.path for r in found.find(status="renamed")} == {"one": "q.r", "two.x": "p"}
    assert all(r.max_abs == 0 for r in found.find(status="renamed")) and "same bits" in str(found)
    found = modlab.diff({"one": a, "two.x": c}, {"p": a + 1, "q.r": c + 1})
    assert {r.renamed_from: r.path for r in found.records} == {"one": "p", "two.x": "q.r"} and "same shapes" in str(found)
    assert found["p"].max_abs == pytest.approx(1) and found["one"] is found["p"]


def test_what_is_new_is_not_taken_for_renamed():
    found = modlab.diff({"a.weight": torch.ones(2, 3)}, {"b.bias": torch.ones(7)})
    assert statuses(found) == {"b.bias": "added", "a.weight": "removed"}


def test_a_renamed_layer_of_another_size():
    old, new = Net(), Net()
    new.l1 = MyLinear(3, 7)
    found = modlab.diff(nn.DataParallel(old).state_dict(), new)
    assert found["l1.weight"].status == "reshaped" and found["l1.weight"].renamed_from == "module.l1.weight"
    assert found["l0.weight"].status == "renamed"


# ---- load_state_dict ---------------------------------------------------------------------------------------------------------


def without(content, *names):
    return {name: tensor for name, tensor in content.items() if name not in names}


def batch_normed():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ModuleList([nn.Linear(3, 3)]))


class Scalar(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.register_buffer("gone", None)
        self.register_buffer("own", torch.ones(2), persistent=False)
        self.empty = None
        self.register_module("none", None)


LOADS = {
    "itself": (batch_normed, lambda m: m.state_dict()),
    "missing": (batch_normed, lambda m: without(m.state_dict(), "0.weight", "2.0.bias")),
    "unexpected": (batch_normed, lambda m: {**m.state_dict(), **dict.fromkeys(("x", "0.y", "1.z.w", "0.weight.q"), torch.ones(1))}),
    "sizes": (batch_normed, lambda m: {**m.state_dict(), "0.weight": torch.ones(2, 3), "1.bias": torch.ones(1)}),
    "dtypes": (batch_normed, lambda m: {name: t.double() if t.is_floating_point() else t for name, t in m.state_dict().items()}),
    "batches_not_counted": (batch_normed, lambda m: without(m.state_dict(), "1.num_batches_tracked")),
    "no_tensor": (batch_normed, lambda m: {**m.state_dict(), "0.weight": [1.0], "0.bias": 3}),
    "scalar": (Scalar, lambda m: {"scale": torch.ones(1)}),
    "scalar_of_two": (Scalar, lambda m: {"scale": torch.ones(2)}),
    "reserved": (Scalar, lambda m: {"scale": torch.ones(()), "gone": torch.ones(1), "own": torch.ones(2), "none.x": torch.ones(1)}),
    "stateful": (StatefulModule, lambda m: m.state_dict()),
    "another": (Net, lambda m: nn.DataParallel(m).state_dict()),
    "extra": (lambda: zoo.named("extra_state").build(), lambda m: m.state_dict()),
    "extra_missing": (lambda: zoo.named("extra_state").build(), lambda m: without(m.state_dict(), "0._extra_state")),
    "extra_unexpected": (lambda: nn.Sequential(nn.Linear(2, 2)), lambda m: {**m.state_dict(), "0._extra_state": torch.ones(1)}),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(3)), lambda m: {"0.weight": torch.ones(3, 2), "0.bias": torch.ones(3)}),
    "own_saving": (lambda: zoo.named("saving_otherwise").build(), lambda m: m.state_dict()),
}


def loaded(model, state_dict):
    """What PyTorch says: missing and unexpected keys, mismatched sizes, and whether it raises."""
    try:
        model.load_state_dict(state_dict)
    except RuntimeError as error:
        text = str(error)
        missing = re.search(r"Missing key\(s\) in state_dict: (.*?)\. ?(?:\n|$)", text)
        unexpected = re.search(r"Unexpected key\(s\) in state_dict: (.*?)\. ?(?:\n|$)", text)
        sizes = re.findall(r"size mismatch for (\S+):", text)
        wrong = re.findall(r'While copying the parameter named "(\S+)", expected', text)
        return (*(re.findall(r'"([^"]+)"', found[1]) if found else [] for found in (missing, unexpected)), sizes, wrong, True)
    return [], [], [], [], False


@pytest.mark.parametrize(("build", "weights"), LOADS.values(), ids=LOADS)
def test_what_loading_would_do_is_what_pytorch_does(build, weights):
    model = build()
    state_dict = weights(model)
    found = modlab.diff(model, state_dict).record.loading
    assert modlab.diff(state_dict, model).record.loading == found
    told = [*found.missing], [*found.unexpected], [one[0] for one in found.mismatched], [one[0] for one in found.wrong], found.fails
    if not found.doubts:
        assert told == loaded(model, state_dict)
    else:
        assert "only loading shows" in str(modlab.diff(model, state_dict))


def test_silent_conversion_is_said():
    model = nn.Linear(2, 3)
    found = modlab.diff(model, {name: tensor.half() for name, tensor in model.state_dict().items()})
    assert found.record.loading.converted == (("weight", "float16", "float32"), ("bias", "float16", "float32"))
    assert "2 tensors are silently converted" in str(found)


def test_the_headline_says_that_it_would_raise():
    found = modlab.diff(nn.Linear(2, 3), {"weight": torch.ones(3, 3), "scale": torch.ones(1)})
    assert found.headline.startswith(
        "Linear → state_dict: load_state_dict would raise: 1 key missing, 1 unexpected, 1 size that does not fit;"
    )
    assert "strict=False would raise as well" in str(found)
    with pytest.raises(RuntimeError, match="size mismatch"):
        nn.Linear(2, 3).load_state_dict({"weight": torch.ones(3, 3)}, strict=False)


# ---- checkpoints -------------------------------------------------------------------------------------------------------------


def training_checkpoint(tmp_path):
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(4)).sum().backward()
    optimizer.step()
    content = {
        "epoch": 3,
        "model": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "ema": {k: v + 1 for k, v in net.state_dict().items()},
    }
    torch.save(content, tmp_path / "last.pt")
    return net, optimizer, tmp_path / "last.pt"


def test_a_training_checkpoint_beside_its_model(tmp_path):
    net, optimizer, path = training_checkpoint(tmp_path)
    for before in (path, str(path), torch.load(path)):
        found = modlab.diff(before, net)
        assert found.changed == [] and not found.record.loading.fails and "'model'" in str(found)
    assert "['model']" in modlab.diff(path, net).record.loading.code
    found = modlab.diff(path, modlab.snapshot(net, optimizer))
    assert found.changed == [] and found["l0.weight.exp_avg"].kind == "optimizer state"
    assert modlab.diff(path, optimizer).changed == []


def test_two_training_checkpoints(tmp_path):
    _, _, path = training_checkpoint(tmp_path)
    content = torch.load(path)
    content["epoch"], content["model"]["l0.bias"] = 4, content["model"]["l0.bias"] + 2
    content["optimizer"]["param_groups"][0]["lr"] = 7.0
    torch.save(content, tmp_path / "next.pt")
    found = modlab.diff(path, tmp_path / "next.pt")
    assert {r.path: r.status for r in found.changed} == {
        "epoch": "changed",
        "model.l0.bias": "changed",
        "optimizer.param_groups.0.lr": "changed",
    }
    assert found["model.l0.bias"].max_abs == pytest.approx(2) and found["epoch"].value_after == "4"


def test_files_of_all_kinds_in_any_mix(tmp_path):
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    torch.save(net.state_dict(), tmp_path / "net.pt")
    save_file(net.state_dict(), tmp_path / "net.safetensors")
    half = {name: tensor for name, tensor in net.state_dict().items() if name.startswith("0")}
    save_file(half, tmp_path / "one.safetensors")
    save_file({n: t for n, t in net.state_dict().items() if n not in half}, tmp_path / "two.safetensors")
    places = {name: "one.safetensors" if name in half else "two.safetensors" for name in net.state_dict()}
    (tmp_path / "net.safetensors.index.json").write_text(str({"weight_map": places}).replace("'", '"'))
    sides = [
        tmp_path / "net.pt",
        tmp_path / "net.safetensors",
        tmp_path / "net.safetensors.index.json",
        net,
        net.state_dict(),
        modlab.snapshot(net),
    ]
    for i, before in enumerate(sides):
        for j, after in enumerate(sides):
            if i != j:
                found = modlab.diff(before, after)
                assert found.changed == [] and len([r for r in found.records if r.shape_after is not None]) == 7, (before, after)
                lines = [line for line in (str(found) + found.html()).splitlines() if "Path(" not in line and "load" not in line]
                assert lines and not any(str(tmp_path) in line for line in lines)  # a path stands in code that reads the file alone
    modified = os.path.getmtime(tmp_path / "net.safetensors"), (tmp_path / "net.safetensors").read_bytes()
    with torch.no_grad():
        net[0].weight[0, 0] += 3
    for path in sides[:3]:
        assert [(r.path, r.changed, r.max_abs) for r in modlab.diff(path, net).changed] == [("0.weight", 1, pytest.approx(3))]
    assert (os.path.getmtime(tmp_path / "net.safetensors"), (tmp_path / "net.safetensors").read_bytes()) == modified


def test_bad_files_say_what_they_are(tmp_path):
    (tmp_path / "x.pt").write_text("hello, this is text")
    with pytest.raises(CheckpointError, match="text file"):
        modlab.diff(tmp_path / "x.pt", Net())
    with pytest.raises(CheckpointError, match="There is no file"):
        modlab.diff(tmp_path / "y.pt", Net())
    with pytest.raises(CheckpointError, match=r"modlab\.diff\(\) needs a file"):
        modlab.diff(tmp_path, Net())
    save_file({"a": torch.ones(4), "b": torch.ones(4)}, tmp_path / "cut.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "cut.safetensors").read_bytes()[:-8])
    found = modlab.diff(tmp_path / "cut.safetensors", {"a": torch.ones(4), "b": torch.ones(4)})
    assert found["a"].max_abs == 0 and "cut off" in found["b"].note


MEASURED = """
import sys, threading, time, torch
torch.set_num_threads(1)
import modlab, modlab.results.difference
def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) // 1024
modlab.diff({"a": torch.ones(3)}, {"a": torch.zeros(3)})
base = peak = resident()
done = False
def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.002)
watcher = threading.Thread(target=watch)
watcher.start()
found = modlab.diff(sys.argv[1], sys.argv[2])
done = True
watcher.join()
print(peak - base, [(r.path, r.changed, r.max_abs) for r in found.changed])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["pt", "safetensors"])
def test_two_large_files_are_never_both_in_memory(kind, tmp_path):
    """Two of 240 MB each: the memory grows by a part of one of them."""
    content = {f"l{i}.weight": torch.zeros(2_000_000) for i in range(30)}
    save = torch.save if kind == "pt" else save_file
    save(content, tmp_path / f"a.{kind}")
    content["l17.weight"][5] = 2
    save(content, tmp_path / f"b.{kind}")
    command = [sys.executable, "-c", MEASURED, str(tmp_path / f"a.{kind}"), str(tmp_path / f"b.{kind}")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    grown, _, found = answer.stdout.partition(" ")
    assert found.strip() == "[('l17.weight', 1, 2.0)]"
    assert int(grown) < 180, f"{grown} MB"


# ---- optimizers --------------------------------------------------------------------------------------------------------------


def test_an_optimizer_against_its_state():
    net, (first, second) = Net(), (None, None)
    first, second = (torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9) for rate in (0.1, 0.2))
    found = modlab.diff(first, second)
    assert [r.path for r in found.changed] == ["param_groups.0.lr"]
    saved = first.state_dict()
    assert modlab.diff(saved, first).changed == []
    net(torch.ones(4)).sum().backward()
    first.step()
    assert {r.path for r in modlab.diff(saved, first).changed} == {f"state.{i}.momentum_buffer" for i in range(4)}
    assert modlab.diff([first, second], [first, second]).changed == []


# ---- values ------------------------------------------------------------------------------------------------------------------

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def of_values(before, after):
    return modlab.diff({"t": before}, {"t": after})["t"]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_equals_nan_and_zero_equals_minus_zero(dtype):
    before = torch.tensor([1.0, NAN, INF, 0.0, 2.0], dtype=dtype)
    record = of_values(before, torch.tensor([1.0, NAN, INF, -0.0, 2.0], dtype=dtype))
    assert (record.status, record.changed, record.max_abs, record.nan_before, record.inf_after) == ("unchanged", 0, 0, 1, 1)
    assert "1 with equal values but different bits" in record.note
    record = of_values(before, torch.tensor([1.0, 5.0, INF, 0.0, NAN], dtype=dtype))
    assert (record.status, record.changed, record.max_abs, record.nan_before, record.nan_after) == ("changed", 2, INF, 1, 1)
    found = modlab.diff({"t": torch.ones(3, dtype=dtype)}, {"t": torch.tensor([1.0, NAN, -INF], dtype=dtype)})
    assert "NaN appeared in t; infinities appeared in t" in found.headline


WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_whole_numbers_do_not_overflow(dtype):
    limits = torch.iinfo(dtype)
    before, after = (torch.from_numpy(np.array(v, dtype=str(dtype)[6:])) for v in ([limits.min, 1, 2], [limits.max, 1, 3]))
    record = of_values(before, after)
    assert (record.changed, record.max_abs, record.count) == (2, limits.max - limits.min, 3)
    assert of_values(after, before).max_abs == limits.max - limits.min


def quantized(value, scale):
    with warnings.catch_warnings():  # torch calls them deprecated
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.full((3,), value), scale, 0, torch.qint8)


def nested(last):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.full((3,), last)])


ODD = {
    "bool": (torch.tensor([True, False]), torch.tensor([False, False]), 1, 1),
    "complex": (torch.tensor([1 + 1j, 2j]), torch.tensor([1 + 1j, 3 + 6j]), 1, 5),
    "conj": (torch.tensor([1 + 1j]).conj(), torch.tensor([1 + 1j]), 1, 2),
    "half_far": (torch.tensor([-60000.0], dtype=torch.half), torch.tensor([60000.0], dtype=torch.half), 1, 120000),
    "float8": (torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn), torch.tensor([1.0, 4.0]).to(torch.float8_e4m3fn), 1, 2),
    "huge": (torch.tensor([-1e308], dtype=torch.float64), torch.tensor([0.5e308], dtype=torch.float64), 1, 1.5e308),
    "scalar": (torch.tensor(1.0), torch.tensor(1.5), 1, 0.5),
    "strides": (torch.arange(6.0).view(2, 3).t(), torch.arange(6.0).view(2, 3).t().contiguous() + 1, 6, 1),
    "expanded": (torch.ones(1).expand(5), torch.full((5,), 3.0), 5, 2),
    "coo": (torch.eye(3).to_sparse(), (torch.eye(3) * 3).to_sparse(), 3, 2),
    "coo_elsewhere": (torch.eye(3).to_sparse(), torch.ones(3, 3).to_sparse(), 6, 1),
    "quantized": (quantized(1.0, 0.5), quantized(2.0, 0.5), 3, 1),
    "rescaled": (quantized(1.0, 0.5), quantized(1.0, 0.25), 0, 0),
    "nested": (nested(1.0), nested(0.0), 3, 1),
    "jagged": (
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)], layout=torch.jagged),
        3,
        1,
    ),
}


@pytest.mark.parametrize(("before", "after", "changed", "distance"), ODD.values(), ids=ODD)
def test_tensors_of_every_kind(before, after, changed, distance):
    record = of_values(before, after)
    assert (record.changed, record.max_abs) == (changed, pytest.approx(distance)), record.note
    assert of_values(before, before.clone()).status == "unchanged"
    assert record.status == ("changed" if changed else "unchanged")


def test_no_element_and_no_value():
    assert of_values(torch.empty(0, 3), torch.empty(0, 3)).status == "unchanged"
    record = of_values(torch.ones(2), torch.ones(2, device="meta"))
    assert record.status == "moved" and "no values" in record.note


def test_from_zero_the_relative_distance_is_infinite():
    assert of_values(torch.zeros(3), torch.ones(3)).relative_l2 == INF
    zero = modlab.diff({"a.t": torch.zeros(3), "a.u": torch.ones(3)}, {"a.t": torch.ones(3), "a.u": torch.full((3,), 1.5)})
    assert zero["a.t"].relative_l2 == INF
    drawn = re.sub(r"[A-Za-z0-9+/=]{80,}", "", zero.html())  # packed scripts hold any letters
    assert "Inf" not in str(zero) + drawn and "from 0" in str(zero)
    relative = {row.name: row.cells[-1] for row in zero._sheet().rows}
    assert (relative["t"].text, relative["t"].share, relative["u"].text, relative["u"].share) == ("from 0", None, "0.5", 1.0)
    module = next(row for row in zero._sheet().rows if row.path == "a" and row.kind != "tensor")
    assert ("greatest relative L2", "0.5") in module.details[0].rows
    many = {f"m{i}.w": torch.full((2,), float(i)) for i in range(700)}
    most = next(note for note in modlab.diff(many, {k: v + 1 for k, v in many.items()})._sheet().notes if note.caption == "most changed")
    assert most.rows[0][0] == "m1.w" and most.rows[0][2] == "1"


@given(some.integers(0, 2**31), some.integers(1, 400), some.sampled_from([*FLOATS, torch.int32, torch.complex64]), some.booleans())
def test_numbers_are_those_of_numpy(seed, size, dtype, large):
    generator = torch.Generator().manual_seed(seed)
    size = size * 1500 if large else size  # several blocks
    before = (torch.randn(size, generator=generator) * 8).to(dtype)
    after = torch.where(torch.rand(size, generator=generator) < 0.5, before, (torch.randn(size, generator=generator) * 8).to(dtype))
    wide = np.complex128 if dtype.is_complex else np.float64
    x, y = (t.to(torch.complex64 if dtype.is_complex else torch.float64).numpy().astype(wide) for t in (before, after))
    found = contrast(before, after)
    assert (found.changed, found.max_abs) == (int((x != y).sum()), pytest.approx(np.abs(y - x).max()))
    assert found.distance == pytest.approx(np.linalg.norm(y - x))
    assert found.relative == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x) if found.changed else 0)


def test_shared_memory_is_that_of_elements():
    base = torch.zeros(10)
    assert shares_memory(base[:5], base[3:]) is True and shares_memory(base[:5], base[5:]) is False
    assert shares_memory(base, base.clone()) is False and shares_memory(torch.ones(2, device="meta"), torch.ones(2, device="meta")) is None


# ---- the view ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in zoo.CASES if case.listed and not case.large and case.saves], ids=str)
def test_a_state_dict_of_every_module_is_its_own(case):
    model = case.build()
    try:
        content = model.state_dict()
    except RuntimeError:
        pytest.skip("it cannot be asked for one")
    before = everything(model)
    found = modlab.diff(content, model)
    assert found.changed == [], found.changed
    assert str(found) == str(modlab.diff(content, model)) and found.html() == modlab.diff(content, model).html()
    assert not re.search(r"0x[0-9a-f]{6,}", str(found))
    assert everything(model) == before


def test_hostile_names_stay_on_their_lines():
    first, second = (zoo.named("hostile_names").build() for _ in range(2))
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.add_(1)
    found = modlab.diff(modlab.snapshot(first), second)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", str(found)) and "<script" not in found.html(bundle=False)


def test_no_diff_keeps_a_model_alive():
    model = Net()
    found = [modlab.diff(model.state_dict(), model), modlab.diff(Net(), model)]
    watched = [weakref.ref(one) for one in (model, *model.parameters())]
    del model
    gc.collect()
    assert [one() for one in watched if one() is not None] == [] and all(str(one) for one in found)


def test_what_is_unchanged_is_folded_and_what_is_large_stays_small():
    model = nn.ModuleList([nn.Linear(2, 2) for _ in range(3000)])
    before = modlab.snapshot(model)
    assert len(str(modlab.diff(before, model)).splitlines()) == 4
    with torch.no_grad():
        model[7].bias.add_(1)
    found = modlab.diff(before, model)
    assert "7.bias" in str(found) and len(found.html()) < 400_000
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    found = modlab.diff(before, model)
    assert len(found.changed) == 6000 and len(str(found).splitlines()) < 30 and "most changed" in str(found)
    assert len(found.html()) < 200_000


def test_questions_and_answers():
    before, after = {"a.w": torch.ones(2), "a.b": torch.ones(2), "c": torch.ones(1)}, {"a.w": torch.zeros(2), "a.b": torch.ones(2)}
    found = modlab.diff(before, after)
    assert [r.path for r in found.find("a.*")] == ["a.w", "a.b"] and [r.path for r in found.find(status=("removed", "changed"))] == [
        "a.w",
        "c",
    ]
    assert "a.w" in found and len(found) == 3 and found.to_dict()["records"][0]["path"] == "a.w"
    assert found.to_pandas().shape[0] == 3 and found.kind == found.to_dict()["kind"] == "diff"
    assert found["a.w"].name == "w" and repr(found["a.w"]) == "<a.w: tensor changed by at most 1>"
    with pytest.raises(PathNotFoundError, match=r"Nearest: 'a\.w'"):
        found["a.ww"]
    with pytest.raises(QuestionError, match="reshaped"):
        found.find(status="broken")


@pytest.mark.parametrize(
    ("side", "words"),
    [
        (torch.ones(2), "two tensors"),
        (3, "Pass a modlab.snapshot"),
        (None, "got None"),
        (Net, "Make an instance"),
        (modlab.state, "Pass a"),
        ([torch.ones(2)], "Pass a"),
    ],
    ids=["tensor", "number", "none", "class", "function", "list"],
)
def test_bad_input_is_answered(side, words):
    for before, after in ((side, Net()), (Net(), side)):
        with pytest.raises(NotComparableError, match=words):
            modlab.diff(before, after)
    with pytest.raises(NotComparableError, match="A state holds no values"):
        modlab.diff(modlab.state(Net()), Net())


def test_the_figure_has_a_bar_for_each_tensor_that_changed():
    net = Net()
    before = modlab.snapshot(net)
    with torch.no_grad():
        net.l0.weight.add_(1)
        net.l1.bias.mul_(2)
    axes = modlab.diff(before, net).figure().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == sorted(
        ["l0.weight", "l1.bias"], key=lambda n: -modlab.diff(before, net)[n].relative_l2
    )
    assert modlab.diff(before, before.state_dict()).figure().axes[0].texts[0].get_text() == "no value changed"


def test_eval_is_one_row_and_what_has_no_gradient_is_said_to_be_skipped():
    model = nn.ModuleDict({"net": Net(), "unused": nn.Linear(2, 2)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)
    model["net"](torch.ones(4)).sum().backward()
    before = modlab.snapshot(model, optimizer)
    optimizer.step()
    model.eval()
    found = modlab.diff(before, model)
    assert len(found.find(kind="flag")) == 5 and str(found).count("True → False") == 1
    assert found["unused.weight"].status == "unchanged"
    momentum = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1, momentum=0.9)
    before = modlab.snapshot(model, momentum)
    momentum.step()
    found = modlab.diff(before, model)
    assert found["unused.weight"].note == "no gradient: the step skips it, weight decay included"


def test_who_had_no_gradient_in_a_step_is_not_known_when_all_were_set_to_none_after_it():
    model = nn.ModuleDict({"net": Net(), "still": nn.Linear(4, 2)})
    optimizer = torch.optim.SGD(
        [{"params": model["net"].parameters()}, {"params": model["still"].parameters(), "lr": 0.0}], lr=0.1, momentum=0.9
    )
    before = modlab.snapshot(model, optimizer)
    (model["net"](torch.ones(4)).sum() + model["still"](torch.ones(4)).sum()).backward()
    optimizer.step()
    assert modlab.diff(before, model)["still.weight"].note == ""
    optimizer.zero_grad()
    found = modlab.diff(before, model)["still.weight"]
    assert (found.status, found.note) == ("unchanged", "")


def saved_as(kind, state):
    """Weights on disk in the current folder; how they are called there."""
    if kind == "plain":
        torch.save(state, "runs/ck.pt")
        return "runs/ck.pt"
    if kind == "nested":
        torch.save({"state_dict": state, "epoch": 3}, "runs/ck.pt")
        return "runs/ck.pt"
    if kind == "safetensors":
        save_file(state, "runs/ck.safetensors")
        return "runs/ck.safetensors"
    if kind == "home":
        torch.save(state, os.path.expanduser("~/ck.pt"))
        return "~/ck.pt"
    end, save = (".bin", torch.save) if kind == "bins" else (".safetensors", save_file)
    places = {key: f"part{i % 2}{end}" for i, key in enumerate(state)}
    for shard in set(places.values()):
        save({key: value for key, value in state.items() if places[key] == shard}, f"runs/{shard}")
    with open(f"runs/ck{end}.index.json", "w") as stream:
        json.dump({"weight_map": places}, stream)
    return f"runs/ck{end}.index.json"


@pytest.mark.parametrize("kind", ["plain", "nested", "safetensors", "home", "bins", "shards"])
@pytest.mark.parametrize("front", ["", "module."])
def test_the_code_that_loads_a_file_runs_as_it_stands(tmp_path, monkeypatch, kind, front):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "runs").mkdir()
    torch.manual_seed(0)
    saved, net = (nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)) for _ in range(2))
    path = saved_as(kind, {f"{front}{key}": value for key, value in saved.state_dict().items()})
    for found in (modlab.diff(path, net), modlab.diff(net, path)):
        loading = found.record.loading
        assert loading.fails is bool(front) and bool(loading.repair) is bool(front)
        model = copy.deepcopy(net)
        exec(loading.repair or loading.code, {"torch": torch, "model": model})
        assert modlab.diff(saved, model).changed == [] != modlab.diff(saved, net).changed
        block = found._sheet().notes[0]
        assert block.caption == ("repair" if front else "load_state_dict") and not block.rows
        if front:
            assert not loading.repaired.fails and "With these names it loads all 9 tensors." in block.prose and block.code == loading.repair


def test_a_repair_of_names_says_what_it_leaves():
    torch.manual_seed(0)
    saved = {f"module.{k}": v for k, v in nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).state_dict().items()}
    found = modlab.diff(saved, nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)))
    block = found._sheet().notes[0]
    assert block.caption == "repair" and "it would still raise: 2 sizes that do not fit." in block.prose
    assert [row[:2] for row in block.rows] == [("size mismatch", "1.weight"), ("size mismatch", "1.bias")]
    assert modlab.diff({"x": torch.ones(2)}, nn.Linear(2, 3)).record.loading.repair == ""


def test_two_state_dicts_are_told_apart():
    first, second = ({"w": torch.full((2,), value)} for value in (0.0, 1.0))
    assert modlab.diff(first, second).headline == "first state_dict → second state_dict: 1 of 1 tensor changed."


@pytest.mark.parametrize("prefix", ["", "module."])
def test_no_path_of_this_machine_is_printed(tmp_path, monkeypatch, prefix):
    net = nn.Linear(2, 2)
    file = tmp_path / "net.pt"
    torch.save({f"{prefix}{name}": tensor for name, tensor in net.state_dict().items()}, file)
    found = modlab.diff(str(file), net)
    page = found._repr_mimebundle_()["text/html"] if hasattr(found, "_repr_mimebundle_") else found._repr_html_()
    for face in (str(found), page.partition("<!--modlab:live-->")[0]):
        assert "torch.load(" in face and "net.pt" in face and str(tmp_path) not in face
    monkeypatch.chdir(tmp_path)
    exec(found.record.loading.repair or found.record.loading.code, {"torch": torch, "model": net})


@pytest.mark.parametrize("idle", [1, 10])
def test_a_few_elements_that_decay_alone_are_no_headline(idle):
    torch.manual_seed(0)
    net = nn.Linear(20, 1, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1)
    before = modlab.snapshot(net, optimizer)
    x = torch.ones(1, 20)
    x[0, :idle] = 0.0
    net(x).sum().backward()
    optimizer.step()
    found = modlab.diff(before, net)
    assert found["weight"].decayed == idle and ("in part by weight decay alone" in found.headline) is (idle > 2)


def test_a_kind_that_there_is_not_is_told():
    found = modlab.diff(modlab.snapshot(Net()), modlab.snapshot(Net()))
    with pytest.raises(modlab.ModlabError, match="got 'weights', but takes one of: parameter, buffer"):
        found.find(kind="weights")
    assert {row.kind for row in found.records} <= set(KINDS) and len(found.find(kind="parameter")) == 4


@pytest.mark.parametrize("values", [True, False])
def test_a_tied_tensor_is_counted_once(values):
    net = nn.ModuleDict({"emb": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False), "mid": nn.Linear(3, 3, bias=False)})
    net["head"].weight = net["emb"].weight
    before = modlab.snapshot(net, values=values)
    with torch.no_grad():
        net["emb"].weight.add_(1.0)
    found = modlab.diff(before, net)
    assert found.headline.startswith("ModuleDict: 1 of 2 tensors changed") and "25 elements" not in str(found)
    assert found["head.weight"].status == "changed" and found["head.weight"].tied == "emb.weight" and not found["emb.weight"].tied
    root, head = (next(line.split() for line in str(found).splitlines() if line.startswith(f"{path} ")) for path in ("(root)", "head"))
    assert root[2:4] == head[2:4] == ["1", "changed"]
