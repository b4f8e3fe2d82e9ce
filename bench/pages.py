"""In a real JupyterLab: from the kernel's answer to the painted tree, and from a click to the painted rows beside the least there is."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from bench import report
from bench.report import Target

ROOT = Path(__file__).parents[1]
MODELS = {
    "ResNet18": ("from modlab.lessons.networks import ResNet18 as Model", "modlab.tree(net)"),
    "deepseek": ("from bench.deepseek import DeepSeek as Model", "modlab.tree(net)"),
}
FRAME_MS = 1000 / 60

# Notes when the kernel sent its result (by its clock, which is the page's too) and when the first frame with a row of the view
# was on the screen: a message that is posted in the callback before a frame arrives after that frame was painted.
WATCH = """([path, index]) => {
    const panel = [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === path);
    const cell = panel.content.widgets[index], kernel = panel.sessionContext.session.kernel;
    const now = () => performance.timeOrigin + performance.now();
    const seen = window.__seen = {};
    const note = (_, message) => {
        if (message.header.msg_type !== 'execute_result') return;
        seen.sent = Date.parse(message.header.date);
        seen.received = now();
        kernel.iopubMessage.disconnect(note);
    };
    kernel.iopubMessage.connect(note);
    const before = cell.node.querySelector('.modlab');
    const look = () => {
        const view = cell.node.querySelector('.modlab:not([hidden])');
        const row = view !== before && view?.querySelector('.modlab-live')?.shadowRoot?.querySelector('[role=treeitem]');
        if (!row) return requestAnimationFrame(look);
        const channel = new MessageChannel();
        channel.port1.onmessage = () => { seen.painted = now(); };
        channel.port2.postMessage(0);
    };
    requestAnimationFrame(look);
}"""

# Clicks at the start of a frame, on the largest run if there are several, or on a sign of the page's own whose handler changes
# one text node: the floor. Says how long the handler took, and when the main thread had painted the frame that shows it.
CLICK = """([path, index, what]) => new Promise(done => {
    const panel = [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === path);
    const root = panel.content.widgets[index].node.querySelector('.modlab-live').shadowRoot;
    const rows = () => root.querySelectorAll('[role=treeitem]').length;
    if (!window.__floor) {
        const sign = window.__floor = document.createElement('div');
        sign.textContent = '▸';
        sign.style.cssText = 'position: fixed; top: 0; left: 0; width: 14px; height: 14px; overflow: hidden; contain: strict';
        sign.addEventListener('click', () => { sign.firstChild.data = sign.firstChild.data === '▸' ? '▾' : '▸'; });
        document.body.append(sign);
    }
    requestAnimationFrame(() => {
        const number = node => parseInt(node.textContent.replace(/\\D/g, '')) || 0;
        const target = what ? [...root.querySelectorAll(what)].sort((a, b) => number(b) - number(a))[0] : window.__floor;
        if (!target) return done(null);
        const start = performance.now();
        target.click();
        const handler = performance.now() - start;
        const channel = new MessageChannel();
        channel.port1.onmessage = () => done({ handler, painted: performance.now() - start, rows: rows() });
        channel.port2.postMessage(0);
    });
})"""
OPEN = "[role=treeitem][aria-expanded=false] [data-action=toggle]"
CLICKS = {"open a row": (OPEN, ".row.selected [data-action=toggle]"), "unfold a run": ("[data-action=refold]", "[data-action=fold]")}


def run(quick: bool) -> list[Target]:
    report.heading("Browser: the view in JupyterLab")
    if find_spec("playwright") is None or find_spec("jupyterlab") is None:
        report.note("Left out: it needs playwright and jupyterlab (make test brings them).")
        return []
    from scripts import find_chromium

    chromium = find_chromium.find()
    if chromium is None:
        report.note(f"Left out. {find_chromium.MISSING}")
        return []
    from tests.browser.jupyterlab import JupyterLab

    targets = []
    with JupyterLab(chromium) as lab:
        for name in MODELS:
            targets += _model(lab, name, 3 if quick else 6)
    return targets


def _model(lab: Any, name: str, times: int) -> list[Target]:
    load, look = MODELS[name]
    lab.open([f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport modlab\n{load}\nnet = Model()", look])
    lab.run_cell(0)
    paints = [_paint(lab) for _ in range(times)]
    (first, arrived), later = paints[0], median(painted for painted, _ in paints[1:])
    after = f"painted {first:.0f} ms after the kernel's answer (which took {arrived:.0f} ms to the page)"
    report.note(f"{name}: {after}, {later:.0f} ms when shown again (median of {times - 1}).")
    rows, targets = [], [Target(f"first paint, {name}", 300, first, "ms")]
    for what, (selector, undo) in CLICKS.items():
        done = [found for found in (_clicks(lab, selector, undo) for _ in range(2 * times + 1)) if found]
        if not done:
            continue
        cold, again = done[0][1], done[1:]
        handler, painted, cpu = (median(click[of] for _, click in again) for of in ("handler", "painted", "cpu"))
        floor, floor_cpu = (median(least[of] for least, _ in again) for of in ("painted", "cpu"))
        ratio = median(click["painted"] / least["painted"] for least, click in again)
        figures = (handler, painted, cold["painted"], floor)
        rows.append(
            (
                what,
                *(f"{figure:.1f} ms" for figure in figures),
                f"{ratio:.1f}",
                f"{cpu:.1f} ms",
                f"{floor_cpu:.1f} ms",
                f"{cold['rows']:.0f}",
            )
        )
        targets.append(Target(f"{what}, {name}", round(FRAME_MS, 1), round(painted, 1), "ms"))
    report.table(("medians", "handler", "painted", "the first time", "a text node", "ratio", "CPU", "a text node's", "rows"), rows)
    return targets


def _paint(lab: Any) -> tuple[float, float]:
    """Milliseconds from the moment at which the kernel sent the result until it was painted, and until it had reached the page."""
    lab.page.evaluate(WATCH, [lab.path, 1])
    lab.run_cell(1, wait=False)
    lab.page.wait_for_function("window.__seen?.painted && window.__seen.sent", timeout=60_000)
    lab.wait_until_done()
    lab.settle()
    seen = lab.page.evaluate("window.__seen")
    return seen["painted"] - seen["sent"], seen["received"] - seen["sent"]


def _clicks(lab: Any, selector: str, undo: str) -> tuple[dict[str, float], dict[str, float]] | None:
    """A click on the sign of the floor and one on the view, which is undone."""
    floor, found = _click(lab, None), _click(lab, selector)
    if found:
        _click(lab, undo)
    return (floor, found) if floor and found else None


def _click(lab: Any, what: str | None) -> dict[str, float] | None:
    """What the page says, and the CPU time that its main thread took, in milliseconds, with what JupyterLab does beside."""
    lab.settle()
    page = lab.page.context.new_cdp_session(lab.page)
    page.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _task_s(page)
    found: dict[str, float] | None = lab.page.evaluate(CLICK, [lab.path, 1, what])
    if found:
        found["cpu"] = 1000 * (_task_s(page) - before)
    page.detach()
    return found


def _task_s(page: Any) -> float:
    metrics = page.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))
