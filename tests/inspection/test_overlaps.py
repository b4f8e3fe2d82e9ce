"""Two parameters over one memory are named where that is certain, and nowhere else."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn import Parameter

import modlab
from tests import zoo

NOTE = "shares the memory of first, but is a separate parameter"


class Two(nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first = first if first is None or isinstance(first, Parameter) else Parameter(first)
        self.second = second if second is None or isinstance(second, Parameter) else Parameter(second)


def notes(model):
    return {row.path: row.note for row in modlab.state(model).records if "memory" in row.note}


def findings(model):
    return [one for one in modlab.diagnose(model).records if one.kind == "two parameters share one memory"]


W = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def sharing():
    w = W.clone()
    return {
        "transposed": (w, w.t()),
        "the same": (w, w),
        "of a parameter": (p := Parameter(w.clone()), p),
        "a row": (w, w[1]),
        "a column": (w, w[:, 2]),
        "the last row": (w, w[3:]),
        "the whole of a row": (w[2], w),
        "rows that overlap": (w[:3], w[1:]),
        "one number for all": (w[0, :1].expand(5), w),
        "other numbers": (w, w.view(torch.int32).view(torch.float32)),
        "halves of the bytes": (w, w.view(torch.float16)),
    }


def apart():
    w, flat = W.clone(), torch.randn(10)
    return {
        "halves of rows": (w[:, :3], w[:, 3:]),
        "two rows": (w[0], w[1]),
        "even and odd": (flat[::2], flat[1::2]),
        "parts of one buffer": (flat[:4], flat[4:]),
        "clones": (w, w.clone()),
        "nothing": (w[:0], w),
        "reserved": (w, None),
        "meta": (m := torch.empty(3, 3, device="meta"), m.t()),
        "sparse": (w.to_sparse(), w),
    }


@pytest.mark.parametrize("name", sharing())
def test_two_over_one_memory(name):
    first, second = sharing()[name]
    model = Two(first, Parameter(second.detach() if isinstance(second, Parameter) else second))
    with torch.no_grad():  # PyTorch itself says so: to change one changes the other
        before = model.first.clone()
        model.second.add_(1)
        assert not torch.equal(before, model.first)
    assert notes(model) == {"second": NOTE}
    (found,) = findings(model)
    assert found.severity == "careful" and found.places == ("first", "second")
    assert "each has its own gradient" in found.sentence


@pytest.mark.parametrize("name", apart())
def test_two_that_are_apart_or_have_no_memory(name):
    model = Two(*apart()[name])
    assert notes(model) == {} and findings(model) == []


def test_what_is_tied_is_one_parameter():
    model = Two(w := Parameter(W.clone()), w)
    assert notes(model) == {} and findings(model) == []
    assert modlab.state(model)._by_path["second"].tied == "first"


def test_the_line_that_is_offered_makes_one_of_two():
    model = Two(w := Parameter(W.clone()), Parameter(w))
    (found,) = findings(model)
    exec(found.fix, {"model": model})
    assert model.second is model.first and findings(model) == []


def test_what_lies_otherwise_is_not_tied():
    (found,) = findings(Two(W, W.t()))
    assert not found.fix and "keep only first" in found.advice
    model = Two(W, W.t())
    line = found.advice.rpartition(": ")[2].rstrip(".")
    model.second = eval(line, {"model": model, "nn": nn})
    assert findings(model) == []


def test_among_three_the_first_one_is_named():
    model = Two(w := W.clone(), w.t())
    model.third = Parameter(w)
    assert notes(model) == {"second": NOTE, "third": NOTE}


def test_nothing_is_changed_or_kept():
    model = Two(w := Parameter(W.clone()), Parameter(w.t()))
    versions, kept = [p._version for p in model.parameters()], weakref.ref(model)
    shown, found = modlab.state(model), modlab.diagnose(model)
    assert [p._version for p in model.parameters()] == versions
    assert str(shown) == str(modlab.state(model)) and " at 0x" not in str(found)
    del model, w
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("case", [c for c in zoo.every(listed=True) if c.id != "symbolic_shape"], ids=str)
def test_odd_models_have_none(case):
    assert notes(case.build()) == {}


def views(count):
    """Buffers that are stretches of one tensor, and that tensor."""
    module, whole = nn.Module(), torch.zeros(1_000)
    module.register_buffer("whole", whole)
    for i in range(count):
        module.register_buffer(f"part{i}", whole[i * 10 : (i + 1) * 10])
    return module


def in_one_vector():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    torch.nn.utils.vector_to_parameters(torch.nn.utils.parameters_to_vector(model.parameters()), model.parameters())
    return model


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (lambda: views(3), "4.12 kB in tensors that share 4.00 kB of memory"),
        (lambda: Two(W, W.t()), "192 B in tensors that share 96 B of memory"),
        (lambda: Two(W[:2], W[1:]), "120 B in tensors that share 96 B of memory"),
        (lambda: nn.Sequential(*[views(1)] * 2), "4.04 kB in tensors that share 4.00 kB of memory"),
        (lambda: Two(W[:2], W[2:]), "96 B, "),
        (in_one_vector, "160 B, "),
        (lambda: nn.Sequential(*[nn.Linear(4, 4)] * 2), "80 B, "),
        (lambda: nn.Sequential(nn.LazyLinear(3), nn.Linear(4, 4)), "80 B, "),
        (lambda: Two(W.to("meta"), W.to("meta")), "192 B if it were real, "),
    ],
    ids=["buffers", "transposed", "partly", "a shared module", "apart", "one vector", "tied", "lazy", "meta"],
)
def test_a_size_says_how_much_memory_tensors_share(model, size):
    assert size in str(modlab.tree(model())).splitlines()[0]
