"""Exceptions that a model catches: what raised did not run, and who caught it is said."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab
from modlab.wording.events import uncalled
from tests.calls import Lambda

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
SIZES = "mat1 and mat2 shapes cannot be multiplied (8x4 and 5x5)"


def trained(net, x=X):
    with modlab.trace(net) as trace:
        net(x).sum().backward()
    return trace


def falling_back(first, **parts):
    """Takes `b` where `first` raises."""

    def forward(self, x):
        try:
            return first(self, x)
        except (RuntimeError, ValueError, KeyError):
            return self.b(x)

    return Lambda(forward, b=nn.Linear(4, 4), **parts)


class Block(nn.Module):
    def __init__(self, hides=False):
        super().__init__()
        self.a, self.c, self.hides = nn.Linear(4, 4), nn.Linear(5, 5), hides

    def forward(self, x):
        try:
            return self.c(self.a(x))
        except RuntimeError as error:
            if self.hides:
                raise ValueError("no block") from error
            raise


def test_a_module_that_raised_did_not_run():
    trace = trained(falling_back(lambda self, x: self.a(x), a=nn.Linear(5, 5)))
    assert trace.headline.startswith(
        "Lambda: 2 of 3 modules ran; a raised RuntimeError, caught by (root); a.weight, a.bias got no gradient"
    )
    assert "caught by (root)" in trace["a"].marks and not trace.error
    reason = trace.why("a.weight")
    assert reason.kind == "raised" and trace.events[reason.event].path == "a"
    assert "a was called at tests/tracing/test_caught_exceptions.py:" in reason.text
    assert reason.text.endswith(f"raised RuntimeError: {SIZES}, caught by (root): nothing came out")
    assert trace.why("b.weight").kind == "gradient"


def test_what_ran_before_it_ran():
    trace = trained(falling_back(lambda self, x: self.block(x), block=Block()))
    assert "3 of 5 modules ran; block raised RuntimeError, caught by (root)" in trace.headline
    assert "block.a ran inside block, which was called at" in trace.why("block.a.weight").text
    assert trace.why("block.c.weight").text.startswith("block.c was called at")


def test_an_exception_that_became_another_one():
    trace = trained(falling_back(lambda self, x: self.block(x), block=Block(hides=True)))
    assert "block raised ValueError, caught by (root)" in trace.headline
    assert "so block raised ValueError: no block, caught by (root)" in trace.why("block.c.weight").text
    assert not any("caught" in mark for mark in trace["block.c"].marks)


def test_what_succeeds_the_second_time_ran():
    def forward(self, x):
        try:
            return self.a(x)
        except RuntimeError:
            return self.a(x.float())

    trace = trained(Lambda(forward, a=nn.Linear(4, 4)), X.double())
    assert "2 of 2 modules ran" in trace.headline and "a raised RuntimeError, caught by (root)" in trace.headline
    assert trace.why("a.weight").kind == "gradient"


def test_what_is_used_again_has_the_later_reason():
    def forward(self, x):
        try:
            return self.a(x.double())
        except RuntimeError:
            return self.b(self.a(x).detach())

    trace = trained(Lambda(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4)))
    assert trace.why("a.weight").kind == "detached"


def test_a_function_that_raised():
    net = falling_back(lambda self, x: F.linear(x, self.w))
    net.w = nn.Parameter(torch.ones(5, 5))
    trace = trained(net)
    assert "F.linear raised RuntimeError, caught by (root)" in trace.headline
    assert trace.why("w").kind == "raised" and trace.why("w").text.startswith("F.linear was called at")


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_hook_that_raised(register):
    def strict(*args):
        raise KeyError("strict")

    net = falling_back(lambda self, x: self.a(x), a=nn.Linear(4, 4))
    getattr(net.a, register)(strict)
    trace = trained(net)
    assert "a raised KeyError, caught by (root)" in trace.headline and "caught by a" not in str(trace)
    assert trace.why("a.weight").kind == "raised" and "KeyError: 'strict', caught by (root)" in trace.why("a.weight").text


def test_what_the_caller_of_the_model_caught():
    net = Block()
    with modlab.trace(net) as trace:
        with contextlib.suppress(RuntimeError):
            net(X)
        net.a(X).sum().backward()
    assert "1 of 3 modules ran; (root) raised RuntimeError, caught outside the model" in trace.headline
    assert trace.why("c.weight").kind == "raised" and trace.why("a.weight").kind == "gradient"


def test_what_ended_the_trace_was_not_caught():
    net = Block()
    with pytest.raises(RuntimeError), modlab.trace(net) as trace:
        net(X)
    assert "caught" not in str(trace) and trace.why("c.weight").kind == "no backward"


def test_the_exception_that_ended_it_is_told_and_not_an_earlier_one():
    def forward(self, x):
        for _ in range(2):
            with contextlib.suppress(RuntimeError):
                return self.a(x)
        raise ValueError("gave up")

    with pytest.raises(ValueError), modlab.trace(Lambda(forward, a=nn.Linear(5, 5))) as trace:
        trace._source()(X)
    assert "(root) stopped: ValueError: gave up." in trace.headline


def test_an_interruption_that_was_caught():
    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x):
            self.a(x)
            raise KeyboardInterrupt

    def forward(self, x):
        with contextlib.suppress(KeyboardInterrupt):
            self.slow(x)
        return self.b(x)

    trace = trained(Lambda(forward, slow=Slow(), b=nn.Linear(4, 4)))
    assert "3 of 4 modules ran; slow was interrupted, caught by (root)" in trace.headline
    assert trace["slow"].error == "interrupted" and trace["b"].depth == 1
    assert "which was called at" in trace.why("slow.a.weight").text and "and was interrupted" in trace.why("slow.a.weight").text


def test_several_that_raised_alike_are_one_fact():
    def forward(self, x):
        for part in self.parts:
            with contextlib.suppress(RuntimeError):
                part(x)
        return self.b(x)

    trace = trained(Lambda(forward, parts=nn.ModuleList(nn.Linear(5, 5) for _ in range(3)), b=nn.Linear(4, 4)))
    assert "parts.0, parts.1, parts.2 raised RuntimeError, caught by (root)" in trace.headline


def test_of_what_did_not_run_before_it_stopped_it_is_not_said_that_it_would_have():
    def forward(self, x):
        return self.b(self.a(x) if len(x) < 100 else self.other(x))

    net = Lambda(forward, other=nn.Linear(4, 4), a=nn.Linear(4, 4), b=nn.Linear(5, 5))
    with pytest.raises(RuntimeError), modlab.trace(net) as trace:
        net(X)
    assert [(one.path, uncalled(one)) for one in trace.record.uncalled] == [("other", "not called before the pass stopped")]


def test_while_it_is_on_its_way_nobody_has_caught_it():
    net = Block()
    with pytest.raises(RuntimeError), modlab.trace(net) as trace:
        try:
            net(X)
        except RuntimeError:
            assert "caught" not in str(trace)
            raise
    assert "caught" not in str(trace) and trace.error
