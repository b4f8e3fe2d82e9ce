"""Futures: a training run on from a kept state, unchanged and changed, side by side, a step at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from modlab.errors import ForkError, ModlabError
from modlab.forking.keeper import Keeper
from modlab.forking.kept_states import TrainedThings
from modlab.forking.module_settings import are_in_other_modes
from modlab.forking.originals import LostOriginalError, Originals, ReachedOriginalError, SharedOriginalError, untouched
from modlab.forking.player import BroughtError, ChangedConstantError, LackingError, OtherBranchError, Player, TakenError
from modlab.forking.step_losses import line_of_loss, losses_of
from modlab.forking.tape import STEP, TapedStep
from modlab.records.finding import Fact
from modlab.records.fork import ForkRecord
from modlab.running.guarded import line_of

Change = Callable[[Player], None]
"""What changes a fork."""


class ForkGround(Protocol):
    """What a fork can be made of: a training that was kept, or the present state with one batch.

    Attributes:
        began: the step of the state; kind: "kept" or "batch"; facts: to tell of it.
    """

    began: int
    kind: str
    facts: Mapping[str, Fact]

    def player(self) -> Player:
        """A copy of the training at its beginning."""

    def steps(self) -> Iterator[Any]:
        """What can be played."""

    def beside(self, work: Callable[..., None], *args: Any) -> None:
        """Call `work`, which leaves the original as it is."""

    def original(self) -> TrainedThings:
        """The training itself, as far as it is there."""


class KeptGround:
    """A state that was kept, and the tape behind it.

    Args:
        keeper: what was kept; it is left as it is.
        at: the step of interest: the last state at or before it.
    """

    kind = "kept"

    def __init__(self, keeper: Keeper, at: int) -> None:
        state = keeper.from_state(at)
        assert state is not None
        self._keeper, self._state, self.began = keeper, state, state.step
        self._originals = Originals(keeper.tensors())
        names = tuple(keeper.recording.settings.unrepeated)
        self.facts: Mapping[str, Fact] = {"attributes": names} if names else {}

    def beside(self, work: Callable[..., None], *args: Any) -> None:
        """Call `work`, which leaves the original as it is."""
        self._originals.spared(work, *args)

    def original(self) -> TrainedThings:
        """The training itself, as far as it is there."""
        return self._keeper.there()

    def player(self) -> Player:
        """A copy of the training at its beginning."""
        return Player(self._state, self._keeper.places.crossing)

    def steps(self) -> Iterator[TapedStep]:
        """The tape."""
        return self._keeper.after(self._state)


class Futures:
    """One fork and its unchanged twin.

    Args:
        ground: of what they are made.
        at: the step at which the fork is changed; where that cannot be reached, it is changed at once.
        steps: how many to make behind that; None: as many as there are.
        change: what to change; None: nothing.
    """

    def __init__(self, ground: ForkGround, at: int, steps: int | None, change: Change | None) -> None:
        self._ground, self._change = ground, change
        self._line: int | None = None
        self._lines: set[int] = set()  # at which gradients are asked for
        self.began = ground.began
        self._steps = [*ground.steps()]  # the training may go on meanwhile, and let go of some
        last = max((step.until for step in self._steps), default=self.began)
        self.at = at if at <= last else self.began
        self._lost: dict[str, Fact] = {} if at <= last else {"asked": at, "kept": last - self.began}
        self.until = last if steps is None else min(last, self.at + steps)
        self._until = math.inf if steps is None else self.at + steps
        self.twin = ground.player()
        self.fork = ground.player() if change is not None else None
        self._curves: tuple[list[float], list[float], list[float]] = [], [], []
        self._differs, self.ended, self.error = -1, "", ""
        self._other = "", ""  # what the loop did to a member of the model, where that ends it
        self._stuck = ""  # the error in which the twin of one batch ends
        pairs = zip(self.twin.things.numbers, self.twin.things.optimizers, strict=False)
        self._rates = {(number, place): one.get("lr") for number, held in pairs for place, one in enumerate(held.param_groups)}
        self._steered = False
        self._question: ModlabError | None = None
        self.changed = self._has_other_modes = False

    def run(self) -> Iterator[int]:
        """Make the steps; gives the number of each that was made."""
        for step in self._steps:
            if step.lacks:
                self.ended, self._other = step.lacks, step.other
                return
            self._make(step)
            if self.ended:
                return
            yield step.number
            if step.until >= self._until:
                self.ended = "steps"
                return
        self.ended = "tape"

    def _make(self, step: TapedStep) -> None:
        if self.fork is not None and self._change is not None and step.until > self.at and not self.changed:
            self.changed, self.at = True, max(self.at, step.number)
            self._try(self._begin, step)
        if not self.ended:
            self._try(self._both, step)
        if not self.ended:
            self._note(step)

    def _begin(self, step: TapedStep) -> None:
        fork, change = self.fork, self._change
        assert fork is not None and change is not None
        self._ground.beside(fork.running, fork.play_behind, step)
        fork.prepare(step)
        known = {entry.what for one in self._steps if one.number <= step.number for entry in one.entries if entry.kind == STEP}
        try:
            untouched(self._ground.original(), self._ground.beside, self._change_fork, fork, change, known)
        except ModlabError:
            raise
        except LostOriginalError as error:
            raise ForkError(
                f"The change acts on the training itself, and not all of it could be put back: {error}\n"
                "  Begin anew from a checkpoint, and change what the function is given: def change(model, optimizer): …"
            ) from error
        except SharedOriginalError as error:
            raise ForkError(
                "The change puts tensors of the training itself into the copy, so the fork would write into the training: it is refused.\n"
                "  Put in copies of them: p.data = best[name].clone(), or copy.deepcopy(net.state_dict())"
            ) from error
        except ReachedOriginalError as error:
            raise ForkError(
                "The change acts on the training itself, which is put back: a fork changes a copy.\n"
                "  Change what the function is given: def change(model, optimizer): …"
            ) from error
        except Exception as error:
            raise ForkError(
                f"The change raised {line_of(error)}\n"
                f"  Model and optimizer of the training are as they were. Change what the copy at step {self.at:,} has."
            ) from error

    def _change_fork(self, fork: Player, change: Change, known: set[Any]) -> None:
        """Make the change.

        Raises:
            SharedOriginalError: it has put tensors of the original into the fork.
        """
        shared = fork.things.memories()  # by a `__deepcopy__` of the user's, which may share what it likes
        fork.running(fork.change, lambda: change(fork), known)
        if (fork.things.memories() - shared) & self._ground.original().memories():
            raise SharedOriginalError

    def _both(self, step: TapedStep) -> None:
        self._ground.beside(self._play_both, step)

    def _play_both(self, step: TapedStep) -> None:
        if not self._stuck:
            self._play_twin(step)
        if self.fork is not None:
            self.fork.running(self.fork.play, step)

    def _play_twin(self, step: TapedStep) -> None:
        """On one batch it may be what the change mends that it cannot run."""
        try:
            self.twin.running(self.twin.play, step)
        except Exception as error:
            if self.fork is None or self._ground.kind == "kept" or self._curves[0]:
                raise
            self._stuck, self.twin.losses = line_of(error), {}

    def _note(self, step: TapedStep) -> None:
        if self._line is None:
            self._line = line_of_loss(step)
        self._lines |= {one.line for one in step.losses()}
        counted = losses_of(step, self._line) or losses_of(step, None)
        original = {id(one): step.value_of(one) for one in counted} or self.twin.losses  # of one batch there is no tape
        fork = (self.fork or self.twin).losses
        for curve, values in zip(self._curves, (original, self.twin.losses, fork), strict=True):
            curve.append(_sum([values[key] for key in original or fork if key in values]))
        if not self.twin.same and self._differs < 0:
            self._differs = step.number
        self._note_rates(step)
        if self.fork is not None and not self._has_other_modes:
            self._has_other_modes = are_in_other_modes(self.fork.things.modules(), self.twin.things.modules())

    def _members(self) -> dict[str, Fact]:
        how, name = self._other
        return {"members": how, "member": name} if how else {}

    def _joined(self) -> dict[str, Fact]:
        """What became of the rates of groups that the change has added."""
        fates = {one.fate for one in self.fork.joined_groups.values()} - {""} if self.fork is not None else set[str]()
        return {"joined": min(fates)} if fates else {}

    def _note_rates(self, step: TapedStep) -> None:
        """Whether the loop sets rates otherwise than by a schedule that counts steps: that notes in the group with which it began."""
        for entry in step.entries:
            for place, (group, _) in enumerate(entry.settings or () if entry.kind == STEP else ()):
                rate, before = group.get("lr"), self._rates.get((entry.what, place))
                is_set = isinstance(rate, float) and isinstance(before, float) and rate != before
                self._steered = self._steered or (is_set and "initial_lr" not in group and step.number > self.at)
                self._rates[entry.what, place] = rate

    def _try(self, work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except OtherBranchError:
            self.ended = "branch"
        except ChangedConstantError:
            self.ended = "constant"
        except LackingError:
            self.ended = "old"
        except TakenError:
            self.ended = "taken"
        except BroughtError:
            self.ended = "brought"
        except ReachedOriginalError:
            self.ended = "original"
        except ModlabError as error:  # a question that cannot be answered
            self.ended, self._question = "error", error
        except Exception as error:  # noqa: BLE001 - a model of the user's may raise anything; it is said in the result
            self.ended, self.error = "error", line_of(error)

    def raise_question(self) -> None:
        """Raise what was wrong with the change itself."""
        if self._question is not None:
            raise self._question

    def record(self, title: str, change: str = "", facts: Mapping[str, Fact] | None = None, unjudged: str = "") -> ForkRecord:
        """What came of it so far; whether it is judged, and the facts, are its reader's to know.

        Of a loss of which the watch saw too few values ("too early") the fork has them all: it is not judged where some are negative.
        """
        original, twin, fork = (np.array(curve, np.float64) for curve in self._curves)
        apart = np.flatnonzero(~((original == fork) | (np.isnan(original) & np.isnan(fork))))
        parts = self.began + int(apart[0]) if len(apart) else -1
        ended = self.ended or "running"
        seen: dict[str, Fact] = {"stuck": self._stuck} if self._stuck else {"steered": True} if self._steered else {}
        seen |= self._joined()
        what, curves = (change, {**self._ground.facts, **(facts or {}), **self._lost, **self._members(), **seen}), (original, twin, fork)
        line = (self._line or 0) if len(self._lines) > 1 else 0
        if unjudged == "too early":
            unjudged = "negative values" if bool((np.fmin(original, fork) < 0).any()) else ""
        unjudged = unjudged or ("modes" if self._has_other_modes else "")
        place = title, self._ground.kind, self.began, self.at
        return ForkRecord(*place, *curves, *what, self._differs, parts, ended, self.error, self.until, unjudged, line)


def _sum(values: list[Any]) -> float:
    there = [float(one.double().sum()) for one in values if one is not None]
    return sum(there) if there else math.nan
