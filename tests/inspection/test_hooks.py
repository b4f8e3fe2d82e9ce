"""Hooks: all of them are found, named and ordered as torch runs them; taken out, and put back to the same place."""

import copy
import functools
import gc
import importlib
import itertools
import linecache
import random
import re
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations, prune
from torch.optim import optimizer as torch_optimizer

import modlab
from modlab.errors import GoneError, NotAModuleError, NotInitializedError, PathNotFoundError, QuestionError
from modlab.inspection import hook_stores, stores
from modlab.tracing.hook_wrappers import HookWrappers
from modlab.views.sheets.hooks import KINDS
from tests import zoo
from tests.test_identity import everything


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l0 = nn.Linear(4, 3)
        self.l1 = nn.Linear(3, 1)

    def forward(self, x):
        return self.l1(self.l0(x).relu())


def add_one(module, inputs):
    return inputs[0] + 1


def residual(module, inputs, output):
    return output + inputs[0]


def quiet(*_):
    return None


def forty_two(module, grad_input, grad_output):
    return tuple(torch.full_like(grad, 42) for grad in grad_input)


def row(model, **asked):
    found = modlab.hooks(model).find(**asked)
    assert len(found) == 1, found
    return found[0]


REGISTER = {
    "forward pre": "register_forward_pre_hook",
    "forward": "register_forward_hook",
    "full backward pre": "register_full_backward_pre_hook",
    "full backward": "register_full_backward_hook",
    "legacy backward": "register_backward_hook",
    "state_dict pre": "register_state_dict_pre_hook",
    "state_dict post": "register_state_dict_post_hook",
    "load_state_dict pre": "register_load_state_dict_pre_hook",
    "load_state_dict post": "register_load_state_dict_post_hook",
}
GLOBAL = {
    "forward pre": torch_module.register_module_forward_pre_hook,
    "forward": torch_module.register_module_forward_hook,
    "full backward pre": torch_module.register_module_full_backward_pre_hook,
    "full backward": torch_module.register_module_full_backward_hook,
    "legacy backward": torch_module.register_module_backward_hook,
    "buffer registration": torch_module.register_module_buffer_registration_hook,
    "module registration": torch_module.register_module_module_registration_hook,
    "parameter registration": torch_module.register_module_parameter_registration_hook,
    "optimizer step pre": torch_optimizer.register_optimizer_step_pre_hook,
    "optimizer step post": torch_optimizer.register_optimizer_step_post_hook,
}


@pytest.fixture(autouse=True)
def no_global_hooks():
    """torch keeps the kind of a global backward hook for good; a test must not hand it to the next."""
    yield
    modlab.hooks().remove()
    modlab.hooks().remove(function="*")
    torch_module._global_is_full_backward_hook = None
    assert not modlab.hooks().records


# ---- what is found


@pytest.mark.parametrize("kind", REGISTER)
def test_every_kind_is_found(kind):
    net = Net()
    handle = getattr(net.l0, REGISTER[kind])(quiet)
    found = row(net, kind=kind)
    assert (found.path, found.kind, found.function, found.number) == ("l0", kind, "quiet", handle.id)
    assert found.where == f"tests/inspection/test_hooks.py:{quiet.__code__.co_firstlineno}" and found.code.startswith("def quiet(*_):")
    assert KINDS[kind].register == REGISTER[kind] and REGISTER[kind] in modlab.hooks(net).html(bundle=False) + str(KINDS[kind])
    handle.remove()
    assert not modlab.hooks(net).records


@pytest.mark.parametrize("kind", GLOBAL)
def test_every_global_kind_is_found(kind):
    handle = GLOBAL[kind](quiet)
    for result in (modlab.hooks(), modlab.hooks(Net())):
        (found,) = result.records
        assert found.kind == kind and found.is_global and found.number == handle.id and result[found.path] == (found,)
        assert found.path == ("(every optimizer)" if kind.startswith("optimizer") else "(every module)")
    assert KINDS[kind].for_all == GLOBAL[kind].__name__
    assert modlab.hooks().remove(kind=kind) == 1 and not modlab.hooks().records


def test_the_kinds_that_torch_has_today_all_have_words():
    """A store that a future torch adds is found too, under its own name."""
    known = {*hook_stores.KINDS, "_backward_hooks"}
    assert set(stores.HOOKS) <= known
    there = {name for name in vars(torch_module) if name.startswith("_global_") and name.endswith("_hooks")}
    assert {name.removeprefix("_global") for name in there} <= known
    assert all(kind in KINDS for kind in hook_stores.ORDER)


def test_a_store_of_a_future_torch_is_found(monkeypatch):
    monkeypatch.setattr(stores, "HOOKS", (*stores.HOOKS, "_sharding_hooks"))
    monkeypatch.setattr(stores, "own_values", lambda held: (True, []))
    net = Net()
    net.l1.__dict__["_sharding_hooks"] = {3: quiet}
    found = row(net)
    assert found.kind == "sharding" and "quiet sharding hook" in str(modlab.hooks(net))


def test_hooks_on_tensors():
    net = Net()
    net.register_buffer("seen", torch.zeros(1))
    net.l1.weight.register_hook(quiet)
    net.l0.bias.register_post_accumulate_grad_hook(quiet)
    found = [(r.path, r.owner, r.kind) for r in modlab.hooks(net)]
    assert found == [("l0.bias", "l0", "post accumulate grad"), ("l1.weight", "l1", "gradient")]
    assert modlab.hooks(net)["l1.weight"][0].function == "quiet" and modlab.hooks(net)["l1"] == ()
    assert modlab.hooks(net).remove("l1.weight") == 1
    net(torch.ones(4)).backward()
    assert len(modlab.hooks(net)) == 1


def test_a_tied_tensor_and_a_shared_module_are_listed_once():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    net.append(net[0])
    net[0].weight.register_hook(quiet)
    net[2].register_forward_hook(quiet)
    result = modlab.hooks(net)
    assert [r.path for r in result] == ["0", "0.weight"] and "also 2" in str(result)
    assert result["2"] == result["0"] and result["1.weight"] == result["0.weight"]
    assert result.remove("2") == 1 and len(result) == 1


@pytest.mark.parametrize("kind", ["forward pre", "forward", "full backward pre", "full backward"])
def test_order_is_the_order_in_which_torch_runs_them(kind):
    """Random registrations, with and without prepend, global ones before them; then one pass tells."""
    rng = random.Random(kind)
    ran: list[int] = []
    net = nn.Linear(2, 2)
    for _ in range(6):
        number = []

        def hook(*_, number=number):
            ran.append(number[0])

        if rng.random() < 0.3:
            number.append(GLOBAL[kind](hook).id)
        else:
            number.append(getattr(net, REGISTER[kind])(hook, prepend=rng.random() < 0.5).id)
    net(torch.ones(2, requires_grad=True)).sum().backward()
    records = [r for r in modlab.hooks(net) if r.kind == kind]
    assert [r.number for r in records] == ran
    for own in (True, False):
        part = [r for r in records if r.is_global != own]
        assert [(r.order, r.among) for r in part] == [(i + 1, len(part)) for i in range(len(part))]


def test_prepend_is_said_where_it_can_be_known():
    net = nn.Linear(2, 2)
    net.register_forward_hook(quiet)
    assert row(net).prepend is None, "the only one: nobody can tell"
    net.register_forward_hook(lambda *_: None)
    net.register_forward_hook(lambda *_: None, prepend=True)
    assert [r.prepend for r in modlab.hooks(net)] == [True, None, False]
    assert "prepend" in str(modlab.hooks(net))


def test_options():
    net = nn.Linear(2, 2)
    net.register_forward_hook(quiet, with_kwargs=True, always_call=True)
    net.register_forward_pre_hook(quiet, with_kwargs=True)
    net.register_state_dict_post_hook(quiet)
    net._register_state_dict_hook(lambda *_: None)
    net._register_load_state_dict_pre_hook(quiet)
    net._register_load_state_dict_pre_hook(quiet, with_module=True)
    before, after, public, private, bare, whole = modlab.hooks(net)
    assert before.with_kwargs and not before.always_call and after.with_kwargs and after.always_call
    assert public.public and not private.public
    assert not bare.with_module and whole.with_module and bare.function == whole.function == "quiet"
    torch_module.register_module_forward_hook(quiet, with_kwargs=True, always_call=True)
    assert row(None).with_kwargs and row(None).always_call


# ---- names


class Recorder:
    def hook(self, *_):
        return None

    def __call__(self, *_):
        return None


def install(name):
    def inner(*_):
        return name

    return inner


@torch.no_grad()
def decorated(*_):
    return None


NAMES = [
    (quiet, "quiet", "function", "quiet"),
    (lambda *_: None, "<lambda>", "lambda", "lambda"),
    (install("a"), "install.<locals>.inner", "function", "install.inner"),
    (decorated, "decorated", "function", "decorated"),
    (Recorder().hook, "Recorder.hook", "method", "Recorder.hook"),
    (Recorder(), "Recorder", "object", "Recorder object"),
    (functools.partial(functools.partial(quiet, 1), 2), "quiet", "partial", "partial of quiet"),
    (functools.partial(Recorder().hook, 1), "Recorder.hook", "partial", "partial of Recorder.hook"),
    (functools.lru_cache(quiet), "_lru_cache_wrapper", "object", "_lru_cache_wrapper object"),
    (print, "print", "builtin", "print"),
    ([].append, "list.append", "builtin", "list.append"),
    (zoo._Odd(), "_Odd", "object", "_Odd object"),
    (nn.Identity(), "Identity", "object", "Identity object"),
]


@pytest.mark.parametrize(("hook", "function", "form", "name"), NAMES, ids=[n[3] for n in NAMES])
def test_names(hook, function, form, name):
    net = nn.Linear(2, 2)
    net.register_forward_hook(hook)
    found = row(net)
    assert (found.function, found.form, found.name) == (function, form, name)
    assert bool(found.where) == (form != "builtin")
    assert found.machinery == ""


def test_decorated_functions_are_shown_from_the_inside():
    net = nn.Linear(2, 2)
    net.register_forward_hook(decorated)
    assert row(net).where.startswith("tests/inspection/test_hooks.py:") and "def decorated" in row(net).code


class Observer:
    def stage(self, stage, args, kwargs):
        return stage.original(*args, **kwargs)


def test_a_hook_that_is_staged_by_a_trace_is_shown_as_itself():
    net = nn.Linear(2, 2)
    net.register_forward_hook(quiet)
    expected = str(modlab.hooks(net))
    outer, inner = HookWrappers(Observer()), HookWrappers(Observer())
    outer.open([net]), inner.open([net])
    assert net._forward_hooks[row(net).number] is not quiet
    assert str(modlab.hooks(net)) == expected and row(net).form == "function"
    assert modlab.hooks(net).remove(function=quiet) == 1
    inner.close([net]), outer.close([net])
    assert not net._forward_hooks


@pytest.mark.parametrize("first", ["trace", "off"])
def test_off_and_a_trace_that_end_in_any_order(first):
    net = nn.Linear(2, 2)
    net.register_forward_hook(quiet)
    before, stages, off = snapshot(net), HookWrappers(Observer()), modlab.hooks(net).off()
    for one in (stages.open, off.__enter__) if first == "trace" else (off.__enter__, stages.open):
        one([net]) if one == stages.open else one()
    stages.close([net]) if first == "trace" else off.__exit__(None, None, None)
    off.__exit__(None, None, None) if first == "trace" else stages.close([net])
    assert snapshot(net) == before


# ---- machinery


def test_known_machinery():
    net = nn.ModuleDict({name: nn.Linear(3, 3) for name in ("pruned", "spectral", "normed")})
    prune.random_unstructured(net["pruned"], "weight", amount=0.5)

    class Mine(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            return default_mask

    Mine.apply(net["pruned"], "bias")
    nn.utils.spectral_norm(net["spectral"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net["old"] = nn.utils.weight_norm(nn.Linear(3, 3))
    parametrizations.weight_norm(net["normed"])
    net["lazy"] = nn.LazyLinear(2)
    net["mine"] = nn.Linear(3, 3)
    net["mine"].register_forward_hook(quiet)
    count = len(modlab.hooks(net))
    found = {(r.path, r.kind, r.machinery) for r in modlab.hooks(net)}
    assert found >= {
        ("pruned", "forward pre", "pruning"),
        ("spectral", "forward pre", "spectral norm"),
        ("spectral", "state_dict post", "spectral norm"),
        ("old", "forward pre", "weight norm"),
        ("normed", "load_state_dict pre", "weight norm"),
        ("lazy", "forward pre", "lazy module"),
        ("lazy", "load_state_dict pre", "lazy module"),
        ("mine", "forward", ""),
    }
    assert all(machinery for path, _, machinery in found if path != "mine")
    assert "Mine object forward pre-hook (pruning)" in str(modlab.hooks(net))
    assert modlab.hooks(net).remove() == 1, "only the user's own"
    assert modlab.hooks(net).remove("pruned") == 0
    assert modlab.hooks(net).remove("pruned", function="Mine") == 1
    assert modlab.hooks(net).remove(function=prune.BasePruningMethod) == 1
    with modlab.hooks(net).off():
        assert len(modlab.hooks(net)) == count - 3, "nothing of torch's own"


def test_distributed_machinery():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    net = nn.Sequential(checkpoint_wrapper(nn.Linear(2, 2)))
    assert {r.machinery for r in modlab.hooks(net)} == {"activation checkpointing"}
    parallel = zoo.named("distributed_like").build()
    modlab.hooks(parallel)


# ---- doubled, left, silent


def test_registered_twice():
    net = Net()
    recorder = Recorder()
    for _ in range(2):
        net.l0.register_forward_hook(quiet)
        net.l1.register_forward_hook(recorder.hook)
        net.l0.register_forward_pre_hook(functools.partial(quiet, "a"))
        net.l1.register_full_backward_hook(install("same"))
    result = modlab.hooks(net)
    assert [r.times for r in result] == [2] * 8
    assert result.headline.startswith("Net: 4 hooks are registered more than once; 8 hooks on 2 of 3 modules.")
    assert result.remove(function=quiet) == 4, "and partials of it"
    assert result.remove(function="install.inner") == 2
    assert result.headline.startswith("Net: Recorder.hook on l1 is registered twice as a forward hook and runs twice; 2 hooks")


def test_what_only_looks_like_twice():
    """One function on two modules, in two kinds; a factory's hooks with other contents; partials with other arguments; two objects."""
    net = Net()
    net.l0.register_forward_hook(quiet)
    net.l1.register_forward_hook(quiet)
    net.l0.register_forward_pre_hook(quiet)
    for name in ("a", "b"):
        net.l0.register_forward_hook(install(name))
        net.l0.register_forward_hook(functools.partial(quiet, name))
        net.l0.register_forward_hook(Recorder())
        net.l0.register_forward_hook(Recorder().hook)
    for number in range(3):
        net.l1.register_forward_hook(lambda *_, number=number: None)
    assert all(r.times == 1 and not r.left for r in modlab.hooks(net))


PROBE = """
def probe(module, inputs, output):
    seen.append([x.item() for x in output])
net.l0.register_forward_hook(probe)
"""


class Notebook:
    """Cells as ipykernel compiles them: another file each run, one namespace."""

    def __init__(self, net):
        self.names = {"__name__": "__main__", "net": net, "seen": [], "nn": nn}
        self.count = itertools.count()

    def run(self, cell):
        exec(compile(cell, f"<ipython-input-{next(self.count)}-0a1b>", "exec"), self.names)


def test_left_by_an_earlier_run_of_its_cell():
    net = Net()
    notebook = Notebook(net)
    notebook.run(PROBE)
    assert not row(net).left
    notebook.run(PROBE)
    notebook.run(PROBE)
    result = modlab.hooks(net)
    assert [bool(r.left) for r in result] == [True, True, False] and [r.times for r in result] == [1, 1, 1]
    assert result.headline == "Net: 2 hooks are left from earlier runs of their cells and still run; 3 hooks on 1 of 3 modules."
    assert result.records[0].where == "a cell of this notebook, line 2"
    assert "hooks.remove([row for row in hooks if row.left])" in str(result)
    net(torch.ones(4))
    assert len(notebook.names["seen"]) == 3, "they do run"
    newest = result.records[2].number
    assert result.remove([r for r in result if r.left]) == 2, "the fix, as the view gives it"
    assert [r.number for r in result] == [newest] and not row(net).left
    assert result.remove(function="probe") == 1


def test_left_with_prepend():
    """The newest is the one that counts, also where it runs first."""
    net = Net()
    notebook = Notebook(net)
    cell = PROBE.replace("(probe)", "(probe, prepend=True)")
    notebook.run(cell), notebook.run(cell)
    assert [bool(r.left) for r in modlab.hooks(net)] == [False, True]


@pytest.mark.parametrize(
    "cell",
    [
        "net.l0.register_forward_hook(lambda m, i, o: seen.append(o))",
        "def go():\n    def inner(m, i, o): seen.append(o)\n    net.l0.register_forward_hook(inner)\ngo()",
    ],
)
def test_left_lambdas_and_inner_functions(cell):
    net = Net()
    notebook = Notebook(net)
    notebook.run(cell), notebook.run(cell)
    assert [bool(r.left) for r in modlab.hooks(net)] == [True, False]


def test_left_with_another_body_or_on_another_module():
    """The cell was edited and run again: the name stands for another function."""
    net = Net()
    notebook = Notebook(net)
    notebook.run(PROBE)
    notebook.run(PROBE.replace("x.item()", "2 * x.item()").replace("net.l0", "net.l1"))
    old, new = modlab.hooks(net)
    assert old.left == "probe is a different function now, since its cell has run again" and not new.left
    assert modlab.hooks(net).headline.startswith("Net: probe on l0 is left from an earlier run of its cell and still runs;")
    assert modlab.hooks(net).remove(function=notebook.names["probe"]) == 2, "the function given, and what earlier runs left of it"


def test_left_methods_and_objects():
    net = Net()
    notebook = Notebook(net)
    cell = "class Rec:\n    def hook(self, *_): pass\n    def __call__(self, *_): pass\n"
    register = "net.l0.register_forward_hook(Rec().hook)\nnet.l1.register_forward_hook(Rec())"
    notebook.run(cell + register), notebook.run(cell + register)
    assert [bool(r.left) for r in modlab.hooks(net)] == [True, False, True, False]


def test_left_by_a_file_that_was_loaded_again(tmp_path, monkeypatch):
    (tmp_path / "probes_of_a_test.py").write_text("def probe(*_):\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    probes = importlib.import_module("probes_of_a_test")
    net = Net()
    net.l0.register_forward_hook(probes.probe)
    importlib.reload(probes)
    assert row(net).left == "probe is a different function now, since its file has run again"
    assert modlab.hooks(net).headline.startswith("Net: probe on l0 is left from an earlier run and still runs;")
    assert row(net).where == "probes_of_a_test.py:1" and modlab.hooks(net).remove(function=probes.probe) == 1


def test_two_functions_of_one_name_in_a_file_are_not_left():
    def make():
        def probe(*_):
            return 1

        return probe

    def also():
        def probe(*_):
            return 2

        return probe

    net = Net()
    net.l0.register_forward_hook(make())
    net.l0.register_forward_hook(also())
    assert not any(r.left or r.times > 1 for r in modlab.hooks(net))


def test_what_is_not_left():
    net = Net()
    notebook = Notebook(net)
    notebook.run(PROBE)
    notebook.run("del probe")
    notebook.run("def probe2(*_): pass\nprobe = 3")
    notebook.run(
        "import functools\n"
        "def other(*_): pass\nnet.l1.register_forward_hook(other)\n@functools.wraps(other)\ndef deco(*_): pass\nother = deco"
    )
    notebook.run("for layer in (net.l0, net.l1):\n    layer.register_forward_pre_hook(lambda *_: None)")
    assert not any(r.left for r in modlab.hooks(net))


def test_hooks_that_never_run():
    ran: list[str] = []
    net = nn.ModuleDict({"list": nn.ModuleList([nn.Linear(4, 4)]), "attention": nn.MultiheadAttention(4, 2)})
    net["list"].register_forward_hook(lambda *_: ran.append("list"))
    net["attention"].out_proj.register_forward_hook(lambda *_: ran.append("out_proj"))
    net["attention"].register_forward_hook(lambda *_: ran.append("attention"))
    net["list"].register_state_dict_pre_hook(lambda *_: ran.append("saved"))
    x = torch.ones(2, 1, 4)
    net["attention"](x, x, x), net["list"][0](x), net.state_dict()
    silent = {r.path: bool(r.silent) for r in modlab.hooks(net) if r.kind == "forward"}
    assert silent == {"list": True, "attention.out_proj": True, "attention": False} and ran == ["attention", "saved"]
    assert modlab.hooks(net).headline.startswith("ModuleDict: 2 hooks never run;")
    by_hand = nn.Linear(2, 2)
    by_hand._backward_hooks[0] = quiet
    assert row(by_hand).kind == "backward" and row(by_hand).silent


def test_a_compiled_model_says_which_hooks_it_does_not_run():
    text = str(modlab.hooks(zoo.named("compiled").build()))
    assert "does not run until torch._dynamo.reset()" in text
    assert "accepts no hooks" in str(modlab.hooks(zoo.named("scripted").build()))


# ---- what is said of a returned value is what torch does


def returned(model, kind):
    return KINDS[row(model, kind=kind).kind].value


def test_the_words_for_forward_hooks_hold():
    torch.manual_seed(1)
    m = nn.Linear(3, 3)
    x = torch.randn(2, 3, requires_grad=True)
    m.register_forward_pre_hook(add_one)
    m.register_forward_hook(residual)
    with modlab.hooks(m).off():
        expected = m(x + 1) + (x + 1)  # neither m(x) + x nor m(x + 1) + x
    assert torch.equal(m(x), expected)
    assert [round(v, 4) for v in m(x).flatten().tolist()] == [-1.098, 0.6396, 0.4666, 0.3634, 0.6538, 1.0256]
    assert "gets the input after add_one" in str(modlab.hooks(m))
    assert (returned(m, "forward pre"), returned(m, "forward")) == ("would replace the input", "would replace the output")


def test_a_hook_that_returns_nothing_is_not_said_to_replace_anything():
    m = nn.Linear(3, 3)
    prune.l1_unstructured(m, "weight", 0.5)
    (hook,) = m._forward_pre_hooks.values()
    assert hook(m, (torch.randn(2, 3),)) is None
    text = str(modlab.hooks(m))
    assert "would replace the input" in text and "replaces the input" not in text


def test_the_words_for_backward_hooks_hold():
    m = nn.Linear(3, 3)
    x = torch.randn(2, 3, requires_grad=True)
    m(x).sum().backward()
    plain = m.weight.grad.clone()
    m.zero_grad()
    m.register_full_backward_hook(forty_two)
    m(x).sum().backward()
    assert torch.equal(m.weight.grad, plain) and (x.grad > 41).all()
    assert returned(m, "full backward") == "would replace the input's gradient"
    m.zero_grad()
    m.register_full_backward_pre_hook(lambda module, grads: (2 * grads[0],))
    m(x).sum().backward()
    assert torch.equal(m.weight.grad, 2 * plain) and returned(m, "full backward pre") == "would replace the output's gradient"
    got = []
    m.register_full_backward_hook(lambda module, grad_input, grad_output: got.append(grad_input))
    with modlab.hooks(m).off(function=forty_two), pytest.warns(UserWarning, match="no inputs require gradients"):
        m(x.detach()).sum().backward()
    assert got == [(None,)] and "grad_input is (None,)" in KINDS["full backward"].facts


def test_the_words_for_the_other_kinds_hold():
    m = nn.Linear(2, 2)
    m.weight.register_hook(lambda grad: 3 * grad)
    m.bias.register_post_accumulate_grad_hook(torch.ones_like)
    with pytest.raises(RuntimeError, match="should return None"):
        m(torch.ones(2)).sum().backward()
    assert (returned(m, "post accumulate grad"), returned(m, "gradient")) == ("must be None", "would replace the gradient")
    modlab.hooks(m).remove(kind="post accumulate grad")
    m.zero_grad()
    m(torch.ones(2)).sum().backward()
    assert torch.equal(m.weight.grad, torch.full((2, 2), 3.0))
    m.register_state_dict_pre_hook(lambda *_: 1)
    m.register_load_state_dict_pre_hook(lambda *_: 1)
    m.load_state_dict(m.state_dict())
    assert returned(m, "state_dict pre") == returned(m, "load_state_dict pre") == "is ignored"
    m.register_load_state_dict_post_hook(lambda *_: 1)
    with pytest.raises(AssertionError):
        m.load_state_dict(m.state_dict())
    m.register_state_dict_post_hook(lambda *_: 1)
    with pytest.raises(RuntimeError, match="must return None"):
        m.state_dict()
    assert returned(m, "state_dict post") == returned(m, "load_state_dict post") == "must be None"
    modlab.hooks(m).remove()
    m._register_state_dict_hook(lambda *_: {"mine": 1})
    assert m.state_dict() == {"mine": 1} and list(nn.Sequential(m).state_dict()) == ["0.weight", "0.bias"]
    assert "would replace the dict, at the root only" in str(modlab.hooks(m))


# ---- off, and gone


def snapshot(model):
    held = [object.__getattribute__(m, "__dict__") for m in model.modules()]
    dicts = [{k: list(v.items()) for k, v in h.items() if "hooks" in k and isinstance(v, dict)} for h in held]
    ids = [{k: id(v) for k, v in h.items() if "hooks" in k} for h in held]
    return dicts, ids, [list((p._backward_hooks or {}).items()) for p in model.parameters()]


def full_of_hooks(seed=0):
    """A net with a random mix of hooks; the numbers of their handles in the order of registration."""
    rng = random.Random(seed)
    net = Net()
    handles = []
    for _ in range(30):
        place = rng.choice([net, net.l0, net.l1])
        kind = rng.choice([k for k in REGISTER if k != "legacy backward"])
        options = {}
        if kind in ("forward", "forward pre"):
            options = {"with_kwargs": rng.random() < 0.5, "prepend": rng.random() < 0.5}
        if kind == "forward":
            options["always_call"] = rng.random() < 0.5
        if kind.startswith("full"):
            options = {"prepend": rng.random() < 0.5}
        hook = quiet if rng.random() < 0.5 else (lambda *_: None)
        handles.append(getattr(place, REGISTER[kind])(hook, **options))
    net.l0.weight.register_hook(quiet)
    return net, handles


QUESTIONS = [
    {},
    {"path": "l0"},
    {"path": "l*"},
    {"kind": "forward"},
    {"kind": "*backward*"},
    {"function": quiet},
    {"function": "<lambda>"},
    {"path": "", "kind": "forward pre"},
]


@pytest.mark.parametrize("asked", QUESTIONS)
@pytest.mark.parametrize("seed", range(4))
def test_off_puts_everything_back(asked, seed):
    net, _ = full_of_hooks(seed)
    before = snapshot(net)
    result = modlab.hooks(net)
    wanted = {r.number for r in expected(result, asked)}
    with result.off(**asked) as same:
        assert same is result
        assert {r.number for r in modlab.hooks(net)} == {r.number for r in result} - wanted
    assert snapshot(net) == before
    with pytest.raises(ZeroDivisionError), result.off(**asked):
        raise ZeroDivisionError
    assert snapshot(net) == before


def expected(result, asked):
    function = asked.get("function")
    name = function if isinstance(function, str) else getattr(function, "__name__", None)
    return result.find(asked.get("path", "*"), kind=asked.get("kind"), function=name)


@pytest.mark.parametrize("seed", range(8))
def test_off_while_hooks_come_and_go(seed):
    """Those that are on may be removed by their handles, and others added in front and behind: the rest is as if nothing had been off."""
    rng = random.Random(seed)
    off_net, off_handles = full_of_hooks(seed)
    plain_net, plain_handles = full_of_hooks(seed)
    off = set(rng.sample(range(len(off_handles)), 12))
    numbers = {off_handles[i].id for i in off}
    removed = rng.sample([i for i in range(len(off_handles)) if i not in off], 5)
    result = modlab.hooks(off_net)
    with result.off([r for r in result if r.number in numbers]):
        change(off_net, [off_handles[i] for i in removed])
    change(plain_net, [plain_handles[i] for i in removed])
    assert told(off_net) == told(plain_net)


def change(net, handles):
    for handle in handles:
        handle.remove()
    net.l0.register_forward_hook(add_one, with_kwargs=True)
    net.l1.register_full_backward_hook(add_one)


def told(net):
    return [(r.path, r.kind, r.order, r.function, r.with_kwargs, r.always_call) for r in modlab.hooks(net)]


def test_a_new_hook_in_front_stays_in_front():
    net = nn.Linear(2, 2)
    a = net.register_forward_hook(quiet)
    b = net.register_forward_hook(lambda *_: None)
    with modlab.hooks(net).off(function=quiet):
        c = net.register_forward_hook(add_one, prepend=True)
    assert list(net._forward_hooks) == [c.id, a.id, b.id]


@pytest.mark.parametrize("kind", ["forward pre", "forward"])
@pytest.mark.parametrize("options", [{}, {"with_kwargs": True}])
def test_a_handle_removes_a_hook_that_is_off(kind, options):
    net = nn.Linear(2, 2)
    handle = getattr(net, REGISTER[kind])(quiet, **options)
    other = getattr(net, REGISTER[kind])(quiet, **options)
    with modlab.hooks(net).off():
        handle.remove()
    assert [r.number for r in modlab.hooks(net)] == [other.id]
    assert list(net._forward_hooks_with_kwargs or net._forward_pre_hooks_with_kwargs) == ([other.id] if options else [])


def test_off_is_as_if_there_were_none():
    """No view of the output, no backward function: an in-place operation after a full backward hook works."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    net[0].register_full_backward_hook(quiet)
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="BackwardHookFunction"):
        net(x).sum().backward()
    with modlab.hooks(net).off(kind="full backward"):
        net(x).sum().backward()
    with modlab.hooks(net).off("0"), modlab.hooks(net).off():
        assert not net[0]._backward_hooks
    assert len(net[0]._backward_hooks) == 1


def test_off_in_a_pass_and_a_failing_model():
    net = Net()
    ran = []
    net.l1.register_forward_hook(lambda *_: ran.append("l1"))

    def raising(*_):
        raise ValueError("mine")

    net.l0.register_forward_hook(raising)
    before = snapshot(net)
    with pytest.raises(ValueError, match="mine"), modlab.hooks(net).off("l1"):
        net(torch.ones(4))
    assert ran == [] and snapshot(net) == before


@pytest.mark.parametrize("asked", QUESTIONS)
def test_remove_takes_what_was_asked_and_nothing_else(asked):
    net, _ = full_of_hooks(5)
    result = modlab.hooks(net)
    wanted = [r.number for r in expected(result, asked)]
    others = [r.number for r in result if r.number not in wanted]
    assert wanted and result.remove(**asked) == len(wanted)
    assert [r.number for r in result] == others == [r.number for r in modlab.hooks(net)]
    marks = [*net._forward_hooks_with_kwargs, *net.l0._forward_hooks_with_kwargs, *net.l0._forward_hooks_always_called]
    assert set(marks) <= set(others), "with_kwargs and always_call go with their hooks"
    assert result.remove(**asked) == 0


def test_remove_is_what_the_handles_do():
    ours, _ = full_of_hooks(7)
    theirs, handles = full_of_hooks(7)
    modlab.hooks(ours).remove(kind="*")
    for handle in handles:
        handle.remove()
    theirs.l0.weight._backward_hooks.clear()
    assert snapshot(ours)[0] == snapshot(theirs)[0]
    assert ours.l0._is_full_backward_hook == theirs.l0._is_full_backward_hook, "torch keeps the kind"


def test_remove_by_function():
    net = nn.Linear(2, 2)
    recorder, other = Recorder(), Recorder()
    hooks = [quiet, functools.partial(quiet, 1), recorder.hook, other.hook, recorder]
    for hook in hooks:
        net.register_forward_hook(hook)
    counts = [(recorder.hook, 1), (Recorder.hook, 2), (recorder, 1), (Recorder, 1), (quiet, 2), ("quiet", 2), ("Rec*", 3), (add_one, 0)]
    for function, count in counts:
        with modlab.hooks(net).off(function=function):
            assert len(hooks) - len(net._forward_hooks) == count, function


def test_remove_by_records():
    net, _ = full_of_hooks(3)
    result = modlab.hooks(net)
    first, last = result.records[0], result.records[-1]
    assert result.remove(first) == 1 and result.remove([last, first]) == 1 and result.remove([]) == 0


def test_global_hooks_are_left_alone_by_a_model_unless_named():
    net = Net()
    net.register_forward_hook(quiet)
    torch_module.register_module_forward_hook(residual, with_kwargs=True)
    assert modlab.hooks(net).remove() == 1 and modlab.hooks(net).remove("*") == 0 and modlab.hooks(net).remove(kind="forward") == 0
    with modlab.hooks(net).off(function="residual"):
        assert not modlab.hooks().records
    with modlab.hooks(net).off("(every module)"):
        assert not modlab.hooks().records
    assert modlab.hooks(net).remove(function=residual) == 1
    assert not torch_module._global_forward_hooks_with_kwargs


def test_a_hook_that_was_off_is_found_by_its_handle_again():
    net = nn.Linear(2, 2)
    handle = net.register_forward_hook(quiet)
    with modlab.hooks(net).off():
        pass
    handle.remove()
    assert not net._forward_hooks


# ---- questions


def test_wrong_questions_teach():
    net = Net()
    result = modlab.hooks(net)
    with pytest.raises(PathNotFoundError, match=r"no module and no tensor 'lo'.*\n.*Nearest: .*'l0'"):
        result.remove("lo")
    with pytest.raises(PathNotFoundError):
        result["l0.weigth"]
    assert result["l0"] == () and result.remove("l0") == 0 and result.remove("nothing.*") == 0
    with pytest.raises(QuestionError, match="no kind of hook 'fwd'"):
        result.remove(kind="fwd")
    with pytest.raises(QuestionError, match="got an int"):
        result.remove(3)
    with pytest.raises(QuestionError, match="function= got an int"), result.off(function=3):
        pass
    with pytest.raises(NotAModuleError, match=r"modlab\.hooks"):
        modlab.hooks("net.pt")
    with pytest.raises(NotInitializedError):
        modlab.hooks(type("Forgot", (nn.Module,), {"__init__": lambda self: None})())


def test_a_dead_model():
    net = Net()
    net.register_forward_hook(quiet)
    result = modlab.hooks(net)
    text, freed = str(result), weakref.ref(net)
    del net
    gc.collect()
    assert freed() is None and str(result) == text and result.html() and len(result) == 1
    with pytest.raises(GoneError, match=r"modlab\.hooks\(model\)"):
        result.remove()


# ---- faces


def test_text():
    net = Net()
    net.l0.register_forward_pre_hook(add_one)
    net.l0.register_forward_hook(residual, with_kwargs=True)
    net.l0.register_full_backward_hook(forty_two)
    lines = [re.sub(r" +", " ", re.sub(r"py:\d+", "py:N", line)).rstrip() for line in str(modlab.hooks(net)).splitlines()]
    assert lines == [
        "Net: 3 hooks on 1 of 3 modules: 1 forward pre-hook, 1 forward hook, 1 full backward hook; "
        "the forward hook gets the input as left by pre-hooks.",
        "path hook order a returned value options defined in",
        "l0 Linear",
        "l0 add_one forward pre-hook 1 would replace the input tests/inspection/test_hooks.py:N",
        "l0 residual forward hook (gets the input after add_one) 1 would replace the output with_kwargs tests/inspection/test_hooks.py:N",
        "l0 forty_two full backward hook 1 would replace the input's gradient tests/inspection/test_hooks.py:N",
        "cannot be seen: hooks on nodes of the autograd graph (grad_fn.register_hook): torch keeps no list of them",
    ]


def test_the_root_prints_as_root():
    net = nn.Linear(2, 2)
    net.register_forward_hook(quiet)
    lines = str(modlab.hooks(net)).splitlines()
    assert lines[2].startswith("(root)  Linear") and lines[3].startswith("(root)  quiet forward hook")


def test_no_hooks():
    assert str(modlab.hooks(nn.ReLU())).splitlines()[:2] == [
        "ReLU: no hooks on it, and none for all modules.",
        "Calling the model runs only forward.",
    ]
    assert str(modlab.hooks()) == "No global hooks: nothing is called for all modules or all optimizers."


@pytest.mark.parametrize("case", [c for c in zoo.CASES if not c.large], ids=str)
def test_looking_changes_nothing(case):
    model = case.build()
    before = everything(model)
    results = [modlab.hooks(model) for _ in range(2)]
    faces = [(str(r), r.html(), r.headline, repr(r.to_dict())) for r in results]
    assert faces[0] == faces[1] and not re.search(r"0x[0-9a-f]{6,}", faces[0][0])
    assert everything(model) == before
    if case.walks:
        hooks = snapshot(model)
        with results[0].off(function="*"):
            assert all(r.is_global for r in modlab.hooks(model))
        assert snapshot(model) == hooks


def test_hooks_of_a_copy_are_the_same_view():
    net, _ = full_of_hooks(2)
    modlab.hooks(net).remove(kind="gradient")  # deepcopy leaves those behind
    assert str(modlab.hooks(copy.deepcopy(net))) == str(modlab.hooks(net))


def test_hostile_names():
    model = zoo.named("hostile_names").build()
    for module in model.modules():
        module.register_forward_hook(quiet)
    result = modlab.hooks(model)
    text = str(result)
    assert len(text.splitlines()) == len(result) + len(result.record.places) + 3, "a name stays on its line"
    assert "<script" not in result.html(bundle=False).replace("<script>(()", "")
    assert result.remove() == len(list(model.modules()))


def test_a_wide_model_is_quick():
    import time

    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(5000)))
    for child in model:
        child.register_forward_hook(quiet)
    start = time.perf_counter()
    result = modlab.hooks(model)
    assert len(result) == 5000 and len(result.html()) < 400_000
    assert time.perf_counter() - start < 20


def test_the_code_that_a_row_gives_does_what_it_says():
    """Each row's details offer code: run it, and exactly the hooks of this name (and kind) there are off, then gone."""
    for i in range(len(modlab.hooks(full_of_hooks(11)[0]))):
        net, _ = full_of_hooks(11)
        result = modlab.hooks(net)
        rows = [r for r in result._sheet().rows if r.symbol == "hook"]
        code = next(block.code for block in rows[i].details if block.caption == "off, or gone")
        record = result.records[i]
        exec(code.replace("...", "during = [row.number for row in modlab.hooks(model)]"), names := {"modlab": modlab, "model": net})
        left = [r.number for r in modlab.hooks(net)]
        gone = [r for r in result if r.number not in left]
        assert names["during"] == left and record in gone
        assert {(r.path, r.function) for r in gone} == {(record.path, record.function)}
        assert {r.kind for r in gone} == {record.kind}


# ---- in a real shell ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(shell):
    """With a model of two layers."""
    shell.user_ns.update(net=nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), partial=functools.partial)
    return shell


def seen_in(shell, *cells):
    """What is said of the hooks after some cells have run: of each, whether it is left over, and how often it is there."""
    for cell in cells:
        shell.run_cell(cell, store_history=True).raise_error()
    return [(bool(r.left), r.times) for r in modlab.hooks(shell.user_ns["net"])]


ONCE = {
    "one function on many modules": "def probe(m, i, o): pass\nfor layer in net: layer.register_forward_hook(probe)",
    "a factory": "def make(n):\n    def hook(m, i, o): print(n)\n    return hook\nfor n in 'ab': net[0].register_forward_hook(make(n))",
    "two lambdas": "net[0].register_forward_hook(lambda m, i, o: None); net[0].register_forward_hook(lambda m, i, o: o)",
    "two equal lambdas": "net[0].register_forward_hook(lambda m, i, o: None); net[0].register_forward_hook(lambda m, i, o: None)",
    "partials": "def p(m, i, o, tag): pass\nfor tag in 'ab': net[0].register_forward_hook(partial(p, tag=tag))",
    "methods of two objects": "class Rec:\n    def hook(self, *_): pass\na, b = Rec(), Rec()\n"
    "net[0].register_forward_hook(a.hook), net[0].register_forward_hook(b.hook)",
}


@pytest.mark.parametrize("cell", ONCE.values(), ids=ONCE)
def test_no_false_alarm_and_no_missed_one(shell, cell):
    once = seen_in(shell, cell)
    assert all(one == (False, 1) for one in once)
    twice = seen_in(shell, cell)
    assert sorted(twice) == [(False, 1)] * len(once) + [(True, 1)] * len(once), "run again, all that it left are left"


def test_an_edited_cell_and_another_cell(shell):
    """Which of both it was cannot be known for certain; what hardly resembles is another cell."""
    cell = "def probe(module, inputs, output):\n    return output + 1\nnet[0].register_forward_hook(probe)"
    assert seen_in(shell, cell, cell.replace("+ 1", "+ 2")) == [(True, 1), (False, 1)]
    text = modlab.hooks(shell.user_ns["net"]).records[0].left
    assert text == "probe is a different function now, since its cell, or one like it, has run"
    modlab.hooks(shell.user_ns["net"]).remove()
    other = (
        "seen = {}\ndef probe(m, args, out):\n    seen[m] = [t.norm().item() for t in args]\n\n"
        "for m in (net[2],): m.register_forward_hook(probe)"
    )
    assert seen_in(shell, cell, other) == [(False, 1), (False, 1)]


def test_equal_lambdas_of_two_cells(shell):
    seen_in(shell, "net[0].register_forward_hook(lambda m, i, o: None)", "x = 1\nnet[0].register_forward_hook(lambda m, i, o: None)")
    assert modlab.hooks(shell.user_ns["net"]).records[0].left == "a cell that ran later registered it again"


def test_a_forward_that_was_replaced_is_said():
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].forward = functools.partial(lambda old, x: old(x), net[0].forward)
    text = str(modlab.hooks(net))
    assert "forward was replaced on 0 (test_a_forward_that_was_replaced_is_said.<locals>.<lambda>)" in text and "del module.forward" in text
    assert "replaced" not in str(modlab.hooks(Net()))


def test_rows_are_named_by_what_the_row_above_does_not_say():
    net = nn.ModuleDict({name: nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for name in ("encoder", "decoder")})
    for path in ("encoder.0", "decoder", "decoder.0", "decoder.1"):
        net.get_submodule(path).register_forward_hook(lambda module, args, output: None)
    heads = [(row.name, row.path, row.depth) for row in modlab.hooks(net)._sheet().rows if row.symbol != "hook"]
    below = [("decoder", "decoder", 0), ("0", "decoder.0", 1), ("1", "decoder.1", 1)]
    assert heads == [("encoder.0", "encoder.0", 0), *below]
    net.register_forward_hook(lambda module, args, output: None)
    heads = [(row.name, row.path, row.depth) for row in modlab.hooks(net)._sheet().rows if row.symbol != "hook"]
    assert heads == [("(root)", "", 0), ("encoder.0", "encoder.0", 1), *((name, path, depth + 1) for name, path, depth in below)]


# ---- what a fix takes out, and lambdas that were edited ----------------------------------------------------------------------------


def test_the_fix_for_a_doubled_hook_takes_out_the_repeats_alone():
    """A name is not enough: all lambdas bear the same one."""
    net = Net()
    seen = []
    for _ in range(3):
        net.l0.register_forward_hook(lambda *_: None)
    net.l0.register_forward_pre_hook(lambda *_: None)
    net.l0.register_forward_hook(lambda *_: seen.append(1) and None)
    net.l1.register_forward_hook(lambda *_: seen.append(2) and None)
    net.l1.weight.register_hook(lambda g: g.clamp(-1, 1))
    first = modlab.hooks(net)["l0"][1].number
    result = modlab.hooks(net)
    assert [r.repeat for r in result].count(True) == 2
    block = next(block for block in result._sheet().notes if block.caption == "fix")
    exec(block.code, {"modlab": modlab, "model": net})
    left = modlab.hooks(net)
    assert len(left) == 5 and not any(r.times > 1 for r in left) and any(r.number == first for r in left)


def test_the_code_of_one_lambda_among_others_means_that_one():
    net = Net()
    net.l0.register_forward_hook(lambda *_: None)
    net.l0.register_forward_hook(lambda module, args, output: output)
    result = modlab.hooks(net)
    code = next(r for r in result._sheet().rows if r.name == "lambda" or "lambda" in r.name).details[-1].code
    exec(code, {"modlab": modlab, "model": net})
    assert len(net.l0._forward_hooks) == 1 and modlab.hooks(net).records[0].number == result.records[1].number


def notebook_with_sources(net, *cells):
    """Cells whose text Python has at hand, as in a real notebook."""
    names = {"__name__": "__main__", "net": net, "seen": [], "others": []}
    for number, cell in enumerate(cells):
        file = f"<ipython-input-{number}-edited>"
        linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
        exec(compile(cell, file, "exec"), names)


def test_a_lambda_of_an_edited_cell_is_perhaps_left_over():
    net = Net()
    notebook_with_sources(net, "net.l0.register_forward_hook(lambda m, i, o: o * 2)", "net.l0.register_forward_hook(lambda m, i, o: o * 3)")
    result = modlab.hooks(net)
    assert [bool(r.doubt) for r in result] == [True, False] and not any(r.left for r in result), "nothing tells for certain"
    assert "perhaps left over from an edited cell" in result.headline and "if you want both, this is fine" in result.html()
    found = modlab.diagnose(net)
    assert found.findings == () and [(one.path, one.kind) for one in found.notes] == [("l0", "perhaps a left-over hook")]
    block = next(block for block in result._sheet().notes if block.caption == "fix")
    exec(block.code, {"modlab": modlab, "model": net})
    assert net.l0(torch.ones(4)).equal(3 * F.linear(torch.ones(4), net.l0.weight, net.l0.bias))


def test_lambdas_for_other_purposes_are_not_doubted():
    net = Net()
    notebook_with_sources(
        net,
        "net.l0.register_forward_hook(lambda m, i, o: seen.append(o))",
        "net.l0.register_forward_hook(lambda m, i, o: others.append(o.norm()))",
        "for name in 'ab':\n    net.l1.register_forward_hook(lambda m, i, o, name=name: None)",
    )
    assert not any(r.doubt or r.left for r in modlab.hooks(net))
