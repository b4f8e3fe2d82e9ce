"""The command line: ``python -m modlab lessons list | copy | check | report | assignment | new``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from modlab import files
from modlab.errors import ModlabError
from modlab.format import printable
from modlab.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after an error that is told in a sentence, or where a check found a problem."""
    given = _parser().parse_args(arguments)
    try:
        found: int = given.run(given)
        return found
    except ModlabError as error:
        _say(str(error), sys.stderr)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python says so once more when it ends
        return 0
    except OSError as error:
        _say(f"{error.filename or 'A file'} cannot be used: {(error.strerror or str(error)).lower()}.", sys.stderr)
    return 1


def _say(text: str, stream: TextIO | None = None) -> None:
    stream = sys.stdout if stream is None else stream
    print(printable(text, stream), file=stream, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m modlab", description="See, question and compare PyTorch modules in JupyterLab.")
    parser.add_argument("--version", action="version", version=f"modlab {__version__}")
    lessons = parser.add_subparsers(required=True, metavar="COMMAND").add_parser("lessons", help="the course, and lessons of your own")
    commands = lessons.add_subparsers(required=True, metavar="COMMAND")

    listed = commands.add_parser("list", help="the lessons, with time, goal and what they build on")
    listed.set_defaults(run=_list)

    copy = commands.add_parser("copy", help="make or renew a copy of the notebooks, without outputs; work that is there stays untouched")
    copy.add_argument("folder", type=Path)
    copy.add_argument("--from", dest="source", type=Path, help="the notebooks to copy (default: the course)")
    copy.set_defaults(run=_copy)

    check = commands.add_parser("check", help="validate notebooks: they run, compare equal, and everyone can read them")
    check.add_argument("target", type=Path, metavar="NOTEBOOK|DIR")
    check.set_defaults(run=_check)

    report = commands.add_parser("report", help="one page about a class: which misconceptions its notebooks show, and what settles them")
    report.add_argument("folder", type=Path, metavar="SUBMISSIONS")
    report.add_argument("--out", type=Path, default=Path("report.html"), help="the page (default: report.html here)")
    own = "where the contents of your own lessons lie, which are run (default: the course's lessons alone)"
    report.add_argument("--lessons", type=Path, help=own)
    report.add_argument("--names", action="store_true", help="say who; without it, the page holds no names")
    report.add_argument("--csv", type=Path, metavar="FILE", help="also write a line for each learner, question and task")
    report.set_defaults(run=_report)

    graded = commands.add_parser("assignment", help="a lesson's notebook for nbgrader: each check is a cell that gives points")
    graded.add_argument("notebook", type=Path)
    graded.add_argument("folder", type=Path, metavar="source/ASSIGNMENT")
    graded.add_argument("--points", type=float, default=2.0, help="of each task (default: 2)")
    graded.set_defaults(run=_assignment)

    new = commands.add_parser("new", help="a lesson of your own, from a template that works already")
    new.add_argument("name")
    new.add_argument("--in", dest="folder", type=Path, default=Path(), help="the folder (default: this one)")
    new.set_defaults(run=_new)
    return parser


def _list(given: argparse.Namespace) -> int:
    from modlab.lessons import lookup

    for content in lookup.lessons():
        after = f" (after {', '.join(content.after)})" if content.after else ""
        _say(f"{content.name:<28} {content.minutes:>3} min  {content.title}{after}\n{'':37}{content.goal}")
    _say(f"{'':28} {sum(content.minutes for content in lookup.lessons()):>3} min  in all")
    return 0


def _copy(given: argparse.Namespace) -> int:
    from modlab.lessons import copies, lookup

    copied = copies.copy(given.folder, given.source or lookup.course())
    renewed = f", {len(copied.renewed)} brought up to date (nobody had worked in them)" if copied.renewed else ""
    _say(f"{given.folder}: {len(copied.made)} new{renewed}, {len(copied.kept)} kept as they were")
    for file in copied.mended:
        _say(f"  {file.name}: was half written, and is whole now")
    for file in copied.damaged:
        _say(f"  {file.name}: is not a notebook and stays unchanged; a fresh copy is beside it: {file.with_suffix('.new.ipynb').name}")
    for file in copied.beside:
        _say(f"  {file.name}: the new edition of a notebook that you have worked in, with your answers; yours stays as it is")
    return 0


def _check(given: argparse.Namespace) -> int:
    from modlab.lessons import validation

    passed = []
    for report in validation.checked(given.target):
        _say(str(report))
        passed.append(report.passed)
    wrong = passed.count(False)
    _say(f"\n{len(passed)} checked: {f'{wrong} with problems' if wrong else 'all ok'}")
    return int(wrong > 0)


def _report(given: argparse.Namespace) -> int:
    from modlab.lessons import classroom

    report = classroom.read(given.folder, given.lessons)
    _say(report.text(names=given.names))
    out = given.out / "report.html" if given.out.is_dir() else given.out
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write(out, report.html(names=given.names))
    _say(f"\nThe page: {out}")
    if given.csv is not None:
        files.write(given.csv, report.csv(names=given.names))
        _say(f"The table: {given.csv}")
    return int(not report.notebooks)


def _assignment(given: argparse.Namespace) -> int:
    from modlab.lessons import grading

    written = grading.write(given.notebook, given.folder, given.points)
    _say(f"{written} has a graded cell for each task. Hand it out: nbgrader generate_assignment {given.folder.name}")
    return 0


def _new(given: argparse.Namespace) -> int:
    from modlab.lessons import template

    notebook, content = template.create(given.name, given.folder)
    _say(f"{notebook.name} is the lesson, {content.name} holds its questions and tasks. Try it: python -m modlab lessons check {notebook}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:3] == ["lessons", "report"]:  # the working folder may be one of submissions, and its json.py is not Python's
        sys.path[:] = [place for place in sys.path if place not in ("", os.getcwd())]
    sys.exit(main())
