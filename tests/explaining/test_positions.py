"""A module or a weight in several places, loops, and modules that call themselves by other names: what explain offers holds."""

import gc
import weakref

import pytest
import torch
from torch import nn

import modlab
from modlab.explaining import explain, shared_modules
from modlab.explaining.failure import Failure
from modlab.inspection import stores
from tests.explaining.test_provenance import Program, explained

R = torch.randn

# each: a program, the family, the first half of the sentence, the code of the fixes
PLACES = {
    "seq twice": (
        """
        a = nn.Linear(4, 5)
        s = nn.Sequential(a, nn.ReLU(), a)
        s(torch.randn(2, 4))
    """,
        "product",
        "2 (Linear) got rows of 5 numbers, but has weights for 4.",
        ["s[2] = nn.Linear(5, 5)"],
    ),
    "seq twice, not first": (
        """
        a = nn.Linear(4, 5)
        s = nn.Sequential(nn.ConvTranspose1d(3, 3, 1), a, nn.ReLU(), a)
        s(torch.randn(2, 3, 4))
    """,
        "product",
        "1 or 3 (Linear) got rows of 5 numbers, but has weights for 4.",
        [""],
    ),
    "seq first fails": (
        """
        a = nn.Linear(4, 4)
        s = nn.Sequential(a, nn.ReLU(), a)
        s(torch.randn(2, 5))
    """,
        "product",
        "0 (Linear) got rows of 5 numbers, but has weights for 4.",
        ["s(torch.randn(2, 4))"],
    ),
    "seq twice bn": (
        """
        bn = nn.BatchNorm1d(4)
        s = nn.Sequential(nn.Linear(4, 4), bn, nn.Linear(4, 6), bn)
        s(torch.randn(2, 4))
    """,
        "norm",
        "3 (BatchNorm1d) got 6 channels, but keeps statistics for 4.",
        ["s[3] = nn.BatchNorm1d(6)"],
    ),
    "two names": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 5)
                self.b = self.a
            def forward(self, x):
                return self.b(F.relu(self.a(x)))
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "b got rows of 5 numbers, but has weights for 4.",
        ["self.b = nn.Linear(5, 5)"],
    ),
    "tied": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.p, self.o = nn.Embedding(10, 6), nn.Linear(6, 8), nn.Linear(6, 10, bias=False)
                self.o.weight = self.e.weight
            def forward(self, i):
                return self.o(self.p(self.e(i)))
        net = M()
        net(torch.randint(0, 10, (3,)))
    """,
        "product",
        "o got rows of 8 numbers, but has weights for 6.",
        ["self.p = nn.Linear(6, 6)"],
    ),
    "tied rows": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.e, self.o = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)
                self.o.weight = self.e.weight
            def forward(self, i):
                return self.o(self.e(i))
        net = M()
        net(torch.tensor([3, 12]))
    """,
        "embedding",
        "e has 10 rows, but was asked for index 12.",
        ["", ""],
    ),
    "encoder decoder": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.shared = nn.Embedding(10, 6)
                self.enc = nn.Sequential(self.shared, nn.Linear(6, 8))
                self.dec = nn.Sequential(nn.Linear(6, 10))
                self.dec[0].weight = self.shared.weight
            def forward(self, i):
                return self.dec(self.enc(i))
        net = M()
        net(torch.tensor([3, 2]))
    """,
        "product",
        "dec.0 got rows of 8 numbers, but has weights for 6.",
        [""],
    ),
    "shared block": (
        """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 6)
            def forward(self, x):
                return self.fc(x)
        b = Block()
        net = nn.Sequential(b, nn.ReLU(), b)
        net(torch.randn(2, 4))
    """,
        "product",
        "2.fc got rows of 6 numbers, but has weights for 4.",
        [""],
    ),
    "loop": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 5)
            def forward(self, x):
                for _ in range(2):
                    x = self.a(x)
                return x
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "a got rows of 5 numbers, but has weights for 4.",
        ["self.a = nn.Linear(4, 4)"],
    ),
    "loop first": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = nn.GRUCell(4, 5)
            def forward(self, x):
                h = torch.zeros(2, 5)
                for t in range(3):
                    h = self.cell(x[:, t], h)
                return h
        net = M()
        net(torch.randn(2, 3, 6))
    """,
        "product",
        "cell got rows of 6 numbers, but has weights for 4.",
        ["self.cell = nn.GRUCell(6, 5)"],
    ),
    "comprehension": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 5)
            def forward(self, xs):
                return [self.head(x) for x in xs]
        net = M()
        net([torch.randn(2, 4), torch.randn(2, 3)])
    """,
        "product",
        "head got rows of 3 numbers, but has weights for 4.",
        [""],
    ),
    "modulelist twice": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                a = nn.Linear(4, 5)
                self.layers = nn.ModuleList([a, nn.ReLU(), a])
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "layers.0 or layers.2 got rows of 5 numbers, but has weights for 4.",
        [""],
    ),
    "bn twice": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.c1, self.c2, self.bn = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 1), nn.BatchNorm2d(8)
            def forward(self, x):
                x = F.relu(self.bn(self.c1(x)))
                return F.relu(self.bn(self.c2(x)))
        net = M()
        net(torch.randn(2, 3, 4, 4))
    """,
        "norm",
        "bn got 16 channels, but keeps statistics for 8.",
        [""],
    ),
    "this": (
        """
        class M(nn.Module):
            def __init__(this):
                super().__init__()
                this.l0 = nn.Linear(4, 5)
                this.l1 = nn.Linear(6, 2)
            def forward(this, x):
                h = this.l0(x).relu()
                return this.l1(h)
        M()(torch.randn(3, 4))
    """,
        "product",
        "l1 got rows of 5 numbers, but has weights for 6.",
        ["this.l0 = nn.Linear(4, 6)", "this.l1 = nn.Linear(5, 2)"],
    ),
    "this, own": (
        """
        class Lin(nn.Module):
            def __init__(s, i, o):
                super().__init__()
                s.weight = nn.Parameter(torch.randn(i, o))
            def forward(s, x):
                return x @ s.weight
        class M(nn.Module):
            def __init__(s):
                super().__init__()
                s.l0, s.l1 = Lin(4, 5), Lin(6, 2)
            def forward(s, x):
                return s.l1(s.l0(x))
        net = M()
        net(torch.randn(3, 4))
    """,
        "product",
        "l1 got rows of 5 numbers, but has weights for 6.",
        [""],
    ),
    "choices": (
        """
        class M(nn.Module):
            def __init__(s):
                super().__init__()
                s.acts = nn.ModuleDict({'relu': nn.ReLU()})
            def forward(s, x, act):
                return s.acts[act](x)
        net = M()
        net(torch.randn(3, 4))
    """,
        "argument",
        "M's forward takes x and act; act is missing.",
        ["net(torch.randn(3, 4), 'relu')"],
    ),
    "closure": (
        """
        enc, dec = nn.Linear(4, 8), nn.Linear(6, 4)
        def model(x):
            return dec(torch.relu(enc(x)))
        model(torch.randn(2, 4))
    """,
        "product",
        "Linear got rows of 8 numbers, but has weights for 6.",
        ["dec = nn.Linear(8, 4)"],
    ),
    "closure 2": (
        """
        def make():
            enc, dec = nn.Linear(4, 8), nn.Linear(6, 4)
            def model(x):
                h = torch.relu(enc(x))
                return dec(h)
            return model
        f = make()
        f(torch.randn(2, 4))
    """,
        "product",
        "Linear got rows of 8 numbers, but has weights for 6.",
        ["dec = nn.Linear(8, 4)"],
    ),
    "alias": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.fc = nn.Linear(4, 5), nn.Linear(6, 2)
            def forward(self, x):
                conv, fc = self.conv, self.fc
                x = conv(x)
                x = F.relu(x)
                return fc(x)
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "fc got rows of 5 numbers, but has weights for 6.",
        ["self.conv = nn.Linear(4, 6)", "self.fc = nn.Linear(5, 2)"],
    ),
    "inner function": (
        """
        class M(nn.Module):
            def __init__(this):
                super().__init__()
                this.l0, this.l1 = nn.Linear(4, 5), nn.Linear(6, 2)
            def forward(this, x):
                def run(h):
                    return this.l1(h)
                return run(this.l0(x))
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "l1 got rows of 5 numbers, but has weights for 6.",
        ["this.l0 = nn.Linear(4, 6)", "this.l1 = nn.Linear(5, 2)"],
    ),
    "train function": (
        """
        def step(m, batch):
            out = m(batch)
            return out.sum()
        class M(nn.Module):
            def __init__(s):
                super().__init__()
                s.l0, s.l1 = nn.Linear(4, 5), nn.Linear(6, 2)
            def forward(s, x):
                if x.sum() > 1e9: x = s.l0(x)
                h = s.l0(x)
                return s.l1(h)
        step(M(), torch.randn(2, 4))
    """,
        "product",
        "l1 got rows of 5 numbers, but has weights for 6.",
        ["s.l1 = nn.Linear(5, 2)"],
    ),
    "gpt2 tied head": (
        """
        class Block(nn.Module):
            def __init__(self, d):
                super().__init__()
                self.ln, self.fc = nn.LayerNorm(d), nn.Linear(d, d)
            def forward(self, x):
                return x + self.fc(self.ln(x))
        class GPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.wte, self.wpe = nn.Embedding(50, 8), nn.Embedding(16, 8)
                self.h = nn.ModuleList([Block(8) for _ in range(3)])
                self.proj = nn.Linear(8, 12)
                self.lm_head = nn.Linear(8, 50, bias=False)
                self.lm_head.weight = self.wte.weight
            def forward(self, ids):
                x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
                for block in self.h:
                    x = block(x)
                return self.lm_head(self.proj(x))
        net = GPT()
        net(torch.zeros(2, 5).long())
    """,
        "product",
        "lm_head got rows of 12 numbers, but has weights for 8.",
        ["self.proj = nn.Linear(8, 8)"],
    ),
    "siamese": (
        """
        class S(nn.Module):
            def __init__(self):
                super().__init__()
                self.enc = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
            def forward(self, a, b):
                return self.enc(a) - self.enc(b)
        net = S()
        net(torch.randn(2, 4), torch.randn(2, 5))
    """,
        "product",
        "enc.0 got rows of 5 numbers, but has weights for 4.",
        [""],
    ),
    "shared bottleneck": (
        """
        class S(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 8), nn.Linear(6, 9)
                self.out = nn.Linear(8, 2)
            def forward(self, x, y):
                u = self.out(self.a(x))
                v = self.out(self.b(y))
                return u + v
        net = S()
        net(torch.randn(2, 4), torch.randn(2, 6))
    """,
        "product",
        "out got rows of 9 numbers, but has weights for 8.",
        ["self.b = nn.Linear(6, 8)"],
    ),
    "same list": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(4, 6)] * 3)
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "layers.0 or layers.1 or layers.2 got rows of 6 numbers, but has weights for 4.",
        [""],
    ),
    "seq list times": (
        """
        net = nn.Sequential(*[nn.Linear(4, 6)] * 3)
        net(torch.randn(2, 4))
    """,
        "product",
        "1 (Linear) got rows of 6 numbers, but has weights for 4.",
        [""],
    ),
    "recursive": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(4, 5)
            def forward(self, x, depth=2):
                x = self.fc(x)
                return x if depth == 0 else self(x, depth - 1)
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "fc got rows of 5 numbers, but has weights for 4.",
        [""],
    ),
    "zip": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.fcs, self.norm = nn.ModuleList([nn.Linear(4, 5), nn.Linear(5, 6)]), nn.LayerNorm(5)
            def forward(self, x):
                for fc, act in zip(self.fcs, [F.relu, F.tanh]):
                    x = self.norm(act(fc(x)))
                return x
        net = M()
        net(torch.randn(2, 4))
    """,
        "norm",
        "norm got a last size of 6, but has weights for 5.",
        [""],
    ),
    "static helper": (
        """
        def block(m, x):
            return m.fc(x)
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.l0, self.fc = nn.Linear(4, 5), nn.Linear(6, 5)
            def forward(self, x):
                return block(self, self.l0(x))
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "fc got rows of 5 numbers, but has weights for 6.",
        ["self.l0 = nn.Linear(4, 6)", "self.fc = nn.Linear(5, 5)"],
    ),
    "helper method twice": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.l0, self.fc = nn.Linear(4, 5), nn.Linear(4, 5)
            def head(self, x):
                return self.fc(x)
            def forward(self, x):
                a = self.head(x)
                return self.head(a)
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "fc got rows of 5 numbers, but has weights for 4.",
        [""],
    ),
    "local rebinding": (
        """
        class M(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(4, 5), nn.Linear(6, 2)
            def forward(self, x):
                layer = self.a
                x = layer(x)
                layer = self.b
                return layer(x)
        net = M()
        net(torch.randn(2, 4))
    """,
        "product",
        "b got rows of 5 numbers, but has weights for 6.",
        ["self.a = nn.Linear(4, 6)", "self.b = nn.Linear(5, 2)"],
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_is_said_and_offered(name):
    text, family, said, codes = PLACES[name]
    result = Program(text).explained()
    assert (result.family, result.record.sentence[0], [fix.code for fix in result.fixes]) == (family, said, codes)


@pytest.mark.parametrize("name", [name for name in PLACES if not name.startswith("closure")])
def test_every_line_that_is_offered_works(name):
    """Applied, it makes the whole program run; what would be undone by a tie, or break the other place, is not offered."""
    program = Program(PLACES[name][0])
    result = program.explained()
    for fix in result.fixes:
        if fix.code:
            program.run(program.applied(result, fix))


REMARKS = {
    "seq twice": "2 and 0 are one module, with one weight. A new layer in one place does not change the other.",
    "seq twice, not first": "1 and 3 are one module: which of these calls failed cannot be seen.",
    "modulelist twice": "layers.0 and layers.2 are one module: which of these calls failed cannot be seen.",
    "tied": "o.weight and e.weight are one tensor (tied): its size applies in both places.",
    "encoder decoder": "dec.0.weight and shared.weight are one tensor (tied): its size applies in both places.",
    "gpt2 tied head": "lm_head.weight and wte.weight are one tensor (tied): its size applies in both places.",
    "same list": "layers.0, layers.1 and layers.2 are one module: which of these calls failed cannot be seen.",
    "seq list times": "1, 0 and 2 are one module, with one weight. A new layer in one place does not change the other.",
    "shared block": "A module around it has several places: changing one changes all.",
}


@pytest.mark.parametrize("name", PLACES)
def test_the_tie_is_named(name):
    remarks = Program(PLACES[name][0]).explained().record.remarks
    told = [remark for remark in remarks if "one module" in remark or "tied" in remark or "several places" in remark]
    if name in REMARKS:
        assert told == [REMARKS[name]]
    elif name not in ("seq first fails", "seq twice bn", "two names", "tied rows", "siamese"):
        assert told == []


def test_the_ribbon_has_all_places():
    steps = Program(PLACES["seq twice"][0]).explained().records
    assert [(step.path, step.stopped) for step in steps] == [("", True), ("0", False), ("1", False), ("2", True)]
    assert [step.inputs[0].shape for step in steps] == [(2, 4), (2, 4), (2, 5), (2, 5)]
    inner = Program(PLACES["shared block"][0]).explained().records
    assert [step.path for step in inner] == ["", "0", "1", "2", "2.fc"]


def test_the_place_is_that_of_a_hook():
    """Which of the two calls failed, as hooks on the way count it."""
    a, seen = nn.Linear(4, 5), []
    net = nn.Sequential(nn.Identity(), a, nn.Tanh(), a)
    handle = torch.nn.modules.module.register_module_forward_pre_hook(lambda m, i: seen.append(m))
    try:
        result = explained(lambda: net(R(2, 4)))
    finally:
        handle.remove()
    assert seen.count(a) == 2 and result.records[-1].path == "3"


def test_a_tied_weight_outside_of_the_model_is_seen():
    emb, head = nn.Embedding(10, 6), nn.Linear(6, 10, bias=False)
    head.weight = emb.weight
    net = nn.Sequential(nn.Linear(6, 8), head)
    try:
        net(R(3, 6))
    except RuntimeError as error:
        result = modlab.explain(error)
    assert [fix.code for fix in result.fixes] == ["net[0] = nn.Linear(6, 6)"]
    assert "1.weight and emb.weight are one tensor (tied)" in str(result)


def test_the_quick_look_and_the_whole_one_agree():
    """Whether something is held twice, asked in two ways."""
    free, shared = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Linear(2, 2)
    twice, tied = nn.Sequential(shared, nn.Sequential(shared)), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    for net, alone in ((free, True), (twice, False), (tied, False)):
        own = {id(tensor): name for name, tensor in stores.named_tensors(net[0])}
        assert shared_modules._is_alone(Failure(RuntimeError(), []), [net, net[0]], {id(net[0])}, own) is alone
        found = shared_modules._found([net], {id(net[0])}, own)
        assert (len(found) == 1 + len(own)) is alone
    free[0].again = free  # a module that holds itself
    assert shared_modules._is_alone(Failure(RuntimeError(), []), [free], {id(free[1])}, {}) is False


def test_a_name_that_nobody_has_is_not_taken_for_granted():
    result = str(Program(PLACES["this"][0].replace(".relu()", ".relu() if x.sum() else this.l0(x)")).explained())
    assert "write model = M() first, then: with modlab.trace(model) as t: model(torch.randn(" in result and "trace(this)" not in result
    assert "modlab.trace(m) as t: m(batch)" in str(Program(PLACES["train function"][0]).explained())


def test_nothing_of_a_tied_model_stays():
    def cause():
        net = nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 8), nn.Linear(6, 10, bias=False))
        net[2].weight = net[0].weight
        kept.append(weakref.ref(net))
        state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        try:
            net(torch.tensor([1]))
        except RuntimeError as error:
            before = error.__traceback__, error.args
            result = modlab.explain(error)
            assert (error.__traceback__, error.args) == before
        assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())
        assert net[2].weight is net[0].weight
        return result

    kept = []
    result = cause()
    gc.collect()
    assert kept[0]() is None and [fix.code for fix in result.fixes] == ["net[1] = nn.Linear(6, 6)"]


def test_a_pattern_is_passed_over_only_if_it_cannot_match():
    """The text that is looked for before a pattern is compiled stands in whatever the pattern matches."""
    from tests.explaining import test_explain

    for cause, *_ in test_explain.CASES.values():
        try:
            cause()
        except BaseException as error:  # noqa: BLE001
            message = str(error)
            for rule in explain.RULES:
                if explain._compiled(rule.pattern).search(message):
                    assert explain._literal(rule.pattern) in message
