"""Run all checks, or the sections named, each timed; a failure does not keep the others from running.

.venv/bin/python scripts/checks.py [lint] [front-end] [units] [notebooks] [browser] [long] [device]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Tests run on two cores, or up to four; each test process then has torch's work to itself. Fewer of them: MODLAB_WORKERS=1.
WORKERS = os.environ.get("MODLAB_WORKERS") or str(min(max(os.cpu_count() or 2, 2), 4))
PYTEST = (sys.executable, "-m", "pytest", "--durations=15", "-n", WORKERS, "--dist")  # what takes long is told
# nbval takes two seconds to load; to catch what is logged, around each test, a millisecond: 43 loggers, and no test asks for it.
QUICK = ("-p", "no:nbval", "-p", "no:logging")
NBVAL = ("--nbval",)

# section: (folder, commands); what only reads comes first, the browser last
SECTIONS: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "lint": (
        ".",
        [
            (sys.executable, "-m", "ruff", "check", "."),
            (sys.executable, "-m", "ruff", "format", "--check", "."),
            (sys.executable, "-m", "mypy"),
        ],
    ),
    "front-end": ("js", [("npm", "ci"), ("npm", "run", "typecheck"), ("npm", "test"), ("npm", "run", "check")]),
    "units": (".", [(*PYTEST, "worksteal", *QUICK, "--doctest-modules", "modlab", "tests", "--ignore=tests/browser")]),
    "notebooks": (".", [(*PYTEST, "loadfile", *NBVAL, "notebooks")]),  # a notebook's cells need one another
    "browser": (".", [(*PYTEST, "worksteal", *QUICK, "tests/browser")]),
}
BESIDE = ("lint", "front-end")  # most of what they do keeps one core busy: they run beside each other
# What takes longer than a check may (make test-long, make test-device): asked for by name alone.
ON_REQUEST: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "device": (".", [(*PYTEST, "worksteal", *QUICK, "tests/on_device.py"), (sys.executable, "-m", "scripts.device_course")]),
    "long": (".", [(*PYTEST, "worksteal", *QUICK, "-m", "long", "tests")]),
}
ENVIRONMENT = {
    "MODLAB_REQUIRE_BROWSER": "1",
    "OMP_NUM_THREADS": "1",  # the tests share the cores; threads that wait for each other do not
    "MKL_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # where it is set, each of the many processes compiles modlab and the tests anew
}


def main() -> None:
    """Run the sections and say at the end how each went."""
    parser = argparse.ArgumentParser(description="Run all checks, or the sections named.")
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join({**SECTIONS, **ON_REQUEST}))
    names = parser.parse_args().sections or list(SECTIONS)
    unknown = [name for name in names if name not in SECTIONS and name not in ON_REQUEST]
    if unknown:
        sys.exit(f"There is no section {unknown[0]!r}; the sections are {', '.join({**SECTIONS, **ON_REQUEST})}.")
    report = list(reports(names))
    print("\nmodlab's checks")
    for name, seconds, failed in report:
        print(f"  {name:<10} {seconds:6.1f} s  {'FAILED: ' + failed if failed else 'ok'}")
    sys.exit(any(failed for _, _, failed in report))


def reports(names: list[str]) -> Iterator[tuple[str, float, str]]:
    """Run the sections: first those that run beside each other, then one after the other."""
    with ThreadPoolExecutor() as threads:
        yield from threads.map(timed, [name for name in names if name in BESIDE])
    yield from (timed(name) for name in names if name not in BESIDE)


def timed(name: str) -> tuple[str, float, str]:
    """Run one section; give its name, its seconds and the command that failed ("" if none did)."""
    passes = at_once if name in BESIDE else as_it_comes
    folder, commands = SECTIONS.get(name) or ON_REQUEST[name]
    start = time.monotonic()
    failed = next((" ".join(command) for command in commands if not passes(command, ROOT / folder)), "")
    return name, time.monotonic() - start, failed.replace(sys.executable, "python")


def as_it_comes(command: tuple[str, ...], folder: Path) -> bool:
    """Run one command, and return whether it succeeded; what it says is shown while it runs."""
    print(headed(command), flush=True)
    return subprocess.run(command, cwd=folder, env={**os.environ, **ENVIRONMENT}, check=False).returncode == 0


def at_once(command: tuple[str, ...], folder: Path) -> bool:
    """Run one command, and return whether it succeeded; what it says is shown when it has ended, not mixed with another's."""
    environment = {**os.environ, **ENVIRONMENT}
    ran = subprocess.run(command, cwd=folder, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"{headed(command)}\n{ran.stdout}", end="", flush=True)
    return ran.returncode == 0


def headed(command: tuple[str, ...]) -> str:
    """The line above what a command says."""
    return f"\n$ {' '.join(command).replace(sys.executable, 'python')}"


if __name__ == "__main__":
    main()
