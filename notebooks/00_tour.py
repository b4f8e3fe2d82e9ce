"""00: a tour of the views, and of the rhythm of the lessons."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn

from modlab.lessons.checking import fail
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, YesNo


class Tower(nn.Module):
    """A layer, then two in a row: modules hold modules."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(5, 4)
        self.body = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(..., 5) → (..., 1)."""
        return cast(Tensor, self.body(self.stem(x)))


class Forgetful(nn.Module):
    """Keeps its layers in a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(4, 4) for _ in range(3)]
        self.head = nn.Linear(4, 1)
        self.scale = torch.ones(4)


class Fork(nn.Module):
    """Goes one of two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.short = nn.Linear(4, 2)
        self.long = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: Tensor, way: str) -> Tensor:
        """(4,) and a way → (2,)."""
        x = self.first(x)
        return cast(Tensor, self.long(x) if way == "long" else self.short(x))


def _ran() -> int:
    called: list[nn.Module] = []
    net = Fork()
    for module in net.modules():
        module.register_forward_hook(lambda module, inputs, output: called.append(module))
    net(torch.randn(4), "long")
    return len(called)


def _apart() -> int:
    ours = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
    theirs = deepcopy(ours)
    with torch.no_grad():
        cast(nn.Linear, theirs[2]).bias.add_(0.1)
    x = y = torch.randn(8, 4)
    differ = 0
    for one, other in zip(ours, theirs, strict=True):
        x, y = one(x), other(y)
        differ += not torch.equal(x, y)
    return differ


PREDICTIONS = (
    Question(
        "modules of Tower",
        "How many modules does `Tower` have, counting itself?",
        Number(),
        5,
        "The whole, its `stem`, its `body`, and the two layers in there.",
        wrong=(
            Wrong(2, "These are its children, the next level. Below `body` there are two more, and the whole counts too.", belief=28),
            Wrong(3, "The whole, `stem` and `body`; but `body` has two layers of its own."),
            Wrong(4, "All but the whole, or all but `body`: both are modules like the others.", belief=28),
        ),
        proof=lambda: len(list(Tower().modules())),
    ),
    Question(
        "numbers of Tower",
        "How many numbers can it learn?",
        Number(),
        43,
        "24 in `stem` (5 × 4 and 4), 15 in `body.0` (4 × 3 and 3), 4 in `body.1` (3 × 1 and 1).",
        wrong=(
            Wrong(35, "These are the weights; each layer has a bias as well."),
            Wrong(24, "That is `stem` alone; `body` has 19 more."),
        ),
        proof=lambda: sum(p.numel() for p in Tower().parameters()),
    ),
    Question(
        "gradient before the first step",
        "Before the first training step: do the parameters have a gradient of zero?",
        YesNo(),
        False,
        "They have none at all, `None`: nothing has been computed yet.",
        wrong=(Wrong(True, "A gradient of zero would be a result. None means that there has been no backward pass.", belief=23),),
        proof=lambda: all(p.grad is not None for p in Tower().parameters()),
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
            Wrong(9, "`scale` is a plain tensor: an attribute like any other, which is not learned.", belief=8),
        ),
        proof=lambda: sum(p.numel() for p in Forgetful().parameters()),
    ),
    Question(
        "modules that run",
        'How many modules run in `Fork()(x, "long")`, counting itself?',
        Number(),
        6,
        "The whole, `first`, `long`, and the three in it. `short` is owned, and not called in this pass.",
        wrong=(
            Wrong(7, "That is all it owns: what runs is decided by `forward`, and `short` does not.", belief=26),
            Wrong(5, "The whole is a module too, and so is the `Sequential` that calls its three."),
            Wrong(3, "The whole, `first` and `long`; but `long` calls the three modules that it holds.", belief=28),
            Wrong(4, "`first` and the three in `long`; and the two that call them are modules as well.", belief=28),
        ),
        proof=_ran,
    ),
    Question(
        "layers that differ",
        "How many of the five layers give a different output?",
        Number(),
        3,
        "Layer `2`, and the two behind it: they have the same weights, and pass on what they get.",
        wrong=(
            Wrong(1, "One layer has another bias; but the layers behind it get other inputs, and so give other outputs."),
            Wrong(2, "`2`, `3` and `4`: the activation `3` passes the difference on as well."),
            Wrong(5, "The layers `0` and `1` come before it: same weights, same input, same output."),
            Wrong(4, "The names begin with 0: before `2` there are `0` and `1`, which give the same."),
        ),
        proof=_apart,
    ),
    Question(
        "busy units",
        "Does a falling loss show that all hidden units take part?",
        YesNo(),
        False,
        "The alert names a unit of `l0` that is silent in each step: it is dead, and the other two do its work.",
        wrong=(
            Wrong(True, "The loss is one number for the whole: it falls as well when some of the units do all of the work.", belief=25),
        ),
    ),
)


def _number(answer: Any) -> None:
    """it is a number"""
    if isinstance(answer, str):
        fail("This is text. Without the quotes it is a number.", mistake="text", expected="a number", got=repr(answer))
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        fail("It should be a number.", expected="a number", got=f"a {type(answer).__name__}")


def _eleven_million(answer: Any) -> None:
    """it is the number of ResNet-18's parameters"""
    if answer == 11_699_132:
        fail(mistake="buffers counted")
    if answer != 11_689_512:
        fail("It is another number: the headline of the tree below tells it.")


COUNT = Task(
    "count",
    "How many parameters does `ResNet18()` have? Put the number in place of the dots.",
    starter="count = ...",
    reference="count = 11_689_512",
    probes=(_number, _eleven_million),
    mistakes=(
        Mistake("text", 'count = "11,689,512"', "A number stands without quotes, and without commas: `12_345` is fine."),
        Mistake(
            "buffers counted",
            "count = 11_699_132",
            "That counts the buffers as well (the running statistics of BatchNorm): they are kept, and not learned.",
        ),
    ),
    hints=("It is the first number of the tree's headline below.",),
    minutes=1,
    matters="This is the number that papers quote: each shared tensor once, and no buffers.",
)

RECALLS = (
    Question(
        "the view for what ran",
        "Which call shows what ran in one pass?",
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
