"""What a move left behind, and whether a tensor is the object that it was: `modlab.diff` of a snapshot and its model."""

import gc

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import modlab


class Mixed(nn.Module):
    """Registered tensors live in its children alone; itself it has what `.to()` does not reach."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 2), nn.BatchNorm1d(2)
        self.scale = torch.ones(2)
        self.extra = [torch.zeros(3), nn.Linear(2, 2)]
        self.places = {"here": torch.ones(1)}


LEFT = ["scale", "extra[0]", "extra[1].weight", "extra[1].bias", "places['here']"]


def moved(model, *where):
    before = modlab.snapshot(model)
    model.to(*where)
    return modlab.diff(before, model)


@pytest.mark.parametrize(("where", "said"), [(torch.float64, "stayed float32"), ("meta", "stayed on cpu")])
def test_each_tensor_that_was_left_behind_has_a_row(where, said):
    found = moved(Mixed(), where)
    noted = {r.path: r.note for r in found.records if "stayed" in r.note}
    counter = {"norm.num_batches_tracked": "stayed int64"} if where is torch.float64 else {}
    assert noted == {**counter, **dict.fromkeys(LEFT, said)}
    rows = {row.place: row for row in found._sheet().rows}
    assert all(rows[path].symbol == "ghost" and (rows[path].cells[0].text, rows[path].cells[0].mark) == (said, "careful") for path in LEFT)
    assert rows["scale"].kind == "plain tensor attribute" and rows["extra[0]"].kind == "not registered"
    assert all(path in str(found) for path in LEFT)
    [note] = [block for block in found._sheet().notes if block.caption == "left behind"]
    assert note.prose.startswith("scale, extra[0], extra[1].weight, extra[1].bias, ...: not registered")


def test_nothing_is_left_behind_where_only_a_part_was_moved():
    model = Mixed()
    before = modlab.snapshot(model)
    model.linear.to(torch.float64)
    assert not [r for r in modlab.diff(before, model).records if "stayed" in r.note]
    model = nn.Sequential(Mixed(), nn.Linear(2, 2))  # all at and below the module whose attributes they are
    before = modlab.snapshot(model)
    model[0].to(torch.float64)
    assert [r.path for r in modlab.diff(before, model).records if "stayed" in r.note and r.kind == "attribute"] == [f"0.{p}" for p in LEFT]


def test_what_moved_along_or_was_there_already_is_not_left_behind():
    model = Mixed()
    model.norm.to(torch.float64)
    before = modlab.snapshot(model)
    model.to(torch.float64)
    model.scale = model.scale.double()
    model.extra = None
    assert [r.path for r in modlab.diff(before, model).records if "stayed" in r.note] == ["norm.num_batches_tracked", "places['here']"]


def test_what_is_computed_before_each_forward_needs_no_help():
    layer = nn.Linear(3, 2)
    prune.l1_unstructured(layer, "weight", 0.5)
    found = moved(layer, torch.float64)
    assert found["weight"].note.startswith("stayed float32, recomputed before each forward")
    assert not [block for block in found._sheet().notes if block.caption == "left behind"]


def test_parameters_keep_their_object_and_buffers_do_not():
    model = nn.BatchNorm1d(2)
    objects = {name: id(tensor) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    kept = [*model.parameters(), *model.buffers()]
    found = moved(model, torch.float64)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        same = id(tensor) == objects[name]
        assert found[name].same_object is same
        assert found[name].note == ("stayed int64" if name == "num_batches_tracked" else "same object" if same else "a different object")
    assert len(kept) == 5 and found["running_mean"].note == "a different object"


def test_an_object_that_died_is_never_the_same():
    for _ in range(20):  # the new one may be given the old one's address
        model = nn.Linear(2, 2, bias=False)
        before = modlab.snapshot(model)
        values = model.weight.detach().clone()
        del model.weight
        gc.collect()
        model.weight = nn.Parameter(values)
        found = modlab.diff(before, model)
        assert found["weight"].status == "unchanged" and found["weight"].note == "a different object"
        assert "weight" in {row.place for row in found._sheet().rows}


def test_an_optimizer_step_says_nothing_of_objects():
    model = nn.Linear(2, 2)
    before = modlab.snapshot(model)
    with torch.no_grad():
        model.weight += 1
    found = modlab.diff(before, model)
    assert found["weight"].note == found["bias"].note == "" and found["weight"].same_object
    details = {row.place: dict(row.blocks()[0].rows) for row in found._sheet().rows if row.place in ("weight", "bias")}
    assert details["weight"]["object"] == details["bias"]["object"] == "the same"


def test_a_snapshot_does_not_keep_tensors_from_being_swapped():
    """Tensors with a weak reference cannot be: torch.__future__ would raise."""
    model = nn.Linear(2, 2)
    weight = model.weight
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        found = moved(model, torch.float64)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert model.weight is weight and found["weight"].status == "retyped"
    assert found["weight"].same_object is None and "object" not in found["weight"].note


def test_a_step_is_told_of_the_weights_and_what_the_optimizer_knows_is_folded_below_them():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    before = modlab.snapshot(model, optimizer)
    optimizer.step()
    found = modlab.diff(before, model)
    rows = list(found._sheet().rows)
    assert rows[0].cells[0].text == "2 changed"
    assert ("optimizer state changed", "6") in rows[0].blocks()[0].rows
    weight = next(i for i, row in enumerate(rows) if row.place == "weight")
    assert not rows[weight].opened and [(row.name, row.depth) for row in rows[weight + 1 : weight + 4]] == [
        (name, rows[weight].depth + 1) for name in ("step", "exp_avg", "exp_avg_sq")
    ]
    furthest = max(found[name].relative_l2 for name in ("weight", "bias"))
    assert dict(rows[0].blocks()[0].rows)["greatest relative L2"] == f"{furthest:.4g}"
    assert max(row.cells[-1].share or 0 for row in rows) == 1.0  # of the weights: an average's way from 0 is no measure for them
    assert all(row.cells[-1].share is None for row in rows[weight + 1 : weight + 4])
    assert "others" not in {row.name for row in rows}  # the gradients, which a step leaves as they are


def test_where_no_value_changed_no_column_says_so_row_by_row():
    found = moved(nn.Linear(2, 2), torch.float64)
    row = next(row for row in found._sheet().rows if row.place == "weight")
    assert row.cells[4].text == "" and ("elements changed", "none of 4") in row.blocks()[0].rows


def test_pruning_takes_a_parameter_away_and_that_is_said_first():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    before = modlab.snapshot(model)
    for layer in model:
        prune.l1_unstructured(layer, "weight", 0.5)
    assert modlab.diff(before, model).headline.startswith(
        "Sequential: 0.weight and 1.weight were parameters and are now plain attributes, which state_dict() leaves out; 2 of 4 tensors"
    )
