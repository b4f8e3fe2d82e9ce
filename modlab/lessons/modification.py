"""A modification, and what changes by it: one line of code with a blank in it, run for each of some values, and shown side by side."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Iterable
from html import escape
from typing import Any

from modlab import format
from modlab.errors import ModlabError
from modlab.frozen import frozen
from modlab.lessons import stills
from modlab.views.html import BEGIN, END, static_file
from modlab.views.html import text as escaped

MOST = 36
"""Variants that are run at most: each is a view in the notebook."""


class ModificationError(ModlabError, ValueError):
    """A line of code and its settings do not fit together."""


@frozen
class Variant:
    """The line with one value for each setting.

    Attributes:
        code: the line itself.
        values: of the settings, in their order.
        text, html: the faces of what the line gives.
    """

    code: str
    values: tuple[Any, ...]
    text: str
    html: str


class Modification:
    """All variants of a line; the page shows one at a time, text and print all of them."""

    def __init__(self, settings: dict[str, tuple[Any, ...]], variants: tuple[Variant, ...]) -> None:
        self.settings, self.variants = settings, variants

    def html(self) -> str:
        """Folded one below the other, the first open; a script shows one at a time, with a slider or switches for each setting."""
        parts = "\n".join(
            f"<details{' open' if i == 0 else ''}><summary><code>{escaped(one.code)}</code></summary>{one.html}</details>"
            for i, one in enumerate(self.variants)
        )
        settings = escape(json.dumps([[name, [repr(value) for value in values]] for name, values in self.settings.items()]))
        script = f"{BEGIN}<script>{static_file('settings.js').strip()}</script>{END}\n"
        return (
            f'<div class="modlab modlab-settings mathjax_ignore tex2jax_ignore" data-modlab="modify" data-settings="{settings}">\n'
            f'<style>{static_file("static.css").strip()}</style>\n<div class="modlab-static">{parts}</div>\n{script}</div>'
        )

    def _repr_html_(self) -> str:
        return self.html()

    def __repr__(self) -> str:
        return format.printable("\n\n".join(f"{one.code}\n{_indented(one.text)}" for one in self.variants))


class Raised(str):
    """What a variant raised; shown without quotes."""

    def __repr__(self) -> str:
        return f"raises {self}"


def modify(code: str, settings: dict[str, Iterable[Any]], names: dict[str, Any]) -> Modification:
    """Run a line of code for each combination of its settings' values.

    Args:
        code: with the settings' names in braces: ``modlab.tree(DynamicNet({layers}))``; several lines are run one after
            the other, and the last one is shown.
        settings: the values of each.
        names: the variables that the line may use; what it assigns stays in a copy.

    Raises:
        ModificationError: a setting is not in the line, or there are too many variants.
    """
    for name, choices in settings.items():
        if not isinstance(choices, Iterable):
            raise ModificationError(f"A setting takes several values, such as {name}=[1, 2, 3], but got {choices!r}.")
    values = {name: tuple(choices) for name, choices in settings.items()}
    missing = [name for name in values if f"{{{name}}}" not in code]
    if missing or not values:
        raise ModificationError(
            f"The line {code!r} has no blank for {missing or 'any setting'}: write it in braces, as {{{(missing or ['width'])[0]}}}."
        )
    number = len(list(itertools.product(*values.values())))
    if not 1 <= number <= MOST:
        raise ModificationError(f"These settings make {number} variants together, and 1 to {MOST} can be shown: give each fewer values.")
    variants = []
    for chosen in itertools.product(*values.values()):
        line = code
        for name, value in zip(values, chosen, strict=True):
            line = line.replace(f"{{{name}}}", repr(value))
        result = _value(line, dict(names))
        variants.append(Variant(line, chosen, repr(result), _html(result)))
    return Modification(values, tuple(variants))


def _value(code: str, names: dict[str, Any]) -> Any:
    """Run all lines, and give the value of the last."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        raise ModificationError(f"With its blanks filled the line is {code!r}, which is not valid Python: {error.msg}.") from error
    last = tree.body.pop()
    if not isinstance(last, ast.Expr):
        raise ModificationError(f"The last line of {code!r} is shown, so it must be an expression.")
    try:
        exec(compile(tree, "<modify>", "exec"), names)
        return eval(compile(ast.Expression(last.value), "<modify>", "eval"), names)
    except Exception as error:  # noqa: BLE001 - what a variant raises is what it shows
        return Raised(f"{type(error).__name__}: {error}")


def _html(result: Any) -> str:
    return stills.of(result) or f"<pre>{escape(repr(result))}</pre>"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())
