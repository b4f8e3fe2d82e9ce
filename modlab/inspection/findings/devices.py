"""Tensors on several devices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from modlab import format
from modlab.inspection.findings.grouping import FindingGroup, cover
from modlab.inspection.findings.optimizer import memberships
from modlab.inspection.findings.subject import Held, Subject
from modlab.records.finding import FindingRecord


def mixed(subject: Subject) -> Iterator[FindingRecord]:
    """A model in parts on several devices, or still partly without values."""
    counted = [held for held in subject.tensors if _counts(held)]
    devices: dict[str, list[Held]] = {}
    for held in counted:
        devices.setdefault(str(held.tensor.device), []).append(held)
    if len(devices) < 2:
        return
    main = max(devices, key=lambda name: (name != "meta", len(devices[name])))
    spread = "hf_device_map" in subject.sites[0].held
    for name, members in devices.items():
        if name == main:
            continue
        for group in cover(members, counted, "tensor"):
            if name == "meta":
                yield FindingRecord(
                    group.path,
                    group.site.path,
                    "no values yet",
                    "broken",
                    group.words,
                    f"{group.verb('is', 'are')} on the meta device and {group.verb('has', 'have')} no values; the rest is on {main}",
                    "Meta tensors have a shape and nothing else: the first operation on them fails, or gives meta tensors.",
                    _giving(group, f"to_empty(device={main!r})"),
                    group.places,
                    advice="Then load or initialise its values.",
                    extent=group.extent,
                )
                continue
            yield FindingRecord(
                group.path,
                group.site.path,
                "on another device",
                "note" if spread else "careful",
                group.words,
                f"{group.verb('is', 'are')} on {name}, and most of the model ({format.plural(len(devices[main]), 'tensor')}) is on {main}",
                "An operation that takes tensors of two devices fails. Where forward moves its input from part to part, this is meant.",
                f"model.to({main!r})",
                group.places,
                extent=group.extent,
            )


def _giving(group: FindingGroup, call: str) -> str:
    """The call for the modules of the group, and for no others, whose values it would take."""
    code = group.code.rpartition(".")[0] if group.code.endswith((".weight", ".bias")) else group.code
    return f"{code}.{call}" if code else group.each(call)


def _counts(held: Held) -> bool:
    """Numbers of no dimension on the CPU go together with any device."""
    return held.tensor.dim() > 0 if not torch.nn.parameter.is_lazy(held.tensor) else False


def states(subject: Subject) -> Iterator[FindingRecord]:
    """Optimizer state that was left behind on another device."""
    left: dict[tuple[str, str, str], list[Held]] = {}
    for one in memberships(subject):
        held = subject.by_tensor.get(id(one.tensor))
        state = one.optimizer.state.get(one.tensor)
        if held is None or not isinstance(state, dict):
            continue
        for value in state.values():
            if isinstance(value, Tensor) and value.dim() and value.device != one.tensor.device:
                left.setdefault((one.label, str(value.device), str(one.tensor.device)), []).append(held)
                break
    for (label, there, here), members in left.items():
        for group in cover(members, subject.parameters, "parameter"):
            yield FindingRecord(
                group.path,
                group.site.path,
                "state left behind",
                "broken",
                group.words,
                f"{group.verb('is', 'are')} on {here}, and the state that {label} keeps for {group.verb('it', 'them')} is on {there}: "
                "the next step fails",
                "model.to(...) does not move an optimizer's state; load_state_dict of the optimizer does.",
                "optimizer.load_state_dict(optimizer.state_dict())",
                group.places,
                extent=group.extent,
            )
