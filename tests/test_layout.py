"""The layers of modlab hold: imports go down only, and `import modlab` brings torch and nothing heavier."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch

import modlab

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "modlab"
FILES = sorted(PACKAGE.rglob("*.py"))

PLAIN = {"errors", "files", "format", "frozen", "records", "version"}  # know no torch
BASE = PLAIN | {"compat"}
WORK = BASE | {"statistics", "inspection", "running"}
BELOW_RESULTS = WORK | {"explaining", "tracing", "comparing", "diagnosing", "forking", "watching", "wording", "views", "causes"}
ALL = BELOW_RESULTS | {"results", "lessons", "runs", "modlab"}
# layer: what it may import besides itself; "modlab" is the package's own __init__, the public names
ALLOWED = {
    "errors": PLAIN,
    "files": PLAIN,
    "format": PLAIN,
    "frozen": PLAIN,
    "records": PLAIN,
    "version": PLAIN,
    "compat": BASE,
    "statistics": BASE,
    "inspection": BASE | {"statistics"},
    "running": BASE | {"statistics", "inspection"},
    "causes": PLAIN,
    "explaining": WORK | {"wording"},  # for what is said of a value
    "tracing": WORK | {"explaining", "wording"},
    "comparing": WORK | {"tracing", "wording"},
    "diagnosing": WORK | {"explaining", "tracing", "comparing", "watching", "causes", "wording"},
    "forking": WORK | {"tracing"},
    "watching": WORK | {"tracing", "comparing", "forking", "wording", "causes"},  # wording: for its alerts and verdict
    "wording": PLAIN,
    "views": PLAIN | {"wording"},
    "results": BELOW_RESULTS,
    "testing": BELOW_RESULTS | {"results"},
    "lessons": ALL,
    "runs": ALL,
    "__main__": ALL,
    "modlab": ALL,
}
NO_TORCH = {"causes", "errors", "files", "format", "frozen", "records", "version", "views", "wording"}
HEAVY = ("anywidget", "ipywidgets", "matplotlib", "IPython", "pandas", "pyarrow")
DRAWERS = {"utils", "util", "helpers", "misc", "common"}


def layer_of(path: Path) -> str:
    """The first name below the package: a folder's, or a file's own."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "modlab" if first == "__init__" else first


def imported_names(path: Path) -> Iterator[str]:
    """The full dotted name of each import in a file, wherever it stands and for whatever purpose."""
    package = ("modlab", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), path.name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*start, *filter(None, [node.module])))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imported_layers(path: Path) -> Iterator[str]:
    for name in imported_names(path):
        if name.partition(".")[0] == "modlab":
            first = [*name.split("."), ""][1]
            yield first if first in ALLOWED else "modlab"


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=label)
def test_imports_go_down(path):
    layer = layer_of(path)
    assert layer in ALLOWED, f"{label(path)} is in no layer: put it into one, or give it one in {Path(__file__).name}"
    wrong = sorted(set(imported_layers(path)) - ALLOWED[layer] - {layer})
    assert not wrong, f"{label(path)} imports {wrong}; the layer {layer!r} may import {sorted(ALLOWED[layer])}"


@pytest.mark.parametrize("path", [path for path in FILES if layer_of(path) in NO_TORCH], ids=label)
def test_what_knows_records_alone_knows_no_torch(path):
    roots = {name.partition(".")[0] for name in imported_names(path)}
    assert "torch" not in roots, f"{label(path)} imports torch; only extraction touches it, and puts plain numbers into records"


def name_of(path: Path) -> str:
    """A file's name for imports."""
    return ".".join(("modlab", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def imported_files(files: list[Path]) -> dict[str, set[str]]:
    """For each file, the others that it imports, at its top, for types alone or within a function; the package's public names apart."""
    found: dict[str, set[str]] = {name_of(path): set() for path in files}
    for path in files:
        for name in imported_names(path):
            while name and name not in found:
                name = name.rpartition(".")[0]
            if name not in ("", "modlab", name_of(path)):
                found[name_of(path)].add(name)
    return found


def circles(graph: dict[str, set[str]]) -> list[str]:
    """What is left when files that import nothing that is left are taken away, and then those that nobody left imports."""
    left = {name: set(graph[name]) for name in graph}
    for forth in (left, {name: {one for one in graph if name in graph[one]} for name in graph}):
        while alone := [name for name in left if not forth[name] & left.keys()]:
            for name in alone:
                del left[name]
    return sorted(left)


def test_no_files_import_each_other_in_a_circle():
    found = circles(imported_files(FILES))
    assert not found, f"{found} lie in circles: a part takes what it needs, or a Protocol of that, and not what owns it"


@pytest.mark.parametrize(
    "text",
    ["import modlab.b", "from modlab.b import x", "if TYPE_CHECKING:\n    from modlab.b import x", "def f():\n    from . import b"],
)
def test_a_circle_is_seen_wherever_the_import_stands(text, tmp_path, monkeypatch):
    files = [tmp_path / "modlab" / name for name in ("a.py", "b.py", "below.py", "above.py")]
    files[0].parent.mkdir()
    for path, words in zip(files, (text, "from modlab.a import x\nimport modlab.below", "", "import modlab.a"), strict=True):
        path.write_text(words)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "modlab")
    assert circles(imported_files(files)) == ["modlab.a", "modlab.b"]


def test_there_is_no_drawer():
    drawers = [label(path) for path in PACKAGE.rglob("*") if path.stem in DRAWERS]
    assert not drawers, f"{drawers}: a file is named by the noun it is about"


PYTORCH = (torch, torch.nn, torch.nn.Module, torch.Tensor, torch.nn.utils, torch.autograd, torch.optim.Optimizer, torch.utils.data)
ENDINGS = ("ations", "ation", "ings", "ies", "ing", "ions", "ion", "ed", "es", "s", "y", "e")


def root_of(word: str) -> str:
    """A word without its ending: ``hooks``, ``hooking``, ``hooked`` are one."""
    word = word.lower()
    return next((word.removesuffix(one) for one in ENDINGS if word.endswith(one) and len(word) - len(one) >= 3), word)


def roots_in(names: Iterable[str]) -> set[str]:
    return {root_of(word) for name in names for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


TERMS = roots_in(name for thing in PYTORCH for name in dir(thing) if not name.startswith("_")) | roots_in(modlab.__all__)


def coined(stem: str, docstring: str) -> list[str]:
    """The words of a file's name that are neither PyTorch's nor a public name of ours, and that its docstring does not explain."""
    said = {root[:5] for root in roots_in(re.findall(r"\w+", docstring))}
    return [word for word in stem.split("_") if root_of(word) not in TERMS and root_of(word)[:5] not in said]


@pytest.mark.parametrize("path", [path for path in FILES if not path.stem.startswith("__")], ids=label)
def test_a_file_s_docstring_explains_its_name(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    unexplained = coined(path.stem, docstring)
    assert not unexplained, (
        f"{label(path)}: {unexplained} is no word of PyTorch's; its docstring, {docstring[:60]!r} …, must say what it is"
    )


def test_a_coined_name_is_seen():
    assert coined("hooks", "") == coined("light_samples", "Samples that are light.") == []
    assert coined("hideouts", "Where modules are hidden.") == ["hideouts"]
    assert coined("glance_cache", "A cache.") == ["glance"]


def twins(files: list[Path]) -> list[str]:
    """Classes that have the name of another one which they do not derive from."""
    found: dict[str, list[ast.ClassDef]] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    named = {
        name: sum(name not in {ast.unparse(base).rpartition(".")[2] for base in one.bases} for one in all_) for name, all_ in found.items()
    }
    return sorted(name for name, times in named.items() if times > 1)


def test_a_class_name_stands_for_one_idea(tmp_path):
    """A result may have the name of the record that it derives from."""
    assert not twins(FILES)
    (tmp_path / "a.py").write_text("class A: ...\nclass B: ...\nclass C: ...")
    (tmp_path / "b.py").write_text("class A(records.A): ...\nclass B(A): ...")
    assert twins([tmp_path / "a.py", tmp_path / "b.py"]) == ["B"]


def test_import_brings_nothing_heavy():
    code = f"import sys, modlab; print([name for name in {HEAVY} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("file", "line", "name"),
    [
        ("views/html.py", "from ..records import Node", "modlab.records.Node"),
        ("views/html.py", "from . import text", "modlab.views.text"),
        ("records/structure.py", "from ...x import y", "x.y"),
        ("errors.py", "from . import format", "modlab.format"),
        ("errors.py", "import torch.nn as nn", "torch.nn"),
        ("__init__.py", "from .results.tree import tree", "modlab.results.tree.tree"),
    ],
)
def test_the_reader_of_imports_reads_them_right(file, line, name, tmp_path, monkeypatch):
    path = tmp_path / "modlab" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line)
    monkeypatch.setattr(sys.modules[__name__], "PACKAGE", tmp_path / "modlab")
    assert list(imported_names(path)) == [name]


READERS = frozenset({"clone", "copy_", "item", "tolist", "dequantize", "to_dense", "equal", "isnan", "any", "isfinite"})
"""Calls that read a tensor's memory, or may."""
WORKERS = ("statistics", "inspection", "running", "explaining", "tracing", "comparing", "diagnosing", "forking", "watching")
"""Layers that meet tensors."""

GATES = ("modlab.statistics.memory", "modlab.watching.finiteness", "modlab.watching.elements")
BLIND = {
    **dict.fromkeys(
        (
            "running/loss_graph.py",
            "running/pair_losses.py",
            "running/written_criteria.py",
            "running/composed_criteria.py",
            "running/gains.py",
            "watching/attention_clues.py",
        ),
        "what autograd_nodes.saved gives, which asks",
    ),
    **dict.fromkeys(
        (f"watching/{name}.py" for name in ("gradient_clues", "index_choices", "module_clues", "rewritten_weights", "same_answers")),
        "what pools.is_readable lets through, which asks",
    ),
    "comparing/divergence.py": "what a pass gave, as copies that the shelf made",
    **dict.fromkeys(
        (
            f"diagnosing/{name}.py"
            for name in (
                "causality",
                "collapse",
                "embeddings",
                "input_scale",
                "layers_in_training",
                "lost_gradients",
                "neighbours",
                "order",
                "padding",
                "recurrence",
                "sequences",
                "gradcheck",
                "symmetry",
                "target_alignment",
            )
        ),
        "tensors of a model and a batch that are all there: series.py asks",
    ),
    "watching/watched.py": "which slices had a gradient, an array of the watch's own",
    "statistics/accelerator.py": "the parts that contents found to be there",
    "watching/readback.py": "what was computed by a watch, in memory of its own",
    "watching/segments.py": "numbers that were joined, in memory of their own",
}
"""Files that read no tensor of the user's, though they have such calls, and what they read."""


def calls_of(path: Path) -> set[str]:
    """The names of the methods and functions of a module that a file calls, where it knows torch."""
    tree = ast.parse(path.read_text(encoding="utf-8"), path.name)
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return {one.attr for one in called if not (isinstance(one.value, ast.Name) and one.value.id in ("math", "np", "copy"))}


@pytest.mark.parametrize("path", [path for path in FILES if layer_of(path) in WORKERS], ids=label)
def test_who_reads_tensors_asks_whether_their_memory_is_there(path):
    names = set(imported_names(path))
    if not any(name == "torch" or name.startswith("torch.") for name in names) or str(path.relative_to(PACKAGE)) in BLIND:
        return
    read = calls_of(path) & READERS
    gated = path.name == "memory.py" or any(name.startswith(GATES) for name in names)
    assert not read or gated, f"{label(path)} calls {sorted(read)}: ask statistics.memory.is_there first, or say in BLIND what it reads"


WORDS = {"note", "text", "said", "what", "why", "reason", "headline", "sentence", "told", "message_text"}
"""What fields and variables are called that hold sentences."""
CUTS = {"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split", "replace"}
FORMATS = ("format", "headline_words")
"""Files that are about text as text."""


def last_name(node: ast.AST) -> str:
    """``note`` of ``row.note``, ``note`` and ``note[0]``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def read_out_of_prose(source: str) -> Iterator[int]:
    """The lines in which code takes a sentence apart, or looks for words in one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = node.func.attr in CUTS and last_name(node.func.value) in WORDS
        elif isinstance(node, ast.Compare) and any(isinstance(one, (ast.In, ast.NotIn)) for one in node.ops):
            found = any(isinstance(one, ast.Attribute) and one.attr in WORDS for one in node.comparators)
        else:
            continue
        if found:
            yield node.lineno


@pytest.mark.parametrize("path", [path for path in FILES if layer_of(path) != "lessons" and path.stem not in FORMATS], ids=label)
def test_no_fact_is_read_out_of_a_sentence(path):
    lines = sorted(set(read_out_of_prose(path.read_text(encoding="utf-8"))))
    assert not lines, f"{label(path)}, lines {lines}: let the record carry the fact, and make the sentence of it at the end"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("row.note.startswith('stays ')", True),
        ("note[0].partition(':')", True),
        ("'never called' in one.reason", True),
        ("'never called' not in one.reason", True),
        ("row.path.startswith('a.')", False),
        ("row.kind in KINDS", False),
        ("note = f'{note}, and more'", False),
    ],
)
def test_the_reader_of_prose_is_found(line, found):
    assert bool([*read_out_of_prose(line)]) is found


def walks() -> dict[str, list[tuple[str, str]]]:
    """Those of docs/architecture.md: by title, file and name of each step."""
    section = (ROOT / "docs" / "architecture.md").read_text().split("## Three walks")[1].split("\n## ")[0]
    parts = re.split(r"^\*(.+)\*$", section, flags=re.MULTILINE)
    return {
        title: re.findall(r"^\d+\. `(\S+)` · `(\w+)`", steps, flags=re.MULTILINE)
        for title, steps in zip(parts[1::2], parts[2::2], strict=True)
    }


@pytest.mark.parametrize("title", walks())
def test_a_walk_of_the_docs_goes_through_rooms_that_are_there(title):
    steps = walks()[title]
    assert len(steps) == 10 and len({file for file, _ in steps}) == 10
    for file, name in steps:
        body = ast.parse((PACKAGE / file).read_text()).body
        assert name in {one.name for one in body if isinstance(one, (ast.ClassDef, ast.FunctionDef))}, f"{file} has no {name}"
