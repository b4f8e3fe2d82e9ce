"""05: the training loop, its eight parts, and what moves a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

import modlab
from modlab.lessons.checking import fail, require_callable, require_equal, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Order, Several, YesNo
from modlab.lessons.note import MyLinear, Net

# ---- what the questions are proved with -----------------------------------------------------------

NETWORK = "network: `net = Net()`"
OPTIMIZER = "optimizer: `optimizer = SGD(net.parameters(), lr=1e-4)`"
INPUT = "input: `x = torch.randn(4)`"
FORWARD = "forward: `output = net(x)`"
LOSS = "loss: `loss = torch.abs(output)`"
ZERO = "zero: `optimizer.zero_grad()`"
BACKWARD = "backward: `loss.backward()`"
STEP = "step: `optimizer.step()`"


def _in_order(order: list[str]) -> bool:
    """What needs something comes after it; gradients are zeroed anywhere but between `backward` and `step`."""
    at = order.index
    chain = at(NETWORK) < at(OPTIMIZER) < at(ZERO) and max(at(NETWORK), at(INPUT)) < at(FORWARD) < at(LOSS) < at(BACKWARD) < at(STEP)
    return chain and not at(BACKWARD) < at(ZERO) < at(STEP)


EIGHT = Order(BACKWARD, INPUT, NETWORK, STEP, LOSS, ZERO, OPTIMIZER, FORWARD, valid=_in_order)


def _eight() -> tuple[str, ...]:
    """The order runs, and moves all four parameters."""
    order = tuple("cgbhefad")
    names: dict[str, Any] = {"torch": torch, "Net": Net, "SGD": SGD}
    for letter in order:
        exec(EIGHT.text(letter).split("`")[1], names)  # the lines of the question
        if letter == "g":
            before = [p.detach().clone() for p in names["net"].parameters()]
    moved = [not torch.equal(old, new) for old, new in zip(before, names["net"].parameters(), strict=True)]
    return order if moved[2] and moved[3] else ()


def _back(loss: Any) -> None:
    """Untyped in torch."""
    loss.backward()


def _after_step(gradient: Tensor | None) -> float:
    weight = nn.Parameter(torch.ones(1))
    weight.grad = gradient
    SGD([weight], lr=0.1, weight_decay=0.1).step()
    return weight.item()


def _movers() -> str:
    """With a gradient of zero in every step: decay, then momentum after one step with a gradient, then a large learning rate."""
    moved = []
    for letter, decay, momentum, first in (("a", 0.1, 0.0, 0.0), ("b", 0.0, 0.9, 1.0), ("c", 0.0, 0.0, 0.0)):
        weight = nn.Parameter(torch.ones(1))
        optimizer = SGD([weight], lr=10.0 if letter == "c" else 0.1, weight_decay=decay, momentum=momentum)
        weight.grad = torch.full((1,), first)
        optimizer.step()
        before = weight.item() if first else 1.0
        weight.grad = torch.zeros(1)
        optimizer.step()
        if weight.item() != before:
            moved.append(letter)
    return " ".join(moved)


def _twice() -> float:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(10)
        m = nn.Linear(3, 3)
        x = torch.randn(2, 3, requires_grad=True)
        _back(m(x).sum())
        _back(m(x).sum())
        assert x.grad is not None
        return x.grad[0, 0].item()


def _filled() -> str:
    net, x = Net(), torch.randn(4)
    before = [p.detach().clone() for p in net.parameters()]
    _back(torch.abs(net(x)))
    moved = any(not torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
    return "c" if moved else "a" if x.grad is not None else "b" if all(p.grad is not None for p in net.parameters()) else ""


def _emptied() -> str:
    net = Net()
    _back(torch.abs(net(torch.randn(4))))
    SGD(net.parameters(), lr=1e-4).zero_grad()
    return "a" if all(p.grad is None for p in net.parameters()) else "b"


def _fixed() -> bool:
    """Whether 300 rounds with gradients zeroed end with a smaller loss, and 200 do not, as the lesson says."""

    def losses(*, zeroed: bool) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            net = Net()
            optimizer = SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)
            found = torch.zeros(300)
            for i in range(300):
                if zeroed:
                    optimizer.zero_grad()
                loss = torch.abs(net(torch.randn(4)))
                _back(loss)
                optimizer.step()
                found[i] = loss.item()
            return found

    fixed, original = losses(zeroed=True), losses(zeroed=False)
    better = [bool(fixed[end - end // 10 : end].mean() < original[end - end // 10 : end].mean()) for end in (50, 200, 300)]
    return better == [True, False, True]


def _flagged() -> bool:
    net = Net()
    net.l0.requires_grad = False  # type: ignore[assignment]
    return not any(p.requires_grad for p in net.l0.parameters())


def _three_outputs() -> str:
    m = MyLinear(4, 3)
    try:
        m(torch.randn(4)).backward()
    except RuntimeError as error:
        return "c" if "scalar outputs" in str(error) else ""
    return "a" if m.weight.grad is not None else "b"


# ---- questions ------------------------------------------------------------------------------------


PREDICTIONS = (
    Question(
        "the eight parts",
        "Order the eight parts: what is done once, then one round.",
        EIGHT,
        ("c", "g", "b", "h", "e", "f", "a", "d"),
        "Each part needs what an earlier one made. `zero` has more than one good place: anywhere but between `backward` and `step`.",
        wrong=(
            Wrong(
                "c g b h e a f d",
                "`zero` between `backward` and `step` throws the gradients away before they are used: nothing would move.",
                belief=22,
            ),
            Wrong("c g b h e f d a", "`step` uses the gradients, and `backward` makes them: so `backward` comes first."),
            Wrong("g c b h e f a d", "The optimizer is given the parameters of the network: the network must be there before it."),
            Wrong("c g b h f a e d", "`backward` starts at the loss, so there must be one."),
        ),
        proof=_eight,
    ),
    Question(
        "what backward fills",
        "What does `loss.backward()` do in this loop?",
        Choice(
            "it fills `x.grad`: how the loss changes with the input",
            "it fills the `.grad` of each parameter: how the loss changes with it",
            "it changes the parameters, so that the loss gets smaller",
        ),
        "b",
        "Training needs the slope of one number, the loss, in each *parameter*. What moves the parameters is `step`.",
        wrong=(
            Wrong("a", "`x` does not ask for a gradient, and gets none: it is not the input that is trained."),
            Wrong("c", "`backward` moves nothing. It leaves slopes in `.grad`, and `optimizer.step()` uses them."),
        ),
        proof=_filled,
    ),
    Question(
        "a gradient of zero",
        "A weight of 1.0 has a gradient of zero. Does a step with weight decay move it?",
        YesNo(),
        True,
        "The optimizer adds the decay to the gradient, and 0 + decay is not 0.",
        wrong=(
            Wrong(False, "Zero is a gradient like any other: the optimizer handles this weight, and decay is part of that.", belief=23),
        ),
        proof=lambda: _after_step(torch.zeros(1)) != 1,
    ),
    Question(
        "a gradient of None",
        "And if its gradient is `None`?",
        YesNo(),
        False,
        "An optimizer passes over parameters without a gradient: no step, no decay, no momentum.",
        wrong=(Wrong(True, "None is not zero: what has no gradient is passed over, decay and all.", belief=23),),
        proof=lambda: _after_step(None) != 1,
    ),
    Question(
        "without zeroing",
        "The first number of `x.grad` is 0.3082. The pass runs once more, and nothing is zeroed. What is it then?",
        Number(tolerance=2e-3),
        0.6164,
        "`backward` adds to what stands in `.grad`: twice the same gradient is the double.",
        wrong=(
            Wrong(0.3082, "`backward` does not replace what stands in `.grad`; it adds to it.", belief=22),
            Wrong(0.0, "The two do not cancel: they are the same gradient, and they add up.", belief=22),
        ),
        proof=_twice,
    ),
    Question(
        "the fix, tried",
        "After 300 rounds, is the loss smaller with the fix?",
        YesNo(),
        True,
        "About half of what it is without. Both copies had the same inputs, so nothing else made the difference.",
        wrong=(
            Wrong(
                False, "Without zeroing, each step goes where all earlier inputs pointed, too. That overshoots, again and again.", belief=23
            ),
        ),
        proof=_fixed,
    ),
    Question(
        "after zero_grad",
        "What is the `.grad` of each parameter after `optimizer.zero_grad()`?",
        Choice("`None`", "a tensor of zeros", "what it was, until the next `backward`"),
        "a",
        "Since PyTorch 2.0, `zero_grad` takes the tensors away. With `set_to_none=False` it fills them with zeros, as its name says.",
        wrong=(
            Wrong("b", "So it was before PyTorch 2.0, and so the name says. Today the tensors are taken away.", belief=23),
            Wrong("c", "It works at once, and on the gradients that are there."),
        ),
        proof=_emptied,
    ),
    Question(
        "a flag on the module",
        "`net.l0.requires_grad = False`: is the layer `l0` frozen?",
        YesNo(),
        False,
        "The line makes a new attribute that nobody reads. Parameters have the flag; the module's `requires_grad_(False)` sets theirs.",
        wrong=(
            Wrong(True, "It reads well and does nothing: modules have no such flag, and Python lets you invent an attribute.", belief=24),
        ),
        proof=_flagged,
    ),
)

RECALLS = (
    Question(
        "a place for zero",
        "Where in a round may `zero` stand?",
        Several("before `forward`", "between `loss` and `backward`", "between `backward` and `step`", "after `step`"),
        ("a", "b", "d"),
        "It must not come between the part that makes the gradients and the part that uses them.",
        belief=22,
    ),
    Question(
        "moved without a gradient",
        "In every step the gradient of a weight is a tensor of zeros. Which of these can still move the weight?",
        Several("weight decay", "momentum from earlier steps", "a larger learning rate"),
        ("a", "b"),
        "Decay is added to the gradient, and momentum carries earlier steps on. A learning rate only scales what is there.",
        belief=23,
        proof=_movers,
    ),
    Question(
        "three numbers backward",
        "From lesson 01: `y = MyLinear(4, 3)(x)` has three numbers. What does `y.backward()` do?",
        Choice("it fills the gradients of weight and bias", "it fills `x.grad` alone", "it raises an error: a loss is one number"),
        "c",
        "Of three numbers at once there is no slope. Training makes one of them first: that is what the loss is for.",
        wrong=(
            Wrong("a", "It does for `y.sum()`, which is one number. With three, PyTorch cannot tell which one you mean."),
            Wrong("b", "It computes no gradient at all: `y` holds three numbers, and `backward` needs one."),
        ),
        proof=_three_outputs,
    ),
)

# ---- task: one round -------------------------------------------------------------------------------

Round = Callable[[Any, Any, Tensor], Any]


class _Spied(Net):
    """A net that notes when it is zeroed, and when a gradient comes back."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self._events = events
        watched: Any = self.l1.bias
        watched.register_hook(lambda grad: events.append("backward"))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Noted."""
        self._events.append("zero")
        super().zero_grad(set_to_none)


_Spied.__name__ = "Net"  # as what it is shown


class _Noted(SGD):
    """An optimizer that notes what is asked of it."""

    events: list[str]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Noted."""
        self.events.append("zero")
        super().zero_grad(set_to_none)

    def step(self, closure: Any = None) -> Any:
        """Noted."""
        self.events.append("step")
        return super().step(closure)


def _pair(events: list[str], kind: type[Optimizer] = _Noted) -> tuple[Net, Optimizer]:
    torch.manual_seed(8)
    net = _Spied(events)
    if kind is Adam:
        return net, Adam(net.parameters(), lr=1e-3)
    optimizer = _Noted(net.parameters(), lr=1e-3, weight_decay=1e-2, momentum=0.9)
    optimizer.events = events
    return net, optimizer


def _walk(one_round: Round, number: int, kind: type[Optimizer] = _Noted) -> tuple[Tensor, Net, list[str]]:
    """All parameters after some rounds on the same inputs."""
    events: list[str] = []
    net, optimizer = _pair(events, kind)
    for x in torch.randn(number, 4, generator=torch.Generator().manual_seed(3)):
        one_round(net, optimizer, x)
    return torch.cat([p.detach().flatten() for p in net.parameters()]), net, events


def _reference(net: Any, optimizer: Any, x: Tensor) -> None:
    optimizer.zero_grad()
    _back(torch.abs(net(x)))
    optimizer.step()


def _nothing(net: Any, optimizer: Any, x: Tensor) -> None:
    """Where one stands if nothing moves."""


def _never_zeroed(net: Any, optimizer: Any, x: Tensor) -> None:
    _back(torch.abs(net(x)))
    optimizer.step()


def _without_abs(net: Any, optimizer: Any, x: Tensor) -> None:
    optimizer.zero_grad()
    net(x).backward()
    optimizer.step()


def _squared(net: Any, optimizer: Any, x: Tensor) -> None:
    optimizer.zero_grad()
    net(x).square().backward()
    optimizer.step()


def _own_optimizer(net: Any, optimizer: Any, x: Tensor) -> None:
    own = SGD(net.parameters(), lr=1e-3, weight_decay=1e-2, momentum=0.9)
    own.zero_grad()
    _back(torch.abs(net(x)))
    own.step()


def _own_plain_optimizer(net: Any, optimizer: Any, x: Tensor) -> None:
    own = SGD(net.parameters(), lr=1e-4, weight_decay=1e-2, momentum=0.9)
    own.zero_grad()
    _back(torch.abs(net(x)))
    own.step()


SLIPS: tuple[tuple[str, Round], ...] = (
    ("gradients never zeroed", _never_zeroed),
    ("a loss without abs", _without_abs),
    ("a squared loss", _squared),
    ("a new optimizer in each round", _own_optimizer),
    ("a new optimizer in each round", _own_plain_optimizer),
)


def _slip(answer: Round, number: int, found: Tensor, events: list[str]) -> str:
    """The name of the mistake by which one gets here; "" if it is none of these."""
    for name, slip in SLIPS:
        if same(found, _walk(slip, number)[0], 1e-6):
            return name
    if "backward" not in events:
        return "no backward"
    if "step" not in events:
        return "no step" if same(found, _walk(_nothing, number)[0], 1e-7) else ""
    one = _walk(answer, 1)[2]
    if one.index("step") < one.index("backward"):
        return "step before backward"
    if "zero" in one[one.index("backward") : one.index("step")]:
        return "zero between backward and step"
    return ""


def _rounds(answer: Any, number: int, says: str) -> None:
    require_callable(answer, "training_step")
    before = modlab.snapshot(_pair([])[0])
    expected, found = _walk(_reference, number)[0], _walk(answer, number)
    if not same(found[0], expected, 1e-5):
        mistake, evidence = _slip(answer, number, found[0], found[2]), modlab.diff(before, _walk(answer, 1)[1])
        fail(says, mistake=mistake, expected=f"l1.weight {_three(expected)}", got=f"l1.weight {_three(found[0])}", evidence=evidence)


def _three(parameters: Tensor) -> list[float]:
    return [round(number, 4) for number in parameters[15:18].tolist()]


def _one_round(answer: Any) -> None:
    """after one round the parameters stand where they should"""
    _rounds(answer, 1, "After one round the parameters are not where they should be. Below: what one round of yours changes.")


def _many_rounds(answer: Any) -> None:
    """after 200 rounds they still do"""
    _rounds(answer, 200, "After 200 rounds the parameters are not where they should be. Below: what the first of them changes.")


def _any_optimizer(answer: Any) -> None:
    """it works with another optimizer too"""
    expected, got = _walk(_reference, 50, Adam)[0], _walk(answer, 50, Adam)[0]
    require_equal(_three(got), _three(expected), "With Adam it goes elsewhere: use the optimizer that is given, whatever it is.")


def _stays_in_training(answer: Any) -> None:
    """the net is in training mode afterwards, with no more hooks than before"""
    net, optimizer = _pair([])
    hooks = len(modlab.hooks(net))
    answer(net, optimizer, torch.randn(4))
    if not all(module.training for module in net.modules()):
        fail(mistake="left in evaluation mode", expected="training mode", got="evaluation mode", evidence=modlab.tree(net))
    if len(modlab.hooks(net)) > hooks:
        fail("A hook of yours is left on the net.", expected="no new hook", got="a hook", evidence=modlab.hooks(net))


TRAINING_STEP = Task(
    "training_step",
    "Write `training_step(net, optimizer, x)`: one round of the loop, from forward to step.",
    starter="""
def training_step(net, optimizer, x):
    ...
""",
    reference="""
def training_step(net, optimizer, x):
    output = net(x)
    loss = torch.abs(output)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
""",
    probes=(_one_round, _many_rounds, _any_optimizer, _stays_in_training),
    mistakes=(
        Mistake(
            "gradients never zeroed",
            """
def training_step(net, optimizer, x):
    loss = torch.abs(net(x))
    loss.backward()
    optimizer.step()
""",
            "Nothing zeroes the gradients, so each round steps along the sum of all rounds before it. The first round looks right.",
            belief=22,
        ),
        Mistake(
            "zero between backward and step",
            """
def training_step(net, optimizer, x):
    loss = torch.abs(net(x))
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
""",
            "The gradients are thrown away just before they are used: `step` finds None everywhere and moves nothing.",
            belief=22,
        ),
        Mistake(
            "step before backward",
            """
def training_step(net, optimizer, x):
    optimizer.zero_grad()
    loss = torch.abs(net(x))
    optimizer.step()
    loss.backward()
""",
            "`step` comes before the gradients that it should use.",
        ),
        Mistake(
            "a loss without abs",
            """
def training_step(net, optimizer, x):
    optimizer.zero_grad()
    loss = net(x)
    loss.backward()
    optimizer.step()
""",
            "Your loss is the output itself. Making that smaller has no end: it goes below zero, and further. Take its size.",
        ),
        Mistake(
            "a squared loss",
            """
def training_step(net, optimizer, x):
    optimizer.zero_grad()
    loss = (net(x) ** 2).sum()
    loss.backward()
    optimizer.step()
""",
            "A good loss, but not this one: here it is the absolute value, `torch.abs`.",
        ),
        Mistake(
            "cut off from the parameters",
            """
def training_step(net, optimizer, x):
    optimizer.zero_grad()
    loss = torch.abs(net(x).data)
    loss.backward()
    optimizer.step()
""",
            "`.data`, `.detach()` and `.item()` give the number without its history, and without that there is no way back.",
            error=r"does not require grad|'float' object has no attribute 'backward'",
        ),
        Mistake(
            "no backward",
            """
def training_step(net, optimizer, x):
    loss = torch.abs(net(x))
    optimizer.zero_grad()
    loss.backward
    optimizer.step()
""",
            "No gradient was ever computed. A method runs only when it is called: `loss.backward()`, with the parentheses.",
        ),
        Mistake(
            "no step",
            """
def training_step(net, optimizer, x):
    optimizer.zero_grad()
    torch.abs(net(x)).backward()
""",
            "The gradients are there, and nobody uses them: `backward` moves nothing.",
        ),
        Mistake(
            "a new optimizer in each round",
            """
from torch.optim import SGD

def training_step(net, optimizer, x):
    optimizer = SGD(net.parameters(), lr=1e-3, weight_decay=1e-2, momentum=0.9)
    optimizer.zero_grad()
    torch.abs(net(x)).backward()
    optimizer.step()
""",
            "A new optimizer forgets the momentum of the rounds before. Use the one that is given.",
        ),
        Mistake(
            "left in evaluation mode",
            """
def training_step(net, optimizer, x):
    loss = torch.abs(net(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    net.eval()
""",
            "After your round the net is in evaluation mode, and the next round would train it there. "
            "`net.eval()` comes once, after the last round.",
            belief=20,
        ),
    ),
    hints=(
        "Five of the eight parts belong into it: the network, the optimizer and the input are given.",
        "forward, loss, zero, backward, step. Each is one line, and all are in the loop above.",
        "After `loss = torch.abs(net(x))` come three calls, one of them on the loss and two on the optimizer.",
    ),
    minutes=4,
    matters="Every trainer wraps this loop. When training misbehaves, look at these five lines first.",
)

# ---- task: dead units ------------------------------------------------------------------------------


# ---- task: freeze ----------------------------------------------------------------------------------


def _begun() -> tuple[Net, Optimizer]:
    """A net in the middle of its training: with gradients, and with momentum."""
    torch.manual_seed(8)
    net = Net()
    optimizer = SGD(net.parameters(), lr=1e-2, weight_decay=1e-2, momentum=0.9)
    for x in torch.randn(3, 4):
        _reference(net, optimizer, x)
    return net, optimizer


def _frozen(answer: Any) -> tuple[Net, Optimizer]:
    require_callable(answer, "freeze")
    net, optimizer = _begun()
    answer(net.l0)
    return net, optimizer


def _untrained(answer: Any) -> None:
    """no parameter of the module asks for a gradient any more"""
    net, _ = _frozen(answer)
    names = [name for name, _ in net.l0.named_parameters()]
    if names != ["weight", "bias"]:
        fail(mistake="parameters taken away", expected=["weight", "bias"], got=names, evidence=modlab.state(net))
    left = [name for name, parameter in net.l0.named_parameters() if parameter.requires_grad]
    mistake = ""
    if len(left) == 2:
        flagged = vars(net.l0).get("requires_grad") is False
        cleared = all(parameter.grad is None for parameter in net.l0.parameters())
        mistake = "a flag on the module" if flagged else "eval instead of freeze" if not net.l0.training else ""
        mistake = mistake or ("the gradient cleared once" if cleared else "")
    elif left:
        mistake = "one parameter forgotten"
    if left:
        fail("These parameters are still trained.", mistake=mistake, expected=[], got=left, evidence=modlab.state(net))


def _left_alone(answer: Any) -> None:
    """the optimizer, which has a gradient and momentum from before, leaves it alone"""
    net, optimizer = _frozen(answer)
    before, snapshot = [p.detach().clone() for p in net.l0.parameters()], modlab.snapshot(net)
    optimizer.step()
    for x in torch.randn(5, 4):
        optimizer.zero_grad(set_to_none=False)
        _back(torch.abs(net(x)))
        optimizer.step()
    moved = [name for (name, now), old in zip(net.l0.named_parameters(), before, strict=True) if not torch.equal(now, old)]
    if moved and not {id(p) for p in net.l0.parameters()} <= {id(p) for group in optimizer.param_groups for p in group["params"]}:
        fail("The module has new parameters, on the memory of the old ones, which the optimizer still moves. Keep the old ones.")
    if moved:
        old = any(parameter.grad is not None for parameter in net.l0.parameters())
        evidence = modlab.diff(snapshot, net)
        fail("It moved.", mistake="an old gradient left" if old else "", expected="no change", got=moved, evidence=evidence)


def _rest(answer: Any) -> None:
    """values stay, and the rest of the net goes on training"""
    begun, _ = _begun()
    net, optimizer = _frozen(answer)
    for name, parameter in net.l0.named_parameters():
        require_equal(parameter, begun.l0.get_parameter(name), f"{name} has other values than before: freezing keeps them.")
    before = net.l1.weight.detach().clone()
    for x in torch.randn(20, 4):
        _reference(net, optimizer, x)
    if torch.equal(before, net.l1.weight):
        fail("l1 was not to be frozen, and does not move any more.", evidence=modlab.state(net))


FREEZE = Task(
    "freeze",
    "Write `freeze(module)`: from then on no step moves the module's parameters, even of an optimizer that was at work before.",
    starter="""
def freeze(module):
    ...
""",
    reference="""
def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
""",
    probes=(_untrained, _left_alone, _rest),
    mistakes=(
        Mistake(
            "a flag on the module",
            """
def freeze(module):
    module.requires_grad = False
""",
            "That is a new attribute on the module, which nobody reads: its parameters are trained as before.",
            belief=24,
        ),
        Mistake(
            "an old gradient left",
            """
def freeze(module):
    module.requires_grad_(False)
""",
            "No new gradient comes, but the old one still stands in `.grad`. An optimizer that finds one there goes on: "
            "with decay and momentum, and even if it is zeros.",
            belief=24,
        ),
        Mistake(
            "eval instead of freeze",
            """
def freeze(module):
    module.eval()
""",
            "`eval()` switches what layers like dropout do. It stops neither gradients nor optimizer; more of that in the next lesson.",
            belief=18,
        ),
        Mistake(
            "the gradient cleared once",
            """
def freeze(module):
    module.zero_grad()
""",
            "The gradients are gone until the next `backward` makes new ones: the parameters still ask for them.",
            belief=24,
        ),
        Mistake(
            "one parameter forgotten",
            """
def freeze(module):
    module.weight.requires_grad_(False)
    module.weight.grad = None
""",
            "A module may own more than a weight: go through all of `module.parameters()`.",
            belief=24,
        ),
        Mistake(
            "parameters taken away",
            """
def freeze(module):
    weight, bias = module.weight.detach(), module.bias.detach()
    del module.weight, module.bias
    module.weight, module.bias = weight, bias
""",
            "The module has lost its parameters: plain tensors are neither saved nor moved. Keep them, and switch their flag.",
            belief=8,
        ),
    ),
    hints=(
        "What is trained is said by each parameter, not by the module.",
        "Two things must go: the wish for new gradients, and the gradient that is there already.",
        "For each parameter: `requires_grad_(False)`, and `.grad = None`.",
    ),
    minutes=5,
    matters="Fine-tuning freezes most of a model; a parameter that moves all the same loses what it had learned.",
)

LESSON = Content(
    name="05_training_loop",
    title="The training loop",
    goal="name the eight parts of a training loop, say what each leaves for the next, and freeze a layer for good",
    minutes=25,
    after=("04_reaching_every_tensor",),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(TRAINING_STEP, FREEZE),
)
