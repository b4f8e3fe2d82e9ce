"""Tables that read well in a terminal and in Markdown, and the targets that modlab has set itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A promise of the project's, and what this run found."""

    what: str
    limit: float
    found: float
    unit: str = "×"

    @property
    def met(self) -> bool:
        return self.found <= self.limit


def heading(text: str) -> None:
    print(f"## {text}\n", flush=True)


def note(text: str) -> None:
    print(f"{text}\n", flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; its first column stands left, the others right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    for first, *others in (head, rule, *rows):
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        print(f"| {' | '.join(cells)} |")
    print(flush=True)


def targets(found: Sequence[Target]) -> None:
    heading("Targets")
    table(
        ("target", "limit", "found", "met"),
        [(t.what, f"{digits(t.limit)} {t.unit}", f"{digits(t.found)} {t.unit}", "yes" if t.met else "NO") for t in found],
    )


def digits(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def seconds(value: float) -> str:
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if value * scale >= 0.9995:
            return f"{digits(value * scale)} {unit}"
    return f"{digits(value * 1e9)} ns"


def size(value: float | None) -> str:
    if value is None:
        return "?"
    for scale, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= scale:
            return f"{digits(value / scale)} {unit}"
    return f"{value:.0f} B"
