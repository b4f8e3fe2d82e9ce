"""02: registration, or what an assignment to `self` does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.lessons import initialization
from modlab.lessons.checking import fail, require_equal, require_module_class
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.drawing import Arrow, Drawing, Vertex
from modlab.lessons.kinds import Choice, Number, Several
from modlab.lessons.note import DynamicNet

# ---- questions ------------------------------------------------------------------------------------


class Box(nn.Module):
    """Six attributes; as in the notebook."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.offset = torch.zeros(2)
        self.layer = nn.Linear(2, 2)
        self.layers = [nn.Linear(2, 2)]
        self.power = 3
        self.register_buffer("mean", torch.zeros(2))


class Typo(nn.Module):
    """Its constructor is not called ``__init__``."""

    def _init_(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)


def _saved() -> str:
    saved = {key.partition(".")[0] for key in Box().state_dict()}
    names = ("weight", "offset", "layer", "layers", "power", "mean")
    return "".join(letter for letter, name in zip("abcdef", names, strict=True) if name in saved)


def _accepted(assign: Callable[[], Any], error: type[Exception]) -> bool:
    try:
        assign()
    except error:
        return False
    return True


def _before_super() -> list[str]:
    values = {"a": nn.Linear(2, 2), "b": nn.Parameter(torch.ones(2)), "c": torch.ones(2), "d": 3}

    class Late(nn.Module):
        def __init__(self) -> None:
            pass

    return [letter for letter, value in values.items() if _accepted(partial(setattr, Late(), "x", value), AttributeError)]


def _keys() -> list[str]:
    keys = {"a": "relu", "b": "type", "c": "max pool", "d": "a.b", "e": "forward"}
    return [letter for letter, key in keys.items() if _accepted(partial(nn.ModuleDict, {key: nn.ReLU()}), KeyError)]


def _in_a_list() -> int:
    net = DynamicNet(3)
    layers = list(net.linears)
    del net.linears
    net.linears = layers  # type: ignore[assignment]
    return len(list(net.parameters()))


PREDICTIONS = (
    Question(
        "saved",
        "Which of the six will `box.state_dict()` save?",
        Several("`weight`", "`offset`", "`layer`", "`layers`", "`power`", "`mean`"),
        ("a", "c", "f"),
        "A parameter, a module and a registered buffer. The plain tensor, the list and the number are attributes like any other's.",
        wrong=(
            Wrong("a c", "`mean` is not learned, but it is registered as a buffer, and buffers are saved too.", belief=11),
            Wrong("a b c f", "`offset` is a tensor, but nobody registered it: a plain tensor is neither moved nor saved.", belief=8),
            Wrong("a c d f", "`layers` is a list, and PyTorch does not look into lists.", belief=1),
            Wrong("a b c d f", "PyTorch takes only what is registered: not a plain tensor, and not what is in a list.", belief=1),
            Wrong("a b c d e f", "A Python object keeps all six, but PyTorch saves only what is registered.", belief=8),
        ),
        proof=_saved,
    ),
    Question(
        "a tensor onto a parameter",
        "`weight` is a parameter already. What does `box.weight = torch.ones(2)` do?",
        Choice(
            "the parameter gets the new numbers",
            "it raises a `TypeError`",
            "`weight` becomes a plain tensor, and is no longer a parameter",
        ),
        "b",
        "The name belongs to a parameter, and such a name takes an `nn.Parameter` or `None`, nothing else.",
        wrong=(
            Wrong("a", "An assignment in Python never writes into the old object. Numbers are changed in place: `weight.copy_(...)`."),
            Wrong("c", "So it would be in any other class. A module guards the names of its parameters.", belief=8),
        ),
        proof=lambda: "a c" if _accepted(lambda: setattr(Box(), "weight", torch.ones(2)), TypeError) else "b",
    ),
    Question(
        "before super",
        "Which of these can be assigned to `late.x`?",
        Several("a module", "an `nn.Parameter`", "a plain tensor", "a number"),
        ("c", "d"),
        "A module and a parameter need a store, and `super().__init__()` makes the stores. The others are plain attributes.",
        wrong=(
            Wrong([], "A tensor and a number need no store of PyTorch's: they go where all attributes of Python objects go.", belief=4),
            Wrong("d", "A plain tensor is not registered anywhere, so it needs no store: it can be assigned as well.", belief=4),
            Wrong("a b c d", "Modules and parameters go into stores, which `super().__init__()` has not made.", belief=4),
            Wrong("a c d", "A module needs a store as well as a parameter does.", belief=4),
            Wrong("b c d", "A parameter needs a store as well as a module does.", belief=4),
        ),
        belief=4,
        proof=_before_super,
    ),
    Question(
        "tensors of Typo",
        "How many tensors does `Typo().parameters()` give?",
        Number(),
        0,
        "Python calls `__init__`, with two underscores on each side. `_init_` is a method that nobody calls.",
        wrong=(
            Wrong(2, "A linear layer has two, but the line that makes it never runs: count the underscores.", belief=2),
            Wrong(20, "These would be the numbers in the layer, if it were made: count the underscores.", belief=2),
        ),
        belief=2,
        proof=lambda: len(list(Typo().parameters())),
    ),
    Question(
        "tensors with a list",
        "How many tensors does `net.parameters()` give?",
        Number(),
        2,
        "The weight and the bias of `final`. The list is a plain attribute: PyTorch does not look into it.",
        wrong=(
            Wrong(8, "There are eight, but six are in layers that only the list knows; and a list is not registered.", belief=1),
            Wrong(4, "Four layers own tensors, two each. Three of the four are in a list, which is not registered.", belief=1),
            Wrong(6, "The three in the list have six, and just these are not registered; `final` has the other two.", belief=1),
            Wrong(5, "The *numbers* in `final` are five; the tensors are two."),
        ),
        belief=1,
        proof=_in_a_list,
    ),
    Question(
        "keys of a ModuleDict",
        "Which of these keys does `nn.ModuleDict` accept?",
        Several('`"relu"`', '`"type"`', '`"max pool"`', '`"a.b"`', '`"forward"`'),
        ("a", "c"),
        "A key becomes the name of a child: it must not be a name that the class has already, and must not hold a dot. A space is allowed.",
        wrong=(
            Wrong(
                "a b c d e",
                "A plain dict would take all. Here a key becomes the name of a child, beside the methods `type` and `forward`.",
                belief=30,
            ),
            Wrong("a b c e", "The dot is out; but `type` and `forward` are, too: each module has methods of these names.", belief=30),
            Wrong("a b c", "`forward` is out, and so is `type`: each module has a method of that name.", belief=30),
            Wrong("a b", "`type` is a method of each module, so it is taken; and a space in a name does no harm.", belief=30),
            Wrong("a", "A space looks odd, but only the dot separates the names of a path.", belief=30),
        ),
        belief=30,
        proof=_keys,
    ),
    Question(
        "numbers of three times one",
        "How many numbers does `same` own?",
        Number(),
        20,
        "The list names one layer three times. A shared tensor is counted once: 16 in the weight, 4 in the bias.",
        wrong=(
            Wrong(60, "`[...] * 3` copies nothing: it is one layer under three names.", belief=29),
            Wrong(48, "It is one layer, not three; and the bias counts as well.", belief=29),
            Wrong(16, "That is the weight; the bias has four more."),
        ),
        belief=29,
        proof=lambda: sum(p.numel() for p in nn.Sequential(*[nn.Linear(4, 4)] * 3).parameters()),
    ),
)

RECALLS = (
    Question(
        "which container",
        "A model keeps one head for each task, and picks one by name in `forward`. Which container registers them all?",
        Choice("`dict`", "`nn.ModuleDict`", "`nn.ParameterDict`", "`nn.Sequential`"),
        "b",
        "A `ModuleDict` registers its modules, and gives them back by name.",
        wrong=(
            Wrong("a", "It gives them back by name, but registers nothing.", belief=1),
            Wrong("c", "It is for single parameters, and the heads are modules."),
            Wrong("d", "It registers them, but runs all of them, one after the other."),
        ),
    ),
    Question(
        "empty parameter list",
        "An optimizer complains of an empty parameter list. Which of these is *not* the cause?",
        Choice(
            "the constructor is called `_init_`",
            "the layers are in a plain dict",
            "the layers are made in `forward`",
            "the layers are in an `nn.ModuleDict`",
        ),
        "d",
        "What is in a `ModuleDict` is registered, and the optimizer gets it.",
        wrong=(
            Wrong("a", "Then no line of it runs, and nothing is registered.", belief=2),
            Wrong("b", "A plain dict is like a plain list: PyTorch does not look inside.", belief=1),
            Wrong("c", "Then there is no layer yet when the optimizer asks, and none that stays.", belief=3),
        ),
        belief=2,
    ),
    Question(
        "which call",
        "From lesson 01: a forward hook is registered on `m`. Which call runs it?",
        Choice("`m(x)`", "`m.forward(x)`", "both"),
        "a",
        "The call runs `forward` and the hooks; `m.forward(x)` goes past the hooks.",
        wrong=(
            Wrong("b", "It is the other way round: the hooks belong to the call, not to `forward`.", belief=33),
            Wrong("c", "`m.forward(x)` computes the same, but goes past the hooks.", belief=33),
        ),
    ),
)

# ---- tasks ----------------------------------------------------------------------------------------

_GIVEN = "from modlab.lessons.note import MyLinear\n"


def _names(layers: int) -> list[str]:
    return [f"linears.{i}.{what}" for i in range(layers) for what in ("weight", "bias")] + ["final.weight", "final.bias"]


def _made(answer: Any, layers: int = 3) -> nn.Module:
    require_module_class(answer, "DynamicNet")
    if answer.__init__ is nn.Module.__init__:
        fail(mistake="no constructor")
    return initialization.made(answer, layers)


def _called_outside(net: nn.Module) -> list[nn.Module]:
    """The modules with parameters that a call runs, and that were not registered before it."""
    owned = {id(module) for module in net.modules()}
    called: list[nn.Module] = []
    handle = nn.modules.module.register_module_forward_pre_hook(lambda module, inputs: called.append(module))
    try:
        net(torch.randn(4), "relu")
    finally:
        handle.remove()
    return [module for module in called if id(module) not in owned and next(module.parameters(), None) is not None]


def _runs(answer: Any) -> None:
    """it runs, with either activation"""
    net = _made(answer)
    for act in ("relu", "lrelu"):
        got = net(torch.randn(4), act)
        if not isinstance(got, Tensor) or tuple(got.shape) != (1,):
            fail(f"Called with four numbers and {act!r}, it should give one number.", expected="a tensor of shape (1,)", got=got)


def _registers(answer: Any) -> None:
    """its eight parameters are registered, under the names of the task"""
    net = _made(answer)
    tree, wanted = modlab.tree(net), _names(3)
    names = [name for name, _ in net.named_parameters()]
    paths = [name for name, _ in net.named_parameters(remove_duplicate=False)]
    if len(names) < len(paths) and sorted(paths) == sorted(wanted):
        fail(mistake="the same layer three times", expected=wanted, got=names, evidence=tree)
    owned = {id(parameter) for parameter in net.parameters()}
    first, second = _called_outside(net), _called_outside(net)
    if first:
        if any(id(parameter) in owned for module in first for parameter in module.parameters()):
            fail(mistake="parameters without their layers", expected=wanted, got=names, evidence=tree)
        if not {id(module) for module in first} & {id(module) for module in second}:
            fail(mistake="layers made in forward", expected=wanted, got=names, evidence=modlab.trace(net)(torch.randn(4), "relu"))
        fail(mistake="still in a plain container", expected=wanted, got=names, evidence=tree)
    require_equal(sorted(names), sorted(wanted), "It should own these parameters, under these names.", evidence=tree)


def _any_number(answer: Any) -> None:
    """it has as many layers as it is asked for"""
    for layers in (1, 5, 0):
        names = sorted(name for name, _ in _made(answer, layers).named_parameters())
        if names == sorted(_names(3)):
            fail(mistake="always three layers", expected=f"{layers} layers for DynamicNet({layers})", got="3 layers")
        require_equal(names, sorted(_names(layers)), f"DynamicNet({layers}) should have as many layers, and the last one.")


def _after_all(state: dict[str, Tensor], x: Tensor, act: Callable[[Tensor], Tensor], each: bool) -> Tensor:
    for i in range(3):
        x = x @ state[f"linears.{i}.weight"] + state[f"linears.{i}.bias"]
        x = act(x) if each else x
    return (x if each else act(x)) @ state["final.weight"] + state["final.bias"]


def _computes(answer: Any) -> None:
    """it computes what it did before: the layers, the activation once, the last layer"""
    net = _made(answer)
    state = net.state_dict()
    for name, act in (("relu", F.relu), ("lrelu", F.leaky_relu)):
        x = torch.randn(6, 4)
        got, wanted = net(x, name), _after_all(state, x, act, each=False)
        if torch.allclose(got, _after_all(state, x, act, each=True), atol=1e-5) and not torch.allclose(got, wanted, atol=1e-5):
            fail(mistake="the activation after every layer", expected=wanted[0], got=got[0])
        require_equal(got, wanted, f"With {name!r} it gives something other than before.", tolerance=1e-4)


def _reached(answer: Any) -> None:
    """to() and state_dict() reach all of it"""
    net, other, x = _made(answer), _made(answer), torch.randn(4)
    other.load_state_dict(net.state_dict())
    require_equal(other(x, "relu"), net(x, "relu"), "A copy that loads its state_dict gives something else.", evidence=modlab.state(net))
    got = net.to(torch.float64)(x.double(), "relu")
    if got.dtype != torch.float64:
        fail("After to(torch.float64) it still computes in another precision.", expected="torch.float64", got=str(got.dtype))


def _trained(answer: Any) -> None:
    """each of its parameters is trained, and gets a gradient"""
    net = _made(answer)
    frozen = [name for name, parameter in net.named_parameters() if not parameter.requires_grad]
    if frozen:
        fail(mistake="frozen layers", expected=[], got=frozen, evidence=modlab.state(net))
    output = net(torch.randn(6, 4), "lrelu")
    if output.grad_fn is not None:
        output.sum().backward()
    without = [name for name, parameter in net.named_parameters() if parameter.grad is None]
    if without:
        fail("These get no gradient.", mistake="cut off from autograd", expected=[], got=without, evidence=modlab.state(net))


def _net(constructor: str, forward: str = "", *, parameters: str = "self, num_layers", name: str = "__init__") -> str:
    """The source of a whole `DynamicNet`."""
    lines = "\n".join(f"        {line}" for line in constructor.strip().splitlines())
    body = forward or "for linear in self.linears:\n    x = linear(x)\nx = self.activations[act](x)\nreturn self.final(x)"
    body = "\n".join(f"        {line}" for line in body.splitlines())
    return f"""
class DynamicNet(nn.Module):
    def {name}({parameters}):
{lines}

    def forward(self, x, act):
{body}
"""


_REST = """self.activations = nn.ModuleDict({"relu": nn.ReLU(), "lrelu": nn.LeakyReLU()})
self.final = MyLinear(4, 1)"""
_LIST = "[MyLinear(4, 4) for _ in range(num_layers)]"
_GOOD = f"super().__init__()\nself.linears = nn.ModuleList({_LIST})\n{_REST}"

DYNAMIC_NET = Task(
    "DynamicNet",
    "Repair `DynamicNet`, so that `DynamicNet(3)` has eight parameters, from `linears.0.weight` to `final.bias`.",
    starter=_net(f"super().__init__()\nself.linears = {_LIST}\n{_REST}"),
    reference=_net(_GOOD),
    probes=(_runs, _registers, _any_number, _computes, _trained, _reached),
    given=_GIVEN,
    mistakes=(
        Mistake(
            "the same layer three times",
            _net(f"super().__init__()\nself.linears = nn.ModuleList([MyLinear(4, 4)] * num_layers)\n{_REST}"),
            "`[layer] * 3` names one layer three times: there are three paths, and one weight. Make a new layer for each place.",
            belief=29,
        ),
        Mistake(
            "still in a plain container",
            _net(f"super().__init__()\nself.linears = tuple({_LIST})\n{_REST}"),
            "The layers run, but they are not registered: lists, tuples and dicts are plain attributes. "
            "Which container is a module itself?",
            belief=1,
        ),
        Mistake(
            "parameters without their layers",
            _net(
                f"super().__init__()\nself.layers = {_LIST}\n"
                f"self.linears = nn.ParameterList([p for layer in self.layers for p in layer.parameters()])\n{_REST}",
                "for linear in self.layers:\n    x = linear(x)\nx = self.activations[act](x)\nreturn self.final(x)",
            ),
            "The tensors are registered, but their layers are not: the names are numbers, and no hook, `eval()` or `apply()` reaches "
            "the layers. Register the modules; their parameters come with them.",
            belief=1,
        ),
        Mistake(
            "layers made in forward",
            _net(
                f"super().__init__()\nself.num_layers = num_layers\n{_REST}",
                "for _ in range(self.num_layers):\n    x = MyLinear(4, 4)(x)\nx = self.activations[act](x)\nreturn self.final(x)",
            ),
            "Each call makes new layers with new random numbers, and forgets them. What should be learned is made in the constructor.",
            belief=3,
        ),
        *initialization.mistakes(
            late=_net(f"self.linears = nn.ModuleList({_LIST})\n{_REST}\nsuper().__init__()"),
            never=_net(f"self.linears = nn.ModuleList({_LIST})\n{_REST}"),
        ),
        Mistake(
            "attribute misspelt",
            _net(f"super().__init__()\nself_linears = nn.ModuleList({_LIST})\n{_REST}"),
            "`forward` asks for a name that was never assigned: compare the two letter by letter. `self_linears = ...` makes a local "
            "variable, which ends with the constructor; `self.linears = ...` makes an attribute.",
            belief=2,
            error=r"AttributeError: '\w+' object has no attribute",
        ),
        Mistake(
            "no constructor",
            _net(_GOOD, name="_init_"),
            "Python calls `__init__`, with two underscores on each side. A method of any other name is never called by itself.",
            belief=2,
        ),
        Mistake(
            "frozen layers",
            _net(f"{_GOOD}\nself.linears.requires_grad_(False)"),
            "They are registered, and switched off: a parameter with `requires_grad=False` gets no gradient, so it never learns.",
        ),
        Mistake(
            "cut off from autograd",
            _net(_GOOD, "for linear in self.linears:\n    x = linear(x).detach()\nx = self.activations[act](x)\nreturn self.final(x)"),
            "The numbers are right, but `detach()`, `.data` and `no_grad` hide from autograd how they came about.",
        ),
        Mistake(
            "always three layers",
            _net(f"super().__init__()\nself.linears = nn.ModuleList([MyLinear(4, 4) for _ in range(3)])\n{_REST}"),
            "It has three layers whatever the constructor is told.",
        ),
        Mistake(
            "the activation after every layer",
            _net(_GOOD, "for linear in self.linears:\n    x = self.activations[act](linear(x))\nreturn self.final(x)"),
            "It computes something else than before: here the activation comes once, after the last of `linears`. "
            "(One edition of PyTorch's note does it your way; lesson 03 looks at both.)",
        ),
        Mistake(
            "a container does not run",
            _net(_GOOD, "x = self.linears(x)\nx = self.activations[act](x)\nreturn self.final(x)"),
            "An `nn.ModuleList` holds modules and runs none of them: it has no `forward`. Go through it in a loop.",
            error=r"NotImplementedError: Module \[Module(List|Dict)\] is missing",
        ),
    ),
    hints=(
        "Look at the tree of your net: what stands in a dashed row?",
        "PyTorch sees what is a parameter or a module itself. Is there a list that is a module?",
        "`nn.ModuleList(...)` around the list of layers is enough; the loop in `forward` stays.",
    ),
    minutes=4,
    matters="A layer that is not registered is not trained, not saved and not moved, and nothing warns you.",
)


def _two() -> tuple[nn.Module, nn.Module]:
    return nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 2), nn.Tanh())


def _parallel(answer: Any) -> tuple[nn.Module, nn.Module, nn.Module]:
    require_module_class(answer, "Parallel")
    first, second = _two()
    return initialization.made(answer, first, second), first, second


def _holds(answer: Any) -> None:
    """both modules are registered, themselves"""
    both, first, second = _parallel(answer)
    owned = {id(module) for module in both.modules()}
    missing = [name for name, module in (("first", first), ("second", second)) if id(module) not in owned]
    if not missing:
        return
    got = [name for name, _ in both.named_parameters()]
    if len(got) == 4:
        fail("It owns copies of the two modules, not the modules that it was given.", evidence=modlab.tree(both))
    plain = [
        [*value.values()] if isinstance(value, dict) else [*value]
        for value in vars(both).values()
        if isinstance(value, (tuple, list, dict, set))
    ]
    kept = any(module is first or module is second for values in plain for module in values)
    fail(
        f"PyTorch does not see {' and '.join(missing)}.",
        mistake="kept in a plain container" if kept else "",
        expected="4 parameters",
        got=f"{len(got)} parameters",
        evidence=modlab.tree(both),
    )


def _joins(answer: Any) -> None:
    """it puts the two outputs side by side, for one input and for a batch"""
    both, first, second = _parallel(answer)
    for shape in ((4,), (5, 4), (2, 3, 4)):
        x = torch.randn(shape)
        one, two = first(x), second(x)
        got, wanted = both(x), torch.cat([one, two], dim=-1)
        if got is None:
            fail(mistake="nothing returned", expected=f"a tensor of shape {tuple(wanted.shape)}", got=None)
        if isinstance(got, (tuple, list)):
            fail(
                mistake="a pair, not one tensor",
                expected=f"a tensor of shape {tuple(wanted.shape)}",
                got=f"a {type(got).__name__} of {len(got)}",
            )
        if isinstance(got, Tensor) and got.shape == wanted.shape and torch.allclose(got, torch.cat([two, one], dim=-1)):
            fail(mistake="the other way round", expected=wanted, got=got)
        require_equal(got, wanted, f"For an input of shape {shape} it gives something other than both outputs, the first one first.")


def _calls(answer: Any) -> None:
    """it calls both modules, so that their hooks run"""
    both, first, second = _parallel(answer)
    called: list[str] = []
    first.register_forward_hook(lambda module, inputs, output: called.append("first"))
    second.register_forward_hook(lambda module, inputs, output: called.append("second"))
    both(torch.randn(4))
    if sorted(called) != ["first", "second"]:
        mistake = "past the hooks" if not called else ""
        fail(
            "Each should be called once.",
            mistake=mistake,
            expected=["first", "second"],
            got=called,
            evidence=modlab.trace(both)(torch.randn(4)),
        )


def _learns(answer: Any) -> None:
    """both modules learn, and a gradient reaches the input"""
    both, *_ = _parallel(answer)
    x = torch.randn(5, 4, requires_grad=True)
    got = both(x)
    if got.grad_fn is not None:
        got.sum().backward()
    without = [name for name, parameter in both.named_parameters() if parameter.grad is None]
    if without or x.grad is None:
        fail("These get no gradient.", mistake="cut off from autograd", expected=[], got=without or ["x"], evidence=modlab.state(both))


def _class(constructor: str, forward: str) -> str:
    """The source of a whole `Parallel`."""
    lines = "\n".join(f"        {line}" for line in constructor.splitlines())
    return f"""
class Parallel(nn.Module):
    def __init__(self, first, second):
{lines}

    def forward(self, x):
        {forward}
"""


_ASSIGNED = "self.first = first\nself.second = second"
_BOTH = f"super().__init__()\n{_ASSIGNED}"
_JOINED = "return torch.cat([self.first(x), self.second(x)], dim=-1)"

PARALLEL = Task(
    "Parallel",
    "Write `Parallel(first, second)`: both modules get the same input, and their outputs are joined along the last axis.",
    starter=_class("...", "..."),
    reference=_class(_BOTH, "return torch.cat([self.first(x), self.second(x)], dim=-1)"),
    probes=(_holds, _joins, _calls, _learns),
    mistakes=(
        Mistake(
            "kept in a plain container",
            _class("super().__init__()\nself.both = (first, second)", "return torch.cat([module(x) for module in self.both], dim=-1)"),
            "Tuples, lists and dicts are plain attributes: PyTorch does not look into them. Assign each module to a name of its own, "
            "or use an `nn.ModuleList`.",
            belief=1,
        ),
        Mistake(
            "wrong axis",
            _class(_BOTH, "return torch.cat([self.first(x), self.second(x)])"),
            "It joins along an axis that is not the last. `dim=-1` is the last one, however many there are.",
            error=r"Sizes of tensors must match except in dimension|Dimension out of range",
        ),
        Mistake(
            "stacked",
            _class(_BOTH, "return torch.stack([self.first(x), self.second(x)], dim=-1)"),
            "`torch.stack` makes a new axis, and needs equal shapes; `torch.cat` joins along an axis that is there.",
            error=r"stack expects each tensor to be equal size",
        ),
        Mistake(
            "added up",
            _class(_BOTH, "return self.first(x) + self.second(x)"),
            "A sum needs equal shapes, and mixes the outputs; they are to stand side by side.",
            error=r"The size of tensor a \(\d+\) must match the size of tensor b",
        ),
        Mistake(
            "one after the other",
            _class(_BOTH, "return self.second(self.first(x))"),
            "The second module gets the first one's output, as in a `Sequential`. Both must get `x`.",
            error=r"mat1 and mat2 shapes cannot be multiplied|size mismatch",
        ),
        Mistake(
            "the other way round",
            _class(_BOTH, "return torch.cat([self.second(x), self.first(x)], dim=-1)"),
            "The output of `second` comes first.",
        ),
        Mistake(
            "a pair, not one tensor",
            _class(_BOTH, "return self.first(x), self.second(x)"),
            "A module may return as many values as it likes; here the two are to become one tensor.",
        ),
        Mistake(
            "nothing returned",
            _class(_BOTH, "torch.cat([self.first(x), self.second(x)], dim=-1)"),
            "`forward` gives nothing back: it is not written yet, or its `return` is missing.",
        ),
        Mistake(
            "cut off from autograd",
            _class(_BOTH, "return torch.cat([self.first(x).detach(), self.second(x).detach()], dim=-1)"),
            "The numbers are right, but `detach()`, `.data` and `no_grad` hide from autograd how they came about.",
        ),
        Mistake(
            "past the hooks",
            _class(_BOTH, "return torch.cat([self.first.forward(x), self.second.forward(x)], dim=-1)"),
            "`module.forward(x)` goes past the module's hooks. Call the module: `module(x)`.",
            belief=33,
        ),
        *initialization.mistakes(
            late=_class(f"{_ASSIGNED}\nsuper().__init__()", _JOINED),
            never=_class(_ASSIGNED, _JOINED),
        ),
    ),
    hints=(
        "Two assignments in the constructor are enough to own both modules.",
        "`torch.cat([a, b], dim=...)` joins tensors. Which `dim` is the last axis, for one input and for a batch alike?",
        "`dim=-1`. In the constructor: `super().__init__()` first, then `self.first = first` and `self.second = second`.",
    ),
    minutes=5,
    matters="Residual blocks and models with several branches are built like this: modules that hold modules, and say how they are joined.",
)

ROOMS = Drawing(
    "where an assignment goes",
    "self.name = value asks in this order. An nn.Parameter goes to _parameters; a module goes to _modules; "
    "a tensor under the name of a buffer goes to _buffers; everything else goes to __dict__, where PyTorch does not look.",
    {
        "line": Vertex("self.name = value", (0, 0), look="main"),
        "parameter": Vertex("an nn.Parameter?", (1, 0)),
        "module": Vertex("a module?", (1, 1)),
        "buffer": Vertex("the name of a buffer?", (1, 2)),
        "rest": Vertex("anything else", (1, 3)),
        "_parameters": Vertex("_parameters", (2, 0), "trained, moved, saved"),
        "_modules": Vertex("_modules", (2, 1), "a child, with all it owns"),
        "_buffers": Vertex("_buffers", (2, 2), "moved, saved"),
        "__dict__": Vertex("__dict__", (2, 3), "PyTorch does not look here"),
    },
    [
        Arrow("line", "parameter"),
        Arrow("parameter", "_parameters", "yes"),
        Arrow("parameter", "module", "no"),
        Arrow("module", "_modules", "yes"),
        Arrow("module", "buffer", "no"),
        Arrow("buffer", "_buffers", "yes"),
        Arrow("buffer", "rest", "no"),
        Arrow("rest", "__dict__"),
    ],
)

LESSON = Content(
    name="02_registration",
    title="Registration: what `self.x = …` does",
    goal="say where an assignment goes, and keep layers so that optimizer, file and device find them",
    minutes=30,
    after=("01_a_module",),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(DYNAMIC_NET, PARALLEL),
    drawings=(ROOMS,),
)
