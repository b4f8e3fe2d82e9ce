"""What all instances of a class have in common, and what ``extra_repr`` says of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from torch.nn import Module, ParameterDict, ParameterList

from modlab.compat import own_class
from modlab.inspection import distributed_units, marks
from modlab.records.structure import Subtree

EXTRA_LIMIT = 300
REMEMBERED = 4096  # subtrees of a class kept for the next call

_LISTING = (ParameterList, ParameterDict)  # their `extra_repr` lists the tensors, which the tree shows anyway
SCALARS = frozenset({int, float, bool, str, type(None)})
_SPEAKABLE = SCALARS | {tuple}


class ClassFacts:
    """One class: its name, what its rows say beside their numbers, and the subtrees of its instances that were met so far."""

    def __init__(self, cls: type) -> None:
        speaker: Any = getattr(cls, "extra_repr", None)
        self.speaks = speaker is not Module.extra_repr and not issubclass(cls, _LISTING)
        self.wrapper = distributed_units.wrapper_of(cls)
        named = own_class(cls)
        authors = (named.__module__, getattr(speaker, "__module__", ""))
        self.foreign = not all(author.startswith("torch.nn.modules.") for author in authors)  # others than torch's may say anything
        self.name, self.origin = named.__name__, named.__module__
        self.category = marks.category(cls)
        self.marks = marks.of_class(cls)
        self.known: dict[Any, Subtree] = {}
        self.extras: dict[Any, tuple[str, object]] = {}  # the entries go with the text, to keep their ids
        self.speaker = _weakly(speaker)


known: dict[int, ClassFacts] = {}
"""By the id of the class, which leaves when the class goes: a class of a notebook can hold a model, and may have no hash."""

_alive: dict[int, ref[type]] = {}


def facts_of(cls: type) -> ClassFacts:
    """The facts of a class, made again if its ``extra_repr`` has changed."""
    key = id(cls)
    facts = known.get(key)
    if facts is None or facts.speaker() is not getattr(cls, "extra_repr", None) or max(len(facts.known), len(facts.extras)) > REMEMBERED:
        facts = known[key] = ClassFacts(cls)
        _alive[key] = ref(cls, lambda _: _forget(key))
    return facts


def _forget(key: int) -> None:
    known.pop(key, None)
    _alive.pop(key, None)


def _weakly(speaker: Any) -> Callable[[], Any]:
    """A function of a notebook can hold a model too."""
    try:
        return ref(speaker)
    except TypeError:  # what is no function, and takes no weak reference: never the same
        return lambda: ...


def spoken(attributes: list[Any], kinds: tuple[type, ...]) -> tuple[Any, ...] | None:
    """A module's attributes as a key, which says all that torch's own ``extra_repr`` can say of them; None where it could say more.

    Args:
        attributes: their values.
        kinds: the types of these.
    """
    if SCALARS.issuperset(kinds):
        return (*attributes, *kinds)
    if not _SPEAKABLE.issuperset(kinds):
        return None  # a tensor, or an object of the user's: to remember it would keep it alive
    inner = [tuple(map(type, value)) for value in attributes if type(value) is tuple]
    return (*attributes, *kinds, *inner) if all(map(SCALARS.issuperset, inner)) else None


def extra(module: Module) -> str:
    """What ``extra_repr`` says, or what became of asking."""
    try:
        text: object = module.extra_repr()
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is a fact about the module, not a failure of the tree
        return f"extra_repr raised {type(error).__name__}"
    if not isinstance(text, str):
        return f"extra_repr returned {type(text).__name__}, not str"
    text = str.__str__(text)  # of a subclass, which may answer anything, the plain text
    return text if len(text) <= EXTRA_LIMIT else f"{text[:EXTRA_LIMIT]}… ({len(text):,} characters)"
