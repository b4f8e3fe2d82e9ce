"""Causes in sequences: masks, padding, order and state."""

from __future__ import annotations

import math

import numpy as np

from modlab.causes.cause_row import CauseRow, Facts
from modlab.causes.data import moved_axes
from modlab.causes.symptoms import STUCK, Symptoms
from modlab.records.clues import InputClues, ModuleClues

LEARNT = 0.8
"""Way from a constant answer down to 0 that no model goes which takes samples for places."""

COPIED, SLOWLY, RESTED = 0.9, 0.2, 4
"""Of the way down to 0, what who sees the targets goes beyond; the part by which a loss still falls that has come to rest, from one quarter
of its values to the next; and of how many values each."""

FALLS = 0.4
"""Of the way from a constant answer's loss to 0: what comes so far in few steps learns."""

TOLD = 0.12
"""Part of the targets that something has to tell."""

ASKED = 0.95
"""Share of the targets that have to be the token before, or after, for it to be what is asked for."""

OFTEN = 0.5
"""Share of the most frequent token without which few tokens may be all that a column has."""

SWOLLEN = 1e4
"""Size of a carried state beyond which a recurrence has multiplied it."""

MANY = 10
"""Rows of a table of which one alone is taken for no reason, whatever other tables get."""

INNER = 0.2
"""Part of the padding that lies between real tokens, from which on it is one itself."""

BETWEEN = 0.2
"""Share, of what does not fill rows up, that is the same token, from which on it is a frequent word that stands at ends by chance."""

MOST_PLACES = 0.5
"""Share of zeros at the ends of series, and in their targets, beyond which an error is about them."""

FILLED = 0.99
"""Share of a token that fills up the ends of rows, and is no word, from which on that is what it is there for."""

MOSTLY, NEARLY = 0.8, 0.95
"""Share of what fills rows up beside which the rest is next to nothing in a mean; and of one token that is nearly all the rest."""

KINDS, ENOUGH = 5, 48
"""Rows of a table from which on it is no table of flags, and tokens that are not the same by chance."""

LONG, LIKE = 20, 0.05
"""Steps at the end of which a state has forgotten what came before them, where the answers differ by less than that part of their size."""

SMOOTH = 0.7
"""How far neighbours in time are apart at most, as a part of how far those in the batch are, squared."""

SOME, NONE = 0.1, 0.02
"""Weight of positions, beside that of weights without a preference, that is looked at, and that is not."""


def _unmoved(s: Symptoms) -> Facts | None:
    if s.pairs.fed:
        return {"share": 1.0, "beside": False, "fed": True}
    if _does_not_copy(s):
        return None
    if s.pairs.beside and s.pairs.equal > 0.99:
        return None if _is_read_in_turn(s) or _points_in_turn(s) else {"share": 1.0, "beside": True}
    if s.pairs.unhidden:
        return {"share": 1.0, "beside": False, "unhidden": True, "asked": 1 - s.loss.ignored}
    itself = s.pairs.equal > 0.99 and s.pairs.through  # else it is an autoencoder
    return {"share": s.pairs.equal, "beside": False} if itself and s.tokens and not s.loss.ignored else None


def _does_not_copy(s: Symptoms) -> bool:
    """Whether the loss has come to rest between a constant answer and a perfect one: who sees the targets goes on to 0."""
    quarter = len(s.values) // 4
    if quarter < RESTED or not STUCK < s.progress < COPIED or not s.falls:
        return False
    before, after = s.values[-2 * quarter : -quarter], s.values[-quarter:]
    return float(before.mean() - after.mean()) < SLOWLY * float(after.mean())


def _skips(s: Symptoms) -> Facts | None:
    """The one thing that is asked of each position is the token after the next."""
    if not _is_single(s) or s.pairs.beside or s.pairs.further < ASKED or s.pairs.moved > OFTEN:
        return None
    return {"by": 1, "skipped": s.pairs.further, "share": s.pairs.moved}


def _is_single(s: Symptoms) -> bool:
    """Whether one thing alone is compared."""
    return len(s.clues.losses) == 1 and sum(bool(one.criterion) for one in s.loss.terms) == 1


def _is_read_in_turn(s: Symptoms) -> bool:
    """Whether a loop looks up one token after the other: which of them a step has seen is up to it."""
    return any(one.facts["calls"] >= 3 and one.facts["looks"] for one in s.modules("embedding rows"))


def _points_in_turn(s: Symptoms) -> bool:
    """Whether a cell makes one step after the other, and no table is asked for tokens: they say which places of another input are taken."""
    return not s.modules("embedding rows") and any(one.facts["calls"] >= 3 for one in s.modules("cell"))


def _future(s: Symptoms) -> Facts | None:
    """What sees the future; and whether the loss is low by that: a model that could copy need not have learned to."""
    found = _looks_ahead(s)
    return {**found, "low": True} if found and s.learns else found


def _looks_ahead(s: Symptoms) -> Facts | None:
    if s.pairs.down > ASKED and not s.pairs.moved > ASKED:
        return _reads_down(s)
    if s.pairs.moved < 0.95:
        return None
    weights = s.modules("weights")
    ahead = [one for one in weights if one.facts.get("later", 0.0) > SOME]
    if s.pairs.beside:  # an encoder may look ahead, the decoder may not
        own = [one.path for one in s.modules("attention") if one.facts["itself"] and any(two.path == one.path for two in ahead)]
        path = own[-1] if own else ahead[-1].path if ahead else ""
        return {"path": path, "how": "attention"} if ahead and len(ahead) == len(weights) else None
    for one in s.modules("attention"):
        if one.facts["itself"] and one.facts.get("future", 0.0) < 0.5 and (ahead or not weights):
            return {"path": one.path, "how": "attention"}
    if ahead:
        return {"path": ahead[0].path, "how": "attention"}
    for one in s.modules("recurrent"):
        if one.facts["both"]:
            return {"path": one.path, "how": "recurrent"}
    for one in s.modules("linear"):
        if one.facts.get("ahead"):
            return {"path": one.path, "how": "convolution"}
    return None


def _reads_down(s: Symptoms) -> Facts | None:
    """The same where time is the first dimension: what comes next stands below, and the layer goes both ways along it."""
    both = [one for one in s.modules("recurrent") if one.facts["both"] and not one.facts["batch_first"] and len(one.facts["shape"]) == 3]
    length = s.tokens[0].shape[0] if s.tokens else 0
    return next(({"path": one.path, "how": "recurrent"} for one in both if one.facts["shape"][0] == length), None)


def _turned(s: Symptoms) -> Facts | None:
    if s.pairs.open and s.loss.ignored > 0:
        return {"path": "", "how": "open"}
    if s.pairs.filled and s.loss.ignored > 0 and _is_single(s):
        return {"path": "", "how": "filled"}
    if "answers hidden" in s.loss.risks:
        return {"path": "", "how": "answers"}
    backwards = s.pairs.back > ASKED  # the token before is asked for
    for one in s.modules("attention"):
        facts = one.facts
        if facts.get("past", 0.0) > 0.9 and not backwards and facts.get("future", 1.0) < 0.1:
            return {"path": one.path, "how": "past"}
        if facts.get("padded", 0.0) > 0.3 and facts.get("shut", 0) >= 2 and facts["common"] > 0.5 and facts["hidden"] < 0.05:
            return {"path": one.path, "how": "padding"}
    for one in s.modules("weights"):
        facts = one.facts
        if facts.get("earlier", 1.0) < NONE and facts.get("later", 0.0) > SOME and not backwards:
            return {"path": one.path, "how": "past"}
    for one in (*s.modules("weights"), *s.modules("shares")):
        facts = one.facts
        if facts.get("real", 1.0) < 0.5 and facts.get("padding", 0.0) > 1.2:
            return {"path": one.path, "how": "padding"}
    return _all_hidden(s)


def _all_hidden(s: Symptoms) -> Facts | None:
    """A mask that hides all from all: each position looks at all of them alike, and no gradient comes to questions and keys."""
    scales = s.weights
    for one in s.modules("weights"):
        even = abs(one.facts.get("begin", 0.0) * one.facts.get("positions", 0) - 1) < 1e-5
        inside = tuple(path for path in s.flat if path.startswith(f"{one.path}.") and np.nanmax(scales[path]) > 0)
        if even and one.facts["looks"] >= 3 and inside and not s.learns:
            return {"path": one.path, "how": "all", "places": inside, "rival": "all weights equal", "settle": "scale of the weights"}
    return None


def _real_token(s: Symptoms) -> Facts | None:
    if moved_axes(s):
        return None  # it is other rows of which it fills up the ends
    for one in s.modules("embedding"):
        asked = one.facts.get("in a bag", 0.0) > INNER and s.clues.relations.padding > TOLD
        if one.facts["share"] > 0 and (one.facts["inner"] > INNER or asked):
            return {"path": one.path, "token": one.facts["padding"], "share": one.facts["share"]}
    return None


def _mixed_up(s: Symptoms) -> Facts | None:
    if s.progress > LEARNT:
        return None
    output = s.loss.term.output
    first = s.clues.inputs[0].shape if s.clues.inputs and (s.tokens or len(s.clues.inputs[0].shape) == 3) else ()
    samples, length = first[:2] if len(first) in (2, 3) else (0, 0)
    told = _come_first(s)
    if s.pairs.down > ASKED:  # what comes next stands below
        samples, length = length, samples
    for one in s.modules("weights"):
        if samples != length > 2 and one.facts.get("positions") == samples:
            return {"path": one.path, "batch_first": False, "shape": first}
    sentence = any(len(one.shape) == 1 for one in s.tokens[:1])  # one at a time, in a batch of one
    for one in (*s.modules("recurrent"), *s.modules("attention")):
        shape = one.facts["shape"]
        if len(shape) != 3 or shape[0] == shape[1]:
            continue
        batch = 0 if one.facts["batch_first"] else 1
        aside = len(output) == 2 and output[0] == shape[1 - batch] != shape[batch] and not (sentence and shape[batch] == 1)
        crossed = samples != length and (shape[1 - batch], shape[batch]) == (samples, length) and told
        upright = s.pairs.upright and batch == 0 and tuple(shape[:2]) == tuple(first[:2])
        if aside or crossed or upright:
            return {"path": one.path, "batch_first": one.facts["batch_first"], "shape": shape}
    if s.tokens and samples != length and s.pairs.moved > 0.95 and not s.pairs.beside:  # targets go row by row
        laid = next((one.shape for one in s.loss.term.functions if one.name in ("Transpose", "Permute")), output)
        if len(laid) == 3 and tuple(laid[:2]) == (length, samples):
            return {"path": s.loss.term.source or "", "laid": laid}
    return None


def _come_first(s: Symptoms) -> bool:
    """Whether samples come first, and not time: what comes next stands to the right, rows end in padding, series go on smoothly in rows.

    Where nothing tells, a model that has come some way has them where it takes them to be.
    """
    one = s.clues.inputs[0] if s.clues.inputs else InputClues()
    if s.pairs.moved > ASKED or one.ends > FILLED or one.along < SMOOTH:
        return True
    return s.progress < FALLS and not one.along > 1 / SMOOTH


def _torn(s: Symptoms) -> Facts | None:
    """A view that puts numbers of several samples, or positions, into one row."""
    for one in s.modules("torn"):
        return None if s.progress > 0.8 else {"path": one.path, **{name: one.facts[name] for name in ("taken", "given", "what")}}
    return None


def _anew(s: Symptoms) -> Facts | None:
    for one in s.modules("recurrent"):
        shape = one.facts["shape"]
        time = 1 if one.facts["batch_first"] else 0
        if len(shape) == 3 and shape[time] == 1 and one.facts["stateless"] and one.facts["calls"] >= 3:
            return {"path": one.path, "calls": one.facts["calls"]}
    for one in s.modules("zero input"):  # a state that is never put in
        if one.facts["calls"] >= 3 and one.facts["looks"] >= 9 and not one.facts.get("other"):
            return {"path": one.path, "calls": one.facts["calls"]}
    for one in s.modules("cell"):
        if one.facts["calls"] >= 3 and (one.facts["stateless"] or (one.facts["cut"] and not one.facts["filled"])):
            return {"path": one.path, "calls": one.facts["calls"]}
        if one.facts["calls"] >= 3 and one.facts["again"] == one.facts["calls"] - 1 and not s.progress > 0.9:
            return {"path": one.path, "calls": one.facts["calls"], "same": True}
    for path in s.flat:
        beside = path.replace("weight_hh", "weight_ih")
        if "weight_hh" in path and any(one.path == beside and one.graded for one in s.matrices):
            return {"path": path.rpartition(".")[0], "calls": 0, "length": _read_at_once(s, path.rpartition(".")[0])}
    return None


def _read_at_once(s: Symptoms, path: str) -> int:
    """Over how many steps a recurrent layer goes in its one call; 0 if that is not known."""
    for one in s.modules("recurrent"):
        if one.path == path and one.facts["calls"] == 1 and len(one.facts["shape"]) == 3:
            return int(one.facts["shape"][1 if one.facts["batch_first"] else 0])
    return 0


def _exploding(s: Symptoms) -> Facts | None:
    some = [one for one in s.modules("recurrent") if one.facts["mode"].startswith("RNN")]
    if some and (s.has_burst or not s.is_finite or _grows(s)):
        return {"path": some[0].path, "mode": some[0].facts["mode"]}
    again = [one for one in (*s.modules("cell"), *s.modules("linear")) if one.facts["calls"] >= 4]
    again.sort(key=lambda one: one.facts.get("in", 0) != one.facts.get("out", 0))  # what takes its own output gives as many numbers
    if not again or not _grows(s):
        return None
    facts = {"path": again[0].path, "calls": again[0].facts["calls"]}
    return facts if again[0].facts.get("in", 0) == again[0].facts.get("out", 0) else {**facts, **_of_its_own(s, again[0])}


def _of_its_own(s: Symptoms, layer: ModuleClues) -> Facts:
    """The square parameter beside a layer that is called again and again, which may be what multiplies the state that it is put into."""
    around, rows = layer.path.rpartition(".")[0], layer.facts.get("out", 0)
    some = (one.path for one in s.matrices if (one.module or "") == around and s.shapes.get(one.path) == (rows, rows))
    path = next(some, "")
    return {"path": path, "beside": layer.path, "rows": rows} if path else {}


def _grows(s: Symptoms) -> bool:
    exploding = any(alert.kind == "exploding" for alert in s.record.alerts)
    carried = any(one.state and max(-one.numbers.low, one.numbers.high) > SWOLLEN for one in s.clues.inputs)
    return ((exploding or carried) and not s.learns) or s.begins_wild


def _are_all_the_same(s: Symptoms) -> bool:
    """Whether the numbers that stand before tokens are the same for all samples: then it is no tokenizer's doing that these are, too."""
    first = next((one for one in s.clues.inputs if one.shape), None)
    return first is not None and first in s.inputs and first.same > 0.9


def _unknown(s: Symptoms) -> Facts | None:
    if _are_all_the_same(s):
        return None
    told = s.clues.relations
    for one in s.tokens:
        declared = any(layer.facts["padding"] == one.token for layer in s.modules("embedding"))
        left_out = s.loss.ignored > one.common / 2  # by the loss
        served = left_out or (told.rows and s.progress > max(told.together, told.counted) / 2)  # nothing is lost by it
        share = one.common / (1 - _padded(s, one.token))
        filler = one.blank or (one.ends > FILLED and (declared or served))
        if share > 0.8 and not s.learns and len(one.shape) > 1 and not filler:
            return {"path": one.name, "token": one.token, "share": min(share, 1.0)}
    if (filled := _but_for_filling(s)) is not None:
        return filled
    if (even := _even_filling(s)) is not None:
        return {"path": even["path"], "token": even["token"], "share": even["share"]}
    tables = [one for one in s.modules("embedding rows") if one.facts["rows"] > 1]
    same = [one for one in tables if one.facts["seen"] == 1 and one.facts["total"] >= 10 * one.facts["rows"]]
    kind = not (s.modules("weights") or s.modules("attention"))  # of a thing, not of a place or a part of a text
    if same and not s.learns and (len(same) == len(tables) or (kind and same[0].facts["rows"] >= MANY)):
        return {"path": same[0].path, "token": -1, "share": 1 / same[0].facts["rows"]}
    for layer in s.modules("embedding rows"):
        rows, seen, total = layer.facts["rows"], layer.facts["seen"], layer.facts["total"]
        alone = all(other.facts["seen"] == seen or other.facts["total"] != total for other in s.modules("embedding rows"))
        if (
            alone
            and any(one.common > OFTEN and one.ends <= FILLED and not one.blank for one in s.tokens)
            and rows <= 1000
            and total >= 10 * rows
            and seen <= rows / 2
            and s.progress < 0.3
        ):
            return {"path": layer.path, "token": -1, "share": seen / rows}
    return None


def _but_for_filling(s: Symptoms) -> Facts | None:
    """Nearly all that does not fill rows up is one token, in each table of tokens."""
    some = [one for one in s.modules("filling") if _is_filling(one) and one.facts["rows"] >= KINDS]
    if not some or not s.is_stuck:
        return None
    if any(one.facts["rest"] < NEARLY or one.facts["others"] < ENOUGH for one in some):
        return None
    return {"path": some[0].path, "token": some[0].facts["most"], "share": some[0].facts["rest"], "filler": some[0].facts["filler"]}


def _is_filling(one: ModuleClues) -> bool:
    """Whether rows of tokens have ends that are filled up, and not a frequent word in all places, or the same places in each."""
    return not one.facts["same"] and one.facts["between"] < BETWEEN


def _padded(s: Symptoms, token: int) -> float:
    """The share of tokens that only fill rows up, where these are not that token."""
    return next((one.facts["share"] for one in s.modules("embedding") if one.facts["padding"] != token and one.facts["share"] < 0.9), 0.0)


def _padding(s: Symptoms) -> Facts | None:
    if s.pairs.padded > 0.3 and not s.loss.ignored:
        return {"share": s.pairs.padded}
    if s.pairs.zeros > MOST_PLACES and s.loss.term.criterion.endswith("error") and s.loss.term.reduction == "mean":
        return {"share": s.pairs.zeros, "how": "zeros"}
    return reads_after_filling(s) or _mean_of_filling(s, even=False)


def _even_filling(s: Symptoms) -> Facts | None:
    return _mean_of_filling(s, even=True)


def _mean_of_filling(s: Symptoms, *, even: bool) -> Facts | None:
    """A mean over places of which nearly all are filled up with one token: as many in each row, or not.

    Texts have other lengths each: where as much of each is that token, it may stand for words as well.
    """
    declared = {one.path: one.facts["padding"] for one in s.modules("embedding")}
    averaged = {one.path for one in s.modules("read") if one.facts.get("mean")}
    for one in s.modules("filling") if s.is_stuck else ():
        facts = one.facts
        counted = facts["counted"] and declared.get(one.path) != facts["filler"]
        if (counted or one.path in averaged) and facts["share"] > MOSTLY and _is_filling(one) and facts["even"] is even:
            told = {"share": facts["share"], "token": facts["filler"], "how": "mean", "bag": facts["counted"], "even": even}
            return {"path": one.path, **told}
    return None


def reads_after_filling(s: Symptoms) -> Facts | None:
    """The last state is read, after a long run of steps that bring the same: then all samples get the same answer."""
    last = {one.path for one in s.modules("read") if one.facts.get("last")}
    for one in s.modules("recurrent") if s.is_stuck and s.loss.spread < LIKE else ():
        shape, tail = one.facts["shape"], one.facts["tail"]
        length = shape[1 if one.facts["batch_first"] else 0] if len(shape) == 3 else 0
        if one.path in last and not one.facts["both"] and max(LONG, length / 2) <= tail < length:  # else nothing is filled up
            told = {"share": tail / length, "steps": int(tail), "length": length, "how": "last"}
            return {"path": one.path, **told, "rival": "vanishing gradient", "settle": "gradients"}
    return None


def _orderless(s: Symptoms) -> Facts | None:
    some = s.modules("weights")
    at_one_place = _at_one_place(s) if some or s.modules("attention") else None
    if at_one_place is not None:
        return at_one_place
    free = [one for one in some if one.facts["ordered"] is False and one.facts.get("later", 0.0) > SOME]
    told, series = s.clues.relations, _is_of_series(s, free)
    needed = (bool(s.tokens) or series) and told.together > TOLD and told.counted < told.together / 2
    if not free or any(one.facts["ordered"] for one in some) or not s.progress < 0.6 or not (needed or (s.tokens and s.has_baseline)):
        return None
    if (series or not needed) and (s.learns or s.progress > FALLS):  # numbers may tell of their place in another way
        return None
    if not needed and (told.counted > TOLD or _one_for_all(s)):  # which tokens there are may tell it as well
        return None
    return {"path": free[0].path}


def _is_of_series(s: Symptoms, attended: list[ModuleClues]) -> bool:
    """Whether what is attended to are the places of the only input, a series of numbers, and all of them are taken together then."""
    shape = s.inputs[0].shape if len(s.inputs) == 1 and not s.tokens else ()
    return len(shape) == 3 and all(one.facts.get("positions") == shape[1] and one.facts["pooled"] for one in attended)


def _at_one_place(s: Symptoms) -> Facts | None:
    """The table with a row for each position that is asked for one row alone; beside it stands that of the tokens, and no other."""
    tables = s.modules("embedding rows")
    asked = [one for one in tables if one.facts["seen"] > 1]
    length = max((one.shape[-1] for one in s.tokens if len(one.shape) > 1), default=0)
    if len(asked) != 1 or length < 2:
        return None
    alone = (one for one in tables if one.facts["seen"] == 1 and one.facts["total"] == asked[0].facts["total"])
    found = next((one for one in alone if one.facts["rows"] >= length), None)
    if found is not None:
        return {"path": found.path, "rows": found.facts["rows"]}
    places = [path for path, shape in s.shapes.items() if len(tables) == 1 and _is_one_row(s, path, shape, length)]
    return {"path": places[0], "rows": s.shapes[places[0]][-2]} if places else None


def _is_one_row(s: Symptoms, path: str, shape: tuple[int, ...], length: int) -> bool:
    """Whether a parameter of no layer, with a row for each position, has got a gradient in one row alone in each look."""
    layers = {one.path for kind in ("linear", "embedding rows", "attention", "recurrent", "cell", "norm") for one in s.modules(kind)}
    if path.rpartition(".")[0] in layers or len(shape) < 2 or shape[-1] != _attended(s)[1] or shape[-2] < length:
        return False
    zeros = s.zero_gradients(path)
    return math.prod(shape[:-2]) == 1 and len(zeros) > 2 and bool((abs(zeros - (1 - 1 / shape[-2])) < 1e-6).all())


def _one_for_all(s: Symptoms) -> bool:
    """Whether a sequence has one target, and not one for each position."""
    compared = s.loss.term.compared
    return len(compared) == 1 or (len(compared) == 2 and any(compared[0] == one.shape[0] for one in s.tokens))


def _places_unused(s: Symptoms) -> Facts | None:
    """A model that attends, and in it a table with a row for each position that nothing uses, and nothing else that gets no gradient."""
    called = {one.path for one in s.watched.modules if one.called}
    lost = [one for one in s.watched.parameters if one.path in s.ungraded and one.path not in s.clues.reached]
    attends = [*s.modules("weights"), *s.modules("attention")]
    if not attends or len(lost) != 1 or lost[0].dimensions < 2 or (lost[0].module and lost[0].module in called):
        return None
    blind = [one for one in s.modules("weights") if one.facts["ordered"] is False]
    shape, (length, width) = s.shapes.get(lost[0].path, ()), _attended(s)
    fits = len(shape) > 1 and shape[-1] == width and shape[-2] >= length > 0
    if s.learns:  # where the next token is asked for, something is learnt without the places, too; a set has none
        return {"path": blind[0].path, "table": lost[0].path, "asked": lost[0].path} if blind and fits and s.pairs.moved > ASKED else None
    known = fits or blind or not s.modules("weights")
    return {"path": attends[0].path, "table": lost[0].path, "asked": lost[0].path} if known else None


def _unheard(s: Symptoms) -> Facts | None:
    """A recurrent layer that reads, beside another one, and whose state nobody takes."""
    some = [*s.modules("recurrent"), *s.modules("cell")]
    lost = set(s.ungraded) - s.clues.reached
    for one in some:
        mine = {two.path for two in s.watched.parameters if two.module == one.path}
        others = {two.path for two in s.watched.parameters if two.module in {three.path for three in some} - {one.path}}
        if any(two.path != one.path and two.facts["filled"] for two in s.modules("recurrent")):
            continue  # that one is given a state: it may be this one's, without a graph
        if mine and mine <= lost and others & s.clues.reached:
            return {"path": one.path, "calls": 0, "unheard": True, "asked": min(mine)}
    return None


def _attended(s: Symptoms) -> tuple[int, int]:
    """The positions that attention takes, and how many numbers there are of each; zeros where that is not known."""
    for one in s.modules("attention"):
        shape = one.facts["shape"]
        if len(shape) == 3:
            return shape[1 if one.facts["batch_first"] else 0], shape[2]
    tables = [s.shapes.get(f"{one.path}.weight", ()) for one in s.modules("embedding rows")]
    length = max((one.facts.get("positions", 0) for one in s.modules("weights")), default=0)
    return length, tables[0][-1] if tables and tables[0] else 0


EARLY = (CauseRow("no positions", _places_unused, "unused layers", "why"), CauseRow("state not kept", _unheard, "unused layers", "why"))
"""Before what else is not used."""

ROWS = (
    CauseRow("wrong axes", _torn),
    CauseRow("padding counts", _padding, "tokens unknown", "tokens"),
    CauseRow("mask turned around", _turned),
    CauseRow("sees the future", _future),
    CauseRow("targets not moved", _unmoved),
    CauseRow("targets shifted", _skips),
    CauseRow("padding idx of a token", _real_token),
    CauseRow("batch first mixed up", _mixed_up),
    CauseRow("state not kept", _anew),
    CauseRow("exploding recurrence", _exploding, "rate too high", "smaller rate", tier=1),
    CauseRow("tokens unknown", _unknown, "padding counts", "tokens"),
    CauseRow("padding counts", _even_filling, "tokens unknown", "tokens"),
    CauseRow("no positions", _orderless, tier=2),
)
