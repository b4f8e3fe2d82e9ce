"""A difference, or what has changed between two states: one row for each tensor, flag, setting and random generator."""

from __future__ import annotations

from modlab import format
from modlab.frozen import frozen
from modlab.records.finding import Finding
from modlab.records.sharding import Sharding

STATUSES = ("unchanged", "changed", "added", "removed", "renamed", "reshaped", "retyped", "resharded", "moved", "not compared")
TENSORS = ("parameter", "buffer", "tensor", "packed", "extra", "attribute", "reserved")
"""The kinds that are a model's state itself; the others are about it (gradients, flags, an optimizer's state)."""
KINDS = (*TENSORS, "gradient", "flag", "optimizer state", "hyper-parameter", "RNG", "value")

UNTIED = "to nothing"
"""The value of a flag "tied" of what is tied to nothing."""


@frozen
class DifferenceRecord:
    """One thing before and after.

    Attributes:
        path: the dotted name; the one after, where it is renamed.
        owner: the path of its module; nothing for what belongs to none.
        kind: "parameter", "buffer", "reserved", "packed", "extra", "attribute", "tensor" (where the source does not say
            more), "gradient", "flag", "optimizer state", "hyper-parameter", "RNG" or "value".
        status: "unchanged" (every value; NaN equals NaN, and 0.0 equals -0.0), "changed", "added", "removed", "renamed",
            "reshaped", "retyped", "resharded" (it lies otherwise over the ranks), "moved" (to another device, its values as they
            were) or "not compared" (both sides have it, and nothing is known of its values; a note says why).
        max_abs: the greatest distance between two finite elements, in the tensor's units; ``inf`` where all that changed is
            not finite before or after; None where no values were compared.
        relative_l2: ‖after − before‖ / ‖before‖ over what is finite in both; ``inf`` where all was zero before; None where all that
            changed is not finite.
        differs: whether its values changed; None where they could not be compared.
        changed: elements that differ; 0 where only fingerprints were compared.
        count: elements, after (before, where it is removed).
        decayed: changed elements of which weight decay alone explains the change, to the last digit.
        renamed_from: the name before, where that is another.
        same_object: whether it is the same tensor object; None where that cannot be known.
        shares_memory: whether both lie in the same memory, so that one changes with the other; None where one is not live.
        value_before: for anything but a tensor, in words.
        notes: what else is known of it; the kinds are those of `wording.differences.NOTES`.
        in_graph: of a flag, that the tensor requires a gradient because it was computed: it has a ``grad_fn``.
        tied: another name of the same tensor, before and after, under which it is counted.
        sharding_before, sharding_after: how it lies over several ranks.
        of_part: what was compared is what this rank holds: status, distances and counts are about that alone.
    """

    path: str
    owner: str
    kind: str
    status: str
    max_abs: float | None = None
    relative_l2: float | None = None
    changed: int = 0
    count: int = 0
    shape_before: tuple[int, ...] | None = None
    shape_after: tuple[int, ...] | None = None
    dtype_before: str = ""
    dtype_after: str = ""
    device_before: str = ""
    device_after: str = ""
    nan_before: int = 0
    nan_after: int = 0
    inf_before: int = 0
    inf_after: int = 0
    value_before: str = ""
    value_after: str = ""
    decayed: int = 0
    renamed_from: str = ""
    same_object: bool | None = None
    shares_memory: bool | None = None
    owner_type: str = ""
    notes: tuple[Finding, ...] = ()
    differs: bool | None = None
    tied: str = ""
    sharding_before: Sharding | None = None
    sharding_after: Sharding | None = None
    of_part: bool = False
    in_graph: bool = False

    def noted(self, kind: str) -> Finding | None:
        """The note of a kind, if there is one."""
        return next((note for note in self.notes if note.kind == kind), None)

    def __repr__(self) -> str:
        distance = "" if self.max_abs is None or self.status == "unchanged" else f" by at most {self.max_abs:.4g}"
        return format.printable(f"<{self.path}: {self.kind} {self.status}{distance}>")

    @property
    def uncompared(self) -> bool:
        """Whether it is a tensor on both sides, with elements, and its values could not be compared."""
        both = self.shape_before is not None and self.shape_after is not None and self.shape_before == self.shape_after
        return self.differs is None and both and self.count > 0

    @property
    def here(self) -> int:
        """The elements that could be compared."""
        lies = self.sharding_after if self.sharding_after is not None and not self.sharding_after.whole else self.sharding_before
        return lies.local_count if self.of_part and lies is not None else self.count

    @property
    def name(self) -> str:
        """The path without its owner's."""
        return self.path[len(self.owner) + 1 :] if self.owner and self.path.startswith(self.owner + ".") else self.path


@format.printed
@frozen
class Renaming:
    """Names that follow a rule, or were found one by one.

    Attributes:
        kind: a key of `wording.differences.RENAMINGS`: "in front" (each name starts with a part), "missing" (each name lacks it), "within",
            "called" (a front or an end was renamed), "called everywhere", or "single" (no rule is known).
        was, now: the part of the names before and after; of "single" the first name.
        names: how many follow it.
        code: the line that turns the names before into those after.
        evidence: "same names" (but for the rule), "same bits" or "same shapes".
    """

    kind: str
    was: str
    now: str
    names: int
    code: str
    evidence: str


@format.printed
@frozen
class Loading:
    """What ``model.load_state_dict(weights)`` would do, of a mapping or file on one side and a module on the other.

    Attributes:
        code: the call.
        missing, unexpected: the keys that PyTorch would name.
        mismatched: key, shape in the weights and shape in the model.
        wrong: key and type of what is not a tensor.
        converted: key, dtype in the weights and dtype in the model; ``copy_`` converts silently.
        loads: how many tensors would be copied.
        doubts: modules that load their part themselves, so that only loading tells.
        repair: the lines that read the weights, give them the model's names and load them; nothing where there are no such names.
        repaired: what `repair` would do.
    """

    code: str
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = ()
    wrong: tuple[tuple[str, str], ...] = ()
    converted: tuple[tuple[str, str, str], ...] = ()
    loads: int = 0
    doubts: tuple[str, ...] = ()
    repair: str = ""
    repaired: Loading | None = None

    @property
    def fails(self) -> bool:
        """Whether it would raise."""
        return bool(self.missing or self.unexpected or self.mismatched or self.wrong)


@format.printed
@frozen
class ComparedPart:
    """A part of one side that was compared, or that was not; in words."""

    text: str
    compared: bool = False


@frozen
class DiffRecord:
    """A whole comparison: its rows in the order of the state after, what was removed in its place.

    Attributes:
        before, after: what the sides are ("Net", "snapshot of Net", "net.pt").
        same: both sides are one and the same object.
        live: both sides are live, so that identity and memory could be compared.
        digests: values were compared by fingerprints.
        skipped: what only one side has and is therefore not compared; of a nested file, which part of it was.
        remarks: what cannot be known, with the reason.
        stepped: an optimizer made a step in between, as far as weights and its state tell.
        own: one side is the very model that the other is a snapshot of.
    """

    before: str
    after: str
    before_form: str
    after_form: str
    records: tuple[DifferenceRecord, ...]
    same: bool = False
    live: bool = False
    digests: bool = False
    renamings: tuple[Renaming, ...] = ()
    loading: Loading | None = None
    skipped: tuple[ComparedPart, ...] = ()
    remarks: tuple[str, ...] = ()
    stepped: bool = False
    own: bool = False
