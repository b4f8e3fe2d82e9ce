"""Calls of unregistered modules: nobody keeps them, so what is known by their identity goes with them."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import partial
from typing import Any
from weakref import ref

from torch.nn import Module

from modlab.tracing.calls import Call

Ledger = MutableMapping[int, Any]


class UnregisteredCalls:
    """Holds them weakly, with their calls.

    Args:
        ledgers: what is noted by the identity of a module; another one may get it when this one is gone.
    """

    def __init__(self, *ledgers: Ledger) -> None:
        self._ledgers = ledgers
        self._met: dict[int, tuple[ref[Module], list[Call]]] = {}

    def calls_of(self, module: Module) -> list[Call]:
        """The calls of one so far: a list, to which the next one is added."""
        found = self._met.get(id(module))
        if found is None or found[0]() is not module:
            calls: list[Call] = []
            found = self._met[id(module)] = ref(module, partial(_forget, self._ledgers, id(module), calls)), calls
        return found[1]


def _forget(ledgers: tuple[Ledger, ...], key: int, calls: list[Call], _: ref[Module]) -> None:
    """Strike out a module that is gone. Without the strangers themselves: they hold the reference that this is called by."""
    for ledger in ledgers:
        ledger.pop(key, None)
    for call in calls:
        call.module = 0
