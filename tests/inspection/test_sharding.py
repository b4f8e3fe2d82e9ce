"""Sharded models at rest: what is shown of them is so, on one rank alone, and without a word to the others."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.placement_types import _StridedShard

import modlab
from modlab.statistics import sharding
from modlab.views import sharding as words
from modlab.views.sheets import payload, trace
from modlab.views.sheets.layout import Box
from tests.sharded import WAYS, fake_ranks, fsdp1, fsdp2, train
from tests.views.test_faces import unpack

MESH = (2, 2)
PLACED = [
    pytest.param((Shard(0), Replicate()), (8, 4), "rows over dp, replicated over tp", (4, 4), id="rows"),
    pytest.param((Replicate(), Shard(1)), (8, 4), "columns over tp, replicated over dp", (8, 2), id="columns"),
    pytest.param((Shard(0), Shard(1)), (8, 4), "rows over dp, columns over tp", (4, 2), id="both"),
    pytest.param((Shard(0), Shard(0)), (8, 4), "rows over dp, then over tp", (2, 4), id="one after the other"),
    pytest.param((_StridedShard(0, split_factor=2), Shard(0)), (8, 4), "rows over dp, after rows over tp", (2, 4), id="strided"),
    pytest.param((Replicate(), Replicate()), (8, 4), "replicated over dp and tp", (8, 4), id="replicated"),
    pytest.param((Partial(), Replicate()), (8, 4), "partial sums over dp, replicated over tp", (8, 4), id="partial"),
    pytest.param((Shard(0), Replicate()), (5,), "elements over dp, replicated over tp", (3,), id="uneven vector"),
    pytest.param((Shard(0), Replicate()), (4, 3, 2, 2), "dimension 0 over dp, replicated over tp", (2, 3, 2, 2), id="convolution"),
]


@pytest.fixture
def four_ranks():
    with fake_ranks(4):
        yield init_device_mesh("cpu", MESH, mesh_dim_names=("dp", "tp"))


@pytest.mark.parametrize("placements, shape, said, local", PLACED)
def test_placements_in_words(four_ranks, placements, shape, said, local):
    stride = torch.zeros(shape).stride()
    tensor = DTensor.from_local(torch.zeros(local), four_ranks, placements, run_check=False, shape=shape, stride=stride)
    found = sharding.of_tensor(tensor)
    assert words.placement(found) == said
    assert (found.shape, found.local_shape) == (shape, local)


@pytest.mark.parametrize("rank", range(4))
@pytest.mark.parametrize("placements", [p.values[0] for p in PLACED if not any(isinstance(one, Partial) for one in p.values[0])], ids=str)
@pytest.mark.parametrize("rows", [8, 5, 3, 1])
def test_this_ranks_part_of_a_whole_tensor(placements, rank, rows):
    """What torch itself gives this rank is the oracle."""
    whole = torch.arange(rows * 4.0).view(rows, 4)
    with fake_ranks(4, rank):
        mesh = init_device_mesh("cpu", MESH, mesh_dim_names=("dp", "tp"))
        made = distribute_tensor(whole, mesh, placements, src_data_rank=None)
        found = sharding.part_of(whole, sharding.of_tensor(made))
        assert found is not None and torch.equal(found, made.to_local())


SAID = {
    "plain": "Net: 587 parameters in 9 modules; all",
    "fsdp2": "Net: 587 parameters in 9 modules, sharded over 4 ranks; this is rank 2; all",
    "hsdp": "Net: 587 parameters in 9 modules, sharded over 2 ranks in 2 replicas; this is rank 2 (copies 1 of 2, dp 0 of 2); all",
    "tp": "Net: 587 parameters in 9 modules, sharded over 4 ranks; this is rank 2; all",
    "fsdp2 x tp": "Net: 587 parameters in 9 modules, sharded over 4 ranks; this is rank 2 (dp 1 of 2, tp 0 of 2); all",
    "ddp": "Net: 587 parameters in 9 modules, replicated on 4 ranks; this is rank 2; all",
    "fsdp1": "FullyShardedDataParallel: 587 parameters in 12 modules, sharded over 4 ranks; this is rank 2; all",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_tree_counts_the_whole_and_says_what_is_here(way):
    with fake_ranks(4, 2):
        net = WAYS[way]()
        tree = modlab.tree(net)
        assert tree.headline.startswith(SAID[way])
        assert tree.total_parameters == 587
        here = {id(t): t for t in net.parameters()}.values()
        held = sum((t.to_local() if isinstance(t, DTensor) else t).numel() * 4 for t in here)
        assert tree[""].bytes == 587 * 4
        assert tree[""].bytes_here == held


@pytest.mark.parametrize("way", WAYS)
def test_looking_asks_no_rank(way):
    """Nobody else is there: with any collective but the fake ones it would hang."""
    with fake_ranks(4, 3):
        net = WAYS[way]()
        optimizer = torch.optim.AdamW(net.parameters())
        if way not in ("ddp", "fsdp1"):  # whose passes the fake process group cannot run
            train(net, optimizer)
        with CommDebugMode() as counted:
            for view in (modlab.tree(net), modlab.state(net, optimizer), modlab.hooks(net), modlab.internals(net)):
                assert str(view) and view._repr_html_() and view.to_dict() is not None
        assert counted.get_total_counts() == 0


def test_a_rank_without_rows_is_no_alarm():
    with fake_ranks(8, 7):
        net = fsdp2()
        optimizer = torch.optim.AdamW(net.parameters())
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        state = modlab.state(net, optimizer)
        row = next(row for row in state.records if row.path == "head.weight")
        assert row.shape == (3, 8)
        assert row.sharding.local_shape == (0, 8)
        assert (row.bytes, row.bytes_here) == (96, 0)
        assert row.grad == "present"
        assert "empty" not in str(state)
        assert all(one.grad == "present" for one in state.records)


def test_a_gradient_that_is_zero_here_may_be_none_elsewhere():
    with fake_ranks(2):
        net = fsdp2(blocks=1)
        for parameter in net.parameters():
            parameter.grad = torch.zeros_like(parameter)
        state = modlab.state(net)
        assert {row.grad for row in state.records} == {"zero here"}
        assert "6 gradients are zero in this rank's part" in state.headline


def test_units_say_their_dtypes():
    with fake_ranks(2):
        net = fsdp2(MixedPrecisionPolicy(torch.bfloat16, torch.float32))
        tree = modlab.tree(net)
        unit = tree["blocks.0"].unit
        assert (unit.kind, unit.param_dtype, unit.reduce_dtype) == ("FSDP2", "bfloat16", "float32")
        assert tree["blocks.0.up"].unit is None
        assert "FSDP unit: parameters in bfloat16, gradients reduced in float32" in str(tree)
        assert "hook" not in str(tree)


@pytest.mark.parametrize("way", ["fsdp2", "tp", "fsdp2 x tp", "hsdp"])
@pytest.mark.parametrize("world", [4, 64, 4096])
def test_sharded_layers_fold_as_others_do(way, world):
    folded = len(list(modlab.tree(WAYS["plain"](blocks=6, width=64)).record.rows(folded=True)))
    with fake_ranks(world):
        tree = modlab.tree(WAYS[way](blocks=6, width=64))
        assert len(list(tree.record.rows(folded=True))) == folded


def test_flat_parameters_of_fsdp1():
    with fake_ranks(2, 1):
        flat = modlab.state(fsdp1(use_orig_params=False, blocks=1)).records
        assert {row.name for row in flat} == {"_flat_param"}
        state = modlab.state(fsdp1(use_orig_params=True, blocks=1))
        row = next(row for row in state.records if row.path.endswith("up.weight"))
        assert row.shape == (16, 8)
        assert row.sharding.form == "in a flat parameter"
        assert "its state_dict() asks all ranks" in str(state)
        assert {r.kind for r in state.records} == {"parameter"}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_piece_of_a_flat_parameter_is_measured_as_what_it_is(rank):
    with fake_ranks(2, rank):
        net = fsdp1(use_orig_params=False, blocks=1)
        read, alone = modlab.state(net)["_fsdp_wrapped_module._flat_param"], modlab.measure(next(net.parameters()))
        held = next(net.parameters()).detach()[: 14 - rank]  # 27 numbers in all; what pads the second piece is none of them
        assert f"this rank's part ({14 - rank},) of float32 (27,), flat over 2 ranks" in read.headline
        assert read.zeros == 0 and read.l2 == pytest.approx(held.norm().item()) and "l2 here" in str(read)
        assert "this rank's part of a flat parameter" in str(alone)
        named = fsdp1(blocks=1)
        original = modlab.state(named)["_fsdp_wrapped_module.head.weight"]
        assert f"this rank's part ({14 if not rank else 10},) of float32 (3, 8), in a flat parameter" in original.headline


def test_one_rank_is_no_ranks():
    with fake_ranks(1):
        assert "replicated over 1 rank " in str(modlab.state(fsdp1(blocks=1)))


def test_a_model_outlives_its_process_group():
    with fake_ranks(2, 1):
        net = fsdp2()
    assert "sharded over 2 ranks; this is rank 1" in modlab.tree(net).headline
    assert not dist.is_initialized()


def test_ddp_shows_the_users_paths():
    with fake_ranks(2):
        net = WAYS["ddp"](blocks=1)
        tree, state = modlab.tree(net), modlab.state(net)
        assert tree.paths == ["", "blocks", "blocks.0", "blocks.0.up", "blocks.0.down", "head"]
        assert tree["module.head"] == tree["head"] and "module.head" in tree
        assert state["module.head.weight"].shape == state["head.weight"].shape == (3, 8)
        assert tree[""].unit.kind == "DDP"
        assert "DDP prefixes each of these names with 'module'" in str(state)


@pytest.mark.parametrize("wrapper", [torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel])
def test_all_views_of_a_wrapped_model_have_the_users_paths(wrapper):
    with fake_ranks(2):
        net = wrapper(WAYS["ddp"](blocks=1).module)
        inner, outer = net.module.head.register_forward_hook(print), net.register_forward_hook(print)
        hooks, lab, tree = modlab.hooks(net), modlab.lab(net), modlab.tree(net)
        around = f"({wrapper.__name__})"
        assert hooks.paths == [around, "head"]
        assert hooks["module.head"] == hooks["head"] == (*hooks.find("head"),) and len(hooks[around]) == 1
        assert lab.headline == tree.headline and tree["module.head"] == tree["head"]
        views = [one._fingerprint() for one in (hooks, modlab.internals(net), modlab.diagnose(net))]
        views += modlab.state(net)._fingerprint, lab._print
        assert {*views} == {modlab.state(net.module)._fingerprint}
        assert hooks.remove(around, function=print) == 1 and hooks.remove("module.head", function=print) == 1
        assert not len(hooks) and outer.id not in net._forward_hooks and inner.id not in net.module.head._forward_hooks


def test_replicate_is_said_and_its_hooks_are_no_attributes_of_the_user():
    from torch.distributed._composable.replicate import replicate

    with fake_ranks(2):
        net = replicate(torch.nn.Sequential(torch.nn.Linear(2, 2)))
        assert modlab.tree(net).headline.startswith("Sequential: 6 parameters in 2 modules, replicated on 2 ranks; this is rank 0")
        assert "__composable" not in str(modlab.internals(net))
        with pytest.raises(modlab.ModlabError, match=r"DDP over 2"):
            modlab.watch(net, torch.optim.SGD(net.parameters(), 0.1), on_nan="stop")


def test_meta_models():
    with fake_ranks(4):
        with torch.device("meta"):
            net = fsdp2()
        tree = modlab.tree(net)
        assert "sharded over 4 ranks" in tree.headline and "if it were real" in tree.headline
        assert modlab.state(net).records[0].sharding.local_shape == (4, 8)


# ---- values ----------------------------------------------------------------------------------------------------------------


def placed(mesh, placements, rows=6):
    """Numbers that tell where they come from, as torch itself shares them out."""
    return distribute_tensor(torch.arange(rows * 4.0).view(rows, 4), mesh, placements, src_data_rank=None)


def test_a_part_is_measured_and_called_so(four_ranks):
    tensor = placed(four_ranks, (Shard(0), Replicate()))
    with CommDebugMode() as counted:
        found = modlab.measure(tensor)
    assert counted.get_total_counts() == 0
    assert found.l2 == pytest.approx(torch.arange(12.0).norm().item())
    assert found.record.stats.of_part and found.record.stats.sharding.shape == (6, 4)
    assert "this rank's part (3, 4) of float32 (6, 4), rows over dp, replicated over tp, on cpu" in found.headline
    assert "l2 here" in str(found) and "l2 here" in found._repr_html_()
    row = found.to_dict()["records"][0]
    assert row["of"] == "this rank's part" and row["sharding"]["placement"] == "rows over dp, replicated over tp"


def test_a_trace_draws_what_is_here_and_says_how_it_lies(four_ranks):
    found = modlab.trace(nn.Identity())(placed(four_ranks, (Shard(0), Replicate())))
    row = trace.sheet(found.record).rows[0]
    box, how = row.cells[0].flow[0], "rows over dp, replicated over tp"
    assert box == Box((6, 4), True, (3, 4), how)
    assert f"(6, 4) [(3, 4) here: {how}]" in str(found)
    table = next(block for block in row.blocks() if block.caption == "inputs")
    assert table.head[:5] == ("name", "shape", "here", "placement", "mean ± std here")
    assert table.rows[0][1:4] == ("6×4", "3×4", how)
    content, _ = unpack(payload.of_sheet(trace.sheet(found.record), "", "", "0"))
    assert content["rows"][0]["cells"][0]["flow"] == [[6, 4, [3, 4], how], "→", [6, 4, [3, 4], how]]


def test_a_replica_is_the_whole_tensor(four_ranks):
    found = modlab.measure(placed(four_ranks, (Replicate(), Replicate())))
    assert not found.record.stats.of_part and "here" not in str(found)
    assert found.l2 == pytest.approx(torch.arange(24.0).norm().item())


def test_partial_sums_are_no_values(four_ranks):
    found = modlab.measure(DTensor.from_local(torch.ones(2), four_ranks, (Partial(), Replicate()), run_check=False))
    assert "partial values, not yet combined across ranks" in str(found)


def test_an_empty_part_has_no_elements_and_raises_nothing():
    with fake_ranks(4, 3):
        mesh = init_device_mesh("cpu", (4,))
        found = modlab.measure(placed(mesh, (Shard(0),), rows=2))
        assert found.count == 0 and "this rank's part (0, 4) of float32 (2, 4), rows over 4 ranks" in found.headline
        assert str(found) and found._repr_html_() and found.to_dict()


# ---- what changed ----------------------------------------------------------------------------------------------------------

SHARDED = [way for way in WAYS if way not in ("plain", "ddp", "fsdp1")]


@pytest.mark.parametrize("values", [True, False, "cpu"])
@pytest.mark.parametrize("way", SHARDED)
def test_diff_compares_this_ranks_part(way, values):
    with fake_ranks(4, 1):
        net = WAYS[way](blocks=1)
        optimizer = torch.optim.AdamW(net.parameters())
        for parameter in net.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        with CommDebugMode() as counted:
            before = modlab.snapshot(net, optimizer, values=values)
            same = modlab.diff(before, net)
            with torch.no_grad():
                local = net.head.weight.to_local() if isinstance(net.head.weight, DTensor) else net.head.weight
                local += 1
            found = modlab.diff(before, net)
            assert str(found) and found._repr_html_() and found.to_dict()
        assert counted.get_total_counts() == 0
        assert not same.changed and not same.not_compared
        assert [row.path for row in found.changed] == ["head.weight"]
        row = found["head.weight"]
        part = isinstance(net.head.weight, DTensor) and not row.sharding_after.whole
        assert row.of_part is part
        if values is not False:
            assert (row.changed, row.max_abs) == (local.numel(), pytest.approx(1, abs=1e-6))
        assert "in this rank's part" in found.headline and "this is rank 1" in found.headline
        assert (" changed here" in str(found)) is part


@pytest.mark.parametrize("way", SHARDED)
def test_a_snapshot_of_a_sharded_model_gives_back_a_state_dict(way):
    with fake_ranks(4, 1):
        net = WAYS[way](blocks=1)
        before = modlab.snapshot(net)
        with torch.no_grad():
            for parameter in net.parameters():
                (parameter.to_local() if isinstance(parameter, DTensor) else parameter).zero_()
        assert modlab.diff(before, net).changed
        net.load_state_dict(before.state_dict())
        assert not modlab.diff(before, net).changed


@pytest.mark.parametrize("rank", range(4))
def test_a_whole_checkpoint_beside_a_sharded_model(rank):
    """Of the whole, what this rank holds is cut out; no rank is asked."""
    from tests.sharded import Net, both

    torch.manual_seed(0)
    whole = Net(blocks=1).state_dict()
    with fake_ranks(4, rank):
        net = both(blocks=1)
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                parameter.to_local().copy_(sharding.part_of(whole[name], sharding.of_tensor(parameter)))
        found = modlab.diff(whole, net)
        assert not found.changed and not found.not_compared
        assert "0 of 6 tensors changed in this rank's part" in found.headline


def test_another_placement_is_a_change_and_what_cannot_be_compared_is_no_unchanged(four_ranks):
    was, now = placed(four_ranks, (Shard(0), Replicate())), placed(four_ranks, (Replicate(), Shard(1)))
    net = torch.nn.Module()
    net.weight = torch.nn.Parameter(was)
    before = modlab.snapshot(net)
    net.weight = torch.nn.Parameter(now)
    found = modlab.diff(before, net)
    row = found["weight"]
    assert (row.status, row.differs) == ("resharded", None)
    assert found.not_compared == [row]
    assert "1 tensor was not compared (it is sharded differently, and ranks would have to exchange their parts)" in found.headline
    assert "rows over dp, replicated over tp → columns over tp, replicated over dp" in str(found)
    mapped = modlab.diff({"w": was}, {"w": now})
    assert mapped["w"].status == "not compared" and not mapped.changed


def test_a_rank_that_holds_nothing_of_a_tensor_says_so():
    with fake_ranks(8, 7):
        net = fsdp2(blocks=1)
        found = modlab.diff(modlab.snapshot(net), net)
        assert found["head.weight"].here == 0
        assert "nothing here" in str(found)
