"""Do inputs and targets go together? A look at pairs of them without the model, and at the ways in which they get out of step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from modlab.records.clues import PairClues, Relations
from modlab.statistics.memory import is_there
from modlab.watching.pools import kinds

NUMBERS, ROWS = 1 << 17, 512
"""Numbers of inputs, and samples, that are kept."""

FEATURES, TOKENS, CLASSES = 512, 32, 64
"""Features that are used, different tokens, and different targets."""

COLUMNS = 16
"""Numbers of a place whose products with each other are looked at."""

FARTHEST, SERIES, BATCH, POINTS, FAR = 3, 4, 64, 2048, 32
"""Places by which targets are looked for along their series, and of how many batches, samples and places of all these; and how
far away a single token may be that tells them."""

Guess = Callable[[Tensor, Tensor, Tensor], Tensor]

NEIGHBOURS = 5

TAILS = 4.5
"""Times as far from the middle as half of the targets are at most, up to which they count as they are: 3 deviations of a bell curve."""

SURE = 0.95
"""Share of the targets that are tokens of an input, from which on that is no chance."""

ITSELF = 0.05
"""Of the target's deviation, up to which a feature may differ from it."""

BETWEEN = 0.5
"""Share of rows in which places that are asked for lie between others."""

KEPT = 0.3
"""Share of the tokens that a model hides in part which it leaves."""

EACH = 8
"""Samples of yes, and of no, without which a feature that tells them apart may do so by chance."""

LEVELS = 0.5
"""How far neighbours in a row of whole numbers are apart at most, as a part of how far any two are, squared, where they are quantities."""

SMOOTH, EXACTLY = 0.8, 1 - 1e-6
"""Part of a target that the last place but one of a series tells where that goes on in it; and what its own place would tell."""

UNASKED = PairClues().column
"""Before the first look."""

WIDEST, ENOUGH = 2048, 16
"""Features of an input that are compared with the target one by one, and samples that it takes."""


class Pairs:
    """Some batches as they came, each with its targets."""

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, Tensor]] = []
        self._kept = self._rows = 0
        self._series: list[tuple[Tensor, Tensor]] = []  # of which each place has its own target

    def add(self, inputs: Tensor, target: Tensor) -> None:
        """Keep a batch, if there is room."""
        if (
            not (is_there(inputs) and is_there(target))
            or self._kept + inputs.numel() > NUMBERS
            or self._rows >= ROWS
            or len(inputs) < 4
            or target.numel() > 64 * len(target)
        ):
            return
        self._batches.append((inputs.clone(), target.clone()))
        self._kept += inputs.numel()
        self._rows += len(inputs)

    def add_places(self, inputs: Tensor, target: Tensor) -> None:
        """Keep a batch of series in which each place has its own target, if there is room."""
        if inputs.dim() != (3 if inputs.is_floating_point() else 2) or target.numel() != inputs.shape[0] * inputs.shape[1]:
            return
        if inputs.shape[1] > 2 * FARTHEST and len(self._series) < SERIES and is_there(inputs) and is_there(target):
            self._series.append((inputs[:BATCH].clone(), target.reshape(inputs.shape[:2])[:BATCH].clone()))

    def _along(self) -> dict[str, Any]:
        """By how many places targets are moved along their series, if other places tell them and their own does not."""
        if len(self._series) < SERIES or len({one.shape[1:] for one, _ in self._series}) > 1:
            return {}
        x, y = (torch.cat(some) for some in zip(*self._series, strict=True))
        told = {by: _told_from(x, y, by) for by in range(-FARTHEST, FARTHEST + 1)}
        by = max(told, key=lambda one: told[one])
        return {"by": by, "moved": told[by], "placed": told[0], **_around(x, y)}

    def relations(self, padding: int | None = None) -> Relations:
        """How much of the targets is told by the inputs in each of the ways; and by how often a token comes that is taken for padding."""
        if self._rows < 24 or any(one.shape[1:] != self._batches[0][0].shape[1:] for one, _ in self._batches):
            return Relations(**self._along())
        first = self._batches[0][0]
        found: dict[str, Any] = {}
        for name, change in _ways(first):
            found[name] = max(found.get(name, 0.0), self._skill(change))
        if len(self._batches) > 2:
            found["late"] = self._skill(lambda x, y: (x, y), batches=_one_later(self._batches))
        if not first.is_floating_point() and first.dim() == 2:
            found["counted"] = self._skill(lambda x, y: (x, y), _counts)
            if padding is not None:
                found["padding"] = self._skill(lambda x, y: (x, y), lambda x: (x == padding).double().sum(1, keepdim=True))
        if first.is_floating_point() and first.dim() == 3:
            found["counted"] = max(self._skill(lambda x, y: (x, y), one) for one in (_unordered, _mixed))
        return Relations(self._rows, **found, **self._along())

    def _skill(
        self,
        change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        features: Callable[[Tensor], Tensor] | None = None,
        batches: list[tuple[Tensor, Tensor]] | None = None,
    ) -> float:
        pairs = [change(*one) for one in batches or self._batches]
        x = (features or _features)(torch.cat([one for one, _ in pairs]))
        return _explained(x, _answers(torch.cat([two for _, two in pairs])))


def _one_later(batches: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Inputs beside the targets of the batch that came after them."""
    return [(x, y) for (x, _), (_, y) in pairwise(batches) if len(x) == len(y)]


def _explained(x: Tensor, y: Tensor | None, ways: Sequence[Guess] | None = None) -> float:
    """How much of the second half of some answers is told by features, as the first half shows it."""
    if y is None or x.shape[1] == 0 or not bool(x.isfinite().all()) or not bool(y.isfinite().all()):
        return 0.0
    half = len(x) // 2
    x, y = x - x[:half].mean(0), y - y[:half].mean(0)
    scale = x[:half].std(0)
    x = x / torch.where(scale > 1e-12, scale, torch.ones_like(scale))
    total = y[half:].square().sum()
    if not total > 0:
        return 0.0
    guesses = [guess(x[:half], y[:half], x[half:]) for guess in ways or (_ridge, _near)]
    return max(0.0, *(float(1 - (y[half:] - guess).square().sum() / total) for guess in guesses))


def _told_from(series: Tensor, target: Tensor, by: int) -> float:
    """How much of the targets what stands so many places further tells; nothing if it is the target: then that is what should be found."""
    length = series.shape[1] - 2 * FARTHEST
    x, y = series[:, FARTHEST + by : FARTHEST + by + length].flatten(0, 1), target[:, FARTHEST : FARTHEST + length].flatten()
    columns = x.reshape(len(x), -1)
    if bool(((columns == y[:, None]).double().mean(0) > KEPT).any()):
        return 0.0
    kept = torch.ones_like(y, dtype=torch.bool) if y.is_floating_point() else y >= 0  # what is less is ignored
    if int(kept.sum()) < ROWS // 2:
        return 0.0
    return _explained(_features(columns[kept][:POINTS]), _answers(y[kept][:POINTS]))


def _around(tokens: Tensor, target: Tensor) -> dict[str, Any]:
    """How much of the targets tokens tell, of few kinds, that are none of these: two of them in a row, three, seven, or one far away."""
    if tokens.is_floating_point() or target.is_floating_point() or len(kinds(tokens)) > TOKENS or bool((target < 0).any()):
        return {}
    windows, y = tokens.unfold(1, 2 * FARTHEST + 1, 1).flatten(0, 1)[:POINTS], target[:, FARTHEST:-FARTHEST].flatten()[:POINTS]
    if bool(((windows == y[:, None]).double().mean(0) > KEPT).any()):
        return {}
    some = (windows[:, FARTHEST - before : FARTHEST + 1 + after] for before, after in ((1, 0), (0, 1), (1, 1), (FARTHEST, FARTHEST)))
    near = max(_explained(_features(one), _answers(y)) for one in some)
    return {"places": len(y), "around": max(near, *(_told_by_one(tokens, target, by) for by in _distances(tokens.shape[1])))}


def _distances(length: int) -> Iterator[int]:
    """By how many places a token may be away: so many at most, or all, as the first one is from the last target."""
    return (by for by in range(1 - length, length) if abs(by) <= FAR or abs(by) == length - 1)


def _told_by_one(tokens: Tensor, target: Tensor, by: int) -> float:
    """How much of the targets the token so many places further tells."""
    x = tokens[:, max(by, 0) : tokens.shape[1] + min(by, 0)].flatten()[:POINTS]
    y = target[:, max(-by, 0) : target.shape[1] - max(by, 0)].flatten()[:POINTS]
    return _explained(_features(x[:, None]), _answers(y[:, None]), (_ridge,))


def _ways(example: Tensor) -> Iterator[tuple[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]]:
    """As they came; each target moved by one sample; the axes of the inputs put back where they were reshaped instead of moved."""
    yield "together", lambda x, y: (x, y)
    yield "before", lambda x, y: (x, y.roll(-1, 0))
    yield "after", lambda x, y: (x, y.roll(1, 0))
    if example.dim() > 1:
        yield "axes", lambda x, y: (x.reshape(*x.shape[1:], len(x)).movedim(-1, 0), y)
    for dim in range(1, example.dim() if example.dim() > 2 else 0):
        yield "swapped", partial(_swapped, dim)


def _swapped(dim: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """As if a dimension had come before the samples."""
    return x.reshape(x.shape[dim], len(x), -1).transpose(0, 1), y


def _features(x: Tensor) -> Tensor:
    flat = x.reshape(len(x), -1)
    if not x.is_floating_point():
        different = kinds(flat)
        if len(different) <= TOKENS and flat.shape[1] * len(different) <= FEATURES:
            return (flat[:, :, None] == different).double().flatten(1)
    flat = flat.double()
    return flat[:, :: -(-flat.shape[1] // FEATURES)]


def _counts(x: Tensor) -> Tensor:
    """How often each token comes in a row."""
    different = kinds(x)
    return (x[:, :, None] == different[:FEATURES]).double().sum(1)


def _unordered(series: Tensor) -> Tensor:
    """What rows of numbers are whatever their order; all that they are, if one number of a row tells where it stands."""
    if bool(_tell_places(series).any()):
        return _features(series)
    some = series.double()
    few = some[:, :, :COLUMNS]
    products = (few.mT @ few / few.shape[1]).flatten(1)
    return torch.cat([some.mean(1), products, _features(some.sort(1).values)], 1)


def _mixed(series: Tensor) -> Tensor:
    """The same with the places of each series in an order of its own: of sets, which have none, it tells as much."""
    drawn = torch.rand(series.shape[:2], generator=torch.Generator().manual_seed(0)).argsort(1)
    return _features(series.gather(1, drawn[:, :, None].expand_as(series)))


def _tell_places(series: Tensor) -> Tensor:
    """Which numbers of a row are a time: they go up in each series, or down, or are the same in all series and not at all places."""
    steps = series.diff(dim=1)
    onward = ((steps >= 0).all(1) | (steps <= 0).all(1)).all(0)
    return (onward | (series == series[:1]).all(0).all(0)) & (steps != 0).any(1).any(0)


def _answers(y: Tensor) -> Tensor | None:
    flat = y.reshape(len(y), -1)
    if not y.is_floating_point():
        different = kinds(flat)
        return (flat == different).double() if flat.shape[1] == 1 and 1 < len(different) <= CLASSES else None
    return _without_tails(flat.double())


def _without_tails(y: Tensor) -> Tensor:
    """A few numbers that are far off would be all that a line is drawn by."""
    middle = y.median(0).values
    far = TAILS * (y - middle).abs().median(0).values
    return torch.where(far > 0, y.clamp(middle - far, middle + far), y)


def _ridge(x: Tensor, y: Tensor, other: Tensor) -> Tensor:
    """A linear guess, with squares of the inputs where there are few."""
    if x.shape[1] <= 16:
        x, other = torch.cat([x, x.square() - 1], 1), torch.cat([other, other.square() - 1], 1)
    gram = x.T @ x + 0.1 * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    found: Tensor = other @ torch.linalg.solve(gram, x.T @ y)
    return found


def _near(x: Tensor, y: Tensor, other: Tensor) -> Tensor:
    nearest = torch.cdist(other, x).topk(min(NEIGHBOURS, len(x)), largest=False).indices
    return y[nearest].mean(1)


# ---- one batch


def pair_clues(batch: list[Tensor], target: Tensor, start: int, known: PairClues, looked_up: Sequence[Tensor] = ()) -> PairClues:
    """Is the target an input, the next one of it, or told by one feature alone?

    Args:
        batch: the tensors that go into the model, the first one being the input.
        target: of the loss, perhaps of all positions in one row.
        start: the first position of the output that is compared with it.
        known: of the batches before.
        looked_up: the tokens of which the model's tables gave rows.
    """
    inputs = batch[0].detach()
    tokens = [_of_tokens(one.detach(), target, start) if one.dim() == 2 and not one.is_floating_point() else None for one in batch]
    tokens = [
        replace(told, equal=0.0, unhidden=False)
        if told is not None and (told.equal > SURE or told.unhidden) and _is_changed_inside(one, looked_up)
        else told
        for one, told in zip(batch, tokens, strict=True)
    ]
    for place, told in enumerate(tokens):
        if told is not None and max(told.equal, told.moved) > SURE:
            fed = told.moved > SURE and _is_fed(batch[place].detach(), target, looked_up)
            return replace(told, equal=1.0, moved=0.0, fed=True, beside=place > 0) if fed else replace(told, beside=place > 0)
    if tokens[0] is not None:
        return replace(tokens[0], upright=_upright(batch[0]) and (known.upright or known == PairClues()))
    if batch[0].dim() == 2 and not batch[0].is_floating_point():
        known = replace(known, upright=_upright(batch[0]) and (known.upright or known == PairClues()))
    if target.numel() == inputs.numel() and inputs.is_floating_point():  # as of an autoencoder: each number tells itself
        series = inputs.dim() == 3 and inputs.shape[1] > 1
        there = target.reshape(inputs.shape).to(inputs.dtype)
        apart = max(_uneven(inputs, there), known.uneven, key=lambda one: (not math.isnan(one), one))
        if series:
            moved = max(_alike(inputs[:, 1:], there[:, :-1]), _alike(inputs[..., 1:], there[..., :-1]))
            return PairClues(_alike(inputs, there), moved, uneven=apart)
        moved = _alike(inputs[..., 1:], there[..., :-1]) if inputs.dim() == 3 else 0.0
        return replace(known, restored=_alike(inputs, there), moved=moved, uneven=apart)
    same = [one for one in batch[1:] if one.shape == target.shape and one.dtype == target.dtype and one.dim() > 1]
    if any(bool((one == target).all()) and not _is_changed_inside(one, looked_up) for one in same):
        return PairClues(equal=1.0, beside=True)
    numbers = next((one.detach() for one in batch if one.is_floating_point()), inputs)  # beside tokens, as of a table
    enough = len(numbers) == len(target) >= ENOUGH and numbers.dim() > 0 and 2 < numbers[0].numel() <= WIDEST
    column = _column(numbers, target)
    if column >= 0 and known.column in (column, UNASKED):
        return replace(known, column=column, features=numbers.shape[-1])
    known = replace(known, column=-1)
    if numbers.is_floating_point() and enough and target.numel() != numbers.numel():
        return _with_telling(numbers.double().reshape(len(numbers), -1), target, known, numbers[0].shape)
    return known


def _of_tokens(tokens: Tensor, target: Tensor, start: int) -> PairClues | None:
    """Tokens of sequences against targets: the same ones, or the next ones, whichever positions of the output were taken."""
    if tokens.shape[1] < 2:
        return None
    if target.is_floating_point():
        whole = bool((target == target.round()).all()) and not _are_levels(tokens)
        told = _of_tokens(tokens, target.long(), start) if whole else None
        return told if told is not None and told.moved > SURE else None
    if target.numel() == tokens.numel():
        there = target.reshape(tokens.shape)
        if _open(tokens, there):
            return PairClues(open=True)
        read = _read(tokens)
        moved, back = _alike(there[:, :-1], tokens[:, 1:], read[:, 1:]), _alike(there[:, 1:], tokens[:, :-1], read[:, :-1])
        down = _alike(there[:-1], tokens[1:], read[1:]) if len(tokens) > 1 else 0.0
        further = _alike(there[:, :-2], tokens[:, 2:], read[:, 2:]) if tokens.shape[1] > 2 else 0.0
        found = PairClues(_alike(tokens, there, read), moved, padded=_padded(tokens, there), back=back, down=down, further=further)
        return replace(found, unhidden=_is_unhidden(tokens, there), filled=_is_filling(tokens, there))
    if target.numel() == tokens[:, 1:].numel():  # of one position less: those from the second on
        there = target.reshape(tokens[:, 1:].shape)
        same = _alike(there, tokens[:, 1:], _read(tokens)[:, 1:])
        return PairClues(same if start else 0.0, 0.0 if start else same, padded=_padded(tokens[:, 1:], there))
    return None


def _are_levels(tokens: Tensor) -> bool:
    """Whether neighbours are near each other, as numbers: then these are quantities, in steps, and not the names of signs."""
    values, read = tokens.double(), _read(tokens)
    return float(values.diff(dim=1).square()[read[:, 1:]].mean()) < LEVELS * 2 * float(values[read].var())


def _is_changed_inside(tokens: Tensor, looked_up: Sequence[Tensor]) -> bool:
    """Whether the model looks up these tokens moved by one, along rows or along columns, or with others in the place of some.

    It has put a beginning in front of them, or hidden what it should find out.
    """
    if tokens.is_floating_point():
        return False
    shares = [_alike(one, tokens) for one in looked_up if one.shape == tokens.shape]
    return any(_is_moved(one, tokens, dim) for one in looked_up for dim in (0, 1)) or KEPT < max(shares, default=0.0) < 1


def _is_moved(one: Tensor, tokens: Tensor, dim: int) -> bool:
    if tokens.shape[dim] < 2 or (one.shape == tokens.shape and bool((one == tokens).all())):
        return False
    before = tokens.narrow(dim, 0, tokens.shape[dim] - 1)
    behind = one.narrow(dim, 1, one.shape[dim] - 1) if one.shape == tokens.shape else one
    return behind.shape == before.shape and bool((behind == before).all())


def _is_fed(tokens: Tensor, target: Tensor, looked_up: Sequence[Tensor]) -> bool:
    """Whether the tokens from the second one on are looked up, where they are the target, and those up to the last but one are not."""
    after = [one for one in looked_up if one.shape == tokens[:, 1:].shape and target.numel() == one.numel()]
    answers = [one for one in after if bool((one == target.reshape(one.shape)).all())]
    return bool(answers) and not any(bool((one == tokens[:, :-1]).all()) for one in after)


def _open(tokens: Tensor, target: Tensor) -> bool:
    """Whether tokens behind a mask are ignored, and all others asked for as they are."""
    left = target < 0
    hidden = tokens[left]
    if not len(hidden) or not bool((hidden == hidden[0]).all()) or bool((tokens[~left] == hidden[0]).any()):
        return False
    return bool((tokens == target)[~left].all()) and bool((left[:, :-1] & ~left[:, 1:]).any())


def _is_unhidden(tokens: Tensor, target: Tensor) -> bool:
    """Whether single places are asked for, between others that are ignored, and each of them is in the input as it is asked for."""
    left = target < 0
    asked = ~left
    begin, end = (left[:, :-1] & asked[:, 1:]).any(1), (asked[:, :-1] & left[:, 1:]).any(1)
    return bool(asked.any()) and float((begin & end).double().mean()) > BETWEEN and bool((tokens == target)[asked].all())


def _is_filling(tokens: Tensor, target: Tensor) -> bool:
    """Whether just the places are asked for that fill sequences up, and all have one answer, but for those right behind a sequence.

    Where blanks wait for answers, these are not all the same.
    """
    ends, asked = ~_read(tokens), target >= 0
    answers = target[:, 1:][ends[:, 1:] & ends[:, :-1]]
    return len(answers) > EACH and bool((ends == asked).all()) and bool((answers == answers[0]).all())


def _upright(tokens: Tensor) -> bool:
    """Whether one token fills up the ends of what lies along the first dimension, and does not fill up ends along the second one."""
    filled = (tokens == tokens[-1].mode().values).int()
    if not 0 < int(filled.sum()) < filled.numel() or int(filled.sum(0).count_nonzero()) < 3 or int(filled.sum()) < 8:
        return False
    return bool((filled.cummax(0).values == filled).all()) and not bool((filled.cummax(1).values == filled).all())


def _alike(one: Tensor, other: Tensor, read: Tensor | None = None) -> float:
    """The share of the same numbers, of those that are read."""
    same = one.isclose(other, rtol=1e-4, atol=1e-5) if one.is_floating_point() else one == other
    return float((same if read is None or not bool(read.any()) else same[read]).double().mean())


def _uneven(inputs: Tensor, target: Tensor) -> float:
    """By how much samples differ in how far the two are apart, or in how far that is of the target: whichever is less."""
    if not inputs.dim():
        return math.nan
    x, y = (one.double().reshape(len(one), -1) for one in (inputs, target))
    apart, size = (x - y).norm(dim=1), y.norm(dim=1)
    if len(x) < EACH or not bool((apart > 0).all()) or not bool((size > 0).all()):
        return math.nan
    chance = 1 / (2 * x.shape[1])
    spread = min(float(one.var() / one.mean().square()) for one in (apart, apart / size))
    return math.sqrt(max(spread - chance, 0.0))


def _read(tokens: Tensor) -> Tensor:
    """Where sequences are not filled up; everywhere, if they do not end at different places."""
    ends = (tokens == tokens[:, -1].mode().values).flip(1).cumprod(1).flip(1).bool()
    lengths = ends.sum(1)
    return ~ends | (lengths.min() == lengths.max())


def _padded(inputs: Tensor, target: Tensor) -> float:
    """The share of targets that stand where sequences are filled up, if these end at different places and all such targets are one."""
    ends = ~_read(inputs)
    if not bool(ends.any()):
        return 0.0
    there = target[ends]
    one = there.mode().values
    return float((target[ends] == one).double().sum() / target.numel()) if float((there == one).double().mean()) > SURE else 0.0


def zeros(inputs: Tensor, target: Tensor) -> float:
    """The share of places that fill series up with zeros, from different places on, and where all targets are one number."""
    if not inputs.is_floating_point() or inputs.dim() != 3 or inputs.shape[1] < 3 or target.shape[:2] != inputs.shape[:2]:
        return 0.0
    ends = (inputs == 0).all(2).flip(1).cumprod(1).flip(1).bool()
    lengths = ends.sum(1)
    there = target[ends].flatten()
    if not there.numel() or lengths.min() == lengths.max() or not bool((there == there[0]).all()):
        return 0.0
    return float(ends.double().mean())


def _with_telling(inputs: Tensor, target: Tensor, known: PairClues, sizes: Sequence[int]) -> PairClues:
    """What one feature tells of the target: the same one in each batch, and no more than it told in any of them."""
    answers = target.double().reshape(len(target), -1)
    told = _telling(inputs, answers, classes=not target.is_floating_point())
    if told is None or known.features not in (0, inputs.shape[1]):  # of rows of another length a place has another meaning
        return known
    best = int(told[0].argmax())
    feature = best if known.feature < 0 else known.feature
    share = float(told[1]) if feature == best else float(told[0][feature])
    fresh = feature != known.feature
    if target.is_floating_point():
        itself = answers.shape[1] == 1 and (_is_itself(inputs[:, feature], answers[:, 0]) or _is_filled(inputs[:, feature], answers[:, 0]))
    else:
        itself = _lie_apart(inputs[:, feature], answers[:, 0])
    goes_on = target.is_floating_point() and share < EXACTLY and _goes_on(told[0], feature, sizes)
    return PairClues(
        feature=feature,
        told=share if fresh else min(known.told, share),
        features=inputs.shape[1],
        itself=itself and not goes_on and (fresh or known.itself),
        others=share if goes_on else float(told[0].median()),
        column=known.column,
    )


def _column(series: Tensor, target: Tensor) -> int:
    """Which number of each place of some series is what is asked for there, and differs; -1 if none is."""
    if series.dim() != 3 or not series.is_floating_point() or series.shape[1] < 2 or target.numel() != series[..., 0].numel():
        return -1
    there = target.reshape(series.shape[:2]).to(series.dtype)
    found = series.isclose(there[..., None], rtol=1e-4, atol=1e-5).all(0).all(0).nonzero().flatten()
    return int(found[0]) if len(found) and bool((there.std(1) > 0).all()) else -1


def _goes_on(told: Tensor, feature: int, sizes: Sequence[int]) -> bool:
    """Whether a target goes on from the end of a smooth series: there the place beside the last one tells nearly as much."""
    places = told.reshape(-1) if len(sizes) == 1 else told.reshape(sizes)
    for dim in range(min(places.dim(), 2)):
        at = torch.unravel_index(torch.tensor(feature), places.shape)
        along = places[tuple(slice(None) if one == dim else int(place) for one, place in enumerate(at))]
        place = int(at[dim])
        if len(along) > 2 and place in (0, len(along) - 1) and float(along[1 if place == 0 else -2]) > SMOOTH:
            return True
    return False


def _is_itself(feature: Tensor, answers: Tensor) -> bool:
    """Whether a feature is the target, in the same unit."""
    return float((feature - answers).square().mean()) < ITSELF**2 * float(answers.var())


def _is_filled(feature: Tensor, answers: Tensor) -> bool:
    """Whether a feature is one number wherever the answer is no, and never that where it is yes, as what is written down afterwards."""
    yes = answers == 1
    if not bool((yes | (answers == 0)).all()) or not EACH <= int(yes.sum()) <= len(yes) - EACH:
        return False
    empty = feature[~yes]
    return bool((empty == empty[0]).all()) and not bool((feature[yes] == empty[0]).any())


def _lie_apart(feature: Tensor, labels: Tensor) -> bool:
    """Whether the classes have a range of the feature each."""
    in_order = labels[feature.argsort()]
    return int((in_order.diff() != 0).sum()) == len(kinds(labels)) - 1


def _telling(inputs: Tensor, answers: Tensor, *, classes: bool) -> tuple[Tensor, Tensor] | None:
    """By feature, which part of the target's variance it tells by itself; and what is told of each part of the target."""
    x = inputs - inputs.mean(0)
    if answers.shape[1] > (1 if classes else 64):
        return None
    if classes:
        return _telling_classes(x, answers)
    y = answers - answers.mean(0)  # a leak has to tell all of it
    norms = x.square().sum(0)[:, None] * y.square().sum(0)[None]
    told = ((x.T @ y).square() / norms.clamp_min(1e-30)).nan_to_num()
    return told.mean(1), told.max(0).values.min()


def _telling_classes(centred: Tensor, labels: Tensor) -> tuple[Tensor, Tensor] | None:
    """The same of classes: how far the values of each lie apart from those of the others."""
    different = kinds(labels)
    if not 1 < len(different) <= len(labels) / 4:
        return None
    member = (labels == different[None]).double()
    means = (member.T @ centred) / member.sum(0)[:, None]
    all_of_it = centred.square().sum(0)
    told = ((member.sum(0)[:, None] * means.square()).sum(0) / all_of_it.clamp_min(1e-30)).nan_to_num()
    within = (1 - told) * all_of_it / len(labels)
    told = torch.where(means.sort(0).values.diff(dim=0).min(0).values.square() > within, told, torch.zeros_like(told))  # two have the same
    return told, told.max()
