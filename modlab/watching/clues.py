"""Clues are collected in the steps that are looked at: of the batch as it enters, of the graph of the loss, and of the loop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from modlab.compat import after_backward, without_autograd, without_torch_function
from modlab.inspection import stores
from modlab.inspection.entries import PLAIN
from modlab.records.clues import Clues, GroupClues, InputClues, LoopClues, LossClues, ModuleClues, Numbers, PairClues, Relations
from modlab.running import attention_graph, criterion, dropout_graph, loss_graph, written_criteria
from modlab.running.autograd_nodes import children, name_of, saved, walk
from modlab.running.guarded import note
from modlab.running.values import leaves
from modlab.statistics.memory import is_there
from modlab.watching import attention_clues
from modlab.watching.loose_weights import places
from modlab.watching.pairs import Pairs
from modlab.watching.readback import is_far
from modlab.watching.steps import Steps
from modlab.watching.watch_index import Member, WatchIndex

DENSE, RARELY = 10, 10
"""Looks in which the numbers of batches are read, and steps from one to the next after them."""

MOST = 1 << 17
"""Numbers of a tensor that are read: of a larger one the first samples."""

SOON = 3
"""Looks in which parameters and optimizers are taken down."""

LARGE = 8
"""Samples of a batch from which on it says something that its targets are alike."""

WIDE = 8
"""Numbers of a sample from which on its size is one."""

ROWS = 256
"""Samples of a batch that are told from each other."""

FEATURES, ENOUGH = 2048, 16
"""Features of an input that are compared with the target, and samples that it takes."""

TOKENS = 1000
"""Rows of an embedding up to which those that are looked up are counted."""

TENSORS, PLACES, PASSES = 4, 8, 64
"""Inputs of a call, and places where a loss is computed, that are kept apart; and backward passes of one step that are looked at."""

ALIKE = 0.7
"""Cosine between two gradients below which the one is not the other."""

BACK = 0.04
"""Part of the square of a step that is left of it before the next one, where the weights were put back."""

PROBES, GRADIENTS, PART = 3, 8, 32
"""Parameters by which is seen whether somebody puts the weights back, those whose gradients are followed, and numbers of each."""

STEPLIKE = frozenset(("Sign", "Round", "Floor", "Ceil", "Trunc", "Heaviside"))
"""Functions whose gradient is zero."""

SHAPES = frozenset(("ToCopy", "View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone", "Alias", "Select"))
"""Functions that give the same numbers in the same order, if they give as many."""

HELD = 16 << 20
"""Bytes of the batch that is kept for a diagnosis, at most."""

STUCK = 0.5
"""Of the loss of a constant answer, above which a loss at the last look may be stuck."""

Array = npt.NDArray[np.float64]


def _entropy(counts: Array) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


class Pool:
    """Numbers pooled over looks."""

    def __init__(self) -> None:
        self.count = 0
        self.total = self.squares = 0.0
        self.low, self.high = math.inf, -math.inf
        self.whole, self.distinct = True, 0

    def add(self, values: Tensor) -> None:
        """Take some in."""
        finite = values[values.isfinite()] if values.is_floating_point() else values
        if not finite.numel():
            return
        exact = finite.double()
        self.count += exact.numel()
        self.total += float(exact.sum())
        self.squares += float(exact.square().sum())
        self.low, self.high = min(self.low, float(exact.min())), max(self.high, float(exact.max()))
        self.whole = self.whole and bool((exact == exact.round()).all())
        if self.whole:
            self.distinct = max(self.distinct, int(_kinds(exact.flatten()[:4096]).numel()))

    def numbers(self) -> Numbers:
        """What they are."""
        if not self.count:
            return Numbers()
        mean = self.total / self.count
        return Numbers(mean, math.sqrt(max(self.squares / self.count - mean * mean, 0.0)), self.low, self.high, self.whole, self.distinct)


class InputPool:
    """One tensor of the model's call, over looks."""

    def __init__(self, name: str) -> None:
        self.name, self.dtype = name, ""
        self.shape: tuple[int, ...] = ()
        self.pool = Pool()
        self.features = self.scales = math.inf, 0.0
        self.looks = self.same = self.repeated = self.compared = 0
        self.rows: set[float] = set()
        self.seen = 0
        self.tokens: Counter[int] = Counter()
        self._last: tuple[int, float] | None = None

    def add(self, tensor: Tensor, step: int) -> None:
        """Take a batch in."""
        self.shape, self.dtype = tuple(tensor.shape), str(tensor.dtype)[6:]
        some = _some(tensor)
        self.pool.add(some)
        self.looks += 1
        if some.dim() and len(some) > 1:
            self.same += bool((some == some[:1]).all())
        if some.dim() > 1 and some.is_floating_point():
            deviations = some.double().movedim(1 if some.dim() == 4 else -1, 0).flatten(1).std(1)
            self.features = min(self.features[0], float(deviations.min())), max(self.features[1], float(deviations.max()))
        if some.dim() > 1 and some.is_floating_point() and some[0].numel() >= WIDE and len(some) >= LARGE:
            sizes = some.double().flatten(1).std(1).sort().values
            tenth = len(sizes) // 10
            self.scales = min(self.scales[0], float(sizes[tenth])), max(self.scales[1], float(sizes[-1 - tenth]))
        sums = _told_apart(some)
        if self.looks <= DENSE:
            self.rows.update(sums.tolist())
            self.seen += len(sums)
        if not some.is_floating_point():
            self.tokens.update(some.flatten()[:4096].tolist())
        total = float(sums.sum())
        if self._last is not None and self._last[0] == step - 1:
            self.compared += 1
            self.repeated += self._last[1] == total
        self._last = step, total

    def clues(self) -> InputClues:
        """What they are."""
        token, count = self.tokens.most_common(1)[0] if self.tokens else (-1, 0)
        return InputClues(
            self.name,
            self.shape,
            self.dtype,
            self.pool.numbers(),
            self.features,
            self.scales,
            self.same / max(self.looks, 1),
            self.repeated / max(self.compared, 1),
            self.seen,
            len(self.rows),
            count / max(self.tokens.total(), 1),
            int(token),
        )


class LossPool:
    """What is known of the loss at one place, over looks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.looks = self.read = self.ordered = 0
        self.terms: tuple[Any, ...] = ()
        self.outputs, self.targets, self.first_outputs = Pool(), Pool(), Pool()
        self.counts = np.zeros(0)
        self.sums: Array = np.zeros(0)
        self.squares: Array = np.zeros(0)
        self.rows = 0
        self.kinds: set[int] = set()
        self.some: list[Tensor] = []  # targets, of errors whose best constant is the middle one
        self.within: list[float] = []
        self.ignored, self.all, self.many = 0, 0, 1
        self.weights: tuple[float, ...] = ()
        self.spread = self.unnormalized = math.nan
        self.along, self.value, self.away = -1, math.nan, math.nan
        self.risks: dict[str, None] = {}

    def add(self, loss: Tensor, found: list[loss_graph.Found], scale: float, *, numbers: bool, whole: bool) -> None:
        """Take in a look at a loss that a scaler has multiplied; a whole one knows which modules gave what."""
        self.looks += 1
        self.value = float(loss.detach()) / scale if not is_far(loss) else math.nan
        if whole or not self.terms:
            self.terms = tuple(replace(one.term, factor=one.term.factor / scale) for one in found[:8])
        self.risks.update(dict.fromkeys(loss_graph.risks(loss)))
        self.away = loss_graph.away_from_prior(loss)
        first = found[0]
        if first.target is not None and _is_readable(first.target) and first.target.is_floating_point():
            given = saved(first.node, "target") is not None  # and not computed from an output that may be no number
            known = first.output is not None and bool(first.output.isfinite().all())
            bad = (given or known) and not bool(first.target.isfinite().all())
            self.risks.update({"not a number in data": None} if bad else {})
        output, target = first.output if first.output is not None else loss_graph.seen(loss), first.target
        if not numbers or output is None or not _is_readable(output):
            return
        output = output.detach()
        if self.looks <= 2:
            self.first_outputs.add(_some(output))
        self.outputs = Pool()  # of the last look alone: they change
        self.outputs.add(_some(output))
        if output.dim() and len(output) > 1 and output.is_floating_point():
            self.spread = float(output.double().std(0).mean() / (output.double().abs().mean() + 1e-12))
        if target is not None and _is_readable(target):
            self._take(first, output, target.detach())

    def _take(self, found: loss_graph.Found, output: Tensor, target: Tensor) -> None:
        self.read += 1
        self.many = target.numel()
        if found.term.criterion in ("cross-entropy", "likelihood"):
            self._classes(found, output, target)
            return
        if found.term.criterion == "divergence":
            self.unnormalized = float(output.double().logsumexp(-1).abs().max())
            return
        self.targets.add(_some(target))
        if target.dim() and len(target) >= LARGE:
            self.within.append(float(target.double().var()))
        flat = target.double().reshape(len(target), -1)[:, :FEATURES] if target.dim() else target.double().reshape(1, 1)
        if flat.shape[1] == self.sums.shape[0] or not self.rows:
            self.sums = (self.sums if self.rows else 0) + flat.sum(0).numpy()
            self.squares = (self.squares if self.rows else 0) + flat.square().sum(0).numpy()
            self.rows += len(flat)
        if found.term.criterion in ("absolute error", "smooth error") and len(self.some) < DENSE and flat.numel() <= MOST // DENSE:
            self.some.append(flat)
        weight = saved(found.node, "pos_weight")
        if isinstance(weight, Tensor) and not is_far(weight):
            self.weights = tuple(weight.detach().double().flatten()[:64].tolist())

    def _classes(self, found: loss_graph.Found, output: Tensor, target: Tensor) -> None:
        dim = 1 if output.dim() > 1 else 0
        kept = target[target != found.ignored] if found.ignored is not None else target
        self.ignored += target.numel() - kept.numel()
        self.all += target.numel()
        if kept.numel():
            counts = torch.bincount(kept.flatten(), minlength=output.shape[dim]).double().numpy()
            self.counts = counts + (np.pad(self.counts, (0, len(counts) - len(self.counts))) if len(self.counts) <= len(counts) else 0)
            self.kinds.update(np.flatnonzero(counts).tolist()[:64])
            flat = kept.flatten()
            self.within.append(_entropy(counts)) if len(flat) >= LARGE else None
            self.ordered += (
                len(flat) > 8
                and _kinds(flat).numel() < len(flat)
                and bool((flat.diff() >= 0).all() or (flat.diff() <= 0).all())
                and bool(flat[0] != flat[-1])
            )
        weight = saved(found.node, "weight")
        if isinstance(weight, Tensor) and not is_far(weight):
            self.weights = tuple(weight.detach().double().flatten()[:1024].tolist())
        sums = [(int(i), float(output.double().logsumexp(i).abs().max())) for i in range(output.dim())]
        self.unnormalized = dict(sums)[dim]
        self.along = next((i for i, most in sums if i != dim and most < 1e-3), -1)

    def clues(self) -> LossClues:
        """What is known."""
        shares = self.counts / self.counts.sum() if self.counts.sum() else self.counts
        return LossClues(
            self.name,
            self.looks,
            self.terms,
            self.outputs.numbers(),
            self.targets.numbers(),
            self.first_outputs.numbers(),
            self.spread,
            self._baseline(shares),
            len(shares),
            tuple(shares.tolist()[:1024]),
            self._within(shares),
            self.ordered / max(self.read, 1),
            self.ignored / max(self.all, 1),
            self.weights,
            self.unnormalized,
            self.along,
            tuple(self.risks),
            self.value,
            self.away,
        )

    def _within(self, shares: Array) -> float:
        """How much of what the targets differ by they differ by within a batch."""
        all_of_it = _entropy(self.counts) if len(shares) else self.targets.numbers().std ** 2
        return float(np.mean(self.within)) / all_of_it if self.within and all_of_it > 0 else math.nan

    def _baseline(self, shares: Array) -> float:
        """The loss of the best answer that does not look at the input."""
        term = self.terms[0] if self.terms else None
        if term is None:
            return math.nan
        factor = abs(term.factor) * (self.many if term.reduction == "sum" else 1)
        if len(shares):
            if len(self.weights) == len(shares):
                weighted = shares * np.array(self.weights)
                shares = weighted / weighted.sum() if weighted.sum() else shares
            there = shares[shares > 0]
            return float(-factor * (there * np.log(there)).sum())
        if not self.rows:
            return math.nan
        if self.some and all(one.shape[1] == self.some[0].shape[1] for one in self.some):
            values = torch.cat(self.some)
            off = values - values.median(0).values
            smooth = term.criterion == "smooth error"
            return float(factor * float(F.smooth_l1_loss(off, torch.zeros_like(off)) if smooth else off.abs().mean()))
        mean = self.sums / self.rows
        if term.criterion == "squared error":
            return float(factor * (self.squares / self.rows - mean**2).clip(0).mean())
        if term.criterion.startswith("binary"):
            part = mean.clip(1e-9, 1 - 1e-9)
            return float(-factor * (part * np.log(part) + (1 - part) * np.log(1 - part)).mean())
        return math.nan


class KeptBatch(NamedTuple):
    """One batch of the training, and its loss as a function of output and target."""

    step: int
    inputs: Any
    target: Tensor
    loss: Any


class HeldParameters(NamedTuple):
    """What is known of parameters and optimizers; see `records.clues`."""

    groups: tuple[GroupClues, ...] = ()
    hooked: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()
    numbers: tuple[int, ...] = (0, 0, 0)


def _aside(method: Callable[..., None]) -> Callable[..., None]:
    """An error of the clues costs the clues from there on, and not the watch."""

    @wraps(method)
    def guarded(collector: ClueCollector, *args: Any, **kwargs: Any) -> None:
        try:
            method(collector, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is
            collector.active = False
            note(error)

    return guarded


class ClueCollector:
    """Collects the clues of one watch.

    Args:
        index: the modules and parameters.
        steps: whose optimizers are asked.
    """

    def __init__(self, index: WatchIndex, steps: Steps) -> None:
        self._index, self._steps = index, steps
        self.active = not index.distribution.communicates
        self.looks = self._next_loss = 0
        self._reads, self._read_at = True, 0
        self._step = 0
        self._made: dict[Any, str] = {}
        self._through: dict[str, str] = {}  # by a module that is linear without weights of its own mixing features, what it took
        self._batch: list[Tensor] = []
        self._inputs: dict[str, InputPool] = {}
        self._losses: dict[str, LossPool] = {}
        self._modules: dict[tuple[str, str], dict[str, Any]] = {}
        self._ids: dict[str, set[int]] = {}  # by embedding, which rows were looked up
        self._carried = self._graded = self._in_eval = 0
        self._brought: dict[str, Tensor] = {}  # of the gradients, as backward() has left them
        self._tasks: set[int] = set()
        self._slope: tuple[int, dict[str, tuple[Tensor, Tensor | None]]] = (-1, {})
        self._arrivals = self._up = self._down = 0
        self._ratios: list[float] = []
        self._scale = 1.0
        self._carried_now = False
        self._turned = self._true = self._zeroed = 0
        self._read_in_step = (-1, 0)
        self._met = 0  # modules with trained parameters that have given something in this pass
        self._walks: Counter[str] = Counter()  # by the place of a loss, how often its whole graph was looked at
        self._reached: set[int] = set()
        self._pass = 0
        self._pair = PairClues()
        self._pairs = Pairs()
        self._relations: Relations | None = None
        self._given: Any = None
        self._output: Any = None
        self.kept: KeptBatch | None = None
        self._held = HeldParameters()
        self._told: HeldParameters | None = None  # in the end
        self._before: list[Tensor] = []
        self._after: list[Tensor] = []
        self._compared = -2
        self._put_back = self._kept = 0

    # ---- in a look

    @_aside
    def begin(self, step: int) -> None:
        """A step is looked at."""
        self._step, self._made, self._batch, self._met, self._brought, self._tasks = step, {}, [], 0, {}, set()
        self._reads = self.looks < DENSE or step >= self._read_at + RARELY
        self._read_at = step if self._reads else self._read_at
        self.looks += 1
        if self.active and self._reads:
            without_autograd(self._look_at_rows)
            without_autograd(self._ask_direction)
            if self.looks < SOON:
                self._held = self._take_down(closed=False)

    def end(self) -> None:
        """It is over: of its tensors nothing is kept but one batch."""
        self._made, self._batch, self._given, self._output = {}, [], None, None

    @_aside
    def takes(self, args: tuple[Any, ...]) -> None:
        """The root is called with these."""
        if self.active and self._reads:
            self._met = 0
            self._pass += 1
            self._given = args, {}
            self._enter(args)

    @_aside
    def took(self, kwargs: dict[str, Any]) -> None:
        """And it was called with these by name."""
        if self.active and self._reads and kwargs:
            self._given = (self._given or ((), {}))[0], kwargs
            self._enter(kwargs)

    def _enter(self, given: Any) -> None:
        for name, thing, _ in leaves(given)[:TENSORS]:
            if isinstance(thing, Tensor) and _is_readable(thing) and not (thing.requires_grad and thing.grad_fn is not None):
                self._batch.append(thing)
                if self._reads:
                    self._inputs.setdefault(name, InputPool(name)).add(thing.detach(), self._step)

    @_aside
    def gave(self, member: Member, module: Module, args: tuple[Any, ...], kwargs: Any, output: Any) -> None:
        """A module of the model gave something in a training pass."""
        if not (self.active and self._reads):
            return
        taken = args[0] if args and isinstance(args[0], Tensor) else None
        enabled = torch.is_grad_enabled()
        if not member.path:
            self._output = output
        for _, one, _ in leaves(output)[:TENSORS]:
            if isinstance(one, Tensor) and one.grad_fn is not None:
                self._made.setdefault(one.grad_fn, member.path)
        held = [one for one in (stores.contents(module).get("_parameters") or {}).values() if one is not None]
        holds = bool(held)
        if taken is not None and type(taken) in PLAIN:
            if not enabled and holds:
                self._note(member.path, "ungraded")
            elif enabled and self._met and holds and _is_cut(taken, self._batch):
                self._note(member.path, "cut", whole=_is_whole(taken), dtype=str(taken.dtype)[6:])
        if taken is not None and taken.grad_fn is not None and name_of(taken.grad_fn) in STEPLIKE:
            self._note(member.path, "steplike", function=name_of(taken.grad_fn))
        if taken is not None and _is_linear(module):
            self._through[member.path] = self.made_by(taken) or ""
        self._met += any(one.requires_grad for one in held)
        if holds and taken is not None and taken.is_floating_point() and _is_readable(taken):
            if not taken.any():
                self._note(member.path, "zero input", after=self.made_by(taken) or "")
            elif (member.path, "zero input") in self._modules:
                self._note(member.path, "zero input", other=True)
        tell = next((tell for kind, tell in _TELLERS if isinstance(module, kind)), None)
        if tell is not None:
            for kind, facts in tell(self, module, args, kwargs or {}, output):
                self._note(member.path, kind, **facts)

    def _note(self, path: str, kind: str, **facts: Any) -> None:
        known = self._modules.setdefault((path, kind), {"looks": 0})
        if "ids" in facts:
            met = self._ids.setdefault(path, set())
            ids = facts.pop("ids").flatten()
            met.update(ids[:4096].tolist())
            facts |= {"seen": len(met), "total": known.get("total", 0) + ids.numel()}
        known["calls"] = known.get("calls", 0) + 1 if known.get("pass") == self._pass else 1
        known.update(facts, step=self._step)
        known["pass"] = self._pass
        known["looks"] += 1

    def made_by(self, tensor: Tensor) -> str | None:
        """The module that gave a tensor."""
        return self._made.get(tensor.grad_fn) if tensor.grad_fn is not None else None

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
        if whole and not self._reads and step < self._next_loss:
            return
        if step >= self._next_loss:
            self._next_loss = 2 * step if step >= DENSE else DENSE
        if not self.active or type(tensor) not in PLAIN or (name not in self._losses and len(self._losses) >= PLACES):
            return
        known, count = self._read_in_step
        self._read_in_step = step, count + 1 if known == step else 1
        if known == step and count >= PASSES:
            return
        with without_torch_function():
            self._ask_carried()
            root = self._root()
            self._in_eval += root is not None and not root.training
            found = loss_graph.read(tensor, self._made)
            if not found:
                return
            pool = self._losses.setdefault(name, LossPool(name))
            found[0] = self._with_target(found[0])
            times = self._scale = 1.0 if scale is None or is_far(scale) else float(scale)
            without_autograd(partial(pool.add, tensor, found, times, numbers=True, whole=whole and self._reads))
            if whole and self._reads and self._walks[name] < SOON:
                self._walks[name] += 1
                without_autograd(self._walk, tensor)
            if whole and len(found) == 1 and isinstance(self._output, Tensor):
                without_autograd(self._keep, found[0], float(tensor.detach()) if not is_far(tensor) else math.nan)
            if self._reads and whole and pool.looks <= DENSE and self._batch and found[0].target is not None:
                without_autograd(self._compare, self._batch[0].detach(), found[0].target.detach())

    def _walk(self, loss: Tensor) -> None:
        """Look at the whole graph of a loss: attention, dropout, and weights that the model does not know."""
        met = [*walk(loss.grad_fn, self._made)]
        for one in attention_graph.attentions(met):
            facts = attention_clues.facts(one, self._batch)
            begin = self._modules.get((one.path, "weights"), {}).get("begin", facts.get("sharp", 0.0))
            self._note(one.path, "weights", **facts, begin=begin)
        for node, taker, p in dropout_graph.dropped(met):
            path = self._made[node] if node in self._made else taker.rpartition(".")[0]  # of a function: around what takes it
            if p >= self._modules.get((path, "dropped"), {}).get("p", 0.0):
                self._note(path, "dropped", p=p)
        held = {id(one) for optimizer in self._steps.optimizers for group in optimizer.param_groups for one in group["params"]}
        known = {id(tensor) for _, _, tensor in self._index.present()}
        ends = [node.variable for node, _ in met if name_of(node) == "AccumulateGrad"]
        self._reached.update(id(one) for one in ends if id(one) in known)
        loose = [one for one in ends if id(one) not in held | known]
        root = self._root()
        for path, registered in places(root, loose) if root is not None and loose else ():
            self._note(path, "loose", registered=registered)

    def _with_target(self, found: loss_graph.Found) -> loss_graph.Found:
        """The target of an error by hand, of which the graph has saved the difference alone."""
        output, difference = self._output, saved(found.node, "self")
        if not isinstance(output, Tensor) and isinstance(difference, Tensor):  # the model gives several: the one that fits
            fitting = [one for _, one, _ in leaves(output) if isinstance(one, Tensor) and one.numel() == difference.numel()]
            output = fitting[0] if len(fitting) == 1 else None
        if found.output is not None or not isinstance(output, Tensor) or type(output) not in PLAIN:
            return found
        if found.term.criterion == "likelihood" and _is_readable(output):
            return found._replace(**written_criteria.picked(output, found.passed)._asdict(), ignored=written_criteria.LEFT_OUT)
        if found.term.criterion == "divergence" and {name_of(one) for one in found.way} <= {"Mul"} and output.shape == found.term.compared:
            return found._replace(output=output.detach(), target=written_criteria.divergence(found.node))
        if not found.term.criterion.endswith("error") or not isinstance(difference, Tensor) or output.numel() != difference.numel():
            return found
        if any(name_of(one) not in SHAPES for one in found.way):
            return found
        given = output.detach().reshape(difference.shape)
        sub = next((one for one in children(found.node) if name_of(one) in ("Sub", "Rsub")), None)
        if sub is None:
            return found
        target = given - difference.detach() if sub.next_functions[0][0] is not None else given + difference.detach()
        return found._replace(output=given, target=target)

    def _keep(self, found: loss_graph.Found, value: float) -> None:
        """Keep a copy of this batch and its loss, where that can be computed once more."""
        if self._given is None or found.target is None or (self.kept is not None and self._step < 2 * self.kept.step):
            return
        args, kwargs = self._given
        tensors = [one for _, one, _ in leaves((args, kwargs)) if isinstance(one, Tensor)]
        if sum(one.numel() * one.element_size() for one in (*tensors, found.target)) > HELD or not all(map(_is_readable, tensors)):
            return
        loss = criterion.rebuilt(found, found.way, self._output, value)
        if loss is not None and (not kwargs or not args):
            inputs = _copied(kwargs) if kwargs else _copied(args[0]) if len(args) == 1 else _copied(args)
            self.kept = KeptBatch(self._step, inputs, found.target.detach().clone(), loss)

    def _root(self) -> Module | None:
        return next((member.module() for member in self._index.members.values() if not member.path), None)

    @_aside
    def graded(self, task: int) -> None:
        """Gradients flow: when they have arrived, some of them are taken down."""
        if self.active and self._reads and task not in self._tasks:
            self._tasks.add(task)
            after_backward(self._arrived)

    @_aside
    def _arrived(self) -> None:
        self._arrivals += 1
        self._brought = without_autograd(self._gradients)
        self._slope = self._step, without_autograd(self._weights)

    def _gradients(self) -> dict[str, Tensor]:
        """Some numbers of the gradients of some parameters, as they are now."""
        found: dict[str, Tensor] = {}
        weights = [one for one in self._index.weights if one.trainable and one.owned]
        for weight in weights[:: max(1, len(weights) // GRADIENTS)]:
            tensor = weight.tensor()
            gradient = tensor.grad if tensor is not None else None
            if gradient is not None and _is_readable(gradient):
                flat = gradient.detach().flatten()
                found[weight.path] = flat[:: max(1, len(flat) // PART)].double()
        return found

    def _weights(self) -> dict[str, tuple[Tensor, Tensor | None]]:
        """Some numbers of some parameters as they are now, and those of their gradients."""
        weights = [one for one in self._index.weights if one.trainable]
        found = {}
        for weight in weights[:: max(1, len(weights) // GRADIENTS)]:
            tensor = weight.tensor()
            if tensor is not None and _is_readable(tensor):
                apart, slope = max(1, tensor.numel() // PART), tensor.grad
                there = slope.detach().flatten()[::apart].double() if slope is not None and _is_readable(slope) else None
                found[weight.path] = tensor.detach().flatten()[::apart].double(), there
        return found

    def _ask_direction(self) -> None:
        """Whether the weights went up the slope that the step before has seen, or down."""
        (step, before), self._slope = self._slope, (-1, {})
        now = self._weights() if before and step == self._step - 1 else {}
        some = [(now[path][0] - here, slope) for path, (here, slope) in before.items() if path in now and slope is not None]
        rises = sum(float(moved @ slope) for moved, slope in some if len(moved) == len(slope))
        self._up += rises > 0
        self._down += rises < 0

    def _compare_gradients(self) -> None:
        """Whether gradients at the step are those that backward() brought."""
        brought, self._brought = self._brought, {}
        some = {path: one for path, one in brought.items() if float(one.norm()) > 0 and bool(one.isfinite().all())}
        if not some:
            return
        now = self._gradients()
        there = {path: now[path] for path in some if path in now and bool(now[path].any())}
        self._zeroed += not there
        known = [(one, some[path]) for path, one in there.items() if bool(one.isfinite().all())]
        if known:
            self._ratios.append(float(np.median([float(one.norm() / other.norm()) for one, other in known])) * self._scale)
            alike = float(np.median([float(one @ other / (one.norm() * other.norm())) for one, other in known]))
            cut = all(_is_cut_off(one) and bool((one * other >= 0).all()) for one, other in known)
            self._turned += alike < ALIKE and not cut
            self._true += alike >= ALIKE or cut

    def _ask_carried(self) -> None:
        """Whether there are gradients before ``backward()`` brings new ones."""
        weight = next((tensor for _, weight, tensor in self._index.present() if weight.trainable and weight.owned), None)
        if weight is not None and not is_far(weight):
            self._graded += 1
            self._carried_now = weight.grad is not None and bool(without_autograd(weight.grad.any))
            self._carried += self._carried_now

    def _compare(self, inputs: Tensor, target: Tensor) -> None:
        """Does an input tell the target by itself?"""
        if not _is_readable(target) or not inputs.dim() or not target.dim() or len(inputs) != len(target):
            return
        self._pairs.add(inputs, target)
        if target.numel() == inputs.numel():
            target = target.reshape(inputs.shape)
            if inputs.is_floating_point():  # as of an autoencoder: each number tells itself
                if inputs.dim() == 3 and inputs.shape[1] > 1:
                    self._pair = PairClues(_alike(inputs, target), _alike(inputs[:, 1:], target[:, :-1]))
                return
        for one in self._batch[1:]:
            if one.shape == target.shape and one.dtype == target.dtype and one.dim() > 1 and bool((one == target).all()):
                self._pair = PairClues(equal=1.0, beside=True)
                return
        if not inputs.is_floating_point() and not target.is_floating_point() and inputs.shape == target.shape and inputs.dim() == 2:
            moved = _alike(target[:, :-1], inputs[:, 1:]) if inputs.shape[1] > 1 else 0.0
            self._pair = PairClues(_alike(inputs, target), moved, padded=_padded(inputs, target))
        elif inputs.is_floating_point() and len(inputs) >= ENOUGH and inputs[0].numel() <= FEATURES:
            feature, told = _telling(inputs.double().reshape(len(inputs), -1), target)
            if self._pair.feature in (-1, feature) and inputs[0].numel() > 2:
                self._pair = PairClues(feature=feature, told=told, features=inputs[0].numel())

    # ---- steps

    @_aside
    def step_begins(self) -> None:
        """The optimizer is about to make its step."""
        if not (self.active and self._reads):
            return
        self._compare_gradients()
        now = self._probes()
        if self._compared == self._step - 1 and self._before and len(now) == len(self._before):
            stepped = sum(float((after - before).square().sum()) for after, before in zip(self._after, self._before, strict=True))
            left = sum(float((one - before).square().sum()) for one, before in zip(now, self._before, strict=True))
            self._put_back += stepped > 0 and left < BACK * stepped
            self._kept += stepped > 0 and left >= BACK * stepped
        self._before = now

    @_aside
    def step_ended(self) -> None:
        """It has made it."""
        if self.active and self._reads:
            self._after, self._compared = self._probes(), self._step

    def _probes(self) -> list[Tensor]:
        found = []
        for weight in self._index.weights:
            tensor = weight.tensor() if weight.trainable and weight.owned else None
            if tensor is not None and _is_readable(tensor) and not is_far(tensor):
                found.append(tensor.detach().flatten()[:PART].clone())
                if len(found) == PROBES:
                    break
        return found

    # ---- what there is

    def _look_at_rows(self) -> None:
        """Whether all units of a layer have the same weights, or treat all that they take alike."""
        for _, weight, tensor in self._index.present():
            if tensor.dim() < 2 or len(tensor) < 2 or not tensor.requires_grad or not _is_readable(tensor):
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
            self._relations = without_autograd(self._pairs.relations) if stuck else Relations()
        return self._relations

    def record(self, accepted: dict[str, int], scaled: tuple[int, int], *, closed: bool) -> Clues:
        """All of it.

        Args:
            closed: whether the watch has ended.
            accepted: the names of losses of this model, and how often ``backward()`` was called on each.
            scaled: how many steps, and clippings, met gradients that a scaler had multiplied.
        """
        if closed and self._told is None:
            self._told = self._held = self._take_down(closed=True)
        held, losses = self._held, tuple(pool.clues() for name, pool in self._losses.items() if name in accepted)
        loop = LoopClues(
            sum(accepted.values()),
            self._graded,
            self._carried,
            self._put_back,
            self._kept,
            held.hooked,
            (self._turned, self._true, self._zeroed),
            float(np.median(self._ratios)) if self._ratios else math.nan,
            *scaled,
            held.shared,
            tuple(type(one).__name__ for one in self._steps.optimizers),
            self._in_eval,
            held.twice,
            held.uncounted,
            self._arrivals,
            (self._up, self._down),
        )
        return Clues(
            losses,
            tuple(pool.clues() for pool in self._inputs.values()),
            self._pair,
            self._related(losses) if closed else Relations(),
            held.groups,
            loop,
            tuple(ModuleClues(path, kind, dict(facts)) for (path, kind), facts in self._modules.items()),
            frozenset(weight.path for _, weight, tensor in self._index.present() if id(tensor) in self._reached),
            tuple(self._walks[name] for name in self._losses if name in accepted),
            *held.numbers,
        )

    def _take_down(self, *, closed: bool) -> HeldParameters:
        """What is known of parameters and optimizers: at the first looks, and in the end."""
        weights = [(weight, tensor) for _, weight, tensor in self._index.present()]
        many: Counter[int] = Counter()
        for optimizer in self._steps.optimizers:
            many.update({id(tensor) for group in optimizer.param_groups for tensor in group["params"]})
        frozen = [tensor for _, tensor in weights if not tensor.requires_grad]
        fresh = [tensor for tensor in frozen if closed and without_autograd(_is_fresh, tensor)]
        return HeldParameters(
            tuple(self._groups({id(tensor): weight.path for weight, tensor in weights})),
            tuple(weight.path for weight, tensor in weights if _has_hooks(tensor))[:16],
            tuple(weight.path for weight, tensor in weights if many[id(tensor)] > 1)[:16],
            self._twice() if closed else (),
            self._uncounted() if closed else (),
            (sum(tensor.numel() for _, tensor in weights), *(sum(one.numel() for one in some) for some in (frozen, fresh))),
        )

    def _uncounted(self) -> tuple[str, ...]:
        """Batch norms that have not taken in a single batch, though they should."""
        root = self._root()
        found = []
        for path, module in root.named_modules() if root is not None else ():
            tracked = module.num_batches_tracked if isinstance(module, _BatchNorm) else None
            if isinstance(tracked, Tensor) and not is_far(tracked) and is_there(tracked) and not int(tracked):
                found.append(path)
        return tuple(found[:8])

    def _twice(self) -> tuple[str, ...]:
        """The places of a module with parameters, or of a parameter in one list, that stands in several of them."""
        root = self._root()
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
        for optimizer in self._steps.optimizers:
            for group in optimizer.param_groups:
                mine = [paths[id(tensor)] for tensor in group["params"] if id(tensor) in paths]
                yield GroupClues(
                    type(optimizer).__name__,
                    _number(group.get("lr")),
                    _number(group.get("initial_lr")),
                    _number(group.get("momentum") or (group.get("betas") or (0.0,))[0]),
                    _number(group.get("weight_decay") or 0.0),
                    type(optimizer).__name__ == "AdamW" or bool(group.get("decoupled_weight_decay")),
                    bool(group.get("maximize")),
                    sum(tensor.numel() for tensor in group["params"]),
                    tuple(mine[:16]),
                )


# ---- single modules


Told = Iterator[tuple[str, dict[str, Any]]]


def _dropout(_: ClueCollector, module: Any, *__: Any) -> Told:
    if module.training:
        yield "dropout", {"p": float(module.p)}


def _norm(collector: ClueCollector, module: Any, args: tuple[Any, ...], *_: Any) -> Told:
    taken = args[0] if args else None
    if not module.training or not isinstance(taken, Tensor) or taken.dim() < 2:
        return
    facts: dict[str, Any] = {
        "values": taken.numel() // max(taken.shape[1], 1),
        "samples": len(taken),
        "momentum": -1.0 if module.momentum is None else module.momentum,
    }
    if module.num_batches_tracked is not None and not is_far(module.num_batches_tracked):
        facts["tracked"] = int(module.num_batches_tracked)
    if module.running_mean is not None and _is_readable(taken) and not is_far(taken) and collector._reads:
        with torch.no_grad():
            other = [i for i in range(taken.dim()) if i != 1]
            away = (taken.detach().float().mean(other) - module.running_mean).abs() / (module.running_var + 1e-12).sqrt()
            facts["away"] = float(away.max())
    yield "norm", facts


def _embedding(collector: ClueCollector, module: Any, args: tuple[Any, ...], *_: Any) -> Told:
    ids = args[0] if args else None
    if not isinstance(ids, Tensor) or not ids.numel() or is_far(ids) or not collector._reads:
        return
    if module.num_embeddings <= TOKENS:
        yield "embedding rows", {"rows": module.num_embeddings, "ids": ids}
    if module.padding_idx is None:
        return
    padded = ids == module.padding_idx
    share = float(padded.float().mean())
    inner = 0.0
    if ids.dim() > 1 and ids.shape[1] > 1 and share:
        real = ~padded
        after = real.flip(1).cumsum(1).flip(1) > 0  # a real token comes later
        before = real.cumsum(1) > 0
        inner = float((padded & after & before).float().sum() / padded.float().sum())
    elif ids.dim() == 1 and share:
        inner = 1.0  # single ones: no sequence is filled up
    yield "embedding", {"padding": int(module.padding_idx), "share": share, "inner": inner}


def _attention(collector: ClueCollector, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *_: Any) -> Told:
    mask = kwargs.get("attn_mask")
    padding = kwargs.get("key_padding_mask")
    query, key = args[0], args[1] if len(args) > 1 else args[0]
    facts: dict[str, Any] = {
        "batch_first": bool(module.batch_first),
        "shape": tuple(query.shape),
        "itself": query is key,
        "masked": mask is not None,
    }
    if isinstance(mask, Tensor) and not is_far(mask) and mask.dim() >= 2:
        closed = mask if mask.dtype == torch.bool else mask == -math.inf
        plane = closed.reshape(-1, *closed.shape[-2:])[0]
        facts["future"] = float(plane.triu(1).float().sum() / max(plane.shape[0] * (plane.shape[1] - 1) / 2, 1))
        facts["past"] = float(plane.tril(-1).float().sum() / max(plane.shape[0] * (plane.shape[1] - 1) / 2, 1))
    if kwargs.get("is_causal"):
        facts.setdefault("future", 1.0)
    if isinstance(padding, Tensor) and not is_far(padding):
        closed = padding if padding.dtype == torch.bool else padding == -math.inf
        facts["padded"] = float(closed.float().mean())
        ids = next((one for one in collector._batch if one.shape == closed.shape and not one.is_floating_point()), None)
        if ids is not None:
            open_ids, shut = ids[~closed], ids[closed]
            facts["shut"] = _kinds(shut).numel()
            common = open_ids.mode().values if open_ids.numel() else ids.new_tensor(-1)
            facts["common"] = float((open_ids == common).double().mean()) if open_ids.numel() else 0.0
            facts["hidden"] = float((shut == common).double().mean()) if shut.numel() else 0.0
    yield "attention", facts


def _recurrent(_: ClueCollector, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *__: Any) -> Told:
    taken = args[0]
    if isinstance(taken, Tensor):
        state = args[1] if len(args) > 1 else kwargs.get("hx")
        yield (
            "recurrent",
            {
                "batch_first": bool(module.batch_first),
                "shape": tuple(taken.shape),
                "both": bool(module.bidirectional),
                "stateless": state is None,
                "mode": str(module.mode),
                "in": int(module.input_size),
                "out": int(module.hidden_size),
            },
        )


def _cell(_: ClueCollector, __: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *___: Any) -> Told:
    given = args[1] if len(args) > 1 else kwargs.get("hx")
    state = given[0] if isinstance(given, tuple) else given
    yield "cell", {"stateless": not isinstance(state, Tensor), "cut": isinstance(state, Tensor) and state.grad_fn is None}


def _linear(collector: ClueCollector, module: Any, args: tuple[Any, ...], _: Any, output: Any) -> Told:
    taken = args[0] if args else None
    maker = collector.maker(taken) if isinstance(taken, Tensor) else ""
    given = getattr(module, "in_features", getattr(module, "in_channels", 0))
    sizes = {}
    if isinstance(taken, Tensor) and isinstance(output, Tensor) and taken.dim() and output.dim() and len(taken) and len(output):
        sizes = {"taken": taken.numel() // len(taken), "given": output.numel() // len(output)}
    if isinstance(module, nn.Conv1d) and isinstance(taken, Tensor) and isinstance(output, Tensor):
        pad = saved(taken.grad_fn, "pad") if taken.grad_fn is not None and name_of(taken.grad_fn) == "ConstantPadNd" else None
        if isinstance(pad, (tuple, list)) and len(pad) >= 2:
            sizes["ahead"] = max(int(pad[1]), 0) if pad[1] < 2**32 else 0
    if isinstance(module, nn.Conv1d) and isinstance(taken, Tensor) and isinstance(output, Tensor) and not sizes.get("ahead"):
        as_long = taken.shape[-1] == output.shape[-1] and module.stride[0] == 1
        sizes["ahead"] = module.dilation[0] * (module.kernel_size[0] - 1) // 2 if as_long and module.padding != (0,) else 0
    yield (
        "linear",
        {
            **sizes,
            "after": maker,
            "in": int(given),
            "out": int(getattr(module, "out_features", getattr(module, "out_channels", 0))),
            "bias": module.bias is not None,
        },
    )


_TELLERS: tuple[tuple[Any, Any], ...] = (
    (_DropoutNd, _dropout),
    (_BatchNorm, _norm),
    ((nn.Embedding, nn.EmbeddingBag), _embedding),
    (nn.MultiheadAttention, _attention),
    (nn.RNNBase, _recurrent),
    (nn.RNNCellBase, _cell),
    ((nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), _linear),
)


def _is_linear(module: Module) -> bool:
    """Whether a module passes on what it takes, at most scaled and shifted."""
    slope = getattr(module, "negative_slope", None)
    return isinstance(module, (nn.Identity, nn.Flatten, _DropoutNd, _BatchNorm)) or slope == 1


# ---- tensors


def _is_readable(tensor: Tensor) -> bool:
    """Whether its numbers lie here, all of them, and are numbers."""
    return (
        type(tensor) in PLAIN
        and not is_far(tensor)
        and is_there(tensor)
        and not tensor.is_complex()
        and tensor.layout is torch.strided
        and tensor.numel() > 0
    )


def _told_apart(some: Tensor) -> Tensor:
    """A number for each sample, which is that of an equal one."""
    if not some.dim():
        return some.double().reshape(1)
    rows = some.reshape(len(some), -1)[:ROWS].double()
    return rows @ torch.arange(1, rows.shape[1] + 1, dtype=torch.float64).mul_(1.61803398875).sin_()


def _is_fresh(tensor: Tensor) -> bool:
    """Whether weights are spread as PyTorch's own initialization draws them: evenly up to a bound, or normally with a deviation of 1."""
    if not _is_readable(tensor) or tensor.dim() < 2 or tensor.numel() < 16:
        return False
    values = tensor.detach().double()
    bound = 1 / math.sqrt(tensor[0].numel())
    std, most = float(values.std()), float(values.abs().max())
    return (most <= 1.001 * bound and abs(std * math.sqrt(3) / bound - 1) < 0.15) or (
        abs(std - 1) < 0.1 and abs(float(values.mean())) < 0.1
    )


def _kinds(values: Tensor) -> Tensor:
    """The different ones."""
    found: Tensor = torch.unique(values)
    return found


def _some(tensor: Tensor) -> Tensor:
    """The first samples of a large one."""
    if tensor.numel() <= MOST or not tensor.dim():
        return tensor
    return tensor[: max(1, MOST * len(tensor) // tensor.numel())]


def _copied(thing: Any) -> Any:
    if isinstance(thing, Tensor):
        return thing.detach().clone()
    if isinstance(thing, dict):
        return {name: _copied(one) for name, one in thing.items()}
    return type(thing)(map(_copied, thing)) if type(thing) in (tuple, list) else thing


def _is_cut(taken: Tensor, batch: list[Tensor]) -> bool:
    """Whether a tensor without a gradient is no part of the batch, and no state that begins at zero."""
    if not taken.is_floating_point() or taken.requires_grad or any(taken is one for one in batch):
        return False
    rooms = {one.untyped_storage().data_ptr() for one in batch if _is_readable(one)}
    return not _is_readable(taken) or (taken.untyped_storage().data_ptr() not in rooms and bool(taken.any()))


def _is_cut_off(gradient: Tensor) -> bool:
    """Whether all numbers have one size, as clipping each of them makes it."""
    sizes = gradient[gradient != 0].abs()
    return len(sizes) > 2 and float(sizes.max()) < 1.001 * float(sizes.min())


def _is_whole(taken: Tensor) -> bool:
    return _is_readable(taken) and bool((taken == taken.round()).all()) and bool(taken.any())


def _alike(one: Tensor, other: Tensor) -> float:
    """The share of the same numbers."""
    same = one.isclose(other, rtol=1e-4, atol=1e-5) if one.is_floating_point() else one == other
    return float(same.double().mean())


def _padded(inputs: Tensor, target: Tensor) -> float:
    """The share of targets that are the same token as all inputs from there on: padding, where sequences end at different places."""
    token = inputs[:, -1].mode().values
    ends = (inputs == token).flip(1).cumprod(1).flip(1).bool()
    lengths = ends.sum(1)
    return float(((target == token) & ends).double().mean()) if bool(lengths.min() != lengths.max()) else 0.0


def _telling(inputs: Tensor, target: Tensor) -> tuple[int, float]:
    """The feature that tells the target best by itself, and which part of its variance."""
    answers = target.double().reshape(len(target), -1)
    x = inputs - inputs.mean(0)
    if answers.shape[1] > 64:
        return -1, 0.0
    if not target.is_floating_point():
        return _telling_classes(x, answers) if answers.shape[1] == 1 else (-1, 0.0)
    y = answers - answers.mean(0)  # a leak has to tell all of it
    norms = x.square().sum(0)[:, None] * y.square().sum(0)[None]
    told = ((x.T @ y).square() / norms.clamp_min(1e-30)).nan_to_num()
    best = int(told.mean(1).argmax())
    return best, float(told.max(0).values.min())


def _telling_classes(centred: Tensor, labels: Tensor) -> tuple[int, float]:
    """The feature whose values the classes have for themselves."""
    kinds = _kinds(labels)
    if len(kinds) > len(labels) / 4:
        return -1, 0.0
    member = (labels == kinds[None]).double()
    means = (member.T @ centred) / member.sum(0)[:, None]
    told = ((member.sum(0)[:, None] * means.square()).sum(0) / centred.square().sum(0).clamp_min(1e-30)).nan_to_num()
    best = int(told.argmax())
    return best, float(told[best]) if member.shape[1] > 1 else 0.0


def _has_hooks(tensor: Tensor) -> bool:
    return bool(tensor._backward_hooks) or bool(getattr(tensor, "_post_accumulate_grad_hooks", None))


def _number(thing: Any) -> float:
    if isinstance(thing, Tensor):
        return float(thing) if thing.numel() == 1 and not is_far(thing) else math.nan
    return float(thing) if isinstance(thing, (int, float)) else math.nan
