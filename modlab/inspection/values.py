"""One tensor → what is in it: statistics, and numbers in rows and columns. Nothing else of the model is read."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from modlab.compat import without_autograd
from modlab.records.sharding import Sharding
from modlab.records.state import Matrix, ValuesRecord
from modlab.statistics import measure_tensor
from modlab.statistics.contents import numbers_of
from modlab.statistics.memory import NoValuesError

ROWS, COLUMNS = 64, 64


def read(tensor: Tensor, path: str = "", *, rows: int = ROWS, columns: int = COLUMNS, lies: Sharding | None = None) -> ValuesRecord:
    """Statistics of `tensor`, and at most `rows` × `columns` of its numbers; `lies`: how, where the tensor itself does not tell (FSDP1)."""
    if lies is None or lies.form == "DTensor" or lies.whole or tensor.numel() >= prod(lies.shape):  # FSDP1 has all of it for a while
        stats = measure_tensor(tensor)
    else:
        tensor = tensor.detach()[: lies.local_count]  # without what pads it
        stats = replace(measure_tensor(tensor), sharding=lies)
    if not stats.measured:
        return ValuesRecord(path, stats)
    matrix, note = layout(tensor, rows, columns)
    return ValuesRecord(path, stats, matrix, note)


def layout(tensor: Tensor, rows: int = ROWS, columns: int = COLUMNS) -> tuple[Matrix | None, str]:
    """The numbers of a tensor as a matrix, or None and the reason.

    Of more than two dimensions the first slice of each leading one is shown; a vector is one row. Only what is shown
    is read.
    """
    try:
        return without_autograd(_layout, tensor, rows, columns)
    except NoValuesError as reason:
        return None, f"no grid: {reason}"
    except (RuntimeError, NotImplementedError, TypeError) as error:  # a kind of tensor that cannot be cut or converted
        return None, f"no grid: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _layout(tensor: Tensor, rows: int, columns: int) -> tuple[Matrix | None, str]:
    tensor = numbers_of(tensor)
    if tensor.is_nested or tensor.layout is not torch.strided:
        return None, "no grid: the tensor is not stored as rows and columns"
    shape = tuple(tensor.shape)
    if 0 in shape:
        return None, "no grid: the tensor has no elements"
    shown = (rows, columns)[-len(shape) :] if shape else ()
    where: tuple[int | slice, ...] = (*[0] * (len(shape) - len(shown)), *[slice(0, n) for n in shown])
    part = tensor.detach()[where] if shape else tensor.detach()
    if part.is_quantized:
        part = part.dequantize()
    if part.is_complex():
        part = part.abs()
    numbers = part.reshape(1, -1) if part.dim() < 2 else part
    listed = numbers.to(device="cpu", dtype=torch.float64).tolist()
    text = "" if part.numel() == tensor.numel() else "[" + ", ".join(_index(w, n) for w, n in zip(where, shape, strict=True)) + "]"
    return Matrix(tuple(tuple(row) for row in listed), text), ""


def _index(part: int | slice, size: int) -> str:
    return str(part) if isinstance(part, int) else f"0:{min(int(part.stop), size)}"
