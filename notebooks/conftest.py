"""How nbval compares the notebooks: text strictly, pictures not; so that a plain `pytest --nbval notebooks` passes."""

from pathlib import Path

import pytest

SANITIZE = Path(__file__).with_name("sanitize.cfg")
# HTML is stored without its script and stderr holds paths; a widget that vanished is found by tests/browser.
NOT_COMPARED = ("text/html", "image/svg+xml", "image/png", "stderr")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Set what the options would set: the current environment's kernel, and what to replace before comparing."""
    if not hasattr(collector, "skip_compare"):    # only nbval's collector of a notebook has it
        return
    from nbval.plugin import get_sanitize_patterns

    collector.skip_compare += NOT_COMPARED
    collector.sanitize_patterns.update(get_sanitize_patterns(SANITIZE.read_text(encoding="utf-8")))
    options = collector.config.option
    options.nbval_current_env = options.nbval_kernel_name is None
