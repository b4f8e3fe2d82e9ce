"""01: a module is a callable that owns tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import modlab
from modlab.lessons import initialization
from modlab.lessons.checking import fail, require_equal, require_module_class
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.drawing import Arrow, Drawing, Vertex
from modlab.lessons.kinds import Choice, Number, Order, Shape, YesNo
from modlab.lessons.note import MyLinear

# ---- questions ------------------------------------------------------------------------------------


def _hooked() -> bool:
    m, x = MyLinear(4, 3), torch.randn(4)
    m.register_forward_hook(lambda module, inputs, output: 2 * output)
    return torch.equal(m(x), m.forward(x))


PREDICTIONS = (
    Question(
        "numbers of MyLinear",
        "How many numbers does `MyLinear(4, 3)` own?",
        Number(),
        15,
        "Twelve in the weight (4 × 3) and three in the bias.",
        wrong=(
            Wrong(12, "That is the weight alone: the bias owns three more."),
            Wrong(2, "These are the tensors, `weight` and `bias`; the numbers in them are more."),
            Wrong(7, "4 + 3: a number for each input and each output would be a vector each, and the weight is a matrix of 4 × 3."),
            Wrong(16, "A bias for each *input* would be four: but the bias is added to the output, which has three."),
        ),
        proof=lambda: sum(p.numel() for p in MyLinear(4, 3).parameters()),
    ),
    Question(
        "names of MyLinear",
        "In which order does `named_parameters()` give the two names?",
        Choice("bias, weight: by the alphabet", "weight, bias: as they were assigned", "in no guaranteed order"),
        "b",
        "Assigning an `nn.Parameter` to an attribute registers it, and the register keeps the order of the assignments.",
        wrong=(
            Wrong("a", "The register is a dict, which keeps the order in which its entries came."),
            Wrong("c", "It is the same in every run: the register is a dict, and a dict has an order."),
        ),
        proof=lambda: {"weight bias": "b", "bias weight": "a"}[" ".join(name for name, _ in MyLinear(4, 3).named_parameters())],
    ),
    Question(
        "shape for one",
        "What is the shape of `m(x)` for an `x` of shape (4,)?",
        Shape(),
        (3,),
        "(4,) times (4, 3) is (3,).",
        wrong=(
            Wrong((1, 3), "Torch adds no dimension for a batch: what comes in without one goes out without one."),
            Wrong((4, 3), "That is the weight. The product sums over the four."),
            Wrong((4,), "The input has four numbers; the module was made for three outputs."),
        ),
        proof=lambda: tuple(MyLinear(4, 3)(torch.randn(4)).shape),
    ),
    Question(
        "shape for five",
        "And for five inputs at once, an `x` of shape (5, 4)?",
        Shape(),
        (5, 3),
        "The last size is used up by the product; all sizes before it pass through.",
        wrong=(
            Wrong((3,), "Each of the five gets its own three outputs."),
            Wrong((3, 5), "The inputs are the rows, and stay rows."),
            Wrong((5, 4, 3), "The four are summed over, for each of the five."),
        ),
        proof=lambda: tuple(MyLinear(4, 3)(torch.randn(5, 4)).shape),
    ),
    Question(
        "a grad_fn",
        "`x` is a plain tensor of random numbers. Does `y = m(x)` have a `grad_fn`?",
        YesNo(),
        True,
        "`y` was computed from `weight` and `bias`, which require a gradient; so PyTorch has noted how.",
        wrong=(Wrong(False, "`x` asks for no gradient, but the parameters do, and one of them is enough."),),
        proof=lambda: MyLinear(4, 3)(torch.randn(4)).grad_fn is not None,
    ),
    Question(
        "call or forward",
        "A hook on `m` doubles what comes out. Do `m(x)` and `m.forward(x)` still agree?",
        YesNo(),
        False,
        "Calling a module runs `forward` *and* the hooks; `m.forward(x)` goes past the hooks.",
        wrong=(Wrong(True, "The computation is the same, but the hook hangs on the call: `m.forward(x)` goes past it.", belief=33),),
        proof=_hooked,
    ),
)

REASONS = (
    Question(
        "gradient of the bias",
        "Why is every number of `bias.grad` equal to one, whatever `x` was?",
        Choice(
            "PyTorch starts gradients at one",
            "each output is a product plus its bias, so the sum of the outputs grows by one when a bias does",
            "the gradient of the sum is one, and `backward` hands it on to every parameter",
        ),
        "b",
        "The slope of a sum in each of its terms is one. The gradient of `weight[i, j]` is `x[i]` for the same reason.",
        wrong=(
            Wrong("a", "They start as None; the first `backward` fills them with what it computes."),
            Wrong("c", "It starts with that one, but each step back multiplies it by a slope: `weight.grad` is not all ones."),
        ),
    ),
)

_FIRST, _THEN = "call `super().__init__()` in the constructor", "assign `nn.Parameter(...)` to `self`"

RECALLS = (
    Question(
        "three steps of a module",
        "Order what makes a class a module.",
        Order(
            "write `forward`, which says what is computed",
            _FIRST,
            _THEN,
            valid=lambda order: order.index(_FIRST) < order.index(_THEN),
        ),
        ("b", "c", "a"),
        "`super().__init__()` makes the registers, so it comes before the first parameter. `forward` may stand anywhere.",
        belief=4,
    ),
    Question(
        "transposed",
        "What is the shape of the weight of PyTorch's own `nn.Linear(4, 3)`?",
        Shape(),
        (3, 4),
        "`nn.Linear` keeps it as (out, in), and multiplies by its transpose.",
        wrong=(Wrong((4, 3), "That is the shape in `MyLinear`; `nn.Linear` has it the other way round: (out, in).", belief=32),),
        proof=lambda: tuple(nn.Linear(4, 3).weight.shape),
    ),
    Question(
        "ghosts",
        "From the tour: a network keeps three layers in a plain Python list. How many of them does its optimizer move?",
        Number(),
        0,
        "A list is not registered: neither `parameters()` nor `to()` nor `state_dict()` sees what is in it.",
        wrong=(Wrong(3, "They compute, but nobody registered them: PyTorch does not look into plain lists.", belief=1),),
    ),
)

# ---- tasks ----------------------------------------------------------------------------------------


def _made(answer: Any) -> nn.Module:
    require_module_class(answer, "Affine")
    return initialization.made(answer, 5, 2)


def _owns(answer: Any) -> None:
    """it owns a weight of (in, out) and a bias of (out,)"""
    m = _made(answer)
    shapes = {name: tuple(parameter.shape) for name, parameter in m.named_parameters()}
    wanted = {"weight": (5, 2), "bias": (2,)}
    if not shapes and any(isinstance(vars(m).get(name), torch.Tensor) for name in wanted):
        fail(mistake="tensors, no parameters", expected=wanted, got=shapes, evidence=modlab.state(m))
    plain = [name for name in wanted if isinstance(vars(m).get(name), torch.Tensor)]
    if plain:
        got = dict.fromkeys(plain, "a plain tensor")
        fail(mistake="a plain tensor", expected=dict.fromkeys(plain, "an nn.Parameter"), got=got, evidence=modlab.state(m))
    if shapes.get("weight") == (2, 5):
        fail(mistake="transposed weight", expected=wanted, got=shapes, evidence=modlab.tree(m))
    require_equal(shapes, wanted, "It should own these parameters, under these names.", evidence=modlab.tree(m))
    if [*shapes] != ["weight", "bias"]:
        fail("The weight should be registered first.", expected=["weight", "bias"], got=[*shapes])


def _computes(answer: Any) -> None:
    """it multiplies by the weight and adds the bias, for one input and for a batch"""
    m = _made(answer)
    weight, bias = (dict(m.named_parameters())[name] for name in ("weight", "bias"))
    for shape in ((5,), (7, 5), (2, 3, 5)):
        x = torch.randn(shape)
        got = m(x)
        if got is None:
            fail(mistake="nothing returned", expected=f"a tensor of shape {(*shape[:-1], 2)}", got=None)
        require_equal(got, x @ weight + bias, f"For an input of shape {shape} it gives something other than x @ weight + bias.")


def _learns(answer: Any) -> None:
    """both parameters get a gradient"""
    m = _made(answer)
    m(torch.randn(3, 5)).sum().backward()
    for name, parameter in m.named_parameters():
        if parameter.grad is None:
            fail(f"{name} gets no gradient: something cut it off from the output.", evidence=modlab.state(m))


def _draws(answer: Any) -> None:
    """weight and bias are each drawn from the standard normal distribution"""
    made = [_made(answer) for _ in range(800)]
    for name in ("weight", "bias"):
        drawn = torch.cat([module.get_parameter(name).detach().flatten() for module in made])
        mean, spread = drawn.mean().item(), drawn.std().item()
        if abs(mean) < 0.1 and abs(spread - 1) < 0.1:
            continue
        uniform = abs(mean - 0.5) < 0.05 and abs(spread - 12**-0.5) < 0.03
        mistake = "not drawn" if spread < 1e-6 else "uniform draw" if uniform else "another spread" if abs(mean) < 0.1 else ""
        fail(
            f"Over 800 modules of it, the numbers of {name} are not standard normal.",
            mistake=mistake,
            expected="mean 0, standard deviation 1",
            got=f"mean {mean:.2f}, standard deviation {spread:.2f}",
        )


AFFINE = Task(
    "Affine",
    "Write it yourself, under the name `Affine`: the same names, shapes and standard normal start as `MyLinear`.",
    starter="""
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        ...

    def forward(self, input):
        ...
""",
    reference="""
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, input):
        return input @ self.weight + self.bias
""",
    probes=(_owns, _computes, _learns, _draws),
    mistakes=(
        Mistake(
            "transposed weight",
            """
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, input):
        return input @ self.weight.T + self.bias
""",
            "Your weight is (out, in), as in `nn.Linear`. This module's is (in, out): one row for each input.",
            belief=32,
        ),
        Mistake(
            "tensors, no parameters",
            """
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = torch.randn(in_features, out_features)
        self.bias = torch.randn(out_features)

    def forward(self, input):
        return input @ self.weight + self.bias
""",
            "A plain tensor is an attribute like any other: it is not registered, so no optimizer, file or GPU will get it. "
            "Wrap it in `nn.Parameter`.",
            belief=8,
        ),
        Mistake(
            "a plain tensor",
            """
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = torch.randn(out_features)

    def forward(self, input):
        return input @ self.weight + self.bias
""",
            "One of the two is a parameter, the other a plain tensor. A plain tensor is not trained, moved or saved. "
            "It should be learned as well: wrap it in `nn.Parameter`.",
            belief=8,
        ),
        Mistake(
            "nothing returned",
            """
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, input):
        input @ self.weight + self.bias
""",
            "`forward` gives nothing back: it is not written yet, or its `return` is missing.",
        ),
        Mistake(
            "not drawn",
            """
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, input):
        return input @ self.weight + self.bias
""",
            "The same numbers each time: nothing is drawn. Many layers do start with a bias of zero; this one draws it as well.",
        ),
        Mistake(
            "another spread",
            """
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(0.5 * torch.randn(out_features))

    def forward(self, input):
        return input @ self.weight + self.bias
""",
            "They lie around 0, and too near to it or too far out. `torch.randn` has a standard deviation of 1 as it is.",
        ),
        Mistake(
            "uniform draw",
            """
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(in_features, out_features))
        self.bias = nn.Parameter(torch.rand(out_features))

    def forward(self, input):
        return input @ self.weight + self.bias
""",
            "`torch.rand` draws between 0 and 1, all alike; `torch.randn` draws from the normal distribution, around 0.",
        ),
        *initialization.mistakes(
            late="""
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))
        super().__init__()

    def forward(self, input):
        return input @ self.weight + self.bias
""",
            never="""
class Affine(nn.Module):
    def __init__(self, in_features, out_features):
        self.weight = nn.Parameter(torch.randn(in_features, out_features))
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, input):
        return input @ self.weight + self.bias
""",
        ),
    ),
    hints=(
        "Three things make a module: what the constructor calls first, what it assigns, and what `forward` returns.",
        "`nn.Parameter(torch.randn(rows, columns))` is a matrix that will be learned. Which sizes must `input @ weight` have?",
        "The constructor begins with `super().__init__()`, then assigns `self.weight` and `self.bias`; `forward` returns one line.",
    ),
    minutes=6,
    matters="Every layer of `torch.nn` is made this way: parameters in the constructor, a function of them in `forward`.",
)


def _stateless(answer: Any) -> None:
    """it owns nothing"""
    require_module_class(answer, "Square")
    square = initialization.made(answer)
    owned = [name for name, _ in square.named_parameters()]
    if owned:
        fail(mistake="it owns a parameter", expected=[], got=owned, evidence=modlab.tree(square))
    _owns_no_tensor(square)
    square(torch.randn(3))
    _owns_no_tensor(square)


def _owns_no_tensor(square: nn.Module) -> None:
    kept = [f"{path}.{name}".lstrip(".") for path, part in square.named_modules() for name, one in vars(part).items() if _has_tensor(one)]
    kept += [name for name, _ in square.named_buffers()]
    if kept:
        fail(mistake="it keeps a tensor", expected=[], got=kept, evidence=modlab.state(square))


def _has_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(isinstance(one, torch.Tensor) for one in value)
    return isinstance(value, torch.Tensor)


def _differentiable(answer: Any) -> None:
    """a gradient goes through it"""
    x = torch.randn(3, requires_grad=True)
    y = answer()(x)
    if y.grad_fn is None:
        fail(mistake="cut off from autograd", expected="an output with a grad_fn", got="an output without one")
    y.sum().backward()
    require_equal(x.grad, 2 * x, "The slope of a square is twice the number, and what came back is something else.")


def _squares(answer: Any) -> None:
    """it gives the square of each number"""
    x = torch.randn(3, 4)
    before = x.clone()
    got = answer()(x)
    if got is None:
        fail(mistake="nothing returned", expected="a tensor of shape (3, 4)", got=None)
    if not torch.equal(x, before):
        fail(mistake="it changes its input", expected=before[0], got=x[0])
    require_equal(got, before**2, "It gives something other than the squares.")


SQUARE = Task(
    "Square",
    "Write `Square`, a module without any state, which squares each number of its input.",
    starter="""
class Square(nn.Module):
    def forward(self, input):
        ...
""",
    reference="""
class Square(nn.Module):
    def forward(self, input):
        return input**2
""",
    probes=(_stateless, _squares, _differentiable),
    mistakes=(
        Mistake(
            "it owns a parameter",
            """
class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.power = nn.Parameter(torch.tensor(2.0))

    def forward(self, input):
        return input**self.power
""",
            "The exponent became a parameter, so training would change it. What is not learned needs none.",
        ),
        Mistake(
            "no super().__init__()",
            """
class Square(nn.Module):
    def __init__(self):
        self.power = 2

    def forward(self, input):
        return input**self.power
""",
            "A constructor of your own begins with `super().__init__()`, which makes the registers that each module has, full or empty.",
            belief=4,
        ),
        Mistake(
            "it keeps a tensor",
            """
class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("power", torch.tensor(2.0))

    def forward(self, input):
        return input**self.power
""",
            "It holds a tensor, and should be without any state. The exponent can be a plain number in `forward`.",
        ),
        Mistake(
            "nothing returned",
            """
class Square(nn.Module):
    def forward(self, input):
        input**2
""",
            "`forward` gives nothing back: it is not written yet, or its `return` is missing.",
        ),
        Mistake(
            "cut off from autograd",
            """
class Square(nn.Module):
    def forward(self, input):
        return input.detach() ** 2
""",
            "The numbers are right, but nothing before it can learn: `detach()`, `.data` and `no_grad` hide the input from autograd.",
        ),
        Mistake(
            "it changes its input",
            """
class Square(nn.Module):
    def forward(self, input):
        return input.mul_(input)
""",
            "Methods that end in an underscore work in place: they wrote over the caller's tensor. Make a new one.",
        ),
    ),
    hints=("A module need not have a constructor at all: `nn.Module`'s own will do.",),
    minutes=3,
    matters="Without any state, a module still has a place in the tree, a name and hooks; that is why activations are modules.",
)

GRAPH = Drawing(
    "the graph of backward",
    "Forward, x is multiplied by the weight, the bias is added, and sum() makes one number. Each step leaves a grad_fn. "
    "Backward goes the other way: from the grad_fn of the sum to that of the addition, which fills bias.grad, "
    "and on to that of the product, which fills weight.grad.",
    {
        "x": Vertex("x", (0, 0), look="tensor"),
        "product": Vertex("x @ weight", (1, 0)),
        "addition": Vertex("+ bias", (2, 0)),
        "sum": Vertex("y.sum()", (3, 0)),
        "for product": Vertex("MmBackward0", (1, 1)),
        "for addition": Vertex("AddBackward0", (2, 1)),
        "for sum": Vertex("SumBackward0", (3, 1), look="main"),
        "weight": Vertex("weight.grad", (1, 2), look="tensor"),
        "bias": Vertex("bias.grad", (2, 2), look="tensor"),
    },
    [
        Arrow("x", "product"),
        Arrow("product", "addition"),
        Arrow("addition", "sum"),
        Arrow("sum", "for sum", "backward()"),
        Arrow("for sum", "for addition"),
        Arrow("for addition", "for product"),
        Arrow("for addition", "bias"),
        Arrow("for product", "weight"),
    ],
)

LESSON = Content(
    name="01_a_module",
    title="A module is a callable that owns tensors",
    goal="write a module, say what it owns, and say what happens when it is called",
    minutes=20,
    after=("00_tour",),
    predictions=PREDICTIONS,
    reasons=REASONS,
    recalls=RECALLS,
    tasks=(AFFINE, SQUARE),
    drawings=(GRAPH,),
)
