"""The template of a teacher's own lesson: a notebook and the file of its questions and tasks, which already work."""

from __future__ import annotations

import json
import keyword
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from modlab import files
from modlab.errors import ModlabError

CONTENT = '''"""The questions and the task of {name}.ipynb. `python -m modlab lessons check {name}.ipynb` tries them."""

import torch
from torch import nn

import modlab
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.checking import fail, require_equal, require_module_class
from modlab.lessons.kinds import Choice, Number, Order, Several

NUMBERS = Question(
    "numbers of a layer",    # by this name the notebook asks it
    "How many numbers does `nn.Linear(3, 2)` own?",    # word by word as in the notebook
    Number(),    # or Name, Shape, YesNo, and those below, whose answers are letters
    8,
    "Six in the weight and two in the bias.",
    wrong=(Wrong(6, "That is the weight alone: there is a bias, too."),),
    proof=lambda: sum(p.numel() for p in nn.Linear(3, 2).parameters()),
)

TRANSPOSED = Question(
    "shape of the weight",
    "Why is its weight 2×3, and not 3×2?",
    Choice("it is multiplied from the right, transposed", "each row makes one output"),
    "b",
    "An output is the dot product of one row and the input.",
    wrong=(Wrong("a", "It is transposed, but that follows from its shape."),),
)

SAVED = Question(
    "what is saved",
    "What does `state_dict()` hold?",
    Several("parameters", "gradients", "buffers"),
    ("a", "c"),
    "Parameters and buffers; gradients are not saved.",
)

STEPS = Question(
    "a training step",
    "Put the calls of one training step in order.",
    Order("optimizer.step()", "loss.backward()", "net(x)"),
    ("c", "b", "a"),
    "First the output, then its gradients, then the step that uses them.",
)


def doubles(answer):
    """it doubles each number"""    # the learner reads this line
    require_module_class(answer, "Double")
    x = torch.randn(3)
    got = answer()(x)
    if torch.equal(got, x + 2):
        fail(mistake="adds two", expected=2 * x, got=got, evidence=modlab.trace(answer())(x))
    require_equal(got, 2 * x, "It gives something else than twice its input.")


DOUBLE = Task(
    "Double",
    "Write `Double`, a module that doubles its input.",
    starter="""
class Double(nn.Module):
    def forward(self, input):
        ...
""",
    reference="""
class Double(nn.Module):
    def forward(self, input):
        return 2 * input
""",
    probes=(doubles,),
    mistakes=(
        Mistake(
            "adds two",
            """
class Double(nn.Module):
    def forward(self, input):
        return input + 2
""",
            "It adds two: that is the same for 2 only.",
        ),
    ),
    hints=("What is twice 3?",),
    matters="Say here what it is good for: who has solved it reads it.",
)

LESSON = Content(
    "{name}", "{title}", "say what one can do after it", 10,
    predictions=(NUMBERS,),
    reasons=(TRANSPOSED,),    # the questions of lesson.why("name", ...), which ask for the reason
    recalls=(SAVED, STEPS),    # those of lesson.recall("name", ...), at the end; one of them from an earlier lesson
    tasks=(DOUBLE,),
)
'''

BEGIN = """
import torch
from torch import nn

import modlab
from modlab.lessons import Lesson

lesson = Lesson("{name}")
device = lesson.device
""".strip()

CELLS = (
    ("markdown", "# {title}\n\nTen minutes. Say here what one can do after it."),
    ("code", BEGIN),
    ("markdown", "**Predict.** How many numbers does `nn.Linear(3, 2)` own?"),
    ("code", 'lesson.predict("numbers of a layer", ...)'),
    ("code", 'lesson.see(modlab.tree(nn.Linear(3, 2).to(device)), "numbers of a layer")'),
    ("markdown", "**Why** is its weight 2×3, and not 3×2?"),
    ("code", 'lesson.why("shape of the weight", ...)'),
    ("markdown", "## Make\n\nWrite `Double`, a module that doubles its input."),
    ("code", 'class Double(nn.Module):\n    def forward(self, input):\n        ...\n\n\nlesson.check("Double", Double)'),
    ("markdown", "## Recall\n\nAnswer from memory."),
    ("code", 'lesson.recall("what is saved", ...)'),
    ("code", 'lesson.recall("a training step", ...)'),
)


def create(name: str, folder: Path) -> tuple[Path, Path]:
    """Write ``NAME.ipynb`` and ``NAME.py``; what is there already is never overwritten.

    Raises:
        ModlabError: the name cannot be a Python file's, or one of the files is there.
    """
    if not name.isidentifier():
        raise ModlabError(f"{name!r} cannot be the name of a lesson: use letters, digits and underscores, as in my_first_lesson.")
    notebook, content = folder / f"{name}.ipynb", folder / f"{name}.py"
    there = [file.name for file in (notebook, content) if file.exists()]
    if there:
        stay = "is there already, and stays as it is" if len(there) == 1 else "are there already, and stay as they are"
        raise ModlabError(
            f"{' and '.join(there)} {stay}.\n"
            f"  Choose a different name, such as {name}_2, or a different folder: python -m modlab lessons new {name} --in DIR"
        )
    if keyword.iskeyword(name) or _is_pythons(name):
        hides = f"{name!r} means something to Python already, and {name}.py would hide it"
        raise ModlabError(f"{hides}: choose a different name, such as my_{name}.")
    title = name.replace("_", " ").capitalize()
    folder.mkdir(parents=True, exist_ok=True)
    cells = [_cell(number, kind, text.replace("{name}", name).replace("{title}", title)) for number, (kind, text) in enumerate(CELLS)]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    files.write(content, CONTENT.replace("{name}", name).replace("{title}", title))
    files.write(notebook, json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n")
    return notebook, content


def _is_pythons(name: str) -> bool:
    """Whether an import of this name gives something else than a file of one's own, here where the command runs."""
    spec = find_spec(name)
    return spec is not None and (spec.origin is None or Path(spec.origin).parent != Path.cwd())


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})
