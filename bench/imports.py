"""What ``import modlab`` adds to ``import torch``, in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

from bench import report
from bench.report import Target

CODE = """
import json, time
import torch
before = time.process_time(), time.perf_counter()
import modlab
print(json.dumps([time.process_time() - before[0], time.perf_counter() - before[1], *before[:1]]))
"""


def run(quick: bool) -> list[Target]:
    report.heading("Import: what modlab adds to torch")
    runs = [_once() for _ in range(3 if quick else 5)]
    cpu, wall, torch = (median(column) for column in zip(*runs, strict=True))
    ours = ("import modlab after it", report.seconds(cpu), report.seconds(wall))
    report.table(("", "CPU", "wall"), [("import torch", report.seconds(torch), "-"), ours])
    report.note(f"Medians of {len(runs)} fresh processes; CPU times of modlab: {', '.join(report.seconds(run[0]) for run in runs)}.")
    return [Target("import modlab beyond torch", 50, cpu * 1e3, "ms")]


def _once() -> list[float]:
    answer = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)
