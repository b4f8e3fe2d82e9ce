"""``modlab.trace(net)(x)``: what runs, in which order, through which hooks, and what happened to the gradients."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from threading import local
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import Module

from modlab import files, format
from modlab.errors import CallNotFoundError, ModlabError, NotInitializedError, PathNotFoundError, QuestionError, nearest
from modlab.inspection import checks, slots, stores, structure
from modlab.inspection.index import ModuleIndex, Node
from modlab.records.paths import as_known
from modlab.records.structure import ROOT
from modlab.records.trace import Event, TraceRecord, Value
from modlab.results.question import Pattern
from modlab.results.reason import Reason
from modlab.results.rows import RowsResult
from modlab.running.guarded import failed
from modlab.tracing.event_log import EventLog
from modlab.tracing.pending_events import PendingEvents
from modlab.tracing.recorder import Recorder
from modlab.views.sheets import repeats, text
from modlab.views.sheets import trace as view
from modlab.views.sheets.layout import Sheet
from modlab.wording.events import uncalled


def trace(model: Module, *given: Any, keep: str | Sequence[str] = (), values: bool = True, fold: bool = False) -> Tracer:
    """Show what runs when a model runs: each module, function and hook in order, with shapes, values, time and gradients.

    Write ``modlab.trace(net)(x, mask=m)`` where you would write ``net(x, mask=m)``, or
    ``with modlab.trace(net) as t:`` around several calls, a loss, its backward pass and the optimizer's step. Tracing does not
    change the run: outputs, gradients and random numbers are identical bit for bit. A model that talks to other ranks (FSDP, tensor
    parallel) must be called on all of them, traced or not.

    Args:
        model: any ``nn.Module``; not changed or kept alive.
        *given: nothing: the model's arguments go in the second call.
        keep: paths, or patterns of paths ("blocks.*.attn"), whose outputs are copied into ``.kept``; with ``""`` the
            model's own output is in ``.output`` unchanged.
        values: measure the tensors; without, only shapes and times (for large models).
        fold: for equal subtrees called one after the other, record the first and count the rest.

    Returns:
        A `Tracer`, to be called or entered, which gives the `Trace`.

    Raises:
        NotAModuleError: `model` is something else.
        NotInitializedError: its constructor did not call ``super().__init__()``.

    >>> import torch
    >>> from torch import nn
    >>> trace(nn.Sequential(nn.Linear(4, 3), nn.Tanh()))(torch.ones(2, 4))
    Sequential: 3 of 3 modules ran.
    path    call        in → out          new memory
    (root)  Sequential  (2, 4) -> (2, 3)  24 B
    0       Linear      (2, 4) -> (2, 3)  24 B
    1       Tanh        (2, 3) -> (2, 3)  24 B
    """
    checks.require_module(model, "trace")
    if given:
        raise QuestionError("modlab.trace() takes only the model; its inputs go in a second call.\n  Write: modlab.trace(net)(x)")
    if not stores.initialized(model):
        raise NotInitializedError(stores.uninitialized_message(model))
    patterns = (keep,) if isinstance(keep, str) else tuple(keep) if isinstance(keep, Iterable) else (keep,)
    if not all(isinstance(pattern, str) for pattern in patterns):
        raise QuestionError(f"trace(keep=...) got {keep!r}, but takes a path or several: keep=('', 'blocks.*.attn').")
    return Tracer(model, patterns, values, fold)


class Tracer:
    """A trace that has not run yet: call it like the model, or enter it. Holds the model until then."""

    def __init__(self, model: Module, keep: tuple[str, ...], values: bool, fold: bool) -> None:
        self._model, self._options = model, {"keep": keep, "values": values, "fold": fold}
        self._running = local()  # one tracer may be entered in several threads
        self._last: Trace | None = None

    def __call__(self, /, *args: Any, **kwargs: Any) -> Trace:
        """Run the model once.

        Args:
            *args: the arguments of the model's ``forward``.
            **kwargs: the same.

        Returns:
            The `Trace`; it has shapes and statistics of the model's output (``keep=""`` keeps the output itself).

        Raises:
            Exception: whatever the model raises, unchanged. What happened before is then in the `Tracer` itself
                (``t = modlab.trace(net)``, ``t(x)``, ``print(t)``), and a notebook shows it immediately.
        """
        found = Trace(self._model, {**self._options, "follow": False})
        try:
            try:
                found._open()
                self._model(*args, **kwargs)
            except BaseException as error:
                found._close(error)
                self._last = found
                _show(found)
                raise
            found._close(None)
        finally:
            found._release()
        return found

    def __enter__(self) -> Trace:
        """Begin to record what the model does in this thread."""
        found = Trace(self._model, self._options)
        block = _Block(found)
        self._running.stack = [*getattr(self._running, "stack", ()), block]
        try:
            found._open()
        except BaseException:
            found._release()
            block.ended()
            self._running.stack.remove(block)
            raise
        return found

    @property
    def entered(self) -> bool:
        """Whether a block of it runs in this thread."""
        return bool(getattr(self._running, "stack", ()))

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        """Stop; an exception passes through."""
        stack: list[_Block] = self._running.stack
        block = stack[-1]  # nothing is called before the `try`: after a call, Python looks for an interrupt
        try:
            block.trace._close(error)
        finally:
            block.trace._release()
            block.ended()
            stack.remove(block)

    def __repr__(self) -> str:
        return "nothing has run yet: modlab.trace(net)(x)" if self._last is None else repr(self._last)

    def _repr_html_(self) -> str | None:
        """After a call that raised, what had happened before."""
        return None if self._last is None else self._last.html()


class _Ended:
    """A ``with`` block that has ended: it no longer has a finalizer, in which Python would drop an interrupt."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def ended(self) -> None:
        """There is nothing left to be done."""
        self.__class__ = _Ended


class _Block(_Ended):
    """One that was entered. An interrupt may come before it begins: then nobody ends the trace but this, when it is let go of."""

    def __del__(self) -> None:
        self.trace._release()


class Calls:
    """The calls of one module, in order. If there is only one, its attributes are available directly: ``t["l0"].outputs``.

    Attributes:
        folded: with ``fold=True``, the path of the module whose calls stand for these; otherwise empty.
    """

    def __init__(self, events: Iterable[Event], folded: str = "") -> None:
        self._events, self.folded = tuple(events), folded

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __getitem__(self, number: int) -> Event:
        try:
            return self._events[number]
        except IndexError:
            path, times = self._events[0].path, format.plural(len(self), "time")
            raise CallNotFoundError(f"{path!r} ran {times} in this trace: t[{path!r}][{len(self) - 1}] is the last.") from None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if len(self) != 1:
            path = self._events[0].path
            raise AttributeError(f"{path!r} ran {len(self)} times in this trace: pick one, t[{path!r}][0].{name}")
        return getattr(self._events[0], name)

    def __repr__(self) -> str:
        return format.printable(f"{list(self._events)!r}{f' as {self.folded} (folded)' if self.folded else ''}")


class Trace(RowsResult):
    """What ran. Made by `modlab.trace`."""

    kind: ClassVar[str] = "trace"
    code: ClassVar[str] = "modlab.trace(model)(x)"

    def __init__(self, model: Module, options: dict[str, Any]) -> None:
        super().__init__(model)
        self._recorder: Recorder | None = None
        self._record: TraceRecord | PendingEvents | None = None
        self._kept: dict[str, list[Any]] = {}
        self._output: Any = None
        self._fingerprinted = ""
        try:
            recorder = Recorder(model, **options)
            unknown = recorder.unknown(options["keep"])
        except Exception as error:  # noqa: BLE001 - the model runs all the same
            log = EventLog()
            failed(log, error)
            self._record = TraceRecord(type(model).__name__, 0, (), remarks=tuple(log.remarks))
            return
        if unknown:
            close = nearest(unknown[0], recorder.index.modules)
            hint = f"  Nearest: {', '.join(map(repr, close))}." if close else ""
            raise QuestionError(f"trace(keep={unknown[0]!r}) matches no module of {type(model).__name__}.{hint}")
        self._recorder = recorder

    @classmethod
    def of(cls, record: TraceRecord) -> Trace:
        """The faces of a record, as a watch keeps one of the step in which a NaN was born."""
        made = cls.__new__(cls)
        super(Trace, made).__init__()
        made._recorder, made._record, made._kept, made._output, made._fingerprinted = None, record, {}, None, ""
        return made

    def _open(self) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            recorder.open()
        except Exception as error:  # noqa: BLE001 - as above
            failed(recorder.log, error)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        """End it, if an interrupt kept it from ending."""
        if self._recorder is not None:
            self._close(None)

    def _close(self, error: BaseException | None) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            self._record = recorder.finish(error)
        except Exception as wrong:  # noqa: BLE001 - as above
            failed(recorder.log, wrong)
            self._record = recorder.remnant()
        self._kept, self._output = recorder.modules.kept, recorder.modules.output
        self._recorder = None

    @property
    def record(self) -> TraceRecord:
        """Everything known; while the trace runs, everything so far."""
        if self._recorder is not None:
            return self._recorder.record()
        assert self._record is not None
        if isinstance(self._record, PendingEvents):  # it is made for whoever reads it
            self._record = self._record.record()
        return self._record

    @property
    def events(self) -> Sequence[Event]:
        """What happened, in the order in which it began."""
        return self.record.events

    @property
    def records(self) -> Sequence[Event]:
        """The same as `events`."""
        return self.events

    @property
    def error(self) -> str:
        """The exception that ended the trace, in one line; empty if there was none."""
        return self.record.error

    @property
    def not_called(self) -> list[str]:
        """Paths of modules that did not run; modules below one of them are not listed again."""
        return [one.path for one in self.record.uncalled]

    @property
    def output(self) -> Any:
        """What the model returned, if you asked for it with ``keep=""``.

        Raises:
            ModlabError: it was not kept.
        """
        if "" not in self._kept:
            raise ModlabError(
                "The model's output was not kept: a trace holds no tensors.\n  Ask for it: modlab.trace(net, keep='')(x).output"
            )
        return self._output

    @property
    def kept(self) -> dict[str, list[Any]]:
        """Copies of the outputs that ``keep=`` asked for, by path, one for each call."""
        return self._kept

    def __getitem__(self, path: str) -> Calls:
        """The calls of the module at a dotted name; of one that has several, under any of them. ``""`` is the root."""
        if not issubclass(type(path), str):
            other = f"  For an event by its number: t.events[{path}]" if issubclass(type(path), int) else "  All: t.find(kind='module')"
            raise PathNotFoundError(f"t[...] takes a dotted name such as 'net.l0', and got {checks.described(path)}.\n{other}")
        path = self._first_name(as_known("" if path == ROOT else path, {event.path or "" for event in self.events}))
        found = self._calls(path)
        if found is not None:
            return found
        absent = next((one for one in self.record.uncalled if path == one.path or path.startswith(f"{one.path}.")), None)
        if absent is not None:
            raise PathNotFoundError(f"{path!r} did not run: {uncalled(absent)}.")
        ran = list(dict.fromkeys(event.path for event in self.events if event.kind == "module" and event.path))
        close = nearest(path, ran)
        hint = f"  Nearest: {', '.join(map(repr, close))}." if close else ""
        raise PathNotFoundError(f"{self.record.title} did not run a module {path!r} in this trace.\n{hint}  All: t.find(kind='module')")

    def _calls(self, path: str, asked: tuple[str, ...] = ()) -> Calls | None:
        """The calls of a module, or those that stand for them; None if there are none. `asked`: for which names' sake it is asked."""
        found = Calls(_without_wrappers([event for event in self.events if event.kind == "module" and event.path == path]))
        return found if found else None if path in asked else self._folded(path, asked)

    def _folded(self, path: str, asked: tuple[str, ...]) -> Calls | None:
        """The calls that stand for those of a module, which were only counted, or inside of one that was."""
        alike = dict(self.record.alike)
        name = outer = str(path)
        while outer and outer not in alike:
            outer = outer.rpartition(".")[0]
        if outer not in alike:
            return None
        first = self.events[alike[outer]]
        twin = f"{first.path}{name[len(outer) :]}"
        if name == outer:
            return Calls([first], twin)
        calls = self._calls(twin, (*asked, name))
        found = None if calls is None else Calls((event for event in calls if self._is_inside(event, first)), calls.folded or twin)
        return found if found else None

    def _is_inside(self, event: Event, outer: Event) -> bool:
        while event.index > outer.index and event.parent >= 0:
            event = self.events[event.parent]
        return event is outer

    def _first_name(self, path: str) -> str:
        """The name under which a trace knows a module, of one that is registered more than once."""
        model = self._source() if self._source is not None else None
        if model is None or any(event.path == path for event in self.events):
            return path
        module: Module | None = model
        for name in path.split(".") if path else ():
            module = None if module is None else dict(stores.named_children(module)).get(name)
        return next((node.path for node, one in ModuleIndex(model, Node).found if one is module), path)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def find(self, pattern: str = "*", *, kind: str | None = None) -> list[Event]:
        """The events whose path or name matches.

        Args:
            pattern: with wildcards: ``"*.attn"``, ``"F.*"``.
            kind: "module", "function", "hook", "backward", "gradient" or "step".
        """
        wanted = Pattern(pattern)
        kinds = ("module", "function", "hook", "backward", "gradient", "step")
        if kind is not None and kind not in kinds:
            raise QuestionError(f"find(kind=...) got {kind!r}, but takes one of {', '.join(kinds)}.")
        return [
            event
            for event in self.events
            if (kind is None or event.kind == kind) and (wanted.fits(event.name) or (event.path is not None and wanted.fits(event.path)))
        ]

    def why(self, path: str | Tensor) -> Reason:
        """Why a parameter has no gradient: one reason, and the number of the event that shows it.

        Args:
            path: the parameter's dotted name, as in ``named_parameters()``; or the parameter itself.

        Raises:
            PathNotFoundError: the model has no such parameter.

        >>> import torch
        >>> net = torch.nn.Linear(2, 1).requires_grad_(False)
        >>> trace(net)(torch.ones(2)).why("weight")
        weight: frozen: its requires_grad is False
        """
        reasons = {reason.path: reason for reason in self.record.reasons}
        model = self._source() if self._source is not None else None
        if issubclass(type(path), Tensor):
            name = None if model is None else _name_of(path, model, reasons)
            if name is None:
                hint = f"  By its dotted name: t.why({_some(reasons)!r})"
                raise PathNotFoundError(f"This tensor is not a parameter of {self.record.title}.\n{hint}")
            path = name
        if not isinstance(path, str):
            raise PathNotFoundError(
                f"t.why() takes a parameter or its dotted name, but got {checks.described(path)}.\n  Write: t.why({_some(reasons)!r})"
            )
        path = as_known(path, reasons)
        if path in reasons:
            return Reason.of(reasons[path])
        tensor = slots.tensor_at(model, path) if model is not None else None
        if model is not None and tensor is not None:
            twin = next((reason for name, reason in reasons.items() if slots.tensor_at(model, name) is tensor), None)
            if twin is not None:
                return replace(Reason.of(twin), path=path, facts={**twin.facts, "twin": twin.path})
            return Reason("buffer", path, {"case": "buffer"})
        own = [name for name in reasons if name.startswith(f"{path}.")][:3]
        close = own or nearest(path, reasons)
        hint = f"\n  {'Those of this module' if own else 'Nearest'}: {', '.join(map(repr, close))}." if close else ""
        raise PathNotFoundError(f"{self.record.title} has no parameter {path!r}.{hint}")

    @property
    def reasons(self) -> list[Reason]:
        """What `why` gives, of each parameter."""
        return list(map(Reason.of, self.record.reasons))

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``schema``, ``kind``, ``headline``, ``records`` (events) and ``reasons``, which are findings (docs/findings.md)."""
        from modlab.views.findings import as_data  # most traces are read, and not by a program

        return {**super().to_dict(), "reasons": list(map(as_data, self.reasons))}

    def export_chrome_trace(self, path: str | PathLike[str]) -> None:
        """Write the events as a file for chrome://tracing and ui.perfetto.dev, as ``torch.profiler`` does.

        Args:
            path: the file to write; times in it are microseconds.
        """
        if not isinstance(path, (str, PathLike)):
            raise QuestionError(
                f"export_chrome_trace() got {checks.described(path)}, but takes the file to write: t.export_chrome_trace('trace.json')"
            )
        events = [
            {
                "name": f"{event.path or event.name} ({event.name})" if event.kind == "module" else event.name,
                "cat": event.kind,
                "ph": "X",
                "ts": event.start * 1e6,
                "dur": event.seconds * 1e6,
                "pid": 0,
                "tid": 0,
                "args": {"path": event.path, "in": _shapes(event.inputs), "out": _shapes(event.outputs), "marks": list(event.marks)},
            }
            for event in self.events
            if event.kind != "gradient"
        ]
        files.write(path, json.dumps({"traceEvents": events}))

    def _row(self, record: Event) -> dict[str, Any]:
        return {
            "index": record.index,
            "kind": record.kind,
            "path": record.path,
            "name": record.name,
            "call": record.call,
            "parent": record.parent,
            "depth": record.depth,
            "training": record.training,
            "inputs": [_plain(value) for value in record.inputs],
            "outputs": [_plain(value) for value in record.outputs],
            "seconds": record.seconds,
            "own_seconds": record.own_seconds,
            "bytes": record.bytes,
            "memory": record.memory,
            "where": record.where,
            "marks": list(record.marks),
            "facts": [{"kind": fact.kind, **fact.facts} for fact in record.facts],
            "error": record.error,
            "times": record.times,
        }

    def _sheet(self) -> Sheet:
        return view.sheet(self.record)

    def _text(self) -> str:
        return text.of_sheet(repeats.folded(self._drawn()))

    def _static(self) -> str:
        from modlab.views.sheets import html  # as in `Result.html`

        return html.of_sheet(repeats.folded(self._drawn()))

    def _fingerprint(self) -> str:
        model = self._source() if self._source is not None else None
        if not self._fingerprinted and model is not None:
            self._fingerprinted = structure.of_users(model).fingerprint
        return self._fingerprinted

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_recorder": None, "_record": self.record, "_kept": {}, "_output": None}


def _some(reasons: Iterable[str]) -> str:
    """The name of a parameter, for an example."""
    return next(iter(reasons), "l0.weight")


def _plain(value: Value) -> dict[str, Any]:
    stats = value.stats
    numbers = ("mean", "std", "min", "max", "zeros", "nan", "posinf", "neginf")
    found = {name: getattr(stats, name) for name in numbers} if stats is not None and stats.measured else {}
    return {
        "name": value.name,
        "kind": value.kind,
        "shape": value.shape,
        "dtype": value.dtype,
        "device": value.device,
        "requires_grad": value.requires_grad,
        "text": value.text,
        "note": value.note,
        **{name: number if number == number and abs(number) != float("inf") else None for name, number in found.items()},
    }


def _shapes(values: Sequence[Value]) -> list[str]:
    return [f"{value.name} {value.shape}".strip() for value in values if value.shape is not None]


def _show(result: Trace) -> None:
    """In a notebook, the trace of a call that raised: the call gives nothing back that could show it."""
    interactive = sys.modules.get("IPython")
    if interactive is not None and interactive.get_ipython() is not None:
        from IPython.display import display

        display(result)  # type: ignore[no-untyped-call]


def _without_wrappers(calls: list[Event]) -> Iterator[Event]:
    """Those of the user's modules: a wrapper has the path of what it wraps, and its call is around that one's."""
    around = {(event.parent, event.name) for event in calls}
    wrapping = {parent for parent, _ in around}
    return (event for event in calls if event.index not in wrapping or (event.index, event.name) in around)  # or it calls itself


def _name_of(tensor: Any, model: Module, known: Iterable[str]) -> str | None:
    """The name of a parameter, or of the tensor that stands in its place for a while."""
    index, names = ModuleIndex(model, Node), set(known)
    for one in index.tensors(index.found):
        if one.path in names and (one.tensor is tensor or (one.swap is not None and any(form is tensor for form in one.swap.forms()))):
            return one.path
    return None
