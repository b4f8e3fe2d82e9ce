"""How a model is spread over processes, told from its classes; and a tensor's part on this rank."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import modlab
from modlab.inspection.distributed import distribution_of
from modlab.statistics import measure_tensor
from modlab.statistics.memory import absence, is_there, local
from tests.sharded import fake_ranks


@pytest.fixture
def ranks():
    """Four ranks of which this process is the third, and the others are not there: nothing here may wait for them."""
    with fake_ranks(4, rank=2):
        yield


def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def ddp():
    return DistributedDataParallel(net())


def fsdp2():
    model = net()
    fully_shard(model[0], mesh=init_device_mesh("cpu", (4,), mesh_dim_names=("dp",)))
    return fully_shard(model, mesh=init_device_mesh("cpu", (4,), mesh_dim_names=("dp",)))


def hsdp():
    return fully_shard(net(), mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards")))


def tp():
    return parallelize_module(net(), init_device_mesh("cpu", (4,), mesh_dim_names=("tp",)), {"0": ColwiseParallel()})


def both():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    return fully_shard(parallelize_module(net(), mesh["tp"], {"0": ColwiseParallel()}), mesh=mesh["dp"])


def fsdp1():
    return FullyShardedDataParallel(net(), device_id=torch.device("cpu"))


def replicated(*, of_fsdp):
    if of_fsdp:
        from torch.distributed._composable.replicate_with_fsdp import replicate

        return replicate(net(), mesh=init_device_mesh("cpu", (4,), mesh_dim_names=("dp",)))
    from torch.distributed._composable.replicate import replicate

    return replicate(net())


ROWS = {
    "plain": (net, (), (), ()),
    "ddp": (ddp, ("DDP",), (), ()),
    "fsdp1": (fsdp1, ("FSDP1",), (), ()),
    "fsdp2": (fsdp2, ("FSDP2",), (("dp", 4),), (2,)),
    "hsdp": (hsdp, ("FSDP2",), (("replicas", 2), ("shards", 2)), (1, 0)),
    "tp": (tp, ("TP",), (("tp", 4),), (2,)),
    "both": (both, ("FSDP2", "TP"), (("dp", 2), ("tp", 2)), (1, 0)),
    "sync": (lambda: nn.SyncBatchNorm(3), ("SyncBatchNorm",), (), ()),
    "replicate": (lambda: replicated(of_fsdp=False), ("DDP",), (), ()),
    "replicate, of fsdp": (lambda: replicated(of_fsdp=True), ("DDP",), (("dp", 4),), (2,)),
    "data parallel": (lambda: nn.DataParallel(net()), (), (), ()),
    "part of ddp": (lambda: ddp().module, (), (), ()),
    "part of fsdp2": (lambda: fsdp2()[0], ("FSDP2",), (("dp", 4),), (2,)),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_model_is_spread(ranks, row):
    make, kinds, mesh, coordinate = ROWS[row]
    model = make()
    with CommDebugMode() as counted:
        found = distribution_of(model)
    assert found == (kinds, 2, 4, mesh, coordinate)
    assert found.communicates is bool(kinds)
    assert not counted.get_total_counts()


@pytest.mark.parametrize("row", ROWS)
def test_without_processes_there_is_nothing_to_be_spread_over(row):
    assert distribution_of(net()) == ((), 0, 1, (), ())


def test_the_part_of_a_rank(ranks):
    whole = torch.arange(8.0)
    tensor = distribute_tensor(whole, init_device_mesh("cpu", (4,)), [Shard(0)])
    with CommDebugMode() as counted:
        assert local(tensor) is tensor._local_tensor
        assert is_there(tensor)
        tensor._local_tensor.untyped_storage().resize_(0)
        assert not is_there(tensor)
        assert "freed" in absence(tensor)
    assert local(whole) is whole
    assert isinstance(tensor, DTensor)
    assert not counted.get_total_counts()


def test_what_is_on_its_way_is_not_waited_for(ranks):
    import torch.distributed._functional_collectives as collectives

    coming = collectives.AsyncCollectiveTensor(torch.ones(3))
    tensor = DTensor.from_local(torch.ones(3), init_device_mesh("cpu", (4,)), [Shard(0)])
    tensor._local_tensor = coming
    for one in (coming, tensor):
        assert not is_there(one)
        assert "still arriving" in absence(one)
    assert not coming.completed
    coming.completed = True
    assert is_there(tensor)
    assert local(tensor) is coming.elem


def test_of_a_distributed_tensor_this_ranks_part_is_measured(ranks):
    part = torch.tensor([5.0, 6.0]) * 1j
    stats = measure_tensor(DTensor.from_local(part, init_device_mesh("cpu", (4,)), [Shard(0)]))
    assert (stats.shape, stats.count, stats.min, stats.max) == ((2,), 2, 5.0, 6.0)
    assert stats.note == "this rank's part of a DTensor; magnitudes of complex numbers"


@pytest.mark.parametrize("options", [{"on_nan": "stop"}, {"on_nan": "hold"}, {"inside": "shadow"}], ids=str)
def test_what_one_rank_would_do_alone_is_refused_at_the_start(ranks, options):
    model = fsdp2()
    with pytest.raises(modlab.ModlabError, match=r"talks to other ranks \(FSDP2 over 4\)"):
        modlab.watch(model, torch.optim.SGD(model.parameters(), 0.1), **options)


def test_the_page_cannot_hold_one_rank(ranks):
    model = fsdp2()
    with modlab.watch(model, torch.optim.SGD(model.parameters(), 0.1)) as w:
        for action in ("pause", "step", "stop"):
            with pytest.raises(modlab.ModlabError, match="the others would wait"):
                w.ask(action)


@pytest.mark.parametrize("make", [fsdp2, tp, both, fsdp1], ids=lambda make: make.__name__)
def test_checks_whose_passes_may_part_are_not_run(ranks, make):
    model = make()
    found = modlab.diagnose(model, batch=(torch.ones(6, 8), torch.ones(6, 4)), loss=nn.functional.mse_loss)
    assert {one.outcome for one in found.experiments} == {"not run"}
    assert all("talk to other ranks" in one.what for one in found.experiments)
