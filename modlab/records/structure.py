"""The structure of a module tree: plain, frozen, and stored folded (equal subtrees once, runs of them as one)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from hashlib import blake2b

from modlab import format
from modlab.frozen import frozen
from modlab.records.sharding import Ranks, Sharding, Unit

ROOT = "(root)"
VARIABLE = "model"
"""What a line of code calls the model that was given."""


@frozen
class Link:
    """Where else something is owned: `up` levels above this place, and from there down `path`; from the root if `up` is 0.

    Relative links are what lets twelve equal blocks, each tied inside itself, be one subtree.
    """

    up: int
    path: str

    def resolve(self, place: str) -> str:
        """The dotted name of the first owner, seen from the dotted name `place`."""
        if self.up == 0:
            return self.path
        parts = place.split(".")
        return ".".join([*parts[: len(parts) - self.up], *([self.path] if self.path else [])])


@format.printed
@frozen
class TensorEntry:
    """A parameter, a buffer or a reserved name, as the module that owns it holds it.

    `shape` is None where there is none yet (reserved, lazy); `count` and `bytes` are 0 then.

    Attributes:
        dtype: in which it lies in memory.
        bytes: of the whole; of a tensor that lies over several ranks, see `bytes_here`.
        computes: the dtype in which it takes part in computations, where that is another ("float32" of torchao's int8).
        sharding: how it lies over several ranks; `shape` and `count` are those of the whole then.
    """

    name: str
    kind: str  # "parameter", "buffer" or "reserved"
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    device: str = ""
    count: int = 0
    bytes: int = 0
    trainable: bool = False
    persistent: bool = True
    tied: Link | None = None
    note: str = ""
    computes: str = ""
    sharding: Sharding | None = None

    @property
    def bytes_here(self) -> int:
        """Bytes that this rank holds."""
        return self.bytes if self.sharding is None else self.sharding.local_bytes

    @property
    def lazy(self) -> bool:
        """Registered, but without a shape until the first forward pass."""
        return self.kind != "reserved" and self.shape is None


@format.printed
@frozen
class Ghost:
    """Modules or tensors that hang on a module in a way PyTorch does not see.

    Attributes:
        way: in which they hang there, a key of `wording.unregistered.WAYS`.
        fix: the line that registers them; nothing where there is none.
        advice: what to do, in words, where no line of code says it.
        holder: the container's name or an object's class; of what is computed anew, what does that ("pruning").
        cut: so many members were looked at, of more; 0 if all were.
    """

    name: str
    what: str  # "list of 3 Linear"
    way: str
    fix: str
    modules: int
    tensors: int
    parameters: int  # elements that would be counted if it were registered
    harmless: bool = False  # put there on purpose by a known machinery, such as pruning
    advice: str = ""
    holder: str = ""
    cut: int = 0


@frozen
class Totals:
    """Sums over a subtree; each tensor counts once, however many names it has."""

    own_parameters: int = 0
    parameters: int = 0
    trainable: int = 0
    buffers: int = 0
    bytes: int = 0
    lazy: int = 0
    modules: int = 1
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    bytes_here: int = 0  # that this rank holds
    ranks: tuple[Ranks, ...] = ()  # over which they lie, each once


Names = tuple[str, ...] | range
"""Names of neighbours; a range where they are consecutive numbers."""


def compact(names: list[str]) -> Names:
    """The names as a range, if they are consecutive numbers."""
    first = names[0]
    if len(names) > 1 and first.isdecimal() and first.isascii():
        numbers = range(int(first), int(first) + len(names))
        if all(name == str(number) for name, number in zip(names, numbers, strict=True)):
            return numbers
    return tuple(names)


@frozen
class Run:
    """Neighbouring children that are equal: their names and the one subtree that stands for all.

    Without a subtree it is a reserved name, or (with a link) a module that contains itself.
    """

    names: Names
    subtree: Subtree | None
    same_as: Link | None = None  # the module stands in the tree under an earlier name too

    def name(self, index: int) -> str:
        """The name of the child at `index` of this run."""
        return str(self.names[index])

    def holds(self, name: str) -> bool:
        """Whether a child of that name is in the run."""
        if isinstance(self.names, range):
            return name.isdecimal() and str(int(name)) == name and int(name) in self.names
        return name in self.names


@frozen(eq=False, repr=False, weakref_slot=True)
class Subtree:
    """One distinct subtree: a module with everything below it. Equal ones are the same object."""

    type: str
    origin: str  # the Python module of the class
    category: str  # "container", "linear", "conv", "norm", "activation", "dropout", "embedding" or "own"
    extra: str
    training: bool
    flags: tuple[str, ...]
    tensors: tuple[TensorEntry, ...]
    runs: tuple[Run, ...]
    ghosts: tuple[Ghost, ...]
    totals: Totals
    unit: Unit | None = None  # of FSDP or DDP


@frozen
class ModuleRecord:
    """One module under one path."""

    path: str
    subtree: Subtree = field(repr=False)
    depth: int = 0
    count: int = 1  # how many equal neighbours this record stands for
    last: str = ""  # the path of the last of them
    same_as: str | None = None
    reserved: bool = False

    @property
    def recursive(self) -> bool:
        """The module contains itself: below this place it would begin anew."""
        return self.same_as is not None and self.subtree is _NO_MODULE

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def type(self) -> str:
        """The name of the class."""
        return self.subtree.type

    @property
    def extra(self) -> str:
        """What the module's ``extra_repr`` says."""
        return self.subtree.extra

    @property
    def training(self) -> bool:
        """True in training mode, False in evaluation mode."""
        return self.subtree.training

    @property
    def flags(self) -> tuple[str, ...]:
        """What is special about the module, in words."""
        return self.subtree.flags

    @property
    def tensors(self) -> tuple[TensorEntry, ...]:
        """The tensors and reserved names of the module itself."""
        return self.subtree.tensors

    @property
    def own_parameters(self) -> int:
        """Elements of the module's own parameters."""
        return self.subtree.totals.own_parameters

    @property
    def total_parameters(self) -> int:
        """Elements of all parameters at and below this module, each tensor once."""
        return self.subtree.totals.parameters

    @property
    def trainable_parameters(self) -> int:
        """Those of them that require a gradient."""
        return self.subtree.totals.trainable

    @property
    def frozen_parameters(self) -> int:
        """Those of them that do not."""
        return self.subtree.totals.parameters - self.subtree.totals.trainable

    @property
    def total_buffers(self) -> int:
        """Elements of all buffers at and below this module."""
        return self.subtree.totals.buffers

    @property
    def bytes(self) -> int:
        """Bytes of all parameters and buffers at and below this module; of sharded ones, of the whole."""
        return self.subtree.totals.bytes

    @property
    def bytes_here(self) -> int:
        """Those of them that this rank holds."""
        return self.subtree.totals.bytes_here

    @property
    def unit(self) -> Unit | None:
        """What FSDP or DDP makes of this module; None where it is no unit of theirs."""
        return self.subtree.unit

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of these tensors."""
        return self.subtree.totals.dtypes

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices of these tensors."""
        return self.subtree.totals.devices

    def __repr__(self) -> str:
        own = ", ".join(f"{t.name} {t.shape}" for t in self.tensors if t.shape is not None)
        return format.printable(f"<{self.path or ROOT}: {self.type}, {self.total_parameters:,} parameters{': ' + own if own else ''}>")


_NO_MODULE = Subtree("None", "", "own", "", True, (), (), (), (), Totals(modules=0))


@frozen
class TreeRecord:
    """A whole tree, folded: its root, below which each distinct subtree is one object however often it occurs."""

    root: Subtree
    modules: int  # distinct modules, the root among them
    ties: int = 0  # tensors with several owners
    tied: tuple[tuple[str, str], ...] = ()  # (later name, first name) of the first few of them
    aliased: int = 0  # modules with several names
    aliases: tuple[tuple[str, str], ...] = ()  # (later name, first name) of the first few of them
    ranks: Ranks | None = None  # over which the model lies; None of a model on one process
    again: int = 0  # bytes that the totals count more than once, for tensors that are views of one storage
    variable: str = VARIABLE  # what one writes to get at the root
    scripted: bool = False  # TorchScript's modules have no get_submodule, get_parameter and get_buffer

    @property
    def fingerprint(self) -> str:
        """The same for every tree of one structure, so that views on one page can share a selection.

        Of names, types and shapes alone, name by name: how a tree is folded depends on flags and hooks, which come and go.
        """
        known: dict[int, bytes] = {}
        for subtree in self.subtrees():
            shapes = [(entry.name, entry.shape) for entry in subtree.tensors]
            digest = blake2b(repr((subtree.type, shapes)).encode("utf-8", "backslashreplace"), digest_size=16)
            for run in subtree.runs:
                below = b"-" if run.subtree is None else known[id(run.subtree)]
                digest.update(b"".join([repr(str(name)).encode("utf-8", "backslashreplace") + below for name in run.names]))
            known[id(subtree)] = digest.digest()
        return known[id(self.root)].hex()[:12]

    def rows(self, *, folded: bool = False, depth: int | None = None) -> Iterator[ModuleRecord]:
        """Every place of the tree from the root down, as ``named_modules(remove_duplicate=False)`` orders them.

        Args:
            folded: show a run of equal neighbours as one record, and reserved names and
                modules that contain themselves as well.
            depth: levels below the root; all if it is None.
        """
        stack = [iter((ModuleRecord("", self.root),))]  # an own stack: depth costs nothing
        while stack:
            record = next(stack[-1], None)
            if record is None:
                stack.pop()
                continue
            yield record
            if record.subtree.runs and (depth is None or record.depth < depth):
                stack.append(_children(record, folded))

    def find(self, path: str) -> ModuleRecord | None:
        """The record at a dotted name, or None; takes as many steps as the name has parts."""
        record = ModuleRecord("", self.root)
        for name in path.split(".") if path else ():
            run = next((run for run in record.subtree.runs if run.holds(name)), None)
            if run is None or run.subtree is None:
                return None
            here = f"{record.path}.{name}" if record.path else name
            same = run.same_as.resolve(here) if run.same_as else None
            record = ModuleRecord(here, run.subtree, record.depth + 1, 1, here, same)
        return record

    def subtrees(self) -> list[Subtree]:
        """Each distinct subtree once, children before parents; the root is the last."""
        done: dict[int, Subtree] = {}
        stack = [(self.root, iter(self.root.runs))]
        while stack:
            subtree, rest = stack[-1]
            below = next((run.subtree for run in rest if run.subtree is not None and id(run.subtree) not in done), None)
            if below is None:
                done[id(subtree)] = subtree
                stack.pop()
            else:
                stack.append((below, iter(below.runs)))
        return list(done.values())

    def places(self, *, folded: bool = False) -> int:
        """How many rows the tree has; counted without making one."""
        counts: dict[int, int] = {}
        for subtree in self.subtrees():
            own = 1
            for run in subtree.runs:
                if run.subtree is not None:
                    own += counts[id(run.subtree)] * (1 if folded else len(run.names))
                elif folded:
                    own += 1
            counts[id(subtree)] = own
        return counts[id(self.root)]


def _children(parent: ModuleRecord, folded: bool) -> Iterator[ModuleRecord]:
    prefix, depth = parent.path + "." if parent.path else "", parent.depth + 1
    for run in parent.subtree.runs:
        if run.subtree is None and not folded:
            continue
        subtree, count = run.subtree or _NO_MODULE, len(run.names)
        for index in range(1 if folded else count):
            path = prefix + run.name(index)
            same = run.same_as.resolve(path) if run.same_as else None
            if not folded:
                yield ModuleRecord(path, subtree, depth, 1, path, same)
                continue
            yield ModuleRecord(path, subtree, depth, count, prefix + run.name(count - 1), same, run.subtree is None and same is None)
