"""Checks notebooks as a teacher needs them before Monday: they run, they compare equal, and they can be read by everyone."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from modlab.errors import ModlabError
from modlab.format import cut, plural, printable, size
from modlab.frozen import frozen
from modlab.lessons import lookup, notebooks, self_test
from modlab.lessons.notebooks import source

LARGEST, LARGEST_OUTPUT = 350_000, 200_000  # bytes
CELL_TIMEOUT_S = 120

_UNSTABLE = (
    (re.compile(r"\b0x[0-9a-f]{6,16}\b"), "an address"),
    (re.compile(r"(/home/|/Users/|/root/|/tmp/|[A-Z]:\\Users\\)[^\s'\"]*"), "a path of one machine"),
    (re.compile(r"(Wall time|CPU times|per loop|it/s\b)"), "a time"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "a random id"),
)
_ANSI = re.compile(r"(?:\x1b|#x1B)\[[0-9;]*m")  # as pytest writes it into XML
_WORDLESS = "a picture has no alt text: readers who cannot see it miss its content"
_PICTURES = (
    (re.compile(r"!\[\s*\]\("), "![what it shows](…)"),
    (re.compile(r"<img\b(?![^>]*\balt\s*=\s*[\"'][^\"']+[\"'])[^>]*>", re.IGNORECASE), '<img alt="what it shows" …>'),
)


@frozen
class Problem:
    """One thing that is wrong.

    Attributes:
        cell: its number in the notebook, from 1; 0 for the whole of it.
        says: what is wrong.
        do: what to do about it.
    """

    cell: int
    says: str
    do: str = ""


@frozen
class Report:
    """What was found in one notebook.

    Attributes:
        file: which.
        cells, compared: how many cells it has, and how many of them have stored outputs to compare with.
        problems: what must be changed.
        notes: what is good to know.
    """

    file: Path
    cells: int = 0
    compared: int = 0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __str__(self) -> str:
        state = "ok" if self.passed else f"{plural(len(self.problems), 'problem')}"
        lines = [f"{self.file.name}: {state} ({plural(self.cells, 'cell')}, {self.compared} with stored outputs)"]
        for problem in self.problems:
            place = f"cell {problem.cell}: " if problem.cell else ""
            lines.append(f"  ✕ {place}{problem.says}" + (f"\n      → {problem.do}" if problem.do else ""))
        return printable("\n".join(lines + [f"  · {note}" for note in self.notes]))


def check(target: Path) -> list[Report]:
    """Check one notebook, or all below a folder.

    Raises:
        ModlabError: there is none.
    """
    return [*checked(target)]


def checked(target: Path) -> Iterator[Report]:
    """What `check` finds, one by one: a folder takes minutes.

    Raises:
        ModlabError: there is none.
    """
    files = [target] if target.is_file() else sorted(file for file in target.rglob("*.ipynb") if ".ipynb_checkpoints" not in file.parts)
    if not files:
        raise ModlabError(f"There is no notebook at {str(target)!r}: name an .ipynb file, or a folder that holds some.")
    yield from map(_checked, files)


def _checked(file: Path) -> Report:
    try:
        notebook = notebooks.read(file)
    except notebooks.NotebookError as error:
        return Report(file, problems=(Problem(0, str(error), "Save it again from JupyterLab."),))
    cells = notebook["cells"]
    compared = sum(bool(cell.get("outputs")) for cell in cells)
    problems = [*_reading(notebook, file), *_lesson(notebook, file), *_running(file)]
    notes = []
    if not compared and any(cell["cell_type"] == "code" for cell in cells):
        notes.append("It has no stored outputs, so it was run and nothing was compared. Run it once and save it.")
    answers = [one for one in notebooks.given(notebook) if one.kind == "predict"]
    if answers and compared:
        notes.append(
            "Its outputs show the answers to its predictions: hand out a copy without them (python -m modlab lessons copy DIR --from HERE)."
        )
    return Report(file, len(cells), compared, tuple(sorted(problems, key=lambda problem: problem.cell)), tuple(notes))


def _reading(notebook: dict[str, Any], file: Path) -> Iterator[Problem]:
    """What can be seen without running it."""
    for one in notebooks.given(notebook):
        if one.value is not ...:
            yield Problem(one.cell + 1, f"the answer to {one.name!r} is already there: {one.value!r}", "Put ... in its place.")
    depth = 0
    for number, cell in enumerate(notebook["cells"], 1):
        text = source(cell)
        if cell["cell_type"] == "markdown":
            for heading in re.findall(r"^(#{1,6}) ", _without_code(text), re.MULTILINE):
                if len(heading) > depth + 1:
                    yield Problem(number, f"a heading jumps from level {depth} to level {len(heading)}", f"Use {'#' * (depth + 1)}.")
                depth = len(heading)
            yield from _pictures(number, _without_code(text))
        if cell.get("outputs") and cell.get("execution_count") is None:
            yield Problem(number, "it has outputs but no execution count, so they are not compared", "Run the notebook again and save it.")
        for output in cell.get("outputs", []):
            yield from _output(number, cell, output)
    if file.stat().st_size > LARGEST:
        yield Problem(
            0,
            f"it has {size(file.stat().st_size)}, more than {size(LARGEST)}",
            "Show less, or without the script: view.html(bundle=False).",
        )


def _lesson(notebook: dict[str, Any], file: Path) -> Iterator[Problem]:
    """What its questions and tasks say of themselves, where it is a lesson."""
    name = notebooks.lesson_name(notebook)
    if not name:
        return
    try:
        content = lookup.find(name, file.parent)
    except Exception as error:  # noqa: BLE001 - a teacher's file may hold anything
        yield Problem(0, f"its lesson could not be loaded: {type(error).__name__}: {error}")
        return
    for told in self_test.rehearse(content):
        yield Problem(0, told)
    known = {question.name for question in content.questions}
    for one in notebooks.given(notebook):
        if one.name not in known:
            yield Problem(one.cell + 1, f"lesson {name} has no question {one.name!r}")


def _without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def _pictures(number: int, text: str) -> Iterator[Problem]:
    for pattern, better in _PICTURES:
        if pattern.search(text):
            yield Problem(number, _WORDLESS, f"Write {better}")


def _output(number: int, cell: dict[str, Any], output: dict[str, Any]) -> Iterator[Problem]:
    data = output.get("data", {})
    tags = cell.get("metadata", {}).get("tags", [])
    if output["output_type"] == "error" and "raises-exception" not in tags:
        yield Problem(number, f"it ends in {output.get('ename', 'an error')}", "Fix it, or mark it as intended: with lesson.expect(...).")
    text = "".join(output.get("text", "")) + "".join(data.get("text/plain", ""))
    if "nbval-ignore-output" not in tags:
        for pattern, what in _UNSTABLE:
            if found := pattern.search(text):
                yield Problem(number, f"its output holds {what}, which varies: {cut(found[0], 60)}", "Print something else.")
    yield from _pictures(number, "".join(data.get("text/html", "")))
    images = [kind for kind in data if kind.startswith("image/")]
    if images and "text/html" not in data and not any(_words(output.get("metadata", {}), kind) for kind in images):
        yield Problem(number, _WORDLESS, 'Show it with words: lesson.see(figure, alt="what it shows"), or a figure of modlab\'s.')
    length = sum(len("".join(value) if isinstance(value, list) else str(value)) for value in data.values())
    if length > LARGEST_OUTPUT:
        yield Problem(number, f"an output has {size(length)}, more than {size(LARGEST_OUTPUT)}", "Show less.")


def _words(metadata: dict[str, Any], kind: str) -> str:
    """The alt text where nbconvert looks for it."""
    return str(metadata.get(kind, {}).get("alt") or metadata.get("alt") or "")


def _running(file: Path) -> Iterator[Problem]:
    """What nbval says when all cells run in a fresh kernel."""
    if find_spec("nbval") is None:
        yield Problem(0, "it was not run: nbval is not installed", "pip install nbval")
        return
    file = file.resolve()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--nbval",
            "-p",
            "modlab.lessons.comparing",
            "-p",
            "no:cacheprovider",
            "--quiet",
            "--nbval-cell-timeout",
            str(CELL_TIMEOUT_S),
            f"--junit-xml={results}",
            "--rootdir",
            str(file.parent),
            "--noconftest",
            "-o",
            "addopts=",
            str(file),
        ]
        done = subprocess.run(command, capture_output=True, text=True, cwd=file.parent, check=False)
        if not results.exists():
            yield Problem(0, f"it could not be run: {cut((done.stderr or done.stdout).strip(), 600)}")
            return
        numbers = [number for number, cell in enumerate(notebooks.read(file)["cells"], 1) if cell["cell_type"] == "code"]
        yield from _failures(ElementTree.parse(results).getroot(), numbers)  # written by pytest just now


def _failures(results: ElementTree.Element, numbers: list[int]) -> Iterator[Problem]:
    for case in results.iter("testcase"):
        for failure in (*case.findall("failure"), *case.findall("error")):
            found = re.search(r"Cell (\d+)", case.get("name", ""))
            number = numbers[int(found[1])] if found and int(found[1]) < len(numbers) else 0
            told = _ANSI.sub("", failure.text or failure.get("message") or "")
            if "Unrun reference cell" not in told:  # which was said without running it
                yield _failure(number, told.splitlines())


def _sides(lines: list[str]) -> tuple[list[str], list[str]]:
    """What was stored and what came: nbval tells it as a difference, and where there are more or fewer outputs as two blocks."""
    marks = [i for sign in ("<<<<<<", "======", ">>>>>>") for i, line in enumerate(lines) if sign in line][:3]
    if len(marks) == 3 and any("dissimilar" in line for line in lines):
        first, middle, last = marks
        return lines[first + 1 : middle], lines[middle + 1 : last]
    now, stored = ([line.strip()[2:] for line in lines if line.strip().startswith(sign)] for sign in ("- ", "+ "))
    return stored, now


def _failure(number: int, lines: list[str]) -> Problem:
    """Of nbval's report what differs, or the error; the source of the cell is seen in the notebook."""
    raised = [line.strip() for line in lines if re.match(r"\s*[A-Za-z_.]*(Error|Exception|Interrupt|Warning|Stopped)\b:?", line)]
    differs = any(word in line for line in lines for word in ("mismatch", "dissimilar"))
    if not differs and any("Traceback" in line for line in lines):
        return Problem(
            number,
            f"it raises {cut(raised[-1] if raised else 'an error', 300)}",
            "Fix it, or mark it as intended: with lesson.expect(...).",
        )
    if any("timeout" in line.lower() for line in lines):
        return Problem(number, f"it did not end within {CELL_TIMEOUT_S} s, or its kernel died", "Do less in it.")
    stored, now = _sides(lines)
    if now or stored:
        sides = [f"\n      {name}: {cut(line, 160)}" for name, side in (("stored", stored), ("now   ", now)) for line in side[:3]]
        return Problem(
            number,
            "its output differs from the stored one" + "".join(sides),
            "Run it again and save; if it still differs, set a seed.",
        )
    return Problem(number, cut(" ".join(line.strip() for line in lines if line.strip(" -=")), 300))
