"""The route of ``module.name = value``: where ``Module.__setattr__`` would put it, or which error it would raise. Nothing is assigned.

The decisions stand in the order in which torch takes them; its messages are given to the word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module, Parameter

from modlab.compat import global_hooks, grad_fn, without_torch_function
from modlab.inspection import stores
from modlab.inspection.internals import plain
from modlab.records.internals import RouteRecord

Buffer: type | None = getattr(nn, "Buffer", None)
_SINGULAR = {"_parameters": "a parameter", "_buffers": "a buffer", "_modules": "a child", "__dict__": "a plain attribute"}
_BEFORE = "before Module.__init__() call"


def route(module: Module, name: Any, value: Any) -> RouteRecord:
    """Where the assignment would lead."""
    return Route(module, name, value).found()


class Refusal(Exception):
    """What torch would raise, and why."""

    def __init__(self, kind: type[Exception], message: str, reason: str) -> None:
        super().__init__(message)
        self.kind, self.message, self.reason = kind, message, reason


class Route:
    """One question."""

    def __init__(self, module: Module, name: Any, value: Any) -> None:
        self.module, self.name, self.value = module, name, value
        self.cls = type(module)
        self.held = stores.contents(module)
        self.notes: list[str] = []
        self.leaves: tuple[str, ...] = ()

    def found(self) -> RouteRecord:
        """The answer."""
        shown = described(self.value)
        if not isinstance(self.name, str):
            message = f"attribute name must be string, not '{type(self.name).__name__}'"
            return RouteRecord(repr(self.name), shown, "", "A name must be a string.", "TypeError", message)
        own = _defined(self.cls, "__setattr__")
        if own is not None and own[0] is not Module:
            return self._unknown(f"{own[0].__name__} has its own __setattr__, which decides")
        try:
            return self._decided()
        except Refusal as refusal:
            left = self.leaves
            late = [f"The name has then already left {', '.join(left)}: torch removes first and checks later."] if left else []
            notes = (*late, *self.notes)
            message, kind = refusal.message, refusal.kind.__name__
            return RouteRecord(self.name, shown, "", refusal.reason, kind, message, left, notes=notes)

    def _unknown(self, reason: str) -> RouteRecord:
        return RouteRecord(self.name, described(self.value), "?", reason, leaves=self.leaves, notes=tuple(self.notes))

    def _decided(self) -> RouteRecord:
        """The four questions of ``Module.__setattr__``: a parameter? a parameter's name? a module's? a buffer's?"""
        if self._asked(isinstance, self.value, Parameter):
            return self._new_parameter()
        if self.name in (self.held.get("_parameters") or ()):
            return self._known_parameter()
        if self._asked(isinstance, self.value, Module):
            return self._new_module()
        if self.name in (self.held.get("_modules") or ()):
            return self._known_module()
        if (Buffer is not None and isinstance(self.value, Buffer)) or self.name in (self.held.get("_buffers") or ()):
            return self._buffer()
        return self._attribute()

    def _new_parameter(self) -> RouteRecord:
        self._need("_parameters", "parameters")
        self._leave("__dict__", "_buffers", "_modules")
        if (other := self._overridden("register_parameter")) is not None:
            return other
        if self.name == "_parameters":
            raise Refusal(AttributeError, f"cannot assign parameter {_BEFORE}", "The store itself is gone: it cannot take the parameter.")
        self._checked("_parameters", "parameter")
        with without_torch_function():
            made = grad_fn(self.value) is not None
        if made:
            raise Refusal(
                ValueError,
                f"Cannot assign non-leaf Tensor to parameter '{self.name}'. Model parameters must be created explicitly. "
                f"To express '{self.name}' as a function of another Tensor, compute the value in the forward() method.",
                "The tensor was computed from others: an optimizer could not move it.",
            )
        self._asks("_parameter_registration_hooks", "parameter")
        replaced = "replaces the parameter of this name" if self.name in self.held["_parameters"] else "an nn.Parameter always goes there"
        return self._goes("_parameters", replaced)

    def _known_parameter(self) -> RouteRecord:
        if self.value is not None:
            raise Refusal(
                TypeError,
                f"cannot assign '{self._typename()}' as parameter '{self.name}' (torch.nn.Parameter or None expected)",
                "The name belongs to a parameter (perhaps only reserved for one), so it takes an nn.Parameter or None.",
            )
        if (other := self._overridden("register_parameter")) is not None:
            return other
        self._checked("_parameters", "parameter")
        if self.held["_parameters"][self.name] is not None:
            self.notes.append("The parameter is dropped, and its key leaves the state_dict; the name stays reserved.")
        return self._goes("_parameters", "the name belongs to a parameter, and None is allowed")

    def _new_module(self) -> RouteRecord:
        self._need("_modules", "module")
        self._leave("__dict__", "_parameters", "_buffers")
        self._asks("_module_registration_hooks", "module")
        where = _defined(self.cls, self.name)
        if where is not None:
            self.notes.append(
                f"{where[0].__name__} has something with this name, which is found first: module.{self.name} does not give the child."
            )
        if "." in self.name or not self.name:
            self.notes.append("Such a name is accepted here, though add_module() refuses it; its paths become ambiguous.")
        replaced = "replaces the child of this name" if self.name in self.held["_modules"] else "an nn.Module always goes there"
        return self._goes("_modules", replaced)

    def _known_module(self) -> RouteRecord:
        if self.value is not None:
            raise Refusal(
                TypeError,
                f"cannot assign '{self._typename()}' as child module '{self.name}' (torch.nn.Module or None expected)",
                "The name belongs to a child, so it takes an nn.Module or None.",
            )
        self._asks("_module_registration_hooks", "module")
        return self._goes("_modules", "the name belongs to a child, and None is allowed; it stays reserved")

    def _buffer(self) -> RouteRecord:
        value = self.value
        if value is not None and not (self._asked(isinstance, value, Tensor) or self._asked(hasattr, value, "__torch_function__")):
            raise Refusal(
                TypeError,
                f"cannot assign '{self._typename()}' as buffer '{self.name}' (torch.nn.Buffer, torch.Tensor or None expected)",
                "The name belongs to a buffer (perhaps only reserved for one), so it takes a tensor or None.",
            )
        is_buffer = Buffer is not None and isinstance(value, Buffer)
        persistent = bool(value.persistent) if is_buffer else self.name not in (self.held.get("_non_persistent_buffers_set") or ())
        if (other := self._overridden("register_buffer")) is not None:
            return other
        if "_buffers" not in self.held:
            raise Refusal(AttributeError, f"cannot assign buffer {_BEFORE}", _forgotten(self.cls))
        self._checked("_buffers", "buffer")
        self._asks("_buffer_registration_hooks", "buffer")
        if value is not None and not is_buffer and not persistent:
            self.notes.append("It stays non-persistent, as the name was registered.")
        reason = "an nn.Buffer goes there" if is_buffer else "the name belongs to a buffer, and any tensor replaces it"
        if value is None:
            reason = "the name belongs to a buffer, and None is allowed; it stays reserved"
        return self._goes("_buffers", reason, persistent)

    def _attribute(self) -> RouteRecord:
        """What ``object.__setattr__`` does: first the class's own descriptors are asked, then it is an attribute."""
        found = _defined(self.cls, self.name)
        if found is not None and isinstance(found[1], property):
            return self._property(found[0], found[1])
        if found is not None and any("__set__" in vars(base) for base in type(found[1]).__mro__):
            kind = type(found[1]).__name__
            if kind == "member_descriptor":
                return self._goes("class", f"a slot of {found[0].__name__}")
            return self._unknown(f"a {kind} of {found[0].__name__} decides")
        self._remark_attribute(found)
        return self._goes("__dict__", self._reason())

    def _property(self, home: type, found: property) -> RouteRecord:
        if found.fset is not None:
            return self._unknown(f"{self.name} is a property of {home.__name__}, whose setter decides")
        try:
            found.__set__(self.module, self.value)  # without a setter this does nothing but raise
        except AttributeError as error:
            raise Refusal(AttributeError, str(error), f"{self.name} is a property of {home.__name__}, without a setter.") from None
        raise AssertionError("a property without a setter took a value")

    def _remark_attribute(self, found: tuple[type, Any] | None) -> None:
        if self.name in stores.STANDARD and self.name != "training":
            self.notes.append("This is torch's own store: the module forgets what was in it.")
        elif found is not None and self.name not in self.held:
            self.notes.append(f"From then on it hides what {found[0].__name__} has under this name.")
        if _is_tensor(self.value):
            self.notes.append(
                f"Not in the state_dict, left behind by to(). For a buffer: module.register_buffer({self.name!r}, ...); "
                f"for a parameter: nn.Parameter(...)"
            )
        elif type(self.value) in (list, tuple, dict) and _holds_state(self.value):
            self.notes.append(
                "Its contents are not registered: parameters(), to() and state_dict() skip them. Use nn.ModuleList, nn.ParameterList, …"
            )

    def _reason(self) -> str:
        if _is_tensor(self.value):
            return "a plain tensor, and the name belongs to no parameter or buffer"
        if self.value is None:
            return "the name is not registered, so None reserves nothing"
        return "not a parameter, module or buffer, and the name belongs to none"

    def _asked(self, question: Callable[..., Any], *about: Any) -> Any:
        """What torch asks of the value itself, which may raise; then the assignment raises just that."""
        try:
            return question(*about)
        except Exception as error:  # noqa: BLE001 - the user's own code
            raise Refusal(type(error), str(error), "Asking the value for its type raises an error.") from None

    def _typename(self) -> str:
        return str(self._asked(torch.typename, self.value))

    def _need(self, store: str, word: str) -> None:
        if self.held.get(store) is None:
            raise Refusal(AttributeError, f"cannot assign {word} {_BEFORE}", _forgotten(self.cls))

    def _leave(self, *rooms: str) -> None:
        """Torch removes the name elsewhere first."""
        found = [room for room in rooms if self.name in (self.held if room == "__dict__" else self.held.get(room) or ())]
        if self.name in (self.held.get("_non_persistent_buffers_set") or ()):
            found.append("_non_persistent_buffers_set")
        self.leaves = tuple(found)

    def _overridden(self, method: str) -> RouteRecord | None:
        if method in self.held:
            return self._unknown(f"the object has its own {method}, which decides")
        found = _defined(self.cls, method)
        if found is not None and found[0] is not Module:
            return self._unknown(f"{found[0].__name__} has its own {method}, which decides")
        return None

    def _checked(self, store: str, word: str) -> None:
        """What ``register_parameter`` and ``register_buffer`` refuse."""
        if "." in self.name:
            raise Refusal(KeyError, f'{word} name can\'t contain "."', "The dot separates the names of a path.")
        if not self.name:
            raise Refusal(KeyError, f'{word} name can\'t be empty string ""', "The empty path is the module itself.")
        if self.name not in self.held[store] and (home := self._has_otherwise()):
            raise Refusal(KeyError, f"attribute '{self.name}' already exists", f"{home} already has something with this name.")

    def _has_otherwise(self) -> str:
        """Who would answer ``hasattr(module, name)``, once the name has left the other stores; nothing if nobody would."""
        found = _defined(self.cls, self.name)
        if found is not None and type(found[1]).__name__ != "member_descriptor":
            if isinstance(found[1], property):
                self.notes.append("torch asks hasattr(), which runs the property's getter: if that raises AttributeError, it continues.")
            return found[0].__name__
        if found is not None and _filled(found[1], self.module):
            return found[0].__name__
        rooms = ("_parameters", "_buffers", "_modules")
        left = set(self.leaves)
        if self.name in self.held and "__dict__" not in left:
            return "The object"
        other = next((room for room in rooms if room not in left and self.name in (self.held.get(room) or ())), "")
        if other:
            return f"The object's {other}"
        answering = _defined(self.cls, "__getattr__")
        if answering is not None and answering[0] is not Module:
            self.notes.append(f"{answering[0].__name__} has its own __getattr__: if it answers to this name, torch refuses it.")
        return ""

    def _asks(self, store: str, word: str) -> None:
        if hooks := global_hooks().get(store):
            self.notes.append(f"{len(hooks)} global {word} registration hook{'s' if len(hooks) > 1 else ''} may replace the value first.")

    def _goes(self, store: str, reason: str, persistent: bool | None = None) -> RouteRecord:
        notes = (*self._consequences(store), *self.notes)
        return RouteRecord(self.name, described(self.value), store, reason, leaves=self.leaves, persistent=persistent, notes=notes)

    def _consequences(self, store: str) -> Iterator[str]:
        for room in self.leaves:
            if room == "__dict__" and self.name in stores.STANDARD:
                yield "This was torch's own: without it the module does not work."
            elif room in _SINGULAR and room != store:
                yield f"The name was {_SINGULAR[room]}, and becomes {_SINGULAR[store]}, without a warning."


def described(value: Any) -> str:
    """What will be assigned, in a few words; a user's object is not asked for its repr."""
    if _is_tensor(value):
        name = (
            "nn.Parameter"
            if isinstance(value, Parameter)
            else "nn.Buffer"
            if Buffer is not None and isinstance(value, Buffer)
            else "tensor"
        )
        with without_torch_function():
            try:
                shape = str(tuple(int(size) for size in value.shape))
            except Exception:  # noqa: BLE001 - lazy and nested tensors have no shape
                shape = ""
        return f"{name} {shape}".rstrip()
    if issubclass(type(value), type):
        return f"the class {value.__name__}"
    return plain(value) or type(value).__name__


def _is_tensor(value: Any) -> bool:
    """By its type: a stranger's object may raise when it is asked for its class."""
    return issubclass(type(value), Tensor)


def _forgotten(cls: type) -> str:
    return f"{cls.__name__} has not called super().__init__() yet."


def _defined(cls: type, name: str) -> tuple[type, Any] | None:
    """The class in the line of ancestors that has the name, and what it has."""
    return next(((base, vars(base)[name]) for base in cls.__mro__ if name in vars(base)), None)


def _filled(slot: Any, module: Module) -> bool:
    try:
        slot.__get__(module)
    except AttributeError:
        return False
    return True


def _holds_state(value: Any) -> bool:
    parts = value.values() if type(value) is dict else value
    return any(issubclass(type(part), (Module, Tensor)) for part in list(parts)[:1000])
