"""A class that `@frozen` makes is what ``@dataclass(frozen=True, slots=True)`` makes of it."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from modlab.frozen import frozen


def points(decorate):
    """A class of records, with all that one can have."""

    @decorate
    class Point:
        x: int
        y: float = 2.0
        tags: list[str] = field(default_factory=list)
        secret: str = field(default="s", repr=False)
        unit: ClassVar[str] = "m"

        @property
        def far(self) -> float:
            return self.x + self.y

    return Point


def checked(decorate):
    """A class that has some of the methods itself."""

    @decorate
    class Checked:
        value: int

        def __post_init__(self) -> None:
            object.__setattr__(self, "value", abs(self.value))

        def __repr__(self) -> str:
            return f"<{self.value}>"

    return Checked


DECORATORS = [frozen, dataclass(frozen=True, slots=True)]
BY_IDENTITY = [frozen(eq=False), dataclass(frozen=True, slots=True, eq=False)]
each = pytest.mark.parametrize("decorate", DECORATORS, ids=["frozen", "dataclass"])


@frozen
class Kept:
    """One that pickle finds by its name."""

    name: str
    more: Any = None


@frozen
class Wider(Kept):
    last: int = 3


@each
def test_what_dataclasses_know_of_it(decorate):
    made = points(decorate)
    point = made(1)
    assert is_dataclass(made) and [one.name for one in fields(made)] == ["x", "y", "tags", "secret"]
    assert asdict(replace(point, y=3.0)) == {"x": 1, "y": 3.0, "tags": [], "secret": "s"}
    assert repr(point).endswith("Point(x=1, y=2.0, tags=[])") and point.far == 3.0 and made.__match_args__ == ("x", "y", "tags", "secret")
    assert point == made(1) and point != made(2) and point != SimpleNamespace(x=1) and made(1).tags is not made(1).tags
    assert list(inspect.signature(made).parameters) == ["x", "y", "tags", "secret"] and made.unit == "m"
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        hash(point)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        made()


@each
def test_nothing_is_assigned_or_deleted(decorate):
    point = points(decorate)(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 5
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point.x == 1 and not hasattr(point, "__dict__")


@each
def test_methods_of_its_own_stay(decorate):
    made = checked(decorate)
    assert made(-4).value == 4 and repr(made(-4)) == "<4>" and made(-4) == made(4) and hash(made(4)) == hash((4,))


@pytest.mark.parametrize("decorate", BY_IDENTITY, ids=["frozen", "dataclass"])
def test_by_identity(decorate):
    made = checked(decorate)
    one = made(1)
    assert one == one and one != made(1) and len({one, made(1)}) == 2


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda kept: pickle.loads(pickle.dumps(kept))])
def test_copies(again):
    kept = Wider("a", (1, 2))
    assert again(kept) == kept and type(again(kept)) is Wider and again(kept) != Kept("a", (1, 2))


def test_one_that_holds_itself_can_be_shown():
    inner: list[Any] = []
    kept = Kept("a", inner)
    inner.append(kept)
    assert repr(kept) == "Kept(name='a', more=[...])"
