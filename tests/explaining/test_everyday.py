"""Programs that fail as those of an ordinary day do: what is said, that what is offered runs, and where nothing is said."""

import copy
import gc
import sys
import traceback
import weakref
from contextlib import suppress

import pytest
import torch
from torch import nn

import modlab
from modlab.running import listener, recursion_limit
from tests.explaining.test_provenance import Program, explained

LENET = """
    class LeNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
            self.fc1, self.fc2 = nn.Linear(16 * 5 * 5, 120), nn.Linear(120, 10)
        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = x.view(VIEW)
            x = F.relu(self.fc1(x))
            return self.fc2(x)
    net = LeNet()
    net(torch.zeros(SIZE))
"""

# each: a program, the family, the first half of the sentence, the code of the fixes
DAYS = {
    "lengths of zero": (
        """
        x, lengths = torch.randn(3, 5, 4), torch.tensor([5, 3, 0])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    """,
        "lengths",
        "pack_padded_sequence got a sequence of length 0.",
        [""],
    ),
    "packed into a layer": (
        """
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 5, 4), [5, 4, 2], batch_first=True)
        lstm, fc = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 2)
        out, _ = lstm(packed)
        fc(out)
    """,
        "argument",
        "Linear got a PackedSequence instead of a tensor (input of linear).",
        ["out, lengths = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)"],
    ),
    "one sample of a generator": (
        """
        class G(nn.Module):
            def __init__(self):
                super().__init__()
                self.main = nn.Sequential(nn.ConvTranspose2d(100, 64, 4, 1, 0), nn.ReLU())
            def forward(self, z):
                return self.main(z)
        g = G()
        g(torch.randn(8, 100))
    """,
        "convolution",
        "main.0 got 2 dimensions, but needs 4: (batch, channels, height, width).",
        ["z = z[..., None, None]"],
    ),
    "scores as probabilities": (
        """
        model = nn.Linear(4, 1)
        out = model(torch.ones(8, 4)) + 100
        loss = F.binary_cross_entropy(out, torch.ones(8, 1))
    """,
        "loss",
        None,
        ["loss = F.binary_cross_entropy_with_logits(out, torch.ones(8, 1))", "return torch.sigmoid(x)"],
    ),
    "scores in a module": (
        """
        criterion, out = nn.BCELoss(), torch.full((8, 1), 2.0)
        loss = criterion(out, torch.ones(8, 1))
    """,
        "loss",
        "BCELoss needs probabilities between 0 and 1; they go from 2 to 2.",
        ["criterion = nn.BCEWithLogitsLoss()", "return torch.sigmoid(x)"],
    ),
    "swapped": (
        """
        out, y = torch.randn(4, 3, requires_grad=True), torch.tensor([0, 1, 2, 1])
        loss = F.nll_loss(y, out)
    """,
        "loss",
        "The loss got int64 as predictions and float32 as targets: they are swapped.",
        ["F.nll_loss(out, y)"],
    ),
    "columns": (
        """
        y = torch.tensor([0, 1, 5])
        hot = F.one_hot(y, 4)
    """,
        "embedding",
        "one_hot got class 5 but has too few columns.",
        ["hot = F.one_hot(y, 6)"],
    ),
    "one layer in half": (
        """
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        model[2].bfloat16()
        model(torch.randn(2, 4))
    """,
        "dtype",
        "2 (Linear) got float32, but has bfloat16 weights.",
        ["model.float()", "with torch.autocast('cpu'):\n    y = model(torch.randn(2, 4))"],
    ),
    "one picture": (
        """
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        img = torch.rand(3, 16, 16)
        net(img)
    """,
        "norm",
        "1 (BatchNorm2d) got 3 dimensions, but needs 4.",
        ["img = img.unsqueeze(0)"],
    ),
    "a layer in a list, on meta": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.layers = nn.Linear(4, 4), [nn.Linear(4, 4) for _ in range(2)]
            def forward(self, x):
                return self.layers[0](self.a(x))
        net = Net().to("meta")
        net(torch.randn(2, 4, device="meta"))
    """,
        "device",
        "layers[0] got a tensor on the meta device, but has its weights on cpu.",
        ["self.layers = nn.ModuleList(self.layers)"],
    ),
    "a mask turned": (
        """
        enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, batch_first=True), 1)
        pad = torch.zeros(5, 2).bool()
        enc(torch.randn(2, 5, 16), src_key_padding_mask=pad)
    """,
        "attention",
        "layers.0.self_attn got a key_padding_mask with 5 in dimension 0, but needs 2.",
        ["pad = pad.T"],
    ),
    "a function of long ago": (
        """
        class Square(torch.autograd.Function):
            def forward(ctx, x):
                return x * x
            def backward(ctx, g):
                return g
        y = Square()(torch.ones(3))
    """,
        "gradient",
        "A torch.autograd.Function is no longer created and called: its methods are static, and .apply calls it.",
        ["y = Square.apply(torch.ones(3))"],
    ),
    "too few gradients": (
        """
        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, k):
                return x * k
            @staticmethod
            def backward(ctx, g):
                return g
        Scale.apply(torch.ones(3, requires_grad=True), 2.0).sum().backward()
    """,
        "gradient",
        "Scale.backward returned 1 gradient, but forward takes 2 arguments.",
        [""],
    ),
    "a gradient of another shape": (
        """
        class Sum(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.sum(1)
            @staticmethod
            def backward(ctx, g):
                return g
        Sum.apply(torch.ones(3, 4, requires_grad=True)).sum().backward()
    """,
        "gradient",
        "Sum.backward returned a gradient of (3,) for argument 0 of forward, which is (3, 4).",
        [""],
    ),
    "numbers to cat": (
        """
        losses = [torch.tensor(1.0), torch.tensor(2.0)]
        total = torch.cat(losses)
    """,
        "join",
        "cat got single numbers, but joins along an existing dimension.",
        ["total = torch.stack(losses)"],
    ),
    "rows of two lengths": (
        """
        rows = [torch.zeros(3), torch.zeros(4)]
        batch = torch.stack(rows)
    """,
        "join",
        "stack: rows[1] is (4,) and the first is (3,).",
        ["batch = torch.cat(rows)", ""],
    ),
    "parts as they are written": (
        """
        a, b = nn.Linear(4, 8), nn.Linear(4, 8)
        z = torch.cat([a(torch.ones(4, 4)), b(torch.ones(3, 4))], 1)
    """,
        "join",
        "cat along dimension 1: b(torch.ones(3, 4)) has 3 where a(torch.ones(4, 4)) has 4.",
        [""],
    ),
    "expand to fewer": (
        """
        x = torch.randn(4, 3, 2)
        y = x.expand(4, 3)
    """,
        "broadcast",
        "x has 3 dimensions, but expand names 2.",
        [""],
    ),
    "a mask for the columns": (
        """
        x, mask = torch.randn(4, 3), torch.tensor([True, False, True])
        y = x[mask]
    """,
        "index",
        "mask is a mask of (3,), but x is (4, 3).",
        ["y = x[:, mask]"],
    ),
    "a mask for nothing": (
        """
        x, mask = torch.randn(4, 3), torch.ones(7).bool()
        y = x[mask]
    """,
        "index",
        "mask is a mask of (7,), but x is (4, 3).",
        [""],
    ),
    "fractions as places": (
        """
        x, idx = torch.randn(4, 3), torch.tensor([0.0, 1.0])
        y = x[idx]
    """,
        "index",
        "idx is float32, but indexes x.",
        ["y = x[idx.long()]"],
    ),
    "too many places": (
        """
        x = torch.randn(4, 3)
        y = x[:, 0, :]
    """,
        "index",
        "x has 2 dimensions, and x[:, 0, :] asks for more.",
        ["print(x.shape)"],
    ),
    "the best of too few": (
        """
        scores = torch.randn(4, 3)
        v, i = scores.topk(5, dim=1)
    """,
        "index",
        "topk asks for the 5 largest, and scores has 3 in dimension 1.",
        ["v, i = scores.topk(min(5, scores.size(1)), dim=1)"],
    ),
    "places of a scatter": (
        """
        y = torch.tensor([0, 1, 5])
        hot = torch.zeros(3, 4).scatter_(1, y.unsqueeze(1), 1.0)
    """,
        "index",
        "The tensor has 4 in dimension 1, but 5 was asked for.",
        ["print(y.unsqueeze(1).min(), y.unsqueeze(1).max())"],
    ),
    "a condition outside of functions": (
        """
        x = torch.randn(4)
        if x > 0:
            print("yes")
    """,
        "several numbers",
        "x > 0 is a tensor of several booleans, but one is needed.",
        ["(x > 0).any()", "(x > 0).all()", ""],
    ),
    "parts": (
        """
        x = torch.randn(4, 10)
        a, b = x.split(4, dim=1)
    """,
        "unpacking",
        "x.split(4, dim=1) does not give 2 parts for the 2 names: a, b.",
        ["print(len(x.split(4, dim=1)))"],
    ),
    "a flag of what is computed": (
        """
        h = nn.Linear(2, 2)(torch.randn(1, 2))
        h.requires_grad = False
    """,
        "leaf",
        "h is computed from what is trained, so its requires_grad cannot be set.",
        ["h = h.detach()"],
    ),
    "a layer for its output": (
        """
        out = nn.ReLU(torch.randn(2))
        out.sum()
    """,
        "attribute",
        "ReLU has no 'sum'.",
        [""],
    ),
    "none in a batch": (
        """
        class DS(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                return {"x": torch.zeros(3), "label": None}
        next(iter(torch.utils.data.DataLoader(DS(), batch_size=2)))
    """,
        "batch",
        "The DataLoader cannot make a batch: the dataset returns None.",
        ["DataLoader(..., collate_fn=list)"],
    ),
    "two losses": (
        """
        h = torch.tanh(nn.Linear(3, 2)(torch.randn(4, 3)))
        first, second = h[:, 0].sum(), h[:, 1].sum()
        first.backward()
        second.backward()
    """,
        "backward twice",
        "backward ran a second time through the same graph, from second: the first time freed it.",
        ["(first + second).backward()", "first.backward(retain_graph=True)", "loss = criterion(model(x), y)\nloss.backward()"],
    ),
    "names that are torch's": (
        """
        a, n = torch.randn(4, 8), torch.randn(3, 8)
        loss = F.triplet_margin_loss(a, a, n)
    """,
        "broadcast",
        "anchor and negative do not fit: 4 and 3 in dimension 0.",
        [""],
    ),
}
SHOWN = ("return torch.sigmoid(x)", "print(", "DataLoader(", "(x > 0)", "(first + second)", "first.backward", "loss = criterion(model")


@pytest.mark.parametrize("name", DAYS)
def test_what_is_said_and_offered(name):
    text, family, said, codes = DAYS[name]
    result = Program(text).explained()
    assert (result.family, [fix.code for fix in result.fixes]) == (family, codes)
    assert said is None or result.record.sentence[0] == said


@pytest.mark.parametrize("name", DAYS)
def test_every_line_that_is_offered_works(name):
    program = Program(DAYS[name][0])
    result = program.explained()
    for fix in result.fixes:
        if fix.code and not fix.code.startswith(SHOWN):
            lines = program.applied(result, fix)
            if "end of Net's constructor" in fix.prose:
                place = next(i for i, line in enumerate(program.lines) if "def forward" in line)
                lines = [*program.lines[:place], " " * 8 + fix.code, *program.lines[place:]]
            if name == "a function of long ago":  # as the words say
                lines = [part for line in lines for part in ([" " * 4 + "@staticmethod"] if " def " in line else []) + [line]]
            program.run(lines)


# ---- a row for each sample ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["-1, 16 * 5 * 5", "x.size(0), 400", "2, 400"])
def test_a_flattening_is_offered_together_with_the_layer_that_it_meets(view):
    program = Program(LENET.replace("VIEW", view).replace("SIZE", "2, 1, 28, 28"))
    result = program.explained()
    assert [fix.code for fix in result.fixes] == ["", "x = x.flatten(1)    # here\nself.fc1 = nn.Linear(256, 120)    # in LeNet"]
    here, there = result.fixes[1].code.splitlines()
    lines = [line.replace(line.strip(), here) if ".view(" in line else line for line in program.lines]
    place = next(i for i, line in enumerate(lines) if "def forward" in line)
    assert program.run([*lines[:place], " " * 8 + there, *lines[place:]])["net"](torch.zeros(3, 1, 28, 28)).shape == (3, 10)


def test_a_flattening_is_enough_where_the_batch_alone_was_wrong():
    program = Program(LENET.replace("VIEW", "2, 400").replace("SIZE", "3, 1, 32, 32"))
    result = program.explained()
    assert [fix.code for fix in result.fixes] == ["x = x.flatten(1)", "x = x.view(-1, 400)"]
    for fix in result.fixes:
        program.run(program.applied(result, fix))


# ---- a stack that is full -------------------------------------------------------------------------------------------------


class Again(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        return self(self.fc(x))


class Round(nn.Module):
    def forward(self, x):
        return self.one(x)

    def one(self, x):
        return self.two(x)

    def two(self, x):
        return self.one(x)


class Asking(nn.Module):
    def __getattr__(self, key):
        return self.inner


class Child(nn.Module):
    def __init__(self, parent):
        super().__init__()
        self.parent, self.fc = parent, nn.Linear(2, 2)


class Parent(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = Child(self)


def nested(levels, last=4):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(last, 4))
    for _ in range(levels - 1):
        model = nn.Sequential(nn.Linear(4, 4), model)
    return model


def countdown(n):
    return countdown(n + 1)


FULL = {
    "itself": (lambda: Again()(torch.ones(2)), "Again.forward calls itself until Python's stack is full."),
    "by methods": (lambda: Round()(torch.ones(2)), ", and so on to itself, until Python's stack is full."),
    "an attribute": (lambda: Asking().foo, "Asking.__getattr__ calls itself until Python's stack is full."),
    "a parent": (lambda: Parent().train(), "Child.parent is the Parent that contains it, so .train loops until"),
    "a parent, shown": (lambda: repr(Parent()), "so .__repr__ loops until Python's stack is full."),
    "deep": (lambda: nested(600)(torch.ones(2, 4)), "The modules are nested too deeply for Python's stack, which has room for"),
}


@pytest.mark.parametrize("name", FULL)
def test_why_a_stack_is_full(name):
    result = explained(FULL[name][0])
    assert result.family == "recursion" and FULL[name][1] in result.headline
    assert len(result.records) <= 2  # not a row for each round
    assert str(result) == str(explained(FULL[name][0]))


def test_a_recursion_of_no_module_is_left_alone():
    assert explained(lambda: countdown(0)).family == ""


def test_the_lines_that_are_offered_for_a_full_stack_work():
    assert explained(FULL["a parent"][0]).fixes[0].code == "object.__setattr__(self, 'parent', parent)"
    limit, model = sys.getrecursionlimit(), nested(600)
    code = explained(lambda: model(torch.ones(2, 4))).fixes[0].code
    try:
        exec(code, {})
        assert model(torch.ones(2, 4)).shape == (2, 4)
    finally:
        sys.setrecursionlimit(limit)


def deepest(x):
    """A model as deep as the stack allows, and its levels."""
    for levels in range(400, 100, -10):
        with suppress(RecursionError):
            nested(levels)(x)
            return nested(levels), levels
    raise AssertionError("not even a hundred levels")


def test_a_model_as_deep_as_the_stack_allows_runs_under_a_trace_and_a_watch():
    x, limit = torch.ones(2, 4), sys.getrecursionlimit()
    model, levels = deepest(x)
    with modlab.trace(model, values=False) as t:
        got = model(x)
    assert got.shape == (2, 4) and len(t.events) > 2 * levels and sys.getrecursionlimit() == limit
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with modlab.watch(model, optimizer, budget=1.0) as w:
        model(x).sum().backward()
        optimizer.step()
    assert w.record.samples == 1 and sys.getrecursionlimit() == limit


def test_an_error_at_the_end_of_a_deep_model_has_its_two_ends():
    result = explained(lambda: nested(120, last=5)(torch.ones(2, 4)))
    assert result.headline.startswith(".".join(["1"] * 120) + " got rows of 4 numbers, but has weights for 5.")
    paths = [step.path for step in result.records if step.stopped]
    assert paths[0] == "" and paths[-1] == ".".join(["1"] * 120) and len(paths) == 18
    assert [step.note for step in result.records if step.note] == ["103 modules above it are not listed"]
    assert [step.depth for step in result.records if step.stopped] == list(range(18))


def test_room_on_the_stack_is_shared_and_given_back():
    limit, first, second = sys.getrecursionlimit(), object(), object()
    recursion_limit.make(first)
    wide = sys.getrecursionlimit()
    recursion_limit.make(second)
    assert wide > limit and sys.getrecursionlimit() == wide
    recursion_limit.give_back(first)
    recursion_limit.give_back(first)
    assert sys.getrecursionlimit() == wide
    recursion_limit.give_back(second)
    assert sys.getrecursionlimit() == limit
    tap = listener.Listener(lambda *_: None, lambda *_: None)
    tap.close()  # one that was never opened
    assert sys.getrecursionlimit() == limit
    tap.open()
    sys.setrecursionlimit(limit + 7)  # the user's own, meanwhile
    tap.close()
    assert sys.getrecursionlimit() == limit + 7
    sys.setrecursionlimit(limit)


# ---- rounds that are equal ------------------------------------------------------------------------------------------------


class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 8), nn.Linear(9, 2)

    def forward(self, x):
        h = torch.zeros(x.size(1), 8)
        for t in range(x.size(0)):
            h = self.cell(x[t], h)
        return self.out(h)


class Twofold(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.out = nn.Linear(8, 8), nn.Linear(9, 2)

    def forward(self, h):
        for _ in range(6):
            h = torch.tanh(self.fc(h))
        return self.out(h)


def test_equal_rounds_are_one():
    result = explained(lambda: Unrolled()(torch.randn(3, 2, 4)))
    assert [(step.name, step.note) for step in result.records[2:]] == [("cell", "2 times"), ("cell", ""), ("out", "")]
    result = explained(lambda: Twofold()(torch.randn(3, 8)))
    assert [(step.path, step.name) for step in result.records[1:]] == [("fc", "fc"), (None, "torch.tanh"), ("out", "out")]
    assert result.records[1].note == "4 times with the row below; 2 rounds before it are not listed"
    assert "4 times with the row below" in str(result) and "4 times with the row below" in result.html()


def test_rounds_that_are_not_listed_are_told_wherever_they_are():
    result = explained(lambda: Unrolled()(torch.randn(200, 2, 4)))  # behind torch.zeros
    assert "196 rounds before it are not listed" in next(step.note for step in result.records if step.name == "cell")


def test_different_layers_are_not_folded():
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)), nn.Linear(9, 2))
    result = explained(lambda: net(torch.ones(3, 8)))
    assert [step.path for step in result.records] == ["", "0", "1", "2", "3", "4", "5"]


# ---- what must not change ---------------------------------------------------------------------------------------------------


def test_what_is_given_for_a_state_that_is_no_tensor():
    class Extra(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.fc = nn.Linear(2, n)

        def get_extra_state(self):
            return {"version": 1}

        def set_extra_state(self, state):
            self.state = state

    new, state = Extra(4), Extra(3).state_dict()
    scope = {"new": new, "state": state, "print": lambda *_: None}
    exec(explained(lambda: new.load_state_dict(state)).fixes[0].code, scope)
    assert list(scope["fitting"]) == ["_extra_state"] and new.state == {"version": 1}


@pytest.mark.parametrize("name", ["a mask for the columns", "one picture", "too few gradients"])
def test_the_error_is_as_it_was_and_nothing_is_kept(name):
    program = Program(DAYS[name][0])
    random = torch.get_rng_state()
    with pytest.raises(Exception) as caught:
        program.run()
    torch.set_rng_state(random)
    before = "".join(traceback.format_exception(caught.value))
    held = copy.copy(caught.value.args)
    text = str(modlab.explain(caught.value))
    assert text == str(modlab.explain(caught.value)) and torch.equal(torch.get_rng_state(), random)
    assert "".join(traceback.format_exception(caught.value)) == before and caught.value.args == held


def test_a_model_that_called_itself_is_freed():
    made = []

    def run():
        model = Again()
        made.append(weakref.ref(model))
        model(torch.ones(2))

    result = explained(run)
    gc.collect()
    assert made[0]() is None and result.family == "recursion"
