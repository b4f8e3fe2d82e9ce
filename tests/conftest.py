"""What all tests share."""

from collections import deque
from collections.abc import Iterator

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
