"""What all tests share."""

import hypothesis
import pytest
import torch

# On a busy machine an example may take long; a failure must come again tomorrow.
hypothesis.settings.register_profile("modlab", deadline=None, derandomize=True)
hypothesis.settings.load_profile("modlab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
