"""Knobs on a running loop: values that the user moves while it trains.

A move is a number in a queue, put there by any thread. It takes hold in the training's own thread, between two steps: with the first
look at a knob after a step of an optimizer, or when the next step of an optimizer begins. From there to the end of that step all knobs
stand still. So the steps at which moves took hold are all that a replay needs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Real
from threading import get_ident
from typing import Any

from modlab import format
from modlab.errors import QuestionError
from modlab.records.knobs import KnobMove, KnobRecord
from modlab.records.watch import ScalarRecord
from modlab.running.guarded import Look, guarded
from modlab.watching.param_groups import BOUND, LR, GroupValue
from modlab.watching.scalars import Scalar

MOST = 32
"""Knobs of a watch."""

SAY = 'Write: lr = w.knob("lr", 1e-5, 1, log=True)'
OWN = 'Write: momentum = w.knob("momentum", 0.01, 0.99)'


class Dial:
    """One value of a loop, and how far it may go.

    Args:
        dials: those of its watch.
        name: a value of the optimizers (`BOUND`), or any other name for one that the loop reads.
        low, high: the range; a value outside is cut to it.
        log: whether the slider's parts are factors.
        step: the least difference of two values; none: any. With whole numbers for `low` and `step` the value is one.
        start: the first value; none: the optimizer's, or `low`.
    """

    def __init__(
        self, dials: Knobs, name: str, low: float, high: float, *, log: bool = False, step: float | None = None, start: float | None = None
    ) -> None:
        _require_range(name, low, high, log, step)
        self._dials, self.name, self.log, self.step = dials, name, bool(log), step
        self._whole = step is not None and all(float(one).is_integer() for one in (low, step))
        self.low, self.high = self._kept(low), self._kept(high)
        self._group = GroupValue(name, dials.optimizers) if name in BOUND else None
        self._moves: list[tuple[int, float]] = []
        self._asked: float | None = None
        self._was_read = False
        first = self.low if self._group is None else self._value_of_optimizers(start)
        self.start = self._now = first
        self.curve = None if name == LR else Scalar(name)  # rates have one
        self.first: float | None = None  # what the optimizers get before the first step
        if start is not None:
            if self._group is None:
                self.start = self._now = self.fitting(start)
            else:
                self.first = self.fitting(start)

    # ---- what the loop sees

    def __call__(self) -> float:
        """The value that holds in this step; until the step ends it stays the same."""
        dials = self._dials
        if dials.between:
            dials.step_begins()
        self._was_read = True
        return self._now if self._group is None else self._group.read()

    @property
    def value(self) -> float:
        """Where the knob stands: what it was last moved to, which holds from the next step on."""
        asked = self._asked
        if asked is not None:
            return asked
        return self._now if self._group is None else self._kept(self._group.read())

    @value.setter
    def value(self, value: float) -> None:
        self.set(value)

    def set(self, value: float) -> None:
        """Move it, from any thread: the value holds from the next step on.

        Args:
            value: a number; outside of the range, its nearer end.

        Raises:
            QuestionError: it is not a number; or the model runs on several ranks and this is not the thread of the loop.
        """
        self._dials.ask(self, self.fitting(value))

    @property
    def moves(self) -> tuple[KnobMove, ...]:
        """Each move, and the first step with the new value."""
        return tuple(KnobMove(step, self.name, value) for step, value in [*self._moves])

    # ---- what the watch does

    def fitting(self, value: Any) -> float:
        """The nearest value that it can have."""
        if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
            raise QuestionError(f"knob {self.name!r} got {format.cut(repr(value), 80)}, but takes a number from {self._range}.")
        cut = min(max(float(value), self.low), self.high)
        if self.step is not None:
            cut = min(self.low + round((cut - self.low) / self.step) * self.step, self.high)
        return self._kept(cut)

    def put(self, value: float, step: int) -> None:
        """Let a value hold from a step on."""
        before = self._now if self._group is None else self._group.read()
        if value != before or (self._group is not None and self._group.half_written):
            if self._moves[-1:] != [(step, value)]:  # else an interrupt came between this line and the next
                self._moves.append((step, value))
            if self._group is not None:
                self._group.write(value)
        self._now = value

    def record(self) -> KnobRecord:
        """The knob as it is now."""
        value = self._now if self._group is None else self._group.read()
        bound = self._group is not None
        return KnobRecord(self.name, self.low, self.high, self.log, self.start, value, bound, self._was_read, self.moves)

    @property
    def overruled(self) -> float | None:
        """What the optimizers have in place of the last move; None where that holds."""
        if self._group is None or not self._moves or self._asked is not None:
            return None
        now = self._group.read()
        return None if math.isclose(now, self._moves[-1][1], rel_tol=1e-6) or math.isnan(now) else now

    @property
    def _range(self) -> str:
        return f"{shown(self.low)} to {shown(self.high)}"

    def _kept(self, value: float) -> float:
        return int(value) if self._whole and math.isfinite(value) else float(value)

    def _value_of_optimizers(self, start: float | None) -> float:
        """Theirs now.

        Raises:
            QuestionError: there is none, or it is outside of the range and no other start was given.
        """
        group = self._group
        assert group is not None
        if not group.groups:
            other = f'For a value that your own loop reads, take a different name: w.knob("my_{self.name}", …).'
            if not group.known:
                raise QuestionError(
                    f"w.knob({self.name!r}, …) moves the optimizer's {self.name}, but this watch knows no optimizer yet.\n"
                    f"  Write: modlab.watch(model, optimizer), or make the knob after the first step. {other}"
                )
            raise QuestionError(
                f"w.knob({self.name!r}, …) moves the optimizer's {self.name}, but none has it: {'; '.join(group.known)}.\n  {other}"
            )
        objection = group.objection(self.low, self.high)
        if objection:
            raise QuestionError(f"w.knob({self.name!r}, {self.low!r}, {self.high!r}, …): {objection}.\n  {OWN}")
        value = group.read()
        if start is None and not self.low <= value <= self.high:
            raise QuestionError(
                f"w.knob({self.name!r}, …): the optimizer's {self.name} is {shown(value)}, outside {self._range}.\n"
                f"  Give a range that holds it, or a first value: start={shown(self.low)}."
            )
        return value


class Knobs:
    """The knobs of one watch.

    Args:
        ends: whom an error of ours ends.
        optimizers: those of the watch, at this moment.
        say: tells the user something.
        alone: whether no other rank makes the same steps.

    Attributes:
        between: whether a step has ended and the next one has not begun: moves can take hold.
        steps: so many steps the counted optimizers have announced.
    """

    def __init__(
        self, ends: Look, optimizers: Callable[[], Sequence[Any]], say: Callable[[str], None], alone: Callable[[], bool] = lambda: True
    ) -> None:
        self.ends, self.optimizers, self._say, self._alone = ends, optimizers, say, alone
        self.dials: dict[str, Dial] = {}
        self.between = False
        self.steps = 0
        self.detached = False  # the watch has ended: moves hold at once, and nobody notes them
        self._announced = False
        self._asked: deque[tuple[Dial, float]] = deque()
        self._replay: dict[str, deque[KnobMove]] = {}
        self._replayed: set[str] = set()
        self._said: set[str] = set()
        self._home = get_ident()

    # ---- made and moved

    def add(self, dial: Dial) -> None:
        """One more.

        Raises:
            QuestionError: there is one of that name, or there are too many.
        """
        if len(self.dials) >= MOST:
            raise QuestionError(f"w.knob({dial.name!r}, …): this watch has {MOST} knobs, which is as many as there can be.")
        self.dials[dial.name] = dial
        self.between |= len(self.dials) == 1 and not self.detached
        if dial.first is not None and dial.name not in self._replayed:
            self.ask(dial, dial.first)

    def require_new(self, name: Any) -> None:
        """Refuse anything but a name, and a name that is taken."""
        if not isinstance(name, str) or not name.strip():
            raise QuestionError(f"w.knob(…) got {format.cut(repr(name), 80)}, but takes a name first.\n  {SAY}")
        if name in self.dials:
            raise QuestionError(
                f"w.knob({name!r}, …): this watch has a knob of that name already.\n"
                f"  Make each knob once, before the loop, and keep it: p = w.knob({name!r}, …)"
            )

    def ask(self, dial: Dial, value: float) -> None:
        """A move is wanted; it takes hold between two steps."""
        if dial.name in self._replayed:
            self.tell_once(f"{dial.name} is replayed: moves made by hand or by code are left out")
            return
        if not self._alone() and get_ident() != self._home:
            raise QuestionError(
                f"knob {dial.name!r} cannot be moved from here: this model trains on several ranks, and a move on only one of them "
                f"would give each rank different weights.\n"
                f"  Call {dial.name}.set(…) in the loop, at the same step on every rank; or call w.replay(moves) on every rank."
            )
        if self.detached:
            dial.put(value, self.steps)
            return
        dial._asked = value
        self._asked.append((dial, value))

    def replay(self, moves: Iterable[KnobMove]) -> None:
        """Make these moves at their steps."""
        for move in sorted(moves, key=lambda one: one.step):
            self._replay.setdefault(move.knob, deque()).append(move)
            self._replayed.add(move.knob)

    def is_fixed(self, dial: Dial) -> bool:
        """Whether a slider has nothing to move: the watch has ended, the knob is replayed, or other ranks would not be moved."""
        return self.detached or dial.name in self._replayed or not self._alone()

    # ---- between two steps

    def step_begins(self) -> None:
        """The next step has begun: what was moved takes hold now, and stands still until that step has ended."""
        self.between = False
        if self._asked or self._replay:
            self._take_hold()

    @guarded
    def _take_hold(self) -> None:
        """An interrupt loses nothing: a move leaves its queue once it holds."""
        asked = len(self._asked)  # another thread may put one more behind them
        last = {dial.name: (dial, value) for dial, value in (self._asked[place] for place in range(asked))}
        for dial, value in last.values():
            dial.put(value, self.steps)
            if dial._asked == value:  # else it has been moved again
                dial._asked = None
        for _ in range(asked):
            self._asked.popleft()
        for name in [*self._replay]:
            self._replay_to_here(name)

    def _replay_to_here(self, name: str) -> None:
        left, dial = self._replay[name], self.dials.get(name)
        while left and left[0].step <= self.steps:
            if dial is not None:
                dial.put(left[0].value, self.steps)
            else:
                self.tell_once(f"the replay moves {name!r} at step {left[0].step:,}, but this run has no such knob: the move is left out")
            left.popleft()
        if not left:
            del self._replay[name]

    def step_ended(self, made: int) -> None:
        """A counted optimizer has made a step; `made`: how many the watch has counted."""
        self._announced = True
        self._end_step(made)

    def step_over(self, made: int) -> None:
        """A step has ended that no optimizer announced. It counts only where none ever does: whether it is seen may depend on the clock."""
        if not self._announced:
            self._end_step(made)

    def _end_step(self, made: int) -> None:
        self.steps += 1
        if self.dials:
            self.between = True
            for dial in self.dials.values():
                if dial.curve is not None:
                    dial.curve.add(made - 1, dial._now)

    def close(self) -> None:
        """The watch ends: what was moved last holds at once, and so does every later move."""
        self.detached, self.between = True, False
        self._take_hold()

    def leave(self) -> None:
        """This is a copy in another process."""
        self.detached, self.between = True, False
        self._asked.clear()

    # ---- what there is

    def records(self) -> tuple[KnobRecord, ...]:
        """All knobs as they are now."""
        return tuple(dial.record() for dial in [*self.dials.values()])

    def shape(self) -> tuple[int, ...]:
        """Equal as long as curves only grew at their ends."""
        curves = [dial.curve for dial in [*self.dials.values()] if dial.curve is not None]
        return (len(curves), *(curve.slots.halvings for curve in curves))

    def with_curves(self, curves: tuple[ScalarRecord, ...]) -> tuple[ScalarRecord, ...]:
        """The curves of a run with those of its knobs: after the losses, and of a learning rate how often it was moved."""
        rate = self.dials.get(LR)
        if rate is not None:
            curves = tuple(replace(one, moved=len(rate._moves)) if one.kind == "rate" else one for one in curves)
        names = {one.name for one in curves}
        own = [(dial, dial.curve.record()) for dial in [*self.dials.values()] if dial.curve is not None]
        mine = [
            replace(record, name=f"{dial.name} (knob)" if dial.name in names else dial.name, kind="knob", moved=len(dial._moves))
            for dial, record in own
            if record.count
        ]
        losses = sum(one.kind == "loss" for one in curves)
        return (*curves[:losses], *mine, *curves[losses:])

    def remarks(self) -> list[str]:
        """What a user should know of them."""
        found = []
        for dial in [*self.dials.values()]:
            now = dial.overruled
            if now is not None:
                found.append(
                    f"{dial.name} was moved to {shown(dial._moves[-1][1])}, and is {shown(now)} now: "
                    f"a scheduler or your own code has set it since"
                )
            if dial._group is None and dial._moves and not dial._was_read:
                found.append(f"{dial.name} was moved, but the loop never read it: ask for its value with {dial.name}()")
        return found

    def tell_once(self, text: str) -> None:
        """Tell the user something, the first time."""
        if text not in self._said:
            self._said.add(text)
            self._say(text)


def shown(value: float) -> str:
    """With four digits at most: ``1e-05``, ``0.01234``."""
    return f"{value:.4g}"


def moves_of(given: Any) -> tuple[KnobMove, ...]:
    """Moves from a list, as `Watch.moves` gives it and JSON keeps it.

    Raises:
        QuestionError: something in it is no move.
    """
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, dict)):
        raise QuestionError(f"w.replay(…) got {format.cut(repr(given), 80)}, but takes a watch, or its moves: w.replay(other.moves)")
    return tuple(_move(place, one) for place, one in enumerate(given))


def _move(place: int, one: Any) -> KnobMove:
    try:
        step, knob, value = (one[key] for key in ("step", "knob", "value"))
        if isinstance(knob, str) and type(step) is int and step >= 0 and not isinstance(value, bool) and math.isfinite(value):
            return KnobMove(step, knob, value)
    except (TypeError, KeyError, IndexError, ValueError):
        pass
    example = '{"step": 12, "knob": "lr", "value": 0.1}'
    raise QuestionError(f"w.replay(…): entry {place} is {format.cut(repr(one), 80)}, but should be a move, such as {example}.")


def _require_range(name: str, low: Any, high: Any, log: bool, step: Any) -> None:
    numbers = {"low": low, "high": high, **({} if step is None else {"step": step})}
    for what, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise QuestionError(f"w.knob({name!r}, …): {what}={format.cut(repr(value), 80)} is not a finite number.\n  {SAY}")
    given = f"w.knob({name!r}, {low!r}, {high!r}, …)"
    if low >= high:
        raise QuestionError(f"{given}: the range must go up, from the least value to the greatest.\n  {SAY}")
    if log and low <= 0:
        raise QuestionError(f"{given}: with log=True the least value must be greater than 0: a factor never reaches it.\n  {SAY}")
    if step is not None and (step <= 0 or step > high - low or log):
        why = "log=True has no step" if log else f"step={step!r} must be greater than 0 and fit into the range"
        raise QuestionError(f'{given}: {why}.\n  Write: k = w.knob("k", 1, 8, step=1)')
