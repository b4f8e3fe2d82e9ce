"""A task's answer is run, and judged by what it does: `judge` gives a `CheckResult`, whatever the answer is."""

from __future__ import annotations

import ast
import dis
import re
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, Literal, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab import format
from modlab.errors import ModlabError
from modlab.frozen import frozen
from modlab.lessons import devices, stills
from modlab.lessons.cards import MIME, Card, CardRecord
from modlab.lessons.content import Mistake, Task
from modlab.lessons.features import available
from modlab.lessons.isolation import isolated

Outcome = Literal["correct", "not yet", "not attempted", "not possible"]
LONG = 400  # characters of an expected or a found value


class NotYet(Exception):
    """What a probe raises when an answer does something else than it should.

    Args:
        says: in a sentence, what is not as it should be; of a named mistake the mistake's own words are shown before it.
        mistake: the name of one of the task's mistakes, where the answer makes that.
        expected: the value that was expected, shown beside `got`.
        got: the value that was found.
        evidence: a view of the learner's own module (any result of modlab's).
    """

    def __init__(self, says: str = "", *, mistake: str = "", expected: Any = None, got: Any = None, evidence: Any = None) -> None:
        super().__init__(says)
        self.says, self.mistake, self.expected, self.got, self.evidence = says, mistake, expected, got, evidence


@frozen
class CheckResult:
    """What came of a check: plain words, no tensor and no module.

    Attributes:
        task: its name.
        outcome: "correct", "not yet", "not attempted", or "not possible" with this torch.
        score: the share of the probes that passed, 0 to 1.
        steps: what was tried, and whether it held (None: not tried after a failure).
        mistake: the name of the usual mistake that it is, if it is one.
        belief: the misconception that this shows; 0 for none.
        says: what is not as it should be.
        expected, got: the two values, written out.
        left: what the code had left behind, and was put back.
        evidence: the text and the HTML of a view that shows it.
    """

    task: str
    outcome: Outcome
    score: float = 0.0
    steps: tuple[tuple[str, bool | None], ...] = ()
    mistake: str = ""
    belief: int = 0
    says: tuple[str, ...] = ()
    expected: str = ""
    got: str = ""
    left: tuple[str, ...] = ()
    evidence: tuple[str, str] = ("", "")


def judge(task: Task, answer: Any) -> CheckResult:
    """Run all probes of a task on an answer; nothing that the answer does makes this fail, and ■ ends it.

    They make their tensors on the CPU, so the verdict is the same on every machine. An answer may name the lesson's device; where that
    is what fails, it is tried there.
    """
    verdict, device = _survived(task, answer), devices.current()
    if device.type == "cpu" or not any("device" in line.lower() or device.type in line for line in verdict.says):
        return verdict
    with device:
        there = _survived(task, answer)
    return there if there.score > verdict.score else verdict


def _survived(task: Task, answer: Any) -> CheckResult:
    try:
        return _judged(task, answer)
    except Exception as error:  # noqa: BLE001 - of an answer that nothing can be asked of
        return CheckResult(task.name, "not yet", says=(f"It could not be checked: {type(error).__name__}.",))


def _judged(task: Task, answer: Any) -> CheckResult:
    if task.needs and not available(task.needs):
        return CheckResult(task.name, "not possible", says=(f"This torch has no {task.needs}.",))
    if answer is ... or answer is None or untouched(answer, task):
        return CheckResult(task.name, "not attempted")
    passed = 0
    failure: BaseException | None = None
    with isolated(answer) as left:
        try:
            for probe in task.probes:
                torch.manual_seed(passed)
                probe(answer)
                passed += 1
        except BaseException as error:  # noqa: BLE001 - whatever a learner's code does, it is told
            failure = error
        if _is_stub(failure):
            return CheckResult(task.name, "not attempted")
        shown = None if failure is None else _told(task, failure)
    names = [_words(probe) for probe in task.probes]
    if shown is None and not left:
        return CheckResult(task.name, "correct", 1.0, tuple((name, True) for name in names))
    steps = tuple((name, True if i < passed else False if i == passed else None) for i, name in enumerate(names))
    if shown is None:
        shown = _Told(says=("It does what it should, but leaves something behind.",))
    return CheckResult(
        task.name,
        "not yet",
        passed / (len(names) + bool(left)),
        steps,
        shown.mistake,
        shown.belief,
        shown.says,
        shown.expected,
        shown.got,
        tuple(left),
        shown.evidence,
    )


def _is_stub(failure: BaseException | None) -> bool:
    """Whether the code says itself that it is not written yet, as the stubs of graders do; torch says so where forward is missing."""
    return isinstance(failure, NotImplementedError) and 'required "forward"' not in _message(failure)


@frozen
class _Told:
    mistake: str = ""
    belief: int = 0
    says: tuple[str, ...] = ()
    expected: str = ""
    got: str = ""
    evidence: tuple[str, str] = ("", "")


def _told(task: Task, error: BaseException) -> _Told:
    """A failure in words."""
    if issubclass(type(error), NotYet):
        assert isinstance(error, NotYet)
        mistake = next((one for one in task.mistakes if one.name == error.mistake), None)
        says = tuple(part for part in (mistake.says if mistake else "", error.says) if part)
        told = error.expected is not None or error.got is not None
        both = (_value(error.expected), _value(error.got)) if told else ("", "")
        return _Told(error.mistake, mistake.belief if mistake else 0, says, *both, _faces(error.evidence))
    known = _known(task, error)
    if known is not None:
        return _Told(known.name, known.belief, (known.says, _raised(error)), evidence=_explained(error))
    if isinstance(error, KeyboardInterrupt):
        return _Told(says=("It was still running when you stopped it. Does each of its loops end?",))
    if isinstance(error, RecursionError):
        return _Told(says=(f"It calls itself endlessly. {_raised(error)}",))
    if isinstance(error, NotImplementedError):
        return _Told(says=("It has no `forward` yet, or one under a different name: a module needs a method called `forward`.",))
    return _Told(says=(_raised(error),), evidence=_explained(error))


def _known(task: Task, error: BaseException) -> Mistake | None:
    told = f"{type(error).__name__}: {_message(error)}"
    return next((one for one in task.mistakes if one.error and re.search(one.error, told)), None)


def _message(error: BaseException) -> str:
    """What an error says, where it can be asked."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a learner's own class of errors
        return ""


def _raised(error: BaseException) -> str:
    """The error, and the line of the learner's own code where it came up."""
    place = next((frame for frame in reversed(traceback.extract_tb(error.__traceback__)) if _is_own(frame.filename)), None)
    where = f" in `{place.line}` (line {place.lineno} of {place.name})" if place is not None and place.line else ""
    return f"Your code raised {type(error).__name__}{where}: {format.cut(' '.join(_message(error).split()), LONG)}"


def _is_own(file: str) -> bool:
    """Whether a file is a learner's: a cell, or a notebook's neighbour; not torch's, Python's or modlab's."""
    return "ipykernel" in file or (file.startswith("<") and not file.startswith("<frozen"))


def _explained(error: BaseException) -> tuple[str, str]:
    if not isinstance(error, Exception) or isinstance(error, RecursionError):
        return "", ""
    try:
        explanation = modlab.explain(error)
    except Exception:  # noqa: BLE001 - an explanation is an extra
        return "", ""
    return _faces(explanation) if explanation.record.family else ("", "")


def _faces(evidence: Any) -> tuple[str, str]:
    """A view's text and picture; the model itself is not kept."""
    if evidence is None:
        return "", ""
    try:
        return str(evidence), stills.of(evidence) or ""
    except Exception:  # noqa: BLE001 - a learner's module may not be printable
        return "", ""


def _value(value: Any) -> str:
    """A value as it is written in a lesson: tensors with four digits, long ones cut."""
    try:
        if issubclass(type(value), Tensor):
            with torch.no_grad():
                numbers = value.detach().cpu()
                body = str(numbers.tolist()) if not numbers.is_floating_point() else _rounded(numbers)
            return format.cut(body, LONG)
        if type(value) is torch.Size:
            value = tuple(value)
        return format.cut(value if type(value) is str else repr(value), LONG)
    except Exception:  # noqa: BLE001 - of a learner's own class
        return f"a {type(value).__name__}"


def _rounded(numbers: Tensor) -> str:
    return re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda match: f"{float(match[0]):.4f}", str(numbers.tolist()))


def _words(probe: Callable[[Any], None]) -> str:
    return (probe.__doc__ or probe.__name__.replace("_", " ")).strip().splitlines()[0].rstrip(".")


def untouched(answer: Any, task: Task) -> bool:
    """Whether a class or a function is still the starter's: the same code, object by object."""
    if issubclass(type(answer), type) or type(answer) in (FunctionType, MethodType) or hasattr(type(answer), "__code__"):
        try:
            return _codes(answer) == _codes(evaluate(task.given + "\n" + task.starter, task.expression))
        except Exception:  # noqa: BLE001 - a starter that gives no such object cannot be it
            return False
    return False


def _codes(thing: Any) -> list[Any]:
    if isinstance(thing, type):
        return [
            (name, _codes(value)) for name, value in sorted(vars(thing).items()) if hasattr(value, "__code__") or isinstance(value, type)
        ]
    return [_code(getattr(layer, "__code__", None)) for layer in _layers(thing)]


def _layers(thing: Any) -> Iterator[Any]:
    """A function, and what its decorators (``@contextmanager``, ``@torch.no_grad()``) are wrapped around."""
    for _ in range(20):
        yield thing
        thing = getattr(thing, "__wrapped__", None)
        if thing is None:
            return


def _code(code: CodeType | None) -> Any:
    """What a function does, instruction by instruction; its name, its place and a docstring do not count."""
    if code is None:
        return None
    return [(one.opname, _code(one.argval) if isinstance(one.argval, CodeType) else one.argval) for one in dis.get_instructions(code)]


def evaluate(source: str, expression: str) -> Any:
    """Run a lesson's own code (a starter, a reference, a mistake), and give the value of an expression after it."""
    names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "modlab": modlab, "__name__": "__lesson__"}
    exec(compile(source, "<lesson>", "exec"), names)
    return eval(expression, names)


# ---- what probes are written with ----------------------------------------------------------------


def fail(says: str = "", **details: Any) -> NoReturn:
    """Say that an answer is not yet right; takes what `NotYet` takes."""
    raise NotYet(says, **details)


def require_module_class(answer: Any, name: str) -> None:
    """A class of modules, not an instance and nothing else."""
    if isinstance(answer, nn.Module):
        fail(f"Give the class {name} itself, not a module made of it.", expected=f"the class {name}", got=f"a {type(answer).__name__}")
    if not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        got = answer.__name__ if isinstance(answer, type) else f"a {type(answer).__name__}"
        fail(f"{name} must be a subclass of nn.Module.", expected="class ...(nn.Module)", got=got)


def require_callable(answer: Any, name: str) -> None:
    """A function, or something else that can be called."""
    if not callable(answer):
        fail(f"{name} must be a function.", expected="a function", got=f"a {type(answer).__name__}")


def require_equal(got: Any, expected: Any, says: str, *, tolerance: float = 1e-5, **details: Any) -> None:
    """The same value; of tensors the same shape, and the same numbers within a tolerance."""
    if not same(got, expected, tolerance):
        fail(says, expected=expected, got=got, **details)


def same(got: Any, expected: Any, tolerance: float = 1e-5) -> bool:
    """Whether two values are one: tensors by shape and numbers, all else by `==`."""
    if isinstance(expected, Tensor):
        if not isinstance(got, Tensor) or got.shape != expected.shape:
            return False
        return torch.allclose(got.detach().double(), expected.detach().double(), rtol=tolerance, atol=tolerance)
    try:
        return bool((type(got) is type(expected) and got == expected) or got == expected)
    except Exception:  # noqa: BLE001 - a learner's own class
        return False


# ---- what the learner sees


class Judgement(Card):
    """The outcome of a check; true when the answer is correct, so that `assert lesson.check(...)` grades it.

    Attributes:
        record: all of it, as plain words.
    """

    def __init__(self, lesson: str, task: Task, verdict: CheckResult, helper: Helper, own: str = "", progress: str = "") -> None:
        self.record, self._helper = verdict, helper
        super().__init__(_card(task, verdict, own, progress), below=verdict.evidence, lesson=lesson)

    @property
    def outcome(self) -> Outcome:
        """``"correct"``, ``"not yet"``, ``"not attempted"``, or ``"not possible"`` where this torch lacks what the task is about."""
        return self.record.outcome

    @property
    def score(self) -> float:
        """The share of what was tried that held, 0 to 1."""
        return self.record.score

    def __bool__(self) -> bool:
        return self.record.outcome == "correct"

    def hint(self, number: int | None = None) -> Card:
        """The next hint, or the one with this number (from 1)."""
        return self._helper.hint(number)

    def solution(self) -> Card:
        """One good solution, once there was an attempt or all hints were read."""
        return self._helper.solution()

    def _kept(self) -> dict[str, Any]:
        record = self.record
        kept = {
            "schema": 1,
            "lesson": self._lesson,
            "task": record.task,
            "outcome": record.outcome,
            "score": round(record.score, 3),
            "mistake": record.mistake,
            "belief": record.belief,
        }
        return {MIME: kept}


def _card(task: Task, verdict: CheckResult, own: str, progress: str) -> CardRecord:
    foot = f'`lesson.hint("{task.name}")` helps, `lesson.solution("{task.name}")` shows one way.' if task.hints else ""
    if verdict.outcome == "not possible":
        return CardRecord("check", task.name, "Not possible here.", " ".join(verdict.says), "open")
    if verdict.outcome == "not attempted":
        return CardRecord("check", task.name, "Not attempted yet.", task.asks, "open", foot=foot)
    steps = tuple(
        ("open" if held is None else "fine" if held else "broken", step + (" (not tried yet)" if held is None else ""))
        for step, held in verdict.steps
    )
    if verdict.outcome == "correct":
        prose = (task.matters,) if task.matters else ()
        return CardRecord("check", task.name, "Correct.", progress, "fine", steps, prose=prose, beside=_beside(task, own))
    strong = f"Not yet: {verdict.mistake}." if verdict.mistake else "Not yet."
    pairs = (("expected", verdict.expected), ("got", verdict.got)) if verdict.expected or verdict.got else ()
    return CardRecord("check", task.name, strong, "", "broken", steps, pairs, (*verdict.says, *verdict.left), foot=foot)


def _beside(task: Task, own: str) -> tuple[tuple[str, str], ...]:
    """The learner's code and the lesson's, where they differ."""
    reference = task.reference.strip()
    if not own or _same_code(own, reference):
        return ()
    return ("your code", own), ("the lesson's", reference)


def _same_code(one: str, other: str) -> bool:
    """Whether two pieces of code differ in layout and comments alone."""
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError):
        return False


class Helper:
    """The hints of one task, step by step, and its solution at the end."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._seen = 0
        self.attempted = False

    def hint(self, number: int | None = None) -> Card:
        """The next one, or one by its number."""
        hints = self._task.hints
        if not hints:
            return Card(CardRecord("hint", self._task.name, "There is no hint for this task.", "", "open"))
        if number is None:
            number = min(self._seen + 1, len(hints))
        if not isinstance(number, int):
            raise ModlabError(f"Ask for a hint by its number, 1 to {len(hints)}, not by {number!r}.")
        number = max(1, min(number, len(hints)))
        self._seen = max(self._seen, number)
        foot = "" if number < len(hints) else f'This was the last hint: `lesson.solution("{self._task.name}")`.'
        return Card(CardRecord("hint", self._task.name, f"{number} of {len(hints)}:", hints[number - 1], foot=foot))

    def solution(self) -> Card:
        """The reference, when the learner has tried or has read the hints."""
        left = len(self._task.hints) - self._seen
        if left > 0 and not self.attempted:
            rest = f'Try it, or read the {left} hint{"s" if left > 1 else ""} first: `lesson.hint("{self._task.name}")`.'
            return Card(CardRecord("solution", self._task.name, "Not yet.", rest, "open"))
        return Card(CardRecord("solution", self._task.name, "One of several ways:", code=self._task.reference.strip()))
