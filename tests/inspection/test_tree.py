"""The tree against PyTorch itself: paths, totals, ties, aliases, folding, flags, ghosts, questions."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, prune

import modlab
from modlab.errors import ModlabError, NotAModuleError, NotInitializedError, PathNotFoundError
from tests import zoo

LISTED = zoo.every(listed=True)
SMALL = zoo.every(listed=True, large=False)


def bytes_of(tensor):
    """Stored bytes, as torch tells them; of layouts with indices the sum of the parts."""
    if tensor.is_nested:
        return tensor.numel() * tensor.element_size()
    if tensor.layout is torch.sparse_coo:
        return bytes_of(tensor._indices()) + bytes_of(tensor._values())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return sum(map(bytes_of, (tensor.crow_indices(), tensor.col_indices(), tensor.values())))
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return sum(map(bytes_of, (tensor.ccol_indices(), tensor.row_indices(), tensor.values())))
    return tensor.numel() * tensor.element_size()


def assert_totals(record, model):
    """The sums of one record are those over distinct tensors of the module that it is about."""
    with torch._C.DisableTorchFunction():
        parameters, buffers = (zoo.sized(zoo.distinct_tensors(model, store)) for store in ("_parameters", "_buffers"))
        everything = zoo.sized(zoo.distinct_tensors(model, "_parameters", "_buffers"))
        assert record.total_parameters == sum(p.numel() for p in parameters)
        assert record.trainable_parameters == sum(p.numel() for p in parameters if p.requires_grad)
        assert record.frozen_parameters == record.total_parameters - record.trainable_parameters
        assert record.own_parameters == sum(
            t.numel() for t in zoo.sized([t for t in zoo.stored(model, "_parameters").values() if t is not None])
        )
        if len(everything) == len(parameters) + len(buffers):  # else a tensor is both, and counts where it is met first
            assert record.total_buffers == sum(b.numel() for b in buffers)
        assert record.bytes == sum(map(bytes_of, everything))
        known = zoo.distinct_tensors(model, "_parameters", "_buffers")
        assert set(record.dtypes) == {str(t.dtype).removeprefix("torch.") for t in known}
        assert set(record.devices) == {str(t.device) for t in known}


def assert_named_first(record, module, model, first):
    """Where a module comes again below one that has come only once, its first name is told; else at most an earlier one."""
    owner = record.path.rpartition(".")[0]
    if owner in first.values() or not record.path:
        assert record.same_as == first.get(id(module))
    else:
        assert record.same_as is None or model.get_submodule(record.same_as) is module
    first.setdefault(id(module), record.path)


def users(model):
    """The user's model, of one that is spread: its paths are the user's."""
    return model.module if type(model) is nn.DataParallel else model


@pytest.mark.parametrize("case", [c for c in zoo.every(walks=True, listed=True)], ids=str)
def test_paths_are_those_of_named_modules(case):
    model = case.build()
    shown = modlab.tree(model)
    model = users(model)
    assert shown.paths == [name for name, _ in model.named_modules(remove_duplicate=False)]
    assert len(shown) == len(shown.paths) and shown.paths[0] == ""


@pytest.mark.parametrize("case", [c for c in zoo.CASES if c.id != "symbolic_shape"], ids=str)
def test_totals_count_each_tensor_once(case):
    model = case.build()
    shown = modlab.tree(model)
    model = users(model)
    assert_totals(shown[""], model)
    assert shown.total_parameters == shown[""].total_parameters and shown.trainable_parameters == shown[""].trainable_parameters
    assert shown.record.modules == shown[""].subtree.totals.modules == len(zoo.distinct_modules(model))


@pytest.mark.parametrize("case", [c for c in SMALL if c.walks and c.id != "symbolic_shape"], ids=str)
def test_each_record_is_about_its_module(case):
    model = case.build()
    shown = modlab.tree(model)
    model = users(model)
    first = {}
    for path, module in model.named_modules(remove_duplicate=False):
        record = shown[path]
        assert record.path == path and record.type == type(module).__name__
        assert_named_first(record, module, model, first)
        assert_totals(record, module)
        own = [*zoo.stored(module, "_parameters").keys(), *zoo.stored(module, "_buffers").keys()]
        assert [entry.name for entry in record.tensors] == own


@pytest.mark.parametrize("case", [c for c in SMALL if c.walks], ids=str)
def test_tied_tensors_name_their_first_owner(case):
    model = case.build()
    shown = modlab.tree(model)
    first = {}
    for path, module in model.named_modules():
        for entry in shown[path].tensors:
            name = f"{path}.{entry.name}" if path else entry.name
            tensor = {**zoo.stored(module, "_buffers"), **zoo.stored(module, "_parameters")}[entry.name]
            tied = entry.tied.resolve(name) if entry.tied else None
            assert tied == (None if tensor is None else first.get(id(tensor)))
            first.setdefault(id(tensor), name)


NINE = {
    "mlp": (19, 19),
    "conv_bn_frozen": (54, 10),
    "lstm": (2_148, 2_148),
    "tied_weight": (472, 472),
    "reused_module": (90, 90),
    "bare_parameters": (96, 96),
    "meta": (210, 210),
    "lazy": (34, 34),
    "unused_branch": (972, 972),
}


@pytest.mark.parametrize("name", NINE)
def test_the_nine_that_are_often_counted_wrong(name):
    shown = modlab.tree(zoo.named(name).build())
    assert (shown.total_parameters, shown.trainable_parameters) == NINE[name]


# ---- random trees ------------------------------------------------------------------------------------------------------------


@st.composite
def modules(draw):
    """A tree with tied tensors, shared modules, reserved names, lists and frozen parts."""
    pool: list[nn.Module] = []
    tensors: list[nn.Parameter] = []

    def leaf():
        kind = draw(st.integers(0, 4))
        made = [lambda: nn.Linear(2, 2), lambda: nn.Linear(2, 2, bias=False), nn.ReLU, lambda: nn.BatchNorm1d(2), lambda: nn.LazyLinear(2)][
            kind
        ]()
        if kind < 2 and tensors and draw(st.integers(0, 3)) == 0:
            made.weight = draw(st.sampled_from(tensors))
        elif kind < 2:
            tensors.append(made.weight)
        if draw(st.integers(0, 5)) == 0 and kind != 4:
            made.requires_grad_(False)
        if draw(st.integers(0, 5)) == 0:
            made.eval()
        return made

    def grow(depth):
        if depth == 0 or draw(st.integers(0, 3)) == 0:
            return leaf()
        made = draw(st.sampled_from([nn.Sequential, nn.Module, nn.ModuleList]))()
        for i in range(draw(st.integers(0, 4))):
            choice = draw(st.integers(0, 9))
            child = None if choice == 0 else draw(st.sampled_from(pool)) if choice == 1 and pool else grow(depth - 1)
            made._modules[str(i)] = child
            if child is not None:
                pool.append(child)
        if draw(st.integers(0, 3)) == 0 and tensors:
            made.register_parameter("own", draw(st.sampled_from(tensors)))
        return made

    return grow(4)


@settings(max_examples=250)
@given(modules())
def test_any_tree_agrees_with_torch(model):
    shown = modlab.tree(model)
    pairs = list(model.named_modules(remove_duplicate=False))
    assert shown.paths == [name for name, _ in pairs]
    first, first_tensor = {}, {}
    for path, module in pairs:
        record = shown[path]
        assert_totals(record, module)
        assert record.training is module.training
        new = id(module) not in first
        assert_named_first(record, module, model, first)
        for entry in record.tensors if new else ():
            name = f"{path}.{entry.name}" if path else entry.name
            tensor = {**module._parameters, **module._buffers}[entry.name]
            assert (entry.tied.resolve(name) if entry.tied else None) == (None if tensor is None else first_tensor.get(id(tensor)))
            first_tensor.setdefault(id(tensor), name)
    assert modlab.state(model).find(in_state_dict=True) == modlab.state(model).find("*", in_state_dict=True)
    assert [r.path for r in modlab.state(model).find(in_state_dict=True)] == list(model.state_dict())
    assert str(shown) and shown.html(bundle=False)


# ---- folding -----------------------------------------------------------------------------------------------------------------


def block():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.BatchNorm1d(4))


def blocks(change=None, at=3, count=8):
    made = nn.ModuleList(block() for _ in range(count))
    if change:
        made[at] = change(made[at]) or made[at]
    return made


def runs(model):
    """The rows of the first level: how many neighbours each stands for."""
    return [record.count for record in modlab.tree(model).record.rows(folded=True) if record.depth == 1]


def tie(first, second):
    first[0].weight = second[0].weight


BREAKS = {
    "shape": lambda b: nn.Sequential(nn.Linear(4, 5), b[1], b[2]),
    "type": lambda b: nn.Sequential(b[0], nn.GELU(), b[2]),
    "extra_repr": lambda b: nn.Sequential(b[0], b[1], nn.BatchNorm1d(4, eps=1e-3)),
    "dtype": lambda b: b.double(),
    "device": lambda b: b.to("meta"),
    "frozen": lambda b: setattr(b[0].weight, "requires_grad", False),
    "mode": lambda b: b[2].eval() and None,
    "hook": lambda b: b[0].register_forward_hook(print) and None,
    "hook_of_another_kind": lambda b: b[0].register_forward_pre_hook(print) and None,
    "reserved": lambda b: b[0].register_parameter("extra", None),
    "persistence": lambda b: b[2].register_buffer("running_mean", torch.zeros(4), persistent=False),
    "ghost": lambda b: setattr(b, "hidden", [nn.Linear(1, 1)]),
    "child": lambda b: b.append(nn.Identity()) and None,
    "name": lambda b: nn.Sequential(b[0], b[2], b[1]),
    "tied_inside": lambda b: b.append(nn.Linear(4, 4)) and setattr(b[3], "weight", b[0].weight),
    "pruned": lambda b: prune.random_unstructured(b[0], "weight", 0.5) and None,
    "parametrized": lambda b: parametrizations.weight_norm(b[0]) and None,
    "compiled": lambda b: b[0].compile(backend="eager"),
    "lazy": lambda b: nn.Sequential(nn.LazyLinear(4), b[1], b[2]),
}


def test_equal_blocks_are_one_row():
    shown = modlab.tree(nn.ModuleDict({"first": nn.Linear(2, 2), "layers": blocks(count=58)}))
    lines = str(shown).splitlines()
    assert sum("58 x Sequential" in line for line in lines) == 1 and len(lines) == 9
    for place in (0, 29, 57):
        assert shown[f"layers.{place}.0"].tensors[0].shape == (4, 4) and shown[f"layers.{place}"].path == f"layers.{place}"
    for wrong in ("layers.58", "layers.00", "layers.-1", "layers.٣"):
        assert wrong not in shown


@pytest.mark.parametrize("name", BREAKS)
def test_what_differs_stands_alone(name):
    assert runs(blocks(BREAKS[name])) == [3, 1, 4]


def test_a_hook_of_another_function_stands_alone():
    made = blocks()
    for i, one in enumerate(made):
        one[0].register_forward_hook(print if i != 3 else sorted)
    assert runs(made) == [3, 1, 4]


def test_blocks_tied_inside_are_one_row():
    model = zoo.named("tied_blocks").build()
    shown = modlab.tree(model)
    assert [r.count for r in shown.record.rows(folded=True) if r.depth == 2] == [1, 3, 1, 1]  # 0 owns the bias that 4 shares
    assert shown["blocks.2.b"].tensors[0].tied.resolve("blocks.2.b.weight") == "blocks.2.a.weight"


def test_blocks_tied_to_something_outside_are_one_row():
    made = blocks()
    head = nn.Linear(4, 4)
    for one in made:
        one[0].weight = head.weight
    model = nn.ModuleDict({"head": head, "blocks": made})
    assert [r.count for r in modlab.tree(model).record.rows(folded=True) if r.depth == 2] == [8]
    assert {r.tensors[0].tied.resolve(f"{r.path}.weight") for r in modlab.tree(model).find("blocks.*.0")} == {"head.weight"}


def test_the_first_owner_comes_first_in_named_parameters():
    """A module's own tensors come before those of its children, and its children before its later neighbours."""
    root = nn.ModuleDict(
        {"deep": nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU())), "flat": nn.Linear(2, 2), "alone": nn.Linear(2, 2)}
    )
    root["flat"].weight = root["deep"][0][0].weight
    root.bias = root["deep"][0][0].bias
    shown = modlab.tree(root)
    assert shown.record.tied == (("deep.0.0.bias", "bias"), ("flat.weight", "deep.0.0.weight"))
    assert shown.total_parameters == sum(p.numel() for p in root.parameters())
    assert [e.tied for e in shown["alone"].tensors] == [None, None]


def test_projections_stay_apart():
    attention = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("q_proj", "k_proj", "v_proj", "out1", "out2")})
    assert runs(attention) == [1, 1, 1, 2]


def test_numbers_with_a_gap_are_still_reached():
    model = nn.Sequential()
    for i in (0, 1, 2, 5, 6, 10):
        model.add_module(str(i), nn.ReLU())
    shown = modlab.tree(model)
    assert shown.paths == ["", "0", "1", "2", "5", "6", "10"] and "10" in shown and "3" not in shown


def test_folded_text_of_a_large_model_is_short():
    text = str(modlab.tree(zoo.named("blocks_500").build()))
    assert "500 x Sequential" in text and len(text) < 1_500


# ---- odd structures ----------------------------------------------------------------------------------------------------------


def test_an_alias_says_what_it_is():
    text = str(modlab.tree(zoo.named("aliased").build()))
    assert "same as l0" in text and "same as l1" in text and "2 modules have several names" in text


def test_reserved_children_are_shown():
    shown = modlab.tree(zoo.named("holes").build())
    rows = {r.path: r.reserved for r in shown.record.rows(folded=True)}
    assert rows["1"] and rows["later"] and not rows["0"]
    assert "later   None" in str(shown) and "later" not in shown.paths
    assert {e.name: e.kind for e in shown[""].tensors} == {"weight": "reserved", "mean": "reserved"}


def test_a_module_in_itself_is_said_and_not_entered():
    model = zoo.named("contains_itself").build()
    shown = modlab.tree(model)
    assert shown.paths == ["", "l0", "l1"] and "same as (root)" in str(shown) and "same as (root)" in shown.html(bundle=False)
    assert shown.total_parameters == 19


def test_a_circle_ends():
    shown = modlab.tree(zoo.named("circle_of_three").build())
    assert shown.record.modules == 11 and shown.total_parameters == sum(
        m.l0.weight.numel() + 3 + 4 for m in zoo.distinct_modules(zoo.named("circle_of_three").build()) if isinstance(m, zoo.Net)
    )


def test_ten_thousand_levels_are_no_problem():
    shown = modlab.tree(zoo.named("ten_thousand_deep").build())
    assert len(shown) == shown.record.modules == 10_000
    assert "9,800 more rows" in str(shown) and len(str(shown)) < 400_000
    deepest = ".".join("a" if i % 2 else "0" for i in range(9_999))
    assert any(path in shown for path in (deepest, deepest.translate(str.maketrans("0a", "a0"))))


def test_a_tree_with_more_paths_than_memory_is_counted():
    shown = modlab.tree(zoo.named("dag_of_2_to_the_40").build())
    assert len(shown) == 2**41 - 1 and shown.total_parameters == 6 and shown.record.modules == 41
    assert shown["1"].same_as == "0" and shown["0.0.1"].same_as == "0.0.0" and shown[".".join("01" * 20)].type == "Linear"
    assert len(str(shown)) < 100_000 and len(shown.html()) < 400_000
    with pytest.raises(ModlabError, match="2,199,023,255,551 paths"):
        shown.records  # noqa: B018
    with pytest.raises(PathNotFoundError):
        shown["0.0.7"]
    with pytest.raises(ModlabError, match="2,199,023,255,551"):
        modlab.state(zoo.named("dag_of_2_to_the_40").build())


def test_text_says_what_it_leaves_out():
    text = str(modlab.tree(nn.ModuleList(nn.Linear(1, 1 + i % 2) for i in range(300))))
    assert text.endswith("... and 101 more rows: tree[path], tree.find(pattern), tree.records")
    assert "more rows" not in str(modlab.tree(nn.ModuleList(nn.Linear(1, 1 + i % 2) for i in range(199))))


# ---- flags -------------------------------------------------------------------------------------------------------------------


FLAGS = {
    "lazy": ("lazy", "0", "lazy"),
    "meta": ("meta", "0", "meta"),
    "frozen": ("conv_bn_frozen", "body", "frozen"),
    "partly_frozen": ("partly_frozen", "0", "partly frozen"),
    "hooks": ("hooked", "0", "3 hooks"),
    "one_hook": ("backward_hook_legacy", "0", "1 hook"),
    "hooks_set_early": ("set_before_super", "", "1 hook"),
    "compiled": ("compiled", "", "compiled"),
    "compiled_in_place": ("compiled_in_place", "l0", "compiled"),
    "scripted": ("scripted_child", "0", "scripted"),
    "traced": ("traced", "", "scripted"),
    "parametrized": ("parametrized", "1", "parametrized"),
    "weight_norm": ("weight_norm_legacy", "0", "weight-normed"),
    "spectral_norm": ("spectral_norm_legacy", "0", "spectral-normed"),
    "pruned": ("pruned", "l0", "pruned"),
    "quantized": ("quantized_dynamic", "0", "quantized"),
    "quantized_static": ("quantized_static", "1", "quantized"),
    "several_devices": ("mixed_devices", "", "several devices"),
    "no_super": ("forgot_super_below", "forgot", "super().__init__() never called"),
}


@pytest.mark.parametrize(("name", "path", "flag"), FLAGS.values(), ids=FLAGS)
def test_flags(name, path, flag):
    shown = modlab.tree(zoo.named(name).build())
    assert flag in shown[path].flags and flag in str(shown)
    assert flag not in modlab.tree(zoo.named("mlp").build())[""].flags


def test_a_mode_that_differs_is_said():
    model = zoo.named("mixed_modes").build()
    assert "in evaluation mode" in str(modlab.tree(model)) and not modlab.tree(model)["1"].training
    assert "in training mode" in str(modlab.tree(model.eval()[0].train() and model))
    assert "mode" not in str(modlab.tree(zoo.named("mlp").build()))


@pytest.mark.parametrize(
    ("name", "text"), [("extra_repr_raises", "extra_repr raised RuntimeError"), ("extra_repr_none", "returned NoneType, not str")]
)
def test_a_broken_extra_repr_is_said(name, text):
    assert text in modlab.tree(zoo.named(name).build())["0"].extra


def test_a_long_extra_repr_is_cut():
    assert modlab.tree(zoo.named("extra_repr_of_1_mb").build())["0"].extra.endswith("(1,000,003 characters)")


def test_extra_repr_is_that_of_each_instance():
    """Also where torch's own text is remembered: equal attributes of other types, changed ones, overridden ones."""

    class Shifted(nn.Linear):
        in_features = property(lambda self: next(counter), lambda self, value: None)

    counter = iter(range(100))
    changed = nn.Dropout(0.5)
    model = nn.Sequential(nn.Dropout(0), nn.Dropout(0.0), nn.Dropout(False), changed, nn.ReLU(True), nn.Softplus(1, 2), nn.Softplus(1.0, 2))
    for _ in range(2):
        shown = modlab.tree(model)
        assert [shown[str(i)].extra for i in range(7)] == [m.extra_repr() for m in model]
        changed.p = 0.25
    text = [modlab.tree(Shifted(2, 2))[""].extra for _ in range(2)]
    assert text[0] != text[1]


# ---- ghosts ------------------------------------------------------------------------------------------------------------------


GHOSTS = {
    "layers": ("list of 2 Linear", "in a Python list", "nn.ModuleList", 12),
    "pair": ("tuple of 1 ReLU and 1 tensor", "in a Python tuple", "nn.ModuleList", 0),
    "frozen": ("tuple of 1 Linear", "in a Python tuple", "nn.ModuleList", 9),
    "by_name": ("dict of 1 Linear and 1 Parameter", "in a Python dict", "nn.ModuleList", 12),
    "heads": ("set of 1 Linear", "in a Python set", "nn.ModuleList", 3),
    "queue": ("deque of 1 tensor", "in a Python deque", "register_buffer", 0),
    "mask": ("tensor (2, 2) float32", "a plain tensor attribute", 'self.register_buffer("mask"', 0),
    "secret": ("Linear", "set without registering it", "self.secret = ...", 20),
    "weight": ("tensor (5,) float32", "a Parameter set without registering it", "self.weight = ...", 5),
    "by_module": ("dict of 2 tensors", "in a Python dict", "register_buffer", 0),
}


def test_all_ghosts_are_found():
    shown = modlab.tree(zoo.named("hidden").build())
    assert [ghost.name for ghost in shown[""].subtree.ghosts] == list(GHOSTS)
    assert shown.headline.startswith(
        "Hidden: 6 parameters in 2 modules; 7 modules are hidden from PyTorch, 7 tensors are hidden from PyTorch"
    )


@pytest.mark.parametrize("name", GHOSTS)
def test_a_ghost_says_what_why_and_what_to_do(name):
    shown = modlab.tree(zoo.named("hidden").build())
    ghost = next(ghost for ghost in shown[""].subtree.ghosts if ghost.name == name)
    what, reason, fix, parameters = GHOSTS[name]
    assert (ghost.what, ghost.parameters) == (what, parameters)
    assert fix in (ghost.fix or ghost.advice)
    row = str(shown).partition(f"? {name} ")[2].partition("\n")[0]
    assert reason in row and "not trained, not moved, not saved" in row


@pytest.mark.parametrize(
    "name",
    ["list_beside_module_list", "distributed_like", "mlp", "rnns", "transformer", "parametrized", "attributes_that_raise", "fx_graph"],
)
def test_what_is_registered_or_harmless_is_no_ghost(name):
    assert not [ghost for record in modlab.tree(zoo.named(name).build()).records for ghost in record.subtree.ghosts]


@pytest.mark.parametrize("name", ["pruned", "weight_norm_legacy", "spectral_norm_legacy"])
def test_what_a_utility_computes_is_marked_as_such(name):
    shown = modlab.tree(zoo.named(name).build())
    ghosts = [ghost for record in shown.records for ghost in record.subtree.ghosts]
    assert ghosts and all(ghost.harmless and ghost.way == "anew" and not ghost.fix for ghost in ghosts)
    assert "computed before each forward" in str(shown)
    assert "hidden" not in shown.headline


# ---- questions ---------------------------------------------------------------------------------------------------------------


FOUND = {
    "pattern": (("*.l*",), {}, ["net.l0", "net.l1"]),
    "exact": (("net",), {}, ["net"]),
    "type": ((), {"type": nn.Linear}, ["net.l0", "net.l1", "other"]),
    "base": ((), {"type": nn.Module}, ["", "net", "net.l0", "net.l1", "other", "act"]),
    "type_name": ((), {"type": "Lin*"}, ["net.l0", "net.l1", "other"]),
    "shape": ((), {"shape": (3, 4)}, ["net.l0", "other"]),
    "shape_open": ((), {"shape": (None, 3)}, ["net.l1"]),
    "shape_any": ((), {"shape": 4}, ["net.l0", "other"]),
    "trainable": ((), {"trainable": True}, ["net.l0", "net.l1"]),
    "frozen": ((), {"trainable": False}, ["other"]),
    "together": (("net.*",), {"type": nn.Linear, "shape": 3, "trainable": True}, ["net.l0", "net.l1"]),
    "none": (("x*",), {}, []),
}


@pytest.mark.parametrize(("args", "kwargs", "paths"), FOUND.values(), ids=FOUND)
def test_find(args, kwargs, paths):
    model = nn.ModuleDict({"net": zoo.Net(), "other": nn.Linear(4, 3).requires_grad_(False), "act": nn.ReLU()})
    assert [record.path for record in modlab.tree(model).find(*args, **kwargs)] == paths


WRONG = {
    "near": ("net.l2", r"'net\.l0', 'net\.l1'"),
    "tail": ("l1", r"'net\.l1'"),
    "tensor": ("net.l0.weight", r"that is a tensor of 'net\.l0'.*\n.*modlab\.state\(model\)\['net\.l0\.weight'\]"),
    "nothing_like_it": ("zzzzzz", r"has no module 'zzzzzz'\.\n  It has: 'net', 'net\.l0', 'net\.l1', 'other', \.\.\.  All paths"),
    "number": (3, "a dotted name such as"),
}


@pytest.mark.parametrize(("path", "text"), WRONG.values(), ids=WRONG)
def test_a_wrong_path_names_the_nearest(path, text):
    model = nn.ModuleDict({"net": zoo.Net(), "other": nn.Linear(4, 3), "act": nn.ReLU()})
    with pytest.raises(PathNotFoundError, match=text):
        modlab.tree(model)[path]
    assert path not in modlab.tree(model)


def test_the_root_has_two_spellings():
    shown = modlab.tree(zoo.Net())
    assert shown["(root)"] == shown[""] and "(root)" in shown


class Wrapper:
    def __init__(self):
        self.model = zoo.Net()


class Rude:
    def __getattr__(self, name):
        raise RuntimeError("go away")


NOT_MODULES = {
    "class": (nn.Linear, r"the class Linear itself.*\n.*instance first: modlab\.tree\(Linear\(\.\.\.\)\)"),
    "other_class": (dict, r"the class dict itself.*\n.*not a module"),
    "function": (torch.relu, "the builtin_function_or_method relu.*\n.*function has no parameters"),
    "lambda": (lambda x: x, "function"),
    "text": ("net.pt", r"the text 'net\.pt'.*\n.*modlab\.state\(path\)"),
    "path": (Path("net.pt"), r"the path 'net\.pt'.*\n.*modlab\.state\(path\)"),
    "state_dict": (zoo.Net().state_dict(), "looks like a state_dict"),
    "none": (None, "got None"),
    "list": ([nn.ReLU()], r"nn\.ModuleList\(modules\)"),
    "tensor": (torch.ones(2), r"modlab\.measure\(tensor\)"),
    "parameter": (nn.Parameter(torch.ones(2)), r"modlab\.measure\(tensor\)"),
    "optimizer": (torch.optim.SGD([torch.ones(1)]), r"comes second: modlab\.state\(model, optimizer\)"),
    "wrapper": (Wrapper(), r"Its \.model is one: modlab\.tree\(it\.model\)"),
    "stage of a pipeline": (SimpleNamespace(submod=nn.Linear(1, 1)), r"Its \.submod is one: modlab\.tree\(it\.submod\)"),
    "number": (3, "an int.*\n.*Pass the model itself"),
    "rude": (Rude(), "a Rude"),
    "lying": (zoo.LyingClass(), "a LyingClass"),
}


@pytest.mark.parametrize(("thing", "text"), NOT_MODULES.values(), ids=NOT_MODULES)
def test_what_is_no_module_is_told_what_to_do(thing, text):
    with pytest.raises(NotAModuleError, match=text):
        modlab.tree(thing)


@pytest.mark.parametrize("view", [modlab.tree, modlab.state])
def test_a_forgotten_super_is_explained(view):
    with pytest.raises(NotInitializedError, match=r"def __init__\(self, width\):\n +super\(\)\.__init__\(\)"):
        view(zoo.Forgot())


def test_a_second_call_shows_what_has_changed():
    model = zoo.named("mlp").build()
    before = modlab.tree(model)
    model[0].weight.requires_grad_(False)
    model.append(nn.Linear(1, 1))
    after = modlab.tree(model)
    assert (before.total_parameters, before.trainable_parameters) == (19, 19)
    assert (after.total_parameters, after.trainable_parameters) == (21, 9)


def test_the_tree_of_a_big_real_network_is_right():
    transformers = pytest.importorskip("transformers")
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    shown = modlab.tree(model)
    assert shown.total_parameters == sum(p.numel() for p in model.parameters()) == 124_439_808
    assert [r.count for r in shown.record.rows(folded=True) if r.type == "GPT2Block"] == [12]


def test_on_the_meta_device_no_memory_is_taken():
    big = nn.Linear(1_000_000, 1_000_000, device="meta")
    tree = modlab.tree(big)
    assert "4.00 TB if it were real, float32 on meta." in str(tree)
    half = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, device="meta"))
    assert "160 B if all of it were real" in str(modlab.tree(half))
    assert "real" not in str(modlab.tree(nn.Linear(4, 4)))
    row = next(iter(modlab.trace(big)(torch.zeros(8, 1_000_000, device="meta")).record.events))
    assert row.bytes == 32_000_000  # of the record it is the size; that there is none is said by the view
    text = str(modlab.trace(big)(torch.zeros(8, 1_000_000, device="meta")))
    assert "meta: none" in text and "32.0 MB" not in text
    assert "meta" not in str(modlab.trace(nn.Linear(4, 4))(torch.zeros(8, 4)))
