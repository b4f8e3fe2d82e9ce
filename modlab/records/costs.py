"""What a profile says of each module of a tree."""

from __future__ import annotations

from modlab import format
from modlab.frozen import frozen


@format.printed
@frozen
class CostRecord:
    """One module.

    Attributes:
        path: its dotted name; "" is the root.
        type, category: its class, and what kind of module that is.
        depth: below the root.
        parameters: elements at and below it.
        own_parameters: of its own tensors alone.
        calls: how often it was marked in the profile; 0: never.
        seconds: of all calls together, each counted as the fastest of them (what other programs held up does not count more).
            Of a module without marks the sum of those below it.
        own_seconds: without what marked modules inside took.
        bytes: memory that the calls took and kept, each counted as the middle one; None where the profile has none.
        own_bytes: without that of marked modules inside.
    """

    path: str
    type: str
    category: str
    depth: int
    parameters: int
    own_parameters: int
    calls: int = 0
    seconds: float = 0.0
    own_seconds: float = 0.0
    bytes: int | None = None
    own_bytes: int | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


@frozen
class CostsRecord:
    """A model's modules with what each took.

    Attributes:
        title: the model's class.
        rows: parents before their children.
        device: whose time and memory it is: "cpu", or the accelerator.
    """

    title: str
    rows: tuple[CostRecord, ...]
    device: str = "cpu"
