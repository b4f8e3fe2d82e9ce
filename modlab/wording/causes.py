"""Why a training does not learn, in English: for each cause what is wrong, the evidence, what it means and what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Finding
from modlab.wording.fixes import FIXES
from modlab.wording.names import all_named, capital, named
from modlab.wording.trends import added, of_its_size, summed

Facts = Mapping[str, Any]
Words = str | Callable[[Facts], str]


@frozen
class CauseWords:
    """The words of one cause. In each, names in braces are facts of the finding, or its place.

    Attributes:
        says: what is wrong with what, as the beginning of a sentence.
        evidence: what shows it.
        why: what it means.
        fix: what to do; `code`: the line that does it, if one line can.
    """

    says: Words
    evidence: Words
    why: Words
    fix: Words = ""
    code: Words = ""


LEAP = 0.02
"""Part of a weight's size that is a large step."""


def rough(number: Any) -> str:
    """A number in a sentence."""
    return format.rough(float(number)) if isinstance(number, (int, float)) and math.isfinite(number) else "NaN"


def _undone(facts: Facts) -> str:
    if "leap" in facts:
        return "the weights begin anew again and again"
    return f"old weights are put back {'again and again' if 'times' in facts else 'after each step'}"


def _put_back(facts: Facts) -> str:
    if "times" in facts:
        times = format.plural(facts["times"], "time")
        moved = f"at least {times} something other than the optimizer"
        if "left" in facts:
            return f"{moved} moved them back between two steps, by {_share(1 - facts['left'])} of the way that steps had taken them since"
        if "leap" in facts:
            return f"{moved} wrote others in their place between two steps, {facts['leap']:,.0f} times as far off as steps had taken them"
        return f"at least {times} the weights compared were bit for bit the same, though steps had moved them"
    return f"{format.plural(facts['looks'], 'step')} that were seen were each undone by at least four fifths before the next one"


def _share(number: Any) -> str:
    return format.share(float(number))


def _beside(facts: Facts) -> str:
    if "along" in facts:
        places = f"{format.plural(abs(facts['by']), 'place')} {'further on' if facts['by'] > 0 else 'before'}"
        return f"the inputs tell {_share(facts['told'])} of the targets {places}, and {_share(facts['together'])} in the same place"
    if "late" in facts:
        return f"the inputs tell {_share(facts['told'])} of the targets of the next batch, and {_share(facts['together'])} of their own"
    side = "before" if facts["by"] > 0 else "after"  # to move the targets on is to give each input that of the one before
    return (
        f"the inputs tell {_share(facts['told'])} of the targets one sample {side} their own, and {_share(facts['together'])} of their own"
    )


def _too_high(facts: Facts) -> str:
    pace, most, first = facts["pace"], facts["most"], facts["first"]
    said = []
    if LEAP < pace < math.inf:  # else it was not looked at when its steps were large
        said.append(f"a step changes a weight by {of_its_size(pace) if pace >= 1 else f'{_share(pace)} of its size'}")
    if most > 1.5 * first:
        said.append(f"the loss went from {rough(first)} up to {rough(most)}{summed(facts)}")
    if math.isnan(facts["rate"]):
        whose = (
            "the loop moves weights itself"
            if facts.get("by hand")
            else "several optimizers move the same weights, each at a rate of its own"
        )
        return ", and ".join(said) or whose
    return f"at {rough(facts['rate'])}, {', and '.join(said)}" if said else f"the learning rate is {rough(facts['rate'])}"


def _lost(facts: Facts) -> str:
    if "target" in facts:
        return "the loss trains the target, which is a number and a part of one chosen output; the answer beside it has no graph"
    if "calls" in facts:
        return f"{{place}} is called {facts['calls']} times in a pass, and the state that it gets has no graph"
    if "beside" in facts:
        begins = "" if "function" in facts else "{place} gets numbers without a graph; "
        return f"{begins}of the part of the loss that knows the targets no gradient comes to {all_named(facts['places'])}"
    if "backwards" in facts:
        return f"in {facts['backwards']} calls seen, backward() began with a tensor that has no graph back to a parameter of the model"
    places = facts.get("places", ())
    return f"no gradient reached {all_named(places)}" if places else "no gradient comes through"


def _level(facts: Facts) -> str:
    return f"it is {rough(facts['value'])}, and " if facts.get("level") else ""


def _momentum(facts: Facts) -> str:
    many = rough(1 / max(1 - facts["momentum"], 1e-9))
    so_far = f", and there were {facts['steps']:,}" if "steps" in facts else ""
    return f"{facts['optimizer']} has {facts['momentum']:.6g}: a step goes along the last {many} gradients together{so_far}"


def _not_held(facts: Facts) -> str:
    have, them = ("has", "it") if len(facts["places"]) == 1 else ("have", "them")
    nobody = "no optimizer holds" if facts.get("several") else f"{facts['optimizer']} does not hold"
    instead = "they hold" if facts.get("several") else "it holds"
    former = f"; instead {instead} {facts['former']:,} of the same shapes that are not in this model" if "former" in facts else ""
    return f"{all_named(facts['places'])} {have} a gradient, and {nobody} {them}{former}"


def _no_step(facts: Facts) -> str:
    if "still" in facts:
        steps, norm = format.plural(facts["steps"], "call"), rough(facts["norm"])
        return (
            f"{steps} at a rate of {rough(facts['rate'])}, with gradients up to {norm}, and all weights that were compared are as they were"
        )
    if "optimizer" in facts:
        steps = format.plural(facts["steps"], "step")
        return f"the {facts['optimizer']} that holds {all_named(facts['places'])} made none, in {steps} of another one"
    return f"{format.plural(facts['backwards'], 'backward pass', 'backward passes')}, and no step"


def _not_zeroed(facts: Facts) -> str:
    if "places" in facts:
        return f"in each of {format.plural(facts['looks'], 'look')}, those of the step before were still there when backward passes began"
    before = (
        "gradients that were there already, the first one of a step too" if facts.get("several") else "the gradients of the step before"
    )
    return f"in each of {format.plural(facts['looks'], 'look')}, backward() began with {before}"


def _part(share: float) -> str:
    return "all" if share == 1 else "most" if share > 0.5 else "a large part" if share >= 0.3 else "a part"


def _zeroed(facts: Facts) -> str:
    if "thrown" in facts:
        passes = format.plural(facts["passes"], "backward pass", "backward passes")
        return f"of {passes} that were looked at, {facts['thrown']:,} brought gradients that were zeroed before a step"
    if "places" in facts:
        looks = format.plural(facts["looks"], "look")
        return f"backward() brings gradients to {all_named(facts['places'])}, and in {looks} none of these was left at the step"
    return f"gradients flow through the modules, but at the step none is left in any of the {facts['parameters']:,} parameters"


def _held(facts: Facts) -> str:
    held = ", although the optimizer holds them" if facts.get("held") else ""
    return held + (", which are as if drawn at random, and the loss stays where one answer for all is" if facts.get("drawn") else "")


def _axis(shape: Any) -> str:
    return "(" + ", ".join(f"{size:,}" for size in shape) + ("," if len(shape) == 1 else "") + ")"


def _reshaped(facts: Facts) -> str:
    if "taken" in facts:
        return f"{_axis(facts['taken'])} was viewed as {_axis(facts['given'])} in front of {{place}}, which mixes {facts['what']}"
    if "output" in facts:
        compared = _axis(facts["compared"])
        return f"an output of shape {_axis(facts['output'])} was viewed as {compared}, though its classes are not its last dimension"
    if "channels" in facts:
        shape = _axis(facts["shape"])
        return f"in images of shape {shape}, a number is more like the one {facts['channels']} further on than like the next one"
    return f"laid out anew, the inputs tell {_share(facts['told'])} of the targets; as they are {_share(facts['together'])}"


def _drowning(facts: Facts) -> str:
    told = f"neither a line nor neighbours found the targets in {facts['pairs']:,} pairs" if facts["pairs"] else "the loss does not fall"
    if facts.get("white"):
        return f"neighbouring numbers in them are as unlike as in noise, and {told}"
    return f"their standard deviation is {rough(facts['std'])}, and {told}"


def _overwritten(facts: Facts) -> str:
    where = all_named(facts["places"])
    if "into" in facts:
        return f"a hook at {where} turns finite gradients into {'NaN' if facts['into'] == 'nan' else 'infinity'}"
    if "alone" in facts:
        word = "NaN" if facts["alone"] == "nan" else "infinite"
        return f"{where} became {word} while all other weights were numbers, and a hook stands on it"
    if "behind" in facts:
        word = "NaN" if facts["behind"] == "nan" else "infinite"
        return f"the gradient of {where} became {word} behind the backward pass, and a hook stands on it"
    if "erased" in facts:
        return f"hooks stand on {where}, and just there the gradients are zero in all looks"
    if "emptied" in facts:
        return f"a hook stands at {where}, which gets gradients, and in front of it all are zero"
    if "positive" in facts:
        return f"no gradient in front of {where} was below zero in any look, though some behind were"
    if facts["places"]:
        return f"hooks stand {'at' if 'on the way' in facts else 'on'} {where}, and the loss does not fall"
    looks = format.plural(facts["looks"], "look")
    if "zeros" in facts:
        return f"in {looks}, other tensors stood in the gradients' place at the step, and were zero"
    return f"in {looks}, a gradient at the step pointed elsewhere than what backward() had brought"


def _range(facts: Facts) -> str:
    ends = {
        "Sigmoid": "0 to 1",
        "Softmax": "0 to 1",
        "Hardsigmoid": "0 to 1",
        "Tanh": "-1 to 1",
        "LogSoftmax": "0 or less",
        "LogSigmoid": "0 or less",
    }
    return ends.get(facts["function"], "0 or more")


def _unreached(facts: Facts) -> str:
    if "turned" in facts:
        side, half = ("above", "at most") if facts["turned"] else ("below", "at least")
        return f"the score comes from {facts['function'].lower()} and is never {side} 0, so each chance is {half} a half"
    if "bound" in facts:
        asked = f"{rough(facts['low'])} to {rough(facts['high'])}"
        return f"no output that was seen lies {facts.get('side', 'beyond')} {rough(facts['bound'])}, and targets go from {asked}"
    gives = f"{'a recurrent layer' if 'state' in facts else facts['function'].lower()} gives {_range(facts)}"
    if "mean" in facts:
        return f"{gives}, and the loss takes that for the logarithm of a rate; the mean of the counts is {rough(facts['mean'])}"
    return f"{gives}, and targets go from {rough(facts['low'])} to {rough(facts['high'])}"


def _weights_felt(facts: Facts) -> str:
    what = f"class {facts['class']}" if "class" in facts else "the positive class"
    return f"weighted, {what} counts for {_share(facts['felt'])} of the loss, though it is {_share(facts['share'])} of the targets"


TURNED_BACK = {
    "maximize": "remove maximize=True",
    "squares": "a plus in front of them",
    "hooks": "let the hooks return the gradient as it is",
    "pushes": "swap what is pulled together and what is pushed apart",
    "ranks": "swap the positive and the negative",
    "agree": "give the two losses opposite targets",
    "overlap": "1 - overlap as the loss",
    "likeness": "1 - cosine as the loss",
    "clipped gain": "a minus in front of the mean of the lower ones",
    "rewarded": "a minus in front of it, if the weights are rewards",
    "restored": "a minus in front of the whole lower bound",
    "falls": "give the loss a least value: remove its minus sign, or add the term that should hold it back",
}
"""What to do about a loss that is turned around, by how that shows; elsewhere a sign is removed."""


GAINS = {
    "overlap": "the overlap of outputs and masks enters the loss without a minus, so that steps make it smaller",
    "likeness": "the cosine of outputs and targets enters the loss without a minus, so that steps make it smaller",
    "clipped gain": "the lower one of the plain and the clipped gain enters the loss without a minus, so that steps make it smaller",
    "restored": "errors have a minus in the lower bound (ELBO), and the bound has none in the loss, so that steps make it smaller",
    "rewarded": "the greater its weight, the less likely steps make what was picked: right for costs, and turned around for rewards",
}
"""What a loss measures that should become large."""


def _sign(facts: Facts) -> str:
    if facts["how"] in GAINS:
        return GAINS[facts["how"]]
    if facts["how"] == "falls":
        return f"the loss falls without end, down to {rough(facts['last'])}{', and the outputs grow with it' if facts.get('grown') else ''}"
    if facts["how"] == "squares":
        return f"powers of {'the weights' if facts['weights'] else 'what the model gives'}, such as squares, enter with a minus sign"
    if facts["how"] == "hooks":
        return f"in {facts['looks']} looks the gradients of biases were opposite to those of their layers' outputs: hooks turn them around"
    if facts["how"] == "pushes":
        return "what belongs together is pushed apart, and the others are pulled together"
    if facts["how"] == "ranks":
        return f"it pulls together the pairs that are farther apart at first, by {rough(facts['farther'])} standard errors"
    if facts["how"] == "agree":
        return f"both losses are down to {rough(facts['most'])}: what should deceive the other one helps it"
    if facts["how"] == "climbs":
        return f"in {facts['up']} of {facts['looks']} looks a step went up the slope that backward() had found"
    return "the optimizer was made with maximize=True" if facts["how"] == "maximize" else "the criterion enters the loss with a minus sign"


def _evaluation(facts: Facts) -> str:
    if "alone" in facts:
        return f"while the model trained, {all_named(facts['places'])} stayed in evaluation mode, and took in no batch"
    if "function" in facts:
        return f"while the model trained, a batch normalization in {all_named(facts['places'])} went by running statistics of no batch"
    if "evaluated" in facts:
        often = f"in {facts['evaluated']:,} of {format.plural(facts['steps'], 'step')}"
        when = f"from step {facts['since']:,} on" if facts["throughout"] else f"first in step {facts['since']:,}"
        return f"{often}, {when}, the model was in evaluation mode, which changes {all_named(facts['places'])}"
    return f"in {format.plural(facts['looks'], 'look')} the model was called in evaluation mode, which changes {all_named(facts['places'])}"


def _order(facts: Facts) -> str:
    if facts["how"] == "alike" and not facts["share"]:
        return "within each batch seen all targets are the same, and they differ from batch to batch"
    return (
        f"within the batches seen, targets differ by only {_share(facts['share'])} of what they differ by in all"
        if facts["how"] == "alike"
        else f"in {_share(facts['share'])} of the batches seen, the targets were sorted"
    )


INITIALIZED = "nn.init.kaiming_normal_ or PyTorch's own initialization"


def _began(facts: Facts, now: str = "are", then: str = "began") -> str:
    """Of a copy that took some steps the weights are known as they are, and not as they began."""
    return now if "copied" in facts else then


def _scaled(facts: Facts) -> str:
    median = " (the median of these)" if len(facts["places"]) > 1 else ""
    were = _began(facts, then="were")
    return f"those of {all_named(facts['places'])} {were} {rough(facts['times'])} times what keeps the size of a signal{median}"


def _clipped(facts: Facts) -> str:
    if "bound" in facts:
        return f"their norm is about {rough(facts['norm'])} and is cut to {rough(facts['bound'])} in nearly every step"
    if "clamped" in facts:
        return f"in {format.plural(facts['clamped'], 'look')}, many numbers of the gradients had one size, the largest"
    return f"of what backward() brings, {_share(facts['left'])} is left at the step"


def _multiplied(facts: Facts) -> str:
    times, added = facts["times"], facts["added"]
    if not added > 1:
        return f"it is multiplied by {rough(times)}"
    count = f"{added:,.0f}"
    if times == added:
        return f"it adds up {count} numbers instead of taking their mean"
    return f"it is {rough(times)} times the mean of the {count} numbers that it adds up"


def _scaled_down(facts: Facts) -> str:
    factor = rough(facts["factor"])
    if facts["bends"]:
        return f"with its delta it is {factor} times a smooth L1 loss"
    if facts["added"] > 1:
        return f"the sum of {rough(facts['added'])} numbers is multiplied by {factor}"
    return f"it is multiplied by {factor}" + (f", at first by {rough(facts['first'])}" if "first" in facts else "")


def _function_before(facts: Facts) -> str:
    if "own" in facts:
        return f"the function {facts['own']} before "
    if facts.get("chooses"):
        return "an index, which rows are taken by, is all that is used of "
    return f"{facts['function'].lower()}() {'behind' if facts.get('behind') else 'before'} " if "function" in facts else "at "


def _so_many(facts: Facts) -> str:
    return str(format.plural(facts["steps"], "step") if facts["steps"] else format.plural(facts["passes"], "pass", "passes"))


def _hardly(facts: Facts) -> str:
    if not facts["rate"]:
        return "no step changes a weight"
    if "moved" in facts or "reach" in facts:
        far = f"{rough(100 * facts['moved'])} % of its size" if "moved" in facts else rough(facts["reach"])
        return f"at {rough(facts['rate'])}, all {facts['made']:,} steps together move a weight by about {far}, or less"
    far = f"by {rough(100 * facts['pace'])} % of its size" if facts["pace"] else "by less than its dtype can hold"
    return f"at {rough(facts['rate'])}, a step changes a weight {far}"


def _warms(facts: Facts) -> str:
    if "begins" in facts:
        most = f"in {facts['steps']:,} steps it came to {rough(facts['rate'])} at most"
        return f"{most}, and was back at {rough(facts['begins'])} in {format.plural(facts['looks'], 'look')}"
    if "aim" in facts:
        return f"after {facts['steps']:,} steps it is {rough(facts['rate'])}, where the optimizer was made with {rough(facts['aim'])}"
    return f"after {facts['steps']:,} steps it is {rough(facts['rate'])} and still rises"


def _statistics(facts: Facts) -> str:
    if "looks" in facts:
        where, looks = all_named(facts["places"]), format.plural(facts["looks"], "look")
        return f"in the end, those of {where} are 0 and 1, as of a new one, though {looks} saw batches go in"
    off = f"its running mean is {rough(facts['away'])} standard deviations off"
    if "momentum" in facts:
        return f"{{place}} has momentum={facts['momentum']:g}, and {off}"
    return f"at step {facts['step']:,}, {{place}} had counted {format.plural(facts['tracked'], 'batch', 'batches')}, and {off}"


def _scaler(facts: Facts) -> str:
    if "scale" in facts:
        backwards = format.plural(facts["backwards"], "backward pass", "backward passes")
        return f"the loss is multiplied by {rough(facts['scale'])}, a power of two, and none of {backwards} was followed by a step"
    if "skipped" in facts:
        return f"none lives long enough to find its scale, and most steps were skipped: {facts['skipped']}"
    if "left" in facts:
        return f"at the step, gradients are {rough(facts['left'])} of what backward() brought, a power of two, as scalers divide by"
    if facts["steps"]:
        return f"{format.plural(facts['steps'], 'step')} seen used gradients that were still multiplied by the scaler"
    return f"gradients were seen to be clipped {facts['clips']:,} times while they were still multiplied by the scaler"


def _decays(facts: Facts) -> str:
    if "looks" in facts:
        return f"in {facts['looks']} looks, a part of the weights, of a penalty or added later, outweighed all else in the gradients"
    if "part" in facts:
        return f"the loop takes {_share(facts['part'])} of all weights away after each step"
    if "held" in facts:
        pulled = f"at {rough(facts['decay'])}, in the last looks (up to step {facts['at']:,}) it was {rough(facts['held'])} times"
        if "costs" not in facts:
            return f"{pulled} as long as a whole step"
        costs = f"as a penalty it was {rough(facts['costs'])} there, and the loss is {rough(facts['loss'])} at the end"
        return f"{pulled} as large as the loss's own gradient; {costs}"
    pull = facts["pull"]
    if pull > 1:
        return f"at {rough(facts['decay'])}, it pulls {rough(pull)} times as hard as the loss's own gradient"
    at = f"at {rough(facts['decay'])}" if facts["decay"] else f"with {rough(facts['penalty'])} times a penalty on them in the loss"
    return f"{at}, the weights have shrunk to {_share(facts['shrunk'])} of their size"


def _future(facts: Facts) -> str:
    how = {"attention": "looks at what comes after a position", "convolution": "is padded on both sides"}.get(
        facts["how"], "reads in both directions"
    )
    return f"each target is the next token, and {{place}} {how}"


MASKS = {"open": "mask of the targets", "filled": "mask of the loss", "answers": "mask of the scores"}
"""By how a mask shows that it is turned around; else it is that of attention."""


def _mask(facts: Facts) -> str:
    return (
        "it hides what came before a position, not what comes after"
        if facts["how"] == "past"
        else "what is behind it is left out of the loss, and all that is seen is asked for"
        if facts["how"] == "open"
        else "only the places that fill sequences up count, which all have the same target"
        if facts["how"] == "filled"
        else "it hides most of the classes that are asked for, so that they have no chance"
        if facts["how"] == "answers"
        else f"{{place}} looks at all positions alike, and no gradient comes to {named(facts['places'][0])}"
        if facts["how"] == "all"
        else "it hides the tokens and leaves the padding"
    )


def _born(facts: Facts) -> str:
    if facts.get("in") == "half":
        return "a part of the loss is computed in float16, which ends at 65,504"
    if facts.get("in") == "factor":
        return "something in it is multiplied by infinity, as a division by zero gives it"
    if "name" in facts:
        return f"{facts['name']} in {{place}}" + (f" ({facts['at']})" if "at" in facts else "")
    return "somewhere on the way to the loss" if facts.get("in") == "loss" else "in {place}"


def _equal(facts: Facts) -> str:
    what = "zero" if facts["zero"] else "equal"
    which = "rows" if facts["rows"] else "columns"
    return f"all {facts['units']:,} {which} of {{place}} began {what} and stayed equal"


def _class_or_value(facts: Facts) -> str:
    return f"class {int(facts['value'])} in each batch seen" if facts["class"] else f"always {rough(facts['value'])}"


NEGATIVES = {
    "twins": ("both sides of the comparison are the same", "the inputs {one} and {other} have the same numbers in each batch seen"),
    "left out": ("those that do not belong together do not count", "their likeness is multiplied by 0"),
    "zeros": ("those that do not belong together are labelled 0, not -1", "the loss leaves out labels of 0: {share:.0%} of them"),
    "none": ("there is nothing to compare with", "each score alone can bring the loss down"),
    "one": ("the loss asks all samples to be like one of the batch", "the target is {target} for each"),
    "itself": (
        "the loss asks each sample to be like itself",
        "the scores are a product of the outputs with themselves, and the right ones its diagonal",
    ),
    "alike": ("all that should be told apart is the same", "in each batch seen, every sample has the same {one}"),
}
"""Of wrong negatives: what is wrong, and the evidence."""

CAUSES: dict[str, CauseWords] = {
    # ---- the loop
    "no step": CauseWords(
        lambda f: (
            "one of the optimizers never makes a step"
            if "optimizer" in f
            else f"{f['still']}.step() changes no weight"
            if "still" in f
            else "optimizer.step() is never called"
        ),
        _no_step,
        "backward() computes gradients; only step() changes the weights.",
        lambda f: "let its step() change parameters in place, as p.sub_(…) does: p = p - … makes another tensor" if "still" in f else "",
        lambda f: "" if "still" in f else "optimizer.step()",
    ),
    "never enough to step": CauseWords(
        "the optimizer never makes its step",
        lambda f: (
            f"none of {format.plural(f['backwards'], 'backward pass', 'backward passes')} is followed by a step, and gradients add up"
        ),
        "The loop accumulates gradients, but its condition for a step never holds.",
        "check the condition in front of optimizer.step()",
    ),
    "no backward": CauseWords(
        "backward() is never called",
        lambda f: f"after {_so_many(f)}, no parameter has a gradient",
        "Without backward() no parameter has a gradient, so a step changes nothing.",
        code="loss.backward()",
    ),
    "no zero grad": CauseWords(
        lambda f: f"gradients of all steps add up{' in ' + all_named(f['places']) if 'places' in f else ''}",
        _not_zeroed,
        "backward() adds to .grad: without zero_grad() each step goes along the sum of all gradients so far.",
        lambda f: f"call zero_grad() of the optimizer that holds {all_named(f['places'])}, too" if "places" in f else "",
        lambda f: "" if "places" in f else f"{'model' if f.get('by hand') else 'optimizer'}.zero_grad()",
    ),
    "zeroed before step": CauseWords(
        "gradients are zeroed before the step uses them",
        _zeroed,
        lambda f: (
            "Of the passes between two steps, only what the last one brings is used."
            if "thrown" in f
            else "Something between backward() and step() sets them to None, or to zero."
            if "places" in f
            else "zero_grad() stands between backward() and step()."
        ),
        lambda f: (
            "to add gradients up, call optimizer.zero_grad() once behind each step(); else call step() behind each backward()"
            if "thrown" in f
            else "call optimizer.zero_grad() before backward(), not after it"
        ),
    ),
    "weights put back": CauseWords(
        _undone,
        _put_back,
        "Something loads or copies weights between two steps.",
        lambda f: (
            "initialize the weights once, before the loop: look for reset_parameters() or torch.nn.init in it"
            if "leap" in f
            else "look for load_state_dict() or copy_() in the loop"
        ),
    ),
    "stale weights": CauseWords(
        "the forward pass uses old values of weights",
        lambda f: (
            f"after a step, autocast still gave the cast of {all_named(f['places'])} from before it"
            if f["cast"]
            else f"after a step, the loss was computed with what {all_named(f['places'])} had given before it"
        ),
        "Steps move the weights, and the loss does not see it.",
        lambda f: (
            "enter torch.autocast anew in each step, around the forward pass and the loss: its casts of weights stay until its block ends"
            if f["cast"]
            else "compute it in each step anew"
        ),
    ),
    "eval while training": CauseWords(
        "the model trains in evaluation mode",
        _evaluation,
        "In evaluation mode dropout is off, and a batch normalization uses its running statistics, which then never change.",
        lambda f: "training=self.training where the function is called" if "function" in f else "",
        code=lambda f: "" if "function" in f else "model.train()",
    ),
    "clipped to nothing": CauseWords(
        lambda f: "gradients are cut short" if f.get("bound", 0) > 0.02 * f.get("norm", 1) else "gradients are clipped to almost nothing",
        _clipped,
        "Clipping should touch the rare large gradient. Here it shrinks all of them, so little moves, or nothing.",
        "clip to about the usual norm",
    ),
    "gradients overwritten": CauseWords(
        "something replaces the gradients",
        _overwritten,
        "A hook on a parameter, module or tensor, or a line between backward() and step(), puts something else in the gradient's place.",
        "remove the hook or the line, or let it return the gradient",
    ),
    "accumulated too loud": CauseWords(
        "accumulated gradients are not divided",
        lambda f: f"each step adds up {added(f['passes'])}, and the loss is not divided by that",
        "A sum of k losses takes steps k times as large.",
        "divide the loss by the number of accumulated batches",
    ),
    "scaler misused": CauseWords(
        lambda f: "each step gets a new gradient scaler" if "skipped" in f else "the gradient scaler is used out of order",
        _scaler,
        lambda f: (
            "A scaler begins with a large scale, skips the step when gradients overflow, and lowers the scale for the next one."
            if "skipped" in f
            else "Scaled gradients are tens of thousands of times too large until the scaler has divided them."
        ),
        lambda f: (
            "one GradScaler for the whole training, made before the loop"
            if "skipped" in f
            else "scaler.unscale_(optimizer) before clipping, then scaler.step(optimizer) and scaler.update()"
        ),
    ),
    # ---- the optimizer
    "rate too high": CauseWords(
        "the learning rate is too high",
        _too_high,
        "Steps leap over the valley instead of going down into it.",
        "a tenth of the learning rate, or less",
    ),
    "not finite by the rate": CauseWords(
        lambda f: (
            f"the steps are so large that the loss is not finite, first seen at step {f['step']:,}"
            if f["step"] >= 0
            else "the steps are so large that the weights are not finite"
        ),
        _too_high,
        "Steps as large as that make the weights larger and larger, until numbers overflow.",
        "a tenth of the learning rate or less, or clip_grad_norm_",
    ),
    "rate too low": CauseWords(
        lambda f: f"the learning rate is {'0' if not f['rate'] else 'too low, or the run too short' if 'moved' in f else 'too low'}",
        _hardly,
        "In the steps of this run the weights hardly move.",
        lambda f: "ten times the learning rate, or more" if f["rate"] else "a learning rate above 0",
    ),
    "rate runs out": CauseWords(
        "the learning rate runs out too soon",
        lambda f: (
            f"it fell from {rough(f['most'])} to {rough(f['last'])}, "
            + (f"and is 0 from step {f['since']:,} on" if "since" in f else "most of it in the first half of the run")
        ),
        "A schedule meant for epochs that is stepped for each batch ends the training early.",
        "look at the schedule: how often it steps, over how many steps it goes, and by what (`mode` of ReduceLROnPlateau)",
    ),
    "warmup never ends": CauseWords(
        lambda f: f"the warm-up of the learning rate {'never ends' if 'begins' in f else 'has not ended'}",
        _warms,
        "Until a warm-up ends, steps are far smaller than planned.",
        "a shorter warm-up",
    ),
    "too much momentum": CauseWords(
        lambda f: "momentum remembers more steps than there were" if "steps" in f else "there is too much momentum",
        _momentum,
        lambda f: (
            "Steps are slow to turn to where the gradient points." if "steps" in f else "The weights overshoot, and swing back and forth."
        ),
        "a momentum of 0.9",
    ),
    "too much decay": CauseWords(
        "weight decay is too strong",
        _decays,
        lambda f: (
            "The weights are held back from where the loss would have them."
            if "held" in f
            else "The weights are pulled to zero faster than the loss can move them."
        ),
        "a weight decay of 0.01 or less",
    ),
    "not in the optimizer": CauseWords(
        lambda f: f"the optimizer{'s do' if f.get('several') else ' does'} not hold all parameters",
        _not_held,
        lambda f: (
            "It looks as if it was made before these modules were replaced: then it moves the old ones."
            if "former" in f
            else "step() moves only what the optimizer was given."
        ),
        lambda f: str(FIXES["nearest optimizer"]) if f.get("several") else "",
        lambda f: "" if f.get("several") else "optimizer = {optimizer}(model.parameters())",
    ),
    "another models optimizer": CauseWords(
        "the optimizer belongs to another model",
        "{optimizer} holds none of this model's parameters",
        "It was made for an earlier model, or for a copy: its steps move that one.",
        code="optimizer = {optimizer}(model.parameters())",
    ),
    "two optimizers": CauseWords(
        "two optimizers move the same parameters",
        lambda f: (
            f"{' and '.join(f['optimizers'])} both hold {all_named(f['places'])}"
            + (f", and the second one made {format.plural(f['steps'], 'step')} beside those of the first" if "steps" in f else "")
        ),
        "Each undoes what the other did, or both together go too far.",
        "give each parameter to one optimizer",
    ),
    "groups swapped": CauseWords(
        "a group has a far smaller learning rate than another",
        lambda f: (
            f"{_share(f['share'])} of the weights learn at {rough(f['slow'])}, "
            f"{'the others' if f['share'] + f['rest'] > 0.9999 else _share(f['rest'])} at {rough(f['fast'])}"
        ),
        "The slow group hardly moves in this run.",
        "check which group has which learning rate",
    ),
    # ---- the graph
    "hidden layers": CauseWords(
        "layers are hidden from PyTorch",
        lambda f: (
            "parameters that neither the model nor an optimizer holds come into its output: a function holds them, or makes them anew"
            if "held" in f
            else "{place} is not registered, so nobody trains it"
        ),
        "Modules in a plain list, dict or function are not found by parameters().",
        "make layers in __init__, as attributes; of several, nn.ModuleList or nn.ModuleDict",
    ),
    "without grad": CauseWords(
        "a part of the model runs under no_grad",
        _lost,
        "Under no_grad or inference_mode no graph is built, so nothing in front of it learns.",
        "take the part out of torch.no_grad(); where a checkpoint runs it, use_reentrant=False",
    ),
    "detached": CauseWords(
        "the graph is cut",
        _lost,
        "detach(), .data, .item(), numpy(), an argmax or a new tensor made from numbers: what comes before it gets no gradient.",
        lambda f: (
            "detach the target, and not the answer"
            if "target" in f
            else "keep tensors as they are between the layers and the loss; in place of an argmax or a comparison, a softmax or a sigmoid"
        ),
    ),
    "no gradient through": CauseWords(
        "a function without a gradient stands in the way",
        lambda f: f"{_function_before(f)}{{place}}: {_lost(f)}",
        "Rounding, comparing, argmax and sign have a gradient of zero or none, and so may a torch.autograd.Function of one's own.",
        lambda f: (
            "multiply what is chosen by how much it is chosen, as by its share in a softmax; "
            "of the rows of a table, a straight-through estimator: z + (row - z).detach()"
            if f.get("chooses")
            else "use a smooth function, or a straight-through estimator"
        ),
    ),
    "unused layers": CauseWords(
        "layers are not used",
        lambda f: _lost(f) + (", though they are called" if f.get("called") else ""),
        lambda f: (
            "Something takes the numbers out of what they give, or throws it away."
            if f.get("called")
            else "forward leaves them out, or throws their result away."
        ),
        lambda f: (
            "bring what they give into the loss as it is, without .item() or .detach()"
            if f.get("called")
            else "use them in forward, or remove them"
        ),
    ),
    "frozen": CauseWords(
        lambda f: (
            "a layer of zeros is frozen"
            if f.get("zero")
            else "the last layer is frozen as it was initialized"
            if f.get("last")
            else f"{_part(f['share'])} of the model is frozen"
        ),
        lambda f: (
            "{place} holds only zeros, and has requires_grad=False"
            if f.get("zero")
            else "{place} has requires_grad=False, although the optimizer holds it, and its numbers are as PyTorch draws them"
            if f.get("last")
            else f"{'all' if f['share'] == 1 else _share(f['share']) + ' of'} its numbers have requires_grad=False{_held(f)}"
            + (", and most of these are as PyTorch draws them" if f.get("fresh") else "")
        ),
        "What is frozen stays as it was initialized or loaded.",
        lambda f: "first freeze what is trained, and then put the new layer in" if f.get("last") else "",
        lambda f: "" if f.get("last") else "model.requires_grad_(True)",
    ),
    # ---- the loss
    "one logit": CauseWords(
        "a cross-entropy over one output is always right",
        "the scores have a single class, whose probability is always 1",
        "The loss is 0 whatever the model says, so nothing is learned.",
        "use nn.BCEWithLogitsLoss(), or one output per class",
    ),
    "broadcast": CauseWords(
        "output and target are broadcast against each other",
        lambda f: f"the output has shape {_axis(f['output'])}, and {_axis(f['compared'])} is compared",
        "Each output is compared with each target, so the best answer is the mean.",
        "give both the same shape: output.squeeze(-1) or target.unsqueeze(-1)",
    ),
    "softmax before cross entropy": CauseWords(
        "the scores are squashed before the cross-entropy",
        lambda f: (
            f"they have been through a {f['function'].lower()}, and it applies its own softmax"
            if f["function"]
            else "they are chances already, which add up to 1, and it applies its own softmax"
        ),
        "Scores between 0 and 1 can never be sure: the loss stays high and its gradients small.",
        "give the cross-entropy the raw scores",
    ),
    "softmax over the wrong dimension": CauseWords(
        "softmax normalizes over the wrong dimension",
        lambda f: (
            f"the weights of {{place}} add up to 1 along dimension {f['along']}, not over the positions that are looked at"
            if f.get("attention")
            else "what a softmax gives on the way to the loss adds up to 1 along dimension 0, in which the samples are"
            if f.get("anywhere")
            else "what a softmax gives on the way to the output of {place} adds up to 1 along dimension 0, in which the samples are"
            if f.get("samples")
            else f"the probabilities add up to 1 along dimension {f['along']}, not over the classes"
        ),
        "Samples or positions compete with each other, and the classes do not.",
        lambda f: (
            "the classes before the places: movedim(-1, 1) of the scores"
            if f.get("turn")
            else "softmax over the last dimension, or that of the classes"
            if not f.get("samples")
            else f"softmax over dimension {f['right']}"
            if f["right"] > 0
            else "softmax over the dimension of what is chosen from, not over that of the samples"
        ),
    ),
    "no log": CauseWords(
        "the loss expects log-probabilities",
        lambda f: (
            "the targets add up to 1 as they are, and log_target=True promises logarithms"
            if f.get("of") == "targets"
            else "the target that it gets is below zero: logarithms where it takes chances, as when input and target are exchanged"
            if f.get("of") == "logarithms"
            else "what it gets comes from a softmax without its logarithm"
            if f.get("of") == "softmax"
            else "exp() of what it gets does not add up to 1, as that of log-probabilities does"
        ),
        "nll_loss and kl_div take logarithms; without them the loss can fall below zero for ever.",
        "F.log_softmax before it, or nn.CrossEntropyLoss()",
    ),
    "sigmoid twice": CauseWords(
        "sigmoid is applied twice",
        lambda f: (
            "the scores pile up at 0 or 1, none that was seen lies beyond, and the loss applies a sigmoid"
            if f.get("seen")
            else "the scores have been through a sigmoid, and the loss applies one more"
        ),
        "Scores between 0 and 1 stand for chances between 50 and 73 %: the model can never be sure.",
        "give the loss the raw scores",
    ),
    "output cannot reach": CauseWords(
        "the last activation cannot reach the targets",
        _unreached,
        "What lies outside of its range is never predicted.",
        lambda f: f"{'a linear layer behind it' if 'state' in f else 'no activation after the last layer'}, or scale the targets",
    ),
    "wrong sign": CauseWords(
        lambda f: f"{'a part of ' if f['how'] == 'squares' else ''}the loss is turned around",
        _sign,
        lambda f: "They grow without end." if f["how"] == "squares" else "Training makes worse what it should make better.",
        lambda f: TURNED_BACK.get(f["how"], "remove the minus sign"),
    ),
    "weights of classes": CauseWords(
        "the class weights are far off",
        _weights_felt,
        "The other classes hardly count, so the model ignores them.",
        "weights inversely proportional to the frequencies",
    ),
    "loss too small": CauseWords(
        "the loss is scaled down to almost nothing",
        _scaled_down,
        "Gradients shrink with it, and so do the steps.",
        lambda f: "a delta of the size of the errors" if f["bends"] else "remove the factor",
    ),
    "loss too large": CauseWords(
        "the loss is scaled up",
        _multiplied,
        "Its gradient, and each step, grow with the batch.",
        "reduction='mean', and no factor",
    ),
    "regression of classes": CauseWords(
        "class numbers are learned as quantities",
        lambda f: (
            "the targets are the numbers of the next tokens, under a regression loss"
            if f.get("tokens")
            else f"the targets are the {f['classes']} whole numbers from 0 on, under a regression loss"
        ),
        "Class 2 is not twice class 1: the best answer lies between classes.",
        "one output per class and nn.CrossEntropyLoss()",
    ),
    "constant loss": CauseWords(
        lambda f: "the output equals the targets from the start" if f.get("equal") else "the loss does not depend on the output",
        lambda f: (
            "each loss seen is 0, so that nothing is left to learn"
            if f.get("equal")
            else "what backward() is called on is a penalty on the parameters, and nothing else"
            if f.get("penalty")
            else "it is multiplied by 0, and what is left asks for the same share of each class"
            if f.get("zero")
            else f"only a divergence is left in it, and no gradient comes to {all_named(f['places'])}"
            if f.get("lacks")
            else f"{_level(f)}its gradient is zero in each look"
        ),
        lambda f: (
            "The targets are made from the output; or all of it is learnt already."
            if f.get("equal")
            else "Something between the output and the loss throws the output away, or clamps it."
        ),
        lambda f: "look at where targets are made" if f.get("equal") else "look at what the loss is computed from",
    ),
    # ---- the data
    "not a number in data": CauseWords(
        lambda f: "a batch may hold NaN or infinity" if "calm" in f else "the data holds NaN or infinity",
        lambda f: (
            f"steps were small, and the loss was {rough(f['last'])} before it was NaN: a rate hardly does that; a bad "
            "batch does, or an exp, a logarithm or a root of the model's own"
            if "calm" in f
            else f"one of step {f['step']:,} has {f['bad']:,} among {f['numbers']:,}, and no loss seen is NaN: such batches may be left out"
            if "left out" in f
            else "a batch holds numbers that are not finite"
        ),
        lambda f: (
            "If such batches are skipped, nobody sees how many they are, and what is in the rest of each of them is lost."
            if "left out" in f
            else "One such number is enough to spoil all weights in one step."
        ),
        "torch.isfinite(batch).all() where the batch is made",
    ),
    "constant targets": CauseWords(
        "all targets are the same",
        _class_or_value,
        "A constant answer is perfect, so nothing about the inputs is learned.",
        "look at where targets are made",
    ),
    "constant inputs": CauseWords(
        lambda f: f"{'most' if 'share' in f else 'all'} inputs are the same",
        lambda f: (
            f"{_share(f['share'])} of the samples of a batch have the same numbers"
            if "share" in f
            else "in each batch seen, every sample has the same input"
        ),
        lambda f: f"The model cannot tell {'these' if 'share' in f else 'samples'} apart.",
        "look at where inputs are made: zeroed, overwritten, or indexed by one row",
    ),
    "ordered batches": CauseWords(
        "batches are sorted by their target",
        _order,
        "Each step unlearns the class before: the model swings from one class to the next.",
        "DataLoader(..., shuffle=True)",
    ),
    "imbalance": CauseWords(
        "nearly all targets are of one class",
        lambda f: f"{_share(f['share'])} of them are class {f['class']}",
        "Always saying that class is almost right.",
        "sample classes evenly, or weight them",
    ),
    "leak": CauseWords(
        "an input tells the target by itself",
        lambda f: (
            f"in each place of a series, the number at index {f['feature']} (of {f['features']:,}) is what is asked for there"
            if "each" in f
            else f"the feature at index {f['feature']} (of {f['features']:,}) tells {_share(f['told'])} of it"
        ),
        "If it is not there later, the model will know nothing.",
        "leave that feature out, and see whether the model still learns",
    ),
    "same batch": CauseWords(
        "the same batch comes again and again",
        lambda f: f"each batch seen held the same {f['samples']:,} samples",
        "The model learns them by heart.",
        "draw a new batch in each step",
    ),
    "few samples": CauseWords(
        "there are only a few samples",
        lambda f: f"{f['seen']:,} samples seen, {f['samples']:,} different ones",
        "The model can learn them by heart instead of what they have in common.",
        "more data, augmentation, or a smaller model",
    ),
    "one huge feature": CauseWords(
        "one feature is far larger than the others",
        lambda f: f"in one batch, standard deviations of the inputs' features go from {rough(f['low'])} to {rough(f['high'])}",
        "Its weights get nearly all of the gradient, and the others are drowned out.",
        "scale each feature: (x - mean) / std",
    ),
    "inputs not scaled": CauseWords(
        "the inputs are far from unit scale",
        lambda f: f"mean {rough(f['mean'])}, standard deviation {rough(f['std'])}",
        "Activations and gradients are as large as the inputs, and steps too large or units saturated.",
        "(x - mean) / std",
    ),
    "inputs vanish": CauseWords(
        "the inputs are almost zero",
        lambda f: f"mean {rough(f['mean'])}, standard deviation {rough(f['std'])}",
        "The first layer sees almost nothing: was something divided twice?",
        "(x - mean) / std",
    ),
    "targets not scaled": CauseWords(
        lambda f: "the targets lie beyond 0 and 1" if "high" in f else "the targets are far from unit scale",
        lambda f: (
            f"a binary cross-entropy takes targets for chances, and they go from {rough(f['low'])} to {rough(f['high'])}"
            if "high" in f
            else f"mean {rough(f['mean'])}, standard deviation {rough(f['std'])}"
            + (f", where that of the outputs began at {rough(f['outputs'])}" if "outputs" in f else "")
        ),
        lambda f: (
            "Beyond 0 and 1 that loss has no least value: the scores grow without end."
            if "high" in f
            else "What is left of the larger outputs hides what should be learned."
            if "outputs" in f
            else "The last layer has to grow a long way, or the steps explode."
        ),
        lambda f: "targets from 0 to 1: (y - low) / (high - low)" if "high" in f else "learn (y - mean) / std",
    ),
    "targets shifted": CauseWords(
        lambda f: (
            "each target is one token too far on"
            if "skipped" in f
            else "each target belongs to another place of its series"
            if "along" in f
            else "each batch has the targets of the one before"
            if "late" in f
            else "each target belongs to a neighbouring sample"
        ),
        lambda f: (
            f"{_share(f['skipped'])} of the targets are the token after the next one, {_share(f['share'])} the next one"
            if "skipped" in f
            else _beside(f)
        ),
        "Inputs and targets are out of step.",
        "look at where inputs and targets are joined",
    ),
    "wrong axes": CauseWords(
        lambda f: (
            f"{'outputs' if 'output' in f else 'numbers' if 'taken' in f else 'inputs'} were reshaped where axes should have been moved"
        ),
        _reshaped,
        "reshape() keeps the order of the numbers, so samples or channels are mixed.",
        "x.transpose() or x.permute() instead of x.reshape()",
    ),
    "too much noise": CauseWords(
        "noise drowns the inputs",
        _drowning,
        "What should be learned cannot be seen.",
        "less augmentation",
    ),
    "targets shuffled": CauseWords(
        "nothing simple in the inputs tells the targets",
        lambda f: (
            f"neither a line nor neighbours found them in {f['pairs']:,} pairs, and the loss ends at {rough(f['loss'])}, where always "
            f"giving the same answer is at {rough(f['baseline'])}"
        ),
        "They may have been shuffled apart, or the inputs do not hold what is asked; what is hard to find looks the same.",
        "look at a few inputs beside their targets",
    ),
    # ---- the model
    "all weights equal": CauseWords(
        "all units of a layer are copies of each other",
        _equal,
        "Equal units get equal gradients: the layer stays one unit wide.",
        "leave the initialization to PyTorch, or draw it at random",
    ),
    "overwritten activation": CauseWords(
        lambda f: (
            "only the sum of a softmax is used, which is 1"
            if f.get("ones")
            else "each number is normalized by itself, which leaves nothing of it"
            if f.get("normalized")
            else "a value is overwritten by one for all samples"
            if f.get("same")
            else "a value is thrown away"
            if f.get("behind")
            else "a value is overwritten with zeros"
        ),
        lambda f: (
            "{place} takes the same for each input"
            if f.get("ones")
            else "{place} takes its mean over one number, and gives its bias for any input"
            if f.get("normalized")
            else "samples differ as {place} gives them, and are all the same where they are taken next"
            if f.get("same")
            else f"no gradient comes to {all_named(f['places'])} in any look, though the layers behind have theirs"
            if f.get("behind")
            else f"only zeros were seen at {all_named(f['places'])}"
        ),
        "Whatever the layers before compute is thrown away.",
        lambda f: (
            "weigh something by it"
            if f.get("ones")
            else "normalize over several numbers, or leave it out"
            if f.get("normalized")
            else "look for a line behind it that writes into it, or puts one sample for all"
            if f.get("same")
            else "look for what stands in its place, a product with zero, or a mask that hides everything"
        ),
    ),
    "batch norm of one": CauseWords(
        "a batch normalization gets too few values",
        lambda f: (
            f"{{place}} sees {format.plural(f['values'], 'value')} for each channel"
            f"{', all of one sample' if f.get('samples') == 1 and f['values'] > 1 else ''}"
        ),
        "Mean and variance of so few values are noise.",
        "larger batches, or nn.GroupNorm or nn.LayerNorm",
    ),
    "batch norm statistics": CauseWords(
        "the running statistics of a batch normalization do not follow",
        _statistics,
        "In evaluation mode it normalizes with statistics of data that it has never seen.",
        lambda f: (
            ""
            if "momentum" in f
            else "do not reset its statistics before evaluating, or let it see batches in training mode after that"
            if "looks" in f
            else "leave its statistics alone between the steps"
        ),
        lambda f: "model.get_submodule({path!r}).momentum = 0.1" if "momentum" in f else "",
    ),
    "too much dropout": CauseWords(
        "dropout takes nearly everything",
        lambda f: f"{{place}} drops {_share(f['p'])}",
        "What is left is mostly noise.",
        "p=0.1 to 0.5",
    ),
    "no nonlinearity": CauseWords(
        "nothing stands between linear layers",
        lambda f: f"{{place}} takes what {named(f['after'])} gives, as it is",
        "Two linear layers in a row are one: the model can only learn straight lines.",
        "nn.ReLU() or nn.GELU() between them",
    ),
    "weights begin too large": CauseWords(
        lambda f: f"the weights {_began(f)} far too large",
        lambda f: (
            f"the loss {_began(f, 'is', 'began at')} {rough(f['start'])}, from inputs of usual size; a constant answer has "
            f"{rough(f['baseline'])}"
            if "start" in f
            else _scaled(f)
        ),
        "Activations saturate or explode from the first step on.",
        lambda f: INITIALIZED if "copied" not in f else f"{INITIALIZED}; if it was trained, smaller steps",
    ),
    "weights begin too small": CauseWords(
        lambda f: f"the weights {_began(f)} far too small",
        _scaled,
        "Signal and gradient vanish from layer to layer.",
        INITIALIZED,
    ),
    "vanishing gradient": CauseWords(
        lambda f: "the gradient vanishes on its way back" if f["ratio"] else "only zeros come back as the gradient",
        lambda f: (
            f"that of {{place}} is {rough(f['ratio'])} times that of {named(f['last'])}"
            if f["ratio"] and "last" in f
            else "that of {place} is zero in each look"
        ),
        lambda f: "The first layers hardly learn." if f["ratio"] else "Nothing learns there.",
        lambda f: (
            "residual connections, a normalization, ReLU instead of sigmoid"
            if f["ratio"]
            else "look behind it for a mask, a product with zero, or an activation at its flat end, before which a normalization helps"
        ),
    ),
    "shared by mistake": CauseWords(
        "one layer stands in several places",
        lambda f: f"{all_named(f['places'])} are one and the same" + (", and take the same in one pass" if f.get("alike") else ""),
        "[layer] * n repeats the same object: all places share its weights.",
        lambda f: (
            ("if that is not meant: " if f.get("perhaps") else "")
            + "make a layer for each place: nn.Sequential(*(make() for _ in range(n)))"
        ),
    ),
    "dead units": CauseWords(
        lambda f: (
            f"{f['dead']:,} of {format.plural(f['units'], 'unit')} of {{place}} are dead"
            if "units" in f
            else "nothing of {place} gets through"
        ),
        lambda f: (
            f"it gives {rough(f['most'])} at most, and no gradient comes back, as from a ReLU that gets only numbers below zero"
            if "most" in f
            else f"they are zero on all {f['inputs']:,} inputs seen"
            if f.get("never")
            else f"they are zero on all the last {f['inputs']:,} inputs"
        ),
        "A unit that is zero for every input passes no gradient on, and its own weights get none.",
        lambda f: (
            f"look at its biases, and at what it gets: {'it was' if 'most' in f else 'they were'} dead from the first look on. "
            "nn.LeakyReLU keeps units alive"
            if f.get("never")
            else "nn.LeakyReLU, a smaller learning rate or a different seed keeps units alive"
        ),
    ),
    "bottleneck": CauseWords(
        "a layer is too narrow",
        lambda f: f"{{place}} squeezes {f['in']:,} numbers of a sample into {f['out']:,}",
        "What does not fit through is lost.",
        "more units there",
    ),
    "no bias where needed": CauseWords(
        lambda f: "biases are left out" if "places" in f else "no layer has a bias",
        lambda f: (
            f"the weights beside {all_named(f['places'])} have a gradient, and these have none"
            if "places" in f
            else f"{f['layers']} layers, none with a bias"
        ),
        "Without a bias a layer gives 0 for an input of 0: it cannot shift what it gives.",
        "bias=True",
    ),
    # ---- sequences
    "sees the future": CauseWords(
        "the model sees the token that it should predict",
        _future,
        lambda f: (
            "It learns to copy: the loss is low, and what it writes by itself is nonsense."
            if f.get("low")
            else "It learns to copy, if anything: the loss may become low, and what it writes by itself stays nonsense."
        ),
        "a causal mask, or one direction",
    ),
    "targets not moved": CauseWords(
        "the targets are the inputs themselves",
        lambda f: (
            "the model is given, at each place, the token that is asked for there"
            if f.get("fed")
            else "a second input of the model equals the target in each number"
            if f.get("beside")
            else f"{_share(f['asked'])} of the places are asked for, and the input holds the answer at each of them: none is hidden"
            if f.get("unhidden")
            else f"{_share(f['share'])} of the targets are what stands in the input at the same place"
        ),
        lambda f: (
            "A model that should fill in what is hidden learns to repeat instead."
            if f.get("unhidden")
            else "A model of sequences should predict what comes next: it learns to repeat instead."
        ),
        lambda f: (
            "give the model tokens.masked_fill(asked, mask_token)"
            if f.get("unhidden")
            else "inputs = tokens[:, :-1]; targets = tokens[:, 1:]"
        ),
    ),
    "mask turned around": CauseWords(
        lambda f: f"the {MASKS.get(f['how'], 'attention mask')} is turned around",
        _mask,
        "In PyTorch, True in key_padding_mask and in a boolean attn_mask of nn.MultiheadAttention means: do not look.",
        "invert the mask",
    ),
    "padding idx of a token": CauseWords(
        "padding_idx is a real token",
        lambda f: f"in the call last seen, token {f['token']} is {_share(f['share'])} of what {{place}} gets, and stands between others",
        "Its embedding stays zero and never learns.",
        "a padding_idx of its own",
    ),
    "batch first mixed up": CauseWords(
        "batch and time are mixed up",
        lambda f: (
            f"targets go row by row, and outputs are {tuple(f['laid'])} in the loss"
            if "laid" in f
            else f"{{place}} has batch_first={f['batch_first']}, and gets {_axis(f['shape'])}"
        ),
        "Samples and positions are exchanged: what lies along one is taken for the other.",
        "set batch_first to fit the data, or transpose the first two dimensions",
    ),
    "state not kept": CauseWords(
        lambda f: "only the first output of a sequence is read" if f.get("length", 0) > 1 else "the recurrent state is not kept",
        lambda f: (
            f"{{place}} is called {f['calls']} times in a pass, and begins each time with the same state"
            if "same" in f
            else "{place} reads, and nothing takes what it gives"
            if "unheard" in f
            else f"{{place}} is called {f['calls']} times in a pass, with one step each and without the state of the step before"
            if f["calls"]
            else f"no gradient comes to the weights by which {{place}} passes its state on, of which it makes {f['length']} steps"
            if f.get("length", 0) > 1
            else "no gradient comes to the weights of {place} by which one step passes its state on to the next"
        ),
        "Nothing is remembered from one step to the next.",
        lambda f: (
            "read the last output: out[:, -1], or out[-1] without batch_first"
            if f.get("length", 0) > 1
            else "give it the state of the step before, or the whole sequence"
        ),
    ),
    "no positions": CauseWords(
        lambda f: "attention may not know the positions" if "table" in f else "attention cannot tell one position from another",
        lambda f: (
            f"nothing uses {named(f['table'])}, and all else gets a gradient: is it the table of the positions?"
            if "table" in f
            else f"{{place}} gives the same one of its {f['rows']:,} rows for every position"
            if "rows" in f
            else "nothing that comes into {place} depends on where in the sequence it stands"
        ),
        "Attention sees a set: in another order, the same tokens give the same.",
        "add an embedding of the positions, torch.arange(length), to that of the tokens",
    ),
    "exploding recurrence": CauseWords(
        lambda f: "the recurrence explodes" if "mode" in f else "a recurrence may explode",
        lambda f: (
            "{place} ({mode}) multiplies its state again in each step, and the loss or its gradient bursts"
            if "mode" in f
            else f"the loss is huge, and {{place}} ({f['rows']:,} × {f['rows']:,}) stands beside {named(f['beside'])}, which is called "
            f"{f['calls']} times in a pass: it may multiply a state each time"
            if "beside" in f
            else f"the loss is huge, and {{place}} is called {f['calls']} times in a pass: it may get what it gave before"
        ),
        "A factor above 1, taken to the power of the length.",
        "clip_grad_norm_, an LSTM or GRU, or an orthogonal initialization",
    ),
    "padding counts": CauseWords(
        lambda f: {"mean": "padding counts in the mean", "last": "the state is read after the padding"}.get(
            str(f.get("how")), "padding counts in the loss"
        ),
        lambda f: (
            f"{_share(f['share'])} of what {{place}} gets is token {f['token']}, which "
            f"{'stands at an end of each row' if f['even'] else 'fills rows up'}, and the mean is taken over all of it"
            if f.get("how") == "mean"
            else f"the last {f['steps']:,} of {f['length']:,} steps of {{place}} bring the same, and its state after them is what is read"
            if f.get("how") == "last"
            else f"{_share(f['share'])} of all places are zeros at the ends of series, and the error is a mean over all of them"
            if f.get("how") == "zeros"
            else f"{_share(f['share'])} of the targets are padding, and none is left out"
        ),
        lambda f: {
            "mean": "What tells samples apart is next to nothing in it.",
            "last": "By then it has forgotten what came before.",
        }.get(str(f.get("how")), "The model is rewarded for predicting padding."),
        lambda f: {
            "mean": "divide the sum of the real tokens by their number"
            + (", or give it that token as padding_idx of nn.EmbeddingBag" if f.get("bag") else ""),
            "zeros": "multiply the errors by a mask of the real places, and divide their sum by that of the mask",
            "last": "nn.utils.rnn.pack_padded_sequence, or read the output at the last real step of each sample",
        }.get(str(f.get("how")), "nn.CrossEntropyLoss(ignore_index=…)"),
    ),
    "tokens unknown": CauseWords(
        "nearly all tokens are the same",
        lambda f: (
            f"token {f['token']} is {_share(f['share'])} of the inputs"
            + (f" beside {f['filler']}, which fills rows up" if f.get("filler", f["token"]) != f["token"] else "")
            if f["token"] >= 0
            else f"only {_share(f['share'])} of the rows of {{place}} are ever looked up"
        ),
        "The vocabulary does not fit the data, or nearly all is padding.",
        "look at what the tokenizer gives",
    ),
    # ---- the numbers
    "log of zero": CauseWords(
        lambda f: (
            "the loss may have taken the logarithm of zero"
            if "last" in f
            else {"negative": "a logarithm of a negative number", "either": "a logarithm of zero, or of a negative number"}.get(
                str(f.get("how")), "a logarithm of zero"
            )
        ),
        lambda f: (
            "it takes that of a sigmoid or softmax as it is, which rounds to 0 where the model is sure; "
            f"steps were small, and it was {rough(f['last'])} before it was no longer finite"
            if "last" in f
            else _born(f)
        ),
        lambda f: {
            "negative": "log(x) is NaN below 0.",
            "either": "log(0) is minus infinity, and below 0 it is NaN.",
        }.get(str(f.get("how")), "log(0) is minus infinity."),
        lambda f: (
            "make x positive, as F.softplus(x) or exp does, or let the model give the logarithm itself"
            if f.get("how") == "negative"
            else "torch.log(x.clamp_min(1e-8)), or log_softmax"
        ),
    ),
    "root of zero": CauseWords(
        lambda f: (
            "the loss may have taken a root at zero"
            if "last" in f
            else {"negative": "a root of a negative number", "end": "a slope that is infinite at the end of its range"}.get(
                str(f.get("how")), "a root at zero"
            )
        ),
        lambda f: (
            "it takes roots of squares as they are, which are 0 where two things are equal; "
            f"steps were small, and it was {rough(f['last'])} before it was no longer finite"
            if "last" in f
            else _born(f)
        ),
        lambda f: {
            "negative": "The root of a number below 0 is NaN.",
            "end": "That of acos and asin is infinite at -1 and 1.",
        }.get(str(f.get("how")), "The slope of a square root, a norm or a standard deviation at 0 is infinite."),
        lambda f: {
            "negative": "torch.sqrt(F.softplus(x)), or x.clamp_min(1e-8) if x should not be negative",
            "end": "x.clamp(-1 + 1e-6, 1 - 1e-6)",
        }.get(str(f.get("how")), "torch.sqrt(x + 1e-8)"),
    ),
    "division by zero": CauseWords(
        lambda f: "the loss has an infinite factor" if f.get("in") == "factor" else "a division by zero",
        _born,
        "As in the mean of nothing.",
        lambda f: (
            "look for float('inf') among the factors, and for what they are divided by"
            if f.get("in") == "factor"
            else "x / y.clamp(min=1) if y is a count; else x / (y + 1e-8), which helps only where x is as small"
        ),
    ),
    "overflow": CauseWords(
        "a number overflows", _born, "exp, or a 16-bit number, has an end.", "log_softmax instead of exp, or float32 there"
    ),
    "underflow": CauseWords(
        "16-bit gradients underflow to zero",
        lambda f: (
            f"what {f['optimizer']} divides by is float16, as the weights are: an eps of 1e-8 is 0 there, and so is a tiny gradient squared"
            if "optimizer" in f
            else f"backward() brings {rough(f['brought'])} at most, and zeros stand in its place at the step"
            if "brought" in f
            else "a part of the loss is computed in float16, and gradients are zero"
            if f.get("places")
            else "numbers are computed in float16, without a scaler, and steps hardly move the weights"
        ),
        "Below 6e-8 there is nothing in float16.",
        "torch.amp.GradScaler, or bfloat16",
    ),
    "too few digits": CauseWords(
        "16-bit weights do not move",
        lambda f: (
            "after each step the weights have no more digits than 16-bit numbers have"
            if "looks" in f
            else f"{_share(f['share'])} of the numbers in {{place}} ({f['dtype']}) stay as they are after a step"
        ),
        "A step smaller than the gap to the next number is rounded away.",
        "keep the weights in float32 and use torch.autocast",
    ),
    # ---- generative models
    "collapse": CauseWords(
        lambda f: (
            "what belongs together is not told from the rest"
            if "nearly" in f
            else "outputs of different samples become alike"
            if "left" in f
            else "all outputs become the same"
        ),
        lambda f: (
            "of the margin nearly all is left, and the pair that belongs together is no nearer than the other"
            if "nearly" in f
            else f"they differ by {_share(f['left'])} of what they did at first, and yet the loss falls"
            if "left" in f
            else f"outputs of different samples are {_share(f['spread'])} apart, and yet the loss falls"
        ),
        lambda f: (
            "All outputs have become the same, or the negatives belong together as well."
            if "nearly" in f
            else "The loss asks for nothing that tells samples apart."
        ),
        "negatives, a stop-gradient, or a term for the variance",
    ),
    "latent ignored": CauseWords(
        "the latent is ignored",
        lambda f: f"its variance is 1 to within {_share(f['away'])} for each sample, as if nothing had been put in",
        "The divergence weighs so much that saying nothing is the cheapest answer.",
        "a smaller weight for the divergence, or warm it up",
    ),
    "noise level hidden": CauseWords(
        "the model may not be told how noisy its input is",
        lambda f: (
            f"the numbers of one sample spread by {rough(f['low'])}, of another by {rough(f['high'])}, and nothing else goes in"
            if "low" in f
            else "what stands in {place} tells nothing of how the input differs from the target: does it belong to another sample?"
            if "other" in f
            else "what stands in {place} is the same for all samples of a batch, in each batch seen"
        ),
        "The best answer depends on the level of the noise; without it, all levels get the same.",
        lambda f: f"give the model the level {'that its input was made with' if 'other' in f else 'as a second input'}",
    ),
    "generator detached": CauseWords(
        "what one optimizer holds gets no gradient",
        lambda f: (
            f"{'only zeros' if f.get('zero') else 'no gradient'} reached {all_named(f['places'])}, though another loss trains the rest"
        ),
        "Its images were detached or rounded, or the step before is the only one that looks at them.",
        "do not detach what the generator has made in the generator's own step",
    ),
    "wrong negatives": CauseWords(
        lambda f: NEGATIVES.get(f.get("how", ""), ("each sample is compared with itself", ""))[0],
        lambda f: (
            NEGATIVES[f["how"]][1].format_map(f)
            if "how" in f
            else "the scores are a product of the outputs with themselves, and the diagonal is not left out"
        ),
        "There is nothing to tell apart, so nothing is learned that does.",
        lambda f: (
            "label what does not belong together -1"
            if f.get("how") == "zeros"
            else "compare two views, each with all others, and mask what belongs together"
        ),
    ),
    "temperature": CauseWords(
        "the temperature is far off",
        lambda f: (
            f"at first, a position of {{place}} already gives {_share(f['sharp'])} of its weight to one other"
            if "sharp" in f
            else "the targets give all classes the same share"
            if "even" in f
            else f"scores go with the right ones, and yet the logarithms of their chances differ by {rough(f['deviation'])} alone"
            if "found" in f
            else f"scores are divided by {rough(f['temperature'])}"
        ),
        "All scores are alike, or one takes everything: the gradient is lost either way.",
        "a temperature between 0.05 and 1",
    ),
    "discriminator wins": CauseWords(
        "the discriminator wins",
        lambda f: (
            f"its loss is down to {rough(f['low'])}, and that of the other one is flat"
            if abs(f["high"]) < 0.02
            else f"its loss is down to {rough(f['low'])}, while the other one is at {rough(f['high'])}"
        ),
        "A discriminator that is sure has no gradient left for the generator.",
        "a smaller learning rate for the discriminator, or fewer steps of it",
    ),
}
"""By the kind of a finding, which is a key of the causes in bench/sick."""

SETTLES: dict[str, str] = {
    "made last": "make the optimizer after the last change of the model, and run again",
    "without hooks": "run again without the hooks on modules and tensors",
    "hooks": "w.diagnose()  # asks for the gradients with the hooks and without",
    "why": "t.why({asked!r}), after a step within `with modlab.trace(model) as t:`",
    "step": 'print("step")  # beside optimizer.step(): is that line reached?',
    "before and after": "parameter.grad.abs().max()  # before and after what replaces it: below 6e-8, float16 has only zero",
    "graph of the loss": "loss.grad_fn  # without loss.requires_grad_(): None, if it was cut",
    "smaller rate": "run again with a tenth of the learning rate",
    "digits": "run again with model.float()",
    "larger rate": "run again with ten times the learning rate",
    "less momentum": "run again with momentum=0.9",
    "no decay": "run again with weight_decay=0",
    "rates": "w.figure('loss')  # beside the learning rate",
    "one rate": "run again with one learning rate for all",
    "divide": "run again with the loss divided",
    "scale the loss": "run again with a loss of the usual size",
    "mean": "run again with reduction='mean'",
    "scale": "modlab.measure(inputs)",
    "scale the targets": "modlab.measure(target)",
    "pairs": "modlab.diagnose(model, optimizer, batch=(inputs, target), loss=loss)",
    "batches": "len(dataset)",
    "batch": "torch.isfinite(inputs).all(), torch.isfinite(target).all()",
    "tokens": "inputs.unique(return_counts=True)",
    "scale of the weights": "modlab.state(model)",
    "gradients": "behind backward(), [(name, one.grad.norm()) for name, one in model.named_parameters() if one.grad is not None]",
    "negatives": "outputs.std(0)",
    "own negatives": "(positive - negative).abs().max()  # 0, if each sample is its own negative",
    "labels": "torch.unique(targets of the whole data set, return_counts=True)",
}
"""What tells a cause from its rival."""

RATES = frozenset(("rate too high", "not finite by the rate"))
"""Two stages of one cause."""


def is_cause(finding: Finding) -> bool:
    """Whether the table of causes has made it, and so its words are here: other findings may have the same name."""
    return finding.kind in CAUSES and "tier" in finding.facts


def filled(words: Words, finding: Finding) -> str:
    """With the finding's facts and place in it."""
    text = words if isinstance(words, str) else words(finding.facts)
    known = {"asked": _asked(finding), **finding.facts, "place": named(finding.path), "path": finding.path}
    return text.format_map(known) if "{" in text else text


def _asked(finding: Finding) -> str:
    """The parameter of which a trace can say why it has no gradient; the place itself may be a module."""
    places = finding.facts.get("places") or ()
    return str(places[0]) if isinstance(places, tuple) and places and finding.path not in places else finding.path


def halves(finding: Finding) -> tuple[str, str]:
    """What is wrong, and the evidence."""
    words = CAUSES[finding.kind]
    return filled(words.says, finding), filled(words.evidence, finding)


def reason(finding: Finding) -> str:
    """What it means."""
    return filled(CAUSES[finding.kind].why, finding)


def advice(finding: Finding) -> tuple[str, str]:
    """The line to copy, and in words what to do and what settles whether it is this cause or the one that looks most like it."""
    words = CAUSES[finding.kind]
    parts = (filled(words.fix, finding), settled(finding))
    return filled(words.code, finding), ". ".join(capital(one) if place else one for place, one in enumerate(filter(None, parts)))


def settled(finding: Finding) -> str:
    """The line that tells it from its rival, and from which; empty where there is none, or where the fix tells."""
    settle, rival = finding.facts.get("settle"), finding.facts.get("rival")
    if not settle or {finding.kind, rival} <= RATES:
        return ""
    return f"to tell it from “{rival}”: {filled(SETTLES[str(settle)], finding)}"
