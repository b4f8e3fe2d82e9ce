"""A class's report: what was answered and solved, which misconceptions that shows, and what could not be read. Text, page and CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib.resources import files
from string import Template
from typing import Literal, NamedTuple

from modlab import format
from modlab.format import plural
from modlab.frozen import frozen
from modlab.lessons.beliefs import BELIEFS, Belief

FEW = 5
"""Learners from whom on a share is drawn: below it, one learner is a great part of it."""


@frozen
class LearnerEntry:
    """What one learner did with one question or task.

    Attributes:
        learner: who.
        lesson, kind, name: of what.
        outcome: right, wrong or open.
        said: the answer in a few words; of a task the name of the usual mistake.
        belief: the number of the misconception that it shows; 0 for none.
        could: those that an answer here can show.
    """

    learner: str
    lesson: str
    kind: Literal["question", "task"]
    name: str
    outcome: Literal["right", "wrong", "open"]
    said: str = ""
    belief: int = 0
    could: frozenset[int] = frozenset()


class Count(NamedTuple):
    """Of one misconception: who gave an answer that could show it, and who showed it."""

    asked: frozenset[str]
    held: frozenset[str]


class ItemRow(NamedTuple):
    """One question or task: how many got it right, wrong or left it open, and the commonest wrong answer."""

    lesson: str
    kind: str
    name: str
    right: int
    wrong: int
    open: int
    commonest: str


@dataclass(frozen=True)
class ClassReport:
    """What a class's notebooks show.

    Attributes:
        entries: of each learner and each question and task, in the order of the lessons.
        notebooks: how many lessons were read.
        beliefs: the misconceptions by number: modlab's, and those of one's own lessons.
        reasons: files that were not read, and why.
    """

    entries: tuple[LearnerEntry, ...]
    notebooks: int
    beliefs: Mapping[int, Belief] = field(default_factory=lambda: BELIEFS)
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def learners(self) -> int:
        """How many."""
        return len({entry.learner for entry in self.entries})

    @cached_property
    def counts(self) -> dict[int, Count]:
        """Of each misconception who was asked in a way that could show it, and who showed it."""
        asked = {number: frozenset(one.learner for one in self.entries if number in one.could) for number in self.beliefs}
        held = {number: frozenset(one.learner for one in self.entries if one.belief == number) for number in self.beliefs}
        return {number: Count(asked[number], held[number]) for number in self.beliefs}

    @property
    def believed(self) -> list[tuple[int, Count]]:
        """What anybody was asked for, the most frequent misconception first."""
        asked = [(number, count) for number, count in self.counts.items() if count.asked]
        return sorted(asked, key=lambda row: (-len(row[1].held) / len(row[1].asked), -len(row[1].held), row[0]))

    @property
    def rows(self) -> list[ItemRow]:
        """A row for each question and task that anybody met."""
        found: dict[tuple[str, str, str], list[LearnerEntry]] = {}
        for entry in self.entries:
            found.setdefault((entry.lesson, entry.kind, entry.name), []).append(entry)
        return [_row(*key, entries) for key, entries in found.items()]

    @property
    def headline(self) -> str:
        """One sentence: the most frequent misconception."""
        learners = plural(self.learners, "learner")
        if not self.believed:
            return f"{learners}: no answer has been given that could show one of the {len(self.beliefs)} misconceptions."
        number, count = self.believed[0]
        if not count.held:
            return f"{learners}: of the {plural(len(self.believed), 'misconception')} that an answer could show, none was seen."
        return f"{len(count.held)} of {len(count.asked)} believe: {self.beliefs[number].says}"

    @property
    def unasked(self) -> list[str]:
        """The misconceptions that no answer could show yet."""
        return [self.beliefs[number].says for number, count in self.counts.items() if not count.asked] if self.believed else []

    def text(self, *, names: bool = False) -> str:
        """Tables for the terminal; who said what only when asked for."""
        lines = [self.headline, f"{plural(self.learners, 'learner')}, {plural(self.notebooks, 'notebook')}", *self._questions(), ""]
        for number, count in self.believed:
            belief = self.beliefs[number]
            lines.append(f"{len(count.held):>3} of {len(count.asked):<3} {belief.says}")
            if count.held:
                lines.append(f"           In fact: {belief.truth}  ({belief.lesson}: {belief.view})")
            if names and count.held:
                lines.append(f"           {', '.join(sorted(count.held))}")
        if self.unasked:
            lines += ["", f"So far no answer could have shown {len(self.unasked)} more of the {len(self.beliefs)} misconceptions."]
        lines += [f"Not read: {name}: {reason}" for name, reason in self.reasons.items()]
        return "\n".join(lines)

    def _questions(self) -> list[str]:
        lines, lesson = list[str](), ""
        wide = max((len(row.name) for row in self.rows), default=0) + len("  task ")
        for row in self.rows:
            if row.lesson != lesson:
                lesson = row.lesson
                lines += ["", f"{lesson:<{wide}}  right  wrong   open  commonest wrong answer"]
            name = f"  {'task ' if row.kind == 'task' else ''}{row.name}"
            lines.append(f"{name:<{wide}}  {row.right:>5}  {row.wrong:>5}  {row.open:>5}  {format.cut(row.commonest, 60)}".rstrip())
        return lines

    def html(self, *, names: bool = False) -> str:
        """One page, which can be printed."""
        rest = ""
        if self.unasked:
            listed = "".join(f"<li>{escape(says)}</li>" for says in self.unasked)
            more = f"{plural(len(self.unasked), 'misconception')} that no answer could show yet"
            rest += f"<details><summary>{more}</summary><ul>{listed}</ul></details>"
        if self.reasons:
            rest += f"<p>{plural(len(self.reasons), 'file')} could not be read{', or is no lesson' if names else ''}.</p>"
            rest += "".join(f"<p>{escape(name)}: {escape(reason)}</p>" for name, reason in self.reasons.items()) if names else ""
        page = Template(files("modlab.lessons").joinpath("report.html").read_text(encoding="utf-8"))
        counted = {"learners": plural(self.learners, "learner"), "notebooks": plural(self.notebooks, "notebook")}
        beliefs = "\n".join(self._believed(number, count, names) for number, count in self.believed)
        questions = "\n".join(map(_question, self.rows))
        return page.substitute(headline=escape(self.headline), beliefs=beliefs, questions=questions, rest=rest, **counted)

    def _believed(self, number: int, count: Count, names: bool) -> str:
        belief, held, asked = self.beliefs[number], len(count.held), len(count.asked)
        who = f'<div class="who">{escape(", ".join(sorted(count.held)))}</div>' if names and held else ""
        share = f'<span class="bar" role="img" aria-label="{held} of {asked}"><i style="width:{100 * held / asked:.0f}%"></i></span>'
        return (
            f"<tr><td><b>{escape(belief.says)}</b><div>{escape(belief.truth)}</div>{who}</td>"
            f'<td class="n">{held} of {asked}{share if asked >= FEW else ""}</td>'
            f"<td>{escape(belief.lesson)}<div><code>{escape(belief.view)}</code></div></td></tr>"
        )

    def csv(self, *, names: bool = False) -> str:
        """A line for each learner and question or task; without names learners are numbered."""
        out = io.StringIO()
        table = csv.writer(out, lineterminator="\n")
        table.writerow(("learner", "lesson", "kind", "name", "outcome", "answer", "misconception"))
        number = {learner: str(i) for i, learner in enumerate(sorted({entry.learner for entry in self.entries}), 1)}
        for one in self.entries:
            who = one.learner if names else number[one.learner]
            belief = self.beliefs[one.belief].says if one.belief in self.beliefs else ""
            table.writerow([*map(_cell, (who, one.lesson, one.kind, one.name, one.outcome, one.said, belief))])
        return out.getvalue()


def _row(lesson: str, kind: str, name: str, entries: list[LearnerEntry]) -> ItemRow:
    outcomes = Counter(entry.outcome for entry in entries)
    wrong = Counter(entry.said for entry in entries if entry.outcome == "wrong" and entry.said)
    commonest = f"{wrong.most_common(1)[0][0]} ({wrong.most_common(1)[0][1]})" if wrong else ""
    return ItemRow(lesson, kind, name, outcomes["right"], outcomes["wrong"], outcomes["open"], commonest)


def _question(row: ItemRow) -> str:
    numbers = "".join(f'<td class="n">{number or ""}</td>' for number in (row.right, row.wrong, row.open))
    name = f"task {row.name}" if row.kind == "task" else row.name
    return f"<tr><td>{escape(row.lesson)}</td><td>{escape(name)}</td>{numbers}<td>{escape(row.commonest)}</td></tr>"


def _cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
