"""The lookup of a lesson's content: in a file beside its notebook, the course's in its folder, a teacher's own in hers."""

from __future__ import annotations

import sys
import traceback
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import TypeVar

from modlab.errors import ModlabError, nearest
from modlab.format import clean, cut
from modlab.lessons.content import Content, Question, Task
from modlab.lessons.drawing import Drawing

Named = TypeVar("Named", Question, Task, Drawing)


class LessonError(ModlabError, LookupError):
    """A lesson, a question or a task that does not exist."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows below the cell: the sentence, without the frames of modlab that it came through."""
        return [f"{type(self).__name__}: {self}"]


PLACES = (Path(__file__).parents[1] / "course", Path(__file__).parents[2] / "notebooks")
"""The folder of the course, where modlab was installed, and in its repository."""


def course() -> Path:
    """The folder of the course: its notebooks, and beside each its content.

    Raises:
        LessonError: it is not there.
    """
    for place in PLACES:
        if (place / "00_tour.ipynb").is_file():
            return place
    raise LessonError(
        "This installation of modlab lacks the course: its files were left out or deleted.\n"
        "  Install modlab again, or name the folder of the notebooks: python -m modlab lessons copy DIR --from NOTEBOOKS"
    )


@lru_cache(maxsize=1)
def lessons() -> tuple[Content, ...]:
    """The lessons of the course, in reading order."""
    return tuple(_content(file) for file in sorted(course().glob("[0-9]*.py")))


def find(name: str, folder: Path | None = None) -> Content:
    """The content of a lesson.

    Args:
        name: of its notebook, without the ending.
        folder: where a teacher's own ``NAME.py`` may lie, which is looked for first, and **run**: never a folder of submissions.
            Unless told, there are the course's lessons alone, and those that were opened in this process before.

    Raises:
        LessonError: there is none, or the file holds none.
    """
    if not isinstance(name, str):
        raise LessonError(f'A lesson is opened by the name of its notebook, such as Lesson("01_a_module"), not by {cut(repr(name), 60)}.')
    if name.isidentifier() and folder is not None and (folder / f"{name}.py").is_file():
        return _run(folder / f"{name}.py")
    ours = next((file for file in course().glob("[0-9]*.py") if file.stem == name), None)
    if ours is not None:
        return _content(ours)
    known = getattr(sys.modules.get(f"modlab_lesson_{name}"), "LESSON", None)
    if folder is None and isinstance(known, Content):
        return known
    names = [content.name for content in lessons()]
    name = cut(clean(name), 60)
    raise LessonError(
        f"There is no lesson {name!r}.\n  The course has: {', '.join(names)}.  Nearest: {', '.join(nearest(name, names)) or 'none'}.\n"
        f"  Your own lesson must be in {name}.py beside the notebook: python -m modlab lessons new {name}"
    )


def _content(file: Path) -> Content:
    """That of a lesson of the course, which is run once."""
    known = getattr(sys.modules.get(f"modlab_lesson_{file.stem}"), "LESSON", None)
    return known if isinstance(known, Content) else _run(file)


def _run(file: Path) -> Content:
    spec = util.spec_from_file_location(f"modlab_lesson_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    room = util.module_from_spec(spec)
    sys.modules[spec.name] = room
    try:
        spec.loader.exec_module(room)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise LessonError(f"{file.name} cannot be read as a lesson{_line(error, file)}: {type(error).__name__}: {error}") from error
    content = getattr(room, "LESSON", None)
    if not isinstance(content, Content):
        raise LessonError(f"{file.name} contains no lesson: it needs a LESSON = Content(...); see `python -m modlab lessons new NAME`.")
    return content


def _line(error: BaseException, file: Path) -> str:
    """The line of a teacher's file at which it failed; "" where it failed elsewhere."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines.append(error.lineno)
    return f", line {lines[-1]}" if lines and lines[-1] else ""


def named(name: str, things: tuple[Named, ...], what: str, lesson: str) -> Named:
    """One question, task or drawing of a lesson.

    Raises:
        LessonError: it has none of that name.
    """
    for thing in things:
        if thing.name == name:
            return thing
    names = [thing.name for thing in things]
    raise LessonError(
        f"Lesson {lesson} has no {what} {name!r}.\n  It has: {', '.join(map(repr, names))}."
        f"  Nearest: {', '.join(map(repr, nearest(str(name), names))) or 'none'}."
    )
