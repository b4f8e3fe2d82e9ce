"""Two processes that train together: what lesson 15 runs beside the notebook.

A process that is started anew imports its code and cannot see a notebook's cells; so what the two are to do stands here.
"""

from __future__ import annotations

import multiprocessing.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import connection, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import modlab
from modlab.errors import ModlabError
from modlab.lessons.note import Net

SIZE = 2
PATIENCE_S = 240.0
"""How long an answer may take: a slow and busy machine needs minutes to import PyTorch."""

Work = Callable[..., Any]
State = dict[str, Tensor]


# ---- what the processes do ------------------------------------------------------------------------


def reduced(rank: int) -> float:
    """Process 0 brings a 1, process 1 a 3."""
    number = torch.tensor(1.0 + 2 * rank)
    dist.all_reduce(number)
    return number.item()


def average(net: nn.Module) -> None:
    """Replace each gradient by the mean over all processes."""
    for parameter in net.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)  # the sum over all processes
        parameter.grad /= dist.get_world_size()


def by_hand(rank: int, steps: int = 30, together: bool = True) -> dict[str, Any]:
    """Train on the data of this process."""
    net, optimizer = prepared()
    seen: dict[str, Any] = {"own": [], "used": [], "weight": []}
    for x in batches(rank, steps):
        optimizer.zero_grad()
        net(x).abs().mean().backward()
        seen["own"].append(net.l1.weight.grad[0].item())
        if together:
            average(net)
        seen["used"].append(net.l1.weight.grad[0].item())
        optimizer.step()
        seen["weight"].append(net.l1.weight[0].item())
    return seen | {"state": taken(net)}


def with_ddp(rank: int, steps: int = 30) -> dict[str, Any]:
    """Train in the wrapper: no line says anything of the other process."""
    net, optimizer = prepared()
    ddp = DistributedDataParallel(net)
    for x in batches(rank, steps):
        optimizer.zero_grad()
        ddp(x).abs().mean().backward()
        optimizer.step()
    return {"state": taken(net)}


def wrapped(rank: int) -> dict[str, Any]:
    """Wrap a net that each process draws for itself."""
    torch.manual_seed(rank)
    net = Net()
    drawn = taken(net)
    ddp = DistributedDataParallel(net)
    return {"drawn": drawn, "wrapped": taken(net), "saved": taken(ddp), "tree": modlab.tree(ddp)}


def with_statistics(rank: int, steps: int = 3) -> dict[str, Any]:
    """Train a net with running statistics in the wrapper."""
    net = normalised()
    ddp = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for x in batches(rank, steps):
        optimizer.zero_grad()
        ddp(x).abs().mean().backward()
        optimizer.step()
    return {"state": taken(net)}


def uneven(rank: int, patience: float = 1.0) -> str:
    """Process 0 has two batches, process 1 has one; the group is of no use afterwards."""
    dist.all_reduce(torch.ones(1))  # step 1: both have a batch
    if rank == 1:
        return "ready after step 1"
    second = dist.all_reduce(torch.ones(1), async_op=True)
    try:
        second.wait(timedelta(seconds=patience))
    except RuntimeError:
        return "in step 2 nobody came, gave up"
    return "ready after step 2"


# ---- what they share ------------------------------------------------------------------------------


def prepared() -> tuple[Any, torch.optim.Optimizer]:
    """The same net in each process, and its optimizer."""
    torch.manual_seed(0)
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)


def normalised() -> nn.Module:
    """A net with state that no optimizer moves."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1))


def batches(rank: int, steps: int) -> Iterator[Tensor]:
    """The data of a process; the other's are others."""
    numbers = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        yield torch.randn(8, 4, generator=numbers)


def taken(module: nn.Module) -> State:
    """A copy of a module's state; `state_dict()` itself holds the live tensors."""
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


# ---- how they are run -----------------------------------------------------------------------------


class WorkersError(ModlabError, RuntimeError):
    """One of the processes raised, ended, or gave no answer in time; both are stopped."""


class Pair:
    """Two processes on one CPU, in one group (gloo), that wait for work; they are started at the first.

    Args:
        patience: seconds that an answer may take.

    Each call runs a function of this file in both, and gives both results in the order of their ranks:
    ``pair(by_hand, steps=3)``. `close` ends them, and so does the end of the notebook.
    """

    def __init__(self, patience: float = PATIENCE_S) -> None:
        self._patience = patience
        self._processes: list[BaseProcess] = []
        self._pipes: list[connection.Connection] = []
        self._end: Callable[[], object] = lambda: None

    def __call__(self, work: Work, /, **options: Any) -> list[Any]:
        """Run a function in both.

        Args:
            work: of an importable module; it gets its rank, 0 or 1, and the options.
            **options: plain values or tensors.

        Raises:
            WorkersError: it lies in a notebook, cannot be sent, raised, or gave no answer in time.
        """
        if getattr(work, "__module__", "__main__") == "__main__":
            raise WorkersError("A new process cannot see a notebook's cells: put the function into a file, and import it.")
        try:
            message = pickle.dumps((work, options))
        except Exception as error:
            raise WorkersError(
                f"This cannot be sent to a new process ({error}): pass a function from the top level of a file, and plain values."
            ) from error
        try:
            if not self._processes:
                self._start()
            for pipe in self._pipes:
                pipe.send_bytes(message)
            return self._answers()
        except OSError as error:
            self.close()
            raise WorkersError(f"A process has ended, or could not be started: {error}") from error
        except BaseException:  # ■ too
            self.close()
            raise

    def _start(self) -> None:
        # On Linux the two are forked from one small process that has imported PyTorch, which halves time and memory.
        context: Any = get_context("forkserver" if sys.platform == "linux" else "spawn")
        if sys.platform == "linux":
            context.set_forkserver_preload([__name__, "torch._dynamo"])
        folder = tempfile.TemporaryDirectory(prefix="modlab-pair-", ignore_cleanup_errors=True)
        self._end = weakref.finalize(self, _ended, self._processes, self._pipes, folder)  # before the first, as ■ may come at any time
        with _apart():
            for rank in range(SIZE):
                here, there = context.Pipe()
                self._pipes.append(here)
                with there:
                    process = context.Process(target=_serve, args=(rank, folder.name, there), daemon=True)
                    process.start()
                self._processes.append(process)

    def _answers(self) -> list[Any]:
        found: dict[int, Any] = {}
        deadline = monotonic() + self._patience
        while len(found) < SIZE:
            open_pipes = [pipe for rank, pipe in enumerate(self._pipes) if rank not in found]
            ready = connection.wait(open_pipes, max(0.0, deadline - monotonic()))
            if not ready:
                late = " and ".join(str(rank) for rank in range(SIZE) if rank not in found)
                raise WorkersError(f"No answer from process {late} within {self._patience:g} seconds; both are stopped.")
            for pipe in ready:
                rank = self._pipes.index(pipe)  # type: ignore[arg-type]
                try:
                    fine, found[rank] = pickle.loads(self._pipes[rank].recv_bytes())
                except EOFError as error:
                    raise WorkersError(f"Process {rank} ended without an answer; both are stopped.") from error
                except OSError:
                    raise
                except Exception as error:
                    raise WorkersError(f"The answer of process {rank} cannot be read here ({error}); both are stopped.") from error
                if not fine:
                    raise WorkersError(f"Process {rank} raised {found[rank]}; both are stopped.")
        return [found[rank] for rank in range(SIZE)]

    def close(self) -> None:
        """End both; a later call starts new ones."""
        self._end()
        self._processes, self._pipes, self._end = [], [], lambda: None

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "two processes, running" if self._processes else "two processes, not started"


_servers: list[Any] = []  # what multiprocessing waits for itself: nobody else is to


@contextmanager
def _apart() -> Iterator[None]:
    """The programs that multiprocessing starts meanwhile are in a process group of their own, and what they say is not shown.

    A kernel that shuts down ends all processes of its group, one after the other, and its tracker of shared memory does not end by a
    signal; waiting for it the kernel's threads go on one by one, and two of them then write on the socket of its output at once. And what
    the server of forks says while it imports comes from another thread into that output. They all end when this process does.
    """
    util: Any = multiprocessing.util
    real = getattr(util, "spawnv_passfds", None)
    if sys.platform == "win32" or real is None:
        yield
        return

    def spawned(path: Any, args: Any, fds: Any) -> int:
        said = None if any("resource_tracker" in os.fsdecode(one) for one in args) else subprocess.DEVNULL  # that one serves all
        process = subprocess.Popen(args, executable=path, pass_fds=fds, process_group=0, stdout=said, stderr=said)
        process.returncode = 0  # so that nobody but multiprocessing asks after it
        _servers.append(process)
        return process.pid

    util.spawnv_passfds = spawned
    try:
        yield
    finally:
        util.spawnv_passfds = real


def _ended(processes: list[BaseProcess], pipes: list[connection.Connection], folder: tempfile.TemporaryDirectory[str]) -> None:
    """A closed pipe is the sign to go; who waits for the other is ended."""
    for pipe in pipes:
        pipe.close()
    deadline = monotonic() + 2
    for process in processes:
        process.join(max(0.0, deadline - monotonic()))
        if process.is_alive():
            process.kill()
            process.join(5)
    folder.cleanup()


def _serve(rank: int, folder: str, pipe: connection.Connection) -> None:
    """What a process does until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ■ is for the notebook, which ends both
    Thread(target=_follow, args=(folder,), daemon=True).start()
    _be_quiet()
    torch.set_num_threads(1)
    try:
        store = dist.FileStore(str(Path(folder, "meeting")), SIZE)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=timedelta(seconds=PATIENCE_S))
        while True:
            work, options = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(pickle.dumps((True, work(rank, **options))))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except Exception as error:  # noqa: BLE001 - whatever it is, the notebook is told
        pipe.send_bytes(pickle.dumps((False, f"{type(error).__name__}: {error}")))
    finally:
        pipe.close()
        if dist.is_initialized():
            dist.destroy_process_group()


def _follow(folder: str) -> None:
    """Where the notebook's process is killed, this one ends too, whatever it waits for, and no file is left."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _be_quiet() -> None:
    """Gloo says whom it is connected with, and a notebook would show it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
