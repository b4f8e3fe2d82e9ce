"""What a trace knows by identity belongs to that thing alone: another one may get the same identity when it is gone."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn

import modlab
from tests.calls import Lambda

X = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))


def traced(net, times=1):
    with modlab.trace(net) as trace, torch.no_grad():
        for _ in range(times):
            net(X)
    return trace


def test_each_new_layer_has_a_first_call():
    def forward(self, x):
        for _ in range(8):  # each is freed before the next one is made
            x = nn.Linear(3, 3)(x)
        return x

    for _ in range(10):
        calls = [event.call for event in traced(Lambda(forward)).find(kind="module") if event.name == "Linear"]
        assert calls == [1] * 8


def test_a_stranger_that_lives_is_counted_on():
    kept = nn.Linear(3, 3)
    trace = traced(Lambda(lambda self, x: kept(kept(x))), times=2)
    assert [event.call for event in trace.find(kind="module") if event.name == "Linear"] == [1, 2, 3, 4]


def test_layers_inside_of_folded_calls_are_forgotten_too():
    def forward(self, x):
        return nn.Linear(3, 3)(nn.Tanh()(x))

    net = nn.Sequential(*(Lambda(forward) for _ in range(6)), Lambda(lambda self, x: nn.Linear(3, 3)(x)))
    for _ in range(10):
        trace = modlab.trace(net, fold=True)(X)
        assert all(event.call == 1 for event in trace.find(kind="module"))


def test_a_stranger_is_not_kept():
    seen = []

    def forward(self, x):
        layer = nn.Linear(3, 3)
        seen.append(weakref.ref(layer))
        return layer(x)

    net = Lambda(forward)
    gc.disable()
    try:
        with modlab.trace(net) as trace:
            net(X)
            assert seen[0]() is None
    finally:
        gc.enable()
    assert len(trace.find(kind="module")) == 2


def test_a_buffer_that_the_model_drops_keeps_its_identity_until_the_trace_has_ended():
    seen = []

    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("memory", torch.zeros(3, 3))

        def forward(self, x):
            seen.append(weakref.ref(self.memory))
            del self.memory  # what is made now could get its identity, and would be called "is memory"
            seen.append(seen[0]())
            return x * 2

    traced(Dropping())
    assert seen.pop() is not None
    gc.collect()
    assert seen[0]() is None
