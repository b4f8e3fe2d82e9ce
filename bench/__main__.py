"""``python -m bench [section …] [--quick]``: print modlab's figures beside those of the alternatives that are installed."""

from __future__ import annotations

import argparse
import os
import platform
import time
import warnings
from importlib import import_module
from pathlib import Path

import torch

import modlab
from bench import peers, report

SECTIONS = {
    "tree": "trees",
    "counts": "counts",
    "measure": "tensors",
    "trace": "traces",
    "watch": "loops",
    "keep": "keeping",
    "import": "imports",
    "first": "first_calls",
    "browser": "pages",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure modlab beside the alternatives that are installed.")
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; all of them if none is named")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and 5 s for each tool on the large model")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.sections) - set(SECTIONS))
    if unknown:
        parser.error(f"there is no section {', '.join(unknown)}; there are: {', '.join(SECTIONS)}")
    if not hasattr(os, "fork"):
        parser.exit(message="The benchmarks fork, which this system cannot: run them on Linux or macOS.\n")
    start = time.monotonic()
    _say_where()
    warnings.simplefilter("ignore")
    targets = []
    for section in arguments.sections or SECTIONS:
        try:
            targets += import_module(f"bench.{SECTIONS[section]}").run(arguments.quick)
        except Exception as error:  # noqa: BLE001 - the other sections still have something to say
            report.note(f"This section ended early: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
    if targets:
        report.targets(targets)
    print(f"{time.monotonic() - start:.0f} s in all.")


def _say_where() -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    versions = f"modlab {modlab.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{versions}; {_processor()}, {os.cpu_count()} cores, load {load:.1f}")
    missing = peers.missing()
    if missing:
        print(f"not installed: pip install {' '.join(missing)}")
    print(flush=True)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
