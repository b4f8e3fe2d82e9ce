"""Duplicates of a model and their outputs: a copy that loads the state_dict."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.diagnosing import batches, gaps
from modlab.diagnosing.graph_leaves import leaves
from modlab.diagnosing.outcomes import NotRunError, record
from modlab.diagnosing.trials import Bench
from modlab.inspection import stores
from modlab.inspection.findings.subject import ModuleSite, Subject
from modlab.records.finding import ExperimentRecord, Remedy
from modlab.running.guarded import steady_line
from modlab.running.restoration import Change, Restoration
from modlab.statistics.memory import NoValuesError, deepcopied, is_there
from modlab.statistics.memory import copied as copy_of


def copied(bench: Bench) -> Module:
    """A copy of the model, including its hooks."""
    for site in bench.subject.sites:
        for name, value in site.held.items() if type(site.held) is dict else ():
            if issubclass(type(value), Tensor) and value.grad_fn is not None:
                site.held[name] = value.detach()  # computed by a utility before each pass; only leaves can be copied
    try:
        return deepcopied(bench.model)
    except NoValuesError as reason:
        raise NotRunError("no copy", tensor=True, error=str(reason)) from None
    except Exception as error:  # noqa: BLE001 - anything in the model may refuse in its own way
        raise NotRunError("no copy", tensor=False, error=steady_line(error)) from None


def trained(bench: Bench) -> Module:
    """What may be trained: a copy; or, if the loss reads from the model itself, the model with copies of its parameters in their places.

    Call it inside of `Bench.kept`, which puts the model's own parameters back.
    """
    other = copied(bench)
    if not reads_the_model(bench, other):
        return other
    exchanged(bench)
    return bench.model


def exchanged(bench: Bench) -> dict[int, nn.Parameter]:
    """Put copies of the model's parameters in their places, inside of `Bench.kept`; by the identity of its own."""
    copies: dict[int, nn.Parameter] = {}
    for site in bench.subject.sites:
        for name, one in [*site.own("_parameters").items()]:
            if one is not None:
                copies.setdefault(id(one), nn.Parameter(copy_of(one.detach()), one.requires_grad))
                setattr(site.module, name, copies[id(one)])
    return copies


def reads_the_model(bench: Bench, other: Module) -> bool:
    """Whether the loss of a copy's output needs the model, too: an attribute that its forward has set, or its parameters."""
    if any(issubclass(type(site.module), torch.jit.ScriptModule) for site in bench.subject.sites):
        return False  # its parameters are no objects that stay, by which one could tell
    marked = _marked(bench)
    try:
        value = bench.value(bench.output(other))
    except Exception:  # noqa: BLE001 - of the model itself it can be computed
        return True
    finally:
        kept = [held[name] for held, name, _ in marked]
        for held, name, tensor in marked:
            held[name] = tensor
    reached = leaves(value) if value.requires_grad else set()
    return bool(reached & {id(one) for one in (*bench.model.parameters(), *kept)})


def _marked(bench: Bench) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Have the tensors that forward once left on the model ask for a gradient, so that it shows whether the loss reads them."""
    found = []
    for site in bench.subject.sites:
        for name, value in [*site.held.items()] if type(site.held) is dict else ():
            if issubclass(type(value), Tensor) and value.is_floating_point() and is_there(value):
                found.append((site.held, name, value))
                site.held[name] = value.detach().requires_grad_()
    return found


def round_trip(bench: Bench) -> ExperimentRecord:
    """A trained copy with all its weights overwritten gives the same output once it has loaded the state_dict."""
    bench.evaluate(bench.model)
    other, suspects = _reloaded(bench)
    one, now = _outputs(bench), _outputs(bench, other)
    gap = gaps.gap(one, now)
    if _alike(one, now):
        return record("round trip", "passed", "loads" if gap is None else "loads but for rounding")
    numbers: dict[str, Any] = {} if gap is None else {"max_abs": gap}
    guilty = _guilty(bench, other, suspects)
    moved = all(one.moved for one in guilty)
    names = tuple(one.name for one in guilty if one.moved is moved)
    if not names:
        return record(
            "round trip", "failed", "something not saved", Remedy(code="modlab.state(model)  # what is saved, and what is not"), **numbers
        )
    kind, fix = (
        ("state not saved", Remedy("keep in a buffer")) if moved else ("parameter not saved", Remedy(code="list(model.state_dict())"))
    )
    more: dict[str, Any] = {"places": names} if len(names) > 1 else {}
    return record("round trip", "failed", kind, fix, path=names[0], more=len(names) - 1, **more, **numbers)


_TRIED = 40  # suspects


class Suspect(NamedTuple):
    """Something in the copy that differs from the model, and that the state_dict does not restore.

    Attributes:
        name: its dotted name.
        put_back: makes it the same as in the model.
        moved: whether a pass in training mode changed it; otherwise it is a hidden parameter that was overwritten.
    """

    name: str
    put_back: Callable[[], None]
    moved: bool


def _reloaded(bench: Bench) -> tuple[Module, list[Suspect]]:
    """The copy after a pass in training mode, overwriting and loading, and what may differ in it."""
    other = copied(bench)
    before = Restoration()
    before.add(other)
    try:
        other.train()
        bench.outputs(other)
        bench.evaluate(other)
        hidden = _loaded(bench, other)
    except Exception:  # noqa: BLE001 - a batch of one, or a buffer of a different shape now: skip that pass
        other = copied(bench)
        return other, _loaded(bench, other)
    places = Subject(other).by_module
    return other, hidden + [
        _moved(places[id(one.owner)], one) for one in before.changes() if id(one.owner) in places and not _is_saved(one)
    ]


def _loaded(bench: Bench, other: Module) -> list[Suspect]:
    hidden = _overwrite(Subject(other))
    other.load_state_dict(bench.model.state_dict())
    return hidden


def _is_saved(change: Change) -> bool:
    transient = stores.contents(change.owner).get("_non_persistent_buffers_set") or ()
    return change.kind == "parameter" or (change.kind == "buffer" and change.name not in transient)


def _moved(site: ModuleSite, change: Change) -> Suspect:
    held = site.held["_buffers"] if change.kind == "buffer" else site.held
    return Suspect(_joined(site, change.name), partial(held.__setitem__, change.name, change.before), True)


def _outputs(bench: Bench, model: Module | None = None) -> list[Tensor]:
    return [copy_of(tensor.detach()) for tensor in batches.tensors(bench.steadily(model=model))]


def _guilty(bench: Bench, other: Module, suspects: list[Suspect]) -> list[Suspect]:
    """The suspects that change the output, found by restoring one at a time; empty if the output still differs after all."""
    found, last = [], _outputs(bench, other)
    for suspect in suspects[:_TRIED]:
        suspect.put_back()
        now = _outputs(bench, other)
        if not _alike(last, now):
            found.append(suspect)
            last = now
    return found if _alike(_outputs(bench), last) else []


def _alike(one: list[Tensor], other: list[Tensor]) -> bool:
    gap = gaps.gap(one, other)
    return gap is None or gap <= gaps.ROUNDING * gaps.scale(one)


def _overwrite(subject: Subject) -> list[Suspect]:
    """Overwrite everything that is saved, and hidden parameters, which are returned."""
    hidden = []
    with torch.no_grad():
        for site in subject.sites:
            transient = site.held.get("_non_persistent_buffers_set") or ()
            for name, tensor in stores.named_tensors(site.module):
                if name not in transient:
                    _other_numbers(tensor)
        for site in subject.suspicious:
            for place, tensor, *_ in subject.finder.tensors(site.module):
                if issubclass(type(tensor), nn.Parameter) and is_there(tensor):
                    hidden.append(Suspect(_joined(site, place), partial(setattr, tensor, "data", copy_of(tensor)), False))
                    _other_numbers(tensor)
    return hidden


def _joined(site: ModuleSite, name: str) -> str:
    return f"{site.path}.{name}" if site.parent else name


def _other_numbers(tensor: Tensor) -> None:
    if tensor.is_floating_point() and tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized) and is_there(tensor):
        tensor.data = tensor.detach() * 0.5 + 0.25
