"""Install the pinned torch into the interpreter that runs this file, and avoid gigabytes of CUDA where they can be avoided.

    .venv/bin/python scripts/install_torch.py [--cpu-index URL]

pip decides, by its own configuration. Only where it would take a CUDA build and the CPU index answers, torch comes from there; an empty
URL never asks. Whoever wants CUDA runs `make lab TORCH_INDEX=`.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import urllib.request
from importlib import metadata
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
PATIENCE_S = 5


def main() -> None:
    """Install torch, unless the right version is there already."""
    parser = argparse.ArgumentParser(description="Install the pinned torch.")
    parser.add_argument("--cpu-index", default="", metavar="URL", help="taken instead of a CUDA build, if it answers")
    cpu_index = parser.parse_args().cpu_index
    version = pinned("torch")
    if installed("torch") == version:
        return
    renew_pip()
    index = chosen_index(f"torch=={version}", cpu_index)
    print(f"Installing torch {version}" + (f" (CPU build, from {index})" if index else ""), flush=True)
    if pip("install", *index_options(index), f"torch=={version}").returncode:
        sys.exit(f"torch {version} could not be installed: see pip's message above. modlab needs it, for Python 3.11 or newer.")


def pinned(name: str) -> str:
    """Return the version that constraints.txt gives for a package."""
    found = re.search(rf"^{re.escape(name)}==(\S+)", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        sys.exit(f"constraints.txt has no line '{name}==…'; add one with the version to install.")
    return found.group(1)


def installed(name: str) -> str | None:
    """Return the installed version without its local part (`2.13.0+cpu` is 2.13.0), or None."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def renew_pip() -> None:
    """Bring the pinned pip: an older one would download all of CUDA only to say what it would install."""
    if installed("pip") != pinned("pip"):
        pip("install", "--quiet", f"pip=={pinned('pip')}")  # where this fails, the old one does it more slowly


def chosen_index(requirement: str, cpu_index: str) -> str | None:
    """Return the CPU index where it is better than pip's own choice, else None."""
    if not cpu_index or platform.system() == "Darwin" or not would_take_cuda(requirement):
        return None
    if answers(cpu_index):
        return cpu_index
    print(f"{cpu_index} does not answer within {PATIENCE_S} s: torch comes with CUDA, which takes some gigabytes.", flush=True)
    return None


def would_take_cuda(requirement: str) -> bool:
    """Ask pip what it would install; CUDA builds bring packages of NVIDIA's."""
    answer = pip("install", "--dry-run", "--quiet", "--ignore-installed", "--report", "-", requirement, capture=True)
    if answer.returncode:
        return False  # then pip says what is wrong when it installs
    names = [entry["metadata"]["name"].lower() for entry in json.loads(answer.stdout)["install"]]
    return any(name.startswith(("nvidia-", "cuda-")) for name in names)


def answers(index: str) -> bool:
    """Return whether the index has a page for torch, within a few seconds."""
    try:
        with urllib.request.urlopen(f"{index.rstrip('/')}/torch/", timeout=PATIENCE_S) as page:
            return bool(page.status == 200)
    except (OSError, ValueError):  # URLError is an OSError; ValueError: no URL at all
        return False


def index_options(index: str | None) -> list[str]:
    """Return pip's options for one index; that of PyTorch has torch's own dependencies too."""
    return ["--index-url", index] if index else []


def pip(*arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run this interpreter's pip."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, text=True, stdout=subprocess.PIPE if capture else None, check=False)


if __name__ == "__main__":
    main()
