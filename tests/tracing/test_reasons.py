"""Why a parameter has no gradient, where the way out of the graph is a winding one; and what is not to be said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modlab
from modlab.errors import PathNotFoundError
from modlab.wording.events import uncalled
from tests.calls import Lambda

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def trained(net, loss=lambda y: y.sum()):
    with modlab.trace(net) as trace:
        loss(net(X)).backward()
    return trace


def between(act):
    """Two layers with something between them that is no function of torch's alone."""
    return Lambda(lambda self, x: self.b(act(self.a(x))), a=nn.Linear(4, 4), b=nn.Linear(4, 4))


# --- out of torch and in again


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda h: torch.from_numpy(h.detach().numpy()), "and torch in Tensor.numpy at"),
        (lambda h: torch.from_numpy(np.tanh(h.data.numpy())), "left the graph in Tensor.data at"),
        (lambda h: torch.tensor(h.detach().cpu().numpy()), "and continued as an array from Tensor.numpy at"),
        (lambda h: torch.as_tensor(np.asarray(h.detach())), "and continued as an array from Tensor.__array__ at"),
        (lambda h: torch.ones(8, 4) * h.detach().mean().item(), "and continued as a plain number from Tensor.item at"),
        (lambda h: torch.tensor(h.detach().tolist()), "and continued as plain numbers from Tensor.tolist at"),
        (lambda h: torch.tensor(h.tolist()), "became plain numbers in Tensor.tolist at"),
    ],
)
def test_what_goes_round_autograd_is_named(act, said):
    net = between(act)
    trace = trained(net)
    reason = trace.why("a.weight")
    assert net.a.weight.grad is None and reason.kind == "detached" and said in reason.text
    assert trace.events[reason.event].name in ("Tensor.detach", "Tensor.data", "Tensor.tolist")


def test_a_loss_made_of_a_number():
    trace = trained(nn.Linear(4, 4), lambda y: torch.tensor(y.sum().item(), requires_grad=True))
    assert trace.why("weight").kind == "detached" and "Tensor.item at" in trace.why("weight").text


def noted(note, **parts):
    """Notes something of a branch that is not part of the output."""

    def forward(self, x):
        self.noted = note(self.a(x))
        return self.b(x * self.scale)

    net = Lambda(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4))
    net.scale = torch.ones(4)
    return net


@pytest.mark.parametrize("note", [lambda h: h.detach().numpy(), lambda h: h.detach().sum().item(), lambda h: h.sum().item(), torch.detach])
def test_what_is_only_noted_is_not_the_reason(note):
    reason = trained(noted(note)).why("a.weight")
    assert reason.kind == "off the path" and reason.text.endswith("reach the tensor that backward() started from")


def test_a_constant_of_another_size_is_not_what_was_taken_out():
    scale = torch.ones(4)  # which no module holds

    def forward(self, x):
        self.noted = self.a(x).detach().numpy()
        return self.b(x) * scale

    assert trained(Lambda(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4))).why("a.weight").kind == "off the path"


def test_a_zero_that_stands_everywhere_is_not_that_of_an_item():
    def forward(self, x):
        self.noted = (self.a(x) * 0).sum().item()
        return self.b(x) + 0.0

    assert trained(Lambda(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4))).why("a.weight").kind == "off the path"


# --- what had turned autograd off


def test_functions_under_inference_mode():
    def forward(self, x):
        h = self.a(x)
        with torch.inference_mode():
            h = F.relu(h)
        return self.b(h.clone())

    trace = trained(Lambda(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4)))
    assert "F.relu leaves the graph, under inference_mode" in trace.headline and "no_grad" not in str(trace)
    assert trace.why("a.weight").kind == "inference_mode" and "left the graph in F.relu at" in trace.why("a.weight").text


def test_a_parameter_that_a_function_takes_under_inference_mode():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.v = nn.Parameter(torch.ones(4, 4)), nn.Parameter(torch.ones(4, 4))

        @torch.inference_mode()
        def encode(self, x):
            return x @ self.w

        def forward(self, x):
            return self.encode(x).clone() @ self.v

    trace = trained(Own())
    assert trace.why("w").kind == "inference_mode" and "x @ y ran under inference_mode at" in trace.why("w").text


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_trace_that_begins_with_autograd_off(off):
    net = nn.Linear(4, 4)
    with off():
        trace = modlab.trace(net)(X)
    assert trace.why("weight").kind == off.__name__ and f"ran under {off.__name__} at" in trace.why("weight").text


# --- another tensor in its place


def test_a_parameter_that_was_replaced_after_it_got_its_gradient():
    def forward(self, x):
        y = self.a(x)
        self.a.weight = nn.Parameter(torch.ones(4, 4))
        return y

    net = Lambda(forward, a=nn.Linear(4, 4))
    trace = trained(net)
    assert net.a.weight.grad is None and trace.why("a.weight").kind == "overwritten" and trace.why("a.bias").kind == "gradient"


def test_functional_call_puts_others_in_their_place():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    given = {name: tensor.detach().clone().requires_grad_() for name, tensor in net.named_parameters()}
    with modlab.trace(net) as trace:
        torch.func.functional_call(net, given, (X,)).sum().backward()
    reason = trace.why("0.weight")
    assert reason.kind == "overwritten" and "a different tensor was in its place when layer 0 ran" in reason.text
    assert trace.events[reason.event].path == "0" and given["0.weight"].grad is not None


def test_functional_call_in_a_module_with_weights_of_its_own():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            return x @ self.w

    net = Own()
    with modlab.trace(net) as trace:
        torch.func.functional_call(net, {"w": torch.ones(4, 4, requires_grad=True)}, (X,)).sum().backward()
    assert trace.why("w").kind == "overwritten"


# --- what a compiler has wrapped, outside of the model


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_model_that_runs_inside_something_compiled():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    compiled = torch.compile(net, backend="eager")
    with modlab.trace(net) as trace:
        compiled(X)
    assert trace.headline == "Sequential: whether its 3 modules ran cannot be seen."
    assert all("compiled" in uncalled(one) for one in trace.record.uncalled)
    assert trace.why("0.weight").kind == "cannot be seen"
    torch.compiler.reset()


# --- below a folded call


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp = nn.Linear(4, 4), nn.Tanh()

    def forward(self, x):
        return self.mlp(self.attn(x))


def test_what_is_below_a_folded_call_has_the_events_of_the_one_that_stands_for_it():
    trace = modlab.trace(nn.Sequential(*(Block() for _ in range(6))).requires_grad_(False), fold=True)(X)
    assert trace["5.attn"][0] is trace["0.attn"][0] and trace["5.attn"].folded == "0.attn" and trace["5"].folded == "0"
    assert repr(trace["5.attn"]).endswith("as 0.attn (folded)") and "folded" not in repr(trace["0.attn"])
    assert trace["5.attn"].outputs[0].shape == (8, 4)
    with pytest.raises(PathNotFoundError):
        trace["5.nothing"]


def test_a_fold_within_a_fold():
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList(Block() for _ in range(3))

        def forward(self, x):
            return sum(expert(x) for expert in self.experts)

    trace = modlab.trace(nn.Sequential(*(Mixture() for _ in range(3))).requires_grad_(False), fold=True)(X)
    assert trace["2.experts.1.mlp"].folded == "0.experts.0.mlp" and trace["2.experts.1.mlp"][0] is trace["0.experts.0.mlp"][0]
