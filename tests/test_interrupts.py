"""An interrupt at any call or return of modlab's own, and at any time: compare and diagnose leave everything as it was."""

import random

import pytest
import torch
from torch import nn

import modlab
from tests.interrupts import changed, interrupted, interrupted_after, places, state


class Net(nn.Module):
    """With all that a pass may change."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.drop, self.b = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 2)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.a.register_forward_hook(lambda module, args, output: None)
        self.calls = []

    def forward(self, x):
        self.calls.append(len(x))
        return self.b(self.drop(self.norm(self.a(x)).relu()))


def fresh():
    torch.manual_seed(0)
    net, x = Net(), torch.randn(6, 4)
    net(x).sum().backward()
    net.drop.eval()
    return net, x


def compare(net, x):
    return modlab.compare(net)(x)


def compare_two(net, x):
    return modlab.compare(net, net)(x)


def diagnose(net, x):
    return modlab.diagnose(net, batch=(x, torch.zeros(6, 2)), loss=nn.functional.mse_loss)


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may arrive where Python can raise nothing

VERBS = (compare, compare_two, diagnose)
SOME = 25


def turns(verb):
    net, x = fresh()
    verb(net, x)  # what is imported and remembered at the first call
    return places(lambda: verb(net, x))


def check(verb, how, at):
    net, x = fresh()
    before = state(net)
    how(lambda: verb(net, x), at)
    left = changed(before, state(net))
    assert not left, f"{verb.__name__}, interrupt at {at}: {left}"
    assert net.calls == [6]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_an_interrupt_at_some_calls_leaves_everything_as_it_was(verb):
    found = turns(verb)
    for at in random.Random(0).sample(found, SOME):
        check(verb, interrupted, at)


@pytest.mark.long
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_an_interrupt_at_every_call_leaves_everything_as_it_was(verb):
    for at in turns(verb):
        check(verb, interrupted, at)


@pytest.mark.long
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_an_interrupt_at_any_time_leaves_everything_as_it_was(verb):
    chances = random.Random(1)
    for _ in range(300):
        check(verb, interrupted_after, chances.uniform(0.001, 0.3))
