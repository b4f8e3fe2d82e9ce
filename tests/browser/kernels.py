"""Fresh kernels without the seconds that importing torch takes: one process has imported it, and each kernel is a copy of that.

JupyterLab starts this file in a kernel's place. It hands its streams and variables to the process that makes copies, passes signals on
to the copy, and ends with it. Nothing of modlab is imported before.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

PIECE = 1 << 16
STREAMS = 0, 1, 2


@contextlib.contextmanager
def server(folder: Path) -> Iterator[dict[str, str]]:
    """Run the process that makes copies.

    Args:
        folder: gets its socket, and the description of the kernel that JupyterLab takes for "python3".

    Yields:
        Variables for JupyterLab; none where a process that has loaded much cannot be copied, and kernels begin as everywhere.
    """
    if sys.platform != "linux":
        yield {}
        return
    address = folder / "kernels.socket"
    described = folder / "jupyter" / "kernels" / "python3"
    described.mkdir(parents=True)
    command = [sys.executable, "-I", "-S", __file__, str(address), "{connection_file}"]
    (described / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.fspath(address))
    listening.listen()
    process = subprocess.Popen([sys.executable, __file__, str(listening.fileno())], pass_fds=(listening.fileno(),))
    listening.close()
    try:
        yield {"JUPYTER_PATH": str(folder / "jupyter")}
    finally:
        process.kill()
        process.wait()


def make_copies(listening: socket.socket) -> None:
    """Import what takes long, and become a kernel for each that asks."""
    del sys.path[0]  # this folder, with files that have others' names
    import ipykernel.kernelapp
    import torch  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # copies that have ended leave nothing
    while True:
        asked, _ = listening.accept()
        if os.fork():
            asked.close()
            continue
        listening.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        wanted = _received(asked)
        os.setsid()
        os.chdir(wanted["folder"])
        os.environ.clear()
        os.environ.update(wanted["environment"])
        asked.sendall(str(os.getpid()).encode())
        threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
        ipykernel.kernelapp.launch_new_instance(argv=["-f", wanted["file"]])
        os._exit(0)


def _received(asked: socket.socket) -> dict[str, object]:
    """What a kernel is to be, when its streams have taken the places of this process's."""
    size = int.from_bytes(asked.recv(8, socket.MSG_WAITALL))
    text, streams, _, _ = socket.recv_fds(asked, PIECE, len(STREAMS))
    while len(text) < size:
        text += asked.recv(PIECE)
    for place, stream in zip(STREAMS, streams, strict=True):
        os.dup2(stream, place)
        os.close(stream)
    return json.loads(text)


def _end_with(asked: socket.socket) -> None:
    """JupyterLab has killed what stands in this kernel's place."""
    asked.recv(1)
    os._exit(1)


def stand_in(address: str, file: str) -> None:
    """Ask for a kernel, and be what JupyterLab takes for it."""
    asked = socket.socket(socket.AF_UNIX)
    asked.connect(address)
    text = json.dumps({"file": file, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    asked.sendall(len(text).to_bytes(8))
    asked.sendall(text[socket.send_fds(asked, [text], STREAMS) :])
    kernel = int(asked.recv(PIECE))
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda number, _: os.kill(kernel, number))
    asked.recv(1)  # nothing comes: it ends when the kernel has ended


if __name__ == "__main__":
    if len(sys.argv) == 2:
        make_copies(socket.socket(fileno=int(sys.argv[1])))
    else:
        stand_in(*sys.argv[1:])
