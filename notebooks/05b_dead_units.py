"""05b: the units of a trained network: dead, starving, cancelling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import modlab
from modlab.lessons.checking import fail, require_callable, require_equal
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, YesNo
from modlab.lessons.note import MyLinear, Net

# ---- what the questions are proved with -----------------------------------------------------------


def _back(loss: Any) -> None:
    """Untyped in torch."""
    loss.backward()


@cache
def trained(seed: int) -> tuple[list[float], list[float], list[list[int]], float]:
    """The lesson's run: l1.weight before and after, in how many of each thousand rounds each unit fired, the last mean loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Net()
        optimizer = SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)
        before: list[float] = net.l1.weight.flatten().tolist()
        gradients, losses = torch.zeros(10_000, 3), torch.zeros(10_000)
        for i in range(10_000):
            loss = torch.abs(net(torch.randn(4)))
            optimizer.zero_grad()
            _back(loss)
            optimizer.step()
            grad = net.l1.weight.grad
            assert grad is not None
            gradients[i], losses[i] = grad[:, 0], loss.item()
        fired = (gradients != 0).reshape(10, 1000, 3).sum(1).T.tolist()
        return before, net.l1.weight.flatten().tolist(), fired, losses[-1000:].mean().item()


def _near_zero(seed: int) -> int:
    return sum(abs(weight) < 0.01 for weight in trained(seed)[1])


def _told_truly() -> bool:
    """What the notebook says of the runs that it does not show, or not in full."""
    unit = trained(63)[2][2]
    well = all(abs(weight) < 2e-3 for seed in (0, 1, 3) for weight in trained(seed)[1])
    return well and (unit[0], unit[-1]) == (335, 19) and round(trained(6)[3], 3) == 0.004


def _kind(seed: int, unit: int) -> str:
    fired = trained(seed)[2][unit]
    return "a" if not any(fired) else "b" if fired[-1] < fired[0] / 5 else "c"


def _after_step(gradient: Tensor | None) -> float:
    weight = nn.Parameter(torch.ones(1))
    weight.grad = gradient
    SGD([weight], lr=0.1, weight_decay=0.1).step()
    return weight.item()


def _decayed() -> str:
    weight = nn.Parameter(torch.tensor([0.4113]))
    weight.grad = torch.zeros(1)
    optimizer = SGD([weight], lr=1e-4, weight_decay=1e-2, momentum=0.9)
    for _ in range(10_000):
        optimizer.step()
    return "b" if abs(weight.item() - trained(63)[1][1]) < 1e-3 else ""


def _forked(rate: float, bias: float) -> list[int]:
    """On how many of 1,000 inputs each unit fires after 2,000 rounds of seed 63, with this rate, and so much more bias of unit 1."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(63)
        net = Net()
        optimizer = SGD(net.parameters(), lr=rate, weight_decay=1e-2, momentum=0.9)
        with torch.no_grad():
            net.l0.bias[1] += bias
        for _ in range(2_000):
            loss = torch.abs(net(torch.randn(4)))
            optimizer.zero_grad()
            _back(loss)
            optimizer.step()
        inputs = torch.randn(1000, 4, generator=torch.Generator().manual_seed(1))
        found: list[int] = (F.relu(net.l0(inputs)) > 0).sum(0).tolist()
        return found


def _faster() -> str:
    """The lesson says as well that unit 2 dies, and unit 0 works."""
    fired = _forked(1e-3, 0)
    return "a" if fired[1:] == [0, 0] and fired[0] > 900 else ""


# ---- questions ------------------------------------------------------------------------------------

LIVES = Choice("dead: it fires on no input at all", "starving: it fires ever more rarely", "busy: it fires on many inputs, to the end")

PREDICTIONS = (
    Question(
        "near zero from seed 63",
        "Now from seed 63. How many of the three weights of `l1` end within 0.01 of zero?",
        Number(),
        1,
        "Two of the three stay far away, although the loss has become small.",
        wrong=(
            Wrong(3, "So it was with seed 0. A weight is pulled by its gradient, and not every unit gets one.", belief=25),
            Wrong(2, "Close: one unit gets no gradient at all, and a second one hardly any.", belief=25),
            Wrong(0, "One unit does learn: it fires in most rounds, and its weight goes to zero."),
        ),
        proof=lambda: _near_zero(63) if _told_truly() else -1,
    ),
    Question(
        "the weight of the dead unit",
        "The weight of unit 1 began at 0.4113, and each of its 10,000 gradients was zero. Where is it now?",
        Choice("at 0.4113 still", "nearer to zero, at 0.3722", "at -0.0003, like that of unit 0", "further from zero, at 0.4545"),
        "b",
        "No gradient moved it. Weight decay did: in every step the optimizer takes away a small share of each weight.",
        wrong=(
            Wrong("a", "The *loss* does not move it. The optimizer adds weight decay to a gradient of zero, and steps.", belief=23),
            Wrong("c", "Unit 0 got there by its gradients. Decay alone is slow: a tenth in 10,000 steps."),
            Wrong("d", "Weight decay pulls towards zero, never away from it."),
        ),
        proof=_decayed,
    ),
    Question(
        "ten times the rate",
        "The first fork begins at round 0, with ten times the learning rate. On how many of 1,000 inputs does unit 1 fire after it?",
        Choice("on none", "on some ten", "on about half of them"),
        "a",
        "Its gradient is zero in every round, and ten times zero is zero.",
        wrong=(
            Wrong("b", "A larger step needs something to multiply. The gradient of a dead unit is zero.", belief=25),
            Wrong("c", "Nothing pushes it there: the optimizer multiplies its rate by a gradient, and that is zero.", belief=25),
        ),
        proof=_faster,
    ),
    Question(
        "a greater bias",
        "The second fork begins there too. It adds 2 to the bias of unit 1 in `l0`, and changes nothing else. "
        "Does unit 1 fire after its 2,000 rounds?",
        YesNo(),
        True,
        "With that bias some inputs lift it above zero. Then it gets gradients, and stays alive.",
        wrong=(Wrong(False, "Training cannot wake it, but a greater bias can: now some inputs lift the unit above zero.", belief=25),),
        proof=lambda: _forked(1e-4, 2)[1] > 0,
    ),
    Question(
        "unit 0 of seed 2",
        "From seed 2, the weight of unit 0 goes from -0.9498 to -0.4285. Decay alone would have left it at -0.8595. What is unit 0?",
        LIVES,
        "b",
        "More than decay moved it, so it is not dead; and less than a busy unit would be. It fires in 741 of 10,000 rounds.",
        wrong=(
            Wrong("a", "A dead unit's weight moves by decay alone, and would stand at -0.8595. Something else pulled it.", belief=25),
            Wrong("c", "A busy unit's weight is pulled all the time, and the other two are below 0.001 by now."),
        ),
        proof=lambda: _kind(2, 0),
    ),
    Question(
        "unit 0 of seed 6",
        "From seed 6, the weights end at -1.0967, 0.9646 and -0.0001, and the mean loss at 0.004. What is unit 0?",
        LIVES,
        "c",
        "It fires in every second round, to the end, and so does unit 1. Their weights stay, for another reason.",
        wrong=(
            Wrong(
                "a",
                "So it was with seed 63: a dead unit keeps its weight too. The weight does not tell; count how often the unit fires.",
                belief=25,
            ),
            Wrong(
                "b",
                "So it was with seed 2. But firing rarely is not all that keeps a weight from zero: count how often it fires.",
                belief=25,
            ),
        ),
        proof=lambda: _kind(6, 0),
    ),
)

REASONS = (
    Question(
        "a gradient of exactly zero",
        "Why is the gradient of unit 1 exactly zero in every round?",
        Choice(
            "the loss is so small that it rounds to zero",
            "its activation is zero on every input, and the gradient of its weight is that activation, up to the sign",
            "weight decay and gradient cancel each other",
        ),
        "b",
        "`l1` multiplies each activation by its weight, so the slope in the weight is the activation. ReLU made it zero.",
        wrong=(
            Wrong("a", "The loss is far from zero at first, and the same loss gives units 0 and 2 a gradient."),
            Wrong("c", "Decay is added by the optimizer, in `step`; `.grad` holds what the loss says, alone."),
        ),
    ),
    Question(
        "weights that cancel",
        "Why do two weights of seed 6 stay near -1.1 and 1, with busy units and a small loss?",
        Choice(
            "10,000 rounds were too few for them",
            "units 0 and 1 have become one unit, up to a factor, and the two weights cancel",
            "weight decay keeps large weights where they are",
        ),
        "b",
        "Their columns of `l0.weight` point the same way, so the two activations rise and fall together; the output subtracts them.",
        wrong=(
            Wrong("a", "The loss is as small as with the other seeds: there is hardly anything left to gain."),
            Wrong("c", "Decay pulls large weights harder than small ones. It is what still moves these two, slowly."),
        ),
    ),
)

RECALLS = (
    Question(
        "what tells a dead unit",
        "What tells you that a unit is dead?",
        Choice(
            "its weight is exactly zero after training",
            "it is zero after the ReLU, for every input",
            "it is zero after the ReLU, for one input",
            "the loss no longer falls",
        ),
        "b",
        "Dead means: no input makes it fire. So it passes nothing forward, and no gradient back.",
        wrong=(
            Wrong("a", "Here the dead unit kept a weight of 0.3722, and units at work went to zero.", belief=25),
            Wrong("c", "On any one input, about half of all units are silent.", belief=25),
            Wrong("d", "With seed 63 the loss fell all the way, with one dead unit among three."),
        ),
    ),
    Question(
        "None and decay",
        "From lesson 05: a weight has no gradient, its `.grad` is `None`. Does a step with weight decay move it?",
        YesNo(),
        False,
        "Optimizers skip parameters without a gradient: no step, no decay, no momentum.",
        wrong=(Wrong(True, "It would be with a gradient of zero. Without one, the optimizer skips the weight.", belief=23),),
        proof=lambda: _after_step(None) != 1,
    ),
    Question(
        "which of four",
        "Two units fire on half of the inputs each. The loss is near zero; their weights are 0.9 and -1.1. What is it?",
        Choice("dead", "starving", "cancelling", "well: both weights still fall"),
        "c",
        "Both get gradients all the time, and the output is small: each undoes the other.",
        wrong=(
            Wrong("a", "A dead unit fires on no input at all.", belief=25),
            Wrong("b", "A starving unit fires ever more rarely.", belief=25),
            Wrong("d", "With a loss near zero nothing but decay pulls at them."),
        ),
    ),
)

# ---- task: one round -------------------------------------------------------------------------------


# ---- task: dead units ------------------------------------------------------------------------------


def _net(bias: list[float], *, quiet: Iterable[int] = ()) -> Net:
    """A net with these biases in front of the ReLU; the units of `quiet` hardly count for the output."""
    net = Net()
    net.l0, net.l1 = MyLinear(4, len(bias)), MyLinear(len(bias), 1)
    with torch.no_grad():
        net.l0.bias.copy_(torch.tensor(bias))
        net.l1.weight.copy_(net.l1.weight.sign() + net.l1.weight)
        net.l1.bias.zero_()
        for unit in quiet:
            net.l1.weight[unit] = 1e-6
    return net


def _dead(net: Net, inputs: Tensor) -> list[int]:
    with torch.no_grad():
        return _numbers((F.relu(net.l0(inputs)) == 0).all(0))


def _numbers(mask: Tensor) -> list[int]:
    return [i for i, held in enumerate(mask.flatten().tolist()) if held]


CONFUSIONS: tuple[tuple[str, Callable[[Net, Tensor], list[int]]], ...] = (
    ("one input only", lambda net, inputs: _dead(net, inputs[:1])),
    ("one input only", lambda net, inputs: _dead(net, inputs[-1:])),
    ("silent on some input", lambda net, inputs: _numbers((F.relu(net.l0(inputs)) == 0).any(0))),
    ("the mean for all", lambda net, inputs: _numbers(net.l0(inputs).mean(0) <= 0)),
    ("it looks at the weights", lambda net, inputs: _numbers(net.l1.weight.abs() < 1e-2)),
    ("it looks at the output", lambda net, inputs: _numbers(F.relu(net(inputs)) == 0)),
    ("it looks at the output", lambda net, inputs: _numbers(net(inputs).abs() < 1e-3)),
    ("before the ReLU", lambda net, inputs: _numbers((net.l0(inputs) == 0).all(0))),
)


def _list(given: Any) -> list[int]:
    """Numbers of units from whatever form they have."""
    if isinstance(given, Tensor):
        given = given.bool().tolist() if given.dtype == torch.bool else given.flatten().tolist()
    if given is None or isinstance(given, (str, dict)) or not isinstance(given, Iterable):
        fail("Give the numbers of the units as a list: [1], or [] for none.", expected="a list of numbers", got=given)
    found = [one.item() if hasattr(one, "item") else one for one in given]
    if any(isinstance(one, bool) for one in found):
        fail("Give the numbers of the units, not yes and no for each: of [False, True, False] that is [1].", expected=[1], got=found)
    if not all(isinstance(one, int) for one in found):
        fail("Give whole numbers, counted from 0.", expected="a list of whole numbers", got=found)
    return sorted(found)


def _judge_dead(answer: Any, net: Net, inputs: Tensor, says: str) -> None:
    require_callable(answer, "dead_units")
    expected, before = _dead(net, inputs), modlab.snapshot(net)
    given = answer(net, inputs)
    given = list(given) if isinstance(given, Iterator) else given
    if isinstance(given, tuple) and len(given) == 1 and isinstance(given[0], Tensor):
        given = given[0]  # of torch.where
    if not isinstance(given, Tensor) or given.dtype != torch.bool:
        flat = [] if given is None else given
        wrong = next((name for name, way in CONFUSIONS if _as_list(flat) == way(net, inputs) != expected), "")
        if wrong:
            fail(says, mistake=wrong, expected=expected, got=_as_list(flat), evidence=modlab.trace(net)(inputs))
    require_equal(_list(given), expected, says, evidence=modlab.trace(net)(inputs))
    changed = modlab.diff(before, net).changed
    if changed:
        fail("It should look at the net only, and changes it.", expected="nothing changed", got=f"{len(changed)} changed")


def _as_list(given: Any) -> list[Any]:
    """As a list without a word, for comparing with what usual mistakes give."""
    try:
        flat = given.flatten().tolist() if isinstance(given, Tensor) else list(given)
        return sorted(one.item() if hasattr(one, "item") else one for one in flat)
    except Exception:  # noqa: BLE001 - an odd answer is none of the usual mistakes
        return [None]


def _one_dead(answer: Any) -> None:
    """it finds the one unit that never fires"""
    _judge_dead(answer, _net([0.5, -60.0, 0.2], quiet=[0, 2]), torch.randn(300, 4), "Unit 1 of this net never fires; it is the only one.")


def _rare(answer: Any) -> None:
    """a unit that fires on a single one of 300 inputs is not dead"""
    inputs = torch.randn(300, 4)
    net = _net([0.5, -60.0, 0.2, -60.0])
    with torch.no_grad():
        inputs[150] = 40 * torch.sign(net.l0.weight[:, 3])
        net.l0.weight[:, 3] = net.l0.weight[:, 3].sign()
        net.l0.weight[:, 1] = -net.l0.weight[:, 3]
    _judge_dead(answer, net, inputs, "Unit 3 fires on one input in the middle; unit 1 on none.")


def _several(answer: Any) -> None:
    """it finds several in a wider net, and none where all fire"""
    _judge_dead(answer, _net([-60.0, 0.1, -60.0, 0.3, 0.2, -60.0]), torch.randn(300, 4), "Of these six units, three never fire.")
    _judge_dead(answer, _net([0.5, 0.1, 0.2]), torch.randn(300, 4), "Each of these three units fires on some input.")


def _looks_only(answer: Any) -> None:
    """it only looks: the net keeps its mode, and no hook is left on it"""
    net = _net([0.5, -60.0, 0.2])
    for training in (True, False):
        net.train(training)
        answer(net, torch.randn(300, 4))
        hooks = modlab.hooks(net)
        if len(hooks):
            fail(mistake="a hook left on", expected="no hook", got=f"{len(hooks)} on the net", evidence=hooks)
        if any(module.training is not training for module in net.modules()):
            fail("It should look at the net only, and changes its mode.", evidence=modlab.tree(net))


DEAD_UNITS = Task(
    "dead_units",
    "Write `dead_units(net, inputs)`: a list with the numbers of the units of `net.l0` that fire on none of the inputs.",
    starter="""
def dead_units(net, inputs):
    ...
""",
    reference="""
def dead_units(net, inputs):
    with torch.no_grad():
        activations = F.relu(net.l0(inputs))
    return [unit for unit in range(activations.shape[1]) if (activations[:, unit] == 0).all()]
""",
    probes=(_one_dead, _rare, _several, _looks_only),
    mistakes=(
        Mistake(
            "one input only",
            """
def dead_units(net, inputs):
    return [unit for unit, value in enumerate(F.relu(net.l0(inputs[0]))) if value == 0]
""",
            "On any one input about half of all units are silent. Dead are those that are silent on all of them.",
            belief=25,
        ),
        Mistake(
            "silent on some input",
            """
def dead_units(net, inputs):
    return [unit for unit in range(net.l0.weight.shape[1]) if (F.relu(net.l0(inputs))[:, unit] == 0).any()]
""",
            "Silent on *some* input is nearly every unit of a ReLU. Dead are those that are silent on all of them.",
            belief=25,
        ),
        Mistake(
            "it looks at the weights",
            """
def dead_units(net, inputs):
    return [unit for unit, weight in enumerate(net.l1.weight.flatten()) if abs(weight) < 1e-2]
""",
            "A weight does not say whether its unit fires: busy units have tiny weights after this training, dead ones large ones.",
            belief=25,
        ),
        Mistake(
            "it looks at the output",
            """
def dead_units(net, inputs):
    return [number for number, output in enumerate(net(inputs).flatten()) if abs(output) < 1e-3]
""",
            "These are numbers of inputs, at the end of the net. The units are in the middle, between `l0` and `l1`.",
        ),
        Mistake(
            "before the ReLU",
            """
def dead_units(net, inputs):
    return [unit for unit, silent in enumerate((net.l0(inputs) == 0).all(0)) if silent]
""",
            "Before the ReLU a silent unit is *below* zero; ReLU makes it zero. Ask after the ReLU, or ask for `<= 0`.",
        ),
        Mistake(
            "the mean for all",
            """
def dead_units(net, inputs):
    return [unit for unit, mean in enumerate(net.l0(inputs).mean(0)) if mean <= 0]
""",
            "A mean below zero leaves room for inputs on which the unit fires: it is quiet, perhaps starving, and not dead.",
            belief=25,
        ),
        Mistake(
            "a hook left on",
            """
def dead_units(net, inputs):
    kept = []
    net.l0.register_forward_hook(lambda module, args, output: kept.append(output))
    net(inputs)
    return [unit for unit in range(kept[0].shape[1]) if (kept[0][:, unit] <= 0).all()]
""",
            "Your hook stays on the net: it runs in every later call, and each count adds one more. "
            "Keep the handle and call its `remove()`, or call `net.l0` yourself.",
            belief=34,
        ),
    ),
    hints=(
        "What a unit gives is what comes out of the ReLU, between `net.l0` and `net.l1`.",
        "`F.relu(net.l0(inputs))` has a row for each input and a column for each unit.",
        "A unit is dead if its column holds nothing but zeros: `(column == 0).all()`.",
    ),
    minutes=6,
    matters="A unit that never fires gets no gradient, so it stays dead: its weights take memory and time, and do nothing.",
)

# ---- task: freeze ----------------------------------------------------------------------------------


LESSON = Content(
    name="05b_dead_units",
    title="Dead, starving, cancelling: what units do",
    goal="tell units that learn from dead, starving and cancelling ones, by what they do and not by their weights",
    minutes=25,
    after=("05_training_loop",),
    predictions=PREDICTIONS,
    reasons=REASONS,
    recalls=RECALLS,
    tasks=(DEAD_UNITS,),
)
