"""12: inside the class: every store of `nn.Module`, and six claims put to the test."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import modlab
from modlab.lessons.checking import fail
from modlab.lessons.content import Content, Mistake, Probe, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Several, YesNo
from modlab.lessons.note import MyLinear, Net

# ---- questions ------------------------------------------------------------------------------------


def _metadata_in_a_copy() -> bool:
    state = nn.BatchNorm1d(2).state_dict()
    return hasattr({key: value for key, value in state.items()}, "_metadata")


def _metadata_after_loading() -> bool:
    def as_metadata(module: nn.Module, state: dict[str, Any], prefix: str, metadata: dict[str, Any]) -> None:
        metadata["epoch"] = 3

    m, plain = nn.Linear(2, 2), nn.Linear(2, 2)
    m._register_state_dict_hook(as_metadata)  # type: ignore[no-untyped-call]
    state = m.state_dict()
    assert state._metadata[""]["epoch"] == 3  # type: ignore[attr-defined]
    plain.load_state_dict(state)
    return "epoch" in plain.state_dict()._metadata[""]  # type: ignore[attr-defined]


def _where_a_conversion_matters() -> str:
    def convert(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name in list(state):
            state[name] = state[name].to(module.weight.dtype)

    found = []
    for options in ({}, {"assign": True}):
        dtypes = []
        for hooked in (False, True):
            m = nn.Linear(2, 2)
            if hooked:
                m._register_load_state_dict_pre_hook(convert, with_module=True)  # type: ignore[no-untyped-call]
            m.load_state_dict(nn.Linear(2, 2).double().state_dict(), **options)
            dtypes.append(m.weight.dtype)
        found.append(dtypes[0] != dtypes[1])
    return {(True, False): "a", (False, True): "b", (True, True): "c", (False, False): "d"}[found[0], found[1]]


def _halved() -> float:
    m, x, gradients = nn.Linear(2, 1), torch.ones(3, 2, requires_grad=True), []
    for hook in (lambda module, grads: None, lambda module, grads: [grads[0] / 2]):
        m.zero_grad()
        with m.register_full_backward_pre_hook(hook):
            m(x).sum().backward()
        found: Any = m.weight.grad
        gradients.append(found[0, 0].item())
    return float(gradients[1] / gradients[0])


_CLAIMS = (
    "`_buffers` holds the persistent buffers only",
    "`_is_full_backward_hook` is set for the whole network, by a full hook on any of its modules",
    "a backward pre-hook is given the gradients of the module's own parameters",
    "a module can be built of layers without `super().__init__()`",
    "in evaluation mode no gradients are computed",
    "in evaluation mode weight decay is off",
)

PREDICTIONS = (
    Question(
        "versions in a copy",
        "Does `{key: value for key, value in state.items()}` still know the versions?",
        YesNo(),
        False,
        "They are an attribute of the `state_dict`, `_metadata`, and no entry. A new dict has the entries alone.",
        wrong=(Wrong(True, "They are not entries: they hang on the object, and the comprehension makes another one."),),
        proof=_metadata_in_a_copy,
    ),
    Question(
        "metadata after loading",
        "`plain` has loaded a state with `epoch` in its metadata. Is `epoch` in the metadata of `plain.state_dict()`, too?",
        YesNo(),
        False,
        "Each `state_dict()` makes its metadata anew. What was in the file is shown to the module while it loads, and kept by nobody.",
        wrong=(
            Wrong(
                True,
                "The tensors are copied into the module, and the metadata has no place there: it is read in loading, and gone.",
            ),
        ),
        proof=_metadata_after_loading,
    ),
    Question(
        "where a conversion matters",
        "A float32 layer loads a `state_dict` in float64, and a pre-hook converts each entry to float32. "
        "For which of these does the layer come out different with the hook?",
        Choice("`load_state_dict(state)`", "`load_state_dict(state, assign=True)`", "both", "neither"),
        "b",
        "By default numbers are copied *into* the layer's tensors, and converted on the way. `assign=True` puts the new tensors in.",
        wrong=(
            Wrong("a", "Here the numbers are copied into the layer's own tensors, which keep their dtype with or without the hook."),
            Wrong("c", "The first copies numbers into the layer's own tensors, which keep their dtype with or without the hook."),
            Wrong("d", "With `assign=True` the tensors themselves are exchanged, so their dtype counts."),
        ),
        proof=_where_a_conversion_matters,
    ),
    Question(
        "half of what comes back",
        "A backward pre-hook on `m` halves what it is given. By which factor does `m.weight.grad` change?",
        Number(),
        0.5,
        "The hook halves the gradient of the *output*, and the weight's is computed from that one afterwards.",
        wrong=(
            Wrong(1, "The hook never sees the weight's gradient; but it changes what that one is computed from."),
            Wrong(0.25, "The gradient of the output enters once: half of it gives half of the weight's."),
            Wrong(2, "Half of the output's gradient gives half of the weight's."),
        ),
        proof=_halved,
    ),
    Question(
        "claims that hold",
        'Which of the six hold? (An empty list, `[]`, for "none of them".)',
        Several(*_CLAIMS),
        (),
        "None of them. Each is written somewhere, and each falls to a few lines of code.",
        wrong=(
            Wrong("a", "The store has both kinds; `_non_persistent_buffers_set` keeps the names of those that are not saved.", belief=11),
            Wrong("b", "Each module has its own flag."),
            Wrong("c", "It is given the gradient of the module's output. The parameters' gradients are computed from that, later."),
            Wrong("e", "`eval()` sets flags; autograd does not ask for them.", belief=18),
            Wrong("a c", "`_buffers` has both kinds, and a pre-hook is given the gradient of the output."),
            Wrong("e f", "`eval()` sets flags. Neither autograd nor the optimizer asks for them.", belief=18),
        ),
        proof=lambda: [letter for letter, holds in zip("abcdef", _verdicts(), strict=True) if holds],
    ),
)

RECALLS = (
    Question(
        "both kinds in one store",
        "From lesson 12: why does `_buffers` hold a buffer that is not persistent as well?",
        Choice(
            "it is saved, but not loaded",
            "`to()` and `buffers()` go through `_buffers`: only `state_dict()` asks for the set",
            "it stays there until `state_dict()` takes it out",
        ),
        "b",
        "It is to follow the model in everything but the file, so it is in the store like any other buffer.",
        wrong=(
            Wrong("a", "It is not saved either: its name is in `_non_persistent_buffers_set`.", belief=11),
            Wrong("c", "Saving changes no module: `state_dict()` only leaves out the names in `_non_persistent_buffers_set`."),
        ),
    ),
    Question(
        "an epoch in the file",
        "A `state_dict` hook adds the epoch. Where must it go, so that strict loading still works?",
        Choice("into an entry, `epoch`", "into the metadata", "either will do"),
        "b",
        "Strict loading complains about an entry that no module knows. Nothing checks the metadata.",
        wrong=(
            Wrong("a", "Strict loading raises an error: it is an unexpected key."),
            Wrong("c", "An entry breaks strict loading: it is an unexpected key."),
        ),
    ),
    Question(
        "metadata",
        "Where does a file keep the `_version` of each module's class?",
        Choice("in an entry, `_version`", "in the `_metadata` of the `state_dict`", "nowhere"),
        "b",
        "As an attribute of the `state_dict`, which is saved with it, and which a new dict of the same entries lacks.",
        wrong=(
            Wrong("a", "An entry would be an unexpected key. It is in `_metadata`."),
            Wrong("c", "It travels along, so that newer code can read what older code has written."),
        ),
    ),
)

# ---- the first task: a court ------------------------------------------------------------------------
# Each claim has impostors: nets for which it is true. Evidence that cannot tell one of them from a real net is none.


def _impostor(nature: type[nn.Module]) -> type[Net]:
    """A `Net` whose own class and whose layers have another nature."""

    class Layer(nature, MyLinear):  # type: ignore[valid-type,misc]
        pass

    class Impostor(nature, Net):  # type: ignore[valid-type,misc]
        def __init__(self) -> None:
            super().__init__()
            self.l0, self.l1 = Layer(4, 3), Layer(3, 1)

    made: type[Net] = Impostor
    return made


class _PersistentOnly(nn.Module):
    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        if persistent:
            super().register_buffer(name, tensor)
        else:
            vars(self)[name] = tensor


class _OneFlag(nn.Module):
    def register_full_backward_hook(self, *given: Any, **options: Any) -> Any:
        handle = super().register_full_backward_hook(*given, **options)
        for module in _living(_OneFlag):
            module._is_full_backward_hook = True
        return handle


class _GivesTheWeights(nn.Module):
    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> Any:
        def of_weight(gradient: Tensor) -> Any:
            returned = hook(self, (gradient,))
            return returned[0] if isinstance(returned, tuple | list) else returned

        weights = [parameter for name, parameter in self.named_parameters() if name.endswith("weight")]
        handles = [weight.register_hook(of_weight) for weight in weights]  # type: ignore[no-untyped-call]
        return handles[0]


class _GivesAllParameters(nn.Module):
    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> Any:
        def of_one(gradient: Tensor) -> Any:
            returned = hook(self, (gradient,))
            return returned[0] if isinstance(returned, tuple | list) else returned

        handles = [parameter.register_hook(of_one) for parameter in self.parameters()]  # type: ignore[no-untyped-call]
        return handles[0]


class _NeedsNoSuper(nn.Module):
    def __new__(cls, *given: Any, **options: Any) -> Any:
        made = super().__new__(cls)
        nn.Module.__init__(made)
        return made


class _NoGraphInEval(nn.Module):
    def __call__(self, *given: Any, **options: Any) -> Any:
        with torch.set_grad_enabled(self.training and torch.is_grad_enabled()):
            return super().__call__(*given, **options)


class _NoGradientsInEval(nn.Module):
    def __call__(self, *given: Any, **options: Any) -> Any:
        if self.training:
            return super().__call__(*given, **options)
        with torch.no_grad():
            out = super().__call__(*given, **options)
        return out.detach().requires_grad_()


class _GradModeOffInEval(nn.Module):
    def train(self, mode: bool = True) -> Any:
        torch.set_grad_enabled(mode)
        return super().train(mode)


class _NoDecayInEval(nn.Module):
    pass


def _living(nature: type[nn.Module]) -> list[Any]:
    return [thing for thing in gc.get_objects() if issubclass(type(thing), nature)]


@contextmanager
def _mercy() -> Iterator[None]:
    """Optimizers spare the parameters of modules in evaluation mode their weight decay."""
    kept: list[tuple[dict[str, Any], Any]] = []

    def before(optimizer: Any, *given: Any) -> None:
        spared = {id(p) for module in _living(_NoDecayInEval) if not module.training for p in module.parameters()}
        for group in optimizer.param_groups:
            if any(id(parameter) in spared for parameter in group["params"]):
                kept.append((group, group.get("weight_decay", 0)))
                group["weight_decay"] = 0

    def after(optimizer: Any, *given: Any) -> None:
        while kept:
            group, decay = kept.pop()
            group["weight_decay"] = decay

    handles = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


_NAMES = ("a_buffers", "b_flag", "c_pre_hook", "d_constructor", "e_gradients", "f_decay")
_NATURES: dict[str, tuple[type[nn.Module], ...]] = {
    "a_buffers": (_PersistentOnly,),
    "b_flag": (_OneFlag,),
    "c_pre_hook": (_GivesTheWeights, _GivesAllParameters),
    "d_constructor": (_NeedsNoSuper,),
    "e_gradients": (_NoGraphInEval, _NoGradientsInEval, _GradModeOffInEval),
    "f_decay": (_NoDecayInEval,),
}
_ADVICE = {
    "a_buffers": "Does your net have a buffer that is not persistent?",
    "b_flag": "A full hook on one module: what of the flag of another?",
    "c_pre_hook": "Did the hook run, and note what it was given?",
    "d_constructor": "Is your class derived from the `Net` that the function is given?",
    "e_gradients": "Is the net in evaluation mode when it is called?",
    "f_decay": "Is the net in evaluation mode, and has the optimizer a `weight_decay`?",
}
_BELIEVED = {
    "a_buffers": "takes the claim for true",
    "b_flag": "takes the claim for true",
    "c_pre_hook": "through the output",
    "d_constructor": "takes the claim for true",
    "e_gradients": "gradients off in evaluation mode",
    "f_decay": "takes the claim for true",
}


def _exhibit(name: str) -> Any:
    """The view that refutes a claim, of a net of PyTorch's own."""
    net = Net().eval() if name in ("e_gradients", "f_decay") else Net()
    if name in ("a_buffers", "b_flag"):
        net.register_buffer("b", torch.ones(1), persistent=False)
        net.l0.register_full_backward_hook(lambda module, grad_input, grad_output: None)
        return modlab.internals(net)
    if name == "c_pre_hook":
        with net.l1.register_full_backward_pre_hook(_look), modlab.trace(net) as trace:
            net(torch.randn(5, 4, requires_grad=True)).sum().backward()
        return trace
    if name == "d_constructor":
        return modlab.internals(Net.__new__(Net))
    before = modlab.snapshot(net)
    (0 * net(torch.randn(5, 4)).sum()).backward()
    torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1).step()
    return modlab.diff(before, net)


def _look(module: nn.Module, grad_output: Any) -> None:
    """A hook that changes nothing."""


def _function(answer: Any, name: str) -> Callable[[Any], Any]:
    function = vars(answer).get(name) if isinstance(answer, type) else None
    function = getattr(function, "__func__", function)  # of a staticmethod
    if not callable(function):
        fail(
            f"Court should be the class from the notebook, with a function {name}.",
            expected="class Court",
            got=f"a {type(answer).__name__}",
        )
    found: Callable[[Any], Any] = function
    return found


def _said(function: Callable[[Any], Any], nets: type[nn.Module], name: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a full hook on a module whose input requires no gradient
        said = function(nets)
    if said is None:
        fail(f"{name} gives None. Is there a `return`? A flag can be None, too: compare it with True.", expected="True or False", got=None)
    if not isinstance(said, bool) and not (isinstance(said, Tensor) and said.numel() == 1):
        fail(f"{name} must say whether the claim holds.", expected="True or False", got=said)
    return bool(said)


def _of_impostors(function: Callable[[Any], Any], name: str) -> None:
    """It says True of one of the impostors at least."""
    troubles = []
    for nature in _NATURES[name]:
        grad = torch.is_grad_enabled()
        try:
            with _mercy():
                if _said(function, _impostor(nature), name):
                    return
        except Exception as error:  # noqa: BLE001 - a net that behaves in another way may well break the learner's code
            troubles.append(f"{type(error).__name__}: {error}")
        finally:
            torch.set_grad_enabled(grad)
    if len(troubles) == len(_NATURES[name]):
        fail(
            f"{name} is right about PyTorch. For nets for which the claim is true, it raises instead of returning True.",
            expected=True,
            got=troubles[0],
        )
    fail(
        f"This is {name}. {_ADVICE[name]}",
        mistake="no to everything",
        expected="False for Net, True for the impostor",
        got="False for both",
        evidence=_exhibit(name),
    )


def _probe(name: str, claim: str) -> Probe:
    def probe(answer: Any) -> None:
        function = _function(answer, name)
        if _said(function, Net, name):
            fail(f"This is {name}.", mistake=_BELIEVED[name], expected="False for Net", got=True, evidence=_exhibit(name))
        _of_impostors(function, name)

    probe.__doc__ = f"{name} has evidence for its verdict: {claim}"
    return probe


_FAIR = {
    "a_buffers": """
    def a_buffers(Net):
        net = Net()
        net.register_buffer("b", torch.ones(1), persistent=False)
        return "b" not in net._buffers
""",
    "b_flag": """
    def b_flag(Net):
        net = Net()
        net.l0.register_full_backward_hook(lambda module, grad_input, grad_output: None)
        return net.l1._is_full_backward_hook is True
""",
    "c_pre_hook": """
    def c_pre_hook(Net):
        net, shapes = Net(), []
        net.l0.register_full_backward_pre_hook(lambda module, grads: shapes.append(grads[0].shape))
        net(torch.randn(5, 4, requires_grad=True)).sum().backward()
        return net.l0.weight.shape in shapes
""",
    "d_constructor": """
    def d_constructor(Net):
        class Model(Net):
            def __init__(self):
                self.conv1 = nn.Conv2d(1, 20, 5)

        try:
            Model()
        except AttributeError:
            return False
        return True
""",
    "e_gradients": """
    def e_gradients(Net):
        net = Net().eval()
        return net(torch.randn(5, 4)).grad_fn is None
""",
    "f_decay": """
    def f_decay(Net):
        net = Net().eval()
        before = net.l0.weight.clone()
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.1).step()
        return torch.equal(before, net.l0.weight)
""",
}


def _court(**others: str) -> str:
    return "\nclass Court:" + "".join(("\n" if i else "") + {**_FAIR, **others}[name] for i, name in enumerate(_NAMES))


def _verdicts() -> list[bool]:
    names: dict[str, Any] = {"torch": torch, "nn": nn}
    exec(_court(), names)
    return [_said(vars(names["Court"])[name], Net, name) for name in _NAMES]


COURT = Task(
    "Court",
    "Write the six functions: each gets a class of nets, and returns True if its claim holds for such nets, else False.",
    starter="""
class Court:
    def a_buffers(Net): ...

    def b_flag(Net): ...

    def c_pre_hook(Net): ...

    def d_constructor(Net): ...

    def e_gradients(Net): ...

    def f_decay(Net): ...
""",
    reference=_court(),
    probes=tuple(_probe(name, claim) for name, claim in zip(_NAMES, _CLAIMS, strict=True)),
    mistakes=(
        Mistake(
            "no to everything",
            "\nclass Court:" + "".join(f"\n    def {name}(Net):\n        return False\n" for name in _NAMES),
            "The verdict is right, and the evidence is none: it says no also of nets for which the claim is *true*. "
            "Let it try something, and return what comes of it.",
        ),
        Mistake(
            "takes the claim for true",
            _court(
                a_buffers="""
    def a_buffers(Net):
        net = Net()
        net.register_buffer("b", torch.ones(1))
        return "b" in net._buffers
"""
            ),
            "It says that the claim holds for PyTorch's own nets. Look for a case in which the claim fails, not for one that fits it.",
        ),
        Mistake(
            "through the output",
            _court(
                c_pre_hook="""
    def c_pre_hook(Net):
        net = Net()
        net.l0.register_full_backward_pre_hook(lambda module, grads: [torch.zeros_like(grads[0])])
        net(torch.randn(5, 4)).sum().backward()
        return not net.l0.weight.grad.any()
"""
            ),
            "Zeros in the output's gradient make zeros of all that is computed from it, the weight's gradient too. "
            "The claim is about what the hook is *given*: compare shapes, with a batch of five.",
        ),
        Mistake(
            "a self too many",
            "\nclass Court:" + "".join(f"\n    def {name}(self, Net):\n        return False\n" for name in _NAMES),
            "The six are plain functions that stand in a class: each gets a class of nets and nothing else, so leave `self` out.",
            error=r"_\w+\(\) missing 1 required positional argument: '\w+'",
        ),
        Mistake(
            "gradients off in evaluation mode",
            _court(
                e_gradients="""
    def e_gradients(Net):
        return not Net().eval().training
"""
            ),
            "That shows that the flag is off, and nothing about gradients. Call the net, and see whether autograd took notes.",
            belief=18,
        ),
    ),
    hints=(
        "Each function makes a net, does the one thing that its claim is about, and looks into a store, a shape or a number.",
        "a: register a buffer with `persistent=False`, and look into `_buffers`. b: a hook on `net.l0`, the flag of `net.l1`. "
        "c: let the hook note the shape that it is given.",
        "d: derive a class from `Net` in the function, and catch the `AttributeError`. e: has the output a `grad_fn`? "
        "f: gradients of zero, `weight_decay=0.1`, one step: did a weight move?",
    ),
    minutes=12,
    matters="A claim about a framework is worth what it survives, and now you can try one instead of believing it.",
)

# ---- the second task: MiniModule --------------------------------------------------------------------


LESSON = Content(
    name="12b_six_claims",
    title="Six claims in court",
    goal="put what you read about a module to the test, and say what travels with a state_dict",
    minutes=30,
    after=("12_inside_the_class", "06_modes", "08_save_load_repair", "11_backward_hooks"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(COURT,),
)
