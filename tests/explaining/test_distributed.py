"""Errors of processes that train together, in a group of one: what is said, the line, and that what is offered runs."""

import re

import pytest
import torch
import torch.distributed as dist

import modlab
from tests.explaining.test_libraries import applied
from tests.explaining.test_provenance import Program

pytestmark = pytest.mark.skipif(not hasattr(dist, "ProcessGroupGloo"), reason="no gloo")

WRAPPED = """
from torch.nn.parallel import DistributedDataParallel as DDP
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        return self.a(x)
net = DDP(Net())
for _ in range(2):
    net(torch.randn(2, 4)).sum().backward()
"""
MIXED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor, Replicate
w = distribute_tensor(torch.zeros(3, 3), init_device_mesh("cpu", (1,)), [Replicate()])
y = torch.zeros(2, 3) @ w
"""
TWICE = """
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
    def forward(self, x):
        x = checkpoint(self.a, x, use_reentrant=True)
        return checkpoint(self.a, x, use_reentrant=True)
net = DDP(Net(), find_unused_parameters=True)
net(torch.randn(2, 4, requires_grad=True)).sum().backward()
"""
WHOLE = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
net = fully_shard(nn.Linear(4, 3), mesh=init_device_mesh("cpu", (1,)))
state = nn.Linear(4, 3).state_dict()
net.load_state_dict(state)
"""
# each: a program, whether there is a group, how the headline begins, the line, the code that is offered and runs
CASES = {
    "unused": (
        WRAPPED,
        True,
        "In the step before, b.weight, b.bias got no gradient, and DistributedDataParallel waits for all of them. "
        "Net's forward does not use them for the loss (rank 0).",
        "net(torch.randn(2, 4)).sum().backward()",
        ["net = DDP(Net(), find_unused_parameters=True)"],
    ),
    "nothing to train": (
        "from torch.nn.parallel import DistributedDataParallel as DDP\nnet = DDP(nn.ReLU())",
        True,
        "DistributedDataParallel got a model without trained parameters",
        "net = DDP(nn.ReLU())",
        ["net = nn.ReLU()"],
    ),
    "no group": (
        "import torch.distributed as dist\ndist.all_reduce(torch.ones(1))",
        False,
        "There is no process group yet",
        "dist.all_reduce(torch.ones(1))",
        None,
    ),
    "no environment": (
        "import torch.distributed as dist\ndist.init_process_group('gloo')",
        False,
        "init_process_group looks for its rank and its partners in the environment, but RANK is not set.",
        "dist.init_process_group('gloo')",
        None,
    ),
    "ready twice": (
        TWICE,
        True,
        "DistributedDataParallel was told twice in one backward that the gradient of a.",
        "net(torch.randn(2, 4, requires_grad=True)).sum().backward()",
        ["net = DDP(Net(), find_unused_parameters=True, static_graph=True)"],
    ),
    "a whole state_dict": (
        WHOLE,
        True,
        "weight is spread over processes, but the state_dict holds it whole.",
        "net.load_state_dict(state)",
        [
            "from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict\n"
            "set_model_state_dict(net, state, options=StateDictOptions(full_state_dict=True))"
        ],
    ),
    "mixed": (
        MIXED,
        True,
        "aten.mm.default got a plain tensor beside a DTensor: w is spread over processes, the other is not.",
        "y = torch.zeros(2, 3) @ w",
        [],
    ),
}


@pytest.fixture
def group(tmp_path, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)

    def begin():
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)

    yield begin
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_processes(name, group):
    text, together, said, line, offered = CASES[name]
    if together:
        group()
    found = Program(text)
    result = found.explained()
    assert result.family in ("distributed", "state_dict") and result.headline.startswith(said), result.headline
    assert result.record.line == line
    if offered is None:  # what is offered begins a group
        assert any("init_process_group(" in fix.code for fix in result.fixes)
        return
    assert [fix.code for fix in result.fixes if fix.code] == offered
    for fix in result.fixes:
        if fix.code:
            torch.manual_seed(0)
            found.run(applied(found, result, fix))


UNITS = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.body(x){})
mesh = init_device_mesh("cpu", (1,))
net = Net()
{}
x = torch.randn(2, 4)
net(x).sum().backward()
assert {{one.dtype for one in net.parameters()}} == {{torch.float32}}
"""
POLICY = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32{})"
WITHOUT_CAST = POLICY.format(", cast_forward_inputs=False")
GIVES = "fully_shard(net.body, mesh=mesh, mp_policy={})"
CASTS, WIDENS = POLICY.format(", cast_forward_inputs=True"), POLICY.format(", output_dtype=torch.float32")
# each: the units, and the policies that are offered one after the other
POLICIES = {
    "gets float32": (f"fully_shard(net, mesh=mesh, mp_policy={WITHOUT_CAST})", {"Let Net cast": CASTS}),
    "both": (GIVES.format(WITHOUT_CAST), {"Let body cast": CASTS, "Let body return float32": WIDENS}),
    "gives bfloat16": (GIVES.format(POLICY.format("")), {"Let body return float32": WIDENS}),
    "to a unit of float32": (GIVES.format(POLICY.format("")) + "\nfully_shard(net, mesh=mesh)", {"Let body return float32": WIDENS}),
}


def explained_units(text):
    """Nothing is offered that changes the weights, which a policy leaves as they are."""
    result = Program(text).explained()
    assert not any(one in fix.code for fix in result.fixes for one in ("net.float()", "net.bfloat16()"))
    return result


@pytest.mark.parametrize("name", POLICIES)
def test_a_unit_that_casts_is_mended_by_its_policy(name, group):
    units, offered = POLICIES[name]
    group()
    text = UNITS.format("", units)
    for said, policy in offered.items():
        fix = explained_units(text).fixes[0]
        assert fix.prose.startswith(said) and fix.code == policy
        text = re.sub(r"MixedPrecisionPolicy\(.*?\)", policy, text)
    Program(text).run()


def test_a_layer_in_a_unit_that_got_another_dtype_on_the_way_may_be_a_unit_itself(group):
    group()
    unit = f"fully_shard({{}}, mesh=mesh, mp_policy={POLICY.format('')})"
    offered = [fix.prose for fix in explained_units(UNITS.format(".float()", unit.format("net"))).fixes]
    assert any(prose.startswith("Or let head cast its inputs: make it a separate unit") for prose in offered)
    Program(UNITS.format(".float()", f"{unit.format('net.head')}\n{unit.format('net')}")).run()


class Trainer:
    """One whose own backward stands before the tensor's."""

    def backward(self, loss):
        loss.backward()


def test_a_trainers_backward_is_not_the_tensors():
    with pytest.raises(RuntimeError) as caught:
        Trainer().backward(torch.ones(2, requires_grad=True) * 2)
    assert "loss has 2 numbers. Its shape is (2,)" in str(modlab.explain(caught.value))


def test_texts_are_not_offered_as_numbers():
    with pytest.raises(TypeError) as caught:
        torch.nn.functional.cross_entropy(torch.ones(2, 3), ["a", "b"])
    told = modlab.explain(caught.value)
    assert "Its members are strings" in str(told) and not any(fix.code for fix in told.fixes)
