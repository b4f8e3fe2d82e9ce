"""What ran before the place of an error: branches, rounds, helpers; what is certain is listed as such, and what is not as possible."""

import subprocess
import sys

import pytest
import torch

import modlab
from tests.explaining.test_provenance import Program

HEAD = """
class M(nn.Module):
    flag = True
    def __init__(self):
        super().__init__()
        self.e, self.out, self.mode, self.skip, self.n = nn.Linear(4, 4), nn.Linear(5, 4), "a", None, 2
        self.ls = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(5, 4)])
        self.pairs = nn.ModuleList([nn.ModuleList([nn.Linear(4, 4), nn.Linear(4 + i, 4)]) for i in range(2)])
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(5, 4)})
        self.seen = []
    def encode(self, x, twice=False):
        h = F.relu(self.e(x))
        if twice: h = self.e(h)
        return h
    def forward(self, x, mask=None):
        {body}
net = M()
net(torch.randn(2, 4))
"""
E, R_E, STOP = ("e", "ran"), ("F.relu", "ran"), ("out", "")
WAYS = {
    "an attribute": ("if self.flag: x = self.e(x)\nreturn self.out(x)", [E]),
    "an attribute, not": ("if not self.flag: x = self.e(x)\nreturn self.out(x)", []),
    "none": ("if self.skip is not None: x = self.e(x)\nif mask is None: x = self.e(x)\nreturn self.out(x)", [E]),
    "a text": ("x = self.e(x) if self.mode == 'a' else self.ls[0](x)\nreturn self.out(x)", [E]),
    "sizes": ("if x.dim() == 2 and x.shape[-1] == 4: x = self.e(x)\nreturn self.out(x)", [E]),
    "values": (
        "if x.sum() > 9: x = self.e(x)\nelse: x = self.ls[0](x)\nreturn self.out(x)",
        [("e", "ran if x.sum() > 9"), ("ls.0", "ran if not (x.sum() > 9)")],
    ),
    "an early end": ("if x.sum() > 1e9: return self.e(x)\nx = self.ls[0](x)\nreturn self.out(x)", [("ls.0", "ran")]),
    "written meanwhile": ("self.flag = False\nif self.flag: x = self.e(x)\nreturn self.out(x)", [("e", "ran if self.flag")]),
    "a list that grows": ("hs = []\nif hs: x = self.e(x)\nhs.append(x)\nreturn self.out(x)", [("e", "ran if hs")]),
    "rounds": ("for l in self.ls: x = F.relu(l(x))\nreturn x", [("ls.0", "ran"), R_E, ("ls.1", "ran"), R_E]),
    "rounds with a counter": (
        "for i in range(3):\n    if i > 0: x = self.e(x)\n    x = self.ls[i](x)\nreturn x",
        [("ls.0", "ran"), E, ("ls.1", "ran"), E],
    ),
    "rounds of pairs": (
        "for a, b in self.pairs:\n    x = a(x) + x\n    x = b(x) + x\nreturn x",
        [("pairs.0.0", "ran"), ("pairs.0.1", "ran"), ("pairs.1.0", "ran")],
    ),
    "a comprehension": ("return torch.cat([l(x) for l in self.ls])", [("ls.0", "ran"), ("ls.1", "ran")]),
    "a generator": ("return sum(l(x) for l in self.ls)", [("ls.0", "ran"), ("ls.1", "ran")]),
    "a dict of results": ("return {k: h(x) for k, h in self.heads.items()}", [("heads.a", "ran")]),
    "a helper": ("return self.out(self.encode(x))", [E, R_E]),
    "a helper with a flag": ("return self.out(self.encode(x, twice=True))", [E, R_E, E]),
    "while": ("while x.sum() > 1e9: x = self.e(x)\nreturn self.out(x)", [("e", "may have run: while x.sum() > 1000000000.0")]),
    "try": ("try: x = self.e(x)\nexcept ValueError: pass\nreturn self.out(x)", [("e", "may have run: try")]),
    "unknown rounds": ("for part in x.split(1): self.e(part)\nreturn self.out(x)", [("e", "may have run: for part in x.split(1)")]),
    "a round left out": ("for i, l in enumerate(self.ls):\n    if i == 1: continue\n    x = l(x)\nreturn x", [("ls.0", "ran")]),
    "some rounds": ("for l in self.ls[:2]: x = l(x)\nreturn self.out(x)", [("ls.0", "ran"), ("ls.1", "ran")]),
    "in place": ("h = self.e(x)\nh.unsqueeze_(0)\nreturn self.out(h)", [E]),
}


def program(body):
    return Program(HEAD.strip("\n").replace("{body}", body.replace("\n", "\n        ")))


@pytest.mark.parametrize("name", WAYS)
def test_what_ran_before(name):
    body, ran = WAYS[name]
    steps = program(body).explained().records
    assert [(step.path or step.name, step.said) for step in steps[1:-1]] == ran


@pytest.mark.parametrize("name", WAYS)
def test_every_shape_is_that_of_the_run(name):
    """As a trace of the same call has it."""
    steps = program(WAYS[name][0]).explained().records
    seen = {}
    scope = program("return x").run()
    net = scope["net"]
    handles = [
        m.register_forward_hook(lambda m, a, o, path=path: seen.setdefault(path, []).append((tuple(a[0].shape), tuple(o.shape))))
        for path, m in net.named_modules()
    ]
    other = program(WAYS[name][0]).lines
    other = [*other[:-2], "net = M()", "net.load_state_dict(old.state_dict())"]
    text = "\n".join(other)
    space = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "old": net, "__name__": "program"}
    exec(compile(text, "ways", "exec"), space)
    with pytest.raises((RuntimeError, ValueError)):
        space["M"].forward(net, torch.randn(2, 4))
    for handle in handles:
        handle.remove()
    for step in steps[1:-1]:
        if step.path and step.said == "ran":
            pairs = seen[step.path]
            assert not step.inputs or step.inputs[0].shape in [taken for taken, _ in pairs]
            assert not step.outputs or step.outputs[0].shape in [given for _, given in pairs]


def test_what_may_have_run_is_no_claim():
    text = str(program("if x.sum() > 9: x = self.e(x)\nreturn self.out(x)").explained())
    assert "(2, 4) → ran if x.sum() > 9" in text and "(2, 4) → (2, 4)" not in text


BLOCKS = """
class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(i, o), nn.ReLU())
    def forward(self, x): return self.net(x)
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Block(4, 8), Block(8, 4)
        self.c = Block(8, 2)
    def forward(self, x): return self.c(self.b(self.a(x)))
net = M()
net(torch.randn(2, 4))
"""


def test_a_line_that_suits_one_object_of_a_class_alone():
    """In the constructor of Block it would change all three of them."""
    result = Program(BLOCKS).explained()
    assert [fix.code for fix in result.fixes][-1] == "self.c.net[0] = nn.Linear(4, 2)" and "in M:" in result.fixes[-1].prose


ONES = {
    "a tuple": ("rnn = nn.LSTM(8, 16, batch_first=True)\nout = rnn(torch.randn(4, 5, 8))\ny = out[:, -1]", "y = out[0][:, -1]"),
    "a tuple's method": ("rnn = nn.GRU(8, 16)\nout = rnn(torch.randn(4, 5, 8))\nout = out.flatten(1)", "out = out[0].flatten(1)"),
    "no whole numbers": ("a = torch.zeros(8, 1)\nq = torch.randn(8, 2).gather(1, a)", "q = torch.randn(8, 2).gather(1, a.long())"),
    "no gradient yet": ("w = torch.randn(3, requires_grad=True)\nw.grad.zero_()", "if w.grad is not None: w.grad.zero_()"),
    "a target without a name": (
        "F.cross_entropy(torch.randn(8, 3), torch.zeros(8, 1).long())",
        "F.cross_entropy(torch.randn(8, 3), torch.zeros(8, 1).long().squeeze(1))",
    ),
    "predictions without a name": (
        "y = torch.ones(8)\nloss = nn.MSELoss()\nnet = nn.Sequential(nn.Linear(2, 1), nn.Sigmoid())\n"
        "out = nn.BCELoss()(net(torch.zeros(8, 2)), y)",
        "out = nn.BCELoss()(net(torch.zeros(8, 2)).squeeze(-1), y)",
    ),
    "pictures as targets": ("x = torch.rand(2, 1, 4, 4)\nF.binary_cross_entropy(torch.rand(2, 16), x)", "x = x.flatten(1)"),
    "a class of losses": (
        "y = torch.tensor([0, 1])\nloss = nn.CrossEntropyLoss(torch.randn(2, 3), y)",
        "loss = nn.CrossEntropyLoss()(torch.randn(2, 3), y)",
    ),
    "channels last": (
        "net = nn.Sequential(nn.Conv2d(3, 4, 3))\nnet(torch.rand(1, 9, 9, 3))",
        "net(torch.rand(1, 9, 9, 3).permute(0, 3, 1, 2))",
    ),
    "a dict of modules": (
        "class M(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.heads = nn.ModuleDict({'b': nn.Linear(6, 3)})\n"
        "    def forward(self, x): return self.heads['b'](x)\nm = M()\nm(torch.randn(2, 4))",
        None,
    ),
}


@pytest.mark.parametrize("name", ONES)
def test_the_line_stands_as_it_would_be_written(name):
    text, line = ONES[name]
    found = Program(text)
    result = found.explained()
    codes = [fix.code for fix in result.fixes]
    assert line is None or line in codes
    if line is not None:
        found.run(found.applied(result, next(fix for fix in result.fixes if fix.code == line)))
    else:
        assert "self.heads['b'] = nn.Linear(4, 3)" in codes


def test_the_call_of_another_function_is_no_call_of_the_model():
    text = "net = nn.Sequential(nn.Bilinear(4, 4, 3))\nlist(map(net, [torch.zeros(2, 5)]))"
    assert "trace(list)" not in str(Program(text).explained())


def test_a_batch_of_one_that_was_squeezed_away_is_no_missing_batch():
    text = """
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, 10)
        def forward(self, x):
            x = self.conv(x).squeeze()
            return self.fc(x.view(x.size(0), -1))
    m = M()
    m(torch.randn(1, 1, 8, 8))
    """
    assert not any("unsqueeze" in fix.code for fix in Program(text).explained().fixes)


def test_the_extension_has_what_an_explanation_needs():
    asked = "print('modlab.results.explanation' in sys.modules)"
    code = f"import sys, modlab; {asked}; import modlab.results.extension; {asked}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_an_error_that_nobody_knows_stays_unknown():
    for text in ("('a', 'b').view(2)", "x = (1, 2)\nx[:, 1]", "None.zero_()", "d = {'a': 1}\nd['b']"):
        assert Program(text).explained().family == ""
    assert modlab.explain(ValueError("my own")).family == ""
