"""Looking where other threads are, as is done before a hook on all optimizers comes or goes."""

from __future__ import annotations

import subprocess
import sys

LOOKS = """
import gc, sys, threading, time
from modlab import compat

class Circle:
    def __init__(self):
        self.own = self
    def __del__(self):
        time.sleep(1e-4)  # lets other threads go on

def threads():
    while not done:
        one = threading.Thread(target=time.sleep, args=(1e-5,))
        one.start()
        one.join()

done = False
for _ in range(8):
    threading.Thread(target=threads, daemon=True).start()
sys.setswitchinterval(1e-5)
gc.set_threshold(3)
for _ in range(2000):
    Circle()
    assert isinstance(compat.other_threads(), list)
assert gc.isenabled()
done = True
"""


def test_no_collection_happens_while_it_is_asked_where_threads_are() -> None:
    """Up to Python 3.11 one that meets threads which come and go hangs for ever."""
    subprocess.run([sys.executable, "-c", LOOKS], check=True, timeout=100)
