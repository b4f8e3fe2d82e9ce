"""The light tap: what it takes to run the last training pass of a model again, kept by references.

One pair of global module hooks, which look at the calls of the root alone; nothing is put on a module, and all is let go of when
the step ends.

Cost (CPU time of one thread, on and off by turns in one process): about 50 µs a step of a small MLP of six modules, which is 35 % of
a bare step of 0.15 ms, 12 % of one of 0.4 ms and 2 % of one of 2.5 ms; of ResNet-18's step (45 ms) 0.5 %, which is less than its
noise. Every call of a module pays 3 µs for the two hooks; the root's own 20 µs more, of which the random state takes 2, the sample of
the output 3 and the hook for its gradient 4; the gradient's arrival takes 5. A buffer that a forward pass changes and reads adds its
copy; the running statistics of batch norms, which a training pass does not read, are not copied. `on` and `off` take 1 µs together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import get_ident
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast
from weakref import ref

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from modlab import compat
from modlab.compat import (
    being_traced,
    is_simulated,
    without_autograd,
    without_torch_function,
)
from modlab.inspection import stores
from modlab.inspection.entries import PLAIN
from modlab.running import clock, compile_warning
from modlab.running.guarded import Look, afterwards, apart, guarded, line_of
from modlab.running.listener import GlobalHooks
from modlab.running.module_kinds import is_compiled
from modlab.running.randomness import Meter, Private, Undo, generators, is_private, states
from modlab.running.values import leaves
from modlab.statistics.memory import is_there
from modlab.tracing import callers
from modlab.tracing.tensor_ids import version_of, versions_of

KEPT = 4
"""Passes that are kept until the step ends: gradient accumulation may make more."""

HELD = 256 << 20
"""Bytes of gradients of outputs that are held; of what goes beyond, the pass says so."""

WRAPPER = "OptimizedModule"
"""The class of what `torch.compile` makes of a module."""

LEARNT = 3
"""The first passes, in which is learnt which buffers a forward pass changes and which generators it draws from."""

COPIED = 16 << 20
"""Bytes of buffers that are copied in each of the first passes."""

SAMPLED = 64
"""Numbers of each output that are copied, to tell whether a pass that is run again is the same pass."""

WHOLE = 1 << 10
"""Numbers of an output up to which all of them are copied."""

P = ParamSpec("P")
T = TypeVar("T")

_Stores = dict[tuple[int, str], dict[str, Any]]
"""Of a buffer, by its store's identity and its name, the store."""

_busy: set[int] = set()  # threads in which a model is run again: what is called there is nobody's training


@contextmanager
def unseen() -> Iterator[None]:
    """No tap of this thread's takes down what is called inside."""
    thread = get_ident()
    outer = thread in _busy
    _busy.add(thread)
    try:
        yield
    finally:
        if not outer:
            _busy.discard(thread)


def run_unseen(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in `unseen`, and leave it whatever ends that: an interrupt may hit the end of a context."""
    thread = get_ident()
    outer = thread in _busy

    def leave() -> None:
        if not outer:
            _busy.discard(thread)

    def within() -> T:
        _busy.add(thread)
        return work(*args, **kwargs)

    return afterwards(leave, within)


def is_unseen() -> bool:
    """Whether this thread is inside of `unseen`."""
    return bool(_busy) and get_ident() in _busy


def captured() -> bool:
    """Whether what is called is nobody's training: a compiler or tracer takes it down, or modlab runs a step again."""
    return torch.compiler.is_compiling() or run_aside()


def run_aside() -> bool:
    """The same where no compiler is at work: hooks on modules have asked that."""
    return being_traced() or is_unseen() or is_simulated() or compat.pipeline_pass() == compat.REHEARSAL


class Buffer(NamedTuple):
    """A buffer as it was before a pass: the store and the name it lies under, the tensor, and a copy."""

    store: dict[str, Any]
    name: str
    tensor: Tensor
    copy: Tensor


class Autocast(NamedTuple):
    """What autocast was set to for one kind of device."""

    device: str
    enabled: bool
    dtype: torch.dtype | None
    cache: bool


_NONE: list[Undo] = []
_OFF = {device: Autocast(device, False, None, True) for device in ("cpu", "cuda", "xpu")}


class LastPass:
    """One training forward of the root, by references.

    Attributes:
        args, kwargs: as they were given; None while it runs.
        versions: how often each tensor among `args` had been changed in place when the pass began; `late`, the same of
            `kwargs`, when it ended.
        modes: the settings of autocast.
        buffers: those that a forward pass changes, as they were before; `partly` if there were too many to be copied.
        gradients: by the place of an output among the leaves, its gradient, as it is there; `beyond` are those too large to be held.
        samples: by the same places, some numbers of the output.
        finished: it gave an output; `backwards`, how often a gradient came back; `mixed`, whether under autocast.
    """

    __slots__ = (
        "args",
        "backwards",
        "beyond",
        "buffers",
        "finished",
        "frame",
        "gradients",
        "handles",
        "kwargs",
        "late",
        "looked",
        "mixed",
        "modes",
        "others",
        "partly",
        "random",
        "samples",
        "thread",
        "versions",
        "written",
    )

    def __init__(self, args: tuple[Any, ...], frame: int) -> None:
        self.args, self.kwargs, self.frame, self.thread = args, cast("dict[str, Any]", {}), frame, get_ident()
        self.versions: tuple[int, ...] = _versions(args)
        self.late: tuple[int, ...] = ()
        self.modes: list[Autocast] = []
        self.random: list[Tensor] = []  # the states of torch's generators, in their order
        self.others: list[Undo] = _NONE
        self.buffers: list[Buffer] = []
        self.gradients: dict[int, Tensor] = {}
        self.written: dict[int, int] = {}  # the versions of these when they came
        self.samples: dict[int, Tensor] = {}
        self.beyond: set[int] = set()
        self.handles: list[RemovableHandle] = []
        self.partly = self.finished = self.looked = self.mixed = False
        self.backwards = 0

    def let_go(self) -> None:
        """Take the hooks off the graph."""
        for handle in self.handles:
            handle.remove()
        self.handles = []


class LastStep:
    """Sees the training passes of one model: called in train mode, with autograd on.

    Args:
        root: the model; held weakly.
        look: what an error of ours ends; none: the tap itself.
        on_forward: called when a training pass begins, before anything of it is noted: what was kept of the last ones is still
            there.
        on_backward: called when a backward pass ends that brought a gradient to an output; not while it runs.

        on_wrapper: called with what ``torch.compile(root)`` gave, when that is called in the root's place.

    Attributes:
        passes: the last ones since `forget`, the oldest first.
        forwards: training passes of the root so far; `dropped`: those since `forget` that are kept no more.
        arrived: gradients of outputs so far; `thread`: in which the last pass began, 0 before the first one.
        seconds: that its work took, without what `on_forward` and `on_backward` did.
        trouble: what went wrong in the tap itself, in one line; the training does not notice.
        is_stage: whether a pipeline has made any of these passes.
        compiled: whether a compiler runs the root: its calls are seen, but not those of a model compiled in its place
            (``model.compile()``), of which torch tells no hook.
    """

    def __init__(
        self,
        root: Module,
        look: Look | None = None,
        *,
        on_forward: Callable[[], None] | None = None,
        on_backward: Callable[[LastPass], None] | None = None,
        on_wrapper: Callable[[Module], None] | None = None,
    ) -> None:
        self._look = look
        self.root, self._key = ref(root), id(root)
        self.compiled, self.is_stage = is_compiled(root), False
        self._on_forward, self._on_backward, self._on_wrapper = on_forward, on_backward, on_wrapper
        self.passes: list[LastPass] = []
        self.forwards = self.dropped = self.arrived = 0
        self.thread = 0
        self.trouble, self.seconds = "", 0.0
        self._running: list[LastPass] = []
        self._held, self._frozen, self._queued = 0, False, False
        self._learnt = 0
        self._changing: _Stores = {}  # the buffers that a forward pass was seen to change
        self._tallies: dict[tuple[int, str], tuple[dict[str, Any], Tensor | None, int]] = {}  # while it is learnt: all of them
        self._meter: Meter | None = None
        self._widely = False  # Python's or numpy's random numbers are drawn too
        self._generators: list[Any] = []
        self._devices: tuple[str, ...] = ("cpu",)
        self._private: list[Any] = _private(root)
        self._hooks: GlobalHooks | None = None

    def open(self) -> None:
        """Begin to see."""
        if self._hooks is not None:
            return
        root = self.root()
        if root is not None and any(is_compiled(one) for one in stores.modules(root)):
            compile_warning.silence(self)
        key, compiling, enter, leave, wraps = self._key, torch.compiler.is_compiling, self._enter, self._leave, self._wraps

        def before(module: Module, args: tuple[Any, ...]) -> None:
            if compiling():
                return
            if id(module) == key or (type(module).__name__ == WRAPPER and wraps(module)):
                enter(module, args)

        def after(module: Module, args: tuple[Any, ...], *rest: Any) -> None:
            if compiling() or len(rest) < 2:  # closed by another hook of this very call
                return
            if id(module) == key or (type(module).__name__ == WRAPPER and wraps(module)):
                leave(module, args, *rest)

        self._hooks = GlobalHooks(before, after, with_kwargs=True)  # known as soon as it is there
        self._hooks.open()

    def _wraps(self, module: Module) -> bool:
        """Whether a module is what ``torch.compile(root)`` gave: it is called in the root's place."""
        return (stores.contents(module).get("_modules") or {}).get("_orig_mod") is self.root()

    def close(self) -> None:
        """Stop, let go of everything, and leave what was there."""
        self.leave()
        self.forget()
        self._changing, self._tallies, self._generators, self._running = {}, {}, [], []
        self._learnt = 0

    def leave(self) -> None:
        """Take the hooks off, and let go of nothing."""
        if self._hooks is not None:
            self._hooks.close()
        self._hooks = None
        compile_warning.speak(self)

    @property
    def ends(self) -> Look:
        """What an error of ours ends."""
        return self._look or self

    def fail(self, error: Exception) -> None:
        """See nothing any more."""
        self.trouble = line_of(error)
        self.close()

    def on(self) -> None:
        """See again, at the cost of two entries in a dict."""
        if self._hooks is not None and not self._hooks.is_on():
            self._hooks.on()

    def off(self) -> None:
        """Stop for a while; what was kept stays."""
        if self._hooks is not None:
            self._hooks.off()

    @property
    def is_on(self) -> bool:
        """Whether it sees."""
        return self._hooks is not None and self._hooks.is_on()

    def forget(self) -> None:
        """The step has ended: let go of all passes."""
        for one in self.passes:
            one.let_go()
        self.passes = []
        self.dropped, self._held, self._frozen, self._queued = 0, 0, False, False

    def keep(self, one: LastPass) -> None:
        """Let go of all passes but this one: theirs is another step."""
        for other in self.passes:
            if other is not one:
                other.let_go()
        self.passes = [one]

    def hold(self) -> None:
        """Keep the passes as they are, and note no more, until `forget`: one of them is wanted."""
        self._frozen = True

    @apart
    def _enter(self, module: Module, args: tuple[Any, ...]) -> None:
        if not torch.is_grad_enabled() or being_traced() or get_ident() in _busy or compat.graph_task() != -1:
            return
        if compat.is_simulated():
            return
        root = self.root()
        if root is not module:
            if root is None or not self._wraps(module):
                return
            if self._on_wrapper is not None:
                self._on_wrapper(module)
            module = root
        training = stores.contents(module).get("training")
        if not (training if isinstance(training, bool) else stores.mode(module)):
            return
        pipeline = compat.pipeline_pass()  # of the root alone: it walks the stack where pipelines are imported
        if pipeline == compat.REHEARSAL:
            return
        self.is_stage |= bool(pipeline)
        frame = id(sys._getframe(3))  # in which torch runs the root
        if self._running and self._is_nested(frame):
            return  # a root that calls itself: the outer call is the pass
        if self._on_forward is not None:
            self._on_forward()
        self.forwards += 1
        self.thread = get_ident()
        self._clocked(self._begin, module, args, frame)

    def _clocked(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Take something down, on our clock."""
        start = clock.now()
        try:
            work(*args, **kwargs)
        finally:
            self.seconds += clock.now() - start

    def _is_nested(self, frame: int) -> bool:
        """Whether the pass that began last still runs; else it ended in an exception that reached no hook."""
        thread = get_ident()
        self._running = [one for one in self._running if one.thread != thread or (one.frame != frame and callers.runs(one.frame))]
        return any(one.thread == thread for one in self._running)

    def _begin(self, module: Module, args: tuple[Any, ...], frame: int) -> None:
        self._queued = False
        if self._frozen:
            self.dropped += 1
            return
        with without_torch_function():
            found = LastPass(args, frame)
            if self._learnt < LEARNT:
                self._learn(module)
            found.random = [one.get_state() for one in self._generators]
            if self._widely or self._private or self._meter is not None:
                found.others = self._others()
            found.modes = [_autocast(name) for name in self._devices]
            if self._changing or self._tallies:
                without_autograd(self._copy_buffers, found)
        self._running.append(found)
        self.passes.append(found)
        if len(self.passes) > KEPT:
            self.passes.pop(0).let_go()
            self.dropped += 1

    def _others(self) -> list[Undo]:
        """What puts back the generators that are not torch's own."""
        wide = [states()] if self._widely or self._meter is not None else []
        return [*wide, *(Private(one).put_back for one in self._private)]

    def put_back(self, one: LastPass) -> None:
        """Set all random generators to what they were before a pass."""
        for undo in one.others:
            undo()
        for generator, state in zip(self._generators, one.random, strict=False):
            generator.set_state(state)

    def _learn(self, module: Module) -> None:
        """In the first passes: who is there, and what may change."""
        self._generators = generators()
        self._devices = ("cpu", *dict.fromkeys(one.device.type for one in self._generators[1:] if one.device.type in ("cuda", "xpu")))
        self._meter = Meter(thorough=True)
        self._tallies = {
            (id(held), name): (held, tensor, -1 if tensor is None or is_lazy(tensor) else version_of(tensor))
            for one in stores.modules(module)
            if not issubclass(type(one), compat.norms)
            for held in (stores.contents(one).get("_buffers"),)
            if isinstance(held, dict)
            for name, tensor in held.items()
        }

    def _learn_more(self, meter: Meter) -> None:
        """When such a pass has ended: what did change."""
        self._learnt += 1
        self._widely = self._widely or not {"Python's random", "numpy"}.isdisjoint(meter.used())
        for key, (held, tensor, version) in self._tallies.items():
            now = held.get(key[1])
            if now is not tensor or (now is not None and not is_lazy(now) and version_of(now) != version):
                self._changing[key] = held
        self._meter, self._tallies = None, {}

    def _copy_buffers(self, found: LastPass) -> None:
        learning = {key: held for key, (held, _, _) in self._tallies.items()}
        room = COPIED if learning else HELD
        for (_, name), held in (learning or self._changing).items():
            tensor = held.get(name)
            if tensor is None or is_lazy(tensor):
                continue
            if type(tensor) not in PLAIN or not is_there(tensor):  # it cannot be put back
                found.partly = True
                continue
            size = tensor.nbytes if tensor.layout is torch.strided else 0
            if size > room:
                found.partly = True
                continue
            room -= size
            found.buffers.append(Buffer(held, name, tensor, tensor.detach().clone()))

    @apart
    def _leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if not self._running or get_ident() in _busy:
            return
        frame, thread = id(sys._getframe(3)), get_ident()
        found = next((one for one in self._running if one.frame == frame and one.thread == thread), None)
        if found is None:
            return
        self._running.remove(found)
        self._clocked(self._end, found, kwargs, output)

    def _end(self, found: LastPass, kwargs: dict[str, Any], output: Any) -> None:
        if self._meter is not None:
            self._learn_more(self._meter)
        found.finished = True
        with without_torch_function():
            if kwargs:
                found.kwargs, found.late = kwargs, versions_of(leaves(kwargs))
            for place, (_, thing, _) in enumerate(leaves(output)):
                if not issubclass(type(thing), Tensor):
                    continue
                if place < KEPT:
                    sample = sample_of(thing)
                    if sample is not None:
                        found.samples[place] = sample
                if thing.requires_grad:
                    self._follow(found, place, thing)

    def _follow(self, found: LastPass, place: int, tensor: Tensor) -> None:
        """Wait for the gradient of an output: on the node that made it, which leaves no trace on the tensor."""
        node, number = tensor.grad_fn, tensor.output_nr
        if node is None:  # a leaf of the user's, on which nothing is hung: the node that accumulates its gradient
            with torch.enable_grad():
                made: Any = tensor.view_as(tensor).grad_fn
            node, number = made.next_functions[0][0], 0
        found.handles.append(node.register_prehook(partial(self._at_node, found, place, number)))

    @apart
    def _at_node(self, found: LastPass, place: int, number: int, gradients: tuple[Tensor | None, ...]) -> None:
        gradient = gradients[number]
        if gradient is not None:
            self._arrived(found, place, gradient)

    @apart
    def _arrived(self, found: LastPass, place: int, gradient: Tensor) -> None:
        self._clocked(self._keep, found, place, gradient)

    def _keep(self, found: LastPass, place: int, gradient: Tensor) -> None:
        found.backwards += 1
        self.arrived += 1
        found.looked, found.mixed = False, any(map(torch.is_autocast_enabled, self._devices))
        if self._on_backward is not None and not self._queued:
            self._queued = compat.after_backward(partial(self._ended, found))
        with without_torch_function():
            earlier = found.gradients.get(place)
            if earlier is None:
                size = gradient.nbytes if gradient.layout is torch.strided else 0
                if self._held + size > HELD:
                    found.beyond.add(place)
                    return
                self._held += size
            if gradient.requires_grad:  # create_graph=True
                gradient = gradient.detach()
            if earlier is not None:  # a second backward pass through the same output
                if type(gradient) is not Tensor or not (is_there(gradient) and is_there(earlier)):
                    found.beyond.add(place)
                    return
                gradient = earlier + gradient
            found.gradients[place], found.written[place] = gradient, version_of(gradient)

    @guarded  # a replay runs the model as it is
    def _ended(self, found: LastPass) -> None:
        self._queued = False
        if self._on_backward is not None:
            self._on_backward(found)


def sample_of(tensor: Tensor) -> Tensor | None:
    """Some numbers of an output, copied; None of a kind of which there is no cheap way to have some."""
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_nested or not is_there(tensor):
        return None
    if tensor.numel() <= WHOLE:
        return tensor.data.clone()
    return tensor.data.view(-1)[:: (tensor.numel() // SAMPLED) | 1].clone() if tensor.is_contiguous() else None


def _versions(args: tuple[Any, ...]) -> tuple[int, ...]:
    if len(args) == 1 and issubclass(type(args[0]), Tensor):  # nearly always
        return (version_of(args[0]),)
    return versions_of(leaves(args))


def _private(root: Module) -> list[Any]:
    """Generators that modules of the model keep for themselves."""
    return [thing for one in stores.modules(root) for thing in stores.own_values(stores.contents(one))[1] if is_private(thing)]


def _autocast(device: str) -> Autocast:
    if not torch.is_autocast_enabled(device):
        return _OFF[device]
    return Autocast(device, True, torch.get_autocast_dtype(device), torch.is_autocast_cache_enabled())
