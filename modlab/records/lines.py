"""A record that is a few lines of text, as a notebook shows it: its own way with plain text breaks a line in the middle of a word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from modlab import format

_STYLE = "font:12px/1.6 var(--jp-code-font-family,ui-monospace,monospace);overflow-wrap:anywhere;word-break:normal"
_JOINTS = re.compile(r"(?<=[^\W\d][./_])(?=\w)|(?<=\w[./])(?=[^\W\d])")


def block(lines: Iterable[str]) -> str:
    """Lines of HTML, which break at the ends of words."""
    return f'<div style="{_STYLE}">{"".join(f"<div>{line}</div>" for line in lines)}</div>'


def words(text: str) -> str:
    """Text as HTML; a path may break behind a dot.

    >>> words("head.0.weight <= 0.25")
    'head.<wbr>0.<wbr>weight &lt;= 0.25'
    """
    return escape(_JOINTS.sub("\0", format.clean(text))).replace("\0", "<wbr>")


def columns(sign: str, name: str, text: str, width: int) -> str:
    """Three cells of a line; where it is narrow, the last goes below the name, which is `width` characters wide."""
    told = f'<span style="flex:1 1 22em;min-width:0">{words(text)}</span>' if text else ""
    name = f'<span style="flex:0 0 {width}ch;max-width:100%">{words(name)}</span>'
    rest = f'<span style="flex:1;min-width:0;display:flex;flex-wrap:wrap;gap:0 2ch">{name} {told}</span>'
    return f'<span style="display:flex;gap:0 2ch"><span style="flex:0 0 8ch">{words(sign)}</span> {rest}</span>'
