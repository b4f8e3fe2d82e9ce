"""Find a Chromium that starts, for the browser tests; with --install, bring one where there is none.

.venv/bin/python scripts/find_chromium.py [--install]      prints its path
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    "No Chromium that starts was found: install Debian's package `chromium`, or run `python -m playwright install chromium`, "
    "or name one in MODLAB_CHROMIUM."
)


def main() -> None:
    """Print the path, or stop with one sentence."""
    parser = argparse.ArgumentParser(description="Find a Chromium for the browser tests.")
    parser.add_argument("--install", action="store_true", help="bring one if there is none")
    install = parser.parse_args().install
    path = find()
    if path is None and install:
        path = bring()
    if path is None:
        sys.exit(MISSING)
    print(path)


def find() -> Path | None:
    """Return the first Chromium that starts: the one asked for, Playwright's own, the system's."""
    asked = os.environ.get("MODLAB_CHROMIUM")
    if asked:  # whoever names one means that one
        return Path(asked) if starts(Path(asked)) else None
    return next((path for path in candidates() if starts(path)), None)


def candidates() -> Iterator[Path]:
    """Give the paths where a Chromium may be, best first."""
    own = playwrights_own()
    if own is not None:
        yield own
    for name in NAMES:
        path = shutil.which(name, path=f"/usr/bin{os.pathsep}{os.environ.get('PATH', '')}")
        if path:
            yield Path(path)


def playwrights_own() -> Path | None:
    """Return where Playwright puts its download, whether or not it is there; asked in a process of its own, as it wants no event loop."""
    code = "from playwright.sync_api import sync_playwright as s\nwith s() as p: print(p.chromium.executable_path)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return Path(answer.stdout.strip()) if answer.returncode == 0 else None


def starts(path: Path) -> bool:
    """Return whether it runs at all: a stub, or a browser without its libraries, does not."""
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def bring() -> Path | None:
    """Install a Chromium, by Debian's package or else by Playwright's download; return its path."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if root and shutil.which("apt-get"):
        run("apt-get", "update") and run("apt-get", "install", "--yes", "--no-install-recommends", "chromium")
    if find() is None:
        libraries = ["--with-deps"] if root else []
        run(sys.executable, "-m", "playwright", "install", *libraries, "chromium") or run(
            sys.executable, "-m", "playwright", "install", "chromium"
        )
    return find()


def run(*command: str) -> bool:
    """Run a command with its output on stderr, as stdout is for the path; return whether it went well."""
    print("$", " ".join(command), file=sys.stderr, flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, stdout=sys.stderr, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    main()
