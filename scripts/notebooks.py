"""Execute the notebooks and write them in the form in which they are committed.

    .venv/bin/python scripts/notebooks.py [NOTEBOOK ...]      all of notebooks/ when none is named

Two runs give the same bytes: no times, no widget state, no paths of this machine.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from modlab.lessons import lookup
from modlab.lessons.content import Content

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
INDEX = NOTEBOOKS / "README.md"
INTRODUCTION = """# The course

{number} notebooks about `nn.Module`, {minutes} minutes in all. Each asks before it shows: answer by a click,
run on, and see. Here they stand with their outputs, for readers; `make lab` (or `python -m modlab lessons copy DIR`) gives you
a copy of your own without them. *Binder* starts that copy in your browser, with nothing to install{homeless}.

The exam is [the clinic](../docs/clinic.html): thirty sick trainings, on one page. Buy looks, as few as you need, and
name the cause.

Made by `make notebooks` from what the lessons say of themselves.

| | lesson | minutes | afterwards you can | after | |
|---|---|---|---|---|---|
"""
UNKNOWN = "OWNER/REPO"
MOST_BYTES = 350_000
CELL_TIMEOUT_S = 300

# What a traceback or a warning says about where this machine keeps things.
PATHS = (
    (re.compile(re.escape(tempfile.gettempdir()) + r"/ipykernel_\d+/\d+\.py"), "<cell>"),
    (re.compile(re.escape(sys.prefix) + r"/lib/python[\d.]+/site-packages/"), ""),
    (re.compile(re.escape(sys.base_prefix) + r"/lib/python[\d.]+/"), "python/"),
    (re.compile(re.escape(str(ROOT)) + "/"), ""),
)
KEPT_CELL_METADATA = ("tags", "jupyter", "slideshow")
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},  # the version is no news about a lesson
}


def main() -> None:
    """Renew the notebooks; one that fails is left as it was."""
    parser = argparse.ArgumentParser(description="Execute and normalise the notebooks.")
    parser.add_argument("notebooks", nargs="*", type=Path, help="all of notebooks/ when none is named")
    paths = parser.parse_args().notebooks or sorted(NOTEBOOKS.glob("*.ipynb"))
    if not paths:
        sys.exit("There are no notebooks in notebooks/.")
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of this environment, whatever the user has installed
    failures = [failure for path in paths if (failure := renew(path))]
    INDEX.write_text(index(), encoding="utf-8")
    sys.exit("\n".join(failures) or None)


def repository() -> str:
    """OWNER/REPO, from the one place where it stands."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(settings["tool"]["modlab"]["repository"])


def launch(home: str, name: str) -> str:
    """Where Binder starts the learner's copy of a notebook."""
    return f"https://mybinder.org/v2/gh/{home}/HEAD?urlpath={quote(f'lab/tree/course/{name}', safe='')}"


def index(home: str | None = None) -> str:
    """The course at a glance, as notebooks/README.md holds it."""
    contents, home = lookup.lessons(), home or repository()
    homeless = " (once this copy has a public home: the links lead nowhere yet)" if home == UNKNOWN else ""
    rows = "".join(index_row(content, home) for content in contents)
    minutes = sum(content.minutes for content in contents)
    return INTRODUCTION.format(number=len(contents), minutes=minutes, homeless=homeless) + rows


def index_row(content: Content, home: str) -> str:
    """One line of it."""
    number, *after = (name.partition("_")[0] for name in (content.name, *sorted(content.after)))
    file = f"{content.name}.ipynb"
    told = f"**{content.title}** | {content.minutes} | {content.goal} | {', '.join(after)} | [Binder]({launch(home, file)})"
    return f"| [{number}]({file}) | {told} |\n"


def renew(path: Path) -> str:
    """Execute, normalise and write one notebook; return what went wrong, or ""."""
    notebook = nbformat.reads(json.dumps(with_names(json.loads(path.read_text(encoding="utf-8")))), as_version=4)
    try:
        execute(notebook, path.parent)
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return f"{path.name}: a cell failed (tag it raises-exception if that is meant), the file is unchanged.\n{error}"
    text = normalised(notebook)
    if str(ROOT) in text:
        return f"{path.name}: an output names {ROOT}, which no other machine has; print something else. The file is unchanged."
    if len(text.encode()) > MOST_BYTES:
        return f"{path.name}: {len(text.encode()):,} bytes with outputs, more than {MOST_BYTES:,}; show less. The file is unchanged."
    path.write_text(text, encoding="utf-8")
    print(f"{path.name:<30} {len(text.encode()) / 1000:6.1f} KB", flush=True)
    return ""


def execute(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in a fresh kernel; the outputs are put into the notebook."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    ).execute()


def normalised(notebook: nbformat.NotebookNode) -> str:
    """Return the notebook's text without anything that differs from run to run or from machine to machine."""
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    views = itertools.count(1)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in KEPT_CELL_METADATA if key in cell.metadata})
        for output in cell.get("outputs", []):
            normalise_output(output)
            number_view(output, views)
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def normalise_output(output: dict[str, Any]) -> None:
    """Clean one output in place; text that nbval compares is left as it is."""
    if output["output_type"] == "error":
        output["traceback"] = [without_paths(line) for line in output["traceback"]]
    if output["output_type"] == "stream" and output["name"] == "stderr":
        output["text"] = without_paths(output["text"])
    if "data" in output:
        output["metadata"] = {kind: words for kind, words in output["metadata"].items() if kind.startswith("image/")}


def number_view(output: dict[str, Any], views: Iterator[int]) -> None:
    """Give a widget's output a number for its random id: without state in the file the id leads nowhere anyway."""
    view = output.get("data", {}).get("application/vnd.jupyter.widget-view+json")
    if view is not None:
        view["model_id"] = f"{next(views):032x}"


def without_paths(text: str) -> str:
    """Shorten paths to what is the same everywhere."""
    for path, short in PATHS:
        text = path.sub(short, text)
    return text


def with_names(content: dict[str, Any]) -> dict[str, Any]:
    """Give each cell of a notebook's JSON an id that stays: its own, or one made from its source (nbformat would draw one by chance)."""
    taken: set[str] = set()
    for cell in content["cells"]:
        source = "".join(cell["source"])
        wanted = cell.get("id") or f"cell-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
        name = next(name for name in (wanted, *(f"{wanted}-{copy}" for copy in range(2, 10_000))) if name not in taken)
        taken.add(name)
        cell["id"] = name
    return content | {"nbformat": 4, "nbformat_minor": 5}


if __name__ == "__main__":
    main()
