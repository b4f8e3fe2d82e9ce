"""What all tests share."""

import atexit
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import torch

from modlab.running import guarded

# On a busy machine an example may take long; a failure must come again tomorrow.
hypothesis.settings.register_profile("modlab", deadline=None, derandomize=True)
hypothesis.settings.load_profile("modlab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture
def swallowed() -> Iterator[deque[str]]:
    """For a test that makes modlab fail on purpose: the tracebacks of what was swallowed."""
    guarded.swallowed.clear()
    yield guarded.swallowed
    guarded.swallowed.clear()


@pytest.fixture(autouse=True)
def _nothing_is_swallowed(request: pytest.FixtureRequest) -> Iterator[None]:
    """An error of ours ends a look and not the run; a test would not notice, so it fails here."""
    guarded.swallowed.clear()
    yield
    if "swallowed" not in request.fixturenames:
        assert not guarded.swallowed, "modlab failed, and swallowed it:\n" + "\n".join(guarded.swallowed)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An IPython shell of its own, which keeps what is displayed (`shell.display_pub.outputs`)."""
    pytest.importorskip("IPython")
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a shell puts its own there, and leaves it
    made = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    made.display_pub = CapturingDisplayPublisher()
    yield made
    made.atexit_operations()
    atexit.unregister(made.atexit_operations)
