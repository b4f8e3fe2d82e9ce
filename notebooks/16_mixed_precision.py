"""16: training in 16 bits: weights that do not move, autocast, and the gradient scaler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler

from modlab.lessons.checking import evaluate, fail, require_callable, require_equal, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Several, YesNo

# ---- what the questions are proved with -----------------------------------------------------------


def _counted() -> int:
    count = torch.zeros((), dtype=torch.bfloat16)
    for _ in range(1000):
        count += 1
    return int(count.item())


def _after_steps(dtype: torch.dtype) -> float:
    weight = nn.Parameter(torch.tensor(1.0, dtype=dtype))
    optimizer = torch.optim.SGD([weight], lr=0.001)
    for _ in range(1000):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    return weight.item()


def _moved() -> str:
    assert abs(_after_steps(torch.float32)) < 1e-4
    end = _after_steps(torch.bfloat16)
    return "c" if end == 1 else "a" if abs(end) < 0.01 else "b"


def _lost() -> str:
    """The step is there, in 16 bits too; its difference from the weight is not."""
    step, one = torch.tensor(0.001, dtype=torch.bfloat16), torch.tensor(1.0, dtype=torch.bfloat16)
    return "b" if step != 0 and one - step == one else ""


def _in_sixteen_bits() -> list[str]:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.autocast(next(net.parameters()).device.type, dtype=torch.bfloat16):
        first = net[0](torch.randn(5, 8))
        loss: Any = F.cross_entropy(net(torch.randn(5, 8)), torch.zeros(5, dtype=torch.long))
    loss.backward()
    weight = net[0].weight
    found = (first, weight, loss, weight.grad)
    return [letter for letter, one in zip("abcd", found, strict=True) if one.dtype == torch.bfloat16]


def _product() -> str:
    found = torch.tensor(1e-4, dtype=torch.float16) ** 2
    return "b" if found == 0 else "a"


def _infinite() -> str:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = GradScaler("cpu", init_scale=1024.0)
    loss: Any = scaler.scale((weight * torch.inf).sum())
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return "b" if weight.item() == 1 and scaler.get_scale() == 512 else "a" if not weight.isfinite().all() else ""


def _moves() -> list[str]:
    """The letters of those nets whose weight of 1 a step of 0.001 moves."""
    found = []
    for letter, dtype, inside, master in (
        ("a", torch.bfloat16, False, False),
        ("b", torch.float32, True, False),
        ("c", torch.bfloat16, True, False),
        ("d", torch.bfloat16, False, True),
    ):
        layer = nn.Linear(1, 1, bias=False).to(dtype)
        nn.init.ones_(layer.weight)
        before = layer.weight.detach().clone()
        kept = layer.weight.detach().float()
        for _ in range(10):
            with torch.autocast(layer.weight.device.type, dtype=torch.bfloat16, enabled=inside):
                loss: Any = layer(torch.ones(1, 1, dtype=torch.float32 if inside else dtype)).sum()
            layer.zero_grad()
            loss.backward()
            assert layer.weight.grad is not None
            with torch.no_grad():
                if master:
                    kept -= 0.001 * layer.weight.grad.float()
                    layer.weight.copy_(kept)
                else:
                    layer.weight -= 0.001 * layer.weight.grad
        found += [letter] * (not torch.equal(before, layer.weight))
    return found


def _same_parameters() -> bool:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.to(torch.bfloat16)
    return optimizer.param_groups[0]["params"][0] is net.weight


def _needs_a_scaler() -> str:
    small = torch.tensor(1e-8)
    return "a" if small.half() == 0 and small.bfloat16() != 0 else ""


# ---- questions ------------------------------------------------------------------------------------

PREDICTIONS = (
    Question(
        "counting",
        "A `bfloat16` zero, and a thousand times `count += 1`. What does it end at?",
        Number(),
        256,
        "After 256 the next `bfloat16` number is 258. 257 lies in the middle, and is rounded back to 256, each time.",
        wrong=(
            Wrong(
                1000,
                "So it would be in `float32`. `bfloat16` keeps 8 bits of a number: above 256 it knows the even numbers only.",
                belief=37,
            ),
            Wrong(0, "Small numbers are no problem: it counts well for a while."),
            Wrong(255, "Close. There are 8 bits for the digits, and 256 itself still fits."),
            Wrong(257, "Close: 257 is the first number that it cannot hold."),
        ),
        proof=_counted,
    ),
    Question(
        "a thousand steps",
        "A `bfloat16` weight of 1, a gradient of 1, a learning rate of 0.001. Where is the weight after a thousand steps?",
        Choice("at 0, give or take a rounding error", "at about 0.5", "at 1, where it began"),
        "c",
        "No step moved it, and no error or warning said so. In `float32` it arrives at 0.",
        wrong=(
            Wrong("a", "A thousand steps of 0.001 make 1 if each of them arrives. In 16 bits none did.", belief=37),
            Wrong("b", "The steps do not wear off: the gradient is 1 each time. Either each of them counts, or none.", belief=37),
        ),
        proof=_moved,
    ),
    Question(
        "dtypes under autocast",
        "The net's weights are `float32`, and autocast is on for `bfloat16`. Which of these are `bfloat16`?",
        Several(
            "the output of the first layer", "the weight of the first layer", "the loss, a cross-entropy", "the gradient of that weight"
        ),
        ("a",),
        "Autocast works on operations. A layer multiplies 16-bit copies; weights, their gradients and the loss stay `float32`.",
        wrong=(
            Wrong("a b c d", "Autocast converts nothing for good: it makes copies for some operations, and forgets them.", belief=38),
            Wrong(
                "a b d", "The layer multiplies a 16-bit *copy* of its weight. The weight is what it was, and so is its gradient.", belief=38
            ),
            Wrong("a d", "Backward runs through the copying too: it turns the gradient back into the weight's `float32`.", belief=38),
            Wrong("a c", "A loss adds many numbers up, so autocast computes it in `float32`."),
            Wrong("a b", "Then a step could get lost again. The layer multiplies a 16-bit copy of its weight.", belief=38),
        ),
        proof=_in_sixteen_bits,
    ),
    Question(
        "a small product",
        "In `float16`, what is 0.0001 × 0.0001?",
        Choice("about 1e-8", "0", "an error"),
        "b",
        "The smallest number above zero that `float16` knows is about 6e-8. What is below half of it becomes 0.",
        wrong=(
            Wrong("a", "`bfloat16` can do that. `float16` spends its bits on digits, and has few left for small and large numbers."),
            Wrong("c", "Numbers that are too small become 0, and too large ones `inf`. Neither raises an error."),
        ),
        proof=_product,
    ),
    Question(
        "an infinite gradient",
        "The second of these four gradients is infinite. What does `scaler.step(optimizer)` do with it?",
        Choice(
            "it steps, and the weight becomes infinite", "it leaves that step out", "it raises an error", "it makes the gradient finite"
        ),
        "b",
        "It looks before it steps. Then `update` halves the scale, for the scale may be what was too large.",
        wrong=(
            Wrong("a", "A plain `optimizer.step()` would. The scaler looks at the gradients first."),
            Wrong("c", "Now and then such a gradient is expected: the scaler feels its way up to the largest scale that works."),
            Wrong("d", "It does not know what the gradient should have been."),
        ),
        proof=_infinite,
    ),
)

REASONS = (
    Question(
        "a lost step",
        "Why does the weight stay at 1?",
        Choice(
            "0.001 is too small for `bfloat16`, and becomes 0",
            "1 − 0.001 is rounded to the nearest `bfloat16` number, and that is 1",
            "SGD needs a larger gradient for 16-bit weights",
        ),
        "b",
        "Below 1 the next number is 0.99609375. The step is less than half of that distance, so the weight is the nearest.",
        wrong=(
            Wrong("a", "`bfloat16` can hold far smaller numbers than 0.001. It is the *sum* that has too few digits."),
            Wrong("c", "SGD subtracts learning rate times gradient, whatever the type is."),
        ),
        proof=_lost,
    ),
)

RECALLS = (
    Question(
        "who moves",
        "Each step should take a thousandth from a weight of 1. Which of these weights move?",
        Several(
            "in `bfloat16`",
            "in `float32`, under autocast to `bfloat16`",
            "in `bfloat16`, under autocast to `bfloat16`",
            "in `bfloat16`, with a copy in `float32` that takes the steps",
        ),
        ("b", "d"),
        "What counts is the type of what the step is added to. Autocast does not change it.",
        wrong=(
            Wrong("b", "The copy takes the steps, and each time what fits into 16 bits is copied back."),
            Wrong("d", "Under autocast the weights are `float32`, so they move as well.", belief=38),
            Wrong("b c d", "Autocast does not turn weights back into `float32`. They are what you made them.", belief=38),
            Wrong("a b c d", "0.001 is lost beside a 1 of 16 bits.", belief=37),
        ),
        proof=_moves,
    ),
    Question(
        "who needs a scaler",
        "For which of the two 16-bit types is the gradient scaler made?",
        Choice("`float16`", "`bfloat16`", "both alike"),
        "a",
        "Small gradients become 0 in `float16`. `bfloat16` reaches as far as `float32`. It lacks digits, and no scale helps there.",
        wrong=(
            Wrong("b", "It lacks digits, not range, and a scale adds no digits."),
            Wrong("c", "`bfloat16` holds 1e-8 without help."),
        ),
        proof=_needs_a_scaler,
    ),
    Question(
        "the optimizer's weights",
        "From lesson 04: an optimizer was made, and then `net.to(torch.bfloat16)` ran. Does it still hold the weights of `net`?",
        YesNo(),
        True,
        "`to` of a module works in place: the `Parameter` objects stay, with new values inside.",
        wrong=(
            Wrong(False, "A tensor's `to` gives another tensor. A module's keeps its parameters, and so does the optimizer.", belief=7),
        ),
        proof=_same_parameters,
    ),
)

# ---- task: a master copy ---------------------------------------------------------------------------

Made = Callable[..., Any]


def _weights(*values: float) -> list[nn.Parameter]:
    return [nn.Parameter(torch.tensor([value, -value], dtype=torch.bfloat16)) for value in values]


def _stepped(made: Made, weights: list[nn.Parameter], steps: int, gradient: float = 1.0) -> Any:
    optimizer = made(weights, lr=0.001)
    for number in range(steps):
        for weight in weights:
            weight.grad = torch.full_like(weight, gradient * (1 + number % 3))
        optimizer.step()
    return optimizer


def _judged(answer: Any, steps: int, says: str, gradient: float = 1.0) -> None:
    require_callable(answer, "MasterSGD")
    got, wanted = _weights(1.0, 2.0), _weights(1.0, 2.0)
    kept = [*got]
    _stepped(answer, got, steps, gradient)
    _stepped(evaluate(MASTER.reference, "MasterSGD"), wanted, steps, gradient)
    if all(map(_alike, kept, wanted)):
        return
    found: dict[str, Any] = {"expected": wanted[0].detach(), "got": kept[0].detach()}
    for mistake in MASTER.mistakes:
        usual = _weights(1.0, 2.0)
        _stepped(evaluate(mistake.source, "MasterSGD"), usual, steps, gradient)
        if all(map(_alike, kept, usual)) and mistake.name not in ("a gradient of None", "weights of another type"):
            fail(says, mistake=_named(answer, mistake.name, gradient), **found)
    fail(says, **found)


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and same(one, other, 1e-6)


SILENT = ("a copy of 16 bits", "a new copy in each step", "never copied back")


def _named(answer: Made, name: str, gradient: float) -> str:
    """Of three mistakes that leave a weight where it is, the one that it was."""
    if name not in SILENT:
        return name
    weights = _weights(1.0)
    optimizer = _stepped(answer, weights, 1, 100 * gradient)
    if weights[0][0] == 1:
        return "never copied back"
    with torch.no_grad():
        weights[0].fill_(5)  # who keeps a copy does not know of that
    weights[0].grad = torch.zeros_like(weights[0])
    optimizer.step()
    return "a new copy in each step" if weights[0][0] == 5 else "a copy of 16 bits"


def _small_steps(answer: Any) -> None:
    """a thousand steps too small for 16 bits arrive"""
    _judged(answer, 1000, "Together these steps should move the weight.")


def _large_steps(answer: Any) -> None:
    """and so do large ones, in the direction of SGD"""
    _judged(answer, 5, "These steps are large enough to be seen in 16 bits.", gradient=100.0)


def _in_place(answer: Any) -> None:
    """the weights stay in bfloat16"""
    weights = _weights(1.0)
    _stepped(answer, weights, 3)
    if weights[0].dtype != torch.bfloat16:
        fail(mistake="weights of another type", expected="torch.bfloat16", got=str(weights[0].dtype))


def _without_gradient(answer: Any) -> None:
    """a weight without a gradient stays where it is"""
    weights = _weights(1.0, 2.0)
    optimizer = answer(weights, lr=0.001)
    weights[0].grad = torch.full_like(weights[0], 100.0)
    try:
        optimizer.step()
    except (AttributeError, TypeError) as error:
        fail(str(error), mistake="a gradient of None")
    require_equal(weights[1].detach(), torch.tensor([2.0, -2.0], dtype=torch.bfloat16), "It has no gradient, so no step should move it.")


def _master(init: str, *step: str) -> str:
    lines = "\n".join(f"            {line}" for line in step)
    return f"""
class MasterSGD:
    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr
        {init}

    @torch.no_grad()
    def step(self):
        for i, param in enumerate(self.params):
{lines}
"""


SKIP = "if param.grad is None:"
KEPT = "self.masters = [param.detach().clone().float() for param in self.params]"
STEP = "self.masters[i] -= self.lr * param.grad.float()"

MASTER = Task(
    "MasterSGD",
    "Write `MasterSGD(params, lr)`: `step()` does what SGD does, to `float32` copies of its own, and copies them back to `params`.",
    starter="""
class MasterSGD:
    def __init__(self, params, lr):
        ...

    def step(self):
        raise NotImplementedError()
""",
    reference=_master(KEPT, SKIP, "    continue", STEP, "param.copy_(self.masters[i])"),
    probes=(_in_place, _small_steps, _large_steps, _without_gradient),
    mistakes=(
        Mistake(
            "a copy of 16 bits",
            _master(
                "self.masters = [param.detach().clone() for param in self.params]",
                SKIP,
                "    continue",
                "self.masters[i] -= self.lr * param.grad",
                "param.copy_(self.masters[i])",
            ),
            "`clone()` keeps the type, so the copy has 16 bits too, and loses the same steps. `.float()` gives it 32.",
            belief=37,
        ),
        Mistake(
            "a new copy in each step",
            _master(
                "pass", SKIP, "    continue", "master = param.float()", "master -= self.lr * param.grad.float()", "param.copy_(master)"
            ),
            "The copy begins each step at the rounded weight, so the part that did not fit is lost each time. Keep the copy between steps.",
            belief=37,
        ),
        Mistake(
            "never copied back",
            _master(KEPT, SKIP, "    continue", STEP, "param = self.masters[i].bfloat16()"),
            "`param = …` gives a name of your function another tensor; the weight itself is not touched. `param.copy_(…)` writes into it.",
        ),
        Mistake(
            "uphill",
            _master(KEPT, SKIP, "    continue", "self.masters[i] += self.lr * param.grad.float()", "param.copy_(self.masters[i])"),
            "SGD goes against the gradient: it subtracts.",
        ),
        Mistake(
            "weights of another type",
            _master(KEPT, SKIP, "    continue", STEP, "param.data = self.masters[i].clone()"),
            "`.data = …` swaps what the weight holds, and now it has 32 bits. The layers should go on with 16: use `param.copy_(…)`.",
        ),
        Mistake(
            "a gradient of None",
            _master(KEPT, STEP, "param.copy_(self.masters[i])"),
            "A parameter without a gradient has `.grad` of `None`. Optimizers skip it, and so should yours.",
            belief=23,
        ),
    ),
    hints=(
        "Make the copies once, in the constructor: `param.detach().clone().float()`.",
        "In `step`, subtract `lr * param.grad.float()` from the copy.",
        "`param.copy_(master)` under `torch.no_grad()` writes the rounded value into the weight.",
    ),
    minutes=6,
    matters="Optimizers for 16-bit weights keep such a copy: `float32` for the steps, 16 bits for the layers.",
)

# ---- task: clip under a scale -----------------------------------------------------------------------


def _clipped(step: Callable[..., Any], factors: list[float]) -> tuple[Tensor, float]:
    """The weight after steps of one optimizer, and the scale."""
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    for factor in factors:
        optimizer.zero_grad()
        step(scaler, optimizer, (weight * torch.tensor([3.0, 4.0]) * factor).sum(), [weight])
    return weight.detach(), scaler.get_scale()


def _equal(one: tuple[Tensor, float], other: tuple[Tensor, float]) -> bool:
    """Of weights and scales; what an infinite gradient has spoilt is equal, too."""
    return torch.allclose(one[0], other[0], equal_nan=True) and one[1] == other[1]


def _judge_clip(answer: Any, factors: list[float], says: str) -> None:
    require_callable(answer, "clipped_step")
    try:
        got = _clipped(answer, factors)
    except AssertionError as error:
        fail(str(error), mistake="the loss without a scale")
    wanted = _clipped(evaluate(CLIP.reference, "clipped_step"), factors)
    if _equal(got, wanted):
        return
    for mistake in CLIP.mistakes:
        if mistake.name != "the loss without a scale" and _equal(got, _clipped(evaluate(mistake.source, "clipped_step"), factors)):
            fail(says, mistake=mistake.name, expected=wanted[0], got=got[0])
    what = "weight" if not same(got[0], wanted[0]) else "scale"
    fail(f"{says} The {what} differs.", expected=wanted[what == "scale"], got=got[what == "scale"])


def _short(answer: Any) -> None:
    """a gradient shorter than 1 stays as it is"""
    _judge_clip(answer, [0.1, 0.15], "These gradients have a norm below 1: they are not clipped.")


def _long(answer: Any) -> None:
    """a longer one is cut to length 1"""
    _judge_clip(answer, [0.1, 2.0, 0.1], "The second gradient has a norm of 10.")


def _overflow(answer: Any) -> None:
    """a step with an infinite gradient is left out, and the scale halved"""
    _judge_clip(answer, [0.1, float("inf"), 0.1], "The second gradient is infinite.")


def _clip(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"""
def clipped_step(scaler, optimizer, loss, params):
{body}
"""


BACK, UNSCALE, CUT, ADVANCE, RENEW = (
    "scaler.scale(loss).backward()",
    "scaler.unscale_(optimizer)",
    "torch.nn.utils.clip_grad_norm_(params, 1.0)",
    "scaler.step(optimizer)",
    "scaler.update()",
)

CLIP = Task(
    "clipped_step",
    "Write `clipped_step(scaler, optimizer, loss, params)`: backward, the gradients clipped to a norm of at most 1, a step.",
    starter=_clip("..."),
    reference=_clip(BACK, UNSCALE, CUT, ADVANCE, RENEW),
    probes=(_short, _long, _overflow),
    mistakes=(
        Mistake(
            "clipped with the scale on",
            _clip(BACK, CUT, ADVANCE, RENEW),
            "You clipped the gradient times the scale. `scaler.unscale_(optimizer)` goes first: it divides by the scale.",
        ),
        Mistake(
            "clipped too early",
            _clip(CUT, BACK, ADVANCE, RENEW),
            "Before `backward` there is no new gradient to clip.",
        ),
        Mistake(
            "the optimizer's own step",
            _clip(BACK, UNSCALE, CUT, "optimizer.step()", RENEW),
            "`optimizer.step()` does not look: an infinite gradient spoils the weights. `scaler.step(optimizer)` leaves it out.",
        ),
        Mistake(
            "steps with the scale on",
            _clip(BACK, "optimizer.step()"),
            "The gradients have the scale in them still, so the step is a thousand times too long. `scaler.step` divides by it.",
        ),
        Mistake(
            "the loss without a scale",
            _clip("loss.backward()", UNSCALE, CUT, ADVANCE, RENEW),
            "The loss was not multiplied by the scale, so the scaler has nothing to take back: `scaler.scale(loss).backward()`.",
        ),
    ),
    hints=(
        "`scaler.scale(loss)` multiplies the loss; call `backward` on what it returns.",
        "The limit is meant for the true gradients: `scaler.unscale_(optimizer)` divides by the scale, in place.",
        "Then `clip_grad_norm_`, `scaler.step(optimizer)`, `scaler.update()`.",
    ),
    minutes=4,
    matters="Clipping with the scale still in the gradients makes every step tiny, and nothing says so.",
)

LESSON = Content(
    name="16_mixed_precision",
    title="Mixed precision: 16 bits that learn",
    goal="say why 16-bit weights can stand still, and train with 16-bit numbers all the same",
    minutes=20,
    after=("04_reaching_every_tensor", "05_training_loop"),
    predictions=PREDICTIONS,
    reasons=REASONS,
    recalls=RECALLS,
    tasks=(MASTER, CLIP),
)
