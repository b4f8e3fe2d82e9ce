"""``modlab.tree(model)``: every module, what it owns and how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from torch.nn import Module

from modlab.errors import ModlabError, PathNotFoundError, names_near
from modlab.inspection import checks, distributed, slots, structure, values
from modlab.inspection.definitions import define
from modlab.records.structure import ROOT, ModuleRecord, TensorEntry, TreeRecord
from modlab.results import question
from modlab.results.result import Result
from modlab.version import __version__
from modlab.views import facts, headline, html, payload, text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LISTED = 1_000_000
"""Paths up to which they are listed; a tree can have more than fit in any memory (40 modules that each hold the last one twice)."""


def tree(model: Module) -> Tree:
    """Show every module of a model: path, type, parameters, tensors, and what is special about it.

    Nothing is run and no values are read. Equal neighbours (the blocks of a transformer) are one row. Anything PyTorch
    cannot see, because it sits in a plain list, dict or attribute, appears as a ghost, with the fix.

    Args:
        model: any ``nn.Module``; it is not changed or kept alive.

    Returns:
        A `Tree`: displays itself; ``tree["net.l0"]``, ``tree.find("*.attn.*")``, ``tree.total_parameters``.

    Raises:
        NotAModuleError: `model` is something else; the message says what to do.
        NotInitializedError: the model's constructor did not call ``super().__init__()``.

    >>> from torch import nn
    >>> tree(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    Sequential: 15 parameters in 3 modules; all trainable, 60 B, float32 on cpu.
    path    module                                           parameters  holds
    (root)  Sequential                                               15
    0       Linear(in_features=4, out_features=3, bias=True)         15  weight (3, 4), bias (3,)
    1       ReLU                                                      0
    """
    return Tree(structure.of_users(checks.require_module(model, "tree")), model)


class Tree(Result):
    """The modules of a model. Made by `modlab.tree`."""

    kind: ClassVar[str] = "tree"

    def __init__(self, record: TreeRecord, model: Module) -> None:
        super().__init__(model)
        self.record = record
        self._wrapped = distributed.unwrapped(model) is not model

    @property
    def total_parameters(self) -> int:
        """Elements of all parameters, each tensor once; lazy ones have none yet."""
        return self.record.root.totals.parameters

    @property
    def trainable_parameters(self) -> int:
        """Those that require a gradient."""
        return self.record.root.totals.trainable

    @cached_property
    def records(self) -> Sequence[ModuleRecord]:
        """One record for each path, in the order of ``named_modules(remove_duplicate=False)``."""
        places = self.record.places()
        if places > LISTED:
            raise ModlabError(
                f"This tree has {places:,} paths, too many to list.\n"
                f"  Ask for one, tree['...'], or look at it folded: str(tree), or as the last line of a cell."
            )
        return tuple(self.record.rows())

    @property
    def paths(self) -> list[str]:
        """The dotted names of all modules, ``""`` (the root) first; a module with two names has both."""
        return [record.path for record in self.records]

    def __getitem__(self, path: str) -> ModuleRecord:
        """The record of the module at a dotted name; ``""`` is the root."""
        if not isinstance(path, str):
            raise PathNotFoundError(f"tree[...] takes a dotted name such as 'net.l0', and got a {type(path).__name__}: {path!r}")
        found = self.record.find("" if path == ROOT else path) or self._inside(path)
        if found is None:
            raise self._unknown(path)
        return found

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and (self.record.find("" if path == ROOT else path) or self._inside(path)) is not None

    def __len__(self) -> int:
        return self.record.places()

    def __bool__(self) -> bool:
        return True

    def find(
        self,
        pattern: str = "*",
        *,
        type: type | str | None = None,
        shape: question.Shape | None = None,
        trainable: bool | None = None,
    ) -> list[ModuleRecord]:
        """The modules that match all conditions.

        Args:
            pattern: a path with wildcards, ``"*.attn.*"``; ``*`` also matches dots.
            type: a class (its subclasses match too) or the name of one, wildcards allowed.
            shape: the module itself holds a tensor of this shape; None means any size, ``shape=(None, 768)``, and a
                single number any shape with that size in it; ``"3x768"`` works too.
            trainable: True for modules with own parameters that require a gradient, False for those without.

        >>> from torch import nn
        >>> [r.path for r in tree(nn.Sequential(nn.Linear(4, 3), nn.ReLU())).find(type="Lin*")]
        ['0']
        """
        question.require_type(type)
        asked, sizes = question.Pattern(pattern), question.ShapeQuestion(shape)
        return [
            record
            for record in self.records
            if asked.fits(record.path)
            and (type is None or _is(record, type))
            and (shape is None or any(sizes.fits(entry.shape) for entry in record.tensors))
            and (trainable is None or _trains(record) is trainable)
        ]

    def figure(self, *, ax: Axes | None = None, depth: int = 4) -> Figure:
        """The parameters by module as an icicle plot: depth runs down, width is the fraction. Needs matplotlib.

        Args:
            ax: matplotlib axes to draw into; otherwise a new figure is made.
            depth: levels below the root.
        """
        from modlab.views import figure

        return figure.of_tree(self.record, ax=ax, depth=depth)

    def _inside(self, path: str) -> ModuleRecord | None:
        """By the name that DDP gives it."""
        return self.record.find(distributed.users_path(path)) if self._wrapped else None

    def _unknown(self, path: str) -> PathNotFoundError:
        name = self.record.root.type
        owner = self.record.find(path.rpartition(".")[0])
        if owner is not None and any(run.subtree is None and run.holds(path.rpartition(".")[2]) for run in owner.subtree.runs):
            return PathNotFoundError(f"{name} has no module at {path!r}: the name is reserved (None), or the module contains itself there.")
        if owner is not None and any(entry.name == path.rpartition(".")[2] for entry in owner.tensors):
            return PathNotFoundError(
                f"{name} has no module {path!r}: that is a tensor of {owner.path or ROOT!r}.\n  Look at it: modlab.state(model)[{path!r}]"
            )
        some = [record.path for record in islice(self.record.rows(), 100_000) if record.path]
        return PathNotFoundError(f"{name} has no module {path!r}.\n{names_near(path, some)}  All paths: modlab.tree(model).paths")

    def _row(self, record: ModuleRecord) -> dict[str, Any]:
        totals = record.subtree.totals
        return {
            "path": record.path,
            "type": record.type,
            "extra": record.extra,
            "training": record.training,
            "own_parameters": totals.own_parameters,
            "total_parameters": totals.parameters,
            "trainable_parameters": totals.trainable,
            "frozen_parameters": record.frozen_parameters,
            "buffers": totals.buffers,
            "bytes": totals.bytes,
            "dtypes": list(totals.dtypes),
            "devices": list(totals.devices),
            "flags": list(record.flags),
            "same_as": record.same_as,
            "reserved": [str(name) for run in record.subtree.runs if run.subtree is None and run.same_as is None for name in run.names],
            "tensors": [_entry(entry, record.path) for entry in record.tensors],
            "ghosts": [{**asdict(ghost), "reason": facts.of_ghost(ghost)[2]} for ghost in record.subtree.ghosts],
        }

    def _sentence(self) -> tuple[str, str]:
        return headline.of_tree(self.record)

    def _text(self) -> str:
        return text.of_tree(self.record)

    def _static(self) -> str:
        return html.of_tree(self.record)

    def _fitting_payload(self) -> bytes:
        size = sum(1 + len(subtree.tensors) for subtree in self.record.subtrees())
        return html.within_budget(lambda rows: self._payload(limit=rows), size)

    def _payload(self, *, live: bool = False, limit: int | None = None) -> bytes:
        classes = {subtree: structure.class_of(subtree) for subtree in self.record.subtrees()}
        definitions = {subtree: define(cls) for subtree, cls in classes.items() if cls is not None}
        return payload.of_tree(self.record, definitions, "modlab.tree(model)", __version__, live=live, limit=limit)

    def _answer(self, path: str) -> bytes:
        return answer(self._alive("reading values"), path)


def _entry(entry: TensorEntry, path: str) -> dict[str, Any]:
    here = f"{path}.{entry.name}" if path else entry.name
    return {**asdict(entry), "tied": entry.tied.resolve(here) if entry.tied else None}


def answer(model: Module, path: str) -> bytes:
    """The values of one tensor of `model`, for the page."""
    tensor = slots.tensor_at(model, path)
    if tensor is None:
        raise PathNotFoundError(f"{type(model).__name__} has no tensor {path!r} now.")
    return payload.of_answer(values.read(tensor, path))


def _is(record: ModuleRecord, wanted: type | str) -> bool:
    if isinstance(wanted, str):
        return fnmatchcase(record.type, wanted)
    cls = structure.class_of(record.subtree)
    return issubclass(cls, wanted) if cls is not None else record.type == wanted.__name__


def _trains(record: ModuleRecord) -> bool | None:
    own = [entry.trainable for entry in record.tensors if entry.kind == "parameter"]
    return any(own) if own else None
