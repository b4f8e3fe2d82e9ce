"""What the first call of a process loads, in files: its time is what loading them takes. Names, not seconds."""

import json
import subprocess
import sys

import pytest

from bench.first_calls import CALLS, SETUP
from tests.test_layout import ROOT

END = "\nprint(json.dumps(sorted({*sys.modules} - before)))"
MOST = {
    "tree": 62,
    "state": 80,
    "hooks": 70,
    "internals": 70,
    "snapshot": 80,
    "explain": 145,
    "compare": 90,
    "trace, one step": 130,
    "diagnose": 105,
    "diagnose, with a batch": 170,
    "watch, one step": 155,
}
"""Files of modlab that a first call may load: those that it loads today, and room for a few."""
NEVER = {
    "explain": ("tracing", "watching", "comparing", "diagnosing", "lessons"),
    "diagnose": ("explaining", "tracing", "watching", "comparing"),
}
BY_ALL = ("lessons", "explaining.rules")
"""Folders that a first call has no use for, where nothing failed."""


@pytest.fixture(scope="module", params=CALLS)
def loaded(request):
    script = f"{SETUP}    {CALLS[request.param]}{END}"
    answer = subprocess.run([sys.executable, "-W", "ignore", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return request.param, json.loads(answer.stdout.splitlines()[-1])


def test_a_first_call_loads_few_files(loaded):
    name, files = loaded
    own = [one for one in files if one.partition(".")[0] == "modlab"]
    assert len(own) <= MOST[name], f"{name} loads {len(own)} files, and may load {MOST[name]}: {own}"


def test_a_first_call_loads_what_it_has_a_use_for(loaded):
    name, files = loaded
    folders = NEVER.get(name, BY_ALL)
    wrong = [one for one in files if one.startswith(tuple(f"modlab.{folder}" for folder in folders))]
    assert not wrong, f"{name} has no use for {wrong}"


def test_a_first_call_loads_nothing_else(loaded):
    """Nothing of torch's or of others' that takes its time; numpy's and the standard library's small files aside."""
    name, files = loaded
    others = {one.partition(".")[0] for one in files} - {"modlab", "numpy", *sys.stdlib_module_names}
    assert not others, f"{name} loads {sorted(others)}"
