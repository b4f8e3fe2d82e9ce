"""A backward pass while it runs: the first node of the graph that makes a gradient that is not finite of finite ones.

The first of which something is left in the end: a mask may stop what is not finite on its way to the parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from modlab.compat import without_autograd, without_torch_function
from modlab.running.listener import Listener
from modlab.running.tensor_hooks import OF_MODULES, is_hooked
from modlab.running.values import Leaf, leaves
from modlab.tracing.graph import LIMIT
from modlab.watching.finiteness import is_plain, kind_of

_Node = Any
_BIRTHS = 64  # nodes at fault that are remembered


class Turn(NamedTuple):
    """Where gradients ceased to be finite.

    Attributes:
        path: of the module in whose call the node was made; None if that is not known.
        node: its name ("SqrtBackward0"); "" where finite gradients add up beyond the range, or a hook hangs on a tensor.
        hook: whether a hook made it, of a module or of a tensor.
        kind: "nan" or "inf".
        dtype: of that gradient; `size`: how many numbers it has.
        bad: how many of them are not finite.
    """

    path: str | None
    node: str
    hook: bool
    kind: str
    dtype: str
    size: int
    bad: int


class NaNInBackward:
    """Follows each node of the graph that modules make while it is open, and tells whose it is.

    Args:
        paths: of modules, by identity.

    Attributes:
        again: the graph has parts that are computed in a backward pass of their own (reentrant checkpointing).
        whole: all of the graph is followed.
    """

    def __init__(self, paths: dict[int, str]) -> None:
        self._paths = paths
        self._owners: dict[_Node, str | None] = {}  # holds the nodes, so that they are who they were
        self._hooked: set[_Node] = set()  # those that made tensors with hooks
        self._handles: list[Any] = []
        self._stack: list[tuple[int, str | None]] = []
        self._listener = Listener(self._enter, self._leave)
        self._births: list[tuple[_Node, Turn]] = []
        self._bad: dict[_Node, list[_Node]] = {}  # nodes that gave on what is not finite, and to whom
        self._reached: set[_Node] = set()  # the latter
        self.again, self.whole = False, True

    def open(self) -> None:
        """Begin to follow."""
        self._listener.open()

    def close(self) -> None:
        """Stop, and let go of the graph."""
        self._listener.close()
        for handle in self._handles:
            handle.remove()
        self._handles, self._owners, self._stack, self._births, self._bad, self._reached = [], {}, [], [], {}, set()
        self._hooked = set()

    def _enter(self, module: Module, args: tuple[Any, ...]) -> None:
        self._adopt(leaves(args))
        self._stack.append((id(module), self._paths.get(id(module), self._stack[-1][1] if self._stack else None)))

    def _leave(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None, output: Any) -> None:
        while self._stack and self._stack[-1][0] != id(module):
            self._stack.pop()
        if self._stack:
            self._adopt(leaves(output))
            self._stack.pop()

    def _adopt(self, things: Iterable[Leaf]) -> None:
        """Nodes not met before were made by the module that runs."""
        owner = self._stack[-1][1] if self._stack else None
        with without_torch_function():
            tensors = [thing for _, thing, _ in things if issubclass(type(thing), Tensor)]
            todo = [one.grad_fn for one in tensors]
            self._hooked.update(one.grad_fn for one in tensors if one.grad_fn is not None and is_hooked(one))
            while todo:
                node = todo.pop()
                if node is None or node in self._owners:
                    continue
                if len(self._owners) >= LIMIT:
                    self.whole = False
                    return
                name = type(node).__name__
                self._owners[node] = owner
                self.again = self.again or name == "CheckpointFunctionBackward"
                if name != "AccumulateGrad":
                    self._handles.append(node.register_hook(partial(self._passed, node, owner, name)))
                    todo.extend(below for below, _ in node.next_functions)

    def _passed(self, node: _Node, owner: str | None, name: str, after: Iterable[Tensor | None], before: Iterable[Tensor | None]) -> None:
        """A node has run: `before` came in, which are the gradients of what it gave in the forward pass."""
        without_autograd(self._note, node, owner, name, after, before)

    def _note(self, node: _Node, owner: str | None, name: str, after: Iterable[Tensor | None], before: Iterable[Tensor | None]) -> None:
        going = [
            (gradient, kind, below) for gradient, (below, _) in zip(after, node.next_functions, strict=False) if (kind := _kind(gradient))
        ]
        if not going:
            return
        coming = [(gradient, kind) for gradient in before if (kind := _kind(gradient))]
        # a backward pass inside another one begins with what that gives it; and of some nodes nobody may be told
        given = node in self._reached or (self.again and self._bad) or not self.whole
        if len(self._births) < _BIRTHS and not (coming and given):
            if coming:  # finite numbers add up to infinity, and never to NaN
                turn = _turn(owner, "", coming, hook=node in self._hooked or any(kind == "nan" for _, kind in coming))
            else:
                turn = _turn(owner, name, [one[:2] for one in going], hook=name.startswith(OF_MODULES))
            self._births.append((node, turn))
        self._bad[node] = [below for _, _, below in going if below is not None]
        self._reached.update(self._bad[node])

    def turn(self, bad: Iterable[Tensor]) -> Turn | None:
        """The first node at fault for it that the gradients of some tensors are not finite.

        Args:
            bad: parameters, or inputs, of which that is so.
        """
        ends = list(bad)
        if not ends or not self._births:
            return None
        own, nodes = {id(tensor) for tensor in ends if tensor.is_leaf}, {tensor.grad_fn for tensor in ends if tensor.grad_fn is not None}
        return next((turn for node, turn in self._births if self._leads(node, own, nodes)), self._births[0][1])

    def _leads(self, start: _Node, ends: set[int], nodes: set[_Node]) -> bool:
        """Whether what is not finite got from a node to one of the ends."""
        seen, todo = {start}, [start]
        while todo:
            for below in self._bad.get(todo.pop(), ()):
                if below in nodes or (type(below).__name__ == "AccumulateGrad" and id(below.variable) in ends):
                    return True
                if below not in seen:
                    seen.add(below)
                    todo.append(below)
        return False


def _turn(owner: str | None, name: str, found: list[tuple[Any, str]], *, hook: bool) -> Turn:
    gradient, kind = next((one for one in found if one[1] == "nan"), found[0])
    bad = gradient.numel() - int(torch.isfinite(gradient).sum())
    return Turn(owner, name, hook, kind, str(gradient.dtype).removeprefix("torch."), gradient.numel(), bad)


def _kind(gradient: Tensor | None) -> str:
    return kind_of(gradient) if gradient is not None and is_plain(gradient) else ""
