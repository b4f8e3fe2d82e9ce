"""Two passes in eval mode: whether they are the same, or where they diverge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from modlab.diagnosing import gaps, random_draws
from modlab.diagnosing.outcomes import record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.inspection.tensor_difference import equal_bits, quietly
from modlab.records.finding import ExperimentRecord, Outcome, Remedy
from modlab.running.randomness import Meter, start_elsewhere, states
from modlab.running.restoration import Change, Restoration
from modlab.statistics.memory import copied, is_gone

ATTENTION = "scaled_dot_product_attention"


def repeat(bench: Bench) -> ExperimentRecord:
    """Two passes in eval mode give the same bits, and change no buffer."""
    bench.evaluate()
    before = _buffers(bench.subject)
    one = bench.outputs()
    moved = [path for path, tensor in before.items() if not _alike(_buffer(bench.subject, path), tensor)]
    other = bench.outputs()
    gap = gaps.gap(one, other)
    numbers: dict[str, Any] = {} if gap is None else {"max_abs": gap}
    if gap is None:
        if not moved:
            return record("repeat", "passed", "repeats")
        return record("repeat", "unclear", "buffer moves", Remedy(code="if self.training: ..."), path=moved[0])
    if gap <= gaps.ROUNDING * gaps.scale(one):
        return record("repeat", "unclear", "differs by rounding", **numbers)
    return _told(bench, numbers)


def _told(bench: Bench, numbers: dict[str, Any]) -> ExperimentRecord:
    """What makes them differ: different random numbers, state changed by the first pass, or neither."""
    restoration = Restoration()
    for root in bench.roots:
        restoration.add(root)
    put_back = states()

    def anew(*, numbers: bool = True, state: bool = True) -> None:
        """Restore the random numbers, the state, or both."""
        if state:
            restoration.renew()
        if numbers:
            put_back()
            for private in restoration.generators.values():
                private.put_back()

    try:
        meter = Meter(thorough=True, private=[*restoration.generators.values()])
        first = bench.outputs()
        drawn, changes = bool(meter.used()), restoration.changes()
        anew()
        if _apart(first, bench.outputs()):
            return _unknown(bench, anew, numbers)
        anew(numbers=False)
        start_elsewhere()
        for private in restoration.generators.values():
            private.start_elsewhere()
        if _apart(first, bench.outputs()) or (drawn and not changes):  # a few coins may fall alike
            anew()
            return _by_chance(bench, random_draws.of(bench, [*restoration.generators.values()]), numbers)
        return _by_state(bench, changes, numbers)
    finally:
        restoration.restore()


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    gap = gaps.gap(one, other)
    return gap is not None and gap > gaps.ROUNDING * gaps.scale(one)


def _by_chance(bench: Bench, draws: list[random_draws.Draw], numbers: dict[str, Any]) -> ExperimentRecord:
    """Random numbers are drawn: report which module draws them, and with which function."""
    found = next((draw for draw in draws if draw.is_dropout), draws[0] if draws else None)
    if found is None:
        return record("repeat", "failed", "drawn unseen", **numbers)
    site = None if found.module is None else bench.subject.by_module.get(id(found.module))
    facts: dict[str, Any] = {"class": "" if found.module is None else type(found.module).__name__, **numbers}
    if site is None and found.module is not None:
        return record("repeat", "failed", "drawn by an unregistered module", Remedy("register it"), **facts)
    others = {id(draw.module) for draw in draws if draw.module is not None and draw.module is not found.module}
    facts["more"] = len(others)
    if found.hook:
        return record("repeat", "failed", "drawn by a hook", Remedy("ask the module"), site=site, hook=found.hook, **facts)
    facts |= {"function": found.function, "source": found.source, "dropout": found.is_dropout, "drops": found.function == ATTENTION}
    facts["training"] = site is not None and site.training is True
    outcome: Outcome = "failed" if found.is_dropout or facts["drops"] else "unclear"
    return record("repeat", outcome, "drawn", *_asking(found, facts["training"]), site=site, **facts)


def _asking(found: random_draws.Draw, training: bool) -> list[Remedy]:
    """The call that checks the mode."""
    if found.function == ATTENTION:
        return [Remedy(code=f"F.{ATTENTION}(q, k, v, dropout_p=p if self.training else 0.0)")]
    return [Remedy(code=f"F.{found.function}(x, p, training=self.training)")] if found.is_dropout and not training else []


def _by_state(bench: Bench, changes: list[Change], numbers: dict[str, Any]) -> ExperimentRecord:
    """The first pass changed state that the second one read."""
    paths = [(site, change) for change in changes if (site := bench.subject.by_module.get(id(change.owner))) is not None]
    if not paths:
        return record("repeat", "unclear", "state of elsewhere", **numbers)  # a generator that the code hides may be meant
    names = tuple(f"{site.path}.{change.name}" if site.path else change.name for site, change in paths)
    site, change = paths[0]
    fixes = [Remedy(code="if self.training: ...")] if change.kind == "buffer" else []
    more: dict[str, Any] = {"places": names} if len(names) > 1 else {}
    return record("repeat", "failed", "state moves", *fixes, site=site, path=names[0], more=len(names) - 1, **more, **numbers)


def _unknown(bench: Bench, anew: Callable[[], None], numbers: dict[str, Any]) -> ExperimentRecord:
    """The passes differ although they start from the same state and random numbers."""
    site, facts = _source(bench, anew)
    return record("repeat", "failed", "passes differ", site=site, **{"class": site.type if site is not None else ""}, **facts, **numbers)


def _buffers(subject: Subject) -> dict[str, Tensor]:
    found = {}
    for site in subject.sites:
        for name, tensor in site.own("_buffers").items():
            if tensor is not None and not tensor.is_nested and not is_gone(tensor):
                found[f"{site.path}.{name}" if site.parent else name] = copied(tensor)
    return found


def _buffer(subject: Subject, path: str) -> Tensor | None:
    owner, _, name = path.rpartition(".")
    site = next((site for site in subject.sites if site.path == owner), None)
    return None if site is None else site.own("_buffers").get(name)


def _alike(now: Tensor | None, before: Tensor) -> bool:
    return now is not None and now.shape == before.shape and now.dtype == before.dtype and quietly(equal_bits, now, before)


def _source(bench: Bench, anew: Callable[[], None]) -> tuple[ModuleSite | None, dict[str, str]]:
    """Where two passes diverge: a module with equal inputs and different outputs, or the code between modules and what it calls."""
    anew()
    one = bench.footprints()
    anew()
    other = bench.footprints()
    for (key, took, gave), (key_2, took_2, gave_2) in zip(one, other, strict=False):
        site = bench.subject.by_module.get(key)
        if key != key_2:
            break
        if site is None:  # an unregistered module: whatever encloses it will show the difference
            continue
        if took != took_2:
            return site.parent or site, {"input": site.path}
        if gave != gave_2:
            return site, {}
    return None, {}
