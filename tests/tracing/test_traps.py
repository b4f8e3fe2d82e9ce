"""Where a trace could change a run, or say what is not so: each was found by somebody who looked for it."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import modlab
from modlab.errors import QuestionError
from modlab.lessons.note import Net
from modlab.running.values import OPAQUE, leaves
from modlab.statistics import measure_tensor
from tests.calls import Lambda

X = torch.ones(3)


def why(net, path, act):
    with modlab.trace(net) as trace:
        act(net)
    return trace.why(path)


# --- what runs stays what runs


def encoder():
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()


MASK = torch.tensor([[False, False, False, True], [False, False, True, True]])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("direct", [False, True])
def test_a_fused_encoder_gives_the_same_bits_however_it_is_called(fold, direct):
    parts = {"one": encoder(), "two": encoder()}
    call = (lambda part, x: part.forward(x, src_key_padding_mask=MASK)) if direct else (lambda part, x: part(x, src_key_padding_mask=MASK))
    inner = Lambda(lambda self, x: (call(self.one, x), call(self.two, x)), **parts)
    net = Lambda(lambda self, x: (*self.inner(x), F.relu(x)), inner=inner)
    x = torch.randn(2, 4, 8)
    with torch.no_grad():
        expected = net(x)
        trace = modlab.trace(net, fold=fold, keep="")(x)
    for one, other in zip(trace.output, expected, strict=True):
        assert torch.equal(one, other)
    assert trace.find("F.relu")  # what comes after is seen again


def test_a_measured_tensor_can_still_be_resized():
    x = torch.randn(64)
    measure_tensor(x)
    x.untyped_storage().resize_(512)
    big = torch.randn(1 << 18)
    measure_tensor(big)
    big.untyped_storage().resize_(0)


def test_hooks_pass_for_themselves():
    net = nn.utils.weight_norm(nn.Linear(3, 2)) if hasattr(nn.utils, "weight_norm") else nn.Linear(3, 2)
    pruned = nn.Linear(3, 2)
    prune.l1_unstructured(pruned, "weight", 0.5)
    with modlab.trace(nn.ModuleList([net, pruned])):
        nn.utils.remove_weight_norm(net)
        prune.remove(pruned, "weight")
        assert b"modlab" not in pickle.dumps(nn.Linear(1, 1))
    assert not net._forward_pre_hooks and not pruned._forward_pre_hooks


test_hooks_pass_for_themselves = pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")(test_hooks_pass_for_themselves)


def keep_output(module, args, output):
    return output


def test_a_model_copied_in_mid_trace_has_its_own_hooks():
    net = nn.Linear(2, 2)
    net.register_forward_hook(keep_output)
    with modlab.trace(net):
        twin, pickled = copy.deepcopy(net), pickle.dumps(net)
    assert list(twin._forward_hooks.values()) == [keep_output]
    assert list(pickle.loads(pickled)._forward_hooks.values()) == [keep_output]


def test_a_store_of_hooks_that_is_swapped_in_mid_trace_keeps_no_stand_in():
    net = nn.Linear(2, 2)
    net.register_forward_hook(keep_output)
    with modlab.trace(net):
        net._forward_hooks = type(net._forward_hooks)(net._forward_hooks)
        net(torch.ones(2))
    assert [type(hook).__name__ for hook in net._forward_hooks.values()] == ["function"]


def test_parameters_can_be_swapped_in_mid_trace():
    net = nn.Linear(2, 2)
    with modlab.trace(net):
        net(torch.ones(2))
        torch.utils.swap_tensors(net.weight, nn.Parameter(torch.zeros(2, 2)))
    assert not net.weight.any()


class Refuses(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("__get__", "register_hook"):
            raise RuntimeError("asked by a stranger")
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_subclass_that_refuses_questions_is_not_asked():
    net = nn.Linear(3, 2)
    net.weight = nn.Parameter(net.weight.detach())
    x = torch.ones(2, 3, requires_grad=True).as_subclass(Refuses)
    trace = modlab.trace(net)(x)
    assert not trace.record.remarks and trace[""].outputs[0].shape == (2, 2)


def test_users_code_in_containers_is_not_run():
    class Loud(dict):
        def items(self):
            raise AssertionError("asked")

    class Mapping(__import__("collections").abc.Mapping):
        def __getitem__(self, key):
            raise AssertionError("asked")

        __iter__ = __len__ = __getitem__

    assert [name for name, _, _ in leaves(Loud(a=X), "x")] == ["x['a']"]
    ((_, _, note),) = leaves(Mapping(), "x")
    assert note is OPAQUE


def test_a_compiled_function_around_the_model_compiles_whole():
    torch._dynamo.reset()
    net = Net()
    compiled = torch.compile(lambda x: F.relu(net(x)), backend="eager", fullgraph=True)
    x = torch.randn(4)
    expected = F.relu(net(x))
    with modlab.trace(net), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.allclose(compiled(x), expected)


def test_no_warning_of_a_compiler_about_our_hooks():
    torch._dynamo.reset()
    net = torch.compile(nn.Sequential(nn.Linear(3, 3)), backend="eager")
    before = list(warnings.filters)
    modlab.trace(net)(X)
    assert warnings.filters == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_model_that_traces_with_torch_inside():
    inner = nn.Linear(3, 3)
    net = Lambda(lambda self, x: torch.jit.trace(self.inner, x)(x), inner=inner)
    trace = modlab.trace(net)(X)
    assert trace.html() and not any("failed" in remark for remark in trace.record.remarks)


def test_users_dispatch_modes_see_nothing_of_modlab():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    net = nn.Linear(3, 3)
    net.register_forward_hook(lambda m, args, out: out + 1)
    with Count() as plain:
        net(X)
    with Count() as watched, modlab.trace(net):
        net(X)
    assert watched.seen == plain.seen


def test_one_tracer_in_two_threads():
    net = nn.Linear(2, 2)
    net.register_forward_hook(keep_output)
    tracer, barrier, found = modlab.trace(net), threading.Barrier(2), {}

    def work(i):
        with tracer as trace:
            barrier.wait()
            net(torch.ones(2))
            barrier.wait()
        found[i] = len(trace.find(kind="module"))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: 1, 1: 1} and list(net._forward_hooks.values()) == [keep_output]


def test_functions_of_the_users_are_not_held():
    held = torch.ones(1)

    def mine(x):
        return torch.overrides.handle_torch_function(caller[0], (x,), x) if torch.overrides.has_torch_function_unary(x) else x + held

    class Sub(torch.Tensor):
        pass

    alive, caller = weakref.ref(mine), [mine]
    modlab.trace(Lambda(lambda self, x: caller[0](x)))(X.as_subclass(Sub))
    caller.clear()
    del mine
    gc.collect()
    assert alive() is None


# --- and what is said is so


def test_interrupted_and_caught_the_next_call_is_not_inside():
    def forward(self, x):
        if not self.calm:
            raise KeyboardInterrupt
        return F.relu(self.a(x))

    net = Lambda(forward, a=nn.Linear(3, 3))
    net.calm = False
    with modlab.trace(net) as trace:
        try:
            net(X)
        except KeyboardInterrupt:
            net.calm = True
        net(X)
    first, second = trace[""]
    assert first.error == "interrupted" and second.depth == 0 and not second.error
    assert trace.find("F.relu")[0].parent == second.index


def test_an_exception_that_is_caught_is_no_end():
    def forward(self, x):
        try:
            return self.a(x)
        except RuntimeError:
            return self.b(x)

    trace = modlab.trace(Lambda(forward, a=nn.Linear(5, 3), b=nn.Linear(3, 3)))(X)
    assert trace["a"].error and trace.error == "" and "stopped" not in trace.headline


def test_optimizers_inside_optimizers():
    class Outer(torch.optim.SGD):
        def step(self, closure=None):
            self.inner.step()
            return super().step(closure)

    net = Net()
    outer = Outer(net.parameters(), lr=0.1)
    outer.inner = torch.optim.SGD(net.parameters(), lr=0.1)
    with modlab.trace(net) as trace:
        net(torch.randn(4)).sum().backward()
        outer.step()
    assert [event.name for event in trace.find(kind="step")] == ["Outer", "SGD", "Outer"]  # the last one is super().step()
    assert [event.depth for event in trace.find(kind="step")] == [0, 1, 1]
    assert not trace.record.remarks


def test_a_closure_runs_inside_the_step():
    net = Net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(4)).abs().sum()
        loss.backward()
        return loss

    with modlab.trace(net) as trace:
        optimizer.step(closure)
    (step,) = trace.find(kind="step")
    assert all(event.parent == step.index for event in trace[""])
    assert any("closure" in remark for remark in trace.record.remarks)


def test_two_traces_do_not_list_each_others_taps():
    net = nn.Linear(2, 2)
    net.register_forward_hook(keep_output)
    with modlab.trace(net), modlab.trace(net) as inner:
        net(torch.ones(2))
    assert [event.name for event in inner.find(kind="hook")] == ["keep_output"]


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda m, args, out: out.update(y=X * 9), "puts different tensors there"),
        (lambda m, args, out: out["y"].mul_(2), "in place"),
        (lambda m, args, out: {"y": out["y"] + 5j}, "by up to 5"),
        (lambda m, args, out: {"y": "text"}, "replaces the output with a str"),
        (lambda m, args, out: None, "changes nothing"),
    ],
)
def test_what_a_hook_did_is_told_right(hook, words):
    net = Lambda(lambda self, x: {"y": x * 2})
    net.register_forward_hook(hook)
    (stage,) = modlab.trace(net)(torch.ones(3, dtype=torch.complex64)).find(kind="hook")
    assert words in stage.marks[-1]


def test_a_change_in_place_is_seen_under_inference_mode():
    net = Lambda(lambda self, x: x * 2)
    net.register_forward_hook(lambda m, args, out: out.add_(1))
    with torch.inference_mode():
        (stage,) = modlab.trace(net)(X).find(kind="hook")
    assert "in place by up to 1" in stage.marks[-1]


def test_keyword_inputs_are_measured_before_they_are_overwritten():
    net = Lambda(lambda self, *, x: x.zero_())
    (value,) = modlab.trace(net)(x=torch.full((4,), 3.0))[""].inputs
    assert value.name == "x" and value.stats.mean == 3.0


def test_where_not_a_number_comes_from():
    net = nn.Sequential(nn.Linear(3, 3), Lambda(lambda self, x: torch.log(x - x.max() - 1)), nn.Linear(3, 1))
    trace = modlab.trace(net)(X)
    assert "NaN first in layer 1 (torch.log)" in trace.headline
    (log,) = trace.find("torch.log")
    assert "makes NaN" in str(trace) and log.outputs[0].stats.nan == 3


def test_a_module_that_is_registered_while_it_runs_belongs_to_the_model():
    def forward(self, x):
        if not hasattr(self, "late"):
            self.late = nn.Linear(3, 3)
        return self.late(x)

    trace = modlab.trace(Lambda(forward))(X)
    assert trace["late"].path == "late"


def test_keep_asks_for_modules_that_there_are():
    with pytest.raises(QuestionError, match=r"matches no module of Net.  Nearest: 'l0'"):
        modlab.trace(Net(), keep="l00")(torch.randn(4))


def test_kept_dataclasses_are_copies():
    from tests.calls import Answer

    net = Lambda(lambda self, x: Answer(logits=self.a(x)), a=nn.Linear(3, 3))
    trace = modlab.trace(net, keep="")(X)
    assert trace.output.logits.requires_grad and not trace.kept[""][0].logits.requires_grad
    assert type(trace.kept[""][0]) is Answer and torch.equal(trace.kept[""][0]["logits"], trace.output["logits"])


def test_a_folded_path_has_the_call_that_stands_for_it():
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU())
    trace = modlab.trace(net, fold=True)(X)
    assert trace["2"].index == trace["1"].index and trace["1"].times == 2
    assert trace["0"].times == 1, "its input requires no gradient"
    assert "5 of 5 modules ran" in trace.headline


# --- why, where the obvious answer would be wrong


def test_a_printed_loss_is_no_reason():
    assert why(Net(), "l0.weight", lambda net: net(torch.randn(4)).sum().item()).kind == "no backward"


def test_asked_for_others_alone():
    net = Net()
    assert why(net, "l0.weight", lambda net: net(torch.randn(4)).sum().backward(inputs=[net.l1.weight])).kind == "not asked for"
    assert why(net, "l0.weight", lambda net: torch.autograd.grad(net(torch.randn(4)).sum(), net.l1.weight)).kind == "not asked for"


def test_autograd_grad_may_give_none():
    net = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Linear(3, 1)})

    def act(net):
        net["b"](X)
        torch.autograd.grad(net["a"](X).sum(), [net["b"].weight, net["a"].weight], allow_unused=True)

    assert why(net, "a.weight", act).kind == "gradient"
    assert why(net, "b.weight", act).kind == "off the path", "it was asked for"


def test_a_function_that_gives_no_gradient():
    class Wall(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            return None

    net = Lambda(lambda self, x: self.b(Wall.apply(self.a(x))), a=nn.Linear(3, 3), b=nn.Linear(3, 1))
    with modlab.trace(net) as trace:
        net(X).sum().backward()
    assert trace.why("a.weight").kind == "stopped on the way"
    assert not any("leaves the graph" in mark for event in trace for mark in event.marks)


def test_weights_that_are_used_in_other_ways_are_used():
    net = Lambda(lambda self, x: (x @ self.w.T) + torch.stack(list(self.many)).sum() + self.act(self.v), act=nn.Tanh())
    net.w, net.v = nn.Parameter(torch.ones(3, 3)), nn.Parameter(torch.ones(3))
    net.many = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(100))
    with modlab.trace(net) as trace:
        net(X)
    assert {trace.why(path).kind for path in ("w", "v", "many.3", "many.99")} == {"no backward"}


def test_with_autograd_the_second_time():
    def act(net):
        with torch.no_grad():
            net(torch.randn(4))
        net(torch.randn(4))

    assert why(Net(), "l0.weight", act).kind == "no backward"


def test_frozen_while_it_ran():
    def act(net):
        net.l0.requires_grad_(False)
        loss = net(torch.randn(4)).sum()
        net.l0.requires_grad_(True)
        loss.backward()

    reason = why(nn.ModuleDict({"a": nn.Linear(1, 1)}), "a.weight", lambda net: None)
    assert reason.kind == "not called"
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))

    def gan(net):
        net[0].requires_grad_(False)
        loss = net(X).sum()
        net[0].requires_grad_(True)
        loss.backward()

    assert why(net, "0.weight", gan).kind == "frozen"


def test_a_backward_pass_that_raised():
    net = nn.Linear(3, 1)

    def act(net):
        out = net(X)
        out.register_hook(lambda gradient: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            out.sum().backward()

    reason = why(net, "weight", act)
    assert reason.kind == "no backward" and "ZeroDivisionError" in reason.text


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_forward_called_past_the_hook_that_makes_the_weight():
    a = nn.utils.weight_norm(nn.Linear(3, 3))
    net = Lambda(lambda self, x: self.b(self.a.forward(x)), a=a, b=nn.Linear(3, 1))
    a.weight = a.weight.detach()
    reason = why(net, "a.weight_g", lambda net: net(X).sum().backward())
    assert reason.kind == ".forward called", reason


@pytest.mark.parametrize("cut", [lambda h: (h * 1).detach_(), lambda h: h.argmax(-1, keepdim=True).float(), lambda h: (h > 0).float()])
def test_other_ways_out_of_the_graph(cut):
    net = Lambda(lambda self, x: self.b(cut(self.a(x))), a=nn.Linear(3, 1), b=nn.Linear(1, 1))
    reason = why(net, "a.weight", lambda net: net(X).sum().backward())
    assert reason.kind == "detached", reason


def test_what_a_compiled_part_hides_is_not_made_up():
    torch._dynamo.reset()
    part = nn.Linear(3, 3)
    part.compile(backend="eager")
    net = nn.Sequential(nn.Linear(3, 3), part)

    def act(net):
        net(X).sum().backward()
        net.zero_grad()

    assert why(net, "1.weight", act).kind == "cannot be seen"
    assert why(net, "0.weight", act).kind == "cannot be seen"


def test_an_old_gradient_is_told_from_a_new_one():
    net = Net()
    net(torch.randn(4)).sum().backward()
    reason = why(net, "l0.weight", lambda net: net(torch.randn(4)))
    assert reason.kind == "no backward" and "earlier pass" in reason.text


def detaching(rest=None):
    return Lambda(lambda self, x: self.b(self.a(x).detach()), a=nn.Linear(3, 3), b=nn.Linear(3, 1))


def test_a_step_that_ends_in_zero_grad_is_judged_before_it():
    net = detaching()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with modlab.trace(net) as trace:
        net(X).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert "a.weight, a.bias got no gradient" in trace.headline and "b.weight" not in trace.headline
    assert "b.weight" not in str(trace).split("and why")[1] and "a.weight" in str(trace).split("and why")[1]
    assert trace.why("b.weight").kind == "set to None"


def test_reasons_are_grouped_and_what_is_left_out_is_said():
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(12)))
    with modlab.trace(net) as trace:
        net[11](net[:11](X).detach()).sum().backward()
    assert "*.weight (11), *.bias (11)" in str(trace).split("and why")[1]


def test_a_gradient_that_is_not_a_number_is_told():
    net = Lambda(lambda self, x: (self.a(x) * 0).sqrt(), a=nn.Linear(3, 3))
    with modlab.trace(net) as trace:
        net(X).sum().backward()
    assert "NaN first in the gradient of a's output" in trace.headline or "NaN" in trace.why("a.weight").text
    assert "9 of 9 not finite" in trace.why("a.weight").text


def test_infinities_that_were_asked_for_are_no_alarm():
    net = Lambda(lambda self, x: x.masked_fill(x > 0, float("-inf")).exp())
    trace = modlab.trace(net)(torch.randn(6))
    assert "Inf" not in trace.headline and "makes" not in str(trace)
    assert "Inf first in layer 0 " in modlab.trace(nn.Sequential(Lambda(lambda self, x: 1 / (x * 0))))(X).headline


def test_an_activation_that_is_dead():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    nn.init.constant_(net[0].bias, -100.0)
    assert "1 outputs only zeros" in modlab.trace(net)(X).headline


def test_the_text_of_many_rows_keeps_what_matters():
    net = nn.Sequential(*(act for _ in range(200) for act in (nn.Tanh(), nn.Sigmoid())), nn.Linear(4, 4))
    net[::3].apply(lambda module: module.register_forward_hook(lambda *_: None))  # no two neighbours are alike for long
    with pytest.raises(RuntimeError), modlab.trace(net) as trace:
        net(X)
    lines = str(trace).splitlines()
    assert len(lines) < 220 and any(line.startswith("400") for line in lines) and any("more rows" in line for line in lines)


def test_views_of_what_a_layer_computed_are_no_new_memory():
    net = Lambda(lambda self, x: self.a(x).view(2, 4, 2, 4).transpose(1, 2), a=nn.Linear(8, 8))
    trace = modlab.trace(net)(torch.randn(2, 4, 8))
    assert trace["a"].bytes == 256 and [event.bytes for event in trace.find(kind="function")] == [0, 0]


def test_after_a_call_that_raised_the_tracer_has_what_happened():
    tracer = modlab.trace(nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4)))
    with pytest.raises(RuntimeError):
        tracer(X)
    assert repr(tracer).startswith("1 (Linear) got 3 numbers, but has weights for 4.") and "<script" in tracer._repr_html_()


def test_why_takes_the_parameter_itself():
    net = detaching()
    with modlab.trace(net) as trace:
        net(X).sum().backward()
    assert trace.why(net.a.weight).kind == "detached"
    with pytest.raises(modlab.ModlabError, match=r"not a parameter of Lambda\.\n.*t\.why\('a\.weight'\)"):
        trace.why(torch.ones(2))


def test_arguments_in_the_first_call():
    with pytest.raises(QuestionError, match=r"Write: modlab.trace\(net\)\(x\)"):
        modlab.trace(Net(), torch.randn(4))


# --- size


def test_very_many_events_fit_into_an_output():
    def forward(self, x):
        for _ in range(3000):
            x = torch.tanh(x)
        return x

    trace = modlab.trace(Lambda(forward))(X)
    assert len(trace.events) == 3001 and len(trace.html()) <= 200_000


def test_long_names_fit_into_an_output():
    net = nn.Sequential()
    for i in range(400):
        net.add_module("a_name_that_is_very_long_" * 6 + str(i), nn.Identity())
    assert len(modlab.trace(net)(X).html()) <= 200_000


# --- wrapped models


def test_a_model_in_ddp_trains_to_the_same_bits(tmp_path):
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:

        def run(watched):
            torch.manual_seed(0)
            net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)))
            x = torch.randn(5, 3)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            trace = modlab.trace(net)
            for _ in range(3):
                optimizer.zero_grad()
                if watched:
                    with trace as seen:
                        net(x).square().sum().backward()
                        optimizer.step()
                    assert seen.why("module.0.weight").kind == "gradient" and seen["module.2"].outputs
                else:
                    net(x).square().sum().backward()
                    optimizer.step()
            return [parameter.detach().clone() for parameter in net.parameters()]

        for one, other in zip(run(True), run(False), strict=True):
            assert torch.equal(one, other)
    finally:
        torch.distributed.destroy_process_group()
