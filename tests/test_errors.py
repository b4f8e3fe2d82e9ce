"""Errors teach, and can be caught as what they are."""

import re
import subprocess
import sys

import pytest

import modlab
from modlab import errors
from modlab.inspection.optimizers import NotAnOptimizerError

KINDS = {
    errors.NotAModuleError: TypeError,
    errors.NotATensorError: TypeError,
    errors.NotInitializedError: AttributeError,
    errors.PathNotFoundError: KeyError,
    errors.CheckpointError: ValueError,
    errors.MissingPackageError: ImportError,
    errors.GoneError: ReferenceError,
    errors.SaveError: ValueError,
    NotAnOptimizerError: TypeError,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_error_is_modlabs_and_pythons(kind):
    assert issubclass(kind, modlab.ModlabError) and issubclass(kind, KINDS[kind])
    assert str(kind("what was given\n  what to do")) == "what was given\n  what to do"


@pytest.mark.parametrize(
    ("wanted", "names", "near"),
    [
        ("net.l2", ["l1", "net", "net.l0", "net.l1"], ["net.l1", "net.l0", "net"]),
        ("l1", ["net.l1", "other"], ["net.l1"]),
        ("weight", ["a.b.c.d.e.f.weight", "bias"], ["a.b.c.d.e.f.weight"]),
        ("zzz", ["net"], []),
        ("", ["net"], []),
        ("x", [], []),
    ],
)
def test_nearest(wanted, names, near):
    assert errors.nearest(wanted, names) == near


@pytest.mark.parametrize(
    ("thing", "text"),
    [(3, "torch.as_tensor"), ([1, 2], "torch.as_tensor"), (None, "a NoneType"), (int, "the class int")],
)
def test_what_is_no_tensor_is_told_what_to_do(thing, text):
    with pytest.raises(errors.NotATensorError, match=text):
        modlab.measure(thing)


CELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import modlab; from torch import nn")
shell.run_cell('''def mine(thing):
    return modlab.tree(thing)

mine(5)''')
shell.run_cell("modlab.trace(nn.Linear(2, 2), unknown=1)")
"""


def test_a_notebook_shows_the_lines_of_the_user():
    out = subprocess.run([sys.executable, "-c", CELL], capture_output=True, text=True, check=True).stdout
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    ours, pythons = plain.split("NotAModuleError: modlab.tree() got an int")
    assert "mine(5)" in ours and "return modlab.tree(thing)" in ours and "modlab/" not in ours
    assert "modlab.trace(nn.Linear(2, 2), unknown=1)" in pythons and "TypeError" in pythons
