"""What a snapshot is made of: one row for each thing that was kept."""

from __future__ import annotations

from modlab import format
from modlab.frozen import frozen
from modlab.records.sharding import Sharding


@format.printed
@frozen
class SnapshotRecord:
    """One thing that a snapshot keeps.

    Attributes:
        path: the dotted name of a tensor; a gradient's ends in ``.grad``, a tensor of an optimizer's in its own name there.
        owner: the path of the module; nothing for what belongs to none.
        kind: "parameter", "buffer", "reserved", "packed", "extra", "attribute", "gradient", "optimizer state",
            "hyper-parameter" or "RNG".
        bytes: memory of the original; of one that lies over several ranks (`sharding`), of the whole.
        kept: "copy", "fingerprint", "value" (what is not a tensor), or nothing where there was none to keep.
        value: for anything but a tensor, in words.
        digest: the fingerprint of 128 bits in hexadecimal; nothing where a copy was kept.
        tied: the path under which the same tensor was met first; it is kept once.
    """

    path: str
    owner: str
    kind: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    device: str = ""
    count: int = 0
    bytes: int = 0
    kept: str = ""
    value: str = ""
    digest: str = ""
    tied: str = ""
    note: str = ""
    sharding: Sharding | None = None

    @property
    def bytes_here(self) -> int:
        """Bytes that this rank holds, and of which a copy was made."""
        return self.bytes if self.sharding is None else self.sharding.local_bytes
