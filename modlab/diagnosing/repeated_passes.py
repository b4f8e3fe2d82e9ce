"""Two passes in eval mode: the same, or where they part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from modlab import format
from modlab.diagnosing import gaps, random_draws
from modlab.diagnosing.outcomes import record
from modlab.diagnosing.trials import Bench
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.inspection.tensor_difference import equal_bits, quietly
from modlab.records.finding import ExperimentRecord, Outcome
from modlab.running.randomness import start_elsewhere, states
from modlab.running.restoration import Change, Restoration
from modlab.statistics.memory import copied, is_gone

ATTENTION = "scaled_dot_product_attention"

DIFFER = "two passes in eval mode differ"


def repeat(bench: Bench) -> ExperimentRecord:
    """Two passes in eval mode give the same bits, and move no buffer."""
    bench.evaluate()
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
            "repeat",
            "unclear",
            f"equal, but {moved[0]} moves in eval mode too",
            "A buffer that forward changes must ask self.training.",
            "if self.training: ...",
            path=moved[0],
            numbers=numbers,
        )
    if gap <= gaps.ROUNDING * gaps.scale(one):
        return record("repeat", "unclear", "they differ by rounding alone", "A kernel that adds up in any order.", numbers=numbers)
    return _told(bench, numbers)


def _told(bench: Bench, numbers: tuple[tuple[str, float], ...]) -> ExperimentRecord:
    """What makes them differ: other random numbers, what the first pass changed, or neither."""
    restoration = Restoration()
    for root in bench.roots:
        restoration.add(root)
    put_back = states()

    def anew(*, numbers: bool = True, state: bool = True) -> None:
        """Begin from the same random numbers, or the same state, or both."""
        if state:
            restoration.renew()
        if numbers:
            put_back()
            for private in restoration.generators.values():
                private.put_back()

    try:
        first = bench.outputs()
        changes = restoration.changes()
        anew()
        if _apart(first, bench.outputs()):
            return _unknown(bench, anew, numbers)
        anew(numbers=False)
        start_elsewhere()
        for private in restoration.generators.values():
            private.start_elsewhere()
        if _apart(first, bench.outputs()):
            anew()
            return _by_chance(bench, random_draws.of(bench, [*restoration.generators.values()]), numbers)
        return _by_state(bench, changes, numbers)
    finally:
        restoration.restore()


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    gap = gaps.gap(one, other)
    return gap is not None and gap > gaps.ROUNDING * gaps.scale(one)


def _by_chance(bench: Bench, draws: list[random_draws.Draw], numbers: tuple[tuple[str, float], ...]) -> ExperimentRecord:
    """Random numbers are drawn: by whom, and with which function."""
    found = next((draw for draw in draws if draw.is_dropout), draws[0] if draws else None)
    what = f"{DIFFER}: random numbers are drawn"
    if found is None:
        return record("repeat", "failed", what, "By what is not seen.", numbers=numbers, cause="random numbers")
    site = None if found.module is None else bench.subject.by_module.get(id(found.module))
    if site is None and found.module is not None:
        kind = type(found.module).__name__
        return record(
            "repeat",
            "failed",
            f"{what} by a {kind} that is not registered",
            "eval() reaches registered modules alone: this one stays in training mode.",
            numbers=numbers,
            cause="random numbers",
            advice=f"Register the {kind}: as an attribute, or in an nn.ModuleList in place of a list.",
        )
    place = "the model" if site is None else _place(site)
    others = {id(draw.module) for draw in draws if draw.module is not None and draw.module is not found.module}
    more = f", and in {format.plural(len(others), 'more place')}" if others else ""
    if found.hook:
        return record(
            "repeat",
            "failed",
            f"{what} by the {found.hook} of {place}{more}",
            "eval() sets a flag, and a hook has to ask for it.",
            site=site,
            numbers=numbers,
            cause="random numbers",
            advice="A hook gets the module: module.training says which mode it is in.",
        )
    how = f"with {'F.' if found.is_dropout else ''}{found.function}" if found.function else f"from {found.source}"
    reason, fix = "", ""
    if found.is_dropout and site is not None and site.training:
        reason = "eval() left it in training mode."
    elif found.is_dropout:
        reason = f"eval() reaches modules such as nn.Dropout; a function does not know of it: F.{found.function}(x) drops in every mode."
        fix = f"F.{found.function}(x, p, training=self.training)"
    elif found.function == ATTENTION:
        reason = "eval() does not reach a function: dropout_p drops in every mode."
        fix = f"F.{ATTENTION}(q, k, v, dropout_p=p if self.training else 0.0)"
    meant = "" if reason else "eval() sets a flag, and what samples has to ask for it. Meant, if the model samples."
    outcome: Outcome = "unclear" if meant else "failed"
    return record("repeat", outcome, f"{what} in {place}, {how}{more}", reason or meant, fix, site, numbers=numbers, cause="random numbers")


def _by_state(bench: Bench, changes: list[Change], numbers: tuple[tuple[str, float], ...]) -> ExperimentRecord:
    """The first pass left something that the second one found."""
    paths = [(site, change) for change in changes if (site := bench.subject.by_module.get(id(change.owner))) is not None]
    if not paths:
        return record(
            "repeat",
            "failed",
            f"{DIFFER}: the first one changes something that the second one uses",
            "It lies in no buffer and no plain attribute of a module.",
            numbers=numbers,
            cause="state",
        )
    names = [f"{site.path}.{change.name}" if site.path else change.name for site, change in paths]
    site, change = paths[0]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    what = f"{DIFFER}: {names[0]}{more} {'move' if more else 'moves'} in eval mode too, and the output depends on it"
    fix = "if self.training: ..." if change.kind == "buffer" else ""
    return record(
        "repeat",
        "failed",
        what,
        "eval() sets a flag; forward has to ask for it.",
        fix,
        site,
        path=names[0],
        places=tuple(names) if more else (),
        numbers=numbers,
        cause="state",
    )


def _unknown(bench: Bench, anew: Callable[[], None], numbers: tuple[tuple[str, float], ...]) -> ExperimentRecord:
    """From the same state and the same random numbers."""
    site, said = _source(bench, anew)
    return record(
        "repeat",
        "failed",
        f"{DIFFER}{said}",
        "With the same random numbers and the same state of the model, too: a clock, a counter or a generator outside of it, or a kernel "
        "that adds up in any order.",
        site=site,
        numbers=numbers,
    )


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


def _source(bench: Bench, anew: Callable[[], None]) -> tuple[ModuleSite | None, str]:
    """Where two passes part: a module that gives something else for the same input, or the code between modules."""
    anew()
    one = bench.footprints()
    anew()
    other = bench.footprints()
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


def _place(site: ModuleSite) -> str:
    return f"{site.path} ({site.type})" if site.parent else f"the forward of {site.type}"
