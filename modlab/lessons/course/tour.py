"""00: a tour of the views, and of the rhythm of the lessons."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.judging import fail, require_equal
from modlab.lessons.kinds import Choice, Number, Several, YesNo
from modlab.lessons.note import BigNet, DynamicNet, Net


class Forgetful(nn.Module):
    """Keeps its layers in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(3)]
        self.head = nn.Linear(4, 1)
        self.scale = torch.ones(4)


def _ran() -> int:
    called: list[nn.Module] = []
    net = DynamicNet(2)
    for module in net.modules():
        module.register_forward_hook(lambda module, inputs, output: called.append(module))
    net(torch.randn(4), "relu")
    return len(called)


PREDICTIONS = (
    Question(
        "modules of BigNet",
        "How many modules does `BigNet` count, itself included?",
        Number(),
        5,
        "The whole, its `l1`, its `net`, and the two layers in there.",
        wrong=(
            Wrong(2, "These are its children, the next level. Below `net` there are two more, and the whole counts too.", belief=28),
            Wrong(3, "The whole, `l1` and `net`; but `net` has two layers of its own."),
            Wrong(4, "All but the whole, which is a module like the others.", belief=28),
        ),
        proof=lambda: len(list(BigNet().modules())),
    ),
    Question(
        "numbers of BigNet",
        "How many numbers can it learn?",
        Number(),
        43,
        "24 in `l1` (5 × 4 and 4), 15 in `net.l0` (4 × 3 and 3), 4 in `net.l1` (3 × 1 and 1).",
        wrong=(
            Wrong(35, "These are the weights; each layer has a bias, too."),
            Wrong(24, "That is `l1` alone; `net` has 19 more."),
        ),
        proof=lambda: sum(p.numel() for p in BigNet().parameters()),
    ),
    Question(
        "gradient before the first step",
        "Before the first training step: do the parameters have a gradient of zero?",
        YesNo(),
        False,
        "They have none at all, `None`: nothing has been computed yet.",
        wrong=(Wrong(True, "A gradient of zero would be a result. None means that there has been no backward pass.", belief=23),),
        proof=lambda: all(p.grad is not None for p in Net().parameters()),
    ),
    Question(
        "parameters of Forgetful",
        "How many parameters (numbers) will the optimizer of `Forgetful` get?",
        Number(),
        5,
        "Only `head` is registered: four weights and a bias.",
        wrong=(
            Wrong(65, "The three layers of the list would add 20 each; but a plain list is not registered.", belief=1),
            Wrong(69, "Neither the layers in the list nor the plain tensor `scale` are registered.", belief=1),
            Wrong(9, "`scale` is a plain tensor: an attribute like any other, which is not learnt.", belief=8),
        ),
        proof=lambda: sum(p.numel() for p in Forgetful().parameters()),
    ),
    Question(
        "modules that run",
        "`DynamicNet(2)` has two equal layers, a last one, and two activations to choose from. "
        "How many modules run in one pass, itself included?",
        Number(),
        5,
        "The whole, the two layers, the activation that was chosen, and the last layer. The list and the dict only hold them.",
        wrong=(
            Wrong(6, "One of the two activations is not called in this pass."),
            Wrong(8, "That is all it owns: the list and the dict run nothing, and one activation is not called.", belief=26),
            Wrong(4, "The whole is a module too, and it is called first."),
        ),
        proof=_ran,
    ),
    Question(
        "layers that act by mode",
        "Which of these layers do something else after `net.eval()`?",
        Several("nn.Linear", "nn.BatchNorm1d", "nn.ReLU", "nn.Dropout"),
        ("b", "d"),
        "BatchNorm changes to its running statistics, Dropout lets everything through. The others ignore the mode.",
    ),
    Question(
        "eval and gradients",
        "Does `eval()` turn gradients off?",
        YesNo(),
        False,
        "It sets a flag, which some modules ask for. Autograd does not: `torch.no_grad()` is what turns it off.",
        belief=18,
        proof=lambda: not nn.Linear(2, 2).eval()(torch.ones(2)).requires_grad,
    ),
    Question(
        "busy units",
        "`Net` has three hidden units, and its loss falls nicely. Do all three take part?",
        YesNo(),
        False,
        "Unit 1 of `l0` answers zero to every single input: it is dead. The others do its work.",
        wrong=(Wrong(True, "A falling loss says nothing about single units: one of them is silent from the first step.", belief=25),),
    ),
)


def _number(answer: Any) -> None:
    """it is a number"""
    if isinstance(answer, str):
        fail("This is text. Without the quotes it is a number.", mistake="text", expected="a number", got=repr(answer))
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        fail("It is to be a number.", expected="a number", got=f"a {type(answer).__name__}")


def _eleven_million(answer: Any) -> None:
    """it is the number of ResNet-18's parameters"""
    if answer == 11_699_132:
        fail(mistake="buffers counted", expected="fewer", got=answer)
    require_equal(answer, 11_689_512, "The headline of the tree below tells it.")


COUNT = Task(
    "count",
    "How many parameters has `ResNet18()`? Put the number in the place of the dots.",
    starter="count = ...",
    reference="count = 11_689_512",
    probes=(_number, _eleven_million),
    mistakes=(
        Mistake("text", 'count = "11,689,512"', "A number stands without quotes, and without commas: `11_689_512` is fine."),
        Mistake(
            "buffers counted",
            "count = 11_699_132",
            "That counts the buffers as well (the running statistics of BatchNorm): they are kept, and not learnt.",
        ),
    ),
    hints=("It is the first number of the tree's headline below.",),
    minutes=1,
)

RECALLS = (
    Question(
        "the view for what ran",
        "which call shows what ran in one pass?",
        Choice("`modlab.tree(net)`", "`modlab.state(net)`", "`modlab.trace(net)(x)`", "`modlab.diff(before, net)`"),
        "c",
        "The trace shows what the model did, call by call.",
        wrong=(
            Wrong("a", "The tree shows what it owns; what runs is decided by `forward`.", belief=26),
            Wrong("b", "The state shows what becomes of its tensors: trained, saved, moved."),
            Wrong("d", "The diff shows what changed between two moments."),
        ),
    ),
)

LESSON = Content(
    name="00_tour",
    title="A tour of modlab",
    goal="read the views, and know how a lesson goes",
    minutes=20,
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(COUNT,),
)
