"""Run all checks, or the sections named, each timed; a failure does not keep the others from running.

    .venv/bin/python scripts/checks.py [lint] [front-end] [units] [notebooks] [browser] [long]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Tests run on two cores, or up to four; each test process then has torch's work to itself. Fewer of them: MODLAB_WORKERS=1.
WORKERS = os.environ.get("MODLAB_WORKERS") or str(min(max(os.cpu_count() or 2, 2), 4))
PYTEST = (sys.executable, "-m", "pytest", "--durations=15", "-n", WORKERS, "--dist")    # what takes long is told
QUICK = ("-p", "no:nbval")    # takes two seconds to load
NBVAL = ("--nbval", "--nbval-current-env", "--nbval-cell-timeout", "120")

# section: (folder, commands); what only reads comes first, the browser last
SECTIONS: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "lint": (".", [(sys.executable, "-m", "ruff", "check", "."), (sys.executable, "-m", "mypy")]),
    "front-end": ("js", [("npm", "ci"), ("npm", "run", "typecheck"), ("npm", "test"), ("npm", "run", "check")]),
    "units": (".", [(*PYTEST, "worksteal", *QUICK, "--doctest-modules", "modlab", "tests", "--ignore=tests/browser")]),
    "notebooks": (".", [(*PYTEST, "loadfile", *NBVAL, "notebooks")]),    # a notebook's cells need one another
    "browser": (".", [(*PYTEST, "worksteal", *QUICK, "tests/browser")]),
}
# What takes longer than a check may (make test-long): asked for by name alone.
ON_REQUEST: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "long": (".", [(*PYTEST, "worksteal", *QUICK, "-m", "long", "tests")]),
}
ENVIRONMENT = {
    "MODLAB_REQUIRE_BROWSER": "1",
    "OMP_NUM_THREADS": "1",    # the tests share the cores; threads that wait for each other do not
    "MKL_NUM_THREADS": "1",
}


def main() -> None:
    """Run the sections and say at the end how each went."""
    parser = argparse.ArgumentParser(description="Run all checks, or the sections named.")
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join({**SECTIONS, **ON_REQUEST}))
    names = parser.parse_args().sections or list(SECTIONS)
    unknown = [name for name in names if name not in SECTIONS and name not in ON_REQUEST]
    if unknown:
        sys.exit(f"There is no section {unknown[0]!r}; the sections are {', '.join({**SECTIONS, **ON_REQUEST})}.")
    report = [timed(name) for name in names]
    print("\nmodlab's checks")
    for name, seconds, failed in report:
        print(f"  {name:<10} {seconds:6.1f} s  {'FAILED: ' + failed if failed else 'ok'}")
    sys.exit(any(failed for _, _, failed in report))


def timed(name: str) -> tuple[str, float, str]:
    """Run one section; give its name, its seconds and the command that failed ("" if none did)."""
    folder, commands = SECTIONS.get(name) or ON_REQUEST[name]
    start = time.monotonic()
    failed = next((" ".join(command) for command in commands if not passes(command, ROOT / folder)), "")
    return name, time.monotonic() - start, failed.replace(sys.executable, "python")


def passes(command: tuple[str, ...], folder: Path) -> bool:
    """Run one command and return whether it succeeded."""
    print(f"\n$ {' '.join(command).replace(sys.executable, 'python')}", flush=True)
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode == 0


if __name__ == "__main__":
    main()
