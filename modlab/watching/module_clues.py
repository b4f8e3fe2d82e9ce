"""Module clues: what single modules show of themselves in a pass: dropout, norms, embeddings, attention, recurrence and linear layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from modlab.running import lengths
from modlab.running.autograd_nodes import name_of, saved
from modlab.watching.pools import is_readable, kinds
from modlab.watching.readback import is_far

TOKENS = 1000
"""Rows of an embedding up to which those that are looked up are counted."""

ROWS_READ = 1 << 14
"""Numbers of rows of tokens that are looked at for what fills them up: of more, the first rows."""

BOUNDED = (nn.Hardtanh, nn.Threshold)
"""Activations that pass on, as it is, what lies within bounds."""

Told = Iterator[tuple[str, dict[str, Any]]]


class CurrentPass(Protocol):
    """What is known of the pass.

    Attributes:
        reads: whether numbers of tensors are read.
        batch: the tensors that went into the model.
    """

    reads: bool
    batch: list[Tensor]

    def maker(self, tensor: Tensor) -> str:
        """The module that gave a tensor, behind those that only pass it on."""


def told(look: CurrentPass, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Told:
    """What a call of a module shows: kinds of clues, each with its facts."""
    tell = next((tell for kind, tell in _TELLERS if isinstance(module, kind)), None)
    if tell is not None:
        yield from tell(look, module, args, kwargs, output)


def is_linear(module: Module) -> bool:
    """Whether a module passes on what it takes, at most scaled and shifted."""
    slope = getattr(module, "negative_slope", None)
    return isinstance(module, (nn.Identity, nn.Flatten, _DropoutNd, _BatchNorm)) or slope == 1


def gives_back(module: Module, taken: Tensor, output: Any) -> bool:
    """Whether an activation gave exactly what it took, as one with bounds does that nothing reaches."""
    if not isinstance(module, BOUNDED) or module.inplace or not isinstance(output, Tensor) or output.shape != taken.shape:
        return False
    return is_readable(taken) and is_readable(output) and not is_far(taken) and bool((taken == output).all())


def is_norm(module: Module) -> bool:
    """Whether a module normalizes what it takes."""
    return isinstance(module, (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm))


def _dropout(_: CurrentPass, module: Any, *__: Any) -> Told:
    if module.training:
        yield "dropout", {"p": float(module.p)}


def _norm(look: CurrentPass, module: Any, args: tuple[Any, ...], *_: Any) -> Told:
    taken = args[0] if args else None
    if not module.training or not isinstance(taken, Tensor) or taken.dim() < 2:
        return
    facts: dict[str, Any] = {
        "values": taken.numel() // max(taken.shape[1], 1),
        "samples": len(taken),
        "momentum": -1.0 if module.momentum is None else module.momentum,
    }
    if module.num_batches_tracked is not None and not is_far(module.num_batches_tracked):
        facts["tracked"] = int(module.num_batches_tracked)
    if module.running_mean is not None and is_readable(taken) and not is_far(taken) and look.reads:
        with torch.no_grad():
            other = [i for i in range(taken.dim()) if i != 1]
            away = (taken.detach().float().mean(other) - module.running_mean).abs() / (module.running_var + 1e-12).sqrt()
            facts["away"] = float(away.max())
    yield "norm", facts


def _embedding(look: CurrentPass, module: Any, args: tuple[Any, ...], *_: Any) -> Told:
    ids = args[0] if args else None
    if not isinstance(ids, Tensor) or not ids.numel() or is_far(ids) or not look.reads:
        return
    if module.num_embeddings <= TOKENS:
        yield "embedding rows", {"rows": module.num_embeddings, "ids": ids}
    if ids.dim() == 2 and min(ids.shape) > 1:
        yield "filling", {"rows": module.num_embeddings, "counted": getattr(module, "mode", "") == "mean", **filling(ids)}
    if module.padding_idx is None:
        return
    facts: dict[str, Any] = {"padding": int(module.padding_idx), "share": float((ids == module.padding_idx).float().mean()), "inner": 0.0}
    if isinstance(module, nn.EmbeddingBag):  # where it lies says little: a field may be empty
        everywhere = torch.ones_like(ids, dtype=torch.bool)
        facts["in a bag"] = inner(ids, module.padding_idx, everywhere) if ids.dim() == 2 else 0.0
    elif ids.dim() == 2:
        read = lengths.read(ids, module.padding_idx, (one for one in look.batch if not is_far(one)))
        facts |= {"tokens": ids, "inner": inner(ids, module.padding_idx, read)}
    elif ids.dim() == 1:
        facts["inner"] = float(facts["share"] > 0)  # single ones: no sequence is filled up
    yield "embedding", facts


def filling(ids: Tensor) -> dict[str, Any]:
    """What fills up the ends of rows, or their beginnings, whichever is more.

    Args:
        ids: in rows.

    Returns:
        ``filler``, and the ``share`` of all places that it fills there; of the other places, of which there are ``others``, the share
        ``rest`` that is one token, ``most``, and ``between`` that is the filler itself, as of a word that is frequent; ``length`` of the
        rows; whether all rows are the ``same``, as those of places, and whether as much of each is filled up, which is ``even``.
    """
    some = ids[: max(2, ROWS_READ // ids.shape[1])].detach()
    found = some.new_zeros(some.shape, dtype=torch.bool)
    filler = -1
    for turned, back in ((some, False), (some.flip(1), True)):
        token = turned[:, -1].mode().values
        run = (turned == token).flip(1).cumprod(1).bool()
        run = run if back else run.flip(1)
        if filler < 0 or run.sum() > found.sum():
            found, filler = run, int(token)
    others = some[~found]
    most = others.mode().values if others.numel() else some.new_tensor(-1)
    return {
        "filler": filler,
        "share": float(found.double().mean()),
        "others": others.numel(),
        "rest": float((others == most).double().mean()) if others.numel() else 0.0,
        "most": int(most),
        "between": float((others == filler).double().mean()) if others.numel() else 0.0,
        "length": some.shape[1],
        "same": bool((some == some[:1]).all()),
        "even": bool((found.sum(1) == found[0].sum()).all()),
    }


def inner(tokens: Tensor, padding: int, read: Tensor) -> float:
    """Of the padding that a model reads, how much lies between real tokens, whichever of both axes is time."""
    padded, real = (tokens == padding) & read, (tokens != padding) & read
    if not bool(padded.any()):
        return 0.0
    return min(float((padded & lengths.between(real, dim)).float().sum() / padded.float().sum()) for dim in (0, 1))


def _own_norm(_: CurrentPass, module: Any, args: tuple[Any, ...], *__: Any) -> Told:
    """A norm of each sample by itself, and over how many numbers it goes."""
    taken = args[0] if args else None
    if isinstance(taken, Tensor) and taken.dim() > 1 and len(taken) > 1:
        groups = isinstance(module, nn.GroupNorm)
        yield "own norm", {"values": taken[0].numel() // module.num_groups if groups else math.prod(module.normalized_shape)}


def _attention(look: CurrentPass, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *_: Any) -> Told:
    mask = kwargs.get("attn_mask")
    padding = kwargs.get("key_padding_mask")
    query, key = args[0], args[1] if len(args) > 1 else args[0]
    facts: dict[str, Any] = {
        "batch_first": bool(module.batch_first),
        "shape": tuple(query.shape),
        "itself": query is key,
        "masked": mask is not None,
    }
    if isinstance(mask, Tensor) and not is_far(mask) and mask.dim() >= 2:
        closed = mask if mask.dtype == torch.bool else mask == -math.inf
        plane = closed.reshape(-1, *closed.shape[-2:])[0]
        facts["future"] = float(plane.triu(1).float().sum() / max(plane.shape[0] * (plane.shape[1] - 1) / 2, 1))
        facts["past"] = float(plane.tril(-1).float().sum() / max(plane.shape[0] * (plane.shape[1] - 1) / 2, 1))
    if kwargs.get("is_causal"):
        facts.setdefault("future", 1.0)
    if isinstance(padding, Tensor) and not is_far(padding):
        closed = padding if padding.dtype == torch.bool else padding == -math.inf
        facts["padded"] = float(closed.float().mean())
        ids = next((one for one in look.batch if one.shape == closed.shape and not one.is_floating_point()), None)
        if ids is not None:
            open_ids, shut = ids[~closed], ids[closed]
            facts["shut"] = kinds(shut).numel()
            common = open_ids.mode().values if open_ids.numel() else ids.new_tensor(-1)
            facts["common"] = float((open_ids == common).double().mean()) if open_ids.numel() else 0.0
            facts["hidden"] = float((shut == common).double().mean()) if shut.numel() else 0.0
    yield "attention", facts


def _tail(taken: Tensor, time: int) -> float:
    """How many steps at the end of a sample bring nothing but what its last one brings: in the middle sample."""
    rows = taken.detach().movedim(time, 1)
    if rows.shape[1] < 2 or not bool((rows[:, -1] == rows[:, -2]).all(-1).any()):
        return 0.0
    alike = (rows == rows[:, -1:]).all(-1)
    return float(alike.flip(1).long().cumprod(1).sum(1).median())


def _recurrent(look: CurrentPass, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *__: Any) -> Told:
    taken = args[0]
    if isinstance(taken, Tensor):
        given = args[1] if len(args) > 1 else kwargs.get("hx")
        state = given[0] if isinstance(given, tuple) else given
        time = 1 if module.batch_first else 0
        there = look.reads and taken.dim() == 3 and is_readable(taken) and not is_far(taken)
        yield (
            "recurrent",
            {
                "batch_first": bool(module.batch_first),
                "shape": tuple(taken.shape),
                "both": bool(module.bidirectional),
                "stateless": state is None,
                "filled": _is_filled(state),
                "mode": str(module.mode),
                "within": module.mode != "RNN_RELU" and not module.proj_size,
                "in": int(module.input_size),
                "out": int(module.hidden_size),
                "tail": _tail(taken, time) if there else 0.0,
            },
        )
    if module.training and module.dropout and module.num_layers > 1:  # between its layers
        yield "dropout", {"p": float(module.dropout)}


def _cell(_: CurrentPass, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *___: Any) -> Told:
    given = args[1] if len(args) > 1 else kwargs.get("hx")
    state = given[0] if isinstance(given, tuple) else given
    facts = {"stateless": not isinstance(state, Tensor), "cut": isinstance(state, Tensor) and state.grad_fn is None}
    facts["within"] = getattr(module, "nonlinearity", "tanh") == "tanh"  # of its state, between -1 and 1
    yield (
        "cell",
        {**facts, "filled": _is_filled(state), "state": state.data_ptr() if isinstance(state, Tensor) and is_readable(state) else 0},
    )


def _is_filled(state: Any) -> bool:
    """Whether a state is more than zeros."""
    return isinstance(state, Tensor) and is_readable(state) and not is_far(state) and bool(state.any())


def _linear(look: CurrentPass, module: Any, args: tuple[Any, ...], _: Any, output: Any) -> Told:
    taken = args[0] if args else None
    maker = look.maker(taken) if isinstance(taken, Tensor) else ""
    given = getattr(module, "in_features", getattr(module, "in_channels", 0))
    sizes = {}
    if isinstance(taken, Tensor) and isinstance(output, Tensor) and taken.dim() and output.dim() and len(taken) and len(output):
        sizes = {"taken": taken.numel() // len(taken), "given": output.numel() // len(output)}
    if isinstance(module, nn.Conv1d) and isinstance(taken, Tensor) and isinstance(output, Tensor):
        pad = saved(taken.grad_fn, "pad") if taken.grad_fn is not None and name_of(taken.grad_fn) == "ConstantPadNd" else None
        if isinstance(pad, (tuple, list)) and len(pad) >= 2:
            sizes["ahead"] = max(int(pad[1]), 0) if pad[1] < 2**32 else 0
    if isinstance(module, nn.Conv1d) and isinstance(taken, Tensor) and isinstance(output, Tensor) and not sizes.get("ahead"):
        as_long = taken.shape[-1] == output.shape[-1] and module.stride[0] == 1
        sizes["ahead"] = module.dilation[0] * (module.kernel_size[0] - 1) // 2 if as_long and module.padding != (0,) else 0
    yield (
        "linear",
        {
            **sizes,
            "after": maker,
            "in": int(given),
            "out": int(getattr(module, "out_features", getattr(module, "out_channels", 0))),
            "bias": module.bias is not None,
        },
    )


_TELLERS: tuple[tuple[Any, Any], ...] = (
    (_DropoutNd, _dropout),
    (_BatchNorm, _norm),
    ((nn.LayerNorm, nn.GroupNorm), _own_norm),
    ((nn.Embedding, nn.EmbeddingBag), _embedding),
    (nn.MultiheadAttention, _attention),
    (nn.RNNBase, _recurrent),
    (nn.RNNCellBase, _cell),
    ((nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), _linear),
)
