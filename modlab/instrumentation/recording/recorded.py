"""What a recorder has seen, part by part: for those who say what it means."""

from __future__ import annotations

from typing import Protocol

from modlab.instrumentation.recording.backward import Backward
from modlab.instrumentation.recording.folds import Folds
from modlab.instrumentation.recording.kinds import Kinds
from modlab.instrumentation.recording.modules import ModuleCalls
from modlab.instrumentation.recording.operations import Operations
from modlab.instrumentation.recording.roster import Roster
from modlab.instrumentation.recording.sightings import Sightings
from modlab.instrumentation.recording.tape import Tape
from modlab.instrumentation.recording.uses import Uses


class Recorded(Protocol):
    """The parts of a trace that has ended, or is looked at while it runs.

    Attributes:
        tape: the events.
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

    tape: Tape
    roster: Roster
    sightings: Sightings
    modules: ModuleCalls
    operations: Operations
    backward: Backward
    uses: Uses
    kinds: Kinds
    folds: Folds | None
    blind: bool
