"""What the first call of each verb costs in a fresh process, as a share of the CPU time of ``import torch`` there.

``import modlab`` and the call's text count with it; a watch is opened, sees one step, and is closed. Before, one step has trained and
one call has failed, so that nothing counts that torch does for the first time. Bytecode is cached: one process goes first, uncounted.
And what later explanations cost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from statistics import median

from bench import clock, report
from bench.questions import failure
from bench.report import Target

LIMIT = 0.06
SETUP = """
import contextlib, io, json, sys, time
start = time.process_time()
import torch
share = time.process_time() - start
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l0, self.act, self.l1 = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)
    def forward(self, x):
        return self.l1(self.act(self.l0(x)))
net, x, y, loss = Net(), torch.randn(4, 8), torch.randint(3, (4,)), nn.functional.cross_entropy
optimizer = torch.optim.Adam(net.parameters())
def step():
    optimizer.zero_grad()
    loss(net(x), y).backward()
    optimizer.step()
step()
try:
    net(torch.randn(4, 9))
except RuntimeError as caught:
    error = caught
before = {*sys.modules}
start = time.process_time()
with contextlib.redirect_stdout(io.StringIO()):
    import modlab
"""
END = """
took = time.process_time() - start
print(json.dumps([share, took, len([name for name in {*sys.modules} - before if name.partition(".")[0] == "modlab"])]))
"""
CALLS = {
    "tree": "str(modlab.tree(net))",
    "state": "str(modlab.state(net))",
    "hooks": "str(modlab.hooks(net))",
    "internals": "str(modlab.internals(net))",
    "snapshot": "str(modlab.snapshot(net))",
    "explain": "str(modlab.explain(error))",
    "compare": "str(modlab.compare(net)(x))",
    "trace, one step": "with modlab.trace(net) as t: step()\n    str(t)",
    "diagnose": "str(modlab.diagnose(net))",
    "diagnose, with a batch": "str(modlab.diagnose(net, optimizer, batch=(x, y), loss=loss))",
    "watch, one step": "w = modlab.watch(net, optimizer); step(); w.close()",
}
EVERYDAY = {
    "a layer's width": "nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(4, 2))(torch.zeros(2, 4))",
    "sizes": "torch.zeros(2, 3) + torch.zeros(2, 4)",
    "channels last": "nn.Conv2d(3, 8, 3)(torch.zeros(1, 32, 32, 3))",
    "a class out of range": "F.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 3]))",
    "a target's dtype": "F.cross_entropy(torch.zeros(2, 3), torch.zeros(2, 1))",
    "an index's dtype": "nn.Embedding(5, 2)(torch.zeros(2))",
    "an index out of range": "nn.Embedding(5, 2)(torch.tensor([7]))",
    "two dtypes": "nn.Linear(4, 3)(torch.zeros(2, 4).double())",
    "two devices": "nn.Linear(4, 3)(torch.zeros(2, 4, device='meta'))",
    "backward of many": "nn.Linear(4, 3)(torch.zeros(2, 4)).backward()",
    "no gradient": "torch.zeros(1).backward()",
    "a missing argument": "nn.LSTM(4, 3)()",
    "a checkpoint": "nn.Linear(4, 3).load_state_dict(nn.Linear(5, 3).state_dict())",
    "a wrong name": "nn.Linear(4, 3).wieght",
    "no parameters": "torch.optim.SGD(nn.ReLU().parameters(), lr=0.1)",
    "an unknown option": "nn.Linear(4, 3, baias=True)",
}


def run(quick: bool) -> list[Target]:
    report.heading("The first call of a process")
    with tempfile.TemporaryDirectory() as cache:
        found = {name: _measured(code, cache, 3 if quick else 7) for name, code in CALLS.items()}
    rows = []
    for name, runs in found.items():
        shares = [took / share for share, took, _ in runs]
        rows.append(
            (
                name,
                *(f"{value:.3f}" for value in (median(shares), min(shares))),
                report.seconds(median(one[1] for one in runs)),
                str(runs[0][2]),
            )
        )
    report.note(f"{len(next(iter(found.values())))} fresh processes each, CPU time / that of `import torch` in the same process:")
    report.table(("", "median", "least", "CPU time", "files of modlab loaded"), rows)
    shares = [
        Target(f"first {name} / import torch", LIMIT, median(took / share for share, took, _ in runs)) for name, runs in found.items()
    ]
    return [*shares, *_later()]


def _measured(code: str, cache: str, times: int) -> list[tuple[float, float, int]]:
    """Seconds of ``import torch``, of the call, and how many files it loaded, in each of some processes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": cache, "OMP_NUM_THREADS": "1"}

    def once() -> tuple[float, float, int]:
        script = f"{SETUP}    {code}{END}"
        answer = subprocess.run([sys.executable, "-W", "ignore", "-c", script], env=environment, capture_output=True, text=True, check=True)
        share, took, files = json.loads(answer.stdout.splitlines()[-1])
        return share, took, files

    once()
    return [once() for _ in range(times)]


def _later() -> list[Target]:
    """Explanations of usual errors, each the second of its kind."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    from modlab.explaining.explain import explain

    names = {"torch": torch, "nn": nn, "F": F}
    times = {}
    for name, code in EVERYDAY.items():
        error = failure(lambda code=code: eval(code, names))  # type: ignore[misc]
        explain(error)
        times[name] = min(clock.once(lambda error=error: explain(error))[0] for _ in range(5))  # type: ignore[misc]
    slowest = max(times, key=lambda name: times[name])
    report.note(f"Later explanations of {len(times)} usual errors, CPU time of the second and later ones (least of 5):")
    report.table(("median", "most", "of"), [(report.seconds(median(times.values())), report.seconds(times[slowest]), slowest)])
    return [
        Target("a later explanation, median", 3, median(times.values()) * 1e3, "ms"),
        Target("a later explanation, the slowest", 100, times[slowest] * 1e3, "ms"),
    ]
