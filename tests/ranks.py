"""Real processes for ranks: a function runs in each of them, in one gloo process group, and what it returns comes back."""

from __future__ import annotations

import faulthandler
import os
import queue
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.patience import PATIENCE

__all__ = ["PATIENCE", "run_ranks"]

# How a process that has run nothing yet is started: as a copy of one that has only imported torch, where there is such a thing.
_FRESH = "forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn"
if _FRESH == "forkserver":
    mp.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.tensor.parallel"])


def run_ranks(function: Callable[..., Any], world: int = 2, *args: Any, timeout: float = PATIENCE, group: bool = True) -> list[Any]:
    """Call ``function(rank, *args)`` in so many processes of one process group.

    Args:
        function: of a module's top level, since it is pickled; what it returns is pickled, too.
        world: how many processes.
        args: handed on.
        timeout: seconds until all are killed, which is a failure.
        group: whether they make a process group; without, they are just processes that may crash.

    Returns:
        What each rank returned, in the order of ranks.

    Raises:
        AssertionError: a rank raised (with its traceback), ended, or gave no answer (with the stacks of its threads).
    """
    context = mp.get_context(_FRESH)
    answers = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        started = [
            context.Process(target=_rank, args=(function, rank, world, folder, group, 0.9 * timeout, answers, args), daemon=True)
            for rank in range(world)
        ]
        for process in started:
            process.start()
        try:
            return _collected(answers, started, time.monotonic() + timeout, Path(folder))
        finally:
            for process in started:
                process.kill()
                process.join()


def _collected(answers: Any, started: list[Any], end: float, folder: Path) -> list[Any]:
    found: dict[int, Any] = {}
    while len(found) < len(started):
        try:
            rank, error, value = answers.get(timeout=0.2)
        except queue.Empty:
            dead = [(rank, one.exitcode) for rank, one in enumerate(started) if rank not in found and one.exitcode not in (None, 0)]
            assert not dead, f"ranks died (rank, exit code): {dead}"
            hang = sorted(set(range(len(started))) - set(found))
            assert time.monotonic() < end, f"ranks hang: {hang} gave no answer\n{_stacks(folder)}"
            continue
        assert not error, f"rank {rank} raised:\n{error}"
        found[rank] = value
    return [found[rank] for rank in range(len(started))]


def _stacks(folder: Path) -> str:
    return "\n".join(f"{one.stem}:\n{one.read_text()}" for one in sorted(folder.glob("*.stacks")))


def _rank(
    function: Callable[..., Any], rank: int, world: int, folder: str, group: bool, patience: float, answers: Any, args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    error, value = "", None
    stacks = Path(folder, f"rank {rank}.stacks").open("w")  # noqa: SIM115 - it is open as long as this process
    faulthandler.dump_traceback_later(patience, file=stacks)
    try:
        if group:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
            dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
        torch.manual_seed(0)
        value = function(rank, *args)
        if group:
            dist.barrier()  # nobody leaves while another still asks
            dist.destroy_process_group()
    except BaseException:  # noqa: BLE001 - the parent shows it
        error = traceback.format_exc()
    answers.put((rank, error, value))
    answers.close()
    answers.join_thread()
