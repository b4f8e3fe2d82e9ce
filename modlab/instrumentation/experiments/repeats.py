"""Two passes in eval mode: the same, or where they part."""

from __future__ import annotations

from torch import Tensor

from modlab.inspection.contrast import equal_bits, quiet
from modlab.inspection.findings.subject import Site, Subject
from modlab.instrumentation.experiments import gaps
from modlab.instrumentation.experiments.outcomes import record
from modlab.instrumentation.experiments.trials import Bench
from modlab.records.finding import ExperimentRecord


def repeat(bench: Bench) -> ExperimentRecord:
    """Two passes in eval mode give the same bits, and move no buffer."""
    bench.subject.model.eval()
    before = _buffers(bench.subject)
    one = bench.outputs()
    moved = [path for path, tensor in before.items() if not _alike(_buffer(bench.subject, path), tensor)]
    other = bench.outputs()
    gap = gaps.gap(one, other)
    numbers = () if gap is None else (("max_abs", gap),)
    if gap is None:
        if not moved:
            return record("repeat", "passed", "equal bit by bit")
        return record(
            "repeat", "unclear", f"equal, but {moved[0]} moves in eval mode too", "A buffer that forward changes must ask self.training.",
            "if self.training: ...", path=moved[0], numbers=numbers,
        )  # fmt: skip
    if moved:
        return record(
            "repeat", "failed", f"two passes in eval mode differ: {moved[0]} moves in eval mode too, and the output depends on it",
            "eval() sets a flag; forward has to ask for it.", "if self.training: ...", path=moved[0], places=tuple(moved), numbers=numbers,
        )  # fmt: skip
    if gap <= gaps.ROUNDING * gaps.scale(one):
        return record("repeat", "unclear", "they differ by rounding alone", "A kernel that adds up in any order.", numbers=numbers)
    site, said = _source(bench)
    return record(
        "repeat", "failed", f"two passes in eval mode differ{said}",
        "eval() reaches modules such as nn.Dropout; a function does not know of it: F.dropout(x) drops in every mode, and so does a module "
        "that is hidden in a list.", "F.dropout(x, p, training=self.training)", site, numbers=numbers,
    )  # fmt: skip


def _buffers(subject: Subject) -> dict[str, Tensor]:
    found = {}
    for site in subject.sites:
        for name, tensor in site.own("_buffers").items():
            if tensor is not None and not tensor.is_nested:
                found[f"{site.path}.{name}" if site.parent else name] = tensor.detach().clone()
    return found


def _buffer(subject: Subject, path: str) -> Tensor | None:
    owner, _, name = path.rpartition(".")
    site = next((site for site in subject.sites if site.path == owner), None)
    return None if site is None else site.own("_buffers").get(name)


def _alike(now: Tensor | None, before: Tensor) -> bool:
    with quiet():
        return now is not None and now.shape == before.shape and now.dtype == before.dtype and equal_bits(now, before)


def _source(bench: Bench) -> tuple[Site | None, str]:
    """Where two passes part: a module that gives something else for the same input, or the code between modules."""
    one, other = bench.footprints(), bench.footprints()
    for (key, took, gave), (key_2, took_2, gave_2) in zip(one, other, strict=False):
        site = bench.subject.by_module.get(key)
        if key != key_2:
            break
        if site is None:  # one that is not registered: what encloses it will tell
            continue
        if took != took_2:
            above = site.parent or site
            return above, f": {_place(above)} gives {site.path} another input each time"
        if gave != gave_2:
            return site, f": {_place(site)} gives something else for the same input"
    return None, ""


def _place(site: Site) -> str:
    return f"{site.path} ({site.type})" if site.parent else f"the forward of {site.type}"
