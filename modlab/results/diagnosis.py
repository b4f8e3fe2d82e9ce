"""``modlab.diagnose(model)``: mistakes that PyTorch silently accepts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ReferenceType, ref

import numpy as np
import torch
from torch.nn import Module

from modlab.compat import own_class
from modlab.diagnosing import batches
from modlab.inspection import checks, optimizers, stores, structure
from modlab.inspection.findings import catalogue
from modlab.inspection.findings.subject import Subject
from modlab.records.finding import DiagnosisRecord, ExperimentRecord, Finding, Remedy
from modlab.records.watch import Check
from modlab.results.finding import Experiment, FoundMistake
from modlab.results.rows import RowsResult
from modlab.results.worded import FixGround
from modlab.views.findings import as_data
from modlab.views.sheets import findings as view
from modlab.views.sheets.layout import Sheet
from modlab.wording.causes import CAUSES
from modlab.wording.mistakes import NOT_RUN, UNEXPLAINED

if TYPE_CHECKING:
    from modlab.causes.symptoms import Symptoms
    from modlab.results.fork import Fork


def diagnose(
    model: Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    *,
    batch: tuple[Any, Any] | None = None,
    loss: Callable[[Any, Any], Any] | None = None,
) -> Diagnosis:
    """Find mistakes that PyTorch silently accepts, each with its place, the reason, and the fix as code.

    Without a batch, the model is read but not run, on any rank. With one, it also runs checks: does every
    trained parameter get a gradient, do samples see each other, is the first loss that of a guess, are two passes in eval mode
    equal, does a copy that loads the state_dict give the same output, can a copy memorize the batch? Where they apply, it makes further
    ones: does a position see what follows it, does padding count, is a sequence read to its end, does its order matter, do inputs and
    targets belong together and differ, does the loss ask for the right answer, do units and outputs differ? Afterwards the model is
    unchanged, bit for bit: values, buffers, gradients, flags, hooks and random generators. The model's own hooks run with it. A model
    whose passes talk to other ranks (FSDP, tensor parallel) is not run, because ranks that diverge would hang, and each check says so;
    a model inside ``DistributedDataParallel`` is run without it, only on this rank.

    Args:
        model: an ``nn.Module``.
        optimizer: one or several; reports what they lack, hold twice, or still hold from before.
        batch: inputs and target. Inputs are a tensor, a tuple (several arguments) or a dict (arguments by name); where forward
            takes one tuple or dict, they are that one.
        loss: called as ``loss(output, target)``; must return one number.

    Returns:
        A `Diagnosis`: displays itself; ``.findings`` are certain, ``.notes`` are worth a look, ``.experiments`` are the checks
        that ran the model.

    Raises:
        NotAModuleError: `model` is not a module.
        BatchError: a batch without a loss or the other way round, in a different form, or without samples.

    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    >>> model.adapters = [nn.Linear(3, 3), nn.Linear(3, 3)]
    >>> print(diagnose(model).headline)
    1 finding: adapters (2 Linear) are hidden in a list: they are not trained, moved or saved.
    """
    checks.require_module(model, "diagnose")
    batches.require_samples(batches.require(batch, loss))
    return diagnosed(model, optimizer, batch, loss)


def diagnosed(
    model: Module,
    optimizer: Any,
    batch: Any,
    loss: Any,
    seen: Sequence[Finding] = (),
    training: Symptoms | None = None,
    watch: FixGround | None = None,
    unheld: Sequence[Check] = (),
    headline: str = "",
) -> Diagnosis:
    """The same after a `watch`: which causes it has `seen`, which of its checks did not hold, and what is known of the training.

    Its `headline` is a remark where nothing explains it.
    """
    checks.require_module(model, "diagnose")
    given = optimizers.as_tuple(optimizer, "diagnose")
    pair = batches.require(batch, loss)
    subject = Subject(model, given, loss if stores.is_module(loss) else None)
    found, notes, remarks = catalogue.findings(subject)
    idle = [one for one in found if _is_idle(one, training)]
    notes = [one for one in notes if training is None or not _is_refuted(one, training)]
    found, notes = [one for one in found if one not in idle and not _is_moved(one, training)], [*notes, *map(_noted, idle)]
    experiments: tuple[ExperimentRecord, ...] = ()
    if pair is None:
        found = [*seen, *(one for one in found if not _is_told(one, seen))]
        remarks += [NOT_RUN] if watch is not None else []
    else:
        from modlab.diagnosing import series  # what runs the model is half of what there is to load

        run = series.run(subject, *pair, loss)
        why = seen or (() if run.findings or _is_known(training) else series.causes_of(subject, given, *pair, loss))
        failed = {one.kind for one in run.experiments if one.outcome == "failed"}
        why = [one for one in why if not (_is_spoken_against(one, failed, seen, training) or _is_settled(one, run.experiments))]
        why = _apart([_traced(one, run.experiments) if one.kind == "detached" else one for one in why])
        apart = [one for one in found if _is_left_alone(one, run.experiments) or (one.kind == "hidden" and one.path in run.idle)]
        spared = _spared(training)
        experiments = tuple(_afterwards(one, spared, training, seen if watch is not None else None) for one in run.experiments)
        found = [one for one in found if one not in apart and not _is_told(one, why)]
        named = {(one.kind, one.path) for one in why}
        kinds = {one.kind for one in why}  # the same mistake in the same pass, which the batch shows at another place
        found = [
            *why,
            *(one for one in run.findings if one.kind not in kinds),
            *(one for one in found if (one.kind, one.path) not in named),
        ]
        noted = [one for one in run.notes if one.kind != "batch of one" or "batch norm of one" not in kinds]
        notes = [*noted, *notes, *map(_noted, apart)]
    explained = any(one.severity == "broken" for one in found) or any(one.outcome == "failed" for one in experiments)
    told = () if explained else tuple(map(_told, unheld))  # else they are what came of it
    remarks += [UNEXPLAINED] if headline and not (explained or told) else []
    notes += [one for one in found if one.severity == "note"]
    found = [*told, *(one for one in found if one.severity != "note")]
    record = DiagnosisRecord(
        own_class(type(model)).__name__,
        catalogue.checks(subject),
        len(subject.sites),
        len(subject.parameters),
        len(subject.buffers),
        tuple(found),
        tuple(notes),
        experiments,
        subject.labels,
        pair is not None,
        tuple(remarks),
    )
    code = "modlab.diagnose(model, optimizer" if given else "modlab.diagnose(model"
    made = Diagnosis(record, model, code + (", batch=batch, loss=loss)" if pair is not None else ")"))
    made._given, made._watch, made._seen = (tuple(map(ref, given)), pair, loss), watch, {(one.kind, one.path) for one in (*seen, *told)}
    return made


def _told(check: Check) -> Finding:
    """A check of a watch's verdict as a finding."""
    return Finding(check.kind, check.path, {**check.facts, "check": check.name}, "broken", check.step, check.evidence, check.fixes)


def _is_spoken_against(cause: Finding, failed: set[str], seen: Sequence[Finding], training: Symptoms | None) -> bool:
    """Whether an experiment that failed, or what is known of the training, says that it is not this cause."""
    wild = training is not None and (training.is_wild or training.is_blown_up or training.has_leapt)  # the model shows what came of it
    falls = training is not None and training.falls  # how far a loss can fall that has come down already is not known
    made = failed & MAKES.get(cause.kind, set())
    explained = bool((failed & CAUSES.keys()) - made - ({cause.kind} if made else set())) and not (seen and wild)
    left = cause.facts.get("tier") == LEFT and (explained or (falls and not seen))  # what is left when nothing else is, and the loss stays
    afterwards = training is not None and training.trained and not seen and cause.kind == "eval while training"  # evaluated at last
    meant = falls and not seen and cause.kind in AS_BUILT  # and as it is the loss came down
    return left or afterwards or meant


def _is_settled(cause: Finding, experiments: Sequence[ExperimentRecord]) -> bool:
    """Whether a watch knew only that hooks stand on the way of the gradients, and passes without them have shown what they do."""
    return "on the way" in cause.facts and any(one.name == "hooks" for one in experiments)


def _spared(training: Symptoms | None) -> tuple[str, ...]:
    """Experiments whose failure says nothing after such a training."""
    if training is None:
        return ()
    waits = ("leak",) if training.waits else ()  # the input has to be remembered before it tells the target
    checked = any(one.kind == "falls" for one in training.record.verdict.checks)
    falls = training.falls or (checked and training.fallen > A_LITTLE)  # and may be where it ends
    return (*(SPARED if training.learns else ()), *(("does not learn",) if falls else ()), *waits)


def _afterwards(
    one: ExperimentRecord, spared: Sequence[str], training: Symptoms | None, seen: Sequence[Finding] | None
) -> ExperimentRecord:
    """An experiment, where a training was seen: what it says nothing of any more, and what is left to a watch, if one has seen it."""
    if seen is not None and one.kind == "another loss":
        return replace(one, kind="loss of a watch")
    if one.kind == "targets fit" and any(cause.kind in OF_TARGETS for cause in seen or ()):
        return replace(one, kind="targets of a watch", outcome="not run")
    if training is None:
        return one
    if seen is not None and _came_otherwise(one, training):
        return replace(one, kind="gradients of a watch", outcome="not run", severity="note", facts={}, fixes=())
    if seen is not None and _is_explained(one, seen):
        one = replace(one, fixes=())
    meant = not training.is_stuck if one.name in REVERSED else training.learns or "patches" not in one.facts
    if one.outcome == "unclear" and not meant:
        return replace(one, outcome="failed", severity="broken")
    return replace(one, outcome="unclear") if one.kind in spared else one


def _apart(causes: Sequence[Finding]) -> list[Finding]:
    """Each cause once: what a trace makes of a second one may be the first."""
    return list({one.kind: one for one in reversed(causes)}.values())[::-1]


def _is_explained(one: ExperimentRecord, seen: Sequence[Finding]) -> bool:
    """Whether a cause that the watch has seen is why it fails, so that what it would advise by itself mends nothing."""
    return one.name in CONSEQUENCES and any(cause.severity == "broken" and cause.kind != one.kind for cause in seen)


def _came_otherwise(one: ExperimentRecord, training: Symptoms) -> bool:
    """Whether what got no gradient from this batch had one in the training, as a generator where only the discriminator is run."""
    if one.name != "gradients" or one.outcome not in ("failed", "unclear") or "without" not in one.facts:
        return False
    if "spoilt" in one.facts or "flat" in one.facts:
        return False
    places = {*one.facts.get("places", ())} or {one.path}  # type: ignore[misc]
    felt = {weight.path for weight in training.watched.parameters if weight.felt}
    return bool(places) and places <= felt


def _traced(cut: Finding, experiments: Sequence[ExperimentRecord]) -> Finding:
    """The finding of a cut in the graph, where a trace of the model has seen that something else keeps the gradient away."""
    failed = {one.kind: {*one.facts.get("places", ())} for one in experiments if one.outcome == "failed"}  # type: ignore[misc]
    cut_off = {*cut.facts.get("places", ())}  # type: ignore[misc]
    kind = THROUGH if THROUGH in failed else UNUSED if cut_off and cut_off <= failed.get(UNUSED, set()) else ""
    facts = {name: value for name, value in cut.facts.items() if name not in ("rival", "settle", "before")}
    return replace(cut, kind=kind, facts=facts, fixes=(Remedy(kind),)) if kind else cut


def _is_left_alone(found: Finding, experiments: Sequence[ExperimentRecord]) -> bool:
    """Whether what no optimizer holds is what runs without autograd, as an encoder of which only the features are taken."""
    shut = {str(place) for one in experiments if one.kind == "without grad" for place in one.facts.get("places", ())}  # type: ignore[union-attr]
    return found.kind == "in no optimizer" and bool(shut) and shut == {*found.facts.get("places", ())}  # type: ignore[misc]


def _is_told(found: Finding, causes: Sequence[Finding]) -> bool:
    """Whether a cause has told already that no optimizer holds these parameters."""
    told = [str(place) for one in causes if one.kind == "not in the optimizer" for place in one.facts["places"]]  # type: ignore[union-attr]
    own = [str(place) for place in found.facts.get("places", ())] or [found.path]  # type: ignore[union-attr]
    return found.kind == "in no optimizer" and all(any(f"{place}.".startswith(f"{one}.") for place in told) for one in own)


def _is_known(training: Symptoms | None) -> bool:
    """Whether a short training could tell nothing more: the training learns, or its loop steps copies of the weights."""
    return training is not None and (training.learns or any(one.is_copy for one in training.watched.parameters))


def _is_moved(found: Finding, training: Symptoms | None) -> bool:
    """Whether a loop was seen to train it all the same: by copies, by an optimizer that was let go since, or, frozen now, in its turn."""
    if found.kind not in (*UNHELD, "frozen, but moves") or training is None:
        return False
    if found.kind in UNHELD:
        held = found.kind == "in no optimizer"  # by the one that watched: of what was replaced since, this is another parameter
        moved = {one.path for one in training.watched.parameters if one.is_copy or (held and one.owned and one.moved)}
    else:
        moved = {one.path for one in training.watched.parameters if one.trainable and one.moved}
    places = {*found.facts.get("places", ())} or {found.path}  # type: ignore[misc]
    return bool(places) and places <= moved


def _is_made(note: Finding, training: Symptoms) -> bool:
    """Whether the training has made a scale wild: then another beginning mends nothing, and why it did so is asked."""
    norms = training.weights.get(note.path, np.zeros(0))
    if note.kind != "wild scale" or len(norms) < 2 or not norms[0] > 0:
        return False
    return not 1 / TIMES < float(norms[-1] / norms[0]) < TIMES  # NaN as well


def _is_refuted(note: Finding, training: Symptoms) -> bool:
    """Whether a training says that something is no reason to look: it learns, it has made it, or a bias's gradient counts."""
    if _is_made(note, training):
        return True
    if note.kind == "bias before a norm":
        biases = (one for one in training.watched.parameters if one.path == f"{note.path}.bias")
        return any(one.graded and one.cancelled is None for one in biases)
    return training.learns and note.kind in OF_A_BEGINNING


def _is_idle(found: Finding, training: Symptoms | None) -> bool:
    """Whether what no optimizer holds never had a gradient in a training that learns, as a teacher that runs without autograd."""
    if found.kind != "in no optimizer" or training is None or not training.learns:
        return False
    places = {*found.facts.get("places", ())} or {found.path}  # type: ignore[misc]
    own = [one for one in training.watched.parameters if any(f"{one.path}.".startswith(f"{place}.") for place in places)]
    return bool(own) and not any(one.felt for one in own)


def _noted(found: Finding) -> Finding:
    return replace(found, severity="note")


CONSEQUENCES = ("collapse", "dead units", "leak", "overfit")
"""Checks that fail by what a training has made of the weights, whatever was its fault."""

TIMES = 5.0
"""By how much the size of a weight has changed where it is the training that makes it wild."""

A_LITTLE = 0.05
"""Of its first value, by which a loss has fallen that a trend shows to fall."""

OF_A_BEGINNING = frozenset(("learning rate 0", "in evaluation mode", "wild scale"))
"""What is worth a look before a training, and usual after one that has learned: its schedule has ended, its model is evaluated."""

UNHELD = ("replaced since", "in no optimizer")
"""Findings of parameters that no step is said to change."""

AS_BUILT = ("frozen", "no nonlinearity")
"""Causes in what the model is, and that a whole training shows better than a few steps of what it has become."""

THROUGH, UNUSED = "no gradient through", "unused layers"
"""What a trace can see where a watch sees that gradients do not arrive."""

MAKES = {"rate too high": {"dead units"}, "too much noise": {"dead units"}, "no positions": {"tokens unknown"}}
"""What comes of a cause, and does not speak against it: steps that are too long, or noise that is too loud, kill units; places that are all
the same are no tokens."""

LEFT = 2
"""Tier of causes that are named where nothing else shows one."""

OF_TARGETS = ("targets shifted", "targets shuffled", "constant targets", "imbalance", "leak", "wrong axes", "targets not moved")
"""What a watch may have found in the targets of more batches than the one at hand."""

SPARED = ("unused layers", "state moves", "loss too small", "wrong axes", "targets shifted", "exploding recurrence")
"""What gets no gradient, or is kept from one pass to the next, is no fault of a model that was seen to learn: so it was meant. And no loss
is too small that was seen to fall well, no target belongs to other inputs that is learned from its own, and no state explodes by weights
that were learned."""

REVERSED = ("hooks", "gradcheck")
"""Experiments that find gradients turned around, as they may be on purpose; but not where a training is stuck."""

SCHEMA = 2
"""Of `Diagnosis.to_dict`: in 1 a finding was its sentences."""


class Diagnosis(RowsResult):
    """What was found. Made by `modlab.diagnose`."""

    kind: ClassVar[str] = "diagnose"

    def __init__(self, record: DiagnosisRecord, model: Module, code: str) -> None:
        super().__init__(model)
        self.record = record
        self.code = code  # type: ignore[misc]
        self._model = structure.of_users(model).fingerprint
        self._given: tuple[tuple[ReferenceType[Any], ...], tuple[Any, Any] | None, Any] = (), None, None  # optimizers, batch, loss
        self._watch: FixGround | None = None  # may have kept better weights than the present ones
        self._seen: set[tuple[str, str]] = set()  # kind and path of what that has found

    @property
    def findings(self) -> tuple[FoundMistake, ...]:
        """What is certain, worst first; a check that failed with the batch stands among the `experiments`."""
        return tuple(FoundMistake.of(one, self) for one in self.record.findings)

    @property
    def notes(self) -> tuple[FoundMistake, ...]:
        """What is worth a look, but may be intended."""
        return tuple(FoundMistake.of(one, self) for one in self.record.notes)

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """What each check that ran the model found; empty without a batch."""
        return tuple(Experiment.of(one, self) for one in self.record.experiments)

    @property
    def can_try(self) -> bool:
        """Whether it was given a batch, to try fixes on."""
        return self._given[1] is not None

    @property
    def can_fork(self) -> bool:
        """Whether it is of a watch that kept a training that can be forked."""
        return self._watch is not None and self._watch.can_fork

    def try_fix(self, finding: Finding, steps: int = 100) -> Fork:
        """Apply a finding's fix to a fork, beside an unchanged one: `Worded.try_fix`. Of what a watch has seen, that one has the fork."""
        from modlab.results import fork

        fork.require_finding(finding, "modlab.diagnose(…)")
        steps = fork.require_steps(steps)
        optimizers, pair, loss = self._given
        fork.require_surest(finding, self.record.findings, self.can_fork)
        fork.require_fix(finding, self.can_fork)
        is_seen = self._watch is not None and (finding.kind, finding.path) in self._seen
        if self._watch is not None and is_seen and (self._watch.can_try or not self.can_try):
            return self._watch.try_fix(finding, steps)
        if self._source is None:
            raise fork.without_ground()
        model, held = self._source(), [one() for one in optimizers]
        if model is None or None in held:
            again = "modlab.diagnose(model, optimizer, batch=(inputs, target), loss=loss)"
            raise fork.without("model" if model is None else "optimizer", "diagnosis", again)
        return fork.of_batch(model, held, pair, loss, finding, steps)

    def __getstate__(self) -> dict[str, Any]:
        """A pickled diagnosis is what was found."""
        return {**super().__getstate__(), "_given": ((), None, None), "_watch": None}

    @property
    def verdict(self) -> str:
        """The worst of findings and checks: "broken", "careful" or "fine"; notes do not count."""
        worst = {one.severity for one in self.findings} | {"broken" for one in self.experiments if one.outcome == "failed"}
        return "broken" if "broken" in worst else "careful" if worst else "fine"

    @property
    def records(self) -> Sequence[FoundMistake | Experiment]:
        """Findings, checks and notes, in the order of the view."""
        return (*self.findings, *self.experiments, *self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``schema``, ``kind``, ``headline`` and ``records``: findings, checks and notes (docs/findings.md).

        ``remarks`` are sentences: what could not be checked, and why.
        """
        return {**super().to_dict(), "schema": SCHEMA, "remarks": [*self.record.remarks]}

    def _row(self, record: FoundMistake | Experiment) -> dict[str, Any]:
        return {**as_data(record), "reason": record.reason}

    def _sheet(self) -> Sheet:
        return view.of_diagnosis(self.record)

    def _fingerprint(self) -> str:
        return self._model
