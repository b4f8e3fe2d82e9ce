"""11: backward hooks: what they get, when they run, and what they can change."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.lessons.checking import fail, require_callable, require_equal, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Order, YesNo
from modlab.lessons.note import MyLinear, Net

# ---- questions ------------------------------------------------------------------------------------


def _layer() -> tuple[nn.Linear, Tensor]:
    torch.manual_seed(1)
    return nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)


def _gradients(m: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    """Of x and of the weight, after one pass."""
    m(x).sum().backward()
    assert x.grad is not None and m.weight.grad is not None
    return x.grad, m.weight.grad


def _grad(thing: Any) -> Tensor:
    """The gradient of a tensor that has one."""
    found = thing.grad
    assert isinstance(found, Tensor)
    return found


def _filled(value: float, register: str) -> str:
    """Which of x.grad and weight.grad a hook that returns one number everywhere changes."""
    m, x = _layer()
    before = [gradient.clone() for gradient in _gradients(m, x)]
    m, x = _layer()
    getattr(m, register)(lambda module, gradients, *rest: [torch.full_like(gradient, value) for gradient in gradients])
    after = _gradients(m, x)
    changed = [not torch.equal(*both) for both in zip(before, after, strict=True)]
    assert all((gradient == value).all() for gradient, is_changed in zip(after, changed, strict=True) if is_changed)
    return {(True, False): "a", (False, True): "b", (True, True): "c"}[changed[0], changed[1]]


def _seen_inside() -> dict[str, tuple[Any, bool]]:
    """For each layer of Net: the first input gradient that its full hook gets, and whether its weight has a gradient then."""
    net, seen = Net(), {}
    for name, layer in net.named_children():

        def hook(module: nn.Module, grad_input: Sequence[Any], grad_output: Any, name: str = name) -> None:
            seen[name] = (grad_input, module.weight.grad is not None)

        layer.register_full_backward_hook(hook)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the first layer's input requires no gradient
        net(torch.randn(4)).backward()
    return seen


def _order() -> str:
    net, ran = Net(), []

    def note(letter: str) -> Callable[..., None]:
        return lambda *given: ran.append(letter)

    net.l0.register_full_backward_pre_hook(note("a"))
    net.l0.register_full_backward_hook(note("b"))
    net.l1.register_full_backward_pre_hook(note("c"))
    net.l1.register_full_backward_hook(note("d"))
    net(torch.randn(4, requires_grad=True)).backward()
    return " ".join(ran)


def _order_of_one_layer() -> str:
    net, ran = Net(), []

    def note(letter: str) -> Callable[..., None]:
        return lambda *given: ran.append(letter)

    net.l1.register_full_backward_hook(note("a"))
    net.l1.weight.register_hook(note("b"))  # type: ignore[no-untyped-call]
    net.l1.register_full_backward_pre_hook(note("c"))
    net(torch.randn(4)).backward()
    return " ".join(ran)


def _where_it_fails() -> str:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True))
    net[0].register_full_backward_hook(lambda *given: None)
    try:
        y = net(torch.randn(2, 3))
    except RuntimeError:
        return "b"
    try:
        y.sum().backward()
    except RuntimeError:
        return "c"
    return "a"


def _handles_of_two() -> int:
    m, x = _layer()
    ran: list[int] = []

    def hook(*given: Any) -> None:
        ran.append(1)

    handles = [m.register_forward_hook(hook), m.register_forward_hook(hook)]
    removed = 0
    while True:
        ran.clear()
        m(x)
        if not ran:
            return removed
        handles.pop().remove()
        removed += 1


_REPLACED = Choice("`x.grad` alone", "`m.weight.grad` alone", "both")

PREDICTIONS = (
    Question(
        "42 from a full hook",
        "A full backward hook on `m` returns 42 everywhere. What is 42 after the pass?",
        _REPLACED,
        "a",
        "The hook replaces the gradient with respect to the module's input, and nothing else.",
        wrong=(
            Wrong("b", "The hook returns a gradient for each input; the weight is not an input of the call."),
            Wrong("c", "It looks as if the hook stood between the loss and the module; but it stands behind it, on the way to `x`."),
        ),
        proof=lambda: _filled(42.0, "register_full_backward_hook"),
    ),
    Question(
        "zeros from a pre-hook",
        "A full backward pre-hook on `m` returns zeros. What is zero after the pass?",
        _REPLACED,
        "c",
        "It replaces the gradient of the module's output, from which the others are computed.",
        wrong=(
            Wrong("a", "That is what the full hook does. The pre-hook comes before the module's gradients are computed."),
            Wrong("b", "The gradient of `x` is computed from the output's too, as that of the weight is."),
        ),
        proof=lambda: _filled(0.0, "register_full_backward_pre_hook"),
    ),
    Question(
        "order of four hooks",
        "In `Net` the layer `l0` runs before `l1`. Each has a backward pre-hook and a full hook. In which order do the four run?",
        Order("pre-hook of `l0`", "full hook of `l0`", "pre-hook of `l1`", "full hook of `l1`"),
        ("c", "d", "a", "b"),
        "Backward goes from the loss to the input: `l1` first. In each layer the pre-hook comes first.",
        wrong=(
            Wrong("a b c d", "That is the order of the forward pass. Backward goes the other way."),
            Wrong("d c b a", "The layers turn round, but the pre-hook still comes before its layer's gradients are computed."),
            Wrong("c a d b", "Backward is done with `l1` before it gets to `l0`: `l0`'s gradient comes out of `l1`."),
            Wrong("a c b d", "Pre-hooks do not all run first: each waits for the gradient of its own module's output."),
        ),
        proof=_order,
    ),
    Question(
        "weight.grad in l1",
        "`net` is a `Net`, and its input is a plain `torch.randn(4)`. Inside the full hook of `l1`, is `l1.weight.grad` there already?",
        YesNo(),
        True,
        "`l1`'s input requires a gradient, since it depends on `l0`'s parameters. "
        "The hook waits for that gradient, and the weight's comes before.",
        wrong=(
            Wrong(
                False, "The hook does not run at the module's start: it waits until the gradient of the module's input is there.", belief=35
            ),
        ),
        proof=lambda: _seen_inside()["l1"][1],
    ),
    Question(
        "weight.grad in l0",
        "And inside the full hook of `l0`, is `l0.weight.grad` there already?",
        YesNo(),
        False,
        "`l0`'s input requires no gradient, so there is none to wait for: the hook runs as soon as the output's gradient is there.",
        wrong=(Wrong(True, "So it is in `l1`. But the input of `l0` requires no gradient, and the hook does not wait.", belief=35),),
        proof=lambda: _seen_inside()["l0"][1],
    ),
    Question(
        "a change in place",
        "A layer has a full backward hook, and `nn.ReLU(inplace=True)` comes after it. Where does that fail?",
        Choice("nowhere", "in the forward pass", "in the backward pass"),
        "b",
        "The hook wraps the layer's output in a view that must stay as it is; the ReLU writes into it at once.",
        wrong=(
            Wrong("a", "Without the hook it works. With it the output is wrapped, and may not be written into.", belief=35),
            Wrong("c", "The hook runs backward, but it needs its wrapping in the forward pass, and there the ReLU stumbles.", belief=35),
        ),
        proof=_where_it_fails,
    ),
)

RECALLS = (
    Question(
        "order in one layer",
        "Order what happens in the backward pass of a layer whose input requires a gradient.",
        Order("the full backward hook runs", "the gradients of its parameters are computed", "the backward pre-hook runs"),
        ("c", "b", "a"),
        "The pre-hook has the output's gradient alone. Then the parameters get theirs, then the full hook runs.",
        proof=_order_of_one_layer,
    ),
    Question(
        "where to clip",
        "You want to limit the gradient that reaches a module, so that its parameters feel it as well. Which hook?",
        Choice("a full backward hook", "a full backward pre-hook", "a forward hook that clamps the output"),
        "b",
        "It replaces the gradient of the output, from which the parameters' gradients are computed.",
        wrong=(
            Wrong("a", "It replaces the gradient of the input, and by then the parameters have theirs."),
            Wrong("c", "That changes the values of the forward pass, and stops gradients altogether where it cuts."),
        ),
    ),
    Question(
        "handles of two",
        "From lesson 10: the same hook was registered twice. How many handles must be removed until it no longer runs?",
        Number(),
        2,
        "Two registrations are two entries, each with a handle of its own.",
        wrong=(Wrong(1, "A handle takes off its own entry; the other one goes on running.", belief=34),),
        belief=34,
        proof=_handles_of_two,
    ),
)

# ---- the first task: monitor ------------------------------------------------------------------------


class Chain(nn.Module):
    """Three layers with a tanh between them: a gradient comes to each."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.middle = MyLinear(5, 3)
        self.last = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(..., 4) → (..., 2)."""
        y: Tensor = self.last(torch.tanh(self.middle(torch.tanh(self.first(x)))))
        return y


@contextlib.contextmanager
def _quiet() -> Any:
    """Without torch's warnings about a hook on a first layer, and about legacy hooks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _entered(answer: Any, net: nn.Module) -> Any:
    require_callable(answer, "monitor")
    manager = answer(net)
    if not hasattr(type(manager), "__enter__"):
        fail(
            "A `with` needs something that is told when its block ends: keep `@contextmanager` and the `yield`.",
            expected="something for a `with`",
            got=f"a {type(manager).__name__}",
        )
    return manager


def _monitored(
    answer: Any, net: nn.Module, inputs: Sequence[Tensor], to_none: bool = True, zeroed: bool = True
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """What should stand in the dict after some passes, and what does."""
    before = len(modlab.hooks())
    weights = {name: layer.weight for name, layer in net.named_children()}
    expected: dict[str, list[float]] = {name: [] for name in weights}
    for x in inputs:
        gradients = torch.autograd.grad(net(x).square().sum(), list(weights.values()))  # type: ignore[arg-type]
        for name, gradient in zip(weights, gradients, strict=True):
            expected[name].append(gradient.norm().item())
    with _quiet(), _entered(answer, net) as norms:
        for x in inputs:
            if zeroed:
                net.zero_grad(set_to_none=to_none)
            try:
                net(x).square().sum().backward()
            except (AttributeError, TypeError) as error:
                if "NoneType" not in str(error):
                    raise
                fail(
                    f"There was None in the backward pass: {error}.",
                    mistake="reads weight.grad in the hook",
                    evidence=_timeline(answer, net, x),
                )
    if len(modlab.hooks()) > before:
        fail(
            mistake="a global hook is left on",
            expected="0 hooks for all modules",
            got=f"{len(modlab.hooks()) - before}",
            evidence=modlab.hooks(),
        )
    if not isinstance(norms, dict):
        fail("What stands after `as` should be a dict.", expected="a dict", got=f"a {type(norms).__name__}")
    if norms and not any(name in norms for name in expected):
        keys = [key if isinstance(key, str) else f"a {type(key).__name__}" for key in norms]
        owned = any(key in dict(net.named_parameters()) for key in keys)
        mistake = "names of the parameters" if owned else ""
        fail("" if owned else "The names are others.", mistake=mistake, expected=[*expected], got=keys, evidence=modlab.tree(net))
    return expected, {name: _numbers(norms.get(name, []), name) for name in expected}


def _timeline(answer: Any, net: nn.Module, x: Tensor) -> Any:
    """A backward pass with the answer's hooks in it, as far as it gets."""
    net.zero_grad()
    with _quiet(), modlab.trace(net) as trace, contextlib.suppress(Exception), _entered(answer, net):
        net(x).square().sum().backward()
    return trace


def _numbers(found: Any, name: str) -> list[float]:
    if not isinstance(found, (list, tuple)):
        fail("Each name should have a list of numbers, one for each pass.", expected=f"a list at {name!r}", got=f"a {type(found).__name__}")
    try:
        return [float(one) for one in found]
    except (TypeError, ValueError):
        fail("The norms should be numbers.", expected="numbers", got=found)


def _close(got: dict[str, list[float]], expected: dict[str, list[float]]) -> bool:
    return all(same(torch.tensor(got[name]), torch.tensor(expected[name])) for name in expected)


def _rounded(norms: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [round(one, 4) for one in found] for name, found in norms.items()}


def _norms(answer: Any) -> None:
    """it has the norm of each layer's weight gradient, by the layer's name"""
    net, x = Chain(), torch.randn(6, 4, requires_grad=True)
    expected, got = _monitored(answer, net, [x])
    last = [*expected][-1]
    if not any(got[name] for name in [*expected][:-1]) and len(got[last]) == len(expected):
        fail(mistake="one name for all", expected=_rounded(expected), got=_rounded(got))
    for name, place in (("gradient of the input", 0), ("gradient of the output", 1)):
        if _close(got, _passing(net, x)[place]):
            fail(mistake=name, expected=_rounded(expected), got=_rounded(got), evidence=_timeline(answer, net, x))
    if not _close(got, expected):
        fail("The norms are others.", expected=_rounded(expected), got=_rounded(got), evidence=modlab.state(net))


def _passing(net: nn.Module, x: Tensor) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The norms of the gradients of each child's input and output."""
    found: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    handles = []
    for name, layer in net.named_children():

        def hook(module: nn.Module, grad_input: Any, grad_output: Any, name: str = name) -> None:
            for norms, gradients in zip(found, (grad_input, grad_output), strict=True):
                norms[name] = [gradients[0].norm().item()]

        handles.append(layer.register_full_backward_hook(hook))
    net(x).square().sum().backward()
    for handle in handles:
        handle.remove()
    return found


def _first_layer(answer: Any) -> None:
    """it works where the input of the net requires no gradient, as in training"""
    net = Chain()
    expected, got = _monitored(answer, net, [torch.randn(6, 4)])
    if not _close(got, expected):
        if not got["first"] and got["last"]:
            evidence = _timeline(answer, net, torch.randn(6, 4))
            fail(mistake="reads weight.grad in the hook", expected=_rounded(expected), got=_rounded(got), evidence=evidence)
        fail("The norms are others.", expected=_rounded(expected), got=_rounded(got), evidence=modlab.state(net))


def _each_pass(answer: Any) -> None:
    """each pass has its own number, also where gradients are set to zero instead of None"""
    net, inputs = Chain(), [torch.randn(6, 4) for _ in range(3)]
    expected, got = _monitored(answer, net, inputs, to_none=False)
    if not _close(got, expected):
        if len(got["first"]) == 3 and same(torch.tensor(got["last"]), torch.tensor(expected["last"])):
            fail(mistake="reads weight.grad in the hook", expected=_rounded(expected), got=_rounded(got))
        fail("After three passes it has other norms.", expected=_rounded(expected), got=_rounded(got))


def _not_the_sum(answer: Any) -> None:
    """each pass has its own number, also where nothing is zeroed between two"""
    net, inputs = Chain(), [torch.randn(6, 4) for _ in range(2)]
    expected, got = _monitored(answer, net, inputs, zeroed=False)
    if not _close(got, expected):
        sums = {name: [norms[0], _grad(net.get_submodule(name).weight).norm().item()] for name, norms in expected.items()}
        mistake = "the sum of all passes" if _close(got, sums) else ""
        fail("" if mistake else "The norms are others.", mistake=mistake, expected=_rounded(expected), got=_rounded(got))


def _gradients_stay(answer: Any) -> None:
    """the gradients are what they are without it"""
    net, x = Chain(), torch.randn(6, 4)
    net(x).square().sum().backward()
    expected = [_grad(parameter).clone() for parameter in net.parameters()]
    net.zero_grad()
    with _quiet(), _entered(answer, net):
        net(x).square().sum().backward()
        hooks = modlab.hooks(net)
    for parameter, plain in zip(net.parameters(), expected, strict=True):
        if not same(parameter.grad, plain):
            fail(
                "A hook that only looks returns None.",
                mistake="changes the gradient",
                expected=plain,
                got=parameter.grad,
                evidence=hooks,
            )


def _no_hook_left(answer: Any) -> None:
    """no hook is left, also after an error"""
    for stumbles in (False, True):
        net = Chain()
        try:
            with _quiet(), _entered(answer, net):
                if stumbles:
                    raise ValueError("stop, on purpose")
                net(torch.randn(6, 4)).sum().backward()
        except ValueError:
            pass
        hooks = modlab.hooks(net)
        if len(hooks):
            says = "The block raised an error." if stumbles else ""
            fail(says, mistake="hooks are left on", expected="0 hooks", got=f"{len(hooks)} hooks", evidence=hooks)


def _monitor(register: str, end: str = "") -> str:
    end = (
        end
        or """
    try:
        yield norms
    finally:
        for handle in handles:
            handle.remove()
"""
    )
    return f"""
@contextmanager
def monitor(net):
    norms, handles = {{name: [] for name, layer in net.named_children()}}, []
    for name, layer in net.named_children():
        {register}
{end}"""


def _by_full_hook(value: str) -> str:
    return _monitor(f"handles.append(layer.register_full_backward_hook(lambda module, gi, go, name=name: norms[name].append({value})))")


MONITOR = Task(
    "monitor",
    "Write `monitor(net)`, for a `with`. It gives a dict with a list for the name of each child of `net`. "
    "The list gets the norm of the gradient of that child's weight at each backward pass in the block.",
    starter="""
@contextmanager
def monitor(net):
    norms = {}
    ...
    yield norms
""",
    reference="""
@contextmanager
def monitor(net):
    norms, handles = {}, []

    def keeper(name):
        def keep(gradient):
            norms.setdefault(name, []).append(gradient.norm().item())

        return keep

    for name, layer in net.named_children():
        handles.append(layer.weight.register_hook(keeper(name)))
    try:
        yield norms
    finally:
        for handle in handles:
            handle.remove()
""",
    probes=(_norms, _first_layer, _each_pass, _not_the_sum, _gradients_stay, _no_hook_left),
    mistakes=(
        Mistake(
            "reads weight.grad in the hook",
            _by_full_hook("module.weight.grad.norm().item()"),
            "In the first layer the full hook runs before `weight.grad` is there: it finds None, or what the last pass left. "
            "Hang a hook on the weight itself.",
            belief=35,
        ),
        Mistake(
            "the sum of all passes",
            _monitor(
                "handles.append(layer.weight.register_post_accumulate_grad_hook("
                "lambda weight, name=name: norms[name].append(weight.grad.norm().item())))"
            ),
            "Such a hook finds `weight.grad` ready, and all passes since the last zeroing are added up there. "
            "`layer.weight.register_hook` gets the gradient of this one pass.",
            belief=22,
        ),
        Mistake(
            "names of the parameters",
            """
@contextmanager
def monitor(net):
    norms, handles = {}, []
    for name, parameter in net.named_parameters():
        if name.endswith("weight"):
            norms[name] = []
            hook = lambda gradient, name=name: norms[name].append(gradient.norm().item())
            handles.append(parameter.register_hook(hook))
    try:
        yield norms
    finally:
        for handle in handles:
            handle.remove()
""",
            "The names are those of the parameters, `first.weight`. The dict should have the names of the children, `first`.",
        ),
        Mistake(
            "gradient of the input",
            _by_full_hook("gi[0].norm().item()"),
            "`grad_input` is the gradient with respect to what goes into the layer. The weight's gradient is not in it.",
            belief=35,
        ),
        Mistake(
            "gradient of the output",
            _by_full_hook("go[0].norm().item()"),
            "`grad_output` is the gradient with respect to what comes out of the layer; the weight's is computed from it.",
            belief=35,
        ),
        Mistake(
            "one name for all",
            _monitor("handles.append(layer.weight.register_hook(lambda gradient: norms[name].append(gradient.norm().item())))"),
            "All hooks share the one variable `name`, and look at it when they run: by then it holds the last name.",
        ),
        Mistake(
            "changes the gradient",
            _monitor(
                "handles.append(layer.weight.register_hook("
                "lambda gradient, name=name: (norms[name].append(gradient.norm().item()), gradient / gradient.norm())[1]))"
            ),
            "What a hook on a tensor returns replaces the gradient, and the optimizer will use it.",
        ),
        Mistake(
            "returns the norm",
            """
@contextmanager
def monitor(net):
    norms, handles = {}, []
    for name, layer in net.named_children():
        def keep(gradient, name=name):
            norms.setdefault(name, []).append(gradient.norm())
            return gradient.norm()
        handles.append(layer.weight.register_hook(keep))
    yield norms
    for handle in handles:
        handle.remove()
""",
            "What a hook on a tensor returns replaces the gradient, and a norm has a different shape. Return nothing.",
            error="has changed the size of value",
        ),
        Mistake(
            "hooks are left on",
            _monitor(
                "layer.weight.register_hook(lambda gradient, name=name: norms[name].append(gradient.norm().item()))",
                end="    yield norms\n",
            ),
            "Your hooks outlive the block. Keep the handles, and remove them in a `finally`.",
            belief=34,
        ),
        Mistake(
            "a global hook is left on",
            """
@contextmanager
def monitor(net):
    names = {layer: name for name, layer in net.named_children()}
    norms = {name: [] for name in names.values()}

    def hook(module, grad_input, grad_output):
        if module in names:
            norms[names[module]].append(module.weight.grad.norm().item())

    nn.modules.module.register_module_full_backward_hook(hook)
    yield norms
""",
            "Your hook for all modules goes on running, for every model there is. Hang hooks on this net, and remove them.",
            belief=34,
        ),
    ),
    hints=(
        "Which hook gets the gradient of one tensor, whatever became of the input's?",
        "`layer.weight.register_hook(hook)`: the hook gets the weight's gradient as a bare tensor. `gradient.norm().item()` is a number.",
        "A function that takes the name and returns the hook; a list of handles; `try`, `yield norms`, and in `finally` each `remove()`.",
    ),
    minutes=7,
    given="from contextlib import contextmanager",
    matters="Vanishing and exploding gradients show here, layer by layer, often before the loss tells.",
)

# ---- the second task: clip_gradient -------------------------------------------------------------------


def _pass_through(answer: Any, x: Tensor) -> tuple[nn.Linear, Tensor, Tensor]:
    """A layer with the answer on it, its output and the gradient that comes to that."""
    require_callable(answer, "clip_gradient")
    m = nn.Linear(4, 3)
    with _quiet():
        answer(m, 0.5)
        y = m(x)
    require_equal(y, F.linear(x, m.weight, m.bias), "The output of the module has changed.", evidence=modlab.hooks(m))
    incoming = 2 * torch.randn(y.shape)
    with _quiet():
        (y * incoming).sum().backward()
    return m, y, incoming


def _by_hand(m: nn.Linear, x: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x and of the weight, from that of the output."""
    return gradient @ m.weight.detach(), gradient.T @ x.detach()


def _clips(answer: Any) -> None:
    """the input and the weight get their gradients from a clipped one"""
    x = torch.randn(5, 4, requires_grad=True)
    m, _, incoming = _pass_through(answer, x)
    got = (_grad(x), _grad(m.weight))
    expected, plain = _by_hand(m, x, incoming.clamp(-0.5, 0.5)), _by_hand(m, x, incoming)
    if all(map(same, got, expected)):
        return
    details: dict[str, Any] = {"expected": expected[1][0], "got": got[1][0], "evidence": modlab.hooks(m)}
    if modlab.hooks(m).find(kind="legacy*"):
        fail(mistake="legacy hook", **details)
    if all(map(same, got, plain)):
        fail("The gradients are as they were; the limit was 0.5.", **details)
    if same(got[0], plain[0].clamp(-0.5, 0.5)):
        fail(mistake="clips the gradient of the input", **details)
    if same(got[0], plain[0]):
        fail(mistake="clips the parameters", **details)
    fail("The limit was 0.5, and the weight's gradient is another.", **details)


def _clips_first(answer: Any) -> None:
    """it works in a first layer, for one input as for many"""
    for rows in (1, 6):
        x = torch.randn(rows, 4)
        m, _, incoming = _pass_through(answer, x)
        expected = _by_hand(m, x, incoming.clamp(-0.5, 0.5))[1]
        require_equal(_grad(m.weight), expected, f"The weight's gradient for {rows} input(s) is another.", evidence=modlab.hooks(m))


def _spares_gradients(answer: Any) -> None:
    """the gradient that comes in from behind is not written into"""
    m, x = nn.Linear(4, 3), torch.randn(5, 4)
    with _quiet():
        answer(m, 0.5)
        given = torch.full((5, 3), 2.0)
        m(x).backward(given)
    if (given != 2).any():
        fail(mistake="in place", expected=[2.0, 2.0, 2.0], got=given[0])


def _clipping_ends(answer: Any) -> None:
    """it returns a handle, whose remove() ends it"""
    m, x = nn.Linear(4, 3), torch.randn(5, 4)
    with _quiet():
        handle = answer(m, 0.5)
    if not hasattr(handle, "remove"):
        fail(mistake="no handle", expected="a handle with `remove()`", got=f"a {type(handle).__name__}")
    handle.remove()
    given = torch.full((5, 3), 2.0)
    m(x).backward(given)
    require_equal(_grad(m.weight), _by_hand(m, x, given)[1], "After `remove()` it still clips.", evidence=modlab.hooks(m))


def _clip(register: str, body: str) -> str:
    return f"""
def clip_gradient(module, limit):
    return module.{register}({body})
"""


CLIP = Task(
    "clip_gradient",
    "Write `clip_gradient(module, limit)`, which returns a handle. Until that is removed, the gradient of the module's output "
    "is clamped to `-limit` … `limit`, before the module's own gradients are computed from it.",
    starter="""
def clip_gradient(module, limit):
    ...
""",
    reference="""
def clip_gradient(module, limit):
    def clip(module, grad_output):
        return tuple(gradient.clamp(-limit, limit) for gradient in grad_output)

    return module.register_full_backward_pre_hook(clip)
""",
    probes=(_clips, _clips_first, _spares_gradients, _clipping_ends),
    mistakes=(
        Mistake(
            "a tensor, no tuple",
            _clip("register_full_backward_pre_hook", "lambda module, gradients: gradients[0].clamp(-limit, limit)"),
            "Gradients come as a tuple and go back as one. A bare tensor is taken for a tuple of its rows: 5 rows, 5 gradients.",
            error="invalid number of grad_output",
        ),
        Mistake(
            "clips the gradient of the input",
            _clip("register_full_backward_hook", "lambda module, gi, go: tuple(g if g is None else g.clamp(-limit, limit) for g in gi)"),
            "The full hook has the gradient behind the module, on its way to `x`; the weight's was computed before.",
        ),
        Mistake(
            "clips the parameters",
            """
def clip_gradient(module, limit):
    handles = [p.register_hook(lambda gradient: gradient.clamp(-limit, limit)) for p in module.parameters()]
    return handles[0]
""",
            "You clip what is computed from the output's gradient, not that gradient itself: `x` gets its own unclipped.",
        ),
        Mistake(
            "legacy hook",
            _clip("register_backward_hook", "lambda module, gi, go: tuple(g if g is None else g.clamp(-limit, limit) for g in gi)"),
            "`register_backward_hook` is the old kind: it sees the last operation of the module only. "
            "Its successors are called `register_full_…`.",
        ),
        Mistake(
            "in place",
            """
def clip_gradient(module, limit):
    def clip(module, grad_output):
        for gradient in grad_output:
            gradient.clamp_(-limit, limit)

    return module.register_full_backward_pre_hook(clip)
""",
            "`clamp_` writes into a gradient that others use too. Return new tensors.",
        ),
        Mistake(
            "no handle",
            """
def clip_gradient(module, limit):
    module.register_full_backward_pre_hook(lambda module, gradients: [g.clamp(-limit, limit) for g in gradients])
""",
            "The handle is lost, so nobody can take the hook off. Return what the registering line gives you.",
        ),
    ),
    hints=(
        "Which hook runs before the module's own gradients are computed?",
        "It gets the module and a tuple of gradients, and returns a tuple of as many.",
        "`tuple(gradient.clamp(-limit, limit) for gradient in grad_output)`, from a full backward pre-hook.",
    ),
    minutes=5,
    matters="A gradient that is clamped on its way spares the layers before it as well; `clip_grad_norm_` works on what has arrived.",
)

# ---- the third task: cure ------------------------------------------------------------------------------


def _cured(answer: Any, net: nn.Sequential, mistake: str = "") -> None:
    """Hang a full hook on each module, cure the net, and let it run."""
    require_callable(answer, "cure")
    x, ran = torch.randn(5, 4), []
    with torch.no_grad():
        expected = net(x)
    for module in net.modules():
        module.register_full_backward_hook(lambda module, grad_input, grad_output: ran.append(module))
    hooks = len(modlab.hooks(net))
    with _quiet():
        answer(net)
        if len(modlab.hooks(net).find(kind="full backward")) < hooks:
            fail(
                mistake="takes the hooks off", expected=f"{hooks} hooks", got=f"{len(modlab.hooks(net))} hooks", evidence=modlab.hooks(net)
            )
        try:
            y = net(x)
        except RuntimeError as error:
            if "inplace" not in str(error):
                raise
            named = "a clone in a forward hook" if modlab.hooks(net).find(kind="forward") else mistake
            fail("A forward pass still raises “… is a view and is being modified inplace”.", mistake=named, evidence=modlab.tree(net))
        require_equal(y, expected, "The net gives a different output than before.", evidence=modlab.tree(net))
        y.sum().backward()
    if len(ran) < hooks:
        fail("Some of the hooks did not run in the backward pass.", expected=f"{hooks} hooks that run", got=str(len(ran)))


def _cures_one(answer: Any) -> None:
    """a layer and an in-place ReLU run forward and backward, with hooks, and give what they gave"""
    _cured(answer, nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)))


def _cures_deep(answer: Any) -> None:
    """so does a net in a net"""
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    _cured(answer, nn.Sequential(inner, nn.Linear(4, 4), nn.ReLU(inplace=True)), mistake="children only")


def _cures_others(answer: Any) -> None:
    """so do other modules that work in place"""
    layers = (nn.Linear(4, 4), nn.LeakyReLU(inplace=True), nn.Linear(4, 4), nn.Dropout(0.0, inplace=True), nn.Hardtanh(inplace=True))
    _cured(answer, nn.Sequential(*layers), mistake="ReLU alone")


def _cure(body: str, loop: str = "net.modules()") -> str:
    return f"""
def cure(net):
    for module in {loop}:
        {body}
"""


CURE = Task(
    "cure",
    "Write `cure(net)`: afterwards each module of `net` can have a full backward hook, "
    "and the net computes what it did. Hooks that are on stay on.",
    starter="""
def cure(net):
    ...
""",
    reference="""
def cure(net):
    for module in net.modules():
        if hasattr(module, "inplace"):
            module.inplace = False
""",
    probes=(_cures_one, _cures_deep, _cures_others),
    mistakes=(
        Mistake(
            "children only",
            _cure('if hasattr(module, "inplace"):\n            module.inplace = False', "net.children()"),
            "`children()` goes one level down, and a ReLU further in still works in place. `modules()` gives all.",
            belief=28,
        ),
        Mistake(
            "ReLU alone",
            _cure("if isinstance(module, nn.ReLU):\n            module.inplace = False"),
            "`nn.ReLU` is not the only module that can work in place: others have the attribute `inplace` too.",
        ),
        Mistake(
            "takes the hooks off",
            _cure("module._backward_hooks.clear()"),
            "Without hooks there is no error, and nothing to listen with either.",
        ),
        Mistake(
            "a clone in a forward hook",
            _cure("module.register_forward_hook(lambda module, inputs, output: output.clone())"),
            "The error advises a clone, but here it comes too early: the backward hook wraps the output after all forward hooks have run.",
            belief=35,
        ),
    ),
    hints=(
        "The error comes from a module that writes into what it gets. Which modules of the net do?",
        "Those modules have an attribute `inplace`, which may be changed at any time.",
        "Go through `net.modules()`, and where a module has an `inplace`, set it to False.",
    ),
    minutes=4,
    matters="In-place operations are the usual reason why a full backward hook fails in somebody else's model.",
)

LESSON = Content(
    name="11_backward_hooks",
    title="Backward hooks",
    goal="look at gradients on their way, change them, and know when a hook runs",
    minutes=35,
    after=("05_training_loop", "10_forward_hooks"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(MONITOR, CLIP, CURE),
)
