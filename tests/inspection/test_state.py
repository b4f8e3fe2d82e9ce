"""The state table against `state_dict()`: what is saved, in its order, and then what is not; optimizers; checkpoint files."""

import json
import math
import os
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import modlab
from modlab.errors import CheckpointError, ModlabError, NotAModuleError, PathNotFoundError
from modlab.inspection import values
from modlab.inspection.formats.stored import FileSource
from modlab.lessons.note import StatefulModule
from modlab.results.state import CARRIED
from tests import zoo


def row(shown, path):
    return next(r for r in shown.records if r.path == path)


@pytest.mark.parametrize("case", zoo.every(saves=True), ids=str)
def test_rows_are_those_of_state_dict_in_its_order(case):
    model = case.build()
    shown = modlab.state(model)
    assert [r.path for r in shown.records if r.in_state_dict] == [as_users(model, key) for key in case.state_keys(model)]
    saved = [r.in_state_dict for r in shown.records]
    assert saved == sorted(saved, reverse=True), "what is not saved comes last"


@pytest.mark.parametrize("case", [c for c in zoo.every(listed=True) if c.id != "symbolic_shape"], ids=str)
def test_rows_tell_what_the_tensors_are(case):
    model = case.build()
    shown = modlab.state(model)
    tensors = {}
    for path, module in places(model):
        for store in ("_parameters", "_buffers"):
            for name, tensor in zoo.stored(module, store).items():
                tensors[as_users(model, f"{path}.{name}" if path else name)] = (store, tensor, module)
    rows = {r.path: r for r in shown.records if r.kind in ("parameter", "buffer", "reserved")}
    assert rows.keys() == tensors.keys()
    first = {}
    with torch._C.DisableTorchFunction():
        for path, r in rows.items():
            store, tensor, module = tensors[path]
            assert r.owner_type == type(module).__name__ and path == (f"{r.owner}.{r.name}" if r.owner else r.name)
            if tensor is None:
                assert (r.kind, r.in_state_dict, r.shape) == ("reserved", False, None)
                continue
            assert r.kind == {"_parameters": "parameter", "_buffers": "buffer"}[store]
            assert (r.trainable, r.dtype, r.device) == (tensor.requires_grad, str(tensor.dtype)[6:], str(tensor.device))
            assert r.persistent == (r.name not in zoo.stored(module, "_non_persistent_buffers_set"))
            if not nn.parameter.is_lazy(tensor):
                assert r.count == tensor.numel() and (tensor.is_nested or r.shape == tuple(tensor.shape))
            first.setdefault(id(tensor), []).append(r)
    for same in first.values():
        heads = [r for r in same if not r.tied]
        assert len(heads) == 1 and {r.tied for r in same} <= {"", heads[0].path}


def as_users(model, key):
    """The name without what a wrapper that only spreads a model puts in front."""
    return key.removeprefix("module.") if isinstance(model, nn.DataParallel) else key


def places(model):
    """Paths and modules, of circles too."""
    stack = [("", model, ())]
    while stack:
        path, module, above = stack.pop()
        yield path, module
        if len(above) > 2_000:  # the deep one: its last module alone owns something
            while children := zoo.stored(module, "_modules"):
                [(name, module)] = children.items()
                path = f"{path}.{name}"
            yield path, module
            continue
        for name, child in zoo.stored(module, "_modules").items():
            if child is not None and id(child) not in (*above, id(module)):
                stack.append((f"{path}.{name}" if path else name, child, (*above, id(module))))


# ---- section 4 of the note ---------------------------------------------------------------------------------------------------


TEN = [
    "param1",
    "param2",
    "buffer1",
    "param_list.0",
    "param_list.1",
    "param_list.2",
    "param_dict.bar",
    "param_dict.foo",
    "linear.weight",
    "linear.bias",
]


def test_the_stateful_module_of_the_note():
    shown = modlab.state(StatefulModule())
    assert [r.path for r in shown.find(in_state_dict=True)] == TEN
    rest = {r.path: (r.kind, r.shape, r.persistent, r.note) for r in shown.find(in_state_dict=False)}
    assert rest == {
        "param3": ("reserved", None, False, "reserved for a parameter"),
        "buffer2": ("buffer", (5,), False, ""),
        "buffer3": ("reserved", None, False, "reserved for a buffer"),
    }
    assert shown.headline.startswith(
        "StatefulModule: 10 of 13 entries are in the state_dict; param3 and buffer3 are reserved, buffer2 is not persistent"
    )
    assert [r.path for r in shown.find(kind="buffer")] == ["buffer1", "buffer2"]


# ---- gradients ---------------------------------------------------------------------------------------------------------------


GRADS = {
    "gradients": {"0.weight": "zero", "0.bias": "present", "1.weight": "present", "1.bias": "none", "2.weight": "none", "2.bias": "none"},
    "embedding_bag_sparse": {"bag.weight": "present", "other.weight": "zero"},
    "fake_with_grad": {"weight": "present", "bias": "present"},
    "leaves_that_are_none": {"weight": "none", "bias": "none", "mean": "", "plain": ""},
    "conv_bn_frozen": {"body.0.weight": "", "body.1.running_mean": "", "head.weight": "none"},
    "inference_tensors": {"weight": "none", "bias": "none"},
}


@pytest.mark.parametrize("name", GRADS)
def test_gradients(name):
    shown = modlab.state(zoo.named(name).build())
    assert {path: row(shown, path).grad for path in GRADS[name]} == GRADS[name]


SENTENCES = {
    "no gradient yet": lambda m: None,
    "every trainable parameter has a gradient": lambda m: m(torch.ones(2, 4)).sum().backward(),
    "2 parameters have no gradient": lambda m: m.l0(torch.ones(2, 4)).sum().backward(),
    "4 gradients are zero": lambda m: (m(torch.ones(2, 4)).sum() * 0).backward(),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_headline_tells_of_gradients(sentence):
    model = zoo.Net()
    for parameter in model.parameters():
        nn.init.ones_(parameter)  # no unit is dead
    SENTENCES[sentence](model)
    assert sentence in modlab.state(model).headline


# ---- ghosts, packed weights, other forms -------------------------------------------------------------------------------------


def test_hidden_tensors_are_rows_that_are_not_saved():
    shown = modlab.state(zoo.named("hidden").build())
    ghosts = [r.path for r in shown.find(kind="attribute")]
    for path in (
        "layers[0].weight",
        "pair[1]",
        "by_name['a'].bias",
        "by_name['deep']['b'][0]",
        "heads{0}.weight",
        "queue[0]",
        "mask",
        "secret.weight",
        "weight",
    ):
        assert path in ghosts
    assert not [p for p in ghosts if p.startswith("same")]
    assert all(not r.in_state_dict and not r.persistent and r.way and not r.derived for r in shown.find(kind="attribute"))
    assert str(shown).count("not saved") == len(ghosts)
    assert "by_module[<Linear>]" in ghosts


def test_packed_weights_are_rows():
    model = zoo.named("quantized_dynamic").build()
    shown = modlab.state(model)
    packed = row(shown, "0._packed_params._packed_params")
    assert (packed.kind, packed.shape, packed.in_state_dict) == ("packed", (3, 4), True) and "packed weight with its bias" in packed.note
    assert shown["0._packed_params._packed_params"].finite == 12


@pytest.mark.parametrize(
    ("name", "path", "kind", "note"),
    [
        ("extra_state", "0._extra_state", "extra", "get_extra_state"),
        ("saving_otherwise", "0.version", "extra", "int, written by the module itself"),
        ("saving_otherwise", "0.weight_t", "extra", ""),
        ("saving_that_raises", "0.weight", "parameter", "_save_to_state_dict raised RuntimeError"),
        ("quantized_static", "1.scale", "extra", ""),
        ("lazy", "0.weight", "parameter", "lazy: no shape until"),
        ("nested", "jagged", "buffer", "ragged"),
        ("symbolic_shape", "x", "buffer", "symbolic"),
        ("sparse", "coo", "parameter", "sparse_coo"),
        ("tensor_subclass", "buffer", "buffer", "Plain"),
        ("pruned", "l0.weight", "attribute", "computed before each forward (pruned)"),
    ],
)
def test_odd_rows_say_what_they_are(name, path, kind, note):
    shown = modlab.state(zoo.named(name).build())
    (said,) = [one["note"] for one in shown.to_dict()["records"] if one["path"] == path]
    assert row(shown, path).kind == kind and note in said


# ---- values ------------------------------------------------------------------------------------------------------------------


def test_values_of_small_models_are_carried_and_of_large_ones_asked_for(monkeypatch):
    small, large = modlab.state(nn.Linear(1, CARRIED // 2)), nn.Linear(1, CARRIED // 2 + 1)
    assert [v.path for v in small.record.values] == ["weight", "bias"]
    read = []
    original = values.measure_tensor
    monkeypatch.setattr(values, "measure_tensor", lambda tensor, **_: read.append(tensor.shape) or original(tensor))
    shown = modlab.state(large)
    str(shown), shown.html(), shown.to_dict()
    assert shown.record.values == () and read == []
    assert shown["bias"].count == CARRIED // 2 + 1 and read == [large.bias.shape], "only the asked tensor is read"


def test_nan_and_infinities_are_counted():
    model = zoo.named("not_finite").build()
    shown = modlab.state(model)
    found = shown["a"]
    assert (found.nan, found.posinf, found.neginf, found.finite) == (1, 1, 1, 1) and "1 NaN, 2 infinite" in found.headline
    assert "NaN" in str(found) and "-Inf" in str(found) and ">NaN<" in shown.html(bundle=False)
    assert shown["b"].nan == 3


def test_a_value_is_that_of_now():
    model = zoo.Net()
    shown = modlab.state(model)
    with torch.no_grad():
        model.l1.bias.fill_(7)
    assert shown["l1.bias"].mean == 7


@pytest.mark.parametrize("case", [c for c in zoo.every(listed=True, large=False)], ids=str)
def test_each_row_can_be_asked_for_its_values(case):
    model = case.build()
    shown = modlab.state(model)
    for r in shown.records[:40]:
        if r.kind == "reserved" or (r.kind == "extra" and r.shape is None):
            with pytest.raises(PathNotFoundError, match="not a tensor"):
                shown[r.path]
        else:
            measured = shown[r.path]
            assert str(measured).startswith(measured.headline) and measured.html(bundle=False)


GRIDS = {
    "vector": (torch.arange(100.0), "[0:64]", (1, 64), 0.0),
    "matrix": (torch.arange(8.0).view(2, 4), "", (2, 4), 0.0),
    "wide": (torch.ones(70, 80), "[0:64, 0:64]", (64, 64), 1.0),
    "many": (torch.arange(24.0).view(2, 3, 4), "[0, 0:3, 0:4]", (3, 4), 0.0),
    "scalar": (torch.tensor(3), "", (1, 1), 3.0),
    "complex": (torch.full((2,), 3 + 4j), "", (1, 2), 5.0),
    "conjugate": (torch.full((2,), 3 + 4j).conj(), "", (1, 2), 5.0),
    "bool": (torch.ones(2, dtype=torch.bool), "", (1, 2), 1.0),
    "float8": (torch.ones(2).to(torch.float8_e4m3fn), "", (1, 2), 1.0),
    "quantized": (zoo.named("quantized_buffer").build().deep, "[0, 0:2, 0:2]", (2, 2), 1.0),
}


@pytest.mark.parametrize(("tensor", "cut", "size", "first"), GRIDS.values(), ids=GRIDS)
def test_grids_say_which_part_they_show(tensor, cut, size, first):
    matrix, note = values.layout(tensor)
    assert (matrix.slice, (len(matrix.numbers), len(matrix.numbers[0])), matrix.numbers[0][0], note) == (cut, size, first, "")


@pytest.mark.parametrize(
    "tensor", [torch.ones(0, 3), torch.eye(3).to_sparse(), zoo.named("nested").build().jagged], ids=["empty", "sparse", "nested"]
)
def test_what_has_no_grid_says_why(tensor):
    matrix, note = values.layout(tensor)
    assert matrix is None and note.startswith("no grid: ")


@pytest.mark.parametrize("path", ["net.l9.weight", "l0.wait", "", 3, ("a",)])
def test_a_wrong_path_names_the_nearest(path):
    with pytest.raises(PathNotFoundError, match=r"Net has no tensor .*\n  It has: 'l0.weight', 'l0.bias', 'l1.weight', 'l1.bias'\."):
        modlab.state(zoo.Net())[path]
    assert path not in modlab.state(zoo.Net())


# ---- optimizers --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def net():
    return zoo.Net()


def step(model, optimizer):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return optimizer


def test_groups_rates_decay_and_state(net):
    groups = [{"params": net.l0.parameters(), "lr": 0.5, "weight_decay": 0.25}, {"params": net.l1.parameters()}]
    optimizer = step(net, torch.optim.AdamW(groups, lr=torch.tensor(0.125)))
    shown = modlab.state(net, optimizer)
    [first], [second] = row(shown, "l0.weight").optimizers, row(shown, "l1.bias").optimizers
    assert (first.label, first.lr, first.weight_decay) == ("AdamW #0", 0.5, 0.25)
    assert (second.label, second.lr, second.weight_decay) == ("AdamW #1", 0.125, 0.01)
    assert first.state == ("step", "exp_avg (3, 4)", "exp_avg_sq (3, 4)")
    assert shown.record.optimizers == ("AdamW #0", "AdamW #1") and not shown.record.orphans
    assert "AdamW #0 lr 0.5 decay 0.25" in str(shown)


def test_a_parameter_in_no_group_is_marked(net):
    shown = modlab.state(net, torch.optim.SGD(net.l0.parameters(), lr=1))
    assert [r.mark for r in shown.records] == ["", "", "in no group", "in no group"]
    assert "l1.weight and l1.bias are in no group" in shown.headline and "in no group" in shown.html(bundle=False)


def test_what_needs_no_optimizer_is_not_marked():
    model = zoo.named("conv_bn_frozen").build()
    assert {r.mark for r in modlab.state(model, torch.optim.SGD(model.head.parameters(), lr=1)).records} == {""}


def test_a_parameter_in_two_groups_is_marked(net):
    optimizers = [torch.optim.SGD(net.parameters(), lr=1), torch.optim.SGD(net.l1.parameters(), lr=2)]
    shown = modlab.state(net, optimizers)
    assert row(shown, "l1.weight").mark == "in 2 groups" and row(shown, "l0.weight").mark == ""
    assert [o.label for o in row(shown, "l1.weight").optimizers] == ["SGD 1 #0", "SGD 2 #0"]


def test_what_the_model_no_longer_has_is_told(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=1)
    net.l1 = nn.Linear(3, 1)
    shown = modlab.state(net, optimizer)
    assert shown.record.orphans == ("SGD #0, params[2]: (1, 3) float32", "SGD #0, params[3]: (1,) float32")
    assert "the optimizer holds 2 tensors that the model does not have" in shown.headline
    assert str(shown).count("! SGD #0") == 2 and row(shown, "l1.weight").mark == "in no group"


def test_a_tied_parameter_is_held_under_each_name():
    model = zoo.named("tied_weight").build()
    shown = modlab.state(model, torch.optim.Adam(model.parameters()))
    assert {r.mark for r in shown.records} == {""} and row(shown, "head.weight").optimizers == row(shown, "embed.weight").optimizers


class Rude:
    def __getattr__(self, name):
        raise RuntimeError("go away")


NOT_OPTIMIZERS = {
    "class": (torch.optim.SGD, "the class SGD itself"),
    "parameters": ([nn.Parameter(torch.ones(1))], "a Parameter"),
    "generator": (zoo.Net().parameters(), "a generator"),
    "scheduler": (torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD([torch.ones(1)]), lambda _: 1), "a LambdaLR"),
    "number": (0.1, "a float"),
    "module": (zoo.Net(), "a Net"),
    "rude": (Rude(), "a Rude"),
}


@pytest.mark.parametrize(("thing", "text"), NOT_OPTIMIZERS.values(), ids=NOT_OPTIMIZERS)
def test_what_is_no_optimizer_is_told(thing, text, net):
    with pytest.raises(ModlabError, match=rf"optimizer= got {text}, but needs a torch.optim.Optimizer"):
        modlab.state(net, thing)


def test_what_is_no_model_is_told():
    with pytest.raises(NotAModuleError, match="looks like a state_dict"):
        modlab.state(zoo.Net().state_dict())


# ---- checkpoints -------------------------------------------------------------------------------------------------------------


def rows_of(shown):
    return {r.path: (r.shape, r.dtype, r.bytes) for r in shown.records if r.shape is not None}


def told(model):
    return {name: (tuple(t.shape), str(t.dtype)[6:], t.numel() * t.element_size()) for name, t in model.state_dict().items()}


def save_pt(model, path):
    torch.save(model.state_dict(), path)


def save_legacy(model, path):
    torch.save(model.state_dict(), path, _use_new_zipfile_serialization=False)


def save_safe(model, path):
    save_file(model.state_dict(), path, metadata={"format": "pt"})


FORMATS = {
    "pt": (save_pt, "net.pt"),
    "legacy": (save_legacy, "net.pth"),
    "bin": (save_pt, "pytorch_model.bin"),
    "safetensors": (save_safe, "net.safetensors"),
}


@pytest.mark.parametrize(("save", "name"), FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("kind", [Path, str])
def test_a_file_tells_what_the_model_had(save, name, kind, tmp_path):
    model = zoo.named("conv_bn_frozen").build().half()
    save(model, tmp_path / name)
    shown = modlab.state(kind(tmp_path / name))
    assert rows_of(shown) == told(model)
    assert shown.headline.startswith(f"{name}: 63 numbers in 8 tensors; 132 B") and all(r.in_state_dict for r in shown.records)
    assert str(shown) and shown.html() and shown.to_dict()
    for path, tensor in model.state_dict().items():
        assert shown[path].count == tensor.numel() and shown[path].max == tensor.max().item()
    with pytest.raises(PathNotFoundError):
        shown["x"]


def test_a_training_checkpoint_is_opened(tmp_path):
    net = zoo.Net()
    optimizer = step(net, torch.optim.Adam(net.parameters()))
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "loss": [0.5, 0.25]}, tmp_path / "last.pt")
    shown = modlab.state(tmp_path / "last.pt")
    assert row(shown, "model.l0.weight").shape == (3, 4) and row(shown, "optimizer.state.0.exp_avg").shape == (3, 4)
    assert row(shown, "epoch").note == "int 3" and row(shown, "loss").note == "list"
    assert row(shown, "epoch").kind == "value" and shown.find(kind="value")[0].kind == "value"
    with pytest.raises(PathNotFoundError, match="has no tensor 'epoch': it is not a tensor but int 3"):
        shown["epoch"]
    tensors = [r for r in shown.records if r.kind == "tensor"]
    others = len(shown.records) - len(tensors)
    data = shown._payload()
    told = json.loads(data[4 : 4 + int.from_bytes(data[:4], "little")])
    assert told["summary"]["text"] == f"{len(tensors)} tensors, {others} other entries"
    assert f"in {len(tensors)} tensors; " in shown.headline and f"{others} other entries" in shown.headline
    assert told["values"]["epoch"]["stats"] == [["int", "3"]] and told["values"]["loss"]["stats"] == [["value", "list"]]
    assert "modlab.state(path)['name']" in told["valuesNote"] and "too large" not in told["valuesNote"]
    assert shown["model.l0.weight"].count == 12


def test_one_bare_tensor(tmp_path):
    torch.save(torch.ones(2, 3), tmp_path / "one.pt")
    assert rows_of(modlab.state(tmp_path / "one.pt")) == {"(tensor)": ((2, 3), "float32", 24)}


def write_safetensors(path, entries, data=0, header=None):
    text = json.dumps(entries).encode() if header is None else header
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + data)
    return path


def test_a_file_of_many_gigabytes_is_read_by_its_header(tmp_path):
    side, layers = 50_000, 20
    size = side * side * 2
    entries = {
        f"layers.{i}.weight": {"dtype": "BF16", "shape": [side, side], "data_offsets": [i * size, (i + 1) * size]} for i in range(layers)
    }
    entries |= {"small": {"dtype": "F8_E4M3", "shape": [], "data_offsets": [layers * size, layers * size + 1]}, "__metadata__": {"a": "b"}}
    path = write_safetensors(tmp_path / "big.safetensors", entries, layers * size + 1)  # 100 GB with a hole
    tracemalloc.start()
    begin = time.perf_counter()
    shown = modlab.state(path)
    text = str(shown)
    seconds, (_, peak) = time.perf_counter() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "100.0 GB" in shown.headline and f"({side}, {side})" in text and row(shown, "small").shape == ()
    assert seconds < 5 and peak < 20e6
    assert shown["small"].zeros == 1


def test_weights_of_a_pt_file_are_not_read(tmp_path, monkeypatch):
    save_pt(nn.Linear(1000, 1000), tmp_path / "net.pt")
    monkeypatch.delattr(torch, "load")
    read = []
    whole = FileSource.read
    monkeypatch.setattr(FileSource, "read", lambda source, first, count: read.append(count) or whole(source, first, count))
    shown = modlab.state(tmp_path / "net.pt")
    assert shown.records[0].shape == (1000, 1000) and sum(read) < 100_000
    read.clear()
    assert shown["bias"].count == 1000 and sum(read) < 100_000


def test_the_index_of_shards(tmp_path):
    save_file({"a.weight": torch.ones(2, 3)}, tmp_path / "model-1.safetensors")
    save_file({"b.weight": torch.full((4,), 2.0)}, tmp_path / "model-2.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors"}}))
    shown = modlab.state(index)
    assert rows_of(shown) == {"a.weight": ((2, 3), "float32", 24), "b.weight": ((4,), "float32", 16)}
    assert shown["b.weight"].mean == 2
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match="2 files, but 1 is not beside it: model-2"):
        modlab.state(index)


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BROKEN = {
    "missing": (lambda p: None, r"There is no file"),
    "empty": (lambda p: p.write_bytes(b""), "not a safetensors file"),
    "text": (lambda p: p.write_text("hello, I am a text file that is long enough"), "not a safetensors file"),
    "no_json": (lambda p: write_safetensors(p, None, header=b"{not json"), "header is not a JSON object"),
    "list": (lambda p: write_safetensors(p, [1, 2]), "header is not a JSON object"),
    "no_shape": (lambda p: write_safetensors(p, {"a": {"dtype": "F32"}}), "entry 'a' is damaged"),
    "no_entry": (lambda p: write_safetensors(p, {"a": 3}), "entry 'a' is damaged"),
    "negative": (lambda p: write_safetensors(p, {"a": {**GOOD, "shape": [-2]}}, 8), "entry 'a' is damaged"),
    "odd_dtype": (lambda p: write_safetensors(p, {"a": {**GOOD, "dtype": 3}}, 8), "entry 'a' is damaged"),
    "deep": (lambda p: write_safetensors(p, None, header=b"[" * 50_000), "header is not a JSON object"),
    "too_large": (lambda p: p.write_bytes(struct.pack("<Q", 2**60) + b"{}"), "not a header length"),
}


@pytest.mark.parametrize(("write", "text"), BROKEN.values(), ids=BROKEN)
def test_broken_safetensors_are_refused(write, text, tmp_path):
    write(tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match=text):
        modlab.state(tmp_path / "x.safetensors")


def test_a_cut_safetensors_file_is_told_when_its_values_are_asked(tmp_path):
    shown = modlab.state(write_safetensors(tmp_path / "cut.safetensors", {"a": {**GOOD, "data_offsets": [8_000, 8_008]}}, 8))
    with pytest.raises(CheckpointError, match="'a'"):
        shown["a"]
    wrong = modlab.state(write_safetensors(tmp_path / "odd.safetensors", {"a": {**GOOD, "shape": [3]}}, 8))
    with pytest.raises(CheckpointError, match="'a'"):
        wrong["a"]


BROKEN_PT = {
    "empty": lambda p: p.write_bytes(b""),
    "text": lambda p: p.write_text("hello"),
    "cut": lambda p: (torch.save({"a": torch.ones(100)}, p), os.truncate(p, 300)),
}


@pytest.mark.parametrize("write", BROKEN_PT.values(), ids=BROKEN_PT)
def test_broken_pt_files_are_refused(write, tmp_path):
    write(tmp_path / "x.pt")
    with pytest.raises(CheckpointError, match=r"x\.pt"):
        modlab.state(tmp_path / "x.pt")


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_pickled_module_is_refused_and_its_code_not_run(zipped, tmp_path):
    torch.save(zoo.Net(), tmp_path / "net.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        CheckpointError, match=r"more than tensors \(tests\.zoo\.Net\)[^`]*weights_only=False\)[^`]*torch\.save\(model\.state_dict\(\)"
    ):
        modlab.state(tmp_path / "net.pt")


def test_a_folder_and_a_wrong_name_say_what_is_there(tmp_path):
    save_pt(zoo.Net(), tmp_path / "net.pt")
    with pytest.raises(CheckpointError, match=r"is a folder.*\n  It has: net\.pt"):
        modlab.state(tmp_path)
    with pytest.raises(CheckpointError, match=r"no file .*nett\.pt'\.\n  Beside it: net\.pt"):
        modlab.state(tmp_path / "nett.pt")
    with pytest.raises(CheckpointError, match="There is no file"):
        modlab.state("")


def test_hostile_headers_are_only_text(tmp_path):
    name = "</script><img src=x onerror=alert(1)>\n\x1b[31m"
    entry = {"dtype": name, "shape": [2], "data_offsets": [0, 8]}
    shown = modlab.state(write_safetensors(tmp_path / "x.safetensors", {name: entry}, 8))
    for face in (str(shown), shown.html(bundle=False)):
        assert "\x1b" not in face
    assert "<img" not in shown.html(bundle=False) and len(str(shown).splitlines()) == 3


def test_numbers_beyond_a_double_are_told():
    model = zoo.named("not_finite").build()
    shown = modlab.state(model)
    assert math.isnan(shown["b"].mean) and json.dumps(shown.to_dict())
