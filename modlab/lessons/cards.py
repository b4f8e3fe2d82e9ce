"""A card: what a lesson says to its reader, as text and as HTML. Both faces are made of the same `CardRecord`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from html import escape
from importlib.resources import files
from textwrap import fill
from typing import Literal

from modlab import format
from modlab.frozen import frozen
from modlab.views.html import text as escaped

Mark = Literal["", "fine", "broken", "open", "careful"]
SIGNS: dict[str, str] = {"fine": "✓", "broken": "✕", "open": "○", "careful": "⚠", "": ""}
WIDTH = 110
_STRESSED = re.compile(r"\*(\w[^*]*\w|\w)\*")


@frozen
class CardRecord:
    """What stands on a card.

    Attributes:
        label: what it is, one word: ``predict``.
        name: of the question or the task.
        strong: the conclusion; printed bold.
        rest: what follows it on the line.
        mark: ✓, ✕, ○ or ⚠; never without its words.
        steps: marks and lines below each other (what was checked, options).
        pairs: names and values (expected, got).
        prose: sentences.
        code: lines to read or to copy.
        foot: what one can do next.
    """

    label: str
    name: str
    strong: str
    rest: str = ""
    mark: Mark = ""
    steps: tuple[tuple[str, str], ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    prose: tuple[str, ...] = ()
    code: str = ""
    foot: str = ""


class Card:
    """Something that shows a card as the last line of a cell; what is below it is another view."""

    def __init__(self, *records: CardRecord, below: tuple[str, str] = ("", "")) -> None:
        self.cards = records
        self._below = below

    @property
    def headline(self) -> str:
        """One sentence."""
        first = self.cards[0]
        return format.printable(f"{first.strong} {first.rest}".strip())

    def html(self) -> str:
        """The cards, and below them the view that settles it."""
        return "\n".join(part for part in (of_cards(self.cards), self._below[1]) if part)

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return format.printable("\n\n".join(part for part in (*map(as_text, self.cards), self._below[0]) if part))


def as_text(card: CardRecord) -> str:
    """The text face: the conclusion first, a line each for what follows."""
    return "\n".join(_lines(card))


def _lines(card: CardRecord) -> Iterator[str]:
    sign = SIGNS[card.mark]
    yield fill(
        " ".join(part for part in (f"{card.label} ({card.name}):", sign, card.strong, card.rest) if part), WIDTH, subsequent_indent="  "
    )
    for mark, step in card.steps:
        yield fill(f"{SIGNS[mark] or '-'} {step}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    for name, value in card.pairs:
        yield from _hung(f"  {name}: ", value)
    for sentence in card.prose:
        yield fill(sentence, WIDTH, initial_indent="  ", subsequent_indent="  ")
    for line in card.code.splitlines():
        yield f"    {line}".rstrip()
    if card.foot:
        yield fill(card.foot, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _hung(name: str, value: str) -> Iterator[str]:
    for i, line in enumerate(value.splitlines() or [""]):
        yield (name if i == 0 else " " * len(name)) + line


def of_cards(cards: tuple[CardRecord, ...]) -> str:
    """The HTML face: no script, and readable where a host has taken the style."""
    return (
        f'<div class="modlab mathjax_ignore tex2jax_ignore" data-modlab="lesson">\n<style>{style()}</style>\n'
        + "\n".join(map(_card, cards))
        + "\n</div>"
    )


def _card(card: CardRecord) -> str:
    sign = f'<span class="modlab-sign">{SIGNS[card.mark]}</span> ' if card.mark else ""
    parts = [
        f'<p class="modlab-head"><small>{escape(card.label.upper())}</small> <i>{escaped(card.name)}</i></p>',
        f'<p class="modlab-said">{sign}<strong>{_words(card.strong)}</strong> {_words(card.rest)}</p>',
    ]
    if card.steps:
        parts.append(f"<ul>{''.join(_step(mark, step) for mark, step in card.steps)}</ul>")
    if card.pairs:
        rows = "".join(f"<tr><th>{escaped(name)}</th><td><pre>{_preserved(value)}</pre></td></tr>" for name, value in card.pairs)
        parts.append(f"<table><tbody>{rows}</tbody></table>")
    parts += [f"<p>{_words(sentence)}</p>" for sentence in card.prose]
    if card.code:
        parts.append(f"<pre>{_preserved(card.code)}</pre>")
    if card.foot:
        parts.append(f'<p class="modlab-foot">{_words(card.foot)}</p>')
    return (
        f'<section class="modlab-card" data-mark="{card.mark}" aria-label="{escaped(card.label)}: {escaped(card.name)}">\n'
        + "\n".join(parts)
        + "\n</section>"
    )


def _step(mark: str, step: str) -> str:
    return f'<li data-mark="{mark}"><span class="modlab-sign">{SIGNS[mark]}</span> {_words(step)}</li>'


def _words(sentence: str) -> str:
    """A sentence, in which `code` stands between backquotes and what is *stressed* between stars."""
    parts = escaped(sentence).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(_STRESSED.sub(r"<em>\1</em>", part) if i % 2 == 0 else f"<code>{part}</code>" for i, part in enumerate(parts))


def _preserved(text: str) -> str:
    return "\n".join(map(escaped, text.split("\n")))


@lru_cache(maxsize=1)
def style() -> str:
    """The look of cards and knobs."""
    return files("modlab.lessons").joinpath("card.css").read_text(encoding="utf-8").strip()
