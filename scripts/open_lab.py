"""Open JupyterLab on the learner's copy of the course; without a display, print its address and serve.

.venv/bin/python scripts/open_lab.py [--port N] [further options of JupyterLab]
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

COURSE = Path(__file__).resolve().parent.parent / "course"
FIRST = "00_tour.ipynb"
OURS = Path(__file__).resolve().parent / "jupyter"  # nobody is asked about news over the tour; your own settings stay as they are


def main() -> None:
    """Become the JupyterLab server."""
    if not COURSE.is_dir():
        sys.exit("The folder course/ is missing: run `make lab`, or `python -m modlab lessons copy course`.")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={COURSE}", f"--LabApp.default_url=/lab/tree/{FIRST}"]
    if not has_display():
        command.append("--no-browser")
        print("No display here: open the address below in a browser.", flush=True)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # a container
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, (str(OURS), os.environ.get("JUPYTER_CONFIG_PATH"))))
    os.execv(sys.executable, [*command, *sys.argv[1:]])


def has_display() -> bool:
    """Return whether a browser can open; on Linux one may otherwise start in the terminal."""
    return platform.system() != "Linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    main()
