"""A forked process for one measurement: it starts with the models already built, and its end undoes whatever the call did."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def run(function: Callable[[], Any], limit_s: int = 60) -> Any:
    """What `function` returns, by way of JSON; ``{"error": …}`` where it raises, crashes or takes longer than `limit_s` seconds."""
    sys.stdout.flush()
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        _answer(function, write, limit_s)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code == -signal.SIGALRM:
        return {"error": f"> {limit_s} s"}
    return json.loads(text) if text else {"error": f"exit code {code}"}


def _answer(function: Callable[[], Any], write: int, limit_s: int) -> None:
    """In the child: never returns, whatever happens."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        limit(limit_s)
        for stream in (1, 2):  # tools print
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        warnings.simplefilter("ignore")
        try:
            answer = function()
        except Exception as error:  # noqa: BLE001 - a crash of a tool is a result here
            answer = {"error": type(error).__name__}
        limit(0)
        os.write(write, json.dumps(answer).encode())
    finally:
        os._exit(0)


def limit(seconds: int) -> None:
    """In the child: end it so many seconds from here; 0 takes the limit away."""
    signal.alarm(seconds)  # of wall time: a limit of CPU time makes Linux's CPU clock coarse


def peak_of(call: Callable[[], Any]) -> tuple[Any, float | None]:
    """What the call returns, and by how many bytes the resident set grew at its peak; None where the system does not say (Linux does).

    Pages of files do not count: a forked process maps those of torch's libraries anew as it comes to them, and they
    are no memory of anybody's.
    """
    before = resident()
    try:
        CLEAR.write_text("5")
    except OSError:
        before = None
    if before is None:
        return call(), None
    answer = call()
    return answer, max(0, (_kib("VmHWM") - _kib("RssFile")) * 1024 - before)


def resident() -> int | None:
    """Bytes of the resident set without pages of files; None where the system does not say."""
    try:
        return (_kib("VmRSS") - _kib("RssFile")) * 1024
    except OSError:
        return None


def trim() -> None:
    """Let glibc give back what it keeps of freed memory."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def map_memory() -> None:
    """In the child: have glibc map each large block by itself, so that the resident set is what is in use, and no hole between blocks."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, 2**16)


def keep_memory() -> None:
    """In the child: let glibc keep what is freed.

    Else whether it gives the memory of activations back after each pass, and has it mapped anew in the next, hangs on what happens
    to lie above them; that is thousands of page faults, a third of a small network's pass, and has nothing to do with any tool.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ((TRIM_THRESHOLD, 2**31 - 1), (MMAP_THRESHOLD, 2**25)):
            mallopt(parameter, value)


def traced_peak_of(call: Callable[[], Any]) -> int:
    """Bytes that Python had allocated at the peak of the call, beyond what there was: exact, and several times slower."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _kib(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+)", STATUS.read_text())
    return int(found[1]) if found else 0
