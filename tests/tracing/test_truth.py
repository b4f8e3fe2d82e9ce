"""What a trace said and was not so, or did not say: found by reading traces of models whose truth is known."""

from __future__ import annotations

import contextlib
import copy
import gc
import threading
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

import modlab
from modlab.lessons.note import BigNet, Net, RunningMean
from modlab.wording.events import uncalled
from tests.calls import Lambda

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def traced(net, act, **options):
    with modlab.trace(net, **options) as trace:
        act(net)
    return trace


def doing(hook, register="register_forward_hook", x=X):
    """What is said of a hook on a linear layer."""
    net = nn.Linear(4, 4)
    getattr(net, register)(hook)
    with modlab.trace(net) as trace, contextlib.suppress(TypeError, RuntimeError, AttributeError):
        net(x.clone().requires_grad_()).sum().backward()
    (stage,) = trace.find(kind="hook")
    return stage.marks


# --- folded calls are alike


def test_calls_with_other_inputs_are_not_alike():
    net = Lambda(
        lambda self, x: torch.cat([self.e[i](x[: n + 1]) for i, n in enumerate((0, 1, 0, 2))]),
        e=nn.ModuleList(nn.Linear(4, 4) for _ in range(4)),
    )
    trace = modlab.trace(net, fold=True)(X)
    assert [trace[f"e.{i}"].outputs[0].shape for i in range(4)] == [(1, 4), (2, 4), (1, 4), (3, 4)]
    assert trace["e.0"].times == 2 and trace["e.2"].index == trace["e.0"].index


class Pool(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        return F.max_pool1d(x, self.size)


def test_modules_with_other_attributes_are_not_alike():
    net = Lambda(lambda self, x: [part(x) for part in self.b], b=nn.ModuleList(map(Pool, (2, 3, 2))))
    trace = modlab.trace(net, fold=True)(torch.randn(2, 6, 12))
    assert [trace[f"b.{i}"].outputs[0].shape for i in range(3)] == [(2, 6, 6), (2, 6, 4), (2, 6, 6)]
    assert trace["b.0"].times == 2


def test_the_number_that_a_block_has_in_its_list_may_differ_and_is_named():
    class Numbered(nn.Module):
        def __init__(self, index):
            super().__init__()
            self.layer_idx, self.a = index, nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x)

    trace = modlab.trace(nn.Sequential(*map(Numbered, range(5))).requires_grad_(False), fold=True)(X)
    assert trace["0"].times == 5 and "they differ in layer_idx" in trace["0"].marks


def test_a_number_that_is_not_its_own_is_compared():
    net = Lambda(lambda self, x: [part(x) for part in self.b], b=nn.ModuleList(map(Pool, (1, 2, 1))))
    trace = modlab.trace(net, fold=True)(torch.randn(2, 6, 12))
    assert trace["b.1"].outputs[0].shape == (2, 6, 6) and trace["b.1"].index != trace["b.0"].index


def test_a_folded_call_that_ends_otherwise_is_told():
    class Growing(nn.Module):  # of one look, and of two sizes
        def forward(self, x):
            sizes.append(len(sizes) + 1)
            return x[: sizes[-1]]

    sizes = []
    net = Lambda(lambda self, x: [part(x) for part in self.b], b=nn.ModuleList(Growing() for _ in range(3)))
    trace = modlab.trace(net, fold=True)(X)
    assert [trace[f"b.{i}"].outputs[0].shape for i in range(3)] == [(1, 4), (2, 4), (3, 4)]
    assert "unlike b.0" in trace["b.2"].marks[0] and trace["b.0"].times == 1
    assert [event.index for event in trace] == list(range(len(trace)))


def test_not_a_number_in_a_folded_call_is_told():
    net = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4))).requires_grad_(False)
    net[2].weight[0, 0] = float("nan")
    trace = modlab.trace(net, fold=True)(X)
    assert "NaN first in layer 2" in trace.headline and trace["1"].index == trace["0"].index


def test_a_folded_call_that_raises_is_told():
    class Fragile(nn.Module):
        def forward(self, x):
            calls.append(1)
            if len(calls) == 3:
                raise ValueError("third")
            return x * 1

    calls = []
    net = Lambda(lambda self, x: [part(x) for part in self.b], b=nn.ModuleList(Fragile() for _ in range(3)))
    with pytest.raises(ValueError), modlab.trace(net, fold=True) as trace:
        net(X)
    assert trace["b.2"].error == "ValueError: third" and trace["b.0"].times == 2
    assert trace.headline.startswith("b.2 stopped")


def test_why_of_what_was_folded_and_of_what_did_not_run():
    net = Lambda(lambda self, x: self.e[0](x) + self.e[1](x), e=nn.ModuleList(nn.Linear(4, 4) for _ in range(3)))
    trace = traced(net, lambda net: net(X).sum().backward(), fold=True)
    assert trace["e.0"].times == 2
    assert trace.why("e.2.weight").kind == "not called" and "e.2.weight" in str(trace).split("and why")[1]
    assert modlab.trace(net, fold=True)(X).why("e.2.weight").kind == "not called"


def test_other_hooks_are_not_alike():
    net = nn.Sequential(*(nn.Tanh() for _ in range(4)))
    for i in (2, 3):
        net[i].register_forward_hook(lambda module, args, out, i=i: out * i)
    trace = modlab.trace(net, fold=True)(X)
    assert trace["0"].times == 2 and len(trace.find(kind="hook")) == 2


# --- new memory


@pytest.mark.parametrize("view", [lambda x: x.detach(), lambda x: x.data, lambda x: x.view(-1), lambda x: x.T, lambda x: x.chunk(2)])
@pytest.mark.parametrize("inference", [False, True])
def test_views_are_no_new_memory(view, inference):
    with torch.inference_mode(inference):
        trace = modlab.trace(Lambda(lambda self, x: view(x)))(X.clone())
    assert [event.bytes for event in trace] == [0, 0]


def test_memory_is_that_of_the_storage():
    trace = modlab.trace(Lambda(lambda self, x: torch.zeros(1).expand(1000)))(X)
    assert trace[""].bytes == 4
    trace = modlab.trace(Lambda(lambda self, x: (x * 2).chunk(2)))(X)
    assert trace[""].bytes == 128, "both lie in one"


def test_what_a_module_gives_out_is_new_whoever_made_it_inside():
    trace = modlab.trace(nn.Sequential(nn.Sequential(nn.Linear(8, 8)), nn.Flatten(), nn.ReLU(inplace=True)))(torch.randn(2, 6, 8))
    assert {event.path: event.bytes for event in trace} == {"": 384, "0": 384, "0.0": 384, "1": 0, "2": 0}


def test_memory_without_an_address():
    with torch.device("meta"):
        trace = modlab.trace(Lambda(lambda self, x: self.a(x).view(-1), a=nn.Linear(4, 8)))(torch.empty(2, 4))
    assert {event.path: event.bytes for event in trace if event.kind == "module"} == {"": 64, "a": 64}
    assert trace.find("Tensor.view")[0].bytes == 0


def test_a_view_of_a_weight_is_no_new_memory():
    trace = modlab.trace(Lambda(lambda self, x: self.a.weight.T, a=nn.Linear(4, 8)))(X)
    assert [event.bytes for event in trace] == [0, 0]


# --- where the graph ends


def compared(net):
    y = net(X)
    (y > 0).float().mean().backward()


def test_the_event_that_cuts_the_loss_off_is_named_and_marked():
    net = Net()
    with pytest.raises(RuntimeError), modlab.trace(net) as trace:
        innocent = torch.tensor(1.0)
        compared(net)
    del innocent
    (cut,) = trace.find("x > y")
    assert "leaves the graph" in cut.marks
    reason = trace.why("l0.weight")
    assert (reason.kind, reason.event) == ("detached", cut.index) and "the loss has no graph" in reason.text
    assert f"The graph ends in x > y at {cut.where}" in trace.headline


def test_a_comparison_beside_the_loss_is_marked_as_nothing():
    net = Net()
    trace = traced(net, lambda net: ((y := net(X)) > 0, y.sum().backward()))
    assert not any("leaves" in mark for event in trace for mark in event.marks)


def test_a_detach_beside_the_loss_is_no_reason():
    net = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})

    def act(net):
        ya, yb = net["a"](X), net["b"](X)
        ya.detach().mean(), ya.sum().item()
        yb.sum().backward()

    assert traced(net, act).why("a.weight").kind == "off the path"


def test_of_two_cuts_the_one_on_the_way_is_the_reason():
    net = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})

    def act(net):
        ya = net["a"](X)
        ya.detach().mean()
        net["b"](ya.data).sum().backward()

    trace = traced(net, act)
    assert trace.events[trace.why("a.weight").event].name == "Tensor.data"


def test_what_is_written_into_another_tensor_is_followed():
    def forward(self, x):
        out = torch.zeros(8, 4)
        out[...] = self.a(x).detach()
        return self.b(out)

    trace = traced(Lambda(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 1)), lambda net: net(X).sum().backward())
    assert trace.why("a.weight").kind == "detached"


def test_indices_cut_and_values_do_not():
    cut = Lambda(lambda self, x: self.b(self.a(x).topk(4).indices.float()), a=nn.Linear(4, 4), b=nn.Linear(4, 1))
    trace = traced(cut, lambda net: net(X).sum().backward())
    (top,) = trace.find("Tensor.topk")
    assert trace.why("a.weight").event == top.index and "leaves the graph" in top.marks
    fine = Lambda(lambda self, x: self.b(self.a(x).topk(4).values), a=nn.Linear(4, 4), b=nn.Linear(4, 1))
    trace = traced(fine, lambda net: net(X).sum().backward())
    assert trace.why("a.weight").kind == "gradient" and trace.find("Tensor.topk")[0].marks == ()


def test_a_function_of_the_users_that_gives_no_graph():
    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.mark_non_differentiable(y)
            return y

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    net = Lambda(lambda self, x: self.b(Cut.apply(self.a(x))), a=nn.Linear(4, 4), b=nn.Linear(4, 1))
    trace = traced(net, lambda net: net(X).sum().backward())
    reason = trace.why("a.weight")
    assert reason.kind == "off the path" and trace.events[reason.event].path == "b" and "autograd.Function" in reason.text


def test_a_gradient_penalty_asks_for_all():
    net, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)), X.clone().requires_grad_()

    def act(net):
        (gradient,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        ((gradient.norm(dim=1) - 1) ** 2).mean().backward()

    trace = traced(net, act)
    assert trace.why("2.bias").kind == "off the path" and trace.why("0.weight").kind == "gradient"


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_leaves_no_graph():
    net = Net()
    trace = traced(net, lambda net: torch.vmap(net)(X).sum().backward())
    assert not any("leaves the graph" in mark for event in trace for mark in event.marks) and trace.why("l0.weight").kind == "gradient"
    assert any("vmap" in remark for remark in trace.record.remarks)
    assert net.l0.weight.grad is not None


# --- gradients that come and go


def test_a_gradient_that_its_hook_takes_away():
    net = nn.Linear(4, 4)
    net.weight.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
    trace = traced(net, lambda net: net(X).sum().backward())
    assert net.weight.grad is None and trace.why("weight").kind == "set to None"
    (backward,) = trace.find(kind="backward")
    assert {value.name for value in backward.outputs} == {"weight.grad", "bias.grad"}
    assert "got no gradient" not in trace.headline


def test_a_hook_registered_while_it_runs_may_have_taken_it():
    def act(net):
        net.weight.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
        net(X).sum().backward()

    assert "or a hook of its own removed it" in traced(nn.Linear(4, 4), act).why("weight").text


def test_an_optimizer_in_the_hook_counts_the_gradients():
    net = nn.Linear(4, 4)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in net.parameters()}

    def act(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(act)
    trace = traced(net, lambda net: net(X).sum().backward())
    assert len(trace.find(kind="backward")[0].outputs) == 2 and "0 gradients" not in str(trace)


def test_a_parameter_replaced_in_the_pass_is_judged_by_the_new_one():
    def forward(self, x):
        self.a.weight = nn.Parameter(self.a.weight.detach() * 0.9)
        return self.a(x)

    net = Lambda(forward, a=nn.Linear(4, 4))
    trace = traced(net, lambda net: [net(X).sum().backward() for _ in range(3)])
    reason = trace.why("a.weight")
    assert reason.kind == "gradient" and "it has been replaced since the trace began" in reason.text
    assert net.a.weight.grad is not None
    assert [one.path for one in trace.record.reasons].count("a.weight") == 1


def test_a_parameter_replaced_in_a_module_of_the_users_too():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))

        def forward(self, x):
            self.w = nn.Parameter(self.w.detach() * 2)
            return x * self.w

    assert traced(Scale(), lambda net: net(X).sum().backward()).why("w").kind == "gradient"


def test_gradients_that_add_up():
    net = Net()
    trace = traced(net, lambda net: [net(X).sum().backward() for _ in range(2)])
    first, second = trace.find(kind="backward")
    assert first.marks == () and second.marks == ("adds to 4 existing gradients",)
    assert "backward adds to 4 existing gradients (no zero_grad between)" in trace.headline
    assert "added to an earlier one" in trace.why("l0.weight").text


def test_a_gradient_from_before_the_trace_is_added_to():
    net = Net()
    net(X).sum().backward()
    assert "adds to 4 existing gradients" in traced(net, lambda net: net(X).sum().backward()).headline


@pytest.mark.parametrize("to_none", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_gradients_set_to_zero_do_not_add_up(to_none, before):
    net = Net()
    if before:
        net(X).sum().backward()

    def act(net):
        for _ in range(2):
            net.zero_grad(set_to_none=to_none)
            net(X).sum().backward()

    assert "adds to" not in str(traced(net, act))


def test_without_values_only_what_is_sure_is_said():
    net = Net()
    trace = traced(net, lambda net: [net(X).sum().backward() for _ in range(2)], values=False)
    assert [event.marks for event in trace.find(kind="backward")] == [(), ("adds to 4 existing gradients",)]
    net.zero_grad(set_to_none=False)
    assert "adds to" not in str(traced(net, lambda net: net(X).sum().backward(), values=False))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_what_a_full_backward_hook_meets():
    net, met = Net(), []
    for part in (net.l0, net.l1):
        part.register_full_backward_hook(lambda module, gi, go: met.append(module.weight.grad is not None))
    trace = traced(net, lambda net: net(X).sum().backward())
    late, early = trace.find(kind="hook")
    assert met == [True, False] and (late.path, early.path) == ("l1", "l0")
    assert "weight.grad and bias.grad are there" in late.marks
    assert any("weight.grad and bias.grad not there yet (its input requires no gradient" in mark for mark in early.marks)
    order = [(event.path, event.name) for event in trace if event.kind in ("hook", "gradient")]
    arrivals = {path: order.index((path, "weight")) for path in ("l0", "l1")}
    assert arrivals["l1"] < order.index(("l1", late.name)) < order.index(("l0", early.name)) < arrivals["l0"]
    assert net.l0.weight._backward_hooks is None


def test_parameters_without_hooks_have_no_event():
    trace = traced(Net(), lambda net: net(X).sum().backward())
    assert not [event for event in trace if event.kind == "gradient" and event.category == "parameter"]


# --- hooks, said right


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda m, a, o: (o,), "puts the output into a tuple"),
        (lambda m, a, o: [o], "puts the output into a list"),
        (lambda m, a, o: o.clone(), "returns the values of the output in a different tensor"),
        (lambda m, a, o: o + 1e-30, "returns the values of the output in a different tensor"),
        (lambda m, a, o: o.double(), "returns the values of the output in a different tensor, float32 -> float64"),
        (lambda m, a, o: o.detach(), "returns the values of the output in a different tensor, out of the graph"),
        (lambda m, a, o: o.reshape(-1), "changes the output, (8, 4) -> (32,)"),
        (lambda m, a, o: o, "returns the output unchanged"),
        (lambda m, a, o: o + 2, "changes the output by up to 2"),
        (lambda m, a, o: (o + 2,), "puts the output into a tuple; changes the output by up to 2"),
        (lambda m, a, o: (o.detach() + 2).double(), "changes the output by up to 2, float32 -> float64, out of the graph"),
    ],
)
def test_what_a_forward_hook_did(hook, words):
    assert doing(hook)[-1] == words


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda m, a: a[0], "returns the input unchanged"),
        (lambda m, a: (a,), "nests the input differently: input[0] instead of input"),
        (lambda m, a: a[0].clone(), "returns the values of the input in a different tensor"),
        (lambda m, a: a[0].detach(), "returns the values of the input in a different tensor, out of the graph"),
    ],
)
def test_what_a_pre_hook_did(hook, words):
    assert doing(hook, "register_forward_pre_hook")[-1] == words


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda m, gi, go: [gi[0]], "returns the gradient of the input unchanged"),
        (lambda m, gi, go: gi[0], "takes the gradient of the input out of its tuple"),
        (lambda m, gi, go: (gi[0] * 3,), "changes the gradient of the input by up to"),
    ],
)
def test_what_a_backward_hook_did(hook, words):
    assert doing(hook, "register_full_backward_hook")[-1].startswith(words)


def test_too_large_to_be_compared_is_not_called_a_change():
    x = torch.zeros(1 << 19, 4)
    assert "was not compared" in doing(lambda m, a, o: o.clone(), x=x)[-1]


def test_a_hook_that_cuts_the_graph_is_in_the_headline():
    net = nn.Linear(4, 4)
    net.register_forward_hook(cut)
    trace = modlab.trace(net)(X)
    assert "cut, a forward hook, returns the values of the output in a different tensor, out of the graph" in trace.headline
    assert trace._sheet().rows[1].mark == "careful"


def cut(module, args, output):
    return output.detach()


def test_the_guilty_hook_is_named_by_its_event():
    other = nn.Linear(4, 4)
    y = other(X)
    y.register_hook(lambda gradient: gradient * 2)
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    net[0].register_full_backward_hook(wrong)
    with pytest.raises(TypeError), modlab.trace(net) as trace:
        net(X.clone().requires_grad_()).sum().backward()
    assert trace.headline.startswith("The backward hook wrong on 0 returned a str, which is not a gradient.")
    assert "on y" not in trace.headline


def wrong(module, grad_input, grad_output):
    return "z"


# --- calls past the module, in other threads, under other names


def test_a_root_of_modules_alone_called_past_itself():
    trace = traced(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), lambda net: net.forward(X))
    assert "(root) was called through .forward, which skips its hooks" in trace.headline
    (root,) = trace.record.uncalled
    assert uncalled(root).startswith("called through .forward at tests/tracing/test_truth.py:")


def test_the_line_that_called_is_told_and_not_one_inside():
    trace = traced(Net(), lambda net: net.forward(X))
    assert "tests/tracing/test_truth.py" in uncalled(trace.record.uncalled[0]) and "note.py" not in uncalled(trace.record.uncalled[0])


def test_an_inner_module_called_past_itself():
    trace = modlab.trace(Lambda(lambda self, x: self.a.forward(x), a=BigNet()))(torch.randn(5))
    (one,) = trace.record.uncalled
    assert one.path == "a" and "through .forward" in uncalled(one) and "test_truth.py" in uncalled(one)


def test_an_inherited_forward_called_past_the_module():
    class Child(Net):
        def forward(self, x):
            return super().forward(x)

    trace = traced(Child(), lambda net: net.forward(X))
    assert "test_truth.py" in uncalled(trace.record.uncalled[0])
    assert modlab.trace(Child())(X).not_called == []


def test_a_function_called_forward_is_no_forward():
    def forward(net, x):
        return net(x) * 1

    trace = traced(Net(), lambda net: forward(net, X))
    assert trace.not_called == [] and "through .forward" not in str(trace)
    inner = Lambda(lambda self, x: forward(self.a, x), a=Net())
    assert "through .forward" not in str(modlab.trace(inner)(X))


def test_a_forward_in_a_decorator_is_called_as_usual():
    class Quiet(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 4)

        @torch.no_grad()
        def forward(self, x):
            return self.a(x)

    assert "through .forward" not in str(modlab.trace(nn.Sequential(Quiet()))(X))


def in_a_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_what_runs_in_another_thread_is_not_called_uncalled():
    net = Lambda(lambda self, x: self.b(x), a=nn.Linear(4, 4), b=nn.Linear(4, 4), c=nn.Linear(4, 4))

    def act(net):
        in_a_thread(lambda: net.a(X))
        net(X)

    trace = traced(net, act)
    assert "a was never called" not in trace.headline and "c was never called" in trace.headline
    assert {one.path: uncalled(one) for one in trace.record.uncalled}["a"] == "called in another thread, which is not traced"
    assert trace.why("a.weight").kind == "cannot be seen" and trace.why("c.weight").kind == "not called"
    assert trace.headline.startswith("Lambda: 2 of 3 modules ran; whether 1 other did cannot be seen")


def test_what_a_compiler_hides_is_not_counted():
    torch._dynamo.reset()
    net = torch.compile(Net(), backend="eager")
    assert modlab.trace(net)(X).headline.startswith("OptimizedModule: 1 of 1 module ran; whether 3 others did cannot be seen")


def test_a_compilers_own_modules_are_not_told():
    torch._dynamo.reset()
    net = Net()
    net.l0 = torch.compile(net.l0, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = modlab.trace(net)(X)
    assert [event.path for event in trace] == ["", "l0", "l1"]
    assert trace.headline.startswith("Net: 3 of 3 modules ran; whether 1 other did cannot be seen")


def test_another_name_of_a_module():
    net = Lambda(lambda self, x: self.b(x), a=nn.Sequential(nn.Linear(4, 4)))
    net.b = net.a
    trace = modlab.trace(net)(X)
    assert trace["b"].path == "a" and trace["b.0"].index == trace["a.0"].index
    idle = Lambda(lambda self, x: x, a=nn.Linear(4, 4))
    idle.b = idle.a
    with pytest.raises(modlab.ModlabError, match=r"'a' did not run"):
        modlab.trace(idle)(X)["b"]


def test_an_output_that_is_a_buffer():
    net = nn.Sequential(RunningMean(4))
    trace = modlab.trace(net)(X[0])
    assert "its output is the buffer mean itself: changing one in place changes the other" in trace["0"].marks
    assert "0 returns its own buffer" in trace.headline and trace._sheet().rows[1].mark == "careful"
    copied = Lambda(lambda self, x: self.a(x).clone(), a=RunningMean(4))
    assert "is the buffer" not in str(modlab.trace(copied)(X[0])[""].marks)


def test_a_model_that_makes_a_parameter_in_each_pass_keeps_one():
    alive = []

    def forward(self, x):
        self.a.weight = nn.Parameter(self.a.weight.detach() * 0.9)
        alive.append(weakref.ref(self.a.weight))
        return self.a(x).sum().detach()

    net = Lambda(forward, a=nn.Linear(4, 4))
    with modlab.trace(net):
        for _ in range(20):
            net(X)
        gc.collect()
        assert sum(one() is not None for one in alive) <= 2


# --- as real training code has it


@pytest.mark.parametrize("again", ["called twice", "computed again"])
def test_a_part_that_stands_for_itself_and_did_not_run(again):
    """Of a second pass, or one that is computed again from the end on, each block stands for another one."""

    def forward(self, x):
        run = self.run
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=True) if run == "computed again" else block(x)
        return x

    block = Lambda(lambda self, x: self.used(x), used=nn.Linear(4, 4), idle=nn.Tanh())
    net = Lambda(forward, blocks=nn.ModuleList([block, copy.deepcopy(block), copy.deepcopy(block)]))
    net.run = again
    x = X.clone().requires_grad_()

    def act(net):
        for _ in range(2 if again == "called twice" else 1):
            net(x).sum().backward()

    trace = traced(net, act, fold=True)
    assert len(trace["blocks.0.used"]) >= 1
    for i in range(3):
        with pytest.raises(modlab.ModlabError, match="did not run"):
            trace[f"blocks.{i}.idle"]


def test_gradients_that_are_given_back_are_told():
    net = Net()
    trace = traced(net, lambda net: torch.autograd.grad(net(X).sum(), list(net.parameters())))
    (event,) = trace.find(kind="backward")
    assert [(value.name, value.shape) for value in event.outputs] == [(f"{n}.grad", tuple(p.shape)) for n, p in net.named_parameters()]
    assert "4 gradients" in str(trace) and trace.why("l0.weight").kind == "gradient" and net.l0.weight.grad is None


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_checkpoint_whose_input_needs_no_gradient():
    net = Lambda(lambda self, x: torch.utils.checkpoint.checkpoint(self.body, x, use_reentrant=True), body=nn.Linear(4, 4))

    def act(net):
        with contextlib.suppress(RuntimeError):
            net(X).sum().backward()

    trace = traced(net, act)
    reason = trace.why("body.weight")
    assert reason.kind == "off the path" and "use_reentrant=True" in reason.text and trace.events[reason.event].path == "body"


@pytest.mark.parametrize(
    ("held", "act", "said"),
    [
        ("own", lambda net, optimizer: (net(X).sum().backward(), optimizer.zero_grad()), "SGD's step moves 0 of 2 parameters: none"),
        ("rate", lambda net, optimizer: net(X).sum().backward(), "SGD's step moves 0 of 2 parameters"),
        ("old", lambda net, optimizer: net(X).sum().backward(), "SGD holds none of the model's parameters"),
        ("own", lambda net, optimizer: net(X).sum().backward(), ""),
    ],
)
def test_a_step_that_moves_nothing_is_the_headline(held, act, said):
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD((copy.deepcopy(net) if held == "old" else net).parameters(), lr=0.0 if held == "rate" else 0.1)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    trace = traced(net, lambda net: (act(net, optimizer), optimizer.step()))
    assert all(map(torch.equal, before, net.parameters())) is bool(said)
    assert (said or "1 of 1 module ran.") in trace.headline and ("step" in trace.headline or "holds" in trace.headline) is bool(said)


def test_a_question_of_the_wrong_kind_is_answered():
    class Lying(nn.Linear):
        def __repr__(self):
            raise RuntimeError("no words")

    net = nn.Sequential(Lying(4, 4), nn.Tanh())
    trace = modlab.trace(net)(X)
    assert trace["(root)"].outputs == trace[""].outputs
    for ask, words in (
        (lambda: trace[0], r"t\.events\[0\]"),
        (lambda: trace[net[0]], "got a Lying"),
        (lambda: trace["0"][3], r"'0' ran 1 time in this trace: t\['0'\]\[0\] is the last"),
        (lambda: trace.why("0"), r"Those of this module: '0.weight', '0.bias'"),
        (lambda: trace.why(net[0]), r"got a Lying.\n  Write: t.why\('0.weight'\)"),
        (lambda: trace.why(torch.ones(2)), "not a parameter of Sequential"),
        (lambda: trace.export_chrome_trace(None), "got None, but takes the file"),
    ):
        with pytest.raises(modlab.ModlabError, match=words):
            ask()
    with pytest.raises(IndexError):
        trace["0"][3]


def test_a_part_that_is_made_in_the_pass_and_kept_in_a_dict():
    def forward(self, x):
        if "4" not in self.parts:
            self.parts["4"] = nn.Linear(4, 2)
        return self.parts["4"](x)

    trace = traced(Lambda(forward, parts=nn.ModuleDict()), lambda net: net(X).sum().backward())
    assert trace["parts.4"].outputs[0].shape == (8, 2) and trace.why("parts.4.weight").kind == "gradient"
    assert "not registered" not in str(trace)


class Context(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.mul(2).exp()


class NoContext(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.mul(2).exp()


@pytest.mark.parametrize("inside", [lambda x: Context.forward(torch.autograd.function.FunctionCtx(), x), NoContext.forward])
def test_the_inside_of_a_function_is_not_told_where_torch_calls_it_from_c(inside):
    def forward(self, x):
        h = self.a(x)
        with torch.no_grad():  # as torch 2.15 does it: no frame of torch's is above
            inside(h)
        return h.tanh()

    trace = modlab.trace(Lambda(forward, a=nn.Linear(4, 4)))(X)
    assert [event.name for event in trace.find(kind="function")] == ["Tensor.tanh"]
