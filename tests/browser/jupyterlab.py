"""A real JupyterLab on loopback, driven in a real Chromium that can reach nothing else."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, expect, sync_playwright

from tests.patience import PAGE, PATIENCE

PAGE_LASTS = 12  # notebooks; then it is loaded anew, as a renderer that has shown many of them holds a gigabyte
CHROMIUM_FLAGS = (
    "--no-sandbox",  # as root, in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)
# No news, no update check; every cell in the DOM; only we save.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "@jupyterlab/apputils-extension:notification": {"checkForUpdates": False, "doNotDisturbMode": True, "fetchNews": "false"},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
# What JupyterLab itself writes to the console: no fault of ours. Its debugger says so where a notebook is closed soon.
NOISE = re.compile(
    r"(?i)favicon|ERR_NAME_NOT_RESOLVED.*(jupyter-notifications|github\.io)|@jupyterlab/.*deprecat|restore the debugger state"
)

PANEL = "[...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === path)"
IS_IDLE = f"""path => {{
    const panel = window.jupyterapp && {PANEL};
    return panel?.context.isReady && panel.sessionContext.session?.kernel?.status === 'idle';
}}"""
CLOSE_ALL = "() => { for (const widget of [...window.jupyterapp.shell.widgets('main')]) widget.dispose(); }"  # and nobody asks to save
COMMAND_DONE = f"path => window.__done && {PANEL}.sessionContext.session?.kernel?.status === 'idle'"
START_COMMAND = """([name, args]) => {
    window.__done = '';
    window.jupyterapp.commands.execute(name, args).then(() => { window.__done = 'ok'; }, error => { window.__done = String(error); });
}"""
SELECT_CELL = f"([path, index]) => {{ const notebook = {PANEL}.content; notebook.deselectAll(); notebook.activeCellIndex = index; }}"
CELLS = f"""path => {PANEL}.content.widgets.map((cell, index) => ({{
    index, type: cell.model.type, source: cell.model.sharedModel.getSource(),
    execution_count: cell.model.executionCount ?? null, outputs: cell.model.outputs?.toJSON() ?? [],
}}))"""
TROUBLE = f"""path => {PANEL}.content.widgets.flatMap((cell, index) => {{
    const text = cell.node.querySelector('.jp-OutputArea')?.innerText ?? '';
    const bad = text.match(/Error displaying widget[^\\n]*|Loading widget\\.\\.\\.|Show more outputs|Javascript Error[^\\n]*/);
    if (bad) return [[index, bad[0]]];
    const outputs = [...cell.node.querySelectorAll('.jp-OutputArea-output')];
    const seen = 'img, canvas, svg, input, button, select, video, iframe';
    // a view at rest draws itself in a shadow root, which innerText does not enter
    const isEmpty = output => !output.innerText.trim() && !output.querySelector(seen)
        && ![...output.querySelectorAll('*')].some(node => node.shadowRoot?.childElementCount);
    if (outputs.some(isEmpty)) return [[index, 'an output is empty']];
    return cell.model.outputs?.length && !outputs.length ? [[index, 'outputs not rendered']] : [];
}})"""
SETTLED = """([quiet, longest]) => new Promise(settled => {
    const start = performance.now();
    let last = start;
    const observer = new MutationObserver(() => { last = performance.now(); });
    const node = document.querySelector('.jp-Notebook') ?? document.body;
    observer.observe(node, { subtree: true, childList: true, characterData: true });
    const look = () => {
        const now = performance.now(), loading = document.body.innerText.includes('Loading widget...');
        if (now - start <= longest && (loading || now - last <= quiet)) return setTimeout(look, 50);
        observer.disconnect();
        requestAnimationFrame(() => settled());
    };
    look();
})"""


class JupyterLab:
    """A server with a root folder of its own and one browser page; a context manager.

    Args:
        chromium: the browser's executable.
        viewport: width and height of the page, in CSS pixels.
        settings: overrides by plugin, merged over `SETTINGS`.
        environment: further variables for the server and its kernels.
    """

    def __init__(
        self,
        chromium: Path,
        *,
        viewport: tuple[int, int] = (1280, 900),
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.chromium = chromium
        self.viewport = viewport
        overrides = settings or {}
        self.settings = {plugin: {**SETTINGS.get(plugin, {}), **overrides.get(plugin, {})} for plugin in {*SETTINGS, *overrides}}
        self.environment = dict(environment or {})
        self.path = ""  # of the open notebook, below root
        self.console: list[tuple[str, str]] = []
        self.page_errors: list[str] = []
        self.outside: list[str] = []  # what the page asked of other hosts
        self.page: Page
        self._stack = ExitStack()
        self._opened = 0
        self._loaded = False  # whether the page is one in which a further notebook can be opened

    # ---- start and stop ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # unwinds if a later step fails
            self.folder = Path(tempfile.mkdtemp(prefix="modlab-lab-"))
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.root = self.folder / "root"
            self.root.mkdir()
            self._write_settings()
            self._start_server(stack)
            self._start_browser(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._stack.close()

    def _write_settings(self) -> None:
        for plugin, values in self.settings.items():
            file = self._file_of(plugin)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values))

    def _file_of(self, plugin: str) -> Path:
        package, name = plugin.split(":")
        return self.folder / "settings" / package / f"{name}.jupyterlab-settings"

    @contextmanager
    def with_settings(self, settings: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
        """Further overrides by plugin, in pages that are loaded meanwhile."""
        before = self.settings
        try:
            self.settings = {**before, **{plugin: {**values} for plugin, values in settings.items()}}
            self._write_settings()
            self.distrust_page()
            yield
        finally:
            self.settings = before
            for plugin in settings:
                self._file_of(plugin).unlink()
            self._write_settings()
            self.distrust_page()

    def _start_server(self, stack: ExitStack) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.token = secrets.token_hex(12)
        log = stack.enter_context((self.folder / "server.log").open("wb"))
        self._server = subprocess.Popen(
            self._server_command(), env=self._server_environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        stack.callback(self._stop_server)
        self._wait_for_server()

    def _server_command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={self.port}"),
            *("--ServerApp.port_retries=0", f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.root}"),
            *("--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"),
        ]

    def _server_environment(self) -> dict[str, str]:
        """The user's own Jupyter and IPython settings stay out of it."""
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        }
        ours = {name: str(self.folder / folder) for name, folder in folders.items()}
        return {**os.environ, **ours, "JUPYTER_PREFER_ENV_PATH": "1", **self.environment}

    def _wait_for_server(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.api("/api/status")
                return
            except OSError as error:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"JupyterLab did not start; its log ends:\n{self.server_log()[-3000:]}") from error
                time.sleep(0.1)

    def _stop_server(self) -> None:
        """Ask kindly, so that kernels end too; then end the whole process group."""
        if self._server.poll() is None:
            self._server.terminate()
            try:
                self._server.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(self._server.pid, signal.SIGKILL)
                self._server.wait()

    def _start_browser(self, stack: ExitStack) -> None:
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=self.chromium, args=CHROMIUM_FLAGS)
        stack.callback(browser.close)
        width, height = self.viewport
        self.page = browser.new_context(viewport={"width": width, "height": height}).new_page()
        self.page.set_default_timeout(PAGE * 1000)
        self.page.set_default_navigation_timeout(PATIENCE * 1000)
        expect.set_options(timeout=PAGE * 1000)
        self.page.on("console", self._note_console)
        self.page.on("pageerror", lambda error: self.page_errors.append(str(error)))
        self.page.on("request", self._note_request)

    def _note_console(self, message: ConsoleMessage) -> None:
        self.console.append((message.type, message.text))

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith((self.address, self.address.replace("http", "ws", 1), "data:", "blob:")):
            self.outside.append(request.url)

    # ---- the server --------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """Where the server is, without a closing slash."""
        return f"http://127.0.0.1:{self.port}"

    def api(self, path: str, method: str = "GET") -> Any:
        """Call JupyterLab's REST interface."""
        request = urllib.request.Request(self.address + path, method=method, headers={"Authorization": f"token {self.token}"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def server_log(self) -> str:
        """What the server and its kernels printed."""
        return (self.folder / "server.log").read_text(errors="replace")

    # ---- a notebook --------------------------------------------------------------------------

    def open(self, notebook: Path | Sequence[str], *, outputs: Mapping[int, list[dict[str, Any]]] | None = None) -> None:
        """Open a notebook, with a fresh kernel, in place of what was open; forget earlier errors, and wait until the kernel is idle.

        JupyterLab itself is loaded once: that takes longer than most of what is done in a notebook.

        Args:
            notebook: a file, which is copied in, or the sources of code cells.
            outputs: given outputs by cell, as if the notebook had been run elsewhere and saved.
        """
        if self._loaded:
            self.page.evaluate(CLOSE_ALL)
        self.shutdown_kernels()
        if self._opened % PAGE_LASTS == 0:
            self.distrust_page()
        self._opened += 1
        if isinstance(notebook, Path):
            self.path = notebook.name
            shutil.copy(notebook, self.root / self.path)
        else:
            self.path = f"scratch-{self._opened}.ipynb"
            (self.root / self.path).write_text(json.dumps(_notebook(notebook, outputs or {})))
        self._forget()
        if self._loaded:
            self.page.evaluate(START_COMMAND, ["docmanager:open", {"path": self.path, "factory": "Notebook"}])
            self._wait_until_open()
        else:
            self.reopen()

    def reopen(self) -> None:
        """Load the page anew, as after closing the tab: from the file, with an empty workspace."""
        self.page.goto(f"{self.address}/lab/tree/{self.path}?reset&token={self.token}", wait_until="commit")
        self._wait_until_open()
        self._loaded = True

    def _wait_until_open(self) -> None:
        self.page.wait_for_function(IS_IDLE, arg=self.path, timeout=PATIENCE * 1000)
        self.settle()

    def distrust_page(self) -> None:
        """Let the next notebook begin with a fresh page, whatever became of this one."""
        self._loaded = False

    def shutdown_kernels(self) -> None:
        """End all kernels, so that a notebook begins with a fresh one."""
        for session in self.api("/api/sessions"):
            self.api(f"/api/sessions/{session['id']}", "DELETE")

    def _forget(self) -> None:
        for notes in (self.console, self.page_errors, self.outside):
            notes.clear()

    def command(self, name: str, arguments: Mapping[str, Any] | None = None, *, wait: bool = True, timeout_s: float = PATIENCE) -> None:
        """Execute one of JupyterLab's commands; with `wait=False` it goes on in the page."""
        self.page.evaluate(START_COMMAND, [name, dict(arguments or {})])
        if wait:
            self.wait_until_done(timeout_s)

    def wait_until_done(self, timeout_s: float = PATIENCE) -> None:
        """Wait for the last command and an idle kernel."""
        self.page.wait_for_function(COMMAND_DONE, arg=self.path, timeout=timeout_s * 1000, polling=50)
        answer = self.page.evaluate("window.__done")
        if answer != "ok":
            raise RuntimeError(f"JupyterLab's command failed: {answer}")

    def run_all(self, timeout_s: float = 300) -> None:
        """Run all cells, and wait until their outputs are drawn."""
        self.command("notebook:run-all-cells", timeout_s=timeout_s)
        self.settle()

    def run_cell(self, index: int, *, wait: bool = True, timeout_s: float = PATIENCE) -> None:
        """Run one cell; with `wait=False` it runs while the test goes on."""
        self.page.evaluate(SELECT_CELL, [self.path, index])
        self.command("notebook:run-cell", wait=wait, timeout_s=timeout_s)
        if wait:
            self.settle()

    def settle(self, quiet_ms: int = 300, longest_ms: int = 8000) -> None:
        """Wait until no widget is loading and the notebook has been still for a while."""
        self.page.evaluate(SETTLED, [quiet_ms, longest_ms])

    def save(self) -> dict[str, Any]:
        """Save the notebook and return the file's content."""
        self.command("docmanager:save")
        content: dict[str, Any] = json.loads((self.root / self.path).read_text())
        return content

    # ---- what is seen ------------------------------------------------------------------------

    def cells(self) -> list[dict[str, Any]]:
        """Each cell's index, type, source, execution_count and outputs, as the page has them now."""
        found: list[dict[str, Any]] = self.page.evaluate(CELLS, self.path)
        return found

    def cell(self, index: int) -> Locator:
        """One cell in the page."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def output(self, index: int) -> Locator:
        """One cell's outputs in the page."""
        return self.cell(index).locator(".jp-OutputArea-output")

    def text(self, index: int) -> str:
        """What a cell printed and displayed, as plain text."""
        outputs = self.cells()[index]["outputs"]
        return "".join(_joined(output.get("text") or output.get("data", {}).get("text/plain") or "") for output in outputs)

    def trouble(self) -> list[tuple[int, str]]:
        """What a person would see go wrong, by cell: widget errors, endless loading, empty or hidden outputs."""
        return [(index, text) for index, text in self.page.evaluate(TROUBLE, self.path)]

    def errors(self) -> list[str]:
        """Errors in the page's console and uncaught exceptions, since the notebook was opened."""
        logged = [f"{kind}: {text}" for kind, text in self.console if kind == "error"]
        return [error for error in [*logged, *(f"page: {text}" for text in self.page_errors)] if not NOISE.search(error)]

    def screenshot(self, file: Path, index: int | None = None) -> Path:
        """Write a picture of the page, or of one cell."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if index is None:
            self.page.screenshot(path=file)
        else:
            self.cell(index).scroll_into_view_if_needed()
            self.settle(150, 2000)
            self.cell(index).screenshot(path=file)
        return file

    def set_theme(self, name: str) -> None:
        """Switch to a theme, such as "JupyterLab Dark" or "JupyterLab Light"."""
        self.command("apputils:change-theme", {"theme": name})
        light = "false" if "Dark" in name else "true"
        self.page.wait_for_selector(f"body[data-jp-theme-name='{name}'][data-jp-theme-light='{light}']", state="attached")
        self.settle(150, 2000)

    def set_viewport(self, width: int, height: int) -> None:
        """Resize the page, in CSS pixels."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.settle(150, 2000)


def _notebook(sources: Sequence[str], outputs: Mapping[int, list[dict[str, Any]]]) -> dict[str, Any]:
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"c{index}",
            "metadata": {},
            "source": source,
            "outputs": outputs.get(index, []),
            "execution_count": index + 1 if index in outputs else None,
        }
        for index, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}}


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
