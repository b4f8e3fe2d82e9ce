"""Lines of code that fix an error: a constructor with a different size, the call with different arguments."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import torch
from torch import nn
from torch.nn import Module

from modlab.explaining import calls, operands, shared_modules
from modlab.explaining.calls import ModuleFrame
from modlab.explaining.failure import Failure, own, shape_of
from modlab.inspection import stores

_MAKERS = ("randn", "rand", "zeros", "ones", "empty", "normal")
WIDTHS = {"in_features", "in_channels", "num_features", "input_size", "embed_dim", "num_channels"}


def is_torchs(module: Module) -> bool:
    """Whether a module's class is one of ``torch.nn``'s own."""
    return type(module).__module__.startswith("torch.nn.modules.")


def is_installed(cls: type) -> bool:
    """Whether a class belongs to an installed library, which users do not edit."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def constructor(module: Module, old: int, new: int, place: int = 0) -> str:
    """The call that makes a module like this one with one size changed; empty if unknown.

    Args:
        module: a layer of torch's own, or one whose constructor takes two sizes.
        old: the current size.
        new: the size it should have.
        place: which of the constructor's sizes: 0 for inputs, 1 for outputs.
    """
    if is_torchs(module):
        return _of_torch(module, new, place)
    names = parameters(type(module))
    weight = own(module, "weight")
    shape = shape_of(weight)
    if len(names) != 2 or shape is None or len(shape) != 2 or old not in shape:
        return ""
    sizes = [*shape] if "in" in names[0] and (shape[0] == old) == (place == 0) else [*reversed(shape)]
    if sizes[place] != old:
        return ""
    sizes[place] = new
    return f"{type(module).__name__}({', '.join(map(str, sizes))})"


def _of_torch(module: Module, new: int, place: int) -> str:
    held = stores.contents(module)
    if type(module) is nn.Linear:
        sizes = [held["in_features"], held["out_features"]]
        sizes[place] = new
        return f"nn.Linear({sizes[0]}, {sizes[1]}{'' if own(module, 'bias') is not None else ', bias=False'}{_numbers(module)})"
    if type(module) in (nn.LayerNorm, nn.RMSNorm) and len(held["normalized_shape"]) == 1:
        return f"nn.{type(module).__name__}({new}{_of_norm(module, held)}{_numbers(module)})"
    if type(module) is nn.GroupNorm:
        groups = max(n for n in range(1, held["num_groups"] + 1) if new % n == 0)
        more = "" if held["affine"] else ", affine=False"
        return f"nn.GroupNorm({groups}, {new}{_eps(held, 1e-5)}{more}{_numbers(module)})"
    if type(module) is nn.MultiheadAttention:
        return _of_attention(module, held, new) if new % held["num_heads"] == 0 else ""
    parts = re.split(r", (?![^(]*\))", _extra(module))
    if len(parts) <= place or not re.search(r"\d+$", parts[place]):
        return ""
    parts[place] = re.sub(r"\d+$", str(new), parts[place])
    defaults = {name: parameter.default for name, parameter in inspect.signature(type(module)).parameters.items()}
    shown = [written for part in parts if (written := _argument(part, held, defaults))]
    return f"nn.{type(module).__name__}({', '.join(shown)}{_numbers(module)})"


def _numbers(module: Module) -> str:
    """Arguments for a dtype and a device that differ from torch's defaults."""
    tensor = next((tensor for _, tensor in stores.named_tensors(module) if tensor.is_floating_point()), None)
    if tensor is None:
        return ""
    dtype = "" if tensor.dtype is torch.get_default_dtype() else f", dtype={tensor.dtype}"
    return f"{dtype}{'' if tensor.device.type == 'cpu' else f', device={str(tensor.device)!r}'}"


def _eps(held: dict[str, Any], default: float | None) -> str:
    return "" if held.get("eps") == default else f", eps={held['eps']!r}"


def _of_norm(module: Module, held: dict[str, Any]) -> str:
    if not held.get("elementwise_affine", True):
        more = ", elementwise_affine=False"
    else:
        more = ", bias=False" if type(module) is nn.LayerNorm and own(module, "bias") is None else ""
    return f"{_eps(held, 1e-5 if type(module) is nn.LayerNorm else None)}{more}"


def layer_norm(module: Module, shape: str) -> str:
    """The call that makes an ``nn.LayerNorm`` like this one for a different shape; empty for other modules."""
    return f"nn.LayerNorm({shape}{_of_norm(module, stores.contents(module))}{_numbers(module)})" if type(module) is nn.LayerNorm else ""


def _of_attention(module: Module, held: dict[str, Any], new: int) -> str:
    """Separate key and value widths are kept; widths given for all three change to the new size."""
    old = held["embed_dim"]
    said = [
        f"dropout={held['dropout']!r}" if held.get("dropout") else "",
        "" if own(module, "in_proj_bias") is not None else "bias=False",
        "add_bias_kv=True" if own(module, "bias_k") is not None else "",
        "add_zero_attn=True" if held.get("add_zero_attn") else "",
    ]
    said += [f"{name}={held[name]}" for name in ("kdim", "vdim") if held.get(name) not in (None, old)]
    said.append("batch_first=True" if held.get("batch_first") else "")
    return f"nn.MultiheadAttention({new}, {held['num_heads']}{''.join(f', {word}' for word in said if word)}{_numbers(module)})"


def table(module: Module, rows: int) -> str:
    """The call that makes an ``nn.Embedding`` or ``nn.EmbeddingBag`` like this one with a different number of rows."""
    if type(module) not in (nn.Embedding, nn.EmbeddingBag):
        return ""
    held = stores.contents(module)
    said = [f"{rows}, {held['embedding_dim']}"]
    defaults = inspect.signature(type(module)).parameters
    for name in ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "include_last_offset"):
        if name in defaults and name in held and held[name] != defaults[name].default:
            said.append(f"{name}={held[name]!r}")
    return f"nn.{type(module).__name__}({', '.join(said)}{_numbers(module)})"


def _extra(module: Module) -> str:
    """A module's arguments as shown in its ``repr``."""
    try:
        return module.extra_repr()
    except Exception:  # noqa: BLE001 - a subclass may raise, or attributes may have been deleted
        return ""


def _argument(part: str, held: dict[str, Any], defaults: dict[str, Any]) -> str:
    """One argument as a user would write it: empty for a default, ``kernel_size=5`` for ``kernel_size=(5, 5)``."""
    name, _, text = part.partition("=")
    if not text:
        return part
    value = held.get(name)
    if re.fullmatch(r"\((\d+)(?:, \1)*,?\)", text):  # the same size for all dimensions
        text = text.strip("()").partition(",")[0]
    elif type(value) is str:
        text = repr(value)
    return "" if text == repr(defaults.get(name, inspect.Parameter.empty)) else f"{name}={text}"


def parameters(cls: type) -> list[str]:
    """The names of a constructor's required parameters."""
    return parameters_of(cls)


def parameters_of(function: Any) -> list[str]:
    """The names of a function's required parameters."""
    try:
        given = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    return [p.name for p in given if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]


def target(failure: Failure, path: str, made: str = "") -> tuple[str, str]:
    """Where a module is assigned: in its owner's class ("Net", "self.l1"), or from outside ("", "net[1]")."""
    if failure.root is None:
        return "", ""
    if not path:
        return "", name_of_root(failure)
    parts = path.split(".")
    owners: list[Module] = [failure.root.module]  # the owner of each part
    for part in parts[:-1]:
        owner = calls.at(owners[-1], part)
        if owner is None:
            return "", ""
        owners.append(owner)
    end = len(parts)
    while end > 1 and (parts[end - 1].isdigit() or type(owners[end - 1]) is nn.ModuleDict):
        end -= 1
    for place in range(end - 1, -1, -1):  # outwards, up to a class where the line suits all its instances
        owner = owners[place]
        if place == end - 1 and (parts[place].isdigit() or is_torchs(owner) or is_installed(type(owner))):
            break
        own_class = not (parts[place].isdigit() or is_torchs(owner) or is_installed(type(owner)))
        if own_class and (not made or _fits_all(failure, owner, ".".join(parts[place:]), made)):
            return type(owner).__name__, f"{self_name(type(owner))}{_written(owner, parts[place:])}"
    return "", f"{name_of_root(failure)}{_written(failure.root.module, parts)}"


def _written(owner: Module | None, parts: list[str]) -> str:
    """The expression that reaches a module from another one."""
    text = ""
    for part in parts:
        keyed = type(owner) is nn.ModuleDict
        text += f"[{part!r}]" if keyed else f"[{part}]" if part.isdigit() else f".{part}"
        owner = calls.at(owner, part) if owner is not None else None
    return text


def self_name(cls: type) -> str:
    """What a class's constructor calls the module itself, usually ``self``."""
    maker = next((vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)), None)
    code = maker.__code__ if inspect.isfunction(maker) else None
    return code.co_varnames[0] if code is not None and code.co_argcount else "self"


def name_of_module(failure: Failure, module: Module) -> str:
    """The expression for a module of the model: ``net.layers[0]``."""
    root = failure.root
    path = calls.path_to(root.module, module) if root is not None else None
    if root is None or path is None:
        return type(module).__name__
    steps = [f"[{part}]" if part.isdigit() else f".{part}" for part in path.split(".") if part]
    return "".join([failure.name_of(root.module) or "model", *steps])


def name_of_root(failure: Failure) -> str:
    """The user's name for the model: ``net`` in ``net(x)``."""
    call = failure.call_expression()
    written = call.func if call is not None else None
    if isinstance(written, ast.Attribute) and failure.root is not None and failure.root.args is None:
        written = written.value  # a method of the model
    if written is not None and _is_plain(written):
        return ast.unparse(written)
    root = failure.root.module if failure.root is not None else None
    return failure.name_of(root) or "model"


def made_in_call(failure: Failure) -> str:
    """How the outermost module was made, if its call shows that: ``Net(3)`` in ``Net(3)(x)``; otherwise empty."""
    call = failure.call_expression()
    made = call.func if call is not None and failure.root is not None and failure.root.args is not None else None
    return ast.unparse(made) if isinstance(made, (ast.Call, ast.Subscript)) else ""


def renewed(failure: Failure, call: ModuleFrame, made: str) -> tuple[str, str]:
    """Like `assignment`, for the module of a call, even if it is held in a plain list."""
    if call.path is not None or not call.place.endswith("]"):
        return assignment(failure, call.path or "", made) if call.path is not None else ("", "")
    above = failure.calls[failure.calls.index(call) - 1]
    held = shared_modules.of(failure, call.place, call.module)
    if not made or held.tensors or held.around:
        return above.type, ""
    return above.type, f"{self_name(type(above.module))}.{call.place.rpartition('.')[2]} = {made}"


def _is_plain(node: ast.AST) -> bool:
    """Whether an expression is a name, or an attribute of one."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_plain(node.value))


def _fits_all(failure: Failure, owner: Module, path: str, made: str) -> bool:
    """Whether a line in a class's constructor suits all its instances in the model: there they have the same module, or the new one."""
    module, cls = calls.at(owner, path), type(owner)
    fitting = [] if module is None else [_sizes(module)]
    for other in [one for one in shared_modules.modules(failure) if type(one) is cls and one is not owner]:
        twin = calls.at(other, path)
        if twin is None or type(twin) is not type(module):
            return False
        sizes = _sizes(twin)
        if sizes not in fitting:
            size = width(twin)
            if size is None or constructor(twin, size, size) != made:
                return False
            fitting.append(sizes)
    return True


def _sizes(module: Module) -> list[tuple[int, ...]]:
    return [shape_of(tensor) or () for _, tensor in stores.named_tensors(module)]


def assignment(failure: Failure, path: str, made: str) -> tuple[str, str]:
    """The class whose constructor contains the line (or empty), and the line that assigns a new module.

    The line is empty if it would be undone (its weight is tied to another one's), or would change other places as well.
    """
    held = bool(made and path) and _is_held(failure, path)
    owner, name = target(failure, path, made)
    if held:
        return owner, ""
    return (owner, f"{name} = {made}") if name and made else (owner, "")


def _is_held(failure: Failure, path: str) -> bool:
    call = failure.failing
    if call is not None and call.path == path and len(call.places) > 1:
        return True  # it is unknown at which of its places
    module = calls.at(failure.root.module, path) if failure.root is not None else None
    known = shared_modules.of(failure, path, module) if module is not None else shared_modules.SharedModules()
    if known.tensors or known.around:
        return True
    if known.places and call is not None and call.path == path:  # a new layer here: later calls must not use the old one
        above = failure.calls[failure.calls.index(call) - 1]
        ran = {calls.join(above.place, one.name) for one in above.read.ran if not one.perhaps} if above.read is not None else set()
        return not set(known.places) <= ran
    return False


def written_call(failure: Failure, *, shape: tuple[int, ...] | None = None, more: dict[str, str] | None = None, named: bool = False) -> str:
    """The call of the outermost module as written, with a first argument of a different shape, or with additional arguments.

    `named`: pass these by name.
    Empty if the call is unknown.
    """
    call = failure.call_expression()
    if call is None:
        return ""
    arguments = [ast.unparse(argument) for argument in call.args]
    keywords = [f"{k.arg}={ast.unparse(k.value)}" if k.arg else f"**{ast.unparse(k.value)}" for k in call.keywords]
    if shape is not None:
        made = f"torch.randn({', '.join(map(str, shape))})"
        if call.args:
            arguments[0] = _with_shape(call.args[0], made)
        elif call.keywords and call.keywords[0].arg:
            keywords[0] = f"{call.keywords[0].arg}={_with_shape(call.keywords[0].value, made)}"
    added = [f"{name}={value}" if named or keywords else value for name, value in (more or {}).items()]
    return f"{ast.unparse(call.func)}({', '.join([*arguments, *keywords, *added])})"


def makes(node: ast.Call) -> bool:
    """Whether a call is one of torch's that makes a tensor of a given size."""
    return isinstance(node.func, ast.Attribute) and node.func.attr in _MAKERS


def _with_shape(node: ast.expr, made: str) -> str:
    """``torch.randn(4)`` for ``torch.randn(5)``, keeping the maker's other arguments."""
    if isinstance(node, ast.Call) and makes(node):
        assert isinstance(node.func, ast.Attribute)
        kept = [f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords if k.arg not in (None, "size")]
        sizes = made.removeprefix("torch.randn(").removesuffix(")")
        return f"{ast.unparse(node.func)}({', '.join([sizes, *kept])})"
    return made


def width(module: Module) -> int | None:
    """The size of the last dimension (or channels) of a module's input, if its class or its code determines it; else None."""
    held = stores.contents(module)
    if is_torchs(module):
        return next((held[name] for name in WIDTHS if type(held.get(name)) is int), None)
    tree = forward_of(type(module))
    if tree is None or not tree.args.args[1:]:
        return None
    itself, first = (argument.arg for argument in tree.args.args[:2])
    for node in ast.walk(tree):
        found = _multiplied(node, itself, first, module)
        if found is not None:
            return found
    child = entry(module, tree, first)
    return width(child) if child is not None and child is not module else None


def _multiplied(node: ast.AST, itself: str, first: str, module: Module) -> int | None:
    """The size that ``x @ self.weight`` or ``F.linear(x, self.weight)`` requires, or None."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and _is_name(node.left, first):
        shape = shape_of(_own_attribute(node.right, module, itself))
        return shape[-2] if shape is not None and len(shape) > 1 else None
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("linear", "matmul")
        and len(node.args) > 1
    ):
        shape = shape_of(_own_attribute(node.args[1], module, itself)) if _is_name(node.args[0], first) else None
        if shape is not None and len(shape) > 1:
            return shape[-1] if node.func.attr == "linear" else shape[-2]
    return None


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _own_attribute(node: ast.AST, module: Module, itself: str) -> Any:
    if isinstance(node, ast.Attribute) and _is_name(node.value, itself):
        return own(module, node.attr)
    return None


def entry(module: Module, tree: ast.FunctionDef, first: str) -> Module | None:
    """The child that takes the first argument first: ``self.l0(x)``, or the first of ``for layer in self.layers``; or None."""
    if not is_torchs(module) or type(module) is nn.Sequential:
        itself = tree.args.args[0].arg
        loops: dict[str, ast.expr] = {}
        for node in _in_order(tree):
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                loops[node.target.id] = node.iter
            if isinstance(node, ast.Call) and node.args and _is_name(node.args[0], first):
                child = _child(node.func, module, itself, loops)
                if child is not None:
                    return child
    return None


def _in_order(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes in line order."""
    return iter(sorted((n for n in ast.walk(tree) if hasattr(n, "lineno")), key=lambda n: (n.lineno, isinstance(n, ast.Call))))


def _child(node: ast.expr, module: Module, itself: str, loops: dict[str, ast.expr]) -> Module | None:
    if isinstance(node, ast.Name) and node.id in loops:
        held = _followed(loops[node.id], module, itself)
        return next((c for _, c in stores.named_children(held) if c is not None), None) if stores.is_module(held) else None
    found = _followed(node, module, itself)
    return found if stores.is_module(found) else None


def _followed(node: ast.expr, module: Module, itself: str) -> Any:
    if isinstance(node, ast.Attribute):
        owner = module if _is_name(node.value, itself) else _followed(node.value, module, itself)
        return operands.attribute(owner, node.attr) if stores.is_module(owner) else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        held = _followed(node.value, module, itself)
        return dict(stores.named_children(held)).get(str(node.slice.value)) if stores.is_module(held) else None
    return None


def forward_of(cls: type) -> ast.FunctionDef | None:
    """The source of a class's ``forward`` as a tree, or None if it is unavailable."""
    forward = next((vars(base)["forward"] for base in cls.__mro__ if "forward" in vars(base)), None)
    if not inspect.isfunction(forward) or str(forward.__module__).startswith("torch.nn."):
        return None  # torch's own: long, and no user edits it
    code = forward.__code__
    source, first = linecache.getlines(code.co_filename), code.co_firstlineno
    last = max((line for _, _, line in code.co_lines() if line), default=first)
    for end in range(last, last + 6):  # brackets may be closed below the last line that runs
        try:
            tree = ast.parse(dedent("".join(source[first - 1 : end])))
        except (SyntaxError, ValueError):
            continue
        found = tree.body[0] if tree.body else None
        return found if isinstance(found, ast.FunctionDef) else None
    return None
