"""The birthplace of a NaN: the last training pass is run again under a trace, with what `LastStep` kept of it, and put back.

It runs in the optimizer's pre-hook, where the weights are still those that the pass was run with. The model's own hooks run once
more as well; what they write outside of the model stays written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from modlab.comparing.input_copies import InputCopies
from modlab.comparing.modes import as_written, quiet
from modlab.compat import tensor_hooks, without_modes, without_torch_function
from modlab.inspection import stores
from modlab.inspection.distributed import FSDP2, distribution_of
from modlab.inspection.tensor_difference import equal_bits
from modlab.records.finding import Fact, Remedy
from modlab.records.trace import Event, TraceRecord
from modlab.running.guarded import afterwards
from modlab.running.sandbox import Sandbox
from modlab.running.tensor_hooks import is_hooked
from modlab.running.values import argument_names, arguments, leaves
from modlab.statistics.memory import local
from modlab.tracing.event_log import one_line
from modlab.tracing.recorder import Recorder
from modlab.tracing.tensor_ids import version_of, versions_of
from modlab.tracing.trace_index import TraceIndex
from modlab.watching.alerts import DATA
from modlab.watching.finiteness import is_plain, kind_of
from modlab.watching.last_step import LastPass, LastStep, sample_of, unseen
from modlab.watching.nan_in_backward import NaNInBackward, Turn
from modlab.watching.nan_origin import Birth, Cause, NaNOrigins, counts, explain, is_bad, kind_of_value, overflow, word_of

_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}


def birthplace(model: Module, memory: LastStep) -> Birth:
    """Run the training passes since the last step again until one gives what is not finite, and tell where that begins.

    Everything is put back bit for bit: weights, buffers, the very tensors in ``.grad``, random generators, flags, versions.
    Nothing is raised: what goes wrong is among the facts.

    Args:
        model: the root of `memory`; its weights are those that the passes were run with.
        memory: what was kept of them; kept as it is.
    """
    try:
        with unseen(), quiet(True), torch.inference_mode(False), torch.enable_grad(), torch.autograd.set_detect_anomaly(False):
            return _Search(model, memory).birth()
    except Exception as error:  # noqa: BLE001 - the training goes on
        return _nowhere("failed", error=one_line(error))


class _Search:
    """One look for a birthplace."""

    def __init__(self, model: Module, memory: LastStep) -> None:
        self._memory = memory
        self._model, self._parallel = _unwrapped(model)
        self._wrapped = model is not self._model
        self._index = TraceIndex(self._model)
        self._own = frozenset(id(tensor) for one in stores.modules(self._model) for _, tensor in stores.named_tensors(one))
        self._compiled = memory.compiled or bool(self._index.compiled())
        self._doubts: list[str] = []
        self._other = False  # the pass that was run is another one than the pass that was wanted

    def birth(self) -> Birth:
        weights = self._weights()
        if weights is not None:
            return self._batch(weights)
        spread = distribution_of(self._model)
        if spread.communicates:
            return _nowhere("other ranks", kinds=tuple(spread.kinds), world=spread.world)
        passes = [one for one in self._memory.passes if one.finished]
        if not passes:
            return _nowhere("no pass, compiled" if self._compiled else "no pass")
        return self._doubted(self._among(passes))

    def _doubted(self, found: Birth) -> Birth:
        """With the doubts."""
        if not self._doubts:
            return replace(found, exact=True)
        doubts: dict[str, Fact] = {"doubts": tuple(dict.fromkeys(self._doubts))}
        dropped: dict[str, Fact] = {"dropped": self._memory.dropped} if "dropped" in self._doubts else {}
        return replace(found, exact=False, facts={**found.facts, **doubts, **dropped})

    def _weights(self) -> Birth | None:
        """A parameter that was not finite before; and whether all others that are trained were."""
        with _aside():
            parts = [(one, local(one.tensor).detach()) for one in self._index.parameters]
            bad = [(one, part, kind) for one, part in parts if is_plain(part) and (kind := kind_of(part))]
            if not bad:
                return None
            one, part, kind = bad[0]
            alone = len(bad) == 1 and sum(other.tensor.requires_grad for other, _ in parts) > 1
            facts = {"birth": "weights", **_counts(part, kind), "part": part.shape != one.tensor.shape, "alone": alone}
            return Birth("the weights", one.path, kind, facts)

    def _batch(self, weights: Birth) -> Birth:
        """Where weights are spoilt, what this step was given may hold NaN as well, and tell why."""
        names = argument_names(type(self._model))
        with _aside():
            for one in self._memory.passes:
                same = versions_of(leaves(one.args)) == one.versions  # else the model may have written NaN into it
                given = arguments(names, one.args) if same else []
                given += [leaf for leaf in arguments((), (), one.kwargs) if _is_untouched(leaf[1])]
                for name, thing, _ in given:
                    if issubclass(type(thing), Tensor) and is_plain(thing) and kind_of(thing.detach()) == "nan":
                        facts = {"birth": "batch", **_counts(thing.detach(), "nan"), "spoilt": weights.path}
                        return Birth("the batch", name, "nan", facts, (DATA,))
        return weights

    def _among(self, passes: Sequence[LastPass]) -> Birth:
        with _aside():
            spoilt = self._spoilt()
        sandbox = Sandbox()
        found, self._doubts = sandbox.run(self._all_again, passes, sandbox)
        trace = found.trace
        if found.where or trace is None:
            return found
        if self._memory.dropped:
            self._doubts.append("dropped")
        if spoilt is not None and not self._doubts and not trace.error:
            return self._elsewhere(spoilt, len(passes), trace)
        self._doubts = self._doubts or ["changes"]
        return replace(_nowhere("raises", error=trace.error) if trace.error else _nowhere("finite"), trace=trace)

    def _all_again(self, passes: Sequence[LastPass], sandbox: Sandbox) -> tuple[Birth, list[str]]:
        """The first pass in which a birth has a place, else the last one; and the doubts about it, or of all."""
        sandbox.add(self._model)
        found, doubts = Birth(), list[str]()
        for place, one in enumerate(passes):
            if place:
                sandbox.restoration.renew()
            self._doubts = []
            found = self._again(one)
            if found.where:
                return found, self._doubts
            doubts += self._doubts
        return found, doubts

    def _spoilt(self) -> tuple[str, str, str] | None:
        """The first parameter whose gradient is not finite as it is there: its path, "nan" or "inf", and the dtype."""
        for one in self._index.parameters:
            gradient = one.tensor.grad if one.tensor.is_leaf else None
            if gradient is not None and is_plain(gradient) and (kind := kind_of(gradient)):
                return one.path, kind, _named(gradient.dtype)
        return None

    def _elsewhere(self, spoilt: tuple[str, str, str], passes: int, trace: TraceRecord) -> Birth:
        """Each pass is the same pass, and all it gives is finite."""
        path, kind, dtype = spoilt
        if passes > 1:
            return Birth(
                "backward",
                path,
                kind,
                {"birth": "sum of passes", "passes": passes},
                _scaled(kind, dtype)[1],
                trace=trace,
            )
        return Birth("backward", path, kind, {"birth": "elsewhere"}, (Remedy("look after backward"),), trace=trace)

    def _is_hooked(self, path: str) -> bool:
        return any(one.path == path and is_hooked(one.tensor) for one in self._index.parameters)

    def _again(self, one: LastPass) -> Birth:
        """Run one pass; a birth without a place if all is finite."""
        self._doubt(one)
        with _aside():
            _put_buffers(one)
            copies = InputCopies(self._own)
            args, kwargs = copies(one.args), copies(one.kwargs)
        ambient = any(torch.is_autocast_enabled(mode.device) for mode in one.modes)
        recorder = Recorder(self._model, steps=False)
        backward = NaNInBackward(self._index.paths)

        def run() -> Birth | None:
            backward.open()
            with _autocast(one, ambient):
                output = self._model(*args, **kwargs)
            return self._look(one, recorder, backward, output, (args, kwargs))

        self._memory.put_back(one)
        with as_written(self._compiled):
            found, record = recorder.run(lambda: afterwards(backward.close, run))
        return replace(found or Birth(), trace=record)

    def _doubt(self, one: LastPass) -> None:
        """What may make the pass another one."""
        with _aside():
            given, named = versions_of(leaves(one.args)), versions_of(leaves(one.kwargs))
            if given != one.versions or (one.kwargs and named != one.late):
                self._doubts.append("inputs changed")
            if any(version_of(gradient) != one.written.get(place) for place, gradient in one.gradients.items()):
                self._doubts.append("gradient changed")
        if one.partly:
            self._doubts.append("buffers not kept")
        if self._compiled:
            self._doubts.append("compiled")
        if not stores.mode(self._model):
            self._doubts.append("in evaluation mode")

    def _look(self, one: LastPass, recorder: Recorder, backward: NaNInBackward, output: Any, given: Any) -> Birth | None:
        with _aside():
            outputs = [(place, thing) for place, (_, thing, _) in enumerate(leaves(output)) if issubclass(type(thing), Tensor)]
            self._compare(one, dict(outputs))
            if any(is_plain(tensor) and kind_of(tensor.detach()) for _, tensor in outputs):
                found = _of_outputs(recorder.record().events)
                if found is not None:
                    return found
            for gradient in one.gradients.values():
                kind = kind_of(gradient) if is_plain(gradient) else ""
                if kind:  # of another pass it is not known whether its outputs were finite
                    return None if self._other else _of_loss(gradient, kind)
            pairs = [(tensor, one.gradients[place]) for place, tensor in outputs if tensor.requires_grad and place in one.gradients]
            pairs = [(tensor, gradient) for tensor, gradient in pairs if tensor.shape == gradient.shape]
            if one.beyond:
                self._doubts.append("gradients not kept")
            del outputs
        if not pairs:
            return None
        with _autocast(one, True, on=one.mixed):
            return self._backward(pairs, recorder, backward, given)

    def _compare(self, one: LastPass, outputs: dict[int, Tensor]) -> None:
        """Whether the outputs are the same as then, by the numbers that were kept."""
        self._other = False
        for place, sample in one.samples.items():
            now = sample_of(outputs[place]) if place in outputs else None
            if now is not None and now.dtype is sample.dtype and equal_bits(sample, now):
                continue
            alike = now is not None and now.shape == sample.shape and torch.allclose(now, sample.to(now.dtype), 1e-3, 1e-5, equal_nan=True)
            self._other = not alike
            self._doubts.append("rounded otherwise" if alike else "other outputs")
            return

    def _backward(self, pairs: list[tuple[Tensor, Tensor]], recorder: Recorder, backward: NaNInBackward, given: Any) -> Birth | None:
        outputs, gradients = [tensor for tensor, _ in pairs], [gradient for _, gradient in pairs]
        wanted = [(one.path, one.tensor) for one in self._index.parameters if one.tensor.requires_grad]
        with _aside():
            asked = [
                (name, thing)
                for name, thing, _ in leaves(given)
                if issubclass(type(thing), Tensor) and thing.requires_grad and id(thing) not in self._own
            ]
        if backward.again:
            if self._parallel or any(tensor_hooks(tensor) for _, tensor in wanted):
                self._doubts.append("reentrant")
                return None
            torch.autograd.backward(outputs, gradients)
            came = [(path, tensor.grad) for path, tensor in wanted]
            given_back = zip((tensor for _, tensor in wanted), (gradient for _, gradient in came), strict=True)
        else:
            targets = [*wanted, *asked]
            if not targets:
                return None
            answer = torch.autograd.grad(outputs, [tensor for _, tensor in targets], gradients, allow_unused=True)
            came = [(path, gradient) for (path, _), gradient in zip(wanted, answer, strict=False)]
            given_back = zip((tensor for _, tensor in targets), answer, strict=True)
        with _aside():
            parts = [(tensor, local(gradient)) for tensor, gradient in given_back if gradient is not None]
            bad = [tensor for tensor, gradient in parts if is_plain(gradient) and kind_of(gradient)]
        turn = backward.turn(bad)
        if turn is not None:
            return _of_turn(turn, recorder.record().events)
        arrival = _arrival(recorder.record().events) if bad and not backward.whole else None
        if arrival is not None:
            return arrival
        with _aside():
            for path, gradient in came:
                if gradient is not None and is_plain(gradient) and (kind := kind_of(gradient)):
                    count = _counts(gradient, kind)
                    if kind == "nan" and self._is_hooked(path):  # finite numbers add up to infinity, and never to NaN
                        return _of_hook(path, kind, count)
                    return Birth("backward", path, kind, {"birth": "sum", **count}, _scaled(kind, _named(gradient.dtype))[1])
        if FSDP2 in distribution_of(self._model).kinds:  # the pass is made with other tensors than the parameters
            self._doubts.append("FSDP2")
        return None


def _is_untouched(thing: Any) -> bool:
    """Whether a tensor is as it was made: what was given by name is counted when the pass has ended."""
    return issubclass(type(thing), Tensor) and version_of(thing) == 0


def _unwrapped(model: Module) -> tuple[Module, bool]:
    """The model inside of what runs it elsewhere or compiled; whether other processes train along."""
    parallel = False
    while True:
        names = [base.__name__ for base in type(model).__mro__ if base.__module__.startswith("torch.")]
        name = next((name for name in names if name in _WRAPPERS), "")
        inner = (stores.contents(model).get("_modules") or {}).get(_WRAPPERS.get(name, ""))
        if inner is None:
            return model, parallel
        model, parallel = inner, parallel or name == "DistributedDataParallel"


@contextmanager
def _aside() -> Iterator[None]:
    """What modlab does itself, which no mode of the user's and no trace sees."""
    with without_torch_function(), without_modes():
        yield


@contextmanager
def _autocast(one: LastPass, ambient: bool, *, on: bool = True) -> Iterator[None]:
    """Autocast as it was, or off. Casts of weights are not remembered where the user's own autocast would meet them."""
    with ExitStack() as stack:
        for mode in one.modes:
            cache = mode.cache and not ambient
            stack.enter_context(torch.autocast(mode.device, dtype=mode.dtype, enabled=on and mode.enabled, cache_enabled=cache))
        yield


def _put_buffers(one: LastPass) -> None:
    """As they were before the pass; what they are now has been taken down."""
    with torch.no_grad():
        for buffer in one.buffers:
            if buffer.store.get(buffer.name) is buffer.tensor and buffer.tensor.shape == buffer.copy.shape:
                buffer.tensor.copy_(buffer.copy)
            else:
                buffer.store[buffer.name] = buffer.copy.clone()


def _nowhere(birth: str, **facts: Fact) -> Birth:
    """That nothing was found, and why."""
    return Birth(facts={"birth": birth, **facts}, exact=False)


def _of_outputs(events: Sequence[Event]) -> Birth | None:
    root = next((event for event in events if event.kind == "module" and event.path == ""), None)
    return None if root is None else NaNOrigins(events).of_outputs(root)


def _of_loss(gradient: Tensor, kind: str) -> Birth:
    cause, fixes = _scaled(kind, _named(gradient.dtype))
    return Birth("the loss", "", kind, {"birth": "loss", **_counts(gradient, kind), **cause}, fixes or (Remedy("look at the loss"),))


def _of_turn(turn: Turn, events: Sequence[Event]) -> Birth:
    path, scaled = turn.path or "", _scaled(turn.kind, turn.dtype)
    count: dict[str, Fact] = {"bad": turn.bad, "numbers": turn.size}
    if turn.hook:
        facts: dict[str, Fact] = {"birth": "hook", "of a module": bool(turn.node), **count}
        return Birth("backward", path, turn.kind, facts, (Remedy("hook"),), _call(events, turn.path))
    if not turn.node:
        return Birth("backward", path, turn.kind, {"birth": "sum inside", **count}, scaled[1])
    word = _word(turn.node)
    event = next((one for one in events if one.kind == "function" and one.path == turn.path and _same(word_of(one.name), word)), None)
    cause, fixes = scaled if scaled[1] else explain(word, () if event is None else event.inputs, None, forward=False)
    name, at, index = ("", "", _call(events, turn.path)) if event is None else (event.name, event.where, event.index)
    facts = {"birth": "node", "node": turn.node, "name": name, "at": at, **count, **cause}
    return Birth("backward", path, turn.kind, facts, fixes, index)


def _of_hook(path: str, kind: str, count: Mapping[str, Fact]) -> Birth:
    """Of a parameter: what arrives there is finite."""
    facts: dict[str, Fact] = {"birth": "hook", "of a module": False, "of a parameter": True, **count}
    return Birth("backward", path, kind, facts, (Remedy("hook"),))


def _arrival(events: Sequence[Event]) -> Birth | None:
    """Where the graph is too large to be followed node by node: the first module at whose output a gradient arrives that is not finite."""
    for event in events:
        value = next(filter(is_bad, event.inputs), None) if event.kind == "gradient" else None
        if value is not None and event.path is not None:
            facts = {"birth": "arrives", **counts(value)}
            return Birth("backward", event.path, kind_of_value(value), facts, event=_call(events, event.path))
    return None


def _call(events: Sequence[Event], path: str | None) -> int:
    return next((event.index for event in events if event.kind == "module" and event.path == path), -1)


def _word(node: str) -> str:
    return node.partition("Backward")[0].lower()


def _same(function: str, node: str) -> bool:
    name = function.replace("_", "")
    return bool(name) and (name == node or (len(name) > 2 and (name in node or node in name)))


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _scaled(kind: str, dtype: str) -> Cause:
    """Why a gradient is infinite in float16: a scale of the loss is tried out."""
    return overflow(dtype, Remedy("loss scale")) if kind == "inf" and dtype == "float16" else ({}, ())


def _counts(tensor: Tensor, kind: str) -> dict[str, Fact]:
    """How many numbers are NaN, or infinite; and of how many."""
    bad = int(torch.isnan(tensor).sum()) if kind == "nan" else tensor.numel() - int(torch.isfinite(tensor).sum())
    return {"bad": bad, "numbers": tensor.numel()}
