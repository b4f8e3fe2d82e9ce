"""14: where a model's time and memory go, and what can be done with a model as a graph."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, fx, nn

import modlab
from modlab.lessons.checking import fail, require_callable, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Name, Number, Several, YesNo
from modlab.lessons.networks import Upright
from modlab.lessons.note import Net

FUSE = "torch.fx.experimental.optimization.fuse"

# ---- the modules of the notebook -----------------------------------------------------------------------


class Glance(nn.Module):
    """Many numbers at first, much work in the middle, many weights at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 1)
        self.pool = nn.AvgPool2d(2)
        self.conv = nn.Conv2d(32, 64, 5, padding=2)
        self.relu = nn.ReLU()
        self.shrink = nn.AdaptiveAvgPool2d(4)
        self.head = nn.Linear(1024, 512)

    def forward(self, x: Tensor) -> Any:
        x = self.relu(self.conv(self.pool(self.stem(x))))
        return self.head(self.shrink(x).flatten(1))


class Block(nn.Module):
    """A convolution, its normalisation, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Any:
        x = torch.relu(self.bn(self.conv(x)))
        return self.head(x.mean((2, 3)))


# ---- questions ------------------------------------------------------------------------------------


@contextmanager
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other, or for another program, spoil a measurement."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _costs() -> dict[str, tuple[float, int]]:
    """Seconds (of the fastest of some passes) and bytes of each child."""
    net, x = Glance(), torch.randn(8, 3, 64, 64)
    found: dict[str, tuple[float, int]] = {}
    for _ in range(5):
        with torch.no_grad(), _one_thread():
            for event in modlab.trace(net, values=False)(x).find("*?", kind="module"):
                found[event.path or ""] = min(event.seconds, found.get(event.path or "", (event.seconds, 0))[0]), event.bytes
    found.pop("", None)
    return found


def _trained() -> Block:
    block = Block()
    for _ in range(20):
        block(2 * torch.randn(16, 3, 8, 8) + 1)
    return block


def _fused_in_training() -> str:
    from torch.fx.experimental.optimization import fuse

    try:
        fuse(_trained())
    except AssertionError:
        return "c"
    return ""


def _traced_wrongly() -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(Upright(), torch.ones(3))  # type: ignore[no-untyped-call]
    return {1.0: "a", -1.0: "b"}[traced(-torch.ones(3))[0].item()]


def _symbolic() -> str:
    try:
        graph = fx.symbolic_trace(Upright())
    except fx.proxy.TraceError:
        return "c"
    return "a" if graph(-torch.ones(3))[0] == 1 else "b"


def _exported() -> str:
    try:
        torch.export.export(Upright(), (torch.ones(3),), strict=True)
    except RuntimeError:
        return "b"
    return "a"


PREDICTIONS = (
    Question(
        "most time",
        "Which of the six modules takes most of the time?",
        Name(),
        "conv",
        "A tenth of the parameters, and most of the time. The profiler tells what, and not why: that is asked below.",
        wrong=(
            Wrong(
                "head",
                "It has nine tenths of all parameters. But these are there before the pass; what takes time is what is computed with them.",
            ),
            Wrong("stem", "It sees the largest picture, but does next to nothing at each place: its kernel is 1 × 1."),
            Wrong("pool", "It reads much, and only adds up four neighbours."),
            Wrong("shrink", "It reads much, and only adds up."),
            Wrong("relu", "One comparison for each number: that is quick."),
        ),
        proof=lambda: max(_costs(), key=lambda name: _costs()[name][0]),
    ),
    Question(
        "nodes of Glance",
        "`glance` has six children. How many nodes does its graph have?",
        Number(),
        9,
        "Six modules, `flatten`, and a node each for the input and the output.",
        wrong=(
            Wrong(6, "These are the modules. `flatten` is not a module, but a step all the same; the input and the output are nodes too."),
            Wrong(7, "Six modules and `flatten`. The input and the output are nodes too."),
            Wrong(8, "Input and output have a node each."),
        ),
        proof=lambda: len(fx.symbolic_trace(Glance()).graph.nodes),
    ),
    Question(
        "modules in the graph of Net",
        "`Net` has two layers, `l0` and `l1`, of the class `MyLinear`. How many nodes of its graph call a module?",
        Number(),
        0,
        "Modules of `torch.nn` stay whole, all but `Sequential`. FX goes into the others and notes what they do: their hooks will not run.",
        wrong=(
            Wrong(2, "It would be two with `nn.Linear`. FX keeps PyTorch's own layers whole, and looks into yours."),
            Wrong(3, "The ReLU of `Net` is a function, and so no call of a module in any case.", belief=27),
        ),
        proof=lambda: sum(node.op == "call_module" for node in fx.symbolic_trace(Net()).graph.nodes),
    ),
    Question(
        "fuse in training mode",
        "`block` is in training mode. What does `fuse(block)` do?",
        Choice("it fuses, with the mean of the next batch", "it fuses, with the running mean", "it raises an error"),
        "c",
        "`fuse` asks for evaluation mode first, and does not put the net into it by itself.",
        wrong=(
            Wrong("a", "The next batch is not there yet: `fuse` sees the net alone, and no input.", belief=19),
            Wrong(
                "b",
                "These numbers it needs; but in training mode the module does not normalise by them, so the result would differ.",
                belief=19,
            ),
        ),
        proof=_fused_in_training,
        needs=FUSE,
    ),
    Question(
        "FX and an if",
        "What does `fx.symbolic_trace(Upright())` do?",
        Choice("it keeps both branches", "it keeps one branch", "it raises an error"),
        "c",
        "FX runs `forward` with a stand-in that has no numbers. Whether its sum is above zero cannot be said.",
        wrong=(
            Wrong("a", "FX sees only what `forward` does with its stand-in. An `if` is Python's, and asks for yes or no at once."),
            Wrong("b", "It has no example to choose a branch by, and does not guess."),
        ),
        proof=_symbolic,
    ),
    Question(
        "traced with ones",
        "`traced` was made with ones. What does it give for `-torch.ones(3)`?",
        Choice("ones", "minus ones", "an error"),
        "b",
        "The sum of ones is positive, so the branch `return x` ran, and that is all that was recorded.",
        wrong=(
            Wrong("a", "That is what the class does. The recording holds what happened for one example, and there the sign was kept."),
            Wrong("c", "It would be safer. The recording has forgotten that there was a question."),
        ),
        proof=_traced_wrongly,
        needs="torch.jit",
    ),
    Question(
        "export and an if",
        "What does `torch.export` do with `Upright`?",
        Choice("it keeps one branch", "it raises an error", "it keeps both branches"),
        "b",
        "It wants one graph that is right for all inputs, and says so where there is none.",
        wrong=(
            Wrong("a", "So does the old `torch.jit.trace`. The successor records no guess without a check."),
            Wrong("c", "Only if you write the choice so that it can be recorded: with `torch.cond`."),
        ),
        proof=_exported,
        needs="torch.cond",
    ),
)

RECALLS = (
    Question(
        "parameters and time",
        "A module has most of a net's parameters. Must it take most of the time?",
        YesNo(),
        False,
        "It may. How often each weight is used decides, and a measurement tells.",
        wrong=(Wrong(True, "A linear head may have nearly all of them, and take less than a hundredth of the time."),),
    ),
    Question(
        "who keeps the if",
        "Which of these keep an `if` on a tensor's values, and take the right branch later?",
        Several("`torch.jit.trace`", "`torch.jit.script`", "`torch.export` of an `if`", "`torch.export` of a `torch.cond`"),
        ("b", "d"),
        "`script` reads the source, and `torch.cond` holds both branches. `trace` loses one, and `export` refuses the `if`.",
        wrong=(
            Wrong("a b d", "`torch.jit.trace` records the one branch that ran for its example."),
            Wrong("b c d", "`torch.export` refuses an `if` on values; it wants `torch.cond`."),
            Wrong("b", "`script` does; and `torch.export` does where the choice is written with `torch.cond`."),
        ),
        needs="torch.cond",
    ),
    Question(
        "a normalised batch",
        "From lesson 06: by which mean does a BatchNorm normalise in evaluation mode?",
        Choice("that of the batch", "the running mean", "none"),
        "b",
        "In evaluation mode it uses what it collected in training, and so treats each input alike.",
        wrong=(
            Wrong("a", "That is in training mode.", belief=19),
            Wrong("c", "It still normalizes, but with different numbers.", belief=19),
        ),
    ),
)

# ---- the first task: the hot module --------------------------------------------------------------------


class Churn(nn.Module):
    """Works long, and owns nothing."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, x: Tensor) -> Tensor:
        square = x.new_full((256, 256), 1 / 256)
        for _ in range(self.rounds):
            square = square @ square
        return x + square[0, 0] * 0


class Wide(nn.Module):
    """Makes much memory, quickly."""

    def forward(self, x: Tensor) -> Tensor:
        return x.repeat(1, 20_000)


class Narrow(nn.Module):
    """A view of the first eight columns."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :8]


class Inner(nn.Module):
    """Holds the slow one, beside others."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.slow = Churn(40)

    def forward(self, x: Tensor) -> Any:
        return self.slow(self.first(x))


class Often(nn.Module):
    """One module is called once, another, quicker one often."""

    def __init__(self) -> None:
        super().__init__()
        self.once = Churn(24)
        self.again = Churn(1)

    def forward(self, x: Tensor) -> Any:
        x = self.once(x)
        for _ in range(60):
            x = self.again(x)
        return x


def _flat() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 300), nn.Linear(300, 8), Churn(40), Wide(), Narrow(), nn.Linear(8, 8))


def _nested() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), Inner(), nn.Linear(8, 8))


def _asked(answer: Any, net: nn.Module, x: Tensor) -> Any:
    """What it says twice: on a busy machine any module may be held up once."""
    names = [answer(net, x)]
    while isinstance(names[-1], str) and len(names) < 5 and names.count(names[-1]) < 2:
        names.append(answer(net, x))
    return names[-1]


def _named(answer: Any, net: nn.Module, wanted: str) -> None:
    require_callable(answer, "hot_module")
    x = torch.randn(4, 8)
    with torch.no_grad():
        net(x)  # the first pass is slow for other reasons
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()]
    with _one_thread():
        got = _asked(answer, net, x)
    left = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in net.modules()]
    if left != hooks:
        fail(mistake="leaves hooks", expected="as before", got=f"{sum(left)} hooks", evidence=modlab.hooks(net))
    if got == wanted:
        return
    names = dict(net.named_modules())
    leaves = {name: module for name, module in names.items() if not [*module.children()]}
    sizes = {name: sum(parameter.numel() for parameter in module.parameters()) for name, module in leaves.items()}
    evidence = modlab.trace(net, values=False)(x)
    details = {"expected": wanted, "got": got, "evidence": evidence}
    if not isinstance(got, str):
        fail("It should give one name.", **details)
    if wanted.endswith(f".{got}"):
        fail(mistake="the last name only", **details)
    if got not in names:
        fail("`named_modules()` has no such name.", **details)
    if wanted == got or wanted.startswith(f"{got}.") or not got:
        fail(mistake="the parent", **details)
    if got not in leaves:
        fail("This one holds other modules: ask among those that hold none.", **details)
    if isinstance(net, Often):
        fail(mistake="one call only", **details)
    if [name for name in sizes if sizes[name] == max(sizes.values())] == [got]:
        fail(mistake="most parameters", **details)
    if isinstance(names[got], Wide):
        fail(mistake="most memory", **details)
    fail("Another module takes more time.", **details)


def _finds(answer: Any) -> None:
    """it finds the slow one, which has neither most parameters nor most memory"""
    _named(answer, _flat(), "3")


def _finds_inside(answer: Any) -> None:
    """and inside of others, by its full name"""
    _named(answer, _nested(), "1.slow")


def _adds_up(answer: Any) -> None:
    """and adds up the calls of a module that runs more than once"""
    _named(answer, Often(), "again")


HOT = Task(
    "hot_module",
    "Write `hot_module(net, x)`: the name of the module in which `net(x)` spends most time, among those that hold no other modules.",
    starter="""
def hot_module(net, x):
    ...
""",
    reference="""
def hot_module(net, x):
    seconds = {}
    for event in modlab.trace(net, values=False)(x):
        seconds[event.path] = seconds.get(event.path, 0) + event.own_seconds
    leaves = [name for name, module in net.named_modules() if not list(module.children())]
    return max(leaves, key=lambda name: seconds.get(name, 0))
""",
    probes=(_finds, _finds_inside, _adds_up),
    mistakes=(
        Mistake(
            "most parameters",
            """
def hot_module(net, x):
    leaves = {name: module for name, module in net.named_modules() if not list(module.children())}
    return max(leaves, key=lambda name: sum(p.numel() for p in leaves[name].parameters()))
""",
            "You chose the one with most parameters. Time goes by how much is computed, and the slow one may have no parameter at all.",
        ),
        Mistake(
            "most memory",
            """
def hot_module(net, x):
    return max(modlab.trace(net)(x).find(kind="module"), key=lambda event: event.bytes).path
""",
            "You chose the one that makes most memory. That is another question: much can be made quickly.",
        ),
        Mistake(
            "the parent",
            """
def hot_module(net, x):
    trace = modlab.trace(net)(x)
    return max(trace.find(kind="module"), key=lambda event: event.seconds).path
""",
            "A module's time includes that of its children, so the outermost always wins. Ask among those without children.",
        ),
        Mistake(
            "the last name only",
            """
def hot_module(net, x):
    leaves = [name for name, module in net.named_modules() if not list(module.children())]
    seconds = dict.fromkeys(leaves, 0)
    for event in modlab.trace(net, values=False)(x).find(kind="module"):
        if event.path in leaves:
            seconds[event.path] += event.seconds
    return max(seconds, key=seconds.get).split(".")[-1]
""",
            "That is the name in its parent. The full name, as in `named_modules()`, begins at the net.",
        ),
        Mistake(
            "one call only",
            """
def hot_module(net, x):
    leaves = [name for name, module in net.named_modules() if not list(module.children())]
    seconds = {}
    for event in modlab.trace(net, values=False)(x).find(kind="module"):
        seconds[event.path] = event.seconds
    return max(leaves, key=seconds.get)
""",
            "You compare single calls. A module may run more than once: add its calls up.",
        ),
        Mistake(
            "leaves hooks",
            """
def hot_module(net, x):
    import time
    began, seconds = {}, {}
    for name, module in net.named_modules():
        if not list(module.children()):
            module.register_forward_pre_hook(lambda m, i, name=name: began.update({name: time.perf_counter()}))
            module.register_forward_hook(
                lambda m, i, o, name=name: seconds.update({name: seconds.get(name, 0) + time.perf_counter() - began[name]})
            )
    net(x)
    return max(seconds, key=seconds.get)
""",
            "Your hooks are still on the modules, and will run in every pass from now on. Remove them.",
        ),
    ),
    hints=(
        "Hooks with a clock, the profiler with `record_function`, or a trace: each of them can tell.",
        "Each event of `modlab.trace(net, values=False)(x)` has a `.path` and `.own_seconds`, the time without the events inside of it.",
        "Add `.own_seconds` up by `.path`, and take the largest among the modules without children.",
    ),
    minutes=8,
    matters="Making anything else faster is wasted work: measure first.",
)

# ---- the second task: fuse and prove ---------------------------------------------------------------------


class Deep(nn.Module):
    """Two pairs of a convolution and its normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(x)))


def _used(net: nn.Module) -> nn.Module:
    """With running statistics that are far from where they begin."""
    for _ in range(10):
        net(3 * torch.randn(8, 3, 9, 9) + 2)
    return net


def _two(answer: Any, net: nn.Module, x: Tensor) -> tuple[Any, Any]:
    require_callable(answer, "fuse_and_prove")
    found = answer(net, x)
    if not (isinstance(found, (tuple, list)) and len(found) == 2 and isinstance(found[0], nn.Module)):
        kinds = [type(one).__name__ for one in found] if isinstance(found, (tuple, list)) else [type(found).__name__]
        fail("It should return two things.", expected="the fused net, the largest difference", got=", ".join(kinds) or "nothing")
    return found[0], found[1]


def _without_normalisation(net: nn.Module) -> nn.Module:
    bare = copy.deepcopy(net).eval()
    for name, child in bare.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(bare, name, nn.Identity())
    return bare


def _fuses(answer: Any) -> None:
    """the net that comes back has no normalisation left, and computes the same in evaluation mode"""
    for net in (_used(Block()), _used(Deep())):
        x = torch.randn(5, 3, 9, 9)
        plain = copy.deepcopy(net).eval()(x)
        fused, _ = _two(answer, net, x.clone())
        left = [name for name, module in fused.named_modules() if isinstance(module, nn.BatchNorm2d)]
        if left:
            fail(mistake="nothing fused", expected=[], got=left, evidence=modlab.tree(fused))
        got = fused(x)
        if same(got, _without_normalisation(net)(x), 1e-4):
            fail(mistake="the normalisation dropped", expected=plain.flatten()[:4], got=got.flatten()[:4])
        if not same(got, plain, 1e-4):
            fail("The fused net computes something else.", expected=plain.flatten()[:4], got=got.flatten()[:4])


def _proves(answer: Any) -> None:
    """the difference is that of the two outputs for x, as one number"""
    net = _used(Deep())
    for sign in (1, -1):
        _proved(answer, net, _telling(_two(answer, copy.deepcopy(net), torch.randn(1, 3, 6, 6))[0], net, sign))


def _telling(fused: Any, net: nn.Module, sign: int) -> Tensor:
    """An input for which rounding shows, and the largest difference is neither the largest with its sign, nor the mean, nor the sum."""
    still = copy.deepcopy(net).eval()
    for _ in range(300):
        x = 1e5 * torch.randn(1, 3, 6, 6)
        apart = sign * (still(x) - fused(x)).detach()
        largest = apart.abs().max()
        if apart.max() < 0.6 * largest and apart.abs().mean() < 0.6 * largest and apart.abs().sum() > 1.4 * largest:
            break
    return x


def _proved(answer: Any, net: nn.Module, x: Tensor) -> None:
    fused, difference = _two(answer, copy.deepcopy(net), x.clone())
    difference = difference.detach() if isinstance(difference, Tensor) else difference
    if isinstance(difference, bool) or (isinstance(difference, Tensor) and difference.dtype == torch.bool):
        fail(mistake="compares with ==", expected="the largest difference, a number", got=difference)
    try:
        number = float(difference)
    except (TypeError, ValueError, RuntimeError):
        number = float("nan")
    if isinstance(difference, Tensor) and difference.numel() > 1:
        fail("It should be one number, the largest.", expected="one number", got=f"{difference.numel()} numbers")
    if number != number:
        fail("It should be a number.", expected="the largest difference", got=difference)
    with torch.no_grad():
        wanted = float((copy.deepcopy(net).eval()(x) - fused(x)).abs().max())
        training = float((copy.deepcopy(net).train()(x) - fused(x)).abs().max())
    if abs(number - wanted) <= wanted / 4:
        return
    details: dict[str, Any] = {"expected": wanted, "got": number}
    if abs(number - training) <= 1e-4 * training:
        fail(mistake="compares in training mode", **details)
    again = float(_two(answer, copy.deepcopy(net), x.clone())[1])
    if number != again:
        fail(mistake="compares two inputs", **details)
    with torch.no_grad():
        apart = copy.deepcopy(net).eval()(x) - fused(x)
    if any(abs(number - float(one)) <= wanted / 100 for one in (apart.max(), -apart.min())):
        fail(mistake="without abs()", **details)
    if abs(number - float(apart.abs().mean())) <= wanted / 100:
        fail(mistake="the mean", **details)
    if number == 0:
        fail("Zero is too good: the largest difference between the two nets' outputs for this `x` is rounding, and not nothing.", **details)
    fail("That is not the largest difference of the two outputs.", **details)


def _spares(answer: Any) -> None:
    """your net is as it was, in training mode too"""
    net, x = _used(Block()), torch.randn(5, 3, 9, 9)
    before = modlab.snapshot(net)
    flags = [module.training for module in net.modules()]
    fused, _ = _two(answer, net, x)
    if [module.training for module in net.modules()] != flags:
        fail(mistake="left in evaluation mode", expected="training mode", got="evaluation mode", evidence=modlab.tree(net))
    if modlab.diff(before, net).changed:
        fail("The net itself has changed.", evidence=modlab.diff(before, net))
    if fused is net:
        fail("It gives back the net itself.", expected="another net", got="the same")


def _fusing(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"\ndef fuse_and_prove(net, x):\n{body}\n"


_COPY = ("still = copy.deepcopy(net).eval()", "fused = fuse(still)")

PROVE = Task(
    "fuse_and_prove",
    "Write `fuse_and_prove(net, x)`: it returns the fused net, and as one number the largest difference between its output for `x` "
    "and that of `net` in evaluation mode.",
    starter="""
def fuse_and_prove(net, x):
    ...
""",
    reference=_fusing(*_COPY, "difference = (still(x) - fused(x)).abs().max()", "return fused, difference.item()"),
    probes=(_fuses, _proves, _spares),
    mistakes=(
        Mistake(
            "no eval()",
            _fusing("fused = fuse(net)", "return fused, (net(x) - fused(x)).abs().max().item()"),
            "The net comes in training mode, and there a normalisation cannot be fused. Take a copy of it in evaluation mode.",
            belief=19,
            error=r"AssertionError: Fusion only for eval",
        ),
        Mistake(
            "compares with ==",
            _fusing(*_COPY, "return fused, bool((still(x) == fused(x)).all())"),
            "`==` asks for equal bits, and rounding spoils that. Ask how far apart the two are.",
        ),
        Mistake(
            "compares two inputs",
            _fusing(
                *_COPY,
                "difference = (still(torch.rand_like(x)) - fused(torch.rand_like(x))).abs().max()",
                "return fused, difference.item()",
            ),
            "The two nets got different inputs, so the difference says nothing of them. Give both the same `x`.",
        ),
        Mistake(
            "compares in training mode",
            _fusing(*_COPY, "difference = (copy.deepcopy(net)(x) - fused(x)).abs().max()", "return fused, difference.item()"),
            "In training mode the net normalises by the batch, which the fused one never does. Compare in evaluation mode.",
            belief=19,
        ),
        Mistake(
            "left in evaluation mode",
            _fusing("net.eval()", "fused = fuse(net)", "return fused, (net(x) - fused(x)).abs().max().item()"),
            "Your caller's net was in training mode, and is in evaluation mode now: its next training step normalises by old statistics. "
            "Work on a copy, or put the mode back.",
            belief=20,
        ),
        Mistake(
            "without abs()",
            _fusing(*_COPY, "return fused, (still(x) - fused(x)).max().item()"),
            "A difference has a sign: the largest may be below zero, and `max()` passes it over. Take `abs()` first.",
        ),
        Mistake(
            "the mean",
            _fusing(*_COPY, "return fused, (still(x) - fused(x)).abs().mean().item()"),
            "That is the mean of all differences. The largest is what proves that all are small.",
        ),
        Mistake(
            "the normalisation dropped",
            _fusing(
                "still = copy.deepcopy(net).eval()",
                "bare = copy.deepcopy(still)",
                "for name, child in bare.named_children():",
                "    if isinstance(child, torch.nn.BatchNorm2d):",
                "        setattr(bare, name, torch.nn.Identity())",
                "return bare, (still(x) - bare(x)).abs().max().item()",
            ),
            "The normalisation is gone, and its work too. Its scale and shift have to go into the convolution's weight and bias.",
        ),
        Mistake(
            "nothing fused",
            _fusing(
                "still = copy.deepcopy(net).eval()",
                "graph = fx.symbolic_trace(still)",
                "return graph, (still(x) - graph(x)).abs().max().item()",
            ),
            "`symbolic_trace` makes the graph and leaves the steps as they are. It is `fuse` that joins two of them.",
        ),
    ),
    hints=(
        "In which mode can a normalisation be fused? And whose net is it?",
        "`copy.deepcopy(net).eval()` is a net to work with; `fuse` gives a new one.",
        "`(one - other).abs().max()` is the largest difference of two tensors.",
    ),
    minutes=5,
    needs=FUSE,
    given="import copy\nfrom torch import fx\nfrom torch.fx.experimental.optimization import fuse",
    matters="Every rewrite of a model should come with this number; without it, faster may mean wrong.",
)

LESSON = Content(
    name="14_watching_and_rewriting",
    title="Watching and rewriting",
    goal="find out where a model's time and memory go, fuse two of its modules, and say what becomes of an if in a graph",
    minutes=35,
    after=("03_tree_and_trace", "06_modes", "10_forward_hooks"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(HOT, PROVE),
)
