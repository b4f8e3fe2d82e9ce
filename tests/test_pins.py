"""What is pinned in several places is pinned alike, and nothing pinned belongs to one machine."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_constraints_are_exact_and_portable():
    wrong = [line for line in PINS if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)]
    assert not wrong, "each line is name==version, without a URL and without a local version such as +cpu"


def test_binder_takes_the_pinned_torch():
    [torch] = [line for line in PINS if line.startswith("torch==")]
    assert f"{torch}+cpu" in (ROOT / "binder" / "environment.yml").read_text(encoding="utf-8")


def test_the_lock_file_names_no_registry():
    lock = json.loads((ROOT / "js" / "package-lock.json").read_text(encoding="utf-8"))
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
