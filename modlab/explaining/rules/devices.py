"""Tensors on two devices, on none (meta), or not there yet (lazy)."""

from __future__ import annotations

import ast
import re
from difflib import get_close_matches

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from modlab.explaining import code_fixes, source_code, suspects, unregistered
from modlab.explaining.failure import Cause, Failure, Rule
from modlab.inspection import stores
from modlab.records.explanation import Fix

_LOOKED = 2_000  # modules of which the tensors' devices are asked


def _mixed(failure: Failure, match: re.Match[str]) -> Cause:
    first, second = match[1], match[2]
    given, own = _held(failure)
    if "meta" in (first, second):
        return _meta(failure, given, own)
    model = code_fixes.name_of_root(failure)
    stray = _stray(failure)
    facts: tuple[tuple[str, str], ...] = (
        ((f"{failure.subject}: input", given), (f"{failure.subject}: weights", own)) if given and own else ()
    )
    fixes: list[Fix] = []
    if stray:
        fixes.append(
            Fix(
                f"{stray} is a plain attribute, which .to() does not move: register it.",
                f'self.register_buffer("{stray.rpartition(".")[2]}", ...)',
            )
        )
    if given and own and given != own:
        said = f"{failure.subject} got its input on {given} but has its weights on {own}."
        fixes += [
            Fix("Move the input to the model's device:", f"x = x.to({own!r})"),
            Fix("Or the model, once, before the loop:", f"{model}.to({given!r})"),
        ]
    else:
        said = f"Tensors on {first} and {second} meet{failure.within}."
        facts = tuple((o.text, _device(o.thing)) for o in failure.tensors[:4])
        fixes.append(Fix("A tensor made inside forward belongs on its neighbour's device:", "torch.zeros(..., device=x.device)"))
    return Cause(said, failure.stopped + "all that a computation uses must be on one device.", f"{first} ≠ {second}", facts, tuple(fixes))


def _device(tensor: Tensor) -> str:
    return str(tensor.device)


def _held(failure: Failure) -> tuple[str, str]:
    """The device of the innermost module's input, and that of its own tensors."""
    call = failure.failing
    if call is None:
        return "", ""
    given = [_device(a) for a in (*(call.args or ()), *call.kwargs.values()) if issubclass(type(a), Tensor)]
    own = [_device(tensor) for _, tensor in stores.named_tensors(call.module)]
    return next(iter(given), ""), next(iter(own), "")


def _stray(failure: Failure) -> str:
    """A plain tensor attribute of the innermost module, on a different device from its registered tensors."""
    call = failure.failing
    own = _held(failure)[1]
    if call is None:
        return ""
    for name, value in stores.contents(call.module).items():
        if name not in stores.STANDARD and issubclass(type(value), Tensor) and own and _device(value) != own:
            return f"{call.place}.{name}" if call.place else str(name)
    return ""


def _meta(failure: Failure, given: str, own: str) -> Cause:
    model = code_fixes.name_of_root(failure)
    if own == "meta" and given != "meta":
        return Cause(
            f"{failure.subject} is on the meta device: its weights have shapes but no numbers.",
            f"{failure.stopped}the input is on {given or 'cpu'}.",
            "weights on meta",
            (("input", given), ("weights", own)),
            (
                Fix(
                    "Give them memory, then values:",
                    f"{model}.to_empty(device={given or 'cpu'!r})\n{model}.load_state_dict(torch.load('weights.pt'))",
                ),
                Fix("Or fill them while reading:", f"{model}.load_state_dict(torch.load('weights.pt'), assign=True)"),
            ),
        )
    hidden = unregistered.of_module(failure) if given == "meta" else None
    if hidden is not None:
        return Cause(
            f"{failure.subject} got a tensor on the meta device, but has its weights on {own or 'cpu'}.",
            f"{failure.stopped}PyTorch does not see {hidden.named}: moving the model does not move it.",
            "input on meta",
            (("input", given), ("weights", own or "cpu")),
            (hidden.fix("Register it, before the model is moved"),),
        )
    if given == "meta":
        return Cause(
            f"{failure.subject} got a tensor on the meta device, which has a shape but no numbers.",
            f"{failure.stopped}its weights are on {own or 'cpu'}.",
            "input on meta",
            (("input", given), ("weights", own or "cpu")),
            (
                Fix("For shapes alone, put the model there too:", f"{model}.to('meta')"),
                Fix("For numbers, make the input on a real device:", "torch.randn(..., device='cpu')"),
            ),
        )
    facts = tuple((o.text, _device(o.thing)) for o in failure.tensors[:4])
    return Cause(
        f"A tensor on the meta device meets one that has numbers{failure.within}.", "Meta tensors have only shapes.", "meta ≠ cpu", facts
    )


def _no_data(failure: Failure, match: re.Match[str]) -> Cause:
    if failure.module is not None and any(frame.function in ("to", "_apply", "cuda", "cpu") for frame in failure.frames):
        model = code_fixes.name_of_root(failure).removesuffix(".to")
        place = failure.failing.place if failure.failing is not None and _has_numbers(failure) else ""
        part = f".get_submodule({place!r})" if place else ""
        rest = "" if not part else " alone: the rest of the model has its numbers"
        return Cause(
            f"{failure.subject} is on the meta device: there are no numbers to move.",
            "Its weights have only shapes and dtypes.",
            "no data",
            (("weights", "meta"),),
            (
                Fix(
                    f"Give them memory{rest} (the values are then arbitrary), and load or initialize them:",
                    f"{model}{part}.to_empty(device={_wanted(failure)!r})",
                ),
            ),
        )
    name = next((o.text for o in failure.tensors if _device(o.thing) == "meta"), "The tensor")
    return Cause(
        f"{name} is on the meta device: it has no numbers to read{failure.within}.",
        "skip_init and torch.device('meta') run constructors this way: reading a value there fails."
        if failure.module is not None
        else "It has only a shape and a dtype.",
        "no number",
        ((name, "meta"),),
        (Fix("Make it on a real device:", "torch.zeros(..., device='cpu')"),),
    )


def _wanted(failure: Failure) -> str:
    """Where the model should move."""
    to = next((frame.names.get("device") for frame in failure.frames if frame.is_torch and frame.function == "to"), None)
    if type(to) is torch.device:
        return str(to)
    return "cuda" if any(frame.is_torch and frame.function == "cuda" for frame in failure.frames) else "cpu"


def _has_numbers(failure: Failure) -> bool:
    """Whether other parts of the model are on a real device: to_empty() would take their values."""
    root = failure.root.module if failure.root is not None else None
    return root is not None and any(
        not tensor.is_meta for _, module in suspects.walk(root, _LOOKED) for _, tensor in stores.named_tensors(module)
    )


def _lazy(failure: Failure, match: re.Match[str]) -> Cause:
    names = [f"{name}.{inner}" for name, model in failure.models for inner in _lazy_in(model)]
    subject = names[0] if names else "A parameter"
    model = failure.models[0][0] if failure.models else "model"
    return Cause(
        f"{subject} is lazy: it has no shape before the first forward pass.",
        f"{len(names)} parameters are." if len(names) > 1 else "",
        "no shape yet",
        tuple((name, "lazy") for name in names[:8]),
        (Fix("Run one batch through the model first; then count, initialize, load or share:", f"{model}(torch.zeros(batch, ...))"),),
    )


def _lazy_in(model: Module) -> list[str]:
    found, stack, looked = [], [("", model)], 0
    while stack and looked < _LOOKED:
        path, module = stack.pop()
        looked += 1
        prefix = path + "." if path else ""
        found += [prefix + name for name, tensor in stores.named_tensors(module) if is_lazy(tensor)]
        stack += [(prefix + name, child) for name, child in reversed(stores.named_children(module)) if child is not None]
    return found


def _no_cuda(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        "This PyTorch is built without CUDA: there is no GPU for it here.",
        "",
        "",
        (("device", "cuda"),),
        (Fix("Use what is available:", "device = 'cuda' if torch.cuda.is_available() else 'cpu'"),),
    )


def _no_driver(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        "PyTorch finds no NVIDIA driver, or no GPU.",
        "",
        "",
        (("device", "cuda"),),
        (Fix("Use what is available:", "device = 'cuda' if torch.cuda.is_available() else 'cpu'"),),
    )


def _saved_elsewhere(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        "The file holds tensors from a GPU, but there is none here.",
        "",
        "",
        (("device", "cuda"),),
        (Fix("Read them onto the CPU:", "torch.load(path, map_location='cpu')"),),
    )


def _assertion(failure: Failure, match: re.Match[str]) -> Cause:
    return Cause(
        f"A check on the GPU failed{failure.within}: nearly always an index or a class number out of range.",
        "The GPU reports late, so the line in the traceback may be a later one, and this process can no longer use it.",
        "a check on the GPU failed",
        (),
        (
            Fix("Restart the kernel and run the same on the CPU; there the error says what and where:", "model.cpu()(x.cpu())"),
            Fix("Or wait for each step; set this before importing torch:", "os.environ['CUDA_LAUNCH_BLOCKING'] = '1'"),
        ),
    )


def _to_numpy(failure: Failure, match: re.Match[str]) -> Cause:
    device = match[1]
    name = failure.tensors[0].text if failure.tensors else "The tensor"
    fix = (
        Fix("", f"{name if failure.tensors else 'x'}.detach().cpu().numpy()")
        if device != "meta"
        else Fix("Make it on a real device:", "torch.zeros(..., device='cpu')")
    )
    return Cause(
        f"{name} is on {device.partition(':')[0]}, but NumPy can read only the CPU's memory{failure.within}.",
        "",
        f"on {device}",
        ((name, device),),
        (fix,),
    )


def _types(failure: Failure, match: re.Match[str]) -> Cause | None:
    """Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor)."""
    sides = ["cuda" if "cuda" in word.lower() else "cpu" for word in match.groups()]
    if sides[0] == sides[1]:
        return None
    model = code_fixes.name_of_root(failure)
    return Cause(
        f"{failure.subject or 'The layer'} got its input on {sides[0]} but has its weights on {sides[1]}.",
        failure.stopped + "they must be on one device.",
        f"{sides[0]} ≠ {sides[1]}",
        (("input", sides[0]), ("weights", sides[1])),
        (
            Fix("Move the input to the model's device:", f"x = x.to({sides[1]!r})"),
            Fix("Or the model, once, before the loop:", f"{model}.to({sides[0]!r})"),
        ),
    )


_GPUS = ("gpu", "nvidia", "amd", "rocm")
_COMMON = ("cpu", "cuda", "mps", "meta")


def _no_such(failure: Failure, match: re.Match[str]) -> Cause:
    """``.to('gpu')``: a kind of device that PyTorch does not have."""
    word = match[1]
    kind = word.lower()
    fix = Fix("Use one of them.")
    if kind in _GPUS:
        fix = _with_device(failure, word, "'cuda' if torch.cuda.is_available() else 'cpu'", "A GPU of NVIDIA or AMD is 'cuda'")
    elif close := get_close_matches(kind, _COMMON, 1, 0.75):
        fix = _with_device(failure, word, repr(close[0]), f"If {close[0]!r} was meant")
    return Cause(
        f"PyTorch has no device called {word!r}.",
        "The common ones are 'cpu', 'cuda' and 'mps'.",
        f"no device {word!r}",
        (("given", repr(word)),),
        (fix,),
    )


def _no_place(failure: Failure, match: re.Match[str]) -> Cause:
    """``'cuda:x'``: what follows the colon is not a number."""
    word = match[1]
    first = f"{word.partition(':')[0]}:0"
    return Cause(
        f"{word!r} is not a device: a number must follow the colon.",
        "The first one has number 0.",
        f"no device {word!r}",
        (("given", repr(word)),),
        (_with_device(failure, word, repr(first), "The first one"),),
    )


def _with_device(failure: Failure, word: str, new: str, said: str) -> Fix:
    """The statement with another device in it, where the word is written there, once; else the device alone."""
    statement = source_code.statement_of(failure.user) if failure.user is not None else None
    places = [node for node in ast.walk(statement) if isinstance(node, ast.Constant) and node.value == word] if statement else []
    if failure.user is None or len(places) != 1:
        return Fix(f"{said}:", f"device = {new}")
    return Fix(f"{said}:", source_code.rewritten(failure.user, places[0], ast.parse(new, mode="eval").body))


_R = (RuntimeError,)
_D = r"(\w+(?::\d+)?)"
RULES = (
    Rule("device", _R, rf"Expected all tensors to be on the same device, but found at least two devices, {_D} and {_D}!?", _mixed),
    Rule(
        "device",
        _R,
        rf"Expected all tensors to be on the same device, but got \w+ is on {_D}, different from other tensors on {_D}",
        _mixed,
    ),
    Rule(
        "device",
        _R,
        rf"Tensor (?:for .*?)?(?:is )?on (?:device )?{_D}(?:,)? (?:is not on the expected device|but expected (?:it"
        rf"|them) (?:to be )?on) {_D}",
        _mixed,
    ),
    Rule("device", _R, r"Input type \(([^)]+)\) and (?:bias|weight) type \(([^)]+)\) should be the same", _types),
    Rule(
        "meta", (RuntimeError, NotImplementedError), r"Cannot copy out of meta tensor; no data!|cannot be called on meta tensors", _no_data
    ),
    Rule("lazy", (RuntimeError, ValueError), r"uninitialized parameter|UninitializedParameter", _lazy),
    Rule("device", (AssertionError,), r"Torch not compiled with CUDA enabled", _no_cuda),
    Rule("device", _R, r"device-side assert triggered", _assertion),
    Rule("device", _R, r"Found no NVIDIA driver|No CUDA GPUs are available", _no_driver),
    Rule("device", _R, r"Attempting to deserialize object on a CUDA device but torch\.cuda\.is_available\(\) is False", _saved_elsewhere),
    Rule("device", _R, r"Expected one of cpu, .* device type at start of device string: (\S+)", _no_such),
    Rule("device", _R, r"^Invalid device string: '([^']+:[^']*)'", _no_place),
    Rule("device", (TypeError,), rf"can't convert {_D} device type tensor to numpy", _to_numpy),
)
