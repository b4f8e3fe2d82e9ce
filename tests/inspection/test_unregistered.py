"""Ghosts: where they hide, what order they come in, how many are told of, and that each fix does what it says."""

import re
import subprocess
import sys
from collections import OrderedDict, deque
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import modlab
from modlab.inspection import unregistered


@dataclass
class Kit:
    head: Any
    size: int = 3


class Default(nn.Module):
    scale = None


def linear():
    return nn.Linear(2, 2)


def weight():
    return nn.Parameter(torch.ones(2))


def holding(value, name="x", model=None):
    model = nn.Module() if model is None else model
    object.__setattr__(model, name, value)
    return model


def found(model):
    return modlab.tree(model)[""].subtree.ghosts


# ---- fixes -------------------------------------------------------------------------------------------------------------------


WORKS = {
    "module": linear,
    "parameter": weight,
    "tensor": lambda: torch.ones(2),
    "list": lambda: [linear(), linear()],
    "twice": lambda: [linear()] * 2,
    "tuple": lambda: (linear(),),
    "set": lambda: {linear(), linear()},
    "deque": lambda: deque([linear()]),
    "values": lambda: {"a": linear()}.values(),
    "dict": lambda: {"a": linear(), "no identifier": linear(), "3": linear()},
    "ordered": lambda: OrderedDict(a=linear()),
    "parameters": lambda: [weight(), weight()],
    "set_of_parameters": lambda: {weight()},
    "dict_of_parameters": lambda: {"a": weight()},
}


@pytest.mark.parametrize("build", WORKS.values(), ids=WORKS)
def test_a_line_works_as_written(build):
    model = holding(build())
    (ghost,) = found(model)
    assert ghost.fix.startswith("self.")
    exec(ghost.fix, {"self": model, "nn": nn})
    assert not found(model) and not modlab.state(model).find(kind="attribute")
    numbers = sum(p.numel() for p in model.parameters())
    assert numbers == ghost.parameters and (numbers or "x" in model.state_dict())
    model.to(torch.float64)
    assert all(t.dtype is torch.float64 for t in model.state_dict().values())


WORDS = {
    "nested": (lambda: [[linear()], [linear()]], "nn.ModuleList"),
    "mixed": (lambda: [linear(), weight(), torch.ones(1)], "nn.ModuleList.*nn.ParameterList.*register_buffer"),
    "with_none": (lambda: [linear(), None], "nn.ModuleList"),
    "dict_of_lists": (lambda: {"a": [linear()]}, "nn.ModuleList"),
    "number_as_key": (lambda: {1: linear()}, "nn.ModuleList"),
    "dot_in_key": (lambda: {"a.b": linear()}, "nn.ModuleList"),
    "method_as_key": (lambda: {"forward": linear()}, "nn.ModuleList"),
    "empty_key": (lambda: {"": weight()}, "nn.ParameterList"),
    "tensors": (lambda: [torch.ones(1), torch.ones(1)], "register_buffer"),
    "object": (lambda: Kit(linear()), "nn.ModuleList"),
}


@pytest.mark.parametrize(("build", "text"), WORDS.values(), ids=WORDS)
def test_where_no_line_works_there_are_words(build, text):
    (ghost,) = found(holding(build()))
    assert not ghost.fix and ghost.advice.startswith("register each: ") and re.search(text, ghost.advice)


NAMES = {"dash": "my-layers", "keyword": "class", "space": "a b", "number": "1"}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("build", [linear, lambda: [linear()], lambda: torch.ones(1)], ids=["module", "list", "tensor"])
def test_a_name_that_is_no_identifier_gets_words(build, name):
    (ghost,) = found(holding(build(), name))
    assert not ghost.fix and ghost.advice.startswith("register each: ")


def test_a_name_of_the_class_and_a_parent_in_the_list_get_words():
    (ghost,) = found(holding(torch.ones(1), "scale", Default()))
    assert not ghost.fix and ghost.advice.startswith("register each: ")
    model = nn.Module()
    (ghost,) = found(holding([model, linear()], model=model))
    assert not ghost.fix and ghost.advice.startswith("register each: ") and ghost.modules == 1


# ---- places ------------------------------------------------------------------------------------------------------------------


def nested(levels):
    value = [linear()]
    for _ in range(levels - 1):
        value = [value]
    return value


HIDING = {
    "eight_deep": (lambda: nested(8), "x" + "[0]" * 8),
    "values": (lambda: {"a": linear()}.values(), "x[0]"),
    "odict_values": (lambda: OrderedDict(a=linear()).values(), "x[0]"),
    "dataclass": (lambda: Kit(linear()), "x.head"),
    "list_in_dataclass": (lambda: Kit([linear()]), "x.head[0]"),
    "namespace": (lambda: SimpleNamespace(a=1, head=linear()), "x.head"),
    "objects_in_list": (lambda: [1, Kit(linear())], "x[1].head"),
    "set": (lambda: {linear()}, "x{0}"),
}


@pytest.mark.parametrize(("build", "place"), HIDING.values(), ids=HIDING)
def test_a_hiding_place_is_found(build, place):
    model = holding(build())
    (ghost,) = found(model)
    assert (ghost.modules, ghost.parameters) == (1, 6) and ghost.way in ("collection", "object")
    assert [row.path for row in modlab.state(model).records] == [f"{place}.weight", f"{place}.bias"]


OPEN = {
    "object_in_object": lambda model: Kit(Kit(linear())),
    "registered": lambda model: Kit([model.fc, model.fc.weight]),
    "harmless": lambda model: Kit({"a": [1, 2]}),
}


@pytest.mark.parametrize("build", OPEN.values(), ids=OPEN)
def test_objects_are_looked_into_one_level(build):
    model = nn.Module()
    model.fc = linear()
    assert not found(holding(build(model), model=model))


def test_one_object_in_many_modules_is_looked_at_for_each():
    full, empty = Kit(linear()), Kit(3)
    layers = [holding(full) for _ in range(3)] + [holding(empty) for _ in range(3)]
    shown = modlab.tree(nn.Sequential(*layers))
    assert [len(shown[str(i)].subtree.ghosts) for i in range(6)] == [1, 1, 1, 0, 0, 0]


SETS = """
import modlab, torch
from torch import nn
pad = [object() for _ in range({pad})]
model = nn.Module()
model.heads = {{nn.Linear(2, i) for i in range(1, 9)}} | {{nn.ReLU(), torch.ones(3), torch.ones(2), "a", "b"}}
model.pairs = {{(name, nn.Linear(1, i)) for i, name in enumerate("abcd", 1)}}
print([(row.path, row.shape) for row in modlab.state(model).records])
"""


def test_members_of_sets_come_in_one_order():
    said = {
        subprocess.run(
            [sys.executable, "-c", SETS.format(pad=pad)], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": str(pad)}
        ).stdout
        for pad in (0, 7, 1001)
    }
    assert len(said) == 1
    (text,) = said
    assert "heads{0}.weight" in text and "pairs{0}[1].weight', (1, 1)" in text


def test_a_cut_walk_is_told(monkeypatch):
    monkeypatch.setattr(unregistered, "WIDE", 10)
    (ghost,) = found(holding([linear() for _ in range(10)]))
    assert (ghost.modules, ghost.cut) == (10, 0)
    (ghost,) = found(holding([linear() for _ in range(11)]))
    assert (ghost.modules, ghost.cut) == (10, 10)
    assert not ghost.fix and ghost.advice.startswith("register each")


# ---- many --------------------------------------------------------------------------------------------------------------------


def test_many_ghosts_are_summed_in_one_row():
    model = nn.Module()
    for i in range(3000):
        holding(torch.ones(2) if i % 2 else weight(), f"t{i}", model)
    shown = modlab.tree(model)
    listed = shown[""].subtree.ghosts
    assert len(listed) == 20 and [ghost.name for ghost in listed[:2]] == ["t0", "t1"]
    last = listed[-1]
    assert (last.name, last.what, last.way, last.fix) == ("…", "2,981 more", "rest", "")
    assert sum(ghost.tensors for ghost in listed) == 3000 and sum(ghost.parameters for ghost in listed) == 3000
    assert "3,000 tensors are hidden from PyTorch" in shown.headline
    assert len(shown.html(bundle=False)) < 30_000 and len(modlab.state(model)) == 3000


def test_twenty_ghosts_are_listed():
    model = nn.Module()
    for i in range(20):
        holding(linear(), f"t{i}", model)
    assert [ghost.name for ghost in found(model)] == [f"t{i}" for i in range(20)]
