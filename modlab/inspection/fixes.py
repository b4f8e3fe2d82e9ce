"""The line that registers what PyTorch does not see, for each kind of hiding place."""

from __future__ import annotations

from collections import deque
from typing import Any

from torch import Tensor
from torch.nn import Module, ModuleDict, Parameter, ParameterDict

from modlab.inspection import stores
from modlab.inspection.spelling import is_plain

VIEW: type[Any] = type(dict[Any, Any]().values())
SEQUENCES: tuple[type[Any], ...] = (list, tuple, set, frozenset, deque, VIEW)
_DICTS: dict[bool, Module] = {True: ModuleDict(), False: ParameterDict()}  # to ask which keys they cannot take


def line(module: Module, name: str, value: Any, modules: list[Module], tensors: list[Tensor]) -> str:
    """One line that works as it stands at the end of the constructor; nothing where no line would."""
    if _is_taken(module, name) or not is_plain(name):
        return ""
    here = f'self.__dict__.pop("{name}")'
    if stores.is_module(value) or isinstance(value, Parameter):
        return f"self.{name} = {here}  # or at once: self.{name} = ..., after super().__init__()"
    if isinstance(value, Tensor):
        return f'self.register_buffer("{name}", {here})'
    members, hidden = _flat(value), {id(thing) for thing in (*modules, *tensors)}
    if not members or not hidden.issuperset(map(id, members)):  # one that is registered elsewhere may be what this one is in
        return ""
    if not tensors:
        return _registered("Module", name, value)
    if not modules and all(isinstance(tensor, Parameter) for tensor in tensors):
        return _registered("Parameter", name, value)
    return ""


def _is_taken(module: Module, name: str) -> bool:
    """Whether the name stands for something else too: a property or a default of the class, or another tensor."""
    held = stores.contents(module)
    return any(name in vars(cls) for cls in type(module).__mro__) or any(
        name in (held.get(store) or ()) for store in ("_parameters", "_buffers", "_modules")
    )


def _flat(value: Any) -> list[Any]:
    """The members of a container that ``nn.ModuleList``, ``nn.ModuleDict`` or their like could take as it is."""
    if isinstance(value, dict):
        members = list(dict.values(value))
        asked = _DICTS[all(map(stores.is_module, members))]
        return members if all(type(key) is str and key and "." not in key and not hasattr(asked, key) for key in value) else []
    return list(value) if isinstance(value, SEQUENCES) else []


def _registered(kind: str, name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"self.{name} = nn.{kind}Dict(self.{name})"
    listed = f"self.{name}" if isinstance(value, (list, tuple)) else f"[*self.{name}]"
    return f"self.{name} = nn.{kind}List({listed})"


def in_words(modules: list[Module], tensors: list[Tensor]) -> str:
    """What to do where no one line does it."""
    parts = []
    if modules:
        parts.append("modules in an nn.ModuleList (one for each list)")
    if any(isinstance(tensor, Parameter) for tensor in tensors):
        parts.append("parameters in an nn.ParameterList (one for each list)")
    if not all(isinstance(tensor, Parameter) for tensor in tensors):
        parts.append("each tensor by register_buffer, under its own name")
    return f"register each: {', '.join(parts)}"
