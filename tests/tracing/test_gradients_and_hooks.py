"""What a trace says of gradients and hooks in less usual dress; each case is one where it was wrong, or silent, before."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import modlab


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 4)
        self.b = nn.Linear(4, 2)

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(self.between(self.a(x)))


def trained(net: nn.Module) -> modlab.results.trace.Trace:
    with modlab.trace(net) as trace:
        net(torch.randn(5, 3)).sum().backward()
    return trace


# why


def test_a_sample_of_a_distribution_leaves_under_no_grad():
    class Net(Two):
        def between(self, hidden):
            return torch.distributions.Normal(hidden, 1.0).sample()

    net = Net()
    trace = trained(net)
    assert net.a.weight.grad is None
    reason = trace.why("a.weight")
    assert reason.kind == "no_grad"
    assert trace.events[reason.event].name in ("Tensor.expand", "torch.normal")
    assert not trace.find("torch.broadcast_tensors")[0].marks  # one of its outputs carries no gradient, and is no whole number


def test_a_view_made_under_no_grad_leaves():
    class Net(Two):
        def between(self, hidden):
            with torch.no_grad():
                return hidden.view(5, 2, 2).transpose(1, 2).reshape(5, 4)

    net = Net()
    trace = trained(net)
    assert net.a.weight.grad is None
    reason = trace.why("a.weight")
    assert (reason.kind, trace.events[reason.event].name) == ("no_grad", "Tensor.view")
    assert "Tensor.view leaves the graph, under no_grad" in trace.headline


def test_a_pre_hook_that_detaches_is_the_reason():
    net = Two()
    net.b.register_forward_pre_hook(lambda module, args: (args[0].detach(),))
    trace = trained(net)
    assert net.a.weight.grad is None
    reason = trace.why("a.weight")
    assert (reason.kind, trace.events[reason.event].name, trace.events[reason.event].path) == ("detached", "Tensor.detach", "b")


def test_what_a_pre_hook_replaces_is_not_on_the_way():
    net = Two()
    net.b.register_forward_pre_hook(lambda module, args: (torch.ones(5, 4),))
    with modlab.trace(net) as trace:
        hidden = net.a(torch.randn(5, 3))
        hidden.detach()
        net.b(hidden).sum().backward()
    assert trace.why("a.weight").kind == "off the path"


def test_a_gradient_that_was_set_to_zero_is_said_with_its_event():
    net = Two()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with modlab.trace(net) as trace:
        net(torch.randn(5, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    reason = trace.why("a.weight")
    assert reason.kind == "gradient" and "since been set to zero" in reason.text
    assert trace.events[reason.event].kind == "backward"


def test_a_child_that_was_replaced_since_does_not_lend_its_gradient():
    net = Two()
    with modlab.trace(net) as trace:
        output = net(torch.randn(5, 3))
        net.a = nn.Linear(3, 4)
        output.sum().backward()
    assert net.a.weight.grad is None
    assert trace.why("a.weight").kind == "overwritten"
    assert "a.weight, a.bias were replaced after they got their gradients" in trace.headline


def test_a_child_that_was_replaced_before_the_call_has_its_own():
    net = Two()
    with modlab.trace(net) as trace:
        net.a = nn.Linear(3, 4)
        net(torch.randn(5, 3)).sum().backward()
    assert net.a.weight.grad is not None
    assert trace.why("a.weight").kind == "gradient" and "replaced since the trace began" in trace.why("a.weight").text
    assert "no gradient" not in trace.headline


def test_copies_in_the_place_of_the_parameters_are_the_reason():
    net = Two()
    with modlab.trace(net) as trace:
        copies = {name: tensor.detach().clone().requires_grad_() for name, tensor in net.named_parameters()}
        torch.func.functional_call(net, copies, (torch.randn(5, 3),)).sum().backward()
    assert {reason.kind for reason in trace.record.reasons} == {"overwritten"}
    assert "none of its 4 parameters got a gradient" in trace.headline


def test_reentrant_checkpointing_without_a_graph_is_named():
    class Net(Two):
        def forward(self, x):
            return self.b(checkpoint(self.a, x, use_reentrant=True))

    net = Net()
    net.a = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = trained(net)
    assert net.a[0].weight.grad is None
    assert trace.why("a.0.weight").kind == "off the path" and "use_reentrant=True" in trace.why("a.0.weight").text
    assert not any("no_grad" in mark for event in trace.find(kind="module") for mark in event.marks)


# headlines


def test_that_nothing_got_a_gradient_is_in_the_headline():
    net = Two()
    with modlab.trace(net) as trace:
        net(torch.randn(5, 3)).detach().requires_grad_().sum().backward()
    assert all(parameter.grad is None for parameter in net.parameters())
    assert "none of its 4 parameters got a gradient" in trace.headline
    assert "Tensor.detach" in str(trace).partition("and why")[2]


def test_without_a_backward_pass_nothing_is_missed():
    with modlab.trace(Two()) as trace:
        trace._source().b(torch.randn(5, 4))
    assert "gradient" not in str(trace)
    x = torch.randn(5, 3, requires_grad=True)
    net = Two()
    with modlab.trace(net) as trace:
        torch.autograd.grad(net(x).sum(), x)
    assert "gradient" not in trace.headline


def test_gradients_of_zeros_are_in_the_headline():
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x):
            return x + self.up(self.down(x))

    net = Adapted()
    trace = trained(net)
    assert not net.down.weight.grad.any() and net.up.weight.grad.any()
    assert "down.weight got an all-zero gradient" in trace.headline


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_checkpointing_computes_again_did_not_run_several_times(reentrant):
    class Net(Two):
        def forward(self, x):
            return self.b(checkpoint(self.a, x, use_reentrant=reentrant))

    net = Net()
    with modlab.trace(net) as trace:
        net(torch.randn(5, 3, requires_grad=True)).sum().backward()
    assert "a ran again in the backward pass (checkpointing)" in trace.headline
    assert "several times" not in trace.headline


def test_a_model_that_calls_itself_is_in_the_headline():
    class Again(Two):
        def forward(self, x, depth=2):
            return self(x, depth - 1) if depth else super().forward(x)

    assert "(root) (3×) ran several times" in modlab.trace(Again())(torch.randn(5, 3)).headline
    net = Two()
    with modlab.trace(net) as trace:
        net(torch.randn(5, 3))
        net(torch.randn(5, 3))
    assert "(root)" not in trace.headline


def test_an_activation_that_is_dead_in_some_calls_says_in_which():
    net = nn.Sequential(nn.ReLU())
    with modlab.trace(net) as trace:
        net(torch.ones(3))
        net(-torch.ones(3))
    assert "0 (call 2) outputs only zeros" in trace.headline
    with modlab.trace(net) as trace:
        net(-torch.ones(3))
        net(-torch.ones(3))
    assert "0 outputs only zeros" in trace.headline


def test_a_buffer_is_named_once_however_often_it_joins():
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x):
            self.mean = 0.9 * self.mean + 0.1 * x
            return x

    net = Mean()
    with modlab.trace(net) as trace:
        for _ in range(2):
            net(torch.ones(3, requires_grad=True))
    assert "(root) has a buffer that joins the graph" in trace.headline


# values


def test_memory_in_which_nothing_stands_yet_is_not_measured():
    class Net(Two):
        def forward(self, x):
            made = torch.empty(5, 4)
            first = made[:2]
            made.fill_(0.5)
            return super().forward(x) + first.sum() + made.sum()

    trace = modlab.trace(Net())(torch.randn(5, 3))
    (made,) = trace.find("torch.empty")
    (first,) = trace.find("x[[]...]")
    assert made.outputs[0].stats is None and "nothing has been written" in made.outputs[0].note
    assert first.outputs[0].stats is None
    (filled,) = trace.find("Tensor.fill_")
    assert filled.outputs[0].stats.mean == 0.5
    assert made.bytes == 80


def test_not_a_number_in_raw_memory_is_no_alarm():
    class Net(Two):
        def between(self, hidden):
            return torch.distributions.Normal(hidden, 1.0).rsample()

    torch.utils.deterministic.fill_uninitialized_memory, before = True, torch.utils.deterministic.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True)  # fills such memory with NaN
        assert "NaN" not in str(modlab.trace(Net())(torch.randn(5, 3)))
    finally:
        torch.use_deterministic_algorithms(False)
        torch.utils.deterministic.fill_uninitialized_memory = before


def test_a_view_behind_a_folded_call_is_no_new_memory():
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(4, 4)

        def forward(self, x):
            return self.gate(x)[..., :1] + self.gate(x)[..., 1:2]

    trace = modlab.trace(Gated(), fold=True)(torch.ones(2, 4))
    assert trace["gate"][0].times == 2
    assert [event.bytes for event in trace.find("x[[]...]")] == [0, 0]


def test_comparisons_are_called_as_they_are_written():
    class Net(nn.Module):
        def forward(self, x):
            return ~((x > 0) & (x <= 1) | (x == 2)), x // 2, x % 2

    names = [event.name for event in modlab.trace(Net())(torch.ones(2)).find(kind="function")]
    assert names == ["x > y", "x <= y", "x & y", "x == y", "x | y", "~x", "x // y", "x % y"]


# hooks


def test_a_hook_that_makes_nan_is_named():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))

    def spoil(module, args, output):
        return output * float("nan")

    net[0].register_forward_hook(spoil)
    trace = modlab.trace(net)(torch.ones(1, 3))
    assert "NaN first in layer 0 (test_a_hook_that_makes_nan_is_named.spoil)" in trace.headline
    assert "a forward hook, changes the output to NaN" in trace.headline


@pytest.mark.parametrize("use", [lambda output: output.sum(), lambda output: output @ output])
def test_a_hook_that_wraps_the_output_is_named(use):
    def wrap(module, args, output):
        return [output]

    net = Two()
    net.b.register_forward_hook(wrap)
    with pytest.raises((AttributeError, TypeError)) as caught, modlab.trace(net) as trace:
        use(net(torch.randn(5, 3)))
    assert trace.headline.startswith("The forward hook test_a_hook_that_wraps_the_output_is_named.wrap on b returned a list")
    assert f"After it: {type(caught.value).__name__}" in trace.headline


def test_an_error_of_something_else_is_not_blamed_on_a_hook():
    net = Two()
    net.b.register_forward_hook(lambda module, args, output: [output])
    with pytest.raises(AttributeError), modlab.trace(net) as trace:
        net(torch.randn(5, 3))
        "word".missing  # noqa: B018
    assert "hook" not in trace.headline


def test_the_row_in_which_a_hook_raised_is_the_only_broken_one():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    net[0].register_forward_hook(lambda module, args, output: output.reshape(7, 7))
    tracer = modlab.trace(net)
    with pytest.raises(RuntimeError):
        tracer(torch.ones(2, 3))
    lines = [line for line in repr(tracer).splitlines() if "is invalid for input" in line]
    assert len(lines) == 1 and "Tensor.reshape" in lines[0]


def test_a_hook_that_ran_twice_is_told_once():
    net = nn.Linear(3, 3)

    def double(module, args, output):
        return output * 2

    net.register_forward_hook(double)
    with modlab.trace(net) as trace:
        net(torch.ones(3))
        net(torch.ones(3))
    assert trace.headline.count("double, a forward hook") == 1 and "(the first of 2 times)" in trace.headline
    assert "<locals>" not in str(trace)


def test_a_legacy_backward_hook_is_called_so():
    net = nn.Linear(3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.register_backward_hook(lambda module, grad_input, grad_output: None)
        with modlab.trace(net) as trace:
            net(torch.ones(2, 3)).sum().backward()
    (event,) = trace.find(kind="hook")
    assert event.marks[0] == "legacy backward hook"


def test_hooks_registered_while_it_runs_are_seen():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))

    def late(module, args, output):
        return output * 2

    def early(module, args):
        return (args[0] + 1,)

    with modlab.trace(net) as trace:
        net(torch.ones(1, 3))
        net[0].register_forward_hook(late)
        assert net(torch.ones(1, 3)) is not None
    (event,) = trace.find(kind="hook")
    assert event.name.endswith("late") and not trace.record.remarks
    with modlab.trace(net) as trace:
        net[1].register_forward_pre_hook(early)
        net(torch.ones(1, 3))
        net(torch.ones(1, 3))
    assert [event.name.rpartition(".")[2] for event in trace.find(kind="hook")] == ["late", "late", "early"]
    assert "hooks that 1 got during the trace are seen from its next call on" in trace.record.remarks
    assert [list(module._forward_hooks.values()) for module in net] == [[late], []]
    assert list(net[1]._forward_pre_hooks.values()) == [early]


# what torch.compile runs


def test_a_function_that_was_compiled_stays_compiled_and_what_it_calls_is_said_to_be_unseen():
    net = Two()
    frames: list[str] = []

    def backend(graph, inputs):
        frames.append("compiled")
        return graph.forward

    function = torch.compile(lambda x: net(x) * 2, backend=backend)
    x = torch.randn(5, 3)
    expected = function(x)
    for _ in range(10):  # torch gives up after 8 times
        with modlab.trace(net) as trace:
            assert torch.equal(function(x), expected)
        assert trace.headline == "Two: whether its 3 modules ran cannot be seen."
    assert frames == ["compiled"] * 2
    assert "eval_with_key" not in str(trace)


def test_taps_that_are_nested_have_numbers_of_their_own():
    hooks = nn.modules.module._global_forward_hooks
    net = Two()
    with modlab.trace(net), modlab.trace(net):
        assert len(hooks) == 2 and all(key < 0 for key in hooks)
        own = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
        assert list(hooks)[-1] == own.id
    assert list(hooks) == [own.id]
    own.remove()
