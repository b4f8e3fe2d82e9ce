"""Tensors that are a shell around others (torchao's weights, a user's own): bytes, dtype, values and differences are the true ones."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import modlab

torchao = pytest.importorskip("torchao.quantization")

CONFIGS = ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig", "Float8WeightOnlyConfig", "IntxWeightOnlyConfig"]


def quantized(config):
    """Two layers, their weights in torchao's hands."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchao.quantize_(net, getattr(torchao, config)())
    return net


def inner_bytes(tensor):
    names, _ = tensor.__tensor_flatten__()
    return sum(getattr(tensor, name).numel() * getattr(tensor, name).element_size() for name in names)


@pytest.mark.parametrize("config", CONFIGS)
def test_bytes_and_dtype_are_those_in_memory(config):
    net = quantized(config)
    weights = [net[0].weight, net[2].weight]
    total = sum(map(inner_bytes, weights)) + 4 * (16 + 4)
    tree, state = modlab.tree(net), modlab.state(net)
    assert tree[""].bytes == total
    assert sum(row.bytes for row in state.records) == total
    row = next(row for row in state.records if row.path == "0.weight")
    stored = max((getattr(weights[0], name) for name in weights[0].__tensor_flatten__()[0]), key=lambda t: t.nbytes).dtype
    assert (row.dtype, row.computes) == (str(stored).removeprefix("torch."), "float32")
    assert f"{row.dtype}, computes in float32" in str(tree) and f"{row.dtype}, computes in float32" in str(state)


@pytest.mark.parametrize("config", CONFIGS)
def test_measured_are_the_values_that_it_stands_for(config):
    weight = quantized(config)[0].weight
    found, oracle = modlab.measure(weight), weight.dequantize().double()
    assert (found.l2, found.mean, found.max) == pytest.approx((oracle.norm().item(), oracle.mean().item(), oracle.max().item()))
    assert "dequantized values" in str(found) and "dequantized values" in found.note
    assert found.record.matrix.numbers[0][0] == pytest.approx(oracle[0, 0].item())


@pytest.mark.parametrize("config", CONFIGS)
def test_diff_compares_dequantized_values(config):
    net = quantized(config)
    before = modlab.snapshot(net)
    assert not modlab.diff(before, net).changed and not modlab.diff(before, net).not_compared
    was = net[0].weight.dequantize()
    with torch.no_grad():
        net[0].weight.scale.mul_(2)
    found = modlab.diff(before, net)
    assert [row.path for row in found.changed] == ["0.weight"]
    assert found["0.weight"].max_abs == pytest.approx((net[0].weight.dequantize() - was).abs().max().item())
    assert "compared dequantized" in found["0.weight"].note
    assert modlab.diff(modlab.snapshot(net, values=False), net).changed == []


def test_what_quantization_changed_is_known():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4))
    before = modlab.snapshot(net)
    was = copy.deepcopy(net[0].weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchao.quantize_(net, torchao.Int8WeightOnlyConfig())
    row = modlab.diff(before, net)["0.weight"]
    assert (row.status, row.dtype_before, row.dtype_after, row.differs) == ("retyped", "float32", "int8", True)
    assert row.max_abs == pytest.approx((net[0].weight.dequantize() - was).abs().max().item(), rel=1e-5)


class Shell(torch.Tensor):
    """Holds another tensor; `how` it tells of it differs."""

    @staticmethod
    def __new__(cls, inner, how=""):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32)

    def __init__(self, inner, how=""):
        self.inner, self.how = inner, how

    def __tensor_flatten__(self):
        """What is inside."""
        if self.how == "flatten raises":
            raise RuntimeError("no")
        return (["gone"] if self.how == "no such name" else ["inner"]), None

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{func} is not run")


class Offering(Shell):
    """Says which numbers it stands for; or what else comes of asking."""

    def dequantize(self):
        """The numbers."""
        if self.how == "raises":
            raise ValueError("no")
        return {"a list": [1], "another shape": torch.zeros(1), "itself": self}.get(self.how, self.inner.float() * 2)


class Opaque(torch.Tensor):
    """Tells nothing of what it holds."""

    @staticmethod
    def __new__(cls, inner, how=""):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{func} is not run")


ODD = [
    (Shell, "", "a Shell has no memory of its own: measure the tensors inside it (inner)"),
    (Shell, "flatten raises", "its memory cannot be accessed (RuntimeError)"),
    (Shell, "no such name", "its memory cannot be accessed (AttributeError)"),
    (Offering, "raises", "the dequantize() of an Offering raised ValueError: measure the tensors inside it (inner)"),
    (
        Offering,
        "a list",
        "the dequantize() of an Offering did not return a plain tensor of its shape: measure the tensors inside it (inner)",
    ),
    (
        Offering,
        "another shape",
        "the dequantize() of an Offering did not return a plain tensor of its shape: measure the tensors inside it (inner)",
    ),
    (
        Offering,
        "itself",
        "the dequantize() of an Offering did not return a plain tensor of its shape: measure the tensors inside it (inner)",
    ),
    (Opaque, "", "an Opaque has no memory of its own, and does not show what is inside it"),
]


@pytest.mark.parametrize("cls, how, said", ODD, ids=lambda value: value if isinstance(value, str) else value.__name__)
def test_odd_shells_are_named_and_run_nothing(cls, how, said):
    net = nn.Module()
    net.register_buffer("odd", cls(torch.ones(3, 4, dtype=torch.int8), how))
    found = modlab.measure(net.odd)
    assert not found.measured and said in found.note
    for view in (modlab.tree(net), modlab.state(net), modlab.snapshot(net), modlab.diff(modlab.snapshot(net), net), modlab.hooks(net)):
        assert str(view) and view._repr_html_() and view.to_dict()
    row = modlab.diff(modlab.snapshot(net), net)["odd"]
    assert row.status == "not compared" or how == ""


def test_a_shell_that_offers_its_values_is_measured():
    tensor = Offering(torch.full((3, 4), 2, dtype=torch.int8))
    found = modlab.measure(tensor)
    assert (found.mean, found.dtype, found.stored) == (4.0, "float32", "int8")
    net = nn.Module()
    net.register_buffer("kept", tensor)
    assert modlab.tree(net)[""].bytes == 12


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize(("dtype", "held"), [(torch.quint4x2, 4), (torch.quint2x4, 2)], ids=["two in a byte", "four in a byte"])
def test_numbers_that_share_a_byte_are_counted_as_they_lie(dtype, held, tmp_path):
    module = nn.Module()
    module.register_buffer("q", torch.quantize_per_channel(torch.ones(2, 4), torch.ones(2), torch.zeros(2), 0, dtype))
    (row,) = modlab.state(module).records
    assert row.bytes == held == module.q.untyped_storage().nbytes()
    assert "several to a byte" in str(modlab.state(module)["q"])
    assert "1 tensor was not compared" in modlab.diff(modlab.snapshot(module), module).headline
    torch.save({"q": module.q}, tmp_path / "c.pt")
    assert modlab.state(tmp_path / "c.pt").records[0].bytes == held
