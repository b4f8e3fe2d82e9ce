"""A card: what a lesson says to its reader, as text and as HTML. Both faces are made of the same `CardRecord`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from html import escape
from importlib.resources import files
from textwrap import fill
from typing import Any, Literal

from modlab import format
from modlab.frozen import frozen
from modlab.results.live import notebook
from modlab.views.html import text as escaped

Mark = Literal["", "fine", "broken", "open", "careful"]
SIGNS: dict[str, str] = {"fine": "✓", "broken": "✕", "open": "○", "careful": "⚠", "": ""}
SPOKEN = {"fine": "right", "broken": "wrong", "open": "open", "careful": "careful"}
"""What a screen reader says for a sign."""
WIDTH = 110
MIME = "application/vnd.modlab.answer+json"
"""What a notebook keeps of an answer for its teacher, beside what is shown."""
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
        beside: pieces of code that stand side by side, each under its name.
        foot: what one can do next.
        asks: the question that it settles, where that was asked far above.
        about: names and values for the page's script: which question it asks, and what was said.
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
    beside: tuple[tuple[str, str], ...] = ()
    foot: str = ""
    about: tuple[tuple[str, str], ...] = ()
    asks: str = ""


class Card:
    """Something that shows a card as the last line of a cell.

    Args:
        records: what stands on it; several below each other.
        below: text and HTML of a view that goes with it.
        lesson: whose card it is: by this the page of a running kernel finds it.
        place: a name for its output, by which it can be renewed after a click.
    """

    def __init__(self, *records: CardRecord, below: tuple[str, str] = ("", ""), lesson: str = "", place: str = "") -> None:
        self.cards = records
        self._below = below
        self._lesson, self._place = lesson, place

    @property
    def headline(self) -> str:
        """One sentence."""
        first = self.cards[0]
        return format.printable(f"{first.strong} {first.rest}".strip())

    def html(self) -> str:
        """The cards, and below them the view that settles it."""
        return "\n".join(part for part in (of_cards(self.cards, self._lesson), self._below[1]) if part)

    def bundle(self) -> dict[str, Any]:
        """Its faces by their types, and for a teacher what was answered."""
        return {"text/plain": Card.__repr__(self), "text/html": Card.html(self), **self._kept()}

    def _kept(self) -> dict[str, Any]:
        return {}

    def renew(self) -> None:
        """In a notebook, put it in the place of the card that a cell showed there."""
        if notebook() is None:
            return
        from IPython.display import display

        display(self.bundle(), raw=True, display_id=self._place, update=True)  # type: ignore[no-untyped-call]

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.bundle(), raw=True, display_id=self._place or None)  # type: ignore[no-untyped-call]

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
    if card.asks:
        yield fill(card.asks, WIDTH, initial_indent="  ", subsequent_indent="  ")
    for mark, step in card.steps:
        yield fill(f"{SIGNS[mark] or '-'} {step}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    for name, value in card.pairs:
        yield from _hung(f"  {name}: ", value)
    for sentence in card.prose:
        yield fill(sentence, WIDTH, initial_indent="  ", subsequent_indent="  ")
    for line in card.code.splitlines():
        yield f"    {line}".rstrip()
    for name, code in card.beside:
        yield f"  {name}:"
        yield from (f"    {line}".rstrip() for line in code.splitlines())
    if card.foot:
        yield fill(card.foot, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _hung(name: str, value: str) -> Iterator[str]:
    for i, line in enumerate(value.splitlines() or [""]):
        yield (name if i == 0 else " " * len(name)) + line


def of_cards(cards: tuple[CardRecord, ...], lesson: str = "") -> str:
    """The HTML face: no script, and readable where a host has taken the style."""
    whose = f' data-lesson="{escaped(lesson)}"' if lesson else ""
    return (
        f'<div class="modlab mathjax_ignore tex2jax_ignore" data-modlab="lesson"{whose}>\n<style>{style()}</style>\n'
        + "\n".join(map(_card, cards))
        + "\n</div>"
    )


def _card(card: CardRecord) -> str:
    sign = f"{_sign(card.mark)} " if card.mark else ""
    asks = [f'<p class="modlab-asks">{_words(card.asks)}</p>'] if card.asks else []
    parts = [
        f'<p class="modlab-head"><small>{escape(card.label.upper())}</small> <i>{escaped(card.name)}</i></p>',
        *asks,
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
    if card.beside:
        parts.append(f'<div class="modlab-beside">{"".join(_block(name, code) for name, code in card.beside)}</div>')
    if card.foot:
        parts.append(f'<p class="modlab-foot">{_words(card.foot)}</p>')
    about = "".join(f' data-{name}="{escaped(value)}"' for name, value in card.about)
    return (
        f'<section class="modlab-card" data-mark="{card.mark}" data-label="{escaped(card.label)}"{about}'
        f' role="group" aria-label="{escaped(card.label)}: {escaped(card.name)}">\n' + "\n".join(parts) + "\n</section>"
    )


def _sign(mark: str) -> str:
    spoken = f' role="img" aria-label="{SPOKEN[mark]}"' if mark else ""
    return f'<span class="modlab-sign"{spoken}>{SIGNS[mark]}</span>'


def _block(name: str, code: str) -> str:
    return f"<figure><figcaption>{_words(name)}</figcaption><pre>{_preserved(code)}</pre></figure>"


def _step(mark: str, step: str) -> str:
    return f'<li data-mark="{mark}">{_sign(mark)} {_words(step)}</li>'


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
    """The look of cards and settings."""
    return files("modlab.lessons").joinpath("card.css").read_text(encoding="utf-8").strip()
