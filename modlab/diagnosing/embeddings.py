"""Embeddings and what they get: a token that never learns since it counts as padding, and tokens that are all the same."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.diagnosing import batches
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.subject import ModuleSite
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.running import lengths
from modlab.running.listener import Listener

INSIDE = 0.05
"""Fraction of the samples in which ``padding_idx`` has to lie between other tokens to be a token itself."""
NEARLY, SURELY = 0.95, 0.98
"""Fractions of the tokens that may be the same one: above the first is worth a look, above the second is wrong."""
FEW, ENOUGH = 5, 48
"""With fewer rows an embedding is of flags, of which most may be the same; with fewer tokens chance may do it."""


def embeddings(bench: Bench) -> ExperimentRecord:
    """The padding of each embedding is no token, and its tokens differ."""
    given = _given(bench)
    if not given:
        raise NotRunError("no embedding")
    beside = [*batches.tensors(bench.inputs)]
    for site, ids in given:
        found = _padded(site, ids, beside) or _unknown(site, [two for one, two in given if one is site], beside)
        if found is not None:
            return found
    return record("embeddings", "passed", "tokens differ", layers=len({id(site) for site, _ in given}))


def _given(bench: Bench) -> list[tuple[ModuleSite, Tensor]]:
    """The embeddings that a pass calls, with the tokens that they get."""
    found: list[tuple[ModuleSite, Tensor]] = []

    def note(module: Module, args: Any, kwargs: Any, output: Any) -> None:
        site = bench.subject.by_module.get(id(module))
        ids = next(batches.tensors((args, kwargs)), None)
        if site is not None and issubclass(type(module), nn.Embedding) and ids is not None and not ids.is_floating_point():
            found.append((site, ids.detach().clone()))

    Listener(leave=note).during(bench.steadily)
    return _joined(found)


def _joined(found: list[tuple[ModuleSite, Tensor]]) -> list[tuple[ModuleSite, Tensor]]:
    """What an embedding gets token by token, as a decoder that begins with the same one for all does, side by side."""
    by_site: dict[int, list[tuple[ModuleSite, Tensor]]] = {}
    for site, ids in found:
        by_site.setdefault(id(site), []).append((site, ids))
    joined = []
    for calls in by_site.values():
        rows = [ids for _, ids in calls]
        turns = len(rows) > 2 and all(one.shape == (len(rows[0]), 1) for one in rows)
        joined += [(calls[0][0], torch.cat(rows, 1))] if turns else calls
    return joined


def _padded(site: ModuleSite, ids: Tensor, beside: list[Tensor]) -> ExperimentRecord | None:
    """``padding_idx`` stands where a token does: between others, or alone for a sample."""
    padding = cast(nn.Embedding, site.module).padding_idx
    if padding is None or ids.dim() not in (1, 2) or not bool((ids == padding).any()):
        return None
    rows = ids if ids.dim() == 2 else ids[:, None]
    read = lengths.read(rows, padding, beside) if ids.dim() == 2 else None
    samples, of, count = inside(rows, padding, read), len(rows), int((ids == padding).sum())
    if ids.dim() == 2:
        turned = inside(rows.T, padding, None if read is None else read.T)  # time may come first
        samples, of = min((samples, of), (turned, len(rows.T)), key=lambda one: one[0] / one[1])
        if samples < max(2, INSIDE * of):
            return None
    kind, single = "padding idx of a token", int(ids.dim() == 1)
    facts: dict[str, Any] = {"padding": int(padding), "samples": samples, "of": of, "times": count, "single": single}
    return record("embeddings", "unclear" if single else "failed", kind, Remedy(kind), site=site, **facts)


def inside(rows: Tensor, token: int, read: Tensor | None = None) -> int:
    """In how many rows a token lies between others that differ from it, of what is read."""
    other = rows != token if read is None else (rows != token) & read
    return int(((rows == token) & lengths.between(other, 1)).any(1).sum())


def _unknown(site: ModuleSite, calls: list[Tensor], beside: list[Tensor]) -> ExperimentRecord | None:
    """Nearly all tokens of all calls that are read, but for the padding at the ends, are one and the same."""
    padding = cast(nn.Embedding, site.module).padding_idx
    token = -1 if padding is None else padding
    real = torch.cat([ids[~ends(ids) & lengths.read(ids, token, beside)] if ids.dim() == 2 else ids.flatten() for ids in calls])
    if len(real) < ENOUGH or cast(nn.Embedding, site.module).num_embeddings < FEW or all(map(_is_position, calls)):
        return None
    tokens, counts = torch.unique(real, return_counts=True)
    share = float(counts.max()) / len(real)
    if share < NEARLY:
        return None
    kind = "tokens unknown"
    facts: dict[str, Any] = {
        "token": int(tokens[int(counts.argmax())]),
        "share": share,
        "rows": cast(nn.Embedding, site.module).num_embeddings,
    }
    return record("embeddings", "failed" if share >= SURELY else "unclear", kind, Remedy(kind), site=site, **facts)


def _is_position(ids: Tensor) -> bool:
    """Whether it is no sequence of tokens, but one number a sample (a time, a kind) or the same row for all."""
    return ids.dim() != 2 or (len(ids) > 1 and bool((ids == ids[:1]).all()) and len(torch.unique(ids)) > 1)


def ends(rows: Tensor) -> Tensor:
    """Where a run of one and the same token ends a row, or begins it, and other rows have another number of it."""
    found = torch.zeros_like(rows, dtype=torch.bool)
    for flipped in (False, True):
        turned = rows.flip(1) if flipped else rows
        run = (turned == turned[:, -1:]).flip(1).cumprod(1).flip(1).bool()
        token = int(turned[:, -1].mode().values)
        at_end = run & (turned[:, -1:] == token)
        lengths = at_end.sum(1)
        if len(rows) > 1 and len(torch.unique(lengths)) > 1 and not inside(turned, token) and not bool(found.any()):
            found = at_end.flip(1) if flipped else at_end
    return found
