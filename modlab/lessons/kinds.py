"""The kinds of questions: how an answer is given, read, compared and written."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class UnreadableError(Exception):
    """An answer that is none of this kind; its text says what is wanted."""


class QuestionKind(Protocol):
    """What a question asks for."""

    @property
    def form(self) -> str:
        """How to answer, after "replace `...` with": ``a number, such as 3 or 0.5``."""

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """Letters and texts to choose from; none where the answer is free."""

    def read(self, given: Any) -> Any:
        """The answer in the form in which it is compared.

        Raises:
            UnreadableError: it is none.
        """

    def same(self, said: Any, other: Any) -> bool:
        """Whether two answers, once read, are one."""

    def right(self, said: Any, answer: Any) -> bool:
        """Whether an answer, once read, is the right one, or as good."""

    def write(self, answer: Any) -> str:
        """An answer as a learner would say it; of options the letters."""

    def lines(self, said: Any, answer: Any) -> tuple[tuple[str, str], ...]:
        """The options again, marked: "fine" what is right, "broken" what was said and is not; `said` may be None."""


class _Free:
    """An answer without options."""

    options: tuple[tuple[str, str], ...] = ()

    def lines(self, said: Any, answer: Any) -> tuple[tuple[str, str], ...]:
        """None: the answer says all."""
        return ()


class Number(_Free):
    """A number; one that differs in the third digit counts as different, unless `tolerance` (relative) says otherwise."""

    form = "a number, such as 3 or 0.5"

    def __init__(self, tolerance: float = 1e-3) -> None:
        self._tolerance = tolerance

    def read(self, given: Any) -> float:
        """A number, or its digits as text."""
        if isinstance(given, str):
            thousands = re.fullmatch(r"\s*-?\d{1,3}(,\d{3})+(\.\d+)?\s*", given)
            given = _literal(given.replace(",", "" if thousands else "."))
        if isinstance(given, bool) or not hasattr(given, "__float__"):
            raise UnreadableError(self.form)
        try:
            number = float(given)
        except (TypeError, ValueError, RuntimeError) as error:  # a tensor of several elements
            raise UnreadableError("one number, such as 3 or 0.5") from error
        if not math.isfinite(number):
            raise UnreadableError(self.form)
        return int(number) if number.is_integer() else number

    def same(self, said: float, other: float) -> bool:
        """Equal up to the tolerance."""
        return math.isclose(said, other, rel_tol=self._tolerance if isinstance(other, float) else 1e-9, abs_tol=1e-9)

    right = same

    def write(self, answer: float) -> str:
        """``10,540``."""
        return f"{answer:,}" if isinstance(answer, int) else f"{answer:g}"


class YesNo(_Free):
    """Yes or no."""

    form = "yes or no"
    words = ("yes", "no", "y", "n", "true", "false")

    def read(self, given: Any) -> bool:
        """True, False, or the word."""
        if isinstance(given, bool):
            return given
        if getattr(getattr(given, "dtype", None), "name", str(getattr(given, "dtype", ""))) in ("bool", "torch.bool"):
            return bool(given)  # of numpy or torch
        known = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}
        word = given.strip().lower() if isinstance(given, str) else ""
        if word not in known:
            raise UnreadableError(self.form)
        return known[word]

    def same(self, said: bool, other: bool) -> bool:
        """The same."""
        return said is other

    right = same

    def write(self, answer: bool) -> str:
        """``yes``."""
        return "yes" if answer else "no"


class Name(_Free):
    """One name as PyTorch spells it: a path, a class, a function."""

    form = 'a name in quotes, such as "l1.weight"'

    def read(self, given: Any) -> str:
        """Text, or the class or function itself."""
        if isinstance(given, str):
            return given.strip().strip("`'\"")
        name = getattr(given, "__name__", None)
        if not isinstance(name, str):
            raise UnreadableError(self.form)
        return name

    def same(self, said: str, other: str) -> bool:
        """The same letters; a name with its module before it is the same name (``nn.ReLU``)."""
        return said == other or said.rpartition(".")[2] == other

    right = same

    def write(self, answer: str) -> str:
        """As it is; the empty path in words."""
        return answer or '"" (the model itself)'


class Shape(_Free):
    """The shape of a tensor."""

    form = "a shape, such as (2, 3)"

    def read(self, given: Any) -> tuple[int, ...]:
        """A tuple, a list, a ``torch.Size``, one number, or its text."""
        if isinstance(given, str):
            given = _literal(given)
        sizes = (given,) if isinstance(given, int) else given
        if not isinstance(sizes, Iterable):
            raise UnreadableError(self.form)
        found = tuple(sizes)
        if isinstance(given, str) or any(isinstance(size, bool) for size in found):
            raise UnreadableError(self.form)
        try:
            return tuple(operator.index(size) for size in found)
        except TypeError as error:
            raise UnreadableError("a shape of whole numbers, such as (2, 3)") from error

    def same(self, said: tuple[int, ...], other: tuple[int, ...]) -> bool:
        """The same sizes."""
        return said == other

    right = same

    def write(self, answer: tuple[int, ...]) -> str:
        """``(5, 3)``."""
        return str(answer)


class _Lettered:
    """Options under the letters a, b, c …: an answer names them by letter or by text."""

    def __init__(self, *texts: str) -> None:
        self.options = tuple(zip("abcdefghijklmnopqrstuvwxyz", texts, strict=False))

    def letter(self, given: Any) -> str:
        """The letter of one option.

        Raises:
            UnreadableError: there is no such option.
        """
        word = given.strip() if isinstance(given, str) else getattr(given, "__name__", "")
        if re.match(r"[A-Za-z]\s*[).:]", word):
            word = word[0]  # "b)", "b: the text"
        for letter, text in self.options:
            if word in (letter, letter.upper(), text) or (word and word.lower() == text.lower()):
                return letter
        raise UnreadableError(f"a letter from {self.options[0][0]} to {self.options[-1][0]}")

    def text(self, letter: str) -> str:
        """What stands behind a letter."""
        return dict(self.options)[letter]

    def several(self, given: Any) -> tuple[str, ...]:
        """The letters of several options, given as a list or in one text: ``"c a b"``, ``"cab"``."""
        if isinstance(given, str):
            words: list[Any] = given.strip("[]()").replace(",", " ").split()
            letters = {letter for letter, _ in self.options}
            if len(words) == 1 and not self._known(words[0]) and set(words[0].lower()) <= letters:
                words = list(words[0])
        elif isinstance(given, Iterable):
            words = list(given)
        else:
            raise UnreadableError(f'letters, such as "{" ".join(letter for letter, _ in self.options[:3])}"')
        found = tuple(self.letter(word) for word in words)
        if len(set(found)) < len(found):
            raise UnreadableError("each letter once")
        return found

    def write(self, answer: Iterable[str]) -> str:
        """The letters."""
        return " ".join(answer)

    def lines(self, said: Iterable[str] | None, answer: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """All options."""
        right, claimed = set(answer), set(said or ())
        return tuple(("fine" if a in right else "broken" if a in claimed else "", f"`{a}` {text}") for a, text in self.options)

    def _known(self, word: str) -> bool:
        return any(word == text for _, text in self.options)


class Choice(_Lettered):
    """One of some options; the answer is a letter."""

    form = "a letter"

    def read(self, given: Any) -> str:
        """The letter, from itself or from the option's text."""
        return self.letter(given)

    def same(self, said: str, other: str) -> bool:
        """The same letter."""
        return said == other

    right = same


class Several(_Lettered):
    """Some of the options, in any order; none is an empty list."""

    form = 'the letters, such as "a c"'

    def read(self, given: Any) -> tuple[str, ...]:
        """The letters, sorted."""
        return tuple(sorted(self.several(given)))

    def same(self, said: tuple[str, ...], other: tuple[str, ...]) -> bool:
        """The same letters."""
        return said == tuple(sorted(other))

    right = same

    def write(self, answer: Iterable[str]) -> str:
        """The letters; of an empty list that in words."""
        return super().write(answer) or "none of them"


class Order(_Lettered):
    """All of the options in an order.

    Args:
        texts: the options, in the (shuffled) order in which they are shown.
        valid: tells of an order, given as texts, whether it is right, where several are; else only the answer is.
    """

    form = 'the letters in order, such as "b a c"'

    def __init__(self, *texts: str, valid: Callable[[list[str]], bool] | None = None) -> None:
        super().__init__(*texts)
        self._valid = valid

    def read(self, given: Any) -> tuple[str, ...]:
        """The letters."""
        found = self.several(given)
        if len(found) < len(self.options):
            missing = [letter for letter, _ in self.options if letter not in found]
            raise UnreadableError(f"all {len(self.options)} letters ({', '.join(missing)} missing)")
        return found

    def same(self, said: tuple[str, ...], other: tuple[str, ...]) -> bool:
        """The same order."""
        return said == tuple(other)

    def right(self, said: tuple[str, ...], answer: tuple[str, ...]) -> bool:
        """The answer, or another order that is as good."""
        if self._valid is not None:
            return self._valid([self.text(letter) for letter in said])
        return self.same(said, answer)

    def lines(self, said: Iterable[str] | None, answer: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """The options in the right order (the learner's, where that is as good)."""
        order = tuple(said or ())
        shown = order if order and self.right(order, tuple(answer)) else answer
        return tuple(("", f"`{letter}` {self.text(letter)}") for letter in shown)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return None
