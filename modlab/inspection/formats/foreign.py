"""Foreign files, no checkpoints of PyTorch's: what they are, by their first bytes, and what reads them. Their bytes are not quoted."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import NamedTuple

from modlab.errors import CheckpointError
from modlab.inspection.formats.stored import ByteSource
from modlab.inspection.formats.zipped import Archive


class Foreign(NamedTuple):
    """One kind of file.

    Attributes:
        what: it is, in a sentence that begins with the file's name.
        do: what to do; ``{name}`` stands for the file's name.
    """

    what: str
    do: str = ""


_UNPACK = "Unpack it first, and look at what is inside."
_HEADS: tuple[tuple[int, bytes, Foreign], ...] = (
    (0, b"version https://git-lfs", Foreign("is a Git LFS pointer, not the checkpoint itself", "Fetch it: git lfs pull")),
    (0, b"\x89HDF\r\n\x1a\n", Foreign("is an HDF5 file, as Keras saves weights", "Read it: h5py.File({name!r})")),
    (0, b"\x93NUMPY", Foreign("is a single NumPy array", "Read it: modlab.measure(torch.from_numpy(numpy.load({name!r})))")),
    (0, b"\x1f\x8b", Foreign("is compressed with gzip", _UNPACK)),
    (0, b"BZh", Foreign("is compressed with bzip2", _UNPACK)),
    (0, b"\xfd7zXZ\x00", Foreign("is compressed with xz", _UNPACK)),
    (0, b"\x28\xb5\x2f\xfd", Foreign("is compressed with zstd", _UNPACK)),
    (0, b"7z\xbc\xaf\x27\x1c", Foreign("is a 7z archive", _UNPACK)),
    (4, b"TFL3", Foreign("is a TensorFlow Lite model", "Its own tools read it.")),
    (0, b"lmgg", Foreign("is a GGML file from before GGUF", "Convert it with llama.cpp, then look at the .gguf.")),
    (0, b"tjgg", Foreign("is a GGML file from before GGUF", "Convert it with llama.cpp, then look at the .gguf.")),
    (0, b"\x7fELF", Foreign("is a compiled program")),
    (0, b"%PDF", Foreign("is a PDF document")),
    (0, b"\x89PNG", Foreign("is a picture")),
    (257, b"ustar", Foreign("is a tar archive", _UNPACK)),
)
_TORCHSCRIPT = Foreign("is a TorchScript program, not a checkpoint", "Load it: model = torch.jit.load({name!r}), then modlab.state(model).")
_ENDINGS = {
    ".onnx": Foreign("is an ONNX model", "Read it with onnx: onnx.load({name!r}).graph.initializer lists its weights."),
    ".msgpack": Foreign("is a msgpack file, as Flax saves weights", "Read it: flax.serialization.msgpack_restore(file.read())"),
    ".pb": Foreign("is a TensorFlow graph", "Its own tools read it."),
    ".ckpt.index": Foreign("is the index of a TensorFlow checkpoint", "Read it: tf.train.list_variables(path)"),
}


def refused(source: ByteSource, what: Foreign) -> CheckpointError:
    """The error for a file that is something else."""
    do = f"\n  {what.do.format(name=source.name)}" if what.do else ""
    return CheckpointError(f"{source.name} {what.what}.{do}")


def by_head(source: ByteSource, head: bytes) -> Foreign | None:
    """What a file is, by its first bytes; None where they tell nothing."""
    if not head:
        return Foreign("is empty (0 bytes)", "Was it written to the end?")
    for place, mark, what in _HEADS:
        if head[place : place + len(mark)] == mark:
            return what
    ending = next((what for end, what in _ENDINGS.items() if source.name.lower().endswith(end)), None)
    if ending is not None:
        return ending
    if head[:1] == b"\x08" and b"\x12" in head[2:4] and (b"onnx" in head or b"pytorch" in head):
        return _ENDINGS[".onnx"]
    if _is_text(head):
        kind = " (JSON)" if head.lstrip()[:1] in (b"{", b"[") else ""
        return Foreign(f"is a text file{kind}, not a checkpoint")
    return None


def by_entries(archive: Archive) -> Foreign:
    """What a zip archive is that torch.save did not write."""
    names = [*archive.entries]
    if archive.named("constants.pkl") or any("/code/" in name for name in names):
        return _TORCHSCRIPT
    kinds: tuple[tuple[Callable[[str], bool], Foreign], ...] = (
        (lambda name: name.endswith(".npy"), Foreign("holds NumPy arrays (.npz)", "Read it: numpy.load({name!r})")),
        (lambda name: name.endswith(".weights.h5"), Foreign("is a Keras model", "Read it: keras.saving.load_model({name!r})")),
        (lambda name: name == "[Content_Types].xml", Foreign("is an office document")),
        (lambda name: name.endswith(".dist-info/METADATA"), Foreign("is a Python package (a wheel)")),
    )
    for fits, what in kinds:
        if any(map(fits, names)):
            return what
    return Foreign("is a zip archive of something else: torch.save did not write it", _UNPACK)


def is_script(archive: Archive) -> bool:
    """Whether an archive is a TorchScript program: it has a ``data.pkl`` too, and code beside it."""
    return bool(archive.named("constants.pkl"))


def _is_text(head: bytes) -> bool:
    """Whether the bytes are words: an archive begins with "PK" and control characters, a pickle with the byte 80."""
    try:
        text = getincrementaldecoder("utf-8")().decode(head[:200])  # a character may be cut in two where the head ends
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char.isspace() for char in text)
