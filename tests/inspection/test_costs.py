"""A profile on the tree: its numbers are the profiler's own, and what is not in it is said."""

import gc
import os
import weakref
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

import modlab
from modlab.records.costs import CostRecord, CostsRecord
from modlab.views.sheets import costs as sheets
from tests import zoo


def mark(module, name):
    running = []

    def before(module, inputs):
        running.append(record_function(name))
        running[-1].__enter__()

    def after(module, inputs, output):
        running.pop().__exit__(None, None, None)

    return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]


@contextmanager
def profiled(model, named=None, *, memory=True):
    os.environ["KINETO_LOG_LEVEL"] = "99"
    named = dict(model.named_modules()) if named is None else named
    handles = [handle for name, module in named.items() for handle in mark(module, name or "(root)")]
    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU], profile_memory=memory) as profiler:
        yield profiler
    for handle in handles:
        handle.remove()


def nested():
    return nn.Sequential(nn.Linear(10, 400), nn.Sequential(nn.ReLU(), nn.Linear(400, 400)), nn.Identity())


def test_each_module_has_what_the_profiler_says_of_it():
    model = nested()
    with profiled(model) as profiler:
        for _ in range(3):
            model(torch.ones(64, 10))
    costs = modlab.costs(model, profiler)
    for name, module in model.named_modules():
        events = [event for event in profiler.events() if event.name == (name or "(root)")]
        row = costs[name]
        assert (row.type, row.calls) == (type(module).__name__, 3)
        assert row.seconds == pytest.approx(3 * min(event.cpu_time_total for event in events) / 1e6)
        assert row.bytes == sum(event.cpu_memory_usage for event in events)
        assert row.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert costs["0"].bytes == costs["1.0"].bytes == 3 * 64 * 400 * 4
    assert costs["1"].own_seconds == pytest.approx(costs["1"].seconds - costs["1.0"].seconds - costs["1.1"].seconds, rel=0.5, abs=5e-3)
    assert costs["1"].own_bytes == costs["1"].bytes - costs["1.0"].bytes - costs["1.1"].bytes
    assert costs["1.1"].own_seconds == costs["1.1"].seconds


def test_a_slow_call_does_not_count_more_than_the_others():
    calls = iter([0.0, 0.03, 0.0])

    class Held(nn.Module):
        def forward(self, x):
            import time

            time.sleep(next(calls))
            return x + 1

    model = nn.Sequential(Held())
    with profiled(model) as profiler:
        for _ in range(3):
            model(torch.ones(1))
    assert modlab.costs(model, profiler)["0"].seconds < 0.03


def test_what_has_no_mark_is_the_sum_of_its_children_or_absent():
    model = nested()
    with profiled(model, {"0": model[0], "1.0": model[1][0]}) as profiler:
        model(torch.ones(64, 10))
    costs = modlab.costs(model, profiler)
    assert costs["1"].calls == 0
    assert costs["1"].seconds == costs["1.0"].seconds
    assert costs[""].bytes == costs["0"].bytes + costs["1.0"].bytes
    rows = {row.path: row for row in costs._sheet().rows}
    assert (rows["2"].mark, rows["1.1"].mark, rows["1"].mark) == ("absent", "absent", "")
    assert "not in this profile: 1.1, 2: not called, or not labelled." in str(costs)


def test_the_text_has_no_time_and_is_the_same_each_time():
    model = nested()
    texts = []
    for _ in range(2):
        with profiled(model) as profiler:
            model(torch.ones(64, 10))
        texts.append(str(modlab.costs(model, profiler)).splitlines()[1:])
    assert texts[0] == texts[1]
    assert texts[0][0].split() == ["path", "module", "parameters", "calls", "new", "memory"]
    assert [column.title for column in sheets.COLUMNS if column.measured] == ["time", "own time"]


def a(path, own, parameters=1):
    return CostRecord(path, "Linear", "linear", 1, parameters, parameters, 1, own, own, 10, 10)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((a("x", 1.0), a("y", 0.6)), ("Net: x takes the most time.", "")),
        ((a("x", 1.0), a("y", 0.9)), ("Net: no module stands out.", "")),
        ((a("x", 1.0), a("y", 0.9, 2)), ("Net: y has the most parameters.", "")),
        ((a("x", 1.0), a("y", 0.1, 2)), ("Net: x takes the most time;", "y has the most parameters.")),
    ],
)
def test_the_headline_names_who_takes_most_where_that_is_beyond_doubt(rows, said):
    assert sheets.sentence(CostsRecord("Net", rows)) == said


def test_without_memory_no_memory_is_told():
    model = nested()
    with profiled(model, memory=False) as profiler:
        model(torch.ones(64, 10))
    costs = modlab.costs(model, profiler)
    assert costs["0"].bytes is None
    assert "new memory" not in str(costs)


def test_a_module_with_two_names_has_one_row():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    with profiled(model) as profiler:
        model(torch.ones(2, 4))
    costs = modlab.costs(model, profiler)
    assert [row.path for row in costs.records] == ["", "0", "1"]
    assert costs["0"].calls == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [(None, "got a NoneType, but needs a finished profile"), (3, "got a int"), (profile(), "has not run yet")],
    ids=["none", "number", "early"],
)
def test_what_is_no_profile_is_said(given, told):
    with pytest.raises(modlab.ModlabError, match=told):
        modlab.costs(nested(), given)


def test_a_profile_without_marks_is_said():
    model = nested()
    with profiled(model, {}) as profiler:
        model(torch.ones(2, 10))
    with pytest.raises(modlab.ModlabError, match="names no module of Sequential"):
        modlab.costs(model, profiler)
    with pytest.raises(modlab.ModlabError, match=r"nn\.Module"):
        modlab.costs(3, profiler)
    with pytest.raises(KeyError, match=r"no module '1\.7'"):
        with profiled(model) as profiler:
            model(torch.ones(2, 10))
        modlab.costs(model, profiler)["1.7"]


def test_names_of_any_sort_are_shown():
    model = nn.Module()
    for name in zoo.HOSTILE:
        if name and "." not in name:
            model.add_module(name, nn.Identity())
    with profiled(model, dict(model.named_children())) as profiler:
        for child in model.children():
            child(torch.ones(1))
    costs = modlab.costs(model, profiler)
    assert "\x1b" not in str(costs)
    assert costs.html()


def test_the_model_is_free_afterwards():
    model = nested()
    with profiled(model) as profiler:
        model(torch.ones(64, 10))
    costs = modlab.costs(model, profiler)
    free = weakref.ref(model)
    del model
    gc.collect()
    assert free() is None
    assert str(costs)


def test_a_path_that_the_profiler_reads_as_a_symbol():
    model = nn.Sequential(nn.ReLU(), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.ReLU()))  # "2.0" is ".0" to it
    with profiled(model) as profiler:
        model(torch.ones(2, 4))
    costs = modlab.costs(model, profiler)
    assert [costs[path].calls for path in ("2", "2.0", "2.1")] == [1, 1, 1]
    assert costs["2.0"].bytes == 2 * 4 * 4
