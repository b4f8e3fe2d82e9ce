"""12: inside the class: every store of `nn.Module`, and six claims put to the test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import modlab
from modlab.lessons.checking import fail, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Order, Several

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
        "What is `_is_full_backward_hook` before any hook, after a full backward hook, and (on another module) after a legacy one?",
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
)

RECALLS = (
    Question(
        "a flag that stays",
        "The full backward hook of a layer is removed by its handle. What is its `_is_full_backward_hook` now?",
        Choice("None", "True", "False"),
        "b",
        "A handle takes its hook out of the store, and does nothing else. The flag stays.",
        wrong=(
            Wrong("a", "The handle only touches the store of its hook, not the flag beside it."),
            Wrong("c", "Nothing resets it: the handle only removes the hook from the store."),
        ),
        proof=_flag_after_remove,
    ),
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


# ---- the second task: MiniModule --------------------------------------------------------------------


def _nets(base: Any) -> dict[str, Any]:
    """Five nets, built on nn.Module or on the learner's own."""

    class Affine(base):  # type: ignore[misc]
        def __init__(self, rows: int, columns: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(rows, columns))
            self.bias = nn.Parameter(torch.randn(columns))
            self.power = 2
            self.shift = torch.ones(columns)  # a plain tensor: neither learned nor saved

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
            fail("`state_dict()` should give a dict.", expected=[*expected], got=state)
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
    "should have the same names, the same state and the same output as those that derive from `nn.Module`.",
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
    matters="This is the core of `nn.Module`: a few dicts, an assignment that sorts into them, and a recursion.",
)

LESSON = Content(
    name="12_inside_the_class",
    title="Inside the class: every store",
    goal="open the stores of any module, say which statement writes where, and rebuild the class in forty lines",
    minutes=35,
    after=("02_registration", "06_modes", "10_forward_hooks", "11_backward_hooks"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(MINI,),
)
