"""In a real JupyterLab: from the kernel's answer to the painted tree, and from a click to the painted rows."""

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

# Clicks at the start of a frame, on the largest run if there are several; says when script, layout and the frame were done.
CLICK = """([path, index, what]) => new Promise(done => {
    const panel = [...window.jupyterapp.shell.widgets('main')].find(w => w.context?.path === path);
    const root = panel.content.widgets[index].node.querySelector('.modlab-live').shadowRoot;
    const rows = () => root.querySelectorAll('[role=treeitem]').length;
    requestAnimationFrame(() => {
        const number = node => parseInt(node.textContent.replace(/\\D/g, '')) || 0;
        const target = [...root.querySelectorAll(what)].sort((a, b) => number(b) - number(a))[0];
        if (!target) return done(null);
        const start = performance.now();
        target.click();
        const script = performance.now() - start;
        root.querySelector('[role=tree]').getBoundingClientRect();
        const layout = performance.now() - start;
        const channel = new MessageChannel();
        channel.port1.onmessage = () => done({ script, layout, painted: performance.now() - start, rows: rows() });
        channel.port2.postMessage(0);
    });
})"""
OPEN = "[role=treeitem][aria-expanded=false] [data-action=toggle]"
CLICKS = {"open a row": (OPEN, None), "unfold a run": ("[data-action=refold]", "[data-action=fold]")}


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
        found = [_click(lab, selector, undo) for _ in range(times)]
        done = [click for click in found if click]
        if done:
            script, layout, painted, more = (median(click[key] for click in done) for key in ("script", "layout", "painted", "rows"))
            rows.append((what, f"{script:.1f} ms", f"{layout:.1f} ms", f"{painted:.1f} ms", f"{more:.0f}"))
            targets.append(Target(f"{what}, {name}", round(FRAME_MS, 1), round(painted, 1), "ms"))
    report.table(("medians, from the click to", "end of script", "layout", "painted", "rows in the document"), rows)
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


def _click(lab: Any, selector: str, undo: str | None) -> dict[str, float] | None:
    found = lab.page.evaluate(CLICK, [lab.path, 1, selector])
    if found and undo:
        lab.page.evaluate(CLICK, [lab.path, 1, undo])
    return found
