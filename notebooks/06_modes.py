"""06: modes: what train() and eval() switch, and what they leave alone."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

import modlab
from modlab.lessons import initialization
from modlab.lessons.checking import fail, require_callable, require_equal, require_module_class, same
from modlab.lessons.content import Content, Mistake, Question, Task, Wrong
from modlab.lessons.kinds import Number, Several, YesNo
from modlab.lessons.note import ModalModule, Net

# ---- questions ------------------------------------------------------------------------------------


def _backward_in_eval_mode() -> bool:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5), ModalModule()).eval()
    net(torch.randn(8, 2)).sum().backward()
    return all(parameter.grad is not None for parameter in net.parameters())


def _changed_by_a_step(decay: float = 0.0, times: float = 1.0) -> int:
    torch.manual_seed(0)
    net = Net().eval()
    before = [parameter.detach().clone() for parameter in net.parameters()]
    (times * net(torch.randn(8, 4)).abs().mean()).backward()
    SGD(net.parameters(), lr=0.1, weight_decay=decay).step()
    return sum(not torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))


def _moves(*, training: bool = True, grad: bool = True, frozen: bool = False) -> bool:
    bn = nn.BatchNorm1d(3).train(training).requires_grad_(not frozen)
    with torch.set_grad_enabled(grad):
        bn(torch.randn(8, 3) + 2)
    return bool(bn.running_mean.any())  # type: ignore[union-attr]


def _child_in_eval_mode() -> bool:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    net[1].eval()
    net.train()
    return not net[1].training


class Noisy(nn.Module):
    """Calls dropout as a function, and says nothing about the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(..., 4) → (..., 4)."""
        return F.dropout(self.layer(x))


def _function_twice() -> bool:
    net, x = Noisy().eval(), torch.randn(64, 4)
    return torch.equal(net(x), net(x))


def _off_in_eval_mode() -> list[str]:
    x = torch.randn(8, 3)
    drop = nn.Dropout(0.5).eval()
    gone = [torch.equal(drop(x), x), not _backward_in_eval_mode(), not _moves(training=False), _changed_by_a_step(0.1, 0.0) == 0]
    return [letter for letter, off in zip("abcd", gone, strict=True) if off]


def _where_it_moves() -> list[str]:
    found = [_moves(), _moves(grad=False), _moves(frozen=True), _moves(training=False)]
    return [letter for letter, moved in zip("abcd", found, strict=True) if moved]


def _frozen_by_the_flag() -> int:
    net = Net()
    net.l0.requires_grad = False  # type: ignore[assignment]
    return sum(not parameter.requires_grad for parameter in net.l0.parameters())


PREDICTIONS = (
    Question(
        "what dropout keeps",
        "`nn.Dropout(0.75)` in training mode gets ones, and sets some of them to zero. What do the others become?",
        Number(0.01),
        4,
        "It keeps a quarter and multiplies by 1/(1 - p) = 4, so that the mean stays at one.",
        wrong=(
            Wrong(1, "Then the sum would be a quarter of what it is in evaluation mode. Dropout makes up for it by scaling."),
            Wrong(0.25, "A quarter is the *share* that is kept; what is kept gets larger, to make up for the rest."),
            Wrong(0.75, "0.75 is the share that goes."),
            Wrong(1 / 0.75, "`p` is the share that goes, not the one that stays: the factor is 1/(1 - p)."),
        ),
        proof=lambda: nn.Dropout(0.75)(torch.ones(1000)).max(),
    ),
    Question(
        "a child's own mode",
        "You call `net[1].eval()`, and after it `net.train()`. Is `net[1]` in evaluation mode?",
        YesNo(),
        False,
        "`train()` sets the flag of the module and of all modules in it, whatever they were.",
        wrong=(Wrong(True, "A module does not remember that it was set by itself: there is one flag, and the last call wins.", belief=20),),
        proof=_child_in_eval_mode,
    ),
    Question(
        "backward in evaluation mode",
        "`net` is in evaluation mode. Does `net(x).sum().backward()` work?",
        YesNo(),
        True,
        "`eval()` sets flags, and autograd does not read them.",
        wrong=(
            Wrong(
                False,
                "Who evaluates wants no gradients, and a well-known blog says that they are off. But `eval()` only sets `training`.",
                belief=18,
            ),
        ),
        proof=_backward_in_eval_mode,
    ),
    Question(
        "statistics under no_grad",
        "`bn` is in training mode, and gets a batch under `torch.no_grad()`. Does its `running_mean` move?",
        YesNo(),
        True,
        "The running mean is not learned by gradients: `forward` writes it, whenever the flag says training.",
        wrong=(
            Wrong(
                False, "`no_grad` stops autograd from taking notes. It does not stop a module from writing to its own tensors.", belief=20
            ),
        ),
        proof=lambda: _moves(grad=False),
    ),
    Question(
        "statistics of a frozen BatchNorm",
        "`bn` is in training mode, and all its parameters are frozen by `bn.requires_grad_(False)`. Does its `running_mean` move?",
        YesNo(),
        True,
        "Freezing is about gradients, and the statistics come from none.",
        wrong=(Wrong(False, "Weight and bias stand still. The statistics are buffers, and follow the mode alone.", belief=20),),
        proof=lambda: _moves(frozen=True),
    ),
    Question(
        "F.dropout in evaluation mode",
        "`Noisy` is in evaluation mode, and gets the same `x` twice. Are the two outputs equal?",
        YesNo(),
        False,
        "`F.dropout(x)` is a function: it knows no module, and its own `training` is True unless told.",
        wrong=(Wrong(True, "So it is with `nn.Dropout`, which asks its flag. A function has no flag to ask.", belief=21),),
        proof=_function_twice,
    ),
)

RECALLS = (
    Question(
        "what eval turns off",
        "What does `net.eval()` turn off?",
        Several("dropout by `nn.Dropout`", "gradients", "the moving of BatchNorm's running statistics", "weight decay"),
        ("a", "c"),
        "It sets flags, and some modules ask for theirs. Autograd and the optimizer do not.",
        wrong=(
            Wrong("a b c d", "Two of them are not the module's: gradients are autograd's, decay is the optimizer's.", belief=18),
            Wrong("a b c", "Gradients are autograd's: `torch.no_grad()` turns them off.", belief=18),
            Wrong("a", "BatchNorm asks for its flag as well.", belief=20),
        ),
        belief=18,
        proof=_off_in_eval_mode,
    ),
    Question(
        "where running_mean moves",
        "Where does the `running_mean` of a BatchNorm move?",
        Several(
            "in training mode",
            "in training mode, under `torch.no_grad()`",
            "in training mode, with weight and bias frozen",
            "in evaluation mode, with gradients on",
        ),
        ("a", "b", "c"),
        "The flag decides, and nothing else.",
        wrong=(
            Wrong("a", "`no_grad` and frozen weights are about gradients, and the statistics come from none.", belief=20),
            Wrong("a c", "`no_grad` is about gradients, and the statistics come from none.", belief=20),
            Wrong("a b", "Frozen weights stand still; the statistics are not weights.", belief=20),
            Wrong("a b c d", "In evaluation mode BatchNorm reads them and does not write."),
        ),
        belief=20,
        proof=_where_it_moves,
    ),
    Question(
        "a flag that nobody reads",
        "From lesson 05: after `net.l0.requires_grad = False`, how many of the two parameters of `l0` are frozen?",
        Number(),
        0,
        "That is an attribute of the module, which nobody reads. `net.l0.requires_grad_(False)` sets it for each parameter.",
        wrong=(
            Wrong(2, "The line looks like it, but it sets an attribute on the *module*; the parameters keep their own flags.", belief=24),
        ),
        proof=_frozen_by_the_flag,
    ),
)

# ---- the first task: a module around a module -------------------------------------------------------


NOTHING = "`forward` gives nothing back: it needs a `return`."


def _around(answer: Any, inner: nn.Module) -> nn.Module:
    require_module_class(answer, "Modal")
    return initialization.made(answer, inner)


def _has_a_child(answer: Any) -> None:
    """the module inside is its child"""
    inner = nn.Linear(3, 3)
    m = _around(answer, inner)
    if any(one is inner for one in m.modules()):
        return
    told: dict[str, Any] = {"expected": "inner is a child", "evidence": modlab.tree(m)}
    if any(type(one) is type(inner) for one in m.modules()):
        fail(mistake="a copy of inner", got="a child of the same class, and another one", **told)
    if any(isinstance(value, (list, tuple, dict)) and _holds(value, inner) for name, value in vars(m).items() if name != "_modules"):
        fail(mistake="child in a list", got="inner stands in a plain container", **told)
    fail(mistake="inner is not kept", got="no such child", **told)


def _holds(container: Any, inner: nn.Module) -> bool:
    values = container.values() if isinstance(container, dict) else container
    return any(value is inner for value in values)


def _adds(answer: Any) -> None:
    """it adds one in training mode, and nothing in evaluation mode"""
    inner, x = nn.Linear(3, 3), torch.randn(2, 3)
    m = _around(answer, inner)
    plain = inner(x).detach()
    for training in (True, False, True):
        m.train(training)
        expected, got = plain + float(training), m(x)
        if same(got, expected):
            continue
        if got is None:
            fail(NOTHING, expected=expected, got=None)
        if training and same(got, inner(x + 1)):
            fail(mistake="one added to the input", expected=expected, got=got)
        with torch.no_grad():
            quiet = m(x)
        if not training and same(got, plain + 1) and same(quiet, plain):
            fail(mistake="it asks autograd", expected=expected, got=got)
        if not training and same(got, plain + 1):
            own = [name for name, value in vars(m).items() if isinstance(value, bool) and name != "training" and not name.startswith("_")]
            says = f"After `eval()`, `training` is {m.training} and `{own[0]}` is {vars(m)[own[0]]}." if own else ""
            kept = [name for name in vars(m) if not name.startswith("_") and name != "training"]
            mistake = "a flag of its own" if own else "decided too early" if kept else "nobody asks for the mode"
            fail(says, mistake=mistake, expected=expected, got=got, evidence=modlab.tree(m))
        fail(f"In {'training' if training else 'evaluation'} mode it gives something else.", expected=expected, got=got)


def _ignores_autograd(answer: Any) -> None:
    """with gradients off it gives the same"""
    inner, x = nn.Linear(3, 3), torch.randn(2, 3)
    m = _around(answer, inner)
    for training in (True, False):
        m.train(training)
        with torch.no_grad():
            expected, got = inner(x) + float(training), m(x)
        if not same(got, expected):
            fail(mistake="it asks autograd", expected=expected, got=got)


def _reaches_the_child(answer: Any) -> None:
    """train() and eval() reach the module inside, also from a parent"""
    inner, x = nn.Dropout(0.5), torch.randn(64)
    m = _around(answer, inner)
    net = nn.Sequential(m)
    for module, method in ((net, "eval"), (net, "train"), (m, "eval"), (m, "train")):
        getattr(module, method)()
        mode = method == "train"
        if inner.training is not mode:
            fail(mistake="the child stays behind", expected=f"training is {mode} inside", got=inner.training, evidence=modlab.tree(net))
    net.eval()
    require_equal(net(x), x, "With a dropout inside, it is still random in evaluation mode.", evidence=modlab.tree(net))
    if m.eval() is not m:
        fail("`train()` and `eval()` should return the module, as `nn.Module`'s do.", expected="the module", got=m.eval())


def _calls_it(answer: Any) -> None:
    """it calls the module inside, so that its hooks run, and gradients come through"""
    inner, x = nn.Linear(3, 3), torch.randn(2, 3, requires_grad=True)
    ran: list[nn.Module] = []
    m = _around(answer, inner)
    for training in (True, False):
        m.train(training)
        ran.clear()
        with inner.register_forward_hook(lambda module, inputs, output: ran.append(module)):
            y = m(x)
        if len(ran) != 1:
            told: dict[str, Any] = {"expected": "1 run of a hook on inner", "got": f"{len(ran)} runs", "evidence": modlab.trace(m)(x)}
            fail("" if not ran else "It calls the module inside more than once.", mistake="past the hooks" if not ran else "", **told)
        if not y.requires_grad:
            fail(mistake="cut from the graph", expected="an output with a grad_fn", got="an output without one")
        for tensor in (x, inner.weight):
            tensor.grad = None
        y.sum().backward()
        if any(tensor.grad is None for tensor in (x, inner.weight)):
            fail(mistake="cut from the graph", expected="gradients for x and for inner", got="none")


def _without_super(source: str) -> str:
    """A class whose constructor does not begin with ``super().__init__()``."""
    return source.replace("        super().__init__()\n", "", 1)


def _modal(forward: str, constructor: str = "self.inner = inner", more: str = "") -> str:
    return f"""
class Modal(nn.Module):
    def __init__(self, inner):
        super().__init__()
        {constructor}

    def forward(self, x):
        return {forward}
{more}"""


MODAL = Task(
    "Modal",
    "Write `Modal(inner)`, a module around another one: in training mode it gives `inner(x) + 1.0`, in evaluation mode `inner(x)`.",
    starter="""
class Modal(nn.Module):
    def __init__(self, inner):
        super().__init__()
        ...

    def forward(self, x):
        ...
""",
    reference=_modal("self.inner(x) + 1.0 if self.training else self.inner(x)"),
    probes=(_has_a_child, _adds, _ignores_autograd, _reaches_the_child, _calls_it),
    mistakes=(
        Mistake(
            "a flag of its own",
            _modal("self.inner(x) + 1.0 if self.is_training else self.inner(x)", "self.inner, self.is_training = inner, True"),
            "Your flag is one that `eval()` does not know. Every module has one already, and `train()` and `eval()` set it.",
        ),
        Mistake(
            "it asks autograd",
            _modal("self.inner(x) + 1.0 if torch.is_grad_enabled() else self.inner(x)"),
            "Whether gradients are on is autograd's switch, and the mode is another: all four combinations exist.",
            belief=18,
        ),
        Mistake(
            "decided too early",
            _modal("self.inner(x) + self.shift", "self.inner, self.shift = inner, 1.0 if self.training else 0.0"),
            "It adds one in both modes. The constructor runs once, in training mode; the mode must be asked at each call, in `forward`.",
        ),
        Mistake(
            "the child stays behind",
            _modal(
                "self.inner(x) + 1.0 if self.training else self.inner(x)",
                more="\n    def train(self, mode=True):\n        self.training = mode\n        return self\n",
            ),
            "Your `train` sets one flag. `nn.Module`'s own goes through all children too, so leave it as it is.",
            belief=20,
        ),
        Mistake(
            "child in a list",
            _modal("self.inner[0](x) + 1.0 if self.training else self.inner[0](x)", "self.inner = [inner]"),
            "What is in a plain list, tuple or dict is not a child: `eval()` does not reach it, and its parameters are nobody's.",
            belief=1,
        ),
        Mistake(
            "one added to the input",
            _modal("self.inner(x + 1.0) if self.training else self.inner(x)"),
            "The one is added before the inner module runs; it should be added to what that gives.",
        ),
        Mistake(
            "nobody asks for the mode",
            _modal("self.inner(x) + 1.0"),
            "It adds one in both modes: nothing in it asks for the mode. `self.training` says it, at each call.",
        ),
        Mistake(
            "inner is not kept",
            _modal("self.inner(x) + 1.0 if self.training else self.inner(x)", "..."),
            "The constructor gets `inner`, and the module does not have it afterwards. Assign it: `self.inner = inner`.",
        ),
        Mistake(
            "a copy of inner",
            _modal("self.inner(x) + 1.0 if self.training else self.inner(x)", "import copy\n        self.inner = copy.deepcopy(inner)"),
            "Your module works on a copy. What happens to `inner` afterwards, a step of its optimizer for one, does not reach it.",
        ),
        Mistake(
            "past the hooks",
            _modal("self.inner.forward(x) + float(self.training)"),
            "`inner.forward(x)` goes past the hooks of the module inside. Call the module: `self.inner(x)`.",
            belief=33,
        ),
        Mistake(
            "cut from the graph",
            _modal("self.inner(x).detach() + float(self.training)"),
            "The output has no history, so neither the module inside nor anything in front of it can learn. Leave `detach` out.",
        ),
        *initialization.mistakes(
            late=_without_super(_modal("self.inner(x) + float(self.training)", "self.inner = inner\n        super().__init__()")),
            never=_without_super(_modal("self.inner(x) + float(self.training)")),
        ),
    ),
    hints=(
        "Every module has a flag that `train()` and `eval()` set. What is it called?",
        "Ask `self.training` in `forward`: that runs at each call. The constructor only keeps `inner`.",
    ),
    minutes=4,
    matters="Dropout and BatchNorm work like this: `train()` sets a flag on each module, and each `forward` reads its own.",
)

# ---- the second task: dropout by the function -------------------------------------------------------


def _dropout(answer: Any, p: float) -> nn.Module:
    require_module_class(answer, "MyDropout")
    return initialization.made(answer, p)


def _quiet(answer: Any) -> None:
    """in evaluation mode it gives what it gets"""
    x = torch.randn(50, 8)
    m = _dropout(answer, 0.5).eval()
    got = m(x)
    if same(got, x):
        return
    if same(m.train()(x), x):
        fail(mistake="the wrong way round", expected=x[0], got=got[0] if isinstance(got, Tensor) else got)
    if isinstance(got, Tensor) and got.shape == x.shape and bool((got == 0).any()):
        fail(mistake="always on", expected=x[0], got=got[0], evidence=modlab.compare(m)(x))
    if got is None:
        fail(NOTHING, expected=x[0], got=None)
    require_equal(got, x, "In evaluation mode it gives something other than its input.")


def _drops(answer: Any) -> None:
    """in training mode a share of p becomes zero"""
    shares = {}
    for p in (0.2, 0.75):
        got = _dropout(answer, p).train()(torch.ones(100, 100))
        if not isinstance(got, Tensor) or got.shape != (100, 100):
            fail("It should give a tensor of its input's shape.", expected=(100, 100), got=getattr(got, "shape", type(got).__name__))
        shares[p] = (got == 0).double().mean().item()
    told = {"expected": "shares of zeros: 0.20 for p=0.2, 0.75 for p=0.75", "got": ", ".join(f"{share:.2f}" for share in shares.values())}
    if all(abs(share - 0.5) < 0.05 for share in shares.values()):
        fail(mistake="p left out", **told)
    if all(abs(share - (1 - p)) < 0.05 for p, share in shares.items()):
        fail(mistake="p taken for what stays", **told)
    if not any(shares.values()):
        fail("It drops nothing in training mode.", **told)
    if any(abs(share - p) > 0.05 for p, share in shares.items()):
        fail("The share of zeros is different.", **told)


def _scales(answer: Any) -> None:
    """what it keeps is scaled, so that the mean stays"""
    for p in (0.2, 0.75):
        got = _dropout(answer, p).train()(torch.ones(1000))
        kept = got[got != 0].unique()
        if same(kept, torch.ones(1)):
            fail(mistake="not scaled", expected=1 / (1 - p), got=1.0)
        require_equal(kept, torch.tensor([1 / (1 - p)]), f"Of ones, with p={p}, it keeps something else.")


def _draws_anew(answer: Any) -> None:
    """each call draws anew, and leaves its input alone"""
    m, x = _dropout(answer, 0.5).train(), torch.ones(200)
    first = m(x).clone()
    if not torch.equal(x, torch.ones(200)):
        fail(mistake="it changes its input", expected=torch.ones(4), got=x[:4])
    if torch.equal(first, m(x)):
        fail("Two calls drop the very same numbers.")


def _lets_gradients_pass(answer: Any) -> None:
    """gradients go back through what it keeps"""
    for training in (True, False):
        x = torch.ones(50, requires_grad=True)
        y = _dropout(answer, 0.5).train(training)(x)
        if not y.requires_grad:
            fail(mistake="cut from the graph", expected="an output with a grad_fn", got="an output without one")
        y.sum().backward()
        require_equal(x.grad, y, "The gradient of `x` should be the factor: 0 for what goes, 1/(1 - p) for what stays.")


def _my_dropout(forward: str) -> str:
    return f"""
class MyDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return {forward}
"""


MY_DROPOUT = Task(
    "MyDropout",
    "Write `MyDropout(p)`, which does what `nn.Dropout(p)` does, by calling `F.dropout`.",
    starter="""
class MyDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        ...
""",
    reference=_my_dropout("F.dropout(x, self.p, training=self.training)"),
    probes=(_quiet, _drops, _scales, _draws_anew, _lets_gradients_pass),
    mistakes=(
        Mistake(
            "always on",
            _my_dropout("F.dropout(x, self.p)"),
            "It is random in evaluation mode too: the function's own `training` is True unless you pass it on.",
            belief=21,
        ),
        Mistake(
            "p left out",
            _my_dropout("F.dropout(x, training=self.training)"),
            "Half of the numbers go, whatever `p` is: the function was not told, and takes 0.5.",
        ),
        Mistake(
            "p taken for what stays",
            _my_dropout("F.dropout(x, 1 - self.p, training=self.training)"),
            "`p` is the share that goes, in the function as in the module.",
        ),
        Mistake(
            "the wrong way round",
            _my_dropout("F.dropout(x, self.p, training=not self.training)"),
            "It drops in evaluation mode and does nothing in training mode.",
        ),
        Mistake(
            "not scaled",
            _my_dropout("x * (torch.rand_like(x) >= self.p) if self.training else x"),
            "What is kept stays as it was, so the mean shrinks with `p`. `F.dropout` multiplies it by 1/(1 - p).",
        ),
        Mistake(
            "it changes its input",
            _my_dropout("F.dropout(x, self.p, training=self.training, inplace=True)"),
            "With `inplace=True` it writes into the caller's tensor.",
        ),
        Mistake(
            "cut from the graph",
            _my_dropout("F.dropout(x.detach(), self.p, training=self.training)"),
            "Behind `detach()` nothing learns: no gradient gets back to the layers in front. Give `F.dropout` the input itself.",
        ),
        Mistake(
            initialization.NEVER,
            _without_super(_my_dropout("F.dropout(x, self.p, training=self.training)")),
            "The constructor never calls `super().__init__()`. Make it the first line: it makes the flag `training` as well.",
            belief=4,
        ),
    ),
    hints=("`F.dropout` has three arguments that matter: the input, the share, and whether it is training. Who knows the last?",),
    minutes=3,
    matters="The function knows nothing of the module's mode: without `training=self.training` it drops numbers in use, too.",
)

# ---- the third task: freeze BatchNorm ---------------------------------------------------------------

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def _plain_net() -> nn.Module:
    """One BatchNorm above, one further below; nothing random."""
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))


def _statistics(net: nn.Module) -> dict[str, Tensor]:
    return {
        name: value.detach().clone()
        for name, value in net.state_dict().items()
        if name.rpartition(".")[2] in ("running_mean", "running_var")
    }


def _lived(net: nn.Module, *shape: int) -> nn.Module:
    """The net after some batches, so that its statistics are not those of a new one."""
    for _ in range(3):
        net.train()(3 * torch.randn(16, *shape) + 1)
    return net


def _frozen(answer: Any, net: nn.Module) -> nn.Module:
    require_callable(answer, "freeze_batchnorm")
    answer(net)
    return net


def _stands_still(answer: Any) -> None:
    """after net.train() the running statistics stand still, of every BatchNorm"""
    for net, shape in ((_plain_net(), (3,)), (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), (1, 5, 5))):
        _lived(net, *shape)
        norms = {name: module for name, module in net.named_modules() if isinstance(module, NORMS)}
        x = torch.randn(8, *shape)
        before, were = _statistics(net), modlab.snapshot(net)
        _frozen(answer, net)
        after_it = {name: module.training for name, module in norms.items()}
        net.train()
        net(x)
        now = _statistics(net)
        if now.keys() != before.keys():
            fail("The running statistics are gone from the state_dict.", expected=[*before], got=[*now], evidence=modlab.state(net))
        moved = {name.rpartition(".")[0] for name, value in now.items() if not torch.equal(value, before[name])}
        if not moved:
            continue
        told: dict[str, Any] = {"expected": "no statistics moved", "got": f"moved in {', '.join(sorted(moved))}"}
        told["evidence"] = modlab.diff(were, net)
        if len(moved) < len(norms):
            fail(mistake="only the direct children", **told)
        if len(shape) > 1:
            fail(mistake="BatchNorm1d alone", **told)
        if not any(after_it.values()):
            fail(mistake="eval() once", **told)
        if not any(p.requires_grad for module in norms.values() for p in module.parameters()):
            fail(mistake="only requires_grad", **told)
        fail("After `net.train()` the statistics move again.", **told)


def _uses_them(answer: Any) -> None:
    """after net.train() each BatchNorm scales by its running statistics, not by the batch's"""
    net = _lived(_plain_net(), 3)
    x = torch.randn(8, 3)
    expected = copy.deepcopy(net).eval()(x)
    _frozen(answer, net).train()
    got = net(x)
    if same(got, expected, 1e-4):
        return
    norms = [module for module in net.modules() if isinstance(module, NORMS)]
    told: dict[str, Any] = {"expected": expected[0], "got": got[0] if isinstance(got, Tensor) else got}
    if any(module.momentum == 0 for module in norms):
        fail(mistake="momentum 0", **told)
    if any(not module.track_running_stats for module in norms):
        fail(mistake="not tracked", **told)
    fail("In training mode the net gives something other than with its running statistics.", **told)


def _others_follow(answer: Any) -> None:
    """all other modules still follow train() and eval()"""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Sequential(ModalModule(), nn.BatchNorm1d(4)))
    others = {name: module for name, module in net.named_modules() if not isinstance(module, NORMS)}
    _frozen(answer, net)
    for training in (True, False, True):
        net.train(training) if training else net.eval()
        stuck = [name or "(root)" for name, module in others.items() if module.training is not training]
        if stuck:
            wanted = f"{'training' if training else 'evaluation'} mode"
            everything = len(stuck) == len(others) and training
            fail(
                "" if everything else f"After `net.{'train' if training else 'eval'}()` these are in the other mode: {', '.join(stuck)}.",
                mistake="the whole net stopped" if everything else "",
                expected=wanted,
                got=f"not in {', '.join(stuck)}",
                evidence=modlab.tree(net),
            )


def _stays(answer: Any) -> None:
    """it still holds after eval() and train()"""
    net = _frozen(answer, _lived(_plain_net(), 3))
    before = _statistics(net)
    net.eval()
    net.train()
    net(torch.randn(8, 3))
    moved = [name for name, value in _statistics(net).items() if not torch.equal(value, before[name])]
    if moved:
        fail("After `net.eval()` and `net.train()` they move again.", expected=[], got=moved)


def _returns(answer: Any) -> None:
    """train() and eval() still return the module that they are called on"""
    net = _frozen(answer, _plain_net())
    for name, module in net.named_modules():
        for method in ("train", "eval"):
            got = getattr(module, method)()
            if got is module:
                continue
            expected = f"{name or 'net'}.{method}() returns the module"
            mistake = "train returns nothing" if got is None else ""
            says = "" if mistake else "`train()` and `eval()` should return the module that they are called on."
            fail(says, mistake=mistake, expected=expected, got=f"a {type(got).__name__}")


def _freeze(body: str, which: str = "net.modules()", kinds: str = "(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)") -> str:
    return f"""
def freeze_batchnorm(net):
    for module in {which}:
        if isinstance(module, {kinds}):
            {body}
"""


_HOLD = "module.eval()\n            module.train = lambda mode=True, module=module: module"

FREEZE = Task(
    "freeze_batchnorm",
    "Write `freeze_batchnorm(net)`: from then on every BatchNorm in `net` works as in evaluation mode, also after `net.train()`. "
    "All other modules follow `train()` and `eval()` as before.",
    starter="""
def freeze_batchnorm(net):
    ...
""",
    reference=_freeze(_HOLD),
    probes=(_stands_still, _uses_them, _others_follow, _stays, _returns),
    mistakes=(
        Mistake(
            "eval() once",
            _freeze("module.eval()"),
            "The next `net.train()`, at the start of an epoch, puts every child back into training mode.",
            belief=20,
        ),
        Mistake(
            "only requires_grad",
            _freeze("module.requires_grad_(False)"),
            "That freezes weight and bias. The running statistics are buffers, and are written by `forward`, not by gradients.",
            belief=20,
        ),
        Mistake(
            "the whole net stopped",
            "\ndef freeze_batchnorm(net):\n    net.eval()\n    net.train = lambda mode=True: net\n",
            "Now no module goes into training mode any more, dropout neither. Only BatchNorm should be held.",
        ),
        Mistake(
            "momentum 0",
            _freeze("module.momentum = 0.0"),
            "The statistics stand still, but in training mode BatchNorm does not use them: it scales by the batch's own.",
            belief=19,
        ),
        Mistake(
            "not tracked",
            _freeze("module.track_running_stats = False"),
            "Now they are not written, and in training mode not read either: it scales by the batch's own.",
            belief=19,
        ),
        Mistake(
            "only the direct children",
            _freeze(_HOLD, "net.children()"),
            "A BatchNorm further down was missed: `children()` gives one level, `modules()` all.",
            belief=28,
        ),
        Mistake(
            "BatchNorm1d alone",
            _freeze(_HOLD, kinds="nn.BatchNorm1d"),
            "A net for pictures has `BatchNorm2d`, which is no `BatchNorm1d`.",
        ),
        Mistake(
            "train returns nothing",
            _freeze("module.eval()\n            module.train = lambda mode=True: None"),
            "`train()` returns its module, and `eval()` what `train` gives; so `norm.eval()(x)` now calls None. Return the module.",
        ),
    ),
    hints=(
        "`net.train()` calls `train(True)` of each child. What if a BatchNorm's `train` did nothing?",
        "A function can be assigned to a module: `module.train = …` stands in front of the class's own. It must return the module.",
        "Walk over `net.modules()`; for each BatchNorm call `eval()`, then put a `train` on it that only returns it. "
        "In a loop, give the function its module as a default: `lambda mode=True, module=module: module`.",
    ),
    minutes=8,
    matters="Fine-tuning on small batches does this, so that they do not spoil the statistics of the large training.",
)

LESSON = Content(
    name="06_modes",
    title="Modes",
    goal="say what train() and eval() switch, what no_grad switches, and what neither of them stops",
    minutes=30,
    after=("05_training_loop",),
    predictions=PREDICTIONS,
    recalls=RECALLS,
    tasks=(MODAL, MY_DROPOUT, FREEZE),
)
