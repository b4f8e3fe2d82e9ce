"""Record the cases and write the page."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from scripts.clinic.cases import CASES
from scripts.clinic.page import MOST_BYTES, PAGE, by_modlab, kept, made, written


def main() -> None:
    """As the package says."""
    given = sys.argv[1:]
    cases = dict(enumerate(kept() if given else [], 1))
    asked = [number for number in range(1, len(CASES) + 1) if not given or str(number) in given]
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        if given == ["--modlab"]:
            cases = {number: cases[number] | {"modlab": said} for number, said in enumerate(pool.map(by_modlab, CASES), 1)}
        else:
            cases |= zip(asked, pool.map(made, [[*CASES][number - 1] for number in asked], asked), strict=True)
    text = written([*cases.values()])
    if len(text.encode()) > MOST_BYTES:
        sys.exit(f"{PAGE.name}: {len(text.encode()):,} bytes, more than {MOST_BYTES:,}; the file is unchanged.")
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.name}: {len(text.encode()) / 1000:.0f} KB")


if __name__ == "__main__":
    main()
