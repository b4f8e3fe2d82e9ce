"""Memory that is gone is asked for before any operator: of tensors of every kind, and by every verb in a process of its own."""

import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from modlab.statistics import measure_tensor
from modlab.statistics.memory import absence, is_there
from tests.verbs import CASES, ROOT, free


def quietly(make):
    """Torch tells of each first use of some layouts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


def jagged(dead=False):
    found = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    if dead:
        free(found._values)
    return found


def fake():
    with FakeTensorMode():
        return torch.ones(3)


def cut(tensor, left):
    """A tensor of which so many bytes are left."""
    free(tensor, left)
    return tensor


def sparse(dead=False):
    found = torch.eye(3).to_sparse()
    if dead:
        free(found._values())
    return found


THERE = {
    "plain": lambda: torch.eye(3),
    "parameter": lambda: nn.Parameter(torch.eye(3)),
    "empty": lambda: torch.empty(0, 3),
    "empty after resize": lambda: free(torch.empty(0)),
    "scalar": lambda: torch.tensor(1.0),
    "transposed": lambda: torch.randn(3, 4).t(),
    "expanded": lambda: torch.ones(3).expand(50, 3),
    "view of a part": lambda: torch.arange(100)[30:50:3],
    "all that a view reaches": lambda: cut(torch.arange(100.0)[::2], 4 * 99),
    "sparse": sparse,
    "csr": lambda: quietly(torch.eye(3).to_sparse_csr),
    "bsc": lambda: quietly(lambda: torch.eye(4).to_sparse_bsc((2, 2))),
    "quantized": lambda: quietly(lambda: torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8)),
    "mkldnn": lambda: torch.eye(3).to_mkldnn(),
    "nested": lambda: quietly(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "jagged": lambda: quietly(jagged),
    "conjugate": lambda: torch.ones(3, dtype=torch.complex64).conj(),
    "zeros of forward AD": lambda: torch._efficientzerotensor((3,)),
    "half": lambda: torch.ones(3, dtype=torch.bfloat16),
}
GONE = {
    "freed": (lambda: free(torch.eye(3)), "freed"),
    "freed parameter": (lambda: free(nn.Parameter(torch.eye(3))), "freed"),
    "half of it": (lambda: cut(torch.eye(4), 32), "freed"),
    "all but a byte": (lambda: cut(torch.eye(4), 63), "freed"),
    "view beyond its memory": (lambda: cut(torch.arange(100.0)[90:], 4 * 95), "freed"),
    "gaps beyond its memory": (lambda: cut(torch.arange(100.0)[::2], 4 * 98), "freed"),
    "transposed": (lambda: cut(torch.randn(3, 4).t(), 40), "freed"),
    "expanded": (lambda: free(torch.ones(3).expand(50, 3)), "freed"),
    "complex": (lambda: cut(torch.ones(3, dtype=torch.complex64), 20), "freed"),
    "sparse": (lambda: sparse(dead=True), "freed"),
    "jagged": (lambda: quietly(lambda: jagged(dead=True)), "freed"),
    "nested": (lambda: free(quietly(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))), "freed"),
    "quantized": (lambda: free(quietly(lambda: torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8))), "freed"),
    "meta": (lambda: torch.empty(3, device="meta"), "meta"),
    "part of meta": (lambda: torch.empty(9, device="meta")[3:], "meta"),
    "fake": (fake, "fake"),
    "functional": (lambda: torch._to_functional_tensor(torch.ones(3)), "functional"),
    "lazy": (lambda: quietly(lambda: nn.LazyLinear(3).weight), "lazy"),
}


@pytest.mark.parametrize("row", THERE)
def test_memory_is_there(row):
    tensor = THERE[row]()
    assert is_there(tensor), absence(tensor)
    assert absence(tensor) == ""


@pytest.mark.parametrize("row", GONE)
def test_memory_is_gone(row):
    make, word = GONE[row]
    tensor = make()
    assert not is_there(tensor)
    assert word in absence(tensor)
    stats = measure_tensor(tensor)
    assert not stats.measured
    assert word in stats.note


def test_under_a_transform_there_is_none():
    said = []
    torch.vmap(lambda x: (said.append((is_there(x), absence(x))), x)[1])(torch.eye(3))
    torch.func.grad(lambda x: (said.append((is_there(x), absence(x))), x.sum())[1])(torch.eye(3))
    assert [there for there, _ in said] == [False, False]
    assert all("torch.func" in reason for _, reason in said)


@pytest.mark.parametrize("row", [pytest.param(name, marks=() if name == "everything" else pytest.mark.long) for name in CASES])
def test_no_verb_ends_the_process(row):
    answer = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.verbs", row],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"},
        check=False,
    )
    begun = [line for line in answer.stdout.splitlines() if line.endswith("…")]
    assert answer.returncode == 0, f"{begun[-1:]}\n{answer.stdout[-2000:]}\n{answer.stderr[-4000:]}"
    assert len(begun) > 20
