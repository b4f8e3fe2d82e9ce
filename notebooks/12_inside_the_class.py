"""12: inside the class: every store of `nn.Module`, and six claims put to the test."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import modlab
from modlab.lessons.checking import fail, same
from modlab.lessons.content import Content, Mistake, Probe, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Order, Several, Shape, YesNo
from modlab.lessons.note import MyLinear, Net

# ---- questions ------------------------------------------------------------------------------------


class Model(nn.Module):
    """Two convolutions, as in the notebook."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 20, 5)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 1, H, W) → (N, 20, H - 8, W - 8)."""
        return torch.relu(self.conv2(torch.relu(self.conv1(x))))


def _held(module: nn.Module) -> dict[str, Any]:
    """The stores that are not empty; `training` is a flag."""
    return {name: store for name, store in vars(module).items() if isinstance(store, dict | set) and store}


def _without_super() -> str:
    class Forgetful(nn.Module):
        def __init__(self) -> None:
            self.conv1 = nn.Conv2d(1, 20, 5)

    try:
        Forgetful()
    except AttributeError as error:
        assert "cannot assign module before Module.__init__() call" in str(error)
        return "b"
    return "d"


def _without_forward() -> str:
    class Silent(nn.Module):
        pass

    silent = Silent()
    try:
        silent(torch.ones(2))
    except NotImplementedError:
        return "b"
    return "c"


_PLACES = ("`_buffers`", "`training`", "`_parameters`", "`_forward_hooks`", "a plain attribute", "`_modules`")


def _six_places() -> list[str]:
    m = nn.Module()
    statements: tuple[Callable[[], Any], ...] = (
        partial(setattr, m, "a", nn.Parameter(torch.ones(2))),
        partial(setattr, m, "b", torch.ones(2)),
        partial(setattr, m, "c", nn.ReLU()),
        partial(m.register_buffer, "d", torch.ones(2)),
        partial(m.register_forward_hook, lambda *given: None),
        m.eval,
    )
    found = []
    for statement in statements:
        before = list(modlab.internals(m))
        statement()
        (changed,) = [row for row in modlab.internals(m) if row not in before]
        found.append(f"`{changed.path}`" if changed.path.startswith("_") or changed.path == "training" else "a plain attribute")
    return found


def _attribute_first() -> str:
    m = nn.Module()
    m.b = torch.ones(2)
    try:
        m.register_buffer("b", torch.zeros(2))
    except KeyError:
        return "c"
    return "a" if "b" in m._buffers else "b"


def _into_a_reserved_name() -> str:
    m = nn.Module()
    m.register_buffer("spare", None)
    m.spare = torch.ones(2)
    return {"_buffers": "a", "_parameters": "c"}.get(next(iter(_held(m)), ""), "b") if m._buffers.get("spare") is not None else "b"


def _flag(*register: str) -> Any:
    m = nn.Linear(2, 2)
    for name in register:
        getattr(m, name)(lambda *given: None)
    return m._is_full_backward_hook


def _flags() -> str:
    values = (_flag(), _flag("register_full_backward_hook"), _flag("register_backward_hook"))
    return {(False, True, False): "a", (None, True, False): "b", (None, True, True): "c"}[values]


def _flag_after_remove() -> str:
    m = nn.Linear(2, 2)
    m.register_full_backward_hook(lambda *given: None).remove()
    return {None: "a", True: "b", False: "c"}[m._is_full_backward_hook]


def _heard() -> int:
    heard = []

    class Listening(nn.Module):
        def __setattr__(self, name: str, value: Any) -> None:
            heard.append(name)
            super().__setattr__(name, value)

    Listening()
    return len(heard)


def _extra_argument() -> str:
    class Tagged(nn.Module):
        def __init__(self) -> None:
            super().__init__("encoder")

    try:
        Tagged()
    except TypeError:
        return "b"
    return "a"


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
        "a Model without super",
        "What happens at `Model()`?",
        Choice(
            "it works: Python calls the parent's constructor by itself",
            "it raises an error at `self.conv1 = …`",
            "it works, and the first call raises an error",
            "it works, but `parameters()` is empty",
        ),
        "b",
        "A layer goes into a store, and the stores are made by `super().__init__()`. The first assignment of a layer finds none.",
        wrong=(
            Wrong("a", "Python calls one constructor: the class's own. The parent's runs when that one calls it.", belief=4),
            Wrong("c", "It does not come so far: the assignment already asks for a store.", belief=4),
            Wrong("d", "So it is with a misspelt `_init_`. Here the constructor runs, and its first layer finds no store.", belief=4),
        ),
        proof=_without_super,
    ),
    Question(
        "numbers of Model",
        "How many numbers does it own?",
        Number(),
        10540,
        "20 × 1 × 5 × 5 and 20 biases are 520; 20 × 20 × 5 × 5 and 20 biases are 10,020.",
        wrong=(
            Wrong(10500, "These are the two weights; each layer has a bias for each of its 20 channels, too."),
            Wrong(1040, "The second layer has a 5 × 5 kernel for each pair of its 20 inputs and 20 outputs."),
            Wrong(4, "These are the tensors; the numbers in them are more."),
        ),
        proof=lambda: sum(p.numel() for p in Model().parameters()),
    ),
    Question(
        "shape out of Model",
        "And which shape comes out for an `x` of shape (1, 1, 28, 28)?",
        Shape(),
        (1, 20, 20, 20),
        "A 5 × 5 kernel without padding takes four off each side length: 28, 24, 20.",
        wrong=(
            Wrong((1, 20, 28, 28), "The kernel must fit inside the picture, and there is no padding: each layer takes four off."),
            Wrong((1, 20, 24, 24), "That is what comes out of the first layer; the second takes four off again."),
            Wrong((1, 20, 18, 18), "A 5 × 5 kernel takes off four, not five: 28 - 5 + 1 is 24."),
        ),
        proof=lambda: tuple(Model()(torch.ones(1, 1, 28, 28)).shape),
    ),
    Question(
        "stores that hold something",
        "How many of the 15 hold something in `model`?",
        Number(),
        1,
        "`_modules`, with the two layers. Their weights are in the `_parameters` of the layers, each module's own.",
        wrong=(
            Wrong(2, "`_parameters` of `model` is empty: the weights are in the layers' own stores."),
            Wrong(3, "`model` has no parameters of its own, and a convolution has no buffers."),
            Wrong(0, "The two layers must be somewhere: they are in `_modules`."),
            Wrong(4, "Four tensors, but none of them is in a store of `model` itself."),
        ),
        proof=lambda: len(_held(Model())),
    ),
    Question(
        "six places",
        "Where does each write to? Give the places in the order of the statements.",
        Order(*_PLACES),
        ("c", "e", "f", "a", "d", "b"),
        "An `nn.Parameter` and a module go into their stores; a tensor under a free name is a plain attribute; methods write elsewhere.",
        wrong=(
            Wrong("c a f e d b", "Other way round: only `register_buffer` makes a buffer. A plain tensor goes nowhere special.", belief=8),
            Wrong("e c f a d b", "It is `nn.Parameter` that makes a parameter. A plain tensor is a plain attribute.", belief=8),
            Wrong("c e f a b d", "`eval()` writes the flag `training`; a hook goes into a store of its kind."),
        ),
        proof=_six_places,
    ),
    Question(
        "an attribute first",
        '`m.b` is a plain tensor now. What does `m.register_buffer("b", torch.zeros(2))` do?',
        Choice("it makes `b` a buffer", "nothing: `b` stays a plain attribute", "it raises a `KeyError`"),
        "c",
        "The name is taken, and `register_buffer` refuses a name that is taken. `del m.b` frees it.",
        wrong=(
            Wrong("a", "It does not move what is there; and two things under one name would hide each other.", belief=10),
            Wrong("b", "That would be a trap: you would go on without a buffer. So PyTorch says it.", belief=10),
        ),
        proof=_attribute_first,
    ),
    Question(
        "into a reserved name",
        '`m.register_buffer("spare", None)`, and later `m.spare = torch.ones(2)`. Where is the tensor?',
        Choice("in `_buffers`", "it is a plain attribute", "in `_parameters`"),
        "a",
        "`None` reserved the name in `_buffers`: what is assigned to it later, a tensor or `None`, goes there.",
        wrong=(
            Wrong("b", "So it would be under a free name. This one was reserved with `None`, which is an entry in the store.", belief=12),
            Wrong("c", "Only an `nn.Parameter`, or a name reserved by `register_parameter`, leads there.", belief=12),
        ),
        belief=12,
        proof=_into_a_reserved_name,
    ),
    Question(
        "the flag and two hooks",
        "Which value has `_is_full_backward_hook` before any hook, after a full backward hook, and (on another module) after a legacy one?",
        Choice("False, True, False", "None, True, False", "None, True, True"),
        "b",
        "It tells the two kinds apart, and None says that there is no backward hook yet.",
        wrong=(
            Wrong("a", "False would say *legacy*. Before there is any hook, the question has no answer: None."),
            Wrong("c", "The legacy hook gives other gradients to its function, and this flag is how the module knows which kind it has."),
        ),
        proof=_flags,
    ),
    Question(
        "the flag after remove",
        "The full hook is removed by its handle. What is the flag now?",
        Choice("None", "True", "False"),
        "b",
        "A handle takes its hook out of the store, and does nothing else. The flag stays.",
        wrong=(
            Wrong("a", "The handle knows the store of its hook, and not the flag beside it."),
            Wrong("c", "Nobody writes to it: the handle only takes the hook out of the store."),
        ),
        proof=_flag_after_remove,
    ),
    Question(
        "what setattr hears",
        "How many of the 17 assignments does `Listening.__setattr__` hear during `Listening()`?",
        Number(),
        0,
        "`Module.__init__` goes round: it calls the `__setattr__` of `object`. The router needs the very stores that are being made.",
        wrong=(
            Wrong(17, "So it would be if the constructor wrote `self._parameters = {}`. It goes round: it calls the one of `object`."),
            Wrong(15, "The two flags and the 15 stores are treated alike: all of them go through the `__setattr__` of `object`."),
            Wrong(2, "Not even the two flags: all of them go through the `__setattr__` of `object`."),
        ),
        proof=_heard,
    ),
    Question(
        "an extra argument",
        'A constructor calls `super().__init__("encoder")`. What becomes of the argument?',
        Choice("it is ignored", "it raises a `TypeError`", "it is kept as the module's name"),
        "b",
        "`nn.Module` takes no arguments. Only where `call_super_init` is True do they go on, to the next class in line.",
        wrong=(
            Wrong("a", "An ignored argument would hide a mistake, so it is refused."),
            Wrong("c", "A module has no name of its own: its parent has one for it."),
        ),
        proof=_extra_argument,
    ),
    Question(
        "versions in a copy",
        "Does `{key: value for key, value in state.items()}` still know the versions?",
        YesNo(),
        False,
        "They are an attribute of the `state_dict`, `_metadata`, and no entry. A new dict has the entries alone.",
        wrong=(Wrong(True, "They are no entries: they hang on the object, and the comprehension makes another one."),),
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
        "For which of these does the layer come out otherwise than without the hook?",
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
        "a class without forward",
        "A class derives from `nn.Module` and has no `forward`. When does that raise an error?",
        Choice("when an object of it is made", "when it is called", "never: the call gives its input back"),
        "b",
        "A module need not compute: a `ModuleList` does not. The `NotImplementedError` comes when somebody calls it.",
        wrong=(
            Wrong("a", "Containers as `nn.ModuleList` have none either, and can be made."),
            Wrong("c", "That is `nn.Identity`. `nn.Module`'s own `forward` raises an error."),
        ),
        proof=_without_forward,
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

REASONS = (
    Question(
        "both kinds in one store",
        "Why does `_buffers` hold a buffer that is not persistent, too?",
        Choice(
            "it is saved, but not loaded",
            "`to()` and `buffers()` go through `_buffers`: only `state_dict()` asks for the set",
            "so that it gets a gradient",
        ),
        "b",
        "It is to follow the model in everything but the file, so it is in the store like any other buffer.",
        wrong=(
            Wrong("a", "It is not saved either: its name is in `_non_persistent_buffers_set`.", belief=11),
            Wrong("c", "No buffer is trained; for that there are parameters."),
        ),
    ),
)

RECALLS = (
    Question(
        "what state_dict reads",
        "Which of these does `state_dict()` read?",
        Several("`_parameters`", "`_buffers`", "`_non_persistent_buffers_set`", "`_forward_hooks`", "`training`"),
        ("a", "b", "c"),
        "The two stores of tensors, and the set of names to leave out. Hooks and the mode are not part of the state.",
        wrong=(
            Wrong("a b", "And the set: how else would it know which buffers to leave out?", belief=11),
            Wrong("a", "Buffers are saved too, if they are persistent.", belief=11),
            Wrong("a b c e", "The mode is not saved: a new model is in training mode, whatever the saved one was in."),
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
    Question(
        "which call reads the hooks",
        "From lesson 10: which call reads `_forward_hooks`?",
        Choice("`m(x)`", "`m.forward(x)`", "both"),
        "a",
        "`m(x)` is `__call__`: it looks into the stores of hooks, and runs `forward` between them.",
        wrong=(
            Wrong("b", "`forward` is the computation alone: it knows nothing of hooks.", belief=33),
            Wrong("c", "`m.forward(x)` goes past the stores of hooks.", belief=33),
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
    "a_buffers": "Has your net a buffer that is not persistent?",
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
            f"Court is to be the class from the notebook, with a function {name}.", expected="class Court", got=f"a {type(answer).__name__}"
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
        fail(f"{name} is to say whether the claim holds.", expected="True or False", got=said)
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
)

# ---- the second task: MiniModule --------------------------------------------------------------------


def _nets(base: Any) -> dict[str, Any]:
    """Five nets, built on nn.Module or on the learner's own."""

    class Affine(base):  # type: ignore[misc]
        def __init__(self, rows: int, columns: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(rows, columns))
            self.bias = nn.Parameter(torch.randn(columns))
            self.power = 2
            self.shift = torch.ones(columns)  # a plain tensor: neither learnt nor saved

        def forward(self, x: Tensor) -> Any:
            return (x @ self.weight + self.bias + self.shift) ** self.power

    class Two(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.zulu = Affine(3, 3)
            self.alpha = Affine(3, 3)

        def forward(self, x: Tensor) -> Any:
            return self.alpha(self.zulu(x))

    class Mixed(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = Affine(3, 3)
            self.scale = nn.Parameter(torch.randn(3))

        def forward(self, x: Tensor) -> Any:
            return self.scale * self.layer(x)

    class Deep(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = Mixed()
            self.outer = Two()

        def forward(self, x: Tensor) -> Any:
            return self.outer(self.inner(x))

    class Tied(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = Affine(3, 3)
            self.second = Affine(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x: Tensor) -> Any:
            return self.second(self.first(x))

    made = {
        "a layer": lambda: Affine(3, 3),
        "two layers": Two,
        "a layer and a parameter": Mixed,
        "three levels": Deep,
        "a shared weight": Tied,
    }
    nets = {}
    for name, make in made.items():
        torch.manual_seed(0)
        nets[name] = make()
    return nets


def _class(answer: Any) -> None:
    if not isinstance(answer, type):
        fail("Give the class MiniModule itself.", expected="class MiniModule", got=f"a {type(answer).__name__}")
    if issubclass(answer, nn.Module):
        fail(mistake="derives from nn.Module", expected="class MiniModule", got=f"class {answer.__name__}(nn.Module)")


def _own(answer: Any) -> dict[str, Any]:
    _class(answer)
    return _nets(answer)


def _apart(answer: Any) -> None:
    """each module has stores of its own"""
    _class(answer)
    one, other = answer(), answer()
    one.extra = nn.Parameter(torch.ones(1))
    found = other.named_parameters()
    if found is not None and list(found):
        fail(mistake="one store for all", expected="no parameters in a new module", got="those of the other one")


def _registered(answer: Any) -> None:
    """named_parameters() gives the names, in nn.Module's order, each tensor once"""
    mine, theirs = _own(answer), _nets(nn.Module)
    for name, net in mine.items():
        pairs = net.named_parameters()
        if pairs is None:
            fail("`named_parameters()` gives None.", expected=[n for n, _ in theirs[name].named_parameters()], got=None)
        pairs = [*pairs.items()] if isinstance(pairs, dict) else [*pairs]
        got, expected = [pair[0] for pair in pairs], [n for n, _ in theirs[name].named_parameters()]
        details = {"expected": expected, "got": got, "evidence": modlab.tree(theirs[name])}
        if got != expected:
            fail(f"This is the net with {name}.", mistake=_named_wrongly(got, expected, theirs[name]), **details)
        if not all(same(pair[1], parameter) for pair, parameter in zip(pairs, theirs[name].parameters(), strict=True)):
            fail(f"Of the net with {name}, a name leads to another tensor.", **details)


def _named_wrongly(got: list[str], expected: list[str], theirs: nn.Module) -> str:
    if any(name.rpartition(".")[2] == "shift" for name in got):
        return "every tensor a parameter"
    if sorted(got) == sorted(expected):
        return "order lost"
    if sorted(got) == sorted(n for n, _ in theirs.named_parameters(remove_duplicate=False)):
        return "a shared tensor twice"
    if sorted(got) == sorted(name for name in expected if "." not in name):
        return "no recursion"
    if {name.rpartition(".")[2] for name in expected} >= set(got):
        return "the child's prefix is missing"
    return ""


def _state(answer: Any) -> None:
    """state_dict() has an entry for each path, with the numbers"""
    mine, theirs = _own(answer), _nets(nn.Module)
    for name, net in mine.items():
        state, expected = net.state_dict(), theirs[name].state_dict()
        if not hasattr(state, "keys"):
            fail("`state_dict()` is to give a dict.", expected=[*expected], got=state)
        details = {"expected": [*expected], "got": [*state], "evidence": modlab.tree(theirs[name])}
        if [*state] == [n for n, _ in theirs[name].named_parameters()] != [*expected]:
            fail(f"This is the net with {name}.", mistake="a path is missing", **details)
        if [*state] != [*expected]:
            fail(f"The keys of the net with {name} are others, or in another order.", **details)
        if not all(same(state[key], expected[key]) for key in expected):
            fail(f"Of the net with {name}, a key leads to other numbers.", **details)


def _calls(answer: Any) -> None:
    """calling a net computes what nn.Module's net computes"""
    mine, theirs, x = _own(answer), _nets(nn.Module), torch.randn(4, 3)
    for name, net in mine.items():
        got, expected = net(x), theirs[name](x)
        if got is None:
            fail("`__call__` gives nothing back.", expected=expected[0], got=None)
        if not same(got, expected):
            fail(f"The net with {name} computes something else.", expected=expected[0], got=got)

    class Sum(answer):  # type: ignore[misc]
        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            return one + other

    try:
        got = Sum()(x, x)
    except TypeError as error:
        fail("A net with two inputs cannot be called: `__call__` is to pass on all that it gets.", expected="two inputs", got=str(error))
    if not same(got, x + x):
        fail("A net with two inputs computes something else.", expected=(x + x)[0], got=got)


def _exchanges(answer: Any) -> None:
    """a new parameter under an old name takes its place"""
    net = _own(answer)["a layer"]
    net.weight = nn.Parameter(torch.zeros(3, 3))
    if not same(dict(net.named_parameters())["weight"], torch.zeros(3, 3)) or not same(net.weight, torch.zeros(3, 3)):
        fail("A new parameter under an old name: the old one is still there.", expected="the new one", got="the old one")


_INIT = """
class MiniModule:
    def __init__(self):
        self.__dict__["_parameters"] = {}
        self.__dict__["_modules"] = {}

    def __setattr__(self, name, value):
        if isinstance(value, nn.Parameter):
            self._parameters[name] = value
        elif isinstance(value, MiniModule):
            self._modules[name] = value
        self.__dict__[name] = value
"""
_PATHS = """
    def paths(self, prefix=""):
        for name, parameter in self._parameters.items():
            yield prefix + name, parameter
        for name, module in self._modules.items():
            yield from module.paths(prefix + name + ".")
"""
_NAMED = """
    def named_parameters(self):
        seen = set()
        for name, parameter in self.paths():
            if parameter not in seen:
                seen.add(parameter)
                yield name, parameter
"""
_STATE = """
    def state_dict(self):
        return {name: parameter.detach() for name, parameter in self.paths()}
"""
_CALL = """
    def __call__(self, *inputs):
        return self.forward(*inputs)
"""

MINI = Task(
    "MiniModule",
    "Write `MiniModule`, in at most forty lines and without `nn.Module`: five nets that derive from it "
    "shall have the same names, the same state and the same output as those that derive from `nn.Module`.",
    starter="""
class MiniModule:
    def __init__(self):
        ...

    def __setattr__(self, name, value):
        ...

    def named_parameters(self):
        ...

    def state_dict(self):
        ...

    def __call__(self, *inputs):
        ...
""",
    reference=_INIT + _PATHS + _NAMED + _STATE + _CALL,
    probes=(_apart, _registered, _state, _calls, _exchanges),
    mistakes=(
        Mistake(
            "no recursion",
            _INIT
            + """
    def named_parameters(self):
        return self._parameters.items()
"""
            + _PATHS
            + _STATE
            + _CALL,
            "These are the module's own parameters. Those of its children are in the children's stores: ask each child the same question.",
            belief=28,
        ),
        Mistake(
            "order lost",
            _INIT
            + """
    def paths(self, prefix=""):
        for name, value in self.__dict__.items():
            if isinstance(value, nn.Parameter):
                yield prefix + name, value
            elif isinstance(value, MiniModule):
                yield from value.paths(prefix + name + ".")
"""
            + _NAMED
            + _STATE
            + _CALL,
            "All names are there, in another order: a module gives its own parameters first, then those of its children, "
            "each in the order of assignment.",
        ),
        Mistake(
            "a shared tensor twice",
            _INIT
            + _PATHS
            + """
    def named_parameters(self):
        return list(self.paths())
"""
            + _STATE
            + _CALL,
            "One tensor under two paths came out twice; an optimizer would move it twice. `named_parameters()` gives it once, "
            "under its first name.",
            belief=29,
        ),
        Mistake(
            "the child's prefix is missing",
            _INIT + _PATHS.replace('prefix + name + "."', '""') + _NAMED + _STATE + _CALL,
            "A child's parameters are named by the path that leads to them: `zulu.weight`, not `weight`.",
        ),
        Mistake(
            "a path is missing",
            _INIT
            + _PATHS
            + _NAMED
            + """
    def state_dict(self):
        return {name: parameter.detach() for name, parameter in self.named_parameters()}
"""
            + _CALL,
            "`state_dict()` has an entry for each path, so a shared tensor stands in it twice; `named_parameters()` gives it once.",
            belief=29,
        ),
        Mistake(
            "one store for all",
            (_INIT + _PATHS + _NAMED + _STATE + _CALL).replace(
                """    def __init__(self):
        self.__dict__["_parameters"] = {}
        self.__dict__["_modules"] = {}
""",
                """    _parameters = {}
    _modules = {}
""",
            ),
            "A store on the class is one store for all objects of it. `__init__` makes new ones for each object.",
        ),
        Mistake(
            "every tensor a parameter",
            (_INIT + _PATHS + _NAMED + _STATE + _CALL).replace("isinstance(value, nn.Parameter)", "isinstance(value, torch.Tensor)"),
            "A plain tensor came out as a parameter. Only an `nn.Parameter` is one: a tensor under a free name is a plain attribute.",
            belief=8,
        ),
        Mistake(
            "asks by equality",
            (_INIT + _PATHS + _NAMED + _STATE + _CALL).replace("seen = set()", "seen = []").replace("seen.add(", "seen.append("),
            "`in` asks a list by `==`, and of two tensors that gives a tensor. Ask for the object: by `is`, with `id(...)`, or in a set.",
            belief=29,
            error="Boolean value of Tensor with more than one value is ambiguous",
        ),
        Mistake(
            "derives from nn.Module",
            "\nclass MiniModule(nn.Module):\n    pass\n",
            "That is `nn.Module` again. Do without it: a plain class.",
        ),
        Mistake(
            "asks the router for its own stores",
            (_INIT + _PATHS + _NAMED + _STATE + _CALL).replace(
                "        self.__dict__[name] = value\n",
                "        else:\n            self.__dict__[name] = value\n",
            ),
            "What went into a store cannot be read as an attribute any more. Keep it in `__dict__` too, or write a `__getattr__` "
            "that looks into the stores.",
            error=r"AttributeError: '\w+' object has no attribute '(weight|bias|zulu|alpha|layer|first|second)'",
        ),
    ),
    hints=(
        "`__init__` makes two dicts, one for parameters, one for modules. `__setattr__` looks at the value, and puts it into one of them.",
        "A helper that gives all paths serves both lists: own parameters first, then, for each child, the child's paths behind `name.`.",
        "`named_parameters()` leaves out a tensor that it has given before; `state_dict()` does not. "
        '`self.__dict__["x"] = …` goes round your own `__setattr__`.',
    ),
    minutes=15,
)

LESSON = Content(
    name="12_inside_the_class",
    title="Inside the class: every store, and six claims in court",
    goal="open the stores of any module, and put what you read about them to the test",
    minutes=50,
    after=("02_registration", "06_modes", "10_forward_hooks", "11_backward_hooks"),
    predictions=PREDICTIONS,
    reasons=REASONS,
    recalls=RECALLS,
    tasks=(COURT, MINI),
)
