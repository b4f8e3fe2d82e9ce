"""04: reaching every tensor of a module, with `to` and `apply`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import modlab
from modlab.lessons.checking import fail, require_callable, require_equal, require_module_class
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Choice, Name, Number, Several, YesNo
from modlab.lessons.note import DynamicNet, MyLinear, Net

# ---- what the questions are proved with -----------------------------------------------------------


class Mixed(nn.Module):
    """The lesson's model: two of the things it holds are not registered."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = MyLinear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.scale = torch.ones(4)
        self.extra = [MyLinear(4, 4)]


def _stays() -> tuple[str, ...]:
    m = Mixed().to(torch.float64)
    tensors = (m.linear.weight, m.norm.running_mean, m.norm.num_batches_tracked, m.scale, m.extra[0].weight)
    return tuple(letter for letter, one in zip("abcde", tensors, strict=True) if one is not None and one.dtype != torch.float64)


def _same_objects() -> bool:
    net = Net()
    before = [*net.parameters()]
    net.to(torch.float64)
    return all(now is old for now, old in zip(net.parameters(), before, strict=True))


def _runs(call: Callable[[], Any]) -> bool:
    try:
        call()
    except RuntimeError:
        return False
    return True


class _Vanished(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4)).to(torch.float64)


def _zeros_left() -> int:
    layer = nn.Linear(4, 3)
    given = torch.func.functional_call(layer, {"weight": torch.zeros(3, 4)}, (torch.ones(4),))
    assert torch.equal(given, layer.bias)
    return int((layer.weight == 0).sum())


def _xavier(kind: type[nn.Module]) -> Callable[[nn.Module], None]:
    @torch.no_grad()
    def init_weights(m: Any) -> None:
        if isinstance(m, kind):
            nn.init.xavier_normal_(m.weight)  # type: ignore[arg-type]
            m.bias.fill_(0.0)  # type: ignore[operator]

    return init_weights


def _changed(kind: type[nn.Module]) -> int:
    model = DynamicNet(3)
    before = [p.detach().clone() for p in model.parameters()]
    model.apply(_xavier(kind))
    return sum(not torch.equal(old, now) for old, now in zip(before, model.parameters(), strict=True))


def _to_eval(m: nn.Module) -> None:
    m.training = False


def _in_vain() -> tuple[str, ...]:
    x, model = torch.ones(2), Net()
    lines: dict[str, Callable[[], bool]] = {
        "a": lambda: model.to(torch.float64).l0.weight.dtype == model.l0.weight.dtype == torch.float64,
        "b": lambda: x.to(torch.float64).dtype == x.dtype,
        "c": lambda: model.apply(_to_eval) is model and not model.training,
        "d": lambda: bool((x.fill_(0.0) == x).all()),
    }
    return tuple(letter for letter, has_effect in lines.items() if not has_effect())


# ---- questions ------------------------------------------------------------------------------------

PREDICTIONS = (
    Question(
        "a tensor's to",
        "A tensor `t` is float32. After the line `t.to(torch.float64)`, what is `t.dtype`?",
        Choice("float64", "float32 still"),
        "b",
        "A tensor's `to` leaves the tensor alone and gives a new one, which this line throws away.",
        wrong=(Wrong("a", "So it is for modules. Of a tensor one must keep what `to` gives: `t = t.to(torch.float64)`.", belief=7),),
        proof=lambda: {torch.float64: "a", torch.float32: "b"}[_after_to(torch.ones(2))],
    ),
    Question(
        "a module's to",
        "And a module: how many of the 4 parameters of `net` are float64 after the line `net.to(torch.float64)`?",
        Number(),
        4,
        "A module's `to` changes the module itself, and goes through all of its children.",
        wrong=(
            Wrong(0, "So it is for tensors. A module is changed in place, and `to` gives back the same module.", belief=7),
            Wrong(2, "`to` goes down to the children, here `l0` and `l1`, with two parameters each."),
        ),
        proof=lambda: sum(p.dtype == torch.float64 for p in _moved(Net()).parameters()),
    ),
    Question(
        "the same objects",
        "Are these four the same `Parameter` objects as before, by `is`?",
        YesNo(),
        True,
        "Each parameter stays the object that it was and gets new numbers inside. Whoever holds on to it sees the change.",
        wrong=(Wrong(False, "A tensor's `to` makes new objects; a module's puts the new numbers into the old parameters.", belief=7),),
        proof=_same_objects,
    ),
    Question(
        "who stays behind",
        "Which of these are *not* float64 after `mixed.to(torch.float64)`?",
        Several(
            "`linear.weight`",
            "`norm.running_mean`",
            "`norm.num_batches_tracked`",
            "`scale`, a plain tensor",
            "the weight in the list `extra`",
        ),
        ("c", "d", "e"),
        "`to` reaches what is registered: parameters and buffers. Of these it changes the floating-point ones; a counter stays a counter.",
        wrong=(
            Wrong("d e", "And the counter: `num_batches_tracked` is int64, and `to` changes the dtype of floating-point tensors only."),
            Wrong(
                "e",
                "A tensor that is neither parameter nor buffer is an attribute like any other, and a counter keeps its dtype.",
                belief=6,
            ),
            Wrong("d", "What is in a plain list is not registered either, and a counter stays a counter.", belief=1),
            Wrong((), "`to` does not search the module: it goes through the registers, and two of these are in none.", belief=6),
            Wrong("c e", "A tensor that is assigned to `self` without a wrapper is not registered.", belief=6),
            Wrong("c d", "A plain list is not registered, and neither are the modules in it.", belief=1),
            Wrong("b c d e", "Buffers go along, as far as they hold floating-point numbers."),
        ),
        proof=_stays,
    ),
    Question(
        "an input from before",
        "`net` is float64 now. Does it still take `torch.randn(4)`?",
        YesNo(),
        False,
        "`torch.randn(4)` is float32, and a matrix product wants one dtype on both sides. Inputs are moved by whoever calls.",
        wrong=(Wrong(True, "Sums and products of mixed dtypes work; a matrix product does not, and a layer is one.", belief=32),),
        proof=lambda: _runs(lambda: Net().to(torch.float64)(torch.randn(4))),
    ),
    Question(
        "wrapped, then moved",
        "`self.scale = nn.Parameter(torch.ones(4)).to(torch.float64)`: how many parameters does this module have?",
        Number(),
        0,
        "`to` computes a new tensor *from* the parameter. What is assigned is that result, and a result is not a parameter.",
        wrong=(Wrong(1, "The parameter was made, and thrown away at once: the tensor that `to` gives is a plain one.", belief=5),),
        proof=lambda: len([*_Vanished().parameters()]),
    ),
    Question(
        "tensors that change",
        "How many of the 8 tensors of `DynamicNet(3)` does `dynamic_net.apply(init_weights)` change?",
        Number(),
        0,
        "`MyLinear` is no `nn.Linear`: it derives from `nn.Module` directly. The condition is false on all nine visits.",
        wrong=(
            Wrong(8, "That was the intention. But the condition asks for `nn.Linear`, and none of these layers is one.", belief=31),
            Wrong(4, "Weights *and* biases are set where the condition holds, and it never holds.", belief=31),
            Wrong(2, "It reaches all layers, but none of them is an `nn.Linear`.", belief=31),
        ),
        proof=lambda: _changed(nn.Linear),
    ),
    Question(
        "after a call with zeros",
        "`functional_call` runs `layer` with zeros for its weight. How many values of `layer.weight` are 0 afterwards?",
        Number(),
        0,
        "The dict counts for this one call. The layer keeps its own weight, and its bias took part in the result.",
        wrong=(
            Wrong(12, "`functional_call` does not load the dict: the layer has its own weight again when the call ends."),
            Wrong(3, "It is the weight that was replaced, in this call only. The bias is the layer's own."),
        ),
        proof=_zeros_left,
    ),
)

RECALLS = (
    Question(
        "in vain",
        "Which of these lines, written like this, has no effect?",
        Several("`model.to(torch.float64)`", "`x.to(torch.float64)`", "`model.apply(f)`", "`x.fill_(0.0)`"),
        ("b",),
        "Modules are changed in place, and so is a tensor by a method that ends in an underscore. All other methods give a new tensor.",
        belief=7,
        proof=_in_vain,
    ),
    Question(
        "the right condition",
        "You want to initialise all `MyLinear` of a large net, and nothing else. Which condition?",
        Choice("`isinstance(m, nn.Linear)`", "`isinstance(m, MyLinear)`", '`hasattr(m, "weight")`', "`isinstance(m, nn.Module)`"),
        "b",
        "`isinstance` asks what a module is made of, not what it does.",
        wrong=(
            Wrong("a", "It finds PyTorch's linear layers, and none of your own.", belief=31),
            Wrong("c", "It finds batch norms and embeddings too, and parameters of other shapes."),
            Wrong("d", "That is true on every visit, including containers and activations."),
        ),
    ),
    Question(
        "not called",
        'From lesson 03: `dynamic_net(x, act="relu")` runs. Which of its modules is not called, by its path? (Containers apart.)',
        Name(),
        "activations.lrelu",
        "The dict owns both activations, and `forward` takes one. `apply` and `to` reach it all the same: they go by what is owned.",
        wrong=(
            Wrong("activations.relu", "That is the one that was chosen.", belief=26),
            Wrong("lrelu", "Nearly: its path begins with the dict that holds it."),
            Wrong("activations", "A container has no `forward` of its own. One of the modules in it was not called either."),
        ),
        proof=lambda: next(name for name in ("activations.relu", "activations.lrelu") if not _called(name)),
    ),
)


def _after_to(t: Tensor) -> torch.dtype:
    t.to(torch.float64)
    return t.dtype


def _moved(net: nn.Module) -> nn.Module:
    net.to(torch.float64)
    return net


def _called(name: str) -> bool:
    net, calls = DynamicNet(3), []
    net.get_submodule(name).register_forward_hook(lambda *_: calls.append(name))
    net(torch.randn(4), act="relu")
    return bool(calls)


# ---- task: a scale that stays behind ----------------------------------------------------------------

SCALE = [1.0, 2.0, 3.0]


def _scaled(answer: Any) -> nn.Module:
    require_module_class(answer, "Scaled")
    made: nn.Module = answer()
    return made


def _left(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Floating-point tensors that are attributes only, also in lists, tuples and dicts."""
    for path, one in module.named_modules():
        for name, value in vars(one).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
            for each in inside:
                if isinstance(each, Tensor) and each.is_floating_point():
                    yield f"{path}.{name}".lstrip("."), each


def _still_scales(answer: Any) -> None:
    """it computes what it computed"""
    m, x = _scaled(answer), torch.randn(5, 4)
    linear = m.get_submodule("linear")
    expected = linear(x) * torch.tensor(SCALE)
    require_equal(m(x), expected, "It gives something other than the linear layer's output times 1, 2, 3.", evidence=modlab.state(m))


def _follows(answer: Any) -> None:
    """its scale goes along: to float64, and to another device, also inside of a larger model"""
    m = _scaled(answer)
    whole = nn.Sequential(m)
    whole.to(torch.float64)
    stayed = [(name, one) for name, one in _left(m) if one.dtype != torch.float64]
    vanished = any(one.grad_fn is not None for _, one in _left(m))
    whole.to("meta")
    goes = _runs(lambda: whole(torch.randn(5, 4, dtype=torch.float64, device="meta")))
    if not stayed and not vanished and goes:
        return
    fresh = _scaled(answer)
    alone = _runs(lambda: fresh.to("meta")(torch.randn(5, 4, device="meta")))
    own = "to" in vars(type(m)) and alone
    mistake = "Parameter(...).to(...)" if vanished else "a to of its own" if own else "moved in forward" if goes else "a plain tensor"
    shown = nn.Sequential(_scaled(answer)).to(torch.float64)
    got = [f"{name}: {one.dtype}" for name, one in stayed] or "a tensor that stays on the CPU"
    fail(
        "After `to(torch.float64)` on a model that holds it:",
        mistake=mistake,
        expected="all float64",
        got=got,
        evidence=modlab.state(shown),
    )


def _fixed(answer: Any) -> None:
    """the linear layer is trained, and nothing else"""
    m = _scaled(answer)
    trained = [name for name, parameter in m.named_parameters() if parameter.requires_grad]
    wanted = ["linear.weight", "linear.bias"]
    if trained != wanted:
        more = [name for name in trained if name not in wanted]
        fail(mistake="the scale is trained" if more else "", expected=wanted, got=trained, evidence=modlab.state(m))


def _owned(answer: Any) -> None:
    """it keeps its scale, as floating-point numbers of its own"""
    m = _scaled(answer)
    kept = {name: one for name, one in (*m.named_parameters(), *m.named_buffers()) if not name.startswith("linear.")}
    scales = [name for name, one in kept.items() if one.is_floating_point()]
    x = torch.randn(5, 4)
    before = m(x).detach().clone()
    with torch.no_grad():
        for name in scales:
            kept[name].mul_(2)
        changes = not torch.allclose(m(x), before)
    if scales and changes:
        return
    whole = not scales and any(one.numel() == len(SCALE) for one in kept.values())
    fail(
        mistake="whole numbers" if whole else "made anew in each call",
        expected="a floating-point tensor that is registered, and used",
        got=", ".join(f"{name}: {one.dtype}" for name, one in kept.items()) or "none",
        evidence=modlab.state(_scaled(answer)),
    )


def _scaled_source(line: str, forward: str = "self.linear(x) * self.scale", more: str = "") -> str:
    return f"""
class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = MyLinear(4, 3)
        {line}

    def forward(self, x):
        return {forward}
{more}"""


SCALED = Task(
    "Scaled",
    "Repair `Scaled`: its scale stays behind when the model is moved. It should go along, and not be trained.",
    starter=_scaled_source("self.scale = torch.tensor([1.0, 2.0, 3.0])"),
    reference=_scaled_source('self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))'),
    probes=(_still_scales, _follows, _fixed, _owned),
    mistakes=(
        Mistake(
            "a plain tensor",
            _scaled_source("self.factor = torch.tensor([1.0, 2.0, 3.0])", "self.linear(x) * self.factor"),
            "The scale is still a plain tensor: `to` does not know of it. Multiplying two dtypes hides that, two devices would not.",
            belief=6,
        ),
        Mistake(
            "Parameter(...).to(...)",
            _scaled_source("self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)).to(torch.float32)"),
            "You made a parameter, and assigned what `to` computed from it: a plain tensor. Convert first, wrap last.",
            belief=5,
        ),
        Mistake(
            "moved in forward",
            _scaled_source("self.scale = torch.tensor([1.0, 2.0, 3.0])", "self.linear(x) * self.scale.to(x)"),
            "It computes, and copies the scale anew in each call. The module's own stays where it was; register it, and it goes along.",
            belief=6,
        ),
        Mistake(
            "a to of its own",
            _scaled_source(
                "self.scale = torch.tensor([1.0, 2.0, 3.0])",
                more="""
    def to(self, *arguments):
        self.scale = self.scale.to(*arguments)
        return super().to(*arguments)
""",
            ),
            "Your `to` runs when it is called on this very module. A larger model's `to` does not call the `to` of its children.",
            belief=6,
        ),
        Mistake(
            "register_buffer assigned",
            _scaled_source('self.scale = self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))'),
            "`register_buffer` gives nothing back, and this nothing is what you assign: the buffer is empty again. Call it, no more.",
            belief=9,
            error=r"NoneType",
        ),
        Mistake(
            "attribute first",
            _scaled_source(
                """self.scale = torch.tensor([1.0, 2.0, 3.0])
        self.register_buffer("scale", self.scale)"""
            ),
            "The name is taken by your plain attribute. Leave the first line out: `register_buffer` makes the name itself.",
            belief=10,
            error=r"already exists",
        ),
        Mistake(
            "made anew in each call",
            _scaled_source("pass", "self.linear(x) * torch.tensor([1.0, 2.0, 3.0], dtype=x.dtype, device=x.device)"),
            "It computes everywhere, since each call makes a new scale. The module itself keeps none that goes along, or does not use it.",
            belief=3,
        ),
        Mistake(
            "whole numbers",
            _scaled_source('self.register_buffer("scale", torch.tensor([1, 2, 3]))'),
            "Your scale holds whole numbers: `to(torch.float64)` leaves such buffers as they are, so it stays behind.",
        ),
        Mistake(
            "the scale is trained",
            _scaled_source("self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))"),
            "Now it goes along, and the optimizer will change it too: parameters are trained. This one should stay 1, 2, 3.",
            belief=8,
        ),
    ),
    hints=(
        "`to` reaches what is registered. There are two registers for tensors: one for what is trained, one for what is not.",
        'A tensor that belongs to the module and is not trained is a *buffer*: `self.register_buffer("name", tensor)`.',
        'Only one line of the constructor changes: `self.register_buffer("scale", ...)`. Afterwards `self.scale` reads it as before.',
    ),
    minutes=5,
    given="from modlab.lessons.note import MyLinear",
    matters="Constants that belong to a model go along as buffers; otherwise the first call on another device fails.",
)

# ---- task: an initializer ---------------------------------------------------------------------------


def _big() -> nn.Sequential:
    """Layers of one's own beside layers of PyTorch's; no number of it is what an initializer would put there."""
    block = nn.Sequential(MyLinear(150, 250), nn.ReLU(), nn.LayerNorm(250))
    net = nn.Sequential(MyLinear(300, 150), nn.Linear(150, 150), nn.BatchNorm1d(150), block)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.5)
    return net


OWN = ("0", "3.0")


def _applied(answer: Any) -> tuple[nn.Sequential, nn.Sequential, Any]:
    """The net after `apply`, one that is as it was before, and a view of what changed."""
    require_callable(answer, "start_well")
    torch.manual_seed(4)
    before = _big()
    torch.manual_seed(4)
    net = _big()
    snapshot = modlab.snapshot(net)
    net.apply(answer)
    return net, before, modlab.diff(snapshot, net)


def _spread(answer: Any) -> None:
    """the weight of each MyLinear is normal, with Xavier's spread"""
    net, before, view = _applied(answer)
    held, kept = dict(net.named_parameters()), dict(before.named_parameters())
    for path in OWN:
        weight = held[f"{path}.weight"].detach()
        if torch.equal(weight, kept[f"{path}.weight"]):
            linear = not torch.equal(held["1.weight"], kept["1.weight"])
            fail(f"The weight of {path}, a MyLinear, did not change.", mistake="it looks for nn.Linear" if linear else "", evidence=view)
        wanted, got, mean = (2 / sum(weight.shape)) ** 0.5, weight.std().item(), weight.mean().item()
        if abs(got / wanted - 1) > 0.05 or abs(mean) > 0.1 * wanted:
            kaiming = any(abs(got / (2 / fan) ** 0.5 - 1) < 0.05 for fan in weight.shape)
            fail(
                f"The numbers of {path}.weight, of shape {tuple(weight.shape)}, spread otherwise.",
                mistake="Kaiming's spread" if kaiming else "",
                expected=f"mean 0, standard deviation {wanted:.3f}",
                got=f"mean {mean:.3f}, standard deviation {got:.3f}",
            )
        farthest = (weight.abs().max() / wanted).item()
        fourth = (weight.double() / wanted).pow(4).mean().item()  # 3 for a normal distribution, 1.8 for a uniform one
        if abs(fourth - 3) > 0.5:
            fail(
                f"The numbers of {path}.weight have the right spread, and another distribution.",
                mistake="uniform, not normal" if 1.6 < farthest < 1.8 else "",
                expected="normal: a few numbers lie more than 3 standard deviations out",
                got=f"the farthest of {weight.numel()} numbers lies {farthest:.2f} standard deviations out",
            )


def _zero_bias(answer: Any) -> None:
    """its bias is zero"""
    net, _, view = _applied(answer)
    held = dict(net.named_parameters())
    left = [f"{path}.bias" for path in OWN if held[f"{path}.bias"].abs().max() > 0]
    if left:
        fail("These are not zero.", mistake="the bias forgotten", expected=[], got=left, evidence=view)


def _nothing_else(answer: Any) -> None:
    """nothing else is touched"""
    net, before, view = _applied(answer)
    pairs = zip(net.named_parameters(), before.parameters(), strict=True)
    touched = [name for (name, now), old in pairs if name.rpartition(".")[0] not in OWN and not torch.equal(now, old)]
    if touched:
        fail("These belong to other layers.", mistake="every layer with a weight", expected=[], got=touched, evidence=view)


def _still_theirs(answer: Any) -> None:
    """they are the same parameters as before, and still trained"""
    require_callable(answer, "start_well")
    net = _big()
    before = dict(net.named_parameters())
    net.apply(answer)
    for name, parameter in net.named_parameters():
        if parameter is not before.get(name):
            fail(f"{name} is a different object now.", mistake="new parameters", evidence=modlab.state(net))
        if not parameter.requires_grad:
            fail(f"{name} is no longer trained: requires_grad is False.", evidence=modlab.state(net))


INIT_WEIGHTS = Task(
    "start_well",
    "Write `start_well(m)`, to be applied: each `MyLinear` gets a Xavier normal weight and a zero bias; nothing else changes.",
    starter="""
def start_well(m):
    ...
""",
    reference="""
@torch.no_grad()
def start_well(m):
    if isinstance(m, MyLinear):
        nn.init.xavier_normal_(m.weight)
        m.bias.fill_(0.0)
""",
    probes=(_spread, _zero_bias, _nothing_else, _still_theirs),
    mistakes=(
        Mistake(
            "it looks for nn.Linear",
            """
@torch.no_grad()
def start_well(m):
    if isinstance(m, nn.Linear):
        nn.init.xavier_normal_(m.weight)
        m.bias.fill_(0.0)
""",
            "`MyLinear` is no `nn.Linear`: it does the same and derives from `nn.Module`. Your condition passes it by.",
            belief=31,
        ),
        Mistake(
            "a tensor assigned",
            """
def start_well(m):
    if isinstance(m, MyLinear):
        m.weight = torch.randn(m.weight.shape) * (2 / sum(m.weight.shape)) ** 0.5
        m.bias = torch.zeros(m.bias.shape)
""",
            "A name that is registered for a parameter takes nothing else. Change the numbers *in* the parameter.",
            error=r"cannot assign '.*' as parameter",
        ),
        Mistake(
            "new parameters",
            """
def start_well(m):
    if isinstance(m, MyLinear):
        m.weight = nn.Parameter(nn.init.xavier_normal_(torch.empty(m.weight.shape)))
        m.bias = nn.Parameter(torch.zeros(m.bias.shape))
""",
            "The numbers are right, in new objects. An optimizer that was made before would go on training the old ones.",
        ),
        Mistake(
            "in place without no_grad",
            """
def start_well(m):
    if isinstance(m, MyLinear):
        nn.init.xavier_normal_(m.weight)
        m.bias.fill_(0.0)
""",
            "Autograd lets nobody write over a parameter. Put `@torch.no_grad()` above the function, or use `nn.init.zeros_`.",
            error=r"leaf Variable that requires grad",
        ),
        Mistake(
            "every module",
            """
@torch.no_grad()
def start_well(m):
    nn.init.xavier_normal_(m.weight)
    m.bias.fill_(0.0)
""",
            "`apply` visits every module, also activations, containers and norms. Ask first what `m` is.",
            error=r"has no attribute '(weight|bias)'|Fan in and fan out can not be computed",
        ),
        Mistake(
            "every layer with a weight",
            """
@torch.no_grad()
def start_well(m):
    if getattr(m, "weight", None) is not None and m.weight.dim() == 2:
        nn.init.xavier_normal_(m.weight)
        m.bias.fill_(0.0)
""",
            "Other layers have weights too, and another initialisation. Only `MyLinear` was meant.",
        ),
        Mistake(
            "the bias forgotten",
            """
def start_well(m):
    if isinstance(m, MyLinear):
        nn.init.xavier_normal_(m.weight)
""",
            "The weights are right. The bias should be zero.",
        ),
        Mistake(
            "uniform, not normal",
            """
def start_well(m):
    if isinstance(m, MyLinear):
        nn.init.xavier_uniform_(m.weight)
        nn.init.zeros_(m.bias)
""",
            "The spread is Xavier's, but all numbers lie between two walls: that is `xavier_uniform_`. Its neighbour draws normal ones.",
        ),
        Mistake(
            "Kaiming's spread",
            """
def start_well(m):
    if isinstance(m, MyLinear):
        nn.init.kaiming_normal_(m.weight)
        nn.init.zeros_(m.bias)
""",
            "That is Kaiming's rule, which looks at one side of the layer. Xavier's looks at both: `nn.init.xavier_normal_`.",
        ),
    ),
    hints=(
        "`apply` calls your function with each module, one after the other. Which of them do you want?",
        "`isinstance(m, MyLinear)` finds them. `nn.init.xavier_normal_(m.weight)` sets a weight in place.",
        "For the bias: `nn.init.zeros_(m.bias)`, or `m.bias.fill_(0.0)` under `@torch.no_grad()`.",
    ),
    minutes=5,
    given="from modlab.lessons.note import MyLinear",
    matters="This is how the initial values of a paper get into a model: one function for all modules, which asks each for its class.",
)

LESSON = Content(
    name="04_reaching_every_tensor",
    title="Reaching every tensor",
    goal="move a whole model, say what stays behind and why, and visit all of its modules",
    minutes=25,
    after=("03_tree_and_trace",),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(SCALED, INIT_WEIGHTS),
)
