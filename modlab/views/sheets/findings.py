"""The findings of a diagnosis as a sheet: what is certain, what the checks with a batch found, and, folded, what may be worth a look."""

from __future__ import annotations

import math
from collections.abc import Iterator

from modlab import format
from modlab.records.finding import DiagnosisRecord, ExperimentRecord, Finding
from modlab.records.structure import ROOT
from modlab.views.sheets.layout import Block, Cell, Column, Mark, Row, Sheet
from modlab.wording import experiments, fix_parts, mistakes

COLUMNS = (
    # The text face has the path in front already: it leaves out what is `measured`.
    Column("where", "code", 130, 1, measured=True),
    Column("verdict", "words", 64, yields=2),
    Column("what", "words", 260, 4, yields=0),
    Column("do", "code", 180, 2, yields=3),
)
MARKS: dict[str, Mark] = {
    "broken": "broken",
    "careful": "careful",
    "note": "",
    "passed": "fine",
    "failed": "broken",
    "unclear": "careful",
    "not run": "absent",
}
NAMED = 3  # findings in the headline
TOLD = 240  # characters of each
PLACES = 40  # dotted names in the details

UNRUN = "The model was not run with a batch, so gradients, the loss and what it learns were not looked at."


def of_diagnosis(record: DiagnosisRecord) -> Sheet:
    """The whole sheet."""
    rows = [_finding(one) for one in record.findings]
    if record.experiments:
        rows.append(_heading("with the batch", _tally(record.experiments), all(one.outcome == "passed" for one in record.experiments)))
        further = [one for one in record.experiments if one.outcome == "passed" and experiments.is_further(one.name)]
        rows += [_experiment(one) for one in record.experiments if one not in further]
        rows += [_too(further)] if further else []
    if record.notes:
        rows.append(_heading("notes", f"{format.plural(len(record.notes), 'thing')} worth a look, none certain to be wrong", False))
        rows += [_finding(one, depth=1) for one in record.notes]
    return Sheet(
        view="diagnose",
        sentence=sentence(record),
        columns=COLUMNS,
        rows=tuple(rows),
        title="finding",
        notes=tuple(Block("not seen", one) for one in record.remarks),
        foot=_foot(record),
        empty="Each check found what it should." if record.experiments else "The checks that need no batch found nothing wrong.",
    )


def sentence(record: DiagnosisRecord) -> tuple[str, str]:
    """The headline: what is wrong, worst first; or what was checked without finding anything."""
    failed = [one for one in record.experiments if one.outcome == "failed" and not _is_found(one, record.findings)]
    checked = _checked(record)
    unrun = "" if record.batched and not _is_unrun(record) else f" {UNRUN}"
    number = len(record.findings) + len(failed)
    if not number:
        open_ = [experiments.sentence(one) for one in record.experiments if one.outcome == "unclear"]
        open_ += map(mistakes.sentence, record.notes)
        if open_:
            looked = "; ".join(format.cut(one, TOLD) for one in open_[:NAMED])
            more = f"; and {len(open_) - NAMED} more" if len(open_) > NAMED else ""
            return "Nothing certain found", f"in {record.title}; worth a look: {looked}{more}. {_capital(checked)}.{unrun}"
        return "Nothing found at rest" if unrun else "Nothing found", f"in {record.title}: {checked}.{unrun}"
    told = [format.cut(text, TOLD) for text in _named(record.findings, failed)]
    first = f"{_counted(len(record.findings), len(failed))}: {told[0]}"
    rest = "; ".join(told[1:])
    left = number - len(told)
    more = f"; and {left} more" if left > 0 else ""
    tally = f" {_passed(record)}" if record.experiments else " The model was not run with a batch." if _is_unrun(record) else ""
    return (f"{first};", f"{rest}{more}.{tally}") if rest else (f"{first}.", tally.strip())


def _counted(findings: int, failed: int) -> str:
    """Each by the name of the attribute that holds it: a failed check is no finding."""
    if not findings:
        return f"{format.plural(failed, 'check')} failed"
    checks = f" and {format.plural(failed, 'failed check')}" if failed else ""
    return f"{format.plural(findings, 'finding')}{checks}"


def _is_found(check: ExperimentRecord, findings: tuple[Finding, ...]) -> bool:
    """Whether a check failed for what a finding tells of the same places."""
    places = {*check.facts.get("places", ())}  # type: ignore[misc]
    return bool(places) and any(one.kind == check.kind and places <= {*one.facts.get("places", ())} for one in findings)  # type: ignore[misc]


def _named(findings: tuple[Finding, ...], failed: list[ExperimentRecord]) -> list[str]:
    """What the headline names: the first of each kind, and at least one of the checks that failed."""
    kinds: dict[str, str] = {}
    for one in findings:
        kinds.setdefault(mistakes.label(one), mistakes.sentence(one))
    checks = [experiments.sentence(one) for one in sorted(failed, key=lambda one: one.name == "overfit")]  # which is no cause
    room = NAMED - min(len(checks), 1)
    found = [*kinds.values()][:room]
    return [*found, *checks[: NAMED - len(found)]]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _passed(record: DiagnosisRecord) -> str:
    tally = _tally(record.experiments)
    return f"With the batch: {tally}."


def _tally(experiments: tuple[ExperimentRecord, ...]) -> str:
    words = [(word, sum(one.outcome == word for one in experiments)) for word in ("passed", "failed", "unclear", "not run")]
    return ", ".join(f"{number} {word}" for word, number in words if number)


def _checked(record: DiagnosisRecord) -> str:
    looked = f"{record.checks} kinds of mistakes checked in {format.plural(record.modules, 'module')}, "
    looked += f"{format.plural(record.parameters, 'parameter')} and {format.plural(record.buffers, 'buffer')}"
    if _is_unrun(record):
        return f"{looked}; not run with a batch"
    return f"{looked}; with the batch {_tally(record.experiments)}" if record.experiments else looked


def _is_unrun(record: DiagnosisRecord) -> bool:
    """Whether a batch was looked for, and there was none."""
    return mistakes.NOT_RUN in record.remarks


def _foot(record: DiagnosisRecord) -> str:
    parts = [_checked(record)]
    if record.optimizers:
        parts.append(", ".join(record.optimizers[:4]) + ("…" if len(record.optimizers) > 4 else ""))
    else:
        parts.append("no optimizer given: modlab.diagnose(model, optimizer) checks that too")
    if not record.batched and not _is_unrun(record):
        parts.append("pass batch=(inputs, target) and loss= to run the model as well")
    return " · ".join(parts)


def _finding(one: Finding, depth: int = 0) -> Row:
    fix, advice = fix_parts(one)
    return Row(
        path=one.module,
        place=one.path or ROOT,
        name=mistakes.label(one),
        mark=MARKS[one.severity],
        depth=depth,
        cells=_cells(one.path, one.severity, mistakes.beside(one), fix, advice),
        details=tuple(_details("", mistakes.reason(one), fix, advice, one.places)),
    )


def _experiment(one: ExperimentRecord) -> Row:
    known, (fix, advice) = experiments.checked(one), fix_parts(one)
    details = [
        Block("checked", known.title),
        *_details(experiments.what(one), experiments.reason(one), fix, advice, one.places),
    ]
    if numbers := experiments.numbers(one):
        details.append(Block("numbers", rows=tuple((name, _rounded(value)) for name, value in numbers)))
    return Row(
        path=one.module,
        place=one.path or ROOT,
        name=known.short,
        mark=MARKS[one.outcome],
        depth=1,
        cells=_cells(one.path, one.outcome, experiments.beside(one), fix, advice),
        details=tuple(details),
    )


def _too(passed: list[ExperimentRecord]) -> Row:
    """One row for all further checks that passed."""
    names = [experiments.NAMES[one.name] for one in passed]
    details = [Block(known.title, experiments.what(one)) for known, one in zip(names, passed, strict=True)]
    cells = _cells("", "passed", ", ".join(known.short for known in names), "", "")
    return Row(path="", place=ROOT, name="more checks", mark=MARKS["passed"], depth=1, cells=cells, details=tuple(details))


def _rounded(value: float) -> str:
    """Two digits: further ones differ from machine to machine."""
    if not math.isfinite(value):
        return format.number(value)
    return format.number(int(value) if value == int(value) else float(f"{value:.2g}"))


def _heading(name: str, what: str, fine: bool) -> Row:
    opened = name != "notes"
    cells = (Cell(), Cell(), Cell(what), Cell())
    return Row(path=None, place="", name=name, mark="fine" if fine else "", opened=opened, cells=cells, details=(Block(name, f"{what}."),))


def _cells(path: str, verdict: str, what: str, fix: str, advice: str) -> tuple[Cell, ...]:
    lines = fix.splitlines() or advice.splitlines()
    line = lines[0].partition("  #")[0] if fix else lines[0] if lines else ""  # words may end with a line that its comment explains
    return Cell(path or ROOT), Cell(verdict), Cell(what), Cell(f"{line} …" if len(lines) > 1 else line)


def _details(seen: str, reason: str, fix: str, advice: str, places: tuple[str, ...]) -> Iterator[Block]:
    if seen:
        yield Block("seen", seen)
    if reason:
        yield Block("why", reason)
    if fix or advice:
        yield Block("what to do", prose=advice, code=fix)
    if places:
        left = len(places) - PLACES
        listed = ", ".join(place or ROOT for place in places[:PLACES])
        yield Block("where", f"{listed}, and {left} more" if left > 0 else listed)
