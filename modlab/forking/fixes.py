"""Fixes of findings as a fork can apply them: a table from the kind of a remedy, or of a finding, to a change of the copies.

A new finding's fix is a new row: the name of a change for its remedy's kind, or a line of code in the remedy that speaks of ``model``
and ``optimizer`` alone, which is run on the copies as it is.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.errors import ForkError
from modlab.forking.batch_player import BatchPlayer
from modlab.forking.player import NARROW, Player
from modlab.inspection import stores
from modlab.records.finding import Fact, Finding
from modlab.running.values import mapped

Fix = Callable[[Player, Finding], None]

CODE = "code"
"""The change that is a remedy's own line of code."""

_KNOWN = frozenset({"model", "optimizer", "self", "nn", "torch"})


def fix_of(finding: Finding) -> tuple[str, str] | None:
    """The name of the change that is its fix, and the line of code where that is one; None if it has none that can be applied.

    The first of its remedies that can be applied counts; then its own kind.
    """
    for remedy in finding.fixes:
        code = _bare(remedy.code)
        if name := OF_REMEDIES.get(remedy.kind) or OF_CODE.get(code):
            return name, ""
        if code:
            return CODE, code
    own = OF_FINDINGS.get(_kind(finding))
    return None if own is None else (own, "")


def _kind(finding: Finding) -> str:
    """Its kind, or one of its own where the facts decide what the fix is."""
    if finding.kind == "rate too low" and finding.facts.get("rate") == 0:
        return "rate zero"
    if finding.kind == "dead units" and finding.facts.get("never"):
        return "dead from the start"
    return "climbing" if is_climbing(finding) else finding.kind


def is_climbing(finding: Finding) -> bool:
    """Whether a training is turned around by its optimizer, and not by its loss."""
    return finding.kind == "wrong sign" and (finding.facts.get("how") == "maximize" or bool(finding.facts.get("climbs")))


def is_rate(finding: Finding) -> bool:
    """Whether its fix is another learning rate."""
    return (fix_of(finding) or ("", ""))[0] in _RATES


def applied(name: str, code: str, finding: Finding) -> Callable[[Player], None]:
    """A change for a fork."""
    if name == CODE:
        return lambda player: _run(code, player, finding)
    return lambda player: CHANGES[name](player, finding)


def _bare(code: str) -> str:
    """Lines that change a model or an optimizer, and need nothing else, without their comments; "" for others."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return ""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    open_ = any(isinstance(node, ast.Constant) and node.value is ... for node in ast.walk(tree))
    return ast.unparse(tree) if names <= _KNOWN and not open_ and all(map(_acts, tree.body)) else ""


def _acts(statement: ast.stmt) -> bool:
    """Whether it calls something, or assigns to a part of something."""
    if isinstance(statement, ast.Assign):
        return not any(isinstance(target, ast.Name) for target in statement.targets)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Attribute)


def _run(code: str, player: Player, finding: Finding) -> None:
    things, owner = player.things, _places(player, finding)[0]
    room = {"model": things.model, "optimizer": things.optimizers[0], "self": owner, "nn": nn, "torch": torch}
    exec(code, room)
    _own(player)


# ---- changes


def _groups(player: Player) -> Iterable[dict[str, Any]]:
    return (group for optimizer in player.things.optimizers for group in optimizer.param_groups)


class RateNoted:
    """A change, and the learning rate that came of it, where all groups of parameters have one.

    Args:
        change: it.
    """

    def __init__(self, change: Callable[[Player], None]) -> None:
        self._change = change
        self._player: Player | None = None
        self._before = self._after = 0.0

    def __call__(self, player: Player) -> None:
        """Make it."""
        self._player, self._before = player, _rate(player)
        self._change(player)
        self._after = _rate(player)

    def facts(self) -> dict[str, Fact]:
        """`lr`, `lr_before` the change, and `lr_last`, where a schedule moved it since; nothing where it stayed, or was 0."""
        if self._player is None or not (self._before and self._after) or self._before == self._after:
            return {}
        last = _rate(self._player)
        moved: dict[str, Fact] = {"lr_last": last} if last != self._after else {}
        return {"lr": self._after, "lr_before": self._before, **moved}


def _rate(player: Player) -> float:
    """The one learning rate of all groups; 0 where they have several, or none."""
    rates = {float(group["lr"]) for group in _groups(player) if "lr" in group}
    return rates.pop() if len(rates) == 1 else 0.0


def _scale_rate(factor: float) -> Fix:
    def change(player: Player, _: Finding) -> None:
        for optimizer, held in enumerate(player.things.optimizers):
            for place, group in enumerate(held.param_groups):
                player.scale(optimizer, place, "lr", factor)
                value = group["lr"] * factor
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(value)
                else:
                    group["lr"] = value

    return change


def _some_rate(rate: float) -> Fix:
    def change(player: Player, _: Finding) -> None:
        for group in _groups(player):
            if not float(group["lr"]):
                group["lr"] = rate

    return change


def _set(name: str, value: float) -> Fix:
    def change(player: Player, _: Finding) -> None:
        groups = [*_groups(player)]
        before = [(group.get(name), group.get("betas")) for group in groups]
        for group in groups:
            if name in group:
                group[name] = value
            elif name == "momentum" and "betas" in group:
                group["betas"] = (value, *group["betas"][1:])
        _require(before != [(group.get(name), group.get("betas")) for group in groups], player)

    return change


def _descend(player: Player, _: Finding) -> None:
    for group in _groups(player):
        if group.get("maximize"):
            group["maximize"] = False


def _no_decay(player: Player, finding: Finding) -> None:
    _require(
        finding.facts.keys().isdisjoint(("part", "looks")) and not finding.facts.get("penalty"), player
    )  # what the loop or the loss does
    _set("weight_decay", 0.0)(player, finding)


def _own(player: Player, finding: Finding | None = None) -> None:
    """Give what is trained and in no optimizer to the nearest one; where that is the fix of a finding, there has to be something."""
    if not player.things.optimizers:
        return
    held = {id(tensor) for group in _groups(player) for tensor in group["params"]}
    lacking = [name for name, one in player.things.model.named_parameters() if one.requires_grad and id(one) not in held]
    for number, tensors in _by_optimizer(player, lacking).items():
        _require_dense(player, number, tensors)
        _add(player, number, tensors)
    _require(finding is None or bool(lacking), player)


def _by_optimizer(player: Player, lacking: Sequence[str]) -> dict[int, list[Tensor]]:
    """For each optimizer the parameters that it lacks: those of the modules that it holds, else of their neighbours."""
    parameters = dict(player.things.model.named_parameters())
    order = {name: place for place, name in enumerate(parameters)}
    numbers = {id(one): number for number, each in enumerate(player.things.optimizers) for one in _held(each)}
    owners = {name: numbers[id(one)] for name, one in parameters.items() if id(one) in numbers}

    def distance(name: str, other: str) -> tuple[int, int]:
        shared = takewhile(lambda pair: pair[0] == pair[1], zip(name.split("."), other.split("."), strict=False))
        return -sum(1 for _ in shared), abs(order[name] - order[other])

    found: dict[int, list[Tensor]] = {}
    for name in lacking:
        nearest = min(owners, key=partial(distance, name), default=None)
        found.setdefault(owners[nearest] if nearest is not None else 0, []).append(parameters[name])
    return found


def _held(optimizer: Any) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def _add(player: Player, number: int, tensors: list[Tensor]) -> None:
    """To an optimizer. LBFGS takes one group, and what it remembers is of the parameters that it has: it begins anew."""
    optimizer = player.things.optimizers[number]
    if not isinstance(optimizer, torch.optim.LBFGS):
        optimizer.add_param_group({"params": tensors})
        return
    (group,) = optimizer.param_groups
    known = inspect.signature(torch.optim.LBFGS).parameters
    settings = {name: value for name, value in group.items() if name in known and name != "params"}
    player.things.optimizers[number] = torch.optim.LBFGS([*group["params"], *tensors], **settings)


_TAKES_SPARSE = (torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam, torch.optim.LBFGS)
"""Of PyTorch's own optimizers, those that take sparse gradients."""


def _require_dense(player: Player, number: int, lacking: Sequence[Tensor]) -> None:
    """An optimizer that takes no sparse gradients is not given a parameter that gets them."""
    optimizer = player.things.optimizers[number]
    wanted = {id(one) for one in lacking}
    modules = player.things.modules().items()
    sparse = [
        f"{path}.weight".lstrip(".") for path, one in modules if getattr(one, "sparse", False) and id(getattr(one, "weight", 0)) in wanted
    ]
    if sparse and type(optimizer).__module__.startswith("torch.optim") and not isinstance(optimizer, _TAKES_SPARSE):
        raise ForkError(
            f"Its fix cannot be applied to a copy: {sparse[0]} gets sparse gradients, which {type(optimizer).__name__} does not take.\n"
            f"  Give it an optimizer of its own, torch.optim.SparseAdam([model.{sparse[0]}]), or write sparse=False in the embedding."
        )


def _unfreeze(player: Player, finding: Finding) -> None:
    places = _places(player, finding)
    _require(any(not one.requires_grad for module in places for one in module.parameters()), player)
    for module in places:
        module.requires_grad_(True)
    _own(player)


def _places(player: Player, finding: Finding) -> list[Module]:
    """The modules that a finding is about, or the whole model."""
    modules = player.things.modules()
    paths = [*finding.places, finding.path, finding.module]
    found = [modules[name] for path in paths for name in (path, path.rpartition(".")[0]) if name and name in modules]
    return found[: None if finding.places else 1] or [player.things.model]


def _fresh(player: Player, _: Finding) -> None:
    _require_loop(player)
    player.fresh_gradients = True


def _unclipped(player: Player, _: Finding) -> None:
    _require_loop(player)
    _require(player.clips, player)
    player.without_clipping = True


def _clip_higher(player: Player, _: Finding) -> None:
    _require_loop(player)
    _require(player.clips, player)
    player.clipping = 10.0


def _train(player: Player, _: Finding) -> None:
    player.training = True
    player.things.model.train()


ROUNDED, FAR = 1e-6, 10.0
"""Of a feature's mean, what may be rounding; and deviations at which a feature is cut off: the batch seen first may lack its large ones."""


class _Standard:
    """Brings the floating inputs of a model to mean 0 and deviation 1, feature by feature, by the batch that it sees first."""

    def __init__(self) -> None:
        self._by: list[tuple[Tensor, Tensor]] = []
        self._place = 0

    def __call__(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        self._place = 0
        args, kwargs = mapped((args, kwargs), self._standard)
        return args, kwargs

    def _standard(self, given: Tensor) -> Tensor:
        if not given.is_floating_point() or not given.dim():
            return given
        if self._place == len(self._by):
            over = _all_but(_feature_dimension(given), given)
            seen = given.detach()
            mean, deviation = seen.mean(over, keepdim=True), seen.std(over, keepdim=True, correction=0)
            self._by.append((mean, deviation.where(deviation > ROUNDED * mean.abs(), torch.ones_like(deviation))))
        mean, deviation = self._by[self._place]
        self._place += 1
        return ((given - mean) / deviation).clamp(-FAR, FAR)


def _all_but(dimension: int | None, given: Tensor) -> list[int]:
    return [one for one in range(given.dim()) if one != dimension]


def _feature_dimension(given: Tensor) -> int | None:
    """The dimension, behind that of the samples, along which sizes differ most; none for numbers without features."""
    if given.dim() < 2:
        return None
    sizes = given.detach().double().square()
    means = {one: sizes.mean(_all_but(one, given)) for one in range(1, given.dim())}
    return max(means, key=lambda one: float(means[one].max() / means[one].min().clamp_min(1e-30)))


def _standardize(player: Player, _: Finding) -> None:
    player.things.model.register_forward_pre_hook(_Standard(), with_kwargs=True)


OWN_CHANGE = "  Try a change of your own: w.fork(step, lambda model, optimizer: …)"
"""What to do where a fix is not tried, and the training was kept."""

KEPT_CHANGE = '  Try a change of your own, of a watch with keep="good": w.fork(step, lambda model, optimizer: …)'
"""The same where it was not."""


def own_change(is_kept: bool) -> str:
    """What to do where a fix is not tried."""
    return OWN_CHANGE if is_kept else KEPT_CHANGE


def _require(there: bool, player: Player) -> None:
    """Something has to be there that the fix changes."""
    if not there:
        raise ForkError(
            "The fix finds nothing to change in this training: what is done by hand, or called as a function, stays as it is.\n"
            + own_change(not isinstance(player, BatchPlayer))
        )


def _require_loop(player: Player) -> None:
    """The fork has to run the training's own loop."""
    if isinstance(player, BatchPlayer):
        raise ForkError(
            "The fix is about the loop, and a fork on one batch has a loop of its own, which zeroes gradients in each step, "
            "clips none and casts nothing to 16 bits.\n"
            '  Watch again, with keep="good", which keeps the loop: modlab.watch(model, optimizer, keep="good")'
        )


_ACTIVATED = (nn.Softmax, nn.LogSoftmax, nn.Sigmoid, nn.LogSigmoid)


def _no_last_activation(player: Player, _: Finding) -> None:
    modules = stores.modules(player.things.model)
    found = [(module, name) for module in modules for name, child in stores.named_children(module) if isinstance(child, _ACTIVATED)]
    _require(bool(found), player)
    module, name = found[-1]
    module._modules[name] = nn.Identity()


def _last_layer(player: Player) -> Module:
    weights = [(one, getattr(one, "weight", None)) for one in player.things.modules().values()]
    layers = [one for one, weight in weights if isinstance(weight, Tensor) and weight.dim() > 1]
    _require(bool(layers), player)
    return layers[-1]


def _smaller_last(player: Player, _: Finding) -> None:
    layer: Any = _last_layer(player)
    with torch.no_grad():
        layer.weight.mul_(0.1)
        if isinstance(layer.bias, Tensor):
            layer.bias.zero_()


def _smaller_weights(player: Player, finding: Finding) -> None:
    """Begin anew with PyTorch's own scale."""
    modules = {id(module): module for place in _places(player, finding) for module in stores.modules(place)}
    held: list[Any] = [getattr(one, "reset_parameters", None) or getattr(one, "_reset_parameters", None) for one in modules.values()]
    resets = [one for one in held if callable(one)]
    _require(bool(resets), player)
    for reset in resets:
        reset()


def _new_weights(player: Player, _: Finding) -> None:
    _smaller_weights(player, Finding(""))


def _dropout(p: float) -> Fix:
    def change(player: Player, _: Finding) -> None:
        named = [(one, "p" if isinstance(one, nn.modules.dropout._DropoutNd) else "dropout") for one in player.things.modules().values()]
        dropped: list[Any] = [(one, name) for one, name in named if _is_more(getattr(one, name, None), p)]
        _require(bool(dropped), player)
        for one, name in dropped:
            setattr(one, name, p)

    return change


def _is_more(held: Any, p: float) -> bool:
    """Whether it is a share, as attention and recurrent layers have one of their own, and a larger one."""
    return isinstance(held, float) and held > p


def _divide_loss(player: Player, finding: Finding) -> None:
    """By what makes more or less of it than a mean, over all passes of a step, as far as the finding knows."""
    times, factor, added, passes = (finding.facts.get(name, 0.0) for name in ("times", "factor", "added", "passes"))
    times = times or factor * added * round(passes or 1)  # type: ignore[operator,arg-type]
    _require(isinstance(times, float) and times > 0 and "first" not in finding.facts, player)  # one that changes is not known at each step
    player.loss_factor = 1 / times  # type: ignore[operator]


def _float32(player: Player, _: Finding) -> None:
    numbers = [*player.things.model.parameters(), *player.things.model.buffers()]
    is_narrow = any(one.dtype in NARROW for one in numbers)
    if not is_narrow:
        _require_loop(player)
    _require(player.narrow or is_narrow, player)
    for module in (player.things.model, *player.things.beside.values()):  # a criterion's own weights, too
        module.float()
    player.wide = True


_LESS = (
    (1 / 3, "a third of"),
    (0.1, "a tenth of"),
    (1 / 30, "a thirtieth of"),
    (0.01, "a hundredth of"),
    (1 / 300, "a three-hundredth of"),
    (0.001, "a thousandth of"),
    (1 / 3000, "a three-thousandth of"),
    (1e-4, "a ten-thousandth of"),
)
_MORE = (
    (3.0, "three times"),
    (10.0, "ten times"),
    (30.0, "thirty times"),
    (100.0, "a hundred times"),
    (300.0, "three hundred times"),
    (1000.0, "a thousand times"),
    (3000.0, "three thousand times"),
    (1e4, "ten thousand times"),
    (3e4, "thirty thousand times"),
    (1e5, "a hundred thousand times"),
    (3e5, "three hundred thousand times"),
)
_FAR_LESS = (
    (1 / 3e4, "a thirty-thousandth of"),
    (1e-5, "a hundred-thousandth of"),
    (1 / 3e5, "a three-hundred-thousandth of"),
    (1e-6, "a millionth of"),
    (1 / 3e6, "a three-millionth of"),
    (1e-7, "a ten-millionth of"),
    (1 / 3e7, "a thirty-millionth of"),
    (1e-8, "a hundred-millionth of"),
)
_FAR_MORE = (
    (1e6, "a million times"),
    (3e6, "three million times"),
    (1e7, "ten million times"),
    (3e7, "thirty million times"),
    (1e8, "a hundred million times"),
    (3e8, "three hundred million times"),
    (1e9, "a billion times"),
    (3e9, "three billion times"),
)
"""Factors of a learning rate, every other one a power of ten."""

_SOME = (0.001, 0.01, 0.1)
"""Learning rates where it is 0."""

CHANGES: dict[str, Fix] = {
    **{f"{words} the learning rate": _scale_rate(factor) for factor, words in (*_LESS, *_MORE, *_FAR_LESS, *_FAR_MORE)},
    **{f"a learning rate of {rate}": _some_rate(rate) for rate in _SOME},
    "a momentum of 0.9": _set("momentum", 0.9),
    "no weight decay": _no_decay,
    "maximize=False": _descend,
    "all parameters in the optimizer": _own,
    "nothing frozen": _unfreeze,
    "gradients zeroed in each step": _fresh,
    "no clipping": _unclipped,
    "ten times the bound of clipping": _clip_higher,
    "training mode": _train,
    "standardized inputs": _standardize,
    "no activation at the end": _no_last_activation,
    "a smaller last layer": _smaller_last,
    "new initial weights": _smaller_weights,
    "new initial weights in all layers": _new_weights,
    "dropout of 0.1": _dropout(0.1),
    "no dropout": _dropout(0.0),
    "the loss without its factor": _divide_loss,
    "float32": _float32,
}
"""What a fork is changed to, in the words in which it is told: "with …"."""

DOSES: dict[str, tuple[str, ...]] = {
    "a tenth of the learning rate": tuple(f"{words} the learning rate" for _, words in _LESS),
    "ten times the learning rate": tuple(f"{words} the learning rate" for _, words in _MORE),
    "a learning rate of 0.001": tuple(f"a learning rate of {rate}" for rate in _SOME),
    "dropout of 0.1": ("dropout of 0.1", "no dropout"),
    "new initial weights": ("new initial weights", "new initial weights in all layers"),
}
"""Doses of the same change, or ways to the same end, the smallest first: a short trial of some decides."""

FURTHER: dict[str, tuple[str, ...]] = {
    "a tenth of the learning rate": tuple(f"{words} the learning rate" for _, words in _FAR_LESS),
    "ten times the learning rate": tuple(f"{words} the learning rate" for _, words in _FAR_MORE),
}
"""Doses behind the last one of `DOSES`: tried only where that is the best."""

_RATES = ("a tenth of the learning rate", "ten times the learning rate")

TRIAL = 50
"""Steps of such a trial, at most."""

OF_REMEDIES: dict[str, str] = {
    "smaller steps": "a tenth of the learning rate",
    "larger steps": "ten times the learning rate",
    "any steps": "ten times the learning rate",
    "some learning rate": "a learning rate of 0.001",
    "zero the gradients": "gradients zeroed in each step",
    "smaller last layer": "a smaller last layer",
    "start anew": "a smaller last layer",
    "scale the inputs": "standardized inputs",
    "scale, or trace": "standardized inputs",
    "one sigmoid": "no activation at the end",
    "softmax twice": "no activation at the end",
    "after the change": "all parameters in the optimizer",
    "nearest optimizer": "all parameters in the optimizer",
    "or leave it": "all parameters in the optimizer",
    "smaller numbers": "a tenth of the learning rate",
    "less momentum": "a momentum of 0.9",
    "less decay": "no weight decay",
    "clip less": "ten times the bound of clipping",
    "no clipping": "no clipping",
    "train mode": "training mode",
    "unfreeze": "nothing frozen",
    "new weights": "new initial weights",
    "less dropout": "dropout of 0.1",
    "wider dtype": "float32",
    "more bits": "float32",
}
"""By the `kind` of a remedy."""

OF_CODE: dict[str, str] = {"model.train()": "training mode"}
"""By the code of a remedy, where the loop would undo what the line does once."""

OF_FINDINGS: dict[str, str] = {
    "rate too high": "a tenth of the learning rate",
    "rate too low": "ten times the learning rate",
    "rate zero": "a learning rate of 0.001",
    "climbing": "maximize=False",
    "learning rate 0": "a learning rate of 0.001",
    "too much momentum": "a momentum of 0.9",
    "too much decay": "no weight decay",
    "clipped to nothing": "no clipping",
    "not zeroed": "gradients zeroed in each step",
    "not held": "all parameters in the optimizer",
    "holds none": "all parameters in the optimizer",
    "late parameters not held": "all parameters in the optimizer",
    "thawed parameters not held": "all parameters in the optimizer",
    "in no optimizer": "all parameters in the optimizer",
    "replaced since": "all parameters in the optimizer",
    "not owned": "all parameters in the optimizer",
    "none trainable": "nothing frozen",
    "frozen": "nothing frozen",
    "evaluation mode alone": "training mode",
    "in evaluation mode": "training mode",
    "inputs too large": "standardized inputs",
    "inputs vanish": "standardized inputs",
    "sigmoid twice": "no activation at the end",
    "softmax twice": "no activation at the end",
    "all zero, in a row": "new initial weights",
    "all weights alike": "new initial weights",
    "no zero grad": "gradients zeroed in each step",
    "not finite by the rate": "a tenth of the learning rate",
    "not in the optimizer": "all parameters in the optimizer",
    "another models optimizer": "all parameters in the optimizer",
    "eval while training": "training mode",
    "loss too small": "the loss without its factor",
    "loss too large": "the loss without its factor",
    "softmax before cross entropy": "no activation at the end",
    "one huge feature": "standardized inputs",
    "inputs not scaled": "standardized inputs",
    "all weights equal": "new initial weights",
    "weights begin too large": "new initial weights",
    "weights begin too small": "new initial weights",
    "too much dropout": "dropout of 0.1",
    "overflow": "float32",
    "underflow": "float32",
    "too few digits": "float32",
    "dead from the start": "new initial weights",
}
"""By the `kind` of a finding whose remedies say nothing that can be applied."""
