"""What ``nn.Module`` keeps about itself: one record for each store, flag, own attribute and method."""

from __future__ import annotations

from modlab import format
from modlab.frozen import frozen

INSTANCE = "instance"
CLASS = "class"
OWN = "own"
METHOD = "method"


@frozen
class StoreRecord:
    """One private store, class-level flag, attribute of the author's, or method.

    Attributes:
        path: its name: "_parameters", "training", "forward".
        section: "instance" (``Module.__init__`` puts it there), "class" (it stands on the class), "own" (the author's), "method".
        type: of what it holds: "dict", "OrderedDict", "set", "bool", "NoneType"; of a method nothing.
        count: entries; None for what has none.
        entries: names and what is behind them; hooks by their number.
        value: of a flag or plain attribute, in words.
        purpose: what it is for.
        writes: public methods (or statements) that write it.
        reads: public methods that read it.
        home: the class that sets or defines it, where that is not the object itself.
        note: what is surprising about it here.
        missing: it is not there, and should be.
        look: the line that gives what it holds, of ``model``; nothing where that is not there.
        stale: it is set, and nothing is left that it is about.
        answered: it is not in the object, and the class answers for it.
        unregistered: it is or holds a tensor or module that torch does not see.
        known: False for a store that this version of modlab has no words for.
    """

    path: str
    section: str
    type: str = ""
    count: int | None = None
    entries: tuple[tuple[str, str], ...] = ()
    value: str = ""
    purpose: str = ""
    writes: str = ""
    reads: str = ""
    home: str = ""
    note: str = ""
    missing: bool = False
    known: bool = True
    look: str = ""
    stale: bool = False
    answered: bool = False
    unregistered: bool = False

    def __repr__(self) -> str:
        return format.printable(f"<{self.path}: {self.holds or self.type}>")

    @property
    def holds(self) -> str:
        """Its content in a few words."""
        if self.missing:
            return "missing"
        if self.count is None:
            return self.value
        if not self.count:
            return "empty"
        some = [f"{name} {what}".rstrip() for name, what in self.entries[:3]]
        return ", ".join(some) + (f", … {self.count - 3:,} more" if self.count > 3 else "")


@frozen
class InternalsRecord:
    """Everything about one module that ``nn.Module`` keeps."""

    title: str
    rows: tuple[StoreRecord, ...]
    initialized: bool = True
    remarks: tuple[str, ...] = ()


@frozen
class RouteRecord:
    """Where an assignment ``module.name = value`` would go; nothing has been assigned.

    Attributes:
        path: the name.
        value: what it is that would be assigned.
        store: "_parameters", "_buffers", "_modules", "__dict__" (a plain attribute), "class" (a property or slot of the class takes
            it), "" where it would fail, "?" where code of the user's decides.
        reason: why.
        error: the class of the error that it would raise, or nothing.
        message: of that error, to the word.
        leaves: stores from which the name would go.
        persistent: of a buffer, whether the state_dict would have it.
        notes: what else would follow from it.
    """

    path: str
    value: str
    store: str
    reason: str
    error: str = ""
    message: str = ""
    leaves: tuple[str, ...] = ()
    persistent: bool | None = None
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> tuple[str, ...]:
        """Where it goes, why, and one by one what follows: with a colon between the first two, everything."""
        places = {"__dict__": "a plain attribute (__dict__)", "class": "the class takes it", "?": "not known"}
        place = places.get(self.store, self.store)
        first = (f"raises {self.error}", self.message, self.reason) if self.error else (place, self.reason)
        left = (f"it leaves {', '.join(self.leaves)}",) if self.leaves else ()
        return (f"{self.path} = {self.value} → {first[0]}", *first[1:], *left, *self.notes)

    def __str__(self) -> str:
        place, why, *more = self.told
        return format.printable("\n  ".join((f"{place}: {why}", *more)))

    def __repr__(self) -> str:
        return str(self)
