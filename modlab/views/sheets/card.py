"""One finding as a card: what was found, the evidence, what it means and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from modlab import wording
from modlab.records.finding import Finding
from modlab.records.structure import ROOT
from modlab.records.watch import Alert, Check
from modlab.views.sheets.layout import Block, Mark, Sheet
from modlab.wording import cards, figures

PLACES = 40
"""How many dotted names are listed."""
_MARKS: dict[str, Mark] = {
    "broken": "broken",
    "failed": "broken",
    "careful": "careful",
    "unclear": "careful",
    "passed": "fine",
}


def of_finding(finding: Finding) -> Sheet:
    """The whole card."""
    verdict, said = cards.headline(finding)
    strong = f"{verdict[:1].upper()}{verdict[1:]}:"
    return Sheet("finding", (strong, f"{said}."), notes=tuple(_blocks(finding, _MARKS.get(verdict, ""))))


def _blocks(finding: Finding, mark: Mark) -> Iterator[Block]:
    yield Block("where", _places(finding), mark=mark)
    source, numbers = cards.rests_on(finding), tuple(figures.figures(finding))
    if source or numbers:
        yield Block("evidence", source, rows=numbers)
    if meaning := cards.means(finding):
        yield Block("means", meaning)
    for code, advice in wording.fixes(finding):
        if code and isinstance(finding, (Alert, Check)):  # whose advice adds to the code
            yield Block("what to do", code=code)
            yield Block(prose=advice)
        else:
            yield Block("what to do", advice, code)


def _places(finding: Finding) -> str:
    places = finding.places or (finding.path,)
    left = len(places) - PLACES
    listed = ", ".join(place or ROOT for place in places[:PLACES])
    return f"{listed}, and {left:,} more" if left > 0 else listed
