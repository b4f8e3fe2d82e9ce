"""A fork of a watched training: what would have come of it. Made by `w.fork(step, change)`."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from torch import Tensor, nn
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from modlab import format, wording
from modlab.comparing.modes import quiet
from modlab.compat import lock_for_forks, own_class
from modlab.diagnosing import batches
from modlab.errors import ForkError, QuestionError, names_near
from modlab.forking.batch_player import BatchGround, widened
from modlab.forking.fixes import DOSES, FURTHER, TRIAL, RateNoted, applied, fix_of, is_climbing, is_rate, own_change
from modlab.forking.futures import ForkGround, Futures, KeptGround
from modlab.forking.keeper import Keeper
from modlab.forking.kept_states import NotCopiedError, TrainedThings, is_finite
from modlab.forking.memories import memory_of
from modlab.forking.module_settings import numbers_of, settings_of
from modlab.forking.param_groups import refusal
from modlab.forking.player import Player
from modlab.frozen import frozen
from modlab.inspection import stores
from modlab.inspection.distributed import distribution_of
from modlab.inspection.optimizers import needs_closure
from modlab.records.finding import Fact, Finding
from modlab.records.fork import ForkRecord
from modlab.records.loss import the_loss
from modlab.records.watch import Check, WatchRecord
from modlab.results.result import Result
from modlab.running.guarded import line_of
from modlab.running.sandbox import Sandbox
from modlab.watching.last_step import run_unseen
from modlab.watching.verdict import EARLY
from modlab.wording import forks
from modlab.wording.names import capital, joined

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Change = Callable[..., Any] | Mapping[str, Any] | None

T = TypeVar("T")


@frozen
class ForkStep:
    """One step of a fork.

    Attributes:
        path: "", the whole model.
        step: its number in the run.
        original: the loss as it was.
        twin: of the unchanged fork.
        fork: of the changed fork.
    """

    path: str
    step: int
    original: float
    twin: float
    fork: float


class Fork(Result):
    """A part of a training, run again with a change: both losses, and what came of it."""

    kind: ClassVar[str] = "fork"
    _is_picture: ClassVar[bool] = True

    def __init__(self, record: ForkRecord) -> None:
        super().__init__()
        self.record = record

    @property
    def exact(self) -> bool:
        """Whether the unchanged fork equalled the original bit for bit; False where no step was made."""
        return self.record.exact

    @property
    def outcome(self) -> str:
        """What came of the change: "better", "same", "worse", "unclear", "not judged", "not finite" or "not seen" (no step was made).

        "same": the losses differ by less than 5 %; "unclear": by more, but at too few of the last steps to tell it from chance, or fewer
        than three steps can be compared; "not judged": they do not tell which future is the better one, as those of a policy gradient or
        of a GAN.
        """
        return forks.outcome(self.record)

    @property
    def original(self) -> list[float]:
        """The loss of each step as it was, from the kept state on."""
        return [one.original for one in self.records]

    @property
    def losses(self) -> list[float]:
        """The loss of each step in the fork."""
        return [one.fork for one in self.records]

    @property
    def records(self) -> Sequence[ForkStep]:
        """A row a step."""
        record = self.record
        curves = zip(record.original.tolist(), record.twin.tolist(), record.fork.tolist(), strict=False)
        return [ForkStep("", record.began + i, *values) for i, values in enumerate(curves)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the headline, what was changed, asked for and tried, what came of it, and a record for each step."""
        record = self.record
        facts: dict[str, Any] = {name: getattr(record, name) for name in ("began", "at", "differs", "parts", "ended", "error")}
        facts["asked"] = record.facts.get("asked", record.at)
        facts["change"] = forks.mark(record) if record.change else ""
        facts["trials"] = [{**one} for one in record.facts.get("trials", ())]  # type: ignore[union-attr, dict-item]
        return {**super().to_dict(), "outcome": self.outcome, "exact": record.exact, **facts}

    def figure(self, *, ax: Axes | None = None) -> Figure:
        """Both losses as a figure for papers; needs matplotlib."""
        from modlab.views import fork

        return fork.figure(self.record, ax=ax)

    def widget(self) -> Any:
        """There is none: a fork is a picture."""
        raise QuestionError("A fork has no widget: it is a picture. Display it, or write fork.save('fork.html').")

    def _sentence(self) -> tuple[str, str]:
        return forks.conclusion(self.record)

    def _text(self) -> str:
        from modlab.views import fork

        return fork.of_fork(self.record)

    def _static(self) -> str:
        from modlab.views import fork

        return fork.html(self.record)


class AskedChange:
    """A change that a user asked for, checked, and as a fork makes it.

    Args:
        change: a function of ``model`` and ``optimizer``, settings by name, or None.

    Attributes:
        kind: as in `ForkRecord.change`; facts: about it.
    """

    def __init__(self, change: Change) -> None:
        self._change = change
        self.kind, self.facts = "", dict[str, Fact]()
        if isinstance(change, Module):
            raise QuestionError(
                f"w.fork(change=…) got {format.article(type(change).__name__)}, a module, but takes a function, or settings by name.\n"
                "  Put it into the copy: def change(model): model.part = …"
            )
        kind = change.func if isinstance(change, partial) else change
        if isinstance(kind, type) and issubclass(kind, Optimizer):
            name = f"torch.optim.{kind.__name__}" if kind.__module__.startswith("torch.optim") else kind.__name__
            raise QuestionError(
                f"w.fork(change=…) got {kind.__name__} itself, but takes a function that makes one.\n"
                f"  Write: w.fork(step, lambda model: {name}(model.parameters(), lr=1e-3))"
            )
        if callable(change):
            self.kind, self.facts = "function", {"name": _name(change)}
            self._keywords = _keywords(change)
            self._arguments = () if self._keywords == GIVEN else _arguments(change)
        elif isinstance(change, Mapping) and change and all(isinstance(name, str) for name in change):
            self.kind, self.facts = (
                "settings",
                {"settings": ", ".join(f"{name} = {format.cut(_written(value), 40)}" for name, value in change.items())},
            )
        elif change is not None:
            raise QuestionError(
                f"w.fork(change=…) got {format.cut(repr(change), 40)}, but takes a function, or settings by name.\n"
                '  Write: w.fork(step, {"lr": 1e-3}), or w.fork(step, lambda model, optimizer: …)'
            )

    def __call__(self, player: Player) -> None:
        """Make it."""
        things = player.things
        optimizer = things.optimizers[0] if len(things.optimizers) == 1 else things.optimizers
        if isinstance(self._change, Mapping):
            _set_all(player, self._change)
        elif self._change is not None:
            given = {"model": things.model, "optimizer": optimizer}
            modules = {id(module) for module in things.modules().values()}
            there = things.memories()
            try:
                returned = self._change(*(given[name] for name in self._arguments), **{name: given[name] for name in self._keywords})
            except AttributeError as error:
                if error.obj is not things.optimizers:
                    raise
                names = joined([type(one).__name__ for one in things.optimizers])
                raise QuestionError(
                    f"w.fork(change=…): optimizer is a list here, for {len(things.optimizers)} optimizers train along: {names}.\n"
                    "  Change one, or all: def change(model, optimizer): optimizer[0].…"
                ) from error
            if isinstance(returned, Optimizer):
                _take(things, returned)
            elif isinstance(returned, Module) and id(returned) not in modules:
                raise _in_vain(returned, "Put a module into the model: def change(model): model.part = …")
            elif inspect.isawaitable(returned) or inspect.isgenerator(returned) or inspect.isasyncgen(returned):
                raise _not_run(self.facts["name"], returned)
            elif _is_meant(returned) or _is_strange(returned, there | things.memories()):
                raise _in_vain(returned, 'Return one optimizer, or nothing. Settings go by name: w.fork(step, {"lr": 1e-3})')


def _is_meant(returned: Any) -> bool:
    """Whether a function gave this so that the fork take it, and not because its last line has a value."""
    some = returned if type(returned) in (tuple, list) else (returned,)
    settings = isinstance(returned, Mapping) and "params" not in returned
    return (
        settings
        or isinstance(returned, (numbers.Number, str, bytes))
        or any(isinstance(one, (Optimizer, LRScheduler)) or (isinstance(one, type) and issubclass(one, Optimizer)) for one in some)
    )


def _is_strange(returned: Any, there: Set[int]) -> bool:
    """Whether it is a tensor that lies in none of these memories: one that was changed in place does, and is a last line's value."""
    return isinstance(returned, Tensor) and memory_of(returned) not in there


def _not_run(name: Any, returned: Any) -> QuestionError:
    """The error for a function of which a call runs nothing."""
    if inspect.iscoroutine(returned):
        returned.close()  # else Python warns that nobody waited for it
    kind = "a generator: it has a yield" if inspect.isgenerator(returned) else "asynchronous"
    return QuestionError(
        f"w.fork(change=…): {name} is {kind}, so a call of it runs nothing, and nothing would be changed.\n"
        "  Write a plain function: def change(model, optimizer): …"
    )


def _in_vain(returned: Any, advice: str) -> QuestionError:
    what = format.article(type(returned).__name__) if not isinstance(returned, type) else f"the class {returned.__name__}"
    what = format.cut(repr(returned), 40) if isinstance(returned, (numbers.Number, str, bytes)) else what
    return QuestionError(f"w.fork(change=…) returned {what}, and a fork takes nothing but an optimizer.\n  {advice}")


def _take(things: TrainedThings, returned: Optimizer) -> None:
    """Let another optimizer stand in the place of the one."""
    if any(one is returned for one in things.optimizers):
        return
    what = format.article(type(returned).__name__)
    own = {id(tensor) for tensor in things.tensors()}
    if not any(id(one) in own for group in returned.param_groups for one in group["params"]):
        raise QuestionError(
            f"w.fork(change=…) returned {what} that holds no parameter of the fork.\n"
            f"  Make it of the copy that the function gets: lambda model: torch.optim.{type(returned).__name__}(model.parameters())"
        )
    if len(things.optimizers) != 1:
        place = "  Say whose place it takes: def change(model, optimizer): optimizer[0] = …"
        advice = place if things.optimizers else "  In this training no optimizer makes steps, so none can be replaced."
        raise QuestionError(
            f"w.fork(change=…) returned {what}, but this training has {format.plural(len(things.optimizers), 'optimizer')}.\n{advice}"
        )
    if needs_closure(returned) and not needs_closure(things.optimizers[0]):
        raise QuestionError(
            f"w.fork(change=…) returned {what}, whose step() needs a closure, and the loop that is run again hands none to it.\n"
            "  Write the closure into the loop, and watch that: optimizer.step(closure)"
        )
    things.optimizers[0] = returned


def _name(change: Callable[..., Any]) -> str:
    name = str(getattr(change, "__name__", type(change).__name__))
    return "the given function" if name == "<lambda>" else name


def _written(value: Any) -> str:
    """A setting; of a number the shorter way to write it: ``1e+09``."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else repr(value)


GIVEN = ("model", "optimizer")
"""What a function is called with that changes a fork."""


def _keywords(change: Callable[..., Any]) -> tuple[str, ...]:
    """Which of them a function takes by name alone: behind a ``*``, or all where ``**`` is all that it has."""
    try:
        some = [*inspect.signature(change).parameters.values()]
    except (TypeError, ValueError):
        return ()
    if [one.kind for one in some] == [inspect.Parameter.VAR_KEYWORD]:
        return GIVEN
    named = [one for one in some if one.kind is one.KEYWORD_ONLY]
    if any(one.name not in GIVEN and one.default is one.empty for one in named):
        return ()
    return tuple(name for name in GIVEN if any(one.name == name for one in named))


def _arguments(change: Callable[..., Any]) -> tuple[str, ...]:
    """Which of model and optimizer a function takes: by its parameters' names, else in that order."""
    try:
        some = [*inspect.signature(change).parameters.values()]
    except (TypeError, ValueError):
        return GIVEN
    positional = [one for one in some if one.kind < one.VAR_POSITIONAL]
    if not positional and _keywords(change) and not any(one.kind is one.VAR_POSITIONAL for one in some):
        return ()
    names = [one.name for one in positional if one.default is one.empty]
    names = names or [one.name for one in takewhile(lambda one: one.name in GIVEN, positional)]
    if not names and any(one.kind is one.VAR_POSITIONAL for one in some):
        return GIVEN
    known = tuple(name for name in names if name in GIVEN)
    if names and len(known) == len(names):
        return known
    if 1 <= len(names) <= 2 and all(name == GIVEN[place] for place, name in enumerate(names) if name in known):  # as `model, _` is
        return GIVEN[: len(names)]
    takes = ", ".join(names or [str(one.replace(annotation=one.empty)) for one in some]) or "nothing"
    raise QuestionError(
        f"w.fork(change=…): {_name(change)} takes {takes}, but is called with model and optimizer.\n"
        f"  Write: def {_name(change) if change.__name__ != '<lambda>' else 'change'}(model, optimizer): …"
    )


def _set_all(player: Player, change: Mapping[str, Any]) -> None:
    """All settings; what PyTorch's optimizers take depends on several, so they are asked at the end."""
    groups = [(optimizer, group, settings_of(group)) for optimizer in player.things.optimizers for group in optimizer.param_groups]
    for name, value in change.items():
        _set(player, name, value)
    for optimizer, group, before in groups:
        _require_taken(optimizer, group, before, [name for name in change if name in before])


def _require_taken(optimizer: Optimizer, group: dict[str, Any], before: dict[str, Any], names: list[str]) -> None:
    """An optimizer has to take what was set in a group of it."""
    why, fresh = refusal(optimizer, group["params"], before, settings_of(group)) if names else ("", False)
    if not why:
        return
    cls, said = type(optimizer).__name__, ", ".join(f"{name} = {format.cut(repr(group[name]), 40)}" for name in names)
    if fresh:
        given = ", ".join(f"{name}={format.cut(repr(group[name]), 40)}" for name in group if name in names or name == "lr")
        raise QuestionError(
            f"w.fork(change=…): {format.article(cls)} that has made steps cannot go on with {said}: {why}\n"
            f"  Put a new one in its place: w.fork(step, lambda model: torch.optim.{cls}(model.parameters(), {given}))"
        )
    held = ", ".join(f"{name!r}: {before[name]!r}" for name in names)
    raise QuestionError(f"w.fork(change=…): {cls} does not take {said}: {why}\n  As it was: w.fork(step, {{{held}}})")


def _set(player: Player, name: str, value: Any) -> None:
    """A setting of all groups, the mode of a module and of all in it, or an attribute of a module by its dotted name."""
    groups = [group for optimizer in player.things.optimizers for group in optimizer.param_groups if name in group and name != "params"]
    path, _, attribute = name.rpartition(".")
    modules = player.things.modules()
    if groups:
        for group in groups:
            _set_group(group, name, value)
    elif path in modules and attribute == "training":
        if not isinstance(value, bool):
            said = (
                f"w.fork(change=…) got {format.cut(repr(value), 40)} as {name}, but takes True (as train() does) or False (as eval() does)."
            )
            raise QuestionError(f"{said}\n  Write: w.fork(step, {{{name!r}: False}})")
        modules[path].train(value)
    elif path in modules and attribute and hasattr(modules[path], attribute):
        _require_setting(modules[path], name, value)
        _require_like(modules[path], name, value)
        setattr(modules[path], attribute, value)
    else:
        raise QuestionError(_unknown(player, name))


SIZES = frozenset(
    ("in_features", "out_features", "in_channels", "out_channels", "num_embeddings", "embedding_dim", "num_features", "hidden_size")
)
"""Attributes of PyTorch's layers that say how large their weights are: another number there changes no weight."""


def _require_setting(module: Module, name: str, value: Any) -> None:
    """What is named is a setting: no part of the module that torch would keep from a number, and nothing that it only says of itself."""
    attribute = name.rpartition(".")[2]
    held = getattr(module, attribute)
    own, is_of_torch = stores.contents(module), type(module).__module__.startswith("torch.nn.")
    what = ""
    if attribute in own["_modules"] and not (value is None or isinstance(value, Module)):
        what = "is a module"
    elif attribute in own["_parameters"] and not (value is None or isinstance(value, nn.Parameter)):
        what = "is a parameter"
    elif attribute in own["_buffers"] and not (value is None or isinstance(value, Tensor)):
        what = "is a buffer"
    elif inspect.ismethod(held) or (callable(held) and not callable(value)):
        what = "is a function"
    elif is_of_torch and attribute in SIZES:
        what = f"only says how large {format.article(type(module).__name__)} is"
    if what:
        raise QuestionError(
            f'w.fork(change=…): {name} {what}; a setting is a number on a module, as {{"1.p": 0.5}}.\n'
            f"  To change it, give a function: w.fork(step, lambda model: …)"
        )


def _require_like(module: Module, name: str, value: Any) -> None:
    """What is set on a module is of the kind of what is there: a number for a number, and a probability for that of a dropout."""
    attribute = name.rpartition(".")[2]
    held = getattr(module, attribute)
    is_dropout = isinstance(module, nn.modules.dropout._DropoutNd) or attribute == "dropout"
    takes = ""
    if isinstance(held, bool) and not isinstance(value, bool):
        takes = "True or False"
    elif is_dropout and _is_number(held) and not (_is_number(value) and 0 <= float(value) <= 1):
        takes = "a probability between 0 and 1"
    elif value is None and attribute == "momentum" and isinstance(module, nn.modules.batchnorm._NormBase):
        return  # the mean of all batches
    elif isinstance(held, float) and not _is_number(value):
        takes = "a number"
    if takes:
        said = f"got {format.cut(repr(value), 40)} as {name} of {format.article(type(module).__name__)}, but takes {takes}"
        raise QuestionError(f"w.fork(change=…) {said}.\n  As it was: w.fork(step, {{{name!r}: {held!r}}})")


MEANT = {
    **dict.fromkeys(("learning_rate", "learningrate", "rate", "step_size", "eta"), "lr"),
    **dict.fromkeys(("beta", "beta1", "beta2"), "betas"),
    **dict.fromkeys(("wd", "decay", "l2", "weightdecay"), "weight_decay"),
    **dict.fromkeys(("mom", "mu"), "momentum"),
    "epsilon": "eps",
}
"""PyTorch's name of a setting, by what else people call it."""


def _unknown(player: Player, name: str) -> str:
    """What to say of a setting that nothing has: what its module has, or, without a module of that name, all."""
    path, _, attribute = name.rpartition(".")
    modules = player.things.modules()
    if path and path in modules:
        own = [one for one in vars(modules[path]) if not one.startswith("_") and one != "training"]
        return f"w.fork(change=…): {path} ({type(modules[path]).__name__}) has no {attribute!r}.\n{names_near(attribute, own)}"
    groups = [group for one in player.things.optimizers for group in one.param_groups]
    known = dict.fromkeys([*(key for group in groups for key in group if key != "params"), *numbers_of(modules)])
    meant = MEANT.get(name.lower(), "")
    return f"w.fork(change=…): no optimizer has {name!r}, and no module either.\n{names_near(meant if meant in known else name, known)}"


POSITIVE = frozenset(("lr", "momentum", "weight_decay", "eps", "lr_decay", "alpha"))
"""Settings of which PyTorch's optimizers, when they are made, refuse what is negative."""


def _is_number(thing: Any) -> bool:
    return thing.numel() == 1 if isinstance(thing, Tensor) else isinstance(thing, numbers.Real) and not isinstance(thing, bool)


OPEN = frozenset(("foreach", "fused"))
"""Settings that are True, False, or None: PyTorch chooses."""


def _set_group(group: dict[str, Any], name: str, value: Any) -> None:
    held = group[name]
    is_number, said = _is_number(held), ""
    if is_number and not _is_number(value):
        said = f"{format.cut(repr(value), 40)} as {name}, but takes a number"
    elif is_number and name in POSITIVE and not 0 <= float(value) < math.inf:
        said = f"{float(value)} as {name}, but takes a number of at least 0 that is finite"
    elif (isinstance(held, bool) or name in OPEN) and not (isinstance(value, bool) or (value is None and name in OPEN)):
        said = f"{format.cut(repr(value), 40)} as {name}, but takes {'True, False or None' if name in OPEN else 'True or False'}"
    if said:
        example = float(held) if is_number else held
        raise QuestionError(f"w.fork(change=…) got {said}.\n  Write: w.fork(step, {{{name!r}: {example}}})")
    if isinstance(held, Tensor) and isinstance(value, numbers.Real):
        held.fill_(float(value))
    else:
        group[name] = value


def of_keeper(keeper: Keeper | None, record: WatchRecord, step: Any, change: Any, steps: Any) -> Fork:
    """The fork that a user asks for.

    Args:
        keeper: what was kept; None if nothing was asked to be.
        record: of the watch.
        step: where to fork.
        change: what to change.
        steps: how many to make.
    """
    asked = AskedChange(change)
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, numbers.Integral) or steps < 1):
        raise QuestionError(f"w.fork(steps=…) got {steps!r}, but takes a number of steps, 1 or more: w.fork(steps=100)")
    keeper = require_kept(keeper, record)
    require_here(keeper, record)
    at = keeper.latest() if step is None else require_step(step, keeper, record.steps)
    made = run(lambda: Futures(KeptGround(keeper, at), at, None if steps is None else int(steps), asked if asked.kind else None))
    made.raise_question()
    why, names = unjudged(record)
    return Fork(made.record(record.title, asked.kind, {**asked.facts, **names}, why))


def unjudged(record: WatchRecord) -> tuple[str, dict[str, Fact]]:
    """Why a lower loss of this training is not the better one, as in `ForkRecord`, and facts about it: as its verdict has it."""
    signs = [one for one in record.verdict.findings if one.kind == "wrong sign"]
    if signs:
        return ("" if all(map(is_climbing, signs)) else "wrong sign"), {}
    falls = next((one for one in record.verdict.checks if one.name == "the loss falls"), None)
    names: Any = falls.facts.get("names", ()) if falls is not None else ()
    if falls is not None and falls.kind == "loss not told" and len(names) > 1:
        return "several losses", {"names": names}
    if falls is not None and falls.kind in ("negative values", "climbed"):
        return falls.kind, {}
    curve = the_loss(record)
    return ("too early" if curve is not None and curve.count < EARLY else ""), {}


def of_watch(keeper: Keeper | None, record: WatchRecord, finding: Finding, steps: int) -> Fork:
    """The fix of a finding of a watch, tried from the last good state before it.

    Args:
        keeper: what was kept; None if nothing was asked to be.
        record: of the watch.
        finding: what was found.
        steps: how many to make.
    """
    require_fix(finding, is_kept=True)
    keeper = require_kept(keeper, record)
    require_here(keeper, record)
    seen = first_seen(finding)
    at = max([one for one in keeper.sound() if one <= seen], default=min(keeper.states))
    return of_finding(finding, KeptGround(keeper, at), record.title, at, steps, doubt=unjudged(record))


def without_batch(title: str, finding: Finding, model: Module, why: str) -> ForkError:
    """The error where a watch has kept neither weights nor a batch.

    Args:
        title: the model's class.
        finding: what was found.
        model: as it is now.
        why: a key of `wording.forks.UNKEPT`.
    """
    require_fix(finding)
    again = 'watch again, with keep="good": modlab.watch(model, optimizer, keep="good")'
    if not is_finite(model):
        return ForkError(
            f"The weights of {title} are not finite any more, and no good ones were kept, so there is nothing to try a fix on.\n"
            f"  {capital(again)}"
        )
    return ForkError(
        f"This watch of {title} kept no weights, and no batch to try a fix on the present ones: {forks.UNKEPT[why]}.\n"
        f"  Give a batch: w.diagnose(batch=(inputs, target), loss=loss).findings[0].try_fix()\n  Or {again}"
    )


def first_seen(finding: Finding) -> int:
    """The step at which what a finding tells began; -1 if it names none. A cause has it among its facts."""
    named = finding.facts.get("step", -1) if finding.step is None else finding.step
    return named if isinstance(named, int) else -1


class SeenTraining(NamedTuple):
    """What a watch knows of a training whose present state is forked.

    Attributes:
        doubt: whether its loss says what is better: `unjudged`.
        modes: which modules were in training mode in its steps, by path.
        first: the first finite loss of it; 0 if there is none.
    """

    doubt: tuple[str, dict[str, Fact]]
    modes: Mapping[str, bool]
    first: float


def seen_of(record: WatchRecord, modes: Mapping[str, bool]) -> SeenTraining:
    """What the record of a watch tells of it."""
    curve = the_loss(record)
    finite = (float(one) for one in curve.mean if math.isfinite(one)) if curve is not None else iter(())
    return SeenTraining(unjudged(record), modes, next(finite, 0.0))


def of_batch(
    model: Module,
    optimizers: list[Any],
    pair: tuple[Any, Any] | None,
    loss: Any,
    finding: Finding,
    steps: int,
    seen: SeenTraining | None = None,
) -> Fork:
    """The fix of a finding of a diagnosis, tried on the present weights and the batch.

    Args:
        model: the model.
        optimizers: those that were given.
        pair: inputs and target; None if none were given.
        loss: called with output and target.
        finding: what was found.
        steps: how many to make.
        seen: what a watch knows of the training.
    """
    require_fix(finding)
    title = own_class(type(model)).__name__
    if pair is None:
        raise ForkError(
            f"This diagnosis of {title} was made without a batch, so no fix can be tried.\n"
            "  Write: modlab.diagnose(model, optimizer, batch=(inputs, target), loss=loss)"
        )
    if distribution_of(model).communicates:
        raise ForkError(f"{title} talks to other ranks, which would wait for a fork of this one: fixes cannot be tried here.")
    if not is_finite(model):
        raise ForkError(
            f"The weights of {title} are not finite, so there is nothing to try a fix on: good weights were not kept.\n"
            '  Watch the training: modlab.watch(model, optimizer, keep="good"), then w.findings[0].try_fix()'
        )
    if not optimizers and is_rate(finding):
        raise ForkError(
            f"No optimizer of {title} is known, so another learning rate cannot be tried.\n"
            "  Write: modlab.diagnose(model, optimizer, batch=(inputs, target), loss=loss)"
        )

    def forward(model: Module, loss: Any, wide: bool) -> Any:
        given, asked = widened(batches.copied(pair)) if wide else batches.copied(pair)
        return loss(batches.call(model, given), asked)

    ground = alone(lambda: _present(title, lambda: BatchGround(model, optimizers, loss, forward, steps, seen and seen.modes)))
    if seen is not None:
        ground.facts = {**ground.facts, "first": seen.first}
    return of_finding(finding, ground, title, 0, steps, doubt=seen.doubt if seen is not None else ("", {}))


def _present(title: str, make: Callable[[], BatchGround]) -> BatchGround:
    """The present state, copied.

    Raises:
        ForkError: something in it cannot be copied.
    """
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - anything may refuse in its own way
        why = str(error) if isinstance(error, NotCopiedError) else line_of(error)
        raise ForkError(f"No copy of {title} can be made to try a fix on: {why}.") from None


def of_finding(
    finding: Finding,
    ground: ForkGround,
    title: str,
    at: int,
    steps: int,
    fix: tuple[str, str] | None = None,
    doubt: tuple[str, dict[str, Fact]] = ("", {}),
) -> Fork:
    """The fix of a finding, tried.

    Args:
        finding: what was found.
        ground: what to fork.
        title: the model's class.
        at: the step at which the fix is applied.
        steps: how many to make behind that.
        fix: the name of the change, and its code; without it, that of the finding.
        doubt: whether the loss says what is better: `unjudged`.

    Raises:
        ForkError: there is no fix that can be applied.
    """
    name, code = fix or require_fix(finding)
    name, trials = (name, ()) if fix else _best_dose(finding, ground, at, min(steps, TRIAL), name)
    change = RateNoted(applied(name, code, finding))
    made = run(lambda: Futures(ground, at, steps, change))
    made.raise_question()
    why, names = doubt
    facts: dict[str, Fact] = {"code": code, **names} if code else {"what": name, **names}
    facts |= change.facts() | ({"trials": trials, "trial": min(steps, TRIAL)} if trials else {})
    return Fork(made.record(title, "code" if code else "fix", facts, why))


def _best_dose(finding: Finding, ground: ForkGround, at: int, steps: int, name: str) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """Among doses of one change, the one with the least loss in the last quarter of a short trial: every other first, then its neighbours.

    Where the last one is the best, or all are NaN, those that are further out are tried as well.

    And what came of each that was tried.
    """
    doses, ends, facts = DOSES.get(name, (name,)), dict[str, float](), dict[str, Mapping[str, Any]]()
    powers = doses[1::2] or doses

    def best(some: Sequence[str]) -> str:
        for one in some if len(some) > 1 else ():
            if one not in ends:
                change = RateNoted(applied(one, "", finding))
                record = run(partial(Futures, ground, at, steps, change)).record("")
                facts[one] = {"lost": record.lost(), **change.facts()}
                ends[one] = record.settled if record.steps and not math.isnan(record.settled) else math.inf
        return min(some, key=lambda one: ends.get(one, 0.0))

    best(powers)
    if ends.get(powers[-1]) == min(ends.values(), default=None):  # the best one may lie further out
        doses += FURTHER.get(name, ())
    place = doses.index(best(doses[1::2] or doses))
    found = best(doses[max(0, place - 1) : place + 2])
    return found, tuple({"what": one, "loss": ends[one], **facts[one]} for one in doses if one in ends)


def without_ground() -> ForkError:
    """The error for a finding whose training is not at hand."""
    return ForkError(
        "This finding comes from a file, or was copied: there is no training at hand to try its fix on.\n"
        "  Ask the watch or the diagnosis itself: w.findings[0].try_fix(), "
        "modlab.diagnose(model, optimizer, batch=(inputs, target), loss=loss).findings[0].try_fix()"
    )


def without(what: str, title: str, again: str) -> ForkError:
    """The error for a finding whose model or optimizer is gone."""
    return ForkError(
        f"The {what} of this {title} no longer exists, so there is no training to try a fix on.\n"
        f"  Keep it in a variable, and ask again: {again}"
    )


def require_surest(finding: Finding, found: Iterable[Finding], is_kept: bool = False) -> None:
    """A cause's fix is tried where no surer cause was found: what stands behind that is what is left, or what came of it.

    Another rate is tried where no other cause stands in front: a loss that rises, or is not finite, comes of most of them.

    Args:
        finding: whose fix is asked for.
        found: all that was found.
        is_kept: whether the training can be forked.

    Raises:
        ForkError: one was.
    """
    causes = [one for one in found if "tier" in one.facts]
    own = int(str(finding.facts.get("tier", -1)))
    before = causes[: next((place for place, one in enumerate(causes) if one.kind == finding.kind), len(causes))]
    surer = [one for one in before if int(str(one.facts["tier"])) < own or (is_rate(finding) and not is_rate(one))]
    if surer:
        surest = min(surer, key=lambda one: int(str(one.facts["tier"])))
        said = f"A surer cause was found, so this fix is not tried: {wording.said(surest)}."
        raise ForkError(f"{said}\n  Mend that first.\n{own_change(is_kept)}")


def require_fix(finding: Finding, is_kept: bool = False) -> tuple[str, str]:
    """The change that is its fix, and its code.

    Args:
        finding: what was found.
        is_kept: whether the training can be forked.

    Raises:
        ForkError: there is none that can be applied.
    """
    found = fix_of(finding)
    if found is None and (finding.severity == "note" or (isinstance(finding, Check) and finding.state == "passed")):
        raise ForkError(
            "There is nothing to fix: this only says what is so.\n  What is wrong stands in .findings of the verdict or the diagnosis."
        )
    if found is None:
        advice, settled = wording.fix_and_settled(finding)
        said = f"Its fix cannot be applied to a copy by itself: {advice}" if advice else "It has no fix that could be applied to a copy."
        raise ForkError("\n".join([said, *([f"  {capital(settled)}"] if settled else ()), own_change(is_kept)]))
    return found


def require_finding(finding: Any, verb: str) -> None:
    """One finding.

    Raises:
        QuestionError: it is none.
    """
    if not isinstance(finding, Finding):
        raise QuestionError(
            f"{verb}.try_fix(finding) got {format.cut(repr(finding), 60)}, but takes one finding.\n  Write: {verb}.findings[0].try_fix()"
        )


def require_steps(steps: Any) -> int:
    """A number of steps.

    Raises:
        QuestionError: it is none.
    """
    if isinstance(steps, bool) or not isinstance(steps, numbers.Integral) or steps < 1:
        raise QuestionError(f"try_fix(steps=…) got {steps!r}, but takes a number of steps, 1 or more: try_fix(steps=100)")
    return int(steps)


_lock = lock_for_forks()
"""Held by who makes a fork: it uses the random generators of the whole process."""


def alone(work: Callable[[], T]) -> T:
    """Call `work`, unseen by any watch. What it changes in the process, as random generators and modes, is put back, whatever ends it.

    Other threads wait until it has ended.

    Raises:
        ForkError: a fork under way asks for it, in its model, a hook or its change.
    """
    if _lock._is_owned():
        raise ForkError(
            "A fork was asked for inside of a fork: what asks for it (a hook, a forward, a change) runs in the fork as well, without end.\n"
            "  Ask in the loop, between two steps: w.fork(step, change)"
        )
    with _lock:
        return _alone(work)


def _alone(work: Callable[[], T]) -> T:
    return Sandbox(kept=0).run(run_unseen, _quietly, work)


def _quietly(work: Callable[[], T]) -> T:
    with quiet(True):
        return work()


def run(make: Callable[[], Futures]) -> Futures:
    """Make futures, and all their steps."""
    return alone(lambda: _run(make()))


def _run(futures: Futures) -> Futures:
    for _ in futures.run():
        pass
    return futures


def require_kept(keeper: Keeper | None, record: WatchRecord) -> Keeper:
    """What was kept.

    Raises:
        ForkError: nothing was.
    """
    if keeper is not None and keeper.states and not record.steps:
        why = f"No step of {record.title} was made under this watch, so there is nothing to run again."
        raise ForkError(f"{why}\n  Fork it when the loop has made some: w.fork(step, change)")
    if keeper is not None and keeper.states and keeper.recording.is_elsewhere and not keeper.tape:
        why = f"The loop of {record.title} did not run in the thread that opened this watch, and only that thread is taped"
        raise ForkError(f"{why}: no step can be run again.\n  Open the watch in the thread of the loop.")
    if keeper is not None and keeper.states:
        return keeper
    if keeper is None and record.kept is not None and record.kept.states:
        why = f"This watch of {record.title} comes from a file, was copied, or is a part of another: there is no training at hand to fork."
        raise ForkError(f"{why}\n  Fork the watch itself, where the training ran: w.fork(step, change)")
    if keeper is None:
        why = f"This watch of {record.title} kept no copies of the training, so there is nothing to run on from."
        raise ForkError(f'{why}\n  Watch again, with keep="good": modlab.watch(model, optimizer, keep="good")')
    raise ForkError(f"Nothing was kept of {record.title}: {keeper.trouble or forks.NOTHING[keeper.lost]}.")


def require_here(keeper: Keeper, record: WatchRecord) -> None:
    """The training does not run in another thread, with which a fork would share the random generators and the model.

    Raises:
        ForkError: it does.
    """
    if record.state in ("waiting", "running") and not keeper.recording.is_of_this_thread():
        raise ForkError(
            f"The training of {record.title} runs in another thread, and a fork made beside it would take its random numbers.\n"
            "  Fork it in the thread of the loop, between two steps, or when the watch has ended: w.close()\n"
            "  The fork in the live view is made between the steps of the training."
        )


def require_step(step: Any, keeper: Keeper, made: int) -> int:
    """The step at which to fork, among those that can be run again.

    Args:
        step: what was asked for.
        keeper: what was kept.
        made: steps of the run.

    Raises:
        QuestionError: it is no whole number.
        ForkError: no state before it was kept.
    """
    kept = [*keeper.states]
    if step is None:
        return kept[-1]
    if isinstance(step, bool) or not isinstance(step, numbers.Integral):
        raise QuestionError(f"w.fork(step=…) got {step!r}, but takes the number of a step: w.fork(step={kept[-1]})")
    if int(step) < kept[0]:
        why = forks.FIRST.get(keeper.lost, "") if int(step) >= 0 else ""
        raise ForkError(
            f"Nothing is kept at or before step {int(step):,}: the first kept state is the one at step {kept[0]:,}"
            f"{f', for {why}' if why else ''}.\n  Write: w.fork(step={kept[0]})"
        )
    if int(step) >= made:
        last = max(keeper.latest(), max(keeper.record().until) - 1)  # the first one is step 0
        raise ForkError(f"Step {int(step):,} was not made: the run has {format.plural(made, 'step')}.\n  Nearest: w.fork(step={last})")
    return int(step)
