"""One JupyterLab for all browser tests; each test opens a notebook of its own in it."""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from scripts import find_chromium
from tests.browser import kernels
from tests.browser.jupyterlab import JupyterLab

HERE = Path(__file__).parent
PASSED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser; where it is missing the tests are skipped, but not where a browser is required."""
    path = find_chromium.find()
    if path is None:
        required = os.environ.get("CI") == "true" or os.environ.get("MODLAB_REQUIRE_BROWSER") == "1"
        (pytest.fail if required else pytest.skip)(find_chromium.MISSING)
    return path


@pytest.fixture(scope="session")
def lab_server(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterLab]:
    with (
        kernels.server(tmp_path_factory.mktemp("kernels")) as environment,
        JupyterLab(chromium, environment={**environment, "MODLAB_UNATTENDED": "1"}) as lab,
    ):
        yield lab


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[PASSED] = report.passed
    return report


@pytest.fixture
def lab(lab_server: JupyterLab, request: pytest.FixtureRequest) -> Iterator[JupyterLab]:
    """The shared JupyterLab, light and 1280 × 900 again after each test; what failed leaves no page to the next."""
    yield lab_server
    if not request.node.stash[PASSED]:
        lab_server.distrust_page()
    lab_server.set_viewport(1280, 900)
    if lab_server.path and lab_server.page.evaluate("document.body.dataset.jpThemeName") != "JupyterLab Light":
        lab_server.set_theme("JupyterLab Light")
