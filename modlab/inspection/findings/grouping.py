"""Sixty parameters with the same flaw are one finding: the topmost module of which it holds throughout, or one name in many modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from modlab.frozen import frozen
from modlab.inspection.findings.subject import Held, ModuleSite
from modlab.records.finding import Fact, Finding, Remedy, Severity

ALIKE = 2  # modules of one class that are one finding
SPELLED_OUT = 40  # of them in code
LISTED = 200  # dotted names kept of one finding


class PlacedFinding(Protocol):
    """Anything that is at a site."""

    @property
    def site(self) -> ModuleSite:
        """Where it is."""

    @property
    def path(self) -> str:
        """The dotted name."""


@frozen
class Whole:
    """A module itself as a member of a group."""

    site: ModuleSite

    @property
    def path(self) -> str:
        """The dotted name."""
        return self.site.path


@frozen
class FindingGroup:
    """Members that share a flaw.

    Attributes:
        site: the module that they are in.
        path: what the finding is about.
        facts: what of it a sentence names, and how many there are.
        whole: whether it holds of all there is below `site`.
        code: what one writes to get at it, given ``model``; nothing where there is no such expression.
        tops: the dotted names of several modules of one class, of each of which it holds throughout.
    """

    site: ModuleSite
    path: str
    facts: Mapping[str, Fact]
    members: tuple[PlacedFinding, ...]
    whole: bool
    code: str = ""
    tops: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The dotted names of the members, if there are several."""
        return tuple(member.path for member in self.members[:LISTED]) if len(self.members) > 1 else ()

    def each(self, call: str) -> str:
        """A loop that makes a call with each of several modules; nothing where it is about no such modules."""
        return f"for name in {self.tops!r}:\n    model.get_submodule(name).{call}" if 0 < len(self.tops) <= SPELLED_OUT else ""

    def finding(self, kind: str, severity: Severity, *fixes: Remedy, **facts: Fact) -> Finding:
        """Something about all members."""
        where: dict[str, Fact] = {"places": self.places} if self.places else {}
        return self.site.finding(kind, severity, *fixes, path=self.path, **self.facts, **facts, **where)


def cover(flagged: Sequence[PlacedFinding], among: Iterable[PlacedFinding], word: str) -> list[FindingGroup]:
    """Few groups for many members.

    Args:
        flagged: those with the flaw.
        among: all that could have it.
        word: what a member is called ("parameter").
    """
    if not flagged:
        return []
    all_below, flagged_below = _counts(among), _counts(flagged)
    tops: dict[int, tuple[ModuleSite, list[PlacedFinding]]] = {}
    scattered: dict[str, list[PlacedFinding]] = {}
    for member in flagged:
        top = None
        for site in member.site.above:
            if flagged_below[id(site)] < all_below[id(site)]:
                break
            top = site
        if top is None:
            scattered.setdefault(getattr(member, "name", ""), []).append(member)
        else:
            tops.setdefault(id(top), (top, []))[1].append(member)
    return [*_of_modules(tops.values(), word), *(_of_name(name, members, word) for name, members in scattered.items())]


def _of_modules(tops: Iterable[tuple[ModuleSite, list[PlacedFinding]]], word: str) -> Iterator[FindingGroup]:
    """One for each module, or for all those of one class that are called the same but for a number."""
    alike: dict[tuple[str, int], list[tuple[ModuleSite, list[PlacedFinding]]]] = {}
    for site, members in tops:
        alike.setdefault((site.type, len(members)), []).append((site, members))
    for same in alike.values():
        if len(same) < ALIKE:
            yield from (_of_module(site, members, word) for site, members in same)
            continue
        lower = [(_common(members), members) for _, members in same]
        yield _of_class(lower if len({site.type for site, _ in lower}) == 1 else same, word)


def _of_class(same: list[tuple[ModuleSite, list[PlacedFinding]]], word: str) -> FindingGroup:
    """Several modules of one class, all of which it holds of."""
    members = tuple(member for _, inside in same for member in inside)
    patterns = tuple(dict.fromkeys(pattern(site.path) for site, _ in same))
    facts: dict[str, Fact] = {"classes": len(same), "class": same[0][0].type, "patterns": patterns}
    site = _common([Whole(site) for site, _ in same])
    return FindingGroup(
        site, site.path, {**_counted(members, word), **facts}, members, False, tops=tuple(site.registered for site, _ in same)
    )


def pattern(path: str) -> str:
    """``blocks.*.ln1`` of ``blocks.3.ln1``; a number at its end stays."""
    *above, name = path.split(".")
    return ".".join([*("*" if part.isdecimal() else part for part in above), name])


def _counts(members: Iterable[PlacedFinding]) -> Counter[int]:
    counts: Counter[int] = Counter()
    for member in members:
        counts.update(id(site) for site in member.site.above)
    return counts


def _of_module(site: ModuleSite, members: list[PlacedFinding], word: str) -> FindingGroup:
    if len(members) == 1:
        return _single(members[0])
    facts: dict[str, Fact] = {"whole": True, **_counted(members, word), **({"type": site.type} if site.is_numbered else {})}
    return FindingGroup(site, site.path, facts, tuple(members), True, site.code)


def _of_name(name: str, members: list[PlacedFinding], word: str) -> FindingGroup:
    if len(members) == 1:
        return _single(members[0])
    site = _common(members)
    return FindingGroup(site, site.path, {**_counted(members, word), "named": name}, tuple(members), False)


def _counted(members: Sequence[PlacedFinding], word: str) -> dict[str, Fact]:
    return {"count": len(members), "noun": word}


def _single(member: PlacedFinding) -> FindingGroup:
    code = member.code if isinstance(member, Held) else member.site.code
    whole = isinstance(member, Whole)
    facts = {"type": member.site.type} if whole and member.site.is_numbered else {}
    return FindingGroup(member.site, member.path, facts, (member,), whole, code)


def _common(members: Sequence[PlacedFinding]) -> ModuleSite:
    """The lowest module that all members are in."""
    shared = [*members[0].site.above]
    for member in members[1:]:
        here = {id(site) for site in member.site.above}
        shared = [site for site in shared if id(site) in here]
    return shared[0]
