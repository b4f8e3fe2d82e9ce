"""Checkpointed, compiled and exported models: what is said, the line that it is about, and that what is offered runs."""

import pytest
import torch

from tests.explaining.test_libraries import applied
from tests.explaining.test_provenance import Program

CHECKPOINT = "from torch.utils.checkpoint import checkpoint\n"
FICKLE = (
    CHECKPOINT
    + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.n = nn.Linear(4, 4), 0
    def forward(self, x):
        self.n += 1
        x = self.fc(x)
        return BODY
net = nn.Sequential(nn.Linear(4, 4), Block())
x = torch.randn(3, 4, requires_grad=True)
h = net[0](x)
y = checkpoint(net[1], h, use_reentrant=False)
y.sum().backward()
"""
)

RECOMPUTED = {
    "another shape": (
        FICKLE.replace("BODY", "(x if self.n == 1 else x[:2]).sin()"),
        "net.1 (Block), which checkpoint ran again in backward, did not give the same: tensor 2 of those saved was "
        "(3, 4) float32 on cpu, but is now (2, 4) float32 on cpu.",
        ["y = net[1](h)"],
    ),
    "another dtype": (
        FICKLE.replace("BODY", "(x if self.n == 1 else x.double()).sin()"),
        "net.1 (Block), which checkpoint ran again in backward, did not",
        ["y = net[1](h)"],
    ),
    "fewer tensors": (
        FICKLE.replace("BODY", "x.sin().exp() if self.n == 1 else x"),
        "net.1 (Block), which checkpoint ran again in backward, did not do the same: it saved",
        ["y = net[1](h)"],
    ),
    "a function": (
        CHECKPOINT + "seen = []\ndef block(x):\n    seen.append(1)\n    return x.sin() if len(seen) == 1 else x[:2].sin()\n"
        "x = torch.randn(3, requires_grad=True)\ny = checkpoint(block, x, use_reentrant=False)\ny.sum().backward()",
        "block, which checkpoint ran again in backward, did not give the same: tensor 0 of those saved was (3,) float32",
        ["y = block(x)"],
    ),
    "a gradient of its own": (
        CHECKPOINT + "fc, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)\n"
        "y = checkpoint(fc, x, use_reentrant=True)\ntorch.autograd.grad(y.sum(), x)",
        "checkpoint with use_reentrant=True works only with loss.backward().",
        ["y = checkpoint(fc, x, use_reentrant=False)"],
    ),
    "named arguments": (
        CHECKPOINT + "fc, x = nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)\ny = checkpoint(fc, input=x, use_reentrant=True)",
        "checkpoint with use_reentrant=True does not pass on named arguments",
        ["y = checkpoint(fc, input=x, use_reentrant=False)"],
    ),
    "no gradient": (
        CHECKPOINT + "fc, x = nn.Linear(4, 4), torch.randn(2, 4)\ny = checkpoint(fc, x, use_reentrant=True)\ny.sum().backward()",
        "checkpoint with use_reentrant=True cut the graph: none of its inputs requires a gradient.",
        ["y = checkpoint(fc, x, use_reentrant=False)"],
    ),
}


def explained(text):
    found = Program(text)
    try:
        return found, found.explained()
    finally:
        torch._dynamo.reset()


def check(name, text, said, offered, line=""):
    found, result = explained(text)
    assert result.family and result.headline.startswith(said), result.headline
    assert result.record.line == (line or found.lines[-1]), result.record.line
    assert result.record.where.startswith("program")
    assert [fix.code for fix in result.fixes if fix.code] == offered
    for fix in result.fixes:
        if fix.code:
            lines = found.lines
            if fix.code.startswith("@"):
                lines = [fix.code if one.startswith("@torch.compile") else one for one in lines]
            else:
                lines = applied(found, result, fix)
            found.run(lines)
            torch._dynamo.reset()


@pytest.mark.parametrize("name", RECOMPUTED)
def test_what_checkpoint_ran_again(name):
    check(name, *RECOMPUTED[name])


NET = "net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 4)\n"
WHOLE = NET + '@torch.compile(backend="eager", fullgraph=True)\ndef f(x):\n    y = net(x)\n    BODY\n    return y\nf(x)'
BROKEN, WITHOUT = "torch.compile cannot take this into one graph: ", "@torch.compile(backend='eager')"
COMPILED = {
    "print": (WHOLE.replace("BODY", "print('', end='')"), BROKEN, [WITHOUT], "print('', end='')"),
    "a branch": (
        WHOLE.replace("BODY", "if y.sum() > 0: y = -y"),
        BROKEN + "data-dependent branching.",
        [WITHOUT],
        "if y.sum() > 0: y = -y",
    ),
    "asked for": (WHOLE.replace("BODY", "torch._dynamo.graph_break()"), BROKEN, [WITHOUT], "torch._dynamo.graph_break()"),
    "a C function": (WHOLE.replace("BODY", "import time; time.sleep(0)"), BROKEN, [WITHOUT], "import time; time.sleep(0)"),
    "in a module": (
        NET + "class M(nn.Module):\n    def forward(self, x):\n        if x.sum() > 0:\n            return x\n"
        "        return -x\nm = torch.compile(nn.Sequential(net, M()), backend='eager', fullgraph=True)\nm(x)",
        BROKEN + "data-dependent branching.",
        ["m = torch.compile(nn.Sequential(net, M()), backend='eager')"],
        "if x.sum() > 0:",
    ),
    "a backend's name": (
        NET + "f = torch.compile(net, backend='egaer')\nf(x)",
        "torch.compile has no backend 'egaer'.",
        ["f = torch.compile(net, backend='eager')"],
        "f = torch.compile(net, backend='egaer')",
    ),
    "a mode's name": (
        NET + "f = torch.compile(net, mode='max_autotune')",
        "torch.compile has no mode 'max_autotune'.",
        ["f = torch.compile(net, mode='max-autotune')"],
    ),
    "a backend's own error": (
        NET + "def bad(graph, inputs):\n    raise ValueError('no luck')\nf = torch.compile(net, backend=bad)\nf(x)",
        "The backend 'bad' of torch.compile failed: ValueError: no luck",
        ["f = torch.compile(net, backend='eager')"],
        "raise ValueError('no luck')",
    ),
    "many shapes": (
        NET + '@torch.compile(backend="eager", fullgraph=True, dynamic=False)\ndef f(x):\n    return x + 1\n'
        "for n in range(2, 20):\n    f(torch.zeros(n))",
        "torch.compile compiled the same code again and again",
        ["@torch.compile(backend='eager', fullgraph=True, dynamic=True)"],
        "f(torch.zeros(n))",
    ),
}


@pytest.mark.parametrize("name", COMPILED)
def test_what_cannot_be_compiled(name):
    check(name, *COMPILED[name])


def test_the_line_that_was_looked_at_is_the_place():
    _, result = explained(COMPILED["print"][0])
    assert result.record.where.endswith(":5") and "torch.compile was analyzing the code" in str(result)


M = NET + "class M(nn.Module):\n    def forward(self, x):\n        BODY\n"
EXPORT = "ep = torch.export.export(M(), (x,), dynamic_shapes=({0: batch},))"
EXPORTED = {
    "a branch": (
        M.replace("BODY", "if x.sum() > 0: return x\n        return -x") + "ep = torch.export.export(M(), (x,))",
        "torch.export cannot take a branch that depends on the values of a tensor",
        [],
        "if x.sum() > 0: return x",
    ),
    "a size of values": (
        M.replace("BODY", "n = x.sum().int().item()\n        return x if n > 3 else -x") + "ep = torch.export.export(M(), (x,))",
        "torch.export cannot take a branch that depends on the values of a tensor (u0 > 3, where u0, u1 … are such values).",
        [],
        "return x if n > 3 else -x",
    ),
    "fixed by the code": (
        M.replace("BODY", "return x + 1 if x.shape[0] == 2 else x") + 'batch = torch.export.Dim("batch")\n' + EXPORT,
        "batch is declared dynamic, but the model works only with 2 there.",
        ["ep = torch.export.export(M(), (x,))"],
    ),
    "fixed by a layer": (
        NET + "w = torch.export.Dim('w')\nep = torch.export.export(net, (x,), dynamic_shapes=({1: w},))",
        "w is declared dynamic, but the model works only with 4 there.",
        ["ep = torch.export.export(net, (x,))"],
    ),
    "a range": (
        M.replace("BODY", "return x + 1 if x.shape[0] < 10 else x") + 'batch = torch.export.Dim("batch", max=20)\n' + EXPORT,
        "dynamic_shapes claims something about batch that does not hold for the model.",
        ["batch = torch.export.Dim('batch', max=9)"],
    ),
    "a multiple": (
        M.replace("BODY", "return x.view(-1, 2, 4)") + 'batch = torch.export.Dim("batch")\n'
        "ep = torch.export.export(M(), (torch.zeros(6, 4),), dynamic_shapes=({0: batch},))",
        "dynamic_shapes claims something about batch that does not hold for the model.",
        ["_batch = torch.export.Dim('_batch', min=1)\nbatch = 2*_batch"],
    ),
    "equal ones": (
        M.replace("self, x", "self, x, y").replace("BODY", "return x + y") + "a = torch.export.Dim('a')\nb = torch.export.Dim('b')\n"
        "ep = torch.export.export(M(), (torch.zeros(3), torch.zeros(3)), dynamic_shapes=({0: a}, {0: b}))",
        "dynamic_shapes claims something about b that does not hold for the model.",
        ["b = a"],
    ),
    "a name": (
        NET + "ep = torch.export.export(net, (x,), dynamic_shapes={'x': {0: torch.export.Dim('b')}})",
        "dynamic_shapes names x, but forward takes input.",
        ["ep = torch.export.export(net, (x,), dynamic_shapes={'input': {0: torch.export.Dim('b')}})"],
    ),
    "too many": (
        NET + "ep = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim('b')}, None))",
        "dynamic_shapes does not have the structure of the example inputs.",
        [],
    ),
    "no tuple": (
        NET + "ep = torch.export.export(net, x)",
        "torch.export.export needs the example inputs as a tuple",
        ["ep = torch.export.export(net, (x,))"],
    ),
    "called": (NET + "ep = torch.export.export(net, (x,))\ny = ep(x)", "An ExportedProgram cannot be called", ["y = ep.module()(x)"]),
    "another size": (
        NET + "ep = torch.export.export(net, (x,))\ny = ep.module()(torch.zeros(3, 4))",
        "The exported model takes 2 in dimension 0 of input, and got 3.",
        [],
    ),
    "too large": (
        NET + "ep = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim('b', max=5)},))\n"
        "y = ep.module()(torch.zeros(9, 4))",
        "The exported model takes at most 5 in dimension 0 of input, and got 9.",
        [],
    ),
    "a mode": (NET + "m = torch.export.export(net, (x,)).module()\nm.eval()", "An exported model has no eval()", []),
    "no module": (NET + "ep = torch.export.export(lambda x: x, (x,))", "torch.export.export takes an nn.Module, but got a function.", []),
}


@pytest.mark.parametrize("name", EXPORTED)
def test_what_cannot_be_exported(name, capfd):
    check(name, *EXPORTED[name])
