"""One model in its two modes: the same input and random numbers in training and evaluation, with autograd on and off.

Three passes per mode, all from the same state: normal autograd, ``no_grad`` and ``inference_mode``. If nothing differs, that is
all. The second pass also serves as a repeat; if no random numbers were drawn, the third uses different ones. Any difference
there leads to separate passes that tell autograd, nondeterminism and random numbers apart; one more, in evaluation, is for
modules whose inputs already differ. Outputs are kept for one pass per mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab.comparing.divergence import Gap
from modlab.comparing.hook_probes import hooked
from modlab.comparing.input_copies import InputCopies, require_repeatable
from modlab.comparing.mode_probes import Flips, may_act
from modlab.comparing.passes import Key, Pass, Probe, first_paths, hidden_reason
from modlab.comparing.side_by_side import SideBySide
from modlab.comparing.state_changes import moves
from modlab.errors import LazyModelError, ModlabError, NotInitializedError
from modlab.inspection import marks, stores
from modlab.inspection.distributed import FSDP1, distribution_of, unwrapped
from modlab.records.comparison import GRADS, MODES, ComparisonRecord, ComparisonTable, Move, RunRecord
from modlab.records.structure import ROOT
from modlab.running.guarded import steady_line
from modlab.running.module_kinds import is_fused
from modlab.running.randomness import start_elsewhere
from modlab.running.sandbox import Sandbox, under
from modlab.running.values import arguments

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
ALONE = "The model inside DistributedDataParallel was run on this rank only: nothing was communicated."
SEVERAL = (
    "The model talks to other ranks: all of them must make this call. Each ran it equally often; nothing was repeated to find out what is "
    "random or not repeatable."
)
_NOISE = 4  # differences up to this many times the distance of two equal passes are noise


def of_model(model: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> ComparisonTable:
    """Compare a model's two modes on one input; everything is restored, even if the model raises.

    An exception in one mode is reported next to the result of the other; if both modes raise, it propagates.
    """
    require_ready(model)
    require_repeatable(args, kwargs, "six times and more")
    require_restorable(model)
    found = ModePasses(unwrapped(model), args, kwargs)
    if found.model is not model:
        found.remarks.append(ALONE)
    return found.run()


def require_restorable(model: Module) -> None:
    """Reject models whose state cannot be restored between passes."""
    if FSDP1 in distribution_of(model).kinds:
        raise ModlabError(
            "modlab.compare runs a model several times and restores it each time, but what FullyShardedDataParallel "
            "records about its parameters cannot be restored.\n"
            "  Compare the model before it is wrapped; one that is sharded by torch.distributed.fsdp.fully_shard can be compared."
        )


def require_ready(model: Module, verb: str = "modlab.compare") -> None:
    """Reject models with lazy parameters, or that were never initialized."""
    if not stores.initialized(model):
        raise NotInitializedError(stores.uninitialized_message(model))
    for path, module in first_paths(model).values():
        for name, tensor in stores.named_tensors(module):
            if is_lazy(tensor):
                raise LazyModelError(
                    f"{path or ROOT}.{name} has no shape yet: the first forward pass decides it for good, but {verb} must "
                    f"leave the model unchanged.\n  Run the model once first: model(x)"
                )


@contextmanager
def quiet(silent: bool) -> Iterator[None]:
    """Suppress the warnings that modlab causes; in a pass that only repeats another, all warnings.

    torch warns about compiled modules with global hooks.
    """
    with warnings.catch_warnings():
        if silent:
            warnings.simplefilter("ignore")
        else:
            warnings.filterwarnings("ignore", message="Using `torch.compile")
        yield


def as_written(compiled: bool) -> AbstractContextManager[Any]:
    """Run compiled modules eagerly: the many passes would recompile them until torch gives up."""
    stance: Any = getattr(torch.compiler, "set_stance", None)
    return stance("force_eager") if compiled and stance is not None else nullcontext()


def is_compiled(module: Module) -> bool:
    """Whether torch compiles calls of this module."""
    return "compiled" in marks.of_class(type(module)) or stores.contents(module).get("_compiled_call_impl") is not None


class ModePasses:
    """The passes of one comparison, and what they show."""

    def __init__(self, model: Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.model, self._args, self._kwargs = model, args, dict(kwargs)
        self.places = first_paths(model)
        self.paths = {key: path for key, (path, _) in self.places.items()}
        self._own = frozenset(id(tensor) for _, module in self.places.values() for _, tensor in stores.named_tensors(module))
        self.passes: dict[tuple[str, str], Pass] = {}  # by mode, and "normal", "no_grad", "inference_mode", "again" or "other"
        self.moved: dict[int, list[Move]] = {}
        self.acting: set[str] = set()
        self._switched: set[tuple[int, str]] = set()  # (owner, name) of what train() or eval() itself changed
        self._altered: set[int] = set()  # the owners in it, for both modes
        self._refused: set[str] = set()  # modes that the model does not support
        self._hooked = hooked(module for _, module in self.places.values())
        self._by: dict[str, str] = {}  # path of a module whose values train() or eval() changes → path of the module that changes them
        self.remarks: list[str] = []
        self._sandbox = Sandbox()
        self._restoration = self._sandbox.restoration
        self._fixed = distribution_of(model).communicates  # the same passes on all ranks, whatever each rank observes
        if self._fixed:
            self.remarks.append(SEVERAL)
        self._compiled = any(is_compiled(module) for _, module in self.places.values())
        if self._compiled:
            self.remarks.append(
                "The model is compiled but runs uncompiled here: compiled code may round differently and draw other random numbers."
            )

    def run(self) -> ComparisonTable:
        """Run all passes and build the record."""
        return self._sandbox.run(self._run_all)

    def _run_all(self) -> ComparisonTable:
        self._sandbox.add(self.model)
        self._restoration.add_arguments(thing for _, thing, _ in arguments((), self._args, self._kwargs))
        self._in_both_modes()
        pair = self._pair()
        self._attribute(pair)
        if not self._failed() and not self._fixed:
            self._flip(pair)
        return self._record(pair)

    def _in_both_modes(self) -> None:
        """Run all passes; if the first one of a mode raises, the others show whether autograd plays a part."""
        train, evaluation = MODES
        error = self._first(train)
        if error is None:
            self._repeat(train)
        other = self._first(evaluation)
        if error is not None and other is not None:
            if len(self._refused) == len(MODES):
                raise ModlabError(
                    f"modlab.compare(net) runs a model in both modes, but this {type(self.model).__name__} has none: {steady_line(error)}\n"
                    f"  An exported graph stays in its mode. To compare it with its source: modlab.compare(net, exported)(x)"
                ) from error
            if self.passes[train, "normal"].error != self.passes[evaluation, "normal"].error:
                error.add_note(f"modlab.compare: raised in training mode; in eval mode the model raises {steady_line(other)}")
            raise error
        if other is None:
            onward = self._go_on(evaluation)
            self._repeat(evaluation)
            self._note_state(evaluation, onward)
        for mode in self._failed():
            for grad in GRADS[1:]:
                self._pass(mode, grad, reference=self.passes[mode, "normal"])

    def _failed(self) -> list[str]:
        """The modes in which the model raises."""
        return [mode for mode in MODES if self.passes[mode, "normal"].error]

    def _first(self, mode: str) -> Exception | None:
        """Run the pass with which the other passes of its mode are compared; return the exception, if any."""
        error = self._pass(mode, "normal")
        if error is None:
            self._note_moves(mode)
        return error

    def _note_moves(self, mode: str) -> None:
        changes = [change for change in self._restoration.changes() if (id(change.owner), change.name) not in self._switched]
        for key, some in moves(changes, mode).items():
            self.moved.setdefault(key, []).extend(some)

    def _go_on(self, mode: str) -> Pass | None:
        """A pass from the state in which the first ended: shows whether the plain attributes it changed are read again."""
        if self._fixed or not any(move.kind == "attribute" and move.side == mode for some in self.moved.values() for move in some):
            return None
        self._pass(mode, "onward", reference=self.passes[mode, "normal"], onward=True, sources=True)
        return self.passes.pop((mode, "onward"))

    def _note_state(self, mode: str, onward: Pass | None) -> None:
        """Reclassify attributes that change as state if they affect their module's output; the rest are never read."""
        again = self.passes.get((mode, "again"), self.passes[mode, "no_grad"])
        if onward is None or again.parts_from(self.passes[mode, "normal"]):
            return
        sources = {key for key, path in self.paths.items() if path in onward.sources()}
        for key in sources & self.moved.keys():
            self.moved[key] = [replace(move, kind="state") if move.kind == "attribute" else move for move in self.moved[key]]

    def _repeat(self, mode: str) -> None:
        first = self.passes[mode, "normal"]
        self._pass(mode, "no_grad", reference=first)
        if self._fixed:
            self._pass(mode, "inference_mode", reference=first)
            return
        if self.passes[mode, "no_grad"].parts_from(first):
            self._pass(mode, "again", reference=first, sources=True)
        mixed = ""
        if not first.drew:
            self._pass(mode, "inference_mode", reference=first, elsewhere=True)
            mixed = self.passes[mode, "inference_mode"].error
        if first.drew or self.passes[mode, "inference_mode"].parts_from(first):
            self._pass(mode, "inference_mode", reference=first)
            self._other_numbers(mode, first)
            if mixed and not self.passes[mode, "inference_mode"].error:
                self._tell(mode, mixed)

    def _other_numbers(self, mode: str, first: Pass) -> None:
        """Repeat with different random numbers: any output that differs depends on them."""
        self._pass(mode, "other", reference=first, elsewhere=True, sources=True)
        source = next(iter(self.passes[mode, "other"].sources()), None)
        if source is not None and not first.drew and not self._differs(mode, "again", source):
            first.draws[source].add("a generator that is restored")

    def _tell(self, mode: str, error: str) -> None:
        self.remarks.append(f"A repeat in {mode} mode raised {error}: what is random there is not certain.")

    def _pass(
        self,
        mode: str,
        kind: str,
        *,
        reference: Pass | None = None,
        elsewhere: bool = False,
        probe: Probe | None = None,
        sources: bool = False,
        onward: bool = False,
    ) -> Exception | None:
        """Run one pass, starting from the model's original state.

        Args:
            mode: "train" or "eval".
            kind: autograd's mode, or what else is special about the pass.
            reference: the pass to compare this one with.
            elsewhere: use different random numbers.
            probe: calls some modules again.
            sources: find out in which modules' code the pass diverges from the reference.
            onward: start from the state in which the previous pass left the model.

        Returns:
            The exception that the model raised, or None.
        """
        if onward:
            for one in self._restoration.generators.values():
                one.put_back()
        else:
            self._restoration.renew()
        self._sandbox.restart()
        if elsewhere:
            start_elsewhere()
            for one in self._restoration.generators.values():
                one.start_elsewhere()
        found = Pass(
            self.paths,
            reference=reference,
            probe=probe,
            stranger=self._restoration.add,
            private=self._restoration.generators.values(),
            hooked=self._hooked,
            sources=sources,
        )
        first, raised = reference is None and probe is None, None

        def run() -> None:
            torch.clear_autocast_cache()  # weights cached by a pass without autograd would never get gradients
            self._switch(mode, look=first)
            copies = InputCopies(self._own)
            args, kwargs = copies(self._args), copies(self._kwargs)
            found.run(self.model, *args, **kwargs)

        with quiet(not first), as_written(self._compiled):
            try:
                under(kind if kind in GRADS else "normal", run)
            except Exception as error:  # noqa: BLE001 - the user's model may raise anything, and that is the result
                found.error, raised = steady_line(error), error
        found.check()
        if probe is None:
            self.passes[mode, kind] = found
        return raised

    def _switch(self, mode: str, *, look: bool) -> None:
        """Call ``train()`` or ``eval()``; changes by a module's own override (merged weights, say) are not attributed to its forward."""
        try:
            self.model.train() if mode == "train" else self.model.eval()
        except NotImplementedError:
            self._refused.add(mode)
            raise
        if look:
            self._switched = set()
            if any(_switches(module) for _, module in self.places.values()):
                self._switched = {(id(change.owner), change.name) for change in self._restoration.changes()}
                self._altered |= {key for key, _ in self._switched}

    def _pair(self) -> SideBySide:
        def noise(key: Key) -> float:
            return _NOISE * max(_relative(self.passes.get((mode, "again")), key) for mode in MODES)

        left, right = (self.passes[mode, "normal"] for mode in MODES)
        return SideBySide(left, right, {path: path for path in self.paths.values()}, noise=noise)

    def _attribute(self, pair: SideBySide) -> None:
        """Where one module's train() or eval() changes what another holds (merges weights), the former depends on the mode."""
        by_path = {path: module for path, module in self.places.values()}
        for key, (path, module) in self.places.items():
            if path not in pair.starting or key not in self._altered or _switches(module):
                continue
            above = path
            while above and not (above in by_path and above != path and _switches(by_path[above])):
                above = above.rpartition(".")[0]
            if above == path or not _switches(by_path[above]):
                continue
            pair.starting.discard(path)
            pair.starting.add(above)
            pair.first = above if pair.first == path else pair.first
            self.acting.add(above)
            self._by[path] = above

    def _flip(self, pair: SideBySide) -> None:
        """Call modules with differing inputs again, if nothing else shows whether they depend on the mode."""
        tried = set()
        for key, (path, module) in self.places.items():
            gap = pair.of_inputs(path)
            if gap is not None and gap.equal is False and may_act(type(module)) and not self._differently(key, path):
                tried.add(path)
        if tried:
            flips = Flips(frozenset(tried), self._own)
            self._pass("eval", "flips", probe=flips)
            self.acting |= flips.acting

    def _differently(self, key: int, path: str) -> bool:
        """Whether a module draws random numbers or changes state in only one of the modes."""
        if self._failed():
            return False  # one of the passes ended early
        drawn = [bool(self.passes[mode, "normal"].draws.get(path)) for mode in MODES]
        return drawn[0] != drawn[1] or any(sides != set(MODES) for sides in self._sides(key).values())

    def _sides(self, key: int) -> dict[str, set[str]]:
        """The modes in which each buffer or parameter of a module changes."""
        found: dict[str, set[str]] = {}
        for move in self.moved.get(key, ()):
            if move.kind != "attribute":
                found.setdefault(move.name, set()).add(move.side)
        return found

    def _record(self, pair: SideBySide) -> ComparisonTable:
        rows = tuple(self._row(key, path, module, pair) for key, (path, module) in self.places.items())
        for (mode, kind), one in self.passes.items():
            if one.error and kind not in GRADS and mode not in self._failed():
                self._tell(mode, one.error)
        lost = self._restoration.lost()
        if lost:
            self.remarks.append(
                f"{lost} parameters were changed by the model's own forward and could not be restored: they are too large to copy."
            )
        sampled = sum(one.shelf.sampled for one in self.passes.values() if one.shelf is not None)
        if sampled:
            self.remarks.append(
                f"{sampled} tensors were too large to keep whole: whether they are equal is known for every bit, but how much they "
                f"differ only for a sample of about 4,000 elements each."
            )
        nan = next((path for mode in MODES if (path := self.passes[mode, "normal"].first_nan()) is not None), None)
        return ComparisonTable(
            type(self.model).__name__,
            MODES,
            rows,
            rows[0].runs,
            pair.first,
            nan=nan,
            exact=pair.exact and not sampled,
            remarks=tuple(self.remarks),
        )

    def _row(self, key: int, path: str, module: Module, pair: SideBySide) -> ComparisonRecord:
        train, evaluation = (self.passes[mode, "normal"] for mode in MODES)
        drawn = tuple((mode, tuple(sorted(names))) for mode in MODES if (names := self.passes[mode, "normal"].draws.get(path)))
        unsteady = tuple(mode for mode in MODES if self._differs(mode, "again", path))
        starts, switches = path in pair.starting, path in pair.switching
        in_eval = bool(evaluation.draws.get(path)) or any("eval" in sides for sides in self._sides(key).values())
        return ComparisonRecord(
            path,
            type(module).__name__,
            marks.category(type(module)),
            called_left=train.counts[path],
            called_right=evaluation.counts[path],
            **measured(pair.of_outputs(path), pair.of_inputs(path)),
            starts_here=starts,
            random=tuple(mode for mode in MODES if mode not in unsteady and self._differs(mode, "other", path)),
            drawn=drawn,
            unsteady=unsteady,
            unsteady_here=any(path in self._sources(mode) for mode in unsteady),
            acts_by_mode=(starts and not unsteady) or switches or path in self.acting or self._differently(key, path),
            switches_grad=switches,
            raises=tuple(mode for mode in self._failed() if self.passes[mode, "normal"].raised == path),
            starts_by=pair.by.get(path, "") if starts else "",
            ignores_mode=in_eval or any(stranger.training for stranger in evaluation.strangers.get(path, ())),
            moved=tuple(self.moved.get(key, ())),
            holds_by_mode=path in self._by,
            fused=any(self._skipped(mode, path) for mode in MODES) and self._is_fused(path),
            runs=tuple(self._run(mode, grad, path) for grad in GRADS for mode in MODES),
            left=train.stats.get(path),
            right=evaluation.stats.get(path),
            notes=tuple(self._notes(path, module, pair)),
        )

    def _sources(self, mode: str) -> list[str]:
        """Paths where two identical passes diverge."""
        one = self.passes.get((mode, "again"))
        return [] if one is None else one.sources()

    def _differs(self, mode: str, kind: str, path: str) -> bool:
        one = self.passes.get((mode, kind))
        gap = None if one is None else one.gap(path)
        return gap is not None and gap.equal is False

    def _run(self, mode: str, grad: str, path: str) -> RunRecord:
        one = self.passes[mode, grad]
        calls = list(one.of(path))
        gap = Gap(max_abs=0.0) if grad == "normal" else one.gap(path)
        flags = [call.requires_grad for call in calls if call.requires_grad is not None]
        stats = one.stats.get(path)
        return RunRecord(
            mode,
            grad,
            len(calls),
            calls[0].training if calls else None,
            any(flags) if flags else None,
            stats.l2 if stats is not None and stats.measured else None,
            gap.max_abs if gap is not None and calls else None,
            one.error,
        )

    def _notes(self, path: str, module: Module, pair: SideBySide) -> Iterator[str]:
        train, evaluation = (self.passes[mode, "normal"] for mode in MODES)
        yield from (gap.notes if (gap := pair.of_outputs(path)) is not None else ())
        if path in self._by:
            yield f"has different values in each mode: train() and eval() of {self._by[path] or 'the model'} switch them"
        for one, wanted, words in (
            (train, True, "stays in eval mode under train()"),
            (evaluation, False, "stays in training mode under eval()"),
        ):
            if any(call.training is not None and call.training is not wanted for call in one.of(path)):
                yield words
        hook = evaluation.drawing.get(path, train.drawing.get(path))
        if hook is not None:
            yield f"its {hook} draws random numbers"
        for stranger in evaluation.strangers.get(path, ()):
            left = ", so eval() does not reach it" if stranger.training else ""
            yield f"calls a {stranger.type} that is not registered{left}"
        if issubclass(type(module), _BATCH_NORMS) and (stores.contents(module).get("_buffers") or {}).get("running_mean") is None:
            yield "keeps no running statistics, so it uses the batch's own in both modes"
        for mode in MODES:
            if skipped := self._skipped(mode, path):
                when = f"in {mode} mode {'without autograd' if len(skipped) == 2 else f'under {skipped[0]}'}"
                yield f"a fused path skips it {when}" if self._is_fused(path) else f"not called {when}"
        if not train.counts[path] and not evaluation.counts[path]:
            yield hidden_reason(path, module, self.places.values(), train.counts).text

    def _skipped(self, mode: str, path: str) -> list[str]:
        """For a module that runs under normal autograd: the other autograd modes in which it does not run."""
        if not self.passes[mode, "normal"].counts[path]:
            return []
        return [grad for grad in GRADS[1:] if not self.passes[mode, grad].error and not self.passes[mode, grad].counts[path]]

    def _is_fused(self, path: str) -> bool:
        """Whether a module around it may run as one fused kernel."""
        return any(
            is_fused(module) for name, module in self.places.values() if name != path and path.startswith(f"{name}." if name else "")
        )


def _switches(module: Module) -> bool:
    """Whether ``train()``, ``eval()`` or the flag differs from torch's own."""
    held = object.__getattribute__(module, "__dict__")
    return "training" not in held or any(
        name in held or getattr(type(module), name, None) is not getattr(Module, name) for name in ("train", "eval")
    )


def _relative(one: Pass | None, key: Key) -> float:
    call = None if one is None else one.calls.get(key)
    gap = None if call is None else call.gap
    if gap is None or gap.equal is not False:
        return 0.0
    return gap.relative or 0.0


def measured(outputs: Gap | None, inputs: Gap | None) -> dict[str, Any]:
    """The fields of a record that hold distances."""
    found: dict[str, Any] = {}
    if outputs is not None:
        found = {
            "max_abs": outputs.max_abs,
            "relative_l2": outputs.relative,
            "cosine": outputs.cosine,
            "changed": outputs.changed,
            "count": outputs.compared,
            "equal": outputs.equal,
            "sampled": outputs.sampled,
            "alone": outputs.alone,
            "reason": outputs.reason,
        }
    if inputs is not None:
        found |= {"inputs_max_abs": inputs.max_abs, "inputs_equal": inputs.equal}
    return found
