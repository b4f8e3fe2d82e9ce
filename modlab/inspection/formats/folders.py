"""A folder that holds a checkpoint: which of its files is read."""

from __future__ import annotations

import os
from pathlib import Path

from modlab import format
from modlab.errors import CheckpointError
from modlab.inspection.formats.dcp import METADATA

# the first that is there is taken: what Hugging Face's libraries look for, in their order
_USUAL = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "diffusion_pytorch_model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "diffusion_pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "consolidated.safetensors",
    "consolidated.00.pth",
)
_ENDINGS = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".gguf", ".pt2")
_BESIDE = (  # what lies beside a model's weights, and is none
    "optimizer.pt",
    "optimizer.bin",
    "scheduler.pt",
    "scheduler.bin",
    "scaler.pt",
    "scaler.bin",
    "training_args.bin",
    "random_states",
    "rng_state",
    "sampler",
    "dl_state_dict",
    "trainer_state",
    "custom_checkpoint",
)
_INSIDE = ("pytorch_model_fsdp_0", "model", "checkpoint", "weights", "state")
"""Folders in which accelerate and others write a DCP checkpoint."""
_LISTED = 10_000


def chosen(folder: Path, given: str, remarks: list[str]) -> Path:
    """The file to read; the folder itself where torch.distributed.checkpoint wrote it.

    Raises:
        CheckpointError: it holds no checkpoint, or several, and nothing says which.
    """
    names = _names(folder)
    if METADATA in names:
        return folder
    found = next((name for name in _USUAL if name in names), "")
    rest = [name for name in names if _is_checkpoint(name) and name != found]
    if not found:
        indexes = [name for name in names if name.endswith(".index.json")]
        own = [name for name in rest if not name.startswith(_BESIDE)]
        alone = len(own) == 1 and own[0].endswith((".safetensors", ".gguf"))
        found = indexes[0] if len(indexes) == 1 else own[0] if alone and not indexes else ""
    if found:
        left = [name for name in rest if name != found and not _is_shard(name)]
        more = f"; beside it: {_some(left)}" if left else ""
        remarks.append(f"reading {found} from the folder {format.clean(folder.resolve().name)}{more}")
        return folder / found
    inner = [name for name in _folders(folder) if (folder / name / METADATA).is_file()]
    if len(inner) == 1 or (inner and inner[0] == _INSIDE[0]):
        left = [*inner[1:], *rest]
        more = f"; beside it: {_some(left)}" if left else ""
        remarks.append(f"reading {inner[0]} from the folder {format.clean(folder.resolve().name)}{more}")
        return folder / inner[0]
    raise _nothing(folder, given, [*(f"{name}/" for name in inner), *(name for name in names if _is_checkpoint(name))])


def _nothing(folder: Path, given: str, found: list[str]) -> CheckpointError:
    name = repr(format.clean(folder.resolve().name or given))
    below = [name for name in _folders(folder) if name.startswith(("checkpoint-", "epoch", "step")) or name == "checkpoints"]
    found += [f"{name}/" for name in below]
    hint = f"It has: {_some(found)}" if found else "It holds no checkpoint."
    return CheckpointError(f"{name} is a folder, but modlab.state() needs a file, or a folder with a checkpoint.\n  {hint}")


def _names(folder: Path) -> list[str]:
    """Names of regular files (or links to such), sorted."""
    with os.scandir(folder) as entries:
        found = [entry.name for _, entry in zip(range(_LISTED), entries, strict=False) if entry.is_file()]
    return sorted(found)


def _folders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        found = [entry.name for _, entry in zip(range(_LISTED), entries, strict=False) if entry.is_dir()]
    return sorted(found, key=lambda name: (_INSIDE.index(name) if name in _INSIDE else len(_INSIDE), name))


def _is_checkpoint(name: str) -> bool:
    return name.endswith((*_ENDINGS, ".index.json"))


def _is_shard(name: str) -> bool:
    return "-of-" in name


def _some(names: list[str]) -> str:
    shown = ", ".join(format.cut(format.clean(name), 80) for name in names[:5])
    return f"{shown}, and {len(names) - 5:,} more" if len(names) > 5 else shown
