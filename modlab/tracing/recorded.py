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
from modlab.tracing.tensor_ids import TensorIds
from modlab.tracing.trace_index import TraceIndex


class Recorded(Protocol):
    """The parts of a trace that has ended, or is looked at while it runs.

    Attributes:
        log: the events.
        index: the model's modules and parameters.
        tensor_ids: which tensor is which.
        modules: which modules ran.
        operations: which functions ran.
        backward: what autograd did.
        uses: what used a parameter.
        kinds: what is known of a class.
        folded: equal calls that were recorded once; None where all are.
        blind: whether functions could not be seen.
    """

    log: EventLog
    index: TraceIndex
    tensor_ids: TensorIds
    modules: ModuleCalls
    operations: Operations
    backward: Backward
    uses: ParameterUses
    kinds: ClassKinds
    folded: FoldedCalls | None
    blind: bool
