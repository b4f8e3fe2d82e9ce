"""Where the contents of lessons are found: the course's in `course/`, a teacher's own in a file beside the notebook."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from importlib import import_module, util
from pathlib import Path
from pkgutil import iter_modules
from typing import TypeVar

from modlab.errors import ModlabError, nearest
from modlab.format import clean, cut
from modlab.lessons import course
from modlab.lessons.content import Content, Question, Task

Named = TypeVar("Named", Question, Task)


class LessonError(ModlabError, LookupError):
    """A lesson, a question or a task that does not exist."""


@lru_cache(maxsize=1)
def lessons() -> tuple[Content, ...]:
    """The lessons of the course, in reading order."""
    rooms = (import_module(f"{course.__name__}.{room.name}") for room in iter_modules(course.__path__))
    return tuple(sorted((room.LESSON for room in rooms), key=lambda content: content.name))


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
        raise LessonError(f'A lesson is asked for by the name of its notebook, as Lesson("01_a_module"), and not by {cut(repr(name), 60)}.')
    if name.isidentifier() and folder is not None and (folder / f"{name}.py").is_file():
        return _own(folder / f"{name}.py")
    room = re.sub(r"^\d+_", "", name)
    if room.isidentifier() and util.find_spec(f"{course.__name__}.{room}") is not None:
        content = getattr(import_module(f"{course.__name__}.{room}"), "LESSON", None)
        if isinstance(content, Content) and content.name == name:
            return content
    known = getattr(sys.modules.get(f"modlab_lesson_{name}"), "LESSON", None)
    if folder is None and isinstance(known, Content):
        return known
    names = [content.name for content in lessons()]
    name = cut(clean(name), 60)
    raise LessonError(
        f"There is no lesson {name!r}.\n  The course has: {', '.join(names)}.  Nearest: {', '.join(nearest(name, names)) or 'none'}.\n"
        f"  A lesson of your own lies in {name}.py beside the notebook: python -m modlab lessons new {name}"
    )


def _own(file: Path) -> Content:
    spec = util.spec_from_file_location(f"modlab_lesson_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    room = util.module_from_spec(spec)
    sys.modules[spec.name] = room
    try:
        spec.loader.exec_module(room)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise LessonError(f"{file.name} cannot be read as a lesson: {type(error).__name__}: {error}") from error
    content = getattr(room, "LESSON", None)
    if not isinstance(content, Content):
        raise LessonError(f"{file.name} holds no lesson: it needs a LESSON = Content(...); see `python -m modlab lessons new NAME`.")
    return content


def named(name: str, things: tuple[Named, ...], what: str, lesson: str) -> Named:
    """One question or task of a lesson.

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
