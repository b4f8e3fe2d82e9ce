"""The one index of a model: paths as a user writes them, each module and tensor once, in its place."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import modlab
from modlab.inspection.index import ModuleIndex, Node
from modlab.records.paths import as_known
from tests.zoo import distinct_modules, distinct_tensors, every


def net():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 2)))


def with_part(wrap):
    model = net()
    model[2] = wrap(model[2])
    return model


class Module(nn.Module):
    """The user's own attribute may be called like the one of a wrapper."""

    def __init__(self):
        super().__init__()
        self.module = nn.Linear(4, 2)
        self._orig_mod = nn.Linear(2, 2)

    def forward(self, x):
        return self._orig_mod(self.module(x))


OWN = ["0.weight", "0.bias", "2.0.weight", "2.0.bias"]
WRAPPED = {
    "plain": (net, OWN),
    "DataParallel": (lambda: nn.DataParallel(net()), OWN),
    "compiled": (lambda: torch.compile(net()), OWN),
    "a compiled part": (lambda: with_part(torch.compile), OWN),
    "activation checkpointing": (lambda: with_part(checkpoint_wrapper), OWN),
    "two wrappers": (lambda: nn.DataParallel(with_part(lambda part: torch.compile(checkpoint_wrapper(part)))), OWN),
    "the user's own names": (Module, ["module.weight", "module.bias", "_orig_mod.weight", "_orig_mod.bias"]),
    "an average": (lambda: torch.optim.swa_utils.AveragedModel(nn.Linear(2, 2)), ["n_averaged", "module.weight", "module.bias"]),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("build", "paths"), WRAPPED.values(), ids=WRAPPED)
def test_paths_are_those_of_the_user(build, paths):
    model = build()
    index = ModuleIndex(model, Node)
    held = [*index.tensors(index.found)]
    assert [one.path for one in held] == paths
    for one in held:
        assert model.get_submodule(one.node.registered) is one.owner
        written = f"{one.node.registered}.{one.name}".lstrip(".")
        assert as_known(written, set(paths)) == one.path and as_known(one.path, set(paths)) == one.path


@pytest.mark.parametrize("case", every(large=False), ids=str)
def test_each_module_and_tensor_is_there_once(case):
    model = case.build()
    index = ModuleIndex(model, Node)
    assert sorted(id(module) for _, module in index.found) == sorted(map(id, distinct_modules(model)))
    held = [id(one.tensor) for one in index.tensors(index.found)]
    assert sorted(held) == sorted(map(id, distinct_tensors(model, "_parameters", "_buffers")))


def test_a_deep_path_is_spelled_when_it_is_asked_for():
    model = nn.Identity()
    for _ in range(3_000):
        model = nn.Sequential(model)
    index = ModuleIndex(model, Node)
    assert index.found[-1][0].path == ".".join(["0"] * 3_000)


def step(model, optimizer):
    optimizer.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model(torch.tensor([[1.0, -2.0, 3.0, -4.0], [-1.0, 2.0, -3.0, 4.0]])).square().sum().backward()
    optimizer.step()


EAGER = {name: build for name, (build, _) in WRAPPED.items() if name in ("plain", "DataParallel", "activation checkpointing")}


@pytest.mark.parametrize("build", EAGER.values(), ids=EAGER)
def test_a_trace_and_a_watch_say_the_same_of_a_wrapped_model(build):
    torch.manual_seed(0)
    model = build()
    twin = copy.deepcopy(model)
    for one, seen in ((model, True), (twin, False)):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        if not seen:
            step(one, optimizer)
            continue
        with modlab.watch(one, optimizer, budget=1.0) as w, modlab.trace(one) as t:
            step(one, optimizer)
    assert all(map(torch.equal, model.parameters(), twin.parameters()))
    assert {path for path in w.history["path"].tolist() if path} == {"0", "1", "2", "2.0", *OWN}
    for written in ("2.0", "module.2.0", "2._checkpoint_wrapped_module.0"):
        assert t[written][0].name == "Linear" and w[written]
    assert t["2"][0].name == "Sequential" and not t.not_called
    assert t.why("module.2.0.weight").kind == "gradient" == t.why(next(model.parameters())).kind
    assert "every module is called" in str(w) and w.verdict.broken is None
