"""The command line: ``python -m modlab lessons copy DIR``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from modlab.errors import ModlabError
from modlab.lessons import copies
from modlab.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after an error that is told in a sentence."""
    given = _parser().parse_args(arguments)
    try:
        return _copy(given.folder, given.source or copies.course())
    except (ModlabError, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m modlab", description="See, question and compare PyTorch modules in JupyterLab.")
    parser.add_argument("--version", action="version", version=f"modlab {__version__}")
    lessons = parser.add_subparsers(required=True, metavar="COMMAND").add_parser("lessons", help="the course")
    copy = lessons.add_subparsers(required=True, metavar="COMMAND").add_parser(
        "copy", help="make your own copy of the notebooks, without outputs; work that is there already stays untouched"
    )
    copy.add_argument("folder", type=Path)
    copy.add_argument("--from", dest="source", type=Path, help="the notebooks to copy (default: the course of this checkout)")
    return parser


def _copy(folder: Path, source: Path) -> int:
    made, kept = copies.copy(folder, source)
    print(f"{folder}: {len(made)} new, {len(kept)} kept as they were")
    return 0


if __name__ == "__main__":
    sys.exit(main())
