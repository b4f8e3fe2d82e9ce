"""Snapshots: true copies or fingerprints of all that a model holds, which leave it alone and can be loaded back."""

import copy
import gc
import pickle
import random
import warnings
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import modlab
from modlab.errors import ModlabError, NotAModuleError, NotAnOptimizerError, SnapshotError
from modlab.inspection.fingerprint import fingerprint
from modlab.lessons.note import StatefulModule
from tests import zoo
from tests.test_identity import everything

LISTED = [case for case in zoo.CASES if case.listed and not case.large]
HELD = [case for case in LISTED if case.id not in ("compiled", "fx_graph", "compiled_in_place")]


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.1)
    net(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    return net, optimizer


@pytest.mark.parametrize("values", [True, False], ids=["copies", "fingerprints"])
@pytest.mark.parametrize("case", LISTED, ids=str)
def test_a_snapshot_changes_nothing_and_equals_its_model(case, values):
    model = case.build()
    before = everything(model)
    taken = modlab.snapshot(model, values=values)
    found = modlab.diff(taken, model)
    faces = str(taken), taken.html(), taken.to_dict(), str(found), found.html(), found.to_dict()
    assert everything(model) == before
    assert found.changed == []
    assert len(faces[0]) < 5000


@pytest.mark.parametrize("case", HELD, ids=str)
def test_no_snapshot_keeps_a_model_alive(case):
    model = case.build()
    watched = [weakref.ref(module) for module in zoo.distinct_modules(model)]
    watched += [weakref.ref(tensor) for tensor in zoo.distinct_tensors(model, "_parameters", "_buffers")]
    taken = modlab.snapshot(model)
    later = modlab.diff(taken, model)
    del model
    gc.collect()
    assert [thing() for thing in watched if thing() is not None] == []
    assert str(taken).startswith(taken.headline) and str(later).startswith(later.headline)


def test_a_copy_is_a_copy():
    net, optimizer = trained()
    taken = modlab.snapshot(net, optimizer)
    saved = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
    kept = taken.state_dict()
    assert list(kept) == list(saved)
    assert all(torch.equal(kept[name], saved[name]) for name in saved)
    assert kept._metadata == net.state_dict()._metadata
    kept["0.weight"].fill_(9)
    assert torch.equal(taken.state_dict()["0.weight"], saved["0.weight"]), "what is given out is no view of the snapshot"
    assert str(net.load_state_dict(taken.state_dict())) == "<All keys matched successfully>"
    assert modlab.diff(taken, net).find(kind="parameter", status="changed") == []


def test_everything_is_in_it():
    model = StatefulModule()
    model.linear.weight.grad = torch.ones(3, 2)
    paths = {record.path: record.kind for record in modlab.snapshot(model).records}
    assert paths["buffer2"] == "buffer" and paths["param3"] == paths["buffer3"] == "reserved"
    assert paths["linear.weight.grad"] == "gradient" and "linear.bias.grad" not in paths
    assert [path for path, kind in paths.items() if kind == "RNG"] == ["rng.cpu", "rng.python", "rng.numpy", *cuda_generators()]
    net, optimizer = trained()
    held = {record.path: record for record in modlab.snapshot(net, optimizer).records}
    assert held["0.weight.exp_avg"].shape == (3, 4) and held["0.weight.step"].kind == "optimizer state"
    assert held["optimizer.param_groups.0.weight_decay"].value == "0.1"


def cuda_generators() -> list[str]:
    return [f"rng.cuda.{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_initialized() else []


def test_memory_is_one_copy_and_tied_tensors_are_kept_once():
    taken = modlab.snapshot(zoo.named("tied_weight").build())
    kept = {id(entry.tensor): entry.tensor for entry in taken._found.entries if entry.tensor is not None}
    assert sum(t.numel() * t.element_size() for t in kept.values()) == sum(r.bytes for r in taken.records if not r.tied)
    assert any(record.tied for record in taken.records)


def test_fingerprints_hold_no_tensor_and_say_their_chance():
    taken = modlab.snapshot(trained()[0], values=False)
    assert all(entry.tensor is None for entry in taken._found.entries)
    assert {len(record.digest) for record in taken.records if record.shape is not None} == {32}
    assert "2⁻¹²⁸" in str(taken) and "2⁻¹²⁸" in str(modlab.diff(taken, trained()[0]))
    with pytest.raises(SnapshotError, match="fingerprints"):
        taken.state_dict()


def test_a_copy_in_the_memory_of_the_cpu():
    taken = modlab.snapshot(trained()[0], values="cpu")
    assert {entry.tensor.device.type for entry in taken._found.entries if entry.tensor is not None} == {"cpu"}
    assert modlab.diff(taken, trained()[0]).changed == []


@pytest.mark.gpu
def test_a_model_on_a_gpu():
    model = trained()[0].cuda()
    taken = modlab.snapshot(model, values="cpu")
    assert modlab.diff(taken, model).changed == [] and "rng.cuda.0" in modlab.diff(taken, model)
    assert taken.state_dict()["0.weight"].device == model[0].weight.device
    with torch.no_grad():
        model[0].weight += 1
    assert modlab.diff(taken, model)["0.weight"].max_abs == pytest.approx(1, rel=1e-5)
    assert {r.status for r in modlab.diff(modlab.snapshot(model), model.cpu()).changed} == {"moved"}


def test_what_has_no_values_is_said():
    taken = modlab.snapshot(nn.Linear(2, 3, device="meta"))
    assert "0 copies of 2 tensors" in taken.headline and "weight, bias (meta)" in str(taken)
    assert [(r.kept, r.note) for r in taken.records[:1]] == [("", "no values")]


def test_a_quantized_model_is_compared_but_not_given_back():
    first, second = (zoo.named("quantized_dynamic").build() for _ in range(2))
    taken = modlab.snapshot(first)
    assert modlab.diff(taken, first).changed == []
    packed = [r.path for r in taken.records if r.kind == "packed" and r.shape]
    assert "0._packed_params._packed_params.0" in packed and "0._packed_params._packed_params.1" in packed
    weight, bias = second[0]._packed_params._weight_bias()
    second[0]._packed_params.set_weight_bias(torch.quantize_per_tensor(weight.dequantize() * 2, 0.1, 0, torch.qint8), bias + 1)
    changed = modlab.diff(taken, second).find("0._packed*", status="changed")
    assert {r.path for r in changed} >= {"0._packed_params._packed_params.0", "0._packed_params._packed_params.1"}
    with pytest.raises(SnapshotError, match="writes its part"):
        taken.state_dict()


def test_extra_state_is_compared_by_its_parts():
    model = zoo.named("extra_state").build()
    taken = modlab.snapshot(model)
    assert any(record.path == "0._extra_state.step" for record in taken.records)
    assert modlab.diff(taken, model).changed == []
    model[0].get_extra_state = lambda: {"step": 8}
    (record,) = modlab.diff(taken, model).changed
    assert (record.path, record.kind, record.status, record.value_after) == ("0._extra_state.step", "extra", "changed", "8")


def test_no_random_number_is_drawn_and_drawing_is_seen():
    model = nn.Linear(2, 2)
    taken = modlab.snapshot(model)
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tobytes()
    assert modlab.diff(modlab.snapshot(model), modlab.snapshot(model)).changed == []
    assert torch.equal(torch.get_rng_state(), state[0]) and random.getstate() == state[1]
    assert np.random.get_state()[1].tobytes() == state[2]
    random.random(), np.random.rand(), torch.rand(1)
    assert {r.path for r in modlab.diff(taken, model).changed} == {"rng.cpu", "rng.python", "rng.numpy"}


def test_a_snapshot_can_be_pickled_and_copied():
    net, optimizer = trained()
    taken = modlab.snapshot(net, optimizer)
    for again in (pickle.loads(pickle.dumps(taken)), copy.deepcopy(taken)):
        assert str(again) == str(taken)
        assert again.state_dict().keys() == net.state_dict().keys()
        assert modlab.diff(again, net).find(kind="parameter", status="changed") == []


def test_a_mode_of_the_users_sees_nothing():
    calls = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append(str(func))
            return func(*args, **(kwargs or {}))

    net, optimizer = trained()
    content = net.state_dict()
    with Seen():
        modlab.diff(modlab.snapshot(net, optimizer), net)
        modlab.diff(modlab.snapshot(net, values=False), net)
        modlab.diff(content, net)
    assert calls == []


def test_nothing_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("leaves_that_are_none", "sparse", "inference_tensors"):
            modlab.diff(modlab.snapshot(zoo.named(name).build()), zoo.named(name).build())


def test_a_fingerprint_is_of_the_values_and_not_of_their_places():
    base = torch.randn(4, 6)
    assert fingerprint(base.t()) == fingerprint(base.t().contiguous()) != fingerprint(base)
    assert fingerprint(base) != fingerprint(base.view(6, 4)) and fingerprint(base) != fingerprint(base.double())
    large = torch.randn(700, 900)
    assert fingerprint(large) == fingerprint(large.clone()) and fingerprint(large[:, ::2]) == fingerprint(large[:, ::2].clone())


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((torch.ones(2),), NotAModuleError, "modlab.measure"),
        (({"w": torch.ones(2)},), NotAModuleError, "state_dict"),
        ((nn.Linear(1, 1), nn.Linear(1, 1)), NotAnOptimizerError, "modlab.snapshot"),
    ],
    ids=["tensor", "state_dict", "no_optimizer"],
)
def test_bad_input_is_answered(arguments, error, words):
    with pytest.raises(error, match=words):
        modlab.snapshot(*arguments)


def test_an_unknown_way_to_keep_values_is_answered():
    with pytest.raises(ModlabError, match=r"values=\.\.\."):
        modlab.snapshot(nn.Linear(1, 1), values="disk")
