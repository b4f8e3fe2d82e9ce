"""What each look shows, as blocks that the page draws: sentences, curves, tables, pictures and code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from modlab.format import plural, rough, shape, share
from scripts.clinic.facts import Facts, between
from scripts.clinic.recording import Layer, Numbers, Parameter, first_of

Block = dict[str, Any]

ROWS = 6
"""Samples of a batch that are shown."""
MANY = 14
"""Parameters from which on only weights are listed."""
PICTURES = 8


def of(facts: Facts) -> list[dict[str, Any]]:
    """All looks of one case, in the order in which they are offered."""
    return [{"id": name, "title": title, "hint": hint, "blocks": [*blocks(facts)]} for name, (title, hint, blocks) in LOOKS.items()]


# ---- blocks


def say(text: str) -> Block:
    """A sentence."""
    return {"kind": "say", "text": text}


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Block:
    """Rows of cells: text, or a list of numbers, which is drawn as a small curve."""
    return {"kind": "table", "title": title, "head": [*head], "rows": [[*row] for row in rows]}


def curve(title: str, x: Sequence[float], y: Sequence[float], says: str) -> Block:
    """One curve over the steps."""
    return {"kind": "curve", "title": title, "x": [*x], "y": [_plain(one) for one in y], "says": says}


def spark(values: Sequence[float | None]) -> list[float | None]:
    """A small curve; a gap where there is nothing."""
    return [None if one is None else _plain(one) for one in values]


def _plain(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _number(value: float | None) -> str:
    return "none" if value is None else rough(value)


# ---- the looks


def _loss(f: Facts) -> Iterator[Block]:
    losses = f.run.loss
    bad = next((step for step, one in enumerate(losses) if not math.isfinite(one)), None)
    says = f"{rough(losses[0])} at step 0, {rough(losses[-1])} at step {f.run.steps - 1}"
    if f.finite:
        says += f"; {between(min(f.finite), max(f.finite))} {'in all steps' if f.all_finite else 'where it is finite'}"
    if bad is not None:
        says += (
            f"; not a finite number from step {bad} on"
            if not any(map(math.isfinite, losses[bad:]))
            else f"; not a finite number first at step {bad}"
        )
    yield curve("Loss of each training batch", range(f.run.steps), losses, f"{says}.")
    if f.has_guess:
        kind = "squared error" if f.targets.is_floating_point() else "cross-entropy"
        yield say(f"The best answer that looks at no input has a {kind} of {rough(f.chance)} on these targets.")


def _fresh(f: Facts) -> Iterator[Block]:
    steps, values = zip(*f.run.fresh, strict=True)
    said = share if f.quality.startswith("share") else rough
    says = (
        f"{said(values[0])} before training, {said(values[-1])} after it; the least is "
        f"{said(min((one for one in values if math.isfinite(one)), default=math.nan))}."
    )
    yield curve(f"On fresh data, in evaluation mode: the {f.quality}", steps, values, says)
    train, evaluate = f.run.modes_apart
    yield say(
        f"The last training batch once more after the training: its loss is {rough(train)} in training mode "
        f"and {rough(evaluate)} in evaluation mode."
    )


def _batch(f: Facts) -> Iterator[Block]:
    first, last = f.run.batches[0], f.run.batches[-1]
    x, y = first[1], first[2]
    inputs = " and ".join(shape(tuple(one.shape)) for one in (x if isinstance(x, tuple) else (x,)))
    yield say(f"Inputs: {inputs}, {_dtype(first_of(x))}. Targets: {shape(tuple(y.shape))}, {_dtype(y)}.")
    if first_of(x).dim() == 4:
        yield _pictures(f)
    else:
        head, rows = _samples(x, y)
        yield table("The first samples of batch 0", head, rows)
    yield table("Batch 0 in numbers", ["of", "mean", "std", "least", "greatest"], [*_summaries(f, x, y)])
    if f.classes and f.classes <= 12 and not isinstance(x, tuple):
        batches = [round(one) for one in torch.linspace(0, min(60, len(f.run.pool)) - 1, 6).tolist()]
        yield table(
            "How often each class is the target",
            ["batch", *map(str, range(f.classes))],
            [[str(one), *map(str, f.class_counts(one))] for one in batches],
        )
    bad = [
        f"{count} of {len(f.run.pool)} batches have {what} that are not finite"
        for count, what in zip(f.run.bad, ("inputs", "targets"), strict=True)
        if count
    ]
    yield say(f"{'; '.join(bad)}." if bad else f"All numbers of all {len(f.run.pool)} batches are finite.")
    yield say(f"Of the {len(last[2])} samples of the last batch, {f.run.seen or 'none'} stood in batch 0.")


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _pictures(f: Facts) -> Block:
    x, y = f.inputs.double(), f.target
    some = x[:PICTURES, 0]
    low, high = (float(one) for one in torch.quantile(some.flatten(), torch.tensor([0.02, 0.98], dtype=torch.float64)))
    shades = ((some - low) / (high - low)).clamp(0, 1).mul(99).round().int()
    pictures = [
        {
            "label": _cells(y[number])[0] if y.dim() == 1 else ", ".join(_cells(y[number])),
            "size": x.shape[-1],
            "shades": shades[number].flatten().tolist(),
            "says": _said(some[number]),
        }
        for number in range(len(some))
    ]
    says = f"Dark is {rough(low)} or less, light {rough(high)} or more."
    if x.shape[1] > 1:
        says += (
            f" This is channel 0 of {x.shape[1]}; the other has a mean of {rough(float(x[:, 1].mean()))} and a "
            f"standard deviation of {rough(float(x[:, 1].std()))}."
        )
    return {"kind": "pictures", "title": "The first samples of batch 0, with their targets", "pictures": pictures, "says": says}


def _said(picture: Tensor) -> str:
    """A picture for those who do not see it: its corner, and where it is lightest."""
    rows, columns = picture.mean(1), picture.mean(0)
    return (
        f"top left pixel {rough(float(picture[0, 0]))}; lightest row {int(rows.argmax()) + 1} (mean {rough(float(rows.max()))}), "
        f"lightest column {int(columns.argmax()) + 1} (mean {rough(float(columns.max()))})"
    )


def _cells(value: Tensor) -> list[str]:
    """A sample as a few numbers."""
    flat = value.flatten()
    some = [rough(float(one)) if flat.is_floating_point() else str(int(one)) for one in flat[:12]]
    return [*some, "…"] if len(flat) > 12 else some


def _samples(x: Any, y: Tensor) -> tuple[list[str], list[list[Any]]]:
    if isinstance(x, tuple) and x[0].dim() == 1:
        return ["user", "item", "target"], [[str(int(x[0][i])), str(int(x[1][i])), " ".join(_cells(y[i]))] for i in range(ROWS)]
    if isinstance(x, tuple):
        return ["left view", "right view", "target"], [
            [spark(x[0][i].tolist()), spark(x[1][i].tolist()), str(int(y[i]))] for i in range(ROWS)
        ]
    if x.dim() == 3:
        rows = [
            [" ".join(f"{rough(float(a))}{'*' if b > 0 else ''}" for a, b in x[i].tolist()), " ".join(_cells(y[i]))]
            for i in range(min(ROWS, len(x)))
        ]
        return ["sequence (* is marked)", "target"], rows
    if x.is_floating_point() and x.shape[1] <= 4:
        names = [f"feature {one}" for one in range(x.shape[1])]
        return [*names, "target"], [[*_cells(x[i]), " ".join(_cells(y[i]))] for i in range(min(ROWS, len(x)))]
    if x.is_floating_point():
        return ["input", "target"], [[spark(x[i].tolist()), spark(y[i].tolist())] for i in range(min(ROWS, len(x)))]
    return ["tokens", "target"], [[" ".join(_cells(x[i])), " ".join(_cells(y[i]))] for i in range(min(ROWS, len(x)))]


def _summaries(f: Facts, x: Any, y: Tensor) -> Iterator[list[str]]:
    first = first_of(x)
    if len(f.features) in (2, 3):
        for number in range(len(f.features)):
            yield _summary(f"feature {number}", first.flatten(0, -2)[:, number])
    elif first.is_floating_point():
        yield _summary("inputs", first)
    else:
        yield _summary(f"inputs ({plural(f.tokens, 'different token')})" if not isinstance(x, tuple) else "users", first)
    yield _summary("targets", y)


def _summary(name: str, tensor: Tensor) -> list[str]:
    found = Numbers.of(tensor)
    return [name, rough(found.mean), rough(found.std), rough(found.low), rough(found.high)]


def _outputs(f: Facts) -> Iterator[Block]:
    step, output, target = f.run.outputs[-1]
    first = first_of(output)
    yield say(f"In step {step} the output has the shape {shape(tuple(first.shape))} and the target {shape(tuple(target.shape))}.")
    early, late = f.output_numbers
    found = Numbers.of(target)
    names = f"outputs, step {f.run.outputs[0][0]}", f"outputs, step {step}", f"targets, step {step}"
    rows = [
        [name, rough(one.mean), rough(one.std), rough(one.low), rough(one.high), rough(one.across)]
        for name, one in zip(names, (early, late, found), strict=True)
    ]
    yield table("In numbers", ["of", "mean", "std", "least", "greatest", "std over samples"], rows)
    if first.dim() == 3:
        rows = [[str(place), str(int(first[0, place].argmax())), str(int(target[0, place]))] for place in range(first.shape[1])]
        yield table(f"The first sequence in step {step}", ["position", "likeliest token", "target"], rows)
    elif first.dim() == 2 and first.shape[1] > 12:
        yield table(
            f"The first samples in step {step}",
            ["output", "target"],
            [[spark(first[i].tolist()), spark(target[i].tolist())] for i in range(ROWS)],
        )
    else:
        count = min(ROWS, len(first))
        rows = [[" ".join(_cells(first[i])), " ".join(_cells(target[i])) if target.dim() else ""] for i in range(count)]
        yield table(f"The first samples in step {step}", ["output", "target"], rows)


def _listed(f: Facts) -> tuple[list[Parameter], list[Block]]:
    """The parameters that a table lists, and a line on those that it leaves out."""
    if len(f.parameters) <= MANY:
        return f.parameters, []
    return f.weights, [say(f"Of {len(f.parameters)} parameters the {len(f.weights)} weights are listed; biases and norms are left out.")]


def _gradients(f: Facts) -> Iterator[Block]:
    listed, left = _listed(f)
    middle = len(f.run.looks) // 2
    steps = [f.run.looks[0], f.run.looks[middle], f.run.looks[-1]]
    rows = [
        [one.name, *(_number(one.after_backward[place]) for place in (0, middle, -1)), _number(one.at_step[0]), spark(one.after_backward)]
        for one in listed
    ]
    head = ["parameter", *(f"step {one}" for one in steps), f"step {steps[0]}, at step()", "over the steps"]
    yield table(f"Norm of each gradient after backward(); in step {steps[0]} also when the optimizer steps", head, rows)
    yield from left
    promised, found = f.run.promised
    if math.isfinite(promised):
        way = f"it lowers it by {rough(-found)}" if found < 0 else f"it raises it by {rough(found)}"
        yield say(
            f"Tried after step 0: a short way against the gradients should lower the loss of that batch by {rough(-promised)}; "
            f"{way if math.isfinite(found) else 'it is not finite there'}."
        )
    else:
        none = "not finite" if any(f.first_gradients) else "all 0"
        yield say(f"Tried after step 0: the gradients are {none}, so there is no way to go along.")


def _steps(f: Facts) -> Iterator[Block]:
    listed, left = _listed(f)
    middle = len(f.run.looks) // 2
    head = [
        "parameter",
        "requires_grad",
        "in an optimizer",
        "in all",
        "stands still",
        f"step {f.run.looks[0]}",
        f"step {f.run.looks[middle]}",
        f"step {f.run.looks[-1]}",
    ]
    rows = [
        [
            one.name,
            "yes" if one.trainable else "no",
            "yes" if one.held else "no",
            _change(one, one.moved),
            "" if math.isnan(one.still) else share(one.still),
            *(_change(one, one.update[place]) for place in (0, middle, -1)),
        ]
        for one in listed
    ]
    yield table(
        "Change of each tensor from the first step to the last (in all), and in one step, beside its size (×2 is twice its size)",
        head,
        rows,
    )
    if not all(math.isnan(one.still) for one in listed):
        yield say("Stands still: of a tensor's numbers with a gradient, the share that a step leaves as they are (the last step with one).")
    yield from left


def _change(one: Parameter, value: float) -> str:
    if not (one.start.std or one.start.mean):
        return "began at 0"
    if not value < 1:
        return f"×{rough(value)}" if math.isfinite(value) else rough(value)
    return "0" if value == 0 else f"{100 * value:.2g} %" if value >= 1e-5 else f"{100 * value:.0e} %"


def _layers(f: Facts) -> Iterator[Block]:
    head = [
        "layer",
        "kind",
        "units zero for a whole batch",
        "std over samples, last step",
        "mean ± std, last step",
        "mean ± std, first step",
        "output",
    ]
    yield table("What each layer gives", head, [*map(_layer, f.layers)])


def _layer(one: Layer) -> list[str]:
    path = one.path or ("(the model)" if one.registered else "(in no list of the model)")
    if not one.first or not one.last:
        return [path, one.kind, "never called", "", "", "", ""]
    return [
        path,
        one.kind,
        f"{share(one.first.dead)} → {share(one.last.dead)}" if one.kind.startswith("ReLU") else "",
        "" if math.isnan(one.last.across) else rough(one.last.across),
        "not finite" if one.last.bad else f"{rough(one.last.mean)} ± {rough(one.last.std)}",
        f"{rough(one.first.mean)} ± {rough(one.first.std)}",
        shape(one.first.shape),
    ]


def _weights(f: Facts) -> Iterator[Block]:
    listed, left = _listed(f)
    rows = []
    for one in listed:
        assert one.end
        alike = "all equal" if one.unlike == 1 < one.start.shape[0] else ""
        rows.append(
            [
                one.name,
                shape(one.start.shape),
                one.start.dtype,
                f"{rough(one.start.mean)} ± {rough(one.start.std)}",
                f"{rough(one.end.mean)} ± {rough(one.end.std)}",
                alike,
            ]
        )
    yield table(
        "Each tensor: mean ± standard deviation", ["parameter", "shape", "dtype", "at the start", "at the end", "rows at the start"], rows
    )
    yield from left


def _model(f: Facts) -> Iterator[Block]:
    yield {"kind": "code", "text": f.run.printed}
    yield say(f"{plural(len(f.parameters), 'parameter')} with {sum(math.prod(one.start.shape) for one in f.parameters):,} numbers.")


def _loop(f: Facts) -> Iterator[Block]:
    yield {"kind": "list", "title": f"Step {f.run.steps // 2}, call by call", "items": f.run.diary}
    rows = [[_CALLS.get(name, name), f"{f.count(name):,}"] for name in ("forward", "backward", "optimizer.zero_grad", "optimizer.step")]
    rows += [
        [_CALLS.get(name, name), f"{count:,}"]
        for name, count in f.run.counts.items()
        if name in ("clip", "load_state_dict", "scheduler", "second_optimizer.step")
    ]
    yield table(f"Calls in all {f.run.steps} steps", ["call", "times"], rows)
    modes = f.run.modes
    yield say(f"The model was in training mode in {modes[True]:,} calls and in evaluation mode in {modes[False]:,}.")
    if f.run.norms:
        norms = sorted(one for one, _ in f.run.norms)
        yield say(
            f"Before it was clipped to {f.run.norms[0][1]:g}, the norm of all gradients was between "
            f"{rough(norms[0])} and {rough(norms[-1])}."
        )


_CALLS = {
    "forward": "model(…)",
    "backward": "backward()",
    "optimizer.zero_grad": "optimizer.zero_grad()",
    "optimizer.step": "optimizer.step()",
    "clip": "clip_grad_norm_(…)",
    "load_state_dict": "model.load_state_dict(…)",
    "scheduler": "scheduler.step()",
    "second_optimizer.step": "second_optimizer.step()",
}


def _optimizer(f: Facts) -> Iterator[Block]:
    rows = []
    for group in f.run.groups:
        momentum = f"betas {group['betas']}" if "betas" in group else f"{group.get('momentum', 0):g}"
        rows.append(
            [
                group["optimizer"],
                rough(group["lr"]),
                momentum,
                f"{group['weight_decay']:g}",
                f"{group['tensors']} ({group['own']} of the model's {len(f.parameters)})",
            ]
        )
    heads = ["optimizer", "learning rate", "momentum or betas", "weight decay", "tensors"]
    yield table("Parameter groups, before the first step", heads, rows)
    rates = [one[0] for one in f.run.rates]
    if len(set(rates)) > 1:
        yield curve("Learning rate after each step", range(len(rates)), rates, f"{rough(rates[0])} at first, {rough(rates[-1])} at last.")
    else:
        yield say(f"The learning rate is {rough(rates[0])} from the first step to the last.")


def _changed(f: Facts) -> Iterator[Block]:
    yield say("After the training, in evaluation mode, on the last batch.")
    if math.isfinite(f.run.others):
        said = f"change by up to {rough(f.run.others)}" if f.run.others else "stay the same"
        yield say(f"Put the second sample in the place of the first one: the outputs of all other samples {said}.")
    else:
        yield say(
            "Put the second sample in the place of the first one: the outputs of the others cannot be compared, as they are not finite."
        )
    if f.run.changed:
        rows = [[str(place), rough(one)] for place, one in enumerate(f.run.changed)]
        yield table("Change the last token of each sequence: how much do the outputs change?", ["position", "greatest change"], rows)


LOOKS: dict[str, tuple[str, str, Callable[[Facts], Iterator[Block]]]] = {
    "loss": ("Loss", "of each training batch", _loss),
    "fresh": ("Fresh data", "while it trains; both modes", _fresh),
    "batch": ("Batches", "samples, scales, classes", _batch),
    "outputs": ("Outputs", "beside their targets", _outputs),
    "gradients": ("Gradients", "of each parameter", _gradients),
    "steps": ("Steps", "how far each tensor moves", _steps),
    "layers": ("Layers", "what each one gives", _layers),
    "weights": ("Weights", "at the start and at the end", _weights),
    "model": ("Model", "as it prints itself", _model),
    "loop": ("Loop", "one step, call by call", _loop),
    "optimizer": ("Optimizer", "its settings", _optimizer),
    "change": ("Experiment", "change an input: what follows?", _changed),
}
