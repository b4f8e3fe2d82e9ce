"""Run the course on this machine's accelerator; where there is none, on one without hardware (tests/fake_device.py).

    .venv/bin/python -m scripts.device_course [NOTEBOOK ...]      all of notebooks/ when none is named

Each cell must print what it printed on the CPU. Text is compared, less what names the device (`LEFT_OUT`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = (
    (r"; \d+ tensors? (is|are) now on? [\w:]+", ""),  # of a checkpoint beside a model: its file is on the CPU
    (r"step [\d,]+(?=: unit \d+ of \w+ is dead)", ""),  # numbers of a device are read when they are ready, so an alert may come later
    (r",\s*device='[a-z]+:\d+'", ""),  # in a tensor's text, where it is not the CPU
    (r"( on)? (cpu|(fake|cuda|mps|xpu):\d+)\b", ""),  # in a view's, some of which tell it where it is not the CPU
    (r"\bdevice\b", ""),  # the head of that column
    (r"random generators +\d+ unchanged", ""),  # the device has one more
    (r"(?s)^<(div|table|style)\b.*", ""),  # HTML says what the text beside it says, and the device in more places
    (r"[ \n]+", ""),  # what makes room for it
)
NOT_ON_THE_FAKE = ("16_mixed_precision",)  # it has no autocast
STARTUP = "from tests import fake_device\nfake_device.install()\ndel fake_device\n"


def main() -> None:
    """Run nbval over the notebooks; exit as it does."""
    there = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    print(f"The course on {there or 'the fake device: this machine has no accelerator'}.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
        environment.pop("MODLAB_DEVICE", None)
        sanitized = Path(folder, "left_out.cfg")
        patterns = (f"[{number}]\nregex: {one}\nreplace: {other}\n" for number, (one, other) in enumerate(LEFT_OUT))
        sanitized.write_text("\n".join(patterns), encoding="utf-8")
        if there is None:
            startup = Path(folder, "profile_default", "startup")
            startup.mkdir(parents=True)
            startup.joinpath("fake_device.py").write_text(STARTUP, encoding="utf-8")
            environment["IPYTHONDIR"] = folder
        sys.exit(
            subprocess.run(command(sanitized, sys.argv[1:] or course(there is None)), cwd=ROOT, env=environment, check=False).returncode
        )


def course(fake: bool) -> list[str]:
    """The notebooks that this device can run."""
    found = sorted((ROOT / "notebooks").glob("*.ipynb"))
    return [str(file.relative_to(ROOT)) for file in found if not (fake and file.stem in NOT_ON_THE_FAKE)]


def command(sanitized: Path, notebooks: list[str]) -> list[str]:
    """What runs them."""
    workers = os.environ.get("MODLAB_WORKERS") or "2"
    parallel = ("-n", workers, "--dist", "loadfile")
    return [sys.executable, "-m", "pytest", "-q", *parallel, "--nbval", "--nbval-sanitize-with", str(sanitized), *notebooks]


if __name__ == "__main__":
    main()
