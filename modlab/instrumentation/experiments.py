"""The classic checks that run the model: everything is as before afterwards, also where one of them fails."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab import format
from modlab.compat import without_torch_function
from modlab.inspection import stores
from modlab.inspection.findings.families import BATCH_NORMS
from modlab.inspection.findings.grouping import Group, cover
from modlab.inspection.findings.subject import Held, Site, Subject
from modlab.instrumentation import batches, leaks
from modlab.instrumentation.custody import same_bits
from modlab.instrumentation.trials import Bench, line_of
from modlab.records.finding import ExperimentRecord, FindingRecord, Outcome
from modlab.records.structure import ROOT
from modlab.statistics import measure_tensor

STEPS = 60
LIMIT_S = 20.0
LEARNT = 0.01
"""Share of the first loss at which a batch is learnt, and no further step is needed."""
RATES = (1e-2, 1e-1, 1e-3)
HIGH, LOW = 1.5, 0.5
"""A first loss above `HIGH` times the guess is too high; one below `LOW` times it shows that the model knows something already."""
ROUNDING = 1e-5

TITLES = {
    "gradients": "every trained parameter gets a gradient",
    "leak": "samples do not see each other",
    "first loss": "the first loss is that of a guess",
    "repeat": "two passes in eval mode are equal",
    "round trip": "a copy that loads the state_dict is equal",
    "overfit": "one batch can be learnt by heart",
}


class Results(NamedTuple):
    """What came out."""

    experiments: tuple[ExperimentRecord, ...]
    findings: tuple[FindingRecord, ...] = ()
    notes: tuple[FindingRecord, ...] = ()


class NotRunError(Exception):
    """A check cannot be made with this model or batch; says why."""


def run(subject: Subject, inputs: Any, target: Any, loss: Any) -> Results:
    """Make all checks, one after the other, each on the model as it is now."""
    reason = _unfit(subject)
    if reason:
        return Results(tuple(_not_run(kind, reason) for kind in TITLES))
    bench = Bench(subject, inputs, target, loss)
    failed = _first_pass(bench)
    if failed is not None:
        return Results(tuple(_not_run(kind, f"the {failed.kind.partition(' ')[0]} fails") for kind in TITLES), (failed,))
    found: list[ExperimentRecord] = []
    for kind, check in CHECKS.items():
        if kind == "round trip" and found[-1].outcome == "failed":
            found.append(_not_run(kind, "two passes differ as it is"))
            continue
        found.append(_made(bench, kind, check))
    return Results(tuple(found), notes=_notes(bench))


def _notes(bench: Bench) -> tuple[FindingRecord, ...]:
    """What is to be said of this batch."""
    first = next((tensor for tensor in batches.tensors(bench.inputs) if tensor.dim()), None)
    norm = next((site for site in bench.subject.sites if issubclass(type(site.module), BATCH_NORMS) and site.training), None)
    if first is None or norm is None or first.shape[0] != 1:
        return ()
    return (
        FindingRecord(
            norm.path, norm.path, "batch of one", "note", norm.path or "the model",
            f"({norm.type}) is in training mode, and the batch has one sample: mean and variance are those of this sample alone",
            "In training each sample is then normalised by itself, and in eval mode by running statistics, which is another function.",
            "DataLoader(..., drop_last=True)",
        ),
    )  # fmt: skip


def _unfit(subject: Subject) -> str:
    """Why the model cannot be run at all; nothing where it can."""
    if any(is_lazy(held.tensor) for held in subject.tensors):
        return "a lazy parameter has no shape until the first forward pass: run the model once"
    with without_torch_function():
        if any(held.tensor.is_meta or type(held.tensor).__name__ == "FakeTensor" for held in subject.tensors):
            return "tensors on the meta device have no values"
    return ""


def _made(bench: Bench, kind: str, check: Callable[[Bench], ExperimentRecord]) -> ExperimentRecord:
    try:
        with bench.kept():
            return check(bench)
    except (NotRunError, leaks.UnfitError) as reason:
        return _not_run(kind, str(reason))
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
        site = bench.where(error)
        at = f" in {site.path or ROOT}" if site is not None else ""
        path = site.path if site is not None else ""
        return ExperimentRecord(path, path, kind, TITLES[kind], "failed", f"raises{at} {line_of(error)}")


def _not_run(kind: str, reason: str) -> ExperimentRecord:
    return ExperimentRecord("", "", kind, TITLES[kind], "not run", reason)


def _record(
    kind: str, outcome: Outcome, what: str, reason: str = "", fix: str = "", site: Site | None = None, **more: Any
) -> ExperimentRecord:
    path = site.path if site is not None else ""
    return ExperimentRecord(more.pop("path", path), path, kind, TITLES[kind], outcome, what, reason, fix, **more)


# ---- one pass ------------------------------------------------------------------------------------------------------------------


def _first_pass(bench: Bench) -> FindingRecord | None:
    """What goes wrong already in one pass; None if nothing does."""
    stage = "forward"
    try:
        with bench.kept():
            output = bench.output()
            stage = "loss"
            value = bench.value(output)
    except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
        site = bench.where(error)
        path = site.path if site is not None and stage == "forward" else ""
        return FindingRecord(
            path, path, f"{stage} fails", "broken", "the forward pass" if stage == "forward" else "the loss",
            f"raises{f' in {path or ROOT}' if stage == 'forward' else ''} {line_of(error)}",
            _explanation(bench, error) or f"The {stage} was called with the batch that was given.",
            _call(bench, stage),
        )  # fmt: skip
    if not issubclass(type(value), Tensor) or value.numel() != 1:
        got = f"a tensor of shape {tuple(value.shape)}" if issubclass(type(value), Tensor) else f"a {type(value).__name__}"
        return FindingRecord(
            "", "", "loss fails", "broken", "the loss", f"gives {got}, and needs to give one number",
            "backward() starts from one number; losses of torch give it with reduction='mean' or 'sum'.", "loss = nn.CrossEntropyLoss()",
        )  # fmt: skip
    return None


def _call(bench: Bench, stage: str) -> str:
    if stage == "loss":
        return "loss(output, target)"
    if type(bench.inputs) in (tuple, list):
        return "model(*inputs)"
    return "model(**inputs)" if type(bench.inputs) is dict else "model(inputs)"


def _explanation(bench: Bench, error: BaseException) -> str:
    if "Expected more than 1 value per channel" in str(error):
        return "BatchNorm in training mode takes mean and variance over the batch, and a batch of one has no variance: drop_last=True."
    return ""


# ---- gradients -----------------------------------------------------------------------------------------------------------------


def gradients(bench: Bench) -> ExperimentRecord:
    """Every trained parameter gets a gradient, and one that is not zero throughout."""
    trained = [held for held in bench.subject.trained if held.tensor.is_leaf]
    if not trained:
        raise NotRunError("no parameter requires a gradient")
    value = bench.value(bench.output())
    if not value.requires_grad:
        return _record(
            "gradients", "failed", "no parameter gets a gradient: the loss has no grad_fn, so nothing leads back to them",
            "The output was detached, computed under no_grad, turned into numbers (.item(), .numpy(), argmax), or does not depend on a "
            "trained parameter.", "output.requires_grad  # in forward: after which line does it become False?",
        )  # fmt: skip
    found = torch.autograd.grad(value, [held.tensor for held in trained], allow_unused=True)
    stats = [None if grad is None else measure_tensor(grad, histogram=False) for grad in found]
    pairs = [*zip(trained, stats, strict=True)]
    lacking = [held for held, one in pairs if one is None]
    bad = [held for held, one in pairs if one is not None and one.nan + one.posinf + one.neginf > 0]
    zero = [held for held, one in pairs if one is not None and one.measured and one.count and one.zeros == one.count]
    numbers = (("trained", float(len(trained))), ("none", float(len(lacking))), ("zero", float(len(zero))), ("not finite", float(len(bad))))
    if not (lacking or bad or zero):
        return _record("gradients", "passed", f"all {format.plural(len(trained), 'parameter')}", numbers=numbers)
    return _of_gradients(bench, trained, (lacking, bad, zero), numbers)


def _of_gradients(
    bench: Bench, trained: list[Held], kinds: tuple[list[Held], list[Held], list[Held]], numbers: tuple[tuple[str, float], ...]
) -> ExperimentRecord:
    lacking, bad, zero = kinds
    parts, reasons = [], []
    worst = lacking or bad or zero
    if lacking:
        called = bench.called()
        groups = cover(lacking, trained, "parameter")
        parts.append(f"{_names(groups)} {_get(groups)} no gradient")
        reasons.append(_why_none(lacking, called))
    if bad:
        groups = cover(bad, trained, "parameter")
        parts.append(f"{_names(groups)} {_get(groups)} a gradient with NaN or Inf")
        reasons.append("A log or a square root meets 0, a division meets 0, or float16 overflows; one step with it ends the training.")
    if zero:
        groups = cover(zero, trained, "parameter")
        parts.append(f"{_names(groups)} {_get(groups)} a gradient that is zero throughout")
        reasons.append("Zero for this batch: dead units, a weight of zero behind it, or a mask. It may be otherwise for another batch.")
    group = cover(worst, trained, "parameter")[0]
    fix = ""
    if lacking:
        fix = f"{group.code or 'model'}.requires_grad_(False)  # or use it in forward"
    elif bad:
        fix = "torch.autograd.set_detect_anomaly(True)  # the next backward() says where it came from"
    return _record(
        "gradients", "failed" if lacking or bad else "unclear", "; ".join(parts), " ".join(reasons), fix, group.site,
        path=group.path, places=tuple(held.path for held in worst) if len(worst) > 1 else (), numbers=numbers,
    )  # fmt: skip


def _get(groups: Sequence[Group]) -> str:
    return "get" if len(groups) > 1 else groups[0].verb("gets", "get")


def _names(groups: Sequence[Group]) -> str:
    more = f" and {format.plural(len(groups) - 2, 'more place')}" if len(groups) > 2 else ""
    return " and ".join(group.words for group in groups[:2]) + more


def _why_none(lacking: Sequence[Held], called: set[int]) -> str:
    absent = [held for held in lacking if id(held.site.module) not in called]
    if len(absent) == len(lacking):
        return "Never called in this pass: registered, and not used in forward (or only its tensors, by a way that leads nowhere)."
    if not absent:
        return "Called in this pass, but what it gives does not reach the loss: detached, under no_grad, or not used."
    return f"{absent[0].path} is never called in this pass; what others give does not reach the loss."


# ---- the first loss ------------------------------------------------------------------------------------------------------------


def first_loss(bench: Bench) -> ExperimentRecord:
    """Cross entropy of a fresh model is that of equal chances for all classes."""
    if not batches.is_cross_entropy(bench.loss):
        raise NotRunError("known only for cross entropy: nn.CrossEntropyLoss, nn.NLLLoss")
    with torch.no_grad():
        output = bench.output()
        if not issubclass(type(output), Tensor) or not output.is_floating_point() or output.dim() == 0:
            raise NotRunError("the output is not one tensor of scores")
        classes = int(output.shape[1 if output.dim() > 1 else 0])
        even = torch.full_like(output, -math.log(classes))
        value, guess = float(bench.value(output)), float(bench.value(even))
        spent = _already_probabilities(bench, output)
    numbers = (("loss", value), ("guess", guess), ("classes", float(classes)))
    if spent is not None:
        return _record("first loss", "failed", *spent, numbers=numbers)
    said = f"{_short(guess)} for {format.plural(classes, 'class', 'classes')}"
    if not math.isfinite(value):
        return _record("first loss", "failed", f"it is {format.number(value)}; a guess has {said}", numbers=numbers)
    if value > HIGH * guess:
        return _record(
            "first loss", "failed", f"the first loss is {_short(value)}; a guess has {said}",
            "The model starts by being sure of what is wrong: the last layer's weights, or its inputs, are too large. The first steps are "
            "spent on unlearning that. (Of a trained model: it does worse than guessing.)",
            "nn.init.normal_(last.weight, std=0.01)", numbers=numbers,
        )  # fmt: skip
    if value < LOW * guess:
        what = f"it is {_short(value)}, below the {said} of a guess: the model knows something already"
        return _record("first loss", "passed", what, "A fresh model cannot know: then the target is in its input.", numbers=numbers)
    return _record("first loss", "passed", f"it is {_short(value)}, and a guess has {said}", numbers=numbers)


def _short(value: float) -> str:
    """Two digits: the others differ from machine to machine."""
    return format.number(float(f"{value:.2g}"))


def _already_probabilities(bench: Bench, output: Tensor) -> tuple[str, str, str] | None:
    """What, reason and fix if the scores are in the other loss's form."""
    dim = 1 if output.dim() > 1 else 0
    if output.shape[dim] < 2:
        return None
    sums = output.double().sum(dim)
    if batches.is_likelihood(bench.loss):
        total = output.double().logsumexp(dim)
        if bool((total.abs() > 1e-2).any()):
            return (
                "NLLLoss takes log-probabilities, and these are none: their exponentials do not add up to 1",
                "Without log_softmax the loss can fall without end, and says nothing.",
                "loss = nn.CrossEntropyLoss()  # or end forward with F.log_softmax(x, dim=1)",
            )
    elif bool((output >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all()):
        return (
            "the output is probabilities already (they add up to 1), and CrossEntropyLoss applies softmax again",
            "Softmax of a softmax is nearly even: the loss cannot come near 0, and gradients are small.",
            "return scores  # without softmax at the end of forward",
        )
    return None


# ---- samples -------------------------------------------------------------------------------------------------------------------


def leak(bench: Bench) -> ExperimentRecord:
    """In eval mode the output of a sample depends on its own input alone (in training mode BatchNorm mixes them on purpose)."""
    bench.subject.model.eval()
    found = leaks.find(bench, 0)
    if found is None:
        return _record("leak", "passed", "in eval mode each output depends on its own input alone")
    what = f"in eval mode output {found.output} depends on input {found.input}"
    norm = next((site for site in bench.subject.sites if _uses_batch(site)), None)
    if norm is not None:
        return _record(
            "leak", "failed", what, f"{norm.path or ROOT} ({norm.type}) keeps no running statistics, so it takes those of the batch in "
            "eval mode too.", f"nn.{norm.type}(..., track_running_stats=True)", norm,
        )  # fmt: skip
    try:
        along = leaks.find(bench, 1)
    except leaks.UnfitError:
        along = found
    if along is None:
        return _record(
            "leak", "unclear", f"{what} along dimension 0; along dimension 1 nothing mixes",
            "Sequence first (batch_first=False)? Then dimension 1 is the batch, and all is well. If dimension 0 is your batch, samples see "
            "each other.", "nn.TransformerEncoderLayer(..., batch_first=True)",
        )  # fmt: skip
    return _record(
        "leak", "failed", what,
        "Something in forward mixes along dimension 0: a mean, a softmax, a view or an attention over the wrong dimension. What the model "
        "says of one sample then depends on its neighbours.",
        "x.view(x.size(0), -1)  # keep dimension 0; softmax(dim=-1), batch_first=True",
    )  # fmt: skip


def _uses_batch(site: Site) -> bool:
    return issubclass(type(site.module), BATCH_NORMS) and site.own("_buffers").get("running_mean") is None


# ---- the same again ------------------------------------------------------------------------------------------------------------


def repeat(bench: Bench) -> ExperimentRecord:
    """Two passes in eval mode give the same bits, and move no buffer."""
    bench.subject.model.eval()
    before = _buffers(bench.subject)
    one = bench.outputs()
    moved = [path for path, tensor in before.items() if not _alike(_buffer(bench.subject, path), tensor)]
    other = bench.outputs()
    gap = _gap(one, other)
    numbers = () if gap is None else (("max_abs", gap),)
    if gap is None:
        if not moved:
            return _record("repeat", "passed", "equal bit by bit")
        return _record(
            "repeat", "unclear", f"equal, but {moved[0]} moves in eval mode too", "A buffer that forward changes must ask self.training.",
            "if self.training: ...", path=moved[0], numbers=numbers,
        )  # fmt: skip
    if moved:
        return _record(
            "repeat", "failed", f"two passes in eval mode differ: {moved[0]} moves in eval mode too, and the output depends on it",
            "eval() sets a flag; forward has to ask for it.", "if self.training: ...", path=moved[0], places=tuple(moved), numbers=numbers,
        )  # fmt: skip
    scale = max((float(t.abs().max()) for t in one if t.is_floating_point() and t.numel()), default=1.0) or 1.0
    if gap <= ROUNDING * scale:
        return _record("repeat", "unclear", "they differ by rounding alone", "A kernel that adds up in any order.", numbers=numbers)
    site, said = _source(bench)
    return _record(
        "repeat", "failed", f"two passes in eval mode differ{said}",
        "eval() reaches modules such as nn.Dropout; a function does not know of it: F.dropout(x) drops in every mode, and so does a module "
        "that is hidden in a list.", "F.dropout(x, p, training=self.training)", site, numbers=numbers,
    )  # fmt: skip


def _buffers(subject: Subject) -> dict[str, Tensor]:
    found = {}
    for site in subject.sites:
        for name, tensor in site.own("_buffers").items():
            if tensor is not None and not tensor.is_nested:
                found[f"{site.path}.{name}" if site.parent else name] = tensor.detach().clone()
    return found


def _buffer(subject: Subject, path: str) -> Tensor | None:
    owner, _, name = path.rpartition(".")
    site = next((site for site in subject.sites if site.path == owner), None)
    return None if site is None else site.own("_buffers").get(name)


def _alike(now: Tensor | None, before: Tensor) -> bool:
    return now is not None and now.shape == before.shape and now.dtype == before.dtype and same_bits(now.detach(), before)


def _gap(one: Sequence[Tensor], other: Sequence[Tensor]) -> float | None:
    """The greatest difference; None where they are equal bit by bit."""
    if len(one) != len(other):
        return math.inf
    worst: float | None = None
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        if same_bits(a, b):
            continue
        gap = float((a.to(torch.float64) - b.to(torch.float64)).abs().max()) if not a.is_complex() else float((a - b).abs().max())
        worst = max(worst or 0.0, math.inf if math.isnan(gap) else gap)
    return worst


def _source(bench: Bench) -> tuple[Site | None, str]:
    """Where two passes part: a module that gives something else for the same input, or the code between modules."""
    one, other = bench.footprints(), bench.footprints()
    for (key, took, gave), (key_2, took_2, gave_2) in zip(one, other, strict=False):
        site = bench.subject.by_module.get(key)
        if key != key_2:
            break
        if site is None:  # one that is not registered: what encloses it will tell
            continue
        if took != took_2:
            above = site.parent or site
            return above, f": {_place(above)} gives {site.path} another input each time"
        if gave != gave_2:
            return site, f": {_place(site)} gives something else for the same input"
    return None, ""


def _place(site: Site) -> str:
    return f"{site.path} ({site.type})" if site.parent else f"the forward of {site.type}"


# ---- copies --------------------------------------------------------------------------------------------------------------------


def _copied(bench: Bench) -> Module:
    for site in bench.subject.sites:
        for name, value in site.held.items() if type(site.held) is dict else ():
            if issubclass(type(value), Tensor) and value.grad_fn is not None:
                site.held[name] = value.detach()  # what a utility computes before each pass; only leaves can be copied
    try:
        return copy.deepcopy(bench.model)
    except Exception as error:  # noqa: BLE001 - whatever is in the model may refuse in its own way
        raise NotRunError(f"the model cannot be copied: {line_of(error)}") from None


def round_trip(bench: Bench) -> ExperimentRecord:
    """A copy whose weights are all overwritten, and that loads the state_dict, gives the same output."""
    bench.model.eval()
    other = _copied(bench)
    hidden = _overwrite(Subject(other))
    other.load_state_dict(bench.model.state_dict())
    gap = _gap(bench.outputs(), bench.outputs(other))
    scale = max((float(t.abs().max()) for t in bench.outputs() if t.is_floating_point() and t.numel()), default=1.0) or 1.0
    if gap is None or gap <= ROUNDING * scale:
        return _record("round trip", "passed", "equal bit by bit" if gap is None else "equal up to rounding")
    numbers = (("max_abs", gap),)
    if hidden:
        more = f" and {len(hidden) - 1} more" if len(hidden) > 1 else ""
        return _record(
            "round trip", "failed", f"a copy that loads the state_dict differs: {hidden[0]}{more} is not in it",
            "A parameter that is not registered is not saved; the next time it starts with other numbers.", "list(model.state_dict())",
            path=hidden[0], places=tuple(hidden) if len(hidden) > 1 else (), numbers=numbers,
        )  # fmt: skip
    return _record(
        "round trip", "failed", "a copy that loads the state_dict differs: what forward uses is not all in it, or not loaded from it",
        "A state_dict hook, or a _save_to_state_dict or _load_from_state_dict of its own, leaves something out.",
        "modlab.state(model)  # what is saved, and what is not", numbers=numbers,
    )  # fmt: skip


def _overwrite(subject: Subject) -> list[str]:
    """Other numbers in everything that is saved, and in hidden parameters, whose names are returned."""
    hidden = []
    with torch.no_grad():
        for site in subject.sites:
            transient = site.held.get("_non_persistent_buffers_set") or ()
            for name, tensor in stores.named_tensors(site.module):
                if name not in transient:
                    _other_numbers(tensor)
        for site in subject.suspicious:
            for place, tensor, _ in subject.finder.tensors(site.module):
                if issubclass(type(tensor), nn.Parameter):
                    _other_numbers(tensor)
                    hidden.append(f"{site.path}.{place}" if site.parent else place)
    return hidden


def _other_numbers(tensor: Tensor) -> None:
    if tensor.is_floating_point() and tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_quantized:
        tensor.data = tensor.detach() * 0.5 + 0.25


def overfit(bench: Bench) -> ExperimentRecord:
    """A copy learns the batch by heart; the model itself takes no step."""
    best: tuple[float, float] | None = None
    for rate in RATES:
        first, least = _learnt(bench, rate)
        if best is None or not least >= best[1]:
            best = (first, least)
        if math.isfinite(least) and least <= 0.5 * first:
            break
    assert best is not None
    first, least = best
    numbers = (("first", first), ("least", least), ("steps", float(STEPS)))
    if not math.isfinite(first) or not math.isfinite(least):
        return _record(
            "overfit", "failed", f"the loss becomes {format.number(first if not math.isfinite(first) else least)}", numbers=numbers
        )
    share = least / first if first > 0 else 1.0 + (least - first) / (abs(first) or 1.0)
    within = f"within {STEPS} steps of Adam on a copy"
    if share <= 0.5 or abs(first) < 1e-6:
        word = next((word for limit, word in ((LEARNT, "a hundredth"), (0.1, "a tenth"), (0.5, "half")) if share <= limit), "what it was")
        return _record("overfit", "passed", f"the loss falls below {word} {within}" if first >= 1e-6 else "the loss is 0", numbers=numbers)
    if share < 0.99:
        return _record(
            "overfit", "unclear", f"the loss falls, but not to half, {within}", "Too few steps, too large a batch, or too small a model.",
            numbers=numbers,
        )  # fmt: skip
    return _record(
        "overfit", "failed", f"the loss does not fall {within}",
        "What cannot learn one batch by heart learns nothing from many: a gradient does not get through, the loss does not depend on the "
        "output as meant, or targets do not belong to inputs.", "modlab.trace(model)  # where does the gradient end?", numbers=numbers,
    )  # fmt: skip


def _learnt(bench: Bench, rate: float) -> tuple[float, float]:
    """The first and the least loss of a copy that takes `STEPS` steps."""
    other = _copied(bench)
    if not stores.mode(other):
        other.train()
    parameters = [p for p in other.parameters() if p.requires_grad]
    if not parameters:
        raise NotRunError("no parameter requires a gradient")
    if not all(p.is_leaf for p in parameters):
        raise NotRunError("the copy of a scripted model cannot be trained")
    optimizer = torch.optim.Adam(parameters, lr=rate)
    losses: list[float] = []
    started = time.perf_counter()
    for step in range(STEPS + 1):
        optimizer.zero_grad()
        value = bench.value(bench.output(other))
        losses.append(float(value.detach()))
        if not math.isfinite(losses[-1]) or step == STEPS or losses[-1] <= LEARNT * losses[0] or losses[0] == 0:
            break
        if not value.requires_grad:
            raise NotRunError("the loss has no grad_fn")
        value.backward()
        optimizer.step()
        if time.perf_counter() - started > LIMIT_S:
            raise NotRunError(f"{STEPS} steps of this model take too long to be tried here")
    return losses[0], losses[-1] if not math.isfinite(losses[-1]) else min(losses)


CHECKS: dict[str, Callable[[Bench], ExperimentRecord]] = {
    "gradients": gradients,
    "leak": leak,
    "first loss": first_loss,
    "repeat": repeat,
    "round trip": round_trip,
    "overfit": overfit,
}
