"""The course's proofs and tasks on this machine's accelerator, or on the fake device: `make test-device` runs this file by its name.

It is none of the files that pytest finds: a fake device is there for the whole process, and other tests want a machine without one.
"""

from __future__ import annotations

import os
import re

import pytest
import torch
from torch import nn
from torch.utils._device import _device_constructors

from modlab.lessons import devices, self_test
from modlab.lessons.checking import evaluate, judge
from tests import courses, fake_device

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")  # torch's compiler, of itself

if not torch.accelerator.is_available():
    fake_device.install()
os.environ.pop(devices.VARIABLE, None)
DEVICE = devices.current()

LESSONS = courses.lessons()
SLOW = ("05_training_loop", "05b_dead_units", "near-zero-from-seed-63")
OWN = {
    "13_replaced_weights": "dynamic quantization runs on the CPU alone",
    "14_watching_and_rewriting": "it times the CPU, and exports and scripts for it",
    "15_two_processes": "gloo carries tensors of the CPU",
    "15b_sharded": "gloo carries tensors of the CPU",
}


class DrawnOnTheCPU(torch.overrides.TorchFunctionMode):
    """What is made is made on the device; random numbers are the CPU's, as `torch.randn(4).to(device)` has them."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in _device_constructors() and kwargs.get("device") is None and "out" not in kwargs:
            wants = kwargs.pop("requires_grad", False)
            made = function(*args, **kwargs)
            return made.to(DEVICE).requires_grad_(wants) if isinstance(made, torch.Tensor) else made
        name = getattr(function, "__name__", "")
        if name in ("uniform_", "normal_", "bernoulli_", "random_", "exponential_") and args and args[0].device.type == DEVICE.type:
            return args[0].copy_(getattr(torch.empty_like(args[0], device="cpu"), name)(*args[1:], **kwargs))
        return function(*args, **kwargs)


def label(thing):
    return getattr(thing, "name", str(thing)).replace(" ", "-")


def test_the_device_is_as_strict_as_a_gpu():
    x = torch.ones(2, 3).to(DEVICE)
    assert x.device.type in repr(x)
    for mixed in (
        lambda: x + torch.ones(2, 3),
        lambda: x @ torch.ones(3, 1),
        lambda: nn.Linear(3, 2)(x),
        lambda: torch.cat([x, torch.ones(2, 3)]),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mixed()
    with pytest.raises(TypeError, match="cpu"):
        x.numpy()
    assert (x + torch.tensor(1.0)).sum().item() == 12.0  # a number without dimension may come from the CPU


def test_its_random_numbers_are_its_own():
    torch.manual_seed(0)
    there = torch.randn(4, device=DEVICE).tolist()
    torch.manual_seed(0)
    assert torch.randn(4).tolist() != there
    torch.manual_seed(0)
    assert torch.randn(4, device=DEVICE).tolist() == there


def test_a_network_trains_there_as_on_the_cpu():
    def losses(device):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4), nn.LayerNorm(4)).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            loss = net(torch.randn(4, 1, 8, 8).to(device)).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield round(loss.item(), 3)

    assert [*losses(DEVICE)] == pytest.approx([*losses("cpu")], abs=5e-3)


def test_an_answer_that_names_the_device_is_correct():
    task = next(task for lesson in LESSONS for task in lesson.tasks if task.name == "Affine")
    given = f"{task.given}\nDEVICE = torch.device({str(DEVICE)!r})\n"
    tried = [judge(task, evaluate(given + _on_device(source), task.expression)) for source in (task.reference, task.mistakes[0].source)]
    assert [verdict.outcome for verdict in tried] == ["correct", "not yet"]


def _on_device(source):
    return re.sub(r"torch\.randn\((\w+(?:, \w+)*)\)", r"torch.randn(\1, device=DEVICE)", source)


EACH_QUESTION = [(one, question) for one in LESSONS for question in one.questions if question.proof]
EACH_TASK = [(one, task) for one in LESSONS for task in one.tasks]


ON_ITS_OWN = {
    "the-assertion": "what it loads stays where the file was written",
    "a-whole-net": "what it loads stays where the file was written",
    "ScaledLinear": "its subject is the device: its probes name the CPU and meta",
    "orthogonal": "its subject is the device: its probes name the CPU and meta",
}


def skip_of_its_own(lesson, thing):
    if label(thing) in ON_ITS_OWN:
        pytest.skip(ON_ITS_OWN[label(thing)])
    if DEVICE.type == fake_device.NAME and lesson.name in fake_device.CANNOT:
        pytest.skip(fake_device.CANNOT[lesson.name])
    if lesson.name in OWN:
        pytest.skip(OWN[lesson.name])
    if {label(lesson), label(thing)} & set(SLOW):
        pytest.skip("ten thousand rounds: the notebook's cells show on the device what they end at")


@pytest.mark.parametrize(("lesson", "question"), EACH_QUESTION, ids=label)
def test_a_proof_holds_on_the_device(lesson, question):
    skip_of_its_own(lesson, question)
    with DrawnOnTheCPU():
        assert list(self_test.of_question(question)) == []


@pytest.mark.parametrize(("lesson", "task"), EACH_TASK, ids=label)
def test_a_task_is_judged_alike_on_the_device(lesson, task):
    skip_of_its_own(lesson, task)
    with DrawnOnTheCPU():
        assert list(self_test.of_task(task)) == []
