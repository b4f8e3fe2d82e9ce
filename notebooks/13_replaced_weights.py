"""13: replaced weights: where a weight goes when it is pruned, parametrized or quantized."""

from __future__ import annotations

import io
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

import modlab
from modlab.lessons.checking import fail, require_callable, require_equal, require_module_class, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Number, Several, YesNo

# ---- questions ------------------------------------------------------------------------------------

QUANTIZATION = "torch.ao.quantization.quantize_dynamic"


class Symmetric(nn.Module):
    """The upper half of a matrix, mirrored; as in the notebook."""

    def forward(self, half: Tensor) -> Tensor:
        """(n, n) → (n, n)."""
        return half.triu() + half.triu(1).mT


def _pruned(size: int = 200, amount: float = 0.5) -> nn.Linear:
    m = nn.Linear(size, size)
    prune.l1_unstructured(m, "weight", amount=amount)  # type: ignore[no-untyped-call]
    return m


def _parametrized() -> nn.Linear:
    m = nn.Linear(3, 3)
    parametrize.register_parametrization(m, "weight", Symmetric())
    return m


def _quantized(size: int = 200) -> nn.Sequential:
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made: nn.Sequential = quantize_dynamic(nn.Sequential(nn.Linear(size, size)), {nn.Linear}, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    return made


def _bytes(m: nn.Module) -> int:
    file = io.BytesIO()
    torch.save(m.state_dict(), file)
    return file.getbuffer().nbytes


def _names_after_pruning() -> list[str]:
    state, names = _pruned().state_dict(), ("weight", "weight_orig", "weight_mask", "bias")
    return [letter for letter, name in zip("abcd", names, strict=True) if name in state]


def _file_after_pruning() -> str:
    plain, pruned = _bytes(nn.Linear(200, 200)), _bytes(_pruned())
    return "a" if pruned < 0.9 * plain else "b" if pruned < 1.1 * plain else "c"


def _zeros_after_a_step() -> int:
    torch.manual_seed(0)
    m = _pruned(4)
    prune.remove(m, "weight")  # type: ignore[no-untyped-call]
    m(torch.randn(5, 4)).sum().backward()
    torch.optim.SGD(m.parameters(), lr=0.1).step()
    return int((m.weight == 0).sum())


def _is_the_optimizers() -> bool:
    m = nn.Linear(3, 3)
    old = m.weight
    parametrize.register_parametrization(m, "weight", Symmetric())
    return m.parametrizations.weight.original is old  # type: ignore[union-attr]


def _assigned() -> str:
    m = _parametrized()
    try:
        m.weight = torch.zeros(3, 3)
    except RuntimeError:
        return "b"
    return "a"


PREDICTIONS = (
    Question(
        "keys after pruning",
        "Half of the weight is pruned away. Which keys does `m.state_dict()` have then?",
        Several("`weight`", "`weight_orig`", "`weight_mask`", "`bias`"),
        ("b", "c", "d"),
        "The parameter has a new name, `weight_orig`; a buffer, `weight_mask`, says what is kept; and `weight` is computed from the two.",
        wrong=(
            Wrong("a d", "So it is when the pruning is made permanent. Until then nothing is lost: the old values stay, beside a mask."),
            Wrong("a c d", "The parameter is renamed: what stands under `weight` is computed, and not saved.", belief=8),
            Wrong("a b c d", "`weight` is there as an attribute, computed from the two others; it is not an entry.", belief=8),
            Wrong("b d", "The mask is a buffer, and buffers are saved.", belief=11),
        ),
        proof=_names_after_pruning,
    ),
    Question(
        "the file after pruning",
        "The file of the whole layer is 163 kB. How large is it with half of the weight pruned away?",
        Choice("about 82 kB", "163 kB, as before", "about 323 kB"),
        "c",
        "All old values are in it, and a mask of the same size: a number of 4 bytes for each weight.",
        wrong=(
            Wrong("a", "A pruned weight is a zero, and a zero takes as many bytes as any other number."),
            Wrong("b", "The values take what they took; and the mask comes in addition."),
        ),
        proof=_file_after_pruning,
    ),
    Question(
        "zeros that learn",
        "Eight of sixteen weights are pruned, and `remove` made it permanent. How many are zero after one training step?",
        Number(),
        0,
        "Without the mask they are weights like all others: each gets a gradient, and moves.",
        wrong=(
            Wrong(8, "The mask kept them at zero. `remove` has taken the mask away."),
            Wrong(16, "A step moves weights; it does not clear them."),
        ),
        proof=_zeros_after_a_step,
    ),
    Question(
        "the earlier optimizer",
        "The optimizer was made *before* the parametrization. Does it still move the layer's weight?",
        YesNo(),
        True,
        "`original` is the very tensor that was `weight`: the optimizer has held it all the time.",
        wrong=(Wrong(False, "Only the name changed. The optimizer does not know names: it holds the tensor, which is now `original`."),),
        proof=_is_the_optimizers,
    ),
    Question(
        "assign to a parametrized weight",
        "What does `layer.weight = torch.zeros(3, 3)` do?",
        Choice("it sets `original` so that the weight is zero", "it raises a `RuntimeError`", "it takes the parametrization off"),
        "b",
        "To set `original`, PyTorch needs the way back: a method `right_inverse`, which `Symmetric` has not.",
        wrong=(
            Wrong("a", "For that it would have to know which `original` gives this weight. `Symmetric` knows only the other direction."),
            Wrong("c", "That is done by `parametrize.remove_parametrizations`; an assignment never does it."),
        ),
        proof=_assigned,
    ),
    Question(
        "parameters of a quantized layer",
        "How many parameters does a linear layer have after dynamic quantization?",
        Number(),
        0,
        "The weight is packed together with the bias, in a format of its own, which is no `nn.Parameter`. So it cannot be trained either.",
        wrong=(
            Wrong(2, "Weight and bias are there, but packed: `parameters()` does not find them."),
            Wrong(1, "Packed they are one thing, but it is not a parameter."),
        ),
        proof=lambda: len(list(_quantized().parameters())),
        needs=QUANTIZATION,
    ),
)

RECALLS = (
    Question(
        "which hides where",
        "A table shows an entry `parametrizations.weight.original`. Which tensor does the optimizer move?",
        Choice("that one", "`weight`", "both"),
        "a",
        "It is the parameter; `weight` is computed from it.",
        wrong=(
            Wrong("b", "`weight` is a result of that one, and no parameter."),
            Wrong("c", "There is one parameter; the other is computed from it."),
        ),
    ),
    Question(
        "what makes smaller",
        "Which of these makes the file of a layer smaller?",
        Several("pruning half of the weight", "`prune.remove` after it", "dynamic quantization to `qint8`"),
        ("c",),
        "Pruning adds a mask, `remove` takes it away again; only quantization stores each weight in fewer bytes.",
        wrong=(
            Wrong("a c", "Pruning keeps all values, and adds a mask."),
            Wrong("a b c", "Pruning keeps all values, and adds a mask; `remove` leads back to the first size, not below it."),
            Wrong("b c", "`remove` leads back to the first size, not below it."),
        ),
    ),
    Question(
        "mask in the store",
        "From lesson 12: in which store is `weight_mask`?",
        Choice("`_parameters`", "`_buffers`", "`_forward_pre_hooks`"),
        "b",
        "It is not learned, and it is saved and moved with the layer: a buffer.",
        wrong=(
            Wrong("a", "Then an optimizer would train it. What is not learned and yet saved is a buffer.", belief=8),
            Wrong("c", "There is the hook that multiplies with it. The mask itself is a tensor."),
        ),
        belief=8,
        proof=lambda: "b" if "weight_mask" in _pruned()._buffers else "a",
    ),
)

# ---- the first task: halve ---------------------------------------------------------------------------


def _layers() -> dict[str, Any]:
    return {"a linear layer": nn.Linear(6, 8), "a convolution": nn.Conv2d(2, 4, 3), "a layer without bias": nn.Linear(10, 4, bias=False)}


def _halved(answer: Any, layer: Any) -> Tensor:
    """The weight after the learner's function, given back by it or changed in place."""
    require_callable(answer, "halve")
    answer(layer)
    if not isinstance(getattr(layer, "weight", None), Tensor):
        fail("After it the layer has no `weight` any more.", expected="a parameter `weight`", got="none", evidence=modlab.state(layer))
    weight: Tensor = layer.weight
    return weight.detach()


def _half_is_zero(answer: Any) -> None:
    """half of the weight is zero: the smaller half"""
    for what, layer in _layers().items():
        before = layer.weight.detach().clone()
        got = _halved(answer, layer)
        if got.shape != before.shape:
            fail(f"This is {what}.", mistake="expected it to be smaller", expected=tuple(before.shape), got=tuple(got.shape))
        zeros, half = int((got == 0).sum()), before.numel() // 2
        if zeros == 0:
            fail(
                f"Of {what}, the very one that was given, no weight is zero.",
                expected=f"{half} zeros of {before.numel()}",
                got=0,
                evidence=modlab.state(layer),
            )
        if zeros != half:
            fail(f"This is {what}.", mistake="another share", expected=f"{half} zeros of {before.numel()}", got=f"{zeros} zeros")
        smallest = torch.zeros(before.numel(), dtype=torch.bool)
        smallest[before.abs().flatten().argsort()[:half]] = True
        if not bool((got == 0).flatten()[smallest].all()):
            signed = before.flatten().argsort()[:half]
            mistake = "smallest by sign" if bool((got.flatten()[signed] == 0).all()) else "another half"
            fail(f"This is {what}.", mistake=mistake, expected="the half with the smallest magnitude", got="another half")
        kept = ~smallest.reshape(before.shape)
        require_equal(got[kept], before[kept], f"Of {what}, weights that should be kept have other values.", evidence=modlab.state(layer))


def _permanent(answer: Any) -> None:
    """it is permanent: the keys are the old ones, and nothing hangs on the layer"""
    for what, layer in _layers().items():
        expected = sorted(layer.state_dict())
        _halved(answer, layer)
        got = sorted(layer.state_dict())
        if "weight_mask" in got or (layer._forward_pre_hooks and got != expected):
            fail(f"This is {what}.", mistake="the mask left on", expected=expected, got=got, evidence=modlab.state(layer))
        require_equal(got, expected, f"Of {what}, the keys are others.", evidence=modlab.state(layer))
        if layer._forward_pre_hooks:
            fail(f"Of {what}, a hook is left on.", expected="no hook", got="a forward pre-hook", evidence=modlab.hooks(layer))
        if not isinstance(layer.weight, nn.Parameter):
            fail(f"Of {what}, the weight is not a parameter.", expected="an nn.Parameter", got="a tensor", evidence=modlab.state(layer))


def _rest(answer: Any) -> None:
    """the bias stays, and the layer can be trained on"""
    layer = nn.Linear(6, 8)
    before = layer.bias.detach().clone()
    _halved(answer, layer)
    if not same(layer.bias, before):
        fail(mistake="the bias, too", expected=before, got=layer.bias, evidence=modlab.state(layer))
    layer(torch.randn(3, 6)).sum().backward()
    if layer.weight.grad is None:
        fail("The weight no longer gets a gradient.", expected="a gradient", got=None, evidence=modlab.state(layer))


def _halve(*lines: str) -> str:
    return "\ndef halve(layer):\n" + "".join(f"    {line}\n" for line in lines)


HALVE = Task(
    "halve",
    "Write `halve(layer)`: it sets the half of `layer.weight` with the smallest magnitude to zero, for good. Names, shapes and bias stay.",
    starter="""
def halve(layer):
    ...
""",
    reference=_halve('prune.l1_unstructured(layer, "weight", amount=0.5)', 'prune.remove(layer, "weight")'),
    probes=(_half_is_zero, _permanent, _rest),
    mistakes=(
        Mistake(
            "the mask left on",
            _halve('prune.l1_unstructured(layer, "weight", amount=0.5)'),
            "Mask and old values are still there, so the file is twice as large. One more line makes it permanent.",
        ),
        Mistake(
            "expected it to be smaller",
            _halve(
                "weight = layer.weight.detach().flatten()",
                "kept = weight[weight.abs().argsort(descending=True)[: len(weight) // 2]]",
                "layer.weight = nn.Parameter(kept)",
            ),
            "You threw the zeros out, and the shape with them: the layer cannot multiply with that. Pruned weights stay, as zeros.",
        ),
        Mistake(
            "another half",
            _halve('prune.random_unstructured(layer, "weight", amount=0.5)', 'prune.remove(layer, "weight")'),
            "Half of them are zero, but not the smallest ones. `l1_unstructured` goes by magnitude.",
        ),
        Mistake(
            "smallest by sign",
            _halve(
                "with torch.no_grad():",
                "    flat = layer.weight.view(-1)",
                "    flat[flat.argsort()[: len(flat) // 2]] = 0",
            ),
            "These are the most negative ones. A weight of -3 does as much as one of 3: go by `abs()`.",
        ),
        Mistake(
            "another share",
            _halve('prune.l1_unstructured(layer, "weight", amount=2)', 'prune.remove(layer, "weight")'),
            "It is not half of them that are zero. `amount=0.5` is a share, a whole number is taken as *how many*; "
            "and a limit, as `weight < 0.1`, does not know how many lie below it.",
        ),
        Mistake(
            "written outside no_grad",
            _halve("layer.weight[layer.weight.abs() <= layer.weight.abs().median()] = 0"),
            "Autograd watches a parameter, and refuses that it is written into. Do it in `with torch.no_grad():`, or let `prune` do it.",
            error="leaf Variable that requires grad",
        ),
        Mistake(
            "a tensor for a parameter",
            _halve("weight = layer.weight.detach().clone()", "weight[weight.abs() <= weight.abs().median()] = 0", "layer.weight = weight"),
            "A parameter's name takes no plain tensor. Wrap it in `nn.Parameter(...)`.",
            belief=8,
            error=r"cannot assign '.*' as parameter",
        ),
        Mistake(
            "the bias, too",
            _halve(
                'for name in ("weight", "bias"):',
                "    if getattr(layer, name) is not None:",
                "        prune.l1_unstructured(layer, name, amount=0.5)",
                "        prune.remove(layer, name)",
            ),
            "The bias should stay. `prune` works on the tensor that you name.",
        ),
    ),
    hints=(
        "`prune.l1_unstructured` chooses by magnitude; `amount` is a share, or a number.",
        "After it `weight_orig` and `weight_mask` are there. `prune.remove` makes one weight of them.",
    ),
    minutes=4,
    given="from torch.nn.utils import parametrize, prune",
    matters="Names and shapes stayed, so the checkpoint still loads everywhere. It is no smaller, for zeros are numbers, too.",
)

# ---- the second task: Mirrored -----------------------------------------------------------------------


def _with(answer: Any, size: int = 4) -> Any:
    require_module_class(answer, "Mirrored")
    layer = nn.Linear(size, size)
    parametrize.register_parametrization(layer, "weight", answer())
    return layer


def _is_symmetric(answer: Any) -> None:
    """the weight of a layer becomes symmetric"""
    for size in (4, 7):
        layer = _with(answer, size)
        weight = layer.weight
        if not isinstance(weight, Tensor) or tuple(weight.shape) != (size, size):
            fail(f"A weight of {size} × {size} must stay one of {size} × {size}.", expected=(size, size), got=weight)
        if not same(weight, weight.mT):
            fail("The weight is not equal to its transpose.", expected="a symmetric matrix", got=weight, evidence=modlab.state(layer))


def _keeps(answer: Any) -> None:
    """a weight that is assigned comes out again"""
    for size in (4, 7):
        layer, wanted = _with(answer, size), torch.randn(size, size)
        wanted = wanted + wanted.mT
        kept = wanted.clone()
        layer.weight = wanted
        if not same(wanted, kept):
            fail(mistake="it writes into its input", expected=kept[0], got=wanted[0])
        if not same(layer.weight, kept):
            got = layer.weight
            doubled = same(got - torch.diag(got.diagonal()), 2 * (kept - torch.diag(kept.diagonal()))) or same(got, 2 * kept)
            mistake = "twice as large" if doubled else "the way back is another"
            fail(mistake=mistake, expected=kept[0], got=got[0], evidence=modlab.state(layer))


def _trains(answer: Any) -> None:
    """an optimizer that was made before moves it, and it stays symmetric"""
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    parametrize.register_parametrization(layer, "weight", answer())
    before = layer.weight.detach().clone()
    layer(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    if same(layer.weight, before):
        fail(mistake="cut from the graph", expected="a weight that moved", got="the same weight", evidence=modlab.state(layer))
    if not same(layer.weight, layer.weight.mT):
        fail("After a step it is not symmetric any more.", expected="a symmetric matrix", got=layer.weight)


_FORWARD = """
class Mirrored(nn.Module):
    def forward(self, half):
        return half.triu() + half.triu(1).mT
"""

MIRRORED = Task(
    "Mirrored",
    "Write `Mirrored`, a `Symmetric` that also lets a weight be assigned: a symmetric matrix that goes in comes out again.",
    starter="""
class Mirrored(nn.Module):
    def forward(self, half):
        ...

    def right_inverse(self, weight):
        ...
""",
    reference=_FORWARD
    + """
    def right_inverse(self, weight):
        return weight.triu()
""",
    probes=(_is_symmetric, _keeps, _trains),
    mistakes=(
        Mistake(
            "no right_inverse",
            _FORWARD,
            "The way there is right. To assign a weight, PyTorch needs the way back, too: which `half` gives this weight?",
            error=r"RuntimeError: parametrization \w+ does not implement right_inverse",
        ),
        Mistake(
            "twice as large",
            """
class Mirrored(nn.Module):
    def forward(self, half):
        return half + half.mT

    def right_inverse(self, weight):
        return weight
""",
            "`half + half.mT` of a symmetric matrix is twice that matrix. Halve it in one of the two directions, or use one triangle.",
        ),
        Mistake(
            "the way back is another",
            _FORWARD
            + """
    def right_inverse(self, weight):
        return weight.tril()
""",
            "Assigned and read again, it differs: `right_inverse` must give a matrix from which `forward` makes that weight.",
        ),
        Mistake(
            "it writes into its input",
            _FORWARD
            + """
    def right_inverse(self, weight):
        return weight.triu_()
""",
            "`triu_` works in place: it wrote over the matrix of whoever assigned it. `triu` makes a new one.",
        ),
        Mistake(
            "cut from the graph",
            """
class Mirrored(nn.Module):
    def forward(self, half):
        return (half.triu() + half.triu(1).mT).detach()

    def right_inverse(self, weight):
        return weight.triu()
""",
            "The weight is cut off from its original: no gradient comes back to it, and training does nothing.",
        ),
    ),
    hints=(
        "`forward` stands above. What does it use of `half`: the whole matrix, or one triangle?",
        "`right_inverse` gets a symmetric weight, and gives a `half` from which `forward` makes that weight again.",
    ),
    minutes=5,
    given="from torch.nn.utils import parametrize, prune",
    matters="`right_inverse` lets a parametrized weight be initialised and assigned like a plain one.",
)

# ---- the third task: learned --------------------------------------------------------------------------


def _states() -> dict[str, tuple[nn.Module, str]]:
    """Layers in each state, and the name of the parameter behind their weight."""
    pruned, narrow, twice, parametrized = nn.Linear(4, 3), nn.Linear(1, 3), nn.Conv2d(2, 3, 3), nn.Linear(3, 3)
    for layer in (pruned, narrow):
        prune.l1_unstructured(layer, "weight", amount=0.5)  # type: ignore[no-untyped-call]
    for amount in (0.2, 0.5):
        prune.l1_unstructured(twice, "weight", amount=amount)  # type: ignore[no-untyped-call]
    parametrize.register_parametrization(parametrized, "weight", Symmetric())
    return {
        "a plain layer": (nn.Linear(4, 3), "weight"),
        "a pruned layer": (pruned, "weight_orig"),
        "a pruned layer with one input": (narrow, "weight_orig"),
        "a layer that was pruned twice": (twice, "weight_orig"),
        "a parametrized layer": (parametrized, "parametrizations.weight.original"),
    }


def _asked(answer: Any, layer: nn.Module) -> Any:
    require_callable(answer, "learned")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # .grad of a tensor that is not a leaf
        return answer(layer)


def _finds(answer: Any) -> None:
    """it gives the parameter behind the weight, whatever was done to the layer"""
    for what, (layer, name) in _states().items():
        expected = dict(layer.named_parameters())[name]
        getattr(layer, "weight").sum().backward()  # noqa: B009 - so that there is a gradient to be taken for the parameter
        got = _asked(answer, layer)
        if got is expected:
            continue
        shown: dict[str, Any] = {"expected": name, "evidence": modlab.state(layer)}
        if not isinstance(got, Tensor):
            says = "It has one, and you found none." if got is None else "Give the parameter itself."
            fail(f"This is {what}. {says}", got=None if got is None else f"a {type(got).__name__}", **shown)
        if got is expected.grad:
            fail(f"This is {what}.", mistake="its gradient", got="its gradient", **shown)
        if got.grad_fn is not None:
            fail(f"This is {what}.", mistake="the computed weight", got="a tensor that is computed from it", **shown)
        if got is dict(layer.named_parameters()).get("bias"):
            fail(f"This is {what}.", mistake="not by its name", got="bias", **shown)
        if same(got, expected):
            fail(f"This is {what}.", mistake="a copy", got="another tensor with the same numbers", **shown)
        fail(f"This is {what}.", got="another tensor", **shown)


def _finds_nothing(answer: Any) -> None:
    """of a layer without any parameter it gives None"""
    layer: nn.Module = nn.ReLU()
    got = _asked(answer, layer)
    if got is not None:
        fail("`nn.ReLU()` has nothing to learn.", expected=None, got=got)


def _touches_nothing(answer: Any) -> None:
    """the layer stays as it was"""
    for what, (layer, _) in _states().items():
        before = list(layer.state_dict())
        _asked(answer, layer)
        if list(layer.state_dict()) != before:
            fail(
                f"This is {what}.",
                mistake="it undoes the pruning",
                expected=before,
                got=list(layer.state_dict()),
                evidence=modlab.state(layer),
            )


LEARNED = Task(
    "learned",
    "Write `learned(layer)`: it gives the parameter that an optimizer moves when it trains `layer.weight`: "
    "of a plain, a pruned and a parametrized layer; None where there is none.",
    starter="""
def learned(layer):
    ...
""",
    reference="""
def learned(layer):
    parameters = dict(layer.named_parameters())
    for name in ("weight", "weight_orig", "parametrizations.weight.original"):
        if name in parameters:
            return parameters[name]
""",
    probes=(_touches_nothing, _finds, _finds_nothing),
    mistakes=(
        Mistake(
            "the computed weight",
            """
def learned(layer):
    return getattr(layer, "weight", None)
""",
            "That `weight` is computed, and has no `.grad`: no optimizer knows it. Look for the parameter that it is computed from.",
        ),
        Mistake(
            "its gradient",
            """
def learned(layer):
    return layer.weight.grad
""",
            "That is a gradient; and of a pruned or a parametrized layer `weight.grad` is None: it collects in the parameter itself.",
        ),
        Mistake(
            "not by its name",
            """
def learned(layer):
    return next(layer.parameters(), None)
""",
            "That is the bias. Neither order nor size tells the two apart: the renamed weight was registered after the bias, "
            "and may be as small. Go by the name.",
        ),
        Mistake(
            "a copy",
            """
def learned(layer):
    for name, value in layer.state_dict().items():
        if name.endswith(("weight", "weight_orig", "original")):
            return value
""",
            "The numbers are right, and it is another tensor, which no optimizer moves: so are the entries of a `state_dict`, "
            "`.data` and a new `nn.Parameter`. Ask `named_parameters()`.",
        ),
        Mistake(
            "it undoes the pruning",
            """
def learned(layer):
    if prune.is_pruned(layer):
        prune.remove(layer, "weight")
    return dict(layer.named_parameters()).get("weight")
""",
            "To look at a layer must not change it: after that the mask or the parametrization is gone.",
        ),
    ),
    hints=(
        "The table of the states shows three names. Which stores can have them?",
        "`dict(layer.named_parameters())` has all parameters by their paths.",
    ),
    minutes=5,
    given="from torch.nn.utils import parametrize, prune",
    matters="An optimizer needs this tensor: a computed weight is made anew in each call, and moving it does nothing.",
)

LESSON = Content(
    name="13_replaced_weights",
    title="Replaced weights: pruned, parametrized, quantized",
    goal="say where a weight is after pruning, parametrization and quantization, and what that costs or saves",
    minutes=35,
    after=("07_state", "10_forward_hooks", "12_inside_the_class"),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(HALVE, MIRRORED, LEARNED),
)
