"""A lab: all views of one model in one widget, each read when it is opened."""

import copy
import gc
import json
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import modlab
from modlab.errors import GoneError, ModlabError, NotAModuleError, NotAnOptimizerError, NotInitializedError
from modlab.inspection import parameter_gradients
from modlab.lessons.note import BigNet, Net
from modlab.results.lab import PANELS
from modlab.views.sheets import activations, gradients, text
from tests import zoo

READ = [name for name in PANELS if name != "source"]


def unpack(payload):
    size = int.from_bytes(payload[:4], "little")
    return json.loads(payload[4 : 4 + size])


def opened(lab, name, **more):
    return unpack(lab.panel(name, **more))


def headline(lab, name):
    return " ".join(opened(lab, name)["headline"])


def state_of(model, optimizer=None):
    """All that a look could change, in bits."""
    tensors = {name: tensor.detach().clone() for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    grads = {name: None if tensor.grad is None else tensor.grad.clone() for name, tensor in model.named_parameters()}
    flags = [(name, m.training, list(m._forward_hooks), list(m._forward_pre_hooks)) for name, m in model.named_modules()]
    held = copy.deepcopy(optimizer.state_dict()) if optimizer else None
    return tensors, grads, flags, torch.get_rng_state(), torch.is_grad_enabled(), held


def same(left, right):
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    return left == right


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(BigNet(), nn.Linear(1, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))


@pytest.fixture
def x():
    return torch.randn(16, 5, generator=torch.Generator().manual_seed(1))


# ---- what it shows -----------------------------------------------------------------------------------------------------------


def test_every_panel_is_that_view_of_the_model(net, x):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    lab = modlab.lab(net, optimizer)
    assert opened(lab, "tree")["headline"] == unpack(modlab.tree(net)._payload())["headline"]
    assert opened(lab, "state")["signatures"] == unpack(modlab.state(net, optimizer)._payload())["signatures"]
    assert " ".join(opened(lab, "hooks")["headline"]).rstrip() == modlab.hooks(net).headline
    assert opened(lab, "findings")["headline"] == list(modlab.diagnose(net, optimizer)._sentence())
    lab(x)
    assert [row["name"] for row in opened(lab, "trace")["rows"]] == [row.name for row in modlab.trace(net)(x)._drawn().rows]
    assert opened(lab, "modes")["rows"][0]["name"] == "(root)"
    assert "2 (BatchNorm1d)" in headline(lab, "modes")


def test_panels_of_one_model_share_a_selection(net, x):
    lab = modlab.lab(net)
    lab(x)
    models = {opened(lab, name)["model"] for name in ("tree", *READ)}
    assert models == {unpack(modlab.tree(net)._payload())["model"]}
    assert unpack(lab._payload())["model"] in models
    assert all(opened(lab, name)["live"] for name in READ)


def test_what_needs_a_run_says_so(net):
    lab = modlab.lab(net)
    for name in ("trace", "activations", "modes"):
        with pytest.raises(ModlabError, match=r"lab\(x\)"):
            lab.panel(name)
    with pytest.raises(ModlabError, match="Nothing has run"):
        _ = lab.trace
    with pytest.raises(ModlabError, match=r"no panel 'nonsense'.*state, activations"):
        lab.panel("nonsense")


def test_text_is_stable_and_says_what_is_filled(net, x):
    lab = modlab.lab(net)
    empty = str(lab)
    assert empty == str(modlab.lab(net))
    assert empty.startswith(modlab.tree(net).headline)
    assert empty.count("nothing yet") == 4
    assert lab(x) is lab
    assert str(lab).count("nothing yet") == 1  # gradients of outputs
    with lab:
        net(x).sum().backward()
    assert "nothing yet" not in str(lab)
    assert "lab.close()" in str(lab)
    lab.close()
    assert str(lab).count("nothing yet") == 1
    assert "0x" not in str(lab)


def test_wrong_input_is_answered(net):
    with pytest.raises(NotAModuleError, match=r"modlab\.lab\(\)"):
        modlab.lab([1])
    with pytest.raises(NotAnOptimizerError, match=r"modlab\.lab\("):
        modlab.lab(net, [3])

    class Bare(nn.Module):
        def __init__(self):
            pass

    with pytest.raises(NotInitializedError):
        modlab.lab(Bare())


# ---- activations and gradients -----------------------------------------------------------------------------------------------


def test_activations_are_those_of_hooks(net, x):
    lab = modlab.lab(net)
    torch.manual_seed(3)
    lab(x)
    seen = {}
    keep = {path: lambda m, a, y, path=path: seen.update({path: y.detach().clone()}) for path, _ in net.named_modules()}
    handles = [module.register_forward_hook(keep[path]) for path, module in net.named_modules()]
    torch.manual_seed(3)
    net(x)
    for handle in handles:
        handle.remove()
    sheet = activations.of_trace(lab.trace.record)
    rows = {row.path: row for row in sheet.rows if row.kind}
    assert rows.keys() == seen.keys()
    for path, output in seen.items():
        _, mean, std, least, greatest, zero = rows[path].cells
        assert float(mean.text) == pytest.approx(output.mean().item(), rel=6e-3, abs=1e-6)
        assert float(std.text) == pytest.approx(output.std(correction=0).item(), rel=6e-3)
        assert (float(least.text), float(greatest.text)) == pytest.approx((output.min().item(), output.max().item()), rel=6e-3)
        assert zero.share == pytest.approx((output == 0).float().mean().item())
    assert any(row.name == "F.relu" and row.symbol == "function" for row in sheet.rows)


def test_activations_begin_with_what_is_not_finite(net, x):
    net[1].weight.data[0] = float("nan")
    sheet = activations.of_trace(modlab.lab(net)(x).trace.record)
    assert sheet.sentence[0] in ("Not finite from layer 1 on;", "Not finite from F.linear in layer 1 on;")
    assert [row.path for row in sheet.rows if row.mark == "broken"][:2] == ["", "1"]
    net[1].weight.data.zero_()
    net[1].bias.data.zero_()
    net[2].reset_running_stats()
    net.eval()
    sheet = activations.of_trace(modlab.lab(net)(x).trace.record)
    assert "only zeros from layer 1" in sheet.sentence[1]


def test_gradients_are_those_that_stand_in_grad(net, x):
    lab = modlab.lab(net)
    assert headline(lab, "gradients").startswith("No parameter has a gradient")
    net[0].requires_grad_(False)
    net(x).square().mean().backward()
    net[5].bias.grad = None
    net[1].bias.grad.zero_()
    table = parameter_gradients.extract(net)
    assert [row.path for row in table.rows] == [name for name, _ in net.named_parameters()]
    for row, (_, parameter) in zip(table.rows, net.named_parameters(), strict=True):
        assert (row.stats is None) is (parameter.grad is None)
        if row.stats is not None:
            assert row.stats.l2 == pytest.approx(parameter.grad.norm().item(), rel=1e-5)
            assert row.relative is None or row.relative == pytest.approx((parameter.grad.norm() / parameter.norm()).item(), rel=1e-5)
    said = headline(lab, "gradients")
    assert said.startswith("5 of 6 parameters have a gradient")
    assert "none: 5.bias" in said
    assert "zero everywhere: 1.bias" in said
    rows = {row["name"]: row for row in opened(lab, "gradients")["rows"]}
    assert (rows["0.l1.weight"]["note"], rows["5.bias"]["note"], rows["1.bias"]["note"]) == ("frozen", "no gradient", "zero everywhere")
    net[1].weight.grad[0] = float("inf")
    assert headline(lab, "gradients").startswith("1 of 5 gradients not finite; 1.weight")


def test_gradients_of_outputs_come_from_a_traced_backward(net, x):
    lab = modlab.lab(net)
    lab(x)
    assert opened(lab, "gradients")["notes"][0]["code"].startswith("with lab:")
    with lab:
        net(x).sum().backward()
    rows = [row for row in opened(lab, "gradients")["rows"] if row.get("kind") == "output"]
    assert {row["path"] for row in rows} == {path for path, _ in net.named_modules()}
    assert not opened(lab, "gradients")["notes"]
    by_path = {row["path"]: row["cells"][3] for row in rows}
    assert float(by_path[""]) == pytest.approx(16**0.5, rel=6e-3)  # a one for each output


def test_sheets_survive_any_module():
    for case in zoo.every(listed=True, walks=True, large=False):
        module = case.build()
        sheet = gradients.of_gradients(parameter_gradients.extract(module), None)
        assert text.of_sheet(sheet)
        assert len(sheet.rows) == len(parameter_gradients.extract(module).rows)


def test_hostile_names_stay_text():
    module = nn.Module()
    for name in zoo.HOSTILE:
        if name and "." not in name:
            module.add_module(name, nn.Linear(1, 1))
    lab = modlab.lab(module)
    assert "<script>" not in lab.html(bundle=False).replace("<style>", "")
    assert "<img" not in lab.html(bundle=False)
    for name in ("tree", "state", "gradients", "hooks", "findings"):
        assert lab.panel(name)


# ---- what it runs ------------------------------------------------------------------------------------------------------------


def test_a_call_is_a_call(net, x):
    twin = copy.deepcopy(net)
    torch.manual_seed(5)
    twin(x)
    after_twin = torch.get_rng_state()
    torch.manual_seed(5)
    modlab.lab(net)(x)
    assert torch.equal(torch.get_rng_state(), after_twin)
    assert same(state_of(net)[:3], state_of(twin)[:3])


@pytest.mark.parametrize("name", ["tree", *READ])
def test_opening_a_panel_changes_nothing(net, x, name):
    optimizer = torch.optim.Adam(net.parameters())
    net(x).sum().backward()
    optimizer.step()
    handle = net[1].register_forward_hook(lambda *_: None)
    lab = modlab.lab(net, optimizer)
    lab(x)
    before = state_of(net, optimizer)
    lab.panel(name)
    assert same(state_of(net, optimizer), before)
    handle.remove()


def test_keywords_go_to_the_model():
    class Two(nn.Module):
        def forward(self, name, *, anew):
            return name + anew

    two = Two()
    assert modlab.lab(two)(name=torch.ones(2), anew=torch.ones(2)).trace.events[0].name == "Two"


def test_modes_are_compared_once_and_with_the_input_as_it_was(net, x):
    calls = []
    handle = net.register_forward_hook(lambda *_: calls.append(1))
    lab = modlab.lab(net)
    lab(x)
    x.zero_()
    calls.clear()
    first = lab.panel("modes")
    assert len(calls) >= 6
    assert opened(lab, "modes")["rows"][1]["cells"][0] != "0 ± 0"  # of the copy
    made = len(calls)
    assert lab.panel("modes") == first
    assert len(calls) == made
    lab.panel("modes", anew=True)
    assert len(calls) == 2 * made
    handle.remove()


def test_a_model_that_raises_fills_the_trace(net):
    lab = modlab.lab(net)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        lab(torch.randn(2, 7))
    assert opened(lab, "trace")["rows"][0]["mark"] == "broken"
    with pytest.raises(RuntimeError), lab:
        net(torch.randn(2, 7))
    assert lab.trace.error


# ---- what it holds -----------------------------------------------------------------------------------------------------------


def test_a_dead_model_is_said(x):
    net = Net()
    lab = modlab.lab(net, torch.optim.SGD(net.parameters(), lr=0.1))
    gone = weakref.ref(net)
    lab(torch.randn(2, 4))
    for name in READ:
        lab.panel(name)
    del net
    gc.collect()
    assert gone() is None
    assert lab._given is None  # let go of with it
    for name in ("state", "gradients", "hooks", "modes", "findings"):
        with pytest.raises(GoneError, match=r"modlab\.lab\(model\)"):
            lab.panel(name)
    with pytest.raises(GoneError):
        lab(x)
    assert "no longer exists" in str(lab)
    assert "no longer exists" in " ".join(unpack(lab._payload())["headline"])
    assert opened(lab, "tree")["modules"] == 3  # what had been read
    assert opened(lab, "trace")["rows"]


def test_no_graph_and_one_input_is_kept(net, x):
    x = x.requires_grad_() * 2
    alive = weakref.ref(x)
    first, second = modlab.lab(net), modlab.lab(net)
    first(x)
    assert first._given is not None
    second(x)
    assert first._given is None  # one for each model
    del x
    gc.collect()
    assert alive() is None
    second.close()
    assert second._given is None
    assert second.panel("trace")


def test_a_lab_pickles_as_what_it_has_seen(net, x):
    lab = modlab.lab(net)
    lab(x)
    made = pickle.loads(pickle.dumps(lab))
    assert (made.headline, made._given, made._source) == (lab.headline, None, None)
    assert opened(made, "trace")["rows"]


def test_without_a_notebook_it_is_the_tree(net):
    lab = modlab.lab(net)
    still = lab._repr_mimebundle_()
    assert still.keys() == {"text/plain", "text/html"}
    assert modlab.tree(net)._static() in lab.html()
    assert "needs a running kernel" in lab.html(bundle=False)
    assert lab.html() == modlab.lab(net).html()
    assert lab.to_dict()["records"][0]["path"] == ""
    assert [record.path for record in lab.records] == [path for path, _ in net.named_modules()]


def test_the_tree_is_read_again(net):
    lab = modlab.lab(net)
    before = opened(lab, "tree")["model"]
    net.append(nn.Linear(1, 1))
    assert opened(lab, "tree")["model"] != before
    assert opened(lab, "tree")["model"] == opened(lab, "state")["model"]


# ---- the widget, and a watch in another cell ---------------------------------------------------------------------------------


@pytest.fixture
def view(net):
    pytest.importorskip("anywidget")
    lab = modlab.lab(net)
    view = lab.widget()
    view.heard = []
    view.send = lambda content, buffers=None: view.heard.append((content, [unpack(bytes(one)) for one in buffers or ()]))
    yield view
    view.close()


def ask(view, action, **more):
    view.heard.clear()
    view._receive(view, {"id": "1", "action": action, **more}, [])
    (answer,) = view.heard
    view.heard.clear()
    return answer


def test_the_widget_answers(view, net, x):
    lab = view._result
    content, (face,) = ask(view, "hello")
    assert content["ok"]
    assert [name for name, _ in face["tabs"]] == list(PANELS)
    assert ask(view, "panel state")[1][0]["view"] == "state"
    assert ask(view, "values", path="1.weight")[1][0]["values"]["title"] == "1.weight"
    content, _ = ask(view, "panel trace")
    assert not content["ok"]
    assert "lab(x)" in content["error"]
    lab(x)
    ((content, (face,)),) = view.heard
    assert content == {"action": "update"}
    assert {"tree", "trace", "activations", "modes"} == set(face["stale"])
    assert "lab.close()" in face["foot"]
    view.heard.clear()
    with lab:
        net(x).sum().backward()
    assert {"gradients", "state"} < set(view.heard[0][1][0]["stale"])


def test_a_page_that_is_gone_harms_nobody(view, net, x):
    def broken(*_, **__):
        raise OSError("closed")

    ask(view, "hello")
    view.send = broken
    view._result(x)
    with modlab.watch(net) as watch:
        train(net, x, 3)
    assert watch.record.steps == 3


def train(net, x, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def test_it_follows_a_watch(view, net, x):
    lab = view._result
    lab(x)
    ask(view, "hello")
    with modlab.watch(net, budget=1.0) as watch:
        train(net, x, 30)
        assert opened(lab, "activations")["view"] == "watch"
        assert opened(lab, "gradients")["live"]
        assert "the open watch" in str(lab)
    pushed = [payload for content, (payload,) in view.heard if content == {"action": "update"}]
    assert [one["view"] for one in pushed] == ["watch"] * len(pushed)
    assert {one["model"] for one in pushed} == {opened(lab, "tree")["model"]}
    assert "from" not in pushed[0]
    assert (pushed[-1]["state"], pushed[-1]["live"], pushed[-1]["steps"]) == ("ended", False, 30)
    assert opened(lab, "activations")["state"] == "ended"
    lab(x)  # what is newer is shown
    assert opened(lab, "activations")["view"] == "activations"
    assert watch.record.steps == 30


def test_a_lab_made_later_finds_the_watch_and_others_are_not_followed(net, x):
    other = Net()
    with modlab.watch(net) as watch, modlab.watch(other):
        train(net, x, 3)
        lab, apart = modlab.lab(net), modlab.lab(other)
        assert opened(lab, "activations")["steps"] == 3
        assert opened(apart, "activations")["steps"] == 0
    gone = weakref.ref(watch)
    del watch
    gc.collect()
    assert gone() is None  # a lab holds no watch
    with pytest.raises(ModlabError, match=r"lab\(x\)"):
        lab.panel("activations")


def test_training_watched_beside_a_lab_is_the_same(view, net, x):
    twin = copy.deepcopy(net)
    ask(view, "hello")
    torch.manual_seed(7)
    with modlab.watch(net, budget=1.0):
        train(net, x, 12)
    torch.manual_seed(7)
    train(twin, x, 12)
    assert view.heard
    for mine, its in zip(net.parameters(), twin.parameters(), strict=True):
        assert np.array_equal(mine.detach().numpy(), its.detach().numpy())
