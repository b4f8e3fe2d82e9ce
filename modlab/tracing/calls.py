"""One event while it is still open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from modlab.records.finding import Fact
from modlab.records.sharding import Sharding
from modlab.records.state import Matrix
from modlab.records.tensor import TensorStats
from modlab.records.trace import Event, EventFact, Value
from modlab.wording import events


class Sight(NamedTuple):
    """What is said of a tensor as long as it does not change, or of what is none; as in a `Value`, dtype and device not yet in words.

    A tuple, for to make a `Value` takes longer than all else that is noted of a tensor: that is done when the trace is read.
    """

    kind: str
    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    number: int = 0
    stats: TensorStats | None = None
    numbers: Matrix | None = None
    text: str = ""
    note: EventFact | None = None
    sharding: Sharding | None = None
    owner: str = ""


class Seen(NamedTuple):
    """A leaf that was met: what is said of it, under the name, with the flag and the version that it has here."""

    name: str
    sight: Sight
    requires_grad: bool = False
    version: int | None = None

    def freeze(self) -> Value:
        """The record."""
        kind, shape, dtype, device, number, stats, numbers, text, note, sharding, owner = self.sight
        return Value(
            self.name,
            kind,
            shape,
            _word(dtype),
            _word(device),
            self.requires_grad,
            number,
            stats,
            numbers,
            text,
            events.note(note, owner, shape, stats),
            sharding,
            owner,
        )


quick_sight: Callable[[tuple[Any, ...]], Sight] = partial(tuple.__new__, Sight)
quick_seen: Callable[[tuple[str, Sight, bool, int]], Seen] = partial(tuple.__new__, Seen)
"""The same from a tuple of all fields, without the Python function that makes a named tuple: that would take longer than all else."""


def _word(thing: torch.dtype | torch.device | None) -> str:
    return "" if thing is None else str(thing).removeprefix("torch.")


class Call:
    """What becomes an `Event` when it has ended; the attributes that both have are explained there.

    What few events have is left to the class: one is made for each module and function that runs.
    """

    call, times = 0, 1
    training: bool | None = None
    inputs: tuple[Seen, ...] = ()
    outputs: tuple[Seen, ...] = ()
    started = seconds = inner = 0.0  # `inner`: seconds of the events inside
    bytes = 0
    memory: int | None = None
    where = error = category = ""
    module = 0  # the id of the module called
    quiet = False  # the functions inside are not told: they are torch's own way of doing what the module says
    frame = 0  # the one that runs the module, by identity: what was interrupted is found by its absence
    fused = False  # its parts may run without being called
    opaque = False  # nothing inside can be seen
    stage = ""  # of a hook: its kind
    odd = ""  # of a hook: the type of what it put where a tensor was
    popped = False  # functions are not seen inside: seeing them would change what runs, or they are not to be told
    unasked = False  # for keyword arguments, of which its class takes none beside these
    grad = True  # whether autograd was on
    excused = False  # autograd was off for a torch.autograd.Function alone, which makes the gradient itself
    inference = False  # if it was off, whether for inference_mode

    @property
    def off(self) -> str:
        """What had turned autograd off."""
        return "inference_mode" if self.inference else "no_grad"

    @property
    def versions(self) -> tuple[int, ...]:
        """How often each tensor that went in had been changed in place by then."""
        return tuple([seen.version for seen in self.inputs if seen.version is not None])

    def __init__(self, index: int, kind: str, path: str | None, name: str, parent: Call | None) -> None:
        self.index, self.kind, self.path, self.name = index, kind, path, name
        self.parent: int = -1 if parent is None else parent.index
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.facts: list[EventFact] = []

    def mark(self, kind: str, **facts: Fact) -> None:
        """Note what is special about it."""
        self.facts.append(EventFact(kind, facts))

    def freeze(self, origin: float) -> Event:
        """The record; its start counts from `origin`."""
        facts = tuple(fact for i, fact in enumerate(self.facts) if fact not in self.facts[:i])
        return Event(
            self.index,
            self.kind,
            self.path,
            self.name,
            self.call,
            self.parent,
            self.depth,
            self.training,
            tuple(seen.freeze() for seen in self.inputs),
            tuple(seen.freeze() for seen in self.outputs),
            self.seconds,
            max(0.0, self.seconds - self.inner),
            self.bytes,
            self.memory,
            self.where,
            tuple(map(events.said, facts)),
            self.error,
            self.times,
            self.category,
            self.started - origin,
            facts,
        )
