"""14b: `torch.compile`: what is wrapped, what is compiled again, and what the compiled code does not see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor, fx, nn
from torch.optim import SGD

from modlab.lessons.checking import fail, require_callable
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Name, Number, YesNo
from modlab.lessons.networks import Upright
from modlab.lessons.note import Net

# ---- what the questions are proved with -----------------------------------------------------------


@contextmanager
def _forgotten() -> Iterator[None]:
    """What was compiled before does not count, what is compiled within is not kept, and what is printed is not seen."""
    torch._dynamo.reset()
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        torch._dynamo.reset()


class Noted:
    """A backend that compiles nothing, and notes the graphs that it is given."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """As `torch.compile` calls a backend."""
        self.graphs.append(graph)
        return graph.forward


def _compiled(net: nn.Module, backend: Any = "eager") -> Any:
    return torch.compile(net, backend=backend)


class Talkative(nn.Module):
    """Says something between its layers; as in the notebook."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(..., 4) → (..., 4)."""
        x = self.first(x)
        print("half way")
        return cast(Tensor, self.second(x))


def _key() -> str:
    keys: list[str] = [*_compiled(Net()).state_dict()]
    return keys[0]


def _trains_both() -> bool:
    net = Net()
    before = net.l1.bias.detach().clone()
    with _forgotten():
        compiled = _compiled(net)
        optimizer = SGD(compiled.parameters(), lr=0.1)
        compiled(torch.ones(8, 4)).sum().backward()
        optimizer.step()
    return not torch.equal(before, net.l1.bias)


def _graphs(net: nn.Module, *inputs: Tensor) -> int:
    backend = Noted()
    with _forgotten(), torch.no_grad():
        compiled = _compiled(net, backend)
        for x in inputs:
            compiled(x)
    return len(backend.graphs)


def _late_hook() -> int:
    net, seen = Net(), []
    with _forgotten():
        compiled = _compiled(net)
        compiled(torch.ones(8, 4))
        net.l0.register_forward_hook(lambda *_: seen.append(1))
        compiled(torch.ones(8, 4))
    return len(seen)


def _two_modes() -> int:
    net, backend = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), Noted()
    with _forgotten():
        compiled = _compiled(net, backend)
        for training in (True, False, True, False):
            compiled.train(training)
            compiled(torch.ones(8, 4))
    return len(backend.graphs)


def _an_if() -> str:
    with _forgotten():
        compiled = _compiled(Upright())
        compiled(torch.ones(3))
        found = compiled(-torch.ones(3))
    return "a" if torch.equal(found, torch.ones(3)) else "b"


# ---- questions ------------------------------------------------------------------------------------

PREDICTIONS = (
    Question(
        "a compiled key",
        "`net` is a `Net`, with the layers `l0` and `l1`. What is the name of `l0.weight` in `compiled.state_dict()`?",
        Name(),
        "_orig_mod.l0.weight",
        "The compiled module is a wrapper with one child: your module, which it calls `_orig_mod`.",
        wrong=(
            Wrong("l0.weight", "That is its name in `net`. The wrapper around it adds its own level.", belief=14),
            Wrong(
                "module.l0.weight", "That is what `DistributedDataParallel` calls its child. This wrapper is named otherwise.", belief=14
            ),
            Wrong("net.l0.weight", "`net` is your variable; a wrapper has its own name for its child.", belief=14),
        ),
        proof=_key,
    ),
    Question(
        "one net or two",
        "You train `compiled` for a step. Do the weights of `net` change?",
        YesNo(),
        True,
        "There is one net. The wrapper holds it, and its parameters are the same objects.",
        wrong=(Wrong(False, "Compiling copies no weight: `compiled` holds `net` itself. Look at the tree again."),),
        proof=_trains_both,
    ),
    Question(
        "four sizes",
        "`compiled` gets batches of 8, 5, 3 and 6 rows, in this order. How many graphs does the backend get?",
        Number(),
        2,
        "The first graph is for 8 rows only. At the second size PyTorch sees that it varies, and makes a graph for any number.",
        wrong=(
            Wrong(4, "That would be a graph for each size. After the second one PyTorch stops guessing that sizes stay."),
            Wrong(1, "The first graph is made for exactly 8 rows, because graphs of fixed sizes are faster."),
            Wrong(3, "The second graph fits the third size already: it is for any number of rows."),
        ),
        proof=lambda: _graphs(Net(), *(torch.ones(rows, 4) for rows in (8, 5, 3, 6))),
    ),
    Question(
        "a print between",
        "How many graphs does the backend get of `Talkative`, with its `print` between two layers?",
        Number(),
        2,
        "One before the `print` and one after it. Between them plain Python runs: that is a *graph break*.",
        wrong=(
            Wrong(1, "A graph holds tensor operations only. `print` must run in Python, in each call."),
            Wrong(0, "It does not give up: it compiles what it can, on both sides."),
            Wrong(3, "The `print` itself gets no graph; it runs in Python."),
        ),
        proof=lambda: _graphs(Talkative(), torch.ones(2, 4)),
    ),
    Question(
        "a late hook",
        "`compiled` has run. Now `net.l0` gets a forward hook, and `compiled` runs again. How many times does the hook run?",
        Number(),
        0,
        "The graph was made without it, and nobody looks for new hooks. In `net(x)`, which is not compiled, it runs.",
        wrong=(
            Wrong(1, "So it is with `net(x)`. The compiled code was made before the hook was there.", belief=34),
            Wrong(2, "A hook does not run for calls that are over.", belief=34),
        ),
        proof=_late_hook,
    ),
)

RECALLS = (
    Question(
        "to and fro",
        "A compiled net with a dropout layer goes from training mode to evaluation mode, and back, twice. How many graphs are compiled?",
        Number(),
        2,
        "One for each mode. Both are kept, and each call takes the one that fits.",
        wrong=(
            Wrong(1, "Dropout acts differently in the two modes, and a graph cannot hold an `if`."),
            Wrong(4, "Graphs are kept: when the mode returns, so does its graph."),
        ),
        proof=_two_modes,
    ),
    Question(
        "to a plain net",
        "You want a file that a plain `Net` loads. Which state do you save?",
        Choice("that of `compiled`", "that of `net`", "either: the keys are the same"),
        "b",
        "`net.state_dict()` has the plain names, and the same tensors.",
        wrong=(
            Wrong("a", "Its keys begin with `_orig_mod.`, and a plain net has no such keys.", belief=14),
            Wrong("c", "The tensors are the same; the keys of `compiled` begin with `_orig_mod.`", belief=14),
        ),
    ),
    Question(
        "an if, once more",
        "From lesson 14: `Upright` turns the sign where the sum is not positive. "
        "It is given to `torch.compile`, and called with ones. What does it give for `-torch.ones(3)`?",
        Choice("ones", "minus ones", "an error"),
        "a",
        "The `if` is a graph break: Python decides anew in each call. Only `torch.jit.trace` keeps the branch of its example.",
        wrong=(
            Wrong("b", "That happens with `torch.jit.trace`. `torch.compile` returns to Python where a value decides."),
            Wrong("c", "FX and `torch.export` refuse an `if` on values. `torch.compile` breaks the graph there, and goes on."),
        ),
        proof=_an_if,
    ),
)

# ---- task: count graphs ----------------------------------------------------------------------------


def _count(answer: Any, net: nn.Module, inputs: list[Tensor], says: str) -> None:
    require_callable(answer, "count_graphs")
    expected = _graphs(net, *inputs)
    # without gradients: PyTorch warns itself of what it does with them at a graph break
    with _forgotten(), torch.no_grad(), patch.object(torch, "compile", wraps=torch.compile) as compiling:
        got = answer(net, inputs)
    if isinstance(got, int) and not isinstance(got, bool) and got == expected:
        return
    breaks = _graphs(net, inputs[0])
    if got is None:
        fail("It returns nothing: give the number.", expected=expected, got="None")
    name = ""
    if got == len(inputs) * breaks and len(inputs) > 1:
        name = "compiled anew for each input" if compiling.call_count > 1 else "it counts calls"
    elif got == breaks and len(inputs) > 1:
        name = "the first input only"
    elif got == 0:
        name = "never called"
    fail(says, mistake=name, expected=expected, got=got)


def _once(answer: Any) -> None:
    """a net that gets inputs of one size"""
    _count(answer, Net(), [torch.ones(8, 4)] * 3, "Three calls with one size: the graph is made once.")


def _sizes(answer: Any) -> None:
    """inputs of several sizes"""
    _count(answer, Net(), [torch.ones(rows, 4) for rows in (8, 5, 3, 6)], "Four sizes, as above.")


def _broken(answer: Any) -> None:
    """a graph break"""
    _count(answer, Talkative(), [torch.ones(2, 4)], "This `forward` prints between its layers.")


def _counter(lines: str) -> str:
    return f"""
def count_graphs(net, inputs):
    graphs = []

    def backend(graph, example):
{lines}
"""


_NOTE = "        graphs.append(graph)\n        return graph.forward\n\n"
_CALLS = """        def run(*values):
            graphs.append(graph)
            return graph.forward(*values)

        return run

"""
_LOOP = "    for x in inputs:\n        compiled(x)\n    return len(graphs)"
_MADE = "    compiled = torch.compile(net, backend=backend)\n"

COUNT = Task(
    "count_graphs",
    "Write `count_graphs(net, inputs)`: how many graphs `torch.compile` makes of `net` when it is called with each of the inputs.",
    starter="""
def count_graphs(net, inputs):
    ...
""",
    reference=_counter(_NOTE + _MADE + _LOOP),
    probes=(_once, _sizes, _broken),
    mistakes=(
        Mistake(
            "it counts calls",
            _counter(_CALLS + _MADE + _LOOP),
            "What the backend *returns* runs in each call. The backend itself is called once for each new graph: count there.",
        ),
        Mistake(
            "compiled anew for each input",
            _counter(
                _NOTE
                + "    for x in inputs:\n        torch._dynamo.reset()\n"
                + "        torch.compile(net, backend=backend)(x)\n    return len(graphs)"
            ),
            "You start from nothing for each input, so no graph is used twice. Compile once, before the loop.",
        ),
        Mistake(
            "the first input only",
            _counter(_NOTE + _MADE + "    compiled(inputs[0])\n    return len(graphs)"),
            "Other inputs may need another graph: call it with each of them.",
        ),
        Mistake(
            "never called",
            _counter(_NOTE + _MADE + "    return len(graphs)"),
            "`torch.compile` only wraps. Compiling begins with the first call.",
        ),
    ),
    hints=(
        "A backend is a function `backend(graph, example)` that returns what is run in the graph's place: `graph.forward` will do.",
        "It is called once for each new graph. Let it append to a list.",
    ),
    minutes=5,
    matters="A count that grows with each batch is the commonest reason why a compiled model is slow.",
)

# ---- task: plain keys ------------------------------------------------------------------------------


def _nets() -> tuple[nn.Module, nn.Module, nn.Module]:
    whole = _compiled(Net())
    part = nn.Sequential(nn.Linear(4, 4), _compiled(nn.Linear(4, 4)))
    return whole, part, Net()


def _plain(key: str) -> str:
    return ".".join(part for part in key.split(".") if part != "_orig_mod")


def _state(answer: Any, module: nn.Module, says: str) -> dict[str, Any]:
    require_callable(answer, "plain_state")
    wanted = {_plain(name): value for name, value in module.state_dict().items()}
    try:
        found = answer(module)
    except AttributeError as error:
        if "_orig_mod" not in str(error):
            raise
        fail(str(error), mistake="not every net is compiled")
    if not isinstance(found, dict):
        fail(f"{says} Give a state_dict.", expected="a dict", got=f"a {type(found).__name__}")
    if [*found] != [*wanted]:
        name = ""
        if [*found] == [*module.state_dict()]:
            name = "the wrapper's names" if isinstance(module, type(_compiled(Net()))) else "only in front"
        elif {*found} == {key.rpartition(".")[2] for key in wanted}:
            name = "all levels cut off"
        fail(says, mistake=name, expected=[*wanted], got=[*found])
    return found


def _whole(answer: Any) -> None:
    """a net that was compiled as a whole"""
    _state(answer, _nets()[0], "The whole net is compiled.")


def _uncompiled(answer: Any) -> None:
    """a net that was not compiled"""
    _state(answer, _nets()[2], "This net is not compiled.")


def _part(answer: Any) -> None:
    """a net of which a layer was compiled"""
    _state(answer, _nets()[1], "Only the second layer is compiled, so `_orig_mod` stands in the middle of its keys.")


def _values(answer: Any) -> None:
    """with the same values"""
    for module in _nets():
        found = _state(answer, module, "")
        for name, value in module.state_dict().items():
            if not isinstance(found[_plain(name)], Tensor) or not torch.equal(found[_plain(name)], value):
                fail(f"`{_plain(name)}` has a different value.", expected=value.flatten()[:4], got=found[_plain(name)])


def _keys(expression: str) -> str:
    return f"""
def plain_state(module):
    {expression}
"""


PLAIN = Task(
    "plain_state",
    "Write `plain_state(module)`: its `state_dict()` with plain keys, whether all of it is compiled, a part, or nothing.",
    starter=_keys("..."),
    reference=_keys('return {name.replace("_orig_mod.", ""): value for name, value in module.state_dict().items()}'),
    probes=(_whole, _uncompiled, _part, _values),
    mistakes=(
        Mistake(
            "the wrapper's names",
            _keys("return module.state_dict()"),
            "These are the wrapper's names, with `_orig_mod.` in front. A plain net knows none of them.",
            belief=14,
        ),
        Mistake(
            "not every net is compiled",
            _keys("return module._orig_mod.state_dict()"),
            "Only a compiled module has an `_orig_mod`. Change the keys, and it works for all.",
        ),
        Mistake(
            "only in front",
            _keys('return {name.removeprefix("_orig_mod."): value for name, value in module.state_dict().items()}'),
            "`removeprefix` looks at the front only. Where a part is compiled, `_orig_mod` stands in the middle.",
            belief=14,
        ),
        Mistake(
            "all levels cut off",
            _keys('return {name.rpartition(".")[2]: value for name, value in module.state_dict().items()}'),
            "That leaves the last name only: weights of different layers get the same key.",
            belief=14,
        ),
    ),
    hints=(
        "Print the keys of `nn.Sequential(torch.compile(nn.Linear(2, 2)), nn.Linear(2, 2))`.",
        '`name.replace("_orig_mod.", "")` takes the level out wherever it stands.',
    ),
    minutes=4,
    matters="Checkpoints with plain keys can be loaded whether or not somebody compiles.",
)

LESSON = Content(
    name="14b_compiled",
    title="Compiled: what torch.compile makes of a module",
    goal="say what torch.compile wraps, when it compiles again and what it no longer sees, and save so that a plain net can load it",
    minutes=20,
    after=("14_watching_and_rewriting", "10_forward_hooks"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(COUNT, PLAIN),
)
