"""What a state table is made of: one row for each parameter, buffer, reserved name, packed weight and stray tensor."""

from __future__ import annotations

from modlab import format
from modlab.frozen import frozen
from modlab.records.sharding import Ranks, Sharding
from modlab.records.structure import VARIABLE
from modlab.records.tensor import TensorStats

MODEL = "model"


@format.printed
@frozen
class OptimizerEntry:
    """How one optimizer treats one parameter."""

    label: str  # "AdamW #0": its class and the number of the parameter group
    lr: float
    weight_decay: float
    state: tuple[str, ...] = ()  # "exp_avg (3, 4)"


@frozen
class StateRecord:
    """One row of a state table.

    Attributes:
        path: the dotted name, as in the state_dict where it is there.
        kind: "parameter", "buffer", "reserved" (registered as None), "packed" (weights of a quantized module),
            "extra" (what ``get_extra_state`` returns), "attribute" (a tensor that hangs on a module unregistered),
            "tensor" or "value" (of a checkpoint, which does not say more; a value is not a tensor, `value` says what).
        in_state_dict: whether ``state_dict()`` has it under this path.
        persistent: False for buffers registered with ``persistent=False`` and for what is not registered.
        shape: of a tensor that lies over several ranks, that of the whole; so are `count` and `bytes`.
        grad: "none", "zero" or "present"; nothing where there can be no gradient. "zero here" where this rank's part of it is zero.
        tied: the path under which the same tensor was met first.
        optimizers: one entry for each parameter group that holds it.
        way, holder: of an attribute, how it hangs on its module, as `Ghost` has them.
        mark: what is wrong with that, if an optimizer was given.
        computes: the dtype in which it takes part in computations, where it is stored in another.
        sharding: how it lies over several ranks.
        value: for anything but a tensor, its type and value, as far as that is short: ``("int", "3")``, ``("dict", "")``.
        position: the row's place in a walk over the modules, whether it is in the state_dict or not.
    """

    path: str
    owner: str
    owner_type: str
    kind: str
    in_state_dict: bool
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    device: str = ""
    count: int = 0
    bytes: int = 0
    trainable: bool = False
    persistent: bool = True
    grad: str = ""
    tied: str = ""
    note: str = ""
    optimizers: tuple[OptimizerEntry, ...] = ()
    mark: str = ""
    way: str = ""
    holder: str = ""
    computes: str = ""
    sharding: Sharding | None = None
    position: int = 0
    value: tuple[str, str] = ("", "")

    def __repr__(self) -> str:
        words = [
            self.kind,
            "" if self.shape is None else str(self.shape),
            self.dtype,
            "" if self.in_state_dict else "not in the state_dict",
        ]
        return format.printable(f"<{self.path}: {' '.join(word for word in words if word)}>")

    @property
    def derived(self) -> bool:
        """Whether it is an attribute that a known utility computes before each forward pass, such as the weight of a pruned layer."""
        return self.way == "anew"

    @property
    def trained(self) -> str:
        """One word: "yes", "frozen" (a parameter that requires no gradient), "no", or nothing where it makes no sense to ask."""
        if self.kind == "parameter":
            return "yes" if self.trainable else "frozen"
        return "no" if self.kind in ("buffer", "attribute", "packed") else ""

    @property
    def bytes_here(self) -> int:
        """Bytes that this rank holds."""
        return self.bytes if self.sharding is None else self.sharding.local_bytes

    @property
    def name(self) -> str:
        """The path without its owner's."""
        return self.path[len(self.owner) + 1 :] if self.owner else self.path


@frozen
class Matrix:
    """Numbers laid out in rows and columns: a tensor of two dimensions or fewer, or a stated slice of it."""

    numbers: tuple[tuple[float, ...], ...]  # finite or not; magnitudes for complex tensors
    slice: str  # "[0:6, 0:9]"; nothing where it is the whole tensor


@format.printed
@frozen
class ValuesRecord:
    """What is in one tensor."""

    path: str
    stats: TensorStats
    matrix: Matrix | None = None
    note: str = ""


@format.printed
@frozen
class TableRecord:
    """A whole state table: rows in the order of ``state_dict()``, then what is not in it."""

    title: str  # the model's class, or the file's name
    rows: tuple[StateRecord, ...]
    optimizers: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()  # what an optimizer holds and the model does not (any more)
    remarks: tuple[str, ...] = ()  # what cannot be known about the whole table, with the reason
    values: tuple[ValuesRecord, ...] = ()
    source: str = MODEL  # or the path of a checkpoint
    ranks: Ranks | None = None  # over which the model lies; None of a model on one process
    variable: str = VARIABLE  # what one writes to get at the module whose rows these are
    scripted: bool = False  # TorchScript's modules have no get_submodule, get_parameter and get_buffer
