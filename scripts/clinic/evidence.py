"""From facts to sentences: what rules a cause out, and what shows it. A rule that does not hold says nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

from modlab.format import plural, rough, shape, share
from scripts.clinic.facts import Facts, between

Rule = Callable[[Facts], str | None]
Shown = tuple[str, tuple[str, ...]]

EMBEDDINGS = ("embedding", "tokens", "places", "users", "items", "bias")
"""What the nets call their embeddings."""

RULED_OUT: dict[str, Rule] = {}
"""By cause: why it is not this one."""
SHOWN: dict[str, Callable[[Facts], Shown]] = {}
"""By cause: what shows it, and the looks in which that stands."""


def _not(*causes: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        RULED_OUT.update(dict.fromkeys(causes, rule))
        return rule

    return add


def _is(cause: str, *looks: str) -> Callable[[Callable[[Facts], str]], Callable[[Facts], str]]:
    def add(rule: Callable[[Facts], str]) -> Callable[[Facts], str]:
        SHOWN[cause] = lambda facts: (rule(facts), looks)
        return rule

    return add


def of_size(value: float) -> str:
    """A share, or where it is large a multiple: ``3.2 % of its size``, ``45 times its size``."""
    return f"{share(min(value, 1))} of its size" if value < 1.005 else f"{rough(value)} times its size"


# ---- the loop


@_not("no zero grad")
def _zeroed(f: Facts) -> str | None:
    zeroed, backward = f.count("optimizer.zero_grad"), f.count("backward")
    return f"zero_grad() is called {zeroed:,} times, as often as backward(): no gradients add up." if zeroed == backward > 0 else None


@_not("zeroed before step")
def _there_at_step(f: Facts) -> str | None:
    norms = [one.at_step[0] for one in f.parameters if one.trainable and one.held]
    if not norms or any(not one for one in norms):
        return None
    return (
        "When the optimizer steps, the gradients are still there: none of its tensors has a gradient of zero "
        f"then; the least norm in the first step is {rough(min(filter(None, norms)))}."
    )


@_not("no step", "never enough to step")
def _steps(f: Facts) -> str | None:
    steps = f.count("optimizer.step")
    return f"optimizer.step() is called {steps:,} times in {f.run.steps:,} steps of the loop." if steps == f.run.steps else None


@_not("no backward")
def _backward(f: Facts) -> str | None:
    count = f.count("backward")
    return f"backward() is called {count:,} times in {f.run.steps:,} steps of the loop." if count >= f.run.steps else None


@_not("accumulated too loud")
def _one_each(f: Facts) -> str | None:
    same = f.count("backward") == f.count("optimizer.step") == f.run.steps
    return "Nothing is accumulated: each backward() is followed by a step of the optimizer." if same else None


@_not("weights put back")
def _went(f: Facts) -> str | None:
    return (
        f"Nothing puts the weights back: at the end a weight lies {of_size(f.moved)} away from where it began." if f.moved > 0.02 else None
    )


@_not("eval while training")
def _in_training(f: Facts) -> str | None:
    return (
        f"The model is in training mode in all of its {f.run.modes[True]:,} calls."
        if f.run.modes[True] and not f.run.modes[False]
        else None
    )


@_not("clipped to nothing")
def _unclipped(f: Facts) -> str | None:
    return None if f.run.norms else "Nothing in the loop clips a gradient."


@_not("gradients overwritten")
def _kept_promise(f: Facts) -> str | None:
    promised, found = f.run.promised
    if not 0.6 < found / promised < 1.5 if promised else True:
        return None
    return (
        "The gradients are those of this loss: a short way against them should lower it by "
        f"{rough(-promised)}, and lowers it by {rough(-found)}."
    )


# ---- the optimizer


@_not("rate too high")
def _calm(f: Facts) -> str | None:
    most, first = max(f.finite, default=math.nan), f.run.loss[0]
    if not f.all_finite or not first > 0 or most > 2 * first or f.typical_update > 0.03:
        return None
    return (
        f"The loss never rises far above its first value ({rough(most)} at most, {rough(first)} at first), "
        f"and in a typical step the weight that changes most changes by {of_size(f.typical_update)}."
    )


@_not("rate too low")
def _far(f: Facts) -> str | None:
    if not any(one.moved for one in f.parameters):
        return "Nothing moves at all, no weight and no bias. A learning rate that is too low moves them a little in each step."
    if f.moved > 0.3:
        return f"The weights go far: one ends {of_size(f.moved)} away from where it began."
    still = [one for one in f.parameters if not one.moved]
    most = max((one for one in f.sized), key=lambda one: one.moved)
    if not most.moved > 0.3 or any(any(one.after_backward) for one in still):
        return None
    return (
        f"What gets a gradient goes far: {most.name} ends {of_size(most.moved)} away from where it began. The gradients of "
        f"{len(still)} of {len(f.parameters)} tensors are 0, and no learning rate moves those."
    )


@_not("rate runs out", "warmup never ends")
def _steady_rate(f: Facts) -> str | None:
    return (
        f"The learning rate is {rough(f.rates[0])} from the first step to the last."
        if len({tuple(one) for one in f.run.rates}) == 1
        else None
    )


@_not("too much momentum")
def _momentum(f: Facts) -> str | None:
    if "betas" in f.group:
        beta = f.group["betas"][0]
        return f"Adam's first beta is {beta:g}, the usual value." if beta == 0.9 else None
    found = f.group.get("momentum", 0)
    return f"The momentum is {found:g}, the usual value." if found == 0.9 else None


@_not("too much decay")
def _no_decay(f: Facts) -> str | None:
    return "The weight decay is 0." if all(one["weight_decay"] == 0 for one in f.run.groups) else None


@_not("not in the optimizer", "another models optimizer")
def _holds_all(f: Facts) -> str | None:
    whole = f.held == len(f.parameters) and not f.run.foreign
    hidden = any(not one.registered for one in f.layers)
    return f"The optimizer holds all {f.held} tensors of this model, and no other." if whole and not hidden else None


@_not("two optimizers")
def _one_optimizer(f: Facts) -> str | None:
    return (
        f"There is one optimizer, {f.run.optimizers[0]}, and it makes each step."
        if len(f.run.optimizers) == 1 and f.count("optimizer.step")
        else None
    )


@_not("groups swapped")
def _one_group(f: Facts) -> str | None:
    return f"There is one parameter group, with one learning rate ({rough(f.rates[0])})." if len(f.run.groups) == 1 else None


# ---- the graph


@_not("detached", "without grad", "no gradient through")
def _felt(f: Facts) -> str | None:
    if not f.all_felt or any(not one.registered for one in f.layers if "(" in one.kind and "ReLU" not in one.kind):
        return None
    name, least = f.least_gradient
    return (
        f"The gradient reaches each of the {len(f.parameters)} parameters; the smallest norm in the first step is {rough(least)} ({name})."
    )


@_not("frozen")
def _trainable(f: Facts) -> str | None:
    return f"All {len(f.parameters)} parameters have requires_grad=True." if all(one.trainable for one in f.parameters) else None


@_not("hidden layers")
def _registered(f: Facts) -> str | None:
    ran = [one for one in f.layers if one.calls]
    return f"Each of the {len(ran)} layers that run is registered in the model." if all(one.registered for one in ran) else None


@_not("unused layers")
def _all_called(f: Facts) -> str | None:
    own = [one for one in f.layers if one.registered]
    return (
        f"Each registered layer is called in every step ({len(own)} of {len(own)})."
        if all(one.calls >= f.run.steps for one in own)
        else None
    )


# ---- the loss


@_not("broadcast")
def _same_shape(f: Facts) -> str | None:
    one, other = tuple(f.output.shape), tuple(f.answer.shape)
    if f.classes:
        return f"The targets are {f.answer.numel():,} class numbers, and for each there is a row of outputs: nothing is stretched."
    return f"Output and target have the same shape, {shape(one)}." if one == other and not isinstance(f.run.outputs[-1][1], tuple) else None


@_not("softmax before cross entropy", "sigmoid twice")
def _raw(f: Facts) -> str | None:
    low, high = f.output_numbers[1].low, f.output_numbers[1].high
    return f"The outputs are no probabilities: they reach from {rough(low)} to {rough(high)}." if low < -0.05 or high > 1.05 else None


@_not("no log")
def _like_a_guess(f: Facts) -> str | None:
    first = f.run.loss[0]
    if not f.classes or abs(first - math.log(f.classes)) > 0.5:
        return None
    return (
        f"The first loss is {rough(first)}, near log {f.classes} = {rough(math.log(f.classes))}: what a guess "
        "costs under a right cross-entropy."
    )


@_not("one logit")
def _several(f: Facts) -> str | None:
    width = f.output.shape[-1]
    return f"There are {width} outputs for {f.classes} classes." if f.classes and width == f.classes else None


@_not("wrong sign")
def _not_turned(f: Facts) -> str | None:
    first, last = f.run.loss[0], f.run.loss[-1]
    if not f.all_finite or min(f.finite) < 0:
        return None
    if f.falls and last < first:
        return f"The loss falls from {rough(first)} to {rough(last)} and is never below zero. Turned around, it would be."
    return f"The loss goes from {rough(first)} to {rough(last)}. Turned around, it would be below zero, and run away." if f.flat else None


@_not("loss too small")
def _large_enough(f: Facts) -> str | None:
    return (
        f"The first loss is {rough(f.run.loss[0])}, and some gradient in that step has a norm of "
        f"{rough(max(filter(None, f.first_gradients)))}."
        if f.run.loss[0] > 0.05 and any(one and one > 1e-2 for one in f.first_gradients)
        else None
    )


@_not("loss too large")
def _small_enough(f: Facts) -> str | None:
    return (
        f"The first loss is {rough(f.run.loss[0])} for a batch of {len(f.target)}: nothing is summed up there."
        if 0 < f.run.loss[0] < 4
        else None
    )


@_not("output cannot reach")
def _reaches(f: Facts) -> str | None:
    kind = f.last_layer.kind.partition("(")[0]
    if kind not in ("Linear", "Conv2d") or any(not one.registered for one in f.layers):
        return None
    found = f.output_numbers[1]
    if not found.low < 0 and f.targets.min() < 0:
        return None
    if found.low >= 0 and found.high <= 1:
        return None
    return (
        f"The last layer is a {kind}, with no activation behind it; in the last step its outputs reach from "
        f"{rough(found.low)} to {rough(found.high)}."
    )


@_not("constant loss")
def _depends(f: Facts) -> str | None:
    return (
        "The loss depends on what the model gives: some gradient in the first step has a norm of "
        f"{rough(max(filter(None, f.first_gradients)))}."
        if any(f.first_gradients)
        else None
    )


@_not("regression of classes")
def _no_squared_classes(f: Facts) -> str | None:
    return None if f.classes else f"The targets are no class numbers: they lie {between(float(f.targets.min()), float(f.targets.max()))}."


# ---- the data


@_not("targets shuffled", "targets shifted")
def _learnable(f: Facts) -> str | None:
    if not f.has_guess or not f.all_finite or f.run.seen > len(f.target) // 2 or not 0 <= f.ends[1] < 0.7 * f.chance:
        return None
    return (
        f"The last {f.some} losses have a mean of {rough(f.ends[1])}, where the best answer that looks at no input gets "
        f"{rough(f.chance)}: inputs and targets belong together."
    )


@_not("constant targets")
def _several_targets(f: Facts) -> str | None:
    found = len({tuple(row.flatten().tolist()) for row in f.target})
    return f"The first batch has {found} different targets." if found > 1 else None


@_not("same batch", "few samples")
def _new_samples(f: Facts) -> str | None:
    known = f.run.seen
    if known > 0.2 * len(f.target):
        return None
    return f"Of the {len(f.run.batches[-1][2])} samples in the last batch, {known or 'none'} stood in the first one."


@_not("ordered batches")
def _mixed(f: Facts) -> str | None:
    if not f.classes:
        return None
    counts = [f.class_counts(batch) for batch in range(len(f.run.pool))]
    least = min(sum(count > 0 for count in one) for one in counts)
    held = f"all {f.classes}" if least == f.classes else f"at least {least} of the {f.classes}"
    return f"Classes are mixed: each batch holds {held}." if least >= min(f.classes, 3) else None


@_not("imbalance")
def _balanced(f: Facts) -> str | None:
    if not f.classes:
        return None
    found = f.targets.flatten().bincount(minlength=f.classes).double()
    shares = found / found.sum()
    if shares.min() < 0.5 / f.classes:
        return None
    return (
        f"The classes are about equally frequent: between {share(float(shares.min()))} and "
        f"{share(float(shares.max()))} of all targets each."
    )


@_not("inputs not scaled", "inputs vanish")
def _scaled(f: Facts) -> str | None:
    x = f.inputs.double()
    if not f.inputs.is_floating_point():
        return "The inputs are tokens, and go through an embedding: they have no scale."
    mean, std = float(x.mean()), float(x.std(correction=0))
    return (
        f"The inputs have a usual scale: in the first batch a mean of {rough(mean)} and a standard deviation of {rough(std)}."
        if 0.1 < std < 5 and abs(mean) < 5
        else None
    )


@_not("one huge feature")
def _even(f: Facts) -> str | None:
    if not f.inputs.is_floating_point():
        return "The inputs are tokens, and go through an embedding: no feature is larger than another."
    low, high = min(f.features, default=0.0), max(f.features, default=0.0)
    if f.features and high < 10 * low:
        return f"No feature is much larger than another: their standard deviations in the first batch lie {between(low, high)}."
    return None


@_not("constant inputs")
def _different(f: Facts) -> str | None:
    rows = f.unlike
    return f"The samples differ: the first batch has {rows} different ones among {len(f.inputs)}." if rows > 0.3 * len(f.inputs) else None


@_not("targets not scaled")
def _targets_scaled(f: Facts) -> str | None:
    if f.classes:
        return "The targets are class numbers, which have no scale."
    std = float(f.targets.double().std(correction=0))
    return (
        f"The targets have a usual scale: in all batches together they lie between {rough(float(f.targets.min()))} and "
        f"{rough(float(f.targets.max()))}, with a standard deviation of {rough(std)}."
        if 0.1 < std < 5
        else None
    )


@_not("leak")
def _nothing_given_away(f: Facts) -> str | None:
    if not f.all_finite or f.ends[1] < 0.6 * f.ends[0]:
        return None
    return (
        f"The training loss does not get far: its first {f.some} values have a mean of {rough(f.ends[0])}, and its last {f.some} of "
        f"{rough(f.ends[1])}. An input that gives the answer away is found out soon."
    )


@_not("not a number in data")
def _all_numbers(f: Facts) -> str | None:
    return f"All numbers in all {len(f.run.pool):,} batches are finite." if f.run.bad == (0, 0) else None


@_not("tokens unknown")
def _tokens(f: Facts) -> str | None:
    found = f.tokens
    return f"The first batch has {found} different tokens." if not f.inputs.is_floating_point() and found > 4 else None


# ---- the model


@_not("all weights equal")
def _unlike(f: Facts) -> str | None:
    weights = [one for one in f.weights if one.start.shape[0] > 1]
    if not weights or any(one.unlike < one.start.shape[0] for one in weights):
        return None
    return (
        "The units begin different from each other: in no layer are two rows of the weight equal from the "
        f"start ({weights[0].name} has a standard deviation of {rough(weights[0].start.std)})."
    )


@_not("weights begin too large", "weights begin too small")
def _usual_size(f: Facts) -> str | None:
    inner = [one for one in f.weights if not one.name.startswith(EMBEDDINGS)]
    if not inner and all(0.1 < one.start.std < 2 for one in f.weights):
        return f"The weights begin at a usual size: {f.weights[0].name} has a standard deviation of {rough(f.weights[0].start.std)}."
    if not inner or not all(0.2 < one.start.std * math.sqrt(one.fan) < 2.5 for one in inner):
        return None
    one = inner[0]
    return (
        f"The weights begin at their usual size: {one.name} has a standard deviation of "
        f"{rough(one.start.std)} for {plural(one.fan, 'input')}, where 1/√inputs is "
        f"{rough(1 / math.sqrt(one.fan))}."
    )


@_not("vanishing gradient")
def _deep_enough(f: Facts) -> str | None:
    ratio = f.along_depth
    if not ratio > 0.02:
        return None
    first, last = f.weights[0], f.weights[-1]
    return (
        f"The gradient does not vanish on its way: its norm in the first step is {rough(first.after_backward[0] or 0)} at "
        f"{first.name} and {rough(last.after_backward[0] or 0)} at {last.name}."
    )


@_not("dead units")
def _alive(f: Facts) -> str | None:
    if not any(one.startswith("ReLU") for one in f.activations):
        return "There is no ReLU among the layers, so no unit can be dead." if f.activations or f.inputs.dtype.is_floating_point else None
    return (
        None
        if f.most_dead >= 0.5
        else "In no ReLU are most units zero for the whole batch: the greatest share, in the first step or in the last, is "
        f"{share(f.most_dead)}."
        if f.most_dead
        else "In the first step and in the last, each unit of each ReLU gives something other than zero for some sample of the batch."
    )


@_not("no nonlinearity")
def _bent(f: Facts) -> str | None:
    return f"Between the layers there is {' and '.join(f.activations)}." if f.activations else None


@_not("bottleneck")
def _wide(f: Facts) -> str | None:
    widths = [one.start.shape[0] for one in f.weights[:-1]]
    return f"The narrowest layer before the last one has {min(widths)} units." if widths and min(widths) >= 8 else None


@_not("too much dropout")
def _no_dropout(f: Facts) -> str | None:
    found = [one for one in f.layers if one.kind.startswith("Dropout") and "p=0.0" not in one.kind]
    return (
        None
        if found
        else "Nothing is dropped: there is no dropout in the model."
        if "Dropout" not in f.run.printed
        else "Nothing is dropped: each Dropout has p = 0."
    )


@_not("batch norm of one", "batch norm statistics")
def _no_norm(f: Facts) -> str | None:
    if "BatchNorm" not in f.run.printed:
        return "There is no BatchNorm in the model."
    train, evaluate = f.run.modes_apart
    if len(f.target) < 16 or not 0.5 < evaluate / train < 2:
        return None
    return (
        f"BatchNorm gets batches of {len(f.target)}, and the loss of the last batch is {rough(train)} in "
        f"training mode and {rough(evaluate)} in evaluation mode."
    )


# ---- sequences


@_not("sees the future")
def _blind_to_the_future(f: Facts) -> str | None:
    changed = f.run.changed
    return (
        "No position sees a later one: when the last token changes, the outputs of all earlier positions stay the same."
        if changed and max(changed[:-1]) == 0
        else None
    )


@_not("padding idx of a token")
def _no_padding_idx(f: Facts) -> str | None:
    if "Embedding(" not in f.run.printed:
        return None
    return "No embedding has a padding_idx." if "padding_idx" not in f.run.printed else None


@_not("no positions")
def _has_places(f: Facts) -> str | None:
    return (
        "The model adds an embedding of the positions (places), and it is called in each step."
        if any(one.path == "places" and one.calls for one in f.layers)
        else None
    )


@_not("batch first mixed up")
def _batch_first(f: Facts) -> str | None:
    return (
        f"The recurrent layer has batch_first=True, and the batch comes first: {shape(tuple(f.inputs.shape))}."
        if "batch_first=True" in f.run.printed and "(recurrent)" in f.run.printed
        else None
    )


@_not("exploding recurrence")
def _small_gradients(f: Facts) -> str | None:
    most = max((norm for one in f.parameters for norm in one.after_backward if norm is not None), default=math.nan)
    return f"No gradient explodes: the greatest norm of all looks is {rough(most)}." if most < 50 else None


@_not("targets not moved")
def _moved_by_one(f: Facts) -> str | None:
    if f.inputs.shape != f.target.shape or f.inputs.is_floating_point():
        return None
    return (
        "The targets are the inputs moved by one: the first target is the second token."
        if bool((f.inputs[:, 1:] == f.target[:, :-1]).all())
        else None
    )


# ---- numbers


@_not("not finite by the rate", "log of zero", "root of zero", "division by zero", "overflow")
def _finite(f: Facts) -> str | None:
    return f"The loss is a finite number in all {f.run.steps:,} steps." if f.all_finite else None


@_not("underflow", "too few digits", "scaler misused")
def _full_precision(f: Facts) -> str | None:
    return (
        "All weights and outputs are float32."
        if {one.start.dtype for one in f.parameters} | {f.output_numbers[1].dtype} == {"float32"}
        else None
    )


# ---- generative


@_not("collapse")
def _apart(f: Facts) -> str | None:
    found = f.output_numbers[1]
    return (
        f"The outputs differ from sample to sample: their standard deviation over the last batch is {rough(found.across)}."
        if found.across > 0.1
        else None
    )


# ==== what shows it


@_is("no zero grad", "loop")
def _(f: Facts) -> str:
    return f"zero_grad() is never called in {f.run.steps:,} steps, so each step uses the sum of all gradients so far."


@_is("not in the optimizer", "steps")
def _(f: Facts) -> str:
    lost = [one for one in f.parameters if not one.held]
    return f"The optimizer holds {f.held} of {len(f.parameters)} tensors. The others, {lost[0].name} first, get a gradient and never move."


@_is("hidden layers", "layers")
def _(f: Facts) -> str:
    hidden = [one for one in f.layers if not one.registered and one.calls]
    return (
        f"{len(hidden)} layers run that the model does not list ({hidden[0].kind} first): they sit in a plain "
        f"list, so the optimizer got only {f.held} tensors."
    )


@_is("zeroed before step", "gradients")
def _(f: Facts) -> str:
    norm = max(filter(None, f.first_gradients))
    return (
        f"After backward() a gradient has a norm of {rough(norm)}, and when the optimizer steps all of them "
        "are 0: zero_grad() comes between the two."
    )


@_is("broadcast", "outputs")
def _(f: Facts) -> str:
    return (
        f"Outputs have the shape {shape(tuple(f.output.shape))} and targets {shape(tuple(f.answer.shape))}: "
        f"their difference is {len(f.output)}×{len(f.answer)}, each output against each target."
    )


@_is("clipped to nothing", "loop")
def _(f: Facts) -> str:
    middle, bound = sorted(one for one, _ in f.run.norms)[len(f.run.norms) // 2], f.run.norms[0][1]
    return (
        f"Gradients are clipped to a norm of {bound:g}, and before that their norm is about "
        f"{rough(middle)}: what is left of a gradient is one part in {float(f'{middle / bound:.2g}'):,.0f}."
    )


@_is("one logit", "outputs")
def _(f: Facts) -> str:
    return (
        "There is one output for each sample. A softmax of one number is always 1, so the cross-entropy is "
        f"{rough(f.run.loss[0])} and its gradient is 0."
    )


@_is("rate too high", "optimizer")
def _(f: Facts) -> str:
    first = max((one for one in f.weights if one in f.sized), key=lambda one: one.update[0])
    return (
        f"{f.run.optimizers[0]} has a learning rate of {rough(f.rates[0])}: the first step changes {first.name} by "
        f"{of_size(first.update[0])}, and the loss jumps up to {rough(max(f.finite))}. From then on the weights are large: "
        f"in a typical step the one that changes most changes by {of_size(f.typical_update)}."
    )


@_is("frozen", "steps")
def _(f: Facts) -> str:
    frozen = [one for one in f.parameters if not one.trainable]
    return f"{len(frozen)} of {len(f.parameters)} parameters have requires_grad=False ({frozen[0].name} first); only the rest learns."


@_is("not a number in data", "batch")
def _(f: Facts) -> str:
    where = "the targets" if f.run.bad[1] else "the inputs"
    first = next(step for step, one in enumerate(f.run.loss) if not math.isfinite(one))
    return (
        f"In {max(f.run.bad)} of {len(f.run.pool)} batches {where} hold a NaN; the loss is NaN from step "
        f"{first} on, when the first of them came."
    )


@_is("detached", "gradients")
def _(f: Facts) -> str:
    without = [one for one in f.parameters if one.trainable and all(norm is None for norm in one.after_backward)]
    return (
        f"{len(without)} trainable parameters never get a gradient, {without[0].name} first, though their "
        "layers run and the optimizer holds them: the graph is cut behind them."
    )


@_is("ordered batches", "batch")
def _(f: Facts) -> str:
    most = [max(f.class_counts(batch)) for batch in range(len(f.run.pool))]
    whole = sum(one == len(f.target) for one in most)
    return f"{whole} of {len(f.run.pool)} batches hold samples of one class alone: each batch teaches the net to answer with its class."


@_is("wrong sign", "loss")
def _(f: Facts) -> str:
    return (
        f"The loss goes down to {rough(min(f.finite))}, and a cross-entropy cannot be below zero. On fresh data "
        f"{share(f.run.fresh[-1][1])} of the answers are wrong, more than by guessing."
    )


@_is("rate runs out", "optimizer")
def _(f: Facts) -> str:
    early = next(step for step, one in enumerate(f.run.rates) if one[0] < 0.01 * f.rates[0])
    return (
        f"The learning rate falls from {rough(f.rates[0])} to less than a hundredth of that after step {early} of {f.run.steps}, "
        f"and to {rough(f.rates[1])} at the end."
    )


@_is("dead units", "layers")
def _(f: Facts) -> str:
    one = max((one for one in f.layers if one.kind.startswith("ReLU") and one.last), key=lambda one: one.first.dead if one.first else 0)
    assert one.first
    return (
        f"{share(one.first.dead)} of the units of {one.path} ({one.kind.partition('(')[0]}) give zero for the "
        "whole first batch. Where ReLU gives zero, no gradient comes back."
    )


@_is("never enough to step", "loop")
def _(f: Facts) -> str:
    return (
        f"backward() is called {f.count('backward'):,} times and optimizer.step() {f.count('optimizer.step')} "
        "times: the loop accumulates for more batches than there are."
    )


@_is("output cannot reach", "outputs")
def _(f: Facts) -> str:
    found = f.output_numbers[1]
    low, high = rough(float(f.answer.min())), rough(float(f.answer.max()))
    return (
        f"The outputs lie between {rough(found.low)} and {rough(found.high)}, and the targets between {low} "
        f"and {high}: an activation behind the last layer keeps them there."
    )


@_is("one huge feature", "batch")
def _(f: Facts) -> str:
    low, high = min(f.features), max(f.features)
    return (
        f"In the first batch one feature has a standard deviation of {rough(high)}, and the other one of {rough(low)}: that is "
        f"about {float(f'{high / low:.1g}'):,.0f} times less."
    )


@_is("vanishing gradient", "gradients")
def _(f: Facts) -> str:
    first, last = f.weights[0], f.weights[-1]
    return (
        f"In the first step the gradient's norm is {rough(last.after_backward[0] or 0)} at {last.name} and "
        f"{rough(first.after_backward[0] or 0)} at {first.name}: {len(f.weights)} layers with a sigmoid "
        "between them let almost nothing through."
    )


@_is("leak", "fresh", "batch")
def _(f: Facts) -> str:
    return (
        f"The training loss falls to {rough(f.run.loss[-1])}, and on fresh data {share(f.run.fresh[-1][1])} of the "
        "answers are wrong. In the batch one corner of each picture is much brighter or darker, and tells "
        "the class."
    )


@_is("too few digits", "steps")
def _(f: Facts) -> str:
    still = max(f.weights, key=lambda one: one.still)
    return (
        f"The weights are {still.start.dtype}: in the last step {share(still.still)} of the numbers in {still.name} that have a "
        "gradient do not move, because such small steps round away."
    )


@_is("same batch", "batch")
def _(f: Facts) -> str:
    size = len(f.run.batches[-1][2])
    return (
        f"{'All' if f.run.seen == size else f'{f.run.seen} of the'} {size} samples in the last batch stood in the first one as well. The "
        f"loss falls to {rough(f.run.loss[-1])}; on fresh data the {f.quality} goes from {rough(f.run.fresh[0][1])} to "
        f"{rough(f.run.fresh[-1][1])}."
    )


@_is("too much decay", "optimizer")
def _(f: Facts) -> str:
    one = f.weights[0]
    assert one.end
    return (
        f"The weight decay is {f.group['weight_decay']:g}: it pulls {one.name} from a standard deviation of "
        f"{rough(one.start.std)} down to {rough(one.end.std)}."
    )


@_is("all weights equal", "weights")
def _(f: Facts) -> str:
    one = next(one for one in f.weights if one.unlike == 1 < one.start.shape[0])
    return f"All {one.start.shape[0]} rows of {one.name} begin equal, so all units of the layer get the same gradient and stay one unit."


@_is("sees the future", "change")
def _(f: Facts) -> str:
    before = f.run.changed[:-1]
    return (
        f"When only the last token changes, the outputs at all {sum(one > 0 for one in before)} earlier "
        "positions change: each position sees the token that it should predict. The loss falls to "
        f"{rough(f.run.loss[-1])}, and {share(f.run.fresh[-1][1])} of the tokens that it adds to fresh sequences are wrong."
    )


@_is("padding idx of a token", "model")
def _(f: Facts) -> str:
    at = int(f.run.printed.partition("padding_idx=")[2].partition(")")[0])
    many = int((f.inputs == at).sum())
    return (
        f"padding_idx={at}, and token {at} stands {many} times in the first batch: it is a real item, whose "
        "row stays zero. The padding is 0."
    )


@_is("targets shuffled", "batch")
def _(f: Facts) -> str:
    return (
        "Pictures with the same label show bars in different directions. The last "
        f"{f.some} losses have a mean of {rough(f.ends[1])}, and knowing nothing costs {rough(f.chance)}."
    )


@_is("latent ignored", "layers")
def _(f: Facts) -> str:
    one = next(one for one in f.layers if one.path == "encoder.2")
    assert one.last
    return (
        f"What the encoder gives has a standard deviation of {rough(one.last.across)} from sample to sample "
        "at the end: the decoder gets nearly nothing but noise, and makes nearly the same curve for all."
    )


@_is("collapse", "outputs")
def _(f: Facts) -> str:
    found = f.output_numbers[1]
    return (
        f"The embeddings of all samples are nearly the same (standard deviation {rough(found.across)}). The "
        f"loss falls to {rough(f.run.loss[-1])}, and {share(f.run.fresh[-1][1])} of the fresh pairs are not found."
    )


@_is("gradients overwritten", "gradients")
def _(f: Facts) -> str:
    promised, found = f.run.promised
    does = f"lowers it by {rough(-found)}" if found < 0 else f"raises it by {rough(found)}"
    return (
        f"A short way against the gradients should lower the loss by {rough(-promised)}, and {does}: they are "
        "not the gradients of this loss."
    )
