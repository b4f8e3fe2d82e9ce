"""FSDP2's own records of its units: which are gathered now, and in what order they ran.

A forward pass without its backward pass changes them: the root stays gathered, and the next backward pass would prefetch in the
wrong order. They are restored by name, with FSDP's own functions: nothing is communicated, and no plain parameter is left in
place of a sharded one.
"""

from __future__ import annotations

from typing import Any

from torch.nn import Module


class FSDPUnits:
    """The units of a model as they were when they were added."""

    def __init__(self) -> None:
        self._taken: dict[int, _Unit] = {}

    def add(self, module: Module) -> None:
        """Save a module's state, if it is a unit."""
        find = getattr(type(module), "_get_fsdp_state", None)
        if find is not None and any(base.__name__ == "FSDPModule" for base in type(module).__mro__):
            state = find(module)
            if id(state) not in self._taken:
                self._taken[id(state)] = _Unit(state)

    def put_back(self) -> None:
        """Restore all units: reshard what was not gathered before, and reset which ones have run."""
        for unit in self._taken.values():
            unit.put_back()


class _Group:
    """Parameters that are gathered together."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.sharded, self.training = group.is_sharded, group._training_state
        self.indices = [*group._post_forward_indices]

    def put_back(self) -> None:
        group = self.group
        pending = group._all_gather_result
        if pending is not None and self.sharded:  # a pass that raised had started to gather it
            work = pending.all_gather_work
            if hasattr(work, "wait"):
                work.wait()
            group._all_gather_result = None
        if self.sharded and not group.is_sharded:
            group._to_sharded()
        group._training_state = self.training
        group._post_forward_indices[:] = self.indices


class _Unit:
    """One ``fully_shard`` unit."""

    def __init__(self, state: Any) -> None:
        self.state, self.training = state, state._training_state
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # an older torch has one group
            groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
        self.groups = [*map(_Group, groups)]
        self.order = [*getattr(state._comm_ctx, "post_forward_order", ())]
        self.running = {*getattr(state, "_modules_to_run_forward", ())}
        self.root = state._state_ctx.iter_forward_root

    def put_back(self) -> None:
        state = self.state
        for group in self.groups:
            group.put_back()
        state._training_state = self.training
        if hasattr(state._comm_ctx, "post_forward_order"):
            state._comm_ctx.post_forward_order[:] = self.order
        if hasattr(state, "_modules_to_run_forward"):
            state._modules_to_run_forward.clear()
            state._modules_to_run_forward.update(self.running)
        state._state_ctx.iter_forward_root = self.root
