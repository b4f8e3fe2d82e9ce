"""A result as a page of its own: one file that needs no kernel and no network."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from modlab import files, format
from modlab.errors import SaveError

SUFFIXES = (".html", ".htm")
_STYLE = (
    ":root{color-scheme:light dark}body{margin:0 auto;padding:1rem;max-width:100rem;background:#fff;color:#1b1f24;"
    'font:14px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}'
    "@media(prefers-color-scheme:dark){body{background:#16191d;color:#e6e9ed}.modlab-static img{filter:brightness(1.15)}}"
    "@media(max-width:500px){body{padding:.25rem}}"
    "h1{position:absolute;clip-path:inset(50%);width:1px;height:1px;margin:0;overflow:hidden;white-space:nowrap}"
)


def target(path: object) -> Path:
    """The file that a page can be written to.

    Raises:
        SaveError: it is a folder, has another suffix, or its folder is not there.
    """
    if not isinstance(path, (str, os.PathLike)) or isinstance(os.fspath(path), bytes):
        raise SaveError(f'save() got {format.cut(repr(path), 80)}, but takes the name of a file: save("run.html")')
    found = Path(path).expanduser()
    if found.is_dir():
        inside = str(found / "run.html")
        raise SaveError(f"{found} is a folder, but save() needs the name of a file in it.\n  Save a file: save({inside!r})")
    if found.suffix.lower() not in SUFFIXES:
        other = repr(str(found.with_suffix(".html"))) if found.name else "'run.html'"
        what = f"a file {found.suffix!r}" if found.suffix else "a file without a suffix"
        raise SaveError(f"save() writes a page, not {what}: {found}\n  Give it the suffix .html: save({other})")
    if not found.parent.is_dir():
        raise SaveError(f"The folder of {found} does not exist.\n  Create it: pathlib.Path({str(found.parent)!r}).mkdir(parents=True)")
    return found


def write(path: Path, kind: str, title: str, body: str) -> None:
    """Write a page: whole, or not at all.

    Args:
        path: where.
        kind: of the view: its heading, for who goes from heading to heading. Those who see the view see it there.
        title: of the page.
        body: the view.
    """
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(format.cut(format.clean(title), 200))}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n<h1>modlab {escape(kind)}</h1>\n"
    )
    files.write(path, f"{head}{body}\n</main>\n</body>\n</html>\n")
