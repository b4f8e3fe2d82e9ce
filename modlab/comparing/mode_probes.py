"""Probes of a module's mode: if its inputs already differ, it is called again with its own flag flipped."""

from __future__ import annotations

from typing import Any

from torch.nn import Module

from modlab.comparing.divergence import at_once
from modlab.comparing.input_copies import InputCopies
from modlab.comparing.kept_outputs import KeptOutputs, seen
from modlab.comparing.passes import Key
from modlab.running.randomness import Undo, states
from modlab.running.restoration import Restoration
from modlab.running.values import leaves


class Flips:
    """Runs the first call of some modules again with their own ``training`` flag flipped.

    Inputs and random numbers are the same, the flags of their children are unchanged, and their own hooks do not run again.

    Args:
        paths: the modules to try.
        own: ids of the model's tensors.
    """

    def __init__(self, paths: frozenset[str], own: frozenset[int]) -> None:
        self.acting: set[str] = set()
        self._paths, self._own = paths, own
        self._begun: dict[Key, tuple[tuple[Any, ...], Undo, Restoration]] = {}

    def begin(self, key: Key, module: Module, args: tuple[Any, ...]) -> None:
        """Copy the inputs, which the module may change, and save its state and the random state; the second call starts from them."""
        if key[1] == 0 and key[0] in self._paths:
            self._begun[key] = InputCopies(self._own)(args), states(), _state_of(module)

    def end(self, key: Key, module: Module, kwargs: dict[str, Any], output: Any) -> None:
        """Call it again."""
        if key not in self._begun:
            return
        args, start, first = self._begun.pop(key)
        held = object.__getattribute__(module, "__dict__")
        flag, end = held.get("training"), states()
        if type(flag) is not bool:
            return
        before = KeptOutputs().all(leaves(output))  # a copy: the second call may write to it
        moved = _state_of(module)
        try:
            first.renew()
            held["training"] = not flag
            start()
            after = seen(leaves(module.forward(*args, **kwargs)))
        except Exception:  # noqa: BLE001 - it cannot run in that mode, so nothing is reported
            return
        finally:
            moved.renew()
            held["training"] = flag
            end()
        gap = at_once(before, after)
        if gap.beyond(gap.rounding):
            self.acting.add(key[0])


def _state_of(module: Module) -> Restoration:
    """Its buffers and attributes, and those of all modules below it; parameters are not copied."""
    found = Restoration(kept=0)
    found.add(module)
    return found


def may_act(cls: type) -> bool:
    """Whether a class may read its mode: for torch's own modules, only if their code uses the flag."""
    for base in cls.__mro__:
        if base is Module:
            return False
        if not base.__module__.startswith(("torch.nn.", "torch.ao.")):
            return True
        if any("training" in code.co_names for value in vars(base).values() if (code := getattr(value, "__code__", None)) is not None):
            return True
    return True
