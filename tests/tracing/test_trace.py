"""What a trace says: events, stages, what was not called, and why there is no gradient."""

from __future__ import annotations

import gc
import json
import threading
import weakref

import pytest
import torch
from torch import nn
from torch.nn.modules import module as machinery
from torch.utils.checkpoint import checkpoint

import modlab
from modlab.errors import NotAModuleError, NotInitializedError, PathNotFoundError, QuestionError
from modlab.lessons.note import BigNet, DynamicNet, Net, RunningMean
from modlab.views.sheets import trace as view
from modlab.wording import events
from modlab.wording.events import uncalled
from tests.calls import CALLS, Lambda


def kinds(trace):
    return [(event.kind, event.path, event.name) for event in trace.events]


def test_functions_between_modules_are_seen():
    trace = modlab.trace(Net())(torch.randn(4))
    assert ("function", "", "F.relu") in kinds(trace)
    assert "F.relu" not in modlab.tree(Net()).paths
    assert trace["l0"].outputs[0].shape == (3,)
    assert trace["l0"].inputs[0].name == "input"


def test_functions_inside_torchs_own_layers_are_not():
    trace = modlab.trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))(torch.randn(2))
    assert {event.kind for event in trace} == {"module"}


def test_events_are_nested_and_in_order():
    trace = modlab.trace(BigNet())(torch.randn(5))
    modules = [event for event in trace if event.kind == "module"]
    assert [event.path for event in modules] == ["", "l1", "net", "net.l0", "net.l1"]
    for event in trace:
        assert event.parent < event.index
        assert event.depth == (0 if event.parent < 0 else trace.events[event.parent].depth + 1)
    assert trace["net.l0"].parent == trace["net"].index


def test_statistics_are_those_of_the_tensors():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    x = torch.randn(5, 4)
    trace = modlab.trace(net)(x)
    hidden = net[0](x)
    (value,) = trace["0"].outputs
    assert value.stats.mean == pytest.approx(hidden.mean().item(), rel=1e-5)
    assert value.stats.std == pytest.approx(hidden.std(correction=0).item(), rel=1e-5)
    assert trace["1"].outputs[0].stats.zeros == int((net(x) == 0).sum())
    assert value.dtype == "float32" and value.device == "cpu" and value.requires_grad
    assert trace["1"].inputs[0].number == value.number


def test_without_values_nothing_is_measured():
    trace = modlab.trace(Net(), values=False)(torch.randn(4))
    assert all(value.stats is None for event in trace for value in (*event.inputs, *event.outputs))


def test_a_view_has_the_statistics_of_what_it_shows():
    def forward(self, x):
        y = self.a(x)
        return y.view(-1), y.t(), y[0], y.expand(2, *y.shape), y.view(torch.int32), -y.t().conj()

    net = Lambda(forward, a=nn.Linear(3, 4))
    x = torch.randn(2, 3)
    outputs = forward(net, x)
    for value, tensor in zip(modlab.trace(net)(x)[""].outputs, outputs, strict=True):
        assert value.shape == tuple(tensor.shape)
        assert value.stats.mean == pytest.approx(tensor.double().mean().item(), rel=1e-5)
        assert value.stats.max == pytest.approx(tensor.max().item(), rel=1e-5)


def test_what_is_overwritten_in_place_shows_the_value_before():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    x = torch.randn(3, 4)
    trace = modlab.trace(net)(x)
    assert trace["1"].inputs[0].stats.min == pytest.approx(net[0](x).min().item(), rel=1e-5)
    assert trace["1"].outputs[0].stats.min == 0
    assert "changes its input in place" in trace["1"].marks


def test_an_unused_activation_is_not_called():
    trace = modlab.trace(DynamicNet(3))(torch.randn(4), "relu")
    assert trace.not_called == ["activations.lrelu"]
    assert "activations.lrelu was never called" in trace.headline
    with pytest.raises(PathNotFoundError, match="did not run"):
        trace["activations.lrelu"]


def test_a_module_that_runs_twice_has_two_calls():
    net = Lambda(lambda self, x: self.a(self.a(x)), a=nn.Linear(3, 3))
    calls = modlab.trace(net)(torch.randn(3))["a"]
    assert [event.call for event in calls] == [1, 2]
    assert calls[1].inputs[0].number == calls[0].outputs[0].number
    with pytest.raises(AttributeError, match="ran 2 times"):
        _ = calls.outputs


def test_a_forward_called_past_its_module():
    trace = modlab.trace(Lambda(lambda self, x: self.b(self.a.forward(x)), a=nn.Linear(3, 3), b=nn.Linear(3, 1)))(torch.randn(3))
    assert trace.not_called == ["a"]
    assert "through .forward" in uncalled(trace.record.uncalled[0])
    assert "skips its hooks" in trace.headline
    assert trace.find("F.linear")[0].path == "a"


def test_super_forward_is_no_call_past_a_module():
    class Child(nn.Linear):
        def forward(self, x):
            return super().forward(x)

    trace = modlab.trace(nn.Sequential(Child(2, 2)))(torch.randn(2))
    assert trace.not_called == []


def test_a_hidden_module_is_seen_at_work():
    hidden = [nn.Linear(3, 3)]
    trace = modlab.trace(Lambda(lambda self, x: hidden[0](self.a(x)), a=nn.Linear(3, 3)))(torch.randn(3))
    (event,) = [event for event in trace if event.path is None]
    assert event.name == "Linear" and "not registered in the model" in event.marks


def test_a_buffer_that_joins_the_graph():
    trace = modlab.trace(RunningMean(3))(torch.randn(3, requires_grad=True))
    assert any("joins the graph" in mark for mark in trace[""].marks)
    assert "joins the graph" in trace.headline
    assert "joins" not in modlab.trace(RunningMean(3))(torch.randn(3)).headline


# --- hooks: section 6 of the note, to the printed digit


def printed(value):
    return [[f"{number:.4f}" for number in row] for row in value.numbers.numbers]


def rows(text):
    return [row.split(", ") for row in text.split("; ")]


@pytest.fixture
def linear():
    torch.manual_seed(1)
    module = nn.Linear(3, 3)
    return module, torch.randn(2, 3, requires_grad=True)


def test_the_stages_of_section_6(linear):
    module, x = linear
    pre = module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    trace = modlab.trace(module)(x)
    assert printed(trace[""].inputs[0]) == rows("-1.5228, 0.3817, -1.0276; -0.5631, -0.8923, -0.0583")
    assert printed(trace[""].outputs[0]) == rows("-0.5752, -0.7421, 0.4942; -0.0736, 0.5461, 0.0838")
    (stage,) = trace.find(kind="hook")
    assert "changes the input by up to 1" in stage.marks
    module.register_forward_hook(lambda m, args, output: output + args[0])
    trace = modlab.trace(module)(x)
    first, second = trace.find(kind="hook")
    assert second.inputs[0].number == first.outputs[0].number  # the forward hook sees the input that the pre-hook made
    assert printed(second.outputs[0]) == rows("-1.0980, 0.6396, 0.4666; 0.3634, 0.6538, 1.0256")
    pre.remove()
    trace = modlab.trace(module)(x)
    assert printed(trace[""].outputs[0]) == rows("-0.5059, -0.8158, 0.2390; -0.0043, 0.4724, -0.1714")


def test_forty_two_replaces_the_gradient_of_the_input_alone(linear):
    module, x = linear
    module(x).sum().backward()
    weight = module.weight.grad.clone()
    module.zero_grad()
    module.register_full_backward_hook(lambda m, gi, go: (torch.full_like(gi[0], 42.0),))
    with modlab.trace(module) as trace:
        module(x).sum().backward()
    (stage,) = trace.find(kind="hook")
    assert printed(stage.inputs[1]) == rows("0.4497, -0.5046, 0.3146; 0.4497, -0.5046, 0.3146")
    assert printed(stage.outputs[0]) == rows("42.0000, 42.0000, 42.0000; 42.0000, 42.0000, 42.0000")
    assert torch.equal(module.weight.grad, weight)
    (backward,) = trace.find(kind="backward")
    named = {value.name: value for value in backward.outputs}
    assert printed(named["weight.grad"]) == [[f"{number:.4f}" for number in row] for row in weight.tolist()]


def test_the_order_of_hooks_and_a_removal_in_mid_pass():
    module, seen = nn.Linear(2, 2), []
    handles = {}

    def note(name):
        seen.append(name)
        if name == "a":
            handles["c"].remove()

    for name in "abc":
        handles[name] = module.register_forward_hook(lambda m, args, out, name=name: note(name))
    trace = modlab.trace(module)(torch.randn(2))
    assert len(trace.find(kind="hook")) == len(seen)
    assert seen == ["a", "b", "c"]  # torch walks over a copy: the one removed still runs in this call
    assert list(module._forward_hooks) == [handles["a"].id, handles["b"].id]


def test_a_hook_that_raises_is_named_with_its_place():
    def bad(module, args, output):
        raise ValueError("no")

    net = nn.Sequential(nn.Linear(2, 2))
    net[0].register_forward_hook(bad)
    with pytest.raises(ValueError, match="no"), modlab.trace(net) as trace:
        net(torch.randn(2))
    (stage,) = trace.find(kind="hook")
    assert stage.error == "ValueError: no" and stage.where.startswith("tests/tracing/test_trace.py:") and "bad" in stage.name
    assert trace["0"].outputs  # the module itself had done its work


def test_global_hooks_of_the_users_are_stages_too():
    handle = machinery.register_module_forward_hook(lambda m, args, out: out * 2)
    try:
        module, x = nn.Linear(2, 2), torch.randn(2)
        trace = modlab.trace(module)(x)
    finally:
        handle.remove()
    (stage,) = trace.find(kind="hook")
    assert "global forward hook" in stage.marks
    assert trace[""].outputs[0].stats.mean == pytest.approx(module(x).mean().item())


# --- backward, steps, and why there is no gradient


def trained(net, *args, loss=lambda out: out.abs().sum(), after=None):
    with modlab.trace(net) as trace:
        loss(net(*args)).backward()
        if after is not None:
            after()
    return trace


def why(net, path, *args, **options):
    reason = trained(net, *args, **options).why(path)
    assert str(reason).startswith(f"{path}: ")
    return reason


class Two(nn.Module):
    def __init__(self, between=lambda h: h):
        super().__init__()
        self.a, self.b, self.between = nn.Linear(3, 3), nn.Linear(3, 1), between

    def forward(self, x):
        return self.b(self.between(self.a(x)))


X = torch.ones(3)


def test_gradients_of_outputs_and_parameters_are_those_of_torch():
    net, hidden = Two(), []
    net.a.register_forward_hook(lambda m, args, out: hidden.append(out) or out.retain_grad())
    trace = trained(net, X)
    gradients = {event.path: event.inputs[0] for event in trace.find(kind="gradient")}
    assert list(gradients) == ["", "b", "a"]
    assert gradients["a"].numbers.numbers[0] == pytest.approx(hidden[0].grad.tolist())
    (backward,) = trace.find(kind="backward")
    assert {value.name for value in backward.outputs} == {f"{name}.grad" for name, _ in net.named_parameters()}
    assert why(Two(), "a.weight", X).kind == "gradient"


def test_why_frozen():
    net = Two()
    net.a.weight.requires_grad_(False)
    assert why(net, "a.weight", X).kind == "frozen"


def test_why_under_no_grad():
    class Inside(Two):
        def forward(self, x):
            with torch.no_grad():
                h = self.a(x)
            return self.b(h)

    reason = why(Inside(), "a.weight", X)
    assert reason.kind == "no_grad" and "test_trace.py" in reason.text


@pytest.mark.parametrize("how", [torch.Tensor.detach, lambda h: h.data, lambda h: torch.tensor(h.tolist()), lambda h: h.detach().clone()])
def test_why_detached_says_where(how):
    trace = trained(Two(how), X)
    reason = trace.why("a.weight")
    assert reason.kind == "detached", reason
    assert any("leaves the graph" in mark for mark in trace.events[reason.event].marks)


def test_why_item():
    reason = why(Two(lambda h: torch.ones(3) * h.sum().item()), "a.weight", X)
    assert reason.kind == "detached" and "item" in reason.text


def test_why_off_the_path():
    class Side(Two):
        def forward(self, x):
            self.seen = self.a(x).sum()
            return self.b(x)

    assert why(Side(), "a.weight", X).kind == "off the path"


def test_why_not_called():
    net = DynamicNet(1)
    net.spare = nn.Linear(2, 2)
    assert why(net, "spare.weight", torch.randn(4), "relu").kind == "not called"


def test_why_not_used():
    class Idle(Two):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

    assert why(Idle(), "scale", X).kind == "not used"


def test_why_integer():
    net = Two()
    net.count = nn.Parameter(torch.ones(1, dtype=torch.int64), requires_grad=False)
    assert why(net, "count", X).kind == "integer"


def test_why_overwritten():
    net = Two()

    def replace():
        net.a.weight = nn.Parameter(torch.zeros(3, 3))

    with modlab.trace(net) as trace:
        loss = net(X).sum()
        replace()
    assert trace.why("a.weight").kind == "overwritten"
    del loss


def test_why_set_to_none():
    net = Two()
    assert why(net, "a.weight", X, after=net.zero_grad).kind == "set to None"


def test_why_zero():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    nn.init.constant_(net[0].bias, -100.0)
    assert why(net, "0.weight", X).kind == "zero"


def test_why_without_a_backward_pass():
    assert modlab.trace(Two())(X).why("a.weight").kind == "no backward"


def test_why_autograd_grad():
    net = Two()
    with modlab.trace(net) as trace:
        torch.autograd.grad(net(X).sum(), net.a.weight)
    assert "autograd.grad" in trace.why("a.weight").text
    assert net.a.weight.grad is None


def test_no_fact_of_a_trace_is_read_out_of_its_words(monkeypatch):
    x = torch.ones(2, 4)

    def seen():
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
        net[0].register_forward_hook(lambda module, args, output: output * 2)
        net[2].register_forward_hook(lambda module, args, output: (output,))
        with modlab.trace(net) as trace:
            net(x)[0].detach()
            for _ in range(2):
                net(x)[0].sum().backward()
            torch.optim.SGD([nn.Parameter(x)], lr=0.1).step()
        rows = [(row.name, row.mark, row.symbol) for row in view.sheet(trace.record).rows]
        facts = [[(fact.kind, *fact.facts) for fact in event.facts] for event in trace.events]
        return rows, facts, [(reason.path, reason.kind) for reason in trace.record.reasons], trace.headline.count(";")

    torch.manual_seed(0)
    told = seen()
    assert {mark for _, mark, _ in told[0]} >= {"careful", ""} and told[3] > 0
    monkeypatch.setattr(events, "said", lambda fact: "x")
    torch.manual_seed(0)
    assert seen() == told


def test_why_asks_for_a_parameter_that_there_is():
    trace = trained(Two(), X)
    with pytest.raises(PathNotFoundError, match=r"Nearest: 'a.weight'"):
        trace.why("a.wieght")


def test_why_of_a_buffer_and_of_a_tied_weight():
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    trace = trained(net, torch.randn(2, 3))
    assert trace.why("1.running_mean").kind == "buffer"
    assert trace.why("2.weight").kind == "gradient" and "0.weight" in trace.why("2.weight").text


def test_a_step_says_what_moved():
    net = Two()
    optimizer = torch.optim.SGD(net.a.parameters(), lr=0.5)
    before = net.a.weight.detach().clone()
    with modlab.trace(net) as trace:
        net(X).sum().backward()
        optimizer.step()
    (step,) = trace.find(kind="step")
    assert step.name == "SGD" and "moves 2 of 4 parameters" in step.marks
    row = next(one for one in trace.to_dict()["records"] if one["kind"] == "step")
    assert {"kind": "moves", "moved": 2, "parameters": 4, "graded": True} in row["facts"] and len(row["facts"]) == len(row["marks"])
    weight = next(value for value in step.outputs if value.name == "a.weight")
    far = (net.a.weight - before).abs().max().item()
    assert f"{far:.4g}" in weight.note


def test_a_recomputed_call_is_told_from_the_first():
    a = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    net = Lambda(lambda self, x: self.b(checkpoint(self.a, x, use_reentrant=False)), a=a, b=nn.Linear(3, 1))
    trace = trained(net, torch.randn(2, 3))
    first, second = trace["a.0"]
    assert not any("recomputed" in mark for mark in first.marks) and any("recomputed" in mark for mark in second.marks)
    assert trace.error == "" and not any(event.error for event in trace)


# --- exceptions


def test_what_happened_before_an_exception_stays():
    net = BigNet()
    net.net.l1.weight = nn.Parameter(torch.randn(2, 1))
    with pytest.raises(RuntimeError), modlab.trace(net) as trace:
        net(torch.randn(5))
    assert trace["l1"].outputs[0].shape == (4,)
    assert trace["net.l1"].error and trace["net.l1"].inputs[0].shape == (3,)
    assert trace.headline.startswith("net.l1 got 3 numbers, but has weights for 2.")
    assert "fix: Make net.l0 give 2 numbers" in str(trace)
    assert "RuntimeError" in trace.error


def test_the_call_form_raises_what_the_model_raises():
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        modlab.trace(DynamicNet(2))(torch.randn(5), "relu")


def test_an_interruption_leaves_nothing_behind():
    def interrupt(self, x):
        raise KeyboardInterrupt

    net = nn.Sequential(nn.Linear(3, 3), Lambda(interrupt))
    before = dict(machinery._global_forward_hooks), dict(machinery._global_forward_hooks_with_kwargs)
    with pytest.raises(KeyboardInterrupt), modlab.trace(net) as trace:
        net(X)
    assert trace.events[-1].error == "KeyboardInterrupt"
    assert (dict(machinery._global_forward_hooks), dict(machinery._global_forward_hooks_with_kwargs)) == before
    assert torch.overrides._len_torch_function_stack() == 0


# --- what is kept, and what is not


def test_no_tensor_outlives_the_trace():
    refs = []

    class Watcher(nn.Module):
        def forward(self, x):
            y = x * 2
            refs.append(weakref.ref(y))
            return y

    net = nn.Sequential(Watcher(), nn.Linear(3, 3))
    trace = modlab.trace(net)(torch.randn(2, 3))
    gc.collect()
    assert refs[0]() is None
    model = weakref.ref(net)
    del net
    gc.collect()
    assert model() is None
    assert str(trace)


@pytest.mark.parametrize("backward", [False, True])
def test_the_model_goes_without_the_garbage_collector(backward):
    """A circle of a trace's own would keep the model, and the collector's work would be a fifth of what a trace costs."""
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU())
    net[2].register_forward_hook(lambda *_: None)
    gc.collect()
    gc.disable()
    try:
        with modlab.trace(net, values=False) as trace:
            output = net(torch.ones(2, 4))
            if backward:
                output.sum().backward()
        model, last = weakref.ref(net), weakref.ref(net[2])
        del net, output
        assert model() is None and last() is None and str(trace)
    finally:
        gc.enable()


def test_a_model_that_raised_is_let_go_too():
    net = Lambda(lambda self, x: x.nothing, a=nn.Linear(1, 1))
    model = weakref.ref(net)
    with pytest.raises(AttributeError), modlab.trace(net) as trace:
        net(X)
    del net
    gc.collect()
    assert model() is None and trace.error


def test_keep_copies_what_is_asked_for():
    net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)), torch.randn(2, 3)
    trace = modlab.trace(net, keep=("0", ""))(x)
    assert torch.equal(trace.kept["0"][0], net[0](x))  # before it was overwritten
    assert trace.output.requires_grad
    trace.output.sum().backward()
    assert net[0].weight.grad is not None
    with pytest.raises(modlab.ModlabError, match=r"keep=''"):
        _ = modlab.trace(net)(x).output


def test_many_tensors_are_not_held_while_it_runs():
    class Chain(nn.Module):
        def forward(self, x):
            alive = []
            for _ in range(20):
                x = x * 1.0
                alive.append(weakref.ref(x))
            return sum(ref() is not None for ref in alive)

    with torch.no_grad():
        net = Chain()
        plain = net(torch.randn(100))
        with modlab.trace(net):
            assert net(torch.randn(100)) == plain


# --- several traces


def test_two_traces_nested_do_not_mix():
    inner, outer = Net(), BigNet()
    with modlab.trace(outer) as one:
        with modlab.trace(inner) as two:
            inner(torch.randn(4))
        outer(torch.randn(5))
    assert {event.path for event in two if event.kind == "module"} == {"", "l0", "l1"}
    assert {event.path for event in one if event.kind == "module" and event.path is not None} == {"", "l1", "net", "net.l0", "net.l1"}
    assert torch.overrides._len_torch_function_stack() == 0


def test_hooks_come_back_when_traces_end_in_the_wrong_order():
    net = nn.Linear(2, 2)
    net.register_forward_hook(print_nothing)
    one, two = modlab.trace(net), modlab.trace(net)
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    net(torch.randn(2))
    two.__exit__(None, None, None)
    assert list(net._forward_hooks.values()) == [print_nothing]


def print_nothing(module, args, output):
    return None


def test_two_threads_do_not_mix():
    nets = [Net() for _ in range(2)]
    found, barrier = {}, threading.Barrier(2)

    def work(i):
        with modlab.trace(nets[i]) as trace:
            for _ in range(5):
                barrier.wait()
                nets[i](torch.randn(4))
        found[i] = trace

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for trace in found.values():
        assert [event.path for event in trace if event.kind == "module"] == ["", "l0", "l1"] * 5


def test_fold_counts_equal_calls_once():
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(3, 3), nn.ReLU()) for _ in range(6))
    net = Lambda(lambda self, x: sum(block(x) for block in self.blocks), blocks=blocks)
    full, folded = modlab.trace(net)(X), modlab.trace(net, fold=True)(X)
    assert folded["blocks.0"].times == 6 and "6 equal calls" in folded.html()
    assert len(folded.find(kind="module")) == 4 < len(full.find(kind="module"))
    assert folded.not_called == []


def test_a_compiled_part_is_said():
    torch._dynamo.reset()
    part = nn.Linear(3, 3)
    part.compile(backend="eager")
    trace = modlab.trace(nn.Sequential(part, nn.ReLU()))(X)
    assert "compiled" in str(trace)
    assert trace["1"].outputs


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_fused_encoder_is_said():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    mask = torch.tensor([[False, False, True]])
    with torch.no_grad():
        trace = modlab.trace(encoder)(torch.randn(1, 3, 8), src_key_padding_mask=mask)
    assert any("fused" in uncalled(one) for one in trace.record.uncalled)


# --- faces and questions


def test_the_text_is_the_same_in_each_run():
    torch.manual_seed(0)
    net, x = DynamicNet(2), torch.randn(4)
    assert str(modlab.trace(net)(x, "relu")) == str(modlab.trace(net)(x, "relu"))
    assert "0x" not in str(modlab.trace(net)(x, "relu"))


def test_before_the_second_call():
    assert repr(modlab.trace(Net())) == "nothing has run yet: modlab.trace(net)(x)"


def test_wrong_arguments_are_explained():
    with pytest.raises(NotAModuleError, match=r"needs an nn\.Module"):
        modlab.trace(lambda x: x)
    with pytest.raises(QuestionError, match="keep"):
        modlab.trace(Net(), keep=3)
    with pytest.raises(QuestionError, match="kind"):
        modlab.trace(Net())(torch.randn(4)).find(kind="modul")
    with pytest.raises(NotInitializedError):
        modlab.trace(type("Forgot", (nn.Module,), {"__init__": lambda self: None})())
    with pytest.raises(PathNotFoundError, match=r"Nearest: 'l0'"):
        modlab.trace(Net())(torch.randn(4))["l00"]


def test_find_by_name_path_and_kind():
    trace = trained(Two(), X)
    assert [event.name for event in trace.find("F.*")] == []
    assert {event.path for event in trace.find("a", kind="module")} == {"a"}
    assert trace.find("*", kind="gradient")


def test_data_can_be_had(tmp_path):
    pytest.importorskip("pandas")
    trace = trained(Two(), X)
    assert len(trace.to_pandas()) == len(trace.events)
    json.dumps(trace.to_dict(), allow_nan=False)
    trace.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {event["name"]: event for event in events}
    inner, outer = named["a (Linear)"], named[" (Two)".strip()] if "(Two)" in named else next(e for e in events if e["args"]["path"] == "")
    assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1


def test_seconds_add_up():
    trace = modlab.trace(BigNet())(torch.randn(5))
    root = trace[""]
    assert sum(event.own_seconds for event in trace) == pytest.approx(root.seconds, rel=0.02, abs=1e-5)


def test_new_memory_is_that_of_new_tensors():
    net = Lambda(lambda self, x: self.a(x).view(-1).relu_(), a=nn.Linear(4, 8))
    trace = modlab.trace(net)(torch.randn(2, 4))
    assert trace["a"].bytes == 2 * 8 * 4
    assert [event.bytes for event in trace.find(kind="function")] == [0, 0]


def test_hostile_names_are_text():
    class Evil(nn.Module):
        def forward(self, x):
            return x

    Evil.__name__ = "<img onerror=alert(1)>\n</script>"
    net = nn.Sequential()
    net.add_module("<b>", Evil())
    trace = modlab.trace(net)(X)
    assert "<img" not in trace.html(bundle=False) and "\n</script>" not in str(trace)


def test_every_call_of_the_collection_has_a_readable_text():
    case = next(case for case in CALLS if case.id == "nests")
    model, args, kwargs = case.build()
    trace = modlab.trace(model)(*args, **kwargs)
    names = [value.name for value in trace[""].inputs]
    assert "args[0].x" in names and "args[0].name" in names and "flag" in names
    assert any("use it up" in value.note for value in trace[""].inputs if value.name == "extra")
    assert "['pair'].first" in [value.name for value in trace[""].outputs]


def test_the_picture_without_script_is_the_same_in_each_run():
    torch.manual_seed(0)
    net, x = DynamicNet(2), torch.randn(4)
    first, second = (modlab.trace(net)(x, "relu").html(bundle=False) for _ in range(2))
    assert first == second
    assert "µs" not in first
