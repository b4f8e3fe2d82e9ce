"""What ``import modlab`` adds to ``import torch``, and what its functions load when they are first named; in fresh processes."""

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
times = [time.process_time()]
import modlab
times.append(time.process_time())
modlab.tree, modlab.state, modlab.measure
times.append(time.process_time())
print(json.dumps(times))
"""


def run(quick: bool) -> list[Target]:
    report.heading("Import: what modlab adds to torch")
    runs = [_once() for _ in range(3 if quick else 5)]
    columns = {
        "import torch": [torch for torch, _, _ in runs],
        "import modlab after it": [ours - torch for torch, ours, _ in runs],
        "its functions, when first named": [named - ours for _, ours, named in runs],
    }
    rows = [(name, *(report.seconds(some(times)) for some in (median, min, max))) for name, times in columns.items()]
    report.table((f"{len(runs)} fresh processes, CPU time", "median", "least", "most"), rows)
    _, ours, named = (median(times) * 1e3 for times in columns.values())
    return [Target("import modlab beyond torch", 50, ours, "ms"), Target("the same, with its functions", 50, ours + named, "ms")]


def _once() -> list[float]:
    answer = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)
