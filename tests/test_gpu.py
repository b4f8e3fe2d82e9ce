"""The same facts on a CUDA device. Run where there is one: pytest -m gpu."""

import pytest
import torch
from torch import nn

import modlab

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)).cuda()


def test_tree_and_state_read_as_on_the_cpu():
    net = network()
    there, here = str(modlab.tree(net)), str(modlab.tree(net.cpu()))
    assert there.replace("cuda:0", "cpu") == here


def test_gradients_of_a_gpu_model_are_told_with_one_copy():
    net = network()
    net(torch.randn(8, 64, device="cuda")).sum().backward()
    net[3].bias.grad.zero_()
    with torch.cuda.device(0):
        torch.cuda.set_sync_debug_mode("error")  # an .item() a tensor would raise here
        try:
            modlab.tree(net)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    grads = {row.path: row.grad for row in modlab.state(net).records}
    assert grads["0.weight"] == "present"
    assert grads["3.bias"] == "zero"


def test_nothing_changes():
    net = network()
    before, random = {k: v.clone() for k, v in net.state_dict().items()}, torch.cuda.get_rng_state()
    state = modlab.state(net, torch.optim.AdamW(net.parameters()))
    str(state), state.html(), state["0.weight"].html()
    assert torch.equal(random, torch.cuda.get_rng_state())
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in before.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64], ids=str)
def test_measure_agrees_with_the_cpu(dtype: torch.dtype):
    x = (torch.randn(300, 700) * 10).to(dtype)
    there, here = modlab.measure(x.cuda()), modlab.measure(x)
    assert (there.min, there.max, there.zeros, there.nan) == (here.min, here.max, here.zeros, here.nan)
    assert there.mean == pytest.approx(here.mean, abs=1e-5)
    assert there.std == pytest.approx(here.std, rel=1e-5)


def test_several_devices_are_flagged():
    net = nn.Sequential(nn.Linear(2, 2).cuda(), nn.Linear(2, 2))
    assert "several devices" in modlab.tree(net).records[0].flags
