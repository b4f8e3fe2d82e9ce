"""What a recorder has seen, part by part: for those who say what it means."""

from __future__ import annotations

from typing import Protocol

from modlab.tracing.backward import Backward
from modlab.tracing.class_facts import ClassKinds
from modlab.tracing.event_log import EventLog
from modlab.tracing.folded_calls import FoldedCalls
from modlab.tracing.module_calls import ModuleCalls
from modlab.tracing.operations import Operations
from modlab.tracing.parameter_uses import ParameterUses
from modlab.tracing.roster import Roster
from modlab.tracing.tensor_ids import TensorIds


class Recorded(Protocol):
    """The parts of a trace that has ended, or is looked at while it runs.

    Attributes:
        log: the events.
        roster: the model's modules and parameters.
        sightings: which tensor is which.
        modules: which modules ran.
        operations: which functions ran.
        backward: what autograd did.
        uses: what used a parameter.
        kinds: what is known of a class.
        folds: equal calls that were recorded once; None where all are.
        blind: whether functions could not be seen.
    """

    log: EventLog
    roster: Roster
    sightings: TensorIds
    modules: ModuleCalls
    operations: Operations
    backward: Backward
    uses: ParameterUses
    kinds: ClassKinds
    folds: FoldedCalls | None
    blind: bool
