"""Each kind of view once, on one page that needs no kernel and no JupyterLab: what the tests of all views look at."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.profiler import profile, record_function

import modlab
from modlab import lessons
from modlab.lessons import classroom, lookup
from modlab.lessons.cards import Card, CardRecord, Mark
from modlab.lessons.note import BigNet, Net
from modlab.results.costs import Costs
from modlab.results.explanation import Explanation
from modlab.results.watch import Watch
from modlab.views.html import BEGIN, END
from tests import courses

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>All views</title>
<style>:root{color-scheme:light dark}body{margin:0;font:14px system-ui;color:#1b1f24;background:#fff}
@media(prefers-color-scheme:dark){body{color:#e6e9ed;background:#16191d}}</style></head><body><main><h1>All views</h1>"""


class Listed(nn.Module):
    """A ghost, a tie and what is frozen: marks that a plain model has not."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(3, 3)]
        self.table = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.table.weight
        self.norm = nn.BatchNorm1d(3)
        self.norm.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.head(self.norm(self.table(x)))
        return hidden


def views() -> dict[str, str]:
    """The HTML of each kind of view, by its name."""
    torch.manual_seed(0)
    net, listed = BigNet(), Listed()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
    handle = net.l1.register_forward_hook(lambda *_: None)
    before = modlab.snapshot(net)
    with modlab.trace(net) as trace:
        net(torch.randn(5)).sum().backward()
        optimizer.step()
    pair = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    moved = copy.deepcopy(pair)
    with torch.no_grad():
        moved[2].bias += 0.1
    watch = watched()
    shown = {
        "tree": modlab.tree(listed),
        "folded tree": modlab.tree(nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), num_layers=6)),
        "state": modlab.state(net, optimizer),
        "values": modlab.measure(torch.tensor([[0.5, -1.5, float("nan")], [0.0, float("inf"), 2000.0]])),
        "heat map": modlab.measure(torch.randn(64, 64)),
        "trace": trace,
        "why": trace.why("l1.weight"),
        "costs": profiled(pair),
        "explanation": explanation(net),
        "hooks": modlab.hooks(net),
        "internals": modlab.internals(net),
        "difference": modlab.diff(before, net),
        "comparison": modlab.compare(pair, moved)(torch.randn(8, 4)),
        "diagnosis": modlab.diagnose(listed, torch.optim.AdamW(listed.parameters())),
        "watch": watch,
        "verdict": watch.verdict,
    }
    handle.remove()
    return {name: view._repr_html_() for name, view in shown.items()}


def profiled(net: nn.Module) -> Costs:
    """What a profile found of one call."""
    x = torch.randn(8, 4)
    with profile(profile_memory=True) as profiler:
        for name, layer in net.named_children():
            with record_function(name):
                x = layer(x)
    return modlab.costs(net, profiler)


def explanation(net: nn.Module) -> Explanation:
    """Of a batch that has one number too many."""
    try:
        net(torch.randn(6))
    except RuntimeError as error:
        return modlab.explain(error)
    raise AssertionError("it did not stop")


def watched() -> Watch:
    """A run in which a unit is dead from the first step on: an alert, a fix, a dashed ring."""
    net = Net()
    with torch.no_grad():
        net.l0.weight[1], net.l0.bias[1] = -1.0, -1.0
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
    with modlab.watch(net, optimizer, budget=1.0) as watch:
        for _ in range(30):
            loss = net(torch.rand(64, 4)).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.log(loss=loss)
    return watch


def cards() -> list[str]:
    """What a lesson says: a card of each mark, and a line with its settings."""
    steps = (("fine", "it has a `bias`"), ("broken", "`forward` gives (3,)"), ("", "not asked"))
    marks: tuple[Mark, ...] = ("", "fine", "broken", "open", "careful")
    records = [
        CardRecord(
            "check",
            f"task {mark}",
            "Not yet:",
            "one of *three*.",
            mark,
            steps=steps,
            pairs=(("expected", "(2,)"), ("got", "(3,)")),
            prose=("Because.",),
            code="a = 1",
            foot="Try again.",
        )
        for mark in marks
    ]
    net = "modlab.tree(nn.Linear({width}, {out}))"
    settings = lessons.Lesson("01_a_module").modify(net, width=[1, 2, 3, 4, 5], out=[1, 2])
    return [Card(*records).html(), settings._repr_html_()]


def report(folder: Path) -> str:
    """Of a class of two, one of whom answers each question of a lesson by its first wrong option."""
    content = lookup.find("01_a_module")
    for learner in ("ada", "bob"):
        notebook = courses.notebook_of(content)
        for cell in notebook["cells"]:
            source = courses.answered(content, "".join(cell["source"]))
            for question in content.questions if learner == "bob" else ():
                right, wrong = f'("{question.name}", {question.answer!r})', question.wrong[:1]
                source = source.replace(right, f'("{question.name}", {wrong[0].answer!r})') if wrong else source
            cell["source"] = source
        (folder / learner).mkdir()
        (folder / learner / f"{content.name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    return classroom.read(folder).html()


def page(*parts: str, alive: bool = True) -> str:
    """The parts below each other; not `alive`: as a host shows them that takes scripts away."""
    return PAGE + "\n".join(part if alive else without_script(part) for part in parts) + "</main></body></html>"


def without_script(html: str) -> str:
    """The static picture alone."""
    begin, end = html.find(BEGIN), html.find(END)
    return html if begin < 0 else html[:begin] + html[end + len(END) :]
