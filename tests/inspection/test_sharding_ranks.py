"""Sharded models in real processes: rank 0 looks, and the others do nothing meanwhile."""

from __future__ import annotations

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

import modlab
from tests.ranks import run_ranks
from tests.sharded import both, fsdp2, tensor_parallel, train

MAKERS = {"fsdp2": fsdp2, "tp": tensor_parallel, "fsdp2 x tp": both}


def _look(rank, way):
    """What rank 0 sees without the others, and what torch's own gathering says of it afterwards."""
    torch.manual_seed(0)
    net = MAKERS[way](blocks=1)
    optimizer = torch.optim.AdamW(net.parameters())
    before = modlab.snapshot(net, optimizer)
    train(net, optimizer, steps=2)
    seen = {}
    if rank == 0:
        with CommDebugMode() as counted:
            tree, state, found = modlab.tree(net), modlab.state(net, optimizer), modlab.diff(before, net)
            measured = {name: modlab.measure(parameter).l2 for name, parameter in net.named_parameters()}
            for view in (tree, state, found, modlab.hooks(net), modlab.internals(net), before):
                assert str(view) and view._repr_html_() and view.to_dict() is not None
        seen = {
            "collectives": counted.get_total_counts(),
            "tree": tree.headline,
            "state": state.headline,
            "diff": found.headline,
            "shapes": {row.path: row.shape for row in state.records},
            "l2": measured,
            "grads": {row.grad for row in state.records},
        }
    copies = {name: p.full_tensor().detach() if isinstance(p, DTensor) else p.detach() for name, p in net.named_parameters()}
    parts = {name: (p.to_local() if isinstance(p, DTensor) else p).detach().norm().item() for name, p in net.named_parameters()}
    return seen, {name: tuple(one.shape) for name, one in copies.items()}, parts


def _check(way, world, where):
    seen, shapes, parts = run_ranks(_look, world, way)[0]
    assert seen["collectives"] == 0
    for view in ("tree", "state", "diff"):
        assert f"sharded over {world} ranks; this is rank 0{where}" in seen[view]
    assert seen["shapes"] == shapes
    assert seen["l2"] == pytest.approx(parts, rel=1e-6)
    assert seen["grads"] <= {"present", "zero here", "zero"}


@pytest.mark.parametrize("way", ["fsdp2", pytest.param("tp", marks=pytest.mark.long)])
def test_rank_0_alone(way):
    _check(way, 2, "")


@pytest.mark.long
def test_rank_0_of_a_mesh_alone():
    _check("fsdp2 x tp", 4, " (dp 0 of 2, tp 0 of 2)")
