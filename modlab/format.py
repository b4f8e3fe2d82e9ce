"""Counts, bytes, shapes and numbers → words. The one place that decides how a number is written."""

from __future__ import annotations

import math
import re
import sys
from typing import TypeVar

Record = TypeVar("Record")

_DECIMAL = ("", " k", " M", " G", " T", " P", " E")
_SHORT = {
    "float": "f",
    "bfloat": "bf",
    "complex": "c",
    "uint": "u",
    "int": "i",
    "qint": "qi",
    "quint": "qu",
}
_PLAIN = str.maketrans(
    {
        "…": "...",
        "→": "->",
        "←": "<-",
        "⇄": "<->",
        "≠": "!=",
        "≤": "<=",
        "≥": ">=",
        "×": "x",
        "✕": "x",
        "÷": "/",
        "−": "-",
        "±": "+-",
        "≈": "~",
        "·": "-",
        "•": "-",
        "‖": "|",
        "µ": "u",
        "²": "^2",
        "⁻": "^-",
        "¹": "1",
        "⁸": "8",
        "⚠": "!",
        "■": "[stop]",
        "✓": "ok",
        "○": "o",
        "◌": "o",
        "–": "-",
        "—": "-",
        "“": '"',
        "”": '"',
        "‘": "'",
        "’": "'",
        "\u00a0": " ",
        "\u202f": " ",
    }
)
"""What stands for a character that a terminal cannot show."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def count(number: int) -> str:
    """A number of elements, short: ``1,536``, ``786 k``, ``1.77 M``, ``124.4 M``."""
    return f"{number:,}" if number < 100_000 else _compact(number)


def size(number: int) -> str:
    """A number of bytes in powers of 1,000: ``172 B``, ``4.9 kB``, ``2.68 TB``."""
    if number < 1000:
        return f"{number} B"
    return _compact(number) + "B"


def _compact(number: int) -> str:
    power = min((len(str(number)) - 1) // 3, len(_DECIMAL) - 1)
    value = number / 1000**power
    if round(value, 0 if power == 1 else 1) >= 1000 and power + 1 < len(_DECIMAL):  # 999,999 is 1.00 M, not 1000 k
        value, power = value / 1000, power + 1
    digits = 2 if value < 9.995 else 1
    if value >= 100 and power == 1:
        digits = 0
    return f"{value:.{digits}f}{_DECIMAL[power]}"


def shape(sizes: tuple[int, ...] | None) -> str:
    """``768×2304``; ``scalar`` for a tensor of no dimension, nothing where there is no shape."""
    if sizes is None:
        return ""
    return "×".join("?" if n < 0 else str(n) for n in sizes) or "scalar"


def dtype(name: str) -> str:
    """``f32`` for ``float32``, ``bf16`` for ``bfloat16``, ``i64`` for ``int64``."""
    match = re.fullmatch(r"([a-z]+?)(\d+.*)", name)
    return _SHORT.get(match[1], match[1]) + match[2] if match else name


def number(value: float) -> str:
    """Four significant digits, without needless zeros; NaN and infinities as words.

    >>> number(0.0201), number(-1.5), number(3.2e-07), number(-math.inf)
    ('0.0201', '-1.5', '3.2e-07', '-Inf')
    """
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**9 else f"{value:.4g}"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:.4g}"


def rough(value: float) -> str:
    """Three significant digits: what a sample of a moving thing is good for.

    >>> rough(0.123456), rough(3.0804e-08), rough(9.9999997e-05), rough(1e-05)
    ('0.123', '3.08e-08', '0.0001', '1e-05')
    """
    if not math.isfinite(value):
        return number(value)
    short = float(f"{value:.3g}")  # first: a float32 of 0.0001 is a little less
    return number(short) if not short or 1e-4 <= abs(short) < 1e6 else f"{value:.3g}"


def share(value: float) -> str:
    """``12 %``; 0 and 100 are said only where nothing is missing to them."""
    if math.isnan(value):
        return "NaN"
    percent = 100 * value
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    if percent >= 10 or percent == 0:
        return f"{percent:.0f} %" if round(percent) < 100 or percent == 100 else f"{percent:.1f} %"
    return f"{percent:.1f} %"


def plural(number: int, word: str, many: str | None = None) -> str:
    """``1 module``, ``5 modules``."""
    return f"{number:,} {word if number == 1 else many or word + 's'}"


def article(word: str) -> str:
    """The word with "a" or "an", as it is spoken.

    >>> article("int"), article("list"), article("SGD"), article("UNet")
    ('an int', 'a list', 'an SGD', 'a UNet')
    """
    spelled = word[:2].isupper() or word == "ndarray"  # "en-d-array"
    return f"{'an' if word[:1].upper() in ('AEFHILMNORSX' if spelled else 'AEIOU') else 'a'} {word}"


def clean(text: str) -> str:
    """Text of a user's with control and direction characters written out, so that it stays on its line and in its order."""
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape", "backslashreplace").decode("ascii"), text)


def printable(text: str, stream: object = None) -> str:
    """Text that a stream can take: where its encoding lacks a character, plain ones stand in (``->``, ``x``), or its number.

    Where the encoding has them all, as UTF-8 does, the text stays as it is. Whoever prints a result calls ``str`` first, and there
    nothing is known of a stream: so each text face asks for the one that ``print`` writes to.

    Args:
        text: to be printed.
        stream: where; ``sys.stdout`` unless told.
    """
    if text.isascii():
        return text
    encoding = _encoding(sys.stdout if stream is None else stream)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate({ord(char): _instead(char, encoding) for char in set(text) if not _takes(encoding, char)})
    return text


def printed(record: type[Record]) -> type[Record]:
    """A class of records whose ``repr``, which it got from its fields, fits the terminal."""
    written = record.__repr__
    record.__repr__ = lambda self: printable(written(self))  # type: ignore[method-assign]
    return record


def _encoding(stream: object) -> str:
    """A stream's encoding; one that tells none most likely hands on to what Python began with."""
    for one in (stream, sys.__stdout__):
        try:
            name = getattr(one, "encoding", None)
            if isinstance(name, str) and "\0" not in name:
                "".encode(name)
                return name
        except Exception:  # noqa: BLE001 - a stream of the user's own, or the name of no encoding
            continue
    return "utf-8"


def _takes(encoding: str, char: str) -> bool:
    try:
        char.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def _instead(char: str, encoding: str) -> str:
    plain = char.translate(_PLAIN)
    return plain if plain != char and _takes(encoding, plain) else char.encode("unicode_escape", "backslashreplace").decode("ascii")


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, with what is missing said."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text):,} characters)"


def seconds(value: float) -> str:
    """A time in the unit that fits: ``340 µs``, ``1.2 ms``, ``2.1 s``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.0f} µs"
