"""Sixty parameters with the same flaw are one finding: the topmost module of which it holds throughout, or one name in many modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from modlab import format
from modlab.inspection.findings.subject import Held, ModuleSite

ALIKE = 2  # modules of one class that are one finding
SPELLED_OUT = 40  # of them in code
NAMED = 3  # of their names
LISTED = 200  # dotted names kept of one finding


class PlacedFinding(Protocol):
    """Anything that is at a site."""

    @property
    def site(self) -> ModuleSite:
        """Where it is."""

    @property
    def path(self) -> str:
        """The dotted name."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A module itself as a member of a group."""

    site: ModuleSite

    @property
    def path(self) -> str:
        """The dotted name."""
        return self.site.path


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Members that share a flaw.

    Attributes:
        site: the module that they are in.
        path: what the finding is about.
        words: the same in words, with numbers.
        whole: whether it holds of all there is below `site`.
        code: what one writes to get at it, given ``model``; nothing where there is no such expression.
        tops: the dotted names of several modules of one class, of each of which it holds throughout.
        extent: what stands in brackets behind the path, where `words` is the path with that ("2 Linear").
    """

    site: ModuleSite
    path: str
    words: str
    members: tuple[PlacedFinding, ...]
    whole: bool
    code: str = ""
    tops: tuple[str, ...] = ()
    extent: str = ""

    @property
    def many(self) -> bool:
        """Whether a verb after `words` is in the plural."""
        return len(self.members) > 1 and not (self.whole and self.path)

    @property
    def places(self) -> tuple[str, ...]:
        """The dotted names of the members, if there are several."""
        return tuple(member.path for member in self.members[:LISTED]) if len(self.members) > 1 else ()

    def each(self, call: str) -> str:
        """A loop that makes a call with each of several modules; nothing where it is about no such modules."""
        return f"for name in {self.tops!r}:\n    model.get_submodule(name).{call}" if 0 < len(self.tops) <= SPELLED_OUT else ""

    def beside(self, what: str) -> str:
        """What is said of it beside its path, which need not be said again."""
        return f"{what} ({self.extent})" if self.extent else what if self.words == self.path else f"{self.words} {what}"

    def verb(self, one: str, many: str) -> str:
        """`one` or `many`, as it fits the number."""
        return many if self.many else one


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
    patterns = list(dict.fromkeys(pattern(site.path) for site, _ in same))
    named = ", ".join(patterns[:NAMED]) + (", ..." if len(patterns) > NAMED else "")
    kind = same[0][0].type
    what = f"{len(same):,} {kind}" if word == "parameter" or word[:1].isupper() else f"{_number(len(members), word)} of {kind}"
    site = _common([Whole(site) for site, _ in same])
    return FindingGroup(site, site.path, f"{what} ({named})", members, False, tops=tuple(site.registered for site, _ in same))


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
    number = _number(len(members), word)
    kind = f"{site.type}, " if site.name.isdecimal() else ""
    words = f"{site.path} ({kind}{number})" if site.parent else f"all {number}"
    return FindingGroup(site, site.path, words, tuple(members), True, site.code, extent=f"{kind}{number}" if site.parent else "")


def _of_name(name: str, members: list[PlacedFinding], word: str) -> FindingGroup:
    if len(members) == 1:
        return _single(members[0])
    site = _common(members)
    within = f" in {site.path}" if site.parent else ""
    what = f" named {name}" if name else ""
    return FindingGroup(site, site.path, f"{_number(len(members), word)}{what}{within}", tuple(members), False)


def _number(count: int, word: str) -> str:
    """``2 parameters``, ``2 BatchNorm2d``."""
    return f"{count:,} {word}" if word[:1].isupper() else format.plural(count, word)


def _single(member: PlacedFinding) -> FindingGroup:
    code = member.code if isinstance(member, Held) else member.site.code
    name = member.site.label if isinstance(member, Whole) else member.path
    extent = member.site.extent if isinstance(member, Whole) else ""
    return FindingGroup(member.site, member.path, name or "the model", (member,), isinstance(member, Whole), code, extent=extent)


def _common(members: Sequence[PlacedFinding]) -> ModuleSite:
    """The lowest module that all members are in."""
    shared = [*members[0].site.above]
    for member in members[1:]:
        here = {id(site) for site in member.site.above}
        shared = [site for site in shared if id(site) in here]
    return shared[0]
