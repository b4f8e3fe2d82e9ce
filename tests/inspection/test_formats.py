"""The formats of checkpoints: each is recognised by what it holds, no code of it is run, and nothing is too large, too deep or too odd."""

import gzip
import io
import json
import os
import pickle
import random
import shutil
import struct
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import nn

import modlab
from modlab.errors import CheckpointError, ModlabError
from modlab.inspection.formats import nesting, pickled
from tests.ranks import run_ranks

ONE = torch.arange(12.0).reshape(3, 4)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).eval()


# ---- formats that are read -------------------------------------------------------------------------------------------------


def write_gguf(path, tensors, settings=(), version=3, kinds=None):
    """As llama.cpp writes it: a header, and the numbers aligned to 32 bytes."""

    def text(word):
        return struct.pack("<Q", len(word.encode())) + word.encode()

    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(settings))
    for name, kind, value in settings:
        head += text(name) + struct.pack("<I", kind) + value
    place, data = 0, b""
    for name, tensor in tensors.items():
        raw = tensor.numpy().tobytes()
        kind = (kinds or {}).get(name, 0)
        head += text(name) + struct.pack("<I", tensor.dim()) + struct.pack(f"<{tensor.dim()}Q", *reversed(tensor.shape))
        head += struct.pack("<IQ", kind, place)
        data += raw + bytes(-len(raw) % 32)
        place = len(data)
    Path(path).write_bytes(head + bytes(-len(head) % 32) + data)


def write_old_pt2(path):
    """As torch 2.7 laid it out."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "8.8")
        archive.writestr("serialized_exported_program.json", "{}")
        held = io.BytesIO()
        torch.save(net().state_dict(), held)
        archive.writestr("serialized_state_dict.pt", held.getvalue())
        archive.writestr("serialized_constants.pt", b"")


def write_pt2(path):
    torch.export.save(torch.export.export(net(), (torch.ones(2, 4),)), path)


def sharded(folder, saver=save_file, name="model.safetensors.index.json"):
    folder.mkdir(exist_ok=True)
    parts = {"model-00001-of-00002.safetensors": {}, "model-00002-of-00002.safetensors": {}}
    for i, (key, value) in enumerate(net().state_dict().items()):
        parts[[*parts][i % 2]][key] = value
    for file, held in parts.items():
        saver(held, folder / file)
    (folder / name).write_text(json.dumps({"weight_map": {key: file for file, held in parts.items() for key in held}}))
    (folder / "config.json").write_text("{}")
    return folder


def in_folder(*names):
    def write(path):
        path.mkdir()
        for name in names:
            saved = net().state_dict() if "model" in name or "weights" in name else {"lr": 0.1}
            save_file(saved, path / name) if name.endswith(".safetensors") else torch.save(saved, path / name)

    return write


def hub(path):
    """As the cache of huggingface_hub: the files of a snapshot are links into ``blobs``."""
    blobs = path.parent / "models--x" / "blobs"
    snapshot = path.parent / "models--x" / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for i, file in enumerate(sorted(sharded(path.parent / "all").iterdir())):
        file.rename(blobs / f"{i}")
        (snapshot / file.name).symlink_to(Path("..", "..", "blobs", f"{i}"))
    path.symlink_to(snapshot)


READ = {
    "torch": lambda p: torch.save(net().state_dict(), p),
    "legacy": lambda p: torch.save(net().state_dict(), p, _use_new_zipfile_serialization=False),
    "safetensors": lambda p: save_file(net().state_dict(), p),
    "pt2": lambda p: write_pt2(p.with_suffix(".pt2")) or p.with_suffix(".pt2").rename(p),
    "old_pt2": write_old_pt2,
    "dcp": lambda p: dcp.save(net().state_dict(), checkpoint_id=p, no_dist=True),
    "gguf": lambda p: write_gguf(p, {k: v.float() for k, v in net().state_dict().items()}),
    "folder_of_shards": sharded,
    "hub": hub,
    "hf_folder": in_folder("model.safetensors"),
    "hf_bin": in_folder("pytorch_model.bin"),
    "trainer": in_folder("model.safetensors", "optimizer.pt", "scheduler.pt", "training_args.bin", "rng_state.pth"),
    "one_safetensors": in_folder("my_weights.safetensors"),
    "accelerate": lambda p: dcp.save(net().state_dict(), checkpoint_id=p / "pytorch_model_fsdp_0", no_dist=True),
}
NO_LINES = ("gguf",)  # whose names no model has, so nothing is said of loading it


@pytest.mark.parametrize("kind", READ)
def test_every_format_is_read_as_torch_has_it(kind, tmp_path):
    READ[kind](tmp_path / "c")
    shown, truth = modlab.state(tmp_path / "c"), net().state_dict()
    assert {row.path: row.shape for row in shown.records} == {name: tuple(value.shape) for name, value in truth.items()}
    for name, value in truth.items():
        assert shown[name].mean == value.double().mean().item() and shown[name].count == value.numel(), name
        assert kind == "gguf" or shown[name].dtype == str(value.dtype).removeprefix("torch.")
    if kind != "gguf":
        assert modlab.diff(tmp_path / "c", net()).changed == []
    other = net()
    with torch.no_grad():
        other[0].weight[0, 0] += 1
    assert [row.path for row in modlab.diff(tmp_path / "c", other).changed if row.kind != "buffer"] == ["0.weight"]


@pytest.mark.parametrize("kind", ["torch", "legacy", "safetensors", "pt2", "old_pt2", "dcp", "folder_of_shards", "hf_folder", "trainer"])
def test_the_lines_that_load_it_are_true(kind, tmp_path, monkeypatch):
    if kind == "old_pt2":
        pytest.skip("an archive without its program, made for this test")
    monkeypatch.chdir(tmp_path)
    READ[kind](Path("c"))
    other = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    if kind == "pt2":
        Path("c").rename("c.pt2")  # torch.export.load asks for the ending
    given = "c.pt2" if kind == "pt2" else "c"
    exec(modlab.diff(given, other).record.loading.code, {"torch": torch, "model": other})
    assert all(torch.equal(a, b) for a, b in zip(other.state_dict().values(), net().state_dict().values(), strict=True))


CHOSEN = {
    "trainer": (("model.safetensors", "optimizer.pt", "training_args.bin"), "c/model.safetensors", "optimizer.pt, training_args.bin"),
    "both": (("model.safetensors", "pytorch_model.bin"), "c/model.safetensors", "pytorch_model.bin"),
    "adapter": (("adapter_model.safetensors",), "c/adapter_model.safetensors", ""),
}


@pytest.mark.parametrize(("names", "title", "left"), CHOSEN.values(), ids=CHOSEN)
def test_a_folder_says_what_was_chosen(names, title, left, tmp_path):
    in_folder(*names)(tmp_path / "c")
    shown = modlab.state(tmp_path / "c")
    assert shown.record.title == title and f"reading {names[0]} from" in str(shown) and left in str(shown)


def test_a_folder_of_several_is_not_guessed(tmp_path):
    in_folder("a_weights.pt", "b_weights.pt")(tmp_path / "c")
    with pytest.raises(CheckpointError, match=r"is a folder.*\n  It has: a_weights\.pt, b_weights\.pt"):
        modlab.state(tmp_path / "c")
    (tmp_path / "runs" / "checkpoint-500").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"It has: checkpoint-500/"):
        modlab.state(tmp_path / "runs")


def test_dcp_holds_nested_parts_and_values(tmp_path):
    model = net()
    dcp.save({"model": model.state_dict(), "step": 3, "name": "x"}, checkpoint_id=tmp_path / "c", no_dist=True)
    shown = modlab.state(tmp_path / "c")
    assert {row.path: row.note for row in shown.records if row.kind == "value"} == {"step": "int 3", "name": "str 'x'"}
    assert "torch.distributed.checkpoint: 7 tensors in 1 file" in str(shown)
    found = modlab.diff(tmp_path / "c", model)
    assert found.changed == [] and "'model'" in str(found) and not found.record.loading.fails
    next((tmp_path / "c").glob("*.distcp")).unlink()
    assert "missing" in str(modlab.state(tmp_path / "c"))
    with pytest.raises(ModlabError):
        modlab.state(tmp_path / "c")["model.0.weight"]


def test_gguf_says_its_types_and_settings(tmp_path):
    blocks = torch.zeros(18 * 2, dtype=torch.uint8)
    settings = [
        ("general.architecture", 8, struct.pack("<Q", 5) + b"llama"),
        ("llama.block_count", 4, struct.pack("<I", 32)),
        ("tokenizer.tokens", 9, struct.pack("<IQ", 8, 2) + 2 * (struct.pack("<Q", 1) + b"a")),
        ("x", 9, struct.pack("<IQ3f", 6, 3, 1, 2, 3)),
    ]
    write_gguf(tmp_path / "m.gguf", {"w": ONE, "q": blocks}, settings, kinds={"q": 2})
    data = (tmp_path / "m.gguf").read_bytes().replace(struct.pack("<Q", 36), struct.pack("<Q", 64))  # 64 numbers in two blocks
    (tmp_path / "m.gguf").write_bytes(data)
    shown = modlab.state(tmp_path / "m.gguf")
    rows = {row.path: (row.shape, row.dtype, row.bytes, row.note) for row in shown.records}
    assert rows["w"] == ((3, 4), "float32", 48, "") and shown["w"].sum == 66
    assert rows["q"] == ((64,), "Q4_0", 36, "quantized, 4.5 bits per number: values are not read")
    assert rows["general.architecture"][3] == "str 'llama'" and "(2 values)" in rows["tokenizer.tokens"][3]
    with pytest.raises(CheckpointError, match="'q' cannot be read: quantized"):
        shown["q"]
    assert "version 3" in str(shown) and "cut off" not in str(shown)


ODD_TENSORS = {
    "transposed": lambda: ONE.t(),
    "slice": lambda: ONE[1:, ::2],
    "expanded": lambda: torch.ones(1).expand(1000, 1000),
    "scalar": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 3),
    "bool": lambda: ONE > 3,
    "bfloat16": lambda: ONE.bfloat16(),
    "float8": lambda: ONE.to(torch.float8_e4m3fn),
    "complex": lambda: torch.complex(ONE, ONE),
    "conj": lambda: torch.complex(ONE, ONE).conj(),
    "uint16": lambda: ONE.to(torch.uint16),
    "sparse": lambda: ONE.to_sparse(),
    "csr": lambda: ONE.to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(ONE, 0.1, 3, torch.qint8),
    "per_channel": lambda: torch.quantize_per_channel(ONE, torch.ones(3) * 0.1, torch.zeros(3), 0, torch.quint8),
    "parameter": lambda: nn.Parameter(ONE.clone()),
    "buffer": lambda: nn.Buffer(ONE.clone()),
}


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("make", ODD_TENSORS.values(), ids=ODD_TENSORS)
def test_odd_tensors_have_the_values_that_torch_reads(make, legacy, tmp_path):
    tensor = make()
    try:
        torch.save({"t": tensor, "again": [tensor]}, tmp_path / "c.pt", _use_new_zipfile_serialization=not legacy)
    except (RuntimeError, AttributeError, KeyError):
        pytest.skip("torch does not write it so")
    shown = modlab.state(tmp_path / "c.pt")
    measured, truth = shown["t"], modlab.measure(tensor)
    assert (measured.shape, measured.count, measured.nan) == (truth.shape, truth.count, truth.nan)
    assert measured.sum == truth.sum or (measured.sum != measured.sum and truth.sum != truth.sum)
    rows = [row for row in modlab.diff(tmp_path / "c.pt", {"t": tensor, "again": [tensor]}).records if row.kind == "tensor"]
    assert len(rows) == 2 and {row.status for row in rows} == {"unchanged"} and not any(row.note for row in rows)


# ---- files that are something else -----------------------------------------------------------------------------------------


def write_zip(path, **entries):
    with zipfile.ZipFile(path, "w") as archive:
        for name, held in entries.items():
            archive.writestr(name.replace("__", "."), held)


def write_tar(path):
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("x"), io.BytesIO())


SECRET = "the_secret_word"
FOREIGN = {
    "text": (lambda p: p.write_text(f"{SECRET} and more"), "text file"),
    "json": (lambda p: p.write_text(json.dumps({SECRET: 1})), "JSON"),
    "onnx": (lambda p: p.with_suffix(".onnx").write_bytes(b"\x08\x08\x12\x07pytorch" + bytes(99)), "ONNX"),
    "onnx_by_head": (lambda p: p.write_bytes(b"\x08\x08\x12\x07pytorch" + bytes(99)), "ONNX"),
    "h5": (lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99)), "HDF5"),
    "keras": (lambda p: write_zip(p, **{"config__json": "{}", "model__weights__h5": "x"}), "Keras"),
    "npz": (lambda p: np.savez(p.with_suffix(".npz"), a=np.ones(3)), "NumPy"),
    "npy": (lambda p: np.save(p.with_suffix(".npy"), np.ones(3)), "NumPy"),
    "msgpack": (lambda p: p.with_suffix(".msgpack").write_bytes(b"\x81\xa1a\x01\x80\xff"), "Flax"),
    "tar": (write_tar, "tar archive"),
    "gz": (lambda p: p.write_bytes(gzip.compress(b"x" * 100)), "gzip"),
    "zip": (lambda p: write_zip(p, readme="x"), "zip archive of something else"),
    "script": (lambda p: torch.jit.save(torch.jit.trace(net(), torch.ones(2, 4)), p), "TorchScript"),
    "pickle": (lambda p: p.write_bytes(pickle.dumps({"a": 1})), "torch.save did not write"),
    "model": (lambda p: torch.save(net(), p), r"torch\.nn\.modules"),
    "args": (lambda p: torch.save(Path("x"), p), "pathlib"),
    "lfs": (lambda p: p.write_text("version https://git-lfs.github.com/spec/v1\noid"), "git lfs pull"),
    "empty": (lambda p: p.write_bytes(b""), "empty"),
    "old_ggml": (lambda p: p.write_bytes(b"lmgg" + bytes(99)), "GGML"),
    "new_gguf": (lambda p: write_gguf(p, {}, version=9), "version 9"),
    "old_gguf": (lambda p: write_gguf(p, {}, version=0), "version 0"),
    "noise": (lambda p: p.write_bytes(random.Random(0).randbytes(5000)), "c"),
    "no_text": (lambda p: p.with_suffix(".safetensors").write_bytes(b"\xff" * 8), "not a header length"),
    "gguf_as_bin": (lambda p: p.with_suffix(".bin").write_bytes(b"GGUF\x03\0\0\0"), "header continues beyond its end"),
}


@pytest.mark.parametrize(("write", "text"), FOREIGN.values(), ids=FOREIGN)
def test_a_file_of_something_else_is_called_what_it_is(write, text, tmp_path):
    write(tmp_path / "c.pt")
    (file,) = tmp_path.iterdir()
    for look in (modlab.state, lambda path: modlab.diff(path, net())):
        with pytest.raises(CheckpointError, match=text) as caught:
            look(file)
        assert SECRET not in str(caught.value)
        assert ("weights_only=False" in str(caught.value)) is (text in (r"torch\.nn\.modules", "pathlib"))


SPECIAL = {
    "pipe": (os.mkfifo, "a pipe"),
    "device": (lambda p: p.symlink_to("/dev/zero"), "a device"),
    "nothing": (lambda p: p.symlink_to("nowhere"), "There is no file"),
    "loop": (lambda p: p.symlink_to(p.name), "."),
    "empty_folder": (lambda p: p.mkdir(), "holds no checkpoint"),
}


@pytest.mark.parametrize(("make", "text"), SPECIAL.values(), ids=SPECIAL)
def test_what_is_no_file_is_not_opened(make, text, tmp_path):
    make(tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match=text):
        modlab.state(tmp_path / "c.pt")


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 5000, "~nobody/x", "\udcff.pt"], ids=["empty", "null", "long", "home", "surrogate"])
def test_a_path_that_is_none_is_said(path):
    for look in (modlab.state, lambda path: modlab.diff(path, net())):
        with pytest.raises(CheckpointError):
            look(path)


# ---- files that would do harm ----------------------------------------------------------------------------------------------

ELSEWHERE = ["../secret.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".", "", "C:\\x", "a\0b", "link.safetensors", "a\\b", "//x"]


@pytest.mark.parametrize("name", ELSEWHERE, ids=ascii)
def test_an_index_opens_nothing_but_what_lies_beside_it(name, tmp_path):
    (tmp_path / "secret.safetensors").write_text(SECRET)
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    shutil.copy(tmp_path / "secret.safetensors", folder / "sub" / "x.safetensors")
    (folder / "link.safetensors").symlink_to("../secret.safetensors")
    (folder / "m.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    for given in (folder / "m.index.json", folder):
        with pytest.raises(CheckpointError, match="must be beside it") as caught:
            modlab.state(given)
        assert SECRET not in "".join(map(str, (caught.value, caught.value.__cause__, caught.value.__context__)))


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "sub/../../x", "link"])
def test_the_metadata_of_a_folder_opens_nothing_but_what_lies_in_it(name, tmp_path):
    dcp.save({"w": ONE}, checkpoint_id=tmp_path / "c", no_dist=True)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "c" / "link").symlink_to("../secret")
    meta = tmp_path / "c" / ".metadata"
    held = pickle.loads(meta.read_bytes())
    for info in held.storage_data.values():
        info.relative_path = name
    meta.write_bytes(pickle.dumps(held))
    with pytest.raises(CheckpointError, match="must be beside it"):
        modlab.state(tmp_path / "c")


class Evil:
    """What it is made by leaves a mark."""

    def __reduce__(self):
        return (exec, ("import sys; sys.modules['modlab_was_run'] = sys",))


def evil_metadata(path):
    path.mkdir()
    (path / ".metadata").write_bytes(pickle.dumps(Evil()))


def shared_lists(path):
    held = [ONE]
    for _ in range(10):
        held = [held] * 10
    torch.save({"a": held}, path)


def shared_dicts(path):
    held = {"t": ONE}
    for _ in range(30):
        held = {"a": held, "b": held}
    torch.save(held, path)


def deep_lists(path):
    held = ONE
    for _ in range(300):
        held = [held]
    torch.save(held, path)


def tuples_as_key(path):
    write_pickled(path, b"\x80\x02}(" + b")" + b"q\0" + b"h\0h\0\x86q\0" * 100 + b"K\x01u.")


def write_pickled(path, data):
    """An archive of torch's with any pickle in it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("c/data.pkl", data)
        archive.writestr("c/version", "3\n")


def claimed(path, size, packed=zipfile.ZIP_DEFLATED):
    """An entry that unpacks to more than it should."""
    with zipfile.ZipFile(path, "w", packed) as archive, archive.open("c/data.pkl", "w", force_zip64=True) as stream:
        for _ in range(size >> 20):
            stream.write(bytes(1 << 20))


def large_directory(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("c/data.pkl", b"\x80\x02}.")
    data = bytearray(path.read_bytes())
    place = data.rfind(b"PK\x05\x06")
    struct.pack_into("<I", data, place + 12, 2_000_000_000)
    path.write_bytes(data)


def tensor_of(path, size="(K\x03K\x04t", offset="K\0", key="X\x01\0\0\x000", count="K\x0c"):
    storage = "(X\x07\0\0\0storagectorch\nFloatStorage\n" + key + "X\x03\0\0\0cpu" + count + "tQ"
    made = f"ctorch._utils\n_rebuild_tensor_v2\n({storage}{offset}{size}{size}\x89}}tRs."
    write_pickled(path, f"\x80\x02}}X\x01\0\0\0w{made}".encode("latin1"))


HOSTILE = {
    "shared_lists": (shared_lists, "The first "),
    "shared_dicts": (shared_dicts, "The first "),
    "deep_lists": (deep_lists, "levels deep"),
    "tuples_as_key": (tuples_as_key, CheckpointError),
    "exec": (lambda p: torch.save(Evil(), p), CheckpointError),
    "exec_in_metadata": (evil_metadata, CheckpointError),
    "exec_in_legacy": (lambda p: torch.save(Evil(), p, _use_new_zipfile_serialization=False), CheckpointError),
    "opcodes": (lambda p: write_pickled(p, b"\x80\x02" + b"]" * 3_000_000), CheckpointError),
    "marks": (lambda p: write_pickled(p, b"\x80\x02" + b"(" * 500_000 + b"."), CheckpointError),
    "memo": (lambda p: write_pickled(p, b"\x80\x02]r\xff\xff\xff\xff."), "other entry"),
    "text_of_4_gb": (lambda p: write_pickled(p, b"\x80\x02X\xff\xff\xff\xffabc."), CheckpointError),
    "text_of_16_eb": (lambda p: write_pickled(p, b"\x80\x04\x8d" + b"\xff" * 8 + b"abc."), CheckpointError),
    "number_of_2_gb": (lambda p: write_pickled(p, b"\x80\x02\x8b\xff\xff\xff\x7fabc."), CheckpointError),
    "long_number": (lambda p: write_pickled(p, b"\x80\x02}X\x01\0\0\0a\x8b" + struct.pack("<i", 1000) + b"\x7f" * 1000 + b"s."), "int"),
    "colliding_keys": (lambda p: write_pickled(p, pickle.dumps({k * (2**61 - 1): 1 for k in range(1, 2000)}, 2)), CheckpointError),
    "zip_bomb": (lambda p: claimed(p, 320 << 20), CheckpointError),
    "directory": (large_directory, CheckpointError),
    "huge_shape": (lambda p: tensor_of(p, "(J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7ft"), CheckpointError),
    "negative_shape": (lambda p: tensor_of(p, "(J\xff\xff\xff\xfft"), CheckpointError),
    "shape_of_text": (lambda p: tensor_of(p, "X\x02\0\0\x0033"), CheckpointError),
    "no_numbers": (lambda p: tensor_of(p), "12 numbers"),
    "storage_of_path": (lambda p: tensor_of(p, key="X\x0b\0\0\0../../../xx"), "12 numbers"),
    "negative_offset": (lambda p: tensor_of(p, offset="J\xff\xff\xff\xff"), CheckpointError),
    "no_pickle": (lambda p: write_pickled(p, b"hello"), CheckpointError),
    "nothing": (lambda p: write_pickled(p, b""), CheckpointError),
}


def looked_at(path):
    """All that can be looked at; anything but a ModlabError comes out."""
    found = []
    for look in (modlab.state, lambda path: modlab.diff(path, net())):
        try:
            found.append(look(path))
        except ModlabError as error:
            found.append(error)
    shown = found[0]
    if isinstance(shown, modlab.results.state.State):
        str(shown)
        for row in [row for row in shown.records if row.kind == "tensor"][:3]:
            try:
                shown[row.path]
            except ModlabError as error:
                found.append(error)
    return found


@pytest.mark.parametrize(("write", "expected"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_ends_in_a_sentence(write, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(pickled, "STEPS", 1_000_000)
    monkeypatch.setattr(nesting, "MOST", 2_000)
    monkeypatch.setattr(nesting, "AGAIN", 100)
    write(tmp_path / "c.pt")
    before = time.process_time()
    shown = looked_at(tmp_path / "c.pt")[0]
    assert time.process_time() - before < 20 and "modlab_was_run" not in sys.modules
    assert isinstance(shown, CheckpointError) if expected is CheckpointError else expected in str(shown)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_tensor_of_two_names_is_counted_once(legacy, tmp_path):
    w = torch.ones(4, 3, dtype=torch.complex64)
    content = {"a": w, "b": w, "part": w[:2], "turned": w.mT, "conjugate": w.conj(), "again": w.view(4, 3)}
    torch.save(content, tmp_path / "c.pt", _use_new_zipfile_serialization=not legacy)
    shown = modlab.state(tmp_path / "c.pt")
    assert {row.path: row.tied for row in shown.records if row.tied} == {"b": "a", "again": "a"}
    assert str(shown).startswith("c.pt: 42 numbers in 6 tensors; 336 B.") and "same tensor as a" in str(shown)


def test_a_kilobyte_of_shared_lists_is_shown_in_time(tmp_path):
    shared_lists(tmp_path / "c.pt")
    shown = modlab.state(tmp_path / "c.pt")
    assert len(shown) < nesting.MOST and str(shown).startswith("c.pt: 12 numbers in")
    assert f"! The first {len(shown):,} entries are listed: the rest repeat the same ones" in str(shown)


def header(path, text, data=bytes(48)):
    raw = text if isinstance(text, bytes) else json.dumps(text).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)


ENTRY = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
HEADERS = {
    "infinite": b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 48]}}',
    "not_a_number": b'{"a": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 48]}}',
    "digits": b'{"a": {"dtype": "F32", "shape": [' + b"9" * 4000 + b'], "data_offsets": [0, 48]}}',
    "more_digits": b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 48]}}',
    "text": {"a": {**ENTRY, "shape": "34"}},
    "text_inside": {"a": {**ENTRY, "shape": ["3", "4"]}},
    "fraction": {"a": {**ENTRY, "shape": [3.0, 4]}},
    "truth": {"a": {**ENTRY, "shape": [True, 12]}},
    "product": {"a": {**ENTRY, "shape": [2**62, 2**62]}},
    "dimensions": {"a": {**ENTRY, "shape": [1] * 1000}},
    "overlap": {"a": ENTRY, "b": {**ENTRY, "data_offsets": [4, 52]}},
    "backwards": {"a": {**ENTRY, "data_offsets": [48, 0]}},
    "offsets": {"a": {**ENTRY, "data_offsets": [0, 48, 1]}},
    "offset_text": {"a": {**ENTRY, "data_offsets": ["0", "48"]}},
    "far": {"a": {**ENTRY, "data_offsets": [10**30, 10**30 + 48]}},
    "dtype_list": {"a": {**ENTRY, "dtype": ["F32"]}},
    "twice": b'{"a": {"dtype": "F32"}, "a": {"dtype": "F32"}}',
    "deep": b'{"a":' * 50_000,
    "null": b"null",
    "utf16": '{"a": 1}'.encode("utf-16"),
}


@pytest.mark.parametrize("text", HEADERS.values(), ids=HEADERS)
def test_a_hostile_header_ends_in_a_sentence(text, tmp_path):
    header(tmp_path / "c.safetensors", text)
    assert all(isinstance(one, CheckpointError) for one in looked_at(tmp_path / "c.safetensors"))


@pytest.mark.parametrize("dtype", ["load", "Tensor", "__class__", "nn", "F4"])
def test_a_dtype_that_is_none_is_not_looked_up(dtype, tmp_path):
    header(tmp_path / "c.safetensors", {"a": {**ENTRY, "dtype": dtype}})
    shown, _, error = looked_at(tmp_path / "c.safetensors")
    assert shown.records[0].dtype == dtype.lower() and isinstance(error, CheckpointError)


INDEXES = [
    b"[]",
    b"{}",
    b'{"weight_map": []}',
    b'{"weight_map": {"a": 1}}',
    b'{"weight_map": {"a": null}}',
    b"[" * 99_999,
    b"\xff\xfe",
    b'{"weight_map": {"a": "b", "a": "c"}}',
    b'{"weight_map": {"a": "' + b"x" * 9999 + b'"}}',
    b"9" * 9999,
]


@pytest.mark.parametrize("text", INDEXES, ids=range(len(INDEXES)))
def test_a_hostile_index_ends_in_a_sentence(text, tmp_path):
    (tmp_path / "m.index.json").write_bytes(text)
    assert all(isinstance(one, CheckpointError) for one in looked_at(tmp_path / "m.index.json"))


def test_a_file_that_shrinks_while_it_is_read_is_said(tmp_path):
    """Mapped, it would kill the process."""
    for name, save in (("c.pt", torch.save), ("c.safetensors", save_file)):
        save({"a": torch.ones(100_000)}, tmp_path / name)
        shown = modlab.state(tmp_path / name)
        os.truncate(tmp_path / name, 2_000)
        with pytest.raises(CheckpointError):
            shown["a"]


class Bytes:
    """A path that is bytes, as os.scandir(b".") gives it."""

    def __fspath__(self):
        return b"c.pt"


def test_a_path_of_bytes_is_a_path(tmp_path, monkeypatch):
    torch.save({"a": ONE}, tmp_path / "c.pt")
    monkeypatch.chdir(tmp_path)
    assert modlab.state(Bytes()).paths == ["a"] and not modlab.diff(Bytes(), {"a": ONE}).changed


@pytest.mark.parametrize("name", ["c.**", "c.[", "c.?*"])
def test_a_name_with_stars_is_no_pattern(name, tmp_path):
    with pytest.raises(CheckpointError, match="There is no file"):
        modlab.state(tmp_path / name)


def test_one_file_on_both_sides_is_read(tmp_path):
    path = str(tmp_path / "c.pt")
    with pytest.raises(CheckpointError, match="There is no file"):
        modlab.diff(path, path)
    torch.save({"a": ONE}, path)
    assert modlab.diff(path, path).headline == "c.pt: 0 of 1 tensor changed."


def test_a_file_that_is_written_while_it_is_read_is_no_mixture(tmp_path):
    from modlab.inspection import checkpoint

    path = tmp_path / "c.pt"
    torch.save({"a": ONE}, path)
    found = checkpoint.opened(str(path)).content["a"]
    os.utime(path, ns=(1, 1))
    torch.save({"a": ONE + 1}, path)
    with pytest.raises(CheckpointError, match="changed while it was read"):
        found.read("a")


def test_names_of_a_megabyte_make_no_table_of_gigabytes(tmp_path):
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header(tmp_path / "long.safetensors", {"x" * 1_000_000: empty} | {str(i): empty for i in range(300)}, b"")
    assert len(str(modlab.state(tmp_path / "long.safetensors"))) < 1_000_000
    header(tmp_path / "deep.safetensors", {"a" + ".a" * 20_000 + str(i): empty for i in range(20)}, b"")
    shown = modlab.state(tmp_path / "deep.safetensors")
    assert max(row.owner.count(".") for row in shown.records) == nesting.DEEPEST - 1 and len(str(shown)) < 100_000


def test_a_flat_file_is_listed_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(nesting, "MOST", 10)
    save_file({str(i): torch.zeros(1) for i in range(20)}, tmp_path / "c.safetensors")
    shown = modlab.state(tmp_path / "c.safetensors")
    assert len(shown) == 10 and "The first 10 entries are listed: there are more" in str(shown)


NESTED = "ignore:The PyTorch API of nested tensors"
MORE = {
    "model": (lambda: net(), "model = torch.load('c.pt', weights_only=False), then modlab.state(model)"),
    "dict": (lambda: {"a": ONE, "score": np.float64(0.5)}, "held = torch.load('c.pt', weights_only=False), then modlab.diff(held, model)"),
    "other": (lambda: np.ones(3), "If you trust its author: torch.load('c.pt', weights_only=False).\n"),
    "torchs_own": (lambda: torch.nested.nested_tensor([ONE]), "torch reads it, running no code in it: torch.load('c.pt')"),
}


@pytest.mark.filterwarnings(NESTED)
@pytest.mark.parametrize(("make", "told"), MORE.values(), ids=MORE)
def test_what_reads_more_than_tensors_is_told_and_runs(make, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(make(), "c.pt")
    with pytest.raises(CheckpointError) as caught:
        modlab.state("c.pt")
    assert told in str(caught.value)
    code = told.partition(": ")[2] or told
    model = net()
    for line in code.rstrip(".\n").split(", then "):
        exec(line, {"torch": torch, "modlab": modlab}, space := {"model": model} | locals().get("space", {}))


@pytest.mark.filterwarnings(NESTED)
def test_what_torch_was_told_to_trust_is_read_by_torch(tmp_path):
    torch.save({"j": torch.nested.nested_tensor([ONE, ONE[:1]], layout=torch.jagged)}, tmp_path / "c.pt")
    try:
        torch.load(tmp_path / "c.pt", weights_only=True)
    except pickle.UnpicklingError:
        pytest.skip("this torch trusts no nested tensor")
    assert "ragged" in str(modlab.state(tmp_path / "c.pt"))


# ---- fuzzing ---------------------------------------------------------------------------------------------------------------

ROUNDS = 60


def mutated(data, draw):
    """The same bytes with some cut out, doubled, flipped or put elsewhere."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        if not data:
            break
        place, length = draw.randrange(len(data)), draw.choice([1, 1, 2, 8, 64])
        how = draw.randrange(5)
        if how == 0:
            data[place] ^= 1 << draw.randrange(8)
        elif how == 1:
            data[place : place + length] = draw.randbytes(length)
        elif how == 2:
            del data[place : place + length]
        elif how == 3:
            data[place:place] = data[place : place + length]
        else:
            del data[place:]
    return bytes(data)


@pytest.mark.parametrize("kind", [kind for kind in READ if kind not in ("hub", "hf_bin", "trainer", "one_safetensors", "accelerate")])
def test_what_is_damaged_anywhere_ends_in_a_sentence(kind, tmp_path):
    draw = random.Random(kind)
    READ[kind](tmp_path / "c")
    files = [file for file in (tmp_path / "c").iterdir() if file.is_file()] if (tmp_path / "c").is_dir() else [tmp_path / "c"]
    files = [file for file in files if file.suffix != ".distcp"] or files
    known = set(sys.modules)
    for _ in range(ROUNDS):
        file = draw.choice(files)
        good = file.read_bytes()
        file.write_bytes(mutated(good, draw))
        before = time.process_time()
        looked_at(tmp_path / "c")
        assert time.process_time() - before < 20
        file.write_bytes(good)
    assert not {name for name in set(sys.modules) - known if not name.startswith(("torch", "modlab", "numpy"))}


# ---- written by several ranks ----------------------------------------------------------------------------------------------


def _saved_by_ranks(rank, folder, how):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2,))
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    if how == "fsdp2":
        fully_shard(model, mesh=mesh)
    else:
        parallelize_module(model, mesh, {"0": ColwiseParallel()})
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)
    torch.save(model.state_dict(), f"{folder}-{rank}.pt")
    return {name: value.tolist() for name, value in whole.items()}


@pytest.mark.long
@pytest.mark.parametrize("how", ["fsdp2", "tensor_parallel"])
def test_what_two_ranks_wrote_is_one_checkpoint(how, tmp_path):
    whole, _ = run_ranks(_saved_by_ranks, 2, str(tmp_path / "c"), how)
    shown = modlab.state(tmp_path / "c")
    assert {row.path.removeprefix("model."): row.shape for row in shown.records} == {n: torch.tensor(v).shape for n, v in whole.items()}
    assert "in 2 files" in str(shown) and "2 parts" in shown.records[0].note
    model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))
    model.load_state_dict({name: torch.tensor(value) for name, value in whole.items()})
    assert modlab.diff(tmp_path / "c", model).changed == []
    mine = modlab.state(tmp_path / "c-0.pt")
    assert mine.records[0].shape == (5, 4) and "DTensor" in mine.records[0].note
    with pytest.raises(CheckpointError, match="DTensor"):
        mine["0.weight"]
