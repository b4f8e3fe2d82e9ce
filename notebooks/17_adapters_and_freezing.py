"""17: freezing, and adapters of low rank: what learns, what moves all the same, what is saved."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

import modlab
from modlab.lessons import initialization
from modlab.lessons.checking import fail, require_callable, require_module_class, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Several
from modlab.lessons.networks import LowRank

# ---- what the questions are proved with -----------------------------------------------------------


def _moved_though_frozen() -> int:
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2)).requires_grad_(False)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert len(before) == 9
    for _ in range(5):
        net(torch.randn(8, 4))
    return sum(not torch.equal(value, before[name]) for name, value in net.state_dict().items())


def _stepped(gradient: float | None, *, momentum: float = 0.0, weight_decay: float = 0.0) -> bool:
    """Whether a step moves a weight that learned before, and then was frozen."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = SGD([weight], lr=0.1, momentum=momentum, weight_decay=weight_decay)
    weight.grad = torch.ones(1)
    optimizer.step()
    before = weight.item()
    weight.requires_grad_(False)
    weight.grad = None if gradient is None else torch.tensor([gradient])
    optimizer.step()
    return weight.item() != before


def _moves() -> list[str]:
    moved = {
        "a": _stepped(None, momentum=0.9, weight_decay=0.1),
        "b": _stepped(0.0),
        "c": _stepped(0.0, weight_decay=0.1),
        "d": _stepped(0.0, momentum=0.9),
    }
    return [letter for letter, moves in moved.items() if moves]


def _trained() -> int:
    return sum(parameter.numel() for parameter in LowRank(nn.Linear(64, 64), 4).parameters() if parameter.requires_grad)


def _first_gradients() -> str:
    layer = LowRank(nn.Linear(8, 6), 2)
    layer(torch.randn(5, 8)).square().sum().backward()
    present = [one.grad is not None and bool(one.grad.any()) for one in (layer.A, layer.B)]
    return {(True, False): "a", (False, True): "b", (True, True): "c", (False, False): "d"}[present[0], present[1]]


def _pair() -> tuple[nn.Sequential, nn.Sequential]:
    """A plain net, and one with two adapters."""
    plain = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    return plain, nn.Sequential(LowRank(nn.Linear(4, 3), 2), nn.ReLU(), LowRank(nn.Linear(3, 2), 2))


def _adapters(net: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in net.state_dict().items() if name.endswith((".A", ".B"))}


def _missing() -> int:
    _, adapted = _pair()
    return len(adapted.load_state_dict(_adapters(adapted), strict=False).missing_keys)


def _into_plain() -> str:
    plain, adapted = _pair()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    try:
        plain.load_state_dict(_adapters(adapted), strict=False)
    except RuntimeError:
        return "c"
    return "b" if all(torch.equal(value, before[name]) for name, value in plain.state_dict().items()) else "a"


def _both_zero() -> str:
    layer = LowRank(nn.Linear(4, 3), 2)
    nn.init.zeros_(layer.A)
    optimizer = SGD([layer.A, layer.B], lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        layer(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
    return "c" if not layer.A.any() and not layer.B.any() else "a"


def _flag_on_the_module() -> int:
    layer = nn.Linear(4, 3)
    layer.requires_grad = False  # type: ignore[assignment]
    return sum(not parameter.requires_grad for parameter in layer.parameters())


# ---- questions ------------------------------------------------------------------------------------

PREDICTIONS = (
    Question(
        "a frozen net",
        "The net is in training mode, all its parameters are frozen, and five calls follow. How many of its nine saved tensors change?",
        Number(),
        3,
        "The two running statistics and the count of batches: buffers, moved by `forward` and not by the optimizer.",
        wrong=(
            Wrong(0, "So many people think. `requires_grad_(False)` is about parameters, and a BatchNorm has buffers too.", belief=20),
            Wrong(2, "Close: `num_batches_tracked` counts, too.", belief=20),
            Wrong(5, "Weight and bias of the BatchNorm are parameters, and frozen. The other three tensors of it are buffers."),
        ),
        proof=_moved_though_frozen,
    ),
    Question(
        "frozen and moved",
        "A weight has learned with an optimizer, and is frozen then. Its next `step()`: in which cases does it move the weight?",
        Several(
            "`.grad` is `None`; with momentum and weight decay",
            "`.grad` is zero; plain SGD",
            "`.grad` is zero; with weight decay",
            "`.grad` is zero; with momentum",
        ),
        ("c", "d"),
        "An optimizer looks at `.grad`, not at `requires_grad`. Where there is one, even of zeros, decay and momentum go on.",
        wrong=(
            Wrong((), "The optimizer holds the weight still, and asks nobody whether it is frozen.", belief=23),
            Wrong("c", "Momentum is the memory of earlier gradients: it goes on for a while, also without new ones.", belief=23),
            Wrong("d", "Weight decay takes a share of the weight in each step, whatever the gradient is.", belief=23),
            Wrong("a c d", "Without a gradient, a weight is skipped: no decay, no momentum.", belief=23),
            Wrong("a b c d", "Zero times the learning rate is zero; and a weight whose `.grad` is `None` is skipped.", belief=23),
        ),
        proof=_moves,
    ),
    Question(
        "numbers that learn",
        "The layer is `nn.Linear(64, 64)`, with 4,160 numbers. How many numbers learn with an adapter of rank 4?",
        Number(),
        512,
        "`A` has 4 × 64 numbers, and `B` has 64 × 4. The 4,160 stay as they are.",
        wrong=(
            Wrong(256, "That is one of the two matrices: `A` is 4 × 64, and `B` is 64 × 4."),
            Wrong(16, "The rank is the narrow side only. The other side is as long as the layer is wide."),
            Wrong(4672, "That counts the layer as well, and its numbers are frozen."),
            Wrong(4096, "The product of `B` and `A` has so many entries, but it is never learned entry by entry."),
        ),
        proof=_trained,
    ),
    Question(
        "the first gradients",
        "`A` is random and `B` is zero. After the first `backward`: which gradients have anything but zeros?",
        Choice("that of `A` alone", "that of `B` alone", "both", "none: the adapter adds nothing"),
        "b",
        "On its way to `A` the gradient is multiplied by `B`, and that is zero. From the second step on both learn.",
        wrong=(
            Wrong("a", "The other way round: what reaches `A` has come through `B`, and `B` is zero."),
            Wrong("c", "So it is from the second step on. In the first one, `B` stands between the loss and `A`, and is zero."),
            Wrong("d", "It adds zero, but if `B` were a little different it would not. That is what a gradient says."),
        ),
        proof=_first_gradients,
    ),
    Question(
        "missing keys",
        "The net has two adapters, each beside a layer with weight and bias. A file holds the adapters only. "
        "How many keys does `load_state_dict(file, strict=False)` report as missing?",
        Number(),
        4,
        "Weight and bias of the two frozen layers. They are already in the net, so here nothing is wrong.",
        wrong=(
            Wrong(0, "It loads what there is, and lists what it did not find in the file: the frozen layers.", belief=15),
            Wrong(2, "Each of the two layers has a weight and a bias."),
            Wrong(8, "That is all the net has. `A` and `B` of each adapter are in the file."),
        ),
        proof=_missing,
    ),
    Question(
        "an adapter without a place",
        "The same file, and `plain.load_state_dict(file, strict=False)` on the net without adapters. What happens?",
        Choice("the adapters are added to the net", "nothing changes, and nothing is raised", "an error is raised"),
        "b",
        "A state holds numbers, and makes no modules. The names fit nowhere, and `strict=False` says so only in what it returns.",
        wrong=(
            Wrong("a", "`load_state_dict` fills tensors that are there; it never makes a module.", belief=15),
            Wrong("c", "That is what `strict=True` is for.", belief=15),
        ),
        proof=_into_plain,
    ),
)

RECALLS = (
    Question(
        "both at zero",
        "Somebody starts `A` and `B` both at zero. What does training do?",
        Choice("it is slow at first", "`B` learns, and `A` does not", "nothing: both stay at zero"),
        "c",
        "The gradient of `B` is multiplied by `A`, and that of `A` by `B`. If both are zero, so are both gradients, for ever.",
        wrong=(
            Wrong("a", "It never begins: each needs the other to be different from zero."),
            Wrong("b", "`B` needs `A` for its gradient, and `A` is zero."),
        ),
        proof=_both_zero,
    ),
    Question(
        "in the file",
        "Somebody has the same frozen net. What must your file hold, so that they get your adapted net?",
        Several("`A` and `B` of each adapter", "the frozen weights", "the gradients", "BatchNorm's buffers, if they have moved"),
        ("a", "d"),
        "What has changed: the adapters, and any buffer that moved along. All else they have.",
        wrong=(
            Wrong("a", "If the net has a BatchNorm in training mode, its statistics have moved, frozen or not.", belief=20),
            Wrong("a b d", "That works, but the frozen weights make the file large, and everybody has them already."),
            Wrong("a b c d", "Gradients are never needed to use a net, and the frozen weights are there already."),
        ),
    ),
    Question(
        "a flag on the module",
        "From lesson 05: after `layer.requires_grad = False` on an `nn.Linear`, how many of its two parameters are frozen?",
        Number(),
        0,
        "That makes an attribute of the module, which nobody reads. `requires_grad_(False)`, with an underscore, freezes.",
        wrong=(Wrong(2, "The line sets a plain attribute on the *module*. Its parameters have flags of their own.", belief=24),),
        proof=_flag_on_the_module,
    ),
)

# ---- task: an adapter ------------------------------------------------------------------------------


def _adapter(answer: Any, outputs: int = 6, *, bias: bool = True) -> tuple[Any, nn.Linear]:
    """One of the learner's, around a layer, and a copy of that layer."""
    require_module_class(answer, "LoRA")
    layer, copy = nn.Linear(8, outputs, bias=bias), nn.Linear(8, outputs, bias=bias)
    copy.load_state_dict(layer.state_dict())
    return initialization.made(answer, layer, 2), copy


def _born(answer: Any) -> None:
    """at birth it gives what the layer gives, for any number of inputs"""
    for bias in (True, False):
        adapter, layer = _adapter(answer, bias=bias)
        for shape in ((5, 8), (2, 3, 8), (8,)):
            x = torch.randn(*shape)
            got, wanted = adapter(x), layer(x)
            if not isinstance(got, Tensor) or got.shape != wanted.shape:
                fail("The output should have the shape of the layer's.", expected=tuple(wanted.shape), got=tuple(getattr(got, "shape", ())))
            if not same(got, wanted):
                fail(mistake="B is not zero", expected=wanted.flatten()[:4], got=got.flatten()[:4])


def _owns(answer: Any) -> None:
    """`A` and `B` learn, and nothing else does"""
    adapter, _ = _adapter(answer)
    parameters = dict(adapter.named_parameters())
    if not {"A", "B"} <= {*parameters}:
        mistake = "plain tensors" if all(isinstance(getattr(adapter, name, None), Tensor) for name in "AB") else ""
        fail("It should have parameters `A` and `B`.", mistake=mistake, got=[*parameters], evidence=modlab.tree(adapter))
    for name, shape in (("A", (2, 8)), ("B", (6, 2))):
        if tuple(parameters[name].shape) != shape:
            fail(f"`{name}` has a different shape, for 8 inputs, 6 outputs and rank 2.", expected=shape, got=tuple(parameters[name].shape))
    learning = [name for name, parameter in parameters.items() if parameter.requires_grad]
    if learning != ["A", "B"] and sorted(learning) != ["A", "B"]:
        fail(mistake="the layer learns too", expected=["A", "B"], got=learning, evidence=modlab.tree(adapter))


def _learns(answer: Any) -> None:
    """after training, the output is that of the layer plus x · A' · B'"""
    adapter, layer = _adapter(answer)
    optimizer = SGD([one for one in adapter.parameters() if one.requires_grad], lr=0.05)
    before = adapter.A.detach().clone(), adapter.B.detach().clone()
    x = torch.randn(32, 8)
    for _ in range(5):
        optimizer.zero_grad()
        (adapter(x) - 1).square().mean().backward()
        optimizer.step()
    if same(adapter.A, before[0]) and same(adapter.B, before[1]):
        fail(
            mistake="both are zero" if not before[0].any() else "", expected="A and B move", got="they stay", evidence=modlab.state(adapter)
        )
    with torch.no_grad():
        wanted = layer(x) + x @ adapter.A.mT @ adapter.B.mT
        if not same(adapter(x), wanted):
            fail("The output should be that of the layer plus `x @ A.mT @ B.mT`.", expected=wanted[0, :4], got=adapter(x)[0, :4])


def _passes_back(answer: Any) -> None:
    """the gradient goes on to what stands in front, through the layer too"""
    adapter, layer = _adapter(answer)
    x, y = torch.randn(3, 8, requires_grad=True), torch.randn(3, 8, requires_grad=True)
    with torch.no_grad():
        y.copy_(x)
    adapter(x).sum().backward()
    layer(y).sum().backward()
    if x.grad is None or not same(x.grad, y.grad):
        got = "no gradient" if x.grad is None else x.grad[0, :4]
        fail(mistake="no_grad around the layer", expected=y.grad[0, :4] if y.grad is not None else "", got=got)


FIRST = "super().__init__()"
LAYER = "self.linear = linear.requires_grad_(False)"
A = "self.A = nn.Parameter(torch.randn(rank, linear.in_features))"
B = "self.B = nn.Parameter(torch.zeros(linear.out_features, rank))"
SUM = "return self.linear(x) + x @ self.A.mT @ self.B.mT"


def _lora(*init: str, forward: tuple[str, ...] = (SUM,)) -> str:
    constructor, body = ("\n".join(f"        {line}" for line in lines) for lines in (init, forward))
    return f"""
class LoRA(nn.Module):
    def __init__(self, linear, rank):
{constructor}

    def forward(self, x):
{body}
"""


LORA = Task(
    "LoRA",
    "Write `LoRA(linear, rank)`: a module with the frozen layer and two parameters `A` and `B`, whose output is at first the layer's.",
    starter="""
class LoRA(nn.Module):
    ...
""",
    reference=_lora(FIRST, LAYER, A, B),
    probes=(_born, _owns, _learns, _passes_back),
    mistakes=(
        Mistake(
            "B is not zero",
            _lora(FIRST, LAYER, A, "self.B = nn.Parameter(torch.randn(linear.out_features, rank))"),
            "A net that was trained should not change when it gets an adapter. Start `B` at zero: then the adapter adds nothing at first.",
        ),
        Mistake(
            "both are zero",
            _lora(FIRST, LAYER, "self.A = nn.Parameter(torch.zeros(rank, linear.in_features))", B),
            "With both at zero, both gradients are zero too, and stay so. One of the two must be random: `A`.",
        ),
        Mistake(
            "the layer learns too",
            _lora(FIRST, "self.linear = linear", A, B),
            "The layer's weight and bias still learn. `linear.requires_grad_(False)` freezes both, and returns the layer.",
            belief=24,
        ),
        Mistake(
            "plain tensors",
            _lora(FIRST, LAYER, "self.A = torch.randn(rank, linear.in_features)", "self.B = torch.zeros(linear.out_features, rank)"),
            "A plain tensor is not registered: no optimizer gets it, and no file holds it. Wrap both in `nn.Parameter`.",
            belief=8,
        ),
        Mistake(
            "no_grad around the layer",
            _lora(
                FIRST,
                LAYER,
                A,
                B,
                forward=("with torch.no_grad():", "    fixed = self.linear(x)", "return fixed + x @ self.A.mT @ self.B.mT"),
            ),
            "Frozen weights need no gradient, but adapters further in front do, and theirs comes back through this layer. "
            "`no_grad` cuts the way off.",
            belief=18,
        ),
        *initialization.mistakes(late=_lora(LAYER, A, B, FIRST), never=_lora(LAYER, A, B)),
    ),
    hints=(
        "`linear.requires_grad_(False)` freezes the layer and returns it, so one line can freeze and keep it.",
        "`A` is `(rank, in_features)` and random; `B` is `(out_features, rank)` and zero. Both are an `nn.Parameter`.",
        "The output is `self.linear(x) + x @ self.A.mT @ self.B.mT`.",
    ),
    minutes=6,
    matters="Libraries for adapters do just this for each layer that you name; now you can read their state_dict.",
)

# ---- task: merge -----------------------------------------------------------------------------------


def _learned(outputs: int = 6, *, bias: bool = True) -> LowRank:
    layer = LowRank(nn.Linear(8, outputs, bias=bias), 2)
    nn.init.normal_(layer.B)
    return layer


def _merged(answer: Any, layer: LowRank) -> nn.Linear:
    require_callable(answer, "merge")
    inputs = layer.linear.in_features
    try:
        merged = answer(layer)
    except RuntimeError as error:
        if "size" in str(error) or "shape" in str(error):
            fail(str(error), mistake="A before B")
        raise
    if merged is None:
        fail("It returns nothing: give the new layer.", expected="an nn.Linear", got="None")
    if not isinstance(merged, nn.Linear):
        fail("The result should be a plain `nn.Linear`.", expected="an nn.Linear", got=f"a {type(merged).__name__}")
    if merged.in_features != inputs or merged.weight.shape != layer.linear.weight.shape:
        fail("It should have the shape of the layer.", expected=tuple(layer.linear.weight.shape), got=tuple(merged.weight.shape))
    return merged


def _one_layer(answer: Any) -> None:
    """one plain layer gives what layer and adapter give together"""
    for outputs, bias in ((6, True), (8, True), (6, False)):
        layer = _learned(outputs, bias=bias)
        x = torch.randn(5, 8)
        with torch.no_grad():
            wanted, plain, product = layer(x), layer.linear(x), layer.B @ layer.A
            merged = _merged(answer, layer)
            got = merged(x)
            if same(got, wanted, 1e-4):
                continue
            mistake = ""
            if same(got, plain, 1e-4):
                mistake = "the adapter is lost"
            elif same(merged.weight, product, 1e-4):
                mistake = "only the adapter"
            elif outputs == 8 and same(merged.weight, layer.linear.weight + layer.A.mT @ layer.B.mT, 1e-4):
                mistake = "A before B"
            elif same(merged.weight, layer.linear.weight + product, 1e-4):
                mistake = "the bias is lost"
        fail("The merged layer gives something else.", mistake=mistake, expected=wanted[0, :4], got=got[0, :4])


def _leaves_it(answer: Any) -> None:
    """and the adapted layer is as it was"""
    layer = _learned()
    before, x = modlab.snapshot(layer), torch.randn(5, 8)
    wanted = layer(x)
    merged = _merged(answer, layer)
    if merged is layer.linear or not same(layer(x), wanted):
        fail(mistake="merged in place", evidence=modlab.diff(before, layer), expected=wanted[0, :4], got=layer(x)[0, :4])


def _merge(*lines: str) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"""
def merge(layer):
{body}
"""


COPY = "merged = copy.deepcopy(layer.linear)"
ADD = "merged.weight.data += layer.B.data @ layer.A.data"

MERGE = Task(
    "merge",
    "Write `merge(layer)`: a new `nn.Linear` that gives what the `LowRank` layer gives.",
    starter=_merge("..."),
    reference=_merge(COPY, "with torch.no_grad():", "    merged.weight += layer.B @ layer.A", "return merged"),
    given="import copy",
    probes=(_one_layer, _leaves_it),
    mistakes=(
        Mistake(
            "merged in place",
            _merge("layer.linear.weight.data += layer.B.data @ layer.A.data", "return layer.linear"),
            "You changed the layer itself, so the adapted layer now adds its adapter twice. Work on a copy: `copy.deepcopy(layer.linear)`.",
        ),
        Mistake(
            "A before B",
            _merge(COPY, "merged.weight.data += layer.A.data @ layer.B.data", "return merged"),
            "`weight` is (out, in), so the product is `B @ A`: (out, rank) times (rank, in).",
            belief=32,
        ),
        Mistake(
            "only the adapter",
            _merge(COPY, "merged.weight.data = layer.B.data @ layer.A.data", "return merged"),
            "The adapter is a *change* of the weight: add it to what is there.",
        ),
        Mistake(
            "the adapter is lost",
            _merge(COPY, "weight = merged.weight + layer.B @ layer.A", "return merged"),
            "The sum is in a variable of your function, and the layer has its old weight. Write it into the weight, under `no_grad`.",
        ),
        Mistake(
            "the bias is lost",
            _merge(
                "out, in_ = layer.linear.weight.shape",
                "merged = nn.Linear(in_, out, bias=False)",
                "merged.weight.data = layer.linear.weight.data + layer.B.data @ layer.A.data",
                "return merged",
            ),
            "The frozen layer may have a bias, or none, and the merged one needs the same: a copy of the layer has it.",
        ),
    ),
    hints=(
        "`layer.linear(x)` is `x @ W.mT + bias`, and the adapter adds `x @ A.mT @ B.mT`. Put the two products together.",
        "The new weight is `W + B @ A`. Begin with `copy.deepcopy(layer.linear)`.",
    ),
    minutes=4,
    matters="A merged layer costs no more than the plain one, and the adapter's small file can still be handed on.",
)

LESSON = Content(
    name="17_adapters_and_freezing",
    title="Adapters and freezing",
    goal="freeze a net for good, give it an adapter that learns, and save and merge only what has changed",
    minutes=20,
    after=("05_training_loop", "06_modes", "08_save_load_repair"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(LORA, MERGE),
)
