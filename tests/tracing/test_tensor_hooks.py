"""Hooks on tensors have their place in a trace, and are what they were when it ends."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import defaultdict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import modlab
from modlab.tracing import event_log as tapes
from modlab.tracing.hook_wrappers import HookWrapper

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def to_42(gradient):
    return gradient * 0 + 42


def look(gradient):
    pass


def double(gradient):
    gradient.mul_(2)


def drop(parameter):
    parameter.grad = None


def halve(parameter):
    parameter.grad.mul_(0.5)


def stages(trace):
    return [(event.path, event.name, *event.marks) for event in trace.find(kind="hook")]


def test_those_of_parameters():
    net = nn.Linear(4, 4)
    net.weight.register_hook(to_42)
    net.weight.register_hook(look)
    net.bias.register_post_accumulate_grad_hook(halve)
    with modlab.trace(net) as trace:
        net(X).sum().backward()
    assert ("", "halve", "post-accumulate-grad hook on bias", "changes .grad in place by up to 4") in stages(trace)
    of_weight = [stage for stage in stages(trace) if "on weight" in stage[2]]
    assert [stage[1] for stage in of_weight] == ["to_42", "look"] and of_weight[1][3] == "changes nothing"
    assert of_weight[0][3].startswith("changes the gradient by up to ")
    event = trace.find("to_42")[0]
    assert event.where.startswith("tests/tracing/test_tensor_hooks.py:") and event.outputs[0].stats.min == event.outputs[0].stats.max == 42
    assert "to_42, a tensor hook on weight, changes the gradient by up to" in trace.headline
    assert torch.equal(net.weight.grad, torch.full((4, 4), 42.0)) and torch.equal(net.bias.grad, torch.full((4,), 4.0))


def test_those_that_tensors_get_meanwhile():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    with modlab.trace(net) as trace:
        hidden = net[0](X)
        hidden.register_hook(double)
        active = F.relu(hidden)
        active.register_hook(look)
        net[1].weight.register_hook(look)
        net[1](active).sum().backward()
    assert {stage[:3] for stage in stages(trace)} == {
        ("1", "look", "tensor hook on weight"),
        (None, "look", "tensor hook on the output of F.relu"),
        ("0", "double", "tensor hook on the output of 0"),
    }
    (stage,) = trace.find("double")
    assert stage.marks[1].startswith("changes the gradient in place by up to")


def test_those_of_the_models_input():
    net, x = nn.Linear(4, 4), X.clone().requires_grad_()
    x.register_hook(look)
    with modlab.trace(net) as trace:
        net(x).sum().backward()
    assert stages(trace) == [("", "look", "tensor hook on input of (root)", "changes nothing")]
    assert list(x._backward_hooks.values()) == [look]


def test_one_that_takes_the_gradient_away():
    net = nn.Linear(4, 4)
    net.bias.register_post_accumulate_grad_hook(drop)
    with modlab.trace(net) as trace:
        net(X).sum().backward()
    assert stages(trace) == [("", "drop", "post-accumulate-grad hook on bias", "sets .grad to None")]
    assert trace.why("bias").kind == "set to None"


def test_one_that_raises_and_one_that_returns_what_is_no_gradient():
    def strict(gradient):
        raise ValueError("strict")

    def three(gradient):
        return 3

    for hook, error, said in ((strict, ValueError, "stopped in"), (three, TypeError, "The tensor hook")):
        net = nn.Linear(4, 4)
        net.weight.register_hook(hook)
        with pytest.raises(error), modlab.trace(net) as trace:
            net(X).sum().backward()
        assert said in trace.headline and hook.__name__ in trace.headline and "test_tensor_hooks.py" in trace.headline
        assert list(net.weight._backward_hooks.values()) == [hook]


def build():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 2))
    net[0].weight.register_hook(lambda gradient: gradient * 0.5 + torch.rand_like(gradient))
    net[0].weight.register_hook(look)
    net[3].bias.register_post_accumulate_grad_hook(halve)
    return net


def train(net, x):
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        hidden = net[1](net[0](x))
        hidden.register_hook(lambda gradient: gradient * torch.rand_like(gradient))
        hidden.register_hook(double).remove()
        net[3](net[2](hidden)).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    net(x).sum().backward()
    return hidden


def found(net):
    stores = ("_backward_hooks", "_post_accumulate_grad_hooks")
    return [(getattr(p, store) and list(getattr(p, store).items())) for p in net.parameters() for store in stores]


def test_bits_flags_and_hooks_are_those_without():
    plain, traced = build(), build()
    before = found(traced)
    torch.manual_seed(9)
    train(plain, X)
    state = torch.get_rng_state()
    torch.manual_seed(9)
    with modlab.trace(traced):
        hidden = train(traced, X)
    assert torch.equal(state, torch.get_rng_state())
    for one, two in zip(plain.parameters(), traced.parameters(), strict=True):
        assert torch.equal(one, two) and torch.equal(one.grad, two.grad)
    assert found(traced) == before and [hooks is None for hooks in found(plain)] == [hooks is None for hooks in before]
    assert [type(hook) is HookWrapper for hook in hidden._backward_hooks.values()] == [False]


def test_hooks_come_back_when_traces_end_in_the_wrong_order():
    net = nn.Linear(4, 4)
    net.weight.register_hook(double)
    outer, inner = modlab.trace(net), modlab.trace(net)
    outer.__enter__()
    seen = inner.__enter__()
    outer.__exit__(None, None, None)
    net(X).sum().backward()
    inner.__exit__(None, None, None)
    assert list(net.weight._backward_hooks.values()) == [double] and len(seen.find(kind="hook")) == 1


def test_a_hook_that_is_removed_stays_removed():
    net = nn.Linear(4, 4)
    handle = net.weight.register_hook(double)
    with modlab.trace(net) as trace:
        handle.remove()
        net(X).sum().backward()
    assert not net.weight._backward_hooks and not trace.find(kind="hook")


def test_what_a_hook_holds_is_not_held():
    class Thing:
        pass

    net, alive = nn.Linear(4, 4), []
    with modlab.trace(net):
        for _ in range(3):
            thing = Thing()
            alive.append(weakref.ref(thing))
            y = net(X)
            y.register_hook(lambda gradient, thing=thing: None)
            y.sum().backward()
            del y, thing
        gc.collect()
        assert not any(one() for one in alive)


def test_traces_in_several_threads_do_not_mix_in_a_backward_pass():
    net = nn.Linear(4, 4)
    net.weight.register_hook(look)
    net.register_full_backward_hook(lambda module, given, made: None)
    counts = []

    def work():
        for _ in range(15):
            with modlab.trace(net) as trace:
                net(X.clone().requires_grad_()).sum().backward()
            counts.append(len(trace.find(kind="hook")))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(counts) == {2} and len(counts) == 45
    assert list(net.weight._backward_hooks.values()) == [look]


def test_a_thread_of_autograds_own_is_told_from_one_of_the_users(monkeypatch):
    log, answers = tapes.EventLog(), []
    log.begin("backward", None, "Tensor.backward", 0.0)
    monkeypatch.setattr(tapes, "graph_task", lambda: 1)
    here, done = log.here, threading.Event()

    def user():
        answers.append(here())
        done.set()

    threading.Thread(target=user).start()
    assert done.wait(10) and answers == [False] and here()
    noted = defaultdict(int)
    monkeypatch.setattr(tapes, "get_ident", lambda: 0)  # of another thread
    monkeypatch.setattr(tapes.callers, "_whose", noted)
    assert here() and noted


def test_a_hook_that_leaves_the_input_alone_says_what_else_it_does():
    m = nn.Linear(4, 4)
    prune.l1_unstructured(m, "weight", 0.5)
    text = str(modlab.trace(m)(torch.randn(2, 4)))
    assert "added by pruning, leaves the input unchanged; sets weight; runs 2 functions)" in text and "changes nothing" not in text


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (lambda m, args: setattr(m, "seen", 1), "leaves the input unchanged; sets seen"),
        (lambda m, args: args[0].mean() and None, "leaves the input unchanged; runs 1 function"),
        (lambda m, args: None, "changes nothing"),
    ],
)
def test_what_a_silent_hook_does(hook, said):
    m = nn.Linear(4, 4)
    m.register_forward_pre_hook(hook)
    trace = modlab.trace(m)(torch.ones(2, 4))
    assert [event.marks[-1] for event in trace.record.events if event.kind == "hook"] == [said]
