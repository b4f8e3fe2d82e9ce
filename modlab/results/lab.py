"""``modlab.lab(model)``: all views of one model side by side, linked by one selection."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ReferenceType, WeakSet, ref

from torch.nn import Module
from torch.optim import Optimizer

from modlab.comparing.input_copies import InputCopies
from modlab.errors import ModlabError, NotInitializedError
from modlab.inspection import checks, parameter_gradients, stores, structure
from modlab.inspection.optimizers import as_tuple
from modlab.records.structure import ModuleRecord
from modlab.results import watch as watching
from modlab.results.comparison import Comparison, compare
from modlab.results.diagnosis import diagnose
from modlab.results.hooks import Hooks
from modlab.results.live import notebook
from modlab.results.result import Result, missing
from modlab.results.rows import RowsResult
from modlab.results.state import state
from modlab.results.trace import Trace, Tracer
from modlab.results.tree import Tree
from modlab.version import __version__
from modlab.views import payload
from modlab.views.sheets import activations, gradients
from modlab.views.sheets import payload as sheets
from modlab.views.sheets.layout import Sheet
from modlab.views.watch import payload as watch_payload

if TYPE_CHECKING:
    from modlab.results.widget import View

PANELS = {
    "state": "State",
    "activations": "Activations",
    "gradients": "Gradients",
    "trace": "Trace",
    "hooks": "Hooks",
    "modes": "Modes",
    "findings": "Findings",
    "source": "Source",
}
"""The tabs, by the names that the page asks for; "source" is made in the page, from the tree."""

_RAN = ("tree", "activations", "trace", "modes")
_TRAINED = (*_RAN, "gradients", "state")
_ASK = "panel "

_labs: WeakSet[Lab] = WeakSet()


def lab(model: Module, optimizer: Optimizer | Sequence[Optimizer] | None = None) -> Lab:
    """All views of one model linked by one selection: its tree, and beside it state, activations, gradients, trace and more.

    Call the result, ``lab(x, mask=m)``, to run the model under a trace and fill the panels; ``with lab:`` does the same for
    whole steps, with the gradients of outputs. While a `modlab.watch` of the model is open in another cell, its live plots
    appear under Activations and Gradients. In a notebook it is a widget, and each panel is read when it is opened.

    Args:
        model: any ``nn.Module``; neither changed nor kept alive.
        optimizer: one or several, for State and Findings.

    Returns:
        A `Lab`: displays itself; ``.trace`` is the last one, ``.close()`` lets go of the input that it keeps.

    Raises:
        NotAModuleError: `model` is something else.
        NotAnOptimizerError: `optimizer` is something else.
        NotInitializedError: the model's constructor did not call ``super().__init__()``.

    >>> import torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    >>> lab(net)
    Sequential: 15 parameters in 3 modules; all trainable, 60 B, float32 on cpu.
    panel        what it shows
    State        as it is when opened
    Activations  nothing yet: lab(x)
    Gradients    of parameters, as they are when opened; of outputs nothing yet: with lab: ...
    Trace        nothing yet: lab(x)
    Hooks        as it is when opened
    Modes        nothing yet: lab(x)
    Findings     as it is when opened
    Source       of the selected module
    """
    checks.require_module(model, "lab")
    if not stores.initialized(model):
        raise NotInitializedError(stores.uninitialized_message(model))
    return Lab(model, as_tuple(optimizer, "lab"))


class Lab(Result):
    """The views of one model. Made by `modlab.lab`."""

    kind: ClassVar[str] = "lab"

    def __init__(self, model: Module, optimizers: tuple[Optimizer, ...]) -> None:
        super().__init__()
        self._optimizers = [ref(one) for one in optimizers]
        self._pages: WeakSet[LabPage] = WeakSet()
        self._tracers: list[tuple[Tracer, Trace]] = []
        self._trace: Trace | None = None
        self._given: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._modes: Comparison | None = None
        self._watch: ReferenceType[watching.Watch] | None = None
        self._tree = Tree(structure.of_users(model), model)
        self._print = self._tree.record.fingerprint
        self.code = "modlab.lab(model, optimizer)" if optimizers else "modlab.lab(model)"
        me = ref(self)
        self._source = ref(model, lambda _: None if (one := me()) is None else one.close())
        _labs.add(self)
        watching.followers.add(self)
        for one in [*watching.watches]:
            self.follow(one)

    # ---- what runs

    def __call__(self, /, *args: Any, **kwargs: Any) -> Lab:
        """Run the model once, and fill the panels.

        A copy of the input is kept, until the next call or `close`: train and eval mode are compared on it when Modes is opened.

        Args:
            *args: what the model's ``forward`` takes.
            **kwargs: the same.

        Returns:
            This lab.

        Raises:
            Exception: whatever the model raises; Trace and Activations show what happened before.
        """
        model = self._alive("running it")
        tracer = Tracer(model, (), values=True, fold=False)
        given = InputCopies()
        self._keep((given(args), given(kwargs)))
        try:
            self._took(tracer(*args, **kwargs), _RAN)
        except BaseException:
            if tracer._last is not None:
                self._took(tracer._last, _RAN)
            raise
        return self

    def __enter__(self) -> Lab:
        """Trace what the model does until the block ends: calls, the loss, its backward pass, the optimizer's step."""
        tracer = Tracer(self._alive("running it"), (), values=True, fold=False)
        try:
            self._tracers.append((tracer, tracer.__enter__()))
        except BaseException:  # an interrupt, perhaps when the trace has begun: the block does not
            self._tracers = [one for one in self._tracers if one[0] is not tracer]
            if tracer.entered:
                tracer.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Fill the panels; an exception goes on its way."""
        tracer, found = self._tracers[-1]  # nothing is called before the `try`: after a call, Python looks for an interrupt
        try:
            tracer.__exit__(kind, error, trace)
        finally:
            found._release()
            self._tracers.pop()
        self._took(found, _TRAINED)

    @property
    def trace(self) -> Trace:
        """The last trace.

        Raises:
            ModlabError: nothing has run yet.
        """
        if self._trace is None:
            raise ModlabError("Nothing has run in this lab yet.\n  Write: lab(x), with the model's inputs; or: with lab: ...")
        return self._trace

    def close(self) -> None:
        """Let go of the input that is kept. The panels stay; Modes needs another ``lab(x)``."""
        self._given = None

    def _keep(self, given: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
        """Keep the input, one for each model: cells run again must not fill a GPU with batches."""
        mine = self._source() if self._source is not None else None
        for other in [*_labs]:
            if other._source is not None and other._source() is mine:
                other.close()
        self._given, self._modes = given, None

    def _took(self, trace: Trace, stale: Sequence[str]) -> None:
        self._trace = trace
        watch = self._followed()
        if watch is not None and not watch.running:  # what is newer is shown
            self._watch = None
        for page in [*self._pages]:
            page.tell(stale)

    def follow(self, watch: watching.Watch) -> None:
        """A watch has begun, has something new, or has ended."""
        model = self._source() if self._source is not None else None
        if model is None or watch._source is None or watch._source() is not model:
            return
        if self._followed() is not watch:
            self._watch = ref(watch)
        for page in [*self._pages]:
            page.push(watch)

    def _followed(self) -> watching.Watch | None:
        return self._watch() if self._watch is not None else None

    # ---- what the page asks for

    def panel(self, name: str, *, anew: bool = False) -> bytes:
        """The payload of one panel.

        Args:
            name: one of the tabs, or "tree".
            anew: what was computed before does not count.
        """
        if name == "tree":
            self._look()
            return self._tree._payload(live=True)
        watch = self._followed()
        if watch is not None and name in ("activations", "gradients"):
            return watch_payload.of_watch(watch.record, watch.code, __version__, self._print, live=watch.running)
        if name in ("trace", "activations"):
            return self._of_trace(name)
        model = self._alive(f"the panel {PANELS.get(name, name)}")
        if name == "state":
            return state(model, self._held())._payload(live=True)
        if name == "gradients":
            record = None if self._trace is None else self._trace.record
            return self._sheet(gradients.of_gradients(parameter_gradients.extract(model), record), self.code)
        if name == "modes":
            return self._of_modes(model, anew)
        if name == "hooks":
            return self._rows(Hooks(model))
        if name == "findings":
            return self._rows(diagnose(model, self._held()))
        raise ModlabError(f"A lab has no panel {name!r}. It has: {', '.join(PANELS)}")

    def _of_trace(self, name: str) -> bytes:
        trace = self.trace
        return self._rows(trace) if name == "trace" else self._sheet(activations.of_trace(trace.record), f"{self.code}(x)")

    def _of_modes(self, model: Module, anew: bool) -> bytes:
        if self._given is None:
            raise ModlabError(
                "No input to compare the two modes on: the input of the last call is used.\n"
                "  Write: lab(x), with the model's inputs. A copy of it is kept until lab.close(), and compared when this tab is opened."
            )
        if self._modes is None or anew:
            args, kwargs = self._given
            self._modes = compare(model)(*args, **kwargs)
        return self._rows(self._modes, "on a copy of the input of the last lab(x), kept until lab.close()")

    def _rows(self, result: RowsResult, foot: str = "") -> bytes:
        sheet = result._drawn()
        return self._sheet(replace(sheet, foot=" · ".join(filter(None, (sheet.foot, foot)))), result.code)

    def _sheet(self, sheet: Sheet, code: str) -> bytes:
        return sheets.of_sheet(sheet, self._print, code, __version__, live=True)

    def _held(self) -> tuple[Optimizer, ...]:
        return tuple(one for one in (held() for held in self._optimizers) if one is not None)

    def _look(self) -> None:
        """Read the tree again, while there is one."""
        model = self._source() if self._source is not None else None
        if model is not None:
            self._tree = Tree(structure.of_users(model), model)
            self._print = self._tree.record.fingerprint

    def _answer(self, path: str) -> bytes:
        self._alive("reading values")
        return self._tree._answer(path)

    # ---- faces

    @property
    def records(self) -> Sequence[ModuleRecord]:
        """Those of the tree."""
        return self._tree.records

    def _row(self, record: ModuleRecord) -> dict[str, Any]:
        return self._tree._row(record)

    def _sentence(self) -> tuple[str, str]:
        return self._tree._sentence()

    def _shown(self) -> dict[str, str]:
        """What each panel shows at present."""
        now, nothing = "as it is when opened", "nothing yet: lab(x)"
        watch = self._followed()
        watched = "" if watch is None else "the open watch" if watch.running else "the last watch"
        parameters = "of parameters, as they are when opened"
        kept = "of the last pass" if self._trace is not None else nothing
        backward = self._trace is not None and any(event.kind == "gradient" for event in self._trace.events)
        outputs = "of the last traced backward pass" if backward else "nothing yet: with lab: ..."
        of_modes = "of the input of the last call, which is kept until lab.close()" if self._given is not None else nothing
        return {
            "state": now,
            "activations": watched or kept,
            "gradients": watched or f"{parameters}; of outputs {outputs}",
            "trace": kept,
            "hooks": now,
            "modes": of_modes,
            "findings": now,
            "source": "of the selected module",
        }

    def _text(self) -> str:
        wide = max(len(title) for title in PANELS.values())
        gone = ["The model no longer exists: what was read is still here."] if self._source is None or self._source() is None else []
        lines = [f"{title:<{wide}}  {self._shown()[name]}" for name, title in PANELS.items()]
        return "\n".join([self.headline, *gone, f"{'panel':<{wide}}  what it shows", *lines])

    def html(self, *, bundle: bool = True) -> str:
        """The tree, with a line that says what the rest needs: the other panels are read when they are opened, by the kernel.

        Args:
            bundle: with the script that makes the tree interactive.
        """
        note = "Only the tree: a lab reads its other panels when you open them, which needs a running kernel and anywidget."
        return f'{self._tree.html(bundle=bundle)}\n<p class="modlab-note"><small>{note} Run the cell: <code>{self.code}</code></small></p>'

    def _static(self) -> str:
        return self._tree._static()

    def _payload(self, *, live: bool = False, limit: int | None = None) -> bytes:
        return self.face(())

    def face(self, stale: Sequence[str]) -> bytes:
        """What the page draws around the panels.

        Args:
            stale: panels that have something new.
        """
        kept = "keeps a copy of the last input until lab.close()" if self._given is not None else ""
        gone = self._source is None or self._source() is None
        sentence = ("The model no longer exists:", "what was read is still here.") if gone else self._sentence()
        content = payload.common("lab", sentence, self._print, self.code, __version__, kept, True)
        return payload.pack({**content, "tabs": [*PANELS.items()], "stale": [*stale]}, payload.Arrays())

    def widget(self) -> View:
        """The view with the kernel behind it, which a notebook shows. Needs anywidget."""
        page = LabPage(self)
        self._pages.add(page)
        return page.view

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """In a notebook the widget, else the tree."""
        still = {"text/plain": repr(self), "text/html": self.html()}
        if notebook() is None:
            return still
        try:
            return self.widget()._repr_mimebundle_(**kwargs)
        except ImportError:
            return still

    def __getstate__(self) -> dict[str, Any]:
        """A pickled lab is its tree and its last trace."""
        gone: dict[str, Any] = {"_optimizers": [], "_tracers": [], "_given": None, "_watch": None}
        return {name: part for name, part in {**super().__getstate__(), **gone}.items() if name != "_pages"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """It has no page yet."""
        self.__dict__.update(state, _pages=WeakSet())


class LabPage:
    """One view of a lab: it asks for a panel when that is opened, and is told what is new. It lives as long as its view.

    Args:
        lab: whose panels it shows.

    Raises:
        MissingPackageError: anywidget is not installed.
    """

    def __init__(self, lab: Lab) -> None:
        try:
            from modlab.results.widget import View
        except ImportError as error:
            raise missing("anywidget", ".widget()") from error
        self.view = View(lab, self._answer)
        self._lab = lab
        self._greeted = False
        self._sent: tuple[ReferenceType[watching.Watch], Any, watch_payload.Marks] | None = None

    def tell(self, stale: Sequence[str]) -> None:
        """Say which panels have something new; a page that is gone hears nothing, and the user's cell goes on."""
        with suppress(Exception):
            self.view.send({"action": "update"}, [self._lab.face(stale)])

    def push(self, watch: watching.Watch) -> None:
        """Send what a watch has seen since; all of it where the page has nothing, or where the slots were renumbered."""
        if not self._greeted:
            return
        try:
            record, shape = watch.record, watch.shape_of_slots()
            sent = self._sent if watch.running else None
            since = sent[2] if sent is not None and sent[0]() is watch and sent[1] == shape and sent[2].fits(record) else None
            packed = watch_payload.of_watch(record, watch.code, __version__, self._lab._print, live=watch.running, since=since)
            self._sent = ref(watch), shape, watch_payload.Marks.open_ends(record)
            self.view.send({"action": "update"}, [packed])
        except Exception:  # noqa: BLE001 - the watch has its own view, and the training goes on
            self._sent = None

    def _answer(self, content: dict[str, Any]) -> bytes | None:
        action = str(content.get("action"))
        if action.startswith(_ASK):
            return self._lab.panel(action[len(_ASK) :], anew=content.get("anew") is True)
        if action == "hello":
            self._greeted, self._sent = True, None
        return None
