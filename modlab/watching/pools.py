"""Numbers of inputs, outputs and targets, pooled over the looks of a watch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from modlab.inspection.entries import PLAIN
from modlab.records.clues import FREE, MOVES, RANGES, InputClues, LossClues, Numbers
from modlab.running import bounds, composed_criteria, loss_graph, pair_losses, written_criteria
from modlab.running.autograd_nodes import saved
from modlab.running.operand_graph import LAYERS
from modlab.statistics.memory import is_there
from modlab.watching.output_bounds import OutputBound
from modlab.watching.readback import is_far

DENSE = 10
"""Looks in which the numbers of batches are read, before that becomes rare."""

MOST = 1 << 17
"""Numbers of a tensor that are read: of a larger one the first samples."""

EARLY = 3
"""Looks in which a net is not much more than its first weights."""

MOSTLY = 0.9
"""Share of a class from which on nearly all are of it."""

LARGE = 8
"""Samples of a batch from which on it says something that its targets are alike."""

SEVERAL, WIDE = 4, 8
"""Numbers of a sample from which on it tells how noisy it is, and from which on its size is one."""

TOKENS = 4096
"""Tokens of a batch that are counted."""

ROWS = 256
"""Samples of a batch that are told from each other."""

GROUPS, KNOWN, CHANCE, EVEN_CHANCE = 8, 384, 40, 12
"""By a level, samples are put into so many groups; so many samples say something; and chance tells less than that over their number.

How noisy a few numbers are is itself a matter of chance: then a level that is right may tell little more, and what tells nothing has to
tell less than chance mostly does.
"""

COLOURS, BROAD = (3, 4), 64
"""Channels of images that have colours, and pixels from which on they have a texture."""

SIGMAS = 6.0
"""Standard errors that are no chance."""

CLEAR = 0.2
"""Part of what an answer that does not look at the input loses by that, which its loss has to be at least."""

FORGIVING = ("absolute error", "smooth error", "quantile error")
"""Errors whose best constant answer is one in the middle."""

FAR_OFF, A_FEW = 10.0, 0.2
"""Times the usual distance from the middle that outliers have, and the share of the targets that they are at most."""

Array = npt.NDArray[np.float64]

UNCHANGED = MOVES | {"Select", "Slice"}
"""Functions that give numbers as they are."""

SHUT = -1e6
"""A logarithm of a chance below which a class is masked: scores of minus infinity, or what stands for it, make it so small."""

ADDED_UP = 1e-2
"""How far from 0 the logarithm of a sum of chances may be, of chances in 16 bits."""

NEAR, PILE = 0.02, 0.1
"""Distance of a score from 0 or 1, and the share of those that are as near, where they pile up there."""

FEATURES = 2048
"""Features of a target that are pooled each by itself."""


def _entropy(counts: Array) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


LATEST = 3
"""Looks at targets that tell whether batches became mixed."""


SPARSE, LEVELS = 256, 16
"""Of about how many numbers of a look the kinds are counted that are not whole, and how many these may be to be levels, as of a grey."""


class Pool:
    """Numbers pooled over looks."""

    def __init__(self) -> None:
        self.count = 0
        self.total = self.squares = 0.0
        self.low, self.high = math.inf, -math.inf
        self.whole, self.levels, self.distinct = True, True, 0

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
            self.distinct = max(self.distinct, int(kinds(exact.flatten()[:4096]).numel()))
        elif self.levels:
            self.distinct = int(kinds(exact.flatten()[:: exact.numel() // SPARSE | 1]).numel())  # odd, so as not to keep to one column
            self.levels = self.distinct <= LEVELS

    def numbers(self) -> Numbers:
        """What they are."""
        if not self.count:
            return Numbers()
        mean = self.total / self.count
        return Numbers(
            mean, math.sqrt(max(self.squares / self.count - mean * mean, 0.0)), self.low, self.high, self.whole, self.distinct * self.levels
        )


def _times(ends: tuple[float, float]) -> float:
    return ends[1] / max(ends[0], 1e-30)


class InputPool:
    """One tensor of the model's call, over looks."""

    def __init__(self, name: str) -> None:
        self.name, self.dtype = name, ""
        self.shape: tuple[int, ...] = ()
        self.pool = Pool()
        self.features = self.scales = math.inf, 0.0
        self.looks = self.same = self.repeated = self.compared = 0
        self.rows: set[float] = set()
        self.known: list[int] = []  # how many of these there were after each look
        self.seen = self.apiece = self.often = 0  # samples; different ones within their own batches, and the one that is there most often
        self.tokens: Counter[int] = Counter()
        self.filling: Counter[int] = Counter()  # those that fill up the ends of rows
        self.blank: bool | None = None  # whether each row has as many that are not the most frequent one; None while there is none else
        self._last: tuple[int, float] | None = None
        self.typical, self.woven, self.smooth = math.nan, math.inf, math.nan
        self.apart = 0.0, 0.0  # of neighbours along the first and along the second dimension, squared
        self.twins: set[str] | None = None  # other inputs that were the same in each look
        self.bad = -1
        self.spoilt = 0, 0  # of the batch in which that was, how many numbers, and of how many
        self.state = False  # that the model has given in the call before
        self.asked = False  # by the loss
        self.noisy: list[Tensor] = []  # by sample: what it says, and how an input and the target differ
        self._wide = True  # those, so that their size says how noisy they are

    def add(self, tensor: Tensor, step: int) -> None:
        """Take a batch in."""
        self.shape, self.dtype = tuple(tensor.shape), str(tensor.dtype)[6:]
        some = some_of(tensor)
        self.pool.add(some)
        self.looks += 1
        if some.dim() and len(some) > 1:
            self.same += bool((some == some[:1]).all())
        if some.dim() > 1 and some.is_floating_point() and some.numel() > some.shape[1 if some.dim() == 4 else -1]:
            deviations = some.double().movedim(1 if some.dim() == 4 else -1, 0).flatten(1).std(1)
            self.features = max(self.features, (float(deviations.min()), float(deviations.max())), key=_times)
        if some.dim() > 1 and some.is_floating_point() and some[0].numel() >= WIDE and len(some) >= LARGE:
            sizes = some.double().flatten(1).std(1).sort().values
            tenth = len(sizes) // 10
            self.scales = min(self.scales[0], float(sizes[tenth])), max(self.scales[1], float(sizes[-1 - tenth]))
        if some.is_floating_point():
            sizes = some.abs()[some != 0]
            self.typical = float(sizes.median()) if sizes.numel() else math.nan
            if self.bad < 0 and _is_bad(some):
                self.bad, self.spoilt = step, (int((~some.isfinite()).sum()), some.numel())
        if some.dim() == 4 and some.is_floating_point() and some.shape[1] in COLOURS and some[0, 0].numel() >= BROAD:
            self.woven = min(self.woven, _woven(some))
        if some.dim() == 4 and some.is_floating_point() and some[0, 0].numel() >= BROAD and min(some.shape[2:]) > 1:
            self.smooth = max(_smooth(some), self.smooth, key=lambda one: (not math.isnan(one), one))
        if some.dim() == 3 and some.is_floating_point() and min(some.shape[:2]) > 1:
            first, second = (float(some.double().diff(dim=dim).square().mean()) for dim in (0, 1))
            self.apart = self.apart[0] + first, self.apart[1] + second
        sums = _told_apart(some)
        if self.looks <= DENSE or len(self.rows) <= ROWS:  # while they are few, later looks may bring more: a curriculum begins with some
            self.rows.update(sums.tolist())
            self.known.append(len(self.rows))
            self.seen += len(sums)
            alike = Counter(sums.tolist())
            self.apiece += len(alike)
            self.often += max(alike.values(), default=0)
        if not some.is_floating_point():
            self.tokens.update(some.flatten()[:TOKENS].tolist())
            self.filling.update(_ends_of_rows(some).tolist())
            blank = _has_blanks(some, max(self.tokens, key=self.tokens.__getitem__, default=-1))
            self.blank = self.blank if blank is None else blank and self.blank is not False
        total = float((sums * torch.arange(1, len(sums) + 1)).sum())  # in their order: shuffled ones are a batch of their own
        if self._last is not None and self._last[0] == step - 1:
            self.compared += 1
            self.repeated += self._last[1] == total
        self._last = step, total

    def beside(self, tensor: Tensor, others: dict[str, Tensor]) -> None:
        """Compare a batch with the inputs before it in the same call."""
        names = others if self.twins is None else self.twins & others.keys()
        self.twins = {name for name in names if _are_the_same(others[name], tensor)}

    def beside_noise(self, level: Tensor, inputs: Tensor, target: Tensor) -> None:
        """Take in how an input differs from a target of its shape, where this says one number of each sample."""
        if level.dim() != 1 or inputs.dim() < 2 or inputs.shape != target.shape or len(level) != len(inputs):
            return
        if len(self.noisy) >= DENSE or not bool((level != level[0]).any()) or bool((inputs == target).all()):
            return
        self._wide &= inputs[0].numel() >= SEVERAL
        level, x, y = level[:ROWS], inputs[:ROWS].double().flatten(1), target[:ROWS].double().flatten(1)
        share = (x * y).sum(1) / y.square().sum(1).clamp_min(1e-12)
        self.noisy.append(torch.cat([torch.stack([level.double(), (x - y).norm(dim=1), share], 1), (x - y)[:, :4], y[:, :4]], 1))

    def _tells(self) -> float:
        """How much of what the differences vary by they vary by between groups of samples of a like level."""
        if sum(map(len, self.noisy)) < KNOWN or len({one.shape[1] for one in self.noisy}) > 1:
            return math.nan
        rows = torch.cat(self.noisy)
        chance = CHANCE if self._wide else EVEN_CHANCE
        rows = rows[rows[:, 0].argsort(), 1:]
        groups = torch.stack([one.mean(0) for one in rows.tensor_split(GROUPS)])
        return float((groups.var(0) / rows.var(0).clamp_min(1e-30)).max()) - chance / len(rows)

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
            self.known[(len(self.known) - 1) // 2] / len(self.rows) if self.rows else math.nan,
            count / max(self.tokens.total(), 1),
            int(token),
            self.typical,
            min(self.twins or ("",)),
            self.bad,
            self._tells(),
            self.woven if math.isfinite(self.woven) else math.nan,
            min(self.filling[token] / count, 1.0) if count else 0.0,
            self.state,
            self.asked,
            self.apart[1] / self.apart[0] if self.apart[0] > 0 else math.nan,
            bool(self.blank),
            self.smooth,
            self.apiece / self.seen if self.seen else math.nan,
            self.often / self.seen if self.seen else math.nan,
        )


def _are_the_same(one: Tensor, other: Tensor) -> bool:
    """Whether two inputs have the same numbers; one may repeat those of each sample."""
    few, many = sorted((one, other), key=Tensor.dim)
    if few.shape != many.shape[: few.dim()]:
        return False
    repeats = few.dim() and few.numel() > 1 and few.dim() < many.dim()
    if few.dim() < many.dim() and not (repeats and bool((few != few.flatten()[0]).any())):  # as a mask of ones is
        return False
    return bool((few.reshape(*few.shape, *[1] * (many.dim() - few.dim())) == many).all())


def _smooth(images: Tensor) -> float:
    """How alike neighbours in images are, in their rows or in their columns: 0 for noise, nearly 1 for what shows something."""
    flat = images[:ROWS].double()
    flat = flat - flat.mean((2, 3), keepdim=True)
    total = float(flat.square().mean())
    pairs = flat[..., 1:] * flat[..., :-1], flat[..., 1:, :] * flat[..., :-1, :]
    return max(float(one.mean()) / total for one in pairs) if total > 0 else math.nan


def _woven(images: Tensor) -> float:
    """By how much a number is more like the one that is so many channels further than the next one, beyond what chance does."""
    flat = images[:ROWS].double().flatten(2)
    flat = flat - flat.mean(2, keepdim=True)
    total = flat.square().sum()
    beside, apart = ((flat[..., :-lag] * flat[..., lag:]).sum() / total for lag in (1, images.shape[1]))
    return float(apart - beside.clamp_min(0)) - SIGMAS / math.sqrt(flat.numel()) if total > 0 else 0.0


def _has_blanks(tokens: Tensor, blank: int) -> bool | None:
    """Whether each row has as many tokens beside a blank, which differ between rows; None where all are that one, or no rows."""
    others = tokens != blank
    if tokens.dim() != 2 or len(tokens) < 2 or not bool(others.any()):
        return None
    counts = others.sum(1)
    rest = tokens[others].view(len(tokens), -1) if bool((counts == counts[0]).all()) else tokens[:0]
    return bool((rest != rest[:1]).any())


def _is_bad(some: Tensor) -> bool:
    """Whether NaN or infinity is in it, though it does not mask with zeros and minus infinity."""
    finite = some.isfinite()
    return not bool(finite.all()) and bool((some[~finite] != -math.inf).any() or some[finite].any())


class Agreement:
    """Whether outputs go with the targets of their own samples, and not as well with those of others; asked before each step."""

    def __init__(self) -> None:
        self.total = self.squares = 0.0

    @property
    def score(self) -> float:
        """By how many standard errors of what it would be by chance."""
        return self.total / math.sqrt(self.squares) if self.squares else 0.0

    def add_numbers(self, output: Tensor, target: Tensor) -> None:
        """Take in numbers, of which each sample has one."""
        if target.dim() and output.numel() == target.numel() == len(target) >= LARGE:
            one, other = output.double().flatten(), target.double().flatten()
            self._add((one - one.mean()) * (other - other.mean()), other.std() * one.std())

    def add_classes(self, output: Tensor, target: Tensor) -> None:
        """Take in logarithms of chances, and the class of each sample."""
        if output.dim() == 2 and len(output) == target.numel() >= LARGE and 0 <= int(target.min()) <= int(target.max()) < output.shape[1]:
            some, shares = output.double(), torch.bincount(target.flatten(), minlength=output.shape[1]).double() / target.numel()
            mine = some.gather(1, target.reshape(-1, 1))[:, 0] - some @ shares
            self._add(mine, mine.std())

    def _add(self, each: Tensor, size: Tensor) -> None:
        if bool(size > 0) and bool(each.isfinite().all()):
            self.total += float((each / size).sum())
            self.squares += float((each / size).square().sum())


class Mixture:
    """What targets differ by within a batch: within all that the passes of one step bring, which may go class by class.

    Args:
        joined: what two passes bring together; `differs`: by how much that differs.
    """

    def __init__(self, joined: Callable[[Array, Array], Array], differs: Callable[[Array], float]) -> None:
        self._joined, self._differs = joined, differs
        self._steps: list[tuple[bool, float]] = []  # of each: whether all of its passes were read, and what their targets differ by
        self._step, self._whole, self._large = -1, False, False
        self._met: Array | None = None
        self._several = False

    def add(self, met: Array, step: int, *, whole: bool, large: bool) -> None:
        """Take in what a pass brings: a whole look reads all of its step, and a large one says something."""
        if self._met is not None and step == self._step:
            self._several = True
            self._met, self._large = self._joined(self._met, met), self._large or large
            return
        self._steps = self._ended()
        self._step, self._whole, self._large, self._met = step, whole, large, met

    def values(self) -> list[float]:
        """Of each step; where several passes make one, a single pass is no step."""
        return [value for whole, value in self._ended() if whole or not self._several]

    def _ended(self) -> list[tuple[bool, float]]:
        told = self._met is not None and self._large
        return [*self._steps, (self._whole, self._differs(self._met))] if told and self._met is not None else self._steps


def _joined_counts(one: Array, other: Array) -> Array:
    size = max(len(one), len(other))
    return np.pad(one, (0, size - len(one))) + np.pad(other, (0, size - len(other)))


def _moments(values: Tensor) -> Array:
    """How many, their mean, and the squares of what they are off by."""
    exact = values.double()
    mean = exact.mean()
    return np.array([exact.numel(), float(mean), float((exact - mean).square().sum())])


def _joined_moments(one: Array, other: Array) -> Array:
    total, apart = one[0] + other[0], other[1] - one[1]
    return np.array([total, one[1] + apart * other[0] / total, one[2] + other[2] + apart**2 * one[0] * other[0] / total])


def _variance(moments: Array) -> float:
    return float(moments[2] / (moments[0] - 1)) if moments[0] > 1 else math.nan


class Gains:
    """By how much the loss of late looks is below that of a constant answer on the very same targets, however few of a batch are rare."""

    def __init__(self) -> None:
        self._looks: list[tuple[int, float, Array, int]] = []  # of each: its step, its loss, how often each class came, of how many

    def add(self, step: int, loss: float, counts: Array, many: int) -> None:
        """Take in what an answer lost on average, and how often each class was asked for, or each question answered with yes."""
        if math.isfinite(loss) and len(counts) <= FEATURES and (not self._looks or len(self._looks[0][2]) == len(counts)):
            self._looks.append((step, loss, counts, many))

    def told(self, chances: Array, *, classes: bool) -> tuple[float, float]:
        """Of what an answer with these chances loses, the part that is gained; and by how many standard errors."""
        late = [one for one in self._looks if one[0] >= self._looks[-1][0] / 2]
        some = chances.clip(1e-9, 1 - 1e-9)
        yes, no = -np.log(some), -np.log(1 - some)
        constant, rare = [], 0.0
        for _, _, counts, many in late:
            share = counts / many
            constant.append(float((share * yes).sum() if classes else (share * yes + (1 - share) * no).mean()))
            rare += many - float(counts[some.argmax()]) if classes else float(np.minimum(counts, many - counts).sum())
        if len(late) < SEVERAL or rare < LARGE:
            return math.nan, math.nan
        gains = np.array(constant) - np.array([loss for _, loss, _, _ in late])
        return float(gains.sum() / sum(constant)), float(gains.mean() / (gains.std(ddof=1) / math.sqrt(len(late)) + 1e-30))


class LossPool:
    """What is known of the loss at one place, over looks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.looks = self.read = self.ordered = 0
        self.terms: tuple[Any, ...] = ()
        self.outputs, self.targets, self.first_outputs, self.first_targets = Pool(), Pool(), Pool(), Pool()
        self.counts = np.zeros(0)
        self.sums: Array = np.zeros(0)
        self.squares: Array = np.zeros(0)
        self.rows = 0
        self.kinds: set[int] = set()
        self.some: list[Tensor] = []  # targets, of errors whose best constant is the middle one
        self.mixed_numbers, self.mixed_classes = Mixture(_joined_moments, _variance), Mixture(_joined_counts, _entropy)
        self.passed = (-1, False)  # the step of the pass that is taken in, and whether all passes of that step are
        self.ignored, self.all, self.many = 0, 0, 1
        self.weights: tuple[float, ...] = ()
        self.spread = self.unnormalized = math.nan
        self.along, self.value, self.away = -1, math.nan, math.nan
        self.risks: dict[str, None] = {}
        self.varied = self.factors = (math.nan, math.nan)
        self.even = math.nan
        self.ranks: tuple[float, ...] = ()
        self.diagonal, self.masked = False, 0
        self.bend, self.margin = 1.0, math.nan
        self.perfect: list[float] = []  # of counts, by look, what a loss is that says each as it is
        self.farther: list[Tensor] = []  # of triples, in the first looks, by how much the pulled pair is farther apart
        self.goes = Agreement()
        self.gains = Gains()
        self.bounds = OutputBound(-1), OutputBound(1)
        self.chances: set[bool] = set()  # whether scores were some
        self.reach, self.pressed = (math.inf, -math.inf), 0
        self.range = bounds.Reach()

    def add(self, loss: Tensor, found: list[loss_graph.Found], scale: float, step: int, *, numbers: bool, whole: bool) -> None:
        """Take in a look at a loss that a scaler has multiplied; a whole one knows which modules gave what, and reads all of its step."""
        self.looks += 1
        self.passed = step, whole
        self.value = float(loss.detach()) / scale if not is_far(loss) else math.nan
        if whole or not self.terms:
            self.terms = tuple(replace(one.term, factor=one.term.factor / scale) for one in found[:8])
        self.risks.update(dict.fromkeys(loss_graph.risks(loss)))
        self.away = loss_graph.away_from_prior(loss)
        first = found[0]
        self.factors = _ends(self.factors, first.term.factor / scale)
        if numbers:
            self._compare(first)
        if first.target is not None and is_readable(first.target) and first.target.is_floating_point():
            given = saved(first.node, "target") is not None  # and not computed from an output that may be no number
            known = first.output is not None and bool(first.output.isfinite().all())
            bad = (given or known) and not bool(first.target.isfinite().all())
            self.risks.update({"not a number in data": None} if bad else {})
        output, target = first.output if first.output is not None else loss_graph.seen(loss), first.target
        if not numbers or output is None or not is_readable(output):
            return
        output = output.detach()
        if self.looks <= 2:
            self.first_outputs.add(some_of(output))
        self.outputs = Pool()  # of the last look alone: they change
        self.outputs.add(some_of(output))
        self.reach = min(self.reach[0], self.outputs.low), max(self.reach[1], self.outputs.high)
        if output.dim() and len(output) > 1 and output.is_floating_point():
            some = some_of(output).double()
            self.spread = float(some.std(0).mean() / (some.abs().mean() + 1e-12)) if len(some) > 1 else math.nan
            self.varied = _ends(self.varied, float(some.std(0).mean()) if len(some) > 1 else math.nan)
        if first.term.criterion == "alignment" and output.dim() == 3:
            self._add_up(output, 2)
        if target is not None and is_readable(target):
            self._take(first, output, target.detach())

    def _compare(self, found: loss_graph.Found) -> None:
        """What the term pulls and pushes, and how even the shares are that it asks for."""
        ranks = pair_losses.ranks(found.node, found.term.factor)
        if ranks is not None and len(ranks.pulled) >= LARGE:
            nearer, farther = float((ranks.pulled < ranks.pushed).double().mean()), (ranks.pulled - ranks.pushed).double()
            nearer = math.nan if ranks.drawn else nearer  # of other pairs each time
            if len(self.farther) < EARLY:
                self.farther.append(farther)
            early = torch.cat(self.farther)
            first = float(early.mean() / (early.std() / math.sqrt(len(early)) + 1e-30))
            left = float((ranks.pulled - ranks.pushed + ranks.margin).clamp_min(0).mean()) / ranks.margin if ranks.margin > 0 else math.nan
            self.ranks = (first, nearer, left)
        if found.term.criterion in ("cross-entropy", "divergence") and found.term.compared:
            shape = found.term.compared
            dim = max((one.dim for one in found.term.functions if one.name == "LogSoftmax"), default=len(shape) - 1)
            share = written_criteria.even(found.node, found.passed, shape, dim % len(shape))
            self.even = share if not (math.isnan(share) or self.even < share) else self.even

    def _take(self, found: loss_graph.Found, output: Tensor, target: Tensor) -> None:
        self.read += 1
        self.many = target.numel()
        if found.term.criterion in ("cross-entropy", "likelihood"):
            self._classes(found, output, target)
            return
        if found.term.criterion == "divergence":
            self._sums_to(float(some_of(output).double().logsumexp(-1).abs().max()))
            return
        if found.term.criterion.endswith("with logits"):
            self.pressed += _is_pressed(some_of(output))
        self.targets.add(some_of(target))
        if output.shape == target.shape and found.term.criterion.endswith("error"):
            last = next((one for one in (*found.term.functions, *found.term.ending) if one.name not in UNCHANGED), None)
            for one in self.bounds if last is None or last.name not in LAYERS else ():  # a bias bounds what dead units leave
                one.add(some_of(output), some_of(target), last.ends if last is not None else FREE)
            if found.term.giver in RANGES:
                self.range.add(some_of(output), some_of(target), RANGES[found.term.giver])
        if self.read <= 2:
            self.first_targets.add(some_of(target))
        if target.dim() and len(target):
            step, whole = self.passed
            self.mixed_numbers.add(_moments(target), step, whole=whole, large=len(target) >= LARGE)
        flat = target.double().reshape(len(target), -1)[:, :FEATURES] if target.dim() else target.double().reshape(1, 1)
        if self.looks > DENSE:  # before that it is hardly trained
            self.goes.add_numbers(output, target)
            if found.term.criterion.startswith("binary") and output.shape == target.shape and len(flat):
                given = output.double().reshape(len(flat), -1)[:, :FEATURES]
                lost = _lost(given, flat, logits=found.term.criterion.endswith("with logits"))
                self.gains.add(self.passed[0], lost, flat.sum(0).numpy(), len(flat))
        if flat.shape[1] == self.sums.shape[0] or not self.rows:
            self.sums = (self.sums if self.rows else 0) + flat.sum(0).numpy()
            self.squares = (self.squares if self.rows else 0) + flat.square().sum(0).numpy()
            self.rows += len(flat)
        if found.term.criterion in FORGIVING and len(self.some) < DENSE and flat.numel() <= MOST // DENSE:
            self.some.append(flat.clone())
        self.bend = next((one for name in ("delta", "beta") if isinstance(one := saved(found.node, name), float)), 1.0)
        weight = saved(found.node, "pos_weight")
        if isinstance(weight, Tensor) and not is_far(weight):
            self.weights = tuple(weight.detach().double().flatten()[:64].tolist())
        elif found.term.criterion == "binary cross-entropy with logits":
            self.weights = _by_class(saved(found.node, "weight"), target)
        if found.term.criterion in (composed_criteria.LOGARITHMS, composed_criteria.RATES):
            self._counts(found, output.double(), target.double())
        elif found.term.criterion == composed_criteria.SIGNS and found.output is not None:
            self.margin = _margin(saved(found.node, "self"), output, target)

    def _counts(self, found: loss_graph.Found, output: Tensor, target: Tensor) -> None:
        """What a likelihood of counts would be if each were said as it came; unless more is in the loss."""
        by_logarithm = found.term.criterion == composed_criteria.LOGARITHMS
        each = output.exp() - target * output if by_logarithm else output - target * output.log()
        many = target.numel() if found.term.reduction == "sum" else 1
        said = float(each.mean()) * found.term.factor * many
        known = math.isclose(said, self.value, rel_tol=1e-3, abs_tol=1e-5)
        self.perfect.append(float((target - torch.xlogy(target, target)).mean()) if known else math.nan)

    def _classes(self, found: loss_graph.Found, output: Tensor, target: Tensor) -> None:
        dim = 1 if output.dim() > 1 else 0
        kept = target[target != found.ignored] if found.ignored is not None else target
        self.ignored += target.numel() - kept.numel()
        self.all += target.numel()
        self.diagonal = target.dim() == 1 and target.shape == output.shape[1:] and bool((target == torch.arange(len(target))).all())
        shut = (some_of(output) < SHUT).sum(dim)
        self.masked = int(shut.max()) if bool((shut == shut.max()).all()) else 0
        if kept.numel():
            counts = torch.bincount(kept.flatten(), minlength=output.shape[dim]).double().numpy()
            if self.looks > DENSE:
                self.goes.add_classes(output, target)
                if found.term.criterion == "cross-entropy" and target.shape == output.shape[:dim] + output.shape[dim + 1 :]:
                    left_out = -100 if found.ignored is None else found.ignored
                    lost = F.nll_loss(output, target, reduction="none", ignore_index=left_out).double().sum()
                    self.gains.add(self.passed[0], float(lost) / kept.numel(), counts, kept.numel())
            self.counts = counts + (np.pad(self.counts, (0, len(counts) - len(self.counts))) if len(self.counts) <= len(counts) else 0)
            self.kinds.update(np.flatnonzero(counts).tolist()[:64])
            flat = kept.flatten()
            self.mixed_classes.add(counts, self.passed[0], whole=self.passed[1], large=len(flat) >= LARGE)
            self.ordered += (
                len(flat) > 8
                and int((counts > 0).sum()) < len(flat)
                and bool((flat.diff() >= 0).all() or (flat.diff() <= 0).all())
                and bool(flat[0] != flat[-1])
            )
        weight = saved(found.node, "weight")
        if isinstance(weight, Tensor) and not is_far(weight):
            self.weights = tuple(weight.detach().double().flatten()[:1024].tolist())
        self._add_up(output, dim)

    def _add_up(self, output: Tensor, dim: int) -> None:
        """How far the chances of the classes, and those along other dimensions, are from adding up to 1."""
        some = some_of(output).double()  # of a large one, along the classes alone: the other sums need all of it
        dims = range(output.dim()) if output.numel() <= MOST else (dim,)
        sums = [(int(i), float(some.logsumexp(i).abs().max())) for i in dims]
        self._sums_to(dict(sums)[dim])
        self.along = next((i for i, most in sums if i != dim and most < ADDED_UP), -1)

    def _sums_to(self, away: float) -> None:
        """How far the logarithm of the sum is from 0; outputs with NaN or infinity leave it as it was."""
        self.unnormalized = away if math.isfinite(away) else self.unnormalized

    @property
    def one_sided(self) -> bool:
        """Whether nearly all targets are of one class, or answered alike: it takes many looks to see what comes of the rare ones."""
        if self.counts.sum():
            return bool(self.counts.max() > MOSTLY * self.counts.sum())
        binary = bool(self.terms) and self.terms[0].criterion.startswith("binary")
        return binary and self.rows > 0 and bool(abs(2 * (self.sums / self.rows).mean() - 1) > 2 * MOSTLY - 1)

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
            self.first_targets.numbers(),
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
            self.varied,
            self.factors,
            self.even,
            self.ranks,
            self.diagonal,
            self._floor(),
            self.goes.score,
            *self._typical(),
            (self.bounds[0].value, self.bounds[1].value),
            self.chances == {True},
            self.reach,
            self.pressed,
            self.masked,
            self._gains(shares),
            self.range.is_short,
        )

    def _gains(self, shares: Array) -> tuple[float, float]:
        if len(shares):
            return self.gains.told(shares, classes=True)
        return self.gains.told(self.sums / self.rows, classes=False) if self.rows else (math.nan, math.nan)

    def _within(self, shares: Array) -> float:
        """How much of what the targets differ by they differ by within a batch."""
        all_of_it = _entropy(self.counts) if len(shares) else self.targets.numbers().std ** 2
        within = (self.mixed_classes if len(shares) else self.mixed_numbers).values()
        if not within or not all_of_it > 0:
            return math.nan
        return max(float(np.mean(within)), float(np.mean(within[-LATEST:]))) / all_of_it  # what is mixed in the end is mixed

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
        off = self._off()
        if off is not None and term.criterion in FORGIVING[:2]:
            return float(factor * float(self._forgiven(off).mean()))
        mean = self.sums / self.rows
        if term.criterion == "squared error":
            return float(factor * (self.squares / self.rows - mean**2).clip(0).mean())
        if term.criterion.startswith("binary"):
            part = mean.clip(1e-9, 1 - 1e-9)
            return float(-factor * (part * np.log(part) + (1 - part) * np.log(1 - part)).mean())
        if term.criterion in (composed_criteria.LOGARITHMS, composed_criteria.RATES):
            best = factor * float((mean - mean * np.log(mean.clip(1e-9))).mean())
            return float(best) if best > CLEAR * (best - self._floor()) else math.nan  # near 0 no share of it says anything
        if term.criterion == composed_criteria.SIGNS and self.targets.low == -1 and self.targets.numbers().distinct == 2:
            return float(factor * self.margin * (1 - np.abs(mean)).mean())
        return math.nan

    def _off(self) -> Tensor | None:
        """How far the targets are from the ones in the middle, of an error that forgives outliers."""
        if not self.some or any(one.shape[1] != self.some[0].shape[1] for one in self.some):
            return None
        values = torch.cat(self.some)
        return values - values.median(0).values

    def _forgiven(self, off: Tensor) -> Tensor:
        """The losses of errors."""
        smooth = bool(self.terms) and self.terms[0].criterion == "smooth error"
        return F.smooth_l1_loss(off, torch.zeros_like(off), reduction="none", beta=self.bend) if smooth else off.abs()

    def _typical(self) -> tuple[float, float, float]:
        """The target in the middle, how far from it half of them are, and which part of the loss a few make that are far off."""
        off = self._off()
        if off is None:
            return math.nan, math.nan, 0.0
        values, lost = torch.cat(self.some), self._forgiven(off)
        far = off.abs() > FAR_OFF * off.abs().median()
        few = 0 < float(far.double().mean()) < A_FEW and bool(off.abs().median() > 0)
        middle = values.median()
        return float(middle), float((values - middle).abs().median()), float(lost[far].sum() / lost.sum()) if few else 0.0

    def _floor(self) -> float:
        """The loss of an answer that is right in each sample: of counts it is not 0."""
        term = self.terms[0] if self.terms else None
        if term is None or not self.perfect:
            return 0.0
        return float(np.mean(self.perfect) * abs(term.factor) * (self.many if term.reduction == "sum" else 1))


# ---- tensors


def _is_pressed(scores: Tensor) -> bool:
    """Whether many scores stand near an end of what a sigmoid gives."""
    return float(((scores < NEAR) | (scores > 1 - NEAR)).double().mean()) > PILE


def _ends(known: tuple[float, float], value: float) -> tuple[float, float]:
    """The first value, and the last one."""
    return (value if math.isnan(known[0]) else known[0]), value


def _lost(output: Tensor, target: Tensor, *, logits: bool) -> float:
    """A binary cross-entropy, also of what is no chance."""
    yes, no = (F.logsigmoid(output), F.logsigmoid(-output)) if logits else (output.log(), (1 - output).log())
    return float(-(target * yes.clamp_min(-100) + (1 - target) * no.clamp_min(-100)).mean())


def _by_class(weight: Any, target: Tensor) -> tuple[float, ...]:
    """How many times the weight of a negative sample a positive one has, where samples are weighted by their class."""
    if not isinstance(weight, Tensor) or weight.shape != target.shape or is_far(weight):
        return ()
    sides = [weight.detach()[target == side] for side in (0.0, 1.0)]
    if any(not one.numel() or bool((one != one.flatten()[0]).any()) for one in sides):
        return ()
    negative, positive = (float(one.flatten()[0]) for one in sides)
    return (positive / negative,) if negative > 0 else ()


def _margin(left: Any, output: Tensor, target: Tensor) -> float:
    """Of a hinge: what is left of it, and what the output has taken off."""
    if not isinstance(left, Tensor) or left.numel() != output.numel() or target.numel() != output.numel():
        return math.nan
    return float((left.detach().flatten() + (target * output).flatten()).median())


def is_readable(tensor: Tensor) -> bool:
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
    weights = torch.arange(1, rows.shape[1] + 1, dtype=torch.float64).mul_(1.61803398875).sin_()
    return (rows * weights).sum(1)  # a product with a matrix rounds a row by its place


def _ends_of_rows(some: Tensor) -> Tensor:
    """What stands at the ends of rows of tokens, as often as it is repeated there."""
    if some.dim() != 2 or some.shape[1] < 2:
        return some[:0].flatten()
    some = some[: -(-TOKENS // some.shape[1])]
    return some[(some == some[:, -1:]).flip(1).cumprod(1).flip(1).bool()]


def kinds(values: Tensor) -> Tensor:
    """The different ones."""
    found: Tensor = torch.unique(values)
    return found


def some_of(tensor: Tensor) -> Tensor:
    """The first samples of a large one."""
    if tensor.numel() <= MOST or not tensor.dim():
        return tensor
    return tensor[: max(1, MOST * len(tensor) // tensor.numel())]
