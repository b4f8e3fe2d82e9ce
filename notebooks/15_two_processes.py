"""15: two processes that train together, and what `DistributedDataParallel` adds to a module."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import modlab
from modlab.lessons.checking import evaluate, fail, require_callable, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Name, Number, Several
from modlab.lessons.note import Net

GLOO = "torch.distributed.ProcessGroupGloo"

# ---- questions ------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _real() -> dict[str, list[Any]]:
    """One run of all that the lesson runs, in two real processes."""
    from modlab.lessons import workers

    with workers.Pair() as pair:
        works = (workers.reduced, workers.by_hand, workers.wrapped, workers.with_ddp, workers.with_statistics)
        found = {work.__name__: pair(work) for work in works}
        found["alone"] = pair(workers.by_hand, together=False)
        found["uneven"] = pair(workers.uneven)
    return found


def _differing(name: str) -> int:
    first, second = (one["state"] for one in _real()[name])
    return sum(not torch.equal(first[key], second[key]) for key in first)


def _gradients() -> str:
    first, second = _real()["by_hand"]
    return {(True, True): "a", (False, True): "b", (False, False): "c"}[first["own"] == second["own"], first["used"] == second["used"]]


def _start() -> str:
    first, second = _real()["wrapped"]
    options = (second["drawn"], first["drawn"], {key: (first["drawn"][key] + second["drawn"][key]) / 2 for key in first["drawn"]})
    (letter,) = [letter for letter, option in zip("abc", options, strict=True) if _same(option, second["wrapped"])]
    return letter


def _statistics() -> str:
    """The letter; and that the rule by which tasks are judged is the real one."""
    from modlab.lessons import workers

    first, second = (one["state"] for one in _real()["with_statistics"])
    nets = [workers.normalised(), workers.normalised()]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in nets]
    for both in zip(*(workers.batches(rank, 3) for rank in range(2)), strict=True):
        _together(nets, optimizers, both)
    assert _same(nets[0].state_dict(), first, 1e-6) and _same(nets[1].state_dict(), second, 1e-6)
    assert all(torch.equal(first[key], second[key]) for key in first if "running" not in key)
    return "c" if not torch.equal(first["1.running_mean"], second["1.running_mean"]) else "a"


def _uneven() -> str:
    first, second = _real()["uneven"]
    return "b" if "nobody came" in first and "ready" in second else "a"


def _same(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 0.0) -> bool:
    return [*one] == [*other] and all(torch.allclose(one[key], other[key], rtol=tolerance, atol=tolerance) for key in one)


PREDICTIONS = (
    Question(
        "all-reduce",
        "Process 0 has a 1, process 1 has a 3. What does each of them have after `all_reduce`?",
        Choice("4 in both", "2 in both", "4 in process 0, and still 3 in process 1"),
        "a",
        "`all_reduce` adds up what all processes bring, in place, and everybody has the sum.",
        wrong=(
            Wrong("b", "The mean is what one needs in the end; but `all_reduce` adds, and somebody has to divide."),
            Wrong("c", "That would be `reduce`, which has one receiver. *All* get the result here."),
        ),
        proof=lambda: {(4.0, 4.0): "a", (2.0, 2.0): "b", (4.0, 3.0): "c"}[tuple(_real()["reduced"])],
        needs=GLOO,
    ),
    Question(
        "gradients of two",
        "Compare the two processes' gradients, before and after `average(net)`. What do you find?",
        Choice("equal before and after", "different before, equal after", "different before and after"),
        "b",
        "Other data, another gradient; then both take the mean of the two.",
        wrong=(
            Wrong("a", "The weights are equal at first, but each process has its own batch, and the gradient depends on it."),
            Wrong("c", "All processes add up the same two gradients and divide by the same number."),
        ),
        proof=_gradients,
        needs=GLOO,
    ),
    Question(
        "without all-reduce",
        "The same start and the same thirty steps, without `average`. How many of the four tensors differ at the end?",
        Number(),
        4,
        "Each process follows its own data: there are two nets, each trained on half of it.",
        wrong=(
            Wrong(0, "The start is the same, but already the first gradients differ, and so do the weights after the first step."),
            Wrong(2, "Biases have gradients as weights have, and they differ too."),
        ),
        proof=lambda: _differing("alone"),
        needs=GLOO,
    ),
    Question(
        "start of two",
        "Which weights does process 1 have after it has wrapped its net?",
        Choice("its own", "those of process 0", "the mean of both"),
        "b",
        "The wrapper's constructor sends parameters and buffers of process 0 to all others.",
        wrong=(
            Wrong("a", "Then averaged gradients would be of no help: the two nets would run side by side and never meet."),
            Wrong("c", "Averages are for gradients. To begin, one of them is as good as any other."),
        ),
        proof=_start,
        needs=GLOO,
    ),
    Question(
        "key of the wrapper",
        "What is the name of `l0.weight` in the wrapper's `state_dict()`?",
        Name(),
        "module.l0.weight",
        "The wrapper is a module with one child, which it calls `module`; the name of a child stands in front.",
        wrong=(
            Wrong("l0.weight", "That is its name in the net. The wrapper is a module around it, and adds its own level.", belief=14),
            Wrong("ddp.l0.weight", "`ddp` is your variable. A module knows the names of its children, and not its own.", belief=14),
            Wrong("net.l0.weight", "`net` is your variable; the wrapper has its own name for its child.", belief=14),
        ),
        belief=14,
        proof=lambda: next(key for key in _real()["wrapped"][0]["saved"] if key.endswith("l0.weight")),
        needs=GLOO,
    ),
    Question(
        "running means",
        "After three steps in the wrapper: are the running means of the two processes equal?",
        Choice("yes: they are averaged, as gradients are", "yes: those of process 0 are copied after each step", "no"),
        "c",
        "Buffers of process 0 are copied *before* each forward pass. The pass then moves them by each process's own batch.",
        wrong=(
            Wrong("a", "A buffer has no gradient, and only gradients are averaged."),
            Wrong("b", "They are copied, but before the forward pass; after it each has moved on with its own batch."),
        ),
        proof=_statistics,
        needs=GLOO,
    ),
    Question(
        "a batch too few",
        "Process 1 has no second batch and skips that step. What does process 0 do in it?",
        Choice("it goes on with its own gradient", "it waits in `all_reduce`", "it gets zeros from process 1"),
        "b",
        "`all_reduce` is done when all have come. Who comes alone waits, with gloo for half an hour unless told otherwise.",
        wrong=(
            Wrong("a", "It cannot know that nobody will come. A slow partner looks just the same."),
            Wrong("c", "Who does not call `all_reduce` sends nothing, not even zeros."),
        ),
        proof=_uneven,
        needs=GLOO,
    ),
)


def _kept() -> int:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    history = []
    for _ in range(20):
        net(torch.randn(8, 4)).sum().backward()
        optimizer.step()
        history.append(net.state_dict())
    return len({tuple(state["l1.bias"].tolist()) for state in history})


def _forgiven() -> int:
    net, other = Net(), Net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict({f"module.{name}": value for name, value in other.state_dict().items()}, strict=False)
    return sum(not torch.equal(value, before[name]) for name, value in net.state_dict().items())


RECALLS = (
    Question(
        "what the wrapper adds",
        "Which of these does `DistributedDataParallel` do?",
        Several(
            "it sends the weights of process 0 to all at the start",
            "it averages the gradients in `backward`",
            "it averages the weights after each step",
            "it divides the data among the processes",
            "it puts `module.` in front of the names",
        ),
        ("a", "b", "e"),
        wrong=(
            Wrong("a b c e", "Weights are not averaged: they start equal and move equally, so there is nothing to average."),
            Wrong("a b d e", "The wrapper never sees your data before you give it a batch. Each process picks its own, or a sampler does."),
            Wrong("b e", "It also sends the weights at the start: from different weights, equal gradients would not make equal nets."),
            Wrong("a b", "Look at the names in its `state_dict()`: the wrapper is a module around yours."),
        ),
        because="A start, a mean in each `backward`, a level in the names. A sampler deals out the data; each optimizer works alone.",
    ),
    Question(
        "a forgiving load",
        "From lesson 08: a file of `Net` has `module.` before each name. How many tensors does loading it with `strict=False` change?",
        Number(),
        0,
        "No name fits, so nothing is loaded, and no error says so.",
        wrong=(Wrong(4, "It forgives names that do not fit; it does not guess which was meant.", belief=15),),
        belief=15,
        proof=_forgiven,
    ),
    Question(
        "a history",
        "From lesson 08: a worker appends `net.state_dict()` to a list after each of 20 steps. How many different nets are in the list?",
        Number(),
        1,
        "Each entry holds the live tensors, so all twenty show the last state. A clone would have stayed behind.",
        wrong=(Wrong(20, "Each dict is a new one, but the tensors in it are the net's own, and go on changing.", belief=13),),
        belief=13,
        proof=_kept,
    ),
)

# ---- the first task: one step of all copies -----------------------------------------------------------


def _together(nets: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer], batches: Sequence[Tensor]) -> None:
    """What the wrapper does in one step; `_statistics` holds it to a real run."""
    with torch.no_grad():
        for net in nets[1:]:
            for mine, first in zip(net.buffers(), nets[0].buffers(), strict=True):
                mine.copy_(first)
    for net, optimizer, x in zip(nets, optimizers, batches, strict=True):
        optimizer.zero_grad()
        net(x).abs().mean().backward()
    for twins in zip(*(net.parameters() for net in nets), strict=True):
        mean = torch.stack([twin.grad for twin in twins if twin.grad is not None]).mean(0)
        for twin in twins:
            twin.grad = mean.clone()
    for optimizer in optimizers:
        optimizer.step()


Stepping = Callable[[Sequence[nn.Module], Sequence[torch.optim.Optimizer], Sequence[Tensor]], Any]
Made = Callable[[Any], torch.optim.Optimizer]


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.02)


def _run(step: Stepping, steps: int, made: Made, copies: int = 2) -> list[nn.Module]:
    """Copies of one net after some steps; each call draws the same numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        first = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))
        nets: list[nn.Module] = [nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)) for _ in range(copies)]
        for net in nets:
            net.load_state_dict(first.state_dict())
        optimizers = [made(net.parameters()) for net in nets]
        given = torch.randn(steps, copies, 8, 4)
    for both in given:
        step(list(nets), list(optimizers), [x.clone() for x in both])
    return nets


def _agree(got: Sequence[nn.Module], wanted: Sequence[nn.Module]) -> bool:
    return all(
        same(value, other.state_dict()[key], 1e-6)
        for one, other in zip(got, wanted, strict=True)
        for key, value in one.state_dict().items()
    )


def _gradients_agree(got: Sequence[nn.Module], wanted: Sequence[nn.Module]) -> bool:
    twins = [pair for one, other in zip(got, wanted, strict=True) for pair in zip(one.parameters(), other.parameters(), strict=True)]
    return all(a.grad is not None and same(a.grad, b.grad, 1e-6) for a, b in twins)


def _compared(answer: Any, steps: int, made: Made, copies: int = 2) -> None:
    require_callable(answer, "step_together")
    got, wanted = _run(answer, steps, made, copies), _run(_together, steps, made, copies)
    if _agree(got, wanted):
        return
    likely = {
        mistake.name: wrong
        for mistake in STEP_MISTAKES
        if _agree(got, wrong := _run(evaluate(mistake.source, "step_together"), steps, made, copies)) and not _agree(wrong, wanted)
    }
    for name in sorted(likely, key=lambda name: not _gradients_agree(got, likely[name]))[:1]:
        _tell(got, wanted, name)
    if all(
        same(a, b, 1e-6) for one, other in zip(got, wanted, strict=True) for a, b in zip(one.parameters(), other.parameters(), strict=True)
    ):
        _tell(got, wanted, says="The parameters are right, the buffers are not.")
    _tell(got, wanted, says="Two processes in the wrapper come to something else.")


def _tell(got: Sequence[nn.Module], wanted: Sequence[nn.Module], mistake: str = "", says: str = "") -> None:
    """Of the first tensor that differs some numbers, and the whole net beside the wrapper's."""
    pairs = [
        (rank, name, value, other.state_dict()[name])
        for rank, (one, other) in enumerate(zip(got, wanted, strict=True))
        for name, value in one.state_dict().items()
    ]
    rank, name, found, right = next(one for one in pairs if not same(one[2], one[3], 1e-6))
    where = f"The first difference is in `{name}` of copy {rank}."
    evidence = modlab.diff(dict(wanted[rank].state_dict()), dict(got[rank].state_dict()))
    fail(f"{says} {where}".strip(), mistake=mistake, expected=right.flatten()[:4], got=found.flatten()[:4], evidence=evidence)


def _one_step(answer: Any) -> None:
    """after one step with momentum both copies are what the wrapper makes of them"""
    _compared(answer, 1, _sgd)


def _three_steps(answer: Any) -> None:
    """after three steps, too, running statistics and all"""
    _compared(answer, 3, _sgd)


def _other_optimizer(answer: Any) -> None:
    """and with Adam"""
    _compared(answer, 3, _adam)


def _three_copies(answer: Any) -> None:
    """and with three copies"""
    _compared(answer, 2, _sgd, copies=3)


_BUFFERS = """
    for net in nets[1:]:
        for mine, first in zip(net.buffers(), nets[0].buffers()):
            mine.copy_(first)
"""
_BACKWARD = """
    for net, optimizer, x in zip(nets, optimizers, batches):
        optimizer.zero_grad()
        net(x).abs().mean().backward()
"""
_MEAN = """
    for twins in zip(*(net.parameters() for net in nets)):
        mean = torch.stack([twin.grad for twin in twins]).mean(0)
        for twin in twins:
            twin.grad = mean.clone()
"""
_STEP = """
    for optimizer in optimizers:
        optimizer.step()
"""


def _step(*parts: str) -> str:
    return "\ndef step_together(nets, optimizers, batches):" + "".join(part.rstrip() for part in parts) + "\n"


STEP_MISTAKES = (
    Mistake(
        "the sum",
        _step(_BUFFERS, _BACKWARD, _MEAN.replace(".mean(0)", ".sum(0)"), _STEP),
        "Your copies take the sum of the gradients, as `all_reduce` gives it. Divide by the number of copies.",
    ),
    Mistake(
        "always halves",
        _step(_BUFFERS, _BACKWARD, _MEAN.replace(".mean(0)", ".sum(0) / 2"), _STEP),
        "You divide by two, whatever the number of copies: with three of them that is no mean.",
    ),
    Mistake(
        "the first one leads",
        _step(
            _BUFFERS,
            _BACKWARD,
            "\n    optimizers[0].step()\n",
            """
    for net in nets[1:]:
        for mine, first in zip(net.parameters(), nets[0].parameters()):
            mine.data.copy_(first.data)
""",
        ),
        "The first copy learns from its own batch, and the others take over its weights: their batches are for nothing. "
        "The wrapper sends weights at the start only; after that it averages gradients.",
    ),
    Mistake(
        "buffers copied after",
        _step(_BACKWARD, _MEAN, _STEP, _BUFFERS),
        "You copy the buffers when the step is done. The wrapper does so *before* the forward pass, after which each copy "
        "has moved them by its own batch.",
    ),
    Mistake(
        "no mean",
        _step(_BUFFERS, _BACKWARD, _STEP),
        "Each copy takes its own gradient: these are two trainings, and they part.",
    ),
    Mistake(
        "the mean comes late",
        _step(_BUFFERS, _BACKWARD, _STEP, _MEAN),
        "The optimizers have moved the weights before the gradients were averaged. The mean stands between `backward` and `step`.",
    ),
    Mistake(
        "averages the weights",
        _step(
            _BUFFERS,
            _BACKWARD,
            _STEP,
            """
    with torch.no_grad():
        for twins in zip(*(net.parameters() for net in nets)):
            mean = torch.stack(list(twins)).mean(0)
            for twin in twins:
                twin.copy_(mean)
""",
        ),
        "You average the weights after the step. For SGD that comes to the same, as its step is a plain multiple of the gradient; "
        "each optimizer then remembers another gradient, and with Adam the result differs. The wrapper averages gradients.",
    ),
    Mistake(
        "the mean moves along",
        _step(
            _BUFFERS,
            _BACKWARD,
            """
    for twins in zip(*(net.parameters() for net in nets)):
        for twin in twins:
            twin.grad = torch.stack([other.grad for other in twins]).mean(0)
""",
            _STEP,
        ),
        "The first copy's gradient is replaced before the second mean is taken, which then counts it in. "
        "Take the mean once, then give it to all.",
    ),
    Mistake(
        "in evaluation mode",
        _step("\n    for net in nets:\n        net.eval()\n", _BUFFERS, _BACKWARD, _MEAN, _STEP),
        "You put the copies into evaluation mode: a BatchNorm then normalises by its running statistics, and learns none.",
        belief=19,
    ),
    Mistake(
        "buffers forgotten",
        _step(_BACKWARD, _MEAN, _STEP),
        "The weights are right, but each copy keeps running statistics of its own. "
        "The wrapper copies the buffers of the first one to the others before each forward pass.",
    ),
    Mistake(
        "buffers averaged",
        _step(
            _BACKWARD,
            _MEAN,
            _STEP,
            """
    with torch.no_grad():
        for twins in zip(*(net.buffers() for net in nets)):
            mean = torch.stack([twin.double() for twin in twins]).mean(0)
            for twin in twins:
                twin.copy_(mean)
""",
        ),
        "You average the buffers. The wrapper copies those of the first one to the others, before each forward pass.",
    ),
    Mistake(
        "one big batch",
        _step(
            """
    x = torch.cat(list(batches))
    for net, optimizer in zip(nets, optimizers):
        optimizer.zero_grad()
        net(x).abs().mean().backward()
""",
            _STEP,
        ),
        "Each copy sees all the data. A BatchNorm then takes its mean over both batches, and in the wrapper over its own alone. "
        "It also saves no time.",
    ),
    Mistake(
        "no zeroing",
        _step(_BUFFERS, _BACKWARD.replace("        optimizer.zero_grad()\n", ""), _MEAN, _STEP),
        "The gradients of earlier steps are still there, and the new ones are added to them.",
        belief=22,
    ),
    Mistake(
        "only the first learns",
        _step(_BUFFERS, _BACKWARD, _MEAN, "\n    optimizers[0].step()\n"),
        "One optimizer takes its step. Each process has its own, and each has to.",
    ),
)

STEP = Task(
    "step_together",
    "Write `step_together(nets, optimizers, batches)`: one training step of all copies, each on its own batch, "
    "after which they are what two processes in the wrapper would be.",
    starter="""
def step_together(nets, optimizers, batches):
    ...
""",
    reference=_step(_BUFFERS, _BACKWARD, _MEAN, _STEP),
    probes=(_one_step, _three_steps, _other_optimizer, _three_copies),
    mistakes=STEP_MISTAKES,
    hints=(
        "Four things, in this order: equal buffers, a gradient for each copy, the mean of the gradients, a step for each optimizer.",
        "`zip(*(net.parameters() for net in nets))` gives the same parameter of all copies at once.",
        "Assign the mean to `.grad` of each of them. `net.buffers()` go by the first copy: `mine.copy_(first)`.",
    ),
    minutes=8,
    matters="This is what data-parallel training does in each step, on two processes as on a thousand.",
)

# ---- the second task: save ---------------------------------------------------------------------------


class Wrapper(nn.Module):
    """The names of `DistributedDataParallel` without its processes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return self.module(x)


class Nested(nn.Module):
    """Has the word itself in its names."""

    def __init__(self) -> None:
        super().__init__()
        self.submodule = nn.Linear(4, 3)
        self.module = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Any:
        return self.module(self.submodule(x))


def _saved(answer: Any, net: nn.Module) -> dict[str, Any]:
    """What a reader of the file gets."""
    require_callable(answer, "save_plain")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "net.pt")
        answer(Wrapper(net), str(file))
        if not file.is_file():
            fail("Nothing was written to the path.", expected="a file", got="none")
        try:
            found = torch.load(file, weights_only=True)
        except Exception as error:  # noqa: BLE001 - whatever the file holds
            try:
                whole = isinstance(torch.load(file, weights_only=False), nn.Module)
            except Exception:  # noqa: BLE001 - not even a file of torch's
                whole = False
            fail(
                "" if whole else f"The file cannot be loaded: {type(error).__name__}.",
                mistake="the whole module" if whole else "",
                expected="a state_dict",
                got="a module" if whole else "something else",
            )
    if not isinstance(found, dict):
        fail("The file should hold a state_dict.", expected="a dict", got=f"a {type(found).__name__}")
    return found


def _loads(answer: Any) -> None:
    """a plain net of the same class loads the file, strictly"""
    for net in (Net(), Nested()):
        wanted, found = net.state_dict(), _saved(answer, net)
        details: dict[str, Any] = {"expected": [*wanted], "got": [*found]}
        evidence = modlab.diff(found, net) if found and all(isinstance(value, Tensor) for value in found.values()) else None
        if [*found] == [f"module.{name}" for name in wanted]:
            fail(mistake="names of the wrapper", evidence=evidence, **details)
        if sorted(found) == sorted({f"module.{name}".lstrip("module.") for name in wanted}) and sorted(found) != sorted(wanted):
            fail(mistake="lstrip", evidence=evidence, **details)
        if any(isinstance(value, dict) and sorted(value) == sorted(wanted) for value in found.values()):
            fail(mistake="a dict in a dict", **details)
        if sorted(found) == sorted({name.replace("module.", "") for name in wanted}) and sorted(found) != sorted(wanted):
            fail(mistake="every module. taken out", evidence=evidence, **details)
        if sorted(found) == sorted(name for name, _ in net.named_parameters()) and len(found) < len(wanted):
            fail(mistake="parameters only", evidence=evidence, **details)
        if sorted(found) != sorted(wanted):
            fail("The names are not those of the plain net.", evidence=evidence, **details)


def _same_numbers(answer: Any) -> None:
    """with the same numbers"""
    net = Nested()
    net(torch.randn(8, 4))
    wanted, found = net.state_dict(), _saved(answer, net)
    for name, value in wanted.items():
        if not same(found[name], value):
            fail(f"`{name}` has other numbers in the file.", expected=value.flatten()[:4], got=found[name])
        if found[name].dtype != value.dtype:
            fail(f"`{name}` has another type in the file.", expected=str(value.dtype), got=str(found[name].dtype))


def _untouched(answer: Any) -> None:
    """and the wrapper can go on training"""
    net = Nested()
    wrapper = Wrapper(net)
    before, names = modlab.snapshot(net), [*wrapper.state_dict()]
    with tempfile.TemporaryDirectory() as folder:
        answer(wrapper, str(Path(folder, "net.pt")))
    if wrapper.module is not net or [*wrapper.state_dict()] != names:
        fail("Saving has changed the wrapper.", expected=names, got=[*wrapper.state_dict()], evidence=modlab.tree(wrapper))
    if not all(module.training for module in wrapper.modules()):
        fail("Saving has left it in evaluation mode.", expected="training mode", got="evaluation mode", evidence=modlab.tree(wrapper))
    change = modlab.diff(before, net)
    if change.changed:
        fail("Saving has changed the net's tensors.", evidence=change)


def _save(body: str) -> str:
    return f"""
def save_plain(ddp, path):
    {body}
"""


SAVE = Task(
    "save_plain",
    "Write `save_plain(ddp, path)`: it saves the state of a wrapped net so that a plain net, without wrapper, can load it.",
    starter=_save("..."),
    reference=_save("torch.save(ddp.module.state_dict(), path)"),
    probes=(_loads, _same_numbers, _untouched),
    mistakes=(
        Mistake(
            "names of the wrapper",
            _save("torch.save(ddp.state_dict(), path)"),
            "That is the wrapper's state, and each name in it begins with `module.`. Inside the wrapper is the net itself.",
            belief=14,
        ),
        Mistake(
            "every module. taken out",
            _save('torch.save({name.replace("module.", ""): value for name, value in ddp.state_dict().items()}, path)'),
            "`replace` takes the word out wherever it stands, so `submodule.weight` becomes `subweight`. "
            "Only the first level is the wrapper's.",
            belief=14,
        ),
        Mistake(
            "lstrip",
            _save('torch.save({name.lstrip("module."): value for name, value in ddp.state_dict().items()}, path)'),
            "`lstrip` takes away letters, and not a word: from `module.l0.weight` it eats the `l` too. `removeprefix` takes the word.",
            belief=14,
        ),
        Mistake(
            "a dict in a dict",
            _save('torch.save({"state_dict": ddp.module.state_dict()}, path)'),
            "The state lies one level down in your file, and `load_state_dict` would look for names at the top. "
            "That is good for a checkpoint; here the state itself is wanted.",
        ),
        Mistake(
            "the whole module",
            _save("torch.save(ddp.module, path)"),
            "The file holds the object itself, with its code's address, and `torch.load` refuses that by default. Save a state_dict.",
            belief=17,
        ),
        Mistake(
            "parameters only",
            _save("torch.save(dict(ddp.module.named_parameters()), path)"),
            "The running statistics are buffers: they belong to the state too, and they are not in the file.",
            belief=11,
        ),
    ),
    hints=(
        "The wrapper has one child. What is its name?",
        "`ddp.module` is the net that you wrapped, and it has a `state_dict()` of its own.",
    ),
    minutes=3,
    matters="A checkpoint outlives its training: saved without the wrapper, it loads on a laptop.",
)

LESSON = Content(
    name="15_two_processes",
    title="Two processes",
    goal="say what DistributedDataParallel adds to a training, do it by hand, and save so that a plain net can load it",
    minutes=30,
    after=("08_save_load_repair", "05_training_loop"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(STEP, SAVE),
)
