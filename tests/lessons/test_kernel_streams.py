"""A real kernel with two processes beside it: every message on its socket is whole, also while it shuts down and under load."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE

zmq = pytest.importorskip("zmq")
manager = pytest.importorskip("jupyter_client.manager")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are counted by signals here")

ROOT = Path(__file__).resolve().parents[2]
DELIMITER = b"<IDS|MSG>"
BUSY = 7
REPEATS = 50
KERNELS = 5
SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))\n"
BEGIN = """
import os, sys, threading
from ipykernel.iostream import IOPubThread
from modlab.lessons import workers
writers = set()
def spied(thread, *args, seen=writers, real=IOPubThread._really_send, now=threading.current_thread, **options):
    seen.add(now().name)
    return real(thread, *args, **options)
IOPubThread._really_send = spied
"""
PAIR = """
pair = workers.Pair()
for i in range(20):
    print("error", i, file=sys.stderr)
print(pair(workers.reduced), len(pair(workers.by_hand, steps=2)))
os.write(2, b"from below\\n")
for i in range(20):
    print("error", i, file=sys.stderr, flush=True)
print(sorted(writers))
import psutil
print("in its group:", [one for one in psutil.Process().children(recursive=True) if os.getpgid(one.pid) == os.getpgrp()])
"""


class Kernel:
    """A kernel, and all that it sends on its iopub socket, as it comes over the wire."""

    def __init__(self, folder):
        self.log = (folder / f"kernel{time.monotonic_ns()}.txt").open("w+")
        self.manager = manager.KernelManager()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        environment.pop("PYTEST_CURRENT_TEST", None)  # with it ipykernel leaves the descriptors alone
        self.manager.start_kernel(env=environment, cwd=str(folder), stderr=self.log, stdout=subprocess.DEVNULL)
        self.messages, self._done = [], threading.Event()
        port = self.manager.get_connection_info()["iopub_port"]
        self._listener = threading.Thread(target=self._listen, args=(port,))
        self._listener.start()
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE)

    def _listen(self, port):
        context = zmq.Context()
        socket = context.socket(zmq.SUB)
        socket.subscribe(b"")
        socket.connect(f"tcp://127.0.0.1:{port}")
        while not self._done.is_set() or socket.poll(200):
            if socket.poll(50):
                self.messages.append(socket.recv_multipart())
        context.destroy(linger=0)

    def run(self, code):
        reply = self.client.execute_interactive(code, timeout=PATIENCE, output_hook=lambda _: None)
        assert reply["content"]["status"] == "ok", reply["content"]

    def end(self):
        """Shut it down as JupyterLab does; how long that took, and what it said on its own error stream."""
        start = time.monotonic()
        self.client.stop_channels()
        self.manager.shutdown_kernel()
        took = time.monotonic() - start
        self._done.set()
        self._listener.join()
        self.log.seek(0)
        said = self.log.read()
        self.log.close()
        return took, said


def is_whole(parts):
    """Whether these are the frames of one message, each of the four that are JSON such."""
    if parts.count(DELIMITER) != 1:
        return False
    try:
        header, *_, content = [json.loads(part) for part in parts[parts.index(DELIMITER) + 2 :][:4]]
    except ValueError:
        return False
    return "msg_type" in header and isinstance(content, dict) and len(parts) - parts.index(DELIMITER) >= 6


def broken(kernel):
    return [parts for parts in kernel.messages if not is_whole(parts)]


def printed(kernel):
    found = [json.loads(parts[-1]) for parts in kernel.messages if parts[0] == b"stream.stdout"]
    return "".join(one["text"] for one in found)


@pytest.mark.parametrize("closed", [pytest.param(True, marks=pytest.mark.long), False], ids=["closed", "left open"])
def test_a_kernel_with_two_processes_waits_for_none_of_them(tmp_path, closed):
    """When it shuts down it ends those of its group; waiting for what no signal ends, two of its threads wrote on one socket."""
    kernel = Kernel(tmp_path)
    try:
        kernel.run(BEGIN)
        kernel.run(PAIR + ("pair.close()\n" if closed else ""))
    finally:
        _, said = kernel.end()
    assert not broken(kernel) and len(kernel.messages) > 10
    assert "['IOPub']" in printed(kernel) and "in its group: []" in printed(kernel)
    assert "Traceback" not in said and "Exception" not in said, said


@pytest.mark.long  # minutes: it is about load
def test_every_message_is_whole_under_load(tmp_path):
    busy = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(BUSY)]
    found, count = [], 0
    try:
        for number in range(KERNELS):
            kernel = Kernel(tmp_path)
            try:
                kernel.run(BEGIN)
                for i in range(REPEATS // KERNELS):
                    last = i + 1 == REPEATS // KERNELS
                    kernel.run(PAIR + ("" if last and number % 2 else "pair.close()\n"))
            finally:
                _, said = kernel.end()
            found += broken(kernel)
            count += len(kernel.messages)
            assert "Traceback" not in said, said
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert count > 5 * REPEATS and found == []
