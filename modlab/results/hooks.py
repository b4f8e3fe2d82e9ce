"""``modlab.hooks(model)``: every hook of every kind, what it does, and which should not be there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from torch.nn import Module

from modlab.errors import ModlabError, PathNotFoundError, QuestionError, nearest
from modlab.inspection import checks, hook_stores, structure
from modlab.inspection import hooks as at_rest
from modlab.inspection.hooks import Asked
from modlab.records.hooks import EVERY_MODULE, EVERY_OPTIMIZER, HookbookRecord, HookRecord
from modlab.records.structure import ROOT
from modlab.results.rows import RowsResult
from modlab.views.sheets import hooks as sheets
from modlab.views.sheets.layout import Sheet


def hooks(model: Module | None = None) -> Hooks:
    """Show every hook of a model: on which module or tensor, in which order, what it gets and what a returned value does.

    This includes hooks that run for all modules or all optimizers. Hooks left by an earlier run of their cell, hooks registered
    twice, hooks that never run and those of torch's own utilities are marked.

    Args:
        model: any ``nn.Module``; None for the global hooks alone.

    Returns:
        A `Hooks`: displays itself; ``hooks["net.l0"]``, ``hooks.find(kind="forward")``, ``hooks.remove(...)``, ``hooks.off(...)``.

    Raises:
        NotAModuleError: `model` is something else.
        NotInitializedError: the model's constructor did not call ``super().__init__()``.

    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    >>> handle = net[0].register_forward_hook(print)
    >>> print(hooks(net).headline)
    Sequential: 1 hook on 1 of 3 modules: 1 forward hook.
    """
    if model is None:
        return Hooks(None)
    return Hooks(checks.require_module(model, "hooks"))


class Hooks(RowsResult):
    """The hooks of a model. Made by `modlab.hooks`."""

    kind: ClassVar[str] = "hooks"

    def __init__(self, model: Module | None) -> None:
        super().__init__(model)
        self._of_model = model is not None
        self._model = "" if model is None else structure.of_users(model).fingerprint
        self.record: HookbookRecord = at_rest.extract(model)

    @property
    def code(self) -> str:  # type: ignore[override]
        """The call that makes this view."""
        return "modlab.hooks(model)" if self._of_model else "modlab.hooks()"

    @property
    def records(self) -> Sequence[HookRecord]:
        """One record for each hook: global ones first, then by module, in the order in which they run."""
        return self.record.rows

    @property
    def paths(self) -> list[str]:
        """The dotted names of what has hooks: modules, tensors, "(every module)", "(every optimizer)"."""
        return list(dict.fromkeys(row.path for row in self.record.rows))

    def __getitem__(self, path: str) -> tuple[HookRecord, ...]:
        """The hooks on the module or tensor at a dotted name; none is an empty tuple."""
        wanted = "" if path == ROOT else path
        found = tuple(row for row in self.record.rows if row.path == wanted)
        if found:
            return found
        first = self._resolved(path)
        return tuple(row for row in self.record.rows if row.path == first)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and any(row.path == ("" if path == ROOT else path) for row in self.record.rows)

    def __iter__(self) -> Iterator[HookRecord]:
        return iter(self.record.rows)

    def __len__(self) -> int:
        return len(self.record.rows)

    def __bool__(self) -> bool:
        return True

    def find(self, pattern: str = "*", *, kind: str | None = None, function: str | None = None) -> list[HookRecord]:
        """The hooks that match all that is asked.

        Args:
            pattern: a path with wildcards, ``"*.attn.*"``; ``*`` also matches dots.
            kind: "forward", "forward pre", ... as in the records; wildcards allowed.
            function: its name, qualified or not; wildcards allowed.
        """
        _require_words(pattern, kind)
        return [
            row
            for row in self.record.rows
            if at_rest.matches(row.path, pattern)
            and (kind is None or at_rest.matches(row.kind, kind))
            and (function is None or any(at_rest.matches(name, function) for name in _names(row)))
        ]

    def remove(
        self,
        path: str | HookRecord | Sequence[HookRecord] | None = None,
        *,
        kind: str | None = None,
        function: Callable[..., Any] | str | None = None,
    ) -> int:
        """Take hooks out for good, as their handles would; nothing that does not match all that is asked is touched.

        Hooks of torch's own utilities (pruning, weight norm, ...) go only where `function` names them or as records: a
        pruned layer whose hook is gone would go on with an old weight. Hooks for all modules go by ``modlab.hooks().remove(...)``,
        or where they are named by `function`, by path, or as records.

        Args:
            path: the dotted name of a module or tensor, wildcards allowed (``"net.*"``); or records, as `find` gives them.
            kind: "forward", "forward pre", ... as in the records; wildcards allowed.
            function: the function or object itself, what it is made from (of a partial, a bound method, a class), or its name;
                what earlier runs of its cell left is the same function.

        Returns:
            How many were removed; the view is made anew.

        Raises:
            PathNotFoundError: the model has nothing of this name.
            QuestionError: there is no such kind.

        >>> from torch import nn
        >>> net = nn.Linear(4, 3)
        >>> handle = net.register_forward_hook(print)
        >>> hooks(net).remove(function=print), len(hooks(net))
        (1, 0)
        """
        model = self._living("removing hooks")
        number = at_rest.remove(model, self._asked(model, path, kind, function))
        self.record = at_rest.extract(model)
        return number

    @contextmanager
    def off(
        self,
        path: str | HookRecord | Sequence[HookRecord] | None = None,
        *,
        kind: str | None = None,
        function: Callable[..., Any] | str | None = None,
    ) -> Iterator[Hooks]:
        """Take hooks out for the length of a ``with``, and put them back as they were: order, with_kwargs, always_call.

        Hooks that are added or removed meanwhile stay so. The handle of a hook that is off finds nothing to remove, except of
        forward and forward pre-hooks.

        Args:
            path: as in `remove`.
            kind: as in `remove`.
            function: as in `remove`.

        >>> from torch import nn
        >>> import torch
        >>> net = nn.Linear(4, 3)
        >>> handle = net.register_forward_hook(lambda *_: print("called"))
        >>> with hooks(net).off():
        ...     y = net(torch.ones(4))
        >>> y = net(torch.ones(4))
        called
        """
        model = self._living("removing hooks")
        asked = self._asked(model, path, kind, function)
        with at_rest.off(lambda: at_rest.meant(model, asked)):
            yield self

    def _living(self, purpose: str) -> Module | None:
        return self._alive(purpose) if self._of_model else None

    def _asked(self, model: Module | None, path: Any, kind: Any, function: Any) -> Asked:
        records = None
        if isinstance(path, HookRecord):
            path, records = None, [path]
        elif isinstance(path, (list, tuple)) and all(isinstance(row, HookRecord) for row in path):
            path, records = None, [*path]
        _require_words(path, kind)
        if function is not None and not isinstance(function, str) and not callable(function):
            raise QuestionError(
                f"function= got {checks.described(function)}, but takes the function itself, a class, or a name such as 'probe'."
            )
        return Asked(model, None if path is None else self._resolved(path), kind, function, records)

    def _resolved(self, path: str) -> str:
        """The first name of the module or tensor that a path leads to; a pattern as it is."""
        _require_words(path, None)
        wanted = "" if path == ROOT else path
        model = self._living("paths")
        if wanted in (EVERY_MODULE, EVERY_OPTIMIZER):
            return wanted
        found = None if model is None else hook_stores.first_path(model, wanted)
        if found is not None:
            return found
        if at_rest.is_pattern(path):
            return path
        close = nearest(wanted, [EVERY_MODULE, EVERY_OPTIMIZER] if model is None else hook_stores.names(model))
        hint = f"\n  Nearest: {', '.join(repr(one) for one in close)}." if close else ""
        title = self.record.title or "Whatever is for all modules"
        raise PathNotFoundError(f"{title} has no module and no tensor {path!r}.{hint}\n  Those that have hooks: .paths")

    def _fingerprint(self) -> str:
        return self._model

    def _sheet(self) -> Sheet:
        return sheets.of_hookbook(self.record)

    def _answer(self, path: str) -> bytes:
        raise ModlabError(f"This view holds no values of {path!r}: modlab.state(model) has those of tensors.")


def _names(row: HookRecord) -> tuple[str, ...]:
    return (row.function, row.function.replace(".<locals>", ""), row.function.rpartition(".")[2], row.name)


def _require_words(path: Any, kind: Any) -> None:
    if path is not None and not isinstance(path, str):
        raise QuestionError(
            f"The path got {checks.described(path)}, but takes a dotted name such as 'net.l0', with wildcards 'net.*', "
            f"or records of .find(...)."
        )
    if kind is None:
        return
    if not isinstance(kind, str) or not any(at_rest.matches(one, kind) for one in hook_stores.ORDER):
        raise QuestionError(f"There is no kind of hook {kind!r}.\n  Kinds: {', '.join(repr(one) for one in hook_stores.ORDER)}")
