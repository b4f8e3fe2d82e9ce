"""One event while it is still open."""

from __future__ import annotations

from modlab.records.trace import Event, Value


class Call:
    """What becomes an `Event` when it has ended; the attributes that both have are explained there."""

    __slots__ = (
        "bytes", "call", "category", "depth", "error", "frame", "fused", "grad", "index", "inner", "inputs", "kind", "marks", "memory",
        "module", "name", "outputs", "parent", "path", "popped", "quiet", "seconds", "started", "times", "training", "versions", "where",
    )  # fmt: skip

    def __init__(self, index: int, kind: str, path: str | None, name: str, parent: Call | None) -> None:
        self.index, self.kind, self.path, self.name = index, kind, path, name
        self.parent = -1 if parent is None else parent.index
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.call, self.times = 0, 1
        self.training: bool | None = None
        self.inputs: tuple[Value, ...] = ()
        self.outputs: tuple[Value, ...] = ()
        self.started = self.seconds = self.inner = 0.0  # `inner`: seconds of the events inside
        self.bytes = 0
        self.memory: int | None = None
        self.where = self.error = self.category = ""
        self.marks: list[str] = []
        self.module = 0  # the id of the module called
        self.quiet = False  # the functions inside are not told: they are torch's own way of doing what the module says
        self.frame = 0  # the one that runs the module, by identity: what was interrupted is found by its absence
        self.fused = False  # its parts may run without being called
        self.popped = False  # functions are not seen inside, since seeing them would change what runs
        self.grad = True  # whether autograd was on
        self.versions: tuple[int, ...] = ()

    def freeze(self, origin: float) -> Event:
        """The record; its start counts from `origin`."""
        return Event(
            self.index, self.kind, self.path, self.name, self.call, self.parent, self.depth, self.training, self.inputs, self.outputs,
            self.seconds, max(0.0, self.seconds - self.inner), self.bytes, self.memory, self.where, tuple(dict.fromkeys(self.marks)),
            self.error, self.times, self.category, self.started - origin,
        )  # fmt: skip
