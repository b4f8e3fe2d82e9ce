"""Clues are collected in the steps that are looked at: of the batch as it enters, of the graph of the loss, and of the loop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils.rnn import PackedSequence

from modlab.compat import without_autograd, without_torch_function
from modlab.inspection import stores
from modlab.inspection.entries import PLAIN
from modlab.records.clues import (
    MOVES,
    SHAPES,
    Clues,
    GroupClues,
    LoopClues,
    LossClues,
    ModeClues,
    ModuleClues,
    PairClues,
    Relations,
    ThrownClues,
    WrittenClues,
)
from modlab.running import (
    attention_graph,
    composed_criteria,
    criterion,
    dropout_graph,
    given_scores,
    lengths,
    loss_graph,
    place_graph,
    view_graph,
    written_criteria,
)
from modlab.running.autograd_nodes import children, is_untaught_norm, name_of, rectifies, saved, walk
from modlab.running.criterion import OwnLoss
from modlab.running.guarded import line_of, note
from modlab.running.tensor_hooks import OF_MODULES, is_hooked
from modlab.running.values import leaves, named_inputs
from modlab.statistics.memory import is_there
from modlab.watching import attention_clues, module_clues
from modlab.watching.gradient_clues import GradientClues
from modlab.watching.index_choices import IndexChoices
from modlab.watching.loose_weights import places
from modlab.watching.pairs import Pairs, pair_clues, zeros
from modlab.watching.pools import DENSE, InputPool, LossPool, is_readable, some_of
from modlab.watching.readback import is_far
from modlab.watching.same_answers import SameAnswers
from modlab.watching.stale_weights import StaleWeights
from modlab.watching.steps import Steps
from modlab.watching.watch_index import Member, WatchIndex, Weight

RARELY, OFTEN = 10, 20
"""After the first looks, steps from one in which the numbers of batches are read to the next: so many, or this part of all so far."""

TABLES = 8
"""Tables of a pass of which is kept what they were asked for."""

SOON = 3
"""Looks in which parameters and optimizers are taken down."""

SEVERAL = 3
"""Terms of a loss that are one for each place."""

NODES = 5000
"""Functions of a graph that are looked at, at most: what lies beyond is not known."""

STRANGE = 256
"""Parameters of an optimizer that are none of the model's, of which shapes are kept."""

TENSORS, PLACES, PASSES = 4, 8, 64
"""Inputs of a call, and places where a loss is computed, that are kept apart; and passes of one step that are kept."""

STEPLIKE = frozenset(("Sign", "Round", "Floor", "Ceil", "Trunc", "Heaviside", "Normal"))
"""Functions whose gradient is zero."""

SCALES, FEW_STEPS = MOVES | {"Mul", "Div", "Add", "Sub", "Rsub", "Neg"}, 4
"""Functions that only scale, shift or lay out anew, and so many of them that are passed by."""

PLAINLY = 0.99
"""How far, squared, a series goes with what was made of it by scaling and shifting alone."""

CLOSE = 1e-4
"""Distance from whole numbers that rounding may have made."""

BEGINNING = 32
"""Numbers by which a state is known again."""

HELD = 16 << 20
"""Bytes of the batch that is kept for a diagnosis, at most."""

FAR_OUT = 1.5
"""Standard deviations by which the largest of some normal numbers may lie beyond where it is expected."""

SAME = 0.99
"""Share of a target's numbers that are those of the input, from which on it is what comes in."""

DRAWN, CHANCE = 64, 4.0
"""Numbers from which on it shows how they were drawn, and standard errors up to which it is chance how they differ from that."""

STUCK = 0.5
"""Of the loss of a constant answer, above which a loss at the last look may be stuck."""


class KeptBatch(NamedTuple):
    """One batch of the training, its loss as a function of output and target, and which modules were in training mode, by path."""

    step: int
    inputs: Any
    target: Tensor
    loss: Any
    modes: dict[str, bool]


class HeldParameters(NamedTuple):
    """What is known of parameters and optimizers; see `records.clues`."""

    groups: tuple[GroupClues, ...] = ()
    hooked: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    numbers: tuple[int, int, int, int] = (0, 0, 0, 0)
    sharing: tuple[str, ...] = ()
    restarted: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()
    strange: tuple[tuple[int, ...], ...] = ()


def _aside(method: Callable[..., None]) -> Callable[..., None]:
    """An error of the clues costs the clues from there on, and not the watch; it is said once."""

    @wraps(method)
    def guarded(collector: ClueCollector, *args: Any, **kwargs: Any) -> None:
        try:
            method(collector, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is
            note(error)
            if collector.active:
                collector.active = False
                collector.say(f"the search for causes ended at step {collector.steps.made:,}: {line_of(error)}")

    return guarded


class ClueCollector:
    """Collects the clues of one watch.

    Args:
        index: the modules and parameters.
        steps: whose optimizers are asked.
        say: tells the user something once.
    """

    def __init__(self, index: WatchIndex, steps: Steps, say: Callable[[str], None]) -> None:
        self._index, self.steps, self.say = index, steps, say
        self.active = not index.distribution.communicates
        self.looks = self._next_loss = 0
        self.reads, self._read_at = True, 0
        self._step = 0
        self._made: dict[Any, str] = {}
        self._through: dict[str, str] = {}  # by a module that is linear without weights of its own mixing features, what it took
        self._bent: set[str] = set()  # modules that did so in one look, and not in another
        self.batch: list[Tensor] = []
        self._names: list[str] = []  # of the tensors of the batch
        self._states: list[tuple[torch.Size, Tensor]] = []  # what the last call gave besides its first output: its shape, and some of it
        self._compared = False  # whether a loss has gone backward since they came in
        self._inputs: dict[str, InputPool] = {}
        self._losses: dict[str, LossPool] = {}
        self._modules: dict[tuple[str, str], dict[str, Any]] = {}
        self._taken: dict[str, tuple[Any, ...]] = {}  # what each module took last, and in which pass
        self._fed: set[str] = set()  # modules that have taken more than zeros
        self._ids: dict[str, set[int]] = {}  # by embedding, which rows were looked up
        self._carried = self._graded = self._in_eval = 0
        self._gradients = GradientClues(index)
        self._carried_now = False
        self._carried_mark: tuple[int, int] | None = None
        self._read_in_step = (-1, 0)
        self._passes = 0  # of a step, the most that were read
        self._met = 0  # modules with trained parameters that have given something in this pass
        self._walks: Counter[str] = Counter()  # by the place of a loss, how often its whole graph was looked at
        self._walked: dict[str, int] = {}  # in which step that was last
        self._reached: dict[str, set[str]] = {}  # by the place of a loss, the parameters that its graph ends in
        self._stale = StaleWeights()
        self._answers = SameAnswers()
        self._choices = IndexChoices()
        self._pass = 0
        self._pair = PairClues()
        self._pairs = Pairs()
        self._narrow = False  # whether a layer takes less than the numbers of each place, knows no places, or gets them in part
        self._placeless: Counter[str] = Counter()  # how often a layer was called in this pass without all places of the tokens
        self._sequences: list[Any] = []  # the nodes that recurrent layers gave for all places
        self._looked_up: list[Tensor] = []  # what the tables of a pass were asked for, in rows
        self._padded: dict[str, tuple[Tensor, int]] = {}  # the same, by table, of those with padding; and its token
        self._relations: Relations | None = None
        self._given: Any = None
        self.alone: type | None = None  # of what the root was called with, if that was one argument and nothing else
        self._output: Any = None
        self.kept: KeptBatch | None = None
        self.unkept = ""  # why no batch could be, as of the last loss that was read: a key of `wording.forks.UNKEPT`
        self._held = HeldParameters()
        self._told: HeldParameters | None = None  # in the end

    # ---- in a look

    @_aside
    def begin(self, step: int) -> None:
        """A step is looked at."""
        self._step, self._made, self.batch, self._names, self._met = step, {}, [], [], 0
        self._sequences, self._looked_up, self._padded = [], [], {}
        self._placeless.clear()
        self._choices.begin()
        self._pass += 1  # a root that is never called, as a dictionary of two nets, tells of none
        self.reads = self.looks < DENSE or step >= self._read_at + max(RARELY, step // OFTEN)
        self._read_at = step if self.reads else self._read_at
        self.looks += 1
        if self.active and self.reads:
            without_autograd(self._look_at_rows)
            without_autograd(partial(self._gradients.begin, step, densely=self.looks < DENSE))
            if self.looks < SOON:
                self._held = self._take_down(closed=False)

    def end(self) -> None:
        """It is over: of its tensors nothing is kept but one batch."""
        self._made, self.batch, self._names, self._given, self._output = {}, [], [], None, None
        self._sequences, self._looked_up, self._padded = [], [], {}
        self._choices.begin()
        if self.looks >= SOON:
            self._stale.forget()

    @_aside
    def takes(self, args: tuple[Any, ...]) -> None:
        """The root is called with these."""
        if self.active and self.reads:
            self._met = 0
            self._placeless.clear()
            self._pass += 1
            self._let_go()
            self._given = args, {}
            self.alone = type(args[0]) if len(args) == 1 else None
            self._enter(args)

    def _let_go(self) -> None:
        """Forget the inputs of a loss that has gone backward, and what a look without an end has met: it may not fill the memory."""
        many = self._pass % PASSES == 0
        if many or self._compared:
            self.batch, self._names, self._sequences, self._compared = [], [], [], False
            self._looked_up, self._padded = [], {}
        if many:
            self._made = {}

    def spoilt(self, step: int) -> tuple[int, int]:
        """How many numbers of an input, and of how many, were not finite, if that was in this step for the first time; else 0."""
        return next((pool.spoilt for pool in self._inputs.values() if pool.bad == step), (0, 0))

    @_aside
    def took(self, kwargs: dict[str, Any]) -> None:
        """And it was called with these by name."""
        if self.active and self.reads and kwargs:
            self._given = (self._given or ((), {}))[0], kwargs
            self.alone = None
            self._enter(kwargs)

    def _enter(self, given: Any) -> None:
        met: dict[str, Tensor] = {}
        for name, thing, _ in leaves(given)[:TENSORS]:
            if isinstance(thing, Tensor) and is_readable(thing) and not (thing.requires_grad and thing.grad_fn is not None):
                self.batch.append(thing)
                self._names.append(name)
                if self.reads:
                    pool = self._inputs.setdefault(name, InputPool(name))
                    pool.add(thing.detach(), self._step)
                    pool.beside(thing.detach(), met)
                    pool.state |= bool(met) and self._is_state(thing)
                    met[name] = thing.detach()
                    whole = thing._base
                    if whole is not None and whole.shape != thing.shape and _is_view(thing, whole):
                        self._look_at_view("", whole, thing)

    @_aside
    def gave(self, member: Member, module: Module, args: tuple[Any, ...], kwargs: Any, output: Any) -> None:
        """A module of the model gave something in a training pass."""
        if self.active and self.reads:
            without_autograd(self._take, member, module, args, kwargs or {}, output, enabled=torch.is_grad_enabled())

    def _take(self, member: Member, module: Module, args: tuple[Any, ...], kwargs: Any, output: Any, *, enabled: bool) -> None:
        if not member.path:
            self._output = output
            self._keep_states(output)
        for _, one, _ in leaves(output)[:TENSORS]:
            if isinstance(one, Tensor) and one.grad_fn is not None and one.dim():  # else it is a loss, which is read further
                self._made.setdefault(one.grad_fn, member.path)
        held = [one for one in (stores.contents(module).get("_parameters") or {}).values() if one is not None]
        if args and isinstance(args[0], Tensor) and type(args[0]) in PLAIN:
            self._take_input(member.path, module, args[0], output, enabled=enabled, holds=bool(held))
        self._met += any(one.requires_grad for one in held)
        if (
            isinstance(module, nn.RNNBase)
            and isinstance(output, tuple)
            and isinstance(output[0], Tensor)
            and not _is_one_place(module, output[0])
        ):
            self._sequences.append(output[0].grad_fn)
        if self.looks <= SOON and not stores.contents(module).get("_modules"):
            self._choices.gave(member.path, output)
        if self.batch:
            self._follow(member.path, module, args, output)
        for kind, facts in module_clues.told(self, module, args, kwargs, output):
            self._note(member.path, kind, **facts)
        if args and isinstance(args[0], PackedSequence):
            self._shorten(lengths.of_packed(args[0]))

    def _follow(self, path: str, module: Module, args: tuple[Any, ...], output: Any) -> None:
        """Where samples become the same on their way to the answer."""
        if path and not stores.contents(module).get("_modules"):
            self._answers.pass_by(path, args, output)
        elif not path and (lost := self._answers.end(self.batch[0], output)):
            self._note(lost, "same for all")

    def _shorten(self, ends: Tensor) -> None:
        """Of what was padded is read what lies within these lengths."""
        for path, (tokens, padding) in self._padded.items():
            if len(tokens) == len(ends) and int(ends.max()) <= tokens.shape[1]:
                read = lengths.within(tokens, ends)
                self._modules[path, "embedding"] = {**self._modules[path, "embedding"], "inner": module_clues.inner(tokens, padding, read)}

    def _keep_states(self, output: Any) -> None:
        """Keep how that begins which is given besides the first output: it may come in again, as a state that is carried."""
        given = [one for _, one, _ in leaves(output)[1:TENSORS] if isinstance(one, Tensor)]
        self._states = [(one.shape, _beginning(one)) for one in given if one.is_floating_point() and is_readable(one)]

    def _is_state(self, thing: Tensor) -> bool:
        """Whether an input is what the model gave in the call before."""
        return any(
            shape == thing.shape and begin.dtype == thing.dtype and torch.equal(begin, _beginning(thing)) for shape, begin in self._states
        )

    def _take_input(self, path: str, module: Module, taken: Tensor, output: Any, *, enabled: bool, holds: bool) -> None:
        """What the first input of a module shows: a cut in the graph, zeros alone, values that are no more what they were."""
        if module_clues.is_linear(module) or (path not in self._bent and module_clues.gives_back(module, taken, output)):
            self._through[path] = self.made_by(taken) or ""
        elif path in self._through:
            self._bent.add(path)
            del self._through[path]
        node: Any = taken.grad_fn
        if (step := name_of(_scaled(node))) in STEPLIKE:
            self._note(path, "steplike", function=step)
        elif is_hooked(taken) or type(node).__name__.startswith(OF_MODULES):
            self._note(path, "backward hooks", function=name_of(node))
        elif isinstance(node, BackwardCFunction):
            self._note(path, "own function", function=name_of(node))
        for one in self.batch if taken.grad_fn is None and self.reads else ():
            if one.shape != taken.shape and _is_view(taken, one):
                self._look_at_view(path, one, taken)
        if not holds:
            return
        if enabled and self._pass and taken.requires_grad:  # the graph keeps it, so no other one stands there meanwhile
            mark = self._pass, taken.data_ptr(), taken.shape, taken.stride(), taken._version
            if self._taken.get(path) == mark:
                self._note(path, "alike")
            self._taken[path] = mark
        if self.batch and taken.is_floating_point():
            self._narrow |= _is_narrow(taken, self.batch[0], module) or (not self._met and _is_altered(taken, self.batch[0]))
            self._placeless[path] += taken.requires_grad and _has_lost_places(taken, self.batch[0])
        if not enabled:
            self._note(path, "ungraded")
        elif self._met and _is_cut(taken, self.batch):
            self._note(path, "cut", whole=_is_whole(taken), dtype=str(taken.dtype)[6:])
        if not taken.is_floating_point() or not is_readable(taken):
            return
        if module_clues.is_norm(module) and not taken.requires_grad:
            self._note(path, "norm in front")
        if not taken.requires_grad and taken.numel() > 1 and not stores.contents(module).get("_modules"):
            self._note(path, "front", **_sizes_of(taken.detach()))
        if not taken.any():
            given = _is_of(taken, self.batch)
            facts = {"after": self.made_by(taken) or "", "rectified": _is_rectified(taken), "given": given}
            self._note(path, "zero input", other=path in self._fed, **facts)
        elif path not in self._fed:
            self._fed.add(path)
            if (path, "zero input") in self._modules:
                self._note(path, "zero input", other=True)

    def _look_at_view(self, path: str, whole: Tensor, view: Tensor) -> None:
        """Whether data were viewed as another shape where axes should have been moved."""
        taken, given = tuple(whole.shape), tuple(view.shape)
        if what := view_graph.tears_data(taken, given, *self._sizes()):
            self._note(path, "torn", taken=taken, given=given, what=what)

    def _note(self, path: str, kind: str, **facts: Any) -> None:
        known = {"looks": 0, **self._modules.get((path, kind), {})}
        if "ids" in facts:
            met = self._ids.setdefault(path, set())
            asked = facts.pop("ids")
            if asked.dim() == 2 and len(self._looked_up) < TABLES:
                self._looked_up.append(asked.detach())
            ids = asked.flatten()
            met.update(ids[:4096].tolist())
            facts |= {"seen": len(met), "total": known.get("total", 0) + ids.numel()}
        if "tokens" in facts:
            self._padded[path] = facts.pop("tokens").detach(), facts["padding"]
        if kind == "norm":  # a last batch that is small, once in an epoch, says nothing of the others
            facts |= {name: max(facts[name], known.get(name, 0)) for name in ("values", "samples")}
        if "state" in facts:  # calls in a row that began where the one before began
            again = known.get("pass") == self._pass and facts["state"] == known["state"] != 0
            facts["again"] = known["again"] + 1 if again else 0
        known["calls"] = known.get("calls", 0) + 1 if known.get("pass") == self._pass else 1
        known.update(facts, step=self._step)
        known["pass"] = self._pass
        known["looks"] += 1
        self._modules[path, kind] = known  # at once: an interrupt leaves no half of it

    def made_by(self, tensor: Tensor) -> str | None:
        """The module that gave a tensor, perhaps through hooks that only wait for its gradient."""
        node: Any = tensor.grad_fn
        while node is not None and type(node).__name__.startswith(OF_MODULES):
            node = next(iter(children(node)), None)
        return self._made.get(node) if node is not None else None

    def maker(self, tensor: Tensor) -> str:
        """The module that gave a tensor, behind those that only pass on, scale or shift what they take."""
        path, met = self.made_by(tensor) or "", 0
        while path in self._through and met < 8:
            path, met = self._through[path], met + 1
        return path

    def wants_loss(self, step: int) -> bool:
        """Whether the loss of a step between looks is read: ever more rarely."""
        return step >= self._next_loss

    @_aside
    def loss(self, name: str, tensor: Tensor, step: int, scale: Tensor | None = None, *, whole: bool) -> None:
        """``backward()`` is about to be called on this.

        Args:
            name: of its curve.
            tensor: the loss.
            step: of the training.
            scale: by which a scaler has multiplied it.
            whole: whether all modules are looked at in this step.
        """
        if whole and not self.reads and step < self._next_loss:
            return
        if step >= self._next_loss:
            rare = any(pool.one_sided for pool in self._losses.values())
            often = step + max(RARELY, step // OFTEN)
            self._next_loss = DENSE if step < DENSE else often if rare else 2 * step
        if not self.active or type(tensor) not in PLAIN or (name not in self._losses and len(self._losses) >= PLACES):
            return
        known, count = self._read_in_step
        self._read_in_step = step, count + 1 if known == step else 1
        if known == step and count >= PASSES:
            return
        self._passes = max(self._passes, self._read_in_step[1])
        self._compared = True
        with without_torch_function():
            self._ask_carried()
            root = self._index.root
            self._in_eval += root is not None and not root.training
            found = loss_graph.read(tensor, self._made)
            smoothed = criterion.smoothing(found)
            value = float(tensor.detach()) if tensor.numel() == 1 and not is_far(tensor) else math.nan
            own = criterion.own_loss(tensor, self._output, value)
            why = self._unkept_for(found, smoothed, own)
            self.unkept = (why if whole else "") or self.unkept
            if not found:
                return
            pool = self._losses.setdefault(name, LossPool(name))
            found[0] = self._with_target(found[0])
            self._tell_targets(found)
            times = self._gradients.scale = 1.0 if scale is None or is_far(scale) else float(scale)
            without_autograd(partial(pool.add, tensor, found, times, step, numbers=True, whole=whole and self.reads))
            without_autograd(self._look_at_scores, pool, found[0])
            if whole and self.reads and (self._walks[name] < SOON or (self.looks <= SOON and self._walked.get(name) != step)):
                self._walks[name] += 1
                self._walked[name] = step
                without_autograd(self._walk, name, tensor)
                without_autograd(self._look_beside, found)
            if whole and not why:
                without_autograd(self._keep, found[0], value, times, smoothed, own)
            if self.reads and whole and pool.looks <= DENSE and not any(one.term.criterion or one.target is not None for one in found):
                found[0] = found[0]._replace(target=without_autograd(self._of_bell, found))
            if self.reads and whole and pool.looks <= DENSE and self.batch and found[0].target is not None:
                found[0] = found[0]._replace(target=_one_for_each_place(found))
                cuts = [saved(one, "start") for one in found[0].way if name_of(one) == "Slice" and saved(one, "dim") == 1]
                without_autograd(self._pair_up, self.batch[0].detach(), found[0].target.detach(), max(cuts, default=0))

    def _look_at_scores(self, pool: LossPool, found: loss_graph.Found) -> None:
        """Whether a softmax takes chances."""
        outputs = [one for _, one, _ in leaves(self._output)[:TENSORS] if isinstance(one, Tensor) and is_readable(one)]
        known = given_scores.are_chances((found.node, *found.way), outputs)
        pool.chances |= set() if known is None else {known}

    def _tell_targets(self, found: list[loss_graph.Found]) -> None:
        """Inputs after the first one that are the targets of the loss, as a model takes them that gives its loss itself."""
        asked = [one.target for one in found if one.target is not None]
        for name, thing in [*zip(self._names, self.batch, strict=True)][1:]:
            self._inputs[name].asked |= any(_is_view(one, thing) for one in asked)

    def _walk(self, name: str, loss: Tensor) -> None:
        """Look at the whole graph of a loss: attention, dropout, and weights that the model does not know."""
        met = [*walk(loss.grad_fn, self._made)]
        nodes = {node for node, _ in met}
        self._narrow |= any(one not in nodes for one in self._sequences)  # of which the last state alone is used
        self._look_at_places(met)
        for one in attention_graph.attentions(met):
            facts = attention_clues.facts(one, self.batch)
            begin = self._modules.get((one.path, "weights"), {}).get("begin", facts.get("sharp", 0.0))
            self._note(one.path, "weights", **facts, begin=begin, pooled=place_graph.is_pooled(met, facts.get("positions", 0)))
        for other in attention_graph.shares(met):
            self._note(other.path, "shares", **attention_clues.shared(other, self.batch))
        for node, taker in met:
            if is_untaught_norm(node):
                self._note(self._place_of(node, taker), "untaught norm")
        for node, by in self._choices.met(dict(met)):
            self._note(by, "chooses", at=self._made.get(node, ""))
        for node, taker, p in dropout_graph.dropped(met):
            path = self._place_of(node, taker)
            if p >= self._modules.get((path, "dropped"), {}).get("p", 0.0):
                self._note(path, "dropped", p=p)
        for torn in view_graph.torn(met, *self._sizes()):
            self._note(torn.path, "torn", taken=torn.taken, given=torn.given, what=torn.what)
        held = {id(one) for optimizer in self.steps.optimizers for group in optimizer.param_groups for one in group["params"]}
        known = {id(tensor): weight.path for _, weight, tensor in self._index.present()}
        for path, cast in self._stale.met(nodes, known, by_hand=not self.steps.heard):
            self._note(path, "stale", cast=cast)
        ends = [node.variable for node, _ in met if name_of(node) == "AccumulateGrad"]
        self._reached.setdefault(name, set()).update(known[id(one)] for one in ends if id(one) in known)
        loose = [one for one in ends if id(one) not in held | known.keys()]
        if any(not isinstance(one, nn.Parameter) for one in loose):  # of which the loss, or a part of it, may be the slope
            self._note("", "derived")
        root = self._index.root
        found = [*places(root, loose)] if root is not None and loose else []
        for path, registered in found:
            self._note(path, "loose", registered=registered)
        if loose and not found and self._is_within(loose):
            self._note("", "loose", registered=False)

    def _place_of(self, node: Any, taker: str) -> str:
        """The module that gave what a function did; else the one around what takes it."""
        return self._made[node] if node in self._made else taker.rpartition(".")[0]

    def _look_at_places(self, met: list[tuple[Any, str]]) -> None:
        """Whether the last state alone is taken of a layer whose series end in what says nothing, or the mean of a table's rows."""
        filled = {path: facts for (path, kind), facts in self._modules.items() if kind == "filling"}
        ending = {path: facts for (path, kind), facts in self._modules.items() if kind == "recurrent" and facts["tail"]}
        takers = place_graph.Takers(met if filled or ending else ())
        for node in self._sequences if ending else ():
            path = self._made.get(node, "")
            if path in ending:
                length = ending[path]["shape"][1 if ending[path]["batch_first"] else 0]
                self._note(path, "read", last=takers.take_last(node, length))
        for node, path in [*self._made.items()] if filled else ():
            if path in filled:
                self._note(path, "read", mean=takers.average(node, filled[path]["length"]))

    def _look_beside(self, found: list[loss_graph.Found]) -> None:
        """Which parameters only those parts of a loss reach that compare nothing with targets, as a divergence does."""
        if not any(kind in ("cut", "steplike") for _, kind in self._modules):
            return
        compares, others = ([one.node for one in found if bool(one.term.criterion) is it] for it in (True, False))
        if compares and others:
            near, far = (self._ends(nodes) for nodes in (compares, others))
            for path in sorted(far - near) if near is not None and far is not None else ():
                self._note(path, "beside")

    def _ends(self, nodes: list[Any]) -> set[str] | None:
        """The parameters that the graphs below these functions end in, by ways that have a slope; None where these are too large."""
        known = {id(tensor): weight.path for _, weight, tensor in self._index.present()}
        met, found, waiting = set[Any](), set[str](), [*nodes]
        while waiting and len(met) < NODES:
            node = waiting.pop()
            if node in met or name_of(node) in STEPLIKE:
                continue
            met.add(node)
            waiting += children(node)
            if name_of(node) == "AccumulateGrad" and id(node.variable) in known:
                found.add(known[id(node.variable)])
        return None if waiting else found

    def _is_within(self, loose: list[Tensor]) -> bool:
        """Whether parameters come into the model's output in the model: not behind it, and not with its inputs."""
        inside = _leaves_of(self._output) - _leaves_of(self._given)  # what comes in with the inputs is another model's
        return any(isinstance(one, nn.Parameter) and id(one) in inside for one in loose)

    def _sizes(self) -> tuple[int, int]:
        """How many samples there are in the batch, and how long its sequences are: 0 if they are none."""
        first = self.batch[0] if self.batch else None
        if first is None or not first.dim():
            return 0, 0
        return len(first), first.shape[1] if first.dim() == (3 if first.is_floating_point() else 2) else 0

    def _with_target(self, found: loss_graph.Found) -> loss_graph.Found:
        """The target of an error by hand, of which the graph has saved the difference alone."""
        quantile = found.term.criterion == composed_criteria.QUANTILES
        output, difference = self._output, composed_criteria.error_of(found.node) if quantile else saved(found.node, "self")
        if found.term.criterion == composed_criteria.SIGNS and found.target is not None:
            fits = isinstance(output, Tensor) and output.numel() == found.target.numel() and is_readable(output)
            return found._replace(output=output.detach().reshape(found.target.shape)) if fits else found
        if quantile and isinstance(output, Tensor):
            output = _selected(output.detach(), found.way)
        if not isinstance(output, Tensor) and isinstance(difference, Tensor):  # the model gives several: the one that fits
            fitting = [one for _, one, _ in leaves(output) if isinstance(one, Tensor) and one.numel() == difference.numel()]
            output = fitting[0] if len(fitting) == 1 else None
        if found.output is not None or not isinstance(output, Tensor) or type(output) not in PLAIN:
            return found
        if found.term.criterion == "likelihood" and is_readable(output):
            return found._replace(**written_criteria.picked(output, found.passed)._asdict(), ignored=written_criteria.LEFT_OUT)
        if found.term.criterion == "divergence" and {name_of(one) for one in found.way} <= {"Mul"} and output.shape == found.term.compared:
            return found._replace(output=output.detach(), target=written_criteria.divergence(found.node))
        if not found.term.criterion.endswith("error") or not isinstance(difference, Tensor) or output.numel() != difference.numel():
            return found
        if any(name_of(one) not in (*SHAPES, "Select") for one in found.way):
            return found
        given = output.detach().reshape(difference.shape)
        above = children(found.node)[0] if quantile else found.node
        sub = next((one for one in children(above) if name_of(one) in ("Sub", "Rsub")), None)
        if sub is None:
            sub, times = written_criteria.in_other_units(above)
            difference = difference / times
        if sub is None:
            return found
        target = given - difference.detach() if sub.next_functions[0][0] is not None else given + difference.detach()
        whole = target.round()
        target = whole if bool(((target - whole).abs() < CLOSE * (1 + whole.abs())).all()) else target
        return found._replace(output=given, target=target)

    def _of_bell(self, found: list[loss_graph.Found]) -> Tensor | None:
        """The target of a bell curve's likelihood, whose middle is one of the things that the model gives."""
        square = next(filter(None, (composed_criteria.squared_of_bell(one.node) for one in found)), None)
        difference = saved(square, "self") if square is not None else None
        if not isinstance(difference, Tensor) or not is_readable(difference):
            return None
        sub = children(square)[0]
        middle = children(sub)[0]
        while name_of(middle) in SHAPES and middle not in self._made and len(children(middle)) == 1:
            middle = children(middle)[0]
        given = [one for _, one, _ in leaves(self._output)[:TENSORS] if isinstance(one, Tensor) and one.grad_fn is middle]
        if len(given) != 1 or given[0].numel() != difference.numel() or not is_readable(given[0]):
            return None
        output = given[0].detach().reshape(difference.shape)
        taken_off = sub.next_functions[0][0] is None or name_of(sub) == "Rsub"  # the output, from the target
        return output + difference.detach() if taken_off else output - difference.detach()

    def _unkept_for(self, found: list[loss_graph.Found], smoothed: float, own: OwnLoss | None) -> str:
        """Why this loss cannot be computed once more, as far as its graph tells."""
        root = self._index.root
        if self._given is None and root is not None and not stores.mode(root):
            return "evaluation"
        if len(found) > 1 and not smoothed and own is None:
            return "terms"
        if not found or self._given is None:
            return "loss"
        given = [one for _, one, _ in leaves(self._output) if isinstance(one, Tensor)]
        return "" if own is not None or any(one.dim() for one in given) else "output"

    def _keep(self, found: loss_graph.Found, value: float, scale: float, smoothed: float, own: OwnLoss | None) -> None:
        """Keep a copy of this batch and its loss, where that can be computed once more."""
        if self.kept is not None and self._step < 2 * self.kept.step:
            return
        args, kwargs = self._given
        tensors = [one for _, one, _ in leaves((args, kwargs)) if isinstance(one, Tensor)]
        if found.target is None or not all(map(is_readable, tensors)):
            self.unkept = "loss"
            return
        if sum(one.numel() * one.element_size() for one in (*tensors, found.target)) > HELD:
            self.unkept = "large"
            return
        loss = own or criterion.rebuilt(found, found.way, self._output, value, smoothed)
        if args and kwargs:
            root = self._index.root
            args, kwargs = (), named_inputs(root, args, kwargs) if root is not None else None
        self.unkept = "loss" if loss is None else "inputs" if kwargs is None else ""
        if loss is not None and not self.unkept:
            inputs = _copied(kwargs) if kwargs else _copied(args[0]) if len(args) == 1 and isinstance(args[0], Tensor) else _copied(args)
            loss, target = loss if scale == 1 else _unscaled(loss, scale), found.target.detach().clone()
            self.kept = KeptBatch(self._step, inputs, target, loss, _modes(self._index.root))

    @_aside
    def graded(self, task: int) -> None:
        """Gradients flow in a backward pass."""
        if self.active and self.reads:
            self._gradients.flow(task)

    def is_taken(self, path: str) -> bool:
        """Whether the gradient of a parameter came in some look, and was gone at the step."""
        return path in self._gradients.taken

    def _ask_carried(self) -> None:
        """Whether there are gradients before ``backward()`` brings new ones."""
        held = [(weight, tensor) for _, weight, tensor in self._index.present() if weight.trainable and weight.owned]
        if not held or is_far(held[0][1]):
            return
        weight = held[0][1]
        mark = (id(weight.grad), weight.grad._version) if weight.grad is not None else None
        if mark is not None and mark == self._carried_mark:  # what went backward last was a loss of others
            self._graded -= 1
            self._carried -= self._carried_now
        self._carried_mark = mark
        self._graded += 1
        self._carried_now = _has_gradient(weight) and not (len(self._losses) > 1 and _is_zeroed(*held[-1]))
        self._carried += self._carried_now

    def _pair_up(self, inputs: Tensor, target: Tensor, start: int) -> None:
        if not is_readable(target) or not inputs.dim() or not target.dim():
            return
        if len(inputs) == len(target):
            self._pairs.add(*self._sides(inputs, target))
        self._pairs.add_places(inputs, target)
        batch = self.batch[: 1 if self._gives_its_loss() else None]
        for level, pool in zip(batch[1:], [*self._inputs.values()][1:], strict=False):
            pool.beside_noise(level.detach(), inputs, target)
        self._narrow |= 1 in self._placeless.values()  # what is called more often goes from place to place
        pair = pair_clues(batch, target, start, self._pair, self._looked_up)
        self._pair = replace(pair, through=not self._narrow, zeros=0.0 if pair.restored > SAME else zeros(inputs, target))

    def _gives_its_loss(self) -> bool:
        """Whether the loss is among what the model gives, so that the target comes in with its inputs; or may be, if none of it is seen."""
        given = [one for _, one, _ in leaves(self._output) if isinstance(one, Tensor)]
        return not given or any(one.requires_grad and not one.dim() for one in given)

    def _sides(self, inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """What has to go together: the input and the target, or both inputs where each one has to find its own other one."""
        other = self.batch[1].detach() if len(self.batch) == 2 else inputs
        first, second = (inputs, other) if other.is_floating_point() else (other, inputs)
        alike = second.is_floating_point() and len(first) == len(second) and second.numel() <= 64 * len(second)
        finds = other is not inputs and target.dim() == 1 and not target.is_floating_point() and len(target) > 3
        return (first, second) if finds and alike and bool((target == torch.arange(len(target))).all()) else (inputs, target)

    # ---- steps

    @_aside
    def step_begins(self) -> None:
        """The optimizer is about to make its step."""
        if self.active and self.reads:
            self._gradients.step_begins()

    @_aside
    def step_ended(self) -> None:
        """It has made it."""
        if self.active and self.reads:
            self._gradients.step_ended(hooked=any(getattr(one, "_optimizer_step_post_hooks", None) for one in self.steps.optimizers))

    # ---- what there is

    def _look_at_rows(self) -> None:
        """Whether all units of a layer have the same weights, or treat all that they take alike."""
        for _, weight, tensor in self._index.present():
            if tensor.dim() < 2 or len(tensor) < 2 or not tensor.requires_grad or not is_readable(tensor):
                continue
            rows = bool((tensor == tensor[:1]).all())
            if rows or (tensor.shape[1] > 1 and bool((tensor == tensor[:, :1]).all())):
                kind = "embedding" if isinstance(weight.owner(), (nn.Embedding, nn.EmbeddingBag)) else "layer"
                units = len(tensor) if rows else tensor.shape[1]
                self._note(weight.path, "equal units", units=units, of=kind, zero=not bool(tensor.any()), rows=rows)

    def _related(self, losses: tuple[LossClues, ...]) -> Relations:
        """Whether inputs and targets go together: asked once, in the end, and only where the loss stays at what a constant answer gives."""
        if self._relations is None:
            stuck = any(one.baseline > 0 and not one.value < STUCK * one.baseline for one in losses)
            bags = [facts for (_, kind), facts in self._modules.items() if kind == "embedding" and "in a bag" in facts]
            asked = partial(self._pairs.relations, bags[0]["padding"] if len(bags) == 1 else None)
            self._relations = without_autograd(asked) if stuck else Relations()
        return self._relations

    def record(
        self,
        accepted: dict[str, int],
        scaled: tuple[int, int, int],
        returned: int,
        rootless: int,
        modes: ModeClues,
        written: WrittenClues,
        thrown: tuple[int, int],
        *,
        closed: bool,
    ) -> Clues:
        """All of it.

        Args:
            closed: whether the watch has ended.
            accepted: the names of losses of this model, and how often ``backward()`` was called on each.
            scaled: how many steps, and clippings, met gradients that a scaler had multiplied; and how many scalers came in another's place.
            returned: how often the same weights were written between two steps.
            rootless: how often ``backward()`` began with a tensor whose graph ends in no parameter of the model.
            modes: in which mode the model was in the steps.
            written: what others were written between two steps.
            thrown: how many backward passes of the one loss brought what no step has used, and how many there were.
        """
        if closed and self._told is None:
            self._told = self._held = self._take_down(closed=True)
        held, losses = self._held, tuple(pool.clues() for name, pool in self._losses.items() if name in accepted)
        gradients = self._gradients
        loop = LoopClues(
            sum(accepted.values()),
            self._graded,
            self._carried,
            gradients.put_back,
            gradients.kept,
            held.hooked,
            (gradients.turned, gradients.true, gradients.gone),
            float(np.median(gradients.ratios)) if gradients.ratios else math.nan,
            *scaled,
            self.steps.skipped,
            held.shared,
            tuple(type(one).__name__ for one in self.steps.optimizers),
            self._in_eval,
            held.twice,
            held.uncounted,
            gradients.arrivals,
            (gradients.up, gradients.down),
            gradients.rounded,
            gradients.shrunk,
            gradients.decayed,
            gradients.clamped,
            max(returned, gradients.returned),
            rootless,
            gradients.replaced,
            gradients.brought,
            self.steps.asleep(),
            held.sharing,
            gradients.against,
            modes,
            self._passes,
            written,
            held.restarted,
            self.steps.exchanged,
            tuple(path for path in held.shared if sum(path in self._reached.get(name, ()) for name in accepted) > 1),
            {path: looks for path, looks in gradients.taken.items() if looks >= SEVERAL},
            ThrownClues(*thrown, gradients.others, gradients.written),
            held.strange,
        )
        return Clues(
            losses,
            tuple(pool.clues() for pool in self._inputs.values()),
            self._pair,
            self._related(losses) if closed else Relations(),
            held.groups,
            loop,
            tuple(ModuleClues(path, kind, dict(facts)) for (path, kind), facts in self._modules.items()),
            frozenset().union(*self._reached.values()),
            tuple(self._walks[name] for name in self._losses if name in accepted),
            *held.numbers,
            held.fresh,
        )

    def _take_down(self, *, closed: bool) -> HeldParameters:
        """What is known of parameters and optimizers: at the first looks, and in the end."""
        weights = [(weight, tensor) for _, weight, tensor in self._index.present() if not is_lazy(tensor)]
        held = [({id(tensor) for group in one.param_groups for tensor in group["params"]}, type(one)) for one in self.steps.optimizers]
        many = Counter(number for some, _ in held for number in some)
        shared = {id(tensor): weight.path for weight, tensor in weights if many[id(tensor)] > 1}
        mine = {id(tensor) for _, tensor in weights}
        others = {id(one): one for optimizer in self.steps.optimizers for group in optimizer.param_groups for one in group["params"]}
        # In the end a critic may be frozen for the turn of its generator, and has been trained in its own.
        frozen = [tensor for weight, tensor in weights if not (tensor.requires_grad or (weight.met and weight.trainable))]
        fresh = [tensor for tensor in frozen if closed and without_autograd(_is_fresh, tensor)]
        new = {id(tensor) for tensor in fresh}
        drawn = [tensor for tensor in frozen if closed and without_autograd(_is_drawn, tensor)]
        return HeldParameters(
            tuple(self._groups({id(tensor): weight.path for weight, tensor in weights})),
            tuple(weight.path for weight, tensor in weights if _has_hooks(tensor))[:16],
            tuple(shared.values())[:16],
            self._twice() if closed else (),
            without_autograd(self._uncounted) if closed else (),
            (_size([tensor for _, tensor in weights]), _size(frozen), _size(fresh), _size(drawn)),
            tuple(kind.__name__ for some, kind in held if some & shared.keys()),
            without_autograd(self._restarted) if closed else (),
            tuple(weight.path for weight, tensor in weights if id(tensor) in new)[-16:],
            tuple(tuple(one.shape) for number, one in others.items() if number not in mine and not is_lazy(one))[:STRANGE],
        )

    def _norms(self) -> Iterator[tuple[str, _BatchNorm]]:
        """Batch norms that count their batches, where their numbers can be read."""
        root = self._index.root
        for path, module in root.named_modules() if root is not None else ():
            tracked = module.num_batches_tracked if isinstance(module, _BatchNorm) else None
            if isinstance(module, _BatchNorm) and isinstance(tracked, Tensor) and not is_far(tracked) and is_there(tracked):
                yield path, module

    def _uncounted(self) -> tuple[str, ...]:
        """Batch norms that have not taken in a single batch, though they should."""
        return tuple(path for path, module in self._norms() if not int(module.num_batches_tracked or 0))

    def _restarted(self) -> tuple[str, ...]:
        """Batch norms that have taken in batches, and whose statistics are as at the beginning, though their weights are not."""
        known = {path for path, kind in self._modules if kind == "norm"}
        return tuple(path for path, module in self._norms() if path in known and _is_restarted(module))

    def _twice(self) -> tuple[str, ...]:
        """The places of a module with parameters, or of a parameter in one list, that stands in several of them."""
        root = self._index.root
        paths: dict[int, list[str]] = {}
        for path, module in root.named_modules() if root is not None else ():
            if isinstance(module, (nn.ParameterList, nn.ParameterDict)):
                for name, parameter in module.named_parameters(path, recurse=False, remove_duplicate=False):
                    paths.setdefault(id(parameter), []).append(name)
        for path, module in root.named_modules(remove_duplicate=False) if root is not None else ():
            if stores.contents(module).get("_parameters"):
                paths.setdefault(id(module), []).append(path)
        return next((tuple(some[:8]) for some in paths.values() if len(some) > 1), ())

    def _groups(self, paths: dict[int, str]) -> Iterator[GroupClues]:
        for optimizer in self.steps.optimizers:
            for group in optimizer.param_groups:
                mine = [paths[id(tensor)] for tensor in group["params"] if id(tensor) in paths]
                yield GroupClues(
                    type(optimizer).__name__,
                    _number(group.get("lr")),
                    _aim(group),
                    _number(group.get("momentum") or (group.get("betas") or (0.0,))[0]),
                    _number(group.get("weight_decay") or 0.0),
                    type(optimizer).__name__ == "AdamW" or bool(group.get("decoupled_weight_decay")),
                    bool(group.get("maximize")),
                    sum(tensor.numel() for tensor in group["params"] if not is_lazy(tensor)),
                    tuple(mine[:16]),
                )


# ---- tensors


def _size(tensors: list[Tensor]) -> int:
    """How many numbers they have."""
    return sum(tensor.numel() for tensor in tensors)


def _has_gradient(weight: Tensor) -> bool:
    """Whether there is one, other than zero."""
    return weight.grad is not None and bool(without_autograd(weight.grad.any))


def _is_zeroed(weight: Weight, tensor: Tensor) -> bool:
    """Whether its gradient has been taken away, as two players do it: each zeroes its own, and leaves what it brought to the other one."""
    return bool(weight.felt) and not is_far(tensor) and not _has_gradient(tensor)


def _sizes_of(taken: Tensor) -> dict[str, float]:
    """The mean of some numbers, and their deviation."""
    some = some_of(taken).double()
    return {"mean": float(some.mean()), "std": float(some.std())}


def _one_for_each_place(found: list[loss_graph.Found]) -> Tensor | None:
    """The target, side by side with those of a loop that compares place after place, if that begins with the first one."""
    targets: dict[int, Tensor] = {}
    for one in found:
        place = next((saved(node, "index") for node in one.way if name_of(node) == "Select" and saved(node, "dim") == 1), None)
        if not isinstance(place, int) or one.target is None or one.target.dim() != 1:
            break
        targets[place] = one.target
    some = [targets[place] for place in sorted(targets)]
    if len(some) < SEVERAL or sorted(targets) != [*range(len(some))] or len({len(one) for one in some}) > 1:
        return found[0].target
    return torch.stack(some, 1)


def _selected(output: Tensor, way: list[Any]) -> Tensor:
    """The part of a model's output that is compared, where that is one column."""
    columns = [(saved(one, "dim"), saved(one, "index")) for one in way if name_of(one) == "Select"]
    if len(columns) != 1 or not all(isinstance(one, int) for one in columns[0]):
        return output
    dim, index = columns[0]
    return output.select(dim, index) if -output.dim() <= dim < output.dim() and abs(index) < output.shape[dim] else output


def _is_narrow(taken: Tensor, batch: Tensor, module: Module) -> bool:
    """Whether a layer takes no series of places, as the batch is one, or fewer numbers of each; convolutions have the places last."""
    if batch.dim() != 3 or taken.dim() != 3:
        return batch.dim() == 3
    samples, places, width = batch.shape
    padded = isinstance(module, nn.modules.conv._ConvNd) and taken.shape[2] > places
    last = taken.shape[0] == samples and (taken.shape[2] == places or padded) and taken.shape[1] >= width
    return not last and (taken.shape[:2] != batch.shape[:2] or taken.shape[-1] < width)


def _has_lost_places(taken: Tensor, tokens: Tensor) -> bool:
    """Whether a layer takes one row of numbers for all tokens of a sample, or other places than theirs; one more may stand in front."""
    if tokens.dim() != 2 or tokens.is_floating_point():
        return False
    samples, places = tokens.shape
    return taken.shape[0] == samples if taken.dim() == 2 else not {places - 1, places, places + 1} & {*taken.shape}


def _is_altered(taken: Tensor, series: Tensor) -> bool:
    """Whether numbers of a series were hidden, or made noisy, before a layer takes them: they do not go with what they were."""
    if series.dim() != 3 or taken.shape != series.shape or not is_readable(taken):
        return False
    one, other = (some.detach().double() - some.detach().double().mean(1, keepdim=True) for some in (taken, series))
    size = one.square().sum(1) * other.square().sum(1)
    alike = (one * other).sum(1).square() / size.clamp_min(1e-30)
    varies = other.square().sum(1) > 0
    return bool(varies.any()) and float(alike[varies].mean()) < PLAINLY


def _is_one_place(module: nn.RNNBase, output: Tensor) -> bool:
    """Whether a recurrent layer goes one step alone, as in a loop that carries its state."""
    return output.dim() == 3 and output.shape[1 if module.batch_first else 0] == 1


def _scaled(node: Any) -> Any:
    """What gave a number, without what was then multiplied with it or added to it, as in ``floor(4 * x) / 4``."""
    for _ in range(FEW_STEPS):
        if name_of(node) not in SCALES or len(children(node)) != 1:
            break
        node = children(node)[0]
    return node


def _is_restarted(norm: _BatchNorm) -> bool:
    """Whether a batch norm has begun anew, and not with its weights, as all that is drawn anew does.

    Each batch that it takes in is written into its count: of one that lends copies to each pass, that is not written.
    """
    mean, var, count, weight = norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.weight
    if mean is None or var is None or count is None or weight is None or not (is_there(mean) and is_there(weight)):
        return False
    if count.is_inference() or count._version <= SEVERAL or bool((weight == weight.flatten()[:1]).all()):
        return False
    return not bool(mean.any()) and bool((var == 1).all())


def _is_fresh(tensor: Tensor) -> bool:
    """Whether weights are spread as PyTorch's own initialization draws them: evenly up to a bound, or normally with a deviation of 1."""
    if not is_readable(tensor) or tensor.dim() < 2 or tensor.numel() < 16:
        return False
    values = tensor.detach().double()
    bound = 1 / math.sqrt(tensor[0].numel())
    std, most = float(values.std()), float(values.abs().max())
    normal = abs(std - 1) < 0.1 and abs(float(values.mean())) < 0.1 and most < math.sqrt(2 * math.log(tensor.numel())) + FAR_OUT
    return normal or (most <= 1.001 * bound and abs(std * math.sqrt(3) / bound - 1) < 0.15)


def _is_drawn(tensor: Tensor) -> bool:
    """Whether weights are as if each had been drawn by itself from one bell curve around 0; what was learned has patterns."""
    if not is_readable(tensor) or tensor.dim() != 2 or tensor.numel() < DRAWN:
        return False
    values = tensor.detach().double()[: 1 << 12]
    count, std = values.numel(), float(values.std())
    if not std > 0 or abs(float(values.mean())) > CHANCE * std / math.sqrt(count):
        return False
    values = values / std
    if abs(float(values.pow(4).mean()) - 3) > CHANCE * math.sqrt(24 / count):
        return False
    rows, columns = values.shape
    alike = (values.T @ values / rows - torch.eye(columns, dtype=values.dtype)).square().sum()
    by_chance = columns * (columns + 1) / rows  # with a deviation of about twice its root over the rows, at most
    return abs(float(alike) - by_chance) < CHANCE * 2 * math.sqrt(by_chance * (1 + columns / rows) / rows) + by_chance / 4


def _unscaled(loss: criterion.Loss, scale: float) -> criterion.Loss:
    """The loss without what a scaler had multiplied it by: who computes it again has no scaler."""
    return lambda output, target: loss(output, target) / scale


def _copied(thing: Any) -> Any:
    if isinstance(thing, Tensor):
        return thing.detach().clone()
    if isinstance(thing, dict):
        return {name: _copied(one) for name, one in thing.items()}
    return type(thing)(map(_copied, thing)) if type(thing) in (tuple, list) else thing


def _modes(root: Module | None) -> dict[str, bool]:
    """Which modules are in training mode, by path."""
    found = root.named_modules() if root is not None else ()
    return {path: mode for path, module in found if (mode := stores.mode(module)) is not None}


def _beginning(tensor: Tensor) -> Tensor:
    """A copy of its first numbers."""
    return tensor.detach().flatten()[:BEGINNING].clone()


def _is_cut(taken: Tensor, batch: list[Tensor]) -> bool:
    """Whether a tensor without a gradient is no part of the batch, and no state that begins at zero."""
    if not taken.is_floating_point() or taken.requires_grad or _is_of(taken, batch):
        return False
    return not is_readable(taken) or bool(taken.any())


def _leaves_of(thing: Any) -> set[int]:
    """The leaves of the graphs that tensors come from, and those that are leaves themselves, by identity."""
    tensors = [one for _, one, _ in leaves(thing) if isinstance(one, Tensor) and one.requires_grad]
    nodes = [node for one in tensors if one.grad_fn is not None for node, _ in walk(one.grad_fn, {})]
    return {id(one) for one in tensors if one.grad_fn is None} | {id(node.variable) for node in nodes if name_of(node) == "AccumulateGrad"}


def _is_rectified(tensor: Tensor) -> bool:
    """Whether it comes from a function that gives zero for all that is below it."""
    node = tensor.grad_fn
    while node is not None and (name_of(node) in MOVES or "Pool" in name_of(node)) and children(node):
        node = children(node)[0]
    return node is not None and rectifies(node)


def _is_of(tensor: Tensor, batch: list[Tensor]) -> bool:
    """Whether a tensor is one of the batch, or a part of it."""
    return is_readable(tensor) and tensor.untyped_storage().data_ptr() in {one.untyped_storage().data_ptr() for one in batch}


def _is_view(tensor: Tensor, other: Tensor) -> bool:
    """Whether it has the numbers of another one, in the same order."""
    if not is_readable(tensor) or not is_readable(other) or tensor.data_ptr() != other.data_ptr() or tensor.numel() != other.numel():
        return False
    return tensor.is_contiguous() and other.is_contiguous()


def _is_whole(taken: Tensor) -> bool:
    return is_readable(taken) and bool((taken == taken.round()).all()) and bool(taken.any())


def _has_hooks(tensor: Tensor) -> bool:
    return bool(tensor._backward_hooks) or bool(getattr(tensor, "_post_accumulate_grad_hooks", None))


def _aim(group: dict[str, Any]) -> float:
    """The learning rate that a scheduler began with, or goes up to."""
    initial, most = _number(group.get("initial_lr")), _number(group.get("max_lr"))
    return most if most > initial else initial


def _number(thing: Any) -> float:
    if isinstance(thing, Tensor):
        return float(thing) if thing.numel() == 1 and not is_far(thing) else math.nan
    return float(thing) if isinstance(thing, (int, float)) else math.nan
