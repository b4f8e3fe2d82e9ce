"""A tree that is asked for again may be the last one, and must never be an old one: every kind of change shows at once."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune, weight_norm

import modlab
from modlab.inspection import classes, structure, tree_cache
from tests import zoo


class Scaled(nn.Module):
    """Says something of its own."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.factor = 2.0

    def extra_repr(self):
        return f"factor={self.factor}"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.activation = torch.relu
        self.scaled = Scaled(4)
        self.register_parameter("gate", None)
        self.register_buffer("mask", torch.ones(4))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.block = Block()
        self.conv = nn.Conv1d(2, 2, 3)
        self.drop = nn.Dropout(0.5)
        self.acts = nn.ModuleList([nn.ReLU(), nn.ReLU()])
        self.lstm = nn.LSTM(4, 4)
        self.tasks = nn.ParameterDict({"a": nn.Parameter(torch.zeros(2)), "b": nn.Parameter(torch.zeros(3))})
        self.slot = None
        self.add_module("head", None)


class OtherBlock(Block):
    pass


def set_attribute(path, name, value):
    def change(model):
        setattr(model.get_submodule(path), name, value() if callable(value) else value)

    return change


def tie(model):
    model.layers[1].weight = model.layers[0].weight


def tie_buffer(model):
    model.block.scratch = model.block.mask


def alias(model):
    model.head = model.block


def recursion(model):
    model.block.inner = model


def shape_by_data(model):
    model.layers[0].weight.data = torch.zeros(4, 7)


def dtype_by_data(model):
    model.layers[1].bias.data = torch.zeros(4, dtype=torch.float64)


def past_registration(model):
    model.block.__dict__["hidden"] = nn.Linear(2, 2)


def new_store(model):
    model.block._modules = {"only": nn.ReLU()}


def new_parameters(model):
    model.layers[0]._parameters = {"weight": nn.Parameter(torch.zeros(4, 9)), "bias": None}


def renamed(model):
    model.block._modules = {("standard" if name == "norm" else name): child for name, child in model.block._modules.items()}


def another_order(model):
    model._modules["conv"] = model._modules.pop("conv")


def swapped_kind(model):
    mask = model.block._buffers.pop("mask")
    model.block.register_parameter("mask", nn.Parameter(mask))


def persistence(model):
    model.block._non_persistent_buffers_set.add("mask")


def other_class(model):
    model.block.__class__ = OtherBlock


def subclass_of_tensor(model):
    model.block._buffers["mask"] = torch.ones(4).as_subclass(type("Marked", (torch.Tensor,), {}))


def class_of_tensor(model):
    model.block.mask.__class__ = type("Marked", (torch.Tensor,), {})


def swapped(make):
    """The same object with other contents: what `.data` does not allow, torch.utils.swap_tensors does."""
    return lambda model: torch.utils.swap_tensors(model.block.mask, make())


def moved_store(model):
    model.block.scaled._buffers["weight"] = model.block.scaled._parameters.pop("weight")


def renamed_parameter(model):
    model.block.scaled._parameters["kernel"] = model.block.scaled._parameters.pop("weight")


def alias_without_tensors(model):
    model.acts[1] = model.acts[0]


def late_append(model):
    model.lstm._flat_weights.append(torch.zeros(5))


CHANGES = {
    "train flag of one child": lambda model: model.block.norm.train(False),
    "train flag of a leaf": set_attribute("drop", "training", False),
    "train flag that is no bool": set_attribute("drop", "training", 0),
    "eval": lambda model: model.eval(),
    "requires_grad": lambda model: model.layers[1].bias.requires_grad_(False),
    "requires_grad of all": lambda model: model.requires_grad_(False),
    "shape by .data": shape_by_data,
    "dtype by .data": dtype_by_data,
    "dtype": lambda model: model.block.half(),
    "dtype of a buffer": set_attribute("block", "mask", lambda: torch.ones(4, dtype=torch.bool)),
    "device": lambda model: model.layers.to("meta"),
    "layout": set_attribute("block", "mask", lambda: torch.eye(4).to_sparse()),
    "nested": set_attribute("block", "mask", lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)),
    "subclass": subclass_of_tensor,
    "forward hook": lambda model: model.block.register_forward_hook(lambda *_: None),
    "forward pre-hook": lambda model: model.drop.register_forward_pre_hook(lambda *_: None),
    "backward hook": lambda model: model.conv.register_full_backward_hook(lambda *_: None),
    "state_dict hook": lambda model: model.register_state_dict_pre_hook(lambda *_: None),
    "new child": lambda model: model.layers.append(nn.Linear(4, 4)),
    "new child of another kind": set_attribute("block", "act", nn.ReLU),
    "child for a reserved name": set_attribute("", "head", nn.ReLU),
    "child taken away": lambda model: delattr(model, "drop"),
    "child reserved": set_attribute("", "drop", None),
    "child replaced": set_attribute("block", "norm", lambda: nn.LayerNorm(4)),
    "child renamed": renamed,
    "children in another order": another_order,
    "children in another dict": new_store,
    "parameter deleted": lambda model: delattr(model.block.scaled, "weight"),
    "parameter reserved": set_attribute("layers.0", "bias", None),
    "parameter for a reserved name": set_attribute("block", "gate", lambda: nn.Parameter(torch.zeros(1))),
    "parameter replaced": set_attribute("layers.0", "weight", lambda: nn.Parameter(torch.zeros(4, 6))),
    "parameters in another dict": new_parameters,
    "new parameter": set_attribute("block", "more", lambda: nn.Parameter(torch.zeros(1))),
    "entry of a ParameterDict": lambda model: model.tasks.update({"c": nn.Parameter(torch.zeros(1))}),
    "buffer made a parameter": swapped_kind,
    "buffer no more persistent": persistence,
    "new buffer": lambda model: model.drop.register_buffer("seen", torch.zeros(3)),
    "list of modules": set_attribute("block", "blocks", lambda: [nn.Linear(2, 2)]),
    "list that was none": set_attribute("", "slot", lambda: [nn.Linear(2, 2)]),
    "dict of tensors": set_attribute("drop", "cache", lambda: {"k": torch.zeros(2)}),
    "plain tensor": set_attribute("block", "moving", lambda: torch.zeros(2)),
    "module past registration": past_registration,
    "list of an LSTM": late_append,
    "what a user's extra_repr says": set_attribute("block.scaled", "factor", 3.0),
    "what torch's extra_repr says": set_attribute("drop", "p", 0.25),
    "an equal number of another type": set_attribute("layers.0", "in_features", 4.0),
    "True for 1": set_attribute("block.norm", "eps", True),
    "a tuple": set_attribute("conv", "stride", (2,)),
    "equal numbers of other types in a tuple": set_attribute("conv", "stride", (1.0,)),
    "what torch's extra_repr says of an LSTM": set_attribute("lstm", "bidirectional", True),
    "extra_repr of one instance": set_attribute("layers.0", "extra_repr", lambda: lambda: "words of one instance"),
    "extra_repr of one instance of a silent class": set_attribute("block", "extra_repr", lambda: lambda: "words of one instance"),
    "alias without tensors": alias_without_tensors,
    "contents on another device": swapped(lambda: torch.ones(4, device="meta")),
    "contents in another layout": swapped(lambda: torch.ones(4).to_sparse()),
    "class of a tensor": class_of_tensor,
    "parameter made a buffer": moved_store,
    "parameter renamed": renamed_parameter,
    "tied parameters": tie,
    "tied buffers": tie_buffer,
    "alias": alias,
    "recursion": recursion,
    "parametrization": lambda model: parametrizations.orthogonal(model.layers[0]),
    "pruning": lambda model: prune.l1_unstructured(model.layers[1], "weight", 0.5),
    "class": other_class,
    "compiled": lambda model: model.block.compile(backend="eager"),
    "lazy child": set_attribute("", "head", lambda: nn.LazyLinear(3)),
}


def anew(model):
    """The text of a tree that is made with nothing remembered."""
    classes.known.clear()
    structure._entries.clear()
    tree_cache._last.clear()
    return str(modlab.tree(model))


def shown(model):
    tree = modlab.tree(model)
    return str(tree), tree.to_dict()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_shows_at_once(change):
    model = Model()
    before = shown(model)
    assert shown(model) == before and modlab.tree(model).record is modlab.tree(model).record  # else there is nothing to be stale
    change(model)
    after = shown(model)
    assert after != before
    assert shown(model) == after
    assert after[0] == anew(model)


def untie(model):
    model.layers[1].weight = nn.Parameter(torch.zeros(4, 4))


BACK = {
    "train flag": (lambda m: m.drop.eval(), lambda m: m.drop.train()),
    "requires_grad": (lambda m: m.conv.requires_grad_(False), lambda m: m.conv.requires_grad_(True)),
    "tie": (tie, untie),
    "alias": (alias, set_attribute("", "head", None)),
    "ghost": (past_registration, lambda m: m.block.__dict__.pop("hidden")),
    "weight_norm": (lambda m: parametrizations.weight_norm(m.conv), lambda m: parametrize.remove_parametrizations(m.conv, "weight")),
    "recursion": (recursion, lambda m: delattr(m.block, "inner")),
}


@pytest.mark.parametrize(("there", "back"), BACK.values(), ids=BACK)
def test_there_and_back(there, back):
    model = Model()
    texts = []
    for step in (lambda m: None, there, back, there):
        step(model)
        texts += [shown(model)[0], anew(model)]
    assert texts[0::2] == texts[1::2]
    assert texts[0] != texts[2] != texts[4] != texts[6]


def test_a_hook_comes_and_goes():
    model = Model()
    before = str(modlab.tree(model))
    handle = model.block.register_forward_hook(lambda *_: None)
    assert "1 hook" in str(modlab.tree(model))
    handle.remove()
    assert str(modlab.tree(model)) == before


def test_an_extra_repr_that_is_set_on_the_class_shows():
    class Quiet(nn.Module):
        pass

    model = nn.Sequential(Quiet())
    assert "Quiet(" not in str(modlab.tree(model))
    Quiet.extra_repr = lambda self: "spoken=1"
    assert "Quiet(spoken=1)" in str(modlab.tree(model))
    Quiet.extra_repr = lambda self: "spoken=2"
    assert "Quiet(spoken=2)" in str(modlab.tree(model))
    del Quiet.extra_repr
    assert "Quiet(" not in str(modlab.tree(model))


def test_an_extra_repr_that_changes_by_itself_is_asked_each_time():
    class Counting(nn.Module):
        asked = 0

        def extra_repr(self):
            Counting.asked += 1
            return f"asked={Counting.asked}"

    model = nn.Sequential(Counting())
    texts = [str(modlab.tree(model)) for _ in range(4)]
    assert len(set(texts)) == 4


@pytest.mark.parametrize("case", zoo.every(walks=True, listed=True), ids=str)
def test_the_second_look_is_the_first(case):
    model = case.build()
    first, second = str(modlab.tree(model)), str(modlab.tree(model))
    assert first == second == anew(model)


def test_words_of_one_instance_are_asked_each_time():
    model = Model()
    for words in ("one", "two"):
        model.block.extra_repr = lambda words=words: words
        assert f"Block({words})" in str(modlab.tree(model))


def test_a_sparse_buffer_that_fills_shows():
    model = nn.Sequential(nn.ReLU())
    model.register_buffer("table", torch.tensor([0.0, 0.0, 1.0]).to_sparse())
    size = modlab.tree(model)[""].bytes
    torch.utils.swap_tensors(model.table, torch.tensor([0.0, 1.0, 1.0]).to_sparse())
    assert modlab.tree(model)[""].bytes == 2 * size


def test_a_flag_that_answers_nothing_is_only_asked_for_its_truth():
    class Flag:
        true = True

        def __bool__(self):
            return self.true

        def __eq__(self, other):
            return True

    model = Model()
    model.drop.training = Flag()
    assert modlab.tree(model)["drop"].training and modlab.tree(model)["drop"].training
    Flag.true = False
    assert not modlab.tree(model)["drop"].training


def test_stores_in_another_order():
    class Early(nn.Module):
        def __init__(self):
            self.first, self.second, self.third, self.fourth = False, {}, {}, set()
            super().__init__()
            self.child = nn.Dropout(0.5)

    model = nn.Sequential(Early()).eval()
    assert "p=0.5" in str(modlab.tree(model))
    model[0].child.p = 0.25
    assert "p=0.25" in str(modlab.tree(model))


def test_two_models_are_told_apart():
    one, other = Model(), Model()
    text = str(modlab.tree(one))
    other.drop.eval()
    assert str(modlab.tree(other)) != text == str(modlab.tree(one))


def test_a_model_in_the_place_of_one_that_is_gone():
    for size in range(2, 60):  # CPython gives the address of the one to the next
        assert modlab.tree(nn.Linear(size, 3)).total_parameters == 3 * size + 3


def test_what_is_remembered_keeps_nothing_alive():
    model = Model()
    modlab.tree(model)
    parts = [model.layers[0], model.layers[0].weight, model.block.mask, model.block.scaled]
    gone = [weakref.ref(part) for part in parts]
    del parts
    model.layers[0], model.block = nn.Linear(2, 2), nn.ReLU()
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4  # although the model is there, and the tree not asked for again
    root = weakref.ref(model)
    key = id(model)
    assert key in tree_cache._last
    del model
    gc.collect()
    assert root() is None and key not in tree_cache._last


def test_a_class_of_a_notebook_goes_with_its_facts():
    def build():
        class Holder(nn.Module):
            kept = nn.Linear(2, 2)

            def extra_repr(self):
                return f"{type(self).__name__} {__class__.__name__}"

        return Holder()

    model = build()
    modlab.tree(model)
    found = weakref.ref(type(model)), weakref.ref(type(model).kept)
    key = id(type(model))
    assert key in classes.known
    del model
    gc.collect()
    assert [ref() for ref in found] == [None, None] and key not in classes.known


def test_a_class_without_a_hash():
    class Meta(type):
        __hash__ = None

        def __eq__(cls, other):
            raise AssertionError("a metaclass that is asked")

    class Odd(nn.Module, metaclass=Meta):
        pass

    model = nn.Sequential(Odd(), Odd())
    assert "2 x Odd" in str(modlab.tree(model))
    model.append(nn.ReLU())
    assert "ReLU" in str(modlab.tree(model))


def test_a_speaker_that_takes_no_weak_reference_is_asked_anyway():
    class Property(nn.Module):
        words = "one"
        extra_repr = property(lambda self: lambda: self.words)

    model = nn.Sequential(Property())
    assert "Property(one)" in str(modlab.tree(model))
    model[0].words = "two"
    assert "Property(two)" in str(modlab.tree(model))


def test_weight_norm_of_the_old_kind_is_looked_at_anew():
    model = Model()
    modlab.tree(model)
    with pytest.warns(FutureWarning):
        weight_norm(model.conv)
    assert "weight-normed" in str(modlab.tree(model))
