"""An interrupt at any call or return inside of modlab: where they are, one of them raised, and all that must be as it was afterwards."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules

import modlab
from modlab import compat

INSIDE = str(Path(modlab.__file__).parent)

Run = Callable[[], Any]


def events(run: Run) -> list[tuple[str, int, str]]:
    """Each call and return inside of modlab, in order: file, first line of the function, and "call" or "return"."""
    found: list[tuple[str, int, str]] = []
    _traced(run, lambda place: found.append(place))
    return found


def places(run: Run) -> list[int]:
    """Of each call and return the first, a middle and the last time, by their turns."""
    turns: dict[tuple[str, int, str], list[int]] = {}
    for turn, place in enumerate(events(run)):
        turns.setdefault(place, []).append(turn)
    return sorted({some[i] for some in turns.values() for i in (0, len(some) // 2, -1)})


def interrupted(run: Run, at: int) -> BaseException | None:
    """Run with an interrupt at one turn; gives what came out."""
    count = -1

    def see(place: tuple[str, int, str]) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise KeyboardInterrupt(f"at {place}")

    return _traced(run, see)


def interrupted_after(run: Run, seconds: float) -> BaseException | None:
    """Run with a true interrupt after a time; gives what came out, once no other can come any more."""
    raised: BaseException | None = None
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        run()
    except BaseException as error:  # noqa: BLE001 - it is given back
        raised = error
    finally:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
                break
            except KeyboardInterrupt as error:
                raised = error
    return raised


def _traced(run: Run, see: Callable[[tuple[str, int, str]], None]) -> BaseException | None:
    def outer(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(INSIDE):
            return None
        see((code.co_filename[len(INSIDE) + 1 :], code.co_firstlineno, "call"))
        frame.f_trace_lines = False
        return inner

    def inner(frame: FrameType, event: str, _: Any) -> Any:
        if event == "return":
            see((frame.f_code.co_filename[len(INSIDE) + 1 :], frame.f_code.co_firstlineno, "return"))
        return inner

    before = sys.gettrace()
    sys.settrace(outer)
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - it is given back
        return error
    finally:
        sys.settrace(before)
    return None


def state(model: nn.Module) -> dict[str, Any]:
    """All that a look must leave as it was."""
    found: dict[str, Any] = {
        "grad": torch.is_grad_enabled(), "inference": torch.is_inference_mode_enabled(), "limit": sys.getrecursionlimit(),
        "random": torch.get_rng_state().numpy().tobytes(), "modes": [len(some) for some in compat.modes()], "stdout": id(sys.stdout),
        "filters": list(map(str, warnings.filters)), "warn always": torch.is_warn_always_enabled(),
        "hooks of all": [len(getattr(modules, name)) for name in dir(modules) if name.startswith("_global") and name.endswith("_hooks")],
    }  # fmt: skip
    for path, module in model.named_modules():
        found[f"{path} training"] = module.training
        found[f"{path} hooks"] = [[*map(id, held.values())] for name, held in vars(module).items() if name.endswith("_hooks")]
        found[f"{path} names"] = [*vars(module)], [*module._parameters], [*module._buffers]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found[name] = id(tensor), tensor.requires_grad, _bits(tensor), tensor._version, tensor._backward_hooks is None
        found[f"{name}.grad"] = (id(tensor.grad), _bits(tensor.grad)) if tensor.grad is not None else None
    return found


def _bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not as it was."""
    return [name for name in {**before, **after} if before.get(name) != after.get(name)]
