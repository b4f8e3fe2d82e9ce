"""Try an expression of a fix: does it run on the operands of the error? It runs on stand-ins, and calls none of the user's code."""

from __future__ import annotations

import ast
import copy
import operator
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module

from modlab.compat import without_autograd
from modlab.explaining import operands, suspects
from modlab.explaining.frames import Frame
from modlab.inspection import stores
from modlab.inspection.entries import PLAIN
from modlab.running import randomness
from modlab.statistics.memory import is_there

SMALL = 10_000  # elements of all tensors together, up to which it runs on copies
LARGE = 1_000_000  # elements of a new layer beyond which it is not made for a trial
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MODULES = frozenset({torch, nn, nn.functional, torch.special, torch.linalg})
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size, slice, type(...))
_BUILTINS = {"len": len, "int": int, "float": float, "range": range, "tuple": tuple, "list": list, "min": min, "max": max, "slice": slice}
_ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "device", "T", "mT", "H", "mH", "real", "imag", "is_floating_point"})
_SILENT = frozenset({"item", "tolist", "numpy", "backward", "register_hook", "data_ptr", "share_memory_", "apply_", "map_", "cuda"})
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.Invert: operator.invert, ast.Not: operator.not_}


class NotTriedError(Exception):
    """The expression may call the user's code or have side effects."""


def runs(work: Callable[[Trial], Any]) -> bool | None:
    """Whether some work runs with stand-ins; None if it cannot be tried.

    It runs on copies if everything is small and on the CPU. Otherwise it runs on the meta device, which checks shapes; if dtypes
    differ, which meta does not check, it runs again with one element per tensor on the CPU.
    """
    put_back = randomness.states()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return without_autograd(_all_run, work)
    finally:
        put_back()


def _all_run(work: Callable[[Trial], Any]) -> bool | None:
    small = Trial(Tensor.clone, SMALL)
    found = _once(work, small)
    if small.is_small:
        return found
    shapes = Trial(_on_meta)
    found = _once(work, shapes)
    if not found or len(shapes.dtypes) < 2:
        return found
    return _once(work, Trial(_one_element)) or None  # a size written in the code does not suit one element


def _once(work: Callable[[Trial], Any], trial: Trial) -> bool | None:
    try:
        work(trial)
    except (NotTriedError, NotImplementedError):  # meta has no values to read
        return None
    except Exception:  # noqa: BLE001 - this is the answer
        return False
    return True


def _on_meta(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _one_element(tensor: Tensor) -> Tensor:
    return torch.zeros([1] * tensor.dim(), dtype=tensor.dtype)


class Trial:
    """One run with stand-ins for the tensors.

    Attributes:
        dtypes: those of the tensors used.
        devices: the types of their devices.
        size: the number of their elements.
        present: whether the memory of all of them exists.
    """

    def __init__(self, stand_in: Callable[[Tensor], Tensor], most: int | None = None) -> None:
        self._stand_in, self._most = stand_in, most
        self._known: dict[int, Any] = {}
        self._kept: list[Any] = []  # keeps ids unique
        self.dtypes: set[torch.dtype] = set()
        self.devices: set[str] = set()
        self.size, self.present = 0, True

    @property
    def is_small(self) -> bool:
        """Whether it can run with copies of the values."""
        return self.size <= SMALL and self.devices <= {"cpu"} and self.present

    def _admit(self) -> None:
        if self._most is not None and not self.is_small:
            raise NotTriedError

    def tensor(self, given: Tensor) -> Tensor:
        """The stand-in for a tensor, always the same one."""
        if type(given) not in PLAIN or given.layout is not torch.strided or given.is_quantized or given.is_nested:
            raise NotTriedError
        if id(given) not in self._known:
            self.dtypes.add(given.dtype)
            self.devices.add(given.device.type)
            if len(self.devices) > 1:
                raise NotTriedError  # a stand-in is on a different device
            self.size += given.numel()
            self.present = self.present and is_there(given)
            self._admit()
            made = self._stand_in(given.detach())
            self._known[id(given)] = nn.Parameter(made, requires_grad=False) if type(given) is nn.Parameter else made
            self._kept.append(given)
        found: Tensor = self._known[id(given)]
        return found

    def module(self, given: Module) -> Module:
        """A copy of a module with stand-ins; only for torch's own layers without hooks."""
        parts = [module for _, module in suspects.walk(given)]
        if any(isinstance(one, nn.RNNBase) for one in parts):  # the first call of a new one takes 0.1 s
            raise NotTriedError
        if not all(type(one).__module__.startswith("torch.nn.modules.") and not _is_hooked(one) for one in parts):
            raise NotTriedError
        known = {id(tensor): self.tensor(tensor) for one in parts for _, tensor in stores.named_tensors(one)}
        return copy.deepcopy(given, known)

    def thing(self, given: Any) -> Any:
        """The stand-in for any value: a tensor, a module, a plain value, or a list, tuple or dict of these."""
        if issubclass(type(given), Tensor):
            return self.tensor(given)
        if type(given) in (list, tuple):
            return type(given)(self.thing(one) for one in given)
        if type(given) is dict and all(type(key) in (str, int) for key in given):
            return {key: self.thing(one) for key, one in given.items()}
        if type(given) in _PLAIN or (type(given) is ModuleType and given in _MODULES):
            return given
        raise NotTriedError

    def made(self, node: ast.expr, frame: Frame) -> Module:
        """The layer that an expression makes, with stand-ins for its parameters."""
        made = self._layer(node, frame)
        for module in made.modules():
            for name, parameter in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(self._stand_in(parameter.detach()), requires_grad=False))
                self.size += parameter.numel()
            self._admit()
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, self._stand_in(buffer))
            self.dtypes |= {tensor.dtype for _, tensor in stores.named_tensors(module)}
        return made

    def _layer(self, node: ast.expr, frame: Frame) -> Module:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not _names_nn(node.func.value):
            raise NotTriedError
        cls = getattr(nn, node.func.attr, None)
        if not (isinstance(cls, type) and issubclass(cls, Module)):
            raise NotTriedError
        args, kwargs = self._arguments(node, {}, frame)
        if _elements(args) > LARGE:
            raise NotTriedError
        return cls(*args, **kwargs)

    def value(self, node: ast.expr, frame: Frame, more: Mapping[str, Any] = {}) -> Any:
        """The value of an expression, with stand-ins for the values of its names in a frame.

        Args:
            node: the expression.
            frame: where its names are defined.
            more: names with other values, which are used as they are.
        """
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._name(node.id, frame, more)
        if isinstance(node, (ast.Tuple, ast.List)):
            return (tuple if isinstance(node, ast.Tuple) else list)(self.value(one, frame, more) for one in node.elts)
        if isinstance(node, ast.Slice):
            return slice(*(None if one is None else self.value(one, frame, more) for one in (node.lower, node.upper, node.step)))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return _BINARY[type(node.op)](self.value(node.left, frame, more), self.value(node.right, frame, more))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return _UNARY[type(node.op)](self.value(node.operand, frame, more))
        if isinstance(node, ast.Subscript):
            return _plain(self.value(node.value, frame, more))[self.value(node.slice, frame, more)]
        if isinstance(node, ast.Attribute):
            return self._attribute(node, frame, more)
        if isinstance(node, ast.Call):
            return self._call(node, frame, more)
        raise NotTriedError

    def _name(self, name: str, frame: Frame, more: Mapping[str, Any]) -> Any:
        if name in more:
            return more[name]
        found = frame.names.get(name, frame.globals.get(name, operands.MISSING))
        if found is operands.MISSING:
            raise NotTriedError
        return found if stores.is_module(found) else self.thing(found)

    def _attribute(self, node: ast.Attribute, frame: Frame, more: Mapping[str, Any]) -> Any:
        owner = self.value(node.value, frame, more)
        if stores.is_module(owner):
            found = operands.attribute(owner, node.attr)
            return found if stores.is_module(found) else self.thing(found)
        if type(owner) is ModuleType:
            found = vars(owner).get(node.attr)
            if found is None:
                raise NotTriedError
            return self.thing(found)
        if issubclass(type(owner), Tensor) and node.attr in _ATTRIBUTES:
            return getattr(owner, node.attr)
        raise NotTriedError

    def _call(self, node: ast.Call, frame: Frame, more: Mapping[str, Any]) -> Any:
        args, kwargs = self._arguments(node, more, frame)
        return self._function(node.func, frame, more)(*args, **kwargs)

    def _arguments(self, node: ast.Call, more: Mapping[str, Any], frame: Frame) -> tuple[list[Any], dict[str, Any]]:
        kwargs = {keyword.arg: self.value(keyword.value, frame, more) for keyword in node.keywords if keyword.arg is not None}
        if len(kwargs) < len(node.keywords) or any(isinstance(one, ast.Starred) for one in node.args):
            raise NotTriedError
        return [self.value(one, frame, more) for one in node.args], kwargs

    def _function(self, node: ast.expr, frame: Frame, more: Mapping[str, Any]) -> Any:
        if isinstance(node, ast.Name) and node.id in _BUILTINS and frame.globals.get(node.id) is None and node.id not in frame.names:
            return _BUILTINS[node.id]
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value, frame, more)
            if type(owner) is ModuleType and owner in _MODULES:
                return _of_torch(owner, node.attr)
            if issubclass(type(owner), Tensor) and node.attr not in _SILENT and not node.attr.startswith("_"):
                return getattr(owner, node.attr)
        found = self.value(node, frame, more)
        if not stores.is_module(found):
            raise NotTriedError
        return self.module(found)


def _plain(thing: Any) -> Any:
    if issubclass(type(thing), Tensor) or type(thing) in (list, tuple, dict, torch.Size):
        return thing
    raise NotTriedError


def _of_torch(owner: ModuleType, name: str) -> Any:
    """A torch function that computes something; not one that builds, saves or sets anything."""
    found: Any = vars(owner).get(name)
    computes = owner is not torch or hasattr(torch._C._VariableFunctions, name) or name in ("einsum", "split", "norm", "stft", "cdist")
    if isinstance(found, (type, ModuleType)) or not callable(found) or not computes or name.startswith("_"):
        raise NotTriedError
    return found


def _is_hooked(module: Module) -> bool:
    held = stores.contents(module)
    return any(held.get(name) for name in _HOOKS) or "forward" in held


def _elements(args: list[Any]) -> int:
    """The product of the sizes that a layer is made with: no tensor of the layer has more elements."""
    found = 1
    for one in args:
        found *= max(one, 1) if type(one) is int else 1
    return found


def _names_nn(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "nn") or ast.unparse(node) == "torch.nn"
