"""The built wheel works with torch and numpy alone, as on a cluster node; with the extra ``lab`` it has the course in it."""

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = [Requirement(text).name for text in PROJECT["dependencies"]]
EXTRA = {extra: [Requirement(text).name for text in texts] for extra, texts in PROJECT["optional-dependencies"].items()}

SCRIPT = """
import sys, torch, modlab

def refused(ask, package):
    try:
        ask()
    except modlab.ModlabError as error:
        assert package in str(error) and "install" in str(error), str(error)
    else:
        raise AssertionError(f"{ask.__qualname__} worked without {package}")

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
for result in (modlab.tree(model), modlab.state(model), modlab.measure(torch.arange(6.0))):
    assert result.headline in str(result), str(result)
    assert "<" in result.html() and "<" in result._repr_html_()
    assert result.to_dict()
    refused(result.widget, "anywidget")
for result in (modlab.tree(model), modlab.measure(torch.arange(6.0))):
    refused(result.figure, "matplotlib")
refused(modlab.tree(model).to_pandas, "pandas")
print("modlab is in", modlab.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    [built] = folder.glob("modlab-*.whl")
    return built


@pytest.fixture(scope="module")
def bare_python(wheel, tmp_path_factory) -> Path:
    """An interpreter that sees modlab's wheel, torch, numpy and what torch requires."""
    return installed(wheel, tmp_path_factory.mktemp("bare"), "torch", "numpy")


def installed(wheel: Path, folder: Path, *names: str) -> Path:
    """The interpreter of a new environment with modlab's wheel, these distributions and what they require."""
    python = empty(folder, *names)
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    return python


def empty(folder: Path, *names: str) -> Path:
    """The interpreter of a new environment with these distributions and what they require, and nothing else."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
    for distribution in needed_by(*names):
        link(distribution, site)
    return python


def needed_by(*names: str) -> list[metadata.Distribution]:
    """The installed distributions of these names and of all they require here, without extras."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in found:
            continue
        found[name] = metadata.distribution(name)
        requirements = [Requirement(text) for text in found[name].requires or []]
        waiting += [need.name for need in requirements if need.marker is None or need.marker.evaluate({"extra": ""})]
    return list(found.values())


def link(distribution: metadata.Distribution, site: Path) -> None:
    """Show a distribution's folders and files in another environment, without a copy."""
    tops = {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())


def run(*command: str | Path) -> str:
    """Run a command away from the sources; its output goes into the failure."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=Path(sys.prefix), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_wheel_holds_what_python_needs(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    bundles = {f"modlab/views/static/{name}.js" for name in ("still", "sheet", "watch", "live", "loader")}
    assert {"modlab/py.typed", *bundles} <= names
    assert not [name for name in names if not name.startswith(("modlab/", "modlab-"))]


@pytest.mark.parametrize("name", ["anywidget", "ipywidgets", "matplotlib", "IPython", "pandas"])
def test_the_bare_environment_is_bare(bare_python, name):
    code = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
    assert run(bare_python, "-I", "-c", code).strip() == "None"


def test_text_and_html_work_and_the_rest_says_what_to_install(bare_python):
    assert str(bare_python.parent.parent) in run(bare_python, "-I", "-W", "error", "-c", SCRIPT).splitlines()[-1]


def test_the_course_comes_with_the_wheel_and_passes_nbval(wheel, tmp_path):
    python = installed(wheel, tmp_path / "lab", *REQUIRED, *EXTRA["lab"])
    said = run(python, "-I", "-m", "modlab", "lessons", "copy", tmp_path / "mine")
    assert f"{len(list(NOTEBOOKS.glob('*.ipynb')))} new" in said, said
    assert {file.name for file in (tmp_path / "mine").iterdir()} == {file.name for file in NOTEBOOKS.glob("*.ipynb")}  # and no answers
    assert "01_a_module" in run(python, "-I", "-m", "modlab", "lessons", "list")
    options = ("--nbval-lax", "--nbval-current-env", "-p", "no:cacheprovider", "-c", os.devnull)
    assert " passed" in run(python, "-I", "-m", "pytest", "-q", *options, tmp_path / "mine" / "01_a_module.ipynb")
