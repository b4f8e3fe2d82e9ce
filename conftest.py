"""The seed of all tests and of the examples in the docstrings, and who may run beside whom."""

import gc
import os
import random
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

# What fails today must fail tomorrow: weights are drawn alike in every run. MODLAB_SEED=5 draws others.
SEED = int(os.environ.get("MODLAB_SEED", "0"))
torch.manual_seed(SEED)  # for what is drawn while tests are collected
# It makes a device for the whole process, so it runs in one of its own; for its docstrings' examples it would be imported here.
collect_ignore = ["tests/on_device.py"]
# For nbformat, jsonschema would make 38 parsers of addresses, in seconds; nothing of ours has an address checked.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    if torch.cuda.is_initialized():
        torch.manual_seed(SEED)
    else:  # alone it is quick: for each other kind of device torch keeps the whole stack, which takes longer than most tests
        torch.default_generator.manual_seed(SEED)
    random.seed(SEED)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Let each test wait for its turn, and clear up behind a file."""
    with turn(alone=item.get_closest_marker("alone") is not None):
        done = yield
        if nextitem is None or nextitem.path != item.path:
            settle()
    return done


def pytest_collection_finish() -> None:
    """Let the first test begin as the others do."""
    settle()


def settle() -> None:
    """What lives on (modules, tests, their reports) is not walked again whenever a test collects garbage: else that takes a second."""
    gc.collect()
    gc.freeze()


# With `pytest -n 2` a test that is marked `alone` runs while no other does.
@contextmanager
def turn(*, alone: bool) -> Iterator[None]:
    """Hold a lock that those who are not alone share. Who waits for it keeps the gate, so that others do not go in for ever."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    import fcntl

    folder = Path(__file__).parent
    with open(folder / "conftest.py") as gate, open(folder / "pyproject.toml") as lock:
        fcntl.flock(gate, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # a process that the test forked may live on, with the file open
