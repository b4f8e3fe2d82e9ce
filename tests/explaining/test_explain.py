"""Errors explained after the fact: each rule from real code, in words that say what, where and what to do."""

import contextlib
import copy
import gc
import sys
import time
import warnings
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import modlab
from modlab.errors import NotAnErrorError, NothingRaisedError
from modlab.explaining import explain, rules
from modlab.lessons.note import BigNet, DynamicNet, MyLinear, Net, RunningMean, StatefulModule
from modlab.views.sheets.layout import Box
from tests import zoo


def explained(cause):
    """The explanation of what `cause` raises."""
    try:
        cause()
    except BaseException as error:  # noqa: BLE001 - interruptions are among the cases
        return modlab.explain(error)
    raise AssertionError("it did not fail")


# ---- the two errors of the note, to the word ---------------------------------------------------------------------------------


def test_the_notes_first_error():
    dynamic_net = DynamicNet(3)
    result = explained(lambda: dynamic_net(torch.randn(5)))
    assert result.headline == (
        "DynamicNet's forward takes x and act; act is missing. "
        "It was given x alone; act chooses from activations: 'relu' or 'lrelu'; x has 5 numbers, and linears.0 takes 4."
    )
    assert result.fixes[0].code == "dynamic_net(torch.randn(4), 'relu')"
    torch.manual_seed(0)
    eval(result.fixes[0].code, {"torch": torch, "dynamic_net": dynamic_net})  # the call that it proposes works


def test_the_notes_second_error():
    dynamic_net = DynamicNet(3)
    result = explained(lambda: dynamic_net(torch.randn(5), "relu"))
    assert result.headline == "linears.0 got 5 numbers, but has weights for 4. DynamicNet stopped there: input (5,), weight (4, 4)."
    assert [fix.code for fix in result.fixes] == ["dynamic_net(torch.randn(4), 'relu')", "self.linears[0] = MyLinear(5, 4)"]
    assert [step.path for step in result.records] == ["", "linears.0"]
    assert "(5) @ (4×4): inner sizes 5 ≠ 4" in str(result)
    eval(result.fixes[0].code, {"torch": torch, "dynamic_net": dynamic_net})


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.l0 = MyLinear(4, 2)
        self.l1 = MyLinear(3, 1)

    def forward(self, x):
        x = self.l0(x)
        x = F.relu(x)
        return self.l1(x)


def big_net():
    model = BigNet()
    model.net = Small()
    return model


def test_the_ribbon_up_to_the_place():
    big = big_net()
    result = explained(lambda: big(torch.randn(5)))
    assert str(result).splitlines()[:8] == [
        "net.l1 got 2 numbers, but has weights for 3. BigNet stopped there: input (2,), weight (3, 1).",
        "path    module                                        what happened",
        "(root)  BigNet                                        (5,) → ✕ stopped inside",
        "l1      MyLinear                                      (5,) → (4,)",
        "net     Small                                         (4,) → ✕ stopped inside",
        "net.l0  MyLinear                                      (4,) → (2,)",
        "        F.relu function (no module: not in the tree)  (2,) → (2,)",
        "net.l1  MyLinear                                      (2,), weight (3, 1), bias (1,) → ✕ (2) @ (3×1): inner sizes 2 ≠ 3",
    ]
    assert [fix.code for fix in result.fixes] == ["self.l0 = MyLinear(4, 3)", "self.l1 = MyLinear(2, 1)"]
    assert [step.depth for step in result.records] == [0, 1, 1, 2, 2, 2]
    rows = result._sheet().rows
    assert rows[0].cells[0].flow[0] == Box((5,)) and rows[-1].cells[0].flow[0] == Box((2,), fits=False)  # drawn not to fit


def test_the_oracle_of_the_ribbon_is_a_trace():
    """The shapes that are inferred for what ran before are those that really passed."""
    big, seen = big_net(), {}
    handles = [
        m.register_forward_hook(lambda m, i, o, p=p: seen.update({p: (tuple(i[0].shape), tuple(o.shape))})) for p, m in big.named_modules()
    ]
    with contextlib.suppress(RuntimeError):
        big(torch.randn(5))
    for handle in handles:
        handle.remove()
    result = explained(lambda: big(torch.randn(5)))
    for step in result.records:
        if not step.stopped and step.path is not None:
            assert (step.inputs[0].shape, step.outputs[0].shape) == seen[step.path]


# ---- every rule, from real code --------------------------------------------------------------------------------------------

R = torch.randn


def script(model, *inputs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(model)
    scripted(*inputs)


def mean_twice():
    m, net = RunningMean(2), nn.Linear(2, 2)
    for _ in range(2):
        m(net(R(2))).sum().backward()


def changed_output():
    w = R(3, requires_grad=True)
    h = torch.sigmoid(w)
    h += 1
    h.sum().backward()


def step_between():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with torch.no_grad():
        for p in net.parameters():
            p.fill_(0.5)
    loss = net(torch.ones(4)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    loss.backward()


def backward_twice():
    loss = Net()(torch.ones(4)).sum()
    loss = loss * loss
    loss.backward()
    loss.backward()


def no_graph():
    net = Net()
    with torch.no_grad():
        out = net(R(4)).sum()
    out.backward()


def frozen():
    net = Net().requires_grad_(False)
    loss = net(R(4)).sum()
    loss.backward()


def leaf():
    w = nn.Parameter(torch.zeros(3))
    w.add_(1)


def hooked_in_place():
    layer = nn.Linear(3, 3)
    layer.register_full_backward_hook(lambda m, gi, go: None)
    nn.Sequential(layer, nn.ReLU(inplace=True))(R(2, 3, requires_grad=True))


class Holder(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = [*layers]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def parameters_of_no_name():
    other = Net()
    torch.optim.SGD((nn.ReLU() if other else other).parameters(), lr=0.1)


def hidden_parameters():
    net = Holder(nn.Linear(3, 3), nn.Linear(3, 3))
    torch.optim.SGD(net.parameters(), lr=0.1)


class Misspelled(nn.Module):
    def _init_(self):
        self.l = nn.Linear(2, 2)


def misspelled():
    net = Misspelled()
    torch.optim.SGD(net.parameters(), lr=0.1)


class Missing(nn.Module):
    def __init__(self):
        self.l = nn.Linear(2, 2)


class Late(nn.Module):
    def __init__(self):
        self.w = nn.Parameter(torch.ones(2))
        super().__init__()


class Forgot(nn.Module):
    def __init__(self):
        self.n = 3


class NoForward(nn.Module):
    pass


class Typo(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 2)

    def forward(self, x):
        return self.fc(x)


def prefixed(prefix):
    net = Net()
    net.load_state_dict({prefix + k: v for k, v in net.state_dict().items()})


def other_shape():
    m = RunningMean(4)
    m.mean = torch.zeros(2, 4)
    RunningMean(4).load_state_dict(m.state_dict())


def whole_checkpoint():
    net = Net()
    net.load_state_dict({"model": net.state_dict(), "epoch": 3})


def bad_forward_hook():
    def bad(module, args, output):
        return "x"

    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[0].register_forward_hook(bad)
    net(R(2, 3))


def bad_pre_hook():
    def bad(module, args):
        return 1, 2, 3

    net = nn.Sequential(nn.Linear(3, 3))
    net[0].register_forward_pre_hook(bad)
    net(R(2, 3))


def bad_backward_hook():
    def bad(module, grad_inputs, grad_outputs):
        return 42

    net = nn.Linear(3, 3)
    net.register_full_backward_hook(bad)
    net(R(2, 3, requires_grad=True)).sum().backward()


def none_in_a_backward_hook():
    def bad(module, grad_inputs, grad_outputs):
        return tuple(torch.ones_like(g) for g in grad_inputs)

    net = nn.Linear(3, 3)
    net.register_full_backward_hook(bad)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net(R(2, 3)).sum().backward()


def raising_hook():
    def bad(module, args, output):
        raise LookupError("nothing here")

    net = nn.Sequential(nn.Linear(3, 3))
    net[0].register_forward_hook(bad)
    net(R(2, 3))


def tensor_hook():
    x = R(2, 3, requires_grad=True)
    x.register_hook(lambda grad: grad[0])
    x.sum().backward()


def cat():
    a, b = R(2, 3), R(3, 4)
    torch.cat([a, b], dim=1)


def stack():
    a, b = R(2, 3), R(2, 4)
    torch.stack([a, b])


def add():
    a, b = R(2, 3), R(4)
    return a + b


def matmul():
    q, k = R(2, 3), R(2, 3)
    return q @ k


def view():
    x = R(2, 3, 5)
    x.view(4, 2)


def cross_entropy(target, out=(4, 3)):
    return lambda: F.cross_entropy(torch.zeros(out), target)


def lazy():
    net = nn.LazyLinear(3)
    return sum(p.numel() for p in net.parameters())


def out_of_memory():
    net = nn.Linear(10**6, 10**8)
    return net


def out_of_memory_in_a_module():
    class Greedy(nn.Module):
        def forward(self, x):
            wide = x.repeat(8, 1)
            return torch.empty(10**15) + wide

    net = nn.Sequential(nn.ReLU(), Greedy())
    net(R(64, 16))


CASES = {
    "linear": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(10, 3))(R(2, 3, 4)),
        "product",
        "1 (Linear) got rows of 12 numbers, but has weights for 10.",
    ),
    "flatten forgotten": (lambda: nn.Linear(12, 3)(R(2, 3, 4)), "product", "Linear got rows of 4 numbers, but has weights for 12."),
    "matmul": (matmul, "product", "q @ k: the inner sizes 3 and 2 differ."),
    "matmul, batches": (lambda: R(2, 3, 4) @ R(2, 5, 6), "product", "R(2, 3, 4) @ R(2, 5, 6): the inner sizes 4 and 5 differ."),
    "matmul, on meta": (
        lambda: nn.Linear(4, 3, device="meta")(R(2, 5, device="meta")),
        "product",
        "Linear got rows of 5 numbers, but has weights for 4.",
    ),
    "mv": (lambda: torch.mv(R(2, 3), R(2)), "product", "R(2, 3) @ R(2): the inner sizes 3 and 2 differ."),
    "einsum": (lambda: torch.einsum("bi,ij->bj", R(2, 3), R(4, 5)), "product", "einsum: i is 3 in one operand and 4"),
    "lstm": (lambda: nn.LSTM(3, 2)(R(2, 1, 4)), "product", "LSTM got rows of 4 numbers, but has weights for 3."),
    "attention": (lambda: nn.MultiheadAttention(8, 2)(*[R(3, 1, 6)] * 3), "product", "MultiheadAttention got rows of 6 numbers"),
    "lstm state": (lambda: nn.LSTM(3, 2)(R(2, 1, 3), (torch.zeros(1, 2, 2),) * 2), "product", "needs (1, 1, 2)."),
    "scripted": (lambda: script(nn.Sequential(nn.Linear(3, 3)), torch.ones(2, 5)), "product", "inner sizes 5 and 3 differ"),
    "conv channels": (lambda: nn.Conv2d(3, 8, 3)(R(2, 1, 28, 28)), "convolution", "Conv2d got 1 channel, but has weights for 3."),
    "conv, channels last": (lambda: nn.Conv2d(3, 8, 3)(R(2, 28, 28, 3)), "convolution", "Conv2d got 28 channels, but has weights for 3."),
    "conv dimensions": (lambda: nn.Conv2d(3, 8, 3)(R(28, 28)), "convolution", "Conv2d got 2 dimensions, but needs 4"),
    "conv kernel": (lambda: nn.Conv2d(3, 8, 5)(R(1, 3, 4, 4)), "convolution", "Conv2d slides a kernel of 5×5 over 4×4: nothing is left."),
    "pool": (lambda: nn.MaxPool2d(4)(R(1, 3, 2, 2)), "convolution", "MaxPool2d got 2×2 with windows of 4×4: nothing is left."),
    "padding": (lambda: nn.ReflectionPad2d(4)(R(1, 3, 2, 2)), "convolution", "ReflectionPad2d pads 4 on each side, but got only 2."),
    "batch norm": (lambda: nn.BatchNorm2d(3)(R(2, 4, 5, 5)), "norm", "BatchNorm2d got 4 channels, but keeps statistics for 3."),
    "batch norm dimensions": (lambda: nn.BatchNorm2d(3)(R(2, 3)), "norm", "BatchNorm2d got 2 dimensions, but needs 4."),
    "batch of one": (lambda: nn.BatchNorm1d(3)(R(1, 3)), "norm", "BatchNorm1d got one value of each channel in training mode"),
    "layer norm": (lambda: nn.LayerNorm(5)(R(2, 4)), "norm", "LayerNorm got a last size of 4, but has weights for 5."),
    "group norm": (lambda: nn.GroupNorm(2, 4)(R(2, 6, 3)), "norm", "GroupNorm got 6 channels, but has weights for 4."),
    "groups": (lambda: nn.GroupNorm(4, 4)(R(2, 6, 3)), "norm", "GroupNorm got 6 channels, which 4 groups cannot share evenly."),
    "cat": (cat, "join", "cat along dimension 1: b has 3 where a has 2."),
    "stack": (stack, "join", "stack: b is (2, 4) and the first is (2, 3)."),
    "loader": (lambda: [*torch.utils.data.DataLoader([R(2), R(3)], batch_size=2)], "join", "The DataLoader cannot make a batch"),
    "cat of nothing": (lambda: torch.cat([]), "join", "cat or stack got an empty list."),
    "add": (add, "broadcast", "a and b do not fit: 3 and 4 in dimension 1."),
    "expand": (lambda: R(2, 3).expand(2, 4), "broadcast", "expand cannot make 3 into 4 in dimension 1."),
    "view": (view, "view", "x has 30 numbers, which do not make 4×2."),
    "reshape": (lambda: R(2, 3, 5).reshape(-1, 4), "view", "R(2, 3, 5) has 30 numbers, which do not make ?×4."),
    "not contiguous": (lambda: R(2, 3).t().view(6), "view", "is not contiguous, and view cannot copy."),
    "index": (lambda: R(3)[5], "index", "has 3 in dimension 0, but 5 was asked for."),
    "dimension": (lambda: nn.Softmax(dim=1)(R(3)), "index", "Softmax got 1 dimension, but dimension 1 was asked for."),
    "class": (cross_entropy(torch.tensor([0, 1, 2, 3])), "loss", "The target holds class 3, but the model gives scores for 3 classes."),
    "batch of targets": (cross_entropy(torch.tensor([0, 1, 2])), "loss", "The loss got 4 predictions for 3 targets."),
    "float targets": (cross_entropy(torch.tensor([0.0, 1, 2, 1])), "loss", "The target holds class numbers of dtype float32"),
    "column of targets": (cross_entropy(torch.zeros(4, 1).long()), "loss", "The target is (4, 1) and should be (4,)"),
    "places of targets": (cross_entropy(torch.zeros(4, 5).long(), (4, 5, 3)), "loss", "The target is (4, 5) and should be (4, 3)."),
    "no probabilities": (
        lambda: nn.BCELoss()(torch.tensor([-1.0, 3.0]), torch.ones(2)),
        "loss",
        "BCELoss needs probabilities between 0 and 1; they go from -1 to 3.",
    ),
    "loss shapes": (
        lambda: nn.BCEWithLogitsLoss()(torch.zeros(4, 1), torch.ones(4)),
        "loss",
        "The predictions are (4, 1) and the targets (4,).",
    ),
    "binary targets": (lambda: nn.BCELoss()(torch.rand(4), torch.ones(4).long()), "loss", "The target is of dtype int64"),
    "embedding": (lambda: nn.Embedding(10, 3)(torch.tensor([3, 10])), "embedding", "Embedding has 10 rows, but was asked for index 10."),
    "embedding, negative": (
        lambda: nn.Embedding(10, 3)(torch.tensor([3, -1])),
        "embedding",
        "Embedding has 10 rows, but was asked for index -1.",
    ),
    "embedding, float": (lambda: nn.Embedding(10, 3)(torch.ones(2)), "embedding", "Embedding got numbers of dtype float"),
    "double": (lambda: nn.Linear(3, 2)(R(2, 3).double()), "dtype", "Linear got float64, but has float32 weights."),
    "long": (lambda: nn.Linear(3, 2)(torch.ones(2, 3).long()), "dtype", "Linear got int64, but has float32 weights."),
    "half": (lambda: nn.Linear(3, 2).half()(R(2, 3)), "dtype", "Linear got float32, but has float16 weights."),
    "the note's to(float64)": (lambda: Net().to(torch.float64)(R(4)), "dtype", "l0 got float32, but has float64 weights."),
    "conv dtype": (lambda: nn.Conv2d(1, 1, 1)(R(1, 1, 2, 2).double()), "dtype", "Conv2d got float64, but has float32 weights."),
    "norm dtype": (lambda: nn.LayerNorm(3)(torch.ones(2, 3).long()), "dtype", "LayerNorm got int64, but has float32 weights."),
    "no kernel": (lambda: torch.softmax(torch.ones(3).long(), 0), "dtype", "softmax does not exist for int64."),
    "mean of integers": (lambda: torch.ones(3).long().mean(), "dtype", "mean of int64 would not be a whole number."),
    "integer parameter": (
        lambda: nn.Parameter(torch.ones(3).long()),
        "dtype",
        "Only floating-point and complex tensors can require gradients.",
    ),
    "to(int)": (lambda: Net().to(torch.int), "dtype", "A module cannot become int32"),
    "meta input": (lambda: nn.Linear(3, 2)(R(2, 3, device="meta")), "device", "Linear got a tensor on the meta device"),
    "meta weights": (lambda: nn.Linear(3, 2, device="meta")(R(2, 3)), "device", "Linear is on the meta device"),
    "meta moved": (lambda: nn.Linear(3, 2, device="meta").to("cpu"), "meta", "Linear is on the meta device: there are no numbers to move."),
    "meta item": (lambda: R(2, device="meta").sum().item(), "meta", "is on the meta device: it has no numbers to read."),
    "lazy": (lazy, "lazy", "net.weight is lazy: it has no shape before the first forward pass."),
    "changed output": (changed_output, "in-place", "The output of sigmoid was changed in place, but backward needs its old values."),
    "changed parameter": (step_between, "in-place", "l1.weight was changed after the forward pass"),
    "in-place module": (
        lambda: nn.Sequential(nn.Sigmoid(), nn.ReLU(inplace=True))(R(3, requires_grad=True)).sum().backward(),
        "in-place",
        "The output of sigmoid",
    ),
    "twice": (backward_twice, "backward twice", "backward ran a second time through the same graph, from loss"),
    "a buffer with a graph": (mean_twice, "backward twice", "m.mean carries the graph of the last call"),
    "no graph": (no_graph, "no gradient", "out has no graph: there is nothing to go back through."),
    "frozen": (frozen, "no gradient", "loss has no graph: there is nothing to go back through. All parameters of net are frozen."),
    "not a scalar": (
        lambda: MyLinear(4, 3)(R(4)).backward(),
        "not a scalar",
        "backward starts from one number, and the loss has 3 numbers.",
    ),
    "leaf": (leaf, "leaf", "w is trained, but is changed in place where gradients are recorded."),
    "numpy": (lambda: nn.Linear(3, 3)(R(3)).numpy(), "numpy", "is part of a graph, which NumPy cannot follow."),
    "backward hook, in place": (
        hooked_in_place,
        "backward hook",
        "1 (ReLU) changes its input in place, which is the output of 0 (Linear) with its full backward hook.",
    ),
    "prefix": (
        lambda: prefixed("module."),
        "state_dict",
        "Only the prefix 'module.' differs, in the state_dict: DataParallel or DistributedDataParallel added it.",
    ),
    "compiled prefix": (
        lambda: prefixed("_orig_mod."),
        "state_dict",
        "Only the prefix '_orig_mod.' differs, in the state_dict: torch.compile added it.",
    ),
    "missing keys": (
        lambda: Net().load_state_dict({}),
        "state_dict",
        "Net and the state_dict differ: 4 of the model's names are not in the state_dict. None",
    ),
    "whole checkpoint": (whole_checkpoint, "state_dict", "What was given is a whole checkpoint: the weights are under its key 'model'."),
    "state shapes": (other_shape, "state_dict", "mean is (2, 4) in the state_dict and (4,) in RunningMean."),
    "a model for a state_dict": (lambda: Net().load_state_dict(Net()), "state_dict", "load_state_dict got a Net"),
    "hidden parameters": (
        hidden_parameters,
        "optimizer",
        "Holder has no registered parameter: layers (list of 2 Linear) is hidden from PyTorch.",
    ),
    "parameters of a model without a name": (parameters_of_no_name, "optimizer", "The optimizer got no parameters."),
    "_init_": (misspelled, "optimizer", "Misspelled has no parameter: its constructor is called _init_"),
    "a model for parameters": (
        lambda: torch.optim.SGD(Net(), lr=0.1),
        "optimizer",
        "The optimizer takes parameters, but got the Net itself.",
    ),
    "super missing": (Missing, "super().__init__", "Missing's constructor never calls super().__init__()."),
    "super late": (Late, "super().__init__", "Late calls super().__init__() too late: it assigns a parameter before that."),
    "never initialised": (lambda: Forgot()(R(2)), "super().__init__", "Forgot was never initialized"),
    "attribute": (lambda: Net().l3, "attribute", "Net has no 'l3'."),
    "attribute inside": (lambda: Typo()(R(2)), "attribute", "Typo has no 'fc'."),
    "no forward": (lambda: NoForward()(R(2)), "no forward", "NoForward has no forward"),
    "a list called": (lambda: nn.ModuleList([nn.ReLU()])(R(2)), "no forward", "A ModuleList holds modules, but does not run them."),
    "argument unexpected": (
        lambda: DynamicNet(1)(R(4), atc="relu"),
        "argument",
        "DynamicNet's forward has no argument 'atc'. It takes x, act. Nearest: 'act'.",
    ),
    "too many": (lambda: nn.Linear(3, 3)(R(3), R(3)), "argument", "Linear's forward takes 1 argument (input), but was given 2."),
    "no such key": (lambda: DynamicNet(1)(R(4), "tanh"), "argument", "activations has no 'tanh'."),
    "an array": (lambda: nn.Linear(3, 3)(np.ones(3)), "argument", "Linear got a NumPy array instead of a tensor"),
    "a tuple": (
        lambda: nn.Sequential(nn.LSTM(3, 3), nn.Linear(3, 3))(R(2, 1, 3)),
        "argument",
        "1 (Linear) got a tuple instead of a tensor (input of linear). 0 (LSTM) gives (output, (h, c)).",
    ),
    "forward hook": (
        bad_forward_hook,
        "argument",
        "1 (Linear) got a str instead of a tensor (input of linear). The forward hook bad on 0 (tests/explaining/test_explain.py:",
    ),
    "pre-hook": (bad_pre_hook, "argument", "The forward pre-hook bad on 0 (Linear) made 3 arguments of 1."),
    "backward hook": (bad_backward_hook, "hook", "The backward hook bad on net returned a bare int"),
    "None in a hook": (none_in_a_backward_hook, "argument", "The backward hook bad on net got None as a gradient"),
    "a hook raises": (raising_hook, "hook", "The forward hook bad on 0 raised the LookupError: nothing here"),
    "tensor hook": (tensor_hook, "hook", "The hook <lambda> on x returned a gradient of a different shape than it got."),
    "a class for a module": (lambda: nn.Sequential(nn.ReLU), "registration", "Sequential takes modules, but got the class ReLU itself."),
    "a name taken": (lambda: nn.ModuleDict({"type": nn.ReLU()}), "registration", "ModuleDict has 'type' already"),
    "reserved": (
        lambda: setattr(StatefulModule(), "param3", R(2)),
        "registration",
        "'param3' is reserved for a parameter in StatefulModule",
    ),
    "memory": (out_of_memory, "memory", "There was no memory left for 400.0 TB while Linear ran."),
    "memory in a module": (out_of_memory_in_a_module, "memory", "There was no memory left for 4.00 PB while 1 (Greedy) ran."),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule(name):
    cause, family, words = CASES[name]
    result = explained(cause)
    assert result.family == family
    assert words.replace("on net", "on Linear") in result.headline.replace("on net", "on Linear")
    assert result.fixes or name in ("einsum", "scripted", "expand", "a hook raises"), "no way out is shown"
    assert str(explained(cause)) == str(result) and " at 0x" not in str(result) and "\x1b" not in str(result)
    assert result.html(bundle=False) == explained(cause).html(bundle=False)


@pytest.mark.parametrize("name", ["linear", "conv channels", "batch norm", "layer norm", "embedding"])
def test_the_layer_that_is_proposed_fits(name):
    """The line of the last fix that makes a layer makes one that takes the input."""
    cause, *_ = CASES[name]
    inputs = {
        "linear": R(2, 12),
        "conv channels": R(2, 1, 28, 28),
        "batch norm": R(2, 4, 5, 5),
        "layer norm": R(2, 4),
        "embedding": torch.tensor([3, 10]),
    }
    code = next(fix.code for fix in reversed(explained(cause).fixes) if "nn." in fix.code)
    eval(code.rpartition(" = ")[2], {"nn": nn})(inputs[name])


MESSAGES = {
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.78 GiB of which 1.20 GiB is free.": (
        torch.OutOfMemoryError,
        "memory",
    ),
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!": (RuntimeError, "device"),
    "Expected all tensors to be on the same device, but got mat1 is on cpu, different from other tensors on cuda:0": (
        RuntimeError,
        "device",
    ),
    "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same": (RuntimeError, "device"),
    "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.": (TypeError, "device"),
    "CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later": (RuntimeError, "device"),
    "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.": (RuntimeError, "device"),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_of_a_gpu(message):
    kind, family = MESSAGES[message]

    class Far(nn.Module):
        def forward(self, x):
            raise kind(message)

    result = explained(lambda: nn.Sequential(Far())(R(2)))
    assert result.family == family and result.fixes and result.records[-1].path == "0"


def test_weights_only(tmp_path):
    torch.save(Net(), tmp_path / "net.pt")
    result = explained(lambda: torch.load(tmp_path / "net.pt"))
    assert result.family == "weights_only" and "modlab.lessons.note.Net" in result.headline
    assert str(tmp_path) not in str(result) and "weights_only=False" in str(result)
    assert any("modlab.state(path)" in remark for remark in result.record.remarks)


def test_a_missing_folder(tmp_path):
    assert explained(lambda: torch.save({}, tmp_path / "none" / "x.pt")).headline.startswith("The folder 'none' does not exist")


def test_the_prefix_is_repaired():
    net = Net()
    state = {"module." + key: value for key, value in net.state_dict().items()}
    result = explained(lambda: net.load_state_dict(state))
    assert exec(result.fixes[0].code, {"net": net, "state": state}) is None  # runs, strictly


def normalized():
    return nn.Sequential(*(layer for width in (1, 4, 4) for layer in (nn.Conv2d(width, 4, 3), nn.BatchNorm2d(4))))


def loaded(model, given):
    model.load_state_dict(given)


def test_a_prefix_is_seen_past_the_counts_of_batch_norms():
    """torch names num_batches_tracked among the unexpected, and not among the missing."""
    net = normalized()
    sd = {"module." + key: value for key, value in net.state_dict().items()}
    result = explained(lambda: net.load_state_dict(sd))
    assert result.headline.startswith("Only the prefix 'module.' differs, in the state_dict: DataParallel")
    assert [fix.code for fix in result.fixes] == ["net.load_state_dict({k.removeprefix('module.'): v for k, v in sd.items()})"]
    exec(result.fixes[0].code, {"net": net, "sd": sd})  # strictly
    wrapped = nn.DataParallel(net)
    given = net.state_dict()
    result = explained(lambda: wrapped.load_state_dict(given))
    assert result.headline.startswith("Only the prefix 'module.' differs, in the model: DataParallel")
    exec(result.fixes[0].code, {"wrapped": wrapped, "given": given})
    sd["stranger.num_batches_tracked"] = torch.tensor(0)  # then it is not all the difference
    assert "Only the prefix" not in explained(lambda: net.load_state_dict(sd)).headline


def test_strict_is_given_up_only_where_something_would_be_loaded():
    net, other = normalized(), nn.ModuleDict({"a": nn.Linear(3, 3)})
    result = explained(lambda: loaded(net, other.state_dict()))
    assert "strict=False)" not in "".join(fix.code for fix in result.fixes)
    assert "None of the model's 18 tensors would be loaded with strict=False." in result.headline
    assert explained(lambda: loaded(net, {})).fixes[0].code == "print(list(given)[:3])\nprint(list(model.state_dict())[:3])"
    few = {"0.weight": net[0].weight}
    result = explained(lambda: loaded(net, few))
    assert "Only 1 of the model's 18 tensors" in result.headline and "strict=False)" not in result.fixes[0].code
    most = net.state_dict()
    del most["0.weight"]
    result = explained(lambda: loaded(net, most))
    assert result.fixes[0].prose == "To load what fits (17 of 18 tensors) and list what did not:"
    assert result.fixes[0].code == "print(model.load_state_dict(given, strict=False))"
    exec(result.fixes[0].code, {"model": net, "given": most})
    most["2.bias"] = torch.zeros(5)  # strict=False does not forgive a shape: its fix leaves that out
    exec(explained(lambda: loaded(net, most)).fixes[0].code, {"model": net, "given": most})


def test_a_part_of_a_larger_model_is_taken_out():
    net = normalized()
    full = nn.ModuleDict({"backbone": net, "head": nn.Linear(2, 2)}).state_dict()
    result = explained(lambda: loaded(net, full))
    exec(result.fixes[0].code, {"model": net, "given": full})
    renamed = {key.replace("1.", "norm.", 1) if key.startswith("1.") else key: value for key, value in net.state_dict().items()}
    result = explained(lambda: loaded(net, renamed))  # its count is renamed with it
    exec(result.fixes[0].code, {"model": net, "given": renamed})


def test_a_file_is_called_one_where_there_is_one(tmp_path):
    net = Net()
    torch.save({"module." + key: value for key, value in net.state_dict().items()}, tmp_path / "w.pt")

    def direct():
        net.load_state_dict(torch.load(tmp_path / "w.pt"))

    def named():
        weights = torch.load(tmp_path / "w.pt")
        net.load_state_dict(weights)

    def part():
        saved = torch.load(tmp_path / "w.pt")
        saved = {"model": torch.load(tmp_path / "w.pt"), "epoch": len(saved)}
        net.load_state_dict(saved["model"])

    def renewed():
        weights = torch.load(tmp_path / "w.pt")
        weights = {"module." + key: value for key, value in net.state_dict().items()}
        net.load_state_dict(weights)

    assert "differs, in the file:" in explained(direct).headline
    exec(explained(direct).fixes[0].code, {"net": net, "torch": torch, "tmp_path": tmp_path})
    assert "differs, in the file:" in explained(named).headline and "weights.items()" in explained(named).fixes[0].code
    assert "differs, in the file:" in explained(part).headline and "in saved['model'].items()" in explained(part).fixes[0].code
    assert "differs, in the state_dict:" in explained(renewed).headline


class Headed(nn.Module):
    def __init__(self, expected=1568):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(expected, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


_WAY = "A traceback does not show all that ran before. To see the way there: with modlab.trace({0}) as t: {0}({1})"


def test_the_way_there_can_be_traced():
    model, pictures = Headed(), R(2, 1, 28, 28)
    result = explained(lambda: model(pictures))
    assert result.headline.startswith("head got rows of 2704 numbers, but has weights for 1568.")
    assert _WAY.format("model", "pictures") in str(result)
    assert "is flattened: the input may not have the size you meant." in str(result)
    traced = explained(lambda: modlab.trace(model)(pictures))
    assert not any("To see the way there" in said for said in traced.record.remarks) and traced.family == "product"
    unnamed = _WAY.format("model", "pictures").replace("there:", "there, write model = Headed() first, then:")  # nobody has that name
    assert unnamed in str(explained(lambda: Headed()(pictures)))
    known = " ".join(explained(lambda: Small()(R(5))).record.remarks)  # nothing is missing there, nothing is flattened
    assert "To see the way there" not in known and "another size" not in known
    flat = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    result = " ".join(explained(lambda: flat(R(2, 1, 32, 32))).record.remarks)
    assert "inputs of 1×28×28, so the input may not have the size you meant." in result and "To see the way" not in result


def test_rows_are_named_below_the_row_above_them():
    result = explained(lambda: DynamicNet(3)(R(5), "relu"))
    assert [row.name for row in result._sheet().rows] == ["(root)", "linears.0"]
    big = big_net()
    rows = explained(lambda: big(R(5)))._sheet().rows
    assert [row.name for row in rows] == ["(root)", "l1", "net", "l0", "F.relu", "l1"]


class Scored(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Embedding(50, 50)

    def forward(self, tokens, targets):
        return self.scores(tokens)


class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Scored()])

    def forward(self, x):
        return self.blocks[0](x)


def test_a_loss_is_called_as_it_was():
    logits, target, loss_fn = R(4, 16, 50), torch.randint(50, (4, 16)), nn.CrossEntropyLoss()
    names = {"logits": logits, "target": target, "loss_fn": loss_fn, "F": F}
    result = explained(lambda: loss_fn(logits, target))
    codes = [fix.code for fix in result.fixes]
    assert codes == ["loss_fn(logits.flatten(0, 1), target.flatten())", "loss_fn(logits.transpose(1, 2), target)"]
    first, second = (eval(code, names) for code in codes)
    assert torch.allclose(first, second)
    result = explained(lambda: F.cross_entropy(logits * 2, target=target, ignore_index=-1))
    assert result.fixes[0].code == "F.cross_entropy((logits * 2).flatten(0, 1), target.flatten(), ignore_index=-1)"
    eval(result.fixes[0].code, names)
    pair = (logits, target)
    assert explained(lambda: loss_fn(*pair)).fixes[0].code == "loss_fn(input.flatten(0, 1), target.flatten())"


def test_a_missing_argument_gets_a_name():
    tokens, target, model = torch.randint(50, (4, 16)), torch.randint(50, (4, 16)), Scored()
    assert target is not None
    fix = explained(lambda: (model(tokens), target)).fixes[0]
    assert (fix.prose, fix.code) == ("The call with all of them:", "model(tokens, target)")
    eval(fix.code, {"model": model, "tokens": tokens, "target": target})
    fix = explained(lambda: Scored()(tokens)).fixes[0]
    assert (fix.prose, fix.code) == ("The call with all of them; targets stands for your own:", "model = Scored()\nmodel(tokens, targets)")
    exec(fix.code, {"Scored": Scored, "tokens": tokens, "targets": target})
    around = Around()
    assert explained(lambda: around(tokens)).fixes[0].code == "self.blocks[0](x, targets)"
    assert explained(lambda: model(tokens, target=3)).fixes[0].code == "model(tokens, targets=3)"


def test_a_hidden_list_is_registered_by_the_fix():
    result = explained(hidden_parameters)
    net = Holder(nn.Linear(3, 3))
    exec(result.fixes[0].code, {"self": net, "nn": nn})
    assert len([*net.parameters()]) == 2


# ---- where -------------------------------------------------------------------------------------------------------------------


def test_a_module_in_a_plain_list_has_no_path():
    net = Holder(nn.Linear(3, 3), nn.Linear(4, 4))
    result = explained(lambda: net(R(1, 3)))
    assert result.records[-1].path is None and result.records[-1].name == "layers[1]"
    assert "PyTorch does not see it" in result.records[-1].note and result.headline.startswith("layers[1] got")
    assert result.fixes[0].code == "self.layers[1] = nn.Linear(3, 4)"


def test_a_call_past_call_is_noted():
    class Direct(Small):
        def forward(self, x):
            return self.l1.forward(x)

    assert "hooks are skipped" in explained(lambda: Direct()(R(4))).records[-1].note


def test_checkpointing_and_recursion():
    inner = nn.Linear(3, 3)

    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x, depth=2):
            return self(x, depth - 1) if depth else checkpoint(self.inner, x, use_reentrant=False)

    result = explained(lambda: Again()(R(2, 5)))
    assert [step.path for step in result.records] == ["", "", "", "inner"]


def test_a_path_in_a_large_model_is_found_quickly():
    class Expert(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Identity(), nn.Identity()

        def forward(self, x):
            return self.down(self.up(x))

    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.ModuleList(Expert() for _ in range(250)) for _ in range(60))

        def forward(self, x):
            return self.layers[59][249](x)

    model = Mixture()
    model.layers[59][249].down = nn.Linear(4, 2)
    x = R(1, 2)
    result = explained(lambda: model(x))
    assert result.records[-1].path == "layers.59.249.down" and sum(1 for _ in model.modules()) > 45_000
    start = time.perf_counter()
    explained(lambda: model(x))
    assert time.perf_counter() - start < 5  # a fraction of a second; a busy machine is not the subject


def test_errors_of_traced_and_wrapped_models():
    big = big_net()
    result = explained(lambda: modlab.trace(big)(R(5)))
    assert result.headline == "net.l1 got 2 numbers, but has weights for 3. BigNet stopped there: input (2,), weight (3, 1)."
    assert explained(lambda: nn.DataParallel(Net())(R(2, 5))).records[-1].path == "l0"
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4)))
    assert explained(lambda: graph(R(2, 3))).headline.startswith("1 (Linear) got rows of 3 numbers, but has weights for 4.")


def test_a_branch_before_makes_no_promise():
    """What ran in a branch is not known, so it is listed as such, and not blamed."""

    class Branching(Small):
        def forward(self, x):
            if x.sum() > 100:
                x = self.l0(x)
            return self.l1(x)

    net = Branching()
    result = explained(lambda: net(R(4)))
    assert [(step.path, step.said) for step in result.records[:2]] == [("", ""), ("l0", "ran if x.sum() > 100")]
    assert [fix.code for fix in result.fixes] == ["self.l1 = MyLinear(4, 1)"]


# ---- certainty: what is said is checked against the tensors, or is not said ---------------------------------------------------


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.square = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(4, 4))

    def forward(self, q, k):
        return torch.relu(q) @ torch.relu(k) * self.scale


def loss_of_three():
    anchor, positive, negative = R(2, 3), R(2, 3), R(2, 4)
    return nn.TripletMarginLoss()(anchor, positive, negative)


def flattened_by_torch():
    a, b = R(2, 3, 4), R(3)
    return a @ b


def functional():
    torch.func.functional_call(nn.Linear(3, 2), {"weight": torch.zeros(2, 4)}, (R(1, 3),))


def again_in_its_words():
    try:
        Net()(R(5))
    except RuntimeError as error:
        raise TrainingError(str(error))  # noqa: B904


class TrainingError(RuntimeError):
    pass


def unpacked_state():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.fc = nn.LSTM(3, 4, batch_first=True), nn.Linear(8, 1)

        def forward(self, x):
            _, (h, _c) = self.rnn(x)
            return self.fc(h[-1])

    Last()(R(2, 5, 3))


CERTAIN = {
    "factors that cannot be followed": (
        lambda: Normed()(R(2, 3), R(5, 4)),
        "torch.relu(q) @ torch.relu(k): the inner sizes 3 and 5 differ in Normed. torch.relu(q) is (2, 3), torch.relu(k) is (5, 4).",
    ),
    "a vector among the operands": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))(R(2, 5)), "weight (4, 4)."),
    "a computed weight": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))(R(2, 5)), "weight (3, 4)."),
    "another weight at the time": (functional, "a @ b: the inner sizes 3 and 4 differ in Linear."),
    "the shape before torch flattens it": (flattened_by_torch, "a is (2, 3, 4), b is (3,)."),
    "two of three": (loss_of_three, "anchor and negative do not fit in TripletMarginLoss: 3 and 4 in dimension 1."),
    "none of three": (lambda: nn.CosineEmbeddingLoss()(R(2, 3), R(2, 3), torch.ones(3)), "Two tensors do not fit in CosineEmbeddingLoss:"),
    "raised again": (again_in_its_words, "l0 got 5 numbers, but has weights for 4."),
}


@pytest.mark.parametrize("name", CERTAIN)
def test_only_what_is_certain(name):
    cause, words = CERTAIN[name]
    assert words in explained(cause).headline


def test_a_handled_error_is_done_with():
    def cause():
        try:
            Net()(R(5))
        except RuntimeError:
            open("none/of/these")  # noqa: SIM115

    assert explained(cause).family == ""


def test_none_is_blamed_on_the_module_that_gave_it():
    class Silent(nn.Module):
        def forward(self, x):
            x.relu()

    def given():
        net = Silent()
        out = net(R(2, 3))
        return out.shape

    def to_a_loss():
        net = Silent()
        out = net(R(2, 3))
        F.mse_loss(out, R(2, 3))

    def of_another():
        net, w = Silent(), nn.Parameter(R(2))  # noqa: F841 - in sight, and innocent
        return w.grad.norm()

    for cause in (given, to_a_loss):
        assert explained(cause).headline.startswith("out is None: Silent's forward has no return.")
    assert explained(of_another).headline.startswith("w.grad is None: no backward has reached w")
    assert "0 (Silent) gave it: its forward has no return." in explained(lambda: nn.Sequential(Silent(), nn.Linear(3, 3))(R(2, 3))).headline


def test_parameters_of_one_shape_are_all_named():
    def cause():
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        loss = net(R(2, 4)).sum()
        loss.backward(retain_graph=True)
        optimizer.step()
        loss.backward()

    assert explained(cause).headline.startswith("A parameter of shape (4, 4) (0.weight, 2.weight) was changed after the forward pass")


def test_a_loop_that_goes_on_otherwise_promises_no_shapes():
    class Cut(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(3, 4), nn.Linear(5, 4)])

        def forward(self, x):
            for _i, layer in enumerate(self.layers):
                x = layer(x)
                x = x[:, :3]
            return x

    steps = explained(lambda: Cut()(R(2, 4))).records
    assert [step.path for step in steps] == ["", "layers.0", "layers.1", "layers.2"]
    assert not steps[2].inputs  # it was (2, 3): not what layers.0 gave


def test_a_constructor_may_take_tensors():
    """What it is given is no mistake where something else failed."""

    class Table(nn.Module):
        def __init__(self, rows, n):
            super().__init__()
            self.rows, self.fc = nn.Embedding.from_pretrained(rows), nn.Linear(n / 2, 3)

    result = explained(lambda: Table(torch.zeros(3, 2), 5))
    assert result.family == "constructor" and result.headline.startswith("nn.Linear got in_features=2.5, but needs a whole number.")
    assert explained(lambda: Table(torch.zeros(3, 2))).headline.startswith("Table takes rows and n; n is missing.")
    x = R(2)
    assert explained(lambda: Sized(x)).headline.startswith("Sized(x) makes a new Sized instead of calling one: a tensor became its n.")


def test_a_state_that_a_model_keeps():
    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.state, self.fc = torch.zeros(2), nn.Linear(2, 2)

        def forward(self, x):
            self.state = torch.tanh(self.fc(x) * self.state + 1)
            return self.state

    def cause():
        net = Keeping()
        net(R(2)).sum().backward()
        net(R(2)).sum().backward()

    assert "net.state = net.state.detach()" in [fix.code for fix in explained(cause).fixes]


def test_sizes_that_are_equal_by_chance_are_not_blamed():
    """A picture of 8×8 for a layer of 8 channels: its channels do not stand last."""
    for layer, x in (
        (nn.Conv2d(8, 3, 3), R(2, 4, 8, 8)),
        (nn.BatchNorm2d(8), R(2, 4, 8, 8)),
        (nn.LayerNorm(16), R(16, 8)),
        (nn.Linear(16, 2), R(16, 3, 8)),
    ):
        codes = [fix.code for fix in explained(lambda layer=layer, x=x: layer(x)).fixes]
        assert codes and all("nn." in code or "(torch.randn(" in code or "layer(" in code for code in codes), codes


# ---- what is proposed is tried -----------------------------------------------------------------------------------------------


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4 * 6 * 6, 10)

    def forward(self, x):
        return self.fc(torch.flatten(self.conv(x), 1))


class ByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(R(4, 2)), nn.Parameter(R(2))

    def forward(self, x):
        return F.linear(x, self.w, self.b)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 4, num_layers=2)

    def forward(self, x):
        return self.gru(x, torch.zeros(2, x.shape[0], 4))[0]


def turned_state():
    state = {"conv.weight": torch.zeros(3, 3), "conv.bias": torch.zeros(3), "fc.weight": torch.zeros(2, 3), "fc.bias": torch.zeros(2)}
    net = nn.ModuleDict({"layer": nn.Linear(3, 3), "head": nn.Linear(3, 2)})
    return net, state


def scored(target):
    return lambda: nn.CrossEntropyLoss()(R(4, 3), target)


def tried(cause, number=0, **names):
    code = explained(cause).fixes[number].code
    scope = {"torch": torch, "nn": nn, "F": F, **names}
    exec(code, scope)
    return scope


def test_the_fixes_run():
    x = R(1, 8, 8)
    assert Picture()(tried(lambda: Picture()(x), x=x)["x"]).shape == (1, 10)
    net = ByHand()
    tried(lambda: net(R(3, 4)), self=net)
    assert net(R(3, 4)).shape == (3, 2)
    net = Recurrent()
    tried(lambda: net(R(5, 7, 3)), self=net)
    assert net(R(5, 7, 3)).shape == (5, 7, 4)
    net, state = turned_state()
    tried(lambda: net.load_state_dict(state), net=net, state=state)
    assert torch.equal(net.layer.weight, torch.zeros(3, 3))
    x = R(8, 100)
    up = nn.ConvTranspose2d(100, 4, 4)
    assert up(tried(lambda: up(x), x=x)["x"]).shape == (8, 4, 4, 4)
    video = R(2, 3, 8, 8)
    assert nn.Conv3d(3, 4, 1)(tried(lambda: nn.Conv3d(3, 4, 1)(video), video=video)["video"]).shape == (2, 4, 1, 8, 8)
    q = k = R(2, 5, 4)
    assert eval(explained(lambda: q @ k).fixes[0].code, {"q": q, "k": k}).shape == (2, 5, 5)
    ids = torch.tensor([3, -1])
    table, _, line = explained(lambda: nn.Embedding(4, 2)(ids)).fixes[0].code.partition("\n")
    scope = {"ids": ids}
    exec(line, scope)
    assert eval(table, {"nn": nn})(scope["ids"])[1].tolist() == [0, 0]  # the padding's own row
    target = torch.tensor([0, 2, 255, 1])
    assert eval(explained(scored(target)).fixes[0].code, {"nn": nn})(R(4, 3), target).isfinite()
    one_hot = F.one_hot(torch.tensor([0, 1, 2, 1]), 3)
    y = tried(scored(one_hot), target=one_hot)["target"]
    assert y.tolist() == [0, 1, 2, 1]


LAYERS = [
    (nn.Conv2d(3, 8, 3, padding="same", padding_mode="circular"), R(2, 1, 8, 8)),
    (nn.InstanceNorm2d(4, affine=True), R(2, 3, 8, 8)),
    (nn.ConvTranspose2d(8, 3, 4, 2, 1), R(2, 4, 8, 8)),
    (nn.Conv2d(3, 8, (3, 1), stride=2, bias=False), R(2, 4, 8, 8)),
    (nn.LSTMCell(8, 16), R(4, 9)),
    (nn.MultiheadAttention(8, 2, batch_first=True), R(3, 5, 6)),
]


@pytest.mark.parametrize(("layer", "x"), LAYERS, ids=lambda thing: type(thing).__name__)
def test_a_proposed_layer_is_like_the_old_one(layer, x):
    inputs = [x] * 3 if isinstance(layer, nn.MultiheadAttention) else [x]
    made = eval(explained(lambda: layer(*inputs)).fixes[-1].code.rpartition(" = ")[2] or "None", {"nn": nn})
    made(*inputs)
    for name in ("stride", "padding", "padding_mode", "kernel_size", "affine", "batch_first", "hidden_size"):
        assert getattr(made, name, None) == getattr(layer, name, None)
    assert (getattr(made, "bias", None) is None) == (getattr(layer, "bias", None) is None)


# ---- more programs, as they are asked about ----------------------------------------------------------------------------------


def item():
    loss = nn.Linear(2, 1)(R(3, 2)).mean().item()
    loss.backward()


def carried_state():
    rnn, h = nn.RNN(4, 8), torch.zeros(1, 2, 8)
    for _ in range(2):
        out, h = rnn(R(5, 2, 4), h)
        out.sum().backward()


def growing_total():
    net, total = nn.Linear(4, 1), 0
    for _ in range(3):
        total = total + net(R(2, 4)).pow(2).mean()
        total.backward()


def two_losses():
    out = torch.sigmoid(nn.Linear(4, 2)(R(3, 4)))
    first, second = out[:, 0].mean(), out[:, 1].mean()
    first.backward()
    second.backward()


def gradient_of_a_gradient():
    x = R(3, requires_grad=True)
    (g,) = torch.autograd.grad((x**3).sum(), x)
    g.sum().backward()


def two_networks():
    left, right = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizer = torch.optim.SGD(right.parameters(), 0.1)
    score = right(left(R(4, 2))).mean()
    score.backward(retain_graph=True)
    optimizer.step()
    (-score).backward()


class Sized(nn.Module):
    def __init__(self, n=2):
        super().__init__()
        self.fc = nn.Linear(n, 2)

    def forward(self, x):
        return self.fc(x)


class Plain:
    def __init__(self):
        self.k = 1


class Mixed(Plain, nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)


class Careless(nn.Module):
    def __init__(self):
        self.fc = nn.Linear(2, 2)  # super().__init__() is only a comment here


class Heir(Careless):
    def __init__(self):
        super().__init__()
        self.more = 1


class Foward(Sized):
    forward = nn.Module.forward

    def foward(self, x):
        return self.fc(x)


class Inside(nn.Module):
    def __init__(self):
        super().__init__()

        def forward(self, x):
            return x


class Chosen(nn.Module):
    def forward(self, x, *, mask):
        return x * mask


def loader(batch):
    def cause():
        net = Sized()
        net(batch)

    return cause


def filtered():
    net = Sized().requires_grad_(False)
    torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)


def unequal_in_a_worker():
    for _ in torch.utils.data.DataLoader([R(1), R(2)], batch_size=2, num_workers=1):
        pass


def attention(**more):
    x = R(3, 7, 16)
    return lambda: nn.MultiheadAttention(16, 4, batch_first=True)(x, x, x, **more)


def translated(source, target):
    def cause():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = nn.Transformer(16, 4, 1, 1)
        model(source, target)

    return cause


def mask_of_scores():
    s, mask = R(3, 7, 7), torch.ones(3, 6)
    return s.masked_fill(mask == 0, 0.0)


def given_a_module():
    class Wrong(nn.Module):
        def forward(self, x):
            return nn.ReLU(x)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.Sequential(Wrong(), nn.Linear(2, 2))(R(1, 2))


PROGRAMS = {
    "item": (item, "no gradient", "loss is a plain float, which has no graph to go back through.", "loss.backward()"),
    "state": (carried_state, "backward twice", "backward ran a second time", "h = h.detach()"),
    "total": (growing_total, "backward twice", "from total", "total += loss.item()"),
    "two losses": (two_losses, "backward twice", "from second", "(first + second).backward()"),
    "create_graph": (gradient_of_a_gradient, "no gradient", "only with create_graph=True.", "create_graph=True"),
    "another's step": (two_networks, "in-place", "right.weight was changed after the forward pass", "optimizer.step()"),
    "a class called": (lambda: Sized(R(1, 2)), "class called", "makes a new Sized instead of calling one", "model = Sized()"),
    "a loss class called": (
        lambda: nn.CrossEntropyLoss(torch.zeros(4, 3), torch.zeros(4).long()),
        "class called",
        "makes a new CrossEntropyLoss",
        "model = nn.CrossEntropyLoss()",
    ),
    "a method of a class": (
        lambda: torch.optim.SGD(Sized.parameters(), lr=0.1),
        "class called",
        "Sized.parameters is called on the class, not on a model.",
        "model.parameters()",
    ),
    "a mixin": (Mixed, "super().__init__", "Mixed's super().__init__() is that of Plain", "super().__init__()"),
    "an heir": (Heir, "super().__init__", "Careless's constructor never calls super().__init__().", "class Careless(nn.Module):"),
    "forward inside": (lambda: Inside()(R(2)), "no forward", "It is defined inside __init__", "def forward"),
    "keyword-only": (lambda: Chosen()(R(2)), "argument", "Chosen's forward takes x and mask; mask is missing.", "mask=mask"),
    "a batch": (loader([R(2, 2), R(2)]), "argument", "fc got a list instead of a tensor", "x, y = batch\nnet(x)"),
    "a batch of names": (loader({"pixels": R(2, 2), "label": 1}), "argument", "fc got a dict", "batch = batch['pixels']"),
    "a tuple for conv": (lambda: nn.Conv2d(3, 3, 1)((R(1, 3, 2, 2), 1)), "argument", "Conv2d got a tuple instead of", ", 1)[0])"),
    "a module for a tensor": (given_a_module, "argument", "1 (Linear) got a ReLU", "x = nn.ReLU()(x)"),
    "all frozen": (filtered, "optimizer", "all 2 parameters of net are frozen.", "net.requires_grad_(True)"),
    "not called": (lambda: torch.optim.SGD(Sized().parameters, lr=0.1), "optimizer", "the method parameters itself", ".parameters()"),
    "no parameters": (lambda: torch.optim.SGD(nn.Sequential(nn.ReLU()).parameters(), lr=0.1), "optimizer", "The optimizer got no", ""),
    "in a worker": (unequal_in_a_worker, "join", "The DataLoader cannot make a batch", "collate_fn"),
    "mask": (attention(attn_mask=torch.zeros(6, 6)), "attention", "got an attn_mask of (6, 6), but needs (7, 7).", "torch.zeros(7, 7"),
    "padding": (attention(key_padding_mask=torch.zeros(7, 3).bool()), "attention", "with 7 in dimension 0, but needs 3.", ".T"),
    "whole numbers": (
        lambda: nn.TransformerEncoderLayer(16, 4)(R(7, 3, 16), src_key_padding_mask=torch.zeros(3, 7).long()),
        "attention",
        "got a src_key_padding_mask of int64",
        ".bool()",
    ),
    "widths": (translated(R(5, 2, 8), R(5, 2, 16)), "attention", "Transformer is 16 wide (d_model), and src has 8", "nn.Linear(8, 16)"),
    "batches": (translated(R(5, 2, 16), R(5, 3, 16)), "attention", "their batches differ", "batch_first=True"),
    "scores": (mask_of_scores, "broadcast", "s and mask == 0 do not fit: 6 and 7 in dimension 2.", "print(s.shape, (mask == 0).shape)"),
    "bmm": (lambda: torch.bmm(*[R(3, 4)] * 2), "", "", ""),
    "swapped": (lambda: nn.CrossEntropyLoss()(torch.zeros(4).long(), R(4, 3)), "loss", "they are swapped", "Loss()(R(4, 3), "),
    "segmentation": (lambda: F.cross_entropy(R(2, 5, 8, 8), torch.zeros(2, 1, 8, 8).long()), "loss", "should be (2, 8, 8)", ".squeeze(1)"),
    "targets of BCE": (lambda: nn.BCELoss()(torch.ones(3), torch.tensor([0.0, 1, 2])), "loss", "go from 0 to 2", "nn.CrossEntropyLoss()"),
    "one score": (
        lambda: nn.CrossEntropyLoss()(R(2, 1), torch.tensor([0, 1])),
        "loss",
        "scores for 1 class. Only 0 is valid.",
        "nn.BCEWithLogitsLoss()",
    ),
    "measured values": (lambda: nn.Embedding(4, 2)(torch.tensor([0.5])), "embedding", "got numbers of dtype float32", "nn.Linear(...)"),
    "rows written": (lambda: R(3, 4).__setitem__(0, torch.zeros(5)), "broadcast", "A tensor of (5,) does not fit where (4,) is needed", ""),
    "letters": (lambda: torch.einsum("ij,jk->ik", R(2, 3), R(3)), "product", "einsum: 2 letters for", ""),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name):
    cause, family, words, code = PROGRAMS[name]
    result = explained(cause)
    assert result.family == family
    assert not words or words in result.headline
    assert not code or code in result.fixes[0].code or any(code in fix.code for fix in result.fixes)
    assert "torch.compile was looking" not in str(result)


def test_renamed_forward():
    assert explained(lambda: Foward()(R(1, 2))).headline.endswith("It has 'foward', which PyTorch does not look for.")


def test_what_is_not_known_is_passed_over():
    for cause in (lambda: bool(R(3) > 0), lambda: [].append(R(2).nothing), lambda: Sized()({}), lambda: {}["fc"]):
        result = explained(cause)
        assert result.family in ("", "argument") and str(result)


# ---- which error -------------------------------------------------------------------------------------------------------------


def test_the_error_being_handled_and_the_last_one(monkeypatch):
    try:
        Net()(R(5))
    except RuntimeError:
        assert modlab.explain().headline.startswith("l0 got 5 numbers")
    for name in ("last_exc", "last_value"):
        monkeypatch.delattr(sys, name, raising=False)
    with pytest.raises(NothingRaisedError, match="found no error"):
        modlab.explain()
    try:
        Net()(R(6))
    except RuntimeError as error:
        monkeypatch.setattr(sys, "last_value", error, raising=False)
    assert modlab.explain().headline.startswith("l0 got 6 numbers")


@pytest.mark.parametrize("thing", [42, "error", RuntimeError, Net()], ids=repr)
def test_what_is_no_error(thing):
    with pytest.raises(NotAnErrorError, match="needs an exception"):
        modlab.explain(thing)


def test_an_unknown_error_is_said_to_be_unknown():
    class Odd(nn.Module):
        def forward(self, x):
            raise ArithmeticError("mine")

    result = explained(lambda: nn.Sequential(Odd())(R(2)))
    assert result.family == "" and result.headline.startswith("modlab does not know this ArithmeticError.")
    assert [step.path for step in result.records] == ["", "0"]  # what the traceback shows is shown all the same
    assert explained(lambda: 1 / 0).family == "" and explained(lambda: {}["a"]).family == ""
    assert explained(lambda: modlab.tree(3)).family == ""  # our own errors explain themselves


def raise_from():
    try:
        Net()(R(5))
    except RuntimeError as error:
        raise ValueError("training failed") from error


def raise_within():
    try:
        Net()(R(5))
    except RuntimeError:
        raise ValueError("training failed")  # noqa: B904


def raise_group():
    try:
        Net()(R(5))
    except RuntimeError as error:
        raise ExceptionGroup("two", [KeyError("x"), error]) from None


RELATED = [(raise_from, "the cause of"), (raise_within, "what came before"), (raise_group, "one of those in")]


@pytest.mark.parametrize(("cause", "relation"), RELATED)
def test_causes_contexts_and_groups(cause, relation):
    result = explained(cause)
    assert result.headline.startswith("l0 got 5 numbers") and result.record.error == "RuntimeError"
    assert relation in result.record.remarks[-1]


def test_a_context_that_was_suppressed_is_left_alone():
    def cause():
        try:
            Net()(R(5))
        except RuntimeError:
            raise ValueError("mine") from None

    assert explained(cause).family == ""


# ---- robust ------------------------------------------------------------------------------------------------------------------


class Hostile(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def endless():
    return endless()


ODD = {
    "no traceback": lambda: modlab.explain(RuntimeError("mat1 and mat2 shapes cannot be multiplied (1x5 and 4x4)")),
    "no text": lambda: modlab.explain(Hostile()),
    "odd arguments": lambda: modlab.explain(RuntimeError(object(), 3)),
    "syntax": lambda: explained(lambda: compile("def f(:", "x", "exec")),
    "interrupt": lambda: explained(lambda: (_ for _ in ()).throw(KeyboardInterrupt)),
    "recursion": lambda: explained(endless),
    "no source": lambda: explained(lambda: exec("def f(net, x):\n    return net(x)\nf(net, x)", {"net": Net(), "x": R(5)})),
    "long": lambda: modlab.explain(RuntimeError("x" * 10_000_000)),
    "itself": lambda: modlab.explain(caused_by_itself()),
    "empty group": lambda: modlab.explain(BaseExceptionGroup("g", [KeyboardInterrupt()])),
}


def caused_by_itself():
    error = RuntimeError("round")
    other = ValueError("and round")
    error.__cause__, other.__cause__ = other, error
    return error


@pytest.mark.parametrize("name", ODD)
def test_odd_errors(name, capsys):
    result = ODD[name]()
    assert str(result) and result.html() and result.to_dict()["kind"] == "explain"
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("case", zoo.every(large=False), ids=str)
def test_whatever_is_in_the_frames(case):
    """Odd modules on the stack, in local names and as inputs."""
    model = case.build()

    class Around(nn.Module):
        def forward(self, x, things):
            broken, lying = [Odd()], LyingClass()  # noqa: F841 - to be met
            return x @ torch.ones(3, 3)

    outer = Around()
    outer._modules["odd"] = model
    result = explained(lambda: outer(torch.ones(2, 4), {"model": model, "odd": Odd()}))
    assert result.family == "product" and result.records[0].path == ""
    assert str(result) and result.html()


class Odd:
    def __getattribute__(self, name):
        raise RuntimeError("nothing")

    def __repr__(self):
        raise RuntimeError("nothing")

    __bool__ = __len__ = __eq__ = __iter__ = __hash__ = __repr__


class LyingClass:
    @property
    def __class__(self):
        raise RuntimeError("no class")


def test_hostile_names():
    net = nn.Sequential()
    name = zoo.HOSTILE[1]
    net.add_module(name, nn.Linear(3, 3))
    result = explained(lambda: net(R(2, 5)))
    assert result.records[-1].path == name
    assert "<script>alert" not in result.html(bundle=False) and "</script><script>" not in result.html()
    assert "\n" not in explained(lambda: nn.ModuleDict({"a": nn.ReLU()})["a\nb"]).headline


def test_a_family_that_fails_says_nothing(monkeypatch):
    def fails(failure, match):
        raise RuntimeError("ours")

    broken = rules.Rule("broken", (RuntimeError,), "mat1", fails)
    monkeypatch.setattr(explain, "RULES", (broken, *rules.RULES))
    assert explained(lambda: Net()(R(5))).family == "product"
    monkeypatch.setattr(explain, "_chain", fails)
    assert explained(lambda: Net()(R(5))).family == ""


# ---- look, don't touch -------------------------------------------------------------------------------------------------------


def test_nothing_is_kept_and_nothing_is_changed():
    net = big_net()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    state, flags = torch.random.get_rng_state(), [m.training for m in net.modules()]
    x = R(5)
    held = weakref.ref(x)
    torch.random.set_rng_state(state)
    try:
        net(x)
    except RuntimeError as error:
        shown, args, traceback = str(error), error.args, error.__traceback__
        result = modlab.explain(error)
        assert (str(error), error.args, error.__traceback__) == (shown, args, traceback) and error.__context__ is None
        notes = getattr(error, "__notes__", None)
        assert notes is None
        del traceback
    assert torch.equal(torch.random.get_rng_state(), state) and [m.training for m in net.modules()] == flags
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    del x
    gc.collect()
    assert held() is None  # no frame, no tensor
    model = weakref.ref(net)
    del net
    gc.collect()
    assert model() is None and str(result).startswith("net.l1 got 2 numbers")


def test_a_frame_that_still_runs_does_not_keep_what_it_deletes():
    x = R(5)
    held = weakref.ref(x)
    try:
        Net()(x)
    except RuntimeError as error:
        modlab.explain(error)
    del x
    gc.collect()
    assert held() is None


def test_the_locals_that_somebody_holds_stay():
    def cause():
        x, mine = R(5), locals()  # one and the same dict in each call, until Python 3.13
        try:
            Net()(x)
        except RuntimeError as error:
            modlab.explain(error)
        return mine

    assert "x" in cause()


def test_no_graph_and_no_tensor_in_the_record():
    result = explained(backward_twice)
    seen, todo = set(), [result.record]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type):
            continue
        seen.add(id(thing))
        assert not isinstance(thing, (torch.Tensor, nn.Module, type(sys._getframe())))
        todo += gc.get_referents(thing)


def test_modes_of_the_users_see_nothing():
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    errors = []
    for cause, *_ in CASES.values():
        try:
            cause()
        except Exception as error:  # noqa: BLE001
            errors.append(error)
    with Watching(), Dispatched():
        families = [modlab.explain(error).family for error in errors]
    assert families == [family for _, family, _ in CASES.values()]
    assert seen == []


def test_it_takes_milliseconds():
    """About one; a busy machine may take more."""
    big = big_net()
    try:
        big(R(5))
    except RuntimeError as error:
        modlab.explain(error)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            modlab.explain(error)
            times.append(time.perf_counter() - start)
    assert min(times) < 0.02


def test_data():
    result = explained(lambda: Net()(R(5)))
    data = result.to_dict()
    assert data["family"] == "product" and data["facts"]["l0: input"] == "(5,)" and data["fixes"][0]["code"]
    assert [record["path"] for record in data["records"]] == ["", "l0"]
    assert repr(result.records[-1]) == "<l0: MyLinear (5) @ (4×3): inner sizes 5 ≠ 4>"


# ---- IPython -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shell(shell):
    """With the note's classes."""
    shell.run_cell("import torch\nfrom torch import nn\nimport modlab\nfrom modlab.lessons.note import *")
    return shell


def texts(shell):
    return [output["data"]["text/plain"] for output in shell.display_pub.outputs]


def test_below_the_traceback(shell, capsys):
    shell.run_line_magic("load_ext", "modlab")
    shell.run_cell("dynamic_net = DynamicNet(3)\ndynamic_net(torch.randn(5), 'relu')")
    (output,) = shell.display_pub.outputs
    assert output["data"]["text/plain"].startswith("linears.0 got 5 numbers, but has weights for 4.")
    assert "modlab" in output["data"]["text/html"]
    assert "RuntimeError" in "".join(capsys.readouterr())  # the traceback stands as it did
    shell.display_pub.outputs.clear()
    for quiet in ("1/0", "def f(:", "3", "raise KeyboardInterrupt", "raise ValueError('mine')"):
        shell.run_cell(quiet)
    assert texts(shell) == []
    shell.run_line_magic("unload_ext", "modlab")
    shell.run_cell("dynamic_net(torch.randn(5), 'relu')")
    assert texts(shell) == []
    shell.run_line_magic("load_ext", "modlab")
    shell.run_line_magic("reload_ext", "modlab")
    shell.run_cell("dynamic_net(torch.randn(5))")
    assert len(texts(shell)) == 1 and texts(shell)[0].startswith("DynamicNet's forward takes x and act; act is missing.")
    assert "a cell of this notebook" in texts(shell)[0]


def test_a_trace_that_explains_is_enough(shell):
    shell.run_line_magic("load_ext", "modlab")
    shell.run_cell("modlab.trace(Net())(torch.randn(5))")
    assert not [text for text in texts(shell) if text.startswith("l0 got 5 numbers")]  # (a shell of a test shows no trace)
    shell.run_cell("net = Net()\nwith modlab.trace(net):\n    net(torch.randn(5))")  # nothing is shown there
    assert [text for text in texts(shell) if text.startswith("l0 got 5 numbers")]


def test_below_the_traceback_of_an_async_cell(shell):
    shell.run_line_magic("load_ext", "modlab")
    shell.run_cell("import asyncio\nawait asyncio.sleep(0)\nNet()(torch.randn(5))")
    assert len(texts(shell)) == 1 and texts(shell)[0].startswith("l0 got 5 numbers")


def test_the_last_error_of_the_shell(shell):
    shell.run_cell("Net()(torch.randn(7))")
    shell.run_cell("result = modlab.explain()")
    assert shell.user_ns["result"].headline.startswith("l0 got 7 numbers")


def test_the_shell_is_not_kept(shell):
    shell.run_line_magic("load_ext", "modlab")
    callbacks = shell.events.callbacks["post_run_cell"]
    (ours,) = [one for one in callbacks if "modlab" in one.__module__]
    assert shell not in gc.get_referents(ours, *gc.get_referents(*(ours.__closure__ or ())))
    ours(None)  # ipykernel passes None where a cell was interrupted
    shell.run_line_magic("unload_ext", "modlab")
    assert ours not in shell.events.callbacks["post_run_cell"]


# ---- graphs and the meta device


class Keeps(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.last = nn.Linear(3, 3), []
        self.register_buffer("h", torch.zeros(3))

    def forward(self, x):
        return self.l(x)


def copied(change):
    model, other = nn.Sequential(Keeps()), Keeps()
    other.h = other(torch.ones(3))
    loss = other(torch.ones(3)).sum()
    change(model[0])
    with pytest.raises(RuntimeError) as caught:
        copy.deepcopy(model)
    assert loss.requires_grad
    return modlab.explain(caught.value)


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        (lambda m: setattr(m, "h", m(torch.ones(3))), "Buffer model.0.h", "self.h = (...).detach()"),
        (lambda m: setattr(m, "seen", m(torch.ones(3))), "Attribute model.0.seen", "self.seen = (...).detach()"),
        (lambda m: m.last.append(m(torch.ones(3))), "Attribute model.0.last", "x.detach()"),
    ],
)
def test_a_copy_of_a_graph_names_what_carries_it_and_nothing_else(change, said, code):
    result = copied(change)
    assert result.headline.startswith(f"{said} is part of a graph, and a graph cannot be copied.")
    assert [fix.code for fix in result.record.fixes] == [code]
    text = str(result)
    assert "other." not in text and "loss" not in text and "computed by" in text


def test_a_meta_module_that_is_moved_gets_memory_and_no_stranger_is_named():
    model, unrelated = nn.Sequential(nn.Linear(3, 3, device="meta")), torch.zeros(3, device="meta")
    with pytest.raises(NotImplementedError) as caught:
        model.to("cpu")
    result = modlab.explain(caught.value)
    assert [fix.code for fix in result.record.fixes] == ["model.to_empty(device='cpu')"]
    assert "unrelated" not in str(result) and unrelated.is_meta


def test_of_a_model_that_is_meta_in_part_the_rest_keeps_its_numbers():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3, device="meta"))
    kept = model[0].weight.clone()
    with pytest.raises(NotImplementedError) as caught:
        model.cpu()
    (fix,) = modlab.explain(caught.value).record.fixes
    assert fix.code == "model.get_submodule('1').to_empty(device='cpu')"
    exec(fix.code, {"model": model})
    assert torch.equal(model[0].weight, kept) and not any(p.is_meta for p in model.parameters())
