"""The patch of an explanation: taken by ``git apply``, it mends the program; what it says of having been tried is so."""

import ast
import subprocess

import pytest
import torch
from torch import nn

from modlab.explaining import trying
from modlab.views.sheets.explanation import of_explanation
from tests.explaining.test_options import EVERY
from tests.explaining.test_provenance import PROGRAMS, Program, explained

TEXTS = {**{f"options, {name}": row[0] for name, row in EVERY.items()}, **{f"programs, {name}": text for name, text in PROGRAMS.items()}}
BROKEN = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(9, 2)   # a comment that stays
        def forward(self, x):
            return self.last(torch.relu(x))
    net = Net()
    x = torch.eye(4)
    net(x)
"""


def mended(program, patch, folder):
    """The program after ``git apply``."""
    name = patch.diff.splitlines()[0].removeprefix("--- a/").removeprefix("--- ")
    file = folder / "program.py"
    file.write_text("\n".join(program.lines) + "\n", encoding="utf-8")
    given = str(patch).replace(name, "program.py").replace("--- program", "--- a/program").replace("+++ program", "+++ b/program")
    subprocess.run(["git", "apply", "-"], input=given, text=True, cwd=folder, check=True, capture_output=True)
    return file.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", TEXTS)
def test_a_patch_mends(name, tmp_path):
    program = Program(TEXTS[name])
    try:
        result = program.explained()
    except AssertionError:
        pytest.skip("it does not fail")
    if result.patch is not None:
        program.run(mended(program, result.patch, tmp_path))


def test_most_fixes_of_one_statement_have_a_place():
    found = [Program(text).explained() for name, text in TEXTS.items() if name.startswith("programs")]
    coded = [one for one in found if any(fix.code and "..." not in fix.code for fix in one.fixes)]
    assert sum(one.patch is not None for one in coded) >= 0.7 * len(coded)
    assert sum(one.patch is not None and one.patch.tried for one in coded) >= 0.4 * len(coded)


def test_all_faces_say_the_same(tmp_path):
    program = Program(BROKEN)
    result = program.explained()
    assert result.patch is result.record.patch
    assert [line for line in result.patch.diff.splitlines()[3:] if line[0] in "+-"] == [
        "-        self.last = nn.Linear(9, 2)   # a comment that stays",
        "+        self.last = nn.Linear(4, 2)   # a comment that stays",
    ]
    assert result.patch.tried and str(result.patch).startswith("tried: it runs\n--- ")
    assert result.to_dict()["patch"] == {"diff": result.patch.diff, "tried": True}
    assert "Patch" not in str(result)  # it would be twice as long: print(result.patch) is the text
    assert "tried: it runs" in result._repr_html_() and "+        self.last = nn.Linear(4, 2)" in result._repr_html_()
    (block,) = [block for block in of_explanation(result.record).notes if block.key]
    assert (block.key, block.code, block.prose) == ("p", result.patch.diff, "tried: it runs")


def test_what_the_users_code_would_run_is_not_tried():
    calls = []

    class Counted(nn.Module):
        def forward(self, x, factor):
            calls.append(1)
            return x * factor

    net = Counted()
    result = explained(lambda: net(torch.ones(2)))
    assert len(calls) == 0 and (result.patch is None or not result.patch.tried)


def test_a_layer_that_was_replaced_is_no_fault_of_its_class():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 3)
            self.b = nn.Linear(3, 1)

        def forward(self, x):
            return self.b(self.a(x))

    net = Two()
    net.a = nn.Linear(4, 2)
    result = explained(lambda: net(torch.ones(5, 4)))
    assert result.patch is None
    assert result.fixes[0].prose == "Put back what Two makes, for a was replaced since:"
    exec(result.fixes[0].code, {"net": net, "nn": nn})
    assert net(torch.ones(5, 4)).shape == (5, 1)


def test_a_fix_that_names_what_is_not_there_is_no_patch(tmp_path):
    def load(name):
        return torch.load(tmp_path / name, weights_only=True)

    torch.save(nn.Linear(2, 2), tmp_path / "model.pt")
    result = explained(lambda: load("model.pt"))
    assert "path" in result.fixes[0].code and result.patch is None


def test_what_prepares_a_call_does_not_stand_for_it():
    result = Program("""
        x = torch.zeros(2, 3)
        x.mean(1).backward()
    """).explained()
    assert [fix.code for fix in result.fixes] == ["x.requires_grad_()"] and result.patch is None


def test_no_fix_no_patch():
    result = explained(lambda: {"a": 1}["b"])
    assert result.patch is None and result.to_dict()["patch"] is None and "Patch" not in str(result)


class Operands:
    """Stands for a frame: its names."""

    def __init__(self, **names):
        self.names, self.globals = names, {"torch": torch, "nn": nn}


@pytest.mark.parametrize(
    ("code", "names", "found"),
    [
        ("a @ b.T", {"a": torch.zeros(2, 3), "b": torch.zeros(4, 3)}, True),
        ("a @ b", {"a": torch.zeros(2, 3), "b": torch.zeros(4, 3)}, False),
        ("a @ b.T", {"a": torch.zeros(2, 3, device="meta"), "b": torch.zeros(4, 3, device="meta")}, True),
        ("a @ b", {"a": torch.zeros(200, 300), "b": torch.zeros(300, 4, dtype=torch.float64)}, None),  # meta lets it pass, one element not
        ("a @ b.float()", {"a": torch.zeros(200, 300), "b": torch.zeros(300, 4, dtype=torch.float64)}, True),
        ("f(a)", {"a": torch.zeros(2), "f": lambda a: a}, None),
        ("torch.save(a, 'x')", {"a": torch.zeros(2)}, None),
        ("a.item()", {"a": torch.zeros(2)}, None),
        ("layer(a)", {"layer": nn.Linear(3, 2), "a": torch.zeros(5, 3)}, True),
        ("layer(a)", {"layer": nn.Linear(3, 2), "a": torch.zeros(5, 4)}, False),
    ],
)
def test_a_trial_says_what_it_knows(code, names, found):
    kept = torch.get_rng_state()
    assert trying.runs(lambda trial: trial.value(ast.parse(code, mode="eval").body, Operands(**names))) is found
    assert torch.equal(torch.get_rng_state(), kept)


def test_a_trial_runs_no_hook_and_changes_nothing():
    layer, seen = nn.BatchNorm1d(3), []
    layer.register_forward_hook(lambda *_: seen.append(1))
    node, frame = ast.parse("layer(a)", mode="eval").body, Operands(layer=layer, a=torch.ones(4, 3))
    assert trying.runs(lambda trial: trial.value(node, frame)) is None and not seen
    layer._forward_hooks.clear()
    assert trying.runs(lambda trial: trial.value(node, frame)) is True
    assert layer.num_batches_tracked == 0 and torch.equal(layer.running_mean, torch.zeros(3))


def test_a_cell_is_named_as_the_notebook_counts_it(shell, monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    shell.run_cell("import modlab, torch\nfrom torch import nn\na, b = torch.zeros(2, 3), torch.zeros(4, 3)", store_history=True)
    shell.run_cell("c = a @ b", store_history=True)
    shell.run_cell("found = modlab.explain()", store_history=True)
    patch = shell.user_ns["found"].patch
    assert patch.diff == "--- In [2]\n+++ In [2]\n@@ -1,1 +1,1 @@\n-c = a @ b\n+c = a @ b.T\n"
    assert patch.tried
