"""An interrupt at any call or return inside of modlab, and after any call into C: one of them raised, and all that must be as before."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules

import modlab
from modlab import compat
from modlab.running import compile_warning, optimizer_hooks, recursion_limit
from modlab.watching import engine_calls, watcher

INSIDE = str(Path(modlab.__file__).parent)
ENDS = tuple(str(sys.modules[name].__file__) for name in ("torch.autograd.grad_mode", "contextlib"))
"""Files of contexts that are functions of Python, in which an interrupt may arrive as well: entered by us, they are places, too."""

Run = Callable[[], Any]
See = Callable[[FrameType, str], None]
After = Callable[["BaseException | None", bool], list[str]]
C = "c_return"  # after a call into C Python looks for an interrupt
THOROUGH = 4  # of so many copies one is asked all
LONG, SOON = 3600.0, 0.02  # seconds: after which one thread takes the interpreter from another; in which those that wait for it have had it


def places(run: Run, into_c: bool) -> list[int]:
    """Each call and return inside of modlab, by its turn: of those that came about in the same way the first and the last time.

    The same way is the same chain of functions of modlab's, each at the same spot. Of returns from C, which are asked for, the first time
    is enough.
    """
    turns: dict[tuple[Any, ...], list[int]] = {}
    count = 0

    def see(frame: FrameType, event: str) -> None:
        nonlocal count
        turns.setdefault((event, frame.f_lasti * (event == C), *_chain(frame)), []).append(count)
        count += 1

    error = _traced(run, see, into_c)
    assert error is None, error
    return sorted({some[i] for (event, *_), some in turns.items() for i in ((0,) if event == C else (0, -1))})


def _chain(frame: FrameType) -> list[tuple[CodeType, int]]:
    found = [(frame.f_code, 0)]
    outer = frame.f_back
    while outer is not None:
        if outer.f_code.co_filename.startswith(INSIDE):
            found.append((outer.f_code, outer.f_lasti))
        outer = outer.f_back
    return found


def names(run: Run) -> list[str]:
    """Each call and return, by its name."""
    found: list[str] = []
    error = _traced(run, lambda frame, event: found.append(name(frame, event)))
    assert error is None, error
    return found


def interrupted(run: Run, turn: int) -> BaseException | None:
    """Run with an interrupt at one call or return; gives what came out."""
    count = -1

    def see(frame: FrameType, event: str) -> None:
        nonlocal count
        count += 1
        if count == turn:
            raise KeyboardInterrupt(name(frame, event))

    return _traced(run, see)


def is_ours(frame: FrameType) -> bool:
    """Whether it is a function of modlab's, or the beginning or end of a context that one of them enters."""
    file, outer = frame.f_code.co_filename, frame.f_back
    return file.startswith(INSIDE) or (file in ENDS and outer is not None and outer.f_code.co_filename.startswith(INSIDE))


def _has_been_entered(frame: FrameType, event: str) -> bool:
    """Whether this is the end of an ``__enter__`` that a ``with`` of the user's called.

    No interrupt arrives there: Python looks for one where a function begins and where a loop turns.
    """
    return event == "return" and frame.f_code.co_name == "__enter__" and len(_chain(frame)) == 1


def name(frame: FrameType, event: str) -> str:
    """How a place is told."""
    code = frame.f_code
    return f"{event} of {code.co_filename.removeprefix(INSIDE)}:{code.co_firstlineno} {code.co_qualname}"


def everywhere(run: Run, turns: Collection[int], after: After, again: Callable[[int], bool] | None = None) -> list[str]:
    """Run once; at each of these turns a copy of this process is interrupted there, and tells what is wrong afterwards.

    Args:
        run: what is interrupted.
        turns: calls and returns, see `places`.
        after: gets what came out, and whether all is asked, as one in `THOROUGH` copies is; gives what is not as it should be.
        again: whether a second interrupt comes so many calls and returns after the first one; each of them in a copy of its own. Then
            `turns` are without calls into C: raising after one of them, Python ends the profile that the second needs.

    Returns:
        What is wrong, each with the place.
    """
    wrong: list[str] = []
    wanted, turn, told, copies = set(turns), -1, -1, 0

    def second(where: str) -> Callable[[FrameType, str, Any], None]:
        count = -1

        def profile(frame: FrameType, event: str, _: Any) -> None:
            nonlocal count, copies, told
            if event in ("call", "return") and is_ours(frame):
                count += 1
                if again is not None and again(count):
                    copies += 1
                    if (to := _copied(wrong)) is None:
                        return
                    told = to
                    sys.setprofile(None)
                    raise KeyboardInterrupt(f"{where}, then {name(frame, event)}")

        return profile

    def see(frame: FrameType, event: str) -> None:
        nonlocal copies, turn, told
        turn += 1
        if turn in wanted and not _has_been_entered(frame, event):
            copies += 1
            if (to := _copied(wrong)) is None:
                return
            told = to
            sys.settrace(None)
            sys.setprofile(None if again is None else second(name(frame, event)))
            raise KeyboardInterrupt(name(frame, event))

    with _alone():
        error = _traced(run, see, into_c=again is None)
    sys.setprofile(None)
    if told < 0:
        return wrong if error is None else [*wrong, f"without an interrupt: {error!r}"]
    try:
        found = after(error, copies % THOROUGH == 0)
    except BaseException:  # noqa: BLE001 - it is told
        found = [traceback.format_exc()]
    wrong[:0] = [f"{error}: {one}" for one in found]
    with os.fdopen(told, "wb") as out:
        pickle.dump(wrong, out)
    os._exit(0)


@contextmanager
def _alone() -> Iterator[None]:
    """No other thread asks for the interpreter while this one runs: a copy that was made at that moment would wait for it for ever."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(LONG)
    time.sleep(SOON)  # who waits already has asked, and now waits as long
    try:
        yield
    finally:
        sys.setswitchinterval(before)


_FORK = ctypes.PyDLL(None).fork if hasattr(os, "fork") else None  # not `os.fork`, after which a watch in the copy knows that it is one


def _copied(wrong: list[str]) -> int | None:
    """In a copy of this process, where it is to tell; in this one nothing, when that one has told."""
    assert _FORK is not None
    ours, theirs = os.pipe()
    child = _FORK()
    if not child:
        os.close(ours)
        wrong.clear()
        return theirs
    os.close(theirs)
    with os.fdopen(ours, "rb") as told:
        heard = told.read()
    status = os.waitpid(child, 0)[1]
    wrong += pickle.loads(heard) if heard else [f"a copy ended with {status}"]
    return None


def interrupted_in_c(run: Run, there: Callable[[FrameType], bool]) -> BaseException | None:
    """Run with an interrupt after the first call of a function of C in such a frame, where Python looks for one; gives what came out."""

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == C and there(frame):
            raise KeyboardInterrupt(f"{event} in {name(frame, event)}")

    sys.setprofile(profile)
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - it is given back
        return error
    finally:
        sys.setprofile(None)
    return None


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


def _traced(run: Run, see: See, into_c: bool = False) -> BaseException | None:
    def outer(frame: FrameType, event: str, _: Any) -> Any:
        if not is_ours(frame):
            return None
        see(frame, "call")
        frame.f_trace_lines = False
        return inner

    def inner(frame: FrameType, event: str, _: Any) -> Any:
        if event == "return":
            see(frame, "return")
        return inner

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == C and is_ours(frame):
            see(frame, event)

    before = sys.gettrace()
    sys.settrace(outer)
    sys.setprofile(profile if into_c else None)
    try:
        run()
    except BaseException as error:  # noqa: BLE001 - it is given back
        return error
    finally:
        sys.setprofile(None)
        sys.settrace(before)
    return None


def state(model: nn.Module) -> dict[str, Any]:
    """All of a model that a look which runs it must leave as it was."""
    found = at_rest(model)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found[name] = id(tensor), tensor.requires_grad, _bits(tensor), tensor._version, tensor._backward_hooks is None
        found[f"{name}.grad"] = (id(tensor.grad), _bits(tensor.grad)) if tensor.grad is not None else None
    found["random"] = torch.get_rng_state().numpy().tobytes()
    return found


def at_rest(model: nn.Module) -> dict[str, Any]:
    """What a look at a training must leave as it was: modes and hooks of the model, and what is global."""
    found = surroundings()
    for path, module in model.named_modules():
        found[f"{path} training"] = module.training
        found[f"{path} hooks"] = [[*map(id, held.values())] for name, held in vars(module).items() if name.endswith("_hooks")]
        found[f"{path} names"] = [*vars(module)], [*module._parameters], [*module._buffers]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found[f"{name} hooks"] = [len(held) for _, held in compat.tensor_hooks(tensor)]
    return found


_ROOMS = (
    torch.autograd,
    torch.autograd.graph,
    torch.nn.utils.clip_grad,
    torch.overrides,
    modules,
    sys.modules[torch.optim.Optimizer.__module__],
    nn.Module,
    torch.optim.Optimizer,
    Tensor,
)


def surroundings() -> dict[str, Any]:
    """What is global: modes, hooks, names of torch's, filters, the recursion limit, threads, files, locks of ours."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "limit": sys.getrecursionlimit(),
        "modes": [len(some) for some in compat.modes()],
        "functions": torch._C._is_torch_function_enabled(),
        "stdout": id(sys.stdout),
        "stderr": id(sys.stderr),
        "saved": len(compat.saved_tensor_hooks()),
        "filters": list(map(str, warnings.filters)),
        "showwarning": id(warnings.showwarning),
        "warn always": torch.is_warn_always_enabled(),
        "hooks of all": {name: [*held] for name, held in _names().items() if "._global_" in name and isinstance(held, dict)},
        "names": {name: id(held) for name, held in _names().items()},
        "threads": threading.active_count(),
        "files": _files(),
        "signal": signal.getsignal(signal.SIGINT),
        "profile": sys.getprofile(),
        "open": [len(room._open) for room in (recursion_limit, compile_warning, engine_calls, optimizer_hooks)],
        "watchers": len(watcher.watchers),
        "locks": [room._lock._is_owned() for room in (recursion_limit, compile_warning, engine_calls, optimizer_hooks)],
    }


def _names() -> dict[str, Any]:
    return {f"{room.__name__}.{name}": held for room in _ROOMS for name, held in vars(room).items()}


def _files() -> int:
    """How many are open; pipes are those by which copies tell."""
    room = "/proc/self/fd"
    links = (f"{room}/{one}" for one in os.listdir(room)) if os.path.isdir(room) else ()
    return sum(os.path.exists(one) and not os.readlink(one).startswith("pipe:") for one in links)


def _bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """What is not as it was."""
    return [f"{name}: {_told(before.get(name), after.get(name))}" for name in {**before, **after} if before.get(name) != after.get(name)]


def _told(before: Any, after: Any) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        return str({name: (before.get(name), after.get(name)) for name in {**before, **after} if before.get(name) != after.get(name)})[:300]
    return f"{before!r:.100} → {after!r:.100}"
