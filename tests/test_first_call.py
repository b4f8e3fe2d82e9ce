"""What the first call of a process loads, in files: its time is what loading them takes. Names, not seconds."""

import json
import os
import subprocess
import sys

import pytest

from bench.first_calls import CALLS, SETUP
from tests.patience import PATIENCE
from tests.test_layout import ROOT

END = "\nprint(json.dumps([name, sorted({*sys.modules} - before)]), flush=True)\n"
IN_A_COPY = """
import os
for name, source in {sources!r}.items():
    copy = os.fork()
    if not copy:
        exec(source, globals())
        os._exit(0)
    assert os.waitpid(copy, 0)[1] == 0, name
"""
"""torch is loaded once; each call is the first in a copy of that process."""
MOST = {
    "tree": 60,
    "state": 77,
    "hooks": 62,
    "internals": 66,
    "snapshot": 76,
    "explain": 138,
    "compare": 80,
    "trace, one step": 131,
    "diagnose": 108,
    "diagnose, with a batch": 272,  # two of them for the checks of backward hooks and of backward methods
    "watch, one step": 180,
}
"""Files of modlab that a first call may load: those that it loads today, and room for a few."""
PAGES = ("views.html", "views.payload", "views.watch.html", "views.watch.payload", "views.sheets.html", "views.sheets.payload")
BY_ALL = ("lessons", "explaining.rules")
"""What a first call has no use for, where nothing failed."""
NEVER = {
    "explain": ("tracing", "watching", "comparing", "diagnosing", "lessons", *PAGES),
    "diagnose": ("explaining", "tracing", "watching", "comparing", *PAGES),
    "watch, one step": (*BY_ALL, *PAGES),
}


@pytest.fixture(scope="module")
def loaded_by():
    ready, begin = SETUP.split("before = ")
    sources = {name: f"before = {begin}    {call}{END}" for name, call in CALLS.items()}
    script = ready + IN_A_COPY.format(sources=sources)
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # a copy has none of the threads that would help it
    command = [sys.executable, "-W", "ignore", "-c", script]
    answer = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return dict(map(json.loads, answer.stdout.splitlines()))


@pytest.fixture(params=CALLS)
def loaded(request, loaded_by):
    return request.param, loaded_by[request.param]


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
