"""10: forward hooks: look at what goes through a module, change it, and leave no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import modlab
from modlab.lessons.checking import fail, require_callable, require_equal, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.drawing import Arrow, Drawing, Vertex
from modlab.lessons.kinds import Choice, Number, Order, Several
from modlab.lessons.note import BigNet, Net

# ---- questions ------------------------------------------------------------------------------------


def _layer() -> tuple[nn.Linear, Tensor]:
    torch.manual_seed(1)
    return nn.Linear(3, 3).requires_grad_(False), torch.randn(2, 3)


def _plus_one(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return inputs[0] + 1


def _residual(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output + inputs[0]


def _letter(got: Tensor, *options: Tensor) -> str:
    """The one option that a tensor equals."""
    (found,) = [letter for letter, option in zip("abc", options, strict=True) if torch.allclose(got, option)]
    return found


def _what_a_hook_gets() -> str:
    m, x = _layer()
    seen: list[tuple[type, type]] = []
    m.register_forward_hook(lambda module, inputs, output: seen.append((type(inputs), type(output))))
    m(x)
    return {(Tensor, Tensor): "a", (tuple, Tensor): "b", (tuple, tuple): "c"}[seen[0]]


def _both() -> str:
    m, x = _layer()
    m.register_forward_pre_hook(_plus_one)
    m.register_forward_hook(_residual)
    return _letter(m(x), m.forward(x) + x, m.forward(x + 1) + x, m.forward(x + 1) + (x + 1))


def _one_removed() -> str:
    m, x = _layer()
    first = m.register_forward_pre_hook(_plus_one)
    m.register_forward_hook(_residual)
    m(x)
    first.remove()
    return _letter(m(x), m.forward(x) + x, m.forward(x) + (x + 1), m.forward(x + 1) + (x + 1))


def _bodies() -> list[str]:
    def returns(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output * 0

    def in_place(module: nn.Module, inputs: Any, output: Tensor) -> None:
        output.mul_(0)

    def assigns(module: nn.Module, inputs: Any, output: Tensor) -> None:
        output = output * 0

    def computes(module: nn.Module, inputs: Any, output: Tensor) -> None:
        output * 0

    hooks: list[Callable[..., Any]] = [returns, in_place, assigns, computes]
    found = []
    for letter, hook in zip("abcd", hooks, strict=True):
        m, x = _layer()
        m.register_forward_hook(hook)
        found += [letter] if not m(x).any() else []
    return found


def _by_keyword() -> int:
    m, x = _layer()
    seen: list[int] = []
    m.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs)))
    m(input=x)
    return seen[0]


def _twice() -> int:
    m, x = _layer()
    m.register_forward_pre_hook(_plus_one)
    m.register_forward_pre_hook(_plus_one)
    return next(i for i in range(4) if torch.allclose(m(x), m.forward(x + i)))


def _calls_of_big_net() -> int:
    calls: list[nn.Module] = []
    with register_module_forward_hook(lambda module, inputs, output: calls.append(module)):
        BigNet()(torch.randn(5))
    return len(calls)


PREDICTIONS = (
    Question(
        "what a hook gets",
        "The hook `look(module, inputs, output)` is registered on `m`, and you call `m(x)`. What are `inputs` and `output`?",
        Choice("two tensors", "a tuple and a tensor", "two tuples"),
        "b",
        "A module may be called with several arguments, so a hook gets them as a tuple. The output comes as `forward` returned it.",
        wrong=(
            Wrong("a", "You gave one tensor; the hook does not know that there will never be more, and gets `(x,)`."),
            Wrong("c", "Only the inputs are packed. An output is a tuple only where `forward` returns one."),
        ),
        proof=_what_a_hook_gets,
    ),
    Question(
        "both hooks",
        "Both hooks are on. What does calling `m` with `x` give, if `m` below means the layer alone?",
        Choice("`m(x) + x`", "`m(x + 1) + x`", "`m(x + 1) + (x + 1)`"),
        "c",
        "Of the three sums it alone has the numbers that came out.",
        wrong=(
            Wrong("a", "That is the residual hook alone. The pre-hook runs first, so the layer gets `x + 1`."),
            Wrong("b", "So it looks, for `x` is what you passed. But `inputs` is what `forward` got, and that is `x + 1` by then."),
        ),
        proof=_both,
    ),
    Question(
        "pre-hook removed",
        "You call `first.remove()`, which takes the pre-hook off. What does calling `m` with `x` give now?",
        Choice("`m(x) + x`", "`m(x) + (x + 1)`", "`m(x + 1) + (x + 1)`"),
        "a",
        "The handle takes its own hook off, and the other one goes on, with the input as it now is.",
        wrong=(
            Wrong("b", "`residual` keeps no input of its own: it gets the one of this call."),
            Wrong("c", "That is with both. `remove()` takes effect at once, not only in modules made later."),
        ),
        proof=_one_removed,
    ),
    Question(
        "bodies",
        "A forward hook should turn the output of `m` into zeros. Which of these bodies do that?",
        Several("`return output * 0`", "`output.mul_(0)`", "`output = output * 0`", "`output * 0`"),
        ("a", "b"),
        "A returned value replaces the output; an operation in place changes the very tensor that the caller gets.",
        wrong=(
            Wrong(
                "a", "That is the way to do it. But `mul_` writes into the same tensor that the caller gets, so it acts as well.", belief=34
            ),
            Wrong("b", "That one acts, and so does a returned value: it takes the output's place.", belief=34),
            Wrong("a b c", "`output = …` gives the name inside the function another tensor; the caller's stays as it is.", belief=34),
            Wrong("a c", "`output = …` renames inside the function alone; `mul_` writes into the tensor that the caller gets.", belief=34),
            Wrong("a b c d", "Two of them compute a new tensor, and nobody hands it on.", belief=34),
        ),
        belief=34,
        proof=_bodies,
    ),
    Question(
        "by keyword",
        "You call `m(input=x)`. How many elements are in the `inputs` that a forward hook gets?",
        Number(),
        0,
        "`inputs` holds the positional arguments alone. What came by keyword reaches hooks registered with `with_kwargs=True`.",
        wrong=(Wrong(1, "The layer gets `x`, the hook does not: only positional arguments are in `inputs`.", belief=34),),
        belief=34,
        proof=_by_keyword,
    ),
    Question(
        "registered twice",
        "The line that registers `plus_one` runs twice. How much is added to `x` when `m` is called?",
        Number(),
        2,
        "Each registration is an entry of its own, with a handle of its own; PyTorch does not ask whether the function is known.",
        wrong=(Wrong(1, "It is the same function, but it was registered twice, and each entry runs.", belief=34),),
        belief=34,
        proof=_twice,
    ),
    Question(
        "calls of BigNet",
        "`BigNet` is `l1` and a `net` of `l0` and `l1`. One hook for all modules counts calls. How many are there in one pass?",
        Number(),
        5,
        "Each of the five modules is called once, `net` and the `BigNet` around it too. "
        "A module is counted when it is done: children first.",
        wrong=(
            Wrong(3, "These are the three layers. `net` and the `BigNet` itself are modules and are called as well.", belief=28),
            Wrong(4, "The module that you call yourself counts too.", belief=28),
            Wrong(1, "You make one call; the module makes the others, and each comes by the hook."),
            Wrong(2, "These are its children. They call their own, and you call `BigNet`.", belief=28),
        ),
        proof=_calls_of_big_net,
    ),
)

RECALLS = (
    Question(
        "order of a call",
        "Order what happens when a module is called.",
        Order("the forward hooks get inputs and output", "`forward` computes", "the forward pre-hooks get the inputs"),
        ("c", "b", "a"),
        "Pre-hooks, then `forward`, then forward hooks; each gets what the stage before it left.",
    ),
    Question(
        "no return",
        "A forward hook ends without a `return`. What does the caller of the module get?",
        Choice("None", "the output of `forward`", "an error"),
        "b",
        "None means: leave it as it is. Only another value takes the output's place.",
        wrong=(
            Wrong("a", "A function without `return` gives None, and PyTorch takes None from a hook as *no change*.", belief=34),
            Wrong("c", "Most hooks only look, and return nothing; that is allowed.", belief=34),
        ),
        proof=lambda: _without_return(),
    ),
    Question(
        "past the hooks",
        "From lesson 01: you write `m.forward(x)` in place of `m(x)`. Which hooks of `m` run?",
        Choice("all", "the forward hooks, not the pre-hooks", "none"),
        "c",
        "Hooks hang on the call, `m(x)`. `m.forward(x)` is the computation alone.",
        wrong=(
            Wrong("a", "The call runs them, and the module was not called: `forward` is only one step of a call.", belief=33),
            Wrong("b", "A forward hook is named for when it runs, after `forward`. It is the call that runs it.", belief=33),
        ),
        proof=lambda: _hooks_of_forward(),
    ),
)


def _without_return() -> str:
    m, x = _layer()
    plain = m(x)
    m.register_forward_hook(lambda module, inputs, output: None)
    got = m(x)
    return "a" if got is None else "b" if torch.equal(got, plain) else ""


def _hooks_of_forward() -> str:
    m, x = _layer()
    ran: list[str] = []
    m.register_forward_pre_hook(lambda module, inputs: ran.append("pre"))
    m.register_forward_hook(lambda module, inputs, output: ran.append("post"))
    m.forward(x)
    return {("pre", "post"): "a", ("post",): "b", (): "c"}[tuple(ran)]


# ---- the first task: capture ------------------------------------------------------------------------


class Twice(nn.Module):
    """Calls its one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(self.layer(x))
        return y


class Stumbles(nn.Module):
    """Raises after its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.layer(x)
        raise ValueError("stop, on purpose")


def _entered(answer: Any, net: nn.Module) -> Any:
    require_callable(answer, "capture")
    manager = answer(net)
    if not hasattr(type(manager), "__enter__"):
        fail(mistake="no context manager", expected="something for a `with`", got=f"a {type(manager).__name__}")
    return manager


def _captured(answer: Any, net: nn.Module, x: Tensor) -> dict[str, Any]:
    """What the answer has taken down of one pass; a dict of lists."""
    with _entered(answer, net) as outputs:
        net(x)
    if not isinstance(outputs, dict):
        fail("What stands after `as` should be a dict.", expected="a dict", got=f"a {type(outputs).__name__}")
    for name, found in outputs.items():
        if isinstance(found, Tensor):
            fail(mistake="only the last call", expected=f"a list at {name!r}", got="one tensor")
        wanted = f"a list of tensors at {name!r}"
        if not isinstance(found, (list, tuple)):
            fail("Each name should have a list of tensors.", expected=wanted, got=f"a {type(found).__name__}")
        odd = next((one for one in found if not isinstance(one, Tensor)), None)
        if odd is not None:
            numbers = isinstance(odd, (list, float, int)) or type(odd).__module__ == "numpy"
            says = "" if numbers else "Each name should have a list of tensors."
            mistake = "numbers, not tensors" if numbers else ""
            fail(says, mistake=mistake, expected=wanted, got=f"a list with a {type(odd).__name__} in it")
    return {name: list(found) for name, found in outputs.items() if len(found)}


def _outputs(net: nn.Module, x: Tensor) -> dict[str, list[Tensor]]:
    """What each module gives, taken down by the judge."""
    found: dict[str, list[Tensor]] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: found.setdefault(name, []).append(output.detach().clone())

    handles = [module.register_forward_hook(keep(name)) for name, module in net.named_modules()]
    with torch.no_grad():
        net(x)
    for handle in handles:
        handle.remove()
    return found


def _names_all(answer: Any) -> None:
    """it has the output of every module, under the module's name"""
    for net, x in ((BigNet(), torch.randn(2, 5)), (Net(), torch.randn(4))):
        expected, got = _outputs(net, x), _captured(answer, net, x)
        names, children = [*expected], [name for name, _ in net.named_children()]
        if len(got) == 1 and sum(map(len, got.values())) == len(names):
            fail(mistake="one name for all", expected=names, got=[*got])
        if len(children) < len(names) - 1 and sorted(got, key=str) == sorted(children):
            fail(mistake="children only", expected=names, got=[*got], evidence=modlab.tree(net))
        if sorted(got, key=str) != sorted(names):
            fail(
                'It should have one entry for each of `named_modules()`, the net itself (`""`) among them.',
                expected=sorted(names),
                got=sorted(map(str, got)),
                evidence=modlab.tree(net),
            )
        for name, outputs in expected.items():
            require_equal(got[name][0], outputs[0], f"What stands at {name!r} is not what that module gave.")


def _each_call(answer: Any) -> None:
    """a module that is called twice has two entries, in the order of the calls"""
    net, x = Twice(), torch.randn(2, 3)
    expected, got = _outputs(net, x), _captured(answer, net, x)
    if len(got["layer"]) == 1:
        fail(mistake="only the last call", expected="2 tensors at 'layer'", got="1 tensor", evidence=modlab.trace(net)(x))
    if len(got["layer"]) != 2:
        fail("`layer` ran twice.", expected="2 tensors at 'layer'", got=f"{len(got['layer'])} tensors", evidence=modlab.trace(net)(x))
    for i in range(2):
        require_equal(got["layer"][i], expected["layer"][i], f"Call {i} of `layer` gave something else.")


def _whole_call(answer: Any) -> None:
    """it has what a caller gets, hooks that were there before included"""
    net, x = Net(), torch.randn(4)
    net.l0.register_forward_hook(lambda module, inputs, output: 2 * output)
    got = _captured(answer, net, x).get("l0", [None])[0]
    alone = net.l0.forward(x)
    if same(got, alone):
        fail(mistake="before other hooks", expected=2 * alone, got=got)
    require_equal(got, 2 * alone, "A hook on l0 doubles its output, and yours should have what comes after it.")


def _without_graph(answer: Any) -> None:
    """what it keeps has no graph behind it"""
    for name, found in _captured(answer, Net(), torch.randn(4)).items():
        if found[0].requires_grad:
            fail(mistake="keeps the graph", expected="requires_grad False", got=f"requires_grad True at {name!r}")


def _copies(answer: Any) -> None:
    """nothing that runs later changes what it keeps"""
    net, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True)), torch.randn(5, 4)
    expected, got = _outputs(net, x)["0"][0], _captured(answer, net, x)["0"][0]
    if not same(got, expected) and same(got, expected.relu()):
        fail("An `nn.ReLU(inplace=True)` ran after the layer.", mistake="no copy", expected=expected[0], got=got[0])
    require_equal(got, expected, "The output of layer 0 is different.")


def _runs_as_before(answer: Any) -> None:
    """the net computes and learns as it does without it"""
    net, x = Net(), torch.randn(4)
    with torch.no_grad():
        plain = net(x)
    with _entered(answer, net):
        y = net(x)
    require_equal(y, plain, "The net gives something other than without `capture`.")
    if not isinstance(y, Tensor) or not y.requires_grad:
        fail(mistake="replaces the output", expected="an output with a grad_fn", got="an output without one")


def _removed(answer: Any) -> None:
    """no hook is left afterwards"""

    def not_yours(module: nn.Module, inputs: Any, output: Tensor) -> None:
        pass

    net = Net()
    kept = net.l0.register_forward_hook(not_yours)
    _captured(answer, net, torch.randn(4))
    hooks = modlab.hooks(net)
    if len(hooks) > 1:
        fail(mistake="hooks are left on", expected="the 1 hook that was there before", got=f"{len(hooks)} hooks", evidence=hooks)
    if len(hooks) < 1:
        fail("It removed a hook that somebody else had put there.", expected="1 hook", got="none")
    kept.remove()


def _removed_after_error(answer: Any) -> None:
    """no hook is left when the block raises, and the error goes on its way"""
    net, raised = Stumbles(), False
    try:
        with _entered(answer, net):
            net(torch.randn(3))
    except ValueError:
        raised = True
    hooks = modlab.hooks(net)
    if len(hooks):
        fail(mistake="left on after an error", expected="0 hooks", got=f"{len(hooks)} hooks", evidence=hooks)
    if not raised:
        fail(mistake="swallows the error", expected="ValueError: stop, on purpose", got="no error")


def _capture(*, loop: str = "net.named_modules()", keep: str = "", body: str = "", end: str = "") -> str:
    """A solution of `capture` in which parts are replaced."""
    keep = keep or "outputs.setdefault(name, []).append(output.detach().clone())"
    body = body or f"handles.append(module.register_forward_hook(keeper(name))) for name, module in {loop}"
    end = (
        end
        or """
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
"""
    )
    return f"""
@contextmanager
def capture(net):
    outputs, handles = {{}}, []

    def keeper(name):
        def keep(module, inputs, output):
            {keep}
        return keep

    [{body}]
{end}"""


CAPTURE = Task(
    "capture",
    "Write `capture(net)`, for a `with`. It gives a dict with a list for each name of `net.named_modules()`. "
    "The list gets a detached copy of that module's output at each call in the block.",
    starter="""
@contextmanager
def capture(net):
    outputs = {}
    ...
    yield outputs
""",
    reference="""
@contextmanager
def capture(net):
    outputs, handles = {}, []

    def keeper(name):
        def keep(module, inputs, output):
            outputs.setdefault(name, []).append(output.detach().clone())

        return keep

    try:
        for name, module in net.named_modules():
            handles.append(module.register_forward_hook(keeper(name)))
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
""",
    probes=(_names_all, _each_call, _whole_call, _without_graph, _copies, _runs_as_before, _removed, _removed_after_error),
    mistakes=(
        Mistake(
            "only the last call",
            _capture(keep="outputs[name] = output.detach().clone()"),
            "One name has one place, and each call writes over the last one. Keep a list for each name.",
        ),
        Mistake(
            "keeps the graph",
            _capture(keep="outputs.setdefault(name, []).append(output.clone())"),
            "These tensors hold the whole computation that made them, so its memory stays in use. `detach()` cuts it off.",
            belief=36,
        ),
        Mistake(
            "no copy",
            _capture(keep="outputs.setdefault(name, []).append(output.detach())"),
            "`detach()` gives a second name for the same numbers. What writes into them later writes into yours: add `clone()`.",
            belief=13,
        ),
        Mistake(
            "numbers, not tensors",
            _capture(keep="outputs.setdefault(name, []).append(output.tolist())"),
            "`tolist()` and `numpy()` make something else of the tensor. A copy that is still one is `output.detach().clone()`.",
        ),
        Mistake(
            "hooks are left on",
            _capture(end="    yield outputs\n"),
            "Your hooks outlive the block: they go on running, and the next `capture` adds more. Call `remove()` on each handle.",
            belief=34,
        ),
        Mistake(
            "left on after an error",
            _capture(end="    yield outputs\n    for handle in handles:\n        handle.remove()\n"),
            "What stands after `yield` does not run when the block raises. "
            "Put the `yield` into a `try`, and the removal into its `finally`.",
            belief=34,
        ),
        Mistake(
            "swallows the error",
            _capture(
                end="    try:\n        yield outputs\n    except Exception:\n        pass\n"
                "    for handle in handles:\n        handle.remove()\n"
            ),
            "An error of the block vanishes, and nobody learns of it. `finally` cleans up and lets it pass; `except` catches it.",
        ),
        Mistake(
            "one name for all",
            """
@contextmanager
def capture(net):
    outputs, handles = {}, []
    for name, module in net.named_modules():
        handles.append(
            module.register_forward_hook(
                lambda module, inputs, output: outputs.setdefault(name, []).append(output.detach().clone())
            )
        )
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()
""",
            "All hooks share the one variable `name`, and look at it when they run: by then the loop is over, and it holds the last name. "
            "Give each hook its own, by a function that makes hooks or by `functools.partial`.",
        ),
        Mistake(
            "children only",
            _capture(loop="net.named_children()"),
            "`named_children()` goes one level down. `named_modules()` gives all, the net itself too.",
            belief=28,
        ),
        Mistake(
            "replaces the output",
            _capture(keep="outputs.setdefault(name, []).append(output.detach().clone()); return output.detach()"),
            "Your hook returns something, and that takes the output's place: cut off from the graph, it can no longer be trained.",
            belief=34,
        ),
        Mistake(
            "before other hooks",
            """
@contextmanager
def capture(net):
    outputs = {}

    def wrapped(name, forward):
        def run(*args, **kwargs):
            output = forward(*args, **kwargs)
            outputs.setdefault(name, []).append(output.detach().clone())
            return output

        return run

    for name, module in net.named_modules():
        module.forward = wrapped(name, module.forward)
    try:
        yield outputs
    finally:
        for module in net.modules():
            del module.forward
""",
            "You have what `forward` gave, and a hook on that module changed it afterwards. A wrapped `forward`, or a hook for all "
            "modules, comes before the hooks of the module itself: register yours there.",
            belief=33,
        ),
        Mistake(
            "no context manager",
            """
def capture(net):
    outputs = {}
    for name, module in net.named_modules():
        module.register_forward_hook(lambda *given, name=name: outputs.setdefault(name, []).append(given[2].detach().clone()))
    return outputs
""",
            "A `with` needs something that is told when its block ends. Keep `@contextmanager` above the function, and the `yield` in it.",
        ),
    ),
    hints=(
        "Register one forward hook for each module, and keep all handles in a list.",
        "A hook is not told the name of its module. Write a function that takes the name and returns a hook.",
        "In the hook: `outputs.setdefault(name, []).append(output.detach().clone())`. "
        "Around the `yield`: `try`, and a `finally` that removes all handles.",
    ),
    minutes=8,
    given="from contextlib import contextmanager",
    matters="Feature extraction, and most tools that look into a model (this one, too), stand on hooks like these.",
)


# ---- the second task: clamp_output ------------------------------------------------------------------


def _within(answer: Any) -> None:
    """what comes out lies between the bounds, however the module is called"""
    require_callable(answer, "clamp_output")
    m, x = nn.Linear(4, 6), 3 * torch.randn(5, 4)
    plain, inside = m(x).detach(), m(x.clamp(-0.5, 0.7)).detach()
    expected = plain.clamp(-0.5, 0.7)
    answer(m, -0.5, 0.7)
    got = m(x)
    if isinstance(got, tuple):
        fail(mistake="a tuple", expected="a tensor", got="a tuple")
    if same(got, plain):
        fail(mistake="nothing returned", expected="-0.5 to 0.7", got=f"{got.min():.4f} to {got.max():.4f}", evidence=modlab.trace(m)(x))
    if same(got, inside):
        fail(mistake="clamps the input", expected=expected[0], got=got[0], evidence=modlab.trace(m)(x))
    require_equal(got, expected, "With the bounds -0.5 and 0.7 it gives something else.", evidence=modlab.trace(m)(x))
    require_equal(m(input=x), expected, "Called with a keyword, `m(input=x)`, it gives something else.")


def _any_bounds(answer: Any) -> None:
    """other bounds are kept as well, and each module has its own"""
    x = 3 * torch.randn(5, 4)
    modules = {(-0.1, 0.2): nn.Linear(4, 6), (0.25, 1.5): nn.Linear(4, 6), (-2.0, -0.5): nn.Linear(4, 6)}
    plain = {bounds: m(x).detach() for bounds, m in modules.items()}
    for (low, high), m in modules.items():
        answer(m, low, high)
    for (low, high), m in modules.items():
        got, expected = m(x), plain[low, high].clamp(low, high)
        if not same(got, expected):
            found = f"{got.min():.4f} to {got.max():.4f}" if isinstance(got, Tensor) else got
            fail(mistake="bounds of its own", expected=f"{expected.min():.4f} to {expected.max():.4f}", got=found, evidence=modlab.hooks(m))


def _spares_the_caller(answer: Any) -> None:
    """the caller's own tensor stays as it is"""
    m, x = nn.Identity(), torch.tensor([-2.0, 0.0, 2.0])
    answer(m, -1.0, 1.0)
    m(x)
    if x[0] != -2:
        fail(
            "This module, `nn.Identity()`, gives back the tensor that it was called with.",
            mistake="in place",
            expected=[-2.0, 0.0, 2.0],
            got=x.tolist(),
        )


def _gradients_pass(answer: Any) -> None:
    """gradients pass where nothing was cut"""
    m, x = nn.Tanh(), torch.tensor([-2.0, 0.0, 0.1, 2.0], requires_grad=True)
    answer(m, -0.5, 0.5)
    y = m(x)
    if not y.requires_grad:
        fail(mistake="cut from the graph", expected="an output with a grad_fn", got="an output without one")
    y.sum().backward()
    slope = 1 - torch.tanh(x.detach()) ** 2
    require_equal(x.grad, slope * torch.tensor([0.0, 1.0, 1.0, 0.0]), "The gradient is another than that of clamp.")


def _spares_the_others(answer: Any) -> None:
    """other modules compute as before"""
    other, x = nn.Linear(4, 6), 3 * torch.randn(5, 4)
    plain = other.forward(x).detach()  # past a hook for all modules, which an earlier step may have left
    answer(nn.Linear(4, 6), -0.5, 0.5)
    if not same(other(x), plain):
        fail(mistake="for all modules", expected=plain[0], got=other(x)[0], evidence=modlab.hooks())


def _ends(answer: Any) -> None:
    """it returns a handle, whose remove() ends it"""
    m, x = nn.Linear(4, 6), 3 * torch.randn(5, 4)
    plain = m(x).detach()
    handle = answer(m, -0.5, 0.5)
    if not hasattr(handle, "remove"):
        fail(mistake="no handle", expected="a handle with `remove()`", got=f"a {type(handle).__name__}")
    handle.remove()
    require_equal(m(x), plain, "After `remove()` the module gives something other than in the beginning.", evidence=modlab.hooks(m))


def _clamp(body: str, *, register: str = "return module.register_forward_hook(hook)") -> str:
    return f"""
def clamp_output(module, low, high):
    def hook(module, inputs, output):
        {body}

    {register}
"""


CLAMP = Task(
    "clamp_output",
    "Write `clamp_output(module, low, high)`: from then on the module's output lies between the two bounds, "
    "until the handle that it returns is removed.",
    starter="""
def clamp_output(module, low, high):
    ...
""",
    reference="""
def clamp_output(module, low, high):
    return module.register_forward_hook(lambda module, inputs, output: output.clamp(low, high))
""",
    probes=(_within, _spares_the_caller, _gradients_pass, _spares_the_others, _any_bounds, _ends),
    mistakes=(
        Mistake(
            "nothing returned",
            _clamp("output = output.clamp(low, high)"),
            "The hook computes the clamped tensor and does not return it, so the output stays as it was.",
            belief=34,
        ),
        Mistake(
            "in place",
            _clamp("output.clamp_(low, high)"),
            "`clamp_` writes into a tensor that may belong to somebody else. Make a new one, and return it.",
            belief=34,
        ),
        Mistake(
            "bounds of its own",
            _clamp("return output.clamp(-0.5, 0.7)"),
            "It does not keep to the bounds that it is given. `low` and `high` are known inside the hook: use these.",
        ),
        Mistake(
            "a tuple",
            _clamp("return (output.clamp(low, high),)"),
            "The inputs come as a tuple, the output does not: what you return takes its place as it is.",
        ),
        Mistake(
            "clamps the input",
            """
def clamp_output(module, low, high):
    return module.register_forward_pre_hook(lambda module, inputs: inputs[0].clamp(low, high))
""",
            "A pre-hook has what goes in. What comes out of the layer may still be large: take a forward hook.",
        ),
        Mistake(
            "cut from the graph",
            _clamp("return output.detach().clamp(low, high)"),
            "The new output has no `grad_fn`, so nothing in front of it will learn. Clamp the output itself.",
        ),
        Mistake(
            "for all modules",
            _clamp("return output.clamp(low, high)", register="return nn.modules.module.register_module_forward_hook(hook)"),
            "Your hook runs for every module there is. Register it on this one.",
        ),
        Mistake(
            "no handle",
            _clamp("return output.clamp(low, high)", register="module.register_forward_hook(hook)"),
            "The handle is lost, so nobody can take the hook off. Return what `register_forward_hook` gives you.",
        ),
    ),
    hints=(
        "Which hook runs after `forward` and has its output?",
        "What such a hook returns takes the output's place. `tensor.clamp(low, high)` makes a new tensor.",
        "The line that registers the hook gives a handle: return that.",
    ),
    minutes=4,
    matters="A hook that returns something changes a model without touching its code, and its handle takes the change back.",
)

AROUND = Drawing(
    "hooks around forward",
    "m(x) runs the forward pre-hooks, which may change the input, then forward, then the forward hooks, which may change the output. "
    "m.forward(x) runs forward alone: no hook.",
    {
        "call": Vertex("m(x)", (0, 0), look="main"),
        "before": Vertex("forward pre-hooks", (1, 0), "may change the input"),
        "forward": Vertex("forward", (2, 0)),
        "after": Vertex("forward hooks", (3, 0), "may change the output"),
        "output": Vertex("output", (4, 0), look="tensor"),
        "direct": Vertex("m.forward(x)", (0, 1), "no hook runs"),
    },
    [
        Arrow("call", "before"),
        Arrow("before", "forward"),
        Arrow("forward", "after"),
        Arrow("after", "output"),
        Arrow("direct", "forward", dashed=True),
    ],
)

LESSON = Content(
    name="10_forward_hooks",
    title="Forward hooks",
    goal="look at what goes through any module, change it, and leave the module as it was",
    minutes=30,
    after=("01_a_module", "03_tree_and_trace"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(CAPTURE, CLAMP),
    drawings=(AROUND,),
)
