"""``make bench-gpu``: where there is no accelerator it says so; its code runs dry on the CPU; its tables have a place in the page."""

import re
import subprocess
import sys

import pytest
import torch

from bench import accelerators
from tests.patience import PATIENCE


def run(*arguments):
    command = [sys.executable, "-m", "bench.accelerators", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True, cwd=accelerators.PAGE.parent.parent)


@pytest.mark.long
def test_a_dry_run_comes_by_every_table():
    page = accelerators.PAGE.read_text(encoding="utf-8")
    out = run("--dry").stdout
    assert "a dry run on the CPU: these are no figures" in out
    rows = re.findall(r"^\| (mlp|transformer, autocast|transformer, bf16) +\|((?: +yes \|)+)$", out, re.MULTILINE)
    assert [row[0] for row in rows] == ["mlp", "transformer, autocast", "transformer, bf16"]
    assert all(row[1].count("yes") == 4 for row in rows)
    assert re.search(r'^\| torch\.compile, backend="eager" +\| +yes \|$', out, re.MULTILINE)
    for way in accelerators.WAYS:
        line = next(line for line in out.splitlines() if line.startswith(f"| {way} "))
        assert len(re.findall(r"\| +[\d.,]+ (?=\|)", line)) == 3
    assert accelerators.PAGE.read_text(encoding="utf-8") == page


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is one")
def test_without_an_accelerator_it_says_so_in_one_line():
    assert run().stdout == f"{accelerators.NONE}\n"


def test_the_tables_have_their_place_in_the_page():
    page = accelerators.PAGE.read_text(encoding="utf-8")
    found = accelerators.written(page, "| new |\n")
    assert found.count(accelerators.BEGIN) == found.count(accelerators.END) == 1
    assert f"{accelerators.BEGIN}\n\n| new |\n\n{accelerators.END}" in found
    assert accelerators.written(found, "| newer |") == found.replace("| new |", "| newer |")
    with pytest.raises(ValueError, match="no place"):
        accelerators.written("# another page", "")


@pytest.mark.parametrize(
    ("name", "pattern", "counts"),
    [
        ("cudaStreamSynchronize", accelerators.WAITS, True),
        ("cudaDeviceSynchronize", accelerators.WAITS, True),
        ("hipEventSynchronize", accelerators.WAITS, True),
        ("cudaMemcpy", accelerators.WAITS, True),
        ("cudaMemcpyAsync", accelerators.WAITS, False),
        ("cudaLaunchKernel", accelerators.WAITS, False),
        ("Memcpy DtoH (Device -> Pageable)", accelerators.TO_PAGEABLE, True),
        ("Memcpy DtoH (Device -> Pinned)", accelerators.TO_PINNED, True),
        ("Memcpy HtoD (Pageable -> Device)", accelerators.TO_PAGEABLE, False),
    ],
)
def test_what_counts_as_waiting(name, pattern, counts):
    assert (pattern.search(name) is not None) == counts
