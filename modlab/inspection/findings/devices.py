"""Tensors on several devices."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from modlab.inspection.findings.grouping import FindingGroup, cover
from modlab.inspection.findings.optimizer import memberships
from modlab.inspection.findings.subject import Held, Subject
from modlab.records.finding import Fact, Finding, Remedy


def mixed(subject: Subject) -> Iterator[Finding]:
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
                fix = Remedy("then load", _giving(group, f"to_empty(device={main!r})"))
                yield group.finding("no values yet", "broken", fix, main=main)
                continue
            facts: dict[str, Fact] = {"device": name, "main": main, "tensors": len(devices[main])}
            yield group.finding("on another device", "note" if spread else "careful", Remedy(code=f"model.to({main!r})"), **facts)


def _giving(group: FindingGroup, call: str) -> str:
    """The call for the modules of the group, and for no others, whose values it would take."""
    code = group.code.rpartition(".")[0] if group.code.endswith((".weight", ".bias")) else group.code
    return f"{code}.{call}" if code else group.each(call)


def _counts(held: Held) -> bool:
    """Numbers of no dimension on the CPU go together with any device."""
    return held.tensor.dim() > 0 if not torch.nn.parameter.is_lazy(held.tensor) else False


def states(subject: Subject) -> Iterator[Finding]:
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
            fix = Remedy(code="optimizer.load_state_dict(optimizer.state_dict())")
            yield group.finding("state left behind", "broken", fix, optimizer=label, other=there, device=here)
