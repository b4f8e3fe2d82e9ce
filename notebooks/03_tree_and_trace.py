"""03: the tree is what a model owns, the trace what it ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import modlab
from modlab.format import plural
from modlab.lessons.checking import fail, require_callable, require_equal, require_module_class
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Order, Several
from modlab.lessons.note import BigNet, DynamicNet, MyLinear, Net

# ---- questions ------------------------------------------------------------------------------------


class Spare(Net):
    """Owns a layer that ``forward`` does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = MyLinear(3, 1)


def _error(call: Callable[[], Any]) -> str:
    try:
        call()
    except (TypeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _second_error() -> str:
    said = _error(lambda: DynamicNet(3)(torch.randn(5), "relu"))
    sizes = "mat1 and mat2 shapes cannot be multiplied (1x5 and 4x4)"  # newer torches name the function before it
    return "d" if said.startswith("RuntimeError: ") and said.endswith(sizes) else f"another: {said}"


def _distinguishes() -> str:
    """Which of the views differ between two nets of equal weights, one of either edition."""
    once, each, x = DynamicNet(3), DynamicNet(3, after_each=True), torch.randn(4)
    each.load_state_dict(once.state_dict())
    views = {
        "a": lambda net: str(modlab.tree(net)),
        "b": lambda net: str(modlab.trace(net)(x, "relu")),
        "c": lambda net: str(modlab.state(net)),
        "d": repr,
    }
    return "".join(letter for letter, view in views.items() if view(once) != view(each))


def _unused_gradient() -> str:
    net = Spare()
    net(torch.randn(4)).sum().backward()
    return "b" if net.spare.weight.grad is None else "a"


def _transposed() -> str:
    encode, decode = nn.Linear(4, 3), nn.Linear(3, 4)
    decode.weight = nn.Parameter(encode.weight.t())
    two = len(list(nn.Sequential(encode, decode).parameters())) == 4
    with torch.no_grad():
        encode.weight.fill_(7.0)
    return {(False, True): "a", (True, True): "b", (True, False): "c"}[two, bool((decode.weight == 7.0).all())]


PREDICTIONS = (
    Question(
        "children of Net",
        "`chain` has three children. How many does `net` have?",
        Number(),
        2,
        "`l0` and `l1`. `F.relu` is a function: it runs, but nobody owns it.",
        wrong=(
            Wrong(3, "It computes the same, but `F.relu` is a function and no module: it cannot be a child.", belief=27),
            Wrong(4, "Its parameters are four: a weight and a bias in each of two layers. Children are modules.", belief=28),
            Wrong(1, "There are two layers, `l0` and `l1`."),
        ),
        proof=lambda: len(list(Net().children())),
    ),
    Question(
        "order of BigNet",
        "In which order does `big.named_modules()` give the five?",
        Order("`net.l1`", "`net`", "`l1`", '`""`, the model itself', "`net.l0`"),
        ("d", "c", "b", "e", "a"),
        "Each module comes before what it holds, and what was assigned first comes first.",
        wrong=(
            Wrong(
                "c e a b d",
                "This is the order of `apply`: what a module holds, then the module. `named_modules` begins at the top.",
                belief=28,
            ),
            Wrong("c b e a d", "The model itself comes first, not last.", belief=28),
            Wrong("d b e a c", "`l1` was assigned before `net`.", belief=28),
            Wrong("d c b a e", "`l0` was assigned before `l1`, in `Net`.", belief=28),
            Wrong("d b c e a", "`l1` was assigned before `net`; and `net` is followed at once by what it holds.", belief=28),
        ),
        proof=lambda: [{"": "d", "l1": "c", "net": "b", "net.l0": "e", "net.l1": "a"}[name] for name, _ in BigNet().named_modules()],
    ),
    Question(
        "five numbers and relu",
        'And `dynamic(torch.randn(5), "relu")`?',
        Choice(
            "one number",
            "five numbers, one for each input",
            "a `RuntimeError`: shapes (5x1 and 4x4)",
            "a `RuntimeError`: shapes (1x5 and 4x4)",
        ),
        "d",
        "Five numbers without a batch are one input of five; `linears.0` has a weight of (4, 4), and 5 is not 4.",
        wrong=(
            Wrong("a", "Each of `linears` takes four numbers, and here are five.", belief=32),
            Wrong("b", "That would be an `x` of shape (5, 4). This one is a single input of five numbers.", belief=32),
            Wrong("c", "PyTorch reads a tensor of shape (5,) as one row of five, not as five rows.", belief=32),
        ),
        proof=_second_error,
    ),
    Question(
        "which view",
        "Which of these differs between `once` and `each`?",
        Choice("the tree", "the trace of a call", "the state table", "what `print` shows"),
        "b",
        "Three of them show what was built, and that is the same. Only the trace shows what `forward` does.",
        wrong=(
            Wrong("a", "The tree shows what the constructor registered, and both have the same constructor.", belief=26),
            Wrong("c", "Names, shapes and numbers are the same; `forward` leaves no mark there.", belief=26),
            Wrong("d", "`print` shows the modules that are owned, in the order of registration, and not what runs.", belief=26),
        ),
        belief=26,
        proof=_distinguishes,
    ),
    Question(
        "gradient of the spare",
        "What is `idle.spare.weight.grad` after `backward`?",
        Choice("a tensor of zeros", "`None`", "there is no such attribute: `spare` is not registered"),
        "b",
        "Nothing that ran came from it, so autograd never gets there: no gradient is computed, not even a zero.",
        wrong=(
            Wrong("a", "Zero would mean: it took part, and made no difference. It took no part.", belief=26),
            Wrong("c", "The assignment registered it, whatever `forward` does; the tree and the optimizer have it.", belief=26),
        ),
        proof=_unused_gradient,
    ),
    Question(
        "a transposed parameter",
        "Are the two weights one now?",
        Choice(
            "yes: one parameter under two names",
            "in part: one memory, but two parameters",
            "no: the second is a copy",
        ),
        "b",
        "`t()` looks at the same memory; `nn.Parameter(...)` makes a second parameter of it, with a gradient of its own.",
        wrong=(
            Wrong("a", "Each `nn.Parameter(...)` is a new parameter: `parameters()` gives both, each with its own gradient.", belief=29),
            Wrong("c", "`t()` copies nothing: change one, and the other changes.", belief=29),
        ),
        belief=29,
        proof=_transposed,
    ),
)

RECALLS = (
    Question(
        "children or modules",
        "`named_modules()` of a `BigNet` gives five entries. Which of them does `named_children()` give as well?",
        Several('`""`', "`l1`", "`net`", "`net.l0`", "`net.l1`"),
        ("b", "c"),
        "The children are the modules directly below; not the model itself, and not what is deeper.",
        wrong=(
            Wrong("a b c d e", "That is `named_modules()`.", belief=28),
            Wrong("b c d e", "`net.l0` and `net.l1` are children of `net`, not of the model.", belief=28),
            Wrong("b d e", "These are the layers; children are the modules one level down, and `net` is one of them.", belief=28),
            Wrong("a b c", "A module is not its own child.", belief=28),
        ),
        belief=28,
        proof=lambda: [
            letter
            for letter, name in zip("abcde", ("", "l1", "net", "net.l0", "net.l1"), strict=True)
            if name in dict(BigNet().named_children())
        ],
    ),
    Question(
        "an unused layer",
        "A layer is made in the constructor, and `forward` never calls it. What is true?",
        Several(
            "it is in the tree",
            "it is in the `state_dict`",
            "the optimizer gets its parameters",
            "its gradients are `None` after `backward`",
            "PyTorch raises an error",
        ),
        ("a", "b", "c", "d"),
        "It is owned, so it is saved, moved and handed to the optimizer; it took no part, so it gets no gradient. Nobody complains.",
        wrong=(
            Wrong("d", "It is registered like any other: tree, `state_dict` and optimizer have it.", belief=26),
            Wrong("a b d", "The optimizer gets whatever `parameters()` gives, used or not.", belief=26),
            Wrong("e", "Nothing in PyTorch compares what is owned with what runs: no error comes.", belief=26),
            Wrong("a b c", "What took no part gets no gradient: it stays `None`.", belief=26),
        ),
        belief=26,
    ),
    Question(
        "rooms",
        "From lesson 02: where does `self.blocks = [nn.Linear(2, 2)]` go?",
        Choice("`_modules`", "`_parameters`", "the plain attributes", "nowhere: it raises an error"),
        "c",
        "A list is neither a parameter nor a module, whatever is in it.",
        wrong=(
            Wrong("a", "A module would go there; a list of modules is not a module. `nn.ModuleList` is one.", belief=1),
            Wrong("b", "Parameters go there, one by one; nobody looks into a list.", belief=1),
            Wrong("d", "No error comes, which is what makes it a trap.", belief=1),
        ),
        proof=lambda: {"__dict__": "c", "_modules": "a"}[_route_of_a_list()],
    ),
)


def _route_of_a_list() -> str:
    module = nn.Module()
    return modlab.internals(module).route("blocks", [nn.Linear(2, 2)]).store


# ---- never_called ---------------------------------------------------------------------------------


class _Branches(nn.Module):
    """A branch with a nest in it stays idle; a layer of the same class runs."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(3, 3)
        self.branch = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Tanh(), nn.Linear(3, 3)))
        self.mixed = nn.ModuleDict({"left": nn.Tanh(), "right": nn.Tanh()})

    def forward(self, x: Tensor) -> Tensor:
        """(3,) → (3,)."""
        return cast(Tensor, self.mixed["left"](self.used(x)))


class _TwoInputs(nn.Module):
    """Takes two tensors; one layer runs twice, one is called from inside a child."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.block = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
        self.skipped = nn.Dropout(0.5)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(2,), (2,) → (2,)."""
        return cast(Tensor, self.first(a) + self.block[0](self.first(b)))


_HOLDERS = (nn.ModuleList, nn.ModuleDict)
_Case = tuple[nn.Module, tuple[Any, ...], set[str]]


def _dynamic() -> _Case:
    return DynamicNet(2), (torch.randn(4), "relu"), {"activations.lrelu"}


def _branches() -> _Case:
    return _Branches(), (torch.randn(3),), {"branch", "branch.0", "branch.1", "branch.1.0", "branch.1.1", "mixed.right"}


def _two_inputs() -> _Case:
    return _TwoInputs(), (torch.randn(2), torch.randn(2)), {"block", "block.1", "skipped"}


def _everything() -> _Case:
    return BigNet(), (torch.randn(5),), set()


def _is_called(answer: Any, case: Callable[[], _Case]) -> None:
    require_callable(answer, "never_called")
    net, inputs, wanted = case()
    given = answer(net, *inputs)
    title = type(net).__name__.lstrip("_")
    if given is None:
        fail("It returns nothing.", expected=sorted(wanted), got=None)
    if isinstance(given, (str, Tensor, nn.Module)) or not hasattr(given, "__iter__"):
        fail("It should return a list of names.", expected=sorted(wanted), got=given)
    got = [*given]
    if any(not isinstance(name, str) for name in got):
        fail("It should return names, as `named_modules()` gives them.", expected=sorted(wanted), got=got)
    names = dict(net.named_modules())
    said = {name for name in got if not isinstance(names.get(name), _HOLDERS)}
    if said == wanted:
        return
    trace = modlab.trace(net)(*inputs)
    details = {"expected": sorted(wanted), "got": sorted(said), "evidence": trace}
    for mistake, would_be in _would_be(net, wanted).items():
        if said == would_be:
            fail(f"That is what it says of {title}.", mistake=mistake, **details)
    if "" in said:
        fail(f"That is what it says of {title}.", mistake="the root among them", **details)
    fail(f"Of {title} it says something else than the trace.", **details)


def _would_be(net: nn.Module, wanted: set[str]) -> dict[str, set[str]]:
    """What the usual mistakes would give, where that is something else."""
    modules = {name: module for name, module in net.named_modules() if not isinstance(module, _HOLDERS)}
    ran = {name for name in modules if name not in wanted}
    classes = {type(modules[name]) for name in ran}
    found = {
        "those that were called": ran,
        "children only": {name for name in wanted if "." not in name},
        "the topmost only": {name for name in wanted if name.rpartition(".")[0] not in wanted},
        "by class": {name for name in wanted if type(modules[name]) not in classes},
        "by gradient": {name for name in wanted if next(modules[name].parameters(), None) is not None},
        "only the leaves": {name for name in wanted if not [*modules[name].children()]},
        "every module": {*modules} - {""},
    }
    return {mistake: names for mistake, names in found.items() if names != wanted}


def _finds_the_activation(answer: Any) -> None:
    """it finds the idle activation of a DynamicNet"""
    _is_called(answer, _dynamic)


def _finds_nests(answer: Any) -> None:
    """it finds a whole idle branch, and what is in it"""
    _is_called(answer, _branches)


def _finds_inside(answer: Any) -> None:
    """it takes several inputs, and finds a block of which only a part runs"""
    _is_called(answer, _two_inputs)


def _finds_nothing(answer: Any) -> None:
    """it finds nothing where everything runs"""
    _is_called(answer, _everything)


def _leaves_nothing(answer: Any) -> None:
    """it leaves the net as it was: no hook, the same numbers, the same mode"""
    net, x = _Branches().eval(), torch.randn(3)
    before = modlab.snapshot(net)
    answer(net, x)
    left = [record.path or "(root)" for record in modlab.hooks(net)]
    if left:
        says = f"Hooks are still on {plural(len(left), 'module')}."
        fail(says, mistake="hooks left behind", expected=0, got=len(left), evidence=modlab.hooks(net))
    if any(module.training for module in net.modules()):
        fail("It changed the mode of the net.", expected="eval", got="train")
    difference = modlab.diff(before, net)
    if any(not record.path.startswith("rng") for record in difference.changed):
        fail("It changed the net.", evidence=difference)


def _leaves_hooks(answer: Any) -> None:
    """hooks that were there before are there afterwards"""
    net, x = _Branches(), torch.randn(3)
    rang: list[str] = []
    for name in ("", "used"):
        child = net.get_submodule(name)
        child.register_forward_pre_hook(lambda module, inputs: rang.append("before"))
        child.register_forward_hook(lambda module, inputs, output: rang.append("after"))
    answer(net, x)
    rang.clear()
    net(x)
    if len(rang) != 4:
        fail(mistake="others' hooks removed", expected="4 hooks that run", got=f"{len(rang)} that run", evidence=modlab.hooks(net))


def _hooked(condition: str, *, modules: str = "module.named_modules()", remove: bool = True, call: str = "module(*inputs)") -> str:
    """The source of a `never_called` that hooks modules, runs the net and keeps some names."""
    return f"""
def never_called(module, *inputs):
    called = set()
    handles = []
    for name, child in {modules}:
        handles.append(child.register_forward_pre_hook(lambda m, args: called.add(m)))
    {call}
    {"for handle in handles: handle.remove()" if remove else ""}
    return [name for name, child in {modules} if {condition}]
"""


NEVER_CALLED = Task(
    "never_called",
    "Write `never_called(module, *inputs)`: the names of all modules that `module(*inputs)` does not call.",
    starter="""
def never_called(module, *inputs):
    ...
""",
    reference="""
def never_called(module, *inputs):
    called, handles = set(), []
    for child in module.modules():
        handles.append(child.register_forward_pre_hook(lambda child, args: called.add(child)))
    module(*inputs)
    for handle in handles:
        handle.remove()
    return [name for name, child in module.named_modules() if child not in called]
""",
    probes=(_finds_nests, _finds_the_activation, _finds_inside, _finds_nothing, _leaves_nothing, _leaves_hooks),
    mistakes=(
        Mistake(
            "children only",
            _hooked("child not in called", modules="module.named_children()"),
            "Children are one level down. `named_modules()` goes all the way.",
            belief=28,
        ),
        Mistake(
            "the root among them",
            _hooked("child not in called", call="module.forward(*inputs)"),
            "The model itself is among them. `module.forward(...)` is not a call of the module: write `module(*inputs)`.",
            belief=33,
        ),
        Mistake(
            "by class",
            _hooked("type(child) not in {type(m) for m in called}"),
            "Two modules of one class are two modules: one may run while the other does not.",
        ),
        Mistake(
            "those that were called",
            _hooked("child in called"),
            "These are the ones that ran. The task wants the others.",
        ),
        Mistake(
            "by gradient",
            _hooked("child not in called and list(child.parameters())"),
            "An activation owns no parameter, and can be idle like any other module. Ask who was called, not who has a gradient.",
            belief=26,
        ),
        Mistake(
            "only the leaves",
            _hooked("child not in called and not list(child.children())"),
            "A module that holds others can be idle, too: a whole branch, or a block of which only a part is called.",
        ),
        Mistake(
            "the topmost only",
            "\ndef never_called(module, *inputs):\n    return modlab.trace(module)(*inputs).not_called\n",
            "`trace.not_called` names an idle branch once. The task wants what is in the branch as well.",
        ),
        Mistake(
            "every module",
            _hooked("name", call="pass"),
            "It names every module. Did the net run, and did the hooks take down who was called?",
        ),
        Mistake(
            "hooks left behind",
            _hooked("child not in called", remove=False),
            "Your hooks are still on the net, and run in every later call. "
            "Keep the handle that each registration returns, and call its `remove()`.",
        ),
        Mistake(
            "others' hooks removed",
            _hooked("child not in called").replace(
                "for handle in handles: handle.remove()", "for m in module.modules(): m._forward_pre_hooks.clear()"
            ),
            "Clearing a module's hooks takes away those of others as well. `handle.remove()` takes off the one that is yours.",
        ),
        Mistake(
            "hooks that answer",
            _hooked("child not in called").replace("called.add(m)", "called.add(m) or ()"),
            "What a hook returns takes the place of the input. Let yours return nothing.",
            error=r"TypeError: .*missing \d+ required positional argument",
        ),
    ),
    hints=(
        "`module.named_modules()` gives every name with its module. How could each of them tell you that it is called?",
        "`child.register_forward_pre_hook(f)` runs `f(child, args)` before each call of `child`, and returns a handle with `remove()`.",
        "Hook all modules, run the net once, remove the hooks, and keep the names whose module took no note.",
    ),
    minutes=8,
    matters="Modules that never run take memory, get no gradient, and can stop training on several processes with an error.",
)

# ---- a third edition ------------------------------------------------------------------------------


def _third(answer: Any) -> DynamicNet:
    require_module_class(answer, "ThirdEdition")
    return cast(DynamicNet, answer(3))


def _owns_the_same(answer: Any) -> None:
    """its tree is that of a DynamicNet"""
    net = _third(answer)
    wanted = [(name, type(module).__name__) for name, module in DynamicNet(3).named_modules()][1:]
    got = [(name, type(module).__name__) for name, module in net.named_modules()][1:]
    more = [name for name, _ in got if name not in dict(wanted)]
    if more:
        fail(f"It owns {', '.join(more)} besides.", mistake="it registers something", evidence=modlab.tree(net))
    require_equal(got, wanted, "It owns other modules than a DynamicNet.", evidence=modlab.tree(net))
    shapes = {key: tuple(value.shape) for key, value in net.state_dict().items()}
    expected = {key: tuple(value.shape) for key, value in DynamicNet(3).state_dict().items()}
    if [*shapes] != [*expected] and set(shapes) > set(expected):
        fail(
            f"It owns {', '.join(sorted(set(shapes) - set(expected)))} besides.",
            mistake="it registers something",
            evidence=modlab.tree(net),
        )
    require_equal(shapes, expected, "It owns other tensors than a DynamicNet.", evidence=modlab.tree(net))


def _edition(net: DynamicNet, x: Tensor, act: str, *, each: bool) -> Tensor:
    """What either edition of the note computes with these weights."""
    function = F.relu if act == "relu" else F.leaky_relu
    for linear in net.linears:
        x = linear(x)
        x = function(x) if each else x
    return cast(Tensor, net.final(x if each else function(x)))


def _computes_otherwise(answer: Any) -> None:
    """with the same weights it gives something other than both editions"""
    net = _third(answer)
    for act in ("relu", "lrelu"):
        x = torch.randn(8, 4)
        wanted = {"once": _edition(net, x, act, each=False), "each": _edition(net, x, act, each=True)}
        got, again = net(x, act), net(x, act)
        if not isinstance(got, Tensor) or got.shape != (8, 1):
            fail("For eight inputs it should give eight numbers.", expected="a tensor of shape (8, 1)", got=got)
        if not torch.equal(got, again):
            fail("The same input gives another output at the second call: it must depend on nothing but the input and the weights.")
        for edition, output in wanted.items():
            if torch.allclose(got, output, atol=1e-5):
                says = {"once": "the activation once, after all layers", "each": "the activation after every layer"}[edition]
                evidence = modlab.trace(net)(x, act)
                fail(f"It computes what is there already: {says}.", mistake="an edition that exists", evidence=evidence)


def _depends(answer: Any) -> None:
    """its output depends on the input, and on each of its weights"""
    nets = [_third(answer) for _ in range(4)]  # several: in one of them a unit may be dead
    outputs = [net(torch.randn(40, 4), "lrelu") for net in nets]
    if all(torch.allclose(output, output[:1].expand_as(output)) for output in outputs):
        fail(mistake="the same for every input", expected="outputs that differ", got=outputs[0][:4].flatten())
    for output in outputs:
        if output.grad_fn is not None:
            output.square().sum().backward()
    net = nets[0]
    reached = {name for one in nets for name, parameter in one.named_parameters() if parameter.grad is not None and parameter.grad.any()}
    without = [name for name, _ in net.named_parameters() if name not in reached]
    if without:
        fail(
            "A gradient never reaches these.",
            mistake="layers that make no difference",
            expected=[],
            got=without,
            evidence=modlab.state(net),
        )


def _keeps_its_weights(answer: Any) -> None:
    """a call changes no weight and registers nothing"""
    net = _third(answer)
    before = modlab.snapshot(net)
    names = [name for name, _ in net.named_modules()]
    net(torch.randn(4), "relu")
    if [name for name, _ in net.named_modules()] != names:
        fail("After a call it owns more than before.", mistake="it registers something", evidence=modlab.tree(net))
    difference = modlab.diff(before, net)
    if any(not record.path.startswith("rng") for record in difference.changed):
        fail(mistake="it changes its weights", evidence=difference)


_LOOP = "        for linear in self.linears:\n            x = {}\n        return self.final(x)"


def _subclass(body: str, constructor: str = "") -> str:
    """The source of a whole `ThirdEdition`."""
    made = f"    def __init__(self, num_layers):\n        super().__init__(num_layers)\n        {constructor}\n\n" if constructor else ""
    return f"\nclass ThirdEdition(DynamicNet):\n{made}    def forward(self, x, act):\n{body}\n"


THIRD_EDITION = Task(
    "ThirdEdition",
    "Write a third edition: the same tree as `DynamicNet`, and another output, which depends on the input and on each of the weights.",
    starter=_subclass("        ..."),
    reference=_subclass(_LOOP.format("x + self.activations[act](linear(x))")),
    given="from modlab.lessons.note import DynamicNet\n",
    probes=(_owns_the_same, _keeps_its_weights, _computes_otherwise, _depends),
    mistakes=(
        Mistake(
            "it registers something",
            _subclass(_LOOP.format("self.norm(self.activations[act](linear(x)))"), "self.norm = nn.LayerNorm(4)"),
            "The tree has changed. Compute something else with what is there.",
            belief=26,
        ),
        Mistake(
            "an edition that exists",
            _subclass(_LOOP.format("self.activations[act](linear(x))")),
            "The output is the same as one of the two editions' with the same weights.",
        ),
        Mistake(
            "the same for every input",
            _subclass("        return torch.zeros(*x.shape[:-1], 1)"),
            "A constant is another output, but no net: it has looked at nothing.",
        ),
        Mistake(
            "layers that make no difference",
            _subclass("        return self.final(self.activations[act](x))"),
            "Some of its weights never count: their layers are passed by, or `detach()` and `no_grad` cut them off. Use all that it owns.",
            belief=26,
        ),
        Mistake(
            "it changes its weights",
            _subclass("        with torch.no_grad():\n            self.final.weight.mul_(2)\n        return 3 * super().forward(x, act)"),
            "The output differs because the weights do: each call writes over them. Leave them as they are.",
        ),
        Mistake(
            "no activation of that name",
            _subclass(_LOOP.format("self.activations['gelu'](linear(x))")),
            "The `ModuleDict` holds `relu` and `lrelu`, and nothing else.",
            error=r"KeyError: 'gelu'|KeyError: '\w+'",
        ),
    ),
    hints=(
        "The tree comes from the constructor. Which method may you change?",
        "The same modules can be called in another order, more often, or with what went around them added.",
        "For example a shortcut: `x = x + self.activations[act](linear(x))`.",
    ),
    minutes=4,
    matters="The tree shows what is there, not what happens: for that, run the model or read its `forward`.",
)

# ---- a tie ----------------------------------------------------------------------------------------


def _tied(answer: Any) -> tuple[nn.Sequential, nn.Linear, nn.Linear]:
    require_callable(answer, "tie")
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    answer(first, second)
    return nn.Sequential(first, nn.Tanh(), second), first, second


def _one_weight(answer: Any) -> None:
    """both layers hold one and the same weight"""
    require_callable(answer, "tie")
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    weights = first.weight.detach().clone(), second.weight.detach().clone()
    answer(first, second)
    net = nn.Sequential(first, nn.Tanh(), second)
    details: dict[str, Any] = {"expected": "3 parameters", "got": f"{len(list(net.parameters()))} parameters", "evidence": modlab.tree(net)}
    for name, layer in (("first", first), ("second", second)):
        if not isinstance(layer.weight, nn.Parameter):
            fail(f"The weight of {name} is no longer a parameter.", **details)
    if first.weight is not second.weight:
        if first.weight.untyped_storage().data_ptr() == second.weight.untyped_storage().data_ptr():
            fail(mistake="one memory, two parameters", **details)
        if torch.equal(first.weight, second.weight):
            fail(mistake="a copy", **details)
        if torch.equal(first.weight, weights[0]) and torch.equal(second.weight, weights[1]):
            fail(mistake="nothing changed", **details)
        fail("The two weights are different.", **details)
    if first.bias is second.bias:
        fail(mistake="the biases tied, too", **details)
    if torch.equal(first.weight, weights[1]):
        fail(mistake="the other one's weight", evidence=modlab.tree(net))
    require_equal(first.weight, weights[0], "The common weight should be that of `first`.", evidence=modlab.tree(net))


def _stays_tied(answer: Any) -> None:
    """they stay one through a training step, and its gradient has both parts"""
    net, first, second = _tied(answer)
    x = torch.randn(6, 4)
    weight = first.weight.detach().clone().requires_grad_()
    output = F.linear(torch.tanh(F.linear(x, weight, first.bias.detach())), weight, second.bias.detach())
    (wanted,) = torch.autograd.grad(output.square().sum(), weight)
    net(x).square().sum().backward()
    require_equal(first.weight.grad, wanted, "The gradient is not the sum of both parts.", tolerance=1e-4)
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    require_equal(second.weight, first.weight, "After a step the two are different.", evidence=modlab.tree(net))


def _learns(answer: Any) -> None:
    """the weight is still trained"""
    net, first, _ = _tied(answer)
    if not first.weight.requires_grad:
        fail("The weight is frozen.", evidence=modlab.state(net))


def _body(line: str) -> str:
    """The source of a `tie` of some lines."""
    lines = "\n".join(f"    {part}" for part in line.splitlines())
    return f"\ndef tie(first, second):\n{lines}\n"


TIE = Task(
    "tie",
    "Write `tie(first, second)`: afterwards two `nn.Linear(4, 4)` share the weight of `first`, and each keeps its own bias.",
    starter=_body("..."),
    reference=_body("second.weight = first.weight"),
    probes=(_one_weight, _learns, _stays_tied),
    mistakes=(
        Mistake(
            "a copy",
            _body("second.weight = nn.Parameter(first.weight.clone())"),
            "The numbers are equal now, and part at the first training step: `clone()` and `copy_()` copy.",
            belief=29,
        ),
        Mistake(
            "one memory, two parameters",
            _body("second.weight.data = first.weight.data"),
            "They share the memory, but are two parameters: the optimizer gets both, each with its own part of the gradient, and `to()` "
            "pulls them apart. It is the same with `nn.Parameter(first.weight)`. Assign the parameter itself.",
            belief=29,
        ),
        Mistake(
            "nothing changed",
            _body("second = first"),
            "Both layers are as they were. Inside a function, `second = first` only gives a local name to another object; "
            "assign to an attribute of the layer.",
        ),
        Mistake(
            "the biases tied, too",
            _body("second.weight = first.weight\nsecond.bias = first.bias"),
            "The weight is one, and so is the bias; each layer should keep its own bias.",
        ),
        Mistake(
            "the other one's weight",
            _body("first.weight = second.weight"),
            "They share a weight, but that of `second`.",
        ),
        Mistake(
            "no parameter",
            _body("second.weight = first.weight.data"),
            "`.data` is a plain tensor, and the name `weight` takes parameters only. Leave `.data` away.",
            belief=8,
            error=r"TypeError: cannot assign '.*' as parameter 'weight'",
        ),
    ),
    hints=(
        "A parameter is a Python object. What does it take for two attributes to name one object?",
        "No copy, no `.data`, no new `nn.Parameter`: an assignment.",
    ),
    minutes=3,
    matters="Language models tie their embedding to their output layer this way: two names, one tensor to keep and to train.",
)

LESSON = Content(
    name="03_tree_and_trace",
    title="Tree and trace: what it owns, what it ran",
    goal="read off what a model owns and what it ran, and find where the two differ",
    minutes=35,
    after=("02_registration",),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(NEVER_CALLED, THIRD_EDITION, TIE),
)
