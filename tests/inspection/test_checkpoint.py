"""Checkpoint files: circles, the order of rows, colliding names, and errors that say what the file is instead."""

import json
import warnings
from collections import OrderedDict

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import modlab
from modlab.errors import CheckpointError
from modlab.views.folding import unfold

ONE, TWO = torch.ones(2), torch.full((3,), 2.0)


def saved(tmp_path, content):
    torch.save(content, tmp_path / "c.pt")
    return modlab.state(tmp_path / "c.pt")


def dict_in_itself():
    content = {"t": ONE}
    content["self"] = content
    return content


def list_in_itself():
    content = [ONE]
    content.append(content)
    return {"list": content}


def circle_of_two():
    inner = {"t": ONE}
    content = {"inner": inner}
    inner["up"] = [content]
    return content


CIRCLES = {
    "dict": (dict_in_itself, ["t", "self"]),
    "list": (list_in_itself, ["list.0", "list.1"]),
    "two": (circle_of_two, ["inner.t", "inner.up.0"]),
}


@pytest.mark.parametrize(("build", "paths"), CIRCLES.values(), ids=CIRCLES)
def test_what_holds_itself_is_shown_once(build, paths, tmp_path):
    shown = saved(tmp_path, build())
    assert shown.paths == paths
    assert [row.note for row in shown.records] == ["", "refers to itself"]


def test_what_stands_in_two_places_is_no_circle(tmp_path):
    twice = {"t": ONE}
    assert saved(tmp_path, {"a": twice, "b": [twice, twice]}).paths == ["a.t", "b.0.t", "b.1.t"]


ORDERS = {
    "epoch_first": ({"epoch": 1, "model": {"w": ONE, "l.w": ONE}, "loss": 2}, ["epoch", "loss", "model.w", "model.l.w"]),
    "not_sorted": (OrderedDict([("z.w", ONE), ("a.w", ONE), ("z.b", TWO)]), ["z.w", "z.b", "a.w"]),
    "slot_after_children": ({"a.b": ONE, "a": TWO}, ["a", "a.b"]),
    "ten_before_nine": ({"l.10.w": ONE, "l.9.w": TWO, "b": ONE}, ["b", "l.10.w", "l.9.w"]),
    "extras": ({"o": {"groups": [{"lr": 0.1, "params": [ONE]}], "step": 3}}, ["o.step", "o.groups.0.lr", "o.groups.0.params.0"]),
}


@pytest.mark.parametrize(("content", "paths"), ORDERS.values(), ids=ORDERS)
def test_rows_and_faces_have_one_order(content, paths, tmp_path):
    shown = saved(tmp_path, content)
    assert shown.paths == paths == [path for path, _, _ in unfold(shown.record)]
    assert [row.position for row in shown.records] == list(range(1, len(paths) + 1))
    found = [str(shown).index(f"\n{path} ") for path in paths]
    assert found == sorted(found)


def test_rows_of_safetensors_have_the_order_of_the_walk(tmp_path):
    save_file({"a.z": torch.ones(2), "b": torch.ones(4), "a.b.c": TWO}, tmp_path / "c.safetensors")
    shown = modlab.state(tmp_path / "c.safetensors")
    assert shown.paths[0] == "b" and shown.paths == [path for path, _, _ in unfold(shown.record)]


COLLISIONS = {
    "dotted": ({"a": {"b": ONE}, "a.b": TWO}, ["['a.b']", "a.b"], "['a.b']"),
    "deeper": ({"m": {"a": {"b": ONE}, "a.b": TWO}}, ["m.['a.b']", "m.a.b"], "m.['a.b']"),
    "number": ({"1": ONE, 1: TWO}, ["1", "[1]"], "[1]"),
    "quoted": ({"1": ONE, "[1]": ONE, 1: TWO}, ["1", "[1]", "[1] (2)"], "[1] (2)"),
}


@pytest.mark.parametrize(("content", "paths", "second"), COLLISIONS.values(), ids=COLLISIONS)
def test_colliding_names_are_told_apart(content, paths, second, tmp_path):
    shown = saved(tmp_path, content)
    assert shown.paths == paths == [path for path, _, _ in unfold(shown.record)]
    assert f"in {len(paths)} tensors" in shown.headline
    assert shown[second].mean == 2 and all(shown[path].mean == 1 for path in paths if path != second)


def test_a_tensor_in_two_shards_is_the_one_of_the_index(tmp_path):
    for i, tensor in enumerate((ONE, TWO)):
        save_file({"a.w": tensor}, tmp_path / f"m-{i}.safetensors")
    (tmp_path / "m.index.json").write_text(json.dumps({"weight_map": {"a.w": "m-1.safetensors"}}))
    shown = modlab.state(tmp_path / "m.index.json")
    assert shown.paths == ["a.w"] and shown["a.w"].mean == 2


# ---- errors that teach -------------------------------------------------------------------------------------------------------


def write_script(path):
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), path)


FILES = {
    "hello": (lambda p: p.write_text("hello"), r"^c\.pt is a text file, not a checkpoint\.$"),
    "words": (lambda p: p.write_text("Übung macht den Meister " * 9), "text file"),
    "json": (lambda p: p.write_text('{"a": 1}'), "text file"),
    "empty": (lambda p: p.write_bytes(b""), r"c\.pt is empty \(0 bytes\)"),
    "lfs": (lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"),
    "script": (write_script, r"TorchScript program[^`]*torch\.jit\.load\('c\.pt'\), then modlab\.state\(model\)"),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("write", "text"), FILES.values(), ids=FILES)
def test_a_file_that_is_something_else_is_called_so(write, text, tmp_path):
    write(tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match=text):
        modlab.state(tmp_path / "c.pt")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_quantized_tensors_are_listed(tmp_path):
    shown = saved(tmp_path, {"q": torch.quantize_per_tensor(ONE, 0.1, 0, torch.qint8), "t": TWO})
    assert [(row.path, row.dtype, row.note) for row in shown.records] == [("q", "qint8", "quantized"), ("t", "float32", "")]
    assert shown["q"].max == pytest.approx(1)


@pytest.mark.parametrize("content", [{"weight_map": {"a": 5}}, {"weight_map": {"a": None}}, {"weight_map": {"a": ["x"]}}], ids=str)
def test_a_damaged_index_is_told(content, tmp_path):
    (tmp_path / "m.index.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"gives .* instead of a file name"):
        modlab.state(tmp_path / "m.index.json")


def test_the_home_folder_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    torch.save({"a": TWO}, tmp_path / "x.pt")
    assert modlab.state("~/x.pt")["a"].mean == 2


def test_the_current_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=f"'{tmp_path.name}' is a folder"):
        modlab.state(".")


def test_torchs_warnings_of_a_file_are_not_the_readers(tmp_path):
    """It says that quantized weights lie in storages of an old kind, and whoever looks at a file can do nothing about that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 5)), {nn.Linear}, dtype=torch.qint8)
    torch.save(model.state_dict(), tmp_path / "q.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(modlab.state(tmp_path / "q.pt").records) and modlab.diff(tmp_path / "q.pt", model).changed == []
