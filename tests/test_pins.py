"""What is pinned in several places is pinned alike, and nothing pinned belongs to one machine."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_constraints_are_exact_and_portable():
    wrong = [line for line in PINS if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)]
    assert not wrong, "each line is name==version, without a URL and without a local version such as +cpu"


def test_binder_takes_the_pinned_versions_and_all_that_modlab_needs():
    environment = (ROOT / "binder" / "environment.yml").read_text(encoding="utf-8")
    taken = re.findall(r"^ +- ([a-z_]+==\S+)", environment, re.MULTILINE)
    assert {line.removesuffix("+cpu") for line in taken} <= set(PINS)
    assert next(line for line in taken if line.startswith("torch==")).endswith("+cpu"), "a CUDA build is some gigabytes"
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert {re.match("[a-z]+", line)[0] for line in needed} <= {line.partition("==")[0] for line in taken}


def test_binder_keeps_the_packages_apart_from_the_content():
    environment = (ROOT / "binder" / "environment.yml").read_text(encoding="utf-8")
    local = [line for line in environment.splitlines() if re.match(r" +- (-[re]|\.|/|file:)", line)]
    assert not local, "with a file of the repository in it, every commit would build the packages anew"
    assert "--no-deps" in (ROOT / "binder" / "postBuild").read_text(encoding="utf-8")


def test_the_lock_file_names_no_registry():
    lock = json.loads((ROOT / "js" / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
